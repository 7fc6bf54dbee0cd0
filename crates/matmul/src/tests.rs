//! Every kernel against 128-bit arithmetic.

use crate::{Cut, Kernel, Lane, Layout, MatmulError, Prepared, Scratch, Weights, BLOCK};
use hushnet_ring::{low_mask, simd, Isa};
use proptest::prelude::*;

/// Inputs of one product.
#[derive(Clone, Debug)]
struct Case {
    m: usize,
    k: usize,
    words: usize,
    bits: u32,
    segment: usize,
    weights: Vec<i16>,
    rows: Vec<Option<Vec<u64>>>,
    start: Vec<u64>,
}

impl Case {
    fn exact(&self) -> Vec<Vec<u64>> {
        let modulus = 1i128 << self.bits;
        (0..self.m)
            .map(|m| {
                (0..self.words)
                    .map(|j| {
                        let mut sum = i128::from(self.start.get(m).copied().unwrap_or(0));
                        for (k, row) in self.rows.iter().enumerate() {
                            let x = row.as_ref().map_or(0, |r| i128::from(r[j]));
                            sum += i128::from(self.weights[m * self.k + k]) * x;
                        }
                        sum.rem_euclid(modulus) as u64
                    })
                    .collect()
            })
            .collect()
    }

    fn prepared(&self, kernel: Kernel) -> Prepared {
        let w = Weights::new(self.m, self.k, &self.weights).unwrap();
        Prepared::new(&w, kernel, self.bits, self.segment).unwrap()
    }

    /// Whole rows in, as one call and as two word ranges.
    fn check(&self, kernel: Kernel) {
        let exact = self.exact();
        let p = self.prepared(kernel);
        let mut scratch = Scratch::new();
        for split in [0, self.words / 3] {
            let mut out = vec![vec![0xDEAD; self.words]; self.m];
            for range in [0..split, split..self.words] {
                let rows: Vec<_> = self.rows.iter().map(|r| r.as_ref().map(|r| &r[range.clone()])).collect();
                let mut pieces: Vec<&mut [u64]> = out.iter_mut().map(|o| &mut o[range.clone()]).collect();
                p.multiply(&rows, &self.start, &mut pieces, &mut scratch).unwrap();
            }
            assert_eq!(out, exact, "{} split at {split}: {self:?}", kernel.name());
        }
        let wanted = self.m / 3..self.m - self.m / 5;
        let mut out = vec![vec![0xDEAD; self.words]; wanted.len()];
        let mut pieces: Vec<&mut [u64]> = out.iter_mut().map(|o| &mut o[..]).collect();
        let start = self.start.get(wanted.clone()).unwrap_or(&[]);
        let rows: Vec<_> = self.rows.iter().map(Option::as_deref).collect();
        p.multiply_rows(wanted.clone(), &rows, start, &mut pieces, &mut scratch).unwrap();
        assert_eq!(out, exact[wanted.clone()], "{} rows {wanted:?}: {self:?}", kernel.name());
        if kernel.uses_limbs() {
            self.check_limbs(&p, &exact, &mut scratch);
        }
        self.check_cut(&p, &exact);
    }

    /// Packed once, multiplied from the first and from the second block on.
    fn check_limbs(&self, p: &Prepared, exact: &[Vec<u64>], scratch: &mut Scratch) {
        let mut buffers = Vec::new();
        for (s, layout) in p.layouts().iter().enumerate() {
            let rows = &self.rows[s * self.segment..self.k.min((s + 1) * self.segment)];
            // Rubbish in the slack must not matter.
            let mut lanes = vec![Lane([0xA5; 64]); layout.segment_lanes(self.words) + layout.slack_lanes()];
            lanes[..layout.segment_lanes(self.words)].fill(Lane::ZERO);
            for (quad, four) in rows.chunks(4).enumerate() {
                let row = |i: usize| four.get(i).and_then(Option::as_deref);
                if four.iter().all(Option::is_none) {
                    continue;
                }
                layout.pack(simd::isa(), quad, [row(0), row(1), row(2), row(3)], &mut lanes).unwrap();
            }
            buffers.push(rows.iter().any(Option::is_some).then_some(lanes));
        }
        let segments: Vec<_> = buffers.iter().map(Option::as_deref).collect();
        for first in 0..self.words.div_ceil(BLOCK).min(2) {
            let mut out = vec![vec![0xDEAD; self.words - first * BLOCK]; self.m];
            let mut pieces: Vec<&mut [u64]> = out.iter_mut().map(|o| &mut o[..]).collect();
            p.multiply_limbs(&segments, first, &self.start, &mut pieces, scratch).unwrap();
            for (o, e) in out.iter().zip(exact) {
                assert_eq!(o, &e[first * BLOCK..], "{}: {self:?}", p.kernel().name());
            }
        }
    }

    /// Cut once, in another order, with a row that no column reads; where the kernel reads such rows.
    fn check_cut(&self, p: &Prepared, exact: &[Vec<u64>]) {
        let other = vec![low_mask(self.bits); self.words];
        let mut rows: Vec<&[u64]> = self.rows.iter().rev().flatten().map(Vec::as_slice).collect();
        rows.push(&other);
        let mut cut = Cut::new();
        let mut next = rows.len() as u32 - 1;
        let columns: Vec<Option<u32>> = self
            .rows
            .iter()
            .map(|r| {
                r.as_ref().map(|_| {
                    next -= 1;
                    next
                })
            })
            .collect();
        assert_eq!(p.reads_cuts(), p.kernel() == Kernel::Madd);
        if !p.reads_cuts() {
            assert!(p.cut(&rows, &mut cut).is_err() && p.gather(&columns, rows.len()).is_err());
            return;
        }
        p.cut(&rows, &mut cut).unwrap();
        // A second position reads nothing.
        let positions = [columns.clone(), vec![None; columns.len()]].concat();
        let gather = p.gather(&positions, rows.len()).unwrap();
        let starts = p.starts(&gather, &self.start).unwrap();
        let mut found = vec![vec![0xDEAD; self.words]; self.m];
        let split = self.words / 2 / 8 * 8;
        for range in [0..split, split..self.words] {
            let mut out = vec![0xDEAD; 2 * self.m * range.len()];
            p.multiply_cut((&cut, range.start), &gather, &starts, &mut out).unwrap();
            for (m, both) in out.chunks(2 * range.len().max(1)).enumerate() {
                let (own, none) = both.split_at(range.len());
                found[m][range.clone()].copy_from_slice(own);
                let start = self.start.get(m).copied().unwrap_or(0) & low_mask(self.bits);
                assert!(none.iter().all(|w| *w == start), "nothing: {self:?}");
            }
        }
        assert_eq!(found, exact, "cut: {self:?}");
        // One constant for every row and position.
        let two: Vec<u64> =
            self.start.iter().flat_map(|s| [*s, s.wrapping_add(5) & low_mask(self.bits)]).collect();
        let apart = p.starts(&gather, &two).unwrap();
        let mut out = vec![0xDEAD; 2 * self.m * self.words];
        p.multiply_cut((&cut, 0), &gather, &apart, &mut out).unwrap();
        for (m, both) in out.chunks(2 * self.words).enumerate().take(two.len() / 2) {
            assert_eq!(both[..self.words], exact[m]);
            assert!(both[self.words..].iter().all(|w| *w == two[2 * m + 1]));
        }
        let mut out = vec![0; self.m * self.words];
        let one = p.gather(&columns, rows.len()).unwrap();
        assert!(p.starts(&one, &vec![0; self.m + 1]).is_err());
        let starts = p.starts(&one, &self.start).unwrap();
        assert!(p.multiply_cut((&cut, 8), &one, &starts, &mut out).is_err());
        assert!(p.multiply_cut((&cut, 1), &one, &starts, &mut out).is_err());
        assert!(self.m == 1 || p.multiply_cut((&cut, 0), &one, &starts, &mut out[1..]).is_err());
        assert!(p.multiply_cut((&cut, 0), &one, &apart, &mut out).is_err());
        assert!(p.gather(&columns, rows.len() - 2).is_err() || columns.iter().all(Option::is_none));
        let more = p.gather(&columns, rows.len() + 1).unwrap();
        assert!(p.multiply_cut((&cut, 0), &more, &starts, &mut out).is_err());
    }
}

fn kernels(bits: u32) -> impl Iterator<Item = Kernel> {
    Kernel::ALL.into_iter().filter(move |k| k.check(bits).is_ok())
}

fn weight() -> impl Strategy<Value = i16> {
    prop_oneof![
        4 => -128i16..=127,
        1 => any::<i16>(),
        1 => prop_oneof![Just(-128), Just(127), Just(i16::MIN), Just(i16::MAX), Just(32639), Just(32640)],
    ]
}

fn case(small_weights: bool) -> impl Strategy<Value = Case> {
    (1usize..30, 1usize..90, 1usize..70, 1u32..=64, 1usize..100).prop_flat_map(
        move |(m, k, words, bits, segment)| {
            let w = if small_weights { (-128i16..=127).boxed() } else { weight().boxed() };
            let mask = low_mask(bits);
            let word = prop_oneof![3 => any::<u64>(), 1 => Just(u64::MAX)].prop_map(move |x| x & mask);
            let row = prop_oneof![
                6 => prop::collection::vec(word, words).prop_map(Some),
                1 => Just(None),
                1 => Just(Some(vec![mask; words])),
            ];
            let start = prop_oneof![
                Just(Vec::new()),
                prop::collection::vec(any::<u64>().prop_map(move |x| x & mask), m)
            ];
            (prop::collection::vec(w, m * k), prop::collection::vec(row, k), start).prop_map(
                move |(weights, rows, start)| Case { m, k, words, bits, segment, weights, rows, start },
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_kernel_is_exact_with_byte_weights(c in case(true)) {
        for kernel in kernels(c.bits) {
            c.check(kernel);
        }
    }

    #[test]
    fn every_kernel_is_exact_with_wide_weights(c in case(false)) {
        for kernel in kernels(c.bits) {
            c.check(kernel);
        }
    }
}

/// Every sum at its extreme, for every number of limbs and every block of rows.
#[test]
fn extremes_do_not_overflow() {
    for bits in [1, 7, 8, 9, 16, 24, 32, 33, 40, 48, 52, 53, 56, 64] {
        for w in [-128, 127, i16::MIN, i16::MAX] {
            for m in [1, 3, 13, 17] {
                let (k, words) = (37, 33);
                let rows = vec![Some(vec![low_mask(bits); words]); k];
                let c = Case { m, k, words, bits, segment: 10, weights: vec![w; m * k], rows, start: vec![] };
                for kernel in kernels(bits) {
                    c.check(kernel);
                }
            }
        }
    }
}

/// Words below the modulus: kernels that cut words may take fewer digits, and the products stay the same.
#[test]
fn narrow_words_give_the_same_products() {
    for word_bits in [1, 15, 16, 17, 30, 31, 32, 33, 47, 48, 49, 50] {
        for (m, k, words) in [(1, 1, 1), (5, 25, 32), (7, 9, 13), (100, 31, 17)] {
            let word = |i: usize| match i % 5 {
                0 => low_mask(word_bits),
                1 => 0,
                _ => (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) & low_mask(word_bits),
            };
            let row = |r: usize| (0..words).map(|w| word(r * words + w)).collect();
            let weights = (0..m * k).map(|i| [i16::MIN, i16::MAX, -3, 127, 0, 90][i * 7 % 6]).collect();
            let rows = (0..k).map(|r| (r % 4 != 1).then(|| row(r))).collect();
            let c = Case { m, k, words, bits: 64, segment: k, weights, rows, start: vec![u64::MAX; m] };
            let exact = c.exact();
            let w = Weights::new(m, k, &c.weights).unwrap();
            for kernel in kernels(64) {
                let p = Prepared::for_words(&w, kernel, 64, word_bits, k).unwrap();
                let rows: Vec<_> = c.rows.iter().map(Option::as_deref).collect();
                let mut out = vec![vec![0xDEAD; words]; m];
                let mut pieces: Vec<&mut [u64]> = out.iter_mut().map(|o| &mut o[..]).collect();
                p.multiply(&rows, &c.start, &mut pieces, &mut Scratch::new()).unwrap();
                assert_eq!(out, exact, "{} {word_bits} bits, {m} x {k}", kernel.name());
            }
        }
    }
    let w = Weights::new(1, 1, &[1]).unwrap();
    assert!(Prepared::for_words(&w, Kernel::Portable, 52, 53, 1).is_err());
    assert!(Prepared::for_words(&w, Kernel::Portable, 52, 0, 1).is_err());
}

/// More columns than 32-bit sums hold: the product is cut into runs.
#[test]
fn long_sums_are_cut_into_runs() {
    for (k, segment) in [(4 * 16384 + 1, 1 << 20), (140_000, 50_001), (66_000, 6)] {
        for (w, bits) in [(-128, 40), (-32768, 16)] {
            let rows = vec![Some(vec![low_mask(bits); 17]); k];
            let c =
                Case { m: 2, k, words: 17, bits, segment, weights: vec![w; 2 * k], rows, start: vec![5, 6] };
            for kernel in kernels(bits) {
                if kernel != Kernel::EmulatedAmx || k < 70_000 {
                    c.check(kernel);
                }
            }
        }
    }
}

#[test]
fn inserting_rows_equals_packing_quads() {
    let words = 37;
    let rows: Vec<Vec<u64>> =
        (0..4u64).map(|r| (0..words).map(|w| (r * 97 + w * 0x0123_4567_89AB_CDEF) >> 3).collect()).collect();
    for bits in 1..=64 {
        let layout = Layout::new(7, bits).unwrap();
        let mut packed = vec![Lane::ZERO; layout.segment_lanes(words as usize)];
        let mut inserted = packed.clone();
        let mut portable = packed.clone();
        let four = [Some(&rows[0][..]), Some(&rows[1][..]), None, Some(&rows[3][..])];
        layout.pack(simd::isa(), 1, four, &mut packed).unwrap();
        layout.pack(Isa::Portable, 1, four, &mut portable).unwrap();
        for r in [0, 1, 3] {
            layout.insert(4 + r, &rows[r], &mut inserted).unwrap();
        }
        assert_eq!(packed, inserted);
        assert_eq!(packed, portable);
    }
}

#[test]
fn wrong_buffers_are_refused() {
    let w = Weights::new(2, 3, &[1, 2, 3, 4, 5, 6]).unwrap();
    let p = Prepared::new(&w, Kernel::Portable, 40, 3).unwrap();
    let row = [1u64; 8];
    let (mut a, mut b, mut short) = (vec![0; 8], vec![0; 8], vec![0; 7]);
    let mut s = Scratch::new();
    let rows = [Some(&row[..]), None, Some(&row[..])];
    p.multiply(&rows, &[], &mut [&mut a, &mut b], &mut s).unwrap();
    assert_eq!((a[0], b[7]), (4, 10));
    assert!(p.multiply(&rows[..2], &[], &mut [&mut a, &mut b], &mut s).is_err());
    assert!(p.multiply(&rows, &[1], &mut [&mut a, &mut b], &mut s).is_err());
    assert!(p.multiply(&rows, &[], &mut [&mut a], &mut s).is_err());
    assert!(p.multiply(&rows, &[], &mut [&mut a, &mut short], &mut s).is_err());
    assert!(matches!(
        p.multiply_limbs(&[None], 0, &[], &mut [&mut a, &mut b], &mut s),
        Err(MatmulError::WrongInput("portable"))
    ));
    let p = Prepared::new(&w, Kernel::EmulatedAmx, 40, 3).unwrap();
    let lanes = vec![Lane::ZERO; p.layouts()[0].segment_lanes(8)];
    assert!(p.multiply_limbs(&[Some(&lanes)], 0, &[], &mut [&mut a, &mut b], &mut s).is_err());
    assert!(Prepared::new(&w, Kernel::Portable, 65, 3).is_err());
    assert!(Prepared::new(&w, Kernel::Portable, 0, 3).is_err());
    assert!(Prepared::new(&w, Kernel::Portable, 8, 0).is_err());
    assert!(matches!(
        Kernel::Ifma.check(53),
        Err(MatmulError::ModulusBits { .. } | MatmulError::MissingInstructions(_))
    ));
}

#[test]
fn the_choice_is_within_the_instruction_set_and_the_modulus() {
    for isa in simd::available() {
        for bits in [8, 40, 52, 53, 64] {
            for (m, k) in [(1, 9), (5, 25), (100, 845), (16, 96)] {
                let kernel = Kernel::choose(isa, m, k, bits, 1);
                assert!(kernel.needs() <= isa);
                kernel.check(bits).unwrap();
            }
        }
    }
}
