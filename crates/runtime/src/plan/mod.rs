//! The plan: what is run, checked once and immutable afterwards.
//!
//! [`PlanSpec`] is the JSON as it stands in the file, of every trust model; [`Checked`] is what executors accept, and can only be
//! made by checking. It has a part for its trust model: [`Plan`] is the client-aided one.

mod check;
mod checked;
mod coefficients;
pub mod cost;
mod error;
mod file;
mod limits;
mod linear;
mod memory;
mod ops;
pub mod spec;

pub use check::ClientAided;
pub(crate) use check::{header, largest, tensors, Place, Scope};
pub(crate) use checked::{read, write, Parts};
pub use checked::{Checked, Files, Model};
pub use coefficients::CoefficientLayer;
pub use cost::{Cost, Sent};
pub use error::PlanError;
pub use file::{digest, TensorBytes};
pub(crate) use file::{encode, numbers, open, weights};
pub use limits::Limits;
pub(crate) use memory::product;
pub use memory::Need;
pub(crate) use ops::check as check_op;
pub use spec::{Engine, GeometrySpec, MaskMode, OpKind, PlanSpec, TileSpec, Trust, VERSION};

pub(crate) use limits::elements;

use hushnet_rlwe::BatchStageParams;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;

/// How the numbers of a tensor are held: real or fixed point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TensorKind {
    /// IEEE binary64.
    Real,
    /// Integers `v`, `|v| <= bound`, meaning `v * scale`.
    Fixed {
        /// Value of one unit.
        scale: f64,
        /// Largest absolute value.
        bound: u64,
    },
}

/// A checked tensor; shapes are per image.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Id in the file.
    pub id: u32,
    /// Name for messages.
    pub name: String,
    /// Shape per image.
    pub shape: Vec<usize>,
    /// Product of the shape.
    pub elements: usize,
    /// Arithmetic.
    pub kind: TensorKind,
}

/// A named input or output; `tensor` is an index into [`Plan::tensors`].
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Name for users.
    pub name: String,
    /// Tensor index.
    pub tensor: usize,
    /// Of an input: least and largest value that the network is planned for, where the plan states them.
    pub range: Option<[f64; 2]>,
}

/// A checked client operation; tensors are indices into [`Plan::tensors`].
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// What is computed.
    pub kind: OpKind,
    /// Operands.
    pub inputs: Vec<usize>,
    /// Result.
    pub output: usize,
}

/// Operations that the client computes in the clear.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientStage {
    /// Name for messages.
    pub name: String,
    /// Operations in order.
    pub ops: Vec<Op>,
}

/// Weights of a linear stage; server only, and not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct LinearWeights {
    /// Row-major, shape [`GeometrySpec::weight_shape`].
    pub weights: WeightData,
    /// One value an output row (dense) or output channel (conv2d), in units of the output's scale.
    pub bias: Vec<i64>,
}

impl std::fmt::Debug for LinearWeights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LinearWeights({} rows, {} weights)", self.bias.len(), self.weights.len())
    }
}

/// Integer weights, of one byte or two each.
#[derive(Clone, PartialEq, Eq)]
pub enum WeightData {
    /// One byte each.
    I8(Vec<i8>),
    /// Two bytes each.
    I16(Vec<i16>),
}

impl WeightData {
    /// The number of weights, in whichever width.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::I8(w) => w.len(),
            Self::I16(w) => w.len(),
        }
    }
    /// Whether the number of elements is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// All weights in two bytes; borrowed where they are.
    #[must_use]
    pub fn to_i16(&self) -> Cow<'_, [i16]> {
        match self {
            Self::I8(w) => w.iter().map(|v| i16::from(*v)).collect(),
            Self::I16(w) => Cow::Borrowed(w),
        }
    }
}

/// A linear layer on batches of encrypted images.
#[derive(Clone, Debug)]
pub struct LinearStage {
    /// Name for messages.
    pub name: String,
    /// Index of the fixed input tensor.
    pub input: usize,
    /// Index of the fixed output tensor.
    pub output: usize,
    /// What is computed.
    pub geometry: GeometrySpec,
    /// Streaming order.
    pub tiles: Vec<TileSpec>,
    /// Masks.
    pub mask: MaskMode,
    /// Checked ring-LWE parameters.
    pub params: BatchStageParams,
    /// Weights, absent in a public part.
    pub weights: Option<Arc<LinearWeights>>,
    /// What the planner predicts.
    pub predicted: Map<String, Value>,
}

impl LinearStage {
    /// Bytes of one packed polynomial with `bits` bits a word.
    fn polynomial_bytes(&self, bits: u32) -> usize {
        (self.params.ring_degree() / 8).saturating_mul(bits as usize)
    }

    /// Features that a tile uploads.
    #[must_use]
    pub fn tile_inputs(&self, tile: usize) -> usize {
        self.tiles.get(tile).map_or(0, |t| (t.inputs[1] - t.inputs[0]) * self.geometry.input_rows().1)
    }

    /// Features that a tile returns.
    #[must_use]
    pub fn tile_outputs(&self, tile: usize) -> usize {
        self.tiles.get(tile).map_or(0, |t| (t.outputs[1] - t.outputs[0]) * self.geometry.output_rows().1)
    }

    /// Payload bytes of a tile's Request: `features * N * k / 8`, twice that with sent masks.
    #[must_use]
    pub fn request_bytes(&self, tile: usize) -> usize {
        let parts = if self.mask == MaskMode::Sent { 2 } else { 1 };
        self.tile_inputs(tile)
            .saturating_mul(self.polynomial_bytes(self.params.modulus_bits()))
            .saturating_mul(parts)
    }

    /// Bits of a returned word, `k - u`.
    #[must_use]
    pub fn response_bits(&self) -> u32 {
        self.params.modulus_bits() - self.params.drop_bits()
    }

    /// Bits of a returned word of the second part, `k - v`; none with shared masks.
    #[must_use]
    pub fn mask_response_bits(&self) -> u32 {
        match self.mask {
            MaskMode::Shared => 0,
            MaskMode::Fresh | MaskMode::Sent => self.params.modulus_bits() - self.params.mask_drop_bits(),
        }
    }

    /// Payload bytes of the first part of a tile's Response: `features * N * (k - u) / 8`.
    #[must_use]
    pub fn response_body_bytes(&self, tile: usize) -> usize {
        self.tile_outputs(tile).saturating_mul(self.polynomial_bytes(self.response_bits()))
    }

    /// Payload bytes of a tile's Response: the first part, and `features * N * (k - v) / 8` unless masks are shared.
    #[must_use]
    pub fn response_bytes(&self, tile: usize) -> usize {
        let masks = self.tile_outputs(tile).saturating_mul(self.polynomial_bytes(self.mask_response_bits()));
        self.response_body_bytes(tile).saturating_add(masks)
    }

    /// Bytes that a client keeps for a session of a stage with shared masks: a sum of masks an output feature, two 64-bit parts a word at most.
    #[must_use]
    pub(crate) fn mask_bytes(&self) -> u64 {
        let (rows, features) = self.geometry.output_rows();
        product(&[rows, features, self.params.ring_degree(), 16])
    }

    /// Bytes of requests and responses that wait at the client: some tiles go ahead of their answers.
    pub(crate) fn message_bytes(&self) -> u64 {
        let tile = |t| {
            let down = self.response_bytes(t).max(self.setup_bytes(t)) as u64;
            (4 * self.request_bytes(t) as u64).saturating_add(3 * down)
        };
        (0..self.tiles.len()).map(tile).max().unwrap_or(0)
    }

    /// Payload bytes of a tile's SetupMask, 0 unless masks are shared.
    #[must_use]
    pub fn setup_bytes(&self, tile: usize) -> usize {
        if self.mask != MaskMode::Shared {
            return 0;
        }
        self.tile_outputs(tile).saturating_mul(self.polynomial_bytes(self.params.modulus_bits()))
    }
}

/// A stage of the batch engine.
#[derive(Clone, Debug)]
pub enum Stage {
    /// Computed by the client in the clear.
    Client(ClientStage),
    /// Computed by the server under encryption.
    Linear(Box<LinearStage>),
    /// Computed by the server under encryption, few images.
    Coefficients(Box<CoefficientLayer>),
}

impl Stage {
    /// The name of the stage, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Client(s) => &s.name,
            Self::Linear(s) => &s.name,
            Self::Coefficients(s) => &s.name,
        }
    }
    /// The linear stage of the batch engine, if it is one.
    #[must_use]
    pub fn linear(&self) -> Option<&LinearStage> {
        match self {
            Self::Linear(s) => Some(s),
            Self::Client(_) | Self::Coefficients(_) => None,
        }
    }
    /// The coefficient-packed linear stage, if it is one.
    #[must_use]
    pub fn coefficients(&self) -> Option<&CoefficientLayer> {
        match self {
            Self::Coefficients(s) => Some(s),
            Self::Client(_) | Self::Linear(_) => None,
        }
    }
    /// What the server computes of the stage: tensors that it reads and writes; none of a client stage.
    pub(crate) fn encrypted(&self) -> Option<(usize, usize)> {
        match self {
            Self::Client(_) => None,
            Self::Linear(s) => Some((s.input, s.output)),
            Self::Coefficients(s) => Some((s.input, s.output)),
        }
    }
    /// What the planner predicts of a stage of the server.
    pub(crate) fn predicted(&self) -> Option<&Map<String, Value>> {
        match self {
            Self::Client(_) => None,
            Self::Linear(s) => Some(&s.predicted),
            Self::Coefficients(s) => Some(&s.predicted),
        }
    }
    /// The weights of a stage of the server, where the plan has them.
    pub(crate) fn weights(&self) -> Option<&LinearWeights> {
        match self {
            Self::Client(_) => None,
            Self::Linear(s) => s.weights.as_deref(),
            Self::Coefficients(s) => s.weights.as_deref(),
        }
    }
    /// Requests for a block of images.
    pub(crate) fn requests(&self, images: usize) -> usize {
        match self {
            Self::Client(_) => 0,
            Self::Linear(s) => s.tiles.len(),
            Self::Coefficients(s) => s.tiles() * images,
        }
    }
}

/// How strictly a plan is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// Accept plans that are marked insecure.
    pub allow_insecure: bool,
    /// Sizes that are refused.
    pub limits: Limits,
}

/// Images that run through the stages together where they are few: one waits for the network while another one computes.
pub const IMAGES_TOGETHER: usize = 8;

/// Images in a full block.
pub(crate) fn block_images(spec: &PlanSpec) -> usize {
    match spec.engine {
        Engine::Batch => spec.params.ring_degree,
        Engine::Packed => IMAGES_TOGETHER,
    }
}

/// A checked client-aided plan; of other trust models, what the client's interpreter runs of it.
pub type Plan = Checked<ClientAided>;

impl Plan {
    /// All stages, in the order in which they run.
    #[must_use]
    pub fn stages(&self) -> &[Stage] {
        &self.model().stages
    }
    /// Images in a full block: N in batches.
    #[must_use]
    pub fn block_images(&self) -> usize {
        block_images(self.spec())
    }
    /// Bytes of tensors that a client holds at once for a full block.
    #[must_use]
    pub fn client_tensor_bytes(&self) -> u64 {
        self.model().client_memory
    }
    /// Bytes of the largest frame that either party sends, header included; at least 64 KiB, for control messages.
    #[must_use]
    pub fn largest_frame(&self) -> usize {
        let stage = |s: &LinearStage| {
            (0..s.tiles.len())
                .map(|t| s.request_bytes(t).max(s.response_bytes(t)).max(s.setup_bytes(t)))
                .max()
                .unwrap_or(0)
        };
        let batch = self.stages().iter().filter_map(Stage::linear).map(stage);
        let packed =
            self.stages().iter().filter_map(Stage::coefficients).map(CoefficientLayer::largest_payload);
        let largest = batch.chain(packed).max().unwrap_or(0);
        (largest + crate::wire::HEADER).max(64 << 10)
    }
    /// A plan of client stages only, whose parts another trust model's plan has checked: what [`crate::program`] runs.
    /// `inputs` and `outputs` are kept as long as the plan runs.
    pub(crate) fn client_only(
        spec: PlanSpec,
        tensors: Vec<Tensor>,
        stages: Vec<Stage>,
        inputs: Vec<Port>,
        outputs: Vec<Port>,
    ) -> Self {
        let model = ClientAided::new(&tensors, stages, &outputs, 1);
        let (json, weights) = (String::new(), false);
        Self::new(Parts { spec, json, tensors, inputs, outputs, weights, model })
    }
    /// The first segment of the next stage, where it runs on the outputs of linear stage `stage` as they come.
    pub(crate) fn fused_segment(&self, stage: usize) -> Option<&crate::program::Segment> {
        use crate::program::StageProgram::{Client, Linear};
        match (&self.model().programs[stage], self.model().programs.get(stage + 1)) {
            (Linear { fused: true, .. }, Some(Client(segments))) => segments.first(),
            _ => None,
        }
    }
    pub(crate) fn program(&self, stage: usize) -> &crate::program::StageProgram {
        &self.model().programs[stage]
    }
}
