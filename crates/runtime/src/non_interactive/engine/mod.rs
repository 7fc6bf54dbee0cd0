//! What a session needs to know of an engine.
//!
//! A session is: keys up, ciphertexts up, ciphertexts down. How values lie in slots, which keys are needed and what
//! the server computes is the engine's. Each engine has a half for the client and one for the server, in files of their own: the server's
//! names no secret key.

pub(super) mod client;
pub(super) mod server;

use super::plan::NonInteractivePlan;
use crate::error::Error;
use hushnet_layers::ckks_batch::{Circuit, CircuitError};
use hushnet_layers::packed::PackedError;
use hushnet_rlwe::ckks::bootstrap::{BootstrapParams, Encapsulation};
use hushnet_rlwe::ckks::{CkksError, Galois, GaloisKeys, Level, RelinKey};

impl From<CkksError> for Error {
    fn from(e: CkksError) -> Self {
        Self::Internal(e.to_string())
    }
}

impl From<CircuitError> for Error {
    fn from(e: CircuitError) -> Self {
        match e {
            CircuitError::Stopped => Self::Cancelled,
            other => Self::Internal(other.to_string()),
        }
    }
}

impl From<PackedError> for Error {
    fn from(e: PackedError) -> Self {
        match e {
            PackedError::Stopped => Self::Cancelled,
            other => Self::Internal(other.to_string()),
        }
    }
}

/// Evaluation keys that a server needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeysNeeded {
    /// Relinearisation.
    pub relin: bool,
    /// Public encryption, to re-randomise results.
    pub public: bool,
    /// Automorphisms, each with the highest level at which it is used.
    pub galois: Vec<(Galois, Level)>,
    /// The pair of the ephemeral secret of bootstraps, in bytes.
    pub encapsulation: Option<usize>,
}

impl KeysNeeded {
    /// The evaluation keys that the stages of a plan need.
    #[must_use]
    pub fn of(plan: &NonInteractivePlan) -> Self {
        let public = plan.flood_bits().is_some();
        match plan.packed() {
            None => Self {
                relin: plan.circuit().is_some_and(Circuit::needs_relin_key),
                public,
                ..Self::default()
            },
            Some(parts) => Self {
                relin: true,
                public,
                galois: parts.interface().galois(),
                encapsulation: parts.interface().bootstrap().map(BootstrapParams::encapsulation_bytes),
            },
        }
    }
}

/// Evaluation keys that a server holds for a session.
#[derive(Clone, Default)]
pub struct EvaluationKeys {
    /// Relinearisation.
    pub relin: Option<RelinKey>,
    /// Rotations and conjugation.
    pub galois: Option<GaloisKeys>,
    /// To the ephemeral secret of bootstraps and back.
    pub encapsulation: Option<Encapsulation>,
}
