//! Nobody but the server computes (`docs/non-interactive.md`): activations are polynomials, evaluated under CKKS encryption. One message
//! each way. The server learns shapes only; the client learns the output, and, unless the plan hides weights, what ciphertexts tell.
//!
//! # What the server sees
//! Evaluation keys, ring-LWE encryptions under the client's key, and the number of images of every block. It sends nothing before all
//! ciphertexts of a block have come, and what it sends depends on them only through ring operations that take the same time for all
//! values.
//!
//! # What the client sees
//! Without `hide_weights`, ciphertexts that are polynomials in its own uniform polynomials with the weights as coefficients: weights are not
//! protected. With it, every ciphertext (c0, c1) of the result is simulatable from the phase alone: an encryption of zero under the public key
//! is added, so (c0, c1) is pseudorandom subject to c0 + c1 s = phase (ring-LWE with the simulator's own u, e_0, e_1, whose contribution
//! e_pk u + e_0 + e_1 s to the phase is part of the error); and the phase is message plus error plus a flood whose coefficients are uniform
//! over 2^b values, so that replacing the error by zero changes its distribution by at most 2^-40 ([`flood_bits`]). The message is
//! what the network with the plan's integer weights computes on the client's own encoded inputs.

mod check;
mod client;
mod engine;
mod kept;
mod key_store;
mod messages;
mod packed;
pub mod plan;
mod server;
mod trace;

pub use check::{flood_bits, STATISTICAL_BITS};
pub use client::{NonInteractiveClient, NonInteractiveOptions};
pub use engine::client::ClientEngine;
pub use engine::server::{Answer, ServerEngine};
pub use engine::{EvaluationKeys, KeysNeeded};
pub use kept::KeyFolder;
pub use key_store::{KeyPolicy, KeyStore};
pub use messages::{cost, predict, SessionBytes};
pub use packed::PackedParts;
pub use plan::{Link, NonInteractive, NonInteractivePlan};
pub use server::{KeepingKeys, NonInteractiveModel};
pub use trace::{CircuitMeasures, CircuitOwn, Counted, NonInteractiveTrace};

#[cfg(test)]
mod deep_tests;
#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod packed_tests;
#[cfg(test)]
mod range_tests;
#[cfg(test)]
mod tests;
