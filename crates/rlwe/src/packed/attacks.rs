//! What a client can compute about weights from answers when a cure is left out, and cannot when it is not (facts 1 and 2 of `docs/two-party.md`).
//!
//! The weights are a 2x2 kernel in its places (0, 1, W, W + 1 of one polynomial), 8 bits each; the client is semi-honest: it
//! knows its keys, masks, errors and shares, and what it received.

use super::*;
use hushnet_ring::{low_mask, sample, Prg};

const N: usize = 2048;
const WIDTH: usize = 37;
const PLACES: [usize; 4] = [0, 1, WIDTH, WIDTH + 1];
const RING_BITS: u32 = 34;
const LARGEST: i64 = 127;

struct World {
    context: PackedContext,
    params: PackedParams,
    client: PackedClient,
    server: PackedServer,
    weights: WeightPoly,
    prg: Prg,
}

/// What is left out, and what is sent that should stay.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Nothing: the server as it is.
    None,
    /// c1 is not re-randomised.
    Bare,
    /// c0 travels, less a multiple of 2^r / t that hides the result and not the noise.
    MaskedResult,
    /// c0 travels.
    Phase,
}

/// What the client knows after a query.
struct View {
    /// c1 of the request, in coefficient form.
    mask: Vec<u64>,
    /// Error of the encryption plus rounding of the client's share.
    error: Vec<f64>,
    c1: Vec<u64>,
    c0: Vec<u64>,
}

impl World {
    fn new(kernel: [i64; 4]) -> Self {
        let context = PackedContext::new(N).unwrap();
        let weight_l2 = 2.0 * LARGEST as f64;
        let params = PackedSpec { ring_degree: N, ring_bits: RING_BITS, weight_l2 }.choose().unwrap();
        let mut prg = Prg::from_seed([9; 16]);
        let client = PackedClient::generate(&context, &mut prg).unwrap();
        let key = client.public_key(&[5; 32], &mut prg).unwrap();
        let server = PackedServer::new(&context, &key).unwrap();
        let mut poly = vec![0; N];
        PLACES.iter().zip(kernel).for_each(|(at, w)| poly[*at] = w);
        let weights = WeightPoly::new(&context, &poly).unwrap();
        Self { context, params, client, server, weights, prg }
    }

    fn query(&mut self, number: u32, fault: Fault) -> View {
        let p = self.context.prime();
        let mut random = || -> Vec<u64> {
            let mut v = vec![0; N];
            self.prg.fill_words(&mut v);
            v.iter_mut().for_each(|x| *x &= low_mask(RING_BITS));
            v
        };
        let (ours, theirs) = (random(), random());
        let (mut mask, mut c0, mut seed) = (vec![0; N], vec![0; N], [0; 16]);
        self.context.mask_hat(&[5; 32], 1, number, &mut mask).unwrap();
        seed[..4].copy_from_slice(&number.to_le_bytes());
        self.client.encrypt_into(&self.params, &mask, &ours, &mut Prg::from_seed(seed), &mut c0).unwrap();
        let mut e = vec![0i8; N];
        sample::centred_binomial(&mut Prg::from_seed(seed), &mut e);
        let rounding = |x: u64| {
            let twice = (u128::from(x) * u128::from(p)) & u128::from(low_mask(RING_BITS));
            let part = twice as f64 / f64::from(RING_BITS).exp2();
            if part >= 0.5 {
                1.0 - part
            } else {
                -part
            }
        };
        let error = e.iter().zip(&ours).map(|(e, x)| f64::from(*e) + rounding(*x)).collect();
        self.server.absorb(&self.params, &theirs, &mut c0).unwrap();
        let (mut s0, mut s1) = (vec![0; N], vec![0; N]);
        self.server.combine(&[&c0], &[&mask], &[&self.weights], &mut s0, &mut s1).unwrap();
        let places: Vec<usize> = (0..N).collect();
        let (mut values, mut own) = (vec![0; N], vec![0; N]);
        let (params, prg) = (&self.params, &mut self.prg);
        if fault == Fault::Bare {
            self.context.ntt().inverse(&mut s0).unwrap();
            self.context.ntt().inverse(&mut s1).unwrap();
        } else {
            self.server.rerandomise(prg, &mut s0, &mut s1).unwrap();
        }
        self.server.part(params, &s0, &mut s1, &places, &mut own);
        if matches!(fault, Fault::MaskedResult | Fault::Phase) {
            let r = params.response_bits();
            prg.fill_words(&mut own);
            let hidden = if fault == Fault::Phase { 0 } else { !low_mask(r - params.ring_bits()) };
            let switch = Switch::new(p, r);
            let sent = |(c, mask): (&u64, &u64)| switch.apply(*c).wrapping_sub(mask & hidden) & low_mask(r);
            values = s0.iter().zip(&own).map(sent).collect();
        }
        self.context.ntt().inverse(&mut mask).unwrap();
        View { mask, error, c1: s1, c0: values }
    }

    /// With whole requests and ten more bits in answers than shares have: roundings then hide nothing that is not to be sent.
    fn fine(mut self) -> Self {
        (self.params.request_bits, self.params.response_bits) = (PRIME_BITS, RING_BITS + 10);
        self
    }

    /// The phase of an answer, modulo 2^r, where c0 was sent; else the client's part of it.
    fn phase(&self, view: &View) -> Vec<u64> {
        let exact = &self.context.inner.exact;
        let r = self.params.response_bits();
        let (mut product, hat) = (vec![0; N], exact.words_hat(&view.c1, r).unwrap());
        exact.multiply_into(&hat, &self.client.secret, &mut product, &mut exact.scratch()).unwrap();
        product.iter().zip(&view.c0).map(|(x, c)| x.wrapping_add(*c) & low_mask(r)).collect()
    }
}

/// Coefficient `at` of `X^shift a` modulo X^N + 1 and p.
fn shifted(a: &[u64], shift: usize, at: usize, p: u64) -> u64 {
    if at >= shift {
        a[at - shift]
    } else {
        sub_mod(0, a[at + N - shift], p)
    }
}

/// Distance on the circle of p.
fn distance(a: u64, b: u64, p: u64) -> u64 {
    let d = sub_mod(a, b, p);
    d.min(p - d)
}

/// Fact 1: `c1_out = sum_k w_k X^k c1` with known c1 and few small unknowns, up to the rounding of the switch. The sums of the first
/// two taps are sorted, those of the other two looked up; a second coefficient confirms. All kernels that fit.
fn solve_from_c1(world: &World, view: &View) -> Vec<[i64; 4]> {
    let (p, r) = (world.context.prime(), world.params.response_bits());
    let lift = |c: u64| ((u128::from(c) * u128::from(p)) >> r) as u64 % p;
    // one unit of 2^r, and what lifting cuts off
    let slack = (p >> r) + 2;
    let sum = |at: usize, k: usize, w: i64| {
        let a = shifted(&view.mask, PLACES[k], at, p);
        (u128::from(a) * u128::from(signed_mod(w, p)) % u128::from(p)) as u64
    };
    let pairs = || (-LARGEST..=LARGEST).flat_map(|a| (-LARGEST..=LARGEST).map(move |b| (a, b)));
    let (first, second) = (100, 1000);
    let mut table: Vec<(u64, i64, i64)> =
        pairs().map(|(a, b)| (add_mod(sum(first, 0, a), sum(first, 1, b), p), a, b)).collect();
    table.sort_unstable();
    let (goal, check) = (lift(view.c1[first]), lift(view.c1[second]));
    let mut found = Vec::new();
    for (c, d) in pairs() {
        let rest = sub_mod(goal, add_mod(sum(first, 2, c), sum(first, 3, d), p), p);
        let from = table.partition_point(|t| t.0 + slack < rest);
        for &(_, a, b) in table[from..].iter().take_while(|t| t.0 <= rest + slack) {
            let kernel = [a, b, c, d];
            let whole = kernel.iter().enumerate().fold(0, |s, (k, w)| add_mod(s, sum(second, k, *w), p));
            if distance(whole, check, p) <= slack {
                found.push(kernel);
            }
        }
    }
    found
}

#[test]
fn without_rerandomisation_c1_gives_the_weights() {
    let kernel = [101, -57, -127, 6];
    let mut world = World::new(kernel);
    let view = world.query(0, Fault::Bare);
    assert_eq!(solve_from_c1(&world, &view), [kernel]);
    // With it, no kernel at all fits what the client sees.
    for number in 1..4 {
        let view = world.query(number, Fault::None);
        assert!(solve_from_c1(&world, &view).is_empty());
    }
}

/// Fact 2: the part of the phase below 2^r / t is the noise `sum_k w_k X^k (e + rounding) + ...`, a known linear form: least
/// squares over all coefficients of all answers.
fn solve_from_noise(world: &mut World, fault: Fault, queries: u32) -> [f64; 4] {
    let (p, r) = (world.context.prime(), world.params.response_bits());
    let unit = p as f64 / f64::from(r).exp2();
    let part = 1i64 << (r - RING_BITS);
    let (mut normal, mut right) = ([[0.0; 4]; 4], [0.0; 4]);
    for number in 0..queries {
        let view = world.query(number, fault);
        for (at, phase) in world.phase(&view).iter().enumerate() {
            let low = (*phase as i64 + part / 2).rem_euclid(part) - part / 2;
            let noise = low as f64 * unit;
            let row = PLACES.map(|k| if at >= k { view.error[at - k] } else { -view.error[at + N - k] });
            for i in 0..4 {
                (0..4).for_each(|j| normal[i][j] += row[i] * row[j]);
                right[i] += row[i] * noise;
            }
        }
    }
    eliminate(normal, right)
}

fn eliminate(mut a: [[f64; 4]; 4], mut b: [f64; 4]) -> [f64; 4] {
    for i in 0..4 {
        for j in 0..4 {
            if i != j {
                let factor = a[j][i] / a[i][i];
                let row = a[i];
                a[j].iter_mut().zip(row).for_each(|(x, y)| *x -= factor * y);
                b[j] -= factor * b[i];
            }
        }
    }
    std::array::from_fn(|i| b[i] / a[i][i])
}

#[test]
fn where_c0_is_sent_noise_gives_the_weights() {
    let kernel = [101, -57, -127, 6];
    let wanted = kernel.map(|w| w as f64);
    let mut world = World::new(kernel).fine();
    // Even a mask that hides the result perfectly, and re-randomisation, do not help.
    for fault in [Fault::MaskedResult, Fault::Phase] {
        let found = solve_from_noise(&mut world, fault, 400);
        assert_eq!(found.map(f64::round), wanted, "{fault:?}: {found:?}");
    }
    // Of c1 alone the client's part is uniform: estimates are a few units of chance around zero, whatever the weights.
    for mut world in [world, World::new(kernel)] {
        let found = solve_from_noise(&mut world, Fault::None, 400);
        let unit = world.context.prime() as f64 / f64::from(RING_BITS).exp2();
        let chance = unit / 12f64.sqrt() / (400.0 * N as f64 * ERROR_VARIANCE).sqrt();
        assert!(found.iter().all(|w| w.abs() < 6.0 * chance), "{found:?}, deviation {chance}");
        assert!(6.0 * chance < 50.0);
    }
}
