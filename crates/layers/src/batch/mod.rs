//! Linear layers over the batch axis: a ciphertext holds one feature of many images, so a layer is an
//! integer matrix times a matrix whose rows are the words of ciphertexts.
//!
//! - [`Geometry`]: shapes of a dense layer or a two-dimensional convolution (`docs/plan-format.md`);
//! - [`Tile`], [`Tiling`]: in which bands inputs arrive and outputs leave;
//! - [`BatchLinear`]: weights and biases with their bounds and exact operation counts;
//! - [`PreparedLinear`]: the same, ready for one instruction set and one modulus;
//! - [`RowStore`]: the sliding window of input rows on the server.

mod apply;
mod error;
mod geometry;
mod linear;
mod store;
#[cfg(test)]
mod tests;
mod tile;

pub use apply::PreparedLinear;
pub(crate) use error::expect;
pub use error::LayerError;
pub use geometry::{CheckedConv2d, CheckedDense, Conv2d, Dense, Geometry};
pub use linear::BatchLinear;
pub use store::RowStore;
pub use tile::{Tile, Tiling};
