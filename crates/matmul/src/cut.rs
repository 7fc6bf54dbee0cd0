//! Rows of words cut into 16-bit digits once, for any number of products that read some of them.
//!
//! What a convolution needs: every input is read by as many products as it lies under kernel positions, and cutting is a good part of a
//! product with few outputs.

#[cfg(target_arch = "x86_64")]
use crate::limbs::Lane;
#[cfg(target_arch = "x86_64")]
use crate::{Kernel, MatmulError};

/// Words of a strip.
#[cfg(target_arch = "x86_64")]
const STRIP: usize = 8;

/// Rows in the order that [`Kernel::Madd`] reads: `[strip of eight words][row][half]`, vectors of 32 bytes. Element `2 i + h` of half `l` has
/// bits `32 l .. 32 l + 32` of word `4 h + i`, with the top bit of both 16-bit digits flipped. Behind the last row of every strip lies one of
/// zero digits. Reused from product to product.
#[derive(Default)]
pub struct Cut {
    #[cfg(target_arch = "x86_64")]
    lanes: Vec<Lane>,
    rows: usize,
    words: usize,
    halves: usize,
}

impl Cut {
    /// Empty scratch memory, which grows with its first use.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of rows that were cut into limbs.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of words of a row.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words
    }

    /// Halves of a word that are kept: 1 for words below 2^32, else 2.
    #[must_use]
    pub fn halves(&self) -> usize {
        self.halves
    }

    /// Vectors of a strip, filled up to whole lanes.
    #[cfg(target_arch = "x86_64")]
    fn strip_vectors(&self) -> usize {
        ((self.rows + 1) * self.halves).next_multiple_of(2)
    }

    /// Cuts rows of words below 2^32 (`halves` 1) or 2^64 (2).
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn set(&mut self, rows: &[&[u64]], halves: usize) -> Result<(), MatmulError> {
        Kernel::Madd.check(64)?;
        let words = rows.first().map_or(0, |r| r.len());
        for r in rows {
            crate::error::expect("words of an input row", words, r.len())?;
        }
        let last = (self.rows, self.words, self.halves);
        (self.rows, self.words, self.halves) = (rows.len(), words, halves);
        let strip = self.strip_vectors();
        if last != (self.rows, self.words, self.halves) {
            self.lanes.clear();
            self.lanes.resize(words.div_ceil(STRIP) * strip / 2, Lane::ZERO);
        }
        crate::kernels::madd::cut(rows, halves, strip, &mut self.lanes);
        Ok(())
    }

    /// Strip number `i`.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn strip(&self, i: usize) -> &[Lane] {
        let lanes = self.strip_vectors() / 2;
        &self.lanes[i * lanes..(i + 1) * lanes]
    }
}
