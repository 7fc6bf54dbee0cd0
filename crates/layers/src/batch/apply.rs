//! A layer ready for one instruction set and one modulus, and its application to a window of rows.

use super::error::expect;
use super::store::Shape;
use super::{BatchLinear, Conv2d, Geometry, LayerError, RowStore};
use hushnet_matmul::{packing_cost, Kernel, Lane, Prepared, Scratch, Weights, BLOCK};
use hushnet_ring::Isa;
use rayon::prelude::*;
use std::cell::RefCell;
use std::ops::Range;

/// How a store keeps the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// Whole words.
    Words,
    /// Byte limbs, packed when rows arrive.
    Limbs,
}

/// Features of a segment of a dense layer (whole tiles of the tile kernel).
const DENSE_SEGMENT: usize = 64;
/// Lanes of limbs that a range of words of one output may read: they stay in the second-level cache.
const RANGE_LANES: usize = 8192;
/// Whole words that a range of words of one output may read: they stay in the first-level cache.
const RANGE_WORDS: usize = 2304;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

/// A [`BatchLinear`] prepared for an instruction set and words modulo 2^k: immutable, shared by sessions and threads.
pub struct PreparedLinear {
    layer: BatchLinear,
    isa: Isa,
    modulus_bits: u32,
    storage: Storage,
    groups: Vec<Prepared>,
}

/// Pieces of output rows: every feature of an output row, one range of words.
type Pieces<'a> = [&'a mut [u64]];

impl BatchLinear {
    /// Chooses kernel and storage by cost and prepares the weights.
    ///
    /// # Errors
    /// [`LayerError::Matmul`] unless `modulus_bits` is 1 to 64.
    pub fn prepare(&self, isa: Isa, modulus_bits: u32) -> Result<PreparedLinear, LayerError> {
        let isa = isa.usable();
        let (kernel, storage) = self.cheapest(isa, modulus_bits);
        self.prepare_with(isa, modulus_bits, kernel, storage)
    }

    pub(crate) fn prepare_with(
        &self,
        isa: Isa,
        modulus_bits: u32,
        kernel: Kernel,
        storage: Storage,
    ) -> Result<PreparedLinear, LayerError> {
        let segment = match self.geometry() {
            Geometry::Dense(_) => DENSE_SEGMENT,
            Geometry::Conv2d(c) => c.group_inputs(),
        };
        let prepare = |w: &Weights| Prepared::new(w, kernel, modulus_bits, segment);
        let groups = self.groups().iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
        Ok(PreparedLinear { layer: self.clone(), isa, modulus_bits, storage, groups })
    }

    /// Compares whole words, limbs packed for every output position, and limbs packed once an input.
    fn cheapest(&self, isa: Isa, modulus_bits: u32) -> (Kernel, Storage) {
        let limbs = self.groups().iter().map(Weights::limbs).max().unwrap_or(1);
        let Some(w) = self.groups().first() else { return (Kernel::Portable, Storage::Words) };
        let (m, k) = (w.rows(), w.columns());
        let direct = Kernel::choose(isa, m, k, modulus_bits, limbs);
        let Some(kernel) = Kernel::limbs(isa) else { return (direct, Storage::Words) };
        let mut cost = direct.cost(m, k, modulus_bits, limbs);
        if direct.uses_limbs() {
            cost += packing_cost(k, modulus_bits);
        }
        let packed = match self.geometry() {
            Geometry::Dense(_) => kernel.cost(m, k, modulus_bits, limbs) + packing_cost(k, modulus_bits),
            Geometry::Conv2d(c) => {
                // Every kernel position has its own quads; every input position is packed once.
                let taps = c.kernel[0] * c.kernel[1];
                let columns = taps * c.group_inputs().next_multiple_of(4);
                let positions = (c.input[1] * c.input[2]) as f64 / (c.output[1] * c.output[2]) as f64;
                kernel.cost(m, columns, modulus_bits, limbs)
                    + positions * packing_cost(c.group_inputs(), modulus_bits)
            }
        };
        if packed <= cost {
            (kernel, Storage::Limbs)
        } else {
            (direct, Storage::Words)
        }
    }
}

impl PreparedLinear {
    /// The layer.
    #[must_use]
    pub fn layer(&self) -> &BatchLinear {
        &self.layer
    }

    /// k, with modulus 2^k.
    #[must_use]
    pub fn modulus_bits(&self) -> u32 {
        self.modulus_bits
    }

    /// The kernel that multiplies.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.groups.first().map_or(Kernel::Portable, Prepared::kernel)
    }

    /// Whether inputs are kept as byte limbs.
    #[must_use]
    pub fn keeps_limbs(&self) -> bool {
        self.storage == Storage::Limbs
    }

    fn shape(&self, words: usize) -> Shape {
        let (columns, groups, group_channels, dense) = match self.layer.geometry() {
            Geometry::Dense(d) => (1, 1, d.inputs, true),
            Geometry::Conv2d(c) => (c.input[2], c.groups, c.group_inputs(), false),
        };
        let layouts = match self.layer.geometry() {
            Geometry::Dense(_) => self.groups.first().map_or(Vec::new(), |p| p.layouts().to_vec()),
            Geometry::Conv2d(_) => {
                self.groups.first().map_or(Vec::new(), |p| p.layouts().iter().take(1).copied().collect())
            }
        };
        let (isa, storage) = (self.isa, self.storage);
        Shape { isa, storage, words, columns, groups, group_channels, dense, layouts }
    }

    /// An empty window for polynomials of `words` words (at least one).
    ///
    /// # Errors
    /// [`LayerError::Size`] without words.
    pub fn new_store(&self, words: usize) -> Result<RowStore, LayerError> {
        if words == 0 {
            let what = "words of a polynomial";
            return Err(LayerError::Size { what, got: 0, least: 1, most: usize::MAX });
        }
        Ok(RowStore::new(self.shape(words)))
    }

    /// Bytes that the window holds for one input row of polynomials of `words` words (dense: for all features).
    #[must_use]
    pub fn row_bytes(&self, words: usize) -> usize {
        self.shape(words).row_bytes()
    }

    /// Computes output rows `outputs` (dense: features) modulo 2^k into `out`: one polynomial after another, in
    /// wire order (row, channel, column). With `bias_shift`, `2^bias_shift bias_o` is added to every word.
    /// Uses the rayon pool that it is called in.
    ///
    /// # Errors
    /// [`LayerError`] when the store is another layer's, rows are missing or `out` has another length.
    pub fn apply(
        &self,
        outputs: Range<usize>,
        store: &RowStore,
        bias_shift: Option<u32>,
        out: &mut [u64],
    ) -> Result<(), LayerError> {
        let words = store.shape.words;
        if store.shape != self.shape(words) {
            return Err(LayerError::ForeignStore);
        }
        let geometry = self.layer.geometry();
        if outputs.start > outputs.end || outputs.end > geometry.output_rows() {
            let (expected, got) = (geometry.output_rows(), outputs.end);
            return Err(LayerError::Length { what: "end of output rows", expected, got });
        }
        let per_row = geometry.output_row_features();
        expect("output words", outputs.len() * per_row * words, out.len())?;
        if outputs.is_empty() {
            return Ok(());
        }
        if !store.complete() {
            return Err(LayerError::RowMissing(geometry.input_rows() - 1));
        }
        let start: Vec<u64> = match bias_shift {
            Some(shift) => self.layer.bias().iter().map(|b| (*b as u64) << (shift & 63)).collect(),
            None => Vec::new(),
        };
        let dense = store.shape.dense;
        let range = self.range_words(words, if dense { 1 } else { outputs.len() });
        // Every task has one range of words of one output row (dense: of all outputs).
        let chunk = if dense { outputs.len() } else { per_row };
        let mut pieces: Vec<Vec<&mut [u64]>> = Vec::new();
        pieces.resize_with(words.div_ceil(range), || Vec::with_capacity(outputs.len() * per_row));
        for feature in out.chunks_exact_mut(words) {
            for (list, piece) in pieces.iter_mut().zip(feature.chunks_mut(range)) {
                list.push(piece);
            }
        }
        let tasks: Vec<(usize, usize, &mut Pieces)> = pieces
            .iter_mut()
            .enumerate()
            .flat_map(|(r, list)| list.chunks_mut(chunk).enumerate().map(move |(row, p)| (r * range, row, p)))
            .collect();
        tasks.into_par_iter().try_for_each(|(at, row, pieces)| {
            SCRATCH.with_borrow_mut(|scratch| match geometry {
                Geometry::Dense(_) => self.dense_piece(outputs.clone(), store, &start, at, pieces, scratch),
                Geometry::Conv2d(c) => {
                    let task = ConvTask { conv: c, y: outputs.start + row, at };
                    self.conv_piece(&task, store, &start, pieces, scratch)
                }
            })
        })
    }

    /// Words of a task: a multiple of the block, small enough for the caches and for all threads to have work.
    fn range_words(&self, words: usize, rows: usize) -> usize {
        let cached = match self.storage {
            Storage::Limbs => {
                let block: usize =
                    self.groups.first().map_or(1, |p| p.layouts().iter().map(|l| l.block_lanes()).sum());
                RANGE_LANES / block.max(1) * BLOCK
            }
            Storage::Words => {
                let columns = self.groups.first().map_or(1, Prepared::columns);
                RANGE_WORDS / columns.max(1)
            }
        };
        let threads = rayon::current_num_threads();
        let shared = if threads > 1 { words * rows / (4 * threads) } else { words };
        let range = cached.min(shared).clamp(4 * BLOCK, 16 * BLOCK);
        range / BLOCK * BLOCK
    }

    /// Some outputs of a dense layer, one range of words.
    fn dense_piece(
        &self,
        outputs: Range<usize>,
        store: &RowStore,
        start: &[u64],
        at: usize,
        pieces: &mut Pieces,
        scratch: &mut Scratch,
    ) -> Result<(), LayerError> {
        let Some(p) = self.groups.first() else { return Ok(()) };
        let start = start.get(outputs.clone()).unwrap_or(&[]);
        let count = pieces.first().map_or(0, |p| p.len());
        match self.storage {
            Storage::Words => {
                let all = store.words(0)?;
                let rows: Vec<Option<&[u64]>> =
                    all.chunks_exact(store.shape.stride()).map(|row| Some(&row[at..at + count])).collect();
                p.multiply_rows(outputs, &rows, start, pieces, scratch)?;
            }
            Storage::Limbs => {
                let mut rest = store.lanes(0)?;
                let mut segments = Vec::with_capacity(p.layouts().len());
                for layout in p.layouts() {
                    segments.push(Some(rest));
                    rest = &rest[layout.segment_lanes(store.shape.words)..];
                }
                p.multiply_limb_rows(outputs, &segments, at / BLOCK, start, pieces, scratch)?;
            }
        }
        Ok(())
    }
}

/// One output row, one range of words.
struct ConvTask<'a> {
    conv: &'a Conv2d,
    /// Output row.
    y: usize,
    /// First word.
    at: usize,
}

impl PreparedLinear {
    /// One output row of a convolution, one range of words.
    fn conv_piece(
        &self,
        task: &ConvTask,
        store: &RowStore,
        start: &[u64],
        pieces: &mut Pieces,
        scratch: &mut Scratch,
    ) -> Result<(), LayerError> {
        let c = task.conv;
        let count = pieces.first().map_or(0, |p| p.len());
        let per_group = c.group_outputs();
        let width = c.output[2];
        let mut out: Vec<&mut [u64]> = Vec::with_capacity(per_group);
        let mut rows: Vec<Option<&[u64]>> = Vec::new();
        let mut segments: Vec<Option<&[Lane]>> = Vec::new();
        let sources = (0..c.kernel[0]).map(|i| c.source(0, task.y, i)).collect::<Vec<_>>();
        // Neighbouring positions share inputs: whole words go along the row group by group, so that a group's window
        // stays in the cache; limbs take all groups of a position together, as they lie in memory.
        let along_row = self.storage == Storage::Words;
        for step in 0..width * c.groups {
            let (group, x) =
                if along_row { (step / width, step % width) } else { (step % c.groups, step / c.groups) };
            let Some(p) = self.groups.get(group) else { continue };
            let first = group * per_group;
            out.clear();
            out.extend((first..first + per_group).map(|o| std::mem::take(&mut pieces[o * width + x])));
            let start = start.get(first..first + per_group).unwrap_or(&[]);
            match self.storage {
                Storage::Words => {
                    gather_words(task, store, &sources, (group, x), count, &mut rows)?;
                    p.multiply(&rows, start, &mut out, scratch)?;
                }
                Storage::Limbs => {
                    gather_limbs(c, store, &sources, (group, x), &mut segments)?;
                    p.multiply_limbs(&segments, task.at / BLOCK, start, &mut out, scratch)?;
                }
            }
        }
        Ok(())
    }
}

/// Rows of words of one position and group, kernel position by kernel position.
fn gather_words<'a>(
    task: &ConvTask,
    store: &'a RowStore,
    sources: &[Option<usize>],
    (group, x): (usize, usize),
    count: usize,
    rows: &mut Vec<Option<&'a [u64]>>,
) -> Result<(), LayerError> {
    let c = task.conv;
    let channels = c.group_inputs();
    let stride = store.shape.stride();
    rows.clear();
    for source in sources {
        let line = source.map(|y| store.words(y)).transpose()?;
        for j in 0..c.kernel[1] {
            match (line, c.source(1, x, j)) {
                (Some(line), Some(column)) => rows.extend((0..channels).map(|z| {
                    let at = ((group * channels + z) * c.input[2] + column) * stride + task.at;
                    Some(&line[at..at + count])
                })),
                _ => rows.extend((0..channels).map(|_| None)),
            }
        }
    }
    Ok(())
}

/// Segments of one position and group, one a kernel position.
fn gather_limbs<'a>(
    c: &Conv2d,
    store: &'a RowStore,
    sources: &[Option<usize>],
    (group, x): (usize, usize),
    segments: &mut Vec<Option<&'a [Lane]>>,
) -> Result<(), LayerError> {
    let lanes = store.shape.group_lanes();
    segments.clear();
    for source in sources {
        let line = source.map(|y| store.lanes(y)).transpose()?;
        for j in 0..c.kernel[1] {
            segments.push(match (line, c.source(1, x, j)) {
                (Some(line), Some(column)) => Some(&line[(column * c.groups + group) * lanes..]),
                _ => None,
            });
        }
    }
    Ok(())
}
