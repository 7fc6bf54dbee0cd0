//! Weights and biases of a layer, with bounds and exact counts.

use super::error::expect;
use super::{Geometry, LayerError};
use hushnet_matmul::Weights;

/// A linear layer on integers: `output_o = sum_k W_ok input_k + bias_o`.
#[derive(Clone, Debug)]
pub struct BatchLinear {
    geometry: Geometry,
    /// Of every group: O/groups rows of `kh kw` times C/groups columns (kernel positions outermost).
    groups: Vec<Weights>,
    bias: Vec<i64>,
    max_row_l1: u64,
    max_row_l2: f64,
    /// `(l1, |bias|)` of every output channel.
    rows: Vec<(u64, u64)>,
}

impl BatchLinear {
    /// Takes weights in the plan's order (`[M, K]` or `[O, C/groups, kh, kw]`) and one bias an output (channel).
    ///
    /// # Errors
    /// [`LayerError::Length`] when their numbers do not follow from the geometry.
    pub fn new(geometry: Geometry, weights: &[i16], bias: &[i64]) -> Result<Self, LayerError> {
        expect("weights", geometry.weights(), weights.len())?;
        expect("biases", geometry.biases(), bias.len())?;
        let terms = geometry.terms();
        let (groups, channels, taps) = match &geometry {
            Geometry::Dense(d) => (1, d.inputs, 1),
            Geometry::Conv2d(c) => (c.groups, c.group_inputs(), c.kernel[0] * c.kernel[1]),
        };
        let outputs = geometry.biases() / groups;
        let mut matrices = Vec::with_capacity(groups);
        let mut row = vec![0; terms];
        let mut values = Vec::with_capacity(outputs * terms);
        for group in weights.chunks_exact(outputs * terms) {
            values.clear();
            for w in group.chunks_exact(terms) {
                for (i, value) in w.iter().enumerate() {
                    row[i % taps * channels + i / taps] = *value;
                }
                values.extend_from_slice(&row);
            }
            matrices.push(Weights::new(outputs, terms, &values)?);
        }
        let l1 = |w: &[i16]| w.iter().map(|v| u64::from(v.unsigned_abs())).sum::<u64>();
        let l2 = |w: &[i16]| w.iter().map(|v| i64::from(*v).pow(2) as u64).sum::<u64>();
        let rows: Vec<(u64, u64)> =
            weights.chunks_exact(terms).zip(bias).map(|(w, b)| (l1(w), b.unsigned_abs())).collect();
        let max_row_l1 = rows.iter().map(|r| r.0).max().unwrap_or(0);
        let max_row_l2 = (weights.chunks_exact(terms).map(l2).max().unwrap_or(0) as f64).sqrt();
        Ok(Self { geometry, groups: matrices, bias: bias.to_vec(), max_row_l1, max_row_l2, rows })
    }

    /// [`BatchLinear::new`] for byte weights.
    ///
    /// # Errors
    /// As [`BatchLinear::new`].
    pub fn from_bytes(geometry: Geometry, weights: &[i8], bias: &[i64]) -> Result<Self, LayerError> {
        let wide: Vec<i16> = weights.iter().map(|w| i16::from(*w)).collect();
        Self::new(geometry, &wide, bias)
    }

    /// The shapes of the layer that it computes.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// One bias an output (channel).
    #[must_use]
    pub fn bias(&self) -> &[i64] {
        &self.bias
    }

    /// Largest Euclidean norm of the weights of one output, padding ignored.
    #[must_use]
    pub fn max_row_l2(&self) -> f64 {
        self.max_row_l2
    }

    /// Largest sum of absolute weights of one output, padding ignored.
    #[must_use]
    pub fn max_row_l1(&self) -> u64 {
        self.max_row_l1
    }

    /// Rigorous bound of the outputs, `max_o (sum_k |W_ok| input_bound + |bias_o|)`, padding ignored.
    ///
    /// # Errors
    /// [`LayerError::OutputOverflow`] at 2^63 and above.
    pub fn output_bound(&self, input_bound: u64) -> Result<u64, LayerError> {
        let bound = |r: &(u64, u64)| u128::from(r.0) * u128::from(input_bound) + u128::from(r.1);
        let most = self.rows.iter().map(bound).max().unwrap_or(0);
        u64::try_from(most).ok().filter(|b| *b < 1 << 63).ok_or(LayerError::OutputOverflow)
    }

    /// Products of a weight with a word for output rows `outputs` of polynomials of `words` words,
    /// padding not counted: what the server multiplies.
    #[must_use]
    pub fn word_products(&self, outputs: std::ops::Range<usize>, words: usize) -> u64 {
        self.geometry.products(outputs).saturating_mul(words as u64)
    }

    pub(crate) fn groups(&self) -> &[Weights] {
        &self.groups
    }
}
