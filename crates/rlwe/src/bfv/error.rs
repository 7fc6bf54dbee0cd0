//! Errors of BFV. None carries a secret.

use hushnet_ring::rns::RnsError;
use hushnet_ring::RingError;

/// What was refused, the limit, and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BfvError {
    /// A specification that no parameters satisfy.
    #[error("BFV parameters refused: {0}")]
    Spec(String),
    /// Below 128 bits by the security table.
    #[error("a modulus of {bits} bits at ring degree {ring_degree} is below 128 bits (limit {limit}); use a larger ring degree or fewer primes")]
    Security {
        /// Ring degree.
        ring_degree: usize,
        /// Bits of the modulus, special prime included.
        bits: u32,
        /// What the table allows.
        limit: u32,
    },
    /// Objects of different parameters.
    #[error("{0} belongs to other parameters; make all objects of a session from the same parameters")]
    ForeignParams(&'static str),
    /// A list of the wrong length.
    #[error("{what} has {got} entries, expected {expected}")]
    Length {
        /// Which.
        what: &'static str,
        /// What it must be.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// A slot value that is not reduced.
    #[error("a slot value is not below the plaintext modulus {0}; reduce values first")]
    NotReduced(u64),
    /// Words from a peer that are not residues.
    #[error("a received word of {0} is not below its modulus; the message is damaged or forged")]
    Damaged(&'static str),
    /// A rotation without its key.
    #[error("no key for the slot permutation {0}; name it when the client makes the Galois keys")]
    MissingKey(String),
    /// Parameters without a gadget.
    #[error("these parameters have no key switching; choose ones with a special prime or digits")]
    NoSwitching,
    /// The flooding does not cover the noise.
    #[error("noise of 2^{noise_bits:.1} leaves less than 40 bits of flooding (at most 2^{limit_bits:.1}); use parameters with a wider modulus")]
    Noise {
        /// log2 of the noise's Euclidean norm bound.
        noise_bits: f64,
        /// log2 of the largest that is hidden.
        limit_bits: f64,
    },
    /// No parameters of the table hold the noise.
    #[error("no 128-bit parameters up to ring degree {largest} hold the noise of this layer at {plain_bits}-bit shares; use fewer bits or split the layer")]
    NoParameters {
        /// Largest ring degree tried.
        largest: usize,
        /// Bits of t.
        plain_bits: u32,
    },
    /// The residue system refused.
    #[error(transparent)]
    Rns(#[from] RnsError),
    /// The ring refused.
    #[error(transparent)]
    Ring(#[from] RingError),
}

/// Checks a length.
pub(super) fn expect(what: &'static str, got: usize, expected: usize) -> Result<(), BfvError> {
    if got == expected {
        Ok(())
    } else {
        Err(BfvError::Length { what, expected, got })
    }
}
