//! Weights that are being prepared while a server listens already.
//!
//! A model is announced as soon as its plan is read: what clients are told, and what a session may hold, follows from the plan alone. Its weights
//! come later, on another thread. A session goes as far as it can without them, and waits.

use crate::error::Error;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How far a preparation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Going,
    Done,
    Failed,
}

/// Whether the weights of a model are prepared. Copies tell of the same preparation.
#[derive(Clone, Debug)]
pub struct Preparation(Arc<(Mutex<Step>, Condvar)>);

impl Preparation {
    fn new(state: Step) -> Self {
        Self(Arc::new((Mutex::new(state), Condvar::new())))
    }

    /// The preparation of weights that are there already.
    #[must_use]
    pub fn over() -> Self {
        Self::new(Step::Done)
    }

    fn state(&self) -> MutexGuard<'_, Step> {
        self.0 .0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, state: Step) {
        *self.state() = state;
        self.0 .1.notify_all();
    }

    /// Whether the weights are there.
    #[must_use]
    pub fn done(&self) -> bool {
        *self.state() == Step::Done
    }

    /// Waits for the end, whichever, for so long at most; whether it has come.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        let going = |state: &mut Step| *state == Step::Going;
        let waited = self.0 .1.wait_timeout_while(self.state(), limit, going);
        *waited.unwrap_or_else(PoisonError::into_inner).0 != Step::Going
    }
}

/// A promise that a preparation will come to an end: who drops it before has given up.
pub(crate) struct Promise(pub(crate) Preparation);

impl Drop for Promise {
    fn drop(&mut self) {
        if !self.0.wait(Duration::ZERO) {
            self.0.end(Step::Failed);
        }
    }
}

/// The work that is left of a model that was announced: it prepares the weights.
pub type Work = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// What is made once, on one thread, and waited for on others.
pub(crate) struct Pending<T> {
    value: OnceLock<T>,
    preparation: Preparation,
}

impl<T> Pending<T> {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self { value: OnceLock::new(), preparation: Preparation::new(Step::Going) }
    }

    /// Makes the value. Who waits is told of a failure, too.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn fill(&self, make: impl FnOnce() -> Result<T, Error>) -> Result<(), Error> {
        let promise = Promise(self.preparation.clone());
        let value = make()?;
        if self.value.set(value).is_ok() {
            self.preparation.end(Step::Done);
        }
        drop(promise);
        Ok(())
    }

    /// The value, as soon as it is there.
    ///
    /// # Errors
    /// [`Error::Internal`] when it could not be made.
    pub(crate) fn get(&self) -> Result<&T, Error> {
        while !self.preparation.wait(Duration::from_secs(1)) {}
        self.value
            .get()
            .ok_or_else(|| Error::Internal("the weights of this model could not be prepared".into()))
    }

    /// The value, if it is there.
    pub(crate) fn now(&self) -> Option<&T> {
        self.value.get()
    }

    /// How far it is.
    pub(crate) fn preparation(&self) -> &Preparation {
        &self.preparation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_gets_the_value_or_hears_that_there_is_none() {
        let (good, bad, lost) = (Pending::new(), Pending::<u8>::new(), Pending::<u8>::new());
        assert!(!good.preparation().done() && !good.preparation().wait(Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let waiting = [&good, &bad, &lost].map(|p| scope.spawn(|| p.get().copied().ok()));
            good.fill(|| Ok(7)).unwrap();
            bad.fill(|| Err(Error::Cancelled)).unwrap_err();
            // A thread that panics is heard of, too.
            assert!(scope.spawn(|| lost.fill(|| panic!("on purpose"))).join().is_err());
            let got = waiting.map(|w| w.join().unwrap());
            assert_eq!(got, [Some(7), None, None]);
        });
        assert!(
            good.preparation().done() && !bad.preparation().done() && bad.preparation().wait(Duration::ZERO)
        );
    }
}
