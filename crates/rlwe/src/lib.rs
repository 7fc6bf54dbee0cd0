//! Ring-LWE on top of `hushnet-ring`: parameters from the security table,
//! noise accounting, keys and encryption.

pub mod batch;
pub mod security;

pub use batch::{BatchStageParams, BatchStageSpec};
