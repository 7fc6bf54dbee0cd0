//! Comparisons by a carry through digits: every share of small rings, costs, views.

use crate::common::{add, every_share, mine, predict, run, share, values};
use crate::views::inspect;
use hushnet_mpc::*;

/// Every value and every share of a ring of 6 bits, with every number of bits compared up to 5.
#[test]
fn comparisons_through_digits_of_every_share() {
    let ring = Ring::new(6).unwrap();
    let (every, shares) = every_share(ring);
    let widths = (0..=4u32).flat_map(|g| (2..=6 - g).map(move |w| (g, w)));
    for ((bits, w), longest) in widths.flat_map(|of| (1..=4).map(move |longest| (of, longest))) {
        let of = Narrowing { ring, bits, narrow: Ring::new(w).unwrap() };
        let half = 1_i64 << (w - 1);
        let r = run(OtKind::Iknp, 1 << 14, |s| {
            s.set_comparison(Comparison::Ripple(longest));
            let whole = relu_within(s, mine(s, &shares), ring, ring).unwrap();
            [relu_dividing(s, mine(s, &shares), of).unwrap(), whole].concat()
        });
        let costs = |m: &mut CostModel| {
            m.set_comparison(Comparison::Ripple(longest));
            relu_within_cost(m, every.len(), ring, ring);
            relu_dividing_cost(m, every.len(), of);
        };
        assert_eq!(r.cost, predict(OtKind::Iknp, 1 << 14, costs), "{bits} dropped, {w} kept");
        let got = add(ring, &r.out);
        for (i, &x) in every.iter().enumerate() {
            let carry = (shares[0][i] % (1 << bits)) + (shares[1][i] % (1 << bits)) >= 1 << bits;
            let y = (ring.signed(x) >> bits) + i64::from(bits > 0 && !carry);
            if (-half..half).contains(&y) {
                assert_eq!(ring.signed(got[i]), y.max(0), "relu of {x}, {bits} dropped, {w} kept");
            }
            assert_eq!(ring.signed(got[every.len() + i]), ring.signed(x).max(0));
        }
    }
}

/// Wide rings, odd lengths, several passes; pools and labels, with exact costs.
#[test]
fn comparisons_through_digits_cost_what_is_predicted() {
    for (n, l, longest) in [(1, 64, 3), (777, 37, 2), (64, 16, 4), (129, 9, 4), (200, 2, 3), (65, 3, 1)] {
        let ring = Ring::new(l).unwrap();
        let x = values(n, ring, 3);
        let shares = share(&x, ring, 4);
        let cost = |m: &mut CostModel| {
            m.set_comparison(Comparison::Ripple(longest));
            relu_cost(m, n, ring);
        };
        for kind in [OtKind::Iknp, OtKind::SILENT] {
            let r = run(kind, 128, |s| {
                s.set_comparison(Comparison::Ripple(longest));
                relu(s, mine(s, &shares), ring).unwrap()
            });
            assert_eq!(r.cost, predict(kind, 128, cost), "{n} {l}");
            for (x, got) in x.iter().zip(add(ring, &r.out)) {
                assert_eq!(got, if ring.signed(*x) > 0 { *x } else { 0 });
            }
        }
    }
    let of = Narrowing { ring: Ring::new(20).unwrap(), bits: 5, narrow: Ring::new(13).unwrap() };
    let shape = PoolShape {
        channels: 3,
        height: 9,
        width: 7,
        kernel: (3, 3),
        stride: (2, 2),
        padding: [(1, 1), (0, 1)],
    };
    let x: Vec<u64> =
        values(189, of.ring, 9).iter().map(|v| of.ring.encode(of.ring.signed(*v) >> 4)).collect();
    let shares = share(&x, of.ring, 5);
    let all = [Comparison::Tree, Comparison::Ripple(2), Comparison::Ripple(3), Comparison::Ripple(4)].map(
        |comparison| {
            let r = run(OtKind::Iknp, 64, |s| {
                s.set_comparison(comparison);
                let label = argmax(s, mine(s, &shares), 21, of.ring, of.ring).unwrap();
                [max_pool_dividing(s, mine(s, &shares), of, -(1 << 11), shape).unwrap(), label].concat()
            });
            let cost = |m: &mut CostModel| {
                m.set_comparison(comparison);
                argmax_cost(m, 9, 21, of.ring, of.ring);
                max_pool_dividing_cost(m, of, shape);
            };
            assert_eq!(r.cost, predict(OtKind::Iknp, 64, cost), "{comparison:?}");
            let outputs = r.out[0].len() - 9;
            let sums = |ring: Ring, range: std::ops::Range<usize>| {
                add(ring, &r.out.clone().map(|o| o[range.clone()].to_vec()))
            };
            (sums(of.ring, 0..outputs), sums(index_ring(21).unwrap(), outputs..outputs + 9))
        },
    );
    // operands are rounded alike, whatever compares them
    all.iter().for_each(|results| assert_eq!(*results, all[0]));
}

/// A digit of k bits behind a carry: k + 1 bits and 2^(k + 1) - 2 the other way; the first one k and 2^k - 1. A message a digit.
#[test]
fn costs_of_comparisons_through_digits_follow_the_formula() {
    let lengths = [(1000usize, 64u64), (77, 16), (8, 2), (8, 3), (9, 4)];
    for ((n, l), longest) in lengths.into_iter().flat_map(|of| (1..=4u64).map(move |longest| (of, longest))) {
        let ring = Ring::new(l as u32).unwrap();
        let mut model = CostModel::online(1 << 20);
        model.set_comparison(Comparison::Ripple(longest as u32));
        relu_cost(&mut model, n, ring);
        let (m, plane, packed) = (l - 1, n.div_ceil(8) as u64, (n as u64 * l).div_ceil(8));
        let least = m.div_ceil(longest);
        let digits = if m < 3 { least } else { least.next_multiple_of(2).min(m) };
        let mut bits = [1; 2];
        for i in 0..digits {
            let k = m / digits + u64::from(i < m % digits);
            let [chosen, corrected] = if i == 0 { [k, (1 << k) - 1] } else { [k + 1, (2 << k) - 2] };
            let chooser = (i % 2) as usize;
            bits[chooser] += chosen;
            bits[1 - chooser] += corrected;
        }
        let c = model.cost();
        assert_eq!(c.bytes_sent_by_0, bits[0] * plane + packed, "{n} {l} {longest}");
        assert_eq!(c.bytes_sent_by_1, bits[1] * plane + packed, "{n} {l} {longest}");
        assert_eq!(c.rounds, digits + 2, "{l} {longest}");
    }
}

#[test]
fn received_bytes_of_comparisons_through_digits_are_uniform_whatever_the_input() {
    let ring = Ring::new(40).unwrap();
    let n = 1 << 13;
    let inputs = [values(n, ring, 5), vec![0; n], vec![ring.mask(); n], (0..n as u64).collect()];
    for (x, longest) in inputs.into_iter().zip([4, 3, 2, 4]) {
        inspect(OtKind::SILENT, ring, &x, |s, x| {
            s.set_comparison(Comparison::Ripple(longest));
            relu(s, x, ring).unwrap()
        });
    }
}
