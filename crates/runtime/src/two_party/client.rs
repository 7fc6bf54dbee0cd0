//! The client: owns the inputs and the secret key, holds one share of everything between.

use super::batch;
use super::coefficients;
use super::cost::{self, Account, Layers};
use super::handshake;
use super::layer_error;
use super::meter::{Metered, Waited};
use super::nonlinear;
use super::plan::{Kind, Method, Stage, TwoPartyPlan};
use super::shares::Shares;
use super::slots;
use super::spec::Reveal;
use super::stored::Folder;
use super::trace::{Gauge, Phase, TwoPartyTrace};
use crate::client_aided::client::OnProgress;
use crate::client_aided::{inputs, Input, Output};
use crate::compute::Compute;
use crate::error::{Error, TransportError};
use crate::plan::{self, PlanOptions, Port, TensorKind};
use crate::program::{self, Data, InputView, Monitor, RangeError, RowMut, Slot, Storage, Values};
use crate::trace::Progress;
use hushnet_layers::cheetah::CheetahClient;
use hushnet_mpc::{self as mpc, Channel, OtKind, Party, Session};
use hushnet_ring::Prg;
use hushnet_rlwe::batch_shares::ShareKey;
use hushnet_rlwe::packed::PackedClient;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Elements of the largest tensor of a group, from which more images at once save no rounds worth having.
const GROUP_ELEMENTS: usize = 1 << 19;
/// Most images at once.
pub const MAX_GROUP: usize = 1 << 12;

/// How a client works.
#[derive(Clone, Debug, Default)]
pub struct TwoPartyOptions {
    /// How strictly the server's plan is read.
    pub plan: PlanOptions,
    /// The OT extension; by default the one that sends least for the first group of images.
    pub ot: Option<OtKind>,
    /// Images that run through the stages together; by default as many as share rounds at no great memory.
    pub group: Option<usize>,
    /// Images that will come, as far as known: what the OT extension is chosen for.
    pub expected_images: Option<usize>,
    /// Where the linear layers run.
    pub compute: Compute,
    /// A folder that set-ups of rotation-free layers are kept in between sessions; `None`: every session receives them.
    pub setups: Option<PathBuf>,
}

/// An open session with a server. Serves many images.
pub struct TwoPartyClient {
    /// `None` after an error or the end: the channel is closed.
    session: Option<Session>,
    waited: Waited,
    plan: TwoPartyPlan,
    options: TwoPartyOptions,
    layers: Layers,
    key: PackedClient,
    batch: Option<ShareKey>,
    coefficients: coefficients::client::ClientState,
    slots: slots::client::ClientState,
    account: Account,
    kind: OtKind,
    setup: Phase,
}

/// One group of images in work.
struct Group<'a> {
    values: Values<'a>,
    monitor: Monitor,
    shares: Shares,
    seeds: Vec<[u8; 32]>,
}

impl TwoPartyClient {
    /// Receives the plan over the channel itself, and opens a session: the peer is [`super::TwoPartyModel::serve_plain`].
    ///
    /// # Errors
    /// [`Error`]: transport, protocol, or a plan that this client refuses.
    pub fn open(mut channel: Box<dyn Channel>, options: TwoPartyOptions) -> Result<Self, Error> {
        let limits = &options.plan.limits;
        let file =
            handshake::recv_plan(channel.as_mut(), limits.file_bytes.min(2 * limits.json_bytes + (1 << 20)))?;
        let plan = TwoPartyPlan::from_bytes(&file, &options.plan)?;
        Self::with_plan(channel, plan, options)
    }

    /// Opens a session with a server whose public plan is known: the peer is [`super::TwoPartyModel::serve`].
    ///
    /// # Errors
    /// [`Error`]: transport or protocol.
    pub fn with_plan(
        channel: Box<dyn Channel>,
        plan: TwoPartyPlan,
        options: TwoPartyOptions,
    ) -> Result<Self, Error> {
        let layers = options.compute.run(|| Layers::new(&plan))?;
        let group = group_size(&plan, &options, options.expected_images.unwrap_or(1));
        let kind = options.ot.unwrap_or_else(|| cost::choose(&plan, &layers, group));
        let (mut channel, waited) = Metered::new(channel);
        let gauge = Gauge::start(Party::One, &waited, channel.stats());
        let digest = handshake::plan_digest(&plan)?;
        let folder = options.setups.as_deref().map(|path| Folder::open(path, &digest)).transpose()?;
        handshake::send_hello(&mut channel, kind, &digest)?;
        let mut session = Session::new(Box::new(channel), Party::One, kind)?;
        let mut prg = Prg::from_os()?;
        session.set_threads(options.compute.threads());
        let key = PackedClient::generate(&layers.context, &mut prg)?;
        let seed = random()?;
        let public = key.public_key(&seed, &mut prg)?;
        handshake::send_key(session.channel(), &seed, &public)?;
        let batch = layers.batch.send_key(session.channel(), &mut prg)?;
        let slots = layers.slots.open(session.channel(), &options.compute, &mut prg)?;
        let coefficients =
            layers.coefficients.open(session.channel(), &options.compute, &mut prg, folder.as_ref())?;
        let mut account = Account::new(plan.ring_degree(), kind);
        let mut setup = Phase::default();
        gauge.stop(session.stats(), account.setup(&layers, coefficients.held), &mut setup);
        let session = Some(session);
        Ok(Self {
            session,
            waited,
            plan,
            options,
            layers,
            key,
            batch,
            coefficients,
            slots,
            account,
            kind,
            setup,
        })
    }

    /// The server's plan.
    #[must_use]
    pub fn plan(&self) -> &TwoPartyPlan {
        &self.plan
    }

    /// The OT extension.
    #[must_use]
    pub fn ot(&self) -> OtKind {
        self.kind
    }

    /// Whether the session can serve more images.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.session.is_some()
    }

    /// Runs the network on any number of images. Outputs come in the order of the plan.
    ///
    /// # Errors
    /// [`Error::Input`] leaves the session open; every other error closes it.
    pub fn infer(
        &mut self,
        inputs: &[Input<'_>],
        progress: &mut OnProgress<'_>,
    ) -> Result<(Vec<Output>, TwoPartyTrace), Error> {
        let mut session = self.session.take().ok_or(TransportError::Closed)?;
        let plan = self.plan.clone();
        let (inputs, images) = match inputs::check(plan.client(), inputs) {
            Ok(checked) => checked,
            Err(e) => {
                self.session = Some(session);
                return Err(e.into());
            }
        };
        let result = self.run(&mut session, &plan, &inputs, images, progress)?;
        self.session = Some(session);
        Ok(result)
    }

    /// Closes the session.
    ///
    /// # Errors
    /// [`Error::Transport`] when the server is gone already.
    pub fn close(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        match self.session.take() {
            Some(mut session) => handshake::send_begin(session.channel(), &[]),
            None => Ok(()),
        }
    }

    fn run(
        &mut self,
        session: &mut Session,
        plan: &TwoPartyPlan,
        inputs: &[&Input<'_>],
        images: usize,
        progress: &mut OnProgress<'_>,
    ) -> Result<(Vec<Output>, TwoPartyTrace), Error> {
        let tiles = |i: usize| {
            self.layers.linear[i].as_ref().map_or_else(
                || {
                    self.layers.batch.tiles(i)
                        + self.layers.coefficients.tiles(i)
                        + self.layers.slots.tiles(i)
                },
                CheetahClient::tiles,
            )
        };
        let mut trace =
            TwoPartyTrace::new(plan, Party::One, self.kind, self.options.compute.threads(), tiles);
        trace.setup = self.setup;
        let size = group_size(plan, &self.options, images);
        let groups = images.div_ceil(size);
        let shape = |port: &Port| [&[images], plan.tensors()[port.tensor].shape.as_slice()].concat();
        let room = |port: &Port| vec![0.0; images * plan.tensors()[port.tensor].elements];
        let mut outputs: Vec<Output> = plan
            .outputs()
            .iter()
            .map(|p| Output { name: p.name.clone(), shape: shape(p), data: room(p) })
            .collect();
        for group in 0..groups {
            let first = group * size;
            let count = size.min(images - first);
            let mut work = Group {
                values: Values::new(plan.tensors().len(), count, first),
                monitor: Monitor::new(plan.tensors().len()),
                shares: Shares::new(plan, count),
                seeds: (0..count).map(|_| random()).collect::<Result<_, _>>()?,
            };
            for (port, input) in plan.inputs().iter().zip(inputs) {
                let features = plan.tensors()[port.tensor].elements;
                work.values.slots[port.tensor] = Slot::Input(InputView { data: input.data, first, features });
            }
            let gauge = Gauge::start(Party::One, &self.waited, session.stats());
            handshake::send_begin(session.channel(), &work.seeds)?;
            let mut predicted = self.account.begin(count);
            for (index, stage) in plan.stages().iter().enumerate() {
                let tiles = trace.stages[index].tiles * count;
                let p = Progress {
                    block: group,
                    blocks: groups,
                    stage: index,
                    stages: plan.stages().len(),
                    name: &stage.name,
                    tile: 0,
                    tiles,
                };
                if progress(&p).is_break() {
                    return Err(Error::Cancelled);
                }
                let own = Gauge::start(Party::One, &self.waited, session.stats());
                self.stage(session, plan, (index, stage), &mut work)?;
                let expected = self.account.stage(plan, &self.layers, index, count);
                own.stop(session.stats(), expected, &mut trace.stages[index].phase);
                predicted += expected;
            }
            gauge.stop(session.stats(), predicted, &mut trace.total);
            for (port, output) in plan.outputs().iter().zip(&mut outputs) {
                let size = plan.tensors()[port.tensor].elements;
                let part = &mut output.data[first * size..(first + count) * size];
                program::read_output(plan.tensors(), port.tensor, &work.values, part);
            }
        }
        (trace.images, trace.groups) = (images, groups);
        trace.finish();
        Ok((outputs, trace))
    }

    fn stage(
        &self,
        session: &mut Session,
        plan: &TwoPartyPlan,
        (index, stage): (usize, &Stage),
        work: &mut Group<'_>,
    ) -> Result<(), Error> {
        match (&stage.kind, stage.inputs.first(), stage.output) {
            (Kind::Client(at), ..) => {
                if let plan::Stage::Client(client) = &plan.client().stages()[*at] {
                    let (values, monitor) = (&mut work.values, &work.monitor);
                    self.options
                        .compute
                        .run(|| program::run_client(plan.client(), (*at, client), 0, values, monitor))?;
                }
            }
            (Kind::Share, Some(&input), Some(output)) => {
                let share = share(plan, &work.values, input)?;
                work.shares.put(output, share);
            }
            (Kind::Linear(l), Some(&input), Some(output)) if l.method == Method::Batch => {
                let key = self.batch.as_ref().ok_or_else(|| Error::Internal("no key for batches".into()))?;
                let (share, seeds) = (work.shares.get(input)?, &work.seeds);
                let job = batch::Job { index, share, seeds, compute: &self.options.compute };
                let own = self.layers.batch.ask(session.channel(), key, &job)?;
                work.shares.put(output, own);
            }
            (Kind::Linear(l), Some(&input), Some(output)) if l.method.slotted() => {
                let (share, images) = (work.shares.get(input)?, work.seeds.len());
                let job = slots::Job { index, share, images, compute: &self.options.compute };
                let own = self.layers.slots.ask(session, &self.slots, &job)?;
                work.shares.put(output, own);
            }
            (Kind::Linear(l), Some(&input), Some(output)) if l.method != Method::Cheetah => {
                let (share, seeds) = (work.shares.get(input)?, &work.seeds);
                let job = coefficients::Job { index, share, seeds, compute: &self.options.compute };
                let own = self.layers.coefficients.ask(session.channel(), &self.coefficients, &job)?;
                work.shares.put(output, own);
            }
            (Kind::Linear(_), Some(&input), Some(output)) => {
                let own = self.linear(session, plan, index, work.shares.get(input)?, &work.seeds)?;
                work.shares.put(output, own);
            }
            (Kind::Reveal(what), Some(&input), Some(output)) => {
                let opened =
                    open(session, plan, (stage, *what), work.shares.get(input)?, work.shares.images())?;
                let data = reveal(plan, stage, &opened, output, &work.values)?;
                work.values.put(output, data);
            }
            _ => work.shares.run(session, plan, stage)?,
        }
        work.shares.free(&stage.free);
        Ok(())
    }

    /// Sends every tile's request, then reads the answers: the server computes a tile while the next ones are on their way.
    fn linear(
        &self,
        session: &mut Session,
        plan: &TwoPartyPlan,
        index: usize,
        share: &[u64],
        seeds: &[[u8; 32]],
    ) -> Result<Vec<u64>, Error> {
        let layer = self.layers.linear[index]
            .as_ref()
            .ok_or_else(|| Error::Internal("a linear stage has no places".into()))?;
        let stage = &plan.stages()[index];
        let elements = |t: Option<usize>| t.map_or(0, |t| plan.tensors()[t].elements);
        let (inputs, outputs) = (elements(stage.inputs.first().copied()), elements(stage.output));
        let (compute, key) = (&self.options.compute, &self.key);
        for (seed, share) in seeds.iter().zip(share.chunks_exact(inputs)) {
            for tile in 0..layer.tiles() {
                let request = compute
                    .run(|| layer.request(key, seed, index as u32, tile, share))
                    .map_err(layer_error)?;
                session.channel().send(&request)?;
                session.channel().flush()?;
            }
        }
        let mut own = vec![0; outputs * seeds.len()];
        let mut answer = Vec::new();
        for own in own.chunks_exact_mut(outputs) {
            for tile in 0..layer.tiles() {
                answer.resize(layer.answer_len(tile), 0);
                session.channel().recv(&mut answer)?;
                compute.run(|| layer.open(key, tile, &answer, own)).map_err(layer_error)?;
            }
        }
        Ok(own)
    }
}

impl Drop for TwoPartyClient {
    fn drop(&mut self) {
        // A server that is gone needs no goodbye.
        let _ = self.end();
    }
}

fn random() -> Result<[u8; 32], Error> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|e| Error::Internal(format!("no randomness: {e}")))?;
    Ok(seed)
}

fn group_size(plan: &TwoPartyPlan, options: &TwoPartyOptions, images: usize) -> usize {
    let fits = (GROUP_ELEMENTS / plan.peak_elements().max(1)).max(1);
    let fits = if plan.has_batch() { batch::group(plan) } else { fits };
    options.group.unwrap_or(fits).min(images).clamp(1, MAX_GROUP)
}

/// The client's share of a tensor of its own: the value itself.
fn share(plan: &TwoPartyPlan, values: &Values<'_>, tensor: usize) -> Result<Vec<u64>, Error> {
    let (ring, elements, images) = (plan.ring(), plan.tensors()[tensor].elements, values.images);
    let data =
        values.data(tensor).ok_or_else(|| Error::Internal("a fixed tensor was freed too early".into()))?;
    let mut rows = Zeroizing::new(vec![0i64; elements * images]);
    data.read_fixed(0, &mut rows);
    let mut out = vec![0; rows.len()];
    for (feature, row) in rows.chunks_exact(images).enumerate() {
        for (image, v) in row.iter().enumerate() {
            out[image * elements + feature] = ring.encode(*v);
        }
    }
    Ok(out)
}

/// Opens a tensor, or the index of its largest element, to the client.
fn open(
    session: &mut Session,
    plan: &TwoPartyPlan,
    (stage, what): (&Stage, Reveal),
    share: &[u64],
    images: usize,
) -> Result<Vec<i64>, Error> {
    let ring = plan.ring();
    let fail = || Error::Internal("nothing was opened".into());
    match what {
        Reveal::Output => {
            let opened = Zeroizing::new(mpc::reveal(session, share, ring, Party::One)?.ok_or_else(fail)?);
            Ok(opened.iter().map(|v| ring.signed(*v)).collect())
        }
        Reveal::Argmax => {
            let classes = share.len() / images;
            let index = nonlinear::argmax(session, stage, share, classes, ring)?;
            let opened =
                mpc::reveal(session, &index, mpc::index_ring(classes)?, Party::One)?.ok_or_else(fail)?;
            Ok(opened.iter().map(|v| *v as i64).collect())
        }
    }
}

/// Opened integers [image][element] as a fixed tensor of the interpreter.
fn reveal(
    plan: &TwoPartyPlan,
    stage: &Stage,
    opened: &[i64],
    tensor: usize,
    values: &Values<'_>,
) -> Result<Data, Error> {
    let (t, images) = (&plan.tensors()[tensor], values.images);
    let (scale, bound) = match t.kind {
        TensorKind::Fixed { scale, bound } => (scale, bound),
        TensorKind::Real => (1.0, u64::MAX),
    };
    if let Some(at) = opened.iter().position(|v| v.unsigned_abs() > bound) {
        return Err(RangeError {
            stage: stage.name.clone(),
            tensor: t.name.clone(),
            image: values.first + at / t.elements,
            element: at % t.elements,
            value: opened[at] as f64 * scale,
            bound: Some(bound as f64 * scale),
        }
        .into());
    }
    let mut data = Data::new(Storage::of(t), opened.len());
    let mut row = vec![0; images];
    for (feature, mut out) in data.rows_mut(images).enumerate() {
        let out: &mut RowMut<'_> = &mut out;
        for (image, v) in row.iter_mut().enumerate() {
            *v = opened[image * t.elements + feature];
        }
        out.write_fixed(0, &row);
    }
    Ok(data)
}
