//! Products of ciphertexts, relinearisation, rescaling.

use super::noise::independent_sum;
use super::switching::{digit_ratio2, switch, switch_with};
use super::{Ciphertext, CkksError, Evaluator, Level, RelinKey};
use hushnet_ring::rns::{Added, Eval, RnsPoly};

impl Evaluator {
    pub(super) fn pair<'a>(
        what: &'static str,
        c: &'a Ciphertext,
    ) -> Result<[&'a RnsPoly<Eval>; 2], CkksError> {
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

    pub(super) fn switched(&self, c: &Ciphertext, parts: Vec<RnsPoly<Eval>>) -> Ciphertext {
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
        let third = Self::third(c, key, "relinearise")?;
        let down = &self.params.0.descend[c.level.0 - 1];
        let raised = switch(&self.params, third, c.level, &key.key)?;
        let mut parts = down.divide_each(basis, raised.each_ref())?;
        for (part, own) in parts.iter_mut().zip(&c.parts) {
            basis.add_assign(part, own)?;
        }
        Ok(self.switched(c, parts.into()))
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
        let third = Self::third(c, key, "relinearise_rescale")?;
        let down = &self.params.0.descend_rescale[c.level.0 - 2];
        let product = &self.params.switching(c.level).product;
        // P is 0 modulo the special primes.
        let own = self.params.data_range(c.level);
        let raised = switch_with(&self.params, third, c.level, &key.key, |i| {
            if own.contains(&i) {
                Added { words: [c.parts[0].limb(i), c.parts[1].limb(i)], factor: product[i] }
            } else {
                Added::NOTHING
            }
        })?;
        let parts = down.divide_each(basis, raised.each_ref())?.into();
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

    pub(super) fn below(&self, level: Level) -> Result<Level, CkksError> {
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
}
