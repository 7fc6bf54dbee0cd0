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

use crate::non_interactive::NonInteractivePlan;
use crate::plan::spec::OpSpec;
use crate::plan::{self, Limits, Plan, PlanError, PlanOptions, Trust};
use crate::two_party::TwoPartyPlan;
use serde::Deserialize;
use serde_json::{Map, Value};

/// What says which trust model a plan is of.
#[derive(Deserialize)]
struct Head {
    trust: Trust,
}

/// The public part of a plan file of any trust model, checked as the server's plan and again as the client's. The public part of a public
/// part is itself.
///
/// # Errors
/// [`PlanError`] for every way in which the bytes can be wrong.
pub fn public_part(bytes: &[u8], options: &PlanOptions) -> Result<Vec<u8>, PlanError> {
    let trust = plan::open(bytes, &options.limits, |json, _| {
        Limits::check("the plan's JSON", json.len() as u64, options.limits.json())?;
        serde_json::from_str::<Head>(json).map(|h| h.trust).map_err(|e| PlanError::Json(e.to_string()))
    })?;
    match trust {
        Trust::ClientAided => Plan::from_bytes(bytes, options)?.public_part(),
        Trust::TwoParty => TwoPartyPlan::from_bytes(bytes, options)?.public_part(),
        Trust::NonInteractive => NonInteractivePlan::from_bytes(bytes, options)?.public_part(),
    }
}

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
