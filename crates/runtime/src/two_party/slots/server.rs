//! The server's side of slot-packed stages: weights, answers under the client's public keys.

use super::{internal, key_error, method_of, slot_error, Job, Layers};
use crate::compute::Compute;
use crate::error::Error;
use crate::plan::PlanError;
use crate::two_party::plan::{Kind, TwoPartyPlan};
use hushnet_layers::slots::SlotLinear;
use hushnet_mpc::{self as mpc, Channel, Session};
use hushnet_rlwe::bfv::{BfvError, Evaluator, GaloisKeys, PublicKey, Turn};

/// A client's public keys at the server, one a group.
pub(in crate::two_party) struct ServerState(Vec<Evaluator>);

impl Layers {
    /// The server's part of the set-up.
    pub(in crate::two_party) fn serve(
        &self,
        channel: &mut dyn Channel,
        compute: &Compute,
    ) -> Result<ServerState, Error> {
        let mut evaluators = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
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
        Ok(ServerState(evaluators))
    }

    /// The server's side of a stage: answers tiles as they come; its share of the output tensors.
    pub(in crate::two_party) fn answer(
        &self,
        session: &mut Session,
        linear: &SlotLinear,
        state: &ServerState,
        job: &Job<'_>,
    ) -> Result<Vec<u64>, Error> {
        let (stage, p) = self.stage(job.index)?;
        let evaluator =
            state.0.get(stage.group).ok_or_else(|| internal("a session has no keys for a stage"))?;
        let (inputs, outputs) = (stage.client.layout().input_len(), stage.client.layout().output_len());
        let share = self.to_odd(session, stage, p, job.share)?;
        let mut own = vec![0; outputs * job.images];
        let mut request = vec![0; self.request_len(stage)];
        for (share, own) in share.chunks_exact(inputs).zip(own.chunks_exact_mut(outputs)) {
            for tile in 0..stage.client.tiles() {
                session.channel().recv(&mut request)?;
                let (answer, _) = job
                    .compute
                    .run(|| linear.answer(evaluator, tile, &request, share, own))
                    .map_err(slot_error)?;
                session.channel().send(&answer)?;
                session.channel().flush()?;
            }
        }
        Ok(mpc::to_ring_small(session, &own, p, self.ring)?)
    }

    /// The weights of all slot-packed stages, in evaluation form where they fit `room` bytes.
    pub(in crate::two_party) fn prepare(
        &self,
        plan: &TwoPartyPlan,
        mut room: usize,
    ) -> Result<Vec<Option<SlotLinear>>, Error> {
        let mut out = Vec::with_capacity(plan.stages().len());
        for (stage, places) in plan.stages().iter().zip(&self.stages) {
            let (Kind::Linear(l), Some(places)) = (&stage.kind, places) else {
                out.push(None);
                continue;
            };
            let missing = || PlanError::Structure("a linear stage has no weights".into());
            let weights = l.weights.as_ref().ok_or_else(missing)?;
            let words: &[i16] = &weights.weights.to_i16();
            let how = method_of(l.method).ok_or_else(|| internal("a stage of another method"))?;
            let (params, geometry) = (&self.groups[places.group].params, l.geometry.checked()?);
            let mut linear =
                SlotLinear::new(params, &geometry, how, words, &weights.bias).map_err(slot_error)?;
            if linear.prepared_bytes() <= room {
                room -= linear.prepared_bytes();
                linear.prepare().map_err(slot_error)?;
            }
            out.push(Some(linear));
        }
        Ok(out)
    }
}
