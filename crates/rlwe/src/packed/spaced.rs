//! Weight polynomials in X^S. Where all weights stand at multiples of S, a polynomial is `w(X^S)` for a w of N / S coefficients, and
//! the transform has N / S values, each of them S times: X^S takes no more values at the roots of X^N + 1. A layer of one pixel a
//! kernel has such weights, S the pixels of a tile (`docs/two-party.md`, "Where weights stand"). They take 1/S of the room, and a
//! transform of few values takes a small product of matrices instead of one of N words.

use super::{PackedContext, WeightPoly};
use crate::CipherError;
use hushnet_ring::RingError;

/// Most values of a transform: with more of them the product of matrices takes longer than a transform of N words.
pub const MOST_VALUES: usize = 32;

/// Makes the transforms of polynomials in X^S. Cheap to make: N / S transforms.
pub struct SpacedTransform {
    context: PackedContext,
    spacing: usize,
    /// Value k of X^(S m) at k N / S + m.
    table: Vec<u64>,
}

impl SpacedTransform {
    /// The number of values of a transform of polynomials in X^`spacing`; None where it is not made that way.
    #[must_use]
    pub fn values(ring_degree: usize, spacing: usize) -> Option<usize> {
        let good = spacing > 1 && spacing.is_power_of_two() && ring_degree.is_multiple_of(spacing);
        good.then(|| ring_degree / spacing).filter(|count| *count <= MOST_VALUES)
    }

    /// The transform of polynomials in X^`spacing`; None where there are too many values ([`MOST_VALUES`]), or where the context's
    /// transform does not leave equal ones side by side.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for a context whose transform takes no polynomials of its degree.
    pub fn new(context: &PackedContext, spacing: usize) -> Result<Option<Self>, CipherError> {
        let n = context.ring_degree();
        let Some(count) = Self::values(n, spacing) else { return Ok(None) };
        let mut table = vec![0; count * count];
        for m in 0..count {
            let mut hat = vec![0; n];
            hat[m * spacing] = 1;
            context.ntt().forward(&mut hat)?;
            for (k, block) in hat.chunks_exact(spacing).enumerate() {
                if block.iter().any(|v| *v != block[0]) {
                    return Ok(None);
                }
                table[k * count + m] = block[0];
            }
        }
        Ok(Some(Self { context: context.clone(), spacing, table }))
    }

    /// The N / S values of a polynomial's transform, from its N signed coefficients, of which those at multiples of S alone are read.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless there are N coefficients.
    pub fn forward(&self, coefficients: &[i64]) -> Result<Vec<u64>, CipherError> {
        let (n, modulus) = (self.context.ring_degree(), self.context.modulus());
        if coefficients.len() != n {
            return Err(RingError::Length { what: "weights", expected: n, got: coefficients.len() }.into());
        }
        let row = |row: &[u64]| {
            let terms = row.iter().zip(coefficients.iter().step_by(self.spacing));
            modulus.residue(terms.map(|(v, c)| i128::from(*v) * i128::from(*c)).sum())
        };
        Ok(self.table.chunks_exact(n / self.spacing).map(row).collect())
    }
}

impl WeightPoly {
    /// Zero, with room for what [`Self::spread`] writes.
    #[must_use]
    pub fn blank(context: &PackedContext) -> Self {
        Self(vec![0; context.ring_degree()])
    }

    /// Takes the values of [`SpacedTransform::forward`], each as often as a transform has it.
    pub fn spread(&mut self, values: &[u64]) {
        let run = self.0.len() / values.len().max(1);
        for (block, value) in self.0.chunks_exact_mut(run.max(1)).zip(values) {
            block.fill(*value);
        }
    }
}
