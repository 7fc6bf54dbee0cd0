//! What the sine does to errors, and its own: the circuit on numbers, disturbed at one step after the other (`docs/bootstrapping.md`).

use super::sine::{run, Machine};
use super::{message_factor, BootstrapParams};
use crate::ckks::noise::independent_sum;
use crate::ckks::switching::digit_ratio2;
use crate::ckks::CkksError;

/// How far a step is moved to see what becomes of it.
const NUDGE: f64 = 1e-7;

/// Numbers in the place of a ciphertext's slots.
#[derive(Clone)]
struct Numbers {
    depth: usize,
    scale: f64,
    at: Vec<f64>,
}

/// Runs the circuit; step `moved` (0: the input) is off by [`NUDGE`].
struct Model<'a> {
    params: &'a BootstrapParams,
    moved: Option<usize>,
    /// sd of the error that each step adds, relative to 1.
    added: Vec<f64>,
}

impl Model<'_> {
    fn prime(&self, depth: usize) -> f64 {
        self.params.params.data_prime(self.params.sine_level().0 - depth) as f64
    }

    /// A result one level below `above`, with the error of a division, after a switch or not.
    fn step(&mut self, above: usize, raised: f64, mut at: Vec<f64>, switched: bool) -> Numbers {
        let (noise, depth) = (self.params.params.noise(), above + 1);
        let scale = raised / self.prime(depth);
        let level = crate::ckks::Level(self.params.sine_level().0 - above);
        let switch = if switched {
            noise.switching(digit_ratio2(&self.params.params, level)) / self.prime(depth)
        } else {
            0.0
        };
        self.added.push(independent_sum(switch, noise.part_rounding(2)) / scale);
        if self.moved == Some(self.added.len()) {
            at.iter_mut().for_each(|x| *x += NUDGE);
        }
        Numbers { depth, scale, at }
    }
}

fn each(a: &Numbers, b: &Numbers, f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    a.at.iter().zip(&b.at).map(|(x, y)| f(*x, *y)).collect()
}

impl Machine for Model<'_> {
    type V = Numbers;

    fn plus(&mut self, v: &Numbers, number: f64) -> Result<Numbers, CkksError> {
        Ok(Numbers { at: v.at.iter().map(|x| x + number).collect(), ..*v })
    }
    fn depth(&self, v: &Numbers) -> usize {
        v.depth
    }
    fn twice_product(
        &mut self,
        a: &Numbers,
        b: &Numbers,
        minus: Option<&Numbers>,
    ) -> Result<Numbers, CkksError> {
        let mut at = each(a, b, |x, y| 2.0 * x * y);
        at.iter_mut().enumerate().for_each(|(i, v)| *v -= minus.map_or(1.0, |m| m.at[i]));
        Ok(self.step(a.depth.max(b.depth), a.scale * b.scale, at, true))
    }
    fn product(&mut self, q: &Numbers, t: &Numbers) -> Result<Numbers, CkksError> {
        let at = each(q, t, |x, y| x * y);
        Ok(self.step(q.depth.max(t.depth), q.scale * t.scale, at, true))
    }
    fn sum(
        &mut self,
        products: &[(Numbers, &Numbers)],
        terms: &[(f64, &Numbers)],
        constant: f64,
        depth: usize,
        scale: f64,
    ) -> Result<Numbers, CkksError> {
        let count =
            products.iter().map(|(q, _)| q).chain(terms.iter().map(|(_, t)| *t)).map(|v| v.at.len()).max();
        let at = |i: usize| {
            constant
                + terms.iter().map(|(c, t)| c * t.at[i]).sum::<f64>()
                + products.iter().map(|(q, t)| q.at[i] * t.at[i]).sum::<f64>()
        };
        let at = (0..count.unwrap_or(0)).map(at).collect();
        let raised = scale * self.prime(depth);
        let mut out = self.step(depth - 1, raised, at, !products.is_empty());
        out.scale = scale;
        Ok(out)
    }
    fn aim(&self, t: &Numbers, depth: usize, scale: f64) -> f64 {
        scale * self.prime(depth) / t.scale
    }
    fn scaled_and_one(&mut self, v: &Numbers, by: f64) -> Result<Numbers, CkksError> {
        let at = v.at.iter().map(|x| x * by + 1.0).collect();
        Ok(Numbers { at, depth: v.depth, scale: v.scale / by })
    }
}

/// What the sine's circuit does to a slot with one integer and message.
struct Point {
    /// How often it occurs, of all.
    share: f64,
    /// `d result / d u`.
    slope: f64,
    /// sd of what the circuit's own steps add to the result.
    own: f64,
}

/// What the sine's circuit gives for an input of a scale.
pub(super) struct SineError {
    points: Vec<Point>,
    /// Largest distance of the circuit from `2 pi (x - round(x)) / a` for messages within 1.
    pub(super) off: f64,
}

impl SineError {
    /// sd of the result for an input with error `sd`, in the slots where it is largest.
    pub(super) fn largest(&self, sd: f64) -> f64 {
        self.points.iter().map(|p| independent_sum(sd * p.slope, p.own)).fold(0.0, f64::max)
    }

    /// The same, root mean square over the integers that occur.
    pub(super) fn mean(&self, sd: f64) -> f64 {
        self.points.iter().map(|p| p.share * independent_sum(sd * p.slope, p.own).powi(2)).sum::<f64>().sqrt()
    }
}

/// The scale of the interpolant's value from which the circuit's result has scale `wanted`. The result's scale is a power of it times what primes make of it,
/// so Newton's steps are exact but for roundings.
pub(super) fn interpolant_scale(params: &BootstrapParams, input: f64, wanted: f64) -> Result<f64, CkksError> {
    let sine = &params.spec.sine;
    // Doublings square it, and the arcsine takes its third power.
    let power = 3.0 * f64::from(sine.doublings).exp2();
    let mut scale = input;
    for _ in 0..4 {
        let mut model = Model { params, moved: None, added: Vec::new() };
        let none = Numbers { depth: 0, scale: input, at: Vec::new() };
        let out = run(&mut model, (sine, params.arcsine().1), none, scale)?;
        scale *= (wanted / out.scale).powf(1.0 / power);
    }
    Ok(scale)
}

/// Runs the circuit on integers up to the range with their probabilities, and messages up to 1.
pub(super) fn of_sine(params: &BootstrapParams, scale: f64) -> Result<SineError, CkksError> {
    let sine = &params.spec.sine;
    let variance = (params.spec.weight as f64 + 1.0) / 12.0;
    let parts: Vec<f64> = (-12..=12).map(|k| f64::from(k) / 12.0).collect();
    let (a, r) = params.arcsine();
    let (mut x, mut weight, mut truth) = (Vec::new(), Vec::new(), Vec::new());
    for whole in -i64::from(sine.range)..=i64::from(sine.range) {
        for t in &parts {
            let part = t * params.fraction();
            x.push((whole as f64 + part) / sine.width());
            weight.push((-(whole as f64).powi(2) / (2.0 * variance)).exp());
            truth.push(2.0 * std::f64::consts::PI * part / a);
        }
    }
    let wanted = params.fresh_scale() * message_factor(params, params.entry_scale());
    let inner = interpolant_scale(params, scale, wanted)?;
    let attempt = |moved: Option<usize>| -> Result<(Numbers, Vec<f64>), CkksError> {
        let mut model = Model { params, moved, added: Vec::new() };
        let mut at = x.clone();
        if moved == Some(0) {
            at.iter_mut().for_each(|u| *u += NUDGE);
        }
        let out = run(&mut model, (sine, r), Numbers { depth: 0, scale, at }, inner)?;
        Ok((out, model.added))
    };
    let (still, added) = attempt(None)?;
    let total: f64 = weight.iter().sum();
    let mut points: Vec<Point> =
        weight.iter().map(|w| Point { share: w / total, slope: 0.0, own: 0.0 }).collect();
    for moved in 0..=added.len() {
        let slopes = each(&attempt(Some(moved))?.0, &still, |a, b| (a - b) / NUDGE);
        for (p, slope) in points.iter_mut().zip(slopes) {
            match moved.checked_sub(1) {
                None => p.slope = slope.abs(),
                Some(step) => p.own = independent_sum(p.own, added[step] * slope),
            }
        }
    }
    let off = still.at.iter().zip(&truth).map(|(a, t)| (a - t).abs()).fold(0.0, f64::max);
    Ok(SineError { points, off })
}

/// log2 of a bound of the probability that some integer of a bootstrap leaves the sine's range: `2 min_t E[exp(t S)] exp(-t (K + 1/2))` for each of the
/// n coefficients that are used, S a sum of `weight + 1` numbers uniform in [-1/2, 1/2] (`docs/bootstrapping.md`).
#[must_use]
pub(super) fn failure_bits(params: &BootstrapParams) -> f64 {
    let (terms, limit) = (params.spec.weight as f64 + 1.0, f64::from(params.spec.sine.range) + 0.5);
    if limit >= terms / 2.0 {
        return f64::NEG_INFINITY;
    }
    let exponent = |t: f64| terms * ((t / 2.0).sinh() / (t / 2.0)).ln() - t * limit;
    let least = (1..4000).map(|k| exponent(f64::from(k) / 20.0)).fold(f64::INFINITY, f64::min);
    least / std::f64::consts::LN_2 + 1.0 + (params.spec.slots as f64).log2()
}
