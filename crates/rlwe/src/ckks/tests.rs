//! Shared fixtures; tests by subject below.

use super::client::{KeyGenerator, SecretKey};
use super::*;
use hushnet_ring::{Isa, Prg, Ring};

mod bytes;
mod circuits;
mod encoding;
mod invariant;
mod linear;
mod misuse;
mod noise;
mod operations;

/// All keys of one party under one specification, deterministic.
pub(super) struct World {
    pub params: CkksParams,
    pub encoder: Encoder,
    pub evaluator: Evaluator,
    pub secret: SecretKey,
    pub public: PublicKey,
    pub relin: RelinKey,
    pub galois: GaloisKeys,
    pub prg: Prg,
}

pub(super) const STEPS: [i64; 5] = [1, 2, 3, -1, -4];

/// Primes: first 45 bits then 30 and so on; special primes as wide as the widest digit.
pub(super) fn specs(ring_degree: usize) -> Vec<CkksSpec> {
    let near = |bits: &[u32]| bits.iter().map(|&b| PrimeSpec::Near(b)).collect::<Vec<_>>();
    vec![
        CkksSpec::with_depth(ring_degree, 45, 3, 30, 45),
        CkksSpec {
            ring_degree,
            ring: Ring::Cyclotomic,
            data_primes: near(&[40, 32, 32, 32, 32]),
            special_primes: near(&[40, 40]),
            scale_bits: 32,
            digits: 3,
        },
        CkksSpec {
            ring_degree,
            ring: Ring::Cyclotomic,
            data_primes: near(&[50, 50, 50, 50]),
            special_primes: near(&[50, 50, 50, 50]),
            scale_bits: 48,
            digits: 1,
        },
    ]
}

impl World {
    pub(super) fn new(spec: &CkksSpec, isa: Isa, seed: u8) -> Self {
        Self::of_generator(spec, isa, Prg::from_seed([seed; 16]))
    }

    pub(super) fn of_generator(spec: &CkksSpec, isa: Isa, mut prg: Prg) -> Self {
        let params = spec.check_insecure_with(Insecure, isa).unwrap();
        let keys = KeyGenerator::new(&params);
        let secret = keys.secret_key(&mut prg).unwrap();
        let elements: Vec<Galois> =
            STEPS.iter().map(|&s| Galois::Rotate(s)).chain([Galois::Conjugate]).collect();
        Self {
            encoder: Encoder::new(&params),
            evaluator: Evaluator::new(&params),
            public: keys.public_key(&secret, &mut prg).unwrap(),
            relin: keys.relin_key(&secret, &mut prg).unwrap(),
            galois: keys.galois_keys(&secret, &elements, &mut prg).unwrap(),
            secret,
            params,
            prg,
        }
    }

    pub(super) fn at(&self, level: usize, bound: f64) -> EncodeAt {
        EncodeAt { level: self.params.level(level).unwrap(), scale: self.params.scale(), bound }
    }

    /// Uniform complex numbers with both parts within the bound over sqrt 2.
    pub(super) fn values(&mut self, bound: f64) -> Vec<Complex> {
        let mut words = vec![0; 2 * self.params.slots()];
        self.prg.fill_words(&mut words);
        let real = |w: u64| (w as f64 / 2f64.powi(63) - 1.0) * bound / 1.4143;
        words.chunks(2).map(|p| Complex { re: real(p[0]), im: real(p[1]) }).collect()
    }

    pub(super) fn encrypt(&mut self, values: &[Complex], level: usize, bound: f64) -> Ciphertext {
        let plain = self.encoder.encode_complex(values, self.at(level, bound)).unwrap();
        self.secret.encrypt(&plain, &mut self.prg).unwrap()
    }

    pub(super) fn decrypt(&self, c: &Ciphertext) -> Vec<Complex> {
        self.encoder.decode_complex(&self.secret.decrypt(c).unwrap()).unwrap()
    }

    /// Largest error of a part of a slot over the predicted bound; also checks the message bound.
    pub(super) fn error_ratio(&self, c: &Ciphertext, expected: &[Complex]) -> f64 {
        let got = self.decrypt(c);
        let bound = self.secret.decrypt(c).unwrap().error_bound();
        let worst = got
            .iter()
            .zip(expected)
            .map(|(g, e)| (g.re - e.re).abs().max((g.im - e.im).abs()))
            .fold(0.0, f64::max);
        let largest = expected.iter().map(|e| e.re.hypot(e.im)).fold(0.0, f64::max);
        assert!(largest <= c.bound() * (1.0 + 1e-12), "message {largest} above its bound {}", c.bound());
        worst / bound
    }

    pub(super) fn assert_close(&self, what: &str, c: &Ciphertext, expected: &[Complex]) {
        let ratio = self.error_ratio(c, expected);
        assert!(ratio <= 1.0, "{what}: error is {ratio} of its bound {}", c.error_bound());
    }
}

pub(super) fn map2(a: &[Complex], b: &[Complex], f: impl Fn(Complex, Complex) -> Complex) -> Vec<Complex> {
    a.iter().zip(b).map(|(x, y)| f(*x, *y)).collect()
}

pub(super) fn plus(a: Complex, b: Complex) -> Complex {
    Complex { re: a.re + b.re, im: a.im + b.im }
}
pub(super) fn minus(a: Complex, b: Complex) -> Complex {
    Complex { re: a.re - b.re, im: a.im - b.im }
}
pub(super) fn times(a: Complex, b: Complex) -> Complex {
    Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }
}
pub(super) fn scaled(a: Complex, w: f64) -> Complex {
    Complex { re: a.re * w, im: a.im * w }
}
