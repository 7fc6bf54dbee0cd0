//! Parameters for the planner.

use crate::errors::Kind;
use hushnet_rlwe::{security, BatchStageSpec};
use hushnet_runtime::calibrate::UNITS;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Largest log2 q at 128-bit security for ring degree `n`, or None.
#[pyfunction]
pub(crate) fn max_modulus_bits(ring_degree: usize) -> Option<u32> {
    security::max_modulus_bits(ring_degree)
}

/// `(modulus_bits, delta_bits, drop_bits, mask_drop_bits, noise_bits)` of a batch linear stage; ValueError when none is secure.
#[pyfunction]
pub(crate) fn batch_stage_parameters(
    ring_degree: usize,
    weight_l2: f64,
    output_bound: u64,
    shared_mask: bool,
) -> PyResult<(u32, u32, u32, u32, f64)> {
    let spec = BatchStageSpec { ring_degree, weight_l2, output_bound, shared_mask };
    let p = spec.choose().map_err(|e| PyValueError::new_err(e.to_string()))?;
    let noise = spec.encryption_noise().log2();
    Ok((p.modulus_bits(), p.delta_bits(), p.drop_bits(), p.mask_drop_bits(), noise))
}

/// `(name, what one unit is)` of every kind of work whose cost can be measured.
#[pyfunction]
pub(crate) fn cost_units() -> Vec<(&'static str, &'static str)> {
    UNITS.iter().map(|u| (u.name, u.about)).collect()
}

/// Seconds of one thread for one unit, measured for about `seconds`; ValueError for an unknown name.
#[pyfunction]
pub(crate) fn measure_unit(py: Python<'_>, name: &str, seconds: f64) -> PyResult<f64> {
    let unit = UNITS
        .iter()
        .find(|u| u.name == name)
        .ok_or_else(|| PyValueError::new_err(format!("no unit cost is called '{name}'")))?;
    let time = std::time::Duration::try_from_secs_f64(seconds)
        .map_err(|e| PyValueError::new_err(format!("seconds: {e}")))?;
    py.detach(|| unit.measure(time)).map_err(|e| Kind::Hushnet.error(e))
}
