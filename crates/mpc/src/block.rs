//! 128-bit blocks, the unit of correlated OTs, and their randomness.

use zeroize::Zeroize;

use crate::error::{MpcError, Result};
use hushnet_ring::aes128::Aes128;
use hushnet_ring::ledger::{self, Kind, Stream};

/// A 128-bit string; bit 0 carries the choice bit of correlated OTs.
pub type Block = u128;

/// Everything but the choice bit.
pub(crate) const CLEAR: Block = !1;

/// A pseudo-random generator, AES-128 in counter mode, for one party's own secrets. Keys are wiped on drop.
pub struct Prg {
    aes: Aes128,
    counter: u128,
    stream: Stream,
}

impl Prg {
    /// Makes a generator from a seed of 128 bits.
    #[must_use]
    pub fn new(mut seed: Block) -> Self {
        let stream = Stream::new(ledger::GENERATOR, &seed.to_le_bytes());
        let prg = Self { aes: Aes128::new(&seed.to_le_bytes()), counter: 0, stream };
        seed.zeroize();
        prg
    }

    /// For a stream that the peer may expand, too: the ledger of tests keeps each party's use of it apart.
    #[must_use]
    pub(crate) fn shared_as(mut self, kind: impl Into<Option<Kind>>) -> Self {
        self.stream.rename(kind.into());
        self
    }

    /// Seeded by the operating system.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    pub fn from_os() -> Result<Self> {
        let mut seed = [0u8; 16];
        getrandom::fill(&mut seed).map_err(|e| MpcError::Random(e.to_string()))?;
        ledger::bytes(ledger::ENTROPY, &mut seed);
        let prg = Self::new(Block::from_le_bytes(seed));
        seed.zeroize();
        Ok(prg)
    }

    /// Fills a slice with fresh blocks of the stream.
    pub fn blocks(&mut self, out: &mut [Block]) {
        self.stream.take(self.counter, out.len() as u64);
        for o in out.iter_mut() {
            *o = self.counter;
            self.counter += 1;
        }
        self.aes.encrypt(out);
    }

    /// The next block of the stream.
    pub fn block(&mut self) -> Block {
        let mut b = [0];
        self.blocks(&mut b);
        b[0]
    }

    /// Fills a slice with fresh words of the stream.
    pub fn words(&mut self, out: &mut [u64]) {
        let mut buf = [0u128; 8];
        for chunk in out.chunks_mut(16) {
            let n = chunk.len().div_ceil(2);
            self.blocks(&mut buf[..n]);
            for (i, w) in chunk.iter_mut().enumerate() {
                *w = (buf[i / 2] >> (64 * (i % 2))) as u64;
            }
        }
        buf.zeroize();
    }
}
