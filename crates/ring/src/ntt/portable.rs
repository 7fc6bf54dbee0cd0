//! Scalar transforms for p < 2^61: butterflies with precomputed quotients, values below 4p between levels.

use crate::prime::inv_mod;

/// A constant factor w and floor(w 2^64 / p).
#[derive(Clone, Copy)]
pub(super) struct Factor {
    w: u64,
    quotient: u64,
}

impl Factor {
    pub(super) fn new(w: u64, p: u64) -> Self {
        Self { w, quotient: ((u128::from(w) << 64) / u128::from(p)) as u64 }
    }

    /// `x w mod p` up to one p: below 2p for any 64-bit x.
    #[inline(always)]
    pub(super) fn times(self, x: u64, p: u64) -> u64 {
        let q = (crate::prime::wide(x, self.quotient) >> 64) as u64;
        x.wrapping_mul(self.w).wrapping_sub(q.wrapping_mul(p))
    }
}

/// Computes floor(w 2^B / p) in constant time, for secret w: with `r = w 2^B mod p` the quotient is the exact
/// division `(w 2^B - r) / p`, which modulo 2^64 is a product.
pub(super) struct Quotients<const B: u32> {
    p: u64,
    power: Factor,
    /// 1/p mod 2^64.
    inverse: u64,
}

impl<const B: u32> Quotients<B> {
    pub(super) fn new(p: u64) -> Self {
        // Newton: p is its own inverse mod 8, and every step doubles the bits.
        let inverse = (0..5).fold(p, |x, _| x.wrapping_mul(2u64.wrapping_sub(p.wrapping_mul(x))));
        Self { p, power: Factor::new(crate::prime::pow_mod(2, u64::from(B), p), p), inverse }
    }

    /// floor(w 2^B / p), w below p.
    pub(super) fn of(&self, w: u64) -> u64 {
        let r = fold(self.power.times(w, self.p), self.p);
        w.checked_shl(B).unwrap_or(0).wrapping_sub(r).wrapping_mul(self.inverse)
    }
}

/// Multiplies every value (below p) by a constant modulo p, in constant time.
pub(super) fn scale(values: &mut [u64], factor: u64, p: u64) {
    let factor = Factor::new(factor, p);
    for v in values {
        *v = fold(factor.times(*v, p), p);
    }
}

pub(super) struct Tables {
    p: u64,
    forward: Vec<Factor>,
    inverse: Vec<Factor>,
    /// 1/N, and the last level's only twiddle over N.
    scale: [Factor; 2],
}

/// `x` below 2m to below m.
#[inline(always)]
pub(super) fn fold(x: u64, m: u64) -> u64 {
    x.min(x.wrapping_sub(m))
}

impl Tables {
    pub(super) fn new(p: u64, forward: &[u64], inverse: &[u64]) -> Self {
        let factors = |powers: &[u64]| powers.iter().map(|&w| Factor::new(w, p)).collect();
        let n_inverse = inv_mod(forward.len() as u64, p);
        let last = crate::prime::mul_mod(inverse[1], n_inverse, p);
        Self {
            p,
            forward: factors(forward),
            inverse: factors(inverse),
            scale: [Factor::new(n_inverse, p), Factor::new(last, p)],
        }
    }

    /// The levels from so many blocks on.
    pub(super) fn forward(&self, mut blocks: usize, a: &mut [u64]) {
        let (n, p) = (a.len(), self.p);
        while blocks < n {
            let half = n / blocks / 2;
            for (block, factor) in a.chunks_exact_mut(2 * half).zip(&self.forward[blocks..]) {
                let (low, high) = block.split_at_mut(half);
                for (x, y) in low.iter_mut().zip(high) {
                    let u = fold(*x, 2 * p);
                    let v = factor.times(*y, p);
                    *x = u + v;
                    *y = u + 2 * p - v;
                }
            }
            blocks *= 2;
        }
        for x in a.iter_mut() {
            *x = fold(fold(*x, 2 * p), p);
        }
        super::transpose_tiles(a);
    }

    /// All inverse levels but the last, from slot order; values below 2p.
    fn inverse_levels(&self, a: &mut [u64]) {
        let (n, p) = (a.len(), self.p);
        super::transpose_tiles(a);
        let mut blocks = n / 2;
        while blocks > 1 {
            let half = n / blocks / 2;
            for (block, factor) in a.chunks_exact_mut(2 * half).zip(&self.inverse[blocks..]) {
                let (low, high) = block.split_at_mut(half);
                for (x, y) in low.iter_mut().zip(high) {
                    let (u, v) = (*x, *y);
                    *x = fold(u + v, 2 * p);
                    *y = factor.times(u + 2 * p - v, p);
                }
            }
            blocks /= 2;
        }
    }

    pub(super) fn inverse(&self, a: &mut [u64]) {
        let (n, p) = (a.len(), self.p);
        self.inverse_levels(a);
        let (low, high) = a.split_at_mut(n / 2);
        for (x, y) in low.iter_mut().zip(high) {
            let (u, v) = (*x, *y);
            *x = fold(self.scale[0].times(u + v, p), p);
            *y = fold(self.scale[1].times(u + 2 * p - v, p), p);
        }
    }

    /// As [`super::Ntt::multiply_factors`].
    pub(super) fn multiply(
        &self,
        a: &[u64],
        factors: (&[u64], &[u64]),
        work: &mut [u64],
        finish: super::Finish,
        out: &mut [u64],
    ) {
        let p = self.p;
        for (((x, y), w), quotient) in work.iter_mut().zip(a).zip(factors.0).zip(factors.1) {
            *x = Factor { w: *w, quotient: *quotient }.times(*y, p);
        }
        self.inverse_levels(work);
        let half = work.len() / 2;
        let factor = self.inverse[1];
        let (low, high) = work.split_at_mut(half);
        for (x, y) in low.iter_mut().zip(high) {
            let (u, v) = (*x, *y);
            *x = fold(fold(u + v, 2 * p), p);
            *y = fold(factor.times(u + 2 * p - v, p), p);
        }
        for (o, x) in out.iter_mut().zip(work.iter()) {
            let above = ((p / 2).wrapping_sub(*x) as i64 >> 63) as u64;
            let c = x.wrapping_sub(p & above) << finish.shift;
            *o = if finish.subtract { o.wrapping_sub(c) } else { o.wrapping_add(c) } & finish.mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_and_scaling_equal_wide_arithmetic() {
        for p in [17, 97, 1_125_899_906_826_241, 2_305_843_009_211_596_801] {
            let (q64, q52) = (Quotients::<64>::new(p), Quotients::<52>::new(p));
            for w in [0, 1, 2, p / 3, p / 2, p / 2 + 1, p - 2, p - 1] {
                assert_eq!(q64.of(w), Factor::new(w, p).quotient);
                if p < 1 << 52 {
                    assert_eq!(q52.of(w), ((u128::from(w) << 52) / u128::from(p)) as u64);
                }
                let mut v = [w];
                scale(&mut v, p - 3, p);
                assert_eq!(v[0], crate::prime::mul_mod(w, p - 3, p));
            }
        }
    }
}
