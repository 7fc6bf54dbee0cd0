//! Samples of what two parties' protocols cost: of protocols on shares, and of whole plans stage by stage.
//!
//! Seconds are of the longest chain of dependent work (the module `clock`), a core a party, messages free of charge unless a network is
//! given. The planner fits its unit costs to them.

pub use super::clock::Waiting;
use super::clock::{clocked_pair, ClockedChannel, PartyClock};
use crate::error::Error;
use crate::io::Input;
use crate::session::ClientSession;
use crate::two_party::cost::Extensions;
use crate::two_party::network::Network;
use crate::two_party::{TwoPartyClient, TwoPartyModel, TwoPartyOptions};
use hushnet_mpc::garble::{self, Modulus};
use hushnet_mpc::{
    self as mpc, CostModel, Factor, Interval, OtKind, Party, Range, Ring, Rounding, Session, Spline,
};
use serde::Serialize;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// One protocol on shares.
#[derive(Clone, Copy, Debug)]
enum Protocol {
    /// Correlated OTs made ahead, so many in each direction: they are there when the protocols that follow draw them.
    Stock,
    /// ReLU whose signs are compared in a ring of so many bits.
    Relu { bits: u32 },
    /// Truncation without comparison: the sign is known.
    Truncate,
    /// ReLU by a garbled circuit.
    Garbled,
    /// Exact truncation of any sign: compares the ring's bits and the bits cut off.
    Exact { shift: u32 },
    /// Products of two values of so many bits, modulo as many.
    Multiply { bits: u32 },
    /// A sigmoid on [-8, 8].
    Function,
}

/// Bits of the shares of all samples: what image networks take.
const RING: u32 = 28;
/// Values and protocols, in the order in which a session runs them.
const SCRIPT: &[(usize, Protocol)] = &[
    (64, Protocol::Stock),
    (16, Protocol::Relu { bits: 16 }),
    (64, Protocol::Truncate),
    (128, Protocol::Truncate),
    (64, Protocol::Relu { bits: 20 }),
    (100_000, Protocol::Stock),
    (64, Protocol::Relu { bits: 20 }),
    (64, Protocol::Truncate),
    (512, Protocol::Relu { bits: 12 }),
    (512, Protocol::Truncate),
    (2048, Protocol::Relu { bits: 20 }),
    (256, Protocol::Exact { shift: 10 }),
    (2048, Protocol::Relu { bits: 12 }),
    (128, Protocol::Garbled),
    (2048, Protocol::Garbled),
    (8192, Protocol::Truncate),
    (8192, Protocol::Relu { bits: 16 }),
    (4096, Protocol::Exact { shift: 8 }),
    (512, Protocol::Multiply { bits: 12 }),
    (4096, Protocol::Multiply { bits: 24 }),
    (512, Protocol::Function),
    (8192, Protocol::Function),
];
/// Fractional bits of a function's argument and result.
const FRACTION: u32 = 12;

/// The pieces of the sigmoid; fitted once, which is compile time.
fn sigmoid() -> Result<&'static Spline, mpc::MpcError> {
    static PIECES: OnceLock<Spline> = OnceLock::new();
    if let Some(pieces) = PIECES.get() {
        return Ok(pieces);
    }
    let at = (Interval::between(-8.0, 8.0, FRACTION)?, Ring::new(RING)?);
    let fitted = Spline::fit(&|x| mpc::Function::Sigmoid.at(x), at, FRACTION, 2f64.powi(-10))?;
    Ok(PIECES.get_or_init(|| fitted))
}

/// One protocol on shares, measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// Bits that were compared, of all values.
    pub compared_bits: u64,
    /// Values that were selected by a shared bit.
    pub selected: u64,
    /// Values that were truncated.
    pub truncated: u64,
    /// Terms of products, both directions together.
    pub multiplied: u64,
    /// Entries of the tables of functions.
    pub looked_up: u64,
    /// AND gates that were garbled.
    pub gates: u64,
    /// Messages on the longest chain.
    pub rounds: u64,
    /// Work of the OT extensions.
    #[serde(flatten)]
    pub extensions: Extensions,
    /// Seconds on the longest chain of both parties' work.
    pub seconds: f64,
}

impl Protocol {
    fn run(self, s: &mut Session, x: &[u64], ring: Ring) -> Result<(), mpc::MpcError> {
        match self {
            Self::Stock => return s.ensure([x.len() as u64; 2]),
            Self::Relu { bits } => mpc::relu_within(s, x, ring, Ring::new(bits)?)?,
            Self::Garbled => garble::relu(s, x, Modulus::PowerOfTwo(ring), Party::Zero)?,
            Self::Truncate => mpc::truncate(s, x, 8, ring, Range::Small, Rounding::Faithful)?,
            Self::Exact { shift } => mpc::truncate(s, x, shift, ring, Range::Any, Rounding::Floor)?,
            Self::Multiply { bits } => {
                let (own, of) = (Ring::new(bits)?, Factor::new(Ring::new(bits)?, Range::Any)?);
                let x: Vec<u64> = x.iter().map(|v| own.reduce(*v)).collect();
                mpc::multiply(s, (&x, of), (&x, of), own)?
            }
            Self::Function => {
                let fit = sigmoid()?;
                let pieces = (s.party() == Party::Zero).then_some(&fit.pieces);
                mpc::spline(s, (x, ring), &fit.shape, pieces, Party::Zero, ring)?
            }
        };
        Ok(())
    }

    fn cost(self, m: &mut CostModel, n: usize, ring: Ring) -> Result<Sample, mpc::MpcError> {
        let (rounds, gates, before) = (m.cost().rounds, m.gates(), Extensions::of(m));
        let (mut multiplied, mut looked_up) = (0, 0);
        let (compared, selected, truncated) = match self {
            Self::Stock => {
                m.ensure([n as u64; 2]);
                (0, 0, 0)
            }
            Self::Relu { bits } => {
                mpc::relu_within_cost(m, n, ring, Ring::new(bits)?);
                (bits, 1, 0)
            }
            Self::Garbled => {
                garble::relu_cost(m, n, Modulus::PowerOfTwo(ring), Party::Zero);
                (0, 0, 0)
            }
            Self::Truncate => {
                mpc::truncate_cost(m, n, 8, ring, Range::Small, Rounding::Faithful);
                (0, 0, 1)
            }
            Self::Exact { shift } => {
                mpc::truncate_cost(m, n, shift, ring, Range::Any, Rounding::Floor);
                (ring.bits() + shift, 0, 1)
            }
            Self::Multiply { bits } => {
                let of = Factor::new(Ring::new(bits)?, Range::Any)?;
                mpc::multiply_cost(m, n, of, of, Ring::new(bits)?);
                multiplied = 2 * u64::from(bits);
                (0, 0, 0)
            }
            Self::Function => {
                let shape = &sigmoid()?.shape;
                mpc::spline_cost(m, n, shape, Party::Zero, ring);
                (multiplied, looked_up) = (shape.products() as u64, 1 << shape.spec().segments);
                (0, 0, 0)
            }
        };
        let values = n as u64;
        Ok(Sample {
            compared_bits: values * u64::from(compared),
            selected: values * selected,
            truncated: values * truncated,
            multiplied: values * multiplied,
            looked_up: values * looked_up,
            gates: m.gates() - gates,
            rounds: m.cost().rounds - rounds,
            extensions: Extensions::of(m).since(&before),
            seconds: f64::INFINITY,
        })
    }
}

/// Runs `f` on a thread of its own in which parallel work runs as well, so that its clock sees all of it.
fn alone<T: Send>(f: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(|e| Error::Internal(e.to_string()))?;
    pool.install(f)
}

/// Both parties, each on a thread of its own.
fn both<A: Send, B: Send>(
    zero: impl FnOnce() -> Result<A, Error> + Send,
    one: impl FnOnce() -> Result<B, Error> + Send,
) -> Result<(A, B), Error> {
    std::thread::scope(|scope| {
        let far = scope.spawn(move || alone(zero));
        let near = alone(one);
        let far = far.join().map_err(|_| Error::Internal("a party's thread failed".into()))?;
        // who ended early is the cause of what the other saw
        match (near, far) {
            (Ok(near), Ok(far)) => Ok((far, near)),
            (Err(e), Ok(_)) | (Ok(_), Err(e)) => Err(e),
            (Err(Error::Transport(_)), Err(e)) | (Err(e), Err(_)) => Err(e),
        }
    })
}

/// One party's clock after the set-up and after every protocol of the script.
fn play(channel: ClockedChannel, clock: &PartyClock, party: Party, kind: OtKind) -> Result<Vec<f64>, Error> {
    clock.set(0.0);
    let mut session = Session::new(Box::new(channel), party, kind)?;
    let ring = Ring::new(RING)?;
    let mut times = vec![clock.now()];
    for (n, protocol) in SCRIPT {
        let share: Vec<u64> = (0..*n as u64).map(|i| ring.reduce(i.wrapping_mul(0x9e37_79b9))).collect();
        // all shares of the second party are zero: values are what the first one holds
        let share = if party == Party::Zero { share.iter().map(|v| v >> 4).collect() } else { vec![0; *n] };
        protocol.run(&mut session, &share, ring)?;
        times.push(clock.now());
    }
    Ok(times)
}

/// Samples of the protocols with an OT extension, and the seconds of the base OTs, each the least of sessions for about `time`.
///
/// # Errors
/// [`Error`] when the system refuses threads or randomness.
pub fn protocols(kind: OtKind, time: Duration) -> Result<(f64, Vec<Sample>), Error> {
    let ring = Ring::new(RING)?;
    let mut model = CostModel::new(kind);
    let mut samples =
        SCRIPT.iter().map(|(n, p)| p.cost(&mut model, *n, ring)).collect::<Result<Vec<_>, _>>()?;
    let (mut setup, mut runs, start) = (f64::INFINITY, 0, Instant::now());
    while runs < 3 || start.elapsed() < time {
        let [(far, far_clock), (near, near_clock)] = clocked_pair(None, Waiting::Idles);
        let far = || play(far, &far_clock, Party::Zero, kind);
        let (zero, one) = both(far, || play(near, &near_clock, Party::One, kind))?;
        let ends: Vec<f64> = zero.iter().zip(&one).map(|(a, b)| a.max(*b)).collect();
        setup = setup.min(ends[0]);
        for (sample, pair) in samples.iter_mut().zip(ends.windows(2)) {
            sample.seconds = sample.seconds.min(pair[1] - pair[0]);
        }
        runs += 1;
    }
    Ok((setup, samples))
}

/// A plan's run by the clocks of both parties.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClockedRun {
    /// Seconds of the session's set-up.
    pub setup: f64,
    /// For every inference in the session and every stage: seconds on the longest chain, and of the client's own work.
    pub runs: Vec<Vec<[f64; 2]>>,
}

/// Runs a plan on the same inputs `runs` times in one session, over a network of that kind (`None`: messages cost nothing).
///
/// # Errors
/// As [`crate::local::run_shares`].
pub fn run(
    model: &TwoPartyModel,
    inputs: &[Input<'_>],
    options: TwoPartyOptions,
    (network, waiting): (Option<Network>, Waiting),
    runs: usize,
) -> Result<ClockedRun, Error> {
    let [(far, far_clock), (near, near_clock)] = clocked_pair(network, waiting);
    let serve = || {
        far_clock.set(0.0);
        model.serve_plain(Box::new(far), &mut |_| {})
    };
    let (_, run) = both(serve, || infer(near, &near_clock, inputs, options, runs))?;
    Ok(run)
}

fn infer(
    channel: ClockedChannel,
    clock: &PartyClock,
    inputs: &[Input<'_>],
    options: TwoPartyOptions,
    runs: usize,
) -> Result<ClockedRun, Error> {
    let mark = || [clock.now(), super::clock::thread_seconds()];
    clock.set(0.0);
    let mut client = TwoPartyClient::open(Box::new(channel), options)?;
    let mut found = ClockedRun { setup: clock.now(), runs: Vec::with_capacity(runs) };
    for _ in 0..runs {
        let mut marks = Vec::new();
        client.infer(inputs, &mut |_| {
            marks.push(mark());
            ControlFlow::Continue(())
        })?;
        marks.push(mark());
        let stage = |m: &[[f64; 2]]| [m[1][0] - m[0][0], m[1][1] - m[0][1]];
        found.runs.push(marks.windows(2).map(stage).collect());
    }
    client.close()?;
    Ok(found)
}

/// Seconds from one party to the other for a small message, both threads asleep before: the least of rounds for about `time`.
///
/// # Errors
/// [`Error::Transport`] when the system refuses sockets.
pub fn message(time: Duration) -> Result<f64, Error> {
    const TOGETHER: usize = 16;
    let io = |e: std::io::Error| Error::from(crate::error::TransportError::Io(e.to_string()));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(io)?;
    let mut near = TcpStream::connect(listener.local_addr().map_err(io)?).map_err(io)?;
    let (mut far, _) = listener.accept().map_err(io)?;
    near.set_nodelay(true).map_err(io)?;
    far.set_nodelay(true).map_err(io)?;
    let echo = std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while far.read_exact(&mut buffer).and_then(|()| far.write_all(&buffer)).is_ok() {}
    });
    let (mut best, mut buffer, start) = (f64::INFINITY, [0; 64], Instant::now());
    while best.is_infinite() || start.elapsed() < time {
        let group = Instant::now();
        for _ in 0..TOGETHER {
            near.write_all(&buffer).and_then(|()| near.read_exact(&mut buffer)).map_err(io)?;
        }
        best = best.min(group.elapsed().as_secs_f64() / (2 * TOGETHER) as f64);
    }
    drop(near);
    echo.join().map_err(|_| Error::Internal("the echoing thread failed".into()))?;
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_count_what_the_sessions_send() {
        for kind in [OtKind::SoftSpoken, OtKind::SILENT] {
            let (setup, samples) = protocols(kind, Duration::ZERO).unwrap();
            assert!(setup > 1e-5, "{setup}");
            assert_eq!(
                samples.iter().map(|s| s.extensions.starts).sum::<u64>(),
                2,
                "one extension a direction"
            );
            for sample in &samples {
                assert!(sample.seconds.is_finite() && sample.seconds > 0.0, "{sample:?}");
                assert!(sample.rounds > 0, "{sample:?}");
            }
            assert!(samples[0].extensions.starts == 2 && samples[5].extensions.made > 150_000, "made ahead");
            let relu = samples[6];
            assert_eq!((relu.compared_bits, relu.selected, relu.truncated), (64 * 20, 64, 0));
            assert!(relu.extensions.made == 0 && relu.extensions.drawn > 64 * 20, "{relu:?}");
        }
    }

    #[test]
    fn clocks_follow_the_later_party_and_the_link() {
        use hushnet_mpc::Channel;
        let network = Network { bits_per_second: 8e6, round_trip_seconds: 0.2 };
        let [(mut a, a_clock), (mut b, b_clock)] = clocked_pair(Some(network), Waiting::Idles);
        a_clock.set(1.0);
        b_clock.set(0.0);
        // 1000 bytes take 1 ms, and 100 ms of delay
        a.send(&[0; 1000]).unwrap();
        a.flush().unwrap();
        b.recv(&mut [0; 1000]).unwrap();
        let now = b_clock.now();
        assert!((1.101..1.15).contains(&now), "{now}");
        b_clock.set(5.0);
        a.send(&[0; 10]).unwrap();
        a.flush().unwrap();
        b.recv(&mut [0; 10]).unwrap();
        assert!(b_clock.now() >= 5.0 && b_clock.now() < 5.05, "an early message moves nothing");
    }

    #[test]
    fn a_message_takes_some_microseconds() {
        let seconds = message(Duration::from_millis(5)).unwrap();
        assert!(seconds > 1e-6 && seconds < 1e-2, "{seconds}");
    }
}
