//! A channel that knows how long its end has waited for the peer.

use hushnet_mpc::{Channel, Result, Stats};
use hushnet_ring::clock::Instant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Nanoseconds in `recv`, shared with the session that owns the channel.
pub(super) type Waited = Arc<AtomicU64>;

pub(super) struct Metered {
    inner: Box<dyn Channel>,
    waited: Waited,
}

impl Metered {
    pub(super) fn new(inner: Box<dyn Channel>) -> (Self, Waited) {
        let waited = Waited::default();
        (Self { inner, waited: waited.clone() }, waited)
    }
}

impl Channel for Metered {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        self.inner.send(data)
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<()> {
        let start = Instant::now();
        let result = self.inner.recv(buf);
        self.waited.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn ready(&mut self) -> bool {
        self.inner.ready()
    }
}
