//! What the two-party planner asks about the methods `rotation-free` and `convfhe`. Geometries come as JSON.

use crate::json::{geometry, refused};
use hushnet_layers::batch::{Geometry, LayerError};
use hushnet_layers::convfhe::{ConvFheContext, ConvFheDesign};
use hushnet_layers::layout::Layout;
use hushnet_layers::rotation_free::{Design, MethodCost, Profile, WeightBounds};
use pyo3::prelude::*;
use pyo3::types::PyDict;

fn unknown(method: &str) -> PyErr {
    refused(format!("no method {method:?}: rotation-free or convfhe"))
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
/// `ring_degree`, `spacing`, `rotations`, `bytes_setup` (once a session), `key_bytes` (of the public key that `convfhe` has of its own) and `prepared_bytes` (weights in evaluation form); ValueError when it does not fit.
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
        ("key_bytes", if method == "convfhe" { ConvFheDesign::public_key_len() } else { 0 }),
        ("prepared_bytes", prepared),
    ] {
        figures.set_item(name, value)?;
    }
    Ok(figures)
}

/// Adds these functions to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(coefficient_layer_cost, m)?)
}
