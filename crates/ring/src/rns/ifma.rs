//! AVX-512 IFMA lanes: eight words, 52-bit multipliers.
#![allow(unsafe_code)]

use super::lanes::Lanes;
use super::modulus::{Factor, Modulus};
use std::arch::x86_64::*;

/// Eight words; needs AVX-512 F, DQ and IFMA.
#[derive(Clone, Copy)]
pub(super) struct Ifma;

#[derive(Clone, Copy)]
pub(super) struct Consts {
    q: __m512i,
    /// `2^52 - q`: sums of low halves of products with it are differences modulo 2^52.
    minus_q: __m512i,
    twice_q: __m512i,
    product_ratio: __m512i,
    word_ratio: __m512i,
    right: __m512i,
    left: __m512i,
    high: Pair,
}

/// A factor and its quotient, or the low and high halves of a lazy sum.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    low: __m512i,
    high: __m512i,
}

#[inline(always)]
unsafe fn fold(x: __m512i, q: __m512i) -> __m512i {
    // SAFETY: the caller has AVX-512 F.
    unsafe { _mm512_min_epu64(x, _mm512_sub_epi64(x, q)) }
}

#[inline(always)]
unsafe fn low_bits(x: __m512i) -> __m512i {
    // SAFETY: the caller has AVX-512 F.
    unsafe { _mm512_and_si512(x, _mm512_set1_epi64((1 << 52) - 1)) }
}

// SAFETY of every method: the caller has AVX-512 F, DQ and IFMA, and passes valid pointers to `load` and `store`.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Lanes for Ifma {
    const WIDTH: usize = 8;
    type Words = __m512i;
    type Reals = __m512d;
    type Mod = Consts;
    type Fac = Pair;
    type Acc = Pair;

    #[inline(always)]
    unsafe fn modulus(m: &Modulus) -> Consts {
        unsafe {
            Consts {
                q: Self::splat(m.q),
                minus_q: Self::splat((1 << 52) - m.q),
                twice_q: Self::splat(2 * m.q),
                product_ratio: Self::splat(m.product_ratio),
                word_ratio: Self::splat(m.word_ratio),
                right: Self::splat(u64::from(m.bits - 2)),
                left: Self::splat(u64::from(54 - m.bits)),
                high: Self::factor(m.high),
            }
        }
    }
    #[inline(always)]
    unsafe fn factor(f: Factor) -> Pair {
        unsafe { Pair { low: Self::splat(f.w), high: Self::splat(f.quotient) } }
    }
    #[inline(always)]
    unsafe fn load(p: *const u64) -> __m512i {
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn load_half(p: *const u32) -> __m512i {
        unsafe { _mm512_cvtepu32_epi64(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u64, v: __m512i) {
        unsafe { _mm512_storeu_si512(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn splat(v: u64) -> __m512i {
        unsafe { _mm512_set1_epi64(v as i64) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512i, b: __m512i, m: Consts) -> __m512i {
        unsafe { fold(_mm512_add_epi64(a, b), m.q) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512i, b: __m512i, m: Consts) -> __m512i {
        unsafe {
            let d = _mm512_sub_epi64(a, b);
            _mm512_min_epu64(d, _mm512_add_epi64(d, m.q))
        }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512i, b: __m512i, m: Consts) -> __m512i {
        unsafe {
            let zero = _mm512_setzero_si512();
            let low = _mm512_madd52lo_epu64(zero, a, b);
            let high = _mm512_madd52hi_epu64(zero, a, b);
            let top = _mm512_or_si512(_mm512_srlv_epi64(low, m.right), _mm512_sllv_epi64(high, m.left));
            let estimate = _mm512_madd52hi_epu64(zero, top, m.product_ratio);
            let rest = low_bits(_mm512_madd52lo_epu64(low, estimate, m.minus_q));
            fold(fold(rest, m.twice_q), m.q)
        }
    }
    #[inline(always)]
    unsafe fn mul_factor(a: __m512i, f: Pair, m: Consts) -> __m512i {
        unsafe {
            let zero = _mm512_setzero_si512();
            let estimate = _mm512_madd52hi_epu64(zero, a, f.high);
            let low = _mm512_madd52lo_epu64(zero, a, f.low);
            fold(low_bits(_mm512_madd52lo_epu64(low, estimate, m.minus_q)), m.q)
        }
    }
    #[inline(always)]
    unsafe fn reduce(a: __m512i, m: Consts) -> __m512i {
        unsafe {
            let zero = _mm512_setzero_si512();
            let estimate = _mm512_madd52hi_epu64(zero, a, m.word_ratio);
            let multiple = _mm512_madd52lo_epu64(zero, estimate, m.q);
            fold(_mm512_sub_epi64(a, multiple), m.q)
        }
    }
    #[inline(always)]
    unsafe fn abs(a: __m512i) -> __m512i {
        unsafe { _mm512_abs_epi64(a) }
    }
    #[inline(always)]
    unsafe fn with_sign(a: __m512i, r: __m512i, m: Consts) -> __m512i {
        unsafe {
            let negative = _mm512_movepi64_mask(a);
            fold(_mm512_mask_sub_epi64(r, negative, m.q, r), m.q)
        }
    }
    #[inline(always)]
    unsafe fn halves(a: __m512i) -> (__m512i, __m512i) {
        unsafe { (_mm512_srli_epi64::<32>(a), _mm512_and_si512(a, _mm512_set1_epi64(0xffff_ffff))) }
    }
    #[inline(always)]
    unsafe fn extend(a: __m512i, s: __m512i) -> __m512i {
        unsafe { _mm512_sub_epi64(_mm512_xor_si512(a, s), s) }
    }
    #[inline(always)]
    unsafe fn acc_zero() -> Pair {
        unsafe { Pair { low: _mm512_setzero_si512(), high: _mm512_setzero_si512() } }
    }
    #[inline(always)]
    unsafe fn acc_of(a: __m512i) -> Pair {
        unsafe { Pair { low: a, high: _mm512_setzero_si512() } }
    }
    #[inline(always)]
    unsafe fn acc_mac(acc: Pair, a: __m512i, b: __m512i, _: Consts) -> Pair {
        unsafe {
            Pair { low: _mm512_madd52lo_epu64(acc.low, a, b), high: _mm512_madd52hi_epu64(acc.high, a, b) }
        }
    }
    #[inline(always)]
    unsafe fn acc_reduce(acc: Pair, m: Consts) -> __m512i {
        unsafe { fold(fold(Self::acc_reduce_loose(acc, m), m.twice_q), m.q) }
    }
    #[inline(always)]
    unsafe fn acc_reduce_loose(acc: Pair, m: Consts) -> __m512i {
        unsafe {
            // Both halves less their multiples of q, each below 2 q, are one sum below 4 q, which is below 2^52.
            let zero = _mm512_setzero_si512();
            let high = _mm512_add_epi64(acc.high, _mm512_srli_epi64::<52>(acc.low));
            let multiples = _mm512_add_epi64(
                _mm512_madd52hi_epu64(zero, high, m.high.high),
                _mm512_madd52hi_epu64(zero, acc.low, m.word_ratio),
            );
            let sum = _mm512_madd52lo_epu64(acc.low, high, m.high.low);
            low_bits(_mm512_madd52lo_epu64(sum, multiples, m.minus_q))
        }
    }
    #[inline(always)]
    unsafe fn real_zero() -> __m512d {
        unsafe { _mm512_setzero_pd() }
    }
    #[inline(always)]
    unsafe fn real_mac(sum: __m512d, a: __m512i, r: f64) -> __m512d {
        unsafe { _mm512_add_pd(sum, _mm512_mul_pd(_mm512_cvtepu64_pd(a), _mm512_set1_pd(r))) }
    }
    #[inline(always)]
    unsafe fn real_round(x: __m512d) -> __m512i {
        unsafe { _mm512_cvttpd_epu64(_mm512_add_pd(x, _mm512_set1_pd(0.5))) }
    }
}
