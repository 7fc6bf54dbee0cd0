//! What only the owner of the data has: the secret key, encryption, key generation, opening of answers.

use super::error::expect;
use super::keys::{expand, fresh_seed, Domain, GaloisKey};
use super::params::BfvParams;
use super::{BfvError, Cipher, GaloisKeys, PublicKey, Turn};
use crate::uses;
use hushnet_ring::ledger::{self, Tag};
use hushnet_ring::rns::{Automorphism, Eval, RnsPoly};
use hushnet_ring::{low_mask, pack, sample, Prg, SmallHat};
use std::collections::BTreeMap;
use std::ops::Range;
use zeroize::{Zeroize, Zeroizing};

/// A ternary secret. No `Debug`, no serialised form; wiped on drop.
pub struct SecretKey {
    params: BfvParams,
    /// Over all primes.
    s: RnsPoly<Eval>,
    /// For products modulo `2^r`.
    small: SmallHat,
}

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.s.zeroize();
    }
}

/// A polynomial of small coefficients in evaluation form.
pub(super) fn small(
    params: &BfvParams,
    range: Range<usize>,
    prg: &mut Prg,
    distribution: fn(&mut Prg, &mut [i8]),
) -> Result<RnsPoly<Eval>, BfvError> {
    let mut coefficients = Zeroizing::new(vec![0i8; params.ring_degree()]);
    distribution(prg, &mut coefficients);
    lift(params, &coefficients, range)
}

fn lift(params: &BfvParams, coefficients: &[i8], range: Range<usize>) -> Result<RnsPoly<Eval>, BfvError> {
    let words = Zeroizing::new(coefficients.iter().map(|&c| i64::from(c) as u64).collect::<Vec<_>>());
    Ok(params.basis().forward(params.basis().from_signed(&words, range)?)?)
}

impl SecretKey {
    /// A fresh key.
    ///
    /// # Errors
    /// [`BfvError::Ring`] when the ring refuses, which checked parameters exclude.
    pub fn generate(params: &BfvParams, prg: &mut Prg) -> Result<Self, BfvError> {
        let mut s = Zeroizing::new(vec![0i8; params.ring_degree()]);
        sample::ternary(prg, &mut s);
        ledger::once(uses::SECRET, &[Tag::small(&s)]);
        let small = params.0.exact.small_hat(&s)?;
        Ok(Self { params: params.clone(), s: lift(params, &s, params.all())?, small })
    }

    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &BfvParams {
        &self.params
    }

    /// `(-a under + e, a)` over `range`, a from a seed.
    fn zero(
        &self,
        under: &RnsPoly<Eval>,
        seed: &[u8; 32],
        domain: Domain,
        range: Range<usize>,
        prg: &mut Prg,
    ) -> Result<[RnsPoly<Eval>; 2], BfvError> {
        let basis = self.params.basis();
        let a = expand(&self.params, seed, domain, range.clone())?;
        uses::limbs(uses::SLOT_MASK, &a);
        let mut b = small(&self.params, range, prg, sample::centred_binomial)?;
        basis.mul_sub(&mut b, &a, under)?;
        Ok([b, a])
    }

    /// Encrypts a slot vector (2 x N/2 values below t): a seed and one polynomial, [`BfvParams::request_len`] bytes.
    ///
    /// # Errors
    /// [`BfvError::Length`], [`BfvError::NotReduced`].
    pub fn encrypt(&self, slots: &[u64], prg: &mut Prg) -> Result<Vec<u8>, BfvError> {
        let seed = fresh_seed(prg);
        let [mut c0, _] = self.zero(&self.s, &seed, Domain::Ciphertext, self.params.data(), prg)?;
        let mut message = self.params.message(slots)?;
        self.params.basis().add_assign(&mut c0, &message)?;
        message.zeroize();
        let mut bytes = seed.to_vec();
        let bits = self.params.spec().prime_bits;
        for i in self.params.data() {
            let at = bytes.len();
            bytes.resize(at + pack::packed_len(self.params.ring_degree(), bits), 0);
            pack::pack(c0.limb(i), bits, &mut bytes[at..])?;
        }
        Ok(bytes)
    }

    /// The key that the server re-randomises with.
    ///
    /// # Errors
    /// [`BfvError::Ring`] when the ring refuses.
    pub fn public_key(&self, prg: &mut Prg) -> Result<PublicKey, BfvError> {
        let seed = fresh_seed(prg);
        let [b, a] = self.zero(&self.s, &seed, Domain::PublicKey, self.params.data(), prg)?;
        Ok(PublicKey { params: self.params.clone(), seed, b, a })
    }

    /// Keys for exactly these permutations.
    ///
    /// # Errors
    /// [`BfvError::NoSwitching`] when the parameters have no gadget.
    pub fn galois_keys(&self, wanted: &[Turn], prg: &mut Prg) -> Result<GaloisKeys, BfvError> {
        let (params, basis) = (&self.params, self.params.basis());
        let spec = params.spec();
        let mut keys = BTreeMap::new();
        let seed = fresh_seed(prg);
        for &turn in wanted.iter().filter(|t| !t.is_identity()) {
            if !spec.switches() {
                return Err(BfvError::NoSwitching);
            }
            if keys.contains_key(&turn) {
                continue;
            }
            let g = turn.exponent(spec.ring_degree);
            let back = Automorphism::new(basis, turn.inverse(params.row()).exponent(spec.ring_degree))?;
            // Ciphertexts are switched to sigma^-1(s), then sigma is applied to them.
            let mut under = back.apply_eval(basis, &self.s)?;
            let mut key = GaloisKey { b: Vec::new(), a: Vec::new(), map: Automorphism::new(basis, g)? };
            let special = if spec.special_bits > 0 { basis.moduli()[spec.primes].value() } else { 1 };
            for prime in 0..spec.primes {
                let m = basis.moduli()[prime];
                for j in 0..spec.digits_per_prime() {
                    let number = prime * spec.digits_per_prime() + j;
                    let [mut b, a] =
                        self.zero(&under, &seed, Domain::Galois(g, number), params.all(), prg)?;
                    // The gadget element is P 2^(w j) modulo its own prime and 0 modulo all others.
                    let mut words = vec![0; params.all().end];
                    words[prime] =
                        m.mul(special % m.value(), m.pow(2, (j as u64) * u64::from(spec.digit_bits)));
                    basis.scale_add(&mut b, &self.s, &words)?;
                    key.b.push(b);
                    key.a.push(a);
                }
            }
            under.zeroize();
            keys.insert(turn, key);
        }
        Ok(GaloisKeys { params: params.clone(), seed, keys })
    }

    /// `c0 + c1 s` of an answer, modulo 2^r.
    fn phase(&self, answer: &[u8]) -> Result<Zeroizing<Vec<u64>>, BfvError> {
        let (n, r) = (self.params.ring_degree(), self.params.response_bits());
        expect("answer", answer.len(), self.params.answer_len())?;
        let (first, second) = answer.split_at(answer.len() / 2);
        let (mut c0, mut c1) = (vec![0; n], vec![0; n]);
        pack::unpack(first, r, &mut c0)?;
        pack::unpack(second, r, &mut c1)?;
        let exact = &self.params.0.exact;
        let hat = exact.words_hat(&c1, r)?;
        let mut phase = Zeroizing::new(vec![0; n]);
        exact.multiply_into(&hat, &self.small, &mut phase, &mut exact.scratch())?;
        phase.iter_mut().zip(&c0).for_each(|(p, c)| *p = p.wrapping_add(*c) & low_mask(r));
        Ok(phase)
    }

    /// Opens an answer of [`super::Evaluator::answer`]: its slots.
    ///
    /// # Errors
    /// [`BfvError::Length`] unless it has [`BfvParams::answer_len`] bytes.
    pub fn open(&self, answer: &[u8]) -> Result<Vec<u64>, BfvError> {
        let (r, t) = (self.params.response_bits(), self.params.plain_modulus());
        let mut phase = self.phase(answer)?;
        for p in phase.iter_mut() {
            // round(t v / 2^r) mod t; t v < 2^(30 + 41).
            let m = ((u128::from(t) * u128::from(*p) + (1 << (r - 1))) >> r) as u64;
            *p = m.min(m.wrapping_sub(t));
        }
        self.params.slots_of(&mut phase)
    }

    /// Distance of every coefficient of an answer's phase from its message, in units of 1/t.
    #[cfg(test)]
    pub(super) fn phase_error(&self, answer: &[u8]) -> Result<Vec<f64>, BfvError> {
        let (r, t) = (self.params.response_bits(), self.params.plain_modulus());
        Ok(self
            .phase(answer)?
            .iter()
            .map(|&v| {
                let units = v as f64 * t as f64 / f64::from(r).exp2();
                units - units.round()
            })
            .collect())
    }

    /// Largest coefficient and Euclidean norm of the noise of a ciphertext whose slots are known: what tests measure.
    ///
    /// # Errors
    /// [`BfvError::ForeignParams`]; [`BfvError::Length`], [`BfvError::NotReduced`] for the slots.
    pub fn noise(&self, c: &Cipher, slots: &[u64]) -> Result<(f64, f64), BfvError> {
        if c.params != self.params {
            return Err(BfvError::ForeignParams("the ciphertext"));
        }
        let basis = self.params.basis();
        let mut phase = basis.product(self.params.data(), &c.parts[1], &self.s)?;
        basis.add_assign(&mut phase, &c.parts[0])?;
        basis.sub_assign(&mut phase, &self.params.message(slots)?)?;
        let reals = basis.to_reals(&basis.inverse(phase)?)?;
        let largest = reals.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        Ok((largest, reals.iter().map(|v| v * v).sum::<f64>().sqrt()))
    }
}
