//! WebSocket with or without TLS: the server on tokio, the client blocking.

mod bridge;
pub mod client;
mod metrics;
mod record;
pub mod server;
mod tls;

pub use client::{connect, ConnectOptions};
pub use metrics::Stats;
pub use server::{OnTwoParty, Served, Server, ServerLimits, ServerOptions, TlsFiles};
