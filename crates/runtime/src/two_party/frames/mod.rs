//! The byte stream of a two-party session in frames of the wire protocol, so that it can travel where client-aided
//! sessions do: Hello and Plan as there, then frames of kind Bytes. The parties' halves stand in [`client`] and [`server`].

pub(crate) mod client;
mod server;

pub use client::connect;
pub(crate) use client::with_plan;
pub(crate) use server::KeepingUnits;

use crate::channel::Channel as Frames;
use crate::error::Error;
use crate::wire::{FrameBuilder, Kind, HEADER};
use bytes::Bytes;
use hushnet_mpc::channel::{Buffered, Inbox, Link};
use hushnet_mpc::{MpcError, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// Largest payload of a frame.
const PIECE: usize = 1 << 18;

/// Bytes of the largest frame of a session after the Plan.
pub(super) const LARGEST_FRAME: usize = PIECE + HEADER;

/// What a session and its owner share: the frames are the owner's again when the session has dropped its end.
type Shared = Arc<Mutex<Box<dyn Frames>>>;

/// Bytes of a session in frames of kind Bytes.
struct FrameLink {
    frames: Shared,
    inbox: Inbox<Bytes>,
}

type FrameChannel = Buffered<FrameLink>;

fn carried(e: impl Into<Error>) -> MpcError {
    MpcError::Io(std::io::Error::other(e.into()))
}

fn channel_over(frames: Shared) -> FrameChannel {
    Buffered::over(FrameLink { frames, inbox: Inbox::default() })
}

impl Link for FrameLink {
    const MESSAGE: usize = PIECE;

    fn put(&mut self, message: Vec<u8>) -> Result<()> {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in message.chunks(PIECE) {
            let frame = FrameBuilder::with_payload(Kind::Bytes, piece).map_err(carried)?;
            frames.send(frame).map_err(carried)?;
        }
        Ok(())
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<()> {
        self.inbox.fill(buf, || {
            let frame = self.frames.lock().unwrap_or_else(PoisonError::into_inner).recv().map_err(carried)?;
            frame.expect(Kind::Bytes, 0, 0).map_err(carried)?;
            Ok(frame.bytes().slice(HEADER..))
        })
    }

    fn ready(&mut self) -> bool {
        !self.inbox.is_empty() || self.frames.lock().unwrap_or_else(PoisonError::into_inner).ready()
    }
}
