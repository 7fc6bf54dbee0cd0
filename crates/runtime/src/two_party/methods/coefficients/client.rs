//! The client's half of stages packed in coefficients: the seed of its key, requests, opening.

use super::super::{tiles, ClientHalf, Job};
use super::Staged;
use crate::error::Error;
use crate::two_party::layer_error;
use hushnet_layers::batch::LayerError;
use hushnet_mpc::Session;
use hushnet_ring::{ledger, Prg};
use hushnet_rlwe::packed::PackedClient;
use hushnet_rlwe::uses;
use std::sync::Arc;

/// A stage that a client asks for, tile by tile.
pub(in super::super) trait Asked {
    /// The request for a tile of an image, from the client's share of the image. `seed` is the image's, `number` the stage's index in the plan.
    ///
    /// # Errors
    /// What the layer refuses.
    fn request(
        &self,
        key: &PackedClient,
        seed: &[u8; 32],
        number: u32,
        tile: usize,
        share: &[u64],
    ) -> Result<Vec<u8>, LayerError>;

    /// Reads the answer to a tile into the client's share of the output.
    ///
    /// # Errors
    /// What the layer refuses.
    fn open(&self, key: &PackedClient, tile: usize, answer: &[u8], own: &mut [u64])
        -> Result<(), LayerError>;
}

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

impl<L: Staged<Stage: Asked>> ClientHalf for CoefficientSecret<L> {
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
