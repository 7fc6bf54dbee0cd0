//! OT extension over a small field: Roy, "SoftSpokenOT" (CRYPTO 2022), semi-honest, with 8-bit groups: two bytes
//! per OT where IKNP sends sixteen, for sixteen times the hashing. It bootstraps the silent extension, and serves small sessions by itself.
//!
//! Delta is cut into 16 groups of 8 bits. For each, a GGM tree of 256 leaves gives the receiver of the extension all
//! seeds r_x and the sender all but the one at x = Delta_g. With u = XOR_x r_x and v_i = XOR of the r_x with bit i of
//! x set, the sender can compute q_i = XOR over x of bit i of (x ^ Delta_g) times r_x = v_i ^ Delta_gi * u. The
//! receiver sends u ^ r for its choice bits r, and the sender adds Delta_gi * (u ^ r).
//!
//! The sender runs a stream at x = Delta_g as well, of a seed that means nothing: bit i of (x ^ Delta_g) is 0 there, so the
//! stream adds to v_i exactly what it adds to Delta_gi * u. So streams and their places do not depend on Delta, and Delta
//! enters by masks only.

use std::collections::VecDeque;

use zeroize::Zeroize;

use crate::block::{Block, Prg, CLEAR};
use crate::channel::Channel;
use crate::error::Result;
use crate::select::{all, choose, equal_mask, mask};
use crate::simd::FixedKey;
use crate::uses;
use hushnet_ring::ledger;

use super::{recv_blocks, rows_of, send_blocks, take, CotReceiver, CotSender, Ledger, OtKind, Step};

/// Bits of a group.
const BITS: usize = 8;
const LEAVES: usize = 1 << BITS;
/// Groups in a block.
const GROUPS: usize = 128 / BITS;
/// Words of 64 OTs made at a time.
const BATCH: usize = 16;

/// Bytes for the first `rows` OTs (a multiple of 64), all sent by the receiver of the extension: two corrections per level of
/// each tree, and one bit per group and OT.
#[must_use]
pub const fn bytes(rows: u64) -> u64 {
    (128 * 2 * 16) + rows / 8 * GROUPS as u64
}

/// One level of a tree: left = H(parent), right = H(parent ^ 1); the left half keeps its places.
fn grow(h: &FixedKey, nodes: &mut [Block], w: usize) {
    let (low, high) = nodes.split_at_mut(w);
    let mut left = vec![0; w];
    h.hash(low, 0, &mut left);
    h.hash(low, 1, &mut high[..w]);
    low.copy_from_slice(&left);
    left.zeroize();
}

/// The XOR of either side's children.
fn sums(nodes: &[Block], w: usize) -> [Block; 2] {
    let sum = |v: &[Block]| v.iter().fold(0, |a, b| a ^ b);
    [sum(&nodes[..w]), sum(&nodes[w..2 * w])]
}

/// From 256 streams to u and the v_i: halves the streams once per bit.
fn fold(streams: &mut [[u64; BATCH]]) -> ([u64; BATCH], [[u64; BATCH]; BITS]) {
    let mut v = [[0; BATCH]; BITS];
    let mut n = LEAVES;
    for v in v.iter_mut().rev() {
        n /= 2;
        let (low, high) = streams.split_at_mut(n);
        for (l, h) in low.iter_mut().zip(&high[..n]) {
            for k in 0..BATCH {
                v[k] ^= h[k];
                l[k] ^= h[k];
            }
        }
    }
    (streams[0], v)
}

/// Holder of Delta.
pub struct Sender {
    delta: Block,
    keys: Vec<Block>,
    tree: FixedKey,
    /// Streams by group, the one at Delta_g without meaning; empty before the trees are there.
    prgs: Vec<Vec<Prg>>,
    store: VecDeque<Block>,
    ledger: Ledger,
}

impl Sender {
    /// `delta` has bit 0 set; `keys[i]` is the base OT's key for bit i of **!delta**.
    pub(crate) fn new(delta: Block, keys: Vec<Block>, tree: FixedKey) -> Self {
        Self {
            delta,
            keys,
            tree,
            prgs: Vec::new(),
            store: VecDeque::new(),
            ledger: Ledger::new(OtKind::SoftSpoken),
        }
    }

    fn plant(&mut self, ch: &mut dyn Channel) -> Result<()> {
        let mut corrections = [0; 256];
        recv_blocks(ch, &mut corrections)?;
        let trees = corrections.chunks_exact(2 * BITS).enumerate();
        self.prgs = trees.map(|(g, c)| self.open(g, c)).collect();
        self.keys.zeroize();
        Ok(())
    }

    /// Plants the trees and makes `rows` (a multiple of 64) OTs, for the set-up of another extension.
    pub(crate) fn batch(&mut self, ch: &mut dyn Channel, rows: u64) -> Result<Vec<Block>> {
        self.plant(ch)?;
        self.extend(ch, rows)?;
        Ok(self.store.drain(..).collect())
    }

    fn extend(&mut self, ch: &mut dyn Channel, rows: u64) -> Result<()> {
        let mut columns = [[0; BATCH]; 128];
        let mut left = rows as usize / 64;
        let mut streams = [[0; BATCH]; LEAVES];
        let mut words = [0u8; 8 * BATCH];
        while left > 0 {
            let n = left.min(BATCH);
            for (g, (prgs, columns)) in self.prgs.iter_mut().zip(columns.chunks_exact_mut(BITS)).enumerate() {
                prgs.iter_mut().zip(&mut streams).for_each(|(p, s)| p.words(s));
                let (mut u, v) = fold(&mut streams);
                ch.recv(&mut words[..8 * n])?;
                for (u, word) in u.iter_mut().zip(words[..8 * n].as_chunks::<8>().0) {
                    *u ^= u64::from_le_bytes(*word);
                }
                for (i, (column, v)) in columns.iter_mut().zip(v).enumerate() {
                    let chosen = all((self.delta >> (BITS * g + i)) as u64);
                    column.iter_mut().zip(v).zip(&u).for_each(|((c, v), u)| *c = v ^ (u & chosen));
                }
            }
            let old = self.store.len();
            rows_of(&columns, n, &mut self.store);
            self.store.range_mut(old..).for_each(|b| *b &= CLEAR);
            left -= n;
        }
        Ok(())
    }

    /// The streams of group g; the one at Delta_g is that of the seed 0. Every level looks at all of its nodes.
    fn open(&self, g: usize, corrections: &[Block]) -> Vec<Prg> {
        let mut nodes = [0; LEAVES];
        let mut hole = 0u64;
        for level in 0..BITS {
            let bit = BITS * g + level;
            let on_path = (self.delta >> bit) as u64 & 1;
            let w = 1 << level;
            if level > 0 {
                grow(&self.tree, &mut nodes, w);
            }
            // The children of the hole, 0 from now on, are not among those that the receiver summed up.
            let (low, high) = nodes.split_at_mut(w);
            for (i, (l, h)) in low.iter_mut().zip(&mut *high).enumerate() {
                let keep = !equal_mask(i as u64, hole);
                *l &= keep;
                *h &= keep;
            }
            // The path takes the side that the bit of Delta names; the sibling's seed comes with the correction of the other.
            let sums = sums(&nodes, w);
            let pair = [corrections[2 * level] ^ sums[0], corrections[2 * level + 1] ^ sums[1]];
            let sibling = choose(pair, 1 ^ on_path) ^ self.keys[bit];
            let right = mask(1 ^ on_path);
            for i in 0..w {
                let here = equal_mask(i as u64, hole) & sibling;
                nodes[i] ^= here & !right;
                nodes[i + w] ^= here & right;
            }
            hole |= on_path << level;
        }
        // The stream at Delta is that of the seed 0 and cancels out: the ledger of tests leaves it out.
        let kind = |x: usize| (!ledger::ON || x as u64 != hole).then_some(uses::SOFT_SENDER);
        let prgs = nodes.iter().enumerate().map(|(x, &seed)| Prg::new(seed).shared_as(kind(x))).collect();
        nodes.zeroize();
        prgs
    }
}

impl CotSender for Sender {
    fn delta(&self) -> Block {
        self.delta
    }

    fn start(&mut self, ch: &mut dyn Channel) -> Result<()> {
        match self.ledger.next_start() {
            Some(_) => self.plant(ch),
            None => Ok(()),
        }
    }

    fn ensure(&mut self, ch: &mut dyn Channel, n: u64) -> Result<()> {
        while let Some(Step::Extend { rows }) = self.ledger.next_step(n) {
            self.extend(ch, rows)?;
        }
        Ok(())
    }

    fn fill(&mut self, out: &mut [Block]) -> Result<()> {
        take(&mut self.store, &mut self.ledger, out)
    }

    fn available(&self) -> u64 {
        self.ledger.available()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.delta.zeroize();
        self.keys.zeroize();
        self.store.iter_mut().for_each(Zeroize::zeroize);
    }
}

/// Holder of the choice bits.
pub struct Receiver {
    keys: Vec<[Block; 2]>,
    tree: FixedKey,
    secrets: Prg,
    prgs: Vec<Vec<Prg>>,
    store: VecDeque<Block>,
    ledger: Ledger,
}

impl Receiver {
    /// `keys` are the base OT's pairs; `secrets` the source of trees and choice bits.
    pub(crate) fn new(keys: Vec<[Block; 2]>, tree: FixedKey, secrets: Prg) -> Self {
        Self {
            keys,
            tree,
            secrets,
            prgs: Vec::new(),
            store: VecDeque::new(),
            ledger: Ledger::new(OtKind::SoftSpoken),
        }
    }

    fn plant(&mut self, ch: &mut dyn Channel) -> Result<()> {
        let mut corrections = Vec::with_capacity(256);
        self.prgs = (0..GROUPS).map(|g| self.grow_tree(g, &mut corrections)).collect();
        self.keys.iter_mut().for_each(Zeroize::zeroize);
        send_blocks(ch, &corrections)?;
        ch.flush()
    }

    /// As [`Sender::batch`].
    pub(crate) fn batch(&mut self, ch: &mut dyn Channel, rows: u64) -> Result<Vec<Block>> {
        self.plant(ch)?;
        self.extend(ch, rows)?;
        Ok(self.store.drain(..).collect())
    }

    fn extend(&mut self, ch: &mut dyn Channel, rows: u64) -> Result<()> {
        let mut columns = [[0; BATCH]; 128];
        let mut streams = [[0; BATCH]; LEAVES];
        let mut left = rows as usize / 64;
        while left > 0 {
            let n = left.min(BATCH);
            let mut r = [0; BATCH];
            self.secrets.words(&mut r[..n]);
            for (prgs, columns) in self.prgs.iter_mut().zip(columns.chunks_exact_mut(BITS)) {
                prgs.iter_mut().zip(&mut streams).for_each(|(p, s)| p.words(s));
                let (u, v) = fold(&mut streams);
                columns.copy_from_slice(&v);
                for (u, r) in u.iter().zip(&r[..n]) {
                    ch.send(&(u ^ r).to_le_bytes())?;
                }
            }
            columns[0] = r;
            rows_of(&columns, n, &mut self.store);
            left -= n;
        }
        ch.flush()
    }

    /// Grows group g's tree, appends its corrections, returns its streams.
    fn grow_tree(&mut self, g: usize, corrections: &mut Vec<Block>) -> Vec<Prg> {
        let mut nodes = [0; LEAVES];
        for level in 0..BITS {
            let w = 1 << level;
            if level == 0 {
                self.secrets.blocks(&mut nodes[..2]);
            } else {
                grow(&self.tree, &mut nodes, w);
            }
            let sums = sums(&nodes, w);
            let keys = self.keys[BITS * g + level];
            corrections.extend([sums[0] ^ keys[0], sums[1] ^ keys[1]]);
        }
        let prgs = nodes.iter().map(|&seed| Prg::new(seed).shared_as(uses::SOFT_RECEIVER)).collect();
        nodes.zeroize();
        prgs
    }
}

impl CotReceiver for Receiver {
    fn start(&mut self, ch: &mut dyn Channel) -> Result<()> {
        match self.ledger.next_start() {
            Some(_) => self.plant(ch),
            None => Ok(()),
        }
    }

    fn ensure(&mut self, ch: &mut dyn Channel, n: u64) -> Result<()> {
        while let Some(Step::Extend { rows }) = self.ledger.next_step(n) {
            self.extend(ch, rows)?;
        }
        Ok(())
    }

    fn fill(&mut self, out: &mut [Block]) -> Result<()> {
        take(&mut self.store, &mut self.ledger, out)
    }

    fn available(&self) -> u64 {
        self.ledger.available()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.keys.iter_mut().for_each(Zeroize::zeroize);
        self.store.iter_mut().for_each(Zeroize::zeroize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_correlated() {
        let mut rng = Prg::new(5);
        let delta = rng.block() | 1;
        let pairs: Vec<[Block; 2]> = (0..128).map(|_| [rng.block(), rng.block()]).collect();
        let chosen = pairs.iter().enumerate().map(|(i, p)| p[(!delta >> i) as usize & 1]).collect();
        let (mut a, mut b) = crate::memory_pair();
        let rows = 64 * 37;
        let mut receiver = Receiver::new(pairs, FixedKey::new(1), Prg::new(6));
        let t = receiver.batch(&mut b, rows).unwrap();
        let q = Sender::new(delta, chosen, FixedKey::new(1)).batch(&mut a, rows).unwrap();
        assert_eq!(crate::Channel::stats(&b).bytes_sent, bytes(rows));
        let mut ones = 0;
        for (q, t) in q.iter().zip(&t) {
            assert_eq!(q & 1, 0);
            assert_eq!(*t, q ^ (delta * (t & 1)));
            ones += t & 1;
        }
        assert!((1000..1400).contains(&ones), "{ones}");
        assert_eq!((q.len(), t.len()), (rows as usize, rows as usize));
    }
}
