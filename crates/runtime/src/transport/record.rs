//! Keeps what clients send, so that an operator (or a demo) can look at all that a server ever sees of their inputs.
//!
//! Clients decide how much that is, so the file is bounded: one that is full becomes `FILE.1`, in the place of the one before.

use crate::channel::{Channel, Reserve, Traffic};
use crate::error::{Error, TransportError};
use crate::wire::{Frame, Kind};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a file of records at most; the one before has as many.
const MOST: u64 = 1 << 30;

/// A file that sessions append to; `None` when it could not be written.
pub(super) type Record = Arc<Mutex<Option<Kept>>>;

/// A file of at most so many bytes, and where it stands.
pub(super) struct Kept {
    path: PathBuf,
    file: File,
    bytes: u64,
    most: u64,
}

impl Kept {
    /// Opens a file to append to it.
    ///
    /// # Errors
    /// [`TransportError::Record`] when that cannot be done.
    pub(super) fn open(path: &Path) -> Result<Record, TransportError> {
        let refused = |e: std::io::Error| TransportError::Record {
            path: path.display().to_string(),
            detail: e.to_string(),
        };
        Ok(Arc::new(Mutex::new(Some(Self::within(path, MOST).map_err(refused)?))))
    }

    fn within(path: &Path, most: u64) -> std::io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, bytes, most })
    }

    /// Appends bytes, to a new file where they do not fit into this one.
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let more = bytes.len() as u64;
        // What is no file of its own, as a pipe, has no length and stays.
        if self.bytes > 0 && self.bytes.saturating_add(more) > self.most && self.file.metadata()?.is_file() {
            let mut before = self.path.clone().into_os_string();
            before.push(".1");
            std::fs::rename(&self.path, before)?;
            *self = Self::within(&self.path, self.most)?;
        }
        self.bytes = self.bytes.saturating_add(more);
        self.file.write_all(bytes)
    }
}

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
        if let Some(Err(error)) = slot.as_mut().map(|kept| kept.append(bytes)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_makes_room_and_nothing_grows() {
        let folder = std::env::temp_dir().join(format!("hushnet-record-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("record");
        let mut kept = Kept::within(&path, 100).unwrap();
        for byte in 0..50_u8 {
            kept.append(&[byte; 40]).unwrap();
        }
        drop(kept);
        // Also of what was there before.
        Kept::within(&path, 100).unwrap().append(&[50; 40]).unwrap();
        let (now, before) = (std::fs::read(&path).unwrap(), std::fs::read(folder.join("record.1")).unwrap());
        assert_eq!((now, before), (vec![50; 40], [[48; 40], [49; 40]].concat()));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
