//! The client: owns the inputs and the keys, and computes the non-linear layers in the clear.

use super::coefficients::client::{Landing, TileClient, TileKeys};
use super::exchange::Exchange;
use super::tiles::{mask_id, Sink, TileContext, Worker};
use crate::channel::{send_failure, Channel, Traffic};
use crate::compute::{Compute, Shelf};
use crate::error::{Error, ProtocolError};
use crate::io::{self, Input, Marked, OnProgress, Progress};
use crate::plan::{Limits, LinearStage, MaskMode, Plan, PlanOptions, Stage, TensorKind};
use crate::program::{
    self, interleave, Data, Monitor, Overruns, RowProgram, RowRunner, SegmentKind, StageProgram, Storage,
    Values,
};
use crate::session::client::half::Half;
use crate::session::client::{receive_plan, ClientSession};
use crate::trace::{peak_memory, shared_stages, since, RangeTrace, Trace};
use crate::wire::{Begin, Block, End, FrameBuilder, Kind};
use hushnet_ring::clock::Instant;
use hushnet_ring::{ledger, pack, AlignedWords, Prg, WordsHat};
use hushnet_rlwe::{uses, BatchContext, ClientKey, Masks};
use rayon::prelude::*;

/// How a client works: how strictly it reads plans, and where it computes.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// How strictly the server's plan is read.
    pub plan: PlanOptions,
    /// Bytes for keeping transformed input masks from block to block.
    pub mask_cache_bytes: u64,
    /// Where parallel work runs.
    pub compute: Compute,
    /// The plan that the server must serve, by [`crate::AnyPlan::identity`]; only sessions of any trust model look at it. `None`: whichever it serves.
    pub expected: Option<[u8; 32]>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        let (plan, compute) = (PlanOptions::default(), Compute::default());
        Self { plan, mask_cache_bytes: 1 << 30, compute, expected: None }
    }
}

/// Reports `(stage, tiles done, tiles)`; an error stops the run.
type Tell<'a> = dyn FnMut(usize, usize, usize) -> Result<(), Error> + 'a;

/// An open session with a server. Serves many batches; every block of images has a secret key of its own.
pub struct Client {
    channel: Box<dyn Channel>,
    plan: Plan,
    options: ClientOptions,
    context: BatchContext,
    /// The stages of plans for few images.
    coefficients: Option<TileClient>,
    /// Every mask by its identity.
    public_masks: Masks,
    next_block: u32,
    /// Mask sums by stage, in order of arrival; empty before the set-up and with fresh masks.
    sums: Vec<Vec<WordsHat>>,
    ready: bool,
    /// Transformed input masks by stage and feature, where they are kept.
    masks: Vec<Option<Vec<WordsHat>>>,
    cached: u64,
    shelf: Shelf<Worker>,
    closed: bool,
}

/// One block in work.
struct BlockRun<'a> {
    index: u32,
    values: Values<'a>,
    secrets: Secrets,
    monitor: Monitor,
    /// Whether more blocks are expected, so that keeping masks pays.
    more: bool,
}

/// The secret keys of a block.
enum Secrets {
    /// One for N images.
    Batch(ClientKey),
    /// One for every tile of every image.
    Tiles(TileKeys),
}

impl Client {
    /// Greets the server, receives and checks its plan, and opens a session.
    ///
    /// # Errors
    /// [`Error`]: transport, protocol, or a plan that this client refuses.
    pub fn open(mut channel: Box<dyn Channel>, options: ClientOptions) -> Result<Self, Error> {
        let plan = receive_plan(channel.as_mut(), &options.plan, Plan::from_bytes)?;
        Self::with_plan(channel, plan, options)
    }

    /// Opens a session with a server that has sent its plan. An error has been told to the server.
    pub(crate) fn with_plan(
        mut channel: Box<dyn Channel>,
        plan: Plan,
        options: ClientOptions,
    ) -> Result<Self, Error> {
        let (context, seed) =
            Self::begin(channel.as_mut(), &plan).inspect_err(|e| send_failure(channel.as_mut(), e))?;
        Ok(Self {
            channel,
            sums: plan.stages().iter().map(|_| Vec::new()).collect(),
            masks: plan.stages().iter().map(|_| None).collect(),
            coefficients: TileClient::new(&plan, seed)?,
            plan,
            options,
            context,
            public_masks: Masks::new(&seed),
            next_block: 0,
            ready: false,
            cached: 0,
            shelf: Shelf::default(),
            closed: false,
        })
    }

    fn begin(channel: &mut dyn Channel, plan: &Plan) -> Result<(BatchContext, [u8; 32]), Error> {
        channel.set_limit(plan.largest_frame());
        let context = BatchContext::new(plan.ring_degree())?;
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|e| Error::Internal(format!("no randomness: {e}")))?;
        ledger::bytes(uses::SEED, &mut seed);
        channel.send(FrameBuilder::message(Kind::Begin, &Begin { seed: seed.to_vec(), images: 0 })?)?;
        Ok((context, seed))
    }

    /// The checked plan that the server of this session sent.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn blocks(
        &mut self,
        plan: &Plan,
        inputs: &[&Input<'_>],
        images: usize,
        progress: &mut OnProgress<'_>,
    ) -> Result<Marked<Trace>, Error> {
        let mut monitors = Vec::new();
        let mut trace = Trace::new(plan);
        trace.threads = self.options.compute.threads();
        self.set_up(plan, &mut trace, progress)?;
        let (start, before) = (Instant::now(), self.channel.traffic());
        let n = plan.block_images();
        let mut outputs = io::room(plan.tensors(), plan.outputs(), images);
        let blocks = images.div_ceil(n);
        for block in 0..blocks {
            let first = block * n;
            let count = n.min(images - first);
            let mut run = BlockRun {
                index: self.next_block,
                values: io::load(plan.tensors(), plan.inputs(), inputs, (first, count)),
                secrets: match &self.coefficients {
                    Some(layers) => Secrets::Tiles(layers.keys(count, &self.options.compute)?),
                    None => Secrets::Batch(ClientKey::generate(&self.context, &mut Prg::from_os()?)?),
                },
                monitor: Monitor::new(plan.tensors().len(), count),
                more: block + 1 < blocks || self.next_block > 0,
            };
            self.next_block = self.next_block.checked_add(1).filter(|&b| b < u32::MAX).ok_or_else(|| {
                ProtocolError::Message {
                    kind: "Block",
                    detail: "a session has at most 2^32 - 2 blocks; open another".into(),
                }
            })?;
            let announce = Block { index: run.index, images: count as u32 };
            self.channel.send(FrameBuilder::message(Kind::Block, &announce)?)?;
            let mut tell = |stage: usize, tile: usize, tiles: usize| {
                let name = plan.stages()[stage].name();
                let p = Progress { block, blocks, stage, stages: plan.stages().len(), name, tile, tiles };
                if progress(&p).is_break() {
                    Err(Error::Cancelled)
                } else {
                    Ok(())
                }
            };
            self.block(plan, &mut run, &mut trace, &mut tell)?;
            io::store(plan.tensors(), plan.outputs(), &run.values, &mut outputs, (first, count));
            observe(plan, &run.monitor, &mut trace);
            monitors.push((first, run.monitor));
        }
        let after = self.channel.traffic();
        trace.images = images;
        trace.blocks = blocks;
        trace.seconds = since(start);
        trace.bytes_up = after.sent - before.sent;
        trace.bytes_down = after.received - before.received;
        trace.peak_memory_bytes = peak_memory();
        let places: Vec<_> = plan.stages().iter().flat_map(program::places).collect();
        Ok((outputs, trace, Overruns::of(&monitors, plan.tensors(), &places).error()))
    }

    /// Receives the mask sums of shared-mask stages, once a session.
    fn set_up(&mut self, plan: &Plan, trace: &mut Trace, progress: &mut OnProgress<'_>) -> Result<(), Error> {
        if std::mem::replace(&mut self.ready, true) {
            return Ok(());
        }
        if let Some(layers) = &mut self.coefficients {
            let (start, before) = (Instant::now(), self.channel.traffic());
            let (total, mut done) = (plan.stages().iter().filter(|s| s.coefficients().is_some()).count(), 0);
            let mut told = |index: usize, bytes: u64| {
                trace.stages[index].setup_bytes_down += bytes;
                done += 1;
                tell_set_up(plan, (done, total), progress)
            };
            layers.set_up(plan, self.channel.as_mut(), &self.options.compute, &mut told)?;
            self.end_set_up(trace, start, before);
            return Ok(());
        }
        let total: usize = shared_stages(plan).map(|(_, s)| s.tiles.len()).sum();
        let Some((first, _)) = shared_stages(plan).next() else { return Ok(()) };
        let kept: u64 = shared_stages(plan)
            .map(|(_, s)| {
                let parts = self.context.multiplier().parts(s.params.modulus_bits()) as u64;
                let features = (0..s.tiles.len()).map(|t| s.tile_outputs(t) as u64).sum::<u64>();
                features.saturating_mul(8 * parts * plan.ring_degree() as u64)
            })
            .fold(0, u64::saturating_add);
        Limits::check("the client's memory for mask sums", kept, self.options.plan.limits.memory_bytes)?;
        let (start, before) = (Instant::now(), self.channel.traffic());
        self.channel.send(FrameBuilder::reuse(Vec::new(), Kind::Setup, first as u32, 0, 0)?.finish())?;
        let mut done = 0;
        for (index, stage) in shared_stages(plan) {
            for tile in 0..stage.tiles.len() {
                let frame = self.channel.recv()?;
                let payload = frame.expect_payload(
                    Kind::SetupMask,
                    index as u32,
                    tile as u32,
                    stage.setup_bytes(tile),
                )?;
                trace.stages[index].setup_bytes_down += frame.bytes().len() as u64;
                let hats = self.options.compute.run(|| mask_sums(&self.context, stage, payload))?;
                self.sums[index].extend(hats);
                done += 1;
                tell_set_up(plan, (done, total), progress)?;
            }
        }
        self.end_set_up(trace, start, before);
        Ok(())
    }

    fn end_set_up(&self, trace: &mut Trace, start: Instant, before: Traffic) {
        trace.setup_seconds = since(start);
        trace.setup_bytes_up = self.channel.traffic().sent - before.sent;
        trace.setup_bytes_down = trace.stages.iter().map(|s| s.setup_bytes_down).sum();
    }

    fn block(
        &mut self,
        plan: &Plan,
        run: &mut BlockRun<'_>,
        trace: &mut Trace,
        tell: &mut Tell<'_>,
    ) -> Result<(), Error> {
        let compute = self.options.compute.clone();
        let mut first_segment = 0;
        for (index, stage) in plan.stages().iter().enumerate() {
            match stage {
                Stage::Client(client) => {
                    let start = Instant::now();
                    let (values, monitor) = (&mut run.values, &run.monitor);
                    compute
                        .run(|| program::run_client(plan, (index, client), first_segment, values, monitor))?;
                    trace.stages[index].seconds.program += since(start);
                    first_segment = 0;
                    tell(index, 1, 1)?;
                }
                Stage::Linear(_) | Stage::Coefficients(_) => {
                    tell(index, 0, stage.requests(run.values.images))?;
                    if let Stage::Linear(linear) = stage {
                        self.keep_masks(index, linear, run.more)?;
                    }
                    first_segment = self.linear(plan, (index, stage), run, trace, tell)?;
                    trace.rounds += 1;
                }
            }
        }
        Ok(())
    }

    /// Keeps the transformed masks of a stage's inputs, when they will be used again and fit.
    fn keep_masks(&mut self, index: usize, stage: &LinearStage, more: bool) -> Result<(), Error> {
        if !more || stage.mask != MaskMode::Shared || self.masks[index].is_some() {
            return Ok(());
        }
        let k = stage.params.modulus_bits();
        let [channels, rows, columns] = stage.geometry.input_layout();
        let features = channels * rows * columns;
        let parts = self.context.multiplier().parts(k) as u64;
        let bytes = (features as u64).saturating_mul(8 * parts * stage.params.ring_degree() as u64);
        if self.cached.saturating_add(bytes) > self.options.mask_cache_bytes {
            return Ok(());
        }
        let hats = self.options.compute.run(|| {
            (0..features)
                .into_par_iter()
                .map_init(
                    || AlignedWords::new(stage.params.ring_degree()),
                    |words, feature| -> Result<WordsHat, Error> {
                        self.public_masks.words(mask_id(stage, index, feature, 0), 0, k, words)?;
                        Ok(self.context.words_hat(words, k)?)
                    },
                )
                .collect::<Result<Vec<_>, _>>()
        })?;
        self.cached += bytes;
        self.masks[index] = Some(hats);
        Ok(())
    }

    /// Runs one linear stage; returns how many segments of the next stage ran with it.
    fn linear(
        &mut self,
        plan: &Plan,
        (index, stage): (usize, &Stage),
        run: &mut BlockRun<'_>,
        trace: &mut Trace,
        tell: &mut Tell<'_>,
    ) -> Result<usize, Error> {
        let StageProgram::Linear { keep, free, .. } = plan.program(index) else { return Ok(0) };
        let Some((input, output_index)) = stage.encrypted() else { return Ok(0) };
        let segment = plan.fused_segment(index);
        let rows = segment.and_then(|s| match &s.kind {
            SegmentKind::Rows(r) => Some(r),
            SegmentKind::Whole(_) => None,
        });
        let images = run.values.images;
        let output = &plan.tensors()[output_index];
        let mut stored = room(plan, rows, keep.then_some(output_index), images);
        let per_feature = stored.len();
        let Some(input) = run.values.data(input) else {
            return Err(Error::Internal(format!("stage '{}' has no input", stage.name())));
        };
        let runner = rows.map(|program| RowRunner {
            program,
            values: &run.values,
            monitor: &run.monitor,
            given: Some(output_index),
        });
        let rows_out = interleave(&mut stored, images, output.elements);
        let total = stage.requests(images);
        let mut check = |done: usize| tell(index, done, total);
        let report = &mut trace.stages[index];
        let measured = match (stage, &run.secrets) {
            (Stage::Linear(stage), Secrets::Batch(key)) => {
                let context = || TileContext {
                    context: &self.context,
                    key,
                    shelf: &self.shelf,
                    masks: &self.public_masks,
                    stage,
                    stage_index: index,
                    block: run.index,
                    images,
                };
                let rows = (rows_out, per_feature, *keep);
                let what = (output_index, output);
                let sink = Sink::new(context(), rows, runner, &self.sums[index], what, &run.monitor);
                let masks = self.masks[index].as_deref();
                let exchange =
                    Exchange { upload: context(), input, masks, sink, compute: &self.options.compute };
                exchange.run(self.channel.as_mut(), report, &mut check)?
            }
            (Stage::Coefficients(stage), Secrets::Tiles(keys)) => {
                let layers = self.coefficients.as_ref().ok_or_else(|| Error::Internal("no layers".into()))?;
                let (channel, compute) = (self.channel.as_mut(), &self.options.compute);
                let stage = (index, stage.as_ref());
                let images_keys = (keys, images);
                let results = layers.run(stage, images_keys, input, channel, compute, report, &mut check)?;
                let start = Instant::now();
                let landing = Landing {
                    rows: rows_out,
                    per_feature,
                    keep: *keep,
                    runner,
                    output: (output_index, output),
                    monitor: &run.monitor,
                };
                self.options.compute.run(|| landing.take(&results, images));
                since(start)
            }
            _ => return Err(Error::Internal("secrets of another engine".into())),
        };
        if let Some(next) = trace.stages.get_mut(index + 1) {
            next.seconds.program += measured;
        }
        let stores = rows.map(|r| r.stores.as_slice()).unwrap_or_default();
        let kept = stores.iter().map(|(t, _)| *t).chain(keep.then_some(output_index));
        kept.zip(stored).for_each(|(t, data)| run.values.put(t, data));
        let freed = segment.map(|s| s.free.as_slice()).unwrap_or_default();
        free.iter().chain(freed).for_each(|&t| run.values.free(t));
        Ok(usize::from(segment.is_some()))
    }
}

impl Half for Client {
    type Trace = Trace;

    fn interface(&self) -> &Plan {
        &self.plan
    }

    fn run(
        &mut self,
        inputs: &[&Input<'_>],
        images: usize,
        progress: &mut OnProgress<'_>,
    ) -> Result<Marked<Trace>, Error> {
        let plan = self.plan.clone();
        let result = self.blocks(&plan, inputs, images, progress);
        if let Err(e) = &result {
            self.closed = true;
            send_failure(self.channel.as_mut(), e);
        }
        result
    }

    fn end(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        Ok(self.channel.send(FrameBuilder::message(Kind::End, &End {})?)?)
    }
}

impl ClientSession for Client {
    fn is_open(&self) -> bool {
        !self.closed
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            tracing::debug!(error = %e, "the session could not be closed");
        }
    }
}

/// Reports how far a set-up is.
fn tell_set_up(
    plan: &Plan,
    (tile, tiles): (usize, usize),
    progress: &mut OnProgress<'_>,
) -> Result<(), Error> {
    let stages = plan.stages().len();
    let p = Progress { block: 0, blocks: 1, stage: 0, stages, name: "setup", tile, tiles };
    if progress(&p).is_break() {
        return Err(Error::Cancelled);
    }
    Ok(())
}

/// Room for what a linear stage leaves: what the rows store that run with it, then its own output where that is `kept`.
fn room(plan: &Plan, rows: Option<&RowProgram>, kept: Option<usize>, images: usize) -> Vec<Data> {
    let mut stored = rows.map(|r| program::allocate(r, plan.tensors(), images)).unwrap_or_default();
    let own = kept.map(|t| &plan.tensors()[t]);
    stored.extend(own.map(|t| Data::new(Storage::of(t), t.elements * images)));
    stored
}

/// Unpacks and transforms the mask sums of one tile.
fn mask_sums(context: &BatchContext, stage: &LinearStage, payload: &[u8]) -> Result<Vec<WordsHat>, Error> {
    let k = stage.params.modulus_bits();
    let bytes = pack::packed_len(stage.params.ring_degree(), k);
    payload
        .par_chunks(bytes)
        .map_init(
            || AlignedWords::new(stage.params.ring_degree()),
            |words, packed| -> Result<WordsHat, Error> {
                pack::unpack(packed, k, words)?;
                Ok(context.words_hat(words, k)?)
            },
        )
        .collect()
}

/// Adds the ranges seen in a block to the trace.
fn observe(plan: &Plan, monitor: &Monitor, trace: &mut Trace) {
    for (stage, report) in plan.stages().iter().zip(&mut trace.stages) {
        let computed: Vec<usize> = match stage {
            Stage::Linear(l) => vec![l.output],
            Stage::Coefficients(l) => vec![l.output],
            Stage::Client(c) => c
                .ops
                .iter()
                .filter(|o| matches!(o.kind, crate::plan::OpKind::Quantize {}))
                .map(|o| o.output)
                .collect(),
        };
        for (i, tensor) in computed.into_iter().enumerate() {
            let TensorKind::Fixed { bound, .. } = plan.tensors()[tensor].kind else { continue };
            let largest = monitor.largest(tensor);
            match report.ranges.get_mut(i) {
                Some(range) => range.largest = range.largest.max(largest),
                None => report.ranges.push(RangeTrace {
                    tensor: plan.tensors()[tensor].name.clone(),
                    largest,
                    bound,
                }),
            }
        }
    }
}
