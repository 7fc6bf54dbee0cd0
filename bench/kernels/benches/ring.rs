//! Kernels of `hushnet-ring`, every instruction set of this machine, with `tfhe-ntt` beside the transforms.
//!
//! `cargo bench -p hushnet-kernels --bench ring -- ntt/2048` and the like select.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use hushnet_ring::{
    kernels, ntt::Ntt, ntt::Ring, pack, prg, prime, sample, simd, AlignedWords, ExactMultiplier, Isa, Prg,
};
use std::hint::black_box;
use std::time::Duration;

/// The instruction sets that this crate has kernels for.
fn paths() -> impl Iterator<Item = Isa> {
    simd::available().into_iter().filter(|i| [Isa::Portable, Isa::Avx2, Isa::Ifma].contains(i))
}

fn aligned(prg: &mut Prg, n: usize, p: u64) -> AlignedWords {
    let mut a = AlignedWords::new(n);
    prg.fill_words(&mut a);
    a.iter_mut().for_each(|w| *w %= p);
    a
}

fn transforms(c: &mut Criterion) {
    let mut random = Prg::from_seed([1; 16]);
    for n in [2048, 4096, 8192, 16384] {
        let p = prime::primes_near(50, 2 * n, 1).unwrap()[0];
        let mut a = aligned(&mut random, n, p);
        let mut group = c.benchmark_group(format!("ntt/{n}"));
        for (isa, ring) in paths().flat_map(|i| [Ring::Cyclotomic, Ring::ConjugateInvariant].map(|r| (i, r)))
        {
            let ntt = Ntt::of_ring(ring, n, p, isa).unwrap();
            let name = match ring {
                Ring::Cyclotomic => isa.name().to_owned(),
                Ring::ConjugateInvariant => format!("conjugate-invariant, {}", isa.name()),
            };
            group.bench_function(BenchmarkId::new("forward", &name), |b| {
                b.iter(|| ntt.forward(&mut a).unwrap());
            });
            group.bench_function(BenchmarkId::new("inverse", &name), |b| {
                b.iter(|| ntt.inverse(&mut a).unwrap());
            });
        }
        let rival = tfhe_ntt::prime64::Plan::try_new(n, p).unwrap();
        group.bench_function("forward/tfhe-ntt", |b| b.iter(|| rival.fwd(&mut a)));
        group.bench_function("inverse/tfhe-ntt", |b| b.iter(|| rival.inv(&mut a)));
    }
}

fn products(c: &mut Criterion) {
    let mut random = Prg::from_seed([2; 16]);
    for (n, k) in [(2048, 42), (2048, 53), (4096, 41), (8192, 41)] {
        let mut group = c.benchmark_group(format!("product/{n}/{k}"));
        let mut s = vec![0; n];
        sample::ternary(&mut random, &mut s);
        let words = aligned(&mut random, n, 1 << k);
        for isa in paths() {
            let m = ExactMultiplier::with_isa(n, isa).unwrap();
            let (small, mut hat) = (m.small_hat(&s).unwrap(), m.words_hat(&words, k).unwrap());
            let (mut scratch, mut out) = (m.scratch(), AlignedWords::new(n));
            group.bench_function(BenchmarkId::new("words_hat", isa.name()), |b| {
                b.iter(|| m.words_hat_into(&words, &mut hat).unwrap());
            });
            group.bench_function(BenchmarkId::new("multiply_add", isa.name()), |b| {
                b.iter(|| m.multiply_add_into(&hat, &small, &mut out, &mut scratch).unwrap());
            });
        }
    }
}

fn streams(c: &mut Criterion) {
    let n = 2048;
    let mut group = c.benchmark_group("streams/2048");
    let mut out = AlignedWords::new(n);
    let mut trits = vec![0; n];
    for isa in paths() {
        let mut prg = Prg::from_seed_with([3; 16], isa);
        group.throughput(Throughput::Bytes(8 * n as u64));
        group.bench_function(BenchmarkId::new("expand_words", isa.name()), |b| {
            b.iter(|| prg::expand_words_with(isa, &[7; 16], [1, 2, 3], 42, black_box(&mut out)).unwrap());
        });
        group.bench_function(BenchmarkId::new("fill_words", isa.name()), |b| {
            b.iter(|| prg.fill_words(black_box(&mut out)));
        });
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::new("centred_binomial_add", isa.name()), |b| {
            b.iter(|| sample::centred_binomial_add(&mut prg, black_box(&mut out)));
        });
        group.bench_function(BenchmarkId::new("ternary", isa.name()), |b| {
            b.iter(|| sample::ternary(&mut prg, black_box(&mut trits)));
        });
    }
}

fn packing(c: &mut Criterion) {
    let n = 2048;
    for k in [24, 42, 53] {
        let mut group = c.benchmark_group(format!("packing/{n}/{k}"));
        group.throughput(Throughput::Bytes(8 * n as u64));
        let mut words = aligned(&mut Prg::from_seed([4; 16]), n, 1 << k);
        let mut bytes = vec![0; pack::packed_len(n, k)];
        for isa in paths() {
            group.bench_function(BenchmarkId::new("pack", isa.name()), |b| {
                b.iter(|| pack::pack_with(isa, black_box(&words), k, &mut bytes).unwrap());
            });
            group.bench_function(BenchmarkId::new("unpack", isa.name()), |b| {
                b.iter(|| pack::unpack_with(isa, black_box(&bytes), k, &mut words).unwrap());
            });
            group.bench_function(BenchmarkId::new("drop_bits", isa.name()), |b| {
                b.iter(|| kernels::drop_bits(isa, black_box(&mut words), 7, k).unwrap());
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(400));
    targets = transforms, products, streams, packing
}
criterion_main!(benches);
