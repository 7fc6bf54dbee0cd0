//! What the two-party planner asks about the methods `rotation-free` and `convfhe`. Geometries come as JSON.

use hushnet_layers::batch::{Geometry, LayerError};
use hushnet_layers::convfhe::{self, ConvFheContext, ConvFheDesign};
use hushnet_layers::rotation_free::{Design, Layout, MethodCost, Profile, WeightBounds, DEFAULT_PRICES};
use hushnet_ring::prime::primes_near;
use hushnet_rlwe::one_poly::OnePolySpec;
use hushnet_rlwe::pack_lwe::merge_variance;
use hushnet_rlwe::packed::{PackedSpec, PRIME_BITS};
use hushnet_rlwe::CipherError;
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Spacing that stands for a layer's where it is not known.
const TYPICAL_SPACING: usize = 64;

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn geometry(json: &str) -> PyResult<Geometry> {
    serde_json::from_str(json).map_err(|e| refused(format!("geometry: {e}")))
}

fn unknown(method: &str) -> PyErr {
    refused(format!("no method {method:?}: rotation-free or convfhe"))
}

fn parameters(method: &str, ring_bits: u32, weight_l2: f64) -> Result<(u32, u32, f64, f64), CipherError> {
    if method == "convfhe" {
        let primes = primes_near(PRIME_BITS, convfhe::RING_DEGREE, 2)?;
        let merge = merge_variance(convfhe::RING_DEGREE, &primes[..1], primes[1], TYPICAL_SPACING);
        let weight_l2 = (weight_l2.powi(2) + merge / 11.5).sqrt();
        let spec = PackedSpec { ring_degree: convfhe::RING_DEGREE, ring_bits, weight_l2 };
        let params = spec.choose()?;
        return Ok((PRIME_BITS, params.response_bits(), spec.noise().log2(), spec.off_by_one_fraction()));
    }
    let params = OnePolySpec::smallest(4096, |ring_degree| {
        let (weight_bits, weights, terms) = (16, 1, 1);
        Some(OnePolySpec {
            ring_degree,
            ring_bits,
            weight_l2,
            weight_bits,
            weights,
            terms,
            profile: Profile::Compact,
        })
    })?;
    let noise_bits = params.spec().noise().log2() + f64::from(params.modulus_bits() - ring_bits);
    Ok((params.modulus_bits(), params.response_bits(), noise_bits, params.spec().off_by_one_fraction()))
}

/// `(modulus_bits, response_bits, noise_bits, off_by_one_fraction)` of a stage of either method, for a typical layout; ValueError
/// when there are no parameters.
#[pyfunction]
fn coefficient_stage_parameters(
    method: &str,
    ring_bits: u32,
    weight_l2: f64,
) -> PyResult<(u32, u32, f64, f64)> {
    match method {
        "rotation-free" | "convfhe" => parameters(method, ring_bits, weight_l2).map_err(refused),
        _ => Err(unknown(method)),
    }
}

/// Layout, cost, and bytes of the weights in evaluation form.
fn cost(
    method: &str,
    shape: &Geometry,
    ring_bits: u32,
    l2: f64,
) -> Result<(Layout, MethodCost, usize), LayerError> {
    if method == "convfhe" {
        let design = ConvFheDesign::new(&ConvFheContext::new()?, shape, ring_bits, l2)?;
        return Ok((design.layout().clone(), design.cost(), design.prepared_bytes()));
    }
    let bounds = WeightBounds { l2, bits: 16 };
    let design = Design::smallest(shape, ring_bits, bounds, Profile::Compact, 0)?;
    Ok((design.layout().clone(), design.cost(), design.prepared_bytes()))
}

/// What a layer of either method costs for one image: as `packed_layer_cost`, with `answers` (ciphertexts that are opened and sent, once merged),
/// `ring_degree`, `spacing`, `rotations`, `bytes_setup` (once a session), `bytes_key` (of a public key, once a session too) and `prepared_bytes` (weights in evaluation form); ValueError when it does not fit.
#[pyfunction]
fn coefficient_layer_cost<'py>(
    py: Python<'py>,
    method: &str,
    geometry_json: &str,
    ring_bits: u32,
    weight_l2: f64,
) -> PyResult<Bound<'py, PyDict>> {
    if !["rotation-free", "convfhe"].contains(&method) {
        return Err(unknown(method));
    }
    let shape = geometry(geometry_json)?;
    let (layout, cost, prepared) = cost(method, &shape, ring_bits, weight_l2).map_err(refused)?;
    let polys = layout.cost();
    // a merged ciphertext takes two inverse transforms
    let answers = if method == "convfhe" { cost.server_online.intt as usize / 2 } else { polys.output_polys };
    let figures = PyDict::new(py);
    for (name, value) in [
        ("tiles", layout.tiles()),
        ("input_polys", polys.input_polys),
        ("output_polys", polys.output_polys),
        ("answers", answers),
        ("products", polys.products),
        ("weight_polys", polys.weight_polys),
        ("outputs", polys.outputs),
        ("ring_degree", layout.degree()),
        ("spacing", layout.spacing()),
        ("rotations", cost.server_online.rotations as usize),
        ("bytes_up", cost.bytes_up),
        ("bytes_down", cost.bytes_down),
        ("bytes_setup", cost.bytes_setup),
        ("bytes_key", if method == "convfhe" { convfhe::public_key_len() } else { 0 }),
        ("prepared_bytes", prepared),
    ] {
        figures.set_item(name, value)?;
    }
    Ok(figures)
}

/// Norm of the weights that meet in one answer, whichever ring degree a session takes; `weights` are flat, in the plan's order.
#[pyfunction]
fn coefficient_weight_l2(
    method: &str,
    geometry_json: &str,
    weights: PyReadonlyArray1<'_, i16>,
) -> PyResult<f64> {
    let shape = geometry(geometry_json)?;
    let weights = weights.as_slice().map_err(refused)?;
    let (degrees, prices) = match method {
        "convfhe" => (&[4096][..], &convfhe::DEFAULT_PRICES),
        "rotation-free" => (&[4096, 8192, 16384][..], &DEFAULT_PRICES),
        _ => return Err(unknown(method)),
    };
    let mut largest = 0;
    for n in degrees {
        let layout = Layout::choose(&shape, *n, prices).map_err(refused)?;
        if weights.len() != layout.weight_len() {
            return Err(refused(format!("{} weights for a layer of {}", weights.len(), layout.weight_len())));
        }
        largest = largest.max(layout.weight_norm2(weights));
    }
    Ok((largest as f64).sqrt())
}

/// Adds these functions to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(coefficient_stage_parameters, m)?)?;
    m.add_function(wrap_pyfunction!(coefficient_layer_cost, m)?)?;
    m.add_function(wrap_pyfunction!(coefficient_weight_l2, m)?)
}
