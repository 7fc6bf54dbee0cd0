//! Silent correlated OT: Yang, Weng, Lan, Zhang, Wang, "Ferret" (CCS 2020), figure 8, regular noise, with the
//! correlated trees of "Half-Tree" (2023): semi-honest.
//!
//! An iteration starts from k + t*depth correlated OTs. The first k are the table of the code (the LPN secret u,
//! authenticated); the others, `depth` per tree, puncture t trees at positions given by their own random choice
//! bits, so the receiver sends nothing. Row i: table entries named by the code ^ leaf i; the receiver's bit 0 is
//! then the LPN sample u*A ^ e, pseudo-random to the sender. Trees are paid for (corrections sent) when OTs are
//! ensured and expanded when they are drawn, so memory does not grow with the number of OTs. The last trees of
//! an iteration give the base of the next; the first base comes from a
//! small-field extension through one small iteration.

use std::collections::VecDeque;
use std::sync::Arc;

use zeroize::Zeroize;

use super::lpn::{self, LpnParams, LPN_10};
use super::{ggm, recv_blocks, send_blocks, softspoken, CotReceiver, CotSender, Ledger, OtKind, Step};
use crate::block::{Block, Prg};
use crate::channel::Channel;
use crate::error::{MpcError, Result};
use crate::ot::ledger::SilentSize;
use crate::simd::FixedKey;

/// The public permutations of a session.
#[derive(Clone)]
pub struct Public {
    /// Expands trees.
    pub(crate) tree: FixedKey,
    /// Names the code's entries.
    pub(crate) code: FixedKey,
}

/// The base OTs of one iteration, wiped on drop.
struct Base(Vec<Block>);

impl Drop for Base {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Base {
    fn table(&self, p: LpnParams) -> &[Block] {
        &self.0[..p.k() as usize]
    }

    fn of_tree(&self, p: LpnParams, tree: u64) -> &[Block] {
        let d = p.depth as usize;
        let at = p.k() as usize + tree as usize * d;
        &self.0[at..at + d]
    }
}

/// Outputs of the tree being drawn from.
#[derive(Default)]
struct Buffer {
    rows: Vec<Block>,
    next: usize,
}

impl Buffer {
    fn take(&mut self, out: &mut [Block]) -> usize {
        let n = out.len().min(self.rows.len() - self.next);
        out[..n].copy_from_slice(&self.rows[self.next..self.next + n]);
        self.next += n;
        n
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.rows.zeroize();
    }
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
    public: Public,
    roots: Prg,
    ledger: Ledger,
    base: Arc<Base>,
    paid: u64,
    queue: VecDeque<(Arc<Base>, u64, Block)>,
    buffer: Buffer,
}

impl Sender {
    /// On top of a small-field sender.
    pub fn new(source: softspoken::Sender, size: SilentSize, public: Public, roots: Prg) -> Self {
        Self {
            delta: source.delta(),
            source,
            params: size.params(),
            public,
            roots,
            ledger: Ledger::new(OtKind::Silent(size)),
            base: Arc::new(Base(Vec::new())),
            paid: 0,
            queue: VecDeque::new(),
            buffer: Buffer::default(),
        }
    }

    /// Expands tree `tree` with `root` into `rows` and sends its corrections.
    fn pay(
        &self,
        ch: &mut dyn Channel,
        p: LpnParams,
        tree: u64,
        root: Block,
        rows: &mut [Block],
    ) -> Result<()> {
        let mut sums = [0; 16];
        let sums = &mut sums[..p.depth as usize];
        ggm::expand(&self.public.tree, root, self.delta, rows, sums);
        for (s, b) in sums.iter_mut().zip(self.base.of_tree(p, tree)) {
            *s ^= b;
        }
        send_blocks(ch, sums)
    }

    /// Pays for trees `first..first+trees` and returns their outputs.
    fn pay_and_draw(
        &mut self,
        ch: &mut dyn Channel,
        p: LpnParams,
        first: u64,
        trees: u64,
    ) -> Result<Vec<Block>> {
        let mut out = vec![0; (trees * p.leaves()) as usize];
        for (tree, rows) in (first..first + trees).zip(out.chunks_exact_mut(p.leaves() as usize)) {
            let root = self.roots.block();
            self.pay(ch, p, tree, root, rows)?;
            lpn::encode(&self.public.code, tree, self.base.table(p), rows);
        }
        ch.flush()?;
        Ok(out)
    }

    fn step(&mut self, ch: &mut dyn Channel, step: Step) -> Result<()> {
        let p = self.params;
        match step {
            Step::Extend { .. } => (),
            Step::Small { rows } => self.base = Arc::new(Base(self.source.batch(ch, rows)?)),
            Step::Boot { trees } => {
                let out = self.pay_and_draw(ch, LPN_10, 0, trees)?;
                self.base = Arc::new(Base(out));
            }
            Step::Roll { trees } => {
                let out = self.pay_and_draw(ch, p, self.paid, trees)?;
                self.base = Arc::new(Base(out));
                self.paid = 0;
            }
            Step::Trees { trees } => {
                let mut rows = vec![0; p.leaves() as usize];
                for tree in self.paid..self.paid + trees {
                    let root = self.roots.block();
                    self.pay(ch, p, tree, root, &mut rows)?;
                    self.queue.push_back((self.base.clone(), tree, root));
                }
                rows.zeroize();
                self.paid += trees;
                ch.flush()?;
            }
        }
        Ok(())
    }
}

impl CotSender for Sender {
    fn delta(&self) -> Block {
        self.delta
    }

    fn start(&mut self, ch: &mut dyn Channel) -> Result<()> {
        while let Some(step) = self.ledger.next_start() {
            self.step(ch, step)?;
        }
        Ok(())
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
            let n = self.buffer.take(out);
            out = &mut out[n..];
            if out.is_empty() {
                return Ok(());
            }
            let Some((base, tree, root)) = self.queue.pop_front() else {
                return Err(MpcError::Exhausted { missing: out.len() as u64 });
            };
            let mut sums = [0; 16];
            self.buffer.rows.resize(self.params.leaves() as usize, 0);
            self.buffer.next = 0;
            let rows = &mut self.buffer.rows;
            ggm::expand(&self.public.tree, root, self.delta, rows, &mut sums[..self.params.depth as usize]);
            lpn::encode(&self.public.code, tree, base.table(self.params), rows);
        }
    }

    fn available(&self) -> u64 {
        self.ledger.available()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.delta.zeroize();
        self.queue.iter_mut().for_each(|q| q.2.zeroize());
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
    fn rows(&self, public: &Public, p: LpnParams, rows: &mut [Block]) {
        ggm::expand_punctured(&public.tree, self.sides, &self.sums, rows);
        lpn::encode(&public.code, self.tree, self.base.table(p), rows);
    }
}

/// Holder of the choice bits.
pub struct Receiver {
    source: softspoken::Receiver,
    params: LpnParams,
    public: Public,
    ledger: Ledger,
    base: Arc<Base>,
    paid: u64,
    queue: VecDeque<Punctured>,
    buffer: Buffer,
}

impl Receiver {
    /// On top of a small-field receiver.
    pub fn new(source: softspoken::Receiver, size: SilentSize, public: Public) -> Self {
        Self {
            source,
            params: size.params(),
            public,
            ledger: Ledger::new(OtKind::Silent(size)),
            base: Arc::new(Base(Vec::new())),
            paid: 0,
            queue: VecDeque::new(),
            buffer: Buffer::default(),
        }
    }

    /// Receives the corrections of one tree.
    fn collect(&self, ch: &mut dyn Channel, p: LpnParams, tree: u64) -> Result<Punctured> {
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
        let mut out = vec![0; (trees * p.leaves()) as usize];
        for (tree, rows) in (first..first + trees).zip(out.chunks_exact_mut(p.leaves() as usize)) {
            self.collect(ch, p, tree)?.rows(&self.public, p, rows);
        }
        Ok(out)
    }

    fn step(&mut self, ch: &mut dyn Channel, step: Step) -> Result<()> {
        let p = self.params;
        match step {
            Step::Extend { .. } => (),
            Step::Small { rows } => self.base = Arc::new(Base(self.source.batch(ch, rows)?)),
            Step::Boot { trees } => {
                let out = self.collect_and_draw(ch, LPN_10, 0, trees)?;
                self.base = Arc::new(Base(out));
            }
            Step::Roll { trees } => {
                let out = self.collect_and_draw(ch, p, self.paid, trees)?;
                self.base = Arc::new(Base(out));
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

impl CotReceiver for Receiver {
    fn start(&mut self, ch: &mut dyn Channel) -> Result<()> {
        while let Some(step) = self.ledger.next_start() {
            self.step(ch, step)?;
        }
        Ok(())
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
            let n = self.buffer.take(out);
            out = &mut out[n..];
            if out.is_empty() {
                return Ok(());
            }
            let Some(tree) = self.queue.pop_front() else {
                return Err(MpcError::Exhausted { missing: out.len() as u64 });
            };
            self.buffer.rows.resize(self.params.leaves() as usize, 0);
            self.buffer.next = 0;
            tree.rows(&self.public, self.params, &mut self.buffer.rows);
        }
    }

    fn available(&self) -> u64 {
        self.ledger.available()
    }
}
