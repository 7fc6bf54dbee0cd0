//! A layer ready for one instruction set and one modulus, and its application to a window of rows.

use super::error::expect;
use super::store::{stride, RangeStore, Shape};
use super::{BatchLinear, Conv2d, Geometry, LayerError, RowStore, Tile};
use hushnet_matmul::{packing_cost, Kernel, Lane, Prepared, Scratch, Weights, BLOCK};
use hushnet_ring::{AlignedWords, Isa};
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
/// Bytes of a window of rows that stay in the second-level cache.
const WINDOW_BYTES: usize = 768 << 10;
/// Blocks of a range: fewer cost more calls than the cache saves.
const LEAST_BLOCKS: usize = 8;
const MOST_BLOCKS: usize = 16;
/// Whole words that a range of words of one output may read: they stay in the first-level cache.
const RANGE_WORDS: usize = 2304;

thread_local! {
    static WORK: RefCell<Work> = RefCell::new(Work::default());
}

/// Buffers of a thread.
struct Work {
    scratch: Scratch,
    /// Outputs of one position and group, one range of words.
    out: AlignedWords,
    /// Four inputs that become limbs.
    four: AlignedWords,
}

impl Default for Work {
    fn default() -> Self {
        Self { scratch: Scratch::new(), out: AlignedWords::new(0), four: AlignedWords::new(0) }
    }
}

impl Work {
    /// Lends this thread's buffers. They are taken out meanwhile: what `f` calls may come here again.
    fn with<R>(f: impl FnOnce(&mut Work) -> R) -> R {
        let mut work = WORK.take();
        let result = f(&mut work);
        WORK.set(work);
        result
    }
}

/// At least `words` words.
fn grow(buffer: &mut AlignedWords, words: usize) {
    if buffer.len() < words {
        *buffer = AlignedWords::new(words);
    }
}

/// A [`BatchLinear`] prepared for an instruction set and words modulo 2^k: immutable, shared by sessions and threads.
pub struct PreparedLinear {
    layer: BatchLinear,
    isa: Isa,
    modulus_bits: u32,
    storage: Storage,
    groups: Vec<Prepared>,
}

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
    /// The layer whose weights were prepared.
    #[must_use]
    pub fn layer(&self) -> &BatchLinear {
        &self.layer
    }

    /// The number k of bits of the modulus 2^k.
    #[must_use]
    pub fn modulus_bits(&self) -> u32 {
        self.modulus_bits
    }

    /// The kernel that multiplies weights by ciphertext words.
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
        let layouts = self.groups.first().map_or(&[][..], |p| p.layouts());
        let (columns, groups, group_channels, dense, segments) = match self.layer.geometry() {
            Geometry::Dense(d) => (1, 1, d.inputs, true, layouts.len()),
            Geometry::Conv2d(c) => (c.input[2], c.groups, c.group_inputs(), false, 1),
        };
        let layouts = layouts.iter().take(segments).copied().collect();
        let (isa, storage) = (self.isa, self.storage);
        Shape { isa, storage, words, columns, groups, group_channels, dense, layouts }
    }

    /// An empty window for polynomials of `words` words (at least one). Call it in the rayon pool that will work on
    /// it: words are cut into ranges for its threads.
    ///
    /// # Errors
    /// [`LayerError::Size`] without words.
    pub fn new_store(&self, words: usize) -> Result<RowStore, LayerError> {
        if words == 0 {
            let what = "words of a polynomial";
            return Err(LayerError::Size { what, got: 0, least: 1, most: usize::MAX });
        }
        Ok(RowStore::new(self.shape(words), self.range_words(words)))
    }

    /// Bytes that the window holds for one input row of polynomials of `words` words (dense: for all features).
    #[must_use]
    pub fn row_bytes(&self, words: usize) -> usize {
        let (shape, range) = (self.shape(words), self.range_words(words));
        (0..words).step_by(range).map(|at| shape.row_bytes(range.min(words - at))).sum()
    }

    /// Words of a range: whole blocks, as many as keep the window in the second-level cache and the inputs of one
    /// position in the first-level cache (limbs: in the second), and few enough for all threads to have work.
    fn range_words(&self, words: usize) -> usize {
        let shape = self.shape(words);
        let rows = match self.layer.geometry() {
            Geometry::Dense(_) => 1,
            Geometry::Conv2d(c) => (c.dilation[0] * (c.kernel[0] - 1) + 2).min(c.input[1]),
        };
        let window = WINDOW_BYTES / (rows * shape.row_bytes(BLOCK)).max(1) * BLOCK;
        let layouts = self.groups.first().map_or(&[][..], |p| p.layouts());
        let position = match self.storage {
            Storage::Limbs => {
                let block: usize = layouts.iter().map(hushnet_matmul::Layout::block_lanes).sum();
                RANGE_LANES / block.max(1) * BLOCK
            }
            Storage::Words => RANGE_WORDS / self.groups.first().map_or(1, Prepared::columns),
        };
        let cached = window.min(position).clamp(LEAST_BLOCKS * BLOCK, MOST_BLOCKS * BLOCK);
        let threads = rayon::current_num_threads();
        let shared = if threads > 1 { words / (4 * threads) } else { words };
        (cached.min(shared) / BLOCK * BLOCK).max(BLOCK)
    }

    fn check(&self, outputs: &Range<usize>, store: &RowStore) -> Result<(), LayerError> {
        if store.shape != self.shape(store.shape.words) {
            return Err(LayerError::ForeignStore);
        }
        let geometry = self.layer.geometry();
        if outputs.start > outputs.end || outputs.end > geometry.output_rows() {
            let (expected, got) = (geometry.output_rows(), outputs.end);
            return Err(LayerError::Length { what: "end of output rows", expected, got });
        }
        Ok(())
    }

    /// Constants of the outputs (channels): `2^shift bias`, or none.
    fn constants(&self, bias_shift: Option<u32>) -> Vec<u64> {
        let shifted = |s: u32| self.layer.bias().iter().map(|b| (*b as u64) << (s & 63)).collect();
        bias_shift.map_or_else(Vec::new, shifted)
    }

    /// Takes in the new input rows of a tile, computes its outputs modulo 2^k and drops the rows before `keep_from`
    /// ([`super::Tiling::keep_from`]), range of words by range of words, so that nothing leaves the caches between.
    ///
    /// `fill(position, range, words)` writes words `range` (below 2^k) of the polynomial of the new input
    /// feature at `position` in wire order; `emit(position, range, words)` gets words `range` of the output feature
    /// at `position`, and may change them in place. Ranges begin at multiples of 16. Every (position, range)
    /// comes once; several threads of the current rayon pool call at once. With `bias_shift`,
    /// `2^bias_shift bias_o` is added to every word.
    ///
    /// # Errors
    /// [`LayerError`] when the store is another layer's or rows are missing or out of order; what `fill` and
    /// `emit` return. After an error the store must be cleared.
    pub fn tile<E, F, G>(
        &self,
        tile: &Tile,
        keep_from: usize,
        store: &mut RowStore,
        bias_shift: Option<u32>,
        fill: F,
        emit: G,
    ) -> Result<(), E>
    where
        E: From<LayerError> + Send,
        F: Fn(usize, Range<usize>, &mut [u64]) -> Result<(), E> + Sync,
        G: Fn(usize, Range<usize>, &mut [u64]) -> Result<(), E> + Sync,
    {
        self.check(&tile.output_rows(), store)?;
        let start = self.constants(bias_shift);
        let geometry = self.layer.geometry();
        let RowStore { shape, ranges } = store;
        ranges.par_iter_mut().try_for_each(|r| {
            Work::with(|work| {
                let range = r.range.clone();
                grow(&mut work.four, 4 * range.len());
                let (inputs, mut done) = (tile.input_rows(), tile.outputs[0]);
                let (in_row, out_row) = (geometry.input_row_features(), geometry.output_row_features());
                // A dense layer takes all rows (features) at once; a convolution goes on as soon as it can.
                let step = if shape.dense { inputs.len().max(1) } else { 1 };
                for row in inputs.clone().step_by(step) {
                    let (rows, before) = (row..row + step, (row - inputs.start) * in_row);
                    r.add(shape, &rows, |p, words| fill(before + p, range.clone(), words), &mut work.four)?;
                    let ready = |o: usize| geometry.needed_rows(o..o + 1).end <= rows.end;
                    while !shape.dense && done < tile.outputs[1] && ready(done) {
                        let before = (done - tile.outputs[0]) * out_row;
                        let emit = |p: usize, words: &mut [u64]| emit(before + p, range.clone(), words);
                        self.outputs(done..done + 1, shape, r, &start, work, emit)?;
                        done += 1;
                        r.drop_before(
                            shape,
                            geometry.first_needed_row(done..geometry.output_rows()).min(keep_from),
                        );
                    }
                }
                let before = (done - tile.outputs[0]) * out_row;
                let emit = |p: usize, words: &mut [u64]| emit(before + p, range.clone(), words);
                self.outputs(done..tile.outputs[1], shape, r, &start, work, emit)?;
                r.drop_before(shape, keep_from);
                Ok(())
            })
        })
    }

    /// Computes output rows `outputs` (dense: features) modulo 2^k into `out`: one polynomial after another, in
    /// wire order (row, channel, column). With `bias_shift`, `2^bias_shift bias_o` is added to every word.
    /// Uses the rayon pool that it is called in. [`PreparedLinear::tile`] does the same without whole polynomials.
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
        self.check(&outputs, store)?;
        let RowStore { shape, ranges } = store;
        let features = outputs.len() * self.layer.geometry().output_row_features();
        expect("output words", features * shape.words, out.len())?;
        let start = self.constants(bias_shift);
        let mut pieces: Vec<Vec<&mut [u64]>> = Vec::new();
        pieces.resize_with(ranges.len(), || Vec::with_capacity(features));
        for mut feature in out.chunks_exact_mut(shape.words) {
            for (list, r) in pieces.iter_mut().zip(ranges) {
                let (piece, rest) = feature.split_at_mut(r.range.len());
                list.push(piece);
                feature = rest;
            }
        }
        ranges.par_iter().zip(pieces).try_for_each(|(r, pieces)| {
            let pieces: Vec<_> = pieces.into_iter().map(RefCell::new).collect();
            Work::with(|work| {
                let emit = |p: usize, words: &mut [u64]| {
                    pieces[p].borrow_mut().copy_from_slice(words);
                    Ok::<(), LayerError>(())
                };
                self.outputs(outputs.clone(), shape, r, &start, work, emit)
            })
        })
    }

    /// Some output rows, one range of words.
    fn outputs<E: From<LayerError>>(
        &self,
        outputs: Range<usize>,
        shape: &Shape,
        r: &RangeStore,
        start: &[u64],
        work: &mut Work,
        emit: impl Fn(usize, &mut [u64]) -> Result<(), E>,
    ) -> Result<(), E> {
        if outputs.is_empty() {
            return Ok(());
        }
        match self.layer.geometry() {
            Geometry::Dense(d) => {
                if !r.complete(shape) {
                    return Err(LayerError::RowMissing(d.inputs - 1).into());
                }
                self.dense_outputs(outputs, shape, r, start, work, emit)
            }
            Geometry::Conv2d(c) => {
                let per_row = c.output[0] * c.output[2];
                for (index, y) in outputs.enumerate() {
                    let row = ConvRow { conv: c, y, shape, store: r, start };
                    self.conv_row(&row, work, |p, words| emit(index * per_row + p, words))?;
                }
                Ok(())
            }
        }
    }

    fn dense_outputs<E: From<LayerError>>(
        &self,
        outputs: Range<usize>,
        shape: &Shape,
        r: &RangeStore,
        start: &[u64],
        work: &mut Work,
        emit: impl Fn(usize, &mut [u64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(p) = self.groups.first() else { return Ok(()) };
        let start = start.get(outputs.clone()).unwrap_or(&[]);
        let words = r.range.len();
        grow(&mut work.out, outputs.len() * words);
        let mut out: Vec<&mut [u64]> = work.out.chunks_exact_mut(words).take(outputs.len()).collect();
        match self.storage {
            Storage::Words => {
                let features = r.words(shape, 0)?.chunks_exact(stride(words));
                let rows: Vec<Option<&[u64]>> = features.map(|row| Some(&row[..words])).collect();
                p.multiply_rows(outputs, &rows, start, &mut out, &mut work.scratch)
            }
            Storage::Limbs => {
                let mut rest = r.lanes(shape, 0)?;
                let mut segments = Vec::with_capacity(p.layouts().len());
                for layout in p.layouts() {
                    segments.push(Some(rest));
                    rest = &rest[layout.segment_lanes(words)..];
                }
                p.multiply_limb_rows(outputs, &segments, 0, start, &mut out, &mut work.scratch)
            }
        }
        .map_err(LayerError::from)?;
        out.into_iter().enumerate().try_for_each(|(i, words)| emit(i, words))
    }

    /// One output row of a convolution, one range of words.
    fn conv_row<E: From<LayerError>>(
        &self,
        row: &ConvRow,
        work: &mut Work,
        emit: impl Fn(usize, &mut [u64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let c = row.conv;
        let words = row.store.range.len();
        let (width, per_group) = (c.output[2], c.group_outputs());
        grow(&mut work.out, per_group * words);
        let mut out: Vec<&mut [u64]> = work.out.chunks_exact_mut(words).take(per_group).collect();
        let mut rows: Vec<Option<&[u64]>> = Vec::new();
        let mut segments: Vec<Option<&[Lane]>> = Vec::new();
        let sources = (0..c.kernel[0]).map(|i| c.source(0, row.y, i)).collect::<Vec<_>>();
        // Neighbouring positions share inputs: whole words go along the row group by group, so that a group's window
        // stays in the cache; limbs take all groups of a position together, as they lie in memory.
        let along_row = self.storage == Storage::Words;
        for step in 0..width * c.groups {
            let (group, x) =
                if along_row { (step / width, step % width) } else { (step % c.groups, step / c.groups) };
            let Some(p) = self.groups.get(group) else { continue };
            let first = group * per_group;
            let start = row.start.get(first..first + per_group).unwrap_or(&[]);
            match self.storage {
                Storage::Words => {
                    gather_words(row, &sources, (group, x), &mut rows)?;
                    p.multiply(&rows, start, &mut out, &mut work.scratch)
                }
                Storage::Limbs => {
                    gather_limbs(row, &sources, (group, x), &mut segments)?;
                    p.multiply_limbs(&segments, 0, start, &mut out, &mut work.scratch)
                }
            }
            .map_err(LayerError::from)?;
            for (m, words) in out.iter_mut().enumerate() {
                emit((first + m) * width + x, words)?;
            }
        }
        Ok(())
    }
}

/// One output row of a convolution, one range of words.
struct ConvRow<'a> {
    conv: &'a Conv2d,
    /// Output row.
    y: usize,
    shape: &'a Shape,
    store: &'a RangeStore,
    /// Constant of every output channel, or empty.
    start: &'a [u64],
}

/// Rows of words of one position and group, kernel position by kernel position.
fn gather_words<'a>(
    row: &ConvRow<'a>,
    sources: &[Option<usize>],
    (group, x): (usize, usize),
    rows: &mut Vec<Option<&'a [u64]>>,
) -> Result<(), LayerError> {
    let c = row.conv;
    let channels = c.group_inputs();
    let count = row.store.range.len();
    let stride = stride(count);
    rows.clear();
    for source in sources {
        let line = source.map(|y| row.store.words(row.shape, y)).transpose()?;
        for j in 0..c.kernel[1] {
            match (line, c.source(1, x, j)) {
                (Some(line), Some(column)) => rows.extend((0..channels).map(|z| {
                    let at = ((group * channels + z) * c.input[2] + column) * stride;
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
    row: &ConvRow<'a>,
    sources: &[Option<usize>],
    (group, x): (usize, usize),
    segments: &mut Vec<Option<&'a [Lane]>>,
) -> Result<(), LayerError> {
    let c = row.conv;
    let lanes = row.shape.group_lanes(row.store.range.len());
    segments.clear();
    for source in sources {
        let line = source.map(|y| row.store.lanes(row.shape, y)).transpose()?;
        for j in 0..c.kernel[1] {
            segments.push(match (line, c.source(1, x, j)) {
                (Some(line), Some(column)) => Some(&line[(column * c.groups + group) * lanes..]),
                _ => None,
            });
        }
    }
    Ok(())
}
