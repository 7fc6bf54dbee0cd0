//! Plan, executors, session, transport, server and client.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod any_plan;
pub mod calibrate;
pub mod channel;
pub mod client_aided;
pub mod compute;
pub mod error;
pub mod local;
pub mod non_interactive;
pub mod plan;
pub mod program;
pub mod public;
pub mod session;
pub mod trace;
pub mod transport;
pub mod two_party;
pub mod wire;

pub use any_plan::AnyPlan;
pub use client_aided::{Client, ClientOptions, Input, OnProgress, Output, ServerPlan};
pub use compute::Compute;
pub use error::{Error, InputError, ProtocolError, TransportError};
pub use plan::{Limits, Plan, PlanError, PlanOptions};
pub use program::{InputData, RangeError};
pub use trace::{Progress, ServerTrace, Trace};

pub use hushnet_ring::simd::init as simd_init;
pub use hushnet_ring::Isa;
