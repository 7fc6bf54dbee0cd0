//! The public form of a piecewise polynomial: widths, shifts and counts, all that the holder of the argument's other share needs to know.

use crate::error::{MpcError, Result};
use crate::protocols::cross::Term;
use crate::ring::Ring;

/// Bits of a place within a segment that the holder of the pieces computes with.
pub(super) const PLACE_BITS: u32 = 20;
/// Most bits of a table's constant terms, so that words of 64 bits hold what [`super::Pieces`] computes.
const MOST_CONSTANT_BITS: u32 = 28;

/// Fractional bits of [`ShapeSpec::rate`], and of the exponentials that the party that asks computes with.
pub(super) const RATE_BITS: u32 = 40;
const POWER_BITS: u32 = 31;
/// Largest exponent within a segment, and terms of the series for an eighth of it: the terms after these add less than 2^-29.
pub(super) const MOST_EXPONENT: u32 = 4;
const SERIES: u64 = 9;

/// One coefficient above the constant: of the Chebyshev polynomial T_m of the place within a segment. Where the shape has a rate, of twice the
/// exponential of the place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BasisSpec {
    /// Bits of its shares. Coefficients, less `low`, are below 2^(bits - 1).
    pub bits: u32,
    /// Bits that the value of T_m, or of the exponential, is rounded to; of T_1 all of the place.
    pub precision: u32,
    /// The product of coefficient and value (units: of both) is divided by 2^shift.
    pub shift: u32,
    /// Added to every coefficient, in its unit.
    pub low: i64,
}

/// What a [`Shape`] is made of, unchecked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShapeSpec {
    /// Least argument, in units of the argument.
    pub low: i64,
    /// Greatest argument, in units of the argument.
    pub high: i64,
    /// Shares of the argument are multiplied by this first, so that the interval fills the segments; at least one.
    pub multiplier: u32,
    /// Bits of the multiplied argument, l: multiplier (high - low) is below 2^l (1 - 2^-segments).
    pub argument_bits: u32,
    /// log2 of the number of segments, d.
    pub segments: u32,
    /// Low bits of the multiplied argument that only one party's share keeps.
    pub dropped: u32,
    /// Bits of the result before it is widened, W.
    pub inner_bits: u32,
    /// Bits of it below the unit of the constant terms.
    pub guard: u32,
    /// Added to the result so that it is not negative, a multiple of 2^shed.
    pub offset: i64,
    /// Low bits of the result that are dropped at the end.
    pub shed: u32,
    /// Zero bits that are put below the result at the end.
    pub lift: u32,
    /// Zero for polynomials. Otherwise every piece is a coefficient times e^-z, z the exponent from a place to the end of its segment: this many
    /// units of 2^-40 for one of the 2^k places. There is no constant, and `basis` has one entry.
    pub rate: u64,
    /// One entry for each degree above zero.
    pub basis: Vec<BasisSpec>,
}

/// A [`ShapeSpec`] whose numbers fit together and into the rings; both parties hold it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    spec: ShapeSpec,
    pub(super) argument: Ring,
    pub(super) inner: Ring,
    /// Rings of the table's fields: the constant (not of exponentials), then the basis.
    pub(super) fields: Vec<Ring>,
    /// Terms of all products of coefficients with bits of T_m, in the order of degrees.
    pub(super) terms: Vec<Term>,
    /// One term for the wrap-around of each coefficient.
    pub(super) wraps: Vec<Term>,
}

fn at_most(what: &'static str, got: u32, limit: u32) -> Result<()> {
    if got > limit {
        return Err(MpcError::Parameter { what, got: got.into(), limit: limit.into() });
    }
    Ok(())
}

impl Shape {
    /// Checks every field.
    ///
    /// # Errors
    /// `RingWidth` or `Parameter`, with the field that is out of range.
    pub fn new(spec: ShapeSpec) -> Result<Self> {
        let argument = Ring::new(spec.argument_bits)?;
        at_most("bits of a function's argument", spec.argument_bits, 48)?;
        at_most("log2 of the number of segments", spec.segments, 8)?;
        at_most(
            "bits of segments and dropped bits",
            spec.segments + spec.dropped.min(64),
            spec.argument_bits,
        )?;
        at_most("degree of a piece", spec.basis.len() as u32, 3)?;
        let room = (1i64 << spec.argument_bits) - (1i64 << (spec.argument_bits - spec.segments));
        let span = i128::from(spec.high) - i128::from(spec.low);
        if spec.multiplier == 0 || !(0..i128::from(room)).contains(&(span * i128::from(spec.multiplier))) {
            let got = (span as u64).wrapping_mul(spec.multiplier.into());
            return Err(MpcError::Parameter {
                what: "length of a function's interval",
                got,
                limit: room as u64,
            });
        }
        let inner = Ring::new(spec.inner_bits)?;
        at_most("bits of a function's guard", spec.guard, spec.inner_bits.saturating_sub(1))?;
        at_most("bits of a table's constants", spec.inner_bits - spec.guard, MOST_CONSTANT_BITS)?;
        at_most("bits of a function's guard", spec.guard, 16)?;
        at_most("bits that a function's result sheds", spec.shed, spec.inner_bits - 1)?;
        at_most("bits that a function's result is lifted by", spec.lift, 62)?;
        if spec.offset.unsigned_abs() >> 60 != 0 || spec.offset & ((1 << spec.shed) - 1) != 0 {
            let (got, limit) = (spec.offset.unsigned_abs(), 1 << 60);
            return Err(MpcError::Parameter { what: "offset of a function's result", got, limit });
        }
        let mut shape =
            Self { argument, inner, fields: Vec::new(), terms: Vec::new(), wraps: Vec::new(), spec };
        if shape.spec.rate == 0 {
            shape.fields.push(Ring::new(shape.spec.inner_bits - shape.spec.guard)?);
        } else {
            shape.check_rate()?;
        }
        for m in 0..shape.spec.basis.len() {
            shape.add(m)?;
        }
        let bits = shape.fields.iter().map(|f| f.bits()).sum();
        at_most("bits of a table's entry", bits, 64)?;
        Ok(shape)
    }

    /// Checks what an exponential has beside its one coefficient.
    fn check_rate(&self) -> Result<()> {
        let (spec, k) = (&self.spec, self.place_bits());
        if spec.basis.len() != 1 {
            let got = spec.basis.len() as u64;
            return Err(MpcError::Parameter { what: "coefficients of an exponential", got, limit: 1 });
        }
        at_most("bits of an exponential's guard", spec.guard, 0)?;
        at_most("bits of an exponential's place", k, PLACE_BITS)?;
        let limit = (u64::from(MOST_EXPONENT) << RATE_BITS) >> k;
        if spec.rate > limit {
            return Err(MpcError::Parameter { what: "rate of an exponential", got: spec.rate, limit });
        }
        Ok(())
    }

    /// Checks coefficient m + 1 and adds its terms.
    fn add(&mut self, m: usize) -> Result<()> {
        let b = self.spec.basis[m];
        let (k, w) = (self.place_bits(), self.inner.bits());
        at_most("bits of a coefficient", b.bits, MOST_CONSTANT_BITS)?;
        let powers = self.spec.rate != 0;
        at_most(
            "precision of a place's polynomial",
            b.precision,
            if powers { 20 } else { [k, 2 * k, 3 * k][m].min(20) },
        )?;
        if m == 0 && !powers && b.precision != k {
            let (got, limit) = (b.precision.into(), k.into());
            return Err(MpcError::Parameter { what: "precision of a place", got, limit });
        }
        at_most("shift of a coefficient", b.shift, b.bits)?;
        at_most("bits of a place's polynomial beside its shift", b.precision, w + b.shift - 1)?;
        if b.low.unsigned_abs() >> 32 != 0 {
            let (got, limit) = (b.low.unsigned_abs(), 1 << 32);
            return Err(MpcError::Parameter { what: "least coefficient", got, limit });
        }
        self.fields.push(Ring::new(b.bits)?);
        for bit in 0..b.precision {
            let shift = (bit + 1).saturating_sub(b.shift);
            self.terms.push(Term { payload: Ring::new(w - shift)?, shift });
        }
        at_most("bits of a coefficient beside its shift", b.bits - b.shift, w - 1)?;
        let shift = b.bits - b.shift;
        self.wraps.push(Term { payload: Ring::new(w - shift)?, shift });
        Ok(())
    }

    /// What it was made of.
    #[must_use]
    pub fn spec(&self) -> &ShapeSpec {
        &self.spec
    }

    /// Terms of the ladders and wrap-arounds of a value, in both directions: products of a bit and a number, one correlated OT each.
    #[must_use]
    pub fn products(&self) -> usize {
        self.terms.len() + self.wraps.len() + 1
    }

    /// Segments.
    pub(super) fn pieces(&self) -> usize {
        1 << self.spec.segments
    }

    /// log2 of a segment's length.
    pub(super) fn segment_bits(&self) -> u32 {
        self.spec.argument_bits - self.spec.segments
    }

    /// Bits of the place within a segment that both parties use, k.
    pub(super) fn place_bits(&self) -> u32 {
        self.segment_bits() - self.spec.dropped
    }

    /// Bits of a table's entry.
    pub(super) fn entry_bits(&self) -> u32 {
        self.fields.iter().map(|f| f.bits()).sum()
    }

    /// Bits above the result's own that the ring `out` has: there its wrap-around matters.
    pub(super) fn widening(&self, out: Ring) -> Option<Ring> {
        let own = self.inner.bits() - self.spec.shed + self.spec.lift;
        out.bits().checked_sub(own).and_then(|bits| Ring::new(bits).ok())
    }

    /// What the parties compute with: this party's share of the argument times the multiplier, modulo 2^l.
    pub(super) fn multiplied(&self, x: u64) -> u64 {
        self.argument.reduce(x.wrapping_mul(self.spec.multiplier.into()))
    }

    /// Fields of a table's entry in front of the basis: the constant, or none.
    pub(super) fn constants(&self) -> usize {
        usize::from(self.spec.rate == 0)
    }

    /// What is taken off twice the value of [`Self::polynomial`], so that the difference stands for T_m, or for twice the exponential, in units of
    /// 2^-precision: an odd number, in the middle of what is rounded to the value.
    pub(super) fn centre(&self, m: usize) -> i64 {
        if self.spec.rate == 0 {
            (1 << self.spec.basis[m].precision) - 1
        } else {
            -1
        }
    }

    /// The value of (T_m + 1)/2, or of the exponential, at place u, in units of 2^-precision, for coefficient m + 1. No branch depends on u.
    pub(super) fn polynomial(&self, m: usize, u: u64) -> u64 {
        let (k, precision) = (self.place_bits(), self.spec.basis[m].precision);
        if self.spec.rate != 0 {
            let value = falling(((2 << k) - 2 * u - 1) * self.spec.rate) >> (POWER_BITS - precision);
            // e^-z may round to one.
            return value - (value >> precision);
        }
        let c = 2 * u as i64 + 1 - (1 << k);
        match m {
            0 => u,
            1 => (c * c) as u64 >> (2 * k - precision),
            // T_3 = 4 t^3 - 3 t may reach one.
            _ => {
                let t = i128::from(c);
                let value = (4 * t * t * t - 3 * (t << (2 * k)) + (1 << (3 * k))) as u128;
                let rounded = (value >> (3 * k + 1 - precision)) as u64;
                rounded - (rounded >> precision)
            }
        }
    }
}

/// e^-z for z <= 4 in units of 2^-41, in units of 2^-31: the series at z/8, squared three times. Its relative error is below 2^-24; no branch depends
/// on z.
fn falling(z: u64) -> u64 {
    let one = 1u64 << POWER_BITS;
    let t = z >> (RATE_BITS + 1 - POWER_BITS + 3);
    let eighth = (1..=SERIES)
        .rev()
        .fold(one, |p, i| one - ((((t * p) >> POWER_BITS) * RECIPROCALS[i as usize]) >> POWER_BITS));
    (0..3).fold(eighth, |p, _| (p * p) >> POWER_BITS)
}

/// 1/i in units of 2^-31: no division when it is needed.
const RECIPROCALS: [u64; SERIES as usize + 1] = reciprocals();

const fn reciprocals() -> [u64; SERIES as usize + 1] {
    let mut found = [0; SERIES as usize + 1];
    let mut i = 1;
    while i <= SERIES {
        found[i as usize] = ((1 << POWER_BITS) + i / 2) / i;
        i += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_as_precise_as_stated() {
        for step in 0..=100_000u64 {
            let z = step * ((u64::from(MOST_EXPONENT) << (RATE_BITS + 1)) / 100_000);
            let exact = (-(z as f64) / 2f64.powi(RATE_BITS as i32 + 1)).exp();
            let got = falling(z) as f64 / 2f64.powi(POWER_BITS as i32);
            assert!((got / exact - 1.0).abs() < 2f64.powi(-24), "{z} {got} {exact}");
        }
    }
}
