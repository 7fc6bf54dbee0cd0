//! The server's sliding window of input rows.

use super::apply::Storage;
use super::error::expect;
use super::LayerError;
use hushnet_matmul::{Lane, Layout};
use hushnet_ring::{AlignedWords, Isa};
use rayon::prelude::*;
use std::collections::VecDeque;
use std::ops::Range;

/// Quads of features whose whole polynomials [`RowStore::add_rows`] holds at a time.
const WHOLE: usize = 16;

/// Input rows of a tile and those that later tiles still read, as the layer's kernel reads them:
/// whole words or byte limbs. Memory stays at the rows of the window.
///
/// The polynomials are cut into ranges of words, each stored by itself: a thread takes a range through storing,
/// multiplying and emitting while it is in the cache.
pub struct RowStore {
    pub(crate) shape: Shape,
    pub(crate) ranges: Vec<RangeStore>,
}

/// How rows are stored; equal for stores and layers that fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) isa: Isa,
    pub(crate) storage: Storage,
    /// Words of a polynomial.
    pub(crate) words: usize,
    /// Positions of a row (W), and channels of every position in order of the groups; a dense layer
    /// is one row of one position.
    pub(crate) columns: usize,
    pub(crate) groups: usize,
    pub(crate) group_channels: usize,
    /// Whether rows of the geometry are features of one single row.
    pub(crate) dense: bool,
    /// Limb layouts of the segments of one position and group.
    pub(crate) layouts: Vec<Layout>,
}

/// Up to four neighbouring channels of one group at one position.
struct Quad {
    /// Which new row.
    row: usize,
    column: usize,
    group: usize,
    /// First channel within the group.
    first: usize,
    /// Channels that there are.
    count: usize,
    /// Features of the row that come now.
    features: [Option<usize>; 4],
}

/// The window of one range of words.
pub(crate) struct RangeStore {
    /// Which words.
    pub(crate) range: Range<usize>,
    rows: VecDeque<Row>,
    /// Index of the first row of the window; of a dense layer: how many features have come.
    first: usize,
    spare: Vec<Row>,
}

enum Row {
    /// Every feature at a stride, in wire order: channel, column.
    Words(AlignedWords),
    /// Every position's groups of segments, then slack.
    Limbs(Vec<Lane>),
}

impl Shape {
    pub(crate) fn features(&self) -> usize {
        self.columns * self.groups * self.group_channels
    }

    /// Lanes of one group of one position, `words` words each.
    pub(crate) fn group_lanes(&self, words: usize) -> usize {
        self.layouts.iter().map(|l| l.segment_lanes(words)).sum()
    }

    fn row_lanes(&self, words: usize) -> usize {
        self.columns * self.groups * self.group_lanes(words)
    }

    fn slack(&self) -> usize {
        self.layouts.iter().map(Layout::slack_lanes).max().unwrap_or(0)
    }

    /// Bytes of a range of `words` words of one row (a dense layer: of all features).
    pub(crate) fn row_bytes(&self, words: usize) -> usize {
        match self.storage {
            Storage::Words => 8 * self.features() * stride(words),
            Storage::Limbs => 64 * (self.row_lanes(words) + self.slack()),
        }
    }

    /// Quads of a row.
    fn quads(&self) -> usize {
        self.columns * self.groups * self.group_channels.div_ceil(4)
    }

    /// The `index`-th quad of a new row: neighbouring channels of one group at one position. Features outside of
    /// `wanted` do not come now.
    fn quad(&self, row: usize, index: usize, wanted: &Range<usize>) -> Quad {
        let per_group = self.group_channels.div_ceil(4);
        let (place, column) = (index / self.columns, index % self.columns);
        let (group, first) = (place / per_group, place % per_group * 4);
        let count = 4.min(self.group_channels - first);
        let feature = |i: usize| (group * self.group_channels + first + i) * self.columns + column;
        let features =
            std::array::from_fn(|i| (i < count).then(|| feature(i)).filter(|f| wanted.contains(f)));
        Quad { row, column, group, first, count, features }
    }

    /// Where a quad's limbs are in a row: first lane of its segment, the segment's layout, row of the segment.
    fn place(&self, words: usize, quad: &Quad) -> (usize, &Layout, usize) {
        let per_segment = 4 * self.layouts[0].quads();
        let segment = quad.first / per_segment;
        let before = segment * self.layouts[0].segment_lanes(words);
        let start = (quad.column * self.groups + quad.group) * self.group_lanes(words) + before;
        (start, &self.layouts[segment], quad.first % per_segment)
    }

    fn new_row(&self, words: usize) -> Row {
        match self.storage {
            Storage::Words => Row::Words(AlignedWords::new(self.features() * stride(words))),
            Storage::Limbs => Row::Limbs(vec![Lane::ZERO; self.row_lanes(words) + self.slack()]),
        }
    }
}

/// Words from feature to feature: an odd number of cache lines, so that the same words of neighbouring
/// features do not fall on the same cache sets.
pub(crate) fn stride(words: usize) -> usize {
    8 * (words.div_ceil(8) | 1)
}

impl RowStore {
    pub(crate) fn new(shape: Shape, range: usize) -> Self {
        let words = shape.words;
        let cut = |at: usize| RangeStore {
            range: at..words.min(at + range),
            rows: VecDeque::new(),
            first: 0,
            spare: Vec::new(),
        };
        Self { ranges: (0..words).step_by(range).map(cut).collect(), shape }
    }

    /// Input rows (dense: whether any features) in memory.
    #[must_use]
    pub fn rows_held(&self) -> usize {
        self.ranges.first().map_or(0, |r| r.rows.len())
    }

    /// Words of a range (the last may be shorter), a multiple of 16 unless a polynomial is shorter.
    #[must_use]
    pub fn range_words(&self) -> usize {
        self.ranges.first().map_or(1, |r| r.range.len())
    }

    /// Bytes in use, spare rows included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let bytes = |r: &RangeStore| (r.rows.len() + r.spare.len()) * self.shape.row_bytes(r.range.len());
        self.ranges.iter().map(bytes).sum()
    }

    /// Forgets all rows and keeps the memory, for the next block of images.
    pub fn clear(&mut self) {
        for r in &mut self.ranges {
            r.spare.extend(r.rows.drain(..));
            r.first = 0;
        }
    }

    /// Drops the rows before `row` (not of a dense layer, whose features are all needed to the end).
    pub fn drop_before(&mut self, row: usize) {
        for r in &mut self.ranges {
            r.drop_before(&self.shape, row);
        }
    }

    /// Adds the input rows `rows` of the geometry (dense: features), in order after those before.
    /// `fill(position, words)` writes all words (below 2^k) of the feature at `position` among
    /// the new ones in wire order; it is called once for every feature, by several threads.
    /// Where `fill` can write ranges of words, [`super::PreparedLinear::tile`] is faster.
    ///
    /// # Errors
    /// [`LayerError`] when rows come out of order; what `fill` returns.
    pub fn add_rows<E, F>(&mut self, rows: Range<usize>, fill: F) -> Result<(), E>
    where
        E: From<LayerError> + Send,
        F: Fn(usize, &mut [u64]) -> Result<(), E> + Sync,
    {
        let (shape, words) = (&self.shape, self.shape.words);
        self.ranges.iter_mut().try_for_each(|r| r.open(shape, &rows))?;
        let (new_rows, wanted) =
            if shape.dense { (1, rows.clone()) } else { (rows.len(), 0..shape.features()) };
        let quads = shape.quads();
        let mut whole = AlignedWords::new(4 * WHOLE * words);
        for at in (0..new_rows * quads).step_by(WHOLE) {
            let batch: Vec<Quad> = (at..(at + WHOLE).min(new_rows * quads))
                .map(|i| shape.quad(i / quads, i % quads, &wanted))
                .filter(|q| q.features.iter().any(Option::is_some))
                .collect();
            whole[..4 * batch.len() * words].par_chunks_mut(words).enumerate().try_for_each(
                |(i, words)| {
                    let quad = &batch[i / 4];
                    let Some(feature) = quad.features[i % 4] else { return Ok(()) };
                    fill(quad.row * shape.features() + feature - wanted.start, words)
                },
            )?;
            self.ranges.par_iter_mut().try_for_each(|r| {
                let (range, held) = (r.range.clone(), r.rows.len() - new_rows);
                batch.iter().enumerate().try_for_each(|(b, quad)| {
                    let four = std::array::from_fn(|i| {
                        let from = (4 * b + i) * words;
                        quad.features[i].map(|_| &whole[from + range.start..from + range.end])
                    });
                    r.insert(shape, held, quad, four)
                })
            })?;
        }
        Ok(())
    }
}

impl RangeStore {
    pub(crate) fn drop_before(&mut self, shape: &Shape, row: usize) {
        while !shape.dense && self.first < row {
            match self.rows.pop_front() {
                Some(r) => self.spare.push(r),
                None => break,
            }
            self.first += 1;
        }
    }

    /// Checks the order of new rows and makes room for them; what the room holds is not defined.
    fn open(&mut self, shape: &Shape, rows: &Range<usize>) -> Result<(), LayerError> {
        let words = self.range.len();
        let new = if shape.dense {
            expect("first new input feature", self.first, rows.start)?;
            if rows.end > shape.features() {
                let (expected, got) = (shape.features(), rows.end);
                return Err(LayerError::Length { what: "input features", expected, got });
            }
            self.first = rows.end;
            usize::from(self.rows.is_empty())
        } else {
            expect("first new input row", self.first + self.rows.len(), rows.start)?;
            rows.len()
        };
        for _ in 0..new {
            self.rows.push_back(self.spare.pop().unwrap_or_else(|| shape.new_row(words)));
        }
        Ok(())
    }

    /// Stores the features of a quad that have come, `held` rows after the window's first.
    fn insert(
        &mut self,
        shape: &Shape,
        held: usize,
        quad: &Quad,
        four: [Option<&[u64]>; 4],
    ) -> Result<(), LayerError> {
        let words = self.range.len();
        match self.rows.get_mut(held + quad.row) {
            Some(Row::Words(w)) => {
                for (feature, from) in quad.features.iter().zip(four) {
                    if let (Some(feature), Some(from)) = (feature, from) {
                        let at = feature * stride(words);
                        w[at..at + words].copy_from_slice(from);
                    }
                }
            }
            Some(Row::Limbs(lanes)) => {
                let (start, layout, index) = shape.place(words, quad);
                let come = four.iter().flatten().count();
                if come == quad.count {
                    layout.pack(shape.isa, index / 4, four, &mut lanes[start..])?;
                } else {
                    for (i, from) in four.into_iter().enumerate() {
                        from.map_or(Ok(()), |f| layout.insert(index + i, f, &mut lanes[start..]))?;
                    }
                }
            }
            None => return Err(LayerError::RowMissing(self.first)),
        }
        Ok(())
    }

    /// Adds rows whose words `fill(position, words)` writes, this range only.
    pub(crate) fn add<E: From<LayerError>>(
        &mut self,
        shape: &Shape,
        rows: &Range<usize>,
        fill: impl Fn(usize, &mut [u64]) -> Result<(), E>,
        four: &mut AlignedWords,
    ) -> Result<(), E> {
        if rows.is_empty() {
            return Ok(());
        }
        self.open(shape, rows)?;
        let words = self.range.len();
        let (new_rows, wanted) =
            if shape.dense { (1, rows.clone()) } else { (rows.len(), 0..shape.features()) };
        let held = self.rows.len() - new_rows;
        for index in 0..new_rows {
            let base = index * shape.features();
            if let Some(Row::Words(w)) = self.rows.get_mut(held + index) {
                for feature in wanted.clone() {
                    let at = feature * stride(words);
                    fill(base + feature - wanted.start, &mut w[at..at + words])?;
                }
                continue;
            }
            for quad in (0..shape.quads()).map(|q| shape.quad(index, q, &wanted)) {
                for (feature, buffer) in quad.features.iter().zip(four.chunks_exact_mut(words)) {
                    feature.map_or(Ok(()), |f| fill(base + f - wanted.start, buffer))?;
                }
                let rows =
                    std::array::from_fn(|i| quad.features[i].map(|_| &four[i * words..(i + 1) * words]));
                if rows.iter().any(Option::is_some) {
                    self.insert(shape, held, &quad, rows)?;
                }
            }
        }
        Ok(())
    }

    /// Whether all features of a dense layer have come.
    pub(crate) fn complete(&self, shape: &Shape) -> bool {
        !shape.dense || self.first == shape.features()
    }

    fn row(&self, shape: &Shape, row: usize) -> Result<&Row, LayerError> {
        let index = if shape.dense { Some(0) } else { row.checked_sub(self.first) };
        index.and_then(|i| self.rows.get(i)).ok_or(LayerError::RowMissing(row))
    }

    /// The words of a whole row, feature after feature at [`stride`].
    pub(crate) fn words(&self, shape: &Shape, row: usize) -> Result<&[u64], LayerError> {
        match self.row(shape, row)? {
            Row::Words(w) => Ok(w),
            Row::Limbs(_) => Err(LayerError::ForeignStore),
        }
    }

    /// The lanes of a whole row.
    pub(crate) fn lanes(&self, shape: &Shape, row: usize) -> Result<&[Lane], LayerError> {
        match self.row(shape, row)? {
            Row::Limbs(l) => Ok(l),
            Row::Words(_) => Err(LayerError::ForeignStore),
        }
    }
}
