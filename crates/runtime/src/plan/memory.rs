//! One account of the bytes that a plan makes a party hold, added up before anything is allocated and compared with the limit.

use super::{Limits, PlanError};

/// What a plan needs: the sum of its parts, and the largest of them for the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    total: u64,
    largest: Option<(String, u64)>,
}

impl Need {
    /// Adds a part; sums saturate, so that no number of a plan makes them wrap.
    pub(crate) fn add(&mut self, part: &str, bytes: u64) {
        self.total = self.total.saturating_add(bytes);
        if self.largest.as_ref().is_none_or(|(_, most)| bytes > *most) {
            self.largest = Some((part.to_owned(), bytes));
        }
    }

    /// Adds the largest of parts of which one at a time is held: pairs of a part's name and its bytes.
    pub(crate) fn add_largest<'a>(&mut self, what: &str, parts: impl Iterator<Item = (&'a str, u64)>) {
        if let Some((stage, bytes)) = parts.max_by_key(|p| p.1) {
            self.add(&format!("{what} of stage '{stage}'"), bytes);
        }
    }

    /// The number of bytes in all, saturating.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.total
    }

    /// Compares it with the limit.
    ///
    /// # Errors
    /// [`PlanError::Memory`] when it is above.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), PlanError> {
        if self.total <= limits.memory_bytes {
            return Ok(());
        }
        let (part, bytes) = self.largest.clone().unwrap_or_default();
        Err(PlanError::Memory { need: self.total, part, bytes, limit: limits.memory_bytes })
    }
}

/// Product of sizes, at most `u64::MAX`.
pub(crate) fn product(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1, |p, s| p.saturating_mul(*s as u64))
}
