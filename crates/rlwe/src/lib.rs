//! Ring-LWE on top of `hushnet-ring`: parameters from the security table,
//! noise accounting, keys and encryption.
//!
//! The batch engine in three parts: [`batch`] chooses and checks parameters, [`batch_cipher`] is the client
//! (keys, encryption, decryption), [`batch_server`] what a server does to words besides linear combinations.
//!
//! [`ckks`]: approximate arithmetic on encrypted slots, for polynomial networks without interaction.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod batch;
pub mod batch_cipher;
pub mod batch_server;
pub mod ckks;
pub mod error;
pub mod mask;
pub mod packed;
pub mod security;

pub use batch::{BatchStageParams, BatchStageSpec};
pub use batch_cipher::{BatchContext, CipherScratch, ClientKey, MaskSum, NoiseSample};
pub use batch_server::{add_bias, drop_bits};
pub use error::CipherError;
pub use mask::{mask_words, MaskId, Masks};
