//! Plan, executors, session, transport, server and client.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod plan;
pub mod program;
pub mod wire;
