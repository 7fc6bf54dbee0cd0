//! Coefficient-packed linear layers on shares modulo t = 2^l between a client (secret key) and a server (weights):
//! Cheetah's convolutions (Huang, Lu, Hong, Ding, USENIX Security 2022, section 3; `docs/two-party.md`). BFV-like: a share polynomial x travels as an encryption of `round(p x / t)` modulo one prime
//! p < 2^50, the server adds its own share, multiplies by weight polynomials, and returns the result as shares again.
//!
//! **What travels.** A request has the upper k bits of c0, rounded ([`PackedParams::request_bits`]); an answer has c1 in r bits
//! ([`PackedParams::response_bits`]) and nothing of c0: with the phase `c0 + c1 s = p/t y + v`, `round(t/p c0)` is the server's share of y and
//! `round(t/p c1 s)` the client's (distributed decryption of Boyle, Kohl, Scholl, "Homomorphic secret sharing from lattices without FHE", EUROCRYPT 2019).
//!
//! **What the client may see** (facts 1 and 2 of `docs/two-party.md`). The server adds `(pk1 u + e1, pk0 u)` with fresh ternary u, keeps c0 and sends c1.
//! *Simulation*: c1 carries `pk1 u + e1`, a ring-LWE sample whose secret u appears nowhere else in the view, so it is pseudorandom, whatever the weights and
//! the client's own key are, and its rounding to r bits too. A simulator that draws c1 at random therefore produces the same view, whatever r is. The
//! client's share is a function of that view, and as uniform as c1 is. The phase, whose noise tells weights, is in no party's hands.
//! *The server* sees requests alone, which tell it no more than the whole of c0 does, which they are computed from; its share is a function of what it has seen
//! and drawn, as R would be that it drew.
//!
//! **Correctness.** The shares sum to y up to `|d + f + g|` units, where `d = v t/p + w t/2^r`, w is the rounding of c1, times s, and
//! f, g, the roundings of both shares to whole units, are at most one half. So they are never off by more than one unit while |d| < 1
//! ([`PackedSpec::choose`]), and by one with probability E|d|, because c1 s is uniform.
//! v is a sum of weights times (client error + rounding of shares + rounding of the request), plus `e_pk u + e1 s`:
//! variance proxy `(10.5 + 1 + 4^(50-k)/12) |W|^2 + 2 * 10.5 N`, |W| the Euclidean norm of all weights in the polynomials that meet in one output polynomial.
//! w is a sum of uniform roundings (proxy 1/12 each) times coefficients of s in {-1, 0, 1}, of variance 2/3, at most 3/4 of which are not zero.

mod client;
mod folded;
mod key;
mod server;
mod spaced;

pub use client::PackedClient;
pub use folded::FoldedPoly;
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
/// Bits of answers of [`crate::batch_shares`] above the share ring: keeps the rounding noise of the switch below 2^-1 of a unit, always, and
/// errs by a unit in a few per cent.
pub const RESPONSE_EXTRA_BITS: u32 = 10;
/// Bits of c1 in an answer above the share ring: as few of these as keep a result within one unit.
const RESPONSE_EXTRA: std::ops::RangeInclusive<u32> = 7..=10;
/// Most of a unit that the noise in front of the switch may come to by what a request leaves out.
const REQUEST_NOISE: f64 = 0.4;
/// Coefficients of a ternary key that are not zero, of N at most; more come with probability below 2^-48 at N = 2048 (a third of them is zero on average).
const KEY_WEIGHT: f64 = 0.75;

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
    request_bits: u32,
    response_bits: u32,
}

impl PackedSpec {
    /// Bound of the noise before the switch where requests are whole, in units of 1 modulo p, failing with probability below 2^-41 a coefficient.
    #[must_use]
    pub fn noise(&self) -> f64 {
        self.noise_without(0)
    }

    /// The bound where a request leaves out so many bits of a word.
    fn noise_without(&self, bits: u32) -> f64 {
        let (n, left_out) = (self.ring_degree as f64, (1u64 << (2 * bits.min(31))) as f64);
        let request = if bits == 0 { 0.0 } else { left_out / 12.0 };
        TAIL * ((ERROR_VARIANCE + 1.0 + request) * self.weight_l2.powi(2) + 2.0 * ERROR_VARIANCE * n).sqrt()
    }

    /// Bound of the noise that rounding c1 of an answer adds, in units of 1 modulo 2^r.
    #[must_use]
    pub fn switch_noise(&self) -> f64 {
        0.5 + TAIL * (KEY_WEIGHT * self.ring_degree as f64 / 12.0).sqrt()
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
        // Relative noises, in units of the share ring.
        let units = |extra: u32| (-f64::from(extra)).exp2();
        let relative = |dropped| self.noise_without(dropped) * self.unit_of_noise() * 1.01;
        let left = |extra| 0.99 - self.switch_noise() * units(extra);
        let fits = RESPONSE_EXTRA.clone().find(|extra| relative(0) < left(*extra));
        let Some(extra) = fits.filter(|_| self.ring_bits > 0) else {
            return Err(CipherError::TooWide {
                ring_bits: self.ring_bits,
                noise_bits: self.noise().log2().ceil() as u32,
                modulus_bits: PRIME_BITS,
            });
        };
        let room = left(extra).min(REQUEST_NOISE);
        let dropped = (1..PRIME_BITS / 2).take_while(|dropped| relative(*dropped) < room).last();
        Ok(PackedParams {
            spec: *self,
            request_bits: PRIME_BITS - dropped.unwrap_or(0),
            response_bits: self.ring_bits + extra,
        })
    }

    /// A unit of 1 modulo p in units of the share ring.
    fn unit_of_noise(&self) -> f64 {
        (f64::from(self.ring_bits) - f64::from(PRIME_BITS)).exp2()
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
    /// k, bits of a word of a request: c0 without its lowest bits.
    #[must_use]
    pub fn request_bits(&self) -> u32 {
        self.request_bits
    }
    /// Bits that words of a request lack.
    pub(super) fn request_dropped(&self) -> u32 {
        PRIME_BITS - self.request_bits
    }
    /// r, c1 of answers is modulo 2^r.
    #[must_use]
    pub fn response_bits(&self) -> u32 {
        self.response_bits
    }
    /// Expected fraction of results that are off by one unit.
    #[must_use]
    pub fn off_by_one_fraction(&self) -> f64 {
        let (n, l) = (self.spec.ring_degree as f64, self.spec.ring_bits);
        let unit = |bits: u32| (f64::from(l) - f64::from(bits)).exp2();
        let v = self.spec.noise_without(self.request_dropped()) / TAIL * self.spec.unit_of_noise();
        let w = (n / 18.0).sqrt() * unit(self.response_bits);
        (2.0 / std::f64::consts::PI).sqrt() * (v * v + w * w).sqrt()
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

/// # Errors
/// [`CipherError::Ring`] when there is not a share a place, or a place is not below N.
fn check_places(n: usize, places: &[usize], shares: &[u64]) -> Result<(), CipherError> {
    if shares.len() != places.len() {
        return Err(RingError::Length { what: "shares", expected: places.len(), got: shares.len() }.into());
    }
    match places.iter().find(|place| **place >= n) {
        Some(place) => {
            let what = "coefficient of an answer (below)";
            Err(RingError::Length { what, expected: n, got: *place }.into())
        }
        None => Ok(()),
    }
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
