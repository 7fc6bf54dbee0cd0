//! Plan, executors, session, transport, server and client.

#![cfg_attr(test, allow(clippy::unwrap_used))]

#[cfg(not(target_family = "wasm"))]
pub mod calibrate;
pub mod channel;
pub mod client_aided;
pub mod compute;
pub mod error;
pub mod io;
#[cfg(not(any(target_family = "wasm", fuzzing)))]
pub mod local;
pub mod non_interactive;
pub mod pending;
pub mod plan;
pub mod program;
pub mod public;
pub mod session;
mod store;
pub mod tally;
pub mod trace;
#[cfg(not(any(target_family = "wasm", fuzzing)))]
pub mod transport;
pub mod two_party;
pub mod wire;

pub use client_aided::{Client, ClientOptions, ServerPlan};
pub use compute::Compute;
pub use error::{Error, InputError, ProtocolError, TransportError, UnitError};
pub use io::{Input, Marked, OnProgress, Output, Progress};
pub use plan::{Limits, Plan, PlanError, PlanOptions};
pub use program::{InputData, RangeError};
pub use session::{AnyClient, AnyModel, AnyPlan, ClientSession, Served};
pub use trace::{Report, ServerTrace, Trace};

pub use hushnet_ring::simd::init as simd_init;
pub use hushnet_ring::Isa;
