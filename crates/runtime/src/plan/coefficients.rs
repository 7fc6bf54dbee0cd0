//! Linear stages of plans that run few images: coefficient-packed, tile by tile (`docs/client-aided-image.md`).

use super::spec::{BitsSpec, GeometrySpec, LinearSpec};
use super::{product, Limits, LinearWeights, PlanError, Tensor, TensorKind};
use hushnet_layers::batch::Geometry;
use hushnet_layers::coefficients::{self, ChooseError, CoefficientStage};
use hushnet_rlwe::coefficients::CoefficientBits;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Bytes of a kernel position in a layout.
const BYTES_PER_POSITION: u64 = 48;

/// An encrypted linear layer, coefficient-packed.
#[derive(Clone, Debug)]
pub struct CoefficientLayer {
    /// Name for messages.
    pub name: String,
    /// Index of the fixed input tensor.
    pub input: usize,
    /// Index of the fixed output tensor.
    pub output: usize,
    /// What is computed.
    pub geometry: GeometrySpec,
    /// Places, and checked ring-LWE parameters.
    pub stage: CoefficientStage,
    /// Weights, absent in a public part.
    pub weights: Option<Arc<LinearWeights>>,
    /// What the planner predicts.
    pub predicted: Map<String, Value>,
}

impl CoefficientLayer {
    /// Tiles of an image: requests and responses, and secrets.
    #[must_use]
    pub fn tiles(&self) -> usize {
        self.stage.tiles()
    }

    /// Payload bytes of every Request.
    #[must_use]
    pub fn request_bytes(&self) -> usize {
        self.stage.request_len()
    }

    /// Payload bytes of the Response to a tile.
    #[must_use]
    pub fn response_bytes(&self, tile: usize) -> usize {
        self.stage.answer_len(tile)
    }

    /// Payload bytes of the SetupMask.
    #[must_use]
    pub fn setup_bytes(&self) -> usize {
        self.stage.masks_len()
    }

    /// Bytes of the largest payload.
    #[must_use]
    pub fn largest_payload(&self) -> usize {
        // The first tile is whole: no other one is larger.
        self.request_bytes().max(self.setup_bytes()).max(self.response_bytes(0))
    }

    /// Bytes of requests and responses that wait at a party, and of what it makes of them.
    pub(crate) fn message_bytes(&self) -> u64 {
        let down = self.response_bytes(0).max(self.setup_bytes()) as u64;
        let (n, blocks) = (self.stage.layout().degree() as u64, self.stage.layout().input_blocks() as u64);
        let words = 8u64.saturating_mul(n).saturating_mul(blocks);
        (4 * self.request_bytes() as u64).saturating_add(3 * down).saturating_add(words)
    }
}

/// What the stages of a plan take together.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// Steps that finding the layouts may take.
    steps: u64,
    tiles: u64,
}

/// Inputs of a check of one stage.
pub(super) struct Context<'a> {
    pub name: &'a str,
    pub layer: &'a LinearSpec,
    pub bits: &'a BitsSpec,
    pub input: (usize, &'a Tensor),
    pub output: (usize, &'a Tensor),
    pub ring_degree: usize,
    pub limits: &'a Limits,
    /// Of the stages before.
    pub sizes: &'a mut Sizes,
}

impl Context<'_> {
    fn fail(&self, detail: impl Into<String>) -> PlanError {
        PlanError::Linear { stage: self.name.to_owned(), detail: detail.into() }
    }

    /// Everything that weights have no part in, before a layout is chosen; returns the geometry and the bounds of input and output.
    pub(super) fn check_shape(&self) -> Result<(Geometry, u64, u64), PlanError> {
        let (TensorKind::Fixed { bound: in_bound, .. }, TensorKind::Fixed { bound: out_bound, .. }) =
            (self.input.1.kind, self.output.1.kind)
        else {
            return Err(self.fail("input and output must be fixed tensors"));
        };
        if in_bound > i32::MAX as u64 {
            return Err(self.fail(format!("inputs up to {in_bound} do not fit 32 bits")));
        }
        let geometry = self.layer.geometry.checked().map_err(|e| self.fail(e.to_string()))?;
        let steps = self.sizes.steps.saturating_add(geometry.layout_steps());
        let what = format!("the number of steps to lay out the linear layers up to stage '{}'", self.name);
        Limits::check(&what, steps, self.limits.layout_steps)?;
        if let GeometrySpec::Conv2d { kernel, .. } = &self.layer.geometry {
            let positions = product(kernel).saturating_mul(BYTES_PER_POSITION);
            let what = format!("the bytes of the kernel's positions of stage '{}'", self.name);
            Limits::check(&what, positions, self.limits.memory_bytes)?;
        }
        Ok((geometry, in_bound, out_bound))
    }

    pub(super) fn check(self, weights: Option<Arc<LinearWeights>>) -> Result<CoefficientLayer, PlanError> {
        let (geometry, in_bound, out_bound) = self.check_shape()?;
        if let Some(derived) = weights.as_ref().map(|w| w.output_bound(in_bound)) {
            if derived > u128::from(out_bound) {
                return Err(PlanError::Bound {
                    stage: self.name.to_owned(),
                    tensor: self.output.1.name.clone(),
                    derived,
                    planned: out_bound,
                });
            }
        }
        let BitsSpec { upload_bits, body_bits, mask_bits } = *self.bits;
        let bits = CoefficientBits { upload: upload_bits, body: body_bits, mask: mask_bits };
        let wide = weights.as_ref().map(|w| w.weights.to_i16());
        let stage = coefficients::check(&geometry, self.ring_degree, wide.as_deref(), out_bound, bits)
            .map_err(|e| match e {
                ChooseError::Params(source) => PlanError::Params { stage: self.name.to_owned(), source },
                ChooseError::Layer(e) => self.fail(e.to_string()),
            })?;
        let layer = CoefficientLayer {
            name: self.name.to_owned(),
            input: self.input.0,
            output: self.output.0,
            geometry: self.layer.geometry.clone(),
            stage,
            weights,
            predicted: self.layer.predicted.clone(),
        };
        self.sizes.steps = self.sizes.steps.saturating_add(geometry.layout_steps());
        self.sizes.tiles = self.sizes.tiles.saturating_add(layer.tiles() as u64);
        Limits::check("the number of tiles", self.sizes.tiles, self.limits.tiles)?;
        let what = format!("a frame of stage '{}'", layer.name);
        Limits::check(&what, layer.largest_payload() as u64, self.limits.frame_bytes)?;
        Ok(layer)
    }
}
