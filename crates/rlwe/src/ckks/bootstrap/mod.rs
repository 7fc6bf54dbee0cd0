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

pub(super) use raise::{down_range, up_range};

use super::noise::{any_sum, independent_sum};
use super::{Ciphertext, CkksError, Encoder, Evaluator, GaloisKeys, Level};
use cipher::Cipher;
use design::{matrices, Matrices};
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
    to_slots: Vec<Stage>,
    to_coefficients: Vec<Stage>,
}

/// What slots within a bound are divided by to be within 1: a power of two, at least 1.
#[must_use]
pub fn size_of(bound: f64) -> f64 {
    bound.max(1.0).log2().ceil().exp2()
}

impl Bootstrapper {
    /// Encodes the matrices.
    ///
    /// # Errors
    /// [`CkksError`] when matrices cannot be encoded, which checked parameters exclude.
    pub fn new(params: &BootstrapParams) -> Result<Self, CkksError> {
        let ckks = &params.params;
        let encoder = Encoder::new(ckks);
        let Matrices { to_slots, to_coefficients, turned, sine } =
            matrices(params, |s| Stage::new(&encoder, s))?;
        let shapes = |stages: &[Stage]| stages.iter().map(|s| s.shape.clone()).collect();
        let matrices =
            Matrices { to_slots: shapes(&to_slots), to_coefficients: shapes(&to_coefficients), turned, sine };
        Ok(Self {
            evaluator: Evaluator::new(ckks),
            raise: Raise::new(params)?,
            design: BootstrapDesign { params: params.clone(), matrices },
            encoder,
            to_slots,
            to_coefficients,
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
    /// Slots must repeat after [`BootstrapSpec::slots`]. Imaginary parts of slots are dropped.
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`], [`CkksError::Parts`], [`CkksError::LevelTooLow`] below [`BootstrapParams::entry_level`], [`CkksError::BadScale`] for a scale that leaves the
    /// message no room, [`CkksError::MissingKey`].
    pub fn apply(&self, c: &Ciphertext, keys: BootstrapKeys<'_>) -> Result<Ciphertext, CkksError> {
        self.apply_observed(c, keys, &mut |_| {})
    }

    /// [`Self::apply`], which tells when a step is done: `enter`, `raise`, `to coefficients`, `sine`.
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
        let z = self.repeated_sum(raised, keys.galois)?;
        let z = self.through(&self.to_coefficients, z, keys.galois)?;
        see("to coefficients", &z);
        let out = self.reduced(&z, entry.scale, keys)?;
        see("sine", &out);
        let whole = self.encoder.encode_scalar(size, out.level, 1.0)?;
        let out = e.mul_scalar(&out, &whole)?;
        let BootstrapError { noise, approximation, .. } = self.design.error(c.scale, size)?;
        // What came in is a part of the message.
        let sd = any_sum(c.sd / c.scale, independent_sum(noise, approximation) * size) * out.scale;
        Ciphertext { sd, ..out }.with_bound(c.bound)
    }

    fn through(
        &self,
        stages: &[Stage],
        mut c: Ciphertext,
        keys: &GaloisKeys,
    ) -> Result<Ciphertext, CkksError> {
        for stage in stages {
            c = stage.apply(&self.evaluator, &c, keys, c.bound * stage.shape.norm())?;
        }
        Ok(c)
    }

    /// At level 1, the polynomial whose coefficients the slots are, the scale that of messages modulo q_0, slots within 1.
    fn enter(&self, c: &Ciphertext, size: f64, keys: BootstrapKeys<'_>) -> Result<Ciphertext, CkksError> {
        let (e, level) = (&self.evaluator, self.design.params.entry_level());
        let (whole, entered) = self.design.entry(c.scale, size)?;
        // What is left to turn when all is done, where it costs least.
        let c = e.rotate(&e.drop_to(c, level)?, self.design.rest(), keys.galois)?;
        let factor = self.encoder.encode_scalar(whole, level, 1.0)?;
        let (scale, bound) = (c.scale * size * whole, c.bound / size);
        let c = Ciphertext { scale, bound, ..e.mul_scalar(&c, &factor)? };
        // What it is but for the last bits of a double.
        Ok(Ciphertext { scale: entered, ..self.through(&self.to_slots, c, keys.galois)? })
    }

    /// The part of the polynomial in X^(N/2n), from that in X^parts and times what is between: the sum over all turns by multiples of n slots.
    fn repeated_sum(&self, mut c: Ciphertext, keys: &GaloisKeys) -> Result<Ciphertext, CkksError> {
        let mut by = self.design.params.spec.slots;
        while by < self.design.params.params.slots() / self.design.params.parts() {
            let other = self.evaluator.rotate(&c, by as i64, keys)?;
            self.evaluator.add_assign(&mut c, &other)?;
            c.scale *= 2.0;
            c.bound /= 2.0;
            by *= 2;
        }
        Ok(c)
    }

    /// The message, from slots near integers. `entered` is the scale that it had modulo q_0.
    fn reduced(
        &self,
        z: &Ciphertext,
        entered: f64,
        keys: BootstrapKeys<'_>,
    ) -> Result<Ciphertext, CkksError> {
        let (e, params, sine) = (&self.evaluator, &self.design.params, &self.design.matrices.sine);
        let u = e.add(z, &e.conjugate(z, keys.galois)?)?;
        let u = Ciphertext { bound: 1.0, ..u };
        let relative = u.sd / u.scale;
        let top: Level = u.level;
        let mut machine =
            Cipher { evaluator: &self.evaluator, encoder: &self.encoder, relin: keys.relin, top };
        let wanted = params.fresh_scale() * message_factor(params, entered);
        let scale = noise::interpolant_scale(params, u.scale, wanted)?;
        let out = sine::run(&mut machine, (&params.spec.sine, params.arcsine().1), u, scale)?;
        let sd = sine.largest(relative) * wanted;
        Ok(Ciphertext { sd, bound: 1.0, scale: params.fresh_scale(), ..out })
    }
}

/// What the sine's circuit gives, `2 pi (x - round(x)) / a`, is multiplied by to be a message that had a scale modulo q_0.
fn message_factor(params: &BootstrapParams, entered: f64) -> f64 {
    params.arcsine().0 * params.params.data_prime(0) as f64 / (2.0 * std::f64::consts::PI * entered)
}

#[cfg(test)]
mod tests;
