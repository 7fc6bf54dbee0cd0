//! Word buffers that are used again: polynomials of a few hundred kibibytes would otherwise be mapped and
//! unmapped by the allocator for every operation.

use crate::AlignedWords;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

/// Words that a thread keeps for later at most (64 MiB).
const KEPT_WORDS: usize = 1 << 23;

#[derive(Default)]
struct Pool {
    free: HashMap<usize, Vec<AlignedWords>>,
    words: usize,
}

impl Pool {
    /// Keeps a buffer; where there is no room, buffers of other sizes, which are not in use now, give way.
    fn keep(&mut self, words: AlignedWords) {
        let len = words.len();
        if len == 0 || len > KEPT_WORDS {
            return;
        }
        while self.words + len > KEPT_WORDS {
            let Some((&other, list)) = self.free.iter_mut().find(|(l, list)| **l != len && !list.is_empty())
            else {
                return;
            };
            list.pop();
            self.words -= other;
        }
        self.words += len;
        self.free.entry(len).or_default().push(words);
    }
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(Pool::default());
}

/// A buffer that goes back to its thread's pool when dropped. Contents are not wiped: owners of secrets wipe.
pub(super) struct Buffer(AlignedWords);

impl Buffer {
    /// A buffer with arbitrary (but initialised) contents, for callers that write every word.
    pub(super) fn dirty(len: usize) -> Self {
        let recycled = POOL.try_with(|pool| {
            let pool = &mut *pool.borrow_mut();
            let words = pool.free.get_mut(&len)?.pop()?;
            pool.words -= len;
            Some(words)
        });
        Self(recycled.ok().flatten().unwrap_or_else(|| AlignedWords::new(len)))
    }

    /// A buffer of zeros.
    pub(super) fn zero(len: usize) -> Self {
        let mut b = Self::dirty(len);
        b.0.fill(0);
        b
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let words = std::mem::replace(&mut self.0, AlignedWords::new(0));
        // A thread that is ending has no pool any more: then the buffer is simply freed.
        let _ = POOL.try_with(|pool| {
            let pool = &mut *pool.borrow_mut();
            pool.keep(words);
        });
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut b = Self::dirty(self.0.len());
        b.0.copy_from_slice(&self.0);
        b
    }
}

impl Deref for Buffer {
    type Target = [u64];
    #[inline]
    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_recycled_zeroed_on_request_and_bounded() {
        let mut a = Buffer::zero(100);
        assert!(a.iter().all(|w| *w == 0));
        a.fill(7);
        let at = a.as_ptr();
        drop(a);
        let b = Buffer::zero(100);
        assert!(b.as_ptr() == at && b.iter().all(|w| *w == 0));
        drop(b);
        drop((0..5).map(|_| Buffer::dirty(KEPT_WORDS / 2)).collect::<Vec<_>>());
        POOL.with(|p| assert_eq!(p.borrow().words, KEPT_WORDS));
        // The small one gave way, and does so in turn.
        drop(Buffer::dirty(100));
        POOL.with(|p| assert_eq!(p.borrow().words, KEPT_WORDS / 2 + 100));
        drop(Buffer::dirty(KEPT_WORDS + 1));
        POOL.with(|p| assert_eq!(p.borrow().words, KEPT_WORDS / 2 + 100));
        assert_eq!(Buffer::dirty(0).len(), 0);
    }
}
