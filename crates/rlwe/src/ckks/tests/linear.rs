//! Linear maps by diagonals, keys of limited levels.

use super::*;
use hushnet_ring::simd;

/// Slot vectors in [-1, 1].
fn diagonals(world: &mut World, count: usize) -> Vec<Vec<f64>> {
    (0..count).map(|_| world.values(1.0).iter().map(|v| v.re).collect()).collect()
}

fn turned(x: &[Complex], steps: i64) -> Vec<Complex> {
    let n = x.len() as i64;
    (0..n).map(|j| x[(j + steps).rem_euclid(n) as usize]).collect()
}

#[test]
fn sums_of_rotated_sums_equal_exact_ones_and_the_plain_operations() {
    for isa in simd::available() {
        for (s, spec) in specs(256).iter().enumerate() {
            let mut world = World::new(spec, isa, 30 + s as u8);
            let slots = world.params.slots();
            let levels = 2..=world.params.max_level().get();
            for (level, period) in
                levels.flat_map(|l| [slots, slots / 2, slots / 8, slots / 32].map(|p| (l, p)))
            {
                let x = [world.values(1.0), world.values(1.0), world.values(1.0)];
                let c: Vec<Ciphertext> = x.iter().map(|x| world.encrypt(x, level, 1.0)).collect();
                let lists = vec![vec![0u32, 2, 1], vec![1], vec![2, 2]];
                let (scale, at) = (world.params.scale(), world.params.level(level).unwrap());
                let mut rows = PlainRows::new(&world.params, at, scale, period, lists.clone()).unwrap();
                let mut expected = vec![Complex::default(); world.params.slots()];
                let giants = [0, 3, -4];
                let mut separate: Option<Ciphertext> = None;
                for (k, list) in lists.iter().enumerate() {
                    let mut d = diagonals(&mut world, list.len());
                    d.iter_mut().for_each(|d| d.truncate(period));
                    rows.set(&world.encoder, k, &d).unwrap();
                    d.iter_mut().for_each(|d| *d = d.repeat(slots / period));
                    let mut inner = vec![Complex::default(); world.params.slots()];
                    for (d, &i) in d.iter().zip(list) {
                        for ((sum, v), w) in inner.iter_mut().zip(&x[i as usize]).zip(d) {
                            *sum = plus(*sum, scaled(*v, *w));
                        }
                        let p = world.encoder.encode(d, EncodeAt { level: at, scale, bound: 1.0 }).unwrap();
                        let e = &world.evaluator;
                        let product = e.mul_plain(&c[i as usize], &p).unwrap();
                        let product = e.rotate(&product, giants[k], &world.galois).unwrap();
                        separate = Some(match separate {
                            Some(sum) => e.add(&sum, &product).unwrap(),
                            None => product,
                        });
                    }
                    expected = map2(&expected, &turned(&inner, giants[k]), plus);
                }
                assert_eq!(rows.bytes() % (rows.terms() * world.params.repeated_words(period)), 0);
                assert_eq!(world.params.repeated_words(period), 256 / (slots / period).min(8));
                let refs: Vec<&Ciphertext> = c.iter().collect();
                let sums = world.evaluator.plain_sums(&refs, &rows).unwrap();
                let terms: Vec<(i64, Ciphertext)> = giants.into_iter().zip(sums).collect();
                let got = world.evaluator.rotate_sum_rescale(&terms, 6.0, &world.galois).unwrap();
                assert_eq!(got.level().get(), level - 1);
                world.assert_close("rotated sums", &got, &expected);
                let separate = world.evaluator.rescale(&separate.unwrap()).unwrap();
                world.assert_close("one by one", &separate, &expected);
                assert!((got.scale() / separate.scale() - 1.0).abs() < 1e-12);
                // Without rotations: a rescaling.
                let got = world.evaluator.rotate_sum_rescale(&terms[..1], 3.0, &world.galois).unwrap();
                assert!(got.parts() == world.evaluator.rescale(&terms[0].1).unwrap().parts());
            }
        }
    }
}

#[test]
fn misused_sums_are_typed_errors() {
    let mut world = World::new(&specs(64)[0], simd::isa(), 2);
    let level = world.params.level(3).unwrap();
    let scale = world.params.scale();
    let x = world.values(1.0);
    let c = world.encrypt(&x, 3, 1.0);
    let low = world.encrypt(&x, 2, 1.0);
    let mut rows =
        PlainRows::new(&world.params, level, scale, world.params.slots(), vec![vec![0, 1]]).unwrap();
    assert!(matches!(rows.set(&world.encoder, 0, &[]), Err(CkksError::Count { .. })));
    assert!(matches!(rows.set(&world.encoder, 5, &[vec![]]), Err(CkksError::Count { .. })));
    rows.set(&world.encoder, 0, &[vec![1.0], vec![1.0]]).unwrap();
    let e = &world.evaluator;
    assert!(matches!(e.plain_sums(&[], &rows), Err(CkksError::Count { .. })));
    assert!(matches!(e.plain_sums(&[&c], &rows), Err(CkksError::Rns(_))));
    assert!(matches!(e.plain_sums(&[&c, &low], &rows), Err(CkksError::LevelTooLow { .. })));
    assert!(matches!(e.rotate_sum_rescale(&[], 1.0, &world.galois), Err(CkksError::Count { .. })));
    let sums = e.plain_sums(&[&c, &c], &rows).unwrap();
    assert!(matches!(
        e.rotate_sum_rescale(&[(7, sums[0].clone())], 1.0, &world.galois),
        Err(CkksError::MissingKey(_))
    ));
    assert!(matches!(
        e.rotate_sum_rescale(&[(1, sums[0].clone())], 1e30, &world.galois),
        Err(CkksError::Capacity { .. })
    ));
    assert!(matches!(e.relabel(c.clone(), 0.0), Err(CkksError::BadScale)));
    assert!(matches!(e.relabel(c.clone(), 1e30), Err(CkksError::BadScale)));
    let half: Vec<Complex> = x.iter().map(|v| scaled(*v, 0.375)).collect();
    world.assert_close("relabel", &e.relabel(c, 0.375).unwrap(), &half);
}

#[test]
fn keys_of_limited_levels_serve_those_levels_and_travel() {
    for spec in specs(64) {
        let top = spec.data_primes.len();
        let params = spec.check_insecure_with_keys_to(top - 1, Insecure).unwrap();
        assert!(params != spec.check_insecure(Insecure).unwrap());
        assert!(
            spec.check_insecure_with_keys_to(top, Insecure).unwrap()
                == spec.check_insecure(Insecure).unwrap()
        );
        for level in [0, top + 1] {
            assert!(matches!(
                spec.check_insecure_with_keys_to(level, Insecure),
                Err(CkksError::Level { .. })
            ));
        }
        let mut prg = Prg::from_seed([4; 16]);
        let generator = KeyGenerator::new(&params);
        let secret = generator.secret_key(&mut prg).unwrap();
        let (one, two) = (params.level(1).unwrap(), params.level(2).unwrap());
        let wanted = [
            (Galois::Rotate(1), one),
            (Galois::Rotate(2), two),
            (Galois::Rotate(1), two),
            (Galois::Conjugate, one),
        ];
        let keys = generator.galois_keys_at(&secret, &wanted, &mut prg).unwrap();
        assert_eq!(keys.level_of(Galois::Rotate(1)), Some(two));
        assert_eq!(keys.level_of(Galois::Conjugate), Some(one));
        assert_eq!(keys.level_of(Galois::Rotate(3)), None);
        let bytes = keys.to_bytes().unwrap();
        assert_eq!(bytes.len(), params.galois_keys_bytes(&[two, two, one]));
        let keys = GaloisKeys::from_bytes(&params, &bytes).unwrap();
        assert!(keys.to_bytes().unwrap() == bytes);
        for cut in [48, 60, bytes.len() - 1] {
            assert!(GaloisKeys::from_bytes(&params, &bytes[..cut]).is_err());
        }
        let mut wrong = bytes.clone();
        wrong[56] = 0xff;
        assert!(GaloisKeys::from_bytes(&params, &wrong).is_err());
        let relin = generator.relin_key(&secret, &mut prg).unwrap();
        let bytes = relin.to_bytes().unwrap();
        assert_eq!(bytes.len(), params.relin_key_bytes());
        RelinKey::from_bytes(&params, &bytes).unwrap();

        let (encoder, evaluator) = (Encoder::new(&params), Evaluator::new(&params));
        let values: Vec<f64> = (0..params.slots()).map(|i| (i as f64 / 40.0).sin()).collect();
        let at = |level: usize| EncodeAt {
            level: params.level(level).unwrap(),
            scale: params.scale(),
            bound: 1.0,
        };
        for level in 1..=top {
            let c = secret.encrypt(&encoder.encode(&values, at(level)).unwrap(), &mut prg).unwrap();
            let turned = evaluator.rotate(&c, 1, &keys);
            if level > 2 {
                assert!(matches!(turned, Err(CkksError::LevelTooLow { .. })), "{level}");
                continue;
            }
            let turned = turned.unwrap();
            let got = encoder.decode(&secret.decrypt(&turned).unwrap()).unwrap();
            for (j, g) in got.iter().enumerate() {
                assert!((g - values[(j + 1) % values.len()]).abs() <= turned.error_bound());
            }
            assert_eq!(evaluator.conjugate(&c, &keys).is_ok(), level == 1);
        }
        let c = secret.encrypt(&encoder.encode(&values, at(top)).unwrap(), &mut prg).unwrap();
        assert!(matches!(evaluator.hoist(&c), Err(CkksError::LevelTooLow { .. })));
        let square = evaluator.square(&c).unwrap();
        assert!(matches!(evaluator.relinearise(&square, &relin), Err(CkksError::LevelTooLow { .. })));
    }
}

#[test]
fn only_the_widest_modulus_of_any_sample_counts_for_security() {
    // 40 + 5 * 29 = 185 bits of data, 40 special: 225 with keys at all levels, 196 below the highest.
    let mut spec = CkksSpec::with_depth(8192, 40, 5, 29, 40);
    assert!(matches!(spec.check(), Err(CkksError::Security { .. })));
    assert!(matches!(spec.check_with_keys_to(6), Err(CkksError::Security { .. })));
    assert!(spec.check_with_keys_to(5).unwrap().is_secure());
    // The data primes alone are too wide.
    spec.data_primes.extend([PrimeSpec::Near(29); 2]);
    assert!(matches!(spec.check_with_keys_to(1), Err(CkksError::Security { .. })));
}
