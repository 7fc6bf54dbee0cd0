//! Both sides private (`docs/two-party.md`): linear layers and products of shared matrices on ciphertexts (`methods`), everything else on
//! additive shares modulo 2^l. The client learns the output (or the label), the server nothing but shapes.
//!
//! [`TwoPartyPlan`] is the checked plan, [`TwoPartyClient`] the client's session, [`TwoPartyModel`] the server's prepared
//! weights, [`cost::predict`] the exact bytes and rounds of both.
//!
//! Where to read what:
//!
//! | question | files |
//! |---|---|
//! | what a plan may say | `check`, `check_local`, `plan`, `reach`, `flow` |
//! | how a session runs, stage by stage | `handshake`, `client`, `server`, `shares` (what both parties do alike), `frames` (over sockets) |
//! | how a stage is computed | `methods` (weights), `matrix_product` (two shared operands), `nonlinear` (comparisons), `elementwise`, `hard_swish` (functions), `product` |
//! | what it costs | `cost` (bytes, rounds), `work` (processor time), `memory`, `network` |
//! | what is kept | `stored` (the client's set-ups), `prepared` (the server's preparations), `units` (both parties' shares of prepared inferences) |
//! | what was measured | `trace`, `meter` |

mod check;
mod check_local;
pub mod client;
pub mod cost;
mod elementwise;
mod flow;
pub(crate) mod frames;
mod handshake;
mod hard_swish;
mod matrix_product;
mod memory;
mod meter;
mod methods;
pub mod network;
mod nonlinear;
pub mod plan;
pub mod prepared;
mod product;
mod reach;
pub mod server;
mod shares;
mod stored;
mod trace;
pub mod units;
mod work;

pub use client::{TwoPartyClient, TwoPartyOptions};
pub use cost::{predict, Prediction};
pub use elementwise::{fit, fit_exponential, Fitted};
pub use frames::connect;
pub use matrix_product::{matrix_figures, MatrixFigures};
pub use methods::{
    find as linear_method, largest_batch, slot_plain, Layers, LinearMethod, Method, METHODS as LINEAR_METHODS,
};
pub use plan::{TwoParty, TwoPartyPlan};
pub use prepared::PreparationStore;
pub use reach::reach_bits;
pub use server::TwoPartyModel;
pub use stored::Policy as SetupPolicy;
pub use trace::{Phase, ShareMeasures, SharesOwn, TwoPartyTrace};
pub use units::client::UnitCost;
pub use units::server::{UnitPolicy, UnitStore};
pub use work::{work, Work};

use crate::error::{Error, ProtocolError, TransportError};
use hushnet_layers::batch::LayerError;
use hushnet_mpc::MpcError;
use hushnet_rlwe::CipherError;

impl From<MpcError> for Error {
    fn from(e: MpcError) -> Self {
        use std::io::ErrorKind;
        match e {
            MpcError::Closed => TransportError::Closed.into(),
            MpcError::Io(e) => match e.kind() {
                ErrorKind::ConnectionReset
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionAborted => TransportError::Closed.into(),
                // An adapter's error travels through the byte stream as it is.
                _ => match e.downcast::<Error>() {
                    Ok(inner) => inner,
                    Err(e) => TransportError::Io(e.to_string()).into(),
                },
            },
            MpcError::Handshake { .. } | MpcError::BadPoint { .. } => {
                ProtocolError::Message { kind: "two-party set-up", detail: e.to_string() }.into()
            }
            MpcError::Peer { .. } => {
                ProtocolError::Message { kind: "two-party protocol", detail: e.to_string() }.into()
            }
            other => Self::Internal(other.to_string()),
        }
    }
}

/// A layer's error, where words of the peer may be the cause.
fn layer_error(e: LayerError) -> Error {
    match e {
        LayerError::Cipher(CipherError::NotReduced) => peer_words(&CipherError::NotReduced),
        other => other.into(),
    }
}

/// The error of words that a peer sent.
fn peer_words(e: &dyn std::error::Error) -> Error {
    ProtocolError::Message { kind: "ciphertext", detail: e.to_string() }.into()
}

#[cfg(test)]
mod tests;
