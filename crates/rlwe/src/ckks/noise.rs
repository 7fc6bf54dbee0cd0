//! The noise model (`docs/ckks.md`, "Noise"): sub-Gaussian parameters of slot errors.
//!
//! `sd` is the square root of a variance proxy of the real (and of the imaginary) part of the error at any
//! slot, in ring units (message times scale). An error component exceeds `TAIL * sd` with probability
//! below 2^-40.

use crate::batch::{ERROR_VARIANCE, TAIL};
use hushnet_ring::Ring;

/// Slack, in natural-log units, of the keygen check that no slot of a secret or error is unusually large:
/// an honest sample fails it with probability about e^-14.
pub const KEY_SLACK: f64 = 14.0;

/// sd of `a + b` whatever their correlation.
#[must_use]
pub fn any_sum(a: f64, b: f64) -> f64 {
    a + b
}

/// sd of `a + b` for independent a, b.
#[must_use]
pub fn independent_sum(a: f64, b: f64) -> f64 {
    a.hypot(b)
}

/// Bounds that depend on the ring only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseModel {
    /// Points of the transform that encodes, twice.
    points: f64,
    /// Variance proxy V of each part of a slot, of coefficients of variance 1.
    spread: f64,
    /// ln of how many parts of slots may be too large, plus [`KEY_SLACK`].
    extreme: f64,
}

impl NoiseModel {
    /// Cyclotomic: N/2 slots of two parts, V = N/2, `|e|^2 > 2 V x` with probability `e^-x`. Conjugate-invariant: N real slots, V = 2N, and two
    /// tails.
    pub(crate) fn new(ring: Ring, ring_degree: usize) -> Self {
        let n = ring_degree as f64;
        let (points, spread, tails) = match ring {
            Ring::Cyclotomic => (n, n / 2.0, n / 2.0),
            Ring::ConjugateInvariant => (2.0 * n, 2.0 * n, 2.0 * n),
        };
        Self { points, spread, extreme: tails.ln() + KEY_SLACK }
    }

    /// Bound of `|s(zeta)|^2` over all slots, which key generation enforces: `(4V/3) (ln(N/2) + 14)`; conjugate-invariant: `ln(2N)`.
    #[must_use]
    pub fn secret_norm2(&self) -> f64 {
        2.0 * self.spread * 2.0 / 3.0 * self.extreme
    }

    /// Bound of `|e(zeta)|^2` of every error in a key, enforced likewise: `21 V (ln(N/2) + 14)`.
    #[must_use]
    pub fn key_error_norm2(&self) -> f64 {
        2.0 * self.spread * ERROR_VARIANCE * self.extreme
    }

    /// sd of a fresh error polynomial: `sqrt(10.5 V)`.
    #[must_use]
    pub fn fresh(&self) -> f64 {
        (ERROR_VARIANCE * self.spread).sqrt()
    }

    /// sd of a public-key encryption: `u e_pk + e0 + e1 s`.
    #[must_use]
    pub fn public(&self) -> f64 {
        let fresh = self.fresh().powi(2);
        (self.key_error_norm2() * self.spread * 2.0 / 3.0 + fresh * (1.0 + self.secret_norm2())).sqrt()
    }

    /// sd of rounding N coefficients to integers: `sqrt(V / 12)`.
    #[must_use]
    pub fn rounding(&self) -> f64 {
        (self.spread / 12.0).sqrt()
    }

    /// sd of rounding the parts of a ciphertext: `sqrt(V/12 (1 + S^2 + S^4))`, the last for three parts.
    #[must_use]
    pub fn part_rounding(&self, parts: usize) -> f64 {
        let s2 = self.secret_norm2();
        let sum: f64 = (0..parts).map(|i| s2.powi(i as i32)).sum();
        self.rounding() * sum.sqrt()
    }

    /// sd that key switching adds before the division by P: `sqrt(sum_d Q_d^2 V/12) max|e(zeta)|`, with
    /// `digits2 = sum_d Q_d^2`.
    #[must_use]
    pub fn switching(&self, digits2: f64) -> f64 {
        self.rounding() * (digits2 * self.key_error_norm2()).sqrt()
    }

    /// sd of the error of a product: `B_a sd_b + B_b sd_a + sqrt(2) T sd_a sd_b`, with the message bounds
    /// in ring units.
    #[must_use]
    pub fn product(&self, (bound_a, sd_a): (f64, f64), (bound_b, sd_b): (f64, f64)) -> f64 {
        bound_a * sd_b + bound_b * sd_a + 2f64.sqrt() * TAIL * sd_a * sd_b
    }

    /// sd equivalent of the binary64 error of encoding or decoding values of magnitude `m` (ring units).
    #[must_use]
    pub fn transform(&self, m: f64) -> f64 {
        m * self.points.log2() * 2f64.powi(-51)
    }
}
