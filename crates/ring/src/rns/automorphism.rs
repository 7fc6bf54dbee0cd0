//! `X -> X^g` in both forms, by tables.

use super::kernels;
use super::{Coef, Eval, Form, RnsBasis, RnsError, RnsPoly};
use crate::Isa;

/// Words that are moved before they are worked on.
const PIECE: usize = 512;

/// Tables of the automorphism `X -> X^g`, g odd modulo 2N.
#[derive(Clone)]
pub struct Automorphism {
    exponent: usize,
    isa: Isa,
    /// Slot `i` of the image is slot `slots[i]` of the argument.
    slots: Box<[u32]>,
    /// Coefficient `i` of the image is coefficient `source[i] >> 1` of the argument, negated if the low bit is set.
    source: Box<[u32]>,
}

impl Automorphism {
    /// Tables of `X -> X^g` (g modulo 2N) on a basis.
    ///
    /// # Errors
    /// [`RnsError::Exponent`] for an even `g`, [`RnsError::NoAutomorphisms`] in the conjugate-invariant ring.
    pub fn new(basis: &RnsBasis, g: usize) -> Result<Self, RnsError> {
        if basis.ring() != crate::Ring::Cyclotomic {
            return Err(RnsError::NoAutomorphisms);
        }
        let n = basis.degree();
        let g = g % (2 * n);
        if g.is_multiple_of(2) {
            return Err(RnsError::Exponent(g));
        }
        let ntt = basis.transform(0);
        let mut slot_of = vec![0u32; 2 * n];
        for i in 0..n {
            slot_of[ntt.slot_exponent(i)] = i as u32;
        }
        let slots = (0..n).map(|i| slot_of[ntt.slot_exponent(i) * g % (2 * n)]).collect();
        let mut source = vec![0u32; n];
        for i in 0..n {
            let to = i * g % (2 * n);
            source[to % n] = (i as u32) << 1 | u32::from(to >= n);
        }
        Ok(Self { exponent: g, isa: basis.isa(), slots, source: source.into() })
    }

    /// The exponent g of the automorphism X -> X^g.
    #[must_use]
    pub fn exponent(&self) -> usize {
        self.exponent
    }

    fn check<F: Form>(&self, basis: &RnsBasis, a: &RnsPoly<F>) -> Result<(), RnsError> {
        basis.check(a)?;
        if self.slots.len() != basis.degree() {
            return Err(RnsError::Degree { expected: basis.degree(), got: self.slots.len() });
        }
        Ok(())
    }

    fn image<F: Form>(&self, basis: &RnsBasis, a: &RnsPoly<F>) -> Result<RnsPoly<F>, RnsError> {
        self.check(basis, a)?;
        basis.dirty(a.range())
    }

    /// The image of slot values: a permutation of every limb.
    ///
    /// # Errors
    /// [`RnsError`] when polynomial or tables are not of this basis.
    pub fn apply_eval(&self, basis: &RnsBasis, a: &RnsPoly<Eval>) -> Result<RnsPoly<Eval>, RnsError> {
        let mut out = self.image(basis, a)?;
        let n = basis.degree();
        for (to, from) in out.words_mut().chunks_exact_mut(n).zip(a.words().chunks_exact(n)) {
            self.apply_words(from, to)?;
        }
        Ok(out)
    }

    /// The image of the N slot values of one limb.
    ///
    /// # Errors
    /// [`RnsError::Degree`] for other numbers of words.
    pub fn apply_words(&self, from: &[u64], to: &mut [u64]) -> Result<(), RnsError> {
        let expected = self.slots.len();
        if let Some(got) = [from.len(), to.len()].into_iter().find(|l| *l != expected) {
            return Err(RnsError::Degree { expected, got });
        }
        kernels::gather(self.isa, to, from, &self.slots);
        Ok(())
    }

    /// `out += image(a) b` over the limbs of `out`, slot values throughout, in one pass.
    ///
    /// # Errors
    /// [`RnsError`] when `a` or `b` lacks limbs of `out`, or polynomials and tables are not of this basis.
    pub fn mul_add_eval(
        &self,
        basis: &RnsBasis,
        out: &mut RnsPoly<Eval>,
        a: &RnsPoly<Eval>,
        b: &RnsPoly<Eval>,
    ) -> Result<(), RnsError> {
        self.check(basis, out)?;
        basis.check_covers(a, out.range())?;
        basis.check_covers(b, out.range())?;
        let mut piece = [0u64; PIECE];
        for i in out.range() {
            let (m, from, factor) = (&basis.moduli()[i], a.limb(i), b.limb(i));
            for ((to, slots), factor) in
                out.limb_mut(i).chunks_mut(PIECE).zip(self.slots.chunks(PIECE)).zip(factor.chunks(PIECE))
            {
                let piece = &mut piece[..slots.len()];
                kernels::gather(self.isa, piece, from, slots);
                kernels::mul_add(basis.isa(), kernels::Out::new(to), piece, factor, m);
            }
        }
        Ok(())
    }

    /// `out += image(from)` of the N slot values modulo prime i, in one pass.
    ///
    /// # Errors
    /// [`RnsError::Degree`] for other numbers of words; [`RnsError::Limbs`] for a prime that is not there.
    pub fn add_words(
        &self,
        basis: &RnsBasis,
        i: usize,
        out: &mut [u64],
        from: &[u64],
    ) -> Result<(), RnsError> {
        let expected = self.slots.len();
        if let Some(got) = [from.len(), out.len()].into_iter().find(|l| *l != expected) {
            return Err(RnsError::Degree { expected, got });
        }
        let m = basis
            .moduli()
            .get(i)
            .ok_or(RnsError::Limbs { needed: i..i + 1, got: 0..basis.moduli().len() })?;
        let mut piece = [0u64; PIECE];
        for (to, slots) in out.chunks_mut(PIECE).zip(self.slots.chunks(PIECE)) {
            let piece = &mut piece[..slots.len()];
            kernels::gather(self.isa, piece, from, slots);
            kernels::add(basis.isa(), kernels::Out::new(to), piece, m);
        }
        Ok(())
    }

    /// The image of coefficients: a signed permutation of every limb.
    ///
    /// # Errors
    /// [`RnsError`] when polynomial or tables are not of this basis.
    pub fn apply_coef(&self, basis: &RnsBasis, a: &RnsPoly<Coef>) -> Result<RnsPoly<Coef>, RnsError> {
        let mut out = self.image(basis, a)?;
        for i in a.range() {
            let (m, from) = (&basis.moduli()[i], a.limb(i));
            for (word, &s) in out.limb_mut(i).iter_mut().zip(&self.source) {
                let v = from[(s >> 1) as usize];
                *word = if s & 1 == 1 { m.neg(v) } else { v };
            }
        }
        Ok(out)
    }
}
