//! GALA (Zhang, Xin, Wu, NDSS 2021): row encoding with shares taken before rotate-and-sum (section III-A), and convolutions that
//! add before they permute ("kernel grouping", section III-B). Layouts: [`crate::slots`].
//!
//! **Why partial sums may be shared.** The server masks *every slot* of an answer with its own uniform value modulo t, so what the client
//! opens is uniform whatever the partial sums are; each party adds up its own slots of an output, and the two results are shares of the
//! whole sum. The masks' sums are uniform and independent for different outputs, since these have disjoint slots.

use crate::gazelle::{accumulate, hoisted, hoisted_pairs, line_up, term_of};
use crate::slots::{ConvLayout, DenseLayout, Machine, SlotError, Store, Term};
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

/// Kernel grouping with `b` of the `c_n` steps done to the inputs: (b k - 1) hoisted permutations an input, c_n / b - 1 an output.
#[must_use]
pub fn conv_steps_counts(ci: u64, co: u64, cn: u64, k: u64, b: u64) -> Counts {
    let inputs = ci / cn;
    Counts {
        perm: co / cn * (cn / b - 1),
        dec_perm: if k * b > 1 { inputs } else { 0 },
        hst_perm: inputs * (k * b - 1),
        ..crate::gazelle::conv_counts(ci, co, cn, k)
    }
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
            for group in layout.grouped_steps(output).chunks(weights.together()) {
                line_up(layout, machine, weights, &permuted, group, &mut sum)?;
            }
            sum.ok_or_else(|| layout.empty_output())
        })
        .collect()
}

/// Kernel grouping, baby steps on the inputs: sums over all inputs, kernel positions and early steps, permuted by the late steps.
pub(crate) fn conv_steps<M: Machine>(
    layout: &ConvLayout,
    machine: &M,
    inputs: &[M::Cipher],
    weights: &Store<'_, M>,
) -> Result<Vec<M::Cipher>, SlotError> {
    let pairs = layout.used_pairs();
    let permuted = hoisted_pairs(layout, machine, inputs, &pairs)?;
    (0..layout.output_blocks())
        .into_par_iter()
        .map(|output| {
            let mut sum: Option<M::Cipher> = None;
            for group in layout.late_steps(output).chunks(weights.together()) {
                let of = |t: &Term| term_of(layout, &pairs, &permuted, *t);
                let terms = group
                    .iter()
                    .map(|(_, terms)| terms.iter().map(of).collect::<Result<Vec<_>, _>>())
                    .collect::<Result<Vec<_>, _>>()?;
                let terms: Vec<&[_]> = terms.iter().map(Vec::as_slice).collect();
                for ((step, _), product) in group.iter().zip(weights.sums(machine, &terms)?) {
                    let part = machine.perm(&product, layout.turn(*step))?;
                    accumulate(machine, &mut sum, part)?;
                }
            }
            sum.ok_or_else(|| layout.empty_output())
        })
        .collect()
}
