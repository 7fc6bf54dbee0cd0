//! The client's side of `cheetah` stages: key, requests, opening.

use super::super::{tiles, ClientHalf, Job, Opening, Places};
use super::Layout;
use crate::error::Error;
use crate::two_party::layer_error;
use hushnet_mpc::Session;
use hushnet_ring::{ledger, pack};
use hushnet_rlwe::packed::{PackedClient, PRIME_BITS};
use hushnet_rlwe::uses;
use std::sync::Arc;

/// What a client holds for a session. No `Debug`.
struct CheetahSecret {
    layout: Arc<Layout>,
    key: PackedClient,
}

/// Makes a key and sends its public part: seed, then pk0.
pub(super) fn open(layout: Arc<Layout>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
    let key = PackedClient::generate(&layout.context, opening.prg)?;
    let mut seed = [0; 32];
    opening.prg.fill_bytes(&mut seed);
    ledger::bytes(uses::SEED, &mut seed);
    let public = key.public_key(&seed, opening.prg)?;
    let mut message = vec![0; layout.key_len()];
    message[..32].copy_from_slice(&seed);
    pack::pack(&public.pk0, PRIME_BITS, &mut message[32..])?;
    opening.channel.send(&message)?;
    opening.channel.flush()?;
    Ok(Box::new(CheetahSecret { layout, key }))
}

impl ClientHalf for CheetahSecret {
    fn ask(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let (stage, key, number) = (self.layout.stages.get(job.stage)?, &self.key, job.stage as u32);
        tiles::ask(
            stage,
            session.channel(),
            job,
            |(image, tile), share| {
                let make = || stage.request(key, &job.seeds[image], number, tile, share);
                job.compute.run(make).map_err(layer_error)
            },
            |(_, tile), answer, own| {
                let answer = answer.read()?;
                job.compute.run(|| stage.open(key, tile, answer, own)).map_err(layer_error)
            },
        )
    }
}
