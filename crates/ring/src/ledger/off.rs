//! The ledger of the product: nothing.

use super::Kind;

/// Nothing; with the feature, the digest of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag(());

impl Tag {
    /// The tag of all words of a slice.
    #[inline(always)]
    #[must_use]
    pub fn words(_: &[u64]) -> Self {
        Self(())
    }

    /// Of the lowest byte of every word: equal for one polynomial modulo two powers of two.
    #[inline(always)]
    #[must_use]
    pub fn low(_: &[u64]) -> Self {
        Self(())
    }

    /// The tag of small coefficients, such as secrets and errors.
    #[inline(always)]
    #[must_use]
    pub fn small(_: &[i8]) -> Self {
        Self(())
    }

    /// The tag of signed integers of a slice.
    #[inline(always)]
    #[must_use]
    pub fn integers(_: &[i64]) -> Self {
        Self(())
    }

    /// The tag of all bytes of a slice.
    #[inline(always)]
    #[must_use]
    pub fn bytes(_: &[u8]) -> Self {
        Self(())
    }

    /// The tag of a number, such as a counter.
    #[inline(always)]
    #[must_use]
    pub fn number(_: u64) -> Self {
        Self(())
    }
}

/// Nothing; with the feature, which keyed generator this is.
#[derive(Clone, Debug)]
pub struct Stream;

impl Stream {
    /// The stream of words that a generator of this kind makes of `seed`.
    #[inline(always)]
    #[must_use]
    pub fn new(_: Kind, _: &[u8]) -> Self {
        Self
    }

    /// The same generator, its use recorded under another kind, or (`None`) not at all.
    #[inline(always)]
    pub fn rename(&mut self, _: Option<Kind>) {}

    /// Counters `first..first + count` are used up.
    #[inline(always)]
    pub fn take(&self, _: u128, _: u64) {}
}

/// The identity made of these tags is used.
#[inline(always)]
pub fn once(_: Kind, _: &[Tag]) {}

/// The identity made of the tags is used for this content.
#[inline(always)]
pub fn same(_: Kind, _: &[Tag], _: Tag) {}

/// Every word is used: 64 random bits each.
#[inline(always)]
pub fn words(_: Kind, _: &mut [u64]) {}

/// Every block is used: about 128 random bits each.
#[inline(always)]
pub fn blocks(_: Kind, _: &mut [u128]) {}

/// The same of blocks that are used with a tweak XORed to each.
#[inline(always)]
pub fn tweaked(_: Kind, _: &mut [u128], _: u128) {}

/// The bytes are used as one value.
#[inline(always)]
pub fn bytes(_: Kind, _: &mut [u8]) {}

/// Runs of words are used: fewer records than [`words`].
#[inline(always)]
pub fn vector(_: Kind, _: &mut [u64]) {}

/// The small polynomial is used as one value.
#[inline(always)]
pub fn small(_: Kind, _: &mut [i8]) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the product carries of the ledger.
    #[test]
    fn nothing_is_left_of_it() {
        const { assert!(!super::super::ON) };
        assert_eq!((size_of::<Tag>(), size_of::<Stream>()), (0, 0));
    }
}
