//! OT extension of Ishai, Kilian, Nissim, Petrank (CRYPTO 2003), in the correlated form of Asharov, Lindell,
//! Schneider, Zohner (CCS 2013): semi-honest.
//!
//! Base OT i gave the receiver of the extension two seeds and the sender the one that bit i of Delta chooses.
//! Per batch, with fresh choice bits r, the receiver sends u_i = PRG(k0_i) ^ PRG(k1_i) ^ r; the sender's column is
//! PRG(k_Delta_i) ^ Delta_i * u_i. Rows satisfy t_j = q_j ^ r_j * Delta. Bit 0 is given to the choice bit, so
//! column 0 is never sent.

use std::collections::VecDeque;

use super::{rows_of, take, CotReceiver, CotSender, Ledger, OtKind, Step};
use crate::block::{Block, Prg};
use crate::channel::Channel;
use crate::error::Result;
use crate::select::all;
use crate::uses;

/// Words of 64 rows in one batch of columns.
const BATCH: usize = 64;
const COLUMNS: usize = 128;

fn send_words(ch: &mut dyn Channel, words: &[u64]) -> Result<()> {
    let mut buf = [0u8; 8 * BATCH];
    for (b, w) in buf.chunks_exact_mut(8).zip(words) {
        b.copy_from_slice(&w.to_le_bytes());
    }
    ch.send(&buf[..8 * words.len()])
}

fn recv_words(ch: &mut dyn Channel, words: &mut [u64]) -> Result<()> {
    let mut buf = [0u8; 8 * BATCH];
    let buf = &mut buf[..8 * words.len()];
    ch.recv(buf)?;
    for (b, w) in buf.chunks_exact(8).zip(words) {
        let mut a = [0; 8];
        a.copy_from_slice(b);
        *w = u64::from_le_bytes(a);
    }
    Ok(())
}

/// Holder of Delta.
pub struct Sender {
    delta: Block,
    columns: Vec<Prg>,
    store: VecDeque<Block>,
    ledger: Ledger,
}

impl Sender {
    /// `delta` has bit 0 set; `keys[i]` is the base OT's key for bit i of it.
    #[must_use]
    pub fn new(delta: Block, keys: Vec<Block>) -> Self {
        debug_assert!(delta & 1 == 1 && keys.len() == COLUMNS);
        let columns = keys.into_iter().map(|k| Prg::new(k).shared_as(uses::IKNP_SENDER)).collect();
        Self { delta, columns, store: VecDeque::new(), ledger: Ledger::new(OtKind::Iknp) }
    }

    fn extend(&mut self, ch: &mut dyn Channel, rows: u64) -> Result<()> {
        let mut left = rows as usize / 64;
        let mut columns = vec![vec![0u64; BATCH]; COLUMNS];
        let mut u = [0u64; BATCH];
        while left > 0 {
            let n = left.min(BATCH);
            for (i, (column, prg)) in columns.iter_mut().zip(&mut self.columns).enumerate().skip(1) {
                prg.words(&mut column[..n]);
                recv_words(ch, &mut u[..n])?;
                let chosen = all((self.delta >> i) as u64);
                column.iter_mut().zip(&u[..n]).for_each(|(c, u)| *c ^= u & chosen);
            }
            rows_of(&columns, n, &mut self.store);
            left -= n;
        }
        Ok(())
    }
}

impl CotSender for Sender {
    fn delta(&self) -> Block {
        self.delta
    }

    fn start(&mut self, _: &mut dyn Channel) -> Result<()> {
        Ok(())
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
        zeroize::Zeroize::zeroize(&mut self.delta);
        self.store.iter_mut().for_each(zeroize::Zeroize::zeroize);
    }
}

/// Holder of the choice bits.
pub struct Receiver {
    columns: Vec<[Prg; 2]>,
    choices: Prg,
    store: VecDeque<Block>,
    ledger: Ledger,
}

impl Receiver {
    /// `keys` are the base OT's pairs; `choices` the source of the choice bits.
    #[must_use]
    pub fn new(keys: Vec<[Block; 2]>, choices: Prg) -> Self {
        debug_assert!(keys.len() == COLUMNS);
        let columns =
            keys.into_iter().map(|k| k.map(|k| Prg::new(k).shared_as(uses::IKNP_RECEIVER))).collect();
        Self { columns, choices, store: VecDeque::new(), ledger: Ledger::new(OtKind::Iknp) }
    }

    fn extend(&mut self, ch: &mut dyn Channel, rows: u64) -> Result<()> {
        let mut left = rows as usize / 64;
        let mut columns = vec![vec![0u64; BATCH]; COLUMNS];
        let mut u = [0u64; BATCH];
        while left > 0 {
            let n = left.min(BATCH);
            let (first, rest) = columns.split_at_mut(1);
            let r = &mut first[0][..n];
            self.choices.words(r);
            for (column, [k0, k1]) in rest.iter_mut().zip(self.columns.iter_mut().skip(1)) {
                k0.words(&mut column[..n]);
                k1.words(&mut u[..n]);
                u.iter_mut().zip(column.iter().zip(r.iter())).for_each(|(u, (t, r))| *u ^= t ^ r);
                send_words(ch, &u[..n])?;
            }
            rows_of(&columns, n, &mut self.store);
            left -= n;
        }
        ch.flush()
    }
}

impl CotReceiver for Receiver {
    fn start(&mut self, _: &mut dyn Channel) -> Result<()> {
        Ok(())
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
        self.store.iter_mut().for_each(zeroize::Zeroize::zeroize);
    }
}
