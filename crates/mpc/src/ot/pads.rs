//! The hash that turns correlated OTs into pads, under a permutation that changes every [`PERIOD`] OTs.
//!
//! The bound for pi(s(x)) ^ s(x) with q hashes under one key and p evaluations of pi is about p*q/2^126 (Guo, Katz,
//! Wang, Yu 2020): a fresh key keeps q at 2^14 however long the session is.

use crate::block::Block;
use crate::simd::FixedKey;

/// OTs per key, at least; a draw is never split.
const PERIOD: u64 = 1 << 13;

/// The hash of one direction; both parties advance it by the same draws.
pub(crate) struct Pads {
    seed: Block,
    epoch: u64,
    used: u64,
    /// The hash for what was drawn last.
    pub key: FixedKey,
}

impl Pads {
    pub(crate) fn new(seed: Block) -> Self {
        Self { seed, epoch: 0, used: 0, key: FixedKey::new(seed) }
    }

    /// Notes a draw of `n` OTs.
    pub(crate) fn advance(&mut self, n: usize) {
        if self.used >= PERIOD {
            self.epoch += 1;
            self.used = 0;
            self.key = FixedKey::new(self.seed ^ Block::from(self.epoch));
        }
        self.used += n as u64;
    }
}
