//! Weights and biases as plaintexts of a circuit.

use super::circuit::{LinearOp, Method};
use super::compile::Circuit;
use super::diagonals::visit;
use super::layout::EMPTY;
use super::PackedError;
use hushnet_rlwe::ckks::{EncodeAt, Encoder, PlainRows, Plaintext};
use std::collections::BTreeMap;

/// Encoded weights of one output ciphertext.
pub(super) fn encode_rows(
    circuit: &Circuit,
    op: &LinearOp,
    ct: usize,
    input_scale: f64,
    encoder: &Encoder,
) -> Result<PlainRows, PackedError> {
    let params = &circuit.params;
    let (slots, period) = (circuit.program.slots, op.period());
    let sums = &op.rotations.outputs[ct];
    let level = circuit.level(op.level)?;
    let scale = op.scale * circuit.step(op.level - 1) / input_scale;
    let lists = sums.iter().map(|s| s.terms.clone()).collect();
    let mut rows = PlainRows::new(params, level, scale, period, lists)?;
    let mut values: Vec<Vec<Vec<f64>>> = sums.iter().map(|s| vec![Vec::new(); s.terms.len()]).collect();
    let mut put = |sum: usize, term: usize, slot: usize, w: f64| {
        let v = &mut values[sum][term];
        if v.is_empty() {
            v.resize(period, 0.0);
        }
        v[slot] = w;
    };
    match &op.method {
        Method::Rotate { input, form, split } => {
            let mut at = BTreeMap::new();
            for (k, s) in sums.iter().enumerate() {
                for (t, &number) in s.terms.iter().enumerate() {
                    let (i, baby) = op.rotations.inputs[number as usize];
                    at.insert((i, baby, s.giant), (k, t));
                }
            }
            let mut last = ((u32::MAX, 0), (0, 0, 0));
            visit(&op.map, input, form, (ct, split.offset), period, |diagonal, slot, w| {
                if last.0 != diagonal {
                    let (baby, giant) = split.cut(diagonal.1);
                    let (k, t) = at[&(diagonal.0, baby, giant)];
                    last = (diagonal, (k, t, giant));
                }
                let (k, t, giant) = last.1;
                let inner = (slot as i64 + giant).rem_euclid(period as i64) as usize;
                put(k, t, inner, w);
            });
        }
        Method::Replicated { outputs, copies, .. } => {
            let part = slots / copies;
            for (s, &f) in outputs[ct][..part].iter().enumerate() {
                if f != EMPTY {
                    op.map.row(f as usize, |tap, _, w| put(0, tap / copies, tap % copies * part + s, w));
                }
            }
        }
    }
    for (k, v) in values.into_iter().enumerate() {
        rows.set(encoder, k, &v)?;
    }
    Ok(rows)
}

/// Encoded biases, one for each output ciphertext, or none.
pub(super) fn encode_bias(
    circuit: &Circuit,
    op: &LinearOp,
    scale: f64,
    encoder: &Encoder,
) -> Result<Vec<Plaintext>, PackedError> {
    if op.map.bias.iter().all(|b| *b == 0.0) {
        return Ok(Vec::new());
    }
    let level = circuit.level(op.level - 1)?;
    let bound = op.map.bias.iter().fold(0.0f64, |m, b| m.max(b.abs()));
    op.output_slots()
        .iter()
        .map(|slots| {
            let values: Vec<f64> =
                slots.iter().map(|&f| if f == EMPTY { 0.0 } else { op.map.bias_of(f as usize) }).collect();
            Ok(encoder.encode(&values, EncodeAt { level, scale, bound })?)
        })
        .collect()
}
