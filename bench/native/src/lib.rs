//! What the benchmarks measure in Rust: `hushnet_bench._native`. Types stand in `bench/python/hushnet_bench/_native.pyi`.

mod bootstrap;
mod ckks;
mod errors;
mod ngraph;
mod packed;
mod processes;
mod rotation_free;
mod slots;

use pyo3::prelude::*;

/// As in `crates/python/src/lib.rs`: nothing is measured with the ledger of masks.
#[cfg(not(any(debug_assertions, clippy)))]
const _: () = assert!(
    !hushnet_ring::ledger::ON,
    "hushnet-bench is being built with hushnet-ring's feature `ledger`, which is for tests only: \
     leave hushnet-masks out of this build"
);

// What both extensions read from Python and write for it.
#[path = "../../../crates/python/src/json.rs"]
mod json;

use json::refused;

#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    slots::register(m)?;
    rotation_free::register(m)?;
    bootstrap::register(m)?;
    ckks::register(m)?;
    ngraph::register(m)?;
    m.add_class::<packed::PackedRun>()?;
    processes::register(m)
}
