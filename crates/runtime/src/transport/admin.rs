//! The door of the listener for operators: few connections, and none without a request.
//!
//! Probes come here whose silence has the server ended, so that nobody may keep them out: where there are too many connections, the address that has most
//! of them loses its oldest.

use super::counted::Counted;
use super::socket::{Line, Socket};
use axum_server::accept::Accept;
use std::collections::HashMap;
use std::future::Future;
use std::io::Result as IoResult;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;

/// Connections of operators and their probes at once.
const CONNECTIONS: usize = 64;

/// Takes in so many connections at once.
#[derive(Clone)]
pub(super) struct Door {
    /// Those that are open, in the order in which they came.
    open: Arc<Mutex<Vec<(IpAddr, Line)>>>,
    /// How long one may keep the server waiting.
    grants: Duration,
}

impl Door {
    pub(super) fn new(grants: Duration) -> Self {
        Self { open: Arc::default(), grants }
    }

    /// Takes one more in, and makes room for it.
    fn take(&self, address: IpAddr, line: Line) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, line)| line.open());
        if open.len() >= CONNECTIONS {
            let mut counts: HashMap<IpAddr, usize> = HashMap::new();
            open.iter().for_each(|(address, _)| *counts.entry(*address).or_default() += 1);
            let most = counts.values().max().copied();
            if let Some(at) = open.iter().position(|(address, _)| counts.get(address).copied() == most) {
                open.remove(at).1.close();
            }
        }
        open.push((address, line));
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for Door {
    type Stream = Counted<Socket, ()>;
    type Service = S;
    type Future = Pin<Box<dyn Future<Output = IoResult<(Self::Stream, S)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let door = self.clone();
        Box::pin(async move {
            let address = stream.peer_addr()?.ip().to_canonical();
            let socket = Socket::new(stream);
            door.take(address, socket.line());
            Ok((Counted::new(socket, (), door.grants), service))
        })
    }
}
