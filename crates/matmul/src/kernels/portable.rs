//! The definition: wrapping products of whole words.

use crate::Weights;
use std::ops::Range;

/// `out_m = start_m + sum_k W_mk row_k`, low bits kept by `mask`.
pub(crate) fn multiply(
    w: &Weights,
    outputs: Range<usize>,
    rows: &[Option<&[u64]>],
    start: &[u64],
    mask: u64,
    out: &mut [&mut [u64]],
) {
    for (i, (m, out)) in outputs.zip(out.iter_mut()).enumerate() {
        out.fill(start.get(i).copied().unwrap_or(0));
        for (weight, row) in w.row(m).iter().zip(rows) {
            let (Some(row), true) = (row, *weight != 0) else { continue };
            let weight = i64::from(*weight) as u64;
            for (o, x) in out.iter_mut().zip(*row) {
                *o = o.wrapping_add(weight.wrapping_mul(*x));
            }
        }
        for o in out.iter_mut() {
            *o &= mask;
        }
    }
}
