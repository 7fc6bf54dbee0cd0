//! Exceptions of `hushnet.errors`, as the product raises them.

use pyo3::prelude::*;
use pyo3::types::PyType;

/// Kinds of exceptions that measurements raise.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Base of all: a party failed.
    Hushnet,
    /// The connection failed.
    Transport,
    /// What was asked for cannot be measured.
    Input,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Hushnet => "HushnetError",
            Self::Transport => "TransportError",
            Self::Input => "InputError",
        }
    }

    /// The exception with a message.
    pub(crate) fn error(self, message: impl std::fmt::Display) -> PyErr {
        let message = message.to_string();
        Python::attach(|py| {
            let class = py.import("hushnet.errors").and_then(|m| m.getattr(self.name()));
            match class.and_then(|c| Ok(c.downcast_into::<PyType>()?)) {
                Ok(class) => PyErr::from_type(class, message),
                Err(e) => e,
            }
        })
    }
}
