//! The server's side of `batch` stages: weights, answers.

use super::{blocks, Job, Layers};
use crate::error::Error;
use crate::plan::PlanError;
use crate::two_party::plan::{Kind, Method, TwoPartyPlan};
use crate::two_party::{layer_error, peer_words};
use hushnet_layers::batch_shares::BatchShareLinear;
use hushnet_mpc::Channel;
use hushnet_ring::pack;
use hushnet_rlwe::batch_shares::{SharePublicKey, ShareServer};

impl Layers {
    /// Receives a client's public key.
    pub(in crate::two_party) fn recv_key(
        &self,
        channel: &mut dyn Channel,
    ) -> Result<Option<ShareServer>, Error> {
        let Some(context) = &self.context else { return Ok(None) };
        let mut message = vec![0; self.key_len()];
        channel.recv(&mut message)?;
        let mut seed = [0; 32];
        seed.copy_from_slice(&message[..32]);
        let mut pk0 = vec![0; context.ring_degree()];
        let bits = self.key_bits();
        pack::unpack(&message[32..], bits, &mut pk0)?;
        Ok(Some(ShareServer::new(context, &SharePublicKey { seed, bits, pk0 }).map_err(|e| peer_words(&e))?))
    }

    /// Prepares the weights of all batch stages.
    pub(in crate::two_party) fn prepare(
        &self,
        plan: &TwoPartyPlan,
    ) -> Result<Vec<Option<BatchShareLinear>>, Error> {
        let Some(context) = &self.context else { return Ok(plan.stages().iter().map(|_| None).collect()) };
        let mut prepared = Vec::with_capacity(plan.stages().len());
        for stage in plan.stages() {
            let Kind::Linear(l) = &stage.kind else {
                prepared.push(None);
                continue;
            };
            if l.method != Method::Batch {
                prepared.push(None);
                continue;
            }
            let missing = || PlanError::Structure("a linear stage has no weights".into());
            let weights = l.weights.as_ref().ok_or_else(missing)?;
            let words: &[i16] = &weights.weights.to_i16();
            let (geometry, bits) = (l.geometry.checked()?, plan.ring().bits());
            let linear =
                BatchShareLinear::new(context, &geometry, words, &weights.bias, bits, Some(l.weight_l2))?;
            if linear.client().params().spec().weight_l2 > l.weight_l2 {
                let detail = format!(
                    "weight_l2 {} is below the norm of a row of weights; the plan is wrong, compile the model again",
                    l.weight_l2
                );
                return Err(PlanError::Linear { stage: stage.name.clone(), detail }.into());
            }
            prepared.push(Some(linear));
        }
        Ok(prepared)
    }
}

/// The server's side of a stage: answers tiles as they come; its share of the output tensors.
pub(in crate::two_party) fn answer(
    channel: &mut dyn Channel,
    layer: &BatchShareLinear,
    key: &ShareServer,
    job: &Job<'_>,
) -> Result<Vec<u64>, Error> {
    let stage = layer.client();
    let (images, inputs, outputs) = (job.seeds.len(), stage.inputs(), stage.outputs());
    let mut own = vec![0; images * outputs];
    let mut request = Vec::new();
    for (block, (first, n)) in blocks(images, stage.room()).enumerate() {
        let (id, share) = (job.id(block)?, &job.share[first * inputs..(first + n) * inputs]);
        let own = &mut own[first * outputs..(first + n) * outputs];
        let mut window = job.compute.run(|| layer.window(key, n)).map_err(layer_error)?;
        for tile in 0..stage.tiles() {
            request.resize(stage.request_len(tile, n), 0);
            channel.recv(&mut request)?;
            let answer = job
                .compute
                .run(|| layer.answer(&mut window, id, tile, &request, share, own))
                .map_err(layer_error)?;
            channel.send(&answer)?;
            channel.flush()?;
        }
    }
    Ok(own)
}
