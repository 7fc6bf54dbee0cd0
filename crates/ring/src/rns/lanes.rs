//! What a kernel needs of a vector unit, and plain Rust as the first such unit.
//!
//! Kernels are written once over [`Lanes`]; every implementation returns canonical residues, so all
//! of them give the same bits.
#![allow(unsafe_code)]

use super::modulus::{Factor, Modulus};
use crate::prime::wide;
#[cfg(target_family = "wasm")]
use crate::prime::{mul_by_doubles, rest};

/// A vector of `WIDTH` unsigned words and modular arithmetic on it.
///
/// # Safety
/// All methods need the instruction set of the implementation; pointers must be valid for `WIDTH` words.
pub(super) trait Lanes: Copy {
    /// Words side by side.
    const WIDTH: usize;
    /// The words.
    type Words: Copy;
    /// Floating-point numbers side by side.
    type Reals: Copy;
    /// Broadcast constants of a modulus.
    type Mod: Copy;
    /// Broadcast constant factor.
    type Fac: Copy;
    /// Lazy sum of products.
    type Acc: Copy;

    unsafe fn modulus(m: &Modulus) -> Self::Mod;
    unsafe fn factor(f: Factor) -> Self::Fac;
    unsafe fn load(p: *const u64) -> Self::Words;
    /// `WIDTH` words of 32 bits.
    unsafe fn load_half(p: *const u32) -> Self::Words;
    unsafe fn store(p: *mut u64, v: Self::Words);
    unsafe fn splat(v: u64) -> Self::Words;
    unsafe fn add(a: Self::Words, b: Self::Words, m: Self::Mod) -> Self::Words;
    unsafe fn sub(a: Self::Words, b: Self::Words, m: Self::Mod) -> Self::Words;
    /// `a b mod q` for residues.
    unsafe fn mul(a: Self::Words, b: Self::Words, m: Self::Mod) -> Self::Words;
    /// `a w mod q` for `a < 2^50`.
    unsafe fn mul_factor(a: Self::Words, f: Self::Fac, m: Self::Mod) -> Self::Words;
    /// `a mod q` for `a < 2^52`.
    unsafe fn reduce(a: Self::Words, m: Self::Mod) -> Self::Words;
    /// `|a|` of two's complement words.
    unsafe fn abs(a: Self::Words) -> Self::Words;
    /// `-r mod q` where the word of `a` is negative, else r; r a residue.
    unsafe fn with_sign(a: Self::Words, r: Self::Words, m: Self::Mod) -> Self::Words;
    /// The high and low 32 bits.
    unsafe fn halves(a: Self::Words) -> (Self::Words, Self::Words);
    /// `(a xor s) - s`: for `s = 2^(b-1)` and a below 2^b, the sign-extended b-bit number.
    unsafe fn extend(a: Self::Words, s: Self::Words) -> Self::Words;
    /// `a mod q` for signed words with `|a| < 2^52`, given as two's complement.
    #[inline(always)]
    unsafe fn reduce_signed(a: Self::Words, m: Self::Mod) -> Self::Words {
        // SAFETY: promised by the caller.
        unsafe { Self::with_sign(a, Self::reduce(Self::abs(a), m), m) }
    }
    /// [`Self::reduce_signed`] for `-2^51 <= a < 2^51`.
    #[inline(always)]
    unsafe fn reduce_short(a: Self::Words, m: Self::Mod) -> Self::Words {
        // SAFETY: promised by the caller.
        unsafe { Self::reduce_signed(a, m) }
    }
    unsafe fn acc_zero() -> Self::Acc;
    /// The sum that holds one residue.
    unsafe fn acc_of(a: Self::Words) -> Self::Acc;
    /// `acc + a b`, `a < 2^50` and `b` a residue; at most [`LAZY_TERMS`] between reductions. Where transforms are loose, a may be below 4q: such a product counts
    /// as four.
    unsafe fn acc_mac(acc: Self::Acc, a: Self::Words, b: Self::Words, m: Self::Mod) -> Self::Acc;
    unsafe fn acc_reduce(acc: Self::Acc, m: Self::Mod) -> Self::Words;
    /// [`Self::acc_reduce`] to values below 4q, in place of residues where these take longer.
    #[inline(always)]
    unsafe fn acc_reduce_loose(acc: Self::Acc, m: Self::Mod) -> Self::Words {
        // SAFETY: promised by the caller.
        unsafe { Self::acc_reduce(acc, m) }
    }
    unsafe fn real_zero() -> Self::Reals;
    /// `sum + a r`, the product and the sum each rounded; `a < 2^50`.
    unsafe fn real_mac(sum: Self::Reals, a: Self::Words, r: f64) -> Self::Reals;
    /// `floor(x + 1/2)` of a number in `[0, 2^50)`.
    unsafe fn real_round(x: Self::Reals) -> Self::Words;
}

/// Products that a lazy sum takes before it must be reduced: hi parts below `15 * 2^48 + carry < 2^52`.
pub(super) const LAZY_TERMS: usize = 15;

const LOW_52: u64 = (1 << 52) - 1;

/// Plain Rust, one word at a time.
#[derive(Clone, Copy)]
pub(super) struct Scalar;

#[inline(always)]
fn fold(x: u64, q: u64) -> u64 {
    x.min(x.wrapping_sub(q))
}

#[cfg(not(target_family = "wasm"))]
#[inline(always)]
fn high_52(a: u64, b: u64) -> u64 {
    (wide(a, b) >> 52) as u64
}

/// See [`Lanes::mul`].
#[cfg(not(target_family = "wasm"))]
#[inline(always)]
fn exact_mul(a: u64, b: u64, m: Modulus) -> u64 {
    let x = wide(a, b);
    let top = (x >> (m.bits - 2)) as u64;
    let estimate = high_52(top, m.product_ratio);
    // The estimate is at most 5/2 too small, so the rest is below 3q.
    let rest = (x as u64).wrapping_sub(estimate.wrapping_mul(m.q));
    fold(fold(rest, 2 * m.q), m.q)
}

/// See [`Lanes::mul_factor`].
#[cfg(not(target_family = "wasm"))]
#[inline(always)]
fn exact_mul_factor(a: u64, f: Factor, m: Modulus) -> u64 {
    let estimate = high_52(a, f.quotient);
    fold(a.wrapping_mul(f.w).wrapping_sub(estimate.wrapping_mul(m.q)), m.q)
}

/// See [`Lanes::reduce`].
#[cfg(not(target_family = "wasm"))]
#[inline(always)]
fn exact_reduce(a: u64, m: Modulus) -> u64 {
    fold(a - high_52(a, m.word_ratio) * m.q, m.q)
}

// SAFETY of every method: plain Rust; only `load` and `store` touch memory, which the caller vouches for.
impl Lanes for Scalar {
    const WIDTH: usize = 1;
    type Words = u64;
    type Reals = f64;
    type Mod = Modulus;
    type Fac = Factor;
    type Acc = u128;

    #[inline(always)]
    unsafe fn modulus(m: &Modulus) -> Modulus {
        *m
    }
    #[inline(always)]
    unsafe fn factor(f: Factor) -> Factor {
        f
    }
    #[inline(always)]
    unsafe fn load(p: *const u64) -> u64 {
        // SAFETY: the caller passes a valid pointer.
        unsafe { *p }
    }
    #[inline(always)]
    unsafe fn load_half(p: *const u32) -> u64 {
        // SAFETY: the caller passes a valid pointer.
        unsafe { u64::from(*p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u64, v: u64) {
        // SAFETY: the caller passes a valid pointer.
        unsafe { *p = v }
    }
    #[inline(always)]
    unsafe fn splat(v: u64) -> u64 {
        v
    }
    #[inline(always)]
    unsafe fn add(a: u64, b: u64, m: Modulus) -> u64 {
        fold(a + b, m.q)
    }
    #[inline(always)]
    unsafe fn sub(a: u64, b: u64, m: Modulus) -> u64 {
        let d = a.wrapping_sub(b);
        d.min(d.wrapping_add(m.q))
    }
    #[inline(always)]
    unsafe fn mul(a: u64, b: u64, m: Modulus) -> u64 {
        #[cfg(target_family = "wasm")]
        return mul_by_doubles(a, b, m.q, m.inverse);
        #[cfg(not(target_family = "wasm"))]
        exact_mul(a, b, m)
    }
    #[inline(always)]
    unsafe fn mul_factor(a: u64, f: Factor, m: Modulus) -> u64 {
        #[cfg(target_family = "wasm")]
        return mul_by_doubles(a, f.w, m.q, m.inverse);
        #[cfg(not(target_family = "wasm"))]
        exact_mul_factor(a, f, m)
    }
    #[inline(always)]
    unsafe fn reduce(a: u64, m: Modulus) -> u64 {
        #[cfg(target_family = "wasm")]
        return rest(a, a as i64 as f64 * m.inverse, m.q);
        #[cfg(not(target_family = "wasm"))]
        exact_reduce(a, m)
    }
    #[inline(always)]
    unsafe fn abs(a: u64) -> u64 {
        (a as i64).unsigned_abs()
    }
    #[inline(always)]
    unsafe fn with_sign(a: u64, r: u64, m: Modulus) -> u64 {
        if (a as i64) < 0 {
            fold(m.q - r, m.q)
        } else {
            r
        }
    }
    #[inline(always)]
    unsafe fn halves(a: u64) -> (u64, u64) {
        (a >> 32, a & 0xffff_ffff)
    }
    #[inline(always)]
    unsafe fn extend(a: u64, s: u64) -> u64 {
        (a ^ s).wrapping_sub(s)
    }
    #[inline(always)]
    unsafe fn acc_zero() -> u128 {
        0
    }
    #[inline(always)]
    unsafe fn acc_of(a: u64) -> u128 {
        u128::from(a)
    }
    #[inline(always)]
    unsafe fn acc_mac(acc: u128, a: u64, b: u64, _: Modulus) -> u128 {
        acc + wide(a, b)
    }
    #[inline(always)]
    unsafe fn acc_reduce(acc: u128, m: Modulus) -> u64 {
        // SAFETY: no memory is touched; (LAZY_TERMS + 1) 2^100 >> 52 is below 2^52.
        unsafe {
            let low = Self::reduce(acc as u64 & LOW_52, m);
            let high = (acc >> 52) as u64;
            // Products by doubles take factors below 2^50.
            #[cfg(target_family = "wasm")]
            let high = Self::reduce(high, m);
            let high = Self::mul_factor(high, m.high, m);
            Self::add(low, high, m)
        }
    }
    #[inline(always)]
    unsafe fn real_zero() -> f64 {
        0.0
    }
    #[inline(always)]
    unsafe fn real_mac(sum: f64, a: u64, r: f64) -> f64 {
        sum + a as f64 * r
    }
    #[inline(always)]
    unsafe fn real_round(x: f64) -> u64 {
        (x + 0.5) as u64
    }
}
