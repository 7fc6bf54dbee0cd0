//! Functions of one variable on shares: piecewise polynomials of degree 0 to 3 whose coefficients are looked up (tables by OT and splines:
//! CrypTFlow2, SIRNN; the form below is ours).
//!
//! The *holder* of the pieces knows its own share X of the argument, so it knows the function of the other share: f(X + Y). Y is a
//! segment number h and a place u within the segment. For every h the holder computes the coefficients c_0, ..., c_D of a polynomial in u for its
//! own X, exactly where it stands. So no carry between the low bits of the shares is needed, and no product of two shared values:
//!
//! 1. The other party, who *asks*, sends its segment number, hidden by a random label, and the bits of T_m(u) (Chebyshev polynomials of the place).
//! 2. The holder sends its table, turned and padded ([`table`]): both have shares of c_0, ..., c_D at h. The holder's shares of c_m, m > 0, meet the bits
//!    of T_m(u) in a ladder of correlated OTs ([`super::cross`]); the other party's meet them at home. Both products are rounded to the ring of the result.
//! 3. Shares of c_m are as narrow as c_m, so their wrap-around is taken off: c_m is below half of its ring, so it is m0 OR m1 of top bits. One correlated OT
//!    from the party that asks.
//! 4. The result is below half of its ring, too. One correlated OT gives its wrap-around in the ring of the output.
//!
//! Four messages in turn, whatever the function.
//!
//! An exponential takes less: e^(X + h S + u) = e^(X + h S + S) e^(u - S). The first factor is the one coefficient of a table's entry, and the
//! second one takes the place of T_1. There is no constant, and long segments need no higher degrees.

mod exponential;
mod fit;
mod function;
mod shape;
mod table;

pub use fit::{Interval, Spline};
pub use function::Function;
pub use shape::{BasisSpec, Shape, ShapeSpec};

use self::shape::PLACE_BITS;
use self::table::{Asked, Fields, Lanes};
use super::cross::{self, Chosen, Term};
use super::product::chunks;
use super::relu::{clip, clip_cost};
use crate::bits::{to_planes, words};
use crate::cost::CostModel;
use crate::error::{check_len, MpcError, Result};
use crate::ring::Ring;
use crate::select::all;
use crate::simd::{FixedKey, Polynomial, GROUP};
use crate::{Party, Session};

/// Values whose messages go out before the next ones are computed, so that both parties work at the same time.
const STREAM: usize = 1024;
/// Fractional bits of the holder's polynomials, below the unit of the coefficient.
const FINE: u32 = 14;

/// The coefficients of a piecewise polynomial as functions of the holder's place in its segment. Only the holder needs them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pieces {
    orders: Vec<usize>,
    coefficients: Vec<i64>,
}

impl Pieces {
    /// For each segment, for each degree m, the coefficients of a polynomial in the holder's place (0 to 1), lowest first, in units of
    /// 2^-14 of the coefficient's unit and less `low`: `orders[m] + 1` numbers.
    ///
    /// # Errors
    /// `Length` when the number of orders or of coefficients is not that of the shape.
    pub fn new(shape: &Shape, orders: Vec<usize>, coefficients: Vec<i64>) -> Result<Self> {
        if let Some(order) = orders.iter().find(|&&order| order > 8) {
            return Err(MpcError::Parameter { what: "order of a piece", got: *order as u64, limit: 8 });
        }
        let this = Self { orders, coefficients };
        this.of(shape)?;
        Ok(this)
    }

    /// Of every degree's polynomials in the holder's place, the order.
    #[must_use]
    pub fn orders(&self) -> &[usize] {
        &self.orders
    }

    /// All polynomials, segment by segment and in each degree by degree, as [`Self::new`] takes them.
    #[must_use]
    pub fn coefficients(&self) -> &[i64] {
        &self.coefficients
    }

    /// Itself, if it is as long as the shape needs.
    fn of(&self, shape: &Shape) -> Result<&Self> {
        check_len("orders of pieces", shape.fields.len(), self.orders.len())?;
        check_len("coefficients of pieces", self.each() * shape.pieces(), self.coefficients.len())?;
        Ok(self)
    }

    /// Coefficients of a segment.
    fn each(&self) -> usize {
        self.orders.iter().map(|order| order + 1).sum()
    }

    /// Entries of all segments for 64 places of the holder.
    fn table(&self, key: &FixedKey, fields: &Fields, places: &Lanes, place_bits: u32) -> Vec<Lanes> {
        let entry = |piece: &[i64]| {
            let mut words = [0; GROUP];
            let mut rest = piece;
            for (which, order) in self.orders.iter().enumerate() {
                let (coefficients, after) = rest.split_at(order + 1);
                rest = after;
                let (at, mask) = fields.place(which);
                let of = Polynomial { coefficients, place_bits, fine: FINE, mask, at };
                key.evaluate(&of, places, &mut words);
            }
            words
        };
        self.coefficients.chunks_exact(self.each()).map(entry).collect()
    }
}

/// v / 2^shift, rounded to the nearest.
const fn rounded(v: i64, shift: u32) -> u64 {
    (if shift == 0 { v } else { v.wrapping_add(1 << (shift - 1)) >> shift }) as u64
}

/// What both parties compute with.
struct Plan<'a> {
    shape: &'a Shape,
    fields: Fields,
    /// Degree above zero and bit of each term of the ladders.
    of_term: Vec<(usize, u32)>,
    /// The wrap-around of the result in the ring of the output.
    widening: Option<Term>,
    out: Ring,
}

impl<'a> Plan<'a> {
    fn new(shape: &'a Shape, out: Ring) -> Self {
        let basis = shape.spec().basis.iter().enumerate();
        let of_term = basis.flat_map(|(m, b)| (0..b.precision).map(move |bit| (m, bit))).collect();
        let widening =
            shape.widening(out).map(|payload| Term { payload, shift: out.bits() - payload.bits() });
        Self { shape, fields: Fields::new(&shape.fields), of_term, widening, out }
    }

    /// OTs that the holder sends and that it receives, for n values.
    fn demand(&self, n: usize) -> [u64; 2] {
        let sent =
            self.shape.spec().segments as usize + self.of_term.len() + usize::from(self.widening.is_some());
        [cross::demand(sent, n), cross::demand(self.shape.wraps.len(), n)]
    }

    /// The wrap-around's term, not shifted.
    fn lone(&self) -> Option<Term> {
        self.widening.map(|term| Term { shift: 0, ..term })
    }

    /// This party's share of the output from its share of the inner result and of the wrap-around.
    fn finish(&self, holds: bool, inner: &[u64], wraps: &[u64]) -> Vec<u64> {
        let spec = self.shape.spec();
        let back = if holds { i64::from(spec.shed > 0) - (spec.offset >> spec.shed) } else { 0 };
        let shift = self.widening.map_or(0, |t| t.shift);
        let each = |(&z, &w): (&u64, &u64)| {
            let quotient = (z >> spec.shed).wrapping_add(back as u64) << spec.lift;
            self.out.reduce(quotient.wrapping_sub(w << shift))
        };
        inner.iter().zip(wraps).map(each).collect()
    }
}

/// Shares in `out` of f(x) for shares of x in `ring`, where f is what `shape` and `pieces` were made for ([`Spline::fit`]) and x lies within
/// the interval of `shape`, in its units. Values outside give anything; [`saturating_spline`] clips first. The error of the result is at most
/// [`Spline::error`], whatever the shares are; it depends on them.
///
/// `holder` is the party that computes with the pieces, and only it gives them; the other one learns their shape alone. The
/// parties may divide the work by giving half of the values to each as holder.
///
/// Bytes: see [`spline_cost`]; four messages in turn.
///
/// # Errors
/// `Parameter` when the ring is narrower than the argument or the output's lift leaves no bit, or when the holder has no pieces; channel errors.
pub fn spline(
    s: &mut Session,
    (x, ring): (&[u64], Ring),
    shape: &Shape,
    pieces: Option<&Pieces>,
    holder: Party,
    out: Ring,
) -> Result<Vec<u64>> {
    ring.at_least(shape.argument.bits())?;
    out.at_least(shape.spec().lift + 1)?;
    let held = match (s.party() == holder, pieces) {
        (false, _) => None,
        (true, Some(pieces)) => Some(pieces.of(shape)?),
        (true, None) => {
            return Err(MpcError::Parameter { what: "pieces that the holder gives", got: 0, limit: 1 })
        }
    };
    let plan = Plan::new(shape, out);
    let mut results = Vec::with_capacity(x.len());
    for (at, n) in chunks(x.len(), pass_length(s.chunk())) {
        let x = &x[at..at + n];
        let [sent, received] = plan.demand(n);
        s.ensure(if holder == Party::Zero { [sent, received] } else { [received, sent] })?;
        results.extend(match held {
            None => asker(s, x, &plan)?,
            Some(pieces) => holds(s, x, &plan, pieces)?,
        });
    }
    Ok(results)
}

/// Values a pass.
fn pass_length(chunk: usize) -> usize {
    (chunk / 4).max(64).next_multiple_of(64)
}

/// Number of values and the words of block b; what is behind the end is zero.
fn block(x: &[u64], b: usize) -> (usize, Lanes) {
    let part = &x[b * GROUP..x.len().min((b + 1) * GROUP)];
    let mut lanes = [0; GROUP];
    lanes[..part.len()].copy_from_slice(part);
    (part.len(), lanes)
}

/// A share of the constant of an entry, in units of the inner result; nothing where pieces have none.
fn constant(plan: &Plan<'_>, word: u64) -> u64 {
    if plan.shape.constants() == 0 {
        0
    } else {
        plan.fields.get(word, 0) << plan.shape.spec().guard
    }
}

/// The holder's side of a group: its first two messages. Returns shares of the inner result and what waits for the wrap-arounds.
fn hold(s: &mut Session, x: &[u64], plan: &Plan<'_>, pieces: &Pieces) -> Result<(Vec<u64>, Chosen)> {
    let (shape, spec) = (plan.shape, plan.shape.spec());
    let (segment, degree, first) = (shape.segment_bits(), spec.basis.len(), shape.constants());
    let fine = segment.min(PLACE_BITS);
    let start = (1u64 << segment).wrapping_sub((spec.low as u64).wrapping_mul(spec.multiplier.into()));
    let n = x.len();
    let turns: Vec<Lanes> =
        (0..words(n)).map(|b| table::heard(s, spec.segments, block(x, b).0)).collect::<Result<_>>()?;
    let mut inner = Vec::with_capacity(n);
    let mut shares = vec![Vec::with_capacity(n); degree];
    for (b, mut turn) in turns.into_iter().enumerate() {
        let (count, lanes) = block(x, b);
        let lanes = lanes.map(|x| shape.argument.add(shape.multiplied(x), start));
        turn.iter_mut().zip(&lanes).for_each(|(t, x)| *t = t.wrapping_add(x >> segment));
        let places = lanes.map(|x| (x & ((1 << segment) - 1)) >> (segment - fine));
        let entries = pieces.table(&s.hash, &plan.fields, &places, fine);
        let own = table::answer(s, &plan.fields, entries, &turn, count)?;
        inner.extend(own[..count].iter().map(|&w| {
            // Bits that are shed raise the mean by one of the lowest of them; small exponentials are to have none.
            let mut z = constant(plan, w).wrapping_sub(u64::from(first == 0 && spec.shed > 0));
            for (m, b) in spec.basis.iter().enumerate() {
                let v = plan.fields.get(w, m + first) as i64;
                z = z.wrapping_sub(rounded(v * shape.centre(m), b.shift));
            }
            shape.inner.reduce(z.wrapping_add(spec.offset as u64))
        }));
        for (m, shares) in shares.iter_mut().enumerate() {
            shares.extend(own[..count].iter().map(|&w| plan.fields.get(w, m + first)));
        }
    }
    cross::offer(s, &shape.terms, shape.inner, &mut inner, |term, at, block| {
        let (m, bit) = plan.of_term[term];
        let shift = spec.basis[m].shift.saturating_sub(bit + 1);
        for (e, &share) in block.iter_mut().zip(&shares[m][at..]) {
            *e = rounded(share as i64, shift);
        }
    })?;
    let tops: Vec<Vec<u64>> = (shares.iter().zip(&spec.basis))
        .map(|(v, b)| to_planes(&v.iter().map(|v| v >> (b.bits - 1)).collect::<Vec<_>>(), 1).swap_remove(0))
        .collect();
    let chosen = cross::choose(s, n, &shape.wraps, |block, m| tops[m][block])?;
    s.channel.flush()?;
    Ok((inner, chosen))
}

fn holds(s: &mut Session, x: &[u64], plan: &Plan<'_>, pieces: &Pieces) -> Result<Vec<u64>> {
    let shape = plan.shape;
    let groups: Vec<(Vec<u64>, Chosen)> =
        x.chunks(STREAM).map(|x| hold(s, x, plan, pieces)).collect::<Result<_>>()?;
    let mut results = Vec::with_capacity(x.len());
    for (mut inner, chosen) in groups {
        cross::collect(s, &shape.wraps, shape.inner, &chosen, &mut inner)?;
        let mut wraps = vec![0; inner.len()];
        if let Some(term) = plan.lone() {
            let tops: Vec<u64> = inner.iter().map(|z| z >> (shape.inner.bits() - 1)).collect();
            let fill = |_, at: usize, block: &mut [u64]| block.copy_from_slice(&tops[at..at + block.len()]);
            cross::offer(s, &[term], term.payload, &mut wraps, fill)?;
            s.channel.flush()?;
            wraps.iter_mut().zip(&tops).for_each(|(w, t)| *w = t.wrapping_sub(*w));
        }
        results.extend(plan.finish(true, &inner, &wraps));
    }
    Ok(results)
}

/// What the party that asks keeps of a group between its messages.
struct Question {
    asked: Vec<Asked>,
    chosen: Chosen,
    /// T_m's values, or the exponential's, as odd numbers.
    values: Vec<Vec<i64>>,
}

fn question(s: &mut Session, x: &[u64], plan: &Plan<'_>) -> Result<Question> {
    let (shape, spec) = (plan.shape, plan.shape.spec());
    let segment = shape.segment_bits();
    let mut asked = Vec::with_capacity(words(x.len()));
    for b in 0..words(x.len()) {
        let (count, lanes) = block(x, b);
        asked.push(table::ask(s, spec.segments, &lanes.map(|x| shape.multiplied(x) >> segment), count)?);
    }
    let mut planes = Vec::with_capacity(shape.terms.len());
    let mut values = Vec::with_capacity(spec.basis.len());
    for (m, b) in spec.basis.iter().enumerate() {
        let place =
            |&x: &u64| shape.polynomial(m, (shape.multiplied(x) & ((1 << segment) - 1)) >> spec.dropped);
        let rounded: Vec<u64> = x.iter().map(place).collect();
        planes.extend(to_planes(&rounded, b.precision));
        values.push(rounded.iter().map(|&v| 2 * v as i64 - shape.centre(m)).collect());
    }
    let chosen = cross::choose(s, x.len(), &shape.terms, |block, term| planes[term][block])?;
    s.channel.flush()?;
    Ok(Question { asked, chosen, values })
}

/// The answers to a group: shares of the inner result, after this party's message with the wrap-arounds.
fn reply(s: &mut Session, n: usize, question: &Question, plan: &Plan<'_>) -> Result<Vec<u64>> {
    let (shape, spec) = (plan.shape, plan.shape.spec());
    let mut own = Vec::with_capacity(n);
    for (b, asked) in question.asked.iter().enumerate() {
        let count = (n - b * GROUP).min(GROUP);
        own.extend_from_slice(&table::learn(s, &plan.fields, spec.segments, asked, count)?[..count]);
    }
    let first = shape.constants();
    let top = |i: usize, m: usize| plan.fields.get(own[i], m + first) >> (spec.basis[m].bits - 1);
    let local = |(i, &w): (usize, &u64)| {
        let mut z = constant(plan, w);
        for (m, b) in spec.basis.iter().enumerate() {
            let value = question.values[m][i];
            let v = plan.fields.get(w, m + first) as i64 + b.low;
            z = z.wrapping_add(rounded(v.wrapping_mul(value), b.shift));
            z = z.wrapping_sub((value as u64 & all(top(i, m))) << (b.bits - b.shift));
        }
        shape.inner.reduce(z)
    };
    let mut inner: Vec<u64> = own.iter().enumerate().map(local).collect();
    cross::collect(s, &shape.terms, shape.inner, &question.chosen, &mut inner)?;
    cross::offer(s, &shape.wraps, shape.inner, &mut inner, |m, at, block| {
        for (i, e) in (at..).zip(block) {
            *e = (question.values[m][i] as u64 & !all(top(i, m))).wrapping_neg();
        }
    })?;
    Ok(inner)
}

fn asker(s: &mut Session, x: &[u64], plan: &Plan<'_>) -> Result<Vec<u64>> {
    let shape = plan.shape;
    let questions: Vec<Question> = x.chunks(STREAM).map(|x| question(s, x, plan)).collect::<Result<_>>()?;
    let mut waiting = Vec::with_capacity(questions.len());
    for (x, question) in x.chunks(STREAM).zip(questions) {
        let inner = reply(s, x.len(), &question, plan)?;
        let tops: Vec<u64> = inner.iter().map(|z| z >> (shape.inner.bits() - 1)).collect();
        let plane = to_planes(&tops, 1).swap_remove(0);
        let chosen = cross::choose(s, x.len(), plan.lone().as_slice(), |block, _| plane[block])?;
        s.channel.flush()?;
        waiting.push((inner, tops, chosen));
    }
    let mut results = Vec::with_capacity(x.len());
    for (inner, tops, chosen) in waiting {
        let mut wraps = vec![0; inner.len()];
        if let Some(term) = plan.lone() {
            cross::collect(s, &[term], term.payload, &chosen, &mut wraps)?;
            wraps.iter_mut().zip(&tops).for_each(|(w, t)| *w = t.wrapping_sub(*w));
        }
        results.extend(plan.finish(false, &inner, &wraps));
    }
    Ok(results)
}

/// Cost of [`spline`]. A value's bits: the holder sends (2^d - 1) entries of the table, the ladders' payloads, D choices, and what widens the result;
/// the other party sends d + 1 choices, one for each bit of T_m, and the wrap-arounds.
pub fn spline_cost(m: &mut CostModel, n: usize, shape: &Shape, holder: Party, out: Ring) {
    let (plan, spec, asker) = (Plan::new(shape, out), shape.spec(), holder.other());
    let widening: Vec<Term> = plan.widening.into_iter().collect();
    for (_, n) in chunks(n, pass_length(m.chunk)) {
        let [sent, received] = plan.demand(n);
        m.take(if holder == Party::Zero { [sent, received] } else { [received, sent] });
        let groups: Vec<usize> = chunks(n, STREAM).map(|(_, n)| n).collect();
        for &n in &groups {
            m.depart_late(asker, cross::choice_bytes(spec.segments as usize, n));
            m.depart_late(asker, cross::choice_bytes(shape.terms.len(), n));
        }
        for &n in &groups {
            m.arrive_late(holder);
            m.depart_late(holder, table::answer_bytes(n, spec.segments, shape.entry_bits()));
            if !shape.terms.is_empty() {
                m.arrive_late(holder);
                m.depart_late(holder, cross::payload_bytes(&shape.terms, n));
            }
            m.depart_late(holder, cross::choice_bytes(spec.basis.len(), n));
        }
        for &n in &groups {
            m.arrive_late(asker);
            if !shape.terms.is_empty() {
                m.arrive_late(asker);
            }
            if !shape.wraps.is_empty() {
                m.arrive_late(asker);
                m.depart_late(asker, cross::payload_bytes(&shape.wraps, n));
            }
            m.depart_late(asker, cross::choice_bytes(widening.len(), n));
        }
        for &n in &groups {
            if !shape.wraps.is_empty() {
                m.arrive_late(holder);
            }
            if !widening.is_empty() {
                m.arrive_late(holder);
                m.depart_late(holder, cross::payload_bytes(&widening, n));
            }
        }
        for _ in groups.iter().filter(|_| !widening.is_empty()) {
            m.arrive_late(asker);
        }
    }
}

/// As [`spline`] for any x of which x - low and x - high lie in [-2^(w-1), 2^(w-1)), w the bits of `wide`: clips it to the interval first, so that the
/// function is constant outside.
///
/// # Errors
/// As [`spline`] and [`clip`].
pub fn saturating_spline(
    s: &mut Session,
    (x, ring, wide): (&[u64], Ring, Ring),
    shape: &Shape,
    pieces: Option<&Pieces>,
    holder: Party,
    out: Ring,
) -> Result<Vec<u64>> {
    let ends = (shape.spec().low, shape.spec().high);
    let clipped = clip(s, x, ring, wide, Some(ends))?;
    spline(s, (&clipped, ring), shape, pieces, holder, out)
}

/// Cost of [`saturating_spline`] of n elements: its OTs, messages and rounds, exactly.
pub fn saturating_spline_cost(
    m: &mut CostModel,
    n: usize,
    (ring, wide): (Ring, Ring),
    shape: &Shape,
    holder: Party,
    out: Ring,
) {
    clip_cost(m, n, ring, wide);
    spline_cost(m, n, shape, holder, out);
}
