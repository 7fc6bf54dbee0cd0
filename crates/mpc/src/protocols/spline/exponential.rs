//! Exponentials as a coefficient times an exponential of the place (`docs/mpc.md`, "Exponentials"): the form, and what it may be off by.

use super::fit::{filled, interpolate, price, value, Interval, Spline};
use super::shape::{BasisSpec, Shape, ShapeSpec, MOST_EXPONENT, PLACE_BITS, RATE_BITS};
use super::{Pieces, FINE};
use crate::error::{MpcError, Result};
use crate::ring::Ring;

/// Highest order of a coefficient as a polynomial of the holder's place.
const MOST_ORDER: usize = 8;
/// Places at which that polynomial is compared with the exponential, and what the largest difference is multiplied by.
const SAMPLES: usize = 256;
const BETWEEN: f64 = 1.08;

/// 2^-bits.
fn unit(bits: u32) -> f64 {
    2f64.powi(-(bits as i32))
}

/// An exponential on segments of one length.
struct Segments {
    at: Interval,
    factor: f64,
    segments: u32,
    multiplier: u32,
    /// log2 of the number of multiplied arguments, and of those of a segment.
    bits: u32,
    length: u32,
    /// The exponent of a unit of the multiplied argument.
    step: f64,
    /// In powers of y, 0 to 1, e^(y - 1) over a segment, and what it is off by.
    polynomial: Vec<f64>,
    off: f64,
    /// Largest coefficient, and largest value.
    most: f64,
    top: f64,
    /// Length of the interval up to the largest value, in segments.
    used: f64,
}

/// Numbers that a candidate may vary.
#[derive(Clone, Copy)]
struct Knobs {
    dropped: u32,
    /// Fractional bits of half of the coefficient, of the exponential of the place, and of the inner result.
    fraction: u32,
    precision: u32,
    inner: u32,
}

impl Segments {
    fn new(
        (factor, rate, limit): (f64, f64, f64),
        (at, input): (Interval, Ring),
        segments: u32,
    ) -> Option<Self> {
        let (bits, multiplier) = filled(at, input, segments)?;
        let step = rate * unit(at.scale) / f64::from(multiplier);
        let length = bits - segments;
        let whole = step * 2f64.powi(length as i32);
        if whole >= f64::from(MOST_EXPONENT) {
            return None;
        }
        let end = (at.high as f64 * unit(at.scale)).min((limit / factor).ln() / rate);
        let top = factor * (rate * end).exp();
        let used = (end / unit(at.scale) - at.low as f64) * f64::from(multiplier) / 2f64.powi(length as i32);
        let exact = |y: f64| ((y - 1.0) * whole).exp();
        let fitted = |order| {
            let polynomial = interpolate(order, |t| exact(f64::midpoint(t, 1.0)));
            let off = |i: usize| {
                let y = i as f64 / SAMPLES as f64;
                (value(&polynomial, y) - exact(y)).abs()
            };
            let off = BETWEEN * (0..=SAMPLES).map(off).fold(0.0, f64::max);
            (polynomial, off)
        };
        let (polynomial, off) = (2..=MOST_ORDER)
            .map(fitted)
            .find(|(_, off)| *off < unit(26))
            .unwrap_or_else(|| fitted(MOST_ORDER));
        let most = top * whole.exp();
        Some(Self { at, factor, segments, multiplier, bits, length, step, polynomial, off, most, top, used })
    }

    /// The form with these numbers, and the bound of its error.
    fn candidate(&self, scale: u32, knobs: Knobs) -> Option<(ShapeSpec, f64)> {
        let Knobs { dropped, fraction, precision, inner } = knobs;
        let k = self.length.checked_sub(dropped).filter(|k| (1..=PLACE_BITS).contains(k))?;
        let shift = (fraction + precision).checked_sub(inner)?;
        let shed = inner.checked_sub(scale)?;
        let stored = self.most / 2.0 / unit(fraction) + 2.0;
        if stored >= 2f64.powi(24) {
            return None;
        }
        let bits = 65 - (stored as u64).leading_zeros();
        let roundings = shift.saturating_sub(1).min(precision) + if shift > 0 { 2 } else { 0 };
        // Of the coefficient, which is stored halved; the exponential of a place is below one.
        let mut error = unit(fraction) * (1.0 + unit(9)) + self.most * self.off;
        // Of the exponential of a place: its rounding, its series and the rate's.
        error += self.most * (unit(precision + 1) + unit(24) + 2f64.powi(k as i32) * unit(RATE_BITS + 1));
        error += self.top * self.step * (2f64.powi(dropped as i32) - 1.0) / 2.0;
        error += f64::from(roundings) / 2.0 * unit(inner) + if shed > 0 { unit(scale) } else { 0.0 };
        let whole = 2f64.powi(shed as i32);
        let offset = (error / unit(inner) / whole).ceil() * whole;
        let most = (self.top + error) / unit(inner) + offset;
        if most >= 2f64.powi(40) {
            return None;
        }
        let spec = ShapeSpec {
            low: self.at.low,
            high: self.at.high,
            multiplier: self.multiplier,
            argument_bits: self.bits,
            segments: self.segments,
            dropped,
            inner_bits: (65 - (most as u64).leading_zeros()).max(shed + 1),
            guard: 0,
            offset: offset as i64,
            shed,
            lift: 0,
            rate: (self.step * 2f64.powi((dropped + RATE_BITS) as i32)).round() as u64,
            basis: vec![BasisSpec { bits: bits.max(shift), precision, shift, low: 0 }],
        };
        Some((spec, error))
    }

    /// The cheapest form within the error, if it is cheaper than `best`.
    fn cheapest(&self, (scale, error): (u32, f64), best: &mut Option<(u64, Spline)>) -> Result<()> {
        let room = 2.0 * error / (self.top * self.step).max(f64::MIN_POSITIVE) + 1.0;
        let most = (room.log2() as u32).min(self.length - 1);
        let wanted = (-error.log2()).ceil().clamp(0.0, 20.0) as u32;
        let knobs = (most.saturating_sub(3)..=most).flat_map(|dropped| {
            (wanted..wanted + 5).flat_map(move |fraction| {
                (wanted.max(1)..=(wanted + 8).min(20)).flat_map(move |precision| {
                    (scale.max(wanted)..scale.max(wanted) + 6).map(move |inner| Knobs {
                        dropped,
                        fraction,
                        precision,
                        inner,
                    })
                })
            })
        });
        for knobs in knobs {
            let Some((spec, reached)) = self.candidate(scale, knobs).filter(|(_, reached)| *reached <= error)
            else {
                continue;
            };
            let Ok(shape) = Shape::new(spec) else { continue };
            let price = price(&shape);
            if best.as_ref().is_none_or(|(least, _)| price < *least) {
                let pieces = self.pieces(&shape, knobs.fraction)?;
                *best = Some((price, Spline { shape, pieces, error: reached }));
            }
        }
        Ok(())
    }

    /// Every coefficient that an argument of the interval may ask for, halved, with so many fractional bits.
    fn pieces(&self, shape: &Shape, fraction: u32) -> Result<Pieces> {
        let length = 2f64.powi(self.length as i32);
        let first = self.at.low as f64 * f64::from(self.multiplier);
        let mut coefficients = Vec::new();
        for piece in 0..1u32 << self.segments {
            // The argument where the segment of this one and the holder's whole place end.
            let end = first + (f64::from(piece) + 1.0) * length - 0.5;
            let size = if f64::from(piece) > self.used + 1.0 {
                0.0
            } else {
                self.factor / 2.0 * (self.step * end).exp()
            };
            let fine = size / unit(fraction + FINE);
            coefficients.extend(self.polynomial.iter().map(|c| (c * fine).round() as i64));
        }
        Pieces::new(shape, vec![self.polynomial.len() - 1], coefficients)
    }
}

impl Spline {
    /// The cheapest form of `factor` e^(`rate` x) on `at`, with one coefficient for each segment: as [`Self::fit`], for about half of the bytes. Arguments
    /// whose value is above `limit` give anything; all three numbers are positive. `error` bounds every result; the errors have hardly a mean, so sums of many are as precise as the root of
    /// their number says.
    ///
    /// # Errors
    /// `Parameter` when no form of at most 2^8 segments reaches the error, a number is not positive, or the interval or scale is too large.
    pub fn exponential(
        (factor, rate, limit): (f64, f64, f64),
        (at, input): (Interval, Ring),
        scale: u32,
        error: f64,
    ) -> Result<Self> {
        let far = at.low.unsigned_abs().max(at.high.unsigned_abs()) >> 46 != 0;
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let numbers = [factor, rate, limit, error];
        if scale > 26 || at.scale > 40 || at.low > at.high || far || !numbers.iter().all(|x| positive(*x)) {
            return Err(MpcError::Parameter {
                what: "fractional bits of an exponential",
                got: scale.into(),
                limit: 26,
            });
        }
        let mut best: Option<(u64, Self)> = None;
        for segments in 1..=8 {
            if let Some(found) = Segments::new((factor, rate, limit), (at, input), segments) {
                found.cheapest((scale, error), &mut best)?;
            }
        }
        best.map(|(_, spline)| spline).ok_or(MpcError::Parameter {
            what: "segments that a function needs for its error",
            got: 1 << 9,
            limit: 1 << 8,
        })
    }
}
