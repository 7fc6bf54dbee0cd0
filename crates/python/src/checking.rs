//! The one check of plan files for Python, what follows exactly from a plan, and the constants of its noise: no second truth stands in Python.

use crate::errors::Kind;
use crate::plan::options;
use hushnet_mpc::{OtKind, SilentSize};
use hushnet_ring::ExactMultiplier;
use hushnet_rlwe::batch::{ERROR_VARIANCE, TAIL};
use hushnet_rlwe::BatchStageSpec;
use hushnet_runtime::non_interactive::{self, NonInteractivePlan};
use hushnet_runtime::plan::VERSION;
use hushnet_runtime::two_party::{self, TwoPartyPlan};
use hushnet_runtime::{AnyPlan, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{json, Value};

/// Checks a plan file of any trust model; PlanError for every way in which it can be wrong.
#[pyfunction]
#[pyo3(signature = (plan, allow_insecure=false))]
fn check_plan(py: Python<'_>, plan: &[u8], allow_insecure: bool) -> PyResult<()> {
    py.detach(|| AnyPlan::from_bytes(plan, &options(allow_insecure, None)))
        .map(drop)
        .map_err(|e| Kind::Plan.error(e))
}

/// What follows from a checked plan exactly, as JSON: `cost` of a session that runs so many images (`setup`, `stages`, `stage_setups` and `total`, each
/// with `bytes_up`, `bytes_down` and `rounds`), and under the trust model's name what is its own.
pub(crate) fn facts(plan: &AnyPlan, images: usize) -> Result<String, Error> {
    let mut facts = json!({"cost": plan.cost(images)?});
    match plan {
        AnyPlan::ClientAided(_) => {}
        AnyPlan::TwoParty(p) => facts["two_party"] = of_shares(p, images)?,
        AnyPlan::NonInteractive(p) => facts["non_interactive"] = of_ciphers(p),
    }
    Ok(facts.to_string())
}

/// Of two-party plans: the prediction of one group of images, with the OT extension that it will choose and the work that time follows from.
fn of_shares(plan: &TwoPartyPlan, images: usize) -> Result<Value, Error> {
    let layers = two_party::Layers::new(plan)?;
    let kind = two_party::cost::choose(plan, &layers, images);
    let predicted = two_party::predict(plan, &layers, kind, images);
    let mut facts = serde_json::to_value(predicted).map_err(|e| Error::Internal(e.to_string()))?;
    facts["extension"] = extension_name(kind).into();
    facts["peak_elements"] = plan.peak_elements().into();
    facts["work"] = json!(two_party::work(plan));
    Ok(facts)
}

/// Of non-interactive plans: operations and ciphertexts of a block and, with weights, errors by id of each tensor of ciphertexts of a batch, or the
/// report of a packed circuit.
fn of_ciphers(plan: &NonInteractivePlan) -> Value {
    let ciphers = plan.spec().tensors.iter().filter(|t| t.level.is_some());
    let tracks: Option<Vec<Value>> =
        plan.circuit().and_then(|c| c.tracks()).map(|tracks| {
            let row = |(t, k): (
                &hushnet_runtime::plan::spec::TensorSpec,
                &hushnet_layers::ckks_batch::Track,
            )| {
                json!({"tensor": t.id, "sd": k.sd, "likely": k.likely, "hidden": k.hidden})
            };
            ciphers.zip(tracks).map(row).collect()
        });
    json!({
        "traffic": non_interactive::predict(plan),
        "counted": plan.counted(),
        "peak_bytes": plan.peak_bytes(),
        "images": plan.block_images(),
        "tracks": tracks,
        "packed": plan.packed().and_then(|p| p.circuit()).map(|c| c.report()),
    })
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

/// Widest modulus, in bits, whose products with the secret are one at a ring degree; wider ones take two. ValueError where there is no such ring.
#[pyfunction]
fn single_part_bits(ring_degree: usize) -> PyResult<u32> {
    let multiplier = ExactMultiplier::new(ring_degree).map_err(|e| PyValueError::new_err(e.to_string()))?;
    Ok(multiplier.single_part_bits())
}

/// Noise of a batch layer's result after dropping bits of c0 and, unless masks are shared, of c1: exceeded with probability below 2^-40.
#[pyfunction]
fn batch_stage_noise(ring_degree: usize, weight_l2: f64, dropped: (u32, u32), shared_mask: bool) -> f64 {
    let spec = BatchStageSpec { ring_degree, weight_l2, output_bound: 0, shared_mask };
    spec.encryption_noise() + spec.drop_noise(dropped.0.min(64), dropped.1.min(64))
}

/// The least k for values up to `bound` in absolute value, units of errors included.
#[pyfunction]
fn reach_bits(bound: u64) -> u32 {
    two_party::reach_bits(bound)
}

/// Adds these to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("PLAN_VERSION", VERSION)?;
    m.add("ERROR_TAIL", TAIL)?;
    m.add("ERROR_VARIANCE", ERROR_VARIANCE)?;
    m.add("STATISTICAL_BITS", non_interactive::STATISTICAL_BITS)?;
    m.add_function(wrap_pyfunction!(check_plan, m)?)?;
    m.add_function(wrap_pyfunction!(single_part_bits, m)?)?;
    m.add_function(wrap_pyfunction!(batch_stage_noise, m)?)?;
    m.add_function(wrap_pyfunction!(reach_bits, m)?)
}
