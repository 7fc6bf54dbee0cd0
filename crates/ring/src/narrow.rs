//! Sums of slotwise products modulo primes below 2^31, one factor stored in 32-bit words: `out_h[j] = sum_i x_ih[j] w_i[j] mod p`, h = 0, 1.
//!
//! A product of two residues of b bits fits 64 bits, so a machine without wide integer products still makes one with a single instruction a lane,
//! and stored factors take half of the memory that [`crate::mac`] reads. Sums are kept in 64 bits without reduction as long as they fit:
//! `floor((2^64 - 2^32 p) / (p-1)^2)` terms, then `s -> floor(s / 2^32) (2^32 mod p) + s mod 2^32`, which is below `2^32 p`.
//!
//! The last step is Montgomery's (Math. Comp. 44, 1985), twice: for `s < 2^32 p`, `R(s) = (s + p (-s/p mod 2^32)) / 2^32 < 2 p` is `s / 2^32` modulo p, and
//! `R(R(s) (2^64 mod p))` is s.
#![allow(unsafe_code)]

use crate::error::expect_len;
use crate::{Isa, RingError};

/// Widest prime.
pub const MAX_NARROW_BITS: u32 = 31;
/// Words of a block: a cache line of the stored factor.
const BLOCK: usize = 16;
const LOW: u64 = 0xffff_ffff;

/// Constants of an odd modulus `p < 2^31` for [`dot`].
#[derive(Clone, Copy, Debug)]
pub struct NarrowModulus {
    p: u64,
    /// `2^32 mod p`, `2^64 mod p`.
    powers: [u64; 2],
    /// `-1/p mod 2^32`.
    negative_inverse: u64,
    /// Terms between reductions.
    lazy: usize,
}

impl NarrowModulus {
    /// For an odd modulus of 3 to 31 bits.
    ///
    /// # Errors
    /// [`RingError::Modulus`] for another one.
    pub fn new(p: u64) -> Result<Self, RingError> {
        if p >> MAX_NARROW_BITS != 0 || p < 4 || p.is_multiple_of(2) {
            return Err(RingError::Modulus { modulus: p, twice_degree: 0 });
        }
        // Newton: p is its own inverse modulo 8, and every step doubles the bits.
        let inverse =
            (0..4).fold(p as u32, |x, _| x.wrapping_mul(2u32.wrapping_sub((p as u32).wrapping_mul(x))));
        let power = (1u64 << 32) % p;
        let lazy = (u64::MAX - (p << 32)) / ((p - 1) * (p - 1));
        Ok(Self {
            p,
            powers: [power, power * power % p],
            negative_inverse: u64::from(inverse.wrapping_neg()),
            lazy: lazy.min(1 << 20) as usize,
        })
    }

    /// Terms between reductions: at least 2.
    #[must_use]
    pub fn lazy_terms(&self) -> usize {
        self.lazy
    }
}

/// Sums of products of pairs with shared factors: `out[h][j] = sum_i x[i][h][j] w[i][j] mod p`.
///
/// All slices have the same length, and all words are below p. Bit-equal on all instruction sets; constant time.
///
/// # Errors
/// [`RingError::Length`] when lengths differ.
pub fn dot(
    isa: Isa,
    m: &NarrowModulus,
    x: &[[&[u64]; 2]],
    w: &[&[u32]],
    out: [&mut [u64]; 2],
) -> Result<(), RingError> {
    let [first, second] = out;
    let len = first.len();
    expect_len("second sum of a narrow product", second.len(), len)?;
    expect_len("right factors of a narrow product", w.len(), x.len())?;
    for (a, b) in x.iter().zip(w) {
        expect_len("left factor of a narrow product", a[0].len(), len)?;
        expect_len("left factor of a narrow product", a[1].len(), len)?;
        expect_len("right factor of a narrow product", b.len(), len)?;
    }
    #[allow(unused_mut)]
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if isa.usable() >= Isa::Avx2 {
        done = len / BLOCK * BLOCK;
        // SAFETY: AVX2 is there; every slice has len words.
        unsafe { avx2::dot(m, x, w, [&mut first[..done], &mut second[..done]]) };
    }
    let _ = isa;
    portable(m, x, w, 0, &mut first[done..], done);
    portable(m, x, w, 1, &mut second[done..], done);
    Ok(())
}

fn portable(m: &NarrowModulus, x: &[[&[u64]; 2]], w: &[&[u32]], h: usize, out: &mut [u64], from: usize) {
    let mut sums = [0u64; BLOCK];
    for (block, out) in out.chunks_mut(BLOCK).enumerate() {
        let at = from + block * BLOCK;
        let range = at..at + out.len();
        sums.fill(0);
        for (x, w) in x.chunks(m.lazy).zip(w.chunks(m.lazy)) {
            sums.iter_mut().for_each(|s| *s = (*s >> 32) * m.powers[0] + (*s & LOW));
            for (x, w) in x.iter().zip(w) {
                for ((s, a), b) in sums.iter_mut().zip(&x[h][range.clone()]).zip(&w[range.clone()]) {
                    *s += a * u64::from(*b);
                }
            }
        }
        for (o, s) in out.iter_mut().zip(&sums) {
            *o = *s % m.p;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{NarrowModulus, BLOCK, LOW};
    use std::arch::x86_64::*;

    /// Terms that pass over the sums together: few, so that the processor follows all of their streams.
    const GROUP: usize = 4;

    /// # Safety
    /// AVX2; all slices at least as long as the sums, whose length is a multiple of 16.
    #[target_feature(enable = "avx2")]
    pub unsafe fn dot(m: &NarrowModulus, x: &[[&[u64]; 2]], w: &[&[u32]], out: [&mut [u64]; 2]) {
        let mut out = out;
        out.iter_mut().for_each(|o| o.fill(0));
        let (size, mut since, mut first) = (GROUP.min(m.lazy), 0, 0);
        while first < w.len() {
            let terms = size.min(w.len() - first);
            let folds = since + terms > m.lazy;
            since = if folds { terms } else { since + terms };
            let (x, w, next) = (&x[first..], &w[first..first + terms], &w[first + terms..]);
            // SAFETY: as promised by the caller, of which these are parts.
            unsafe {
                match terms {
                    1 => group::<1>(m, folds, x, w, next, &mut out),
                    2 => group::<2>(m, folds, x, w, next, &mut out),
                    3 => group::<3>(m, folds, x, w, next, &mut out),
                    _ => group::<GROUP>(m, folds, x, w, next, &mut out),
                }
            }
            first += terms;
        }
        for out in out {
            for o in out.chunks_exact_mut(4) {
                let p: *mut __m256i = o.as_mut_ptr().cast();
                // SAFETY: four words.
                unsafe { _mm256_storeu_si256(p, reduce(m, _mm256_loadu_si256(p))) };
            }
        }
    }

    /// Adds K terms to sums, which are folded before if asked, and asks for the words of the terms that come next.
    ///
    /// # Safety
    /// AVX2; K terms at least, all slices at least as long as the sums, whose length is a multiple of 16.
    #[inline]
    #[target_feature(enable = "avx2")]
    #[allow(clippy::needless_range_loop, reason = "indices name registers")]
    unsafe fn group<const K: usize>(
        m: &NarrowModulus,
        folds: bool,
        x: &[[&[u64]; 2]],
        w: &[&[u32]],
        next: &[&[u32]],
        out: &mut [&mut [u64]; 2],
    ) {
        let len = out[0].len();
        let sums = out.each_mut().map(|o| o.as_mut_ptr());
        let x: [[*const u64; 2]; K] = std::array::from_fn(|k| x[k].map(<[u64]>::as_ptr));
        let w: [*const u32; K] = std::array::from_fn(|k| w[k].as_ptr());
        for line in (0..len).step_by(BLOCK) {
            for next in next.iter().take(GROUP) {
                // SAFETY: a hint, and line < len.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(next.as_ptr().add(line).cast()) };
            }
            for j in (line..line + BLOCK).step_by(4) {
                // SAFETY: j + 4 <= len, which no slice is shorter than.
                unsafe {
                    let mut s = sums.map(|p| _mm256_loadu_si256(p.add(j).cast()));
                    if folds {
                        s = [fold(m, s[0]), fold(m, s[1])];
                    }
                    for k in 0..K {
                        let b = _mm256_cvtepu32_epi64(_mm_loadu_si128(w[k].add(j).cast()));
                        for h in 0..2 {
                            let a = _mm256_loadu_si256(x[k][h].add(j).cast());
                            s[h] = _mm256_add_epi64(s[h], _mm256_mul_epu32(a, b));
                        }
                    }
                    for h in 0..2 {
                        _mm256_storeu_si256(sums[h].add(j).cast(), s[h]);
                    }
                }
            }
        }
    }

    /// Below `2^32 p`, and the same modulo p.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn fold(m: &NarrowModulus, s: __m256i) -> __m256i {
        let high = _mm256_mul_epu32(_mm256_srli_epi64::<32>(s), _mm256_set1_epi64x(m.powers[0] as i64));
        _mm256_add_epi64(high, _mm256_and_si256(s, _mm256_set1_epi64x(LOW as i64)))
    }

    /// `s / 2^32` modulo p, below 2p, for s below `2^32 p`.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn montgomery(m: &NarrowModulus, s: __m256i) -> __m256i {
        let factor = _mm256_mul_epu32(s, _mm256_set1_epi64x(m.negative_inverse as i64));
        let multiple = _mm256_mul_epu32(factor, _mm256_set1_epi64x(m.p as i64));
        _mm256_srli_epi64::<32>(_mm256_add_epi64(s, multiple))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn reduce(m: &NarrowModulus, s: __m256i) -> __m256i {
        let r = montgomery(m, fold(m, s));
        let r = montgomery(m, _mm256_mul_epu32(r, _mm256_set1_epi64x(m.powers[1] as i64)));
        let p = _mm256_set1_epi64x(m.p as i64);
        _mm256_sub_epi64(r, _mm256_andnot_si256(_mm256_cmpgt_epi64(p, r), p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prime::primes_near;
    use crate::simd;
    use proptest::prelude::*;

    fn check(p: u64, terms: usize, len: usize, mut next: impl FnMut() -> u64) {
        let m = NarrowModulus::new(p).unwrap();
        let mut poly = || (0..len).map(|_| next() % p).collect::<Vec<u64>>();
        let x: Vec<[Vec<u64>; 2]> = (0..terms).map(|_| [poly(), poly()]).collect();
        let w: Vec<Vec<u32>> = (0..terms).map(|_| poly().iter().map(|v| *v as u32).collect()).collect();
        let pairs: Vec<[&[u64]; 2]> = x.iter().map(|x| [x[0].as_slice(), x[1].as_slice()]).collect();
        let words: Vec<&[u32]> = w.iter().map(Vec::as_slice).collect();
        let want = [0, 1].map(|h| {
            (0..len)
                .map(|j| x.iter().zip(&w).fold(0, |s, (x, w)| (s + x[h][j] * u64::from(w[j])) % p))
                .collect::<Vec<u64>>()
        });
        for isa in simd::available() {
            let (mut a, mut b) = (vec![1; len], vec![2; len]);
            dot(isa, &m, &pairs, &words, [&mut a, &mut b]).unwrap();
            assert_eq!([a, b], want, "p = {p}, {terms} terms, {isa:?}");
        }
    }

    proptest! {
        #[test]
        fn all_paths_are_the_exact_sum(
            terms in 0usize..90, len in 0usize..100, bits in 20u32..=31, seed in any::<u64>(), extreme in any::<bool>(),
        ) {
            let p = primes_near(bits, 32, 1).unwrap()[0];
            let mut state = seed;
            check(p, terms, len, || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                if extreme { p - 1 } else { state >> 3 }
            });
        }
    }

    #[test]
    fn sums_of_largest_words_on_both_sides_of_a_reduction_do_not_overflow() {
        for bits in [26, 28, 30, 31] {
            let p = primes_near(bits, 32, 1).unwrap()[0];
            let lazy = NarrowModulus::new(p).unwrap().lazy_terms();
            assert!(lazy >= 2);
            for terms in [lazy - 1, lazy, lazy + 1, 3 * lazy + 1] {
                check(p, terms, 17, || p - 1);
            }
        }
    }

    #[test]
    fn wrong_moduli_and_lengths_are_refused() {
        for p in [0, 1, 2, 1 << 20, 1 << 31, (1 << 31) + 11] {
            assert!(NarrowModulus::new(p).is_err(), "{p}");
        }
        let m = NarrowModulus::new(97).unwrap();
        let (x, w) = ([1u64; 20], [1u32; 20]);
        let mut out = ([0; 20], [0; 20]);
        let mut run = |x: &[[&[u64]; 2]], w: &[&[u32]], n: usize, k: usize| {
            dot(Isa::Portable, &m, x, w, [&mut out.0[..n], &mut out.1[..k]]).is_err()
        };
        assert!(!run(&[[&x, &x]], &[&w], 20, 20));
        assert!(run(&[[&x, &x]], &[&w], 20, 19));
        assert!(run(&[[&x, &x]], &[&w], 19, 19));
        assert!(run(&[[&x, &x[1..]]], &[&w], 20, 20));
        assert!(run(&[[&x, &x]], &[&w[1..]], 20, 20));
        assert!(run(&[[&x, &x]], &[], 20, 20));
    }
}
