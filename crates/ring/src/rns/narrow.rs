//! Sums of products for primes below 2^31 in AVX2: products of 32-bit halves are whole 64-bit words, so a sum needs one product and one
//! addition a term and is reduced only where it could pass 2^64.
#![allow(unsafe_code)]

use super::avx2::Avx2;
use super::lanes::Lanes;
use super::plain_sums::Sums;
use super::Modulus;
use std::arch::x86_64::*;

/// Four words; needs AVX2 and FMA, and a prime that [`Narrow::takes`].
#[derive(Clone, Copy)]
pub(super) struct Narrow;

#[derive(Clone, Copy)]
pub(super) struct Consts {
    wide: <Avx2 as Lanes>::Mod,
    /// 2^32 mod q.
    high: __m256i,
}

impl Narrow {
    /// Whether at least four products fit in a word.
    pub(super) fn takes(m: &Modulus) -> bool {
        m.value() >> 31 == 0
    }
}

// SAFETY of every method: the caller has AVX2 and FMA, and passes valid pointers to `load`, `load_half` and `store`.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Sums for Narrow {
    const WIDTH: usize = 4;
    type Words = __m256i;
    type Mod = Consts;
    type Acc = __m256i;

    /// `t (q - 1)^2`, and a residue that a sum begins with, below 2^64.
    fn lazy_terms(m: &Modulus) -> usize {
        let square = u128::from(m.value() - 1).pow(2);
        (((1u128 << 64) - u128::from(m.value())) / square).min(4000) as usize
    }
    #[inline(always)]
    unsafe fn modulus(m: &Modulus) -> Consts {
        unsafe {
            Consts { wide: <Avx2 as Lanes>::modulus(m), high: <Avx2 as Lanes>::splat((1 << 32) % m.value()) }
        }
    }
    #[inline(always)]
    unsafe fn load(p: *const u64) -> __m256i {
        unsafe { <Avx2 as Lanes>::load(p) }
    }
    #[inline(always)]
    unsafe fn load_half(p: *const u32) -> __m256i {
        unsafe { <Avx2 as Lanes>::load_half(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u64, v: __m256i) {
        unsafe { <Avx2 as Lanes>::store(p, v) }
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
    unsafe fn acc_mac(acc: __m256i, a: __m256i, b: __m256i, _: Consts) -> __m256i {
        unsafe { _mm256_add_epi64(acc, _mm256_mul_epu32(a, b)) }
    }
    #[inline(always)]
    unsafe fn acc_reduce(acc: __m256i, m: Consts) -> __m256i {
        unsafe {
            // Both halves are below 2^32, which `reduce` and `mul` take.
            let (high, low) = <Avx2 as Lanes>::halves(acc);
            <Avx2 as Lanes>::add(
                <Avx2 as Lanes>::mul(high, m.high, m.wide),
                <Avx2 as Lanes>::reduce(low, m.wide),
                m.wide,
            )
        }
    }
}
