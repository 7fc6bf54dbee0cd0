//! The averaging attack (fact 3 of `docs/two-party.md`): on the published parameters, where it finds the weights, and in its strongest form ([`Averaging`]) on the
//! sound profiles, where it finds nothing.

use crate::{InsecureDesign, InsecureLinear, WEIGHT_SCALE};
use hushnet_layers::batch::{Dense, Geometry, LayerError};
use hushnet_ring::prime::inv_mod;
use hushnet_ring::Prg;
use hushnet_rlwe::one_poly::{Averaging, OnePolyContext, OnePolyServer, OnePolySpec, Profile, Tally};

/// A weight, times Delta, from its coefficient of p2 in several set-ups: the middle of their range less half of Delta; after k
/// set-ups its error has deviation of about Delta / (sqrt(2) k).
#[must_use]
pub fn midrange_attack(samples: &[i64]) -> f64 {
    let (low, high) = samples.iter().fold((i64::MAX, i64::MIN), |(l, h), s| (l.min(*s), h.max(*s)));
    f64::midpoint(low as f64, high as f64) - f64::from(WEIGHT_SCALE - 1).exp2()
}

/// Carries the attack out on 64 random weights in [-1, 1] of a small layer: after 1, 4, 16, ... up to `setups` set-ups, the root mean square
/// error of the weights found.
///
/// # Errors
/// [`LayerError`] from the ring.
pub fn midrange_curve(setups: usize) -> Result<Vec<(usize, f64)>, LayerError> {
    const WEIGHTS: usize = 64;
    let mut prg = Prg::from_seed([2; 16]);
    let design = InsecureDesign::new(&Geometry::dense(Dense { inputs: 8, outputs: 8 })?, WEIGHTS)?;
    let mut words = vec![0; WEIGHTS];
    prg.fill_words(&mut words);
    let weights: Vec<f64> = words.iter().map(|w| *w as f64 / 2f64.powi(63) - 1.0).collect();
    let (context, tally) = (&design.context, Tally::default());
    let mut one = vec![0i8; WEIGHTS];
    one[0] = 1;
    let one = context.forward_small(&one, &tally)?;
    let mut samples = vec![Vec::new(); WEIGHTS];
    let mut curve = Vec::new();
    for k in 1..=setups {
        let linear = InsecureLinear::new(&design, &weights, &[4; 32], 1, &mut prg)?;
        // p2 as the client has it: its coefficients modulo two of the primes, joined, which is wide enough.
        let mut r = context.dot(&[(&linear.setup[0][1], &one)], &tally)?;
        context.unfold(&mut r)?;
        let (q0, q2) = (context.primes()[0], context.primes()[2]);
        let (inverse, q) = (inv_mod(q2 % q0, q0), i128::from(q0) * i128::from(q2));
        for (j, s) in samples.iter_mut().enumerate() {
            let last = r[2 * WEIGHTS + j];
            let lift = (r[j] + q0 - last % q0) % q0 * inverse % q0;
            let wide = i128::from(lift) * i128::from(q2) + i128::from(last);
            s.push((if wide > q / 2 { wide - q } else { wide }) as i64);
        }
        if k.is_power_of_two() && k.trailing_zeros().is_multiple_of(2) {
            let mut square = 0.0;
            design.layout.for_each_weight(0, 0, |at, w, negative| {
                let found = midrange_attack(&samples[at]) / f64::from(WEIGHT_SCALE).exp2();
                square += (if negative { -found } else { found } - weights[w]).powi(2);
            });
            curve.push((k, (square / WEIGHTS as f64).sqrt()));
        }
    }
    Ok(curve)
}

/// [`Averaging`] on a sound profile at secure parameters: one weight polynomial of N random 8-bit weights is set up again and again, under one b (which
/// helps the attacker). After 1, 4, 16, ... up to `setups` set-ups: the largest correlation, in magnitude, of what any part of the attack finds
/// with the weights, times sqrt(N): about 1 where it finds nothing, sqrt(N) where it finds all.
///
/// # Errors
/// [`LayerError`] from the ring.
pub fn correlation_curve(profile: Profile, setups: usize) -> Result<Vec<(usize, f64)>, LayerError> {
    let n = if profile == Profile::Compact { 4096 } else { 8192 };
    let spec = OnePolySpec {
        ring_degree: n,
        ring_bits: 20,
        weight_l2: 128.0 * (n as f64).sqrt(),
        weight_bits: 9,
        weights: n,
        terms: 1,
        profile,
    };
    let params = spec.choose()?;
    let context = OnePolyContext::new(n, params.prime_bits(), 1)?;
    let (mut prg, tally) = (Prg::from_seed([6; 16]), Tally::default());
    let mut words = vec![0; n];
    prg.fill_words(&mut words);
    let weights: Vec<i64> = words.iter().map(|w| (w & 255) as i64 - 128).collect();
    let mut attacker = Averaging::new(&context, &params, &[7; 32], 0)?;
    let mut curve = Vec::new();
    for k in 1..=setups {
        let server = OnePolyServer::new(&context, &params, &[7; 32], 0, &mut prg)?;
        let (_, sent) = server.weight_key(&weights, 0, true, &tally)?;
        attacker.observe(&sent)?;
        if k.is_power_of_two() && k.trailing_zeros().is_multiple_of(2) {
            let most = attacker.correlations(&weights)?.iter().map(|(_, c)| c.abs()).fold(0.0, f64::max);
            curve.push((k, most * (n as f64).sqrt()));
        }
    }
    Ok(curve)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hushnet_rlwe::one_poly::correlation;

    #[test]
    fn correlation_is_found_where_there_is_one_and_in_no_sound_set_up() {
        let x: Vec<f64> = (0..100).map(f64::from).collect();
        let y: Vec<f64> = x.iter().map(|v| 3.0 - 2.0 * v).collect();
        assert!((correlation(&x, &y) + 1.0).abs() < 1e-9);
        for profile in [Profile::Compact, Profile::Flooded] {
            let curve = correlation_curve(profile, 64).unwrap();
            assert_eq!(curve.iter().map(|p| p.0).collect::<Vec<_>>(), [1, 4, 16, 64]);
            // Four parts and four points: beyond five deviations with probability below 10^-5.
            assert!(curve.iter().all(|p| p.1 < 5.0), "{profile:?}: {curve:?}");
        }
    }
}
