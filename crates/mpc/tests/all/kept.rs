//! Pads that were made in one session and are drawn in another: the same results, the exact traffic of both, and nothing that is drawn twice.

use crate::common::{add, predict, run, share, values};
use hushnet_mpc::*;
use std::sync::Mutex;

/// An elementwise protocol, and its cost.
struct Case {
    name: &'static str,
    run: fn(&mut Session, &[u64]) -> Vec<u64>,
    cost: fn(&mut CostModel, usize),
    plain: fn(i64) -> i64,
    /// A result may be so many units more.
    units: i64,
}

fn ring() -> Ring {
    Ring::new(28).unwrap()
}

fn narrow() -> Ring {
    Ring::new(15).unwrap()
}

fn even() -> Narrowing {
    Narrowing { ring: ring(), bits: 9, narrow: Ring::new(19).unwrap() }
}

/// A tree with an odd number of levels: two wrap-arounds a value.
fn odd() -> Narrowing {
    Narrowing { ring: ring(), bits: 12, narrow: Ring::new(16).unwrap() }
}

fn pool(n: usize) -> PoolShape {
    let padding = [(1, 1); 2];
    PoolShape { channels: 1, height: n / 7, width: 7, kernel: (3, 3), stride: (2, 2), padding }
}

fn through<const BITS: u32>(s: &mut Session, x: &[u64]) -> Vec<u64> {
    s.set_comparison(Comparison::Ripple(BITS));
    relu_dividing(s, x, odd()).unwrap()
}

fn through_cost<const BITS: u32>(m: &mut CostModel, n: usize) {
    m.set_comparison(Comparison::Ripple(BITS));
    relu_dividing_cost(m, n, odd());
}

const CASES: &[Case] = &[
    Case {
        name: "relu of odd width",
        run: |s, x| relu(s, x, ring()).unwrap(),
        cost: |m, n| relu_cost(m, n, ring()),
        plain: |x| x.max(0),
        units: 0,
    },
    Case {
        name: "relu, one wrap-around",
        run: |s, x| relu_dividing(s, x, even()).unwrap(),
        cost: |m, n| relu_dividing_cost(m, n, even()),
        plain: |x| (x >> 9).max(0),
        units: 1,
    },
    Case {
        name: "relu, two wrap-arounds",
        run: |s, x| relu_dividing(s, x, odd()).unwrap(),
        cost: |m, n| relu_dividing_cost(m, n, odd()),
        plain: |x| (x >> 12).max(0),
        units: 1,
    },
    Case {
        name: "relu through digits of two bits",
        run: through::<2>,
        cost: through_cost::<2>,
        plain: |x| (x >> 12).max(0),
        units: 1,
    },
    Case {
        name: "relu through digits of four and three bits",
        run: through::<4>,
        cost: through_cost::<4>,
        plain: |x| (x >> 12).max(0),
        units: 1,
    },
    Case {
        name: "floor of any value",
        run: |s, x| truncate(s, x, 5, ring(), Range::Any, Rounding::Floor).unwrap(),
        cost: |m, n| truncate_cost(m, n, 5, ring(), Range::Any, Rounding::Floor),
        plain: |x| x >> 5,
        units: 0,
    },
    Case {
        name: "relu and multiplexer",
        run: |s, x| relu_dropping(s, x, ring(), 0).unwrap(),
        cost: |m, n| relu_dropping_cost(m, n, ring(), 0),
        plain: |x| x.max(0),
        units: 0,
    },
];

/// What a case's cost model says that it needs of pads.
fn demand(n: usize, cost: impl Fn(&mut CostModel, usize)) -> PadDemand {
    let mut m = CostModel::online(1 << 20);
    cost(&mut m, n);
    m.pads().clone()
}

/// Makes two units of pads, as a session of its own does: both parties' halves.
fn made(kind: OtKind, demand: &PadDemand) -> [Mutex<Vec<KeptPads>>; 2] {
    let r = run(kind, 128, |s| vec![s.make_pads(demand).unwrap(), s.make_pads(demand).unwrap()]);
    assert_eq!(r.cost, predict(kind, 128, |m| (0..2).for_each(|_| pads_cost(m, demand))));
    for (party, halves) in [Party::Zero, Party::One].into_iter().zip(&r.out) {
        assert!(halves.iter().all(|h| h.bytes().len() as u64 == demand.bytes(party)));
    }
    r.out.map(Mutex::new)
}

#[test]
fn kept_pads_give_the_same_results_and_no_ots() {
    for (k, case) in CASES.iter().enumerate() {
        let n = [67, 130, 300, 65, 129, 64, 1][k];
        let demand = demand(n, case.cost);
        // Values of two images, which share a supply of two units.
        let mut x = values(2 * n, ring(), 3);
        // What is compared as it is divided stays in its ring.
        x.iter_mut().for_each(|v| *v = ring().encode(ring().signed(*v) >> case.units));
        let shares = share(&x, ring(), 9);
        for kind in
            [OtKind::Iknp, OtKind::Silent(SilentSize::Tiny)].into_iter().take(if k == 1 { 2 } else { 1 })
        {
            let halves = made(kind, &demand);
            let r = run(kind, 128, |s| {
                let me = s.party().index();
                s.supply(&demand, std::mem::take(&mut *halves[me].lock().unwrap())).unwrap();
                let first = (case.run)(s, &shares[me]);
                s.withdraw();
                first
            });
            let expected = predict(kind, 128, |m| {
                m.supply(true);
                (case.cost)(m, 2 * n);
                m.supply(false);
            });
            assert_eq!(r.cost, expected, "{}", case.name);
            for (&x, got) in x.iter().zip(add(ring(), &r.out)) {
                let off = ring().signed(got) - (case.plain)(ring().signed(x));
                assert!((0..=case.units).contains(&off), "{}: {x} gives {got}", case.name);
            }
        }
    }
}

#[test]
fn a_supply_ends_and_is_of_one_demand() {
    let n = 100;
    let demand = demand(n, |m, n| relu_cost(m, n, ring()));
    let shares = share(&values(n, ring(), 5), ring(), 6);
    let halves = made(OtKind::Iknp, &demand);
    run(OtKind::Iknp, 128, |s| {
        let me = s.party().index();
        let mut units = std::mem::take(&mut *halves[me].lock().unwrap());
        // Of another length.
        let short = KeptPads::from_bytes(units[0].bytes()[8..].to_vec());
        assert!(matches!(s.supply(&demand, vec![short]), Err(MpcError::Length { .. })));
        units.pop();
        s.supply(&demand, units).unwrap();
        relu(s, &shares[me], ring()).unwrap();
        // All is drawn: nothing comes twice, and nothing is made in its place.
        assert!(matches!(relu(s, &shares[me], ring()), Err(MpcError::Exhausted { .. })));
        // What a supply does not have is not made either.
        s.supply(&PadDemand::default(), Vec::new()).unwrap();
        assert!(matches!(relu(s, &shares[me], ring()), Err(MpcError::Exhausted { .. })));
    });
}

#[test]
fn maxima_and_labels_draw_kept_pads() {
    let (n, classes) = (7 * 6, 21);
    let cost = |m: &mut CostModel, n: usize| {
        max_pool_cost(m, ring(), narrow(), pool(n));
        argmax_cost(m, n / classes, classes, ring(), narrow());
    };
    let demand = demand(n, cost);
    let x: Vec<u64> = values(n, narrow(), 4).iter().map(|v| ring().encode(narrow().signed(*v) / 4)).collect();
    let shares = share(&x, ring(), 8);
    let halves = made(OtKind::SoftSpoken, &demand);
    let both = |kept: bool| {
        let r = run(OtKind::SoftSpoken, 128, |s| {
            let me = s.party().index();
            if kept {
                let mut units = std::mem::take(&mut *halves[me].lock().unwrap());
                units.pop();
                s.supply(&demand, units).unwrap();
            }
            let pooled = max_pool(s, &shares[me], ring(), narrow(), pool(n)).unwrap();
            [pooled, argmax(s, &shares[me], classes, ring(), narrow()).unwrap()]
        });
        let expected = predict(OtKind::SoftSpoken, 128, |m| {
            m.supply(kept);
            cost(m, n);
        });
        assert_eq!(r.cost, expected, "{kept}");
        let [a, b] = r.out;
        let label = index_ring(classes).unwrap();
        [add(ring(), &[a[0].clone(), b[0].clone()]), add(label, &[a[1].clone(), b[1].clone()])]
    };
    assert_eq!(both(true), both(false));
}
