//! ReLU and max-pool on shares between two processes.

use super::{barrier, meet, recv_words, send_words, Failure, Watch};
use crate::errors::Kind;
use hushnet_mpc::{
    max_pool, max_pool_cost, relu_dropping, relu_dropping_cost, Cost, CostModel, OtKind, Party, PoolShape,
    Prg, Ring, Session, SilentSize, TcpChannel,
};
use pyo3::prelude::*;

/// What is computed.
#[derive(Clone, Copy)]
enum Job {
    Relu { values: usize, drop: u32 },
    Pool(PoolShape),
}

impl Job {
    fn inputs(&self) -> usize {
        match self {
            Job::Relu { values, .. } => *values,
            Job::Pool(s) => s.channels * s.height * s.width,
        }
    }

    fn run(&self, s: &mut Session, x: &[u64], ring: Ring) -> Result<Vec<u64>, hushnet_mpc::MpcError> {
        match self {
            Job::Relu { drop, .. } => relu_dropping(s, x, ring, *drop),
            Job::Pool(shape) => max_pool(s, x, ring, *shape),
        }
    }

    fn cost(&self, m: &mut CostModel, ring: Ring) {
        match self {
            Job::Relu { values, drop } => relu_dropping_cost(m, *values, ring, *drop),
            Job::Pool(shape) => max_pool_cost(m, ring, *shape),
        }
    }

    /// Comparisons made, and values that come out.
    fn counts(&self) -> Result<(usize, usize), Failure> {
        match self {
            Job::Relu { values, .. } => Ok((*values, *values)),
            Job::Pool(s) => {
                let (rows, columns) = s.output()?;
                let across = s.channels * s.height * columns * (s.kernel.1 - 1);
                let outputs = s.channels * rows * columns;
                Ok((across + outputs * (s.kernel.0 - 1), outputs))
            }
        }
    }

    /// Whether `got` is right for the plaintext `x`.
    fn check(&self, x: &[i64], got: &[i64]) -> Result<bool, Failure> {
        match self {
            Job::Relu { drop, .. } => Ok(got
                .iter()
                .zip(x)
                .all(|(&g, &v)| g == v.max(0) || g == 0 && (0..1i64 << drop).contains(&v))),
            Job::Pool(s) => {
                let (rows, columns) = s.output()?;
                let mut want = Vec::with_capacity(got.len());
                for plane in x.chunks_exact(s.height * s.width) {
                    for (y, z) in (0..rows).flat_map(|y| (0..columns).map(move |z| (y, z))) {
                        let cell =
                            |i: usize, j: usize| plane[(y * s.stride.0 + i) * s.width + z * s.stride.1 + j];
                        let window = (0..s.kernel.0).flat_map(|i| (0..s.kernel.1).map(move |j| (i, j)));
                        want.push(window.map(|(i, j)| cell(i, j)).max().unwrap_or(0));
                    }
                }
                Ok(want == got)
            }
        }
    }
}

/// Plaintext and both parties' shares, from public seeds: this is a measurement, not a computation on secrets.
fn inputs(n: usize, ring: Ring) -> (Vec<i64>, [Vec<u64>; 2]) {
    let (mut x, mut r) = (vec![0; n], vec![0; n]);
    Prg::new(1).words(&mut x);
    Prg::new(2).words(&mut r);
    // A quarter of the range: differences of two values do not wrap.
    let plain: Vec<i64> = x.iter().map(|v| ring.signed(ring.reduce(*v)) >> 2).collect();
    r.iter_mut().for_each(|v| *v = ring.reduce(*v));
    let other = plain.iter().zip(&r).map(|(&x, &r)| ring.sub(ring.encode(x), r)).collect();
    (plain, [r, other])
}

/// Bytes and rounds of the repetitions, and the rounds of one alone.
fn predicted((job, ring, kind): (Job, Ring, OtKind), repeat: usize) -> (Cost, u64) {
    let mut m = CostModel::new(kind);
    hushnet_mpc::setup_cost(&mut m);
    m.ensure([64, 64]);
    m.reset();
    let mut rounds = 0;
    for _ in 0..repeat {
        m.exchange(1, 1);
        let before = m.cost().rounds;
        job.cost(&mut m, ring);
        rounds = rounds.max(m.cost().rounds - before);
    }
    (m.cost(), rounds)
}

fn party(
    party: Party,
    channel: TcpChannel,
    (job, ring, kind): (Job, Ring, OtKind),
    repeat: usize,
) -> Result<serde_json::Value, Failure> {
    let (plain, shares) = inputs(job.inputs(), ring);
    let mine = &shares[party.index()];
    let watch = Watch::start();
    let mut s = Session::new(Box::new(channel), party, kind)?;
    s.ensure([64, 64])?;
    let setup = watch.seconds()[0];
    let before = s.stats();
    let (mut runs, mut out) = (Vec::new(), Vec::new());
    for _ in 0..repeat {
        barrier(s.channel())?;
        let watch = Watch::start();
        out = job.run(&mut s, mine, ring)?;
        runs.push(watch.seconds());
    }
    let after = s.stats();
    let counted = [after.bytes_sent - before.bytes_sent, after.bytes_received - before.bytes_received];
    if party == Party::One {
        send_words(s.channel(), &out)?;
        barrier(s.channel())?;
        return Ok(serde_json::json!({ "runs": runs }));
    }
    let theirs = recv_words(s.channel(), out.len())?;
    barrier(s.channel())?;
    let got: Vec<i64> = out.iter().zip(&theirs).map(|(&a, &b)| ring.signed(ring.add(a, b))).collect();
    let (comparisons, outputs) = job.counts()?;
    let (cost, rounds) = predicted((job, ring, kind), repeat);
    let as_predicted = counted == [cost.bytes_sent_by_0, cost.bytes_sent_by_1];
    let payload = (counted[0] + counted[1]) as f64 - 2.0 * repeat as f64;
    Ok(serde_json::json!({
        "runs": runs, "setup_seconds": setup, "ring_bits": ring.bits(),
        "comparisons": comparisons, "outputs": outputs, "rounds": rounds,
        "bytes": payload / repeat as f64,
        "bytes_as_predicted": as_predicted,
        "correct": job.check(&plain, &got)?,
    }))
}

/// One party of a measurement of exact ReLU (`pool` none) or max-pool (`pool`: channels, height, width, kernel, stride) on
/// shares modulo 2^ring_bits with silent OT on one thread: JSON. Party 0 has no `address` and tells its port to `announce`.
/// Party 0's answer has bytes and rounds of one run, and whether the joint result equals the plaintext one.
#[pyfunction]
#[pyo3(signature = (address=None, announce=None, *, values=0, ring_bits=64, drop_bits=0, pool=None, ot="silent-small", repeat=3))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn measure_relu(
    py: Python<'_>,
    address: Option<&str>,
    announce: Option<Py<PyAny>>,
    values: usize,
    ring_bits: u32,
    drop_bits: u32,
    pool: Option<[usize; 5]>,
    ot: &str,
    repeat: usize,
) -> PyResult<String> {
    let ring = Ring::new(ring_bits).map_err(|e| Kind::Input.error(e))?;
    let job = match pool {
        None => Job::Relu { values, drop: drop_bits },
        Some([channels, height, width, kernel, stride]) => Job::Pool(PoolShape {
            channels,
            height,
            width,
            kernel: (kernel, kernel),
            stride: (stride, stride),
            padding: [(0, 0); 2],
        }),
    };
    let kind = match ot {
        "silent-tiny" => OtKind::Silent(SilentSize::Tiny),
        "silent-small" => OtKind::Silent(SilentSize::Small),
        "silent-medium" => OtKind::Silent(SilentSize::Medium),
        "silent-large" => OtKind::Silent(SilentSize::Large),
        other => return Err(Kind::Input.error(format!("no silent OT extension '{other}'"))),
    };
    job.counts().map_err(|e| Kind::Input.error(e))?;
    let (who, channel) = meet(py, address, announce)?;
    let result = py.detach(|| party(who, channel, (job, ring, kind), repeat.max(1)));
    Ok(result.map_err(|e| Kind::Hushnet.error(e))?.to_string())
}
