//! Coefficient-packed linear layers on shares modulo t = 2^l between a client (secret key) and a server (weights):
//! Cheetah's convolutions (Huang, Lu, Hong, Ding, USENIX Security 2022, section 3; `docs/two-party.md`). BFV-like: a share polynomial x travels as an encryption of `round(p x / t)` modulo one prime
//! p < 2^50, the server adds its own share, multiplies by weight polynomials, and returns the result as shares again.
//!
//! **What the client may see** (facts 1 and 2 of `docs/two-party.md`). An answer is a pair (c1, valid coefficients of c0). The server
//! adds `(pk1 u + e1, pk0 u)` with fresh ternary u, then subtracts R, uniform modulo 2^r, from every coefficient of c0 that it sends.
//! *Simulation*: c0 is uniform and independent of everything else in the client's view, because R is used once and kept; c1
//! carries `pk1 u + e1`, a ring-LWE sample whose secret u appears nowhere else in the view (c0's dependence on u is
//! hidden by R), so it is pseudorandom and its rounding to r bits too. A simulator that draws both at random therefore
//! produces the same view. The client's share `round(t/2^r (c0 + c1 s))` is a function of that view.
//!
//! **Correctness.** With phase `p/t y + v` before the switch, the shares sum to y up to one unit, which happens with probability about
//! `E|v| t/p + E|w| t/2^r` (w: rounding of the switch, deviation sqrt(N/18)), and never more than one while
//! both noises together stay below half of their scale ([`PackedSpec::choose`]).
//! v is a sum of weights times (client error + share rounding), plus `e_pk u + e1 s`:
//! variance proxy `(10.5 + 1) |W|^2 + 2 * 10.5 N`, |W| the Euclidean norm of all weights in the polynomials that meet in one output polynomial.

mod client;
mod key;
mod server;
mod spaced;

pub use client::PackedClient;
pub use key::PackedPublicKey;
pub(crate) use server::Switch;
pub use server::{PackedServer, WeightPoly};
pub use spaced::{SpacedTransform, LEAST_SPACING};

use crate::batch::{ERROR_VARIANCE, TAIL};
use crate::{security, CipherError};
use hushnet_ring::mac::DotModulus;
use hushnet_ring::prime::primes_near;
use hushnet_ring::rns::Modulus;
use hushnet_ring::{prg, ExactMultiplier, Ntt, RingError};
use std::sync::Arc;

/// Bits of the ciphertext prime.
pub const PRIME_BITS: u32 = 50;
/// Bits of an answer above the share ring: keeps the rounding noise of the switch below 2^-1 of a unit, always, and errs by a unit in a few per cent.
pub const RESPONSE_EXTRA_BITS: u32 = 10;

/// What a packed stage computes, in the numbers that parameters depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackedSpec {
    /// Ring degree N.
    pub ring_degree: usize,
    /// l, shares are modulo 2^l.
    pub ring_bits: u32,
    /// Largest Euclidean norm of all weights that meet in one output polynomial.
    pub weight_l2: f64,
}

/// Checked, immutable parameters of a packed stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackedParams {
    spec: PackedSpec,
    response_bits: u32,
}

impl PackedSpec {
    /// Bound of the noise before the switch, in units of 1 modulo p, failing with probability below 2^-41 a coefficient.
    #[must_use]
    pub fn noise(&self) -> f64 {
        let n = self.ring_degree as f64;
        TAIL * ((ERROR_VARIANCE + 1.0) * self.weight_l2.powi(2) + 2.0 * ERROR_VARIANCE * n).sqrt()
    }

    /// Bound of the noise that rounding an answer adds, in units of 1 modulo 2^r.
    #[must_use]
    pub fn switch_noise(&self) -> f64 {
        0.5 * (1.0 + TAIL * (self.ring_degree as f64).sqrt())
    }

    /// Parameters whose shares are never off by more than one unit.
    ///
    /// # Errors
    /// [`CipherError::TooWide`] when the ring of shares leaves no room for the noise; [`CipherError::Insecure`]
    /// below 128 bits.
    pub fn choose(&self) -> Result<PackedParams, CipherError> {
        if !security::is_128_bit(self.ring_degree, PRIME_BITS) {
            return Err(CipherError::Insecure { ring_degree: self.ring_degree, modulus_bits: PRIME_BITS });
        }
        let response_bits = self.ring_bits + RESPONSE_EXTRA_BITS;
        // Relative noises, in units of the share ring.
        let share = f64::from(self.ring_bits).exp2();
        let relative = self.noise() * share / f64::from(PRIME_BITS).exp2() * 1.01
            + self.switch_noise() / f64::from(RESPONSE_EXTRA_BITS).exp2();
        if self.ring_bits == 0 || relative >= 0.5 {
            return Err(CipherError::TooWide {
                ring_bits: self.ring_bits,
                noise_bits: self.noise().log2().ceil() as u32,
                modulus_bits: PRIME_BITS,
            });
        }
        Ok(PackedParams { spec: *self, response_bits })
    }

    /// Expected fraction of results that are off by one unit.
    #[must_use]
    pub fn off_by_one_fraction(&self) -> f64 {
        let mean = (2.0 / std::f64::consts::PI).sqrt();
        let v = self.noise() / TAIL * f64::from(self.ring_bits).exp2() / f64::from(PRIME_BITS).exp2();
        let w = (self.ring_degree as f64 / 18.0 + 1.0 / 12.0).sqrt() / f64::from(RESPONSE_EXTRA_BITS).exp2();
        mean * (v * v + w * w).sqrt()
    }
}

impl PackedParams {
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
    /// r, answers are modulo 2^r.
    #[must_use]
    pub fn response_bits(&self) -> u32 {
        self.response_bits
    }
    /// What they were chosen for.
    #[must_use]
    pub fn spec(&self) -> &PackedSpec {
        &self.spec
    }
}

/// Tables of one ring degree, shared by both parties' objects. Cheap to clone.
#[derive(Clone)]
pub struct PackedContext {
    inner: Arc<Tables>,
}

struct Tables {
    ntt: Ntt,
    modulus: Modulus,
    dot: DotModulus,
    exact: ExactMultiplier,
}

impl PackedContext {
    /// Tables for a ring degree of the security table.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for an unsupported degree.
    pub fn new(ring_degree: usize) -> Result<Self, CipherError> {
        let p = primes_near(PRIME_BITS, ring_degree, 1)?[0];
        let ntt = Ntt::new(ring_degree, p)?;
        let dot = DotModulus::new(&ntt)?;
        let modulus =
            Modulus::new(p).map_err(|_| RingError::Modulus { modulus: p, twice_degree: 2 * ring_degree })?;
        Ok(Self { inner: Arc::new(Tables { dot, exact: ExactMultiplier::new(ring_degree)?, ntt, modulus }) })
    }

    /// The ring degree N, a power of two.
    #[must_use]
    pub fn ring_degree(&self) -> usize {
        self.inner.ntt.degree()
    }

    /// The prime p that ciphertexts are modulo.
    #[must_use]
    pub fn prime(&self) -> u64 {
        self.inner.ntt.modulus()
    }

    pub(crate) fn ntt(&self) -> &Ntt {
        &self.inner.ntt
    }

    pub(crate) fn dot(&self) -> &DotModulus {
        &self.inner.dot
    }

    pub(crate) fn modulus(&self) -> &Modulus {
        &self.inner.modulus
    }

    /// The public uniform polynomial number `index` of stage `stage`, in evaluation form: AES-128-CTR under the first half of
    /// `seed`, 50-bit words, those not below the prime left out.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless `out` has N words.
    pub fn mask_hat(
        &self,
        seed: &[u8; 32],
        stage: u32,
        index: u32,
        out: &mut [u64],
    ) -> Result<(), CipherError> {
        let n = self.ring_degree();
        if out.len() != n {
            return Err(RingError::Length { what: "mask", expected: n, got: out.len() }.into());
        }
        let mut key = [0; 16];
        key.copy_from_slice(&seed[..16]);
        let mut words = vec![0; n + 64];
        let (mut filled, mut round) = (0, 0);
        while filled < n {
            prg::expand_words(&key, stage, index, round, PRIME_BITS, &mut words)?;
            for word in words.iter().filter(|w| **w < self.prime()) {
                if filled < n {
                    out[filled] = *word;
                    filled += 1;
                }
            }
            round += 1;
        }
        Ok(())
    }

    /// `round(p x / 2^l) mod p` for a share x below 2^l.
    fn scale_share(&self, x: u64, ring_bits: u32) -> u64 {
        let p = self.prime();
        let scaled = ((u128::from(x) * u128::from(p) + (1u128 << (ring_bits - 1))) >> ring_bits) as u64;
        // p itself is 0.
        scaled.min(scaled.wrapping_sub(p))
    }
}

pub(crate) fn add_mod(a: u64, b: u64, p: u64) -> u64 {
    let s = a + b;
    s.min(s.wrapping_sub(p))
}

pub(crate) fn sub_mod(a: u64, b: u64, p: u64) -> u64 {
    let d = a.wrapping_sub(b);
    d.min(d.wrapping_add(p))
}

/// `v mod p` of a small v, |v| < p, in constant time: secrets and errors.
pub(crate) fn signed_mod(v: i64, p: u64) -> u64 {
    (v as u64).wrapping_add(p & (v >> 63) as u64)
}

/// `round(v 2^l / 2^r) mod 2^l` for v modulo 2^r.
fn round_to_share(v: u64, response_bits: u32, ring_bits: u32) -> u64 {
    let drop = response_bits - ring_bits;
    (v.wrapping_add(1 << (drop - 1)) >> drop) & hushnet_ring::low_mask(ring_bits)
}

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod tests;
