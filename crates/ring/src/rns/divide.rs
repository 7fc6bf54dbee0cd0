//! Division by a product of primes with rounding.

use super::buffer::Buffer;
use super::convert::{product, BaseConverter};
use super::kernels::{self as k, Out};
use super::{Eval, Factor, Modulus, RnsBasis, RnsError, RnsPoly};
use std::ops::Range;

/// Division by S = the product of some primes, rounding to the nearest integer: `(x - [x]_S) / S` with the
/// centred `[x]_S`. Rescaling (S = the last prime), coming down from the special primes, or both at once.
#[derive(Clone)]
pub struct Divider {
    converter: BaseConverter,
    /// `S^-1` modulo every target.
    inverses: Vec<Factor>,
}

impl Divider {
    /// Division by the primes at `by`, for polynomials whose remaining primes are at `to` (contiguous).
    ///
    /// # Errors
    /// As [`BaseConverter::new`].
    pub fn new(basis: &RnsBasis, by: &[usize], to: Range<usize>) -> Result<Self, RnsError> {
        let converter = BaseConverter::new(basis, by, &to.clone().collect::<Vec<_>>())?;
        let moduli = basis.moduli();
        let inverses = to
            .map(|t| moduli[t].factor(moduli[t].inv(product(moduli, by.iter().copied(), &moduli[t]))))
            .collect();
        Ok(Self { converter, inverses })
    }

    /// The quotient's positions in the basis.
    #[must_use]
    pub fn to(&self) -> &[usize] {
        &self.converter.to
    }

    /// The quotient of `a`, which must have all primes of divisor and quotient. Cost: one inverse transform
    /// a prime of S, one forward transform a prime of the quotient.
    ///
    /// # Errors
    /// [`RnsError`] when limbs are missing.
    pub fn divide(&self, basis: &RnsBasis, a: &RnsPoly<Eval>) -> Result<RnsPoly<Eval>, RnsError> {
        let [out] = self.divide_each(basis, [a])?;
        Ok(out)
    }

    /// [`Self::divide`] of several polynomials, which take turns at every prime: its tables are read once for all of them.
    ///
    /// # Errors
    /// As [`Self::divide`].
    pub fn divide_each<const K: usize>(
        &self,
        basis: &RnsBasis,
        all: [&RnsPoly<Eval>; K],
    ) -> Result<[RnsPoly<Eval>; K], RnsError> {
        let to = self.converter.to[0]..self.converter.to[0] + self.converter.to.len();
        if let Some(a) = all.iter().find(|a| a.range().start > to.start || a.range().end < to.end) {
            return Err(RnsError::Limbs { needed: to, got: a.range() });
        }
        let sources = self.prepared(basis, all)?;
        let mut out = Vec::with_capacity(K);
        for _ in 0..K {
            out.push(basis.dirty(to.clone())?);
        }
        self.quotient(basis, &sources, |of, i, remainder, f, m| {
            k::difference_factor(
                basis.isa(),
                Out::new(out[of].limb_mut(i)),
                all[of].limb(i),
                remainder,
                f,
                m,
            );
        })?;
        out.try_into().map_err(|_| RnsError::Empty)
    }

    /// [`Self::divide`] in the place of `a`, whose first limbs are the quotient's.
    ///
    /// # Errors
    /// As [`Self::divide`]; [`RnsError::Limbs`] where `a` begins elsewhere.
    pub fn divide_in_place(&self, basis: &RnsBasis, mut a: RnsPoly<Eval>) -> Result<RnsPoly<Eval>, RnsError> {
        let to = self.converter.to[0]..self.converter.to[0] + self.converter.to.len();
        if a.range().start != to.start || a.range().end < to.end {
            return Err(RnsError::Limbs { needed: to, got: a.range() });
        }
        let source = self.prepared(basis, [&a])?;
        a.truncate(to.end);
        self.quotient(basis, &source, |_, i, remainder, f, m| {
            k::sub_factor(basis.isa(), Out::new(a.limb_mut(i)), remainder, f, m);
        })?;
        Ok(a)
    }

    /// Hands the number of a source, `[source]` modulo every prime of the quotient, 1/S and the prime to what subtracts and multiplies; `sources` is what
    /// [`Self::prepared`] gave.
    fn quotient(
        &self,
        basis: &RnsBasis,
        sources: &[Prepared],
        mut finish: impl FnMut(usize, usize, &[u64], Factor, &Modulus),
    ) -> Result<(), RnsError> {
        let n = basis.degree();
        let together = self.converter.at_a_time();
        let mut remainders = Buffer::dirty(n * together * sources.len());
        let numbers: Vec<usize> = (0..self.converter.to.len()).collect();
        for group in numbers.chunks(together) {
            for ((source, overflow), limbs) in sources.iter().zip(remainders.chunks_exact_mut(n * together)) {
                let mut wanted: Vec<(usize, &mut [u64])> =
                    group.iter().copied().zip(limbs.chunks_exact_mut(n)).collect();
                let source: Vec<&[u64]> = source.iter().map(|s| &**s).collect();
                self.converter.targets(basis, (&source, overflow), &mut wanted, true);
            }
            for (at, &t) in group.iter().enumerate() {
                let i = self.converter.to[t];
                for (of, limbs) in remainders.chunks_exact_mut(n * together).enumerate() {
                    let remainder = &mut limbs[n * at..][..n];
                    basis.transform(i).forward(remainder)?;
                    finish(of, i, remainder, self.inverses[t], &basis.moduli()[i]);
                }
            }
        }
        Ok(())
    }

    /// The divisor's limbs of each polynomial as coefficients, ready for conversion, and their overflows.
    fn prepared<const K: usize>(
        &self,
        basis: &RnsBasis,
        all: [&RnsPoly<Eval>; K],
    ) -> Result<Vec<Prepared>, RnsError> {
        let prepare = |a: &RnsPoly<Eval>| {
            basis.check(a)?;
            let limb = |&j: &usize| {
                let missing = || RnsError::Limbs { needed: j..j + 1, got: a.range() };
                a.range().contains(&j).then(|| a.limb(j)).ok_or_else(missing)
            };
            let slots = self.converter.from.iter().map(limb).collect::<Result<Vec<_>, _>>()?;
            let mut source: Vec<Buffer> = slots.iter().map(|_| Buffer::dirty(basis.degree())).collect();
            let mut limbs: Vec<&mut [u64]> = source.iter_mut().map(|s| &mut **s).collect();
            let overflow = self.converter.prepare_slots(basis, &slots, &mut limbs)?;
            Ok((source, overflow))
        };
        all.into_iter().map(prepare).collect()
    }
}

/// A polynomial's limbs of a divisor, as coefficients, and their overflows.
type Prepared = (Vec<Buffer>, Buffer);
