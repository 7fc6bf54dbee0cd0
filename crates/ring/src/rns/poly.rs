//! The polynomial type.

use super::buffer::Buffer;
use std::marker::PhantomData;
use std::ops::Range;
use zeroize::Zeroize;

/// How limbs represent a polynomial.
pub trait Form: Clone + Copy + Send + Sync + 'static {}

/// Marks polynomials whose limbs hold coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coef;
/// Limbs hold values at the transform's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eval;

impl Form for Coef {}
impl Form for Eval {}

/// Residues of a polynomial modulo the primes at [`Self::range`] of a basis: one contiguous buffer, limb
/// after limb. No `Debug`: it may hold a secret.
#[derive(Clone)]
pub struct RnsPoly<F: Form> {
    n: usize,
    range: Range<usize>,
    words: Buffer,
    form: PhantomData<F>,
}

impl<F: Form> RnsPoly<F> {
    pub(super) fn zero(n: usize, range: Range<usize>) -> Self {
        Self { n, words: Buffer::zero(n * range.len()), range, form: PhantomData }
    }

    /// With arbitrary contents, for callers that write every word.
    pub(super) fn dirty(n: usize, range: Range<usize>) -> Self {
        Self { n, words: Buffer::dirty(n * range.len()), range, form: PhantomData }
    }

    /// The same words under another form.
    pub(super) fn reform<G: Form>(self) -> RnsPoly<G> {
        RnsPoly { n: self.n, range: self.range, words: self.words, form: PhantomData }
    }

    /// The ring degree N, a power of two.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.n
    }

    /// Positions in the basis of the primes it has.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// All words, limb after limb.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words[..self.n * self.range.len()]
    }

    /// All words, limb after limb. Every word of limb i must stay below its prime.
    #[must_use]
    pub fn words_mut(&mut self) -> &mut [u64] {
        let len = self.n * self.range.len();
        &mut self.words[..len]
    }

    /// The N residues modulo prime `i` of the basis.
    ///
    /// # Panics
    /// When `i` is outside [`Self::range`].
    #[must_use]
    #[inline]
    pub fn limb(&self, i: usize) -> &[u64] {
        assert!(self.range.contains(&i), "limb {i} of {:?}", self.range);
        let start = (i - self.range.start) * self.n;
        &self.words[start..start + self.n]
    }

    /// The N residues modulo prime `i` of the basis.
    ///
    /// # Panics
    /// When `i` is outside [`Self::range`].
    #[must_use]
    #[inline]
    pub fn limb_mut(&mut self, i: usize) -> &mut [u64] {
        assert!(self.range.contains(&i), "limb {i} of {:?}", self.range);
        let start = (i - self.range.start) * self.n;
        &mut self.words[start..start + self.n]
    }

    /// Forgets the primes at and above position `end`: the value modulo fewer primes. Costs nothing.
    ///
    /// # Panics
    /// When no limb would stay.
    pub fn truncate(&mut self, end: usize) {
        assert!(end > self.range.start, "truncating {:?} to {end}", self.range);
        self.range.end = self.range.end.min(end);
    }

    /// A copy of the limbs at `range`; `None` when some are missing.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        if range.is_empty() || range.start < self.range.start || range.end > self.range.end {
            return None;
        }
        let mut out = Self::dirty(self.n, range.clone());
        let start = (range.start - self.range.start) * self.n;
        out.words.copy_from_slice(&self.words[start..start + range.len() * self.n]);
        Some(out)
    }
}

impl<F: Form> PartialEq for RnsPoly<F> {
    fn eq(&self, other: &Self) -> bool {
        self.n == other.n && self.range == other.range && self.words() == other.words()
    }
}

impl<F: Form> Zeroize for RnsPoly<F> {
    fn zeroize(&mut self) {
        crate::wipe(&mut self.words);
    }
}
