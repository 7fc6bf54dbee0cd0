//! Every instruction set gives the bits of the portable path, over random sizes, primes and widths.
#![allow(missing_docs, clippy::unwrap_used)]

use hushnet_ring::{kernels, low_mask, ntt::Ntt, pack, prg, prime, sample, simd, ExactMultiplier, Isa, Prg};
use proptest::prelude::*;

fn words(seed: u64, len: usize) -> Vec<u64> {
    let mut out = vec![0; len];
    let mut key = [0; 16];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    Prg::from_seed_with(key, Isa::Portable).fill_words(&mut out);
    out
}

/// Runs `f` on every path and demands one result.
fn agree<T: PartialEq + std::fmt::Debug>(f: impl Fn(Isa) -> T) -> T {
    let expected = f(Isa::Portable);
    for isa in simd::available() {
        assert_eq!(f(isa), expected, "{isa:?}");
    }
    expected
}

/// Writes past the harness, which keeps what tests print: nobody shall take a run without a path for one with it.
#[test]
fn paths_that_this_machine_lacks_are_named() {
    use std::io::Write;
    for isa in simd::left_out() {
        writeln!(std::io::stderr(), "left out of all tests of kernels: {} (not on this machine)", isa.name())
            .unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn transforms(log_n in 3u32..=13, bits in 20u32..=61, which in 0usize..3, seed: u64, extreme in 0..3) {
        let n = 1usize << log_n;
        let Ok(primes) = prime::primes_near(bits, n, which + 1) else { return Ok(()) };
        let p = primes[which];
        let a: Vec<u64> = words(seed, n).iter().map(|w| match extreme {
            0 => w % p,
            1 => p - 1 - w % 2,
            _ => if w % 2 == 0 { p / 2 } else { p / 2 + 1 },
        }).collect();
        let slots = agree(|isa| {
            let mut x = a.clone();
            Ntt::with_isa(n, p, isa).unwrap().forward(&mut x).unwrap();
            x
        });
        prop_assert!(slots.iter().all(|v| *v < p));
        let back = agree(|isa| {
            let mut x = slots.clone();
            Ntt::with_isa(n, p, isa).unwrap().inverse(&mut x).unwrap();
            x
        });
        prop_assert_eq!(back, a);
    }

    #[test]
    fn products(log_n in 3u32..=12, k in 1u32..=64, seed: u64) {
        let n = 1usize << log_n;
        let a = words(seed, n);
        let mut s = vec![0; n];
        sample::ternary(&mut Prg::from_seed([1; 16]), &mut s);
        let base = words(!seed, n);
        agree(|isa| {
            let m = ExactMultiplier::with_isa(n, isa).unwrap();
            let (hat, small) = (m.words_hat(&a, k).unwrap(), m.small_hat(&s).unwrap());
            let mut scratch = m.scratch();
            let mut results = [base.clone(), base.clone(), base.clone()];
            m.multiply_into(&hat, &small, &mut results[0], &mut scratch).unwrap();
            m.multiply_add_into(&hat, &small, &mut results[1], &mut scratch).unwrap();
            m.multiply_subtract_into(&hat, &small, &mut results[2], &mut scratch).unwrap();
            for ((r, x), (y, b)) in results[0].iter().zip(&results[1]).zip(results[2].iter().zip(&base)) {
                assert_eq!(b.wrapping_add(*r) & low_mask(k), *x);
                assert_eq!(b.wrapping_sub(*r) & low_mask(k), *y);
            }
            // Rounding the sum at once is adding and then rounding.
            let (d, raise) = (k / 2, k / 3);
            let (mut at_once, mut rounded, mut sum) = (vec![0; n], vec![0; n], vec![0; n]);
            let largest =
                m.multiply_round_into(&hat, &small, (&base, raise), d, &mut at_once, &mut scratch).unwrap();
            kernels::raise_into(isa, &base, raise, &mut sum).unwrap();
            m.multiply_add_into(&hat, &small, &mut sum, &mut scratch).unwrap();
            assert_eq!(kernels::round_into(isa, &sum, k, d, &mut rounded).unwrap(), largest);
            assert_eq!(at_once, rounded);
            (results, at_once, largest)
        });
    }

    #[test]
    fn streams(len in 0usize..700, k in 1u32..=64, seed: [u8; 16], nonce: [u32; 3]) {
        agree(|isa| {
            let mut out = vec![0; len];
            prg::expand_words_with(isa, &seed, nonce, k, &mut out).unwrap();
            let mut prg = Prg::from_seed_with(seed, isa);
            let mut bytes = vec![0; len];
            prg.fill_bytes(&mut bytes);
            sample::centred_binomial_add(&mut prg, &mut out);
            let mut trits = vec![0; len];
            sample::ternary(&mut prg, &mut trits);
            let mut errors = vec![0; len];
            sample::centred_binomial(&mut prg, &mut errors);
            (out, bytes, trits, errors)
        });
    }

    #[test]
    fn packing(len in 0usize..300, k in 1u32..=64, seed: u64, ones: bool) {
        let a = if ones { vec![u64::MAX; len] } else { words(seed, len) };
        let bytes = agree(|isa| {
            // One byte more on each side must stay as it is.
            let mut bytes = vec![0x5a; pack::packed_len(len, k) + 2];
            let end = bytes.len() - 1;
            pack::pack_with(isa, &a, k, &mut bytes[1..end]).unwrap();
            assert_eq!((bytes[0], bytes[end]), (0x5a, 0x5a));
            bytes[1..end].to_vec()
        });
        let back = agree(|isa| {
            let mut back = vec![0; len];
            pack::unpack_with(isa, &bytes, k, &mut back).unwrap();
            back
        });
        prop_assert!(back.iter().zip(&a).all(|(b, w)| *b == w & low_mask(k)));
    }

    #[test]
    fn elementwise(len in 0usize..100, k in 2u32..=64, part in 0.0f64..1.0, seed: u64, constant: u64) {
        let d = (f64::from(k - 1) * part) as u32;
        let a = words(seed, len);
        agree(|isa| {
            let mut dropped = a.clone();
            kernels::drop_bits(isa, &mut dropped, d, k).unwrap();
            let mut shifted = a.clone();
            kernels::add_constant(isa, &mut shifted, constant, k);
            let mut rounded = vec![0; len];
            let largest = kernels::round_into(isa, &a, k, d, &mut rounded).unwrap();
            assert!(largest <= (1 << d) >> 1);
            let small: Vec<i32> = a.iter().map(|w| *w as i32).collect();
            let (mut scaled, mut raised) = (vec![7; len + 3], vec![0; len]);
            kernels::scale_into(isa, &small, d, &mut scaled).unwrap();
            kernels::raise_into(isa, &a, d, &mut raised).unwrap();
            kernels::reduce(isa, &mut raised, k);
            (dropped, shifted, rounded, largest, scaled, raised)
        });
    }
}

/// Split products are exact whatever the words: the largest parts of one sign, all meeting the same signs.
#[test]
fn split_products_are_exact_for_extreme_words() {
    for n in [64, 2048, 4096] {
        for word in [u64::MAX, 1 << 63, 0x8000_0000_8000_0000, 0x7fff_ffff_7fff_ffff, 0] {
            for s in [1i8, -1] {
                // With all coefficients equal, coefficient j of the product is word * s * (2 j + 2 - n).
                agree(|isa| {
                    let m = ExactMultiplier::with_isa(n, isa).unwrap();
                    let (hat, small) =
                        (m.words_hat(&vec![word; n], 64).unwrap(), m.small_hat(&vec![s; n]).unwrap());
                    let mut out = vec![0; n];
                    m.multiply_into(&hat, &small, &mut out, &mut m.scratch()).unwrap();
                    for (j, o) in out.iter().enumerate() {
                        let terms = i64::from(s) * (2 * j as i64 + 2 - n as i64);
                        assert_eq!(*o, word.wrapping_mul(terms as u64), "N={n} {word:x} {j}");
                    }
                });
            }
        }
    }
}
