//! What a process is willing to allocate for a plan.

use super::PlanError;

/// Upper limits, checked before anything is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a plan file.
    pub file_bytes: u64,
    /// Bytes of the plan JSON.
    pub json_bytes: u64,
    /// Tensors.
    pub tensors: u64,
    /// Stages.
    pub stages: u64,
    /// Client operations in all.
    pub ops: u64,
    /// Tiles in all.
    pub tiles: u64,
    /// Axes of a tensor.
    pub rank: u64,
    /// Elements of a tensor, per image.
    pub elements: u64,
    /// Bytes of a frame.
    pub frame_bytes: u64,
    /// Steps that finding the layouts of all linear layers may take.
    pub layout_steps: u64,
    /// Bytes that a client holds at once: tensors or shares, protocols, ciphertexts on their way, keys, set-ups.
    pub memory_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 8 << 30,
            json_bytes: 64 << 20,
            tensors: 1 << 16,
            stages: 1 << 14,
            ops: 1 << 16,
            tiles: 1 << 20,
            rank: 8,
            elements: 1 << 28,
            frame_bytes: 1 << 30,
            layout_steps: 1 << 31,
            memory_bytes: 32 << 30,
        }
    }
}

impl Limits {
    /// Bytes of JSON that may be read: parsed, a document takes up to some twenty times its length, which the limit of memory must hold.
    pub(crate) fn json(&self) -> u64 {
        self.json_bytes.min((self.memory_bytes / 32).max(1 << 20))
    }

    /// Refuses `value` above `limit`.
    pub(crate) fn check(what: &str, value: u64, limit: u64) -> Result<(), PlanError> {
        if value > limit {
            return Err(PlanError::TooLarge { what: what.to_owned(), value, limit });
        }
        Ok(())
    }
}

/// Product of a shape, or `None` when it does not fit `usize`.
pub(crate) fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |n, &d| n.checked_mul(d))
}
