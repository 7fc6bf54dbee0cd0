//! Method `cheetah`: one image packed in coefficients, products of polynomials ([`hushnet_layers::cheetah`]).
//!
//! The client's key ([`PackedPublicKey`]) travels in every session, whether a stage uses it or not.

mod client;
mod server;

use super::coefficients::{self, Staged};
use super::tiles::{self, Tiled};
use super::{
    weight_count, ClientHalf, Keeping, LinearMethod, Opening, Parameters, Placed, Places, Preparing,
    ServerHalf, Shape, Stages, Wanted,
};
use crate::error::Error;
use crate::two_party::plan::TwoPartyPlan;
use hushnet_layers::batch::Geometry;
use hushnet_layers::cheetah::{choose_layout, keeping_uses, prepared_bytes, CheetahClient};
use hushnet_mpc::CostModel;
use hushnet_rlwe::packed::{PackedContext, PackedPublicKey, PackedSpec};
use std::sync::Arc;

/// The method.
pub(super) struct Cheetah;

/// Its stages in a plan.
struct Layout {
    context: PackedContext,
    stages: Stages<CheetahClient>,
}

impl LinearMethod for Cheetah {
    fn family(&self) -> &'static str {
        "cheetah"
    }

    fn check(&self, w: &Wanted<'_>) -> Result<(), String> {
        let spec = PackedSpec { ring_degree: w.ring_degree, ring_bits: w.ring_bits, weight_l2: w.weight_l2 };
        spec.choose().map(drop).map_err(|e| e.to_string())
    }

    fn parameters(&self, ring_degree: usize, ring_bits: u32, weight_l2: f64) -> Result<Parameters, String> {
        coefficients::parameters(&PackedSpec { ring_degree, ring_bits, weight_l2 })
    }

    fn norm(&self, geometry: &Geometry, ring_degree: usize, weights: &[i16]) -> Result<f64, String> {
        weight_count(geometry, weights)?;
        let layout = choose_layout(geometry, ring_degree);
        Ok((layout.map_err(|e| e.to_string())?.weight_norm2(weights) as f64).sqrt())
    }

    fn places(&self, plan: &TwoPartyPlan, stages: &[Placed<'_>]) -> Result<Option<Arc<dyn Places>>, Error> {
        let (context, bits) = (PackedContext::new(plan.ring_degree())?, plan.ring().bits());
        let stages = Stages::new(stages, |s| {
            Ok(CheetahClient::new(&context, &s.linear.geometry.checked()?, bits, s.linear.weight_l2)?)
        })?;
        Ok(Some(Arc::new(Layout { context, stages })))
    }
}

impl Places for Layout {
    fn shape(&self, stage: usize) -> Option<&dyn Shape> {
        self.stages.shape(stage)
    }

    fn key_len(&self) -> usize {
        PackedPublicKey::byte_len(self.context.ring_degree())
    }

    fn open(self: Arc<Self>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
        client::open(self, opening)
    }

    fn prepare(self: Arc<Self>, preparing: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error> {
        server::prepare(self, preparing)
    }
}

impl Staged for Layout {
    type Stage = CheetahClient;

    fn stages(&self) -> &Stages<CheetahClient> {
        &self.stages
    }
}

impl Tiled for CheetahClient {
    fn elements(&self) -> (usize, usize) {
        (self.packing().input_len(), self.packing().output_len())
    }

    fn answer_len(&self, _: usize) -> usize {
        self.answer_len()
    }
}

impl Shape for CheetahClient {
    fn tiles(&self) -> usize {
        self.tiles()
    }

    fn request_len(&self) -> usize {
        self.request_len()
    }

    fn cost(&self, model: &mut CostModel, images: usize) {
        tiles::cost(self, model, images);
    }

    fn held_by_client(&self, _: u64) -> u64 {
        tiles::held_by_client(self)
    }

    fn keeping(&self) -> Option<Keeping> {
        Some(Keeping { uses: keeping_uses(self.packing()), bytes: prepared_bytes(self.packing()) })
    }
}
