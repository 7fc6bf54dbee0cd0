//! Division by powers of two (CrypTFlow2, section 4.2; SIRNN, section 3; Cheetah, section 5).
//!
//! With x = x0 + x1 - w*2^l over the integers (w the wrap-around) and c the carry out of the low s bits,
//! floor(x/2^s) = floor(x0/2^s) + floor(x1/2^s) + c - w*2^(l-s).

use super::compare::{
    compare_both, compare_both_cost, compare_planes, compare_planes_cost, complemented, Bits,
};
use super::convert::{bit_to_arithmetic, bit_to_arithmetic_cost};
use super::product::{self, chunks, products, Job};
use crate::bits::{spread, to_planes};
use crate::cost::CostModel;
use crate::error::{MpcError, Result};
use crate::ring::Ring;
use crate::Session;

/// What is known about the values; the less, the dearer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// Any signed value of Z_2^l.
    Any,
    /// 0 <= x < 2^(l-1), as after a ReLU. The wrap-around is then msb(x0) OR msb(x1).
    NonNegative,
    /// -2^(l-2) <= x < 2^(l-2): made non-negative by adding 2^(l-2).
    Small,
}

/// How the quotient is rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// floor(x/2^s), always.
    Floor,
    /// floor(x/2^s) or that plus one: floor + Bernoulli((x mod 2^s + 1)/2^s), so x/2^s + 2^-s on average. The
    /// randomness is that of the shares.
    Faithful,
}

pub(super) fn offset(range: Range, ring: Ring) -> u64 {
    match range {
        Range::Any => 1 << (ring.bits() - 1),
        Range::NonNegative => 0,
        Range::Small => 1 << (ring.bits() - 2),
    }
}

/// Shares of x/2^shift, rounded as asked, for signed x within `range`; 1 <= shift < l (shift < l - 1 unless
/// `Range::Any`).
///
/// Bits per value: `NonNegative` or `Small`, `Faithful`: shift + 1, 2 rounds. `Floor` adds a comparison of `shift` bits
/// and its conversion (l bits). `Any` compares l bits and converts the wrap (shift bits).
///
/// # Errors
/// `Parameter` for another shift; `RingWidth` when l < 3; channel errors.
pub fn truncate(
    s: &mut Session,
    x: &[u64],
    shift: u32,
    ring: Ring,
    range: Range,
    rounding: Rounding,
) -> Result<Vec<u64>> {
    check(shift, ring, range)?;
    let mut out = Vec::with_capacity(x.len());
    for (at, n) in chunks(x.len(), s.chunk()) {
        out.extend(pass(s, &x[at..at + n], shift, ring, range, rounding)?);
    }
    Ok(out)
}

fn check(shift: u32, ring: Ring, range: Range) -> Result<()> {
    ring.at_least(3)?;
    let limit = ring.bits() - if range == Range::Any { 1 } else { 2 };
    if shift == 0 || shift > limit {
        return Err(MpcError::Parameter { what: "shift", got: shift.into(), limit: limit.into() });
    }
    Ok(())
}

fn pass(
    s: &mut Session,
    x: &[u64],
    shift: u32,
    ring: Ring,
    range: Range,
    rounding: Rounding,
) -> Result<Vec<u64>> {
    let n = x.len();
    let add = if s.is_first() { offset(range, ring) } else { 0 };
    let x: Vec<u64> = x.iter().map(|&x| ring.add(x, add)).collect();
    let low_ring = Ring::new(shift)?;
    let (wrap, carry) = match range {
        Range::Any => {
            let [carry, wrap] = carries(s, &x, shift, ring, rounding)?;
            (bit_to_arithmetic(s, &Bits::new(wrap, n), low_ring)?, carry)
        }
        _ => {
            let carry = match rounding {
                Rounding::Floor => compare_planes(s, &carry_planes(s, &x, shift), n)?,
                Rounding::Faithful => Vec::new(),
            };
            (wrap_of_small(s, &x, ring, &[low_ring])?.swap_remove(0), carry)
        }
    };
    // Faithful: the carry is replaced by one.
    let carry = match rounding {
        Rounding::Floor => bit_to_arithmetic(s, &Bits::new(carry, n), ring)?,
        Rounding::Faithful => vec![u64::from(s.is_first()); n],
    };
    let back = add >> shift;
    Ok((0..n)
        .map(|i| {
            let q = (x[i] >> shift).wrapping_add(carry[i]).wrapping_sub(back);
            ring.reduce(q.wrapping_sub(wrap[i] << (ring.bits() - shift)))
        })
        .collect())
}

/// Planes whose comparison gives the carry out of the low bits: [`complemented`].
pub(super) fn carry_planes(s: &Session, x: &[u64], bits: u32) -> Vec<Vec<u64>> {
    complemented(s, to_planes(x, bits))
}

/// The carry out of the low `shift` bits (only for `Floor`) and the wrap-around of l bits.
fn carries(s: &mut Session, x: &[u64], shift: u32, ring: Ring, rounding: Rounding) -> Result<[Vec<u64>; 2]> {
    let planes = carry_planes(s, x, ring.bits());
    match rounding {
        Rounding::Floor => compare_both(s, &planes, shift as usize, x.len()),
        Rounding::Faithful => Ok([Vec::new(), compare_planes(s, &planes, x.len())?]),
    }
}

/// Shares, in every ring of `rings`, of the wrap-around of values below 2^(l-1): m0 OR m1 = m0 + m1 - m0*m1 for the
/// top bits m0, m1 of the shares; one correlated OT. Party 1 holds the elements: it has its share of the result before the other party's answer, so what
/// it sends next goes with its payload, and party 0, which often knows its share early, sends its choices with what it sent before.
pub(crate) fn wrap_of_small(s: &mut Session, x: &[u64], ring: Ring, rings: &[Ring]) -> Result<Vec<Vec<u64>>> {
    let tops: Vec<u64> = x.iter().map(|v| v >> (ring.bits() - 1)).collect();
    let plane = to_planes(&tops, 1).swap_remove(0);
    let m = spread(&plane, x.len());
    let elements: Vec<&[u64]> = rings.iter().map(|_| m.as_slice()).collect();
    let (send, recv) = if s.is_first() { (None, Some(&plane[..])) } else { (Some(&elements[..]), None) };
    let mut wraps = products(s, &Job { n: x.len(), send, recv, rings })?;
    for (w, ring) in wraps.iter_mut().zip(rings) {
        w.iter_mut().zip(&m).for_each(|(w, &m)| *w = ring.sub(m, *w));
    }
    Ok(wraps)
}

/// Adds the exact traffic and rounds of [`wrap_of_small`] to the model, both directions.
pub(crate) fn wrap_of_small_cost(m: &mut CostModel, n: usize, rings: &[Ring]) {
    product::cost(m, n, [false, true], rings);
}

/// Adds the exact traffic and rounds of [`truncate`] to the model, both directions.
pub fn truncate_cost(m: &mut CostModel, n: usize, shift: u32, ring: Ring, range: Range, rounding: Rounding) {
    let Ok(low) = Ring::new(shift) else { return };
    for (_, n) in chunks(n, m.chunk) {
        match (range, rounding) {
            (Range::Any, Rounding::Floor) => compare_both_cost(m, ring.bits() as usize, shift as usize, n),
            (Range::Any, Rounding::Faithful) => compare_planes_cost(m, ring.bits() as usize, n),
            (_, Rounding::Floor) => compare_planes_cost(m, shift as usize, n),
            (_, Rounding::Faithful) => (),
        }
        match range {
            Range::Any => bit_to_arithmetic_cost(m, n, low),
            _ => wrap_of_small_cost(m, n, &[low]),
        }
        if rounding == Rounding::Floor {
            bit_to_arithmetic_cost(m, n, ring);
        }
    }
}
