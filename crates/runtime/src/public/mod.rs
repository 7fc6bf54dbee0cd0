//! What leaves the server of a plan: one list for each trust model (`docs/two-party.md`, "What the client is told").
//!
//! A public part is put together from what may leave. Every type of a plan's JSON is taken apart field by field, without `..`, so a new
//! field does not compile until someone decides here whether it leaves. Everything that is left out stays with the server.

mod client_aided;
mod names;
mod non_interactive;
mod two_party;

pub use client_aided::client_aided;
pub use non_interactive::non_interactive;
pub(crate) use non_interactive::told_bound;
pub use two_party::two_party;

use crate::plan::spec::OpSpec;
use serde_json::{Map, Value};

/// The entries of free fields that may leave.
fn only(given: &Map<String, Value>, told: &[&str]) -> Map<String, Value> {
    given.iter().filter(|(k, _)| told.contains(&k.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Operations of the client leave with all their constants: it computes them.
fn operations(ops: &[OpSpec]) -> Vec<OpSpec> {
    let one = |op: &OpSpec| {
        let OpSpec { kind, inputs, output } = op;
        OpSpec { kind: kind.clone(), inputs: inputs.clone(), output: *output }
    };
    ops.iter().map(one).collect()
}
