//! What can be wrong with a circuit, or with what it is run on.

use crate::batch::LayerError;
use hushnet_matmul::MatmulError;
use hushnet_ring::rns::RnsError;
use hushnet_rlwe::ckks::CkksError;

/// Why a circuit is refused, or cannot be run. Messages name the stage or tensor.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CircuitError {
    /// A tensor description is wrong.
    #[error("tensor {tensor}: {detail}")]
    Tensor {
        /// Index of the tensor.
        tensor: usize,
        /// What is wrong.
        detail: String,
    },
    /// A stage does not fit its tensors.
    #[error("stage '{stage}': {detail}")]
    Stage {
        /// Name of the stage.
        stage: String,
        /// What is wrong.
        detail: String,
    },
    /// The circuit was made without weights (a public part).
    #[error("stage '{0}' has no weights; only the server's plan can be run")]
    NoWeights(String),
    /// A relinearisation without its key.
    #[error("the circuit relinearises, and no relinearisation key was given")]
    NoKey,
    /// Ciphertexts that are not what the circuit takes.
    #[error("input {input}: {detail}")]
    Input {
        /// Index of the input.
        input: usize,
        /// What is wrong.
        detail: String,
    },
    /// The caller stopped it.
    #[error("stopped")]
    Stopped,
    /// The geometry or the weights were refused.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The scheme refused.
    #[error(transparent)]
    Ckks(#[from] CkksError),
    /// The ring refused.
    #[error(transparent)]
    Rns(#[from] RnsError),
    /// The matrix product refused.
    #[error(transparent)]
    Matmul(#[from] MatmulError),
}
