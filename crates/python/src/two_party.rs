//! Two-party inference: both parties in this process.

use crate::arrays;
use crate::errors::{raise, Kind};
use crate::guard::{compute, Guard};
use crate::plan::options;
use hushnet_runtime as rt;
use hushnet_runtime::two_party::network::Network;
use hushnet_runtime::two_party::{run_local, TwoPartyModel, TwoPartyOptions, TwoPartyPlan};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

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
    network: Option<&str>,
    progress: Option<Py<PyAny>>,
    group: Option<usize>,
    weight_memory: Option<usize>,
) -> PyResult<(Bound<'py, PyDict>, String)> {
    let network = match network {
        None | Some("loopback") => None,
        Some(name) => Some(Network::named(name).ok_or_else(|| {
            PyValueError::new_err(format!("network '{name}' is none of 'loopback', 'lan' and 'wan'"))
        })?),
    };
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

/// Checks a two-party plan file: its JSON. PlanError for every way in which the file can be wrong.
#[pyfunction]
pub fn check_two_party(py: Python<'_>, plan: &[u8]) -> PyResult<String> {
    let checked = py.detach(|| TwoPartyPlan::from_bytes(plan, &options(false, None)));
    Ok(checked.map_err(|e| Kind::Plan.error(e))?.json().to_owned())
}

/// Exact traffic of a session that runs `images` images at once, stage by stage: JSON.
#[pyfunction]
#[pyo3(signature = (plan, images=1))]
pub fn predict_two_party(py: Python<'_>, plan: &[u8], images: usize) -> PyResult<String> {
    py.detach(|| {
        let plan = TwoPartyPlan::from_bytes(plan, &options(false, None))?;
        let layers = rt::two_party::Layers::new(&plan)?;
        let kind = rt::two_party::cost::choose(&plan, &layers, images);
        Ok(rt::two_party::predict(&plan, &layers, kind, images))
    })
    .map_err(raise)
    .and_then(|p| serde_json::to_string(&p).map_err(|e| PyValueError::new_err(e.to_string())))
}
