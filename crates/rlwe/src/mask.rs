//! The public uniform polynomials `a`, which both sides derive from the session seed.

use crate::CipherError;
use hushnet_ring::prg::MaskStream;

/// Stands in the counter block for "shared by all blocks".
const SHARED: u32 = u32::MAX;

/// Which mask polynomial: of feature `feature` of tensor `tensor`, in one block of images or (`None`) in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaskId {
    /// Tensor id of the plan.
    pub tensor: u32,
    /// Feature index within the tensor.
    pub feature: u32,
    /// Block index; `None` for masks that all blocks share.
    pub block: Option<u32>,
}

/// The masks of one session seed (`docs/wire-protocol.md`): AES-128-CTR under its first half. Public.
pub struct Masks(MaskStream);

impl Masks {
    /// The masks of a seed.
    #[must_use]
    pub fn new(seed: &[u8; 32]) -> Self {
        let mut key = [0; 16];
        key.copy_from_slice(&seed[..16]);
        Self(MaskStream::new(&key))
    }

    /// Words `start..start + out.len()` modulo 2^k of a mask; `start` must be even.
    ///
    /// # Errors
    /// [`CipherError::ReservedBlock`] for block 0xffffffff; [`CipherError::Ring`] unless `modulus_bits` is 1 to 64 and
    /// `start` is even.
    pub fn words(
        &self,
        id: MaskId,
        start: usize,
        modulus_bits: u32,
        out: &mut [u64],
    ) -> Result<(), CipherError> {
        if id.block == Some(SHARED) {
            return Err(CipherError::ReservedBlock);
        }
        let nonce = [id.tensor, id.feature, id.block.unwrap_or(SHARED)];
        Ok(self.0.words(nonce, start, modulus_bits, out)?)
    }
}

/// The N words modulo 2^k of one mask ([`Masks`]).
///
/// # Errors
/// As [`Masks::words`].
pub fn mask_words(
    seed: &[u8; 32],
    id: MaskId,
    modulus_bits: u32,
    out: &mut [u64],
) -> Result<(), CipherError> {
    Masks::new(seed).words(id, 0, modulus_bits, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_the_identity_counts() {
        let seed = [1; 32];
        let ids = [(1, 2, Some(0)), (2, 2, Some(0)), (1, 3, Some(0)), (1, 2, Some(1)), (1, 2, None)];
        let masks: Vec<_> = ids
            .iter()
            .map(|&(tensor, feature, block)| {
                let mut out = vec![0; 32];
                mask_words(&seed, MaskId { tensor, feature, block }, 50, &mut out).unwrap();
                out
            })
            .collect();
        let distinct: std::collections::HashSet<_> = masks.iter().collect();
        assert_eq!(distinct.len(), masks.len());
        let reserved = MaskId { tensor: 0, feature: 0, block: Some(u32::MAX) };
        assert_eq!(mask_words(&seed, reserved, 50, &mut []), Err(CipherError::ReservedBlock));
    }
}
