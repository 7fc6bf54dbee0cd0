//! The server's products in prepared inferences: its share of a layer is W (x + d) + s.

use super::{Half, Part, Parts};
use crate::compute::Compute;
use crate::error::Error;
use crate::plan::PlanError;
use crate::two_party::plan::{Kind, TwoPartyPlan};
use crate::two_party::prepared;
use crate::two_party::shares::Shares;
use hushnet_layers::words::WordLinear;
use hushnet_mpc::{self as mpc, Party, Session};
use hushnet_ring::ledger::{self, Tag};
use hushnet_rlwe::uses;
use std::collections::BTreeMap;

/// The weights of a model as integers. No `Debug`.
pub(in crate::two_party) struct WordModel {
    layers: BTreeMap<usize, WordLinear>,
    /// Of the whole plan, weights included: units of other weights are unknown to this model.
    pub(in crate::two_party) digest: [u8; 32],
}

impl WordModel {
    /// Brings the weights of all stages that units prepare into the order of the kernels.
    ///
    /// # Errors
    /// [`Error::Plan`] for a stage without weights.
    pub(in crate::two_party) fn new(plan: &TwoPartyPlan, parts: &Parts) -> Result<Self, Error> {
        let mut layers = BTreeMap::new();
        for part in parts.iter() {
            let Kind::Linear(linear) = &plan.stages()[part.stage].kind else { continue };
            let missing = || PlanError::Structure("a linear stage has no weights".into());
            let weights = linear.weights.as_ref().ok_or_else(missing)?.weights.to_i16();
            let geometry = linear.geometry.checked()?;
            layers.insert(part.stage, WordLinear::new(&geometry, &weights, plan.ring().bits())?);
        }
        Ok(Self { layers, digest: prepared::hash(plan)? })
    }

    /// A prepared stage: receives d, unless a stage before has done so, and computes the server's share of the result.
    ///
    /// # Errors
    /// [`Error`]: transport, protocol.
    pub(in crate::two_party) fn answer(
        &self,
        session: &mut Session,
        (plan, compute, parts): (&TwoPartyPlan, &Compute, &Parts),
        part: &Part,
        units: &[Half],
        shares: &mut Shares,
    ) -> Result<Vec<u64>, Error> {
        let layer = self.layers.get(&part.stage);
        let layer = layer.ok_or_else(|| Error::Internal("a linear stage was not prepared".into()))?;
        if part.first {
            let sum = mpc::reveal(session, shares.get(part.input)?, plan.ring(), Party::Zero)?;
            let sum = sum.ok_or_else(|| Error::Internal("nothing was opened".into()))?;
            shares.replace(part.input, sum);
        }
        let mut out = parts.load(part, units.iter())?;
        if ledger::ON {
            out.chunks_exact(part.elements).for_each(|s| ledger::once(uses::UNIT_SHARE, &[Tag::words(s)]));
        }
        let inputs = plan.tensors()[part.input].elements;
        let images = shares.get(part.input)?.chunks_exact(inputs).zip(out.chunks_exact_mut(part.elements));
        compute.run(|| images.into_iter().try_for_each(|(x, out)| layer.add_product(x, out)))?;
        Ok(out)
    }
}

/// Bytes that products take beside their operands, on so many threads.
pub(in crate::two_party) fn working_bytes(plan: &TwoPartyPlan, threads: usize) -> u64 {
    let one = |l: &crate::two_party::plan::Linear| {
        l.geometry.checked().map_or(0, |geometry| WordLinear::working_bytes(&geometry))
    };
    plan.linear().map(|s| one(s.linear)).max().unwrap_or(0).saturating_mul(threads as u64)
}
