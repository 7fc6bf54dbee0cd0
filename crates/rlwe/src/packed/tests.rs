use super::*;
use hushnet_ring::{low_mask, Prg};

fn negacyclic(a: &[u64], b: &[i64]) -> Vec<u64> {
    let n = a.len();
    let mut out = vec![0u64; n];
    for (j, y) in b.iter().enumerate().filter(|(_, y)| **y != 0) {
        for (i, x) in a.iter().enumerate() {
            let term = x.wrapping_mul(*y as u64);
            let at = (i + j) % n;
            out[at] = if i + j < n { out[at].wrapping_add(term) } else { out[at].wrapping_sub(term) };
        }
    }
    out
}

/// Runs one stage with `terms` products; returns per coefficient the error of the summed shares, in units.
fn stage(n: usize, ring_bits: u32, terms: usize, seed: u8, weight: i64) -> (Vec<i64>, PackedSpec) {
    let context = PackedContext::new(n).unwrap();
    let mut prg = Prg::from_seed([seed; 16]);
    let mask = low_mask(ring_bits);
    let mut random = |bound: u64| -> Vec<u64> {
        let mut v = vec![0; n];
        prg.fill_words(&mut v);
        v.iter_mut().for_each(|x| *x &= bound);
        v
    };
    let client_shares: Vec<_> = (0..terms).map(|_| random(mask)).collect();
    let server_shares: Vec<_> = (0..terms).map(|_| random(mask)).collect();
    let weights: Vec<Vec<i64>> =
        (0..terms).map(|_| random(0xff).iter().map(|w| (*w as i64 - 127) * weight / 127).collect()).collect();
    let norm: f64 = weights.iter().flatten().map(|w| (*w as f64).powi(2)).sum();
    let spec = PackedSpec { ring_degree: n, ring_bits, weight_l2: norm.sqrt() };
    let params = spec.choose().unwrap();

    let client = PackedClient::generate(&context, &mut prg).unwrap();
    let session = [7; 32];
    let server = PackedServer::new(&context, &client.public_key(&session, &mut prg).unwrap()).unwrap();
    let (mut c0s, mut c1s, mut ws, mut c0s_sent) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for i in 0..terms {
        let (mut a, mut c0) = (vec![0; n], vec![0; n]);
        context.mask_hat(&session, 3, i as u32, &mut a).unwrap();
        client.encrypt_into(&params, &a, &client_shares[i], &mut prg, &mut c0).unwrap();
        c0s_sent.extend_from_slice(&c0);
        server.absorb(&params, &server_shares[i], &mut c0).unwrap();
        c0s.push(c0);
        c1s.push(a);
        ws.push(WeightPoly::new(&context, &weights[i]).unwrap());
    }
    let (mut s0, mut s1) = (vec![0; n], vec![0; n]);
    let r0: Vec<&[u64]> = c0s.iter().map(Vec::as_slice).collect();
    let r1: Vec<&[u64]> = c1s.iter().map(Vec::as_slice).collect();
    server.combine(&r0, &r1, &ws.iter().collect::<Vec<_>>(), &mut s0, &mut s1).unwrap();
    let places: Vec<usize> = (0..n).rev().step_by(3).collect();
    let (mut own, mut got) = (vec![0; places.len()], vec![0; places.len()]);
    server.answer(&params, &mut prg, &mut s0, &mut s1, &places, &mut own).unwrap();
    assert!(server.answer(&params, &mut prg, &mut vec![0; n], &mut vec![0; n], &[n], &mut [0]).is_err());
    assert!(client.open(&params, &s1, &places, &mut got[1..]).is_err());
    assert!(c0s_sent.iter().all(|w| *w <= low_mask(params.request_bits())));
    assert!(s1.iter().all(|w| *w <= low_mask(params.response_bits())));
    client.open(&params, &s1, &places, &mut got).unwrap();

    let mut want = vec![0u64; n];
    for i in 0..terms {
        let x: Vec<u64> =
            client_shares[i].iter().zip(&server_shares[i]).map(|(a, b)| a.wrapping_add(*b)).collect();
        for (w, v) in want.iter_mut().zip(negacyclic(&x, &weights[i])) {
            *w = w.wrapping_add(v);
        }
    }
    let errors = places
        .iter()
        .enumerate()
        .map(|(k, at)| {
            let e = got[k].wrapping_add(own[k]).wrapping_sub(want[*at]) & mask;
            if e > mask / 2 {
                e as i64 - mask as i64 - 1
            } else {
                e as i64
            }
        })
        .collect();
    (errors, spec)
}

#[test]
fn shares_sum_to_the_product_up_to_the_stated_unit() {
    for (n, ring_bits, terms, weight) in
        [(2048, 26, 3, 127), (2048, 30, 1, 127), (4096, 28, 2, 127), (2048, 8, 2, 3), (8192, 24, 1, 127)]
    {
        let (mut wrong, mut all, mut expected) = (0, 0, 0.0);
        for seed in 0..4 {
            let (errors, spec) = stage(n, ring_bits, terms, seed, weight);
            assert!(errors.iter().all(|e| e.abs() <= 1), "N={n} l={ring_bits}");
            wrong += errors.iter().filter(|e| **e != 0).count();
            all += errors.len();
            expected = spec.choose().unwrap().off_by_one_fraction();
        }
        let fraction = wrong as f64 / all as f64;
        assert!(fraction < 1.5 * expected + 0.01, "N={n} l={ring_bits}: {fraction} of {expected}");
        assert!(fraction > 0.3 * expected, "noise is suspiciously small: {fraction} of {expected}");
    }
}

/// Bits of requests and answers, and how often results are a unit off, of what networks have: 28 bits and norms of 2^10 at N = 2048. Wider
/// rings and larger norms keep more bits of requests; where these keep all, answers have as many more as the noise leaves no room for.
#[test]
fn as_few_bits_travel_as_keep_results_within_a_unit() {
    let bits = |ring_degree, ring_bits, weight_l2| {
        let p = PackedSpec { ring_degree, ring_bits, weight_l2 }.choose().unwrap();
        assert!(p.off_by_one_fraction() < 0.1);
        [p.request_bits(), p.response_bits() - ring_bits]
    };
    assert_eq!(bits(2048, 28, 1024.0), [41, 7]);
    assert_eq!(bits(2048, 28, 2048.0), [42, 7]);
    assert_eq!(bits(2048, 22, 1024.0), [35, 7]);
    assert_eq!(bits(2048, 36, 256.0), [50, 8]);
    assert_eq!(bits(4096, 28, 1024.0), [45, 7]);
    assert_eq!(bits(8192, 28, 1024.0), [41, 8]);
    // What a request leaves out is what stands in front of the switch, whatever the rounding of the first word.
    let context = PackedContext::new(2048).unwrap();
    let params = PackedSpec { ring_degree: 2048, ring_bits: 22, weight_l2: 1024.0 }.choose().unwrap();
    let server = PackedServer::new(&context, &PackedPublicKey { seed: [0; 32], pk0: vec![0; 2048] }).unwrap();
    let highest = (context.prime() - 1) >> (PRIME_BITS - params.request_bits());
    let absorb = |word| server.absorb(&params, &[], &mut vec![word; 2048]);
    absorb(highest).unwrap();
    assert!(matches!(absorb(highest + 1), Err(CipherError::NotReduced)));
    assert!(matches!(absorb(u64::MAX), Err(CipherError::NotReduced)));
}

#[test]
fn too_wide_rings_and_foreign_words_are_refused() {
    let spec = PackedSpec { ring_degree: 2048, ring_bits: 40, weight_l2: 2000.0 };
    assert!(matches!(spec.choose(), Err(CipherError::TooWide { .. })));
    assert!(matches!(
        PackedSpec { ring_degree: 1024, ring_bits: 20, ..spec }.choose(),
        Err(CipherError::Insecure { .. })
    ));
    let context = PackedContext::new(2048).unwrap();
    let key = PackedPublicKey { seed: [0; 32], pk0: vec![context.prime(); 2048] };
    assert!(matches!(PackedServer::new(&context, &key), Err(CipherError::NotReduced)));
    assert!(PackedServer::new(&context, &PackedPublicKey { seed: [0; 32], pk0: vec![0; 5] }).is_err());
}

#[test]
fn a_public_key_is_read_as_it_was_written_and_other_lengths_are_refused() {
    let context = PackedContext::new(2048).unwrap();
    let mut prg = Prg::from_seed([3; 16]);
    let client = PackedClient::generate(&context, &mut prg).unwrap();
    let key = client.public_key(&[9; 32], &mut prg).unwrap();
    let message = key.to_bytes().unwrap();
    // The seed, then N words of 50 bits.
    assert_eq!(message.len(), 32 + 2048 * 50 / 8);
    assert_eq!(message.len(), PackedPublicKey::byte_len(2048));
    assert_eq!(message[..32], [9; 32]);
    let first = u64::from_le_bytes(message[32..40].try_into().unwrap()) & low_mask(50);
    assert_eq!(first, key.pk0[0]);
    let read = PackedPublicKey::from_bytes(&context, &message).unwrap();
    assert!(read.seed == key.seed && read.pk0 == key.pk0);
    for length in [0, 31, 32, message.len() - 1, message.len() + 1] {
        let mut other = message.clone();
        other.resize(length, 0);
        assert!(matches!(
            PackedPublicKey::from_bytes(&context, &other),
            Err(CipherError::Ring(RingError::Length { got, .. })) if got == length
        ));
    }
}

/// A polynomial in X^S has the transform of any other, for every S and degree; sums of products with such are those of all words.
#[test]
fn spaced_weights_have_the_transform_of_all_weights() {
    let mut prg = Prg::from_seed([9; 16]);
    for n in [2048, 4096] {
        let context = PackedContext::new(n).unwrap();
        let key = PackedPublicKey { seed: [1; 32], pk0: vec![0; n] };
        let server = PackedServer::new(&context, &key).unwrap();
        for spacing in [64, 128, n / 16, n / 2, n] {
            let transform = SpacedTransform::new(&context, spacing).unwrap().unwrap();
            let count = n / spacing;
            assert_eq!(Some(count), SpacedTransform::values(n, spacing));
            // three ciphertexts, two sums
            let mut random = |len: usize| {
                let mut words = vec![0; len];
                prg.fill_words(&mut words);
                words
            };
            let inputs: Vec<[Vec<u64>; 2]> = (0..3)
                .map(|_| [0, 1].map(|_| random(n).iter().map(|w| w % context.prime()).collect()))
                .collect();
            let inputs: Vec<[&[u64]; 2]> = inputs.iter().map(|[a, b]| [a.as_slice(), b.as_slice()]).collect();
            let (mut values, mut polys) = (vec![vec![0; 3 * count]; 2], Vec::new());
            for values in &mut values {
                for i in 0..3 {
                    let weights: Vec<i64> = random(count).iter().map(|w| *w as i64 >> 48).collect();
                    for (r, value) in transform.forward(&weights).unwrap().into_iter().enumerate() {
                        values[r * 3 + i] = value;
                    }
                    assert!(transform.forward(&weights[1..]).is_err());
                    let mut whole = vec![0; n];
                    whole.iter_mut().step_by(spacing).zip(weights).for_each(|(place, w)| *place = w);
                    polys.push(WeightPoly::new(&context, &whole).unwrap());
                }
            }
            let own: Vec<&[u64]> = values.iter().map(Vec::as_slice).collect();
            let mut sums = vec![[vec![0; n], vec![0; n]]; 2];
            let mut out: Vec<[&mut [u64]; 2]> =
                sums.iter_mut().map(|s| s.each_mut().map(Vec::as_mut_slice)).collect();
            server.combine_spaced(&inputs, spacing, &own, &mut out).unwrap();
            assert!(server.combine_spaced(&inputs[1..], spacing, &own, &mut out).is_err());
            assert!(server.combine_spaced(&inputs, 1, &own, &mut out).is_err());
            for (sum, polys) in sums.iter().zip(polys.chunks_exact(3)) {
                let (mut s0, mut s1) = (vec![0; n], vec![0; n]);
                let [c0, c1] = [0, 1].map(|h| inputs.iter().map(|c| c[h]).collect::<Vec<_>>());
                server.combine(&c0, &c1, &polys.iter().collect::<Vec<_>>(), &mut s0, &mut s1).unwrap();
                assert!(sum[0] == s0 && sum[1] == s1, "{n}, {spacing}");
            }
        }
        for spacing in [0, 1, 3, 32, 96, 2 * n] {
            assert!(SpacedTransform::new(&context, spacing).unwrap().is_none());
        }
    }
}

/// The least seconds of 40 calls.
fn least(mut call: impl FnMut()) -> f64 {
    let once = |_| {
        let start = std::time::Instant::now();
        call();
        start.elapsed().as_secs_f64()
    };
    (0..40).map(once).fold(f64::INFINITY, f64::min)
}

/// Layers that stream their weights make every polynomial anew: general residues of 128 bits took three times as long as the transform.
#[test]
fn a_weight_polynomial_takes_hardly_more_than_its_transform() {
    let context = PackedContext::new(8192).unwrap();
    let weights: Vec<i64> = (0..8192).map(|i| i % 255 - 127).collect();
    let mut words = vec![5; 8192];
    let transform = least(|| context.ntt().forward(&mut words).unwrap());
    let made = least(|| drop(std::hint::black_box(WeightPoly::new(&context, &weights).unwrap())));
    assert!(made < 2.5 * transform, "{made} seconds, its transform {transform}");
}

#[test]
fn a_weight_polynomial_times_a_residue_is_that_of_the_products() {
    let context = PackedContext::new(4096).unwrap();
    let p = context.prime();
    let inverse = hushnet_ring::prime::inv_mod(96, p);
    let weights: Vec<i64> = (0..4096).map(|i| [-32768, 32767, 0, -1, 96][i % 5]).collect();
    let times = WeightPoly::new(&context, &weights).unwrap().times(&context, inverse);
    let mut back = times.slots().to_vec();
    context.ntt().inverse(&mut back).unwrap();
    for (b, w) in back.iter().zip(&weights) {
        assert_eq!(u128::from(*b) * 96 % u128::from(p), w.rem_euclid(p as i64) as u128);
    }
}
