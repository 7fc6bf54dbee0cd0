//! A client's connection: frames over a WebSocket or bare, over TCP or TLS; blocking.

use super::models::is_name;
use super::raw::RawConnection;
use super::tls::{self, TlsFiles};
use super::token::AccessToken;
use super::websocket::WebSocketConnection;
use crate::channel::{Channel, Introduction, Traffic};
use crate::error::{Error, TransportError};
use crate::wire::Frame;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
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

/// How a client connects: what it asks for, certificates, time limits, how waiting is cancelled.
#[derive(Clone)]
pub struct ConnectOptions {
    /// The model to ask for; a path of `hush://host/NAME` says it, too. Without one, the server's only model.
    pub model: Option<String>,
    /// What shows that this client may ask. It goes over TLS only, or to this machine.
    pub token: Option<AccessToken>,
    /// What is shown to servers that ask clients for a certificate.
    pub certificate: Option<TlsFiles>,
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
            model: None,
            token: None,
            certificate: None,
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

    /// Whether bytes, the end or an error have come.
    pub(super) fn ready(&mut self) -> bool {
        if let Self::Tls(s) = self {
            // What came with earlier bytes; reading tells what is wrong with it.
            if s.conn.process_new_packets().map_or(true, |state| state.plaintext_bytes_to_read() > 0) {
                return true;
            }
        }
        let tcp = self.tcp();
        if tcp.set_nonblocking(true).is_err() {
            return true;
        }
        let seen = tcp.peek(&mut [0]);
        // Where the socket does not wait any more, reading tells.
        tcp.set_nonblocking(false).is_err() || !seen.is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
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

/// Calls again where a signal has come in between (a timer, a process that was stopped and goes on): the system starts no call anew that has a
/// time limit.
fn uninterrupted<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        uninterrupted(|| match self {
            Self::Plain(s) => s.read(buffer),
            Self::Tls(s) => s.read(buffer),
        })
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        uninterrupted(|| match self {
            Self::Plain(s) => s.write(buffer),
            Self::Tls(s) => s.write(buffer),
        })
    }
    fn flush(&mut self) -> std::io::Result<()> {
        uninterrupted(|| match self {
            Self::Plain(s) => s.flush(),
            Self::Tls(s) => s.flush(),
        })
    }
}

/// A connection to a server.
pub struct Connection {
    carrier: Carrier,
    introduction: Introduction,
}

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
        if let Some(text) = tls::refused(e) {
            return TransportError::Tls(text.into());
        }
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

/// Where a URL leads to.
struct Target {
    raw: bool,
    secure: bool,
    host: String,
    port: u16,
    /// The path of a WebSocket.
    path: String,
    /// The model that the greeting asks for; empty: none.
    model: String,
}

impl Target {
    fn parse(url: &str, model: Option<&str>) -> Result<Self, TransportError> {
        let wrong = |detail: &str| TransportError::Address { url: url.to_owned(), detail: detail.to_owned() };
        let uri: Uri = url.parse().map_err(|_| wrong("not a URL"))?;
        let (raw, secure) = match uri.scheme_str() {
            Some("hush") => (true, false),
            Some("hushs") => (true, true),
            Some("ws") => (false, false),
            Some("wss") => (false, true),
            _ => return Err(wrong("the scheme must be hush, hushs, ws or wss")),
        };
        let host = uri.host().filter(|h| !h.is_empty()).ok_or_else(|| wrong("no host"))?.to_owned();
        let path = uri.path_and_query().map(PathAndQuery::as_str).filter(|p| *p != "/");
        let named = path.filter(|_| raw).map(|p| p.trim_start_matches('/'));
        let model = match (named, model) {
            (Some(a), Some(b)) if a != b => {
                return Err(wrong("the path names another model than the one that was asked for"))
            }
            (a, b) => a.or(b).unwrap_or_default().to_owned(),
        };
        if !model.is_empty() && !is_name(&model) {
            return Err(wrong(
                "a model's name has 1 to 64 letters, digits, '.', '_' and '-', and nothing else",
            ));
        }
        let port = uri.port_u16().unwrap_or(match (raw, secure) {
            (true, _) => PORT,
            (false, true) => 443,
            (false, false) => 80,
        });
        Ok(Self { raw, secure, host, port, path: path.unwrap_or("/ws").to_owned(), model })
    }

    /// The host without the brackets of an address.
    fn name(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }
}

/// A token is worth as much as the way is closed on which it goes.
fn guarded(target: &Target, options: &ConnectOptions) -> Result<(), TransportError> {
    let address = target.name().parse::<IpAddr>();
    let here = target.name() == "localhost" || address.is_ok_and(|ip| ip.is_loopback());
    if options.token.is_some() && !here && (!target.secure || options.insecure_tls) {
        let text = "a token is sent over TLS with a certificate that is verified, or to this machine; connect to hushs:// or wss://, \
                    without insecure TLS";
        return Err(TransportError::Tokens(text.into()));
    }
    Ok(())
}

/// Connects to `hush://host:port` (bare frames; port 8765 unless given), `hushs://` (the same in TLS), `ws://host:port`
/// or `wss://host:port` (the path defaults to `/ws`). A server answers all of them on one port. `hush://host:port/NAME` asks for one model
/// of several, as `ws://host:port/ws/NAME` does.
///
/// # Errors
/// [`Error::Transport`] when the address cannot be used or nobody answers; [`crate::ProtocolError::Peer`] when the server is full (bare
/// frames: at the first message).
pub fn connect(url: &str, options: &ConnectOptions) -> Result<Connection, Error> {
    let target = Target::parse(url, options.model.as_deref())?;
    guarded(&target, options)?;
    let (name, port) = (target.name(), target.port);
    let tcp = dial(name, port, options.connect_timeout)?;
    let stream = if target.secure { secured(url, &target, tcp, options)? } else { Stream::Plain(tcp) };
    let patience = Patience { idle: options.idle_timeout, cancel: options.cancel.clone() };
    let times = |tcp: &TcpStream| {
        tcp.set_read_timeout(Some(POLL))
            .and_then(|()| tcp.set_write_timeout(Some(options.idle_timeout)))
            .map_err(|e| TransportError::Io(e.to_string()))
    };
    let model = target.model.clone();
    if target.raw {
        times(stream.tcp())?;
        let carrier = Carrier::Raw(Box::new(RawConnection::new(stream, patience)));
        let token = options.token.as_ref().map_or_else(String::new, |t| t.expose().to_owned());
        return Ok(Connection { carrier, introduction: Introduction { model, token } });
    }
    let page =
        format!("{}://{}:{port}{}", if target.secure { "wss" } else { "ws" }, target.host, target.path);
    let socket = WebSocketConnection::open(
        &page,
        options.token.as_ref(),
        &format!("{name}:{port}"),
        stream,
        patience,
        options.connect_timeout,
    )?;
    times(socket.tcp())?;
    // The request's header has carried the token.
    let introduction = Introduction { model, token: String::new() };
    Ok(Connection { carrier: Carrier::WebSocket(Box::new(socket)), introduction })
}

/// TLS over a connection.
fn secured(
    url: &str,
    target: &Target,
    tcp: TcpStream,
    options: &ConnectOptions,
) -> Result<Stream, TransportError> {
    let name = target.name();
    let server = ServerName::try_from(name.to_owned()).map_err(|_| TransportError::Address {
        url: url.to_owned(),
        detail: "the host is no valid name".into(),
    })?;
    let protocol = target.raw.then_some(tls::RAW_PROTOCOL);
    let config =
        tls::client(options.ca.as_deref(), options.insecure_tls, options.certificate.as_ref(), protocol)?;
    let session = ClientConnection::new(config, server).map_err(|e| TransportError::Tls(e.to_string()))?;
    let mut stream = StreamOwned::new(session, tcp);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).map_err(|e| tls_error(&e))?;
    }
    if target.raw && stream.conn.alpn_protocol() != protocol {
        let detail = "the server does not take bare frames; use wss://".to_owned();
        return Err(TransportError::Connect { address: format!("{name}:{}", target.port), detail });
    }
    Ok(Stream::Tls(Box::new(stream)))
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
    if let Some(text) = tls::refused(e) {
        return TransportError::Tls(text.into());
    }
    let why = e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let why = why.map_or_else(|| e.to_string(), tls::explain);
    TransportError::Tls(format!(
        "{why}; trust the server's authority with a CA file, or accept any certificate explicitly (insecure TLS)"
    ))
}

impl Connection {
    fn channel(&self) -> &dyn Channel {
        match &self.carrier {
            Carrier::WebSocket(c) => c.as_ref(),
            Carrier::Raw(c) => c.as_ref(),
        }
    }

    fn channel_mut(&mut self) -> &mut dyn Channel {
        match &mut self.carrier {
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

    fn ready(&mut self) -> bool {
        self.channel_mut().ready()
    }

    fn traffic(&self) -> Traffic {
        self.channel().traffic()
    }

    fn introduction(&self) -> Introduction {
        self.introduction.clone()
    }

    fn set_limit(&mut self, bytes: usize) {
        self.channel_mut().set_limit(bytes);
    }
}
