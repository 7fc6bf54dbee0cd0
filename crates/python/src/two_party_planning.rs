//! What the two-party planner asks of the Rust side: packings of linear layers, their parameters, and the exact traffic of the
//! protocols on shares. Geometries and protocols come as JSON, written as in `docs/plan-format.md` and `docs/two-party.md`.

use hushnet_layers::batch::Geometry;
use hushnet_layers::cheetah::{CheetahClient, Packing, DEFAULT_COSTS};
use hushnet_mpc::{self as mpc, CostModel, OtKind, Party, PoolShape, Range, Ring, Rounding, SilentSize, Slope};
use hushnet_rlwe::packed::{PackedContext, PackedSpec};
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Deserialize;

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
fn packed_layer_cost<'py>(py: Python<'py>, geometry_json: &str, ring_degree: usize, ring_bits: u32) -> PyResult<Bound<'py, PyDict>> {
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
fn packed_weight_l2(geometry_json: &str, ring_degree: usize, weights: PyReadonlyArray1<'_, i16>) -> PyResult<f64> {
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

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Protocol {
    Relu { n: usize },
    LeakyRelu { n: usize, numerator: u64, log_denominator: u32, sign: Sign },
    Clip { n: usize },
    Truncate { n: usize, bits: u32, sign: Sign, exact: bool },
    MaxPool { channels: usize, height: usize, width: usize, kernel: [usize; 2], stride: [usize; 2], pads: [usize; 4] },
    MaxMany { n: usize, count: usize },
    Argmax { classes: usize },
    Open { n: usize },
    OpenIndex { classes: usize },
}

/// What is known of a truncated value x: nothing, `x >= 0`, or `|x| < 2^(l-2)`.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum Sign {
    Any,
    NonNegative,
    Small,
}

impl From<Sign> for Range {
    fn from(sign: Sign) -> Self {
        match sign {
            Sign::Any => Self::Any,
            Sign::NonNegative => Self::NonNegative,
            Sign::Small => Self::Small,
        }
    }
}

fn count(model: &mut CostModel, protocol: &Protocol, ring: Ring) -> mpc::Result<()> {
    match *protocol {
        Protocol::Relu { n } => mpc::relu_cost(model, n, ring),
        Protocol::LeakyRelu { n, numerator, log_denominator, sign } => {
            mpc::leaky_relu_cost(model, n, ring, Slope::new(numerator, log_denominator)?, sign.into(), Rounding::Faithful);
        }
        Protocol::Clip { n } => mpc::clip_cost(model, n, ring),
        Protocol::Truncate { n, bits, sign, exact } => {
            let rounding = if exact { Rounding::Floor } else { Rounding::Faithful };
            mpc::truncate_cost(model, n, bits, ring, sign.into(), rounding);
        }
        Protocol::MaxPool { channels, height, width, kernel, stride, pads } => {
            let shape = PoolShape {
                channels,
                height,
                width,
                kernel: (kernel[0], kernel[1]),
                stride: (stride[0], stride[1]),
                padding: [(pads[0], pads[2]), (pads[1], pads[3])],
            };
            shape.output()?;
            mpc::max_pool_cost(model, ring, shape);
        }
        Protocol::MaxMany { n, count } => mpc::max_many_cost(model, count, n, ring),
        Protocol::Argmax { classes } => mpc::argmax_cost(model, 1, classes, ring),
        Protocol::Open { n } => mpc::reveal_cost(model, n, ring, Party::One),
        Protocol::OpenIndex { classes } => mpc::reveal_cost(model, 1, mpc::index_ring(classes)?, Party::One),
    }
    Ok(())
}

/// Exact traffic of protocols that run one after the other in a new session, the server being party 0: a list of
/// `(bytes_up, bytes_down, rounds)`, first of the session's set-up (with the first stock of correlated OTs), then of every protocol.
/// Rounds are messages on the longest chain of dependent ones.
///
/// `protocols` is a JSON list of objects with `op` (relu, leaky_relu, clip, truncate, max_pool, max_many, argmax, open, open_index)
/// and its sizes; `extension` is "silent-large", "silent-medium", "silent-small" or "iknp".
#[pyfunction]
fn mpc_cost(protocols: &str, ring_bits: u32, extension: &str) -> PyResult<Vec<(u64, u64, u64)>> {
    let protocols: Vec<Protocol> = serde_json::from_str(protocols).map_err(refused)?;
    let kind = match extension {
        "silent-large" => OtKind::Silent(SilentSize::Large),
        "silent-medium" => OtKind::Silent(SilentSize::Medium),
        "silent-small" => OtKind::Silent(SilentSize::Small),
        "iknp" => OtKind::Iknp,
        other => return Err(refused(format!("there is no OT extension {other:?}"))),
    };
    let ring = Ring::new(ring_bits).map_err(refused)?;
    let mut model = CostModel::new(kind);
    mpc::setup_cost(&mut model);
    if !protocols.is_empty() {
        model.ensure([1, 1]);
    }
    let mut found = Vec::with_capacity(protocols.len() + 1);
    let mut take = |model: &mut CostModel| {
        let cost = model.cost();
        found.push((cost.bytes_sent_by_1, cost.bytes_sent_by_0, cost.rounds));
        model.reset();
    };
    take(&mut model);
    for protocol in &protocols {
        count(&mut model, protocol, ring).map_err(refused)?;
        take(&mut model);
    }
    Ok(found)
}

/// Adds these functions to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(packed_stage_parameters, m)?)?;
    m.add_function(wrap_pyfunction!(packed_layer_cost, m)?)?;
    m.add_function(wrap_pyfunction!(packed_weight_l2, m)?)?;
    m.add_function(wrap_pyfunction!(mpc_cost, m)?)
}
