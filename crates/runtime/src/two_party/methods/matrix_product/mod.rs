//! Products of two shared tensors of matrices ([`hushnet_layers::matrix_product`]): each party encrypts its share of one factor under its own key, and multiplies
//! the other's by its share of the other factor. A stage of its own kind, no linear method: nobody knows either factor.
//!
//! Each party sends its public key at N = 8192, then merging keys for the largest spacing of a stage.

mod client;
mod half;
mod server;

use super::{ClientHalf, Opening, Places, Preparing, ServerHalf, Shape, Stages};
use crate::error::Error;
use crate::two_party::matrix_product::Matrices;
use crate::two_party::plan::{Kind, TwoPartyPlan};
use hushnet_layers::matrix_product::MatrixProduct;
use hushnet_mpc::{CostModel, Party};
use hushnet_rlwe::wide::WideContext;
use std::sync::Arc;

/// All stages of a plan.
struct Layout {
    context: WideContext,
    /// Largest spacing of a stage.
    spacing: usize,
    stages: Stages<Multiplied>,
}

/// A stage, with lengths of its messages.
struct Multiplied {
    matrices: Matrices,
    request_len: usize,
    answer_len: usize,
}

/// The products of matrices of a plan, with their indices.
pub(super) fn stages(plan: &TwoPartyPlan) -> impl Iterator<Item = (usize, &Matrices)> {
    plan.stages().iter().enumerate().filter_map(|(index, stage)| match &stage.kind {
        Kind::MatrixProduct(matrices) => Some((index, &**matrices)),
        _ => None,
    })
}

/// The public part of these stages; `None` for plans without any.
pub(super) fn places(plan: &TwoPartyPlan) -> Result<Option<Arc<dyn Places>>, Error> {
    let stages = Stages(stages(plan).map(|(index, m)| (index, Multiplied::new(m))).collect());
    if stages.0.is_empty() {
        return Ok(None);
    }
    let context = WideContext::new().map_err(hushnet_layers::batch::LayerError::from)?;
    let spacing = stages.values().map(|s| s.product().spacing()).max().unwrap_or(1);
    Ok(Some(Arc::new(Layout { context, spacing, stages })))
}

impl Multiplied {
    fn new(matrices: &Matrices) -> Self {
        let product = matrices.product();
        Self {
            request_len: product.request_len(),
            answer_len: product.answer_len(),
            matrices: matrices.clone(),
        }
    }

    fn product(&self) -> &MatrixProduct {
        self.matrices.product()
    }

    /// Both operands of an image, which stand one after the other.
    fn split<'a>(&self, share: &'a [u64]) -> (&'a [u64], &'a [u64]) {
        share.split_at(self.product().shape().elements()[0])
    }
}

impl Places for Layout {
    fn shape(&self, stage: usize) -> Option<&dyn Shape> {
        self.stages.shape(stage)
    }

    fn key_len(&self) -> usize {
        MatrixProduct::key_len(&self.context, self.spacing)
    }

    fn answered_key_len(&self) -> usize {
        self.key_len()
    }

    fn working_bytes(&self) -> usize {
        // The server makes keys, too, and they wait to be read while it reads the client's.
        4 * self.key_len() + self.stages.values().map(|s| s.product().working_bytes()).max().unwrap_or(0)
    }

    fn open(self: Arc<Self>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
        client::open(self, opening)
    }

    fn prepare(self: Arc<Self>, _: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error> {
        Ok(server::prepare(self))
    }
}

impl Shape for Multiplied {
    fn tiles(&self) -> usize {
        1
    }

    fn request_len(&self) -> usize {
        self.request_len
    }

    fn cost(&self, model: &mut CostModel, images: usize) {
        self.matrices.enter_cost(model, images);
        let both = || [Party::Zero, Party::One].into_iter().cycle().take(2 * images);
        for party in both() {
            model.depart_late(party, self.request_len as u64);
        }
        for party in both() {
            model.arrive_late(party);
            model.depart_late(party, self.answer_len as u64);
        }
        for party in both() {
            model.arrive_late(party);
        }
        self.matrices.leave_cost(model, images);
    }

    fn held_by_client(&self, _: u64) -> u64 {
        // A request and an answer of each direction, twice: as sent and as made.
        let messages = 4 * (self.request_len + self.answer_len);
        messages as u64 + self.product().working_bytes() as u64
    }
}
