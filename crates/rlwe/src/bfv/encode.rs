//! Slots to polynomials and back.

use super::error::expect;
use super::params::BfvParams;
use super::BfvError;
use hushnet_ring::prime::Products;
use hushnet_ring::rns::{Eval, RnsPoly};
use hushnet_ring::secret::declassify;
use zeroize::Zeroize;

impl BfvParams {
    /// Coefficients modulo t of the polynomial with these slots (row-major, 2 x N/2 values below t).
    pub(super) fn coefficients(&self, slots: &[u64]) -> Result<Vec<u64>, BfvError> {
        expect("slot vector", slots.len(), self.ring_degree())?;
        let t = self.plain_modulus();
        // That some slot is no residue is an error, which everybody sees.
        if declassify(slots.iter().fold(false, |bad, v| bad | (*v >= t))) {
            return Err(BfvError::NotReduced(t));
        }
        let mut values = vec![0; slots.len()];
        for (v, &place) in slots.iter().zip(&self.0.places) {
            values[place as usize] = *v;
        }
        self.0.plain.inverse(&mut values)?;
        Ok(values)
    }

    /// Slots of a polynomial modulo t; overwrites its coefficients.
    pub(super) fn slots_of(&self, coefficients: &mut [u64]) -> Result<Vec<u64>, BfvError> {
        expect("polynomial", coefficients.len(), self.ring_degree())?;
        self.0.plain.forward(coefficients)?;
        Ok(self.0.places.iter().map(|&p| coefficients[p as usize]).collect())
    }

    /// `round(q m / t) mod q` in evaluation form. With c the centred residue of `q m` modulo t it is `(q m - c)/t`, that is
    /// `-c/t` modulo every data prime: exact, so products with weights have no error from rounding q/t itself.
    pub(super) fn message(&self, slots: &[u64]) -> Result<RnsPoly<Eval>, BfvError> {
        let mut words = self.coefficients(slots)?;
        let (t, factor) = (self.plain_modulus(), self.0.q_mod_t);
        let products = Products::new(t);
        for w in &mut words {
            *w = centred(products.mul(*w, factor), t) as u64;
        }
        let poly = self.basis().from_signed(&words, self.data());
        words.zeroize();
        let mut poly = poly?;
        self.basis().scale_assign(&mut poly, &self.0.minus_t_inverse)?;
        Ok(self.basis().forward(poly)?)
    }

    /// A weight polynomial, coefficients in (-t/2, t/2), in evaluation form, and its squared norm.
    pub(super) fn weight(&self, slots: &[u64]) -> Result<(RnsPoly<Eval>, f64), BfvError> {
        let mut words = self.coefficients(slots)?;
        let t = self.plain_modulus();
        let mut norm2 = 0.0;
        for w in &mut words {
            let c = centred(*w, t);
            norm2 += (c * c) as f64;
            *w = c as u64;
        }
        let poly = self.basis().from_signed(&words, self.data())?;
        Ok((self.basis().forward(poly)?, norm2))
    }
}

/// The representative in `(-t/2, t/2)`, without a branch.
fn centred(v: u64, t: u64) -> i64 {
    v as i64 - (t as i64 & ((t / 2).wrapping_sub(v) as i64 >> 63))
}
