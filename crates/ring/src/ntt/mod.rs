//! Negacyclic number-theoretic transforms modulo primes `p = 1 mod 2N`, `p < 2^61`.
//!
//! The forward transform evaluates a polynomial at the N odd powers of a primitive 2N-th root of unity
//! psi. Slot order: let `e(i) = 2 bitrev(i) + 1` over log2 N bits. For N < 64 slot `i` holds the value at `psi^e(i)`.
//! For N >= 64 every run of 64 slots is an 8 x 8 matrix stored transposed: slot `64 g + 8 s + b` holds the value at
//! `psi^e(64 g + 8 b + s)`. (Vector units then finish eight sub-transforms side by side.) Products are slotwise, so
//! most users never see the order; [`Ntt::slot_exponent`] tells it.

mod portable;

use crate::error::expect_len;
use crate::prime::{inv_mod, primitive_root};
use crate::{simd, Isa, RingError};

/// Transform tables for one ring degree and prime.
pub struct Ntt {
    n: usize,
    p: u64,
    isa: Isa,
    portable: portable::Tables,
}

/// `psi^bitrev(i)`, `i < N`: the twiddles of a decimation that halves blocks, level by level.
fn bit_reversed_powers(n: usize, p: u64, psi: u64) -> Vec<u64> {
    let bits = n.trailing_zeros();
    let mut powers = vec![0; n];
    let mut power = 1;
    for i in 0..n {
        powers[i.reverse_bits() >> (usize::BITS - bits)] = power;
        power = crate::prime::mul_mod(power, psi, p);
    }
    powers
}

impl Ntt {
    /// Tables for degree `n` (a power of two, 8 to 65536) and prime `p = 1 mod 2n` below 2^61.
    ///
    /// # Errors
    /// [`RingError::RingDegree`] or [`RingError::Modulus`].
    pub fn new(n: usize, p: u64) -> Result<Self, RingError> {
        Self::with_isa(n, p, simd::isa())
    }

    /// [`Self::new`] on an explicit instruction set (results do not depend on it).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_isa(n: usize, p: u64, isa: Isa) -> Result<Self, RingError> {
        let psi = primitive_root(n, p)?;
        let forward = bit_reversed_powers(n, p, psi);
        let inverse = bit_reversed_powers(n, p, inv_mod(psi, p));
        let portable = portable::Tables::new(p, &forward, &inverse);
        Ok(Self { n, p, isa: isa.usable(), portable })
    }

    /// Ring degree N.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.n
    }

    /// The prime p.
    #[must_use]
    pub fn modulus(&self) -> u64 {
        self.p
    }

    /// The instruction set in use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The odd `e` such that slot `i` holds the value at `psi^e`; `psi` is [`primitive_root`]'s.
    #[must_use]
    pub fn slot_exponent(&self, i: usize) -> usize {
        let bits = self.n.trailing_zeros();
        let i = if self.n >= 64 { i / 64 * 64 + i % 8 * 8 + i % 64 / 8 } else { i };
        2 * (i.reverse_bits() >> (usize::BITS - bits)) + 1
    }

    /// Coefficients, below p, to slot values below p, in place.
    ///
    /// # Errors
    /// [`RingError::Length`] unless `a` has N elements.
    pub fn forward(&self, a: &mut [u64]) -> Result<(), RingError> {
        expect_len("polynomial", a.len(), self.n)?;
        self.portable.forward(a);
        Ok(())
    }

    /// Slot values below p to coefficients below p, in place; undoes [`Self::forward`].
    ///
    /// # Errors
    /// [`RingError::Length`] unless `a` has N elements.
    pub fn inverse(&self, a: &mut [u64]) -> Result<(), RingError> {
        expect_len("polynomial", a.len(), self.n)?;
        self.portable.inverse(a);
        Ok(())
    }

    /// `a_i <- a_i b_i mod p`.
    ///
    /// # Errors
    /// [`RingError::Length`] unless both have N elements.
    pub fn multiply_slots(&self, a: &mut [u64], b: &[u64]) -> Result<(), RingError> {
        expect_len("polynomial", a.len(), self.n)?;
        expect_len("polynomial", b.len(), self.n)?;
        for (x, y) in a.iter_mut().zip(b) {
            *x = crate::prime::mul_mod(*x, *y, self.p);
        }
        Ok(())
    }

    /// Quotients that make `values` (below p) constant factors for [`Self::multiply_factors`].
    pub(crate) fn factor_quotients(&self, values: &[u64], quotients: &mut [u64]) {
        for (q, v) in quotients.iter_mut().zip(values) {
            *q = portable::Factor::new(*v, self.p).quotient();
        }
    }

    /// Coefficients of the product of slot values `a` with prepared factors, below p, into `out`.
    pub(crate) fn multiply_factors(&self, a: &[u64], values: &[u64], quotients: &[u64], out: &mut [u64]) {
        for (((o, x), w), q) in out.iter_mut().zip(a).zip(values).zip(quotients) {
            *o = portable::Factor::from_parts(*w, *q).times_reduced(*x, self.p);
        }
        self.portable.inverse(out);
    }
}

/// Transposes every run of 64 elements as an 8 x 8 matrix; its own inverse. Nothing for shorter slices.
fn transpose_tiles(a: &mut [u64]) {
    for tile in a.chunks_exact_mut(64) {
        for r in 0..8 {
            for c in 0..r {
                tile.swap(8 * r + c, 8 * c + r);
            }
        }
    }
}

#[cfg(test)]
mod tests;
