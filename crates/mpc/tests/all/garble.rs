//! Garbled layers and conversions against plain arithmetic, on edge values of values and of shares, with exact cost.

use crate::common::{mine, predict, run, values};
use hushnet_mpc::garble::{self, Modulus, OddModulus};
use hushnet_mpc::*;

fn moduli() -> Vec<Modulus> {
    let odd = [3, 5, 127, 65_537, 1_032_193, (1 << 20) - 3, (1 << 37) - 25, (1 << 61) - 1];
    let two = [2, 3, 8, 21, 37, 62];
    let odd = odd.into_iter().map(|p| Modulus::Odd(OddModulus::new(p).unwrap()));
    odd.chain(two.into_iter().map(|l| Modulus::PowerOfTwo(Ring::new(l).unwrap()))).collect()
}

/// Every signed value there is, or edges and random ones.
fn signed_values(m: Modulus, n: usize, seed: u128) -> Vec<i64> {
    let (low, high) = match m {
        Modulus::Odd(p) => (-(p.half() as i64), p.half() as i64),
        Modulus::PowerOfTwo(r) => (-(1i64 << (r.bits() - 1)), (1i64 << (r.bits() - 1)) - 1),
    };
    let edge = [0, 1, -1, high, low, high - 1, low + 1, high / 2, low / 2, 2.min(high)];
    let mut v = vec![0; n];
    Prg::new(seed).words(&mut v);
    (0..n)
        .map(|i| if i < edge.len() { edge[i] } else { low + (v[i] % ((high - low) as u64 + 1)) as i64 })
        .collect()
}

/// Shares with edge values among them: 0, 1, the largest residue, the middle, the value itself.
fn shares(x: &[i64], m: Modulus, seed: u128) -> [Vec<u64>; 2] {
    let top = m.sub(0, 1);
    let mut r = vec![0; x.len()];
    Prg::new(seed).words(&mut r);
    let first: Vec<u64> = r
        .iter()
        .zip(x)
        .enumerate()
        .map(|(i, (&r, &x))| match (i / 10) % 7 {
            1 => 0,
            2 => 1,
            3 => top,
            4 => top / 2,
            5 => m.encode(x),
            6 => top / 2 + 1,
            _ => r % top,
        })
        .collect();
    let second = x.iter().zip(&first).map(|(&x, &a)| m.sub(m.encode(x), a)).collect();
    [first, second]
}

fn opened(m: Modulus, out: &[Vec<u64>; 2]) -> Vec<i64> {
    out[0].iter().zip(&out[1]).map(|(&a, &b)| m.signed(m.add(a, b))).collect()
}

const CHUNK: usize = 128;

#[test]
fn relu_and_its_sign_are_exact() {
    for (i, m) in moduli().into_iter().enumerate() {
        let garbler = [Party::Zero, Party::One][i % 2];
        let n = [150, 1, 17, 333][i % 4];
        let x = signed_values(m, n, 5 + i as u128);
        let sh = shares(&x, m, 77);
        let r = run(OtKind::SoftSpoken, CHUNK, |s| garble::relu(s, mine(s, &sh), m, garbler).unwrap());
        assert_eq!(opened(m, &r.out), x.iter().map(|&v| v.max(0)).collect::<Vec<_>>(), "{m:?}");
        assert_eq!(r.cost, predict(OtKind::SoftSpoken, CHUNK, |c| garble::relu_cost(c, n, m, garbler)));
        let r = run(OtKind::Iknp, CHUNK, |s| {
            let b = garble::drelu(s, mine(s, &sh), m, garbler).unwrap();
            (0..n).map(|i| b.get(i)).collect::<Vec<_>>()
        });
        for (i, &v) in x.iter().enumerate() {
            assert_eq!(r.out[0][i] ^ r.out[1][i], u64::from(v >= 0), "{m:?} {v}");
        }
        assert_eq!(r.cost, predict(OtKind::Iknp, CHUNK, |c| garble::drelu_cost(c, n, m, garbler)));
    }
}

#[test]
fn relu_of_every_value_and_share() {
    for m in [Modulus::Odd(OddModulus::new(61).unwrap()), Modulus::PowerOfTwo(Ring::new(6).unwrap())] {
        let size = m.sub(0, 1) + 1;
        let pairs: Vec<(u64, u64)> = (0..size).flat_map(|x| (0..size).map(move |a| (x, a))).collect();
        let sh = [
            pairs.iter().map(|p| p.1).collect::<Vec<_>>(),
            pairs.iter().map(|&(x, a)| m.sub(x, a)).collect::<Vec<_>>(),
        ];
        let r = run(OtKind::SoftSpoken, 1 << 12, |s| garble::relu(s, mine(s, &sh), m, Party::Zero).unwrap());
        for (got, &(x, _)) in opened(m, &r.out).into_iter().zip(&pairs) {
            assert_eq!(got, m.signed(x).max(0));
        }
    }
}

#[test]
fn gates_are_as_documented() {
    for l in [2, 20, 37, 62] {
        let m = Modulus::PowerOfTwo(Ring::new(l).unwrap());
        assert_eq!(garble::relu_gates(m), 3 * u64::from(l) - 2);
    }
    for p in [3u64, 1_032_193, (1 << 61) - 1] {
        let m = Modulus::Odd(OddModulus::new(p).unwrap());
        assert_eq!(garble::relu_gates(m), 6 * u64::from(m.bits()) - 1);
        // 32 bytes a gate, 16 for the seed, and what is opened.
        let mut c = CostModel::online(1 << 20);
        garble::relu_cost(&mut c, 1000, m, Party::Zero);
        let opened = (1000 * u64::from(m.bits())).div_ceil(8);
        assert_eq!(c.cost().bytes_sent_by_0, 16 + 1000 * 32 * garble::relu_gates(m) + opened);
        assert_eq!(c.cost().bytes_sent_by_1, opened);
        assert_eq!(c.cost().rounds, 2);
    }
}

#[test]
fn clip_is_exact() {
    for (i, m) in moduli().into_iter().enumerate().skip(2) {
        let x = signed_values(m, 120, 6);
        let sh = shares(&x, m, 78);
        let (low, high) = ([(0, 6), (-1, 1), (-2, 3), (0, 0)][i % 4], 0);
        let (low, high) = (low.0.max(x[4] + high), low.1.min(x[3]));
        for from_zero in [false, true] {
            if from_zero && (low != 0 || high < 0) {
                continue;
            }
            // only the garbler has the ends
            let ends = |s: &Session| (s.party() == Party::One).then_some((low, high));
            let r = run(OtKind::Iknp, CHUNK, |s| {
                garble::clip(s, mine(s, &sh), m, from_zero, ends(s), Party::One).unwrap()
            });
            assert_eq!(opened(m, &r.out), x.iter().map(|&v| v.clamp(low, high)).collect::<Vec<_>>(), "{m:?}");
            let cost = predict(OtKind::Iknp, CHUNK, |c| garble::clip_cost(c, 120, m, from_zero, Party::One));
            assert_eq!(r.cost, cost);
        }
    }
    let m = Modulus::PowerOfTwo(Ring::new(8).unwrap());
    for (from_zero, ends) in [(false, Some((4, 3))), (true, Some((1, 3))), (false, None)] {
        // the evaluator cannot know
        let refused = |s: &mut Session| garble::clip(s, &[1], m, from_zero, ends, Party::Zero).is_err();
        let r = run(OtKind::Iknp, CHUNK, |s| s.party() == Party::One || refused(s));
        assert_eq!(r.out, [true, true]);
    }
}

#[test]
fn maxima_and_their_places_are_exact() {
    for (i, m) in moduli().into_iter().enumerate() {
        for per in [1, 2, 5] {
            let n = 30;
            let mut x = signed_values(m, n * per, 9 + i as u128);
            (per..x.len()).step_by(3).for_each(|i| x[i] = x[i - 1]);
            let sh = shares(&x, m, 79);
            let r = run(OtKind::SoftSpoken, CHUNK, |s| {
                let best = garble::max_rows(s, mine(s, &sh), per, m, Party::Zero).unwrap();
                (best, garble::argmax(s, mine(s, &sh), per, m, Party::Zero).unwrap())
            });
            let index = index_ring(per).unwrap();
            for (j, row) in x.chunks(per).enumerate() {
                let best = *row.iter().max().unwrap();
                assert_eq!(m.signed(m.add(r.out[0].0[j], r.out[1].0[j])), best);
                let place = index.add(r.out[0].1[j], r.out[1].1[j]) as usize;
                assert_eq!(Some(place), row.iter().position(|&v| v == best), "{m:?} {row:?}");
            }
            let cost = predict(OtKind::SoftSpoken, CHUNK, |c| {
                garble::max_rows_cost(c, n, per, m, Party::Zero);
                garble::argmax_cost(c, n, per, m, Party::Zero).unwrap();
            });
            assert_eq!(r.cost, cost);
        }
    }
}

#[test]
fn max_pool_is_that_of_the_ring_protocol() {
    let shape = PoolShape {
        channels: 3,
        height: 7,
        width: 6,
        kernel: (3, 2),
        stride: (2, 1),
        padding: [(1, 0), (1, 1)],
    };
    let ring = Ring::new(20).unwrap();
    let (garbled, n) = (Modulus::PowerOfTwo(ring), 3 * 7 * 6);
    let x: Vec<u64> = values(n, ring, 3).iter().map(|&v| ring.encode(ring.signed(v) / 4)).collect();
    let other = vec![12345; n];
    let sh = [x.iter().zip(&other).map(|(&x, &o)| ring.sub(x, o)).collect(), other];
    let open = |out: &[Vec<u64>; 2]| opened(garbled, out);
    let r =
        run(OtKind::Iknp, CHUNK, |s| garble::max_pool(s, mine(s, &sh), garbled, shape, Party::Zero).unwrap());
    let t = run(OtKind::Iknp, CHUNK, |s| max_pool(s, mine(s, &sh), ring, ring, shape).unwrap());
    assert_eq!(open(&r.out), open(&t.out));
    let cost =
        predict(OtKind::Iknp, CHUNK, |c| garble::max_pool_cost(c, garbled, shape, Party::Zero).unwrap());
    assert_eq!(r.cost, cost);
}

#[test]
fn multiplexer_modulo_p() {
    for p in [3, 65_537, (1 << 61) - 1] {
        let p = OddModulus::new(p).unwrap();
        let m = Modulus::Odd(p);
        let x = signed_values(m, 200, 12);
        let sh = shares(&x, m, 80);
        let bits: [Vec<u64>; 2] = [5, 9].map(|s| (0..200).map(|i| (i * s / 7 + i / 3) % 2).collect());
        let r = run(OtKind::Iknp, CHUNK, |s| {
            let b = Bits::from_values(mine(s, &bits));
            mux_odd(s, &b, mine(s, &sh), p).unwrap()
        });
        for (i, got) in opened(m, &r.out).into_iter().enumerate() {
            assert_eq!(got, if bits[0][i] ^ bits[1][i] == 1 { x[i] } else { 0 });
        }
        assert_eq!(r.cost, predict(OtKind::Iknp, CHUNK, |c| mux_odd_cost(c, 200, p)));
    }
}

#[test]
fn conversions_keep_the_value() {
    for (p, l) in
        [(3, 2), (65_537, 17), (65_537, 40), (1_032_193, 64), ((1 << 61) - 1, 64), ((1 << 37) - 25, 20)]
    {
        let (p, ring) = (OddModulus::new(p).unwrap(), Ring::new(l).unwrap());
        let m = Modulus::Odd(p);
        let x = signed_values(m, 300, 13);
        let sh = shares(&x, m, 81);
        let r = run(OtKind::Iknp, CHUNK, |s| {
            let there = to_ring(s, mine(s, &sh), p, ring).unwrap();
            let back = to_odd(s, &there, ring, p).unwrap();
            (there, back)
        });
        for (i, &v) in x.iter().enumerate() {
            let there = ring.add(r.out[0].0[i], r.out[1].0[i]);
            assert_eq!(there, ring.encode(v), "p {p:?} l {l}");
            let back = p.signed(p.add(r.out[0].1[i], r.out[1].1[i]));
            assert_eq!(p.encode(back), p.encode(ring.signed(there)), "p {p:?} l {l}");
        }
        let cost = predict(OtKind::Iknp, CHUNK, |c| {
            to_ring_cost(c, 300, p, ring);
            to_odd_cost(c, 300, ring, p);
        });
        assert_eq!(r.cost, cost);
    }
}

/// All shares of all small values for small moduli; edges and random shares for large ones.
#[test]
fn conversions_of_small_values_need_no_comparison() {
    for (p, l) in [(5u64, 4), (17, 5), (127, 8), (786_433, 20), (1_073_479_681, 28), ((1 << 37) - 25, 40)] {
        let (p, ring) = (OddModulus::new(p).unwrap(), Ring::new(l).unwrap());
        let (m, two) = (Modulus::Odd(p), Modulus::PowerOfTwo(ring));
        let (top, low) = (small_odd(p) as i64, -(small_odd(p) as i64));
        let quarter = 1i64 << (l - 2);
        let within = |low: i64, top: i64| -> Vec<i64> {
            let edges = [low, low + 1, -1, 0, 1, top - 1, top].map(|v| v.clamp(low, top));
            edges.into_iter().chain((0..60).map(|i| low + (i * 7919) % (top - low + 1))).collect()
        };
        // every value beside shares that wrap, or stay below by one
        let pairs = |x: &[i64], m: Modulus, last: u64| -> [Vec<u64>; 2] {
            let mine = [0, 1, last / 2, last / 2 + 1, last - 1, last, 12_345 % (last + 1)];
            let all: Vec<(u64, u64)> =
                x.iter().flat_map(|&v| mine.map(|r| (r, m.sub(m.encode(v), r)))).collect();
            [all.iter().map(|a| a.0).collect(), all.iter().map(|a| a.1).collect()]
        };
        let (x, y) = (within(low, top), within(-quarter, quarter - 1));
        let (odd, even) = (pairs(&x, m, p.value() - 1), pairs(&y, two, ring.mask()));
        let r = run(OtKind::Iknp, CHUNK, |s| {
            let there = to_ring_small(s, mine(s, &odd), p, ring).unwrap();
            (there, to_odd_small(s, mine(s, &even), ring, p).unwrap())
        });
        for i in 0..odd[0].len() {
            assert_eq!(ring.add(r.out[0].0[i], r.out[1].0[i]), ring.encode(x[i / 7]), "p {p:?} l {l}");
        }
        for i in 0..even[0].len() {
            assert_eq!(p.add(r.out[0].1[i], r.out[1].1[i]), p.encode(y[i / 7]), "p {p:?} l {l}");
        }
        let cost = predict(OtKind::Iknp, CHUNK, |c| {
            to_ring_small_cost(c, odd[0].len(), ring);
            to_odd_small_cost(c, even[0].len(), p);
        });
        assert_eq!(r.cost, cost);
    }
}

#[test]
fn bad_parameters_are_refused() {
    for p in [0, 1, 2, 4, 1 << 62, (1 << 62) + 1] {
        assert!(OddModulus::new(p).is_err(), "{p}");
    }
    let p = OddModulus::new(17).unwrap();
    let wide = Modulus::PowerOfTwo(Ring::new(63).unwrap());
    let r = run(OtKind::Iknp, CHUNK, |s| {
        [
            garble::relu(s, &[17], Modulus::Odd(p), Party::Zero).is_err(),
            garble::relu(s, &[3], wide, Party::Zero).is_err(),
            to_ring(s, &[99], p, Ring::new(8).unwrap()).is_err(),
            garble::max_rows(s, &[1, 2, 3], 2, Modulus::Odd(p), Party::Zero).is_err(),
            garble::argmax(s, &[1, 2, 3], 0, Modulus::Odd(p), Party::Zero).is_err(),
        ]
    });
    assert_eq!(r.out, [[true; 5]; 2]);
}

/// What the evaluator receives is uniform whatever the garbler holds: bytes of tables and opened words.
#[test]
fn views_are_uniform_and_independent() {
    let m = Modulus::Odd(OddModulus::new(1_032_193).unwrap());
    let n = 400;
    let histogram = |x: i64| {
        let values = vec![x; n];
        let sh = shares(&values, m, 5);
        let r = run(OtKind::SoftSpoken, 1 << 12, |s| garble::relu(s, mine(s, &sh), m, Party::Zero).unwrap());
        let heard = &r.heard[1][r.heard[1].len() - n * 32 * garble::relu_gates(m) as usize..];
        let mut count = [0f64; 256];
        heard.iter().for_each(|&b| count[b as usize] += 1.0);
        let expected = heard.len() as f64 / 256.0;
        let chi = count.iter().map(|c| (c - expected).powi(2) / expected).sum::<f64>();
        // The evaluator's new shares: uniform modulo p in mean whatever x is.
        let mean = r.out[1].iter().map(|&v| v as f64).sum::<f64>() / n as f64 / 1_032_193.0;
        (chi, mean)
    };
    for x in [0, 1, -1, 516_096, -516_096] {
        let (chi, mean) = histogram(x);
        // 255 degrees of freedom: mean 255, standard deviation 22.6; seven of them.
        assert!((255.0 - chi).abs() < 160.0, "chi {chi}");
        // Standard deviation of the mean: 1/sqrt(12 n) = 0.0144; five of them.
        assert!((mean - 0.5).abs() < 0.072, "mean {mean}");
    }
}
