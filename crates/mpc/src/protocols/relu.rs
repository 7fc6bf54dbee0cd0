//! ReLU and its relatives.

use super::compare::{drelu_dropping, drelu_dropping_cost};
use super::convert::{mux, mux_cost};
use super::selection::{where_positive, where_positive_cost};
use super::truncate::{truncate, truncate_cost, Range, Rounding};
use crate::cost::CostModel;
use crate::error::{MpcError, Result};
use crate::ring::Ring;
use crate::Session;

/// Shares of max(x, 0), exact for every x of Z_2^l read as signed, l >= 2: [`super::drelu`], and a selection that begins beside it.
///
/// # Errors
/// `RingWidth` when l < 2; channel errors.
pub fn relu(s: &mut Session, x: &[u64], ring: Ring) -> Result<Vec<u64>> {
    relu_within(s, x, ring, ring)
}

/// Adds the exact traffic and rounds of [`relu`] to the model, both directions.
pub fn relu_cost(m: &mut CostModel, n: usize, ring: Ring) {
    relu_within_cost(m, n, ring, ring);
}

/// As [`relu`], with the sign taken modulo 2^w, w the bits of `narrow`: exact for every x in [-2^(w-1), 2^(w-1)), because reducing both shares
/// modulo 2^w keeps such an x. Costs a comparison of w - 1 bits and a multiplexer of l.
///
/// # Errors
/// `Parameter` when w exceeds l; otherwise as [`relu`].
pub fn relu_within(s: &mut Session, x: &[u64], ring: Ring, narrow: Ring) -> Result<Vec<u64>> {
    Ok(where_positive(s, &reduced(x, ring, narrow)?, narrow, &[x], &[ring])?.swap_remove(0))
}

/// Values that fit the narrower ring, in it: its bits are all that is compared.
pub(super) fn reduced(x: &[u64], ring: Ring, narrow: Ring) -> Result<Vec<u64>> {
    if narrow.bits() > ring.bits() {
        let (got, limit) = (narrow.bits().into(), ring.bits().into());
        return Err(MpcError::Parameter { what: "bits of the compared ring", got, limit });
    }
    Ok(x.iter().map(|v| narrow.reduce(*v)).collect())
}

/// Adds the exact traffic and rounds of [`relu_within`] to the model, both directions.
pub fn relu_within_cost(m: &mut CostModel, n: usize, ring: Ring, narrow: Ring) {
    where_positive_cost(m, n, narrow, &[ring]);
}

/// ReLU by [`super::drelu_dropping`]. **Not exact**: for 0 <= x < 2^drop the result may be 0 instead of x, and for
/// x < 2^drop - 2^(l-1) it may be x instead of 0; right for all others.
///
/// # Errors
/// `Parameter` when drop > l - 2; otherwise as [`relu`].
pub fn relu_dropping(s: &mut Session, x: &[u64], ring: Ring, drop: u32) -> Result<Vec<u64>> {
    let positive = drelu_dropping(s, x, ring, drop)?;
    mux(s, &positive, x, ring)
}

/// Adds the exact traffic and rounds of [`relu_dropping`] to the model, both directions.
pub fn relu_dropping_cost(m: &mut CostModel, n: usize, ring: Ring, drop: u32) {
    drelu_dropping_cost(m, n, ring, drop);
    mux_cost(m, n, ring);
}

/// The slope numerator/2^log_denominator of a leaky ReLU, between 0 and 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slope {
    numerator: u64,
    log_denominator: u32,
}

impl Slope {
    /// numerator/2^log_denominator.
    ///
    /// # Errors
    /// `Parameter` unless 1 <= log_denominator <= 62 and numerator <= 2^log_denominator.
    pub fn new(numerator: u64, log_denominator: u32) -> Result<Self> {
        if log_denominator == 0 || log_denominator > 62 {
            return Err(MpcError::Parameter {
                what: "slope's denominator (log2)",
                got: log_denominator.into(),
                limit: 62,
            });
        }
        if numerator > 1 << log_denominator {
            let limit = 1 << log_denominator;
            return Err(MpcError::Parameter { what: "slope's numerator", got: numerator, limit });
        }
        Ok(Self { numerator, log_denominator })
    }

    /// 2^-k.
    ///
    /// # Errors
    /// `Parameter` unless 1 <= k <= 62.
    pub fn power_of_two(k: u32) -> Result<Self> {
        Self::new(1, k)
    }
}

/// Shares of x for x >= 0 and floor(slope*x) for x < 0 with slope = a/2^f: (a*x + (2^f - a)*relu(x)) / 2^f. Needs
/// |x|*2^f inside `range` of [`truncate`] (|x| < 2^(l-1-f), or 2^(l-2-f) for `Range::Small`). With
/// `Rounding::Faithful` the result may be one unit more.
///
/// # Errors
/// `Parameter` when f >= l; otherwise as [`relu`].
pub fn leaky_relu(
    s: &mut Session,
    x: &[u64],
    ring: Ring,
    slope: Slope,
    range: Range,
    rounding: Rounding,
) -> Result<Vec<u64>> {
    let positive = relu(s, x, ring)?;
    let rest = (1u64 << slope.log_denominator) - slope.numerator;
    let scaled: Vec<u64> = x
        .iter()
        .zip(positive)
        .map(|(&x, r)| ring.add(x.wrapping_mul(slope.numerator), r.wrapping_mul(rest)))
        .collect();
    truncate(s, &scaled, slope.log_denominator, ring, range, rounding)
}

/// Adds the exact traffic and rounds of [`leaky_relu`] to the model, both directions.
pub fn leaky_relu_cost(
    m: &mut CostModel,
    n: usize,
    ring: Ring,
    slope: Slope,
    range: Range,
    rounding: Rounding,
) {
    relu_cost(m, n, ring);
    truncate_cost(m, n, slope.log_denominator, ring, range, rounding);
}

/// Shares of min(max(x, low), high) for low <= high (ReLU6 with 0 and 6 scaled): low + relu(x - low) -
/// relu(x - high), both in the same rounds. Needs x - low and x - high in [-2^(w-1), 2^(w-1)), w the
/// bits of `narrow`, where they are compared. Only the first party moves its share, so only it gives `ends` (low, high); the
/// other party's messages do not depend on them, and it learns nothing of them.
///
/// # Errors
/// `Parameter` at the first party without ends, or when low > high; otherwise as [`relu`].
pub fn clip(
    s: &mut Session,
    x: &[u64],
    ring: Ring,
    narrow: Ring,
    ends: Option<(i64, i64)>,
) -> Result<Vec<u64>> {
    let (low, high) = match ends {
        Some((low, high)) if low > high => {
            return Err(MpcError::Parameter {
                what: "clip's lower bound",
                got: low as u64,
                limit: high as u64,
            })
        }
        None if s.is_first() => {
            return Err(MpcError::Parameter {
                what: "clip's ends that the first party gives",
                got: 0,
                limit: 2,
            })
        }
        Some(ends) if s.is_first() => ends,
        // The second party's share stays where it is.
        _ => (0, 0),
    };
    let both: Vec<u64> =
        [low, high].iter().flat_map(|&by| x.iter().map(move |&x| ring.sub(x, by as u64))).collect();
    let r = relu_within(s, &both, ring, narrow)?;
    let (above_low, above_high) = r.split_at(x.len());
    Ok(above_low
        .iter()
        .zip(above_high)
        .map(|(&a, &b)| ring.reduce(a.wrapping_sub(b).wrapping_add(low as u64)))
        .collect())
}

/// Adds the exact traffic and rounds of [`clip`] to the model, both directions.
pub fn clip_cost(m: &mut CostModel, n: usize, ring: Ring, narrow: Ring) {
    relu_within_cost(m, 2 * n, ring, narrow);
}
