//! The server's side of `rotation-free` stages: weights, set-ups, answers.

use super::super::{tiles, Job, Preparing, ServerHalf, ServerSession, Stages};
use super::{setup_seed, Layout};
use crate::compute::Compute;
use crate::error::{Error, ProtocolError};
use crate::two_party::layer_error;
use hushnet_layers::rotation_free::RotationFreeLinear;
use hushnet_mpc::{Channel, Session};
use std::sync::Arc;

/// The weights of all stages. No `Debug`.
struct RotationFreeWeights {
    layout: Arc<Layout>,
    stages: Stages<RotationFreeLinear>,
}

/// What a server knows of a session.
struct RotationFreeSession {
    weights: Arc<RotationFreeWeights>,
    held: usize,
}

/// Prepares the weights of all stages.
pub(super) fn prepare(layout: Arc<Layout>, preparing: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error> {
    let stages = preparing.each(&layout.stages, |index, _, (design, weights)| {
        let words: &[i16] = &weights.weights.to_i16();
        let norm = design.layout().weight_norm2(words) as f64;
        preparing.keeps_norm(index, norm.sqrt(), "the weights")?;
        let mut prg = (preparing.randomness)(index)?;
        let seeds = (setup_seed(preparing.plan_digest, index), &mut prg);
        let streamed = !preparing.keep[index];
        Ok(RotationFreeLinear::with_seed(design, words, &weights.bias, streamed, seeds)?)
    })?;
    Ok(Arc::new(RotationFreeWeights { layout, stages }))
}

impl ServerHalf for RotationFreeWeights {
    fn weight_bytes(&self) -> usize {
        self.stages.values().map(RotationFreeLinear::weight_bytes).sum()
    }

    /// Sends the set-ups of all stages but what the client holds.
    fn accept(
        self: Arc<Self>,
        channel: &mut dyn Channel,
        compute: &Compute,
    ) -> Result<Box<dyn ServerSession>, Error> {
        let mut answer = vec![0; 4 * self.stages.values().count()];
        channel.recv(&mut answer)?;
        let mut held = 0;
        for (linear, count) in self.stages.values().zip(answer.chunks_exact(4)) {
            let count = count.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
            let polys = linear.design().layout().cost().weight_polys;
            if count > polys {
                let detail = format!("the client says that it holds {count} polynomials of {polys}");
                return Err(ProtocolError::Message { kind: "set-up of a linear stage", detail }.into());
            }
            held += count * linear.design().setup_poly_len();
            for k in count..polys {
                channel.send(&compute.run(|| linear.setup_poly(k))?)?;
            }
        }
        channel.flush()?;
        Ok(Box::new(RotationFreeSession { weights: self, held }))
    }
}

impl ServerSession for RotationFreeSession {
    fn held(&self) -> usize {
        self.held
    }

    fn answer(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let layer = self.weights.stages.get(job.stage)?;
        tiles::answer(
            self.weights.layout.stages.get(job.stage)?,
            session.channel(),
            job,
            |(_, tile), request, share, own| {
                // The server's own part is computed while the request is on its way.
                let ready = job.compute.run(|| layer.share(tile, share)).map_err(layer_error)?;
                let request = request.read()?;
                job.compute.run(|| layer.answer(tile, &ready, request, own)).map_err(layer_error)
            },
        )
    }
}
