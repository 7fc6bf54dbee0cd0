//! BFV with slots: exact arithmetic modulo a prime `t = 1 mod 2N` on encrypted vectors, for linear layers on shares
//! (`docs/bfv.md`). Brakerski (CRYPTO 2012), Fan and Vercauteren (2012), in residue form.
//!
//! Slots are two rows of N/2. [`BfvSpec`] -> [`BfvParams`] fixes ring, primes and the gadget of key switching, the module `plan` chooses
//! them by the noise bound; [`client`] holds what only the data's owner has, an [`Evaluator`] computes, counts every operation
//! ([`Counts`]) and bounds the noise of every ciphertext. What leaves the server goes through [`Evaluator::answer`]: re-randomised,
//! masked modulo t, flooded.

pub mod client;
mod counts;
mod encode;
mod error;
mod evaluator;
mod finish;
mod keys;
pub mod noise;
mod params;
mod plan;

pub use counts::{Counts, Tally};
pub use error::BfvError;
pub use evaluator::{Cipher, Clock, Evaluator, Hoisted, Weight};
pub use keys::{GaloisKeys, PublicKey, Turn};
pub use noise::Noise;
pub use params::{BfvParams, BfvSpec, MAX_PLAIN_BITS};
pub use plan::{candidates, choose, plain_modulus, work, Load, DEFAULT_PLAIN_BITS};

#[cfg(test)]
mod tests;
