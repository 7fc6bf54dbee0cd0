//! One party of a measurement between two processes over loopback TCP, for `hushnet bench`: users have the wheel, not the
//! workspace's examples. Inputs come from public seeds, so that party 0 can check the joint result.

mod layer;
mod relu;
mod smooth;

use crate::errors::Kind;
use hushnet_mpc::{Channel, MpcError, Party, TcpChannel};
use pyo3::prelude::*;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// How long the second party tries to reach the first.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a party waits for the other.
const SILENCE: Duration = Duration::from_secs(600);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Without an address: party 0, listening on a port that `announce` is told. With one: party 1.
fn meet(py: Python<'_>, address: Option<&str>, announce: Option<Py<PyAny>>) -> PyResult<(Party, TcpChannel)> {
    let fail = |e: MpcError| Kind::Transport.error(e);
    let (party, mut channel) = if let Some(address) = address {
        (Party::One, py.detach(|| TcpChannel::connect(address, PATIENCE)).map_err(fail)?)
    } else {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| Kind::Transport.error(e))?;
        let port = listener.local_addr().map_err(|e| Kind::Transport.error(e))?.port();
        if let Some(announce) = announce {
            announce.call1(py, (port,))?;
        }
        (Party::Zero, py.detach(|| TcpChannel::accept(&listener)).map_err(fail)?)
    };
    channel.set_timeout(Some(SILENCE)).map_err(fail)?;
    Ok((party, channel))
}

/// A byte each way: both parties start together.
fn barrier(channel: &mut dyn Channel) -> Result<(), MpcError> {
    channel.send(&[1])?;
    channel.recv(&mut [0])
}

fn send_words(channel: &mut dyn Channel, words: &[u64]) -> Result<(), MpcError> {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    channel.send(&bytes)?;
    channel.flush()
}

fn recv_words(channel: &mut dyn Channel, count: usize) -> Result<Vec<u64>, MpcError> {
    let mut bytes = vec![0; 8 * count];
    channel.recv(&mut bytes)?;
    let word = |c: &[u8]| c.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b));
    Ok(bytes.chunks_exact(8).map(word).collect())
}

/// Wall-clock and processor seconds of this process (all threads, where the system tells).
struct Watch {
    start: Instant,
    processor: f64,
}

impl Watch {
    fn start() -> Self {
        Self { start: Instant::now(), processor: processor_seconds() }
    }

    fn seconds(&self) -> [f64; 2] {
        [self.start.elapsed().as_secs_f64(), processor_seconds() - self.processor]
    }
}

/// Sum over the threads of this process, from the scheduler's nanosecond counters.
fn processor_seconds() -> f64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0.0 };
    let of = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<f64>().ok()
    };
    tasks.flatten().filter_map(of).sum::<f64>() / 1e9
}

/// Adds the functions to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(relu::measure_relu, m)?)?;
    m.add_function(wrap_pyfunction!(smooth::measure_smooth, m)?)?;
    m.add_function(wrap_pyfunction!(layer::measure_layer, m)?)
}
