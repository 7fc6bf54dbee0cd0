//! Checks of what stands before the stages: trust, parameters, tensors.

use super::reach;
use super::spec::{KindSpec, PlanSpec, StageSpec, TensorSpec};
use crate::plan::spec as batch;
use crate::plan::{check_tensor, Engine, Limits, PlanError, Tensor, Trust, VERSION};
use hushnet_mpc::Ring;
use hushnet_rlwe::packed::PackedSpec;
use serde_json::Map;

/// Narrowest ring that the protocols work at.
const MIN_RING_BITS: u32 = 4;

pub(super) fn client_spec(spec: &PlanSpec) -> batch::PlanSpec {
    batch::PlanSpec {
        version: spec.version,
        name: spec.name.clone(),
        producer: spec.producer.clone(),
        trust: spec.trust,
        engine: spec.engine,
        params: spec.params.batch(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        tensors: Vec::new(),
        stages: Vec::new(),
        predicted: Map::new(),
        notes: Vec::new(),
    }
}

pub(super) fn check_header(spec: &PlanSpec, limits: &Limits) -> Result<Ring, PlanError> {
    if spec.version != VERSION {
        return Err(PlanError::Version { found: spec.version.to_string() });
    }
    if spec.trust != Trust::TwoParty {
        return Err(PlanError::Unsupported(format!("trust model {:?} in a two-party run", spec.trust)));
    }
    if spec.engine != Engine::Packed {
        return Err(PlanError::Unsupported(format!("engine {:?} with two parties", spec.engine)));
    }
    let p = &spec.params;
    if p.insecure || p.security_bits != 128 {
        return Err(PlanError::Insecure(format!(
            "{} bits claimed; two-party plans have 128",
            p.security_bits
        )));
    }
    let ring = Ring::new(p.ring_bits).ok().filter(|r| r.bits() >= MIN_RING_BITS);
    let ring = ring.ok_or_else(|| {
        PlanError::Structure(format!("ring_bits {} is not from {MIN_RING_BITS} to 64", p.ring_bits))
    })?;
    let packed = PackedSpec { ring_degree: p.ring_degree, ring_bits: p.ring_bits, weight_l2: 1.0 };
    packed.choose().map_err(|e| PlanError::Structure(e.to_string()))?;
    if spec.preparation.as_ref().is_some_and(|p| p.len() != 64 || !p.bytes().all(|b| b.is_ascii_hexdigit())) {
        return Err(PlanError::Structure("the plan's preparation is not 64 hexadecimal digits".into()));
    }
    Limits::check("the number of tensors", spec.tensors.len() as u64, limits.tensors)?;
    Limits::check("the number of stages", spec.stages.len() as u64, limits.stages)?;
    let ops = |s: &StageSpec| if let StageSpec::Client { ops, .. } = s { ops.len() as u64 } else { 0 };
    Limits::check("the number of client operations", spec.stages.iter().map(ops).sum(), limits.ops)?;
    Ok(ring)
}

pub(super) fn tensor(spec: &TensorSpec, ring: Ring, limits: &Limits) -> Result<Tensor, PlanError> {
    let fail =
        |detail: &str| PlanError::Tensor { id: spec.id, name: spec.name.clone(), detail: detail.into() };
    let (kind, scale, bound) = match (spec.kind, spec.frac_bits, spec.reach_bits) {
        (KindSpec::Real, None, None) => (batch::KindSpec::Real, spec.scale, spec.bound),
        (KindSpec::Fixed, None, None) => (batch::KindSpec::Fixed, spec.scale, spec.bound),
        (KindSpec::Shared, Some(f), Some(k)) if spec.scale.is_none() => {
            if !(-64..=64).contains(&f) {
                return Err(fail("frac_bits is not from -64 to 64"));
            }
            reach::check(k, spec.bound, ring).map_err(|detail| fail(&detail))?;
            (batch::KindSpec::Fixed, Some(f64::from(-f).exp2()), Some(reach::largest(k)))
        }
        (KindSpec::Shared, ..) => {
            return Err(fail(
                "a shared tensor has frac_bits, reach_bits and no scale; compile the model again with this version",
            ))
        }
        _ => return Err(fail("only shared tensors have frac_bits and reach_bits")),
    };
    let spec = batch::TensorSpec {
        id: spec.id,
        name: spec.name.clone(),
        shape: spec.shape.clone(),
        kind,
        scale,
        bound,
    };
    check_tensor(&spec, limits)
}
