//! Two-party plans: links to run them over, and what the planner asks of them.

use crate::errors::{raise, Kind};
use crate::plan::options;
use hushnet_runtime as rt;
use hushnet_runtime::two_party::network::Network;
use hushnet_runtime::two_party::TwoPartyPlan;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A link of so many bits a second (infinity: no limit) and so many seconds there and back.
pub(crate) fn link((bits_per_second, round_trip_seconds): (f64, f64)) -> PyResult<Network> {
    if bits_per_second > 0.0 && round_trip_seconds >= 0.0 && round_trip_seconds.is_finite() {
        return Ok(Network { bits_per_second, round_trip_seconds });
    }
    Err(PyValueError::new_err(format!(
        "a network of {bits_per_second} bits a second and a round trip of {round_trip_seconds} s is not possible"
    )))
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
