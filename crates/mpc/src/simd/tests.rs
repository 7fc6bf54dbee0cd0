//! Every path against the portable one, and that one against the definitions.

use super::*;
use crate::block::Prg;

const KEY: Block = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;

fn random(n: usize, seed: u128) -> Vec<Block> {
    let mut v = vec![0; n];
    Prg::new(seed).blocks(&mut v);
    v
}

/// The portable path first, then all others that this machine has.
fn paths(key: Block) -> Vec<FixedKey> {
    std::iter::once(Keyed::portable(key)).chain(Keyed::fast(key)).map(FixedKey).collect()
}

/// Writes past the harness, which keeps what tests print.
#[test]
fn paths_that_this_machine_lacks_are_named() {
    use std::io::Write;
    let name = |k: &FixedKey| match &k.0 {
        Keyed::Portable(_) => "portable",
        #[cfg(target_arch = "x86_64")]
        Keyed::Aesni(_) => "AES-NI",
        #[cfg(target_arch = "x86_64")]
        Keyed::Vaes(_) => "VAES with AVX2",
        #[cfg(target_arch = "x86_64")]
        Keyed::Avx512(_) => "VAES with AVX-512",
    };
    let has: Vec<&str> = paths(KEY).iter().map(name).collect();
    assert_eq!(has[0], "portable");
    for path in ["AES-NI", "VAES with AVX2", "VAES with AVX-512"].iter().filter(|p| !has.contains(p)) {
        writeln!(std::io::stderr(), "left out of the tests of mpc's kernels: {path} (not on this machine)")
            .unwrap();
    }
}

#[test]
fn the_best_path_is_chosen() {
    let kind = |k: &FixedKey| std::mem::discriminant(&k.0);
    let all = paths(KEY);
    assert_eq!(kind(&FixedKey::new(KEY)), kind(all.get(1).unwrap_or(&all[0])));
}

#[test]
fn fixed_key_permutation_is_aes() {
    // FIPS 197, appendix C.1.
    let key = u128::from_le_bytes(std::array::from_fn(|i| i as u8));
    let plain = u128::from_le_bytes(std::array::from_fn(|i| (i * 0x11) as u8));
    let cipher =
        [0x69, 0xc4, 0xe0, 0xd8, 0x6a, 0x7b, 0x04, 0x30, 0xd8, 0xcd, 0xb7, 0x80, 0x70, 0xb4, 0xc5, 0x5a];
    // The x whose s(x) is the plaintext.
    let x = (plain << 64) | u128::from((plain ^ plain >> 64) as u64);
    for k in paths(key) {
        let mut out = [0; 1];
        k.hash(&[x ^ 9], 9, &mut out);
        assert_eq!((out[0] ^ plain).to_le_bytes(), cipher);
    }
}

#[test]
fn hashes_agree() {
    for n in [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 131] {
        let x = random(n, 1);
        let results = paths(KEY).into_iter().map(|k| {
            let (mut hash, mut tweaked) = (vec![0; n], vec![0; n]);
            k.hash(&x, 77, &mut hash);
            k.tweaked(&x, 99, u64::MAX - 8, &mut tweaked);
            let mut nodes = random(2 * n + 1, 3);
            let sum = k.grow(&mut nodes, n);
            for at in [0, n / 2, n.saturating_sub(1), n] {
                let (mut patched, mut direct) = (random(2 * n + 1, 3), random(2 * n + 1, 3));
                let got = k.grow_patched(&mut patched, n, at as u64, 5 << 70);
                direct[..n].iter_mut().skip(at).take(1).for_each(|d| *d ^= 5 << 70);
                assert_eq!((k.grow(&mut direct, n), direct), (got, patched), "{n} blocks, patch at {at}");
            }
            assert_eq!(k.lefts(&random(2 * n + 1, 3)[..n]), sum, "{n} blocks");
            let sealed = [0, n / 2, n.saturating_sub(1), n, usize::MAX].map(|at| {
                let (mut sealed, value) = (x.clone(), 5 << 70 | 1);
                k.seal(&mut sealed, at as u64, value);
                let expected = |(i, x): (usize, &Block)| x >> 1 << 1 ^ if i == at { value } else { 0 };
                assert_eq!(
                    sealed,
                    x.iter().enumerate().map(expected).collect::<Vec<_>>(),
                    "{n} blocks, {at}"
                );
                sealed
            });
            if let Some(x) = x.first_chunk() {
                assert_eq!(
                    k.words(x, 77).to_vec(),
                    hash[..GROUP].iter().map(|h| *h as u64).collect::<Vec<_>>()
                );
            }
            (hash, tweaked, sum, nodes, sealed)
        });
        let results: Vec<_> = results.collect();
        assert!(results.iter().all(|r| *r == results[0]), "{n} blocks");
    }
}

#[test]
fn planes_agree() {
    for seed in 2..8 {
        let x: [Block; GROUP] = random(GROUP, seed).try_into().unwrap();
        let all = paths(KEY);
        let (mut h, p) = ([0; GROUP], &all[0]);
        p.hash(&x, 5, &mut h);
        for k in &all {
            let all = k.planes::<16>(&x, 5);
            for (i, h) in h.iter().enumerate() {
                let bits = std::array::from_fn(|j| [127, 63][j % 2] - j / 2).map(|j| (h >> j) as u64 & 1);
                assert_eq!(all.map(|p| p >> i & 1), bits);
            }
            assert_eq!(k.planes::<1>(&x, 5), all[..1]);
            assert_eq!(k.planes::<3>(&x, 5), all[..3]);
            assert_eq!(k.planes::<15>(&x, 5), all[..15]);
            let choices = k.choices(&x);
            assert!(x.iter().enumerate().all(|(i, x)| choices >> i & 1 == *x as u64 & 1));
        }
    }
}

#[test]
fn transposes_agree() {
    let x = random(GROUP, 2);
    let before: [u64; 64] = std::array::from_fn(|i| x[i] as u64);
    let transposed = |f: &dyn Fn(&mut [u64; 64]) -> bool| {
        let mut m = before;
        f(&mut m).then_some(m)
    };
    let mut all = vec![
        transposed(&|m| {
            transpose64(m);
            true
        }),
        transposed(&|m| {
            portable::transpose64(m);
            true
        }),
    ];
    #[cfg(target_arch = "x86_64")]
    all.extend([transposed(&avx2::transpose64), transposed(&avx512::transpose64)]);
    for m in all.into_iter().flatten() {
        for (j, row) in m.iter().enumerate() {
            for (i, old) in before.iter().enumerate() {
                assert_eq!((row >> i) & 1, (old >> j) & 1);
            }
        }
    }
}

#[test]
fn codes_agree() {
    let Keyed::Portable(aes) = Keyed::portable(31) else { unreachable!("made portable") };
    // Numbers of groups that whole threes, twos or ones make up and that leave a rest, the longest groups, rows that fill no register, a first row
    // that is not the first.
    for (groups, log_group, rows, first) in [
        (1, 3, 8, 0),
        (2, 9, 136, 1 << 20),
        (5, 16, 32, 8),
        (5, 15, 144, 16),
        (7, 14, 264, 8),
        (9, 4, 1048, 1 << 40),
    ] {
        let table = random(groups << log_group, 4);
        let start = random(rows, 6);
        let expected: Vec<Block> = (0..rows)
            .map(|i| {
                let of_group = |j: usize| {
                    let row = first + i as u64;
                    let mut block = [0];
                    portable::counter(&aes, Block::from(row / 8) | (j as Block) << 64, &mut block);
                    let word = (block[0] >> (16 * (row % 8))) as u16 as usize;
                    table[(j << log_group) + word % (1 << log_group)]
                };
                (0..groups).map(of_group).fold(start[i], |s, entry| s ^ entry)
            })
            .collect();
        for k in paths(31) {
            let mut got = start.clone();
            k.encode(first, &table, log_group, &mut got);
            assert_eq!(got, expected, "{groups} groups of 2^{log_group}, {rows} rows from {first}");
            // Rows do not depend on how many come at a time.
            let mut parts = start.clone();
            for (c, part) in parts.chunks_mut(24).enumerate() {
                k.encode(first + 24 * c as u64, &table, log_group, part);
            }
            assert_eq!(parts, expected, "{groups} groups of 2^{log_group}, in parts");
        }
    }
}

/// Every path beside big numbers: what is sent and what either party keeps of a term, whatever stands above the payload's bits.
#[test]
fn terms_of_products_agree() {
    let words = |seed| random(GROUP, seed).iter().map(|&b| b as u64).collect::<Vec<_>>();
    let lanes = |seed| -> Lanes { words(seed).try_into().unwrap() };
    for (seed, bits, shift) in [(2, 1, 0), (3, 7, 5), (4, 31, 33), (5, 64, 0), (6, 16, 63)] {
        let pads = [20, 21].map(|s| lanes(s + seed));
        let (elements, share, swap) = (lanes(40 + seed), lanes(50 + seed), words(60 + seed)[0]);
        let payload = u64::MAX >> (64 - bits);
        let mask = |i: usize, of: u64| if of >> i & 1 == 1 { u64::MAX } else { 0 };
        let first = |i: usize, other: usize| pads[(swap >> i & 1) as usize ^ other][i];
        let sent: Vec<u64> = (0..GROUP)
            .map(|i| first(i, 0).wrapping_sub(first(i, 1)).wrapping_add(elements[i]) & payload)
            .collect();
        let kept: Vec<u64> = (0..GROUP).map(|i| share[i].wrapping_sub(first(i, 0) << shift)).collect();
        let padded: Vec<u64> = (0..GROUP).map(|i| share[i].wrapping_add(pads[0][i] << shift)).collect();
        let gained: Vec<u64> =
            (0..GROUP).map(|i| padded[i].wrapping_add((sent[i] & mask(i, swap)) << shift)).collect();
        for k in paths(KEY) {
            let (mut got, mut mine) = ([0; GROUP], share);
            let term = Offered { pads: [&pads[0], &pads[1]], swap, elements: &elements, payload, shift };
            k.offer(&term, &mut got, &mut mine);
            assert_eq!((got.to_vec(), mine.to_vec()), (sent.clone(), kept.clone()), "{bits} bits");
            let mut theirs = share;
            k.keep(&pads[0], shift, &mut theirs);
            assert_eq!(theirs.to_vec(), padded, "{bits} bits");
            k.collect(swap, &got, shift, &mut theirs);
            assert_eq!(theirs.to_vec(), gained, "{bits} bits");
        }
    }
}

#[test]
fn tables_of_functions_agree() {
    let lanes = |seed: u128| -> Lanes { std::array::from_fn(|i| random(GROUP, seed)[i] as u64) };
    for (order, place_bits, at) in [(0, 12, 0), (1, 1, 3), (5, 15, 20), (8, 20, 44)] {
        let coefficients: Vec<i64> =
            lanes(order).iter().take(order as usize + 1).map(|&c| c as i64 >> 24).collect();
        let places = lanes(70 + order).map(|p| p >> (64 - place_bits));
        let before = lanes(80).map(|w| w & ((1 << at) - 1));
        let of = Polynomial { coefficients: &coefficients, place_bits, fine: 14, mask: 0xf_ffff, at };
        let exact = std::array::from_fn(|i| {
            let step =
                |sum: i64, c: &i64| (sum.wrapping_mul(places[i] as i64) >> place_bits).wrapping_add(*c);
            let value = coefficients.iter().rev().fold(0, step);
            before[i] | ((((value + (1 << 13)) >> 14) as u64 % (1 << 20)) << at)
        });
        for k in paths(KEY) {
            let mut got = before;
            k.evaluate(&of, &places, &mut got);
            assert_eq!(got, exact, "order {order}");
        }
    }
    for d in 0..5 {
        let table: Vec<Lanes> = (0..1 << d).map(|c| lanes(90 + c)).collect();
        let turn = lanes(130);
        for k in paths(KEY) {
            let (mut turned, mut next) = (table.clone(), table.clone());
            for step in 0..d {
                k.turn(&turned, &turn, step, &mut next);
                std::mem::swap(&mut turned, &mut next);
            }
            for (c, entry) in turned.iter().enumerate() {
                let exact: Lanes = std::array::from_fn(|i| table[(c + turn[i] as usize) % table.len()][i]);
                assert_eq!(*entry, exact, "entry {c} of {}", table.len());
            }
        }
    }
}
