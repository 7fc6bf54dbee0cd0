//! Comparison and sign of shared values (millionaires' protocol of CrypTFlow2, section 3, with our digits).

use super::leaf::{self, Digit};
use super::product::chunks;
use super::ripple;
use super::selection::Selection;
use super::tree;
use crate::bits::{self, to_planes, words};
use crate::cost::CostModel;
use crate::error::{MpcError, Result};
use crate::kept::{widths, Item};
use crate::ring::Ring;
use crate::{Party, Session};

/// How signs are computed beside selections. Exact and equal in what they give.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Comparison {
    /// Digits of two bits and a tree over them: 6.5 bits and two OTs a compared bit, messages by the logarithm of their number.
    #[default]
    Tree,
    /// A carry through digits of at most so many bits, one to four: a message for each digit. Of two bits 4.5 bits and 1.5 OTs a compared bit, of three 6
    /// and 1.3, of four 8.75 and 1.25.
    Ripple(u32),
}

impl Comparison {
    /// Bits that a comparison of two numbers of m bits sends, both ways, OTs left out.
    #[must_use]
    pub fn bits_sent(self, m: usize) -> u64 {
        // eight comparisons: a byte is a bit of each
        let mut model = CostModel::online(64);
        model.set_comparison(self);
        compare_beside_cost(&mut model, m, 8, &[]);
        model.cost().bytes()
    }
}

/// XOR shares of n bits.
#[derive(Clone)]
pub struct Bits {
    pub(crate) plane: Vec<u64>,
    n: usize,
}

impl Bits {
    pub(crate) fn new(plane: Vec<u64>, n: usize) -> Self {
        debug_assert_eq!(plane.len(), words(n));
        Self { plane, n }
    }

    /// Shares from one bit (0 or 1) per value.
    #[must_use]
    pub fn from_values(values: &[u64]) -> Self {
        Self::new(to_planes(values, 1).swap_remove(0), values.len())
    }

    /// The number of bits that are shared.
    #[must_use]
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether no bits are shared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// This party's share of bit i.
    #[must_use]
    pub fn get(&self, i: usize) -> u64 {
        bits::bit(&self.plane, i)
    }

    /// Shares of the XOR of two vectors of bits; local.
    #[must_use]
    pub fn xor(mut self, other: &Self) -> Self {
        self.plane.iter_mut().zip(&other.plane).for_each(|(a, b)| *a ^= b);
        self
    }

    /// Shares of the negated bits; local.
    #[must_use]
    pub fn not(mut self, s: &Session) -> Self {
        if s.is_first() {
            self.plane.iter_mut().for_each(|a| *a = !*a);
        }
        self
    }
}

/// Shares of `[x < y]` for m-bit numbers, given as planes: party 1 holds x, party 0 holds y. One pass, not chunked.
pub(crate) fn compare_planes(s: &mut Session, input: &[Vec<u64>], n: usize) -> Result<Vec<u64>> {
    s.provide(demand(input.len(), n))?;
    let digits = leaf::leaves(s, input, n, false)?;
    Ok(tree::join(s, digits, n)?.lt)
}

/// Correlated OTs of [`compare_planes`].
fn demand(m: usize, n: usize) -> [u64; 2] {
    let joins = tree::demand(m.div_ceil(2), n);
    [joins, leaf::demand(m, n) + joins]
}

pub(crate) fn compare_planes_cost(model: &mut CostModel, m: usize, n: usize) {
    model.provide(demand(m, n));
    leaf::cost(model, m, n, false, 0);
    tree::cost(model, m.div_ceil(2), n, false);
}

/// [`compare_planes`] beside a selection that the result will decide: its messages travel with those of the leaves.
pub(super) fn compare_beside(
    s: &mut Session,
    input: &[Vec<u64>],
    n: usize,
    (payloads, rings): (&[&[u64]], &[Ring]),
) -> Result<(Vec<u64>, Selection)> {
    let comparison = s.comparison();
    s.provide(demand_beside(comparison, input.len(), n))?;
    let mut selection = None;
    let mut beside = |s: &mut Session| {
        selection = Some(Selection::begin(s, payloads, rings)?);
        Ok(())
    };
    let begun = match comparison {
        Comparison::Tree => First::Digits(leaf::leaves_beside(s, input, n, false, &mut beside)?),
        Comparison::Ripple(longest) => First::Carry(ripple::begin(s, input, longest, n, &mut beside)?),
    };
    let mut selection = selection.ok_or(MpcError::Length { what: "selections", expected: 1, got: 0 })?;
    selection.collect(s)?;
    let less = match begun {
        First::Digits(digits) => tree::join(s, digits, n)?.lt,
        First::Carry(begun) => ripple::finish(s, begun, input, n)?,
    };
    Ok((less, selection))
}

/// A comparison whose first messages have been sent.
enum First {
    Digits(Vec<Digit>),
    Carry(ripple::Begun),
}

/// Correlated OTs of [`compare_beside`].
pub(super) fn demand_beside(comparison: Comparison, m: usize, n: usize) -> [u64; 2] {
    let own = match comparison {
        Comparison::Tree => demand(m, n),
        Comparison::Ripple(longest) => ripple::demand(m, longest, n),
    };
    own.map(|d| d + n as u64)
}

/// Messages of [`compare_beside`].
pub(super) fn compare_beside_cost(model: &mut CostModel, m: usize, n: usize, rings: &[Ring]) {
    model.provide(demand_beside(model.comparison, m, n));
    model.pad(Item::Selection(widths(rings)), n);
    let beside = Selection::bytes(n, rings);
    match model.comparison {
        Comparison::Tree => {
            leaf::cost(model, m, n, false, beside);
            tree::cost(model, m.div_ceil(2), n, false);
        }
        Comparison::Ripple(longest) => ripple::cost(model, m, longest, n, beside),
    }
}

/// Planes whose comparison gives the carry out of the sum of both parties' numbers: one of them complements its own.
pub(super) fn complemented(s: &Session, mut planes: Vec<Vec<u64>>) -> Vec<Vec<u64>> {
    if !s.is_first() {
        planes.iter_mut().flatten().for_each(|w| *w = !*w);
    }
    planes
}

/// Shares of `[x_low < y_low]` and `[x < y]` where x_low are the lowest `split` planes: party 1 holds x, party 0 y.
pub(crate) fn compare_both(
    s: &mut Session,
    input: &[Vec<u64>],
    split: usize,
    n: usize,
) -> Result<[Vec<u64>; 2]> {
    let low = compare_planes(s, &input[..split], n)?;
    let m = input.len() - split;
    s.provide(demand_high(m, n))?;
    let mut digits = vec![Digit { lt: low.clone(), eq: None }];
    digits.extend(leaf::leaves(s, &input[split..], n, true)?);
    Ok([low, tree::join(s, digits, n)?.lt])
}

fn demand_high(m: usize, n: usize) -> [u64; 2] {
    let joins = tree::demand(m.div_ceil(2) + 1, n);
    [joins, leaf::demand(m, n) + joins]
}

pub(crate) fn compare_both_cost(model: &mut CostModel, m: usize, split: usize, n: usize) {
    compare_planes_cost(model, split, n);
    let m = m - split;
    model.provide(demand_high(m, n));
    leaf::cost(model, m, n, true, 0);
    tree::cost(model, m.div_ceil(2) + 1, n, false);
}

/// Shares of `[x < y]` for unsigned `bits`-bit numbers, 1 <= bits <= 64; party 0 passes x, party 1 passes y.
///
/// Bytes per comparison: (7*D - 2)/8 for the D = bits/2 digits and (6*(D-1) - 2*log2 D)/8 for the tree;
/// rounds: 2 + ceil(log2 D).
///
/// # Errors
/// `RingWidth` for another width; channel errors.
pub fn less_than(s: &mut Session, mine: &[u64], bits: u32) -> Result<Bits> {
    Ring::new(bits)?;
    let mut plane = Vec::with_capacity(words(mine.len()));
    for (at, n) in chunks(mine.len(), s.chunk()) {
        // [x < y] is [!y < !x], and there party 1 holds what is on the left.
        let mut planes = to_planes(&mine[at..at + n], bits);
        planes.iter_mut().flatten().for_each(|w| *w = !*w);
        plane.extend(compare_planes(s, &planes, n)?);
    }
    Ok(Bits::new(plane, mine.len()))
}

/// Adds the exact traffic and rounds of [`less_than`] to the model, both directions.
pub fn less_than_cost(m: &mut CostModel, n: usize, bits: u32) {
    for (_, n) in chunks(n, m.chunk) {
        compare_planes_cost(m, bits as usize, n);
    }
}

/// Shares of `[x >= 0]` for x in Z_2^l read as signed, l >= 2: 1 ^ msb(x0) ^ msb(x1) ^ carry, where the carry into
/// the top bit is `[2^(l-1) - 1 - low(x0) < low(x1)]`. Exact for every x.
///
/// # Errors
/// `RingWidth` when l < 2; channel errors.
pub fn drelu(s: &mut Session, x: &[u64], ring: Ring) -> Result<Bits> {
    drelu_dropping(s, x, ring, 0)
}

/// Adds the exact traffic and rounds of [`drelu`] to the model, both directions.
pub fn drelu_cost(m: &mut CostModel, n: usize, ring: Ring) {
    drelu_dropping_cost(m, n, ring, 0);
}

/// As [`drelu`], comparing without the lowest `drop` bits of the shares (drop <= l - 2). **Not exact**: the sign
/// used is that of floor(x/2^drop) - e with e in {0, 1}. It is wrong only for 0 <= x < 2^drop, which may count as
/// negative, and for x < 2^drop - 2^(l-1), which may count as positive.
///
/// # Errors
/// `Parameter` when drop > l - 2; otherwise as [`drelu`].
pub fn drelu_dropping(s: &mut Session, x: &[u64], ring: Ring, drop: u32) -> Result<Bits> {
    ring.at_least(2)?;
    if drop > ring.bits() - 2 {
        return Err(MpcError::Parameter {
            what: "dropped bits",
            got: drop.into(),
            limit: (ring.bits() - 2).into(),
        });
    }
    let mut plane = Vec::with_capacity(words(x.len()));
    for (at, n) in chunks(x.len(), s.chunk()) {
        let mut planes = to_planes(&x[at..at + n], ring.bits());
        let msb = planes.pop().unwrap_or_default();
        planes.drain(..drop as usize);
        let carry = compare_planes(s, &complemented(s, planes), n)?;
        plane.extend(sign(s, carry, &msb));
    }
    Ok(Bits::new(plane, x.len()))
}

/// [x >= 0] of one pass as [`drelu`] has it, and a selection that it will decide.
pub(super) fn drelu_beside(
    s: &mut Session,
    x: &[u64],
    ring: Ring,
    payloads: (&[&[u64]], &[Ring]),
) -> Result<(Vec<u64>, Selection)> {
    ring.at_least(2)?;
    let mut planes = to_planes(x, ring.bits());
    let msb = planes.pop().unwrap_or_default();
    let (carry, selection) = compare_beside(s, &complemented(s, planes), x.len(), payloads)?;
    Ok((sign(s, carry, &msb), selection))
}

/// Shares of [x >= 0] from the carry into the top bit, and the top bits.
fn sign(s: &Session, carry: Vec<u64>, msb: &[u64]) -> Vec<u64> {
    let flip = u64::from(s.is_first()).wrapping_neg();
    carry.into_iter().zip(msb).map(|(c, m)| c ^ m ^ flip).collect()
}

/// Who has its share of a comparison of m bits beside a selection first: of trees party 0 where there is an odd number of levels.
pub(super) fn first_to_know(comparison: Comparison, m: usize) -> Party {
    match (comparison, tree::levels(m.div_ceil(2)) % 2) {
        (Comparison::Ripple(longest), _) => ripple::first_to_know(m, longest),
        (Comparison::Tree, 1) => Party::Zero,
        (Comparison::Tree, _) => Party::One,
    }
}

/// Adds the exact traffic and rounds of [`drelu_dropping`] to the model, both directions.
pub fn drelu_dropping_cost(m: &mut CostModel, n: usize, ring: Ring, drop: u32) {
    less_than_cost(m, n, ring.bits() - 1 - drop);
}
