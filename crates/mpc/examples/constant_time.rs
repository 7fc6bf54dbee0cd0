//! Runs the two-party protocols with all secrets marked for valgrind's memcheck, which then reports every branch and every address
//! that depends on one: the heart of `make constant-time` (`tests/constant_time.py` runs it, `docs/mpc.md` says what it shows).
//!
//! `constant_time transfers|protocols` under valgrind, built with the feature `memcheck`: exits with 1 when there was a report, or none of a leak that is planted
//! behind the protocols. Transfers are OTs of IKNP and of SoftSpoken, protocols all others and OTs again, on silent OT.
//! `constant_time --timing [--plant]` outside: compares times of reductions of fixed and of random words.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use hushnet_mpc::garble::{self, Modulus, OddModulus};
use hushnet_mpc::ot::{chosen, one_of_n};
use hushnet_mpc::{
    argmax, average_pool, bit_to_arithmetic, clip, divide, drelu, leaky_relu, less_than, max_pool, maximum,
    memory_pair, multiply, multiply_rows, mux, mux_odd, open, power, relu, relu_dividing, relu_dropping,
    relu_within, reveal, softmax, spline, square, to_odd, to_odd_small, to_ring, to_ring_small, truncate,
    Channel, Function, Interval, MemoryChannel, Narrowing, OtKind, Party, PoolShape, Power, Prg, Quotient,
    Range, Result, Ring, Rounding, Session, SilentSize, Slope, Softmax, Spline, Stats,
};
use hushnet_ring::secret::{errors, poison, publish, watched};

/// Values a case; no multiple of 64, so that last words are partly filled.
const N: usize = 130;

/// A channel whose messages become known: each is masked by what the protocol's security argument says (`docs/mpc.md`), and the peer
/// has it. This is the only place where what parties computed from secrets is declassified, but for the calls in the library.
struct Wire(MemoryChannel);

impl Channel for Wire {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        publish(data);
        self.0.send(data)
    }
    fn recv(&mut self, buf: &mut [u8]) -> Result<()> {
        self.0.recv(buf)
    }
    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
    fn stats(&self) -> Stats {
        self.0.stats()
    }
}

/// Secret words below 2^bits.
fn secrets(n: usize, bits: u32, seed: u128) -> Vec<u64> {
    let mut words = vec![0; n];
    Prg::new(seed).words(&mut words);
    words.iter_mut().for_each(|w| *w &= u64::MAX >> (64 - bits));
    poison(&mut words);
    words
}

/// Secret shares of a party.
fn shares(s: &Session, n: usize, bits: u32) -> Vec<u64> {
    secrets(n, bits, 100 + s.party().index() as u128)
}

/// Runs `cases` in both parties of a session whose randomness is secret; reports of valgrind a case.
fn run(kind: OtKind, name: &str, cases: &[Case], planted: &[Case]) -> usize {
    let (a, b) = memory_pair();
    let (before, both) = (errors(), Barrier::new(2));
    let party = |ch: MemoryChannel, p: Party| {
        // The seed of everything that the party draws: Delta, choices, scalars, trees, masks.
        let mut seed = [p.index() as u128 + 7];
        poison(&mut seed);
        let mut s = Session::new_deterministic(Box::new(Wire(ch)), p, kind, seed[0]).unwrap();
        both.wait();
        let mut last = errors();
        if p == Party::Zero {
            report(&format!("{name}: base OT"), last - before);
        }
        // Errors since the last call. Both wait for each other, so that what is counted belongs to the case.
        let mut one = |f: fn(&mut Session) -> Result<()>| {
            f(&mut s).unwrap();
            both.wait();
            let since = errors() - last;
            last += since;
            both.wait();
            since
        };
        for (case, f) in cases {
            let since = one(*f);
            if p == Party::Zero {
                report(&format!("{name}: {case}"), since);
            }
        }
        let reports = errors() - before;
        both.wait();
        for (case, f) in planted {
            let since = one(*f);
            if p == Party::Zero {
                println!("{}  planted {case}", if since > 0 { "found" } else { "missed" });
            }
            assert!(since > 0, "the planted {case} was not found: nobody would have seen a real one");
        }
        reports
    };
    std::thread::scope(|t| {
        let one = t.spawn(|| party(b, Party::One));
        let reports = party(a, Party::Zero);
        one.join().unwrap();
        reports
    })
}

fn report(case: &str, errors: usize) {
    println!("{errors:>5} reports  {case}");
}

type Case = (&'static str, fn(&mut Session) -> Result<()>);

fn ring() -> Ring {
    Ring::new(37).unwrap()
}

fn prime() -> OddModulus {
    OddModulus::new(1_032_193).unwrap()
}

fn pool() -> PoolShape {
    PoolShape { channels: 2, height: 6, width: 5, kernel: (3, 3), stride: (2, 2), padding: [(1, 1), (0, 1)] }
}

/// Oblivious transfers: random, chosen, one of 16, both ways.
const TRANSFERS: &[Case] = &[
    ("random OT", |s| {
        for sender in [Party::Zero, Party::One] {
            if s.party() == sender {
                drop(chosen::random_send(s, 2 * N)?);
            } else {
                drop(chosen::random_recv(s, 2 * N)?);
            }
        }
        Ok(())
    }),
    ("chosen OT", |s| {
        if s.party() == Party::Zero {
            let m: Vec<[u64; 2]> = shares(s, 2 * N, 40).chunks(2).map(|m| [m[0], m[1]]).collect();
            return chosen::send(s, &m, 40);
        }
        let choices = shares(s, N.div_ceil(64), 64);
        chosen::recv(s, &choices, N, 40).map(drop)
    }),
    ("1-of-16 OT", |s| {
        if s.party() == Party::Zero {
            let m = shares(s, 16 * N, 13);
            return one_of_n::send(s, &m, 4, 13);
        }
        let choices: Vec<u8> = shares(s, N, 4).iter().map(|c| *c as u8).collect();
        one_of_n::recv(s, &choices, 4, 13).map(drop)
    }),
];

/// Protocols on shares modulo 2^l.
const PROTOCOLS: &[Case] = &[
    ("comparison", |s| less_than(s, &shares(s, N, 37), 37).map(drop)),
    ("sign", |s| drelu(s, &shares(s, N, 37), ring()).map(drop)),
    ("multiplexer", |s| {
        let (x, b) = (shares(s, N, 37), hushnet_mpc::Bits::from_values(&shares(s, N, 1)));
        mux(s, &b, &x, ring()).map(drop)
    }),
    ("bits to ring elements", |s| {
        bit_to_arithmetic(s, &hushnet_mpc::Bits::from_values(&shares(s, N, 1)), ring()).map(drop)
    }),
    ("relu, 37 bits", |s| relu(s, &shares(s, N, 37), ring()).map(drop)),
    ("relu, 64 bits", |s| relu(s, &shares(s, N, 64), Ring::new(64)?).map(drop)),
    ("relu through digits", |s| {
        for longest in 1..=4 {
            s.set_comparison(hushnet_mpc::Comparison::Ripple(longest));
            relu(s, &shares(s, N, 37), ring())?;
        }
        s.set_comparison(hushnet_mpc::Comparison::Tree);
        Ok(())
    }),
    ("relu, 12 dropped", |s| relu_dropping(s, &shares(s, N, 37), ring(), 12).map(drop)),
    ("relu of what 12 dropped bits leave", |s| {
        let of = Narrowing { ring: ring(), bits: 12, narrow: Ring::new(20)? };
        relu_dividing(s, &shares(s, N, 37), of).map(drop)
    }),
    ("relu within 20 bits", |s| relu_within(s, &shares(s, N, 37), ring(), Ring::new(20)?).map(drop)),
    ("leaky relu", |s| {
        let slope = Slope::new(5, 4)?;
        leaky_relu(s, &shares(s, N, 37), ring(), slope, Range::Small, Rounding::Faithful).map(drop)
    }),
    ("clip", |s| {
        let ends = s.is_first().then_some((-3, 1 << 20));
        clip(s, &shares(s, N, 37), ring(), ring(), ends).map(drop)
    }),
    ("maximum", |s| {
        let (a, b) = (shares(s, N, 37), shares(s, N, 37));
        maximum(s, &a, &b, ring(), ring()).map(drop)
    }),
    ("max-pool", |s| max_pool(s, &shares(s, 60, 37), ring(), ring(), pool()).map(drop)),
    ("average-pool", |s| {
        let how = (Range::Small, Quotient::Floor);
        average_pool(s, &shares(s, 60, 37), ring(), PoolShape { padding: [(0, 0); 2], ..pool() }, false, how)
            .map(drop)
    }),
    ("truncation", |s| {
        for range in [Range::Any, Range::NonNegative, Range::Small] {
            for rounding in [Rounding::Floor, Rounding::Faithful] {
                drop(truncate(s, &shares(s, N, 37), 12, ring(), range, rounding)?);
            }
        }
        Ok(())
    }),
    ("division", |s| {
        for quotient in [Quotient::Floor, Quotient::Near] {
            drop(divide(s, &shares(s, N, 37), 49, ring(), Range::Small, quotient)?);
        }
        Ok(())
    }),
    ("argmax", |s| argmax(s, &shares(s, N, 37), 10, ring(), ring()).map(drop)),
    ("opening", |s| {
        drop(open(s, &shares(s, N, 37), ring())?);
        reveal(s, &shares(s, N, 37), ring(), Party::One).map(drop)
    }),
];

/// Products of shared values, functions of one variable, softmax. What is fitted is public.
const FUNCTIONS: &[Case] = &[
    ("products", |s| {
        for range in [Range::Any, Range::NonNegative, Range::Small] {
            let (a, b) = (
                hushnet_mpc::Factor::new(Ring::new(12)?, range)?,
                hushnet_mpc::Factor::new(Ring::new(16)?, range)?,
            );
            drop(multiply(s, (&shares(s, N, 12), a), (&shares(s, N, 16), b), Ring::new(20)?)?);
            drop(square(s, &shares(s, N, 16), b, Ring::new(20)?)?);
            drop(multiply_rows(s, (&shares(s, N, 12), a), (&shares(s, N / 26, 16), b), Ring::new(20)?)?);
        }
        Ok(())
    }),
    ("functions", |s| {
        let at = Interval::between(-4.0, 4.0, 12)?;
        // Of every degree, held by either party.
        for (degree, error) in [(1, 0.02), (2, 0.004), (3, 0.0005)] {
            let fit = Spline::fit(&|x| Function::Tanh.at(x), (at, ring()), 14, error)?;
            let holder = if degree == 2 { Party::One } else { Party::Zero };
            let pieces = (s.party() == holder).then_some(&fit.pieces);
            drop(spline(s, (&shares(s, N, 37), ring()), &fit.shape, pieces, holder, ring())?);
        }
        let fit = Spline::exponential((1.0, 1.0, 64.0), (at, ring()), 12, 0.001)?;
        for holder in [Party::Zero, Party::One] {
            let pieces = (s.party() == holder).then_some(&fit.pieces);
            drop(spline(s, (&shares(s, N, 37), ring()), &fit.shape, pieces, holder, ring())?);
        }
        Ok(())
    }),
    ("inverse root", |s| {
        let at = Interval { low: 1 << 10, high: 1 << 16, scale: 12 };
        let fit = Power::fit(Function::InverseRoot, (at, ring()), 12, 0.001)?;
        power(s, (&shares(s, N, 37), ring()), &fit, ring()).map(drop)
    }),
    ("softmax", |s| {
        let fit = Softmax::fit(5, (ring(), Ring::new(18)?, 12), 12, 0.001)?;
        softmax(s, &shares(s, N, 37), &fit, ring()).map(drop)
    }),
];

/// Protocols modulo an odd p, and garbled circuits.
const OTHERS: &[Case] = &[
    ("multiplexer modulo p", |s| {
        let (x, b) = (shares(s, N, 19), hushnet_mpc::Bits::from_values(&shares(s, N, 1)));
        mux_odd(s, &b, &x, prime()).map(drop)
    }),
    ("to 2^l from p", |s| to_ring(s, &shares(s, N, 19), prime(), ring()).map(drop)),
    ("to p from 2^l", |s| to_odd(s, &shares(s, N, 37), ring(), prime()).map(drop)),
    ("to 2^l from p, small", |s| to_ring_small(s, &shares(s, N, 19), prime(), ring()).map(drop)),
    ("to p from 2^l, small", |s| to_odd_small(s, &shares(s, N, 37), ring(), prime()).map(drop)),
    ("garbled circuits modulo 2^20", |s| garbled(s, Modulus::PowerOfTwo(Ring::new(20)?))),
    ("garbled circuits modulo p", |s| garbled(s, Modulus::Odd(prime()))),
];

/// Every garbled layer, garbled by either party.
fn garbled(s: &mut Session, m: Modulus) -> Result<()> {
    let x = shares(s, 60, 19);
    for garbler in [Party::Zero, Party::One] {
        drop(garble::drelu(s, &x, m, garbler)?);
        drop(garble::relu(s, &x, m, garbler)?);
        let ends = (s.party() == garbler).then_some((0, 60_000));
        drop(garble::clip(s, &x, m, true, ends, garbler)?);
        drop(garble::max_rows(s, &x, 5, m, garbler)?);
        drop(garble::max_pool(s, &x, m, pool(), garbler)?);
        drop(garble::argmax(s, &x, 6, m, garbler)?);
    }
    Ok(())
}

/// Leaks on purpose: what the check must find.
const PLANTED: &[Case] = &[
    ("branch", |s| {
        for v in shares(s, 8, 37) {
            if v & 1 == 1 {
                black_box(s.party());
            }
        }
        Ok(())
    }),
    ("address", |s| {
        let table: Vec<u64> = (0..256).collect();
        for v in shares(s, 8, 8) {
            black_box(black_box(&table)[v as usize % 256]);
        }
        Ok(())
    }),
];

/// Reductions of secrets, not inlined: timed here, and disassembled by `tests/constant_time.py`.
mod probe {
    use super::garble::Factor;
    use super::OddModulus;

    #[inline(never)]
    pub(crate) fn reduce_wide(words: &[u64], p: OddModulus, _: Factor) -> u64 {
        words.chunks_exact(2).fold(0, |s, w| s ^ p.reduce_wide(u128::from(w[0]) << 64 | u128::from(w[1])))
    }

    #[inline(never)]
    pub(crate) fn reduce(words: &[u64], p: OddModulus, _: Factor) -> u64 {
        words.iter().fold(0, |s, &w| s ^ p.reduce(w))
    }

    #[inline(never)]
    pub(crate) fn multiply(words: &[u64], p: OddModulus, factor: Factor) -> u64 {
        words.iter().fold(0, |s, &w| s ^ p.mul(w, factor))
    }

    #[inline(never)]
    pub(crate) fn planted_division(words: &[u64], p: OddModulus, _: Factor) -> u64 {
        let wide = |w: &[u64]| (u128::from(w[0]) << 64 | u128::from(w[1])) % u128::from(p.value());
        words.chunks_exact(2).fold(0, |s, w| s ^ wide(w) as u64)
    }
}

/// A probe.
type Reduction = fn(&[u64], OddModulus, garble::Factor) -> u64;

/// Welch's t of the times of `f` on fixed and on random words (Reparaz, Balasch, Verbauwhede, "Dude, is my code constant time?",
/// DATE 2017): the classes are mixed at random, the slowest tenth of all is left out, since it waited for something else.
fn welch(f: Reduction, samples: usize) -> f64 {
    let p = OddModulus::new((1 << 61) - 1).unwrap();
    let factor = p.factor(p.half());
    let mut rng = Prg::new(3);
    let mut words = [0u64; 64];
    let mut times: Vec<(bool, f64)> = Vec::with_capacity(samples);
    for _ in 0..samples {
        rng.words(&mut words);
        let random = rng.block() & 1 == 1;
        let keep = u64::from(random).wrapping_neg();
        words.iter_mut().for_each(|w| *w = (*w & keep) | (1 & !keep));
        let start = Instant::now();
        black_box(f(black_box(&words), p, factor));
        times.push((random, start.elapsed().as_nanos() as f64));
    }
    let mut all: Vec<f64> = times.iter().map(|t| t.1).collect();
    all.sort_by(f64::total_cmp);
    let limit = all[all.len() * 9 / 10];
    let [(m0, v0), (m1, v1)] = [false, true].map(|class| {
        let t: Vec<f64> = times.iter().filter(|t| t.0 == class && t.1 <= limit).map(|t| t.1).collect();
        let mean = t.iter().sum::<f64>() / t.len() as f64;
        let variance = t.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (t.len() - 1) as f64;
        (mean, variance / t.len() as f64)
    });
    (m0 - m1) / (v0 + v1).sqrt()
}

/// Bound of |t|: dudect takes 10 for a leak that is there beyond doubt.
const T_LIMIT: f64 = 10.0;

/// Prints t of every reduction; whether all are below the bound in the best of five tries (a leak shows in each).
fn timing(plant: bool) -> bool {
    type Probe = (&'static str, Reduction);
    let real: [Probe; 3] = [
        ("128 bits modulo p", probe::reduce_wide),
        ("64 bits modulo p", probe::reduce),
        ("product modulo p", probe::multiply),
    ];
    let planted: [Probe; 1] = [("planted division", probe::planted_division)];
    let probes: &[Probe] = if plant { &planted } else { &real };
    probes.iter().fold(true, |all, (name, f)| {
        let tries = std::iter::repeat_with(|| welch(*f, 100_000)).take(5);
        let best = tries.fold(f64::INFINITY, |best, t| if t.abs() < best.abs() { t } else { best });
        println!("t = {best:>8.1}  {name}");
        all & (best.abs() < T_LIMIT)
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |option: &str| arguments.iter().any(|a| a == option);
    if given("--timing") {
        std::process::exit(i32::from(!timing(given("--plant"))));
    }
    if !watched() {
        println!("Nobody watches: run `make constant-time`, which builds this with the feature memcheck and starts valgrind.");
        std::process::exit(2);
    }
    let reports = if given("transfers") {
        run(OtKind::Iknp, "IKNP", TRANSFERS, &[]) + run(OtKind::SoftSpoken, "SoftSpoken", TRANSFERS, &[])
    } else if given("protocols") {
        let cases = [TRANSFERS, PROTOCOLS, FUNCTIONS, OTHERS].concat();
        run(OtKind::Silent(SilentSize::Tiny), "silent", &cases, PLANTED)
    } else {
        panic!("constant_time takes transfers, protocols or --timing");
    };
    println!("{reports} reports of branches or addresses that depend on secrets");
    std::process::exit(i32::from(reports > 0));
}
