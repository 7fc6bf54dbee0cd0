//! Parameters of one linear stage of the batch engine (`docs/parameters.md`).
//!
//! An unchecked [`BatchStageSpec`] says what the stage computes; the checked,
//! immutable [`BatchStageParams`] says with which modulus 2^k, scale 2^d and
//! dropped bits u it is computed, and can only be made with a proof of
//! correctness (noise below 2^(d-1) but with probability 2^-40 an output) and of security.

use crate::security;

/// Variance proxy of one error coefficient: centred binomial of 2 x 21 coins.
pub const ERROR_VARIANCE: f64 = 10.5;
/// `sqrt(2 ln 2 * 42)`: a sub-Gaussian of variance proxy 1 exceeds it with probability below 2^-41.
pub const TAIL: f64 = 7.631;

/// What a linear stage computes, in the numbers that parameters depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchStageSpec {
    /// Ring degree N (images in a block).
    pub ring_degree: usize,
    /// Largest Euclidean norm of a row of integer weights.
    pub weight_l2: f64,
    /// Rigorous bound of the integer outputs: max over rows of sum |W| * bound_in + |bias|.
    pub output_bound: u64,
    /// Whether the sums of masks are kept per session (c1 does not travel in every block).
    pub shared_mask: bool,
}

/// Modulus 2^k, scale 2^d, dropped bits u of c0 and v of c1: correct and 128-bit secure for a [`BatchStageSpec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStageParams {
    ring_degree: usize,
    modulus_bits: u32,
    delta_bits: u32,
    drop_bits: u32,
    mask_drop_bits: u32,
}

/// Why no parameters exist, or why given ones are refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParamsError {
    /// The ring degree is not in the security table.
    #[error("ring degree {0} is not in the 128-bit security table (1024 to 32768, powers of two)")]
    RingDegree(usize),
    /// More modulus bits needed than security or the word size allow.
    #[error("needs a {needed}-bit modulus at N={ring_degree}, but at most {limit} bits are allowed; use a larger ring degree or fewer weight or activation bits")]
    TooWide {
        /// Ring degree.
        ring_degree: usize,
        /// Bits needed.
        needed: u32,
        /// Bits allowed.
        limit: u32,
    },
    /// Given parameters do not leave room for the noise.
    #[error("noise of up to 2^{noise_bits:.1} does not stay below half of the scale 2^{delta_bits}")]
    Noise {
        /// log2 of the noise bound.
        noise_bits: f64,
        /// log2 of the scale.
        delta_bits: u32,
    },
}

impl BatchStageSpec {
    /// Noise bound from encryption alone, failing with probability below 2^-41 an output.
    #[must_use]
    pub fn encryption_noise(&self) -> f64 {
        TAIL * ERROR_VARIANCE.sqrt() * self.weight_l2.max(1.0)
    }

    /// Noise bound added by dropping `u` low bits of c0 and, where it travels back, `v` of c1.
    #[must_use]
    pub fn drop_noise(&self, u: u32, v: u32) -> f64 {
        let half = |bits: u32| if bits == 0 { 0.0 } else { f64::from(bits - 1).exp2() };
        if self.shared_mask {
            half(u)
        } else {
            half(u) + half(v) * TAIL * (self.ring_degree as f64).sqrt()
        }
    }

    /// The most bits that can be dropped in all: `(u, v)` with `v <= u`. What c1 loses is multiplied by the secret, so it can lose
    /// about `log2(7.63 sqrt(N))` bits less than c0.
    fn most_dropped(&self, half: f64) -> (u32, u32) {
        let fits = |u, v| self.encryption_noise() + self.drop_noise(u, v) < half;
        let most = |v| (v..64).take_while(|&u| fits(u, v)).last().map(|u| (u, v));
        if self.shared_mask {
            return most(0).unwrap_or_default();
        }
        (0..64).map_while(most).max_by_key(|&(u, v)| (u + v, u)).unwrap_or_default()
    }

    /// Bits of a signed integer within the output bound: ceil(log2(2 y_max + 1)).
    #[must_use]
    pub fn output_bits(&self) -> u32 {
        let width = 2 * u128::from(self.output_bound) + 1;
        128 - (width - 1).leading_zeros()
    }

    fn limit(&self) -> Result<u32, ParamsError> {
        security::max_modulus_bits(self.ring_degree)
            .map(|m| m.min(64))
            .ok_or(ParamsError::RingDegree(self.ring_degree))
    }

    /// The narrowest parameters that are correct and secure.
    ///
    /// # Errors
    /// [`ParamsError`] when the ring degree is unknown or the modulus would exceed the table.
    pub fn choose(&self) -> Result<BatchStageParams, ParamsError> {
        let limit = self.limit()?;
        let delta_bits = self.encryption_noise().log2().ceil() as u32 + 2;
        let half = f64::from(delta_bits - 1).exp2();
        let (drop_bits, mask_drop_bits) = self.most_dropped(half);
        let modulus_bits = delta_bits + self.output_bits();
        if modulus_bits > limit {
            return Err(ParamsError::TooWide { ring_degree: self.ring_degree, needed: modulus_bits, limit });
        }
        Ok(BatchStageParams {
            ring_degree: self.ring_degree,
            modulus_bits,
            delta_bits,
            drop_bits,
            mask_drop_bits,
        })
    }

    /// Checks parameters read from a plan against this stage; `dropped` are the bits of c0 and of c1, of which c0 loses no fewer.
    ///
    /// # Errors
    /// [`ParamsError`] naming what does not hold.
    pub fn check(
        &self,
        modulus_bits: u32,
        delta_bits: u32,
        dropped: (u32, u32),
    ) -> Result<BatchStageParams, ParamsError> {
        self.check_width(self.limit()?, modulus_bits, delta_bits, dropped)
    }

    /// Checks parameters for correctness only: for plans that are marked insecure, which the caller has allowed.
    ///
    /// # Errors
    /// [`ParamsError`] naming what does not hold.
    pub fn check_insecure(
        &self,
        modulus_bits: u32,
        delta_bits: u32,
        dropped: (u32, u32),
    ) -> Result<BatchStageParams, ParamsError> {
        self.check_width(64, modulus_bits, delta_bits, dropped)
    }

    fn check_width(
        &self,
        limit: u32,
        modulus_bits: u32,
        delta_bits: u32,
        (drop_bits, mask_drop_bits): (u32, u32),
    ) -> Result<BatchStageParams, ParamsError> {
        let needed = delta_bits.saturating_add(self.output_bits());
        if modulus_bits > limit || needed > modulus_bits {
            return Err(ParamsError::TooWide {
                ring_degree: self.ring_degree,
                needed: if modulus_bits > limit { modulus_bits } else { needed },
                limit: limit.min(modulus_bits),
            });
        }
        let noise = self.encryption_noise() + self.drop_noise(drop_bits.min(64), mask_drop_bits.min(64));
        if delta_bits == 0 || noise >= f64::from(delta_bits - 1).exp2() || mask_drop_bits > drop_bits {
            return Err(ParamsError::Noise { noise_bits: noise.log2(), delta_bits });
        }
        Ok(BatchStageParams {
            ring_degree: self.ring_degree,
            modulus_bits,
            delta_bits,
            drop_bits,
            mask_drop_bits,
        })
    }
}

impl BatchStageParams {
    /// The ring degree N, a power of two.
    #[must_use]
    pub fn ring_degree(&self) -> usize {
        self.ring_degree
    }
    /// The number k of bits of the modulus 2^k.
    #[must_use]
    pub fn modulus_bits(&self) -> u32 {
        self.modulus_bits
    }
    /// d, messages are multiplied by 2^d.
    #[must_use]
    pub fn delta_bits(&self) -> u32 {
        self.delta_bits
    }
    /// u, low bits of c0 dropped before results travel.
    #[must_use]
    pub fn drop_bits(&self) -> u32 {
        self.drop_bits
    }
    /// v, low bits of c1 dropped before it travels, at most u (fresh masks).
    #[must_use]
    pub fn mask_drop_bits(&self) -> u32 {
        self.mask_drop_bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choice_passes_its_own_check_and_one_bit_less_does_not() {
        for shared_mask in [false, true] {
            for (weight_l2, output_bound) in [(1.0, 1), (872.0, 2_700_000), (3000.0, 60_000_000)] {
                let spec = BatchStageSpec { ring_degree: 4096, weight_l2, output_bound, shared_mask };
                let p = spec.choose().unwrap();
                let (u, v) = (p.drop_bits, p.mask_drop_bits);
                spec.check(p.modulus_bits, p.delta_bits, (u, v)).unwrap();
                assert!(spec.check(p.modulus_bits - 1, p.delta_bits, (u, v)).is_err());
                assert!(spec.check(p.modulus_bits, p.delta_bits, (u + 1, v)).is_err());
                assert!(spec.check(p.modulus_bits, p.delta_bits - 2, (u, v)).is_err());
                if !shared_mask {
                    assert!(spec.check(p.modulus_bits, p.delta_bits, (u, v + 1)).is_err());
                    assert!(spec.check(p.modulus_bits, p.delta_bits, (v, v + 1)).is_err());
                    // No other pair within the bound drops more.
                    let half = f64::from(p.delta_bits - 1).exp2();
                    let fits = |u, v| spec.encryption_noise() + spec.drop_noise(u, v) < half;
                    let most = (0..40).flat_map(|u| (0..=u).map(move |v| (u, v)));
                    assert_eq!(most.filter(|&(u, v)| fits(u, v)).map(|(u, v)| u + v).max(), Some(u + v));
                }
            }
        }
    }

    #[test]
    fn too_wide_is_refused_with_the_bits() {
        let spec =
            BatchStageSpec { ring_degree: 2048, weight_l2: 1e6, output_bound: 1 << 40, shared_mask: true };
        assert!(matches!(spec.choose(), Err(ParamsError::TooWide { limit: 53, .. })));
        assert!(matches!(
            BatchStageSpec { ring_degree: 2047, ..spec }.choose(),
            Err(ParamsError::RingDegree(2047))
        ));
    }
}
