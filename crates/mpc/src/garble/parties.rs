//! Garbler and evaluator of sixteen instances of a circuit at a time.

use super::gates::Gates;
use crate::block::Block;
use crate::simd::FixedKey;

/// Instances side by side.
pub(super) const LANES: usize = 16;

/// The labels of one wire: zero labels for the garbler, active ones for the evaluator.
pub(super) type Labels = [Block; LANES];

/// All ones where bit 0 of `b` is set.
fn mask(b: Block) -> Block {
    (b & 1).wrapping_neg()
}

fn map(a: &Labels, b: &Labels, f: impl Fn(Block, Block) -> Block) -> Labels {
    std::array::from_fn(|i| f(a[i], b[i]))
}

/// Keeps zero labels and writes tables.
pub(super) struct Garbler<'a> {
    pub key: &'a FixedKey,
    /// Label of one = label of zero ^ delta; bit 0 is set.
    pub delta: Block,
    /// Two for every AND of every lane, used or not.
    pub tweak: u64,
    /// Lanes in use.
    pub lanes: usize,
    pub table: Vec<u8>,
}

impl Gates for Garbler<'_> {
    type Wire = Labels;

    fn and(&mut self, a: &Labels, b: &Labels) -> Labels {
        let (d, j) = (self.delta, self.tweak);
        let [mut a0, mut a1, mut b0, mut b1] = [[0; LANES]; 4];
        self.key.tweaked(a, 0, j, &mut a0);
        self.key.tweaked(a, d, j, &mut a1);
        self.key.tweaked(b, 0, j + 1, &mut b0);
        self.key.tweaked(b, d, j + 1, &mut b1);
        self.tweak += 2 * LANES as u64;
        let mut out = [0; LANES];
        for i in 0..LANES {
            // Generator's half: a known colour of b; evaluator's half: b ^ colour known to the evaluator.
            let generator = a0[i] ^ a1[i] ^ (d & mask(b[i]));
            let evaluator = b0[i] ^ b1[i] ^ a[i];
            out[i] = a0[i] ^ (generator & mask(a[i])) ^ b0[i] ^ ((evaluator ^ a[i]) & mask(b[i]));
            if i < self.lanes {
                self.table.extend_from_slice(&generator.to_le_bytes());
                self.table.extend_from_slice(&evaluator.to_le_bytes());
            }
        }
        out
    }

    fn xor(&mut self, a: &Labels, b: &Labels) -> Labels {
        map(a, b, |a, b| a ^ b)
    }

    fn not(&mut self, a: &Labels) -> Labels {
        map(a, a, |a, _| a ^ self.delta)
    }

    fn zero(&mut self) -> Labels {
        [0; LANES]
    }
}

/// Keeps active labels and reads tables.
pub(super) struct Evaluator<'a> {
    pub key: &'a FixedKey,
    pub tweak: u64,
    pub lanes: usize,
    /// Tables not yet used; exactly as many as the circuit needs.
    pub table: std::slice::ChunksExact<'a, u8>,
}

fn block(bytes: &[u8]) -> Block {
    let mut b = [0; 16];
    b.copy_from_slice(bytes);
    Block::from_le_bytes(b)
}

impl Gates for Evaluator<'_> {
    type Wire = Labels;

    fn and(&mut self, a: &Labels, b: &Labels) -> Labels {
        let [mut ha, mut hb] = [[0; LANES]; 2];
        self.key.tweaked(a, 0, self.tweak, &mut ha);
        self.key.tweaked(b, 0, self.tweak + 1, &mut hb);
        self.tweak += 2 * LANES as u64;
        let mut out = [0; LANES];
        for (i, row) in self.table.by_ref().take(self.lanes).enumerate() {
            let (generator, evaluator) = (block(&row[..16]), block(&row[16..]));
            out[i] = ha[i] ^ (generator & mask(a[i])) ^ hb[i] ^ ((evaluator ^ a[i]) & mask(b[i]));
        }
        out
    }

    fn xor(&mut self, a: &Labels, b: &Labels) -> Labels {
        map(a, b, |a, b| a ^ b)
    }

    fn not(&mut self, a: &Labels) -> Labels {
        *a
    }

    fn zero(&mut self) -> Labels {
        [0; LANES]
    }
}
