//! Between a WebSocket on tokio and a session's blocking thread.

use crate::channel::{check_limit, Channel, Traffic};
use crate::error::{Error, ProtocolError, TransportError};
use crate::wire::Frame;
use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch, OwnedSemaphorePermit, Semaphore};

/// Frames that wait on their way out, and by default on their way in: as many as a client may have in flight, so that a client
/// never waits for the server while the server waits for it.
pub(super) const DEPTH: usize = crate::client_aided::IN_FLIGHT;

/// What may wait for a session: frames, and bytes of them. Beyond either, nothing more is read from the socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub frames: usize,
    pub bytes: u64,
}

/// Unit in which waiting bytes are counted; what a frame costs at least.
const GRAIN: u64 = 1 << 10;

/// What the reader hands to the session; a frame holds its part of the waiting bytes until it is taken.
enum Incoming {
    Frame(Bytes, OwnedSemaphorePermit),
    Failed(Error),
}

/// How far a server is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Serving.
    Running,
    /// Sessions end when no block is in work.
    Draining,
    /// Sessions end now.
    Stopping,
}

/// The session's end of the bridge.
pub(super) struct Bridge {
    incoming: mpsc::Receiver<Incoming>,
    outgoing: mpsc::Sender<Bytes>,
    phase: watch::Receiver<Phase>,
    runtime: Handle,
    handshake: Duration,
    idle: Duration,
    traffic: Traffic,
    limit: usize,
    resting: bool,
}

/// Pumps frames both ways until either side is done; `session` runs on a blocking thread.
pub(super) async fn run(
    socket: WebSocket,
    phase: watch::Receiver<Phase>,
    (handshake, idle): (Duration, Duration),
    queue: Queue,
    session: impl FnOnce(Bridge) + Send + 'static,
) {
    let (mut sink, mut stream) = socket.split();
    let (to_session, incoming) = mpsc::channel(queue.frames);
    let most =
        u32::try_from(queue.bytes / GRAIN).unwrap_or(u32::MAX).min(Semaphore::MAX_PERMITS as u32).max(1);
    let waiting = Arc::new(Semaphore::new(most as usize));
    let (outgoing, mut from_session) = mpsc::channel::<Bytes>(DEPTH);
    let runtime = Handle::current();
    let (traffic, limit) = (Traffic::default(), usize::MAX);
    let bridge =
        Bridge { incoming, outgoing, phase, runtime, handshake, idle, traffic, limit, resting: false };
    let reader = tokio::spawn(async move {
        while let Some(message) = stream.next().await {
            let message = match message {
                Ok(Message::Binary(bytes)) => {
                    let grains = (bytes.len() as u64).div_ceil(GRAIN).clamp(1, u64::from(most)) as u32;
                    // Never closed.
                    let Ok(permit) = waiting.clone().acquire_many_owned(grains).await else { break };
                    Incoming::Frame(bytes, permit)
                }
                Ok(Message::Text(_)) => Incoming::Failed(ProtocolError::NotAFrame("a text message").into()),
                Ok(Message::Close(_)) => break,
                Ok(Message::Ping(_) | Message::Pong(_)) => continue,
                Err(e) => Incoming::Failed(failure(e)),
            };
            let last = matches!(message, Incoming::Failed(_));
            if to_session.send(message).await.is_err() || last {
                break;
            }
        }
    });
    let writer = tokio::spawn(async move {
        while let Some(bytes) = from_session.recv().await {
            if tokio::time::timeout(idle, sink.send(Message::Binary(bytes)))
                .await
                .map_or(true, |r| r.is_err())
            {
                return;
            }
        }
        let _ = tokio::time::timeout(Duration::from_secs(5), sink.close()).await;
    });
    let work = tokio::task::spawn_blocking(move || session(bridge));
    if let Err(e) = work.await {
        tracing::error!(error = %e, "a session failed");
    }
    // The session is over: what it sent leaves first, nothing more is read.
    let _ = writer.await;
    reader.abort();
}

fn failure(e: axum::Error) -> Error {
    let inner = e.into_inner();
    match inner.downcast_ref::<tungstenite::Error>() {
        Some(tungstenite::Error::Capacity(tungstenite::error::CapacityError::MessageTooLong {
            size,
            max_size,
        })) => ProtocolError::Oversize { got: *size as u64, limit: *max_size as u64 }.into(),
        Some(tungstenite::Error::Protocol(
            tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
        ))
        | Some(tungstenite::Error::Io(_) | tungstenite::Error::ConnectionClosed) => {
            TransportError::Closed.into()
        }
        Some(tungstenite::Error::Protocol(_) | tungstenite::Error::Utf8(_)) => {
            ProtocolError::NotAFrame("not WebSocket data").into()
        }
        _ => TransportError::Io(inner.to_string()).into(),
    }
}

impl Channel for Bridge {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        let bytes = frame.bytes().clone();
        self.traffic.sent += bytes.len() as u64;
        let limit = self.idle;
        let sent =
            self.runtime.block_on(async { tokio::time::timeout(limit, self.outgoing.send(bytes)).await });
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(TransportError::Closed),
            Err(_) => Err(TransportError::Timeout { seconds: limit.as_secs() }),
        }
    }

    fn recv(&mut self) -> Result<Frame, Error> {
        // Only the greeting may be received before anything was sent.
        let limit = if self.traffic.sent == 0 { self.handshake } else { self.idle };
        let ends = if self.resting { Phase::Draining } else { Phase::Stopping };
        let (incoming, phase) = (&mut self.incoming, &mut self.phase);
        let message = self.runtime.block_on(async {
            tokio::select! {
                // What has come is answered first.
                biased;
                message = tokio::time::timeout(limit, incoming.recv()) => Some(message),
                _ = phase.wait_for(|p| *p == Phase::Stopping || *p == ends) => None,
            }
        });
        match message {
            None => Err(TransportError::Shutdown.into()),
            Some(Err(_)) => Err(TransportError::Timeout { seconds: limit.as_secs() }.into()),
            Some(Ok(None)) => Err(TransportError::Closed.into()),
            Some(Ok(Some(Incoming::Failed(e)))) => Err(e),
            Some(Ok(Some(Incoming::Frame(bytes, permit)))) => {
                drop(permit);
                self.traffic.received += bytes.len() as u64;
                check_limit(bytes.len(), self.limit)?;
                Ok(Frame::parse(bytes)?)
            }
        }
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    fn rest(&mut self, resting: bool) {
        self.resting = resting;
    }
}
