//! The door of the listener for operators: few connections, and none without a request.

use super::counted::Counted;
use axum_server::accept::Accept;
use std::future::Future;
use std::io::{ErrorKind, Result as IoResult};
use std::pin::Pin;
use std::sync::Arc;
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
    type Stream = Counted<TcpStream, OwnedSemaphorePermit>;
    type Service = S;
    type Future = Pin<Box<dyn Future<Output = IoResult<(Self::Stream, S)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let permit = self.0.clone().try_acquire_owned();
        Box::pin(async move {
            let permit = permit.map_err(|_| std::io::Error::from(ErrorKind::ResourceBusy))?;
            Ok((Counted::new(stream, permit), service))
        })
    }
}
