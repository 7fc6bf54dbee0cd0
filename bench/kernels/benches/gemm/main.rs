//! Word multiply-adds a second of every kernel, beside the peak of its instruction measured from registers.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use hushnet_matmul::{limbs_for, Kernel, Lane, Prepared, Scratch, Weights};
use std::time::{Duration, Instant};

mod peak;

/// `(name, M, K, words)`.
const SHAPES: [(&str, usize, usize, usize); 6] = [
    ("dense 100x845", 100, 845, 4096),
    ("dense 10x100", 10, 100, 2048),
    ("conv 5x25", 5, 25, 2048),
    ("conv 64x576", 64, 576, 2048),
    ("pointwise 16x96", 16, 96, 2048),
    ("depthwise 1x9", 1, 9, 2048),
];

struct Problem {
    weights: Weights,
    rows: Vec<Vec<u64>>,
    out: Vec<Vec<u64>>,
}

impl Problem {
    fn new(m: usize, k: usize, words: usize, bits: u32) -> Self {
        let values: Vec<i16> = (0..m * k).map(|i| (i * 89 % 255) as i16 - 127).collect();
        let mask = hushnet_ring::low_mask(bits);
        let word = |i: usize| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) & mask;
        let rows = (0..k).map(|r| (0..words).map(|w| word(r * words + w)).collect()).collect();
        Self { weights: Weights::new(m, k, &values).unwrap(), rows, out: vec![vec![0; words]; m] }
    }
}

/// Seconds of the best of many runs.
fn best(mut f: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        let start = Instant::now();
        f();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn gemm(c: &mut Criterion) {
    for bits in [40, 52] {
        for (name, m, k, words) in SHAPES {
            let mut problem = Problem::new(m, k, words, bits);
            let rows: Vec<Option<&[u64]>> = problem.rows.iter().map(|r| Some(&r[..])).collect();
            let mut group = c.benchmark_group(format!("{name} x {words} words, {bits} bits"));
            group.throughput(Throughput::Elements((m * k * words) as u64));
            group.sample_size(10).measurement_time(Duration::from_millis(300));
            group.warm_up_time(Duration::from_millis(100));
            for kernel in Kernel::ALL {
                if kernel.check(bits).is_err() || kernel == Kernel::EmulatedAmx {
                    continue;
                }
                let p = Prepared::new(&problem.weights, kernel, bits, k).unwrap();
                let mut scratch = Scratch::new();
                let mut out: Vec<&mut [u64]> = problem.out.iter_mut().map(|o| &mut o[..]).collect();
                let mut run = || p.multiply(&rows, &[], &mut out, &mut scratch).unwrap();
                let rate = (m * k * words) as f64 / best(&mut run);
                let line = report(kernel, bits, rate);
                println!("{name:16} {bits} bits {:9} {line}", kernel.name());
                group.bench_function(BenchmarkId::new("whole", kernel.name()), |b| b.iter(&mut run));
                if kernel.uses_limbs() {
                    let lanes = packed(&p, &rows, words);
                    let segments = [Some(&lanes[..])];
                    let mut run = || p.multiply_limbs(&segments, 0, &[], &mut out, &mut scratch).unwrap();
                    let rate = (m * k * words) as f64 / best(&mut run);
                    let line = report(kernel, bits, rate);
                    println!("{name:16} {bits} bits {:9} {line}, limbs packed before", kernel.name());
                }
            }
        }
    }
}

fn packed(p: &Prepared, rows: &[Option<&[u64]>], words: usize) -> Vec<Lane> {
    let layout = p.layouts()[0];
    let mut lanes = vec![Lane::ZERO; layout.segment_lanes(words) + layout.slack_lanes()];
    for (quad, four) in rows.chunks(4).enumerate() {
        let row = |i: usize| four.get(i).copied().flatten();
        layout.pack(hushnet_ring::simd::isa(), quad, [row(0), row(1), row(2), row(3)], &mut lanes).unwrap();
    }
    lanes
}

/// Rate and fraction of the peak.
fn report(kernel: Kernel, bits: u32, rate: f64) -> String {
    let products = if kernel.uses_limbs() { limbs_for(bits) as f64 } else { 1.0 };
    match peak::products_per_second(kernel) {
        Some(peak) => {
            let part = rate * products / peak;
            format!("{:7.2} G word-MAC/s, {:3.0} % of {:.1}", rate / 1e9, 100.0 * part, peak / products / 1e9)
        }
        None => format!("{:7.2} G word-MAC/s", rate / 1e9),
    }
}

criterion_group!(benches, gemm);
criterion_main!(benches);
