//! Rotations and conjugation, hoisted or not.

use super::evaluator::missing;
use super::switching::{apply, decompose, Digits, GaloisKey};
use super::{Ciphertext, CkksError, Evaluator, Galois, GaloisKeys};

impl Evaluator {
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
