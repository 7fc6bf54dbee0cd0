//! The server's side of slot-packed stages: weights, answers under the client's public keys.

use super::super::{internal, tiles, Job, Preparing, ServerHalf, ServerSession, Stages};
use super::{key_error, slot_error, Layout};
use crate::compute::Compute;
use crate::error::Error;
use hushnet_layers::slots::SlotLinear;
use hushnet_mpc::{Channel, Session};
use hushnet_rlwe::bfv::{BfvError, Evaluator, GaloisKeys, PublicKey, Turn};
use std::sync::Arc;

/// The weights of all stages. No `Debug`.
struct SlotWeights {
    layout: Arc<Layout>,
    stages: Stages<SlotLinear>,
}

/// A client's public keys, one a group, beside the weights.
struct SlotSession {
    weights: Arc<SlotWeights>,
    evaluators: Vec<Evaluator>,
}

/// Prepares the weights of all stages, in evaluation form where they are kept.
pub(super) fn prepare(layout: Arc<Layout>, preparing: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error> {
    let stages = preparing.each(&layout.stages, |index, linear, (stage, weights)| {
        let (words, geometry): (&[i16], _) = (&weights.weights.to_i16(), linear.geometry.checked()?);
        let made = SlotLinear::new(&stage.params, &geometry, stage.method, words, &weights.bias);
        let mut made = made.map_err(slot_error)?;
        if preparing.keep[index] {
            made.prepare().map_err(slot_error)?;
        }
        Ok(made)
    })?;
    Ok(Arc::new(SlotWeights { layout, stages }))
}

impl ServerHalf for SlotWeights {
    fn weight_bytes(&self) -> usize {
        self.stages.values().map(SlotLinear::weight_bytes).sum()
    }

    fn accept(
        self: Arc<Self>,
        channel: &mut dyn Channel,
        compute: &Compute,
    ) -> Result<Box<dyn ServerSession>, Error> {
        let mut evaluators = Vec::with_capacity(self.layout.groups.len());
        for group in &self.layout.groups {
            let turns: Vec<Turn> = group.turns.iter().copied().collect();
            let mut public = vec![0; group.params.request_len()];
            channel.recv(&mut public)?;
            let mut galois = vec![0; group.params.galois_keys_len(turns.len())];
            channel.recv(&mut galois)?;
            let read = || -> Result<Evaluator, BfvError> {
                let public = PublicKey::from_bytes(&group.params, &public)?;
                let keys = GaloisKeys::from_bytes(&group.params, &turns, &galois)?;
                Evaluator::new(&group.params, public, keys)
            };
            evaluators.push(compute.run(read).map_err(key_error)?);
        }
        Ok(Box::new(SlotSession { weights: self, evaluators }))
    }
}

impl ServerSession for SlotSession {
    fn answer(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let stage = self.weights.layout.stages.get(job.stage)?;
        let layer = self.weights.stages.get(job.stage)?;
        let keys = self.evaluators.get(stage.group);
        let evaluator = keys.ok_or_else(|| internal("a session has no keys for a stage"))?;
        let share = stage.to_odd(session, job.share)?;
        let job = Job { share: &share, ..*job };
        let own = tiles::answer(stage, session.channel(), &job, |(_, tile), request, share, own| {
            let request = request.read()?;
            let make = || layer.answer(evaluator, tile, request, share, own);
            Ok(job.compute.run(make).map_err(slot_error)?.0)
        })?;
        stage.to_ring(session, &own)
    }
}
