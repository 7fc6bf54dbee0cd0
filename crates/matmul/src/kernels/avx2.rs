//! Whole words in 256-bit vectors, as two 32-bit halves.
//!
//! With `s` the low half taken as signed, `x = s + 2^32 h` where `h = (x + 2^31) >> 32`, so
//! `W x = W s + 2^32 (W h)`: two signed 32-bit products, of which the second counts modulo 2^32 only.
#![allow(unsafe_code)]

use super::words::{Column, Micro, ROWS, WIDTH};
use std::arch::x86_64::*;

const _: () = assert!(WIDTH == 4 && ROWS == 6);

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

/// The tile of so many rows.
pub(crate) fn pick(rows: usize) -> Micro {
    match rows {
        1 => micro::<1>,
        2 => micro::<2>,
        3 => micro::<3>,
        4 => micro::<4>,
        5 => micro::<5>,
        _ => micro::<6>,
    }
}
