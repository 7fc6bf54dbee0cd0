//! The client's half of stages packed in coefficients: the seed of its key, requests, opening.

use super::super::{tiles, ClientHalf, Job};
use super::Staged;
use crate::error::Error;
use crate::two_party::layer_error;
use hushnet_layers::cheetah::AskTiles;
use hushnet_mpc::Session;
use hushnet_ring::{ledger, Prg};
use hushnet_rlwe::packed::PackedClient;
use hushnet_rlwe::uses;
use std::sync::Arc;

/// What a client holds for a session. No `Debug`.
pub(in super::super) struct CoefficientSecret<L> {
    pub(in super::super) layout: Arc<L>,
    pub(in super::super) key: PackedClient,
}

/// A fresh seed of public polynomials.
pub(in super::super) fn fresh_seed(prg: &mut Prg) -> [u8; 32] {
    let mut seed = [0; 32];
    prg.fill_bytes(&mut seed);
    ledger::bytes(uses::SEED, &mut seed);
    seed
}

impl<L: Staged<Stage: AskTiles>> ClientHalf for CoefficientSecret<L> {
    fn ask(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let (stage, key, number) = (self.layout.stages().get(job.stage)?, &self.key, job.stage as u32);
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
