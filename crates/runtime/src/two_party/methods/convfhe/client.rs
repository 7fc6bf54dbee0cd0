//! The client's side of `convfhe` stages: keys, requests, opening.

use super::super::{tiles, ClientHalf, Job, Opening, Places};
use super::Layout;
use crate::error::Error;
use crate::two_party::layer_error;
use hushnet_layers::convfhe::ConvFheDesign;
use hushnet_mpc::Session;
use hushnet_ring::{ledger, pack};
use hushnet_rlwe::pack_lwe::MergeKeys;
use hushnet_rlwe::packed::{PackedClient, PRIME_BITS};
use hushnet_rlwe::uses;
use std::sync::Arc;

/// What a client holds for a session. No `Debug`.
struct ConvFheSecret {
    layout: Arc<Layout>,
    key: PackedClient,
}

/// Makes a key; sends seed and pk0, then merging keys.
pub(super) fn open(layout: Arc<Layout>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
    let (context, prg) = (&layout.context, &mut *opening.prg);
    let key = PackedClient::generate(context.packed(), prg)?;
    let (mut seed, mut merge_seed) = ([0; 32], [0; 32]);
    prg.fill_bytes(&mut seed);
    prg.fill_bytes(&mut merge_seed);
    for seed in [&mut seed, &mut merge_seed] {
        ledger::bytes(uses::SEED, seed);
    }
    let public = key.public_key(&seed, prg)?;
    let keys = opening
        .compute
        .run(|| MergeKeys::for_client(context.merge(), &key, layout.spacing, &merge_seed, prg)?.to_bytes())?;
    let mut message = vec![0; layout.key_len()];
    let (head, rest) = message.split_at_mut(ConvFheDesign::public_key_len());
    head[..32].copy_from_slice(&seed);
    pack::pack(&public.pk0, PRIME_BITS, &mut head[32..])?;
    rest.copy_from_slice(&keys);
    opening.channel.send(&message)?;
    opening.channel.flush()?;
    Ok(Box::new(ConvFheSecret { layout, key }))
}

impl ClientHalf for ConvFheSecret {
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
