//! Ring-LWE on top of `hushnet-ring`: parameters from the security table,
//! noise accounting, keys and encryption.
//!
//! The batch engine in three parts: [`batch`] chooses and checks parameters, [`batch_cipher`] is the client
//! (keys, encryption, decryption), [`batch_server`] what a server does to words besides linear combinations.
//!
//! [`batch_shares`]: the batch engine between two parties that both keep their secrets.
//!
//! [`coefficients`]: many features of one image in a ciphertext, for a client that may see every result.
//!
//! [`wide`]: shares times shares, where both factors are as wide as the ring.
//!
//! [`ckks`]: approximate arithmetic on encrypted slots, for polynomial networks without interaction.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod batch;
pub mod batch_cipher;
pub mod batch_server;
pub mod batch_shares;
pub mod bfv;
pub mod ckks;
pub mod coefficients;
pub mod error;
pub mod mask;
pub mod one_poly;
pub mod pack_lwe;
pub mod packed;
pub mod security;
pub mod uses;
pub mod wide;

pub use batch::{BatchStageParams, BatchStageSpec};
pub use batch_cipher::{BatchContext, CipherScratch, ClientKey, MaskSum, NoiseSample};
pub use batch_server::{add_bias, drop_bits};
pub use error::CipherError;
pub use mask::{mask_words, MaskId, Masks};
