//! Oblivious transfer. Everything rests on *correlated OT with random choices*: the sender holds a global
//! Delta with bit 0 set and blocks q with bit 0 clear, the receiver blocks t = q ^ b*Delta, so that bit 0 of t
//! is its random choice b. Three extensions supply them behind [`CotSender`] and [`CotReceiver`]:
//! [`iknp`] (16 bytes each), [`softspoken`] (2) and [`ferret`] (a fraction of a bit each). Random, chosen and 1-of-2^k OT are
//! derived from them by hashing in [`chosen`] and [`one_of_n`].

pub mod base;
pub mod chosen;
pub mod ferret;
mod ggm;
pub mod iknp;
pub(crate) mod ledger;
mod lpn;
pub mod one_of_n;
pub(crate) mod pads;
mod rows;
pub mod softspoken;

pub use ledger::{Ledger, OtKind, Step};
pub use lpn::LpnParams;

use crate::block::Block;
use crate::channel::Channel;
use std::collections::VecDeque;

use crate::error::{MpcError, Result};
use crate::simd;

/// The sender of correlated OTs.
pub trait CotSender: Send {
    /// The global correlation; bit 0 is set.
    fn delta(&self) -> Block;

    /// The next step of the one-time work before the first OT, if there is one: first a message from the receiver,
    /// then one from the sender. Further calls do nothing.
    ///
    /// # Errors
    /// When the channel fails.
    fn start(&mut self, ch: &mut dyn Channel) -> Result<()>;

    /// Exchanges what is needed so that `n` OTs can be drawn without further messages. The receiver calls its
    /// own `ensure` with the same `n`.
    ///
    /// # Errors
    /// When the channel fails.
    fn ensure(&mut self, ch: &mut dyn Channel, n: u64) -> Result<()>;

    /// Draws `out.len()` OTs: blocks q with bit 0 clear.
    ///
    /// # Errors
    /// `Exhausted` when fewer have been ensured.
    fn fill(&mut self, out: &mut [Block]) -> Result<()>;

    /// OTs in stock.
    fn available(&self) -> u64;

    /// Lets the extension use so many threads; messages and results do not depend on it.
    fn set_threads(&mut self, _threads: usize) {}

    /// Makes some of the ensured OTs before they are drawn; messages and results do not depend on it. False when there is nothing to do,
    /// or no room.
    fn ahead(&mut self) -> bool {
        false
    }
}

/// The receiver of correlated OTs.
pub trait CotReceiver: Send {
    /// As [`CotSender::start`].
    ///
    /// # Errors
    /// When the channel fails.
    fn start(&mut self, ch: &mut dyn Channel) -> Result<()>;

    /// As [`CotSender::ensure`].
    ///
    /// # Errors
    /// When the channel fails.
    fn ensure(&mut self, ch: &mut dyn Channel, n: u64) -> Result<()>;

    /// Draws `out.len()` OTs: blocks t = q ^ b*Delta, where b is bit 0 of t.
    ///
    /// # Errors
    /// `Exhausted` when fewer have been ensured.
    fn fill(&mut self, out: &mut [Block]) -> Result<()>;

    /// OTs in stock.
    fn available(&self) -> u64;

    /// Lets the extension use so many threads; messages and results do not depend on it.
    fn set_threads(&mut self, _threads: usize) {}

    /// Makes some of the ensured OTs before they are drawn; messages and results do not depend on it. False when there is nothing to do,
    /// or no room.
    fn ahead(&mut self) -> bool {
        false
    }
}

pub(crate) fn send_blocks(ch: &mut dyn Channel, blocks: &[Block]) -> Result<()> {
    let mut buf = [0u8; 16 * 64];
    for chunk in blocks.chunks(64) {
        for (b, x) in buf.chunks_exact_mut(16).zip(chunk) {
            b.copy_from_slice(&x.to_le_bytes());
        }
        ch.send(&buf[..16 * chunk.len()])?;
    }
    Ok(())
}

pub(crate) fn recv_blocks(ch: &mut dyn Channel, out: &mut [Block]) -> Result<()> {
    let mut buf = [0u8; 16 * 64];
    for chunk in out.chunks_mut(64) {
        let buf = &mut buf[..16 * chunk.len()];
        ch.recv(buf)?;
        for (b, x) in buf.chunks_exact(16).zip(chunk) {
            let mut a = [0u8; 16];
            a.copy_from_slice(b);
            *x = Block::from_le_bytes(a);
        }
    }
    Ok(())
}

/// Draws from the stock of an extension that makes OTs in batches.
fn take(store: &mut VecDeque<Block>, ledger: &mut Ledger, out: &mut [Block]) -> Result<()> {
    let missing = (out.len() as u64).saturating_sub(store.len() as u64);
    if missing > 0 {
        return Err(MpcError::Exhausted { missing });
    }
    ledger.draw(out.len() as u64);
    let n = out.len();
    for (o, b) in out.iter_mut().zip(store.drain(..n)) {
        *o = b;
    }
    Ok(())
}

/// The rows of a matrix of bits that is given as 128 columns, of their first `words` words: appended to `out` as blocks.
fn rows_of<C: AsRef<[u64]>>(columns: &[C], words: usize, out: &mut VecDeque<Block>) {
    for word in 0..words {
        let mut halves = [[0; 64]; 2];
        for (bits, column) in halves.as_flattened_mut().iter_mut().zip(columns) {
            *bits = column.as_ref()[word];
        }
        halves.iter_mut().for_each(simd::transpose64);
        out.extend((0..64).map(|i| Block::from(halves[0][i]) | Block::from(halves[1][i]) << 64));
    }
}
