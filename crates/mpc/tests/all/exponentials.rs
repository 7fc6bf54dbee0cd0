//! Exponentials as one coefficient times an exponential of the place: every argument and share of small intervals, random ones of wide rings, against
//! floating point and the stated error; sums of many small values; and their cost.

use crate::common::{add, predict, run};
use hushnet_mpc::*;

const KIND: OtKind = OtKind::SoftSpoken;

fn ring(bits: u32) -> Ring {
    Ring::new(bits).unwrap()
}

/// A fitted exponential, and what it was fitted for.
struct Case {
    of: (f64, f64),
    at: Interval,
    scale: u32,
    fit: Spline,
}

impl Case {
    fn new(of: (f64, f64), at: Interval, input: Ring, (scale, error): (u32, f64)) -> Self {
        let fit = Spline::exponential((of.0, of.1, 1e9), (at, input), scale, error).unwrap();
        assert!(fit.error <= error && fit.shape.spec().rate > 0);
        Self { of, at, scale, fit }
    }

    fn exact(&self, x: i64) -> f64 {
        self.of.0 * (self.of.1 * x as f64 * 2f64.powi(-(self.at.scale as i32))).exp()
    }

    /// Results less the exact values; bytes and rounds are those that the cost model says.
    fn errors(&self, (x, first): (&[i64], &[u64]), (input, out): (Ring, Ring), holder: Party) -> Vec<f64> {
        let second = x.iter().zip(first).map(|(&x, &a)| input.sub(input.encode(x), a)).collect();
        let shares: [Vec<u64>; 2] = [first.to_vec(), second];
        let chunk = 1 << 14;
        let r = run(KIND, chunk, |s| {
            let mine = &shares[s.party().index()];
            let pieces = (s.party() == holder).then_some(&self.fit.pieces);
            spline(s, (mine, input), &self.fit.shape, pieces, holder, out).unwrap()
        });
        let cost = predict(KIND, chunk, |m| spline_cost(m, x.len(), &self.fit.shape, holder, out));
        assert_eq!(r.cost, cost, "{:?}", self.fit.shape);
        let unit = 2f64.powi(-(self.scale as i32));
        let results = add(out, &r.out);
        results.iter().zip(x).map(|(&got, &x)| out.signed(got) as f64 * unit - self.exact(x)).collect()
    }

    /// The largest error, which is within the bound.
    fn worst(&self, (x, first): (&[i64], &[u64]), rings: (Ring, Ring), holder: Party) -> f64 {
        let errors = self.errors((x, first), rings, holder);
        let worst = errors.iter().fold(0f64, |a, e| a.max(e.abs()));
        assert!(worst <= self.fit.error, "{worst} > {}: {:?}", self.fit.error, self.fit.shape);
        worst
    }
}

/// So many arguments of the interval, its ends first, in shares of which some are at the ends of the ring.
fn arguments(at: Interval, n: usize, input: Ring, seed: u128) -> (Vec<i64>, Vec<u64>) {
    let mut random = vec![0; 2 * n];
    Prg::new(seed).words(&mut random);
    let span = (at.high - at.low) as u64 + 1;
    let x = (0..n).map(|i| [at.low, at.high].get(i).copied().unwrap_or(at.low + (random[i] % span) as i64));
    let first = (0..n).map(|i| {
        let ends = [0, u64::MAX, 1 << (input.bits() - 1)];
        input.reduce(ends.get(i % 11).copied().unwrap_or(random[n + i]))
    });
    (x.collect(), first.collect())
}

#[test]
fn every_argument_and_share_of_a_small_interval() {
    // Of one length of segment and of many, from below a unit to far above, at both sides of zero.
    let cases = [
        ((1.0, 1.0), (-40, 0), 3, (6, 0.06)),
        ((0.9, 2.0), (-31, 32), 5, (5, 0.3)),
        ((0.02, 1.0), (0, 20), 2, (5, 0.4)),
        ((1.0, 0.01), (-100, 50), 2, (7, 0.03)),
    ];
    for (of, (low, high), scale, asked) in cases {
        let case = Case::new(of, Interval { low, high, scale }, ring(9), asked);
        let all: Vec<(i64, u64)> = (low..=high).flat_map(|x| (0..512).map(move |a| (x, a))).collect();
        let (x, a): (Vec<i64>, Vec<u64>) = all.into_iter().unzip();
        let worst = case.worst((&x, &a), (ring(9), ring(16)), Party::Zero);
        // The bound is no idle one.
        assert!(worst > case.fit.error / 6.0, "{of:?} {worst} {}", case.fit.error);
    }
}

#[test]
fn any_interval_in_any_ring() {
    let cases = [
        ((1.0, 1.0), (-15.9, 0.0), 9, 2f64.powi(-10), 25, 25, 12),
        ((0.975, 1.0), (-64.0, 0.0), 10, 2f64.powi(-12), 41, 64, 14),
        ((3.0, 0.5), (-1.0, 4.0), 7, 0.03, 14, 18, 9),
        ((1.0, 8.0), (-2.0, 0.0), 12, 2f64.powi(-9), 20, 13, 11),
        ((1e-3, 1.0), (0.0, 7.0), 9, 2f64.powi(-8), 20, 22, 10),
        ((5.0, 1.0), (-1.0, -1.0), 3, 2f64.powi(-6), 20, 40, 10),
    ];
    for (k, (of, (low, high), scale, error, l, w, result)) in cases.into_iter().enumerate() {
        let at = Interval::between(low, high, scale).unwrap();
        let case = Case::new(of, at, ring(l), (result, error));
        let n = [1, 65, 1500, 64, 2100, 3000][k];
        for holder in [Party::Zero, Party::One] {
            let (x, a) = arguments(at, n, ring(l), k as u128);
            case.worst((&x, &a), (ring(l), ring(w)), holder);
        }
    }
}

/// An interval goes on where no argument is: what is there takes no bits of the coefficients.
#[test]
fn a_limit_takes_the_width_of_coefficients() {
    let at = Interval { low: 0, high: 8191, scale: 8 };
    let (factor, end) = ((-16f64).exp(), 16 * 256);
    let fit = |limit| Spline::exponential((factor, 1.0, limit), (at, ring(20)), 12, 2f64.powi(-10));
    assert!(fit(1e9).is_err());
    let fit = fit(1.001).unwrap();
    let case = Case { of: (factor, 1.0), at: Interval { high: end, ..at }, scale: 12, fit };
    let (x, a) = arguments(case.at, 3000, ring(20), 9);
    case.worst((&x, &a), (ring(20), ring(24)), Party::Zero);
}

/// Values far below a unit: each is off by much of itself, and the mean of many is right to 1/30 of a unit. A result that is not
/// lowered where bits are shed is off by more.
#[test]
fn errors_of_small_values_have_hardly_a_mean() {
    let at = Interval::between(-15.9, 0.0, 9).unwrap();
    let unit = 2f64.powi(-12);
    let case = Case::new((1.0, 1.0), at, ring(25), (12, 3.0 * unit));
    let n = 1 << 14;
    for value in [-12.0, -9.0, -3.0] {
        let x = vec![(value * 512.0) as i64; n];
        let mut first = vec![0; n];
        Prg::new(11).words(&mut first);
        first.iter_mut().for_each(|a| *a = ring(25).reduce(*a));
        let errors = case.errors((&x, &first), (ring(25), ring(25)), Party::Zero);
        let mean = errors.iter().sum::<f64>() / n as f64 / unit;
        let square = errors.iter().map(|e| (e / unit).powi(2)).sum::<f64>() / n as f64;
        assert!(square < 1.0, "{value} {square}");
        assert!(mean.abs() < 1.0 / 30.0, "{value} {mean}");
    }
}

/// What `docs/mpc.md` states.
#[test]
fn an_exponential_takes_57_bytes_and_four_messages() {
    let at = Interval::between(-15.9, 0.0, 9).unwrap();
    let n = 1 << 16;
    for (bits, most) in [(11, 52.0), (12, 57.0), (13, 62.5)] {
        let fit =
            Spline::exponential((0.975, 1.0, 1.0), (at, ring(25)), bits, 3.0 * 2f64.powi(-(bits as i32)));
        let mut m = CostModel::new(OtKind::Silent(SilentSize::Small)).with_chunk(1 << 20);
        m.ensure([64, 64]);
        m.reset();
        spline_cost(&mut m, n, &fit.unwrap().shape, Party::Zero, ring(25));
        let bytes = m.cost().bytes() as f64 / n as f64;
        assert!(bytes <= most, "{bits} {bytes}");
        // Four, and one for the correlated OTs.
        assert_eq!(m.cost().rounds, 5);
    }
}

#[test]
fn what_is_no_exponential_is_refused() {
    let at = Interval { low: 0, high: 1000, scale: 6 };
    for (factor, rate, error) in [(0.0, 1.0, 0.1), (1.0, -1.0, 0.1), (1.0, f64::NAN, 0.1), (1.0, 1.0, 0.0)] {
        assert!(Spline::exponential((factor, rate, 1.0), (at, ring(20)), 10, error).is_err());
    }
    // Segments in which it grows by more than e^4.
    assert!(Spline::exponential((1.0, 1000.0, 1.0), (at, ring(20)), 10, 0.1).is_err());
    let good = Spline::exponential((1e-6, 1.0, 10.0), (at, ring(20)), 10, 0.1).unwrap().shape.spec().clone();
    let bad = |change: &dyn Fn(&mut ShapeSpec)| {
        let mut spec = good.clone();
        change(&mut spec);
        Shape::new(spec).is_err()
    };
    assert!(!bad(&|_| ()));
    assert!(bad(&|s| s.rate = 1 << 50));
    assert!(bad(&|s| s.rate = u64::MAX));
    assert!(bad(&|s| s.guard = 1));
    assert!(bad(&|s| s.basis.clear()));
    assert!(bad(&|s| s.basis.push(s.basis[0])));
    assert!(bad(&|s| s.basis[0].precision = 21));
    assert!(bad(&|s| (s.argument_bits, s.segments) = (40, 2)));
}
