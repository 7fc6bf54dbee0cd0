//! What both parties do in products of matrices: each has a key of its own and the other's public part, asks and answers.

use super::super::Job;
use super::Layout;
use crate::compute::Compute;
use crate::error::Error;
use crate::two_party::{layer_error, peer_words};
use hushnet_layers::batch::LayerError;
use hushnet_layers::matrix_product::{MatrixHolder, MatrixMultiplier, MatrixProduct};
use hushnet_mpc::{Channel, Session};
use hushnet_ring::Prg;
use std::sync::Arc;

/// A party's half of these stages in a session. No `Debug`.
pub(super) struct MatrixHalf {
    layout: Arc<Layout>,
    holder: MatrixHolder,
    multiplier: MatrixMultiplier,
}

impl MatrixHalf {
    /// Makes a key, sends its public part, and reads the peer's. Both send first, so the messages cross on the wire.
    pub(super) fn open(
        layout: Arc<Layout>,
        channel: &mut dyn Channel,
        compute: &Compute,
        prg: &mut Prg,
    ) -> Result<Self, Error> {
        let (holder, mut message) =
            compute.run(|| MatrixHolder::generate(&layout.context, layout.spacing, prg))?;
        debug_assert_eq!(message.len(), MatrixProduct::key_len(&layout.context, layout.spacing));
        channel.send(&message)?;
        channel.flush()?;
        channel.recv(&mut message)?;
        let read = compute.run(|| MatrixMultiplier::read(&layout.context, layout.spacing, &message));
        let multiplier = read.map_err(|e| match e {
            LayerError::Cipher(e) => peer_words(&e),
            other => layer_error(other),
        })?;
        Ok(Self { layout, holder, multiplier })
    }

    /// Runs a stage with the peer; returns this party's share of the output tensors. All requests leave first, then answers as requests come.
    pub(super) fn run(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let stage = self.layout.stages.get(job.stage)?;
        let operands = stage.matrices.enter(session, job.share)?;
        let (channel, product) = (session.channel(), stage.product());
        let (inputs, outputs) = stage.matrices.elements();
        let shares = || operands.chunks_exact(inputs).map(|image| stage.split(image));
        for (a, b) in shares() {
            let request = job.compute.run(|| self.holder.request(product, a, b));
            channel.send(&request.map_err(layer_error)?)?;
            channel.flush()?;
        }
        let mut own = Vec::with_capacity(outputs * job.seeds.len());
        let mut message = vec![0; product.request_len()];
        for (a, b) in shares() {
            let mut image = product.local(a, b).map_err(layer_error)?;
            channel.recv(&mut message)?;
            let answer = job.compute.run(|| self.multiplier.answer(product, &message, (a, b), &mut image));
            channel.send(&answer.map_err(layer_error)?)?;
            channel.flush()?;
            own.append(&mut image);
        }
        message.resize(product.answer_len(), 0);
        for image in own.chunks_exact_mut(outputs) {
            channel.recv(&mut message)?;
            job.compute.run(|| self.holder.open(product, &message, image)).map_err(layer_error)?;
        }
        Ok(stage.matrices.leave(session, &own)?)
    }
}
