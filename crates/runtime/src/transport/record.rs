//! Keeps what clients send, so that an operator (or a demo) can look at all that a server ever sees of their inputs.

use crate::channel::{Channel, Reserve, Traffic};
use crate::error::{Error, TransportError};
use crate::wire::{Frame, Kind};
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// A file that sessions append to; `None` when it could not be written.
pub(super) type Record = Arc<Mutex<Option<File>>>;

/// A channel that appends what the peer has encrypted to a file: the payload of every Request, and of every frame of a two-party session's
/// byte stream. A file that cannot be written is logged once and left alone.
pub(super) struct Recording<C> {
    inner: C,
    file: Record,
}

impl<C> Recording<C> {
    pub(super) fn new(inner: C, file: Record) -> Self {
        Self { inner, file }
    }

    /// Appends bytes to the file, if it is still written.
    fn append(&self, bytes: &[u8]) {
        let mut slot = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = slot.as_mut().map(|file| file.write_all(bytes)) {
            tracing::warn!(%error, "recording stops");
            *slot = None;
        }
    }
}

impl<C: Channel> Channel for Recording<C> {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.inner.send(frame)
    }

    fn recv(&mut self) -> Result<Frame, Error> {
        let frame = self.inner.recv()?;
        if matches!(frame.kind(), Kind::Request | Kind::Bytes) {
            self.append(frame.payload());
        }
        Ok(frame)
    }

    fn ready(&mut self) -> bool {
        self.inner.ready()
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }

    fn set_limit(&mut self, bytes: usize) {
        self.inner.set_limit(bytes);
    }

    fn rest(&mut self, resting: bool) {
        self.inner.rest(resting);
    }

    fn reserve(&mut self, what: Reserve) -> Result<(), Error> {
        self.inner.reserve(what)
    }
}
