//! Long calls: without the interpreter lock, on a thread of their own, ended by Ctrl-C.

use crate::errors::raise;
use hushnet_runtime::{Compute, Error, Progress};
use pyo3::prelude::*;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often signals are looked at.
pub(crate) const POLL: Duration = Duration::from_millis(100);

/// The pool of calls that do not name a number of threads.
static DEFAULT: Mutex<Option<Compute>> = Mutex::new(None);

/// Threads of all later calls that do not name a number themselves; 0: one for every processor.
#[pyfunction]
pub(crate) fn set_threads(threads: usize) -> PyResult<()> {
    let compute = Compute::with_threads(threads).map_err(raise)?;
    *DEFAULT.lock().unwrap_or_else(PoisonError::into_inner) = Some(compute);
    Ok(())
}

/// A pool of so many threads; None: the one of [`set_threads`].
pub(crate) fn compute(threads: Option<usize>) -> Result<Compute, Error> {
    let Some(threads) = threads else {
        let default = DEFAULT.lock().unwrap_or_else(PoisonError::into_inner);
        return Ok(default.clone().unwrap_or_default());
    };
    Compute::with_threads(threads)
}

/// What stops a call: a signal, or an exception in the progress callback.
#[derive(Default)]
pub(crate) struct Guard {
    /// Read by the call.
    pub cancel: Arc<AtomicBool>,
    exception: Mutex<Option<PyErr>>,
}

impl Guard {
    /// With a flag that something else reads too.
    pub(crate) fn with(cancel: Arc<AtomicBool>) -> Self {
        Self { cancel, exception: Mutex::default() }
    }

    fn fail(&self, e: PyErr) {
        self.exception.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// Runs `call` on another thread and waits for it, looking at signals.
    pub(crate) fn run<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce() -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let result = py.detach(|| {
            std::thread::scope(|scope| {
                let (done, finished) = channel();
                let worker = scope.spawn(move || {
                    let result = call();
                    // The receiver outlives the worker.
                    let _ = done.send(());
                    result
                });
                while finished.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
                    if let Err(e) = Python::attach(|py: Python<'_>| py.check_signals()) {
                        self.fail(e);
                    }
                }
                worker.join().unwrap_or_else(|_| Err(Error::Internal("a thread panicked".into())))
            })
        });
        match (result, self.exception.lock().unwrap_or_else(PoisonError::into_inner).take()) {
            (_, Some(e)) => Err(e),
            (Ok(r), None) => Ok(r),
            (Err(e), None) => Err(raise(e)),
        }
    }

    /// Hands progress to a Python callable as `(stage name, tiles done, tiles)`; with several blocks, the name says which.
    pub(crate) fn progress(&self, callback: Option<&Py<PyAny>>, p: &Progress<'_>) -> ControlFlow<()> {
        if let Some(callback) = callback {
            let name = if p.blocks > 1 {
                format!("[{}/{}] {}", p.block + 1, p.blocks, p.name)
            } else {
                p.name.to_owned()
            };
            let told = Python::attach(|py| callback.call1(py, (name, p.tile, p.tiles)));
            if let Err(e) = told {
                self.fail(e);
            }
        }
        if self.cancel.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}
