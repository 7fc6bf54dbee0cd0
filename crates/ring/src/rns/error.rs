//! Errors of the residue number system.

use crate::RingError;
use std::ops::Range;

/// What a caller asked of a basis or polynomial that it cannot give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RnsError {
    /// The modulus is not a prime of the supported size.
    #[error("{0} is not a prime between 8 and 2^50; choose primes = 1 mod 2N of at most 50 bits")]
    Modulus(u64),
    /// A prime occurs twice.
    #[error("the prime {0} occurs twice in the basis; its primes must differ")]
    Repeated(u64),
    /// The basis has no prime.
    #[error("a basis needs at least one prime")]
    Empty,
    /// An operand lacks limbs that the operation needs.
    #[error("an operand has the primes {got:?} of the basis where {needed:?} are needed")]
    Limbs {
        /// Positions in the basis that the operation touches.
        needed: Range<usize>,
        /// Positions that the operand has.
        got: Range<usize>,
    },
    /// A polynomial of another ring degree.
    #[error("a polynomial has {got} coefficients, this basis {expected}")]
    Degree {
        /// The basis' ring degree.
        expected: usize,
        /// The operand's.
        got: usize,
    },
    /// A list of per-prime constants or parts has the wrong length.
    #[error("{what} has {got} entries, expected {expected}")]
    Count {
        /// Which argument.
        what: &'static str,
        /// What it must be.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// X -> X^g needs an odd exponent.
    #[error("X -> X^{0} is no automorphism; the exponent must be odd")]
    Exponent(usize),
    /// The automorphisms of the conjugate-invariant ring are not implemented.
    #[error("the conjugate-invariant ring has no automorphisms here; use the cyclotomic ring")]
    NoAutomorphisms,
    /// From the transforms.
    #[error(transparent)]
    Ring(#[from] RingError),
}
