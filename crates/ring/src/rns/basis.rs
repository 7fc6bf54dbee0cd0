//! The primes of a ring and their transforms.

use super::{kernels, Coef, Eval, Factor, Modulus, RnsError, RnsPoly};
use crate::{simd, Isa, Ntt, Ring};
use std::ops::Range;

/// Ring degree N, ordered primes, transform tables.
pub struct RnsBasis {
    n: usize,
    ring: Ring,
    isa: Isa,
    moduli: Vec<Modulus>,
    transforms: Vec<Ntt>,
}

impl RnsBasis {
    /// Basis of degree `n` over `primes`, in order.
    ///
    /// # Errors
    /// [`RnsError`] for an unsupported degree, no or repeated primes, or a prime that is not
    /// `1 mod 2n` below 2^50.
    pub fn new(n: usize, primes: &[u64]) -> Result<Self, RnsError> {
        Self::with_isa(n, primes, simd::isa())
    }

    /// [`Self::new`] on an explicit instruction set (results do not depend on it).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_isa(n: usize, primes: &[u64], isa: Isa) -> Result<Self, RnsError> {
        Self::of_ring(Ring::Cyclotomic, n, primes, isa)
    }

    /// [`Self::with_isa`] of either ring, with primes `1 mod` [`Ring::order`].
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_ring(ring: Ring, n: usize, primes: &[u64], isa: Isa) -> Result<Self, RnsError> {
        if primes.is_empty() {
            return Err(RnsError::Empty);
        }
        if let Some((_, p)) = primes.iter().enumerate().find(|(i, p)| primes[..*i].contains(p)) {
            return Err(RnsError::Repeated(*p));
        }
        let moduli = primes.iter().map(|&q| Modulus::new(q)).collect::<Result<_, _>>()?;
        let transforms = primes.iter().map(|&q| Ntt::of_ring(ring, n, q, isa)).collect::<Result<_, _>>()?;
        Ok(Self { n, ring, isa: isa.usable(), moduli, transforms })
    }

    /// The ring degree N, a power of two.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.n
    }

    /// The ring whose elements these are: negacyclic or of real slots.
    #[must_use]
    pub fn ring(&self) -> Ring {
        self.ring
    }

    /// The instruction set in use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The primes' constants, in order.
    #[must_use]
    pub fn moduli(&self) -> &[Modulus] {
        &self.moduli
    }

    /// The transform of prime `i`.
    #[must_use]
    pub fn transform(&self, i: usize) -> &Ntt {
        &self.transforms[i]
    }

    /// A zero polynomial over the primes at `range`.
    ///
    /// # Errors
    /// [`RnsError::Limbs`] when the range is not inside the basis.
    pub fn zero<F: super::Form>(&self, range: Range<usize>) -> Result<RnsPoly<F>, RnsError> {
        self.check_range(&range)?;
        Ok(RnsPoly::zero(self.n, range))
    }

    /// A polynomial whose limbs `fill` writes, every word of them: it gets the number of a prime and what was in the buffer before.
    ///
    /// # Errors
    /// [`RnsError::Limbs`] when the range is not inside the basis, and those of `fill`.
    pub fn fill_with<F: super::Form, E: From<RnsError>>(
        &self,
        range: Range<usize>,
        mut fill: impl FnMut(usize, &mut [u64]) -> Result<(), E>,
    ) -> Result<RnsPoly<F>, E> {
        let mut out = self.dirty(range)?;
        for i in out.range() {
            fill(i, out.limb_mut(i))?;
        }
        Ok(out)
    }

    /// As [`Self::fill_with`], of two polynomials at a time.
    ///
    /// # Errors
    /// As [`Self::fill_with`].
    pub fn fill_two<F: super::Form, E: From<RnsError>>(
        &self,
        range: Range<usize>,
        mut fill: impl FnMut(usize, &mut [u64], &mut [u64]) -> Result<(), E>,
    ) -> Result<[RnsPoly<F>; 2], E> {
        let mut second = self.dirty(range.clone())?;
        let first = self.fill_with(range, |i, limb| fill(i, limb, second.limb_mut(i)))?;
        Ok([first, second])
    }

    /// A polynomial with arbitrary contents, for callers that write every word.
    pub(super) fn dirty<F: super::Form>(&self, range: Range<usize>) -> Result<RnsPoly<F>, RnsError> {
        self.check_range(&range)?;
        Ok(RnsPoly::dirty(self.n, range))
    }

    fn check_range(&self, range: &Range<usize>) -> Result<(), RnsError> {
        if range.start >= range.end || range.end > self.moduli.len() {
            return Err(RnsError::Limbs { needed: range.clone(), got: 0..self.moduli.len() });
        }
        Ok(())
    }

    /// Coefficients to slot values, every limb: `count` transforms.
    ///
    /// # Errors
    /// [`RnsError`] when the polynomial is not of this basis.
    pub fn forward(&self, mut a: RnsPoly<Coef>) -> Result<RnsPoly<Eval>, RnsError> {
        self.check(&a)?;
        for i in a.range() {
            self.transforms[i].forward(a.limb_mut(i))?;
        }
        Ok(a.reform())
    }

    /// Slot values to coefficients, every limb: `count` transforms.
    ///
    /// # Errors
    /// [`RnsError`] when the polynomial is not of this basis.
    pub fn inverse(&self, mut a: RnsPoly<Eval>) -> Result<RnsPoly<Coef>, RnsError> {
        self.check(&a)?;
        for i in a.range() {
            self.transforms[i].inverse(a.limb_mut(i))?;
        }
        Ok(a.reform())
    }

    /// w times the coefficients of the slot values `from` modulo prime i, into `to`; both have N words.
    ///
    /// # Errors
    /// [`RnsError::Degree`] for other numbers of words.
    pub(super) fn inverse_times(
        &self,
        i: usize,
        from: &[u64],
        w: Factor,
        to: &mut [u64],
    ) -> Result<(), RnsError> {
        if let Some(got) = [from.len(), to.len()].into_iter().find(|l| *l != self.n) {
            return Err(RnsError::Degree { expected: self.n, got });
        }
        let transform = &self.transforms[i];
        if !transform.inverse_times(from, w.w, to) {
            to.copy_from_slice(from);
            transform.inverse(to)?;
            if w.w != 1 {
                kernels::factor(self.isa, kernels::Out::new(to), w, &self.moduli[i]);
            }
        }
        Ok(())
    }

    /// Signed coefficients (two's complement, magnitude below 2^52) to residues of the primes at `range`.
    ///
    /// # Errors
    /// [`RnsError`] when the range is outside the basis or the length is not N.
    pub fn from_signed(&self, coefficients: &[u64], range: Range<usize>) -> Result<RnsPoly<Coef>, RnsError> {
        if coefficients.len() != self.n {
            return Err(RnsError::Degree { expected: self.n, got: coefficients.len() });
        }
        let mut out = self.dirty::<Coef>(range)?;
        for i in out.range() {
            kernels::signed(self.isa, kernels::Out::new(out.limb_mut(i)), coefficients, &self.moduli[i]);
        }
        Ok(out)
    }

    /// Integers given modulo `2^bits` (two's complement, bits above zero) to residues of prime `i`, in place:
    /// what follows an exact matrix product modulo a power of two, `|v| < 2^(bits-1)`.
    ///
    /// # Errors
    /// [`RnsError::Limbs`] for a prime outside the basis, [`RnsError::Ring`] unless `bits` is 1 to 64.
    pub fn residues_of_wrapped(&self, words: &mut [u64], bits: u32, i: usize) -> Result<(), RnsError> {
        if !(1..=64).contains(&bits) {
            return Err(crate::RingError::ModulusBits(bits).into());
        }
        let m = self.moduli.get(i).ok_or(RnsError::Limbs { needed: i..i + 1, got: 0..self.moduli.len() })?;
        let out = super::kernels::Out::new(words);
        if bits <= 52 {
            super::kernels::wrapped_short(self.isa, out, 1 << (bits - 1), m);
        } else {
            super::kernels::wrapped(self.isa, out, 1 << (bits - 1), m.factor(1 << 32), m);
        }
        Ok(())
    }

    /// That a polynomial has this degree and limbs inside the basis.
    pub(super) fn check<F: super::Form>(&self, a: &RnsPoly<F>) -> Result<(), RnsError> {
        if a.degree() != self.n {
            return Err(RnsError::Degree { expected: self.n, got: a.degree() });
        }
        if a.range().end > self.moduli.len() {
            return Err(RnsError::Limbs { needed: a.range(), got: 0..self.moduli.len() });
        }
        Ok(())
    }

    /// [`Self::check`], and that it has all limbs of `range`.
    pub(super) fn check_covers<F: super::Form>(
        &self,
        a: &RnsPoly<F>,
        range: Range<usize>,
    ) -> Result<(), RnsError> {
        self.check(a)?;
        if a.range().start > range.start || a.range().end < range.end {
            return Err(RnsError::Limbs { needed: range, got: a.range() });
        }
        Ok(())
    }
}
