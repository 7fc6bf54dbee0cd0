//! What protocols speak to: blocking, framed, counted; and the in-process pipe.

use crate::error::{Error, ProtocolError, TransportError};
use crate::wire::{Frame, FrameBuilder, Kind, HEADER};
use bytes::Bytes;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender, TryRecvError};

/// Messages that a client sends ahead of the answers.
pub(crate) const IN_FLIGHT: usize = 2;

/// Bytes that went through a channel, headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Sent by this side.
    pub sent: u64,
    /// Received by this side.
    pub received: u64,
}

/// What a session asks for before it goes on: memory, so that all sessions of a server stay within its limit, and weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// The weights of the model, which may still be on their way to the kernels.
    Weights,
    /// Bytes from now on to the end of the session.
    SetUp(u64),
    /// Bytes until the session rests.
    Block {
        /// All that the block takes, what waits to be read included.
        bytes: u64,
        /// Bytes of the peer's messages that may wait to be read meanwhile, beside those that may wait at any time.
        waiting: u64,
    },
}

/// What a client says of itself when it greets.
#[derive(Clone, Default)]
pub struct Introduction {
    /// The model that it asks for; empty: the server's only one.
    pub model: String,
    /// The token that shows that it may ask; empty: none.
    pub token: String,
}

/// A connection to the peer, of whatever kind.
pub trait Channel: Send {
    /// Sends a frame; returns when it is handed over.
    ///
    /// # Errors
    /// [`TransportError`] when the peer is gone.
    fn send(&mut self, frame: Frame) -> Result<(), TransportError>;

    /// Waits for the next frame.
    ///
    /// # Errors
    /// [`Error::Transport`] when the peer is gone or silent for too long, [`Error::Protocol`] when what came is no frame
    /// or above the limit.
    fn recv(&mut self) -> Result<Frame, Error>;

    /// Whether `recv` would begin without waiting, or fail at once; true where that is not known.
    fn ready(&mut self) -> bool {
        true
    }

    /// Bytes that were sent and received so far.
    fn traffic(&self) -> Traffic;

    /// Largest frame that is accepted from now on, header included.
    fn set_limit(&mut self, bytes: usize);

    /// What a client says of itself in the greeting beside its version.
    fn introduction(&self) -> Introduction {
        Introduction::default()
    }

    /// Tells whether no block is in work, so that a server that is being stopped may end the session.
    fn rest(&mut self, resting: bool) {
        let _ = resting;
    }

    /// Waits until the memory is this session's. Channels that no server bounds give it at once.
    ///
    /// # Errors
    /// [`Error::Transport`] when it did not come free in time, or the server is being stopped.
    fn reserve(&mut self, what: Reserve) -> Result<(), Error> {
        let _ = what;
        Ok(())
    }
}

/// Tells the peer why this side stops, as far as the peer may know and can still hear it.
pub fn send_failure(channel: &mut dyn Channel, error: &Error) {
    if matches!(error, Error::Protocol(ProtocolError::Peer { .. }) | Error::Transport(TransportError::Closed))
    {
        return;
    }
    let ((code, message), seconds) = (error.for_peer(), error.seconds_for_peer());
    if let Ok(frame) = FrameBuilder::message(Kind::Error, &crate::wire::Failure { code, message, seconds }) {
        if let Err(e) = channel.send(frame) {
            tracing::debug!(error = %e, "the peer could not be told");
        }
    }
}

/// Frames that wait in one direction of a pipe.
const DEPTH: usize = 4;

/// One end of an in-process connection.
#[derive(Debug)]
pub struct Pipe {
    sender: SyncSender<Bytes>,
    receiver: Receiver<Bytes>,
    /// A message that was looked for and found.
    found: Option<Bytes>,
    traffic: Traffic,
    limit: usize,
}

/// Makes two connected ends of a channel in memory.
#[must_use]
pub fn pipe() -> (Pipe, Pipe) {
    let (a, b) = (sync_channel(DEPTH), sync_channel(DEPTH));
    let end = |sender, receiver| Pipe {
        sender,
        receiver,
        found: None,
        traffic: Traffic::default(),
        limit: usize::MAX,
    };
    (end(a.0, b.1), end(b.0, a.1))
}

impl Channel for Pipe {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.traffic.sent += frame.bytes().len() as u64;
        let bytes = frame.bytes().clone();
        drop(frame);
        self.sender.send(bytes).map_err(|_| TransportError::Closed)
    }

    fn recv(&mut self) -> Result<Frame, Error> {
        let found = self.found.take().map_or_else(|| self.receiver.recv(), Ok);
        let bytes = found.map_err(|_| TransportError::Closed)?;
        self.traffic.received += bytes.len() as u64;
        check_limit(bytes.len(), self.limit)?;
        Ok(Frame::parse(bytes)?)
    }

    fn ready(&mut self) -> bool {
        if self.found.is_none() {
            match self.receiver.try_recv() {
                Ok(bytes) => self.found = Some(bytes),
                Err(TryRecvError::Empty) => return false,
                // Receiving says so.
                Err(TryRecvError::Disconnected) => {}
            }
        }
        true
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }
}

pub(crate) fn check_limit(got: usize, limit: usize) -> Result<(), ProtocolError> {
    if got > limit.max(HEADER) {
        return Err(ProtocolError::Oversize { got: got as u64, limit: limit as u64 });
    }
    Ok(())
}
