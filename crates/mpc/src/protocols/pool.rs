//! Pooling over windows of channel-major images.

use super::divide::{divide, divide_cost, Quotient};
use super::maximum::{max_many, max_many_cost};
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

/// One axis: for each output, the first and one-past-last input inside its window.
struct Axis(Vec<(usize, usize)>);

impl Axis {
    fn new(length: usize, kernel: usize, stride: usize, (before, after): (usize, usize)) -> Result<Self> {
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
        let window = |o: usize| {
            let start = (o * stride).saturating_sub(before);
            (start, (o * stride + kernel - before).min(length))
        };
        let axis: Vec<_> = (0..=(padded - kernel) / stride).map(window).collect();
        if let Some(&(start, end)) = axis.iter().find(|(a, b)| a >= b) {
            return Err(MpcError::Parameter {
                what: "empty pooling window",
                got: start as u64,
                limit: end as u64,
            });
        }
        Ok(Self(axis))
    }

    /// Longest window that is not all padding.
    fn longest(&self) -> usize {
        self.0.iter().map(|(a, b)| b - a).max().unwrap_or(0)
    }

    /// Input of output o's k-th place; places outside repeat the last one, which changes no maximum.
    fn pick(&self, o: usize, k: usize) -> usize {
        let (start, end) = self.0[o];
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

    /// Rows and columns of the output.
    ///
    /// # Errors
    /// `Parameter` when a window does not fit or lies wholly in the padding.
    pub fn output(&self) -> Result<(usize, usize)> {
        let (v, h) = self.axes()?;
        Ok((v.0.len(), h.0.len()))
    }

    /// Places of a window, and for every output (channel, row, column) the input indices of its window; places in the padding
    /// repeat another of the window, which changes no maximum.
    pub(crate) fn windows(&self) -> Result<(usize, Vec<usize>)> {
        let (v, h) = self.axes()?;
        let (tall, wide) = (v.longest(), h.longest());
        let mut at = Vec::with_capacity(self.channels * v.0.len() * h.0.len() * tall * wide);
        for c in 0..self.channels {
            for (i, j) in (0..v.0.len()).flat_map(|i| (0..h.0.len()).map(move |j| (i, j))) {
                for (k, l) in (0..tall).flat_map(|k| (0..wide).map(move |l| (k, l))) {
                    at.push((c * self.height + v.pick(i, k)) * self.width + h.pick(j, l));
                }
            }
        }
        Ok((tall * wide, at))
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
    let (v, h) = shape.axes()?;
    let rows = shape.channels * shape.height;
    let across: Vec<Vec<u64>> = (0..h.longest())
        .map(|k| {
            (0..rows)
                .flat_map(|r| (0..h.0.len()).map(move |o| (r, o)))
                .map(|(r, o)| x[r * shape.width + h.pick(o, k)])
                .collect()
        })
        .collect();
    let x = max_many(s, across, ring, narrow)?;
    let width = h.0.len();
    let down: Vec<Vec<u64>> = (0..v.longest())
        .map(|k| {
            let mut out = Vec::with_capacity(shape.channels * v.0.len() * width);
            for c in 0..shape.channels {
                for o in 0..v.0.len() {
                    let row = c * shape.height + v.pick(o, k);
                    out.extend_from_slice(&x[row * width..(row + 1) * width]);
                }
            }
            out
        })
        .collect();
    max_many(s, down, ring, narrow)
}

/// Cost of [`max_pool`].
pub fn max_pool_cost(m: &mut CostModel, ring: Ring, narrow: Ring, shape: PoolShape) {
    let Ok((v, h)) = shape.axes() else { return };
    max_many_cost(m, h.longest(), shape.channels * shape.height * h.0.len(), ring, narrow);
    max_many_cost(m, v.longest(), shape.channels * v.0.len() * h.0.len(), ring, narrow);
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
    let mut sums = Vec::with_capacity(shape.channels * v.0.len() * h.0.len());
    for plane in x.chunks(shape.height * shape.width) {
        for &(top, bottom) in &v.0 {
            for &(left, right) in &h.0 {
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

/// Cost of [`average_pool`].
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
