//! ReLU and max-pool on shares between two processes, by oblivious transfer and by garbled circuits.

use super::{barrier, meet, recv_words, send_words, Failure, Watch};
use crate::errors::Kind;
use hushnet_mpc::garble::{self, Modulus, OddModulus};
use hushnet_mpc::{
    max_pool, max_pool_cost, relu, relu_cost, relu_dividing, relu_dividing_cost, relu_dropping,
    relu_dropping_cost, relu_within, relu_within_cost, truncate, truncate_cost, Comparison, Cost, CostModel,
    Narrowing, OtKind, Party, PoolShape, Prg, Range, Ring, Rounding, Session, SilentSize, TcpChannel,
};
use pyo3::prelude::*;

/// What is computed.
#[derive(Clone, Copy)]
enum Job {
    Relu {
        values: usize,
        drop: u32,
    },
    /// ReLU and division by 2^drop, of what `kept` bits hold after it: in one, or `apart`, all bits that values have compared and the result divided.
    Dividing {
        values: usize,
        drop: u32,
        kept: Ring,
        apart: bool,
    },
    /// Party 0 garbles.
    Garbled {
        values: usize,
    },
    Pool(PoolShape),
}

const GARBLER: Party = Party::Zero;

impl Job {
    fn inputs(&self) -> usize {
        match self {
            Job::Relu { values, .. } | Job::Dividing { values, .. } | Job::Garbled { values } => *values,
            Job::Pool(s) => s.channels * s.height * s.width,
        }
    }

    fn run(&self, s: &mut Session, x: &[u64], m: Modulus) -> Result<Vec<u64>, Failure> {
        Ok(match (self, m) {
            (Job::Garbled { .. }, m) => garble::relu(s, x, m, GARBLER)?,
            (Job::Relu { drop: 0, .. }, Modulus::PowerOfTwo(ring)) => relu(s, x, ring)?,
            (Job::Relu { drop, .. }, Modulus::PowerOfTwo(ring)) => relu_dropping(s, x, ring, *drop)?,
            (Job::Dividing { drop, kept, apart, .. }, Modulus::PowerOfTwo(ring)) => {
                let (bits, faithful) = (*drop, Rounding::Faithful);
                if *apart {
                    let positive = relu_within(s, x, ring, Ring::new(kept.bits() + bits)?)?;
                    truncate(s, &positive, bits, ring, Range::NonNegative, faithful)?
                } else {
                    relu_dividing(s, x, Narrowing { ring, bits, narrow: *kept })?
                }
            }
            (Job::Pool(shape), Modulus::PowerOfTwo(ring)) => max_pool(s, x, ring, ring, *shape)?,
            (_, Modulus::Odd(p)) => {
                return Err(format!("only garbled circuits work modulo {}", p.value()).into())
            }
        })
    }

    fn cost(&self, model: &mut CostModel, m: Modulus) {
        match (self, m) {
            (Job::Garbled { values }, m) => garble::relu_cost(model, *values, m, GARBLER),
            (Job::Relu { values, drop: 0 }, Modulus::PowerOfTwo(ring)) => relu_cost(model, *values, ring),
            (Job::Relu { values, drop }, Modulus::PowerOfTwo(ring)) => {
                relu_dropping_cost(model, *values, ring, *drop);
            }
            (Job::Dividing { values, drop, kept, apart }, Modulus::PowerOfTwo(ring)) => {
                let (bits, faithful) = (*drop, Rounding::Faithful);
                if !*apart {
                    relu_dividing_cost(model, *values, Narrowing { ring, bits, narrow: *kept });
                } else if let Ok(whole) = Ring::new(kept.bits() + bits) {
                    relu_within_cost(model, *values, ring, whole);
                    truncate_cost(model, *values, bits, ring, Range::NonNegative, faithful);
                }
            }
            (Job::Pool(shape), Modulus::PowerOfTwo(ring)) => max_pool_cost(model, ring, ring, *shape),
            (_, Modulus::Odd(_)) => {}
        }
    }

    /// AND gates of all values; 0 where nothing is garbled.
    fn gates(&self, m: Modulus) -> u64 {
        match self {
            Job::Garbled { values } => *values as u64 * garble::relu_gates(m),
            _ => 0,
        }
    }

    /// Whether every value of the modulus may come in: where two values are compared by their difference, or low bits are dropped, a quarter.
    fn exact_everywhere(&self) -> bool {
        matches!(self, Job::Garbled { .. } | Job::Relu { drop: 0, .. })
    }

    /// Comparisons made, and values that come out.
    fn counts(&self) -> Result<(usize, usize), Failure> {
        match self {
            Job::Relu { values, .. } | Job::Dividing { values, .. } | Job::Garbled { values } => {
                Ok((*values, *values))
            }
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
            Job::Garbled { .. } => Ok(got.iter().zip(x).all(|(&g, &v)| g == v.max(0))),
            Job::Relu { drop, .. } => Ok(got
                .iter()
                .zip(x)
                .all(|(&g, &v)| g == v.max(0) || g == 0 && (0..1i64 << drop).contains(&v))),
            Job::Dividing { drop, .. } => {
                Ok(got.iter().zip(x).all(|(&g, &v)| (0..=1).contains(&(g - (v.max(0) >> drop)))))
            }
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

/// Residues where protocols break first: 0, 1, -1, both extremes.
fn edges(m: Modulus) -> [u64; 5] {
    let (last, half) = match m {
        Modulus::PowerOfTwo(r) => (r.mask(), r.mask() / 2),
        Modulus::Odd(p) => (p.value() - 1, p.half()),
    };
    [0, 1, last, half, half + 1]
}

/// Plaintext and both parties' shares, from public seeds: this is a measurement, not a computation on secrets. Every edge value comes
/// with every edge value as a share of it (so that shares wrap, or do not by one), then random ones.
fn inputs(job: &Job, m: Modulus) -> (Vec<i64>, [Vec<u64>; 2]) {
    let n = job.inputs();
    let (mut x, mut r) = (vec![0; n], vec![0; n]);
    Prg::new(1).words(&mut x);
    Prg::new(2).words(&mut r);
    for words in [&mut x, &mut r] {
        words.iter_mut().for_each(|v| {
            *v = match m {
                Modulus::PowerOfTwo(ring) => ring.reduce(*v),
                Modulus::Odd(p) => p.reduce(*v),
            }
        });
    }
    if job.exact_everywhere() {
        for (i, (x, r)) in x.iter_mut().zip(&mut r).take(25).enumerate() {
            (*x, *r) = (edges(m)[i / 5], edges(m)[i % 5]);
        }
    }
    let narrowed = match job {
        // half of what is kept: the next integer fits, too
        Job::Dividing { drop, kept, .. } => m.bits() - kept.bits() - drop + 1,
        _ if job.exact_everywhere() => 0,
        _ => 2,
    };
    let plain: Vec<i64> = x.iter().map(|v| m.signed(*v) >> narrowed).collect();
    let other = plain.iter().zip(&r).map(|(&x, &r)| m.sub(m.encode(x), r)).collect();
    (plain, [r, other])
}

/// Bytes and rounds of the repetitions, and the rounds of one alone.
fn predicted(
    (job, modulus): (Job, Modulus),
    (kind, comparison): (OtKind, Comparison),
    repeat: usize,
) -> (Cost, u64) {
    let mut m = CostModel::new(kind);
    m.set_comparison(comparison);
    hushnet_mpc::setup_cost(&mut m);
    m.ensure([64, 64]);
    m.reset();
    let mut rounds = 0;
    for _ in 0..repeat {
        m.exchange(1, 1);
        let before = m.cost().rounds;
        job.cost(&mut m, modulus);
        rounds = rounds.max(m.cost().rounds - before);
    }
    (m.cost(), rounds)
}

fn party(
    party: Party,
    channel: TcpChannel,
    (job, modulus): (Job, Modulus),
    (kind, comparison): (OtKind, Comparison),
    repeat: usize,
) -> Result<serde_json::Value, Failure> {
    let (plain, shares) = inputs(&job, modulus);
    let mine = &shares[party.index()];
    let watch = Watch::start();
    let mut s = Session::new(Box::new(channel), party, kind)?;
    s.set_comparison(comparison);
    s.ensure([64, 64])?;
    let setup = watch.seconds()[0];
    let before = s.stats();
    let (mut runs, mut out) = (Vec::new(), Vec::new());
    for _ in 0..repeat {
        barrier(s.channel())?;
        let watch = Watch::start();
        out = job.run(&mut s, mine, modulus)?;
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
    let got: Vec<i64> = out.iter().zip(&theirs).map(|(&a, &b)| modulus.signed(modulus.add(a, b))).collect();
    let (comparisons, outputs) = job.counts()?;
    let (cost, rounds) = predicted((job, modulus), (kind, comparison), repeat);
    let as_predicted = counted == [cost.bytes_sent_by_0, cost.bytes_sent_by_1];
    let payload = (counted[0] + counted[1]) as f64 - 2.0 * repeat as f64;
    Ok(serde_json::json!({
        "runs": runs, "setup_seconds": setup, "ring_bits": modulus.bits(), "and_gates": job.gates(modulus),
        "comparisons": comparisons, "outputs": outputs, "rounds": rounds,
        "bytes": payload / repeat as f64,
        "bytes_as_predicted": as_predicted,
        "correct": job.check(&plain, &got)?,
    }))
}

/// One party of a measurement of ReLU (`pool` none; `garbled`: by a garbled circuit; `kept_bits`: divided by 2^drop_bits, which leaves so many bits;
/// `apart`: in two steps; signs in a tree, or by a carry through `digits` of so many bits) or max-pool (`pool`: channels, height, width,
/// kernel, stride) on shares modulo 2^ring_bits, or modulo an odd `prime` (garbled ReLU only), with silent OT on one thread: JSON. Party 0 has no `address` and tells its port to `announce`.
/// Party 0's answer has bytes and rounds of one run, and whether the joint result equals the plaintext one.
#[pyfunction]
#[pyo3(signature = (address=None, announce=None, *, values=0, ring_bits=64, drop_bits=0, pool=None, ot="silent-small", repeat=3, garbled=false, prime=None, kept_bits=None, apart=false, digits=0))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(super) fn measure_relu(
    py: Python<'_>,
    address: Option<&str>,
    announce: Option<Py<PyAny>>,
    values: usize,
    ring_bits: u32,
    drop_bits: u32,
    pool: Option<[usize; 5]>,
    ot: &str,
    repeat: usize,
    garbled: bool,
    prime: Option<u64>,
    kept_bits: Option<u32>,
    apart: bool,
    digits: u32,
) -> PyResult<String> {
    let modulus = match prime {
        Some(p) => Modulus::Odd(OddModulus::new(p).map_err(|e| Kind::Input.error(e))?),
        None => Modulus::PowerOfTwo(Ring::new(ring_bits).map_err(|e| Kind::Input.error(e))?),
    };
    if prime.is_some() && !garbled {
        return Err(Kind::Input.error("shares modulo a prime go through garbled circuits: set garbled"));
    }
    let job = match pool {
        None if garbled => Job::Garbled { values },
        Some(_) if garbled => return Err(Kind::Input.error("only ReLU is measured by garbled circuits")),
        None => match kept_bits {
            None => Job::Relu { values, drop: drop_bits },
            Some(kept) if (2..=ring_bits.saturating_sub(drop_bits)).contains(&kept) => {
                let kept = Ring::new(kept).map_err(|e| Kind::Input.error(e))?;
                Job::Dividing { values, drop: drop_bits, kept, apart }
            }
            Some(kept) => {
                let limit = ring_bits.saturating_sub(drop_bits);
                return Err(Kind::Input.error(format!("kept_bits {kept} is not from 2 to {limit}")));
            }
        },
        Some([channels, height, width, kernel, stride]) => Job::Pool(PoolShape {
            channels,
            height,
            width,
            kernel: (kernel, kernel),
            stride: (stride, stride),
            padding: [(0, 0); 2],
        }),
    };
    let comparison = if digits == 0 { Comparison::Tree } else { Comparison::Ripple(digits) };
    let kind = match ot {
        "silent-tiny" => OtKind::Silent(SilentSize::Tiny),
        "silent-small" => OtKind::Silent(SilentSize::Small),
        "silent-medium" => OtKind::Silent(SilentSize::Medium),
        "silent-large" => OtKind::Silent(SilentSize::Large),
        other => return Err(Kind::Input.error(format!("no silent OT extension '{other}'"))),
    };
    job.counts().map_err(|e| Kind::Input.error(e))?;
    let (who, channel) = meet(py, address, announce)?;
    let result = py.detach(|| party(who, channel, (job, modulus), (kind, comparison), repeat.max(1)));
    Ok(result.map_err(|e| Kind::Hushnet.error(e))?.to_string())
}
