//! Ciphertext words cut into unsigned byte limbs, in the order that byte-product instructions read.
//!
//! Sixteen words of four rows ("a quad") become one [`Lane`] of 64 bytes for every limb. In a lane,
//! byte `8 i + 4 h + r` is the limb of word `8 h + i` of row `r` (`i < 8`, `h < 2`, `r < 4`): the 32-bit element
//! `2 i + h` holds the same limb of four rows, and the two words of a 64-bit element are eight apart,
//! so that turning accumulators back into words moves nothing across elements.
//!
//! A *segment* is a group of rows that lie together: `[block of 16 words][quad][limb]` lanes.

use crate::MatmulError;
use hushnet_ring::Isa;

/// Number of words that a block of limbs has.
pub const BLOCK: usize = 16;
/// Quads that a tile kernel reads at once.
pub(crate) const TILE_QUADS: usize = 16;

/// 64 bytes on a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Lane(pub [u8; 64]);

impl Lane {
    /// A lane whose bytes are all zero.
    pub const ZERO: Lane = Lane([0; 64]);
}

/// Byte limbs of a word below 2^k.
#[must_use]
pub fn limbs_for(modulus_bits: u32) -> usize {
    modulus_bits.div_ceil(8) as usize
}

/// The shape of limb buffers: how many limbs a word has, and how many quads a segment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    limbs: usize,
    quads: usize,
}

impl Layout {
    /// For segments of `rows` rows of words below 2^`modulus_bits`.
    ///
    /// # Errors
    /// [`MatmulError`] when there are no rows or the modulus is not 1 to 64 bits.
    pub fn new(rows: usize, modulus_bits: u32) -> Result<Self, MatmulError> {
        if modulus_bits == 0 || modulus_bits > 64 {
            return Err(MatmulError::ModulusBits { bits: modulus_bits, limit: 64, kernel: "limb" });
        }
        if rows == 0 {
            return Err(MatmulError::Shape { m: 1, k: rows });
        }
        Ok(Self { limbs: limbs_for(modulus_bits), quads: rows.div_ceil(4) })
    }

    /// Number of 8-bit limbs that a word is cut into.
    #[must_use]
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// Number of groups of four rows that a segment has.
    #[must_use]
    pub fn quads(&self) -> usize {
        self.quads
    }

    /// Lanes of one block of sixteen words of a segment.
    #[must_use]
    pub fn block_lanes(&self) -> usize {
        self.quads * self.limbs
    }

    /// Lanes of a segment of `words` words a row.
    #[must_use]
    pub fn segment_lanes(&self, words: usize) -> usize {
        words.div_ceil(BLOCK) * self.block_lanes()
    }

    /// Readable lanes that must follow the last segment of a buffer: tile kernels read whole tiles
    /// (what they read there is multiplied by zero).
    #[must_use]
    pub fn slack_lanes(&self) -> usize {
        (TILE_QUADS - 1) * self.limbs
    }

    /// Cuts one quad of a segment: rows of equal length (`None` is a row of zeros) go to lanes
    /// `block * block_lanes + quad * limbs + limb` of `segment`. Words beyond the length are zero.
    ///
    /// # Errors
    /// [`MatmulError::Length`] when rows differ in length, the segment is too short or has no such quad.
    pub fn pack(
        &self,
        isa: Isa,
        quad: usize,
        rows: [Option<&[u64]>; 4],
        segment: &mut [Lane],
    ) -> Result<(), MatmulError> {
        let words = rows.iter().flatten().map(|r| r.len()).next().unwrap_or(0);
        for row in rows.iter().flatten() {
            crate::error::expect("words of a packed row", words, row.len())?;
        }
        if quad >= self.quads {
            return Err(MatmulError::Length { what: "quad", expected: self.quads - 1, got: quad });
        }
        crate::error::at_least("lanes of a segment", self.segment_lanes(words), segment.len())?;
        pack_quad(isa, self.limbs, self.block_lanes(), rows, words, &mut segment[quad * self.limbs..]);
        Ok(())
    }

    /// Cuts one row of a quad and leaves the other three as they are.
    ///
    /// # Errors
    /// [`MatmulError::Length`] when the segment is too short or has no such row.
    pub fn insert(&self, row_index: usize, row: &[u64], segment: &mut [Lane]) -> Result<(), MatmulError> {
        if row_index >= 4 * self.quads {
            return Err(MatmulError::Length { what: "row", expected: 4 * self.quads - 1, got: row_index });
        }
        crate::error::at_least("lanes of a segment", self.segment_lanes(row.len()), segment.len())?;
        let start = row_index / 4 * self.limbs;
        for (w, word) in row.iter().enumerate() {
            let (block, i, h) = (w / BLOCK, w % 8, w / 8 % 2);
            for limb in 0..self.limbs {
                let lane = &mut segment[start + block * self.block_lanes() + limb];
                lane.0[8 * i + 4 * h + row_index % 4] = (word >> (8 * limb)) as u8;
            }
        }
        Ok(())
    }
}

/// Packs the `words` words of four rows; block `b` goes to `out[b * block_lanes..][..limbs]`.
pub(crate) fn pack_quad(
    isa: Isa,
    limbs: usize,
    block_lanes: usize,
    rows: [Option<&[u64]>; 4],
    words: usize,
    out: &mut [Lane],
) {
    let whole = words / BLOCK;
    let mut block = 0;
    #[cfg(target_arch = "x86_64")]
    if isa.usable() >= Isa::Ifma && whole > 0 {
        crate::kernels::pack::pack_blocks(limbs, block_lanes, rows, whole, out);
        block = whole;
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (isa, whole);
    while block * BLOCK < words {
        let at = block * BLOCK;
        let count = BLOCK.min(words - at);
        let mut lanes = [[0u8; 64]; 8];
        for (r, row) in rows.iter().enumerate() {
            let Some(row) = row else { continue };
            for (w, word) in row[at..at + count].iter().enumerate() {
                for (limb, byte) in word.to_le_bytes().iter().take(limbs).enumerate() {
                    lanes[limb][8 * (w % 8) + 4 * (w / 8) + r] = *byte;
                }
            }
        }
        for (limb, lane) in lanes.iter().take(limbs).enumerate() {
            out[block * block_lanes + limb] = Lane(*lane);
        }
        block += 1;
    }
}
