//! Operation counts and the cost model that chooses among methods.

use super::diagonals::Work;
use hushnet_rlwe::ckks::bootstrap::{BootstrapDesign, BootstrapWork};

/// Operations of a circuit, predicted and counted alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Ciphertexts that the client encrypts.
    pub encryptions: usize,
    /// Ciphertexts cut into digits for several rotations.
    pub hoists: usize,
    /// Rotations of hoisted ciphertexts.
    pub hoisted_rotations: usize,
    /// Rotations of sums that share one division by P.
    pub giant_rotations: usize,
    /// Rotations that sum partial results.
    pub fold_rotations: usize,
    /// Products of a ciphertext with a plaintext vector.
    pub plain_products: usize,
    /// Plaintext vectors encoded again, where memory has no room for all of them.
    pub encodings: usize,
    /// Products of a ciphertext with a constant.
    pub constant_products: usize,
    /// Products of two ciphertexts, squares included.
    pub ciphertext_products: usize,
    /// Relinearisations (each with its rescaling).
    pub relinearisations: usize,
    /// Rescalings other than a relinearisation's.
    pub rescalings: usize,
    /// Bootstraps, whose own operations the others leave out.
    pub bootstraps: usize,
    /// Ciphertexts that the client decrypts.
    pub decryptions: usize,
}

impl Counts {
    /// The number of rotations in all: hoisted, giant and of folds.
    #[must_use]
    pub fn rotations(&self) -> usize {
        self.hoisted_rotations + self.giant_rotations + self.fold_rotations
    }
}

/// Microseconds of the basic passes over N words on the kind of machine that the project measures on; only their ratios
/// matter, for choosing.
const TRANSFORM: f64 = 0.95e-4;
const PRODUCT: f64 = 3.0e-4;
const ENCRYPTION: f64 = 0.018;
/// A real transform and rounding.
const ENCODING: f64 = 0.01;
/// A word of an encoded vector to its place among those of other terms, pages apart: 144 vectors of 4 x 2^15 words took a layer 0.32 to 0.38 s more,
/// beside bootstraps of 3.1.
const STORING: f64 = 0.012;
/// By how much passes are slower from this ring degree on, where polynomials of a chain of primes leave the caches: so that bootstraps of 2^12, 2^14 and
/// 2^15 slots, and the rest of ResNet-20, are planned at what they take (docs/bootstrapping.md, "Cost").
const SPILLING: (usize, f64) = (1 << 16, 3.2);

/// Costs at one level.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelCost {
    /// Ring degree.
    pub n: usize,
    /// Primes of the level.
    pub level: usize,
    /// Special primes.
    pub special: usize,
    /// Primes of a digit.
    pub digit: usize,
}

impl LevelCost {
    /// Words of a polynomial of one prime, weighted by how fast they are reached.
    fn words(&self) -> f64 {
        let (from, slower) = SPILLING;
        self.n as f64 * if self.n >= from { slower } else { 1.0 }
    }

    fn transforms(&self, count: usize) -> f64 {
        count as f64 * self.words() * (self.n as f64).log2() * TRANSFORM
    }

    fn passes(&self, count: usize) -> f64 {
        count as f64 * self.words() * PRODUCT
    }

    fn raised(&self) -> (usize, usize) {
        // A level takes about as many special primes as its longest digit has.
        (self.level.div_ceil(self.digit.max(1)), self.level + self.special.min(self.level))
    }

    /// Cutting into digits.
    #[must_use]
    pub(super) fn hoist(&self) -> f64 {
        let (d, all) = self.raised();
        self.transforms(d * all)
    }

    /// A rotation of a hoisted ciphertext.
    #[must_use]
    pub(super) fn baby(&self) -> f64 {
        let (d, all) = self.raised();
        self.passes(2 * d * all + 6 * self.level) + self.transforms(2 * all)
    }

    /// A rotation whose division by P is shared.
    #[must_use]
    pub(super) fn giant(&self) -> f64 {
        let (d, all) = self.raised();
        self.hoist() + self.passes(2 * d * all + 4 * all)
    }

    /// A rotation on its own.
    #[must_use]
    pub(super) fn rotation(&self) -> f64 {
        self.hoist() + self.baby()
    }

    /// A plaintext product.
    #[must_use]
    pub(super) fn product(&self) -> f64 {
        self.passes(2 * self.level)
    }

    /// Encoding a vector of weights, of whose polynomial so many words a prime are different.
    #[must_use]
    pub(super) fn encoding(&self, words: usize) -> f64 {
        // One polynomial after the other, which a cache holds.
        let n = self.n as f64;
        let stored = ENCODING + self.level as f64 * STORING;
        self.level as f64 * n * (n.log2() * TRANSFORM + 2.0 * PRODUCT) + words as f64 * stored
    }

    /// Relinearisation and rescaling.
    #[must_use]
    pub(super) fn relinearise(&self) -> f64 {
        self.rotation()
    }

    /// Encoding and encrypting a ciphertext.
    #[must_use]
    pub(super) fn encryption(&self) -> f64 {
        self.transforms(2 * self.level) + self.n as f64 * ENCRYPTION + self.passes(4 * self.level)
    }

    /// A bootstrap; the level is not that of `self`.
    #[must_use]
    pub(super) fn bootstrap(&self, design: &BootstrapDesign) -> f64 {
        let of = |w: &BootstrapWork| {
            let at = Self { level: w.level.get(), ..*self };
            let (d, all) = at.raised();
            let hoisted = at.passes((2 * d + 4) * all);
            let matrix = if w.products > 0 { at.hoist() + at.transforms(2 * all) } else { 0.0 };
            w.operations.switches as f64 * at.rotation()
                + w.operations.hoisted as f64 * hoisted
                + w.products as f64 * at.passes(2 * all)
                + matrix
        };
        design.work().iter().map(of).sum()
    }

    /// A whole linear map from this level.
    #[must_use]
    pub(super) fn linear(&self, work: &Work, key_price: f64) -> f64 {
        let below = Self { level: self.level.saturating_sub(1).max(1), ..*self };
        let (_, all) = self.raised();
        work.hoists as f64 * self.hoist()
            + work.babies as f64 * self.baby()
            + work.giants as f64 * self.giant()
            + work.products as f64 * self.product()
            + work.folds as f64 * below.rotation()
            + self.transforms(2 * all * work.outputs)
            + work.keys as f64 * key_price
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hushnet_rlwe::ckks::bootstrap::BootstrapSpec;

    /// Medians of quiet runs on one thread (Xeon with AVX-512; docs/bootstrapping.md, "Cost"), 2^14 slots from a network's trace.
    #[test]
    fn bootstraps_are_planned_at_what_they_take() {
        for (log, measured) in [(12, 2.38), (14, 3.12), (15, 3.38)] {
            let params = BootstrapSpec::standard(1 << log).unwrap().check().unwrap();
            let design = BootstrapDesign::new(&params).unwrap();
            let at = LevelCost { n: 1 << 16, level: 1, special: 8, digit: 8 };
            let planned = at.bootstrap(&design) * 1e-6;
            assert!(
                (planned / measured - 1.0).abs() < 0.12,
                "2^{log} slots: {planned} planned, {measured} measured"
            );
        }
    }
}
