//! Frames over a WebSocket or bare, with or without TLS, on one port: the server on tokio, the client blocking.

mod bridge;
pub mod client;
mod memory;
mod metrics;
mod raw;
mod raw_server;
mod record;
pub mod server;
mod slots;
mod tls;
mod websocket;
mod websocket_server;

pub use client::{connect, ConnectOptions};
pub use metrics::Stats;
pub use server::{OnSession, Server, ServerLimits, ServerOptions, TlsFiles};
