//! The conjugate-invariant ring: encoding by its definition, every operation that it has, noise, bytes, refusals.

use super::noise::Measured;
use super::*;
use crate::ckks::{SmallPlaintext, HEADER_BYTES};
use hushnet_ring::simd;
use sha2::{Digest, Sha256};

const N: usize = 64;

struct Real {
    params: CkksParams,
    encoder: Encoder,
    evaluator: Evaluator,
    secret: SecretKey,
    public: PublicKey,
    relin: RelinKey,
    prg: Prg,
}

fn spec(ring_degree: usize) -> CkksSpec {
    CkksSpec { ring: Ring::ConjugateInvariant, ..CkksSpec::with_depth(ring_degree, 45, 2, 30, 48) }
}

impl Real {
    fn new(spec: &CkksSpec, isa: Isa) -> Self {
        let params = spec.check_insecure_with(Insecure, isa).unwrap();
        let mut prg = Prg::from_seed([21; 16]);
        let keys = KeyGenerator::new(&params);
        let secret = keys.secret_key(&mut prg).unwrap();
        Self {
            encoder: Encoder::new(&params),
            evaluator: Evaluator::new(&params),
            public: keys.public_key(&secret, &mut prg).unwrap(),
            relin: keys.relin_key(&secret, &mut prg).unwrap(),
            secret,
            params,
            prg,
        }
    }

    fn at(&self, level: usize) -> EncodeAt {
        EncodeAt { level: self.params.level(level).unwrap(), scale: self.params.scale(), bound: 1.0 }
    }

    fn values(&mut self) -> Vec<f64> {
        let mut words = vec![0; self.params.slots()];
        self.prg.fill_words(&mut words);
        words.iter().map(|w| (*w >> 11) as f64 / 2f64.powi(52) - 1.0).collect()
    }

    fn encrypt(&mut self, values: &[f64]) -> Ciphertext {
        let plain = self.encoder.encode(values, self.at(3)).unwrap();
        self.secret.encrypt(&plain, &mut self.prg).unwrap()
    }

    fn decrypt(&self, c: &Ciphertext) -> Vec<f64> {
        self.encoder.decode(&self.secret.decrypt(c).unwrap()).unwrap()
    }
}

/// `a_0 + sum_t 2 a_t cos(pi e t / 2N)` at `e = 5^j mod 4N`: the slots of coefficients.
fn slots_of(coefficients: &[f64]) -> Vec<f64> {
    let n = coefficients.len();
    let mut e = 1;
    (0..n)
        .map(|_| {
            let angle = |t: usize| std::f64::consts::PI * (e * t % (4 * n)) as f64 / (2 * n) as f64;
            let sum = coefficients.iter().enumerate().skip(1).map(|(t, a)| 2.0 * a * angle(t).cos());
            let slot = coefficients[0] + sum.sum::<f64>();
            e = e * 5 % (4 * n);
            slot
        })
        .collect()
}

fn small(p: &SmallPlaintext) -> Vec<i64> {
    p.words.iter().map(|w| *w as i64).collect()
}

#[test]
fn slots_are_the_real_embeddings_whichever_way_values_are_encoded() {
    for n in [16, 64, 1024] {
        let mut reference = None;
        for isa in simd::available() {
            let mut w = Real::new(&spec(n), isa);
            assert_eq!((w.params.slots(), w.params.ring_degree()), (n, n));
            let (x, y) = (w.values(), w.values());
            let [a, b] = w.encoder.encode_pair(&x, &y[..n - 3], w.at(3)).unwrap();
            for (plain, values) in [(&a, &x[..]), (&b, &y[..n - 3])] {
                let coefficients: Vec<f64> = small(plain).iter().map(|v| *v as f64 / plain.scale).collect();
                let full = values.iter().chain(&[0.0; 3]);
                for (got, want) in slots_of(&coefficients).iter().zip(full) {
                    assert!(
                        (got - want).abs() < plain.sd * crate::batch::TAIL / plain.scale,
                        "N={n}: {got} is not {want}"
                    );
                }
            }
            assert_eq!(*reference.get_or_insert_with(|| (small(&a), small(&b))), (small(&a), small(&b)));
            // Alone, and with a scale beyond the vector path.
            for scale in [30, 60] {
                let at = EncodeAt { scale: f64::from(scale).exp2(), ..w.at(3) };
                let plain = w.encoder.encode(&x, at).unwrap();
                for (got, want) in w.encoder.decode(&plain).unwrap().iter().zip(&x) {
                    assert!((got - want).abs() <= plain.error_bound(), "N={n}: {got} is not {want}");
                }
            }
        }
    }
}

#[test]
fn a_thousand_ciphertexts_of_each_operation_stay_within_their_bounds() {
    let mut w = Real::new(&spec(N), simd::isa());
    let e = w.evaluator.clone();
    let two = |x: &[f64], y: &[f64], f: fn(f64, f64) -> f64| -> Vec<f64> {
        x.iter().zip(y).map(|(x, y)| f(*x, *y)).collect()
    };
    let mut kinds: Vec<(&str, f64, Measured)> = Vec::new();
    for sample in 0..1000 {
        let (x, y) = (w.values(), w.values());
        let (a, b) = (w.encrypt(&x), w.encrypt(&y));
        let plain = w.encoder.encode(&y, w.at(3)).unwrap();
        let [pair, _] = w.encoder.encode_pair(&x, &y, w.at(3)).unwrap();
        let fast = w.secret.encrypt_small(pair, &mut w.prg).unwrap();
        let public = w.public.encrypt(&plain, &mut w.prg).unwrap();
        let product = e.mul(&a, &b).unwrap();
        let relinearised = e.relinearise(&product, &w.relin).unwrap();
        let constant = w.encoder.encode_scalar(0.7, a.level(), w.params.scale()).unwrap();
        let xy = two(&x, &y, |x, y| x * y);
        let hidden = w.public.hide(&a, Some(20), &mut w.prg).unwrap();
        let results = [
            ("secret key", 1.02, a.clone(), x.clone()),
            ("secret key, of integers", 1.02, fast, x.clone()),
            ("public key", 12.0, public, y.clone()),
            ("sum", 1.5, e.add(&a, &b).unwrap(), two(&x, &y, |x, y| x + y)),
            ("difference", 1.5, e.sub(&a, &b).unwrap(), two(&x, &y, |x, y| x - y)),
            ("times a vector", 4.0, e.mul_plain(&a, &plain).unwrap(), xy.clone()),
            (
                "times a number",
                1.05,
                e.mul_scalar(&a, &constant).unwrap(),
                x.iter().map(|x| 0.7 * x).collect(),
            ),
            ("square", 3.0, e.square(&a).unwrap(), two(&x, &x, |x, y| x * y)),
            ("product", 4.0, product.clone(), xy.clone()),
            ("relinearised", 12.0, relinearised.clone(), xy.clone()),
            ("rescaled", 16.0, e.rescale(&relinearised).unwrap(), xy.clone()),
            ("fused", 16.0, e.relinearise_rescale(&product, &w.relin).unwrap(), xy),
            ("flooded by 20 bits", 1.02, hidden, x),
        ];
        for (i, (name, slack, c, expected)) in results.into_iter().enumerate() {
            if sample == 0 {
                kinds.push((name, slack, Measured::new()));
            }
            kinds[i].2.add_reals(&w.decrypt(&c), &c, &expected);
        }
    }
    for (name, slack, m) in &kinds {
        m.check(name, *slack);
    }
}

#[test]
fn bytes_are_pinned_the_same_on_every_path_and_not_taken_by_the_other_ring() {
    for isa in simd::available() {
        let mut w = Real::new(&spec(2048), isa);
        let x: Vec<f64> = (0..2048).map(|j| f64::from(j % 37) / 37.0).collect();
        let c = w.encrypt(&x);
        let fused = w.evaluator.relinearise_rescale(&w.evaluator.square(&c).unwrap(), &w.relin).unwrap();
        let mut h = Sha256::new();
        for bytes in [w.public.to_bytes(), w.relin.to_bytes(), c.to_bytes(), fused.to_bytes()] {
            h.update(bytes.unwrap());
        }
        let hash: String = h.finalize()[..12].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hash, "74f4bee90f5ee364963d8807", "{isa:?}");
        let bytes = c.to_bytes().unwrap();
        let again = Ciphertext::from_bytes(&w.params, &bytes).unwrap();
        assert_eq!(w.decrypt(&again), w.decrypt(&c));
        let exact = |i: usize| PrimeSpec::Exactly(w.params.data_prime(i));
        let other = CkksSpec {
            ring: Ring::Cyclotomic,
            data_primes: (0..3).map(exact).collect(),
            special_primes: w.params.special_primes().into_iter().map(PrimeSpec::Exactly).collect(),
            ..spec(2048)
        };
        let other = other.check_insecure_with(Insecure, isa).unwrap();
        assert_ne!(other.hash(), w.params.hash());
        assert!(Ciphertext::from_bytes(&other, &bytes).is_err() && bytes.len() > HEADER_BYTES);
    }
}

#[test]
fn what_the_ring_does_not_have_is_refused() {
    let mut w = Real::new(&spec(N), simd::isa());
    let one = [Complex { re: 1.0, im: 0.0 }];
    assert!(matches!(w.encoder.encode_complex(&one, w.at(3)), Err(CkksError::RealSlots)));
    assert!(matches!(w.encoder.encode_packed(&[1.0], w.at(3)), Err(CkksError::RealSlots)));
    assert!(matches!(w.encoder.encode_packed_small(&[1.0], w.at(3)), Err(CkksError::RealSlots)));
    assert!(
        matches!(w.encoder.encode(&[0.0; N + 1], w.at(3)), Err(CkksError::TooManyValues { got, slots }) if (got, slots) == (N + 1, N))
    );
    for galois in [Galois::Rotate(1), Galois::Conjugate] {
        let keys = KeyGenerator::new(&w.params).galois_keys(&w.secret, &[galois], &mut w.prg);
        assert!(keys.err().unwrap().to_string().contains("automorphisms"));
    }
    assert!(spec(1 << 16).check_insecure(Insecure).unwrap_err().to_string().contains("up to 32768"));
    // 1 mod 2N is not enough.
    let p =
        (1..).map(|k| 2 * N as u64 * (2 * k + 1) + 1).find(|p| hushnet_ring::prime::is_prime(*p)).unwrap();
    let wrong = CkksSpec { data_primes: vec![PrimeSpec::Exactly(p)], digits: 1, ..spec(N) };
    assert!(wrong.check_insecure(Insecure).unwrap_err().to_string().contains("mod 256"));
    // The security table holds for it as for the other.
    assert!(matches!(spec(2048).check(), Err(CkksError::Security { ring_degree: 2048, .. })));
}
