//! The server's side of `cheetah` stages: weights, answers.

use super::super::{tiles, Job, Places, Preparing, ServerHalf, ServerSession, Stages};
use super::Layout;
use crate::compute::Compute;
use crate::error::Error;
use crate::two_party::{layer_error, peer_words};
use hushnet_layers::cheetah::CheetahLinear;
use hushnet_mpc::{Channel, Session};
use hushnet_ring::pack;
use hushnet_rlwe::packed::{PackedPublicKey, PackedServer, PRIME_BITS};
use std::sync::Arc;

/// The weights of all stages. No `Debug`.
struct CheetahWeights {
    layout: Arc<Layout>,
    stages: Stages<CheetahLinear>,
}

/// A client's public key beside the weights.
struct CheetahSession {
    weights: Arc<CheetahWeights>,
    server: PackedServer,
}

/// Prepares the weights of all stages.
pub(super) fn prepare(layout: Arc<Layout>, preparing: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error> {
    let bits = preparing.plan.ring().bits();
    let stages = preparing.each(&layout.stages, |index, linear, (_, weights)| {
        let words: &[i16] = &weights.weights.to_i16();
        let make = if preparing.keep[index] { CheetahLinear::new } else { CheetahLinear::streamed };
        let made = make(&layout.context, &linear.geometry.checked()?, words, &weights.bias, bits)?;
        preparing.keeps_norm(index, made.params().spec().weight_l2, "the weights")?;
        Ok(made)
    })?;
    Ok(Arc::new(CheetahWeights { layout, stages }))
}

impl ServerHalf for CheetahWeights {
    fn weight_bytes(&self) -> usize {
        self.stages.values().map(CheetahLinear::weight_bytes).sum()
    }

    fn accept(
        self: Arc<Self>,
        channel: &mut dyn Channel,
        _: &Compute,
    ) -> Result<Box<dyn ServerSession>, Error> {
        let context = &self.layout.context;
        let mut message = vec![0; self.layout.key_len()];
        channel.recv(&mut message)?;
        let mut seed = [0; 32];
        seed.copy_from_slice(&message[..32]);
        let mut pk0 = vec![0; context.ring_degree()];
        pack::unpack(&message[32..], PRIME_BITS, &mut pk0)?;
        let server =
            PackedServer::new(context, &seed, &PackedPublicKey { pk0 }).map_err(|e| peer_words(&e))?;
        Ok(Box::new(CheetahSession { weights: self, server }))
    }
}

impl ServerSession for CheetahSession {
    fn answer(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let layer = self.weights.stages.get(job.stage)?;
        let (server, number) = (&self.server, job.stage as u32);
        tiles::answer(
            self.weights.layout.stages.get(job.stage)?,
            session.channel(),
            job,
            |(image, tile), request, share, own| {
                let request = request.read()?;
                let make = || layer.answer(server, &job.seeds[image], number, tile, request, share, own);
                job.compute.run(make).map_err(layer_error)
            },
        )
    }
}
