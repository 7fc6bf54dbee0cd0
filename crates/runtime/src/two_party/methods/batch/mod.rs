//! Method `batch`: blocks of up to N images of a group in one ciphertext a feature ([`hushnet_layers::batch_shares`]).
//!
//! A stage takes two messages one after the other, as the packed method does: all tiles of all blocks of a group are requested, then
//! answered in the same order. Masks are numbered by (seed of the group's first image, index of the stage, block, feature).

mod client;
mod server;

use super::{
    internal, weight_count, ClientHalf, Job, LinearMethod, Opening, Parameters, Placed, Places, Preparing,
    ServerHalf, Shape, Stages, Wanted,
};
use crate::error::Error;
use crate::two_party::plan::TwoPartyPlan;
use hushnet_layers::batch::Geometry;
use hushnet_layers::batch_shares::{BatchShareClient, BlockId};
use hushnet_mpc::{CostModel, Party};
use hushnet_ring::pack;
use hushnet_rlwe::batch_shares::BatchShareSpec;
use hushnet_rlwe::BatchContext;
use std::sync::Arc;

/// The method.
pub(super) struct Batch;

/// Its stages in a plan.
struct Layout {
    context: BatchContext,
    stages: Stages<BatchShareClient>,
}

/// Images that run through a plan with batch stages together by default: a block, or what a session may hold.
pub(in crate::two_party) fn group(plan: &TwoPartyPlan) -> usize {
    largest_batch(plan.ring_degree(), plan.peak_elements())
}

/// What `group` says of a plan of so many shared elements of an image at once.
#[must_use]
pub fn largest_batch(ring_degree: usize, peak_elements: usize) -> usize {
    crate::two_party::server::largest_group(peak_elements).min(ring_degree)
}

/// First image and number of images of every block of a group.
fn blocks(images: usize, room: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    (0..images).step_by(room).map(move |first| (first, room.min(images - first)))
}

/// Names the masks of a block.
fn id<'a>(job: &Job<'a>, block: usize) -> Result<BlockId<'a>, Error> {
    let seed = job.seeds.first().ok_or_else(|| internal("a group without images"))?;
    Ok(BlockId { seed, stage: job.stage as u32, block: block as u32 })
}

impl LinearMethod for Batch {
    fn family(&self) -> &'static str {
        "batch"
    }

    fn check(&self, w: &Wanted<'_>) -> Result<(), String> {
        let (ring_degree, ring_bits, weight_l2) = (w.ring_degree, w.ring_bits, w.weight_l2);
        let chosen = BatchShareSpec { ring_degree, ring_bits, weight_l2 }.choose();
        chosen.map(drop).map_err(|e| e.to_string())
    }

    fn parameters(&self, ring_degree: usize, ring_bits: u32, weight_l2: f64) -> Result<Parameters, String> {
        let spec = BatchShareSpec { ring_degree, ring_bits, weight_l2 };
        let params = spec.choose().map_err(|e| e.to_string())?;
        Ok(Parameters {
            modulus_bits: params.modulus_bits(),
            response_bits: params.response_bits(),
            noise_bits: spec.noise().log2(),
            unit_fraction: spec.off_by_one_fraction(),
        })
    }

    /// The largest norm of the weights of one output.
    fn norm(&self, geometry: &Geometry, _: usize, weights: &[i16]) -> Result<f64, String> {
        weight_count(geometry, weights)?;
        let row = |row: &[i16]| row.iter().map(|w| u64::from(w.unsigned_abs()).pow(2)).sum::<u64>();
        let rows = weights.chunks_exact((weights.len() / geometry.biases().max(1)).max(1));
        Ok((rows.map(row).max().unwrap_or(0) as f64).sqrt())
    }

    fn batches(&self) -> bool {
        true
    }

    fn places(&self, plan: &TwoPartyPlan, stages: &[Placed<'_>]) -> Result<Option<Arc<dyn Places>>, Error> {
        if stages.is_empty() {
            return Ok(None);
        }
        let (context, bits) = (BatchContext::new(plan.ring_degree())?, plan.ring().bits());
        let stages = Stages::new(stages, |s| {
            Ok(BatchShareClient::new(&context, &s.linear.geometry.checked()?, bits, s.linear.weight_l2)?)
        })?;
        Ok(Some(Arc::new(Layout { context, stages })))
    }
}

impl Layout {
    /// Bits of the public key's words: the widest modulus of a stage.
    fn key_bits(&self) -> u32 {
        self.stages.values().map(|s| s.params().modulus_bits()).max().unwrap_or(0)
    }
}

impl Places for Layout {
    fn shape(&self, stage: usize) -> Option<&dyn Shape> {
        self.stages.shape(stage)
    }

    fn key_len(&self) -> usize {
        32 + pack::packed_len(self.context.ring_degree(), self.key_bits())
    }

    fn working_bytes(&self) -> usize {
        self.stages.values().map(BatchShareClient::window_bytes).max().unwrap_or(0)
    }

    fn open(self: Arc<Self>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
        client::open(self, opening)
    }

    fn prepare(self: Arc<Self>, preparing: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error> {
        server::prepare(self, preparing)
    }
}

impl Shape for BatchShareClient {
    fn tiles(&self) -> usize {
        self.tiles()
    }

    fn request_len(&self) -> usize {
        let longest = (0..self.tiles()).map(|t| self.request_len(t, self.room())).max().unwrap_or(0);
        longest.div_ceil(self.room())
    }

    fn cost(&self, m: &mut CostModel, images: usize) {
        let tiles = || blocks(images, self.room()).flat_map(|(_, n)| (0..self.tiles()).map(move |t| (t, n)));
        for (tile, n) in tiles() {
            m.depart_late(Party::One, self.request_len(tile, n) as u64);
        }
        for (tile, n) in tiles() {
            if self.request_len(tile, n) > 0 {
                m.arrive_late(Party::Zero);
            }
            m.depart_late(Party::Zero, self.answer_len(tile, n) as u64);
        }
        for (tile, n) in tiles() {
            if self.answer_len(tile, n) > 0 {
                m.arrive_late(Party::One);
            }
        }
    }

    fn held_by_client(&self, _: u64) -> u64 {
        let tile = |t| self.request_len(t, self.room()).saturating_add(self.answer_len(t, self.room()));
        2 * (0..self.tiles()).map(tile).max().unwrap_or(0) as u64
    }
}
