//! Errors of encryption and decryption. None carries a secret.

use hushnet_ring::RingError;

/// Why a ciphertext operation was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    /// The ring refused an operand.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Parameters of another ring degree.
    #[error("parameters for ring degree {params} used with keys of degree {key}; make the context with the plan's ring degree")]
    RingDegree {
        /// The context's.
        key: usize,
        /// The parameters'.
        params: usize,
    },
    /// A mask modulo another power of two than the stage's.
    #[error("mask of {got} bits, but the stage's modulus has {expected}; derive masks with the stage's modulus_bits")]
    MaskBits {
        /// What came.
        got: u32,
        /// The stage's k.
        expected: u32,
    },
    /// More messages than a ciphertext has coefficients.
    #[error("{got} messages in a ciphertext of {room} coefficients; use blocks of at most {room} images")]
    TooManyMessages {
        /// What came.
        got: usize,
        /// Ring degree.
        room: usize,
    },
    /// The block index that stands for shared masks.
    #[error("block index 0xffffffff is reserved for shared masks; start a new session")]
    ReservedBlock,
    /// The share ring leaves no room for the noise.
    #[error("shares of {ring_bits} bits and noise of up to 2^{noise_bits} do not fit a {modulus_bits}-bit modulus; use fewer weight or activation bits")]
    TooWide {
        /// l.
        ring_bits: u32,
        /// log2 of the noise bound.
        noise_bits: u32,
        /// Bits of the ciphertext modulus.
        modulus_bits: u32,
    },
    /// Below 128 bits by the security table.
    #[error("a {modulus_bits}-bit modulus at ring degree {ring_degree} is below 128 bits; use a ring degree of 2048 or more")]
    Insecure {
        /// Ring degree.
        ring_degree: usize,
        /// Bits of the ciphertext modulus.
        modulus_bits: u32,
    },
    /// A word that came from the peer is not below the modulus.
    #[error("a received ciphertext word is not below the modulus; the message is damaged or forged")]
    NotReduced,
}
