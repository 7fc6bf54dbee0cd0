//! The server of a packed stage: adds its share, multiplies by weights, re-randomises, keeps its part.

use super::client::PUBLIC_KEY_STAGE;
use super::{add_mod, check_places, signed_mod, PackedContext, PackedParams, PackedPublicKey};
use crate::{uses, CipherError};
use hushnet_ring::{ledger, low_mask, mac, sample, simd, Prg, RingError};
use zeroize::Zeroize;

/// A weight polynomial in evaluation form, made once for a model. The server's secret: no `Debug`.
#[derive(Clone)]
pub struct WeightPoly(pub(super) Vec<u64>);

/// What a server holds of a session: the client's public key, in evaluation form. No `Debug`.
pub struct PackedServer {
    context: PackedContext,
    pk0: Vec<u64>,
    pk1: Vec<u64>,
}

impl WeightPoly {
    /// From N signed coefficients below the prime in size, as all weights of 16 bits are. Layers whose weights do not fit the memory make
    /// each of their polynomials anew for every image, so this is as dear to them as the product itself.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless there are N coefficients.
    pub fn new(context: &PackedContext, coefficients: &[i64]) -> Result<Self, CipherError> {
        let p = context.prime();
        debug_assert!(coefficients.iter().all(|c| c.unsigned_abs() < p), "weights below the prime");
        let mut hat: Vec<u64> = coefficients.iter().map(|c| signed_mod(*c, p)).collect();
        context.ntt().forward(&mut hat)?;
        Ok(Self(hat))
    }

    /// The polynomial times a residue `factor` below the prime, in evaluation form.
    #[must_use]
    pub fn times(mut self, context: &PackedContext, factor: u64) -> Self {
        let modulus = context.inner.modulus;
        let factor = modulus.factor(factor);
        self.0.iter_mut().for_each(|w| *w = modulus.mul_factor(*w, factor));
        self
    }

    /// Zero, for others to be written over.
    #[must_use]
    pub fn zero(context: &PackedContext) -> Self {
        Self(vec![0; context.ring_degree()])
    }

    /// The slot values, N words below the prime.
    #[must_use]
    pub fn slots(&self) -> &[u64] {
        &self.0
    }
}

impl PackedServer {
    /// Checks and transforms a client's public key.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless it has N words; [`CipherError::NotReduced`] when one is not below the prime.
    pub fn new(context: &PackedContext, key: &PackedPublicKey) -> Result<Self, CipherError> {
        let mut pk0 = key.pk0.clone();
        check_reduced(&pk0, context.prime())?;
        context.ntt().forward(&mut pk0)?;
        let mut pk1 = vec![0; context.ring_degree()];
        context.mask_hat(&key.seed, PUBLIC_KEY_STAGE, 0, &mut pk1)?;
        Ok(Self { context: context.clone(), pk0, pk1 })
    }

    pub(super) fn context(&self) -> &PackedContext {
        &self.context
    }

    /// Adds the server's share (N values modulo 2^l; may be empty: all zero) to a received c0 (words of [`PackedParams::request_bits`] bits),
    /// and transforms it in place.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless both have N elements; [`CipherError::NotReduced`] when a word stands for none below the prime.
    pub fn absorb(&self, params: &PackedParams, share: &[u64], c0: &mut [u64]) -> Result<(), CipherError> {
        let (p, dropped) = (self.context.prime(), params.request_dropped());
        check_reduced(c0, ((p - 1) >> dropped) + 1)?;
        c0.iter_mut().for_each(|c| *c <<= dropped);
        if !share.is_empty() {
            if share.len() != c0.len() {
                return Err(RingError::Length {
                    what: "share polynomial",
                    expected: c0.len(),
                    got: share.len(),
                }
                .into());
            }
            for (c, x) in c0.iter_mut().zip(share) {
                *c = add_mod(*c, self.context.scale_share(*x, params.ring_bits()), p);
            }
        }
        Ok(self.context.ntt().forward(c0)?)
    }

    /// `sum_i w_i (c0_i, c1_i)` in evaluation form.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when lengths differ or there are more than 4096 terms.
    pub fn combine(
        &self,
        c0: &[&[u64]],
        c1: &[&[u64]],
        weights: &[&WeightPoly],
        out0: &mut [u64],
        out1: &mut [u64],
    ) -> Result<(), CipherError> {
        let w: Vec<&[u64]> = weights.iter().map(|w| w.slots()).collect();
        Ok(mac::dot(simd::isa(), &self.context.inner.dot, &[c0, c1], &w, &mut [out0, out1])?)
    }

    /// Turns a combined ciphertext (evaluation form, destroyed) into an answer: re-randomised, c1 switched to 2^r, N words in the place of `sum1`. Writes the
    /// server's own shares of the coefficients at `places`; c0 does not travel.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when lengths differ or a place is not below N.
    pub fn answer(
        &self,
        params: &PackedParams,
        prg: &mut Prg,
        sum0: &mut [u64],
        sum1: &mut [u64],
        places: &[usize],
        share: &mut [u64],
    ) -> Result<(), CipherError> {
        check_places(self.context.ring_degree(), places, share)?;
        self.rerandomise(prg, sum0, sum1)?;
        self.part(params, sum0, sum1, places, share);
        sum0.zeroize();
        Ok(())
    }

    /// Both parties' parts of a phase: c1 in r bits, and the server's shares.
    pub(super) fn part(
        &self,
        params: &PackedParams,
        sum0: &[u64],
        sum1: &mut [u64],
        places: &[usize],
        share: &mut [u64],
    ) {
        let switch = |bits| Switch::new(self.context.prime(), bits);
        let (sent, own) = (switch(params.response_bits()), switch(params.ring_bits()));
        sum1.iter_mut().for_each(|c| *c = sent.apply(*c));
        share.iter_mut().zip(places).for_each(|(s, place)| *s = own.apply(sum0[*place]));
    }

    /// Adds `(pk0 u, pk1 u + e1)` with fresh small u and e1, out of evaluation form. (c0 needs no error: it stays here.)
    pub(super) fn rerandomise(
        &self,
        prg: &mut Prg,
        sum0: &mut [u64],
        sum1: &mut [u64],
    ) -> Result<(), CipherError> {
        let (ntt, p) = (self.context.ntt(), self.context.prime());
        let mut small = vec![0i8; self.context.ring_degree()];
        sample::ternary(prg, &mut small);
        ledger::small(uses::PACKED_RERANDOMISER, &mut small);
        let mut u: Vec<u64> = small.iter().map(|v| signed_mod(i64::from(*v), p)).collect();
        ntt.forward(&mut u)?;
        for (sum, key) in [(&mut *sum0, &self.pk0), (&mut *sum1, &self.pk1)] {
            let mut product = u.clone();
            ntt.multiply_slots(&mut product, key)?;
            sum.iter_mut().zip(&product).for_each(|(s, x)| *s = add_mod(*s, *x, p));
            product.zeroize();
            ntt.inverse(sum)?;
        }
        u.zeroize();
        sample::centred_binomial(prg, &mut small);
        sum1.iter_mut().zip(&small).for_each(|(c, e)| *c = add_mod(*c, signed_mod(i64::from(*e), p), p));
        small.zeroize();
        Ok(())
    }
}

/// `round(2^r x / p) mod 2^r`, to within one unit.
pub(crate) struct Switch {
    factor: u64,
    mask: u64,
}

impl Switch {
    pub(crate) fn new(p: u64, response_bits: u32) -> Self {
        // 2^(64 + r) / p < 2^64 while r < 50 <= log2 p + 1.
        Self {
            factor: ((1u128 << (64 + response_bits)) / u128::from(p)) as u64,
            mask: low_mask(response_bits),
        }
    }

    pub(crate) fn apply(&self, x: u64) -> u64 {
        (((u128::from(x) * u128::from(self.factor) + (1 << 63)) >> 64) as u64) & self.mask
    }
}

fn check_reduced(words: &[u64], p: u64) -> Result<(), CipherError> {
    if words.iter().fold(false, |bad, w| bad | (*w >= p)) {
        return Err(CipherError::NotReduced);
    }
    Ok(())
}
