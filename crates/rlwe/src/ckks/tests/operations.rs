//! Every operation against complex arithmetic, within its predicted error, at every level.

use super::*;
use hushnet_ring::simd;

fn all_operations(world: &mut World, level: usize, bound: f64) {
    let (x, y) = (world.values(bound), world.values(bound));
    let (a, b) = (world.encrypt(&x, level, bound), world.encrypt(&y, level, bound));
    let e = world.evaluator.clone();
    let plain = world.encoder.encode_complex(&y, world.at(level, bound)).unwrap();
    world.assert_close("encrypt", &a, &x);
    let public = world.public.encrypt(&plain, &mut world.prg).unwrap();
    world.assert_close("public encrypt", &public, &y);
    world.assert_close("add", &e.add(&a, &b).unwrap(), &map2(&x, &y, plus));
    world.assert_close("sub", &e.sub(&a, &b).unwrap(), &map2(&x, &y, minus));
    world.assert_close("neg", &e.neg(&a).unwrap(), &map2(&x, &x, |v, _| scaled(v, -1.0)));
    world.assert_close("add plain", &e.add_plain(&a, &plain).unwrap(), &map2(&x, &y, plus));
    world.assert_close("sub plain", &e.sub_plain(&a, &plain).unwrap(), &map2(&x, &y, minus));
    let w = world.encoder.encode_scalar(-0.7654321 * bound, a.level(), a.scale()).unwrap();
    let w_value = Complex { re: -0.7654321 * bound, im: 0.0 };
    world.assert_close("add scalar", &e.add_scalar(&a, &w).unwrap(), &map2(&x, &x, |v, _| plus(v, w_value)));
    let three = world.encoder.encode_integer(-3, a.level()).unwrap();
    world.assert_close("integer", &e.mul_scalar(&a, &three).unwrap(), &map2(&x, &x, |v, _| scaled(v, -3.0)));
    for s in STEPS {
        let n = x.len() as i64;
        let rotated: Vec<Complex> = (0..n).map(|j| x[(j + s).rem_euclid(n) as usize]).collect();
        world.assert_close("rotate", &e.rotate(&a, s, &world.galois).unwrap(), &rotated);
    }
    let many = e.rotate_many(&a, &[0, 1, -4], &world.galois).unwrap();
    for (c, s) in many.iter().zip([0, 1, -4]) {
        assert!(c.parts() == e.rotate(&a, s, &world.galois).unwrap().parts(), "hoisted rotation by {s}");
    }
    let conjugate: Vec<Complex> = x.iter().map(|v| Complex { re: v.re, im: -v.im }).collect();
    world.assert_close("conjugate", &e.conjugate(&a, &world.galois).unwrap(), &conjugate);
    if level > 1 {
        products(world, &a, &b, (&x, &y), &plain);
        let low = e.drop_to(&a, world.params.level(level - 1).unwrap()).unwrap();
        world.assert_close("drop", &low, &x);
        world.assert_close("add across levels", &e.add(&low, &b).unwrap(), &map2(&x, &y, plus));
        assert_eq!(e.add(&b, &low).unwrap().level(), low.level());
    }
}

fn products(
    world: &World,
    a: &Ciphertext,
    b: &Ciphertext,
    (x, y): (&[Complex], &[Complex]),
    plain: &Plaintext,
) {
    let e = &world.evaluator;
    let xy = map2(x, y, times);
    let product = e.mul_plain(a, plain).unwrap();
    world.assert_close("mul plain", &product, &xy);
    world.assert_close("rescale", &e.rescale(&product).unwrap(), &xy);
    let product = e.mul(a, b).unwrap();
    assert_eq!(product.parts().len(), 3);
    world.assert_close("mul", &product, &xy);
    world.assert_close("rescale of three parts", &e.rescale(&product).unwrap(), &xy);
    let two = e.relinearise(&product, &world.relin).unwrap();
    assert_eq!((two.parts().len(), two.scale()), (2, product.scale()));
    world.assert_close("relinearise", &two, &xy);
    let after = e.rescale(&two).unwrap();
    world.assert_close("relinearise, rescale", &after, &xy);
    let fused = e.relinearise_rescale(&product, &world.relin).unwrap();
    assert_eq!((fused.scale(), fused.level()), (after.scale(), after.level()));
    world.assert_close("fused", &fused, &xy);
    assert!(fused.noise() <= after.noise());
    world.assert_close("square", &e.square(a).unwrap(), &map2(x, x, times));
    let w = world.encoder.encode_scalar(0.3711, a.level(), world.params.scale()).unwrap();
    let scaled_ct = e.mul_scalar(a, &w).unwrap();
    world.assert_close("mul scalar", &scaled_ct, &map2(x, x, |v, _| scaled(v, 0.3711)));
    let weights =
        [0.25, -1.5, 0.001].map(|v| world.encoder.encode_scalar(v, a.level(), world.params.scale()).unwrap());
    let refs: Vec<&ScalarPlaintext> = weights.iter().collect();
    for terms in [Terms::Any, Terms::Independent] {
        let sum = e.scalar_mac(&[a, b, a], &refs, Terms::Any).unwrap();
        let expected = map2(x, y, |u, v| plus(scaled(u, 0.251), scaled(v, -1.5)));
        world.assert_close("scalar mac", &sum, &expected);
        assert!(e.scalar_mac(&[a, b, a], &refs, terms).unwrap().noise() <= sum.noise());
    }
    // Three parts go through linear operations unchanged in kind.
    let lazy = e.add(&e.mul(a, b).unwrap(), &e.mul_plain(a, plain).unwrap()).unwrap();
    let lazy = e.relinearise_rescale(&lazy, &world.relin).unwrap();
    world.assert_close("lazy relinearisation", &lazy, &map2(&xy, &xy, plus));
}

#[test]
fn sums_of_products_of_hoisted_rotations_are_within_their_error_and_better_than_one_by_one() {
    for (i, spec) in specs(256).iter().take(2).enumerate() {
        let mut world = World::new(spec, simd::isa(), 50 + i as u8);
        let e = world.evaluator.clone();
        for level in 2..=world.params.max_level().get() {
            let x = world.values(1.0);
            let a = world.encrypt(&x, level, 1.0);
            let digits = e.hoist(&a).unwrap();
            let elements = [Galois::Rotate(0), Galois::Rotate(1), Galois::Rotate(-4), Galois::Conjugate];
            let diagonals: Vec<Vec<f64>> =
                (0..4).map(|_| world.values(1.0).iter().map(|v| v.re).collect()).collect();
            let at = EncodeAt { scale: 2f64.powi(26), ..world.at(level, 1.0) };
            let raised: Vec<Plaintext> =
                diagonals.iter().map(|d| world.encoder.encode_raised(d, at).unwrap()).collect();
            let terms: Vec<(Galois, &Plaintext)> = elements.into_iter().zip(&raised).collect();
            let sum = e.hoisted_sum(&a, &digits, &terms, &world.galois).unwrap();
            let mut expected = vec![Complex::default(); x.len()];
            let mut one_by_one: Option<Ciphertext> = None;
            for (g, d) in elements.iter().zip(&diagonals) {
                let n = x.len() as i64;
                for (j, v) in expected.iter_mut().enumerate() {
                    let image = match g {
                        Galois::Rotate(s) => x[(j as i64 + s).rem_euclid(n) as usize],
                        Galois::Conjugate => Complex { re: x[j].re, im: -x[j].im },
                    };
                    *v = plus(*v, scaled(image, d[j]));
                }
                let plain = world.encoder.encode(d, at).unwrap();
                let term = e.mul_plain(&e.apply_galois(&a, *g, &world.galois).unwrap(), &plain).unwrap();
                one_by_one = Some(match one_by_one {
                    Some(s) => e.add(&s, &term).unwrap(),
                    None => term,
                });
            }
            let one_by_one = one_by_one.unwrap();
            world.assert_close("hoisted sum", &sum, &expected);
            assert!(sum.noise() <= one_by_one.noise() && sum.scale() == one_by_one.scale());
            assert!(world.error_ratio(&one_by_one, &expected) <= 1.0);
            let low = world.encoder.encode(&diagonals[0], at).unwrap();
            assert!(matches!(
                e.hoisted_sum(&a, &digits, &[(Galois::Rotate(1), &low)], &world.galois),
                Err(CkksError::Rns(_))
            ));
            assert!(e.hoisted_sum(&a, &digits, &[], &world.galois).is_err());
            // Raised plaintexts serve as ordinary ones.
            let product = e.mul_plain(&a, &raised[0]).unwrap();
            assert!(product.parts() == e.mul_plain(&a, &low).unwrap().parts());
        }
    }
}

#[test]
fn hidden_ciphertexts_keep_the_message_and_forget_the_computation() {
    let mut world = World::new(&specs(256)[0], simd::isa(), 60);
    let e = world.evaluator.clone();
    let x = world.values(1.0);
    let a = world.encrypt(&x, 3, 1.0);
    let w = world.encoder.encode_integer(3, a.level()).unwrap();
    let c = e.mul_scalar(&a, &w).unwrap();
    let expected = map2(&x, &x, |v, _| scaled(v, 3.0));
    for flood in [None, Some(0), Some(1), Some(20), Some(60)] {
        let hidden = world.public.hide(&c, flood, &mut world.prg).unwrap();
        world.assert_close("hidden", &hidden, &expected);
        assert!(hidden.parts()[1] != c.parts()[1] && hidden.noise() > c.noise());
        if let Some(bits @ 20..) = flood {
            // The flood dominates, and is as large as stated.
            let ratio = world.error_ratio(&hidden, &expected);
            assert!(ratio > 0.2, "{bits} bits: {ratio}");
        }
    }
    let low = e.drop_to(&c, world.params.level(1).unwrap()).unwrap();
    assert!(matches!(world.public.hide(&low, Some(60), &mut world.prg), Err(CkksError::Capacity { .. })));
    assert!(matches!(
        world.public.hide(&c, Some(MAX_FLOOD_BITS + 1), &mut world.prg),
        Err(CkksError::Spec(_))
    ));
    let three = e.square(&a).unwrap();
    assert!(matches!(world.public.hide(&three, None, &mut world.prg), Err(CkksError::Parts { .. })));
}

#[test]
fn every_operation_stays_within_its_predicted_error_at_every_level() {
    for ring_degree in [16, 128, 2048] {
        for (i, spec) in specs(ring_degree).iter().enumerate() {
            let mut world = World::new(spec, simd::isa(), i as u8 + 1);
            for level in 1..=world.params.max_level().get() {
                let top = if level == 1 { 0.8 } else { 4.0 };
                let bound = if spec.scale_bits == 48 { 0.4 } else { top };
                all_operations(&mut world, level, bound);
            }
        }
    }
}

/// Digits of low levels are short, and need few special primes: keys of those levels have no others, and longer keys serve in their place. What switching
/// adds stays below what rounding adds.
#[test]
fn low_levels_switch_keys_with_few_special_primes() {
    let near = |bits: u32, count: usize| vec![PrimeSpec::Near(bits); count];
    let spec = CkksSpec {
        ring_degree: 1 << 10,
        ring: Ring::Cyclotomic,
        data_primes: [near(50, 1), near(48, 6)].concat(),
        special_primes: near(50, 4),
        scale_bits: 40,
        digits: 2,
    };
    let mut world = World::new(&spec, hushnet_ring::simd::isa(), 3);
    let params = world.params.clone();
    let used: Vec<usize> =
        (1..=7).map(|l| params.extended_range(params.level(l).unwrap()).len() - l).collect();
    assert_eq!(used, [2, 2, 3, 4, 4, 4, 4]);
    let generator = KeyGenerator::new(&params);
    let turn = Galois::Rotate(1);
    for level in 1..=3 {
        let at = params.level(level).unwrap();
        assert!(params.switching_noise(at).unwrap() <= 1.1 * params.noise().part_rounding(2));
        let short = generator.galois_keys_at(&world.secret, &[(turn, at)], &mut world.prg).unwrap();
        // Seed, header and one digit over the primes in use.
        let primes = 6 * (level + used[level - 1]);
        assert!(short.byte_len() < world.galois.byte_len() / 6 && short.byte_len() > primes << 10);
        let values = world.values(1.0);
        let mut expected = values.clone();
        expected.rotate_left(1);
        let c = world.encrypt(&values, level, 1.0);
        for keys in [&short, &world.galois] {
            let digits = world.evaluator.hoist(&c).unwrap();
            for turned in [
                world.evaluator.apply_galois(&c, turn, keys).unwrap(),
                world.evaluator.apply_hoisted(&c, &digits, turn, keys).unwrap(),
            ] {
                assert!(turned.noise() <= 2.0 * c.noise() + 2.0 * params.noise().part_rounding(2));
                world.assert_close("a rotation", &turned, &expected);
            }
        }
    }
}
