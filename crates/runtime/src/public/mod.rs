//! What leaves the server of a plan: one list for all trust models (`docs/two-party.md`, "What the client is told").
//!
//! A public part is put together from what may leave. Every type of a plan's JSON is taken apart field by field, without `..`, so a new
//! field does not compile until someone decides here whether it leaves. Everything that is left out stays with the server.
//!
//! A client-aided client is told all but the arrays: it sees every pre-activation and can solve for the weights, so there is no model privacy to
//! keep; the rest is what `explain` shows it. Of plans of the other trust models names become neutral, and notes and most predictions stay. Whatever
//! depends on weights leaves a two-party server as a whole number of bits only.

mod names;
mod stages;
mod tensors;

pub(crate) use tensors::told_bound;

use crate::plan::spec::{NonInteractiveSpec, OpSpec, ParamsSpec, PlanSpec, PortSpec, Trust, TwoPartySpec};
use names::Names;
use serde_json::{Map, Value};

/// Predictions that follow from the public part and from unit costs of machines; `None`: all leave.
fn predicted(trust: Trust) -> Option<&'static [&'static str]> {
    match trust {
        Trust::ClientAided => None,
        Trust::TwoParty => Some(&[
            "batch",
            "network",
            "extension",
            "seconds",
            "seconds_by_network",
            "seconds_compute",
            "setup_seconds",
            "bytes_up",
            "bytes_down",
            "he_bytes",
            "ot_bytes",
            "setup_bytes",
            "rounds",
            "client_peak_memory_bytes",
            "client_set_up_memory_bytes",
        ]),
        Trust::NonInteractive => Some(&[
            "batch",
            "bytes_up",
            "bytes_down",
            "setup_bytes_up",
            "setup_bytes_down",
            "client_peak_memory_bytes",
            "rounds",
        ]),
    }
}

/// The JSON of a plan's public part. The public part of a public part is itself.
#[must_use]
pub fn told(spec: &PlanSpec) -> PlanSpec {
    let PlanSpec {
        version,
        name,
        producer,
        trust,
        engine,
        params,
        inputs,
        outputs,
        tensors,
        stages,
        predicted: all,
        notes,
    } = spec;
    let open = *trust == Trust::ClientAided;
    let ends = tensors::Ends::of(spec);
    let (mut of_tensors, mut of_stages) = (Names::of(*trust), Names::of(*trust));
    PlanSpec {
        version: *version,
        name: name.clone(),
        producer: producer.clone(),
        trust: *trust,
        engine: *engine,
        params: parameters(params),
        inputs: ports(inputs),
        outputs: ports(outputs),
        tensors: tensors.iter().map(|t| tensors::told(t, &ends, &mut of_tensors)).collect(),
        stages: stages.iter().map(|s| stages::told(s, open, &mut of_stages)).collect(),
        predicted: only(all, predicted(*trust)),
        notes: if open { notes.clone() } else { Vec::new() },
    }
}

/// Inputs and outputs leave whole: users call them, their columns and their classes by their names, and the client clamps inputs to their ranges and
/// fills in what is missing, as whoever compiled has declared.
fn ports(ports: &[PortSpec]) -> Vec<PortSpec> {
    let one = |port: &PortSpec| {
        let PortSpec { name, tensor, range, classes, missing, columns } = port.clone();
        PortSpec { name, tensor, range, classes, missing, columns }
    };
    ports.iter().map(one).collect()
}

/// Parameters leave whole: the client makes keys of them.
fn parameters(params: &ParamsSpec) -> ParamsSpec {
    let ParamsSpec { ring_degree, security_bits, insecure, two_party, non_interactive } = params;
    ParamsSpec {
        ring_degree: *ring_degree,
        security_bits: *security_bits,
        insecure: *insecure,
        two_party: two_party.as_ref().map(shares),
        non_interactive: non_interactive.as_ref().map(ckks),
    }
}

fn shares(part: &TwoPartySpec) -> TwoPartySpec {
    let TwoPartySpec { ring_bits, reveal, ranges, sums: _, preparation } = part.clone();
    TwoPartySpec { ring_bits, reveal, ranges, sums: None, preparation }
}

fn ckks(part: &NonInteractiveSpec) -> NonInteractiveSpec {
    let NonInteractiveSpec { data_primes, special_primes, digits, key_level, packing, hide_weights } =
        part.clone();
    NonInteractiveSpec { data_primes, special_primes, digits, key_level, packing, hide_weights }
}

/// The entries of free fields that may leave.
fn only(given: &Map<String, Value>, told: Option<&[&str]>) -> Map<String, Value> {
    let Some(told) = told else { return given.clone() };
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
