//! Products and squares of shared values: every value and every share of small rings, random rings of any widths, and their cost.

use crate::common::{add, predict, run, run_each, share, values};
use hushnet_mpc::*;
use proptest::prelude::*;

const RANGES: [Range; 3] = [Range::Any, Range::NonNegative, Range::Small];

fn ring(bits: u32) -> Ring {
    Ring::new(bits).unwrap()
}

/// The signed values of a range.
fn within(range: Range, l: u32) -> std::ops::Range<i64> {
    match range {
        Range::Any => -(1 << (l - 1))..1 << (l - 1),
        Range::NonNegative => 0..1 << (l - 1),
        Range::Small => -(1 << (l - 2))..1 << (l - 2),
    }
}

/// Every value of a range with every share: (value, share of party zero, of party one).
fn all_shares(range: Range, l: u32) -> Vec<(i64, u64, u64)> {
    let r = ring(l);
    within(range, l).flat_map(|x| (0..1 << l).map(move |a| (x, a, r.sub(r.encode(x), a)))).collect()
}

/// One party's factors of all combinations of two lists.
fn side(s: &Session, x: &[(i64, u64, u64)], y: &[(i64, u64, u64)]) -> [Vec<u64>; 2] {
    let of = |&(_, a, b): &(i64, u64, u64)| if s.is_first() { a } else { b };
    let left = x.iter().flat_map(|x| std::iter::repeat_n(of(x), y.len())).collect();
    [left, x.iter().flat_map(|_| y.iter().map(of)).collect()]
}

#[test]
fn products_of_every_value_and_share() {
    for (l, m) in [(3, 3), (4, 3)] {
        for range in RANGES {
            let (x, y) = (all_shares(range, l), all_shares(range, m));
            let (fx, fy) = (Factor::new(ring(l), range).unwrap(), Factor::new(ring(m), range).unwrap());
            let (widths, n) = ([1, 3, 4, 5, l + m], x.len() * y.len());
            let (out, cost) = run_each(OtKind::SoftSpoken, 1 << 17, &widths, |s, &w| {
                let [a, b] = side(s, &x, &y);
                multiply(s, (&a, fx), (&b, fy), ring(w)).unwrap()
            });
            let costs = |c: &mut CostModel| widths.iter().for_each(|&w| multiply_cost(c, n, fx, fy, ring(w)));
            assert_eq!(cost, predict(OtKind::SoftSpoken, 1 << 17, costs), "{l} {m} {range:?}");
            for (&w, out) in widths.iter().zip(&out) {
                for (i, got) in add(ring(w), out).into_iter().enumerate() {
                    let (x, y) = (x[i / y.len()], y[i % y.len()]);
                    assert_eq!(got, ring(w).encode(x.0 * y.0), "{l} {m} {w} {range:?} {x:?} {y:?}");
                }
            }
        }
    }
}

#[test]
fn squares_of_every_value_and_share() {
    for l in [3, 4, 6] {
        for range in RANGES {
            let x = all_shares(range, l);
            let f = Factor::new(ring(l), range).unwrap();
            let widths: Vec<u32> = (1..=2 * l).collect();
            let (out, cost) = run_each(OtKind::SoftSpoken, 1 << 14, &widths, |s, &w| {
                let mine: Vec<u64> = x.iter().map(|v| if s.is_first() { v.1 } else { v.2 }).collect();
                square(s, &mine, f, ring(w)).unwrap()
            });
            let costs = |c: &mut CostModel| widths.iter().for_each(|&w| square_cost(c, x.len(), f, ring(w)));
            assert_eq!(cost, predict(OtKind::SoftSpoken, 1 << 14, costs), "{l} {range:?}");
            for (&w, out) in widths.iter().zip(&out) {
                for (x, got) in x.iter().zip(add(ring(w), out)) {
                    assert_eq!(got, ring(w).encode(x.0 * x.0), "{l} {w} {range:?} {x:?}");
                }
            }
        }
    }
}

/// Rows of every value and share of x for every value and share of y.
#[test]
fn rows_of_every_value_and_share() {
    for (l, m) in [(3, 3), (4, 3), (3, 4)] {
        for range in RANGES {
            let (x, y) = (all_shares(range, l), all_shares(range, m));
            let (fx, fy) = (Factor::new(ring(l), range).unwrap(), Factor::new(ring(m), range).unwrap());
            let (widths, rows) = ([1, 3, 4, 5, l + m], (y.len(), x.len()));
            let (out, cost) = run_each(OtKind::SoftSpoken, 1 << 17, &widths, |s, &w| {
                let [a, b] = side(s, &y, &x);
                let factors: Vec<u64> = a.chunks_exact(x.len()).map(|row| row[0]).collect();
                multiply_rows(s, (&b, fx), (&factors, fy), ring(w)).unwrap()
            });
            let costs =
                |c: &mut CostModel| widths.iter().for_each(|&w| multiply_rows_cost(c, rows, fx, fy, ring(w)));
            assert_eq!(cost, predict(OtKind::SoftSpoken, 1 << 17, costs), "{l} {m} {range:?}");
            for (&w, out) in widths.iter().zip(&out) {
                for (i, got) in add(ring(w), out).into_iter().enumerate() {
                    let (x, y) = (x[i % x.len()], y[i / x.len()]);
                    assert_eq!(got, ring(w).encode(x.0 * y.0), "{l} {m} {w} {range:?} {x:?} {y:?}");
                }
            }
        }
    }
}

fn fit(x: &mut [u64], l: u32, range: Range) {
    for v in x {
        *v = match range {
            Range::Any => *v,
            Range::NonNegative => *v >> 1,
            Range::Small => ring(l).encode(ring(l).signed(*v) >> 1),
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn products_in_any_rings(l in 3u32..=64, m in 3u32..=64, w in 1u32..=64, n in 1usize..400, which in 0usize..9, seed in any::<u64>()) {
        let w = w.min(l + m);
        let ranges = [RANGES[which / 3], RANGES[which % 3]];
        let (mut x, mut y) = (values(n, ring(l), seed.into()), values(n, ring(m), u128::from(seed) + 1));
        fit(&mut x, l, ranges[0]);
        fit(&mut y, m, ranges[1]);
        y.reverse();
        let (sx, sy) = (share(&x, ring(l), 3), share(&y, ring(m), 4));
        let (fx, fy) = (Factor::new(ring(l), ranges[0]).unwrap(), Factor::new(ring(m), ranges[1]).unwrap());
        // Small chunks: several passes, the last one not full.
        let r = run(OtKind::Iknp, 128, |s| {
            let p = s.party().index();
            let product = multiply(s, (&sx[p], fx), (&sy[p], fy), ring(w)).unwrap();
            (product, square(s, &sx[p], fx, ring(w.min(2 * l))).unwrap())
        });
        let cost = predict(OtKind::Iknp, 128, |c| {
            multiply_cost(c, n, fx, fy, ring(w));
            square_cost(c, n, fx, ring(w.min(2 * l)));
        });
        prop_assert_eq!(r.cost, cost);
        let [(p0, s0), (p1, s1)] = r.out;
        let squares = ring(w.min(2 * l));
        for (i, got) in add(ring(w), &[p0, p1]).into_iter().enumerate() {
            let (a, b) = (ring(l).signed(x[i]), ring(m).signed(y[i]));
            prop_assert_eq!(got, ring(w).reduce(a.wrapping_mul(b) as u64), "{} {}", a, b);
            let square = squares.add(s0[i], s1[i]);
            prop_assert_eq!(square, squares.reduce(a.wrapping_mul(a) as u64), "{}", a);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn rows_in_any_rings(
        l in 3u32..=64, m in 3u32..=64, w in 1u32..=64, rows in 1usize..70, len in 1usize..1100, which in 0usize..9, seed in any::<u64>()
    ) {
        // Rows of one run, of several, and of pieces; many rows are short.
        let (w, len) = (w.min(l + m), if rows > 4 { 1 + len / rows } else { len * rows });
        let ranges = [RANGES[which / 3], RANGES[which % 3]];
        let (mut x, mut y) = (values(rows * len, ring(l), seed.into()), values(rows, ring(m), u128::from(seed) + 1));
        fit(&mut x, l, ranges[0]);
        fit(&mut y, m, ranges[1]);
        let (sx, sy) = (share(&x, ring(l), 3), share(&y, ring(m), 4));
        let (fx, fy) = (Factor::new(ring(l), ranges[0]).unwrap(), Factor::new(ring(m), ranges[1]).unwrap());
        let r = run(OtKind::Iknp, 4096, |s| {
            let p = s.party().index();
            multiply_rows(s, (&sx[p], fx), (&sy[p], fy), ring(w)).unwrap()
        });
        prop_assert_eq!(r.cost, predict(OtKind::Iknp, 4096, |c| multiply_rows_cost(c, (rows, len), fx, fy, ring(w))));
        for (i, got) in add(ring(w), &r.out).into_iter().enumerate() {
            let (a, b) = (ring(l).signed(x[i]), ring(m).signed(y[i / len]));
            prop_assert_eq!(got, ring(w).reduce(a.wrapping_mul(b) as u64), "{} {}", a, b);
        }
    }
}

/// A row takes the OTs of one element, and no more payload than its elements.
#[test]
fn rows_take_the_transfers_of_their_factors() {
    let (rows, len) = (128, 384);
    let (x, y) = (Factor::new(ring(28), Range::Small).unwrap(), Factor::new(ring(19), Range::Small).unwrap());
    let drawn = |cost: &dyn Fn(&mut CostModel)| {
        let mut m = CostModel::new(OtKind::SILENT);
        cost(&mut m);
        (m.drawn()[0] + m.drawn()[1], m.cost().bytes())
    };
    let (stretched, bytes) = drawn(&|m| multiply_rows_cost(m, (rows, len), x, y, ring(28)));
    let (each, more) = drawn(&|m| multiply_cost(m, rows * len, x, y, ring(28)));
    // A 384th, and the wrap-around of the rows.
    assert!(stretched * 300 < each, "{stretched} {each}");
    assert!(bytes < more, "{bytes} {more}");
}

#[test]
fn sixteen_bits_within_the_stated_bytes() {
    let n = 1 << 20;
    let f = Factor::new(ring(16), Range::Any).unwrap();
    let bytes = |cost: &dyn Fn(&mut CostModel)| {
        let mut m = CostModel::new(OtKind::SILENT);
        cost(&mut m);
        m.cost().bytes() as f64 / n as f64
    };
    let product = bytes(&|m| multiply_cost(m, n, f, f, ring(16)));
    let squares = bytes(&|m| square_cost(m, n, f, ring(16)));
    assert!((38.0..41.0).contains(&product), "{product}");
    assert!((17.0..19.0).contains(&squares), "{squares}");
    let small = Factor::new(ring(16), Range::Small).unwrap();
    let exact = bytes(&|m| multiply_cost(m, n, small, small, ring(32)));
    assert!((112.0..115.0).contains(&exact), "{exact}");
}

#[test]
fn wrong_arguments_are_errors() {
    let f = Factor::new(ring(4), Range::Any).unwrap();
    assert!(matches!(Factor::new(ring(2), Range::Any), Err(MpcError::RingWidth { .. })));
    run(OtKind::SoftSpoken, 64, |s| {
        assert!(matches!(
            multiply(s, (&[1], f), (&[1, 2], f), ring(4)),
            Err(MpcError::Length { expected: 1, got: 2, .. })
        ));
        assert!(matches!(
            multiply(s, (&[1], f), (&[1], f), ring(9)),
            Err(MpcError::Parameter { got: 9, limit: 8, .. })
        ));
        assert!(matches!(
            multiply_rows(s, (&[1, 2, 3], f), (&[1, 2], f), ring(4)),
            Err(MpcError::Length { expected: 4, got: 3, .. })
        ));
        assert!(matches!(
            multiply_rows(s, (&[1], f), (&[], f), ring(4)),
            Err(MpcError::Length { expected: 0, got: 1, .. })
        ));
        assert!(matches!(
            multiply_rows(s, (&[1], f), (&[1], f), ring(9)),
            Err(MpcError::Parameter { got: 9, limit: 8, .. })
        ));
        assert!(multiply_rows(s, (&[], f), (&[1], f), ring(4)).unwrap().is_empty());
        assert!(matches!(square(s, &[1], f, ring(9)), Err(MpcError::Parameter { got: 9, limit: 8, .. })));
    });
}
