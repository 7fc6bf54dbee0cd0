//! GALA (Zhang, Xin, Wu, NDSS 2021): row encoding with shares taken before rotate-and-sum (section III-A), and convolutions that
//! add before they permute ("kernel grouping", section III-B). Layouts: [`crate::slots`].
//!
//! **Why partial sums may be shared.** The server masks *every slot* of an answer with its own uniform value modulo t, so what the client
//! opens is uniform whatever the partial sums are; each party adds up its own slots of an output, and the two results are shares of the
//! whole sum. The masks' sums are uniform and independent for different outputs, since these have disjoint slots.

use crate::gazelle::{hoisted, line_up};
use crate::slots::{ConvLayout, DenseLayout, Machine, SlotError, Store, Term, SUMS};
use hushnet_rlwe::bfv::Counts;
use rayon::prelude::*;

/// Table II: `steps = n_i n_o / n` products, permuted into line; inputs of several blocks are added before.
#[must_use]
pub fn dense_counts(input_blocks: u64, output_blocks: u64, steps: u64) -> Counts {
    Counts {
        perm: output_blocks * (steps - 1),
        sc_mult: output_blocks * input_blocks * steps,
        add: output_blocks * (input_blocks * steps - 1),
        ..Counts::default()
    }
}

/// Table III: c_i input and c_o output channels, c_n a ciphertext (dividing both), `k` kernel positions.
#[must_use]
pub fn conv_counts(ci: u64, co: u64, cn: u64, k: u64) -> Counts {
    Counts { perm: co / cn * (cn - 1), ..crate::gazelle::conv_counts(ci, co, cn, k) }
}

/// Row encoding: the unrotated input is multiplied, products are permuted into line and added.
pub(crate) fn dense<M: Machine>(
    layout: &DenseLayout,
    machine: &M,
    inputs: &[M::Cipher],
    weights: &Store<'_, M>,
) -> Result<Vec<M::Cipher>, SlotError> {
    (0..layout.answers() as u32)
        .into_par_iter()
        .map(|output| {
            let product = |step: u32| {
                let term = |input| Term { output, input, step, tap: 0 };
                let terms: Vec<_> = inputs.iter().enumerate().map(|(i, c)| (c, term(i as u32))).collect();
                weights.sum(machine, &terms)
            };
            let mut sum = product(0)?;
            for step in 1..layout.steps {
                let part = machine.perm(&product(step as u32)?, layout.turn(step))?;
                machine.add(&mut sum, &part)?;
            }
            Ok(sum)
        })
        .collect()
}

/// Kernel grouping: convolved vectors of the same kernel order are added over all inputs, then permuted into line.
pub(crate) fn conv<M: Machine>(
    layout: &ConvLayout,
    machine: &M,
    inputs: &[M::Cipher],
    weights: &Store<'_, M>,
) -> Result<Vec<M::Cipher>, SlotError> {
    let permuted = hoisted(machine, inputs, &layout.tap_turns())?;
    (0..layout.output_blocks())
        .into_par_iter()
        .map(|output| {
            let mut sum: Option<M::Cipher> = None;
            for group in layout.grouped_steps(output).chunks(SUMS) {
                line_up(layout, machine, weights, &permuted, group, &mut sum)?;
            }
            sum.ok_or_else(|| layout.empty_output())
        })
        .collect()
}
