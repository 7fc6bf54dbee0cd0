//! Linear stages of method `batch`: blocks of up to N images of a group in one ciphertext a feature.
//!
//! A stage takes two messages one after the other, as the packed method does: all tiles of all blocks of a group are requested, then
//! answered in the same order. Masks are numbered by (seed of the group's first image, index of the stage, block, feature).

use super::plan::{Kind, Method, TwoPartyPlan};
use super::{layer_error, peer_words};
use crate::compute::Compute;
use crate::error::Error;
use crate::plan::PlanError;
use hushnet_layers::batch_shares::{BatchShareClient, BatchShareLinear, BlockId};
use hushnet_mpc::{Channel, CostModel, Party};
use hushnet_ring::{ledger, pack, Prg};
use hushnet_rlwe::batch_shares::{ShareKey, SharePublicKey, ShareServer};
use hushnet_rlwe::{uses, BatchContext};

/// The batch stages of a plan, as both parties derive them from its public part.
pub(super) struct Layers {
    /// `None` when the plan has no batch stages.
    context: Option<BatchContext>,
    stages: Vec<Option<BatchShareClient>>,
}

/// One stage of a group of images at one party.
pub(super) struct Job<'a> {
    pub index: usize,
    /// The party's share of the input tensors, image by image.
    pub share: &'a [u64],
    pub seeds: &'a [[u8; 32]],
    pub compute: &'a Compute,
}

/// Images that run through a plan with batch stages together by default: a block, or what a session may hold.
pub(super) fn group(plan: &TwoPartyPlan) -> usize {
    largest_batch(plan.ring_degree(), plan.peak_elements())
}

/// [`group`] of a plan of so many shared elements of an image at once.
#[must_use]
pub fn largest_batch(ring_degree: usize, peak_elements: usize) -> usize {
    super::server::largest_group(peak_elements).min(ring_degree)
}

/// First image and number of images of every block of a group.
fn blocks(images: usize, room: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    (0..images).step_by(room).map(move |first| (first, room.min(images - first)))
}

impl Job<'_> {
    fn id(&self, block: usize) -> Result<BlockId<'_>, Error> {
        let seed = self.seeds.first().ok_or_else(|| Error::Internal("a group without images".into()))?;
        Ok(BlockId { seed, stage: self.index as u32, block: block as u32 })
    }
}

impl Layers {
    pub(super) fn new(plan: &TwoPartyPlan) -> Result<Self, Error> {
        let context = plan.has_batch().then(|| BatchContext::new(plan.ring_degree())).transpose()?;
        let stage = |kind: &Kind| match (kind, &context) {
            (Kind::Linear(l), Some(context)) if l.method == Method::Batch => {
                let geometry = l.geometry.checked()?;
                Ok(Some(BatchShareClient::new(context, &geometry, plan.ring().bits(), l.weight_l2)?))
            }
            _ => Ok(None),
        };
        let stages = plan.stages().iter().map(|s| stage(&s.kind)).collect::<Result<_, Error>>()?;
        Ok(Self { context, stages })
    }

    fn stage(&self, index: usize) -> Result<&BatchShareClient, Error> {
        let missing = || Error::Internal("a batch stage has no shapes".into());
        self.stages[index].as_ref().ok_or_else(missing)
    }

    /// Tiles of a block of a stage; 0 for other stages.
    pub(super) fn tiles(&self, index: usize) -> usize {
        self.stages[index].as_ref().map_or(0, BatchShareClient::tiles)
    }

    /// Tiles of every stage, with the bytes of its largest request for one image of a full block.
    pub(super) fn requests(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.stages.iter().flatten().map(|s| {
            let longest = (0..s.tiles()).map(|t| s.request_len(t, s.room())).max().unwrap_or(0);
            (s.tiles(), longest.div_ceil(s.room()))
        })
    }

    /// Bytes of the longest request and answer of a stage.
    pub(super) fn held_by_client(&self, index: usize) -> u64 {
        let Some(s) = &self.stages[index] else { return 0 };
        let tile = |t| s.request_len(t, s.room()).saturating_add(s.answer_len(t, s.room()));
        2 * (0..s.tiles()).map(tile).max().unwrap_or(0) as u64
    }

    /// Bytes of ciphertexts that a server holds at once, at most.
    pub(super) fn window_bytes(&self) -> usize {
        self.stages.iter().flatten().map(BatchShareClient::window_bytes).max().unwrap_or(0)
    }

    /// Bits of the public key's words: the widest modulus of a stage; 0 without batch stages.
    fn key_bits(&self) -> u32 {
        self.stages.iter().flatten().map(|s| s.params().modulus_bits()).max().unwrap_or(0)
    }

    /// Bytes of the public key's message; 0 without batch stages.
    pub(super) fn key_len(&self) -> usize {
        let len = |c: &BatchContext| 32 + pack::packed_len(c.ring_degree(), self.key_bits());
        self.context.as_ref().map_or(0, len)
    }

    /// Makes a key and sends its public part: seed, then pk0.
    pub(super) fn send_key(
        &self,
        channel: &mut dyn Channel,
        prg: &mut Prg,
    ) -> Result<Option<ShareKey>, Error> {
        let Some(context) = &self.context else { return Ok(None) };
        let key = ShareKey::generate(context, prg)?;
        let mut seed = [0; 32];
        prg.fill_bytes(&mut seed);
        ledger::bytes(uses::SEED, &mut seed);
        let public = key.public_key(seed, self.key_bits(), prg)?;
        let mut message = vec![0; self.key_len()];
        message[..32].copy_from_slice(&public.seed);
        pack::pack(&public.pk0, public.bits, &mut message[32..])?;
        channel.send(&message)?;
        channel.flush()?;
        Ok(Some(key))
    }

    /// Receives a client's public key.
    pub(super) fn recv_key(&self, channel: &mut dyn Channel) -> Result<Option<ShareServer>, Error> {
        let Some(context) = &self.context else { return Ok(None) };
        let mut message = vec![0; self.key_len()];
        channel.recv(&mut message)?;
        let mut seed = [0; 32];
        seed.copy_from_slice(&message[..32]);
        let mut pk0 = vec![0; context.ring_degree()];
        let bits = self.key_bits();
        pack::unpack(&message[32..], bits, &mut pk0)?;
        Ok(Some(ShareServer::new(context, &SharePublicKey { seed, bits, pk0 }).map_err(|e| peer_words(&e))?))
    }

    /// Traffic of a stage: all requests leave at once; the server answers tile by tile.
    pub(super) fn cost(&self, m: &mut CostModel, index: usize, images: usize) {
        let Some(stage) = &self.stages[index] else { return };
        let tiles =
            || blocks(images, stage.room()).flat_map(|(_, n)| (0..stage.tiles()).map(move |t| (t, n)));
        for (tile, n) in tiles() {
            m.depart_late(Party::One, stage.request_len(tile, n) as u64);
        }
        for (tile, n) in tiles() {
            if stage.request_len(tile, n) > 0 {
                m.arrive_late(Party::Zero);
            }
            m.depart_late(Party::Zero, stage.answer_len(tile, n) as u64);
        }
        for (tile, n) in tiles() {
            if stage.answer_len(tile, n) > 0 {
                m.arrive_late(Party::One);
            }
        }
    }

    /// The client's side of a stage: its share of the output tensors.
    pub(super) fn ask(
        &self,
        channel: &mut dyn Channel,
        key: &ShareKey,
        job: &Job<'_>,
    ) -> Result<Vec<u64>, Error> {
        let stage = self.stage(job.index)?;
        let (images, inputs, outputs) = (job.seeds.len(), stage.inputs(), stage.outputs());
        for (block, (first, n)) in blocks(images, stage.room()).enumerate() {
            let (id, share) = (job.id(block)?, &job.share[first * inputs..(first + n) * inputs]);
            for tile in 0..stage.tiles() {
                let request = job.compute.run(|| stage.request(key, id, tile, share)).map_err(layer_error)?;
                channel.send(&request)?;
                channel.flush()?;
            }
        }
        let mut own = vec![0; images * outputs];
        let mut answer = Vec::new();
        for (first, n) in blocks(images, stage.room()) {
            let own = &mut own[first * outputs..(first + n) * outputs];
            for tile in 0..stage.tiles() {
                answer.resize(stage.answer_len(tile, n), 0);
                channel.recv(&mut answer)?;
                job.compute.run(|| stage.open(key, tile, &answer, own)).map_err(layer_error)?;
            }
        }
        Ok(own)
    }

    /// Prepares the weights of all batch stages.
    pub(super) fn prepare(&self, plan: &TwoPartyPlan) -> Result<Vec<Option<BatchShareLinear>>, Error> {
        let Some(context) = &self.context else { return Ok(plan.stages().iter().map(|_| None).collect()) };
        let mut prepared = Vec::with_capacity(plan.stages().len());
        for stage in plan.stages() {
            let Kind::Linear(l) = &stage.kind else {
                prepared.push(None);
                continue;
            };
            if l.method != Method::Batch {
                prepared.push(None);
                continue;
            }
            let missing = || PlanError::Structure("a linear stage has no weights".into());
            let weights = l.weights.as_ref().ok_or_else(missing)?;
            let words: &[i16] = &weights.weights.to_i16();
            let (geometry, bits) = (l.geometry.checked()?, plan.ring().bits());
            let linear =
                BatchShareLinear::new(context, &geometry, words, &weights.bias, bits, Some(l.weight_l2))?;
            if linear.client().params().spec().weight_l2 > l.weight_l2 {
                let detail = format!(
                    "weight_l2 {} is below the norm of a row of weights; the plan is wrong, compile the model again",
                    l.weight_l2
                );
                return Err(PlanError::Linear { stage: stage.name.clone(), detail }.into());
            }
            prepared.push(Some(linear));
        }
        Ok(prepared)
    }
}

/// The server's side of a stage: answers tiles as they come; its share of the output tensors.
pub(super) fn answer(
    channel: &mut dyn Channel,
    layer: &BatchShareLinear,
    key: &ShareServer,
    job: &Job<'_>,
) -> Result<Vec<u64>, Error> {
    let stage = layer.client();
    let (images, inputs, outputs) = (job.seeds.len(), stage.inputs(), stage.outputs());
    let mut own = vec![0; images * outputs];
    let mut request = Vec::new();
    for (block, (first, n)) in blocks(images, stage.room()).enumerate() {
        let (id, share) = (job.id(block)?, &job.share[first * inputs..(first + n) * inputs]);
        let own = &mut own[first * outputs..(first + n) * outputs];
        let mut window = job.compute.run(|| layer.window(key, n)).map_err(layer_error)?;
        for tile in 0..stage.tiles() {
            request.resize(stage.request_len(tile, n), 0);
            channel.recv(&mut request)?;
            let answer = job
                .compute
                .run(|| layer.answer(&mut window, id, tile, &request, share, own))
                .map_err(layer_error)?;
            channel.send(&answer)?;
            channel.flush()?;
        }
    }
    Ok(own)
}
