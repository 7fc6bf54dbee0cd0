//! Geometry, tiles, weights and parameters of linear stages.

use super::spec::{BatchSpec, GeometrySpec, LinearSpec, MaskMode, TileSpec};
use super::{Limits, LinearStage, LinearWeights, PlanError, Tensor, TensorKind, WeightData};
use hushnet_layers::batch::{Conv2d, Dense, Geometry, LayerError, Tile, Tiling};
use hushnet_rlwe::BatchStageSpec;
use std::sync::Arc;

/// Inputs of a check of one stage.
pub(super) struct Context<'a> {
    pub name: &'a str,
    pub layer: &'a LinearSpec,
    pub batch: &'a BatchSpec,
    pub input: (usize, &'a Tensor),
    pub output: (usize, &'a Tensor),
    pub ring_degree: usize,
    pub insecure: bool,
    pub weights: Option<Arc<LinearWeights>>,
    pub limits: &'a Limits,
}

impl Context<'_> {
    fn fail(&self, detail: impl Into<String>) -> PlanError {
        PlanError::Linear { stage: self.name.to_owned(), detail: detail.into() }
    }

    /// Everything that weights have no part in; returns the bounds of input and output.
    pub(super) fn check_shape(&self) -> Result<(u64, u64), PlanError> {
        let (TensorKind::Fixed { bound: in_bound, .. }, TensorKind::Fixed { bound: out_bound, .. }) =
            (self.input.1.kind, self.output.1.kind)
        else {
            return Err(self.fail("input and output must be fixed tensors"));
        };
        if in_bound > i32::MAX as u64 {
            return Err(self.fail(format!("inputs up to {in_bound} do not fit 32 bits")));
        }
        let geometry = self.layer.geometry.checked().map_err(|e| self.fail(e.to_string()))?;
        tiling(geometry, &self.batch.tiles)
            .map_err(|source| PlanError::Tiles { stage: self.name.to_owned(), source })?;
        Ok((in_bound, out_bound))
    }

    pub(super) fn check(self) -> Result<LinearStage, PlanError> {
        let (spec, name) = (self.batch, self.name);
        let (in_bound, out_bound) = self.check_shape()?;
        let weight_l2 = match &self.weights {
            None => 1.0,
            Some(w) => {
                let derived = w.output_bound(in_bound);
                if derived > u128::from(out_bound) {
                    return Err(PlanError::Bound {
                        stage: name.to_owned(),
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
        if spec.mask == MaskMode::Shared && spec.mask_drop_bits.is_some() {
            return Err(self.fail("mask_drop_bits is for masks that travel in every block, these are shared"));
        }
        let dropped = (spec.drop_bits, spec.mask_drop_bits.unwrap_or(spec.drop_bits));
        let params = if self.insecure {
            stage.check_insecure(spec.modulus_bits, spec.delta_bits, dropped)
        } else {
            stage.check(spec.modulus_bits, spec.delta_bits, dropped)
        }
        .map_err(|source| PlanError::Params { stage: name.to_owned(), source })?;
        if spec.drop_bits >= spec.modulus_bits {
            return Err(self.fail("drop_bits must be below modulus_bits"));
        }
        let stage = LinearStage {
            name: name.to_owned(),
            input: self.input.0,
            output: self.output.0,
            geometry: self.layer.geometry.clone(),
            tiles: spec.tiles.clone(),
            mask: spec.mask,
            params,
            weights: self.weights,
            predicted: self.layer.predicted.clone(),
        };
        for tile in 0..stage.tiles.len() {
            let frame =
                stage.request_bytes(tile).max(stage.response_bytes(tile)).max(stage.setup_bytes(tile));
            Limits::check(
                &format!("a frame of stage '{}'", stage.name),
                frame as u64,
                self.limits.frame_bytes,
            )?;
        }
        Ok(stage)
    }
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

    /// The same, checked, for the linear algebra.
    ///
    /// # Errors
    /// [`LayerError`] naming the size that is out of range.
    pub fn checked(&self) -> Result<Geometry, LayerError> {
        match *self {
            Self::Dense { inputs, outputs } => Geometry::dense(Dense { inputs, outputs }),
            Self::Conv2d { input, output, kernel, stride, pads, dilation, groups } => {
                Geometry::conv2d(Conv2d { input, output, kernel, stride, pads, dilation, groups })
            }
        }
    }

    /// Feature index in the tensor (channels, rows, columns) of position `position` of a tile that begins at row `first`.
    #[must_use]
    pub(crate) fn feature_of(
        channels: usize,
        rows: usize,
        columns: usize,
        first: usize,
        position: usize,
    ) -> usize {
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

impl LinearStage {
    /// The checked tiles.
    ///
    /// # Errors
    /// None for a stage of a checked plan.
    pub fn tiling(&self) -> Result<Tiling, LayerError> {
        tiling(self.geometry.checked()?, &self.tiles)
    }
}

fn tiling(geometry: Geometry, tiles: &[TileSpec]) -> Result<Tiling, LayerError> {
    let tiles: Vec<Tile> = tiles.iter().map(|t| Tile { inputs: t.inputs, outputs: t.outputs }).collect();
    Tiling::new(geometry, &tiles)
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
        self.output_bound_from(input_bound, input_bound)
    }

    /// The largest absolute value of `W x + bias` for x in `[-below, above]`: what is positive in a row meets one end, the rest the other one.
    #[must_use]
    pub fn output_bound_from(&self, below: u64, above: u64) -> u128 {
        let (below, above) = (i128::from(below), i128::from(above));
        let far = self.fold_rows(0, |max: i128, row, bias| {
            let (mut plus, mut minus) = (0i128, 0i128);
            row.for_each(|w| *if w < 0 { &mut minus } else { &mut plus } += i128::from(w.unsigned_abs()));
            let bias = i128::from(bias);
            max.max(plus * above + minus * below + bias).max(plus * below + minus * above - bias)
        });
        far.unsigned_abs()
    }

    /// The largest Euclidean norm of the weights of one output, `max_o ||W_o||_2`.
    #[must_use]
    pub fn largest_norm(&self) -> f64 {
        let square = self.fold_rows(0_u128, |max, row, _| {
            max.max(row.map(|w| u128::from(w.unsigned_abs()) * u128::from(w.unsigned_abs())).sum())
        });
        (square as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The bound is what the corners of the box of inputs reach, no more and no less.
        #[test]
        fn output_bounds_are_the_corners(
            rows in prop::collection::vec((prop::collection::vec(-9i8..10, 4), -500i64..500), 1..4), below in 0u64..20, above in 0u64..20,
        ) {
            let weights = WeightData::I8(rows.iter().flat_map(|(w, _)| w.clone()).collect());
            let layer = LinearWeights { weights, bias: rows.iter().map(|(_, b)| *b).collect() };
            let corner = |k: usize, i: usize| if k >> i & 1 == 0 { -(below as i64) } else { above as i64 };
            let sums = rows.iter().flat_map(|(w, b)| {
                (0..16).map(move |k| w.iter().enumerate().map(|(i, w)| i64::from(*w) * corner(k, i)).sum::<i64>() + b)
            });
            let far = sums.map(i64::unsigned_abs).max().unwrap_or(0);
            prop_assert_eq!(layer.output_bound_from(below, above), u128::from(far));
            prop_assert_eq!(layer.output_bound_from(above, above), layer.output_bound(above));
        }
    }
}
