//! Non-linear layers: both parties in two threads, one core each.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use hushnet_mpc::garble::{self, Modulus, OddModulus};
use hushnet_mpc::{
    divide, maximum, memory_pair, relu, relu_dropping, to_odd, to_odd_small, to_ring, to_ring_small,
    truncate, OtKind, Party, Prg, Quotient, Range, Ring, Rounding, Session,
};

/// Runs `f` `times` times in both parties of a fresh session; returns the time after set-up.
fn both(n: usize, ring: Ring, times: u64, f: impl Fn(&mut Session, &[u64]) + Sync) -> std::time::Duration {
    let (a, b) = memory_pair();
    let party = |ch, p: Party| {
        let mut x = vec![0; n];
        Prg::new(p.index() as u128).words(&mut x);
        x.iter_mut().for_each(|v| *v = ring.reduce(*v));
        let mut s = Session::new(Box::new(ch), p, OtKind::SILENT).unwrap();
        s.ensure([64, 64]).unwrap();
        let start = std::time::Instant::now();
        (0..times).for_each(|_| f(&mut s, &x));
        start.elapsed()
    };
    std::thread::scope(|t| {
        t.spawn(|| party(b, Party::One));
        party(a, Party::Zero)
    })
}

fn layers(c: &mut Criterion) {
    let n = 1 << 16;
    let mut g = c.benchmark_group("2^16 values");
    g.sample_size(10).throughput(Throughput::Elements(n as u64));
    for bits in [64, 37, 16] {
        let ring = Ring::new(bits).unwrap();
        g.bench_function(format!("relu {bits} bits"), |b| {
            b.iter_custom(|times| both(n, ring, times, |s, x| drop(relu(s, x, ring).unwrap())));
        });
    }
    let p = Modulus::Odd(OddModulus::new(1_032_193).unwrap());
    for (name, m) in [("2^20", Modulus::PowerOfTwo(Ring::new(20).unwrap())), ("a prime of 20 bits", p)] {
        g.bench_function(format!("garbled relu modulo {name}"), |b| {
            let below = Ring::new(19).unwrap();
            b.iter_custom(|times| {
                both(n, below, times, |s, x| drop(garble::relu(s, x, m, Party::Zero).unwrap()))
            });
        });
    }
    let ring = Ring::new(37).unwrap();
    g.bench_function("relu 37 bits, 12 dropped", |b| {
        b.iter_custom(|times| both(n, ring, times, |s, x| drop(relu_dropping(s, x, ring, 12).unwrap())));
    });
    g.bench_function("maximum 37 bits", |b| {
        b.iter_custom(|times| both(n, ring, times, |s, x| drop(maximum(s, x, x, ring, ring).unwrap())));
    });
    for (name, range, rounding) in [
        ("exact", Range::Any, Rounding::Floor),
        ("small exact", Range::Small, Rounding::Floor),
        ("small faithful", Range::Small, Rounding::Faithful),
    ] {
        g.bench_function(format!("truncate by 12 of 37 bits, {name}"), |b| {
            b.iter_custom(|times| {
                both(n, ring, times, |s, x| drop(truncate(s, x, 12, ring, range, rounding).unwrap()))
            });
        });
    }
    let p = OddModulus::new(1_032_193).unwrap();
    let below = Ring::new(17).unwrap();
    type Step<'a> = (&'a str, &'a (dyn Fn(&mut Session, &[u64]) + Sync));
    let conversions: [Step<'_>; 5] = [
        ("to 37 bits from a prime of 20 bits", &|s, x| drop(to_ring(s, x, p, ring).unwrap())),
        ("to a prime of 20 bits from 37 bits", &|s, x| drop(to_odd(s, x, ring, p).unwrap())),
        ("to 37 bits from a prime of 20 bits, small", &|s, x| drop(to_ring_small(s, x, p, ring).unwrap())),
        ("to a prime of 20 bits from 37 bits, small", &|s, x| drop(to_odd_small(s, x, ring, p).unwrap())),
        ("divide by 49, exact", &|s, x| {
            drop(divide(s, x, 49, ring, Range::Small, Quotient::Floor).unwrap());
        }),
    ];
    for (name, f) in conversions {
        g.bench_function(name, |b| b.iter_custom(|times| both(n, below, times, f)));
    }
    g.finish();
}

criterion_group!(benches, layers);
criterion_main!(benches);
