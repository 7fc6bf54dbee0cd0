//! What the planner asks about slot-packed layers. Geometries come as JSON, as in `docs/plan-format.md`; results are JSON.

use crate::json::{counts, geometry, refused, slot_method, slot_params};
use hushnet_layers::slots::{choose, cost, SlotError};
use hushnet_rlwe::bfv::plain_modulus;
use pyo3::prelude::*;
use serde_json::json;

/// The planner's row of a method under the cheapest 128-bit parameters that hold its noise; ValueError when there are none.
#[pyfunction]
#[pyo3(signature = (geometry_json, method_name, plain_bits = 20))]
fn slot_layer_cost(
    py: Python<'_>,
    geometry_json: &str,
    method_name: &str,
    plain_bits: u32,
) -> PyResult<String> {
    let (shape, how) = (geometry(geometry_json)?, slot_method(method_name)?);
    py.detach(|| {
        let params = choose(&shape, how, plain_modulus(plain_bits)?)?;
        let c = cost(&shape, how, &params)?;
        Ok(json!({
            "method": how.name(), "parameters": slot_params(&params), "counts": counts(c.counts),
            "ciphers_up": c.ciphers.0, "ciphers_down": c.ciphers.1, "bytes_up": c.bytes_up, "bytes_down": c.bytes_down,
            "rounds": c.rounds, "keys": c.keys.0, "key_bytes": c.keys.1, "weight_bytes": c.weight_bytes,
            "working_bytes": c.working_bytes, "noise_bits": c.noise_bits.0, "noise_limit_bits": c.noise_bits.1,
            "feasible": c.feasible,
        })
        .to_string())
    })
    .map_err(|e: SlotError| refused(e))
}

/// `(bits, largest)` of the prime that shares of slot-packed results below 2^`reach_bits` are modulo in two-party plans: its bits, and the
/// largest absolute value that it converts; ValueError when none is wide enough.
#[pyfunction]
fn slot_plain(reach_bits: u32) -> PyResult<(u32, u64)> {
    hushnet_runtime::two_party::slot_plain(reach_bits)
        .ok_or_else(|| refused(format!("no prime with slots holds results below 2^{reach_bits}")))
}

/// Adds these functions to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(slot_layer_cost, m)?)?;
    m.add_function(wrap_pyfunction!(slot_plain, m)?)
}
