//! What can be wrong with a packed network.

use crate::batch::LayerError;
use hushnet_rlwe::ckks::CkksError;

/// Why a network, its parameters or an input is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PackedError {
    /// A network that is not well formed.
    #[error("network: {0}")]
    Spec(String),
    /// A step of the network that is not well formed.
    #[error("step '{step}': {why}")]
    Step {
        /// Name of the step.
        step: String,
        /// What is wrong.
        why: String,
    },
    /// No secure parameters hold the circuit.
    #[error("the network needs {depth} levels ({layers}), and no ring degree up to {largest} holds them with {bits} bits of precision at 128-bit security: {why}; use activations of a lower degree, fewer layers, or a lower precision")]
    Depth {
        /// Levels that the longest path needs.
        depth: usize,
        /// Every step on that path with its levels.
        layers: String,
        /// Largest ring degree tried.
        largest: usize,
        /// Bits of precision asked for.
        bits: u32,
        /// Why the largest ring degree failed.
        why: String,
    },
    /// More memory or larger keys than allowed.
    #[error("{what} would take {needed} bytes, {limit} are allowed; {hint}")]
    TooLarge {
        /// Keys or memory.
        what: &'static str,
        /// What it would take.
        needed: u64,
        /// The limit.
        limit: u64,
        /// What to do.
        hint: &'static str,
    },
    /// An input of the wrong length.
    #[error("the input has {got} values, the network takes {expected}")]
    InputLength {
        /// Elements of the input tensor.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// An input value outside of its declared bound.
    #[error(
        "input value number {index} is not within +-{bound}; scale the input, or compile with a larger bound"
    )]
    InputRange {
        /// Position.
        index: usize,
        /// Declared bound.
        bound: f64,
    },
    /// Messages of the other side that do not fit the circuit.
    #[error("{what}: {got} came, {expected} are needed")]
    Message {
        /// Which message.
        what: &'static str,
        /// Ciphertexts needed.
        expected: usize,
        /// Ciphertexts that came.
        got: usize,
    },
    /// The caller stopped the evaluation.
    #[error("stopped")]
    Stopped,
    /// From a geometry.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// From CKKS.
    #[error(transparent)]
    Ckks(#[from] CkksError),
}
