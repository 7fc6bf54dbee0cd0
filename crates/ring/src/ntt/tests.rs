use super::*;
use crate::prime::{mul_mod, pow_mod, primes_near};
use crate::Prg;

fn random_poly(prg: &mut Prg, n: usize, p: u64) -> Vec<u64> {
    let mut a = vec![0; n];
    prg.fill_words(&mut a);
    a.iter().map(|w| w % p).collect()
}

fn schoolbook(a: &[u64], b: &[u64], p: u64) -> Vec<u64> {
    let n = a.len();
    let mut c = vec![0; n];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            let t = mul_mod(*x, *y, p);
            let k = (i + j) % n;
            c[k] = if i + j < n { (c[k] + t) % p } else { (c[k] + p - t) % p };
        }
    }
    c
}

#[test]
fn products_equal_schoolbook_on_every_path() {
    let mut prg = Prg::from_seed([4; 16]);
    for log_n in 3..=9 {
        let n = 1 << log_n;
        for bits in [20, 30, 40, 49, 50, 51, 55, 60, 61] {
            let p = primes_near(bits, n, 2).unwrap()[1];
            let (a, b) = (random_poly(&mut prg, n, p), random_poly(&mut prg, n, p));
            let expected = schoolbook(&a, &b, p);
            for isa in simd::available() {
                let ntt = Ntt::with_isa(n, p, isa).unwrap();
                let (mut x, mut y) = (a.clone(), b.clone());
                ntt.forward(&mut x).unwrap();
                ntt.forward(&mut y).unwrap();
                ntt.multiply_slots(&mut x, &y).unwrap();
                ntt.inverse(&mut x).unwrap();
                assert_eq!(x, expected, "N={n} p={p} {isa:?}");
            }
        }
    }
}

#[test]
fn values_below_four_times_the_prime_are_as_good_as_residues() {
    let (mut prg, n) = (Prg::from_seed([6; 16]), 512);
    for isa in simd::available() {
        for bits in [31, 48, 50] {
            // The largest prime below 2^50, too: 4p is nearly 2^52 there.
            let p = primes_near(bits, n, 2).unwrap().into_iter().filter(|p| *p < 1 << bits).max().unwrap();
            let ntt = Ntt::with_isa(n, p, isa).unwrap();
            let loose = ntt.is_loose();
            let a = random_poly(&mut prg, n, p);
            let larger = |(i, x): (usize, &u64)| if loose { x + (i as u64 % 4) * p } else { *x };
            for part in [
                a.iter().enumerate().map(larger).collect::<Vec<_>>(),
                vec![if loose { 4 * p - 1 } else { p - 1 }; n],
            ] {
                let mut expected: Vec<u64> = part.iter().map(|x| x % p).collect();
                let (mut canonical, mut got) = (part.clone(), part);
                ntt.forward(&mut expected).unwrap();
                ntt.forward(&mut canonical).unwrap();
                ntt.forward_loose(&mut got).unwrap();
                assert!(canonical == expected, "p={p} {isa:?}");
                assert!(got.iter().zip(&expected).all(|(x, y)| *x < 4 * p && x % p == *y), "p={p} {isa:?}");
            }
        }
    }
}

#[test]
fn slots_hold_the_values_that_slot_exponent_says() {
    let mut prg = Prg::from_seed([5; 16]);
    for n in [8, 32, 64, 128, 512] {
        let p = primes_near(50, n, 1).unwrap()[0];
        let psi = primitive_root(n, p).unwrap();
        let a = random_poly(&mut prg, n, p);
        for isa in simd::available() {
            let ntt = Ntt::with_isa(n, p, isa).unwrap();
            let mut x = a.clone();
            ntt.forward(&mut x).unwrap();
            let mut seen = std::collections::HashSet::new();
            for (i, value) in x.iter().enumerate() {
                let e = ntt.slot_exponent(i);
                assert!(e % 2 == 1 && e < 2 * n && seen.insert(e));
                let point = pow_mod(psi, e as u64, p);
                let expected = a.iter().rev().fold(0, |v, c| (mul_mod(v, point, p) + c) % p);
                assert_eq!(*value, expected, "N={n} slot {i} {isa:?}");
            }
        }
    }
}

#[test]
fn the_last_levels_make_the_transform_of_a_short_polynomial_repeated() {
    let mut prg = Prg::from_seed([6; 16]);
    for n in [8, 64, 128, 512, 2048] {
        for bits in [30, 50, 60] {
            let p = primes_near(bits, n, 1).unwrap()[0];
            let mut length = 8;
            while length <= n {
                let short = random_poly(&mut prg, length, p);
                for isa in simd::available() {
                    let ntt = Ntt::with_isa(n, p, isa).unwrap();
                    let mut whole = vec![0; n];
                    whole[..length].copy_from_slice(&short);
                    ntt.forward(&mut whole).unwrap();
                    let mut repeated = short.repeat(n / length);
                    ntt.forward_from(n / length, &mut repeated).unwrap();
                    assert_eq!(whole, repeated, "N={n} p={p} {length} {isa:?}");
                    assert!(ntt.forward_from(n / 4, &mut repeated).is_err());
                    assert!(ntt.forward_from(3, &mut repeated).is_err());
                    assert!(ntt.forward_from(1, &mut repeated[1..]).is_err());
                }
                length *= 2;
            }
        }
    }
}

#[test]
fn all_paths_give_the_same_bits_and_undo_themselves() {
    let mut prg = Prg::from_seed([6; 16]);
    let sizes = (3..=16).map(|l| (Ring::Cyclotomic, 1 << l));
    for (ring, n) in sizes.chain((3..=15).map(|l| (Ring::ConjugateInvariant, 1 << l))) {
        for bits in [25, 26, 27, 32, 40, 50, 61] {
            let p = primes_near(bits, ring.order(n) / 2, 1).unwrap()[0];
            let turns = (0..n as u64).map(|i| i % 2 * (p - 1)).collect();
            for a in [random_poly(&mut prg, n, p), vec![p - 1; n], turns, vec![0; n]] {
                let mut reference = None;
                for isa in simd::available() {
                    let ntt = Ntt::of_ring(ring, n, p, isa).unwrap();
                    let mut x = a.clone();
                    ntt.forward(&mut x).unwrap();
                    assert!(x.iter().all(|&v| v < p));
                    assert_eq!(*reference.get_or_insert_with(|| x.clone()), x, "N={n} p={p} {isa:?}");
                    ntt.inverse(&mut x).unwrap();
                    assert_eq!(x, a, "N={n} p={p} {isa:?}");
                }
            }
        }
    }
}

/// The product in the basis 1, X^t + X^-t.
fn invariant_schoolbook(a: &[u64], b: &[u64], p: u64) -> Vec<u64> {
    let n = a.len();
    let (half, mut c) = (inv_mod(2, p), vec![0; n]);
    // 1 is half of X^0 + X^-0; X^N + X^-N = 0; X^2N = -1.
    let mut add = |e: usize, v: u64| match e {
        0 => c[0] = (c[0] + 2 * v) % p,
        e if e < n => c[e] = (c[e] + v) % p,
        e if e > n => c[2 * n - e] = (c[2 * n - e] + p - v) % p,
        _ => {}
    };
    for (s, x) in a.iter().enumerate() {
        for (t, y) in b.iter().enumerate() {
            let own = |at: usize, v: u64| if at == 0 { mul_mod(v, half, p) } else { v };
            let v = mul_mod(own(s, *x), own(t, *y), p);
            add(s + t, v);
            add(s.abs_diff(t), v);
        }
    }
    c
}

#[test]
fn the_conjugate_invariant_ring_multiplies_slotwise_on_every_path() {
    let mut prg = Prg::from_seed([7; 16]);
    for log_n in 3..=9 {
        let n = 1 << log_n;
        for bits in [20, 32, 40, 50, 51, 61] {
            let p = primes_near(bits, 2 * n, 1).unwrap()[0];
            let (a, b) = (random_poly(&mut prg, n, p), random_poly(&mut prg, n, p));
            let expected = invariant_schoolbook(&a, &b, p);
            let psi = primitive_root(2 * n, p).unwrap();
            let mut reference = None;
            for isa in simd::available() {
                let ntt = Ntt::of_ring(Ring::ConjugateInvariant, n, p, isa).unwrap();
                assert_eq!(ntt.ring(), Ring::ConjugateInvariant);
                let (mut x, mut y) = (a.clone(), b.clone());
                ntt.forward(&mut x).unwrap();
                ntt.forward(&mut y).unwrap();
                assert_eq!(*reference.get_or_insert_with(|| x.clone()), x);
                for (i, value) in x.iter().enumerate().step_by(7) {
                    let e = ntt.slot_exponent(i);
                    assert_eq!(e % 4, 1);
                    let at = |t: usize| {
                        (pow_mod(psi, (e * t) as u64, p) + pow_mod(psi, (4 * n - e * t % (4 * n)) as u64, p))
                            % p
                    };
                    let expected =
                        a.iter().enumerate().skip(1).fold(a[0], |v, (t, c)| (v + mul_mod(*c, at(t), p)) % p);
                    assert_eq!(*value, expected, "N={n} slot {i} {isa:?}");
                }
                ntt.multiply_slots(&mut x, &y).unwrap();
                ntt.inverse(&mut x).unwrap();
                assert_eq!(x, expected, "N={n} p={p} {isa:?}");
            }
        }
    }
}

#[test]
fn wrong_degrees_moduli_and_lengths_are_refused() {
    assert!(matches!(Ntt::new(4, 17), Err(RingError::RingDegree(4))));
    assert!(matches!(Ntt::new(1 << 17, 17), Err(RingError::RingDegree(_))));
    assert!(matches!(Ntt::new(16, 17), Err(RingError::Modulus { .. })));
    let of = |n, p| Ntt::of_ring(Ring::ConjugateInvariant, n, p, Isa::Portable);
    assert!(matches!(of(1 << 16, 17), Err(RingError::RingDegree(_))));
    // 1 mod 2N, but not mod 4N
    assert!(matches!(of(8, 17), Err(RingError::Modulus { .. })) && of(8, 97).is_ok());
    let ntt = Ntt::new(8, 17).unwrap();
    assert!(matches!(ntt.forward(&mut [0; 7]), Err(RingError::Length { .. })));
    assert!(matches!(ntt.inverse(&mut [0; 9]), Err(RingError::Length { .. })));
}

/// The transforms of WebAssembly are compiled here for this test alone: they return the portable bits, at the edges of their ranges as well.
#[test]
fn transforms_in_doubles_equal_the_portable_ones() {
    let mut prg = Prg::from_seed([8; 16]);
    for log_n in 3..=13 {
        let n = 1 << log_n;
        for bits in [20, 36, 49, 50] {
            let p = primes_near(bits, n, 1).unwrap()[0];
            let psi = primitive_root(n, p).unwrap();
            let powers = [bit_reversed_powers(n, p, psi), bit_reversed_powers(n, p, inv_mod(psi, p))];
            let portable = portable::Tables::new(p, &powers[0], &powers[1]);
            let doubles = doubles::Tables::new(p, &powers[0], &powers[1]);
            let quotients = portable::Quotients::<64>::new(p);
            let factor = random_poly(&mut prg, n, p);
            let edge: Vec<u64> =
                (0..n as u64).map(|i| [p - 1, p / 2, 0, p / 2 + 1][i as usize % 4]).collect();
            for a in [random_poly(&mut prg, n, p), vec![p - 1; n], vec![p / 2; n], edge] {
                let (mut x, mut y) = (a.clone(), a.clone());
                portable.forward(1, &mut x);
                doubles.forward(1, &mut y);
                assert_eq!(x, y, "forward, N={n} p={p}");
                portable.inverse(&mut x);
                doubles.inverse(&mut y);
                assert_eq!((&x, &y), (&a, &a), "inverse, N={n} p={p}");
                portable.inverse(&mut x);
                doubles.inverse(&mut y);
                assert_eq!(x, y, "inverse of residues, N={n} p={p}");
                let finish = Finish { subtract: true, shift: 3, mask: u64::MAX >> 5 };
                let (mut work, mut out) = (vec![0; n], [vec![7; n], vec![7; n]]);
                let ratios: Vec<u64> = factor.iter().map(|w| quotients.of(*w)).collect();
                portable.multiply(&a, (&factor, &ratios), &mut work, finish, &mut out[0]);
                let (w, ratios): (Vec<u64>, Vec<u64>) =
                    factor.iter().map(|w| doubles.prepare(*w).into()).unzip();
                doubles.multiply(&a, (&w, &ratios), &mut work, finish, &mut out[1]);
                assert_eq!(out[0], out[1], "product, N={n} p={p}");
            }
        }
    }
}
