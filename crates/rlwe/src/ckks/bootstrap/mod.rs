//! Bootstrapping: a ciphertext without levels becomes one with levels (`docs/bootstrapping.md`).
//!
//! [`BootstrapSpec`] -> [`BootstrapParams`] fixes the ring and which prime serves which step. The client makes [`BootstrapKeys`], the server a
//! [`Bootstrapper`], which holds encoded matrices only.

mod cipher;
mod dft;
mod keys;
mod linear;
mod noise;
mod params;
mod raise;
mod sine;

pub use keys::BootstrapKeys;
pub use params::{BootstrapParams, BootstrapSpec, LEAST_WEIGHT};
pub use sine::Sine;

use super::noise::independent_sum;
use super::{Ciphertext, CkksError, Complex, EncodeAt, Encoder, Evaluator, GaloisKeys, Level};
use crate::batch::TAIL;
use cipher::Cipher;
use dft::factors;
use hushnet_ring::rns::{Eval, RnsPoly};
use hushnet_ring::Prg;
use linear::{Adjust, Stage, Steps};
use noise::{of_sine, SineError};
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
    params: BootstrapParams,
    evaluator: Evaluator,
    encoder: Encoder,
    raise: Raise,
    /// Signs that slots are multiplied by before, so that no message has large coefficients.
    signs: Vec<f64>,
    to_coefficients: Vec<Stage>,
    to_slots: Vec<Stage>,
    /// What the result still has to be turned by.
    turned: i64,
    /// i in every slot, as a polynomial: X^(N/2).
    imaginary: RnsPoly<Eval>,
    sine: SineError,
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

/// 1 in the first n of every 2n slots, `other` in the rest.
fn halves(slots: usize, n: usize, other: Complex) -> Vec<Complex> {
    (0..slots).map(|i| if (i / n).is_multiple_of(2) { Complex { re: 1.0, im: 0.0 } } else { other }).collect()
}

impl Bootstrapper {
    /// Encodes the matrices.
    ///
    /// # Errors
    /// [`CkksError`] when matrices cannot be encoded, which checked parameters exclude.
    pub fn new(params: &BootstrapParams) -> Result<Self, CkksError> {
        let ckks = &params.params;
        let encoder = Encoder::new(ckks);
        let (n, slots) = (params.spec.slots, ckks.slots());
        let signs = signs(params);
        let double = (2 * n).min(slots);
        let sparse = params.sparse();
        // The part that is multiplied by -i (imaginary parts), and back by i.
        let minus = halves(slots, n, Complex { re: 0.0, im: -1.0 });
        let plus = halves(slots, n, Complex { re: 0.0, im: 1.0 });
        let random: Vec<Complex> = signs.iter().map(|s| Complex { re: *s, im: 0.0 }).collect();

        let radices = &params.spec.to_coefficients;
        // A real part is (z + conj z) / 2, and u is x over the sine's width.
        let factor = (0.5 / params.spec.sine.width()).powf(1.0 / radices.len() as f64);
        let mut turned = 0;
        let mut to_coefficients = Vec::new();
        for (i, matrix) in factors(n, radices, true).iter().enumerate() {
            let level = params.coefficient_level(i);
            // The sum over the slots' repetitions is undone in the first matrix' scale.
            let repeated = if i == 0 { slots as f64 / n as f64 } else { 1.0 };
            let rows = (sparse && i + 1 == radices.len()).then_some(&minus[..]);
            let adjust = Adjust { factor, rows, columns: None, period: double, turned };
            let at = (level, ckks.data_prime(level.0 - 1) as f64 / repeated);
            let (stage, after) =
                Stage::new(&encoder, (n, matrix), Steps::new(n, matrix.stride, radices[i]), &adjust, at)?;
            to_coefficients.push(stage);
            turned = after;
        }
        let sine = of_sine(params, ckks.data_prime(0) as f64)?;
        let mut scale = sine.scale / message_factor(params);
        let radices = &params.spec.to_slots;
        let mut to_slots = Vec::new();
        for (i, matrix) in factors(n, radices, false).iter().enumerate() {
            let level = params.slot_level(i);
            let last = i + 1 == radices.len();
            let columns = (sparse && i == 0).then_some(&plus[..]);
            // A single matrix would need both: rows repeat after n, columns after 2n.
            let rows = last.then_some(&random[..]);
            let adjust = Adjust {
                factor: 1.0,
                rows,
                columns,
                period: if columns.is_some() { double } else { n },
                turned,
            };
            let prime = ckks.data_prime(level.0 - 1) as f64;
            let own = if last { params.fresh_scale() * prime / scale } else { prime };
            let (stage, after) = Stage::new(
                &encoder,
                (n, matrix),
                Steps::new(n, matrix.stride, radices[i]),
                &adjust,
                (level, own),
            )?;
            scale = scale * own / prime;
            to_slots.push(stage);
            turned = after;
        }
        let top = EncodeAt { level: ckks.max_level(), scale: 1.0, bound: 1.0 };
        let imaginary = encoder.encode_complex(&vec![Complex { re: 0.0, im: 1.0 }; slots], top)?.poly.clone();
        Ok(Self {
            evaluator: Evaluator::new(ckks),
            raise: Raise::new(ckks)?,
            params: params.clone(),
            encoder,
            signs,
            to_coefficients,
            to_slots,
            turned,
            imaginary,
            sine,
        })
    }

    /// What it was made for.
    #[must_use]
    pub fn params(&self) -> &BootstrapParams {
        &self.params
    }

    /// Bytes of the encoded matrices.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.to_coefficients.iter().chain(&self.to_slots).map(Stage::bytes).sum()
    }

    /// Key switches that [`Self::apply`] makes.
    #[must_use]
    pub fn operations(&self) -> Operations {
        let spec = &self.params.spec;
        let stages = self.to_coefficients.iter().chain(&self.to_slots);
        let (mut switches, mut hoisted) = (1, 0);
        for s in stages {
            switches += s.steps.giants - 1;
            hoisted += s.steps.babies - 1;
        }
        let repeats = (self.params.params.slots() / spec.slots).ilog2() as usize;
        let sines = if self.params.sparse() { 1 } else { 2 };
        // Repetitions, one conjugation, sines, halves put together, what is left to turn.
        switches += repeats + 1 + sines * spec.sine.products() + usize::from(self.params.sparse());
        switches += usize::from(self.rest() != 0);
        Operations { switches, hoisted }
    }

    /// log2 of a bound of the probability that a bootstrap is wrong altogether.
    #[must_use]
    pub fn failure_bits(&self) -> f64 {
        noise::failure_bits(&self.params)
    }

    fn rest(&self) -> i64 {
        self.turned.rem_euclid(self.params.spec.slots as i64)
    }

    /// The ciphertext at [`BootstrapParams::fresh_level`], its scale [`BootstrapParams::fresh_scale`] (over the bound where that exceeds 1).
    ///
    /// Slots must repeat after [`BootstrapSpec::slots`], and the message must not have been chosen with the signs in mind (the signs are public).
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`], [`CkksError::Parts`], [`CkksError::LevelTooLow`] below level 2, [`CkksError::BadScale`] for a scale that leaves the
    /// message no room, [`CkksError::MissingKey`].
    pub fn apply(&self, c: &Ciphertext, keys: &BootstrapKeys) -> Result<Ciphertext, CkksError> {
        self.apply_observed(c, keys, &mut |_| {})
    }

    /// [`Self::apply`], which tells when a step is done: `enter`, `raise`, `to coefficients`, `sine`, `to slots`.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn apply_observed(
        &self,
        c: &Ciphertext,
        keys: &BootstrapKeys,
        done: &mut dyn FnMut(&'static str),
    ) -> Result<Ciphertext, CkksError> {
        self.run(c, keys, &mut |step, _| done(step))
    }

    fn run(
        &self,
        c: &Ciphertext,
        keys: &BootstrapKeys,
        see: &mut dyn FnMut(&'static str, &Ciphertext),
    ) -> Result<Ciphertext, CkksError> {
        let e = &self.evaluator;
        e.own(c)?;
        Evaluator::pair("a bootstrap", c)?;
        keys.serve(&self.params)?;
        let size = c.bound.max(1.0);
        let entry = self.enter(c, size)?;
        see("enter", &entry);
        let raised = self.raise.apply(e, &self.params, &entry, keys, self.raised_bound())?;
        see("raise", &raised);
        let mut z = self.repeated_sum(raised, &keys.galois)?;
        for stage in &self.to_coefficients {
            z = stage.apply(e, &z, &keys.galois, z.bound * stage.norm())?;
        }
        see("to coefficients", &z);
        let y = self.reduced(&z, keys)?;
        see("sine", &y);
        let mut out = e.relabel(y, message_factor(&self.params))?;
        out.bound = self.coefficient_bound();
        for (i, stage) in self.to_slots.iter().enumerate() {
            out = stage.apply(e, &out, &keys.galois, (out.bound * stage.norm()).min(1.0))?;
            if i == 0 && self.params.sparse() {
                let other = e.rotate(&out, self.params.spec.slots as i64, &keys.galois)?;
                e.add_assign(&mut out, &other)?;
            }
        }
        let out = e.rotate(&out, self.rest(), &keys.galois)?;
        see("to slots", &out);
        let mut out = Ciphertext { scale: self.params.fresh_scale(), bound: 1.0, ..out };
        out.sd = independent_sum(out.sd, self.approximation() * out.scale);
        e.relabel(out, size)
    }

    /// Under signs, at level 1, its scale that of messages modulo q_0, slots within 1.
    fn enter(&self, c: &Ciphertext, size: f64) -> Result<Ciphertext, CkksError> {
        let level = self.params.entry_level();
        let c = self.evaluator.drop_to(c, level)?;
        let scale = self.params.entry_scale() * self.params.params.data_prime(1) as f64 / (c.scale * size);
        if scale < f64::from(1 << 20) {
            return Err(CkksError::BadScale);
        }
        let signs = self.encoder.encode(&self.signs, EncodeAt { level, scale, bound: 1.0 })?;
        let product = self.evaluator.mul_plain(&c, &signs)?;
        let c = self.evaluator.rescale(&product)?;
        Ok(Ciphertext { scale: self.params.entry_scale(), bound: c.bound / size, ..c })
    }

    /// Bound of slots of x, `weight + 1` uniform terms a coefficient.
    fn raised_bound(&self) -> f64 {
        let variance = (self.params.spec.weight as f64 + 1.0) / 12.0;
        TAIL * (self.params.params.ring_degree() as f64 * variance).sqrt()
    }

    /// Bound of coefficients of a message under random signs.
    fn coefficient_bound(&self) -> f64 {
        TAIL / (self.params.spec.slots as f64).sqrt()
    }

    /// Error of the sine itself in a slot of the message, root mean square.
    fn approximation(&self) -> f64 {
        self.sine.mean * message_factor(&self.params) * (self.params.spec.slots as f64).sqrt()
    }

    /// The part of the polynomial in X^(N/2n), times N/2n: the sum over all turns by multiples of n slots.
    fn repeated_sum(&self, mut c: Ciphertext, keys: &GaloisKeys) -> Result<Ciphertext, CkksError> {
        let mut by = self.params.spec.slots;
        while by < self.params.params.slots() {
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
        let (basis, range) = (self.params.params.basis(), self.params.params.data_range(c.level));
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
    fn reduced(&self, z: &Ciphertext, keys: &BootstrapKeys) -> Result<Ciphertext, CkksError> {
        let e = &self.evaluator;
        let conjugate = e.conjugate(z, &keys.galois)?;
        let real = self.fraction(e.add(z, &conjugate)?, keys)?;
        if self.params.sparse() {
            return Ok(real);
        }
        let imaginary = self.quarter(&e.sub(z, &conjugate)?, true)?;
        let imaginary = self.fraction(imaginary, keys)?;
        let sd = real.sd;
        let sum = e.add(&real, &self.quarter(&imaginary, false)?)?;
        // Real and imaginary errors lie in different parts of a slot.
        Ok(Ciphertext { sd, ..sum })
    }

    fn fraction(&self, mut u: Ciphertext, keys: &BootstrapKeys) -> Result<Ciphertext, CkksError> {
        // The parts that are added have one error each, in different places of the embedding.
        u.bound = 1.0;
        let relative = u.sd / u.scale;
        let top: Level = u.level;
        let mut machine =
            Cipher { evaluator: &self.evaluator, encoder: &self.encoder, relin: &keys.relin, top };
        let scale = u.scale;
        let out = sine::run(&mut machine, &self.params.spec.sine, u, scale)?;
        let sd = independent_sum(relative * self.sine.slope, self.sine.own) * out.scale;
        Ok(Ciphertext { sd, bound: 1.0, ..out })
    }
}

/// What `2 pi (x - round(x))` is multiplied by to be a coefficient of the message.
fn message_factor(params: &BootstrapParams) -> f64 {
    params.params.data_prime(0) as f64 / (2.0 * std::f64::consts::PI * params.entry_scale())
}

#[cfg(test)]
mod tests;
