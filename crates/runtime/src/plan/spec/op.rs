//! Operations of the client in the clear, as they stand in the file.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An operation of the client, as plans write it.
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
    Log {},
    Sin {},
    Cos {},
    Atan {},
    Floor {},
    Round {},
    Less {},
    Equal {},
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
    ReduceProd {
        axes: Vec<usize>,
    },
    Matmul {},
    Interpolate {
        axis: usize,
        indices: Vec<Vec<usize>>,
        weights: Vec<Vec<f64>>,
    },
    TopK {
        axis: usize,
        largest: bool,
        what: TopKResult,
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
    Gather {
        axis: usize,
        indices: Vec<usize>,
    },
}

/// What `top_k` gives of the elements that it selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopKResult {
    /// The elements.
    Values,
    /// Their positions along the axis.
    Indices,
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
