//! The client-aided protocol of the batch engine (`docs/wire-protocol.md`), one module a party.
//!
//! The server learns shapes only; the client learns every pre-activation.

pub mod client;
mod coefficients;
mod exchange;
mod layer;
pub mod server;
mod tiles;

pub use client::{Client, ClientOptions};
pub use server::ServerPlan;
