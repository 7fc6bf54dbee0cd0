//! What the planner asks about slot-packed layers. Geometries come as JSON, as in `docs/plan-format.md`; results are JSON.

use hushnet_layers::batch::Geometry;
use hushnet_layers::slots::{choose, cost, Method, SlotError};
use hushnet_rlwe::bfv::{plain_modulus, BfvParams, Counts};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{json, Value};

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn geometry(json: &str) -> PyResult<Geometry> {
    serde_json::from_str(json).map_err(|e| refused(format!("geometry: {e}")))
}

fn method(name: &str) -> PyResult<Method> {
    let names: Vec<&str> = Method::all().map(Method::name).collect();
    Method::from_name(name)
        .ok_or_else(|| refused(format!("no method {name:?}: choose one of {}", names.join(", "))))
}

fn counts_json(c: Counts) -> Value {
    json!({"perm": c.perm, "dec_perm": c.dec_perm, "hst_perm": c.hst_perm, "sc_mult": c.sc_mult, "add": c.add})
}

fn params_json(p: &BfvParams) -> Value {
    let s = p.spec();
    json!({
        "ring_degree": s.ring_degree, "plain_modulus": s.plain_modulus, "primes": s.primes, "prime_bits": s.prime_bits,
        "special_bits": s.special_bits, "digit_bits": s.digit_bits, "modulus_bits": p.modulus_bits(),
        "response_bits": p.response_bits(), "secure": p.is_secure(),
    })
}

/// The planner's row of a method under the cheapest 128-bit parameters that hold its noise; ValueError when there are none.
#[pyfunction]
#[pyo3(signature = (geometry_json, method_name, plain_bits = 20))]
fn slot_layer_cost(
    py: Python<'_>,
    geometry_json: &str,
    method_name: &str,
    plain_bits: u32,
) -> PyResult<String> {
    let (shape, how) = (geometry(geometry_json)?, method(method_name)?);
    py.detach(|| {
        let params = choose(&shape, how, plain_modulus(plain_bits)?)?;
        let c = cost(&shape, how, &params)?;
        Ok(json!({
            "method": how.name(), "parameters": params_json(&params), "counts": counts_json(c.counts),
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
