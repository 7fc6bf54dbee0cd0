use super::*;
use crate::batch::{BatchStageSpec, ERROR_VARIANCE};
use crate::{add_bias, drop_bits};

const SEED: [u8; 32] = [0x5a; 32];

/// Small deterministic numbers for weights and messages.
fn random_range(prg: &mut Prg, len: usize, bound: i64) -> Vec<i64> {
    let mut words = vec![0; len];
    prg.fill_words(&mut words);
    words.iter().map(|w| (w % (2 * bound as u64 + 1)) as i64 - bound).collect()
}

struct Stage {
    spec: BatchStageSpec,
    params: BatchStageParams,
    weights: Vec<Vec<i64>>,
    bias: Vec<i64>,
}

/// A random dense stage: `inputs` features bounded by `bound`, weights by `weight`.
fn stage(
    prg: &mut Prg,
    n: usize,
    shape: (usize, usize),
    weight: i64,
    bound: i64,
    shared: bool,
    extra_bits: u32,
) -> Stage {
    let (inputs, outputs) = shape;
    let weights: Vec<_> = (0..outputs).map(|_| random_range(prg, inputs, weight)).collect();
    let bias = random_range(prg, outputs, weight * bound);
    let l2 = |row: &Vec<i64>| row.iter().map(|w| (w * w) as f64).sum::<f64>().sqrt();
    let reach = |(row, b): (&Vec<i64>, &i64)| row.iter().map(|w| w.abs() * bound).sum::<i64>() + b.abs();
    let spec = BatchStageSpec {
        ring_degree: n,
        weight_l2: weights.iter().map(l2).fold(0.0, f64::max),
        output_bound: weights.iter().zip(&bias).map(reach).max().unwrap() as u64,
        shared_mask: shared,
    };
    let p = spec.choose().unwrap();
    let dropped = (p.drop_bits(), p.mask_drop_bits());
    let params = spec.check(p.modulus_bits() + extra_bits, p.delta_bits() + extra_bits / 2, dropped).unwrap();
    Stage { spec, params, weights, bias }
}

/// Runs the stage under encryption and in the clear, compares, and returns the noise of every output.
fn run(stage: &Stage, context: &BatchContext, bound: i64, images: usize, prg: &mut Prg) -> Vec<NoiseSample> {
    let (p, n) = (&stage.params, context.ring_degree());
    let (k, u, v) = (p.modulus_bits(), p.drop_bits(), p.mask_drop_bits());
    let shared = stage.spec.shared_mask;
    let inputs = stage.weights[0].len();
    let key = ClientKey::generate(context, prg).unwrap();
    let mut scratch = context.scratch();
    let mut hat = context.zero_words_hat(k).unwrap();
    let (mut c0, mut masks, mut clear) = (Vec::new(), Vec::new(), Vec::new());
    for feature in 0..inputs {
        let id = MaskId { tensor: 3, feature: feature as u32, block: if shared { None } else { Some(7) } };
        context.mask_hat_into(&SEED, id, &mut hat, &mut scratch).unwrap();
        let mut mask = vec![0; n];
        mask_words(&SEED, id, k, &mut mask).unwrap();
        let m: Vec<i32> = if feature == 0 {
            vec![bound as i32; images]
        } else {
            random_range(prg, images, bound).iter().map(|v| *v as i32).collect()
        };
        let mut c = vec![0; n];
        key.encrypt_into(p, &hat, &m, prg, &mut scratch, &mut c).unwrap();
        assert!(c.iter().all(|w| *w <= hushnet_ring::low_mask(k)));
        c0.push(c);
        masks.push(mask);
        clear.push(m);
    }
    let combine = |row: &[i64], words: &[Vec<u64>]| -> Vec<u64> {
        (0..n)
            .map(|j| {
                row.iter().zip(words).fold(0u64, |s, (w, c)| s.wrapping_add((*w as u64).wrapping_mul(c[j])))
            })
            .collect()
    };
    let mut noises = Vec::new();
    for (row, bias) in stage.weights.iter().zip(&stage.bias) {
        let (mut r0, mut r1) = (combine(row, &c0), combine(row, &masks));
        add_bias(p, *bias, &mut r0);
        drop_bits(&mut r0, u, k).unwrap();
        let mut out = vec![0; n];
        let noise = if shared {
            let sum = context.words_hat(&r1, k).unwrap();
            key.decrypt_into(p, &r0, MaskSum::Exact(&sum), &mut scratch, &mut out).unwrap()
        } else {
            drop_bits(&mut r1, v, k).unwrap();
            key.decrypt_into(p, &r0, MaskSum::Dropped(&r1), &mut scratch, &mut out).unwrap()
        };
        for (j, y) in out.iter().enumerate() {
            let expected = row
                .iter()
                .zip(&clear)
                .map(|(w, m)| w * i64::from(m.get(j).copied().unwrap_or(0)))
                .sum::<i64>()
                + bias;
            assert_eq!(*y, expected, "image {j}");
        }
        noises.push(noise);
    }
    noises
}

#[test]
fn linear_stages_decrypt_exactly_with_noise_below_the_bound() {
    let mut prg = Prg::from_seed([1; 16]);
    for n in [2048, 4096, 8192] {
        for isa in simd::available() {
            let context = BatchContext::with_isa(n, isa).unwrap();
            for shared in [true, false] {
                for (shape, weight, bound, extra) in
                    [((17, 3), 1, 1, 0), ((30, 2), 127, 127, 0), ((9, 2), 127, 127, 14)]
                {
                    let s = stage(&mut prg, n, shape, weight, bound, shared, extra);
                    for noise in run(&s, &context, bound, n - 5, &mut prg) {
                        let limit = s.spec.encryption_noise()
                            + s.spec.drop_noise(s.params.drop_bits(), s.params.mask_drop_bits());
                        assert!((noise.largest as f64) < limit);
                        assert!(noise.margin_bits(&s.params) > 0.0 && noise.bits() > 1.0);
                    }
                }
            }
        }
    }
}

/// All modulus sizes from 24 to 64 bits, both kinds of masks.
#[test]
fn every_modulus_size_works() {
    let mut prg = Prg::from_seed([2; 16]);
    for k in 24..=64 {
        let n = if k <= 53 { 2048 } else { 4096 };
        let context = BatchContext::new(n).unwrap();
        for shared in [true, false] {
            let s = stage(&mut prg, n, (3, 1), 3, 3, shared, 0);
            let spare = k - s.params.modulus_bits();
            let dropped = (s.params.drop_bits() + spare / 2, s.params.mask_drop_bits() + spare / 3);
            let params = s.spec.check(k, s.params.delta_bits() + spare, dropped).unwrap();
            let s = Stage { params, ..s };
            run(&s, &context, 3, n, &mut prg);
        }
    }
}

/// Deviation of the noise of one ciphertext and of a combination, over more than 8000 coefficients each.
#[test]
fn measured_noise_has_the_expected_deviation() {
    let mut prg = Prg::from_seed([3; 16]);
    let n = 8192;
    let context = BatchContext::new(n).unwrap();
    let weights = random_range(&mut prg, 40, 127);
    let l2 = weights.iter().map(|w| (w * w) as f64).sum::<f64>().sqrt();
    let spec = BatchStageSpec { ring_degree: n, weight_l2: l2, output_bound: 1, shared_mask: true };
    // A wide scale and nothing dropped: the phase of an encryption of zeros is the noise itself.
    let p = spec.check(45, 43, (0, 0)).unwrap();
    let key = ClientKey::generate(&context, &mut prg).unwrap();
    let mut scratch = context.scratch();
    let mut hat = context.zero_words_hat(45).unwrap();
    let (mut sum, mut mask_sum, mut c) = (vec![0u64; n], vec![0u64; n], vec![0; n]);
    let mut mask = vec![0; n];
    for (feature, w) in weights.iter().enumerate() {
        let id = MaskId { tensor: 0, feature: feature as u32, block: None };
        context.mask_hat_into(&SEED, id, &mut hat, &mut scratch).unwrap();
        mask_words(&SEED, id, 45, &mut mask).unwrap();
        key.encrypt_into(&p, &hat, &[], &mut prg, &mut scratch, &mut c).unwrap();
        for ((s, t), (x, a)) in sum.iter_mut().zip(&mut mask_sum).zip(c.iter().zip(&mask)) {
            *s = s.wrapping_add((*w as u64).wrapping_mul(*x));
            *t = t.wrapping_add((*w as u64).wrapping_mul(*a));
        }
    }
    let hat = context.words_hat(&mask_sum, 45).unwrap();
    context.multiplier().multiply_add_into(&hat, &key.secret, &mut sum, &mut scratch.product).unwrap();
    let noise: Vec<f64> = sum.iter().map(|w| ((w << 19) as i64 >> 19) as f64).collect();
    let deviation = (noise.iter().map(|e| e * e).sum::<f64>() / n as f64).sqrt();
    let expected = ERROR_VARIANCE.sqrt() * l2;
    assert!((deviation / expected - 1.0).abs() < 0.05, "{deviation} against {expected}");
    let largest = noise.iter().fold(0.0f64, |m, e| m.max(e.abs()));
    assert!(largest < spec.encryption_noise() && largest > 3.0 * expected, "{largest}");
    assert!(noise.iter().sum::<f64>().abs() / (n as f64).sqrt() < 5.0 * expected);
}

#[test]
fn wrong_operands_are_refused() {
    let mut prg = Prg::from_seed([4; 16]);
    let context = BatchContext::new(2048).unwrap();
    let key = ClientKey::generate(&context, &mut prg).unwrap();
    let mut scratch = context.scratch();
    let spec = BatchStageSpec { ring_degree: 2048, weight_l2: 10.0, output_bound: 100, shared_mask: true };
    let p = spec.choose().unwrap();
    let k = p.modulus_bits();
    let hat = context.zero_words_hat(k).unwrap();
    let wide = context.zero_words_hat(k + 1).unwrap();
    let mut out = vec![0; 2048];
    let mut encrypt = |p: &BatchStageParams, hat: &WordsHat, m: &[i32], out: &mut [u64]| {
        key.encrypt_into(p, hat, m, &mut prg, &mut scratch, out)
    };
    assert_eq!(encrypt(&p, &wide, &[], &mut out), Err(CipherError::MaskBits { got: k + 1, expected: k }));
    assert_eq!(
        encrypt(&p, &hat, &[0; 2049], &mut out),
        Err(CipherError::TooManyMessages { got: 2049, room: 2048 })
    );
    assert!(matches!(encrypt(&p, &hat, &[], &mut out[1..]), Err(CipherError::Ring(_))));
    let other = BatchStageSpec { ring_degree: 4096, ..spec }.choose().unwrap();
    assert_eq!(
        encrypt(&other, &hat, &[], &mut out),
        Err(CipherError::RingDegree { key: 2048, params: 4096 })
    );
    let mut scratch = context.scratch();
    let mut ints = vec![0; 2048];
    assert!(key.decrypt_into(&p, &out[1..], MaskSum::Exact(&hat), &mut scratch, &mut ints).is_err());
    assert!(key.decrypt_into(&p, &out, MaskSum::Exact(&wide), &mut scratch, &mut ints).is_err());
    assert!(key.decrypt_into(&p, &out, MaskSum::Dropped(&out[1..]), &mut scratch, &mut ints).is_err());
    assert!(key.decrypt_into(&p, &out, MaskSum::Exact(&hat), &mut scratch, &mut ints[1..]).is_err());
}

/// The largest messages of either sign, the full word, and the same through every path.
#[test]
fn extreme_messages_at_the_full_word() {
    let mut prg = Prg::from_seed([5; 16]);
    for isa in simd::available() {
        let context = BatchContext::with_isa(4096, isa).unwrap();
        let key = ClientKey::generate(&context, &mut prg).unwrap();
        let spec =
            BatchStageSpec { ring_degree: 4096, weight_l2: 1.0, output_bound: 1 << 31, shared_mask: true };
        let p = spec.check(64, 30, (24, 0)).unwrap();
        let mut scratch = context.scratch();
        let mut hat = context.zero_words_hat(64).unwrap();
        let id = MaskId { tensor: u32::MAX, feature: u32::MAX, block: Some(u32::MAX - 1) };
        context.mask_hat_into(&SEED, id, &mut hat, &mut scratch).unwrap();
        let messages: Vec<i32> = (0..4096).map(|i| [i32::MIN, i32::MAX, 0, -1][i % 4]).collect();
        let (mut c, mut out) = (vec![0; 4096], vec![0; 4096]);
        key.encrypt_into(&p, &hat, &messages, &mut prg, &mut scratch, &mut c).unwrap();
        drop_bits(&mut c, 24, 64).unwrap();
        let noise = key.decrypt_into(&p, &c, MaskSum::Exact(&hat), &mut scratch, &mut out).unwrap();
        assert!(out.iter().zip(&messages).all(|(o, m)| *o == i64::from(*m)));
        // Dropping 24 bits dominates, and 4096 uniform remainders come close to its bound.
        assert!(noise.bits() > 22.9 && noise.bits() < 23.001, "{}", noise.bits());
    }
}

/// Ciphertexts of fixed seeds must never change: masks, samplers and packing are formats. The hashes were computed
/// by an independent implementation (schoolbook products, another AES).
#[test]
fn pinned_ciphertexts() {
    use sha2::{Digest, Sha256};
    let pins = [
        (2048, 40, "14afeefdcbe25bafbe1bc9518ba1b1671d4379fe63578925e468d953e035c053"),
        (2048, 53, "f262d8336f8602e677bacc78f65c41224577d16117557666667f0de7d6118a4d"),
        (4096, 64, "328e260c9511d9942debc07a4576d2bc6017cac26e95ea810fbba2219a0682bf"),
    ];
    for (n, k, pin) in pins {
        for isa in simd::available() {
            let context = BatchContext::with_isa(n, isa).unwrap();
            let mut prg = Prg::from_seed_with([0x11; 16], isa);
            let key = ClientKey::generate(&context, &mut prg).unwrap();
            let spec =
                BatchStageSpec { ring_degree: n, weight_l2: 1.0, output_bound: 127, shared_mask: false };
            let p = spec.check(k, 20, (3, 3)).unwrap();
            let mut scratch = context.scratch();
            let mut hat = context.zero_words_hat(k).unwrap();
            let mut c = vec![0; n];
            let mut hash = Sha256::new();
            for feature in 0..3 {
                let id = MaskId { tensor: 1, feature, block: Some(2) };
                context.mask_hat_into(&SEED, id, &mut hat, &mut scratch).unwrap();
                let messages: Vec<i32> =
                    (0..n as i32 - 9).map(|i| (i * 37 + feature as i32) % 255 - 127).collect();
                key.encrypt_into(&p, &hat, &messages, &mut prg, &mut scratch, &mut c).unwrap();
                let mut bytes = vec![0; hushnet_ring::pack::packed_len(n, k)];
                hushnet_ring::pack::pack_with(isa, &c, k, &mut bytes).unwrap();
                hash.update(&bytes);
            }
            let hex: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(hex, pin, "N={n} k={k} {isa:?}");
        }
    }
}

/// Does not compile when a secret type implements `Debug`: the function would be ambiguous.
#[test]
fn secrets_have_no_debug() {
    trait Unprintable<A> {
        fn check() {}
    }
    struct Printable;
    impl<T: ?Sized> Unprintable<()> for T {}
    impl<T: ?Sized + std::fmt::Debug> Unprintable<Printable> for T {}
    <ClientKey as Unprintable<_>>::check();
    <CipherScratch as Unprintable<_>>::check();
}
