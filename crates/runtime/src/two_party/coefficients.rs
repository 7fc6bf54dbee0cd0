//! Linear stages of the methods `rotation-free` and `convfhe`: one image packed in coefficients, as `cheetah`, with other ciphertexts.
//!
//! After the client's other keys, the client sends what `convfhe` needs (seed and pk0 at N = 4096, then merging keys). Where there are
//! `rotation-free` stages, the client then says how many polynomials it holds of each one's set-up (u32), the server sends all others: once
//! a session, one polynomial after the other as the client reads them. Both derive the headers of set-ups from the public plan
//! ([`setup_seed`]). A stage takes two messages one after the other: the client requests all tiles of all images, then reads the answers.
//! Masks of `convfhe` are numbered as those of `cheetah`; rotation-free queries carry secrets of their own.

use super::plan::{Kind, Method, TwoPartyPlan};
use super::stored::{Folder, Kept};
use super::{layer_error, peer_words};
use crate::compute::Compute;
use crate::error::{Error, ProtocolError};
use crate::plan::PlanError;
use hushnet_layers::batch::{Geometry, LayerError};
use hushnet_layers::convfhe::{
    ConvFheClient, ConvFheContext, ConvFheDesign, ConvFheLinear, ConvFheSession, RING_DEGREE,
};
use hushnet_layers::rotation_free::{
    Design, Profile, RotationFreeClient, RotationFreeLinear, Setup, WeightBounds,
};
use hushnet_mpc::{Channel, CostModel, Party};
use hushnet_ring::{ledger, pack, Prg};
use hushnet_rlwe::pack_lwe::MergeKeys;
use hushnet_rlwe::packed::{PackedClient, PackedPublicKey, PackedServer, PRIME_BITS};
use hushnet_rlwe::uses;
use sha2::{Digest, Sha256};

/// The stages of both methods, as both parties derive them from the public part of a plan.
pub(super) struct Layers {
    /// `None` when no stage is `convfhe`.
    convfhe: Option<ConvFheContext>,
    /// Largest spacing of a `convfhe` stage.
    spacing: usize,
    stages: Vec<Option<Places>>,
}

enum Places {
    RotationFree(Box<Design>),
    ConvFhe(Box<ConvFheClient>),
}

/// The prepared weights of one stage.
pub(super) enum Prepared {
    RotationFree(Box<RotationFreeLinear>),
    ConvFhe(Box<ConvFheLinear>),
}

/// What a client holds for a session.
pub(super) struct ClientState {
    convfhe: Option<PackedClient>,
    rotation_free: Vec<Option<RotationFreeClient>>,
    /// Bytes of set-ups that needed not be sent.
    pub(super) held: usize,
}

/// What a server holds of a session.
pub(super) struct ServerState {
    convfhe: Option<ConvFheSession>,
    /// Bytes of set-ups that needed not be sent.
    pub(super) held: usize,
}

/// Bytes of a stage's set-up.
#[derive(Clone, Copy)]
pub(super) struct SetupBytes {
    /// In evaluation form, as the client works with it.
    pub prepared: u64,
    /// On the wire.
    pub sent: u64,
    /// In a file.
    pub stored: u64,
}

/// One stage of a group of images at one party.
pub(super) struct Job<'a> {
    pub index: usize,
    /// The party's share of the input tensors, image by image.
    pub share: &'a [u64],
    pub seeds: &'a [[u8; 32]],
    pub compute: &'a Compute,
}

/// The design of a rotation-free stage: the smallest ring degree that is secure for the stated norm.
///
/// # Errors
/// [`LayerError`] when none is.
pub fn rotation_free_design(
    geometry: &Geometry,
    ring_bits: u32,
    weight_l2: f64,
    stage: u32,
) -> Result<Design, LayerError> {
    let bounds = WeightBounds { l2: weight_l2, bits: 16 };
    Design::smallest(geometry, ring_bits, bounds, Profile::Compact, stage)
}

/// That a stage has parameters; the server checks the weights besides.
pub(super) fn check(
    method: Method,
    geometry: &crate::plan::GeometrySpec,
    ring_bits: u32,
    weight_l2: f64,
) -> Result<(), String> {
    let geometry = match method {
        Method::RotationFree | Method::ConvFhe => geometry.checked().map_err(|e| e.to_string())?,
        Method::Cheetah | Method::Batch | Method::Gala | Method::Gazelle => return Ok(()),
    };
    match method {
        Method::RotationFree => rotation_free_design(&geometry, ring_bits, weight_l2, 0).map(drop),
        _ => ConvFheDesign::check(&geometry, ring_bits, weight_l2),
    }
    .map_err(|e| e.to_string())
}

/// The seed of b of a stage: a hash of the public plan, so that no server gives a client a name of its own to come back with.
fn setup_seed(plan_digest: &[u8; 32], stage: usize) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"hushnet set-up");
    hash.update(plan_digest);
    hash.update((stage as u64).to_le_bytes());
    hash.finalize().into()
}

fn internal(detail: &str) -> Error {
    Error::Internal(detail.into())
}

impl Places {
    fn tiles(&self) -> usize {
        match self {
            Places::RotationFree(d) => d.layout().tiles(),
            Places::ConvFhe(c) => c.design().tiles(),
        }
    }

    fn request_len(&self) -> usize {
        match self {
            Places::RotationFree(d) => d.request_len(),
            Places::ConvFhe(c) => c.design().request_len(),
        }
    }

    fn answer_len(&self, tile: usize) -> usize {
        match self {
            Places::RotationFree(d) => d.answer_len(tile),
            Places::ConvFhe(c) => c.design().answer_len(tile),
        }
    }

    fn lengths(&self) -> (usize, usize) {
        let layout = match self {
            Places::RotationFree(d) => d.layout(),
            Places::ConvFhe(c) => c.design().layout(),
        };
        (layout.input_len(), layout.output_len())
    }
}

impl Layers {
    pub(super) fn new(plan: &TwoPartyPlan) -> Result<Self, Error> {
        let methods = || {
            plan.stages()
                .iter()
                .filter_map(|s| if let Kind::Linear(l) = &s.kind { Some(l.method) } else { None })
        };
        let convfhe =
            if methods().any(|m| m == Method::ConvFhe) { Some(ConvFheContext::new()?) } else { None };
        let (bits, mut spacing) = (plan.ring().bits(), 1);
        let mut stages = Vec::with_capacity(plan.stages().len());
        for (index, stage) in plan.stages().iter().enumerate() {
            let Kind::Linear(l) = &stage.kind else {
                stages.push(None);
                continue;
            };
            stages.push(match (l.method, &convfhe) {
                (Method::RotationFree, _) => {
                    let geometry = l.geometry.checked()?;
                    let design = rotation_free_design(&geometry, bits, l.weight_l2, index as u32)?;
                    Some(Places::RotationFree(Box::new(design)))
                }
                (Method::ConvFhe, Some(context)) => {
                    let design = ConvFheDesign::new(context, &l.geometry.checked()?, bits, l.weight_l2)?;
                    spacing = spacing.max(design.layout().spacing());
                    Some(Places::ConvFhe(Box::new(ConvFheClient::new(&design))))
                }
                _ => None,
            });
        }
        Ok(Self { convfhe, spacing, stages })
    }

    fn stage(&self, index: usize) -> Result<&Places, Error> {
        self.stages[index].as_ref().ok_or_else(|| internal("a linear stage has no places"))
    }

    /// Tiles of a stage; 0 for stages of other methods.
    pub(super) fn tiles(&self, index: usize) -> usize {
        self.stages[index].as_ref().map_or(0, Places::tiles)
    }

    /// Tiles of every stage, with the bytes of a request.
    pub(super) fn requests(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.stages.iter().flatten().map(|s| (s.tiles(), s.request_len()))
    }

    /// Bytes of the keys that the client sends; 0 without `convfhe` stages.
    pub(super) fn keys_len(&self) -> usize {
        let keys = |c: &ConvFheContext| {
            32 + pack::packed_len(RING_DEGREE, PRIME_BITS) + c.merge().keys_len(self.spacing)
        };
        self.convfhe.as_ref().map_or(0, keys)
    }

    fn rotation_free(&self) -> impl Iterator<Item = &Design> + '_ {
        self.stages.iter().flatten().filter_map(|s| match s {
            Places::RotationFree(d) => Some(&**d),
            Places::ConvFhe(_) => None,
        })
    }

    /// Bytes of set-ups: what the client says that it holds, all polynomials.
    pub(super) fn setup_lens(&self) -> [usize; 2] {
        self.rotation_free().fold([0; 2], |[answer, polys], d| {
            [answer + 4, polys + d.layout().cost().weight_polys * d.setup_poly_len()]
        })
    }

    /// Bytes of a polynomial of a stage's set-up.
    #[cfg(test)]
    pub(super) fn setup_poly_len(&self, index: usize) -> usize {
        match &self.stages[index] {
            Some(Places::RotationFree(d)) => d.setup_poly_len(),
            _ => 0,
        }
    }

    /// Set-ups with the stage that each belongs to.
    pub(super) fn setups(&self) -> impl Iterator<Item = (usize, SetupBytes)> + '_ {
        self.stages.iter().enumerate().filter_map(|(index, stage)| match stage {
            Some(Places::RotationFree(d)) => {
                let polys = d.layout().cost().weight_polys;
                let sent = polys.saturating_mul(d.setup_poly_len()) as u64;
                Some((
                    index,
                    SetupBytes {
                        prepared: d.prepared_bytes() as u64,
                        sent,
                        stored: d.stored_len(polys) as u64,
                    },
                ))
            }
            _ => None,
        })
    }

    /// Bytes of a stage's requests: those of rotation-free stages are all held until their answers come, of convfhe one at a time.
    pub(super) fn held_by_client(&self, index: usize, images: u64) -> u64 {
        let Some(stage) = &self.stages[index] else { return 0 };
        let answers = (0..stage.tiles()).map(|t| stage.answer_len(t)).max().unwrap_or(0) as u64;
        let message = 2 * (stage.request_len() as u64).saturating_add(answers);
        let queries = match stage {
            Places::RotationFree(d) => (stage.tiles() as u64).saturating_mul(d.query_bytes() as u64),
            Places::ConvFhe(_) => 0,
        };
        message.saturating_add(queries.saturating_mul(images))
    }

    /// Traffic of a stage: all requests leave at once; the server answers tile by tile.
    pub(super) fn cost(&self, m: &mut CostModel, index: usize, images: usize) {
        let Some(stage) = &self.stages[index] else { return };
        let tiles = || (0..images).flat_map(|_| 0..stage.tiles());
        for _ in tiles() {
            m.depart_late(Party::One, stage.request_len() as u64);
        }
        for tile in tiles() {
            m.arrive_late(Party::Zero);
            m.depart_late(Party::Zero, stage.answer_len(tile) as u64);
        }
        for _ in tiles() {
            m.arrive_late(Party::One);
        }
    }

    /// The client's part of the set-up.
    pub(super) fn open(
        &self,
        channel: &mut dyn Channel,
        compute: &Compute,
        prg: &mut Prg,
        stored: (&[u8; 32], Option<&Folder>),
    ) -> Result<ClientState, Error> {
        let mut convfhe = None;
        if let Some(context) = &self.convfhe {
            let key = PackedClient::generate(context.packed(), prg)?;
            let (mut seed, mut merge_seed) = ([0; 32], [0; 32]);
            prg.fill_bytes(&mut seed);
            prg.fill_bytes(&mut merge_seed);
            for seed in [&mut seed, &mut merge_seed] {
                ledger::bytes(uses::SEED, seed);
            }
            let public = key.public_key(&seed, prg)?;
            let keys = compute.run(|| {
                MergeKeys::for_client(context.merge(), &key, self.spacing, &merge_seed, prg)?.to_bytes()
            })?;
            let mut message = vec![0; self.keys_len()];
            let (head, rest) = message.split_at_mut(32 + pack::packed_len(RING_DEGREE, PRIME_BITS));
            head[..32].copy_from_slice(&seed);
            pack::pack(&public.pk0, PRIME_BITS, &mut head[32..])?;
            rest.copy_from_slice(&keys);
            channel.send(&message)?;
            channel.flush()?;
            convfhe = Some(key);
        }
        let (rotation_free, held) = self.collect(channel, compute, stored)?;
        Ok(ClientState { convfhe, rotation_free, held })
    }

    /// The set-ups of all rotation-free stages: those of the folder, and what the server sends; and the bytes that it needed not.
    fn collect(
        &self,
        channel: &mut dyn Channel,
        compute: &Compute,
        (plan_digest, folder): (&[u8; 32], Option<&Folder>),
    ) -> Result<(Vec<Option<RotationFreeClient>>, usize), Error> {
        // Finished ones at once, so that their bytes need not wait.
        let mut clients: Vec<Option<RotationFreeClient>> = self.stages.iter().map(|_| None).collect();
        let (mut wanting, mut held, mut answer) = (Vec::new(), 0, Vec::new());
        for (index, stage) in self.stages.iter().enumerate() {
            let Some(Places::RotationFree(design)) = stage else { continue };
            let header = design.setup_header(&setup_seed(plan_digest, index));
            let mut kept = match folder {
                Some(folder) => folder.load(design, index, &header, setup_error)?,
                None => Kept::unstored(Setup::begin(design, &header).map_err(setup_error)?),
            };
            if kept.setup.received() == kept.setup.expected() {
                // What cannot be used is asked for again.
                match kept.client(design, compute) {
                    Ok(client) => clients[index] = Some(client),
                    Err(_) => kept = Kept::unstored(Setup::begin(design, &header).map_err(setup_error)?),
                }
            }
            held += kept.setup.received() * design.setup_poly_len();
            answer.extend_from_slice(&(kept.setup.received() as u32).to_le_bytes());
            if clients[index].is_none() {
                wanting.push((index, design, kept));
            }
        }
        if answer.is_empty() {
            return Ok((clients, 0));
        }
        channel.send(&answer)?;
        channel.flush()?;
        for (index, design, mut kept) in wanting {
            let mut poly = vec![0; design.setup_poly_len()];
            while kept.setup.received() < kept.setup.expected() {
                channel.recv(&mut poly)?;
                kept.receive(&poly)?;
            }
            clients[index] = Some(kept.client(design, compute).map_err(setup_error)?);
        }
        Ok((clients, held))
    }

    /// The server's part of the set-up.
    pub(super) fn serve(
        &self,
        channel: &mut dyn Channel,
        compute: &Compute,
        prepared: &[Option<Prepared>],
    ) -> Result<ServerState, Error> {
        let mut session = None;
        if let Some(context) = &self.convfhe {
            let mut message = vec![0; self.keys_len()];
            channel.recv(&mut message)?;
            let (head, rest) = message.split_at(32 + pack::packed_len(RING_DEGREE, PRIME_BITS));
            let mut seed = [0; 32];
            seed.copy_from_slice(&head[..32]);
            let mut pk0 = vec![0; RING_DEGREE];
            pack::unpack(&head[32..], PRIME_BITS, &mut pk0)?;
            let server = PackedServer::new(context.packed(), &seed, &PackedPublicKey { pk0 })
                .map_err(|e| peer_words(&e))?;
            let keys =
                MergeKeys::from_bytes(context.merge(), self.spacing, rest).map_err(|e| peer_words(&e))?;
            session = Some(ConvFheSession::new(server, keys));
        }
        let held = self.distribute(channel, compute, prepared)?;
        Ok(ServerState { convfhe: session, held })
    }

    /// Sends the set-ups of all rotation-free stages but what the client holds; returns the bytes of that.
    fn distribute(
        &self,
        channel: &mut dyn Channel,
        compute: &Compute,
        prepared: &[Option<Prepared>],
    ) -> Result<usize, Error> {
        let layers: Vec<&RotationFreeLinear> = prepared
            .iter()
            .flatten()
            .filter_map(|p| if let Prepared::RotationFree(linear) = p { Some(&**linear) } else { None })
            .collect();
        if layers.is_empty() {
            return Ok(0);
        }
        let mut answer = vec![0; 4 * layers.len()];
        channel.recv(&mut answer)?;
        let mut held = 0;
        for (linear, count) in layers.iter().zip(answer.chunks_exact(4)) {
            let count = count.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
            let polys = linear.design().layout().cost().weight_polys;
            if count > polys {
                let detail = format!("the client says that it holds {count} polynomials of {polys}");
                return Err(ProtocolError::Message { kind: "set-up of a linear stage", detail }.into());
            }
            held += count * linear.design().setup_poly_len();
            for k in count..polys {
                channel.send(&compute.run(|| linear.setup_poly(k))?)?;
            }
        }
        channel.flush()?;
        Ok(held)
    }

    /// The client's side of a stage: its share of the output tensors.
    pub(super) fn ask(
        &self,
        channel: &mut dyn Channel,
        state: &ClientState,
        job: &Job<'_>,
    ) -> Result<Vec<u64>, Error> {
        let stage = self.stage(job.index)?;
        let (inputs, outputs) = stage.lengths();
        let no_key = || internal("a session has no key for a stage");
        let mut own = vec![0; outputs * job.seeds.len()];
        let mut answer = Vec::new();
        match stage {
            Places::ConvFhe(client) => {
                let key = state.convfhe.as_ref().ok_or_else(no_key)?;
                for (seed, share) in job.seeds.iter().zip(job.share.chunks_exact(inputs)) {
                    for tile in 0..stage.tiles() {
                        let request = job
                            .compute
                            .run(|| client.request(key, seed, job.index as u32, tile, share))
                            .map_err(layer_error)?;
                        channel.send(&request)?;
                        channel.flush()?;
                    }
                }
                for own in own.chunks_exact_mut(outputs) {
                    for tile in 0..stage.tiles() {
                        answer.resize(stage.answer_len(tile), 0);
                        channel.recv(&mut answer)?;
                        job.compute.run(|| client.open(key, tile, &answer, own)).map_err(layer_error)?;
                    }
                }
            }
            Places::RotationFree(_) => {
                let client = state.rotation_free[job.index].as_ref().ok_or_else(no_key)?;
                let mut waiting = Vec::with_capacity(stage.tiles() * job.seeds.len());
                for share in job.share.chunks_exact(inputs) {
                    for tile in 0..stage.tiles() {
                        let (prepared, request) = job
                            .compute
                            .run(|| {
                                let mut prepared = client.prepare_blinds(tile)?;
                                let request = client.request(&mut prepared, share)?;
                                Ok((prepared, request))
                            })
                            .map_err(layer_error)?;
                        channel.send(&request)?;
                        channel.flush()?;
                        waiting.push(prepared);
                    }
                }
                // The client's own products run while the server answers.
                let mut waiting = waiting.into_iter();
                for own in own.chunks_exact_mut(outputs) {
                    for tile in 0..stage.tiles() {
                        let mut prepared = waiting.next().ok_or_else(|| internal("a query is missing"))?;
                        job.compute.run(|| client.complete(&mut prepared)).map_err(layer_error)?;
                        answer.resize(stage.answer_len(tile), 0);
                        channel.recv(&mut answer)?;
                        job.compute.run(|| client.open(&prepared, &answer, own)).map_err(layer_error)?;
                    }
                }
            }
        }
        Ok(own)
    }

    /// The server's side of a stage: answers tiles as they come; its share of the output tensors.
    pub(super) fn answer(
        &self,
        channel: &mut dyn Channel,
        prepared: &Prepared,
        state: &ServerState,
        job: &Job<'_>,
    ) -> Result<Vec<u64>, Error> {
        let stage = self.stage(job.index)?;
        let (inputs, outputs) = stage.lengths();
        let mut own = vec![0; outputs * job.seeds.len()];
        let mut request = vec![0; stage.request_len()];
        let images = job.seeds.iter().zip(job.share.chunks_exact(inputs)).zip(own.chunks_exact_mut(outputs));
        for ((seed, share), own) in images {
            for tile in 0..stage.tiles() {
                let answer = match prepared {
                    Prepared::RotationFree(linear) => {
                        let ready = job.compute.run(|| linear.share(tile, share)).map_err(layer_error)?;
                        channel.recv(&mut request)?;
                        job.compute.run(|| linear.answer(tile, &ready, &request, own))
                    }
                    Prepared::ConvFhe(linear) => {
                        let session = state
                            .convfhe
                            .as_ref()
                            .ok_or_else(|| internal("a session has no merging keys"))?;
                        channel.recv(&mut request)?;
                        let stage = job.index as u32;
                        job.compute.run(|| linear.answer(session, seed, stage, tile, &request, share, own))
                    }
                };
                channel.send(&answer.map_err(layer_error)?)?;
                channel.flush()?;
            }
        }
        Ok(own)
    }

    /// Tiles of a stage, and the bytes that its weights take in evaluation form.
    pub(super) fn prepared_bytes(&self, index: usize) -> Option<(usize, usize)> {
        let stage = self.stages[index].as_ref()?;
        let bytes = match stage {
            Places::RotationFree(d) => d.prepared_bytes(),
            Places::ConvFhe(c) => c.design().prepared_bytes(),
        };
        Some((stage.tiles(), bytes))
    }

    /// Prepares the weights of all stages of both methods: in evaluation form where `keep` says so, else transformed as they are needed.
    /// The digest is that of the public plan that clients receive.
    pub(super) fn prepare(
        &self,
        plan: &TwoPartyPlan,
        keep: &[bool],
        plan_digest: &[u8; 32],
    ) -> Result<Vec<Option<Prepared>>, Error> {
        let bits = plan.ring().bits();
        let mut out = Vec::with_capacity(plan.stages().len());
        for (index, ((stage, places), keep)) in plan.stages().iter().zip(&self.stages).zip(keep).enumerate() {
            let (Kind::Linear(l), Some(places)) = (&stage.kind, places) else {
                out.push(None);
                continue;
            };
            let missing = || PlanError::Structure("a linear stage has no weights".into());
            let weights = l.weights.as_ref().ok_or_else(missing)?;
            let words: &[i16] = &weights.weights.to_i16();
            let layout = match places {
                Places::RotationFree(d) => d.layout(),
                Places::ConvFhe(c) => c.design().layout(),
            };
            if layout.weight_len() == words.len() && (layout.weight_norm2(words) as f64).sqrt() > l.weight_l2
            {
                let detail = format!(
                    "weight_l2 {} is below the norm of the weights; the plan is wrong, compile the model again",
                    l.weight_l2
                );
                return Err(PlanError::Linear { stage: stage.name.clone(), detail }.into());
            }
            out.push(Some(match (places, &self.convfhe) {
                (Places::ConvFhe(_), Some(context)) => {
                    let geometry = l.geometry.checked()?;
                    let make = if *keep { ConvFheLinear::new } else { ConvFheLinear::streamed };
                    Prepared::ConvFhe(Box::new(make(context, &geometry, words, &weights.bias, bits)?))
                }
                (Places::RotationFree(design), _) => {
                    let mut prg = Prg::from_os()?;
                    let seeds = (setup_seed(plan_digest, index), &mut prg);
                    let linear = RotationFreeLinear::with_seed(design, words, &weights.bias, !keep, seeds)?;
                    Prepared::RotationFree(Box::new(linear))
                }
                _ => return Err(internal("a convfhe stage has no tables")),
            }));
        }
        Ok(out)
    }
}

impl Prepared {
    /// Bytes that the weights take.
    pub(super) fn weight_bytes(&self) -> usize {
        match self {
            Prepared::RotationFree(l) => l.weight_bytes(),
            Prepared::ConvFhe(l) => l.weight_bytes(),
        }
    }
}

/// An error of a set-up that the server sent.
fn setup_error(e: LayerError) -> Error {
    match e {
        LayerError::Setup(detail) => {
            ProtocolError::Message { kind: "set-up of a linear stage", detail: detail.into() }.into()
        }
        other => layer_error(other),
    }
}
