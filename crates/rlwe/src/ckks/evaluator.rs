//! Linear operations on ciphertexts. Levels of operands may differ: the result has the lower one.

use super::ciphertext::SCALE_TOLERANCE;
use super::noise::{any_sum, independent_sum};
use super::{Ciphertext, CkksError, CkksParams, Level, Plaintext, ScalarPlaintext};
use hushnet_ring::rns::{Eval, RnsPoly};

/// How the errors of a sum's terms are related, for the noise estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// Independent errors, as of fresh encryptions: `sd^2` adds up.
    Independent,
    /// Anything: `sd` adds up.
    Any,
}

/// Evaluates under fixed parameters; holds no key.
#[derive(Clone)]
pub struct Evaluator {
    pub(super) params: CkksParams,
}

pub(super) fn missing(what: &'static str, got: Level, needed: Level) -> CkksError {
    CkksError::LevelTooLow { what, got: got.0, needed: needed.0 }
}

impl Evaluator {
    /// Makes the tables that these parameters need.
    #[must_use]
    pub fn new(params: &CkksParams) -> Self {
        Self { params: params.clone() }
    }

    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &CkksParams {
        &self.params
    }

    pub(super) fn own(&self, c: &Ciphertext) -> Result<(), CkksError> {
        if c.params == self.params {
            Ok(())
        } else {
            Err(CkksError::ForeignParams("the ciphertext"))
        }
    }

    pub(super) fn own_plain(&self, p: &Plaintext, needed: Level) -> Result<(), CkksError> {
        if p.params != self.params {
            return Err(CkksError::ForeignParams("the plaintext"));
        }
        if p.level < needed {
            return Err(missing("the plaintext", p.level, needed));
        }
        Ok(())
    }

    fn own_scalar(&self, w: &ScalarPlaintext, needed: Level) -> Result<(), CkksError> {
        if w.params != self.params {
            return Err(CkksError::ForeignParams("the scalar"));
        }
        if w.level < needed {
            return Err(missing("the scalar", w.level, needed));
        }
        Ok(())
    }

    /// The relative difference of two scales, if tolerable.
    pub(super) fn same_scale(left: f64, right: f64) -> Result<f64, CkksError> {
        let difference = (left / right - 1.0).abs();
        if difference <= SCALE_TOLERANCE {
            Ok(difference)
        } else {
            Err(CkksError::ScaleMismatch {
                left: left.log2(),
                right: right.log2(),
                missing: (left.log2() - right.log2()).abs(),
            })
        }
    }

    fn part<'a>(
        c: &'a Ciphertext,
        i: usize,
        range: &std::ops::Range<usize>,
    ) -> Result<RnsPoly<Eval>, CkksError> {
        let part: &'a RnsPoly<Eval> = &c.parts[i];
        part.slice(range.clone()).ok_or(CkksError::ForeignParams("the ciphertext"))
    }

    fn combine_pair(&self, a: &Ciphertext, b: &Ciphertext, subtract: bool) -> Result<Ciphertext, CkksError> {
        self.own(a)?;
        self.own(b)?;
        let off = Self::same_scale(a.scale, b.scale)?;
        let level = a.level.min(b.level);
        let range = self.params.data_range(level);
        let bound = a.bound + b.bound;
        self.params.check_capacity(bound, a.scale, level)?;
        let basis = self.params.basis();
        let mut parts = Vec::with_capacity(a.parts.len().max(b.parts.len()));
        for i in 0..a.parts.len().max(b.parts.len()) {
            parts.push(match (i < a.parts.len(), i < b.parts.len()) {
                (true, true) => {
                    let mut p = Self::part(a, i, &range)?;
                    if subtract {
                        basis.sub_assign(&mut p, &b.parts[i])?;
                    } else {
                        basis.add_assign(&mut p, &b.parts[i])?;
                    }
                    p
                }
                (true, false) => Self::part(a, i, &range)?,
                _ => {
                    let mut p = Self::part(b, i, &range)?;
                    if subtract {
                        basis.neg_assign(&mut p)?;
                    }
                    p
                }
            });
        }
        let sd = any_sum(a.sd, b.sd) + off * b.bound * b.scale;
        Ok(Ciphertext { params: self.params.clone(), parts, level, scale: a.scale, bound, sd, seed: None })
    }

    /// `a + b`.
    ///
    /// # Errors
    /// [`CkksError::ScaleMismatch`], [`CkksError::Capacity`], [`CkksError::ForeignParams`].
    pub fn add(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.combine_pair(a, b, false)
    }

    /// `a - b`.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn sub(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.combine_pair(a, b, true)
    }

    /// `a += b`, for a `b` of at least the level and at most the parts of `a`: no copy.
    ///
    /// # Errors
    /// As [`Self::add`]; [`CkksError::LevelTooLow`], [`CkksError::Parts`].
    pub fn add_assign(&self, a: &mut Ciphertext, b: &Ciphertext) -> Result<(), CkksError> {
        self.own(a)?;
        self.own(b)?;
        let off = Self::same_scale(a.scale, b.scale)?;
        if b.level < a.level {
            return Err(missing("the second operand", b.level, a.level));
        }
        if b.parts.len() > a.parts.len() {
            return Err(CkksError::Parts { what: "add_assign", needed: a.parts.len(), got: b.parts.len() });
        }
        self.params.check_capacity(a.bound + b.bound, a.scale, a.level)?;
        for (x, y) in a.parts.iter_mut().zip(&b.parts) {
            self.params.basis().add_assign(x, y)?;
        }
        a.bound += b.bound;
        a.sd = any_sum(a.sd, b.sd) + off * b.bound * b.scale;
        a.seed = None;
        Ok(())
    }

    /// The negated ciphertext `-a`, under the same scale and level.
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`].
    pub fn neg(&self, a: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.own(a)?;
        let mut out = a.clone();
        for p in &mut out.parts {
            self.params.basis().neg_assign(p)?;
        }
        out.seed = None;
        Ok(out)
    }

    /// `a + p`; the plaintext may have a higher level.
    ///
    /// # Errors
    /// As [`Self::add`]; [`CkksError::LevelTooLow`].
    pub fn add_plain(&self, a: &Ciphertext, p: &Plaintext) -> Result<Ciphertext, CkksError> {
        self.own(a)?;
        self.own_plain(p, a.level)?;
        let off = Self::same_scale(a.scale, p.scale)?;
        let mut out = a.clone();
        out.bound += p.bound;
        self.params.check_capacity(out.bound, out.scale, out.level)?;
        self.params.basis().add_assign(&mut out.parts[0], &p.poly)?;
        out.sd = any_sum(a.sd, p.sd) + off * p.bound * p.scale;
        out.seed = None;
        Ok(out)
    }

    /// `a - p`.
    ///
    /// # Errors
    /// As [`Self::add_plain`].
    pub fn sub_plain(&self, a: &Ciphertext, p: &Plaintext) -> Result<Ciphertext, CkksError> {
        let mut negated = p.clone();
        self.params.basis().neg_assign(&mut negated.poly)?;
        self.add_plain(a, &negated)
    }

    /// `a + w` in every slot: one word a prime.
    ///
    /// # Errors
    /// As [`Self::add_plain`].
    pub fn add_scalar(&self, a: &Ciphertext, w: &ScalarPlaintext) -> Result<Ciphertext, CkksError> {
        let mut out = a.clone();
        self.add_scalar_assign(&mut out, w)?;
        Ok(out)
    }

    /// `a += w` in every slot.
    pub(super) fn add_scalar_assign(&self, a: &mut Ciphertext, w: &ScalarPlaintext) -> Result<(), CkksError> {
        self.own(a)?;
        self.own_scalar(w, a.level)?;
        let off = Self::same_scale(a.scale, w.scale)?;
        self.params.check_capacity(a.bound + w.magnitude, a.scale, a.level)?;
        self.params.basis().add_constant(&mut a.parts[0], &w.words)?;
        a.bound += w.magnitude;
        a.sd = any_sum(a.sd, w.rounding) + off * w.magnitude * w.scale;
        a.seed = None;
        Ok(())
    }

    /// `a += a`.
    pub(super) fn double_assign(&self, a: &mut Ciphertext) -> Result<(), CkksError> {
        self.own(a)?;
        self.params.check_capacity(2.0 * a.bound, a.scale, a.level)?;
        let basis = self.params.basis();
        let twos = vec![2; basis.moduli().len()];
        for part in &mut a.parts {
            basis.scale_assign(part, &twos)?;
        }
        a.bound *= 2.0;
        a.sd *= 2.0;
        a.seed = None;
        Ok(())
    }

    /// `a * p`, slot by slot; the scales multiply.
    ///
    /// # Errors
    /// [`CkksError::LevelTooLow`], [`CkksError::Capacity`], [`CkksError::ForeignParams`].
    pub fn mul_plain(&self, a: &Ciphertext, p: &Plaintext) -> Result<Ciphertext, CkksError> {
        self.own(a)?;
        self.own_plain(p, a.level)?;
        let (scale, bound) = (a.scale * p.scale, a.bound * p.bound);
        self.params.check_capacity(bound, scale, a.level)?;
        let basis = self.params.basis();
        let range = self.params.data_range(a.level);
        let mut parts = Vec::with_capacity(a.parts.len());
        for part in &a.parts {
            parts.push(basis.product(range.clone(), part, &p.poly)?);
        }
        let sd = self.params.noise().product((a.bound * a.scale, a.sd), (p.bound * p.scale, p.sd));
        Ok(Ciphertext { params: self.params.clone(), parts, level: a.level, scale, bound, sd, seed: None })
    }

    /// `a * w` with one word a prime.
    ///
    /// # Errors
    /// As [`Self::mul_plain`].
    pub fn mul_scalar(&self, a: &Ciphertext, w: &ScalarPlaintext) -> Result<Ciphertext, CkksError> {
        self.scalar_mac(&[a], &[w], Terms::Any)
    }

    /// `sum_k w_k a_k`, lazily: few reductions of words. All ciphertexts have one
    /// scale, all scalars one scale; the result has the lowest level and the most parts among them.
    ///
    /// # Errors
    /// [`CkksError::Count`] for empty or unequal lists, [`CkksError::ScaleMismatch`], and as [`Self::mul_plain`].
    pub fn scalar_mac(
        &self,
        terms: &[&Ciphertext],
        weights: &[&ScalarPlaintext],
        relation: Terms,
    ) -> Result<Ciphertext, CkksError> {
        let (Some(first), Some(first_weight)) = (terms.first(), weights.first()) else {
            return Err(CkksError::Count { what: "scalar_mac", expected: 1, got: 0 });
        };
        if terms.len() != weights.len() {
            return Err(CkksError::Count { what: "weights", expected: terms.len(), got: weights.len() });
        }
        let level = terms.iter().map(|c| c.level).min().unwrap_or(first.level);
        let (mut bound, mut sd, mut parts) = (0.0, 0.0f64, 2);
        for (c, w) in terms.iter().zip(weights) {
            self.own(c)?;
            self.own_scalar(w, level)?;
            let off =
                Self::same_scale(c.scale, first.scale)? + Self::same_scale(w.scale, first_weight.scale)?;
            bound += c.bound * w.magnitude;
            parts = parts.max(c.parts.len());
            let term = c.sd * (w.magnitude * w.scale + w.rounding)
                + c.bound * c.scale * (w.rounding + off * w.magnitude * w.scale);
            sd = match relation {
                Terms::Independent => independent_sum(sd, term),
                Terms::Any => any_sum(sd, term),
            };
        }
        let scale = first.scale * first_weight.scale;
        self.params.check_capacity(bound, scale, level)?;
        let (basis, range) = (self.params.basis(), self.params.data_range(level));
        let mut out = Vec::with_capacity(parts);
        for i in 0..parts {
            let (x, w): (Vec<&RnsPoly<Eval>>, Vec<&[u64]>) = terms
                .iter()
                .zip(weights)
                .filter_map(|(c, w)| c.parts.get(i).map(|p| (p, w.words.as_slice())))
                .unzip();
            out.push(basis.combine(range.clone(), &x, &w)?);
        }
        Ok(Ciphertext { params: self.params.clone(), parts: out, level, scale, bound, sd, seed: None })
    }

    /// Forgets primes above `level`; the scale stays. Free but for a copy.
    ///
    /// # Errors
    /// [`CkksError::LevelTooLow`] when the ciphertext is below it, [`CkksError::Capacity`] when the message does
    /// not fit there.
    pub fn drop_to(&self, c: &Ciphertext, level: Level) -> Result<Ciphertext, CkksError> {
        self.own(c)?;
        self.params.level(level.0)?;
        if c.level < level {
            return Err(missing("the ciphertext", c.level, level));
        }
        self.params.check_capacity(c.bound, c.scale, level)?;
        let range = self.params.data_range(level);
        let parts = (0..c.parts.len()).map(|i| Self::part(c, i, &range)).collect::<Result<_, _>>()?;
        Ok(Ciphertext { parts, level, ..c.clone_header() })
    }
}
