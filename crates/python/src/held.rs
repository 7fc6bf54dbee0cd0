//! An open session as Python holds it: used by one call at a time, closed at any time.

use crate::arrays;
use crate::errors::Kind;
use crate::guard::Guard;
use hushnet_runtime::{Error, Input, OnProgress, Output};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a call gives: outputs by name, and the client's trace as JSON.
pub type Answer<'py> = (Bound<'py, PyDict>, String);

/// A client of any trust model.
pub trait Inference: Send {
    /// Runs the network: outputs, and the trace as JSON.
    fn infer(
        &mut self,
        inputs: &[Input<'_>],
        progress: &mut OnProgress<'_>,
    ) -> Result<(Vec<Output>, String), Error>;

    /// Whether the session lives on.
    fn is_open(&self) -> bool;
}

macro_rules! inference {
    ($($client:ty),*) => {$(
        impl Inference for $client {
            fn infer(&mut self, inputs: &[Input<'_>], progress: &mut OnProgress<'_>) -> Result<(Vec<Output>, String), Error> {
                let (outputs, trace) = Self::infer(self, inputs, progress)?;
                Ok((outputs, trace.to_json()))
            }

            fn is_open(&self) -> bool {
                Self::is_open(self)
            }
        }
    )*};
}

inference!(
    hushnet_runtime::Client,
    hushnet_runtime::two_party::TwoPartyClient,
    hushnet_runtime::non_interactive::NonInteractiveClient
);

/// The client, while the session is open and no call uses it.
pub struct Held<C> {
    client: Mutex<Option<C>>,
    /// Shared with the connection.
    cancel: Arc<AtomicBool>,
}

impl<C: Inference> Held<C> {
    pub fn new(client: C, cancel: Arc<AtomicBool>) -> Self {
        Self { client: Mutex::new(Some(client)), cancel }
    }

    fn take(&self) -> Option<C> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Runs the network on any number of images.
    pub fn infer<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        progress: Option<&Py<PyAny>>,
    ) -> PyResult<Answer<'py>> {
        let arrays = arrays::read(inputs)?;
        let inputs: Vec<Input<'_>> = arrays.iter().map(arrays::Array::input).collect();
        self.cancel.store(false, Ordering::Relaxed);
        let guard = Guard::with(self.cancel.clone());
        let mut client = py
            .detach(|| self.take())
            .ok_or_else(|| Kind::Transport.error("the session is closed, or in use by another thread"))?;
        let result = guard.run(py, || client.infer(&inputs, &mut |p| guard.progress(progress, p)));
        if client.is_open() {
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
        }
        let (outputs, trace) = result?;
        Ok((arrays::write(py, outputs)?, trace))
    }

    /// Ends the session; again: nothing.
    pub fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.take()));
    }
}
