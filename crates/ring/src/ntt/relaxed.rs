//! Transforms in 128-bit vectors of WebAssembly for p < 2^50, N >= 64, in double precision, where the engine's relaxed products and sums are rounded
//! once (`simd::detected`): the passes and bounds of `neon.rs`, whose head derives them. A quotient is rounded by a sum with [`MAGIC`], in one step with
//! its product: it is within 1/2 of `x w/p` as it is there.
#![allow(unsafe_code)]

use super::{prepare, transpose_tiles, Finish};
use crate::prime::{inv_mod, mul_mod};
use std::arch::wasm32::*;

/// Added to a double of at most 2^51, it rounds to an integer.
const MAGIC: f64 = 6_755_399_441_055_744.0;
/// 2^52: added to an integer below it, it leaves the integer in the low bits.
const PLACE: f64 = 4_503_599_627_370_496.0;

/// `x f`, rounded to an integer.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn rounded(x: v128, f: v128) -> v128 {
    let magic = f64x2_splat(MAGIC);
    f64x2_sub(f64x2_relaxed_madd(x, f, magic), magic)
}

/// Integers below 2^52 to doubles.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn from_words(x: v128) -> v128 {
    let place = f64x2_splat(PLACE);
    f64x2_sub(v128_or(x, place), place)
}

/// Doubles that are integers, 0 to 2^52, to words.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn to_words(x: v128) -> v128 {
    let place = f64x2_splat(PLACE);
    v128_xor(f64x2_add(x, place), place)
}

/// Elements i and i + 4 in vector i.
///
/// # Safety
/// Eight elements behind `p` must be readable.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
unsafe fn load_four(p: *const u64) -> Four {
    // SAFETY: by contract.
    let r = unsafe { [0, 2, 4, 6].map(|i| v128_load(p.add(i).cast())) };
    [
        i64x2_shuffle::<0, 2>(r[0], r[2]),
        i64x2_shuffle::<1, 3>(r[0], r[2]),
        i64x2_shuffle::<0, 2>(r[1], r[3]),
        i64x2_shuffle::<1, 3>(r[1], r[3]),
    ]
}

/// Undoes [`load_four`].
///
/// # Safety
/// Eight elements behind `p` must be writable.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
unsafe fn store_four(p: *mut u64, v: Four) {
    // SAFETY: by contract.
    unsafe {
        v128_store(p.cast(), i64x2_shuffle::<0, 2>(v[0], v[1]));
        v128_store(p.add(2).cast(), i64x2_shuffle::<0, 2>(v[2], v[3]));
        v128_store(p.add(4).cast(), i64x2_shuffle::<1, 3>(v[0], v[1]));
        v128_store(p.add(6).cast(), i64x2_shuffle::<1, 3>(v[2], v[3]));
    }
}

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
    p: v128,
    inverse: v128,
}

#[derive(Clone, Copy)]
struct Factor {
    w: v128,
    q: v128,
}

/// Two values each of the quarters of a block.
type Four = [v128; 4];

#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn modulus(p: u64) -> Mod {
    Mod { p: f64x2_splat(p as f64), inverse: f64x2_splat(1.0 / p as f64) }
}

#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn broadcast(f: [f64; 2]) -> Factor {
    Factor { w: f64x2_splat(f[0]), q: f64x2_splat(f[1]) }
}

/// `x w` modulo p, signed.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn times(x: v128, f: Factor, m: Mod) -> v128 {
    let quotient = rounded(x, f.q);
    let high = f64x2_mul(x, f.w);
    // -l: what the rounding of h has added.
    let low = f64x2_relaxed_nmadd(x, f.w, high);
    f64x2_sub(f64x2_relaxed_nmadd(quotient, m.p, high), low)
}

/// To at most 0.51 p.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn reduce(x: v128, m: Mod) -> v128 {
    f64x2_relaxed_nmadd(rounded(x, m.inverse), m.p, x)
}

/// Doubles of at most 4 p to canonical integers below p.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn to_canonical(x: v128, m: Mod) -> v128 {
    let x = reduce(x, m);
    let add = v128_and(f64x2_lt(x, f64x2_splat(0.0)), m.p);
    to_words(f64x2_add(x, add))
}

/// # Safety
/// Two elements behind `a` must be readable: residues, or doubles between passes.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
unsafe fn load<const RESIDUES: bool>(a: *const u64) -> v128 {
    // SAFETY: by contract.
    let words = unsafe { v128_load(a.cast()) };
    if RESIDUES {
        from_words(words)
    } else {
        words
    }
}

/// # Safety
/// Two elements behind `a` must be writable.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
unsafe fn store(a: *mut u64, v: v128) {
    // SAFETY: by contract.
    unsafe { v128_store(a.cast(), v) }
}

/// Two levels of four values, the first at most 2, to at most 2: twiddles of the first level, and of both halves in the second.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn forward_four(x: Four, [f, g, h]: [Factor; 3], m: Mod) -> Four {
    let (u0, u1) = (reduce(x[0], m), reduce(x[1], m));
    let (v0, v1) = (times(x[2], f, m), times(x[3], f, m));
    let (s, t) = (times(f64x2_add(u1, v1), g, m), times(f64x2_sub(u1, v1), h, m));
    let (a, b) = (f64x2_add(u0, v0), f64x2_sub(u0, v0));
    [f64x2_add(a, s), f64x2_sub(a, s), f64x2_add(b, t), f64x2_sub(b, t)]
}

/// Two inverse levels of four values of at most 1, up to the last products: the latter two results are still to be multiplied by the twiddle
/// of the second level. At most 4, 1.5, 4 and 1.5.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn inverse_four(x: Four, [g, h]: [Factor; 2], m: Mod) -> Four {
    let (d0, d1) = (times(f64x2_sub(x[0], x[1]), g, m), times(f64x2_sub(x[2], x[3]), h, m));
    let (s0, s1) = (f64x2_add(x[0], x[1]), f64x2_add(x[2], x[3]));
    [f64x2_add(s0, s1), f64x2_add(d0, d1), f64x2_sub(s0, s1), f64x2_sub(d0, d1)]
}

/// [`inverse_four`] of which all are at most 1.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn inverse_whole(x: Four, [f, g, h]: [Factor; 3], m: Mod) -> Four {
    let y = inverse_four(x, [g, h], m);
    [reduce(y[0], m), reduce(y[1], m), times(y[2], f, m), times(y[3], f, m)]
}

/// Twiddles of two blocks of four elements beside each other, from b on.
///
/// # Safety
/// `powers` has `2 b + 4` elements.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
unsafe fn of_two_blocks(powers: &[[f64; 2]], b: usize) -> [Factor; 3] {
    // SAFETY: b + 2 and 2 b + 4 elements are there, each a pair of doubles.
    let (x, y, second) = unsafe {
        let powers = powers.as_ptr().cast::<u64>();
        (
            v128_load(powers.add(2 * b).cast()),
            v128_load(powers.add(2 * b + 2).cast()),
            load_four(powers.add(4 * b)),
        )
    };
    [
        Factor { w: i64x2_shuffle::<0, 2>(x, y), q: i64x2_shuffle::<1, 3>(x, y) },
        Factor { w: second[0], q: second[1] },
        Factor { w: second[2], q: second[3] },
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
    /// Needs relaxed SIMD.
    #[target_feature(enable = "simd128,relaxed-simd")]
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
                let y = forward_four(load_four(at), of_two_blocks(&self.forward, n / 4 + b), m);
                let y = y.map(|v| to_canonical(v, m));
                store_four(at, y);
            }
        }
        transpose_tiles(a);
    }

    /// One level, of residues.
    ///
    /// # Safety
    /// `a` points to n elements, blocks have four or more.
    #[inline]
    #[target_feature(enable = "simd128,relaxed-simd")]
    unsafe fn forward_level(&self, blocks: usize, a: *mut u64, m: Mod) {
        let half = self.n / blocks / 2;
        for b in 0..blocks {
            let f = broadcast(self.forward[blocks + b]);
            for i in (0..half).step_by(2) {
                // SAFETY: both lie within block b.
                unsafe {
                    let (low, high) = (a.add(2 * half * b + i), a.add(2 * half * b + half + i));
                    let (u, v) = (load::<true>(low), times(load::<true>(high), f, m));
                    store(low, f64x2_add(u, v));
                    store(high, f64x2_sub(u, v));
                }
            }
        }
    }

    /// Two levels.
    ///
    /// # Safety
    /// `a` points to n elements, blocks have eight or more.
    #[inline]
    #[target_feature(enable = "simd128,relaxed-simd")]
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
    #[target_feature(enable = "simd128,relaxed-simd")]
    unsafe fn inverse_levels<const RESIDUES: bool>(
        &self,
        a: &mut [u64],
        m: Mod,
        put: impl Fn(*mut u64, usize, v128, bool),
    ) {
        transpose_tiles(a);
        let (n, a) = (self.n, a.as_mut_ptr());
        // SAFETY: there are n elements, of which the passes read and write each block's.
        unsafe {
            for b in (0..n / 4).step_by(2) {
                let at = a.add(4 * b);
                let x = load_four(at);
                let x = if RESIDUES { x.map(|v| from_words(v)) } else { x };
                let y = inverse_whole(x, of_two_blocks(&self.inverse, n / 4 + b), m);
                store_four(at, y);
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
                    put(a, i, f64x2_add(u, v), false);
                    put(a, part + i, f64x2_sub(u, v), true);
                } else {
                    let y = inverse_four([x(0), x(1), x(2), x(3)], inner, m);
                    y.into_iter().enumerate().for_each(|(j, y)| put(a, j * part + i, y, j >= 2));
                }
            }
        }
    }

    /// # Safety
    /// Needs relaxed SIMD.
    #[target_feature(enable = "simd128,relaxed-simd")]
    pub(super) unsafe fn inverse(&self, a: &mut [u64]) {
        assert_eq!(a.len(), self.n);
        let (m, scale) = (modulus(self.p), self.scale.map(|f| broadcast(f)));
        // SAFETY: `a` has n elements, which the indices are below.
        unsafe {
            self.inverse_levels::<true>(a, m, |a, i, x, twiddled| {
                v128_store(a.add(i).cast(), to_canonical(times(x, scale[usize::from(twiddled)], m), m));
            });
        }
    }

    /// As [`super::Ntt::multiply_factors`].
    ///
    /// # Safety
    /// Needs relaxed SIMD.
    #[target_feature(enable = "simd128,relaxed-simd")]
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
        let (half, p) = (u64x2_splat(self.p / 2), u64x2_splat(self.p));
        let (shift, mask) = (finish.shift, u64x2_splat(finish.mask));
        let sign = u64x2_splat(if finish.subtract { u64::MAX } else { 0 });
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
                let x = i64x2_sub(x, v128_and(i64x2_gt(x, half), p));
                let x = i64x2_shl(x, shift);
                // Two's complement negation where subtracting.
                let x = i64x2_sub(v128_xor(x, sign), sign);
                v128_store(out.add(i).cast(), v128_and(i64x2_add(v128_load(out.add(i).cast()), x), mask));
            });
        }
    }
}
