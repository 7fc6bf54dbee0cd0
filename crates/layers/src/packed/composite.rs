//! Activations of polynomials one after the other: `x q(x)` with `q = p_k o ... o p_1`, as ReLU by a composite of sign polynomials is.
//!
//! Term by term, errors would be multiplied by the sums of all coefficients' magnitudes in every polynomial. But an error `e` of x changes the
//! result by `(x q(x))' e`, which is about e for ReLU, and an error of `y_i = p_i(.. p_1(x))` by `x (p_k o .. o p_(i+1))'(y_i) e`. [`Chain::slopes`] are the largest
//! of these over the planned range, and their root mean squares over operands of usual magnitude, as factors from step to step.

use super::circuit::Slope;
use super::spec::{horner, Network, Step};

/// Points of the planned range at which slopes are computed, on one side of zero.
const POINTS: usize = 1 << 14;
/// What the largest slopes are taken larger by: between points, and what errors that are not infinitely small add.
/// Means over all points miss neither, and in a network of 55 activations 1.1 each would be 2^7.6.
const MARGIN: f64 = 1.1;
/// Coefficients up to which errors of a polynomial alone are counted term by term: degree 4.
const FEW_TERMS: usize = 5;
/// Most polynomials of a chain.
const LONGEST: usize = 16;

/// The polynomials that lead from a tensor to the second factor of its product.
pub(super) struct Chain<'a> {
    /// Positions of the steps, first to last.
    pub(super) steps: Vec<usize>,
    coefficients: Vec<&'a [f64]>,
    range: f64,
    usual: f64,
}

/// By what errors count: one factor for every polynomial, then that of the product for its second factor.
pub(super) struct Slopes {
    pub(super) polynomials: Vec<Slope>,
    pub(super) product: Slope,
}

impl<'a> Chain<'a> {
    /// The chain of a product; `None` where its second factor is not polynomials of its first, each read by the next alone.
    pub(super) fn of(net: &'a Network, step: &Step) -> Option<Self> {
        let Step::Multiply { inputs: [operand, factor], .. } = step else { return None };
        let mut chain = Self {
            steps: Vec::new(),
            coefficients: Vec::new(),
            range: 0.0,
            usual: net.tensors[*operand].usual,
        };
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
        // By stage: |x (..)'| of an error before it, behind the last one that of the product; at most, and squared over each side of zero.
        let count = self.coefficients.len() + 1;
        let (mut largest, mut squares, mut weights) =
            (vec![0.0f64; count], vec![[0.0f64; 2]; count], [0.0f64; 2]);
        for i in 0..=2 * POINTS {
            let x = self.range * (i as f64 / POINTS as f64 - 1.0);
            let (side, weight) = at_usual(x, self.usual, self.range, i > POINTS);
            weights[side] += weight;
            for (k, slope) in self.at(x).into_iter().enumerate() {
                largest[k] = largest[k].max(slope.abs());
                squares[k][side] += weight * slope * slope;
            }
        }
        // Of values that are always on one side, as of channels with a mean, the worse one.
        let mean = |s: &[f64; 2]| (s[0] / weights[0]).max(s[1] / weights[1]).sqrt();
        let usual: Vec<f64> = squares.iter().map(mean).collect();
        let (bounds, last) = factors(largest, MARGIN);
        let (likely, end) = factors(usual, 1.0);
        let polynomials =
            bounds.into_iter().zip(likely).map(|(bound, usual)| Slope { bound, usual }).collect();
        Slopes { polynomials, product: Slope { bound: last, usual: end } }
    }

    /// By what errors before every stage, and of the second factor, count in the product at an operand.
    fn at(&self, x: f64) -> Vec<f64> {
        let mut y = x;
        let mut slopes = Vec::with_capacity(self.coefficients.len());
        for c in &self.coefficients {
            slopes.push(slope(c, y));
            y = horner(c, y);
        }
        let mut out = vec![x; slopes.len() + 1];
        for k in (0..slopes.len()).rev() {
            out[k] = out[k + 1] * slopes[k];
        }
        // The operand is the first factor, too.
        out[0] += y;
        out
    }
}

/// By what an error of the operand counts in a polynomial that stands alone; `None` for few terms, and without a range.
pub(super) fn alone(coefficients: &[f64], range: f64, usual: f64) -> Option<Slope> {
    if coefficients.len() <= FEW_TERMS || !range.is_finite() {
        return None;
    }
    let (mut bound, mut squares, mut weights) = (0.0f64, [0.0f64; 2], [0.0f64; 2]);
    for i in 0..=2 * POINTS {
        let x = range * (i as f64 / POINTS as f64 - 1.0);
        let (side, weight) = at_usual(x, usual, range, i > POINTS);
        let slope = slope(coefficients, x);
        bound = bound.max(slope.abs());
        weights[side] += weight;
        squares[side] += weight * slope * slope;
    }
    let usual = (squares[0] / weights[0]).max(squares[1] / weights[1]).sqrt();
    Some(Slope { bound: MARGIN * bound, usual })
}

/// The side of zero that an operand is on, and how often one of usual magnitude is there.
fn at_usual(x: f64, usual: f64, range: f64, above: bool) -> (usize, f64) {
    (usize::from(above), (-0.5 * (x / usual.max(1e-3 * range)).powi(2)).exp())
}

/// From what errors count for at every stage, times `margin`, to factors from stage to stage, and the last one.
fn factors(mut counts: Vec<f64>, margin: f64) -> (Vec<f64>, f64) {
    // Factors need something to divide by.
    let least = 1e-6 * counts.iter().fold(0.0f64, |m, v| m.max(*v)).max(f64::MIN_POSITIVE);
    counts.iter_mut().for_each(|v| *v = v.max(least));
    let mut steps: Vec<f64> = counts.windows(2).map(|w| w[0] / w[1]).collect();
    if let Some(first) = steps.first_mut() {
        *first *= margin;
    }
    (steps, margin * counts[counts.len() - 1])
}

/// The slope of a polynomial.
fn slope(c: &[f64], x: f64) -> f64 {
    c.iter().enumerate().skip(1).rev().fold(0.0, |sum, (k, c)| sum * x + k as f64 * c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_polynomial_alone_counts_by_its_slope() {
        // T_7 on [-2, 2]: slopes up to 49 / 2 at the ends, coefficients' magnitudes times powers up to 239.
        let c: Vec<f64> = [0.0, -7.0, 0.0, 56.0, 0.0, -112.0, 0.0, 64.0]
            .iter()
            .enumerate()
            .map(|(k, c)| c / 2f64.powi(k as i32))
            .collect();
        let found = alone(&c, 2.0, 0.5).unwrap();
        assert!((found.bound - MARGIN * 24.5).abs() < 1e-9, "{found:?}");
        assert!(found.usual < found.bound && found.usual > 1.0, "{found:?}");
        assert_eq!(alone(&c[..FEW_TERMS], 2.0, 0.5), None);
        // Of x itself, 55 times one after the other, a mean must stay 1.
        let one = alone(&[0.0, 1.0, 0.0, 0.0, 0.0, 0.0], 2.0, 0.5).unwrap();
        assert!((one.bound - MARGIN).abs() < 1e-9 && (one.usual - 1.0).abs() < 1e-9, "{one:?}");
        assert_eq!(alone(&c, f64::INFINITY, 0.5), None);
    }

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
