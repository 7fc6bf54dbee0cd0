//! Fits a function to a stated error, and says what the whole evaluation in fixed point may be off by (`docs/mpc.md`, "Functions of one variable").

use super::shape::{BasisSpec, Shape, ShapeSpec};
use super::{Pieces, FINE};
use crate::error::{MpcError, Result};
use crate::ring::Ring;

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

/// What a polynomial of order n is found by: the n + 1 zeros of T_(n+1), and T_0, ..., T_n at each and in powers.
struct Nodes {
    zeros: Vec<f64>,
    /// T_m at every zero.
    terms: Vec<Vec<f64>>,
    /// T_m in powers of y = (t + 1)/2.
    powers: Vec<Vec<f64>>,
}

impl Nodes {
    fn new(n: usize) -> Self {
        let zero = |i: usize| (std::f64::consts::PI * (i as f64 + 0.5) / (n as f64 + 1.0)).cos();
        let zeros: Vec<f64> = (0..=n).map(zero).collect();
        let terms = (0..=n).map(|m| zeros.iter().map(|t| chebyshev(m, *t)).collect()).collect();
        let (mut last, mut next) = (vec![0.0; n + 1], vec![0.0; n + 2]);
        // T_0 and T_1 = 2y - 1.
        last[0] = 1.0;
        (next[0], next[1]) = (-1.0, 2.0);
        next.truncate(n + 1);
        let mut powers = Vec::new();
        for _ in 0..=n {
            let mut after: Vec<f64> = next.iter().zip(&last).map(|(n, l)| -2.0 * n - l).collect();
            (1..=n).for_each(|i| after[i] += 4.0 * next[i - 1]);
            powers.push(std::mem::replace(&mut last, std::mem::replace(&mut next, after)));
        }
        Self { zeros, terms, powers }
    }

    /// The coefficient of T_m of the polynomial that has these values at the zeros.
    fn coefficient(&self, m: usize, values: &[f64]) -> f64 {
        let sum: f64 = values.iter().zip(&self.terms[m]).map(|(v, t)| v * t).sum();
        sum * if m == 0 { 1.0 } else { 2.0 } / values.len() as f64
    }

    /// That polynomial in powers of y.
    fn polynomial(&self, values: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; values.len()];
        for (m, powers) in self.powers.iter().enumerate() {
            let c = self.coefficient(m, values);
            sum.iter_mut().zip(powers).for_each(|(s, p)| *s += c * p);
        }
        sum
    }
}

/// The polynomial that meets g at the n + 1 zeros of T_(n+1), in powers of y = (t + 1)/2.
pub(super) fn interpolate(n: usize, g: impl Fn(f64) -> f64) -> Vec<f64> {
    let nodes = Nodes::new(n);
    nodes.polynomial(&nodes.zeros.iter().map(|t| g(*t)).collect::<Vec<_>>())
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

/// Where pieces lie, and where they are looked at.
struct Places {
    /// Arguments of a segment, and an argument's unit.
    length: f64,
    unit: f64,
    /// The least argument in such units, and both ends.
    first: f64,
    low: f64,
    high: f64,
    /// Two segments beyond the interval the function stands still.
    beyond: f64,
    /// Of the polynomials in the other party's place; in the holder's, of the constant and of the other coefficients.
    inner: Nodes,
    outer: [Nodes; 2],
}

impl Places {
    /// The argument `units` of a segment's length behind the holder's first piece.
    fn point(&self, units: f64) -> f64 {
        (self.first + (units - 1.0) * self.length - 0.5) * self.unit
    }

    fn clamped(&self, x: f64) -> f64 {
        x.clamp(self.low - self.beyond, self.high + self.beyond)
    }

    fn outside(&self, piece: usize) -> bool {
        self.point(units(piece, 0.0, -1.0)) > self.high || self.point(units(piece, 1.0, 1.0)) < self.low
    }

    /// The samples of a piece that lie in the interval, by rows of the holder's place: their columns, and units.
    fn samples(&self, piece: usize, row: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let y = row as f64 / SAMPLES.0 as f64;
        let at = move |column| (column, units(piece, y, column_place(column)));
        (0..=SAMPLES.1).map(at).filter(move |(_, at)| (self.low..=self.high).contains(&self.point(*at)))
    }

    /// Every argument at which a piece needs the function, in the order of [`Piecewise::add`].
    fn arguments(&self, piece: usize, all: &mut Vec<f64>) {
        for y in self.outer.iter().flat_map(|nodes| &nodes.zeros).map(|t| f64::midpoint(*t, 1.0)) {
            all.extend(self.inner.zeros.iter().map(|t| self.clamped(self.point(units(piece, y, *t)))));
        }
        for row in 0..=SAMPLES.0 {
            for (_, at) in self.samples(piece, row) {
                all.extend([at, at + STEP].map(|at| self.clamped(self.point(at))));
            }
        }
    }
}

/// The places of both parties, the holder's from 0 to 1 and the other's from -1 to 1, in segments.
fn units(piece: usize, y: f64, t: f64) -> f64 {
    piece as f64 + y + f64::midpoint(t, 1.0)
}

/// The other party's place at a sample.
fn column_place(column: usize) -> f64 {
    2.0 * column as f64 / SAMPLES.1 as f64 - 1.0
}

/// Of a segment, over which the slope is measured.
const STEP: f64 = 1.0 / 64.0;

impl Piecewise {
    /// With a function that is called once for all arguments: they do not depend on its values.
    fn new(
        f: Batched<'_>,
        (at, input): (Interval, Ring),
        (degree, segments): (usize, u32),
        limit: Limit,
    ) -> Option<Self> {
        let (bits, multiplier) = filled(at, input, segments)?;
        let length = 2f64.powi((bits - segments) as i32);
        let unit = 2f64.powi(-(at.scale as i32)) / f64::from(multiplier);
        let (first, last) = (at.low as f64 * f64::from(multiplier), at.high as f64 * f64::from(multiplier));
        let places = Places {
            length,
            unit,
            first,
            low: first * unit,
            high: last * unit,
            beyond: 2.0 * length * unit,
            inner: Nodes::new(degree),
            outer: [Nodes::new(degree + 2), Nodes::new(degree + 1)],
        };
        let pieces = || (0..1usize << segments).step_by(limit.step);
        let mut asked = vec![places.low, places.high];
        for piece in pieces().filter(|piece| !places.outside(*piece)) {
            places.arguments(piece, &mut asked);
        }
        let mut values = f(&asked);
        // Fewer values than arguments leave the rest without one: the fit is refused.
        values.resize(asked.len(), f64::NAN);
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
        let (ends, mut values) = values.split_at(2);
        for end in ends {
            this.values = (this.values.0.min(*end), this.values.1.max(*end));
        }
        let columns: Vec<Vec<f64>> =
            (0..=SAMPLES.1).map(|j| (0..=degree).map(|m| chebyshev(m, column_place(j))).collect()).collect();
        let mut sound = true;
        for piece in pieces() {
            if places.outside(piece) {
                this.pieces.push((0..=degree).map(|m| vec![0.0; degree + 3 - m.min(1)]).collect());
                continue;
            }
            let polynomials = this.add(&places, piece, &columns, &mut values);
            // A function that is not defined two segments beyond the interval has no such polynomial.
            sound &= polynomials.iter().flatten().all(|c| c.is_finite());
            if this.error * BETWEEN >= limit.error {
                return None;
            }
            this.pieces.push(polynomials);
        }
        this.error *= BETWEEN;
        let finite = sound && this.error.is_finite() && this.slope.is_finite() && this.values.0.is_finite();
        finite.then_some(this)
    }

    /// The polynomials of a piece, from the values at its arguments, which are taken off; what they are off by is counted.
    fn add(
        &mut self,
        places: &Places,
        piece: usize,
        columns: &[Vec<f64>],
        values: &mut &[f64],
    ) -> Vec<Vec<f64>> {
        let mut next = |count: usize| {
            let (these, rest) = values.split_at(count);
            *values = rest;
            these
        };
        let width = places.inner.zeros.len();
        let of = places.outer.each_ref().map(|nodes| next(nodes.zeros.len() * width));
        let polynomials: Vec<Vec<f64>> = (0..=self.degree)
            .map(|m| {
                let rows = of[m.min(1)].chunks_exact(width);
                let coefficients: Vec<f64> = rows.map(|row| places.inner.coefficient(m, row)).collect();
                places.outer[m.min(1)].polynomial(&coefficients)
            })
            .collect();
        for row in 0..=SAMPLES.0 {
            let y = row as f64 / SAMPLES.0 as f64;
            let here: Vec<f64> = polynomials.iter().map(|p| value(p, y)).collect();
            for (c, range) in here.iter().zip(&mut self.ranges) {
                *range = (range.0.min(*c), range.1.max(*c));
            }
            for (column, _) in places.samples(piece, row) {
                let &[exact, further] = next(2) else { unreachable!("two values were taken") };
                let fitted: f64 = here.iter().zip(&columns[column]).map(|(c, t)| c * t).sum();
                self.error = self.error.max((fitted - exact).abs());
                self.values = (self.values.0.min(exact), self.values.1.max(exact));
                let slope = (further - exact).abs() / (STEP * places.length * places.unit);
                self.slope = self.slope.max(slope);
            }
        }
        polynomials
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
                let of = |step| Piecewise::new(f, (at, input), (degree, segments), Limit { step, error });
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
