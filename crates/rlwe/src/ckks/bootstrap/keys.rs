//! The keys of a bootstrap: the ephemeral sparse secret's pair, and which rotations there must be.

use super::linear::{rotations, Steps};
use super::BootstrapParams;
use crate::ckks::ciphertext::{Domain, Seed};
use crate::ckks::client::{lift, KeyGenerator, SecretKey};
use crate::ckks::switching::{Owner, SwitchingKey};
use crate::ckks::{CkksError, CkksParams, Galois, GaloisKeys, Level, RelinKey};
use crate::uses;
use hushnet_ring::ledger::{self, Tag};
use hushnet_ring::Prg;
use zeroize::Zeroize;

/// The pair of keys that leads to the ephemeral sparse secret and back. Both are public; the ephemeral secret is kept by nobody.
#[derive(Clone)]
pub struct Encapsulation {
    pub(in crate::ckks) params: CkksParams,
    pub(in crate::ckks) owner: Owner,
    /// From the secret to the sparse one, over the last special prime and q_0.
    pub(in crate::ckks) down: SwitchingKey,
    /// From the sparse secret to the secret, over the last special prime and all data primes: one a part of what is raised.
    pub(in crate::ckks) up: SwitchingKey,
}

/// What the server needs to bootstrap; the first two serve circuits too.
#[derive(Clone, Copy)]
pub struct BootstrapKeys<'a> {
    /// For products of ciphertexts.
    pub relin: &'a RelinKey,
    /// At least [`BootstrapParams::rotations`].
    pub galois: &'a GaloisKeys,
    /// To the ephemeral secret and back.
    pub encapsulation: &'a Encapsulation,
}

impl BootstrapKeys<'_> {
    /// That every rotation of a bootstrap has a key of its level, and that all keys belong to one secret.
    pub(in crate::ckks) fn serve(&self, params: &BootstrapParams) -> Result<(), CkksError> {
        let own = [&self.relin.params, &self.galois.params, &self.encapsulation.params];
        if own.iter().any(|p| **p != params.params) {
            return Err(CkksError::ForeignParams("the bootstrapping keys"));
        }
        if self.encapsulation.up.b.len() != params.parts() {
            return Err(CkksError::ForeignParams("the ephemeral secret's keys"));
        }
        let lacks = |(g, level): &(Galois, Level)| self.galois.level_of(*g).is_none_or(|l| l < *level);
        match needed(params).into_iter().find(lacks) {
            Some((g, level)) => Err(CkksError::MissingKey(format!("{g:?} at level {}", level.0))),
            None if [self.galois.owner, self.encapsulation.owner].iter().any(|o| *o != self.relin.owner) => {
                Err(CkksError::ForeignSecret("one of the bootstrapping keys"))
            }
            None => Ok(()),
        }
    }
}

/// A secret of `weight` coefficients +-1, uniform among all such. Constant time: every draw looks at every coefficient.
fn sparse(degree: usize, weight: usize, prg: &mut Prg) -> Vec<i8> {
    let mut out = vec![0i8; degree];
    let mut words = vec![0u64; 2 * weight];
    prg.fill_words(&mut words);
    for (k, pair) in words.chunks_exact(2).enumerate() {
        let free = (degree - k) as u64;
        // The position among those still zero, within 2^-48 of uniform; the sign.
        let mut left = ((u128::from(pair[0]) * u128::from(free)) >> 64) as u64;
        let sign = (pair[1] & 2) as i8 - 1;
        for c in &mut out {
            let zero = u64::from(*c as u8).wrapping_sub(1) >> 63;
            // 1 where this is the position: zero, and none left to pass.
            let here = zero & (left.wrapping_sub(1) >> 63) & (left >> 63 ^ 1);
            *c |= sign & (here as i8).wrapping_neg();
            left = left.wrapping_sub(zero);
        }
    }
    words.zeroize();
    out
}

/// Coefficients of X^i s at multiples of `parts`, for i below it.
fn part_of_turned(s: &[i8], i: usize, parts: usize) -> Vec<i8> {
    let mut out = vec![0; s.len()];
    for k in (0..s.len()).step_by(parts) {
        out[k] = if k >= i { s[k - i] } else { -s[s.len() + k - i] };
    }
    out
}

/// Rotations that a bootstrap needs, each with the highest level it is used at.
pub(super) fn needed(params: &BootstrapParams) -> Vec<(Galois, Level)> {
    let (spec, n) = (&params.spec, params.spec.slots);
    let (mut stages, mut turned) = (Vec::new(), 0i64);
    let mut put = |stride: usize, radix: u32, level: Level| {
        let steps = Steps::new(n, stride, radix);
        turned += steps.first * steps.stride as i64;
        stages.push((steps, level));
    };
    let mut stride = 1;
    for (i, &r) in spec.to_slots.iter().enumerate() {
        put(stride, r, params.slot_level(i));
        stride <<= r;
    }
    for (i, &r) in spec.to_coefficients.iter().enumerate() {
        stride >>= r;
        put(stride, r, params.coefficient_level(i));
    }
    let mut all = rotations(&stages);
    let mut at = |k: i64, level: Level| {
        let known = all.entry(k).or_insert(level);
        *known = (*known).max(level);
    };
    let rest = turned.rem_euclid(n as i64);
    if rest != 0 {
        at(rest, params.entry_level());
    }
    let mut k = n;
    while k < params.params.slots() / params.parts() {
        at(k as i64, params.params.max_level());
        k *= 2;
    }
    let rotations = all.into_iter().map(|(k, level)| (Galois::Rotate(k), level));
    rotations.chain([(Galois::Conjugate, params.sine_level())]).collect()
}

impl BootstrapParams {
    /// Automorphisms that a bootstrap needs keys of, each with the highest level it is used at; the last one is the conjugation.
    #[must_use]
    pub fn rotations(&self) -> Vec<(Galois, Level)> {
        needed(self)
    }
}

impl KeyGenerator {
    /// The pair of a fresh ephemeral secret, which is wiped before this returns.
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`] when this generator or the secret has other parameters.
    pub fn encapsulation(
        &self,
        secret: &SecretKey,
        params: &BootstrapParams,
        prg: &mut Prg,
    ) -> Result<Encapsulation, CkksError> {
        self.check(secret)?;
        if params.params != self.params {
            return Err(CkksError::ForeignParams("the bootstrap"));
        }
        let mut coefficients = sparse(self.params.ring_degree(), params.spec.weight, prg);
        let down = self.down_key(secret, &coefficients, prg);
        let up = self.up_key(secret, &coefficients, params.parts(), prg);
        coefficients.zeroize();
        Ok(Encapsulation { params: self.params.clone(), owner: secret.owner, down: down?, up: up? })
    }

    /// `(-a s' + e + p s, a)` modulo p q_0, p the last special prime.
    fn down_key(&self, secret: &SecretKey, sparse: &[i8], prg: &mut Prg) -> Result<SwitchingKey, CkksError> {
        let (basis, k) = (self.params.basis(), self.params.0.special);
        let range = super::raise::down_range(&self.params);
        let mut ephemeral = lift(&self.params, sparse, range.clone())?;
        ledger::once(uses::SECRET, &[Tag::words(ephemeral.words())]);
        let seed = Seed::fresh(prg);
        let a = seed.expand(&self.params, Domain::Encapsulate, range.clone())?;
        uses::limbs(uses::CKKS_MASK, &a);
        let mut b = self.key_error(range, prg)?;
        let masked = basis.mul_sub(&mut b, &a, &ephemeral);
        ephemeral.zeroize();
        masked?;
        let mut words = vec![0; k + 1];
        words[k] = basis.moduli()[k - 1].value() % basis.moduli()[k].value();
        basis.scale_add(&mut b, &secret.s, &words)?;
        Ok(SwitchingKey { seed, level: Level(1), b: vec![b], a: vec![a] })
    }

    /// For every part i `(-a_i s + e_i + p t_i, a_i)` modulo p Q_L, t_i the part of X^i s' that is a polynomial in X^parts, p the last special prime.
    fn up_key(
        &self,
        secret: &SecretKey,
        sparse: &[i8],
        parts: usize,
        prg: &mut Prg,
    ) -> Result<SwitchingKey, CkksError> {
        let (basis, k, level) = (self.params.basis(), self.params.0.special, self.params.max_level());
        let range = super::raise::up_range(&self.params);
        let p = basis.moduli()[k - 1].value();
        let mut words = vec![0; range.end];
        words.iter_mut().zip(basis.moduli()).skip(k).for_each(|(w, q)| *w = p % q.value());
        let seed = Seed::fresh(prg);
        let mut key = SwitchingKey { seed, level, b: Vec::new(), a: Vec::new() };
        for i in 0..parts {
            let a = seed.expand(&self.params, Domain::Release(i), range.clone())?;
            uses::limbs(uses::CKKS_MASK, &a);
            let mut b = self.key_error(range.clone(), prg)?;
            basis.mul_sub(&mut b, &a, &secret.s)?;
            let mut part = part_of_turned(sparse, i, parts);
            let lifted = lift(&self.params, &part, range.clone());
            part.zeroize();
            let mut lifted = lifted?;
            let hidden = basis.scale_add(&mut b, &lifted, &words);
            lifted.zeroize();
            hidden?;
            key.b.push(b);
            key.a.push(a);
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_turned_secret_are_its_products_coefficients() {
        let n = 32usize;
        let s: Vec<i8> = (0..n).map(|k| (k * k % 7) as i8 - 3).collect();
        for parts in [1, 2, 4, 8] {
            for i in 0..parts {
                // X^i s modulo X^n + 1, by the definition.
                let mut turned = vec![0; n];
                s.iter().enumerate().for_each(|(k, c)| turned[(k + i) % n] = if k + i < n { *c } else { -c });
                let kept: Vec<i8> =
                    turned.iter().enumerate().map(|(k, c)| if k % parts == 0 { *c } else { 0 }).collect();
                assert_eq!(part_of_turned(&s, i, parts), kept);
            }
        }
    }

    #[test]
    fn sparse_secrets_have_their_weight_and_spread_over_all_positions() {
        let mut prg = Prg::from_seed([5; 16]);
        let (mut ones, mut sum) = (vec![0u32; 64], 0i64);
        for _ in 0..4000 {
            let s = sparse(64, 32, &mut prg);
            assert_eq!(s.iter().filter(|c| c.abs() == 1).count(), 32);
            assert_eq!(s.iter().filter(|c| **c == 0).count(), 32);
            ones.iter_mut().zip(&s).for_each(|(o, c)| *o += u32::from(*c != 0));
            sum += s.iter().map(|c| i64::from(*c)).sum::<i64>();
        }
        // 2,000 expected, sd 31.6; sums of 128,000 signs have sd 358.
        assert!(ones.iter().all(|o| (1840..2160).contains(o)), "{ones:?}");
        assert!(sum.abs() < 1800, "{sum}");
    }
}
