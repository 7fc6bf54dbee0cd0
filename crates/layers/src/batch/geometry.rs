//! Shapes of linear layers, as plans write them.

use super::LayerError;
use serde::{Deserialize, Serialize};

/// Largest size along an axis, pad, stride or dilation.
const AXIS: usize = 1 << 24;
/// Largest number of features or weights of a layer.
const ELEMENTS: usize = 1 << 31;
/// Most positions of a kernel: a whole image of 512 x 512. Layouts hold a record of each.
const POSITIONS: usize = 1 << 18;

/// A dense layer: weights `[outputs, inputs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dense {
    /// Input features K.
    pub inputs: usize,
    /// Output features M.
    pub outputs: usize,
}

/// A two-dimensional convolution with zero padding: weights `[O, C/groups, kh, kw]`.
///
/// Output (o, y, x) is the sum over its group's channels c and kernel positions (i, j) of
/// `weight[o, c, i, j] * input[c, y sh - top + i dh, x sw - left + j dw]`, terms outside of the input being absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv2d {
    /// Channels C, height H, width W.
    pub input: [usize; 3],
    /// Channels O, height OH, width OW.
    pub output: [usize; 3],
    /// Kernel height and width.
    pub kernel: [usize; 2],
    /// Steps down and right.
    pub stride: [usize; 2],
    /// Zeros at the top, left, bottom and right.
    pub pads: [usize; 4],
    /// Distances between kernel positions.
    pub dilation: [usize; 2],
    /// Groups of channels that do not mix.
    pub groups: usize,
}

/// The unchecked form, exactly the JSON of `docs/plan-format.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Spec {
    Dense(Dense),
    Conv2d(Conv2d),
}

/// A checked geometry: all sizes are consistent, and no product of sizes overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Spec", into = "Spec")]
pub enum Geometry {
    /// A dense layer.
    Dense(CheckedDense),
    /// A convolution.
    Conv2d(CheckedConv2d),
}

/// A [`Dense`] that passed the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedDense(Dense);

/// A [`Conv2d`] that passed the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedConv2d(Conv2d);

impl std::ops::Deref for CheckedDense {
    type Target = Dense;
    fn deref(&self) -> &Dense {
        &self.0
    }
}

impl std::ops::Deref for CheckedConv2d {
    type Target = Conv2d;
    fn deref(&self) -> &Conv2d {
        &self.0
    }
}

fn size(what: &'static str, got: usize, least: usize) -> Result<(), LayerError> {
    if (least..=AXIS).contains(&got) {
        Ok(())
    } else {
        Err(LayerError::Size { what, got, least, most: AXIS })
    }
}

/// The product of sizes, at most [`ELEMENTS`].
fn elements(what: &'static str, sizes: &[usize]) -> Result<usize, LayerError> {
    let product = sizes.iter().try_fold(1usize, |p, s| p.checked_mul(*s)).unwrap_or(usize::MAX);
    if product <= ELEMENTS {
        Ok(product)
    } else {
        Err(LayerError::Size { what, got: product, least: 1, most: ELEMENTS })
    }
}

impl Dense {
    fn check(&self) -> Result<(), LayerError> {
        size("dense inputs", self.inputs, 1)?;
        size("dense outputs", self.outputs, 1)?;
        elements("number of dense weights", &[self.outputs, self.inputs]).map(drop)
    }
}

impl Conv2d {
    fn check(&self) -> Result<(), LayerError> {
        let [c, h, w] = self.input;
        let [o, oh, ow] = self.output;
        size("input channels", c, 1)?;
        size("input height", h, 1)?;
        size("input width", w, 1)?;
        size("output channels", o, 1)?;
        size("output height", oh, 1)?;
        size("output width", ow, 1)?;
        for axis in 0..2 {
            size(["kernel height", "kernel width"][axis], self.kernel[axis], 1)?;
            size(["vertical stride", "horizontal stride"][axis], self.stride[axis], 1)?;
            size(["vertical dilation", "horizontal dilation"][axis], self.dilation[axis], 1)?;
        }
        for (pad, what) in self.pads.iter().zip(["top pad", "left pad", "bottom pad", "right pad"]) {
            size(what, *pad, 0)?;
        }
        size("groups", self.groups, 1)?;
        for (what, channels) in [("input", c), ("output", o)] {
            if channels % self.groups != 0 {
                return Err(LayerError::Groups { what, groups: self.groups, channels });
            }
        }
        elements("number of input features", &[c, h, w])?;
        elements("number of output features", &[o, oh, ow])?;
        elements("number of weights", &[o, c / self.groups, self.kernel[0], self.kernel[1]])?;
        let got = elements("number of kernel positions", &self.kernel)?;
        if got > POSITIONS {
            let what = "number of kernel positions";
            return Err(LayerError::Size { what, got, least: 1, most: POSITIONS });
        }
        for (axis, what) in ["height", "width"].into_iter().enumerate() {
            // At most 2^24 * 2^24 and sums of three axes: no overflow in 64 bits.
            let padded = self.input[1 + axis] as u64 + self.pads[axis] as u64 + self.pads[axis + 2] as u64;
            let reach = self.dilation[axis] as u64 * (self.kernel[axis] as u64 - 1) + 1;
            if reach > padded {
                let (kernel, input) = (reach as usize, padded as usize);
                return Err(LayerError::KernelTooLarge { what, kernel, input });
            }
            let expected = ((padded - reach) / self.stride[axis] as u64 + 1) as usize;
            let got = self.output[1 + axis];
            if got != expected {
                return Err(LayerError::OutputSize { what, expected, got });
            }
        }
        Ok(())
    }

    /// Input position of output position `at` and kernel position `tap` along an axis (0 down, 1 right); `None` in
    /// the padding.
    #[must_use]
    pub fn source(&self, axis: usize, at: usize, tap: usize) -> Option<usize> {
        let position = at * self.stride[axis] + tap * self.dilation[axis];
        position.checked_sub(self.pads[axis]).filter(|p| *p < self.input[1 + axis])
    }

    /// Input channels of a group.
    #[must_use]
    pub fn group_inputs(&self) -> usize {
        self.input[0] / self.groups
    }

    /// Output channels of a group.
    #[must_use]
    pub fn group_outputs(&self) -> usize {
        self.output[0] / self.groups
    }

    /// Kernel positions inside of the input, for one output position along an axis.
    fn taps(&self, axis: usize, at: usize) -> u64 {
        (0..self.kernel[axis]).filter(|t| self.source(axis, at, *t).is_some()).count() as u64
    }
}

impl TryFrom<Spec> for Geometry {
    type Error = LayerError;
    fn try_from(spec: Spec) -> Result<Self, LayerError> {
        match spec {
            Spec::Dense(d) => Self::dense(d),
            Spec::Conv2d(c) => Self::conv2d(c),
        }
    }
}

impl From<Geometry> for Spec {
    fn from(g: Geometry) -> Self {
        match g {
            Geometry::Dense(d) => Spec::Dense(d.0),
            Geometry::Conv2d(c) => Spec::Conv2d(c.0),
        }
    }
}

impl Geometry {
    /// A checked dense layer.
    ///
    /// # Errors
    /// [`LayerError`] naming the size that is out of range.
    pub fn dense(d: Dense) -> Result<Self, LayerError> {
        d.check()?;
        Ok(Self::Dense(CheckedDense(d)))
    }

    /// A checked convolution.
    ///
    /// # Errors
    /// [`LayerError`] naming the size that is out of range or does not follow from the others.
    pub fn conv2d(c: Conv2d) -> Result<Self, LayerError> {
        c.check()?;
        Ok(Self::Conv2d(CheckedConv2d(c)))
    }

    /// Rows that tiles of inputs count: features of a dense layer, H of a convolution.
    #[must_use]
    pub fn input_rows(&self) -> usize {
        match self {
            Self::Dense(d) => d.inputs,
            Self::Conv2d(c) => c.input[1],
        }
    }

    /// Rows that tiles of outputs count: features of a dense layer, OH of a convolution.
    #[must_use]
    pub fn output_rows(&self) -> usize {
        match self {
            Self::Dense(d) => d.outputs,
            Self::Conv2d(c) => c.output[1],
        }
    }

    /// Features of one input row: 1, or C W.
    #[must_use]
    pub fn input_row_features(&self) -> usize {
        match self {
            Self::Dense(_) => 1,
            Self::Conv2d(c) => c.input[0] * c.input[2],
        }
    }

    /// Features of one output row: 1, or O OW.
    #[must_use]
    pub fn output_row_features(&self) -> usize {
        match self {
            Self::Dense(_) => 1,
            Self::Conv2d(c) => c.output[0] * c.output[2],
        }
    }

    /// Number of weights that a layer of these shapes has.
    #[must_use]
    pub fn weights(&self) -> usize {
        match self {
            Self::Dense(d) => d.outputs * d.inputs,
            Self::Conv2d(c) => c.output[0] * c.group_inputs() * c.kernel[0] * c.kernel[1],
        }
    }

    /// Number of biases: outputs, or O.
    #[must_use]
    pub fn biases(&self) -> usize {
        match self {
            Self::Dense(d) => d.outputs,
            Self::Conv2d(c) => c.output[0],
        }
    }

    /// Weights of one output: K, or C/groups kh kw.
    #[must_use]
    pub fn terms(&self) -> usize {
        self.weights() / self.biases()
    }

    /// Upper bound of the steps that choosing a layout takes: sizes of tiles that are tried (at most 2 sqrt(n) + 1 along an axis of n),
    /// with the channels that each walks over where there are groups, and the positions of the kernel. What a plan may ask of a
    /// client is bounded by it before any layout is chosen.
    #[must_use]
    pub fn layout_steps(&self) -> u64 {
        let sizes = |n: usize| 2 * (n as u64).isqrt() + 1;
        match self {
            Self::Dense(d) => 16 * sizes(d.outputs),
            Self::Conv2d(c) => {
                let tiles = sizes(c.output[1]).saturating_mul(sizes(c.output[2]));
                let phases = (0..2).map(|a| c.kernel[a].min(c.stride[a]) as u64).product::<u64>();
                let walked = if c.groups == 1 {
                    1
                } else {
                    (c.input[0] as u64).saturating_mul(phases) + c.output[0] as u64
                };
                // At most 2 sqrt(16384) numbers of output channels are tried for a tile.
                let numbers = sizes(c.output[0].min(1 << 14)) + 32;
                let positions = (c.kernel[0] * c.kernel[1]) as u64;
                tiles.saturating_mul(numbers).saturating_mul(walked).saturating_add(positions)
            }
        }
    }

    /// Upper bound of the steps that counting a slot-packed layout takes: pairs of channels that meet, times kernel positions.
    #[must_use]
    pub fn slot_steps(&self) -> u64 {
        match self {
            Self::Dense(_) => 1 << 16,
            Self::Conv2d(c) => {
                let taps = (c.kernel[0] * c.kernel[1]) as u64;
                let sides = (c.output[1] * c.kernel[0] + c.output[2] * c.kernel[1]) as u64;
                // Every pair of channels is looked at for the turns, operations and noise of three ring degrees, at a few instructions each;
                // channels of small groups with those beside them in a ciphertext.
                let channel = |n: usize| (n as u64).next_multiple_of(1 << 6);
                channel(c.input[0])
                    .saturating_mul(channel(c.group_outputs()))
                    .saturating_mul(taps)
                    .saturating_mul(16)
                    .saturating_add(sides)
            }
        }
    }

    /// Row-major index `c H W + h W + w` (or plain index) of every input feature of rows `rows`, in wire order:
    /// row, channel, column.
    pub fn input_features(&self, rows: std::ops::Range<usize>) -> impl Iterator<Item = usize> {
        let [c, h, w] = match self {
            Self::Dense(d) => [1, d.inputs, 1],
            Self::Conv2d(c) => c.input,
        };
        wire_order([c, h, w], rows)
    }

    /// Row-major index of every output feature of rows `rows`, in wire order.
    pub fn output_features(&self, rows: std::ops::Range<usize>) -> impl Iterator<Item = usize> {
        let [c, h, w] = match self {
            Self::Dense(d) => [1, d.outputs, 1],
            Self::Conv2d(c) => c.output,
        };
        wire_order([c, h, w], rows)
    }

    /// The input rows that output rows `outputs` read, as a range: from the first one to one beyond the last.
    /// Empty at the end of the input when there are no outputs left, or when all is padding.
    #[must_use]
    pub fn needed_rows(&self, outputs: std::ops::Range<usize>) -> std::ops::Range<usize> {
        let rows = self.input_rows();
        if outputs.is_empty() {
            return if outputs.start >= self.output_rows() {
                rows..rows
            } else {
                let first = self.needed_rows(outputs.start..outputs.start + 1).start;
                first..first
            };
        }
        match self {
            Self::Dense(_) => 0..rows,
            Self::Conv2d(c) => {
                let first = (outputs.start * c.stride[0]).saturating_sub(c.pads[0]).min(rows);
                let reach = (outputs.end - 1) * c.stride[0] + c.dilation[0] * (c.kernel[0] - 1) + 1;
                first..reach.saturating_sub(c.pads[0]).clamp(first, rows)
            }
        }
    }

    /// The first input row that output rows from `outputs.start` on read.
    #[must_use]
    pub fn first_needed_row(&self, outputs: std::ops::Range<usize>) -> usize {
        self.needed_rows(outputs).start
    }

    /// Products of a weight with a ciphertext polynomial for output rows `outputs`, padding not counted.
    /// Times the words of a polynomial it is the number of word multiply-adds.
    #[must_use]
    pub fn products(&self, outputs: std::ops::Range<usize>) -> u64 {
        match self {
            Self::Dense(d) => (outputs.len() * d.inputs) as u64,
            Self::Conv2d(c) => {
                let down: u64 = outputs.map(|y| c.taps(0, y)).sum();
                let across: u64 = (0..c.output[2]).map(|x| c.taps(1, x)).sum();
                (c.output[0] * c.group_inputs()) as u64 * down * across
            }
        }
    }
}

fn wire_order([c, h, w]: [usize; 3], rows: std::ops::Range<usize>) -> impl Iterator<Item = usize> {
    rows.flat_map(move |y| (0..c).flat_map(move |z| (0..w).map(move |x| (z * h + y) * w + x)))
}
