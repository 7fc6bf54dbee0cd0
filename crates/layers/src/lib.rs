//! Encrypted linear layers, one module per method.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod batch;
pub mod batch_shares;
pub mod cheetah;
pub mod ckks_batch;
pub mod coefficients;
pub mod convfhe;
#[cfg(test)]
mod geometries;
pub mod layout;
pub mod matrix_product;
pub mod packed;
mod phases;
pub mod rotation_free;
pub mod slots;
pub mod words;
