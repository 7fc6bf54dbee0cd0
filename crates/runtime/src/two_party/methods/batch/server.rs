//! The server's side of `batch` stages: weights, answers.

use super::super::{Job, Places, Preparing, ServerHalf, ServerSession, Stages};
use super::{blocks, id, Layout};
use crate::compute::Compute;
use crate::error::Error;
use crate::two_party::{layer_error, peer_words};
use hushnet_layers::batch_shares::BatchShareLinear;
use hushnet_mpc::{Channel, Session};
use hushnet_ring::pack;
use hushnet_rlwe::batch_shares::{SharePublicKey, ShareServer};
use std::sync::Arc;

/// The weights of all stages. No `Debug`.
struct BatchWeights {
    layout: Arc<Layout>,
    stages: Stages<BatchShareLinear>,
}

/// A client's public key beside the weights.
struct BatchSession {
    weights: Arc<BatchWeights>,
    server: ShareServer,
}

/// Prepares the weights of all stages.
pub(super) fn prepare(layout: Arc<Layout>, preparing: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error> {
    let bits = preparing.plan.ring().bits();
    let stages = preparing.each(&layout.stages, |index, linear, (_, weights)| {
        let (words, l2): (&[i16], f64) = (&weights.weights.to_i16(), linear.weight_l2);
        let geometry = linear.geometry.checked()?;
        let made = BatchShareLinear::new(&layout.context, &geometry, words, &weights.bias, bits, Some(l2))?;
        let norm = made.client().params().spec().weight_l2;
        preparing.keeps_norm(index, norm, "a row of weights")?;
        Ok(made)
    })?;
    Ok(Arc::new(BatchWeights { layout, stages }))
}

impl ServerHalf for BatchWeights {
    fn weight_bytes(&self) -> usize {
        self.stages.values().map(BatchShareLinear::weight_bytes).sum()
    }

    fn accept(
        self: Arc<Self>,
        channel: &mut dyn Channel,
        _: &Compute,
    ) -> Result<Box<dyn ServerSession>, Error> {
        let (context, bits) = (&self.layout.context, self.layout.key_bits());
        let mut message = vec![0; self.layout.key_len()];
        channel.recv(&mut message)?;
        let mut seed = [0; 32];
        seed.copy_from_slice(&message[..32]);
        let mut pk0 = vec![0; context.ring_degree()];
        pack::unpack(&message[32..], bits, &mut pk0)?;
        let server =
            ShareServer::new(context, &SharePublicKey { seed, bits, pk0 }).map_err(|e| peer_words(&e))?;
        Ok(Box::new(BatchSession { weights: self, server }))
    }
}

impl ServerSession for BatchSession {
    fn answer(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let (layer, channel) = (self.weights.stages.get(job.stage)?, session.channel());
        let stage = layer.client();
        let (images, inputs, outputs) = (job.seeds.len(), stage.inputs(), stage.outputs());
        let mut own = vec![0; images * outputs];
        let mut request = Vec::new();
        for (block, (first, n)) in blocks(images, stage.room()).enumerate() {
            let (id, share) = (id(job, block)?, &job.share[first * inputs..(first + n) * inputs]);
            let own = &mut own[first * outputs..(first + n) * outputs];
            let mut window = job.compute.run(|| layer.window(&self.server, n)).map_err(layer_error)?;
            for tile in 0..stage.tiles() {
                request.resize(stage.request_len(tile, n), 0);
                channel.recv(&mut request)?;
                let make = || layer.answer(&mut window, id, tile, &request, share, own);
                let answer = job.compute.run(make).map_err(layer_error)?;
                channel.send(&answer)?;
                channel.flush()?;
            }
        }
        Ok(own)
    }
}
