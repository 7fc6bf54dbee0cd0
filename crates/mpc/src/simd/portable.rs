//! The versions for every machine.

use hushnet_ring::aes128::Aes128;

use super::lanes::{self, Lanes, Offered, Polynomial};
use super::spread;
use crate::block::{Block, CLEAR};
use crate::select::equal_mask;

pub(super) fn sigma(x: Block) -> Block {
    (x << 64 ^ (x >> 64 << 64)) | (x >> 64)
}

pub(super) fn hash(aes: &Aes128, input: &[Block], offset: Block, out: &mut [Block]) {
    for (o, &x) in out.iter_mut().zip(input) {
        *o = sigma(x ^ offset);
    }
    aes.encrypt(out);
    for (o, &x) in out.iter_mut().zip(input) {
        *o ^= sigma(x ^ offset);
    }
}

pub(super) fn tweaked(aes: &Aes128, input: &[Block], offset: Block, first: u64, out: &mut [Block]) {
    let mut inner = [0; 32];
    for (c, (x, o)) in input.chunks(32).zip(out.chunks_mut(32)).enumerate() {
        let inner = &mut inner[..x.len()];
        inner.iter_mut().zip(x).for_each(|(a, &x)| *a = x ^ offset);
        aes.encrypt(inner);
        for (i, (o, &a)) in o.iter_mut().zip(inner.iter()).enumerate() {
            *o = a ^ Block::from(first.wrapping_add(2 * (32 * c + i) as u64));
        }
        aes.encrypt(o);
        o.iter_mut().zip(inner.iter()).for_each(|(o, &a)| *o ^= a);
    }
}

pub(super) fn grow(aes: &Aes128, nodes: &mut [Block], w: usize) -> Block {
    let (low, high) = nodes.split_at_mut(w);
    let high = &mut high[..w];
    hash(aes, low, 0, high);
    let mut sum = 0;
    for (l, h) in low.iter_mut().zip(high) {
        let left = *h;
        *h = *l ^ left;
        *l = left;
        sum ^= left;
    }
    sum
}

/// See `FixedKey::grow_patched`.
pub(super) fn grow_patched(aes: &Aes128, nodes: &mut [Block], w: usize, at: u64, value: Block) -> Block {
    for (i, node) in nodes[..w].iter_mut().enumerate() {
        *node ^= value & equal_mask(i as u64, at);
    }
    grow(aes, nodes, w)
}

/// See `FixedKey::lefts`.
pub(super) fn lefts(aes: &Aes128, nodes: &[Block]) -> Block {
    let mut left = [0; 64];
    nodes.chunks(left.len()).fold(0, |sum, nodes| {
        let left = &mut left[..nodes.len()];
        hash(aes, nodes, 0, left);
        left.iter().fold(sum, |sum, l| sum ^ l)
    })
}

/// See `FixedKey::seal`.
pub(super) fn seal(_: &Aes128, nodes: &mut [Block], at: u64, value: Block) {
    const TOGETHER: usize = 8;
    let spread: [Block; TOGETHER] = spread(at, value);
    for (i, group) in nodes.chunks_mut(TOGETHER).enumerate() {
        let here = equal_mask(i as u64, at / TOGETHER as u64);
        group.iter_mut().zip(&spread).for_each(|(n, v)| *n = *n & CLEAR ^ v & here);
    }
}

/// See `FixedKey::words`.
pub(super) fn words(aes: &Aes128, blocks: &[Block; 64], offset: Block) -> Lanes {
    let mut h = [0; 64];
    hash(aes, blocks, offset, &mut h);
    h.map(|h| h as u64)
}

pub(super) fn counter(aes: &Aes128, start: u128, out: &mut [Block]) {
    for (i, o) in out.iter_mut().enumerate() {
        *o = start.wrapping_add(i as u128);
    }
    aes.encrypt(out);
}

/// See `FixedKey::planes`.
pub(super) fn planes<const P: usize>(aes: &Aes128, blocks: &[Block; 64], offset: Block) -> [u64; P] {
    let mut h = [0; 64];
    hash(aes, blocks, offset, &mut h);
    std::array::from_fn(|j| extract(&h, if j % 2 == 0 { 127 } else { 63 } - (j as u32) / 2))
}

/// See `FixedKey::choices`.
pub(super) fn choices(_: &Aes128, blocks: &[Block; 64]) -> u64 {
    extract(blocks, 0)
}

fn extract(blocks: &[Block; 64], position: u32) -> u64 {
    blocks.iter().enumerate().fold(0, |acc, (i, &b)| acc | ((b >> position) as u64 & 1) << i)
}

/// Recursive block swap (Warren, Hacker's Delight, section 7-3).
pub(super) fn transpose64(m: &mut [u64; 64]) {
    let mut j = 32;
    let mut mask = 0x0000_0000_ffff_ffffu64;
    while j != 0 {
        let mut k = 0;
        while k < 64 {
            let t = ((m[k] >> j) ^ m[k | j]) & mask;
            m[k] ^= t << j;
            m[k | j] ^= t;
            k = ((k | j) + 1) & !j;
        }
        j >>= 1;
        mask ^= mask << j;
    }
}

/// See `FixedKey::encode`.
pub(super) fn encode(aes: &Aes128, first: u64, table: &[Block], log_group: u32, rows: &mut [Block]) {
    let mut stream = [0; 32];
    for (j, group) in table.chunks_exact(1 << log_group).enumerate() {
        for (c, chunk) in rows.chunks_mut(8 * stream.len()).enumerate() {
            let start = first / 8 + (stream.len() * c) as u64;
            counter(aes, Block::from(start) | (j as Block) << 64, &mut stream);
            for (i, row) in chunk.iter_mut().enumerate() {
                let word = (stream[i / 8] >> (16 * (i % 8))) as u16;
                *row ^= group[word as usize & (group.len() - 1)];
            }
        }
    }
}

/// See `FixedKey::offer`.
pub(super) fn offer(_: &Aes128, term: &Offered<'_>, sent: &mut Lanes, share: &mut Lanes) {
    lanes::offer(term, sent, share);
}

/// See `FixedKey::keep`.
pub(super) fn keep(_: &Aes128, pads: &Lanes, shift: u32, share: &mut Lanes) {
    lanes::keep(pads, shift, share);
}

/// See `FixedKey::collect`.
pub(super) fn collect(_: &Aes128, bits: u64, received: &Lanes, shift: u32, share: &mut Lanes) {
    lanes::collect(bits, received, shift, share);
}

/// See `FixedKey::evaluate`.
pub(super) fn evaluate(_: &Aes128, of: &Polynomial<'_>, places: &Lanes, words: &mut Lanes) {
    lanes::evaluate(of, places, words);
}

/// See `FixedKey::turn`.
pub(super) fn turn(_: &Aes128, table: &[Lanes], turn: &Lanes, step: u32, next: &mut [Lanes]) {
    lanes::turn(table, turn, step, next);
}
