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
use hushnet_ring::rns::{Eval, RnsPoly};
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
    /// Signs that slots are multiplied by before, so that no message has large coefficients.
    signs: Vec<f64>,
    to_coefficients: Vec<Stage>,
    to_slots: Vec<Stage>,
    /// i in every slot, as a polynomial: X^(N/2).
    imaginary: RnsPoly<Eval>,
}

/// What slots within a bound are divided by to be within 1: a power of two, at least 1.
#[must_use]
pub fn size_of(bound: f64) -> f64 {
    bound.max(1.0).log2().ceil().exp2()
}

/// Random signs that repeat after n slots: public, from the parameters.
fn signs(params: &BootstrapParams) -> Vec<f64> {
    let mut key = [0; 16];
    key.copy_from_slice(&params.params.hash()[..16]);
    let mut words = vec![0u64; params.spec.slots];
    Prg::from_seed(key).untracked().fill_words(&mut words);
    let own = words.iter().map(|w| if w >> 63 == 0 { 1.0 } else { -1.0 });
    own.cycle().take(params.params.slots()).collect()
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
        let top = EncodeAt { level: ckks.max_level(), scale: 1.0, bound: 1.0 };
        let imaginary = vec![Complex { re: 0.0, im: 1.0 }; ckks.slots()];
        let imaginary = encoder.encode_complex(&imaginary, top)?.poly.clone();
        Ok(Self {
            evaluator: Evaluator::new(ckks),
            raise: Raise::new(ckks)?,
            signs: signs(params),
            design,
            encoder,
            to_coefficients,
            to_slots,
            imaginary,
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
        let entry = self.enter(c, size)?;
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
        for (i, stage) in self.to_slots.iter().enumerate() {
            out = stage.apply(e, &out, keys.galois, (out.bound * stage.shape.norm()).min(1.0))?;
            if i == 0 && self.design.params.sparse() {
                let other = e.rotate(&out, self.design.params.spec.slots as i64, keys.galois)?;
                e.add_assign(&mut out, &other)?;
            }
        }
        let out = e.rotate(&out, self.design.rest(), keys.galois)?;
        see("to slots", &out);
        let fresh = self.design.params.fresh_scale();
        let whole = self.encoder.encode_scalar(size, out.level, 1.0)?;
        let out = e.mul_scalar(&Ciphertext { scale: fresh, bound: 1.0, ..out }, &whole)?;
        let BootstrapError { noise, approximation } = self.design.error(c.scale, size);
        // What came in is a part of the message.
        let sd = any_sum(c.sd / c.scale, independent_sum(noise, approximation) * size) * fresh;
        Ciphertext { sd, ..out }.with_bound(c.bound)
    }

    /// Under signs, at level 1, its scale that of messages modulo q_0, slots within 1.
    fn enter(&self, c: &Ciphertext, size: f64) -> Result<Ciphertext, CkksError> {
        let level = self.design.params.entry_level();
        let c = self.evaluator.drop_to(c, level)?;
        let scale = self.design.params.entry_scale() * self.design.params.params.data_prime(1) as f64
            / (c.scale * size);
        if scale < f64::from(1 << 20) {
            return Err(CkksError::BadScale);
        }
        let signs = self.encoder.encode(&self.signs, EncodeAt { level, scale, bound: 1.0 })?;
        let product = self.evaluator.mul_plain(&c, &signs)?;
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

    /// `i c` or `-i c`, exactly.
    fn quarter(&self, c: &Ciphertext, back: bool) -> Result<Ciphertext, CkksError> {
        let (basis, range) =
            (self.design.params.params.basis(), self.design.params.params.data_range(c.level));
        let mut out = c.clone_header();
        for p in &c.parts {
            let mut turned = basis.product(range.clone(), p, &self.imaginary)?;
            if back {
                basis.neg_assign(&mut turned)?;
            }
            out.parts.push(turned);
        }
        Ok(out)
    }

    /// Coefficients over q_0, without their integers, times 2 pi: real and imaginary parts as they came.
    fn reduced(&self, z: &Ciphertext, keys: BootstrapKeys<'_>) -> Result<Ciphertext, CkksError> {
        let e = &self.evaluator;
        let conjugate = e.conjugate(z, keys.galois)?;
        let real = self.fraction(e.add(z, &conjugate)?, keys)?;
        if self.design.params.sparse() {
            return Ok(real);
        }
        let imaginary = self.quarter(&e.sub(z, &conjugate)?, true)?;
        let imaginary = self.fraction(imaginary, keys)?;
        let sd = real.sd;
        let sum = e.add(&real, &self.quarter(&imaginary, false)?)?;
        // Real and imaginary errors lie in different parts of a slot.
        Ok(Ciphertext { sd, ..sum })
    }

    fn fraction(&self, mut u: Ciphertext, keys: BootstrapKeys<'_>) -> Result<Ciphertext, CkksError> {
        // The parts that are added have one error each, in different places of the embedding.
        u.bound = 1.0;
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
