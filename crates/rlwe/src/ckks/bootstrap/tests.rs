//! A bootstrap at small degrees, against the message and against what was derived.

use super::dft;
use super::*;
use std::collections::BTreeMap;

use crate::batch::TAIL;
use crate::ckks::client::{KeyGenerator, SecretKey};
use crate::ckks::switching::counted;
use crate::ckks::{Complex, EncodeAt, Galois, GaloisKeys, Insecure, RelinKey};
use hushnet_ring::Prg;

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
        sine: Sine { range: 13, degree: 15, doublings: 3 },
        weight: 32,
        special: 4,
    }
}

struct Keys {
    relin: RelinKey,
    galois: GaloisKeys,
    encapsulation: Encapsulation,
}

impl Keys {
    fn all(&self) -> BootstrapKeys<'_> {
        BootstrapKeys { relin: &self.relin, galois: &self.galois, encapsulation: &self.encapsulation }
    }
}

struct World {
    bootstrapper: Bootstrapper,
    keys: Keys,
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
        let keys = Keys {
            relin: generator.relin_key(&secret, &mut prg).unwrap(),
            galois: generator.galois_keys_at(&secret, &params.rotations(), &mut prg).unwrap(),
            encapsulation: generator.encapsulation(&secret, &params, &mut prg).unwrap(),
        };
        let bootstrapper = Bootstrapper::new(&params).unwrap();
        Self { encoder: Encoder::new(params.ckks()), bootstrapper, keys, secret, prg }
    }

    fn values(&mut self, complex: bool) -> Vec<Complex> {
        let n = self.bootstrapper.params().spec.slots;
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

    /// At the level that a bootstrap takes.
    fn enter(&mut self, values: &[Complex], bound: f64) -> Ciphertext {
        let level = self.bootstrapper.params().entry_level().get();
        self.encrypt(values, level, bound)
    }

    fn encrypt(&mut self, values: &[Complex], level: usize, bound: f64) -> Ciphertext {
        let at = EncodeAt {
            level: self.encoder.params().level(level).unwrap(),
            scale: self.bootstrapper.params().fresh_scale() / bound,
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

fn real_parts(v: &[Complex]) -> Vec<Complex> {
    v.iter().map(|z| Complex { re: z.re, im: 0.0 }).collect()
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
            let c = world.enter(&x, 1.0);
            let out = world.bootstrapper.apply(&c, world.keys.all()).unwrap();
            assert_eq!(out.level(), world.bootstrapper.params().fresh_level());
            assert_eq!(out.scale(), world.bootstrapper.params().fresh_scale());
            // Imaginary parts are dropped.
            let errors = world.errors(&out, &real_parts(&x));
            let (rms, sd) = (rms(&errors), out.noise() / out.scale());
            let worst = errors.iter().fold(0.0f64, |m, e| m.max(e.abs()));
            assert!(worst <= out.error_bound());
            let derived = world.bootstrapper.design.error(c.scale(), 1.0).unwrap();
            let (sd, mean) = (sd, derived.mean.hypot(derived.approximation).hypot(c.noise() / c.scale()));
            assert!(rms <= mean && mean <= rms * 24.0, "rms {rms} of {mean}");
            // The worst integer is not far from the mean.
            assert!(mean < sd && sd <= mean * 2.0, "mean {mean}, sd {sd}");
        }
    }
}

/// Centred values of the coefficients of what a ciphertext decrypts to, ring units.
fn coefficients(world: &World, c: &Ciphertext) -> Vec<f64> {
    let basis = world.encoder.params().basis();
    let plain = world.secret.decrypt(c).unwrap();
    basis.to_reals(&basis.inverse(plain.poly.clone()).unwrap()).unwrap()
}

/// What every step was given and gave.
fn steps(world: &World, c: &Ciphertext) -> BTreeMap<&'static str, Ciphertext> {
    let mut seen = BTreeMap::new();
    world.bootstrapper.run(c, world.keys.all(), &mut |step, c| drop(seen.insert(step, c.clone()))).unwrap();
    seen
}

fn within(what: &str, errors: &[f64], sd: f64, slack: f64) {
    let (mean, worst) = (rms(errors), errors.iter().fold(0.0f64, |m, e| m.max(e.abs())));
    assert!(errors.len() >= 1000, "{what}: {} samples", errors.len());
    assert!(worst <= TAIL * sd, "{what}: worst 2^{:.1} of sd 2^{:.1}", worst.log2(), sd.log2());
    assert!(mean <= sd && sd <= slack * mean, "{what}: rms 2^{:.1} of sd 2^{:.1}", mean.log2(), sd.log2());
}

fn apart(got: &[Complex], expected: &[Complex]) -> Vec<f64> {
    got.iter().zip(expected).flat_map(|(g, e)| [g.re - e.re, g.im - e.im]).collect()
}

/// `v_(i + by)` at i.
fn turned(v: &[Complex], by: i64) -> Vec<Complex> {
    let n = v.len() as i64;
    (0..n).map(|i| v[(i + by).rem_euclid(n) as usize]).collect()
}

fn through(factors: &[dft::Factor], v: Vec<Complex>, factor: f64) -> Vec<Complex> {
    let out = factors.iter().fold(v, |v, f| dft::apply(&f.diagonals, &v));
    out.iter().map(|z| dft::scaled(*z, factor)).collect()
}

#[test]
fn every_step_keeps_its_derived_error_on_a_thousand_samples() {
    let mut world = World::new(&spec(1 << 11, 1 << 10, &[3, 3, 4]));
    let x = world.values(true);
    let c = world.enter(&x, 1.0);
    let seen = steps(&world, &c);
    let spec = world.bootstrapper.params().spec.clone();
    let slots_of = |c: &Ciphertext| world.encoder.decode_complex(&world.secret.decrypt(c).unwrap()).unwrap();
    let (entry, raised, z) = (&seen["enter"], &seen["raise"], &seen["to coefficients"]);
    let q = raised.scale();
    let halves = (world.encoder.params().ring_degree() as f64 / 2.0).sqrt();
    let design = &world.bootstrapper.design;

    // Slots are coefficients now: the real parts in one half, the imaginary ones in the other, turned by what the first matrices leave.
    let forward = dft::factors(spec.slots, &spec.to_slots, false);
    let pending = |stages: &[Stage]| -> i64 {
        stages.iter().map(|s| s.shape.steps.first * s.shape.steps.stride as i64).sum()
    };
    let first = pending(&world.bootstrapper.to_slots);
    let expected = turned(&through(&forward, turned(&x, design.rest()), 1.0), -first);
    within("enter", &apart(&slots_of(entry), &expected), entry.noise() / entry.scale(), 16.0);

    // Modulo q_0 nothing has happened but the error of two key switches; what was added are small multiples of q_0.
    let (before, after) = (coefficients(&world, entry), coefficients(&world, raised));
    let whole: Vec<f64> = before.iter().zip(&after).map(|(b, a)| ((a - b) / q).round()).collect();
    let off: Vec<f64> = before.iter().zip(&after).zip(&whole).map(|((b, a), w)| a - b - w * q).collect();
    let e: Vec<f64> = off.iter().map(|d| d * halves).collect();
    within("raise", &e, raise::projected(world.bootstrapper.params(), 0.0), 32.0);
    let spread = rms(&whole).powi(2);
    let expected = (spec.weight as f64 + 1.0) / 12.0;
    assert!((0.8..1.25).contains(&(spread / expected)), "integers of variance {spread}, {expected} expected");
    assert!(whole.iter().all(|w| w.abs() <= f64::from(spec.sine.range)));

    let inverse = dft::factors(spec.slots, &spec.to_coefficients, true);
    let x_of = through(&inverse, turned(&slots_of(raised), first), 0.5 / spec.sine.width());
    let all = first + pending(&world.bootstrapper.to_coefficients);
    let e = apart(&turned(&slots_of(z), all), &x_of);
    within("to coefficients", &e, z.noise() / z.scale(), 64.0);

    let fraction = |u: f64| {
        let x = 2.0 * u * spec.sine.width();
        (x - x.round()) * q / world.bootstrapper.params().entry_scale()
    };
    let y = &seen["sine"];
    let expected: Vec<Complex> =
        slots_of(z).iter().map(|v| Complex { re: fraction(v.re), im: 0.0 }).collect();
    within("sine", &apart(&slots_of(y), &expected), y.noise() / y.scale(), 64.0);
    assert!(y.scale() == world.bootstrapper.params().fresh_scale());
}

/// What two terms of an odd polynomial leave of the arcsine is a sixteenth of its fifth power, and no constants nearby leave less.
#[test]
fn the_arcsine_is_off_by_a_sixteenth_of_its_fifth_power() {
    let limit = 2.0 * std::f64::consts::PI / 128.0;
    let (a, r) = sine::arcsine(limit);
    let off = |a: f64, r: f64| {
        let at = |k: i32| (f64::from(k) / 1000.0 * limit, (f64::from(k) / 1000.0 * limit).sin());
        (0..=1000).map(at).map(|(angle, s)| (a * s * (1.0 + r * s * s) - angle).abs()).fold(0.0, f64::max)
    };
    let fifth = 3.0 / 40.0 * limit.powi(5);
    assert!(off(a, r) < fifth / 16.0 * 1.1);
    for (a, r) in [(a + 1e-7, r), (a - 1e-7, r), (a, r * 1.001), (a, r * 0.999)] {
        assert!(off(a, r) > fifth / 16.0 * 1.1);
    }
}

/// The change of modulus leaves the part of the polynomial that messages of few slots are in, and integers there.
#[test]
fn few_slots_keep_their_part_of_what_is_raised() {
    for (slots, parts) in [(512, 1), (128, 4), (64, 8), (16, 8)] {
        let mut world = World::new(&spec(1 << 10, slots, &radices(slots)));
        assert_eq!(world.bootstrapper.params().parts(), parts);
        let x = world.values(false);
        let c = world.enter(&x, 1.0);
        let seen = steps(&world, &c);
        let (entry, raised) = (&seen["enter"], &seen["raise"]);
        let (before, after) = (coefficients(&world, entry), coefficients(&world, raised));
        let sd = raised.noise() / (world.encoder.params().ring_degree() as f64 / 2.0).sqrt();
        for (k, (b, a)) in before.iter().zip(&after).enumerate() {
            let kept = if k % parts == 0 { a - b } else { *a };
            let whole = if k % parts == 0 { (kept / raised.scale()).round() } else { 0.0 };
            assert!(whole.abs() <= 13.0);
            assert!((kept - whole * raised.scale()).abs() <= TAIL * sd, "coefficient {k}, {slots} slots");
        }
    }
}

/// Three matrices, the first ones wider.
fn radices(slots: usize) -> Vec<u32> {
    (0..3).map(|k| (slots.ilog2() + 2 - k) / 3).collect()
}

#[test]
fn key_switches_are_as_many_as_stated() {
    for (degree, slots, radices) in
        [(1 << 10, 512, vec![3, 3, 3]), (1 << 10, 64, vec![2, 2, 2]), (1 << 9, 256, vec![4, 4])]
    {
        let mut world = World::new(&spec(degree, slots, &radices));
        let x = world.values(false);
        let c = world.enter(&x, 1.0);
        let before = (counted::SWITCHES.get(), counted::HOISTED.get());
        world.bootstrapper.apply(&c, world.keys.all()).unwrap();
        let made = Operations {
            switches: counted::SWITCHES.get() - before.0,
            hoisted: counted::HOISTED.get() - before.1,
        };
        assert_eq!(made, world.bootstrapper.design().operations());
    }
}

#[test]
fn circuits_go_on_after_bootstraps_and_messages_may_be_large() {
    let mut world = World::new(&spec(1 << 9, 256, &[4, 4]));
    let x = world.values(false);
    let large: Vec<Complex> = x.iter().map(|v| dft::scaled(*v, 20.0)).collect();
    let e = Evaluator::new(world.encoder.params());
    let mut c = world.encrypt(&large, 4, 20.0);
    let mut expected: Vec<f64> = large.iter().map(|v| v.re).collect();
    for _ in 0..3 {
        // Two levels a round: v <- (v / 20)^2 after a bootstrap.
        c = world.bootstrapper.apply(&c, world.keys.all()).unwrap();
        c = e.relabel(c, 1.0 / 20.0).unwrap();
        c = e.relinearise_rescale(&e.square(&c).unwrap(), &world.keys.relin).unwrap();
        c = e.relabel(c, 20.0).unwrap();
        expected.iter_mut().for_each(|v| *v = *v * *v / 20.0);
    }
    let expected: Vec<Complex> = expected.iter().map(|v| Complex { re: *v, im: 0.0 }).collect();
    let worst = world.errors(&c, &expected).iter().fold(0.0f64, |m, d| m.max(d.abs()));
    assert!(worst <= c.error_bound() && worst < 20.0 / 65536.0, "{worst} of {}", c.error_bound());
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut world = World::new(&spec(1 << 9, 256, &[4, 4]));
    let x = world.values(false);
    let e = Evaluator::new(world.encoder.params());
    let c = world.enter(&x, 1.0);
    let low = e.drop_to(&c, world.encoder.params().level(1).unwrap()).unwrap();
    let apply = |c: &Ciphertext, k: BootstrapKeys<'_>| world.bootstrapper.apply(c, k).map(drop);
    assert!(matches!(apply(&low, world.keys.all()), Err(CkksError::LevelTooLow { .. })));
    assert!(matches!(apply(&e.square(&c).unwrap(), world.keys.all()), Err(CkksError::Parts { .. })));
    let wide = Ciphertext { scale: 80f64.exp2(), ..c.clone() };
    assert!(matches!(apply(&wide, world.keys.all()), Err(CkksError::BadScale)));

    let other = World::new(&spec(1 << 9, 256, &[2, 3, 3]));
    assert!(matches!(apply(&c, other.keys.all()), Err(CkksError::ForeignParams(_))));
    assert!(matches!(
        other.bootstrapper.apply(&c, other.keys.all()).map(drop),
        Err(CkksError::ForeignParams(_))
    ));
    let none = GaloisKeys::none(world.encoder.params());
    let keys = BootstrapKeys { galois: &none, ..world.keys.all() };
    assert!(matches!(apply(&c, keys), Err(CkksError::MissingKey(_))));

    // A bound that leaves no room, before anything is computed.
    assert!(matches!(world.bootstrapper.design.error(48f64.exp2(), 24f64.exp2()), Err(CkksError::BadScale)));

    // Keys of two secrets.
    let mut prg = Prg::from_seed([77; 16]);
    let generator = KeyGenerator::new(world.encoder.params());
    let secret = generator.secret_key(&mut prg).unwrap();
    let relin = generator.relin_key(&secret, &mut prg).unwrap();
    assert_ne!(relin.owner(), world.keys.relin.owner());
    let keys = BootstrapKeys { relin: &relin, ..world.keys.all() };
    assert!(matches!(apply(&c, keys), Err(CkksError::ForeignSecret(_))));
    let mut both = generator.galois_keys(&secret, &[Galois::Rotate(1)], &mut prg).unwrap();
    both.merge(GaloisKeys::none(world.encoder.params())).unwrap();
    let all = world.keys.all().galois.clone();
    assert!(matches!(both.merge(all), Err(CkksError::ForeignSecret(_))));

    // Keys of another number of parts in the same ring.
    let (mut few, more) =
        (World::new(&spec(1 << 10, 64, &[2, 2, 2])), World::new(&spec(1 << 10, 128, &[3, 2, 2])));
    let x = few.values(false);
    let c = few.enter(&x, 1.0);
    let keys = BootstrapKeys { encapsulation: &more.keys.encapsulation, ..few.keys.all() };
    assert!(matches!(few.bootstrapper.apply(&c, keys).map(drop), Err(CkksError::ForeignParams(_))));
}

#[test]
fn keys_travel_whole_and_damage_is_seen() {
    let mut world = World::new(&spec(1 << 9, 256, &[4, 4]));
    let params = world.bootstrapper.params().clone();
    let bytes = world.keys.encapsulation.to_bytes().unwrap();
    assert_eq!(bytes.len(), params.encapsulation_bytes());
    let again = Encapsulation::from_bytes(&params, &bytes).unwrap();
    let x = world.values(false);
    let c = world.enter(&x, 1.0);
    let keys = BootstrapKeys { encapsulation: &again, ..world.keys.all() };
    let out = world.bootstrapper.apply(&c, keys).unwrap();
    assert!(out.parts() == world.bootstrapper.apply(&c, world.keys.all()).unwrap().parts());

    for at in (0..bytes.len()).step_by(bytes.len() / 61).chain([7, 8, 40, bytes.len() - 1]) {
        let mut bad = bytes.clone();
        bad[at] ^= 4;
        assert!(Encapsulation::from_bytes(&params, &bad).is_err(), "byte {at}");
    }
    for cut in [0, 47, 48, 1000, bytes.len() - 1] {
        assert!(Encapsulation::from_bytes(&params, &bytes[..cut]).is_err(), "{cut} bytes");
    }
    let other = spec(1 << 10, 256, &[4, 4]).check_insecure(Insecure).unwrap();
    assert!(matches!(Encapsulation::from_bytes(&other, &bytes), Err(CkksError::ForeignParams(_))));
}

#[test]
fn what_a_design_says_is_what_a_bootstrap_does() {
    for (degree, slots, radices) in
        [(1 << 10, 512, vec![3, 3, 3]), (1 << 10, 64, vec![2, 2, 2]), (1 << 9, 256, vec![4, 4])]
    {
        let mut world = World::new(&spec(degree, slots, &radices));
        let design = BootstrapDesign::new(world.bootstrapper.params()).unwrap();
        assert_eq!(design.bytes(), world.bootstrapper.bytes() as u64);
        assert_eq!(design.operations(), world.bootstrapper.design().operations());
        for (bound, size) in [(1.0, 1.0), (5.0, 8.0)] {
            let x: Vec<Complex> = world.values(false).iter().map(|v| dft::scaled(*v, bound)).collect();
            let c = world.enter(&x, bound);
            let seen = steps(&world, &c);
            let entry = design::Entry { scale: c.scale(), bound, size, sd: c.noise() };
            let names = ["enter", "raise", "to coefficients", "sine"];
            for (name, sd) in names.iter().zip(design.chain(entry).unwrap()) {
                let got = seen[name].noise();
                assert!((got / sd - 1.0).abs() < 1e-9, "{name}: {got} {sd}");
            }
            let out = world.bootstrapper.apply(&c, world.keys.all()).unwrap();
            let e = design.error(c.scale(), size).unwrap();
            let sd = c.noise() / c.scale() + e.noise.hypot(e.approximation) * size;
            assert!((out.noise() / out.scale() / sd - 1.0).abs() < 1e-9);
            assert_eq!(out.scale(), world.bootstrapper.params().fresh_scale());
            assert_eq!(out.bound(), bound);
        }
    }
}

#[test]
fn parameters_that_make_no_sense_are_refused_and_the_standard_ones_are_secure() {
    let good = spec(1 << 9, 256, &[4, 4]);
    let sine = good.sine;
    let bad = [
        BootstrapSpec { slots: 100, ..good.clone() },
        BootstrapSpec { slots: 512, ..good.clone() },
        BootstrapSpec { to_slots: vec![], ..good.clone() },
        BootstrapSpec { to_slots: vec![u32::MAX, 9], ..good.clone() },
        BootstrapSpec { to_coefficients: vec![4, 3], ..good.clone() },
        BootstrapSpec { sine: Sine { degree: 32, ..sine }, ..good.clone() },
        BootstrapSpec { sine: Sine { doublings: 7, ..sine }, ..good.clone() },
        BootstrapSpec { weight: 31, ..good.clone() },
        BootstrapSpec { levels: 0, ..good.clone() },
        BootstrapSpec { special: 0, ..good.clone() },
        BootstrapSpec { entry_bits: 50, ..good.clone() },
    ];
    for (i, spec) in bad.iter().enumerate() {
        assert!(matches!(spec.check_insecure(Insecure), Err(CkksError::Spec(_))), "{i}");
    }
    assert!(matches!(good.check(), Err(CkksError::Spec(_) | CkksError::Security { .. })));
    let wide = BootstrapSpec { special: 12, ..BootstrapSpec::standard(1 << 15).unwrap() };
    assert!(matches!(wide.check(), Err(CkksError::Security { .. })));
}

#[test]
fn integers_leave_the_range_with_probability_below_two_to_the_minus_40() {
    for slots in [1 << 12, 1 << 15] {
        let spec = BootstrapSpec { ring_degree: 1 << 16, ..BootstrapSpec::standard(slots).unwrap() };
        let params = BootstrapParams {
            params: super::tests::spec(1 << 9, 256, &[4, 4]).check_insecure(Insecure).unwrap().params,
            spec: spec.clone(),
        };
        let bits = noise::failure_bits(&params);
        assert!((-60.0..-40.0).contains(&bits), "{bits}");
        // One integer less would not do.
        let short = BootstrapParams {
            spec: BootstrapSpec { sine: Sine { range: 12, ..spec.sine }, ..spec },
            ..params
        };
        assert!(slots < 1 << 15 || noise::failure_bits(&short) > -40.0);
    }
}
