//! Fits a function to a stated error, and says what the whole evaluation in fixed point may be off by (`docs/mpc.md`, "Functions of one variable").

use super::shape::{BasisSpec, Shape, ShapeSpec};
use super::{Pieces, FINE};
use crate::error::{MpcError, Result};
use crate::ring::Ring;
use std::cell::RefCell;

/// Where a function is evaluated: integers from `low` to `high`, in units of 2^-scale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Least argument, in units of 2^-scale.
    pub low: i64,
    /// Greatest argument, in units of 2^-scale.
    pub high: i64,
    /// Fractional bits of arguments, at most 40.
    pub scale: u32,
}

impl Interval {
    /// The integers whose values lie between two real numbers.
    ///
    /// # Errors
    /// `Parameter` when there is none, a number is not finite, or the scale is above 40.
    pub fn between(low: f64, high: f64, scale: u32) -> Result<Self> {
        let unit = |x: f64| x * 2f64.powi(scale.min(64) as i32);
        if scale > 40 || !(unit(low).abs() < 2f64.powi(46) && unit(high).abs() < 2f64.powi(46)) {
            return Err(MpcError::Parameter {
                what: "ends of a function's interval and fractional bits",
                got: scale.into(),
                limit: 40,
            });
        }
        let (low, high) = (unit(low).ceil() as i64, unit(high).floor() as i64);
        if low > high {
            return Err(MpcError::Parameter { what: "numbers in a function's interval", got: 0, limit: 1 });
        }
        Ok(Self { low, high, scale })
    }
}

/// A function in the form that [`super::spline`] evaluates.
#[derive(Clone, PartialEq, Debug)]
pub struct Spline {
    /// What both parties know: interval, segments, rings.
    pub shape: Shape,
    /// What only the holder knows: the coefficients.
    pub pieces: Pieces,
    /// Bound of |result - f(x)| over the interval and all shares.
    pub error: f64,
}

/// Places of the holder, and of the other party, at which a piece is compared with the function.
const SAMPLES: (usize, usize) = (12, 25);
/// What the largest error at the samples is multiplied by, for what lies between them.
const BETWEEN: f64 = 1.08;

/// Bits of the argument beyond what the interval needs, so that a multiplier fills the segments.
const FILLING: u32 = 4;

/// Bits of a ring that 2^`segments` segments fill when arguments are multiplied by the second number; `None` when `input` is too narrow.
pub(super) fn filled(at: Interval, input: Ring, segments: u32) -> Option<(u32, u32)> {
    let most = input.bits().min(48);
    let room = |l: u32| (1u64 << l) - (1 << (l - segments)) - 1;
    let span = (at.high - at.low) as u64;
    let least = (segments..=most).find(|&l| room(l) >= span)?;
    let bits = (least + FILLING).min(most);
    Some((bits, (room(bits) / span.max(1)).min(1 << (FILLING + 1)) as u32))
}

/// T_m(t).
fn chebyshev(m: usize, t: f64) -> f64 {
    (0..m).fold((1.0, t), |(a, b), _| (b, 2.0 * t * b - a)).0
}

/// The coefficients of T_0, ..., T_n of the polynomial that meets g at the n + 1 zeros of T_(n+1).
pub(super) fn interpolate(n: usize, g: impl Fn(f64) -> f64) -> Vec<f64> {
    let zeros = || (0..=n).map(|i| (std::f64::consts::PI * (i as f64 + 0.5) / (n as f64 + 1.0)).cos());
    let values: Vec<(f64, f64)> = zeros().map(|t| (t, g(t))).collect();
    let coefficient = |m: usize| {
        let sum: f64 = values.iter().map(|(t, v)| v * chebyshev(m, *t)).sum();
        sum * if m == 0 { 1.0 } else { 2.0 } / (n as f64 + 1.0)
    };
    (0..=n).map(coefficient).collect()
}

/// The same polynomial in powers of y = (t + 1)/2.
pub(super) fn powers(chebyshev: &[f64]) -> Vec<f64> {
    let n = chebyshev.len();
    let (mut last, mut next) = (vec![0.0; n + 1], vec![0.0; n + 1]);
    // T_0 and T_1 = 2y - 1.
    last[0] = 1.0;
    (next[0], next[1]) = (-1.0, 2.0);
    let mut sum = vec![0.0; n];
    for c in chebyshev {
        sum.iter_mut().zip(&last).for_each(|(s, l)| *s += c * l);
        let mut after: Vec<f64> = next.iter().zip(&last).map(|(n, l)| -2.0 * n - l).collect();
        (1..=n).for_each(|i| after[i] += 4.0 * next[i - 1]);
        last = std::mem::replace(&mut next, after);
    }
    sum
}

pub(super) fn value(powers: &[f64], y: f64) -> f64 {
    powers.iter().rev().fold(0.0, |sum, c| sum * y + c)
}

/// The pieces in floating point, and what was measured of them.
struct Piecewise {
    degree: usize,
    segments: u32,
    multiplier: u32,
    /// log2 of the number of multiplied arguments.
    bits: u32,
    /// A multiplied argument's unit.
    unit: f64,
    /// For each segment and degree, a polynomial in the holder's place.
    pieces: Vec<Vec<Vec<f64>>>,
    /// Least and greatest coefficient of each degree.
    ranges: Vec<(f64, f64)>,
    /// Of the function on the interval.
    values: (f64, f64),
    slope: f64,
    error: f64,
}

/// A function of many arguments at once: as many values.
type Batched<'a> = &'a dyn Fn(&[f64]) -> Vec<f64>;

/// What a fit is looked at for.
#[derive(Clone, Copy)]
struct Limit {
    /// Of so many pieces the first.
    step: usize,
    /// A fit that is not below this error is none.
    error: f64,
}

/// Fits of many more pieces than two to the power of this are tried on so many first.
const PROBED: u32 = 3;

impl Piecewise {
    /// With a function that is called once for all arguments: they do not depend on its values, so a first pass lists them.
    fn batched(
        f: Batched<'_>,
        at: (Interval, Ring),
        (degree, segments): (usize, u32),
        limit: Limit,
    ) -> Option<Self> {
        let asked = RefCell::new(Vec::new());
        Self::new(
            &|x| {
                asked.borrow_mut().push(x);
                0.0
            },
            at,
            (degree, segments),
            limit,
        )?;
        let values = f(&asked.into_inner()).into_iter();
        let values = RefCell::new(values);
        // Fewer values than arguments leave the rest without one: the fit is refused.
        Self::new(&|_| values.borrow_mut().next().unwrap_or(f64::NAN), at, (degree, segments), limit)
    }

    fn new(
        f: &dyn Fn(f64) -> f64,
        (at, input): (Interval, Ring),
        (degree, segments): (usize, u32),
        limit: Limit,
    ) -> Option<Self> {
        let (bits, multiplier) = filled(at, input, segments)?;
        let length = 2f64.powi((bits - segments) as i32);
        let unit = 2f64.powi(-(at.scale as i32)) / f64::from(multiplier);
        let (first, last) = (at.low as f64 * f64::from(multiplier), at.high as f64 * f64::from(multiplier));
        // The argument `units` of a segment's length behind the holder's first piece.
        let point = |units: f64| (first + (units - 1.0) * length - 0.5) * unit;
        let inside = |units: f64| (first * unit..=last * unit).contains(&point(units));
        let mut this = Self {
            degree,
            segments,
            multiplier,
            bits,
            unit,
            pieces: Vec::with_capacity(1 << segments),
            ranges: vec![(f64::INFINITY, f64::NEG_INFINITY); degree + 1],
            values: (f64::INFINITY, f64::NEG_INFINITY),
            slope: 0.0,
            error: 0.0,
        };
        // Two segments beyond the interval the function stands still.
        let (low, high) = (first * unit, last * unit);
        let beyond = 2.0 * length * unit;
        let f = |x: f64| f(x.clamp(low - beyond, high + beyond));
        for end in [f(low), f(high)] {
            this.values = (this.values.0.min(end), this.values.1.max(end));
        }
        let mut sound = true;
        for piece in (0..1usize << segments).step_by(limit.step) {
            let at = |y: f64, t: f64| piece as f64 + y + f64::midpoint(t, 1.0);
            if point(at(0.0, -1.0)) > high || point(at(1.0, 1.0)) < low {
                this.pieces.push((0..=degree).map(|m| vec![0.0; degree + 3 - m.min(1)]).collect());
                continue;
            }
            let coefficient = |m: usize, y: f64| interpolate(degree, |t| f(point(at(y, t))))[m];
            let polynomials: Vec<Vec<f64>> = (0..=degree)
                .map(|m| {
                    powers(&interpolate(degree + 2 - m.min(1), |t| coefficient(m, f64::midpoint(t, 1.0))))
                })
                .collect();
            // A function that is not defined two segments beyond the interval has no such polynomial.
            sound &= polynomials.iter().flatten().all(|c| c.is_finite());
            for i in 0..=SAMPLES.0 {
                let y = i as f64 / SAMPLES.0 as f64;
                let here: Vec<f64> = polynomials.iter().map(|p| value(p, y)).collect();
                for (c, range) in here.iter().zip(&mut this.ranges) {
                    *range = (range.0.min(*c), range.1.max(*c));
                }
                for j in 0..=SAMPLES.1 {
                    let t = 2.0 * j as f64 / SAMPLES.1 as f64 - 1.0;
                    if !inside(at(y, t)) {
                        continue;
                    }
                    let exact = f(point(at(y, t)));
                    let fitted: f64 = here.iter().enumerate().map(|(m, c)| c * chebyshev(m, t)).sum();
                    this.error = this.error.max((fitted - exact).abs());
                    this.values = (this.values.0.min(exact), this.values.1.max(exact));
                    let step = 1.0 / 64.0;
                    let slope = (f(point(at(y, t) + step)) - exact).abs() / (step * length * unit);
                    this.slope = this.slope.max(slope);
                }
            }
            // Without values, as where arguments are only listed, there is no error.
            if this.error * BETWEEN >= limit.error {
                return None;
            }
            this.pieces.push(polynomials);
        }
        this.error *= BETWEEN;
        let finite = sound && this.error.is_finite() && this.slope.is_finite() && this.values.0.is_finite();
        finite.then_some(this)
    }
}

/// Numbers that a candidate may vary.
#[derive(Clone, Copy)]
struct Knobs {
    dropped: u32,
    /// Fractional bits of the table's constants.
    fraction: u32,
    guard: u32,
    /// Bits that the unit of the other coefficients is below that of the constants.
    finer: u32,
}

struct Candidate {
    spec: ShapeSpec,
    units: Vec<f64>,
    error: f64,
}

impl Piecewise {
    /// The shape with these knobs and the bound of its error: the sum that `docs/mpc.md` derives.
    fn candidate(&self, at: Interval, scale: u32, knobs: Knobs) -> Option<Candidate> {
        let Knobs { dropped, fraction, guard, finer } = knobs;
        let power = |bits: u32| 2f64.powi(-(bits as i32));
        let k = (self.bits - self.segments).checked_sub(dropped).filter(|&k| k > 0 || self.degree == 0)?;
        let inner_unit = power(fraction + guard);
        let shed = (fraction + guard).saturating_sub(scale);
        let mut error = self.error + self.slope * (2f64.powi(dropped as i32) - 1.0) / 2.0 * self.unit;
        // The constant's rounding, and that of the holder's own arithmetic.
        error += power(fraction + 1) + power(fraction + 10);
        let mut basis = Vec::new();
        let mut units = vec![power(fraction)];
        for (m, &(low, high)) in self.ranges.iter().enumerate().skip(1) {
            let most = low.abs().max(high.abs());
            let precision = match m {
                1 => k,
                _ => (1..=(m as u32 * k).min(20)).find(|&b| most * power(b) <= power(fraction + 2))?,
            };
            let finer = finer.max(guard.saturating_sub(precision));
            let unit = power(fraction + finer);
            let shift = finer + precision - guard;
            let low = (low / unit).floor() - 2.0;
            let most_stored = (high / unit).ceil() + 2.0 - low;
            if low.abs() >= 2f64.powi(32) || most_stored >= 2f64.powi(24) {
                return None;
            }
            let bits = (65 - (most_stored as u64).leading_zeros()).max(shift);
            let roundings = shift.saturating_sub(1).min(precision) + if shift > 0 { 2 } else { 0 };
            error += unit / 2.0 + power(fraction + 10) + f64::from(roundings) / 2.0 * inner_unit;
            error += if m > 1 { most * power(precision) } else { 0.0 };
            basis.push(BasisSpec { bits, precision, shift, low: low as i64 });
            units.push(unit);
        }
        error += if shed > 0 { power(scale) } else { 0.0 };
        let step = 2f64.powi(shed as i32);
        let offset = ((error - self.values.0) / inner_unit / step).ceil() * step;
        let most = (self.values.1 + error) / inner_unit + offset;
        if !(offset.abs() < 2f64.powi(40) && (1.0..2f64.powi(44)).contains(&most)) {
            return None;
        }
        let inner_bits = (65 - (most as u64).leading_zeros()).max(guard + 1).max(shed + 1);
        let spec = ShapeSpec {
            low: at.low,
            high: at.high,
            multiplier: self.multiplier,
            argument_bits: self.bits,
            segments: self.segments,
            dropped,
            inner_bits,
            guard,
            offset: offset as i64,
            shed,
            lift: scale.saturating_sub(fraction + guard),
            rate: 0,
            basis,
        };
        Some(Candidate { spec, units, error })
    }

    /// Keeps the cheapest candidate within the error, if it is cheaper than `best`.
    fn cheapest(
        &self,
        (at, scale, error): (Interval, u32, f64),
        wanted: u32,
        best: &mut Option<(u64, Spline)>,
    ) -> Result<()> {
        let room = 2.0 * (error - self.error) / (self.slope.max(1e-9) * self.unit) + 1.0;
        let most = (room.log2().floor().max(0.0) as u32).min(self.bits - self.segments);
        for dropped in most.saturating_sub(3)..=most {
            let knobs = (wanted..wanted + 4).flat_map(|fraction| {
                (1..6)
                    .flat_map(move |guard| (0..3).map(move |finer| Knobs { dropped, fraction, guard, finer }))
            });
            for c in knobs.filter_map(|k| self.candidate(at, scale, k)).filter(|c| c.error <= error) {
                let Ok(shape) = Shape::new(c.spec) else { continue };
                let price = price(&shape);
                if best.as_ref().is_none_or(|(least, _)| price < *least) {
                    let pieces = self.pieces(&shape, &c.units)?;
                    *best = Some((price, Spline { shape, pieces, error: c.error }));
                }
            }
        }
        Ok(())
    }

    /// In the units of a candidate.
    fn pieces(&self, shape: &Shape, units: &[f64]) -> Result<Pieces> {
        let orders: Vec<usize> = self.pieces[0].iter().map(|p| p.len() - 1).collect();
        let mut coefficients = Vec::new();
        for piece in &self.pieces {
            for (m, polynomial) in piece.iter().enumerate() {
                let low = if m == 0 { 0 } else { shape.spec().basis[m - 1].low };
                for (i, c) in polynomial.iter().enumerate() {
                    let fine = (c / units[m] * f64::from(1 << FINE)).round() as i64;
                    coefficients.push(if i == 0 { fine - (low << FINE) } else { fine });
                }
            }
        }
        Pieces::new(shape, orders, coefficients)
    }
}

/// Bits of a coefficient in a table, at least: what a table must cost.
const LEAST_ENTRY: u64 = 3;

/// What a shape costs: bits of a value, and a byte for every correlated OT, which is about what its time is worth.
pub(super) fn price(shape: &Shape) -> u64 {
    let spec = shape.spec();
    let table = ((1 << spec.segments) - 1) * u64::from(shape.entry_bits()) + u64::from(spec.segments);
    let terms = shape.terms.iter().chain(&shape.wraps);
    table + terms.map(|t| u64::from(t.payload.bits()) + 1 + 8).sum::<u64>() + 8 * u64::from(spec.segments)
}

impl Spline {
    /// The cheapest form of f on `at`, for shares modulo `input` or any wider ring, whose result has `scale` fractional bits and an error of at most `error`, which counts all of it: fit,
    /// coefficients, dropped bits of the argument and roundings. f must be defined on the interval and two segments beyond; where it has a corner, the fit needs shorter
    /// segments.
    ///
    /// # Errors
    /// `Parameter` when no form of at most 2^8 segments reaches the error, or the interval or scale is too large.
    pub fn fit(
        f: &dyn Fn(f64) -> f64,
        (at, input): (Interval, Ring),
        scale: u32,
        error: f64,
    ) -> Result<Self> {
        Self::fit_batched(&|x| x.iter().map(|x| f(*x)).collect(), (at, input), scale, error)
    }

    /// As [`Self::fit`], with a function of many arguments at once, in order: a planner's, which is quick for vectors.
    ///
    /// # Errors
    /// As [`Self::fit`]; also when it gives fewer values than arguments.
    pub fn fit_batched(
        f: Batched<'_>,
        (at, input): (Interval, Ring),
        scale: u32,
        error: f64,
    ) -> Result<Self> {
        if scale > 40
            || at.scale > 40
            || at.low > at.high
            || at.low.unsigned_abs().max(at.high.unsigned_abs()) >> 46 != 0
        {
            return Err(MpcError::Parameter {
                what: "fractional bits of a function",
                got: scale.into(),
                limit: 40,
            });
        }
        let wanted = (-error.log2()).ceil().clamp(0.0, 26.0) as u32;
        let mut best: Option<(u64, Self)> = None;
        for degree in 1..=3 {
            for segments in 1..=8 {
                let least = ((1 << segments) - 1) * LEAST_ENTRY * (degree as u64 + 1);
                if best.as_ref().is_some_and(|(price, _)| *price <= least) {
                    break;
                }
                // A few pieces tell of most fits that they are too coarse.
                let of = |step| Piecewise::batched(f, (at, input), (degree, segments), Limit { step, error });
                if segments > PROBED + 1 && of(1 << (segments - PROBED)).is_none() {
                    continue;
                }
                let Some(fit) = of(1) else { continue };
                fit.cheapest((at, scale, error), wanted, &mut best)?;
                // Shorter segments make the table longer, and this fit leaves the rest of the error to the roundings.
                if fit.error < error / 16.0 {
                    break;
                }
            }
        }
        best.map(|(_, spline)| spline).ok_or(MpcError::Parameter {
            what: "segments that a function needs for its error",
            got: 1 << 9,
            limit: 1 << 8,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces reach over the ends of the interval: a function that stops there has none, and no coefficient that is no number becomes zero.
    #[test]
    fn a_function_that_stops_at_the_interval_is_refused() {
        let at = (Interval { low: 1, high: 1000, scale: 10 }, Ring::new(20).unwrap());
        let from = |end: f64| Spline::fit(&|x: f64| (x - end).sqrt(), at, 10, 1e-2);
        assert!(from(0.0).is_err());
        assert!(from(-2.0).is_ok());
        assert!(Spline::fit_batched(&|x| vec![1.0; x.len() / 2], at, 10, 1e-2).is_err());
    }
}
