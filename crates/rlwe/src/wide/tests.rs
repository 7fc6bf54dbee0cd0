use super::*;
use hushnet_ring::Prg;

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

fn random(prg: &mut Prg, len: usize, bits: u32) -> Vec<u64> {
    let mut v = vec![0; len];
    prg.fill_words(&mut v);
    v.iter_mut().for_each(|x| *x &= low_mask(bits));
    v
}

/// A stage with `terms` products of polynomials whose plain factor has 64 coefficients as large as shares are; errors in units.
fn stage(ring_bits: u32, terms: usize, seed: u8) -> (Vec<i64>, f64) {
    let context = WideContext::new().unwrap();
    let mut prg = Prg::from_seed([seed; 16]);
    let spec = WideSpec { ring_bits, terms: 64 * terms, spacing: 1 };
    let params = spec.choose().unwrap();
    let client = WideHolder::generate(&context, &mut prg).unwrap();
    let key = client.public_key(&[7; 32], &mut prg).unwrap();
    let server = WideMultiplier::new(&context, &key).unwrap();
    let (mut ciphers, mut plains, mut want) = (Vec::new(), Vec::new(), vec![0u64; RING_DEGREE]);
    for i in 0..terms {
        let x = random(&mut prg, RING_DEGREE, ring_bits);
        let mut w = vec![0i64; RING_DEGREE];
        let half = 1i64 << (ring_bits - 1);
        for (k, v) in random(&mut prg, 64, ring_bits).iter().enumerate() {
            // The largest coefficients there are, and random ones.
            w[k * 101 + i] = if k % 8 == 0 { -half } else { *v as i64 - half };
        }
        let message = client.encrypt(&params, (&[8; 32], 3, i as u32), &x, &mut prg).unwrap();
        assert_eq!(message.len(), params.request_len());
        ciphers.push(server.read(&params, (&[8; 32], 3, i as u32), &message).unwrap());
        plains.push(WidePlain::new(&context, &w, 1).unwrap());
        want.iter_mut().zip(negacyclic(&x, &w)).for_each(|(w, v)| *w = w.wrapping_add(v));
    }
    let sum = server.combine(&ciphers.iter().collect::<Vec<_>>(), &plains).unwrap();
    let places: Vec<usize> = (0..RING_DEGREE).rev().step_by(3).collect();
    let [c1, own] = server.answer(&params, &mut prg, sum, &places).unwrap();
    assert!(c1.iter().all(|w| *w <= low_mask(params.response_bits())));
    let got = client.open(&params, &c1, &places).unwrap();
    let shift = 64 - ring_bits;
    let off = |(k, at): (usize, &usize)| {
        ((got[k].wrapping_add(own[k]).wrapping_sub(want[*at]) << shift) as i64) >> shift
    };
    (places.iter().enumerate().map(off).collect(), params.off_by_one_fraction().unwrap())
}

#[test]
fn shares_sum_to_the_product_up_to_the_stated_unit() {
    // The last ring is the widest that has parameters: there the noise counts.
    for (ring_bits, terms) in [(8, 2), (26, 2), (37, 3), (45, 1)] {
        let (mut wrong, mut all, mut expected) = (0, 0, 0.0);
        for seed in 0..2 {
            let (errors, fraction) = stage(ring_bits, terms, seed);
            assert!(errors.iter().all(|e| e.abs() <= 1), "l = {ring_bits}");
            wrong += errors.iter().filter(|e| **e != 0).count();
            (all, expected) = (all + errors.len(), fraction);
        }
        let fraction = wrong as f64 / f64::from(all as u32);
        assert!(fraction < 1.5 * expected + 0.01, "l = {ring_bits}: {fraction} of {expected}");
        assert!(fraction > 0.3 * expected, "noise is suspiciously small: {fraction} of {expected}");
    }
}

#[test]
fn what_has_no_parameters_is_refused() {
    let spec = WideSpec { ring_bits: 37, terms: 1000, spacing: 64 };
    assert_eq!(spec.choose().unwrap().response_bits(), 47);
    for ring_bits in [0, 47, 64] {
        let e = WideSpec { ring_bits, ..spec }.choose();
        assert!(matches!(e, Err(CipherError::TooWide { modulus_bits: 100, .. })), "{ring_bits}");
    }
    for spacing in [0, 3, 2 * RING_DEGREE] {
        assert!(WideSpec { spacing, ..spec }.choose().is_err());
    }
    // More terms, less room.
    let most =
        |terms| (1..60).filter(|l| WideSpec { ring_bits: *l, terms, spacing: 1 }.choose().is_ok()).max();
    assert_eq!((most(1), most(64), most(1 << 20)), (Some(46), Some(45), Some(41)));
}

/// A request's words are the upper bits of c0, rounded: as few as the noise has room for.
#[test]
fn requests_leave_out_what_the_noise_covers() {
    let context = WideContext::new().unwrap();
    let moduli: Vec<u64> =
        context.basis().moduli()[..2].iter().map(hushnet_ring::rns::Modulus::value).collect();
    let q = u128::from(moduli[0]) * u128::from(moduli[1]);
    let mut prg = Prg::from_seed([5; 16]);
    for (ring_bits, terms) in [(30, 64), (37, 1000), (45, 1), (46, 1)] {
        let params = WideSpec { ring_bits, terms, spacing: 1 }.choose().unwrap();
        let (dropped, kept) = (params.dropped, params.request_bits());
        assert_eq!(kept, 100 - dropped);
        let room = 0.5 - WideSpec::switch_noise() / 1024.0;
        assert!(params.spec().relative(dropped).unwrap() < room);
        assert!(params.spec().relative(dropped + 1).unwrap() >= room || dropped == 49);
        let mut poly = context.basis().zero(0..DATA_PRIMES).unwrap();
        let mut values: Vec<u128> = (0..RING_DEGREE)
            .map(|_| random(&mut prg, 2, 64).iter().fold(0, |v, w| v << 64 | u128::from(*w)) % q)
            .collect();
        values[..4].copy_from_slice(&[0, 1, q - 1, q / 2]);
        for (i, p) in moduli.iter().enumerate() {
            poly.limb_mut(i).iter_mut().zip(&values).for_each(|(c, v)| *c = (v % u128::from(*p)) as u64);
        }
        let message = request::write(&context, &params, &poly).unwrap();
        assert_eq!(message.len(), RING_DEGREE * kept as usize / 8);
        let back = request::read(&context, &params, &message).unwrap();
        for (at, v) in values.iter().enumerate() {
            let rounded = (v + ((1u128 << dropped) >> 1)) >> dropped << dropped;
            let want = [0, 1].map(|i: usize| (rounded % u128::from(moduli[i])) as u64);
            assert_eq!([0, 1].map(|i| back.limb(i)[at]), want, "{v} without {dropped} bits");
        }
    }
}

#[test]
fn messages_are_read_as_they_were_written_and_others_are_refused() {
    let context = WideContext::new().unwrap();
    let mut prg = Prg::from_seed([3; 16]);
    let client = WideHolder::generate(&context, &mut prg).unwrap();
    let key = client.public_key(&[9; 32], &mut prg).unwrap();
    let message = key.to_bytes().unwrap();
    assert_eq!((message.len(), message.len()), (32 + 2 * 8192 * 50 / 8, WidePublicKey::byte_len()));
    let same = WidePublicKey::from_bytes(&context, &message).unwrap();
    assert!(same.seed == key.seed && same.pk0.words() == key.pk0.words());
    let server = WideMultiplier::new(&context, &same).unwrap();
    let params = WideSpec { ring_bits: 20, terms: 1, spacing: 1 }.choose().unwrap();
    for length in [0, 31, message.len() - 1, message.len() + 1] {
        let mut other = message.clone();
        other.resize(length, 0);
        assert!(WidePublicKey::from_bytes(&context, &other).is_err());
    }
    // Every word of a request stands for an element modulo Q.
    let len = params.request_len();
    assert!(server.read(&params, (&[1; 32], 0, 0), &vec![0xff; len]).is_ok());
    for length in [0, len - 1, len + 1, WideContext::poly_len()] {
        assert!(server.read(&params, (&[1; 32], 0, 0), &vec![0; length]).is_err());
    }
    let damaged = vec![0xff; WidePublicKey::byte_len()];
    assert!(matches!(WidePublicKey::from_bytes(&context, &damaged), Err(CipherError::NotReduced)));
    assert!(client.encrypt(&params, (&[1; 32], 0, 0), &[0; 5], &mut prg).is_err());
    assert!(client.open(&params, &[0; RING_DEGREE], &[RING_DEGREE]).is_err());
    assert!(client.open(&params, &[0; 7], &[1]).is_err());
    let sum = || [context.merge.zero().unwrap(), context.merge.zero().unwrap()];
    assert!(server.answer(&params, &mut prg, sum(), &[RING_DEGREE]).is_err());
    assert!(server.combine(&[], &[]).is_err());
}

/// Fact 1 of `docs/two-party.md`: without a fresh encryption of zero c1 is a function of the request and the plain factor; two answers to one request differ everywhere.
#[test]
fn answers_are_made_anew_each_time() {
    let context = WideContext::new().unwrap();
    let mut prg = Prg::from_seed([4; 16]);
    let client = WideHolder::generate(&context, &mut prg).unwrap();
    let server = WideMultiplier::new(&context, &client.public_key(&[7; 32], &mut prg).unwrap()).unwrap();
    let params = WideSpec { ring_bits: 24, terms: 1, spacing: 1 }.choose().unwrap();
    let message = client.encrypt(&params, (&[8; 32], 3, 0), &vec![5; RING_DEGREE], &mut prg).unwrap();
    let cipher = server.read(&params, (&[8; 32], 3, 0), &message).unwrap();
    let mut w = vec![0i64; RING_DEGREE];
    w[0] = 3;
    let plain = [WidePlain::new(&context, &w, 1).unwrap()];
    let places: Vec<usize> = (0..RING_DEGREE).collect();
    let mut answer =
        || server.answer(&params, &mut prg, server.combine(&[&cipher], &plain).unwrap(), &places).unwrap();
    let ([a1, a0], [b1, b0]) = (answer(), answer());
    // The server's shares are of 24 bits, as the other words have 34.
    for (a, b) in [(a1, b1), (a0, b0)] {
        assert!(a.iter().zip(&b).filter(|(a, b)| a == b).count() < 4);
    }
}

/// Fact 2 of `docs/two-party.md`: the noise tells the plain factor, and is in c0 and c1 s together. What c1 gives the client has uniform low bits;
/// with the server's c0 they are those of a product that is zero, and its noise.
#[test]
fn the_noise_of_an_answer_stays_between_the_parties() {
    let context = WideContext::new().unwrap();
    let mut prg = Prg::from_seed([6; 16]);
    let client = WideHolder::generate(&context, &mut prg).unwrap();
    let server = WideMultiplier::new(&context, &client.public_key(&[7; 32], &mut prg).unwrap()).unwrap();
    let params = WideSpec { ring_bits: 24, terms: 1, spacing: 1 }.choose().unwrap();
    let sum = [context.merge.zero().unwrap(), context.merge.zero().unwrap()];
    let parts = server.rerandomise(&mut prg, sum).unwrap();
    let (exact, r) = (&context.inner.exact, params.response_bits());
    let [c0, c1] = parts.map(|part| -> Vec<u64> {
        let at = |place: usize| std::array::from_fn(|i| part.limb(i)[place]);
        (0..RING_DEGREE).map(|place| context.inner.switch.apply(context.basis(), at(place), r)).collect()
    });
    let mut own = vec![0; RING_DEGREE];
    let hat = exact.words_hat(&c1, r).unwrap();
    exact.multiply_into(&hat, &client.secret, &mut own, &mut exact.scratch()).unwrap();
    let (unit, half) = (1u64 << RESPONSE_EXTRA_BITS, RING_DEGREE / 2);
    // Phases whose low bits are far from those of a whole unit.
    let far = |phase: &dyn Fn(usize) -> u64| {
        let low = |i: &usize| (unit / 4..3 * unit / 4).contains(&(phase(*i) & (unit - 1)));
        (0..RING_DEGREE).filter(low).count()
    };
    // Six deviations of fair coins.
    assert!(far(&|i| own[i]).abs_diff(half) < 3 * 91);
    assert_eq!(far(&|i| own[i].wrapping_add(c0[i])), 0);
}
