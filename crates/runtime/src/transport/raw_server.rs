//! The server's end of a connection without WebSocket, and how it is told from HTTP on the same port.

use super::bridge::{Arrival, Sink, Source};
use super::counted::Counted;
use super::direct::Direct;
use super::server::Acceptor;
use super::shared::{serve_raw, Shared};
use super::socket::{Line, Socket};
use super::{proxied, tls};
use crate::error::{Error, TransportError};
use crate::wire::{announced, Pool, HEADER, MAGIC};
use axum_server::accept::Accept;
use bytes::{BufMut, Bytes};
use std::future::Future;
use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes that are read and forgotten after the last words.
const DISCARDED: u64 = 64 << 20;

/// Takes in connections: bare frames are served here, HTTP goes on.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) shared: Arc<Shared>,
    pub(super) tls: Option<Acceptor>,
    pub(super) handshake: Duration,
}

/// What HTTP is read from.
pub(super) trait Carrier: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Carrier for T {}

impl<S: Send + 'static> Accept<TcpStream, S> for Door {
    type Stream = Box<dyn Carrier>;
    type Service = S;
    type Future = Pin<Box<dyn Future<Output = IoResult<(Self::Stream, S)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let door = self.clone();
        Box::pin(async move { door.enter(stream).await.map(|stream| (stream, service)) })
    }
}

impl Door {
    /// Gives back a connection that speaks HTTP; the error of all others says that they are over.
    async fn enter(self, mut stream: TcpStream) -> IoResult<Box<dyn Carrier>> {
        let late = |_| IoError::from(ErrorKind::TimedOut);
        let full = |_| IoError::from(ErrorKind::ResourceBusy);
        let permit = self.shared.connections.clone().try_acquire_owned().map_err(full)?;
        let end = stream.peer_addr()?;
        stream.set_nodelay(true)?;
        let client = if self.shared.proxies.contains(&end.ip().to_canonical()) {
            tokio::time::timeout(self.handshake, proxied::client(&mut stream)).await.map_err(late)??
        } else {
            None
        };
        let (peer, most) = (client.unwrap_or(end), self.shared.scarce());
        let connected = self.shared.reception.peers.connect(peer, most);
        let mut connected = connected.ok_or(ErrorKind::ResourceBusy)?;
        if client.is_some() {
            connected.through(end);
        }
        match &self.tls {
            None => {
                let begins = tokio::time::timeout(self.handshake, begins_a_frame(&stream)).await;
                let socket = Socket::new(stream);
                connected.on(socket.line());
                if !begins.map_err(late)?? {
                    return Ok(Box::new(Counted::new(socket, (permit, connected), self.handshake)));
                }
                let (read, write) = socket.split();
                let line = read.line();
                serve_raw(&self.shared, (read, write), Some(line), peer).await;
            }
            Some(tls) => {
                let tls = tls.read().unwrap_or_else(PoisonError::into_inner).clone();
                let socket = Socket::new(stream);
                connected.on(socket.line());
                let stream =
                    tokio::time::timeout(self.handshake, tls.accept(socket)).await.map_err(late)??;
                if let Some(shown) = stream.get_ref().1.peer_certificates().and_then(<[_]>::first) {
                    connected.certified(tls::fingerprint(shown));
                }
                if stream.get_ref().1.alpn_protocol() != Some(tls::RAW_PROTOCOL) {
                    return Ok(Box::new(Counted::new(stream, (permit, connected), self.handshake)));
                }
                serve_raw(&self.shared, tokio::io::split(stream), None, peer).await;
            }
        }
        Err(ErrorKind::ConnectionAborted.into())
    }
}

/// Whether a connection begins with a frame's magic; reads nothing.
async fn begins_a_frame(stream: &TcpStream) -> IoResult<bool> {
    let mut pause = Duration::from_millis(5);
    loop {
        let mut first = [0; MAGIC.len()];
        match stream.peek(&mut first).await? {
            // Nothing tells of the second byte; who keeps it back is looked at more and more rarely.
            1 if first[0] == MAGIC[0] => tokio::time::sleep(pause).await,
            n => return Ok(n == MAGIC.len() && first == MAGIC),
        }
        pause = (2 * pause).min(Duration::from_millis(320));
    }
}

/// Both halves, which hand buffers on to each other. `line`: where bytes go that are written to the sending half.
pub(super) fn halves<R, W>((read, write): (R, W), line: Option<Line>) -> (Receiver<R>, Sender<W>) {
    let pool = Pool::default();
    (Receiver { stream: read, pool: pool.clone() }, Sender { stream: write, pool, line })
}

/// The receiving half.
pub(super) struct Receiver<R> {
    stream: R,
    pool: Pool,
}

/// The sending half.
pub(super) struct Sender<W> {
    stream: W,
    pool: Pool,
    line: Option<Line>,
}

impl<R: AsyncRead + Send + Unpin + 'static> Receiver<R> {
    async fn frame(&mut self, limit: usize) -> Result<Option<Bytes>, Error> {
        let mut header = [0; HEADER];
        let first = self.stream.read(&mut header).await.map_err(|e| failure(&e))?;
        if first == 0 {
            return Ok(None);
        }
        self.stream.read_exact(&mut header[first..]).await.map_err(|e| failure(&e))?;
        let total = announced(&header, limit)?;
        let mut buffer = self.pool.take(total);
        buffer.extend_from_slice(&header);
        while buffer.len() < total {
            let missing = total - buffer.len();
            let read = self.stream.read_buf(&mut (&mut buffer).limit(missing)).await;
            if read.map_err(|e| failure(&e))? == 0 {
                return Err(TransportError::Closed.into());
            }
        }
        Ok(Some(buffer.into()))
    }
}

impl<R: AsyncRead + Send + Unpin + 'static> Source for Receiver<R> {
    async fn next(&mut self, limit: usize) -> Option<Arrival> {
        match self.frame(limit).await {
            Ok(frame) => frame.map(Arrival::Frame),
            Err(e) => Some(Arrival::Failed(e)),
        }
    }

    async fn discard(&mut self) {
        // What cannot be read need not be heard.
        let _ = tokio::io::copy(&mut (&mut self.stream).take(DISCARDED), &mut tokio::io::sink()).await;
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Sink for Sender<W> {
    async fn send(&mut self, bytes: Bytes) -> bool {
        let sent = self.stream.write_all(&bytes).await.is_ok() && self.stream.flush().await.is_ok();
        self.pool.put(bytes);
        sent
    }

    async fn close(&mut self) {
        // The peer may be gone; there is nobody to tell.
        let _ = self.stream.shutdown().await;
    }

    fn direct(&self) -> Option<Direct> {
        self.line.clone().map(|line| Direct::new(line, self.pool.clone()))
    }
}

fn failure(e: &IoError) -> Error {
    match e.kind() {
        ErrorKind::ConnectionReset
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionAborted => TransportError::Closed.into(),
        _ => TransportError::Io(e.to_string()).into(),
    }
}
