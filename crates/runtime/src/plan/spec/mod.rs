//! The JSON of a plan as it stands in the file (`docs/plan-format.md`): unchecked, and one grammar for every trust model.
//!
//! What differs between trust models is data: a part of [`ParamsSpec`] for each, and the tables of the module `grammar`, which say which tensors, stages,
//! engines and methods a trust model allows.

mod function;
mod grammar;
mod layer;
mod op;
mod stage;

pub use function::{BasisFields, End, FormSpec, FunctionSpec};
pub use grammar::{Grammar, LayerFields, MethodRule, Operands, StageRule, GRAMMARS, STAGES};
pub use layer::{BatchSpec, BitsSpec, GeometrySpec, LinearSpec, MaskMode, TileSpec};
pub use op::{OpKind, OpSpec, TopKResult};
pub use stage::{NetworkSpec, Protocol, Reveal, Sign, StageKind, StageSpec, UploadSpec, WindowSpec};

use hushnet_ring::Ring;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// Version of the plan format that this crate reads and writes.
pub const VERSION: u32 = 2;

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

impl Trust {
    /// The name in the plan.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NonInteractive => "non-interactive",
            Self::ClientAided => "client-aided",
            Self::TwoParty => "two-party",
        }
    }
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

impl PlanSpec {
    /// The plan without its tensors, stages and ports: what the client's interpreter is told of it.
    #[must_use]
    pub(crate) fn header(&self) -> Self {
        Self {
            version: self.version,
            name: self.name.clone(),
            producer: self.producer.clone(),
            trust: self.trust,
            engine: self.engine,
            params: self.params.clone(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            tensors: Vec::new(),
            stages: Vec::new(),
            predicted: Map::new(),
            notes: Vec::new(),
        }
    }
}

/// Cryptographic parameters that all stages share, with a part for the plan's trust model where it has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParamsSpec {
    /// Ring degree N: of batches the images in a block, of other plans that of the packed ciphertexts.
    pub ring_degree: usize,
    /// Claimed security level.
    pub security_bits: u32,
    /// Set when the parameters are below the security table.
    pub insecure: bool,
    /// Of two-party plans, and of no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub two_party: Option<TwoPartySpec>,
    /// Of non-interactive plans, and of no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub non_interactive: Option<NonInteractiveSpec>,
}

/// What all stages of a two-party plan share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TwoPartySpec {
    /// l, shares are modulo 2^l.
    pub ring_bits: u32,
    /// What the client learns.
    pub reveal: Reveal,
    /// Where the ranges of values come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranges: Option<Ranges>,
    /// Where bounds of the sums of linear stages come from: [`Ranges::Calibrated`] lets them be below what the weights
    /// allow, in plans whose ranges are calibrated; server only. Sums that nothing else bounds wrap around without notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sums: Option<Ranges>,
    /// Which preparation of the model the set-ups of rotation-free stages belong to: 64 hexadecimal digits that a server draws when it prepares a
    /// model, the same for all its clients. In served public parts only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparation: Option<String>,
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

/// CKKS parameters of a non-interactive plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NonInteractiveSpec {
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
    /// How results are hidden; absent: they are not, and may give weights away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hide_weights: Option<HideSpec>,
}

/// What a slot holds: one real value or two.
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

/// Results are re-randomised, and flooded with coefficients uniform in `[-2^(b-1), 2^(b-1))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HideSpec {
    /// b.
    pub flood_bits: u32,
}

/// A named input or output of the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSpec {
    /// Name for users.
    pub name: String,
    /// Tensor id.
    pub tensor: u32,
    /// Of an input: least and largest value that the network is planned for. The client clamps to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// Of an output: the classes that its values are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassesSpec>,
    /// Of an input: what the client puts in the place of missing values (NaN), one for all elements or one for each;
    /// none where NaN stays what it is, which is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Vec<Option<f64>>>,
    /// Of an input that is a row of a table: what its columns are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
}

/// Classes of a classifier, in the order of its scores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassesSpec {
    /// What an output's values say of them.
    pub of: ClassesOf,
    /// What users call them.
    pub names: Vec<ClassName>,
}

/// How an output speaks of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassesOf {
    /// The output is the place of a class in the list.
    Index,
    /// The output has one value for each class; the largest is that of the answer.
    Columns,
    /// The output has one value for each class, and the largest need not be that of the answer.
    Values,
    /// The output is one value: above zero the answer is the second of two classes, else the first.
    Sign,
}

/// What users call a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ClassName {
    /// A class that is called by an integer.
    Number(i64),
    /// A class that is called by a text.
    Text(String),
}

/// Where a tensor is, and its arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KindSpec {
    /// IEEE binary64, known to the client.
    Real,
    /// Integers `v`, meaning `v * scale`, known to the client.
    Fixed,
    /// Integers `v` meaning `v * 2^-frac_bits`, in additive shares of both parties.
    Shared,
    /// Ciphertexts of real numbers, at the server.
    Cipher,
}

impl KindSpec {
    /// The name in the plan.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Fixed => "fixed",
            Self::Shared => "shared",
            Self::Cipher => "cipher",
        }
    }

    /// Whether the client knows the values.
    #[must_use]
    pub fn clear(self) -> bool {
        matches!(self, Self::Real | Self::Fixed)
    }
}

/// A tensor; the shape is per image. Which fields a kind has stands in `docs/plan-format.md`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    /// Id, unique in the plan.
    pub id: u32,
    /// Name for messages.
    pub name: String,
    /// Shape per image.
    pub shape: Vec<usize>,
    /// Where it is, and its arithmetic.
    pub kind: KindSpec,
    /// Of fixed tensors: the value of one unit. Of ciphertexts: the exact factor between value and phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Largest absolute value: an integer of fixed and shared tensors (shared: server only), a real number of ciphertexts (in a public part only
    /// of what is encrypted and decrypted).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Number>,
    /// f, of shared tensors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frac_bits: Option<i32>,
    /// k, of shared tensors: every value is below 2^k in absolute value, units of errors included. What both parties derive rings from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach_bits: Option<u32>,
    /// Of ciphertexts of batches: data primes in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<usize>,
    /// Of ciphertexts of batches: polynomials of a ciphertext.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<usize>,
    /// Of ciphertexts: largest absolute value that the polynomial which reads them is good for; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<f64>,
    /// Of ciphertexts that are decrypted: the error's deviation, before any flood, is at most 2^this ring units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_bits: Option<u32>,
}

impl TensorSpec {
    /// The bound of integers; `None` where there is none, or it is no whole number.
    #[must_use]
    pub fn integer_bound(&self) -> Option<u64> {
        self.bound.as_ref().and_then(Number::as_u64)
    }

    /// The bound of real values.
    #[must_use]
    pub fn real_bound(&self) -> Option<f64> {
        self.bound.as_ref().and_then(Number::as_f64)
    }
}
