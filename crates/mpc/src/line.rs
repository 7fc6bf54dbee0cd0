//! A session's end of its channel, which expands correlated OTs while the peer's message is on its way.
//!
//! The peer works while this party waits, and the rows that it has paid for or received corrections of are its next work anyway. What
//! is sent and drawn does not depend on when rows are made, nor does anything that is made follow from a secret: whether there is time is for the
//! peer and the network to say. No more rows are made than protocols have ensured, and than may lie ready ([`crate::OtKind::held_bytes`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::channel::{Channel, Stats};
use crate::error::Result;
use crate::ot::{CotReceiver, CotSender};

fn held<T: ?Sized>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The correlated OTs of both directions.
pub(crate) struct Stock {
    send: Mutex<Box<dyn CotSender>>,
    recv: Mutex<Box<dyn CotReceiver>>,
    /// Which direction's turn it is to be expanded first.
    turn: AtomicBool,
}

impl Stock {
    pub(crate) fn new(send: Box<dyn CotSender>, recv: Box<dyn CotReceiver>) -> Arc<Self> {
        Arc::new(Self { send: Mutex::new(send), recv: Mutex::new(recv), turn: AtomicBool::new(false) })
    }

    /// The direction in which this party sends.
    pub(crate) fn send(&self) -> MutexGuard<'_, Box<dyn CotSender>> {
        held(&self.send)
    }

    /// The direction in which it receives.
    pub(crate) fn recv(&self) -> MutexGuard<'_, Box<dyn CotReceiver>> {
        held(&self.recv)
    }

    /// Makes some rows of a direction that is not at work itself; false when there is nothing to do.
    fn ahead(&self) -> bool {
        let sent = || self.send.try_lock().is_ok_and(|mut s| s.ahead());
        let received = || self.recv.try_lock().is_ok_and(|mut r| r.ahead());
        let first = self.turn.fetch_xor(true, Ordering::Relaxed);
        (first && sent()) || received() || (!first && sent())
    }
}

/// The channel that the protocols of a session speak over.
pub(crate) struct Line {
    inner: Box<dyn Channel>,
    stock: Arc<Stock>,
}

impl Line {
    pub(crate) fn new(inner: Box<dyn Channel>, stock: Arc<Stock>) -> Self {
        Self { inner, stock }
    }
}

impl Channel for Line {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        self.inner.send(data)
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<()> {
        if !buf.is_empty() {
            self.inner.flush()?;
            while !self.inner.ready() && self.stock.ahead() {}
        }
        self.inner.recv(buf)
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
