//! The multiplexer, begun before its bit is known.
//!
//! b*x for a shared bit b takes a message of each party's choices and one of each party's payloads ([`super::mux`]). The choices correct random ones, so
//! what is computed first is p*x for the random bit p = p0 ^ p1 of the correlated OTs' own choices: its payloads depend on nothing that a comparison
//! says and travel with the comparison's first messages. Once b is known, both parties open e = b ^ p. Where e is 0, b*x is p*x; where it is 1, it is
//! x - p*x. Either party's share of e is masked by its own share of p, which the other one never learns: it is the choice that [`super::mux`] sends.

use super::compare::{compare_beside_cost, demand_beside, drelu_beside, first_to_know, Comparison};
use super::narrow::Narrowing;
use super::product::chunks;
use crate::bits::{bit, bytes, pack, to_planes, unpack, words};
use crate::cost::CostModel;
use crate::error::{check_len, Result};
use crate::kept::{widths, Item};
use crate::ring::Ring;
use crate::select::all;
use crate::simd::GROUP;
use crate::wire::{packed_bytes, recv_packed, recv_plane, send_packed, send_plane};
use crate::{Block, Party, Session};

/// Correlated OTs drawn at a time.
const STEP: usize = 1024;
/// Who chooses for the wrap-around of a result.
pub(crate) const CHOOSER: Party = Party::Zero;

/// p*x of both parties' random bits p, for one or two payloads x selected by the same bit.
pub(super) struct Selection {
    n: usize,
    /// This party's share of p.
    random: Vec<u64>,
    /// This party's share of p*x, whole when the other one's payloads are added.
    products: Vec<Vec<u64>>,
    rings: Vec<Ring>,
}

/// The columns of [`Item::Selection`] of n values: this party's choices (a plane), and of every payload the pad that it chose less its own first one, and the
/// difference of its own two. Low words of a hash are for the first payload, high words for the second.
pub(crate) fn pads(s: &mut Session, n: usize, bits: [u32; 2]) -> Result<Vec<Vec<u64>>> {
    let count = bits.iter().filter(|b| **b > 0).count();
    let mut out = vec![Vec::with_capacity(n); 1 + 2 * count];
    let delta = s.delta();
    let (mut drawn, mut chosen, mut pads) = ([0; STEP], [0; STEP], [[0; STEP]; 2]);
    for (_, m) in chunks(n, STEP) {
        drawn[m..].fill(0);
        s.draw_received(&mut drawn[..m])?;
        for group in drawn[..m.next_multiple_of(GROUP)].as_chunks::<GROUP>().0 {
            out[0].push(s.recv_pads.key.choices(group));
        }
        s.recv_pads.key.hash(&drawn[..m], 0, &mut chosen[..m]);
        s.draw_sent(&mut drawn[..m])?;
        s.send_pads.key.hash(&drawn[..m], 0, &mut pads[0][..m]);
        s.send_pads.key.hash(&drawn[..m], delta, &mut pads[1][..m]);
        for (k, out) in out[1..].chunks_exact_mut(2).enumerate() {
            let word = |hash: Block| (hash >> (64 * k)) as u64;
            out[0].extend((0..m).map(|i| word(chosen[i]).wrapping_sub(word(pads[0][i]))));
            out[1].extend((0..m).map(|i| word(pads[0][i]).wrapping_sub(word(pads[1][i]))));
        }
    }
    Ok(out)
}

impl Selection {
    /// Bytes of [`Self::begin`], of either party.
    pub(super) fn bytes(n: usize, rings: &[Ring]) -> u64 {
        rings.iter().map(|r| packed_bytes(n, r.bits())).sum()
    }

    /// Draws n OTs in both directions, which have been provided, and sends this party's payloads.
    pub(super) fn begin(s: &mut Session, payloads: &[&[u64]], rings: &[Ring]) -> Result<Self> {
        let n = payloads.first().map_or(0, |x| x.len());
        for x in payloads {
            check_len("selected vector", n, x.len())?;
        }
        let item = Item::Selection(widths(rings));
        let mut random = Vec::with_capacity(words(n));
        let mut products = vec![Vec::with_capacity(n); payloads.len()];
        let (mut sent, mut message) = (Vec::with_capacity(STEP), Vec::new());
        for (at, m) in chunks(n, STEP) {
            let drawn = s.pads(item, m)?;
            random.extend_from_slice(&drawn[0]);
            for ((x, out), (pads, ring)) in
                payloads.iter().zip(&mut products).zip(drawn[1..].chunks_exact(2).zip(rings))
            {
                sent.clear();
                for ((i, x), (kept, difference)) in
                    x[at..at + m].iter().enumerate().zip(pads[0].iter().zip(&pads[1]))
                {
                    let p = all(bit(&random, at + i));
                    // x where this party's p is 0, else -x.
                    let element = (x ^ p).wrapping_sub(p);
                    sent.push(ring.reduce(difference.wrapping_add(element)));
                    out.push((x & p).wrapping_add(*kept));
                }
                message.clear();
                pack(&sent, ring.bits(), &mut message)?;
                s.channel.send(&message)?;
            }
        }
        Ok(Self { n, random, products, rings: rings.to_vec() })
    }

    /// Receives the other party's payloads.
    pub(super) fn collect(&mut self, s: &mut Session) -> Result<()> {
        let (mut message, mut received) = (Vec::new(), [0; STEP]);
        for (at, m) in chunks(self.n, STEP) {
            for (out, ring) in self.products.iter_mut().zip(&self.rings) {
                message.resize(packed_bytes(m, ring.bits()) as usize, 0);
                s.channel.recv(&mut message)?;
                unpack(&message, ring.bits(), &mut received[..m])?;
                for (i, (o, t)) in out[at..at + m].iter_mut().zip(&received).enumerate() {
                    *o = ring.add(*o, t & all(bit(&self.random, at + i)));
                }
            }
        }
        Ok(())
    }

    /// This party's share of e, for its share of b.
    fn opening(&self, b: &[u64]) -> Vec<u64> {
        b.iter().zip(&self.random).map(|(b, p)| b ^ p).collect()
    }

    /// Opens e: sends this party's share, and receives the other one's.
    fn open(&self, s: &mut Session, b: &[u64]) -> Result<Vec<u64>> {
        let mut opened = self.opening(b);
        send_plane(&mut *s.channel, &opened, self.n)?;
        s.channel.flush()?;
        recv_opening(s, self.n, &mut opened)?;
        Ok(opened)
    }

    /// Shares of b*x, from the opened e.
    fn settle(self, opened: &[u64], payloads: &[&[u64]]) -> Vec<Vec<u64>> {
        let each = self.products.into_iter().zip(payloads).zip(self.rings);
        each.map(|((mut product, x), ring)| {
            for (i, (p, x)) in product.iter_mut().zip(*x).enumerate() {
                let other = ring.sub(*x, *p);
                *p ^= (*p ^ other) & all(bit(opened, i));
            }
            product
        })
        .collect()
    }
}

/// The other party's share of e makes this one's whole.
fn recv_opening(s: &mut Session, n: usize, mine: &mut [u64]) -> Result<()> {
    let theirs = recv_plane(&mut *s.channel, n)?;
    mine.iter_mut().zip(theirs).for_each(|(m, t)| *m ^= t);
    Ok(())
}

/// Shares of each payload where y >= 0, and of zero elsewhere: y is shared modulo 2^w, w >= 2, and read as signed; payload k modulo 2^(bits of ring k).
///
/// # Errors
/// `RingWidth` when w < 2; `Length` when payloads have other lengths; channel errors.
pub(super) fn where_positive(
    s: &mut Session,
    y: &[u64],
    narrow: Ring,
    payloads: &[&[u64]],
    rings: &[Ring],
) -> Result<Vec<Vec<u64>>> {
    for x in payloads {
        check_len("selected vector", y.len(), x.len())?;
    }
    let mut out: Vec<Vec<u64>> = payloads.iter().map(|_| Vec::with_capacity(y.len())).collect();
    for (at, n) in chunks(y.len(), s.chunk()) {
        let part: Vec<&[u64]> = payloads.iter().map(|x| &x[at..at + n]).collect();
        let (b, selection) = drelu_beside(s, &y[at..at + n], narrow, (&part, rings))?;
        let opened = selection.open(s, &b)?;
        out.iter_mut().zip(selection.settle(&opened, &part)).for_each(|(o, p)| o.extend(p));
    }
    Ok(out)
}

/// Adds the exact traffic and rounds of [`where_positive`] to the model, both directions.
pub(super) fn where_positive_cost(m: &mut CostModel, n: usize, narrow: Ring, rings: &[Ring]) {
    for (_, n) in chunks(n, m.chunk) {
        compare_beside_cost(m, narrow.bits() as usize - 1, n, rings);
        m.exchange(bytes(n) as u64, bytes(n) as u64);
    }
}

/// Shares modulo 2^l of base + max(y, 0) from shares modulo 2^w, where base + max(y, 0) lies in [least, least + 2^(w-1)): what [`super::widened`] makes of
/// the narrow result, without its round. Only the first party's `least` counts.
///
/// The wrap-around of the result is the OR of the top bits of both shares, less `least`. There are two results that e chooses between, and party 0, which
/// chooses in that correlated OT, knows both before it knows e. Where it has its share of the comparison first it chooses for both of them, and
/// party 1 answers for the one that e names. Otherwise it knows e by then, and chooses for the one.
///
/// # Errors
/// As [`where_positive`].
pub(super) fn wide_where_positive(
    s: &mut Session,
    y: &[u64],
    base: &[u64],
    of: Narrowing,
    least: i64,
) -> Result<Vec<u64>> {
    check_len("what is added", y.len(), base.len())?;
    let Some(excess) = excess(of) else {
        let z = where_positive(s, y, of.narrow, &[y], &[of.narrow])?.swap_remove(0);
        return Ok(z.iter().zip(base).map(|(z, b)| of.ring.add(*z, *b)).collect());
    };
    let least = if s.is_first() { least as u64 } else { 0 };
    let mut out = Vec::with_capacity(y.len());
    for (at, n) in chunks(y.len(), s.chunk()) {
        let (y, base) = (&y[at..at + n], &base[at..at + n]);
        s.provide(demand(s.comparison(), of.narrow, n))?;
        let (b, selection) = drelu_beside(s, y, of.narrow, (&[y], &[of.narrow]))?;
        let above: Vec<u64> = base.iter().map(|v| v.wrapping_sub(least)).collect();
        let (z, wraps) = match s.party {
            Party::Zero => choosing(s, &b, selection, (y, &above), (of.narrow, excess))?,
            Party::One => answering(s, &b, selection, (y, &above), (of.narrow, excess))?,
        };
        let whole = |(z, w): (u64, u64)| z.wrapping_sub(w << of.narrow.bits()).wrapping_add(least);
        out.extend(z.into_iter().zip(wraps).map(|zw| of.ring.reduce(whole(zw))));
    }
    Ok(out)
}

/// The ring of the wrap-around: what the wide one has beyond the narrow one.
fn excess(of: Narrowing) -> Option<Ring> {
    of.ring.bits().checked_sub(of.narrow.bits()).and_then(|bits| Ring::new(bits).ok())
}

/// Results that party 0 chooses for.
fn candidates(comparison: Comparison, narrow: Ring) -> usize {
    match first_to_know(comparison, narrow.bits() as usize - 1) {
        Party::Zero => 2,
        Party::One => 1,
    }
}

/// Correlated OTs of one pass of [`wide_where_positive`].
fn demand(comparison: Comparison, narrow: Ring, n: usize) -> [u64; 2] {
    let [zero, one] = demand_beside(comparison, narrow.bits() as usize - 1, n);
    [zero, one + (candidates(comparison, narrow) * n) as u64]
}

/// Adds the exact traffic and rounds of [`wide_where_positive`] to the model, both directions.
pub(super) fn wide_where_positive_cost(m: &mut CostModel, n: usize, of: Narrowing) {
    let Some(excess) = excess(of) else { return where_positive_cost(m, n, of.narrow, &[of.narrow]) };
    let count = candidates(m.comparison, of.narrow);
    for (_, n) in chunks(n, m.chunk) {
        let plane = bytes(n) as u64;
        m.provide_ahead(demand(m.comparison, of.narrow, n));
        compare_beside_cost(m, of.narrow.bits() as usize - 1, n, &[of.narrow]);
        m.provide([0, (count * n) as u64]);
        m.pad(Item::Wrap { results: count, bits: excess.bits() }, n);
        if count == 1 {
            m.message(Party::One, plane);
            m.message(Party::Zero, 2 * plane);
        } else {
            m.exchange(3 * plane, plane);
        }
        m.message(Party::One, packed_bytes(n, excess.bits()));
    }
}

/// The columns of [`Item::Wrap`] of n values: of every result party 0's choices (a plane) and its pads, or party 1's two pads.
pub(crate) fn wrap_pads(s: &mut Session, n: usize, results: usize) -> Result<Vec<Vec<u64>>> {
    let delta = s.delta();
    let mut out = vec![Vec::with_capacity(n); 2 * results];
    let (mut drawn, mut hash) = (vec![0; results * STEP], [0; STEP]);
    for (_, m) in chunks(n, STEP) {
        let drawn = &mut drawn[..results * m];
        if s.party == CHOOSER {
            s.draw_received(drawn)?;
        } else {
            s.draw_sent(drawn)?;
        }
        for (drawn, out) in drawn.chunks_exact(m).zip(out.chunks_exact_mut(2)) {
            let low = |hash: &[Block]| -> Vec<u64> { hash.iter().map(|h| *h as u64).collect() };
            if s.party == CHOOSER {
                let choices: Vec<u64> = drawn.iter().map(|t| *t as u64 & 1).collect();
                out[0].extend(to_planes(&choices, 1).swap_remove(0));
                s.recv_pads.key.hash(drawn, 0, &mut hash[..m]);
            } else {
                s.send_pads.key.hash(drawn, 0, &mut hash[..m]);
                out[0].extend(low(&hash[..m]));
                s.send_pads.key.hash(drawn, delta, &mut hash[..m]);
            }
            out[1].extend(low(&hash[..m]));
        }
    }
    Ok(out)
}

/// What both parties have of the wide result: the narrow one, less `least`, and its wrap-around.
type Wide = (Vec<u64>, Vec<u64>);

/// The results that e chooses between, or the one where it has chosen, each with `above` added.
struct Results(Vec<Vec<u64>>);

impl Results {
    fn chosen(selection: Selection, opened: &[u64], (y, above): (&[u64], &[u64]), narrow: Ring) -> Self {
        let z = selection.settle(opened, &[y]).swap_remove(0);
        Self(vec![z.iter().zip(above).map(|(z, a)| narrow.add(*z, *a)).collect()])
    }

    fn both(selection: &Selection, (y, above): (&[u64], &[u64]), narrow: Ring) -> Self {
        let product = &selection.products[0];
        let first = product.iter().zip(above).map(|(p, a)| narrow.add(*p, *a)).collect();
        let second = product
            .iter()
            .zip(y)
            .zip(above)
            .map(|((p, y), a)| narrow.reduce(y.wrapping_sub(*p).wrapping_add(*a)));
        let second = second.collect();
        Self(vec![first, second])
    }

    /// Top bits of each.
    fn tops(&self, narrow: Ring) -> Vec<Vec<u64>> {
        let top = |z: &Vec<u64>| -> Vec<u64> { z.iter().map(|z| z >> (narrow.bits() - 1)).collect() };
        self.0.iter().map(|z| to_planes(&top(z), 1).swap_remove(0)).collect()
    }

    /// The one that e names.
    fn settle(mut self, opened: &[u64]) -> Vec<u64> {
        let second = if self.0.len() > 1 { self.0.pop() } else { None };
        let mut first = self.0.pop().unwrap_or_default();
        for (i, (a, b)) in first.iter_mut().zip(second.iter().flatten()).enumerate() {
            *a ^= (*a ^ b) & all(bit(opened, i));
        }
        first
    }
}

/// The plane that e names.
fn named(planes: &[Vec<u64>], opened: &[u64]) -> Vec<u64> {
    match planes {
        [a, b] => a.iter().zip(b).zip(opened).map(|((a, b), e)| a ^ ((a ^ b) & e)).collect(),
        _ => planes.concat(),
    }
}

/// Party 0: draws OTs for one result or both, sends its choices, and takes what party 1 answers.
fn choosing(
    s: &mut Session,
    b: &[u64],
    selection: Selection,
    (y, above): (&[u64], &[u64]),
    (narrow, excess): (Ring, Ring),
) -> Result<Wide> {
    let (n, count) = (y.len(), candidates(s.comparison(), narrow));
    let mine = selection.opening(b);
    let mut opened = mine.clone();
    let results = if count == 1 {
        recv_opening(s, n, &mut opened)?;
        Results::chosen(selection, &opened, (y, above), narrow)
    } else {
        Results::both(&selection, (y, above), narrow)
    };
    let tops = results.tops(narrow);
    let (mut corrections, mut pads) = (tops.clone(), Vec::with_capacity(count));
    for (k, column) in s.pads(Item::Wrap { results: count, bits: excess.bits() }, n)?.into_iter().enumerate()
    {
        if k % 2 == 1 {
            pads.push(column);
        } else {
            corrections[k / 2].iter_mut().zip(column).for_each(|(c, choice)| *c ^= choice);
        }
    }
    for plane in std::iter::once(&mine).chain(&corrections) {
        send_plane(&mut *s.channel, plane, n)?;
    }
    s.channel.flush()?;
    if count > 1 {
        recv_opening(s, n, &mut opened)?;
    }
    let (z, top, pads) = (results.settle(&opened), named(&tops, &opened), Results(pads).settle(&opened));
    let answers = recv_packed(&mut *s.channel, n, excess.bits())?;
    let wrap = |i: usize| {
        let top = bit(&top, i);
        top.wrapping_sub(pads[i]).wrapping_sub(answers[i] & all(top))
    };
    let wraps = (0..n).map(wrap).collect();
    Ok((z, wraps))
}

/// Party 1: opens e, and answers party 0's choices for the result that e names.
fn answering(
    s: &mut Session,
    b: &[u64],
    selection: Selection,
    (y, above): (&[u64], &[u64]),
    (narrow, excess): (Ring, Ring),
) -> Result<Wide> {
    let (n, count) = (y.len(), candidates(s.comparison(), narrow));
    let opened = selection.open(s, b)?;
    let corrections = (0..count).map(|_| recv_plane(&mut *s.channel, n)).collect::<Result<Vec<_>>>()?;
    let swaps = named(&corrections, &opened);
    let results = Results::chosen(selection, &opened, (y, above), narrow);
    let top = named(&results.tops(narrow), &opened);
    let (mut sent, mut wraps) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for (at, m) in chunks(n, STEP) {
        let mut pads = s.pads(Item::Wrap { results: count, bits: excess.bits() }, m)?;
        let second = pads.split_off(2);
        for (pad, other) in pads.iter_mut().zip(&second) {
            pad.iter_mut()
                .zip(other)
                .enumerate()
                .for_each(|(i, (a, b))| *a ^= (*a ^ b) & all(bit(&opened, at + i)));
        }
        for (i, (first, second)) in pads[0].iter().zip(&pads[1]).enumerate() {
            let top = bit(&top, at + i);
            let swap = (first ^ second) & all(bit(&swaps, at + i));
            let (first, second) = (first ^ swap, second ^ swap);
            sent.push(excess.reduce(first.wrapping_sub(second).wrapping_add(top)));
            wraps.push(top.wrapping_add(first));
        }
    }
    send_packed(&mut *s.channel, &sent, excess.bits())?;
    s.channel.flush()?;
    Ok((results.settle(&opened), wraps))
}
