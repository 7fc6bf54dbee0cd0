//! Softmax of rows: maximum, exponentials below it, one reciprocal of their sum, products.

use super::maximum::{max_many, max_many_cost};
use super::multiply::{multiply, multiply_cost, Factor};
use super::power::{power, power_cost, Power};
use super::relu::{relu_within, relu_within_cost};
use super::rescale::{rescale, rescale_cost};
use super::spline::{spline, spline_cost, Function, Interval, Spline};
use super::truncate::Range;
use crate::cost::CostModel;
use crate::error::{MpcError, Result};
use crate::ring::Ring;
use crate::{Party, Session};

/// Most classes of a row.
const MOST_CLASSES: usize = 1 << 16;

/// Softmax over rows, ready to be evaluated; both parties have it.
#[derive(Clone, PartialEq, Debug)]
pub struct Softmax {
    classes: usize,
    narrow: Ring,
    /// Differences to the maximum that are further below count as this far; none where no difference is.
    depth: i64,
    clips: bool,
    exponential: Spline,
    /// What all exponentials of a row are raised by, taken off their sum.
    raised: u64,
    inverse: Power,
    /// Of the exponentials, which are below two, and of their sum.
    one: Ring,
    sum: Ring,
    product: Ring,
    shift: u32,
    /// Bound of the difference of a result and the softmax.
    pub error: f64,
}

impl Softmax {
    /// For rows of `classes` values of shares in `ring` with `fraction` fractional bits, whose differences are below 2^(w-1), w the bits of `narrow`.
    /// Exponentials are off by at most `error`; the result has `scale` fractional bits.
    ///
    /// # Errors
    /// `Parameter` for no classes or more than 2^16, or an error that is too small or not below 1/(8 classes); as [`Spline::fit`] and [`Power::fit`].
    pub fn fit(
        classes: usize,
        (ring, narrow, fraction): (Ring, Ring, u32),
        scale: u32,
        error: f64,
    ) -> Result<Self> {
        if classes == 0 || classes > MOST_CLASSES {
            let (got, limit) = (classes as u64, MOST_CLASSES as u64);
            return Err(MpcError::Parameter { what: "classes of a softmax", got, limit });
        }
        let count = classes as f64;
        if !(error >= 2f64.powi(-22) && error * 8.0 * count < 1.0) || scale > 24 || fraction > 30 {
            return Err(MpcError::Parameter {
                what: "fractional bits of a softmax",
                got: scale.into(),
                limit: 24,
            });
        }
        if narrow.bits() > ring.bits() || narrow.bits() > 46 {
            let (got, limit) = (narrow.bits().into(), ring.bits().min(46).into());
            return Err(MpcError::Parameter { what: "bits of the compared ring", got, limit });
        }
        // Exponentials: an eighth of the error is for what lies below the depth, one half of the rest keeps them from being negative, the other is for the fit.
        let widest = 1i64 << (narrow.bits() - 1);
        let depth = ((-(error / 8.0).ln() * 2f64.powi(fraction as i32)).ceil() as i64).min(widest);
        let fitted = error * 7.0 / 16.0;
        let bits = (-fitted.log2()).ceil() as u32 + 1;
        let f = |x: f64| Function::Exp.at(x) + fitted;
        let exponential =
            Spline::fit(&f, (Interval { low: -depth, high: 0, scale: fraction }, narrow), bits, fitted)?;
        let top = (count * (1.0 + error) * 2f64.powi(bits as i32)).ceil() as i64;
        let sum = Ring::new(64 - (top as u64).leading_zeros() + 4)?;
        let inner = scale + 2;
        let raised = (count * fitted * 2f64.powi(bits as i32)).round();
        let low = ((1 << bits) - raised as i64 - 1).max(1);
        let at = Interval { low, high: top, scale: bits };
        let inverse = Power::fit(Function::Reciprocal, (at, sum), inner, 2f64.powi(-(scale as i32) - 2))?;
        let unit = 2f64.powi(-(scale as i32));
        let most = (1.0 + error) * (1.0 + inverse.relative) + inverse.absolute;
        // The sum has lost what its exponentials were raised by.
        let of_sum = count * error * 9.0 / 16.0 + 2f64.powi(-(bits as i32));
        let error = (error + of_sum) / (1.0 - of_sum) + most * (inverse.relative + inverse.absolute) + unit;
        Ok(Self {
            classes,
            narrow,
            depth,
            clips: depth < widest,
            exponential,
            raised: raised as u64,
            inverse,
            one: Ring::new(bits + 2)?,
            sum,
            product: Ring::new(bits + inner + 3)?,
            shift: bits + 2,
            error,
        })
    }

    /// The factors of the last product.
    fn factors(&self) -> Result<(Factor, Factor)> {
        Ok((Factor::new(self.one, Range::NonNegative)?, Factor::new(self.product, Range::Any)?))
    }
}

/// Shares in `out` of the softmax of each row of shares x in the ring of `softmax`, off by at most its `error`.
///
/// # Errors
/// `Length` when x is not a whole number of rows; channel errors.
pub fn softmax(s: &mut Session, x: &[u64], softmax: &Softmax, out: Ring) -> Result<Vec<u64>> {
    // Differences fit the narrow ring, so nothing is wider.
    let (classes, ring) = (softmax.classes, softmax.narrow);
    if !x.len().is_multiple_of(classes) {
        let expected = x.len().next_multiple_of(classes);
        return Err(MpcError::Length { what: "rows of classes", expected, got: x.len() });
    }
    let x: Vec<u64> = x.iter().map(|&v| ring.reduce(v)).collect();
    let columns = (0..classes).map(|c| x.iter().skip(c).step_by(classes).copied().collect()).collect();
    let most = max_many(s, columns, ring, ring)?;
    // The first party raises the differences by the depth, so that those below it are negative.
    let depth = if s.is_first() { softmax.depth as u64 } else { 0 };
    let mut below: Vec<u64> = x
        .iter()
        .enumerate()
        .map(|(i, &v)| ring.reduce(v.wrapping_sub(most[i / classes]).wrapping_add(depth)))
        .collect();
    if softmax.clips {
        below = relu_within(s, &below, ring, ring)?;
    }
    below.iter_mut().for_each(|v| *v = ring.sub(*v, depth));
    let (fit, holder) = (&softmax.exponential, Party::Zero);
    let pieces = (s.party() == holder).then_some(&fit.pieces);
    let exponentials = spline(s, (&below, ring), &fit.shape, pieces, holder, softmax.sum)?;
    let raised = if s.is_first() { softmax.raised } else { 0 };
    let total = |row: &[u64]| softmax.sum.sub(row.iter().fold(0, |a: u64, &b| a.wrapping_add(b)), raised);
    let sums: Vec<u64> = exponentials.chunks(classes).map(total).collect();
    let inverses = power(s, (&sums, softmax.sum), &softmax.inverse, softmax.product)?;
    let each: Vec<u64> = (0..x.len()).map(|i| inverses[i / classes]).collect();
    let exponentials: Vec<u64> = exponentials.iter().map(|&v| softmax.one.reduce(v)).collect();
    let (of_one, of_inverse) = softmax.factors()?;
    let products = multiply(s, (&exponentials, of_one), (&each, of_inverse), softmax.product)?;
    rescale(s, &products, (softmax.product, softmax.shift), out)
}

/// Cost of [`softmax`] of `rows` rows.
pub fn softmax_cost(m: &mut CostModel, rows: usize, softmax: &Softmax, out: Ring) {
    let (n, Ok((of_one, of_inverse))) = (rows * softmax.classes, softmax.factors()) else { return };
    let ring = softmax.narrow;
    max_many_cost(m, softmax.classes, rows, ring, ring);
    if softmax.clips {
        relu_within_cost(m, n, ring, ring);
    }
    spline_cost(m, n, &softmax.exponential.shape, Party::Zero, softmax.sum);
    power_cost(m, rows, &softmax.inverse, softmax.product);
    multiply_cost(m, n, of_one, of_inverse, softmax.product);
    rescale_cost(m, n, (softmax.product, softmax.shift), out);
}
