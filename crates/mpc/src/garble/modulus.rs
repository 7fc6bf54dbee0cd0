//! What shares are added up modulo.

use crate::divisor::Divisor;
use crate::error::{MpcError, Result};
use crate::ring::Ring;
use crate::{uses, Prg};
use hushnet_ring::ledger;
use hushnet_ring::secret::declassify;

/// Arithmetic modulo an odd p, 3 <= p < 2^62 (a prime wherever slots are packed; nothing here needs that). Values are
/// in [0, p) and are read as signed in [-(p-1)/2, (p-1)/2]. Nothing here divides by p or branches on a value but `new`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OddModulus {
    /// p, and quotients by it.
    by: Divisor,
    /// 2^64.
    high: Factor,
}

/// A constant w < p with floor(w 2^64 / p): products with it need no division (Shoup).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Factor {
    w: u64,
    quotient: u64,
}

impl Factor {
    fn new(w: u64, p: u64) -> Self {
        Self { w, quotient: ((u128::from(w) << 64) / u128::from(p)) as u64 }
    }
}

impl OddModulus {
    /// Modulo `p`.
    ///
    /// # Errors
    /// `Parameter` unless p is odd and 3 <= p < 2^62.
    pub fn new(p: u64) -> Result<Self> {
        if p < 3 || p.is_multiple_of(2) || p >> 62 != 0 {
            return Err(MpcError::Parameter { what: "odd modulus", got: p, limit: (1 << 62) - 1 });
        }
        let high = Factor::new(((1u128 << 64) % u128::from(p)) as u64, p);
        Ok(Self { by: Divisor::new(p), high })
    }

    /// The modulus p itself, an odd number.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.by.value()
    }

    /// The number of bits of a residue, ceil(log2 p).
    #[must_use]
    pub const fn bits(self) -> u32 {
        64 - self.value().leading_zeros()
    }

    /// (p - 1)/2, the largest value.
    #[must_use]
    pub const fn half(self) -> u64 {
        self.value() / 2
    }

    /// v mod p, in constant time.
    #[must_use]
    pub const fn reduce(self, v: u64) -> u64 {
        self.by.divide(v).1
    }

    /// v - n if v >= n, for v < 2 n < 2^63, without branches.
    const fn below(v: u64, n: u64) -> u64 {
        let d = v.wrapping_sub(n);
        d.wrapping_add(n & ((d as i64 >> 63) as u64))
    }

    /// a + b mod p of a, b < p, without branches.
    #[must_use]
    pub const fn add(self, a: u64, b: u64) -> u64 {
        Self::below(a + b, self.value())
    }

    /// a - b mod p of a, b < p, without branches.
    #[must_use]
    pub const fn sub(self, a: u64, b: u64) -> u64 {
        let d = a.wrapping_sub(b);
        d.wrapping_add(self.value() & ((d as i64 >> 63) as u64))
    }

    /// Prepares w mod p for [`Self::mul`]; w is public.
    #[must_use]
    pub fn factor(self, w: u64) -> Factor {
        Factor::new(self.reduce(w), self.value())
    }

    /// a w modulo p in [0, 2p), of any a.
    const fn mul_lazy(self, a: u64, f: Factor) -> u64 {
        let q = ((a as u128 * f.quotient as u128) >> 64) as u64;
        a.wrapping_mul(f.w).wrapping_sub(q.wrapping_mul(self.value()))
    }

    /// a w mod p of any a and a prepared w, without branches.
    #[must_use]
    pub const fn mul(self, a: u64, f: Factor) -> u64 {
        Self::below(self.mul_lazy(a, f), self.value())
    }

    /// The representative in [-(p-1)/2, (p-1)/2].
    #[must_use]
    pub const fn signed(self, v: u64) -> i64 {
        let above = self.half().wrapping_sub(v) as i64 >> 63;
        v as i64 - (self.value() as i64 & above)
    }

    /// v mod p of a signed integer.
    #[must_use]
    pub const fn encode(self, v: i64) -> u64 {
        // The word of a negative v is v + 2^64.
        self.sub(self.reduce(v as u64), self.high.w & (v >> 63) as u64)
    }

    /// A 128-bit uniform string modulo p: off uniform by p/2^128. In constant time.
    #[must_use]
    pub const fn reduce_wide(self, v: u128) -> u64 {
        let high = Self::below(self.mul_lazy((v >> 64) as u64, self.high), self.value());
        self.add(high, self.reduce(v as u64))
    }

    pub(crate) fn check(self, values: &[u64]) -> Result<()> {
        // Shares are secret, so the error must not tell which one, and every value is looked at.
        let p = self.value();
        let wrong = values.iter().fold(false, |w, &v| w | (v >= p));
        // That some share is no share at all ends the protocol, which everybody sees.
        if declassify(wrong) {
            return Err(MpcError::Parameter { what: "share modulo p (one of them)", got: p, limit: p - 1 });
        }
        Ok(())
    }
}

/// What shares are added up modulo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Modulus {
    /// 2^l, 2 <= l <= 62 for garbled circuits.
    PowerOfTwo(Ring),
    /// An odd p.
    Odd(OddModulus),
}

impl Modulus {
    /// The number of bits that a share has.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::PowerOfTwo(r) => r.bits(),
            Self::Odd(p) => p.bits(),
        }
    }

    /// a + b of reduced a, b.
    #[must_use]
    pub const fn add(self, a: u64, b: u64) -> u64 {
        match self {
            Self::PowerOfTwo(r) => r.add(a, b),
            Self::Odd(p) => p.add(a, b),
        }
    }

    /// a - b of reduced a, b.
    #[must_use]
    pub const fn sub(self, a: u64, b: u64) -> u64 {
        match self {
            Self::PowerOfTwo(r) => r.sub(a, b),
            Self::Odd(p) => p.sub(a, b),
        }
    }

    /// The signed representative of a residue, around zero.
    #[must_use]
    pub const fn signed(self, v: u64) -> i64 {
        match self {
            Self::PowerOfTwo(r) => r.signed(v),
            Self::Odd(p) => p.signed(v),
        }
    }

    /// The residue of a signed integer.
    #[must_use]
    pub const fn encode(self, v: i64) -> u64 {
        match self {
            Self::PowerOfTwo(r) => r.encode(v),
            Self::Odd(p) => p.encode(v),
        }
    }

    /// What is added to a value so that the order of signed values becomes that of residues: 2^(l-1) or (p-1)/2.
    pub(crate) const fn offset(self) -> u64 {
        match self {
            Self::PowerOfTwo(r) => 1 << (r.bits() - 1),
            Self::Odd(p) => p.half(),
        }
    }

    /// The largest and least signed values.
    pub(crate) const fn range(self) -> (i64, i64) {
        match self {
            Self::PowerOfTwo(r) => (-(1 << (r.bits() - 1)), (1 << (r.bits() - 1)) - 1),
            Self::Odd(p) => (-(p.half() as i64), p.half() as i64),
        }
    }

    /// Results that an evaluator decodes: a garbler that does not keep to the protocol may have it decode p or more.
    pub(crate) fn reduced(self, mut values: Vec<u64>) -> Vec<u64> {
        if let Self::Odd(p) = self {
            values.iter_mut().for_each(|v| *v = p.reduce(*v));
        }
        values
    }

    pub(crate) fn check(self, shares: &[u64]) -> Result<()> {
        match self {
            Self::PowerOfTwo(r) if !(2..=62).contains(&r.bits()) => Err(MpcError::Parameter {
                what: "ring width of a garbled circuit (from 2)",
                got: r.bits().into(),
                limit: 62,
            }),
            Self::PowerOfTwo(_) => Ok(()),
            Self::Odd(p) => p.check(shares),
        }
    }

    /// Uniform residues.
    pub(crate) fn random(self, rng: &mut Prg, n: usize) -> Vec<u64> {
        match self {
            Self::PowerOfTwo(r) => {
                let mut v = vec![0; n];
                rng.words(&mut v);
                ledger::words(uses::GARBLED_R, &mut v);
                v.iter_mut().for_each(|v| *v = r.reduce(*v));
                v
            }
            Self::Odd(p) => {
                let mut blocks = vec![0; n];
                rng.blocks(&mut blocks);
                ledger::blocks(uses::GARBLED_R, &mut blocks);
                blocks.into_iter().map(|b| p.reduce_wide(b)).collect()
            }
        }
    }
}
