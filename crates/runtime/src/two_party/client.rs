//! The client: owns the inputs and the secret key, holds one share of everything between.

use super::cost::{self, Account};
use super::handshake::{self, Begin, Task};
use super::memory;
use super::meter::{Metered, Waited};
use super::methods::{self, ClientHalf, Job, Layers, Opening};
use super::nonlinear;
use super::plan::{Kind, Stage, TwoPartyPlan};
use super::shares::Shares;
use super::stored::{Folder, Policy};
use super::trace::{Gauge, Phase, TwoPartyTrace};
use super::units::client::{self as unit_client, ClientUnit, UnitCost, UnitFolder};
use super::units::{self, Contents};
use crate::compute::Compute;
use crate::error::{Error, StoreError, TransportError, UnitError};
use crate::io::{self, Input, Marked, OnProgress, Progress};
use crate::plan::spec::Reveal;
use crate::plan::{self, Plan, PlanError, PlanOptions, TensorKind};
use crate::program::{self, Data, Monitor, Overruns, Place, RowMut, Storage, Values};
use crate::session::client::half::Half;
use crate::session::client::ClientSession;
use hushnet_mpc::{self as mpc, Channel, OtKind, Party, Session};
use hushnet_ring::{ledger, Prg};
use hushnet_rlwe::uses;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Elements of the largest tensor of a group, from which more images at once save no rounds worth having.
const GROUP_ELEMENTS: usize = 1 << 19;
/// The largest number of images that run at once.
pub const MAX_GROUP: usize = 1 << 12;

/// How a client works: how strictly it reads plans, the OT extension, groups of images, where it computes.
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
    /// What that folder may take, and for how long.
    pub setups_policy: Policy,
    /// The server's address, as far as known: a folder keeps the set-ups of different servers apart.
    pub server: Option<String>,
    /// A folder of prepared inferences: [`TwoPartyClient::prepare`] adds to it, and every inference spends one for each image; `None`: inferences run as
    /// they are.
    pub units: Option<PathBuf>,
    /// The digest ([`TwoPartyPlan::digest`]) that the public plan must have: with one learnt elsewhere, no server can hand this client a plan
    /// made for it alone.
    pub plan_digest: Option<[u8; 32]>,
}

/// An open session with a server. Serves many images.
pub struct TwoPartyClient {
    /// `None` after an error or the end: the channel is closed.
    session: Option<Session>,
    waited: Waited,
    plan: TwoPartyPlan,
    options: TwoPartyOptions,
    layers: Layers,
    /// Secret keys, by family.
    keys: Vec<Box<dyn ClientHalf>>,
    account: Account,
    kind: OtKind,
    setup: Phase,
    contents: Contents,
    units: Option<UnitFolder>,
}

/// One group of images in work.
struct Group<'a> {
    values: Values<'a>,
    monitor: Monitor,
    shares: Shares,
    seeds: Vec<[u8; 32]>,
    /// Spent for this group; empty: it runs as it is.
    units: Vec<ClientUnit>,
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
        let digest = handshake::plan_digest(&plan)?;
        if options.plan_digest.is_some_and(|wanted| wanted != digest) {
            let detail = "the server's public plan has another digest than the client was told to expect";
            return Err(PlanError::Structure(detail.into()).into());
        }
        let layers = options.compute.run(|| Layers::new(&plan))?;
        let contents = Contents::new(&plan, &layers);
        let mut need = memory::of_session(&plan, &layers, 1, options.setups.is_some());
        if options.units.is_some() {
            // As it is, and as its file has it.
            need.add("a prepared inference", contents.bytes(Party::One).saturating_mul(2));
        }
        need.check(&options.plan.limits)?;
        let folder = open_folder(&plan, &layers, &options, &digest)?;
        let units = open_units(&options, &digest, &contents)?;
        let group = group_size(&plan, &layers, &options, options.expected_images.unwrap_or(1));
        let kind = options.ot.unwrap_or_else(|| cost::choose(&plan, &layers, group));
        let (mut channel, waited) = Metered::new(channel);
        let gauge = Gauge::start(Party::One, &waited, channel.stats());
        handshake::send_hello(&mut channel, kind, &digest)?;
        let mut session = Session::new(Box::new(channel), Party::One, kind)?;
        let mut prg = Prg::from_os()?;
        session.set_threads(options.compute.threads());
        let mut opening = Opening {
            channel: session.channel(),
            compute: &options.compute,
            prg: &mut prg,
            plan_digest: &digest,
            folder: folder.as_ref(),
        };
        let open = layers.families().iter().map(|f| f.clone().open(&mut opening));
        let keys = open.collect::<Result<Vec<_>, Error>>()?;
        let held: Vec<usize> = keys.iter().map(|k| k.held()).collect();
        let mut account = Account::new(kind);
        let mut setup = Phase::default();
        gauge.stop(session.stats(), account.setup(&layers, &held), &mut setup);
        let session = Some(session);
        Ok(Self { session, waited, plan, options, layers, keys, account, kind, setup, contents, units })
    }

    /// The checked plan that the server of this session sent.
    #[must_use]
    pub fn plan(&self) -> &TwoPartyPlan {
        &self.plan
    }

    /// The OT extension that this session uses.
    #[must_use]
    pub fn ot(&self) -> OtKind {
        self.kind
    }

    /// Prepares so many inferences with the server and adds them to the folder of [`TwoPartyOptions::units`]: all that linear layers need beside the input.
    ///
    /// # Errors
    /// [`UnitError`] without a folder, where nothing can be prepared, and where one party has no room; otherwise transport and protocol. Units that were
    /// whole before an error stay in the folder. The session is closed by an error.
    pub fn prepare(&mut self, count: usize, progress: &mut OnProgress<'_>) -> Result<TwoPartyTrace, Error> {
        if self.units.is_none() {
            return Err(UnitError::NoFolder.into());
        }
        let mut session = self.session.take().ok_or(TransportError::Closed)?;
        let plan = self.plan.clone();
        let tiles = |i: usize| self.layers.tiles(i);
        let threads = self.options.compute.threads();
        let mut trace = TwoPartyTrace::new(&plan, Party::One, self.kind, threads, tiles);
        trace.setup = self.setup;
        let size = group_size(&plan, &self.layers, &self.options, count);
        let groups = count.div_ceil(size);
        for group in 0..groups {
            let images = size.min(count - group * size);
            let mut report = |stage: usize, name: &str, tiles: usize| {
                let (blocks, stages) = (groups, plan.stages().len());
                progress(&Progress { block: group, blocks, stage, stages, name, tile: 0, tiles }).is_break()
            };
            self.prepare_group(&mut session, &plan, images, &mut trace, &mut report)?;
        }
        (trace.units, trace.groups) = (count, groups);
        trace.finish();
        self.session = Some(session);
        Ok(trace)
    }

    /// How many prepared inferences of this server and plan the folder holds; `None` without a folder.
    ///
    /// # Errors
    /// [`UnitError::Folder`] when the file system refuses.
    pub fn units(&self) -> Result<Option<usize>, Error> {
        self.units.as_ref().map(UnitFolder::count).transpose()
    }

    fn prepare_group(
        &mut self,
        session: &mut Session,
        plan: &TwoPartyPlan,
        images: usize,
        trace: &mut TwoPartyTrace,
        stopped: &mut dyn FnMut(usize, &str, usize) -> bool,
    ) -> Result<(), Error> {
        let Some(folder) = &self.units else { return Err(UnitError::NoFolder.into()) };
        let mut made =
            (0..images).map(|_| ClientUnit::draw(&self.contents.parts)).collect::<Result<Vec<_>, _>>()?;
        let begin = Begin::Prepare(unit_client::claim(folder.secret(), &made, random)?);
        let seeds = begin.seeds();
        let mut whole = Phase::default();
        let gauge = Gauge::start(Party::One, &self.waited, session.stats());
        handshake::send_begin(session.channel(), &begin)?;
        let mut predicted = self.account.begin(Task::Prepare, images);
        for part in self.contents.parts.iter() {
            let index = part.stage;
            if stopped(index, &plan.stages()[index].name, trace.stages[index].tiles * images) {
                return Err(Error::Cancelled);
            }
            let own = Gauge::start(Party::One, &self.waited, session.stats());
            let elements = plan.tensors()[part.input].elements;
            let share = Zeroizing::new(unit_client::masks(&made, part, (elements, plan.ring())));
            let job = Job { stage: index, share: &share, seeds: &seeds, compute: &self.options.compute };
            let answer = Zeroizing::new(self.layers.half(&self.keys, index)?.ask(session, &job)?);
            self.contents.parts.store(part, &answer, made.iter_mut().map(|u| &mut u.half))?;
            let expected = self.account.stage(plan, &self.layers, index, images);
            own.stop(session.stats(), expected, &mut trace.stages[index].phase);
            predicted += expected;
        }
        for unit in &mut made {
            if stopped(plan.stages().len() - 1, "pads", images) {
                return Err(Error::Cancelled);
            }
            unit.half.pads = session.make_pads(&self.contents.pads)?;
        }
        // The server keeps its half: only now is there anything to keep.
        let mut kept = [0];
        session.channel().recv(&mut kept)?;
        predicted += self.account.end(Task::Prepare, &self.contents.pads, images);
        gauge.stop(session.stats(), predicted, &mut whole);
        let share = |bytes: u64| bytes.div_ceil(images as u64);
        let cost = UnitCost {
            seconds: whole.seconds / images as f64,
            bytes_up: share(whole.bytes_up),
            bytes_down: share(whole.bytes_down),
        };
        for unit in &mut made {
            unit.cost = cost;
            folder.keep(unit)?;
        }
        trace.total.add(&whole);
        Ok(())
    }

    /// What a group begins with: its units are spent already.
    fn announced(&self, work: &Group<'_>) -> Result<Begin, Error> {
        match &self.units {
            Some(folder) => {
                let mut seeds = work.seeds.iter().copied();
                let next = || seeds.next().ok_or_else(|| Error::Internal("a unit without a seed".into()));
                Ok(Begin::Prepared(unit_client::claim(folder.secret(), &work.units, next)?))
            }
            None => Ok(Begin::Infer(work.seeds.clone())),
        }
    }

    /// A prepared stage: sends x - r of the client's share x, unless a stage before has done so, and takes the share that was prepared.
    fn prepared(
        &self,
        session: &mut Session,
        plan: &TwoPartyPlan,
        part: &units::Part,
        work: &mut Group<'_>,
    ) -> Result<Vec<u64>, Error> {
        if part.first {
            let (elements, ring) = (plan.tensors()[part.input].elements, plan.ring());
            let masks = unit_client::online(&work.units, part, (elements, ring));
            let own = work.shares.get(part.input)?;
            let sent: Vec<u64> = own.iter().zip(&masks).map(|(x, r)| ring.sub(*x, *r)).collect();
            mpc::reveal(session, &sent, ring, Party::Zero)?;
            // r is the client's share from now on, and the server's has grown by what it was sent.
            work.shares.replace(part.input, masks);
        }
        self.contents.parts.load(part, work.units.iter().map(|u| &u.half))
    }

    fn groups(
        &mut self,
        session: &mut Session,
        plan: &TwoPartyPlan,
        inputs: &[&Input<'_>],
        images: usize,
        progress: &mut OnProgress<'_>,
    ) -> Result<Marked<TwoPartyTrace>, Error> {
        let mut monitors = Vec::new();
        let tiles = |i: usize| self.layers.tiles(i);
        let mut trace =
            TwoPartyTrace::new(plan, Party::One, self.kind, self.options.compute.threads(), tiles);
        trace.setup = self.setup;
        let size = group_size(plan, &self.layers, &self.options, images);
        let groups = images.div_ceil(size);
        let mut outputs = io::room(plan.tensors(), plan.outputs(), images);
        for group in 0..groups {
            let first = group * size;
            let count = size.min(images - first);
            // Reading units is work with the image.
            let gauge = Gauge::start(Party::One, &self.waited, session.stats());
            let mut work = Group {
                values: io::load(plan.tensors(), plan.inputs(), inputs, (first, count)),
                monitor: Monitor::new(plan.tensors().len(), count),
                shares: Shares::new(plan, count),
                seeds: (0..count).map(|_| random()).collect::<Result<_, _>>()?,
                // Gone from the folder before anything of this group is sent.
                units: self.units.as_ref().map_or(Ok(Vec::new()), |folder| folder.take(count))?,
            };
            if self.units.is_some() {
                trace.prepared.get_or_insert_default().add(&work.units);
            }
            let begin = self.announced(&work)?;
            handshake::send_begin(session.channel(), &begin)?;
            let mut predicted = self.account.begin(begin.task(), count);
            if self.units.is_some() {
                let pads = work.units.iter_mut().map(|u| std::mem::take(&mut u.half.pads)).collect();
                session.supply(&self.contents.pads, pads)?;
            }
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
                for (ots, speaker) in self.account.ahead(plan, &self.layers, index, count) {
                    session.ensure_from(ots, speaker)?;
                }
                let expected = self.account.stage(plan, &self.layers, index, count);
                own.stop(session.stats(), expected, &mut trace.stages[index].phase);
                predicted += expected;
            }
            session.withdraw();
            gauge.stop(session.stats(), predicted, &mut trace.total);
            io::store(plan.tensors(), plan.outputs(), &work.values, &mut outputs, (first, count));
            monitors.push((first, work.monitor));
        }
        (trace.images, trace.groups) = (images, groups);
        trace.finish();
        Ok((outputs, trace, Overruns::of(&monitors, plan.tensors(), &places(plan)).error()))
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
                    let compute = &self.options.compute;
                    compute.run(|| program::run_client(plan.client(), (*at, client), 0, values, monitor))?;
                }
            }
            (Kind::Share, Some(&input), Some(output)) => {
                let share = share(plan, &work.values, input)?;
                work.shares.put(output, share);
            }
            (Kind::Linear(_), Some(&input), Some(output)) => {
                if let Some(part) = self.contents.parts.of(index).filter(|_| !work.units.is_empty()) {
                    let own = self.prepared(session, plan, part, work)?;
                    work.shares.put(output, own);
                    work.shares.free(&stage.free);
                    return Ok(());
                }
                let (share, seeds) = (work.shares.get(input)?, &work.seeds);
                let job = Job { stage: index, share, seeds, compute: &self.options.compute };
                let own = self.layers.half(&self.keys, index)?.ask(session, &job)?;
                work.shares.put(output, own);
            }
            (Kind::MatrixProduct(_), Some(_), Some(output)) => {
                let (share, seeds) = (work.shares.side_by_side(stage)?, &work.seeds);
                let job = Job { stage: index, share: &share, seeds, compute: &self.options.compute };
                let own = self.layers.half(&self.keys, index)?.ask(session, &job)?;
                work.shares.put(output, own);
            }
            (Kind::Reveal(what), Some(&input), Some(output)) => {
                let opened =
                    open(session, plan, (stage, *what), work.shares.get(input)?, work.shares.images())?;
                let data = reveal(plan, &opened, output, &work.monitor, work.values.images);
                work.values.put(output, data);
            }
            _ => work.shares.run(session, plan, stage)?,
        }
        work.shares.free(&stage.free);
        Ok(())
    }
}

impl Half for TwoPartyClient {
    type Trace = TwoPartyTrace;

    fn interface(&self) -> &Plan {
        self.plan.client()
    }

    fn run(
        &mut self,
        inputs: &[&Input<'_>],
        images: usize,
        progress: &mut OnProgress<'_>,
    ) -> Result<Marked<TwoPartyTrace>, Error> {
        if let Some(folder) = &self.units {
            // Nothing begins that cannot end; the session stays open.
            folder.check(images)?;
        }
        let mut session = self.session.take().ok_or(TransportError::Closed)?;
        let plan = self.plan.clone();
        let result = self.groups(&mut session, &plan, inputs, images, progress)?;
        self.session = Some(session);
        Ok(result)
    }

    fn end(&mut self) -> Result<(), Error> {
        match self.session.take() {
            Some(mut session) => handshake::send_begin(session.channel(), &Begin::End),
            None => Ok(()),
        }
    }
}

impl ClientSession for TwoPartyClient {
    fn is_open(&self) -> bool {
        self.session.is_some()
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
    ledger::bytes(uses::SEED, &mut seed);
    Ok(seed)
}

/// The folder of prepared inferences, where one is given.
fn open_units(
    options: &TwoPartyOptions,
    digest: &[u8; 32],
    contents: &Contents,
) -> Result<Option<UnitFolder>, Error> {
    let Some(path) = options.units.as_deref() else { return Ok(None) };
    if contents.parts.bytes() == 0 {
        return Err(UnitError::NoLayers.into());
    }
    let server = options.server.as_deref().unwrap_or("");
    UnitFolder::open(path, server, digest, contents).map(Some)
}

/// The folder of set-ups, where one is given and the plan has any: with room for all of them.
fn open_folder(
    plan: &TwoPartyPlan,
    layers: &Layers,
    options: &TwoPartyOptions,
    digest: &[u8; 32],
) -> Result<Option<Folder>, Error> {
    let Some(path) = options.setups.as_deref() else { return Ok(None) };
    let folder = Folder::open(path, options.server.as_deref().unwrap_or(""), digest, options.setups_policy)?;
    let needed = layers.set_ups().fold(0, |sum: u64, (_, s)| sum.saturating_add(s.stored));
    if needed > 0 && plan.preparation().is_none() {
        return Err(StoreError::Unnamed.into());
    }
    folder.check_room(needed)?;
    Ok(Some(folder))
}

/// Images that run together: what was asked for or shares rounds, and as few as keep within the limit of memory.
fn group_size(plan: &TwoPartyPlan, layers: &Layers, options: &TwoPartyOptions, images: usize) -> usize {
    let fits = (GROUP_ELEMENTS / plan.peak_elements().max(1)).max(1);
    let fits = if plan.has_batch() { methods::group(plan) } else { fits };
    let mut size = options.group.unwrap_or(fits).min(images).clamp(1, MAX_GROUP);
    let mut unit = 0;
    if options.units.is_some() {
        let contents = Contents::new(plan, layers);
        size = size.min(contents.most());
        // As it is, and as its file has it.
        unit = contents.bytes(Party::One).saturating_mul(2);
    }
    let needs = |n: usize| {
        memory::of_session(plan, layers, n, options.setups.is_some()).bytes().saturating_add(unit * n as u64)
    };
    while size > 1 && needs(size) > options.plan.limits.memory_bytes {
        size /= 2;
    }
    size
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
            let index = nonlinear::run(session, stage, &[share], ring, images)?.ok_or_else(fail)?;
            let opened =
                mpc::reveal(session, &index, mpc::index_ring(classes)?, Party::One)?.ok_or_else(fail)?;
            Ok(opened.iter().map(|v| *v as i64).collect())
        }
    }
}

/// Opened integers [image][element] as a fixed tensor of the interpreter, clamped to its bound.
fn reveal(plan: &TwoPartyPlan, opened: &[i64], tensor: usize, monitor: &Monitor, images: usize) -> Data {
    let t = &plan.tensors()[tensor];
    let mut data = Data::new(Storage::of(t), opened.len());
    let (mut row, mut marks) = (Zeroizing::new(vec![0; images]), monitor.marks());
    for (feature, mut out) in data.rows_mut(images).enumerate() {
        let out: &mut RowMut<'_> = &mut out;
        for (image, v) in row.iter_mut().enumerate() {
            *v = opened[image * t.elements + feature];
        }
        if let TensorKind::Fixed { scale, bound } = t.kind {
            marks.clamp((tensor, scale, bound), (feature, 0), &mut row);
        }
        out.write_fixed(0, &row);
    }
    data
}

/// Where marks are looked for, in the order of computation.
fn places(plan: &TwoPartyPlan) -> Vec<Place<'_>> {
    let of = |stage| -> Vec<Place<'_>> {
        let Stage { kind, name, output, .. }: &Stage = stage;
        match (kind, *output) {
            (Kind::Client(at), _) => program::places(&plan.client().stages()[*at]),
            (Kind::Reveal(_), Some(tensor)) => {
                vec![Place { stage: name, tensor, named: tensor, bound: None, answer: false }]
            }
            _ => Vec::new(),
        }
    };
    plan.stages().iter().flat_map(of).collect()
}
