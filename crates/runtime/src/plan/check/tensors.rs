//! Checks of what stands before the stages: parameters, numbers of things, tensors.

use crate::plan::spec::{Engine, KindSpec, ParamsSpec, PlanSpec, StageKind, TensorSpec, Trust};
use crate::plan::{elements, Limits, PlanError, PlanOptions, Tensor, TensorKind};

/// Largest bound of a fixed tensor: sums of two stay within an `i64`.
const MAX_BOUND: u64 = 1 << 62;
/// Most axes that operations are written for.
const MAX_RANK: usize = 16;
/// Most fraction bits of a shared tensor, and fewest, negated.
const MAX_FRACTION: i32 = 64;
/// Most bits of an error.
const MAX_NOISE_BITS: u32 = 1000;

/// Checks what a plan of any trust model states beside its tensors and stages.
///
/// # Errors
/// [`PlanError`] for an engine or parameters that the trust model does not have, insecure parameters, and too many of anything.
pub(crate) fn header(spec: &PlanSpec, options: &PlanOptions) -> Result<(), PlanError> {
    let (limits, grammar) = (&options.limits, spec.trust.grammar());
    let trust = spec.trust.name();
    if !grammar.engines.contains(&spec.engine) {
        return Err(PlanError::Unsupported(format!("engine {:?} of a {trust} plan", spec.engine)));
    }
    let ParamsSpec { ring_degree: _, security_bits, insecure, two_party, non_interactive } = &spec.params;
    let parts = [("two_party", two_party.is_some()), ("non_interactive", non_interactive.is_some())];
    if let Some((part, given)) = parts.iter().find(|(part, given)| *given != (grammar.params == Some(part))) {
        let has = if *given { "has" } else { "has no" };
        return Err(PlanError::Structure(format!(
            "the params of this {trust} plan {has} '{part}'; compile the model again"
        )));
    }
    if *insecure && !grammar.insecure {
        let detail = format!(
            "{trust} plans have 128-bit security and are never marked insecure; compile the model again"
        );
        return Err(PlanError::Structure(detail));
    }
    if *insecure && !options.allow_insecure {
        return Err(PlanError::Insecure(format!("{security_bits} bits claimed")));
    }
    if !*insecure && *security_bits != 128 {
        return Err(PlanError::Structure(format!(
            "the plan claims {security_bits} bits of security; one that is not marked insecure has 128-bit security; compile the model again"
        )));
    }
    Limits::check("the number of tensors", spec.tensors.len() as u64, limits.tensors)?;
    Limits::check("the number of stages", spec.stages.len() as u64, limits.stages)?;
    let (mut ops, mut tiles) = (0, 0);
    for stage in &spec.stages {
        match &stage.kind {
            StageKind::Client { ops: given } => ops += given.len() as u64,
            StageKind::Linear(s) => tiles += s.batch.as_ref().map_or(0, |b| b.tiles.len() as u64),
            _ => {}
        }
    }
    Limits::check("the number of client operations", ops, limits.ops)?;
    Limits::check("the number of tiles", tiles, limits.tiles)
}

/// Checks all tensors.
///
/// # Errors
/// [`PlanError`] naming the tensor.
pub(crate) fn tensors(spec: &PlanSpec, limits: &Limits) -> Result<Vec<Tensor>, PlanError> {
    let one = |(position, t): (usize, &TensorSpec)| {
        if usize::try_from(t.id).ok() != Some(position) {
            let detail = format!("its id is {}, its place in the list {position}; ids are places", t.id);
            return Err(PlanError::Tensor { id: t.id, name: t.name.clone(), detail });
        }
        tensor(t, (spec.trust, spec.engine), limits)
    };
    spec.tensors.iter().enumerate().map(one).collect()
}

fn tensor(spec: &TensorSpec, plan: (Trust, Engine), limits: &Limits) -> Result<Tensor, PlanError> {
    let fail = |detail: String| PlanError::Tensor { id: spec.id, name: spec.name.clone(), detail };
    Limits::check(&format!("the rank of tensor '{}'", spec.name), spec.shape.len() as u64, limits.rank)?;
    if spec.shape.len() > MAX_RANK {
        return Err(fail(format!("more than {MAX_RANK} axes")));
    }
    let count = elements(&spec.shape).ok_or_else(|| fail("its size overflows".into()))?;
    Limits::check(&format!("the size of tensor '{}'", spec.name), count as u64, limits.elements)?;
    if count == 0 {
        return Err(fail(format!("shape {:?} is empty", spec.shape)));
    }
    let kind = kind(spec, plan).map_err(fail)?;
    Ok(Tensor { id: spec.id, name: spec.name.clone(), shape: spec.shape.clone(), elements: count, kind })
}

/// The fields that a tensor states, by name.
fn stated(spec: &TensorSpec) -> Vec<&'static str> {
    let TensorSpec {
        id: _,
        name: _,
        shape: _,
        kind: _,
        scale,
        bound,
        frac_bits,
        reach_bits,
        level,
        parts,
        range,
        noise_bits,
    } = spec;
    let fields = [
        ("scale", scale.is_some()),
        ("bound", bound.is_some()),
        ("frac_bits", frac_bits.is_some()),
        ("reach_bits", reach_bits.is_some()),
        ("level", level.is_some()),
        ("parts", parts.is_some()),
        ("range", range.is_some()),
        ("noise_bits", noise_bits.is_some()),
    ];
    fields.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect()
}

/// The fields that a kind of tensor must have, and those that it may have.
fn fields(kind: KindSpec, engine: Engine) -> (&'static [&'static str], &'static [&'static str]) {
    match (kind, engine) {
        (KindSpec::Real, _) => (&[], &[]),
        (KindSpec::Fixed, _) => (&["scale", "bound"], &[]),
        (KindSpec::Shared, _) => (&["frac_bits", "reach_bits"], &["bound"]),
        // Of a packed plan these follow from its one stage.
        (KindSpec::Cipher, Engine::Packed) => (&[], &["bound", "range", "noise_bits"]),
        (KindSpec::Cipher, Engine::Batch) => {
            (&["level", "parts", "scale"], &["bound", "range", "noise_bits"])
        }
    }
}

fn kind(spec: &TensorSpec, (trust, engine): (Trust, Engine)) -> Result<TensorKind, String> {
    let name = spec.kind.name();
    if !trust.grammar().tensors.contains(&spec.kind) {
        return Err(format!("{} plans have no {name} tensors", trust.name()));
    }
    let (given, (must, may)) = (stated(spec), fields(spec.kind, engine));
    if let Some(field) = given.iter().find(|f| !must.contains(f) && !may.contains(f)) {
        return Err(format!("a {name} tensor in engine {engine:?} has no '{field}'"));
    }
    if let Some(field) = must.iter().find(|f| !given.contains(f)) {
        let all = must.join(", ");
        return Err(format!("a {name} tensor in engine {engine:?} has {all}; '{field}' is missing"));
    }
    if spec.noise_bits.is_some_and(|b| b > MAX_NOISE_BITS) {
        return Err(format!("noise_bits is above {MAX_NOISE_BITS}"));
    }
    let whole = spec.integer_bound();
    match spec.kind {
        KindSpec::Real | KindSpec::Cipher => Ok(TensorKind::Real),
        KindSpec::Fixed => {
            let scale = spec.scale.unwrap_or(0.0);
            let bound = whole.ok_or("its bound is no whole number from 0 on")?;
            fixed(scale, bound)
        }
        KindSpec::Shared => {
            let (f, k) = (spec.frac_bits.unwrap_or(0), spec.reach_bits.unwrap_or(0));
            if !(-MAX_FRACTION..=MAX_FRACTION).contains(&f) {
                return Err(format!("frac_bits {f} is not from -{MAX_FRACTION} to {MAX_FRACTION}"));
            }
            if !(1..64).contains(&k) {
                return Err(format!(
                    "reach_bits {k} is not from 1 to 63, the widest ring of shares less one"
                ));
            }
            if spec.bound.is_some() && whole.is_none() {
                return Err("its bound is no whole number from 0 on".into());
            }
            fixed(f64::from(-f).exp2(), largest(k))
        }
    }
}

fn fixed(scale: f64, bound: u64) -> Result<TensorKind, String> {
    let usable = scale > 0.0 && (1.0 / scale).is_finite() && (bound as f64 * scale).is_finite();
    if !usable {
        return Err(format!("scale {scale} is not a positive number of usable size"));
    }
    if bound > MAX_BOUND {
        return Err(format!("bound {bound} is above 2^62"));
    }
    Ok(TensorKind::Fixed { scale, bound })
}

/// Largest absolute value that a reach of k bits tells of: 2^k - 1.
pub(crate) fn largest(reach: u32) -> u64 {
    u64::MAX.checked_shr(64u32.saturating_sub(reach)).unwrap_or(0)
}
