//! Between a carrier on tokio (WebSocket or raw) and a session's blocking thread.

use super::direct::{Direct, Left};
use super::memory::{Share, SMALL};
use super::peers::Account;
use super::slots::{Place, Refused};
use super::socket::Line;
use crate::channel::{check_limit, Channel, Reserve, Traffic};
use crate::error::{Error, TransportError};
use crate::pending::Preparation;
use crate::wire::{Frame, Kind, GREETING_FRAME, HEADER};
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

/// What may wait for a session. Beyond either, nothing more is read from the socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Frames that wait.
    pub frames: usize,
    /// Bytes of the frames that wait.
    pub bytes: u64,
}

/// Unit in which waiting bytes are counted; what a frame costs at least.
const GRAIN: u64 = 1 << 10;

/// What the reader hands to the session; a frame holds its part of the waiting bytes until it is taken.
enum Incoming {
    Frame(Bytes, Permits),
    Failed(Error),
}

/// A frame's part of what may wait: one of the frames, and its grains.
type Permits = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// Room for what waits to be read by the session.
#[derive(Clone)]
struct Room {
    frames: Arc<Semaphore>,
    grains: Arc<Semaphore>,
    most: u32,
}

impl Room {
    fn new(queue: Queue) -> Self {
        let most =
            u32::try_from(queue.bytes / GRAIN).unwrap_or(u32::MAX).min(Semaphore::MAX_PERMITS as u32).max(1);
        let frames = queue.frames.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            frames: Arc::new(Semaphore::new(frames)),
            grains: Arc::new(Semaphore::new(most as usize)),
            most,
        }
    }

    /// Room for a frame of so many bytes, as soon as there is some. Never `None`: nobody closes it.
    async fn take(&self, bytes: u64) -> Option<Permits> {
        let grains = bytes.div_ceil(GRAIN).clamp(1, u64::from(self.most)) as u32;
        let frame = self.frames.clone().acquire_owned().await.ok()?;
        Some((frame, self.grains.clone().acquire_many_owned(grains).await.ok()?))
    }
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
    /// The next message, of at most `limit` bytes where the carrier can tell before it takes room for it; `None` when the peer has closed.
    fn next(&mut self, limit: usize) -> impl Future<Output = Option<Arrival>> + Send;

    /// Reads and forgets what still comes, so that the peer gets to hear the last words.
    fn discard(&mut self) -> impl Future<Output = ()> + Send;
}

/// The sending half of a carrier.
pub(super) trait Sink: Send + 'static {
    /// Sends a message; whether it could be handed over.
    fn send(&mut self, bytes: Bytes) -> impl Future<Output = bool> + Send;

    /// Says goodbye.
    fn close(&mut self) -> impl Future<Output = ()> + Send;

    /// The way past this half for bytes that are messages as they are, where there is one.
    fn direct(&self) -> Option<Direct> {
        None
    }
}

/// What follows for the reader from the model that a client asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Bytes of the largest frame.
    pub largest: usize,
    /// What may wait to be read between blocks.
    pub queue: Queue,
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
    direct: Option<Direct>,
    phase: watch::Receiver<Phase>,
    runtime: Handle,
    handshake: Duration,
    idle: Duration,
    traffic: Traffic,
    limit: usize,
    resting: bool,
    place: Arc<Place>,
    reading: watch::Sender<Option<(usize, Room)>>,
    account: Option<Account>,
    /// Room for frames that wait, once it is known.
    room: Option<Room>,
    /// Grains of it that belong to the block in work.
    block: usize,
    /// How far the weights of the model are.
    preparation: Preparation,
}

/// How often a session that waits for weights looks whether anybody still wants an answer.
const LOOK: Duration = Duration::from_millis(20);

/// How often it is looked whether a client has left of which nothing is read.
const LEAVES: Duration = Duration::from_millis(50);

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
    place: Arc<Place>,
    session: impl FnOnce(Bridge) + Send + 'static,
) {
    // As many as the queue of any plan: what is read on waits for room below.
    let (to_session, incoming) = mpsc::channel(Semaphore::MAX_PERMITS);
    let (outgoing, mut from_session) = mpsc::channel::<Bytes>(DEPTH);
    let runtime = Handle::current();
    let (traffic, limit, mut begun) = (Traffic::default(), usize::MAX, place.begun());
    let (held, line) = (place.clone(), place.tells());
    let (reading, mut known) = watch::channel(None);
    let direct = sink.direct();
    let left = direct.as_ref().map(Direct::left);
    let bridge = Bridge {
        incoming,
        outgoing,
        direct,
        phase,
        runtime,
        handshake,
        idle,
        traffic,
        limit,
        resting: false,
        place,
        reading,
        account: None,
        room: None,
        block: 0,
        preparation: Preparation::over(),
    };
    let reader = tokio::spawn(async move {
        let mut room = Room::new(Queue { frames: 1, bytes: GREETING_FRAME as u64 });
        let (mut largest, mut kept) = (GREETING_FRAME, 0);
        for number in 0.. {
            // Nothing is read behind the greeting before the model is known that it asks for.
            if number == 1 {
                let Ok(Some(reading)) = known.wait_for(Option::is_some).await.map(|r| r.clone()) else {
                    break;
                };
                (largest, room) = reading;
            }
            // Whoever holds no slot cannot have more kept than a few small frames and a large one.
            let stops = number >= GUEST_FRAMES || kept > SMALL / 2;
            if stops && !slot_comes(&mut begun, line.as_ref()).await {
                break;
            }
            let Some(arrival) = source.next(largest).await else { break };
            let message = match arrival {
                Arrival::Frame(bytes) => {
                    kept += if number == 0 { 0 } else { bytes.len() as u64 };
                    let Some(permits) = room.take(bytes.len() as u64).await else { break };
                    Incoming::Frame(bytes, permits)
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
            left.iter().for_each(Left::written);
        }
        let _ = tokio::time::timeout(Duration::from_secs(5), sink.close()).await;
    });
    let work = tokio::task::spawn_blocking(move || {
        // Also where it panics. The next session may run on another thread.
        let _leaves = Leaves;
        session(bridge);
    });
    if let Err(e) = work.await {
        tracing::error!(error = %e, "a session failed");
    }
    last_words(&held, writer).await;
    drop(held);
    let abort = reader.abort_handle();
    if tokio::time::timeout(GOODBYE, reader).await.is_err() {
        abort.abort();
    }
}

/// Lets leave what an ended session sent, and does not look at what still comes. As long as it waits, it counts as the session's: a peer that reads
/// nothing would have more and more of it kept for it else, one session after the other.
async fn last_words(held: &Place, mut writer: tokio::task::JoinHandle<()>) {
    held.waits(false);
    let called_off = async {
        if held.keeps() {
            held.given().await;
        } else {
            tokio::time::sleep(GOODBYE).await;
        }
    };
    tokio::select! {
        _ = &mut writer => {}
        () = called_off => writer.abort(),
    }
}

/// Waits for the client's slot; whether it comes. Nothing is read meanwhile, so that the end of the stream is not seen by reading: the connection tells.
async fn slot_comes(begun: &mut watch::Receiver<bool>, line: Option<&Line>) -> bool {
    let left = async {
        match line {
            Some(line) => {
                while !line.closed() {
                    tokio::time::sleep(LEAVES).await;
                }
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        came = begun.wait_for(|b| *b) => came.is_ok(),
        () = left => false,
    }
}

/// Buffers of polynomials that a session's thread has kept for itself are for all threads once the session has ended.
struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        hushnet_ring::rns::leave_buffers();
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
        Refused::Left => TransportError::Closed,
    }
}

impl Bridge {
    /// Reads on behind the greeting, as the model that it asks for allows, and counts to an account from now on.
    pub(super) fn admit(&mut self, reading: Reading, account: Account, preparation: Preparation) {
        (self.account, self.preparation) = (Some(account), preparation);
        let room = Room::new(reading.queue);
        self.room = Some(room.clone());
        self.reading.send_replace(Some((reading.largest, room)));
    }

    /// Waits for the weights of the model as long as the client does, and the server is not stopped.
    fn prepared(&self) -> Result<(), TransportError> {
        while !self.preparation.wait(LOOK) {
            if *self.phase.borrow() != Phase::Running {
                return Err(TransportError::Shutdown);
            }
            if self.place.left() {
                return Err(TransportError::Closed);
            }
        }
        // The wait was no work for the client.
        self.place.heard();
        Ok(())
    }

    /// Counts bytes to the account.
    fn moved(&self, bytes: usize) -> Result<(), TransportError> {
        self.account.as_ref().map_or(Ok(()), |account| account.moved(bytes as u64))
    }
}

impl Channel for Bridge {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        // Last words are always free.
        if frame.kind() != Kind::Error {
            self.moved(frame.bytes().len())?;
        }
        let bytes = frame.into_bytes();
        self.traffic.sent += bytes.len() as u64;
        let bytes = match &self.direct {
            Some(direct) => direct.send(bytes),
            None => Some(bytes),
        };
        let Some(bytes) = bytes else { return Ok(()) };
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

    fn ready(&mut self) -> bool {
        !self.incoming.is_empty() || self.incoming.is_closed()
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
                self.moved(bytes.len())?;
                let frame = Frame::parse(bytes)?;
                if !self.place.works() && is_work(&frame) {
                    let place = self.place.clone();
                    if let Some(account) = &mut self.account {
                        account.begin(place.later())?;
                    }
                    self.runtime.block_on(place.work()).map_err(|why| refused(why, &place))?;
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
            if let Some(room) = &self.room {
                self.block -= room.grains.forget_permits(self.block);
            }
            if self.block == 0 {
                self.place.release(Share::Block);
            }
        }
    }

    fn reserve(&mut self, what: Reserve) -> Result<(), Error> {
        let (share, bytes, waiting) = match what {
            Reserve::Weights => return Ok(self.prepared()?),
            Reserve::SetUp(bytes) => (Share::SetUp, bytes, 0),
            Reserve::Block { bytes, waiting } => (Share::Block, bytes, waiting),
        };
        let place = &self.place;
        self.runtime.block_on(place.reserve(share, bytes)).map_err(|why| refused(why, place))?;
        let more = usize::try_from(waiting.div_ceil(GRAIN)).unwrap_or(usize::MAX).saturating_sub(self.block);
        if let Some(room) = self.room.as_ref().filter(|_| more > 0) {
            room.grains.add_permits(more);
            self.block += more;
        }
        Ok(())
    }
}
