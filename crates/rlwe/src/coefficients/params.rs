//! Parameters of one coefficient-packed stage, with the proof that decryption is exact (`docs/client-aided-image.md`).

use crate::batch::{ParamsError, ERROR_VARIANCE, TAIL};
use crate::packed::PRIME_BITS;
use crate::security;

/// A lower bound of the prime at every ring degree, from which scales follow: the largest primes below 2^50 are near it.
pub const LEAST_PRIME: u64 = (1 << PRIME_BITS) - (1 << 28);
/// Most bits of a word that is rounded from modulo p to a power of two.
const MOST_ROUNDED: u32 = PRIME_BITS - 1;

/// What a stage computes, in the numbers that parameters depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoefficientSpec {
    /// Ring degree N.
    pub ring_degree: usize,
    /// Rigorous bound Y of the integer outputs: max over rows of sum |W| * bound_in + |bias|.
    pub output_bound: u64,
    /// Largest Euclidean norm of all weights that meet in one output polynomial; at least 1.
    pub weight_l2: f64,
    /// Largest sum of their absolute values; at least 1.
    pub weight_l1: f64,
}

/// Bits of the words that travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoefficientBits {
    /// Of a word of c0 in a request.
    pub upload: u32,
    /// Of a coefficient of c0 in an answer.
    pub body: u32,
    /// Of a word of a sum of masks.
    pub mask: u32,
}

/// Words that travel for one image (sums of masks: for one session), which [`CoefficientSpec::choose`] weighs bits with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Travel {
    /// Words of c0 in requests.
    pub upload: u64,
    /// Coefficients of c0 in answers.
    pub body: u64,
    /// Words of sums of masks.
    pub mask: u64,
}

/// Checked, immutable parameters of a stage: decryption is exact but for probability 2^-40 a coefficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoefficientParams {
    ring_degree: usize,
    output_bound: u64,
    bits: CoefficientBits,
}

impl CoefficientSpec {
    /// D, the largest scale at which results of up to Y and half a unit of noise do not wrap: `floor(p / (2 Y + 1))` for the least p.
    #[must_use]
    pub fn scale(&self) -> u64 {
        scale(self.output_bound)
    }

    /// Bound of the noise modulo p, which must stay below half of the scale. Two independent sums fail with probability below 2^-41 a
    /// coefficient together: encryption errors and the low bits of requests, times weights; the low bits of sums of masks, times the
    /// secret. The rest is deterministic: the mean of a request's low bits (half a unit), and the rounding of c0 in answers.
    #[must_use]
    pub fn noise(&self, bits: &CoefficientBits) -> f64 {
        let prime = f64::from(PRIME_BITS).exp2();
        let unit = |kept: u32| prime / f64::from(kept).exp2();
        let (l2, l1) = (self.weight_l2.max(1.0), self.weight_l1.max(1.0));
        // What u low bits leave is a sum of u fair signs of sizes 2^(i-1), so its variance is a variance proxy.
        let dropped = if bits.upload < PRIME_BITS { unit(bits.upload).powi(2) / 12.0 } else { 0.0 };
        // Roundings of at most this size meet a uniform ternary secret of variance (and proxy) 2/3; 1 for lifting to p again.
        let mask = 0.5 * unit(bits.mask) + 1.0;
        let variance =
            (ERROR_VARIANCE + dropped) * l2.powi(2) + 2.0 / 3.0 * self.ring_degree as f64 * mask.powi(2);
        TAIL * variance.sqrt() + 0.5 * l1 + 0.5 * unit(bits.body) + 2.0
    }

    /// The bits with the fewest bytes for what travels.
    ///
    /// # Errors
    /// [`ParamsError::RingDegree`] below 128 bits of security; [`ParamsError::TooWide`] when results and noise do not fit the prime.
    pub fn choose(&self, travel: &Travel) -> Result<CoefficientParams, ParamsError> {
        self.check_degree()?;
        let half = self.scale() as f64 / 2.0;
        let exact = CoefficientBits { upload: PRIME_BITS, body: MOST_ROUNDED, mask: MOST_ROUNDED };
        if self.noise(&exact) >= half {
            let needed = (self.noise(&exact) * 2.0).log2().ceil() as u32 + self.output_bits();
            return Err(ParamsError::TooWide { ring_degree: self.ring_degree, needed, limit: PRIME_BITS });
        }
        let mut best = (u128::MAX, exact);
        for upload in 1..=PRIME_BITS {
            for mask in 1..=MOST_ROUNDED {
                let fits = |body: u32| self.noise(&CoefficientBits { upload, body, mask }) < half;
                let Some(body) = (1..=MOST_ROUNDED).find(|b| fits(*b)) else { continue };
                let sent = [(upload, travel.upload), (body, travel.body), (mask, travel.mask)];
                let cost = sent.iter().map(|(b, words)| u128::from(*b) * u128::from(*words)).sum();
                if cost < best.0 {
                    best = (cost, CoefficientBits { upload, body, mask });
                }
            }
        }
        Ok(CoefficientParams { ring_degree: self.ring_degree, output_bound: self.output_bound, bits: best.1 })
    }

    /// Checks bits read from a plan against this stage.
    ///
    /// # Errors
    /// [`ParamsError`] naming what does not hold.
    pub fn check(&self, bits: CoefficientBits) -> Result<CoefficientParams, ParamsError> {
        self.check_degree()?;
        let most = bits.upload.max(bits.body.max(bits.mask).saturating_add(1));
        if most > PRIME_BITS {
            return Err(ParamsError::TooWide {
                ring_degree: self.ring_degree,
                needed: most,
                limit: PRIME_BITS,
            });
        }
        let (noise, least) = (self.noise(&bits), bits.upload.min(bits.body).min(bits.mask));
        if least == 0 || noise >= self.scale() as f64 / 2.0 {
            let delta_bits = self.scale().checked_ilog2().unwrap_or(0);
            return Err(ParamsError::Noise { noise_bits: noise.log2(), delta_bits });
        }
        Ok(CoefficientParams { ring_degree: self.ring_degree, output_bound: self.output_bound, bits })
    }

    fn check_degree(&self) -> Result<(), ParamsError> {
        if security::is_128_bit(self.ring_degree, PRIME_BITS) {
            Ok(())
        } else {
            Err(ParamsError::RingDegree(self.ring_degree))
        }
    }

    fn output_bits(&self) -> u32 {
        128 - (2 * u128::from(self.output_bound)).leading_zeros()
    }
}

fn scale(output_bound: u64) -> u64 {
    let width = 2 * u128::from(output_bound) + 1;
    (u128::from(LEAST_PRIME) / width) as u64
}

impl CoefficientParams {
    /// The ring degree N, a power of two.
    #[must_use]
    pub fn ring_degree(&self) -> usize {
        self.ring_degree
    }
    /// D, messages are multiplied by it.
    #[must_use]
    pub fn scale(&self) -> u64 {
        scale(self.output_bound)
    }
    /// Y, outputs are at most this.
    #[must_use]
    pub fn output_bound(&self) -> u64 {
        self.output_bound
    }
    /// Bits of every part of a message.
    #[must_use]
    pub fn bits(&self) -> &CoefficientBits {
        &self.bits
    }
}

/// Parameters without their proof.
#[cfg(test)]
pub(super) fn unproven(spec: &CoefficientSpec, bits: CoefficientBits) -> CoefficientParams {
    CoefficientParams { ring_degree: spec.ring_degree, output_bound: spec.output_bound, bits }
}
