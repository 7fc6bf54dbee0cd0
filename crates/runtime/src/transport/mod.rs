//! Frames over a WebSocket or bare, with or without TLS, on one port: the server on tokio, the client blocking.

mod admin;
mod bridge;
pub mod client;
mod counted;
mod greeting;
mod histogram;
mod memory;
mod metrics;
mod models;
mod options;
mod pages_server;
mod peers;
mod proxied;
mod raw;
mod raw_server;
mod record;
mod report;
pub mod server;
mod shared;
mod slots;
mod socket;
mod tls;
mod token;
mod turns;
mod websocket;
mod websocket_server;

pub use client::{connect, ConnectOptions};
pub use metrics::Stats;
pub use models::{is_name, About, Hosted, TensorAbout, DEFAULT_NAME, NAME_BYTES};
pub use options::{OnEnd, OnSession, ServerLimits, ServerOptions};
pub use peers::PeerLimits;
pub use report::SessionReport;
pub use server::Server;
pub use tls::TlsFiles;
pub use token::AccessToken;
