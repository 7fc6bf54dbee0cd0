use super::*;
use crate::{mask_words, BatchContext};
use hushnet_ring::{low_mask, Prg};

/// One output of `terms` inputs through the whole stage: errors of the summed shares in units, one an image.
struct Run {
    errors: Vec<i64>,
    c0: Vec<u64>,
    c1: Vec<u64>,
}

struct Parties {
    context: BatchContext,
    key: ShareKey,
    server: ShareServer,
    prg: Prg,
}

impl Parties {
    fn new(n: usize, seed: u8) -> Self {
        let context = BatchContext::new(n).unwrap();
        let mut prg = Prg::from_seed([seed; 16]);
        let key = ShareKey::generate(&context, &mut prg).unwrap();
        let public = key.public_key([seed; 32], public_key_bits(n).unwrap(), &mut prg).unwrap();
        let server = ShareServer::new(&context, &public).unwrap();
        Self { context, key, server, prg }
    }

    fn words(&mut self, len: usize, bits: u32) -> Vec<u64> {
        let mut v = vec![0; len];
        self.prg.fill_words(&mut v);
        v.iter_mut().for_each(|w| *w &= low_mask(bits));
        v
    }

    fn run(&mut self, params: &BatchShareParams, weights: &[i64], images: usize) -> Run {
        let (n, k, l) = (params.ring_degree(), params.modulus_bits(), params.ring_bits());
        let (mut s0, mut s1, mut want) = (vec![0u64; images], vec![0u64; n], vec![0u64; images]);
        let mut scratch = self.context.scratch();
        for (i, w) in weights.iter().enumerate() {
            let (mine, theirs) = (self.words(images, l), self.words(images, l));
            let id = MaskId { tensor: 3, feature: i as u32, block: Some(1) };
            let (mut a, mut c0) = (vec![0; n], vec![7; n]);
            mask_words(&[9; 32], id, k, &mut a).unwrap();
            let hat = self.context.words_hat(&a, k).unwrap();
            let shares = mine.iter().copied();
            self.key.encrypt_into(params, &hat, shares, &mut self.prg, &mut scratch, &mut c0).unwrap();
            assert!(c0.iter().all(|c| *c <= low_mask(k)));
            for b in 0..images {
                let c = c0[b].wrapping_add(theirs[b] << (k - l));
                s0[b] = s0[b].wrapping_add((*w as u64).wrapping_mul(c));
                let x = mine[b].wrapping_add(theirs[b]);
                want[b] = want[b].wrapping_add((*w as u64).wrapping_mul(x));
            }
            s1.iter_mut().zip(&a).for_each(|(s, a)| *s = s.wrapping_add((*w as u64).wrapping_mul(*a)));
        }
        s0.iter_mut().chain(&mut s1).for_each(|s| *s &= low_mask(k));
        let (mut own, mut got) = (vec![0; images], vec![0; images]);
        let stage = self.server.stage(params).unwrap();
        stage.answer(&mut self.prg, &mut scratch, &mut s0, &mut s1, &mut own).unwrap();
        assert!(s0.iter().chain(&s1).all(|w| *w <= low_mask(params.response_bits())));
        self.key.open_into(params, &s1, &s0, &mut scratch, &mut got).unwrap();
        let error = |b: usize| {
            let e = own[b].wrapping_add(got[b]).wrapping_sub(want[b]);
            (e << (64 - l)) as i64 >> (64 - l)
        };
        Run { errors: (0..images).map(error).collect(), c0: s0, c1: s1 }
    }
}

fn params(ring_degree: usize, ring_bits: u32, weights: &[i64]) -> BatchShareParams {
    let norm: f64 = weights.iter().map(|w| (*w as f64).powi(2)).sum();
    BatchShareSpec { ring_degree, ring_bits, weight_l2: norm.sqrt() }.choose().unwrap()
}

#[test]
fn shares_sum_to_the_combination_up_to_the_stated_unit() {
    for (n, l, terms, size) in
        [(2048, 22, 25, 127), (2048, 30, 200, 127), (4096, 37, 9, 1000), (2048, 5, 3, 1), (8192, 24, 4, 500)]
    {
        let mut parties = Parties::new(n, l as u8);
        let weights: Vec<i64> =
            parties.words(terms, 16).iter().map(|w| *w as i64 % (2 * size + 1) - size).collect();
        let params = params(n, l, &weights);
        let (mut wrong, mut all) = (0, 0);
        for images in [n, n, n - 3, n / 2, 1] {
            let run = parties.run(&params, &weights, images);
            assert!(run.errors.iter().all(|e| e.abs() <= 1), "N={n} l={l}");
            wrong += run.errors.iter().filter(|e| **e != 0).count();
            all += images;
        }
        let (fraction, expected) = (wrong as f64 / all as f64, params.spec().off_by_one_fraction());
        assert!(fraction < 1.5 * expected + 0.005, "N={n} l={l}: {fraction} of {expected}");
        assert!(
            fraction > 0.2 * expected,
            "N={n} l={l}: noise is suspiciously small, {fraction} of {expected}"
        );
    }
}

#[test]
fn every_modulus_of_a_session_has_the_same_public_key() {
    let mut parties = Parties::new(2048, 1);
    for l in [4, 12, 20, 28, 33] {
        let params = params(2048, l, &[3, -5]);
        let run = parties.run(&params, &[3, -5], 100);
        assert!(run.errors.iter().all(|e| e.abs() <= 1), "l={l}");
    }
}

/// Facts 1 and 2 of `docs/two-party.md`: the same query twice gives unrelated answers, both parts, so neither solves for the weights nor averages to anything.
#[test]
fn answers_to_one_query_do_not_repeat() {
    let mut parties = Parties::new(2048, 2);
    let params = params(2048, 20, &[1, 1]);
    let k = params.modulus_bits();
    let stage = parties.server.stage(&params).unwrap();
    let mut scratch = parties.context.scratch();
    let (fixed0, fixed1) = (parties.words(2048, k), parties.words(2048, k));
    let mut answer = || {
        let (mut c0, mut c1, mut share) = (fixed0.clone(), fixed1.clone(), vec![0; 2048]);
        stage.answer(&mut parties.prg, &mut scratch, &mut c0, &mut c1, &mut share).unwrap();
        (c0, c1)
    };
    let ((a0, a1), (b0, b1)) = (answer(), answer());
    let half = f64::from(params.response_bits() - 1).exp2();
    let cut = 64 - params.response_bits();
    for (a, b) in [(a0, b0), (a1, b1)] {
        assert!(a.iter().zip(&b).filter(|(a, b)| a == b).count() < 4);
        // The difference is uniform: its mean square is a third of the square of half the range.
        let square = |(a, b): (&u64, &u64)| ((((a - b) << cut) as i64 >> cut) as f64 / half).powi(2);
        let mean = a
            .iter()
            .zip(&b)
            .map(|(a, b)| square((&a.wrapping_add(1 << params.response_bits()), b)))
            .sum::<f64>()
            / 2048.0;
        assert!((mean - 1.0 / 3.0).abs() < 0.04, "{mean}");
    }
}

#[test]
fn answers_fill_their_range() {
    let mut parties = Parties::new(2048, 3);
    let params = params(2048, 24, &[127; 50]);
    let run = parties.run(&params, &[127; 50], 2048);
    let top = params.response_bits() - 4;
    for words in [&run.c0, &run.c1] {
        let mut counts = [0f64; 16];
        words.iter().for_each(|w| counts[(w >> top) as usize] += 1.0);
        let chi: f64 = counts.iter().map(|c| (c - 128.0).powi(2) / 128.0).sum();
        // 15 degrees of freedom: exceeded once in 10^6.
        assert!(chi < 56.5, "{chi}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let spec = BatchShareSpec { ring_degree: 2048, ring_bits: 20, weight_l2: 872.0 };
    let p = spec.choose().unwrap();
    assert_eq!((p.modulus_bits(), p.response_bits()), (38, 30));
    assert!(matches!(BatchShareSpec { ring_bits: 36, ..spec }.choose(), Err(CipherError::TooWide { .. })));
    assert!(matches!(BatchShareSpec { ring_bits: 0, ..spec }.choose(), Err(CipherError::TooWide { .. })));
    assert!(matches!(
        BatchShareSpec { ring_bits: u32::MAX, ..spec }.choose(),
        Err(CipherError::TooWide { .. })
    ));
    let unknown = BatchShareSpec { ring_degree: 2047, ..spec };
    assert!(matches!(unknown.choose(), Err(CipherError::Insecure { .. })));
    let mut parties = Parties::new(2048, 4);
    let public = SharePublicKey { seed: [0; 32], bits: 53, pk0: vec![1 << 53; 2048] };
    assert!(matches!(ShareServer::new(&parties.context, &public), Err(CipherError::NotReduced)));
    let short = SharePublicKey { seed: [0; 32], bits: 53, pk0: vec![0; 2047] };
    assert!(ShareServer::new(&parties.context, &short).is_err());
    // A key is no wider than the table allows, and serves no stage that is wider than itself.
    assert!(matches!(
        parties.key.public_key([5; 32], 54, &mut parties.prg),
        Err(CipherError::Insecure { modulus_bits: 54, .. })
    ));
    let wide = SharePublicKey { seed: [0; 32], bits: 54, pk0: vec![0; 2048] };
    assert!(matches!(ShareServer::new(&parties.context, &wide), Err(CipherError::Insecure { .. })));
    for bits in [37, 38] {
        let public = parties.key.public_key([6; 32], bits, &mut parties.prg).unwrap();
        let stage = ShareServer::new(&parties.context, &public).unwrap().stage(&p);
        assert_eq!(stage.is_ok(), bits == 38);
    }
    let other = BatchShareSpec { ring_degree: 4096, ..spec }.choose().unwrap();
    assert!(parties.server.stage(&other).is_err());
    let mut scratch = parties.context.scratch();
    let hat = parties.context.zero_words_hat(40).unwrap();
    let mut out = vec![0; 2048];
    let none = std::iter::empty::<u64>;
    let e = parties.key.encrypt_into(&p, &hat, none(), &mut parties.prg, &mut scratch, &mut out);
    assert!(matches!(e, Err(CipherError::MaskBits { got: 40, expected: 38 })));
    let many = vec![0; 2049];
    let hat = parties.context.zero_words_hat(38).unwrap();
    let e =
        parties.key.encrypt_into(&p, &hat, many.iter().copied(), &mut parties.prg, &mut scratch, &mut out);
    assert!(matches!(e, Err(CipherError::TooManyMessages { got: 2049, room: 2048 })));
    assert!(parties.key.open_into(&p, &[0; 2047], &[0], &mut scratch, &mut [0]).is_err());
    assert!(parties.key.open_into(&p, &[0; 2048], &[0; 3], &mut scratch, &mut [0]).is_err());
}
