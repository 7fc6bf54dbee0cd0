//! What a server grants, and how it runs.

use super::peers::PeerLimits;
use super::report::SessionReport;
use super::site::WebFile;
use super::tls::TlsFiles;
use crate::trace::ServerTrace;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a server grants: sessions, memory, time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Sessions in work at once.
    pub sessions: usize,
    /// Bytes that all sessions and guests together may hold. A session asks for what its block takes when the block begins, and waits until it is free;
    /// what a session holds between blocks lowers the number of sessions.
    pub memory_bytes: u64,
    /// Connections at once, of clients and of those that ask for `/healthz` or `/metrics`. Others are closed as they come. The last eighth is for
    /// addresses that have less than an eighth.
    pub connections: usize,
    /// Clients at once that have connected and hold no slot. When one more comes, one of the peer that has most of them is refused.
    pub guests: usize,
    /// Longest wait for a slot when all are taken.
    pub line: Duration,
    /// A session that keeps a full server waiting for longer gives its slot to the next in line; ten times what the server has worked for it
    /// comes on top.
    pub patience: Duration,
    /// Age at which a session of a full server gives its slot to the next in line, between two blocks.
    pub session_time: Duration,
    /// Longest wait for a frame that is due, and for a client to take one.
    pub idle_timeout: Duration,
    /// Longest wait for TLS, HTTP and the greeting.
    pub handshake_timeout: Duration,
    /// Time that blocks in work have when the server stops.
    pub grace: Duration,
    /// What one peer may take, and bytes of all peers.
    pub peers: PeerLimits,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            sessions: 64,
            memory_bytes: 16 << 30,
            connections: 1024,
            guests: 256,
            line: Duration::from_secs(10),
            patience: Duration::from_secs(1),
            session_time: Duration::from_secs(3600),
            idle_timeout: Duration::from_secs(120),
            handshake_timeout: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            peers: PeerLimits::default(),
        }
    }
}

/// Called with the measurements of every session that ended well.
pub type OnSession = Arc<dyn Fn(&ServerTrace) + Send + Sync>;

/// Called with what is told of every session that has ended, well or not.
pub type OnEnd = Arc<dyn Fn(SessionReport) + Send + Sync>;

/// How a server runs: address, certificate, limits, what it reports and records.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// Name or address to listen on; empty: 127.0.0.1.
    pub host: String,
    /// Port; 0: any free one.
    pub port: u16,
    /// TLS, or plain TCP.
    pub tls: Option<TlsFiles>,
    /// What is granted.
    pub limits: ServerLimits,
    /// Called when a session ended well.
    pub on_session: Option<OnSession>,
    /// Called when a session ended, whichever way.
    pub on_end: Option<OnEnd>,
    /// A file to which everything that clients encrypt is appended as it came: all that this server sees of their inputs.
    pub record: Option<PathBuf>,
    /// Origins (`https://host`) whose pages may open `/ws` beside those of this server itself. Programs that are no browser send none.
    pub origins: Vec<String>,
    /// A file of the tokens that clients need, lines `name token` or `name sha256:HEX`; without it anybody is served.
    pub tokens: Option<PathBuf>,
    /// A PEM file of authorities: clients need a certificate that one of them has signed. Only with [`Self::tls`].
    pub client_ca: Option<PathBuf>,
    /// Address and port for health, metrics and what is told of models, without TLS; the port of clients then has `/ws` and `/livez` alone.
    pub admin: Option<(String, u16)>,
    /// Whether clients that ask for a model that there is not learn the names of those that there are.
    pub list_models: bool,
    /// Addresses of proxies, each of whose connections begins with a PROXY header (version 2) that says who the client is.
    pub proxies: Vec<IpAddr>,
    /// Files of a page for visitors, beside `/ws` on the port of clients.
    pub web: Vec<WebFile>,
}
