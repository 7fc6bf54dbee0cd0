//! Tweaks of a session's gates, and the permutation under them.

use crate::block::Block;
use crate::simd::FixedKey;
use hushnet_ring::ledger::{Kind, Stream};

/// Tweaks under one key: the bound of the hash is about p q / 2^127 for q hashes and p evaluations of the permutation.
const PERIOD: u64 = 1 << 24;

/// Counts through the session, the same in both parties.
pub(crate) struct Tweaks {
    seed: Block,
    epoch: u64,
    pub key: FixedKey,
    /// The next tweak.
    pub tweak: u64,
}

impl Tweaks {
    pub(crate) fn new(seed: Block) -> Self {
        Self { seed, epoch: 0, key: FixedKey::new(seed), tweak: 0 }
    }

    /// Called before each group of gates: changes the key when many tweaks have been used. A group is far shorter than the
    /// 2^64 tweaks of a key.
    pub(crate) fn renew(&mut self) {
        if self.tweak >= PERIOD {
            self.epoch += 1;
            self.tweak = 0;
            self.key = FixedKey::new(self.seed ^ Block::from(self.epoch));
        }
    }

    /// Called after each group of gates, with the tweak that follows its last one.
    pub(crate) fn advance(&mut self, kind: Kind, next: u64) {
        let key = self.seed ^ Block::from(self.epoch);
        Stream::new(kind, &key.to_le_bytes()).take(self.tweak.into(), next.wrapping_sub(self.tweak));
        self.tweak = next;
    }
}
