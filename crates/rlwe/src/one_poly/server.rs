//! The server of a stage: makes the set-up, answers queries.

use super::client::{flooding, transformed_shares};
use super::tables::{Folded, OnePolyContext, Tally};
use super::{OnePolyParams, Profile};
use crate::{uses, CipherError};
use hushnet_ring::ledger::{self, Tag};
use hushnet_ring::{low_mask, prg, sample, Prg, RingError};
use zeroize::Zeroize;

/// Stands in the seed derivation of weight polynomials.
const WEIGHT_STREAM: u32 = 0x5f0e;

/// A weight polynomial as answers use it. The server's secret: no `Debug`, wiped on drop.
#[derive(Clone)]
pub struct WeightKey {
    rho: Folded,
    /// Flooded: f, for the server's own share.
    weights: Option<Folded>,
}

impl Drop for WeightKey {
    fn drop(&mut self) {
        self.rho.zeroize();
        if let Some(w) = &mut self.weights {
            w.zeroize();
        }
    }
}

impl WeightKey {
    /// The mask rho that is the factor of c0.
    #[must_use]
    pub fn rho(&self) -> &Folded {
        &self.rho
    }
    /// The factor of the server's share, flooded profile.
    #[must_use]
    pub fn weights(&self) -> Option<&Folded> {
        self.weights.as_ref()
    }
}

/// What the set-up's argument excludes, for tests of the attacks that it would admit. No build but the tests' has it.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// e1 = 0.
    NoE1,
    /// e2 = 0.
    NoE2,
    /// The same e2 in every set-up, e1 fresh.
    SameE2,
    /// Flooded: the same rho in every set-up, e1 and e2 fresh.
    SameRho,
    /// Flooded: rho as wide as the weights.
    NarrowRho,
}

/// The server's half of a stage: parameters, the public b, and the seed of rho, e1, e2. No `Debug`; the seed is wiped on drop.
pub struct OnePolyServer {
    context: OnePolyContext,
    params: OnePolyParams,
    b: Folded,
    secret: [u8; 16],
    #[cfg(test)]
    pub(super) fault: Option<Fault>,
}

impl Drop for OnePolyServer {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl OnePolyServer {
    /// A new set-up for the b of `seed` and `stage`. `prg` gives the secret seed: weight polynomial k of a set-up is always
    /// the same, so that an interrupted transfer can go on.
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the generator.
    pub fn new(
        context: &OnePolyContext,
        params: &OnePolyParams,
        seed: &[u8; 32],
        stage: u32,
        prg: &mut Prg,
    ) -> Result<Self, CipherError> {
        let mut secret = [0; 16];
        prg.fill_bytes(&mut secret);
        Ok(Self {
            context: context.clone(),
            params: params.clone(),
            b: context.uniform(seed, stage)?,
            secret,
            #[cfg(test)]
            fault: None,
        })
    }

    /// The tables.
    #[must_use]
    pub fn context(&self) -> &OnePolyContext {
        &self.context
    }

    fn stream(&self, index: u32) -> Result<Prg, CipherError> {
        let mut words = [0u64; 2];
        prg::expand_words(&self.secret, WEIGHT_STREAM, index, 0, 64, &mut words)?;
        let mut seed = [0; 16];
        seed[..8].copy_from_slice(&words[0].to_le_bytes());
        seed[8..].copy_from_slice(&words[1].to_le_bytes());
        words.zeroize();
        // Made again for every client that asks, always for the same weights: what `weight_key` records.
        let prg = Prg::from_seed(seed).untracked();
        seed.zeroize();
        Ok(prg)
    }

    /// Plants the fault in freshly sampled errors.
    #[cfg(test)]
    fn spoil_errors(&self, e1: &mut [i8], e2: &mut [i8]) {
        match self.fault {
            Some(Fault::NoE1) => e1.fill(0),
            Some(Fault::NoE2) => e2.fill(0),
            Some(Fault::SameE2) => sample::centred_binomial(&mut Prg::from_seed([0x2e; 16]), e2),
            _ => {}
        }
    }

    /// Plants the fault in a freshly sampled rho.
    #[cfg(test)]
    fn spoil_rho(&self, rho: &mut Vec<i128>) {
        let mut prg = Prg::from_seed([0x40; 16]);
        match self.fault {
            Some(Fault::SameRho) => *rho = flooding(&mut prg, rho.len(), self.params.rho_bits()),
            Some(Fault::NarrowRho) => {
                rho.iter_mut().for_each(|r| *r >>= self.params.rho_bits() - self.params.beta_bits() - 8);
            }
            _ => {}
        }
    }

    /// Weight polynomial number `index` of the set-up (N signed weights), its key, and p1 and (flooded) p2 for the client when `public`.
    /// Cost: compact 1 transform, flooded 2; `public` 1 more and 1 product.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless there are N weights.
    pub fn weight_key(
        &self,
        weights: &[i64],
        index: u32,
        public: bool,
        tally: &Tally,
    ) -> Result<(WeightKey, Vec<Folded>), CipherError> {
        let n = self.context.degree();
        if weights.len() != n {
            return Err(RingError::Length { what: "weights", expected: n, got: weights.len() }.into());
        }
        let identity = [Tag::bytes(&self.secret), Tag::number(index.into())];
        ledger::same(uses::ONE_POLY_SETUP, &identity, Tag::integers(weights));
        let mut prg = self.stream(index)?;
        let (mut e1, mut e2) = (vec![0i8; n], vec![0i8; n]);
        sample::centred_binomial(&mut prg, &mut e1);
        sample::centred_binomial(&mut prg, &mut e2);
        #[cfg(test)]
        self.spoil_errors(&mut e1, &mut e2);
        let mut f: Vec<i128> = weights.iter().map(|w| i128::from(*w) << self.params.beta_bits()).collect();
        let transform = |values: &[i128], small: &[i8]| {
            let mut residues = self.context.residues_of_wide(values, small);
            let out = self.context.forward(&mut residues, tally);
            residues.zeroize();
            out
        };
        let mut sent = Vec::new();
        let key = match self.params.spec().profile {
            Profile::Compact => {
                let mut rho = transform(&f, &e2)?;
                self.context.neg_assign(&mut rho)?;
                WeightKey { rho, weights: None }
            }
            Profile::Flooded => {
                let mut rho = flooding(&mut prg, n, self.params.rho_bits());
                #[cfg(test)]
                self.spoil_rho(&mut rho);
                let hat = transform(&f, &vec![0; n])?;
                if public {
                    let mut p2: Vec<i128> = f.iter().zip(&rho).map(|(f, r)| f + r).collect();
                    sent.push(transform(&p2, &e2)?);
                    p2.zeroize();
                }
                let key = WeightKey { rho: transform(&rho, &vec![0; n])?, weights: Some(hat) };
                rho.zeroize();
                key
            }
        };
        if public {
            let mut p1 = self.context.product(&key.rho, &self.b, tally)?;
            let mut noise = self.context.forward_small(&e1, tally)?;
            self.context.add_assign(&mut p1, &noise)?;
            noise.zeroize();
            sent.insert(0, p1);
        }
        f.zeroize();
        e1.zeroize();
        e2.zeroize();
        Ok((key, sent))
    }

    /// The transform of the server's shares (N, modulo 2^l): made before the query arrives. Cost: one transform.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless there are N.
    pub fn share(&self, shares: &[u64], tally: &Tally) -> Result<Folded, CipherError> {
        transformed_shares(&self.context, &self.params, shares, tally)
    }

    /// Turns sums on the torus into an answer, words of r bits, and the server's own shares: subtracts R uniform modulo 2^r and keeps it.
    pub fn mask(&self, prg: &mut Prg, sums: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let r = self.params.response_bits();
        let mut masks = vec![0; sums.len()];
        prg.fill_words(&mut masks);
        ledger::words(uses::ONE_POLY_R, &mut masks);
        masks.iter_mut().for_each(|m| *m &= low_mask(r));
        self.mask_with(sums, masks)
    }

    /// As [`Self::mask`] with masks given: words of r bits.
    pub(super) fn mask_with(&self, sums: &[u64], mut masks: Vec<u64>) -> (Vec<u64>, Vec<u64>) {
        let (l, r) = (self.params.ring_bits(), self.params.response_bits());
        let answer = sums
            .iter()
            .zip(&masks)
            .map(|(s, m)| (s.wrapping_add(1 << (63 - r)) >> (64 - r)).wrapping_sub(*m) & low_mask(r))
            .collect();
        for m in &mut masks {
            *m = m.wrapping_add(1 << (r - l - 1)) >> (r - l) & low_mask(l);
        }
        (answer, masks)
    }
}
