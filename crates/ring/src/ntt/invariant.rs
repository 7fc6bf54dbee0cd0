//! The conjugate-invariant subring of Z[X]/(X^2N + 1): the N-dimensional span of 1 and X^t + X^-t, t < N (Kim, Song, ICISC 2018).
//!
//! Modulo `X^N - psi^N`, psi a primitive 4N-th root of unity, `X^-t = -X^(2N-t)` is `-psi^N X^(N-t)`, so an element is the polynomial with
//! coefficients `b_t = a_t - psi^N a_(N-t)`, `b_0 = a_0`: a *fold*. The N roots of `X^N = psi^N` are the odd powers `psi^e`, e = 1 mod 4, one of
//! every conjugate pair, and a transform over them is the left half of one of 2N points: the same butterflies with other factors.
#![allow(unsafe_code)]

use super::portable;
use crate::prime::pow_mod;
use crate::Isa;

/// Coefficients of the subring to those modulo `X^N - psi^N`, and back.
pub(super) struct Fold {
    p: u64,
    /// psi^N, and its negative: square roots of -1.
    root: u64,
    negative: u64,
    /// Whether the vector path does it.
    #[cfg(target_arch = "x86_64")]
    fast: bool,
}

/// Of the factors of a transform of 2N points, those of its left half.
pub(super) fn left_half(powers: &[u64]) -> Vec<u64> {
    let n = powers.len() / 2;
    // The factors of the level with b blocks stand from b on.
    let mut half = vec![1; n];
    let mut blocks = 1;
    while blocks < n {
        half[blocks..2 * blocks].copy_from_slice(&powers[2 * blocks..3 * blocks]);
        blocks *= 2;
    }
    half
}

impl Fold {
    /// For N = `n` and psi, a primitive 4N-th root of unity.
    pub(super) fn new(n: usize, p: u64, psi: u64, isa: Isa) -> Self {
        let root = pow_mod(psi, n as u64, p);
        let _ = isa;
        Self {
            p,
            root,
            negative: p - root,
            #[cfg(target_arch = "x86_64")]
            fast: p < 1 << 50 && isa >= Isa::Avx2,
        }
    }

    /// `b_t = a_t - psi^N a_(N-t)`.
    pub(super) fn fold(&self, a: &mut [u64]) {
        self.mirror::<false>(a, self.negative);
    }

    /// `a_t = (b_t + psi^N b_(N-t)) / 2`: with psi^2N = -1 the terms of a_(N-t) cancel.
    pub(super) fn unfold(&self, b: &mut [u64]) {
        self.mirror::<true>(b, self.root);
    }

    /// `a_t <- a_t + w a_(N-t)`, t = 1 .. N-1, halved or not.
    fn mirror<const HALVE: bool>(&self, a: &mut [u64], w: u64) {
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut from = 1;
        #[cfg(target_arch = "x86_64")]
        if self.fast {
            // SAFETY: AVX2 and FMA are there, where the instruction set says so, and p is below 2^50.
            from = unsafe { super::avx2::mirror::<HALVE>(a, w, self.p) };
        }
        let (n, p) = (a.len(), self.p);
        let factor = portable::Factor::new(w, p);
        let half = |v: u64| (v + (p & (v & 1).wrapping_neg())) >> 1;
        for t in from..=n / 2 {
            let (x, y) = (a[t], a[n - t]);
            for (to, (x, y)) in [(t, (x, y)), (n - t, (y, x))] {
                let v = portable::fold(portable::fold(x + factor.times(y, p), 2 * p), p);
                a[to] = if HALVE { half(v) } else { v };
            }
        }
    }
}
