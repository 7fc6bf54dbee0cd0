//! The server: owns the weights, sees ciphertexts and shapes only. No key type is known here.

use super::coefficients::{self, server::TileServer};
use super::layer::Layer;
use crate::channel::{send_failure, Channel, Reserve, Traffic};
use crate::compute::Compute;
use crate::error::{check_environment, Error, ProtocolError};
use crate::pending::{Pending, Preparation};
use crate::plan::{CoefficientLayer, GeometrySpec, LinearStage, MaskMode, Plan, Stage};
use crate::session::server::{welcome, Served, SessionEvent, SessionMemory};
use crate::tally;
use crate::trace::{shared_stages, since, ServerTrace};
use crate::wire::{Begin, Block, End, Frame, FrameBuilder, Kind};
use hushnet_layers::batch::RowStore;
use hushnet_ring::clock::Instant;
use hushnet_ring::pack;
use hushnet_rlwe::{MaskId, Masks};
use std::collections::HashMap;
use std::ops::Range;

/// A plan prepared for serving; shared by all sessions.
pub struct ServerPlan {
    plan: Plan,
    weights: Pending<Weights>,
    public: Frame,
    compute: Compute,
}

/// Weights in the form of the kernels.
struct Weights {
    layers: Vec<Option<Layer>>,
    /// The stages of plans for few images.
    coefficients: Option<TileServer>,
}

/// Which polynomial of the ciphertexts is computed.
#[derive(Clone, Copy)]
enum Part<'a> {
    /// c0 from the Request's payload; the bias belongs to it.
    Body(&'a [u8]),
    /// The public masks of a block, or those that all blocks share.
    Mask { masks: &'a Masks, block: Option<u32> },
    /// The masks as they were sent.
    Sent(&'a [u8]),
}

/// What a session keeps from block to block.
struct Session {
    seed: [u8; 32],
    masks: Masks,
    windows: Windows,
    buffer: Vec<u8>,
}

/// Windows of the stages, kept from block to block as far as they fit.
#[derive(Default)]
struct Windows {
    kept: HashMap<(usize, bool), RowStore>,
    bytes: usize,
}

/// Bytes for weights in evaluation form, where nobody says otherwise.
pub const DEFAULT_WEIGHT_BYTES: usize = 2 << 30;

/// Bytes of windows that a session keeps between blocks.
const KEPT_BYTES: usize = 256 << 20;

impl Windows {
    fn take(&mut self, index: usize, mask: bool, layer: &Layer) -> Result<RowStore, Error> {
        match self.kept.remove(&(index, mask)) {
            None => layer.window(),
            Some(window) => {
                self.bytes -= window.memory_bytes();
                Ok(window)
            }
        }
    }

    fn put(&mut self, index: usize, mask: bool, mut window: RowStore) {
        window.clear();
        if self.bytes + window.memory_bytes() <= KEPT_BYTES {
            self.bytes += window.memory_bytes();
            self.kept.insert((index, mask), window);
        }
    }
}

/// One tile of a stage.
#[derive(Clone, Copy)]
struct TileJob<'a> {
    index: usize,
    stage: &'a LinearStage,
    layer: &'a Layer,
    tile: usize,
}

impl ServerPlan {
    /// Prepares the weights for the linear algebra of this machine.
    ///
    /// # Errors
    /// [`Error::Plan`] when the plan is a public part; [`Error::Internal`] when a layer cannot be prepared.
    pub fn new(plan: &Plan, compute: Compute) -> Result<Self, Error> {
        Self::with_memory(plan, compute, DEFAULT_WEIGHT_BYTES)
    }

    /// As [`Self::new`], with the bytes that plans for few images may take for weights in evaluation form; the others are transformed as they are used.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_memory(plan: &Plan, compute: Compute, weight_bytes: usize) -> Result<Self, Error> {
        let model = Self::announced(plan, compute)?;
        model.fill(weight_bytes)?;
        Ok(model)
    }

    /// The model without its weights: [`Self::fill`] prepares them, and sessions wait for it.
    ///
    /// # Errors
    /// [`Error::Plan`] when the plan is a public part; [`Error::Environment`].
    pub(crate) fn announced(plan: &Plan, compute: Compute) -> Result<Self, Error> {
        check_environment()?;
        if !plan.has_weights() {
            let detail = "this is the public part of a plan, without weights; serve the file that `hushnet compile` wrote";
            return Err(crate::plan::PlanError::Structure(detail.into()).into());
        }
        let public = FrameBuilder::with_payload(Kind::Plan, &plan.public_part()?)?;
        Ok(Self { plan: plan.clone(), weights: Pending::new(), public, compute })
    }

    /// Prepares the weights, once, with so many bytes for those in evaluation form.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn fill(&self, weight_bytes: usize) -> Result<(), Error> {
        tally::prepared();
        let stages = self.plan.stages();
        self.weights.fill(|| {
            self.compute.run(|| {
                let layers = stages.iter().map(|s| s.linear().map(Layer::new).transpose());
                let layers = layers.collect::<Result<Vec<_>, _>>()?;
                Ok(Weights { layers, coefficients: TileServer::new(&self.plan, weight_bytes)? })
            })
        })
    }

    /// Waits for the weights.
    pub(crate) fn prepared(&self) -> Result<(), Error> {
        self.weights.get().map(drop)
    }

    /// The weights, for a session that needs them now.
    fn weights(&self, channel: &mut dyn Channel) -> Result<&Weights, Error> {
        channel.reserve(Reserve::Weights)?;
        self.weights.get()
    }

    /// The checked plan that is served, with its weights.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
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
        let mut trace = ServerTrace::of(self.plan.stages().iter().map(|s| s.name().to_owned()));
        channel.set_limit(self.plan.largest_frame());
        let result = self.session(channel, &mut trace, on_event);
        let traffic = channel.traffic();
        (trace.bytes_up, trace.bytes_down) = (traffic.received, traffic.sent);
        match result {
            Ok(()) => Ok(trace),
            Err(e) => {
                send_failure(channel, &e);
                Err(e)
            }
        }
    }

    fn session(
        &self,
        channel: &mut dyn Channel,
        trace: &mut ServerTrace,
        on_event: &mut dyn FnMut(SessionEvent),
    ) -> Result<(), Error> {
        welcome(channel, &self.public)?;
        let begin: Begin = channel.recv()?.message(Kind::Begin)?;
        let seed: [u8; 32] = begin.seed.try_into().map_err(|_| ProtocolError::Message {
            kind: "Begin",
            detail: "the seed must have 32 bytes".into(),
        })?;
        let mut session =
            Session { seed, masks: Masks::new(&seed), windows: Windows::default(), buffer: Vec::new() };
        let (mut set_up, mut next_block, mut images) = (false, 0, 0);
        loop {
            channel.rest(true);
            let frame = channel.recv()?;
            channel.rest(false);
            match frame.kind() {
                Kind::Setup => {
                    let packed = coefficients::stages(&self.plan).next().map(|(index, _)| index);
                    let first = packed.or_else(|| shared_stages(&self.plan).next().map(|(index, _)| index));
                    let first = first.unwrap_or(0) as u32;
                    frame.expect_payload(Kind::Setup, first, 0, 0)?;
                    if std::mem::replace(&mut set_up, true) {
                        let (expected, got) = ("one Setup a session".into(), "another".into());
                        return Err(ProtocolError::Unexpected { expected, got }.into());
                    }
                    channel.reserve(Reserve::SetUp(self.memory().set_up))?;
                    let (weights, start) = (self.weights(channel)?, Instant::now());
                    self.set_up(channel, weights, &session)?;
                    trace.setup_seconds += since(start);
                }
                Kind::Block => {
                    let block: Block = frame.message(Kind::Block)?;
                    images += u64::from(block.images);
                    let fits = (1..=self.plan.block_images() as u64).contains(&u64::from(block.images))
                        && block.index == next_block
                        && block.index < u32::MAX
                        && (begin.images == 0 || images <= begin.images);
                    if !fits {
                        let detail = format!(
                            "block {} of {} images is out of order or too large",
                            block.index, block.images
                        );
                        return Err(ProtocolError::Message { kind: "Block", detail }.into());
                    }
                    next_block += 1;
                    self.block(channel, &mut session, &block, trace)?;
                    trace.blocks += 1;
                    trace.images += u64::from(block.images);
                    on_event(SessionEvent::Block { images: u64::from(block.images) });
                }
                _ => {
                    let End {} = frame.message(Kind::End)?;
                    return Ok(());
                }
            }
        }
    }

    fn jobs<'a>(&'a self, weights: &'a Weights) -> impl Iterator<Item = (usize, &'a LinearStage, &'a Layer)> {
        self.plan
            .stages()
            .iter()
            .zip(&weights.layers)
            .enumerate()
            .filter_map(|(i, (s, l))| Some((i, Stage::linear(s)?, l.as_ref()?)))
    }

    /// Sends the sums of shared masks of every tile.
    fn set_up(&self, channel: &mut dyn Channel, weights: &Weights, session: &Session) -> Result<(), Error> {
        if let Some(layers) = &weights.coefficients {
            return layers.set_up(channel, &session.seed, &self.compute);
        }
        let masks = &session.masks;
        for (index, stage, layer) in self.jobs(weights).filter(|(_, s, _)| s.mask == MaskMode::Shared) {
            let mut window = self.compute.run(|| layer.window())?;
            for tile in 0..stage.tiles.len() {
                let length = stage.setup_bytes(tile);
                let mut frame =
                    FrameBuilder::reuse(Vec::new(), Kind::SetupMask, index as u32, tile as u32, length)?;
                let job = TileJob { index, stage, layer, tile };
                let part = Part::Mask { masks, block: None };
                self.compute.run(|| job.compute(part, &mut window, 0, frame.payload_mut()))?;
                channel.send(frame.finish())?;
            }
        }
        Ok(())
    }

    fn block(
        &self,
        channel: &mut dyn Channel,
        session: &mut Session,
        block: &Block,
        trace: &mut ServerTrace,
    ) -> Result<(), Error> {
        let Session { masks, windows, buffer, .. } = session;
        let weights = self.weights(channel)?;
        if let Some(layers) = &weights.coefficients {
            return layers.block(&self.plan, block.images as usize, (channel, &self.compute), buffer, trace);
        }
        let block = block.index;
        let mut first = None;
        if self.jobs(weights).next().is_some() {
            // Memory is for who sends something to work on.
            first = Some(channel.recv()?);
            channel.reserve(Reserve::SetUp(self.memory().set_up))?;
        }
        for (index, stage, layer) in self.jobs(weights) {
            let fresh = stage.mask != MaskMode::Shared;
            let (mut body, mut mask) = self.compute.run(|| -> Result<_, Error> {
                let body = windows.take(index, false, layer)?;
                Ok((body, fresh.then(|| windows.take(index, true, layer)).transpose()?))
            })?;
            let dropped = (stage.params.drop_bits(), stage.params.mask_drop_bits());
            for tile in 0..stage.tiles.len() {
                let request = first.take().map_or_else(|| channel.recv(), Ok)?;
                let start = Instant::now();
                let payload = request.expect_payload(
                    Kind::Request,
                    index as u32,
                    tile as u32,
                    stage.request_bytes(tile),
                )?;
                let (bodies, sent) =
                    payload.split_at(payload.len() / if stage.mask == MaskMode::Sent { 2 } else { 1 });
                let length = stage.response_bytes(tile);
                let mut frame = FrameBuilder::reuse(
                    std::mem::take(buffer),
                    Kind::Response,
                    index as u32,
                    tile as u32,
                    length,
                )?;
                let job = TileJob { index, stage, layer, tile };
                self.compute.run(|| {
                    let (c0, c1) = frame.payload_mut().split_at_mut(stage.response_body_bytes(tile));
                    job.compute(Part::Body(bodies), &mut body, dropped.0, c0)?;
                    match &mut mask {
                        Some(window) => {
                            let part = match stage.mask {
                                MaskMode::Sent => Part::Sent(sent),
                                _ => Part::Mask { masks: &*masks, block: Some(block) },
                            };
                            job.compute(part, window, dropped.1, c1)
                        }
                        None => Ok(()),
                    }
                })?;
                trace.stages[index].seconds += since(start);
                *buffer = request.into_buffer();
                channel.send(frame.finish())?;
            }
            windows.put(index, false, body);
            mask.into_iter().for_each(|m| windows.put(index, true, m));
        }
        Ok(())
    }
}

impl Served for ServerPlan {
    /// The frames in flight; from the first block on, the windows of ciphertext rows in work or kept for the next block.
    fn memory(&self) -> SessionMemory {
        let (mut largest, mut all, mut frames) = (0, 0_u64, 0);
        for s in self.plan.stages().iter().filter_map(Stage::linear) {
            let parts = if s.mask == MaskMode::Shared { 1 } else { 2 };
            let row = s.geometry.input_rows().1 as u64 * 8 * (s.params.ring_degree() as u64 + 136);
            let window = s.tiling().map_or(0, |t| t.window_rows() as u64).saturating_mul(row * parts);
            largest = window.max(largest);
            all = all.saturating_add(window);
            for t in 0..s.tiles.len() {
                let down = s.response_bytes(t).max(s.setup_bytes(t)) as u64;
                frames = frames.max(4 * s.request_bytes(t) as u64 + 3 * down);
            }
        }
        let packed = self.plan.stages().iter().filter_map(Stage::coefficients);
        frames = packed.map(CoefficientLayer::message_bytes).fold(frames, u64::max);
        // A window in work is not among those that are kept.
        let windows = all.min(largest.saturating_add(KEPT_BYTES as u64));
        SessionMemory { session: frames.saturating_add(1 << 20), set_up: windows, block: 0 }
    }

    fn largest_frame(&self) -> usize {
        self.plan.largest_frame()
    }

    fn preparation(&self) -> Preparation {
        self.weights.preparation().clone()
    }

    fn who_learns_what(&self) -> &'static str {
        "client-aided: the server learns shapes only; the client learns every pre-activation, from which weights can be solved for"
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

impl TileJob<'_> {
    /// Takes in the tile's new inputs and writes its outputs, without the `drop` low bits, packed.
    fn compute(&self, part: Part<'_>, window: &mut RowStore, drop: u32, out: &mut [u8]) -> Result<(), Error> {
        let params = &self.stage.params;
        let (n, k) = (params.ring_degree(), params.modulus_bits());
        let [channels, rows, columns] = self.stage.geometry.input_layout();
        let first = self.stage.tiles[self.tile].inputs[0];
        let bytes = pack::packed_len(n, k);
        let fill = |position: usize, range: Range<usize>, words: &mut [u64]| -> Result<(), Error> {
            match part {
                Part::Body(payload) | Part::Sent(payload) => {
                    // Ranges are whole bytes.
                    let at = |word: usize| position * bytes + word * k as usize / 8;
                    Ok(pack::unpack(&payload[at(range.start)..at(range.end)], k, words)?)
                }
                Part::Mask { masks, block } => {
                    let feature = GeometrySpec::feature_of(channels, rows, columns, first, position);
                    let id = MaskId { tensor: self.index as u32, feature: feature as u32, block };
                    Ok(masks.words(id, range.start, k, words)?)
                }
            }
        };
        let bias = matches!(part, Part::Body(_));
        self.layer.apply(self.tile, window, fill, (bias, drop), out)
    }
}
