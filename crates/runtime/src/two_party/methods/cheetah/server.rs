//! The server's side of `cheetah` stages: weights, answers.

use super::super::coefficients::server::{read_key, CoefficientWeights};
use super::super::{Preparing, ServerHalf};
use super::Layout;
use crate::error::Error;
use hushnet_layers::cheetah::CheetahLinear;
use hushnet_rlwe::packed::PackedServer;
use std::sync::Arc;

/// Prepares the weights of all stages.
pub(super) fn prepare(layout: Arc<Layout>, preparing: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error> {
    let bits = preparing.plan.ring().bits();
    let stages = preparing.each(&layout.stages, |index, linear, (_, weights)| {
        let words: &[i16] = &weights.weights.to_i16();
        let make = if preparing.keep[index] { CheetahLinear::new } else { CheetahLinear::streamed };
        let made = make(&layout.context, &linear.geometry.checked()?, words, &weights.bias, bits)?;
        preparing.keeps_norm(index, made.params().spec().weight_l2, "the weights")?;
        Ok(made.stated(linear.weight_l2)?)
    })?;
    Ok(Arc::new(CoefficientWeights { layout, stages, accept }))
}

/// Reads and checks a client's message.
fn accept(layout: &Layout, message: &[u8]) -> Result<PackedServer, Error> {
    read_key(&layout.context, message)
}
