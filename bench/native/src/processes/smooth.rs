//! Functions of one variable, products and squares on shares between two processes.

use super::{barrier, meet, recv_words, send_words, Failure, Watch};
use crate::errors::Kind;
use hushnet_mpc::{
    multiply, multiply_cost, spline, spline_cost, square, square_cost, Cost, CostModel, Factor, Function,
    Interval, OtKind, Party, Prg, Range, Ring, Session, SilentSize, Spline, TcpChannel,
};
use pyo3::prelude::*;

/// The ring of arguments and results of functions, and their fractional bits.
const RING: u32 = 37;
const SCALE: u32 = 12;
/// The ring of factors and products.
const FACTOR: u32 = 16;
/// The extension that sessions take where OTs are a small part of their bytes.
const KIND: OtKind = OtKind::Silent(SilentSize::Tiny);

/// What is computed.
enum Job {
    Function(Function, Interval, Box<Spline>),
    Product(Factor),
    Square(Factor),
}

impl Job {
    /// `error`: the share of the function's range that its result may be off by.
    fn new(name: &str, [low, high]: [f64; 2], error: f64) -> Result<Self, Failure> {
        let factor = || Factor::new(Ring::new(FACTOR)?, Range::Any);
        let function = match name {
            "product" => return Ok(Self::Product(factor()?)),
            "square" => return Ok(Self::Square(factor()?)),
            name => Function::ALL.into_iter().find(|f| format!("{f:?}").eq_ignore_ascii_case(name)),
        };
        let f = function.ok_or_else(|| format!("no function '{name}' is measured"))?;
        let at = Interval::between(low, high, SCALE)?;
        let values = (0..=4096).map(|i| f.at(low + (high - low) * f64::from(i) / 4096.0));
        let span = values.fold((f64::MAX, f64::MIN), |a, v| (a.0.min(v), a.1.max(v)));
        let ring = Ring::new(RING)?;
        let fit = Spline::fit(&|x| f.at(x), (at, ring), SCALE + 1, error * (span.1 - span.0))?;
        Ok(Self::Function(f, at, Box::new(fit)))
    }

    fn ring(&self) -> Result<Ring, Failure> {
        Ok(Ring::new(if matches!(self, Self::Function(..)) { RING } else { FACTOR })?)
    }

    fn run(&self, s: &mut Session, x: &[u64], y: &[u64]) -> Result<Vec<u64>, Failure> {
        let ring = self.ring()?;
        Ok(match self {
            Self::Function(_, _, fit) => {
                spline(s, (x, ring), &fit.shape, Some(&fit.pieces), Party::Zero, ring)?
            }
            Self::Product(f) => multiply(s, (x, *f), (y, *f), ring)?,
            Self::Square(f) => square(s, x, *f, ring)?,
        })
    }

    fn cost(&self, m: &mut CostModel, n: usize, ring: Ring) {
        match self {
            Self::Function(_, _, fit) => spline_cost(m, n, &fit.shape, Party::Zero, ring),
            Self::Product(f) => multiply_cost(m, n, *f, *f, ring),
            Self::Square(f) => square_cost(m, n, *f, ring),
        }
    }

    /// Arguments and their shares, from public seeds: this is a measurement.
    fn inputs(&self, n: usize, ring: Ring, seed: u128) -> (Vec<i64>, [Vec<u64>; 2]) {
        let (mut x, mut r) = (vec![0; n], vec![0; n]);
        Prg::new(seed).words(&mut x);
        Prg::new(seed + 1).words(&mut r);
        r.iter_mut().for_each(|r| *r = ring.reduce(*r));
        let plain: Vec<i64> = match self {
            Self::Function(_, at, _) => {
                x.iter().map(|x| at.low + (x % ((at.high - at.low) as u64 + 1)) as i64).collect()
            }
            _ => x.iter().map(|x| ring.signed(*x)).collect(),
        };
        let other = plain.iter().zip(&r).map(|(&x, &r)| ring.sub(ring.encode(x), r)).collect();
        (plain, [r, other])
    }

    /// The largest error of the joint result, and the bound of it.
    fn error(&self, x: &[i64], y: &[i64], got: &[u64], ring: Ring) -> (f64, f64) {
        let unit = 2f64.powi(-(SCALE as i32));
        let each = |i: usize| match self {
            Self::Function(f, ..) => {
                (ring.signed(got[i]) as f64 * unit / 2.0 - f.at(x[i] as f64 * unit)).abs()
            }
            Self::Product(_) => f64::from(u8::from(got[i] != ring.encode(x[i].wrapping_mul(y[i])))),
            Self::Square(_) => f64::from(u8::from(got[i] != ring.encode(x[i].wrapping_mul(x[i])))),
        };
        let bound = if let Self::Function(_, _, fit) = self { fit.error } else { 0.0 };
        ((0..x.len()).map(each).fold(0.0, f64::max), bound)
    }
}

/// Bytes and rounds of the repetitions, and the rounds of one alone.
fn predicted(job: &Job, n: usize, repeat: usize, ring: Ring) -> (Cost, u64) {
    let mut m = CostModel::new(KIND);
    hushnet_mpc::setup_cost(&mut m);
    m.ensure([64, 64]);
    m.reset();
    let mut rounds = 0;
    for _ in 0..repeat {
        m.exchange(1, 1);
        let before = m.cost().rounds;
        job.cost(&mut m, n, ring);
        rounds = rounds.max(m.cost().rounds - before);
    }
    (m.cost(), rounds)
}

fn party(
    party: Party,
    channel: TcpChannel,
    job: &Job,
    n: usize,
    repeat: usize,
) -> Result<serde_json::Value, Failure> {
    let ring = job.ring()?;
    let ((x, shares), (y, others)) = (job.inputs(n, ring, 1), job.inputs(n, ring, 3));
    let mut s = Session::new(Box::new(channel), party, KIND)?;
    s.ensure([64, 64])?;
    let before = s.stats();
    let (mut runs, mut out) = (Vec::new(), Vec::new());
    for _ in 0..repeat {
        barrier(s.channel())?;
        let watch = Watch::start();
        out = job.run(&mut s, &shares[party.index()], &others[party.index()])?;
        runs.push(watch.seconds());
    }
    let after = s.stats();
    if party == Party::One {
        send_words(s.channel(), &out)?;
        barrier(s.channel())?;
        return Ok(serde_json::json!({ "runs": runs }));
    }
    let theirs = recv_words(s.channel(), out.len())?;
    barrier(s.channel())?;
    let got: Vec<u64> = out.iter().zip(&theirs).map(|(&a, &b)| ring.add(a, b)).collect();
    let counted = [after.bytes_sent - before.bytes_sent, after.bytes_received - before.bytes_received];
    let (cost, rounds) = predicted(job, n, repeat, ring);
    let (error, bound) = job.error(&x, &y, &got, ring);
    Ok(serde_json::json!({
        "runs": runs, "rounds": rounds, "ring_bits": ring.bits(),
        "bytes": ((counted[0] + counted[1]) as f64 - 2.0 * repeat as f64) / repeat as f64,
        "bytes_as_predicted": counted == [cost.bytes_sent_by_0, cost.bytes_sent_by_1],
        "error": error, "error_bound": bound, "correct": error <= bound,
    }))
}

/// One party of a measurement of a function of one variable on shares modulo 2^37 with 12 fractional bits (`function`: a name of `hushnet_mpc::Function` in any case,
/// on `interval`, to `error` of its range), or of products and squares of 16 bits modulo 2^16 (`product`, `square`), with silent OT on one thread: JSON. Party 0 has no `address` and tells
/// its port to `announce`. Party 0's answer has bytes and messages in turn of one run, the largest error of the joint result and its bound.
#[pyfunction]
#[pyo3(signature = (address=None, announce=None, *, function, values, interval=[-8.0, 8.0], error=0.0009765625, repeat=3))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(super) fn measure_smooth(
    py: Python<'_>,
    address: Option<&str>,
    announce: Option<Py<PyAny>>,
    function: &str,
    values: usize,
    interval: [f64; 2],
    error: f64,
    repeat: usize,
) -> PyResult<String> {
    let job = Job::new(function, interval, error).map_err(|e| Kind::Input.error(e))?;
    let (who, channel) = meet(py, address, announce)?;
    let result = py.detach(|| party(who, channel, &job, values, repeat.max(1)));
    Ok(result.map_err(|e| Kind::Hushnet.error(e))?.to_string())
}
