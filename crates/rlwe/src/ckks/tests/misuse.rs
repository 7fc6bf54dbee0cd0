//! Parameters that are refused and operations that are typed errors.

use super::*;
use hushnet_ring::simd;

#[test]
fn parameters_are_secure_or_say_that_they_are_not() {
    let secure = CkksSpec::with_depth(8192, 40, 4, 30, 40);
    let params = secure.check().unwrap();
    assert!(params.is_secure() && params.max_level().get() == 5);
    // 40 + 5 * 30 + 40 = 230 bits > 214.
    let wide = CkksSpec::with_depth(8192, 40, 5, 30, 40);
    assert!(matches!(wide.check(), Err(CkksError::Security { ring_degree: 8192, limit: 214, .. })));
    let insecure = wide.check_insecure(Insecure).unwrap();
    assert!(!insecure.is_secure());
    assert_ne!(insecure.hash(), params.hash());
    // The same primes, once checked and once not, are different parameters.
    assert_ne!(secure.check_insecure(Insecure).unwrap().hash(), params.hash());
    assert_eq!(secure.check().unwrap(), params);
    let large = CkksSpec::with_depth(65536, 50, 2, 40, 50).check().unwrap();
    assert!(large.is_secure() && large.slots() == 32768);
    // Special primes count.
    let mut specials = secure.clone();
    specials.special_primes = vec![PrimeSpec::Near(40); 3];
    assert!(matches!(specials.check(), Err(CkksError::Security { .. })));
}

#[test]
fn primes_are_distinct_congruent_and_next_to_their_size() {
    for ring_degree in [2048, 8192, 65536] {
        for bits in [30, 40, 50] {
            let spec = CkksSpec::with_depth(ring_degree, bits, 6, bits, bits);
            let params = spec.check_insecure(Insecure).unwrap();
            let mut primes: Vec<u64> =
                (0..7).map(|i| params.data_prime(i)).chain(params.special_primes()).collect();
            for &p in &primes {
                assert_eq!(p % (2 * ring_degree as u64), 1);
                assert!(p < 1 << 50 && ((p as f64).log2() - f64::from(bits)).abs() < 0.02, "{p}");
            }
            primes.sort_unstable();
            primes.dedup();
            assert_eq!(primes.len(), 8);
        }
    }
}

#[test]
fn impossible_specifications_are_refused() {
    let good = CkksSpec::with_depth(4096, 36, 1, 30, 36);
    let broken: [&dyn Fn(&mut CkksSpec); 12] = [
        &|s| s.ring_degree = 1024,
        &|s| s.ring_degree = 5000,
        &|s| s.ring_degree = 1 << 17,
        &|s| s.data_primes.clear(),
        &|s| s.digits = 0,
        &|s| s.digits = 3,
        &|s| s.scale_bits = 0,
        &|s| s.scale_bits = 101,
        &|s| s.data_primes[0] = PrimeSpec::Near(51),
        &|s| s.data_primes[0] = PrimeSpec::Near(12),
        &|s| s.data_primes[0] = PrimeSpec::Exactly(1 << 30),
        &|s| s.special_primes = vec![PrimeSpec::Near(25)],
    ];
    assert!(good.check().is_ok());
    for (i, change) in broken.iter().enumerate() {
        let mut spec = good.clone();
        change(&mut spec);
        assert!(matches!(spec.check(), Err(CkksError::Spec(_))), "case {i}");
    }
    let params = good.check().unwrap();
    let again = CkksSpec { data_primes: vec![PrimeSpec::Exactly(params.data_prime(0)); 2], ..good };
    assert!(matches!(again.check(), Err(CkksError::Spec(_))));
    assert!(params.level(0).is_err() && params.level(3).is_err() && params.level(2).is_ok());
}

#[test]
fn misuse_is_a_typed_error() {
    let mut w = World::new(&specs(64)[0], simd::isa(), 5);
    let mut other = World::new(&specs(64)[1], simd::isa(), 5);
    let x = w.values(1.0);
    let e = w.evaluator.clone();
    let (a, low) = (w.encrypt(&x, 3, 1.0), w.encrypt(&x, 1, 1.0));
    let foreign = other.encrypt(&x, 3, 1.0);
    assert!(matches!(e.add(&a, &foreign), Err(CkksError::ForeignParams(_))));
    assert!(matches!(w.secret.decrypt(&foreign), Err(CkksError::ForeignParams(_))));
    assert!(matches!(e.relinearise(&e.mul(&a, &a).unwrap(), &other.relin), Err(CkksError::ForeignParams(_))));
    assert!(matches!(e.rotate(&a, 1, &other.galois), Err(CkksError::ForeignParams(_))));
    let rescaled = e.rescale(&e.mul(&a, &a).unwrap()).unwrap();
    let message = e.add(&a, &rescaled).unwrap_err().to_string();
    assert!(matches!(e.add(&a, &rescaled), Err(CkksError::ScaleMismatch { .. })), "{message}");
    assert!(message.contains("rescale"), "{message}");
    assert!(matches!(e.rescale(&low), Err(CkksError::NoLevelLeft)));
    assert!(matches!(e.mul(&low, &low), Err(CkksError::Capacity { level: 1, .. })));
    assert!(matches!(e.relinearise(&a, &w.relin), Err(CkksError::Parts { needed: 3, got: 2, .. })));
    let three = e.mul(&a, &a).unwrap();
    assert!(matches!(e.mul(&three, &a), Err(CkksError::Parts { needed: 2, got: 3, .. })));
    assert!(matches!(e.rotate(&three, 1, &w.galois), Err(CkksError::Parts { .. })));
    assert!(matches!(e.rotate(&a, 7, &w.galois), Err(CkksError::MissingKey(_))));
    assert!(w.galois.contains(Galois::Rotate(1)) && !w.galois.contains(Galois::Rotate(7)));
    assert!(
        w.galois.contains(Galois::Rotate(0)) && e.rotate(&a, 32, &w.galois).unwrap().parts() == a.parts()
    );
    let plain = w.encoder.encode_complex(&x, w.at(1, 1.0)).unwrap();
    assert!(matches!(e.mul_plain(&a, &plain), Err(CkksError::LevelTooLow { got: 1, needed: 3, .. })));
    assert!(matches!(e.drop_to(&low, a.level()), Err(CkksError::LevelTooLow { .. })));
    assert!(matches!(e.drop_to(&three, low.level()), Err(CkksError::Capacity { .. })));
    let digits = e.hoist(&low).unwrap();
    assert!(e.apply_hoisted(&a, &digits, Galois::Rotate(1), &w.galois).is_err());
    assert!(matches!(e.scalar_mac(&[], &[], Terms::Any), Err(CkksError::Count { .. })));
    assert!(a.clone().with_bound(f64::NAN).is_err() && a.clone().with_bound(0.5).unwrap().bound() == 0.5);
    let encoder = &w.encoder;
    for bad in [1.5, f64::NAN, f64::INFINITY] {
        let error = encoder.encode(&[0.0, bad], w.at(2, 1.0)).err();
        assert_eq!(error, Some(CkksError::ValueOutOfRange { index: 1, bound: 1.0 }));
    }
    assert!(matches!(
        encoder.encode(&[0.0; 33], w.at(1, 1.0)),
        Err(CkksError::TooManyValues { got: 33, slots: 32 })
    ));
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY, 0.5] {
        assert_eq!(encoder.encode(&[], EncodeAt { scale, ..w.at(1, 1.0) }).err(), Some(CkksError::BadScale));
    }
}

#[test]
fn without_special_primes_there_is_linear_arithmetic_and_no_switching() {
    let spec = CkksSpec { special_primes: vec![], ..specs(64)[0].clone() };
    let params = spec.check_insecure(Insecure).unwrap();
    let mut prg = Prg::from_seed([6; 16]);
    let keys = KeyGenerator::new(&params);
    let secret = keys.secret_key(&mut prg).unwrap();
    assert!(matches!(keys.relin_key(&secret, &mut prg), Err(CkksError::NoSpecialPrime)));
    assert!(matches!(
        keys.galois_keys(&secret, &[Galois::Conjugate], &mut prg),
        Err(CkksError::NoSpecialPrime)
    ));
    let encoder = Encoder::new(&params);
    let at = EncodeAt { level: params.max_level(), scale: params.scale(), bound: 1.0 };
    let c = secret.encrypt(&encoder.encode(&[0.5, -0.25], at).unwrap(), &mut prg).unwrap();
    let e = Evaluator::new(&params);
    assert!(matches!(e.hoist(&c), Err(CkksError::NoSpecialPrime)));
    let square = e.rescale(&e.square(&c).unwrap()).unwrap();
    let got = encoder.decode(&secret.decrypt(&square).unwrap()).unwrap();
    assert!((got[0] - 0.25).abs() < square.error_bound() && (got[1] - 0.0625).abs() < square.error_bound());
}
