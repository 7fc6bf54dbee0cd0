//! Exceptions: the classes of `hushnet.errors`, so that users catch one family of errors.

use hushnet_runtime as rt;
use hushnet_runtime::Error;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};

/// Kinds of exceptions, by the names of their classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Base of all.
    Hushnet,
    /// A plan file is refused.
    Plan,
    /// A value left the planned range.
    Range,
    /// The peer does not keep to the protocol.
    Protocol,
    /// The connection failed.
    Transport,
    /// An input does not fit the network.
    Input,
    /// Inferences are not prepared.
    Prepared,
}

const ALL: [(Kind, &str); 7] = [
    (Kind::Hushnet, "HushnetError"),
    (Kind::Plan, "PlanError"),
    (Kind::Range, "RangeError"),
    (Kind::Protocol, "ProtocolError"),
    (Kind::Transport, "TransportError"),
    (Kind::Input, "InputError"),
    (Kind::Prepared, "PreparedError"),
];

impl Kind {
    fn class(self, py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
        let name = ALL.iter().find(|(k, _)| *k == self).map_or("HushnetError", |(_, n)| n);
        Ok(py.import("hushnet.errors")?.getattr(name)?.downcast_into::<PyType>()?)
    }

    /// The exception with a message.
    pub(crate) fn error(self, message: impl std::fmt::Display) -> PyErr {
        let message = message.to_string();
        Python::attach(|py| self.class(py).map_or_else(|e| e, |class| PyErr::from_type(class, message)))
    }
}

/// The exception for an error.
pub(crate) fn raise(e: Error) -> PyErr {
    let text = e.to_string();
    match e {
        Error::Plan(_) => Kind::Plan.error(text),
        Error::Range(range) => {
            let error = Kind::Range.error(text);
            // For programs: which value, and whether it was a number at all.
            Python::attach(|py| {
                let value = error.value(py);
                let set = || -> PyResult<()> {
                    value.setattr("stage", &range.stage)?;
                    value.setattr("tensor", &range.tensor)?;
                    value.setattr("image", range.image)?;
                    value.setattr("element", range.element)?;
                    value.setattr("value", range.value)?;
                    value.setattr("bound", range.bound)?;
                    value.setattr("low", range.low.or(range.bound.map(|b| -b)))?;
                    value.setattr("answer", range.answer)?;
                    value.setattr("affected", &range.affected)?;
                    value.setattr("images", range.affected.len())?;
                    value.setattr("values", range.values)?;
                    value.setattr("finite", range.value.is_finite())
                };
                set().err()
            })
            .unwrap_or(error)
        }
        Error::Input(_) => Kind::Input.error(text),
        Error::Units(_) => Kind::Prepared.error(text),
        Error::Protocol(rt::ProtocolError::Peer { code, seconds, .. }) => {
            let units = code == rt::error::code::UNITS;
            let error = if units { Kind::Prepared } else { Kind::Protocol }.error(text);
            // For programs: what the peer's Error frame says.
            Python::attach(|py| {
                let value = error.value(py);
                let later = (seconds > 0).then_some(seconds);
                value.setattr("code", code).and_then(|()| value.setattr("retry_after", later)).err()
            })
            .unwrap_or(error)
        }
        Error::Protocol(_) => Kind::Protocol.error(text),
        Error::Transport(_) => Kind::Transport.error(text),
        Error::Internal(_) | Error::Environment(_) | Error::Store(_) => Kind::Hushnet.error(text),
        Error::Cancelled => PyKeyboardInterrupt::new_err(()),
    }
}

/// What a run has marked: an exception in `marks`, where the caller has given a list for it; raised otherwise, and always where the server
/// is faulty.
///
/// # Errors
/// The exception.
pub(crate) fn told(mark: Option<rt::RangeError>, marks: Option<&Bound<'_, PyList>>) -> PyResult<()> {
    let Some(mark) = mark else { return Ok(()) };
    let faulty = mark.answer;
    let error = raise(mark.into());
    match marks {
        Some(list) if !faulty => list.append(error.into_value(list.py())),
        _ => Err(error),
    }
}

/// Adds the exceptions to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    ALL.iter().try_for_each(|(kind, name)| m.add(*name, kind.class(m.py())?))
}
