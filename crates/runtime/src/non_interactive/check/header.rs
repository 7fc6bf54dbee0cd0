//! What a non-interactive plan states beside its stages: the engine that they belong to, and CKKS parameters.

use crate::plan::spec::{NonInteractiveSpec, Packing, PlanSpec, StageKind};
use crate::plan::{Engine, Need, PlanError, PlanOptions};
use hushnet_rlwe::ckks::{CkksError, CkksParams, CkksSpec, Insecure, PrimeSpec};

/// The part of the parameters that non-interactive plans have.
pub(super) fn part(spec: &PlanSpec) -> Result<&NonInteractiveSpec, PlanError> {
    let missing = || PlanError::Structure("the plan's params have no part 'non_interactive'".into());
    spec.params.non_interactive.as_ref().ok_or_else(missing)
}

/// A packed plan has one stage for the whole network, and one value a slot; other plans have none.
pub(super) fn engine(spec: &PlanSpec) -> Result<(), PlanError> {
    let packed = |s: &StageKind| matches!(s, StageKind::Packed(_));
    let other = |s: &StageKind| !packed(s) && !matches!(s.name(), "client" | "encrypt" | "decrypt");
    let kinds = || spec.stages.iter().map(|s| &s.kind);
    let (count, others) = (kinds().filter(|s| packed(s)).count(), kinds().any(other));
    if (spec.engine == Engine::Packed) != (count == 1) || (count > 0 && others) {
        return Err(PlanError::Unsupported(format!("the stages of this plan in engine {:?}", spec.engine)));
    }
    let packing = part(spec)?.packing;
    if spec.engine == Engine::Packed && packing != Packing::Real {
        return Err(PlanError::Unsupported(format!("packing {packing:?} in engine {:?}", spec.engine)));
    }
    Ok(())
}

/// Bytes of the tables that parameters come with: for every prime roots of unity both ways with their quotients, and what divides by it.
pub(super) fn table_bytes(spec: &PlanSpec) -> u64 {
    let count =
        |p: &NonInteractiveSpec| (p.data_primes.len() as u64).saturating_add(p.special_primes.len() as u64);
    let primes = spec.params.non_interactive.as_ref().map_or(0, count);
    primes.saturating_mul(spec.params.ring_degree as u64).saturating_mul(64)
}

pub(super) fn parameters(spec: &PlanSpec, options: &PlanOptions) -> Result<CkksParams, PlanError> {
    let mut tables = Need::default();
    tables.add("the tables of the parameters", table_bytes(spec));
    tables.check(&options.limits)?;
    let p = part(spec)?;
    let exact = |primes: &[u64]| primes.iter().map(|q| PrimeSpec::Exactly(*q)).collect();
    let ckks = CkksSpec {
        ring_degree: spec.params.ring_degree,
        ring: p.packing.ring(),
        data_primes: exact(&p.data_primes),
        special_primes: exact(&p.special_primes),
        scale_bits: 1,
        digits: p.digits,
    };
    let made = match (spec.params.insecure, p.key_level) {
        (true, Some(level)) => ckks.check_insecure_with_keys_to(level, Insecure),
        (true, None) => ckks.check_insecure(Insecure),
        (false, Some(level)) => ckks.check_with_keys_to(level),
        (false, None) => ckks.check(),
    };
    made.map_err(|e| match e {
        CkksError::Security { .. } => PlanError::Insecure(e.to_string()),
        other => PlanError::Structure(other.to_string()),
    })
}
