//! The client of all trust models as a WebAssembly module, for a worker that may block: `host` is what the worker lends.
//!
//! Keys are in this module's memory and in no value that leaves it; randomness comes from `crypto.getRandomValues`.

mod host;
mod session;

pub use session::{Answer, Inputs, Session};
