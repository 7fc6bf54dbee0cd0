//! What a two-party client is told. Whatever depends on weights leaves as a whole number of bits only: `docs/two-party.md` lists and justifies it.

use super::names::{of_ports, Names};
use super::{only, operations};
use crate::two_party::spec::{KindSpec, LinearSpec, ParamsSpec, PlanSpec, StageSpec, TensorSpec, WindowSpec};
use serde_json::Map;
use std::collections::BTreeMap;

/// Predictions that follow from the public part and from unit costs of machines.
const PREDICTED: &[&str] = &[
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
];

/// The public part of a two-party plan.
#[must_use]
pub fn two_party(spec: &PlanSpec) -> PlanSpec {
    let PlanSpec {
        version,
        name,
        producer,
        trust,
        engine,
        params,
        reveal,
        preparation,
        ranges,
        inputs,
        outputs,
        tensors,
        stages,
        predicted,
        notes: _,
    } = spec;
    let ops = stages.iter().flat_map(|s| if let StageSpec::Client { ops, .. } = s { &ops[..] } else { &[] });
    let ports = of_ports(inputs.iter().chain(outputs), ops);
    let mut names = Names::default();
    let tensors = tensors.iter().map(|t| tensor(t, &ports, &mut names)).collect();
    let mut names = Names::default();
    PlanSpec {
        version: *version,
        name: name.clone(),
        producer: producer.clone(),
        trust: *trust,
        engine: *engine,
        params: parameters(params),
        reveal: *reveal,
        preparation: preparation.clone(),
        ranges: *ranges,
        inputs: inputs.clone(),
        outputs: outputs.clone(),
        tensors,
        stages: stages.iter().map(|s| stage(s, &mut names)).collect(),
        predicted: only(predicted, PREDICTED),
        notes: Vec::new(),
    }
}

fn parameters(params: &ParamsSpec) -> ParamsSpec {
    let ParamsSpec { ring_degree, security_bits, insecure, ring_bits } = *params;
    ParamsSpec { ring_degree, security_bits, insecure, ring_bits }
}

/// Exact bounds of shared tensors stay; those of the client's own follow from input ranges, or from reaches.
fn tensor(tensor: &TensorSpec, ports: &BTreeMap<u32, String>, names: &mut Names) -> TensorSpec {
    let TensorSpec { id, name: _, shape, kind, scale, frac_bits, reach_bits, bound } = tensor;
    let numbered = names.next(match kind {
        KindSpec::Real => "real",
        KindSpec::Fixed => "fixed",
        KindSpec::Shared => "shared",
    });
    TensorSpec {
        id: *id,
        name: ports.get(id).cloned().unwrap_or(numbered),
        shape: shape.clone(),
        kind: *kind,
        scale: *scale,
        frac_bits: *frac_bits,
        reach_bits: *reach_bits,
        bound: if *kind == KindSpec::Shared { None } else { *bound },
    }
}

fn layer(layer: &LinearSpec, names: &mut Names) -> LinearSpec {
    let LinearSpec { name: _, method, input, output, geometry, weights: _, bias: _, weight_l2, predicted: _ } =
        layer;
    LinearSpec {
        name: names.layer(geometry),
        method: method.clone(),
        input: *input,
        output: *output,
        geometry: geometry.clone(),
        weights: None,
        bias: None,
        weight_l2: *weight_l2,
        predicted: Map::new(),
    }
}

fn window(window: &WindowSpec, name: String) -> WindowSpec {
    let WindowSpec { name: _, input, output, kernel, stride, pads, dilation, protocol } = window;
    WindowSpec {
        name,
        input: *input,
        output: *output,
        kernel: *kernel,
        stride: *stride,
        pads: *pads,
        dilation: *dilation,
        protocol: *protocol,
    }
}

/// Of a clip's ends no more leaves than that the lower one is zero.
fn stage(stage: &StageSpec, names: &mut Names) -> StageSpec {
    let mut named = || names.next(stage.kind());
    match stage.clone() {
        StageSpec::Client { name: _, ops } => {
            StageSpec::Client { name: names.client(), ops: operations(&ops) }
        }
        StageSpec::Linear(l) => StageSpec::Linear(Box::new(layer(&l, names))),
        StageSpec::MaxPool(w) => StageSpec::MaxPool(window(&w, named())),
        StageSpec::SumPool(w) => StageSpec::SumPool(window(&w, named())),
        StageSpec::Share { name: _, input, output } => StageSpec::Share { name: named(), input, output },
        StageSpec::Relu { name: _, input, output, protocol } => {
            StageSpec::Relu { name: named(), input, output, protocol }
        }
        StageSpec::LeakyRelu { name: _, input, output, numerator, log_denominator } => {
            StageSpec::LeakyRelu { name: named(), input, output, numerator, log_denominator }
        }
        StageSpec::Clip { name: _, input, output, low, high: _, reach_bits, protocol } => {
            let low = low.filter(|low| *low == 0);
            StageSpec::Clip { name: named(), input, output, low, high: None, reach_bits, protocol }
        }
        StageSpec::Truncate { name: _, input, output, bits, sign, exact } => {
            StageSpec::Truncate { name: named(), input, output, bits, sign, exact }
        }
        StageSpec::Scale { name: _, input, output, factor } => {
            StageSpec::Scale { name: named(), input, output, factor }
        }
        StageSpec::Add { name: _, inputs, output } => StageSpec::Add { name: named(), inputs, output },
        StageSpec::Reshape { name: _, inputs, output } => {
            StageSpec::Reshape { name: named(), inputs, output }
        }
        StageSpec::Transpose { name: _, inputs, output, perm } => {
            StageSpec::Transpose { name: named(), inputs, output, perm }
        }
        StageSpec::Concat { name: _, inputs, output, axis } => {
            StageSpec::Concat { name: named(), inputs, output, axis }
        }
        StageSpec::Slice { name: _, inputs, output, starts, ends, steps, axes } => {
            StageSpec::Slice { name: named(), inputs, output, starts, ends, steps, axes }
        }
        StageSpec::Pad { name: _, inputs, output, pads } => {
            StageSpec::Pad { name: named(), inputs, output, pads }
        }
        StageSpec::Reveal { name: _, input, output, what, protocol } => {
            let name = named();
            names.answered();
            StageSpec::Reveal { name, input, output, what, protocol }
        }
    }
}
