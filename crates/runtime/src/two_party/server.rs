//! The server: owns the weights, holds one share of everything between; sees shapes only. No secret key type is known here.

use super::cost::{Account, PhaseCost};
use super::handshake::{self, Begin, Task};
use super::memory;
use super::meter::{Metered, Waited};
use super::methods::{Job, Layers, Preparing, ServerHalf, ServerSession, Shape};
use super::nonlinear;
use super::plan::{Kind, Stage, TwoPartyPlan};
use super::prepared::{KeptPreparation, PreparationStore};
use super::shares::Shares;
use super::trace::{Gauge, Phase, TwoPartyTrace};
use super::units::server::UnitStore;
use super::units::{self, Claim, Contents, WordModel};
use crate::channel::Reserve;
use crate::compute::Compute;
use crate::error::Error;
use crate::pending::{Pending, Preparation};
use crate::plan::spec::Reveal;
use crate::plan::{self, PlanError};
use crate::session::server::{SessionEvent, SessionMemory};
use crate::tally;
use hushnet_mpc::{self as mpc, Channel, Party, Session};
use hushnet_ring::Prg;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// Bytes of shares that one session may hold, from which the largest group of images follows.
const SESSION_BYTES: usize = 1 << 30;
/// Bytes of weights in evaluation form that a server keeps by default: 4 GiB, which hold nearly all of ResNet-50's at 224 pixels.
pub const DEFAULT_WEIGHT_BYTES: usize = match 1usize.checked_shl(32) {
    Some(bytes) => bytes,
    None => usize::MAX,
};
const BYTES_PER_ELEMENT: usize = memory::BYTES_PER_ELEMENT as usize;
/// Bytes of the largest message of a protocol for each element, that travels while the peer's does.
const WAITING_PER_ELEMENT: usize = 16;
/// Bytes that wait beside what grows with the network: the OT extension's own messages.
const WAITING_BYTES: u64 = 64 << 20;
/// Bytes that may wait between two groups: what opens a session, and what announces a group.
pub(super) const BETWEEN_BLOCKS: u64 = 1 << 20;
/// Bytes of a session with every network: its thread, buffers of its channel, tables of kernels.
const OWN_BYTES: u64 = 6 << 20;

/// A plan prepared for serving: weights in evaluation form, shared by all sessions.
pub struct TwoPartyModel {
    plan: TwoPartyPlan,
    layers: Layers,
    /// Weights, by family.
    weights: Pending<Vec<Arc<dyn ServerHalf>>>,
    /// What set-ups follow from, where clients keep some.
    preparation: Option<KeptPreparation>,
    public: Vec<u8>,
    digest: [u8; 32],
    compute: Compute,
    contents: Contents,
    /// What prepared inferences multiply with, made when the first store of them is given.
    words: OnceLock<WordModel>,
}

/// A group of images at the server.
struct Served<'a> {
    seeds: &'a [[u8; 32]],
    /// The server's halves of the units that it spends; empty: it runs as it is.
    units: &'a [units::Half],
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

    /// As [`Self::new`], with so many bytes for weights in evaluation form. Layers that gain most a byte come first; the weights of the
    /// others are transformed as they are needed.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_memory(plan: &TwoPartyPlan, compute: Compute, weight_bytes: usize) -> Result<Self, Error> {
        let model = Self::announced(plan, compute, None)?;
        model.fill(weight_bytes)?;
        Ok(model)
    }

    /// The model without its weights: [`Self::fill`] prepares them, and sessions wait for it.
    ///
    /// # Errors
    /// [`Error::Plan`] when the plan is a public part; [`Error::Store`] when the folder of preparations cannot be used.
    pub(crate) fn announced(
        plan: &TwoPartyPlan,
        compute: Compute,
        store: Option<&PreparationStore>,
    ) -> Result<Self, Error> {
        let structure = |detail: &str| Error::Plan(PlanError::Structure(detail.into()));
        if !plan.has_weights() {
            return Err(structure("this is the public part of a plan, without weights; serve the file that `hushnet compile` wrote"));
        }
        let layers = compute.run(|| Layers::new(plan))?;
        let kept = || store.map_or_else(KeptPreparation::fresh, |store| KeptPreparation::of(plan, store));
        let preparation = plan.sets_up().then(kept).transpose()?;
        let json = plan.served_json(preparation.as_ref().map(KeptPreparation::name).as_deref())?;
        let (public, digest) = (plan::encode(&json, &BTreeMap::new())?, handshake::digest(&json));
        let (plan, weights, contents) = (plan.clone(), Pending::new(), Contents::new(plan, &layers));
        let words = OnceLock::new();
        Ok(Self { plan, layers, weights, preparation, public, digest, compute, contents, words })
    }

    /// Prepares the weights, once, with so many bytes for those in evaluation form.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn fill(&self, weight_bytes: usize) -> Result<(), Error> {
        tally::prepared();
        let Self { plan, layers, .. } = self;
        let keep = layers.kept(plan.stages().len(), weight_bytes);
        let kept = self.preparation.as_ref();
        let randomness = |stage: usize| match kept {
            Some(kept) => Ok(kept.generator(stage)),
            None => Ok(Prg::from_os()?),
        };
        let preparing = Preparing { plan, keep: &keep, plan_digest: &self.digest, randomness: &randomness };
        let prepare = || layers.families().iter().map(|f| f.clone().prepare(&preparing));
        self.weights.fill(|| self.compute.run(|| prepare().collect::<Result<_, Error>>()))
    }

    /// Waits for the weights.
    pub(crate) fn prepared(&self) -> Result<(), Error> {
        self.weights.get().map(drop)
    }

    /// How far the weights are.
    pub(super) fn preparation(&self) -> &Preparation {
        self.weights.preparation()
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

    /// Bytes of weights, prepared and streamed; 0 as long as they are not prepared.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        self.weights.now().into_iter().flatten().map(|w| w.weight_bytes()).sum()
    }

    /// What one session may hold beside the weights: from its slot on a client's keys and ciphertexts in work; from its first work on its
    /// oblivious transfers; in a group, shares and protocols, and what waits to be read.
    #[must_use]
    pub fn session_memory(&self) -> SessionMemory {
        SessionMemory {
            session: (OWN_BYTES + BETWEEN_BLOCKS).saturating_add(self.layers.working_bytes()),
            set_up: handshake::KINDS.iter().map(|kind| kind.held_bytes()).max().unwrap_or(0),
            block: self
                .group_bytes(self.largest_group())
                .saturating_add(self.queue_bytes(self.largest_group())),
        }
    }

    /// Bytes of shares and protocols of a group of so many images.
    fn group_bytes(&self, images: usize) -> u64 {
        let shares = (self.plan.peak_elements() as u64).saturating_mul(BYTES_PER_ELEMENT as u64);
        let (plan, ring) = (&self.plan, self.plan.ring());
        let protocols = memory::protocols(plan.stages(), plan.tensors(), ring).map(|(_, bytes)| bytes).max();
        shares.max(protocols.unwrap_or(0)).saturating_mul(images as u64)
    }

    /// Bytes that an honest client may have on their way at once in a group of so many images (all requests of a stage, or one message of a
    /// protocol): a server that keeps so many never makes a client wait for it while it waits for the client.
    #[must_use]
    pub fn queue_bytes(&self, images: usize) -> u64 {
        let requests = |shape: &dyn Shape| shape.tiles() * shape.request_len();
        let requests = self.layers.shapes().map(|(_, shape)| requests(shape)).max().unwrap_or(0);
        let message = WAITING_PER_ELEMENT.saturating_mul(self.plan.peak_elements());
        let image = (requests as u64).saturating_add(message as u64);
        image.saturating_mul(images as u64).saturating_add(WAITING_BYTES)
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

    /// [`Self::serve_plain`], with a store of prepared inferences.
    ///
    /// # Errors
    /// As [`Self::serve`]; [`crate::UnitError`] for units that are not there, or have no room.
    pub fn serve_units(
        &self,
        mut channel: Box<dyn Channel>,
        units: &UnitStore,
        on_event: &mut dyn FnMut(SessionEvent),
    ) -> Result<TwoPartyTrace, Error> {
        handshake::send_plan(channel.as_mut(), &self.public)?;
        self.serve_within(channel, Some(units), &mut |_| Ok(()), on_event)
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
        self.serve_within(channel, None, &mut |_| Ok(()), on_event)
    }

    /// [`Self::serve`], with a store of prepared inferences, which asks for memory before it takes it.
    pub(super) fn serve_within(
        &self,
        channel: Box<dyn Channel>,
        units: Option<&UnitStore>,
        reserve: &mut dyn FnMut(Reserve) -> Result<(), Error>,
        on_event: &mut dyn FnMut(SessionEvent),
    ) -> Result<TwoPartyTrace, Error> {
        let (mut channel, waited) = Metered::new(channel);
        let gauge = Gauge::start(Party::Zero, &waited, channel.stats());
        let kind = handshake::recv_hello(&mut channel, &self.digest)?;
        let tiles = |i: usize| self.layers.tiles(i);
        let mut trace = TwoPartyTrace::new(&self.plan, Party::Zero, kind, self.compute.threads(), tiles);
        let mut session = Session::new(Box::new(channel), Party::Zero, kind)?;
        reserve(Reserve::SetUp(kind.held_bytes()))?;
        session.set_threads(self.compute.threads());
        let accept = |w: &Arc<dyn ServerHalf>| w.clone().accept(session.channel(), &self.compute);
        // The client makes its keys meanwhile, and they wait to be read.
        reserve(Reserve::Weights)?;
        let keys = self.weights.get()?.iter().map(accept).collect::<Result<Vec<_>, Error>>()?;
        let held: Vec<usize> = keys.iter().map(|k| k.held()).collect();
        let mut account = Account::new(kind);
        gauge.stop(session.stats(), account.setup(&self.layers, &held), &mut trace.setup);
        let most = units.filter(|_| self.contents.parts.bytes() > 0).map(|_| self.contents.most());
        loop {
            let gauge = Gauge::start(Party::Zero, &waited, session.stats());
            let begin = handshake::recv_begin(session.channel(), self.largest_group(), most)?;
            if matches!(begin, Begin::End) {
                break;
            }
            let (task, seeds) = (begin.task(), begin.seeds());
            let images = seeds.len();
            let mut phase = Phase::default();
            gauge.stop(session.stats(), account.begin(task, images), &mut phase);
            // The time between two groups is the client's own.
            (phase.seconds, phase.waiting) = (0.0, 0.0);
            on_event(SessionEvent::Begin);
            // What it sends in the whole group is known exactly, and less than the most that may wait where a group is small.
            let waiting = self.queue_bytes(images).min(account.group_up(
                &self.plan,
                &self.layers,
                &self.contents.pads,
                images,
            ));
            let held = if task == Task::Infer { 0 } else { self.unit_bytes(images) };
            let bytes = self.group_bytes(images).saturating_add(waiting).saturating_add(held);
            reserve(Reserve::Block { bytes, waiting })?;
            if let (Begin::Prepare(claim), Some(store)) = (&begin, units) {
                let gauge = Gauge::start(Party::Zero, &waited, session.stats());
                let predicted = self.prepare_units(&mut session, &keys, (store, claim), &mut account)?;
                gauge.stop(session.stats(), predicted, &mut phase);
                trace.offline.get_or_insert_default().add(&phase);
                trace.units += images;
                on_event(SessionEvent::Block { images: 0 });
                continue;
            }
            let mut spent = match (&begin, units) {
                // Gone from the folder before anything of this group is sent.
                (Begin::Prepared(claim), Some(store)) => {
                    store.take(claim, &self.words()?.digest, &self.contents)?
                }
                _ => Vec::new(),
            };
            if task == Task::Prepared {
                let pads = spent.iter_mut().map(|half| std::mem::take(&mut half.pads)).collect();
                session.supply(&self.contents.pads, pads)?;
            }
            trace.total.add(&phase);
            let group = Served { seeds: &seeds, units: &spent };
            self.group(&mut session, &keys, &group, &waited, &mut account, &mut trace)?;
            session.withdraw();
            trace.images += images;
            trace.groups += 1;
            on_event(SessionEvent::Block { images: images as u64 });
        }
        trace.finish();
        Ok(trace)
    }

    /// What prepared inferences multiply with, made at the first call.
    fn words(&self) -> Result<&WordModel, Error> {
        if let Some(words) = self.words.get() {
            return Ok(words);
        }
        let made = self.compute.run(|| WordModel::new(&self.plan, &self.contents.parts))?;
        Ok(self.words.get_or_init(|| made))
    }

    /// Bytes of the halves of so many units, of the one that is written, and of the products with it.
    pub(super) fn unit_bytes(&self, units: usize) -> u64 {
        let halves = self.contents.bytes(Party::Zero).saturating_mul(units as u64 + 1);
        halves.saturating_add(units::working_bytes(&self.plan, self.compute.threads()))
    }

    /// Most units that a client may prepare together; 0 where nothing can be prepared.
    pub(super) fn most_units(&self) -> usize {
        if self.contents.parts.bytes() == 0 {
            return 0;
        }
        self.contents.most()
    }

    /// Prepares the units of a claim: the ordinary protocol of every layer, on the client's r and a share of zero.
    fn prepare_units(
        &self,
        session: &mut Session,
        keys: &Keys,
        (store, claim): (&UnitStore, &Claim),
        account: &mut Account,
    ) -> Result<PhaseCost, Error> {
        let digest = self.words()?.digest;
        // Room first: what does not fit is refused before it is computed.
        let making = store.begin(claim, &digest, &self.contents)?;
        let seeds: Vec<[u8; 32]> = claim.units.iter().map(|u| u.seed).collect();
        let parts = &self.contents.parts;
        let mut made: Vec<units::Half> = seeds.iter().map(|_| units::Half::new(parts)).collect();
        let mut predicted = PhaseCost::default();
        for part in parts.iter() {
            let zeros = vec![0; self.plan.tensors()[part.input].elements * seeds.len()];
            let job = Job { stage: part.stage, share: &zeros, seeds: &seeds, compute: &self.compute };
            let own = Zeroizing::new(self.layers.half(keys, part.stage)?.answer(session, &job)?);
            parts.store(part, &own, made.iter_mut())?;
            predicted += account.stage(&self.plan, &self.layers, part.stage, seeds.len());
        }
        for half in &mut made {
            half.pads = session.make_pads(&self.contents.pads)?;
        }
        for (making, half) in making.into_iter().zip(&made) {
            store.finish(making, half)?;
        }
        session.channel().send(&[1])?;
        session.channel().flush()?;
        predicted += account.end(Task::Prepare, &self.contents.pads, made.len());
        Ok(predicted)
    }

    fn prepared_stage(
        &self,
        session: &mut Session,
        part: &units::Part,
        spent: &[units::Half],
        shares: &mut Shares,
    ) -> Result<Vec<u64>, Error> {
        self.words()?.answer(session, (&self.plan, &self.compute, &self.contents.parts), part, spent, shares)
    }

    fn group(
        &self,
        session: &mut Session,
        keys: &Keys,
        group: &Served<'_>,
        waited: &Waited,
        account: &mut Account,
        trace: &mut TwoPartyTrace,
    ) -> Result<(), Error> {
        let seeds = group.seeds;
        let mut shares = Shares::new(&self.plan, seeds.len());
        for (index, stage) in self.plan.stages().iter().enumerate() {
            let gauge = Gauge::start(Party::Zero, waited, session.stats());
            self.stage(session, keys, (index, stage), group, &mut shares)?;
            for (ots, speaker) in account.ahead(&self.plan, &self.layers, index, seeds.len()) {
                session.ensure_from(ots, speaker)?;
            }
            let mut phase = Phase::default();
            gauge.stop(
                session.stats(),
                account.stage(&self.plan, &self.layers, index, seeds.len()),
                &mut phase,
            );
            trace.stages[index].phase.add(&phase);
            trace.total.add(&phase);
        }
        Ok(())
    }

    fn stage(
        &self,
        session: &mut Session,
        keys: &Keys,
        (index, stage): (usize, &Stage),
        group: &Served<'_>,
        shares: &mut Shares,
    ) -> Result<(), Error> {
        let seeds = group.seeds;
        let elements = |t: usize| self.plan.tensors()[t].elements;
        match (&stage.kind, stage.inputs.first(), stage.output) {
            (Kind::Client(_), ..) => {}
            (Kind::Share, _, Some(output)) => shares.put(output, vec![0; elements(output) * seeds.len()]),
            (Kind::Linear(_), Some(&input), Some(output)) => {
                if let Some(part) = self.contents.parts.of(index).filter(|_| !group.units.is_empty()) {
                    let own = self.prepared_stage(session, part, group.units, shares)?;
                    shares.put(output, own);
                    shares.free(&stage.free);
                    return Ok(());
                }
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
