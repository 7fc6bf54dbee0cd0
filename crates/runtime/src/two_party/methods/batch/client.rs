//! The client's side of `batch` stages: key, requests, opening.

use super::super::{ClientHalf, Job, Opening, Places};
use super::{blocks, id, Layout};
use crate::error::Error;
use crate::two_party::layer_error;
use hushnet_mpc::Session;
use hushnet_ring::{ledger, pack};
use hushnet_rlwe::batch_shares::ShareKey;
use hushnet_rlwe::uses;
use std::sync::Arc;

/// What a client holds for a session. No `Debug`.
struct BatchSecret {
    layout: Arc<Layout>,
    key: ShareKey,
}

/// Makes a key and sends its public part: seed, then pk0.
pub(super) fn open(layout: Arc<Layout>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
    let key = ShareKey::generate(&layout.context, opening.prg)?;
    let mut seed = [0; 32];
    opening.prg.fill_bytes(&mut seed);
    ledger::bytes(uses::SEED, &mut seed);
    let public = key.public_key(seed, layout.key_bits(), opening.prg)?;
    let mut message = vec![0; layout.key_len()];
    message[..32].copy_from_slice(&public.seed);
    pack::pack(&public.pk0, public.bits, &mut message[32..])?;
    opening.channel.send(&message)?;
    opening.channel.flush()?;
    Ok(Box::new(BatchSecret { layout, key }))
}

impl ClientHalf for BatchSecret {
    fn ask(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let (stage, key, channel) = (self.layout.stages.get(job.stage)?, &self.key, session.channel());
        let (images, inputs, outputs) = (job.seeds.len(), stage.inputs(), stage.outputs());
        for (block, (first, n)) in blocks(images, stage.room()).enumerate() {
            let (id, share) = (id(job, block)?, &job.share[first * inputs..(first + n) * inputs]);
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
