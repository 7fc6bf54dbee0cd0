//! Parameters for the planner.

use hushnet_rlwe::{security, BatchStageSpec};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Largest log2 q at 128-bit security for ring degree `n`, or None.
#[pyfunction]
pub fn max_modulus_bits(ring_degree: usize) -> Option<u32> {
    security::max_modulus_bits(ring_degree)
}

/// `(modulus_bits, delta_bits, drop_bits, noise_bits)` of a batch linear stage; ValueError when none is secure.
#[pyfunction]
pub fn batch_stage_parameters(
    ring_degree: usize,
    weight_l2: f64,
    output_bound: u64,
    shared_mask: bool,
) -> PyResult<(u32, u32, u32, f64)> {
    let spec = BatchStageSpec { ring_degree, weight_l2, output_bound, shared_mask };
    let p = spec.choose().map_err(|e| PyValueError::new_err(e.to_string()))?;
    Ok((p.modulus_bits(), p.delta_bits(), p.drop_bits(), spec.encryption_noise().log2()))
}
