//! Word buffers that are used again: polynomials of a few hundred kibibytes would otherwise be mapped and
//! unmapped by the allocator for every operation.

use crate::AlignedWords;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Words that a thread keeps for later at most (64 MiB).
const THREAD_WORDS: usize = 1 << 23;
/// Words that all threads together keep besides (1 GiB): what a batch filled, the next one fills again, and pages from the system cost more than
/// the words that are written to them.
const SHARED_WORDS: usize = 1 << 27;

/// Buffers that are not in use, by length.
struct Pool {
    free: BTreeMap<usize, Vec<AlignedWords>>,
    words: usize,
    most: usize,
}

impl Pool {
    const fn new(most: usize) -> Self {
        Self { free: BTreeMap::new(), words: 0, most }
    }

    fn take(&mut self, len: usize) -> Option<AlignedWords> {
        let words = self.free.get_mut(&len)?.pop()?;
        self.words -= len;
        Some(words)
    }

    /// Keeps a buffer; where there is no room, buffers of other sizes, which are not in use now, give way. Returns what is not kept.
    fn keep(&mut self, words: AlignedWords) -> Vec<AlignedWords> {
        let len = words.len();
        if len == 0 || len > self.most {
            return vec![words];
        }
        let mut out = Vec::new();
        while self.words + len > self.most {
            let Some((&other, list)) = self.free.iter_mut().find(|(l, list)| **l != len && !list.is_empty())
            else {
                out.push(words);
                return out;
            };
            out.extend(list.pop());
            self.words -= other;
        }
        self.words += len;
        self.free.entry(len).or_default().push(words);
        out
    }
}

/// What threads leave.
static SHARED: Mutex<Pool> = Mutex::new(Pool::new(SHARED_WORDS));

fn shared() -> MutexGuard<'static, Pool> {
    // Nothing in the pool can be half done.
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread's pool; what is in it when the thread ends is left to the others.
struct Own(RefCell<Pool>);

impl Drop for Own {
    fn drop(&mut self) {
        let mut shared = shared();
        for words in std::mem::take(&mut self.0.get_mut().free).into_values().flatten() {
            shared.keep(words);
        }
    }
}

thread_local! {
    static POOL: Own = const { Own(RefCell::new(Pool::new(THREAD_WORDS))) };
}

/// Keeps a buffer of this thread.
fn keep(words: AlignedWords) {
    let mut left = Some(words);
    // A thread that is ending has no pool any more.
    let _ = POOL.try_with(|pool| {
        let own = left.take().map_or_else(Vec::new, |words| pool.0.borrow_mut().keep(words));
        if !own.is_empty() {
            let mut shared = shared();
            own.into_iter().for_each(|words| drop(shared.keep(words)));
        }
    });
    if let Some(words) = left {
        shared().keep(words);
    }
}

/// A buffer that is kept, else a new one.
fn take(len: usize) -> AlignedWords {
    let own = POOL.try_with(|pool| pool.0.borrow_mut().take(len)).ok().flatten();
    own.or_else(|| shared().take(len)).unwrap_or_else(|| AlignedWords::new(len))
}

/// A buffer that goes back to its thread's pool when dropped. Contents are not wiped: owners of secrets wipe.
pub(super) struct Buffer(AlignedWords);

impl Buffer {
    /// A buffer with arbitrary (but initialised) contents, for callers that write every word.
    pub(super) fn dirty(len: usize) -> Self {
        Self(take(len))
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
        keep(std::mem::replace(&mut self.0, AlignedWords::new(0)));
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
    fn buffers_are_recycled_and_zeroed_on_request() {
        let mut a = Buffer::zero(100);
        assert!(a.iter().all(|w| *w == 0));
        a.fill(7);
        let at = a.as_ptr();
        drop(a);
        let b = Buffer::dirty(100);
        assert!(b.as_ptr() == at && b.iter().all(|w| *w == 7));
        drop(b);
        let b = Buffer::zero(100);
        assert!(b.as_ptr() == at && b.iter().all(|w| *w == 0));
        assert_eq!(Buffer::dirty(0).len(), 0);
    }

    #[test]
    fn what_a_thread_leaves_serves_the_next() {
        // No other test has buffers of this length; new ones are zero.
        const LEN: usize = (1 << 14) + 8;
        let marked = || Buffer::zero(LEN).fill(7);
        std::thread::spawn(marked).join().expect("a thread");
        let next = || Buffer::dirty(LEN).iter().all(|w| *w == 7);
        assert!(std::thread::spawn(next).join().expect("a thread"));
    }

    #[test]
    fn pools_are_bounded_and_other_sizes_give_way() {
        let of = AlignedWords::new;
        let mut pool = Pool::new(1000);
        assert!(
            pool.keep(of(100)).is_empty() && pool.keep(of(400)).is_empty() && pool.keep(of(400)).is_empty()
        );
        // The small one gives way first, then as many of the others as it takes; never one of the same size.
        assert_eq!(pool.keep(of(300)).iter().map(|w| w.len()).collect::<Vec<_>>(), [100, 400]);
        assert_eq!(
            (pool.words, pool.take(400).map(|w| w.len()), pool.take(100).is_none()),
            (700, Some(400), true)
        );
        assert_eq!(pool.keep(of(1001)).len(), 1);
        assert!((0..2).all(|_| pool.keep(of(300)).is_empty()));
        assert_eq!((pool.keep(of(300)).len(), pool.words), (1, 900));
    }
}
