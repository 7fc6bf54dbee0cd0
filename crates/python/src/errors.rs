//! Exceptions: the classes of `hushnet.errors`.

use hushnet_runtime::Error;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::import_exception;
use pyo3::prelude::*;

import_exception!(hushnet.errors, HushnetError);
import_exception!(hushnet.errors, PlanError);
import_exception!(hushnet.errors, RangeError);
import_exception!(hushnet.errors, ProtocolError);
import_exception!(hushnet.errors, TransportError);
import_exception!(hushnet.errors, InputError);

impl HushnetError {
    /// From anything that can be shown.
    pub fn new_err_from(e: impl std::fmt::Display) -> PyErr {
        Self::new_err(e.to_string())
    }
}

/// The exception for an error.
pub fn raise(e: Error) -> PyErr {
    let text = e.to_string();
    match e {
        Error::Plan(_) => PlanError::new_err(text),
        Error::Range(_) => RangeError::new_err(text),
        Error::Input(_) => InputError::new_err(text),
        Error::Protocol(_) => ProtocolError::new_err(text),
        Error::Transport(_) => TransportError::new_err(text),
        Error::Internal(_) => HushnetError::new_err(text),
        Error::Cancelled => PyKeyboardInterrupt::new_err(()),
    }
}
