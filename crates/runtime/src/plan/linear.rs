//! Geometry, tiles, weights and parameters of linear stages.

use super::spec::{GeometrySpec, LinearSpec, MaskMode, TileSpec};
use super::{Limits, LinearStage, LinearWeights, PlanError, Tensor, TensorKind, WeightData};
use hushnet_rlwe::BatchStageSpec;
use std::sync::Arc;

/// Inputs of a check of one stage.
pub(super) struct Context<'a> {
    pub spec: &'a LinearSpec,
    pub input: (usize, &'a Tensor),
    pub output: (usize, &'a Tensor),
    pub ring_degree: usize,
    pub insecure: bool,
    pub weights: Option<Arc<LinearWeights>>,
    pub limits: &'a Limits,
}

impl Context<'_> {
    fn fail(&self, detail: impl Into<String>) -> PlanError {
        PlanError::Linear { stage: self.spec.name.clone(), detail: detail.into() }
    }

    pub(super) fn check(self) -> Result<LinearStage, PlanError> {
        let spec = self.spec;
        if spec.method != "batch" {
            return Err(PlanError::Unsupported(format!("method '{}' of stage '{}'", spec.method, spec.name)));
        }
        let (in_bound, out_bound) = match (self.input.1.kind, self.output.1.kind) {
            (TensorKind::Fixed { bound: i, .. }, TensorKind::Fixed { bound: o, .. }) => (i, o),
            _ => return Err(self.fail("input and output must be fixed tensors")),
        };
        if in_bound > i32::MAX as u64 {
            return Err(self.fail(format!("inputs up to {in_bound} do not fit 32 bits")));
        }
        self.check_geometry()?;
        check_tiles(&spec.name, &spec.geometry, &spec.tiles)?;
        let weight_l2 = match &self.weights {
            None => 1.0,
            Some(w) => {
                let derived = w.output_bound(in_bound);
                if derived > u128::from(out_bound) {
                    return Err(PlanError::Bound {
                        stage: spec.name.clone(),
                        tensor: self.output.1.name.clone(),
                        derived,
                        planned: out_bound,
                    });
                }
                w.largest_norm()
            }
        };
        let stage = BatchStageSpec {
            ring_degree: self.ring_degree,
            weight_l2,
            output_bound: out_bound,
            shared_mask: spec.mask == MaskMode::Shared,
        };
        let params = if self.insecure {
            stage.check_insecure(spec.modulus_bits, spec.delta_bits, spec.drop_bits)
        } else {
            stage.check(spec.modulus_bits, spec.delta_bits, spec.drop_bits)
        }
        .map_err(|source| PlanError::Params { stage: spec.name.clone(), source })?;
        if spec.drop_bits >= spec.modulus_bits {
            return Err(self.fail("drop_bits must be below modulus_bits"));
        }
        let stage = LinearStage {
            name: spec.name.clone(),
            input: self.input.0,
            output: self.output.0,
            geometry: spec.geometry.clone(),
            tiles: spec.tiles.clone(),
            mask: spec.mask,
            params,
            weights: self.weights,
            predicted: spec.predicted.clone(),
        };
        for tile in 0..stage.tiles.len() {
            let frame = stage.request_bytes(tile).max(stage.response_bytes(tile)).max(stage.setup_bytes(tile));
            Limits::check(&format!("a frame of stage '{}'", stage.name), frame as u64, self.limits.frame_bytes)?;
        }
        Ok(stage)
    }

    fn check_geometry(&self) -> Result<(), PlanError> {
        match &self.spec.geometry {
            GeometrySpec::Dense { inputs, outputs } => {
                if *inputs != self.input.1.elements || *outputs != self.output.1.elements {
                    return Err(self.fail(format!(
                        "a dense layer {inputs} -> {outputs} does not fit tensors {:?} -> {:?}",
                        self.input.1.shape, self.output.1.shape
                    )));
                }
                Ok(())
            }
            GeometrySpec::Conv2d { input, output, kernel, stride, pads, dilation, groups } => {
                if self.input.1.shape != *input || self.output.1.shape != *output {
                    return Err(self.fail(format!(
                        "a convolution {input:?} -> {output:?} does not fit tensors {:?} -> {:?}",
                        self.input.1.shape, self.output.1.shape
                    )));
                }
                if *groups == 0 || !input[0].is_multiple_of(*groups) || !output[0].is_multiple_of(*groups) {
                    return Err(self.fail(format!("{groups} groups do not divide {} and {} channels", input[0], output[0])));
                }
                for axis in 0..2 {
                    let expected = conv_size(input[axis + 1], kernel[axis], stride[axis], [pads[axis], pads[axis + 2]], dilation[axis]);
                    if expected != Some(output[axis + 1]) {
                        return Err(self.fail(format!(
                            "axis {axis}: input {}, kernel {}, stride {}, pads {} and {}, dilation {} give {}, not {}",
                            input[axis + 1],
                            kernel[axis],
                            stride[axis],
                            pads[axis],
                            pads[axis + 2],
                            dilation[axis],
                            expected.map_or("nothing".to_owned(), |e| e.to_string()),
                            output[axis + 1]
                        )));
                    }
                }
                Ok(())
            }
        }
    }
}

fn conv_size(size: usize, kernel: usize, stride: usize, pads: [usize; 2], dilation: usize) -> Option<usize> {
    if kernel == 0 || stride == 0 || dilation == 0 {
        return None;
    }
    let extent = (kernel - 1).checked_mul(dilation)?.checked_add(1)?;
    let free = size.checked_add(pads[0])?.checked_add(pads[1])?.checked_sub(extent)?;
    Some(free / stride + 1)
}

impl GeometrySpec {
    /// `(rows, features a row)` of the input: the units of `TileSpec::inputs`.
    #[must_use]
    pub fn input_rows(&self) -> (usize, usize) {
        match self {
            Self::Dense { inputs, .. } => (*inputs, 1),
            Self::Conv2d { input, .. } => (input[1], input[0] * input[2]),
        }
    }

    /// `(rows, features a row)` of the output.
    #[must_use]
    pub fn output_rows(&self) -> (usize, usize) {
        match self {
            Self::Dense { outputs, .. } => (*outputs, 1),
            Self::Conv2d { output, .. } => (output[1], output[0] * output[2]),
        }
    }

    /// Shape of the weight tensor.
    #[must_use]
    pub fn weight_shape(&self) -> Vec<usize> {
        match self {
            Self::Dense { inputs, outputs } => vec![*outputs, *inputs],
            Self::Conv2d { input, output, kernel, groups, .. } => {
                vec![output[0], input[0] / (*groups).max(1), kernel[0], kernel[1]]
            }
        }
    }

    /// Input rows that must have arrived before output row `row` can be computed.
    #[must_use]
    pub fn rows_needed(&self, row: usize) -> usize {
        match self {
            Self::Dense { inputs, .. } => *inputs,
            Self::Conv2d { input, kernel, stride, pads, dilation, .. } => {
                // Last row of the window, clipped to the input; windows wholly in the padding need nothing.
                let last = row * stride[0] + (kernel[0] - 1) * dilation[0];
                if last < pads[0] {
                    0
                } else {
                    (last - pads[0] + 1).min(input[1])
                }
            }
        }
    }

    /// First input row that output row `row` or a later one reads.
    #[must_use]
    pub fn first_needed(&self, row: usize) -> usize {
        match self {
            Self::Dense { .. } => 0,
            Self::Conv2d { input, stride, pads, .. } => (row * stride[0]).saturating_sub(pads[0]).min(input[1]),
        }
    }

    /// Feature index in the tensor (channels, rows, columns) of position `position` of a tile that begins at row `first`.
    #[must_use]
    pub(crate) fn feature_of(channels: usize, rows: usize, columns: usize, first: usize, position: usize) -> usize {
        let (row, rest) = (position / (channels * columns), position % (channels * columns));
        let (channel, column) = (rest / columns, rest % columns);
        (channel * rows + first + row) * columns + column
    }

    /// Input layout `(channels, rows, columns)`; dense layers have one channel and one column.
    #[must_use]
    pub fn input_layout(&self) -> [usize; 3] {
        match self {
            Self::Dense { inputs, .. } => [1, *inputs, 1],
            Self::Conv2d { input, .. } => *input,
        }
    }

    /// Output layout `(channels, rows, columns)`.
    #[must_use]
    pub fn output_layout(&self) -> [usize; 3] {
        match self {
            Self::Dense { outputs, .. } => [1, *outputs, 1],
            Self::Conv2d { output, .. } => *output,
        }
    }
}

fn check_tiles(stage: &str, geometry: &GeometrySpec, tiles: &[TileSpec]) -> Result<(), PlanError> {
    let fail = |tile, detail: String| Err(PlanError::Tiles { stage: stage.to_owned(), tile, detail });
    let (in_rows, out_rows) = (geometry.input_rows().0, geometry.output_rows().0);
    let (mut arrived, mut computed) = (0, 0);
    for (i, tile) in tiles.iter().enumerate() {
        let ([r0, r1], [o0, o1]) = (tile.inputs, tile.outputs);
        if r0 != arrived || r1 < r0 || r1 > in_rows {
            return fail(i, format!("inputs [{r0}, {r1}) must continue at {arrived} and end by {in_rows}"));
        }
        if o0 != computed || o1 < o0 || o1 > out_rows {
            return fail(i, format!("outputs [{o0}, {o1}) must continue at {computed} and end by {out_rows}"));
        }
        if r0 == r1 && o0 == o1 {
            return fail(i, "neither inputs nor outputs".into());
        }
        (arrived, computed) = (r1, o1);
        if o1 > o0 && geometry.rows_needed(o1 - 1) > arrived {
            return fail(i, format!("output row {} needs {} input rows, {arrived} have arrived", o1 - 1, geometry.rows_needed(o1 - 1)));
        }
    }
    if arrived != in_rows || computed != out_rows {
        return fail(tiles.len(), format!("the tiles cover {arrived} of {in_rows} input rows and {computed} of {out_rows} output rows"));
    }
    Ok(())
}

impl LinearWeights {
    /// Rows of the weight matrix (outputs or output channels).
    #[must_use]
    pub fn rows(&self) -> usize {
        self.bias.len()
    }

    fn fold_rows<T>(&self, init: T, mut f: impl FnMut(T, &mut dyn Iterator<Item = i64>, i64) -> T) -> T {
        let row = self.weights.len().checked_div(self.rows()).unwrap_or(0);
        let mut value = init;
        for (o, &bias) in self.bias.iter().enumerate() {
            let range = o * row..(o + 1) * row;
            value = match &self.weights {
                WeightData::I8(w) => f(value, &mut w[range].iter().map(|&v| i64::from(v)), bias),
                WeightData::I16(w) => f(value, &mut w[range].iter().map(|&v| i64::from(v)), bias),
            };
        }
        value
    }

    /// `max_o (sum_k |W_ok| * bound + |bias_o|)`.
    #[must_use]
    pub fn output_bound(&self, input_bound: u64) -> u128 {
        self.fold_rows(0, |max, row, bias| {
            let sum: u128 = row.map(|w| u128::from(w.unsigned_abs())).sum();
            max.max(sum * u128::from(input_bound) + u128::from(bias.unsigned_abs()))
        })
    }

    /// `max_o ||W_o||_2`.
    #[must_use]
    pub fn largest_norm(&self) -> f64 {
        let square = self.fold_rows(0_u128, |max, row, _| {
            max.max(row.map(|w| u128::from(w.unsigned_abs()) * u128::from(w.unsigned_abs())).sum())
        });
        (square as f64).sqrt()
    }
}
