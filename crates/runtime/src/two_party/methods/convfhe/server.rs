//! The server's side of `convfhe` stages: weights, answers.

use super::super::coefficients::server::{read_key, CoefficientWeights};
use super::super::{Preparing, ServerHalf};
use super::Layout;
use crate::error::Error;
use crate::two_party::peer_words;
use hushnet_layers::convfhe::{ConvFheDesign, ConvFheLinear, ConvFheSession};
use hushnet_rlwe::pack_lwe::MergeKeys;
use std::sync::Arc;

/// Prepares the weights of all stages.
pub(super) fn prepare(layout: Arc<Layout>, preparing: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error> {
    let bits = preparing.plan.ring().bits();
    let stages = preparing.each(&layout.stages, |index, linear, (shape, weights)| {
        let words: &[i16] = &weights.weights.to_i16();
        let norm = shape.design().layout().weight_norm2(words) as f64;
        preparing.keeps_norm(index, norm.sqrt(), "the weights")?;
        let make = if preparing.keep[index] { ConvFheLinear::new } else { ConvFheLinear::streamed };
        Ok(make(&layout.context, &linear.geometry.checked()?, words, &weights.bias, bits)?
            .stated(linear.weight_l2)?)
    })?;
    Ok(Arc::new(CoefficientWeights { layout, stages, accept }))
}

/// Reads and checks a client's message.
fn accept(layout: &Layout, message: &[u8]) -> Result<ConvFheSession, Error> {
    let (key, rest) = message.split_at(ConvFheDesign::public_key_len());
    let server = read_key(layout.context.packed(), key)?;
    let keys =
        MergeKeys::from_bytes(layout.context.merge(), layout.spacing, rest).map_err(|e| peer_words(&e))?;
    Ok(ConvFheSession::new(server, keys))
}
