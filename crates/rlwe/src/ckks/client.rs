//! What only the owner of the data has: the secret key, decryption, key generation.

use super::ciphertext::{Domain, Seed};
use super::fft::{ComplexBuffer, SpecialFft};
use super::noise::independent_sum;
use super::switching::{GaloisKey, Owner, SwitchingKey, NOBODY};
use super::{
    Ciphertext, CkksError, CkksParams, Galois, GaloisKeys, Level, Plaintext, PublicKey, RelinKey,
    SmallPlaintext,
};
use crate::uses;
use hushnet_ring::ledger::{self, Tag};
use hushnet_ring::rns::{Automorphism, Eval, RnsPoly};
use hushnet_ring::secret::declassify;
use hushnet_ring::{sample, Prg};
use std::collections::BTreeMap;
use std::ops::Range;
use zeroize::Zeroize;

/// A ternary secret. No `Debug`, no serialised form that leaves the client by accident; wiped on drop.
pub struct SecretKey {
    pub(super) params: CkksParams,
    /// Over all primes.
    pub(super) s: RnsPoly<Eval>,
    /// Public: says of keys that they are this secret's.
    pub(super) owner: Owner,
}

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.s.zeroize();
    }
}

/// Small coefficients to evaluation form.
pub(super) fn lift(
    params: &CkksParams,
    coefficients: &[i8],
    range: Range<usize>,
) -> Result<RnsPoly<Eval>, CkksError> {
    let mut words: Vec<u64> = coefficients.iter().map(|&c| i64::from(c) as u64).collect();
    let poly = params.basis().from_signed(&words, range);
    words.zeroize();
    Ok(params.basis().forward(poly?)?)
}

/// A small polynomial of the given distribution.
pub(super) fn small(
    params: &CkksParams,
    range: Range<usize>,
    prg: &mut Prg,
    distribution: fn(&mut Prg, &mut [i8]),
) -> Result<RnsPoly<Eval>, CkksError> {
    let mut coefficients = vec![0i8; params.ring_degree()];
    distribution(prg, &mut coefficients);
    let poly = lift(params, &coefficients, range);
    coefficients.zeroize();
    poly
}

/// A fresh error.
pub(super) fn small_error(
    params: &CkksParams,
    range: Range<usize>,
    prg: &mut Prg,
) -> Result<RnsPoly<Eval>, CkksError> {
    small(params, range, prg, sample::centred_binomial)
}

impl SecretKey {
    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &CkksParams {
        &self.params
    }

    /// Encrypts `(-a s + e + m, a)` with `a` from a fresh seed, so that one polynomial travels. Cost: one
    /// transform a prime.
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`].
    pub fn encrypt(&self, message: &Plaintext, prg: &mut Prg) -> Result<Ciphertext, CkksError> {
        if message.params != self.params {
            return Err(CkksError::ForeignParams("the plaintext"));
        }
        let basis = self.params.basis();
        let range = self.params.data_range(message.level);
        let seed = Seed::fresh(prg);
        let a = seed.expand(&self.params, Domain::Ciphertext, range.clone())?;
        uses::limbs(uses::CKKS_MASK, &a);
        let mut c0 = small_error(&self.params, range, prg)?;
        basis.mul_sub(&mut c0, &a, &self.s)?;
        basis.add_assign(&mut c0, &message.poly)?;
        Ok(Ciphertext {
            params: self.params.clone(),
            parts: vec![c0, a],
            level: message.level,
            scale: message.scale,
            bound: message.bound,
            sd: independent_sum(message.sd, self.params.noise().fresh()),
            seed: Some(seed),
        })
    }

    /// [`Self::encrypt`] of integers: message and error share one transform a prime.
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`].
    pub fn encrypt_small(&self, mut message: SmallPlaintext, prg: &mut Prg) -> Result<Ciphertext, CkksError> {
        if message.params != self.params {
            return Err(CkksError::ForeignParams("the plaintext"));
        }
        let basis = self.params.basis();
        let range = self.params.data_range(message.level);
        let seed = Seed::fresh(prg);
        sample::centred_binomial_add(prg, &mut message.words);
        let [a, c0] = basis.fill_two(range, |i, a, c0| {
            let (mut prg, draws) = seed.limb(Domain::Ciphertext, &basis.moduli()[i]);
            basis.mask_short(i, &message.words, (&mut prg, draws), self.s.limb(i), (a, c0))
        })?;
        uses::limbs(uses::CKKS_MASK, &a);
        Ok(Ciphertext {
            params: self.params.clone(),
            parts: vec![c0, a],
            level: message.level,
            scale: message.scale,
            bound: message.bound,
            sd: independent_sum(message.sd, self.params.noise().fresh()),
            seed: Some(seed),
        })
    }

    /// `c0 + c1 s (+ c2 s^2)`: the message with its error.
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`].
    pub fn decrypt(&self, c: &Ciphertext) -> Result<Plaintext, CkksError> {
        if c.params != self.params {
            return Err(CkksError::ForeignParams("the ciphertext"));
        }
        let basis = self.params.basis();
        // Horner: (c2 s + c1) s + c0.
        let mut parts = c.parts.iter().rev();
        let mut poly = match parts.next() {
            Some(top) => top.clone(),
            None => return Err(CkksError::Parts { what: "decrypt", needed: 2, got: 0 }),
        };
        for part in parts {
            basis.mul_assign(&mut poly, &self.s)?;
            basis.add_assign(&mut poly, part)?;
        }
        Ok(Plaintext {
            params: self.params.clone(),
            poly,
            level: c.level,
            scale: c.scale,
            bound: c.bound,
            sd: c.sd + self.params.noise().transform(c.bound * c.scale),
        })
    }
}

/// Makes keys under fixed parameters.
pub struct KeyGenerator {
    pub(super) params: CkksParams,
    fft: SpecialFft,
}

impl KeyGenerator {
    /// Makes the tables that these parameters need.
    #[must_use]
    pub fn new(params: &CkksParams) -> Self {
        Self { params: params.clone(), fft: SpecialFft::new(params.embedding(), params.basis().isa()) }
    }

    /// Whether `|p(zeta)|^2` of a small polynomial is at most `limit` in every slot. Looks at all slots alike: signs of differences.
    fn within(&self, coefficients: &[i8], limit: f64) -> bool {
        let mut buffer = ComplexBuffer::zero(self.fft.slots());
        super::encoder::embed(coefficients, f64::from, &mut buffer);
        self.fft.forward(&mut buffer);
        let over = |(a, b): (&f64, &f64)| (limit - (a * a + b * b)).to_bits();
        buffer.re.iter().zip(&buffer.im).map(over).fold(0, |all, bits| all | bits) >> 63 == 0
    }

    /// Samples until no slot is larger than the noise model assumes (which fails about once in 10^6 times, so
    /// the condition costs a factor 1 + 2^-20 of security).
    fn bounded(
        &self,
        range: Range<usize>,
        prg: &mut Prg,
        limit: f64,
        distribution: fn(&mut Prg, &mut [i8]),
    ) -> Result<RnsPoly<Eval>, CkksError> {
        let mut coefficients = vec![0i8; self.params.ring_degree()];
        loop {
            distribution(prg, &mut coefficients);
            // A key that is thrown away tells nothing about the one that is kept but what the noise model says of all.
            if declassify(self.within(&coefficients, limit)) {
                break;
            }
        }
        let poly = lift(&self.params, &coefficients, range);
        coefficients.zeroize();
        poly
    }

    pub(super) fn key_error(&self, range: Range<usize>, prg: &mut Prg) -> Result<RnsPoly<Eval>, CkksError> {
        self.bounded(range, prg, self.params.noise().key_error_norm2(), sample::centred_binomial)
    }

    /// A secret key.
    ///
    /// # Errors
    /// [`CkksError`] only when the ring refuses, which checked parameters exclude.
    pub fn secret_key(&self, prg: &mut Prg) -> Result<SecretKey, CkksError> {
        let all = self.params.extended_range(self.params.max_level());
        let s = self.bounded(all, prg, self.params.noise().secret_norm2(), sample::ternary)?;
        ledger::once(uses::SECRET, &[Tag::words(s.words())]);
        let mut owner = NOBODY;
        prg.fill_bytes(&mut owner);
        Ok(SecretKey { params: self.params.clone(), s, owner })
    }

    pub(super) fn check(&self, secret: &SecretKey) -> Result<(), CkksError> {
        if secret.params != self.params {
            return Err(CkksError::ForeignParams("the secret key"));
        }
        Ok(())
    }

    /// `(-a s + e, a)` over the data primes.
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`].
    pub fn public_key(&self, secret: &SecretKey, prg: &mut Prg) -> Result<PublicKey, CkksError> {
        self.check(secret)?;
        let range = self.params.data_range(self.params.max_level());
        let seed = Seed::fresh(prg);
        let a = seed.expand(&self.params, Domain::PublicKey, range.clone())?;
        uses::limbs(uses::CKKS_MASK, &a);
        let mut b = self.key_error(range, prg)?;
        self.params.basis().mul_sub(&mut b, &a, &secret.s)?;
        Ok(PublicKey { params: self.params.clone(), owner: secret.owner, b, a, seed })
    }

    /// Digits `(-a_d under + e_d + P g_d from, a_d)`: from key `from` to key `under`, over the primes of `level`.
    pub(super) fn switching_key(
        &self,
        from: &RnsPoly<Eval>,
        under: &RnsPoly<Eval>,
        domain: impl Fn(usize) -> Domain,
        level: Level,
        prg: &mut Prg,
    ) -> Result<SwitchingKey, CkksError> {
        let (basis, special) = (self.params.basis(), self.params.0.special);
        let level = level.min(self.params.key_level());
        let range = self.params.extended_range(level);
        let seed = Seed::fresh(prg);
        let mut key = SwitchingKey { seed, level, b: Vec::new(), a: Vec::new() };
        for (d, digit) in self.params.0.digits.iter().enumerate().take(self.params.digits_at(level)) {
            let a = seed.expand(&self.params, domain(d), range.clone())?;
            uses::limbs(uses::CKKS_MASK, &a);
            let mut b = self.key_error(range.clone(), prg)?;
            basis.mul_sub(&mut b, &a, under)?;
            // P g_d is P modulo the digit's primes and 0 modulo all others.
            let words: Vec<u64> = (0..range.end)
                .map(|i| {
                    if i >= special && digit.primes.contains(&(i - special)) {
                        self.params.0.special_product[i]
                    } else {
                        0
                    }
                })
                .collect();
            basis.scale_add(&mut b, from, &words)?;
            key.b.push(b);
            key.a.push(a);
        }
        Ok(key)
    }

    /// The key that takes three-part ciphertexts back to two parts.
    ///
    /// # Errors
    /// [`CkksError::NoSpecialPrime`], [`CkksError::ForeignParams`].
    pub fn relin_key(&self, secret: &SecretKey, prg: &mut Prg) -> Result<RelinKey, CkksError> {
        self.check(secret)?;
        self.params.needs_special()?;
        let mut square = secret.s.clone();
        self.params.basis().mul_assign(&mut square, &secret.s)?;
        let key = self.switching_key(&square, &secret.s, Domain::Relinearise, self.params.key_level(), prg);
        square.zeroize();
        Ok(RelinKey { params: self.params.clone(), owner: secret.owner, key: key? })
    }

    /// Keys for exactly these rotations and conjugations; each is as large as a relinearisation key.
    ///
    /// # Errors
    /// [`CkksError::NoSpecialPrime`], [`CkksError::ForeignParams`].
    pub fn galois_keys(
        &self,
        secret: &SecretKey,
        wanted: &[Galois],
        prg: &mut Prg,
    ) -> Result<GaloisKeys, CkksError> {
        let level = self.params.key_level();
        let wanted: Vec<_> = wanted.iter().map(|g| (*g, level)).collect();
        self.galois_keys_at(secret, &wanted, prg)
    }

    /// Keys for exactly these automorphisms, each for ciphertexts up to a level only: smaller by the primes and
    /// digits above it. An automorphism that comes twice gets the higher level.
    ///
    /// # Errors
    /// [`CkksError::NoSpecialPrime`], [`CkksError::ForeignParams`].
    pub fn galois_keys_at(
        &self,
        secret: &SecretKey,
        wanted: &[(Galois, Level)],
        prg: &mut Prg,
    ) -> Result<GaloisKeys, CkksError> {
        self.check(secret)?;
        self.params.needs_special()?;
        let mut keys = BTreeMap::new();
        let mut order = Vec::new();
        let mut levels = BTreeMap::new();
        for (element, level) in wanted {
            let exponent = element.exponent(&self.params);
            match levels.get_mut(&exponent) {
                Some(known) => *known = (*level).max(*known),
                None if exponent != 1 => {
                    levels.insert(exponent, *level);
                    order.push(exponent);
                }
                None => {}
            }
        }
        for exponent in order {
            let level = levels[&exponent];
            let inverse = super::switching::inverse_exponent(exponent, &self.params);
            // Ciphertexts are switched to sigma^-1(s), then sigma is applied to them.
            let mut under = Automorphism::new(self.params.basis(), inverse)?
                .apply_eval(self.params.basis(), &secret.s)?;
            let key = self.switching_key(&secret.s, &under, |d| Domain::Galois(exponent, d), level, prg);
            under.zeroize();
            keys.insert(exponent, GaloisKey::new(&self.params, exponent, key?)?);
        }
        Ok(GaloisKeys { params: self.params.clone(), owner: secret.owner, keys })
    }
}
