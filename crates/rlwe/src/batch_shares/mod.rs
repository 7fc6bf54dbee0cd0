//! The batch engine on shares modulo 2^l of many images (`docs/two-party.md`, *Many images at once*): coefficient b of a ciphertext is image
//! b's value of one feature, the modulus is 2^k, and a linear layer is integer combinations of ciphertexts.
//!
//! **A stage.** Client: `c0_i = -(a_i s) + e_i + 2^(k-l) x_i` for its shares x_i of feature i (the scale is exact: no share is rounded
//! on the way up), a_i from a seed. Server: adds `2^(k-l)` times its own shares, forms `(sum_i W_oi c0_i, sum_i W_oi a_i)`, adds
//! `(pk0 u_o, pk1 u_o + e1_o)` with fresh u_o, e1_o, rounds both parts to r = l + 10 bits, subtracts R_o, uniform modulo 2^r, from the
//! first, and sends both. Its shares are `round(2^(l-r) R_o)`, the client's `round(2^(l-r) (c0 + c1 s))`.
//!
//! **The public key** is one pair `pk0 = -(pk1 s) + e` modulo 2^K, K the widest modulus among the session's stages, so that the key is never
//! the weakest sample of a session. Modulo any smaller 2^k its low k bits are a public key of the same secret and the same error, because reduction
//! modulo 2^k is a ring homomorphism: stages with different k share it.
//!
//! **What the client may see** (facts 1 and 2 of `docs/two-party.md`). *Simulation*: the words of c0 are uniform and independent of
//! everything else, because R_o is used once and kept; c1 is a known combination plus `pk1 u_o + e1_o`, a ring-LWE sample modulo 2^k
//! whose ternary secret u_o appears nowhere else in the view (where c0 depends on it, R_o hides it), so it is pseudorandom, and its rounding
//! too. All samples of a session have the same pk1 and different secrets; a hybrid argument replaces them one by one. A
//! simulator that draws both parts at random makes the same view. What the server sees are ring-LWE encryptions under s with distinct masks.
//!
//! **Correctness.** Before rounding, the phase is `2^(k-l) y + v`, `v = sum_i W_oi e_i + (e u_o)_b + (e1_o s)_b`. Given W, u_o and s it is a
//! sum of independent sub-Gaussian terms of variance proxy at most `10.5 (|W_o|^2 + 2 N)`, so `|v| <= T sqrt(10.5 (|W_o|^2 + 2 N))` but for
//! 2^-41 (T of `docs/parameters.md`). Rounding c1 adds `(rho s)_b` with `|rho| <= 1/2` in units of 1 modulo 2^r,
//! rounding c0 at most 1/2. [`BatchShareSpec::choose`] takes the least k for which `|v|` stays below 1/8 of the unit `2^(k-l)`; then both
//! noises together stay below 1/2 and the shares sum to y or to a neighbour. A neighbour comes in the
//! fraction [`BatchShareSpec::off_by_one_fraction`].

mod client;
mod server;

pub use client::{ShareKey, SharePublicKey};
pub use server::{ShareServer, ShareServerStage};

use crate::batch::{ERROR_VARIANCE, TAIL};
use crate::packed::RESPONSE_EXTRA_BITS;
use crate::{security, CipherError, MaskId};

/// log2 of the part of a unit that the noise before rounding may take.
const NOISE_SHARE_BITS: u32 = 3;
/// Widest modulus that words hold.
const WORD_BITS: u32 = 64;
/// Stands for the public key where a stage's masks are derived; plans have fewer stages.
const PUBLIC_KEY: MaskId = MaskId { tensor: u32::MAX, feature: 0, block: Some(0) };

/// What a stage computes, in the numbers that parameters depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchShareSpec {
    /// Ring degree N: images in a block.
    pub ring_degree: usize,
    /// l, shares are modulo 2^l.
    pub ring_bits: u32,
    /// Largest Euclidean norm of the weights of one output.
    pub weight_l2: f64,
}

/// Checked, immutable parameters of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchShareParams {
    spec: BatchShareSpec,
    modulus_bits: u32,
    response_bits: u32,
}

/// Most bits of a stage's modulus, and so of the public key's words, at a ring degree.
///
/// # Errors
/// [`CipherError::Insecure`] when the degree is not in the security table.
pub fn public_key_bits(ring_degree: usize) -> Result<u32, CipherError> {
    security::max_modulus_bits(ring_degree)
        .map(|m| m.min(WORD_BITS))
        .ok_or(CipherError::Insecure { ring_degree, modulus_bits: WORD_BITS })
}

fn check_key_bits(ring_degree: usize, modulus_bits: u32) -> Result<(), CipherError> {
    if (1..=public_key_bits(ring_degree)?).contains(&modulus_bits) {
        Ok(())
    } else {
        Err(CipherError::Insecure { ring_degree, modulus_bits })
    }
}

impl BatchShareSpec {
    /// Bound of the noise before rounding, in units of 1 modulo 2^k, failing with probability below 2^-41 a coefficient.
    #[must_use]
    pub fn noise(&self) -> f64 {
        TAIL * (ERROR_VARIANCE * (self.weight_l2.powi(2) + 2.0 * self.ring_degree as f64)).sqrt()
    }

    /// Bound of the noise that rounding to r bits adds, in units of 1 modulo 2^r.
    #[must_use]
    pub fn rounding_noise(&self) -> f64 {
        0.5 * (1.0 + TAIL * (self.ring_degree as f64).sqrt())
    }

    /// The narrowest parameters whose shares are never off by more than one unit.
    ///
    /// # Errors
    /// [`CipherError::Insecure`] when the degree is not in the security table, [`CipherError::TooWide`] when the modulus would exceed it.
    pub fn choose(&self) -> Result<BatchShareParams, CipherError> {
        let limit = public_key_bits(self.ring_degree)?;
        let noise_bits = self.noise().log2().ceil() as u32;
        let response_bits = self.ring_bits.saturating_add(RESPONSE_EXTRA_BITS);
        let modulus_bits = response_bits.max(self.ring_bits.saturating_add(noise_bits + NOISE_SHARE_BITS));
        let relative = self.noise() * f64::from(noise_bits + NOISE_SHARE_BITS).exp2().recip()
            + self.rounding_noise() / f64::from(RESPONSE_EXTRA_BITS).exp2();
        if self.ring_bits == 0 || modulus_bits > limit || relative >= 0.5 {
            return Err(CipherError::TooWide { ring_bits: self.ring_bits, noise_bits, modulus_bits: limit });
        }
        Ok(BatchShareParams { spec: *self, modulus_bits, response_bits })
    }

    /// Expected fraction of results that are off by one unit; 1 where there are no parameters.
    #[must_use]
    pub fn off_by_one_fraction(&self) -> f64 {
        let Ok(params) = self.choose() else { return 1.0 };
        let mean = (2.0 / std::f64::consts::PI).sqrt();
        let unit = f64::from(params.modulus_bits - self.ring_bits).exp2();
        let before = self.noise() / TAIL / unit;
        let rounding = if params.modulus_bits > params.response_bits {
            (self.ring_degree as f64 / 18.0 + 1.0 / 12.0).sqrt() / f64::from(RESPONSE_EXTRA_BITS).exp2()
        } else {
            0.0
        };
        mean * (before * before + rounding * rounding).sqrt()
    }
}

impl BatchShareParams {
    /// The ring degree N, a power of two.
    #[must_use]
    pub fn ring_degree(&self) -> usize {
        self.spec.ring_degree
    }
    /// l, shares are modulo 2^l.
    #[must_use]
    pub fn ring_bits(&self) -> u32 {
        self.spec.ring_bits
    }
    /// k, ciphertexts are modulo 2^k.
    #[must_use]
    pub fn modulus_bits(&self) -> u32 {
        self.modulus_bits
    }
    /// r, answers are modulo 2^r.
    #[must_use]
    pub fn response_bits(&self) -> u32 {
        self.response_bits
    }
    /// What they were chosen for.
    #[must_use]
    pub fn spec(&self) -> &BatchShareSpec {
        &self.spec
    }

    fn check_degree(&self, key: usize) -> Result<(), CipherError> {
        if self.ring_degree() == key {
            Ok(())
        } else {
            Err(CipherError::RingDegree { key, params: self.ring_degree() })
        }
    }
}

fn expect(what: &'static str, expected: usize, got: usize) -> Result<(), CipherError> {
    if expected == got {
        Ok(())
    } else {
        Err(hushnet_ring::RingError::Length { what, expected, got }.into())
    }
}

fn expect_images(images: usize, room: usize) -> Result<(), CipherError> {
    if images <= room {
        Ok(())
    } else {
        Err(CipherError::TooManyMessages { got: images, room })
    }
}

/// `round(v 2^l / 2^r) mod 2^l` for v modulo 2^r.
fn round_to_share(v: u64, response_bits: u32, ring_bits: u32) -> u64 {
    let drop = response_bits - ring_bits;
    (v.wrapping_add(1 << (drop - 1)) >> drop) & hushnet_ring::low_mask(ring_bits)
}

#[cfg(test)]
mod tests;
