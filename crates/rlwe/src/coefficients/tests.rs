use super::*;
use crate::batch::ParamsError;
use crate::packed::{PackedContext, WeightPoly, PRIME_BITS};
use crate::CipherError;
use hushnet_ring::{low_mask, prime::primes_near, Prg};

const TRAVEL: Travel = Travel { upload: 3 << 11, body: 1 << 10, mask: 1 << 11 };

/// Coefficients of a negacyclic product over the integers.
fn negacyclic(a: &[i64], b: &[i64]) -> Vec<i64> {
    let n = a.len();
    let mut out = vec![0i64; n];
    for (j, y) in b.iter().enumerate().filter(|(_, y)| **y != 0) {
        for (i, x) in a.iter().enumerate() {
            let at = (i + j) % n;
            out[at] += if i + j < n { x * y } else { -x * y };
        }
    }
    out
}

struct Stage {
    context: PackedContext,
    spec: CoefficientSpec,
    inputs: Vec<Vec<i64>>,
    weights: Vec<Vec<i64>>,
    biases: Vec<i64>,
    places: Vec<usize>,
}

impl Stage {
    /// Products of `terms` pairs: messages up to `bound`, weights of 8 bits of which every fourth is there.
    fn new(n: usize, terms: usize, bound: i64, prg: &mut Prg) -> Self {
        let mut random = |most: i64| -> Vec<i64> {
            let mut v = vec![0; n];
            prg.fill_words(&mut v);
            v.into_iter().map(|x| (x % (2 * most as u64 + 1)) as i64 - most).collect()
        };
        let inputs: Vec<_> = (0..terms).map(|_| random(bound)).collect();
        let weights: Vec<Vec<i64>> = (0..terms)
            .map(|_| {
                random(127).into_iter().enumerate().map(|(i, w)| if i % 4 == 0 { w } else { 0 }).collect()
            })
            .collect();
        let places: Vec<usize> = (0..n).rev().step_by(3).collect();
        let biases = random(1 << 20).into_iter().take(places.len()).collect();
        let all = || weights.iter().flatten().map(|w| *w as f64);
        let (weight_l1, weight_l2) =
            (all().map(f64::abs).sum::<f64>(), all().map(|w| w * w).sum::<f64>().sqrt());
        let output_bound = (weight_l1 * bound as f64) as u64 + (1 << 20);
        let spec = CoefficientSpec { ring_degree: n, output_bound, weight_l2, weight_l1 };
        Self { context: PackedContext::new(n).unwrap(), spec, inputs, weights, biases, places }
    }

    fn want(&self) -> Vec<i64> {
        let mut sum = vec![0; self.spec.ring_degree];
        for (x, w) in self.inputs.iter().zip(&self.weights) {
            sum.iter_mut().zip(negacyclic(x, w)).for_each(|(s, v)| *s += v);
        }
        self.places.iter().zip(&self.biases).map(|(place, bias)| sum[*place] + bias).collect()
    }

    /// Results of a tile, and the largest noise.
    fn run(&self, params: &CoefficientParams, prg: &mut Prg) -> (Vec<i64>, u64) {
        let (n, bits) = (self.spec.ring_degree, *params.bits());
        let key = CoefficientKey::generate(&self.context, prg).unwrap();
        let mut scratch = CoefficientScratch::new(&self.context);
        let (mut masks, mut requests) = (Vec::new(), Vec::new());
        for (i, x) in self.inputs.iter().enumerate() {
            let (mut a, mut c0) = (vec![0; n], vec![0; n]);
            self.context.mask_hat(&[5; 32], 7, i as u32, &mut a).unwrap();
            key.encrypt_into(params, &a, x, prg, &mut scratch, &mut c0).unwrap();
            assert!(c0.iter().all(|w| *w <= low_mask(bits.upload)));
            lift_request(&self.context, params, &mut c0).unwrap();
            masks.push(a);
            requests.push(c0);
        }
        let polys: Vec<_> = self.weights.iter().map(|w| WeightPoly::new(&self.context, w).unwrap()).collect();
        let sum = |x: &[Vec<u64>]| {
            let (x, mut out) = (x.iter().map(Vec::as_slice).collect::<Vec<_>>(), vec![0; n]);
            combine(&self.context, &x, &polys.iter().collect::<Vec<_>>(), &mut out).unwrap();
            out
        };
        let (mut c0, mut c1) = (sum(&requests), sum(&masks));
        let mut body = vec![0; self.places.len()];
        let biases = self.biases.iter().map(|b| bias(&self.context, params, *b));
        round_answer(&self.context, params, &mut c0, &self.places, biases, &mut body).unwrap();
        round_masks(&self.context, params, &mut c1).unwrap();
        assert!(
            body.iter().all(|w| *w <= low_mask(bits.body)) && c1.iter().all(|w| *w <= low_mask(bits.mask))
        );
        lift_masks(&self.context, params, &mut c1).unwrap();
        let mut out = vec![0; self.places.len()];
        let noise = key.open(params, &c1, &body, &self.places, &mut scratch, &mut out).unwrap();
        (out, noise)
    }
}

#[test]
fn results_are_exact_and_noise_keeps_below_its_bound() {
    for (n, terms, bound, seed) in [(2048, 3, 127, 1), (4096, 2, 2047, 2), (2048, 1, 1, 3)] {
        let mut prg = Prg::from_seed([seed; 16]);
        let stage = Stage::new(n, terms, bound, &mut prg);
        let params = stage.spec.choose(&TRAVEL).unwrap();
        let (got, noise) = stage.run(&params, &mut prg);
        assert_eq!(got, stage.want());
        let bound = stage.spec.noise(params.bits());
        // The bound holds for 2^40 coefficients; the largest of some hundred is within a factor of five of it.
        assert!((noise as f64) < bound && noise as f64 > bound / 5.0, "{noise} {bound}");
        assert!(bound < params.scale() as f64 / 2.0);
    }
}

/// Bits that the proof refuses do give wrong results: the check is not idle, and neither is this test.
#[test]
fn fewer_bits_are_refused_and_would_be_wrong() {
    let mut prg = Prg::from_seed([9; 16]);
    let stage = Stage::new(2048, 3, 127, &mut prg);
    let params = stage.spec.choose(&TRAVEL).unwrap();
    assert_eq!(stage.spec.check(*params.bits()).unwrap(), params);
    let fewer = |change: fn(&mut CoefficientBits)| {
        let mut bits = *params.bits();
        change(&mut bits);
        bits
    };
    let cases = [fewer(|b| b.upload -= 4), fewer(|b| b.body -= 4), fewer(|b| b.mask -= 4)];
    for bits in cases {
        assert!(matches!(stage.spec.check(bits), Err(ParamsError::Noise { .. })), "{bits:?}");
        let weaker = CoefficientSpec { weight_l2: 1.0, weight_l1: 1.0, ..stage.spec };
        let unproven = params::unproven(&weaker, bits);
        assert_ne!(stage.run(&unproven, &mut prg).0, stage.want(), "{bits:?}");
    }
}

#[test]
fn specs_and_bits_out_of_range_are_refused() {
    let spec =
        CoefficientSpec { ring_degree: 2048, output_bound: 1 << 20, weight_l2: 1000.0, weight_l1: 4000.0 };
    assert_eq!(
        CoefficientSpec { ring_degree: 1024, ..spec }.choose(&TRAVEL),
        Err(ParamsError::RingDegree(1024))
    );
    for output_bound in [1 << 40, 1 << 50, u64::MAX] {
        let wide = CoefficientSpec { output_bound, ..spec };
        assert!(matches!(wide.choose(&TRAVEL), Err(ParamsError::TooWide { .. })));
        assert!(wide.check(CoefficientBits { upload: 50, body: 49, mask: 49 }).is_err());
    }
    for (upload, body, mask) in [(0, 40, 40), (50, 0, 40), (50, 40, 0)] {
        assert!(matches!(spec.check(CoefficientBits { upload, body, mask }), Err(ParamsError::Noise { .. })));
    }
    for (upload, body, mask) in [(51, 40, 40), (50, 50, 40), (50, 40, 50), (50, u32::MAX, 40)] {
        assert!(matches!(
            spec.check(CoefficientBits { upload, body, mask }),
            Err(ParamsError::TooWide { .. })
        ));
    }
}

#[test]
fn the_least_prime_is_below_the_prime_of_every_degree() {
    for n in [2048, 4096, 8192, 16384, 32768, 65536] {
        assert!(primes_near(PRIME_BITS, n, 1).unwrap()[0] > LEAST_PRIME);
    }
}

#[test]
fn requests_that_are_not_reduced_are_refused() {
    let context = PackedContext::new(2048).unwrap();
    let spec =
        CoefficientSpec { ring_degree: 2048, output_bound: 1 << 20, weight_l2: 1000.0, weight_l1: 4000.0 };
    for upload in [50, 38] {
        let params = spec.check(CoefficientBits { upload, body: 40, mask: 45 }).unwrap();
        let most = (context.prime() - 1) >> (PRIME_BITS - upload);
        lift_request(&context, &params, &mut vec![most; 2048]).unwrap();
        if most < low_mask(upload) {
            let refused = lift_request(&context, &params, &mut vec![most + 1; 2048]);
            assert_eq!(refused, Err(CipherError::NotReduced));
        }
    }
}
