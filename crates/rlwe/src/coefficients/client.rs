//! The client of a coefficient-packed stage: one secret for every tile of an image, symmetric encryption, exact decryption.

use super::CoefficientParams;
use crate::packed::{add_mod, signed_mod, sub_mod, PackedContext, PRIME_BITS};
use crate::{uses, CipherError};
use hushnet_ring::ledger::{self, Tag};
use hushnet_ring::prime::{wide, Products};
use hushnet_ring::{sample, Prg, RingError};
use zeroize::{Zeroize, Zeroizing};

/// The secret of one tile of one image. No `Debug`; wiped on drop.
pub struct CoefficientKey {
    context: PackedContext,
    /// s in evaluation form.
    secret_hat: Zeroizing<Vec<u64>>,
    tag: Tag,
}

/// Room for the operations of one thread. Wiped on drop.
pub struct CoefficientScratch {
    words: Vec<u64>,
    errors: Vec<i8>,
}

impl CoefficientScratch {
    /// Room at a ring degree.
    #[must_use]
    pub fn new(context: &PackedContext) -> Self {
        let n = context.ring_degree();
        Self { words: vec![0; n], errors: vec![0; n] }
    }
}

impl Drop for CoefficientScratch {
    fn drop(&mut self) {
        self.words.zeroize();
        self.errors.zeroize();
    }
}

impl CoefficientKey {
    /// A fresh secret, uniform ternary.
    ///
    /// # Errors
    /// [`CipherError::Ring`] only if the context is inconsistent.
    pub fn generate(context: &PackedContext, prg: &mut Prg) -> Result<Self, CipherError> {
        let mut s = Zeroizing::new(vec![0i8; context.ring_degree()]);
        sample::ternary(prg, &mut s);
        let tag = Tag::small(&s);
        ledger::once(uses::SECRET, &[tag]);
        let p = context.prime();
        let mut secret_hat: Zeroizing<Vec<u64>> =
            Zeroizing::new(s.iter().map(|v| signed_mod(i64::from(*v), p)).collect());
        context.ntt().forward(&mut secret_hat)?;
        Ok(Self { context: context.clone(), secret_hat, tag })
    }

    /// `c0 = -(a s) + e + D m mod p` without its `50 - upload` low bits: `mask` is a in evaluation form, e a fresh error, and `messages` are N integers
    /// below 2^32 in absolute value. A mask must never serve twice under one key.
    ///
    /// # Errors
    /// [`CipherError`] when the parameters are of another degree or a slice has not N elements.
    pub fn encrypt_into(
        &self,
        params: &CoefficientParams,
        mask: &[u64],
        messages: &[i64],
        prg: &mut Prg,
        scratch: &mut CoefficientScratch,
        out: &mut [u64],
    ) -> Result<(), CipherError> {
        self.check(params)?;
        let (n, p) = (self.context.ring_degree(), self.context.prime());
        for (what, len) in [("mask", mask.len()), ("messages", messages.len()), ("ciphertext", out.len())] {
            if len != n {
                return Err(RingError::Length { what, expected: n, got: len }.into());
            }
        }
        ledger::once(uses::COEFFICIENT_MASK, &[Tag::words(mask), self.tag]);
        let words = &mut scratch.words;
        words.copy_from_slice(mask);
        self.context.ntt().multiply_slots(words, &self.secret_hat)?;
        self.context.ntt().inverse(words)?;
        sample::centred_binomial(prg, &mut scratch.errors);
        let (products, scale) = (Products::new(p), params.scale());
        let dropped = PRIME_BITS - params.bits().upload;
        for (((o, m), e), w) in out.iter_mut().zip(messages).zip(&scratch.errors).zip(words.iter()) {
            let message = products.mul(signed_mod(*m, p), scale);
            *o = add_mod(sub_mod(signed_mod(i64::from(*e), p), *w, p), message, p) >> dropped;
        }
        Ok(())
    }

    /// The integers of an answer: `body` has one word for every coefficient named in `places` (below N), `sum` is the sum of masks in
    /// evaluation form ([`lift_masks`]). Returns the largest distance of a phase from a multiple of D; results are exact when it is below D/2, which the
    /// parameters guarantee but for probability 2^-40 a coefficient.
    ///
    /// # Errors
    /// [`CipherError`] when the parameters are of another degree, lengths differ, or a place is not below N.
    pub fn open(
        &self,
        params: &CoefficientParams,
        sum: &[u64],
        body: &[u64],
        places: &[usize],
        scratch: &mut CoefficientScratch,
        out: &mut [i64],
    ) -> Result<u64, CipherError> {
        self.check(params)?;
        let (n, p) = (self.context.ring_degree(), self.context.prime());
        let lengths = [
            ("sum of masks", sum.len(), n),
            ("answer coefficients", body.len(), places.len()),
            ("results", out.len(), places.len()),
        ];
        for (what, got, expected) in lengths {
            if got != expected {
                return Err(RingError::Length { what, expected, got }.into());
            }
        }
        if let Some(&got) = places.iter().find(|place| **place >= n) {
            return Err(
                RingError::Length { what: "coefficient of an answer (below)", expected: n, got }.into()
            );
        }
        let words = &mut scratch.words;
        words.copy_from_slice(sum);
        self.context.ntt().multiply_slots(words, &self.secret_hat)?;
        self.context.ntt().inverse(words)?;
        let (round, bits) = (Round::new(params.scale()), params.bits().body);
        let mut largest = 0;
        for ((o, b), place) in out.iter_mut().zip(body).zip(places) {
            let phase = add_mod(lift(*b, bits, p), words[*place], p);
            // p - 1 or less; above the half it is negative.
            let centred = phase.wrapping_sub(p & 0u64.wrapping_sub(u64::from(phase > p / 2))) as i64;
            let (value, noise) = round.apply(centred);
            *o = value;
            largest = noise.max(largest);
        }
        Ok(largest)
    }

    fn check(&self, params: &CoefficientParams) -> Result<(), CipherError> {
        let key = self.context.ring_degree();
        if params.ring_degree() == key {
            Ok(())
        } else {
            Err(CipherError::RingDegree { key, params: params.ring_degree() })
        }
    }
}

/// `round(v p / 2^bits)` of a word of so many bits: below p.
fn lift(v: u64, bits: u32, p: u64) -> u64 {
    ((wide(v, p) + (1u128 << (bits - 1))) >> bits) as u64
}

/// A sum of masks as it travelled (N words of `mask` bits, destroyed) to evaluation form modulo p.
///
/// # Errors
/// [`CipherError::Ring`] unless there are N words.
pub fn lift_masks(
    context: &PackedContext,
    params: &CoefficientParams,
    words: &mut [u64],
) -> Result<(), CipherError> {
    let (bits, p) = (params.bits().mask, context.prime());
    words.iter_mut().for_each(|w| *w = lift(*w, bits, p));
    Ok(context.ntt().forward(words)?)
}

/// Division by the scale with rounding to the nearest, without a division.
struct Round {
    scale: i64,
    /// `round(2^shift / D)`.
    reciprocal: i128,
    shift: u32,
}

impl Round {
    fn new(scale: u64) -> Self {
        // The product with a phase below 2^50 stays below 2^114, and errs by less than 2^-12 / D.
        let shift = 62 + scale.max(1).ilog2();
        let reciprocal = ((1i128 << shift) + i128::from(scale / 2)) / i128::from(scale.max(1));
        Self { scale: scale as i64, reciprocal, shift }
    }

    /// `round(x / D)` and `|x - D round(x / D)|` for |x| < 2^50.
    fn apply(&self, x: i64) -> (i64, u64) {
        let value = ((i128::from(x) * self.reciprocal + (1i128 << (self.shift - 1))) >> self.shift) as i64;
        (value, x.wrapping_sub(value.wrapping_mul(self.scale)).unsigned_abs())
    }
}
