//! Rotations and conjugation, hoisted or not.

use super::evaluator::missing;
use super::noise::{any_sum, independent_sum};
use super::switching::{apply, decompose, digit_ratio2, switch, Digits, GaloisKey};
use super::{Ciphertext, CkksError, Evaluator, Galois, GaloisKeys, Plaintext};
use hushnet_ring::rns::{Eval, RnsPoly};

impl Evaluator {
    pub(super) fn key<'a>(&self, keys: &'a GaloisKeys, element: Galois) -> Result<&'a GaloisKey, CkksError> {
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
        self.finish(c, c0, &apply(&self.params, digits, &key.key)?, key)
    }

    /// The image of `c` from P times its switched second part.
    fn finish(
        &self,
        c: &Ciphertext,
        c0: &RnsPoly<Eval>,
        raised: &[RnsPoly<Eval>; 2],
        key: &GaloisKey,
    ) -> Result<Ciphertext, CkksError> {
        let basis = self.params.basis();
        let down = &self.params.0.descend[c.level.0 - 1];
        let [mut r0, r1] = down.divide_each(basis, raised.each_ref())?;
        basis.add_assign(&mut r0, c0)?;
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
        self.own(c)?;
        let [c0, c1] = Self::pair("an automorphism", c)?;
        let key = self.key(keys, element)?;
        self.finish(c, c0, &switch(&self.params, c1, c.level, &key.key)?, key)
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

    /// `sum_r g_r(c) p_r` for automorphisms g_r and plaintexts p_r from [`super::Encoder::encode_raised`], all of one scale: the
    /// inner sum of a matrix-vector product by diagonals. Rotated polynomials are multiplied and summed over
    /// all primes, special ones included, and divided by P once, instead of once a rotation. Cost after
    /// hoisting: 2 (l + k) transforms in all.
    ///
    /// # Errors
    /// [`CkksError::Count`] for no term; [`CkksError::Rns`] for a plaintext that is not raised;
    /// [`CkksError::ScaleMismatch`], [`CkksError::LevelTooLow`], and as [`Self::apply_hoisted`].
    pub fn hoisted_sum(
        &self,
        c: &Ciphertext,
        digits: &Digits,
        terms: &[(Galois, &Plaintext)],
        keys: &GaloisKeys,
    ) -> Result<Ciphertext, CkksError> {
        self.own(c)?;
        let [c0, c1] = Self::pair("hoisted_sum", c)?;
        let Some((_, first)) = terms.first() else {
            return Err(CkksError::Count { what: "hoisted_sum", expected: 1, got: 0 });
        };
        if digits.level != c.level {
            return Err(missing("the hoisted digits", digits.level, c.level));
        }
        let basis = self.params.basis();
        let (range, raised) = (self.params.data_range(c.level), self.params.extended_range(c.level));
        let mut sums = [basis.zero(range.clone())?, basis.zero(range)?];
        let mut high = [basis.zero(raised.clone())?, basis.zero(raised)?];
        let (mut bound, mut sd, mut switched) = (0.0, 0.0, false);
        let noise = self.params.noise();
        let added = noise.switching(digit_ratio2(&self.params, c.level));
        for (element, p) in terms {
            self.own_plain(p, c.level)?;
            let off = Self::same_scale(p.scale, first.scale)?;
            let mut term_sd = c.sd;
            if element.exponent(&self.params) == 1 {
                basis.mul_add(&mut sums[0], c0, &p.poly)?;
                basis.mul_add(&mut sums[1], c1, &p.poly)?;
            } else {
                let key = self.key(keys, *element)?;
                key.map.mul_add_eval(basis, &mut sums[0], c0, &p.poly)?;
                for (sum, part) in high.iter_mut().zip(&apply(&self.params, digits, &key.key)?) {
                    key.map.mul_add_eval(basis, sum, part, &p.poly)?;
                }
                term_sd = independent_sum(c.sd, added);
                switched = true;
            }
            bound += c.bound * p.bound;
            let ring = (c.bound * c.scale, p.bound * p.scale);
            sd = any_sum(sd, noise.product((ring.0, term_sd), (ring.1, p.sd)) + off * ring.0 * ring.1);
        }
        let scale = c.scale * first.scale;
        self.params.check_capacity(bound, scale, c.level)?;
        if switched {
            let down = &self.params.0.descend[c.level.0 - 1];
            for (sum, part) in sums.iter_mut().zip(&high) {
                basis.add_assign(sum, &down.divide(basis, part)?)?;
            }
            sd = independent_sum(sd, noise.part_rounding(2));
        }
        let mut out = c.clone_header();
        (out.parts, out.scale, out.bound, out.sd, out.seed) = (sums.into(), scale, bound, sd, None);
        Ok(out)
    }
}
