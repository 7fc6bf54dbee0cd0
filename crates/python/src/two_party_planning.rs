//! What the two-party planner asks of the Rust side: packings of linear layers and their parameters. Geometries come as JSON,
//! written as in `docs/plan-format.md`.

use crate::json::{geometry, refused};
use hushnet_layers::batch_shares::BatchShareClient;
use hushnet_layers::cheetah::{choose_layout, is_spaced, keeping_uses, prepared_bytes, CheetahClient};
use hushnet_layers::matrix_product::MatrixShape;
use hushnet_rlwe::packed::PackedContext;
use hushnet_rlwe::BatchContext;
use hushnet_runtime::two_party::{self, linear_method, Method, LINEAR_METHODS};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::cell::RefCell;

fn method(name: &str) -> PyResult<&'static Method> {
    let names = || LINEAR_METHODS.iter().map(|m| m.name).collect::<Vec<_>>().join(", ");
    linear_method(name).ok_or_else(|| refused(format!("no method {name:?}: choose one of {}", names())))
}

/// The linear methods of two-party plans: their names, and whether results are exact because shares go through a prime.
#[pyfunction]
fn linear_methods() -> Vec<(&'static str, bool)> {
    LINEAR_METHODS.iter().map(|m| (m.name, m.exact())).collect()
}

/// `(modulus_bits, response_bits, noise_bits, off_by_one_fraction)` of a stage of a method, for a typical layout where they depend on it;
/// ValueError when there are no parameters.
#[pyfunction]
fn linear_parameters(
    method_name: &str,
    ring_degree: usize,
    ring_bits: u32,
    weight_l2: f64,
) -> PyResult<(u32, u32, f64, f64)> {
    let p = method(method_name)?.parameters(ring_degree, ring_bits, weight_l2).map_err(refused)?;
    Ok((p.modulus_bits, p.response_bits, p.noise_bits, p.unit_fraction))
}

/// Norm of the weights that a method's noise rests on; `weights` are (O, C/groups, kh, kw) or (M, K), flat.
#[pyfunction]
fn linear_norm(
    method_name: &str,
    geometry_json: &str,
    ring_degree: usize,
    weights: PyReadonlyArray1<'_, i16>,
) -> PyResult<f64> {
    let weights = weights.as_slice().map_err(refused)?;
    method(method_name)?.norm(&geometry(geometry_json)?, ring_degree, weights).map_err(refused)
}

/// What a packed layer costs for one image: `tiles`, `input_polys`, `output_polys`, `products`, `spaced_products` (those of them with weights of few values), `weight_polys`, `prepared_bytes` (weights in evaluation form), `keeping_uses` (what a byte of them saves), `outputs` and the
/// bytes of all requests (`bytes_up`) and answers (`bytes_down`) with weights of such a norm; ValueError when the layer does not fit the ring degree.
#[pyfunction]
fn packed_layer_cost<'py>(
    py: Python<'py>,
    geometry_json: &str,
    ring_degree: usize,
    ring_bits: u32,
    weight_l2: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let shape = geometry(geometry_json)?;
    let packing = choose_layout(&shape, ring_degree).map_err(refused)?;
    let context = PackedContext::new(ring_degree).map_err(refused)?;
    let client = CheetahClient::new(&context, &shape, ring_bits, weight_l2).map_err(refused)?;
    let cost = packing.cost();
    let spaced = is_spaced(&packing);
    let figures = PyDict::new(py);
    for (name, value) in [
        ("tiles", packing.tiles()),
        ("input_polys", cost.input_polys),
        ("output_polys", cost.output_polys),
        ("products", cost.products),
        ("spaced_products", if spaced { cost.products } else { 0 }),
        ("weight_polys", cost.weight_polys),
        ("prepared_bytes", prepared_bytes(&packing)),
        ("keeping_uses", keeping_uses(&packing)),
        ("outputs", packing.output_len()),
        ("bytes_up", packing.tiles() * client.request_len()),
        ("bytes_down", packing.tiles() * client.answer_len()),
    ] {
        figures.set_item(name, value)?;
    }
    Ok(figures)
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

/// What a product of two shared tensors of matrices (heads, rows, inner axis, columns) of operands below `2^reach` each costs for one image:
/// `ring_bits` of the ring in which it is computed, `requests`, `products`, `plain`, `merges`, `answers` and `working_bytes` of each party, `bytes_up`, `bytes_down`,
/// and the fraction of results that is a unit or two off before they are divided; ValueError when there are no parameters.
#[pyfunction]
fn matrix_product_cost(
    py: Python<'_>,
    sizes: (usize, usize, usize, usize),
    reaches: (u32, u32),
) -> PyResult<(Bound<'_, PyDict>, f64)> {
    let (heads, rows, inner, columns) = sizes;
    let shape = MatrixShape { heads, rows, inner, columns };
    let found = two_party::matrix_figures(shape, [reaches.0, reaches.1]).map_err(refused)?;
    let figures = PyDict::new(py);
    for (name, value) in [
        ("ring_bits", found.ring_bits as usize),
        ("requests", found.cost.requests),
        ("products", found.cost.products),
        ("plain", found.cost.plain),
        ("merges", found.cost.merges),
        ("answers", found.cost.answers),
        ("bytes_up", found.bytes),
        ("bytes_down", found.bytes),
        ("working_bytes", found.working_bytes),
    ] {
        figures.set_item(name, value)?;
    }
    Ok((figures, found.unit_fraction))
}

/// Images that a session runs together by default when the plan has batch stages and `peak_elements` shared elements of an image at once.
#[pyfunction]
fn two_party_group(ring_degree: usize, peak_elements: usize) -> usize {
    hushnet_runtime::two_party::largest_batch(ring_degree, peak_elements)
}

/// The cheapest piecewise polynomial of a function: `(form_json, orders, coefficients, error)`, as a two-party plan carries it.
///
/// `values` takes and returns arguments and values as bytes of binary64 numbers in native byte order. `interval` is the least and the greatest
/// argument in units of 2^-scale, and scale; the result has `fraction` fractional bits and is off by `error` at most; `coefficients` are bytes of 64-bit integers.
///
/// ValueError when no form reaches the error, or the interval is too large for shares of `ring_bits`.
#[pyfunction]
fn fit_function<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyAny>,
    interval: (i64, i64, u32),
    ring_bits: u32,
    fraction: u32,
    error: f64,
) -> PyResult<Form<'py>> {
    let failure = RefCell::new(None);
    let call = |x: &[f64]| -> PyResult<Vec<f64>> {
        let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let told = values.call1((PyBytes::new(py, &bytes),))?;
        let told = told.downcast::<PyBytes>()?.as_bytes();
        let number = |c: &[u8]| f64::from_ne_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]);
        Ok(told.chunks_exact(8).map(number).collect())
    };
    let of = |x: &[f64]| {
        call(x).unwrap_or_else(|e| {
            failure.replace(Some(e));
            Vec::new()
        })
    };
    let fitted = two_party::fit(&of, interval, ring_bits, (fraction, error));
    if let Some(e) = failure.take() {
        return Err(e);
    }
    told(py, &fitted.map_err(refused)?)
}

/// The cheapest form of `factor * e^(rate * x)`, with one coefficient a segment, as `fit_function` gives it; for about half of the bytes. `of` is
/// factor, rate and limit: arguments whose value is above the limit give anything.
///
/// ValueError when no form reaches the error, a number is not positive, or the interval is too large for shares of `ring_bits`.
#[pyfunction]
fn fit_exponential(
    py: Python<'_>,
    of: (f64, f64, f64),
    interval: (i64, i64, u32),
    ring_bits: u32,
    fraction: u32,
    error: f64,
) -> PyResult<Form<'_>> {
    told(py, &two_party::fit_exponential(of, interval, ring_bits, (fraction, error)).map_err(refused)?)
}

/// Form, orders, coefficients and error.
type Form<'py> = (String, Vec<usize>, Bound<'py, PyBytes>, f64);

fn told<'py>(py: Python<'py>, fitted: &two_party::Fitted) -> PyResult<Form<'py>> {
    let coefficients: Vec<u8> = fitted.coefficients.iter().flat_map(|c| c.to_ne_bytes()).collect();
    let form = serde_json::to_string(&fitted.form).map_err(refused)?;
    Ok((form, fitted.orders.clone(), PyBytes::new(py, &coefficients), fitted.error))
}

/// Adds these functions to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(linear_methods, m)?)?;
    m.add_function(wrap_pyfunction!(linear_parameters, m)?)?;
    m.add_function(wrap_pyfunction!(linear_norm, m)?)?;
    m.add_function(wrap_pyfunction!(packed_layer_cost, m)?)?;
    m.add_function(wrap_pyfunction!(batch_share_layer_cost, m)?)?;
    m.add_function(wrap_pyfunction!(fit_function, m)?)?;
    m.add_function(wrap_pyfunction!(fit_exponential, m)?)?;
    m.add_function(wrap_pyfunction!(matrix_product_cost, m)?)?;
    m.add_function(wrap_pyfunction!(two_party_group, m)?)
}
