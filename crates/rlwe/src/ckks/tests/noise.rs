//! Measured against predicted errors.

use super::*;
use crate::batch::TAIL;
use hushnet_ring::simd;

/// Root mean square of slot-error components over sd, and the largest component over the bound.
pub(super) struct Measured {
    square: f64,
    count: f64,
    worst: f64,
    sd: f64,
}

impl Measured {
    pub(super) fn new() -> Self {
        Self { square: 0.0, count: 0.0, worst: 0.0, sd: 0.0 }
    }

    fn add(&mut self, world: &World, c: &Ciphertext, expected: &[Complex]) {
        let parts = |v: &[Complex]| v.iter().flat_map(|z| [z.re, z.im]).collect::<Vec<_>>();
        self.add_reals(&parts(&world.decrypt(c)), c, &parts(expected));
    }

    pub(super) fn add_reals(&mut self, got: &[f64], c: &Ciphertext, expected: &[f64]) {
        let sd = c.noise() / c.scale();
        for d in got.iter().zip(expected).map(|(g, e)| g - e) {
            self.square += d * d;
            self.count += 1.0;
            self.worst = self.worst.max(d.abs() / (TAIL * sd));
        }
        self.sd = sd;
    }

    /// That no sample exceeds the bound, and that the prediction is within `slack` of the truth.
    pub(super) fn check(&self, what: &str, slack: f64) {
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

/// Random weights, one a slot.
fn real_slots(world: &mut World) -> Vec<f64> {
    world.values(1.0).iter().map(|v| v.re).collect()
}

fn turned(x: &[Complex], steps: usize) -> Vec<Complex> {
    (0..x.len()).map(|j| x[(j + steps) % x.len()]).collect()
}

fn times_reals(x: &[Complex], w: &[f64]) -> Vec<Complex> {
    x.iter().zip(w).map(|(v, w)| scaled(*v, *w)).collect()
}

/// Conjugation, products with one number, sums, differences, lower levels: results and what they should be.
fn plain_kinds(world: &mut World) -> Vec<(&'static str, f64, Ciphertext, Vec<Complex>)> {
    let e = world.evaluator.clone();
    let (x, y) = (world.values(1.0), world.values(1.0));
    let (a, b) = (world.encrypt(&x, 3, 1.0), world.encrypt(&y, 3, 1.0));
    let w = world.encoder.encode_scalar(0.7654321, a.level(), world.params.scale()).unwrap();
    let v = world.encoder.encode_scalar(-0.25, a.level(), world.params.scale()).unwrap();
    let (plain, shift) = (
        world.encoder.encode_complex(&y, world.at(3, 1.0)).unwrap(),
        world.encoder.encode_scalar(0.7654321, a.level(), a.scale()).unwrap(),
    );
    let low = world.params.level(2).unwrap();
    let constant = Complex { re: 0.7654321, im: 0.0 };
    let weighted = map2(&x, &y, |u, t| plus(scaled(u, 0.7654321), scaled(t, -0.25)));
    let scalar = e.mul_scalar(&a, &w).unwrap();
    let product = map2(&x, &x, |u, _| scaled(u, 0.7654321));
    vec![
        (
            "conjugated",
            6.0,
            e.conjugate(&a, &world.galois).unwrap(),
            x.iter().map(|u| Complex { re: u.re, im: -u.im }).collect(),
        ),
        ("scalar product", 1.05, scalar.clone(), product.clone()),
        ("scalar product, rescaled", 4.0, e.rescale(&scalar).unwrap(), product),
        ("scalar sum", 1.05, e.add_scalar(&a, &shift).unwrap(), map2(&x, &x, |u, _| plus(u, constant))),
        ("weighted sum", 1.5, e.scalar_mac(&[&a, &b], &[&w, &v], Terms::Any).unwrap(), weighted),
        ("difference", 1.5, e.sub(&a, &b).unwrap(), map2(&x, &y, minus)),
        ("plain sum", 1.15, e.add_plain(&a, &plain).unwrap(), map2(&x, &y, plus)),
        ("plain difference", 1.15, e.sub_plain(&a, &plain).unwrap(), map2(&x, &y, minus)),
        ("negated", 1.02, e.neg(&a).unwrap(), map2(&x, &x, |u, _| scaled(u, -1.0))),
        ("lower level", 1.02, e.drop_to(&a, low).unwrap(), x.clone()),
        ("square", 3.0, e.square(&a).unwrap(), map2(&x, &x, times)),
        ("three parts, rescaled", 16.0, e.rescale(&e.mul(&a, &b).unwrap()).unwrap(), map2(&x, &y, times)),
    ]
}

/// Linear maps by diagonals, and answers that hide how they were made.
fn map_kinds(world: &mut World) -> Vec<(&'static str, f64, Ciphertext, Vec<Complex>)> {
    let e = world.evaluator.clone();
    let (x, y) = (world.values(1.0), world.values(1.0));
    let (a, b) = (world.encrypt(&x, 3, 1.0), world.encrypt(&y, 3, 1.0));
    let (w, v) = (real_slots(world), real_slots(world));
    let at = world.at(3, 1.0);
    let raised = [&w, &v].map(|d| world.encoder.encode_raised(d, at).unwrap());
    let terms = [(Galois::Rotate(1), &raised[0]), (Galois::Rotate(3), &raised[1])];
    let hoisted = e.hoisted_sum(&a, &e.hoist(&a).unwrap(), &terms, &world.galois).unwrap();
    let mapped = map2(&times_reals(&turned(&x, 1), &w), &times_reals(&turned(&x, 3), &v), plus);

    let mut rows =
        PlainRows::new(&world.params, at.level, at.scale, world.params.slots(), vec![vec![0, 1], vec![1, 0]])
            .unwrap();
    for sum in 0..2 {
        rows.set(&world.encoder, sum, &[w.clone(), v.clone()]).unwrap();
    }
    let sums = e.plain_sums(&[&a, &b], &rows).unwrap();
    let inner = [(&x, &y), (&y, &x)].map(|(p, q)| map2(&times_reals(p, &w), &times_reals(q, &v), plus));
    let outer = map2(&turned(&inner[0], 2), &turned(&inner[1], 3), plus);
    let giants: Vec<(i64, Ciphertext)> = [2, 3].into_iter().zip(sums.iter().cloned()).collect();
    let rotated = e.rotate_sum_rescale(&giants, 4.0, &world.galois).unwrap();
    let relabelled = e.relabel(a.clone(), 0.375).unwrap();

    // What the server sends back: under a fresh encryption of zero, whose error is above that of the fresh `a`, and under floods.
    let mut hide = |c, bits| world.public.hide(c, bits, &mut world.prg).unwrap();
    let (again, flooded, wide) = (hide(&a, None), hide(&a, Some(18)), hide(&sums[0], Some(62)));
    vec![
        ("hoisted sum", 20.0, hoisted, mapped),
        ("plain sums", 4.0, sums[0].clone(), inner[0].clone()),
        ("rotated sums, rescaled", 6.0, rotated, outer),
        ("relabelled", 1.02, relabelled, map2(&x, &x, |u, _| scaled(u, 0.375))),
        ("re-randomised", 8.0, again, x.clone()),
        ("flooded by 18 bits", 1.02, flooded, x.clone()),
        ("flooded by 62 bits", 1.02, wide, inner[0].clone()),
    ]
}

#[test]
fn a_thousand_maps_and_answers_of_each_kind_stay_within_their_bounds() {
    for spec in specs(64).iter().take(2) {
        let mut world = World::new(spec, simd::isa(), 36);
        let mut kinds: Vec<(&str, f64, Measured)> = Vec::new();
        for sample in 0..1000 {
            let mut results = plain_kinds(&mut world);
            results.extend(map_kinds(&mut world));
            for (i, (name, slack, c, expected)) in results.iter().enumerate() {
                if sample == 0 {
                    kinds.push((name, *slack, Measured::new()));
                }
                kinds[i].2.add(&world, c, expected);
            }
        }
        for (name, slack, m) in &kinds {
            m.check(name, *slack);
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
