//! Pooling over windows of channel-major images.

use super::divide::{divide, divide_cost, Quotient};
use super::maximum::{max_many, max_many_cost, max_many_wide, max_many_wide_cost};
use super::narrow::{narrowed, Narrowing};
use super::truncate::Range;
use crate::cost::CostModel;
use crate::error::{check_len, MpcError, Result};
use crate::ring::Ring;
use crate::Session;

/// Geometry of a pooling layer; the input is `channels * height * width` values, channel-major, row-major. Pairs
/// are (vertical, horizontal).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolShape {
    /// Channels (times images).
    pub channels: usize,
    /// Rows of the input.
    pub height: usize,
    /// Columns of the input.
    pub width: usize,
    /// Window.
    pub kernel: (usize, usize),
    /// Step.
    pub stride: (usize, usize),
    /// Rows (columns) of padding at the start and at the end.
    pub padding: [(usize, usize); 2],
}

/// Largest length, window, step or padding along an axis: sums of four of them are far from 64 bits.
pub const MAX_AXIS: usize = 1 << 24;

/// One axis: for each output, the first and one-past-last input inside its window. Made of numbers alone, so that a hostile geometry
/// costs nothing before its output size is compared with what it should be.
#[derive(Clone, Copy)]
struct Axis {
    length: usize,
    kernel: usize,
    stride: usize,
    before: usize,
    outputs: usize,
}

impl Axis {
    fn new(length: usize, kernel: usize, stride: usize, (before, after): (usize, usize)) -> Result<Self> {
        for (what, got) in [
            ("length of a pooled axis", length),
            ("pooling window", kernel),
            ("pooling stride", stride),
            ("pooling padding", before.max(after)),
        ] {
            if got > MAX_AXIS {
                return Err(MpcError::Parameter { what, got: got as u64, limit: MAX_AXIS as u64 });
            }
        }
        // No overflow: three numbers of at most 2^24.
        let padded = length + before + after;
        if kernel == 0 || stride == 0 || kernel > padded {
            return Err(MpcError::Parameter {
                what: "pooling window",
                got: kernel as u64,
                limit: padded as u64,
            });
        }
        if before >= kernel || after >= kernel {
            let got = before.max(after) as u64;
            return Err(MpcError::Parameter { what: "pooling padding", got, limit: kernel as u64 - 1 });
        }
        // The first window ends behind the first element and the last begins before the last one, as paddings are below the kernel.
        if length == 0 {
            return Err(MpcError::Parameter { what: "empty pooling window", got: 0, limit: 0 });
        }
        Ok(Self { length, kernel, stride, before, outputs: (padded - kernel) / stride + 1 })
    }

    /// Outputs along the axis.
    fn len(&self) -> usize {
        self.outputs
    }

    /// First and one-past-last input of output `o`.
    fn window(&self, o: usize) -> (usize, usize) {
        let start = (o * self.stride).saturating_sub(self.before);
        (start, (o * self.stride + self.kernel - self.before).min(self.length))
    }

    /// All windows in order.
    fn windows(self) -> impl Iterator<Item = (usize, usize)> + Clone {
        (0..self.outputs).map(move |o| self.window(o))
    }

    /// Most elements that a window sees. Windows grow up to the last that begins in the padding, and shrink from the next one on.
    fn longest(&self) -> usize {
        let last = self.before / self.stride;
        let length = |o: usize| {
            let (start, end) = self.window(o.min(self.outputs - 1));
            end - start
        };
        length(last).max(length(last + 1))
    }

    /// Input of output o's k-th place; places outside repeat the last one, which changes no maximum.
    fn pick(&self, o: usize, k: usize) -> usize {
        let (start, end) = self.window(o);
        (start + k).min(end - 1)
    }
}

impl PoolShape {
    fn axes(&self) -> Result<(Axis, Axis)> {
        Ok((
            Axis::new(self.height, self.kernel.0, self.stride.0, self.padding[0])?,
            Axis::new(self.width, self.kernel.1, self.stride.1, self.padding[1])?,
        ))
    }

    /// Rows and columns of the output. Allocates nothing, whatever the numbers are.
    ///
    /// # Errors
    /// `Parameter` when a number is above [`MAX_AXIS`], or a window does not fit or lies wholly in the padding.
    pub fn output(&self) -> Result<(usize, usize)> {
        let (v, h) = self.axes()?;
        Ok((v.len(), h.len()))
    }

    /// Places of a window that are not all padding, (vertical, horizontal): at most the kernel, at most the image.
    ///
    /// # Errors
    /// As [`Self::output`].
    pub fn reach(&self) -> Result<(usize, usize)> {
        let (v, h) = self.axes()?;
        Ok((v.longest(), h.longest()))
    }

    /// Places of a window, and for every output (channel, row, column) the input indices of its window; places in the padding
    /// repeat another of the window, which changes no maximum.
    pub(crate) fn windows(&self) -> Result<(usize, Vec<usize>)> {
        let (v, h) = self.axes()?;
        let (tall, wide) = (v.longest(), h.longest());
        let mut at = Vec::with_capacity(self.channels * v.len() * h.len() * tall * wide);
        for c in 0..self.channels {
            for (i, j) in (0..v.len()).flat_map(|i| (0..h.len()).map(move |j| (i, j))) {
                for (k, l) in (0..tall).flat_map(|k| (0..wide).map(move |l| (k, l))) {
                    at.push((c * self.height + v.pick(i, k)) * self.width + h.pick(j, l));
                }
            }
        }
        Ok((tall * wide, at))
    }

    /// The k-th places of all windows of all rows, for every k.
    fn across(&self, x: &[u64]) -> Result<Vec<Vec<u64>>> {
        let (_, h) = self.axes()?;
        let places = |k: usize| {
            let rows = x.chunks_exact(self.width.max(1));
            rows.flat_map(|row| (0..h.len()).map(|o| row[h.pick(o, k)])).collect()
        };
        Ok((0..h.longest()).map(places).collect())
    }

    /// The same down the columns of what [`Self::across`] has left.
    fn down(&self, x: &[u64]) -> Result<Vec<Vec<u64>>> {
        let (v, h) = self.axes()?;
        let width = h.len();
        let places = |k: usize| {
            let mut out = Vec::with_capacity(self.channels * v.len() * width);
            for c in 0..self.channels {
                for o in 0..v.len() {
                    let row = c * self.height + v.pick(o, k);
                    out.extend_from_slice(&x[row * width..(row + 1) * width]);
                }
            }
            out
        };
        Ok((0..v.longest()).map(places).collect())
    }

    fn input_len(&self) -> usize {
        self.channels * self.height * self.width
    }
}

/// Shares of the window maxima, padding excluded. Columns first, then rows, so that overlapping windows share work: a
/// 3x3 window of stride 2 takes 6 comparisons per output instead of 8, of stride 1 four. Needs the values of a
/// window within 2^(w-1) of each other, w the bits of `narrow`, where differences are compared.
///
/// # Errors
/// `Length` when x is not `channels*height*width` long; `Parameter` as [`PoolShape::output`]; otherwise as [`max_many`].
pub fn max_pool(s: &mut Session, x: &[u64], ring: Ring, narrow: Ring, shape: PoolShape) -> Result<Vec<u64>> {
    check_len("pooled tensor", shape.input_len(), x.len())?;
    let across = max_many(s, shape.across(x)?, ring, narrow)?;
    max_many(s, shape.down(&across)?, ring, narrow)
}

/// Adds the exact traffic and rounds of [`max_pool`] to the model, both directions.
pub fn max_pool_cost(m: &mut CostModel, ring: Ring, narrow: Ring, shape: PoolShape) {
    let Ok((v, h)) = shape.axes() else { return };
    max_many_cost(m, h.longest(), shape.channels * shape.height * h.len(), ring, narrow);
    max_many_cost(m, v.longest(), shape.channels * v.len() * h.len(), ring, narrow);
}

/// [`max_pool`] of what [`super::narrowed`] gives of x, and [`super::widened`] of the result, which the last comparison does. Maxima lie in [least, least + 2^(w-1)).
///
/// # Errors
/// As [`max_pool`] and [`super::narrowed`].
pub fn max_pool_dividing(
    s: &mut Session,
    x: &[u64],
    of: Narrowing,
    least: i64,
    shape: PoolShape,
) -> Result<Vec<u64>> {
    let y = narrowed(s, x, of)?;
    check_len("pooled tensor", shape.input_len(), y.len())?;
    let across = shape.across(&y)?;
    if shape.axes()?.0.longest() == 1 {
        return shape.down(&max_many_wide(s, across, of, least)?).map(|mut one| one.swap_remove(0));
    }
    let across = max_many(s, across, of.narrow, of.narrow)?;
    max_many_wide(s, shape.down(&across)?, of, least)
}

/// Adds the exact traffic and rounds of [`max_pool_dividing`] to the model, both directions.
pub fn max_pool_dividing_cost(m: &mut CostModel, of: Narrowing, shape: PoolShape) {
    let Ok((v, h)) = shape.axes() else { return };
    let rows = shape.channels * shape.height * h.len();
    if v.longest() == 1 {
        return max_many_wide_cost(m, h.longest(), rows, of);
    }
    max_many_cost(m, h.longest(), rows, of.narrow, of.narrow);
    max_many_wide_cost(m, v.longest(), shape.channels * v.len() * h.len(), of);
}

/// Shares of floor(sum/count) over windows; `count_padding` divides every window by kernel height times width, which is
/// the only form supported with padding (windows of different counts would need different divisors). Sums must
/// lie in `range` of [`divide`].
///
/// # Errors
/// As [`max_pool`] and [`divide`]; `Parameter` when there is padding and `count_padding` is false.
pub fn average_pool(
    s: &mut Session,
    x: &[u64],
    ring: Ring,
    shape: PoolShape,
    count_padding: bool,
    (range, quotient): (Range, Quotient),
) -> Result<Vec<u64>> {
    check_len("pooled tensor", shape.input_len(), x.len())?;
    let (v, h) = shape.axes()?;
    if !count_padding && shape.padding != [(0, 0); 2] {
        return Err(MpcError::Parameter {
            what: "average pooling padding that is not counted",
            got: 1,
            limit: 0,
        });
    }
    let mut sums = Vec::with_capacity(shape.channels * v.len() * h.len());
    for plane in x.chunks(shape.height * shape.width) {
        for (top, bottom) in v.windows() {
            for (left, right) in h.windows() {
                let row = |r: usize| plane[r * shape.width + left..r * shape.width + right].iter();
                let sum = (top..bottom).flat_map(row).fold(0u64, |a, &b| a.wrapping_add(b));
                sums.push(ring.reduce(sum));
            }
        }
    }
    let count = (shape.kernel.0 * shape.kernel.1) as u64;
    if count == 1 {
        return Ok(sums);
    }
    divide(s, &sums, count, ring, range, quotient)
}

/// Adds the exact traffic and rounds of [`average_pool`] to the model, both directions.
pub fn average_pool_cost(
    m: &mut CostModel,
    ring: Ring,
    shape: PoolShape,
    (range, quotient): (Range, Quotient),
) {
    let Ok((rows, columns)) = shape.output() else { return };
    let count = (shape.kernel.0 * shape.kernel.1) as u64;
    if count > 1 {
        divide_cost(m, shape.channels * rows * columns, count, ring, range, quotient);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Windows, their number and the longest one, against the definition.
        #[test]
        fn axes_are_their_windows(length in 1usize..20, kernel in 1usize..24, stride in 1usize..9, before in 0usize..24, after in 0usize..24) {
            let Ok(axis) = Axis::new(length, kernel, stride, (before, after)) else {
                prop_assert!(kernel > length + before + after || before >= kernel || after >= kernel);
                return Ok(());
            };
            let seen = |o: usize| (0..length).filter(|i| (o * stride..o * stride + kernel).contains(&(i + before))).collect::<Vec<_>>();
            let all: Vec<Vec<usize>> = (0..).take_while(|o| o * stride + kernel <= length + before + after).map(seen).collect();
            prop_assert_eq!(axis.len(), all.len());
            for ((start, end), window) in axis.windows().zip(&all) {
                prop_assert_eq!(&(start..end).collect::<Vec<_>>(), window);
                prop_assert!(start < end);
            }
            prop_assert_eq!(axis.longest(), all.iter().map(Vec::len).max().unwrap());
        }
    }

    #[test]
    fn hostile_windows_are_refused_or_counted_without_listing_them() {
        let shape = |kernel: usize, pad: usize| PoolShape {
            channels: 1,
            height: 2,
            width: 1,
            kernel: (kernel, 1),
            stride: (1, 1),
            padding: [(pad, pad), (0, 0)],
        };
        // 2^24 + 1 windows are counted, not listed.
        assert_eq!(shape(1 << 24, (1 << 24) - 1).output().unwrap(), ((1 << 24) + 1, 1));
        for (kernel, pad) in
            [(1 << 36, (1 << 36) - 1), (1 << 63, 1 << 63), (usize::MAX, usize::MAX), (2, usize::MAX)]
        {
            assert!(matches!(shape(kernel, pad).output(), Err(MpcError::Parameter { .. })), "{kernel} {pad}");
        }
    }
}
