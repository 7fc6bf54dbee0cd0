//! What a non-interactive client is told, with and without hidden weights: where ciphertexts are, their levels and scales, and what results may be.

use super::names::{of_ports, Names};
use super::{only, operations};
use crate::non_interactive::spec::{
    HideSpec, KindSpec, LinearSpec, OneSpec, PackedStage, ParamsSpec, PlanSpec, StageSpec, TensorSpec,
    UploadSpec,
};
use serde_json::Map;
use std::collections::{BTreeMap, BTreeSet};

/// Predictions that follow from the public part.
const PREDICTED: &[&str] = &[
    "batch",
    "bytes_up",
    "bytes_down",
    "setup_bytes_up",
    "setup_bytes_down",
    "client_peak_memory_bytes",
    "rounds",
];

/// The public part of a non-interactive plan.
#[must_use]
pub fn non_interactive(spec: &PlanSpec) -> PlanSpec {
    let PlanSpec {
        version,
        name,
        producer,
        trust,
        engine,
        params,
        hide_weights,
        inputs,
        outputs,
        tensors,
        stages,
        predicted,
        notes: _,
    } = spec;
    let ops = stages.iter().flat_map(|s| if let StageSpec::Client { ops, .. } = s { &ops[..] } else { &[] });
    let ends = Ends::of(spec, of_ports(inputs.iter().chain(outputs), ops));
    let mut names = Names::default();
    let tensors = tensors.iter().map(|t| tensor(t, &ends, &mut names)).collect();
    let mut names = Names::default();
    PlanSpec {
        version: *version,
        name: name.clone(),
        producer: producer.clone(),
        trust: *trust,
        engine: *engine,
        params: parameters(params),
        hide_weights: hide_weights.map(|HideSpec { flood_bits }| HideSpec { flood_bits }),
        inputs: inputs.clone(),
        outputs: outputs.clone(),
        tensors,
        stages: stages.iter().map(|s| stage(s, &mut names)).collect(),
        predicted: only(predicted, PREDICTED),
        notes: Vec::new(),
    }
}

/// What the client encrypts and decrypts, and names of its own tensors.
struct Ends<'a> {
    spec: &'a PlanSpec,
    encrypted: BTreeSet<u32>,
    decrypted: BTreeSet<u32>,
    ports: BTreeMap<u32, String>,
}

impl<'a> Ends<'a> {
    fn of(spec: &'a PlanSpec, ports: BTreeMap<u32, String>) -> Self {
        let mut ends = Self { spec, encrypted: BTreeSet::new(), decrypted: BTreeSet::new(), ports };
        for stage in &spec.stages {
            match stage {
                StageSpec::Encrypt(s) => drop(ends.encrypted.insert(s.output)),
                StageSpec::Decrypt(s) => drop(ends.decrypted.insert(s.input)),
                _ => {}
            }
        }
        ends
    }
}

/// The bound of a result as the client is told it. Where weights are hidden it is rounded up to a power of two, or to what the modulus
/// holds beside the flood, which the client knows as well; where they are not, it is exact.
pub(crate) fn told_bound(spec: &PlanSpec, tensor: &TensorSpec, bound: f64) -> f64 {
    let Some(HideSpec { flood_bits }) = spec.hide_weights else { return bound };
    let packed = spec.stages.iter().find_map(|s| match s {
        StageSpec::Packed(p) => Some((p.answer_level, p.answer_scale)),
        _ => None,
    });
    let place = tensor.level.zip(tensor.scale).or(packed);
    let room = place.map_or(f64::INFINITY, |(level, scale)| {
        let bits: f64 = spec.params.data_primes.iter().take(level).map(|q| (*q as f64).log2()).sum();
        ((bits - 1.0 - EDGE).exp2() - f64::from(flood_bits).exp2()) / scale
    });
    power_of_two(bound).min(room)
}

/// Bits of the modulus that stay free, so that a bound that fills it still fits.
const EDGE: f64 = 1e-6;

fn parameters(params: &ParamsSpec) -> ParamsSpec {
    let ParamsSpec {
        ring_degree,
        security_bits,
        insecure,
        data_primes,
        special_primes,
        digits,
        key_level,
        packing,
    } = params.clone();
    ParamsSpec {
        ring_degree,
        security_bits,
        insecure,
        data_primes,
        special_primes,
        digits,
        key_level,
        packing,
    }
}

/// The least power of two that is not below a positive bound.
fn power_of_two(bound: f64) -> f64 {
    let near = bound.log2().round().exp2();
    // the logarithm is rounded: one of its neighbours may be the right one
    [near / 2.0, near, near * 2.0].into_iter().find(|p| *p >= bound).unwrap_or(bound)
}

/// Bounds of what is encrypted follow from input ranges; those of what is decrypted leave as [`told_bound`] says; others stay.
fn tensor(tensor: &TensorSpec, ends: &Ends<'_>, names: &mut Names) -> TensorSpec {
    let TensorSpec { id, name: _, shape, kind, level, parts, scale, bound, range: _, noise_bits } = tensor;
    let numbered = names.next(match kind {
        KindSpec::Real => "real",
        KindSpec::Cipher => "cipher",
    });
    let bound = match bound {
        Some(bound) if ends.decrypted.contains(id) => Some(told_bound(ends.spec, tensor, *bound)),
        Some(bound) if ends.encrypted.contains(id) => Some(*bound),
        _ => None,
    };
    TensorSpec {
        id: *id,
        name: ends.ports.get(id).cloned().unwrap_or(numbered),
        shape: shape.clone(),
        kind: *kind,
        level: *level,
        parts: *parts,
        scale: *scale,
        bound,
        range: None,
        noise_bits: *noise_bits,
    }
}

fn one(stage: &OneSpec, name: String) -> OneSpec {
    let OneSpec { name: _, input, output } = *stage;
    OneSpec { name, input, output }
}

fn layer(layer: &LinearSpec, names: &mut Names) -> LinearSpec {
    let LinearSpec { name: _, input, output, geometry, weights: _, bias: _, predicted: _ } = layer;
    LinearSpec {
        name: names.layer(geometry),
        input: *input,
        output: *output,
        geometry: geometry.clone(),
        weights: None,
        bias: None,
        predicted: Map::new(),
    }
}

/// Where elements stand in slots leaves: the client puts them there. What is computed with them stays.
fn packed(stage: &PackedStage, name: String) -> PackedStage {
    let PackedStage {
        name: _,
        input,
        output,
        scale,
        uploads,
        rotations,
        answer,
        answer_level,
        answer_scale,
        places,
        network: _,
        options: _,
        choices: _,
    } = stage.clone();
    let sent = |UploadSpec { level, slots }| UploadSpec { level, slots };
    PackedStage {
        name,
        input,
        output,
        scale,
        uploads: uploads.into_iter().map(sent).collect(),
        rotations,
        answer,
        answer_level,
        answer_scale,
        places,
        network: None,
        options: None,
        choices: None,
    }
}

fn stage(stage: &StageSpec, names: &mut Names) -> StageSpec {
    let mut named = || names.next(stage.kind());
    match stage.clone() {
        StageSpec::Client { name: _, ops } => {
            StageSpec::Client { name: names.client(), ops: operations(&ops) }
        }
        StageSpec::Encrypt(s) => StageSpec::Encrypt(one(&s, named())),
        StageSpec::Decrypt(s) => {
            let name = named();
            names.answered();
            StageSpec::Decrypt(one(&s, name))
        }
        StageSpec::Linear(s) => StageSpec::Linear(Box::new(layer(&s, names))),
        StageSpec::Packed(s) => StageSpec::Packed(Box::new(packed(&s, named()))),
        StageSpec::Multiply { name: _, inputs, output } => {
            StageSpec::Multiply { name: named(), inputs, output }
        }
        StageSpec::Relinearise(s) => StageSpec::Relinearise(one(&s, named())),
        StageSpec::Rescale(s) => StageSpec::Rescale(one(&s, named())),
        StageSpec::Combine { name: _, inputs, output, factors: _, constant: _ } => {
            StageSpec::Combine { name: named(), inputs, output, factors: None, constant: None }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::power_of_two;

    #[test]
    fn bounds_are_rounded_up_to_powers_of_two() {
        for (bound, rounded) in
            [(1.0, 1.0), (1.0 + 1e-15, 2.0), (0.3, 0.5), (5.0, 8.0), (8.0, 8.0), (1e-6, 2f64.powi(-19))]
        {
            assert_eq!(power_of_two(bound), rounded);
        }
        assert_eq!(power_of_two(f64::from_bits(2f64.to_bits() - 1)), 2.0);
    }
}
