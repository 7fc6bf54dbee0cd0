//! The ring Z_2^l and additive shares in it.

use crate::error::{MpcError, Result};

/// Z_2^l for 1 <= l <= 64. A share is a `u64` below 2^l; x = x0 + x1 mod 2^l.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ring {
    bits: u32,
    mask: u64,
}

impl Ring {
    /// The ring of `bits` bits.
    ///
    /// # Errors
    /// `RingWidth` unless 1 <= bits <= 64.
    pub fn new(bits: u32) -> Result<Self> {
        if bits == 0 || bits > 64 {
            return Err(MpcError::RingWidth { bits, min: 1 });
        }
        Ok(Self { bits, mask: u64::MAX >> (64 - bits) })
    }

    /// The number l of bits of the ring 2^l.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// The mask of l bits, 2^l - 1.
    #[must_use]
    pub const fn mask(self) -> u64 {
        self.mask
    }

    /// The value modulo 2^l, as a word.
    #[must_use]
    pub const fn reduce(self, v: u64) -> u64 {
        v & self.mask
    }

    /// a + b mod 2^l.
    #[must_use]
    pub const fn add(self, a: u64, b: u64) -> u64 {
        a.wrapping_add(b) & self.mask
    }

    /// a - b mod 2^l.
    #[must_use]
    pub const fn sub(self, a: u64, b: u64) -> u64 {
        a.wrapping_sub(b) & self.mask
    }

    /// The representative of v mod 2^l in [-2^(l-1), 2^(l-1)).
    #[must_use]
    pub const fn signed(self, v: u64) -> i64 {
        let s = 64 - self.bits;
        ((v << s) as i64) >> s
    }

    /// v mod 2^l of a signed integer.
    #[must_use]
    pub const fn encode(self, v: i64) -> u64 {
        (v as u64) & self.mask
    }

    /// Fails unless l >= min.
    pub(crate) fn at_least(self, min: u32) -> Result<()> {
        if self.bits < min {
            return Err(MpcError::RingWidth { bits: self.bits, min });
        }
        Ok(())
    }
}
