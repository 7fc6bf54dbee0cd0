//! The JSON of a two-party plan as it stands in the file (`docs/two-party.md`): unchecked.

use crate::plan::spec::{OpSpec, ParamsSpec as BatchParams, PortSpec};
use crate::plan::{Engine, GeometrySpec, Trust};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Everything that a two-party plan says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSpec {
    /// Format version.
    pub version: u32,
    /// Name of the network.
    pub name: String,
    /// Program that wrote the plan.
    pub producer: String,
    /// `two-party`.
    pub trust: Trust,
    /// `packed`.
    pub engine: Engine,
    /// Cryptographic parameters that all stages share.
    pub params: ParamsSpec,
    /// What the client learns.
    pub reveal: Reveal,
    /// Where the ranges of values come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranges: Option<Ranges>,
    /// Inputs of the network.
    pub inputs: Vec<PortSpec>,
    /// Outputs of the network.
    pub outputs: Vec<PortSpec>,
    /// All tensors.
    pub tensors: Vec<TensorSpec>,
    /// Stages in order of execution.
    pub stages: Vec<StageSpec>,
    /// Which preparation of the model the set-ups of rotation-free stages belong to: 64 hexadecimal digits that a server draws when it prepares a
    /// model, the same for all its clients. In served public parts only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparation: Option<String>,
    /// What the planner predicts for one image; free fields, numbers or strings.
    #[serde(default)]
    pub predicted: Map<String, Value>,
    /// Sentences for `explain`.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What the client learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reveal {
    /// The output.
    Output,
    /// The index of the largest element only.
    Argmax,
}

/// Where the ranges of values come from: what a client must know of how far an answer can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ranges {
    /// Calibration data: an input unlike them may leave a range, and its answer is then wrong without notice.
    Calibrated,
    /// Proven for all inputs of the declared intervals.
    Proven,
}

/// Cryptographic parameters that all stages share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParamsSpec {
    /// Ring degree N of the packed ciphertexts.
    pub ring_degree: usize,
    /// Claimed security level.
    pub security_bits: u32,
    /// Must be false: the packed engine has no parameters below the security table.
    pub insecure: bool,
    /// l, shares are modulo 2^l.
    pub ring_bits: u32,
}

impl ParamsSpec {
    pub(crate) fn batch(&self) -> BatchParams {
        BatchParams {
            ring_degree: self.ring_degree,
            security_bits: self.security_bits,
            insecure: self.insecure,
        }
    }
}

/// Arithmetic of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KindSpec {
    /// IEEE binary64, known to the client.
    Real,
    /// Integers known to the client.
    Fixed,
    /// Integers `v` meaning `v * 2^-frac_bits`, in additive shares.
    Shared,
}

/// A tensor; the shape is per image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    /// Id, unique in the plan.
    pub id: u32,
    /// Name for messages.
    pub name: String,
    /// Shape per image.
    pub shape: Vec<usize>,
    /// Arithmetic.
    pub kind: KindSpec,
    /// Scale, of fixed tensors only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// f, of shared tensors only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frac_bits: Option<i32>,
    /// k, of shared tensors only: every value is below 2^k in absolute value, units of errors included. What both parties derive rings from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach_bits: Option<u32>,
    /// Largest absolute value of the integers, of fixed and shared tensors; of shared tensors server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<u64>,
}

/// What is known of the sign of a truncated value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sign {
    /// Nothing.
    Any,
    /// It is not negative.
    NonNegative,
}

/// How a non-linear stage is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Oblivious transfer: few bytes, messages by the logarithm of the bits.
    #[default]
    Ot,
    /// A garbled circuit, the server garbling: many bytes, two messages.
    Garbled,
}

impl Protocol {
    fn is_ot(&self) -> bool {
        *self == Self::Ot
    }
}

/// A window that slides over the spatial axes of `[channels, height, width]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    /// Name for messages.
    pub name: String,
    /// Input.
    #[serde(rename = "in")]
    pub input: u32,
    /// Output.
    #[serde(rename = "out")]
    pub output: u32,
    /// Height and width.
    pub kernel: [usize; 2],
    /// Steps down and right.
    pub stride: [usize; 2],
    /// Top, left, bottom, right.
    pub pads: [usize; 4],
    /// Must be 1, 1.
    pub dilation: [usize; 2],
    /// Of maxima.
    #[serde(default, skip_serializing_if = "Protocol::is_ot")]
    pub protocol: Protocol,
}

/// A linear layer on shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearSpec {
    /// Name for messages.
    pub name: String,
    /// A name of the registry of linear methods ([`super::LINEAR_METHODS`]).
    pub method: String,
    /// Input.
    #[serde(rename = "in")]
    pub input: u32,
    /// Output.
    #[serde(rename = "out")]
    pub output: u32,
    /// What is computed.
    pub geometry: GeometrySpec,
    /// Name of the weight tensor; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// Name of the bias tensor; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
    /// Norm of all weights that meet in one answer (batch: in one output), rounded up to a power of two.
    pub weight_l2: f64,
    /// What the planner predicts; free fields.
    #[serde(default)]
    pub predicted: Map<String, Value>,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs, reason = "the table in docs/two-party.md is the documentation")]
pub enum StageSpec {
    Client {
        name: String,
        ops: Vec<OpSpec>,
    },
    Share {
        name: String,
        #[serde(rename = "in")]
        input: u32,
        #[serde(rename = "out")]
        output: u32,
    },
    Linear(Box<LinearSpec>),
    Relu {
        name: String,
        #[serde(rename = "in")]
        input: u32,
        #[serde(rename = "out")]
        output: u32,
        #[serde(default, skip_serializing_if = "Protocol::is_ot")]
        protocol: Protocol,
    },
    LeakyRelu {
        name: String,
        #[serde(rename = "in")]
        input: u32,
        #[serde(rename = "out")]
        output: u32,
        numerator: u64,
        log_denominator: u32,
    },
    Clip {
        name: String,
        #[serde(rename = "in")]
        input: u32,
        #[serde(rename = "out")]
        output: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        low: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        high: Option<i64>,
        reach_bits: u32,
        #[serde(default, skip_serializing_if = "Protocol::is_ot")]
        protocol: Protocol,
    },
    Truncate {
        name: String,
        #[serde(rename = "in")]
        input: u32,
        #[serde(rename = "out")]
        output: u32,
        bits: u32,
        sign: Sign,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        exact: bool,
    },
    MaxPool(WindowSpec),
    SumPool(WindowSpec),
    Scale {
        name: String,
        #[serde(rename = "in")]
        input: u32,
        #[serde(rename = "out")]
        output: u32,
        factor: u64,
    },
    Add {
        name: String,
        #[serde(rename = "in")]
        inputs: [u32; 2],
        #[serde(rename = "out")]
        output: u32,
    },
    Reshape {
        name: String,
        #[serde(rename = "in")]
        inputs: Vec<u32>,
        #[serde(rename = "out")]
        output: u32,
    },
    Transpose {
        name: String,
        #[serde(rename = "in")]
        inputs: Vec<u32>,
        #[serde(rename = "out")]
        output: u32,
        perm: Vec<usize>,
    },
    Concat {
        name: String,
        #[serde(rename = "in")]
        inputs: Vec<u32>,
        #[serde(rename = "out")]
        output: u32,
        axis: usize,
    },
    Slice {
        name: String,
        #[serde(rename = "in")]
        inputs: Vec<u32>,
        #[serde(rename = "out")]
        output: u32,
        starts: Vec<i64>,
        ends: Vec<i64>,
        steps: Vec<i64>,
        axes: Vec<usize>,
    },
    Pad {
        name: String,
        #[serde(rename = "in")]
        inputs: Vec<u32>,
        #[serde(rename = "out")]
        output: u32,
        pads: Vec<usize>,
    },
    Reveal {
        name: String,
        #[serde(rename = "in")]
        input: u32,
        #[serde(rename = "out")]
        output: u32,
        what: Reveal,
        #[serde(default, skip_serializing_if = "Protocol::is_ot")]
        protocol: Protocol,
    },
}

impl StageSpec {
    /// Name for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Client { name, .. }
            | Self::Share { name, .. }
            | Self::Relu { name, .. }
            | Self::LeakyRelu { name, .. }
            | Self::Clip { name, .. }
            | Self::Truncate { name, .. }
            | Self::Scale { name, .. }
            | Self::Add { name, .. }
            | Self::Reshape { name, .. }
            | Self::Transpose { name, .. }
            | Self::Concat { name, .. }
            | Self::Slice { name, .. }
            | Self::Pad { name, .. }
            | Self::Reveal { name, .. } => name,
            Self::Linear(s) => &s.name,
            Self::MaxPool(w) | Self::SumPool(w) => &w.name,
        }
    }

    /// How a non-linear stage is computed; the default for all others.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Relu { protocol, .. } | Self::Clip { protocol, .. } | Self::Reveal { protocol, .. } => {
                *protocol
            }
            Self::MaxPool(w) | Self::SumPool(w) => w.protocol,
            _ => Protocol::Ot,
        }
    }

    /// The kind as it stands in the plan.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Client { .. } => "client",
            Self::Share { .. } => "share",
            Self::Linear(_) => "linear",
            Self::Relu { .. } => "relu",
            Self::LeakyRelu { .. } => "leaky_relu",
            Self::Clip { .. } => "clip",
            Self::Truncate { .. } => "truncate",
            Self::MaxPool(_) => "max_pool",
            Self::SumPool(_) => "sum_pool",
            Self::Scale { .. } => "scale",
            Self::Add { .. } => "add",
            Self::Reshape { .. } => "reshape",
            Self::Transpose { .. } => "transpose",
            Self::Concat { .. } => "concat",
            Self::Slice { .. } => "slice",
            Self::Pad { .. } => "pad",
            Self::Reveal { .. } => "reveal",
        }
    }
}
