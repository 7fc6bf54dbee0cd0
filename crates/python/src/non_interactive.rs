//! Non-interactive inference: both parties in this process, and being a client.

use crate::arrays;
use crate::guard::{compute, Guard};
use crate::held::{Answer, Held};
use crate::plan::options;
use hushnet_runtime as rt;
use hushnet_runtime::non_interactive::local::{run_loopback, run_pipe};
use hushnet_runtime::non_interactive::{NonInteractiveModel, NonInteractiveOptions, NonInteractivePlan};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// Both parties of a non-interactive plan in this process, over the real protocol: `(outputs, trace JSON)`.
#[pyfunction]
#[pyo3(signature = (plan, inputs, threads=None, progress=None, transport="pipe", allow_insecure=false))]
fn run_non_interactive<'py>(
    py: Python<'py>,
    plan: &[u8],
    inputs: &Bound<'py, PyDict>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
    transport: &str,
    allow_insecure: bool,
) -> PyResult<Answer<'py>> {
    let loopback = match transport {
        "pipe" => false,
        "loopback" => true,
        other => {
            let text = format!("transport '{other}' is neither 'pipe' nor 'loopback'");
            return Err(PyValueError::new_err(text));
        }
    };
    let arrays = arrays::read(inputs)?;
    let inputs: Vec<rt::Input<'_>> = arrays.iter().map(arrays::Array::input).collect();
    let guard = Guard::default();
    let (outputs, trace) = guard.run(py, || {
        let read = options(allow_insecure, None);
        let plan = NonInteractivePlan::from_bytes(plan, &read)?;
        let compute = compute(threads)?;
        let model = NonInteractiveModel::new(&plan, compute.clone())?;
        let client = NonInteractiveOptions { plan: read, compute };
        let mut tell = |p: &rt::Progress<'_>| guard.progress(progress.as_ref(), p);
        if loopback {
            run_loopback(model, &inputs, client, &mut tell, guard.cancel.clone())
        } else {
            run_pipe(&model, &inputs, client, &mut tell)
        }
    })?;
    Ok((arrays::write(py, outputs)?, trace.to_json()))
}

/// An open session with a server of a non-interactive plan.
#[pyclass(frozen, module = "hushnet._native")]
pub struct NonInteractiveClient {
    plan: NonInteractivePlan,
    session: Held<rt::non_interactive::NonInteractiveClient>,
}

impl NonInteractiveClient {
    pub fn new(client: rt::non_interactive::NonInteractiveClient, cancel: Arc<AtomicBool>) -> Self {
        Self { plan: client.plan().clone(), session: Held::new(client, cancel) }
    }
}

#[pymethods]
impl NonInteractiveClient {
    /// JSON of the server's plan, public part.
    fn plan_json(&self) -> &str {
        self.plan.json()
    }

    /// Runs the network on any number of images: `(outputs, the client's trace as JSON)`.
    #[pyo3(signature = (inputs, progress=None))]
    fn infer<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Answer<'py>> {
        self.session.infer(py, inputs, progress.as_ref())
    }

    /// Ends the session; again: nothing.
    fn close(&self, py: Python<'_>) {
        self.session.close(py);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

/// Adds these to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<NonInteractiveClient>()?;
    m.add_function(wrap_pyfunction!(run_non_interactive, m)?)
}
