//! Integer weight matrices times matrices of ciphertext words modulo 2^k.
//!
//! `out_m = sum_k W_mk row_k mod 2^k`, W of 16-bit integers, rows of 64-bit words below 2^k, k <= 64. The modulus is a power
//! of two, so nothing is reduced on the way: every kernel computes modulo 2^52 or 2^64 and masks once.
//!
//! - whole words: portable, AVX2 (two 32-bit products), 64-bit low products, 52-bit multiply-add (k <= 52);
//! - 16-bit digits, cut on the way or once for many products ([`Cut`]): AVX2 (two columns to a product);
//! - byte limbs: words are cut into ceil(k/8) unsigned bytes, weights into signed ones; VNNI or AMX multiplies
//!   bytes and sums in 32 bits, and the sums return to words by wrapping shifts. Products whose weight is 2^k or more are
//!   not computed.
//!
//! All kernels return the same bits. [`Kernel::choose`] picks by cost, [`Prepared`] holds the weights in the
//! kernel's order, callers spread word ranges over threads.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cut;
pub mod error;
pub mod kernel;
mod kernels;
pub mod limbs;
pub mod prepared;
pub mod scratch;
#[cfg(test)]
mod tests;
pub mod weights;

pub use cut::Cut;
pub use error::MatmulError;
pub use kernel::{packing_cost, Kernel};
pub use limbs::{limbs_for, Lane, Layout, BLOCK};
pub use prepared::{Gather, Prepared, Starts};
pub use scratch::Scratch;
pub use weights::Weights;
