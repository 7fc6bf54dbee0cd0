//! Parameters: an unchecked specification, a checked immutable value.

use super::error::BfvError;
use super::noise::{self, Noise};
use crate::ckks::Insecure;
use crate::security;
use hushnet_ring::mac::DotModulus;
use hushnet_ring::prime::{is_prime, primes_near};
use hushnet_ring::rns::{BaseConverter, Divider, Modulus, RnsBasis, MAX_RNS_PRIME_BITS};
use hushnet_ring::{simd, ExactMultiplier, Isa, Ntt};
use std::ops::Range;
use std::sync::Arc;

/// Bits of the widest plaintext modulus that parameters may have.
pub const MAX_PLAIN_BITS: u32 = 30;
/// Most data primes.
pub(super) const MAX_DATA_PRIMES: usize = 16;

/// What parameters are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BfvSpec {
    /// Ring degree N: two rows of N/2 slots.
    pub ring_degree: usize,
    /// t, a prime `= 1 mod 2N`.
    pub plain_modulus: u64,
    /// Number of data primes L; q is their product.
    pub primes: usize,
    /// Bits of every data prime.
    pub prime_bits: u32,
    /// Bits of the special prime P of key switching; 0 for none.
    pub special_bits: u32,
    /// Bits of a key-switching digit: residues modulo a data prime are cut into digits of so many bits. 0: whole residues.
    pub digit_bits: u32,
}

impl BfvSpec {
    /// Whether ciphertexts can be permuted.
    #[must_use]
    pub fn switches(&self) -> bool {
        self.special_bits > 0 || self.digit_bits > 0
    }

    /// Number of digits that a residue is decomposed into.
    #[must_use]
    pub fn digits_per_prime(&self) -> usize {
        if self.digit_bits == 0 {
            1
        } else {
            self.prime_bits.div_ceil(self.digit_bits) as usize
        }
    }

    /// Checked, 128-bit secure parameters.
    ///
    /// # Errors
    /// [`BfvError::Security`] below 128 bits, [`BfvError::Spec`] for anything else that does not work.
    pub fn check(&self) -> Result<BfvParams, BfvError> {
        BfvParams::build(self, true, simd::isa())
    }

    /// Parameters without the security check, to rerun published experiments.
    ///
    /// # Errors
    /// [`BfvError::Spec`] as in [`Self::check`].
    pub fn check_insecure(&self, _: Insecure) -> Result<BfvParams, BfvError> {
        BfvParams::build(self, false, simd::isa())
    }

    /// [`Self::check_insecure`] on an explicit instruction set, to compare paths.
    ///
    /// # Errors
    /// As [`Self::check_insecure`].
    pub fn check_insecure_with(&self, _: Insecure, isa: Isa) -> Result<BfvParams, BfvError> {
        BfvParams::build(self, false, isa)
    }
}

/// What a residue modulo a data prime stands for as a fraction of q.
pub(super) struct Fraction {
    pub(super) q: u64,
    /// `(q/q_i)^-1 mod q_i` and `floor(2^64 times it / q_i)`.
    pub(super) inverse: (u64, u64),
    /// `floor(2^(64 + shift) / q_i)`, the largest that fits a word.
    pub(super) ratio: u64,
    pub(super) shift: u32,
}

pub(super) struct Inner {
    pub(super) spec: BfvSpec,
    pub(super) secure: bool,
    /// Data primes, then the special one.
    pub(super) basis: RnsBasis,
    pub(super) plain: Ntt,
    pub(super) plain_modulus: Modulus,
    /// Transform slot of every (row, column), row-major.
    pub(super) places: Vec<u32>,
    /// q mod t.
    pub(super) q_mod_t: u64,
    /// `-1/t` modulo every data prime.
    pub(super) minus_t_inverse: Vec<u64>,
    /// From one data prime to all others; for whole residues as digits.
    pub(super) lift: Vec<BaseConverter>,
    /// Division by P.
    pub(super) down: Option<Divider>,
    pub(super) exact: ExactMultiplier,
    /// Constants of sums of products modulo every data prime.
    pub(super) dots: Vec<DotModulus>,
    pub(super) fractions: Vec<Fraction>,
    pub(super) response_bits: u32,
    /// Flooding: sums of three uniform numbers below `top * 2^low`.
    pub(super) flood: (u64, u32),
}

/// Checked parameters with their tables. Cheap to clone.
#[derive(Clone)]
pub struct BfvParams(pub(super) Arc<Inner>);

impl PartialEq for BfvParams {
    fn eq(&self, other: &Self) -> bool {
        self.0.spec == other.0.spec && self.0.secure == other.0.secure
    }
}

impl std::fmt::Debug for BfvParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BfvParams({:?}, 128-bit: {})", self.0.spec, self.0.secure)
    }
}

fn check_shape(s: &BfvSpec) -> Result<(), BfvError> {
    let fail = |m: String| Err(BfvError::Spec(m));
    if s.primes == 0 || s.primes > MAX_DATA_PRIMES {
        return fail(format!("{} data primes, must be 1 to {MAX_DATA_PRIMES}", s.primes));
    }
    if s.prime_bits > MAX_RNS_PRIME_BITS || s.special_bits > MAX_RNS_PRIME_BITS {
        return fail(format!("primes have at most {MAX_RNS_PRIME_BITS} bits"));
    }
    let t = s.plain_modulus;
    let bits = 64 - t.leading_zeros();
    if bits > MAX_PLAIN_BITS || !is_prime(t) || t % (2 * s.ring_degree as u64) != 1 {
        return fail(format!(
            "plaintext modulus {t} must be a prime = 1 mod 2N = {} of at most {MAX_PLAIN_BITS} bits",
            2 * s.ring_degree
        ));
    }
    if s.prime_bits <= bits {
        return fail(format!("data primes of {} bits must be wider than t = {t}", s.prime_bits));
    }
    if s.digit_bits > s.prime_bits || (s.digit_bits > 0 && s.digit_bits < 4) {
        return fail(format!("digits of {} bits, must be 4 to {} (or 0)", s.digit_bits, s.prime_bits));
    }
    Ok(())
}

fn primes_of(s: &BfvSpec) -> Result<Vec<u64>, BfvError> {
    let same = s.special_bits == s.prime_bits;
    let mut primes = primes_near(s.prime_bits, s.ring_degree, s.primes + usize::from(same))?;
    if s.special_bits > 0 && !same {
        primes.extend(primes_near(s.special_bits, s.ring_degree, 1)?);
    } else if same {
        // The largest one is the special one.
        primes.rotate_left(1);
    }
    Ok(primes)
}

impl BfvParams {
    fn build(spec: &BfvSpec, secure: bool, isa: Isa) -> Result<Self, BfvError> {
        check_shape(spec)?;
        let (n, l, t) = (spec.ring_degree, spec.primes, spec.plain_modulus);
        let primes = primes_of(spec)?;
        if secure {
            let bits = primes.iter().map(|&p| (p as f64).log2()).sum::<f64>().ceil() as u32;
            let limit = security::max_modulus_bits(n).unwrap_or(0);
            if bits > limit {
                return Err(BfvError::Security { ring_degree: n, bits, limit });
            }
        }
        let basis = RnsBasis::with_isa(n, &primes, isa)?;
        let plain = Ntt::with_isa(n, t, isa)?;
        let data = &basis.moduli()[..l];
        let lift = if spec.switches() && spec.digit_bits == 0 {
            (0..l)
                .map(|i| BaseConverter::new(&basis, &[i], &(0..=l).filter(|k| *k != i).collect::<Vec<_>>()))
                .collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        let down = if spec.special_bits > 0 { Some(Divider::new(&basis, &[l], 0..l)?) } else { None };
        let log_q: f64 = primes[..l].iter().map(|&p| (p as f64).log2()).sum();
        let response_bits = noise::response_bits(n, t);
        let width = noise::flood_width(n, t, log_q, response_bits).ok_or_else(|| {
            BfvError::Spec(format!("a modulus of {log_q:.0} bits leaves no room for flooding above t = {t}"))
        })?;
        Ok(Self(Arc::new(Inner {
            spec: *spec,
            secure,
            places: places(&plain, n),
            q_mod_t: primes[..l].iter().fold(1, |r, p| r * (p % t) % t),
            minus_t_inverse: data.iter().map(|m| m.neg(m.inv(t))).collect(),
            fractions: fractions(data),
            plain_modulus: Modulus::new(t)?,
            lift,
            down,
            exact: ExactMultiplier::new(n)?,
            dots: (0..l).map(|i| DotModulus::new(basis.transform(i))).collect::<Result<_, _>>()?,
            response_bits,
            flood: width,
            plain,
            basis,
        })))
    }

    /// What they were made from.
    #[must_use]
    pub fn spec(&self) -> &BfvSpec {
        &self.0.spec
    }

    /// Whether they passed the 128-bit table.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.0.secure
    }

    /// The ring degree N, a power of two.
    #[must_use]
    pub fn ring_degree(&self) -> usize {
        self.0.spec.ring_degree
    }

    /// Slots of a row: N/2.
    #[must_use]
    pub fn row(&self) -> usize {
        self.0.spec.ring_degree / 2
    }

    /// The plaintext modulus t, a prime with slots.
    #[must_use]
    pub fn plain_modulus(&self) -> u64 {
        self.0.spec.plain_modulus
    }

    /// [`Self::plain_modulus`] with what constant-time arithmetic on slots and shares needs.
    #[must_use]
    pub fn slot_modulus(&self) -> &Modulus {
        &self.0.plain_modulus
    }

    /// Bits of an answer's words.
    #[must_use]
    pub fn response_bits(&self) -> u32 {
        self.0.response_bits
    }

    /// log2 q, without the special prime.
    #[must_use]
    pub fn log_q(&self) -> f64 {
        self.data().map(|i| (self.basis().moduli()[i].value() as f64).log2()).sum()
    }

    /// Bits of q P, as the security table counts them.
    #[must_use]
    pub fn modulus_bits(&self) -> u32 {
        self.basis().moduli().iter().map(|m| (m.value() as f64).log2()).sum::<f64>().ceil() as u32
    }

    /// Bytes of an uploaded ciphertext: a seed and one polynomial.
    #[must_use]
    pub fn request_len(&self) -> usize {
        32 + self.0.spec.primes * hushnet_ring::pack::packed_len(self.ring_degree(), self.0.spec.prime_bits)
    }

    /// Bytes of an answer: two polynomials modulo `2^r`.
    #[must_use]
    pub fn answer_len(&self) -> usize {
        2 * hushnet_ring::pack::packed_len(self.ring_degree(), self.response_bits())
    }

    /// Bytes of so many Galois keys as sent: one seed and the keys; none for none.
    #[must_use]
    pub fn galois_keys_len(&self, keys: usize) -> usize {
        if keys == 0 {
            0
        } else {
            32 + keys * self.galois_key_len()
        }
    }

    /// Bits that a word of prime `i` of the basis travels in.
    pub(super) fn limb_bits(&self, i: usize) -> u32 {
        let s = &self.0.spec;
        if i < s.primes {
            s.prime_bits
        } else {
            s.special_bits
        }
    }

    /// Bytes of one Galois key as sent, its uniform halves coming from the common seed: one polynomial over all primes a digit.
    #[must_use]
    pub fn galois_key_len(&self) -> usize {
        let s = &self.0.spec;
        let widths =
            (0..s.primes).map(|_| s.prime_bits).chain((s.special_bits > 0).then_some(s.special_bits));
        let poly: usize = widths.map(|b| hushnet_ring::pack::packed_len(s.ring_degree, b)).sum();
        s.primes * s.digits_per_prime() * poly
    }

    /// Bytes of a weight polynomial in memory.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        8 * self.0.spec.primes * self.ring_degree()
    }

    /// Bytes of a ciphertext in memory.
    #[must_use]
    pub fn cipher_bytes(&self) -> usize {
        16 * self.0.spec.primes * self.ring_degree()
    }

    /// Largest Euclidean norm of noise that the flooding hides with 40 bits.
    #[must_use]
    pub fn hidden_norm(&self) -> f64 {
        noise::hidden_norm(self.0.flood)
    }

    /// Whether an answer with this noise is exact and hides it: the noise, and the error of rounding q/t times the server's mask R, which depends on R.
    #[must_use]
    pub fn holds(&self, noise: &Noise) -> bool {
        let n = self.ring_degree();
        noise.norm_bound(n) + noise::mask_rounding_norm(n) <= self.hidden_norm()
    }

    /// Positions of the data primes in the basis.
    pub(super) fn data(&self) -> Range<usize> {
        0..self.0.spec.primes
    }

    /// Positions of all primes.
    pub(super) fn all(&self) -> Range<usize> {
        0..self.0.basis.moduli().len()
    }

    pub(super) fn basis(&self) -> &RnsBasis {
        &self.0.basis
    }
}

/// Slot (row r, column j) is the value at `psi^(5^j)` for row 0 and at `psi^(-5^j)` for row 1.
fn places(plain: &Ntt, n: usize) -> Vec<u32> {
    let mut slot_of = vec![0u32; 2 * n];
    for i in 0..n {
        slot_of[plain.slot_exponent(i)] = i as u32;
    }
    let mut out = vec![0; n];
    let mut g = 1;
    for j in 0..n / 2 {
        out[j] = slot_of[g];
        out[n / 2 + j] = slot_of[2 * n - g];
        g = g * 5 % (2 * n);
    }
    out
}

fn fractions(data: &[Modulus]) -> Vec<Fraction> {
    data.iter()
        .enumerate()
        .map(|(i, m)| {
            let others = data.iter().enumerate().filter(|(k, _)| *k != i);
            let inverse = m.inv(others.fold(1, |p, (_, o)| m.mul(p, o.value() % m.value())));
            let q = m.value();
            let shift = q.ilog2();
            Fraction {
                q,
                inverse: (inverse, ((u128::from(inverse) << 64) / u128::from(q)) as u64),
                ratio: ((1u128 << (64 + shift)) / u128::from(q)) as u64,
                shift,
            }
        })
        .collect()
}
