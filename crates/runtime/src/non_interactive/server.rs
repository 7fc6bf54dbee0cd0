//! The server: owns the weights, sees ciphertexts and shapes only. No secret key type is known here.

use super::engine::server::{self as engine, ServerEngine};
use super::engine::{EvaluationKeys, KeysNeeded};
use super::key_store::KeyStore;
use super::messages::{self, fits, KeyFrame, KeyKind, Parcel};
use super::plan::{Link, NonInteractivePlan};
use crate::channel::{send_failure, Channel, Reserve, Traffic};
use crate::compute::Compute;
use crate::error::{Error, ProtocolError};
use crate::pending::{Pending, Preparation};
use crate::plan::PlanError;
use crate::session::server::{welcome, Served, SessionEvent, SessionMemory};
use crate::tally;
use crate::trace::{Counted, ServerTrace};
use crate::wire::{Block, Frame, FrameBuilder, Keys, Kind, HEADER};
use hushnet_ring::clock::Instant;
use hushnet_ring::Prg;
use hushnet_rlwe::ckks::bootstrap::Encapsulation;
use hushnet_rlwe::ckks::{Ciphertext, CkksError, CkksParams, GaloisKeys, PublicKey, RelinKey};
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A plan prepared for serving, shared by all sessions.
pub struct NonInteractiveModel {
    plan: NonInteractivePlan,
    engine: Pending<Box<dyn ServerEngine>>,
    public: Frame,
    compute: Compute,
}

/// Bytes of a session with every network: its thread, buffers of its connection.
const OWN_BYTES: u64 = 4 << 20;

/// The keys that a client has sent, or named.
#[derive(Default)]
struct Received {
    evaluation: EvaluationKeys,
    public: Option<PublicKey>,
}

/// A prepared plan with a store of its clients' evaluation keys.
pub struct KeepingKeys {
    model: Arc<NonInteractiveModel>,
    store: Arc<KeyStore>,
}

impl KeepingKeys {
    /// The plan, and the store, which plans may share.
    #[must_use]
    pub fn new(model: Arc<NonInteractiveModel>, store: Arc<KeyStore>) -> Self {
        Self { model, store }
    }
}

/// What came, where the peer's bytes may be the cause.
pub(super) fn peer_bytes(what: &'static str, e: CkksError) -> Error {
    match e {
        CkksError::Bytes { .. }
        | CkksError::ForeignParams(_)
        | CkksError::ForeignSecret(_)
        | CkksError::Level { .. }
        | CkksError::BadScale
        | CkksError::Capacity { .. } => ProtocolError::Message { kind: what, detail: e.to_string() }.into(),
        other => other.into(),
    }
}

/// Reads the ciphertexts of a frame of exactly known length.
pub(super) fn read_parcel(
    params: &CkksParams,
    link: &Link,
    parcel: &Parcel,
    fresh: bool,
    payload: &[u8],
) -> Result<Vec<Ciphertext>, Error> {
    let what = if fresh { "Request" } else { "Response" };
    payload
        .par_chunks(parcel.bytes)
        .map(|bytes| {
            let c = Ciphertext::from_bytes(params, bytes).map_err(|e| peer_bytes(what, e))?;
            if !fits(&c, link, fresh) {
                let detail = format!(
                    "a ciphertext of stage '{}' has another level, parts, scale or bound than the plan says",
                    link.stage
                );
                return Err(ProtocolError::Message { kind: what, detail }.into());
            }
            Ok(c)
        })
        .collect()
}

/// Writes ciphertexts into a frame.
pub(super) fn write_parcel(
    kind: Kind,
    (stage, tile): (usize, usize),
    parcel: &Parcel,
    ciphertexts: &[Ciphertext],
) -> Result<Frame, Error> {
    let bytes = ciphertexts.len() * parcel.bytes;
    let mut builder = FrameBuilder::reuse(Vec::new(), kind, stage as u32, tile as u32, bytes)?;
    let places = builder.payload_mut().par_chunks_mut(parcel.bytes);
    places.zip(ciphertexts).try_for_each(|(out, c)| c.write_bytes(out))?;
    Ok(builder.finish())
}

impl NonInteractiveModel {
    /// Prepares a plan with weights.
    ///
    /// # Errors
    /// [`Error::Plan`] when the plan is a public part.
    pub fn new(plan: &NonInteractivePlan, compute: Compute) -> Result<Self, Error> {
        let model = Self::announced(plan, compute)?;
        model.fill()?;
        Ok(model)
    }

    /// The model without its weights: [`Self::fill`] prepares them, and sessions wait for it.
    ///
    /// # Errors
    /// [`Error::Plan`] when the plan is a public part.
    pub(crate) fn announced(plan: &NonInteractivePlan, compute: Compute) -> Result<Self, Error> {
        if !plan.has_weights() {
            let detail = "this is the public part of a plan, without weights; serve the file that `hushnet compile` wrote";
            return Err(PlanError::Structure(detail.into()).into());
        }
        let public = FrameBuilder::with_payload(Kind::Plan, &plan.public_part()?)?;
        Ok(Self { public, plan: plan.clone(), engine: Pending::new(), compute })
    }

    /// Prepares the weights, once.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn fill(&self) -> Result<(), Error> {
        tally::prepared();
        self.engine.fill(|| self.compute.run(|| engine::of(&self.plan)))
    }

    /// Waits for the weights.
    pub(crate) fn prepared(&self) -> Result<(), Error> {
        self.engine.get().map(drop)
    }

    /// The checked plan that is served, with its weights.
    #[must_use]
    pub fn plan(&self) -> &NonInteractivePlan {
        &self.plan
    }

    /// The plan file that clients receive.
    #[must_use]
    pub fn public_part(&self) -> &[u8] {
        self.public.payload()
    }

    /// Serves one session to its end. An error has been told to the peer, as far as the peer may know it.
    ///
    /// # Errors
    /// [`Error`]: transport or protocol.
    pub fn serve(
        &self,
        channel: &mut dyn Channel,
        on_event: &mut dyn FnMut(SessionEvent),
    ) -> Result<ServerTrace, Error> {
        self.serve_keeping(channel, on_event, None)
    }

    /// [`Self::serve`] with a store of clients' keys.
    fn serve_keeping(
        &self,
        channel: &mut dyn Channel,
        on_event: &mut dyn FnMut(SessionEvent),
        store: Option<&KeyStore>,
    ) -> Result<ServerTrace, Error> {
        channel.set_limit(messages::largest_frame(&self.plan));
        let stages = self.plan.spec().stages.iter().map(|s| s.name.clone());
        let mut trace = ServerTrace::of(stages.chain(self.plan.steps()));
        trace.counted = Some(Counted::default());
        let result = self.session(channel, on_event, &mut trace, store);
        if let Err(e) = &result {
            send_failure(channel, e);
        }
        let traffic = channel.traffic();
        (trace.bytes_up, trace.bytes_down) = (traffic.received, traffic.sent);
        result.map(|()| trace)
    }

    fn session(
        &self,
        channel: &mut dyn Channel,
        on_event: &mut dyn FnMut(SessionEvent),
        trace: &mut ServerTrace,
        store: Option<&KeyStore>,
    ) -> Result<(), Error> {
        welcome(channel, &self.public)?;
        let Received { evaluation: keys, public } = self.receive_keys(channel, store)?;
        let mut next = 0;
        loop {
            channel.rest(true);
            let frame = channel.recv()?;
            if frame.kind() == Kind::End {
                return Ok(());
            }
            channel.rest(false);
            let block: Block = frame.message(Kind::Block)?;
            if block.index != next || block.images == 0 || block.images as usize > self.plan.block_images() {
                let detail = format!("block {} of {} images", block.index, block.images);
                return Err(ProtocolError::Message { kind: "Block", detail }.into());
            }
            next += 1;
            self.block(channel, (&keys, public.as_ref()), trace)?;
            trace.blocks += 1;
            trace.images += u64::from(block.images);
            on_event(SessionEvent::Block { images: u64::from(block.images) });
        }
    }

    /// The keys of a client: those that it sends, or those of an earlier session that it names.
    fn receive_keys(&self, channel: &mut dyn Channel, store: Option<&KeyStore>) -> Result<Received, Error> {
        let due = messages::keys(self.plan.params(), &KeysNeeded::of(&self.plan));
        let (mut received, mut writing) = (Received::default(), None);
        for (index, key) in due.iter().enumerate() {
            let mut frame = channel.recv()?;
            if index == 0 && frame.kind() == Kind::Keys {
                let named: Keys = frame.message(Kind::Keys)?;
                let detail = || format!("a hash of keys has 32 bytes or none, not {}", named.hash.len());
                let hash = (!named.hash.is_empty()).then(|| <[u8; 32]>::try_from(named.hash.as_slice()));
                let hash = hash
                    .transpose()
                    .map_err(|_| ProtocolError::Message { kind: "Keys", detail: detail() })?;
                let known = match (store, hash) {
                    (Some(store), Some(hash)) => {
                        store.load(&hash, &due, |key, bytes| self.take_key(&mut received, key, bytes))?
                    }
                    _ => false,
                };
                channel.send(FrameBuilder::message(Kind::Keys, &Keys { hash: Vec::new(), known })?)?;
                if known {
                    return Ok(received);
                }
                received = Received::default();
                let bytes = due.iter().map(|k| k.bytes as u64).sum();
                writing = store.and_then(|store| store.begin(bytes));
                frame = channel.recv()?;
            }
            let bytes = frame.expect_payload(Kind::Setup, 0, key.tile, key.bytes)?;
            self.take_key(&mut received, key, bytes)?;
            if let Some(writing) = &mut writing {
                writing.add(key, bytes);
            }
        }
        if let Some(writing) = writing {
            writing.finish();
        }
        Ok(received)
    }

    /// Reads one key, and adds it to the others.
    fn take_key(&self, received: &mut Received, key: &KeyFrame, bytes: &[u8]) -> Result<(), Error> {
        let params = self.plan.params();
        let (wrong, keys) = (|e| peer_bytes("Setup", e), &mut received.evaluation);
        self.compute.run(|| -> Result<(), Error> {
            match key.kind {
                KeyKind::Relin => keys.relin = Some(RelinKey::from_bytes(params, bytes).map_err(wrong)?),
                KeyKind::Public => {
                    received.public = Some(PublicKey::from_bytes(params, bytes).map_err(wrong)?);
                }
                KeyKind::Encapsulation => {
                    let bootstrap = self.plan.packed().and_then(|p| p.interface().bootstrap());
                    let bootstrap = bootstrap.ok_or(CkksError::MissingKey("the bootstrap's pair".into()))?;
                    keys.encapsulation = Some(Encapsulation::from_bytes(bootstrap, bytes).map_err(wrong)?);
                }
                KeyKind::Galois(element, level) => {
                    let one = GaloisKeys::from_bytes(params, bytes).map_err(wrong)?;
                    if one.len() != 1 || one.level_of(element) != Some(level) {
                        let detail = format!("a key for {element:?} at level {} was due", level.get());
                        return Err(ProtocolError::Message { kind: "Setup", detail }.into());
                    }
                    let all = keys.galois.get_or_insert_with(|| GaloisKeys::none(params));
                    all.merge(one).map_err(wrong)?;
                }
            }
            let owners = [
                keys.relin.as_ref().map(RelinKey::owner),
                received.public.as_ref().map(PublicKey::owner),
                keys.encapsulation.as_ref().map(Encapsulation::owner),
                keys.galois.as_ref().map(GaloisKeys::owner),
            ];
            if owners.iter().flatten().collect::<BTreeSet<_>>().len() > 1 {
                return Err(wrong(CkksError::ForeignSecret("a key")));
            }
            Ok(())
        })
    }

    fn block(
        &self,
        channel: &mut dyn Channel,
        (keys, public): (&EvaluationKeys, Option<&PublicKey>),
        trace: &mut ServerTrace,
    ) -> Result<(), Error> {
        let params = self.plan.params();
        let mut inputs = Vec::with_capacity(self.plan.uploads().len());
        for (number, link) in self.plan.uploads().iter().enumerate() {
            let parcel = Parcel::new(params, link, true);
            let mut ciphertexts = Vec::with_capacity(parcel.count);
            for tile in 0..parcel.frames() {
                let frame = channel.recv()?;
                // Memory is for who sends something to work on; once it is there, this asks for nothing.
                channel.reserve(Reserve::Block { bytes: self.plan.peak_bytes(), waiting: 0 })?;
                let payload =
                    frame.expect_payload(Kind::Request, number as u32, tile as u32, parcel.payload(tile))?;
                let start = Instant::now();
                ciphertexts.extend(self.compute.run(|| read_parcel(params, link, &parcel, true, payload))?);
                trace.seconds += start.elapsed().as_secs_f64();
            }
            inputs.push(ciphertexts);
        }
        channel.reserve(Reserve::Weights)?;
        let (engine, start) = (self.engine.get()?, Instant::now());
        let answer = self.compute.run(|| engine.run(keys, inputs, &mut |_, _| ControlFlow::Continue(())))?;
        for (stage, seconds) in self.plan.model().circuit_stages.iter().zip(&answer.seconds) {
            trace.stages[*stage].seconds += seconds;
        }
        let stages = self.plan.spec().stages.len();
        for (step, seconds) in trace.stages[stages..].iter_mut().zip(&answer.steps) {
            step.seconds += seconds;
        }
        *trace.counted.get_or_insert_default() += answer.counted;
        trace.seconds += start.elapsed().as_secs_f64();
        for (number, (link, outputs)) in self.plan.downloads().iter().zip(answer.outputs).enumerate() {
            let start = Instant::now();
            let outputs = self.compute.run(|| self.ready(link, outputs, public))?;
            trace.seconds += start.elapsed().as_secs_f64();
            let parcel = Parcel::new(params, link, false);
            for tile in 0..parcel.frames() {
                let range = parcel.range(tile);
                let frame = self
                    .compute
                    .run(|| write_parcel(Kind::Response, (number, tile), &parcel, &outputs[range]))?;
                debug_assert_eq!(frame.bytes().len(), HEADER + parcel.payload(tile));
                channel.send(frame)?;
            }
        }
        Ok(())
    }

    /// What leaves: hidden where the plan says so, and with the bookkeeping that the public plan states, not that of
    /// the weights.
    fn ready(
        &self,
        link: &Link,
        outputs: Vec<Ciphertext>,
        public: Option<&PublicKey>,
    ) -> Result<Vec<Ciphertext>, Error> {
        let params = self.plan.params();
        let sd = f64::from(link.noise_bits).exp2();
        outputs
            .into_par_iter()
            .map_init(Prg::from_os, |prg, c| {
                let stated =
                    |c: Ciphertext| Ciphertext::from_parts(params, c.into_parts(), link.scale, link.told, sd);
                let Some(bits) = self.plan.flood_bits() else { return Ok(stated(c)?) };
                let prg = prg.as_mut().map_err(|e| Error::Internal(e.to_string()))?;
                let public = public.ok_or_else(|| Error::Internal("no public key".into()))?;
                Ok(stated(public.hide(&c, Some(bits), prg)?)?)
            })
            .collect()
    }
}

impl Served for NonInteractiveModel {
    /// Keys, frames in flight; for a block, of any number of images, its ciphertexts in work.
    fn memory(&self) -> SessionMemory {
        let keys: usize =
            messages::keys(self.plan.params(), &KeysNeeded::of(&self.plan)).iter().map(|k| k.bytes).sum();
        let frames = 8 * self.largest_frame() as u64;
        // Keys are held expanded: both polynomials, in whole words.
        SessionMemory {
            session: (4 * keys as u64).saturating_add(frames).saturating_add(OWN_BYTES),
            set_up: 0,
            block: self.plan.peak_bytes(),
        }
    }

    fn largest_frame(&self) -> usize {
        messages::largest_frame(&self.plan)
    }

    fn preparation(&self) -> Preparation {
        self.engine.preparation().clone()
    }

    fn who_learns_what(&self) -> &'static str {
        if self.plan.flood_bits().is_some() {
            "non-interactive: the server learns shapes only; the client learns its results"
        } else {
            "non-interactive: the server learns shapes only; the client learns its results, and weights may be solved for from ciphertexts (compile with hide_weights)"
        }
    }

    fn insecure(&self) -> bool {
        self.plan.insecure()
    }

    fn session(
        &self,
        mut channel: Box<dyn Channel>,
        on_event: &mut dyn FnMut(SessionEvent),
    ) -> (Result<ServerTrace, Error>, Traffic) {
        let result = self.serve(channel.as_mut(), on_event);
        (result, channel.traffic())
    }
}

impl Served for KeepingKeys {
    fn memory(&self) -> SessionMemory {
        self.model.memory()
    }

    fn largest_frame(&self) -> usize {
        self.model.largest_frame()
    }

    fn preparation(&self) -> Preparation {
        self.model.preparation()
    }

    fn who_learns_what(&self) -> &'static str {
        self.model.who_learns_what()
    }

    fn insecure(&self) -> bool {
        self.model.insecure()
    }

    fn session(
        &self,
        mut channel: Box<dyn Channel>,
        on_event: &mut dyn FnMut(SessionEvent),
    ) -> (Result<ServerTrace, Error>, Traffic) {
        let result = self.model.serve_keeping(channel.as_mut(), on_event, Some(&self.store));
        (result, channel.traffic())
    }
}
