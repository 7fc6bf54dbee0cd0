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
    /// The least words that were here since [`Pool::release`]: nobody has needed them.
    unused: usize,
}

impl Pool {
    const fn new(most: usize) -> Self {
        Self { free: BTreeMap::new(), words: 0, most, unused: 0 }
    }

    /// A buffer of `len` words or up to a quarter more: polynomials of a few primes less take what those of more have left.
    fn take(&mut self, len: usize) -> Option<AlignedWords> {
        let words = self.free.range_mut(len..=len + len / 4).find_map(|(_, list)| list.pop())?;
        self.words -= words.len();
        self.unused = self.unused.min(self.words);
        Some(words)
    }

    /// Gives up as many words as nobody has needed since the last call, the longest buffers first.
    fn release(&mut self) -> Vec<AlignedWords> {
        let (mut left, mut out) = (self.unused, Vec::new());
        for (len, list) in self.free.iter_mut().rev() {
            let count = (left / len).min(list.len());
            left -= count * len;
            self.words -= count * len;
            out.extend(list.drain(list.len() - count..));
        }
        self.free.retain(|_, list| !list.is_empty());
        self.unused = self.words;
        out
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
            self.unused = self.unused.min(self.words);
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

/// Gives back to the allocator the buffers that all threads share and that nobody has needed since the last call; their bytes. A process that works
/// now and then calls it now and then: after two calls without work between them nothing is left there. What a thread keeps for itself stays, 64 MiB at
/// most of each thread that makes polynomials.
#[must_use]
pub fn release_buffers() -> usize {
    // Freed without the lock.
    let unused = shared().release();
    unused.iter().map(|words| words.len() * size_of::<u64>()).sum()
}

/// Leaves what this thread keeps for itself to all threads, from which [`release_buffers`] gives it back once nobody needs it. A thread calls it at the
/// end of its work where others may wait for work as it does: each would keep up to 64 MiB else, whether or not it is ever called upon again.
pub fn leave_buffers() {
    // A thread that is ending has no pool any more.
    let _ = POOL.try_with(Own::leave);
}

/// A thread's pool, and the words that the thread has taken and not given back. What is in it when the thread ends is left to the others.
struct Own(RefCell<(Pool, usize)>);

impl Own {
    /// Leaves all of it to the others.
    fn leave(&self) {
        let own = std::mem::replace(&mut *self.0.borrow_mut(), (Pool::new(THREAD_WORDS), 0));
        let mut shared = shared();
        let out: Vec<AlignedWords> =
            own.0.free.into_values().flatten().flat_map(|words| shared.keep(words)).collect();
        // Freed without the lock.
        drop(shared);
        drop(out);
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.leave();
    }
}

thread_local! {
    static POOL: Own = const { Own(RefCell::new((Pool::new(THREAD_WORDS), 0))) };
}

/// Keeps a buffer: for this thread, if it takes as many as it gives, else for all. A thread that only ends what others have made, as that of a session
/// whose keys were read by the threads that compute, would hold buffers that it never uses.
fn keep(words: AlignedWords) {
    let (mut left, mut rest) = (Some(words), Vec::new());
    // A thread that is ending has no pool any more.
    let _ = POOL.try_with(|own| {
        let (pool, taken) = &mut *own.0.borrow_mut();
        let len = left.as_ref().map_or(0, |words| words.len());
        if *taken >= len {
            *taken -= len;
            rest = left.take().map_or_else(Vec::new, |words| pool.keep(words));
        }
    });
    if left.is_some() || !rest.is_empty() {
        let mut shared = shared();
        let out: Vec<AlignedWords> =
            rest.into_iter().chain(left).flat_map(|words| shared.keep(words)).collect();
        // Freed without the lock.
        drop(shared);
        drop(out);
    }
}

/// A buffer that is kept, else a new one.
fn take(len: usize) -> AlignedWords {
    let own = POOL.try_with(|own| own.0.borrow_mut().0.take(len));
    let words = own.ok().flatten().or_else(|| shared().take(len)).unwrap_or_else(|| AlignedWords::new(len));
    let _ = POOL.try_with(|own| {
        let taken = &mut own.0.borrow_mut().1;
        *taken = taken.saturating_add(words.len());
    });
    words
}

/// A buffer that goes back to its thread's pool when dropped, of which `len` words are used. Contents are not wiped: owners of secrets wipe.
pub(super) struct Buffer {
    words: AlignedWords,
    len: usize,
}

impl Buffer {
    /// A buffer with arbitrary (but initialised) contents, for callers that write every word.
    pub(super) fn dirty(len: usize) -> Self {
        Self { words: take(len), len }
    }

    /// A buffer of zeros.
    pub(super) fn zero(len: usize) -> Self {
        let mut b = Self::dirty(len);
        b.fill(0);
        b
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        keep(std::mem::replace(&mut self.words, AlignedWords::new(0)));
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut b = Self::dirty(self.len);
        b.copy_from_slice(self);
        b
    }
}

impl Deref for Buffer {
    type Target = [u64];
    #[inline]
    fn deref(&self) -> &[u64] {
        &self.words[..self.len]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.words[..self.len]
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
        // No other test has buffers that would do; new ones are zero.
        const LEN: usize = 530_008;
        let marked = || Buffer::zero(LEN).fill(7);
        std::thread::spawn(marked).join().expect("a thread");
        let next = || Buffer::dirty(LEN).iter().all(|w| *w == 7);
        assert!(std::thread::spawn(next).join().expect("a thread"));
    }

    #[test]
    fn a_thread_that_leaves_keeps_nothing_for_itself() {
        // No other test has buffers that would do.
        const LEN: usize = 700_008;
        let work = || {
            drop((0..8).map(|_| Buffer::zero(LEN)).collect::<Vec<_>>());
            let held = || POOL.with(|own| own.0.borrow().0.words);
            let before = held();
            leave_buffers();
            (before, held())
        };
        assert_eq!(std::thread::spawn(work).join().expect("a thread"), (8 * LEN, 0));
        assert!(shared().free.get(&LEN).is_some_and(|list| list.len() == 8));
    }

    #[test]
    fn a_thread_that_only_frees_keeps_nothing_for_itself() {
        // No other test has buffers that would do.
        const LEN: usize = 900_008;
        let made: Vec<Buffer> = (0..8).map(|_| Buffer::zero(LEN)).collect();
        let kept = std::thread::spawn(move || {
            drop(made);
            POOL.with(|own| own.0.borrow().0.words)
        });
        assert_eq!(kept.join().expect("a thread"), 0);
        // They are there for all: nothing is taken from the system again.
        assert!(shared().free.get(&LEN).is_some_and(|list| list.len() == 8));
        let again = std::thread::spawn(|| {
            let mut taken: Vec<Buffer> = (0..8).map(|_| Buffer::dirty(LEN)).collect();
            assert!(shared().free.get(&LEN).is_none_or(Vec::is_empty));
            taken.truncate(4);
            POOL.with(|own| own.0.borrow().0.words)
        });
        assert_eq!(again.join().expect("a thread"), 4 * LEN, "what it has taken it keeps");
    }

    #[test]
    fn what_nobody_needs_is_released() {
        let of = AlignedWords::new;
        let mut pool = Pool::new(10_000);
        for len in [100, 100, 100, 500] {
            assert!(pool.keep(of(len)).is_empty());
        }
        assert!(pool.release().is_empty(), "all of it came since the last call");
        let taken = pool.take(500).expect("it is there");
        assert!(pool.keep(taken).is_empty());
        assert!(pool.take(399).is_none() && pool.take(501).is_none(), "a quarter more at most");
        // 300 words were not needed; the buffer of 500 was.
        assert_eq!(pool.release().iter().map(|w| w.len()).sum::<usize>(), 300);
        assert_eq!((pool.words, pool.release().len()), (500, 1));
        assert!(pool.release().is_empty() && pool.free.is_empty());
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
