//! A holder's public key of products of shares, and how its polynomial travels.

use super::{WideContext, DATA_PRIMES, PRIME_BITS, RING_DEGREE};
use crate::pack_lwe::ring;
use crate::CipherError;
use hushnet_ring::rns::{Coef, RnsPoly};
use hushnet_ring::{pack, RingError};

/// Stage number under which the public key's mask is derived; plans have fewer stages.
pub(super) const PUBLIC_KEY_STAGE: u32 = u32::MAX;
/// Bytes of a seed.
pub(super) const SEED_BYTES: usize = 32;

/// What the multiplier re-randomises answers with: `pk0 = -(pk1 s) + e` in coefficient form, and the seed that pk1 is expanded from.
/// A message has the seed first, then pk0, prime by prime, in words of [`PRIME_BITS`] bits.
#[derive(Clone)]
pub struct WidePublicKey {
    pub(super) seed: [u8; SEED_BYTES],
    pub(super) pk0: RnsPoly<Coef>,
}

impl WidePublicKey {
    /// The number of bytes of the message.
    #[must_use]
    pub fn byte_len() -> usize {
        SEED_BYTES + WideContext::poly_len()
    }

    /// The message, [`Self::byte_len`] bytes.
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the packer.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CipherError> {
        let mut message = self.seed.to_vec();
        message.extend(write(&self.pk0)?);
        Ok(message)
    }

    /// Reads a message and checks that its words are below their primes.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless there are [`Self::byte_len`] bytes, [`CipherError::NotReduced`] for a word that is too large.
    pub fn from_bytes(context: &WideContext, message: &[u8]) -> Result<Self, CipherError> {
        let expected = Self::byte_len();
        let (seed, words) = match message.split_first_chunk() {
            Some((seed, words)) if message.len() == expected => (*seed, words),
            _ => return Err(RingError::Length { what: "public key", expected, got: message.len() }.into()),
        };
        Ok(Self { seed, pk0: read(context, words)? })
    }
}

/// The limbs of a polynomial, 50 bits a word.
fn write(poly: &RnsPoly<Coef>) -> Result<Vec<u8>, CipherError> {
    let mut bytes = vec![0; WideContext::poly_len()];
    let each = pack::packed_len(RING_DEGREE, PRIME_BITS);
    for (limb, out) in poly.words().chunks_exact(RING_DEGREE).zip(bytes.chunks_exact_mut(each)) {
        pack::pack(limb, PRIME_BITS, out)?;
    }
    Ok(bytes)
}

/// A polynomial that a peer sent: of [`WideContext::poly_len`] bytes, words below their primes.
///
/// # Errors
/// [`CipherError::Ring`] for another length, [`CipherError::NotReduced`] for a word that is too large.
fn read(context: &WideContext, bytes: &[u8]) -> Result<RnsPoly<Coef>, CipherError> {
    let expected = WideContext::poly_len();
    if bytes.len() != expected {
        return Err(RingError::Length { what: "wide polynomial", expected, got: bytes.len() }.into());
    }
    let basis = context.basis();
    let mut poly = basis.zero(0..DATA_PRIMES).map_err(ring)?;
    for (i, piece) in bytes.chunks_exact(expected / DATA_PRIMES).enumerate() {
        pack::unpack(piece, PRIME_BITS, poly.limb_mut(i))?;
        let prime = basis.moduli()[i].value();
        if poly.limb(i).iter().fold(false, |bad, w| bad | (*w >= prime)) {
            return Err(CipherError::NotReduced);
        }
    }
    Ok(poly)
}
