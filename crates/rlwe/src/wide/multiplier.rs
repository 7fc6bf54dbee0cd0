//! The multiplier of a product of shares: multiplies by its own share, re-randomises, keeps its part.

use super::key::PUBLIC_KEY_STAGE;
use super::{
    check_places, request, signed_mod, WideContext, WideParams, WidePublicKey, DATA_PRIMES, RING_DEGREE,
};
use crate::pack_lwe::{ring, Pair};
use crate::{uses, CipherError};
use hushnet_ring::rns::{Coef, Eval, RnsPoly};
use hushnet_ring::{ledger, mac, sample, simd, wipe, Prg, RingError};
use zeroize::Zeroize;

/// Products of one limb that are summed before they are added to the rest.
const TERMS: usize = 2048;

/// A polynomial of the multiplier's own share, in evaluation form. No `Debug`; wiped on drop.
pub struct WidePlain(pub(super) RnsPoly<Eval>);

impl Drop for WidePlain {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A ciphertext of a request in evaluation form.
pub struct WideCipher(pub(super) Pair);

/// What a multiplier holds of a session: the holder's public key, in evaluation form. No `Debug`.
pub struct WideMultiplier {
    context: WideContext,
    key: [RnsPoly<Eval>; 2],
}

impl WidePlain {
    /// From N signed coefficients below 2^50 in absolute value, divided by `spacing`, which merging multiplies by.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless there are N coefficients.
    pub fn new(context: &WideContext, coefficients: &[i64], spacing: usize) -> Result<Self, CipherError> {
        let basis = context.basis();
        let mut words: Vec<u64> = coefficients.iter().map(|c| *c as u64).collect();
        let poly = basis.from_signed(&words, 0..DATA_PRIMES);
        wipe(&mut words);
        let mut poly = basis.forward(poly.map_err(ring)?).map_err(ring)?;
        let inverses: Vec<u64> =
            basis.moduli()[..DATA_PRIMES].iter().map(|m| m.inv(spacing as u64)).collect();
        basis.scale_assign(&mut poly, &inverses).map_err(ring)?;
        Ok(Self(poly))
    }
}

impl WideMultiplier {
    /// Transforms a holder's public key.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when the ring refuses an operand.
    pub fn new(context: &WideContext, key: &WidePublicKey) -> Result<Self, CipherError> {
        let pk0 = context.basis().forward(key.pk0.clone()).map_err(ring)?;
        let pk1 = context.mask(&key.seed, PUBLIC_KEY_STAGE, 0)?;
        Ok(Self { context: context.clone(), key: [pk0, pk1] })
    }

    /// Reads a ciphertext of a request; c1 follows from `seed`, `stage` and `index`.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless there are [`WideParams::request_len`] bytes.
    pub fn read(
        &self,
        params: &WideParams,
        (seed, stage, index): (&[u8; 32], u32, u32),
        message: &[u8],
    ) -> Result<WideCipher, CipherError> {
        let c0 =
            self.context.basis().forward(request::read(&self.context, params, message)?).map_err(ring)?;
        Ok(WideCipher([c0, self.context.mask(seed, stage, index)?]))
    }

    /// `sum_i w_i (c0_i, c1_i)` in evaluation form.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless there are as many polynomials as ciphertexts, and at least one.
    pub fn combine(&self, ciphers: &[&WideCipher], plain: &[WidePlain]) -> Result<Pair, CipherError> {
        if ciphers.len() != plain.len() || plain.is_empty() {
            let (what, expected, got) = ("plain polynomials", ciphers.len().max(1), plain.len());
            return Err(RingError::Length { what, expected, got }.into());
        }
        let mut sums: Option<Pair> = None;
        for (ciphers, plain) in ciphers.chunks(TERMS).zip(plain.chunks(TERMS)) {
            let part = self.dot(ciphers, plain)?;
            let Some(sums) = &mut sums else {
                sums = Some(part);
                continue;
            };
            for (sum, part) in sums.iter_mut().zip(&part) {
                self.context.basis().add_assign(sum, part).map_err(ring)?;
            }
        }
        sums.ok_or_else(|| RingError::Length { what: "plain polynomials", expected: 1, got: 0 }.into())
    }

    /// [`Self::combine`] of at most [`TERMS`] products.
    fn dot(&self, ciphers: &[&WideCipher], plain: &[WidePlain]) -> Result<Pair, CipherError> {
        let mut p1 = self.context.merge.zero()?;
        let p0 = self.context.basis().fill_with(0..DATA_PRIMES, |i, limb| {
            let x: [Vec<&[u64]>; 2] = [0, 1].map(|k| ciphers.iter().map(|c| c.0[k].limb(i)).collect());
            let w: Vec<&[u64]> = plain.iter().map(|w| w.0.limb(i)).collect();
            let (isa, dot) = (simd::isa(), &self.context.inner.dot[i]);
            Ok(mac::dot(isa, dot, &[&x[0], &x[1]], &w, &mut [limb, p1.limb_mut(i)])?)
        });
        Ok([p0.map_err(ring)?, p1])
    }

    /// Turns a combined ciphertext into an answer: re-randomised, c1 switched to 2^r. Returns the N words of c1, and its own shares of the
    /// coefficients at `places`; c0 does not travel.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when a place is not below N.
    pub fn answer(
        &self,
        params: &WideParams,
        prg: &mut Prg,
        sum: Pair,
        places: &[usize],
    ) -> Result<[Vec<u64>; 2], CipherError> {
        check_places(places)?;
        let [mut s0, s1] = self.rerandomise(prg, sum)?;
        let (basis, switch) = (self.context.basis(), &self.context.inner.switch);
        let at = |poly: &RnsPoly<Coef>, place: usize, bits: u32| {
            switch.apply(basis, std::array::from_fn(|i| poly.limb(i)[place]), bits)
        };
        let c1 = (0..RING_DEGREE).map(|place| at(&s1, place, params.response_bits())).collect();
        let own = places.iter().map(|place| at(&s0, *place, params.ring_bits())).collect();
        s0.zeroize();
        Ok([c1, own])
    }

    /// Adds `(pk0 u, pk1 u + e1)` with fresh small u and e1, out of evaluation form. (c0 needs no error: it stays here.)
    pub(super) fn rerandomise(
        &self,
        prg: &mut Prg,
        mut sum: Pair,
    ) -> Result<[RnsPoly<Coef>; 2], CipherError> {
        let basis = self.context.basis();
        let mut small = vec![0i8; RING_DEGREE];
        sample::ternary(prg, &mut small);
        ledger::small(uses::WIDE_RERANDOMISER, &mut small);
        let mut u = self.context.merge.small(&small, false)?;
        for (part, key) in sum.iter_mut().zip(&self.key) {
            basis.mul_add(part, &u, key).map_err(ring)?;
        }
        u.zeroize();
        let [s0, s1] = sum.map(|part| basis.inverse(part).map_err(ring));
        let (s0, mut s1) = (s0?, s1?);
        sample::centred_binomial(prg, &mut small);
        for i in 0..DATA_PRIMES {
            let m = &basis.moduli()[i];
            for (c, e) in s1.limb_mut(i).iter_mut().zip(&small) {
                *c = m.add(*c, signed_mod(i64::from(*e), m.value()));
            }
        }
        wipe(&mut small);
        Ok([s0, s1])
    }
}
