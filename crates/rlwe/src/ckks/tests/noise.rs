//! Measured against predicted errors.

use super::*;
use crate::batch::TAIL;
use hushnet_ring::simd;

/// Root mean square of slot-error components over sd, and the largest component over the bound.
struct Measured {
    square: f64,
    count: f64,
    worst: f64,
    sd: f64,
}

impl Measured {
    fn new() -> Self {
        Self { square: 0.0, count: 0.0, worst: 0.0, sd: 0.0 }
    }

    fn add(&mut self, world: &World, c: &Ciphertext, expected: &[Complex]) {
        let sd = c.noise() / c.scale();
        for (g, e) in world.decrypt(c).iter().zip(expected) {
            for d in [g.re - e.re, g.im - e.im] {
                self.square += d * d;
                self.count += 1.0;
                self.worst = self.worst.max(d.abs() / (TAIL * sd));
            }
        }
        self.sd = sd;
    }

    /// That no sample exceeds the bound, and that the prediction is within `slack` of the truth.
    fn check(&self, what: &str, slack: f64) {
        let ratio = (self.square / self.count).sqrt() / self.sd;
        assert!(self.count >= 1000.0 && self.worst <= 1.0, "{what}: worst {} of the bound", self.worst);
        assert!(ratio <= 1.02 && ratio >= 1.0 / slack, "{what}: rms is {ratio} of sd");
    }
}

#[test]
fn a_thousand_ciphertexts_of_each_kind_stay_within_their_bounds() {
    let ring_degree = 64;
    for spec in specs(ring_degree).iter().take(2) {
        let mut world = World::new(spec, simd::isa(), 33);
        let e = world.evaluator.clone();
        let names = [
            "secret",
            "public",
            "sum",
            "plain product",
            "product",
            "relinearised",
            "rescaled",
            "fused",
            "rotated",
            "hoisted",
        ];
        let mut kinds: Vec<Measured> = names.iter().map(|_| Measured::new()).collect();
        for _ in 0..1000 {
            let (x, y) = (world.values(1.0), world.values(1.0));
            let (a, b) = (world.encrypt(&x, 3, 1.0), world.encrypt(&y, 3, 1.0));
            let plain = world.encoder.encode_complex(&y, world.at(3, 1.0)).unwrap();
            let public = world.public.encrypt(&plain, &mut world.prg).unwrap();
            let xy = map2(&x, &y, times);
            let product = e.mul(&a, &b).unwrap();
            let relinearised = e.relinearise(&product, &world.relin).unwrap();
            let rotated: Vec<Complex> = (0..x.len()).map(|j| x[(j + 3) % x.len()]).collect();
            let digits = e.hoist(&a).unwrap();
            let results = [
                (a.clone(), &x),
                (public, &y),
                (e.add(&a, &b).unwrap(), &map2(&x, &y, plus)),
                (e.mul_plain(&a, &plain).unwrap(), &xy),
                (product.clone(), &xy),
                (relinearised.clone(), &xy),
                (e.rescale(&relinearised).unwrap(), &xy),
                (e.relinearise_rescale(&product, &world.relin).unwrap(), &xy),
                (e.rotate(&a, 3, &world.galois).unwrap(), &rotated),
                (e.apply_hoisted(&a, &digits, Galois::Rotate(3), &world.galois).unwrap(), &rotated),
            ];
            for ((c, expected), m) in results.iter().zip(&mut kinds) {
                m.add(&world, c, expected);
            }
        }
        // Slack: exact where variances are exact; where the model takes the largest slot of a key or the
        // declared bound of a message, that much above the mean square.
        let slack = [1.02, 8.0, 1.5, 4.0, 4.0, 12.0, 12.0, 12.0, 12.0, 12.0];
        for ((name, m), slack) in names.iter().zip(&kinds).zip(slack) {
            m.check(name, slack);
        }
    }
}

#[test]
fn independent_errors_of_a_lazy_sum_add_in_squares() {
    let mut world = World::new(&specs(64)[0], simd::isa(), 35);
    let e = world.evaluator.clone();
    let level = world.params.level(3).unwrap();
    let integers: Vec<i64> = (0..20).map(|k| k * k - 60).collect();
    let weights: Vec<ScalarPlaintext> =
        integers.iter().map(|w| world.encoder.encode_integer(*w, level).unwrap()).collect();
    let weights: Vec<&ScalarPlaintext> = weights.iter().collect();
    let mut measured = Measured::new();
    for _ in 0..200 {
        let mut expected = vec![Complex::default(); 32];
        let mut terms = Vec::new();
        for w in &integers {
            let x = world.values(1.0);
            expected = map2(&expected, &x, |s, v| plus(s, scaled(v, *w as f64)));
            terms.push(world.encrypt(&x, 3, 1.0));
        }
        let terms: Vec<&Ciphertext> = terms.iter().collect();
        measured.add(&world, &e.scalar_mac(&terms, &weights, Terms::Independent).unwrap(), &expected);
    }
    measured.check("lazy sum", 1.03);
}

#[test]
fn dependent_errors_add_up_as_predicted() {
    let mut world = World::new(&specs(128)[0], simd::isa(), 34);
    let e = world.evaluator.clone();
    let x = world.values(0.5);
    let a = world.encrypt(&x, 3, 0.5);
    let mut sum = a.clone();
    let mut expected = x.clone();
    for _ in 0..15 {
        e.add_assign(&mut sum, &a).unwrap();
        expected = map2(&expected, &x, plus);
    }
    assert!((sum.noise() / a.noise() - 16.0).abs() < 1e-9);
    world.assert_close("sixteen times the same", &sum, &expected);
    // And that sum really has sixteen times the error, not four times.
    let one = world.error_ratio(&a, &x);
    assert!((world.error_ratio(&sum, &expected) / one - 1.0).abs() < 0.01);
}
