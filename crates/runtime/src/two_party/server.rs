//! The server: owns the weights, holds one share of everything between; sees shapes only. No secret key type is known here.

use super::cost::Account;
use super::handshake;
use super::memory;
use super::meter::{Metered, Waited};
use super::methods::{Job, Layers, Preparing, ServerHalf, ServerSession, Shape};
use super::nonlinear;
use super::plan::{Kind, Stage, TwoPartyPlan};
use super::shares::Shares;
use super::trace::{Gauge, Phase, TwoPartyTrace};
use crate::compute::Compute;
use crate::error::Error;
use crate::plan::spec::Reveal;
use crate::plan::{self, PlanError};
use crate::session::server::SessionEvent;
use crate::tally;
use hushnet_mpc::{self as mpc, Channel, Party, Session};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of shares that one session may hold, from which the largest group of images follows.
const SESSION_BYTES: usize = 1 << 30;
/// Bytes of weights in evaluation form that a server keeps by default.
pub const DEFAULT_WEIGHT_BYTES: usize = 2 << 30;
const BYTES_PER_ELEMENT: usize = memory::BYTES_PER_ELEMENT as usize;
/// Bytes of the largest message of a protocol for each element, that travels while the peer's does.
const WAITING_PER_ELEMENT: usize = 16;
/// Bytes that wait beside what grows with the network: the OT extension's own messages.
const WAITING_BYTES: u64 = 64 << 20;

/// A plan prepared for serving: weights in evaluation form, shared by all sessions.
pub struct TwoPartyModel {
    plan: TwoPartyPlan,
    layers: Layers,
    /// Weights, by family.
    weights: Vec<Arc<dyn ServerHalf>>,
    public: Vec<u8>,
    digest: [u8; 32],
    compute: Compute,
}

/// A client's public keys, by family.
type Keys = [Box<dyn ServerSession>];

impl TwoPartyModel {
    /// Prepares the weights.
    ///
    /// # Errors
    /// [`Error::Plan`] when the plan is a public part, or states a norm of weights that the true weights exceed.
    pub fn new(plan: &TwoPartyPlan, compute: Compute) -> Result<Self, Error> {
        Self::with_memory(plan, compute, DEFAULT_WEIGHT_BYTES)
    }

    /// As [`Self::new`], with so many bytes for weights in evaluation form. Layers of many tiles come first; the weights of the
    /// others are transformed as they are needed.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_memory(plan: &TwoPartyPlan, compute: Compute, weight_bytes: usize) -> Result<Self, Error> {
        let structure = |detail: &str| Error::Plan(PlanError::Structure(detail.into()));
        if !plan.has_weights() {
            return Err(structure("this is the public part of a plan, without weights; serve the file that `hushnet compile` wrote"));
        }
        tally::prepared();
        let layers = compute.run(|| Layers::new(plan))?;
        let keep = layers.kept(plan.stages().len(), weight_bytes);
        let json = plan.served_json()?;
        let (public, digest) = (plan::encode(&json, &BTreeMap::new())?, handshake::digest(&json));
        let preparing = Preparing { plan, keep: &keep, plan_digest: &digest };
        let prepare = || layers.families().iter().map(|f| f.clone().prepare(&preparing));
        let weights = compute.run(|| prepare().collect::<Result<_, Error>>())?;
        Ok(Self { plan: plan.clone(), layers, weights, public, digest, compute })
    }

    /// The checked plan that is served, with its weights.
    #[must_use]
    pub fn plan(&self) -> &TwoPartyPlan {
        &self.plan
    }

    /// The plan file that clients receive.
    #[must_use]
    pub fn public_part(&self) -> &[u8] {
        &self.public
    }

    /// Bytes of weights, prepared and streamed.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        self.weights.iter().map(|w| w.weight_bytes()).sum()
    }

    /// Bytes that one session may hold beside the weights: shares and protocols of the largest group, and what waits to be read.
    #[must_use]
    pub fn session_bytes(&self) -> u64 {
        let group = self.largest_group() as u64;
        let shares = (self.plan.peak_elements() as u64).saturating_mul(BYTES_PER_ELEMENT as u64);
        let (plan, ring) = (&self.plan, self.plan.ring());
        let protocols = memory::protocols(plan.stages(), plan.tensors(), ring).map(|(_, bytes)| bytes).max();
        shares
            .max(protocols.unwrap_or(0))
            .saturating_mul(group)
            .saturating_add(self.queue_bytes())
            .saturating_add(self.layers.working_bytes())
    }

    /// Bytes that an honest client may have on their way at once (all requests of a stage, or one message of a protocol): a
    /// server that keeps so many never makes a client wait for it while it waits for the client.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        let requests = |shape: &dyn Shape| shape.tiles() * shape.request_len();
        let requests = self.layers.shapes().map(|(_, shape)| requests(shape)).max().unwrap_or(0);
        let message = WAITING_PER_ELEMENT.saturating_mul(self.plan.peak_elements());
        let image = (requests as u64).saturating_add(message as u64);
        image.saturating_mul(self.largest_group() as u64).saturating_add(WAITING_BYTES)
    }

    /// Most images that a client may run through the stages together.
    #[must_use]
    pub fn largest_group(&self) -> usize {
        largest_group(self.plan.peak_elements())
    }

    /// Sends the public plan, then serves a session: for channels that carry nothing else.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub fn serve_plain(
        &self,
        mut channel: Box<dyn Channel>,
        on_event: &mut dyn FnMut(SessionEvent),
    ) -> Result<TwoPartyTrace, Error> {
        handshake::send_plan(channel.as_mut(), &self.public)?;
        self.serve(channel, on_event)
    }

    /// Serves one session to its end, with a client that has the public plan.
    ///
    /// # Errors
    /// [`Error`]: transport or protocol.
    pub fn serve(
        &self,
        channel: Box<dyn Channel>,
        on_event: &mut dyn FnMut(SessionEvent),
    ) -> Result<TwoPartyTrace, Error> {
        let (mut channel, waited) = Metered::new(channel);
        let gauge = Gauge::start(Party::Zero, &waited, channel.stats());
        let kind = handshake::recv_hello(&mut channel, &self.digest)?;
        let tiles = |i: usize| self.layers.tiles(i);
        let mut trace = TwoPartyTrace::new(&self.plan, Party::Zero, kind, self.compute.threads(), tiles);
        let mut session = Session::new(Box::new(channel), Party::Zero, kind)?;
        session.set_threads(self.compute.threads());
        let accept = |w: &Arc<dyn ServerHalf>| w.clone().accept(session.channel(), &self.compute);
        let keys = self.weights.iter().map(accept).collect::<Result<Vec<_>, Error>>()?;
        let held: Vec<usize> = keys.iter().map(|k| k.held()).collect();
        let mut account = Account::new(kind);
        gauge.stop(session.stats(), account.setup(&self.layers, &held), &mut trace.setup);
        loop {
            let seeds = {
                let gauge = Gauge::start(Party::Zero, &waited, session.stats());
                let seeds = handshake::recv_begin(session.channel(), self.largest_group())?;
                if seeds.is_empty() {
                    break;
                }
                let mut phase = Phase::default();
                gauge.stop(session.stats(), account.begin(seeds.len()), &mut phase);
                // The time between two groups is the client's own.
                (phase.seconds, phase.waiting) = (0.0, 0.0);
                add(&mut trace.total, &phase);
                seeds
            };
            on_event(SessionEvent::Begin);
            self.group(&mut session, &keys, &seeds, &waited, &mut account, &mut trace)?;
            trace.images += seeds.len();
            trace.groups += 1;
            on_event(SessionEvent::Block { images: seeds.len() as u64 });
        }
        trace.finish();
        Ok(trace)
    }

    fn group(
        &self,
        session: &mut Session,
        keys: &Keys,
        seeds: &[[u8; 32]],
        waited: &Waited,
        account: &mut Account,
        trace: &mut TwoPartyTrace,
    ) -> Result<(), Error> {
        let mut shares = Shares::new(&self.plan, seeds.len());
        for (index, stage) in self.plan.stages().iter().enumerate() {
            let gauge = Gauge::start(Party::Zero, waited, session.stats());
            self.stage(session, keys, (index, stage), seeds, &mut shares)?;
            let mut phase = Phase::default();
            gauge.stop(
                session.stats(),
                account.stage(&self.plan, &self.layers, index, seeds.len()),
                &mut phase,
            );
            add(&mut trace.stages[index].phase, &phase);
            add(&mut trace.total, &phase);
        }
        Ok(())
    }

    fn stage(
        &self,
        session: &mut Session,
        keys: &Keys,
        (index, stage): (usize, &Stage),
        seeds: &[[u8; 32]],
        shares: &mut Shares,
    ) -> Result<(), Error> {
        let elements = |t: usize| self.plan.tensors()[t].elements;
        match (&stage.kind, stage.inputs.first(), stage.output) {
            (Kind::Client(_), ..) => {}
            (Kind::Share, _, Some(output)) => shares.put(output, vec![0; elements(output) * seeds.len()]),
            (Kind::Linear(_), Some(&input), Some(output)) => {
                let job = Job { stage: index, share: shares.get(input)?, seeds, compute: &self.compute };
                let own = self.layers.half(keys, index)?.answer(session, &job)?;
                shares.put(output, own);
            }
            (Kind::MatrixProduct(_), Some(_), Some(output)) => {
                let share = shares.side_by_side(stage)?;
                let job = Job { stage: index, share: &share, seeds, compute: &self.compute };
                let own = self.layers.half(keys, index)?.answer(session, &job)?;
                shares.put(output, own);
            }
            (Kind::Reveal(what), Some(&input), _) => {
                let (share, ring) = (shares.get(input)?, self.plan.ring());
                match what {
                    Reveal::Output => mpc::reveal(session, share, ring, Party::One)?,
                    Reveal::Argmax => {
                        let index = nonlinear::run(session, stage, &[share], ring, seeds.len())?;
                        let index =
                            index.ok_or_else(|| Error::Internal("no protocol finds a label".into()))?;
                        mpc::reveal(session, &index, mpc::index_ring(elements(input))?, Party::One)?
                    }
                };
            }
            _ => shares.run(session, &self.plan, stage)?,
        }
        shares.free(&stage.free);
        Ok(())
    }
}

/// Most images that one session may hold, when so many shared elements of an image are alive at once.
pub(super) fn largest_group(peak_elements: usize) -> usize {
    let bytes = peak_elements.max(1).saturating_mul(BYTES_PER_ELEMENT);
    (SESSION_BYTES / bytes).clamp(1, super::client::MAX_GROUP)
}

fn add(to: &mut Phase, from: &Phase) {
    to.seconds += from.seconds;
    to.waiting += from.waiting;
    to.bytes_up += from.bytes_up;
    to.bytes_down += from.bytes_down;
    to.turns += from.turns;
    to.predicted += from.predicted;
}
