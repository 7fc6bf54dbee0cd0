//! Products of one party's bit with the other's ring element, by correlated OT: with pads p0, p1 swapped by
//! the correction d = b ^ c, the sender of f sends p0 - p1 + f and keeps -p0; the receiver gets p0 + b*f. Cost per
//! product: one bit from the holder of b, the payload's bits from the holder of f.

use crate::bits::{bit, bytes, words};
use crate::cost::CostModel;
use crate::error::{check_len, Result};
use crate::kept::{widths, Item};
use crate::ring::Ring;
use crate::select::all;
use crate::simd::GROUP;
use crate::wire::{packed_bytes, recv_packed, recv_plane, send_packed, send_plane};
use crate::{Block, Party, Session};

const STEP: usize = 1024;

/// Which products are wanted, from one party's point of view.
pub(crate) struct Job<'a> {
    /// Instances.
    pub n: usize,
    /// This party's elements, one slice of n per payload, if it sends.
    pub send: Option<&'a [&'a [u64]]>,
    /// This party's bits, if it receives.
    pub recv: Option<&'a [u64]>,
    /// Rings of the payloads; one or two.
    pub rings: &'a [Ring],
}

/// In which directions elements flow: `[d]` says whether party d holds elements.
pub(crate) type Directions = [bool; 2];

/// Both ways.
pub(crate) const BOTH: Directions = [true, true];

/// Messages of [`products`].
pub(crate) fn cost(m: &mut CostModel, n: usize, directions: Directions, rings: &[Ring]) {
    for (_, n) in chunks(n, m.chunk) {
        m.provide(directions.map(|d| if d { n as u64 } else { 0 }));
        for (holder, _) in [Party::Zero, Party::One].into_iter().zip(directions).filter(|(_, on)| *on) {
            m.pad(Item::Product { holder, bits: widths(rings) }, n);
        }
        let plane = bytes(n) as u64;
        let payload: u64 = rings.iter().map(|r| packed_bytes(n, r.bits())).sum();
        let [zero, one] = directions;
        let of = |on: bool, v: u64| if on { v } else { 0 };
        m.exchange(of(one, plane), of(zero, plane));
        m.exchange(of(zero, payload), of(one, payload));
    }
}

/// (start, length) of passes over n values.
pub(crate) fn chunks(n: usize, chunk: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).step_by(chunk.max(1)).map(move |at| (at, chunk.min(n - at)))
}

/// Shares of bit*element for every instance, one vector per payload, both directions added up.
pub(crate) fn products(s: &mut Session, job: &Job<'_>) -> Result<Vec<Vec<u64>>> {
    for f in job.send.iter().flat_map(|f| f.iter()) {
        check_len("payload", job.n, f.len())?;
    }
    let mut out: Vec<Vec<u64>> = job.rings.iter().map(|_| Vec::with_capacity(job.n)).collect();
    for (at, n) in chunks(job.n, s.chunk()) {
        let send: Option<Vec<&[u64]>> = job.send.map(|f| f.iter().map(|f| &f[at..at + n]).collect());
        let recv = job.recv.map(|b| &b[at / 64..at / 64 + words(n)]);
        let part = pass(s, &Job { n, send: send.as_deref(), recv, rings: job.rings })?;
        out.iter_mut().zip(part).for_each(|(o, p)| o.extend(p));
    }
    Ok(out)
}

fn pass(s: &mut Session, job: &Job<'_>) -> Result<Vec<Vec<u64>>> {
    let (n, k) = (job.n, job.rings.len());
    let mut demand = [0; 2];
    demand[s.party.index()] = if job.send.is_some() { n as u64 } else { 0 };
    demand[s.party.other().index()] = if job.recv.is_some() { n as u64 } else { 0 };
    s.provide(demand)?;
    let item = |holder| Item::Product { holder, bits: widths(job.rings) };
    let mut chosen = Vec::new();
    if let Some(b) = job.recv {
        chosen = s.pads(item(s.party.other()), n)?;
        let c = chosen.remove(0);
        let d: Vec<u64> = b.iter().zip(&c).map(|(b, c)| b ^ c).collect();
        send_plane(&mut *s.channel, &d, n)?;
        s.channel.flush()?;
    }
    let mut out = vec![vec![0; n]; k];
    if let Some(f) = job.send {
        let pads = s.pads(item(s.party), n)?;
        let d = recv_plane(&mut *s.channel, n)?;
        for ((j, ring), pair) in job.rings.iter().enumerate().zip(pads.chunks_exact(2)) {
            let mut tau = vec![0; n];
            for i in 0..n {
                let swap = (pair[0][i] ^ pair[1][i]) & bit(&d, i).wrapping_neg();
                let (a, b) = (pair[0][i] ^ swap, pair[1][i] ^ swap);
                tau[i] = ring.reduce(a.wrapping_sub(b).wrapping_add(f[j][i]));
                out[j][i] = ring.sub(0, a);
            }
            send_packed(&mut *s.channel, &tau, ring.bits())?;
        }
        s.channel.flush()?;
    }
    if let Some(b) = job.recv {
        for (j, ring) in job.rings.iter().enumerate() {
            let tau = recv_packed(&mut *s.channel, n, ring.bits())?;
            for i in 0..n {
                let gained = chosen[j][i].wrapping_add(tau[i] & all(bit(b, i)));
                out[j][i] = ring.add(out[j][i], gained);
            }
        }
    }
    Ok(out)
}

/// The columns of [`Item::Product`] of n values. Of every payload the holder of the numbers has both pads, the other party its choices (a plane, once) and
/// their pads: the low word of a hash for the first payload, the high word for the second.
pub(crate) fn pads(s: &mut Session, n: usize, holder: Party, bits: [u32; 2]) -> Result<Vec<Vec<u64>>> {
    let count = bits.iter().filter(|b| **b > 0).count();
    let (mut drawn, mut hash) = ([0; STEP], [0; STEP]);
    if s.party == holder {
        let delta = s.delta();
        let mut out = vec![Vec::with_capacity(n); 2 * count];
        for (_, m) in chunks(n, STEP) {
            s.draw_sent(&mut drawn[..m])?;
            for (second, offset) in [0, delta].into_iter().enumerate() {
                s.send_pads.key.hash(&drawn[..m], offset, &mut hash[..m]);
                split(&hash[..m], out[second..].iter_mut().step_by(2));
            }
        }
        return Ok(out);
    }
    let mut out = vec![Vec::with_capacity(n); 1 + count];
    for (_, m) in chunks(n, STEP) {
        s.draw_received(&mut drawn[..m])?;
        drawn[m..].fill(0);
        for group in drawn[..m.next_multiple_of(GROUP)].as_chunks::<GROUP>().0 {
            out[0].push(s.recv_pads.key.choices(group));
        }
        s.recv_pads.key.hash(&drawn[..m], 0, &mut hash[..m]);
        split(&hash[..m], out[1..].iter_mut());
    }
    Ok(out)
}

fn split<'a>(hashes: &[Block], pads: impl Iterator<Item = &'a mut Vec<u64>>) {
    for (k, p) in pads.enumerate() {
        p.extend(hashes.iter().map(|h| (h >> (64 * k)) as u64));
    }
}

/// Shares of the product of party 0's elements with party 1's bits.
pub(crate) fn one_way(s: &mut Session, n: usize, mine: OneWay<'_>, rings: &[Ring]) -> Result<Vec<Vec<u64>>> {
    let (send, recv) = match (s.party, mine) {
        (Party::Zero, OneWay { elements, .. }) => (Some(elements), None),
        (Party::One, OneWay { bits, .. }) => (None, Some(bits)),
    };
    products(s, &Job { n, send, recv, rings })
}

/// Inputs of [`one_way`]: party 0's elements, party 1's bits; the other field is ignored.
pub(crate) struct OneWay<'a> {
    pub elements: &'a [&'a [u64]],
    pub bits: &'a [u64],
}
