//! The door of the listener for operators: few connections, and none without a request.

use axum_server::accept::Accept;
use std::future::Future;
use std::io::{ErrorKind, Result as IoResult};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections of operators and their probes at once; more are closed as they come.
const CONNECTIONS: usize = 64;

/// Takes in so many connections at once.
#[derive(Clone)]
pub(super) struct Door(Arc<Semaphore>);

impl Door {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(CONNECTIONS)))
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for Door {
    type Stream = Counted;
    type Service = S;
    type Future = Pin<Box<dyn Future<Output = IoResult<(Self::Stream, S)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let permit = self.0.clone().try_acquire_owned();
        Box::pin(async move {
            let permit = permit.map_err(|_| std::io::Error::from(ErrorKind::ResourceBusy))?;
            Ok((Counted(stream, permit), service))
        })
    }
}

/// A connection that counts until it is dropped.
pub(super) struct Counted(
    TcpStream,
    #[expect(dead_code, reason = "held until the connection ends")] OwnedSemaphorePermit,
);

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<IoResult<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<IoResult<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
