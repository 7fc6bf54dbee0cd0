#![allow(clippy::needless_range_loop, reason = "indices are those of the formulas")]

use super::*;
use crate::CipherError;
use hushnet_ring::{low_mask, Prg};

/// `sum a b mod 2^64` at multiples of `stride`, b sparse.
fn negacyclic(a: &[u64], b: &[i64], stride: usize) -> Vec<u64> {
    let n = a.len();
    let mut out = vec![0u64; n];
    for (j, y) in b.iter().enumerate().filter(|(_, y)| **y != 0) {
        for (i, x) in a.iter().enumerate() {
            let term = x.wrapping_mul(*y as u64);
            let at = (i + j) % n;
            out[at] = if i + j < n { out[at].wrapping_add(term) } else { out[at].wrapping_sub(term) };
        }
    }
    out.into_iter().step_by(stride).collect()
}

struct Run {
    /// Errors of the summed shares, in units.
    shares: Vec<i64>,
    /// Errors before rounding, in units.
    noise: Vec<f64>,
    spec: OnePolySpec,
}

fn random(prg: &mut Prg, n: usize, mask: u64) -> Vec<u64> {
    let mut v = vec![0; n];
    prg.fill_words(&mut v);
    v.iter_mut().for_each(|x| *x &= mask);
    v
}

/// One stage with `terms` products of `count` weights each.
#[allow(clippy::too_many_lines)] // The protocol from set-up to shares.
fn stage(profile: Profile, n: usize, ring_bits: u32, terms: usize, stride: usize, count: usize) -> Run {
    let mut prg = Prg::from_seed([n as u8 ^ stride as u8; 16]);
    let mask = low_mask(ring_bits);
    let weights: Vec<Vec<i64>> = (0..terms)
        .map(|_| {
            let mut w = vec![0; n];
            for (at, v) in random(&mut prg, count, n as u64 - 1).iter().zip(random(&mut prg, count, 255)) {
                w[*at as usize] = v as i64 - 128;
            }
            w
        })
        .collect();
    let norm: f64 = weights.iter().flatten().map(|w| (*w as f64).powi(2)).sum();
    let spec = OnePolySpec {
        ring_degree: n,
        ring_bits,
        weight_l2: norm.sqrt(),
        weight_bits: 9,
        weights: terms * count,
        terms,
        profile,
    };
    let params = spec.choose().unwrap();
    let context = OnePolyContext::new(n, params.prime_bits(), stride).unwrap();
    let (ct, st) = (Tally::default(), Tally::default());
    let client = OnePolyClient::new(&context, &params, &[7; 32], 3).unwrap();
    let server = OnePolyServer::new(&context, &params, &[7; 32], 3, &mut prg).unwrap();
    let keys: Vec<_> =
        weights.iter().enumerate().map(|(k, w)| server.weight_key(w, k as u32, true, &st).unwrap()).collect();
    let setup = st.counts();
    let (c, s): (Vec<_>, Vec<_>) =
        (0..terms).map(|_| (random(&mut prg, n, mask), random(&mut prg, n, mask))).unzip();

    let mut bytes = vec![0; context.packed_len()];
    let (mut blinds, mut received, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for (c, s) in c.iter().zip(&s) {
        let mut blind = client.blind(&mut prg, &ct).unwrap();
        client.request(&mut blind, c, &mut bytes, &ct).unwrap();
        blinds.push(blind);
        let share = server.share(s, &st).unwrap();
        let mut c0 = context.unpack(&bytes).unwrap();
        if profile == Profile::Compact {
            context.sub_assign(&mut c0, &share).unwrap();
        }
        received.push(c0);
        shares.push(share);
    }
    let places: Vec<usize> = (0..context.plane()).step_by(stride / context.fold()).rev().collect();
    let mut pairs: Vec<(&Folded, &Folded)> =
        received.iter().zip(&keys).map(|(c0, k)| (c0, k.0.rho())).collect();
    if profile == Profile::Flooded {
        pairs.extend(shares.iter().zip(&keys).map(|(s, k)| (s, k.0.weights().unwrap())));
    }
    let sums = context.torus(&context.dot(&pairs, &st).unwrap(), &places).unwrap();
    let (answer, own) = server.mask(&mut prg, &sums);
    assert!(answer.iter().all(|w| *w <= low_mask(params.response_bits())));

    let mut pairs: Vec<(&Folded, &Folded)> =
        blinds.iter().zip(&keys).map(|(b, k)| (b.secret(), &k.1[0])).collect();
    if profile == Profile::Flooded {
        pairs.extend(blinds.iter().zip(&keys).map(|(b, k)| (b.share().unwrap(), &k.1[1])));
    }
    let mine = context.torus(&context.dot(&pairs, &ct).unwrap(), &places).unwrap();
    let mut got = vec![0; places.len()];
    client.open(&answer, &mine, &mut got).unwrap();

    let g = terms as u64;
    let both = u64::from(profile == Profile::Flooded) + 1;
    assert_eq!(setup.ntt, g * if profile == Profile::Compact { 2 } else { 4 });
    assert_eq!(ct.counts(), TallyCounts { ntt: 3 * g, intt: 1, products: g + g * both, rotations: 0 });
    let online = TallyCounts { ntt: g, intt: 1, products: g * both, rotations: 0 };
    assert_eq!(st.counts(), setup + online);

    let mut want = vec![0u64; n / stride];
    for ((c, s), w) in c.iter().zip(&s).zip(&weights) {
        let x: Vec<u64> = c.iter().zip(s).map(|(a, b)| a.wrapping_add(*b)).collect();
        for (o, v) in want.iter_mut().zip(negacyclic(&x, w, stride)) {
            *o = o.wrapping_add(v);
        }
    }
    let unit = f64::from(64 - ring_bits).exp2();
    let at = |k: usize| want[places[k] * context.fold() / stride];
    Run {
        shares: (0..places.len())
            .map(|k| scale::centred(got[k].wrapping_add(own[k]).wrapping_sub(at(k)), ring_bits))
            .collect(),
        noise: (0..places.len())
            .map(|k| {
                let phase = sums[k].wrapping_add(mine[k]);
                phase.wrapping_sub(at(k) << (64 - ring_bits)) as i64 as f64 / unit
            })
            .collect(),
        spec,
    }
}

#[test]
fn shares_sum_to_the_product_and_noise_is_as_derived() {
    for (profile, n, ring_bits, terms, stride, count) in [
        (Profile::Compact, 4096, 26, 3, 16, 144),
        (Profile::Compact, 4096, 32, 1, 1, 40),
        (Profile::Compact, 4096, 20, 2, 4096, 100),
        (Profile::Compact, 8192, 36, 2, 256, 500),
        (Profile::Flooded, 8192, 26, 2, 16, 144),
        (Profile::Flooded, 8192, 32, 1, 1, 40),
    ] {
        let run = stage(profile, n, ring_bits, terms, stride, count);
        let name = format!("{profile:?} N={n} l={ring_bits} g={terms} s={stride}");
        assert!(run.shares.iter().all(|e| e.abs() <= 1), "{name}");
        let worst = run.noise.iter().fold(0f64, |m, v| m.max(v.abs()));
        assert!(worst < run.spec.noise(), "{name}: {worst} of {}", run.spec.noise());
        if run.noise.len() > 200 {
            let count = run.noise.len() as f64;
            let deviation = (run.noise.iter().map(|v| v * v).sum::<f64>() / count).sqrt();
            let ratio = deviation / run.spec.deviation();
            assert!((0.5..1.2).contains(&ratio), "{name}: {deviation} of {}", run.spec.deviation());
            let off = run.shares.iter().filter(|e| **e != 0).count() as f64 / count;
            let expected = run.spec.off_by_one_fraction();
            let slack = 5.0 * (expected / count).sqrt();
            assert!(off < expected + slack, "{name}: {off} of {expected}");
        }
    }
}

#[test]
fn parameters_follow_the_security_table_and_the_bounds() {
    let spec = OnePolySpec {
        ring_degree: 4096,
        ring_bits: 27,
        weight_l2: 2048.0,
        weight_bits: 8,
        weights: 1 << 16,
        terms: 2,
        profile: Profile::Compact,
    };
    let params = spec.choose().unwrap();
    assert!(params.modulus_bits() <= 106 && spec.noise() < 0.5);
    let flooded = OnePolySpec { profile: Profile::Flooded, ..spec };
    assert!(matches!(flooded.choose(), Err(CipherError::Insecure { .. })));
    let params = OnePolySpec::smallest(2048, |n| Some(OnePolySpec { ring_degree: n, ..flooded })).unwrap();
    assert_eq!(params.ring_degree(), 8192);
    // B / beta = 2^(kappa + w + 1) times the number of weights.
    assert_eq!(params.rho_bits() - params.beta_bits(), 40 + 8 + 1 + 16);
    assert!(matches!(
        OnePolySpec { ring_degree: 16384, ring_bits: 60, ..spec }.choose(),
        Err(CipherError::TooWide { .. })
    ));
    let context = OnePolyContext::new(4096, &[43, 42], 8).unwrap();
    assert_eq!(context.packed_len(), 4096 * 85 / 8);
    assert!(matches!(context.unpack(&vec![0xff; context.packed_len()]), Err(CipherError::NotReduced)));
    assert!(context.unpack(&[0; 5]).is_err());
    assert!(OnePolyContext::new(4096, &[43], 3).is_err());
    assert!(OnePolyContext::new(4096, &[43], 8192).is_err());
}

/// Least squares by normal equations and Cholesky, columns scaled.
fn least_squares(rows: &[Vec<f64>], y: &[f64]) -> Vec<f64> {
    let m = rows[0].len();
    let scale: Vec<f64> =
        (0..m).map(|j| rows.iter().map(|r| r[j] * r[j]).sum::<f64>().sqrt().max(1e-300)).collect();
    let (mut a, mut b) = (vec![vec![0.0; m]; m], vec![0.0; m]);
    for (row, y) in rows.iter().zip(y) {
        let row: Vec<f64> = row.iter().zip(&scale).map(|(v, s)| v / s).collect();
        for j in 0..m {
            b[j] += row[j] * y;
            for k in 0..=j {
                a[j][k] += row[j] * row[k];
            }
        }
    }
    for j in 0..m {
        for k in 0..=j {
            let sum: f64 = a[j][k] - (0..k).map(|i| a[j][i] * a[k][i]).sum::<f64>();
            a[j][k] = if j == k { sum.max(1e-300).sqrt() } else { sum / a[k][k] };
        }
    }
    for j in 0..m {
        b[j] = (b[j] - (0..j).map(|i| a[j][i] * b[i]).sum::<f64>()) / a[j][j];
    }
    for j in (0..m).rev() {
        b[j] = (b[j] - (j + 1..m).map(|i| a[i][j] * b[i]).sum::<f64>()) / a[j][j];
    }
    b.iter().zip(&scale).map(|(v, s)| v / s).collect()
}

/// The noise attack (fact 2 of `docs/two-party.md`) on compact queries of a first layer (the server's share is zero). The client knows v, i, e0 and solves
/// `noise = (i - Q x / (t beta)) f + i e2 + e0 (f + e2) + v e1` for F, e2, e1. Returns the fraction of weights that it finds.
fn noise_attack(multiples_only: bool) -> f64 {
    let (n, l) = (64, 8);
    let spec = OnePolySpec {
        ring_degree: n,
        ring_bits: l,
        weight_l2: 64.0,
        weight_bits: 5,
        weights: n,
        terms: 1,
        profile: Profile::Compact,
    };
    let params = spec.choose_unchecked().unwrap();
    let context = OnePolyContext::new(n, params.prime_bits(), 1).unwrap();
    let tally = Tally::default();
    let mut prg = Prg::from_seed([9; 16]);
    let server = OnePolyServer::new(&context, &params, &[1; 32], 0, &mut prg).unwrap();
    let weights: Vec<i64> = random(&mut prg, n, 15).iter().map(|w| *w as i64 - 8).collect();
    let (key, sent) = server.weight_key(&weights, 0, true, &tally).unwrap();
    let b = context.uniform(&[1; 32], 0).unwrap();
    let q = context.primes().iter().map(|p| *p as f64).product::<f64>();
    let beta = f64::from(params.beta_bits()).exp2();
    let places: Vec<usize> = (0..n).collect();
    let (mut rows, mut y) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        // The client's own encryption, with everything that it knows in the open.
        let (mut v, mut e0) = (vec![0i8; n], vec![0i8; n]);
        hushnet_ring::sample::ternary(&mut prg, &mut v);
        hushnet_ring::sample::centred_binomial(&mut prg, &mut e0);
        let x = random(&mut prg, n, low_mask(l));
        let v_hat = context.forward_small(&v, &tally).unwrap();
        let mut c0 = context.product(&v_hat, &b, &tally).unwrap();
        context.add_assign(&mut c0, &context.forward_small(&e0, &tally).unwrap()).unwrap();
        context
            .add_assign(&mut c0, &client::transformed_shares(&context, &params, &x, &tally).unwrap())
            .unwrap();
        context.neg_assign(&mut c0).unwrap();
        let torus = |pairs: &[(&Folded, &Folded)]| {
            context.torus(&context.dot(pairs, &tally).unwrap(), &places).unwrap()
        };
        let sums = torus(&[(&c0, key.rho())]);
        let mask = random(&mut prg, n, u64::MAX);
        let own = torus(&[(&v_hat, &sent[0])]);
        let centred: Vec<f64> = x.iter().map(|x| scale::centred(*x, l) as f64).collect();
        let i: Vec<f64> = centred.iter().map(|x| (q * x / (f64::from(l).exp2() * beta)).round()).collect();
        for k in 0..n {
            let mask = if multiples_only { mask[k] << (64 - l) } else { mask[k] };
            let phase = sums[k].wrapping_sub(mask).wrapping_add(own[k]);
            // Modulo a unit, centred.
            let noise = (phase << l) as i64 as f64 / 2f64.powi(64);
            y.push(noise * q / f64::from(l).exp2());
            let mut row = vec![0.0; 3 * n];
            for j in 0..n {
                // Coefficient k of a product with a polynomial whose coefficient j is unknown.
                let (from, sign) = if k >= j { (k - j, 1.0) } else { (n + k - j, -1.0) };
                let rounding = i[from] - q * centred[from] / (f64::from(l).exp2() * beta);
                row[j] = sign * beta * (rounding + f64::from(e0[from]));
                row[n + j] = sign * (i[from] + f64::from(e0[from]));
                row[2 * n + j] = sign * f64::from(v[from]);
            }
            rows.push(row);
        }
    }
    let found = least_squares(&rows, &y);
    weights.iter().zip(&found).filter(|(w, f)| (**w as f64 - **f).abs() < 0.5).count() as f64 / n as f64
}

#[test]
fn noise_under_masks_of_multiples_gives_the_weights_away_and_full_masks_do_not() {
    assert_eq!(noise_attack(true), 1.0);
    let found = noise_attack(false);
    assert!(found < 0.4, "{found}");
}
