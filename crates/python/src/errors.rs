//! Exceptions.

use hushnet_runtime::Error;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::prelude::*;

create_exception!(hushnet._native, HushnetError, PyException, "Base of all errors of a run.");
create_exception!(hushnet._native, PlanError, HushnetError, "A plan file is refused.");
create_exception!(hushnet._native, RangeError, HushnetError, "A value left the planned range.");
create_exception!(hushnet._native, ProtocolError, HushnetError, "The peer does not keep to the protocol.");
create_exception!(hushnet._native, TransportError, HushnetError, "The connection failed.");
create_exception!(hushnet._native, InputError, HushnetError, "An input does not fit the network.");

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

/// Adds the exceptions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add("HushnetError", py.get_type::<HushnetError>())?;
    m.add("PlanError", py.get_type::<PlanError>())?;
    m.add("RangeError", py.get_type::<RangeError>())?;
    m.add("ProtocolError", py.get_type::<ProtocolError>())?;
    m.add("TransportError", py.get_type::<TransportError>())?;
    m.add("InputError", py.get_type::<InputError>())
}
