//! The server's side of products of matrices.

use super::super::{Job, ServerHalf, ServerSession};
use super::half::MatrixHalf;
use super::Layout;
use crate::compute::Compute;
use crate::error::Error;
use hushnet_mpc::{Channel, Session};
use hushnet_ring::Prg;
use std::sync::Arc;

/// A model's products: nothing is prepared, because no factor is known before it is shared.
struct MatrixStages {
    layout: Arc<Layout>,
}

/// The same in a session: with a key for it, and a client's public keys.
struct MatrixServed(MatrixHalf);

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
        let half = MatrixHalf::open(self.layout.clone(), channel, compute, &mut Prg::from_os()?)?;
        Ok(Box::new(MatrixServed(half)))
    }
}

impl ServerSession for MatrixServed {
    fn answer(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        self.0.run(session, job)
    }
}
