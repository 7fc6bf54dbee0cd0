//! Shares to residues, residues to the torus, wide integers to residues: constant-time scalar arithmetic.

use hushnet_ring::prime::wide;

/// A constant modulo p with its quotient: `a w mod p` for any 64-bit a.
#[derive(Clone, Copy)]
pub(super) struct Shoup {
    w: u64,
    quotient: u64,
    p: u64,
}

impl Shoup {
    pub(super) fn new(w: u64, p: u64) -> Self {
        Self { w, quotient: ((u128::from(w) << 64) / u128::from(p)) as u64, p }
    }

    #[inline]
    pub(super) fn mul(self, a: u64) -> u64 {
        let q = (wide(a, self.quotient) >> 64) as u64;
        let r = a.wrapping_mul(self.w).wrapping_sub(q.wrapping_mul(self.p));
        r.min(r.wrapping_sub(self.p))
    }
}

#[inline]
pub(super) fn add(a: u64, b: u64, p: u64) -> u64 {
    let s = a + b;
    s.min(s.wrapping_sub(p))
}

#[inline]
pub(super) fn sub(a: u64, b: u64, p: u64) -> u64 {
    let d = a.wrapping_sub(b);
    d.min(d.wrapping_add(p))
}

/// `factor (hi 2^64 + lo) + constant mod p`.
#[derive(Clone, Copy)]
pub(super) struct Wide {
    high: Shoup,
    low: Shoup,
    constant: u64,
    p: u64,
}

impl Wide {
    /// For a factor and a constant modulo p.
    pub(super) fn new(factor: u64, constant: u64, p: u64) -> Self {
        let power = ((1u128 << 64) % u128::from(p)) as u64;
        let high = (u128::from(factor) * u128::from(power) % u128::from(p)) as u64;
        Self { high: Shoup::new(high, p), low: Shoup::new(factor, p), constant, p }
    }

    #[inline]
    pub(super) fn apply(self, v: u128) -> u64 {
        let sum = add(self.high.mul((v >> 64) as u64), self.low.mul(v as u64), self.p);
        add(sum, self.constant, self.p)
    }
}

/// `2^-k mod p`.
pub(super) fn inverse_power(k: u32, p: u64) -> u64 {
    let half = p.div_ceil(2);
    hushnet_ring::prime::pow_mod(half, u64::from(k), p)
}

/// `2^k mod p`.
pub(super) fn power(k: u32, p: u64) -> u64 {
    hushnet_ring::prime::pow_mod(2, u64::from(k), p)
}

/// Residue of a signed integer; constant time for |v| < p.
#[inline]
pub(super) fn signed(v: i64, p: u64) -> u64 {
    (v as u64).wrapping_add(p & (v >> 63) as u64)
}

/// `round(2^64 y / p)` to within two units, for y < p.
#[derive(Clone, Copy)]
pub(super) struct Fraction {
    reciprocal: u64,
    shift: u32,
}

impl Fraction {
    pub(super) fn new(p: u64) -> Self {
        let bits = 64 - p.leading_zeros();
        // Below 2^64 since p > 2^(bits-1).
        Self { reciprocal: ((1u128 << (63 + bits)) / u128::from(p)) as u64, shift: bits - 1 }
    }

    #[inline]
    pub(super) fn of(self, y: u64) -> u64 {
        (wide(y, self.reciprocal) >> self.shift) as u64
    }
}

/// `x` modulo 2^bits, taken in [-2^(bits-1), 2^(bits-1)).
#[inline]
pub(super) fn centred(x: u64, bits: u32) -> i64 {
    (x << (64 - bits)) as i64 >> (64 - bits)
}
