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
