//! Weights and biases as plaintexts of a circuit.

use super::circuit::{LinearOp, Method};
use super::compile::Circuit;
use super::diagonals::visit;
use super::layout::EMPTY;
use super::PackedError;
use hushnet_rlwe::ckks::{EncodeAt, Encoder, PlainRows, Plaintext};
use std::ops::Range;

/// The number of no list.
const NOWHERE: u32 = u32::MAX;

/// Weights of some inner sums of one output ciphertext, not yet encoded.
pub(super) struct Weights<'a> {
    circuit: &'a Circuit,
    op: &'a LinearOp,
    ct: usize,
    scale: f64,
    /// Numbers of the sums.
    sums: &'a [usize],
    /// For each of them and every term a period of slots.
    values: Vec<Vec<Vec<f64>>>,
}

impl<'a> Weights<'a> {
    /// Those of the sums with these numbers.
    pub(super) fn new(
        circuit: &'a Circuit,
        op: &'a LinearOp,
        (ct, wanted): (usize, &'a [usize]),
        input_scale: f64,
    ) -> Self {
        let (slots, period) = (circuit.program.slots, op.period());
        let sums = &op.rotations.outputs[ct];
        let mut places = vec![None; sums.len()];
        wanted.iter().enumerate().for_each(|(at, k)| places[*k] = Some(at));
        let mut values: Vec<Vec<Vec<f64>>> =
            wanted.iter().map(|k| vec![Vec::new(); sums[*k].terms.len()]).collect();
        let mut put = |at: usize, term: usize, slot: usize, w: f64| {
            let v = &mut values[at][term];
            if v.is_empty() {
                v.resize(period, 0.0);
            }
            v[slot] = w;
        };
        match &op.method {
            _ if wanted.is_empty() => (),
            Method::Rotate { input, form, split } => {
                // By diagonal: the giant step, and the list of values where the sum is wanted.
                let count = op.rotations.inputs.iter().map(|(i, _)| *i as usize + 1).max().unwrap_or(0);
                let mut at = vec![(0u32, NOWHERE, 0u32); count * slots];
                let mask = slots as i64 - 1;
                for (k, s) in sums.iter().enumerate() {
                    let Some(k) = places[k] else { continue };
                    for (t, &number) in s.terms.iter().enumerate() {
                        let (i, baby) = op.rotations.inputs[number as usize];
                        let r = (baby + s.giant + split.offset as i64) & mask;
                        let giant = s.giant.rem_euclid(period as i64) as u32;
                        at[i as usize * slots + r as usize] = (giant, k as u32, t as u32);
                    }
                }
                visit(&op.map, input, form, (ct, split.offset), period, |(i, r), slot, w| {
                    let (giant, k, t) = at[i as usize * slots + r as usize];
                    if k != NOWHERE {
                        put(k as usize, t as usize, (slot + giant as usize) & (period - 1), w);
                    }
                });
            }
            Method::Replicated { outputs, copies, .. } => {
                let part = slots / copies;
                for (s, &f) in outputs[ct][..part].iter().enumerate() {
                    if f != EMPTY {
                        op.map.row(f as usize, |tap, _, w| {
                            put(0, tap / copies, tap % copies * part + s, w);
                        });
                    }
                }
            }
        }
        let scale = op.scale * circuit.step(op.level - 1) / input_scale;
        Self { circuit, op, ct, scale, sums: wanted, values }
    }

    /// Number `from` to before `to` of them, encoded.
    pub(super) fn encoded(
        &self,
        Range { start, end }: Range<usize>,
        encoder: &Encoder,
    ) -> Result<PlainRows, PackedError> {
        let sums = &self.op.rotations.outputs[self.ct];
        let lists = self.sums[start..end].iter().map(|k| sums[*k].terms.clone()).collect();
        let level = self.circuit.level(self.op.level)?;
        let mut rows = PlainRows::new(&self.circuit.params, level, self.scale, self.op.period(), lists)?;
        for (k, v) in self.values[start..end].iter().enumerate() {
            rows.set(encoder, k, v)?;
        }
        Ok(rows)
    }
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
