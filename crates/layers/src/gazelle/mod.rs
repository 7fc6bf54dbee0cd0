//! GAZELLE (Juvekar, Vaikuntanathan, Chandrakasan, USENIX Security 2018): matrix-vector products by naive, diagonal, extended and
//! hybrid encoding, convolutions by output or input rotations. Layouts: [`crate::slots`]. Operation counts of Tables II, III and V
//! of the GALA paper (section III).

use crate::slots::{ConvLayout, DenseLayout, Machine, SlotError, Store, Term};
use hushnet_rlwe::bfv::{Counts, Turn};
use rayon::prelude::*;

/// Naive product: `n_o` sums over `blocks` inputs, each with `folds` = log2 n_i steps of rotate-and-sum (Table II).
#[must_use]
pub fn naive_counts(blocks: u64, outputs: u64, folds: u64) -> Counts {
    Counts {
        perm: outputs * folds,
        sc_mult: outputs * blocks,
        add: outputs * (blocks - 1 + folds),
        ..Counts::default()
    }
}

/// Inputs permuted `steps` times (hoisted), products summed, `folds` steps of rotate-and-sum an output ciphertext. Hybrid (Table II):
/// `steps = n_i n_o / n`, `folds = log2(n / n_o)`; diagonal: `steps = n_i`; extended: `steps = n_i^2 / n`, `folds = log2(n / n_i)`.
#[must_use]
pub fn dense_counts(input_blocks: u64, output_blocks: u64, steps: u64, folds: u64) -> Counts {
    Counts {
        perm: output_blocks * folds,
        dec_perm: if steps > 1 { input_blocks } else { 0 },
        hst_perm: input_blocks * (steps - 1),
        sc_mult: output_blocks * input_blocks * steps,
        add: output_blocks * (input_blocks * steps - 1 + folds),
    }
}

/// Table III, output rotations: c_i input and c_o output channels, c_n a ciphertext (dividing both), `k` kernel positions.
#[must_use]
pub fn conv_counts(ci: u64, co: u64, cn: u64, k: u64) -> Counts {
    let (inputs, outputs) = (ci / cn, co / cn);
    Counts {
        perm: inputs * outputs * (cn - 1),
        dec_perm: if k > 1 { inputs } else { 0 },
        hst_perm: inputs * (k - 1),
        sc_mult: k * ci * co / cn,
        add: outputs * (ci * k - 1),
    }
}

/// Input rotations instead: all `c_n k - 1` permutations of every input ciphertext, hoisted; nothing is permuted afterwards.
#[must_use]
pub fn conv_input_counts(ci: u64, co: u64, cn: u64, k: u64) -> Counts {
    let (inputs, outputs) = (ci / cn, co / cn);
    Counts {
        perm: 0,
        dec_perm: if cn * k > 1 { inputs } else { 0 },
        hst_perm: inputs * (cn * k - 1),
        sc_mult: k * ci * co / cn,
        add: outputs * (ci * k - 1),
    }
}

/// All of `turns` of every input, decomposed once each; the first index is the input. No decomposition where nothing moves.
pub(crate) fn hoisted<M: Machine>(
    machine: &M,
    inputs: &[M::Cipher],
    turns: &[Turn],
) -> Result<Vec<Vec<M::Cipher>>, SlotError> {
    inputs
        .par_iter()
        .map(|c| {
            if turns.iter().all(Turn::is_identity) {
                return Ok(turns.iter().map(|_| c.clone()).collect());
            }
            let digits = machine.dec_perm(c)?;
            turns.iter().map(|t| machine.hst_perm(c, &digits, *t)).collect()
        })
        .collect()
}

/// Naive: one answer an output.
pub(crate) fn naive<M: Machine>(
    layout: &DenseLayout,
    machine: &M,
    inputs: &[M::Cipher],
    weights: &Store<'_, M>,
) -> Result<Vec<M::Cipher>, SlotError> {
    let folds = layout.folds();
    (0..layout.answers() as u32)
        .into_par_iter()
        .map(|output| {
            let term = |input| Term { output, input, step: 0, tap: 0 };
            let terms: Vec<_> = inputs.iter().enumerate().map(|(i, c)| (c, term(i as u32))).collect();
            let sum = weights.sum(machine, &terms)?;
            folds.iter().try_fold(sum, |sum, turn| machine.fold(&sum, *turn))
        })
        .collect()
}

/// Diagonal, extended, hybrid.
pub(crate) fn dense<M: Machine>(
    layout: &DenseLayout,
    machine: &M,
    inputs: &[M::Cipher],
    weights: &Store<'_, M>,
) -> Result<Vec<M::Cipher>, SlotError> {
    let turns: Vec<Turn> = (0..layout.steps).map(|j| layout.turn(j)).collect();
    let permuted = hoisted(machine, inputs, &turns)?;
    let folds = layout.folds();
    (0..layout.answers() as u32)
        .into_par_iter()
        .map(|output| {
            let mut terms = Vec::with_capacity(layout.steps * inputs.len());
            for step in 0..layout.steps {
                for (input, c) in permuted.iter().enumerate() {
                    terms.push((&c[step], Term { output, input: input as u32, step: step as u32, tap: 0 }));
                }
            }
            let sum = weights.sum(machine, &terms)?;
            folds.iter().try_fold(sum, |sum, turn| machine.fold(&sum, *turn))
        })
        .collect()
}

/// Adds the products of some steps, each permuted into line, to `sum`; `permuted[input][tap]` are the rotated inputs.
pub(crate) fn line_up<M: Machine>(
    layout: &ConvLayout,
    machine: &M,
    weights: &Store<'_, M>,
    permuted: &[Vec<M::Cipher>],
    steps: &[(usize, Vec<Term>)],
    sum: &mut Option<M::Cipher>,
) -> Result<(), SlotError> {
    let pair = |t: &Term| (&permuted[t.input as usize][t.tap as usize], *t);
    let pairs: Vec<Vec<_>> = steps.iter().map(|(_, terms)| terms.iter().map(pair).collect()).collect();
    let pairs: Vec<&[_]> = pairs.iter().map(Vec::as_slice).collect();
    for ((step, _), product) in steps.iter().zip(weights.sums(machine, &pairs)?) {
        let part = machine.perm(&product, layout.turn(*step))?;
        accumulate(machine, sum, part)?;
    }
    Ok(())
}

/// Adds a part to a sum, which it may begin.
pub(crate) fn accumulate<M: Machine>(
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

/// Output rotations: every block of c_n x c_n channels is convolved, lined up and added by itself.
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
            for input in layout.inputs_of(output) {
                for group in layout.steps_of(output, input).chunks(weights.together()) {
                    line_up(layout, machine, weights, &permuted, group, &mut sum)?;
                }
            }
            sum.ok_or_else(|| layout.empty_output())
        })
        .collect()
}

/// Every input permuted by all its pairs of channel step and kernel offset, hoisted.
pub(crate) fn hoisted_pairs<M: Machine>(
    layout: &ConvLayout,
    machine: &M,
    inputs: &[M::Cipher],
    pairs: &[Vec<(usize, usize)>],
) -> Result<Vec<Vec<M::Cipher>>, SlotError> {
    let taps = layout.tap_turns();
    inputs
        .par_iter()
        .zip(pairs)
        .map(|(c, pairs)| {
            let turns: Vec<Turn> =
                pairs.iter().map(|(step, tap)| layout.combined(*step, taps[*tap])).collect();
            Ok(hoisted(machine, std::slice::from_ref(c), &turns)?.swap_remove(0))
        })
        .collect()
}

/// The permuted input that a term multiplies.
pub(crate) fn term_of<'a, C>(
    layout: &ConvLayout,
    pairs: &[Vec<(usize, usize)>],
    permuted: &'a [Vec<C>],
    term: Term,
) -> Result<(&'a C, Term), SlotError> {
    let input = term.input as usize;
    let at = pairs[input].binary_search(&layout.pair(&term)).map_err(|_| layout.empty_output())?;
    Ok((&permuted[input][at], term))
}

/// Input rotations.
pub(crate) fn conv_input<M: Machine>(
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
            let steps = layout.inputs_of(output).flat_map(|input| layout.steps_of(output, input));
            let terms = steps.flat_map(|(_, terms)| terms);
            let terms =
                terms.map(|t| term_of(layout, &pairs, &permuted, t)).collect::<Result<Vec<_>, _>>()?;
            weights.sum(machine, &terms)
        })
        .collect()
}
