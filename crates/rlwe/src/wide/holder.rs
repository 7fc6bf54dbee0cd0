//! The holder of the key in a product of shares: encrypts its shares, reads its shares of the answers.

use super::key::{WidePublicKey, PUBLIC_KEY_STAGE, SEED_BYTES};
use super::{
    check_places, record_secret, request, round_to_share, signed_mod, WideContext, WideParams, DATA_PRIMES,
    RING_DEGREE,
};
use crate::pack_lwe::{ring, MergeKeys};
use crate::CipherError;
use hushnet_ring::rns::{Coef, Eval, RnsPoly};
use hushnet_ring::{low_mask, sample, Prg, RingError, SmallHat};
use zeroize::{Zeroize, Zeroizing};

/// A secret key of a session. No `Debug`; wiped on drop.
pub struct WideHolder {
    context: WideContext,
    coefficients: Zeroizing<Vec<i8>>,
    secret_hat: RnsPoly<Eval>,
    pub(super) secret: SmallHat,
}

impl Drop for WideHolder {
    fn drop(&mut self) {
        self.secret_hat.zeroize();
    }
}

impl WideHolder {
    /// A fresh ternary key.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when the ring refuses an operand.
    pub fn generate(context: &WideContext, prg: &mut Prg) -> Result<Self, CipherError> {
        let mut s = Zeroizing::new(vec![0i8; RING_DEGREE]);
        sample::ternary(prg, &mut s);
        record_secret(&s);
        let secret_hat = context.merge.small(&s, false)?;
        let secret = context.inner.exact.small_hat(&s)?;
        Ok(Self { context: context.clone(), coefficients: s, secret_hat, secret })
    }

    /// `-(a s) + e + message` in coefficient form.
    fn encrypt_message(
        &self,
        mask: &RnsPoly<Eval>,
        prg: &mut Prg,
        message: impl Fn(usize, usize) -> u64,
    ) -> Result<RnsPoly<Coef>, CipherError> {
        let basis = self.context.basis();
        WideContext::record(mask);
        let product = basis.product(0..DATA_PRIMES, mask, &self.secret_hat).map_err(ring)?;
        let mut c0 = basis.inverse(product).map_err(ring)?;
        let mut e = vec![0i8; RING_DEGREE];
        sample::centred_binomial(prg, &mut e);
        for i in 0..DATA_PRIMES {
            let m = &basis.moduli()[i];
            for (at, (c, e)) in c0.limb_mut(i).iter_mut().zip(&e).enumerate() {
                let plain = m.add(signed_mod(i64::from(*e), m.value()), message(i, at));
                *c = m.add(plain, m.neg(*c));
            }
        }
        e.zeroize();
        Ok(c0)
    }

    /// The key that the multiplier re-randomises answers with; `seed` must be fresh.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when the ring refuses an operand.
    pub fn public_key(&self, seed: &[u8; SEED_BYTES], prg: &mut Prg) -> Result<WidePublicKey, CipherError> {
        let mask = self.context.mask(seed, PUBLIC_KEY_STAGE, 0)?;
        Ok(WidePublicKey { seed: *seed, pk0: self.encrypt_message(&mask, prg, |_, _| 0)? })
    }

    /// Keys with which the multiplier merges answers, for every spacing up to `spacing`; `seed` must be fresh.
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the ring.
    pub fn merging_keys(
        &self,
        spacing: usize,
        seed: &[u8; SEED_BYTES],
        prg: &mut Prg,
    ) -> Result<MergeKeys, CipherError> {
        MergeKeys::generate(&self.context.merge, &self.coefficients, spacing, seed, prg)
    }

    /// The message of an encryption of N values modulo 2^l: c0 in [`WideParams::request_bits`] bits a word, [`WideParams::request_len`] bytes. The triple of `seed`, `stage` and `index` names
    /// c1 and must not be used twice.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when `share` has not N elements.
    pub fn encrypt(
        &self,
        params: &WideParams,
        (seed, stage, index): (&[u8; 32], u32, u32),
        share: &[u64],
        prg: &mut Prg,
    ) -> Result<Vec<u8>, CipherError> {
        if share.len() != RING_DEGREE {
            let (what, expected) = ("share polynomial", RING_DEGREE);
            return Err(RingError::Length { what, expected, got: share.len() }.into());
        }
        let ring_bits = params.ring_bits();
        let inverses: Vec<_> = (0..DATA_PRIMES).map(|i| self.context.inverse_power(ring_bits, i)).collect();
        let mask = self.context.mask(seed, stage, index)?;
        let message = |i: usize, at: usize| self.context.scale_share(share[at], ring_bits, i, inverses[i]);
        request::write(&self.context, params, &self.encrypt_message(&mask, prg, message)?)
    }

    /// The holder's shares of the coefficients of an answer named in `places` (below N), modulo 2^l in the same order; `c1` has N words of r bits.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when `c1` has not N words or a place is not below N.
    pub fn open(&self, params: &WideParams, c1: &[u64], places: &[usize]) -> Result<Vec<u64>, CipherError> {
        let r = params.response_bits();
        check_places(places)?;
        let exact = &self.context.inner.exact;
        let mut product = Zeroizing::new(vec![0; RING_DEGREE]);
        exact.multiply_into(&exact.words_hat(c1, r)?, &self.secret, &mut product, &mut exact.scratch())?;
        let share = |place: &usize| round_to_share(product[*place] & low_mask(r), r, params.ring_bits());
        Ok(places.iter().map(share).collect())
    }
}
