//! The server of a batch stage on shares: what happens to a combined ciphertext before it leaves. It holds no keys of its own.

use super::{
    check_key_bits, expect, expect_images, round_to_share, BatchShareParams, SharePublicKey, PUBLIC_KEY,
};
use crate::{mask_words, uses, BatchContext, CipherError, CipherScratch};
use hushnet_ring::{kernels, ledger, low_mask, sample, simd, Prg, WordsHat};
use zeroize::Zeroizing;

/// What a server holds of a session: the client's public key.
pub struct ShareServer {
    context: BatchContext,
    bits: u32,
    pk0: Vec<u64>,
    pk1: Vec<u64>,
}

/// The public key modulo one stage's 2^k, transformed.
pub struct ShareServerStage {
    context: BatchContext,
    params: BatchShareParams,
    pk0: WordsHat,
    pk1: WordsHat,
}

impl ShareServer {
    /// Checks a client's public key.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless it has N words; [`CipherError::NotReduced`] when one has more than K bits; [`CipherError::Insecure`] when K is
    /// beyond the security table.
    pub fn new(context: &BatchContext, key: &SharePublicKey) -> Result<Self, CipherError> {
        let n = context.ring_degree();
        let bits = key.bits;
        check_key_bits(n, bits)?;
        expect("public key", n, key.pk0.len())?;
        if key.pk0.iter().fold(0, |all, w| all | w) > low_mask(bits) {
            return Err(CipherError::NotReduced);
        }
        let mut pk1 = vec![0; n];
        mask_words(&key.seed, PUBLIC_KEY, bits, &mut pk1)?;
        Ok(Self { context: context.clone(), bits, pk0: key.pk0.clone(), pk1 })
    }

    /// The key as a stage uses it: its low k bits.
    ///
    /// # Errors
    /// [`CipherError::RingDegree`] for parameters of another degree; [`CipherError::MaskBits`] when the stage's modulus is wider than the key's.
    pub fn stage(&self, params: &BatchShareParams) -> Result<ShareServerStage, CipherError> {
        params.check_degree(self.context.ring_degree())?;
        if params.modulus_bits() > self.bits {
            return Err(CipherError::MaskBits { got: self.bits, expected: params.modulus_bits() });
        }
        let hat = |words: &[u64]| self.context.words_hat(words, params.modulus_bits());
        let (pk0, pk1) = (hat(&self.pk0)?, hat(&self.pk1)?);
        Ok(ShareServerStage { context: self.context.clone(), params: *params, pk0, pk1 })
    }
}

impl ShareServerStage {
    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &BatchShareParams {
        &self.params
    }

    /// Turns the combination of one output into what leaves the server, in place: `c0` (one word modulo 2^k an image) and `c1` (N words) are
    /// re-randomised, rounded to r bits, and c0 is masked with R. `share` gets the server's own shares, one an image.
    ///
    /// # Errors
    /// [`CipherError`] when lengths differ or the scratch is another context's.
    pub fn answer(
        &self,
        prg: &mut Prg,
        scratch: &mut CipherScratch,
        c0: &mut [u64],
        c1: &mut [u64],
        share: &mut [u64],
    ) -> Result<(), CipherError> {
        let n = self.context.ring_degree();
        let (k, r, l) = (self.params.modulus_bits(), self.params.response_bits(), self.params.ring_bits());
        expect_images(c0.len(), n)?;
        expect("second part", n, c1.len())?;
        expect("shares", c0.len(), share.len())?;
        let multiplier = self.context.multiplier();
        let mut small = Zeroizing::new(vec![0i8; n]);
        sample::ternary(prg, &mut small);
        ledger::small(uses::SHARE_RERANDOMISER, &mut small);
        let u = multiplier.small_hat(&small)?;
        sample::centred_binomial_add(prg, c1);
        let (product, words) = scratch.product_and_words();
        multiplier.multiply_add_into(&self.pk1, &u, c1, product)?;
        kernels::drop_bits(simd::isa(), c1, k - r, k)?;
        multiplier.multiply_into(&self.pk0, &u, words, product)?;
        let half = if k > r { 1 << (k - r - 1) } else { 0 };
        prg.fill_words(share);
        ledger::words(uses::SHARE_R, share);
        for ((c, own), p) in c0.iter_mut().zip(share.iter_mut()).zip(words.iter()) {
            let mask = *own & low_mask(r);
            let rounded = c.wrapping_add(*p).wrapping_add(half) >> (k - r);
            *c = rounded.wrapping_sub(mask) & low_mask(r);
            *own = round_to_share(mask, r, l);
        }
        Ok(())
    }
}
