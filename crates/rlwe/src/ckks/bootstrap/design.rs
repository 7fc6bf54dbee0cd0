//! A bootstrap before anything is encoded: its matrices' shapes, and from them levels, errors and operations.

use super::dft::{factors, Factor};
use super::linear::{Adjust, Shape, Source, Steps};
use super::noise::{failure_bits, of_sine, SineError};
use super::{message_factor, raise, BootstrapParams, Operations};
use crate::batch::TAIL;
use crate::ckks::noise::independent_sum;
use crate::ckks::switching::digit_ratio2;
use crate::ckks::{CkksError, Level};

/// Least number that a message is multiplied by before the first matrix (its rounding down takes no more than a sixteenth of the scale), and largest.
const LEAST_WHOLE: f64 = 16.0;
const MOST_WHOLE: f64 = (1u64 << 52) as f64;

/// What a bootstrap adds to a message, relative to slots of magnitude `size`; deviations, as everywhere (`docs/bootstrapping.md`, "Noise").
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BootstrapError {
    /// From key switches and roundings, for the worst slots of secret and keys, and in slots whose integer lets the sine grow errors most.
    pub noise: f64,
    /// The same, root mean square over the integers that occur.
    pub mean: f64,
    /// From the sine in the place of a reduction; it depends on the message alone.
    pub approximation: f64,
}

/// Work of a part of a bootstrap, for planners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootstrapWork {
    /// Level that it is done at.
    pub level: Level,
    /// Its key switches.
    pub operations: Operations,
    /// Products of raised ciphertexts with stored entries.
    pub products: usize,
}

/// The ciphertext that goes in: scale, bound of its slots, what its slots are divided by, sd of its error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) scale: f64,
    pub(super) bound: f64,
    pub(super) size: f64,
    pub(super) sd: f64,
}

/// What a bootstrap of given parameters does, known without keys and matrices.
pub struct BootstrapDesign {
    pub(super) params: BootstrapParams,
    pub(super) matrices: Matrices<Shape>,
}

/// What [`matrices`] makes.
pub(super) struct Matrices<T> {
    /// Before the change of modulus.
    pub(super) to_slots: Vec<T>,
    /// Between it and the sine.
    pub(super) to_coefficients: Vec<T>,
    /// Slots that the result still has to be turned by.
    pub(super) turned: i64,
    pub(super) sine: SineError,
}

/// All matrices in their order, by `make`.
pub(super) fn matrices<T>(
    params: &BootstrapParams,
    mut make: impl FnMut(&Source<'_>) -> Result<T, CkksError>,
) -> Result<Matrices<T>, CkksError> {
    let (ckks, n) = (&params.params, params.spec.slots);
    let mut turned = 0;
    let mut put = |matrix: &Factor, radix: u32, factor: f64, at: (Level, f64)| {
        let steps = Steps::new(n, matrix.stride, radix);
        let source = Source { n, factor: matrix, steps, adjust: Adjust { factor, turned }, at };
        turned = source.turned();
        make(&source)
    };
    let prime = |level: Level| ckks.data_prime(level.0 - 1) as f64;

    let radices = &params.spec.to_slots;
    let down = (params.entry_scale() / params.room_scale()).powf(1.0 / radices.len() as f64);
    let mut to_slots = Vec::new();
    for (i, matrix) in factors(n, radices, false).iter().enumerate() {
        let level = params.slot_level(i);
        to_slots.push(put(matrix, radices[i], 1.0, (level, prime(level) * down))?);
    }
    let radices = &params.spec.to_coefficients;
    // A real part is (z + conj z) / 2, and u is x over the sine's width.
    let factor = (0.5 / params.spec.sine.width()).powf(1.0 / radices.len() as f64);
    let mut to_coefficients = Vec::new();
    for (i, matrix) in factors(n, radices, true).iter().enumerate() {
        let level = params.coefficient_level(i);
        // The sum over the slots' repetitions is undone in the first matrix' scale.
        let repeated = if i == 0 { params.repeats() / params.parts() } else { 1 };
        let at = (level, prime(level) / repeated as f64);
        to_coefficients.push(put(matrix, radices[i], factor, at)?);
    }
    let sine = of_sine(params, ckks.data_prime(0) as f64)?;
    Ok(Matrices { to_slots, to_coefficients, turned, sine })
}

impl BootstrapDesign {
    /// Of parameters.
    ///
    /// # Errors
    /// [`CkksError`] when the ring refuses, which checked parameters exclude.
    pub fn new(params: &BootstrapParams) -> Result<Self, CkksError> {
        let shape = |s: &Source<'_>| Shape::of(&params.params, s, |_, _| Ok(()));
        Ok(Self { params: params.clone(), matrices: matrices(params, shape)? })
    }

    /// What it was made for.
    #[must_use]
    pub fn params(&self) -> &BootstrapParams {
        &self.params
    }

    /// Shapes of all matrices.
    fn shapes(&self) -> impl Iterator<Item = &Shape> {
        self.matrices.to_slots.iter().chain(&self.matrices.to_coefficients)
    }

    /// Doublings of the sum over turns that are left by the change of modulus.
    fn doublings(&self) -> usize {
        (self.params.repeats() / self.params.parts()).ilog2() as usize
    }

    /// Key switches that a bootstrap makes, but for those of the change of modulus, whose keys are its own.
    #[must_use]
    pub fn operations(&self) -> Operations {
        let mut out = Operations::default();
        for s in self.shapes() {
            out.switches += s.steps.giants - 1;
            out.hoisted += s.steps.babies - 1;
        }
        // What is left to turn, repetitions, a conjugation, the sine.
        out.switches +=
            usize::from(self.rest() != 0) + self.doublings() + 1 + self.params.spec.sine.products();
        out
    }

    /// The same key switches with their levels, those of the sine at its middle, and products with matrices and with the keys of the change of modulus.
    #[must_use]
    pub fn work(&self) -> Vec<BootstrapWork> {
        let (params, spec) = (&self.params, &self.params.spec);
        let top = params.params.max_level();
        let whole = |level: Level, switches: usize| BootstrapWork {
            level,
            operations: Operations { switches, hoisted: 0 },
            products: 0,
        };
        let matrix = |s: &Shape| BootstrapWork {
            level: s.level,
            operations: Operations { switches: s.steps.giants - 1, hoisted: s.steps.babies - 1 },
            products: s.count,
        };
        let middle = Level(params.sine_level().0 - spec.sine.depth() / 2);
        let mut out = vec![whole(params.entry_level(), usize::from(self.rest() != 0))];
        out.extend(self.matrices.to_slots.iter().map(matrix));
        out.push(BootstrapWork { products: params.parts(), ..whole(top, self.doublings()) });
        out.extend(self.matrices.to_coefficients.iter().map(matrix));
        out.push(whole(params.sine_level(), 1));
        out.push(whole(middle, spec.sine.products()));
        out
    }

    /// Bytes of ciphertexts that a bootstrap holds at once: inner sums of the widest matrix and what a giant step takes, over all primes.
    #[must_use]
    pub fn work_bytes(&self) -> u64 {
        let params = &self.params.params;
        let held = |s: &Shape| {
            let pairs = 2 * s.steps.giants + params.digits_at(s.level) + 8;
            (pairs * params.extended_range(s.level).len() * params.ring_degree()) as u64
        };
        8 * self.shapes().map(held).max().unwrap_or(0)
    }

    /// log2 of a bound of the probability that a bootstrap is wrong altogether.
    #[must_use]
    pub fn failure_bits(&self) -> f64 {
        failure_bits(&self.params)
    }

    /// Bytes of the encoded matrices.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        8 * self.shapes().map(|s| s.words as u64).sum::<u64>()
    }

    pub(super) fn rest(&self) -> i64 {
        self.matrices.turned.rem_euclid(self.params.spec.slots as i64)
    }

    /// What it adds to slots within `size` of a ciphertext of this scale, relative to `size`. The error that comes in passes as the message does and is
    /// added to it.
    ///
    /// # Errors
    /// [`CkksError::BadScale`] for a scale that a bootstrap refuses.
    pub fn error(&self, scale: f64, size: f64) -> Result<BootstrapError, CkksError> {
        let steps = self.chain(Entry { scale, bound: size, size, sd: 0.0 })?;
        let [noise, mean] = [steps[3], steps[4]].map(|sd| sd / self.params.fresh_scale());
        Ok(BootstrapError { noise, mean, approximation: self.approximation() })
    }

    /// What a message of this scale, its slots divided by `size`, is multiplied by before the first matrix, and what its scale modulo q_0 will be.
    pub(super) fn entry(&self, scale: f64, size: f64) -> Result<(f64, f64), CkksError> {
        let (params, wanted) = (&self.params, self.params.room_scale() / (scale * size));
        let whole = wanted.floor();
        if !(LEAST_WHOLE..=MOST_WHOLE).contains(&whole) {
            return Err(CkksError::BadScale);
        }
        Ok((whole, params.entry_scale() * (whole / wanted)))
    }

    /// Distance of the sine itself from a slot of the message, at its largest for slots within 1.
    pub(super) fn approximation(&self) -> f64 {
        self.matrices.sine.off * message_factor(&self.params, self.params.entry_scale())
    }

    /// Bound of slots of x, `weight + 1` uniform terms a coefficient.
    pub(super) fn raised_bound(&self) -> f64 {
        let variance = (self.params.spec.weight as f64 + 1.0) / 12.0;
        TAIL * (self.params.params.ring_degree() as f64 * variance).sqrt()
    }

    /// sd after every step, in ring units: enter, raise, to coefficients, sine; last the sine's mean.
    pub(super) fn chain(&self, c: Entry) -> Result<[f64; 5], CkksError> {
        let (params, ckks, sine) = (&self.params, &self.params.params, &self.matrices.sine);
        let noise = ckks.noise();
        let rotated = |sd: f64, level: Level| {
            let switch = noise.switching(digit_ratio2(ckks, level));
            independent_sum(independent_sum(sd, switch), noise.part_rounding(2))
        };
        let through = |shapes: &[Shape], (mut sd, mut bound, mut scale): (f64, f64, f64)| {
            for s in shapes {
                sd = s.noise(ckks, sd, bound, scale);
                (scale, bound) = (scale * s.scale / ckks.data_prime(s.level.0 - 1) as f64, bound * s.norm());
            }
            (sd, scale)
        };

        let (whole, own) = self.entry(c.scale, c.size)?;
        let turned = if self.rest() == 0 { c.sd } else { rotated(c.sd, params.entry_level()) };
        let entered = (turned * whole, c.bound / c.size, c.scale * c.size * whole);
        let (enter, _) = through(&self.matrices.to_slots, entered);
        let raised = raise::projected(params, enter);

        let (mut sd, mut scale) = (raised, ckks.data_prime(0) as f64);
        for _ in 0..self.doublings() {
            sd += rotated(sd, ckks.max_level());
            scale *= 2.0;
        }
        let (coefficients, scale) = through(&self.matrices.to_coefficients, (sd, self.raised_bound(), scale));
        let sd = coefficients + rotated(coefficients, params.sine_level());
        // The result has the scale of a bootstrapped message, and is the message but for this factor.
        let unit = params.fresh_scale() * message_factor(params, own);
        Ok([enter, raised, coefficients, sine.largest(sd / scale) * unit, sine.mean(sd / scale) * unit])
    }
}
