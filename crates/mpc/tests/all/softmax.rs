//! Reciprocals, inverse roots and softmax on shares, against floating point and the stated errors; and their cost.

use crate::common::{add, predict, run, run_each, share, values};
use hushnet_mpc::*;

const KIND: OtKind = OtKind::SoftSpoken;
const CHUNK: usize = 1 << 14;

fn ring(bits: u32) -> Ring {
    Ring::new(bits).unwrap()
}

/// The shares of values of which party zero's are given.
fn beside(x: &[u64], first: Vec<u64>, of: Ring) -> [Vec<u64>; 2] {
    let second = x.iter().zip(&first).map(|(&x, &a)| of.sub(x, a)).collect();
    [first, second]
}

/// Evaluates a power and holds every result against the stated error. Returns the largest part of the bound that was used.
fn check_power(
    f: Function,
    at: Interval,
    (l, scale, relative, w): (u32, u32, f64, u32),
    x: &[i64],
    first: Option<Vec<u64>>,
) -> f64 {
    let (input, out) = (ring(l), ring(w));
    let fit = Power::fit(f, (at, input), scale, relative).unwrap();
    assert!(fit.relative <= relative);
    let words: Vec<u64> = x.iter().map(|&x| input.encode(x)).collect();
    let shares = beside(&words, first.unwrap_or_else(|| values(x.len(), input, 9)), input);
    let r = run(KIND, CHUNK, |s| power(s, (&shares[s.party().index()], input), &fit, out).unwrap());
    assert_eq!(r.cost, predict(KIND, CHUNK, |m| power_cost(m, x.len(), &fit, out)), "{f:?} {at:?}");
    let mut used = 0f64;
    for (&x, got) in x.iter().zip(add(out, &r.out)) {
        let exact = f.at(x as f64 * 2f64.powi(-(at.scale as i32)));
        let error = (out.signed(got) as f64 * 2f64.powi(-(scale as i32)) - exact).abs();
        let bound = fit.relative * exact + fit.absolute;
        assert!(error <= bound, "{f:?} {x}: {error} above {bound}");
        used = used.max(error / bound);
    }
    used
}

#[test]
fn powers_of_every_argument() {
    for f in [Function::Reciprocal, Function::InverseRoot] {
        for (low, high, scale) in [(1, 1 << 10, 4), (37, 900, 7), (512, 1023, 9), (5, 5, 0)] {
            let at = Interval { low, high, scale };
            let x: Vec<i64> = (low..=high).flat_map(|x| [x; 3]).collect();
            let used = check_power(f, at, (17, 11, 2f64.powi(-9), 24), &x, None);
            assert!(used > 0.1 || low == high, "{f:?} {at:?} {used}");
        }
    }
}

#[test]
fn powers_of_every_argument_and_share() {
    for f in [Function::Reciprocal, Function::InverseRoot] {
        for (low, high) in [(1, 15), (3, 12)] {
            let all = (low..=high).flat_map(|x| (0..128).map(move |a| (x, a)));
            let (x, a): (Vec<i64>, Vec<u64>) = all.unzip();
            check_power(f, Interval { low, high, scale: 3 }, (7, 6, 2f64.powi(-5), 12), &x, Some(a));
        }
    }
}

#[test]
fn powers_in_wide_rings() {
    let random = |low: i64, high: i64| -> Vec<i64> {
        let words = values(500, ring(64), 6);
        let x = |w: &u64| low + ((w >> (w % 40)) % ((high - low) as u64 + 1)) as i64;
        [low, high].into_iter().chain(words.iter().map(x)).collect()
    };
    let x = random(1 << 12, 1 << 22);
    check_power(
        Function::Reciprocal,
        Interval { low: 1 << 12, high: 1 << 22, scale: 12 },
        (37, 20, 2f64.powi(-14), 37),
        &x,
        None,
    );
    let x = random(3, 1 << 30);
    check_power(
        Function::InverseRoot,
        Interval { low: 3, high: 1 << 30, scale: 20 },
        (40, 12, 2f64.powi(-12), 50),
        &x,
        None,
    );
}

/// Evaluates softmax of rows and holds every result against the stated error. Returns the largest part of the bound that was used.
fn check_softmax(
    fit: &Softmax,
    (classes, fraction, scale): (usize, u32, u32),
    (input, out): (Ring, Ring),
    x: &[u64],
    shares: &[Vec<u64>; 2],
) -> f64 {
    let r = run(KIND, CHUNK, |s| softmax(s, &shares[s.party().index()], fit, out).unwrap());
    assert_eq!(r.cost, predict(KIND, CHUNK, |m| softmax_cost(m, x.len() / classes, fit, out)), "{classes}");
    let (got, mut worst) = (add(out, &r.out), 0f64);
    for (row, got) in x.chunks(classes).zip(got.chunks(classes)) {
        let real: Vec<f64> =
            row.iter().map(|&v| input.signed(v) as f64 * 2f64.powi(-(fraction as i32))).collect();
        let top = real.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = real.iter().map(|v| (v - top).exp()).sum();
        for (v, &got) in real.iter().zip(got) {
            let exact = (v - top).exp() / sum;
            let result = out.signed(got) as f64 * 2f64.powi(-(scale as i32));
            worst = worst.max((result - exact).abs());
            assert!(
                (result - exact).abs() <= fit.error,
                "{classes}: {result} for {exact}, bound {}",
                fit.error
            );
        }
    }
    worst / fit.error
}

/// Every pair of values, every share of the first, and four shares of the second.
#[test]
fn softmax_of_every_pair_and_share() {
    let (input, out) = (ring(6), ring(9));
    let fit = Softmax::fit(2, (input, input, 2), 6, 2f64.powi(-6)).unwrap();
    let (mut x, mut first) = (Vec::new(), Vec::new());
    for (a, b) in (0..64).map(|i| (i / 8 - 4, i % 8 - 4)) {
        for share in 0..64 {
            for other in [0, 31, 32, 63] {
                x.extend([input.encode(a), input.encode(b)]);
                first.extend([share, other]);
            }
        }
    }
    let shares = beside(&x, first, input);
    assert!(check_softmax(&fit, (2, 2, 6), (input, out), &x, &shares) > 0.1);
}

#[test]
fn softmax_of_rows() {
    let cases = [
        (10, 20, 20, 12, 12, 2f64.powi(-12), 30),
        (1, 16, 16, 8, 10, 2f64.powi(-10), 16),
        // No difference is as large as the depth: nothing is clipped.
        (7, 24, 9, 8, 8, 2f64.powi(-10), 12),
        (128, 37, 18, 12, 14, 2f64.powi(-16), 37),
        (128, 37, 17, 12, 12, 2f64.powi(-11), 37),
    ];
    let mut used = 0f64;
    for (classes, l, narrow, fraction, scale, error, w) in cases {
        let (input, out) = (ring(l), ring(w));
        let fit = Softmax::fit(classes, (input, ring(narrow), fraction), scale, error).unwrap();
        let rows = 20;
        // Differences are below 2^(narrow - 1); some rows are equal, some have one large value.
        let mut x = values(rows * classes, ring(narrow - 1), 11);
        for (i, x) in x.iter_mut().enumerate() {
            let (row, class) = (i / classes, i % classes);
            *x = match row % 5 {
                0 => 5,
                1 => {
                    if class == row % classes {
                        ring(narrow - 1).mask()
                    } else {
                        0
                    }
                }
                2 => *x >> 3,
                _ => *x,
            };
            *x = input.reduce(x.wrapping_sub(1 << (narrow - 3)));
        }
        let shares = share(&x, input, 12);
        // Exponentials of a row may be wrong alike, as where one value is far above the others: the bound is no idle one.
        used = used.max(check_softmax(&fit, (classes, fraction, scale), (input, out), &x, &shares));
    }
    assert!(used > 0.1, "{used}");
}

#[test]
fn rescaling_every_value_and_share() {
    for l in [3, 4, 6] {
        let from = ring(l);
        let all = (0..1 << (l - 1)).flat_map(|x| (0..1 << l).map(move |a| (x, a)));
        let (x, first): (Vec<u64>, Vec<u64>) = all.unzip();
        let shares = beside(&x, first, from);
        let cases: Vec<_> = (0..l).flat_map(|shift| [1, 2, l, l + 3].map(|w| (shift, ring(w)))).collect();
        let (outs, cost) = run_each(KIND, 1 << 11, &cases, |s, &(shift, out)| {
            rescale(s, &shares[s.party().index()], (from, shift), out).unwrap()
        });
        let costs = |m: &mut CostModel| {
            cases.iter().for_each(|&(shift, out)| rescale_cost(m, x.len(), (from, shift), out));
        };
        assert_eq!(cost, predict(KIND, 1 << 11, costs), "{l}");
        for (&(shift, out), both) in cases.iter().zip(&outs) {
            for (i, got) in add(out, both).into_iter().enumerate() {
                let off = out.sub(got, x[i] >> shift);
                assert!(off <= u64::from(shift > 0), "{l} {shift} {out:?}: {} {}", x[i], shares[0][i]);
            }
        }
    }
}

#[test]
fn rescaling_into_any_ring() {
    for (l, shift, w) in
        [(8, 3, 20), (8, 0, 9), (16, 5, 7), (64, 40, 64), (20, 19, 1), (12, 4, 8), (30, 0, 64)]
    {
        let (from, out) = (ring(l), ring(w));
        let x: Vec<u64> = values(300, from, 5).iter().map(|v| v >> 1).collect();
        let shares = share(&x, from, 4);
        let r = run(KIND, 128, |s| rescale(s, &shares[s.party().index()], (from, shift), out).unwrap());
        assert_eq!(r.cost, predict(KIND, 128, |m| rescale_cost(m, 300, (from, shift), out)));
        for (&x, got) in x.iter().zip(add(out, &r.out)) {
            let off = out.sub(got, x >> shift);
            assert!(off <= u64::from(shift > 0), "{l} {shift} {w}: {x} {got}");
        }
    }
}

#[test]
fn wrong_arguments_are_errors() {
    let at = |low, high| Interval { low, high, scale: 8 };
    let power = |f, at, l, scale, relative| Power::fit(f, (at, ring(l)), scale, relative).is_err();
    assert!(power(Function::Exp, at(1, 9), 20, 8, 0.01));
    assert!(power(Function::Reciprocal, at(0, 9), 20, 8, 0.01));
    assert!(power(Function::Reciprocal, at(9, 1), 20, 8, 0.01));
    assert!(power(Function::Reciprocal, at(1, i64::MAX), 64, 8, 0.01));
    assert!(power(Function::Reciprocal, at(1, 255), 9, 8, 0.01));
    assert!(power(Function::Reciprocal, at(1, 255), 20, 41, 0.01));
    assert!(power(Function::Reciprocal, at(1, 255), 20, 8, f64::NAN));
    let softmax_of = |classes, l, narrow, error| Softmax::fit(classes, (ring(l), ring(narrow), 8), 10, error);
    assert!(softmax_of(0, 20, 16, 0.001).is_err() && softmax_of(usize::MAX, 20, 16, 1e-6).is_err());
    assert!(softmax_of(4, 16, 17, 0.001).is_err() && softmax_of(4, 20, 16, f64::NAN).is_err());
    let fit = softmax_of(4, 20, 16, 0.001).unwrap();
    run(KIND, 64, |s| {
        assert!(matches!(
            softmax(s, &[1; 6], &fit, ring(20)),
            Err(MpcError::Length { expected: 8, got: 6, .. })
        ));
        assert!(matches!(rescale(s, &[1], (ring(8), 8), ring(8)), Err(MpcError::Parameter { .. })));
    });
}

/// What `docs/mpc.md` states of rows of 128.
#[test]
fn a_softmax_of_128_takes_at_most_365_bytes_a_value() {
    let fit = Softmax::fit(128, (ring(37), ring(17), 12), 12, 2f64.powi(-11)).unwrap();
    let mut m = CostModel::new(OtKind::Silent(SilentSize::Small)).with_chunk(1 << 20);
    m.ensure([64, 64]);
    m.reset();
    softmax_cost(&mut m, 64, &fit, ring(37));
    let bytes = m.cost().bytes() as f64 / (64.0 * 128.0);
    assert!(bytes < 365.0, "{bytes}");
}
