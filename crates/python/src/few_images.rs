//! What the client-aided planner asks about layers of plans for few images. Geometries come as JSON.

use crate::json::refused;
use hushnet_layers::batch::Geometry;
use hushnet_layers::coefficients;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The parameters with the fewest bytes, sizes and work of a coefficient-packed layer of one image; ValueError when there are none. `weights` are (O, C/groups,
/// kh, kw) or (M, K) row-major.
#[pyfunction]
fn few_images_layer<'py>(
    py: Python<'py>,
    geometry: &str,
    ring_degree: usize,
    weights: PyReadonlyArray1<'py, i16>,
    output_bound: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let shape: Geometry = crate::json::geometry(geometry)?;
    let weights = weights.as_slice()?;
    let chosen = py.detach(|| coefficients::choose(&shape, ring_degree, weights, output_bound));
    let (stage, spec) = chosen.map_err(refused)?;
    let (layout, bits) = (stage.layout(), stage.params().bits());
    let cost = layout.cost();
    let responses: usize = (0..stage.tiles()).map(|t| stage.answer_len(t)).sum();
    let noise_bits = spec.noise(bits).log2();
    let out = PyDict::new(py);
    out.set_item("upload_bits", bits.upload)?;
    out.set_item("body_bits", bits.body)?;
    out.set_item("mask_bits", bits.mask)?;
    out.set_item("noise_bits", noise_bits)?;
    out.set_item("noise_margin_bits", (stage.params().scale() as f64 / 2.0).log2() - noise_bits)?;
    for (name, value) in [
        ("tiles", stage.tiles()),
        ("input_polys", cost.input_polys),
        ("output_polys", cost.output_polys),
        ("mask_polys", layout.output_blocks()),
        ("products", cost.products),
        ("weight_polys", cost.weight_polys),
        ("request_bytes", stage.request_len()),
        ("response_bytes", responses),
        ("largest_response_bytes", stage.answer_len(0)),
        ("setup_bytes", stage.masks_len()),
        ("prepared_bytes", layout.prepared_bytes()),
    ] {
        out.set_item(name, value)?;
    }
    Ok(out)
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("PACKED_PRIME_BITS", hushnet_rlwe::packed::PRIME_BITS)?;
    m.add("IMAGES_TOGETHER", hushnet_runtime::plan::IMAGES_TOGETHER)?;
    m.add("DEFAULT_WEIGHT_BYTES", hushnet_runtime::client_aided::server::DEFAULT_WEIGHT_BYTES)?;
    m.add_function(wrap_pyfunction!(few_images_layer, m)?)
}
