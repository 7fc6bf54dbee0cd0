//! The server's half of stages packed in coefficients: a client's key, answers.

use super::super::{tiles, Job, ServerHalf, ServerSession, Stages};
use super::Staged;
use crate::error::Error;
use crate::two_party::{layer_error, peer_words};
use hushnet_layers::cheetah::AnswerTiles;
use hushnet_mpc::{Channel, Session};
use hushnet_rlwe::packed::{PackedContext, PackedPublicKey, PackedServer};
use std::sync::Arc;

/// The weights of all stages. No `Debug`.
pub(in super::super) struct CoefficientWeights<L, W, K> {
    pub(in super::super) layout: Arc<L>,
    pub(in super::super) stages: Stages<W>,
    /// Reads and checks the client's message of [`super::super::Places::key_len`] bytes.
    pub(in super::super) accept: fn(&L, &[u8]) -> Result<K, Error>,
}

/// A client's public keys beside the weights.
struct CoefficientServed<L, W, K> {
    weights: Arc<CoefficientWeights<L, W, K>>,
    keys: K,
}

/// Reads and checks a client's public key.
///
/// # Errors
/// [`Error::Protocol`] for what is no key.
pub(in super::super) fn read_key(context: &PackedContext, message: &[u8]) -> Result<PackedServer, Error> {
    let key = PackedPublicKey::from_bytes(context, message);
    key.and_then(|key| PackedServer::new(context, &key)).map_err(|e| peer_words(&e))
}

impl<L, W, K> ServerHalf for CoefficientWeights<L, W, K>
where
    L: Staged,
    W: AnswerTiles<K> + 'static,
    K: Send + Sync + 'static,
{
    fn weight_bytes(&self) -> usize {
        self.stages.values().map(W::weight_bytes).sum()
    }

    fn accept(
        self: Arc<Self>,
        channel: &mut dyn Channel,
        _: &crate::compute::Compute,
    ) -> Result<Box<dyn ServerSession>, Error> {
        let mut message = vec![0; self.layout.key_len()];
        channel.recv(&mut message)?;
        let keys = (self.accept)(&self.layout, &message)?;
        Ok(Box::new(CoefficientServed { weights: self, keys }))
    }
}

impl<L: Staged, W: AnswerTiles<K>, K: Send + Sync> ServerSession for CoefficientServed<L, W, K> {
    fn answer(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let layer = self.weights.stages.get(job.stage)?;
        tiles::answer(
            self.weights.layout.stages().get(job.stage)?,
            session.channel(),
            job,
            |(image, tile), request, share, own| {
                let request = request.read()?;
                let (seed, number) = (&job.seeds[image], job.stage as u32);
                let make = || layer.answer(&self.keys, seed, number, tile, request, share, own);
                job.compute.run(make).map_err(layer_error)
            },
        )
    }
}
