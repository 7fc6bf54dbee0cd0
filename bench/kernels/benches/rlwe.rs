//! What the client pays for one feature of one block: encryption and decryption, every instruction set.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion};
use hushnet_ring::{simd, AlignedWords, Isa, Prg};
use hushnet_rlwe::{BatchContext, BatchStageSpec, ClientKey, MaskId, MaskSum};
use std::time::Duration;

fn client(c: &mut Criterion) {
    for (n, k, d, u) in [(2048, 40, 17, 14), (2048, 53, 18, 8), (4096, 41, 18, 8), (8192, 41, 18, 8)] {
        let mut group = c.benchmark_group(format!("client/{n}/{k}"));
        let spec =
            BatchStageSpec { ring_degree: n, weight_l2: 500.0, output_bound: 1 << 20, shared_mask: false };
        let p = spec.check(k, d, (u.min(6), u.min(6))).unwrap();
        let shared = BatchStageSpec { shared_mask: true, ..spec }.check(k, d, (u, 0)).unwrap();
        let messages: Vec<i32> = (0..n as i32).map(|i| i % 255 - 127).collect();
        for isa in simd::available().into_iter().filter(|i| [Isa::Portable, Isa::Avx2, Isa::Ifma].contains(i))
        {
            let context = BatchContext::with_isa(n, isa).unwrap();
            let mut prg = Prg::from_seed_with([1; 16], isa);
            let key = ClientKey::generate(&context, &mut prg).unwrap();
            let mut scratch = context.scratch();
            let mut hat = context.zero_words_hat(k).unwrap();
            let id = MaskId { tensor: 1, feature: 2, block: None };
            group.bench_function(BenchmarkId::new("mask_hat", isa.name()), |b| {
                b.iter(|| context.mask_hat_into(&[9; 32], id, &mut hat, &mut scratch).unwrap());
            });
            let mut c0 = AlignedWords::new(n);
            group.bench_function(BenchmarkId::new("encrypt", isa.name()), |b| {
                b.iter(|| key.encrypt_into(&p, &hat, &messages, &mut prg, &mut scratch, &mut c0).unwrap());
            });
            hushnet_rlwe::drop_bits(&mut c0, u, k).unwrap();
            let c1 = c0.clone();
            let mut out = vec![0; n];
            group.bench_function(BenchmarkId::new("decrypt_exact", isa.name()), |b| {
                b.iter(|| {
                    key.decrypt_into(&shared, &c0, MaskSum::Exact(&hat), &mut scratch, &mut out).unwrap()
                });
            });
            group.bench_function(BenchmarkId::new("decrypt_dropped", isa.name()), |b| {
                b.iter(|| key.decrypt_into(&p, &c0, MaskSum::Dropped(&c1), &mut scratch, &mut out).unwrap());
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(400));
    targets = client
}
criterion_main!(benches);
