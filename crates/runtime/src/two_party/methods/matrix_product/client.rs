//! The client's side of products of matrices.

use super::super::{ClientHalf, Job, Opening};
use super::half::MatrixHalf;
use super::Layout;
use crate::error::Error;
use hushnet_mpc::Session;
use std::sync::Arc;

/// What a client holds for a session. No `Debug`.
struct MatrixSecret(MatrixHalf);

/// Sends public keys and reads the server's.
pub(super) fn open(layout: Arc<Layout>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
    let half = MatrixHalf::open(layout, &mut *opening.channel, opening.compute, &mut *opening.prg)?;
    Ok(Box::new(MatrixSecret(half)))
}

impl ClientHalf for MatrixSecret {
    fn ask(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        self.0.run(session, job)
    }
}
