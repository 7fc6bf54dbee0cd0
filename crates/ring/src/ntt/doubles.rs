//! Scalar transforms for p < 2^50 where a product of two words has no instruction for its high half, but doubles are fast (WebAssembly): the
//! quotient `round(x w / p)` is estimated in double precision, and `x w - q p` is exact modulo 2^64.
//!
//! Values are signed. In units of p: a factor w is centred, so `|w/p| <= 1/2`, and the estimate for `|x| <= b <= 4` errs by at most `b/8` beside
//! its rounding (the quotient is below 2^51, with a relative error of 2^-52): a product has at most `1/2 + b/8`. Forward, two levels are a pass: of
//! four values, two are brought to at most 2 by adding or subtracting 2, two are multiplied; from b <= 3.9 follows
//! `2 + (1/2 + b/8) + (1/2 + (2 + 1/2 + b/8)/8) <= 3.9`. Backward a pass starts and ends at 1: `4 b` is reduced, `2 (1/2 + 2 b/8)` brought
//! to 1, the products have at most `1/2 + 4 b/8`.

use super::portable::fold;
use super::Finish;
use crate::prime::{inv_mod, mul_mod};

/// Added to a double of at most 2^51, it rounds to an integer and moves that integer into the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// A centred constant factor w, and w / p.
#[derive(Clone, Copy)]
struct Factor {
    w: i64,
    ratio: f64,
}

impl Factor {
    /// Of a public w below p.
    fn new(w: u64, p: u64) -> Self {
        let w = centred(w, p);
        Self { w, ratio: w as f64 / p as f64 }
    }
}

/// The representative of w below p in (-p/2, p/2), without a branch.
#[inline(always)]
fn centred(w: u64, p: u64) -> i64 {
    let above = (p / 2).wrapping_sub(w) as i64 >> 63;
    w as i64 - (p as i64 & above)
}

/// p, with what is made of it.
#[derive(Clone, Copy)]
struct Mod {
    p: i64,
    /// What takes the bits of [`MAGIC`] out of a quotient times p.
    shift: i64,
    inverse: f64,
}

impl Mod {
    fn new(p: u64) -> Self {
        let shift = (MAGIC.to_bits() as i64).wrapping_mul(p as i64);
        Self { p: p as i64, shift, inverse: 1.0 / p as f64 }
    }

    /// `x w` modulo p.
    #[inline(always)]
    fn times(self, x: i64, f: Factor) -> i64 {
        let q = (x as f64 * f.ratio + MAGIC).to_bits() as i64;
        x.wrapping_mul(f.w).wrapping_sub(q.wrapping_mul(self.p)).wrapping_add(self.shift)
    }

    /// To at most 0.51.
    #[inline(always)]
    fn reduce(self, x: i64) -> i64 {
        let q = (x as f64 * self.inverse + MAGIC).to_bits() as i64;
        x.wrapping_sub(q.wrapping_mul(self.p)).wrapping_add(self.shift)
    }

    /// One `step` towards zero and past it.
    #[inline(always)]
    fn nearer(x: i64, step: i64) -> i64 {
        let sign = x >> 63;
        x - ((step ^ sign) - sign)
    }

    /// At most 4 to its residue below p.
    #[inline(always)]
    fn canonical(self, x: i64) -> u64 {
        let x = self.reduce(x);
        (x + (self.p & x >> 63)) as u64
    }
}

pub(super) struct Tables {
    p: u64,
    m: Mod,
    forward: Vec<Factor>,
    inverse: Vec<Factor>,
    /// 1/N, and the last level's only twiddle over N.
    scale: [Factor; 2],
    last: Factor,
}

impl Tables {
    pub(super) fn new(p: u64, forward: &[u64], inverse: &[u64]) -> Self {
        let factors = |powers: &[u64]| powers.iter().map(|&w| Factor::new(w, p)).collect();
        let n_inverse = inv_mod(forward.len() as u64, p);
        let scale = [n_inverse, mul_mod(inverse[1], n_inverse, p)].map(|w| Factor::new(w, p));
        let (forward, last) = (factors(forward), Factor::new(inverse[1], p));
        Self { p, m: Mod::new(p), forward, inverse: factors(inverse), scale, last }
    }

    /// As [`super::Ntt::prepare_factors`]: w, and the bits of w / p, without a division of the secret w. The ratio is one rounding worse, so the
    /// product with a residue has at most 0.7.
    pub(super) fn prepare(&self, w: u64) -> [u64; 2] {
        let w = centred(w, self.p);
        [w as u64, (w as f64 * self.m.inverse).to_bits()]
    }

    /// The levels from so many blocks on.
    pub(super) fn forward(&self, mut blocks: usize, a: &mut [u64]) {
        let (n, m) = (a.len(), self.m);
        if (n / blocks).trailing_zeros() % 2 == 1 {
            for (block, factor) in a.chunks_exact_mut(n / blocks).zip(&self.forward[blocks..]) {
                let (low, high) = block.split_at_mut(n / blocks / 2);
                for (x, y) in low.iter_mut().zip(high) {
                    let v = m.times(*y as i64, *factor);
                    (*x, *y) = ((*x as i64 + v) as u64, (*x as i64 - v) as u64);
                }
            }
            blocks *= 2;
        }
        while blocks < n {
            let quarter = n / blocks / 4;
            for (b, block) in a.chunks_exact_mut(4 * quarter).enumerate() {
                let [f, g, h] = [blocks + b, 2 * (blocks + b), 2 * (blocks + b) + 1].map(|i| self.forward[i]);
                let (low, high) = block.split_at_mut(2 * quarter);
                let ((x0, x1), (x2, x3)) = (low.split_at_mut(quarter), high.split_at_mut(quarter));
                for (((x0, x1), x2), x3) in x0.iter_mut().zip(x1).zip(x2).zip(x3) {
                    let [u0, u1] = [*x0, *x1].map(|x| Mod::nearer(x as i64, 2 * m.p));
                    let (v0, v1) = (m.times(*x2 as i64, f), m.times(*x3 as i64, f));
                    let (s, t) = (m.times(u1 + v1, g), m.times(u1 - v1, h));
                    (*x0, *x1) = ((u0 + v0 + s) as u64, (u0 + v0 - s) as u64);
                    (*x2, *x3) = ((u0 - v0 + t) as u64, (u0 - v0 - t) as u64);
                }
            }
            blocks *= 4;
        }
        for x in a.iter_mut() {
            *x = m.canonical(*x as i64);
        }
        super::transpose_tiles(a);
    }

    /// All inverse levels but the last, from slot order and at most 1 to at most 1.
    fn inverse_levels(&self, a: &mut [u64]) {
        let (n, m) = (a.len(), self.m);
        super::transpose_tiles(a);
        let mut blocks = n / 2;
        if n.trailing_zeros() % 2 == 0 {
            for (b, pair) in a.chunks_exact_mut(2).enumerate() {
                let (u, v) = (pair[0] as i64, pair[1] as i64);
                pair[0] = m.reduce(u + v) as u64;
                pair[1] = m.times(u - v, self.inverse[blocks + b]) as u64;
            }
            blocks /= 2;
        }
        while blocks > 1 {
            let quarter = n / blocks / 2;
            for (b, block) in a.chunks_exact_mut(4 * quarter).enumerate() {
                let [f, g, h] = [blocks / 2 + b, blocks + 2 * b, blocks + 2 * b + 1].map(|i| self.inverse[i]);
                let (low, high) = block.split_at_mut(2 * quarter);
                let ((x0, x1), (x2, x3)) = (low.split_at_mut(quarter), high.split_at_mut(quarter));
                for (((x0, x1), x2), x3) in x0.iter_mut().zip(x1).zip(x2).zip(x3) {
                    let [u0, u1, u2, u3] = [*x0, *x1, *x2, *x3].map(|x| x as i64);
                    let (d0, d1) = (m.times(u0 - u1, g), m.times(u2 - u3, h));
                    let (s0, s1) = (u0 + u1, u2 + u3);
                    *x0 = m.reduce(s0 + s1) as u64;
                    *x1 = Mod::nearer(d0 + d1, m.p) as u64;
                    *x2 = m.times(s0 - s1, f) as u64;
                    *x3 = m.times(d0 - d1, f) as u64;
                }
            }
            blocks /= 4;
        }
    }

    pub(super) fn inverse(&self, a: &mut [u64]) {
        self.inverse_levels(a);
        let m = self.m;
        let (low, high) = a.split_at_mut(a.len() / 2);
        for (x, y) in low.iter_mut().zip(high) {
            let (u, v) = (*x as i64, *y as i64);
            *x = residue(m.times(u + v, self.scale[0]), m.p);
            *y = residue(m.times(u - v, self.scale[1]), m.p);
        }
    }

    /// As [`super::Ntt::multiply_factors`].
    pub(super) fn multiply(
        &self,
        a: &[u64],
        factors: (&[u64], &[u64]),
        work: &mut [u64],
        finish: Finish,
        out: &mut [u64],
    ) {
        let m = self.m;
        for (((x, y), w), ratio) in work.iter_mut().zip(a).zip(factors.0).zip(factors.1) {
            *x = m.times(*y as i64, Factor { w: *w as i64, ratio: f64::from_bits(*ratio) }) as u64;
        }
        self.inverse_levels(work);
        let half = work.len() / 2;
        let (low, high) = work.split_at_mut(half);
        let (out_low, out_high) = out.split_at_mut(half);
        let put = |o: &mut u64, c: i64| {
            // The representative in (-p/2, p/2).
            let c = (centred(m.canonical(c), self.p) as u64) << finish.shift;
            *o = if finish.subtract { o.wrapping_sub(c) } else { o.wrapping_add(c) } & finish.mask;
        };
        for (((x, y), o), r) in low.iter().zip(high.iter()).zip(out_low).zip(out_high) {
            let (u, v) = (*x as i64, *y as i64);
            put(o, u + v);
            put(r, m.times(u - v, self.last));
        }
    }
}

/// At most 1 in absolute value to below p.
#[inline(always)]
fn residue(x: i64, p: i64) -> u64 {
    fold((x + (p & x >> 63)) as u64, p as u64)
}
