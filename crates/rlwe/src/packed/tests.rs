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
    let server =
        PackedServer::new(&context, &session, &client.public_key(&session, &mut prg).unwrap()).unwrap();
    let (mut c0s, mut c1s, mut ws) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..terms {
        let (mut a, mut c0) = (vec![0; n], vec![0; n]);
        context.mask_hat(&session, 3, i as u32, &mut a).unwrap();
        client.encrypt_into(&params, &a, &client_shares[i], &mut prg, &mut c0).unwrap();
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
    let (mut c0, mut own, mut got) = (vec![0; places.len()], vec![0; places.len()], vec![0; places.len()]);
    server.answer(&params, &mut prg, &mut s0, &mut s1, &places, &mut c0, &mut own).unwrap();
    assert!(s1.iter().chain(&c0).all(|w| *w <= low_mask(params.response_bits())));
    client.open(&params, &s1, &c0, &places, &mut got).unwrap();

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
            expected = spec.off_by_one_fraction();
        }
        let fraction = wrong as f64 / all as f64;
        assert!(fraction < 1.5 * expected + 0.01, "N={n} l={ring_bits}: {fraction} of {expected}");
        assert!(fraction > 0.3 * expected, "noise is suspiciously small: {fraction} of {expected}");
    }
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
    let key = PackedPublicKey { pk0: vec![context.prime(); 2048] };
    assert!(matches!(PackedServer::new(&context, &[0; 32], &key), Err(CipherError::NotReduced)));
    assert!(PackedServer::new(&context, &[0; 32], &PackedPublicKey { pk0: vec![0; 5] }).is_err());
}
