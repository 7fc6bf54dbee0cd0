//! The client-aided protocol of the batch engine (`docs/wire-protocol.md`), one module a party.
//!
//! The server learns shapes only; the client learns every pre-activation.

pub mod client;
mod exchange;
pub(crate) mod inputs;
mod layer;
pub mod server;
mod tiles;

pub use client::{Client, ClientOptions, OnProgress};
pub use inputs::{Input, Output};
pub(crate) use server::KEPT_BYTES;
pub use server::{ServerPlan, SessionEvent};

/// Tiles that a client sends ahead of the answers.
pub(crate) const IN_FLIGHT: usize = 2;
