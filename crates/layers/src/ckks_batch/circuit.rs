//! The circuit: what is computed, checked once.

use super::pass::Step;
use super::CircuitError;
use crate::batch::{BatchLinear, Geometry};
use hushnet_matmul::Prepared;
use hushnet_ring::rns::{Eval, Modulus, RnsPoly};
use hushnet_rlwe::ckks::CkksParams;
use std::sync::Arc;

/// A tensor of ciphertexts, one a feature.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// Features.
    pub elements: usize,
    /// Data primes in use.
    pub level: usize,
    /// Polynomials of a ciphertext: 2, or 3 after a product.
    pub parts: usize,
    /// Exact factor between message and phase.
    pub scale: f64,
    /// Bound of |message| that was planned for.
    pub bound: f64,
}

/// A linear layer; without weights in a public part.
#[derive(Clone, Debug)]
pub struct CircuitLinear {
    /// Shapes.
    pub geometry: Geometry,
    /// Integer weights in the plan's order, and one bias an output (channel), or one an output element, in units of the message.
    pub weights: Option<(Vec<i16>, Vec<f64>)>,
}

/// What a stage of a circuit computes.
#[derive(Clone, Debug)]
pub enum StageKind {
    /// `out = W in + b`, W of integers: the ratio of scales tells what one unit of a weight is worth.
    Linear(Box<CircuitLinear>),
    /// `a b`, slot by slot; the same operand twice is a square. Three parts.
    Multiply,
    /// Three parts to two; with a result one level lower, rescaled in the same step.
    Relinearise,
    /// Divided by the primes between the levels of operand and result.
    Rescale,
    /// `sum_i k_i in_i + c` element by element: sums, and the linear combination of powers that a polynomial is. Without
    /// factors in a public part.
    Combine {
        /// Integer factors and the constant in units of the message.
        factors: Option<(Vec<i64>, f64)>,
    },
}

/// A stage: operands, result, what is computed.
#[derive(Clone, Debug)]
pub struct StageSpec {
    /// Name for messages.
    pub name: String,
    /// Tensors read.
    pub inputs: Vec<usize>,
    /// Tensor written.
    pub output: usize,
    /// What is computed.
    pub kind: StageKind,
}

/// A circuit as it is described, before any check.
#[derive(Clone, Debug)]
pub struct CircuitSpec {
    /// Tensors.
    pub tensors: Vec<TensorSpec>,
    /// Tensors that the client encrypts.
    pub inputs: Vec<usize>,
    /// Tensors that the client decrypts.
    pub outputs: Vec<usize>,
    /// Stages in order.
    pub stages: Vec<StageSpec>,
    /// Whether inputs hold two values a slot ([`hushnet_rlwe::ckks::Encoder::encode_packed`]).
    pub complex: bool,
}

/// What is known of a tensor's error: rigorous (but with probability 2^-40 a slot), whatever the dependence of terms, and as it would be if
/// the errors of different ciphertexts were independent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Track {
    /// Square root of the variance proxy, in ring units.
    pub sd: f64,
    /// The same for independent terms.
    pub likely: f64,
    /// `sd` without what encoding did to the client's values: the part that tells of the computation, and that a flood must hide.
    pub hidden: f64,
    /// Whether it is a fresh encryption: errors of different ciphertexts are then independent for certain.
    pub fresh: bool,
}

/// A number times a scale, rounded to an integer: `mantissa 2^shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scaled {
    mantissa: i128,
    shift: u32,
}

impl Scaled {
    /// `round(value * scale)`, which binary64 holds exactly beyond 2^53; `None` where it is not finite.
    pub(super) fn new(value: f64, scale: f64) -> Option<Self> {
        let v = (value * scale).round_ties_even();
        if v.abs() < 126f64.exp2() {
            return Some(Self { mantissa: v as i128, shift: 0 });
        }
        let shift = v.abs().log2() as u32 - 60;
        v.is_finite().then(|| Self { mantissa: (v / f64::from(shift).exp2()) as i128, shift })
    }

    pub(super) fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    pub(super) fn residue(self, m: &Modulus) -> u64 {
        m.mul(m.residue(self.mantissa), m.pow(2, u64::from(self.shift)))
    }
}

/// A linear layer ready to run.
pub(super) struct Linear {
    pub(super) geometry: Geometry,
    /// What its products read.
    pub(super) reads: super::linear::Reads,
    /// One matrix a group.
    pub(super) groups: Vec<Prepared>,
    /// Integer biases at the output's scale, by channel or by element.
    pub(super) bias: Vec<Scaled>,
    pub(super) sum_bits: u32,
}

pub(super) enum Kind {
    Linear(Option<Box<Linear>>),
    Multiply,
    Relinearise,
    Rescale,
    Combine(Option<(Vec<i64>, Scaled)>),
}

pub(super) struct Stage {
    pub(super) name: String,
    pub(super) inputs: Vec<usize>,
    pub(super) output: usize,
    pub(super) kind: Kind,
}

pub(super) struct Inner {
    pub(super) params: CkksParams,
    pub(super) tensors: Vec<TensorSpec>,
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    pub(super) stages: Vec<Stage>,
    pub(super) steps: Vec<Step>,
    pub(super) tracks: Option<Vec<Track>>,
    pub(super) complex: bool,
    /// With complex packing, the polynomial that is `1 + i` in every slot: what constants are multiples of.
    pub(super) one: Option<RnsPoly<Eval>>,
}

/// A checked circuit, ready to run where it has weights; cheap to clone.
#[derive(Clone)]
pub struct Circuit(pub(super) Arc<Inner>);

impl std::fmt::Debug for Circuit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Circuit({} tensors, {} stages)", self.0.tensors.len(), self.0.stages.len())
    }
}

impl Circuit {
    /// Checks a circuit and prepares its weights.
    ///
    /// # Errors
    /// [`CircuitError`] naming the tensor or stage that does not fit.
    pub fn new(params: &CkksParams, spec: CircuitSpec) -> Result<Self, CircuitError> {
        super::check::check(params, spec).map(|inner| Self(Arc::new(inner)))
    }

    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &CkksParams {
        &self.0.params
    }
    /// The shapes of all tensors, by id.
    #[must_use]
    pub fn tensors(&self) -> &[TensorSpec] {
        &self.0.tensors
    }
    /// Tensors that the client encrypts.
    #[must_use]
    pub fn inputs(&self) -> &[usize] {
        &self.0.inputs
    }
    /// Tensors that the client decrypts.
    #[must_use]
    pub fn outputs(&self) -> &[usize] {
        &self.0.outputs
    }
    /// Values a ciphertext: N/2; N with complex packing or in the conjugate-invariant ring.
    #[must_use]
    pub fn images(&self) -> usize {
        self.0.params.slots() * if self.0.complex { 2 } else { 1 }
    }
    /// Whether slots hold two values.
    #[must_use]
    pub fn is_complex(&self) -> bool {
        self.0.complex
    }
    /// Errors of all tensors; `None` without weights.
    #[must_use]
    pub fn tracks(&self) -> Option<&[Track]> {
        self.0.tracks.as_deref()
    }
    /// Whether a relinearisation key is needed.
    #[must_use]
    pub fn needs_relin_key(&self) -> bool {
        self.0.stages.iter().any(|s| matches!(s.kind, Kind::Relinearise))
    }
    /// Most bytes of polynomials that are alive at once, inputs included.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        super::pass::peak_bytes(&self.0)
    }
}

/// Checks the geometry against its tensors and makes integer matrices.
pub(super) fn batch_linear(spec: &CircuitLinear, weights: &[i16]) -> Result<BatchLinear, CircuitError> {
    let zeros = vec![0; spec.geometry.biases()];
    Ok(BatchLinear::new(spec.geometry, weights, &zeros)?)
}
