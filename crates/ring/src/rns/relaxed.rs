//! Lanes of WebAssembly: two words; products through relaxed products and sums in binary64, exact below 2^50 where they are rounded once
//! (`simd::detected`).
//!
//! As on AVX2: with h = round(a b), l = a b - h (exact by one fused step) and c = round(h / q), the remainder a b - c q = (h - c q) + l has both terms
//! exact, and |a b / q - c| < 1; one conditional addition makes it canonical. c is rounded by a sum with 3/2 2^52: it is an integer below 2^50.
#![allow(unsafe_code)]

use super::lanes::Lanes;
use super::modulus::{Factor, Modulus};
use std::arch::wasm32::*;

/// Two words; needs relaxed SIMD whose products and sums are rounded once.
#[derive(Clone, Copy)]
pub(super) struct Relaxed;

#[derive(Clone, Copy)]
pub(super) struct Consts {
    q: v128,
    q_less_one: v128,
    real_q: v128,
    inverse: v128,
    /// [`MAGIC`] and 3/2 of it.
    place: v128,
    magic: v128,
}

/// 2^52: adding it to an integer below 2^52 leaves the integer in the mantissa.
const MAGIC: f64 = 4_503_599_627_370_496.0;

#[inline(always)]
fn to_reals(a: v128, m: Consts) -> v128 {
    f64x2_sub(v128_or(a, m.place), m.place)
}

#[inline(always)]
fn to_words(x: v128, m: Consts) -> v128 {
    v128_xor(f64x2_add(x, m.place), m.place)
}

/// `a - round(a / q) q` of doubles, as long as the quotient is below 2^51.
#[inline(always)]
fn remainder(a: v128, m: Consts) -> v128 {
    let c = f64x2_sub(f64x2_relaxed_madd(a, m.inverse, m.magic), m.magic);
    f64x2_relaxed_nmadd(c, m.real_q, a)
}

/// A remainder in (-q, q) to words in [0, q).
#[inline(always)]
fn canonical(g: v128, m: Consts) -> v128 {
    let negative = f64x2_lt(g, f64x2_splat(0.0));
    to_words(f64x2_add(g, v128_and(negative, m.real_q)), m)
}

/// Words far below 2^63.
#[inline(always)]
fn subtract_if_not_below(s: v128, m: Consts) -> v128 {
    i64x2_sub(s, v128_and(i64x2_gt(s, m.q_less_one), m.q))
}

impl Relaxed {
    /// Two residues `out - a b` of two doubles of at most 2 q, for q < 2^26: the product is below 2^52, so the difference is exact.
    ///
    /// # Safety
    /// The pointers are valid for two words, `out` for writing too.
    #[inline(always)]
    pub(super) unsafe fn sub_product(out: *mut u64, a: *const u64, b: *const u64, m: Consts) {
        // SAFETY: by contract.
        unsafe {
            let (x, a, b) = (v128_load(out.cast()), v128_load(a.cast()), v128_load(b.cast()));
            let x = f64x2_relaxed_nmadd(to_reals(a, m), to_reals(b, m), x);
            v128_store(out.cast(), canonical(remainder(x, m), m));
        }
    }
}

// SAFETY of every method: the caller has relaxed SIMD, and passes valid pointers to `load` and `store`.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Lanes for Relaxed {
    const WIDTH: usize = 2;
    type Words = v128;
    type Reals = v128;
    type Mod = Consts;
    type Fac = v128;
    type Acc = v128;

    #[inline(always)]
    unsafe fn modulus(m: &Modulus) -> Consts {
        // Constants that the compiler knew would be made again in every turn of a loop.
        let place = std::hint::black_box(MAGIC);
        Consts {
            place: f64x2_splat(place),
            magic: f64x2_splat(1.5 * place),
            q: u64x2_splat(m.q),
            q_less_one: u64x2_splat(m.q - 1),
            real_q: f64x2_splat(m.q as f64),
            inverse: f64x2_splat(m.inverse),
        }
    }
    #[inline(always)]
    unsafe fn factor(f: Factor) -> v128 {
        u64x2_splat(f.w)
    }
    #[inline(always)]
    unsafe fn load(p: *const u64) -> v128 {
        unsafe { v128_load(p.cast()) }
    }
    #[inline(always)]
    unsafe fn load_half(p: *const u32) -> v128 {
        unsafe { u64x2_load_extend_u32x2(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u64, v: v128) {
        unsafe { v128_store(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn splat(v: u64) -> v128 {
        u64x2_splat(v)
    }
    #[inline(always)]
    unsafe fn add(a: v128, b: v128, m: Consts) -> v128 {
        subtract_if_not_below(i64x2_add(a, b), m)
    }
    #[inline(always)]
    unsafe fn sub(a: v128, b: v128, m: Consts) -> v128 {
        let d = i64x2_sub(a, b);
        i64x2_add(d, v128_and(i64x2_gt(i64x2_splat(0), d), m.q))
    }
    #[inline(always)]
    unsafe fn mul(a: v128, b: v128, m: Consts) -> v128 {
        let (a, b) = (to_reals(a, m), to_reals(b, m));
        let h = f64x2_mul(a, b);
        // -l.
        let low = f64x2_relaxed_nmadd(a, b, h);
        canonical(f64x2_sub(remainder(h, m), low), m)
    }
    #[inline(always)]
    unsafe fn mul_factor(a: v128, f: v128, m: Consts) -> v128 {
        unsafe { Self::mul(a, f, m) }
    }
    #[inline(always)]
    unsafe fn reduce(a: v128, m: Consts) -> v128 {
        canonical(remainder(to_reals(a, m), m), m)
    }
    #[inline(always)]
    unsafe fn reduce_signed(a: v128, m: Consts) -> v128 {
        // The sign goes over to the double.
        let sign = v128_and(a, u64x2_splat(1 << 63));
        canonical(remainder(v128_or(to_reals(i64x2_abs(a), m), sign), m), m)
    }
    #[inline(always)]
    unsafe fn reduce_short(a: v128, m: Consts) -> v128 {
        // Added to 3/2 2^52 as integers, the number stands in the mantissa.
        canonical(remainder(f64x2_sub(i64x2_add(a, m.magic), m.magic), m), m)
    }
    #[inline(always)]
    unsafe fn abs(a: v128) -> v128 {
        i64x2_abs(a)
    }
    #[inline(always)]
    unsafe fn halves(a: v128) -> (v128, v128) {
        (u64x2_shr(a, 32), v128_and(a, u64x2_splat(0xffff_ffff)))
    }
    #[inline(always)]
    unsafe fn extend(a: v128, s: v128) -> v128 {
        i64x2_sub(v128_xor(a, s), s)
    }
    #[inline(always)]
    unsafe fn with_sign(a: v128, r: v128, m: Consts) -> v128 {
        let flipped = subtract_if_not_below(i64x2_sub(m.q, r), m);
        v128_bitselect(flipped, r, i64x2_gt(i64x2_splat(0), a))
    }
    #[inline(always)]
    unsafe fn acc_zero() -> v128 {
        u64x2_splat(0)
    }
    #[inline(always)]
    unsafe fn acc_of(a: v128) -> v128 {
        a
    }
    #[inline(always)]
    unsafe fn acc_mac(acc: v128, a: v128, b: v128, m: Consts) -> v128 {
        unsafe { Self::add(acc, Self::mul(a, b, m), m) }
    }
    #[inline(always)]
    unsafe fn acc_reduce(acc: v128, _: Consts) -> v128 {
        acc
    }
    #[inline(always)]
    unsafe fn real_zero() -> v128 {
        f64x2_splat(0.0)
    }
    #[inline(always)]
    unsafe fn real_mac(sum: v128, a: v128, r: f64) -> v128 {
        let place = f64x2_splat(MAGIC);
        let a = f64x2_sub(v128_or(a, place), place);
        f64x2_add(sum, f64x2_mul(a, f64x2_splat(r)))
    }
    #[inline(always)]
    unsafe fn real_round(x: v128) -> v128 {
        let place = f64x2_splat(MAGIC);
        v128_xor(f64x2_add(f64x2_floor(f64x2_add(x, f64x2_splat(0.5))), place), place)
    }
}
