//! What the two-party planner asks of the Rust side: packings of linear layers, their parameters, and the exact traffic of a
//! plan. Geometries and plans come as JSON, written as in `docs/plan-format.md` and `docs/two-party.md`.

use hushnet_layers::batch::Geometry;
use hushnet_layers::batch_shares::BatchShareClient;
use hushnet_layers::cheetah::{CheetahClient, Packing, DEFAULT_COSTS};
use hushnet_mpc::{OtKind, SilentSize};
use hushnet_rlwe::batch_shares::BatchShareSpec;
use hushnet_rlwe::packed::{PackedContext, PackedSpec};
use hushnet_rlwe::BatchContext;
use hushnet_runtime::two_party::cost::choose;
use hushnet_runtime::two_party::{predict, Layers, TwoPartyPlan};
use hushnet_runtime::PlanOptions;
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn geometry(json: &str) -> PyResult<Geometry> {
    serde_json::from_str(json).map_err(|e| refused(format!("geometry: {e}")))
}

/// `(response_bits, noise_bits, off_by_one_fraction)` of a packed stage; ValueError when the ring of shares leaves no room
/// for the noise, or the ring degree no security.
#[pyfunction]
fn packed_stage_parameters(ring_degree: usize, ring_bits: u32, weight_l2: f64) -> PyResult<(u32, f64, f64)> {
    let spec = PackedSpec { ring_degree, ring_bits, weight_l2 };
    let params = spec.choose().map_err(refused)?;
    Ok((params.response_bits(), spec.noise().log2(), spec.off_by_one_fraction()))
}

/// What a packed layer costs for one image: `tiles`, `input_polys`, `output_polys`, `products`, `weight_polys`, `outputs` and the
/// bytes of all requests (`bytes_up`) and answers (`bytes_down`); ValueError when the layer does not fit the ring degree.
#[pyfunction]
fn packed_layer_cost<'py>(
    py: Python<'py>,
    geometry_json: &str,
    ring_degree: usize,
    ring_bits: u32,
) -> PyResult<Bound<'py, PyDict>> {
    let shape = geometry(geometry_json)?;
    let packing = Packing::choose(&shape, ring_degree, &DEFAULT_COSTS).map_err(refused)?;
    let context = PackedContext::new(ring_degree).map_err(refused)?;
    let client = CheetahClient::new(&context, &shape, ring_bits, 1.0).map_err(refused)?;
    let cost = packing.cost();
    let figures = PyDict::new(py);
    for (name, value) in [
        ("tiles", packing.tiles()),
        ("input_polys", cost.input_polys),
        ("output_polys", cost.output_polys),
        ("products", cost.products),
        ("weight_polys", cost.weight_polys),
        ("outputs", packing.output_len()),
        ("bytes_up", packing.tiles() * client.request_len()),
        ("bytes_down", (0..packing.tiles()).map(|tile| client.answer_len(tile)).sum()),
    ] {
        figures.set_item(name, value)?;
    }
    Ok(figures)
}

/// Largest Euclidean norm of all weights that meet in one output polynomial; `weights` are (O, C/groups, kh, kw) or (M, K), flat.
#[pyfunction]
fn packed_weight_l2(
    geometry_json: &str,
    ring_degree: usize,
    weights: PyReadonlyArray1<'_, i16>,
) -> PyResult<f64> {
    let packing = Packing::choose(&geometry(geometry_json)?, ring_degree, &DEFAULT_COSTS).map_err(refused)?;
    let weights = weights.as_slice().map_err(refused)?;
    if weights.len() != packing.weight_len() {
        return Err(refused(format!("{} weights for a layer of {}", weights.len(), packing.weight_len())));
    }
    let mut largest = 0i64;
    for j in 0..packing.output_blocks() {
        let mut norm = 0i64;
        for i in packing.inputs_of(j) {
            packing.for_each_weight(i, j, |_, w| norm += i64::from(weights[w]).pow(2));
        }
        largest = largest.max(norm);
    }
    Ok((largest as f64).sqrt())
}

/// `(modulus_bits, response_bits, noise_bits, off_by_one_fraction)` of a batch stage on shares; ValueError when the modulus would
/// exceed the security table.
#[pyfunction]
fn batch_share_parameters(
    ring_degree: usize,
    ring_bits: u32,
    weight_l2: f64,
) -> PyResult<(u32, u32, f64, f64)> {
    let spec = BatchShareSpec { ring_degree, ring_bits, weight_l2 };
    let params = spec.choose().map_err(refused)?;
    Ok((params.modulus_bits(), params.response_bits(), spec.noise().log2(), spec.off_by_one_fraction()))
}

/// What a batch layer on shares costs for a block of `images` images: `tiles`, `inputs` and `outputs` (ciphertexts), `word_products` (of
/// both parts), `bytes_up`, `bytes_down`, and `window_bytes`, what the server holds at most; ValueError when there are no parameters.
#[pyfunction]
fn batch_share_layer_cost<'py>(
    py: Python<'py>,
    geometry_json: &str,
    ring_degree: usize,
    ring_bits: u32,
    weight_l2: f64,
    images: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let shape = geometry(geometry_json)?;
    let context = BatchContext::new(ring_degree).map_err(refused)?;
    let client = BatchShareClient::new(&context, &shape, ring_bits, weight_l2).map_err(refused)?;
    let images = images.clamp(1, ring_degree);
    let products = shape.products(0..shape.output_rows());
    let figures = PyDict::new(py);
    for (name, value) in [
        ("tiles", client.tiles() as u64),
        ("inputs", client.inputs() as u64),
        ("outputs", client.outputs() as u64),
        ("word_products", products.saturating_mul((images.next_multiple_of(8) + ring_degree) as u64)),
        ("bytes_up", (0..client.tiles()).map(|t| client.request_len(t, images) as u64).sum()),
        ("bytes_down", (0..client.tiles()).map(|t| client.answer_len(t, images) as u64).sum()),
        ("window_bytes", client.window_bytes() as u64),
    ] {
        figures.set_item(name, value)?;
    }
    Ok(figures)
}

/// Images that a session runs together by default when the plan has batch stages and `peak_elements` shared elements of an image at once.
#[pyfunction]
fn two_party_group(ring_degree: usize, peak_elements: usize) -> usize {
    hushnet_runtime::two_party::largest_batch(ring_degree, peak_elements)
}

fn extension_name(kind: OtKind) -> &'static str {
    match kind {
        OtKind::Iknp => "iknp",
        OtKind::SoftSpoken => "softspoken",
        OtKind::Silent(SilentSize::Tiny) => "silent-tiny",
        OtKind::Silent(SilentSize::Small) => "silent-small",
        OtKind::Silent(SilentSize::Medium) => "silent-medium",
        OtKind::Silent(SilentSize::Large) => "silent-large",
    }
}

/// Exact traffic of a session that runs one group of `images` images, from a plan's JSON (weights not needed): the executor's own
/// prediction, as JSON with `setup`, `stages`, `total` (`bytes_up`, `bytes_down`, `rounds`, ...), `he_bytes`, `ot_bytes`, the
/// `extension` that it will choose, and `peak_elements`, the most shared elements of one image at once. ValueError when the
/// executor refuses the plan. Rounds are messages on the longest chain of dependent ones.
#[pyfunction]
fn two_party_cost(py: Python<'_>, plan_json: &str, images: usize) -> PyResult<String> {
    py.detach(|| {
        let plan = TwoPartyPlan::from_parts(plan_json, &BTreeMap::new(), &PlanOptions::default())
            .map_err(refused)?;
        cost(&plan, images).map_err(refused)
    })
}

/// Exact traffic of a session that runs one group of images, as JSON.
pub(crate) fn cost(plan: &TwoPartyPlan, images: usize) -> Result<String, hushnet_runtime::Error> {
    let layers = Layers::new(plan)?;
    let kind = choose(plan, &layers, images);
    let predicted = serde_json::to_value(predict(plan, &layers, kind, images));
    let mut value = predicted.map_err(|e| hushnet_runtime::Error::Internal(e.to_string()))?;
    value["extension"] = extension_name(kind).into();
    value["peak_elements"] = plan.peak_elements().into();
    Ok(value.to_string())
}

/// Adds these functions to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(packed_stage_parameters, m)?)?;
    m.add_function(wrap_pyfunction!(packed_layer_cost, m)?)?;
    m.add_function(wrap_pyfunction!(packed_weight_l2, m)?)?;
    m.add_function(wrap_pyfunction!(batch_share_parameters, m)?)?;
    m.add_function(wrap_pyfunction!(batch_share_layer_cost, m)?)?;
    m.add_function(wrap_pyfunction!(two_party_group, m)?)?;
    m.add_function(wrap_pyfunction!(two_party_cost, m)?)
}
