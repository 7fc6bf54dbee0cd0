//! Parameters: an unchecked specification, a checked immutable value.

use super::noise::NoiseModel;
use super::CkksError;
use crate::security;
use hushnet_ring::prime::is_prime;
use hushnet_ring::rns::{BaseConverter, Divider, Modulus, RnsBasis, MAX_RNS_PRIME_BITS};
use hushnet_ring::{simd, Isa, Ring};
use sha2::{Digest, Sha256};
use std::ops::Range;
use std::sync::Arc;

/// Ring degrees of 128-bit parameters. (`Insecure` ones may go down to 16.)
pub(super) const RING_DEGREES: (usize, usize) = (1 << 11, 1 << 16);
/// Most primes of one kind.
pub(super) const MAX_PRIMES: usize = 64;

/// How a prime is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimeSpec {
    /// The unused prime `= 1 mod 2N` (conjugate-invariant: `4N`) nearest to `2^bits`.
    Near(u32),
    /// This prime.
    Exactly(u64),
}

/// What parameters are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct CkksSpec {
    /// Ring degree N, a power of two: N/2 complex slots, in the conjugate-invariant ring N real ones.
    pub ring_degree: usize,
    /// The ring. The conjugate-invariant one has no rotations and twice the values a ciphertext.
    pub ring: Ring,
    /// Data primes; level l uses the first l of them, rescaling removes the last.
    pub data_primes: Vec<PrimeSpec>,
    /// Special primes of key switching; none when no key switching is needed.
    pub special_primes: Vec<PrimeSpec>,
    /// log2 of the default scale.
    pub scale_bits: u32,
    /// Digits that key switching cuts a polynomial of the highest level into (1 to the number of data primes).
    pub digits: usize,
}

impl CkksSpec {
    /// One prime near `2^first_bits`, then `depth` primes near the scale `2^scale_bits`, one special prime near
    /// `2^special_bits`, one digit a prime.
    #[must_use]
    pub fn with_depth(
        ring_degree: usize,
        first_bits: u32,
        depth: usize,
        scale_bits: u32,
        special_bits: u32,
    ) -> Self {
        let mut data_primes = vec![PrimeSpec::Near(first_bits)];
        data_primes.resize(depth + 1, PrimeSpec::Near(scale_bits));
        let special_primes = vec![PrimeSpec::Near(special_bits)];
        let ring = Ring::Cyclotomic;
        Self { ring_degree, ring, digits: data_primes.len(), data_primes, special_primes, scale_bits }
    }

    /// Checked, 128-bit secure parameters.
    ///
    /// # Errors
    /// [`CkksError::Security`] below 128 bits, [`CkksError::Spec`] for anything else that does not work.
    pub fn check(&self) -> Result<CkksParams, CkksError> {
        CkksParams::build(self, self.data_primes.len(), true, simd::isa())
    }

    /// [`Self::check`] for circuits whose first operations need no key: switching keys exist up to level
    /// `key_level` only. The special primes P then never meet the data primes above it, so the widest modulus
    /// of any sample is the larger of Q_L and Q_(key_level) P, and only that must be secure.
    ///
    /// # Errors
    /// As [`Self::check`]; [`CkksError::Level`].
    pub fn check_with_keys_to(&self, key_level: usize) -> Result<CkksParams, CkksError> {
        CkksParams::build(self, key_level, true, simd::isa())
    }

    /// [`Self::check_with_keys_to`] without the security check.
    ///
    /// # Errors
    /// As [`Self::check_insecure`]; [`CkksError::Level`].
    pub fn check_insecure_with_keys_to(
        &self,
        key_level: usize,
        _: Insecure,
    ) -> Result<CkksParams, CkksError> {
        CkksParams::build(self, key_level, false, simd::isa())
    }

    /// Checked parameters without the security check; every artefact made with them carries the fact.
    ///
    /// # Errors
    /// [`CkksError::Spec`] as in [`Self::check`].
    pub fn check_insecure(&self, _: Insecure) -> Result<CkksParams, CkksError> {
        CkksParams::build(self, self.data_primes.len(), false, simd::isa())
    }

    /// [`Self::check_insecure`] on an explicit instruction set, to compare paths.
    ///
    /// # Errors
    /// As [`Self::check_insecure`].
    pub fn check_insecure_with(&self, _: Insecure, isa: Isa) -> Result<CkksParams, CkksError> {
        CkksParams::build(self, self.data_primes.len(), false, isa)
    }
}

/// States that parameters below 128 bits are wanted, for tests and for rerunning published experiments.
#[derive(Clone, Copy, Debug)]
pub struct Insecure;

/// Number of data primes in use: 1 to [`CkksParams::max_level`]. A ciphertext of level l can be rescaled l-1 times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub(crate) usize);

impl Level {
    /// The number of data primes that this level keeps.
    #[must_use]
    pub fn get(self) -> usize {
        self.0
    }
}

/// A group of data primes that key switching treats as one digit.
pub(super) struct Digit {
    /// Data primes (0-based, without the special ones).
    pub(super) primes: Range<usize>,
    /// By number of primes in use, less one: conversion to all other primes of the basis.
    pub(super) lift: Vec<BaseConverter>,
}

/// Special primes of key switching at one level: the last ones, as many as its digits need. P' is their product.
///
/// A key hides P g_d s for all special primes. Modulo fewer of them it does so, too; digits of c P'/P there make P' c s of it.
pub(super) struct Switching {
    /// How many.
    pub(super) special: usize,
    /// `P' mod q` for every prime of the basis.
    pub(super) product: Vec<u64>,
    /// `P'/P mod q` for every prime of the basis, 0 for special primes; empty where P' = P.
    pub(super) share: Vec<u64>,
}

pub(super) struct Inner {
    spec: CkksSpec,
    pub(super) basis: RnsBasis,
    pub(super) special: usize,
    /// `[l - 1]`: what keys are switched with at level l.
    pub(super) switching: Vec<Switching>,
    pub(super) digits: Vec<Digit>,
    /// Highest level at which keys switch.
    pub(super) key_level: usize,
    /// `[l - 2]`: rescaling from level l.
    pub(super) rescale: Vec<Divider>,
    /// `[l - 1]`: from level l with special primes to level l.
    pub(super) descend: Vec<Divider>,
    /// `[l - 2]`: from level l with special primes to level l - 1.
    pub(super) descend_rescale: Vec<Divider>,
    /// `P mod q` for every prime of the basis, P the product of all special primes: what keys are made with.
    pub(super) special_product: Vec<u64>,
    hash: [u8; 32],
    secure: bool,
}

/// Checked, immutable parameters with all tables; cheap to clone.
#[derive(Clone)]
pub struct CkksParams(pub(super) Arc<Inner>);

impl std::fmt::Debug for CkksParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CkksParams")
            .field("spec", &self.0.spec)
            .field("secure", &self.0.secure)
            .finish_non_exhaustive()
    }
}

impl PartialEq for CkksParams {
    fn eq(&self, other: &Self) -> bool {
        self.0.hash == other.0.hash
    }
}

/// The nearest prime to `2^bits` that is `1 mod step`, below 2^50 and not taken.
fn nearest_prime(bits: u32, step: u64, taken: &[u64]) -> Option<u64> {
    if !(5..=MAX_RNS_PRIME_BITS).contains(&bits) {
        return None;
    }
    let centre = 1u64 << bits;
    (0..centre / (2 * step))
        .flat_map(|d| [centre - d * step + 1, centre + (d + 1) * step + 1])
        .find(|&p| p > step && p >> MAX_RNS_PRIME_BITS == 0 && !taken.contains(&p) && is_prime(p))
}

fn choose_primes(spec: &CkksSpec) -> Result<Vec<u64>, CkksError> {
    let step = spec.ring.order(spec.ring_degree) as u64;
    let mut taken = Vec::new();
    for p in spec.data_primes.iter().chain(&spec.special_primes) {
        let prime = match *p {
            PrimeSpec::Exactly(q) => {
                if q >> MAX_RNS_PRIME_BITS != 0 || q % step != 1 || !is_prime(q) || taken.contains(&q) {
                    return Err(CkksError::Spec(format!(
                        "{q} is not an unused prime = 1 mod {step} below 2^{MAX_RNS_PRIME_BITS}"
                    )));
                }
                q
            }
            PrimeSpec::Near(bits) => nearest_prime(bits, step, &taken).ok_or_else(|| {
                CkksError::Spec(format!(
                    "no unused prime = 1 mod {step} near 2^{bits}; use {} to {MAX_RNS_PRIME_BITS} bits",
                    step.ilog2() + 1
                ))
            })?,
        };
        taken.push(prime);
    }
    Ok(taken)
}

fn log2_product(primes: &[u64]) -> f64 {
    primes.iter().map(|&q| (q as f64).log2()).sum()
}

/// Bits that special primes have at least above a digit, unless all of them are in use: switching adds less than rounding then.
const SPARE_BITS: f64 = 1.9;

/// How many special primes each level takes, from level 1: the fewest last ones that its digits leave [`SPARE_BITS`], or all.
fn special_counts(spec: &CkksSpec, data: &[u64], special: &[u64]) -> Vec<usize> {
    let size = data.len().div_ceil(spec.digits);
    let enough = |level: usize| {
        let bits = data[..level].chunks(size).map(log2_product).fold(0.0, f64::max) + SPARE_BITS;
        let last = |count: usize| log2_product(&special[special.len() - count..]);
        (1..special.len()).find(|&count| last(count) >= bits).unwrap_or(special.len())
    };
    (1..=data.len()).map(enough).collect()
}

/// The product of some primes modulo every prime of a basis.
fn products(basis: &RnsBasis, primes: &[u64]) -> Vec<u64> {
    basis.moduli().iter().map(|m| primes.iter().fold(1, |p, &q| m.mul(p, q % m.value()))).collect()
}

impl Switching {
    fn new(basis: &RnsBasis, special: &[u64], count: usize) -> Self {
        let (others, used) = special.split_at(special.len() - count);
        let share = |(i, (m, p)): (usize, (&Modulus, u64))| if i < special.len() { 0 } else { m.inv(p) };
        let share = if others.is_empty() {
            Vec::new()
        } else {
            basis.moduli().iter().zip(products(basis, others)).enumerate().map(share).collect()
        };
        Self { special: count, product: products(basis, used), share }
    }
}

fn check_shape(spec: &CkksSpec, secure: bool) -> Result<(), CkksError> {
    let n = spec.ring_degree;
    let (data, special) = (spec.data_primes.len(), spec.special_primes.len());
    let least = if secure { RING_DEGREES.0 } else { 16 };
    let fail = |why: String| Err(CkksError::Spec(why));
    if !n.is_power_of_two() || !(least..=RING_DEGREES.1).contains(&n) {
        return fail(format!("ring degree {n} is not a power of two from {least} to {}", RING_DEGREES.1));
    }
    if data == 0 || data > MAX_PRIMES || special > MAX_PRIMES {
        return fail(format!(
            "{data} data and {special} special primes; 1 to {MAX_PRIMES} and 0 to {MAX_PRIMES} are possible"
        ));
    }
    if spec.digits == 0 || spec.digits > data {
        return fail(format!("{} digits for {data} data primes; use 1 to {data}", spec.digits));
    }
    if spec.ring == Ring::ConjugateInvariant && n == RING_DEGREES.1 {
        return fail(format!("the conjugate-invariant ring has degrees up to {}", RING_DEGREES.1 / 2));
    }
    if spec.scale_bits == 0 || spec.scale_bits > 100 {
        return fail(format!("a default scale of 2^{} is not within 2^1 and 2^100", spec.scale_bits));
    }
    Ok(())
}

impl CkksParams {
    fn build(spec: &CkksSpec, key_level: usize, secure: bool, isa: Isa) -> Result<Self, CkksError> {
        check_shape(spec, secure)?;
        let primes = choose_primes(spec)?;
        if key_level == 0 || key_level > spec.data_primes.len() {
            return Err(CkksError::Level { got: key_level, max: spec.data_primes.len() });
        }
        if secure {
            let (data, special) = primes.split_at(spec.data_primes.len());
            let keys = log2_product(&data[..key_level]) + log2_product(special);
            let bits = log2_product(data).max(keys).ceil() as u32;
            let limit = security::max_modulus_bits(spec.ring_degree).unwrap_or(0);
            if bits > limit {
                return Err(CkksError::Security { ring_degree: spec.ring_degree, bits, limit });
            }
        }
        let (data, special) = primes.split_at(spec.data_primes.len());
        let (k, levels) = (special.len(), data.len());
        let ordered: Vec<u64> = special.iter().chain(data).copied().collect();
        let basis = RnsBasis::of_ring(spec.ring, spec.ring_degree, &ordered, isa)?;
        let digits = if k == 0 { Vec::new() } else { Self::digits(spec, &basis, data, special)? };
        let switching: Vec<Switching> = special_counts(spec, data, special)
            .into_iter()
            .map(|count| Switching::new(&basis, special, count))
            .collect();
        let specials = |l: usize| k - switching[l - 1].special..k;
        let with_last = |l: usize| -> Vec<usize> { specials(l).chain([k + l - 1]).collect() };
        let rescale = (2..=levels)
            .map(|l| Divider::new(&basis, &[k + l - 1], k..k + l - 1))
            .collect::<Result<_, _>>()?;
        let levels_from = |from: usize| if k == 0 { 1..1 } else { from..levels + 1 };
        let descend = levels_from(1)
            .map(|l| Divider::new(&basis, &specials(l).collect::<Vec<_>>(), k..k + l))
            .collect::<Result<_, _>>()?;
        let descend_rescale = levels_from(2)
            .map(|l| Divider::new(&basis, &with_last(l), k..k + l - 1))
            .collect::<Result<_, _>>()?;
        let special_product = products(&basis, special);
        let hash = Self::hash_of(spec, &ordered, key_level, secure);
        Ok(Self(Arc::new(Inner {
            spec: spec.clone(),
            basis,
            special: k,
            switching,
            digits,
            key_level,
            rescale,
            descend,
            descend_rescale,
            special_product,
            hash,
            secure,
        })))
    }

    fn digits(
        spec: &CkksSpec,
        basis: &RnsBasis,
        data: &[u64],
        special: &[u64],
    ) -> Result<Vec<Digit>, CkksError> {
        let (k, levels) = (special.len(), data.len());
        let size = levels.div_ceil(spec.digits);
        let special_bits = log2_product(special);
        let mut digits = Vec::new();
        for start in (0..levels).step_by(size) {
            let primes = start..(start + size).min(levels);
            let bits = log2_product(&data[primes.clone()]);
            if bits > special_bits + 1.0 {
                return Err(CkksError::Spec(format!(
                    "a key-switching digit of {bits:.1} bits exceeds the special primes' {special_bits:.1} bits, \
                     so its noise would swamp results; use more digits or wider special primes"
                )));
            }
            let lift = (1..=primes.len())
                .map(|count| {
                    let from: Vec<usize> = (start..start + count).map(|i| k + i).collect();
                    let to: Vec<usize> = (0..k + levels).filter(|i| !from.contains(i)).collect();
                    BaseConverter::new(basis, &from, &to)
                })
                .collect::<Result<_, _>>()?;
            digits.push(Digit { primes, lift });
        }
        Ok(digits)
    }

    fn hash_of(spec: &CkksSpec, ordered: &[u64], key_level: usize, secure: bool) -> [u8; 32] {
        let mut h = Sha256::new();
        h.update(b"hushnet ckks parameters 1");
        h.update([u8::from(secure)]);
        let counts = [spec.ring_degree, spec.special_primes.len(), ordered.len(), spec.digits];
        for v in counts
            .map(|c| c as u64)
            .into_iter()
            .chain([u64::from(spec.scale_bits)])
            .chain(ordered.iter().copied())
        {
            h.update(v.to_le_bytes());
        }
        if key_level < spec.data_primes.len() {
            h.update((key_level as u64).to_le_bytes());
        }
        if spec.ring == Ring::ConjugateInvariant {
            h.update(b"conjugate-invariant");
        }
        h.finalize().into()
    }

    /// What they were made from.
    #[must_use]
    pub fn spec(&self) -> &CkksSpec {
        &self.0.spec
    }

    /// The ring degree N, a power of two.
    #[must_use]
    pub fn ring_degree(&self) -> usize {
        self.0.spec.ring_degree
    }

    /// The ring whose elements these are: negacyclic or of real slots.
    #[must_use]
    pub fn ring(&self) -> Ring {
        self.0.spec.ring
    }

    /// Values a ciphertext: N/2 complex, in the conjugate-invariant ring N real ones.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.embedding() / 2
    }

    /// Degree of the cyclotomic ring whose transform encodes: N, or the 2N of the ring around the conjugate-invariant one.
    pub(super) fn embedding(&self) -> usize {
        self.ring().order(self.ring_degree()) / 2
    }

    /// The level with all data primes.
    #[must_use]
    pub fn max_level(&self) -> Level {
        Level(self.0.spec.data_primes.len())
    }

    /// The highest level at which key switching is possible.
    #[must_use]
    pub fn key_level(&self) -> Level {
        Level(self.0.key_level)
    }

    /// Digits in use at a level.
    #[must_use]
    pub fn digits_at(&self, level: Level) -> usize {
        self.0.digits.iter().filter(|d| d.primes.start < level.0).count()
    }

    /// sd that switching keys adds at a level, before rounding: `sqrt(sum_d (Q_d/P')^2 E^2 N/24)`, ring units.
    ///
    /// # Errors
    /// [`CkksError::NoSpecialPrime`].
    pub fn switching_noise(&self, level: Level) -> Result<f64, CkksError> {
        self.needs_special()?;
        Ok(self.noise().switching(super::switching::digit_ratio2(self, level)))
    }

    /// Level with `primes` data primes.
    ///
    /// # Errors
    /// [`CkksError::Level`] outside 1 to [`Self::max_level`].
    pub fn level(&self, primes: usize) -> Result<Level, CkksError> {
        let max = self.max_level().0;
        if primes == 0 || primes > max {
            return Err(CkksError::Level { got: primes, max });
        }
        Ok(Level(primes))
    }

    /// Data prime number `i` (0-based).
    ///
    /// # Panics
    /// When there is no such prime.
    #[must_use]
    pub fn data_prime(&self, i: usize) -> u64 {
        self.0.basis.moduli()[self.0.special + i].value()
    }

    /// The primes that key switching adds to the data primes.
    #[must_use]
    pub fn special_primes(&self) -> Vec<u64> {
        self.0.basis.moduli()[..self.0.special].iter().map(hushnet_ring::rns::Modulus::value).collect()
    }

    /// The scale of encodings where none is given.
    #[must_use]
    pub fn scale(&self) -> f64 {
        f64::from(self.0.spec.scale_bits).exp2()
    }

    /// log2 of the product of the data primes of a level.
    #[must_use]
    pub fn modulus_bits(&self, level: Level) -> f64 {
        (0..level.0).map(|i| (self.data_prime(i) as f64).log2()).sum()
    }

    /// Whether the parameters passed the 128-bit check.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.0.secure
    }

    /// SHA-256 of everything that a ciphertext's meaning depends on; stamps every artefact.
    #[must_use]
    pub fn hash(&self) -> &[u8; 32] {
        &self.0.hash
    }

    /// The ring; primes are ordered special first, then data.
    #[must_use]
    pub fn basis(&self) -> &RnsBasis {
        &self.0.basis
    }

    /// Positions in the basis of a level's data primes.
    #[must_use]
    pub fn data_range(&self, level: Level) -> Range<usize> {
        self.0.special..self.0.special + level.0
    }

    /// Positions of the special primes that a level's key switches use, and of the level's data primes.
    #[must_use]
    pub fn extended_range(&self, level: Level) -> Range<usize> {
        let k = self.0.special;
        k - self.switching(level).special..k + level.0
    }

    pub(super) fn switching(&self, level: Level) -> &Switching {
        &self.0.switching[level.0 - 1]
    }

    /// The formulas by which noise is predicted for these parameters.
    #[must_use]
    pub fn noise(&self) -> NoiseModel {
        NoiseModel::new(self.ring(), self.ring_degree())
    }

    /// `sum_d (Q_d / P')^2` over the key-switching digits in use at a level, P' its special primes: what [`NoiseModel::switching`] takes.
    #[must_use]
    pub fn digit_ratio2(&self, level: Level) -> f64 {
        super::switching::digit_ratio2(self, level)
    }

    pub(super) fn needs_special(&self) -> Result<(), CkksError> {
        if self.0.special == 0 {
            return Err(CkksError::NoSpecialPrime);
        }
        Ok(())
    }

    /// Refuses messages of magnitude `bound` at `scale` that wrap at `level`.
    pub(super) fn check_capacity(&self, bound: f64, scale: f64, level: Level) -> Result<(), CkksError> {
        if !scale.is_finite() || scale < 1.0 {
            return Err(CkksError::BadScale);
        }
        let (value_bits, scale_bits) = (bound.log2(), scale.log2());
        let modulus_bits = self.modulus_bits(level);
        if value_bits + scale_bits >= modulus_bits - 1.0 {
            return Err(CkksError::Capacity { value_bits, scale_bits, modulus_bits, level: level.0 });
        }
        Ok(())
    }
}
