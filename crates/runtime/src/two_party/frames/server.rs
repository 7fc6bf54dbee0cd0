//! The server's end of a two-party session in frames.

use super::{channel_over, LARGEST_FRAME};
use crate::channel::{send_failure, Channel as Frames, Reserve, Traffic};
use crate::error::Error;
use crate::pending::Preparation;
use crate::session::server::{welcome, Served, SessionEvent, SessionMemory, Waiting};
use crate::trace::ServerTrace;
use crate::two_party::server::{TwoPartyModel, BETWEEN_BLOCKS};
use crate::two_party::units::server::UnitStore;
use crate::wire::{FrameBuilder, Kind};
use std::sync::{Arc, Mutex, PoisonError};

impl Served for TwoPartyModel {
    fn memory(&self) -> SessionMemory {
        self.session_memory()
    }

    fn largest_frame(&self) -> usize {
        LARGEST_FRAME
    }

    fn waiting(&self) -> Waiting {
        Waiting { frames: None, bytes: BETWEEN_BLOCKS }
    }

    fn who_learns_what(&self) -> &'static str {
        "two-party: the server learns shapes only; the client learns what the plan reveals"
    }

    fn preparation(&self) -> Preparation {
        Self::preparation(self).clone()
    }

    fn session(
        &self,
        frames: Box<dyn Frames>,
        on_event: &mut dyn FnMut(SessionEvent),
    ) -> (Result<ServerTrace, Error>, Traffic) {
        in_frames(self, None, frames, on_event)
    }
}

/// A model that prepares inferences, and the folder that it keeps its half of them in.
pub(crate) struct KeepingUnits {
    model: Arc<TwoPartyModel>,
    units: Arc<UnitStore>,
}

impl KeepingUnits {
    pub(crate) fn new(model: Arc<TwoPartyModel>, units: Arc<UnitStore>) -> Self {
        Self { model, units }
    }
}

impl Served for KeepingUnits {
    fn memory(&self) -> SessionMemory {
        let memory = self.model.session_memory();
        let units = self.model.unit_bytes(self.model.most_units());
        SessionMemory { block: memory.block.saturating_add(units), ..memory }
    }

    fn largest_frame(&self) -> usize {
        LARGEST_FRAME
    }

    fn waiting(&self) -> Waiting {
        self.model.waiting()
    }

    fn who_learns_what(&self) -> &'static str {
        self.model.who_learns_what()
    }

    fn preparation(&self) -> Preparation {
        Served::preparation(self.model.as_ref())
    }

    fn session(
        &self,
        frames: Box<dyn Frames>,
        on_event: &mut dyn FnMut(SessionEvent),
    ) -> (Result<ServerTrace, Error>, Traffic) {
        in_frames(&self.model, Some(&self.units), frames, on_event)
    }
}

/// A session, from the client's Hello to its end.
fn in_frames(
    model: &TwoPartyModel,
    units: Option<&UnitStore>,
    mut frames: Box<dyn Frames>,
    on_event: &mut dyn FnMut(SessionEvent),
) -> (Result<ServerTrace, Error>, Traffic) {
    frames.set_limit(LARGEST_FRAME);
    let welcomed = FrameBuilder::with_payload(Kind::Plan, model.public_part())
        .map_err(Error::from)
        .and_then(|plan| welcome(frames.as_mut(), &plan));
    if let Err(e) = welcomed {
        send_failure(frames.as_mut(), &e);
        return (Err(e), frames.traffic());
    }
    let shared = Arc::new(Mutex::new(frames));
    let rest = |resting| shared.lock().unwrap_or_else(PoisonError::into_inner).rest(resting);
    let mut noted = |event| {
        rest(matches!(event, SessionEvent::Block { .. }));
        on_event(event);
    };
    let mut reserve = |what: Reserve| shared.lock().unwrap_or_else(PoisonError::into_inner).reserve(what);
    let channel = Box::new(channel_over(shared.clone()));
    let result = model.serve_within(channel, units, &mut reserve, &mut noted);
    let mut frames = shared.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(e) = &result {
        send_failure(frames.as_mut(), e);
    }
    (result.map(|trace| trace.summary()), frames.traffic())
}
