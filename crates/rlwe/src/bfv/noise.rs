//! Bounds of the noise and of what hides it (`docs/bfv.md` derives every line).

use super::params::BfvSpec;
use crate::batch::{ERROR_VARIANCE, TAIL};

/// Bits of an answer above the plaintext modulus: rounding noise stays a small part of a unit.
pub const RESPONSE_EXTRA_BITS: u32 = 10;
/// Statistical security of the flooding of one answer.
pub const STATISTICAL_BITS: u32 = 40;
/// `sqrt(x)` for a failure probability e^-x = 2^-41 of the norm bound, times sqrt 2.
const NORM_TAIL: f64 = 7.54;
/// Slack for weight polynomials whose spectrum is not flat.
const SPECTRUM: f64 = 1.25;
/// Hellinger constant of sums of three uniform numbers below W: statistical distance <= this * |shift|_2 / W.
pub const FLOOD_DISTANCE: f64 = 1.07;

/// log2 of the widest flooding: sums of three stay below 2^112.
const WIDEST_FLOOD: f64 = 110.0;

/// What is known of a ciphertext's noise `v`, the phase being `q/t m + v` modulo q.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Square root of a variance proxy of the largest coefficient.
    pub sd: f64,
    /// Root mean square of the Euclidean norm.
    pub l2: f64,
    /// Coefficients that are multiples of one another: rotate-and-sum leaves N/folds independent ones.
    pub folds: f64,
}

impl Noise {
    /// N independent coefficients of variance `sd^2`.
    #[must_use]
    pub fn flat(n: usize, sd: f64) -> Self {
        Self { sd, l2: (n as f64).sqrt() * sd, folds: 1.0 }
    }

    /// Of an uploaded ciphertext: an error coefficient, and at most half a unit from rounding q/t m, for either share.
    #[must_use]
    pub fn fresh(n: usize) -> Self {
        Self::flat(n, (ERROR_VARIANCE + 2.0 * 0.25).sqrt())
    }

    /// Of a sum of independent ones.
    #[must_use]
    pub fn plus(self, o: Self) -> Self {
        Self { sd: self.sd.hypot(o.sd), l2: self.l2.hypot(o.l2), folds: self.folds.max(o.folds) }
    }

    /// Of `sum w_k c_k` with `sum |w_k|^2 = norm2`, all c_k having this noise.
    #[must_use]
    pub fn times(self, n: usize, norm2: f64) -> Self {
        Self::flat(n, self.sd * norm2.sqrt())
    }

    /// Of `terms` sums of independent ciphertexts with this noise.
    #[must_use]
    pub fn sum(self, terms: f64) -> Self {
        Self { sd: self.sd * terms.sqrt(), l2: self.l2 * terms.sqrt(), folds: self.folds }
    }

    /// The noise after a permutation, key switching included.
    #[must_use]
    pub fn permuted(self, spec: &BfvSpec) -> Self {
        self.plus(Self::flat(spec.ring_degree, switching_sd(spec)))
    }

    /// Of `c + perm(c)`: coefficients may add up, norms add as those of orthogonal vectors.
    #[must_use]
    pub fn folded(self, spec: &BfvSpec) -> Self {
        let doubled =
            Self { sd: 2.0 * self.sd, l2: std::f64::consts::SQRT_2 * self.l2, folds: 2.0 * self.folds };
        doubled.plus(Self::flat(spec.ring_degree, switching_sd(spec)))
    }

    /// Bound of every coefficient, failing with probability below 2^-40 each.
    #[must_use]
    pub fn bound(&self) -> f64 {
        TAIL * self.sd
    }

    /// Bound of the Euclidean norm, failing with probability below 2^-40.
    #[must_use]
    pub fn norm_bound(&self, n: usize) -> f64 {
        let independent = (n as f64 / self.folds).max(1.0).sqrt();
        SPECTRUM * self.l2 * (1.0 + NORM_TAIL / independent)
    }
}

/// Expected squared norm of a weight polynomial whose N slots are arbitrary: coefficients uniform modulo t.
#[must_use]
pub fn weight_norm2(n: usize, t: u64) -> f64 {
    n as f64 * (t as f64).powi(2) / 12.0
}

/// Deviation of what one key switch adds to a coefficient.
#[must_use]
pub fn switching_sd(spec: &BfvSpec) -> f64 {
    let n = spec.ring_degree as f64;
    let digit = if spec.digit_bits == 0 { spec.prime_bits } else { spec.digit_bits };
    let count = (spec.primes * spec.digits_per_prime()) as f64;
    let special = if spec.special_bits == 0 { 0.0 } else { f64::from(spec.special_bits) - 0.01 };
    let ratio = (f64::from(digit) - special).exp2();
    let rounding = if spec.special_bits == 0 { 0.0 } else { (1.0 + 2.0 * n / 3.0) / 12.0 };
    (count * ratio * ratio / 12.0 * n * ERROR_VARIANCE + rounding).sqrt()
}

/// Noise of the fresh encryption of zero that re-randomises: `e_pk u + e_1 s`.
#[must_use]
pub fn rerandomising(n: usize) -> Noise {
    Noise::flat(n, (ERROR_VARIANCE * 2.0 * (2.0 * n as f64 / 3.0)).sqrt())
}

/// Norm of the error of the mask that the server subtracts: R has coefficients modulo t, q/t R is rounded to integers, half a unit each at most. Given
/// `m - R`, which the client sees, this error is a function of m, so the flood must hide it too. It is below 2^-20 of what a flood hides (a test shows it).
#[must_use]
pub fn mask_rounding_norm(n: usize) -> f64 {
    0.5 * (n as f64).sqrt()
}

/// Bound of the noise that rounding to `2^r` adds, in units of 1 modulo `2^r`.
fn rounding_bound(n: usize) -> f64 {
    1.0 + TAIL * ((1.0 + 2.0 * n as f64 / 3.0) / 12.0).sqrt()
}

/// r: bits of an answer's words.
pub(super) fn response_bits(n: usize, t: u64) -> u32 {
    let extra = if n > 8192 { RESPONSE_EXTRA_BITS + 1 } else { RESPONSE_EXTRA_BITS };
    64 - t.leading_zeros() + extra
}

/// The widest flooding that leaves answers exact, as (top, low): three uniform numbers below `top 2^low` are added, centred.
pub(super) fn flood_width(n: usize, t: u64, log_q: f64, response_bits: u32) -> Option<(u64, u32)> {
    // 3/2 W t/q + rounding t/2^r + noise (below W 2^-40) < 1/2, with a 1 % margin.
    let rounding = rounding_bound(n) * t as f64 / f64::from(response_bits).exp2();
    let room = 0.5 - 0.01 - rounding;
    let log_width = (log_q - (t as f64).log2() + (room / 1.5).log2()).min(WIDEST_FLOOD);
    if room <= 0.0 || log_width < 11.0 {
        return None;
    }
    let low = (log_width.floor() as u32).saturating_sub(10);
    Some(((log_width - f64::from(low)).exp2().floor() as u64, low))
}

/// Largest norm that a flooding of this width hides with 40 bits.
pub(super) fn hidden_norm((top, low): (u64, u32)) -> f64 {
    top as f64 * f64::from(low).exp2() * (-f64::from(STATISTICAL_BITS)).exp2() / FLOOD_DISTANCE
}
