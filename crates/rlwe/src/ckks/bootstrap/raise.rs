//! To a sparse secret, up to all primes, and back: the ciphertext of m modulo q_0 becomes one of m + q_0 I.
//!
//! |I| is small because the secret at that moment is sparse (Bossuat, Troncoso-Pastoriza, Hubaux, ACNS 2022, "sparse-secret encapsulation"):
//! under it only ciphertexts modulo q_0 p exist, p one special prime.

use super::{BootstrapParams, Encapsulation};
use crate::ckks::noise::independent_sum;
use crate::ckks::{Ciphertext, CkksError, CkksParams, Evaluator};
use hushnet_ring::rns::{switch_digits, BaseConverter, Coef, Digit, Divider, RnsPoly};
use std::ops::Range;

/// The last special prime and q_0, neighbours in the basis.
pub(in crate::ckks) fn down_range(params: &CkksParams) -> Range<usize> {
    params.0.special - 1..params.0.special + 1
}

/// The last special prime and all data primes.
pub(in crate::ckks) fn up_range(params: &CkksParams) -> Range<usize> {
    params.0.special - 1..params.0.special + params.max_level().0
}

/// Constants of the two changes of modulus.
pub(super) struct Raise {
    /// q_0 to the last special prime.
    aside: BaseConverter,
    /// Division by that prime: of q_0 alone, and of all data primes.
    back: Divider,
    down: Divider,
    /// q_0 to that prime and all data primes above it.
    up: BaseConverter,
    /// Into how many the raised half is cut.
    parts: usize,
}

/// sd of what is there when the modulus is changed, and of what both switches add, ring units. Parts are polynomials with N coefficients in all, so their
/// errors have together that of one digit.
pub(super) fn projected(bootstrap: &BootstrapParams, sd: f64) -> f64 {
    let params = &bootstrap.params;
    let noise = params.noise();
    let (q, p) = (params.data_prime(0) as f64, params.special_primes()[params.0.special - 1] as f64);
    let switching = noise.switching((q / p).powi(2));
    // Under the sparse secret one rounded half is multiplied by at most `weight` terms.
    let sparse = 1.5 * bootstrap.spec.weight as f64 * noise.secret_norm2() / params.ring_degree() as f64;
    let aside = independent_sum(switching, noise.rounding() * (1.0 + sparse).sqrt());
    let back = independent_sum(switching, noise.part_rounding(2));
    independent_sum(sd, independent_sum(aside, back))
}

impl Raise {
    pub(super) fn new(bootstrap: &BootstrapParams) -> Result<Self, CkksError> {
        let params = &bootstrap.params;
        let (basis, k) = (params.basis(), params.0.special);
        let others: Vec<usize> = up_range(params).filter(|i| *i != k).collect();
        Ok(Self {
            aside: BaseConverter::new(basis, &[k], &[k - 1])?,
            back: Divider::new(basis, &[k - 1], k..k + 1)?,
            down: Divider::new(basis, &[k - 1], params.data_range(params.max_level()))?,
            up: BaseConverter::new(basis, &[k], &others)?,
            parts: bootstrap.parts(),
        })
    }

    /// Part i of a polynomial modulo q_0, `sum X^i x_i(X^parts)`.
    fn part(&self, params: &CkksParams, c: &RnsPoly<Coef>, i: usize) -> Result<RnsPoly<Coef>, CkksError> {
        let k = params.0.special;
        let mut out = params.basis().zero(k..k + 1)?;
        let (from, to) = (c.words().chunks_exact(self.parts), out.words_mut().chunks_exact_mut(self.parts));
        from.zip(to).for_each(|(from, to)| to[0] = from[i]);
        Ok(out)
    }

    /// `c` at level 1, its scale that of a message modulo q_0, to the part of `c / q_0` in X^parts at the highest level: values near integers. Slots of the
    /// result are within `bound`.
    pub(super) fn apply(
        &self,
        evaluator: &Evaluator,
        bootstrap: &BootstrapParams,
        c: &Ciphertext,
        keys: &Encapsulation,
        bound: f64,
    ) -> Result<Ciphertext, CkksError> {
        let params = evaluator.params();
        let (basis, top) = (params.basis(), params.max_level());
        let [c0, c1] = Evaluator::pair("a bootstrap", c)?;
        let range = down_range(params);
        let mut coefficients = basis.inverse(c1.clone())?;
        let x = Digit::new(basis, &self.aside, c1, coefficients.words_mut())?.raise(basis, range.clone())?;
        let [b, a] = basis.inner_products(range, &[&x], [&[&keys.down.b[0]], &[&keys.down.a[0]]])?;
        let mut low = self.back.divide(basis, &b)?;
        basis.add_assign(&mut low, c0)?;
        let (low, high) = (basis.inverse(low)?, basis.inverse(self.back.divide(basis, &a)?)?);

        // The trace of c_0 + c_1 s' is linear over polynomials in X^parts, so its parts take one key each and one division in all.
        let mut cut = vec![self.part(params, &low, 0)?];
        for i in 0..self.parts {
            cut.push(self.part(params, &high, i)?);
        }
        let own = cut.iter().map(|p| basis.forward(p.clone())).collect::<Result<Vec<_>, _>>()?;
        let digits = own.iter().zip(&mut cut).map(|(own, p)| Digit::new(basis, &self.up, own, p.words_mut()));
        let digits = digits.collect::<Result<Vec<_>, _>>()?;
        let [b, a] = switch_digits(basis, up_range(params), &digits[1..], [&keys.up.b, &keys.up.a])?;
        let mut low = digits[0].raise(basis, params.data_range(top))?;
        basis.add_assign(&mut low, &self.down.divide(basis, &b)?)?;
        let parts = vec![low, self.down.divide(basis, &a)?];
        Ok(Ciphertext {
            params: params.clone(),
            parts,
            level: top,
            scale: params.data_prime(0) as f64,
            bound,
            sd: projected(bootstrap, c.sd),
            seed: None,
        })
    }
}
