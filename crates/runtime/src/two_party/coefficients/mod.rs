//! Linear stages of the methods `rotation-free` and `convfhe`: one image packed in coefficients, as `cheetah`, with other ciphertexts.
//!
//! After the client's other keys, the client sends what `convfhe` needs (seed and pk0 at N = 4096, then merging keys). Where there are
//! `rotation-free` stages, the client then says how many polynomials it holds of each one's set-up (u32), the server sends all others: once
//! a session, one polynomial after the other as the client reads them. Both derive the headers of set-ups from the public plan
//! ([`setup_seed`]). A stage takes two messages one after the other: the client requests all tiles of all images, then reads the answers.
//! Masks of `convfhe` are numbered as those of `cheetah`; rotation-free queries carry secrets of their own.

pub(super) mod client;
pub(super) mod server;

use super::plan::{Kind, Method, TwoPartyPlan};
use crate::compute::Compute;
use crate::error::Error;
use hushnet_layers::batch::{Geometry, LayerError};
use hushnet_layers::convfhe::{public_key_len, ConvFheClient, ConvFheContext, ConvFheDesign};
use hushnet_layers::rotation_free::{Design, Profile, WeightBounds};
use hushnet_mpc::{CostModel, Party};
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
        let keys = |c: &ConvFheContext| public_key_len() + c.merge().keys_len(self.spacing);
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

    /// Tiles of a stage, and the bytes that its weights take in evaluation form.
    pub(super) fn prepared_bytes(&self, index: usize) -> Option<(usize, usize)> {
        let stage = self.stages[index].as_ref()?;
        let bytes = match stage {
            Places::RotationFree(d) => d.prepared_bytes(),
            Places::ConvFhe(c) => c.design().prepared_bytes(),
        };
        Some((stage.tiles(), bytes))
    }
}
