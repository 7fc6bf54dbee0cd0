//! Ring operations, limb by limb.

use super::kernels::{self as k, Out};
use super::sums::{self, Added, Repeats};
use super::{Eval, Form, RnsBasis, RnsError, RnsPoly};
use crate::Isa;
use std::ops::Range;

/// Slices of a list of polynomials at one limb.
fn limbs<'a, F: Form>(polys: &[&'a RnsPoly<F>], i: usize) -> Vec<&'a [u64]> {
    polys.iter().map(|p| p.limb(i)).collect()
}

impl RnsBasis {
    fn each<F: Form>(
        &self,
        a: &mut RnsPoly<F>,
        operands: &[&RnsPoly<F>],
        mut f: impl FnMut(Isa, Out<'_>, usize),
    ) -> Result<(), RnsError> {
        self.check(a)?;
        for b in operands {
            self.check_covers(b, a.range())?;
        }
        for i in a.range() {
            f(self.isa(), Out::new(a.limb_mut(i)), i);
        }
        Ok(())
    }

    /// `a += b`, over the limbs of `a`.
    ///
    /// # Errors
    /// [`RnsError`] when `b` lacks limbs of `a` or either is not of this basis.
    pub fn add_assign<F: Form>(&self, a: &mut RnsPoly<F>, b: &RnsPoly<F>) -> Result<(), RnsError> {
        self.each(a, &[b], |isa, a, i| k::add(isa, a, b.limb(i), &self.moduli()[i]))
    }

    /// `a -= b`, over the limbs of `a`.
    ///
    /// # Errors
    /// As [`Self::add_assign`].
    pub fn sub_assign<F: Form>(&self, a: &mut RnsPoly<F>, b: &RnsPoly<F>) -> Result<(), RnsError> {
        self.each(a, &[b], |isa, a, i| k::sub(isa, a, b.limb(i), &self.moduli()[i]))
    }

    /// `a = -a`.
    ///
    /// # Errors
    /// As [`Self::add_assign`].
    pub fn neg_assign<F: Form>(&self, a: &mut RnsPoly<F>) -> Result<(), RnsError> {
        self.each(a, &[], |isa, a, i| k::neg(isa, a, &self.moduli()[i]))
    }

    /// `a *= b` in the ring, over the limbs of `a`.
    ///
    /// # Errors
    /// As [`Self::add_assign`].
    pub fn mul_assign(&self, a: &mut RnsPoly<Eval>, b: &RnsPoly<Eval>) -> Result<(), RnsError> {
        self.each(a, &[b], |isa, a, i| k::mul(isa, a, b.limb(i), &self.moduli()[i]))
    }

    /// `a b` in the ring, over the primes at `range`, which both have.
    ///
    /// # Errors
    /// As [`Self::add_assign`].
    pub fn product(
        &self,
        range: Range<usize>,
        a: &RnsPoly<Eval>,
        b: &RnsPoly<Eval>,
    ) -> Result<RnsPoly<Eval>, RnsError> {
        let mut out = self.dirty(range)?;
        self.each(&mut out, &[a, b], |isa, out, i| {
            k::mul_to(isa, out, a.limb(i), b.limb(i), &self.moduli()[i]);
        })?;
        Ok(out)
    }

    /// `out += a b` in the ring, over the limbs of `out`.
    ///
    /// # Errors
    /// As [`Self::add_assign`].
    pub fn mul_add(
        &self,
        out: &mut RnsPoly<Eval>,
        a: &RnsPoly<Eval>,
        b: &RnsPoly<Eval>,
    ) -> Result<(), RnsError> {
        self.each(out, &[a, b], |isa, out, i| k::mul_add(isa, out, a.limb(i), b.limb(i), &self.moduli()[i]))
    }

    /// `out -= a b` in the ring, over the limbs of `out`.
    ///
    /// # Errors
    /// As [`Self::add_assign`].
    pub fn mul_sub(
        &self,
        out: &mut RnsPoly<Eval>,
        a: &RnsPoly<Eval>,
        b: &RnsPoly<Eval>,
    ) -> Result<(), RnsError> {
        self.each(out, &[a, b], |isa, out, i| k::mul_sub(isa, out, a.limb(i), b.limb(i), &self.moduli()[i]))
    }

    /// `(a, b) = (a + b w, a - b w)` in the ring, over the limbs of `a`, in one pass.
    ///
    /// # Errors
    /// As [`Self::add_assign`].
    pub fn butterfly(
        &self,
        a: &mut RnsPoly<Eval>,
        b: &mut RnsPoly<Eval>,
        w: &RnsPoly<Eval>,
    ) -> Result<(), RnsError> {
        self.check(b)?;
        self.check_covers(b, a.range())?;
        self.each(a, &[w], |isa, a, i| {
            k::butterfly(isa, a, Out::new(b.limb_mut(i)), w.limb(i), &self.moduli()[i]);
        })
    }

    fn words_for<F: Form>(&self, a: &RnsPoly<F>, words: &[u64]) -> Result<(), RnsError> {
        if words.len() < a.range().end {
            return Err(RnsError::Count { what: "scalar", expected: a.range().end, got: words.len() });
        }
        Ok(())
    }

    /// `a *= w` with `words[i] = w mod q_i` for every prime of the basis up to the last of `a`.
    ///
    /// # Errors
    /// [`RnsError::Count`] for too few words; as [`Self::add_assign`] otherwise.
    pub fn scale_assign<F: Form>(&self, a: &mut RnsPoly<F>, words: &[u64]) -> Result<(), RnsError> {
        self.words_for(a, words)?;
        self.each(a, &[], |isa, a, i| {
            let m = &self.moduli()[i];
            k::factor(isa, a, m.factor(words[i]), m);
        })
    }

    /// `out += w a` with `words[i] = w mod q_i`.
    ///
    /// # Errors
    /// As [`Self::scale_assign`].
    pub fn scale_add<F: Form>(
        &self,
        out: &mut RnsPoly<F>,
        a: &RnsPoly<F>,
        words: &[u64],
    ) -> Result<(), RnsError> {
        self.words_for(out, words)?;
        self.each(out, &[a], |isa, out, i| {
            let m = &self.moduli()[i];
            k::factor_add(isa, out, a.limb(i), m.factor(words[i]), m);
        })
    }

    /// `out += w a` over the limbs of `a`, which `out` must have and may exceed.
    ///
    /// # Errors
    /// As [`Self::scale_assign`].
    pub fn scale_add_part<F: Form>(
        &self,
        out: &mut RnsPoly<F>,
        a: &RnsPoly<F>,
        words: &[u64],
    ) -> Result<(), RnsError> {
        self.words_for(a, words)?;
        self.check(a)?;
        self.check_covers(out, a.range())?;
        for i in a.range() {
            let m = &self.moduli()[i];
            k::factor_add(self.isa(), Out::new(out.limb_mut(i)), a.limb(i), m.factor(words[i]), m);
        }
        Ok(())
    }

    /// Adds the constant polynomial w, `words[i] = w mod q_i`: to every slot.
    ///
    /// # Errors
    /// As [`Self::scale_assign`].
    pub fn add_constant(&self, a: &mut RnsPoly<Eval>, words: &[u64]) -> Result<(), RnsError> {
        self.words_for(a, words)?;
        self.each(a, &[], |isa, a, i| {
            let m = &self.moduli()[i];
            k::add_word(isa, a, words[i] % m.value(), m);
        })
    }

    /// `(a0 b0, a0 b1 + a1 b0, a1 b1)` over the limbs of all.
    ///
    /// # Errors
    /// As [`Self::add_assign`]; the operands' first polynomial decides the limbs.
    pub fn tensor(
        &self,
        a: [&RnsPoly<Eval>; 2],
        b: [&RnsPoly<Eval>; 2],
    ) -> Result<[RnsPoly<Eval>; 3], RnsError> {
        let range = a[0].range();
        let mut out = [self.dirty(range.clone())?, self.dirty(range.clone())?, self.dirty(range.clone())?];
        for p in [a[0], a[1], b[0], b[1]] {
            self.check_covers(p, range.clone())?;
        }
        for i in range {
            let [x, y, z] = &mut out;
            let parts = [Out::new(x.limb_mut(i)), Out::new(y.limb_mut(i)), Out::new(z.limb_mut(i))];
            let m = &self.moduli()[i];
            k::tensor(self.isa(), parts, [a[0].limb(i), a[1].limb(i)], [b[0].limb(i), b[1].limb(i)], m);
        }
        Ok(out)
    }

    /// `(a0^2, 2 a0 a1, a1^2)`.
    ///
    /// # Errors
    /// As [`Self::tensor`].
    pub fn tensor_square(&self, a: [&RnsPoly<Eval>; 2]) -> Result<[RnsPoly<Eval>; 3], RnsError> {
        let range = a[0].range();
        let mut out = [self.dirty(range.clone())?, self.dirty(range.clone())?, self.dirty(range.clone())?];
        for p in a {
            self.check_covers(p, range.clone())?;
        }
        for i in range {
            let [x, y, z] = &mut out;
            let parts = [Out::new(x.limb_mut(i)), Out::new(y.limb_mut(i)), Out::new(z.limb_mut(i))];
            k::square(self.isa(), parts, [a[0].limb(i), a[1].limb(i)], &self.moduli()[i]);
        }
        Ok(out)
    }

    /// `out = (a0^2, 2 a0 a1, a1^2)` on any words modulo prime `i`: what a fused pointwise pass over pieces of
    /// limbs needs.
    ///
    /// # Errors
    /// [`RnsError::Count`] for slices of different lengths, [`RnsError::Limbs`] for a prime outside the basis.
    pub fn square_words(&self, i: usize, out: [&mut [u64]; 3], a: [&[u64]; 2]) -> Result<(), RnsError> {
        let expected = a[0].len();
        let m =
            self.moduli().get(i).ok_or(RnsError::Limbs { needed: i..i + 1, got: 0..self.moduli().len() })?;
        let lengths = [a[1].len(), out[0].len(), out[1].len(), out[2].len()];
        if let Some(&got) = lengths.iter().find(|l| **l != expected) {
            return Err(RnsError::Count { what: "slice", expected, got });
        }
        k::square(self.isa(), out.map(Out::new), a, m);
        Ok(())
    }

    /// `out = (a0 b0, a0 b1 + a1 b0, a1 b1)` on any residues modulo prime `i`, as [`Self::square_words`].
    ///
    /// # Errors
    /// As [`Self::square_words`].
    pub fn tensor_words(
        &self,
        i: usize,
        out: [&mut [u64]; 3],
        a: [&[u64]; 2],
        b: [&[u64]; 2],
    ) -> Result<(), RnsError> {
        let expected = a[0].len();
        let m =
            self.moduli().get(i).ok_or(RnsError::Limbs { needed: i..i + 1, got: 0..self.moduli().len() })?;
        let lengths = [a[1].len(), b[0].len(), b[1].len(), out[0].len(), out[1].len(), out[2].len()];
        if let Some(&got) = lengths.iter().find(|l| **l != expected) {
            return Err(RnsError::Count { what: "slice", expected, got });
        }
        k::tensor(self.isa(), out.map(Out::new), a, b, m);
        Ok(())
    }

    /// `out = sum_d w_d x_d + c` on any residues modulo prime `i`; w and c are reduced first.
    ///
    /// # Errors
    /// As [`Self::square_words`].
    pub fn combine_words(
        &self,
        i: usize,
        out: &mut [u64],
        x: &[&[u64]],
        words: &[u64],
        constant: u64,
    ) -> Result<(), RnsError> {
        let m =
            self.moduli().get(i).ok_or(RnsError::Limbs { needed: i..i + 1, got: 0..self.moduli().len() })?;
        if words.len() != x.len() {
            return Err(RnsError::Count { what: "combination", expected: x.len(), got: words.len() });
        }
        if let Some(bad) = x.iter().find(|s| s.len() != out.len()) {
            return Err(RnsError::Count { what: "slice", expected: out.len(), got: bad.len() });
        }
        let words: Vec<u64> = words.iter().map(|w| w % m.value()).collect();
        sums::combine(self.isa(), Out::new(out), x, &words, m);
        if !constant.is_multiple_of(m.value()) {
            k::add_word(self.isa(), Out::new(out), constant % m.value(), m);
        }
        Ok(())
    }

    /// `sum_d x_d y_hd`, h = 0, 1, over the primes at `range`, with few reductions.
    ///
    /// # Errors
    /// [`RnsError::Count`] for lists of different lengths; as [`Self::add_assign`] otherwise.
    pub fn inner_products(
        &self,
        range: Range<usize>,
        x: &[&RnsPoly<Eval>],
        y: [&[&RnsPoly<Eval>]; 2],
    ) -> Result<[RnsPoly<Eval>; 2], RnsError> {
        for h in y {
            if h.len() != x.len() {
                return Err(RnsError::Count { what: "inner product", expected: x.len(), got: h.len() });
            }
        }
        for p in x.iter().chain(y[0]).chain(y[1]) {
            self.check_covers(p, range.clone())?;
        }
        let mut out = [self.dirty(range.clone())?, self.dirty(range.clone())?];
        for i in range {
            let [first, second] = &mut out;
            let outs = [Out::new(first.limb_mut(i)), Out::new(second.limb_mut(i))];
            let y = [&*limbs(y[0], i), &*limbs(y[1], i)];
            sums::inner(self.isa(), outs, Added::NOTHING, &limbs(x, i), y, &self.moduli()[i]);
        }
        Ok(out)
    }

    /// `out_h = a_h + sum_d x_d y_hd`, h = 0, 1, on any residues modulo prime `i`, as [`Self::square_words`]; a is what is added, its factor reduced first.
    ///
    /// # Errors
    /// As [`Self::square_words`].
    pub fn inner_words(
        &self,
        i: usize,
        out: [&mut [u64]; 2],
        added: Added<'_>,
        x: &[&[u64]],
        y: [&[&[u64]]; 2],
    ) -> Result<(), RnsError> {
        let expected = out[0].len();
        let m =
            self.moduli().get(i).ok_or(RnsError::Limbs { needed: i..i + 1, got: 0..self.moduli().len() })?;
        if let Some(h) = y.iter().find(|h| h.len() != x.len()) {
            return Err(RnsError::Count { what: "inner product", expected: x.len(), got: h.len() });
        }
        let some = added.words.iter().filter(|a| !a.is_empty());
        let lengths = x.iter().chain(y[0]).chain(y[1]).chain(some).map(|s| s.len()).chain([out[1].len()]);
        if let Some(got) = lengths.into_iter().find(|l| *l != expected) {
            return Err(RnsError::Count { what: "slice", expected, got });
        }
        let added = Added { factor: added.factor % m.value(), ..added };
        sums::inner(self.isa(), out.map(Out::new), added, x, y, m);
        Ok(())
    }

    /// `out_h = sum_d x_d y_hd`, h = 0, 1, modulo prime `i`, for polynomials x_d in X^gap, on the words from `start` on of limbs y_hd; zero without a term. Of a limb of
    /// x_d N / gap words are stored, which [`Self::unrepeated`] gives.
    ///
    /// # Errors
    /// As [`Self::square_words`]; [`RnsError::Count`] for a gap of another kind, or for words that are not whole runs of 64.
    pub fn inner_repeated(
        &self,
        i: usize,
        out: [&mut [u64]; 2],
        (gap, start): (usize, usize),
        x: &[&[u64]],
        y: [&[&[u64]]; 2],
    ) -> Result<(), RnsError> {
        let m =
            self.moduli().get(i).ok_or(RnsError::Limbs { needed: i..i + 1, got: 0..self.moduli().len() })?;
        let (len, end) = (out[0].len(), start.saturating_add(out[0].len()));
        Self::repeats(gap)?;
        let wrong = |what: &'static str, expected: usize, got: usize| {
            if got == expected {
                Ok(())
            } else {
                Err(RnsError::Count { what, expected, got })
            }
        };
        wrong("slice", len, out[1].len())?;
        wrong("run", 0, (start | len) % 64)?;
        for h in y {
            wrong("inner product", x.len(), h.len())?;
        }
        let stored = x.iter().map(|x| x.len().saturating_mul(gap));
        if let Some(got) = y.iter().copied().flatten().map(|y| y.len()).chain(stored).find(|l| *l < end) {
            return Err(RnsError::Count { what: "slice", expected: end, got });
        }
        sums::inner_repeated(self.isa(), out.map(Out::new), Repeats { gap, start }, x, y, m);
        Ok(())
    }

    fn repeats(gap: usize) -> Result<(), RnsError> {
        let known = gap.is_power_of_two() && (gap <= 8 || gap >= 64);
        if known {
            Ok(())
        } else {
            Err(RnsError::Count { what: "gap", expected: 8, got: gap })
        }
    }

    /// The words of limbs of a polynomial in X^gap that [`Self::inner_repeated`] reads: gap 1, 2, 4, 8, or a power of two from 64 on. Of every 64 slots `gap`
    /// neighbouring rows of eight are equal, or all of `gap` slots (`crate::Ntt`: runs of 64 slots are transposed).
    ///
    /// # Errors
    /// [`RnsError::Count`] for another gap; as [`Self::add_assign`].
    pub fn unrepeated(&self, a: &RnsPoly<Eval>, gap: usize) -> Result<Vec<u64>, RnsError> {
        self.check(a)?;
        Self::repeats(gap)?;
        let words = a.words();
        Ok(match gap {
            1 => words.to_vec(),
            2..=8 => words.chunks_exact(8).step_by(gap).flatten().copied().collect(),
            _ => words.iter().step_by(gap).copied().collect(),
        })
    }

    /// `sum_d w_d x_d` over the primes at `range`, `words[d][i] = w_d mod q_i`, with few reductions.
    ///
    /// # Errors
    /// [`RnsError::Count`] for lists of different lengths or too few words a scalar.
    pub fn combine<F: Form>(
        &self,
        range: Range<usize>,
        x: &[&RnsPoly<F>],
        words: &[&[u64]],
    ) -> Result<RnsPoly<F>, RnsError> {
        if words.len() != x.len() {
            return Err(RnsError::Count { what: "combination", expected: x.len(), got: words.len() });
        }
        let mut out = self.dirty(range)?;
        for w in words {
            self.words_for(&out, w)?;
        }
        let mut at_limb = vec![0; words.len()];
        self.each(&mut out, x, |isa, out, i| {
            let m = &self.moduli()[i];
            for (a, w) in at_limb.iter_mut().zip(words) {
                *a = w[i] % m.value();
            }
            sums::combine(isa, out, &limbs(x, i), &at_limb, m);
        })?;
        Ok(out)
    }
}
