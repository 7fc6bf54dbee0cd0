//! The server's linear algebra on ciphertext words: temporary straightforward version.

use crate::error::Error;
use crate::plan::{GeometrySpec, LinearStage, WeightData};
use rayon::prelude::*;

/// A linear layer.
pub(super) struct Layer {
    stage: LinearStage,
}

/// Inputs that have arrived.
#[derive(Default)]
pub(super) struct Window {
    features: Vec<Vec<u64>>,
}

impl Layer {
    pub(super) fn new(stage: &LinearStage) -> Result<Self, Error> {
        Ok(Self { stage: stage.clone() })
    }

    pub(super) fn window(&self) -> Window {
        let [c, h, w] = self.stage.geometry.input_layout();
        Window { features: vec![Vec::new(); c * h * w] }
    }

    fn weight(&self, i: usize) -> u64 {
        match &self.stage.weights.as_ref().unwrap().weights {
            WeightData::I8(w) => i64::from(w[i]) as u64,
            WeightData::I16(w) => i64::from(w[i]) as u64,
        }
    }

    /// Row of the bias of a position of a tile's outputs.
    pub(super) fn bias_row(&self, tile: usize, position: usize) -> usize {
        let [c, _, w] = self.stage.geometry.output_layout();
        match &self.stage.geometry {
            GeometrySpec::Dense { .. } => self.stage.tiles[tile].outputs[0] + position,
            GeometrySpec::Conv2d { .. } => position / w % c,
        }
    }

    pub(super) fn apply(
        &self,
        tile: usize,
        window: &mut Window,
        fill: impl Fn(usize, &mut [u64]) -> Result<(), Error> + Sync,
        emit: impl Fn(usize, &mut [u64]) -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        let n = self.stage.params.ring_degree();
        let [c, h, w] = self.stage.geometry.input_layout();
        let first = self.stage.tiles[tile].inputs[0];
        for p in 0..self.stage.tile_inputs(tile) {
            let mut words = vec![0; n];
            fill(p, &mut words)?;
            window.features[GeometrySpec::feature_of(c, h, w, first, p)] = words;
        }
        let [oc, _, ow] = self.stage.geometry.output_layout();
        let o0 = self.stage.tiles[tile].outputs[0];
        (0..self.stage.tile_outputs(tile)).into_par_iter().try_for_each(|p| {
            let mut acc = vec![0_u64; n];
            let mut add = |weight: u64, feature: usize| {
                for (a, x) in acc.iter_mut().zip(&window.features[feature]) {
                    *a = a.wrapping_add(weight.wrapping_mul(*x));
                }
            };
            match &self.stage.geometry {
                GeometrySpec::Dense { inputs, .. } => {
                    for k in 0..*inputs {
                        add(self.weight((o0 + p) * inputs + k), k);
                    }
                }
                GeometrySpec::Conv2d { input, kernel, stride, pads, dilation, groups, .. } => {
                    let (row, o, col) = (o0 + p / (oc * ow), p / ow % oc, p % ow);
                    let cg = input[0] / groups;
                    let g = o / (oc / groups);
                    for ic in 0..cg {
                        for ky in 0..kernel[0] {
                            for kx in 0..kernel[1] {
                                let y = (row * stride[0] + ky * dilation[0]).wrapping_sub(pads[0]);
                                let x = (col * stride[1] + kx * dilation[1]).wrapping_sub(pads[1]);
                                if y < input[1] && x < input[2] {
                                    let wi = ((o * cg + ic) * kernel[0] + ky) * kernel[1] + kx;
                                    add(self.weight(wi), ((g * cg + ic) * input[1] + y) * input[2] + x);
                                }
                            }
                        }
                    }
                }
            }
            emit(p, &mut acc)
        })
    }
}
