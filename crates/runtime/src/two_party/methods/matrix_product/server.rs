//! The server's side of products of matrices: a client's keys, answers.

use super::super::{tiles, Job, Places, ServerHalf, ServerSession};
use super::Layout;
use crate::compute::Compute;
use crate::error::Error;
use crate::two_party::{layer_error, peer_words};
use hushnet_layers::batch::LayerError;
use hushnet_layers::matrix_product::{MatrixServer, MatrixSession};
use hushnet_mpc::{Channel, Session};
use std::sync::Arc;

/// A model's products: nothing is prepared, because no factor is known before it is shared.
struct MatrixStages {
    layout: Arc<Layout>,
}

/// The same in a session: with a client's public keys.
struct MatrixServed {
    layout: Arc<Layout>,
    keys: MatrixSession,
}

/// All stages, for every session.
pub(super) fn prepare(layout: Arc<Layout>) -> Arc<dyn ServerHalf> {
    Arc::new(MatrixStages { layout })
}

impl ServerHalf for MatrixStages {
    fn weight_bytes(&self) -> usize {
        0
    }

    fn accept(
        self: Arc<Self>,
        channel: &mut dyn Channel,
        compute: &Compute,
    ) -> Result<Box<dyn ServerSession>, Error> {
        let layout = self.layout.clone();
        let mut message = vec![0; layout.key_len()];
        channel.recv(&mut message)?;
        let keys = compute.run(|| MatrixSession::read(&layout.context, layout.spacing, &message));
        let keys = keys.map_err(|e| match e {
            LayerError::Cipher(e) => peer_words(&e),
            other => layer_error(other),
        })?;
        Ok(Box::new(MatrixServed { layout, keys }))
    }
}

impl ServerSession for MatrixServed {
    fn answer(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let stage = self.layout.stages.get(job.stage)?;
        let operands = stage.matrices.enter(session, job.share)?;
        let number = job.stage as u32;
        let job = Job { share: &operands, ..*job };
        let product = tiles::answer(stage, session.channel(), &job, |(image, _), request, share, own| {
            let request = request.read()?;
            let shares = stage.split(share);
            let place = (&job.seeds[image], number);
            let make = || MatrixServer::default().answer(&self.keys, stage.product(), place, request, shares);
            let (message, mine) = job.compute.run(make).map_err(layer_error)?;
            own.copy_from_slice(&mine);
            Ok(message)
        })?;
        Ok(stage.matrices.leave(session, &product)?)
    }
}
