//! Transforms in 128-bit vectors of ARM for p < 2^50, N >= 64, in double precision: with fused multiply-add a product `x w` splits exactly into
//! `h + l`, and `h - round(x w/p) p + l` is exact too, as long as it stays below 2^53.
//!
//! Values are signed and live as doubles between passes. In units of p: a reduced value is at most 0.51; a product of `|x| <= b` by a factor
//! `|w| <= 1/2` at most `1/2 + b/8`. Two levels are a pass. Forward, of four values two are reduced and two multiplied; from b <= 2 follows
//! `0.51 + (1/2 + b/8) + (1/2 + (0.51 + 1/2 + b/8)/8) <= 2`. Backward a pass starts and ends at 1: sums of at most 4 and 1.5 are reduced, the
//! products have at most `1/2 + 4/8`. All is below 8 p < 2^53.
#![allow(unsafe_code)]

use super::{prepare, transpose_tiles, Finish};
use crate::prime::{inv_mod, mul_mod};
use std::arch::aarch64::*;

pub(super) struct Tables {
    n: usize,
    p: u64,
    /// `[w centred, w / p]`, by block index.
    forward: Vec<[f64; 2]>,
    inverse: Vec<[f64; 2]>,
    /// 1/N, and the last level's only twiddle over N.
    scale: [[f64; 2]; 2],
}

#[derive(Clone, Copy)]
struct Mod {
    p: float64x2_t,
    inverse: float64x2_t,
}

#[derive(Clone, Copy)]
struct Factor {
    w: float64x2_t,
    q: float64x2_t,
}

/// Two values each of the quarters of a block.
type Four = [float64x2_t; 4];

#[inline]
#[target_feature(enable = "neon")]
fn modulus(p: u64) -> Mod {
    Mod { p: vdupq_n_f64(p as f64), inverse: vdupq_n_f64(1.0 / p as f64) }
}

#[inline]
#[target_feature(enable = "neon")]
fn broadcast(f: [f64; 2]) -> Factor {
    Factor { w: vdupq_n_f64(f[0]), q: vdupq_n_f64(f[1]) }
}

/// `x w` modulo p, signed.
#[inline]
#[target_feature(enable = "neon")]
fn times(x: float64x2_t, f: Factor, m: Mod) -> float64x2_t {
    let quotient = vrndnq_f64(vmulq_f64(x, f.q));
    let high = vmulq_f64(x, f.w);
    // -l: what the rounding of h has added.
    let low = vfmsq_f64(high, x, f.w);
    vsubq_f64(vfmsq_f64(high, quotient, m.p), low)
}

/// To at most 0.51 p.
#[inline]
#[target_feature(enable = "neon")]
fn reduce(x: float64x2_t, m: Mod) -> float64x2_t {
    vfmsq_f64(x, vrndnq_f64(vmulq_f64(x, m.inverse)), m.p)
}

/// Doubles of at most 4 p to canonical integers below p.
#[inline]
#[target_feature(enable = "neon")]
fn to_canonical(x: float64x2_t, m: Mod) -> uint64x2_t {
    let x = reduce(x, m);
    let add = vandq_u64(vcltzq_f64(x), vreinterpretq_u64_f64(m.p));
    vcvtq_u64_f64(vaddq_f64(x, vreinterpretq_f64_u64(add)))
}

/// # Safety
/// Two elements behind `a` must be readable: residues, or doubles between passes.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load<const RESIDUES: bool>(a: *const u64) -> float64x2_t {
    // SAFETY: by contract.
    let words = unsafe { vld1q_u64(a) };
    if RESIDUES {
        vcvtq_f64_u64(words)
    } else {
        vreinterpretq_f64_u64(words)
    }
}

/// # Safety
/// Two elements behind `a` must be writable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store(a: *mut u64, v: float64x2_t) {
    // SAFETY: by contract.
    unsafe { vst1q_u64(a, vreinterpretq_u64_f64(v)) }
}

/// Two levels of four values, the first at most 2, to at most 2: twiddles of the first level, and of both halves in the second.
#[inline]
#[target_feature(enable = "neon")]
fn forward_four(x: Four, [f, g, h]: [Factor; 3], m: Mod) -> Four {
    let (u0, u1) = (reduce(x[0], m), reduce(x[1], m));
    let (v0, v1) = (times(x[2], f, m), times(x[3], f, m));
    let (s, t) = (times(vaddq_f64(u1, v1), g, m), times(vsubq_f64(u1, v1), h, m));
    let (a, b) = (vaddq_f64(u0, v0), vsubq_f64(u0, v0));
    [vaddq_f64(a, s), vsubq_f64(a, s), vaddq_f64(b, t), vsubq_f64(b, t)]
}

/// Two inverse levels of four values of at most 1, up to the last products: the latter two results are still to be multiplied by the twiddle
/// of the second level. At most 4, 1.5, 4 and 1.5.
#[inline]
#[target_feature(enable = "neon")]
fn inverse_four(x: Four, [g, h]: [Factor; 2], m: Mod) -> Four {
    let (d0, d1) = (times(vsubq_f64(x[0], x[1]), g, m), times(vsubq_f64(x[2], x[3]), h, m));
    let (s0, s1) = (vaddq_f64(x[0], x[1]), vaddq_f64(x[2], x[3]));
    [vaddq_f64(s0, s1), vaddq_f64(d0, d1), vsubq_f64(s0, s1), vsubq_f64(d0, d1)]
}

/// [`inverse_four`] of which all are at most 1.
#[inline]
#[target_feature(enable = "neon")]
fn inverse_whole(x: Four, [f, g, h]: [Factor; 3], m: Mod) -> Four {
    let y = inverse_four(x, [g, h], m);
    [reduce(y[0], m), reduce(y[1], m), times(y[2], f, m), times(y[3], f, m)]
}

/// Twiddles of two blocks of four elements beside each other, from b on.
///
/// # Safety
/// `powers` has `2 b + 4` elements.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn of_two_blocks(powers: &[[f64; 2]], b: usize) -> [Factor; 3] {
    // SAFETY: b + 2 and 2 b + 4 elements are there, each a pair of doubles.
    let (first, second) = unsafe {
        let powers = powers.as_ptr().cast::<f64>();
        (vld2q_f64(powers.add(2 * b)), vld4q_f64(powers.add(4 * b)))
    };
    [
        Factor { w: first.0, q: first.1 },
        Factor { w: second.0, q: second.1 },
        Factor { w: second.2, q: second.3 },
    ]
}

impl Tables {
    pub(super) fn new(p: u64, forward: &[u64], inverse: &[u64]) -> Self {
        let n_inverse = inv_mod(forward.len() as u64, p);
        let factors = |powers: &[u64]| powers.iter().map(|&w| prepare(w, p)).collect();
        let scale = [n_inverse, mul_mod(inverse[1], n_inverse, p)].map(|w| prepare(w, p));
        Self { n: forward.len(), p, forward: factors(forward), inverse: factors(inverse), scale }
    }

    /// The levels from so many blocks on: one, or at most N / 8.
    ///
    /// # Safety
    /// Needs NEON.
    #[target_feature(enable = "neon")]
    pub(super) unsafe fn forward(&self, mut blocks: usize, a: &mut [u64]) {
        assert_eq!(a.len(), self.n);
        let (n, m, start) = (self.n, modulus(self.p), a.as_mut_ptr());
        // SAFETY: there are n elements, of which the passes read and write each block's; blocks have eight or more.
        unsafe {
            if (n / blocks).trailing_zeros() % 2 == 1 {
                self.forward_level(blocks, start, m);
                blocks *= 2;
            } else {
                self.forward_pass::<true>(blocks, start, m);
                blocks *= 4;
            }
            while blocks < n / 4 {
                self.forward_pass::<false>(blocks, start, m);
                blocks *= 4;
            }
            for b in (0..n / 4).step_by(2) {
                let at = start.add(4 * b);
                let x = vld4q_f64(at.cast());
                let y = forward_four([x.0, x.1, x.2, x.3], of_two_blocks(&self.forward, n / 4 + b), m);
                let y = y.map(|v| to_canonical(v, m));
                vst4q_u64(at, uint64x2x4_t(y[0], y[1], y[2], y[3]));
            }
        }
        transpose_tiles(a);
    }

    /// One level, of residues.
    ///
    /// # Safety
    /// `a` points to n elements, blocks have four or more.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn forward_level(&self, blocks: usize, a: *mut u64, m: Mod) {
        let half = self.n / blocks / 2;
        for b in 0..blocks {
            let f = broadcast(self.forward[blocks + b]);
            for i in (0..half).step_by(2) {
                // SAFETY: both lie within block b.
                unsafe {
                    let (low, high) = (a.add(2 * half * b + i), a.add(2 * half * b + half + i));
                    let (u, v) = (load::<true>(low), times(load::<true>(high), f, m));
                    store(low, vaddq_f64(u, v));
                    store(high, vsubq_f64(u, v));
                }
            }
        }
    }

    /// Two levels.
    ///
    /// # Safety
    /// `a` points to n elements, blocks have eight or more.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn forward_pass<const RESIDUES: bool>(&self, blocks: usize, a: *mut u64, m: Mod) {
        let quarter = self.n / blocks / 4;
        for b in 0..blocks {
            let of = blocks + b;
            let factors = [of, 2 * of, 2 * of + 1].map(|i| broadcast(self.forward[i]));
            for i in (0..quarter).step_by(2) {
                // SAFETY: all four lie within block b.
                unsafe {
                    let at = [0, 1, 2, 3].map(|j| a.add((4 * b + j) * quarter + i));
                    let y = forward_four(at.map(|x| load::<RESIDUES>(x)), factors, m);
                    at.iter().zip(y).for_each(|(x, y)| store(*x, y));
                }
            }
        }
    }

    /// The inverse levels from slot order, residues or doubles of at most 1, up to the last products; `put(index, value, whether the value is
    /// still to be multiplied by the last level's twiddle)` gets two results each, of at most 4.
    ///
    /// # Safety
    /// `a` has n elements.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn inverse_levels<const RESIDUES: bool>(
        &self,
        a: &mut [u64],
        m: Mod,
        put: impl Fn(*mut u64, usize, float64x2_t, bool),
    ) {
        transpose_tiles(a);
        let (n, a) = (self.n, a.as_mut_ptr());
        // SAFETY: there are n elements, of which the passes read and write each block's.
        unsafe {
            for b in (0..n / 4).step_by(2) {
                let at = a.add(4 * b);
                let x = if RESIDUES {
                    let x = vld4q_u64(at);
                    [x.0, x.1, x.2, x.3].map(|v| vcvtq_f64_u64(v))
                } else {
                    let x = vld4q_f64(at.cast());
                    [x.0, x.1, x.2, x.3]
                };
                let y = inverse_whole(x, of_two_blocks(&self.inverse, n / 4 + b), m);
                vst4q_f64(at.cast(), float64x2x4_t(y[0], y[1], y[2], y[3]));
            }
            let mut blocks = n / 4;
            while blocks > 4 {
                blocks /= 4;
                let quarter = n / blocks / 4;
                for b in 0..blocks {
                    let of = blocks + b;
                    let factors = [of, 2 * of, 2 * of + 1].map(|i| broadcast(self.inverse[i]));
                    for i in (0..quarter).step_by(2) {
                        let at = [0, 1, 2, 3].map(|j| a.add((4 * b + j) * quarter + i));
                        let y = inverse_whole(at.map(|x| load::<false>(x)), factors, m);
                        at.iter().zip(y).for_each(|(x, y)| store(*x, y));
                    }
                }
            }
            let part = n / blocks;
            let inner = [2, 3].map(|i| broadcast(self.inverse[i]));
            for i in (0..part).step_by(2) {
                let x = |j: usize| load::<false>(a.add(j * part + i));
                if blocks == 2 {
                    let (u, v) = (x(0), x(1));
                    put(a, i, vaddq_f64(u, v), false);
                    put(a, part + i, vsubq_f64(u, v), true);
                } else {
                    let y = inverse_four([x(0), x(1), x(2), x(3)], inner, m);
                    y.into_iter().enumerate().for_each(|(j, y)| put(a, j * part + i, y, j >= 2));
                }
            }
        }
    }

    /// # Safety
    /// Needs NEON.
    #[target_feature(enable = "neon")]
    pub(super) unsafe fn inverse(&self, a: &mut [u64]) {
        assert_eq!(a.len(), self.n);
        let (m, scale) = (modulus(self.p), self.scale.map(|f| broadcast(f)));
        // SAFETY: `a` has n elements, which the indices are below.
        unsafe {
            self.inverse_levels::<true>(a, m, |a, i, x, twiddled| {
                vst1q_u64(a.add(i), to_canonical(times(x, scale[usize::from(twiddled)], m), m));
            });
        }
    }

    /// As [`super::Ntt::multiply_factors`].
    ///
    /// # Safety
    /// Needs NEON.
    #[target_feature(enable = "neon")]
    pub(super) unsafe fn multiply(
        &self,
        a: &[u64],
        factors: (&[u64], &[u64]),
        work: &mut [u64],
        finish: Finish,
        out: &mut [u64],
    ) {
        let (n, m) = (self.n, modulus(self.p));
        for len in [a.len(), factors.0.len(), factors.1.len(), work.len(), out.len()] {
            assert_eq!(len, n);
        }
        let (half, p) = (vdupq_n_u64(self.p / 2), vdupq_n_u64(self.p));
        let (shift, mask) = (vdupq_n_s64(i64::from(finish.shift)), vdupq_n_u64(finish.mask));
        let sign = vdupq_n_u64(if finish.subtract { u64::MAX } else { 0 });
        let (last, out) = (broadcast(self.inverse[1]), out.as_mut_ptr());
        // SAFETY: all five have n elements, which the indices are below.
        unsafe {
            for i in (0..n).step_by(2) {
                let w = load::<false>(factors.0.as_ptr().add(i));
                let q = load::<false>(factors.1.as_ptr().add(i));
                let x = times(load::<true>(a.as_ptr().add(i)), Factor { w, q }, m);
                store(work.as_mut_ptr().add(i), x);
            }
            self.inverse_levels::<false>(work, m, |_, i, x, twiddled| {
                let x = to_canonical(if twiddled { times(x, last, m) } else { x }, m);
                // The representative in (-p/2, p/2).
                let x = vsubq_u64(x, vandq_u64(vcgtq_u64(x, half), p));
                let x = vshlq_u64(x, shift);
                // Two's complement negation where subtracting.
                let x = vsubq_u64(veorq_u64(x, sign), sign);
                vst1q_u64(out.add(i), vandq_u64(vaddq_u64(vld1q_u64(out.add(i)), x), mask));
            });
        }
    }
}
