//! From 32-bit sums of limb products back to words.
#![allow(unsafe_code)]

use crate::limbs::{Lane, BLOCK};
use hushnet_ring::Isa;

/// Adds `2^(shift + 8 l)` times every sum of accumulator `lanes[l]` to the sixteen words, modulo 2^64.
pub(crate) fn add_lanes(isa: Isa, lanes: &[Lane], shift: u32, words: &mut [u64; BLOCK]) {
    #[cfg(target_arch = "x86_64")]
    if isa.usable() >= Isa::Avx512 {
        // SAFETY: AVX-512 F exists (`usable`).
        unsafe { wide::add_stored(lanes, shift, words) };
        return;
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    for (limb, lane) in (0u32..).zip(lanes) {
        for (element, sum) in lane.0.chunks_exact(4).enumerate() {
            let sum = i64::from(i32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]])) as u64;
            let word = &mut words[8 * (element % 2) + element / 2];
            *word = word.wrapping_add(sum.wrapping_shl(8 * limb) << shift);
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod wide {
    use super::{Lane, BLOCK};
    use std::arch::x86_64::*;

    /// Words 0 to 7 and 8 to 15 of `sum_l 2^(8 l) acc_l`, from the low and the high halves of the elements.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) fn fold<const L: usize>(acc: &[__m512i; L]) -> (__m512i, __m512i) {
        let mut low = _mm512_setzero_si512();
        let mut high = _mm512_setzero_si512();
        for (l, acc) in acc.iter().enumerate() {
            let (a, b) = weigh(*acc, l);
            low = _mm512_add_epi64(low, a);
            high = _mm512_add_epi64(high, b);
        }
        (low, high)
    }

    /// Both halves of the elements, sign-extended, times 2^(8 limb).
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn weigh(acc: __m512i, limb: usize) -> (__m512i, __m512i) {
        let upper = _mm512_srli_epi64::<32>(acc);
        if limb < 4 {
            // The product sign-extends its low half.
            let scale = _mm512_set1_epi64(1 << (8 * limb));
            (_mm512_mul_epi32(acc, scale), _mm512_mul_epi32(upper, scale))
        } else {
            let count = _mm_cvtsi32_si128(8 * limb as i32);
            (_mm512_sll_epi64(acc, count), _mm512_sll_epi64(upper, count))
        }
    }

    #[target_feature(enable = "avx512f")]
    pub(crate) unsafe fn add_stored(lanes: &[Lane], shift: u32, words: &mut [u64; BLOCK]) {
        let mut low = _mm512_setzero_si512();
        let mut high = _mm512_setzero_si512();
        for (l, lane) in lanes.iter().enumerate() {
            // SAFETY: a lane is 64 aligned bytes.
            let acc = unsafe { _mm512_load_si512(lane.0.as_ptr().cast()) };
            let (a, b) = weigh(acc, l);
            low = _mm512_add_epi64(low, a);
            high = _mm512_add_epi64(high, b);
        }
        let count = _mm_cvtsi32_si128(shift as i32);
        let words: *mut u64 = words.as_mut_ptr();
        // SAFETY: sixteen words.
        unsafe {
            let first = _mm512_loadu_si512(words.cast());
            let second = _mm512_loadu_si512(words.add(8).cast());
            let first = _mm512_add_epi64(first, _mm512_sll_epi64(low, count));
            let second = _mm512_add_epi64(second, _mm512_sll_epi64(high, count));
            _mm512_storeu_si512(words.cast(), first);
            _mm512_storeu_si512(words.add(8).cast(), second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_paths_add_the_same_words() {
        let mut lanes = [Lane::ZERO; 8];
        for (l, lane) in lanes.iter_mut().enumerate() {
            for e in 0..16 {
                let sum = [i32::MIN, i32::MAX, -1, 0, 1, 77_777][(l + e) % 6];
                lane.0[4 * e..4 * e + 4].copy_from_slice(&sum.to_le_bytes());
            }
        }
        for limbs in 1..=8 {
            for shift in [0, 8, 16] {
                let mut exact = [u64::MAX - 3; BLOCK];
                add_lanes(Isa::Portable, &lanes[..limbs], shift, &mut exact);
                let sums: Vec<i128> = (0..limbs)
                    .map(|l| i128::from([i32::MIN, i32::MAX, -1, 0, 1, 77_777][l % 6]) << (8 * l))
                    .collect();
                let first = i128::from(u64::MAX - 3) + (sums.iter().sum::<i128>() << shift);
                assert_eq!(exact[0], first as u64);
                for isa in hushnet_ring::simd::available() {
                    let mut words = [u64::MAX - 3; BLOCK];
                    add_lanes(isa, &lanes[..limbs], shift, &mut words);
                    assert_eq!(words, exact, "{isa:?}");
                }
            }
        }
    }
}
