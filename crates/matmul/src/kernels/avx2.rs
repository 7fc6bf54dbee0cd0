//! Whole words in 256-bit vectors, as two 32-bit halves.
//!
//! With `s` the low half taken as signed, `x = s + 2^32 h` where `h = (x + 2^31) >> 32`, so
//! `W x = W s + 2^32 (W h)`: two signed 32-bit products, of which the second counts modulo 2^32 only.
#![allow(unsafe_code)]

use super::avx512::Column;
use super::{Wanted, WordPanel};
use crate::scratch::Scratch;
use std::arch::x86_64::*;
use std::ops::Range;

/// Most rows of weights that a register tile holds.
pub(crate) const ROWS: usize = 6;
const WIDTH: usize = 4;

type Micro = unsafe fn(&[Column], usize, *const u64, &[u64; ROWS], u64, &[*mut u64; ROWS]);

#[target_feature(enable = "avx2")]
unsafe fn micro<const R: usize>(
    columns: &[Column],
    offset: usize,
    panel: *const u64,
    start: &[u64; ROWS],
    mask: u64,
    out: &[*mut u64; ROWS],
) {
    // SAFETY: the caller vouches for four words at `offset` of every column, for `R` weights of every column
    // index, and for room for four words behind every output pointer.
    unsafe {
        let mut low = [_mm256_setzero_si256(); R];
        let mut high = [_mm256_setzero_si256(); R];
        for r in 0..R {
            low[r] = _mm256_set1_epi64x(start[r] as i64);
        }
        let half = _mm256_set1_epi64x(1 << 31);
        for (words, index) in columns {
            let x = _mm256_loadu_si256(words.add(offset).cast());
            let h = _mm256_srli_epi64::<32>(_mm256_add_epi64(x, half));
            let weights = panel.add(index * R);
            for r in 0..R {
                let w = _mm256_set1_epi64x(weights.add(r).read() as i64);
                low[r] = _mm256_add_epi64(low[r], _mm256_mul_epi32(x, w));
                high[r] = _mm256_add_epi64(high[r], _mm256_mul_epi32(h, w));
            }
        }
        let mask = _mm256_set1_epi64x(mask as i64);
        for r in 0..R {
            let sum = _mm256_add_epi64(low[r], _mm256_slli_epi64::<32>(high[r]));
            _mm256_storeu_si256(out[r].cast(), _mm256_and_si256(sum, mask));
        }
    }
}

fn pick(rows: usize) -> Micro {
    match rows {
        1 => micro::<1>,
        2 => micro::<2>,
        3 => micro::<3>,
        4 => micro::<4>,
        5 => micro::<5>,
        _ => micro::<6>,
    }
}

/// The wanted rows, all words. The caller has checked lengths and instructions.
pub(crate) fn multiply(
    panel: &WordPanel,
    outputs: Range<usize>,
    rows: &[Option<&[u64]>],
    start: &[u64],
    mask: u64,
    out: &mut [&mut [u64]],
    scratch: &mut Scratch,
) {
    let mut wanted = Wanted::<WIDTH>::new(outputs, out, start, ROWS);
    let words = wanted.words();
    let Scratch { words: copy, columns, .. } = scratch;
    columns.clear();
    columns.extend(rows.iter().enumerate().filter_map(|(k, r)| r.map(|r| (r.as_ptr(), k))));
    for at in (0..words).step_by(STRIP) {
        let count = STRIP.min(words - at);
        // Columns that are read again by another row block, or end early, are copied together once.
        let (list, base): (&[Column], usize) = if count < STRIP || panel.blocks.len() > 1 {
            (super::avx512::copied::<STRIP>(columns, at, count, copy), 0)
        } else {
            (&columns[..], at)
        };
        for offset in (0..count).step_by(WIDTH) {
            for &(first, r, begin) in &panel.blocks {
                if wanted.none_of(first, r) {
                    continue;
                }
                let pointers = wanted.pointers::<ROWS>(first, r, at + offset);
                let start = wanted.constants::<ROWS>(first, r);
                let weights = panel.values[begin..begin + r * rows.len()].as_ptr();
                // SAFETY: every row is as long as the outputs (checked by the caller); a short strip is read
                // from its padded copy and a short last tile is written to spare room.
                unsafe { pick(r)(list, base + offset, weights, &start, mask, &pointers) };
                wanted.finish(first, r, at + offset);
            }
        }
    }
}

/// Words that are copied together: two cache lines of every column.
const STRIP: usize = 16;
