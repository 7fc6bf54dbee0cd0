//! What a server needs to know of a trust model: how much a session takes, and how one is served from its greeting to its end.

use super::AnyPlan;
use crate::channel::{Channel, Traffic};
use crate::client_aided::{self, ServerPlan};
use crate::compute::Compute;
use crate::error::{Error, ProtocolError};
use crate::non_interactive::{KeepingKeys, KeyStore, NonInteractiveModel};
use crate::pending::{Preparation, Promise, Work};
use crate::trace::ServerTrace;
use crate::two_party::frames::KeepingUnits;
use crate::two_party::server::DEFAULT_WEIGHT_BYTES;
use crate::two_party::{PreparationStore, TwoPartyModel, UnitStore};
use crate::wire::{Frame, Hello, Kind, PROTOCOL};
use std::sync::Arc;

/// What a session reports as it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// A two-party group of images has begun.
    Begin,
    /// A block (two-party: a group) of images was answered.
    Block {
        /// Images in it.
        images: u64,
    },
}

/// What may wait for a session to be read. Beyond either, nothing more is taken from the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Frames; `None`: any number.
    pub frames: Option<usize>,
    /// Bytes of frames.
    pub bytes: u64,
}

/// The most bytes that one session may hold on the server beside the weights, by the time that it holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionMemory {
    /// From its slot to its end: keys, and frames on their way.
    pub session: u64,
    /// From its first work to its end; asked for as [`crate::channel::Reserve::SetUp`].
    pub set_up: u64,
    /// While its largest block is in work; asked for as [`crate::channel::Reserve::Block`].
    pub block: u64,
}

impl SessionMemory {
    /// The most that a session holds at any time, in bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.session.saturating_add(self.set_up).saturating_add(self.block)
    }

    /// The larger of both, part by part, in bytes.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        Self {
            session: self.session.max(other.session),
            set_up: self.set_up.max(other.set_up),
            block: self.block.max(other.block),
        }
    }
}

/// A plan prepared for serving, shared by all sessions.
pub trait Served: Send + Sync {
    /// What one session may hold beside the weights.
    fn memory(&self) -> SessionMemory;

    /// Bytes of the largest frame of a session after the Plan.
    fn largest_frame(&self) -> usize;

    /// What may wait for a session: as much as an honest client has on its way at once, so that it never waits for the server while the
    /// server waits for it.
    fn waiting(&self) -> Waiting {
        Waiting { frames: Some(crate::channel::IN_FLIGHT), bytes: u64::MAX }
    }

    /// Who learns what, for the operator: a sentence or two without a full stop.
    fn who_learns_what(&self) -> &'static str;

    /// How far the weights are on their way to the form of the kernels. Sessions may begin before it is over.
    fn preparation(&self) -> Preparation;

    /// Whether the parameters are below the security table.
    fn insecure(&self) -> bool {
        false
    }

    /// Serves one connection's life, from the client's Hello to its End; returns what passed, too. An error has been told to the peer, as
    /// far as the peer may know it.
    fn session(
        &self,
        channel: Box<dyn Channel>,
        on_event: &mut dyn FnMut(SessionEvent),
    ) -> (Result<ServerTrace, Error>, Traffic);
}

/// Receives a client's Hello and answers with the public plan.
pub(crate) fn welcome(channel: &mut dyn Channel, plan: &Frame) -> Result<(), Error> {
    let hello: Hello = channel.recv()?.message(Kind::Hello)?;
    if hello.protocol != PROTOCOL {
        return Err(ProtocolError::Version { got: hello.protocol, ours: PROTOCOL }.into());
    }
    Ok(channel.send(plan.clone())?)
}

/// What a server keeps of its clients; each is of one trust model, and the others need none.
#[derive(Clone, Default)]
pub struct Kept {
    /// Evaluation keys of clients (non-interactive).
    pub keys: Option<Arc<KeyStore>>,
    /// The server's half of prepared inferences (two-party).
    pub units: Option<Arc<UnitStore>>,
}

/// A prepared plan, by its trust model. Copies share the weights.
#[derive(Clone)]
pub enum AnyModel {
    /// The client computes the non-linear layers.
    ClientAided(Arc<ServerPlan>),
    /// Both parties compute on shares.
    TwoParty(Arc<TwoPartyModel>),
    /// The server computes everything, under encryption.
    NonInteractive(Arc<NonInteractiveModel>),
}

impl AnyModel {
    /// Brings the weights of a plan into the form of the kernels. `weight_bytes` is what two-party plans, and client-aided ones for few images, may take for weights in evaluation
    /// form; without it [`DEFAULT_WEIGHT_BYTES`].
    ///
    /// # Errors
    /// [`Error::Plan`] when the plan is a public part or its weights are not as it states; [`Error::Internal`] when a layer cannot be
    /// prepared.
    pub fn prepare(plan: &AnyPlan, compute: Compute, weight_bytes: Option<usize>) -> Result<Self, Error> {
        let (model, work) = Self::announce(plan, compute, weight_bytes, None)?;
        work()?;
        Ok(model)
    }

    /// A model that may be served at once, and the work that brings its weights into the form of the kernels: sessions wait for it where they need
    /// weights. A two-party server with a `store` goes on with the set-ups that clients have of an earlier one. Otherwise as [`Self::prepare`].
    ///
    /// # Errors
    /// [`Error::Plan`] when the plan is a public part; [`Error::Store`] when the store cannot be used. Those of the work are as [`Self::prepare`] has them.
    pub fn announce(
        plan: &AnyPlan,
        compute: Compute,
        weight_bytes: Option<usize>,
        store: Option<&PreparationStore>,
    ) -> Result<(Self, Work), Error> {
        let (model, fill): (Self, Work) = match plan {
            AnyPlan::ClientAided(plan) => {
                let room = weight_bytes.unwrap_or(client_aided::server::DEFAULT_WEIGHT_BYTES);
                let model = Arc::new(ServerPlan::announced(plan, compute)?);
                (Self::ClientAided(model.clone()), Box::new(move || model.fill(room)))
            }
            AnyPlan::TwoParty(plan) => {
                let room = weight_bytes.unwrap_or(DEFAULT_WEIGHT_BYTES);
                let model = Arc::new(TwoPartyModel::announced(plan, compute, store)?);
                (Self::TwoParty(model.clone()), Box::new(move || model.fill(room)))
            }
            AnyPlan::NonInteractive(plan) => {
                let model = Arc::new(NonInteractiveModel::announced(plan, compute)?);
                (Self::NonInteractive(model.clone()), Box::new(move || model.fill()))
            }
        };
        let promise = Promise(model.served().preparation());
        let work = move || {
            // Who waits is told also where the work is dropped, and never done.
            let _promise = promise;
            fill()
        };
        Ok((model, Box::new(work)))
    }

    /// Waits until the weights are prepared.
    ///
    /// # Errors
    /// [`Error::Internal`] when they could not be.
    pub fn ready(&self) -> Result<(), Error> {
        match self {
            Self::ClientAided(model) => model.prepared(),
            Self::TwoParty(model) => model.prepared(),
            Self::NonInteractive(model) => model.prepared(),
        }
    }

    /// [`Self::served`], with what a server keeps of its clients.
    #[must_use]
    pub fn served_keeping(&self, kept: Kept) -> Arc<dyn Served> {
        match (self, kept.keys, kept.units) {
            (Self::NonInteractive(model), Some(keys), _) => Arc::new(KeepingKeys::new(model.clone(), keys)),
            (Self::TwoParty(model), _, Some(units)) => Arc::new(KeepingUnits::new(model.clone(), units)),
            _ => self.served(),
        }
    }

    /// The model as what a server serves.
    #[must_use]
    pub fn served(&self) -> Arc<dyn Served> {
        match self {
            Self::ClientAided(model) => model.clone(),
            Self::TwoParty(model) => model.clone(),
            Self::NonInteractive(model) => model.clone(),
        }
    }
}
