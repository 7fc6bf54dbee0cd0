//! The crate's error type.

/// What a caller asked for that does not exist, with what would be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The ring degree is not a supported power of two.
    #[error("ring degree {0} is not supported; use a power of two from 8 to 65536")]
    RingDegree(usize),
    /// The prime does not allow a negacyclic transform of this degree.
    #[error("{modulus} is not a prime = 1 mod {twice_degree} below 2^61; take one from primes_near")]
    Modulus {
        /// The refused modulus.
        modulus: u64,
        /// Twice the ring degree.
        twice_degree: usize,
    },
    /// There are not that many primes of that size.
    #[error("only {found} of {wanted} primes = 1 mod 2*{ring_degree} have exactly {bits} bits; use more bits (at most 61)")]
    NotEnoughPrimes {
        /// Size asked for.
        bits: u32,
        /// Ring degree asked for.
        ring_degree: usize,
        /// How many were asked for.
        wanted: usize,
        /// How many there are.
        found: usize,
    },
    /// The word size is out of range.
    #[error("modulus 2^{0} is not supported; use 1 to 64 bits")]
    ModulusBits(u32),
    /// A slice has the wrong length.
    #[error("{what} has {got} elements, expected {expected}")]
    Length {
        /// Which argument.
        what: &'static str,
        /// What it must be.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// A transformed polynomial was made by a multiplier of another degree or instruction set.
    #[error("{0} was made by another multiplier; transform it with the one that multiplies")]
    ForeignHat(&'static str),
    /// A ternary coefficient is not -1, 0 or 1.
    #[error("a small polynomial has coefficients other than -1, 0, 1")]
    NotTernary,
    /// The operating system gave no randomness.
    #[error("the operating system's random generator failed: {0}")]
    Entropy(String),
    /// `HUSHNET_SIMD` is not one of the known names.
    #[error("HUSHNET_SIMD={0:?} is unknown; use portable, avx2, avx512, ifma, vnni or amx")]
    UnknownIsa(String),
    /// `HUSHNET_SIMD` names an instruction set that this machine lacks.
    #[error(
        "HUSHNET_SIMD={wanted} asks for more than this processor has ({available}); unset it or lower it"
    )]
    MissingIsa {
        /// Asked for.
        wanted: &'static str,
        /// Best of this machine.
        available: &'static str,
    },
}

/// Checks a length.
pub(crate) fn expect_len(what: &'static str, got: usize, expected: usize) -> Result<(), RingError> {
    if got == expected {
        Ok(())
    } else {
        Err(RingError::Length { what, expected, got })
    }
}

/// Checks a word size.
pub(crate) fn expect_bits(k: u32) -> Result<(), RingError> {
    if (1..=64).contains(&k) {
        Ok(())
    } else {
        Err(RingError::ModulusBits(k))
    }
}
