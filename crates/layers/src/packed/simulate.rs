//! The circuit on level, scale, bound and error alone.

use super::channels::Channels;
use super::circuit::{LinearOp, Slope};
use super::cost::Counts;
use super::machine::Machine;
use super::PackedError;
use hushnet_rlwe::batch::TAIL;
use hushnet_rlwe::ckks::bootstrap::{size_of, BootstrapDesign};
use hushnet_rlwe::ckks::{CkksError, CkksParams, Galois, Level, SCALE_TOLERANCE};
use std::collections::BTreeMap;

/// A program with bootstraps without their design.
pub(super) fn no_bootstrap() -> PackedError {
    PackedError::Spec("the parameters of this network have no bootstrap".into())
}

/// Deviations of the expected error.
const SIGMAS: f64 = 6.0;

/// What is known of a ciphertext before there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shadow {
    /// Level.
    pub level: usize,
    /// Scale.
    pub scale: f64,
    /// Bound of the message.
    pub bound: f64,
    /// Three parts.
    pub product: bool,
    /// sd bound of slot errors whatever their dependence (`docs/ckks.md`), ring units.
    pub worst: f64,
    /// Usual magnitude of the message: largest root mean square of an element.
    pub usual: f64,
    /// sd of slot errors taken as independent, for average keys.
    pub typical: f64,
    /// As `typical`, with usual magnitudes in the place of bounds, of the channel whose is largest.
    pub expected: f64,
    /// How it is shared out among channels, see `packed::channels`.
    pub shares: usize,
    /// `worst` without what encoding plaintexts rounds: the error against the circuit on the encoded plaintexts, which is what a
    /// flood must hide.
    pub hidden: f64,
}

/// A summary of one operation's result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Level of the result.
    pub level: usize,
    /// Its scale.
    pub scale: f64,
    /// log2 of its scale.
    pub scale_bits: f64,
    /// sd bound of its error before any flood, in ring units.
    pub sd: f64,
    /// Error that no slot exceeds but with probability 2^-40, in units of the values.
    pub worst: f64,
    /// `TAIL` times the typical deviation.
    pub typical: f64,
    /// Six expected deviations: usual magnitudes, independent errors.
    pub expected: f64,
    /// As `worst`, without the rounding of encoded plaintexts.
    pub hidden: f64,
    /// Bits of the flood that is added after it.
    pub flood_bits: Option<u32>,
}

/// Predicts.
pub(super) struct Simulator<'a> {
    params: &'a CkksParams,
    width: usize,
    design: Option<&'a BootstrapDesign>,
    /// Operations so far.
    pub counts: Counts,
    /// Highest level at which every rotation is used.
    pub rotations: BTreeMap<i64, usize>,
    /// Highest level of any key switch.
    pub key_level: usize,
    /// Per operation, its result.
    pub outcomes: Vec<Outcome>,
    /// When set, collects the scale of every linear operation's input.
    pub watch: Option<Vec<(usize, f64)>>,
    /// Most ciphertext words held at once by a linear operation.
    pub words: usize,
    channels: Channels,
}

impl<'a> Simulator<'a> {
    /// For parameters that need not be secure; `design` of programs with bootstraps.
    #[must_use]
    pub(super) fn new(params: &'a CkksParams, width: usize, design: Option<&'a BootstrapDesign>) -> Self {
        Self {
            params,
            width,
            design,
            counts: Counts::default(),
            rotations: BTreeMap::new(),
            key_level: 0,
            outcomes: Vec::new(),
            watch: None,
            words: 0,
            channels: Channels::default(),
        }
    }

    /// A fresh encryption.
    #[must_use]
    pub(super) fn fresh(&mut self, level: usize, scale: f64, (bound, usual): (f64, f64)) -> Shadow {
        self.counts.encryptions += 1;
        let level = level * self.width;
        let noise = self.params.noise();
        let sd = noise.fresh().hypot(noise.rounding() + noise.transform(bound * scale));
        let hidden = noise.fresh();
        let product = false;
        Shadow {
            level,
            scale,
            bound,
            usual,
            product,
            worst: sd,
            typical: sd,
            expected: sd,
            hidden,
            shares: 0,
        }
    }

    /// Growth of the rounding error by the divisions of one level: earlier ones are divided by later primes.
    fn divisions(&self) -> f64 {
        if self.width == 1 {
            1.0
        } else {
            1.0 + 2f64.powi(-20)
        }
    }

    /// Ratio of average to worst slot norms of keys.
    fn average(&self) -> f64 {
        let n = self.params.ring_degree() as f64;
        1.0 / ((n / 2.0).ln() + hushnet_rlwe::ckks::noise::KEY_SLACK).sqrt()
    }

    fn level_of(&self, level: usize) -> Result<Level, PackedError> {
        Ok(self.params.level(level)?)
    }

    fn capacity(&self, c: Shadow) -> Result<Shadow, PackedError> {
        let modulus_bits = self.params.modulus_bits(self.level_of(c.level)?);
        if !(c.scale.is_finite() && c.scale >= 1.0) {
            return Err(CkksError::BadScale.into());
        }
        if c.bound.log2() + c.scale.log2() >= modulus_bits - 1.0 {
            return Err(CkksError::Capacity {
                value_bits: c.bound.log2(),
                scale_bits: c.scale.log2(),
                modulus_bits,
                level: c.level,
            }
            .into());
        }
        // A slot that is decrypted is a sum of at most N coefficients below Q, so no error is larger. Bounds of errors that double at every product
        // stay numbers for it.
        let most = ((self.params.ring_degree() as f64).log2() + modulus_bits).exp2();
        let [worst, typical, hidden] = [c.worst, c.typical, c.hidden].map(|e| e.min(most));
        Ok(Shadow { worst, typical, hidden, ..c })
    }

    /// Adds the errors of a key switch at a level (before rounding).
    fn switching(&mut self, level: usize) -> Result<(f64, f64), PackedError> {
        self.key_level = self.key_level.max(level);
        let sd = self.params.switching_noise(self.level_of(level)?)?;
        Ok((sd, sd * self.average()))
    }

    fn rounding(&self) -> (f64, f64) {
        let sd = self.params.noise().part_rounding(2);
        (sd, sd * self.average())
    }

    fn rotation(&mut self, steps: i64, level: usize) {
        let steps = steps.rem_euclid(self.params.slots() as i64);
        let known = self.rotations.entry(steps).or_insert(0);
        *known = (*known).max(level);
    }

    /// What holds for all ciphertexts that a linear operation reads.
    fn joined(&mut self, inputs: &[Shadow]) -> Shadow {
        let (carried, shares) =
            self.channels.largest(&inputs.iter().map(|c| (c.expected, c.shares)).collect::<Vec<_>>());
        inputs.iter().fold(inputs[0], |a, c| Shadow {
            worst: a.worst.max(c.worst),
            typical: a.typical.max(c.typical),
            expected: carried,
            shares,
            hidden: a.hidden.max(c.hidden),
            bound: a.bound.max(c.bound),
            usual: a.usual.max(c.usual),
            ..a
        })
    }

    fn product(&mut self, a: &Shadow, b: &Shadow) -> Result<Shadow, PackedError> {
        let noise = self.params.noise();
        let (ra, rb) = (a.bound * a.scale, b.bound * b.scale);
        let shares = self.channels.larger(a.shares, b.shares);
        self.capacity(Shadow {
            level: a.level.min(b.level),
            scale: a.scale * b.scale,
            bound: a.bound * b.bound,
            // Of normal values: E x^4 = 3 (E x^2)^2.
            usual: (3f64.sqrt() * a.usual * b.usual).min(a.bound * b.bound),
            product: true,
            worst: noise.product((ra, a.worst), (rb, b.worst)),
            typical: noise.product((ra, a.typical), (rb, b.typical)),
            expected: noise.product((a.usual * a.scale, a.expected), (b.usual * b.scale, b.expected)),
            shares,
            hidden: noise.product((ra, a.hidden), (rb, b.hidden)),
        })
    }
}

impl Machine for Simulator<'_> {
    type C = Shadow;

    fn step(&self, level: usize) -> f64 {
        (level * self.width..(level + 1) * self.width).map(|i| self.params.data_prime(i) as f64).product()
    }
    fn scale(&self, c: &Shadow) -> f64 {
        c.scale
    }
    fn level(&self, c: &Shadow) -> usize {
        c.level / self.width
    }
    fn is_product(&self, c: &Shadow) -> bool {
        c.product
    }
    fn bounded(&mut self, c: Shadow, bound: f64, usual: f64) -> Result<Shadow, PackedError> {
        self.capacity(Shadow { bound, usual, ..c })
    }
    fn drop_to(&mut self, c: &Shadow, level: usize) -> Result<Shadow, PackedError> {
        let level = level * self.width;
        if c.level < level {
            return Err(CkksError::LevelTooLow { what: "a value", got: c.level, needed: level }.into());
        }
        self.capacity(Shadow { level, ..*c })
    }
    fn add_constant(&mut self, c: &Shadow, v: f64) -> Result<Shadow, PackedError> {
        let shares = self.channels.raised((c.expected, c.shares), 0.5);
        self.capacity(Shadow {
            bound: c.bound + v.abs(),
            usual: c.usual + v.abs(),
            worst: c.worst + 0.5,
            typical: c.typical + 0.5,
            expected: c.expected + 0.5,
            shares,
            ..*c
        })
    }
    fn mul_constant(&mut self, c: &Shadow, v: f64, scale: f64) -> Result<Shadow, PackedError> {
        self.counts.constant_products += 1;
        let (size, ring) = (v.abs() * scale, c.bound * c.scale);
        let grown = |sd: f64| sd * (size + 0.5) + ring * 0.5;
        let (carried, fixed) = (c.expected * (size + 0.5), c.usual * c.scale * 0.5);
        let shares = self.channels.raised((carried, c.shares), fixed);
        let out = Shadow {
            scale: c.scale * scale,
            bound: c.bound * v.abs(),
            usual: c.usual * v.abs(),
            worst: grown(c.worst),
            typical: grown(c.typical),
            // The constant's rounding is an error of the scale, a fixed one of at most half a unit.
            expected: carried + fixed,
            shares,
            hidden: c.hidden * (size + 0.5),
            ..*c
        };
        if scale < 1.0 {
            return Err(CkksError::BadScale.into());
        }
        self.capacity(out)
    }
    fn relabel(&mut self, c: Shadow, v: f64) -> Result<Shadow, PackedError> {
        let v = v.abs();
        self.capacity(Shadow { scale: c.scale / v, bound: c.bound * v, usual: c.usual * v, ..c })
    }
    fn add(&mut self, a: &Shadow, b: &Shadow) -> Result<Shadow, PackedError> {
        let off = (a.scale / b.scale - 1.0).abs();
        if off > SCALE_TOLERANCE {
            let (left, right) = (a.scale.log2(), b.scale.log2());
            return Err(CkksError::ScaleMismatch { left, right, missing: (left - right).abs() }.into());
        }
        let (sum, shares) = self.channels.sum(&[(a.expected, a.shares), (b.expected, b.shares)]);
        let fixed = off * b.usual * b.scale;
        let shares = self.channels.raised((sum, shares), fixed);
        self.capacity(Shadow {
            level: a.level.min(b.level),
            scale: a.scale,
            bound: a.bound + b.bound,
            usual: a.usual + b.usual,
            product: a.product || b.product,
            worst: a.worst + b.worst + off * b.bound * b.scale,
            typical: a.typical.hypot(b.typical) + off * b.bound * b.scale,
            expected: sum + fixed,
            shares,
            hidden: a.hidden + b.hidden + off * b.bound * b.scale,
        })
    }
    fn square(&mut self, c: &Shadow) -> Result<Shadow, PackedError> {
        self.counts.ciphertext_products += 1;
        self.product(c, c)
    }
    fn mul(&mut self, a: &Shadow, b: &Shadow) -> Result<Shadow, PackedError> {
        self.counts.ciphertext_products += 1;
        self.product(a, b)
    }
    fn rescale(&mut self, c: &Shadow) -> Result<Shadow, PackedError> {
        if c.level <= self.width {
            return Err(CkksError::NoLevelLeft.into());
        }
        let q = self.step(c.level / self.width - 1);
        self.counts.rescalings += self.width - 1;
        let rounding = self.rounding();
        let (mut worst, mut typical, mut hidden) = (c.worst, c.typical, c.hidden);
        let mut added_here = 0.0;
        if c.product {
            self.counts.relinearisations += 1;
            let added = self.switching(c.level)?;
            (worst, typical, hidden) = (worst.hypot(added.0), typical.hypot(added.1), hidden.hypot(added.0));
            added_here = added.1;
        } else {
            self.counts.rescalings += 1;
        }
        let own = (added_here / q).hypot(rounding.1 * self.divisions());
        let (expected, shares) = self.channels.sum(&[(c.expected / q, c.shares), (own, 0)]);
        Ok(Shadow {
            level: c.level - self.width,
            scale: c.scale / q,
            product: false,
            expected,
            shares,
            worst: (worst / q).hypot(rounding.0 * self.divisions()),
            typical: (typical / q).hypot(rounding.1 * self.divisions()),
            hidden: (hidden / q).hypot(rounding.0 * self.divisions()),
            ..*c
        })
    }

    fn bootstrap(&mut self, c: &Shadow) -> Result<Shadow, PackedError> {
        let design = self.design.ok_or_else(no_bootstrap)?;
        let params = design.params();
        self.counts.bootstraps += 1;
        for (element, level) in params.rotations() {
            match element {
                Galois::Rotate(steps) => self.rotation(steps, level.get()),
                Galois::Conjugate => (),
            }
        }
        self.key_level = self.params.max_level().get();
        // What comes in is a part of the message; what is added is relative to the power of two that the message is divided by.
        let (scale, size) = (params.fresh_scale(), size_of(c.bound));
        let own = design.error(c.scale, size)?;
        let worst = own.noise.hypot(own.approximation) * size;
        let usual = (own.mean * self.average()).hypot(own.approximation) * size;
        let low = self.drop_to(c, params.entry_level().get())?;
        let (expected, shares) = self.channels.sum(&[(low.expected / low.scale, low.shares), (usual, 0)]);
        self.capacity(Shadow {
            level: params.fresh_level().get(),
            scale,
            product: false,
            worst: (low.worst / low.scale + worst) * scale,
            typical: (low.typical / low.scale).hypot(usual) * scale,
            expected: expected * scale,
            shares,
            hidden: (low.hidden / low.scale + worst) * scale,
            ..low
        })
    }

    fn linear(&mut self, at: usize, op: &LinearOp, inputs: Vec<Shadow>) -> Result<Vec<Shadow>, PackedError> {
        if let Some(list) = &mut self.watch {
            list.push((at, inputs[0].scale));
        }
        let level = op.level * self.width;
        let input = self.joined(&inputs);
        let input = self.drop_to(&input, op.level)?;
        let q = self.step(op.level - 1);
        let rounding = self.rounding();
        let work = op.rotations.work(&op.folds);
        self.counts.hoists += work.hoists;
        self.counts.hoisted_rotations += work.babies;
        self.counts.giant_rotations += work.giants;
        self.counts.plain_products += work.products;
        self.counts.fold_rotations += work.folds;
        self.counts.rescalings += work.outputs * self.width;
        let (mut worst, mut typical, mut hidden) = (input.worst, input.typical, input.hidden);
        let (mut expected, mut shares) = (input.expected, input.shares);
        if work.babies > 0 {
            let added = self.switching(level)?;
            worst = worst.hypot(added.0).hypot(rounding.0);
            hidden = hidden.hypot(added.0).hypot(rounding.0);
            typical = typical.hypot(added.1).hypot(rounding.1);
            (expected, shares) = self.channels.sum(&[(expected, shares), (added.1.hypot(rounding.1), 0)]);
        }
        // What comes in, by channel of the result.
        let (led, led_shares) = self.channels.through(&op.map, (expected, shares));
        let babies: Vec<i64> = op.rotations.inputs.iter().map(|x| x.1).filter(|b| *b != 0).collect();
        babies.into_iter().for_each(|b| self.rotation(b, level));
        let mut out = Vec::with_capacity(op.rotations.outputs.len());
        let plain_scale = op.scale * q / input.scale;
        let noise = self.params.noise();
        let encoding = noise.rounding() + noise.transform(op.largest * plain_scale);
        let (ring, usual) = (input.bound * input.scale, input.usual * input.scale);
        for sums in &op.rotations.outputs {
            let terms: usize = sums.iter().map(|s| s.terms.len()).sum();
            let giants = sums.iter().filter(|s| s.giant != 0).count();
            let mut own = [(worst, ring), (typical, ring), (expected, usual)]
                .map(|(sd, size)| (terms as f64).sqrt() * (size + TAIL * sd) * encoding);
            let mut kept = 0.0f64;
            if giants > 0 {
                let added = self.switching(level)?;
                let count = (giants as f64).sqrt();
                own = [(0, added.0), (1, added.1), (2, added.1)].map(|(i, a)| own[i].hypot(a * count));
                kept = added.0 * count;
            }
            sums.iter().filter(|s| s.giant != 0).for_each(|s| self.rotation(s.giant, level));
            let rounds = self.divisions();
            let mut own = [(0, rounding.0), (1, rounding.1), (2, rounding.1)]
                .map(|(i, r)| (own[i] / q).hypot(r * rounds));
            kept = (kept / q).hypot(rounding.0 * rounds);
            for &fold in &op.folds {
                let added = self.switching(level - self.width)?;
                self.rotation(fold, level - self.width);
                own[0] = 2.0 * own[0] + added.0.hypot(rounding.0);
                kept = 2.0 * kept + added.0.hypot(rounding.0);
                for o in &mut own[1..] {
                    *o = (2f64.sqrt() * *o).hypot(added.1).hypot(rounding.1);
                }
            }
            let gain = plain_scale / q;
            // Encoded weights are larger than the weights by their rounding.
            let encoded = op.norms.0 + terms as f64 * TAIL * encoding / plain_scale;
            let all = [(led * gain, led_shares), (own[2].hypot(noise.rounding()), 0)];
            let (expected, shares) = self.channels.sum(&all);
            out.push(Shadow {
                level: level - self.width,
                scale: input.scale * plain_scale / q,
                bound: op.bound,
                usual: op.usual,
                product: false,
                worst: op.norms.0 * gain * worst + own[0] + noise.rounding(),
                typical: (op.norms.1 * gain * typical).hypot(own[1]).hypot(noise.rounding()),
                expected,
                shares,
                hidden: encoded * gain * hidden + kept,
            });
        }
        let held = (op.rotations.inputs.len() * 2
            + op.rotations.outputs.iter().map(|o| o.len() * 2).max().unwrap_or(0))
            * level
            * self.params.ring_degree();
        self.words = self.words.max(held);
        Ok(out)
    }

    fn without_error(&mut self, c: &Shadow) -> Result<Shadow, PackedError> {
        Ok(Shadow { worst: 0.0, typical: 0.0, expected: 0.0, hidden: 0.0, shares: 0, ..*c })
    }
    fn inherit(&mut self, c: Shadow, from: &Shadow, slope: Slope) -> Result<Shadow, PackedError> {
        let [most, usual] = [slope.bound, slope.usual].map(|s| s * c.scale / from.scale);
        let parts = [(c.expected, c.shares), (usual * from.expected, from.shares)];
        let (expected, shares) = self.channels.sum(&parts);
        self.capacity(Shadow {
            worst: c.worst + most * from.worst,
            typical: c.typical.hypot(most * from.typical),
            expected,
            shares,
            hidden: c.hidden + most * from.hidden,
            ..c
        })
    }

    fn done(&mut self, at: usize, outputs: &[Shadow]) -> Result<(), PackedError> {
        debug_assert_eq!(at, self.outcomes.len());
        let c = outputs.iter().copied().fold(outputs[0], |a, c| Shadow {
            worst: a.worst.max(c.worst),
            typical: a.typical.max(c.typical),
            expected: a.expected.max(c.expected),
            hidden: a.hidden.max(c.hidden),
            ..a
        });
        self.outcomes.push(Outcome {
            level: c.level / self.width,
            scale: c.scale,
            scale_bits: c.scale.log2(),
            sd: c.worst,
            worst: TAIL * c.worst / c.scale,
            typical: TAIL * c.typical / c.scale,
            expected: SIGMAS * c.expected / c.scale,
            hidden: TAIL * c.hidden / c.scale,
            flood_bits: None,
        });
        Ok(())
    }
}
