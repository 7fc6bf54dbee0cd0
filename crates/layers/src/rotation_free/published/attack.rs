//! The averaging attack on the published parameters (fact 3 of `protocols`).

use super::{InsecureDesign, InsecureLinear, WEIGHT_SCALE};
use crate::batch::{Dense, Geometry, LayerError};
use hushnet_ring::prime::inv_mod;
use hushnet_ring::Prg;
use hushnet_rlwe::one_poly::Tally;

/// A weight, times Delta, from its coefficient of p2 in several set-ups: the middle of their range less half of Delta; after k
/// set-ups its error has deviation of about Delta / (sqrt(2) k).
#[must_use]
pub fn midrange_attack(samples: &[i64]) -> f64 {
    let (low, high) = samples.iter().fold((i64::MAX, i64::MIN), |(l, h), s| (l.min(*s), h.max(*s)));
    (low as f64 + high as f64) / 2.0 - f64::from(WEIGHT_SCALE - 1).exp2()
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
