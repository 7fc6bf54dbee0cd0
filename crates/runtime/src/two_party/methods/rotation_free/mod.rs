//! Method `rotation-free`: one image packed in coefficients, one polynomial up, encrypted weights at the client
//! ([`hushnet_layers::rotation_free`]).
//!
//! There are no keys. The client says how many polynomials it holds of each stage's set-up (u32), the server sends all others: once a session,
//! one polynomial after the other as the client reads them. Both derive the headers of set-ups from the public plan ([`setup_seed`]). Queries
//! carry secrets of their own.

mod client;
mod server;

use super::tiles::{self, Tiled};
use super::{
    weight_count, ClientHalf, Keeping, LinearMethod, Opening, Parameters, Placed, Places, Preparing,
    ServerHalf, SetUpBytes, Shape, Stages, Wanted,
};
use crate::error::Error;
use crate::two_party::plan::TwoPartyPlan;
use hushnet_layers::batch::{Geometry, LayerError};
use hushnet_layers::layout;
use hushnet_layers::rotation_free::{Design, Profile, WeightBounds, DEFAULT_PRICES, DEGREES};
use hushnet_mpc::CostModel;
use hushnet_rlwe::one_poly::OnePolySpec;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The method.
pub(super) struct RotationFree;

/// Its stages in a plan.
struct Layout {
    stages: Stages<Design>,
}

/// The design of a stage: the smallest ring degree that is secure for the stated norm.
fn design(geometry: &Geometry, ring_bits: u32, weight_l2: f64, stage: u32) -> Result<Design, LayerError> {
    let bounds = WeightBounds { l2: weight_l2, bits: 16 };
    Design::smallest(geometry, ring_bits, bounds, Profile::Compact, stage)
}

/// The seed of b of a stage: a hash of the public plan, so that no server gives a client a name of its own to come back with.
fn setup_seed(plan_digest: &[u8; 32], stage: usize) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"hushnet set-up");
    hash.update(plan_digest);
    hash.update((stage as u64).to_le_bytes());
    hash.finalize().into()
}

impl LinearMethod for RotationFree {
    fn family(&self) -> &'static str {
        "rotation-free"
    }

    fn check(&self, w: &Wanted<'_>) -> Result<(), String> {
        design(w.geometry, w.ring_bits, w.weight_l2, 0).map(drop).map_err(|e| e.to_string())
    }

    fn parameters(&self, _: usize, ring_bits: u32, weight_l2: f64) -> Result<Parameters, String> {
        let params = OnePolySpec::smallest(4096, |ring_degree| {
            let (weight_bits, weights, terms, profile) = (16, 1, 1, Profile::Compact);
            Some(OnePolySpec { ring_degree, ring_bits, weight_l2, weight_bits, weights, terms, profile })
        })
        .map_err(|e| e.to_string())?;
        Ok(Parameters {
            modulus_bits: params.modulus_bits(),
            response_bits: params.response_bits(),
            noise_bits: params.spec().noise().log2() + f64::from(params.modulus_bits() - ring_bits),
            unit_fraction: params.spec().off_by_one_fraction(),
        })
    }

    /// The largest over all ring degrees, whichever a session takes.
    fn norm(&self, geometry: &Geometry, _: usize, weights: &[i16]) -> Result<f64, String> {
        weight_count(geometry, weights)?;
        let mut largest = 0;
        for n in DEGREES {
            let layout = layout::Layout::choose(geometry, n, &DEFAULT_PRICES).map_err(|e| e.to_string())?;
            largest = largest.max(layout.weight_norm2(weights));
        }
        Ok((largest as f64).sqrt())
    }

    fn sets_up(&self) -> bool {
        true
    }

    fn places(&self, plan: &TwoPartyPlan, stages: &[Placed<'_>]) -> Result<Option<Arc<dyn Places>>, Error> {
        if stages.is_empty() {
            return Ok(None);
        }
        let bits = plan.ring().bits();
        let stages = Stages::new(stages, |s| {
            Ok(design(&s.linear.geometry.checked()?, bits, s.linear.weight_l2, s.index as u32)?)
        })?;
        Ok(Some(Arc::new(Layout { stages })))
    }
}

impl Places for Layout {
    fn shape(&self, stage: usize) -> Option<&dyn Shape> {
        self.stages.shape(stage)
    }

    fn key_len(&self) -> usize {
        0
    }

    fn open(self: Arc<Self>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
        client::open(self, opening)
    }

    fn prepare(self: Arc<Self>, preparing: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error> {
        server::prepare(self, preparing)
    }
}

impl Tiled for Design {
    fn elements(&self) -> (usize, usize) {
        (self.layout().input_len(), self.layout().output_len())
    }

    fn answer_len(&self, tile: usize) -> usize {
        self.answer_len(tile)
    }
}

impl Shape for Design {
    fn tiles(&self) -> usize {
        self.layout().tiles()
    }

    fn request_len(&self) -> usize {
        self.request_len()
    }

    fn cost(&self, model: &mut CostModel, images: usize) {
        tiles::cost(self, model, images);
    }

    /// All queries are held until their answers come.
    fn held_by_client(&self, images: u64) -> u64 {
        let queries = (self.layout().tiles() as u64).saturating_mul(self.query_bytes() as u64);
        tiles::held_by_client(self).saturating_add(queries.saturating_mul(images))
    }

    fn keeping(&self) -> Option<Keeping> {
        Some(Keeping { uses: self.layout().tiles(), bytes: self.prepared_bytes() })
    }

    fn set_up(&self) -> Option<SetUpBytes> {
        let polys = self.layout().cost().weight_polys;
        Some(SetUpBytes {
            told: 4,
            prepared: self.prepared_bytes() as u64,
            sent: polys.saturating_mul(self.setup_poly_len()) as u64,
            stored: self.stored_len(polys) as u64,
        })
    }
}
