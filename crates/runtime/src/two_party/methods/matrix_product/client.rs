//! The client's side of products of matrices: keys, requests, opening.

use super::super::{tiles, ClientHalf, Job, Opening};
use super::Layout;
use crate::error::Error;
use crate::two_party::layer_error;
use hushnet_layers::matrix_product::{MatrixClient, MatrixProduct};
use hushnet_mpc::Session;
use std::sync::Arc;

/// What a client holds for a session. No `Debug`.
struct MatrixSecret {
    layout: Arc<Layout>,
    key: MatrixClient,
}

/// Makes a key; sends its public part, then merging keys.
pub(super) fn open(layout: Arc<Layout>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
    let prg = &mut *opening.prg;
    let (key, message) =
        opening.compute.run(|| MatrixClient::generate(&layout.context, layout.spacing, prg))?;
    debug_assert_eq!(message.len(), MatrixProduct::key_len(&layout.context, layout.spacing));
    opening.channel.send(&message)?;
    opening.channel.flush()?;
    Ok(Box::new(MatrixSecret { layout, key }))
}

impl ClientHalf for MatrixSecret {
    fn ask(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let stage = self.layout.stages.get(job.stage)?;
        let operands = stage.matrices.enter(session, job.share)?;
        let (inputs, _) = stage.matrices.elements();
        let number = job.stage as u32;
        let job = Job { share: &operands, ..*job };
        let product = tiles::ask(
            stage,
            session.channel(),
            &job,
            |(image, _), share| {
                let (a, b) = stage.split(share);
                let make = || self.key.request(stage.product(), (&job.seeds[image], number), a, b);
                job.compute.run(make).map_err(layer_error)
            },
            |(image, _), answer, own| {
                let answer = answer.read()?;
                let (a, b) = stage.split(&operands[image * inputs..][..inputs]);
                let opened = job.compute.run(|| self.key.open(stage.product(), answer, a, b));
                own.copy_from_slice(&opened.map_err(layer_error)?);
                Ok(())
            },
        )?;
        Ok(stage.matrices.leave(session, &product)?)
    }
}
