//! What a method of this family says of itself: data, so that layouts and kernels know no method by name.

use hushnet_rlwe::bfv::Counts;

/// How a matrix-vector product is ordered.
#[derive(Debug)]
pub(crate) struct DenseOrder {
    /// Which outputs a slot belongs to.
    pub spread: Spread,
    /// Whether products come before the permutation that lines them up ("row encoding"), not after.
    pub multiply_first: bool,
    /// Whether partial sums are added on shares, after the answer, and not by rotate-and-sum under encryption.
    pub sum_on_shares: bool,
    /// Operations by the papers' formula.
    pub counts: fn(&DenseSizes) -> Counts,
}

/// Where the outputs of a matrix-vector product stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// One ciphertext an output.
    Rows,
    /// One diagonal an input.
    Diagonals,
    /// Diagonals spread over the copies of the input.
    Extended,
    /// Copies of the input serve different outputs.
    Hybrid,
}

/// What [`DenseOrder::counts`] depends on.
pub(crate) struct DenseSizes {
    /// Blocks of inputs and of outputs.
    pub blocks: (u64, u64),
    /// All outputs.
    pub outputs: u64,
    /// Permutations that line inputs up with outputs.
    pub steps: u64,
    /// Steps of rotate-and-sum.
    pub folds: u64,
}

/// How a convolution is ordered.
#[derive(Debug)]
pub(crate) struct ConvOrder {
    /// Whether a ciphertext has one channel only.
    pub single: bool,
    /// Whether products of all inputs are added before they are permuted ("kernel grouping").
    pub grouped: bool,
    /// Which permutations of channels are done to the inputs, together with the kernel's rotations.
    pub early: Early,
    /// Operations by the papers' formula, where every ciphertext is full.
    pub counts: fn(&ConvSizes) -> Counts,
}

/// See [`ConvOrder::early`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Early {
    /// None: sums are permuted.
    None,
    /// The first b of every b steps, b being chosen for the layer.
    Steps,
    /// All of them.
    All,
}

/// What [`ConvOrder::counts`] depends on.
pub(crate) struct ConvSizes {
    /// Input and output channels, and those of a ciphertext.
    pub channels: (u64, u64, u64),
    /// Kernel positions.
    pub taps: u64,
    /// b.
    pub baby: u64,
}
