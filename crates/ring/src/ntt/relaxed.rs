//! Transforms in vectors of WebAssembly (`pairs.rs`), where the engine's relaxed products and sums are rounded once (`simd::detected`). A quotient
//! is rounded by a sum with [`MAGIC`], in one step with its product.
#![allow(unsafe_code)]

use super::pairs::{transforms, DOUBLES, RESIDUES, SHORT, SMALL_BELOW};
use super::{prepare, transpose_tiles, Finish};
use crate::prime::{inv_mod, mul_mod};
use std::arch::wasm32::*;

transforms!("simd128,relaxed-simd");

type Vector = v128;

/// Added to a double of at most 2^51, it rounds to an integer.
const MAGIC: f64 = 6_755_399_441_055_744.0;
/// 2^52: added to an integer below it, it leaves the integer in the low bits.
const PLACE: f64 = 4_503_599_627_370_496.0;

#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn splat(x: f64) -> v128 {
    f64x2_splat(x)
}

#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn add(a: v128, b: v128) -> v128 {
    f64x2_add(a, b)
}

#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn sub(a: v128, b: v128) -> v128 {
    f64x2_sub(a, b)
}

#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn mul(a: v128, b: v128) -> v128 {
    f64x2_mul(a, b)
}

#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn less(x: v128, a: v128, b: v128) -> v128 {
    f64x2_relaxed_nmadd(a, b, x)
}

#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn rounder() -> v128 {
    // A constant that the compiler knew would be made again in every turn of a loop.
    f64x2_splat(std::hint::black_box(MAGIC))
}

#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn rounded(x: v128, f: v128, magic: v128) -> v128 {
    f64x2_sub(f64x2_relaxed_madd(x, f, magic), magic)
}

#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn from_words(x: v128) -> v128 {
    let place = f64x2_splat(PLACE);
    f64x2_sub(v128_or(x, place), place)
}

#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn from_short(x: v128, magic: v128) -> v128 {
    // Added to 3/2 2^52 as integers, the number stands in the mantissa.
    f64x2_sub(i64x2_add(x, magic), magic)
}

#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn to_words(x: v128, p: v128) -> v128 {
    let place = f64x2_splat(PLACE);
    let x = f64x2_add(x, v128_and(f64x2_lt(x, f64x2_splat(0.0)), p));
    v128_xor(f64x2_add(x, place), place)
}

/// # Safety
/// Two elements behind `p` must be readable.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
unsafe fn load_words(p: *const u64) -> v128 {
    // SAFETY: by contract.
    unsafe { v128_load(p.cast()) }
}

/// # Safety
/// Two elements behind `p` must be writable.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
unsafe fn store(p: *mut u64, v: v128) {
    // SAFETY: by contract.
    unsafe { v128_store(p.cast(), v) }
}

/// # Safety
/// Four elements behind `p` must be readable.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
unsafe fn load_two(p: *const u64) -> [v128; 2] {
    // SAFETY: by contract.
    let (x, y) = unsafe { (load_words(p), load_words(p.add(2))) };
    [i64x2_shuffle::<0, 2>(x, y), i64x2_shuffle::<1, 3>(x, y)]
}

/// # Safety
/// Eight elements behind `p` must be readable.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
unsafe fn load_four(p: *const u64) -> [v128; 4] {
    // SAFETY: by contract.
    let r = unsafe { [0, 2, 4, 6].map(|i| load_words(p.add(i))) };
    [
        i64x2_shuffle::<0, 2>(r[0], r[2]),
        i64x2_shuffle::<1, 3>(r[0], r[2]),
        i64x2_shuffle::<0, 2>(r[1], r[3]),
        i64x2_shuffle::<1, 3>(r[1], r[3]),
    ]
}

/// # Safety
/// Eight elements behind `p` must be writable.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
unsafe fn store_four(p: *mut u64, v: [v128; 4]) {
    // SAFETY: by contract.
    unsafe {
        store(p, i64x2_shuffle::<0, 2>(v[0], v[1]));
        store(p.add(2), i64x2_shuffle::<0, 2>(v[2], v[3]));
        store(p.add(4), i64x2_shuffle::<1, 3>(v[0], v[1]));
        store(p.add(6), i64x2_shuffle::<1, 3>(v[2], v[3]));
    }
}

/// What is done with results, in vectors.
#[derive(Clone, Copy)]
struct End {
    p: v128,
    half: v128,
    shift: u32,
    mask: v128,
    /// All ones where results are subtracted.
    sign: v128,
}

impl End {
    #[inline]
    #[target_feature(enable = "simd128,relaxed-simd")]
    fn new(p: u64, finish: Finish) -> Self {
        Self {
            p: u64x2_splat(p),
            half: u64x2_splat(p / 2),
            shift: finish.shift,
            mask: u64x2_splat(finish.mask),
            sign: u64x2_splat(if finish.subtract { u64::MAX } else { 0 }),
        }
    }

    /// # Safety
    /// Two elements behind `out` must be readable and writable.
    #[inline]
    #[target_feature(enable = "simd128,relaxed-simd")]
    unsafe fn add_to(self, out: *mut u64, x: Vector) {
        // The representative in (-p/2, p/2).
        let x = i64x2_sub(x, v128_and(i64x2_gt(x, self.half), self.p));
        let x = i64x2_shl(x, self.shift);
        // Two's complement negation where subtracting.
        let x = i64x2_sub(v128_xor(x, self.sign), self.sign);
        // SAFETY: by contract.
        unsafe { store(out, v128_and(i64x2_add(load_words(out), x), self.mask)) }
    }
}
