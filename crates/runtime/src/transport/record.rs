//! Keeps what clients send, so that an operator (or a demo) can look at all that a server ever sees of their inputs.

use crate::channel::{Channel, Traffic};
use crate::error::{Error, TransportError};
use crate::wire::{Frame, Kind};
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// A channel that appends the payload of every Request to a file. A file that cannot be written is logged once and left alone.
pub(super) struct Recording<'a> {
    inner: &'a mut dyn Channel,
    file: &'a Mutex<Option<File>>,
}

impl<'a> Recording<'a> {
    pub(super) fn new(inner: &'a mut dyn Channel, file: &'a Mutex<Option<File>>) -> Self {
        Self { inner, file }
    }
}

impl Channel for Recording<'_> {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.inner.send(frame)
    }

    fn recv(&mut self) -> Result<Frame, Error> {
        let frame = self.inner.recv()?;
        if frame.kind() == Kind::Request {
            let mut slot = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(Err(error)) = slot.as_mut().map(|file| file.write_all(frame.payload())) {
                tracing::warn!(%error, "recording stops");
                *slot = None;
            }
        }
        Ok(frame)
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
}
