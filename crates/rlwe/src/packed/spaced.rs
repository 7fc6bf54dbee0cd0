//! Weight polynomials in X^S. Where all weights stand at multiples of S, a polynomial is `w(X^S)` for a w of N / S coefficients, and
//! the transform has N / S values, each of them S times: X^S takes no more values at the roots of X^N + 1. A layer of one pixel a
//! kernel has such weights, S the pixels of a tile (`docs/two-party.md`, "Where weights stand"). They take 1/S of the room, and sums of
//! their products are products of matrices, one for each value: a word of the weights meets S words of both parts of a ciphertext.

use super::{PackedContext, PackedServer};
use crate::CipherError;
use hushnet_ring::mac::{LeftPairs, Runs};
use hushnet_ring::{simd, RingError};

/// Least S: the kernels of transforms leave equal values side by side in runs of so many and more.
pub const LEAST_SPACING: usize = 64;
/// Most values that a product of matrices makes: of more of them a transform of N words takes less.
const MOST_PRODUCTS: usize = 32;
/// Ciphertexts that are laid out at a time, so that a block of them and the weights that meet it stay in the caches.
const TERMS: usize = 256;

/// Makes the transforms of polynomials in X^S. Cheap to make: N / S transforms at most.
pub struct SpacedTransform {
    context: PackedContext,
    spacing: usize,
    /// Value k of X^(S m) at k N / S + m; empty where transforms of N words are made.
    table: Vec<u64>,
}

impl SpacedTransform {
    /// The number of values of a transform of polynomials in X^`spacing`; None where it is not made that way.
    #[must_use]
    pub fn values(ring_degree: usize, spacing: usize) -> Option<usize> {
        let good =
            spacing.is_power_of_two() && spacing >= LEAST_SPACING && ring_degree.is_multiple_of(spacing);
        good.then(|| ring_degree / spacing)
    }

    /// The transform of polynomials in X^`spacing`; None where runs are too short ([`LEAST_SPACING`]), or where the context's transform
    /// does not leave equal values side by side.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for a context whose transform takes no polynomials of its degree.
    pub fn new(context: &PackedContext, spacing: usize) -> Result<Option<Self>, CipherError> {
        let n = context.ring_degree();
        let Some(count) = Self::values(n, spacing) else { return Ok(None) };
        let mut table = vec![0; if count > MOST_PRODUCTS { 0 } else { count * count }];
        for m in 0..count {
            let mut hat = vec![0; n];
            hat[m * spacing] = 1;
            context.ntt().forward(&mut hat)?;
            for (k, block) in hat.chunks_exact(spacing).enumerate() {
                if block.iter().any(|v| *v != block[0]) {
                    return Ok(None);
                }
                if let Some(place) = table.get_mut(k * count + m) {
                    *place = block[0];
                }
            }
        }
        Ok(Some(Self { context: context.clone(), spacing, table }))
    }

    /// The N / S values of the transform of `w(X^S)`, from the N / S signed coefficients of w.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless there are N / S coefficients.
    pub fn forward(&self, coefficients: &[i64]) -> Result<Vec<u64>, CipherError> {
        let (n, modulus) = (self.context.ring_degree(), self.context.modulus());
        let count = n / self.spacing;
        if coefficients.len() != count {
            return Err(
                RingError::Length { what: "weights", expected: count, got: coefficients.len() }.into()
            );
        }
        if self.table.is_empty() {
            let mut hat = vec![0; n];
            for (place, c) in hat.iter_mut().step_by(self.spacing).zip(coefficients) {
                *place = modulus.residue(i128::from(*c));
            }
            self.context.ntt().forward(&mut hat)?;
            return Ok(hat.into_iter().step_by(self.spacing).collect());
        }
        let row = |row: &[u64]| {
            let terms = row.iter().zip(coefficients);
            modulus.residue(terms.map(|(v, c)| i128::from(*v) * i128::from(*c)).sum())
        };
        Ok(self.table.chunks_exact(count).map(row).collect())
    }
}

impl PackedServer {
    /// Adds `sum_i w_oi(X^S) (c0_i, c1_i)`, in evaluation form, to both parts of every sum o. `weights[o]` has value r
    /// ([`SpacedTransform::forward`]) of input i at `r * inputs + i`.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when lengths differ, or S is not the one of such a transform.
    pub fn combine_spaced(
        &self,
        inputs: &[[&[u64]; 2]],
        spacing: usize,
        weights: &[&[u64]],
        sums: &mut [[&mut [u64]; 2]],
    ) -> Result<(), CipherError> {
        let (n, terms) = (self.context().ring_degree(), inputs.len());
        let values = SpacedTransform::values(n, spacing).unwrap_or(0);
        if let Some(wrong) = weights.iter().find(|w| w.len() != values * terms || values == 0) {
            return Err(RingError::Length {
                what: "values of weights",
                expected: values * terms,
                got: wrong.len(),
            }
            .into());
        }
        let mut left = LeftPairs::new(simd::isa());
        for first in (0..terms).step_by(TERMS) {
            left.set(&inputs[first..(first + TERMS).min(terms)])?;
            let own: Vec<&[u64]> = weights.iter().map(|w| &w[first..]).collect();
            left.add_runs(self.context().dot(), Runs { length: spacing, stride: terms }, &own, sums)?;
        }
        Ok(())
    }
}
