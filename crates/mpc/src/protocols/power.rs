//! 1/x and 1/sqrt(x) over several octaves: x is brought to [1, 2) by the power of two below it, where a piecewise polynomial takes over
//! (normalisation by the most significant bit: SIRNN, IEEE S&P 2021, section 4.3; the bit comes from comparisons here).
//!
//! For x = 2^e n, n in [1, 2), f(x) = f(2^e) f(n). The comparisons [x >= 2^i] of all octaves go together. Sums of them with public numbers are
//! 2^(b-1-e), which times x is n, and a table's entry f(2^e).

use super::compare::{drelu, drelu_cost};
use super::convert::{bit_to_arithmetic, bit_to_arithmetic_cost};
use super::multiply::{multiply, multiply_cost, Factor};
use super::rescale::{rescale, rescale_cost};
use super::spline::{spline, spline_cost, Function, Interval, Spline};
use super::truncate::Range;
use crate::cost::CostModel;
use crate::error::{MpcError, Result};
use crate::ring::Ring;
use crate::{Party, Session};

/// Bits of n's ring above its own: the segments of the fit are filled better, and the sign is free.
const SPARE: u32 = 4;

/// 1/x or 1/sqrt(x), ready to be evaluated; both parties have it.
#[derive(Clone, PartialEq, Debug)]
pub struct Power {
    /// Octaves: 2^first is at most the least argument, and the greatest one is below 2^last, in its units.
    first: u32,
    last: u32,
    on_octave: Spline,
    /// f(2^e) in units of the product, for e from `first`.
    factors: Vec<u64>,
    normal: Ring,
    compared: Ring,
    inverse: Ring,
    factor: Ring,
    product: Ring,
    shift: u32,
    /// The result is within `relative` * f(x) + `absolute` of f(x).
    pub relative: f64,
    /// The part of the error that does not grow with f(x), in units of the result.
    pub absolute: f64,
}

/// Bits of a number.
fn length(v: u64) -> u32 {
    64 - v.leading_zeros()
}

impl Power {
    /// The form for positive arguments of `at` in shares modulo `input` or any wider ring, whose result has `scale` fractional bits and is off by at
    /// most `relative` of the value, and by a unit. `input` has two bits more than the greatest argument, or more.
    ///
    /// # Errors
    /// `Parameter` for another function, an interval that is not positive, or an error that needs wider rings than there are; `RingWidth` when
    /// `input` is too narrow.
    pub fn fit(f: Function, (at, input): (Interval, Ring), scale: u32, relative: f64) -> Result<Self> {
        let exponent = match f {
            Function::Reciprocal => -1.0,
            Function::InverseRoot => -0.5,
            _ => return Err(MpcError::Parameter { what: "function that is no power", got: 0, limit: 0 }),
        };
        if at.low < 1 || at.high < at.low || at.high >> 38 != 0 {
            return Err(MpcError::Parameter {
                what: "greatest argument of a power",
                got: at.high as u64,
                limit: 1 << 38,
            });
        }
        if !(2f64.powi(-24)..=0.25).contains(&relative) || scale > 40 || at.scale > 40 {
            return Err(MpcError::Parameter {
                what: "fractional bits of a power",
                got: scale.into(),
                limit: 40,
            });
        }
        let (first, last) = (length(at.low as u64) - 1, length(at.high as u64));
        input.at_least(last + 2)?;
        let normal = Ring::new((last + SPARE).min(input.bits()))?;
        // f(2^e) for arguments in units of 2^-scale; the last octave's is the least one.
        let of_octave = |e: u32| 2f64.powf(exponent * (f64::from(e) - f64::from(at.scale)));
        let least = of_octave(last - 1);
        let exact = exponent == -1.0;
        // f(2^e) is a whole number of 2^-h, or off by an eighth of the error.
        let h = if exact {
            i64::from(last) - 1 - i64::from(at.scale)
        } else {
            (4.0 / (relative * least)).log2().ceil() as i64
        };
        let h = h.max(0);
        let rounding = if exact { 0.0 } else { 0.5 / (least * 2f64.powi(h as i32)) };
        let factors: Vec<u64> =
            (first..last).map(|e| (of_octave(e) * 2f64.powi(h as i32)).round() as u64).collect();
        // n in [1, 2), its least value of f.
        let smallest = 2f64.powf(exponent);
        let fraction = ((4.0 / relative).log2().ceil() as i64 + 1).max(i64::from(scale) - h) as u32;
        let octave = Interval { low: 1 << (last - 1), high: (1 << last) - 1, scale: last - 1 };
        let on_octave =
            Spline::fit(&|x| f.at(x), (octave, normal), fraction, (relative - rounding) * smallest * 0.99)?;
        let inverse = Ring::new((last - first + 1).max(3))?;
        let factor = Ring::new((length(factors[0]) + 1).max(3))?;
        let product = Ring::new(fraction + 1 + factor.bits())?;
        let shift = (i64::from(fraction) + h - i64::from(scale)) as u32;
        if shift >= product.bits() {
            let (got, limit) = (shift.into(), product.bits().into());
            return Err(MpcError::Parameter {
                what: "bits that a power sheds (give its result more fractional bits)",
                got,
                limit,
            });
        }
        let one = on_octave.error / smallest;
        Ok(Self {
            first,
            last,
            factors,
            normal,
            compared: Ring::new(last + 1)?,
            inverse,
            factor,
            product,
            shift,
            relative: one + rounding + one * rounding,
            absolute: if shift > 0 { 2f64.powi(-(scale as i32)) } else { 0.0 },
            on_octave,
        })
    }

    /// Comparisons of a value.
    fn octaves(&self) -> usize {
        (self.last - self.first - 1) as usize
    }

    fn bits(&self) -> Ring {
        if self.inverse.bits() > self.factor.bits() {
            self.inverse
        } else {
            self.factor
        }
    }

    /// The factors of each product.
    fn multipliers(&self) -> Result<[(Factor, Factor); 2]> {
        let known = |ring| Factor::new(ring, Range::NonNegative);
        let any = |ring| Factor::new(ring, Range::Any);
        Ok([(any(self.normal)?, known(self.inverse)?), (any(self.product)?, known(self.factor)?)])
    }
}

/// Shares in `out` of 1/x or 1/sqrt(x) for shares of x in `ring`, within the error that `power` states, for every x of its interval; others give anything.
///
/// # Errors
/// `RingWidth` when the ring is narrower than the one that the power was made for; channel errors.
pub fn power(s: &mut Session, (x, ring): (&[u64], Ring), power: &Power, out: Ring) -> Result<Vec<u64>> {
    ring.at_least(power.normal.bits())?;
    let (n, first) = (x.len(), s.is_first());
    let mut known = x.iter().map(|&v| power.normal.reduce(v)).collect::<Vec<_>>();
    let mut factors = vec![if first { power.factors[0] } else { 0 }; n];
    if power.octaves() > 0 {
        let border = |i: usize| if first { 1u64 << (power.first + 1 + i as u32) } else { 0 };
        let differences: Vec<u64> = (0..power.octaves())
            .flat_map(|i| x.iter().map(move |&v| power.compared.sub(v, border(i))))
            .collect();
        let above = drelu(s, &differences, power.compared)?;
        let above = bit_to_arithmetic(s, &above, power.bits())?;
        // 2^(last - 1 - e) and f(2^e): each octave that x is above of takes the difference off.
        let top = 1u64 << (power.last - 1 - power.first);
        let mut inverses = vec![if first { top } else { 0 }; n];
        for (i, above) in above.chunks_exact(n.max(1)).enumerate() {
            let half = top >> (i + 1);
            let less = power.factors[i] - power.factors[i + 1];
            for (k, &a) in above.iter().enumerate() {
                inverses[k] = power.inverse.sub(inverses[k], a.wrapping_mul(half));
                factors[k] = power.factor.sub(factors[k], a.wrapping_mul(less));
            }
        }
        let (of_x, of_inverse) = power.multipliers()?[0];
        known = multiply(s, (&known, of_x), (&inverses, of_inverse), power.normal)?;
    }
    let (fit, holder) = (&power.on_octave, Party::Zero);
    let pieces = (s.party() == holder).then_some(&fit.pieces);
    let values = spline(s, (&known, power.normal), &fit.shape, pieces, holder, power.product)?;
    let (of_value, of_factor) = power.multipliers()?[1];
    let products = multiply(s, (&values, of_value), (&factors, of_factor), power.product)?;
    rescale(s, &products, (power.product, power.shift), out)
}

/// Cost of [`power`] of n elements: its OTs, messages and rounds, exactly.
pub fn power_cost(m: &mut CostModel, n: usize, power: &Power, out: Ring) {
    let Ok([normalise, scale]) = power.multipliers() else { return };
    if power.octaves() > 0 {
        drelu_cost(m, n * power.octaves(), power.compared);
        bit_to_arithmetic_cost(m, n * power.octaves(), power.bits());
        multiply_cost(m, n, normalise.0, normalise.1, power.normal);
    }
    spline_cost(m, n, &power.on_octave.shape, Party::Zero, power.product);
    multiply_cost(m, n, scale.0, scale.1, power.product);
    rescale_cost(m, n, (power.product, power.shift), out);
}
