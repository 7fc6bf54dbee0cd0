//! Stages as they stand in the file: a name, operands (`in`), a result (`out`), and what is computed.

use super::grammar::{rule, Operands};
use super::{FunctionSpec, LinearSpec, OpSpec};
use hushnet_layers::packed::{Choices, GraphSpec, PackedOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A stage of any trust model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct StageSpec {
    /// Name for messages.
    pub name: String,
    /// `in`: operands; none of the client's stages, whose operations have their own.
    pub inputs: Vec<u32>,
    /// `out`: the result; none of the client's stages.
    pub output: Option<u32>,
    /// What is computed.
    pub kind: StageKind,
}

/// Whether a choice is not made: then it is not written.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_false(choice: &bool) -> bool {
    !*choice
}

/// Whether no bits are dropped: then the number is not written.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(bits: &u32) -> bool {
    *bits == 0
}

/// What a stage computes. Which trust models allow it stands in [`super::STAGES`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs, reason = "the tables in docs/plan-format.md are the documentation of fields")]
pub enum StageKind {
    /// Operations of the client in the clear, in order.
    Client { ops: Vec<OpSpec> },
    /// The client's integers become shares.
    Share {},
    /// The client's numbers become ciphertexts.
    Encrypt {},
    /// Ciphertexts become the client's numbers.
    Decrypt {},
    /// `W x + b`.
    Linear(Box<LinearSpec>),
    /// A whole network on one image, under encryption.
    Packed(Box<NetworkSpec>),
    /// Product of two tensors of ciphertexts; twice the same: a square.
    Multiply {},
    /// Three parts to two, and one level down where the result's level says so.
    Relinearise {},
    /// Levels down.
    Rescale {},
    /// `sum_i k_i x_i + c`: names of the integers k and of the constant c, both server only.
    Combine {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        factors: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        constant: Option<String>,
    },
    /// `max(x / 2^bits, 0)`; with bits, `reach_bits` is that of x / 2^bits.
    Relu {
        #[serde(default, skip_serializing_if = "is_zero")]
        bits: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reach_bits: Option<u32>,
        #[serde(default, skip_serializing_if = "Protocol::is_ot")]
        protocol: Protocol,
    },
    /// x, or `numerator / 2^log_denominator x` below zero.
    LeakyRelu { numerator: u64, log_denominator: u32 },
    /// `min(max(x / 2^bits, low), high)`.
    Clip {
        #[serde(default, skip_serializing_if = "is_zero")]
        bits: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        low: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        high: Option<i64>,
        reach_bits: u32,
        #[serde(default, skip_serializing_if = "Protocol::is_ot")]
        protocol: Protocol,
    },
    /// Arithmetic shift right.
    Truncate {
        bits: u32,
        sign: Sign,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        exact: bool,
    },
    /// Maxima of windows.
    MaxPool(WindowSpec),
    /// Sums of windows.
    SumPool(WindowSpec),
    /// Product with a positive integer.
    Scale { factor: u64 },
    /// Sum of two tensors.
    Add {},
    /// `by + x`, or `by - x`; the constant is server only.
    Shift {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<i64>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        negated: bool,
    },
    /// `x min(max(x + 2 quarter, 0), 4 quarter) / 2^bits`, in units of x.
    HardSwish { quarter: u64, bits: u32 },
    /// A function of one variable, of every element.
    Function(Box<FunctionSpec>),
    /// Product of two tensors, element by element and broadcast to the result's shape, divided by 2^bits; twice the same: a square. `within`: the result's
    /// reach bounds it more tightly than the factors' reaches do, so it is computed in a ring for the result.
    Product {
        bits: u32,
        #[serde(default, skip_serializing_if = "is_false")]
        within: bool,
    },
    /// Products of two tensors of matrices, `[..., n, k]` and `[..., k, m]`, divided by 2^bits.
    MatrixProduct { bits: u32 },
    /// The same elements in another shape.
    Reshape {},
    /// Axes in another order.
    Transpose { perm: Vec<usize> },
    /// Tensors one after the other along an axis.
    Concat { axis: usize },
    /// Elements `start:end:step` along axes.
    Slice { starts: Vec<i64>, ends: Vec<i64>, steps: Vec<i64>, axes: Vec<usize> },
    /// Zeros around.
    Pad { pads: Vec<usize> },
    /// Opened to the client.
    Reveal {
        what: Reveal,
        #[serde(default, skip_serializing_if = "Protocol::is_ot")]
        protocol: Protocol,
    },
}

/// What a two-party client learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reveal {
    /// The output.
    Output,
    /// The index of the largest element only.
    Argmax,
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

/// How a non-linear stage on shares is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Oblivious transfer: few bytes, messages by the logarithm of the bits.
    #[default]
    Ot,
    /// Oblivious transfer, a carry through digits of two bits: the fewest bytes, a message for each digit.
    #[serde(rename = "ripple-2")]
    Ripple2,
    /// The same of three bits.
    #[serde(rename = "ripple-3")]
    Ripple3,
    /// The same of four bits: the fewest transfers.
    #[serde(rename = "ripple-4")]
    Ripple4,
    /// A garbled circuit, the server garbling: many bytes, two messages.
    Garbled,
}

impl Protocol {
    #[allow(clippy::trivially_copy_pass_by_ref)] // Serde's predicate
    fn is_ot(&self) -> bool {
        *self == Self::Ot
    }
}

/// A window that slides over the spatial axes of `[channels, height, width]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    /// Height and width.
    pub kernel: [usize; 2],
    /// Steps down and right.
    pub stride: [usize; 2],
    /// Top, left, bottom, right.
    pub pads: [usize; 4],
    /// Must be 1, 1.
    pub dilation: [usize; 2],
    /// Of maxima: bits dropped in front of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bits: u32,
    /// Of maxima that drop bits: k of what is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach_bits: Option<u32>,
    /// Of maxima.
    #[serde(default, skip_serializing_if = "Protocol::is_ot")]
    pub protocol: Protocol,
}

/// Ciphertexts of the input at one level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadSpec {
    /// Data primes.
    pub level: usize,
    /// Name of the tensor `[ciphertexts, N/2]` of input elements by slot, -1 for none.
    pub slots: String,
}

fn one_image() -> usize {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_one(images: &usize) -> bool {
    *images == 1
}

/// A whole network on an image, or on some side by side (`docs/packed.md`): what the client must know, and for the server the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// Images side by side: element e of image b is element `e images + b` of what the network reads and gives.
    #[serde(default = "one_image", skip_serializing_if = "is_one")]
    pub images: usize,
    /// Scale of what is sent.
    pub scale: f64,
    /// What is sent.
    pub uploads: Vec<UploadSpec>,
    /// Rotation keys: steps, and highest level in data primes.
    pub rotations: Vec<(i64, usize)>,
    /// Slots of messages that the server bootstraps; absent where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<usize>,
    /// Ciphertexts of the answer.
    pub answer: usize,
    /// Data primes of the answer.
    pub answer_level: usize,
    /// Scale of the answer.
    pub answer_scale: f64,
    /// Name of the tensor `[elements, 2]`: ciphertext and slot of every output.
    pub places: String,
    /// The steps, which name their weights; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<GraphSpec>,
    /// How it was compiled; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<PackedOptions>,
    /// What the search chose; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choices: Option<Choices>,
}

impl StageSpec {
    /// The operations of a client's stage; none of others.
    #[must_use]
    pub fn ops(&self) -> &[OpSpec] {
        match &self.kind {
            StageKind::Client { ops } => ops,
            _ => &[],
        }
    }

    /// The linear layer, where it is one.
    #[must_use]
    pub fn linear(&self) -> Option<&LinearSpec> {
        match &self.kind {
            StageKind::Linear(layer) => Some(layer),
            _ => None,
        }
    }
}

impl StageKind {
    /// The kind as it stands in the plan.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Client { .. } => "client",
            Self::Share {} => "share",
            Self::Encrypt {} => "encrypt",
            Self::Decrypt {} => "decrypt",
            Self::Linear(_) => "linear",
            Self::Packed(_) => "packed",
            Self::Multiply {} => "multiply",
            Self::Relinearise {} => "relinearise",
            Self::Rescale {} => "rescale",
            Self::Combine { .. } => "combine",
            Self::Relu { .. } => "relu",
            Self::LeakyRelu { .. } => "leaky_relu",
            Self::Clip { .. } => "clip",
            Self::Truncate { .. } => "truncate",
            Self::MaxPool(_) => "max_pool",
            Self::SumPool(_) => "sum_pool",
            Self::Scale { .. } => "scale",
            Self::Add {} => "add",
            Self::Shift { .. } => "shift",
            Self::HardSwish { .. } => "hard_swish",
            Self::Function(_) => "function",
            Self::Product { .. } => "product",
            Self::MatrixProduct { .. } => "matrix_product",
            Self::Reshape {} => "reshape",
            Self::Transpose { .. } => "transpose",
            Self::Concat { .. } => "concat",
            Self::Slice { .. } => "slice",
            Self::Pad { .. } => "pad",
            Self::Reveal { .. } => "reveal",
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

    /// Bits that a comparison drops in front, and k of what is left where the stage states it; none of other stages.
    #[must_use]
    pub fn dropped(&self) -> (u32, Option<u32>) {
        match self {
            Self::Relu { bits, reach_bits, .. } => (*bits, *reach_bits),
            Self::Clip { bits, reach_bits, .. } => (*bits, Some(*reach_bits)),
            Self::MaxPool(w) | Self::SumPool(w) => (w.bits, w.reach_bits),
            _ => (0, None),
        }
    }
}

/// A value that is written as a JSON object, as one.
pub(super) fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

impl TryFrom<Map<String, Value>> for StageSpec {
    type Error = String;

    fn try_from(mut map: Map<String, Value>) -> Result<Self, String> {
        let name = map.remove("name").ok_or("a stage has no field 'name'")?;
        let Value::String(name) = name else { return Err(format!("a stage's name is {name}, not a text")) };
        let fail = |detail: String| format!("stage '{name}': {detail}");
        let (given, result) = (map.remove("in"), map.remove("out"));
        let kind: StageKind = serde_json::from_value(Value::Object(map)).map_err(|e| fail(e.to_string()))?;
        let operands = rule(&kind).operands;
        let inputs = operands.read(given).map_err(|e| fail(format!("field 'in': {e}")))?;
        let output = match (result, operands) {
            (None, Operands::None) => None,
            (Some(id), Operands::None) => {
                return Err(fail(format!("field 'out' is {id}; it has no result of its own")))
            }
            (None, _) => return Err(fail("field 'out' is missing".into())),
            (Some(id), _) => Some(serde_json::from_value(id).map_err(|e| fail(format!("field 'out': {e}")))?),
        };
        Ok(Self { name, inputs, output, kind })
    }
}

impl From<StageSpec> for Map<String, Value> {
    fn from(stage: StageSpec) -> Self {
        let mut map = object(&stage.kind);
        map.insert("name".into(), stage.name.into());
        if let Some(given) = rule(&stage.kind).operands.write(stage.inputs) {
            map.insert("in".into(), given);
        }
        if let Some(output) = stage.output {
            map.insert("out".into(), output.into());
        }
        map
    }
}
