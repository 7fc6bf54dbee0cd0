//! Products of two shared values, element by element (Gilboa, CRYPTO 1999, section 4.1; unequal widths: SIRNN, IEEE S&P 2021, section 3.2).
//!
//! Over the integers x = X_0 + X_1 - u*2^l, where u is the wrap-around of the shares, and y = Y_0 + Y_1 - v*2^m. So modulo 2^w, w <= l + m,
//! x*y = X_0*Y_0 + X_1*Y_1 + X_0*Y_1 + X_1*Y_0 - u*2^l*y - v*2^m*x. The first two products are local, the next two are ladders of
//! correlated OTs, the last two are multiplexers of w - l and of w - m bits. They vanish where the result is no wider than the operand.

use super::compare::{compare_planes, compare_planes_cost, Bits};
use super::convert::{mux, mux_cost};
use super::cross::{self, ladder, Term};
use super::product::{self, chunks, one_way, OneWay};
use super::truncate::{carry_planes, offset, Range};
use crate::bits::to_planes;
use crate::cost::CostModel;
use crate::error::{check_len, MpcError, Result};
use crate::ring::Ring;
use crate::Session;

/// A factor: the ring of its shares, and what is known about its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Factor {
    ring: Ring,
    range: Range,
}

impl Factor {
    /// Shares in `ring` of signed values within `range`. The range matters only where the product is wider than the ring.
    ///
    /// # Errors
    /// `RingWidth` for a ring of fewer than three bits.
    pub fn new(ring: Ring, range: Range) -> Result<Self> {
        ring.at_least(3)?;
        Ok(Self { ring, range })
    }

    /// The ring of its shares.
    pub(super) fn ring(self) -> Ring {
        self.ring
    }

    /// Bits of the wrap-around that a product modulo 2^w needs.
    pub(super) fn excess(self, out: Ring) -> Option<Ring> {
        out.bits().checked_sub(self.ring.bits()).and_then(|bits| Ring::new(bits).ok())
    }

    /// Added to the shares so that their sum is not negative: nothing where the wrap-around does not matter.
    pub(super) fn offset(self, out: Ring) -> u64 {
        self.excess(out).map_or(0, |_| offset(self.range, self.ring))
    }
}

/// Values a pass: a term keeps a word and a block until its payload comes.
pub(super) fn pass_length(chunk: usize) -> usize {
    (chunk / 8).max(64).next_multiple_of(64)
}

pub(super) fn check(x: Factor, y: Factor, out: Ring) -> Result<()> {
    let limit = u64::from(x.ring.bits() + y.ring.bits());
    if u64::from(out.bits()) > limit {
        return Err(MpcError::Parameter { what: "bits of a product's ring", got: out.bits().into(), limit });
    }
    Ok(())
}

/// This party's number X: x = X_0 + X_1 - u*2^l. Also the shifted share x', whose bits choose: X = x' - offset at the first party.
pub(super) struct Number {
    shifted: Vec<u64>,
    offset: u64,
}

impl Number {
    pub(super) fn new(s: &Session, values: &[u64], of: Factor, out: Ring) -> Self {
        let offset = if s.is_first() { of.offset(out) } else { 0 };
        Self { shifted: values.iter().map(|&v| of.ring.add(v, offset)).collect(), offset }
    }

    /// The shifted shares, whose bits choose.
    pub(super) fn shifted(&self) -> &[u64] {
        &self.shifted
    }

    pub(super) fn value(&self, i: usize) -> u64 {
        self.shifted[i].wrapping_sub(self.offset)
    }

    /// The values from `at` on.
    pub(super) fn values(&self, at: usize, out: &mut [u64]) {
        for (o, v) in out.iter_mut().zip(&self.shifted[at..]) {
            *o = v.wrapping_sub(self.offset);
        }
    }
}

/// Shares of x*y modulo 2^w, w = `out`'s bits, element by element, for signed x and y within the ranges of their factors; exact. w is at
/// most the sum of both widths.
///
/// Bits for two factors of l bits and w = l: l(l + 1) of payload and 2l of choices, 2l correlated OTs, two rounds: 36 bytes at l = 16.
/// A factor that is narrower than the product adds its wrap-around: two bits and two rounds (`Range::Any`: a comparison of its bits), and a
/// multiplexer of the bits that are missing.
///
/// # Errors
/// `Length` when x and y differ in length; `Parameter` when w is above the sum of the widths; channel errors.
pub fn multiply(
    s: &mut Session,
    (x, of_x): (&[u64], Factor),
    (y, of_y): (&[u64], Factor),
    out: Ring,
) -> Result<Vec<u64>> {
    check_len("second factor", x.len(), y.len())?;
    check(of_x, of_y, out)?;
    let mut product = Vec::with_capacity(x.len());
    for (at, n) in chunks(x.len(), pass_length(s.chunk())) {
        product.extend(pass(s, (&x[at..at + n], of_x), (&y[at..at + n], of_y), out)?);
    }
    Ok(product)
}

fn pass(
    s: &mut Session,
    (x, of_x): (&[u64], Factor),
    (y, of_y): (&[u64], Factor),
    out: Ring,
) -> Result<Vec<u64>> {
    let n = x.len();
    let (a, b) = (Number::new(s, x, of_x, out), Number::new(s, y, of_y, out));
    let mut product: Vec<u64> = (0..n).map(|i| out.reduce(a.value(i).wrapping_mul(b.value(i)))).collect();
    for (wide, of, with) in [(&a, of_x, y), (&b, of_y, x)] {
        subtract_wrap(s, wide, of, with, out, &mut product)?;
    }
    // The narrower factor's bits choose.
    let (narrow, wide, bits) =
        if of_x.ring.bits() < of_y.ring.bits() { (&a, &b, of_x) } else { (&b, &a, of_y) };
    let terms = ladder(bits.ring.bits(), out);
    s.ensure([cross::demand(terms.len(), n); 2])?;
    let planes = to_planes(&narrow.shifted, terms.len() as u32);
    let chosen = cross::choose(s, n, &terms, |block, term| planes[term][block])?;
    s.channel.flush()?;
    cross::offer(s, &terms, out, &mut product, |_, at, block| wide.values(at, block))?;
    s.channel.flush()?;
    cross::collect(s, &terms, out, &chosen, &mut product)?;
    // The first party chose with x', so the second one takes offset * Y_1 off.
    if !s.is_first() {
        let offset = bits.offset(out);
        product
            .iter_mut()
            .enumerate()
            .for_each(|(i, p)| *p = out.sub(*p, offset.wrapping_mul(wide.value(i))));
    }
    Ok(product)
}

/// Takes u * 2^l * `with` off `product`, u the wrap-around of the shifted shares.
pub(super) fn subtract_wrap(
    s: &mut Session,
    x: &Number,
    of: Factor,
    with: &[u64],
    out: Ring,
    product: &mut [u64],
) -> Result<()> {
    let Some(ring) = of.excess(out) else { return Ok(()) };
    let wrap = wrap_around(s, &x.shifted, of)?;
    let with: Vec<u64> = with.iter().map(|&v| ring.reduce(v)).collect();
    let taken = mux(s, &wrap, &with, ring)?;
    product.iter_mut().zip(taken).for_each(|(p, t)| *p = out.sub(*p, t << of.ring.bits()));
    Ok(())
}

/// XOR shares of the wrap-around of shares that have been shifted.
pub(super) fn wrap_around(s: &mut Session, shifted: &[u64], of: Factor) -> Result<Bits> {
    let n = shifted.len();
    if of.range == Range::Any {
        let planes = carry_planes(s, shifted, of.ring.bits());
        return Ok(Bits::new(compare_planes(s, &planes, n)?, n));
    }
    // Values below 2^(l-1): m0 OR m1 of the top bits.
    let tops: Vec<u64> = shifted.iter().map(|v| v >> (of.ring.bits() - 1)).collect();
    let plane = to_planes(&tops, 1).swap_remove(0);
    let both = one_way(s, n, OneWay { elements: &[&tops], bits: &plane }, &[Ring::new(1)?])?.swap_remove(0);
    Ok(Bits::from_values(&tops).xor(&Bits::from_values(&both)))
}

/// Cost of the wrap-around of n shares, where the product is wider.
pub(super) fn wrap_around_cost(m: &mut CostModel, n: usize, of: Factor, out: Ring) {
    let (Some(_), Ok(one)) = (of.excess(out), Ring::new(1)) else { return };
    match of.range {
        Range::Any => compare_planes_cost(m, of.ring.bits() as usize, n),
        _ => product::cost(m, n, [true, false], &[one]),
    }
}

/// Cost of [`subtract_wrap`].
pub(super) fn wrap_cost(m: &mut CostModel, n: usize, of: Factor, out: Ring) {
    wrap_around_cost(m, n, of, out);
    if let Some(ring) = of.excess(out) {
        mux_cost(m, n, ring);
    }
}

/// Adds the exact traffic and rounds of [`multiply`] to the model, both directions.
pub fn multiply_cost(m: &mut CostModel, n: usize, x: Factor, y: Factor, out: Ring) {
    if check(x, y, out).is_err() {
        return;
    }
    let terms = ladder(x.ring.bits().min(y.ring.bits()), out);
    for (_, n) in chunks(n, pass_length(m.chunk)) {
        wrap_cost(m, n, x, out);
        wrap_cost(m, n, y, out);
        m.take([cross::demand(terms.len(), n); 2]);
        let (choices, payloads) = (cross::choice_bytes(terms.len(), n), cross::payload_bytes(&terms, n));
        m.exchange(choices, choices);
        m.exchange(payloads, payloads);
    }
}

/// Shares of x*x modulo 2^w, w at most 2l; exact. As [`multiply`], with one ladder of w - 1 bits instead of two of w: 17 bytes at l = w = 16.
///
/// # Errors
/// As [`multiply`].
pub fn square(s: &mut Session, x: &[u64], of: Factor, out: Ring) -> Result<Vec<u64>> {
    check(of, of, out)?;
    let mut squares = Vec::with_capacity(x.len());
    for (at, n) in chunks(x.len(), pass_length(s.chunk())) {
        squares.extend(square_pass(s, &x[at..at + n], of, out)?);
    }
    Ok(squares)
}

/// 2 X_0 X_1 modulo 2^w: the second party's bits choose among multiples of the first one's number.
fn square_terms(of: Factor, out: Ring) -> Vec<Term> {
    Ring::new(out.bits() - 1).map_or_else(|_| Vec::new(), |half| ladder(of.ring.bits(), half))
}

fn square_pass(s: &mut Session, x: &[u64], of: Factor, out: Ring) -> Result<Vec<u64>> {
    let n = x.len();
    let a = Number::new(s, x, of, out);
    let mut squares: Vec<u64> = (0..n).map(|i| out.reduce(a.value(i).wrapping_mul(a.value(i)))).collect();
    if let Some(ring) = twice_excess(of, out) {
        let wrap = wrap_around(s, &a.shifted, of)?;
        let low: Vec<u64> = x.iter().map(|&v| ring.reduce(v)).collect();
        let taken = mux(s, &wrap, &low, ring)?;
        squares.iter_mut().zip(taken).for_each(|(p, t)| *p = out.sub(*p, t << (of.ring.bits() + 1)));
    }
    let Ok(half) = Ring::new(out.bits() - 1) else { return Ok(squares) };
    let terms = square_terms(of, out);
    let demand = cross::demand(terms.len(), n);
    s.ensure([demand, 0])?;
    let mut twice = vec![0; n];
    if s.is_first() {
        cross::offer(s, &terms, half, &mut twice, |_, at, block| a.values(at, block))?;
        s.channel.flush()?;
    } else {
        let planes = to_planes(&a.shifted, terms.len() as u32);
        let chosen = cross::choose(s, n, &terms, |block, term| planes[term][block])?;
        s.channel.flush()?;
        cross::collect(s, &terms, half, &chosen, &mut twice)?;
    }
    squares.iter_mut().zip(twice).for_each(|(p, t)| *p = out.add(*p, 2 * t));
    Ok(squares)
}

/// Bits of x that meet its wrap-around in a square: u * 2^(l+1) * x.
fn twice_excess(of: Factor, out: Ring) -> Option<Ring> {
    of.excess(out).and_then(|r| Ring::new(r.bits() - 1).ok())
}

/// Adds the exact traffic and rounds of [`square`] to the model, both directions.
pub fn square_cost(m: &mut CostModel, n: usize, of: Factor, out: Ring) {
    if check(of, of, out).is_err() {
        return;
    }
    let terms = square_terms(of, out);
    for (_, n) in chunks(n, pass_length(m.chunk)) {
        if let Some(ring) = twice_excess(of, out) {
            wrap_around_cost(m, n, of, out);
            mux_cost(m, n, ring);
        }
        m.take([cross::demand(terms.len(), n), 0]);
        m.message(crate::Party::One, cross::choice_bytes(terms.len(), n));
        m.message(crate::Party::Zero, cross::payload_bytes(&terms, n));
    }
}
