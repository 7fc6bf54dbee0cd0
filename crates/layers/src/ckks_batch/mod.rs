//! Polynomial networks over the batch axis, in CKKS slots (nGraph-HE2): a ciphertext holds one feature of many images.
//!
//! Weights are integers and everything stays in evaluation form, so a linear layer is an exact integer matrix product of the weights
//! with ciphertext words modulo 2^52 (or 2^64), followed by one reduction a word; products of ciphertexts, sums and linear layers are
//! all *pointwise in the words*. Only relinearisation and rescaling look at a whole polynomial. A [`Circuit`] therefore runs as *passes*:
//! all pointwise stages between two of those, for a few dozen words of a limb at a time, so that what lies between never
//! leaves the cache and memory is bounded by what crosses a pass.
//!
//! - [`CircuitSpec`] (unchecked) becomes a [`Circuit`]: shapes, levels, parts, exact scales, capacity, sums that cannot wrap, and the
//!   rigorous error of every tensor ([`Track`]);
//! - [`Circuit::run`] computes on ciphertexts, [`Circuit::cost`] tells exactly what it will do.
//!
//! A product of ciphertexts has three parts and keeps them through following linear layers (lazy relinearisation);
//! rescaling is where the plan has put it, after whole layers (lazy rescaling); a stage whose result has a lower level than its
//! operands simply does not read the limbs above it.

mod check;
mod circuit;
mod cost;
mod error;
mod linear;
mod pass;
mod run;
#[cfg(test)]
mod tests;

pub use circuit::{Circuit, CircuitLinear, CircuitSpec, StageKind, StageSpec, TensorSpec, Track};
pub use cost::Cost;
pub use error::CircuitError;
pub use run::{Run, StageTime};
