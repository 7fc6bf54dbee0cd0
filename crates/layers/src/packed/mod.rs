//! One image under RNS-CKKS with rotations: polynomial networks without interaction (`docs/packed.md`).
//!
//! [`GraphSpec`] -> [`Network`] -> [`Circuit`] (ring degree, primes, layouts, methods, rotation keys, predicted operations and
//! errors). A [`Client`] makes keys, encrypts an image and decrypts the result; a [`Server`] encodes the weights once and
//! evaluates. Papers: Zhu et al. (SEAL against OpenFHE), Juvekar et al. (hybrid diagonals), Halevi and Shoup (CRYPTO
//! 2018: baby and giant steps, hoisting), Lee et al. (ICML 2022: several channels a ciphertext, gaps after strides).

mod bootstrapped;
mod channels;
mod circuit;
mod client;
mod compile;
mod composite;
mod cost;
mod diagonals;
mod encode;
mod error;
mod figures;
mod first_layer;
mod interface;
mod keep;
mod layout;
mod levels;
mod machine;
mod options;
mod placement;
mod plan;
mod report;
mod server;
mod simulate;
mod spec;
mod steer;

pub use circuit::{LinearOp, Method, Op, Program, Slope, Upload, Value};
pub use client::{Client, EvaluationKeys};
pub use compile::Circuit;
pub use cost::Counts;
pub use diagonals::Work;
pub use error::PackedError;
pub use interface::{Interface, InterfaceSpec, UploadSpec, MAX_CIPHERTEXTS};
pub use layout::{Grid, Layout};
pub use options::{
    Bootstrapping, Bootstraps, Choices, PackedOptions, Packing, BOOTSTRAP_KEY_BYTES, KEY_BYTES,
};
pub use report::{Report, StepReport};
pub use server::{KeyRefs, Server, StepTrace, Trace};
pub use simulate::Outcome;
pub use spec::{horner, GraphSpec, Linear, Network, Step, StepSpec, Tensor, TensorSpec, MAX_DEGREE};

#[cfg(test)]
mod deep_tests;
#[cfg(test)]
mod tests;
