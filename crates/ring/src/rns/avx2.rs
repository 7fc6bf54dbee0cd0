//! AVX2 lanes: four words; products through fused multiply-add in binary64, exact below 2^50.
//!
//! With h = round(a b), l = a b - h (exact by one fused multiply-subtract) and c = round(h / q), the
//! remainder a b - c q = (h - c q) + l has both terms exact, and |a b / q - c| < 1 as long as
//! a b / q < 2^50; one conditional addition makes it canonical.
#![allow(unsafe_code)]

use super::lanes::Lanes;
use super::modulus::{Factor, Modulus};
use std::arch::x86_64::*;

/// Four words; needs AVX2 and FMA.
#[derive(Clone, Copy)]
pub(super) struct Avx2;

#[derive(Clone, Copy)]
pub(super) struct Consts {
    q: __m256i,
    q_less_one: __m256i,
    real_q: __m256d,
    inverse: __m256d,
}

/// 2^52: adding it to an integer below 2^52 leaves the integer in the mantissa.
const MAGIC: f64 = 4_503_599_627_370_496.0;
const ROUND_NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

#[inline(always)]
unsafe fn to_reals(a: __m256i) -> __m256d {
    // SAFETY: the caller has AVX2.
    unsafe {
        let magic = _mm256_set1_pd(MAGIC);
        _mm256_sub_pd(_mm256_castsi256_pd(_mm256_or_si256(a, _mm256_castpd_si256(magic))), magic)
    }
}

#[inline(always)]
unsafe fn to_words(x: __m256d) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let magic = _mm256_set1_pd(MAGIC);
        _mm256_xor_si256(_mm256_castpd_si256(_mm256_add_pd(x, magic)), _mm256_castpd_si256(magic))
    }
}

/// A remainder in (-q, q) to words in [0, q).
#[inline(always)]
unsafe fn canonical(g: __m256d, m: Consts) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let negative = _mm256_cmp_pd::<_CMP_LT_OQ>(g, _mm256_setzero_pd());
        to_words(_mm256_add_pd(g, _mm256_and_pd(negative, m.real_q)))
    }
}

#[inline(always)]
unsafe fn subtract_if_not_below(s: __m256i, m: Consts) -> __m256i {
    // SAFETY: the caller has AVX2; the words are far below 2^63.
    unsafe { _mm256_sub_epi64(s, _mm256_and_si256(_mm256_cmpgt_epi64(s, m.q_less_one), m.q)) }
}

// SAFETY of every method: the caller has AVX2 and FMA, and passes valid pointers to `load` and `store`.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Lanes for Avx2 {
    const WIDTH: usize = 4;
    type Words = __m256i;
    type Reals = __m256d;
    type Mod = Consts;
    type Fac = __m256i;
    type Acc = __m256i;

    #[inline(always)]
    unsafe fn modulus(m: &Modulus) -> Consts {
        unsafe {
            Consts {
                q: Self::splat(m.q),
                q_less_one: Self::splat(m.q - 1),
                real_q: _mm256_set1_pd(m.q as f64),
                inverse: _mm256_set1_pd(m.inverse),
            }
        }
    }
    #[inline(always)]
    unsafe fn factor(f: Factor) -> __m256i {
        unsafe { Self::splat(f.w) }
    }
    #[inline(always)]
    unsafe fn load(p: *const u64) -> __m256i {
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn load_half(p: *const u32) -> __m256i {
        unsafe { _mm256_cvtepu32_epi64(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u64, v: __m256i) {
        unsafe { _mm256_storeu_si256(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn splat(v: u64) -> __m256i {
        unsafe { _mm256_set1_epi64x(v as i64) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256i, b: __m256i, m: Consts) -> __m256i {
        unsafe { subtract_if_not_below(_mm256_add_epi64(a, b), m) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m256i, b: __m256i, m: Consts) -> __m256i {
        unsafe {
            let d = _mm256_sub_epi64(a, b);
            let negative = _mm256_cmpgt_epi64(_mm256_setzero_si256(), d);
            _mm256_add_epi64(d, _mm256_and_si256(negative, m.q))
        }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256i, b: __m256i, m: Consts) -> __m256i {
        unsafe {
            let (a, b) = (to_reals(a), to_reals(b));
            let h = _mm256_mul_pd(a, b);
            let l = _mm256_fmsub_pd(a, b, h);
            let c = _mm256_round_pd::<ROUND_NEAREST>(_mm256_mul_pd(h, m.inverse));
            canonical(_mm256_add_pd(_mm256_fnmadd_pd(c, m.real_q, h), l), m)
        }
    }
    #[inline(always)]
    unsafe fn mul_factor(a: __m256i, f: __m256i, m: Consts) -> __m256i {
        unsafe { Self::mul(a, f, m) }
    }
    #[inline(always)]
    unsafe fn reduce(a: __m256i, m: Consts) -> __m256i {
        unsafe {
            let a = to_reals(a);
            let c = _mm256_round_pd::<ROUND_NEAREST>(_mm256_mul_pd(a, m.inverse));
            canonical(_mm256_fnmadd_pd(c, m.real_q, a), m)
        }
    }
    #[inline(always)]
    unsafe fn reduce_short(a: __m256i, m: Consts) -> __m256i {
        unsafe {
            // Added to 3/2 2^52 as integers, the number stands in the mantissa.
            let magic = _mm256_set1_pd(1.5 * MAGIC);
            let a = _mm256_castsi256_pd(_mm256_add_epi64(a, _mm256_castpd_si256(magic)));
            let a = _mm256_sub_pd(a, magic);
            let c = _mm256_round_pd::<ROUND_NEAREST>(_mm256_mul_pd(a, m.inverse));
            canonical(_mm256_fnmadd_pd(c, m.real_q, a), m)
        }
    }
    #[inline(always)]
    unsafe fn abs(a: __m256i) -> __m256i {
        unsafe {
            let negative = _mm256_cmpgt_epi64(_mm256_setzero_si256(), a);
            _mm256_sub_epi64(_mm256_xor_si256(a, negative), negative)
        }
    }
    #[inline(always)]
    unsafe fn halves(a: __m256i) -> (__m256i, __m256i) {
        unsafe { (_mm256_srli_epi64::<32>(a), _mm256_and_si256(a, _mm256_set1_epi64x(0xffff_ffff))) }
    }
    #[inline(always)]
    unsafe fn extend(a: __m256i, s: __m256i) -> __m256i {
        unsafe { _mm256_sub_epi64(_mm256_xor_si256(a, s), s) }
    }
    #[inline(always)]
    unsafe fn with_sign(a: __m256i, r: __m256i, m: Consts) -> __m256i {
        unsafe {
            let negative = _mm256_cmpgt_epi64(_mm256_setzero_si256(), a);
            let flipped = subtract_if_not_below(_mm256_sub_epi64(m.q, r), m);
            _mm256_blendv_epi8(r, flipped, negative)
        }
    }
    #[inline(always)]
    unsafe fn acc_zero() -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn acc_of(a: __m256i) -> __m256i {
        a
    }
    #[inline(always)]
    unsafe fn acc_mac(acc: __m256i, a: __m256i, b: __m256i, m: Consts) -> __m256i {
        unsafe { Self::add(acc, Self::mul(a, b, m), m) }
    }
    #[inline(always)]
    unsafe fn acc_reduce(acc: __m256i, _: Consts) -> __m256i {
        acc
    }
    #[inline(always)]
    unsafe fn real_zero() -> __m256d {
        unsafe { _mm256_setzero_pd() }
    }
    #[inline(always)]
    unsafe fn real_mac(sum: __m256d, a: __m256i, r: f64) -> __m256d {
        unsafe { _mm256_add_pd(sum, _mm256_mul_pd(to_reals(a), _mm256_set1_pd(r))) }
    }
    #[inline(always)]
    unsafe fn real_round(x: __m256d) -> __m256i {
        unsafe { to_words(_mm256_floor_pd(_mm256_add_pd(x, _mm256_set1_pd(0.5)))) }
    }
}
