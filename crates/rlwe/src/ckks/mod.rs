//! RNS-CKKS: approximate arithmetic on encrypted vectors of complex numbers (`docs/ckks.md`).
//!
//! [`CkksSpec`] -> [`CkksParams`] fixes ring, primes and digits. An [`Encoder`] makes [`Plaintext`]s,
//! [`client`] holds what only the data's owner has, an [`Evaluator`] computes. Every plaintext and
//! ciphertext knows its level, its exact scale, a bound of its message and an estimate of its error, all of
//! them public and independent of the data.

pub mod bootstrap;
mod bytes;
mod ciphertext;
pub mod client;
mod encoder;
mod error;
mod evaluator;
mod fft;
mod linear;
mod multiply;
pub mod noise;
mod params;
mod rotate;
mod switching;

pub use bytes::{FORMAT_VERSION, HEADER_BYTES};
pub use ciphertext::{Ciphertext, PublicKey, MAX_FLOOD_BITS, SCALE_TOLERANCE};
pub use encoder::{Complex, EncodeAt, Encoder, Plaintext, ScalarPlaintext, SmallPlaintext};
pub use error::CkksError;
pub use evaluator::{Evaluator, Terms};
pub use linear::PlainRows;
pub use params::{CkksParams, CkksSpec, Insecure, Level, PrimeSpec};
pub use switching::{Digits, Galois, GaloisKeys, RelinKey};

#[cfg(test)]
mod tests;
