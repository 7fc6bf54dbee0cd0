//! Python bindings: `hushnet._native`. Types and defaults for users stand in `python/hushnet/_native.pyi`.

mod arrays;
mod calibration;
mod checking;
mod client;
mod coefficients;
mod errors;
mod few_images;
mod guard;
mod json;
mod local;
mod packed;
mod parameters;
mod plan;
mod server;
mod slots;
mod two_party;
mod two_party_planning;

use pyo3::prelude::*;

/// The ledger of masks is for tests. Builds of the whole workspace with its tests unify features, so `cargo check` and clippy, which make
/// no package, may see it.
#[cfg(not(any(debug_assertions, clippy)))]
const _: () = assert!(
    !hushnet_ring::ledger::ON,
    "hushnet-python is being built with hushnet-ring's feature `ledger`, which is for tests only: \
     leave hushnet-masks out of this build"
);

/// Name of the instruction set in use; HushnetError when `HUSHNET_SIMD` cannot be obeyed.
#[pyfunction]
fn simd() -> PyResult<&'static str> {
    hushnet_runtime::simd_init().map(hushnet_runtime::Isa::name).map_err(|e| errors::Kind::Hushnet.error(e))
}

/// What plans have cost this process so far: how often one was `read` (its digest compared), `written` (its digest computed), `checked` and
/// `prepared` (weights brought into the form of the kernels).
#[pyfunction]
fn tally() -> std::collections::BTreeMap<&'static str, u64> {
    let t = hushnet_runtime::tally::so_far();
    [("read", t.read), ("written", t.written), ("checked", t.checked), ("prepared", t.prepared)].into()
}

/// Gives back buffers of polynomials that nobody has needed since the last call; their bytes. A server does so every few seconds.
#[pyfunction]
fn release_buffers(py: Python<'_>) -> usize {
    py.detach(hushnet_ring::rns::release_buffers)
}

#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    // Records of this program go to Python's `logging`, under `hushnet_runtime`; those of its libraries from warnings on.
    let logger = pyo3_log::Logger::new(m.py(), pyo3_log::Caching::LoggersAndLevels)?
        .filter(log::LevelFilter::Warn)
        .filter_target("hushnet_runtime".to_owned(), log::LevelFilter::Info);
    // A second interpreter finds the logger installed.
    let _ = logger.install();
    errors::register(m)?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<plan::Plan>()?;
    m.add_class::<client::Client>()?;
    m.add_class::<server::ServerHandle>()?;
    m.add_class::<packed::PackedCircuit>()?;
    m.add_function(wrap_pyfunction!(simd, m)?)?;
    m.add_function(wrap_pyfunction!(tally, m)?)?;
    m.add_function(wrap_pyfunction!(release_buffers, m)?)?;
    m.add_function(wrap_pyfunction!(guard::set_threads, m)?)?;
    m.add_function(wrap_pyfunction!(local::run, m)?)?;
    m.add_function(wrap_pyfunction!(client::connect, m)?)?;
    m.add_function(wrap_pyfunction!(server::serve, m)?)?;
    m.add_function(wrap_pyfunction!(server::is_model_name, m)?)?;
    m.add_function(wrap_pyfunction!(parameters::max_modulus_bits, m)?)?;
    m.add_function(wrap_pyfunction!(parameters::batch_stage_parameters, m)?)?;
    slots::register(m)?;
    m.add_function(wrap_pyfunction!(parameters::cost_units, m)?)?;
    m.add_function(wrap_pyfunction!(parameters::measure_unit, m)?)?;
    calibration::register(m)?;
    checking::register(m)?;
    coefficients::register(m)?;
    few_images::register(m)?;
    two_party_planning::register(m)?;
    Ok(())
}
