//! A client's public key of packed stages, and how it travels.

use super::{PackedContext, PRIME_BITS};
use crate::CipherError;
use hushnet_ring::{pack, RingError};

/// Bytes of a seed.
const SEED_BYTES: usize = 32;

/// What the server re-randomises answers with: `pk0 = -(pk1 s) + e` in coefficient form, and the seed that pk1 is expanded from
/// ([`PackedContext::mask_hat`]). A message has the seed first, then pk0 in words of [`PRIME_BITS`] bits.
#[derive(Clone)]
pub struct PackedPublicKey {
    /// Seed of pk1; a fresh one for every key.
    pub seed: [u8; SEED_BYTES],
    /// N words below the prime.
    pub pk0: Vec<u64>,
}

impl PackedPublicKey {
    /// Bytes of the message for ring degree N.
    #[must_use]
    pub fn byte_len(ring_degree: usize) -> usize {
        SEED_BYTES + pack::packed_len(ring_degree, PRIME_BITS)
    }

    /// The message, [`Self::byte_len`] bytes.
    ///
    /// # Errors
    /// [`CipherError::Ring`] when a word of pk0 has more than [`PRIME_BITS`] bits.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CipherError> {
        let mut message = vec![0; Self::byte_len(self.pk0.len())];
        let (seed, words) = message.split_at_mut(SEED_BYTES);
        seed.copy_from_slice(&self.seed);
        pack::pack(&self.pk0, PRIME_BITS, words)?;
        Ok(message)
    }

    /// Reads a message. Words are not compared with the prime here; [`super::PackedServer::new`] refuses those that are not below it.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless there are [`Self::byte_len`] bytes.
    pub fn from_bytes(context: &PackedContext, message: &[u8]) -> Result<Self, CipherError> {
        let expected = Self::byte_len(context.ring_degree());
        let (seed, words) = match message.split_first_chunk() {
            Some((seed, words)) if message.len() == expected => (*seed, words),
            _ => return Err(RingError::Length { what: "public key", expected, got: message.len() }.into()),
        };
        let mut pk0 = vec![0; context.ring_degree()];
        pack::unpack(words, PRIME_BITS, &mut pk0)?;
        Ok(Self { seed, pk0 })
    }
}
