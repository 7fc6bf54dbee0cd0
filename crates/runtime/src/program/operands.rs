//! What an operation finds in place of its operands.
//!
//! The check of plans lets no operation through that lacks an operand. A program that still meets one stops with an error: zeros in
//! its place would be a wrong answer that nobody notices.

use super::values::{Data, Values};
use crate::plan::{Op, Tensor};

/// Why an operation cannot run: an error of this program, since the check of plans refuses such operations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OperandError {
    /// An operand has no values.
    #[error("tensor '{output}' is computed from tensor '{operand}', which holds no values at that point of the run")]
    Absent {
        /// Tensor that was to be computed.
        output: String,
        /// Operand without values.
        operand: String,
    },
    /// Integers where the operation takes real numbers.
    #[error("tensor '{output}' is computed from real numbers, and tensor '{operand}' holds integers")]
    Integers {
        /// Tensor that was to be computed.
        output: String,
        /// Operand that holds integers.
        operand: String,
    },
    /// A slice outside of its operand.
    #[error(
        "tensor '{output}' is a slice of axis {axis} from position {start} in steps of {step}; positions of this axis are 0 to {size} (exclusive), \
         and a step is not zero"
    )]
    Slice {
        /// Tensor that was to be computed.
        output: String,
        /// Axis of the operand.
        axis: usize,
        /// Positions of the axis.
        size: usize,
        /// First position.
        start: i64,
        /// Distance of positions.
        step: i64,
    },
    /// An operation that computes, where only moves can run.
    #[error("tensor '{output}' was to be moved, and its operation computes")]
    NoMove {
        /// Tensor that was to be computed.
        output: String,
    },
}

impl From<OperandError> for crate::error::Error {
    fn from(e: OperandError) -> Self {
        Self::Internal(e.to_string())
    }
}

/// The values of operand `i` of an operation.
///
/// # Errors
/// [`OperandError::Absent`] when it has none.
pub(super) fn operand<'v>(
    op: &Op,
    i: usize,
    tensors: &[Tensor],
    values: &'v Values<'_>,
) -> Result<&'v Data, OperandError> {
    let t = op.inputs[i];
    values.data(t).ok_or_else(|| OperandError::Absent {
        output: tensors[op.output].name.clone(),
        operand: tensors[t].name.clone(),
    })
}
