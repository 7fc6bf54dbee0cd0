//! Buffers that kernels reuse from call to call; one for every thread.

use crate::limbs::Lane;

/// Working memory of products. It grows to what the largest product needs and is then reused.
#[derive(Default)]
pub struct Scratch {
    /// Copies of columns, and where they are.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) words: (Vec<Lane>, Vec<(*const u64, usize)>),
    /// Columns that are not padding.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) columns: Vec<(*const u64, usize)>,
    /// Packed limbs.
    pub(crate) limbs: Vec<Lane>,
    /// Segments of a limb product.
    pub(crate) segments: Vec<crate::kernels::tiles::Segment>,
    /// Stored accumulator tiles.
    pub(crate) accumulators: Vec<Lane>,
    /// What outputs begin with.
    #[cfg(target_arch = "x86_64")]
    pub(crate) constants: Vec<u64>,
}

impl Scratch {
    /// Empty scratch memory, which grows with its first use.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// At least `lanes` lanes.
pub(crate) fn grow(buffer: &mut Vec<Lane>, lanes: usize) {
    if buffer.len() < lanes {
        buffer.resize(lanes, Lane::ZERO);
    }
}
