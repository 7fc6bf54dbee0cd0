//! What a client-aided client is told: all but the arrays. It sees every pre-activation and can solve for the weights, so there is no model
//! privacy to keep; the rest is what `explain` shows it.

use crate::plan::spec::{CoefficientSpec, LinearSpec, PlanSpec, StageSpec};

/// The public part of a client-aided plan.
#[must_use]
pub fn client_aided(spec: &PlanSpec) -> PlanSpec {
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
        predicted,
        notes,
    } = spec.clone();
    let stages = stages.into_iter().map(stage).collect();
    PlanSpec {
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
        predicted,
        notes,
    }
}

fn stage(stage: StageSpec) -> StageSpec {
    match stage {
        StageSpec::Client { name, ops } => StageSpec::Client { name, ops },
        StageSpec::Linear(layer) => StageSpec::Linear(Box::new(linear(*layer))),
        StageSpec::Coefficients(layer) => StageSpec::Coefficients(Box::new(coefficients(*layer))),
    }
}

fn coefficients(layer: CoefficientSpec) -> CoefficientSpec {
    let CoefficientSpec {
        name,
        input,
        output,
        geometry,
        weights: _,
        bias: _,
        upload_bits,
        body_bits,
        mask_bits,
        predicted,
    } = layer;
    CoefficientSpec {
        name,
        input,
        output,
        geometry,
        weights: None,
        bias: None,
        upload_bits,
        body_bits,
        mask_bits,
        predicted,
    }
}

fn linear(layer: LinearSpec) -> LinearSpec {
    let LinearSpec {
        name,
        method,
        input,
        output,
        geometry,
        weights: _,
        bias: _,
        modulus_bits,
        delta_bits,
        drop_bits,
        mask_drop_bits,
        mask,
        tiles,
        predicted,
    } = layer;
    LinearSpec {
        name,
        method,
        input,
        output,
        geometry,
        weights: None,
        bias: None,
        modulus_bits,
        delta_bits,
        drop_bits,
        mask_drop_bits,
        mask,
        tiles,
        predicted,
    }
}
