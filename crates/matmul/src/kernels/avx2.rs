//! Whole words in 256-bit vectors, as two 32-bit halves.
//!
//! With `s` the low half taken as signed, `x = s + 2^32 h` where `h = (x + 2^31) >> 32`, so
//! `W x = W s + 2^32 (W h)`: two signed 32-bit products, of which the second counts modulo 2^32 only.
#![allow(unsafe_code)]

use super::avx512::Column;
use super::WordPanel;
use crate::scratch::Scratch;
use std::arch::x86_64::*;

/// Most rows of weights that a register tile holds.
pub(crate) const ROWS: usize = 6;
const WIDTH: usize = 4;

type Micro = unsafe fn(&[Column], usize, *const u64, &[u64], u64, &[*mut u64]);

#[target_feature(enable = "avx2")]
unsafe fn micro<const R: usize>(
    columns: &[Column],
    offset: usize,
    panel: *const u64,
    start: &[u64],
    mask: u64,
    out: &[*mut u64],
) {
    // SAFETY: the caller vouches for four words at `offset` of every column, for `R` weights of every column
    // index, and for room for four words behind every output pointer.
    unsafe {
        let mut low = [_mm256_setzero_si256(); R];
        let mut high = [_mm256_setzero_si256(); R];
        for r in 0..R {
            low[r] = _mm256_set1_epi64x(start.get(r).copied().unwrap_or(0) as i64);
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

/// All rows and words. The caller has checked lengths and instructions.
pub(crate) fn multiply(
    panel: &WordPanel,
    rows: &[Option<&[u64]>],
    start: &[u64],
    mask: u64,
    out: &mut [&mut [u64]],
    scratch: &mut Scratch,
) {
    let words = out.first().map_or(0, |o| o.len());
    let Scratch { words: copy, columns, .. } = scratch;
    columns.clear();
    columns.extend(rows.iter().enumerate().filter_map(|(k, r)| r.map(|r| (r.as_ptr(), k))));
    let mut tail = [[0u64; WIDTH]; ROWS];
    for at in (0..words).step_by(STRIP) {
        let count = STRIP.min(words - at);
        // Columns that are read again by another row block, or end early, are copied together once.
        let copied = count < STRIP || panel.blocks.len() > 1;
        let (list, base): (&[Column], usize) = if copied {
            (super::avx512::copied(columns, at, count, STRIP, copy), 0)
        } else {
            (&columns[..], at)
        };
        for offset in (0..count).step_by(WIDTH) {
            let width = WIDTH.min(count - offset);
            for &(first, r, begin) in &panel.blocks {
                let mut pointers = [std::ptr::null_mut::<u64>(); ROWS];
                for i in 0..r {
                    pointers[i] = if width < WIDTH {
                        tail[i].as_mut_ptr()
                    } else {
                        out[first + i][at + offset..at + offset + WIDTH].as_mut_ptr()
                    };
                }
                let start = start.get(first..first + r).unwrap_or(&[]);
                let weights = panel.values[begin..begin + r * rows.len()].as_ptr();
                // SAFETY: every row is as long as the outputs (checked by the caller); a short strip is read
                // from its padded copy and a short last tile is written to `tail`.
                unsafe { pick(r)(list, base + offset, weights, start, mask, &pointers[..r]) };
                if width < WIDTH {
                    for i in 0..r {
                        out[first + i][at + offset..].copy_from_slice(&tail[i][..width]);
                    }
                }
            }
        }
    }
}

/// Words that are copied together: two cache lines of every column.
const STRIP: usize = 16;
