//! The client of a batch stage on shares: encrypts its shares of a feature, reads its shares of an answer.

use super::{check_key_bits, expect, expect_images, round_to_share, BatchShareParams, PUBLIC_KEY};
use crate::{mask_words, uses, BatchContext, CipherError, CipherScratch, MaskId};
use hushnet_ring::{ledger, low_mask, sample, Prg, SmallHat, WordsHat};
use zeroize::{Zeroize, Zeroizing};

/// The session's secret key, for all blocks of images. No `Debug`; wiped on drop.
pub struct ShareKey {
    context: BatchContext,
    secret: SmallHat,
}

/// What the server re-randomises with: `pk0 = -(pk1 s) + e` modulo 2^K, pk1 from the seed.
#[derive(Clone)]
pub struct SharePublicKey {
    /// Seed of pk1.
    pub seed: [u8; 32],
    /// K.
    pub bits: u32,
    /// N words of K bits.
    pub pk0: Vec<u64>,
}

impl ShareKey {
    /// A fresh ternary key.
    ///
    /// # Errors
    /// [`CipherError::Ring`] only if the context is inconsistent.
    pub fn generate(context: &BatchContext, prg: &mut Prg) -> Result<Self, CipherError> {
        let mut s = Zeroizing::new(vec![0; context.ring_degree()]);
        sample::ternary(prg, &mut s);
        let secret = context.multiplier().small_hat(&s)?;
        ledger::once(uses::SECRET, &[secret.tag()]);
        Ok(Self { context: context.clone(), secret })
    }

    /// The context that the key was made in.
    #[must_use]
    pub fn context(&self) -> &BatchContext {
        &self.context
    }

    /// The key that the server re-randomises answers with, modulo 2^`bits`: the widest modulus of the session's stages. A seed must serve once.
    ///
    /// # Errors
    /// [`CipherError::Insecure`] when the ring degree is not in the security table or allows fewer bits.
    pub fn public_key(
        &self,
        seed: [u8; 32],
        bits: u32,
        prg: &mut Prg,
    ) -> Result<SharePublicKey, CipherError> {
        let n = self.context.ring_degree();
        check_key_bits(n, bits)?;
        let mut words = vec![0; n];
        mask_words(&seed, PUBLIC_KEY, bits, &mut words)?;
        let hat = self.context.words_hat(&words, bits)?;
        ledger::once(uses::SHARE_MASK, &[hat.tag()]);
        words.fill(0);
        sample::centred_binomial_add(prg, &mut words);
        let multiplier = self.context.multiplier();
        multiplier.multiply_subtract_into(&hat, &self.secret, &mut words, &mut multiplier.scratch())?;
        Ok(SharePublicKey { seed, bits, pk0: words })
    }

    /// c0 (N words of k bits) of the shares of one feature, one value modulo 2^l an image, zero behind the last; `mask` is c1. A mask must
    /// never serve twice. Does not allocate. Only the words of images need to travel: a linear layer works on each
    /// coefficient of c0 by itself.
    ///
    /// # Errors
    /// [`CipherError`] when the operands are of another degree or modulus, or there are more than N shares.
    pub fn encrypt_into(
        &self,
        params: &BatchShareParams,
        mask: &WordsHat,
        shares: impl ExactSizeIterator<Item = u64>,
        prg: &mut Prg,
        scratch: &mut CipherScratch,
        out: &mut [u64],
    ) -> Result<(), CipherError> {
        let n = self.context.ring_degree();
        params.check_degree(n)?;
        expect("ciphertext", n, out.len())?;
        expect_images(shares.len(), n)?;
        if mask.modulus_bits() != params.modulus_bits() {
            let (got, expected) = (mask.modulus_bits(), params.modulus_bits());
            return Err(CipherError::MaskBits { got, expected });
        }
        ledger::once(uses::SHARE_MASK, &[mask.tag()]);
        let shift = params.modulus_bits() - params.ring_bits();
        out[shares.len()..].fill(0);
        out.iter_mut().zip(shares).for_each(|(o, x)| *o = x << shift);
        sample::centred_binomial_add(prg, out);
        let multiplier = self.context.multiplier();
        Ok(multiplier.multiply_subtract_into(mask, &self.secret, out, scratch.product())?)
    }

    /// Transforms the mask that [`Self::encrypt_into`] takes.
    ///
    /// # Errors
    /// As [`BatchContext::mask_hat_into`].
    pub fn mask_hat_into(
        &self,
        seed: &[u8; 32],
        id: MaskId,
        hat: &mut WordsHat,
        scratch: &mut CipherScratch,
    ) -> Result<(), CipherError> {
        self.context.mask_hat_into(seed, id, hat, scratch)
    }

    /// The client's shares of one output: `c1` has N words of r bits, `c0` one word an image, shares modulo 2^l in the same order.
    ///
    /// # Errors
    /// [`CipherError`] when lengths or degrees differ.
    pub fn open_into(
        &self,
        params: &BatchShareParams,
        c1: &[u64],
        c0: &[u64],
        scratch: &mut CipherScratch,
        out: &mut [u64],
    ) -> Result<(), CipherError> {
        let n = self.context.ring_degree();
        let (r, l) = (params.response_bits(), params.ring_bits());
        params.check_degree(n)?;
        expect_images(c0.len(), n)?;
        expect("shares", c0.len(), out.len())?;
        let multiplier = self.context.multiplier();
        let (hat, product, words) = scratch.parts(multiplier, r)?;
        multiplier.words_hat_into(c1, hat)?;
        multiplier.multiply_into(hat, &self.secret, words, product)?;
        for ((o, c), p) in out.iter_mut().zip(c0).zip(words.iter()) {
            *o = round_to_share(c.wrapping_add(*p) & low_mask(r), r, l);
        }
        words.zeroize();
        Ok(())
    }
}
