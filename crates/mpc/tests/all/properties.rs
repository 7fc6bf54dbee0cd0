//! Splines, powers, softmax and changes of ring for any interval, rings and number of values that fit: against floating point and the stated errors,
//! and their cost. What has every argument and share of small rings stands in `functions.rs` and `softmax.rs`.

use crate::common::{add, predict, run, share, values};
use hushnet_mpc::*;
use proptest::prelude::*;

const KIND: OtKind = OtKind::SoftSpoken;
/// Several passes, the last one not full.
const CHUNK: usize = 128;

fn ring(bits: u32) -> Ring {
    Ring::new(bits).unwrap()
}

/// A unit of so many fractional bits.
fn unit(scale: u32) -> f64 {
    2f64.powi(-(scale as i32))
}

/// Bits of a positive number.
fn length(v: i64) -> u32 {
    64 - v.leading_zeros()
}

/// Arguments of the interval, both ends first.
fn arguments(at: Interval, n: usize, seed: u64) -> Vec<i64> {
    let span = (at.high - at.low) as u64 + 1;
    let random = values(n, ring(64), seed.into());
    let x = |(i, r): (usize, &u64)| match i {
        0 => at.low,
        1 => at.high,
        _ => at.low + (r % span) as i64,
    };
    random.iter().enumerate().map(x).collect()
}

/// Shares of signed numbers.
fn shares_of(x: &[i64], input: Ring, seed: u64) -> [Vec<u64>; 2] {
    let words: Vec<u64> = x.iter().map(|&x| input.encode(x)).collect();
    share(&words, input, u128::from(seed) + 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Any function in any interval of a twentieth to sixteen, in any rings that hold arguments and results.
    #[test]
    fn functions_of_one_variable(
        which in 0usize..Function::ALL.len(),
        (centre, reach) in (-4.0..4.0f64, 0.05..8.0f64),
        (scale, bits, result) in (4u32..13, 4u32..11, 0u32..6),
        (spare, wider, n, seed, second) in (1u32..12, 0u32..20, 1usize..300, any::<u64>(), any::<bool>()),
    ) {
        let f = Function::ALL[which];
        // Powers are positive from a half on.
        let (low, high) = match f {
            Function::Reciprocal | Function::InverseRoot => (0.5 + centre.abs(), 0.5 + centre.abs() + reach),
            _ => (centre - reach, centre + reach),
        };
        let at = Interval::between(low, high, scale).unwrap();
        let most = (0..=64).map(|i| f.at(low + (high - low) * f64::from(i) / 64.0).abs()).fold(1.0, f64::max);
        let result = bits + 1 + result;
        let input = ring(length(at.low.abs().max(at.high.abs())).max(4) + 1 + spare);
        let out = ring((most.log2().ceil() as u32 + 3 + result + wider).min(64));
        let fit = Spline::fit(&|x| f.at(x), (at, input), result, unit(bits) * most).unwrap();
        prop_assert!(fit.error <= unit(bits) * most);
        let x = arguments(at, n, seed);
        let shares = shares_of(&x, input, seed);
        let holder = if second { Party::One } else { Party::Zero };
        let r = run(KIND, CHUNK, |s| {
            let pieces = (s.party() == holder).then_some(&fit.pieces);
            spline(s, (&shares[s.party().index()], input), &fit.shape, pieces, holder, out).unwrap()
        });
        prop_assert_eq!(r.cost, predict(KIND, CHUNK, |m| spline_cost(m, n, &fit.shape, holder, out)));
        for (&x, got) in x.iter().zip(add(out, &r.out)) {
            let exact = f.at(x as f64 * unit(at.scale));
            let error = (out.signed(got) as f64 * unit(result) - exact).abs();
            prop_assert!(error <= fit.error, "{:?} {} of {:?}: {} > {}", f, x, at, error, fit.error);
        }
    }

    /// Reciprocals and inverse roots over any number of octaves.
    #[test]
    fn powers(
        root in any::<bool>(),
        (low, octaves, scale) in (1i64..5000, 0.0..10.0f64, 0u32..16),
        (bits, spare, wider) in (3u32..13, 2u32..10, 0u32..10),
        (n, seed) in (1usize..200, any::<u64>()),
    ) {
        let f = if root { Function::InverseRoot } else { Function::Reciprocal };
        let at = Interval { low, high: (low as f64 * octaves.exp2()) as i64, scale };
        let input = ring(length(at.high) + spare);
        let most = f.at(low as f64 * unit(scale));
        // Fractional bits that the greatest result has anything of.
        let digits = (i64::from(bits) - most.log2().floor() as i64 + 2).clamp(0, 40) as u32;
        let Ok(fit) = Power::fit(f, (at, input), digits, unit(bits)) else {
            // Only where the inner ring would be wider than a word.
            prop_assert!(octaves * 2.0 + f64::from(bits + digits) > 24.0, "{:?} {:?} {} {}", f, at, digits, bits);
            return Ok(());
        };
        prop_assert!(fit.relative <= unit(bits));
        let out = ring(((most.log2().ceil() as i64).max(0) as u32 + digits + 3 + wider).min(64));
        let x = arguments(at, n, seed);
        let shares = shares_of(&x, input, seed);
        let r = run(KIND, CHUNK, |s| power(s, (&shares[s.party().index()], input), &fit, out).unwrap());
        prop_assert_eq!(r.cost, predict(KIND, CHUNK, |m| power_cost(m, n, &fit, out)));
        for (&x, got) in x.iter().zip(add(out, &r.out)) {
            let exact = f.at(x as f64 * unit(scale));
            let error = (out.signed(got) as f64 * unit(digits) - exact).abs();
            let bound = fit.relative * exact + fit.absolute;
            prop_assert!(error <= bound, "{:?} {} of {:?}: {} > {}", f, x, at, error, bound);
        }
    }

    /// Rows of any number of classes.
    #[test]
    fn softmax_of_any_rows(
        (classes, rows, fraction) in (1usize..40, 1usize..6, 6u32..14),
        (reach, bits, spare, wider) in (1u32..5, 7u32..14, 0u32..12, 0u32..20),
        (scale, seed) in (4u32..15, any::<u64>()),
    ) {
        let narrow = ring(fraction + reach + 1);
        let input = ring(narrow.bits() + spare);
        let out = ring((scale + 2 + wider).min(64));
        // Exponentials of arguments of few fractional bits are no smooth function of them.
        let error = unit((bits + length(classes as i64 - 1)).min(fraction + 3));
        let fit = Softmax::fit(classes, (input, narrow, fraction), scale, error).unwrap();
        // Differences are below half of the narrow ring; the whole row lies anywhere.
        let shift = (seed % 64) as i64 - 32;
        let x: Vec<i64> = values(rows * classes, ring(narrow.bits() - 1), seed.into())
            .iter()
            .enumerate()
            .map(|(i, &v)| if i / classes % 3 == 1 { v as i64 / 8 + shift } else { v as i64 - (narrow.mask() / 4) as i64 })
            .collect();
        let x: Vec<i64> = x.iter().map(|&v| input.signed(input.encode(v))).collect();
        let shares = shares_of(&x, input, seed);
        let r = run(KIND, CHUNK, |s| softmax(s, &shares[s.party().index()], &fit, out).unwrap());
        prop_assert_eq!(r.cost, predict(KIND, CHUNK, |m| softmax_cost(m, rows, &fit, out)));
        let got = add(out, &r.out);
        for (row, got) in x.chunks(classes).zip(got.chunks(classes)) {
            let real: Vec<f64> = row.iter().map(|&v| v as f64 * unit(fraction)).collect();
            let top = real.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = real.iter().map(|v| (v - top).exp()).sum();
            for (v, &got) in real.iter().zip(got) {
                let off = (out.signed(got) as f64 * unit(scale) - (v - top).exp() / sum).abs();
                prop_assert!(off <= fit.error, "{} classes: {} > {}", classes, off, fit.error);
            }
        }
    }

    /// From any ring by any shift into any ring: floor, or one more where something is shed.
    #[test]
    fn changes_of_ring(
        (l, w, part) in (2u32..=64, 1u32..=64, 0.0..1.0f64),
        (n, seed) in (1usize..400, any::<u64>()),
    ) {
        let (from, out) = (ring(l), ring(w));
        let shift = (part * f64::from(l)) as u32;
        let x: Vec<u64> = values(n, from, seed.into()).iter().map(|v| v >> 1).collect();
        let shares = share(&x, from, u128::from(seed) + 1);
        let r = run(KIND, CHUNK, |s| rescale(s, &shares[s.party().index()], (from, shift), out).unwrap());
        prop_assert_eq!(r.cost, predict(KIND, CHUNK, |m| rescale_cost(m, n, (from, shift), out)));
        for (&x, got) in x.iter().zip(add(out, &r.out)) {
            let off = out.sub(got, out.reduce(x >> shift));
            prop_assert!(off <= u64::from(shift > 0), "{} >> {} into {}: {} {}", l, shift, w, x, got);
        }
    }
}
