//! The client's side of `batch` stages: key, requests, opening.

use super::{blocks, Job, Layers};
use crate::error::Error;
use crate::two_party::layer_error;
use hushnet_mpc::Channel;
use hushnet_ring::{ledger, pack, Prg};
use hushnet_rlwe::batch_shares::ShareKey;
use hushnet_rlwe::uses;

impl Layers {
    /// Makes a key and sends its public part: seed, then pk0.
    pub(in crate::two_party) fn send_key(
        &self,
        channel: &mut dyn Channel,
        prg: &mut Prg,
    ) -> Result<Option<ShareKey>, Error> {
        let Some(context) = &self.context else { return Ok(None) };
        let key = ShareKey::generate(context, prg)?;
        let mut seed = [0; 32];
        prg.fill_bytes(&mut seed);
        ledger::bytes(uses::SEED, &mut seed);
        let public = key.public_key(seed, self.key_bits(), prg)?;
        let mut message = vec![0; self.key_len()];
        message[..32].copy_from_slice(&public.seed);
        pack::pack(&public.pk0, public.bits, &mut message[32..])?;
        channel.send(&message)?;
        channel.flush()?;
        Ok(Some(key))
    }

    /// The client's side of a stage: its share of the output tensors.
    pub(in crate::two_party) fn ask(
        &self,
        channel: &mut dyn Channel,
        key: &ShareKey,
        job: &Job<'_>,
    ) -> Result<Vec<u64>, Error> {
        let stage = self.stage(job.index)?;
        let (images, inputs, outputs) = (job.seeds.len(), stage.inputs(), stage.outputs());
        for (block, (first, n)) in blocks(images, stage.room()).enumerate() {
            let (id, share) = (job.id(block)?, &job.share[first * inputs..(first + n) * inputs]);
            for tile in 0..stage.tiles() {
                let request = job.compute.run(|| stage.request(key, id, tile, share)).map_err(layer_error)?;
                channel.send(&request)?;
                channel.flush()?;
            }
        }
        let mut own = vec![0; images * outputs];
        let mut answer = Vec::new();
        for (first, n) in blocks(images, stage.room()) {
            let own = &mut own[first * outputs..(first + n) * outputs];
            for tile in 0..stage.tiles() {
                answer.resize(stage.answer_len(tile, n), 0);
                channel.recv(&mut answer)?;
                job.compute.run(|| stage.open(key, tile, &answer, own)).map_err(layer_error)?;
            }
        }
        Ok(own)
    }
}
