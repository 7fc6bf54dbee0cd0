//! Functions of one variable on shares: every argument and share of small intervals, random ones of wide rings, against floating point and the
//! stated error; and their cost.

use crate::common::{add, predict, run};
use hushnet_mpc::*;

fn ring(bits: u32) -> Ring {
    Ring::new(bits).unwrap()
}

const KIND: OtKind = OtKind::SoftSpoken;

/// Evaluates and checks results against the stated error, and cost. Returns the largest error.
fn check(
    (f, at): (&dyn Fn(f64) -> f64, Interval),
    fit: &Spline,
    scale: u32,
    (input, out): (Ring, Ring),
    (x, first): (&[i64], &[u64]),
    holder: Party,
) -> f64 {
    let shares =
        [first.to_vec(), x.iter().zip(first).map(|(&x, &a)| input.sub(input.encode(x), a)).collect()];
    let chunk = 1 << 14;
    let r = run(KIND, chunk, |s| {
        let mine = &shares[s.party().index()];
        let pieces = (s.party() == holder).then_some(&fit.pieces);
        spline(s, (mine, input), &fit.shape, pieces, holder, out).unwrap()
    });
    assert_eq!(
        r.cost,
        predict(KIND, chunk, |m| spline_cost(m, x.len(), &fit.shape, holder, out)),
        "{:?}",
        fit.shape
    );
    let unit = 2f64.powi(-(scale as i32));
    let mut worst = 0f64;
    for (i, got) in add(out, &r.out).into_iter().enumerate() {
        let exact = f(x[i] as f64 * 2f64.powi(-(at.scale as i32)));
        let error = (out.signed(got) as f64 * unit - exact).abs();
        assert!(
            error <= fit.error,
            "{} {} share {}: {} for {exact}, {error} > {}",
            x[i],
            at.scale,
            first[i],
            out.signed(got) as f64 * unit,
            fit.error
        );
        worst = worst.max(error);
    }
    worst
}

fn interval_of(f: Function) -> (f64, f64) {
    match f {
        Function::Exp => (-8.0, 0.0),
        Function::Reciprocal | Function::InverseRoot => (1.0, 2.0),
        Function::Tanh | Function::Erf => (-4.0, 4.0),
        _ => (-8.0, 8.0),
    }
}

#[test]
fn every_argument_and_share_of_a_small_interval() {
    for f in Function::ALL {
        let (low, high) = interval_of(f);
        let scale = if high - low > 10.0 {
            3
        } else if high - low > 4.0 {
            4
        } else {
            6
        };
        let at = Interval::between(low, high, scale).unwrap();
        let fit = Spline::fit(&|x| f.at(x), (at, ring(8)), 8, 0.02).unwrap();
        let all: Vec<(i64, u64)> = (at.low..=at.high).flat_map(|x| (0..256).map(move |a| (x, a))).collect();
        let (x, a): (Vec<i64>, Vec<u64>) = all.into_iter().unzip();
        let worst = check((&|x| f.at(x), at), &fit, 8, (ring(8), ring(16)), (&x, &a), Party::Zero);
        // The bound is no idle one.
        assert!(worst > fit.error / 4.0, "{f:?} {worst} {}", fit.error);
    }
}

/// Arguments of the whole interval and both ends, in shares of which some are at the ends of the ring.
fn arguments(at: Interval, n: usize, input: Ring, seed: u128) -> (Vec<i64>, Vec<u64>) {
    let mut random = vec![0; 2 * n];
    Prg::new(seed).words(&mut random);
    let span = (at.high - at.low) as u64 + 1;
    let x = |(i, r): (usize, &u64)| match i {
        0 => at.low,
        1 => at.high,
        _ => at.low + (r % span) as i64,
    };
    let first = |(i, r): (usize, &u64)| {
        input.reduce(match i % 11 {
            3 => 0,
            5 => u64::MAX,
            7 => 1 << (input.bits() - 1),
            _ => *r,
        })
    };
    (random[..n].iter().enumerate().map(x).collect(), random[n..].iter().enumerate().map(first).collect())
}

#[test]
fn any_interval_in_any_ring() {
    let cases = [
        (Function::Sigmoid, (-8.0, 8.0), 12, 2f64.powi(-10), 37, 37, 12),
        (Function::Gelu, (-13.7, 11.1), 14, 0.01, 41, 64, 20),
        (Function::Silu, (-6.0, 30.0), 7, 0.03, 14, 18, 9),
        (Function::Exp, (-16.0, 0.0), 10, 2f64.powi(-9), 20, 13, 11),
        (Function::Tanh, (-0.3, 0.4), 9, 2f64.powi(-13), 10, 22, 16),
        (Function::InverseRoot, (0.25, 1.0), 16, 2f64.powi(-8), 20, 40, 10),
    ];
    for (k, (f, (low, high), scale, error, l, w, result)) in cases.into_iter().enumerate() {
        let at = Interval::between(low, high, scale).unwrap();
        let fit = Spline::fit(&|x| f.at(x), (at, ring(l)), result, error).unwrap();
        assert!(fit.error <= error);
        let n = [1, 65, 1500, 64, 2100, 3000][k];
        for holder in [Party::Zero, Party::One] {
            let (x, a) = arguments(at, n, ring(l), k as u128);
            check((&|x| f.at(x), at), &fit, result, (ring(l), ring(w)), (&x, &a), holder);
        }
    }
}

#[test]
fn functions_of_the_caller_and_of_degree_three() {
    // A cubic is met exactly, but for roundings; a function that is public to one party only.
    let f = |x: f64| 0.5 * x * x * x - x + 0.25;
    let at = Interval::between(-1.5, 1.0, 13).unwrap();
    let fit = Spline::fit(&f, (at, ring(32)), 14, 2f64.powi(-11)).unwrap();
    let (x, a) = arguments(at, 2000, ring(32), 5);
    check((&f, at), &fit, 14, (ring(32), ring(32)), (&x, &a), Party::Zero);
}

#[test]
fn outside_of_the_interval_the_function_stands_still() {
    let at = Interval::between(-8.0, 8.0, 10).unwrap();
    let f = |x: f64| Function::Sigmoid.at(x.clamp(-8.0, 8.0));
    let fit = Spline::fit(&|x| Function::Sigmoid.at(x), (at, ring(30)), 12, 2f64.powi(-10)).unwrap();
    let far = Interval { low: -(1 << 19), high: 1 << 19, scale: 10 };
    let (x, a) = arguments(far, 900, ring(30), 8);
    let shares =
        [a.clone(), x.iter().zip(&a).map(|(&x, &a)| ring(30).sub(ring(30).encode(x), a)).collect::<Vec<_>>()];
    let wide = ring(21);
    let r = run(KIND, 256, |s| {
        let mine = &shares[s.party().index()];
        saturating_spline(s, (mine, ring(30), wide), &fit.shape, Some(&fit.pieces), Party::Zero, ring(24))
            .unwrap()
    });
    let cost = predict(KIND, 256, |m| {
        saturating_spline_cost(m, 900, (ring(30), wide), &fit.shape, Party::Zero, ring(24));
    });
    assert_eq!(r.cost, cost);
    for (x, got) in x.iter().zip(add(ring(24), &r.out)) {
        let error = (ring(24).signed(got) as f64 / 4096.0 - f(*x as f64 / 1024.0)).abs();
        assert!(error <= fit.error, "{x} {error}");
    }
}

/// What `docs/mpc.md` states.
#[test]
fn a_function_takes_at_most_200_bytes_and_four_messages() {
    for f in Function::ALL {
        let (low, high) = interval_of(f);
        let values = (0..=4000).map(|i| f.at(low + (high - low) * f64::from(i) / 4000.0));
        let span = values.fold((f64::MAX, f64::MIN), |a, v| (a.0.min(v), a.1.max(v)));
        let at = Interval::between(low, high, 12).unwrap();
        let fit = Spline::fit(&|x| f.at(x), (at, ring(37)), 13, (span.1 - span.0) / 1024.0).unwrap();
        let n = 1 << 16;
        let mut m = CostModel::new(OtKind::Silent(SilentSize::Small)).with_chunk(1 << 20);
        m.ensure([64, 64]);
        m.reset();
        spline_cost(&mut m, n, &fit.shape, Party::Zero, ring(37));
        let bytes = m.cost().bytes() as f64 / n as f64;
        assert!(bytes < 200.0, "{f:?} {bytes}");
        // Four, and one for the correlated OTs.
        assert_eq!(m.cost().rounds, 5);
    }
}

/// The table of designs in `docs/mpc.md`: sigmoid, 16 bits of argument, 37-bit output, error 2^-10.
#[test]
fn designs_cost_what_the_document_says() {
    let n = 1 << 16;
    // Correlated OTs are left out: their bytes are the extension's matter.
    let cost = |design: &dyn Fn(&mut CostModel)| {
        let mut m = CostModel::online(1 << 20);
        design(&mut m);
        ((m.cost().bytes() as f64 / n as f64).round(), m.cost().rounds)
    };
    let polynomial = |m: &mut CostModel| {
        let f = Factor::new(ring(16), Range::Small).unwrap();
        for _ in 0..2 {
            multiply_cost(m, n, f, f, ring(16));
            truncate_cost(m, n, 12, ring(37), Range::Small, Rounding::Faithful);
        }
    };
    let table = cost(&|m| ot::one_of_n::cost(m, Party::Zero, n, 12, 13));
    let split = cost(&|m| {
        less_than_cost(m, n, 11);
        ot::one_of_n::cost(m, Party::Zero, n, 5, 39);
        polynomial(m);
    });
    let compared = cost(&|m| {
        drelu_cost(m, 8 * n, ring(16));
        (0..3).for_each(|_| mux_cost(m, 8 * n, ring(13)));
        polynomial(m);
    });
    let at = Interval::between(-8.0, 8.0, 12).unwrap();
    let fit = Spline::fit(&|x| Function::Sigmoid.at(x), (at, ring(37)), 12, 2f64.powi(-10)).unwrap();
    let ours = cost(&|m| spline_cost(m, n, &fit.shape, Party::Zero, ring(37)));
    assert_eq!([table, split, compared, ours], [(6658.0, 2), (243.0, 14), (248.0, 18), (130.0, 4)]);
}

#[test]
fn wrong_arguments_are_errors() {
    let at = Interval::between(-8.0, 8.0, 10).unwrap();
    let fit = Spline::fit(&|x| Function::Sigmoid.at(x), (at, ring(30)), 12, 2f64.powi(-10)).unwrap();
    assert!(Interval::between(1.0, 0.5, 10).is_err() && Interval::between(f64::NAN, 1.0, 10).is_err());
    assert!(Interval::between(0.0, 1.0, 41).is_err() && Interval::between(0.1, 0.2, 1).is_err());
    // No table reaches it; the interval holds a pole.
    assert!(Spline::fit(&|x| Function::Sigmoid.at(x), (at, ring(30)), 12, 1e-9).is_err());
    assert!(Spline::fit(&|x| Function::Sigmoid.at(x), (at, ring(30)), 12, f64::NAN).is_err());
    assert!(Spline::fit(&|x| 1.0 / x, (at, ring(30)), 12, 2f64.powi(-10)).is_err());
    let spec = fit.shape.spec();
    let changed = |change: &dyn Fn(&mut ShapeSpec)| {
        let mut spec = spec.clone();
        change(&mut spec);
        Shape::new(spec)
    };
    assert!(changed(&|_| ()).is_ok());
    let wrong: [&dyn Fn(&mut ShapeSpec); 16] = [
        &|s| s.argument_bits = 49,
        &|s| s.argument_bits = 0,
        &|s| s.segments = 9,
        &|s| s.dropped = u32::MAX,
        &|s| s.multiplier = 0,
        &|s| s.multiplier = u32::MAX,
        &|s| (s.low, s.high) = (i64::MIN, i64::MAX),
        &|s| s.low = s.high + 1,
        &|s| s.inner_bits = 65,
        &|s| s.guard = s.inner_bits,
        &|s| s.shed = s.inner_bits,
        &|s| s.lift = 63,
        &|s| s.offset = i64::MIN,
        &|s| s.basis[0].precision += 1,
        &|s| s.basis[1].shift = s.basis[1].bits + 1,
        &|s| s.basis.extend(s.basis.clone()),
    ];
    for (i, change) in wrong.into_iter().enumerate() {
        assert!(changed(change).is_err(), "{i}");
    }
    assert!(Pieces::new(&fit.shape, vec![], vec![]).is_err());
    assert!(Pieces::new(&fit.shape, vec![usize::MAX; spec.basis.len() + 1], vec![]).is_err());
    assert!(Pieces::new(&fit.shape, vec![2; spec.basis.len() + 1], vec![0; 3]).is_err());
    run(KIND, 64, |s| {
        let narrow = ring(spec.argument_bits - 1);
        let call = |s: &mut Session, input: Ring, pieces: Option<&Pieces>| {
            spline(s, (&[1], input), &fit.shape, pieces, Party::Zero, ring(30))
        };
        assert!(matches!(call(s, narrow, Some(&fit.pieces)), Err(MpcError::RingWidth { .. })));
        if s.is_first() {
            assert!(matches!(call(s, ring(30), None), Err(MpcError::Parameter { .. })));
        }
    });
}
