//! The client of the batch engine: one ternary key for a block of N images, symmetric encryption of one
//! feature at a time, decryption with the noise that was seen (`docs/parameters.md`).

use crate::batch::BatchStageParams;
use crate::mask::{mask_words, MaskId};
use crate::{uses, CipherError};
use hushnet_ring::{
    kernels, ledger, sample, simd, AlignedWords, ExactMultiplier, Isa, MulScratch, Prg, SmallHat, WordsHat,
};
use std::sync::Arc;
use zeroize::Zeroize;

/// What all keys of one ring degree share. Cheap to clone.
#[derive(Clone)]
pub struct BatchContext {
    multiplier: Arc<ExactMultiplier>,
}

/// The secret of one block of images. No `Debug`; wiped on drop.
pub struct ClientKey {
    context: BatchContext,
    secret: SmallHat,
}

/// Room for the operations of one thread. Wiped on drop.
pub struct CipherScratch {
    product: MulScratch,
    words: AlignedWords,
    hat: Option<WordsHat>,
}

impl Drop for CipherScratch {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}

impl CipherScratch {
    /// Room for a product.
    pub(crate) fn product(&mut self) -> &mut MulScratch {
        &mut self.product
    }

    /// Room for a product, and N words.
    pub(crate) fn product_and_words(&mut self) -> (&mut MulScratch, &mut AlignedWords) {
        (&mut self.product, &mut self.words)
    }

    /// Room for a transformed polynomial modulo 2^k, for a product, and N words.
    pub(crate) fn parts(
        &mut self,
        multiplier: &ExactMultiplier,
        k: u32,
    ) -> Result<(&mut WordsHat, &mut MulScratch, &mut AlignedWords), CipherError> {
        let hat = match self.hat.take() {
            Some(hat) if hat.modulus_bits() == k => hat,
            _ => multiplier.zero_words_hat(k)?,
        };
        Ok((self.hat.insert(hat), &mut self.product, &mut self.words))
    }
}

/// The server's combination of masks, `sum_k W_ok a_k`, as the client has it.
#[derive(Clone, Copy)]
pub enum MaskSum<'a> {
    /// All k bits, transformed: kept per session for shared masks.
    Exact(&'a WordsHat),
    /// k-v bits as they travel with fresh masks.
    Dropped(&'a [u64]),
}

/// The largest noise among the coefficients of a decryption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoiseSample {
    /// Largest absolute distance of the phase from a multiple of 2^d.
    pub largest: u64,
}

impl NoiseSample {
    /// log2 of the largest noise; 0 when there was none.
    #[must_use]
    pub fn bits(self) -> f64 {
        (self.largest.max(1) as f64).log2()
    }

    /// Bits left below the limit 2^(d-1).
    #[must_use]
    pub fn margin_bits(self, p: &BatchStageParams) -> f64 {
        f64::from(p.delta_bits()) - 1.0 - self.bits()
    }
}

impl BatchContext {
    /// Tables for one ring degree.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for an unsupported degree.
    pub fn new(ring_degree: usize) -> Result<Self, CipherError> {
        Self::with_isa(ring_degree, simd::isa())
    }

    /// [`Self::new`] on an explicit instruction set (results do not depend on it).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_isa(ring_degree: usize, isa: Isa) -> Result<Self, CipherError> {
        Ok(Self { multiplier: Arc::new(ExactMultiplier::with_isa(ring_degree, isa)?) })
    }

    /// The ring degree N, a power of two.
    #[must_use]
    pub fn ring_degree(&self) -> usize {
        self.multiplier.degree()
    }

    /// The exact multiplier of masks by secrets.
    #[must_use]
    pub fn multiplier(&self) -> &ExactMultiplier {
        &self.multiplier
    }

    /// Room for the operations of one thread.
    #[must_use]
    pub fn scratch(&self) -> CipherScratch {
        let words = AlignedWords::new(self.ring_degree());
        CipherScratch { product: self.multiplier.scratch(), words, hat: None }
    }

    /// A transformed polynomial modulo 2^k from its words: a mask, or a sum of masks.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless k is 1 to 64 and there are N words.
    pub fn words_hat(&self, words: &[u64], modulus_bits: u32) -> Result<WordsHat, CipherError> {
        Ok(self.multiplier.words_hat(words, modulus_bits)?)
    }

    /// A zero polynomial modulo 2^k for [`Self::mask_hat_into`] to overwrite.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless k is 1 to 64.
    pub fn zero_words_hat(&self, modulus_bits: u32) -> Result<WordsHat, CipherError> {
        Ok(self.multiplier.zero_words_hat(modulus_bits)?)
    }

    /// Derives and transforms a mask modulo the 2^k of `hat`. Does not allocate.
    ///
    /// # Errors
    /// As [`mask_words`]; [`CipherError::Ring`] when `hat` or `scratch` is another context's.
    pub fn mask_hat_into(
        &self,
        seed: &[u8; 32],
        id: MaskId,
        hat: &mut WordsHat,
        scratch: &mut CipherScratch,
    ) -> Result<(), CipherError> {
        mask_words(seed, id, hat.modulus_bits(), &mut scratch.words)?;
        Ok(self.multiplier.words_hat_into(&scratch.words, hat)?)
    }
}

impl ClientKey {
    /// A fresh secret, uniform ternary.
    ///
    /// # Errors
    /// [`CipherError::Ring`] only if the context is inconsistent.
    pub fn generate(context: &BatchContext, prg: &mut Prg) -> Result<Self, CipherError> {
        let mut s = vec![0; context.ring_degree()];
        sample::ternary(prg, &mut s);
        let secret = context.multiplier.small_hat(&s);
        s.zeroize();
        let secret = secret?;
        ledger::once(uses::SECRET, &[secret.tag()]);
        Ok(Self { context: context.clone(), secret })
    }

    /// The context that the key was made in.
    #[must_use]
    pub fn context(&self) -> &BatchContext {
        &self.context
    }

    fn check(&self, p: &BatchStageParams) -> Result<(), CipherError> {
        let key = self.context.ring_degree();
        if p.ring_degree() == key {
            Ok(())
        } else {
            Err(CipherError::RingDegree { key, params: p.ring_degree() })
        }
    }

    /// `c0 = -(a s) + e + 2^d m mod 2^k`: a is `mask` (k bits), e a fresh error, `m_j = messages[j]`, zero behind the
    /// last. Messages must keep within the stage's input bound, or the result of the stage is undefined. A mask
    /// must never serve twice under one key. Does not allocate.
    ///
    /// # Errors
    /// [`CipherError`] when the operands are of another degree or modulus, or there are more than N messages.
    pub fn encrypt_into(
        &self,
        p: &BatchStageParams,
        mask: &WordsHat,
        messages: &[i32],
        prg: &mut Prg,
        scratch: &mut CipherScratch,
        out: &mut [u64],
    ) -> Result<(), CipherError> {
        self.check(p)?;
        if mask.modulus_bits() != p.modulus_bits() {
            return Err(CipherError::MaskBits { got: mask.modulus_bits(), expected: p.modulus_bits() });
        }
        let room = self.context.ring_degree();
        if messages.len() > room {
            return Err(CipherError::TooManyMessages { got: messages.len(), room });
        }
        ledger::once(uses::BATCH_MASK, &[mask.tag(), self.secret.tag()]);
        let multiplier = &self.context.multiplier;
        kernels::scale_into(multiplier.isa(), messages, p.delta_bits(), out)?;
        sample::centred_binomial_add(prg, out);
        multiplier.multiply_subtract_into(mask, &self.secret, out, &mut scratch.product)?;
        Ok(())
    }

    /// The stage's integers: `out_j = round(phase_j / 2^d)` with `phase = 2^u c0 + c1 s mod 2^k`, centred.
    /// `c0_dropped` has k-u bits a word. Returns the largest noise; correct when it is below 2^(d-1), which the
    /// parameters guarantee but for probability 2^-40 an output. Allocates only when the modulus of
    /// [`MaskSum::Dropped`] changes.
    ///
    /// # Errors
    /// [`CipherError`] when the operands are of another degree or modulus.
    pub fn decrypt_into(
        &self,
        p: &BatchStageParams,
        c0_dropped: &[u64],
        c1: MaskSum<'_>,
        scratch: &mut CipherScratch,
        out: &mut [i64],
    ) -> Result<NoiseSample, CipherError> {
        self.check(p)?;
        let (k, d, u, v) = (p.modulus_bits(), p.delta_bits(), p.drop_bits(), p.mask_drop_bits());
        let multiplier = &self.context.multiplier;
        match c1 {
            MaskSum::Exact(hat) => {
                if hat.modulus_bits() != k {
                    return Err(CipherError::MaskBits { got: hat.modulus_bits(), expected: k });
                }
                let product = &mut scratch.product;
                let largest =
                    multiplier.multiply_round_into(hat, &self.secret, (c0_dropped, u), d, out, product)?;
                Ok(NoiseSample { largest })
            }
            MaskSum::Dropped(c1_words) => {
                let hat = match &mut scratch.hat {
                    Some(hat) if hat.modulus_bits() == k - v => hat,
                    other => other.insert(multiplier.zero_words_hat(k - v)?),
                };
                multiplier.words_hat_into(c1_words, hat)?;
                // v <= u < d by construction of the parameters: the noise of dropping u bits is at least 2^(u-1).
                let product = &mut scratch.product;
                let largest = multiplier.multiply_round_into(
                    hat,
                    &self.secret,
                    (c0_dropped, u - v),
                    d - v,
                    out,
                    product,
                )?;
                Ok(NoiseSample { largest: largest << v })
            }
        }
    }
}

#[cfg(test)]
mod tests;
