//! A bootstrap before anything is encoded: its matrices' shapes, and from them levels, errors and operations.

use super::dft::{factors, Factor};
use super::linear::{Adjust, Shape, Source, Steps};
use super::noise::{failure_bits, of_sine, SineError};
use super::{message_factor, phases, raise, BootstrapParams, Operations, PHASE};
use crate::batch::TAIL;
use crate::ckks::noise::independent_sum;
use crate::ckks::switching::digit_ratio2;
use crate::ckks::{CkksError, Complex, Level};

/// What a bootstrap adds to a message, relative to slots of magnitude `size`; deviations, as everywhere (`docs/bootstrapping.md`, "Noise").
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BootstrapError {
    /// From key switches and roundings, for the worst slots of secret and keys.
    pub noise: f64,
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
    pub(super) to_coefficients: Vec<Shape>,
    pub(super) to_slots: Vec<Shape>,
    pub(super) turned: i64,
    pub(super) sine: SineError,
}

/// What [`matrices`] makes: those before the sine, those behind it, what the result still has to be turned by, the sine.
pub(super) type Matrices<T> = (Vec<T>, Vec<T>, i64, SineError);

/// All matrices in their order, by `make`.
pub(super) fn matrices<T>(
    params: &BootstrapParams,
    mut make: impl FnMut(&Source<'_>) -> Result<T, CkksError>,
) -> Result<Matrices<T>, CkksError> {
    let ckks = &params.params;
    let (n, slots) = (params.spec.slots, ckks.slots());
    let back: Vec<Complex> = phases(params).iter().map(|z| Complex { re: z.re, im: -z.im }).collect();
    let radices = &params.spec.to_coefficients;
    // A real part is (z + conj z) / 2, and u is x over the sine's width.
    let factor = (0.5 / params.spec.sine.width()).powf(1.0 / radices.len() as f64);
    let mut turned = 0;
    let mut put = |matrix: &Factor, radix: u32, adjust: Adjust<'_>, at: (Level, f64)| {
        let adjust = Adjust { turned, ..adjust };
        let steps = Steps::new(n, matrix.stride, radix);
        let source = Source { n, factor: matrix, steps, adjust, at };
        turned = source.turned();
        make(&source)
    };
    let mut to_coefficients = Vec::new();
    for (i, matrix) in factors(n, radices, true).iter().enumerate() {
        let level = params.coefficient_level(i);
        // The sum over the slots' repetitions is undone in the first matrix' scale.
        let repeated = if i == 0 { slots as f64 / n as f64 } else { 1.0 };
        let adjust = Adjust { factor, rows: None, turned: 0 };
        let scale = ckks.data_prime(level.0 - 1) as f64 / repeated;
        to_coefficients.push(put(matrix, radices[i], adjust, (level, scale))?);
    }
    let sine = of_sine(params, ckks.data_prime(0) as f64)?;
    let mut scale = sine.scale / message_factor(params);
    let radices = &params.spec.to_slots;
    let mut to_slots = Vec::new();
    for (i, matrix) in factors(n, radices, false).iter().enumerate() {
        let level = params.slot_level(i);
        let last = i + 1 == radices.len();
        let adjust = Adjust { factor: 1.0, rows: last.then_some(&back[..]), turned: 0 };
        let prime = ckks.data_prime(level.0 - 1) as f64;
        let own = if last { params.fresh_scale() * prime / scale } else { prime };
        to_slots.push(put(matrix, radices[i], adjust, (level, own))?);
        scale = scale * own / prime;
    }
    Ok((to_coefficients, to_slots, turned, sine))
}

impl BootstrapDesign {
    /// Of parameters.
    ///
    /// # Errors
    /// [`CkksError`] when the ring refuses, which checked parameters exclude.
    pub fn new(params: &BootstrapParams) -> Result<Self, CkksError> {
        let shape = |s: &Source<'_>| Shape::of(&params.params, s, |_, _| Ok(()));
        let (to_coefficients, to_slots, turned, sine) = matrices(params, shape)?;
        Ok(Self { params: params.clone(), to_coefficients, to_slots, turned, sine })
    }

    /// What it was made for.
    #[must_use]
    pub fn params(&self) -> &BootstrapParams {
        &self.params
    }

    /// Key switches that a bootstrap makes.
    #[must_use]
    pub fn operations(&self) -> Operations {
        let spec = &self.params.spec;
        let shapes = self.to_coefficients.iter().chain(&self.to_slots);
        let (mut switches, mut hoisted) = (1, 0);
        for s in shapes {
            switches += s.steps.giants - 1;
            hoisted += s.steps.babies - 1;
        }
        let repeats = (self.params.params.slots() / spec.slots).ilog2() as usize;
        // Repetitions, three conjugations, the sine, what is left to turn.
        switches += repeats + 3 + spec.sine.products() + usize::from(self.rest() != 0);
        Operations { switches, hoisted }
    }

    /// The same key switches with their levels, those of the sine at its middle, and products with matrices.
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
        let repeats = (params.params.slots() / spec.slots).ilog2() as usize;
        let middle = Level(params.sine_level().0 - spec.sine.depth() / 2);
        let mut out = vec![whole(params.entry_level(), 1), whole(top, 1 + repeats)];
        out.extend(self.to_coefficients.iter().map(matrix));
        out.push(whole(params.sine_level(), 1));
        out.push(whole(middle, spec.sine.products()));
        out.extend(self.to_slots.iter().map(matrix));
        out.push(whole(params.fresh_level(), 1 + usize::from(self.rest() != 0)));
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
        8 * self.to_coefficients.iter().chain(&self.to_slots).map(held).max().unwrap_or(0)
    }

    /// log2 of a bound of the probability that a bootstrap is wrong altogether.
    #[must_use]
    pub fn failure_bits(&self) -> f64 {
        failure_bits(&self.params)
    }

    /// Bytes of the encoded matrices.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        8 * self.to_coefficients.iter().chain(&self.to_slots).map(|s| s.words as u64).sum::<u64>()
    }

    pub(super) fn rest(&self) -> i64 {
        self.turned.rem_euclid(self.params.spec.slots as i64)
    }

    /// What it adds to slots within `size` of a ciphertext of this scale, relative to `size`. The error that comes in passes as the message does and is
    /// added to it.
    #[must_use]
    pub fn error(&self, scale: f64, size: f64) -> BootstrapError {
        let steps = self.chain(Entry { scale, bound: size, size, sd: 0.0 });
        BootstrapError { noise: steps[4] / self.params.fresh_scale(), approximation: self.approximation() }
    }

    /// Error of the sine itself in a slot of the message, root mean square.
    pub(super) fn approximation(&self) -> f64 {
        self.sine.mean * message_factor(&self.params) * (2.0 * self.params.spec.slots as f64).sqrt()
    }

    /// Bound of slots of x, `weight + 1` uniform terms a coefficient.
    pub(super) fn raised_bound(&self) -> f64 {
        let variance = (self.params.spec.weight as f64 + 1.0) / 12.0;
        TAIL * (self.params.params.ring_degree() as f64 * variance).sqrt()
    }

    /// Bound of coefficients of a message under random signs.
    pub(super) fn coefficient_bound(&self) -> f64 {
        TAIL / (self.params.spec.slots as f64).sqrt()
    }

    /// sd after every step, in ring units: enter, raise, to coefficients, sine, to slots.
    pub(super) fn chain(&self, c: Entry) -> [f64; 5] {
        let (params, ckks) = (&self.params, &self.params.params);
        let noise = ckks.noise();
        let prime = ckks.data_prime(1) as f64;
        let rotated = |sd: f64, level: Level| {
            let switch = noise.switching(digit_ratio2(ckks, level));
            independent_sum(independent_sum(sd, switch), noise.part_rounding(2))
        };

        // The sum of a message and its conjugate, at twice the scale.
        let (twice, sum) = (2.0 * c.scale, c.sd + rotated(c.sd, params.entry_level()));
        let phases = params.entry_scale() * prime / (twice * c.size);
        let encoded = noise.rounding() + noise.transform(phases * PHASE);
        let product = noise.product((c.bound * twice, sum), (phases * PHASE, encoded));
        let enter = independent_sum(product / prime, noise.part_rounding(2));
        let raised = independent_sum(enter, raise::noise(params));

        let (mut sd, mut scale, mut by) = (raised, ckks.data_prime(0) as f64, params.spec.slots);
        while by < ckks.slots() {
            sd += rotated(sd, ckks.max_level());
            (scale, by) = (2.0 * scale, 2 * by);
        }
        let mut bound = self.raised_bound();
        for s in &self.to_coefficients {
            sd = s.noise(ckks, sd, bound, scale);
            (scale, bound) = (scale * s.scale / ckks.data_prime(s.level.0 - 1) as f64, bound * s.norm());
        }
        let coefficients = sd;

        sd += rotated(sd, params.sine_level());
        let sine = independent_sum(sd / scale * self.sine.slope, self.sine.own) * self.sine.scale;

        (sd, scale, bound) = (sine, self.sine.scale / message_factor(params), self.coefficient_bound());
        for s in &self.to_slots {
            sd = s.noise(ckks, sd, bound, scale);
            (scale, bound) = (scale * s.scale / ckks.data_prime(s.level.0 - 1) as f64, bound * s.norm());
        }
        if self.rest() != 0 {
            sd = rotated(sd, params.fresh_level());
        }
        sd += rotated(sd, params.fresh_level());
        [enter, raised, coefficients, sine, sd]
    }
}
