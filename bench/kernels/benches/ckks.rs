//! Every CKKS primitive on one thread, at N = 2^12, 2^13 and 2^14.
//!
//! `cargo bench -p hushnet-kernels --bench ckks -- --noplot`
#![allow(clippy::unwrap_used, missing_docs)]

use criterion::{criterion_group, criterion_main, BatchSize, Criterion};
use hushnet_ring::{Prg, Ring};
use hushnet_rlwe::ckks::client::KeyGenerator;
use hushnet_rlwe::ckks::*;
use std::hint::black_box;
use std::time::Duration;

fn specs() -> Vec<(&'static str, CkksSpec)> {
    let near = |bits: &[u32]| bits.iter().map(|&b| PrimeSpec::Near(b)).collect::<Vec<_>>();
    let spec = |ring_degree, data: &[u32], special, scale_bits, digits| CkksSpec {
        ring_degree,
        ring: Ring::Cyclotomic,
        data_primes: near(data),
        special_primes: near(special),
        scale_bits,
        digits,
    };
    vec![
        ("4096:2x34+35", spec(4096, &[34, 34], &[35], 30, 2)),
        ("8192:4x30+30", spec(8192, &[30, 30, 30, 30], &[30], 28, 4)),
        ("8192:5x35+35", spec(8192, &[35, 35, 35, 35, 35], &[35], 33, 5)),
        ("16384:8x45+45", spec(16384, &[45; 8], &[45], 40, 8)),
        ("16384:8x40+2x45, 4 digits", spec(16384, &[40; 8], &[45, 45], 40, 4)),
    ]
}

#[allow(clippy::too_many_lines)] // One list of primitives.
fn primitives(c: &mut Criterion) {
    for (name, spec) in specs() {
        let params = spec.check().unwrap();
        let mut prg = Prg::from_seed([1; 16]);
        let keys = KeyGenerator::new(&params);
        let secret = keys.secret_key(&mut prg).unwrap();
        let public = keys.public_key(&secret, &mut prg).unwrap();
        let relin = keys.relin_key(&secret, &mut prg).unwrap();
        let elements = [Galois::Rotate(1), Galois::Conjugate];
        let galois = keys.galois_keys(&secret, &elements, &mut prg).unwrap();
        let encoder = Encoder::new(&params);
        let e = Evaluator::new(&params);
        let at = EncodeAt { level: params.max_level(), scale: params.scale(), bound: 1.0 };
        let values: Vec<f64> = (0..params.slots()).map(|j| (j as f64).sin()).collect();
        let plain = encoder.encode(&values, at).unwrap();
        let scalar = encoder.encode_scalar(0.77, at.level, at.scale).unwrap();
        let ct = secret.encrypt(&plain, &mut prg).unwrap();
        let product = e.square(&ct).unwrap();
        let scaled = e.mul_scalar(&ct, &scalar).unwrap();
        let terms: Vec<Ciphertext> = (0..32).map(|_| secret.encrypt(&plain, &mut prg).unwrap()).collect();
        let (refs, weights): (Vec<_>, Vec<_>) = terms.iter().map(|t| (t, &scalar)).unzip();
        let digits = e.hoist(&ct).unwrap();
        let bytes = ct.to_bytes().unwrap();

        let mut g = c.benchmark_group(name);
        g.warm_up_time(Duration::from_millis(150))
            .measurement_time(Duration::from_millis(500))
            .sample_size(15);
        g.bench_function("encode", |b| b.iter(|| encoder.encode(black_box(&values), at).unwrap()));
        g.bench_function("encode scalar", |b| {
            b.iter(|| encoder.encode_scalar(black_box(0.77), at.level, at.scale).unwrap());
        });
        g.bench_function("decode", |b| b.iter(|| encoder.decode(black_box(&plain)).unwrap()));
        g.bench_function("encrypt secret", |b| b.iter(|| secret.encrypt(&plain, &mut prg).unwrap()));
        g.bench_function("encrypt public", |b| b.iter(|| public.encrypt(&plain, &mut prg).unwrap()));
        g.bench_function("decrypt", |b| b.iter(|| secret.decrypt(black_box(&ct)).unwrap()));
        g.bench_function("add", |b| b.iter(|| e.add(black_box(&ct), &ct).unwrap()));
        g.bench_function("add assign", |b| {
            b.iter_batched_ref(|| ct.clone(), |a| e.add_assign(a, &ct).unwrap(), BatchSize::SmallInput);
        });
        g.bench_function("add plain", |b| b.iter(|| e.add_plain(black_box(&ct), &plain).unwrap()));
        g.bench_function("add scalar", |b| b.iter(|| e.add_scalar(black_box(&ct), &scalar).unwrap()));
        g.bench_function("multiply plain", |b| b.iter(|| e.mul_plain(black_box(&ct), &plain).unwrap()));
        g.bench_function("multiply scalar", |b| b.iter(|| e.mul_scalar(black_box(&ct), &scalar).unwrap()));
        g.bench_function("scalar mac, 32 terms", |b| {
            b.iter(|| e.scalar_mac(black_box(&refs), &weights, Terms::Independent).unwrap());
        });
        g.bench_function("multiply", |b| b.iter(|| e.mul(black_box(&ct), &ct).unwrap()));
        g.bench_function("square", |b| b.iter(|| e.square(black_box(&ct)).unwrap()));
        g.bench_function("relinearise", |b| b.iter(|| e.relinearise(black_box(&product), &relin).unwrap()));
        g.bench_function("rescale", |b| b.iter(|| e.rescale(black_box(&scaled)).unwrap()));
        g.bench_function("relinearise+rescale", |b| {
            b.iter(|| e.relinearise_rescale(black_box(&product), &relin).unwrap());
        });
        g.bench_function("rotate", |b| b.iter(|| e.rotate(black_box(&ct), 1, &galois).unwrap()));
        g.bench_function("rotate, hoisted", |b| {
            b.iter(|| e.apply_hoisted(black_box(&ct), &digits, Galois::Rotate(1), &galois).unwrap());
        });
        let raised = encoder.encode_raised(&values, EncodeAt { scale: 2f64.powi(20), ..at }).unwrap();
        let sum = vec![(Galois::Rotate(1), &raised); 8];
        g.bench_function("hoisted sum of 8 rotations", |b| {
            b.iter(|| e.hoisted_sum(black_box(&ct), &digits, &sum, &galois).unwrap());
        });
        g.bench_function("relinearisation key", |b| b.iter(|| keys.relin_key(&secret, &mut prg).unwrap()));
        g.bench_function("conjugate", |b| b.iter(|| e.conjugate(black_box(&ct), &galois).unwrap()));
        g.bench_function("to bytes", |b| b.iter(|| black_box(&ct).to_bytes().unwrap()));
        g.bench_function("from bytes", |b| {
            b.iter(|| Ciphertext::from_bytes(&params, black_box(&bytes)).unwrap());
        });
        g.finish();
    }
}

criterion_group!(benches, primitives);
criterion_main!(benches);
