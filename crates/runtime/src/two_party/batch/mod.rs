//! Linear stages of method `batch`: blocks of up to N images of a group in one ciphertext a feature.
//!
//! A stage takes two messages one after the other, as the packed method does: all tiles of all blocks of a group are requested, then
//! answered in the same order. Masks are numbered by (seed of the group's first image, index of the stage, block, feature).

pub(super) mod client;
pub(super) mod server;

use super::plan::{Kind, Method, TwoPartyPlan};
use crate::compute::Compute;
use crate::error::Error;
use hushnet_layers::batch_shares::{BatchShareClient, BlockId};
use hushnet_mpc::{CostModel, Party};
use hushnet_ring::pack;
use hushnet_rlwe::BatchContext;

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
}
