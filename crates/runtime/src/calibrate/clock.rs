//! Time of two parties as if each had a core of its own, measured on a machine that does other things as well.
//!
//! A party's clock advances by the processor time of its thread. A message carries the time at which it arrives; who receives it sets
//! the own clock to that, if it is later. So clocks at the end are the longest chain of dependent work (and transfers), whatever else
//! ran meanwhile.

use crate::two_party::network::Network;
use hushnet_mpc::channel::{Buffered, Inbox, Link};
use hushnet_mpc::{MpcError, Result};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{mpsc, Arc};

/// Bytes from which a message is on its way before its end is known.
const PIECE: usize = 1 << 15;

/// Seconds that this thread has run, where the system tells (Linux), else wall-clock seconds.
#[cfg(target_os = "linux")]
pub(super) fn thread_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Seconds that this thread has run, where the system tells (Linux), else wall-clock seconds.
#[cfg(not(target_os = "linux"))]
pub fn thread_seconds() -> f64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_secs_f64()
}

/// A party's clock: how many nanoseconds it is ahead of its thread's processor time. Read on that thread.
#[derive(Clone, Default)]
pub(super) struct PartyClock(Arc<AtomicI64>);

impl PartyClock {
    /// Seconds since the start.
    pub(super) fn now(&self) -> f64 {
        thread_seconds() + self.0.load(Ordering::Relaxed) as f64 * 1e-9
    }

    fn not_before(&self, seconds: f64) {
        let ahead = ((seconds - thread_seconds()) * 1e9) as i64;
        self.0.fetch_max(ahead, Ordering::Relaxed);
    }

    /// Begins at `seconds`.
    pub(super) fn set(&self, seconds: f64) {
        self.0.store(((seconds - thread_seconds()) * 1e9) as i64, Ordering::Relaxed);
    }
}

/// One end of a channel within the process whose messages carry the time of their arrival.
pub(super) type ClockedChannel = Buffered<ClockedLink>;

/// Messages handed to another thread with the time at which they arrive.
pub(super) struct ClockedLink {
    out: mpsc::Sender<(f64, Vec<u8>)>,
    inc: mpsc::Receiver<(f64, Vec<u8>)>,
    inbox: Inbox<Vec<u8>>,
    /// A message that was waited for, and when it arrives.
    found: Option<(f64, Vec<u8>)>,
    network: Option<Network>,
    /// When the link has sent all that was given to it.
    free: f64,
    clock: PartyClock,
    waiting: Waiting,
}

/// What a party does while the peer's message is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// It expands the OTs that it has ensured, as in sessions over a network: a stage's clock then holds work of later stages.
    Expands,
    /// Nothing: a stage's clock holds the work of that stage alone, from which unit costs follow.
    Idles,
}

/// A connected pair with the clocks of its parties, over a link without delay and limit or over a network.
pub(super) fn clocked_pair(network: Option<Network>, waiting: Waiting) -> [(ClockedChannel, PartyClock); 2] {
    let (a_out, b_in) = mpsc::channel();
    let (b_out, a_in) = mpsc::channel();
    let end = |out, inc| {
        let clock = PartyClock::default();
        let (inbox, free) = (Inbox::default(), f64::NEG_INFINITY);
        let link = ClockedLink { out, inc, inbox, found: None, network, free, clock: clock.clone(), waiting };
        (Buffered::over(link), clock)
    };
    [end(a_out, a_in), end(b_out, b_in)]
}

impl Link for ClockedLink {
    const MESSAGE: usize = PIECE;

    fn put(&mut self, message: Vec<u8>) -> Result<()> {
        let now = self.clock.now();
        let arrives = self.network.map_or(now, |n| {
            self.free = self.free.max(now) + n.transfer_seconds(message.len() as u64);
            self.free + n.round_trip_seconds / 2.0
        });
        self.out.send((arrives, message)).map_err(|_| MpcError::Closed)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<()> {
        self.inbox.fill(buf, || {
            let found = self.found.take().map_or_else(|| self.inc.recv(), Ok);
            let (arrives, message) = found.map_err(|_| MpcError::Closed)?;
            self.clock.not_before(arrives);
            Ok(message)
        })
    }

    /// By the clocks: what the thread waits for here has come once its own clock has reached the arrival.
    fn ready(&mut self) -> bool {
        if self.waiting == Waiting::Idles {
            return true;
        }
        if self.inbox.is_empty() && self.found.is_none() {
            self.found = self.inc.recv().ok();
        }
        !self.inbox.is_empty() || self.found.as_ref().is_none_or(|(arrives, _)| *arrives <= self.clock.now())
    }
}
