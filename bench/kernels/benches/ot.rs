//! Correlated OTs per second: both parties in two threads, one core each.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use hushnet_mpc::ot::chosen;
use hushnet_mpc::{memory_pair, OtKind, Party, Session, SilentSize};

/// Runs `times` random OTs of `n` in both parties of a fresh session; returns the time after set-up.
fn both(kind: OtKind, n: usize, times: u64) -> std::time::Duration {
    let (a, b) = memory_pair();
    std::thread::scope(|t| {
        t.spawn(move || {
            let mut s = Session::new(Box::new(b), Party::One, kind).unwrap();
            s.ensure([64, 0]).unwrap();
            (0..times).for_each(|_| drop(chosen::random_recv(&mut s, n).unwrap()));
        });
        let mut s = Session::new(Box::new(a), Party::Zero, kind).unwrap();
        s.ensure([64, 0]).unwrap();
        let start = std::time::Instant::now();
        (0..times).for_each(|_| drop(chosen::random_send(&mut s, n).unwrap()));
        start.elapsed()
    })
}

fn extensions(c: &mut Criterion) {
    let n = 1 << 18;
    let mut g = c.benchmark_group("random OT");
    g.sample_size(10).throughput(Throughput::Elements(n as u64));
    for (name, kind) in [
        ("iknp", OtKind::Iknp),
        ("softspoken", OtKind::SoftSpoken),
        ("silent tiny", OtKind::Silent(SilentSize::Tiny)),
        ("silent small", OtKind::Silent(SilentSize::Small)),
        ("silent medium", OtKind::Silent(SilentSize::Medium)),
        ("silent large", OtKind::Silent(SilentSize::Large)),
    ] {
        g.bench_function(name, |b| b.iter_custom(|times| both(kind, n, times)));
    }
    g.finish();
}

criterion_group!(benches, extensions);
criterion_main!(benches);
