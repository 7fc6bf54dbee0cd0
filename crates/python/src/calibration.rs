//! Samples of the two-party protocols' cost (`hushnet measure-machine`).

use crate::arrays;
use crate::errors::raise;
use crate::plan::options;
use hushnet_mpc::{OtKind, SilentSize};
use hushnet_runtime as rt;
use hushnet_runtime::calibrate::two_party;
use hushnet_runtime::two_party::{TwoPartyModel, TwoPartyOptions, TwoPartyPlan};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::Duration;

fn time(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|e| PyValueError::new_err(format!("seconds: {e}")))
}

/// Samples of protocols on shares with an OT extension ("softspoken", "silent-tiny", "silent-small" or "silent-medium"): JSON with `setup` (seconds of the base
/// OTs) and `samples`, each with what was done and seconds.
#[pyfunction]
fn measure_protocols(py: Python<'_>, extension: &str, seconds: f64) -> PyResult<String> {
    let kind = match extension {
        "softspoken" => OtKind::SoftSpoken,
        "silent-tiny" => OtKind::Silent(SilentSize::Tiny),
        "silent-small" => OtKind::Silent(SilentSize::Small),
        "silent-medium" => OtKind::Silent(SilentSize::Medium),
        other => return Err(PyValueError::new_err(format!("no samples for the OT extension '{other}'"))),
    };
    let time = time(seconds)?;
    let (setup, samples) = py.detach(|| two_party::protocols(kind, time)).map_err(raise)?;
    Ok(serde_json::json!({ "setup": setup, "samples": samples }).to_string())
}

/// Seconds from one party to the other for a small message over a loopback socket.
#[pyfunction]
fn measure_message(py: Python<'_>, seconds: f64) -> PyResult<f64> {
    let time = time(seconds)?;
    py.detach(|| two_party::message(time)).map_err(raise)
}

/// Runs a two-party plan `runs` times in one session of this process, by clocks of processor time, over `network` (bits a second,
/// seconds there and back; None: messages cost nothing): JSON with `setup` and `runs`, for each and every stage the seconds on the longest chain of
/// both parties' work and transfers, and those of the client's work. With `idle`, a stage's seconds are its own: a party that waits does
/// nothing, and OTs are silent ones, of which many inferences' are made at once; without, it expands the OTs of later stages, as in sessions over a
/// network, of the extension that sends least.
#[pyfunction]
#[pyo3(signature = (plan, inputs, network=None, runs=1, idle=false))]
fn clocked_two_party(
    py: Python<'_>,
    plan: &[u8],
    inputs: &Bound<'_, PyDict>,
    network: Option<(f64, f64)>,
    runs: usize,
    idle: bool,
) -> PyResult<String> {
    let waiting = if idle { two_party::Waiting::Idles } else { two_party::Waiting::Expands };
    let network = network.map(crate::two_party::link).transpose()?;
    let arrays = arrays::read(inputs)?;
    let inputs: Vec<rt::Input<'_>> = arrays.iter().map(arrays::Array::input).collect();
    let run = || {
        let read = options(false, None);
        let plan = TwoPartyPlan::from_bytes(plan, &read)?;
        let model = TwoPartyModel::new(&plan, rt::Compute::default())?;
        let expected_images = inputs.first().and_then(|i| i.shape.first().copied());
        let ot = idle.then_some(OtKind::Silent(SilentSize::Small));
        let client = TwoPartyOptions { plan: read, ot, expected_images, ..TwoPartyOptions::default() };
        two_party::run(&model, &inputs, client, (network, waiting), runs)
    };
    let found = py.detach(run).map_err(raise)?;
    serde_json::to_string(&found).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// Adds these functions to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(measure_protocols, m)?)?;
    m.add_function(wrap_pyfunction!(measure_message, m)?)?;
    m.add_function(wrap_pyfunction!(clocked_two_party, m)?)
}
