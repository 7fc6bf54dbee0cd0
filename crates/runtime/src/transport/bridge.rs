//! Between a carrier on tokio (WebSocket or raw) and a session's blocking thread.

use super::memory::{Share, SMALL};
use super::slots::{Place, Refused};
use crate::channel::{check_limit, Channel, Reserve, Traffic};
use crate::error::{Error, TransportError};
use crate::wire::{Frame, Kind, HEADER};
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch, OwnedSemaphorePermit, Semaphore};

/// Frames that wait on their way out, and by default on their way in: as many as a client may have in flight, so that a client
/// never waits for the server while the server waits for it.
pub(super) const DEPTH: usize = crate::channel::IN_FLIGHT;

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

/// What comes from a carrier.
pub(super) enum Arrival {
    /// A whole message, not looked into.
    Frame(Bytes),
    /// What came cannot be a frame, or the carrier failed.
    Failed(Error),
}

/// The receiving half of a carrier.
pub(super) trait Source: Send + 'static {
    /// The next message; `None` when the peer has closed.
    fn next(&mut self) -> impl Future<Output = Option<Arrival>> + Send;

    /// Reads and forgets what still comes, so that the peer gets to hear the last words.
    fn discard(&mut self) -> impl Future<Output = ()> + Send;
}

/// The sending half of a carrier.
pub(super) trait Sink: Send + 'static {
    /// Sends a message; whether it could be handed over.
    fn send(&mut self, bytes: Bytes) -> impl Future<Output = bool> + Send;

    /// Says goodbye.
    fn close(&mut self) -> impl Future<Output = ()> + Send;
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
    place: Arc<Place>,
    /// Grains of frames that may wait.
    waiting: Arc<Semaphore>,
    /// Those of them that belong to the block in work.
    block: usize,
}

/// Frames that are read before a client has a slot: as many as bring the first work.
const GUEST_FRAMES: usize = 4;

/// Largest payload that is a greeting, and nothing to work on.
const GREETING: usize = 64;

/// Longest wait for the last words to be heard.
const GOODBYE: Duration = Duration::from_secs(1);

/// Pumps frames both ways until either side is done; `session` runs on a blocking thread.
pub(super) async fn run(
    (mut source, mut sink): (impl Source, impl Sink),
    phase: watch::Receiver<Phase>,
    (handshake, idle): (Duration, Duration),
    queue: Queue,
    place: Arc<Place>,
    session: impl FnOnce(Bridge) + Send + 'static,
) {
    let (to_session, incoming) = mpsc::channel(queue.frames);
    let most =
        u32::try_from(queue.bytes / GRAIN).unwrap_or(u32::MAX).min(Semaphore::MAX_PERMITS as u32).max(1);
    let waiting = Arc::new(Semaphore::new(most as usize));
    let (outgoing, mut from_session) = mpsc::channel::<Bytes>(DEPTH);
    let runtime = Handle::current();
    let mut begun = place.begun();
    let bridge = Bridge {
        incoming,
        outgoing,
        phase,
        runtime,
        handshake,
        idle,
        traffic: Traffic::default(),
        limit: usize::MAX,
        resting: false,
        place,
        waiting: waiting.clone(),
        block: 0,
    };
    let reader = tokio::spawn(async move {
        let mut kept = 0;
        for number in 0.. {
            // Whoever holds no slot cannot have more kept than a few small frames and a large one.
            if (number >= GUEST_FRAMES || kept > SMALL / 2) && begun.wait_for(|b| *b).await.is_err() {
                break;
            }
            let Some(arrival) = source.next().await else { break };
            let message = match arrival {
                Arrival::Frame(bytes) => {
                    kept += bytes.len() as u64;
                    let grains = (bytes.len() as u64).div_ceil(GRAIN).clamp(1, u64::from(most)) as u32;
                    // Never closed.
                    let Ok(permit) = waiting.clone().acquire_many_owned(grains).await else { break };
                    Incoming::Frame(bytes, permit)
                }
                Arrival::Failed(e) => Incoming::Failed(e),
            };
            let last = matches!(message, Incoming::Failed(_));
            if to_session.send(message).await.is_err() || last {
                break;
            }
        }
        drop(to_session);
        source.discard().await;
    });
    let writer = tokio::spawn(async move {
        while let Some(bytes) = from_session.recv().await {
            if !tokio::time::timeout(idle, sink.send(bytes)).await.unwrap_or(false) {
                return;
            }
        }
        let _ = tokio::time::timeout(Duration::from_secs(5), sink.close()).await;
    });
    let work = tokio::task::spawn_blocking(move || session(bridge));
    if let Err(e) = work.await {
        tracing::error!(error = %e, "a session failed");
    }
    // The session is over: what it sent leaves first, and what still comes is not looked at.
    let _ = writer.await;
    let abort = reader.abort_handle();
    if tokio::time::timeout(GOODBYE, reader).await.is_err() {
        abort.abort();
    }
}

/// Says why a peer is not served.
pub(super) async fn refuse(mut source: impl Source, sink: &mut impl Sink, why: Bytes) {
    let goodbye = async {
        if sink.send(why).await {
            sink.close().await;
            source.discard().await;
        }
    };
    // A peer that does not listen is not waited for.
    let _ = tokio::time::timeout(GOODBYE, goodbye).await;
}

/// Whether a frame brings work: keys, set-ups, data. Greetings and what only announces are small, and a slot is not taken for them.
fn is_work(frame: &Frame) -> bool {
    match frame.kind() {
        Kind::Setup | Kind::Request | Kind::Keys => true,
        Kind::Bytes => frame.bytes().len() > HEADER + GREETING,
        _ => false,
    }
}

fn refused(why: Refused, place: &Place) -> TransportError {
    match why {
        Refused::Busy => TransportError::Busy { seconds: place.later() },
        Refused::Stopping => TransportError::Shutdown,
    }
}

impl Channel for Bridge {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        let bytes = frame.into_bytes();
        self.traffic.sent += bytes.len() as u64;
        let limit = self.idle;
        let bytes = match self.outgoing.try_send(bytes) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(TransportError::Closed),
            Err(TrySendError::Full(bytes)) => bytes,
        };
        // A client that takes no answers keeps the server waiting as one that sends nothing does.
        let place = &self.place;
        place.waits(false);
        let sent = self.runtime.block_on(async {
            tokio::select! {
                biased;
                sent = tokio::time::timeout(limit, self.outgoing.send(bytes)) => Ok(sent),
                () = place.given() => Err(Refused::Busy),
            }
        });
        place.heard();
        match sent.map_err(|why| refused(why, place))? {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(TransportError::Closed),
            Err(_) => Err(TransportError::Timeout { seconds: limit.as_secs() }),
        }
    }

    fn recv(&mut self) -> Result<Frame, Error> {
        // Only the greeting may be received before anything was sent.
        let limit = if self.traffic.sent == 0 { self.handshake } else { self.idle };
        let ends = if self.resting { Phase::Draining } else { Phase::Stopping };
        let (incoming, phase, place) = (&mut self.incoming, &mut self.phase, &self.place);
        place.waits(self.resting);
        let message = self.runtime.block_on(async {
            tokio::select! {
                // What has come is answered first.
                biased;
                message = tokio::time::timeout(limit, incoming.recv()) => Ok(message),
                _ = phase.wait_for(|p| *p == Phase::Stopping || *p == ends) => Err(Refused::Stopping),
                () = place.given() => Err(Refused::Busy),
            }
        });
        place.heard();
        match message.map_err(|why| refused(why, place))? {
            Err(_) => Err(TransportError::Timeout { seconds: limit.as_secs() }.into()),
            Ok(None) => Err(TransportError::Closed.into()),
            Ok(Some(Incoming::Failed(e))) => Err(e),
            Ok(Some(Incoming::Frame(bytes, permit))) => {
                drop(permit);
                self.traffic.received += bytes.len() as u64;
                check_limit(bytes.len(), self.limit)?;
                let frame = Frame::parse(bytes)?;
                if !place.works() && is_work(&frame) {
                    self.runtime.block_on(place.work()).map_err(|why| refused(why, place))?;
                }
                Ok(frame)
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
        if resting {
            // What waits to be read of the block is counted as long as it waits.
            self.block -= self.waiting.forget_permits(self.block);
            if self.block == 0 {
                self.place.release(Share::Block);
            }
        }
    }

    fn reserve(&mut self, what: Reserve) -> Result<(), Error> {
        let (share, bytes, waiting) = match what {
            Reserve::SetUp(bytes) => (Share::SetUp, bytes, 0),
            Reserve::Block { bytes, waiting } => (Share::Block, bytes, waiting),
        };
        let place = &self.place;
        self.runtime.block_on(place.reserve(share, bytes)).map_err(|why| refused(why, place))?;
        let more = usize::try_from(waiting.div_ceil(GRAIN)).unwrap_or(usize::MAX).saturating_sub(self.block);
        if more > 0 {
            self.waiting.add_permits(more);
            self.block += more;
        }
        Ok(())
    }
}
