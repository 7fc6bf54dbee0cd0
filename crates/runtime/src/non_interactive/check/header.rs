//! What a plan states beside its stages: version, engine, numbers of things, parameters.

use super::super::spec::{Packing, PlanSpec, StageSpec};
use crate::plan::spec as batch;
use crate::plan::{Engine, Limits, Need, PlanError, PlanOptions, Trust, VERSION};
use hushnet_rlwe::ckks::{CkksError, CkksParams, CkksSpec, Insecure, PrimeSpec};

pub(super) fn check_header(spec: &PlanSpec, limits: &Limits) -> Result<(), PlanError> {
    if spec.version != VERSION {
        return Err(PlanError::Version { found: spec.version.to_string() });
    }
    if spec.trust != Trust::NonInteractive {
        return Err(PlanError::Unsupported(format!("trust model {:?} in a non-interactive run", spec.trust)));
    }
    let packed = |s: &StageSpec| matches!(s, StageSpec::Packed(_));
    let other = |s: &StageSpec| !packed(s) && !matches!(s.kind(), "client" | "encrypt" | "decrypt");
    let (count, others) = (spec.stages.iter().filter(|s| packed(s)).count(), spec.stages.iter().any(other));
    if (spec.engine == Engine::Packed) != (count == 1) || (count > 0 && others) {
        return Err(PlanError::Unsupported(format!("the stages of this plan in engine {:?}", spec.engine)));
    }
    if spec.engine == Engine::Packed && spec.params.packing != Packing::Real {
        return Err(PlanError::Unsupported(format!(
            "packing {:?} in engine {:?}",
            spec.params.packing, spec.engine
        )));
    }
    Limits::check("the number of tensors", spec.tensors.len() as u64, limits.tensors)?;
    Limits::check("the number of stages", spec.stages.len() as u64, limits.stages)?;
    let ops = |s: &StageSpec| if let StageSpec::Client { ops, .. } = s { ops.len() as u64 } else { 0 };
    Limits::check("the number of client operations", spec.stages.iter().map(ops).sum(), limits.ops)
}

/// Bytes of the tables that parameters come with: for every prime roots of unity both ways with their quotients, and what divides by it.
pub(super) fn table_bytes(spec: &PlanSpec) -> u64 {
    let p = &spec.params;
    let primes = (p.data_primes.len() as u64).saturating_add(p.special_primes.len() as u64);
    primes.saturating_mul(p.ring_degree as u64).saturating_mul(64)
}

pub(super) fn parameters(spec: &PlanSpec, options: &PlanOptions) -> Result<CkksParams, PlanError> {
    let mut tables = Need::default();
    tables.add("the tables of the parameters", table_bytes(spec));
    tables.check(&options.limits)?;
    let p = &spec.params;
    let exact = |primes: &[u64]| primes.iter().map(|q| PrimeSpec::Exactly(*q)).collect();
    let ckks = CkksSpec {
        ring_degree: p.ring_degree,
        ring: p.packing.ring(),
        data_primes: exact(&p.data_primes),
        special_primes: exact(&p.special_primes),
        scale_bits: 1,
        digits: p.digits,
    };
    let made = if p.insecure {
        if !options.allow_insecure {
            return Err(PlanError::Insecure(format!("{} bits claimed", p.security_bits)));
        }
        match p.key_level {
            Some(level) => ckks.check_insecure_with_keys_to(level, Insecure),
            None => ckks.check_insecure(Insecure),
        }
    } else {
        if p.security_bits != 128 {
            return Err(PlanError::Insecure(format!("{} bits claimed", p.security_bits)));
        }
        match p.key_level {
            Some(level) => ckks.check_with_keys_to(level),
            None => ckks.check(),
        }
    };
    made.map_err(|e| match e {
        CkksError::Security { .. } => PlanError::Insecure(e.to_string()),
        other => PlanError::Structure(other.to_string()),
    })
}

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
        predicted: spec.predicted.clone(),
        notes: Vec::new(),
    }
}
