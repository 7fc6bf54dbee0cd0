//! A bootstrap at small degrees, against the message and against what was derived.

use super::*;
use crate::ckks::client::{KeyGenerator, SecretKey};
use crate::ckks::Insecure;

/// Eight levels of butterflies and less: seconds in a test.
fn spec(ring_degree: usize, slots: usize, radices: &[u32]) -> BootstrapSpec {
    BootstrapSpec {
        ring_degree,
        slots,
        levels: 2,
        message_bits: 44,
        base_bits: 50,
        entry_bits: 43,
        to_coefficients: radices.to_vec(),
        to_slots: radices.iter().rev().copied().collect(),
        sine: Sine { range: 13, degree: 31, doublings: 3 },
        weight: 32,
        special: 4,
    }
}

struct World {
    bootstrapper: Bootstrapper,
    keys: BootstrapKeys,
    secret: SecretKey,
    encoder: Encoder,
    prg: Prg,
}

impl World {
    fn new(spec: &BootstrapSpec) -> Self {
        let params = spec.check_insecure(Insecure).unwrap();
        let mut prg = Prg::from_seed([71; 16]);
        let generator = KeyGenerator::new(params.ckks());
        let secret = generator.secret_key(&mut prg).unwrap();
        let keys = generator.bootstrap_keys(&secret, &params, &[], &mut prg).unwrap();
        let bootstrapper = Bootstrapper::new(&params).unwrap();
        Self { encoder: Encoder::new(params.ckks()), bootstrapper, keys, secret, prg }
    }

    fn values(&mut self, complex: bool) -> Vec<Complex> {
        let n = self.bootstrapper.params.spec.slots;
        let mut words = vec![0; 2 * n];
        self.prg.fill_words(&mut words);
        let real = |w: u64| w as f64 / 2f64.powi(63) - 1.0;
        let own: Vec<Complex> = words
            .chunks(2)
            .map(|p| {
                if complex {
                    Complex { re: 0.7 * real(p[0]), im: 0.7 * real(p[1]) }
                } else {
                    Complex { re: real(p[0]), im: 0.0 }
                }
            })
            .collect();
        own.iter().cycle().take(self.encoder.params().slots()).copied().collect()
    }

    fn encrypt(&mut self, values: &[Complex], level: usize, bound: f64) -> Ciphertext {
        let at = EncodeAt {
            level: self.encoder.params().level(level).unwrap(),
            scale: self.bootstrapper.params.fresh_scale() / bound,
            bound,
        };
        let plain = self.encoder.encode_complex(values, at).unwrap();
        self.secret.encrypt(&plain, &mut self.prg).unwrap()
    }

    fn errors(&self, c: &Ciphertext, expected: &[Complex]) -> Vec<f64> {
        let got = self.encoder.decode_complex(&self.secret.decrypt(c).unwrap()).unwrap();
        got.iter().zip(expected).flat_map(|(g, e)| [g.re - e.re, g.im - e.im]).collect()
    }
}

fn rms(v: &[f64]) -> f64 {
    (v.iter().map(|x| x * x).sum::<f64>() / v.len() as f64).sqrt()
}

#[test]
fn bootstrapped_slots_are_what_they_were_within_the_derived_error() {
    for (degree, slots, radices) in
        [(1 << 10, 512, vec![3, 3, 3]), (1 << 10, 64, vec![2, 2, 2]), (1 << 9, 256, vec![4, 4])]
    {
        let mut world = World::new(&spec(degree, slots, &radices));
        for complex in [false, true] {
            let x = world.values(complex);
            let c = world.encrypt(&x, 2, 1.0);
            let out = world.bootstrapper.apply(&c, &world.keys).unwrap();
            assert_eq!(out.level(), world.bootstrapper.params.fresh_level());
            assert_eq!(out.scale(), world.bootstrapper.params.fresh_scale());
            let errors = world.errors(&out, &x);
            let (rms, sd) = (rms(&errors), out.noise() / out.scale());
            let worst = errors.iter().fold(0.0f64, |m, e| m.max(e.abs()));
            eprintln!(
                "N {degree}, {slots} slots: rms 2^{:.1}, sd 2^{:.1}, worst 2^{:.1}, bound 2^{:.1}",
                rms.log2(),
                sd.log2(),
                worst.log2(),
                out.error_bound().log2()
            );
            assert!(worst <= out.error_bound());
            assert!(rms <= sd && sd <= rms * 24.0, "rms {rms} of sd {sd}");
        }
    }
}
