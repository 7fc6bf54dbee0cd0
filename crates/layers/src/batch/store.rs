//! The server's sliding window of input rows.

use super::apply::Storage;
use super::error::expect;
use super::LayerError;
use hushnet_matmul::{Lane, Layout};
use hushnet_ring::{AlignedWords, Isa};
use rayon::prelude::*;
use std::collections::VecDeque;
use std::ops::Range;

/// Input rows of a tile and those that later tiles still read, as the layer's kernel reads them:
/// whole words or byte limbs. Memory stays at the rows of the window.
pub struct RowStore {
    pub(crate) shape: Shape,
    rows: VecDeque<Row>,
    /// Index of the first row of the window.
    first: usize,
    spare: Vec<Row>,
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

enum Row {
    /// Every feature at a stride, in wire order: channel, column.
    Words(AlignedWords),
    /// Every position's groups of segments, then slack.
    Limbs(Vec<Lane>),
}

impl Shape {
    /// Words from feature to feature. Not a multiple of the cache's way size: the same words of
    /// neighbouring features must not fall on the same cache sets.
    pub(crate) fn stride(&self) -> usize {
        self.words.next_multiple_of(8) + 8 * 17
    }

    fn features(&self) -> usize {
        self.columns * self.groups * self.group_channels
    }

    /// Lanes of one group of one position.
    pub(crate) fn group_lanes(&self) -> usize {
        self.layouts.iter().map(|l| l.segment_lanes(self.words)).sum()
    }

    fn row_lanes(&self) -> usize {
        self.columns * self.groups * self.group_lanes()
    }

    fn slack(&self) -> usize {
        self.layouts.iter().map(Layout::slack_lanes).max().unwrap_or(0)
    }

    /// Bytes of one row (a dense layer: of all features).
    pub(crate) fn row_bytes(&self) -> usize {
        match self.storage {
            Storage::Words => 8 * self.features() * self.stride(),
            Storage::Limbs => 64 * (self.row_lanes() + self.slack()),
        }
    }

    fn new_row(&self) -> Row {
        match self.storage {
            Storage::Words => Row::Words(AlignedWords::new(self.features() * self.stride())),
            Storage::Limbs => Row::Limbs(vec![Lane::ZERO; self.row_lanes() + self.slack()]),
        }
    }
}

impl RowStore {
    pub(crate) fn new(shape: Shape) -> Self {
        Self { shape, rows: VecDeque::new(), first: 0, spare: Vec::new() }
    }

    /// Input rows (dense: whether any features) in memory.
    #[must_use]
    pub fn rows_held(&self) -> usize {
        self.rows.len()
    }

    /// Bytes in use, spare rows included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        (self.rows.len() + self.spare.len()) * self.shape.row_bytes()
    }

    /// Forgets all rows and keeps the memory, for the next block of images.
    pub fn clear(&mut self) {
        self.spare.extend(self.rows.drain(..));
        self.first = 0;
    }

    /// Drops the rows before `row` (not of a dense layer, whose features are all needed to the end).
    pub fn drop_before(&mut self, row: usize) {
        if self.shape.dense {
            return;
        }
        while self.first < row {
            match self.rows.pop_front() {
                Some(r) => self.spare.push(r),
                None => break,
            }
            self.first += 1;
        }
    }

    /// Adds the input rows `rows` of the geometry (dense: features), in order after those before.
    /// `fill(position, words)` writes the words (below 2^k) of the feature at `position` among
    /// the new ones in wire order; it is called once for every feature, by several threads.
    ///
    /// # Errors
    /// [`LayerError`] when rows come out of order; what `fill` returns.
    pub fn add_rows<E, F>(&mut self, rows: Range<usize>, fill: F) -> Result<(), E>
    where
        E: From<LayerError> + Send,
        F: Fn(usize, &mut [u64]) -> Result<(), E> + Sync,
    {
        if rows.is_empty() {
            return Ok(());
        }
        if self.shape.dense {
            return self.add_features(rows, &fill);
        }
        expect("first new input row", self.first + self.rows.len(), rows.start)?;
        for index in 0..rows.len() {
            let mut row = self.spare.pop().unwrap_or_else(|| self.shape.new_row());
            let features = self.shape.features();
            let at = index * features;
            let shape = &self.shape;
            match &mut row {
                Row::Words(w) => fill_words(shape, w, at, 0..features, &fill)?,
                Row::Limbs(lanes) => {
                    let group = shape.group_lanes();
                    lanes[..shape.row_lanes()].par_chunks_mut(group).enumerate().try_for_each(
                        |(place, lanes)| {
                            let (column, g) = (place / shape.groups, place % shape.groups);
                            let position =
                                |c: usize| at + (g * shape.group_channels + c) * shape.columns + column;
                            fill_limbs(shape, &shape.layouts[0], shape.group_channels, lanes, position, &fill)
                        },
                    )?;
                }
            }
            self.rows.push_back(row);
        }
        Ok(())
    }

    /// Features of a dense layer, which are one row.
    fn add_features<E, F>(&mut self, range: Range<usize>, fill: &F) -> Result<(), E>
    where
        E: From<LayerError> + Send,
        F: Fn(usize, &mut [u64]) -> Result<(), E> + Sync,
    {
        expect("first new input feature", self.first, range.start)?;
        let shape = &self.shape;
        if range.end > shape.features() {
            let (expected, got) = (shape.features(), range.end);
            return Err(LayerError::Length { what: "input features", expected, got }.into());
        }
        if self.rows.is_empty() {
            self.rows.push_back(self.spare.pop().unwrap_or_else(|| shape.new_row()));
        }
        match self.rows.front_mut() {
            Some(Row::Words(w)) => fill_words(shape, w, 0, range.clone(), fill)?,
            Some(Row::Limbs(lanes)) => {
                let mut parts = Vec::new();
                let (mut rest, mut first) = (&mut lanes[..], 0);
                for layout in &shape.layouts {
                    let (segment, more) = rest.split_at_mut(layout.segment_lanes(shape.words));
                    let end = (first + 4 * shape.layouts[0].quads()).min(shape.features());
                    if first < range.end && range.start < end {
                        parts.push((segment, layout, first, end));
                    }
                    (rest, first) = (more, end);
                }
                parts.into_par_iter().try_for_each(|(segment, layout, first, end)| {
                    let wanted = range.start.max(first)..range.end.min(end);
                    if wanted == (first..end) {
                        let position = |c: usize| first + c - range.start;
                        return fill_limbs(shape, layout, end - first, segment, position, fill);
                    }
                    let mut words = AlignedWords::new(shape.words);
                    wanted.into_iter().try_for_each(|feature| {
                        fill(feature - range.start, &mut words)?;
                        layout.insert(feature - first, &words, segment).map_err(LayerError::from)?;
                        Ok(())
                    })
                })?;
            }
            None => {}
        }
        self.first = range.end;
        Ok(())
    }

    /// Whether all features of a dense layer have come.
    pub(crate) fn complete(&self) -> bool {
        !self.shape.dense || self.first == self.shape.features()
    }

    fn row(&self, row: usize) -> Result<&Row, LayerError> {
        let index = if self.shape.dense { Some(0) } else { row.checked_sub(self.first) };
        index.and_then(|i| self.rows.get(i)).ok_or(LayerError::RowMissing(row))
    }

    /// The words of a whole row, feature after feature at [`Shape::stride`].
    pub(crate) fn words(&self, row: usize) -> Result<&[u64], LayerError> {
        match self.row(row)? {
            Row::Words(w) => Ok(w),
            Row::Limbs(_) => Err(LayerError::ForeignStore),
        }
    }

    /// The lanes of a whole row.
    pub(crate) fn lanes(&self, row: usize) -> Result<&[Lane], LayerError> {
        match self.row(row)? {
            Row::Limbs(l) => Ok(l),
            Row::Words(_) => Err(LayerError::ForeignStore),
        }
    }
}

/// Fills features `range` of a row of words; the first of them is at position `at`.
fn fill_words<E, F>(shape: &Shape, row: &mut [u64], at: usize, range: Range<usize>, fill: &F) -> Result<(), E>
where
    E: From<LayerError> + Send,
    F: Fn(usize, &mut [u64]) -> Result<(), E> + Sync,
{
    let stride = shape.stride();
    row[range.start * stride..range.end * stride]
        .par_chunks_mut(stride)
        .enumerate()
        .try_for_each(|(i, words)| fill(at + i, &mut words[..shape.words]))
}

/// Fills and packs all quads of one segment.
fn fill_limbs<E, F>(
    shape: &Shape,
    layout: &Layout,
    channels: usize,
    segment: &mut [Lane],
    position: impl Fn(usize) -> usize,
    fill: &F,
) -> Result<(), E>
where
    E: From<LayerError> + Send,
    F: Fn(usize, &mut [u64]) -> Result<(), E> + Sync,
{
    let mut words = AlignedWords::new(4 * shape.words);
    for quad in 0..layout.quads() {
        let count = 4.min(channels - 4 * quad);
        let mut four = [None; 4];
        for (i, words) in words.chunks_exact_mut(shape.words).take(count).enumerate() {
            fill(position(4 * quad + i), words)?;
        }
        for (slot, words) in four.iter_mut().zip(words.chunks_exact(shape.words)).take(count) {
            *slot = Some(words);
        }
        layout.pack(shape.isa, quad, four, segment).map_err(LayerError::from)?;
    }
    Ok(())
}
