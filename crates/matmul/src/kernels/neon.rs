//! Whole words in 128-bit vectors of ARM, split into 32-bit halves as `avx2` does it: `W x = W s + 2^32 (W h)`, s the low half taken as
//! signed, `h = (x + 2^31) >> 32`.
#![allow(unsafe_code)]

use super::words::{Column, Micro, ROWS, WIDTH};
use std::arch::aarch64::*;

const _: () = assert!(WIDTH == 4 && ROWS == 6);

#[target_feature(enable = "neon")]
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
        let mut low = [[vdupq_n_s64(0); 2]; R];
        let mut high = [vdupq_n_s32(0); R];
        for r in 0..R {
            low[r] = [vdupq_n_s64(start[r] as i64); 2];
        }
        for (words, index) in columns {
            let (a, b) = (vld1q_u64(words.add(offset)), vld1q_u64(words.add(offset + 2)));
            let (a32, b32) = (vreinterpretq_s32_u64(a), vreinterpretq_s32_u64(b));
            let s = vuzp1q_s32(a32, b32);
            let h = vcombine_u32(vrshrn_n_u64::<32>(a), vrshrn_n_u64::<32>(b));
            let h = vreinterpretq_s32_u32(h);
            let weights = panel.add(index * R);
            for r in 0..R {
                // Weights have 16 bits.
                let w = vdupq_n_s32(weights.add(r).read() as i32);
                low[r][0] = vmlal_s32(low[r][0], vget_low_s32(s), vget_low_s32(w));
                low[r][1] = vmlal_high_s32(low[r][1], s, w);
                high[r] = vmlaq_s32(high[r], h, w);
            }
        }
        let mask = vdupq_n_u64(mask);
        for r in 0..R {
            let h = vreinterpretq_u32_s32(high[r]);
            let halves = [vmovl_u32(vget_low_u32(h)), vmovl_high_u32(h)];
            for (i, half) in halves.into_iter().enumerate() {
                let sum = vaddq_u64(vreinterpretq_u64_s64(low[r][i]), vshlq_n_u64::<32>(half));
                vst1q_u64(out[r].add(2 * i), vandq_u64(sum, mask));
            }
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
