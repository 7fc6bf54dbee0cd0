//! CKKS primitives in processor time (which other load disturbs little), as JSON lines.
//!
//! `cargo run --release -p hushnet-rlwe --example ckks_primitives`
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use hushnet_ring::{sample, simd, Prg, Ring};
use hushnet_rlwe::ckks::client::KeyGenerator;
use hushnet_rlwe::ckks::*;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

/// Seconds that this thread has run, where the system tells (Linux), else wall-clock seconds.
fn seconds() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let scheduled = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let first = scheduled.as_deref().and_then(|line| line.split(' ').next()?.parse::<f64>().ok());
    first.map_or_else(|| START.get_or_init(Instant::now).elapsed().as_secs_f64(), |ns| ns * 1e-9)
}

struct Report<'a> {
    parameters: &'a str,
}

impl Report<'_> {
    /// Seconds a run: the best of three windows of a tenth of a second.
    fn run<R>(&self, operation: &str, mut f: impl FnMut() -> R) {
        let start = Instant::now();
        black_box(f());
        let batch = (1e-3 / start.elapsed().as_secs_f64().max(1e-8)).ceil() as usize;
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            let (start, mut runs, mut spent) = (seconds(), 0, 0.0);
            while spent < 0.1 {
                for _ in 0..batch {
                    black_box(f());
                }
                runs += batch;
                spent = seconds() - start;
            }
            best = best.min(spent / runs as f64);
        }
        println!(
            "{{\"parameters\": \"{}\", \"isa\": \"{}\", \"threads\": 1, \"operation\": \"{operation}\", \"us\": {:.2}}}",
            self.parameters,
            simd::isa().name(),
            best * 1e6
        );
    }
}

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
        ("4096: 2x34+35", spec(4096, &[34, 34], &[35], 30, 2)),
        ("8192: 4x30+30", spec(8192, &[30, 30, 30, 30], &[30], 28, 4)),
        ("8192: 5x35+35", spec(8192, &[35, 35, 35, 35, 35], &[35], 33, 5)),
        ("16384: 8x45+45", spec(16384, &[45; 8], &[45], 40, 8)),
        ("16384: 8x40+2x45, 4 digits", spec(16384, &[40; 8], &[45, 45], 40, 4)),
    ]
}

fn main() {
    for (parameters, spec) in specs() {
        measure(&Report { parameters }, &spec.check().unwrap());
    }
}

fn measure(r: &Report<'_>, params: &CkksParams) {
    let mut prg = Prg::from_seed([1; 16]);
    let keys = KeyGenerator::new(params);
    let secret = keys.secret_key(&mut prg).unwrap();
    let public = keys.public_key(&secret, &mut prg).unwrap();
    let encoder = Encoder::new(params);
    let at = EncodeAt { level: params.max_level(), scale: params.scale(), bound: 1.0 };
    let values: Vec<f64> = (0..params.slots()).map(|j| (j as f64).sin()).collect();
    let plain = encoder.encode(&values, at).unwrap();
    let mut limb = vec![0u64; params.ring_degree()];
    let mut small = vec![0i8; params.ring_degree()];
    r.run("transform", || params.basis().transform(0).forward(&mut limb).unwrap());
    r.run("error polynomial", || sample::centred_binomial(&mut prg, &mut small));
    r.run("encode", || encoder.encode(&values, at).unwrap());
    r.run("encode scalar", || encoder.encode_scalar(0.77, at.level, at.scale).unwrap());
    r.run("decode", || encoder.decode(&plain).unwrap());
    r.run("encrypt secret", || secret.encrypt(&plain, &mut prg).unwrap());
    r.run("encrypt public", || public.encrypt(&plain, &mut prg).unwrap());
    let ct = secret.encrypt(&plain, &mut prg).unwrap();
    r.run("decrypt", || secret.decrypt(&ct).unwrap());
    let bytes = ct.to_bytes().unwrap();
    r.run("to bytes", || ct.to_bytes().unwrap());
    r.run("from bytes", || Ciphertext::from_bytes(params, &bytes).unwrap());
    r.run("relinearisation key", || keys.relin_key(&secret, &mut prg).unwrap());
    linear(r, params, &encoder, &ct, &plain);
    switching(r, params, &keys, &secret, &encoder, &ct);
}

fn linear(r: &Report<'_>, params: &CkksParams, encoder: &Encoder, ct: &Ciphertext, plain: &Plaintext) {
    let e = Evaluator::new(params);
    let scalar = encoder.encode_scalar(0.77, ct.level(), params.scale()).unwrap();
    let terms = vec![ct.clone(); 32];
    let (terms, weights): (Vec<_>, Vec<_>) = terms.iter().map(|t| (t, &scalar)).unzip();
    let scaled = e.mul_scalar(ct, &scalar).unwrap();
    r.run("add", || e.add(ct, ct).unwrap());
    r.run("add plain", || e.add_plain(ct, plain).unwrap());
    r.run("add scalar", || e.add_scalar(ct, &scalar).unwrap());
    r.run("multiply plain", || e.mul_plain(ct, plain).unwrap());
    r.run("multiply scalar", || e.mul_scalar(ct, &scalar).unwrap());
    r.run("scalar mac, 32 terms", || e.scalar_mac(&terms, &weights, Terms::Any).unwrap());
    r.run("multiply", || e.mul(ct, ct).unwrap());
    r.run("square", || e.square(ct).unwrap());
    r.run("rescale", || e.rescale(&scaled).unwrap());
}

fn switching(
    r: &Report<'_>,
    params: &CkksParams,
    keys: &KeyGenerator,
    secret: &client::SecretKey,
    encoder: &Encoder,
    ct: &Ciphertext,
) {
    let mut prg = Prg::from_seed([2; 16]);
    let e = Evaluator::new(params);
    let relin = keys.relin_key(secret, &mut prg).unwrap();
    let elements: Vec<Galois> = (1..8).map(Galois::Rotate).chain([Galois::Conjugate]).collect();
    let galois = keys.galois_keys(secret, &elements, &mut prg).unwrap();
    let product = e.square(ct).unwrap();
    let digits = e.hoist(ct).unwrap();
    let at = EncodeAt { level: ct.level(), scale: 2f64.powi(20), bound: 1.0 };
    let raised = encoder.encode_raised(&[0.5], at).unwrap();
    let terms: Vec<(Galois, &Plaintext)> = (0..8).map(|s| (Galois::Rotate(s), &raised)).collect();
    r.run("relinearise", || e.relinearise(&product, &relin).unwrap());
    r.run("relinearise and rescale", || e.relinearise_rescale(&product, &relin).unwrap());
    r.run("rotate", || e.rotate(ct, 1, &galois).unwrap());
    r.run("conjugate", || e.conjugate(ct, &galois).unwrap());
    r.run("hoist", || e.hoist(ct).unwrap());
    r.run("rotate, hoisted", || e.apply_hoisted(ct, &digits, Galois::Rotate(1), &galois).unwrap());
    r.run("hoisted sum of 8 rotations", || e.hoisted_sum(ct, &digits, &terms, &galois).unwrap());
}
