//! What follows from the order of stages: which truncations must be exact, and where tensors die.

use super::plan::{Kind, Stage};
use crate::plan::spec::{KindSpec, PlanSpec, Reveal};
use crate::plan::{PlanError, Tensor};
use hushnet_mpc::Rounding;
use std::collections::BTreeSet;

/// What is opened must have gone through an exact truncation since the last linear layer: the noise behind a linear stage's
/// unit depends on weights. Truncations that nothing but opening follows are made exact.
pub(super) fn exact_before_opening(stages: &mut [Stage]) -> Result<(), PlanError> {
    let mut raw: BTreeSet<usize> = BTreeSet::new();
    for stage in stages.iter_mut().rev() {
        if matches!(stage.kind, Kind::Reveal(Reveal::Output)) {
            raw.extend(&stage.inputs);
            continue;
        }
        if !stage.output.is_some_and(|o| raw.contains(&o)) {
            continue;
        }
        match &mut stage.kind {
            Kind::Truncate { rounding, .. } => *rounding = Rounding::Floor,
            Kind::Linear(_) | Kind::MatrixProduct(_) => {
                let detail = "its result is opened without an exact truncation after it; units of noise would tell about weights and values";
                return Err(PlanError::Linear { stage: stage.name.clone(), detail: detail.into() });
            }
            _ => raw.extend(&stage.inputs),
        }
    }
    Ok(())
}

/// Says where shared tensors die; returns the most elements that are alive at once.
pub(super) fn liveness(
    stages: &mut [Stage],
    tensors: &[Tensor],
    spec: &PlanSpec,
) -> Result<usize, PlanError> {
    let shared = |t: usize| spec.tensors[t].kind == KindSpec::Shared;
    let mut read_later: BTreeSet<usize> = BTreeSet::new();
    for stage in stages.iter_mut().rev() {
        let touched: BTreeSet<usize> =
            stage.inputs.iter().copied().chain(stage.output).filter(|&t| shared(t)).collect();
        stage.free = touched.iter().copied().filter(|&t| read_later.insert(t)).collect();
    }
    let (mut alive, mut peak) = (0usize, 0usize);
    for stage in stages.iter() {
        let overflow = || PlanError::Structure("the sizes of the tensors overflow".into());
        if let Some(output) = stage.output.filter(|&t| shared(t)) {
            alive = alive.checked_add(tensors[output].elements).ok_or_else(overflow)?;
        }
        peak = peak.max(alive);
        alive -= stage.free.iter().map(|&t| tensors[t].elements).sum::<usize>();
    }
    Ok(peak)
}
