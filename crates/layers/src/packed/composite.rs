//! Activations of polynomials one after the other: `x q(x)` with `q = p_k o ... o p_1`, as ReLU by a composite of sign polynomials is.
//!
//! Term by term, errors would be multiplied by the sums of all coefficients' magnitudes in every polynomial. But an error `e` of x changes the
//! result by `(x q(x))' e`, which is about e for ReLU, and an error of `y_i = p_i(.. p_1(x))` by `x (p_k o .. o p_(i+1))'(y_i) e`. [`Chain::slopes`] are the largest
//! of these over the planned range, as factors from step to step.

use super::spec::{horner, Network, Step};

/// Points of the planned range at which slopes are computed, on one side of zero.
const POINTS: usize = 1 << 14;
/// What slopes are taken larger by: between points, and what errors that are not infinitely small add.
const MARGIN: f64 = 1.1;
/// Most polynomials of a chain.
const LONGEST: usize = 16;

/// The polynomials that lead from a tensor to the second factor of its product.
pub(super) struct Chain<'a> {
    /// Positions of the steps, first to last.
    pub(super) steps: Vec<usize>,
    coefficients: Vec<&'a [f64]>,
    range: f64,
}

/// By what errors count: one factor for every polynomial, then that of the product for its second factor.
pub(super) struct Slopes {
    pub(super) polynomials: Vec<f64>,
    pub(super) product: f64,
}

impl<'a> Chain<'a> {
    /// The chain of a product; `None` where its second factor is not polynomials of its first, each read by the next alone.
    pub(super) fn of(net: &'a Network, step: &Step) -> Option<Self> {
        let Step::Multiply { inputs: [operand, factor], .. } = step else { return None };
        let mut chain = Self { steps: Vec::new(), coefficients: Vec::new(), range: 0.0 };
        let mut tensor = *factor;
        while tensor != *operand {
            let readers = net.consumers(tensor).len();
            let (at, made) = net.steps.iter().enumerate().find(|(_, s)| s.output() == tensor)?;
            let Step::Polynomial { input, coefficients, range, .. } = made else { return None };
            if readers != 1 || tensor == net.output || chain.steps.len() == LONGEST {
                return None;
            }
            chain.steps.push(at);
            chain.coefficients.push(coefficients);
            (tensor, chain.range) = (*input, *range);
        }
        chain.steps.reverse();
        chain.coefficients.reverse();
        (!chain.steps.is_empty()).then_some(chain)
    }

    /// See [`Slopes`].
    pub(super) fn slopes(&self) -> Slopes {
        // By stage: the largest |x (..)'| of an error before it, behind the last one that of the product.
        let mut largest = vec![0.0f64; self.coefficients.len() + 1];
        for i in 0..=2 * POINTS {
            let x = self.range * (i as f64 / POINTS as f64 - 1.0);
            let mut y = x;
            let mut slopes = Vec::with_capacity(self.coefficients.len());
            for c in &self.coefficients {
                slopes.push(slope(c, y));
                y = horner(c, y);
            }
            let mut behind = x;
            for (k, s) in slopes.iter().enumerate().rev() {
                largest[k + 1] = largest[k + 1].max(behind.abs());
                behind *= s;
            }
            largest[0] = largest[0].max((behind + y).abs());
        }
        // Factors need something to divide by: no step takes more than it did from the one before.
        let least = 1e-6 * largest.iter().fold(0.0f64, |m, v| m.max(*v)).max(f64::MIN_POSITIVE);
        largest.iter_mut().for_each(|v| *v = v.max(least));
        let polynomials = largest.windows(2).map(|w| w[0] / w[1]);
        let mut polynomials: Vec<f64> = polynomials.collect();
        if let Some(first) = polynomials.first_mut() {
            *first *= MARGIN;
        }
        Slopes { polynomials, product: MARGIN * largest[largest.len() - 1] }
    }
}

/// The slope of a polynomial.
fn slope(c: &[f64], x: f64) -> f64 {
    c.iter().enumerate().skip(1).rev().fold(0.0, |sum, (k, c)| sum * x + k as f64 * c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_differences() {
        let c = [0.3, -1.0, 0.5, 2.0, -0.25];
        for x in [-1.5, -0.2, 0.0, 0.7, 2.0] {
            let h = 1e-6;
            let want = (horner(&c, x + h) - horner(&c, x - h)) / (2.0 * h);
            assert!((slope(&c, x) - want).abs() < 1e-6, "{x}");
        }
    }
}
