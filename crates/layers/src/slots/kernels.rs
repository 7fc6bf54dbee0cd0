//! The kernels of all orders, on any machine.

use super::order::Early;
use super::{ConvLayout, DenseLayout, Machine, SlotError, Store, Term};
use hushnet_rlwe::bfv::Turn;
use rayon::prelude::*;

/// All of `turns` of an input, decomposed once. No decomposition where nothing moves.
fn hoisted<M: Machine>(machine: &M, c: &M::Cipher, turns: &[Turn]) -> Result<Vec<M::Cipher>, SlotError> {
    if turns.iter().all(Turn::is_identity) {
        return Ok(turns.iter().map(|_| c.clone()).collect());
    }
    let digits = machine.dec_perm(c)?;
    turns.iter().map(|t| machine.hst_perm(c, &digits, *t)).collect()
}

/// Adds a part to a sum, which it may begin.
fn accumulate<M: Machine>(
    machine: &M,
    sum: &mut Option<M::Cipher>,
    part: M::Cipher,
) -> Result<(), SlotError> {
    match sum {
        Some(sum) => machine.add(sum, &part)?,
        None => *sum = Some(part),
    }
    Ok(())
}

/// A matrix-vector product: inputs are permuted and multiplied, or multiplied and permuted, then summed up as far as that is done under encryption.
pub(super) fn dense<M: Machine>(
    layout: &DenseLayout,
    machine: &M,
    inputs: &[M::Cipher],
    weights: &Store<'_, M>,
) -> Result<Vec<M::Cipher>, SlotError> {
    let turns: Vec<Turn> = (0..layout.steps).map(|j| layout.turn(j)).collect();
    let first = layout.order.multiply_first;
    let permuted: Vec<Vec<M::Cipher>> = if first {
        Vec::new()
    } else {
        inputs.par_iter().map(|c| hoisted(machine, c, &turns)).collect::<Result<_, _>>()?
    };
    let folds = layout.folds();
    (0..layout.answers() as u32)
        .into_par_iter()
        .map(|output| {
            let term =
                |input: usize, step: usize| Term { output, input: input as u32, step: step as u32, tap: 0 };
            let sum = if first {
                let product = |step: usize| {
                    let terms: Vec<_> = inputs.iter().enumerate().map(|(i, c)| (c, term(i, step))).collect();
                    weights.sum(machine, &terms)
                };
                let mut sum = product(0)?;
                for (step, turn) in turns.iter().enumerate().skip(1) {
                    let part = machine.perm(&product(step)?, *turn)?;
                    machine.add(&mut sum, &part)?;
                }
                sum
            } else {
                let of =
                    |step: usize| permuted.iter().enumerate().map(move |(i, c)| (&c[step], term(i, step)));
                let terms: Vec<_> = (0..layout.steps).flat_map(of).collect();
                weights.sum(machine, &terms)?
            };
            folds.iter().try_fold(sum, |sum, turn| machine.fold(&sum, *turn))
        })
        .collect()
}

/// A convolution: inputs are rotated by the kernel's offsets, and permuted as far as that is done early; sums of products are permuted into line
/// and added.
pub(super) fn conv<M: Machine>(
    layout: &ConvLayout,
    machine: &M,
    inputs: &[M::Cipher],
    weights: &Store<'_, M>,
) -> Result<Vec<M::Cipher>, SlotError> {
    let taps = layout.tap_turns();
    let pairs = if layout.turns_inputs() { layout.used_pairs() } else { Vec::new() };
    let permuted: Vec<Vec<M::Cipher>> = inputs
        .par_iter()
        .enumerate()
        .map(|(input, c)| match pairs.get(input) {
            None => hoisted(machine, c, &taps),
            Some(pairs) => {
                let turns: Vec<Turn> =
                    pairs.iter().map(|(step, tap)| layout.combined(*step, taps[*tap])).collect();
                hoisted(machine, c, &turns)
            }
        })
        .collect::<Result<_, _>>()?;
    let of = |t: &Term| -> Result<(&M::Cipher, Term), SlotError> {
        let input = t.input as usize;
        let at = match pairs.get(input) {
            None => t.tap as usize,
            Some(pairs) => pairs.binary_search(&layout.pair(t)).map_err(|_| layout.empty_output())?,
        };
        Ok((&permuted[input][at], *t))
    };
    (0..layout.output_blocks())
        .into_par_iter()
        .map(|output| {
            let mut sum: Option<M::Cipher> = None;
            for group in layout.sums(output).chunks(weights.together()) {
                let terms = group
                    .iter()
                    .map(|(_, terms)| terms.iter().map(of).collect::<Result<Vec<_>, _>>())
                    .collect::<Result<Vec<_>, _>>()?;
                let terms: Vec<&[_]> = terms.iter().map(Vec::as_slice).collect();
                for ((step, _), product) in group.iter().zip(weights.sums(machine, &terms)?) {
                    let still = layout.order.early == Early::All;
                    let part = if still { product } else { machine.perm(&product, layout.turn(*step))? };
                    accumulate(machine, &mut sum, part)?;
                }
            }
            sum.ok_or_else(|| layout.empty_output())
        })
        .collect()
}
