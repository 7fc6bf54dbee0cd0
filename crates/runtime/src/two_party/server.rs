//! The server: owns the weights, holds one share of everything between; sees shapes only. No secret key type is known here.

use super::batch;
use super::coefficients;
use super::cost::{Account, Layers};
use super::handshake;
use super::memory;
use super::meter::{Metered, Waited};
use super::nonlinear;
use super::plan::{Kind, Method, Stage, TwoPartyPlan};
use super::shares::Shares;
use super::slots;
use super::spec::Reveal;
use super::trace::{Gauge, Phase, TwoPartyTrace};
use super::{layer_error, peer_words};
use crate::compute::Compute;
use crate::error::Error;
use crate::plan::{self, PlanError};
use crate::session::server::SessionEvent;
use crate::tally;
use hushnet_layers::batch_shares::BatchShareLinear;
use hushnet_layers::cheetah::CheetahLinear;
use hushnet_layers::slots::SlotLinear;
use hushnet_mpc::{self as mpc, Channel, Party, Session};
use hushnet_rlwe::batch_shares::ShareServer;
use hushnet_rlwe::packed::PackedServer;
use rayon::prelude::*;
use std::collections::BTreeMap;

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
    linear: Vec<Option<CheetahLinear>>,
    batch: Vec<Option<BatchShareLinear>>,
    coefficients: Vec<Option<coefficients::server::Prepared>>,
    slots: Vec<Option<SlotLinear>>,
    public: Vec<u8>,
    digest: [u8; 32],
    compute: Compute,
}

/// The client's public keys.
struct Keys {
    packed: PackedServer,
    batch: Option<ShareServer>,
    coefficients: coefficients::server::ServerState,
    slots: slots::server::ServerState,
}

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
        let (keep, room) = kept(&layers, weight_bytes);
        let prepare = |(index, stage): (usize, &Stage)| -> Result<Option<CheetahLinear>, Error> {
            let Kind::Linear(l) = &stage.kind else { return Ok(None) };
            if l.method != Method::Cheetah {
                return Ok(None);
            }
            let weights = l.weights.as_ref().ok_or_else(|| structure("a linear stage has no weights"))?;
            let words: &[i16] = &weights.weights.to_i16();
            let make = if keep[index] { CheetahLinear::new } else { CheetahLinear::streamed };
            let linear =
                make(&layers.context, &l.geometry.checked()?, words, &weights.bias, plan.ring().bits())?;
            if linear.params().spec().weight_l2 > l.weight_l2 {
                let detail = format!("weight_l2 {} is below the norm of the weights; the plan is wrong, compile the model again", l.weight_l2);
                return Err(PlanError::Linear { stage: stage.name.clone(), detail }.into());
            }
            Ok(Some(linear))
        };
        let linear = compute
            .run(|| plan.stages().par_iter().enumerate().map(prepare).collect::<Result<Vec<_>, _>>())?;
        let json = plan.served_json()?;
        let (public, digest) = (plan::encode(&json, &BTreeMap::new())?, handshake::digest(&json));
        let batch = compute.run(|| layers.batch.prepare(plan))?;
        let coefficients = compute.run(|| layers.coefficients.prepare(plan, &keep, &digest))?;
        let slots = compute.run(|| layers.slots.prepare(plan, room))?;
        Ok(Self { plan: plan.clone(), layers, linear, batch, coefficients, slots, public, digest, compute })
    }

    /// The plan.
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
        let packed: usize = self.linear.iter().flatten().map(CheetahLinear::weight_bytes).sum();
        let others: usize =
            self.coefficients.iter().flatten().map(coefficients::server::Prepared::weight_bytes).sum();
        let slots: usize = self.slots.iter().flatten().map(SlotLinear::weight_bytes).sum();
        packed
            + others
            + slots
            + self.batch.iter().flatten().map(BatchShareLinear::weight_bytes).sum::<usize>()
    }

    /// Tiles of every linear stage, with the bytes of a request.
    pub(super) fn requests(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let packed = self.layers.linear.iter().flatten().map(|l| (l.tiles(), l.request_len()));
        packed
            .chain(self.layers.batch.requests())
            .chain(self.layers.coefficients.requests())
            .chain(self.layers.slots.requests())
    }

    /// Bytes that one session may hold beside the weights: shares and protocols of the largest group, and what waits to be read.
    #[must_use]
    pub fn session_bytes(&self) -> u64 {
        let group = self.largest_group() as u64;
        let shares = (self.plan.peak_elements() as u64).saturating_mul(BYTES_PER_ELEMENT as u64);
        let windows = self.layers.batch.window_bytes() as u64;
        let (plan, ring) = (&self.plan, self.plan.ring());
        let protocols = memory::protocols(plan.stages(), plan.tensors(), ring).map(|(_, bytes)| bytes).max();
        shares
            .max(protocols.unwrap_or(0))
            .saturating_mul(group)
            .saturating_add(self.queue_bytes())
            .saturating_add(windows + self.layers.slots.working_bytes() as u64)
    }

    /// Bytes that an honest client may have on their way at once (all requests of a stage, or one message of a protocol): a
    /// server that keeps so many never makes a client wait for it while it waits for the client.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        let requests = self.requests().map(|(tiles, bytes)| tiles * bytes).max().unwrap_or(0);
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
        let tiles = |i: usize| {
            self.linear[i].as_ref().map_or_else(
                || {
                    self.layers.batch.tiles(i)
                        + self.layers.coefficients.tiles(i)
                        + self.layers.slots.tiles(i)
                },
                |l| l.packing().tiles(),
            )
        };
        let mut trace = TwoPartyTrace::new(&self.plan, Party::Zero, kind, self.compute.threads(), tiles);
        let mut session = Session::new(Box::new(channel), Party::Zero, kind)?;
        session.set_threads(self.compute.threads());
        let (seed, key) = handshake::recv_key(session.channel(), &self.layers.context)?;
        let server = PackedServer::new(&self.layers.context, &seed, &key).map_err(|e| peer_words(&e))?;
        let batch = self.layers.batch.recv_key(session.channel())?;
        let slots = self.layers.slots.serve(session.channel(), &self.compute)?;
        let coefficients =
            self.layers.coefficients.serve(session.channel(), &self.compute, &self.coefficients)?;
        let keys = Keys { packed: server, batch, coefficients, slots };
        let mut account = Account::new(self.plan.ring_degree(), kind);
        gauge.stop(session.stats(), account.setup(&self.layers, keys.coefficients.held), &mut trace.setup);
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
            (Kind::Linear(l), Some(&input), Some(output)) if l.method == Method::Batch => {
                let missing = || Error::Internal("a batch stage was not prepared".into());
                let (layer, key) = self.batch[index].as_ref().zip(keys.batch.as_ref()).ok_or_else(missing)?;
                let job = batch::Job { index, share: shares.get(input)?, seeds, compute: &self.compute };
                let own = batch::server::answer(session.channel(), layer, key, &job)?;
                shares.put(output, own);
            }
            (Kind::Linear(l), Some(&input), Some(output)) if l.method.slotted() => {
                let missing = || Error::Internal("a linear stage was not prepared".into());
                let layer = self.slots[index].as_ref().ok_or_else(missing)?;
                let (share, images) = (shares.get(input)?, seeds.len());
                let job = slots::Job { index, share, images, compute: &self.compute };
                let own = self.layers.slots.answer(session, layer, &keys.slots, &job)?;
                shares.put(output, own);
            }
            (Kind::Linear(l), Some(&input), Some(output)) if l.method != Method::Cheetah => {
                let missing = || Error::Internal("a linear stage was not prepared".into());
                let layer = self.coefficients[index].as_ref().ok_or_else(missing)?;
                let job =
                    coefficients::Job { index, share: shares.get(input)?, seeds, compute: &self.compute };
                let places = &self.layers.coefficients;
                let own = places.answer(session.channel(), layer, &keys.coefficients, &job)?;
                shares.put(output, own);
            }
            (Kind::Linear(_), Some(&input), Some(output)) => {
                let own = self.linear(
                    session,
                    &keys.packed,
                    index,
                    (shares.get(input)?, elements(input)),
                    elements(output),
                    seeds,
                )?;
                shares.put(output, own);
            }
            (Kind::Reveal(what), Some(&input), _) => {
                let (share, ring) = (shares.get(input)?, self.plan.ring());
                match what {
                    Reveal::Output => mpc::reveal(session, share, ring, Party::One)?,
                    Reveal::Argmax => {
                        let index = nonlinear::argmax(session, stage, share, elements(input), ring)?;
                        mpc::reveal(session, &index, mpc::index_ring(elements(input))?, Party::One)?
                    }
                };
            }
            _ => shares.run(session, &self.plan, stage)?,
        }
        shares.free(&stage.free);
        Ok(())
    }

    /// Answers requests tile by tile as they come.
    fn linear(
        &self,
        session: &mut Session,
        server: &PackedServer,
        index: usize,
        (share, inputs): (&[u64], usize),
        outputs: usize,
        seeds: &[[u8; 32]],
    ) -> Result<Vec<u64>, Error> {
        let missing = || Error::Internal("a linear stage was not prepared".into());
        let layer = self.linear[index].as_ref().ok_or_else(missing)?;
        let length = self.layers.linear[index].as_ref().ok_or_else(missing)?.request_len();
        let mut own = vec![0; outputs * seeds.len()];
        let mut request = vec![0; length];
        for ((seed, share), own) in
            seeds.iter().zip(share.chunks_exact(inputs)).zip(own.chunks_exact_mut(outputs))
        {
            for tile in 0..layer.packing().tiles() {
                session.channel().recv(&mut request)?;
                let answer = self
                    .compute
                    .run(|| layer.answer(server, seed, index as u32, tile, &request, share, own))
                    .map_err(layer_error)?;
                session.channel().send(&answer)?;
                session.channel().flush()?;
            }
        }
        Ok(own)
    }
}

/// Most images that one session may hold, when so many shared elements of an image are alive at once.
pub(super) fn largest_group(peak_elements: usize) -> usize {
    let bytes = peak_elements.max(1).saturating_mul(BYTES_PER_ELEMENT);
    (SESSION_BYTES / bytes).clamp(1, super::client::MAX_GROUP)
}

/// Which stages keep their weights in evaluation form: those that use them for most tiles, while they fit `room` bytes together; and the
/// bytes that are left for slot-packed stages.
fn kept(layers: &Layers, mut room: usize) -> (Vec<bool>, usize) {
    let mut order: Vec<(usize, usize, usize)> = layers
        .linear
        .iter()
        .enumerate()
        .filter_map(|(i, l)| {
            let packed = l.as_ref().map(|l| (l.tiles(), l.packing().prepared_bytes()));
            let (tiles, bytes) = packed.or_else(|| layers.coefficients.prepared_bytes(i))?;
            Some((tiles, i, bytes))
        })
        .collect();
    order.sort_by_key(|(tiles, index, _)| (std::cmp::Reverse(*tiles), *index));
    let mut keep = vec![false; layers.linear.len()];
    for (_, index, bytes) in order {
        if bytes <= room {
            room -= bytes;
            keep[index] = true;
        }
    }
    (keep, room)
}

fn add(to: &mut Phase, from: &Phase) {
    to.seconds += from.seconds;
    to.waiting += from.waiting;
    to.bytes_up += from.bytes_up;
    to.bytes_down += from.bytes_down;
    to.turns += from.turns;
    to.predicted += from.predicted;
}
