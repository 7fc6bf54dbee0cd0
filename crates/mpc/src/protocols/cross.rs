//! Sums of products of one party's bits with the other party's elements: sum_t bit_t * element_t * 2^(shift_t) modulo 2^w
//! (Gilboa, CRYPTO 1999, section 4.1, on correlated OTs as in SIRNN, section 3.2).
//!
//! A term is one correlated OT. With pads p0, p1 that the correction d = bit ^ choice has put in order, the holder of the element sends
//! p0 - p1 + element modulo 2^payload and keeps -p0; the holder of the bit gets p0 + bit*element. A term that is shifted left by
//! `shift` needs no more than w - shift bits of payload. Values go in blocks of 64, so that bits are planes.
//!
//! The three steps are functions of their own: a protocol puts its other messages between them.

use crate::bits::{bytes, pack, words};
use crate::error::Result;
use crate::ring::Ring;
use crate::select::all;
use crate::simd::GROUP;
use crate::wire::{packed_bytes, recv_plane, send_plane};
use crate::Session;

/// One term of the sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Term {
    /// Bits of the element that travel.
    pub payload: Ring,
    /// Left shift of the product.
    pub shift: u32,
}

/// The terms of a product with an unsigned number of `bits` bits modulo 2^w: bit i carries w - i bits.
pub(crate) fn ladder(bits: u32, out: Ring) -> Vec<Term> {
    let term = |shift| Ring::new(out.bits() - shift).ok().map(|payload| Term { payload, shift });
    (0..bits.min(out.bits())).filter_map(term).collect()
}

/// Correlated OTs of `terms` terms for n values.
pub(crate) fn demand(terms: usize, n: usize) -> u64 {
    (terms * words(n) * GROUP) as u64
}

/// Bytes that the holder of the bits sends.
pub(crate) fn choice_bytes(terms: usize, n: usize) -> u64 {
    (terms * bytes(n)) as u64
}

/// Bytes that the holder of the elements sends.
pub(crate) fn payload_bytes(terms: &[Term], n: usize) -> u64 {
    terms.iter().map(|t| packed_bytes(n, t.payload.bits())).sum()
}

/// What the holder of the bits keeps until the payloads come: per block and term its pads and its bits.
pub(crate) struct Chosen {
    pads: Vec<[u64; GROUP]>,
    bits: Vec<u64>,
    n: usize,
}

/// Draws the OTs of n values and sends the corrections of `plane(block, term)`, the bits of 64 values each. The OTs have been ensured.
pub(crate) fn choose(
    s: &mut Session,
    n: usize,
    terms: usize,
    plane: impl Fn(usize, usize) -> u64,
) -> Result<Chosen> {
    let blocks = words(n);
    let mut chosen =
        Chosen { pads: Vec::with_capacity(blocks * terms), bits: Vec::with_capacity(blocks * terms), n };
    let (mut t, mut h) = ([0; GROUP], [0; GROUP]);
    for block in 0..blocks {
        let m = (n - block * GROUP).min(GROUP);
        for term in 0..terms {
            s.draw_received(&mut t)?;
            s.recv_pads.key.hash(&t, 0, &mut h);
            let bits = plane(block, term);
            send_plane(&mut *s.channel, &[s.recv_pads.key.choices(&t) ^ bits], m)?;
            chosen.pads.push(h.map(|h| h as u64));
            chosen.bits.push(bits);
        }
    }
    Ok(chosen)
}

/// Reads the corrections, sends the payloads of `element(term, value)` (reduced here) and adds this party's shares to `out`, modulo 2^w.
pub(crate) fn offer(
    s: &mut Session,
    terms: &[Term],
    ring: Ring,
    out: &mut [u64],
    element: impl Fn(usize, usize) -> u64,
) -> Result<()> {
    let delta = s.delta();
    let (mut q, mut h) = ([0; GROUP], [[0; GROUP]; 2]);
    let mut tau = [0; GROUP];
    let mut message = Vec::new();
    let mut corrections = Vec::with_capacity(terms.len() * words(out.len()));
    for block in out.chunks(GROUP) {
        for _ in terms {
            corrections.extend(recv_plane(&mut *s.channel, block.len())?);
        }
    }
    let mut corrections = corrections.into_iter();
    for (block, out) in out.chunks_mut(GROUP).enumerate() {
        message.clear();
        for (k, (term, d)) in terms.iter().zip(&mut corrections).enumerate() {
            s.draw_sent(&mut q)?;
            s.send_pads.key.hash(&q, 0, &mut h[0]);
            s.send_pads.key.hash(&q, delta, &mut h[1]);
            for (i, out) in out.iter_mut().enumerate() {
                let (p0, p1) = (h[0][i] as u64, h[1][i] as u64);
                let swap = (p0 ^ p1) & all(d >> i);
                let (a, b) = (p0 ^ swap, p1 ^ swap);
                let element = element(k, block * GROUP + i);
                tau[i] = term.payload.reduce(a.wrapping_sub(b).wrapping_add(element));
                *out = ring.reduce(out.wrapping_sub(a << term.shift));
            }
            pack(&tau[..out.len()], term.payload.bits(), &mut message);
        }
        s.channel.send(&message)?;
    }
    Ok(())
}

/// Reads the payloads and adds this party's shares to `out`, modulo 2^w.
pub(crate) fn collect(
    s: &mut Session,
    terms: &[Term],
    ring: Ring,
    chosen: &Chosen,
    out: &mut [u64],
) -> Result<()> {
    crate::error::check_len("values of chosen products", chosen.n, out.len())?;
    let mut held = chosen.pads.iter().zip(&chosen.bits);
    let mut tau = [0; GROUP];
    let mut message = Vec::new();
    for out in out.chunks_mut(GROUP) {
        message.resize(payload_bytes(terms, out.len()) as usize, 0);
        s.channel.recv(&mut message)?;
        let mut rest = message.as_slice();
        for (term, (pads, &bits)) in terms.iter().zip(&mut held) {
            let (part, after) = rest.split_at(packed_bytes(out.len(), term.payload.bits()) as usize);
            rest = after;
            crate::bits::unpack(part, term.payload.bits(), &mut tau[..out.len()]);
            for (i, out) in out.iter_mut().enumerate() {
                let gained = pads[i].wrapping_add(tau[i] & all(bits >> i));
                *out = ring.reduce(out.wrapping_add(gained << term.shift));
            }
        }
    }
    Ok(())
}
