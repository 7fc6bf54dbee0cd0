//! Every protocol against plain arithmetic, on edge values and odd lengths, with its cost.

use crate::common::{add, every_share, mine, predict, run, share, values};
use hushnet_mpc::*;

const WIDTHS: [u32; 10] = [8, 9, 16, 21, 32, 37, 41, 53, 63, 64];

/// Runs an elementwise protocol on shares and checks result and cost.
fn check(
    kind: OtKind,
    n: usize,
    ring: Ring,
    x: &[u64],
    f: impl Fn(&mut Session, &[u64]) -> Vec<u64> + Sync,
    cost: impl Fn(&mut CostModel),
) -> Vec<u64> {
    let chunk = 128;
    let shares = share(x, ring, 7 + n as u128);
    let r = run(kind, chunk, |s| f(s, mine(s, &shares)));
    assert_eq!(r.cost, predict(kind, chunk, cost), "n {n} ring {ring:?}");
    add(ring, &r.out)
}

#[test]
fn less_than_is_exact() {
    for bits in [1, 2, 3, 4, 5, 7, 8, 13, 36, 37, 63, 64] {
        let ring = Ring::new(bits).unwrap();
        for n in [1, 63, 64, 65, 300] {
            let x = values(n, ring, 1);
            let mut y = values(n, ring, 2);
            y.reverse();
            (0..n).step_by(3).for_each(|i| y[i] = x[i]);
            (1..n).step_by(7).for_each(|i| y[i] = ring.add(x[i], 1));
            let r = run(OtKind::Iknp, 128, |s| {
                let b = less_than(s, if s.is_first() { &x } else { &y }, bits).unwrap();
                (0..n).map(|i| b.get(i)).collect::<Vec<_>>()
            });
            for i in 0..n {
                assert_eq!(r.out[0][i] ^ r.out[1][i], u64::from(x[i] < y[i]), "{bits} {} {}", x[i], y[i]);
            }
            assert_eq!(r.cost, predict(OtKind::Iknp, 128, |m| less_than_cost(m, n, bits)));
        }
    }
}

#[test]
fn relu_is_exact() {
    for (k, l) in WIDTHS.into_iter().enumerate() {
        let ring = Ring::new(l).unwrap();
        let n = [1, 777, 64, 129, 200][k % 5];
        let x = values(n, ring, 3);
        let got =
            check(OtKind::Iknp, n, ring, &x, |s, x| relu(s, x, ring).unwrap(), |m| relu_cost(m, n, ring));
        for (&x, got) in x.iter().zip(got) {
            assert_eq!(got, if ring.signed(x) > 0 { x } else { 0 }, "l {l} x {x}");
        }
    }
}

#[test]
fn relu_of_every_byte_and_share() {
    let ring = Ring::new(8).unwrap();
    let (every, shares) = every_share(ring);
    let r = run(OtKind::Iknp, 1 << 14, |s| relu(s, mine(s, &shares), ring).unwrap());
    for (got, &x) in add(ring, &r.out).into_iter().zip(&every) {
        assert_eq!(got, if x < 128 { x } else { 0 });
    }
}

#[test]
fn relu_within_a_narrower_ring() {
    for (l, w) in [(37, 20), (20, 20), (16, 2), (64, 33), (9, 8)] {
        let (ring, narrow) = (Ring::new(l).unwrap(), Ring::new(w).unwrap());
        let n = 700;
        let mut x: Vec<u64> = values(n, narrow, 8).iter().map(|v| ring.encode(narrow.signed(*v))).collect();
        let top = (1i64 << (w - 1)) - 1;
        for (v, edge) in x.iter_mut().zip([top, -top - 1, 0, -1, 1.min(top)]) {
            *v = ring.encode(edge);
        }
        let got = check(
            OtKind::Iknp,
            n,
            ring,
            &x,
            |s, x| relu_within(s, x, ring, narrow).unwrap(),
            |m| relu_within_cost(m, n, ring, narrow),
        );
        for (&x, got) in x.iter().zip(got) {
            assert_eq!(got, if ring.signed(x) > 0 { x } else { 0 }, "l {l} w {w} x {x}");
        }
    }
}

/// Every value, every split into shares, every number of dropped bits and every narrow ring of a small ring: what the local shift gives, and with it
/// what ReLU, max and the extension of signed and of raised values give.
#[test]
fn narrowed_comparisons_of_every_share() {
    let ring = Ring::new(6).unwrap();
    let (every, shares) = every_share(ring);
    for (bits, w) in (0..=4u32).flat_map(|g| (2..=6 - g).map(move |w| (g, w))) {
        let of = Narrowing { ring, bits, narrow: Ring::new(w).unwrap() };
        let half = 1_i64 << (w - 1);
        let least = -half / 2;
        let r = run(OtKind::Iknp, 1 << 14, |s| {
            let relu = relu_dividing(s, mine(s, &shares), of).unwrap();
            let y = narrowed(s, mine(s, &shares), of).unwrap();
            let (wide, raised) = (widened(s, &y, of, 0).unwrap(), widened(s, &y, of, least).unwrap());
            [relu, wide, raised].concat()
        });
        let got = add(ring, &r.out);
        let n = every.len();
        for (i, &x) in every.iter().enumerate() {
            let carry = (shares[0][i] % (1 << bits)) + (shares[1][i] % (1 << bits)) >= 1 << bits;
            let y = (ring.signed(x) >> bits) + i64::from(bits > 0 && !carry);
            let at = |k: usize| ring.signed(got[k * n + i]);
            if (-half..half).contains(&y) {
                assert_eq!(at(0), y.max(0), "relu of {x}, {bits} dropped, {w} kept");
            }
            if (0..half).contains(&y) {
                assert_eq!(at(1), y, "{x}, {bits} dropped, {w} kept");
            }
            if (least..least + half).contains(&y) {
                assert_eq!(at(2), y, "{x} raised, {bits} dropped, {w} kept");
            }
        }
    }
}

/// Maxima of two in a row and of two in a column, of which the last comparison brings the result back into the ring of the shares.
#[test]
fn pools_of_every_share() {
    let ring = Ring::new(4).unwrap();
    let pairs: Vec<(u64, u64)> = (0..16).flat_map(|x| (0..16).map(move |r| (x, r))).collect();
    let both = || pairs.iter().flat_map(|a| pairs.iter().map(move |b| [*a, *b]));
    let shares = [
        both().flatten().map(|p| p.1).collect::<Vec<_>>(),
        both().flatten().map(|(x, r)| ring.sub(x, r)).collect::<Vec<_>>(),
    ];
    let kernels = [(1, 2), (2, 1)];
    for (bits, w) in (0..=2u32).flat_map(|g| (2..=4 - g).map(move |w| (g, w))) {
        let of = Narrowing { ring, bits, narrow: Ring::new(w).unwrap() };
        let quarter = 1_i64 << (w - 2);
        let shape = |(height, width)| PoolShape {
            channels: pairs.len() * pairs.len(),
            height,
            width,
            kernel: (height, width),
            stride: (1, 1),
            padding: [(0, 0); 2],
        };
        let r = run(OtKind::Iknp, 1 << 15, |s| {
            kernels.map(|k| max_pool_dividing(s, mine(s, &shares), of, -quarter, shape(k)).unwrap()).concat()
        });
        let costs = |m: &mut CostModel| kernels.iter().for_each(|k| max_pool_dividing_cost(m, of, shape(*k)));
        assert_eq!(r.cost, predict(OtKind::Iknp, 1 << 15, costs), "{bits} dropped, {w} kept");
        let (got, n) = (add(ring, &r.out), pairs.len() * pairs.len());
        for (i, window) in both().enumerate() {
            let y = window.map(|(x, r)| {
                let carry = r % (1 << bits) + ring.sub(x, r) % (1 << bits) >= 1 << bits;
                (ring.signed(x) >> bits) + i64::from(bits > 0 && !carry)
            });
            if y.iter().all(|y| (-quarter..quarter).contains(y)) {
                let most = y[0].max(y[1]);
                let results = [got[i], got[n + i]].map(|v| ring.signed(v));
                assert_eq!(results, [most; 2], "{window:?}, {bits} dropped, {w} kept");
            }
        }
    }
}

#[test]
fn narrowed_relu_costs_what_is_predicted() {
    for (l, g, w) in [(28, 12, 16), (28, 10, 16), (37, 12, 25), (64, 39, 24), (16, 0, 12), (9, 3, 6)] {
        let of = Narrowing { ring: Ring::new(l).unwrap(), bits: g, narrow: Ring::new(w).unwrap() };
        let n = 700;
        let top = (1_i64 << (w - 1 + g)) - (1 << g);
        let mut x = values(n, of.ring, 18);
        x.iter_mut().for_each(|v| *v = of.ring.encode(of.ring.signed(*v) % top));
        x[0] = of.ring.encode(top - 1);
        x[1] = of.ring.encode(-top);
        let got = check(
            OtKind::Iknp,
            n,
            of.ring,
            &x,
            |s, x| relu_dividing(s, x, of).unwrap(),
            |m| relu_dividing_cost(m, n, of),
        );
        for (&x, got) in x.iter().zip(got) {
            let (x, got) = (of.ring.signed(x), of.ring.signed(got));
            let floor = x.max(0) >> g;
            assert!(
                got == floor || (g > 0 && x >= 0 && got == floor + 1),
                "l {l} g {g} w {w}: {x} gave {got}"
            );
        }
    }
}

#[test]
fn dropping_errs_only_where_stated() {
    for (l, drop) in [(37, 12), (16, 5), (64, 20), (8, 6)] {
        let ring = Ring::new(l).unwrap();
        let n = 1500;
        let mut x = values(n, ring, 4);
        for (i, v) in x.iter_mut().enumerate().skip(20) {
            // Crowd the borders.
            let near = (*v % (4 << drop)).wrapping_sub(2 << drop);
            *v = ring.reduce(match i % 3 {
                0 => near,
                1 => near.wrapping_add(1 << (l - 1)),
                _ => *v,
            });
        }
        let got = check(
            OtKind::Iknp,
            n,
            ring,
            &x,
            |s, x| relu_dropping(s, x, ring, drop).unwrap(),
            |m| relu_dropping_cost(m, n, ring, drop),
        );
        let mut wrong = 0;
        for (&x, got) in x.iter().zip(got) {
            let v = ring.signed(x);
            let right = if v > 0 { x } else { 0 };
            let excused = (0..1 << drop).contains(&v) || v < ring.signed(1 << (l - 1)) + (1 << drop);
            assert!(got == right || excused && (got == 0 || got == x), "l {l} x {v} got {got}");
            wrong += usize::from(got != right);
        }
        assert!(wrong > 0, "the error that the variant states never showed");
    }
}

#[test]
fn mux_and_conversion() {
    for l in [1, 2, 8, 37, 64] {
        let ring = Ring::new(l).unwrap();
        let n = 333;
        let x = values(n, ring, 5);
        let shares = share(&x, ring, 6);
        let bits = share(&values(n, Ring::new(1).unwrap(), 9), Ring::new(1).unwrap(), 10);
        let r = run(OtKind::Iknp, 64, |s| {
            let b = Bits::from_values(mine(s, &bits));
            (mux(s, &b, mine(s, &shares), ring).unwrap(), bit_to_arithmetic(s, &b, ring).unwrap())
        });
        let cost = predict(OtKind::Iknp, 64, |m| {
            mux_cost(m, n, ring);
            bit_to_arithmetic_cost(m, n, ring);
        });
        assert_eq!(r.cost, cost);
        for i in 0..n {
            let b = bits[0][i] ^ bits[1][i];
            assert_eq!(ring.add(r.out[0].0[i], r.out[1].0[i]), b * x[i]);
            assert_eq!(ring.add(r.out[0].1[i], r.out[1].1[i]), b);
        }
    }
}

#[test]
fn truncation() {
    for (l, shift) in [(8, 1), (8, 6), (16, 5), (37, 12), (41, 1), (41, 39), (64, 18), (64, 62), (32, 16)] {
        let ring = Ring::new(l).unwrap();
        for range in [Range::Any, Range::NonNegative, Range::Small] {
            for rounding in [Rounding::Floor, Rounding::Faithful] {
                let n = 259;
                let x: Vec<u64> = values(n, ring, 8)
                    .into_iter()
                    .map(|v| match range {
                        Range::Any => v,
                        Range::NonNegative => v >> 1,
                        Range::Small => ring.encode(ring.signed(v) >> 1),
                    })
                    .collect();
                let got = check(
                    OtKind::Iknp,
                    n,
                    ring,
                    &x,
                    |s, x| truncate(s, x, shift, ring, range, rounding).unwrap(),
                    |m| truncate_cost(m, n, shift, ring, range, rounding),
                );
                for (&x, got) in x.iter().zip(got) {
                    let floor = ring.signed(x) >> shift;
                    let error = ring.signed(ring.sub(got, ring.encode(floor)));
                    let allowed = if rounding == Rounding::Floor { 0..=0 } else { 0..=1 };
                    assert!(
                        allowed.contains(&error),
                        "l {l} s {shift} {range:?} {rounding:?} x {x} error {error}"
                    );
                }
            }
        }
    }
}

#[test]
fn faithful_truncation_is_unbiased() {
    let ring = Ring::new(32).unwrap();
    let n = 20_000;
    let x = vec![5 * 256 + 64u64; n];
    let mut r = vec![0; n];
    Prg::new(77).words(&mut r);
    let a: Vec<u64> = r.iter().map(|&r| ring.reduce(r)).collect();
    let shares = [a.clone(), x.iter().zip(&a).map(|(&x, &a)| ring.sub(x, a)).collect()];
    let out = run(OtKind::SILENT, 1 << 20, |s| {
        truncate(s, mine(s, &shares), 8, ring, Range::NonNegative, Rounding::Faithful).unwrap()
    });
    let mean = add(ring, &out.out).iter().sum::<u64>() as f64 / n as f64;
    assert!((mean - (5.25 + 1.0 / 256.0)).abs() < 0.02, "{mean}");
}

#[test]
fn division() {
    for (l, d) in [(8, 2), (8, 9), (8, 16), (16, 49), (37, 3), (37, 1000), (64, 7), (64, 49), (41, 64)] {
        let ring = Ring::new(l).unwrap();
        for range in [Range::NonNegative, Range::Small] {
            for quotient in [Quotient::Floor, Quotient::Near] {
                let n = 203;
                let most = 1i64 << (l - 2);
                let x: Vec<u64> = values(n, ring, 8)
                    .into_iter()
                    .map(|v| match range {
                        Range::NonNegative => v >> 1,
                        _ => ring.encode((ring.signed(v) >> 1).clamp(-(most - d as i64), most - 1)),
                    })
                    .collect();
                let got = check(
                    OtKind::Iknp,
                    n,
                    ring,
                    &x,
                    |s, x| divide(s, x, d, ring, range, quotient).unwrap(),
                    |m| divide_cost(m, n, d, ring, range, quotient),
                );
                for (&x, got) in x.iter().zip(got) {
                    let error = ring.signed(ring.sub(got, ring.encode(ring.signed(x).div_euclid(d as i64))));
                    let allowed = i64::from(quotient != Quotient::Floor);
                    assert!(error.abs() <= allowed, "l {l} d {d} {range:?} {quotient:?} x {x} error {error}");
                }
            }
        }
    }
}

#[test]
fn leaky_relu_and_clip() {
    for l in [16, 37, 64] {
        let ring = Ring::new(l).unwrap();
        let n = 301;
        for (slope, a, f) in
            [(Slope::power_of_two(3).unwrap(), 1i128, 3), (Slope::new(41, 7).unwrap(), 41, 7)]
        {
            for (range, room, rounding) in [
                (Range::Any, 0, Rounding::Floor),
                (Range::Small, 1, Rounding::Floor),
                (Range::Small, 1, Rounding::Faithful),
            ] {
                let x: Vec<u64> =
                    values(n, ring, 11).iter().map(|&v| ring.encode(ring.signed(v) >> (f + room))).collect();
                let got = check(
                    OtKind::Iknp,
                    n,
                    ring,
                    &x,
                    |s, x| leaky_relu(s, x, ring, slope, range, rounding).unwrap(),
                    |m| leaky_relu_cost(m, n, ring, slope, range, rounding),
                );
                for (&x, got) in x.iter().zip(got) {
                    let v = i128::from(ring.signed(x));
                    let right = if v >= 0 { v } else { (a * v) >> f };
                    let error = i128::from(ring.signed(got)) - right;
                    assert!(
                        error == 0 || rounding == Rounding::Faithful && error == 1,
                        "l {l} x {v} error {error}"
                    );
                }
            }
        }
        let x: Vec<u64> = values(n, ring, 12).iter().map(|&v| ring.encode(ring.signed(v) >> 2)).collect();
        // values below 2^(l-3), limits below 2^(l-3) as well
        let narrow = Ring::new(ring.bits() - 1).unwrap();
        for (low, high) in [(0, 600), (-100, 100), (-7, -3), (5, 5)] {
            let got = check(
                OtKind::Iknp,
                n,
                ring,
                &x,
                // only the first party has the ends
                |s, x| clip(s, x, ring, narrow, s.is_first().then_some((low, high))).unwrap(),
                |m| clip_cost(m, n, ring, narrow),
            );
            for (&x, got) in x.iter().zip(got) {
                assert_eq!(ring.signed(got), ring.signed(x).clamp(low, high));
            }
        }
    }
}

fn naive_pool(x: &[i64], p: PoolShape, f: impl Fn(&[i64]) -> i64) -> Vec<i64> {
    let (rows, columns) = p.output().unwrap();
    let mut out = Vec::new();
    for c in 0..p.channels {
        for i in 0..rows {
            for j in 0..columns {
                let mut window = Vec::new();
                for di in 0..p.kernel.0 {
                    for dj in 0..p.kernel.1 {
                        let r = (i * p.stride.0 + di) as i64 - p.padding[0].0 as i64;
                        let k = (j * p.stride.1 + dj) as i64 - p.padding[1].0 as i64;
                        if (0..p.height as i64).contains(&r) && (0..p.width as i64).contains(&k) {
                            window.push(x[(c * p.height + r as usize) * p.width + k as usize]);
                        }
                    }
                }
                out.push(f(&window));
            }
        }
    }
    out
}

#[test]
fn pooling() {
    let no_padding = [(0, 0); 2];
    let shape = |channels, height, width, kernel, stride, padding| PoolShape {
        channels,
        height,
        width,
        kernel,
        stride,
        padding,
    };
    let shapes = [
        shape(3, 8, 8, (2, 2), (2, 2), no_padding),
        shape(2, 7, 9, (3, 3), (2, 2), no_padding),
        shape(1, 7, 5, (3, 3), (2, 2), [(1, 1), (1, 1)]),
        shape(2, 5, 6, (3, 2), (1, 3), [(0, 1), (1, 0)]),
        shape(4, 6, 6, (6, 6), (1, 1), no_padding),
        shape(1, 4, 4, (1, 1), (2, 2), no_padding),
        shape(2, 9, 4, (1, 3), (3, 1), no_padding),
    ];
    for l in [16, 37] {
        // values below 2^(l-8), differences below 2^(l-7)
        let (ring, narrow) = (Ring::new(l).unwrap(), Ring::new(l - 6).unwrap());
        for p in shapes {
            let n = p.channels * p.height * p.width;
            let x: Vec<u64> = values(n, ring, 13).iter().map(|&v| ring.encode(ring.signed(v) >> 7)).collect();
            let plain: Vec<i64> = x.iter().map(|&v| ring.signed(v)).collect();
            let got = check(
                OtKind::Iknp,
                n,
                ring,
                &x,
                |s, x| max_pool(s, x, ring, narrow, p).unwrap(),
                |m| max_pool_cost(m, ring, narrow, p),
            );
            let got: Vec<i64> = got.iter().map(|&v| ring.signed(v)).collect();
            assert_eq!(got, naive_pool(&plain, p, |w| *w.iter().max().unwrap()), "{p:?}");
            let how = (Range::Small, Quotient::Floor);
            let got = check(
                OtKind::Iknp,
                n,
                ring,
                &x,
                |s, x| average_pool(s, x, ring, p, true, how).unwrap(),
                |m| average_pool_cost(m, ring, p, how),
            );
            let got: Vec<i64> = got.iter().map(|&v| ring.signed(v)).collect();
            let count = (p.kernel.0 * p.kernel.1) as i64;
            assert_eq!(got, naive_pool(&plain, p, |w| w.iter().sum::<i64>().div_euclid(count)), "{p:?}");
        }
    }
}

/// The formulas of docs/mpc.md.
#[test]
fn costs_follow_the_formulas() {
    for (n, l) in [(1000usize, 64u64), (1 << 14, 37), (77, 16), (8, 2), (8, 3), (9, 4)] {
        let ring = Ring::new(l as u32).unwrap();
        let mut model = CostModel::online(1 << 20);
        relu_cost(&mut model, n, ring);
        let (m, plane, packed) = (l - 1, n.div_ceil(8) as u64, (n as u64 * l).div_ceil(8));
        let digits = m.div_ceil(2);
        let levels = u64::from(digits.next_power_of_two().trailing_zeros());
        let tree = 3 * (digits - 1) - levels;
        let corrections = if m == 1 { 1 } else { 5 * (m / 2) - 2 + m % 2 };
        let c = model.cost();
        assert_eq!(c.bytes_sent_by_0, (m + tree + 1) * plane + packed, "n {n} l {l}");
        assert_eq!(c.bytes_sent_by_1, (corrections + tree + 1) * plane + packed, "n {n} l {l}");
        assert_eq!(c.rounds, 3 + levels);
    }
}

/// The figures that the project promises, with the correlated OTs in.
#[test]
fn bytes_per_relu_are_as_promised() {
    let n = 1 << 20;
    let per = |kind, l, drop| {
        let mut m = CostModel::new(kind);
        setup_cost(&mut m);
        relu_dropping_cost(&mut m, n, Ring::new(l).unwrap(), drop);
        m.cost().bytes() as f64 / n as f64
    };
    let large = OtKind::Silent(SilentSize::Large);
    assert!(per(OtKind::SILENT, 64, 0) < 72.4 && per(large, 64, 0) < 69.8);
    assert!(per(OtKind::SILENT, 37, 0) < 40.8 && per(large, 37, 0) < 39.4);
    assert!(per(OtKind::SILENT, 37, 12) < 30.0);
}

#[test]
fn separable_pooling_saves_comparisons() {
    let ring = Ring::new(37).unwrap();
    let p = PoolShape {
        channels: 1,
        height: 225,
        width: 225,
        kernel: (3, 3),
        stride: (2, 2),
        padding: [(0, 0); 2],
    };
    let (mut pool, mut relus) = (CostModel::online(1 << 20), CostModel::online(1 << 20));
    max_pool_cost(&mut pool, ring, ring, p);
    relu_cost(&mut relus, 112 * 112 * 8, ring);
    assert!(pool.cost().bytes() as f64 <= 0.76 * relus.cost().bytes() as f64);
}

#[test]
fn argmax_finds_the_first_of_the_largest() {
    let ring = Ring::new(37).unwrap();
    for (classes, shift) in [(1, 1), (2, 1), (3, 14), (7, 1), (10, 9), (16, 1), (33, 20)] {
        // values below 2^(l-1-shift), differences below 2^(l-shift)
        let (rows, narrow) = (9, Ring::new(37 - shift + 1).unwrap());
        let mut x: Vec<u64> =
            values(rows * classes, ring, 14).iter().map(|&v| ring.encode(ring.signed(v) >> shift)).collect();
        x[..classes].fill(5);
        let shares = share(&x, ring, 15);
        let r = run(OtKind::Iknp, 64, |s| {
            let i = argmax(s, mine(s, &shares), classes, ring, narrow).unwrap();
            reveal(s, &i, index_ring(classes).unwrap(), Party::One).unwrap()
        });
        assert!(r.out[0].is_none());
        let want: Vec<u64> = x
            .chunks(classes)
            .map(|row| {
                let best = row.iter().map(|&v| ring.signed(v)).max().unwrap();
                row.iter().position(|&v| ring.signed(v) == best).unwrap() as u64
            })
            .collect();
        assert_eq!(r.out[1].as_ref().unwrap(), &want);
        let cost = predict(OtKind::Iknp, 64, |m| {
            argmax_cost(m, rows, classes, ring, narrow);
            reveal_cost(m, rows, index_ring(classes).unwrap(), Party::One);
        });
        assert_eq!(r.cost, cost);
    }
}

#[test]
fn bad_arguments_are_errors() {
    let ring = Ring::new(16).unwrap();
    assert!(Ring::new(0).is_err() && Ring::new(65).is_err());
    assert!(Slope::new(9, 3).is_err() && Slope::power_of_two(0).is_err());
    run(OtKind::Iknp, 64, |s| {
        let x = [1, 2, 3];
        assert!(truncate(s, &x, 0, ring, Range::Any, Rounding::Floor).is_err());
        assert!(truncate(s, &x, 15, ring, Range::Small, Rounding::Floor).is_err());
        assert!(relu_dropping(s, &x, ring, 15).is_err());
        assert!(relu_within(s, &x, ring, Ring::new(17).unwrap()).is_err());
        let wide = |bits, w| Narrowing { ring, bits, narrow: Ring::new(w).unwrap() };
        assert!(relu_dividing(s, &x, wide(5, 12)).is_err());
        assert!(relu_dividing(s, &x, wide(70, 2)).is_err());
        assert!(relu_dividing(s, &x, wide(15, 1)).is_err());
        assert!(relu_within(s, &x, ring, Ring::new(1).unwrap()).is_err());
        assert!(clip(s, &x, ring, ring, Some((2, 1))).is_err());
        assert!(!s.is_first() || clip(s, &x, ring, ring, None).is_err());
        assert!(maximum(s, &x, &x[1..], ring, ring).is_err());
        assert!(max_many(s, vec![], ring, ring).is_err());
        assert!(argmax(s, &x, 2, ring, ring).is_err());
        assert!(argmax(s, &x, 3, ring, Ring::new(17).unwrap()).is_err());
        assert!(divide(s, &x, 1, ring, Range::NonNegative, Quotient::Near).is_err());
        assert!(divide(s, &x, 3, ring, Range::Any, Quotient::Near).is_err());
        assert!(relu(s, &x, Ring::new(1).unwrap()).is_err());
        assert!(relu(s, &[], ring).unwrap().is_empty());
    });
}
