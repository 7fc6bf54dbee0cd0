//! The JSON of a plan as it stands in the file (`docs/plan-format.md`): unchecked.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version of the plan format that this crate reads and writes.
pub const VERSION: u32 = 1;

/// Who computes the non-linear layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// Nobody: activations are polynomials, evaluated under encryption.
    NonInteractive,
    /// The client, in the clear.
    ClientAided,
    /// Both parties, on secret shares.
    TwoParty,
}

/// How values are laid out in ciphertexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// One feature of many images in a ciphertext.
    Batch,
    /// Many features of one image in a ciphertext.
    Packed,
}

/// Whether the public polynomials `a` depend on the block of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MaskMode {
    /// One `a` a feature for the whole session; its weighted sums travel once.
    Shared,
    /// A new `a` in every block; its weighted sums travel with every response.
    Fresh,
    /// As fresh, and sent whole with every request instead of derived from the seed (to show what seeds save).
    Sent,
}

/// Everything that a plan says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSpec {
    /// Format version.
    pub version: u32,
    /// Name of the network.
    pub name: String,
    /// Program that wrote the plan.
    pub producer: String,
    /// Trust model.
    pub trust: Trust,
    /// Engine.
    pub engine: Engine,
    /// Cryptographic parameters that all stages share.
    pub params: ParamsSpec,
    /// Inputs of the network.
    pub inputs: Vec<PortSpec>,
    /// Outputs of the network.
    pub outputs: Vec<PortSpec>,
    /// All tensors.
    pub tensors: Vec<TensorSpec>,
    /// Stages in order of execution.
    pub stages: Vec<StageSpec>,
    /// What the planner predicts for a whole run; free fields, numbers or strings.
    #[serde(default)]
    pub predicted: Map<String, Value>,
    /// Sentences for `explain`.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Cryptographic parameters that all stages share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParamsSpec {
    /// Ring degree N, images in a block.
    pub ring_degree: usize,
    /// Claimed security level.
    pub security_bits: u32,
    /// Set when the parameters are below the security table.
    pub insecure: bool,
}

/// A named input or output of the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSpec {
    /// Name for users.
    pub name: String,
    /// Tensor id.
    pub tensor: u32,
}

/// Arithmetic of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KindSpec {
    /// IEEE binary64.
    Real,
    /// Integers `v`, meaning `v * scale`.
    Fixed,
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
    /// Largest absolute value of the integers, of fixed tensors only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<u64>,
}

/// A stage of the batch engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum StageSpec {
    /// Computed by the client in the clear.
    Client {
        /// Name for messages.
        name: String,
        /// Operations in order.
        ops: Vec<OpSpec>,
    },
    /// Computed by the server under encryption.
    Linear(Box<LinearSpec>),
    /// Computed by the server under encryption, few images.
    Coefficients(Box<CoefficientSpec>),
}

/// An encrypted linear layer of few images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoefficientSpec {
    /// Name for messages.
    pub name: String,
    /// Fixed tensor that the client encrypts.
    pub input: u32,
    /// Fixed tensor that the client decrypts.
    pub output: u32,
    /// What is computed.
    pub geometry: GeometrySpec,
    /// Name of the weight tensor; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// Name of the bias tensor; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
    /// Bits of a word of c0 in a request.
    pub upload_bits: u32,
    /// Bits of a coefficient of c0 in a response.
    pub body_bits: u32,
    /// Bits of a word of a sum of masks.
    pub mask_bits: u32,
    /// What the planner predicts; free fields.
    #[serde(default)]
    pub predicted: Map<String, Value>,
}

/// An encrypted linear layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearSpec {
    /// Name for messages.
    pub name: String,
    /// `batch`.
    pub method: String,
    /// Fixed tensor that the client encrypts.
    pub input: u32,
    /// Fixed tensor that the client decrypts.
    pub output: u32,
    /// What is computed.
    pub geometry: GeometrySpec,
    /// Name of the weight tensor; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// Name of the bias tensor; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
    /// k, modulus 2^k.
    pub modulus_bits: u32,
    /// d, scale 2^d.
    pub delta_bits: u32,
    /// u, low bits that do not travel back.
    pub drop_bits: u32,
    /// v, at most u; with fresh masks only, u when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_drop_bits: Option<u32>,
    /// Masks.
    pub mask: MaskMode,
    /// Streaming order.
    pub tiles: Vec<TileSpec>,
    /// What the planner predicts; free fields.
    #[serde(default)]
    pub predicted: Map<String, Value>,
}

/// Shape of a linear layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum GeometrySpec {
    /// `y = W x + b`.
    Dense {
        /// K.
        inputs: usize,
        /// M.
        outputs: usize,
    },
    /// Cross-correlation, channels first.
    Conv2d {
        /// C, H, W.
        input: [usize; 3],
        /// O, OH, OW.
        output: [usize; 3],
        /// kh, kw.
        kernel: [usize; 2],
        /// sh, sw.
        stride: [usize; 2],
        /// top, left, bottom, right.
        pads: [usize; 4],
        /// dh, dw.
        dilation: [usize; 2],
        /// g.
        groups: usize,
    },
}

/// One tile: half-open ranges of rows (features for dense).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TileSpec {
    /// New input rows.
    pub inputs: [usize; 2],
    /// Output rows.
    pub outputs: [usize; 2],
}

/// A client operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct OpSpec {
    /// What is computed, with its attributes.
    pub kind: OpKind,
    /// Input tensor ids.
    pub inputs: Vec<u32>,
    /// Output tensor id.
    pub output: u32,
}

/// Names and attributes of the client operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs, reason = "the table in docs/plan-format.md is the documentation")]
pub enum OpKind {
    Quantize {},
    Dequantize {},
    Affine {
        mul: f64,
        add: f64,
    },
    Add {},
    Sub {},
    Mul {},
    Div {},
    Minimum {},
    Maximum {},
    Relu {},
    LeakyRelu {
        alpha: f64,
    },
    Prelu {
        slope: Vec<f64>,
    },
    ChannelScale {
        factor: Vec<f64>,
    },
    Clip {
        #[serde(default)]
        min: Option<f64>,
        #[serde(default)]
        max: Option<f64>,
    },
    Abs {},
    Neg {},
    Sqrt {},
    Square {},
    Sigmoid {},
    Tanh {},
    Exp {},
    Erf {},
    HardSigmoid {
        alpha: f64,
        beta: f64,
    },
    HardSwish {},
    Silu {},
    Gelu {},
    GeluTanh {},
    Elu {
        alpha: f64,
    },
    Softmax {
        axis: usize,
    },
    MaxPool {
        kernel: Vec<usize>,
        stride: Vec<usize>,
        pads: Vec<usize>,
        dilation: Vec<usize>,
    },
    AveragePool {
        kernel: Vec<usize>,
        stride: Vec<usize>,
        pads: Vec<usize>,
        count_include_pad: bool,
    },
    ReduceMean {
        axes: Vec<usize>,
    },
    ReduceSum {
        axes: Vec<usize>,
    },
    ReduceMax {
        axes: Vec<usize>,
    },
    Reshape {},
    Transpose {
        perm: Vec<usize>,
    },
    Concat {
        axis: usize,
    },
    Slice {
        starts: Vec<i64>,
        ends: Vec<i64>,
        steps: Vec<i64>,
        axes: Vec<usize>,
    },
    Pad {
        pads: Vec<usize>,
        value: f64,
    },
    Broadcast {},
}

impl OpKind {
    /// The name in the plan, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map.get("op").and_then(Value::as_str).unwrap_or("?").to_owned(),
            _ => "?".to_owned(),
        }
    }
}

impl TryFrom<Map<String, Value>> for OpSpec {
    type Error = String;

    fn try_from(mut map: Map<String, Value>) -> Result<Self, String> {
        let name = map.get("op").and_then(Value::as_str).unwrap_or("?").to_owned();
        let mut take =
            |key: &str| map.remove(key).ok_or_else(|| format!("op '{name}': field '{key}' is missing"));
        let inputs = take("in")?;
        let output = take("out")?;
        let inputs = serde_json::from_value(inputs).map_err(|e| format!("op '{name}', field 'in': {e}"))?;
        let output = serde_json::from_value(output).map_err(|e| format!("op '{name}', field 'out': {e}"))?;
        let kind = serde_json::from_value(Value::Object(map)).map_err(|e| format!("op '{name}': {e}"))?;
        Ok(Self { kind, inputs, output })
    }
}

impl From<OpSpec> for Map<String, Value> {
    fn from(op: OpSpec) -> Self {
        let mut map = match serde_json::to_value(&op.kind) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        };
        map.insert("in".into(), op.inputs.into());
        map.insert("out".into(), op.output.into());
        map
    }
}
