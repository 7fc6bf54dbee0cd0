//! What can be wrong with a product.

/// Why a weight matrix or a product is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatmulError {
    /// A matrix without rows or columns, or too large to count.
    #[error("a weight matrix of {m} x {k} is empty or too large; both sides must be 1 to 2^24")]
    Shape {
        /// Rows.
        m: usize,
        /// Columns.
        k: usize,
    },
    /// A buffer of the wrong length.
    #[error("{what}: expected {expected}, got {got}")]
    Length {
        /// Which one.
        what: &'static str,
        /// Length that the product needs.
        expected: usize,
        /// Length that came.
        got: usize,
    },
    /// A modulus 2^k outside of 64-bit words, or beyond the kernel that was asked for.
    #[error("a modulus of {bits} bits is outside of 1 to {limit} for the {kernel} kernel")]
    ModulusBits {
        /// Bits asked for.
        bits: u32,
        /// Most that the kernel takes.
        limit: u32,
        /// Name of the kernel.
        kernel: &'static str,
    },
    /// The processor lacks the instructions of a kernel that was asked for by name.
    #[error(
        "this processor lacks the instructions of the {0} kernel; use the kernel that Kernel::choose gives"
    )]
    MissingInstructions(&'static str),
    /// Limb products asked from a kernel that works on whole words, or the reverse.
    #[error("the {0} kernel does not take this input; check Prepared::layout first")]
    WrongInput(&'static str),
}

pub(crate) fn expect(what: &'static str, expected: usize, got: usize) -> Result<(), MatmulError> {
    if expected == got {
        Ok(())
    } else {
        Err(MatmulError::Length { what, expected, got })
    }
}

pub(crate) fn at_least(what: &'static str, expected: usize, got: usize) -> Result<(), MatmulError> {
    if got >= expected {
        Ok(())
    } else {
        Err(MatmulError::Length { what, expected, got })
    }
}
