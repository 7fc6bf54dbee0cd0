//! The server's side of `convfhe` stages: weights, answers.

use super::super::{tiles, Job, Places, Preparing, ServerHalf, ServerSession, Stages};
use super::Layout;
use crate::compute::Compute;
use crate::error::Error;
use crate::two_party::{layer_error, peer_words};
use hushnet_layers::convfhe::{ConvFheDesign, ConvFheLinear, ConvFheSession, RING_DEGREE};
use hushnet_mpc::{Channel, Session};
use hushnet_ring::pack;
use hushnet_rlwe::pack_lwe::MergeKeys;
use hushnet_rlwe::packed::{PackedPublicKey, PackedServer, PRIME_BITS};
use std::sync::Arc;

/// The weights of all stages. No `Debug`.
struct ConvFheWeights {
    layout: Arc<Layout>,
    stages: Stages<ConvFheLinear>,
}

/// A client's public keys beside the weights.
struct ConvFheServed {
    weights: Arc<ConvFheWeights>,
    keys: ConvFheSession,
}

/// Prepares the weights of all stages.
pub(super) fn prepare(layout: Arc<Layout>, preparing: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error> {
    let bits = preparing.plan.ring().bits();
    let stages = preparing.each(&layout.stages, |index, linear, (shape, weights)| {
        let words: &[i16] = &weights.weights.to_i16();
        let norm = shape.design().layout().weight_norm2(words) as f64;
        preparing.keeps_norm(index, norm.sqrt(), "the weights")?;
        let make = if preparing.keep[index] { ConvFheLinear::new } else { ConvFheLinear::streamed };
        Ok(make(&layout.context, &linear.geometry.checked()?, words, &weights.bias, bits)?)
    })?;
    Ok(Arc::new(ConvFheWeights { layout, stages }))
}

impl ServerHalf for ConvFheWeights {
    fn weight_bytes(&self) -> usize {
        self.stages.values().map(ConvFheLinear::weight_bytes).sum()
    }

    fn accept(
        self: Arc<Self>,
        channel: &mut dyn Channel,
        _: &Compute,
    ) -> Result<Box<dyn ServerSession>, Error> {
        let context = &self.layout.context;
        let mut message = vec![0; self.layout.key_len()];
        channel.recv(&mut message)?;
        let (head, rest) = message.split_at(ConvFheDesign::public_key_len());
        let mut seed = [0; 32];
        seed.copy_from_slice(&head[..32]);
        let mut pk0 = vec![0; RING_DEGREE];
        pack::unpack(&head[32..], PRIME_BITS, &mut pk0)?;
        let server = PackedServer::new(context.packed(), &seed, &PackedPublicKey { pk0 })
            .map_err(|e| peer_words(&e))?;
        let keys =
            MergeKeys::from_bytes(context.merge(), self.layout.spacing, rest).map_err(|e| peer_words(&e))?;
        Ok(Box::new(ConvFheServed { weights: self, keys: ConvFheSession::new(server, keys) }))
    }
}

impl ServerSession for ConvFheServed {
    fn answer(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let layer = self.weights.stages.get(job.stage)?;
        let (keys, number) = (&self.keys, job.stage as u32);
        tiles::answer(
            self.weights.layout.stages.get(job.stage)?,
            session.channel(),
            job,
            |(image, tile), request, share, own| {
                let request = request.read()?;
                let make = || layer.answer(keys, &job.seeds[image], number, tile, request, share, own);
                job.compute.run(make).map_err(layer_error)
            },
        )
    }
}
