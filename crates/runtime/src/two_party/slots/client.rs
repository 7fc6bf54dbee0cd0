//! The client's side of slot-packed stages: keys, requests, opening.

use super::{internal, key_error, slot_error, Job, Layers};
use crate::compute::Compute;
use crate::error::Error;
use hushnet_mpc::{self as mpc, Channel, Session};
use hushnet_ring::Prg;
use hushnet_rlwe::bfv::client::SecretKey;
use hushnet_rlwe::bfv::{BfvError, Turn};

/// A client's secret keys, one a group.
pub(in crate::two_party) struct ClientState(Vec<SecretKey>);

impl Layers {
    /// The client's part of the set-up.
    pub(in crate::two_party) fn open(
        &self,
        channel: &mut dyn Channel,
        compute: &Compute,
        prg: &mut Prg,
    ) -> Result<ClientState, Error> {
        let mut keys = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            let turns: Vec<Turn> = group.turns.iter().copied().collect();
            let make = |prg: &mut Prg| -> Result<(SecretKey, [Vec<u8>; 2]), BfvError> {
                let key = SecretKey::generate(&group.params, prg)?;
                let messages = [key.public_key(prg)?.to_bytes()?, key.galois_keys(&turns, prg)?.to_bytes()?];
                Ok((key, messages))
            };
            let (key, messages) = compute.run(|| make(prg)).map_err(key_error)?;
            for message in &messages {
                channel.send(message)?;
            }
            channel.flush()?;
            keys.push(key);
        }
        Ok(ClientState(keys))
    }

    /// The client's side of a stage: its share of the output tensors.
    pub(in crate::two_party) fn ask(
        &self,
        session: &mut Session,
        state: &ClientState,
        job: &Job<'_>,
    ) -> Result<Vec<u64>, Error> {
        let (stage, p) = self.stage(job.index)?;
        let key = state.0.get(stage.group).ok_or_else(|| internal("a session has no key for a stage"))?;
        let (inputs, outputs) = (stage.client.layout().input_len(), stage.client.layout().output_len());
        let share = self.to_odd(session, stage, p, job.share)?;
        for share in share.chunks_exact(inputs) {
            for tile in 0..stage.client.tiles() {
                let request =
                    job.compute.run(|| stage.client.request(key, tile, share)).map_err(slot_error)?;
                session.channel().send(&request)?;
                session.channel().flush()?;
            }
        }
        let mut own = vec![0; outputs * job.images];
        let mut answer = vec![0; self.answer_len(stage)];
        for own in own.chunks_exact_mut(outputs) {
            for tile in 0..stage.client.tiles() {
                session.channel().recv(&mut answer)?;
                job.compute.run(|| stage.client.open(key, tile, &answer, own)).map_err(slot_error)?;
            }
        }
        Ok(mpc::to_ring_small(session, &own, p, self.ring)?)
    }
}
