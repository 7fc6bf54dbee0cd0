//! What the planner and reports ask of a non-interactive plan.

use crate::errors::Kind;
use crate::plan::options;
use hushnet_runtime::non_interactive::{predict, NonInteractivePlan};
use pyo3::prelude::*;

/// Checks a non-interactive plan file (PlanError for every way in which it can be wrong) and tells what follows from it, as JSON:
/// `traffic` (exact bytes of keys, of ciphertexts up and down for a block), `counted` (exact operations for a block), `peak_bytes` of
/// ciphertexts on the server, `images` of a block, and, for a plan with weights, `tracks`: by id of each tensor of ciphertexts the
/// errors `sd`, `likely` and `hidden`; `packed`: the report of a packed plan's circuit, with weights.
#[pyfunction]
#[pyo3(signature = (plan, allow_insecure=false))]
fn check_non_interactive(py: Python<'_>, plan: &[u8], allow_insecure: bool) -> PyResult<String> {
    py.detach(|| {
        let plan = NonInteractivePlan::from_bytes(plan, &options(allow_insecure, None))
            .map_err(|e| Kind::Plan.error(e))?;
        Ok(facts(&plan))
    })
}

/// What follows from a checked plan, as JSON ([`check_non_interactive`] names the fields).
pub(crate) fn facts(plan: &NonInteractivePlan) -> String {
    let ciphers = plan.spec().tensors.iter().filter(|t| t.level.is_some());
    let tracks: Option<Vec<serde_json::Value>> = plan.circuit().and_then(|c| c.tracks()).map(|tracks| {
        ciphers
            .zip(tracks)
            .map(|(t, k)| {
                serde_json::json!({"tensor": t.id, "sd": k.sd, "likely": k.likely, "hidden": k.hidden})
            })
            .collect()
    });
    let facts = serde_json::json!({
        "traffic": predict(plan),
        "counted": plan.counted(),
        "peak_bytes": plan.peak_bytes(),
        "images": plan.block_images(),
        "tracks": tracks,
        "packed": plan.packed().and_then(|p| p.circuit()).map(|c| c.report()),
    });
    facts.to_string()
}

/// Adds these to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(check_non_interactive, m)?)
}
