//! Functions of one variable on shares: their check, their run and their cost.
//!
//! A function is a piecewise polynomial whose integers stand in the plan ([`hushnet_mpc::spline`]); the server holds its pieces. In front of it,
//! arguments beyond an end that is not `inside` are clipped to it, which also gives what a rising end adds. A mirrored function takes the
//! positive part and the magnitude of its argument from one comparison.

use super::check::{fault, Fault, Shared};
use super::nonlinear::{At, OnShares};
use super::reach;
use crate::plan::spec::{BasisFields, End, FormSpec, FunctionSpec};
use crate::plan::{numbers, Scope};
use hushnet_mpc::{
    self as mpc, BasisSpec, CostModel, Party, Pieces, Result as Ran, Ring, Session, Shape, ShapeSpec,
};
use std::sync::Arc;

/// Who holds the pieces of a function: the server.
const HOLDER: Party = Party::Zero;
/// Values of a function in one pass of its protocol.
const PASS: u64 = 1 << 18;
/// Bytes that a term keeps between two messages.
const BYTES_PER_TERM: u64 = 9;

/// A function of one variable, checked.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its form.
    pub shape: Shape,
    /// Its pieces, absent in a public part.
    pub pieces: Option<Arc<Pieces>>,
    /// What happens below and above the interval.
    pub ends: [End; 2],
    /// Fractional bits that the result has beyond the argument.
    pub finer: u32,
}

fn shape_of(form: &FormSpec) -> Ran<Shape> {
    let one =
        |b: &BasisFields| BasisSpec { bits: b.bits, precision: b.precision, shift: b.shift, low: b.low };
    Shape::new(ShapeSpec {
        low: form.low,
        high: form.high,
        multiplier: form.multiplier,
        argument_bits: form.argument_bits,
        segments: form.segments,
        dropped: form.dropped,
        inner_bits: form.inner_bits,
        guard: form.guard,
        offset: form.offset,
        shed: form.shed,
        lift: form.lift,
        rate: form.rate,
        basis: form.basis.iter().map(one).collect(),
    })
}

fn spec_of(shape: &ShapeSpec) -> FormSpec {
    let one =
        |b: &BasisSpec| BasisFields { bits: b.bits, precision: b.precision, shift: b.shift, low: b.low };
    FormSpec {
        low: shape.low,
        high: shape.high,
        multiplier: shape.multiplier,
        argument_bits: shape.argument_bits,
        segments: shape.segments,
        dropped: shape.dropped,
        inner_bits: shape.inner_bits,
        guard: shape.guard,
        offset: shape.offset,
        shed: shape.shed,
        lift: shape.lift,
        rate: shape.rate,
        basis: shape.basis.iter().map(one).collect(),
    }
}

/// A fitted function as a plan carries it: the form, the orders, the coefficients with their two axes, and the bound of its error.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The form that both parties know.
    pub form: FormSpec,
    /// Orders of the polynomials, degree by degree.
    pub orders: Vec<usize>,
    /// Coefficients `[segments, sum of orders + 1]`.
    pub coefficients: Vec<i64>,
    /// Bound of the difference to the function, in real units.
    pub error: f64,
}

/// The cheapest form of `f`, a function of many arguments at once, for arguments `low` to `high` in units of 2^-scale, held in shares of
/// `ring_bits` bits, whose result has `fraction` fractional bits and an error of at most `error`.
///
/// # Errors
/// [`hushnet_mpc::MpcError`] when no form reaches the error, or the interval is too large for the ring.
pub fn fit(
    f: &dyn Fn(&[f64]) -> Vec<f64>,
    (low, high, scale): (i64, i64, u32),
    ring_bits: u32,
    (fraction, error): (u32, f64),
) -> Ran<Fitted> {
    let interval = mpc::Interval { low, high, scale };
    Ok(fitted(&mpc::Spline::fit_batched(f, (interval, Ring::new(ring_bits)?), fraction, error)?))
}

/// As [`fit`], of `factor` e^(`rate` x) with one coefficient a segment; arguments whose value is above `limit` give anything. `of` has the three numbers.
///
/// # Errors
/// [`hushnet_mpc::MpcError`] when no form reaches the error, a number is not positive, or the interval is too large for the ring.
pub fn fit_exponential(
    of: (f64, f64, f64),
    (low, high, scale): (i64, i64, u32),
    ring_bits: u32,
    (fraction, error): (u32, f64),
) -> Ran<Fitted> {
    let interval = mpc::Interval { low, high, scale };
    Ok(fitted(&mpc::Spline::exponential(of, (interval, Ring::new(ring_bits)?), fraction, error)?))
}

fn fitted(spline: &mpc::Spline) -> Fitted {
    Fitted {
        form: spec_of(spline.shape.spec()),
        orders: spline.pieces.orders().to_vec(),
        coefficients: spline.pieces.coefficients().to_vec(),
        error: spline.error,
    }
}

impl Function {
    pub(super) fn check(
        scope: &mut Scope<'_>,
        stage: &str,
        spec: &FunctionSpec,
        (x, to): (&Shared<'_>, &Shared<'_>),
        ring: Ring,
    ) -> Result<Self, Fault> {
        let shape = shape_of(&spec.form).or_else(|e| fault(e.to_string()))?;
        let (most, form) = (reach::largest(x.reach), &spec.form);
        let least = if x.non_negative { 0 } else { most };
        let holds = [i128::from(form.low) <= -i128::from(least), i128::from(form.high) >= i128::from(most)];
        for (end, (side, holds)) in
            [spec.below, spec.above].into_iter().zip(["below", "above"].into_iter().zip(holds))
        {
            if end == End::Inside && !holds {
                return fault(format!(
                    "its interval is {} to {}, but values up to 2^{} may lie {side} it; clip them there",
                    form.low, form.high, x.reach
                ));
            }
        }
        if spec.above == End::Mirrored
            || (spec.below == End::Mirrored && (spec.above == End::Rising || form.low > 0))
        {
            return fault(format!(
                "it is mirrored with an interval from {} on and an end above that is {:?}; the interval begins at zero or below it, \
                 and the end above is constant or inside",
                form.low, spec.above
            ));
        }
        let rises = [spec.below, spec.above].iter().any(|e| [End::Rising, End::Mirrored].contains(e));
        if rises && to.f < x.f {
            return fault(format!("a rising end takes {} fraction bits to no fewer, not to {}", x.f, to.f));
        }
        let finer = if rises { to.f.abs_diff(x.f) } else { 0 };
        for (what, bits) in [
            ("its argument has", shape.spec().argument_bits),
            ("its lifted result has", shape.spec().lift.saturating_add(1)),
            ("its rising end's result has", x.reach.saturating_add(finer).saturating_add(1)),
        ] {
            if bits > ring.bits() {
                return fault(format!("{what} {bits} bits, the shares have {}", ring.bits()));
            }
        }
        let names =
            scope.arrays(stage, [("coefficients", &spec.coefficients), ("function", &spec.function)])?;
        let pieces = match (names, &spec.orders) {
            (Some([name, _]), Some(orders)) => {
                let each = orders.iter().try_fold(0_usize, |n, o| o.checked_add(1)?.checked_add(n));
                let shape_of_file = [1_usize << shape.spec().segments, each.unwrap_or(usize::MAX)];
                let values = numbers(name, &shape_of_file, scope.files)?;
                let pieces = Pieces::new(&shape, orders.clone(), values);
                Some(Arc::new(pieces.or_else(|e| fault(e.to_string()))?))
            }
            (None, None) => None,
            _ => return fault("it has only one of 'orders' and 'coefficients'".into()),
        };
        Ok(Self { shape, pieces, ends: [spec.below, spec.above], finer })
    }

    /// Whether arguments are compared with the ends of the interval; of a mirrored function with zero in the place of the lower one.
    pub(super) fn clips(&self) -> [bool; 2] {
        self.ends.map(|e| e != End::Inside)
    }

    fn mirrored(&self) -> bool {
        self.ends[0] == End::Mirrored
    }

    /// Bits of what is compared of arguments below 2^k: an argument less an end.
    pub(super) fn compared_bits(&self, k: u32) -> Option<u32> {
        let (spec, [low, high]) = (self.shape.spec(), self.clips());
        let end = |clips: bool, end: i64| if clips { end.unsigned_abs() } else { 0 };
        let farther = end(low, spec.low).max(end(high, spec.high));
        let most = if self.mirrored() {
            // x against zero, |x| against the upper end
            reach::largest(k).max(end(high, spec.high))
        } else {
            reach::largest(k).saturating_add(farther)
        };
        (low || high).then(|| 65 - most.leading_zeros())
    }

    /// Bytes that its protocol keeps of so many values.
    pub(super) fn held(&self, values: u64) -> u64 {
        let terms = self.shape.products() as u64 + 8;
        values.min(PASS).saturating_mul(terms * BYTES_PER_TERM)
    }
}

impl Function {
    /// Arguments within the interval, and what is added to the pieces' values, before it has their fraction bits.
    fn clipped(&self, s: &mut Session, x: &[u64], at: &At) -> Ran<[Vec<u64>; 2]> {
        let (spec, first) = (self.shape.spec(), s.party() == Party::Zero);
        let [below, above] = self.clips();
        let at_end = |end: i64| if first { end as u64 } else { 0 };
        let mut differences = Vec::new();
        for (_, end) in [(below, spec.low), (above, spec.high)].into_iter().filter(|(clips, _)| *clips) {
            differences.extend(x.iter().map(|v| at.ring.sub(*v, at_end(end))));
        }
        let over = mpc::relu_within(s, &differences, at.ring, at.compared)?;
        // max(x - low, 0) and max(x - high, 0), each where it is asked for.
        let mut parts = over.chunks_exact(x.len().max(1));
        let from_low = if below { parts.next() } else { None };
        let from_high = if above { parts.next() } else { None };
        let mut clipped = x.to_vec();
        let mut beyond = vec![0; x.len()];
        if let Some(part) = from_low {
            for ((c, b), v) in clipped.iter_mut().zip(&mut beyond).zip(part) {
                let kept = v.wrapping_add(at_end(spec.low));
                if self.ends[0] == End::Rising {
                    *b = c.wrapping_sub(kept);
                }
                *c = kept;
            }
        }
        if let Some(part) = from_high {
            for ((c, b), v) in clipped.iter_mut().zip(&mut beyond).zip(part) {
                if self.ends[1] == End::Rising {
                    *b = b.wrapping_add(*v);
                }
                *c = c.wrapping_sub(*v);
            }
        }
        Ok([clipped, beyond])
    }

    /// The same of a mirrored function: min(|x|, high), and max(x, 0).
    fn folded(&self, s: &mut Session, x: &[u64], at: &At) -> Ran<[Vec<u64>; 2]> {
        let positive = mpc::relu_within(s, x, at.ring, at.compared)?;
        let mut size: Vec<u64> =
            positive.iter().zip(x).map(|(r, v)| at.ring.reduce((r << 1).wrapping_sub(*v))).collect();
        if self.clips()[1] {
            let end = if s.party() == Party::Zero { self.shape.spec().high as u64 } else { 0 };
            let less: Vec<u64> = size.iter().map(|v| at.ring.sub(*v, end)).collect();
            let over = mpc::relu_within(s, &less, at.ring, at.compared)?;
            size.iter_mut().zip(over).for_each(|(v, o)| *v = v.wrapping_sub(o));
        }
        Ok([size, positive])
    }
}

impl OnShares for Function {
    fn run(&self, s: &mut Session, x: &[&[u64]], at: &At) -> Ran<Vec<u64>> {
        let [within, beyond] =
            if self.mirrored() { self.folded(s, x[0], at)? } else { self.clipped(s, x[0], at)? };
        let within: Vec<u64> = within.into_iter().map(|v| at.ring.reduce(v)).collect();
        let pieces = self.pieces.as_deref().filter(|_| s.party() == HOLDER);
        let values = mpc::spline(s, (&within, at.ring), &self.shape, pieces, HOLDER, at.ring)?;
        let lifted = |(v, b): (u64, &u64)| at.ring.reduce(v.wrapping_add(b << self.finer));
        Ok(values.into_iter().zip(&beyond).map(lifted).collect())
    }

    fn cost(&self, m: &mut CostModel, elements: usize, at: &At) {
        let n = elements * at.images;
        let ends = self.clips().into_iter().filter(|clips| *clips).count();
        if self.mirrored() {
            (0..ends).for_each(|_| mpc::relu_within_cost(m, n, at.ring, at.compared));
        } else if ends > 0 {
            mpc::relu_within_cost(m, n * ends, at.ring, at.compared);
        }
        mpc::spline_cost(m, n, &self.shape, HOLDER, at.ring);
    }
}
