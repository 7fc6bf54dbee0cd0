//! Coefficient-packed products of shares modulo 2^l whose plain factor is itself a share, so as wide as the ring: [`crate::packed`] with a
//! modulus of two primes, Q = p1 p2 < 2^100 at N = 8192, and a third prime for merging answers ([`crate::pack_lwe`]).
//!
//! One party, the *holder* of the key, encrypts its share x of one factor as `c0 = -(a s) + e + round(Q x / 2^l)`; the other one, the *multiplier*, multiplies by polynomials of its own share
//! of the other factor, merges, re-randomises, and keeps shares as a packed stage does (Huang, Lu, Hong, Ding, "Cheetah", USENIX Security
//! 2022, section 3, with both factors shared as in Lu, Huang, Gu, Li, Liu, Hong, Ren, Wei, Chen, "BumbleBee", NDSS 2025, section 4).
//!
//! **What travels.** A request has the upper k bits of c0, rounded ([`WideParams::request_bits`]); an answer has c1 in r bits and nothing of c0: with the phase `c0 + c1 s = Q/2^l y + v`, `round(2^l/Q c0)` is the
//! multiplier's share of y and `round(2^l/Q c1 s)` the holder's, as in [`crate::packed`].
//!
//! **What the holder may see** (facts 1 and 2 of `docs/two-party.md`). The multiplier adds `(pk0 u, pk1 u + e1)` with fresh ternary u, keeps c0 and sends c1.
//! *Simulation*: as in [`crate::packed`]: c1 carries a ring-LWE sample whose secret occurs nowhere else in the view, so a simulator draws it at random, and the
//! holder's share is a function of it. The phase, whose noise tells the multiplier's operand, is in no party's hands.
//! **What the multiplier may see**: ring-LWE ciphertexts and switching keys under a modulus of 150 bits. In a session each party is the holder of a key and the multiplier under the other's: the keys are drawn apart, and each view is the sum of both.
//!
//! **Correctness.** The shares sum to y up to `|d + f + g|` units: d is the phase's noise times 2^l / Q and the rounding of c1 to r bits, times s; f and g, the
//! roundings of both shares, are at most one half each. So a result is off by one unit at most while |d| is below half a unit ([`WideSpec::choose`], with half a
//! unit to spare). The noise before the switch is a sum of plain coefficients, at most 2^(l-1) in
//! absolute value, times errors, and what re-randomising and merging add: variance
//! `(10.5 + 1 + 4^(100-k)/12) |W|^2 + 2 * 10.5 N` + [`merge_variance`], |W| the Euclidean norm of all plain coefficients that meet in one output polynomial.

mod holder;
mod key;
mod multiplier;
mod request;
mod runs;

pub use holder::WideHolder;
pub use key::WidePublicKey;
pub use multiplier::{WideCipher, WideMultiplier, WidePlain};
pub use runs::WideRuns;

use crate::batch::{ERROR_VARIANCE, TAIL};
use crate::pack_lwe::{merge_variance, MergeContext};
use crate::{security, uses, CipherError};
use hushnet_ring::ledger::{self, Tag};
use hushnet_ring::mac::DotModulus;
use hushnet_ring::prime::primes_near;
use hushnet_ring::rns::{Eval, Factor, RnsBasis, RnsPoly};
use hushnet_ring::{low_mask, pack, prg, ExactMultiplier, RingError};
use std::sync::Arc;

/// Ring degree: three 50-bit primes need 8192.
pub const RING_DEGREE: usize = 8192;
/// Bits of each of the primes.
pub const PRIME_BITS: u32 = 50;
/// Primes that ciphertexts are modulo; one more switches keys.
pub const DATA_PRIMES: usize = 2;
/// Bits of Q, the product of the primes that ciphertexts are modulo; at least this less 2^-7.
const MODULUS_BITS: u32 = DATA_PRIMES as u32 * PRIME_BITS;
/// Bits of c1 in an answer above the share ring.
pub const RESPONSE_EXTRA_BITS: u32 = 10;

/// What a product of shares computes, in the numbers that parameters depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WideSpec {
    /// l, shares are modulo 2^l.
    pub ring_bits: u32,
    /// Most plain coefficients that meet in one output polynomial.
    pub terms: usize,
    /// Spacing at which answers are merged.
    pub spacing: usize,
}

/// Checked, immutable parameters of a product of shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WideParams {
    spec: WideSpec,
    /// Low bits of Q that a request leaves out.
    dropped: u32,
}

impl WideSpec {
    /// Bound of the noise before the switch where requests are whole, in units of 1 modulo Q, failing with probability below 2^-41 a coefficient.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when the degree has no primes.
    pub fn noise(&self) -> Result<f64, CipherError> {
        self.noise_without(0)
    }

    /// The bound where a request leaves out so many bits of a word.
    fn noise_without(&self, bits: u32) -> Result<f64, CipherError> {
        let n = RING_DEGREE as f64;
        let primes = primes_near(PRIME_BITS, RING_DEGREE, DATA_PRIMES + 1)?;
        let (data, special) = (&primes[..DATA_PRIMES], primes[DATA_PRIMES]);
        let norm2 = self.terms as f64 * f64::from(self.ring_bits - self.ring_bits.min(1)).exp2().powi(2);
        let request = if bits == 0 { 0.0 } else { f64::from(2 * bits).exp2() / 12.0 };
        let variance = (ERROR_VARIANCE + 1.0 + request) * norm2
            + 2.0 * ERROR_VARIANCE * n
            + merge_variance(RING_DEGREE, data, special, self.spacing);
        Ok(TAIL * variance.sqrt())
    }

    /// Bound of the noise that rounding c1 of an answer adds, in units of 1 modulo 2^r.
    #[must_use]
    pub fn switch_noise() -> f64 {
        0.5 * (1.0 + TAIL * (RING_DEGREE as f64).sqrt())
    }

    /// Noise before the switch in units of the share ring, where a request leaves out so many bits.
    fn relative(&self, dropped: u32) -> Result<f64, CipherError> {
        // Primes are at least 2^50 (1 - 2^-8).
        let modulus = f64::from(MODULUS_BITS).exp2();
        Ok(self.noise_without(dropped)? * f64::from(self.ring_bits).exp2() / modulus * 1.01)
    }

    /// Parameters whose shares are never off by more than one unit. A request leaves out as many bits as the noise has room for.
    ///
    /// # Errors
    /// [`CipherError::TooWide`] when the ring of shares leaves no room for the noise (l above about 43); [`CipherError::Insecure`]
    /// below 128 bits; [`CipherError::Ring`] for a spacing that is no power of two up to N.
    pub fn choose(&self) -> Result<WideParams, CipherError> {
        let modulus_bits = (DATA_PRIMES as u32 + 1) * PRIME_BITS;
        if !security::is_128_bit(RING_DEGREE, modulus_bits) {
            return Err(CipherError::Insecure { ring_degree: RING_DEGREE, modulus_bits });
        }
        if !self.spacing.is_power_of_two() || self.spacing > RING_DEGREE {
            return Err(RingError::RingDegree(self.spacing).into());
        }
        let room = 0.5 - Self::switch_noise() / f64::from(RESPONSE_EXTRA_BITS).exp2();
        if self.ring_bits == 0 || self.ring_bits > 50 || self.relative(0)? >= room {
            return Err(CipherError::TooWide {
                ring_bits: self.ring_bits,
                noise_bits: self.noise()?.log2().ceil() as u32,
                modulus_bits: MODULUS_BITS,
            });
        }
        let mut dropped = 0;
        while dropped + 1 < PRIME_BITS && self.relative(dropped + 1)? < room {
            dropped += 1;
        }
        Ok(WideParams { spec: *self, dropped })
    }
}

impl WideParams {
    /// l, shares are modulo 2^l.
    #[must_use]
    pub fn ring_bits(&self) -> u32 {
        self.spec.ring_bits
    }
    /// r, answers are modulo 2^r.
    #[must_use]
    pub fn response_bits(&self) -> u32 {
        self.spec.ring_bits + RESPONSE_EXTRA_BITS
    }
    /// What they were chosen for.
    #[must_use]
    pub fn spec(&self) -> &WideSpec {
        &self.spec
    }
    /// Bits of a word of c0 in a request.
    #[must_use]
    pub fn request_bits(&self) -> u32 {
        MODULUS_BITS - self.dropped
    }
    /// Bytes of a polynomial of a request.
    #[must_use]
    pub fn request_len(&self) -> usize {
        let of = |bits| pack::packed_len(RING_DEGREE, bits);
        of(PRIME_BITS) + of(self.request_bits() - PRIME_BITS)
    }
    /// Expected fraction of results that are off by one unit.
    ///
    /// # Errors
    /// As [`WideSpec::noise`].
    pub fn off_by_one_fraction(&self) -> Result<f64, CipherError> {
        let v = self.spec.relative(self.dropped)? / TAIL;
        let w = (RING_DEGREE as f64 / 18.0).sqrt() / f64::from(RESPONSE_EXTRA_BITS).exp2();
        Ok((2.0 / std::f64::consts::PI).sqrt() * (v * v + w * w).sqrt())
    }
}

/// Tables of both parties: transforms, merging, exact products with the secret. Cheap to clone.
#[derive(Clone)]
pub struct WideContext {
    merge: MergeContext,
    inner: Arc<Tables>,
}

struct Tables {
    exact: ExactMultiplier,
    dot: Vec<DotModulus>,
    /// Q modulo 2^64.
    modulus: u64,
    switch: Switch,
}

impl WideContext {
    /// Tables at [`RING_DEGREE`].
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the ring.
    pub fn new() -> Result<Self, CipherError> {
        let primes = primes_near(PRIME_BITS, RING_DEGREE, DATA_PRIMES + 1)?;
        let merge = MergeContext::new(RING_DEGREE, &primes[..DATA_PRIMES], primes[DATA_PRIMES])?;
        let basis = merge.basis();
        let dot = (0..DATA_PRIMES)
            .map(|i| DotModulus::new(basis.transform(i)))
            .collect::<Result<_, RingError>>()?;
        let modulus = primes[..DATA_PRIMES].iter().fold(1u64, |q, p| q.wrapping_mul(*p));
        let switch = Switch::new(basis);
        let exact = ExactMultiplier::new(RING_DEGREE)?;
        Ok(Self { inner: Arc::new(Tables { exact, dot, modulus, switch }), merge })
    }

    /// The tables of merging: their first primes are those of ciphertexts.
    #[must_use]
    pub fn merge(&self) -> &MergeContext {
        &self.merge
    }

    fn basis(&self) -> &RnsBasis {
        self.merge.basis()
    }

    /// Bytes of one polynomial over the data primes on the wire.
    #[must_use]
    pub fn poly_len() -> usize {
        DATA_PRIMES * pack::packed_len(RING_DEGREE, PRIME_BITS)
    }

    /// The public uniform polynomial number `index` of stage `stage`: AES-128-CTR under the first half of `seed`, 50-bit words, those not below
    /// the prime left out.
    fn mask(&self, seed: &[u8; 32], stage: u32, index: u32) -> Result<RnsPoly<Eval>, CipherError> {
        let mut key = [0; 16];
        key.copy_from_slice(&seed[..16]);
        let mut words = vec![0; RING_DEGREE + 128];
        self.basis()
            .fill_with(0..DATA_PRIMES, |i, limb| {
                let prime = self.basis().moduli()[i].value();
                // Rounds of different primes are apart.
                let (mut filled, mut round) = (0, (i as u32) << 16);
                while filled < limb.len() {
                    prg::expand_words(&key, stage, index, round, PRIME_BITS, &mut words)
                        .map_err(hushnet_ring::rns::RnsError::from)?;
                    for word in words.iter().filter(|w| **w < prime).take(limb.len() - filled) {
                        limb[filled] = *word;
                        filled += 1;
                    }
                    round += 1;
                }
                Ok(())
            })
            .map_err(crate::pack_lwe::ring)
    }

    /// `round(Q x / 2^l)` modulo prime i: Q vanishes there, so it is what Q x lacks to a multiple of 2^l, over 2^l.
    fn scale_share(&self, x: u64, ring_bits: u32, i: usize, inverse: Factor) -> u64 {
        let m = &self.basis().moduli()[i];
        let shift = 64 - ring_bits;
        let rest = ((self.inner.modulus.wrapping_mul(x) << shift) as i64) >> shift;
        m.mul_factor(signed_mod(-rest, m.value()), inverse)
    }

    /// 2^-l modulo prime i.
    fn inverse_power(&self, ring_bits: u32, i: usize) -> Factor {
        let m = &self.basis().moduli()[i];
        m.factor(m.pow(m.inv(2), u64::from(ring_bits)))
    }

    fn record(poly: &RnsPoly<Eval>) {
        uses::limbs(uses::WIDE_MASK, poly);
    }
}

/// `round(2^r c / Q) mod 2^r`, to within one unit: c / Q modulo 1 is the sum of `c_i (Q / p_i)^-1 / p_i`, here in units of 2^-64.
struct Switch {
    /// `(Q / p_i)^-1` modulo p_i, and `floor(2^113 / p_i)`.
    factors: Vec<(Factor, u64)>,
}

impl Switch {
    fn new(basis: &RnsBasis) -> Self {
        let moduli = &basis.moduli()[..DATA_PRIMES];
        let factors = moduli.iter().enumerate().map(|(i, m)| {
            let others = moduli.iter().enumerate().filter(|(j, _)| *j != i);
            let rest = others.fold(1, |q, (_, o)| m.mul(q, o.value() % m.value()));
            (m.factor(m.inv(rest)), ((1u128 << 113) / u128::from(m.value())) as u64)
        });
        Self { factors: factors.collect() }
    }

    fn apply(&self, basis: &RnsBasis, residues: [u64; DATA_PRIMES], response_bits: u32) -> u64 {
        let part = |(i, c): (usize, u64)| {
            let (inverse, factor) = self.factors[i];
            ((u128::from(basis.moduli()[i].mul_factor(c, inverse)) * u128::from(factor)) >> 49) as u64
        };
        let whole = residues.into_iter().enumerate().map(part).fold(0u64, u64::wrapping_add);
        (whole.wrapping_add(1 << (63 - response_bits)) >> (64 - response_bits)) & low_mask(response_bits)
    }
}

/// Places of an answer: below N.
fn check_places(places: &[usize]) -> Result<(), CipherError> {
    match places.iter().find(|place| **place >= RING_DEGREE) {
        None => Ok(()),
        Some(place) => {
            let (what, expected, got) = ("coefficient of an answer (below)", RING_DEGREE, *place);
            Err(RingError::Length { what, expected, got }.into())
        }
    }
}

/// `v mod p` of a v with |v| < p, in constant time.
fn signed_mod(v: i64, p: u64) -> u64 {
    (v as u64).wrapping_add(p & (v >> 63) as u64)
}

/// `round(v 2^l / 2^r) mod 2^l` for v modulo 2^r.
fn round_to_share(v: u64, response_bits: u32, ring_bits: u32) -> u64 {
    let drop = response_bits - ring_bits;
    (v.wrapping_add(1 << (drop - 1)) >> drop) & low_mask(ring_bits)
}

/// Records a secret for the ledger of tests.
fn record_secret(secret: &[i8]) {
    ledger::once(uses::SECRET, &[Tag::small(secret)]);
}

#[cfg(test)]
mod tests;
