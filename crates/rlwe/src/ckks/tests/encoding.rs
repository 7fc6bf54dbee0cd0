//! Encoder against its definition.

use super::*;
use hushnet_ring::simd;

/// Coefficients of the polynomial whose slots are `z`, by the inverse embedding's definition.
fn naive(z: &[Complex], ring_degree: usize) -> Vec<f64> {
    let turn = 2 * ring_degree;
    (0..ring_degree)
        .map(|k| {
            let mut g = 1;
            let sum: f64 = z
                .iter()
                .map(|v| {
                    let angle = std::f64::consts::PI * ((g * k) % turn) as f64 / ring_degree as f64;
                    g = g * 5 % turn;
                    v.re * angle.cos() + v.im * angle.sin()
                })
                .sum();
            sum * 2.0 / ring_degree as f64
        })
        .collect()
}

#[test]
fn coefficients_are_the_rounded_inverse_embedding_for_narrow_and_wide_scales() {
    for ring_degree in [16, 64, 512] {
        let spec = CkksSpec { scale_bits: 40, ..specs(ring_degree)[2].clone() };
        for isa in simd::available() {
            let mut world = World::new(&spec, isa, 1);
            let z = world.values(1.0);
            let expected = naive(&z, ring_degree);
            for (scale_bits, level) in [(20, 1), (40, 2), (60, 2), (90, 3), (120, 4)] {
                let scale = f64::from(scale_bits).exp2();
                let at = EncodeAt { scale, ..world.at(level, 1.0) };
                let plain = world.encoder.encode_complex(&z, at).unwrap();
                let basis = world.params.basis();
                let got = basis.to_reals(&basis.inverse(plain.poly().clone()).unwrap()).unwrap();
                for (g, e) in got.iter().zip(&expected) {
                    let tolerance = 0.5 + scale * 2f64.powi(-47);
                    assert!((g - e * scale).abs() <= tolerance, "2^{scale_bits}: {g} is not {}", e * scale);
                }
                let back = world.encoder.decode_complex(&plain).unwrap();
                for (g, e) in back.iter().zip(&z) {
                    let d = (g.re - e.re).abs().max((g.im - e.im).abs());
                    assert!(d <= plain.error_bound() + 2f64.powi(-46), "2^{scale_bits}: {d}");
                }
            }
        }
    }
}

#[test]
fn real_complex_and_packed_values_come_back_and_missing_slots_are_zero() {
    let mut world = World::new(&specs(64)[0], simd::isa(), 2);
    let z = world.values(1.0);
    let flat: Vec<f64> = z.iter().flat_map(|v| [v.re, v.im]).collect();
    let e = &world.encoder;
    let packed = e.encode_packed(&flat, world.at(2, 1.0)).unwrap();
    let complex = e.encode_complex(&z, world.at(2, 1.0)).unwrap();
    assert!(packed.poly() == complex.poly());
    let tolerance = packed.error_bound();
    assert!(tolerance < 1e-6);
    for (g, x) in e.decode_packed(&packed).unwrap().iter().zip(&flat) {
        assert!((g - x).abs() <= tolerance);
    }
    for count in [0, 1, 31, 32] {
        let values: Vec<f64> = flat[..count].to_vec();
        let got = e.decode(&e.encode(&values, world.at(1, 1.0)).unwrap()).unwrap();
        assert_eq!(got.len(), 32);
        for (j, g) in got.iter().enumerate() {
            assert!((g - values.get(j).copied().unwrap_or(0.0)).abs() <= tolerance);
        }
    }
    let odd = e.decode_packed(&e.encode_packed(&flat[..5], world.at(1, 1.0)).unwrap()).unwrap();
    assert!((odd[4] - flat[4]).abs() <= tolerance && odd[5].abs() <= tolerance);
}

#[test]
fn zeros_and_largest_magnitudes_are_exact() {
    let world = World::new(&specs(64)[0], simd::isa(), 3);
    let e = &world.encoder;
    let zero = e.encode(&[0.0; 32], world.at(4, 0.0)).unwrap();
    assert!(zero.poly().words().iter().all(|w| *w == 0));
    // A constant vector is a constant polynomial; the largest that fits in level 1 (45 bits).
    let largest = 2f64.powi(13);
    let at = EncodeAt { bound: largest, ..world.at(1, 1.0) };
    let plain = e.encode(&[largest; 32], at).unwrap();
    let got = e.decode(&plain).unwrap();
    assert!(got.iter().all(|g| (g - largest).abs() <= plain.error_bound()));
    let too_large = EncodeAt { bound: 4.0 * largest, ..at };
    assert!(matches!(e.encode(&[1.0], too_large), Err(CkksError::Capacity { level: 1, .. })));
    let too_fine = EncodeAt { scale: 2f64.powi(45), bound: 1.0, ..at };
    assert!(matches!(e.encode(&[1.0], too_fine), Err(CkksError::Capacity { .. })));
}

/// With the shorter transform the same polynomial but for roundings in binary64, and the same bits on every path.
#[test]
fn values_that_repeat_are_encoded_by_shorter_transforms() {
    for spec in specs(128) {
        let mut first = None;
        for isa in simd::available() {
            let mut world = World::new(&spec, isa, 6);
            let values: Vec<f64> = world.values(1.0).iter().map(|z| z.re).collect();
            let slots = values.len();
            let mut all = Vec::new();
            for period in [slots, slots / 2, slots / 4, slots / 8, slots / 16, 1] {
                // Scales for which integers are narrow, and wide.
                for scale in [30f64.exp2(), 60f64.exp2()] {
                    let at = EncodeAt { scale, ..world.at(2, 1.0) };
                    let short = &values[..period.min(slots - 3)];
                    let mut repeated = short.to_vec();
                    repeated.resize(period, 0.0);
                    let repeated = repeated.repeat(slots / period);
                    let got = world.encoder.encode_repeated(short, period, at).unwrap();
                    let slots_of = world.encoder.decode(&got).unwrap();
                    for (v, w) in slots_of.iter().zip(&repeated) {
                        assert!((v - w).abs() <= got.error_bound(), "period {period}: {v} for {w}");
                    }
                    all.extend_from_slice(got.poly().words());
                }
                let at = world.at(2, 1.0);
                assert!(world.encoder.encode_repeated(&vec![0.5; period + 1], period, at).is_err());
                assert!(world.encoder.encode_repeated(&[1.5], period, at).is_err());
            }
            for period in [0, 3, 2 * slots] {
                assert!(world.encoder.encode_repeated(&[0.5], period, world.at(2, 1.0)).is_err());
            }
            assert!(*first.get_or_insert(all.clone()) == all, "{isa:?}");
        }
    }
}

#[test]
fn scalars_are_the_exact_integers() {
    let world = World::new(&specs(64)[1], simd::isa(), 4);
    let (level, moduli) = (world.params.max_level(), world.params.basis().moduli());
    for value in [0.0, 1.0, -1.0, 0.1, -0.7654321, 1e-9, 12345.678] {
        for scale_bits in [1, 30, 62, 90, 110] {
            let scale = f64::from(scale_bits).exp2();
            let scalar = world.encoder.encode_scalar(value, level, scale).unwrap();
            let exact = (value * scale).round_ties_even() as i128;
            for (i, w) in scalar.words().iter().enumerate() {
                let m = moduli[world.params.data_range(level).start + i];
                assert_eq!(*w, exact.rem_euclid(i128::from(m.value())) as u64, "{value} at 2^{scale_bits}");
            }
        }
    }
    // Rounded to nothing, the scalar is all error, not a smaller message.
    let mut world = world;
    let x = world.values(1.0);
    let tiny = world.encoder.encode_scalar(0.4, level, 1.0).unwrap();
    assert!(tiny.words().iter().all(|w| *w == 0));
    let c = world.encrypt(&x, level.get(), 1.0);
    let product = world.evaluator.mul_scalar(&c, &tiny).unwrap();
    world.assert_close("a scalar below its rounding", &product, &map2(&x, &x, |v, _| scaled(v, 0.4)));
    assert!((product.bound() - 0.4).abs() < 1e-12);
    let moduli = world.params.basis().moduli();
    for w in [0, 1, -1, i64::MAX, i64::MIN] {
        let scalar = world.encoder.encode_integer(w, level).unwrap();
        let q = moduli[world.params.data_range(level).start].value();
        assert_eq!(scalar.words()[0], i128::from(w).rem_euclid(i128::from(q)) as u64);
    }
}

/// The largest messages that a level holds, in all slots and in one, and what another secret makes of their ciphertexts.
#[test]
fn noise_is_told_from_the_largest_messages() {
    for ring in [Ring::Cyclotomic, Ring::ConjugateInvariant] {
        for ring_degree in [64, 1024] {
            let spec = CkksSpec { ring, ..CkksSpec::with_depth(ring_degree, 45, 2, 30, 48) };
            let params = spec.check_insecure_with(Insecure, simd::available()[0]).unwrap();
            let (encoder, keys) = (Encoder::new(&params), KeyGenerator::new(&params));
            let mut prg = Prg::from_seed([9; 16]);
            let [own, other] = [(); 2].map(|()| keys.secret_key(&mut prg).unwrap());
            for level in 1..=3 {
                let level = params.level(level).unwrap();
                let scale = 20f64.exp2();
                let bound = (params.modulus_bits(level) - 1.01).exp2() / scale;
                let all = (0..params.slots()).map(|i| if i % 2 == 0 { bound } else { -bound }).collect();
                for values in [vec![bound; params.slots()], all, vec![bound], vec![0.0]] {
                    let plain = encoder.encode(&values, EncodeAt { level, scale, bound }).unwrap();
                    let cipher = own.encrypt(&plain, &mut prg).unwrap();
                    let read = |secret: &SecretKey| {
                        let plain = secret.decrypt(&cipher).unwrap();
                        encoder.is_message(&plain, &encoder.decode(&plain).unwrap())
                    };
                    assert!(read(&own) && !read(&other), "{ring:?} {ring_degree}, level {level:?}");
                }
            }
        }
    }
}
