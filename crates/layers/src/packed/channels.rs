//! Expected errors by channel.
//!
//! A layer multiplies errors by the norm of a row. Rows of one layer have different norms, and the channel whose error is largest is seldom the one
//! that the next layer's largest row reads most of: largest norms, one layer after the other, count more than any path has. So the variance of every channel
//! is carried on, `v_o = sum_z v_z sum_k w_ozk^2`, in shares of the largest. Which elements are a channel follows from the row-major order of a
//! tensor: n channels are n runs of one length, whatever the shape.

use super::spec::Linear;
use crate::batch::Geometry;

/// Shares of a channel's variance in that of the largest; an index names them. Index 0: all channels are alike.
#[derive(Default)]
pub(super) struct Channels {
    shares: Vec<Vec<f64>>,
}

/// A deviation of the largest channel, and the index of shares.
pub(super) type Spread = (f64, usize);

/// The share of channel `i` of `n`; `None` where channels do not fall into runs.
fn share(shares: &[f64], i: usize, n: usize) -> Option<f64> {
    match shares.len() {
        0 => Some(1.0),
        own if n.is_multiple_of(own) => Some(shares[i / (n / own)]),
        own if own.is_multiple_of(n) => {
            let run = own / n;
            Some(shares[i * run..(i + 1) * run].iter().fold(0.0, |m, s| m.max(*s)))
        }
        _ => None,
    }
}

impl Channels {
    fn of(&self, index: usize) -> &[f64] {
        index.checked_sub(1).map_or(&[], |at| &self.shares[at])
    }

    /// Variances, in units of `unit^2`, as a deviation and shares.
    fn put(&mut self, mut variances: Vec<f64>, unit: f64) -> Spread {
        let most = variances.iter().fold(0.0f64, |m, v| m.max(*v));
        if !(most > 0.0 && most.is_finite() && unit.is_finite()) {
            return (if unit == 0.0 { 0.0 } else { unit * most.sqrt() }, 0);
        }
        variances.iter_mut().for_each(|v| *v /= most);
        self.shares.push(variances);
        (unit * most.sqrt(), self.shares.len())
    }

    /// Channel by channel, what `join` makes of the variances of several values; all alike where their channels do not match.
    fn joined(&mut self, parts: &[Spread], join: impl Fn(f64, f64) -> f64) -> Spread {
        // Errors beyond all numbers (an infinite one times zero is none) stay so.
        if parts.iter().any(|p| !p.0.is_finite()) {
            return (f64::INFINITY, 0);
        }
        let unit = parts.iter().fold(0.0f64, |m, p| m.max(p.0));
        let alike = parts.iter().all(|p| p.1 == parts[0].1);
        let scaled = |p: &Spread| if unit > 0.0 { (p.0 / unit).powi(2) } else { 0.0 };
        let whole = unit * parts.iter().map(scaled).fold(0.0, &join).sqrt();
        if alike || unit == 0.0 {
            return (whole, if alike { parts[0].1 } else { 0 });
        }
        let count = parts.iter().map(|p| self.of(p.1).len()).max().unwrap_or(0);
        let variance = |i: usize| {
            parts.iter().try_fold(0.0, |sum, p| Some(join(sum, scaled(p) * share(self.of(p.1), i, count)?)))
        };
        let variances: Option<Vec<f64>> = (0..count).map(variance).collect();
        match variances {
            Some(variances) => self.put(variances, unit),
            None => (whole, 0),
        }
    }

    /// A sum of independent errors.
    pub(super) fn sum(&mut self, parts: &[Spread]) -> Spread {
        self.joined(parts, |a, b| a + b)
    }

    /// The largest of several errors.
    pub(super) fn largest(&mut self, parts: &[Spread]) -> Spread {
        self.joined(parts, f64::max)
    }

    /// Shares of a product of two values: an error of each counts.
    pub(super) fn larger(&mut self, a: usize, b: usize) -> usize {
        if a == 0 || b == 0 {
            return 0;
        }
        self.largest(&[(1.0, a), (1.0, b)]).1
    }

    /// Shares when every channel's deviation grows by the same.
    pub(super) fn raised(&mut self, (deviation, index): Spread, more: f64) -> usize {
        if index == 0 || more == 0.0 {
            return index;
        }
        let raise = |s: &f64| ((s.sqrt() * deviation + more) / (deviation + more)).powi(2);
        let raised = self.of(index).iter().map(raise).collect();
        self.put(raised, 1.0).1
    }

    /// Behind a layer: rows by the root of the sum of squares, each weighted by its channel's variance.
    pub(super) fn through(&mut self, map: &Linear, (deviation, index): Spread) -> Spread {
        if !deviation.is_finite() {
            return (f64::INFINITY, 0);
        }
        match self.carried(map, self.of(index)) {
            Some(variances) => self.put(variances, deviation),
            None => (map.row_norms().1 * deviation, 0),
        }
    }

    fn carried(&self, map: &Linear, shares: &[f64]) -> Option<Vec<f64>> {
        let squares = |row: &[f64]| row.iter().map(|w| w * w).sum::<f64>();
        match &map.geometry {
            Geometry::Dense(d) => {
                let own: Vec<f64> =
                    (0..d.inputs).map(|i| share(shares, i, d.inputs)).collect::<Option<_>>()?;
                let row = |row: &[f64]| row.iter().zip(&own).map(|(w, s)| w * w * s).sum();
                Some(map.weights.chunks(d.inputs).map(row).collect())
            }
            Geometry::Conv2d(c) => {
                let [channels, ..] = c.input;
                let own: Vec<f64> =
                    (0..channels).map(|i| share(shares, i, channels)).collect::<Option<_>>()?;
                let (group, taps) = (c.group_inputs(), c.kernel[0] * c.kernel[1]);
                let row = |(o, row): (usize, &[f64])| {
                    let first = o / c.group_outputs() * group;
                    row.chunks(taps).zip(&own[first..]).map(|(w, s)| s * squares(w)).sum()
                };
                Some(map.weights.chunks(group * taps).enumerate().map(row).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn map(geometry: serde_json::Value, weights: Vec<f64>) -> Linear {
        let geometry = serde_json::from_value(geometry).unwrap();
        Linear { geometry, weights: Arc::new(weights), bias: Arc::default(), every: false }
    }

    /// To nine decimals.
    fn variances(of: &Channels, (deviation, index): Spread, n: usize) -> Vec<f64> {
        let variance = |i| deviation * deviation * share(of.of(index), i, n).unwrap();
        (0..n).map(|i| (variance(i) * 1e9).round() / 1e9).collect()
    }

    /// By hand: a depthwise layer whose first channel is large, then one that reads it little.
    #[test]
    fn variances_follow_their_channels() {
        let mut c = Channels::default();
        let depthwise = json!({"type": "conv2d", "input": [2, 4, 4], "output": [2, 4, 4], "kernel": [1, 2], "stride": [1, 1],
            "pads": [0, 0, 0, 1], "dilation": [1, 1], "groups": 2});
        let first = c.through(&map(depthwise, vec![3.0, 4.0, 0.5, 0.0]), (2.0, 0));
        assert_eq!(variances(&c, first, 2), [100.0, 1.0]);
        let noisy = c.sum(&[first, (3.0, 0)]);
        assert_eq!(variances(&c, noisy, 2), [109.0, 10.0]);
        let pointwise = json!({"type": "conv2d", "input": [2, 4, 4], "output": [1, 4, 4], "kernel": [1, 1], "stride": [1, 1],
            "pads": [0, 0, 0, 0], "dilation": [1, 1], "groups": 1});
        let second = c.through(&map(pointwise, vec![0.1, 2.0]), noisy);
        assert!((second.0.powi(2) - (1.09 + 40.0)).abs() < 1e-9, "{}", second.0.powi(2));
        // As a vector: 16 elements of each channel.
        let mut weights = vec![0.0; 32];
        (weights[15], weights[16]) = (1.0, 1.0);
        let dense = c.through(&map(json!({"type": "dense", "inputs": 32, "outputs": 1}), weights), noisy);
        assert!((dense.0.powi(2) - 119.0).abs() < 1e-9);
    }

    #[test]
    fn errors_beyond_all_numbers_stay_so() {
        let mut c = Channels::default();
        let dense = map(json!({"type": "dense", "inputs": 2, "outputs": 1}), vec![1.0, 0.0]);
        for lost in [f64::NAN, f64::INFINITY] {
            assert_eq!(c.sum(&[(lost, 0), (1.0, 0)]), (f64::INFINITY, 0));
            assert_eq!(c.largest(&[(lost, 0)]), (f64::INFINITY, 0));
            assert_eq!(c.through(&dense, (lost, 0)), (f64::INFINITY, 0));
        }
        assert_eq!(c.through(&dense, (0.0, 0)), (0.0, 1));
    }

    #[test]
    fn what_does_not_match_counts_as_alike() {
        let mut c = Channels::default();
        let (two, three) = (c.put(vec![1.0, 4.0], 1.0), c.put(vec![9.0, 1.0, 1.0], 1.0));
        let both = c.sum(&[two, three]);
        assert!((both.0 - 13f64.sqrt()).abs() < 1e-9 && both.1 == 0);
        let four = c.put(vec![1.0, 2.0, 4.0, 8.0], 1.0);
        let sum = c.sum(&[two, four]);
        assert_eq!(variances(&c, sum, 4), [2.0, 3.0, 8.0, 12.0]);
        // Runs of channels as one count for their largest.
        assert_eq!(share(c.of(four.1), 0, 2), Some(0.25));
        assert_eq!((c.larger(two.1, 0), c.larger(two.1, two.1)), (0, two.1));
        let raised = c.raised(two, 2.0);
        assert_eq!(variances(&c, (4.0, raised), 2), [9.0, 16.0]);
    }
}
