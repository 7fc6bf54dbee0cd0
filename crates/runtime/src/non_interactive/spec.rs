//! The JSON of a non-interactive plan as it stands in the file (`docs/non-interactive.md`): unchecked.

use crate::plan::spec::{OpSpec, ParamsSpec as BatchParams, PortSpec};
use crate::plan::{Engine, GeometrySpec, Trust};
use hushnet_layers::packed::{Choices, Options, PackedSpec};
use hushnet_ring::Ring;
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
    /// `batch` or `packed`.
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
    /// One value a slot of the conjugate-invariant ring: N images.
    #[serde(rename = "conjugate-invariant")]
    Invariant,
}

impl Packing {
    /// The ring whose slots these are.
    #[must_use]
    pub fn ring(self) -> Ring {
        match self {
            Self::Real | Self::Complex => Ring::Cyclotomic,
            Self::Invariant => Ring::ConjugateInvariant,
        }
    }
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
    /// Data primes up to which keys go; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_level: Option<usize>,
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

/// Ciphertexts of the input at one level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadSpec {
    /// Data primes.
    pub level: usize,
    /// Name of the tensor `[ciphertexts, N/2]` of input elements by slot, -1 for none.
    pub slots: String,
}

/// A whole network on one image (`docs/packed.md`): what the client must know, and for the server the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackedStage {
    /// Name for messages.
    pub name: String,
    /// Operand.
    #[serde(rename = "in")]
    pub input: u32,
    /// Result.
    #[serde(rename = "out")]
    pub output: u32,
    /// Scale of what is sent.
    pub scale: f64,
    /// What is sent.
    pub uploads: Vec<UploadSpec>,
    /// Rotation keys: steps, and highest level in data primes.
    pub rotations: Vec<(i64, usize)>,
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
    pub network: Option<PackedSpec>,
    /// How it was compiled; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Options>,
    /// What the search chose; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choices: Option<Choices>,
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
    /// A whole network on one image.
    Packed(Box<PackedStage>),
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
            Self::Packed(s) => &s.name,
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
            Self::Packed(_) => "packed",
            Self::Multiply { .. } => "multiply",
            Self::Relinearise(_) => "relinearise",
            Self::Rescale(_) => "rescale",
            Self::Combine { .. } => "combine",
        }
    }
}
