use super::client::SecretKey;
use super::*;
use crate::ckks::Insecure;
use hushnet_ring::{simd, Prg};
use proptest::prelude::*;

fn small_spec(n: usize, digit_bits: u32, special_bits: u32) -> BfvSpec {
    let plain_modulus = hushnet_ring::prime::primes_near(20, n, 1).unwrap()[0];
    BfvSpec { ring_degree: n, plain_modulus, primes: 2, prime_bits: 50, special_bits, digit_bits }
}

struct Parties {
    key: SecretKey,
    server: Evaluator,
    prg: Prg,
}

fn parties(params: &BfvParams, turns: &[Turn]) -> Parties {
    let mut prg = Prg::from_seed([9; 16]);
    let key = SecretKey::generate(params, &mut prg).unwrap();
    // Both keys as they travel.
    let sent = key.galois_keys(turns, &mut prg).unwrap().to_bytes().unwrap();
    let wanted = turns.iter().filter(|t| !t.is_identity()).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(sent.len(), params.galois_keys_len(wanted.len()));
    let galois = GaloisKeys::from_bytes(params, turns, &sent).unwrap();
    let public = key.public_key(&mut prg).unwrap().to_bytes().unwrap();
    assert_eq!(public.len(), params.request_len());
    let server = Evaluator::new(params, PublicKey::from_bytes(params, &public).unwrap(), galois).unwrap();
    Parties { key, server, prg }
}

fn random(prg: &mut Prg, n: usize, t: u64) -> Vec<u64> {
    let mut v = vec![0; n];
    prg.fill_words(&mut v);
    v.iter_mut().for_each(|x| *x %= t);
    v
}

impl Parties {
    fn send(&mut self, slots: &[u64]) -> Cipher {
        let bytes = self.key.encrypt(slots, &mut self.prg).unwrap();
        assert_eq!(bytes.len(), self.server.params().request_len());
        self.server.receive(&bytes).unwrap()
    }

    /// Sends an answer and adds the shares.
    fn result(&mut self, c: &Cipher) -> Vec<u64> {
        let (bytes, share) = self.server.answer(c, &mut self.prg).unwrap();
        let t = self.server.params().plain_modulus();
        self.key.open(&bytes).unwrap().iter().zip(&share).map(|(a, b)| (a + b) % t).collect()
    }

    /// That the noise is within its bounds, and not far below the norm's.
    fn check_noise(&self, c: &Cipher, slots: &[u64]) {
        let (largest, norm) = self.key.noise(c, slots).unwrap();
        let b = c.noise_bound();
        assert!(largest <= b.bound(), "{largest} of {b:?}");
        assert!(norm <= b.norm_bound(slots.len()), "{norm} of {b:?}");
        assert!(norm > b.l2 / 16.0, "the bound is suspiciously wide: {norm} of {b:?}");
    }
}

#[test]
fn all_secure_candidates_give_exact_shares_with_noise_within_bounds() {
    let t = plain_modulus(DEFAULT_PLAIN_BITS).unwrap();
    for rotations in [false, true] {
        for spec in candidates(t, rotations).into_iter().filter(|s| s.ring_degree <= 8192) {
            let params = spec.check().unwrap();
            assert!(crate::security::is_128_bit(spec.ring_degree, params.modulus_bits()));
            let n = params.ring_degree();
            let turn = Turn { swap: true, left: 5 };
            let mut p = parties(&params, if rotations { std::slice::from_ref(&turn) } else { &[] });
            let (x, own, w) = (random(&mut p.prg, n, t), random(&mut p.prg, n, t), random(&mut p.prg, n, t));
            let mut c = p.send(&x);
            p.server.add_share(&mut c, &own).unwrap();
            let weight = p.server.encode(&w).unwrap();
            let sum: Vec<u64> = x.iter().zip(&own).map(|(a, b)| (a + b) % t).collect();
            p.check_noise(&c, &sum);
            let product: Vec<u64> = sum.iter().zip(&w).map(|(a, b)| a * b % t).collect();
            let mut y = p.server.sum_products(&[(&c, &weight)]).unwrap();
            p.check_noise(&y, &product);
            let mut want = product;
            if rotations {
                y = p.server.perm(&y, turn).unwrap();
                want = turn.apply(&want);
                p.check_noise(&y, &want);
            }
            assert_eq!(p.result(&y), want, "{spec:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn permutations_products_and_sums_are_exact(
        log_n in 4u32..9, gadget in 0usize..6, swap in any::<bool>(), left in 0usize..300, terms in 1usize..12, seed in any::<u8>(),
    ) {
        let n = 1usize << log_n;
        let (digit, special) = [(25, 0), (13, 0), (0, 50), (25, 30), (13, 0), (0, 33)][gadget];
        let mut spec = small_spec(n, digit, special);
        if gadget > 3 {
            (spec.primes, spec.prime_bits) = (4, 29);
        }
        let params = spec.check_insecure(Insecure).unwrap();
        let t = params.plain_modulus();
        let turn = Turn { swap, left: left % params.row() };
        let half = Turn::left(params.row() / 2);
        let mut p = parties(&params, &[turn, half]);
        p.prg = Prg::from_seed([seed; 16]);
        let x: Vec<Vec<u64>> = (0..terms).map(|_| random(&mut p.prg, n, t)).collect();
        let w: Vec<Vec<u64>> = (0..terms).map(|_| random(&mut p.prg, n, t)).collect();
        let c: Vec<Cipher> = x.iter().map(|x| p.send(x)).collect();
        let weights: Vec<Weight> = w.iter().map(|w| p.server.encode(w).unwrap()).collect();
        let before = p.server.counts();
        let pairs: Vec<_> = c.iter().zip(&weights).collect();
        let sum = p.server.sum_products(&pairs).unwrap();
        let digits = p.server.dec_perm(&sum).unwrap();
        let a = p.server.hst_perm(&sum, &digits, turn).unwrap();
        let b = p.server.perm(&sum, turn).unwrap();
        let mut both = a.clone();
        p.server.add(&mut both, &b).unwrap();
        let folded = p.server.fold(&both, half).unwrap();
        let moved = u64::from(!turn.is_identity());
        prop_assert_eq!(p.server.counts() - before, Counts {
            perm: moved + 1, dec_perm: 1, hst_perm: moved, sc_mult: terms as u64, add: terms as u64 + 1,
        });
        let plain: Vec<u64> =
            (0..n).map(|i| x.iter().zip(&w).fold(0, |s, (x, w)| (s + x[i] * w[i]) % t)).collect();
        let turned = turn.apply(&plain);
        p.check_noise(&sum, &plain);
        prop_assert_eq!(p.result(&a), turned.clone());
        prop_assert_eq!(p.result(&b), turned.clone());
        let twice: Vec<u64> = turned.iter().map(|v| 2 * v % t).collect();
        let other = half.apply(&twice);
        let want: Vec<u64> = twice.iter().zip(&other).map(|(a, b)| (a + b) % t).collect();
        prop_assert_eq!(p.result(&folded), want);
    }

    #[test]
    fn turns_form_a_group(row_log in 1u32..7, a in any::<(bool, u8)>(), b in any::<(bool, u8)>()) {
        let row = 1usize << row_log;
        let (a, b) = (Turn { swap: a.0, left: a.1 as usize % row }, Turn { swap: b.0, left: b.1 as usize % row });
        let slots: Vec<u64> = (0..2 * row as u64).collect();
        prop_assert_eq!(b.apply(&a.apply(&slots)), a.then(b, row).apply(&slots));
        prop_assert!(a.then(a.inverse(row), row).is_identity());
        let n = 2 * row;
        prop_assert_eq!(a.exponent(n) * b.exponent(n) % (2 * n), a.then(b, row).exponent(n));
    }
}

#[test]
fn all_instruction_sets_give_the_same_bytes() {
    let wide = small_spec(64, 0, 50);
    let narrow = BfvSpec { primes: 4, prime_bits: 28, special_bits: 33, ..wide };
    for spec in [wide, narrow] {
        let mut seen = None;
        for isa in simd::available() {
            let params = spec.check_insecure_with(Insecure, isa).unwrap();
            let mut prg = Prg::from_seed_with([3; 16], isa);
            let key = SecretKey::generate(&params, &mut prg).unwrap();
            let turn = Turn::left(3);
            let galois = key.galois_keys(&[turn], &mut prg).unwrap();
            let server = Evaluator::new(&params, key.public_key(&mut prg).unwrap(), galois).unwrap();
            let x: Vec<u64> = (0..64).collect();
            let sent = key.encrypt(&x, &mut prg).unwrap();
            let weight = server.encode(&x).unwrap();
            let c = server.sum_products(&[(&server.receive(&sent).unwrap(), &weight)]).unwrap();
            let c = server.perm(&c, turn).unwrap();
            let got = (sent, server.answer(&c, &mut prg).unwrap());
            assert_eq!(*seen.get_or_insert_with(|| got.clone()), got, "{isa:?}");
        }
    }
}

#[test]
fn answers_are_uniform_whatever_was_computed() {
    // The same constant encrypted: what the client opens, and both parts of what it receives, are uniform.
    let params = small_spec(1024, 25, 0).check_insecure(Insecure).unwrap();
    let (t, r) = (params.plain_modulus(), params.response_bits());
    let mut p = parties(&params, &[]);
    let c = p.send(&[1; 1024]);
    let w = p.server.encode(&[3; 1024]).unwrap();
    let c = p.server.sum_products(&[(&c, &w)]).unwrap();
    let (mut opened, mut words) = ([0u32; 16], [[0u32; 16]; 2]);
    let runs = 40;
    for _ in 0..runs {
        let (bytes, share) = p.server.answer(&c, &mut p.prg).unwrap();
        let mine = p.key.open(&bytes).unwrap();
        assert!(mine.iter().zip(&share).all(|(a, b)| (a + b) % t == 3));
        mine.iter().for_each(|v| opened[(v * 16 / t) as usize] += 1);
        for (half, counts) in bytes.chunks_exact(bytes.len() / 2).zip(&mut words) {
            let mut v = vec![0; 1024];
            hushnet_ring::pack::unpack(half, r, &mut v).unwrap();
            v.iter().for_each(|x| counts[(x >> (r - 4)) as usize] += 1);
        }
    }
    let expected = f64::from(runs * 1024) / 16.0;
    for counts in [opened, words[0], words[1]] {
        let chi: f64 = counts.iter().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
        // 15 degrees of freedom: above 60 with probability below 3e-7.
        assert!(chi < 60.0, "{counts:?}");
    }
}

#[test]
fn phases_of_answers_do_not_show_the_noise() {
    // Two computations with the same result and very different noise: the error of the opened phase has the deviation of the
    // flooding in both (sum of three uniforms below W: W/2), although the noises differ by a factor of hundreds.
    let params = small_spec(1024, 25, 0).check_insecure(Insecure).unwrap();
    let t = params.plain_modulus();
    let mut p = parties(&params, &[]);
    let c = p.send(&[0; 1024]);
    let mut weights = random(&mut p.prg, 1024, t);
    let mut deviations = Vec::new();
    for quiet in [true, false] {
        if quiet {
            weights.fill(1);
        }
        let w = p.server.encode(&weights).unwrap();
        let y = p.server.sum_products(&[(&c, &w)]).unwrap();
        let mut all = Vec::new();
        for _ in 0..4 {
            let (bytes, _) = p.server.answer(&y, &mut p.prg).unwrap();
            all.extend(p.key.phase_error(&bytes).unwrap());
        }
        deviations.push((all.iter().map(|e| e * e).sum::<f64>() / all.len() as f64).sqrt());
        weights = random(&mut p.prg, 1024, t);
    }
    // In units of 1/t: 1/2 W t/q = 1/2 (0.49 - rounding)/1.5.
    assert!((deviations[0] / deviations[1] - 1.0).abs() < 0.05, "{deviations:?}");
    assert!(deviations[0] > 0.1 && deviations[0] < 0.17, "{deviations:?}");
}

#[test]
fn the_hellinger_constant_of_the_flooding() {
    // Exact density of the sum of three uniform numbers below W, and the norm of the difference of square roots under a unit shift.
    for w in [50usize, 400, 3000] {
        let mut p = vec![1.0 / w as f64; w];
        for _ in 0..2 {
            let mut sums = vec![0.0; p.len() + w];
            let mut window = 0.0;
            for i in 0..p.len() + w - 1 {
                window += p.get(i).copied().unwrap_or(0.0);
                if i >= w {
                    window -= p[i - w];
                }
                sums[i] = window / w as f64;
            }
            p = sums;
        }
        let root: Vec<f64> =
            std::iter::once(0.0).chain(p.iter().map(|v| v.max(0.0).sqrt())).chain([0.0]).collect();
        let norm = root.windows(2).map(|v| (v[1] - v[0]).powi(2)).sum::<f64>().sqrt();
        let constant = norm * w as f64;
        assert!(constant <= noise::FLOOD_DISTANCE * (1.0 + 20.0 / w as f64), "W={w}: {constant}");
        assert!(constant > 0.9, "W={w}: {constant}");
    }
}

/// The error of rounding q/t R is counted in what a flood must hide, is what the bound says, and is negligible beside it for all parameters.
#[test]
fn the_mask_rounding_is_counted_and_negligible() {
    let t = plain_modulus(DEFAULT_PLAIN_BITS).unwrap();
    let mut told_apart = 0;
    for rotations in [true, false] {
        for spec in candidates(t, rotations) {
            let params = spec.check().unwrap();
            let (n, limit) = (spec.ring_degree, params.hidden_norm());
            let rounding = noise::mask_rounding_norm(n);
            assert!(rounding < limit * (-20f64).exp2(), "{spec:?}: {rounding} of {limit}");
            let unit = Noise::flat(n, 1.0).norm_bound(n);
            // Wide sets hide so much that doubles cannot tell.
            if limit > rounding * 40f64.exp2() {
                continue;
            }
            told_apart += 1;
            // Just what the flood hides, without room for the rounding: refused.
            assert!(!params.holds(&Noise::flat(n, (limit - 0.5 * rounding) / unit)));
            assert!(params.holds(&Noise::flat(n, (limit - 1.5 * rounding) / unit)));
        }
    }
    assert!(told_apart > 2);
    // q/t x less its rounding, from residues: q x mod t, centred, over t.
    let params = candidates(t, false)[0].check().unwrap();
    let mut slots = vec![0; params.ring_degree()];
    Prg::from_seed([9; 16]).fill_words(&mut slots);
    slots.iter_mut().for_each(|x| *x %= t);
    let coefficients = params.coefficients(&slots).unwrap();
    let error = coefficients.iter().map(|x| {
        let r = x * params.0.q_mod_t % t;
        (if r > t / 2 { r as f64 - t as f64 } else { r as f64 } / t as f64).powi(2)
    });
    let norm = error.sum::<f64>().sqrt();
    let bound = noise::mask_rounding_norm(params.ring_degree());
    assert!(norm < bound && norm > 0.5 * bound, "{norm} of {bound}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let t = plain_modulus(DEFAULT_PLAIN_BITS).unwrap();
    let spec = BfvSpec {
        ring_degree: 4096,
        plain_modulus: t,
        primes: 2,
        prime_bits: 50,
        special_bits: 50,
        digit_bits: 0,
    };
    assert!(matches!(spec.check(), Err(BfvError::Security { limit: 106, .. })));
    for bad in [
        BfvSpec { plain_modulus: t + 2, special_bits: 0, ..spec },
        BfvSpec { primes: 0, ..spec },
        BfvSpec { prime_bits: 51, ..spec },
        BfvSpec { primes: 1, prime_bits: 25, special_bits: 0, ..spec },
        BfvSpec { digit_bits: 3, special_bits: 0, ..spec },
    ] {
        assert!(matches!(bad.check(), Err(BfvError::Spec(_))), "{bad:?}");
    }
    let params = BfvSpec { special_bits: 0, ..spec }.check().unwrap();
    let mut p = parties(&params, &[]);
    assert!(matches!(p.key.galois_keys(&[Turn::left(1)], &mut p.prg), Err(BfvError::NoSwitching)));
    assert!(matches!(p.key.encrypt(&[0; 7], &mut p.prg), Err(BfvError::Length { .. })));
    assert!(matches!(p.key.encrypt(&vec![t; 4096], &mut p.prg), Err(BfvError::NotReduced(_))));
    let bytes = p.key.encrypt(&vec![1; 4096], &mut p.prg).unwrap();
    assert!(p.server.receive(&bytes[1..]).is_err());
    let mut forged = bytes.clone();
    forged[32..].fill(0xff);
    assert!(matches!(p.server.receive(&forged), Err(BfvError::Damaged(_))));
    let c = p.server.receive(&bytes).unwrap();
    assert!(matches!(p.server.perm(&c, Turn::left(1)), Err(BfvError::MissingKey(_))));
    assert!(p.server.perm(&c, Turn::default()).is_ok());
    assert!(p.server.sum_products(&[]).is_err());
    assert!(p.key.open(&[0; 5]).is_err());
    // Noise beyond what the flooding hides is refused before anything leaves.
    let w = p.server.encode(&random(&mut Prg::from_seed([1; 16]), 4096, t)).unwrap();
    let mut loud = p.server.sum_products(&[(&c, &w)]).unwrap();
    for _ in 0..2 {
        loud = p.server.sum_products(&[(&loud, &w)]).unwrap();
    }
    assert!(matches!(p.server.answer(&loud, &mut p.prg), Err(BfvError::Noise { .. })));
    let load =
        |_| Some(Load { counts: Counts { perm: 3, sc_mult: 4, ..Counts::default() }, ciphers: (1, 1) });
    assert!(choose(t, true, load, |s| Noise::flat(s.ring_degree, 1e90)).is_err());
    let chosen = choose(t, true, load, |s| Noise::flat(s.ring_degree, 2e9)).unwrap();
    assert_eq!(chosen.ring_degree(), 4096);
}

#[test]
fn keys_of_wrong_length_or_with_words_above_their_prime_are_refused() {
    let params = small_spec(1024, 17, 0).check_insecure(Insecure).unwrap();
    let (mut prg, turns) = (Prg::from_seed([3; 16]), [Turn::left(1), Turn { swap: true, left: 2 }]);
    let key = SecretKey::generate(&params, &mut prg).unwrap();
    let sent = key.galois_keys(&turns, &mut prg).unwrap().to_bytes().unwrap();
    assert!(matches!(
        GaloisKeys::from_bytes(&params, &turns, &sent[1..]),
        Err(BfvError::Length { what: "Galois keys", .. })
    ));
    assert!(GaloisKeys::from_bytes(&params, &turns[..1], &sent).is_err());
    assert!(GaloisKeys::from_bytes(&params, &[], &[]).unwrap().is_empty());
    let mut bad = sent.clone();
    bad[32..64].fill(0xff);
    assert!(matches!(GaloisKeys::from_bytes(&params, &turns, &bad), Err(BfvError::Damaged("a Galois key"))));
    let mut public = key.public_key(&mut prg).unwrap().to_bytes().unwrap();
    assert!(PublicKey::from_bytes(&params, &public[..public.len() - 1]).is_err());
    public[32..64].fill(0xff);
    assert!(matches!(PublicKey::from_bytes(&params, &public), Err(BfvError::Damaged("a public key"))));
    let fixed = small_spec(1024, 0, 0).check_insecure(Insecure).unwrap();
    assert!(matches!(GaloisKeys::from_bytes(&fixed, &turns, &sent), Err(BfvError::NoSwitching)));
}
