//! A client's connection: blocking WebSocket over TCP or TLS.

use super::tls;
use crate::channel::{check_limit, Channel, Traffic};
use crate::error::{code, Error, ProtocolError, TransportError};
use crate::wire::Frame;
use bytes::Bytes;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tungstenite::error::CapacityError;
use tungstenite::http::Uri;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

/// How often a waiting client looks whether it is to stop.
const POLL: Duration = Duration::from_millis(200);

/// How a client connects.
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

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(s) => s,
            Self::Tls(s) => &s.sock,
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
pub struct Connection {
    socket: WebSocket<Stream>,
    traffic: Traffic,
    limit: usize,
    idle: Duration,
    cancel: Arc<AtomicBool>,
}

/// Connects to `ws://host:port` or `wss://host:port` (the path defaults to `/ws`).
///
/// # Errors
/// [`Error::Transport`] when the address cannot be used or nobody answers; [`ProtocolError::Peer`] when the server is full.
pub fn connect(url: &str, options: &ConnectOptions) -> Result<Connection, Error> {
    let address = |detail: &str| TransportError::Address { url: url.to_owned(), detail: detail.to_owned() };
    let uri: Uri = url.parse().map_err(|_| address("not a URL"))?;
    let secure = match uri.scheme_str() {
        Some("ws") => false,
        Some("wss") => true,
        _ => return Err(address("the scheme must be ws or wss").into()),
    };
    let host = uri.host().filter(|h| !h.is_empty()).ok_or_else(|| address("no host"))?;
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let path = uri.path_and_query().map(|p| p.as_str()).filter(|p| *p != "/").unwrap_or("/ws");
    let target = format!("{}://{host}:{port}{path}", if secure { "wss" } else { "ws" });
    let tcp = dial(name, port, options.connect_timeout)?;
    let stream = if secure {
        let server =
            ServerName::try_from(name.to_owned()).map_err(|_| address("the host is no valid name"))?;
        let config = tls::client(options.ca.as_deref(), options.insecure_tls)?;
        let session =
            ClientConnection::new(config, server).map_err(|e| TransportError::Tls(e.to_string()))?;
        let mut stream = StreamOwned::new(session, tcp);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).map_err(|e| tls_error(&e))?;
        }
        Stream::Tls(Box::new(stream))
    } else {
        Stream::Plain(tcp)
    };
    let limit = 64 << 20;
    let config = WebSocketConfig::default().max_message_size(Some(limit)).max_frame_size(Some(limit));
    let socket = match tungstenite::client::client_with_config(target.as_str(), stream, Some(config)) {
        Ok((socket, _)) => socket,
        Err(tungstenite::HandshakeError::Failure(e)) => {
            return Err(upgrade_error(&format!("{name}:{port}"), e))
        }
        Err(tungstenite::HandshakeError::Interrupted(_)) => {
            return Err(TransportError::Timeout { seconds: options.connect_timeout.as_secs() }.into());
        }
    };
    let io = |e: std::io::Error| TransportError::Io(e.to_string());
    socket.get_ref().tcp().set_read_timeout(Some(POLL)).map_err(io)?;
    socket.get_ref().tcp().set_write_timeout(Some(options.idle_timeout)).map_err(io)?;
    let (idle, cancel) = (options.idle_timeout, options.cancel.clone());
    Ok(Connection { socket, traffic: Traffic::default(), limit, idle, cancel })
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
    TransportError::Tls(format!(
        "{e}; trust the server's authority with a CA file, or accept any certificate explicitly (insecure TLS)"
    ))
}

fn upgrade_error(address: &str, e: tungstenite::Error) -> Error {
    match e {
        tungstenite::Error::Http(response) if response.status() == 503 => {
            let message = "the server is full or stopping; try again later".to_owned();
            ProtocolError::Peer { code: code::BUSY, message }.into()
        }
        tungstenite::Error::Http(response) => {
            let detail =
                format!("the server answers with HTTP status {}; is it a Hushnet server?", response.status());
            TransportError::Connect { address: address.to_owned(), detail }.into()
        }
        other => TransportError::Connect { address: address.to_owned(), detail: other.to_string() }.into(),
    }
}

impl Connection {
    fn failure(&self, e: tungstenite::Error) -> Error {
        match e {
            tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
                TransportError::Closed.into()
            }
            tungstenite::Error::Capacity(CapacityError::MessageTooLong { size, max_size }) => {
                ProtocolError::Oversize { got: size as u64, limit: max_size as u64 }.into()
            }
            tungstenite::Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => {
                TransportError::Closed.into()
            }
            tungstenite::Error::Protocol(_) => ProtocolError::NotAFrame("not WebSocket data").into(),
            tungstenite::Error::Io(e) => match e.kind() {
                ErrorKind::ConnectionReset
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionAborted => TransportError::Closed.into(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    TransportError::Timeout { seconds: self.idle.as_secs() }.into()
                }
                _ => TransportError::Io(e.to_string()).into(),
            },
            other => TransportError::Io(other.to_string()).into(),
        }
    }
}

impl Channel for Connection {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.traffic.sent += frame.bytes().len() as u64;
        match self.socket.send(Message::Binary(frame.bytes().clone())) {
            Ok(()) => Ok(()),
            Err(e) => match self.failure(e) {
                Error::Transport(e) => Err(e),
                other => Err(TransportError::Io(other.to_string())),
            },
        }
    }

    fn recv(&mut self) -> Result<Frame, Error> {
        let start = Instant::now();
        loop {
            match self.socket.read() {
                Ok(Message::Binary(bytes)) => {
                    let bytes: Bytes = bytes;
                    self.traffic.received += bytes.len() as u64;
                    check_limit(bytes.len(), self.limit)?;
                    return Ok(Frame::parse(bytes)?);
                }
                Ok(Message::Text(_)) => return Err(ProtocolError::NotAFrame("a text message").into()),
                Ok(Message::Close(_)) => return Err(TransportError::Closed.into()),
                Ok(_) => {}
                Err(tungstenite::Error::Io(e))
                    if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if self.cancel.load(Ordering::Relaxed) {
                        return Err(Error::Cancelled);
                    }
                    if start.elapsed() > self.idle {
                        return Err(TransportError::Timeout { seconds: self.idle.as_secs() }.into());
                    }
                }
                Err(e) => return Err(self.failure(e)),
            }
        }
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
        self.socket.set_config(|c| {
            c.max_message_size = Some(bytes);
            c.max_frame_size = Some(bytes);
        });
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The peer may be gone; there is nobody to tell.
        let _ = self.socket.close(None).and_then(|()| self.socket.flush());
    }
}
