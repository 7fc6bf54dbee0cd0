//! A client's connection: frames over a WebSocket or bare, over TCP or TLS; blocking.

use super::raw::RawConnection;
use super::tls;
use super::websocket::WebSocketConnection;
use crate::channel::{Channel, Traffic};
use crate::error::{Error, TransportError};
use crate::wire::Frame;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tungstenite::http::uri::PathAndQuery;
use tungstenite::http::Uri;

/// Port of `hush://` and `hushs://` where none is given.
const PORT: u16 = 8765;

/// How often a waiting client looks whether it is to stop.
const POLL: Duration = Duration::from_millis(200);

/// How a client connects: certificates, time limits, how waiting is cancelled.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// PEM file of the authorities to trust; without it those of the system.
    pub ca: Option<PathBuf>,
    /// Accept any certificate.
    pub insecure_tls: bool,
    /// Time for connecting and both handshakes.
    pub connect_timeout: Duration,
    /// Longest wait for a frame, the server's computation included.
    pub idle_timeout: Duration,
    /// Set by another thread to stop waiting.
    pub cancel: Arc<AtomicBool>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            ca: None,
            insecure_tls: false,
            connect_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(600),
            cancel: Arc::default(),
        }
    }
}

pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(s) => s,
            Self::Tls(s) => &s.sock,
        }
    }

    /// Appends up to `limit` bytes; stops at the end, and at an error, with what came before it in the buffer.
    pub(super) fn append(&mut self, buffer: &mut Vec<u8>, limit: u64) -> std::io::Result<usize> {
        match self {
            // Without clearing the buffer first.
            Self::Plain(s) => s.take(limit).read_to_end(buffer),
            Self::Tls(s) => s.as_mut().take(limit).read_to_end(buffer),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(s) => s.read(buffer),
            Self::Tls(s) => s.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(s) => s.write(buffer),
            Self::Tls(s) => s.write(buffer),
        }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(s) => s.flush(),
            Self::Tls(s) => s.flush(),
        }
    }
}

/// A connection to a server.
pub struct Connection(Carrier);

enum Carrier {
    WebSocket(Box<WebSocketConnection>),
    Raw(Box<RawConnection>),
}

/// Waits for a peer as long as it may be silent, and not once the caller gives up.
pub(super) struct Patience {
    idle: Duration,
    cancel: Arc<AtomicBool>,
}

impl Patience {
    /// Called after every short wait without data.
    pub(super) fn check(&self, since: Instant) -> Result<(), Error> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        if since.elapsed() > self.idle {
            return Err(TransportError::Timeout { seconds: self.idle.as_secs() }.into());
        }
        Ok(())
    }

    /// What an error of the socket means to a session.
    pub(super) fn failure(&self, e: &std::io::Error) -> TransportError {
        match e.kind() {
            ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionAborted => TransportError::Closed,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                TransportError::Timeout { seconds: self.idle.as_secs() }
            }
            _ => TransportError::Io(e.to_string()),
        }
    }
}

/// Connects to `hush://host:port` (bare frames; port 8765 unless given), `hushs://` (the same in TLS), `ws://host:port`
/// or `wss://host:port` (the path defaults to `/ws`). A server answers all of them on one port.
///
/// # Errors
/// [`Error::Transport`] when the address cannot be used or nobody answers; [`crate::ProtocolError::Peer`] when the server is full (bare
/// frames: at the first message).
pub fn connect(url: &str, options: &ConnectOptions) -> Result<Connection, Error> {
    let address = |detail: &str| TransportError::Address { url: url.to_owned(), detail: detail.to_owned() };
    let uri: Uri = url.parse().map_err(|_| address("not a URL"))?;
    let (raw, secure) = match uri.scheme_str() {
        Some("hush") => (true, false),
        Some("hushs") => (true, true),
        Some("ws") => (false, false),
        Some("wss") => (false, true),
        _ => return Err(address("the scheme must be hush, hushs, ws or wss").into()),
    };
    let host = uri.host().filter(|h| !h.is_empty()).ok_or_else(|| address("no host"))?;
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let path = uri.path_and_query().map(PathAndQuery::as_str).filter(|p| *p != "/");
    if raw && path.is_some() {
        return Err(address("hush:// takes no path").into());
    }
    let port = uri.port_u16().unwrap_or(match (raw, secure) {
        (true, _) => PORT,
        (false, true) => 443,
        (false, false) => 80,
    });
    let tcp = dial(name, port, options.connect_timeout)?;
    let stream = if secure {
        let server =
            ServerName::try_from(name.to_owned()).map_err(|_| address("the host is no valid name"))?;
        let protocol = raw.then_some(tls::RAW_PROTOCOL);
        let config = tls::client(options.ca.as_deref(), options.insecure_tls, protocol)?;
        let session =
            ClientConnection::new(config, server).map_err(|e| TransportError::Tls(e.to_string()))?;
        let mut stream = StreamOwned::new(session, tcp);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).map_err(|e| tls_error(&e))?;
        }
        if raw && stream.conn.alpn_protocol() != protocol {
            let detail = "the server does not take bare frames; use wss://".to_owned();
            return Err(TransportError::Connect { address: format!("{name}:{port}"), detail }.into());
        }
        Stream::Tls(Box::new(stream))
    } else {
        Stream::Plain(tcp)
    };
    let patience = Patience { idle: options.idle_timeout, cancel: options.cancel.clone() };
    let times = |tcp: &TcpStream| {
        tcp.set_read_timeout(Some(POLL))
            .and_then(|()| tcp.set_write_timeout(Some(options.idle_timeout)))
            .map_err(|e| TransportError::Io(e.to_string()))
    };
    if raw {
        times(stream.tcp())?;
        return Ok(Connection(Carrier::Raw(Box::new(RawConnection::new(stream, patience)))));
    }
    let target = format!("{}://{host}:{port}{}", if secure { "wss" } else { "ws" }, path.unwrap_or("/ws"));
    let socket = WebSocketConnection::open(
        &target,
        &format!("{name}:{port}"),
        stream,
        patience,
        options.connect_timeout,
    )?;
    times(socket.tcp())?;
    Ok(Connection(Carrier::WebSocket(Box::new(socket))))
}

fn dial(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, TransportError> {
    let fail = |detail: String| TransportError::Connect { address: format!("{host}:{port}"), detail };
    let addresses = (host, port).to_socket_addrs().map_err(|e| fail(e.to_string()))?;
    let mut last = "the name has no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(tcp) => {
                let io = |e: std::io::Error| TransportError::Io(e.to_string());
                tcp.set_nodelay(true).map_err(io)?;
                tcp.set_read_timeout(Some(timeout)).map_err(io)?;
                tcp.set_write_timeout(Some(timeout)).map_err(io)?;
                return Ok(tcp);
            }
            Err(e) => last = e.to_string(),
        }
    }
    Err(fail(last))
}

fn tls_error(e: &std::io::Error) -> TransportError {
    let why = e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let why = why.map_or_else(|| e.to_string(), tls::explain);
    TransportError::Tls(format!(
        "{why}; trust the server's authority with a CA file, or accept any certificate explicitly (insecure TLS)"
    ))
}

impl Connection {
    fn channel(&self) -> &dyn Channel {
        match &self.0 {
            Carrier::WebSocket(c) => c.as_ref(),
            Carrier::Raw(c) => c.as_ref(),
        }
    }

    fn channel_mut(&mut self) -> &mut dyn Channel {
        match &mut self.0 {
            Carrier::WebSocket(c) => c.as_mut(),
            Carrier::Raw(c) => c.as_mut(),
        }
    }
}

impl Channel for Connection {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.channel_mut().send(frame)
    }

    fn recv(&mut self) -> Result<Frame, Error> {
        self.channel_mut().recv()
    }

    fn traffic(&self) -> Traffic {
        self.channel().traffic()
    }

    fn set_limit(&mut self, bytes: usize) {
        self.channel_mut().set_limit(bytes);
    }
}
