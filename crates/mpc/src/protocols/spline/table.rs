//! Shares of a table's entry at a shared place, by 1-of-2^d OT: the holder of the table and of one part of the place sends 2^d - 1
//! corrections, because its share is what the first pad leaves (the table at a private place of CrypTFlow2, section 2.6.3, and SIRNN,
//! section 3.1; Naor and Pinkas 1999 for the pads, as in [`crate::ot::one_of_n`]).
//!
//! Random OTs give the other party a random label c and its pad. It sends its part of the place less c, modulo 2^d. The holder turns its table
//! by that and by its own part, in d masked steps, so that label c names the entry that is wanted. An entry is a word of several fields, each
//! with a ring of its own, and shares are sums field by field. 64 values go together.

use crate::bits::{pack, unpack};
use crate::block::Block;
use crate::error::Result;
use crate::ring::Ring;
use crate::select::equal;
use crate::simd::{transpose64, FixedKey, GROUP};
use crate::wire::{packed_bytes, recv_plane, send_plane};
use crate::{uses, Session};
use hushnet_ring::ledger;

/// A word for each of 64 values.
pub(super) type Lanes = [u64; GROUP];

const TWEAK: Block = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

fn tweak(label: u64) -> Block {
    TWEAK.wrapping_mul(Block::from(label) + 1)
}

/// Words whose fields are added and subtracted at once: the lowest bits are the first field.
pub(super) struct Fields {
    /// Where each begins, and ones for its bits, at the lowest ones.
    places: Vec<(u32, u64)>,
    tops: u64,
    mask: u64,
}

impl Fields {
    pub(super) fn new(rings: &[Ring]) -> Self {
        let (mut places, mut tops, mut at) = (Vec::with_capacity(rings.len()), 0, 0);
        for ring in rings {
            places.push((at, ring.mask()));
            at += ring.bits();
            tops |= 1 << (at - 1);
        }
        Self { places, tops, mask: u64::MAX >> (64 - at) }
    }

    /// The number of bits of a whole word.
    pub(super) fn total(&self) -> u32 {
        self.mask.count_ones()
    }

    pub(super) fn add(&self, a: u64, b: u64) -> u64 {
        (((a & !self.tops).wrapping_add(b & !self.tops)) ^ ((a ^ b) & self.tops)) & self.mask
    }

    pub(super) fn sub(&self, a: u64, b: u64) -> u64 {
        (((a | self.tops).wrapping_sub(b & !self.tops)) ^ ((a ^ !b) & self.tops)) & self.mask
    }

    /// Where field `which` begins, and ones for its bits, at the lowest ones.
    pub(super) fn place(&self, which: usize) -> (u32, u64) {
        self.places[which]
    }

    /// Field `which` of a word.
    pub(super) fn get(&self, word: u64, which: usize) -> u64 {
        let (at, mask) = self.place(which);
        word >> at & mask
    }
}

/// Bits of 64 words as words: word i holds bit i of each.
fn planes(mut lanes: Lanes) -> Lanes {
    transpose64(&mut lanes);
    lanes
}

/// What the one who asks keeps: per value its random label and the label's pad.
pub(super) struct Asked {
    labels: Lanes,
    pads: Lanes,
}

/// Asks for 64 values, of which `count` are sent: their places modulo 2^d.
pub(super) fn ask(s: &mut Session, d: u32, places: &Lanes, count: usize) -> Result<Asked> {
    let (mut t, mut keys) = ([0; GROUP], Vec::with_capacity(d as usize));
    let mut labels = [0; GROUP];
    for label in labels.iter_mut().take(d as usize) {
        s.draw_received(&mut t)?;
        *label = s.recv_pads.key.choices(&t);
        let mut key = [0; GROUP];
        s.recv_pads.key.hash(&t, 0, &mut key);
        keys.push(key);
    }
    let labels = planes(labels);
    let mut pads = [0; GROUP];
    let mut h = [0; GROUP];
    for key in &mut keys {
        key.iter_mut().zip(&labels).for_each(|(k, &c)| *k ^= tweak(c));
        ledger::blocks(uses::RECEIVED_TABLE_KEY, key);
        s.hash.hash(key, 0, &mut h);
        pads.iter_mut().zip(&h).for_each(|(p, &h)| *p ^= h as u64);
    }
    let mut turn = [0; GROUP];
    turn.iter_mut().zip(places.iter().zip(&labels)).for_each(|(t, (p, c))| *t = p.wrapping_sub(*c));
    for plane in &planes(turn)[..d as usize] {
        send_plane(&mut *s.channel, &[*plane], count)?;
    }
    Ok(Asked { labels, pads })
}

/// Reads what [`ask`] sent: how far the holder has to turn its table beside its own part of the place.
pub(super) fn heard(s: &mut Session, d: u32, count: usize) -> Result<Lanes> {
    let mut turn = [0; GROUP];
    for t in turn.iter_mut().take(d as usize) {
        *t = recv_plane(&mut *s.channel, count)?[0];
    }
    Ok(planes(turn))
}

/// Moves entry c + turn to place c, for each value by its own turn.
fn rotate(key: &FixedKey, table: &mut Vec<Lanes>, d: u32, turn: &Lanes) {
    let mut next = vec![[0; GROUP]; table.len()];
    for step in 0..d {
        key.turn(table, turn, step, &mut next);
        std::mem::swap(table, &mut next);
    }
}

/// The holder's pads of every label.
fn pads(s: &mut Session, d: u32) -> Result<Vec<Lanes>> {
    let delta = s.delta();
    let mut q = [0; GROUP];
    let mut keys = vec![[[0; GROUP]; 2]; d as usize];
    for pair in &mut keys {
        s.draw_sent(&mut q)?;
        s.send_pads.key.hash(&q, 0, &mut pair[0]);
        s.send_pads.key.hash(&q, delta, &mut pair[1]);
    }
    let mut pads = vec![[0; GROUP]; 1 << d];
    for (c, pads) in pads.iter_mut().enumerate() {
        let tweak = tweak(c as u64);
        for (bit, pair) in keys.iter_mut().enumerate() {
            let key = &mut pair[c >> bit & 1];
            ledger::tweaked(uses::SENT_TABLE_KEY, key, tweak);
            let h = s.hash.words(key, tweak);
            pads.iter_mut().zip(&h).for_each(|(p, &h)| *p ^= h);
        }
    }
    Ok(pads)
}

/// Sends the corrections of 64 values, `count` of them, and returns the holder's shares. `turn`: the whole way, its own part of the place
/// and what it [`heard`].
pub(super) fn answer(
    s: &mut Session,
    fields: &Fields,
    mut table: Vec<Lanes>,
    turn: &Lanes,
    count: usize,
) -> Result<Lanes> {
    let d = table.len().trailing_zeros();
    rotate(&s.hash, &mut table, d, turn);
    let pads = pads(s, d)?;
    let own: Lanes = std::array::from_fn(|i| fields.sub(table[0][i], pads[0][i]));
    let mut message = Vec::with_capacity((table.len() - 1) * packed_bytes(count, fields.total()) as usize);
    let mut correction = [0; GROUP];
    for (entry, pad) in table.iter().zip(&pads).skip(1) {
        for i in 0..GROUP {
            correction[i] = fields.sub(fields.sub(entry[i], own[i]), pad[i]);
        }
        pack(&correction[..count], fields.total(), &mut message)?;
    }
    s.channel.send(&message)?;
    Ok(own)
}

/// Reads the corrections; returns the shares of the one who asked.
pub(super) fn learn(s: &mut Session, fields: &Fields, d: u32, asked: &Asked, count: usize) -> Result<Lanes> {
    let part = packed_bytes(count, fields.total()) as usize;
    let mut message = vec![0; part * ((1 << d) - 1)];
    s.channel.recv(&mut message)?;
    let mut own = [0; GROUP];
    let mut correction = [0; GROUP];
    for (c, part) in message.chunks_exact(part.max(1)).enumerate() {
        unpack(part, fields.total(), &mut correction[..count])?;
        for i in 0..count {
            own[i] |= correction[i] & std::hint::black_box(equal(c as u64 + 1, asked.labels[i]));
        }
    }
    Ok(std::array::from_fn(|i| fields.add(own[i], asked.pads[i])))
}

/// Bytes of the corrections of n values.
pub(super) fn answer_bytes(n: usize, d: u32, entry_bits: u32) -> u64 {
    ((1 << d) - 1) * packed_bytes(n, entry_bits)
}
