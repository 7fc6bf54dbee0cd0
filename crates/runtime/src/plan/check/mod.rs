//! From the plan as written to the checked plan: what is common to all trust models, and the client-aided part. The checks of the other trust
//! models stand in their folders.

mod client_aided;
mod common;
mod tensors;

pub use client_aided::ClientAided;
pub(crate) use common::{Place, Scope};
pub(crate) use tensors::{header, largest, tensors};
