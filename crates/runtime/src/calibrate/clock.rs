//! Time of two parties as if each had a core of its own, measured on a machine that does other things as well.
//!
//! A party's clock advances by the processor time of its thread. A message carries the time at which it arrives; who receives it sets
//! the own clock to that, if it is later. So clocks at the end are the longest chain of dependent work (and transfers), whatever else
//! ran meanwhile.

use crate::two_party::network::Network;
use hushnet_mpc::channel::Counter;
use hushnet_mpc::{Channel, MpcError, Result, Stats};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{mpsc, Arc};

/// Bytes from which a message is on its way before its end is known.
const PIECE: usize = 1 << 15;

/// Seconds that this thread has run, where the system tells (Linux), else wall-clock seconds.
#[cfg(target_os = "linux")]
pub fn thread_seconds() -> f64 {
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
pub struct PartyClock(Arc<AtomicI64>);

impl PartyClock {
    /// Seconds since the start.
    pub fn now(&self) -> f64 {
        thread_seconds() + self.0.load(Ordering::Relaxed) as f64 * 1e-9
    }

    fn not_before(&self, seconds: f64) {
        let ahead = ((seconds - thread_seconds()) * 1e9) as i64;
        self.0.fetch_max(ahead, Ordering::Relaxed);
    }

    /// Begins at `seconds`.
    pub fn set(&self, seconds: f64) {
        self.0.store(((seconds - thread_seconds()) * 1e9) as i64, Ordering::Relaxed);
    }
}

/// One end of a channel within the process whose messages carry the time of their arrival.
pub struct ClockedChannel {
    out: mpsc::Sender<(f64, Vec<u8>)>,
    inc: mpsc::Receiver<(f64, Vec<u8>)>,
    network: Option<Network>,
    /// When the link has sent all that was given to it.
    free: f64,
    clock: PartyClock,
    pending: Vec<u8>,
    current: Vec<u8>,
    offset: usize,
    counter: Counter,
}

/// A connected pair, over a link without delay and limit or over a network.
pub fn clocked_pair(network: Option<Network>) -> (ClockedChannel, ClockedChannel) {
    let (a_out, b_in) = mpsc::channel();
    let (b_out, a_in) = mpsc::channel();
    let end = |out, inc| ClockedChannel {
        out,
        inc,
        network,
        free: f64::NEG_INFINITY,
        clock: PartyClock::default(),
        pending: Vec::new(),
        current: Vec::new(),
        offset: 0,
        counter: Counter::default(),
    };
    (end(a_out, a_in), end(b_out, b_in))
}

impl ClockedChannel {
    /// The clock of the party at this end.
    pub fn clock(&self) -> PartyClock {
        self.clock.clone()
    }
}

impl Channel for ClockedChannel {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        self.counter.sent(data.len());
        self.pending.extend_from_slice(data);
        if self.pending.len() >= PIECE {
            self.flush()?;
        }
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<()> {
        self.flush()?;
        self.counter.received(buf.len());
        let mut done = 0;
        while done < buf.len() {
            if self.offset == self.current.len() {
                let (arrives, data) = self.inc.recv().map_err(|_| MpcError::Closed)?;
                self.clock.not_before(arrives);
                (self.current, self.offset) = (data, 0);
            }
            let n = (buf.len() - done).min(self.current.len() - self.offset);
            buf[done..done + n].copy_from_slice(&self.current[self.offset..self.offset + n]);
            self.offset += n;
            done += n;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let data = std::mem::take(&mut self.pending);
        let now = self.clock.now();
        let arrives = self.network.map_or(now, |n| {
            self.free = self.free.max(now) + n.transfer_seconds(data.len() as u64);
            self.free + n.round_trip_seconds / 2.0
        });
        self.out.send((arrives, data)).map_err(|_| MpcError::Closed)
    }

    fn stats(&self) -> Stats {
        self.counter.stats()
    }
}
