//! Weight polynomials in X^S for small S: a transform of `w(X^S)` has N / S values, each of them S times, and a polynomial is kept in at
//! most an eighth of its words. Where S is large, products are made of the values themselves ([`super::SpacedTransform`]); here they are
//! written out again in front of each product, which takes a tenth of its time, because that is what memory saves.
//!
//! Slot 64 g + 8 s + b stands for place 64 g + 8 b + s in the order of bit-reversed exponents ([`hushnet_ring::Ntt`]), in which equal values
//! stand side by side. So the eight rows s of eight slots are equal in runs of S, and one of each run is kept.

use super::WeightPoly;

/// Slots of a row, and rows of a group, in the order of transforms.
const ROW: usize = 8;

/// A polynomial in X^S in evaluation form, without the rows that are equal to one before. The server's secret: no `Debug`.
#[derive(Clone)]
pub struct FoldedPoly(Vec<u64>);

impl FoldedPoly {
    /// Rows in turn of which one is kept: S, a power of two, at most 8; 1 for rings that have no whole groups of rows.
    fn run(ring_degree: usize, spacing: usize) -> usize {
        if ring_degree < ROW * ROW || !spacing.is_power_of_two() {
            return 1;
        }
        spacing.min(ROW)
    }

    /// The words that are kept of a polynomial in X^`spacing`; all N of them where nothing is gained.
    #[must_use]
    pub fn values(ring_degree: usize, spacing: usize) -> usize {
        ring_degree / Self::run(ring_degree, spacing)
    }

    /// From a polynomial in X^`spacing`.
    #[must_use]
    pub fn new(poly: &WeightPoly, spacing: usize) -> Self {
        let run = Self::run(poly.0.len(), spacing);
        Self(poly.0.chunks_exact(ROW).step_by(run).flatten().copied().collect())
    }

    /// The whole polynomial, in the place of another one of its degree.
    pub fn unfold(&self, poly: &mut WeightPoly) {
        let run = poly.0.len() / self.0.len().max(1);
        for (rows, row) in poly.0.chunks_exact_mut(ROW * run).zip(self.0.chunks_exact(ROW)) {
            rows.chunks_exact_mut(ROW).for_each(|to| to.copy_from_slice(row));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::PackedContext;
    use super::*;

    #[test]
    fn folded_polynomials_are_whole_again_at_every_spacing() {
        for n in [1024, 2048, 4096] {
            let context = PackedContext::new(n).unwrap();
            for spacing in (0..=n.ilog2()).map(|k| 1 << k) {
                let of = |at: usize| {
                    if at.is_multiple_of(spacing) {
                        (at * 37 + 11) as i64 % 201 - 100
                    } else {
                        0
                    }
                };
                let poly = WeightPoly::new(&context, &(0..n).map(of).collect::<Vec<_>>()).unwrap();
                let folded = FoldedPoly::new(&poly, spacing);
                assert_eq!(folded.0.len(), FoldedPoly::values(n, spacing));
                assert_eq!(folded.0.len(), n / spacing.min(8));
                let mut whole = WeightPoly(vec![1; n]);
                folded.unfold(&mut whole);
                assert!(whole.0 == poly.0, "{n} {spacing}");
            }
            // One coefficient off the multiples and rows differ.
            let poly =
                WeightPoly::new(&context, &(0..n).map(|at| i64::from(at == 3)).collect::<Vec<_>>()).unwrap();
            let mut whole = poly.clone();
            FoldedPoly::new(&poly, 8).unfold(&mut whole);
            assert!(whole.0 != poly.0);
        }
    }
}
