//! Silent correlated OT: Yang, Weng, Lan, Zhang, Wang, "Ferret" (CCS 2020), figure 8, regular noise, with the
//! correlated trees of "Half-Tree" (2023): semi-honest.
//!
//! An iteration starts from k + t*depth correlated OTs. The first k are the table of the code (the LPN secret u,
//! authenticated); the others, `depth` per tree, puncture t trees at positions given by their own random choice
//! bits, so the receiver sends nothing. Row i: table entries named by the code ^ leaf i; the receiver's bit 0 is
//! then the LPN sample u*A ^ e, pseudo-random to the sender. Trees are paid for (corrections sent) when OTs are
//! ensured and expanded when they are drawn, 2^17 rows at a time, so memory does not grow with the number of OTs. The last trees of
//! an iteration give the base of the next; the first base comes from a
//! small-field extension through one small iteration.

use std::collections::VecDeque;
use std::sync::Arc;

use rayon::prelude::*;
use zeroize::Zeroize;

use super::lpn::LpnParams;
use super::rows::Rows;
use super::{ggm, recv_blocks, send_blocks, softspoken, CotReceiver, CotSender, Ledger, OtKind, Step};
use crate::block::{Block, Prg};
use crate::channel::Channel;
use crate::error::{MpcError, Result};
use crate::ot::ledger::SilentSize;
use crate::simd::FixedKey;
use crate::uses;
use hushnet_ring::ledger::{self, Kind, Tag};
use hushnet_ring::wipe;

/// The public permutations of one direction. Every tree has a key of its own, so that a guess at one tree's hidden
/// path says nothing about the others'.
pub struct Public {
    /// Seed of the trees' keys.
    pub(crate) trees: Block,
    /// Names the code's entries.
    pub(crate) code: FixedKey,
}

impl Public {
    fn tree(&self, iteration: u64, tree: u64) -> FixedKey {
        FixedKey::new(self.trees ^ Block::from(iteration) << 64 ^ Block::from(tree))
    }

    /// Tells the ledger of tests that a party has taken up a tree.
    fn used(&self, kind: Kind, iteration: u64, tree: u64) {
        ledger::once(
            kind,
            &[Tag::bytes(&self.trees.to_le_bytes()), Tag::number(iteration), Tag::number(tree)],
        );
    }
}

/// The base OTs of one iteration, wiped on drop.
#[derive(Default)]
struct Base {
    blocks: Vec<Block>,
    iteration: u64,
}

impl Drop for Base {
    fn drop(&mut self) {
        wipe(&mut self.blocks);
    }
}

impl Base {
    /// The base of the next iteration.
    fn next(&self, blocks: Vec<Block>) -> Arc<Self> {
        Arc::new(Self { blocks, iteration: self.iteration + 1 })
    }

    fn table(&self, p: LpnParams) -> &[Block] {
        &self.blocks[..p.k() as usize]
    }

    fn of_tree(&self, p: LpnParams, tree: u64) -> &[Block] {
        let d = p.depth as usize;
        let at = p.k() as usize + tree as usize * d;
        &self.blocks[at..at + d]
    }
}

/// Rows that the code is added to at a time: many, so that what a group of the table costs to bring into the cache is shared.
const PART: usize = 1 << 17;

/// Rows that are made at a time by all threads together: 16 MiB.
const MOST: usize = 1 << 20;

/// Rows that are made at a time in the beginning. No more are made than were made before, so that a session of few OTs waits for few.
const FIRST: usize = 1 << 12;

/// Calls `f(first, rows of trees first.., their level sums)` for parts of `rows`, neighbouring trees of [`PART`] rows at most, on rayon's pool
/// when more than one thread is allowed. Returns the sums, `depth` per tree.
fn each_part(
    threads: usize,
    p: LpnParams,
    rows: &mut [Block],
    f: impl Fn(usize, &mut [Block], &mut [Block]) + Sync,
) -> Vec<Block> {
    let (leaves, depth) = (p.leaves() as usize, p.depth as usize);
    let trees = rows.len() / leaves;
    let part = (PART / leaves).min(trees.div_ceil(threads.max(1))).max(1);
    let mut sums = vec![0; trees * depth];
    if threads > 1 {
        let parts = rows.par_chunks_mut(part * leaves).zip(sums.par_chunks_mut(part * depth));
        parts.enumerate().for_each(|(i, (rows, sums))| f(i * part, rows, sums));
    } else {
        let parts = rows.chunks_mut(part * leaves).zip(sums.chunks_mut(part * depth));
        parts.enumerate().for_each(|(i, (rows, sums))| f(i * part, rows, sums));
    }
    sums
}

/// The rows and level sums of each tree of a part.
fn trees<'a>(
    p: LpnParams,
    rows: &'a mut [Block],
    sums: &'a mut [Block],
) -> impl Iterator<Item = (usize, (&'a mut [Block], &'a mut [Block]))> {
    let rows = rows.chunks_exact_mut(p.leaves() as usize);
    rows.zip(sums.chunks_exact_mut(p.depth as usize)).enumerate()
}

/// Trees that the sender pays for at a time.
fn paid_at_once(threads: usize) -> usize {
    if threads > 1 {
        2 * threads
    } else {
        1
    }
}

/// How many trees are expanded next: of one iteration, and no more than make a part a thread, [`MOST`] rows in all, and as many as were
/// made before.
fn next_trees<T>(
    queue: &VecDeque<T>,
    threads: usize,
    p: LpnParams,
    made: usize,
    iteration: impl Fn(&T) -> u64,
) -> usize {
    let most = (PART.saturating_mul(threads.max(1)).min(MOST).min(made.max(FIRST)) >> p.depth).max(1);
    let first = queue.front().map(&iteration);
    queue.iter().take(most).take_while(|t| Some(iteration(t)) == first).count()
}

fn check_stock(ledger: &mut Ledger, n: usize) -> Result<()> {
    let missing = (n as u64).saturating_sub(ledger.available());
    if missing > 0 {
        return Err(MpcError::Exhausted { missing });
    }
    ledger.draw(n as u64);
    Ok(())
}

/// Holder of Delta.
pub struct Sender {
    source: softspoken::Sender,
    delta: Block,
    params: LpnParams,
    boot: LpnParams,
    public: Public,
    roots: Prg,
    ledger: Ledger,
    base: Arc<Base>,
    paid: u64,
    queue: VecDeque<Planted>,
    rows: Rows,
    threads: usize,
}

/// A tree that waits to be drawn from.
struct Planted {
    base: Arc<Base>,
    tree: u64,
    root: Block,
}

impl Drop for Planted {
    fn drop(&mut self) {
        self.root.zeroize();
    }
}

impl Sender {
    /// On top of a small-field sender.
    #[must_use]
    pub fn new(source: softspoken::Sender, size: SilentSize, public: Public, roots: Prg) -> Self {
        Self {
            delta: source.delta(),
            source,
            params: size.params(),
            boot: size.bootstrap(),
            public,
            roots,
            ledger: Ledger::new(OtKind::Silent(size)),
            base: Arc::default(),
            paid: 0,
            queue: VecDeque::new(),
            rows: Rows::default(),
            threads: 1,
        }
    }

    /// Sends the corrections of trees from `first` on, as many as `rows` has room for, and expands these into `rows`, with the code's part, when
    /// `whole`. Returns the roots.
    fn pay(
        &mut self,
        ch: &mut dyn Channel,
        p: LpnParams,
        first: u64,
        rows: &mut [Block],
        whole: bool,
    ) -> Result<Vec<Block>> {
        let mut roots = vec![0; rows.len() >> p.depth];
        self.roots.blocks(&mut roots);
        ledger::blocks(uses::FERRET_ROOT, &mut roots);
        let (public, delta, base) = (&self.public, self.delta, &self.base);
        let sums = each_part(self.threads, p, rows, |at, rows, sums| {
            let first = first + at as u64;
            for (i, (rows, sums)) in trees(p, rows, sums) {
                let tree = first + i as u64;
                public.used(uses::FERRET_SENT_TREE, base.iteration, tree);
                let expand = if whole { ggm::expand } else { ggm::level_sums };
                expand(&public.tree(base.iteration, tree), roots[at + i], delta, rows, sums);
                sums.iter_mut().zip(base.of_tree(p, tree)).for_each(|(s, b)| *s ^= b);
            }
            if whole {
                p.encode(&public.code, first, base.table(p), rows);
            }
        });
        send_blocks(ch, &sums)?;
        Ok(roots)
    }

    /// Pays for trees and returns their outputs.
    fn pay_and_draw(
        &mut self,
        ch: &mut dyn Channel,
        p: LpnParams,
        first: u64,
        trees: u64,
    ) -> Result<Vec<Block>> {
        let mut out = vec![0; (trees * p.leaves()) as usize];
        self.pay(ch, p, first, &mut out, true)?.zeroize();
        ch.flush()?;
        Ok(out)
    }

    fn step(&mut self, ch: &mut dyn Channel, step: Step) -> Result<()> {
        let p = self.params;
        match step {
            Step::Extend { .. } => (),
            Step::Small { rows } => self.base = self.base.next(self.source.batch(ch, rows)?),
            Step::Boot { trees } => {
                let out = self.pay_and_draw(ch, self.boot, 0, trees)?;
                self.base = self.base.next(out);
            }
            Step::Roll { trees } => {
                let out = self.pay_and_draw(ch, p, self.paid, trees)?;
                self.base = self.base.next(out);
                self.paid = 0;
            }
            Step::Trees { trees } => {
                let mut rows = vec![0; paid_at_once(self.threads) << p.depth];
                let last = self.paid + trees;
                let mut first = self.paid;
                while first < last {
                    let n = (last - first).min(paid_at_once(self.threads) as u64);
                    let mut roots = self.pay(ch, p, first, &mut rows[..(n << p.depth) as usize], false)?;
                    let planted =
                        |(i, &root)| Planted { base: self.base.clone(), tree: first + i as u64, root };
                    self.queue.extend(roots.iter().enumerate().map(planted));
                    roots.zeroize();
                    first += n;
                }
                wipe(&mut rows);
                self.paid += trees;
                ch.flush()?;
            }
        }
        Ok(())
    }
}

impl Sender {
    fn next_trees(&self) -> usize {
        next_trees(&self.queue, self.threads, self.params, self.rows.made(), |t| t.base.iteration)
    }

    /// Expands the next trees of the queue, which are of one iteration.
    fn expand(&mut self, n: usize) {
        let p = self.params;
        let next: Vec<_> = self.queue.drain(..n).collect();
        let Some(Planted { base, tree: first, .. }) = next.first() else { return };
        let mut out = self.rows.fresh(n << p.depth);
        let (public, delta) = (&self.public, self.delta);
        each_part(self.threads, p, &mut out, |at, rows, sums| {
            for (i, (rows, sums)) in trees(p, rows, sums) {
                let t = &next[at + i];
                ggm::expand(&public.tree(base.iteration, t.tree), t.root, delta, rows, sums);
            }
            p.encode(&public.code, first + at as u64, base.table(p), rows);
        });
        self.rows.put(out);
    }
}

impl CotSender for Sender {
    fn delta(&self) -> Block {
        self.delta
    }

    fn start(&mut self, ch: &mut dyn Channel) -> Result<()> {
        match self.ledger.next_start() {
            Some(step) => self.step(ch, step),
            None => Ok(()),
        }
    }

    fn ensure(&mut self, ch: &mut dyn Channel, n: u64) -> Result<()> {
        while let Some(step) = self.ledger.next_step(n) {
            self.step(ch, step)?;
        }
        Ok(())
    }

    fn fill(&mut self, mut out: &mut [Block]) -> Result<()> {
        check_stock(&mut self.ledger, out.len())?;
        loop {
            let n = self.rows.take(out);
            out = &mut out[n..];
            if out.is_empty() {
                return Ok(());
            }
            let trees = self.next_trees();
            if trees == 0 {
                return Err(MpcError::Exhausted { missing: out.len() as u64 });
            }
            self.expand(trees);
        }
    }

    fn ahead(&mut self) -> bool {
        let trees = self.next_trees();
        let able = trees > 0 && self.rows.has_room(trees << self.params.depth);
        if able {
            self.expand(trees);
        }
        able
    }

    fn set_threads(&mut self, threads: usize) {
        self.threads = threads;
    }

    fn available(&self) -> u64 {
        self.ledger.available()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.delta.zeroize();
    }
}

/// A punctured tree that waits to be drawn from.
struct Punctured {
    base: Arc<Base>,
    tree: u64,
    sides: u64,
    sums: Vec<Block>,
}

impl Drop for Punctured {
    fn drop(&mut self) {
        self.sides.zeroize();
        self.sums.zeroize();
    }
}

impl Punctured {
    /// The rows of trees that follow one another in an iteration.
    fn rows(of: &[Self], public: &Public, p: LpnParams, threads: usize, rows: &mut [Block]) {
        let Some(Self { base, tree: first, .. }) = of.first() else { return };
        each_part(threads, p, rows, |at, rows, sums| {
            for (i, (rows, _)) in trees(p, rows, sums) {
                let t = &of[at + i];
                ggm::expand_punctured(&public.tree(base.iteration, t.tree), t.sides, &t.sums, rows);
            }
            p.encode(&public.code, first + at as u64, base.table(p), rows);
        });
    }
}

/// Holder of the choice bits.
pub struct Receiver {
    source: softspoken::Receiver,
    params: LpnParams,
    boot: LpnParams,
    public: Public,
    ledger: Ledger,
    base: Arc<Base>,
    paid: u64,
    queue: VecDeque<Punctured>,
    rows: Rows,
    threads: usize,
}

impl Receiver {
    /// On top of a small-field receiver.
    #[must_use]
    pub fn new(source: softspoken::Receiver, size: SilentSize, public: Public) -> Self {
        Self {
            source,
            params: size.params(),
            boot: size.bootstrap(),
            public,
            ledger: Ledger::new(OtKind::Silent(size)),
            base: Arc::default(),
            paid: 0,
            queue: VecDeque::new(),
            rows: Rows::default(),
            threads: 1,
        }
    }

    /// Receives the corrections of one tree.
    fn collect(&self, ch: &mut dyn Channel, p: LpnParams, tree: u64) -> Result<Punctured> {
        self.public.used(uses::FERRET_RECEIVED_TREE, self.base.iteration, tree);
        let mut sums = vec![0; p.depth as usize];
        recv_blocks(ch, &mut sums)?;
        let mut sides = 0;
        for (i, (s, b)) in sums.iter_mut().zip(self.base.of_tree(p, tree)).enumerate() {
            *s ^= b;
            sides |= (*b as u64 & 1) << i;
        }
        Ok(Punctured { base: self.base.clone(), tree, sides, sums })
    }

    fn collect_and_draw(
        &mut self,
        ch: &mut dyn Channel,
        p: LpnParams,
        first: u64,
        trees: u64,
    ) -> Result<Vec<Block>> {
        let mut punctured = Vec::with_capacity(trees as usize);
        for tree in first..first + trees {
            punctured.push(self.collect(ch, p, tree)?);
        }
        let mut out = vec![0; (trees * p.leaves()) as usize];
        Punctured::rows(&punctured, &self.public, p, self.threads, &mut out);
        Ok(out)
    }

    fn step(&mut self, ch: &mut dyn Channel, step: Step) -> Result<()> {
        let p = self.params;
        match step {
            Step::Extend { .. } => (),
            Step::Small { rows } => self.base = self.base.next(self.source.batch(ch, rows)?),
            Step::Boot { trees } => {
                let out = self.collect_and_draw(ch, self.boot, 0, trees)?;
                self.base = self.base.next(out);
            }
            Step::Roll { trees } => {
                let out = self.collect_and_draw(ch, p, self.paid, trees)?;
                self.base = self.base.next(out);
                self.paid = 0;
            }
            Step::Trees { trees } => {
                for tree in self.paid..self.paid + trees {
                    let t = self.collect(ch, p, tree)?;
                    self.queue.push_back(t);
                }
                self.paid += trees;
            }
        }
        Ok(())
    }
}

impl Receiver {
    fn next_trees(&self) -> usize {
        next_trees(&self.queue, self.threads, self.params, self.rows.made(), |t| t.base.iteration)
    }

    /// Expands the next trees of the queue, which are of one iteration.
    fn expand(&mut self, n: usize) {
        let next: Vec<_> = self.queue.drain(..n).collect();
        let mut out = self.rows.fresh(n << self.params.depth);
        Punctured::rows(&next, &self.public, self.params, self.threads, &mut out);
        self.rows.put(out);
    }
}

impl CotReceiver for Receiver {
    fn start(&mut self, ch: &mut dyn Channel) -> Result<()> {
        match self.ledger.next_start() {
            Some(step) => self.step(ch, step),
            None => Ok(()),
        }
    }

    fn ensure(&mut self, ch: &mut dyn Channel, n: u64) -> Result<()> {
        while let Some(step) = self.ledger.next_step(n) {
            self.step(ch, step)?;
        }
        Ok(())
    }

    fn fill(&mut self, mut out: &mut [Block]) -> Result<()> {
        check_stock(&mut self.ledger, out.len())?;
        loop {
            let n = self.rows.take(out);
            out = &mut out[n..];
            if out.is_empty() {
                return Ok(());
            }
            let trees = self.next_trees();
            if trees == 0 {
                return Err(MpcError::Exhausted { missing: out.len() as u64 });
            }
            self.expand(trees);
        }
    }

    fn ahead(&mut self) -> bool {
        let trees = self.next_trees();
        let able = trees > 0 && self.rows.has_room(trees << self.params.depth);
        if able {
            self.expand(trees);
        }
        able
    }

    fn set_threads(&mut self, threads: usize) {
        self.threads = threads;
    }

    fn available(&self) -> u64 {
        self.ledger.available()
    }
}

#[cfg(fuzzing)]
mod few;
