//! The byte stream of a two-party session in frames of the wire protocol, so that it can travel where client-aided
//! sessions do: Hello and Plan as there, then frames of kind Bytes.

use super::client::{TwoPartyClient, TwoPartyOptions};
use super::plan::TwoPartyPlan;
use super::server::{TwoPartyModel, TwoPartySession};
use super::trace::TwoPartyTrace;
use crate::channel::{send_failure, Channel as Frames, Traffic};
use crate::error::{Error, ProtocolError};
use crate::session::greet;
use crate::wire::{Frame, FrameBuilder, Hello, Kind, HEADER, PROTOCOL};
use bytes::Bytes;
use hushnet_mpc::channel::{Buffered, Inbox, Link};
use hushnet_mpc::{MpcError, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// Largest payload of a frame.
const PIECE: usize = 1 << 18;

/// Bytes of the largest frame of a session after the Plan.
pub(crate) const LARGEST_FRAME: usize = PIECE + HEADER;

/// Hears every payload that comes in.
pub(crate) type Tap = Box<dyn FnMut(&[u8]) + Send>;

/// What a session and its owner share: the frames are the owner's again when the session has dropped its end.
type Shared = Arc<Mutex<Box<dyn Frames>>>;

/// Bytes of a session in frames of kind Bytes.
struct FrameLink {
    frames: Shared,
    inbox: Inbox<Bytes>,
    tap: Option<Tap>,
}

type FrameChannel = Buffered<FrameLink>;

fn carried(e: impl Into<Error>) -> MpcError {
    MpcError::Io(std::io::Error::other(e.into()))
}

fn channel_over(frames: Shared, tap: Option<Tap>) -> FrameChannel {
    Buffered::over(FrameLink { frames, inbox: Inbox::default(), tap })
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
            if let Some(tap) = &mut self.tap {
                tap(frame.payload());
            }
            Ok(frame.bytes().slice(HEADER..))
        })
    }
}

/// Opens a session over a framed connection: greeting, plan, set-up.
///
/// # Errors
/// [`Error`]: transport, protocol, or a plan that this client refuses.
pub fn connect(
    mut frames: Box<dyn Frames>,
    options: TwoPartyOptions,
) -> std::result::Result<TwoPartyClient, Error> {
    match greet(frames.as_mut(), &options.plan.limits) {
        Ok(plan) => greeted(frames, &plan, options),
        Err(e) => {
            send_failure(frames.as_mut(), &e);
            Err(e)
        }
    }
}

/// Opens a session with a server that has sent its plan.
pub(crate) fn greeted(
    mut frames: Box<dyn Frames>,
    plan: &Frame,
    options: TwoPartyOptions,
) -> std::result::Result<TwoPartyClient, Error> {
    let plan = match TwoPartyPlan::from_bytes(plan.payload(), &options.plan) {
        Ok(plan) => plan,
        Err(e) => {
            let e = e.into();
            send_failure(frames.as_mut(), &e);
            return Err(e);
        }
    };
    frames.set_limit(LARGEST_FRAME);
    let shared = Arc::new(Mutex::new(frames));
    TwoPartyClient::with_plan(Box::new(channel_over(shared, None)), plan, options)
}

/// Serves one session over a framed connection; returns what passed, too. An error has been told to the peer, as far as the peer may
/// know it.
pub(crate) fn serve(
    model: &TwoPartyModel,
    mut frames: Box<dyn Frames>,
    tap: Option<Tap>,
    on_event: &mut dyn FnMut(TwoPartySession),
) -> (std::result::Result<TwoPartyTrace, Error>, Traffic) {
    frames.set_limit(LARGEST_FRAME);
    let hello = |frames: &mut dyn Frames| -> std::result::Result<(), Error> {
        let hello: Hello = frames.recv()?.message(Kind::Hello)?;
        if hello.protocol != PROTOCOL {
            return Err(ProtocolError::Version { got: hello.protocol, ours: PROTOCOL }.into());
        }
        Ok(frames.send(FrameBuilder::with_payload(Kind::Plan, model.public_part())?)?)
    };
    if let Err(e) = hello(frames.as_mut()) {
        send_failure(frames.as_mut(), &e);
        return (Err(e), frames.traffic());
    }
    let shared = Arc::new(Mutex::new(frames));
    let result = model.serve(Box::new(channel_over(shared.clone(), tap)), on_event);
    let mut frames = shared.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(e) = &result {
        send_failure(frames.as_mut(), e);
    }
    (result, frames.traffic())
}
