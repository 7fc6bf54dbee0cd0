//! To a sparse secret, up to all primes, and back: the ciphertext of m modulo q_0 becomes one of m + q_0 I.
//!
//! |I| is small because the secret at that moment is sparse (Bossuat, Troncoso-Pastoriza, Hubaux, ACNS 2022, "sparse-secret encapsulation"):
//! under it only ciphertexts modulo q_0 p exist, p one special prime.

use super::{BootstrapParams, Encapsulation};
use crate::ckks::noise::independent_sum;
use crate::ckks::switching::{digit_ratio2, switch};
use crate::ckks::{Ciphertext, CkksError, CkksParams, Evaluator};
use hushnet_ring::rns::{BaseConverter, Digit, Divider, Eval, RnsPoly};
use std::ops::Range;

/// The last special prime and q_0, neighbours in the basis.
pub(super) fn down_range(params: &CkksParams) -> Range<usize> {
    params.0.special - 1..params.0.special + 1
}

/// Constants of the two changes of modulus.
pub(super) struct Raise {
    /// q_0 to the last special prime.
    aside: BaseConverter,
    /// Division by that prime.
    back: Divider,
    /// q_0 to all data primes above it.
    up: BaseConverter,
}

/// The polynomial with the residues modulo q_0 of `c`, centred, over more primes.
fn lifted(
    params: &CkksParams,
    converter: &BaseConverter,
    c: &RnsPoly<Eval>,
    range: Range<usize>,
) -> Result<RnsPoly<Eval>, CkksError> {
    let basis = params.basis();
    let mut coefficients = basis.inverse(c.clone())?;
    let digit = Digit::new(basis, converter, c, coefficients.words_mut())?;
    Ok(digit.raise(basis, range)?)
}

/// sd of what both switches add, ring units.
pub(super) fn noise(bootstrap: &BootstrapParams) -> f64 {
    let params = &bootstrap.params;
    let noise = params.noise();
    let (q, p) = (params.data_prime(0) as f64, params.special_primes()[params.0.special - 1] as f64);
    // Under the sparse secret one rounded half is multiplied by at most `weight` terms.
    let aside = independent_sum(
        noise.switching((q / p).powi(2)),
        noise.rounding()
            * (1.0 + 1.5 * bootstrap.spec.weight as f64 * noise.secret_norm2() / params.ring_degree() as f64)
                .sqrt(),
    );
    let back =
        independent_sum(noise.switching(digit_ratio2(params, params.max_level())), noise.part_rounding(2));
    independent_sum(aside, back)
}

impl Raise {
    pub(super) fn new(params: &CkksParams) -> Result<Self, CkksError> {
        let (basis, k) = (params.basis(), params.0.special);
        let above: Vec<usize> = (k + 1..k + params.max_level().0).collect();
        Ok(Self {
            aside: BaseConverter::new(basis, &[k], &[k - 1])?,
            back: Divider::new(basis, &[k - 1], k..k + 1)?,
            up: BaseConverter::new(basis, &[k], &above)?,
        })
    }

    /// `c` at level 1, its scale that of a message modulo q_0, to `c / q_0` at the highest level: values near integers. Slots of the
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
        let basis = params.basis();
        let [c0, c1] = Evaluator::pair("a bootstrap", c)?;
        let range = down_range(params);
        let x = lifted(params, &self.aside, c1, range.clone())?;
        let [b, a] = basis.inner_products(range, &[&x], [&[&keys.down.b[0]], &[&keys.down.a[0]]])?;
        let mut low = self.back.divide(basis, &b)?;
        basis.add_assign(&mut low, c0)?;
        let high = self.back.divide(basis, &a)?;

        let top = params.max_level();
        let [mut low, high] = [&low, &high].map(|p| lifted(params, &self.up, p, params.data_range(top)));
        let raised = switch(params, &high?, top, &keys.up)?;
        let down = &params.0.descend[top.0 - 1];
        basis.add_assign(low.as_mut().map_err(|e| e.clone())?, &down.divide(basis, &raised[0])?)?;
        let parts = vec![low?, down.divide(basis, &raised[1])?];
        let q = params.data_prime(0) as f64;
        Ok(Ciphertext {
            params: params.clone(),
            parts,
            level: top,
            scale: q,
            bound,
            sd: independent_sum(c.sd, noise(bootstrap)),
            seed: None,
        })
    }
}
