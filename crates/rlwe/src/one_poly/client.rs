//! The client of a stage. It has no key: every query has a secret of its own.

use super::tables::{Folded, OnePolyContext, Tally};
use super::{OnePolyParams, Profile};
use crate::{uses, CipherError};
use hushnet_ring::{ledger, low_mask, sample, Prg, RingError};
use zeroize::Zeroize;

/// What hides one polynomial of one query, made before the input is known. Serves once. No `Debug`; wiped on drop.
pub struct Blind {
    v: Folded,
    /// `-(v b + e0)`.
    base: Folded,
    /// Flooded: the transformed share, once known.
    share: Option<Folded>,
}

impl Drop for Blind {
    fn drop(&mut self) {
        self.v.zeroize();
        self.base.zeroize();
        if let Some(share) = &mut self.share {
            share.zeroize();
        }
    }
}

impl Blind {
    /// The secret v that is the factor of p1.
    #[must_use]
    pub fn secret(&self) -> &Folded {
        &self.v
    }

    /// The factor of p2, after [`OnePolyClient::request`] of the flooded profile.
    #[must_use]
    pub fn share(&self) -> Option<&Folded> {
        self.share.as_ref()
    }
}

/// The client's half of a stage: parameters and the public b.
#[derive(Clone)]
pub struct OnePolyClient {
    context: OnePolyContext,
    params: OnePolyParams,
    b: Folded,
}

impl OnePolyClient {
    /// For the b of `seed` and `stage`.
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the generator.
    pub fn new(
        context: &OnePolyContext,
        params: &OnePolyParams,
        seed: &[u8; 32],
        stage: u32,
    ) -> Result<Self, CipherError> {
        Ok(Self { context: context.clone(), params: params.clone(), b: context.uniform(seed, stage)? })
    }

    /// The tables of the ring that the client works with.
    #[must_use]
    pub fn context(&self) -> &OnePolyContext {
        &self.context
    }

    /// A fresh v and `-(v b + e0)`. Cost: two transforms, one product.
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the ring.
    pub fn blind(&self, prg: &mut Prg, tally: &Tally) -> Result<Blind, CipherError> {
        let mut small = vec![0i8; self.context.degree()];
        sample::ternary(prg, &mut small);
        ledger::small(uses::ONE_POLY_SECRET, &mut small);
        let v = self.context.forward_small(&small, tally)?;
        let mut base = self.context.product(&v, &self.b, tally)?;
        sample::centred_binomial(prg, &mut small);
        let mut e0 = self.context.forward_small(&small, tally)?;
        small.zeroize();
        self.context.add_assign(&mut base, &e0)?;
        self.context.neg_assign(&mut base)?;
        e0.zeroize();
        Ok(Blind { v, base, share: None })
    }

    /// c0 of N shares modulo 2^l, packed into `out`; consumes the blind's base. Cost: one transform.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when a length is wrong.
    pub fn request(
        &self,
        blind: &mut Blind,
        shares: &[u64],
        out: &mut [u8],
        tally: &Tally,
    ) -> Result<(), CipherError> {
        let mut i = transformed_shares(&self.context, &self.params, shares, tally)?;
        self.context.sub_assign(&mut blind.base, &i)?;
        self.context.pack(&blind.base, out)?;
        match self.params.spec().profile {
            Profile::Compact => i.zeroize(),
            Profile::Flooded => blind.share = Some(i),
        }
        Ok(())
    }

    /// The client's shares modulo 2^l from an answer's words of r bits and its own part on the torus.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when lengths differ.
    pub fn open(&self, answer: &[u64], own: &[u64], out: &mut [u64]) -> Result<(), CipherError> {
        for (what, len) in [("own part", own.len()), ("shares", out.len())] {
            if len != answer.len() {
                return Err(RingError::Length { what, expected: answer.len(), got: len }.into());
            }
        }
        let (l, r) = (self.params.ring_bits(), self.params.response_bits());
        for ((o, a), y) in out.iter_mut().zip(answer).zip(own) {
            let phase = (a << (64 - r)).wrapping_add(*y);
            *o = phase.wrapping_add(1 << (63 - l)) >> (64 - l) & low_mask(l);
        }
        Ok(())
    }
}

/// The transform of `round(Q x / (t beta))` for N shares x.
pub(super) fn transformed_shares(
    context: &OnePolyContext,
    params: &OnePolyParams,
    shares: &[u64],
    tally: &Tally,
) -> Result<Folded, CipherError> {
    let n = context.degree();
    if shares.len() != n {
        return Err(RingError::Length { what: "share polynomial", expected: n, got: shares.len() }.into());
    }
    let mut residues = Vec::with_capacity(context.words());
    let d = params.ring_bits() + params.beta_bits();
    context.residues_of_shares(shares, params.ring_bits(), d, &mut residues);
    let out = context.forward(&mut residues, tally);
    residues.zeroize();
    out
}

/// Uniform integers on [-2^(bits-1), 2^(bits-1)).
pub(super) fn flooding(prg: &mut Prg, n: usize, bits: u32) -> Vec<i128> {
    let mut words = vec![0u64; 2 * n];
    prg.fill_words(&mut words);
    let half = 1i128 << (bits - 1);
    let out = words
        .chunks_exact(2)
        .map(|w| {
            let v = u128::from(w[0]) | u128::from(w[1]) << 64;
            (v & ((1 << bits) - 1)) as i128 - half
        })
        .collect();
    words.zeroize();
    out
}
