//! Servers and clients over sockets: one program, since each links the whole run time. `waiting.rs`, which counts seconds, has one of its own.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod service;
mod transport;
