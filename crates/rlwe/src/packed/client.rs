//! The client of a packed stage: encrypts its shares, reads its shares of the answers.

use super::{
    add_mod, check_places, round_to_share, signed_mod, sub_mod, PackedContext, PackedParams, PackedPublicKey,
};
use crate::{uses, CipherError};
use hushnet_ring::ledger::{self, Tag};
use hushnet_ring::{low_mask, sample, Prg, RingError, SmallHat};
use zeroize::{Zeroize, Zeroizing};

/// The session's secret key. No `Debug`; wiped on drop.
pub struct PackedClient {
    context: PackedContext,
    /// s in evaluation form modulo the prime, and as the exact multiplier wants it.
    secret_hat: Zeroizing<Vec<u64>>,
    pub(super) secret: SmallHat,
}

/// Stage number under which the public key's mask is derived; plans have fewer stages.
pub(crate) const PUBLIC_KEY_STAGE: u32 = u32::MAX;

impl PackedClient {
    /// A fresh ternary key.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when the ring refuses an operand.
    pub fn generate(context: &PackedContext, prg: &mut Prg) -> Result<Self, CipherError> {
        let mut s = Zeroizing::new(vec![0i8; context.ring_degree()]);
        sample::ternary(prg, &mut s);
        ledger::once(uses::SECRET, &[Tag::small(&s)]);
        let mut secret_hat: Zeroizing<Vec<u64>> =
            Zeroizing::new(s.iter().map(|v| signed_mod(i64::from(*v), context.prime())).collect());
        context.ntt().forward(&mut secret_hat)?;
        Ok(Self { context: context.clone(), secret: context.inner.exact.small_hat(&s)?, secret_hat })
    }

    /// The secret's coefficients, for keys that go with it.
    pub(crate) fn secret_coefficients(&self) -> Result<Zeroizing<Vec<i8>>, CipherError> {
        let mut words = self.secret_hat.clone();
        self.context.ntt().inverse(&mut words)?;
        // 0, 1 or p - 1.
        Ok(Zeroizing::new(words.iter().map(|w| i8::from(*w == 1) - i8::from(*w > 1)).collect()))
    }

    /// `-(a s) + e + message` in coefficient form for a mask `a` in evaluation form; overwrites `out`.
    fn encrypt_message(
        &self,
        mask: &[u64],
        prg: &mut Prg,
        message: impl Fn(usize) -> u64,
        out: &mut [u64],
    ) -> Result<(), CipherError> {
        let p = self.context.prime();
        ledger::once(uses::PACKED_MASK, &[Tag::words(mask)]);
        out.copy_from_slice(mask);
        self.context.ntt().multiply_slots(out, &self.secret_hat)?;
        self.context.ntt().inverse(out)?;
        let mut e = vec![0i8; out.len()];
        sample::centred_binomial(prg, &mut e);
        for (i, (o, e)) in out.iter_mut().zip(&e).enumerate() {
            *o = add_mod(sub_mod(signed_mod(i64::from(*e), p), *o, p), message(i), p);
        }
        e.zeroize();
        Ok(())
    }

    /// The key that the server re-randomises answers with; `seed` must be fresh.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when the ring refuses an operand.
    pub fn public_key(&self, seed: &[u8; 32], prg: &mut Prg) -> Result<PackedPublicKey, CipherError> {
        let n = self.context.ring_degree();
        let (mut mask, mut pk0) = (vec![0; n], vec![0; n]);
        self.context.mask_hat(seed, PUBLIC_KEY_STAGE, 0, &mut mask)?;
        self.encrypt_message(&mask, prg, |_| 0, &mut pk0)?;
        Ok(PackedPublicKey { seed: *seed, pk0 })
    }

    /// c0 (N words of [`PackedParams::request_bits`] bits) of an encryption of `share`, N values modulo 2^l; `mask` is the evaluation form of c1.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when a slice has not N elements.
    pub fn encrypt_into(
        &self,
        params: &PackedParams,
        mask: &[u64],
        share: &[u64],
        prg: &mut Prg,
        out: &mut [u64],
    ) -> Result<(), CipherError> {
        let n = self.context.ring_degree();
        for (what, len) in
            [("mask", mask.len()), ("share polynomial", share.len()), ("ciphertext", out.len())]
        {
            if len != n {
                return Err(RingError::Length { what, expected: n, got: len }.into());
            }
        }
        self.encrypt_message(mask, prg, |i| self.context.scale_share(share[i], params.ring_bits()), out)?;
        let (p, dropped) = (self.context.prime(), params.request_dropped());
        if dropped > 0 {
            for c in out {
                let rounded = (*c + (1 << (dropped - 1))) >> dropped;
                // What is rounded to p or beyond is 0, without a branch.
                *c = rounded & ((rounded << dropped).wrapping_sub(p) >> 63).wrapping_neg();
            }
        }
        Ok(())
    }

    /// The client's shares of the coefficients of an answer named in `places` (below N), modulo 2^l in the same order; `c1` has N words of r bits.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when lengths differ or a place is not below N.
    pub fn open(
        &self,
        params: &PackedParams,
        c1: &[u64],
        places: &[usize],
        out: &mut [u64],
    ) -> Result<(), CipherError> {
        let (n, r) = (self.context.ring_degree(), params.response_bits());
        check_places(n, places, out)?;
        let exact = &self.context.inner.exact;
        let hat = exact.words_hat(c1, r)?;
        let mut product = Zeroizing::new(vec![0; n]);
        exact.multiply_into(&hat, &self.secret, &mut product, &mut exact.scratch())?;
        for (o, place) in out.iter_mut().zip(places) {
            *o = round_to_share(product[*place] & low_mask(r), r, params.ring_bits());
        }
        Ok(())
    }
}
