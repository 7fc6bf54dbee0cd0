//! Operations on ciphertexts. Levels of operands may differ: the result has the lower one.

use super::ciphertext::SCALE_TOLERANCE;
use super::noise::{any_sum, independent_sum};
use super::switching::{apply, decompose, digit_ratio2, Digits, GaloisKey};
use super::{
    Ciphertext, CkksError, CkksParams, Galois, GaloisKeys, Level, Plaintext, RelinKey, ScalarPlaintext,
};
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
    params: CkksParams,
}

fn missing(what: &'static str, got: Level, needed: Level) -> CkksError {
    CkksError::LevelTooLow { what, got: got.0, needed: needed.0 }
}

impl Evaluator {
    /// For `params`.
    #[must_use]
    pub fn new(params: &CkksParams) -> Self {
        Self { params: params.clone() }
    }

    /// The parameters.
    #[must_use]
    pub fn params(&self) -> &CkksParams {
        &self.params
    }

    fn own(&self, c: &Ciphertext) -> Result<(), CkksError> {
        if c.params == self.params {
            Ok(())
        } else {
            Err(CkksError::ForeignParams("the ciphertext"))
        }
    }

    fn own_plain(&self, p: &Plaintext, needed: Level) -> Result<(), CkksError> {
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
    fn same_scale(left: f64, right: f64) -> Result<f64, CkksError> {
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

    /// `-a`.
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
        self.own(a)?;
        self.own_scalar(w, a.level)?;
        let off = Self::same_scale(a.scale, w.scale)?;
        let mut out = a.clone();
        out.bound += w.magnitude;
        self.params.check_capacity(out.bound, out.scale, out.level)?;
        self.params.basis().add_constant(&mut out.parts[0], &w.words)?;
        out.sd = any_sum(a.sd, w.rounding) + off * w.magnitude * w.scale;
        out.seed = None;
        Ok(out)
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

    /// `sum_k w_k a_k`, lazily: one reduction for every eight products of words. All ciphertexts have one
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

    fn pair<'a>(what: &'static str, c: &'a Ciphertext) -> Result<[&'a RnsPoly<Eval>; 2], CkksError> {
        match c.parts.as_slice() {
            [c0, c1] => Ok([c0, c1]),
            other => Err(CkksError::Parts { what, needed: 2, got: other.len() }),
        }
    }

    /// `a * b`, slot by slot, as three parts; the scales multiply.
    ///
    /// # Errors
    /// [`CkksError::Parts`] unless both have two parts; [`CkksError::Capacity`], [`CkksError::ForeignParams`].
    pub fn mul(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.own(a)?;
        self.own(b)?;
        let (low, high) = if a.level <= b.level { (a, b) } else { (b, a) };
        let (scale, bound) = (a.scale * b.scale, a.bound * b.bound);
        self.params.check_capacity(bound, scale, low.level)?;
        let parts = self.params.basis().tensor(Self::pair("mul", low)?, Self::pair("mul", high)?)?;
        let sd = self.params.noise().product((a.bound * a.scale, a.sd), (b.bound * b.scale, b.sd));
        Ok(Ciphertext {
            params: self.params.clone(),
            parts: parts.into(),
            level: low.level,
            scale,
            bound,
            sd,
            seed: None,
        })
    }

    /// `a^2`, as three parts.
    ///
    /// # Errors
    /// As [`Self::mul`].
    pub fn square(&self, a: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.own(a)?;
        let (scale, bound) = (a.scale * a.scale, a.bound * a.bound);
        self.params.check_capacity(bound, scale, a.level)?;
        let parts = self.params.basis().tensor_square(Self::pair("square", a)?)?;
        let ring = (a.bound * a.scale, a.sd);
        let sd = self.params.noise().product(ring, ring);
        Ok(Ciphertext {
            params: self.params.clone(),
            parts: parts.into(),
            level: a.level,
            scale,
            bound,
            sd,
            seed: None,
        })
    }

    fn switched(&self, c: &Ciphertext, parts: Vec<RnsPoly<Eval>>) -> Ciphertext {
        let noise = self.params.noise();
        let added = noise.switching(digit_ratio2(&self.params, c.level));
        Ciphertext {
            params: self.params.clone(),
            parts,
            level: c.level,
            scale: c.scale,
            bound: c.bound,
            sd: independent_sum(c.sd, independent_sum(added, noise.part_rounding(2))),
            seed: None,
        }
    }

    fn third<'a>(
        c: &'a Ciphertext,
        key: &RelinKey,
        what: &'static str,
    ) -> Result<&'a RnsPoly<Eval>, CkksError> {
        if key.params != c.params {
            return Err(CkksError::ForeignParams("the relinearisation key"));
        }
        match c.parts.as_slice() {
            [_, _, c2] => Ok(c2),
            other => Err(CkksError::Parts { what, needed: 3, got: other.len() }),
        }
    }

    /// Three parts to two.
    ///
    /// # Errors
    /// [`CkksError::Parts`] unless it has three; [`CkksError::ForeignParams`].
    pub fn relinearise(&self, c: &Ciphertext, key: &RelinKey) -> Result<Ciphertext, CkksError> {
        self.own(c)?;
        let basis = self.params.basis();
        let digits = decompose(&self.params, Self::third(c, key, "relinearise")?, c.level)?;
        let down = &self.params.0.descend[c.level.0 - 1];
        let mut parts = Vec::with_capacity(2);
        for (raised, own) in apply(&self.params, &digits, &key.key)?.iter().zip(&c.parts) {
            let mut part = down.divide(basis, raised)?;
            basis.add_assign(&mut part, own)?;
            parts.push(part);
        }
        Ok(self.switched(c, parts))
    }

    /// [`Self::relinearise`] and [`Self::rescale`] with one division by P and the last prime: fewer
    /// transforms and one rounding less.
    ///
    /// # Errors
    /// As both.
    pub fn relinearise_rescale(&self, c: &Ciphertext, key: &RelinKey) -> Result<Ciphertext, CkksError> {
        self.own(c)?;
        let below = self.below(c.level)?;
        let basis = self.params.basis();
        let digits = decompose(&self.params, Self::third(c, key, "relinearise_rescale")?, c.level)?;
        let down = &self.params.0.descend_rescale[c.level.0 - 2];
        let mut parts = Vec::with_capacity(2);
        for (mut raised, own) in apply(&self.params, &digits, &key.key)?.into_iter().zip(&c.parts) {
            basis.scale_add_part(&mut raised, own, &self.params.0.special_product)?;
            parts.push(down.divide(basis, &raised)?);
        }
        let noise = self.params.noise();
        let added = noise.switching(digit_ratio2(&self.params, c.level));
        let prime = self.params.data_prime(below.0) as f64;
        Ok(Ciphertext {
            params: self.params.clone(),
            parts,
            level: below,
            scale: c.scale / prime,
            bound: c.bound,
            sd: independent_sum(independent_sum(c.sd, added) / prime, noise.part_rounding(2)),
            seed: None,
        })
    }

    fn below(&self, level: Level) -> Result<Level, CkksError> {
        if level.0 < 2 {
            return Err(CkksError::NoLevelLeft);
        }
        Ok(Level(level.0 - 1))
    }

    /// Divides by the last prime: level and scale go down, the message stays.
    ///
    /// # Errors
    /// [`CkksError::NoLevelLeft`] at level 1; [`CkksError::ForeignParams`].
    pub fn rescale(&self, c: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.own(c)?;
        let below = self.below(c.level)?;
        let divider = &self.params.0.rescale[c.level.0 - 2];
        let parts =
            c.parts.iter().map(|p| divider.divide(self.params.basis(), p)).collect::<Result<Vec<_>, _>>()?;
        let prime = self.params.data_prime(below.0) as f64;
        let rounding = self.params.noise().part_rounding(parts.len());
        Ok(Ciphertext {
            params: self.params.clone(),
            parts,
            level: below,
            scale: c.scale / prime,
            bound: c.bound,
            sd: independent_sum(c.sd / prime, rounding),
            seed: None,
        })
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

    fn key<'a>(&self, keys: &'a GaloisKeys, element: Galois) -> Result<&'a GaloisKey, CkksError> {
        if keys.params != self.params {
            return Err(CkksError::ForeignParams("the Galois keys"));
        }
        keys.get(element)
    }

    /// Cuts c1 into digits once, for many automorphisms of the same ciphertext ("hoisting").
    ///
    /// # Errors
    /// [`CkksError::Parts`] unless it has two parts; [`CkksError::NoSpecialPrime`].
    pub fn hoist(&self, c: &Ciphertext) -> Result<Digits, CkksError> {
        self.own(c)?;
        decompose(&self.params, Self::pair("hoist", c)?[1], c.level)
    }

    /// Applies an automorphism to `c` with the digits that [`Self::hoist`] made of it.
    ///
    /// # Errors
    /// [`CkksError::MissingKey`], [`CkksError::ForeignParams`]; [`CkksError::LevelTooLow`] for digits of another level.
    pub fn apply_hoisted(
        &self,
        c: &Ciphertext,
        digits: &Digits,
        element: Galois,
        keys: &GaloisKeys,
    ) -> Result<Ciphertext, CkksError> {
        self.own(c)?;
        let [c0, _] = Self::pair("an automorphism", c)?;
        if element.exponent(&self.params) == 1 {
            return Ok(c.clone());
        }
        if digits.level != c.level {
            return Err(missing("the hoisted digits", digits.level, c.level));
        }
        let key = self.key(keys, element)?;
        let basis = self.params.basis();
        let down = &self.params.0.descend[c.level.0 - 1];
        let [raised0, raised1] = apply(&self.params, digits, &key.key)?;
        let mut r0 = down.divide(basis, &raised0)?;
        basis.add_assign(&mut r0, c0)?;
        let r1 = down.divide(basis, &raised1)?;
        let parts = vec![key.map.apply_eval(basis, &r0)?, key.map.apply_eval(basis, &r1)?];
        Ok(self.switched(c, parts))
    }

    /// Applies an automorphism.
    ///
    /// # Errors
    /// As [`Self::hoist`] and [`Self::apply_hoisted`].
    pub fn apply_galois(
        &self,
        c: &Ciphertext,
        element: Galois,
        keys: &GaloisKeys,
    ) -> Result<Ciphertext, CkksError> {
        if element.exponent(&self.params) == 1 {
            self.own(c)?;
            return Ok(c.clone());
        }
        self.key(keys, element)?;
        self.apply_hoisted(c, &self.hoist(c)?, element, keys)
    }

    /// Slot j receives slot j + steps, modulo N/2.
    ///
    /// # Errors
    /// As [`Self::apply_galois`].
    pub fn rotate(&self, c: &Ciphertext, steps: i64, keys: &GaloisKeys) -> Result<Ciphertext, CkksError> {
        self.apply_galois(c, Galois::Rotate(steps), keys)
    }

    /// Conjugates every slot.
    ///
    /// # Errors
    /// As [`Self::apply_galois`].
    pub fn conjugate(&self, c: &Ciphertext, keys: &GaloisKeys) -> Result<Ciphertext, CkksError> {
        self.apply_galois(c, Galois::Conjugate, keys)
    }

    /// Several rotations of one ciphertext, which is cut into digits once.
    ///
    /// # Errors
    /// As [`Self::apply_galois`].
    pub fn rotate_many(
        &self,
        c: &Ciphertext,
        steps: &[i64],
        keys: &GaloisKeys,
    ) -> Result<Vec<Ciphertext>, CkksError> {
        let digits = self.hoist(c)?;
        steps.iter().map(|&s| self.apply_hoisted(c, &digits, Galois::Rotate(s), keys)).collect()
    }
}
