//! Method `convfhe`: one image packed in coefficients, output channels merged at the server ([`hushnet_layers::convfhe`]).
//!
//! The client sends its public key at N = 4096, then merging keys for the largest spacing of a stage.

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
use hushnet_layers::convfhe::{ConvFheClient, ConvFheContext, ConvFheDesign, DEFAULT_PRICES, RING_DEGREE};
use hushnet_layers::layout;
use hushnet_mpc::CostModel;
use std::sync::Arc;

/// The method.
pub(super) struct ConvFhe;

/// Its stages in a plan.
struct Layout {
    context: ConvFheContext,
    /// Largest spacing of a stage.
    spacing: usize,
    stages: Stages<ConvFheClient>,
}

impl LinearMethod for ConvFhe {
    fn family(&self) -> &'static str {
        "convfhe"
    }

    fn check(&self, w: &Wanted<'_>) -> Result<(), String> {
        ConvFheDesign::check(w.geometry, w.ring_bits, w.weight_l2).map_err(|e| e.to_string())
    }

    fn parameters(&self, _: usize, ring_bits: u32, weight_l2: f64) -> Result<Parameters, String> {
        let spec = ConvFheDesign::typical(ring_bits, weight_l2).map_err(|e| e.to_string())?;
        coefficients::parameters(&spec)
    }

    fn norm(&self, geometry: &Geometry, _: usize, weights: &[i16]) -> Result<f64, String> {
        weight_count(geometry, weights)?;
        let layout = layout::Layout::choose(geometry, RING_DEGREE, &DEFAULT_PRICES);
        Ok((layout.map_err(|e| e.to_string())?.weight_norm2(weights) as f64).sqrt())
    }

    fn places(&self, plan: &TwoPartyPlan, stages: &[Placed<'_>]) -> Result<Option<Arc<dyn Places>>, Error> {
        if stages.is_empty() {
            return Ok(None);
        }
        let (context, bits) = (ConvFheContext::new()?, plan.ring().bits());
        let stages = Stages::new(stages, |s| {
            let geometry = s.linear.geometry.checked()?;
            Ok(ConvFheClient::new(&ConvFheDesign::new(&context, &geometry, bits, s.linear.weight_l2)?))
        })?;
        let spacing = stages.values().map(|s| s.design().layout().spacing()).max().unwrap_or(1);
        Ok(Some(Arc::new(Layout { context, spacing, stages })))
    }
}

impl Places for Layout {
    fn shape(&self, stage: usize) -> Option<&dyn Shape> {
        self.stages.shape(stage)
    }

    fn key_len(&self) -> usize {
        ConvFheDesign::public_key_len() + self.context.merge().keys_len(self.spacing)
    }

    fn open(self: Arc<Self>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
        client::open(self, opening)
    }

    fn prepare(self: Arc<Self>, preparing: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error> {
        server::prepare(self, preparing)
    }
}

impl Staged for Layout {
    type Stage = ConvFheClient;

    fn stages(&self) -> &Stages<ConvFheClient> {
        &self.stages
    }
}

impl Tiled for ConvFheClient {
    fn elements(&self) -> (usize, usize) {
        (self.design().layout().input_len(), self.design().layout().output_len())
    }

    fn answer_len(&self, _: usize) -> usize {
        self.design().answer_len()
    }
}

impl Shape for ConvFheClient {
    fn tiles(&self) -> usize {
        self.design().tiles()
    }

    fn request_len(&self) -> usize {
        self.design().request_len()
    }

    fn cost(&self, model: &mut CostModel, images: usize) {
        tiles::cost(self, model, images);
    }

    fn held_by_client(&self, _: u64) -> u64 {
        tiles::held_by_client(self)
    }

    fn keeping(&self) -> Option<Keeping> {
        Some(Keeping { uses: self.design().tiles(), bytes: self.design().prepared_bytes() })
    }
}
