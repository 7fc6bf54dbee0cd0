//! Products of byte limbs in 16 x 16 tiles, written once over [`TileOps`]: the processor's tiles (AMX)
//! or an emulation of them.
#![allow(unsafe_code)]

use super::recombine::add_lanes;
use crate::limbs::{Lane, BLOCK, TILE_QUADS};
use crate::weights::balanced_limb;
use crate::Weights;
use hushnet_ring::Isa;

/// Rows of a weight tile.
const TILE_ROWS: usize = 16;
/// Accumulator tiles; two more hold the operands.
const ACCUMULATORS: usize = 6;

/// Part of a limb product: quads that lie together in every block of words.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    /// First lane of these quads in block 0.
    pub(crate) base: *const Lane,
    /// Lanes from block to block.
    pub(crate) block_lanes: usize,
    /// How many quads.
    pub(crate) quads: usize,
    /// Index of the first one's weights (tile kernels: of its first tile).
    pub(crate) weights: usize,
}

/// Eight tile registers of 16 rows of 64 bytes: six accumulators, one of weights, one of words.
pub(crate) trait TileOps {
    /// Configures the tiles of this thread.
    fn begin(&mut self);
    /// Releases them.
    fn end(&mut self);
    /// Clears an accumulator.
    fn zero(&mut self, accumulator: usize);
    /// Loads sixteen consecutive lanes of signed weights.
    ///
    /// # Safety
    /// Sixteen lanes must be readable.
    unsafe fn load_weights(&mut self, from: *const Lane);
    /// Loads sixteen lanes of unsigned limbs, `stride` lanes apart.
    ///
    /// # Safety
    /// All sixteen must be readable.
    unsafe fn load_words(&mut self, from: *const Lane, stride: usize);
    /// `acc[i][j] += sum over q, b of weights[i][4 q + b] * words[q][4 j + b]`, modulo 2^32.
    fn multiply_add(&mut self, accumulator: usize);
    /// Stores an accumulator to sixteen consecutive lanes.
    ///
    /// # Safety
    /// Sixteen lanes must be writable.
    unsafe fn store(&mut self, accumulator: usize, to: *mut Lane);
}

/// Weights as tiles: `[weight limb][row block of 16][tile of 16 quads]`, every segment padded to whole tiles.
pub(crate) struct TilePanel {
    tiles: Vec<Lane>,
    row_blocks: usize,
    tiles_per_row_block: usize,
    /// Rows of the matrix.
    m: usize,
}

impl TilePanel {
    /// `segments` are the columns `(first, count)` of every segment.
    pub(crate) fn new(w: &Weights, segments: &[(usize, usize)]) -> Self {
        let row_blocks = w.rows().div_ceil(TILE_ROWS);
        let mut tiles = Vec::new();
        for j in 0..w.limbs() {
            for block in 0..row_blocks {
                for &(first, count) in segments {
                    for tile in 0..count.div_ceil(4 * TILE_QUADS) {
                        for row in block * TILE_ROWS..(block + 1) * TILE_ROWS {
                            let mut lane = Lane::ZERO;
                            for (b, byte) in lane.0.iter_mut().enumerate() {
                                let column = 64 * tile + b;
                                if row < w.rows() && column < count {
                                    *byte = balanced_limb(w.row(row)[first + column], j) as u8;
                                }
                            }
                            tiles.push(lane);
                        }
                    }
                }
            }
        }
        let tiles_per_row_block = tiles.len() / (TILE_ROWS * row_blocks * w.limbs());
        Self { tiles, row_blocks, tiles_per_row_block, m: w.rows() }
    }

    fn tile(&self, weight_limb: usize, row_block: usize, tile: usize) -> &[Lane] {
        let index = (weight_limb * self.row_blocks + row_block) * self.tiles_per_row_block + tile;
        &self.tiles[index * TILE_ROWS..(index + 1) * TILE_ROWS]
    }
}

/// What a limb product is told besides its weights and segments.
pub(crate) struct LimbCall<'a> {
    /// Limbs of a word.
    pub(crate) limbs: usize,
    /// Limbs of a weight.
    pub(crate) weight_limbs: usize,
    /// Blocks of sixteen words: the first, and how many.
    pub(crate) blocks: std::ops::Range<usize>,
    /// Rows of the matrix that are computed.
    pub(crate) outputs: std::ops::Range<usize>,
    /// Constant of every output; empty for zeros. Not read when `add`.
    pub(crate) start: &'a [u64],
    /// Adds to the output.
    pub(crate) add: bool,
    /// Low bits that are kept.
    pub(crate) mask: u64,
}

/// Runs one product. Every segment must be readable up to whole tiles.
pub(crate) fn multiply<T: TileOps>(
    ops: &mut T,
    isa: Isa,
    panel: &TilePanel,
    segments: &[Segment],
    call: &LimbCall,
    out: &mut [&mut [u64]],
    stored: &mut Vec<Lane>,
) {
    crate::scratch::grow(stored, ACCUMULATORS * TILE_ROWS);
    ops.begin();
    for block in call.blocks.clone() {
        let at = (block - call.blocks.start) * BLOCK;
        for row_block in 0..panel.row_blocks {
            let first = row_block * TILE_ROWS;
            // Rows of this tile that are wanted, and the output of the first of them.
            let begin = call.outputs.start.clamp(first, first + TILE_ROWS) - first;
            let end = call.outputs.end.min(panel.m).clamp(first, first + TILE_ROWS) - first;
            if begin >= end {
                continue;
            }
            let output = first + begin - call.outputs.start;
            let mut words = [[0u64; BLOCK]; TILE_ROWS];
            for (i, words) in words[begin..end].iter_mut().enumerate() {
                if call.add {
                    let from = &out[output + i][at..];
                    let count = BLOCK.min(from.len());
                    words[..count].copy_from_slice(&from[..count]);
                } else {
                    words.fill(call.start.get(output + i).copied().unwrap_or(0));
                }
            }
            for j in 0..call.weight_limbs.min(call.limbs) {
                let used = call.limbs - j;
                let groups = used.div_ceil(ACCUMULATORS);
                for group in 0..groups {
                    let limbs = group * used / groups..(group + 1) * used / groups;
                    let place = Place { weight_limb: j, row_block, block, stride: call.limbs };
                    accumulate(ops, panel, segments, place, limbs.clone(), stored);
                    for (r, words) in words.iter_mut().enumerate().take(end).skip(begin) {
                        let shift = 8 * (j + limbs.start) as u32;
                        let count = limbs.len();
                        add_lanes(isa, &stored[r * count..(r + 1) * count], shift, words);
                    }
                }
            }
            for (i, words) in words[begin..end].iter().enumerate() {
                for (o, w) in out[output + i][at..].iter_mut().zip(words) {
                    *o = w & call.mask;
                }
            }
        }
    }
    ops.end();
}

/// Which tiles of the product.
struct Place {
    weight_limb: usize,
    row_block: usize,
    block: usize,
    /// Lanes from quad to quad.
    stride: usize,
}

/// Products of a group of limbs over all segments, stored as `[row][limb of the group]`.
#[inline(always)]
fn accumulate<T: TileOps>(
    ops: &mut T,
    panel: &TilePanel,
    segments: &[Segment],
    place: Place,
    limbs: std::ops::Range<usize>,
    stored: &mut [Lane],
) {
    for c in 0..limbs.len() {
        ops.zero(c);
    }
    for segment in segments {
        let base = segment.base.wrapping_add(place.block * segment.block_lanes);
        for tile in 0..segment.quads.div_ceil(TILE_QUADS) {
            let weights = panel.tile(place.weight_limb, place.row_block, segment.weights + tile);
            // SAFETY: a weight tile is sixteen lanes; the caller vouches for whole tiles of words.
            unsafe {
                ops.load_weights(weights.as_ptr());
                for (c, limb) in limbs.clone().enumerate() {
                    let from = base.wrapping_add(tile * TILE_QUADS * place.stride + limb);
                    ops.load_words(from, place.stride);
                    ops.multiply_add(c);
                }
            }
        }
    }
    let mut tile = [Lane::ZERO; TILE_ROWS];
    for c in 0..limbs.len() {
        // SAFETY: `tile` is sixteen lanes.
        unsafe { ops.store(c, tile.as_mut_ptr()) };
        for (r, lane) in tile.iter().enumerate() {
            stored[r * limbs.len() + c] = *lane;
        }
    }
}

/// Tiles in memory.
pub(crate) struct Emulated {
    accumulators: [[[i32; 16]; 16]; ACCUMULATORS],
    weights: [[u8; 64]; 16],
    words: [[u8; 64]; 16],
}

impl Emulated {
    pub(crate) fn new() -> Self {
        Self { accumulators: [[[0; 16]; 16]; ACCUMULATORS], weights: [[0; 64]; 16], words: [[0; 64]; 16] }
    }
}

impl TileOps for Emulated {
    fn begin(&mut self) {
        *self = Self::new();
    }
    fn end(&mut self) {}
    fn zero(&mut self, accumulator: usize) {
        self.accumulators[accumulator] = [[0; 16]; 16];
    }
    unsafe fn load_weights(&mut self, from: *const Lane) {
        for (r, row) in self.weights.iter_mut().enumerate() {
            // SAFETY: the caller vouches for sixteen lanes.
            *row = unsafe { (*from.add(r)).0 };
        }
    }
    unsafe fn load_words(&mut self, from: *const Lane, stride: usize) {
        for (r, row) in self.words.iter_mut().enumerate() {
            // SAFETY: the caller vouches for sixteen lanes, `stride` apart.
            *row = unsafe { (*from.add(r * stride)).0 };
        }
    }
    fn multiply_add(&mut self, accumulator: usize) {
        for (acc, weights) in self.accumulators[accumulator].iter_mut().zip(&self.weights) {
            for (q, words) in self.words.iter().enumerate() {
                for (j, sum) in acc.iter_mut().enumerate() {
                    for b in 0..4 {
                        let product = i32::from(weights[4 * q + b] as i8) * i32::from(words[4 * j + b]);
                        *sum = sum.wrapping_add(product);
                    }
                }
            }
        }
    }
    unsafe fn store(&mut self, accumulator: usize, to: *mut Lane) {
        for (r, row) in self.accumulators[accumulator].iter().enumerate() {
            let mut lane = Lane::ZERO;
            for (j, sum) in row.iter().enumerate() {
                lane.0[4 * j..4 * j + 4].copy_from_slice(&sum.to_le_bytes());
            }
            // SAFETY: the caller vouches for sixteen lanes.
            unsafe { to.add(r).write(lane) };
        }
    }
}
