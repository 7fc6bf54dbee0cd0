//! The JSON of a non-interactive plan as it stands in the file (`docs/non-interactive.md`): unchecked.

use crate::plan::spec::{OpSpec, ParamsSpec as BatchParams, PortSpec};
use crate::plan::{Engine, GeometrySpec, Trust};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Everything that a non-interactive plan says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSpec {
    /// Format version.
    pub version: u32,
    /// Name of the network.
    pub name: String,
    /// Program that wrote the plan.
    pub producer: String,
    /// `non-interactive`.
    pub trust: Trust,
    /// `batch`.
    pub engine: Engine,
    /// Cryptographic parameters.
    pub params: ParamsSpec,
    /// How results are hidden; absent: they are not, and may give weights away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hide_weights: Option<HideSpec>,
    /// Inputs of the network.
    pub inputs: Vec<PortSpec>,
    /// Outputs of the network.
    pub outputs: Vec<PortSpec>,
    /// All tensors.
    pub tensors: Vec<TensorSpec>,
    /// Stages in order of execution.
    pub stages: Vec<StageSpec>,
    /// What the planner predicts for a block; free fields, numbers or strings.
    #[serde(default)]
    pub predicted: Map<String, Value>,
    /// Sentences for `explain`.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What slots hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Packing {
    /// One value a slot: N/2 images.
    Real,
    /// Two values a slot: N images; no products of ciphertexts.
    Complex,
}

/// CKKS parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParamsSpec {
    /// Ring degree N.
    pub ring_degree: usize,
    /// Claimed security level.
    pub security_bits: u32,
    /// Set when the parameters are below the security table.
    pub insecure: bool,
    /// Data primes; level l uses the first l of them.
    pub data_primes: Vec<u64>,
    /// Special primes of key switching.
    pub special_primes: Vec<u64>,
    /// Digits of key switching.
    pub digits: usize,
    /// What slots hold.
    pub packing: Packing,
}

impl ParamsSpec {
    pub(super) fn batch(&self) -> BatchParams {
        BatchParams {
            ring_degree: self.ring_degree,
            security_bits: self.security_bits,
            insecure: self.insecure,
        }
    }
}

/// Results are re-randomised, and flooded with coefficients uniform in `[-2^(b-1), 2^(b-1))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HideSpec {
    /// b.
    pub flood_bits: u32,
}

/// Where a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KindSpec {
    /// IEEE binary64, the client's own.
    Real,
    /// Ciphertexts.
    Cipher,
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
    /// Where it is.
    pub kind: KindSpec,
    /// Data primes in use (ciphertexts).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<usize>,
    /// Polynomials of a ciphertext.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<usize>,
    /// Exact factor between value and phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Planned largest absolute value; in a public part only of what is encrypted and decrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// Largest absolute value that the polynomial which reads it is good for; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<f64>,
    /// Of decrypted tensors: the error's deviation, before any flood, is at most 2^this ring units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_bits: Option<u32>,
}

/// A linear layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearSpec {
    /// Name for messages.
    pub name: String,
    /// Operand.
    #[serde(rename = "in")]
    pub input: u32,
    /// Result.
    #[serde(rename = "out")]
    pub output: u32,
    /// What is computed.
    pub geometry: GeometrySpec,
    /// Name of the integer weights; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// Name of the biases, binary64; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
    /// What the planner predicts; free fields, server only.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub predicted: Map<String, Value>,
}

/// A stage with one operand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneSpec {
    /// Name for messages.
    pub name: String,
    /// Operand.
    #[serde(rename = "in")]
    pub input: u32,
    /// Result.
    #[serde(rename = "out")]
    pub output: u32,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum StageSpec {
    /// Computed by the client in the clear.
    Client {
        /// Name for messages.
        name: String,
        /// Operations in order.
        ops: Vec<OpSpec>,
    },
    /// Real to ciphertexts, by the client.
    Encrypt(OneSpec),
    /// Ciphertexts to real, by the client.
    Decrypt(OneSpec),
    /// `W x + b`.
    Linear(Box<LinearSpec>),
    /// Product of two tensors.
    Multiply {
        /// Name for messages.
        name: String,
        /// Operands; twice the same: a square.
        #[serde(rename = "in")]
        inputs: [u32; 2],
        /// Result.
        #[serde(rename = "out")]
        output: u32,
    },
    /// Three parts to two, and one level down where the result's level says so.
    Relinearise(OneSpec),
    /// Levels down.
    Rescale(OneSpec),
    /// `sum_i k_i x_i + c`.
    Combine {
        /// Name for messages.
        name: String,
        /// Operands.
        #[serde(rename = "in")]
        inputs: Vec<u32>,
        /// Result.
        #[serde(rename = "out")]
        output: u32,
        /// Name of the integers k; server only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        factors: Option<String>,
        /// Name of the constant, binary64; server only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        constant: Option<String>,
    },
}

impl StageSpec {
    /// Name for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Client { name, .. } | Self::Multiply { name, .. } | Self::Combine { name, .. } => name,
            Self::Encrypt(s) | Self::Decrypt(s) | Self::Relinearise(s) | Self::Rescale(s) => &s.name,
            Self::Linear(s) => &s.name,
        }
    }

    /// Its kind as it stands in the plan.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Client { .. } => "client",
            Self::Encrypt(_) => "encrypt",
            Self::Decrypt(_) => "decrypt",
            Self::Linear(_) => "linear",
            Self::Multiply { .. } => "multiply",
            Self::Relinearise(_) => "relinearise",
            Self::Rescale(_) => "rescale",
            Self::Combine { .. } => "combine",
        }
    }
}

impl PlanSpec {
    /// Without what only the server may know: names of weights, bounds of what lies between, costs of single stages.
    #[must_use]
    pub fn public(&self) -> Self {
        let mut spec = self.clone();
        let mut kept = Vec::new();
        for stage in &mut spec.stages {
            match stage {
                StageSpec::Linear(s) => {
                    (s.weights, s.bias) = (None, None);
                    s.predicted = Map::new();
                }
                StageSpec::Combine { factors, constant, .. } => (*factors, *constant) = (None, None),
                StageSpec::Encrypt(s) => kept.push(s.output),
                StageSpec::Decrypt(s) => kept.push(s.input),
                _ => {}
            }
        }
        for t in &mut spec.tensors {
            t.range = None;
            if !kept.contains(&t.id) {
                t.bound = None;
            }
        }
        spec
    }
}
