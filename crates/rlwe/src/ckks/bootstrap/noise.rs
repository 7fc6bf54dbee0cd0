//! What the sine does to errors, and its own: the circuit on numbers, disturbed at one step after the other (`docs/bootstrapping.md`).

use super::sine::{run, Machine};
use super::BootstrapParams;
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
    fn sixth_and_one(&mut self, v: &Numbers) -> Result<Numbers, CkksError> {
        Ok(Numbers { at: v.at.iter().map(|x| x / 6.0 + 1.0).collect(), depth: v.depth, scale: v.scale * 6.0 })
    }
}

/// What the sine's circuit gives for an input of a scale.
pub(super) struct SineError {
    /// Scale of the result.
    pub(super) scale: f64,
    /// `sqrt(mean (d result / d u)^2)` over the integers that occur.
    pub(super) slope: f64,
    /// sd of what the circuit's own steps add to a result.
    pub(super) own: f64,
    /// Root mean square distance of the circuit from `2 pi (x - round(x))`, for fractions of sd [`fraction`].
    pub(super) mean: f64,
}

/// sd of coefficients of a message modulo q_0, over q_0: slots of magnitude 1 under random signs.
pub(super) fn fraction(params: &BootstrapParams) -> f64 {
    let entry = params.entry_scale() / params.params.data_prime(0) as f64;
    // n slots of one real number each give 2 n coefficients of variance 1 / (2 n); complex ones of modulus 1 the same.
    entry / (2.0 * params.spec.slots as f64).sqrt()
}

/// Runs the circuit on integers up to the range with their probabilities, and fractions of normal sizes.
pub(super) fn of_sine(params: &BootstrapParams, scale: f64) -> Result<SineError, CkksError> {
    let sine = &params.spec.sine;
    let variance = (params.spec.weight as f64 + 1.0) / 12.0;
    // Gauss-Hermite would do as well: normal fractions by their mid-quantiles.
    let parts: Vec<f64> = (-12..=12).map(|k| f64::from(k) / 4.0).collect();
    let (mut x, mut weight, mut truth) = (Vec::new(), Vec::new(), Vec::new());
    for whole in -i64::from(sine.range)..=i64::from(sine.range) {
        for t in &parts {
            let part = t * fraction(params);
            x.push((whole as f64 + part) / sine.width());
            weight.push((-(whole as f64).powi(2) / (2.0 * variance) - t * t / 2.0).exp());
            truth.push(2.0 * std::f64::consts::PI * part);
        }
    }
    let total: f64 = weight.iter().sum();
    let mean = |v: &mut dyn Iterator<Item = f64>| {
        (v.zip(&weight).map(|(d, w)| d * d * w).sum::<f64>() / total).sqrt()
    };
    let attempt = |moved: Option<usize>| -> Result<(Numbers, Vec<f64>), CkksError> {
        let mut model = Model { params, moved, added: Vec::new() };
        let mut at = x.clone();
        if moved == Some(0) {
            at.iter_mut().for_each(|u| *u += NUDGE);
        }
        let out = run(&mut model, sine, Numbers { depth: 0, scale, at }, scale)?;
        Ok((out, model.added))
    };
    let (still, added) = attempt(None)?;
    let slope_of = |moved: usize| -> Result<f64, CkksError> {
        let (out, _) = attempt(Some(moved))?;
        Ok(mean(&mut each(&out, &still, |a, b| (a - b) / NUDGE).into_iter()))
    };
    let mut own = 0.0f64;
    for (i, sd) in added.iter().enumerate() {
        own = independent_sum(own, sd * slope_of(i + 1)?);
    }
    let off: Vec<f64> = still.at.iter().zip(&truth).map(|(a, t)| a - t).collect();
    Ok(SineError { scale: still.scale, slope: slope_of(0)?, own, mean: mean(&mut off.iter().copied()) })
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
