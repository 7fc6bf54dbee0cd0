//! What Python gives as JSON and named arrays, and what it gets as JSON. The extension of the benchmarks (`bench/native`) has this file, too.

use hushnet_layers::batch::Geometry;
use hushnet_layers::slots::Method;
use hushnet_rlwe::bfv::{BfvParams, Counts};
use numpy::PyReadonlyArrayDyn;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// A ValueError with an error's text.
pub(crate) fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A layer's geometry, as in `docs/plan-format.md`.
pub(crate) fn geometry(json: &str) -> PyResult<Geometry> {
    serde_json::from_str(json).map_err(|e| refused(format!("geometry: {e}")))
}

/// A slot-packed method by its name.
pub(crate) fn slot_method(name: &str) -> PyResult<Method> {
    let names: Vec<&str> = Method::all().map(Method::name).collect();
    Method::from_name(name)
        .ok_or_else(|| refused(format!("no method {name:?}: choose one of {}", names.join(", "))))
}

/// Numbers of homomorphic operations.
pub(crate) fn counts(c: Counts) -> Value {
    json!({"perm": c.perm, "dec_perm": c.dec_perm, "hst_perm": c.hst_perm, "sc_mult": c.sc_mult, "add": c.add})
}

/// Parameters of slot-packed layers.
pub(crate) fn slot_params(p: &BfvParams) -> Value {
    let s = p.spec();
    json!({
        "ring_degree": s.ring_degree, "plain_modulus": s.plain_modulus, "primes": s.primes, "prime_bits": s.prime_bits,
        "special_bits": s.special_bits, "digit_bits": s.digit_bits, "modulus_bits": p.modulus_bits(),
        "response_bits": p.response_bits(), "secure": p.is_secure(),
    })
}

/// Arrays of float64 by name, each row-major.
pub(crate) fn named_arrays(given: &Bound<'_, PyDict>) -> PyResult<BTreeMap<String, Vec<f64>>> {
    let one = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        let array: PyReadonlyArrayDyn<'_, f64> = value
            .extract()
            .map_err(|_| refused(format!("array '{name}' is not a NumPy array of float64")))?;
        Ok((name, array.as_array().iter().copied().collect()))
    };
    given.iter().map(one).collect()
}
