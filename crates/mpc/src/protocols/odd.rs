//! Shares modulo an odd p: the multiplexer, and the way to and from Z_2^l.

use super::compare::{less_than, less_than_cost, Bits};
use super::convert::{bit_to_arithmetic, bit_to_arithmetic_cost};
use super::product::{self, chunks, one_way, Directions, OneWay, BOTH};
use crate::bits::{bit, bytes, spread, to_planes, words};
use crate::cost::CostModel;
use crate::error::{check_len, MpcError, Result};
use crate::garble::OddModulus;
use crate::ring::Ring;
use crate::select::all;
use crate::wire::{packed_bytes, recv_packed, recv_plane, send_packed, send_plane};
use crate::{Block, Party, Session};
use hushnet_ring::secret::declassify;

const STEP: usize = 1024;

/// Shares modulo p of bit*element, as `product::products` has them modulo 2^l: `mine` are this party's elements where it
/// sends, `bits` its bits where it receives. Pads are 128-bit hashes modulo p.
fn products(
    s: &mut Session,
    n: usize,
    mine: Option<&[u64]>,
    bits: Option<&[u64]>,
    p: OddModulus,
) -> Result<Vec<u64>> {
    let mut out = Vec::with_capacity(n);
    for (at, n) in chunks(n, s.chunk()) {
        let mine = mine.map(|m| &m[at..at + n]);
        let bits = bits.map(|b| &b[at / 64..at / 64 + words(n)]);
        out.extend(pass(s, n, mine, bits, p)?);
    }
    Ok(out)
}

fn pass(
    s: &mut Session,
    n: usize,
    mine: Option<&[u64]>,
    bits: Option<&[u64]>,
    p: OddModulus,
) -> Result<Vec<u64>> {
    let mut demand = [0; 2];
    demand[s.party.index()] = if mine.is_some() { n as u64 } else { 0 };
    demand[s.party.other().index()] = if bits.is_some() { n as u64 } else { 0 };
    s.ensure(demand)?;
    let mut chosen = Vec::new();
    if let Some(b) = bits {
        let c = received_pads(s, n, &mut chosen, p)?;
        let d: Vec<u64> = b.iter().zip(&c).map(|(b, c)| b ^ c).collect();
        send_plane(&mut *s.channel, &d, n)?;
        s.channel.flush()?;
    }
    let mut out = vec![0; n];
    if let Some(f) = mine {
        let pads = sent_pads(s, n, p)?;
        let d = recv_plane(&mut *s.channel, n)?;
        let mut corrections = vec![0; n];
        for i in 0..n {
            let swap = (pads[0][i] ^ pads[1][i]) & bit(&d, i).wrapping_neg();
            let (a, b) = (pads[0][i] ^ swap, pads[1][i] ^ swap);
            corrections[i] = p.add(p.sub(a, b), f[i]);
            out[i] = p.sub(0, a);
        }
        send_packed(&mut *s.channel, &corrections, p.bits())?;
        s.channel.flush()?;
    }
    if let Some(b) = bits {
        let corrections = recv_packed(&mut *s.channel, n, p.bits())?;
        // Words of the message are public, and refused whatever the bits are.
        if corrections.iter().any(|&c| declassify(c >= p.value())) {
            return Err(MpcError::Peer { what: "a correction that is no residue modulo p" });
        }
        for i in 0..n {
            let gained = p.add(chosen[i], corrections[i] & all(bit(b, i)));
            out[i] = p.add(out[i], gained);
        }
    }
    Ok(out)
}

fn received_pads(s: &mut Session, n: usize, pads: &mut Vec<u64>, p: OddModulus) -> Result<Vec<u64>> {
    let mut choices = vec![0u64; words(n)];
    let (mut t, mut h): ([Block; STEP], [Block; STEP]) = ([0; STEP], [0; STEP]);
    for (at, m) in chunks(n, STEP) {
        s.draw_received(&mut t[..m])?;
        for (i, t) in t[..m].iter().enumerate() {
            choices[(at + i) / 64] |= ((t & 1) as u64) << ((at + i) % 64);
        }
        s.recv_pads.key.hash(&t[..m], 0, &mut h[..m]);
        pads.extend(h[..m].iter().map(|&h| p.reduce_wide(h)));
    }
    Ok(choices)
}

fn sent_pads(s: &mut Session, n: usize, p: OddModulus) -> Result<[Vec<u64>; 2]> {
    let delta = s.delta();
    let mut pads = [Vec::with_capacity(n), Vec::with_capacity(n)];
    let (mut q, mut h): ([Block; STEP], [Block; STEP]) = ([0; STEP], [0; STEP]);
    for (_, m) in chunks(n, STEP) {
        s.draw_sent(&mut q[..m])?;
        for (pads, offset) in pads.iter_mut().zip([0, delta]) {
            s.send_pads.key.hash(&q[..m], offset, &mut h[..m]);
            pads.extend(h[..m].iter().map(|&h| p.reduce_wide(h)));
        }
    }
    Ok(pads)
}

fn products_cost(m: &mut CostModel, n: usize, directions: Directions, p: OddModulus) {
    for (_, n) in chunks(n, m.chunk) {
        m.take(directions.map(|d| if d { n as u64 } else { 0 }));
        let (plane, payload) = (bytes(n) as u64, packed_bytes(n, p.bits()));
        let of = |on: bool, v: u64| if on { v } else { 0 };
        let [zero, one] = directions;
        m.exchange(of(one, plane), of(zero, plane));
        m.exchange(of(zero, payload), of(one, payload));
    }
}

/// Shares modulo p of b*x; one correlated OT and 1 + ceil(log2 p) bits each way, 2 rounds: [`super::mux`] modulo p.
///
/// # Errors
/// `Length` when b and x differ in length, `Parameter` when a share is not below p; channel errors.
pub fn mux_odd(s: &mut Session, b: &Bits, x: &[u64], p: OddModulus) -> Result<Vec<u64>> {
    check_len("multiplexed vector", b.len(), x.len())?;
    p.check(x)?;
    // v - 0 or 0 - v: one subtraction, so that the compiler sees no case to branch on.
    let signed = |(&b, &v): (&u64, &u64)| p.sub(v & !all(b), v & all(b));
    let mine: Vec<u64> = spread(&b.plane, x.len()).iter().zip(x).map(signed).collect();
    let out = products(s, x.len(), Some(&mine), Some(&b.plane), p)?;
    Ok((0..x.len()).map(|i| p.add(out[i], x[i] & all(b.get(i)))).collect())
}

/// Adds the exact traffic and rounds of [`mux_odd`] to the model, both directions.
pub fn mux_odd_cost(m: &mut CostModel, n: usize, p: OddModulus) {
    products_cost(m, n, BOTH, p);
}

/// From shares modulo p to shares modulo 2^l of the same signed value (modulo 2^l). With x' = x + (p-1)/2 in [0, p): the
/// integer is x0' + x1' - p [x0' + x1' >= p], and the bracket is the comparison [p - 1 - x0' < x1'].
///
/// # Errors
/// `Parameter` when a share is not below p; channel errors.
pub fn to_ring(s: &mut Session, x: &[u64], p: OddModulus, ring: Ring) -> Result<Vec<u64>> {
    p.check(x)?;
    let first = s.is_first();
    let shifted: Vec<u64> = x.iter().map(|&v| if first { p.add(v, p.half()) } else { v }).collect();
    let compared: Vec<u64> = shifted.iter().map(|&v| if first { p.value() - 1 - v } else { v }).collect();
    let wraps = less_than(s, &compared, p.bits())?;
    let wraps = bit_to_arithmetic(s, &wraps, ring)?;
    let back = if first { p.half() } else { 0 };
    let value = |(&v, &w): (&u64, &u64)| v.wrapping_sub(p.value().wrapping_mul(w)).wrapping_sub(back);
    Ok(shifted.iter().zip(&wraps).map(|x| ring.reduce(value(x))).collect())
}

/// Adds the exact traffic and rounds of [`to_ring`] to the model, both directions.
pub fn to_ring_cost(m: &mut CostModel, n: usize, p: OddModulus, ring: Ring) {
    less_than_cost(m, n, p.bits());
    bit_to_arithmetic_cost(m, n, ring);
}

/// From shares modulo 2^l to shares modulo p of the same signed value (modulo p): as [`to_ring`] with x' = x + 2^(l-1) and the carry
/// [2^l - 1 - x0' < x1'], whose shares become arithmetic modulo p by one product.
///
/// # Errors
/// Channel errors.
pub fn to_odd(s: &mut Session, x: &[u64], ring: Ring, p: OddModulus) -> Result<Vec<u64>> {
    let (first, n) = (s.is_first(), x.len());
    let top = 1u64 << (ring.bits() - 1);
    let shifted: Vec<u64> = x.iter().map(|&v| if first { ring.add(v, top) } else { v }).collect();
    let compared: Vec<u64> = shifted.iter().map(|&v| if first { ring.mask() - v } else { v }).collect();
    let carry = less_than(s, &compared, ring.bits())?;
    // b0 ^ b1 = b0 + b1 - 2 b0 b1.
    let mine = spread(&carry.plane, n);
    let product = match s.party() {
        Party::Zero => products(s, n, Some(&mine), None, p)?,
        Party::One => products(s, n, None, Some(&carry.plane), p)?,
    };
    let modulus = p.factor(p.add(p.reduce(ring.mask()), 1));
    let back = if first { p.reduce(top) } else { 0 };
    Ok((0..n)
        .map(|i| {
            let wraps = p.sub(mine[i], p.add(product[i], product[i]));
            p.sub(p.sub(p.reduce(shifted[i]), p.mul(wraps, modulus)), back)
        })
        .collect())
}

/// Adds the exact traffic and rounds of [`to_odd`] to the model, both directions.
pub fn to_odd_cost(m: &mut CostModel, n: usize, ring: Ring, p: OddModulus) {
    less_than_cost(m, n, ring.bits());
    products_cost(m, n, [true, false], p);
}

/// [`to_ring`] of values |x| <= [`small_odd`]`(p)`, without a comparison. With h = [`small_odd`]`(p)`, x' = x + h lies in [0, (p-1)/2]: its shares
/// wrap around p exactly if one of them is above (p-1)/2 (both at most (p-1)/2 wherever they do not wrap; their sum is at least p where they do), so
/// the wrap is m0 OR m1 for bits that each party reads off its share: one correlated OT of l bits, 2 rounds. Exact.
///
/// # Errors
/// `Parameter` when a share is not below p; channel errors.
pub fn to_ring_small(s: &mut Session, x: &[u64], p: OddModulus, ring: Ring) -> Result<Vec<u64>> {
    p.check(x)?;
    let add = if s.is_first() { small_odd(p) } else { 0 };
    let shifted: Vec<u64> = x.iter().map(|&v| p.add(v, add)).collect();
    let tops: Vec<u64> = shifted.iter().map(|&v| p.half().wrapping_sub(v) >> 63).collect();
    let plane = to_planes(&tops, 1).swap_remove(0);
    let both = one_way(s, x.len(), OneWay { elements: &[&tops], bits: &plane }, &[ring])?.swap_remove(0);
    let value = |((&v, &m), &b): ((&u64, &u64), &u64)| {
        let wraps = m.wrapping_sub(b);
        ring.reduce(v.wrapping_sub(p.value().wrapping_mul(wraps)).wrapping_sub(add))
    };
    Ok(shifted.iter().zip(&tops).zip(&both).map(value).collect())
}

/// Adds the exact traffic and rounds of [`to_ring_small`] to the model, both directions.
pub fn to_ring_small_cost(m: &mut CostModel, n: usize, ring: Ring) {
    product::cost(m, n, [true, false], &[ring]);
}

/// Largest absolute value that [`to_ring_small`] takes: (p-1)/2 is at least twice it.
#[must_use]
pub const fn small_odd(p: OddModulus) -> u64 {
    p.half() / 2
}

/// [`to_odd`] of values -2^(l-2) <= x < 2^(l-2), without a comparison: the carry of x + 2^(l-2) is m0 OR m1 for the top bits of the shares. One
/// correlated OT of ceil(log2 p) bits, 2 rounds. Exact.
///
/// # Errors
/// `RingWidth` when l < 2; channel errors.
pub fn to_odd_small(s: &mut Session, x: &[u64], ring: Ring, p: OddModulus) -> Result<Vec<u64>> {
    ring.at_least(2)?;
    let (first, n) = (s.is_first(), x.len());
    let add = if first { 1u64 << (ring.bits() - 2) } else { 0 };
    let shifted: Vec<u64> = x.iter().map(|&v| ring.add(v, add)).collect();
    let tops: Vec<u64> = shifted.iter().map(|v| v >> (ring.bits() - 1)).collect();
    let plane = to_planes(&tops, 1).swap_remove(0);
    let both = match s.party() {
        Party::Zero => products(s, n, Some(&tops), None, p)?,
        Party::One => products(s, n, None, Some(&plane), p)?,
    };
    let modulus = p.factor(p.add(p.reduce(ring.mask()), 1));
    let value =
        |i: usize| p.sub(p.sub(p.reduce(shifted[i]), p.mul(p.sub(tops[i], both[i]), modulus)), p.reduce(add));
    Ok((0..n).map(value).collect())
}

/// Adds the exact traffic and rounds of [`to_odd_small`] to the model, both directions.
pub fn to_odd_small_cost(m: &mut CostModel, n: usize, p: OddModulus) {
    products_cost(m, n, [true, false], p);
}
