//! Where parallel work runs, and per-thread room that is used again.

use crate::error::Error;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// The thread pool of a party; by default rayon's global one.
///
/// Protocol threads, which wait for the peer, never run inside a pool: a pool of one thread serves both parties.
#[derive(Clone, Debug, Default)]
pub struct Compute(Option<Arc<rayon::ThreadPool>>);

impl Compute {
    /// A pool of its own; 0 threads: rayon's global pool.
    ///
    /// # Errors
    /// [`Error::Internal`] when the system refuses threads.
    pub fn with_threads(threads: usize) -> Result<Self, Error> {
        if threads == 0 {
            return Ok(Self(None));
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("hushnet-{i}"))
            .build()
            .map_err(|e| Error::Internal(e.to_string()))?;
        Ok(Self(Some(Arc::new(pool))))
    }

    /// Whether both are the same pool.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }

    /// Runs `f` in the pool and waits for it.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        match &self.0 {
            Some(pool) => pool.install(f),
            None => f(),
        }
    }

    /// The number of threads of the pool.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.0.as_ref().map_or_else(rayon::current_num_threads, |p| p.current_num_threads())
    }
}

/// Things that threads borrow and give back.
pub(crate) struct Shelf<T>(Mutex<Vec<T>>);

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Shelf<T> {
    /// One from the shelf, or a new one.
    pub(crate) fn take<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<Lease<'_, T>, E> {
        let item = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(Lease { shelf: self, item: Some(item.map_or_else(make, Ok)?) })
    }
}

/// Gives its item back when dropped.
pub(crate) struct Lease<'a, T> {
    shelf: &'a Shelf<T>,
    item: Option<T>,
}

impl<T> Deref for Lease<'_, T> {
    type Target = T;
    #[allow(clippy::expect_used, reason = "the item is there until drop")]
    fn deref(&self) -> &T {
        self.item.as_ref().expect("present until drop")
    }
}

impl<T> DerefMut for Lease<'_, T> {
    #[allow(clippy::expect_used, reason = "the item is there until drop")]
    fn deref_mut(&mut self) -> &mut T {
        self.item.as_mut().expect("present until drop")
    }
}

impl<T> Drop for Lease<'_, T> {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.shelf.0.lock().unwrap_or_else(PoisonError::into_inner).push(item);
        }
    }
}
