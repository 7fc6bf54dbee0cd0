//! Division by a public constant without widening the ring.
//!
//! With x = x0 + x1 - w*2^l, x_i = q_i*d + r_i and 2^l = Q*d + R, floor(x/d) = q0 + q1 - w*Q + floor(z/d) where
//! z = r0 + r1 - w*R lies in (-d, 2d). The last term is -1, 0 or 1; exactly, it is [z >= 0] + [z >= d] - 1, two signs
//! in a ring of ceil(log2 d) + 2 bits.

use super::compare::{drelu, drelu_cost};
use super::convert::{bit_to_arithmetic, bit_to_arithmetic_cost};
use super::product::chunks;
use super::truncate::{wrap_of_small, wrap_of_small_cost, Range};
use crate::cost::CostModel;
use crate::divisor::Divisor;
use crate::error::{MpcError, Result};
use crate::ring::Ring;
use crate::Session;

/// How exact a quotient is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quotient {
    /// floor(x/d), always.
    Floor,
    /// floor(x/d) - 1, floor(x/d) or floor(x/d) + 1; needs only one correlated OT.
    Near,
}

/// d with what the protocol needs of it.
struct Division {
    d: u64,
    /// Quotients and remainders of shares, in constant time.
    by: Divisor,
    /// Added to make x non-negative: a multiple of d.
    offset: u64,
    /// floor(2^l / d) and 2^l mod d.
    wrap: (u64, u64),
    /// Ring for z.
    small: Ring,
}

impl Division {
    fn new(d: u64, ring: Ring, range: Range) -> Result<Self> {
        ring.at_least(4)?;
        let limit = 1 << (ring.bits() - 4);
        if d < 2 || d > limit {
            return Err(MpcError::Parameter { what: "divisor", got: d, limit });
        }
        let offset = match range {
            Range::NonNegative => 0,
            Range::Small => (1 << (ring.bits() - 2)) / d * d,
            Range::Any => {
                return Err(MpcError::Parameter {
                    what: "range (Any is not supported by division)",
                    got: 0,
                    limit: 0,
                })
            }
        };
        let two_l = 1u128 << ring.bits();
        let wrap = ((two_l / u128::from(d)) as u64, (two_l % u128::from(d)) as u64);
        let small = Ring::new(64 - (d - 1).leading_zeros() + 2)?;
        Ok(Self { d, by: Divisor::new(d), offset, wrap, small })
    }
}

/// Shares of floor(x/d) (or next to it: `Quotient::Near`) for a public 2 <= d <= 2^(l-4) and signed x with
/// 0 <= x < 2^(l-1) (`Range::NonNegative`) or -(2^(l-2) - d) <= x < 2^(l-2) (`Range::Small`). To round to nearest, add
/// floor(d/2) to one share first.
///
/// Bits per value: `Near` l + 1; `Floor` adds b + two comparisons of b - 1 bits with conversion, b = ceil(log2 d) + 2.
///
/// # Errors
/// `Parameter` for another d or `Range::Any`; channel errors.
pub fn divide(
    s: &mut Session,
    x: &[u64],
    d: u64,
    ring: Ring,
    range: Range,
    quotient: Quotient,
) -> Result<Vec<u64>> {
    let div = Division::new(d, ring, range)?;
    let mut out = Vec::with_capacity(x.len());
    for (at, n) in chunks(x.len(), s.chunk()) {
        out.extend(pass(s, &x[at..at + n], &div, ring, quotient)?);
    }
    Ok(out)
}

fn pass(s: &mut Session, x: &[u64], div: &Division, ring: Ring, quotient: Quotient) -> Result<Vec<u64>> {
    let (add, back) = if s.is_first() { (div.offset, div.offset / div.d) } else { (0, 0) };
    let x: Vec<u64> = x.iter().map(|&x| ring.add(x, add)).collect();
    let exact = quotient == Quotient::Floor;
    let rings = [ring, div.small];
    let wraps = wrap_of_small(s, &x, ring, if exact { &rings } else { &rings[..1] })?;
    let (quotients, rests): (Vec<u64>, Vec<u64>) = x.iter().map(|&x| div.by.divide(x)).unzip();
    let mut q: Vec<u64> = quotients
        .iter()
        .zip(&wraps[0])
        .map(|(q, w)| ring.reduce(q.wrapping_sub(w.wrapping_mul(div.wrap.0)).wrapping_sub(back)))
        .collect();
    if exact {
        let b = div.small;
        let z =
            rests.iter().zip(&wraps[1]).map(|(r, w)| b.reduce(r.wrapping_sub(w.wrapping_mul(div.wrap.1))));
        let mut both: Vec<u64> = z.collect();
        let less = if s.is_first() { div.d } else { 0 };
        both.extend_from_within(..);
        both[x.len()..].iter_mut().for_each(|z| *z = b.sub(*z, less));
        let signs = drelu(s, &both, b)?;
        let signs = bit_to_arithmetic(s, &signs, ring)?;
        let one = u64::from(s.is_first());
        let (a, c) = signs.split_at(x.len());
        q.iter_mut().zip(a.iter().zip(c)).for_each(|(q, (a, c))| {
            *q = ring.reduce(q.wrapping_add(*a).wrapping_add(*c).wrapping_sub(one));
        });
    }
    Ok(q)
}

/// Adds the exact traffic and rounds of [`divide`] to the model, both directions.
pub fn divide_cost(m: &mut CostModel, n: usize, d: u64, ring: Ring, range: Range, quotient: Quotient) {
    let Ok(div) = Division::new(d, ring, range) else { return };
    for (_, n) in chunks(n, m.chunk) {
        match quotient {
            Quotient::Near => wrap_of_small_cost(m, n, &[ring]),
            Quotient::Floor => {
                wrap_of_small_cost(m, n, &[ring, div.small]);
                drelu_cost(m, 2 * n, div.small);
                bit_to_arithmetic_cost(m, 2 * n, ring);
            }
        }
    }
}
