//! Errors of RNS-CKKS.

use hushnet_ring::rns::RnsError;
use hushnet_ring::RingError;

/// What cannot be done, and what to do instead. No message contains a secret or a plaintext value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CkksError {
    /// A specification that no parameters satisfy.
    #[error("CKKS parameters: {0}")]
    Spec(String),
    /// Modulus too wide for 128-bit security.
    #[error("log2 QP = {bits} at N={ring_degree} is not 128-bit secure (at most {limit}); use a larger N, fewer or smaller primes, or state `Insecure`")]
    Security {
        /// Ring degree.
        ring_degree: usize,
        /// log2 of the product of all primes, rounded up.
        bits: u32,
        /// Largest secure log2; 0 when N is not in the table.
        limit: u32,
    },
    /// Two operands were made under different parameters.
    #[error("{0} belongs to other parameters; make all keys and ciphertexts from one CkksParams")]
    ForeignParams(&'static str),
    /// A key that does not belong to the secret of the others.
    #[error("{0} belongs to another secret than the other keys; send all keys of one secret")]
    ForeignSecret(&'static str),
    /// A level outside 1..=max.
    #[error("level {got} does not exist; levels are 1 to {max}")]
    Level {
        /// What came.
        got: usize,
        /// Number of data primes.
        max: usize,
    },
    /// An operand is at a lower level than needed.
    #[error("{what} has level {got}, but level {needed} is needed; encode or keep it at a higher level, or drop the other operand with drop_to({got})")]
    LevelTooLow {
        /// Which operand.
        what: &'static str,
        /// Its level.
        got: usize,
        /// What the operation needs.
        needed: usize,
    },
    /// No prime left to rescale by.
    #[error("level 1 cannot be rescaled; the circuit needs more data primes than these parameters have")]
    NoLevelLeft,
    /// Sums of different scales.
    #[error("scales 2^{left:.6} and 2^{right:.6} differ; multiply one operand by a scalar encoded at scale 2^{missing:.6} times a prime and rescale, or encode the plaintext at the ciphertext's scale")]
    ScaleMismatch {
        /// log2 of the first scale.
        left: f64,
        /// log2 of the second scale.
        right: f64,
        /// log2 of their ratio.
        missing: f64,
    },
    /// A scale that is not a positive finite number.
    #[error("a scale must be a finite number of at least 1")]
    BadScale,
    /// Values times scale do not fit in the modulus.
    #[error("values up to 2^{value_bits:.1} at scale 2^{scale_bits:.1} do not fit in the {modulus_bits:.1}-bit modulus of level {level}; rescale, use a smaller scale, a higher level, or state a tighter bound")]
    Capacity {
        /// log2 of the message bound.
        value_bits: f64,
        /// log2 of the scale.
        scale_bits: f64,
        /// log2 of the modulus at the level.
        modulus_bits: f64,
        /// The level.
        level: usize,
    },
    /// An input is larger than its declared bound.
    #[error("value number {index} exceeds the declared bound {bound} or is not finite; state a larger bound or scale the data")]
    ValueOutOfRange {
        /// Position in the input.
        index: usize,
        /// The declared bound.
        bound: f64,
    },
    /// Complex values in a ring with real slots.
    #[error(
        "slots of the conjugate-invariant ring are real; encode real values, or use the cyclotomic ring"
    )]
    RealSlots,
    /// More values than slots.
    #[error("{got} values do not fit in {slots} slots; split the batch")]
    TooManyValues {
        /// What came.
        got: usize,
        /// Slots available.
        slots: usize,
    },
    /// An operation on a ciphertext with the wrong number of parts.
    #[error("{what} needs a ciphertext of {needed} parts, this one has {got}; relinearise first")]
    Parts {
        /// The operation.
        what: &'static str,
        /// What it takes.
        needed: usize,
        /// What came.
        got: usize,
    },
    /// Key switching without special primes.
    #[error(
        "these parameters have no special prime, so there are no relinearisation or rotation keys; add one"
    )]
    NoSpecialPrime,
    /// A rotation without its key.
    #[error("no key for {0}; add it when the Galois keys are made")]
    MissingKey(String),
    /// A list that must not be empty or has the wrong length.
    #[error("{what} has {got} entries, expected {expected}")]
    Count {
        /// Which list.
        what: &'static str,
        /// What it must be.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// Bytes that are not what they should be.
    #[error("malformed {what}: {why}")]
    Bytes {
        /// Kind of object.
        what: &'static str,
        /// What is wrong.
        why: &'static str,
    },
    /// From the residue number system.
    #[error(transparent)]
    Rns(#[from] RnsError),
    /// From the ring.
    #[error(transparent)]
    Ring(#[from] RingError),
}
