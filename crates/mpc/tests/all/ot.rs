//! The extensions and the transfers derived from them.

use crate::common::{predict, run};
use hushnet_mpc::ot::{chosen, one_of_n};
use hushnet_mpc::*;

const KINDS: [OtKind; 6] = [
    OtKind::SoftSpoken,
    OtKind::Silent(SilentSize::Large),
    OtKind::Iknp,
    OtKind::Silent(SilentSize::Tiny),
    OtKind::Silent(SilentSize::Small),
    OtKind::SILENT,
];

#[test]
fn random_ot_gives_one_of_two() {
    for kind in KINDS {
        let n = 5000;
        let r = run(kind, 1 << 20, |s| {
            if s.is_first() {
                (chosen::random_send(s, n).unwrap(), Vec::new(), Vec::new())
            } else {
                let (c, m) = chosen::random_recv(s, n).unwrap();
                (Vec::new(), c, m)
            }
        });
        let (pairs, choices, got) = (&r.out[0].0, &r.out[1].1, &r.out[1].2);
        let mut ones = 0;
        for i in 0..n {
            let c = (choices[i / 64] >> (i % 64)) as usize & 1;
            assert_eq!(got[i], pairs[i][c]);
            assert_ne!(got[i], pairs[i][1 - c]);
            ones += c;
        }
        assert!((ones as f64 - n as f64 / 2.0).abs() < 6.0 * (n as f64 / 4.0).sqrt(), "{ones}");
        assert_eq!(r.cost, predict(kind, 1 << 20, |m| chosen::random_cost(m, Party::Zero, n)));
    }
}

#[test]
fn chosen_ot() {
    for kind in KINDS {
        for bits in [1, 7, 64] {
            let n = 700usize;
            let mask = Ring::new(bits).unwrap().mask();
            let messages: Vec<[u64; 2]> = (0..n as u64)
                .map(|i| [i, !i].map(|v| v.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask))
                .collect();
            let choices: Vec<u64> =
                (0..n.div_ceil(64) as u64).map(|i| 0x1234_5678_9abc_def1 ^ i << 7).collect();
            let r = run(kind, 1 << 20, |s| {
                if s.is_first() {
                    chosen::recv(s, &choices, n, bits).unwrap()
                } else {
                    chosen::send(s, &messages, bits).unwrap();
                    Vec::new()
                }
            });
            for i in 0..n {
                assert_eq!(r.out[0][i], messages[i][(choices[i / 64] >> (i % 64)) as usize & 1]);
            }
            assert_eq!(r.cost, predict(kind, 1 << 20, |m| chosen::cost(m, Party::One, n, bits)));
        }
    }
}

#[test]
fn one_of_many() {
    for k in 1..=8u32 {
        let n = 77;
        let bits = 13;
        let messages: Vec<u64> = (0..(n << k) as u64).map(|i| i.wrapping_mul(0x9e37) & 0x1fff).collect();
        let choices: Vec<u8> = (0..n).map(|i| (i * 37 % (1 << k)) as u8).collect();
        let r = run(OtKind::Iknp, 1 << 20, |s| {
            if s.is_first() {
                one_of_n::send(s, &messages, k, bits).unwrap();
                Vec::new()
            } else {
                one_of_n::recv(s, &choices, k, bits).unwrap()
            }
        });
        for i in 0..n {
            assert_eq!(r.out[1][i], messages[(i << k) + choices[i] as usize]);
        }
        assert_eq!(r.cost, predict(OtKind::Iknp, 1 << 20, |m| one_of_n::cost(m, Party::Zero, n, k, bits)));
    }
}

/// OTs that an iteration gives beside the base of the next.
fn an_iteration(size: SilentSize) -> usize {
    let p = size.params();
    ((p.trees - p.reserve()) * p.leaves()) as usize
}

#[test]
fn silent_extension_rolls_over() {
    let kind = OtKind::Silent(SilentSize::Small);
    let (n, times) = (an_iteration(SilentSize::Small) / 4 + 3, 4);
    let r = run(kind, 1 << 20, |s| {
        let mut sum = [0u128; 2];
        for _ in 0..times {
            if s.is_first() {
                for [a, b] in chosen::random_send(s, n).unwrap() {
                    sum[0] ^= a;
                    sum[1] ^= b;
                }
                let (c, m) = chosen::random_recv(s, 1000).unwrap();
                sum[0] ^= m.iter().fold(u128::from(c[0]), |a, b| a ^ b);
            } else {
                let (_, m) = chosen::random_recv(s, n).unwrap();
                m.iter().for_each(|m| sum[0] ^= m);
                chosen::random_send(s, 1000).unwrap();
            }
        }
        sum
    });
    assert_ne!(r.out[0], r.out[1]);
    let cost = predict(kind, 1 << 20, |m| {
        for _ in 0..times {
            chosen::random_cost(m, Party::Zero, n);
            chosen::random_cost(m, Party::One, 1000);
        }
    });
    assert_eq!(r.cost, cost);
}

#[test]
fn silent_relu_costs_what_is_predicted() {
    for (l, limit) in [(64, 80.0), (37, 48.0)] {
        let ring = Ring::new(l).unwrap();
        let n = 1 << 15;
        let x = crate::common::values(n, ring, 1);
        let shares = crate::common::share(&x, ring, 2);
        let r = run(OtKind::SILENT, 1 << 20, |s| relu(s, &shares[s.party().index()], ring).unwrap());
        for (x, got) in x.iter().zip(crate::common::add(ring, &r.out)) {
            assert_eq!(got, if ring.signed(*x) > 0 { *x } else { 0 });
        }
        assert_eq!(r.cost, predict(OtKind::SILENT, 1 << 20, |m| relu_cost(m, n, ring)));
        let mut m = CostModel::online(1 << 20);
        relu_cost(&mut m, n, ring);
        assert!(m.cost().bytes() as f64 / (n as f64) < limit);
    }
}

#[test]
fn small_sessions_take_the_small_extension() {
    let ring = Ring::new(37).unwrap();
    let kind = |n| {
        let mut m = CostModel::online(1 << 20);
        relu_cost(&mut m, n, ring);
        assert_eq!(m.drawn(), [18 * n as u64, 54 * n as u64]);
        OtKind::for_demand(m.drawn())
    };
    assert_eq!(kind(256), OtKind::SoftSpoken);
    assert_eq!(kind(1 << 16), OtKind::SILENT);
}

#[test]
fn threads_change_nothing() {
    // Party 0 on several threads, party 1 on one, across the end of an iteration.
    let n = an_iteration(SilentSize::Tiny) + 1;
    let r = run(OtKind::Silent(SilentSize::Tiny), 1 << 20, |s| {
        if s.is_first() {
            s.set_threads(3);
            let (c, m) = chosen::random_recv(s, n).unwrap();
            let sent = chosen::random_send(s, 5000).unwrap();
            (Vec::new(), c, m, sent.iter().fold(0, |a, p| a ^ p[0] ^ p[1]))
        } else {
            let pairs = chosen::random_send(s, n).unwrap();
            let (_, got) = chosen::random_recv(s, 5000).unwrap();
            (pairs, Vec::new(), got, 0)
        }
    });
    let [(_, choices, got, _), (pairs, ..)] = &r.out;
    for i in 0..n {
        assert_eq!(got[i], pairs[i][(choices[i / 64] >> (i % 64)) as usize & 1]);
    }
    let cost = predict(OtKind::Silent(SilentSize::Tiny), 1 << 20, |m| {
        chosen::random_cost(m, Party::One, n);
        chosen::random_cost(m, Party::Zero, 5000);
    });
    assert_eq!(r.cost, cost);
}

#[test]
fn mismatched_parties_refuse_each_other() {
    let (a, b) = memory_pair();
    std::thread::scope(|t| {
        let h = t.spawn(|| Session::new(Box::new(b), Party::One, OtKind::SILENT).err());
        let e = Session::new(Box::new(a), Party::Zero, OtKind::Iknp).err();
        assert!(matches!(e, Some(MpcError::Handshake { what: "OT kind", .. })));
        assert!(matches!(h.join().unwrap(), Some(MpcError::Handshake { .. })));
    });
}
