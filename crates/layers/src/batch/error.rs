//! What can be wrong with a layer.

use hushnet_matmul::MatmulError;
use hushnet_ring::RingError;
use hushnet_rlwe::CipherError;

/// Why a geometry, a tiling, weights or a buffer is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayerError {
    /// A size outside of its range.
    #[error("{what} is {got}, must be {least} to {most}")]
    Size {
        /// Which size.
        what: &'static str,
        /// What came.
        got: usize,
        /// Least allowed.
        least: usize,
        /// Most allowed.
        most: usize,
    },
    /// Groups that do not divide the channels.
    #[error("{groups} groups do not divide {channels} {what} channels")]
    Groups {
        /// Input or output.
        what: &'static str,
        /// Groups.
        groups: usize,
        /// Channels.
        channels: usize,
    },
    /// An output size that does not follow from the other sizes.
    #[error("output {what} is {got}, but input, padding, kernel, dilation and stride give {expected}")]
    OutputSize {
        /// Height or width.
        what: &'static str,
        /// What follows.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// A kernel larger than the padded input.
    #[error("the kernel reaches over {kernel} along the {what}, but the padded input has {input}")]
    KernelTooLarge {
        /// Height or width.
        what: &'static str,
        /// Reach of the dilated kernel.
        kernel: usize,
        /// Padded input.
        input: usize,
    },
    /// Tiles that are not consecutive.
    #[error("tile {tile}: {what} [{start}, {end}) must begin at {expected} and not end before it begins or beyond {limit}")]
    TileOrder {
        /// Index of the tile.
        tile: usize,
        /// Inputs or outputs.
        what: &'static str,
        /// Begin that came.
        start: usize,
        /// End that came.
        end: usize,
        /// Begin expected.
        expected: usize,
        /// Rows there are.
        limit: usize,
    },
    /// Tiles that end too early.
    #[error("the tiles cover {got} of {expected} {what}")]
    TilesIncomplete {
        /// Inputs or outputs.
        what: &'static str,
        /// Rows there are.
        expected: usize,
        /// Rows covered.
        got: usize,
    },
    /// A tile that neither takes nor gives anything.
    #[error("tile {0} is empty")]
    TileEmpty(usize),
    /// Outputs before their inputs.
    #[error("tile {tile} needs input rows up to {needed}, but only {received} have come")]
    TileTooEarly {
        /// Index of the tile.
        tile: usize,
        /// Rows needed.
        needed: usize,
        /// Rows received.
        received: usize,
    },
    /// A buffer or list of the wrong length.
    #[error("{what}: expected {expected}, got {got}")]
    Length {
        /// Which one.
        what: &'static str,
        /// Expected length.
        expected: usize,
        /// Length that came.
        got: usize,
    },
    /// Input rows that are not in the window: never added, or dropped already.
    #[error("input row {0} is not in the window; add rows in order and drop them only when no later tile needs them")]
    RowMissing(usize),
    /// A store that was made for another layer.
    #[error("the row store was made for another layer, modulus or instruction set; make it with the prepared layer's own new_store")]
    ForeignStore,
    /// Integer outputs that do not fit 63 bits.
    #[error("outputs reach beyond 2^63; use fewer weight or activation bits")]
    OutputOverflow,
    /// Something that does not fit a polynomial.
    #[error("{what} has {needed} coefficients, a polynomial has {limit}; use a larger ring degree")]
    TooLarge {
        /// Which thing.
        what: &'static str,
        /// Coefficients needed.
        needed: usize,
        /// Ring degree.
        limit: usize,
    },
    /// A stored set-up that cannot be used.
    #[error("the set-up cannot be used: {0}; ask the server for a new one")]
    Setup(&'static str),
    /// The cipher refused.
    #[error(transparent)]
    Cipher(#[from] CipherError),
    /// The ring refused.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The matrix product refused.
    #[error(transparent)]
    Matmul(#[from] MatmulError),
}

pub(crate) fn expect(what: &'static str, expected: usize, got: usize) -> Result<(), LayerError> {
    if expected == got {
        Ok(())
    } else {
        Err(LayerError::Length { what, expected, got })
    }
}
