//! A connection of which others can tell whether its peer has left, while nobody reads.
//!
//! A client that stands in line may have sent more than the server has room for. What it has sent is not read meanwhile, so that the end of the stream is not
//! seen by reading. The system tells of it all the same.

use futures_util::FutureExt;
use socket2::SockRef;
use std::io::{ErrorKind, Result as IoResult};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{ready, Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A TCP connection, for one reader and one writer.
pub(super) struct Socket(Arc<TcpStream>);

/// Tells of a connection, and does not keep it open.
#[derive(Clone, Debug)]
pub(super) struct Line(Weak<TcpStream>);

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    /// What tells of this connection.
    pub(super) fn line(&self) -> Line {
        Line(Arc::downgrade(&self.0))
    }

    /// Waits until there is room to write.
    #[cfg(test)]
    pub(super) async fn writable(&self) {
        self.0.writable().await.unwrap();
    }

    /// Both halves.
    pub(super) fn split(self) -> (Self, Self) {
        (Self(self.0.clone()), self)
    }
}

impl Line {
    /// Whether the connection is still there.
    pub(super) fn open(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Ends the connection, in the middle of whatever it does.
    pub(super) fn close(&self) {
        if let Some(stream) = self.0.upgrade() {
            // It may have ended by itself.
            let _ = SockRef::from(&*stream).shutdown(Shutdown::Both);
        }
    }

    /// Writes as much as the system has room for; how many bytes. Nothing where that fails: whoever writes the rest is told.
    pub(super) fn write(&self, bytes: &[u8]) -> usize {
        let Some(stream) = self.0.upgrade() else { return 0 };
        let mut written = 0;
        while written < bytes.len() {
            match stream.try_write(&bytes[written..]) {
                Ok(n) if n > 0 => written += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        written
    }

    /// Whether the peer has closed its end, or the connection is gone.
    pub(super) fn closed(&self) -> bool {
        let Some(stream) = self.0.upgrade() else { return true };
        let ready = stream.ready(Interest::READABLE).now_or_never();
        match ready {
            None => false,
            Some(Ok(ready)) => ready.is_read_closed() || ready.is_error(),
            Some(Err(_)) => true,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<IoResult<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read_buf(buffer) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<IoResult<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write(bytes) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    /// Nothing waits here.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<IoResult<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<IoResult<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}
