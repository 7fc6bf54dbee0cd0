//! Transforms in vectors of ARM (`pairs.rs`).
#![allow(unsafe_code)]

use super::pairs::{transforms, DOUBLES, RESIDUES, SHORT, SMALL_BELOW};
use super::{prepare, transpose_tiles, Finish};
use crate::prime::{inv_mod, mul_mod};
use std::arch::aarch64::*;

transforms!("neon");

type Vector = float64x2_t;

#[inline]
#[target_feature(enable = "neon")]
fn splat(x: f64) -> float64x2_t {
    vdupq_n_f64(x)
}

#[inline]
#[target_feature(enable = "neon")]
fn add(a: float64x2_t, b: float64x2_t) -> float64x2_t {
    vaddq_f64(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn sub(a: float64x2_t, b: float64x2_t) -> float64x2_t {
    vsubq_f64(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn mul(a: float64x2_t, b: float64x2_t) -> float64x2_t {
    vmulq_f64(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn less(x: float64x2_t, a: float64x2_t, b: float64x2_t) -> float64x2_t {
    vfmsq_f64(x, a, b)
}

/// Rounding has an instruction.
#[inline]
#[target_feature(enable = "neon")]
fn rounder() -> float64x2_t {
    splat(0.0)
}

#[inline]
#[target_feature(enable = "neon")]
fn rounded(x: float64x2_t, f: float64x2_t, _: float64x2_t) -> float64x2_t {
    vrndnq_f64(vmulq_f64(x, f))
}

#[inline]
#[target_feature(enable = "neon")]
fn from_words(x: float64x2_t) -> float64x2_t {
    vcvtq_f64_u64(vreinterpretq_u64_f64(x))
}

#[inline]
#[target_feature(enable = "neon")]
fn from_short(x: float64x2_t, _: float64x2_t) -> float64x2_t {
    vcvtq_f64_s64(vreinterpretq_s64_f64(x))
}

#[inline]
#[target_feature(enable = "neon")]
fn to_words(x: float64x2_t, p: float64x2_t) -> float64x2_t {
    let add = vandq_u64(vcltzq_f64(x), vreinterpretq_u64_f64(p));
    vreinterpretq_f64_u64(vcvtq_u64_f64(vaddq_f64(x, vreinterpretq_f64_u64(add))))
}

/// # Safety
/// Two elements behind `p` must be readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load_words(p: *const u64) -> float64x2_t {
    // SAFETY: by contract.
    unsafe { vld1q_f64(p.cast()) }
}

/// # Safety
/// Two elements behind `p` must be writable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store(p: *mut u64, v: float64x2_t) {
    // SAFETY: by contract.
    unsafe { vst1q_f64(p.cast(), v) }
}

/// # Safety
/// Four elements behind `p` must be readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load_two(p: *const u64) -> [float64x2_t; 2] {
    // SAFETY: by contract.
    let x = unsafe { vld2q_f64(p.cast()) };
    [x.0, x.1]
}

/// # Safety
/// Eight elements behind `p` must be readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load_four(p: *const u64) -> [float64x2_t; 4] {
    // SAFETY: by contract.
    let x = unsafe { vld4q_f64(p.cast()) };
    [x.0, x.1, x.2, x.3]
}

/// # Safety
/// Eight elements behind `p` must be writable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store_four(p: *mut u64, v: [float64x2_t; 4]) {
    // SAFETY: by contract.
    unsafe { vst4q_f64(p.cast(), float64x2x4_t(v[0], v[1], v[2], v[3])) }
}

/// What is done with results, in vectors.
#[derive(Clone, Copy)]
struct End {
    p: uint64x2_t,
    half: uint64x2_t,
    shift: int64x2_t,
    mask: uint64x2_t,
    /// All ones where results are subtracted.
    sign: uint64x2_t,
}

impl End {
    #[inline]
    #[target_feature(enable = "neon")]
    fn new(p: u64, finish: Finish) -> Self {
        Self {
            p: vdupq_n_u64(p),
            half: vdupq_n_u64(p / 2),
            shift: vdupq_n_s64(i64::from(finish.shift)),
            mask: vdupq_n_u64(finish.mask),
            sign: vdupq_n_u64(if finish.subtract { u64::MAX } else { 0 }),
        }
    }

    /// # Safety
    /// Two elements behind `out` must be readable and writable.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn add_to(self, out: *mut u64, x: Vector) {
        let x = vreinterpretq_u64_f64(x);
        // The representative in (-p/2, p/2).
        let x = vsubq_u64(x, vandq_u64(vcgtq_u64(x, self.half), self.p));
        let x = vshlq_u64(x, self.shift);
        // Two's complement negation where subtracting.
        let x = vsubq_u64(veorq_u64(x, self.sign), self.sign);
        // SAFETY: by contract.
        unsafe { vst1q_u64(out, vandq_u64(vaddq_u64(vld1q_u64(out), x), self.mask)) }
    }
}
