//! Sums of products of one party's bits with runs of the other party's elements: sum_t bit_t * element_t * 2^(shift_t) modulo 2^w, where all
//! elements of a run meet the same bits. A bit and a run take one correlated OT, whose two pads are seeds of as many pads as the run has elements
//! (as OT extensions stretch the pads of their base OTs). The payloads are those of `cross`.
//!
//! Pad j of a seed is a piece of H(seed ^ j), the hash of OT pads under keys of its own. `docs/mpc.md` has the bound.

use super::cross::Term;
use crate::bits::{bytes, pack, unpack, words};
use crate::error::Result;
use crate::ring::Ring;
use crate::select::{all, mask};
use crate::simd::{FixedKey, Lanes, Offered, GROUP};
use crate::wire::{packed_bytes, recv_word, send_plane};
use crate::{Block, Session};

/// Most elements of a run: longer rows are cut, so that a run's pads stay in a near cache.
const RUN: usize = 1024;
/// Blocks of values of a tile.
const BLOCKS: usize = RUN / GROUP;

/// Elements in a row that meet the bits of one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// Which number.
    pub row: usize,
    /// Elements.
    pub n: usize,
}

/// The runs of `rows` rows of `len` elements, in their order.
pub(crate) fn runs(rows: usize, len: usize) -> Vec<Run> {
    let of_row = |row| (0..len).step_by(RUN).map(move |at| Run { row, n: (len - at).min(RUN) });
    (0..rows).flat_map(of_row).collect()
}

/// Runs one after the other of at most `limit` elements together, or a single one.
pub(crate) fn together(runs: &[Run], limit: usize) -> impl Iterator<Item = &[Run]> {
    let mut rest = runs;
    std::iter::from_fn(move || {
        let mut n = 0;
        let fits = |r: &&Run| {
            n += r.n;
            n <= limit
        };
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let (these, after) = rest.split_at(count);
        rest = after;
        (count > 0).then_some(these)
    })
}

/// Elements of runs.
pub(crate) fn elements(runs: &[Run]) -> usize {
    runs.iter().map(|r| r.n).sum()
}

/// Correlated OTs of `terms` terms for so many runs.
pub(crate) fn demand(terms: usize, runs: usize) -> u64 {
    (words(terms * runs) * GROUP) as u64
}

/// Bytes that the holder of the bits sends.
pub(crate) fn choice_bytes(terms: usize, runs: usize) -> u64 {
    bytes(terms * runs) as u64
}

/// Bytes that the holder of the elements sends.
pub(crate) fn payload_bytes(terms: &[Term], runs: &[Run]) -> u64 {
    together(runs, RUN).map(|tile| tile_bytes(terms, elements(tile))).sum()
}

fn tile_bytes(terms: &[Term], n: usize) -> u64 {
    terms.iter().map(|t| packed_bytes(n, t.payload.bits())).sum()
}

/// Buffers of a tile's pads.
struct Pads {
    inputs: Vec<Block>,
    hashes: Vec<Block>,
}

impl Pads {
    fn new() -> Self {
        Self { inputs: Vec::with_capacity(RUN), hashes: Vec::with_capacity(RUN) }
    }

    /// Pads that a hash gives: pieces of 16, 32 or 64 bits.
    fn pieces(payload: Ring) -> usize {
        128 / payload.bits().next_power_of_two().max(16) as usize
    }

    /// Hashes of one seed each run.
    fn hashes(tile: &[Run], payload: Ring) -> usize {
        tile.iter().map(|r| r.n.div_ceil(Self::pieces(payload))).sum()
    }

    /// The pads of a tile for one term; `seed(k)` is that of run k. Bits above the payload's do not matter.
    fn fill(
        &mut self,
        key: &FixedKey,
        tile: &[Run],
        payload: Ring,
        seed: impl Fn(usize) -> Block,
        out: &mut [Lanes],
    ) {
        let pieces = Self::pieces(payload);
        self.inputs.clear();
        for (k, run) in tile.iter().enumerate() {
            let seed = seed(k);
            self.inputs.extend((0..run.n.div_ceil(pieces)).map(|j| seed ^ j as Block));
        }
        self.hashes.resize(self.inputs.len(), 0);
        key.hash(&self.inputs, 0, &mut self.hashes);
        let (mut rest, mut hashes) = (out.as_flattened_mut(), self.hashes.as_slice());
        for run in tile {
            let (pads, after) = rest.split_at_mut(run.n);
            let (these, others) = hashes.split_at(run.n.div_ceil(pieces));
            (rest, hashes) = (after, others);
            match pieces {
                2 => split::<2>(these, pads),
                4 => split::<4>(these, pads),
                _ => split::<8>(these, pads),
            }
        }
    }
}

/// `P` pads of each hash.
fn split<const P: usize>(hashes: &[Block], pads: &mut [u64]) {
    for (pads, h) in pads.chunks_mut(P).zip(hashes) {
        for (k, pad) in pads.iter_mut().enumerate() {
            *pad = (h >> (k * (128 / P))) as u64;
        }
    }
}

/// What the holder of the bits keeps until the payloads come: the sums of its pads, each shifted as its term, and its bits, a word a run.
pub(crate) struct Chosen {
    sums: Vec<u64>,
    bits: Vec<u64>,
}

/// Draws the OTs of the runs and sends the corrections of their bits: `bits` has a word a run, bit t for term t. The OTs have been ensured.
pub(crate) fn choose(s: &mut Session, runs: &[Run], terms: &[Term], bits: Vec<u64>) -> Result<Chosen> {
    let (count, mut stream) = (terms.len() * runs.len(), Vec::new());
    pack(&bits, terms.len() as u32, &mut stream)?;
    let mut seeds = vec![0; words(count) * GROUP];
    let mut t = [0; GROUP];
    for ((at, seeds), wanted) in
        (0..count).step_by(GROUP).zip(seeds.chunks_mut(GROUP)).zip(stream.chunks(GROUP / 8))
    {
        let mut word = [0; 8];
        word[..wanted.len()].copy_from_slice(wanted);
        s.draw_received(&mut t)?;
        let key = &s.recv_pads.key;
        let correction = key.choices(&t) ^ u64::from_le_bytes(word);
        key.hash(&t, 0, seeds);
        send_plane(&mut *s.channel, &[correction], (count - at).min(GROUP))?;
    }
    let mut sums = Vec::with_capacity(elements(runs));
    let (mut pads, mut words) = (Pads::new(), [[0; GROUP]; BLOCKS]);
    let mut at = 0;
    for tile in together(runs, RUN) {
        let mut sum = [[0; GROUP]; BLOCKS];
        let n = elements(tile);
        for (k, term) in terms.iter().enumerate() {
            s.recv_rows.advance(Pads::hashes(tile, term.payload));
            let key = &s.recv_rows.key;
            pads.fill(key, tile, term.payload, |run| seeds[(at + run) * terms.len() + k], &mut words);
            for (words, sum) in words.iter().zip(&mut sum).take(n.div_ceil(GROUP)) {
                key.keep(words, term.shift, sum);
            }
        }
        sums.extend_from_slice(&sum.as_flattened()[..n]);
        at += tile.len();
    }
    Ok(Chosen { sums, bits })
}

/// Both seeds of every OT, in the order that the corrections ask for.
fn offered_seeds(s: &mut Session, count: usize) -> Result<Vec<[Block; 2]>> {
    let delta = s.delta();
    let mut seeds = Vec::with_capacity(words(count) * GROUP);
    let (mut q, mut first, mut second) = ([0; GROUP], [0; GROUP], [0; GROUP]);
    for at in (0..count).step_by(GROUP) {
        let swap = recv_word(&mut *s.channel, (count - at).min(GROUP))?;
        s.draw_sent(&mut q)?;
        s.send_pads.key.hash(&q, 0, &mut first);
        s.send_pads.key.hash(&q, delta, &mut second);
        for (i, (a, b)) in first.iter().zip(&second).enumerate() {
            let change = (a ^ b) & mask(swap >> i);
            seeds.push([a ^ change, b ^ change]);
        }
    }
    Ok(seeds)
}

/// Reads the corrections, sends the payloads and adds this party's shares to `out`, modulo 2^w. `elements_of(term, first, block)` fills in the elements of a term
/// for the values from `first` on; they are reduced here.
pub(crate) fn offer(
    s: &mut Session,
    runs: &[Run],
    terms: &[Term],
    ring: Ring,
    out: &mut [u64],
    elements_of: impl Fn(usize, usize, &mut [u64]),
) -> Result<()> {
    let seeds = offered_seeds(s, terms.len() * runs.len())?;
    let mut messages = Vec::with_capacity(payload_bytes(terms, runs) as usize);
    let mut pads = [Pads::new(), Pads::new()];
    let mut words = [[[0; GROUP]; BLOCKS]; 2];
    let (mut sent, mut mine) = ([[0; GROUP]; BLOCKS], [[0; GROUP]; BLOCKS]);
    let (mut rest, mut first, mut at) = (out, 0, 0);
    for tile in together(runs, RUN) {
        let n = elements(tile);
        let (out, after) = rest.split_at_mut(n);
        let mut share = [[0; GROUP]; BLOCKS];
        share.as_flattened_mut()[..n].copy_from_slice(out);
        for (k, term) in terms.iter().enumerate() {
            s.send_rows.advance(Pads::hashes(tile, term.payload));
            let key = &s.send_rows.key;
            for (side, (pads, words)) in pads.iter_mut().zip(&mut words).enumerate() {
                let seed = |run: usize| seeds[(at + run) * terms.len() + k][side];
                pads.fill(key, tile, term.payload, seed, words);
            }
            elements_of(k, first, &mut mine.as_flattened_mut()[..n]);
            for i in 0..n.div_ceil(GROUP) {
                let offered = Offered {
                    pads: [&words[0][i], &words[1][i]],
                    swap: 0,
                    elements: &mine[i],
                    payload: term.payload.reduce(u64::MAX),
                    shift: term.shift,
                };
                key.offer(&offered, &mut sent[i], &mut share[i]);
            }
            pack(&sent.as_flattened()[..n], term.payload.bits(), &mut messages)?;
        }
        for (o, share) in out.iter_mut().zip(share.as_flattened()) {
            *o = ring.reduce(*share);
        }
        (rest, first, at) = (after, first + n, at + tile.len());
    }
    s.channel.send(&messages)
}

/// Bit t of the runs' words, each as often as the run has elements, 64 to a word.
fn spread(tile: &[Run], bits: &[u64], t: usize, out: &mut [u64; BLOCKS]) {
    out.fill(0);
    let mut at = 0;
    for (run, bits) in tile.iter().zip(bits) {
        let (ones, end) = (all(bits >> t), at + run.n);
        while at < end {
            let (from, count) = (at % GROUP, (end - at).min(GROUP - at % GROUP));
            out[at / GROUP] |= (ones >> (GROUP - count)) << from;
            at += count;
        }
    }
}

/// Reads the payloads of the terms that were chosen and adds this party's shares to `out`, modulo 2^w.
pub(crate) fn collect(
    s: &mut Session,
    runs: &[Run],
    terms: &[Term],
    ring: Ring,
    chosen: &Chosen,
    out: &mut [u64],
) -> Result<()> {
    let (mut rest, mut sums, mut bits) = (out, chosen.sums.as_slice(), chosen.bits.as_slice());
    let (mut received, mut ones) = ([[0; GROUP]; BLOCKS], [0; BLOCKS]);
    let mut message = Vec::new();
    for tile in together(runs, RUN) {
        let n = elements(tile);
        let (out, after) = rest.split_at_mut(n);
        let (sum, other_sums) = sums.split_at(n);
        let mut share = [[0; GROUP]; BLOCKS];
        share.as_flattened_mut()[..n].copy_from_slice(sum);
        message.resize(tile_bytes(terms, n) as usize, 0);
        s.channel.recv(&mut message)?;
        let mut left = message.as_slice();
        for (t, term) in terms.iter().enumerate() {
            let (part, behind) = left.split_at(packed_bytes(n, term.payload.bits()) as usize);
            left = behind;
            unpack(part, term.payload.bits(), &mut received.as_flattened_mut()[..n])?;
            spread(tile, bits, t, &mut ones);
            for i in 0..n.div_ceil(GROUP) {
                s.recv_rows.key.collect(ones[i], &received[i], term.shift, &mut share[i]);
            }
        }
        for (o, share) in out.iter_mut().zip(share.as_flattened()) {
            *o = ring.add(*o, *share);
        }
        (rest, sums, bits) = (after, other_sums, &bits[tile.len()..]);
    }
    Ok(())
}
