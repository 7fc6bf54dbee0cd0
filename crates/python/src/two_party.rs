//! Two-party inference: both parties in this process, and being a client.

use crate::arrays;
use crate::errors::Kind;
use crate::guard::{compute, Guard};
use crate::held::{Answer, Held};
use crate::plan::options;
use hushnet_runtime as rt;
use hushnet_runtime::two_party::network::Network;
use hushnet_runtime::two_party::{run_local, TwoPartyModel, TwoPartyOptions, TwoPartyPlan};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// A link of so many bits a second (infinity: no limit) and so many seconds there and back.
pub(crate) fn link((bits_per_second, round_trip_seconds): (f64, f64)) -> PyResult<Network> {
    if bits_per_second > 0.0 && round_trip_seconds >= 0.0 && round_trip_seconds.is_finite() {
        return Ok(Network { bits_per_second, round_trip_seconds });
    }
    Err(PyValueError::new_err(format!(
        "a network of {bits_per_second} bits a second and a round trip of {round_trip_seconds} s is not possible"
    )))
}

/// Both parties of a two-party plan in this process, over the real protocol: `(outputs, trace JSON)`. Each party has a thread and a
/// pool of its own.
#[pyfunction]
#[pyo3(signature = (plan, inputs, threads=None, network=None, progress=None, group=None, weight_memory=None))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn run_two_party<'py>(
    py: Python<'py>,
    plan: &[u8],
    inputs: &Bound<'py, PyDict>,
    threads: Option<usize>,
    network: Option<(f64, f64)>,
    progress: Option<Py<PyAny>>,
    group: Option<usize>,
    weight_memory: Option<usize>,
) -> PyResult<Answer<'py>> {
    let network = network.map(link).transpose()?;
    let arrays = arrays::read(inputs)?;
    let inputs: Vec<rt::Input<'_>> = arrays.iter().map(arrays::Array::input).collect();
    let guard = Guard::default();
    let (outputs, client, server) = guard.run(py, || {
        let read = options(false, None);
        let plan = TwoPartyPlan::from_bytes(plan, &read)?;
        let weights = weight_memory.unwrap_or(rt::two_party::server::DEFAULT_WEIGHT_BYTES);
        let model = TwoPartyModel::with_memory(&plan, compute(threads)?, weights)?;
        let client = TwoPartyOptions {
            plan: read,
            group,
            expected_images: inputs.first().and_then(|i| i.shape.first().copied()),
            compute: compute(threads)?,
            ..TwoPartyOptions::default()
        };
        run_local(&model, &inputs, client, network, &mut |p| guard.progress(progress.as_ref(), p))
    })?;
    let trace = format!("{{\"client\":{},\"server\":{}}}", client.to_json(), server.to_json());
    Ok((arrays::write(py, outputs)?, trace))
}

/// An open session with a server of a two-party plan.
#[pyclass(frozen, module = "hushnet._native")]
pub struct TwoPartyClient {
    plan: TwoPartyPlan,
    session: Held<rt::two_party::TwoPartyClient>,
}

impl TwoPartyClient {
    pub fn new(client: rt::two_party::TwoPartyClient, cancel: Arc<AtomicBool>) -> Self {
        Self { plan: client.plan().clone(), session: Held::new(client, cancel) }
    }
}

#[pymethods]
impl TwoPartyClient {
    /// JSON of the server's plan, public part.
    fn plan_json(&self) -> &str {
        self.plan.json()
    }

    /// SHA-256 of the public plan's JSON, in hexadecimal digits: equal for all clients of an honest server.
    fn plan_digest(&self) -> PyResult<String> {
        let digest = self.plan.digest().map_err(|e| Kind::Plan.error(e))?;
        Ok(digest.iter().map(|b| format!("{b:02x}")).collect())
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
