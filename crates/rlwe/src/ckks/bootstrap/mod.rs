//! Bootstrapping: a ciphertext without levels becomes one with levels (`docs/bootstrapping.md`).
//!
//! [`BootstrapSpec`] -> [`BootstrapParams`] fixes the ring and which prime serves which step. The client makes [`BootstrapKeys`], the server a
//! [`Bootstrapper`], which holds encoded matrices only.

mod cipher;
mod design;
mod dft;
mod keys;
mod linear;
mod noise;
mod params;
mod raise;
mod sine;

pub use design::{BootstrapDesign, BootstrapError, BootstrapWork};
pub use keys::{BootstrapKeys, Encapsulation};
pub use params::{BootstrapParams, BootstrapSpec, LEAST_WEIGHT};
pub use sine::Sine;

use super::noise::{any_sum, independent_sum};
use super::{Ciphertext, CkksError, Complex, EncodeAt, Encoder, Evaluator, GaloisKeys, Level};
use cipher::Cipher;
use design::matrices;
use hushnet_ring::Prg;
use linear::Stage;
use raise::Raise;

/// Key switches of a bootstrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Whole ones: digits and products with a key.
    pub switches: usize,
    /// Products of digits that were there with a key.
    pub hoisted: usize,
}

/// Encoded matrices and tables of one bootstrap; holds no key and no secret.
pub struct Bootstrapper {
    design: BootstrapDesign,
    evaluator: Evaluator,
    encoder: Encoder,
    raise: Raise,
    /// What slots are multiplied by before: see [`phases`].
    phases: Vec<Complex>,
    to_coefficients: Vec<Stage>,
    to_slots: Vec<Stage>,
}

/// Bound of magnitudes of [`phases`], which are 1 but for roundings.
const PHASE: f64 = 1.0 + 1e-12;

/// What slots within a bound are divided by to be within 1: a power of two, at least 1.
#[must_use]
pub fn size_of(bound: f64) -> f64 {
    bound.max(1.0).log2().ceil().exp2()
}

/// What real slots are multiplied by, all of magnitude 1, after n slots again. Random signs (public, from the parameters), so that no message has large
/// coefficients. And `zeta_j^(-1/2)`, zeta_j the root that slot j is a value at: real slots z times that are a polynomial with `m_(2n-1-k) = -m_k`, of
/// which n coefficients say everything, `z_j = 2 Re(zeta_j^(1/2) sum_(k < n) m_k zeta_j^k)`.
fn phases(params: &BootstrapParams) -> Vec<Complex> {
    let mut key = [0; 16];
    key.copy_from_slice(&params.params.hash()[..16]);
    let n = params.spec.slots;
    let mut words = vec![0u64; n];
    Prg::from_seed(key).untracked().fill_words(&mut words);
    let mut power = 1usize;
    let own: Vec<Complex> = words
        .iter()
        .map(|w| {
            let sign = if w >> 63 == 0 { 1.0 } else { -1.0 };
            let half = std::f64::consts::PI * power as f64 / (4 * n) as f64;
            power = power * 5 % (4 * n);
            Complex { re: sign * half.cos(), im: -sign * half.sin() }
        })
        .collect();
    own.iter().cycle().take(params.params.slots()).copied().collect()
}

impl Bootstrapper {
    /// Encodes the matrices.
    ///
    /// # Errors
    /// [`CkksError`] when matrices cannot be encoded, which checked parameters exclude.
    pub fn new(params: &BootstrapParams) -> Result<Self, CkksError> {
        let ckks = &params.params;
        let encoder = Encoder::new(ckks);
        let (to_coefficients, to_slots, turned, sine) = matrices(params, |s| Stage::new(&encoder, s))?;
        let shapes = |stages: &[Stage]| stages.iter().map(|s| s.shape.clone()).collect();
        let design = BootstrapDesign {
            params: params.clone(),
            to_coefficients: shapes(&to_coefficients),
            to_slots: shapes(&to_slots),
            turned,
            sine,
        };
        Ok(Self {
            evaluator: Evaluator::new(ckks),
            raise: Raise::new(ckks)?,
            phases: phases(params),
            design,
            encoder,
            to_coefficients,
            to_slots,
        })
    }

    /// What is known of it without its matrices.
    #[must_use]
    pub fn design(&self) -> &BootstrapDesign {
        &self.design
    }

    /// What it was made for.
    #[must_use]
    pub fn params(&self) -> &BootstrapParams {
        &self.design.params
    }

    /// Bytes of the encoded matrices.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.to_coefficients.iter().chain(&self.to_slots).map(Stage::bytes).sum()
    }

    /// The ciphertext at [`BootstrapParams::fresh_level`], its scale [`BootstrapParams::fresh_scale`]. Slots are divided by a power of two of at least their
    /// bound (and 1) before, and multiplied by it behind, which is exact.
    ///
    /// Slots must repeat after [`BootstrapSpec::slots`], and the message must not have been chosen with the signs in mind (the signs are public).
    /// Imaginary parts of slots are dropped.
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`], [`CkksError::Parts`], [`CkksError::LevelTooLow`] below level 2, [`CkksError::BadScale`] for a scale that leaves the
    /// message no room, [`CkksError::MissingKey`].
    pub fn apply(&self, c: &Ciphertext, keys: BootstrapKeys<'_>) -> Result<Ciphertext, CkksError> {
        self.apply_observed(c, keys, &mut |_| {})
    }

    /// [`Self::apply`], which tells when a step is done: `enter`, `raise`, `to coefficients`, `sine`, `to slots`.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn apply_observed(
        &self,
        c: &Ciphertext,
        keys: BootstrapKeys<'_>,
        done: &mut dyn FnMut(&'static str),
    ) -> Result<Ciphertext, CkksError> {
        self.run(c, keys, &mut |step, _| done(step))
    }

    fn run(
        &self,
        c: &Ciphertext,
        keys: BootstrapKeys<'_>,
        see: &mut dyn FnMut(&'static str, &Ciphertext),
    ) -> Result<Ciphertext, CkksError> {
        let e = &self.evaluator;
        e.own(c)?;
        Evaluator::pair("a bootstrap", c)?;
        keys.serve(&self.design.params)?;
        let size = size_of(c.bound);
        let entry = self.enter(c, size, keys)?;
        see("enter", &entry);
        let raised = self.raise.apply(
            e,
            &self.design.params,
            &entry,
            keys.encapsulation,
            self.design.raised_bound(),
        )?;
        see("raise", &raised);
        let mut z = self.repeated_sum(raised, keys.galois)?;
        for stage in &self.to_coefficients {
            z = stage.apply(e, &z, keys.galois, z.bound * stage.shape.norm())?;
        }
        see("to coefficients", &z);
        let y = self.reduced(&z, keys)?;
        see("sine", &y);
        let mut out = e.relabel(y, message_factor(&self.design.params))?;
        out.bound = self.design.coefficient_bound();
        for stage in &self.to_slots {
            out = stage.apply(e, &out, keys.galois, out.bound * stage.shape.norm())?;
        }
        let out = e.rotate(&out, self.design.rest(), keys.galois)?;
        let out = e.add(&out, &e.conjugate(&out, keys.galois)?)?;
        see("to slots", &out);
        let fresh = self.design.params.fresh_scale();
        let whole = self.encoder.encode_scalar(size, out.level, 1.0)?;
        let out = e.mul_scalar(&Ciphertext { scale: fresh, bound: 1.0, ..out }, &whole)?;
        let BootstrapError { noise, approximation } = self.design.error(c.scale, size);
        // What came in is a part of the message.
        let sd = any_sum(c.sd / c.scale, independent_sum(noise, approximation) * size) * fresh;
        Ciphertext { sd, ..out }.with_bound(c.bound)
    }

    /// Real parts times [`phases`], at level 1, the scale that of messages modulo q_0, slots within 1.
    fn enter(&self, c: &Ciphertext, size: f64, keys: BootstrapKeys<'_>) -> Result<Ciphertext, CkksError> {
        let level = self.design.params.entry_level();
        let c = self.evaluator.drop_to(c, level)?;
        let twice = self.evaluator.add(&c, &self.evaluator.conjugate(&c, keys.galois)?)?;
        let c = self.evaluator.relabel(twice, 0.5)?;
        let scale = self.design.params.entry_scale() * self.design.params.params.data_prime(1) as f64
            / (c.scale * size);
        if scale < f64::from(1 << 20) {
            return Err(CkksError::BadScale);
        }
        let phases = self.encoder.encode_complex(&self.phases, EncodeAt { level, scale, bound: PHASE })?;
        let product = self.evaluator.mul_plain(&c, &phases)?;
        let c = self.evaluator.rescale(&product)?;
        Ok(Ciphertext { scale: self.design.params.entry_scale(), bound: c.bound / size, ..c })
    }

    /// The part of the polynomial in X^(N/2n), times N/2n: the sum over all turns by multiples of n slots.
    fn repeated_sum(&self, mut c: Ciphertext, keys: &GaloisKeys) -> Result<Ciphertext, CkksError> {
        let mut by = self.design.params.spec.slots;
        while by < self.design.params.params.slots() {
            let other = self.evaluator.rotate(&c, by as i64, keys)?;
            self.evaluator.add_assign(&mut c, &other)?;
            c.scale *= 2.0;
            c.bound /= 2.0;
            by *= 2;
        }
        Ok(c)
    }

    /// Coefficients over q_0, without their integers, times 2 pi: those of [`phases`], which real parts are.
    fn reduced(&self, z: &Ciphertext, keys: BootstrapKeys<'_>) -> Result<Ciphertext, CkksError> {
        let e = &self.evaluator;
        let u = e.add(z, &e.conjugate(z, keys.galois)?)?;
        let u = Ciphertext { bound: 1.0, ..u };
        let relative = u.sd / u.scale;
        let top: Level = u.level;
        let mut machine =
            Cipher { evaluator: &self.evaluator, encoder: &self.encoder, relin: keys.relin, top };
        let scale = u.scale;
        let out = sine::run(&mut machine, &self.design.params.spec.sine, u, scale)?;
        let sd = independent_sum(relative * self.design.sine.slope, self.design.sine.own) * out.scale;
        Ok(Ciphertext { sd, bound: 1.0, ..out })
    }
}

/// What `2 pi (x - round(x))` is multiplied by to be a coefficient of the message.
fn message_factor(params: &BootstrapParams) -> f64 {
    params.params.data_prime(0) as f64 / (2.0 * std::f64::consts::PI * params.entry_scale())
}

#[cfg(test)]
mod tests;
