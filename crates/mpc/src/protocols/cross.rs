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
use crate::simd::{Lanes, Offered, GROUP};
use crate::wire::{packed_bytes, recv_word, send_plane};
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

/// What the holder of the bits keeps until the payloads come: per block the sum of its pads, each shifted as its term, and per block and term its bits.
pub(crate) struct Chosen {
    sums: Vec<Lanes>,
    bits: Vec<u64>,
    n: usize,
}

/// Draws the OTs of n values and sends the corrections of `plane(block, term)`, the bits of 64 values each. The OTs have been ensured.
pub(crate) fn choose(
    s: &mut Session,
    n: usize,
    terms: &[Term],
    plane: impl Fn(usize, usize) -> u64,
) -> Result<Chosen> {
    let blocks = words(n);
    let mut chosen =
        Chosen { sums: Vec::with_capacity(blocks), bits: Vec::with_capacity(blocks * terms.len()), n };
    let mut t = [0; GROUP];
    for block in 0..blocks {
        let m = (n - block * GROUP).min(GROUP);
        let mut sum = [0; GROUP];
        for (k, term) in terms.iter().enumerate() {
            s.draw_received(&mut t)?;
            let key = &s.recv_pads.key;
            key.keep(&key.words(&t, 0), term.shift, &mut sum);
            let bits = plane(block, k);
            send_plane(&mut *s.channel, &[key.choices(&t) ^ bits], m)?;
            chosen.bits.push(bits);
        }
        chosen.sums.push(sum);
    }
    Ok(chosen)
}

/// Reads the corrections, sends the payloads and adds this party's shares to `out`, modulo 2^w. `elements(term, first, block)` fills in the elements of
/// a term for the values from `first` on; they are reduced here.
///
/// A block's payloads are made as soon as its corrections are there, while the other party draws for the next blocks. All of them are sent behind the last correction.
pub(crate) fn offer(
    s: &mut Session,
    terms: &[Term],
    ring: Ring,
    out: &mut [u64],
    elements: impl Fn(usize, usize, &mut [u64]),
) -> Result<()> {
    let delta = s.delta();
    let mut q = [0; GROUP];
    let (mut sent, mut share, mut block_elements) = ([0; GROUP], [0; GROUP], [0; GROUP]);
    let mut messages = Vec::with_capacity(payload_bytes(terms, out.len()) as usize);
    for (block, out) in out.chunks_mut(GROUP).enumerate() {
        let n = out.len();
        share[..n].copy_from_slice(out);
        for (k, term) in terms.iter().enumerate() {
            let swap = recv_word(&mut *s.channel, n)?;
            s.draw_sent(&mut q)?;
            let key = &s.send_pads.key;
            let (first, second) = (key.words(&q, 0), key.words(&q, delta));
            elements(k, block * GROUP, &mut block_elements[..n]);
            let term = Offered {
                pads: [&first, &second],
                swap,
                elements: &block_elements,
                payload: term.payload.reduce(u64::MAX),
                shift: term.shift,
            };
            key.offer(&term, &mut sent, &mut share);
            pack(&sent[..n], terms[k].payload.bits(), &mut messages)?;
        }
        for (o, share) in out.iter_mut().zip(&share) {
            *o = ring.reduce(*share);
        }
    }
    s.channel.send(&messages)
}

/// Reads the payloads of the terms that were chosen and adds this party's shares to `out`, modulo 2^w.
pub(crate) fn collect(
    s: &mut Session,
    terms: &[Term],
    ring: Ring,
    chosen: &Chosen,
    out: &mut [u64],
) -> Result<()> {
    crate::error::check_len("values of chosen products", chosen.n, out.len())?;
    let mut bits = chosen.bits.iter();
    let mut received = [0; GROUP];
    let mut message = Vec::new();
    for (out, sum) in out.chunks_mut(GROUP).zip(&chosen.sums) {
        let (n, mut share) = (out.len(), *sum);
        message.resize(payload_bytes(terms, n) as usize, 0);
        s.channel.recv(&mut message)?;
        let mut rest = message.as_slice();
        for (term, &bits) in terms.iter().zip(&mut bits) {
            let (part, after) = rest.split_at(packed_bytes(n, term.payload.bits()) as usize);
            rest = after;
            crate::bits::unpack(part, term.payload.bits(), &mut received[..n])?;
            s.recv_pads.key.collect(bits, &received, term.shift, &mut share);
        }
        for (o, share) in out.iter_mut().zip(&share) {
            *o = ring.add(*o, *share);
        }
    }
    Ok(())
}
