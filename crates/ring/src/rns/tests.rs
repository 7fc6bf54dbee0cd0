use super::*;
use crate::prime::primes_near;
use crate::{simd, Prg};
use std::ops::Range;

/// Primes of mixed sizes, smallest to largest, for degree n.
pub(super) fn mixed_primes(n: usize) -> Vec<u64> {
    [20, 30, 30, 45, 50, 50].iter().enumerate().map(|(i, &b)| primes_near(b, n, 6).unwrap()[i]).collect()
}

pub(super) fn random<F: Form>(basis: &RnsBasis, prg: &mut Prg, range: Range<usize>) -> RnsPoly<F> {
    let mut p = basis.zero::<F>(range.clone()).unwrap();
    for i in range {
        let m = basis.moduli()[i];
        uniform_limb(prg, &m, p.limb_mut(i));
        // Edge values in every polynomial, at places that meet each other across operands.
        let q = m.value();
        for (j, v) in [0, q - 1, q - 1, 0, 1, q / 2, q / 2 + 1, q - 2].into_iter().enumerate() {
            p.limb_mut(i)[j] = v;
        }
        p.limb_mut(i).rotate_right(prg_small(prg) % 3);
    }
    p
}

fn prg_small(prg: &mut Prg) -> usize {
    let mut w = [0];
    prg.fill_words(&mut w);
    (w[0] >> 40) as usize
}

/// The signed integer of magnitude at most `S/2` with the residues of coefficient `c` over `range`; exact for S < 2^126.
fn exact(basis: &RnsBasis, a: &RnsPoly<Coef>, range: Range<usize>, c: usize) -> i128 {
    let (mut x, mut product) = (0i128, 1i128);
    for i in range {
        let m = basis.moduli()[i];
        let t = m.mul(m.residue(i128::from(a.limb(i)[c]) - x), m.inv(m.residue(product)));
        x += product * i128::from(t);
        product *= i128::from(m.value());
    }
    if x > product / 2 {
        x - product
    } else {
        x
    }
}

#[test]
fn every_operation_equals_its_definition_on_every_path() {
    for n in [8, 64, 256] {
        let primes = mixed_primes(n);
        for isa in simd::available() {
            let basis = RnsBasis::with_isa(n, &primes, isa).unwrap();
            let mut prg = Prg::from_seed([7; 16]);
            let (a, b) = (random::<Eval>(&basis, &mut prg, 0..6), random::<Eval>(&basis, &mut prg, 0..6));
            let (c, d) = (random::<Eval>(&basis, &mut prg, 0..6), random::<Eval>(&basis, &mut prg, 0..6));
            let words: Vec<u64> = primes.iter().map(|q| q - 3).collect();
            type Case<'a> = (RnsPoly<Eval>, Box<dyn Fn([u64; 4], &Modulus) -> u64>);
            let run = |f: &dyn Fn(&mut RnsPoly<Eval>)| {
                let mut x = a.clone();
                f(&mut x);
                x
            };
            let (mut sum, mut difference) = (a.clone(), b.clone());
            basis.butterfly(&mut sum, &mut difference, &c).unwrap();
            let tensor = basis.tensor([&a, &b], [&c, &d]).unwrap();
            let square = basis.tensor_square([&a, &b]).unwrap();
            let mut piece = [vec![0; 3], vec![0; 3], vec![0; 3]];
            let [x, y, z] = &mut piece;
            basis.square_words(2, [x, y, z], [&a.limb(2)[1..4], &b.limb(2)[1..4]]).unwrap();
            assert!(piece.iter().zip(&square).all(|(p, s)| p[..] == s.limb(2)[1..4]));
            let [x, y, z] = &mut piece;
            assert!(basis.square_words(2, [x, y, z], [&[1], &[1]]).is_err());
            let cases: Vec<Case> = vec![
                (run(&|x| basis.add_assign(x, &b).unwrap()), Box::new(|v, m| (v[0] + v[1]) % m.value())),
                (
                    run(&|x| basis.sub_assign(x, &b).unwrap()),
                    Box::new(|v, m| (v[0] + m.value() - v[1]) % m.value()),
                ),
                (run(&|x| basis.neg_assign(x).unwrap()), Box::new(|v, m| (m.value() - v[0]) % m.value())),
                (run(&|x| basis.mul_assign(x, &b).unwrap()), Box::new(|v, m| m.mul(v[0], v[1]))),
                (basis.product(0..6, &b, &c).unwrap(), Box::new(|v, m| m.mul(v[1], v[2]))),
                (
                    run(&|x| basis.mul_add(x, &b, &c).unwrap()),
                    Box::new(|v, m| (v[0] + m.mul(v[1], v[2])) % m.value()),
                ),
                (
                    run(&|x| basis.mul_sub(x, &b, &c).unwrap()),
                    Box::new(|v, m| (v[0] + m.neg(m.mul(v[1], v[2]))) % m.value()),
                ),
                (sum, Box::new(|v, m| (v[0] + m.mul(v[1], v[2])) % m.value())),
                (difference, Box::new(|v, m| (v[0] + m.neg(m.mul(v[1], v[2]))) % m.value())),
                (
                    run(&|x| basis.scale_assign(x, &words).unwrap()),
                    Box::new(|v, m| m.mul(v[0], m.value() - 3)),
                ),
                (
                    run(&|x| basis.scale_add(x, &b, &words).unwrap()),
                    Box::new(|v, m| (v[0] + m.mul(v[1], m.value() - 3)) % m.value()),
                ),
                (
                    run(&|x| basis.add_constant(x, &words).unwrap()),
                    Box::new(|v, m| (v[0] + m.value() - 3) % m.value()),
                ),
                (tensor[0].clone(), Box::new(|v, m| m.mul(v[0], v[2]))),
                (tensor[1].clone(), Box::new(|v, m| (m.mul(v[0], v[3]) + m.mul(v[1], v[2])) % m.value())),
                (tensor[2].clone(), Box::new(|v, m| m.mul(v[1], v[3]))),
                (square[0].clone(), Box::new(|v, m| m.mul(v[0], v[0]))),
                (square[1].clone(), Box::new(|v, m| 2 * m.mul(v[0], v[1]) % m.value())),
                (square[2].clone(), Box::new(|v, m| m.mul(v[1], v[1]))),
            ];
            for (case, (got, expected)) in cases.iter().enumerate() {
                for i in got.range() {
                    for j in 0..n {
                        let v = [a.limb(i)[j], b.limb(i)[j], c.limb(i)[j], d.limb(i)[j]];
                        let e = expected(v, &basis.moduli()[i]);
                        assert_eq!(got.limb(i)[j], e, "case {case}, {isa:?}, prime {i}, slot {j}");
                    }
                }
            }
        }
    }
}

#[test]
fn lazy_sums_of_many_terms_are_exact_on_every_path() {
    let n = 16;
    let primes = mixed_primes(n);
    for isa in simd::available() {
        let basis = RnsBasis::with_isa(n, &primes, isa).unwrap();
        let mut prg = Prg::from_seed([8; 16]);
        for terms in [1, 2, 14, 15, 16, 30, 31, 40] {
            let mut list =
                || -> Vec<RnsPoly<Eval>> { (0..terms).map(|_| random(&basis, &mut prg, 1..5)).collect() };
            let (x, y, z) = (list(), list(), list());
            let (xr, yr, zr): (Vec<_>, Vec<_>, Vec<_>) =
                (x.iter().collect(), y.iter().collect(), z.iter().collect());
            let out = basis.inner_products(1..5, &xr, [&yr, &zr]).unwrap();
            let words: Vec<Vec<u64>> =
                (0..terms).map(|d| primes.iter().map(|q| q - 1 - d as u64).collect()).collect();
            let word_refs: Vec<&[u64]> = words.iter().map(Vec::as_slice).collect();
            let combined = basis.combine(1..5, &xr, &word_refs).unwrap();
            for (i, m) in basis.moduli().iter().enumerate().take(5).skip(1) {
                for j in 0..n {
                    for (got, list) in out.iter().zip([&y, &z]) {
                        let e =
                            (0..terms).fold(0, |s, d| m.add(s, m.mul(x[d].limb(i)[j], list[d].limb(i)[j])));
                        assert_eq!(got.limb(i)[j], e, "{isa:?} {terms} terms");
                    }
                    let e =
                        (0..terms).fold(0, |s, d| m.add(s, m.mul(x[d].limb(i)[j], primes[i] - 1 - d as u64)));
                    assert_eq!(combined.limb(i)[j], e, "{isa:?} {terms} terms");
                }
            }
        }
    }
}

#[test]
fn conversion_gives_the_centred_representative() {
    let n = 64;
    let primes = mixed_primes(n);
    for isa in simd::available() {
        let basis = RnsBasis::with_isa(n, &primes, isa).unwrap();
        let mut prg = Prg::from_seed([9; 16]);
        for (from, to) in [
            (vec![4], vec![0, 1, 2, 3, 5]),
            (vec![0], vec![4, 5]),
            (vec![1, 2], vec![0, 3, 4, 5]),
            (vec![3, 4], vec![5, 0]),
            (vec![0, 1, 2, 3], vec![4, 5]),
        ] {
            let converter = BaseConverter::new(&basis, &from, &to).unwrap();
            let a = random::<Coef>(&basis, &mut prg, 0..6);
            let mut source: Vec<Vec<u64>> = from.iter().map(|&j| a.limb(j).to_vec()).collect();
            let mut source: Vec<&mut [u64]> = source.iter_mut().map(Vec::as_mut_slice).collect();
            let mut out = vec![vec![0; n]; to.len()];
            let mut targets: Vec<(usize, &mut [u64])> =
                out.iter_mut().map(Vec::as_mut_slice).enumerate().collect();
            converter.convert(&basis, &mut source, &mut targets).unwrap();
            let range = from[0]..from[from.len() - 1] + 1;
            let product: i128 = from.iter().map(|&j| i128::from(primes[j])).product();
            for c in 0..n {
                let x = exact(&basis, &a, range.clone(), c);
                let matches =
                    |x: i128| to.iter().zip(&out).all(|(t, l)| l[c] == basis.moduli()[*t].residue(x));
                // Within binary64's error of S/2 the neighbour of the other sign is as good.
                let edge = from.len() > 1 && 2 * x.abs() > product - (product >> 45);
                assert!(matches(x) || edge && matches(x - x.signum() * product), "{isa:?} {from:?} {x}");
            }
        }
    }
}

#[test]
fn digits_of_slots_are_those_of_coefficients_on_every_path() {
    for n in [64, 8192] {
        let primes = primes_near(49, n, 5).unwrap();
        for isa in simd::available() {
            let basis = RnsBasis::with_isa(n, &primes, isa).unwrap();
            let mut prg = Prg::from_seed([10; 16]);
            let a = random::<Eval>(&basis, &mut prg, 0..3);
            for from in [vec![1], vec![0, 1, 2]] {
                let to: Vec<usize> = (0..5).filter(|i| !from.contains(i)).collect();
                let converter = BaseConverter::new(&basis, &from, &to).unwrap();
                let coefficients = basis.inverse(a.clone()).unwrap();
                let mut words: Vec<u64> = from.iter().flat_map(|&j| coefficients.limb(j)).copied().collect();
                let mut room = vec![7; words.len()];
                let plain = Digit::new(&basis, &converter, &a, &mut words).unwrap();
                let fused = Digit::of_slots(&basis, &converter, &a, &mut room).unwrap();
                assert!(
                    plain.raise(&basis, 0..5).unwrap() == fused.raise(&basis, 0..5).unwrap(),
                    "{n} {isa:?}"
                );
            }
            // Two digits whose primes take turns, with room to spare, and what a switch makes of them.
            let converters = [(vec![0, 1], vec![2, 3, 4]), (vec![2], vec![0, 1, 3, 4])]
                .map(|(from, to)| BaseConverter::new(&basis, &from, &to).unwrap());
            let mut rooms = converters.each_ref().map(|c| vec![0; n * c.from().len()]);
            let digits: Vec<Digit<'_>> = converters
                .iter()
                .zip(&mut rooms)
                .map(|(c, room)| Digit::of_slots(&basis, c, &a, room).unwrap())
                .collect();
            let mut all = vec![1; 2 * 5 * n];
            Digit::all_others(&digits, &basis, 1..5, 5 * n, &mut all).unwrap();
            let raised: Vec<_> = digits.iter().map(|d| d.raise(&basis, 0..5).unwrap()).collect();
            for (d, one) in raised.iter().enumerate() {
                for i in 1..5 {
                    let made = &all[(5 * d + i - 1) * n..][..n];
                    let p = basis.moduli()[i].value();
                    assert!(made.iter().all(|w| *w < 4 * p), "{n} {isa:?} digit {d} prime {i}");
                    let residues: Vec<u64> = digits[d].limb(i, made).iter().map(|w| w % p).collect();
                    assert!(residues == one.limb(i), "{n} {isa:?} digit {d} prime {i}");
                    let loose = basis.transform(i).is_loose();
                    assert!(
                        loose || digits[d].limb(i, made) == one.limb(i),
                        "{n} {isa:?} digit {d} prime {i}"
                    );
                }
            }
            assert!(Digit::all_others(&digits, &basis, 0..5, 4 * n, &mut all[..8 * n]).is_err());
            // Of more digits than lazy sums have room for, all values are residues.
            let single: Vec<_> = (0..4)
                .map(|j| {
                    let to: Vec<usize> = (0..5).filter(|i| *i != j).collect();
                    BaseConverter::new(&basis, &[j], &to).unwrap()
                })
                .collect();
            let (whole, mut rooms) = (random::<Eval>(&basis, &mut prg, 0..5), vec![vec![0; n]; 4]);
            let four: Vec<Digit<'_>> = single
                .iter()
                .zip(&mut rooms)
                .map(|(c, room)| Digit::of_slots(&basis, c, &whole, room).unwrap())
                .collect();
            let mut all = vec![1; 4 * 5 * n];
            Digit::all_others(&four, &basis, 0..5, 5 * n, &mut all).unwrap();
            for (d, digit) in four.iter().enumerate() {
                let one = digit.raise(&basis, 0..5).unwrap();
                for i in 0..5 {
                    let made = &all[(5 * d + i) * n..][..n];
                    assert!(digit.limb(i, made) == one.limb(i), "{n} {isa:?} digit {d} of four, prime {i}");
                }
            }
            let key: Vec<_> = (0..4).map(|_| random::<Eval>(&basis, &mut prg, 0..5)).collect();
            let switched = switch_digits(&basis, 0..5, &digits, [&key[..2], &key[2..]]).unwrap();
            for (sum, half) in switched.iter().zip(key.chunks(2)) {
                let mut expected = basis.zero::<Eval>(0..5).unwrap();
                raised.iter().zip(half).for_each(|(x, k)| basis.mul_add(&mut expected, x, k).unwrap());
                assert!(*sum == expected, "{n} {isa:?}");
            }
            let converter = BaseConverter::new(&basis, &[0, 1], &[2]).unwrap();
            assert!(Digit::of_slots(&basis, &converter, &a, &mut vec![0; n]).is_err());
        }
    }
}

#[test]
fn division_rounds_to_the_nearest_integer() {
    let n = 64;
    let primes = mixed_primes(n);
    for isa in simd::available() {
        let basis = RnsBasis::with_isa(n, &primes, isa).unwrap();
        let mut prg = Prg::from_seed([10; 16]);
        for (by, to, all) in
            [(vec![2], 0..2, 0..3), (vec![0], 1..3, 0..3), (vec![0, 1], 2..4, 0..4), (vec![0, 3], 1..3, 0..4)]
        {
            let a = random::<Coef>(&basis, &mut prg, all.clone());
            let evaluated = basis.forward(a.clone()).unwrap();
            let divider = Divider::new(&basis, &by, to.clone()).unwrap();
            let quotient = divider.divide(&basis, &evaluated).unwrap();
            assert_eq!(quotient.range(), to);
            let other = random::<Eval>(&basis, &mut prg, all.clone());
            let both = divider.divide_each(&basis, [&other, &evaluated]).unwrap();
            assert!(both[0] == divider.divide(&basis, &other).unwrap() && both[1] == quotient);
            match divider.divide_in_place(&basis, evaluated) {
                Ok(same) => assert!(same == quotient && to.start == 0),
                Err(error) => assert!(matches!(error, RnsError::Limbs { .. }) && to.start > 0),
            }
            let quotient = basis.inverse(quotient).unwrap();
            let divisor: i128 = by.iter().map(|&j| i128::from(primes[j])).product();
            for c in 0..n {
                let x = exact(&basis, &a, all.clone(), c);
                // Odd divisor: no ties; but within binary64's error of one, both neighbours are as good.
                let expected = (2 * x + divisor).div_euclid(2 * divisor);
                let got = exact(&basis, &quotient, to.clone(), c);
                let width: i128 = to.clone().map(|j| i128::from(primes[j])).product();
                let rest = x - expected * divisor;
                let edge = by.len() > 1 && 2 * rest.abs() > divisor - (divisor >> 45);
                let off = |e: i128| (got - e).rem_euclid(width) == 0;
                assert!(
                    off(expected) || edge && off(expected + rest.signum()),
                    "{isa:?} {by:?} coefficient {c}"
                );
            }
        }
    }
}

#[test]
fn reals_are_the_centred_integers() {
    let n = 64;
    let primes = mixed_primes(n);
    let basis = RnsBasis::new(n, &primes).unwrap();
    let mut prg = Prg::from_seed([11; 16]);
    for range in [0..1, 1..3, 0..4, 3..5, 4..6] {
        let a = random::<Coef>(&basis, &mut prg, range.clone());
        let reals = basis.to_reals(&a).unwrap();
        for (c, r) in reals.iter().enumerate() {
            let x = exact(&basis, &a, range.clone(), c) as f64;
            assert!((r - x).abs() <= x.abs() * 2f64.powi(-51), "{range:?}: {r} is not {x}");
        }
    }
    // Small numbers across many primes come out exactly.
    let small: Vec<u64> = (0..n as i64).map(|i| ((i - 32) * 1_234_567_891_011) as u64).collect();
    let reals = basis.to_reals(&basis.from_signed(&small, 0..6).unwrap()).unwrap();
    assert!(reals.iter().zip(&small).all(|(r, s)| *r == *s as i64 as f64));
}

#[test]
fn signed_words_of_every_size_reduce_on_every_path() {
    let n = 32;
    let primes = mixed_primes(n);
    let limit = (1i64 << 52) - 1;
    let mut values: Vec<i64> = vec![0, 1, -1, limit, -limit, limit - 1];
    values.extend(primes.iter().flat_map(|&q| [q as i64, -(q as i64), q as i64 - 1]));
    values.resize(n, -5);
    let words: Vec<u64> = values.iter().map(|v| *v as u64).collect();
    for isa in simd::available() {
        let basis = RnsBasis::with_isa(n, &primes, isa).unwrap();
        let p = basis.from_signed(&words, 0..6).unwrap();
        for i in 0..6 {
            for (got, v) in p.limb(i).iter().zip(&values) {
                assert_eq!(*got, basis.moduli()[i].residue(i128::from(*v)), "{isa:?} {v}");
            }
        }
    }
}

#[test]
fn wrapped_integers_reduce_on_every_path() {
    let primes = mixed_primes(16);
    let mut prg = Prg::from_seed([14; 16]);
    for isa in simd::available() {
        let basis = RnsBasis::with_isa(16, &primes, isa).unwrap();
        for bits in [1, 2, 31, 32, 33, 52, 53, 63, 64] {
            let mut words = vec![0; 19];
            prg.fill_words(&mut words);
            words.extend([0, 1, u64::MAX, 1 << (bits - 1), (1 << (bits - 1)) - 1]);
            words.iter_mut().for_each(|w| *w &= crate::low_mask(bits));
            for (i, m) in basis.moduli().iter().enumerate() {
                let mut got = words.clone();
                basis.residues_of_wrapped(&mut got, bits, i).unwrap();
                for (g, w) in got.iter().zip(&words) {
                    let v = i128::from(*w) - (i128::from(*w >> (bits - 1)) << bits);
                    assert_eq!(*g, m.residue(v), "{isa:?} {bits} bits, {v}");
                }
            }
        }
        assert!(basis.residues_of_wrapped(&mut [], 65, 0).is_err());
        assert!(basis.residues_of_wrapped(&mut [], 64, 6).is_err());
    }
}

#[test]
fn automorphisms_agree_in_both_forms_and_with_the_definition() {
    for n in [8, 64, 128] {
        let basis = RnsBasis::new(n, &mixed_primes(n)[1..4]).unwrap();
        let mut prg = Prg::from_seed([12; 16]);
        let a = random::<Coef>(&basis, &mut prg, 0..3);
        for g in [1, 3, 5, 25, 2 * n - 1, 2 * n + 5] {
            let auto = Automorphism::new(&basis, g).unwrap();
            assert_eq!(auto.exponent(), g % (2 * n));
            let image = auto.apply_coef(&basis, &a).unwrap();
            for i in 0..3 {
                let m = basis.moduli()[i];
                for c in 0..n {
                    let to = c * g % (2 * n);
                    let v = a.limb(i)[c];
                    assert_eq!(image.limb(i)[to % n], if to < n { v } else { m.neg(v) });
                }
            }
            let evaluated = auto.apply_eval(&basis, &basis.forward(a.clone()).unwrap()).unwrap();
            assert!(basis.forward(image).unwrap() == evaluated, "N={n} g={g}");
            let (x, y) = (random::<Eval>(&basis, &mut prg, 0..3), random::<Eval>(&basis, &mut prg, 0..2));
            let (mut fused, mut plain) = (y.clone(), y.clone());
            let argument = basis.forward(a.clone()).unwrap();
            auto.mul_add_eval(&basis, &mut fused, &argument, &x).unwrap();
            basis.mul_add(&mut plain, &evaluated, &x).unwrap();
            assert!(fused == plain, "N={n} g={g}");
            let (mut fused, mut plain) = (y.clone(), y);
            for i in 0..2 {
                auto.add_words(&basis, i, fused.limb_mut(i), argument.limb(i)).unwrap();
            }
            basis.add_assign(&mut plain, &evaluated).unwrap();
            assert!(fused == plain, "N={n} g={g}");
            assert!(auto.add_words(&basis, 0, &mut [0], argument.limb(0)).is_err());
        }
        assert_eq!(Automorphism::new(&basis, 2).err(), Some(RnsError::Exponent(2)));
    }
}

#[test]
fn misuse_is_a_typed_error() {
    let primes = mixed_primes(16);
    let basis = RnsBasis::new(16, &primes).unwrap();
    assert_eq!(RnsBasis::new(16, &[]).err(), Some(RnsError::Empty));
    assert_eq!(
        RnsBasis::new(16, &[primes[0], primes[1], primes[0]]).err(),
        Some(RnsError::Repeated(primes[0]))
    );
    assert!(RnsBasis::new(24, &primes).is_err() && RnsBasis::new(16, &[101]).is_err());
    assert!(basis.zero::<Eval>(3..7).is_err() && basis.zero::<Eval>(3..3).is_err());
    let (mut whole, part) = (basis.zero::<Eval>(0..6).unwrap(), basis.zero::<Eval>(0..3).unwrap());
    assert_eq!(basis.add_assign(&mut whole, &part), Err(RnsError::Limbs { needed: 0..6, got: 0..3 }));
    let other = RnsBasis::new(32, &mixed_primes(32)).unwrap().zero::<Eval>(0..6).unwrap();
    assert_eq!(basis.add_assign(&mut whole, &other), Err(RnsError::Degree { expected: 16, got: 32 }));
    assert!(basis.scale_assign(&mut whole, &[1, 2]).is_err());
    assert!(basis.combine::<Eval>(0..6, &[], &[&[1]]).is_err());
    assert!(
        BaseConverter::new(&basis, &[], &[1]).is_err() && BaseConverter::new(&basis, &[9], &[1]).is_err()
    );
    assert!(Divider::new(&basis, &[5], 0..5).unwrap().divide(&basis, &part).is_err());
    assert!(basis.from_signed(&[0; 5], 0..2).is_err());
    whole.truncate(2);
    assert_eq!((whole.range(), whole.words().len()), (0..2, 32));
    assert!(whole.slice(1..3).is_none() && whole.slice(1..2).is_some());
}

#[test]
fn many_sums_at_once_equal_products_one_by_one_on_every_path() {
    for (n, lists) in [
        (32, vec![vec![0u32], vec![], vec![2, 0, 2, 1]]),
        (128, vec![(0..37).map(|t| t % 5).collect::<Vec<u32>>(), vec![4, 4]]),
    ] {
        let primes = mixed_primes(n);
        for isa in simd::available() {
            let basis = RnsBasis::with_isa(n, &primes, isa).unwrap();
            let mut prg = Prg::from_seed([3; 16]);
            let pairs: Vec<[RnsPoly<Eval>; 2]> = (0..5)
                .map(|_| [random::<Eval>(&basis, &mut prg, 0..6), random::<Eval>(&basis, &mut prg, 0..6)])
                .collect();
            for (range, gap) in [(0..6, 1), (1..4, 1), (0..6, 2), (1..4, 4), (0..6, 8)] {
                if gap > 1 && n < 64 {
                    assert!(PlainTerms::new(&basis, range, gap, lists.clone()).is_err());
                    continue;
                }
                let mut terms = PlainTerms::new(&basis, range.clone(), gap, lists.clone()).unwrap();
                let mut expected = Vec::new();
                for (k, list) in lists.iter().enumerate() {
                    let zero = || basis.zero::<Eval>(range.clone()).unwrap();
                    let mut sums = [zero(), zero()];
                    for (t, &pair) in list.iter().enumerate() {
                        let mut p = random::<Coef>(&basis, &mut prg, 0..6);
                        for i in 0..6 {
                            let limb = p.limb_mut(i).iter_mut().enumerate();
                            limb.filter(|(k, _)| k % gap != 0).for_each(|(_, w)| *w = 0);
                        }
                        let p = basis.forward(p).unwrap();
                        terms.set(k, t, &p).unwrap();
                        for (sum, x) in sums.iter_mut().zip(&pairs[pair as usize]) {
                            basis.mul_add(sum, x, &p).unwrap();
                        }
                    }
                    expected.push(sums);
                }
                let x: Vec<[&RnsPoly<Eval>; 2]> = pairs.iter().map(|[a, b]| [a, b]).collect();
                assert!(basis.plain_sums(&terms, &x).unwrap() == expected, "{isa:?} n={n} {range:?}");
                let halves = primes[range.clone()].iter().filter(|q| **q < 1 << 32).count();
                let words = terms.terms() * n / gap;
                assert_eq!(terms.bytes(), words * (4 * halves + 8 * (range.len() - halves)));
                assert!(basis.plain_sums(&terms, &x[..2]).is_err());
                assert!(terms.set(0, lists[0].len(), &pairs[0][0]).is_err());
                assert!(terms.set(9, 0, &pairs[0][0]).is_err());
                // A polynomial of more values than the room has.
                assert_eq!(terms.set(0, 0, &pairs[0][0]).is_err(), gap > 1);
            }
            assert!(PlainTerms::new(&basis, 0..7, 1, vec![vec![0]]).is_err());
            for gap in [0, 3, 16] {
                assert!(PlainTerms::new(&basis, 0..6, gap, vec![vec![0]]).is_err());
            }
        }
    }
}

#[test]
fn the_longest_lazy_sums_do_not_overflow() {
    // Every residue q - 1: the largest sums that are possible, across several reductions for 50-bit primes and just
    // one beyond the limit for 45 and fewer.
    let n = 32;
    let primes = mixed_primes(n);
    for isa in simd::available() {
        let basis = RnsBasis::with_isa(n, &primes, isa).unwrap();
        let mut top = basis.zero::<Eval>(0..6).unwrap();
        for (i, q) in primes.iter().enumerate().take(6) {
            top.limb_mut(i).fill(q - 1);
        }
        let mut terms = PlainTerms::new(&basis, 0..6, 1, vec![vec![0; 4100]]).unwrap();
        for t in 0..4100 {
            terms.set(0, t, &top).unwrap();
        }
        let out = basis.plain_sums(&terms, &[[&top, &top]]).unwrap();
        for (i, q) in primes.iter().enumerate().take(6) {
            assert!(out[0][0].limb(i).iter().chain(out[0][1].limb(i)).all(|w| *w == 4100 % q));
        }
        // As many terms as are summed between reductions, and around that.
        let minus_one: Vec<u64> = primes.iter().map(|q| q - 1).collect();
        for terms in [14, 15, 16, 30, 31] {
            let x = vec![&top; terms];
            let [low, high] = basis.inner_products(0..6, &x, [&x, &x]).unwrap();
            let combined = basis.combine(0..6, &x, &vec![minus_one.as_slice(); terms]).unwrap();
            for sum in [low, high, combined] {
                for (i, q) in primes.iter().enumerate().take(6) {
                    assert!(sum.limb(i).iter().all(|w| *w == terms as u64 % q), "{isa:?}, {terms} terms");
                }
            }
        }
    }
}
