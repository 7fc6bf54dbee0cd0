//! From the plan as written to the checked plan.

use super::file::{self, TensorBytes};
use super::spec::{Engine, KindSpec, PlanSpec, PortSpec, StageSpec, TensorSpec, Trust, VERSION};
use super::{
    coefficients, elements, linear, ops, product, ClientStage, CoefficientLayer, Limits, MaskMode, Need, Op,
    Plan, PlanError, PlanOptions, PlanParts, Port, Stage, Tensor, TensorKind,
};
use crate::program;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Largest bound of a fixed tensor: sums of two stay within an `i64`.
const MAX_BOUND: u64 = 1 << 62;

/// Most axes that operations are written for.
const MAX_RANK: usize = 16;

pub(super) fn check(
    spec: PlanSpec,
    json: &str,
    files: &BTreeMap<String, TensorBytes<'_>>,
    options: &PlanOptions,
) -> Result<Plan, PlanError> {
    check_header(&spec, options)?;
    let tensors =
        spec.tensors.iter().map(|t| check_tensor(t, &options.limits)).collect::<Result<Vec<_>, _>>()?;
    let mut checker = Checker::new(&spec, &tensors, files, options)?;
    let inputs = checker.inputs()?;
    let mut stages = Vec::with_capacity(spec.stages.len());
    for stage in &spec.stages {
        stages.push(checker.stage(stage)?);
    }
    let outputs = checker.outputs()?;
    let weights = checker.finish(&stages)?;
    let programs = program::compile(&tensors, &stages, &outputs);
    let client_memory = program::peak_bytes(&tensors, &stages, &programs, super::block_images(&spec));
    need(&stages, &tensors, client_memory).check(&options.limits)?;
    Ok(Plan(Arc::new(PlanParts {
        spec,
        json: json.to_owned(),
        tensors,
        stages,
        inputs,
        outputs,
        programs,
        weights,
        client_memory,
    })))
}

/// What a client holds for a full block: tensors, mask sums of the session, and messages on their way.
fn need(stages: &[Stage], tensors: &[Tensor], client_memory: u64) -> Need {
    let mut need = Need::default();
    need.add("the tensors of one block", client_memory);
    let linear = || stages.iter().filter_map(Stage::linear);
    for s in linear().filter(|s| s.mask == MaskMode::Shared) {
        need.add(&format!("the mask sums of stage '{}'", s.name), s.mask_bytes());
    }
    need.add_largest("the messages", linear().map(|s| (s.name.as_str(), s.message_bytes())));
    let packed = || stages.iter().filter_map(Stage::coefficients);
    for s in packed() {
        need.add(&format!("the mask sums of stage '{}'", s.name), s.stage.kept_bytes());
    }
    let images = super::IMAGES_TOGETHER;
    let keys = |s: &CoefficientLayer| product(&[8, s.tiles(), s.stage.layout().degree(), images]);
    need.add_largest("the keys", packed().map(|s| (s.name.as_str(), keys(s))));
    let results = |s: &CoefficientLayer| product(&[8, tensors[s.output].elements, images]);
    let held = |s: &CoefficientLayer| results(s).saturating_add(s.message_bytes());
    need.add_largest("the messages and results", packed().map(|s| (s.name.as_str(), held(s))));
    need
}

fn check_header(spec: &PlanSpec, options: &PlanOptions) -> Result<(), PlanError> {
    let limits = &options.limits;
    if spec.version != VERSION {
        return Err(PlanError::Version { found: spec.version.to_string() });
    }
    if spec.trust != Trust::ClientAided {
        return Err(PlanError::Unsupported(format!("trust model {:?}", spec.trust)));
    }
    let n = spec.params.ring_degree;
    if !(8..=1 << 17).contains(&n) || !n.is_power_of_two() {
        return Err(PlanError::Structure(format!("ring degree {n} is not a power of two from 8 to 131072")));
    }
    if spec.params.insecure && !options.allow_insecure {
        return Err(PlanError::Insecure(format!("{} bits claimed", spec.params.security_bits)));
    }
    if !spec.params.insecure && spec.params.security_bits != 128 {
        return Err(PlanError::Structure(format!(
            "security of {} bits is not in the table",
            spec.params.security_bits
        )));
    }
    Limits::check("the number of tensors", spec.tensors.len() as u64, limits.tensors)?;
    Limits::check("the number of stages", spec.stages.len() as u64, limits.stages)?;
    let (mut op_count, mut tile_count) = (0, 0);
    for stage in &spec.stages {
        match stage {
            StageSpec::Client { ops, .. } => op_count += ops.len() as u64,
            StageSpec::Linear(s) => tile_count += s.tiles.len() as u64,
            StageSpec::Coefficients(_) => {}
        }
    }
    Limits::check("the number of client operations", op_count, limits.ops)?;
    Limits::check("the number of tiles", tile_count, limits.tiles)
}

pub(crate) fn check_tensor(spec: &TensorSpec, limits: &Limits) -> Result<Tensor, PlanError> {
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
    let kind = match (spec.kind, spec.scale, spec.bound) {
        (KindSpec::Real, None, None) => TensorKind::Real,
        (KindSpec::Real, ..) => return Err(fail("a real tensor has neither scale nor bound".into())),
        (KindSpec::Fixed, Some(scale), Some(bound)) => {
            let usable = scale > 0.0 && (1.0 / scale).is_finite() && (bound as f64 * scale).is_finite();
            if !usable {
                return Err(fail(format!("scale {scale} is not a positive number of usable size")));
            }
            if bound > MAX_BOUND {
                return Err(fail(format!("bound {bound} is above 2^62")));
            }
            TensorKind::Fixed { scale, bound }
        }
        (KindSpec::Fixed, ..) => return Err(fail("a fixed tensor needs scale and bound".into())),
    };
    Ok(Tensor { id: spec.id, name: spec.name.clone(), shape: spec.shape.clone(), elements: count, kind })
}

struct Checker<'a> {
    spec: &'a PlanSpec,
    tensors: &'a [Tensor],
    files: &'a BTreeMap<String, TensorBytes<'a>>,
    options: &'a PlanOptions,
    index: HashMap<u32, usize>,
    defined: Vec<bool>,
    used_files: BTreeSet<String>,
    names: BTreeSet<String>,
    /// Steps that layouts take, and tiles of coefficient-packed stages.
    steps: u64,
    tiles: u64,
}

impl<'a> Checker<'a> {
    fn new(
        spec: &'a PlanSpec,
        tensors: &'a [Tensor],
        files: &'a BTreeMap<String, TensorBytes<'a>>,
        options: &'a PlanOptions,
    ) -> Result<Self, PlanError> {
        let mut index = HashMap::with_capacity(tensors.len());
        for (i, t) in tensors.iter().enumerate() {
            if index.insert(t.id, i).is_some() {
                return Err(PlanError::Tensor {
                    id: t.id,
                    name: t.name.clone(),
                    detail: "the id is taken".into(),
                });
            }
        }
        let defined = vec![false; tensors.len()];
        let (used_files, names) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { spec, tensors, files, options, index, defined, used_files, names, steps: 0, tiles: 0 })
    }

    fn find(&self, place: &str, id: u32) -> Result<usize, PlanError> {
        self.index.get(&id).copied().ok_or_else(|| PlanError::DanglingTensor { place: place.to_owned(), id })
    }

    fn read(&self, place: &str, id: u32) -> Result<usize, PlanError> {
        let i = self.find(place, id)?;
        if !self.defined[i] {
            return Err(PlanError::UsedBeforeDefined {
                place: place.to_owned(),
                tensor: self.tensors[i].name.clone(),
            });
        }
        Ok(i)
    }

    fn define(&mut self, place: &str, id: u32) -> Result<usize, PlanError> {
        let i = self.find(place, id)?;
        if std::mem::replace(&mut self.defined[i], true) {
            return Err(PlanError::DefinedTwice {
                place: place.to_owned(),
                tensor: self.tensors[i].name.clone(),
            });
        }
        Ok(i)
    }

    fn port(
        &mut self,
        kind: &str,
        port: &PortSpec,
        seen: &mut BTreeSet<String>,
    ) -> Result<String, PlanError> {
        if !seen.insert(port.name.clone()) {
            return Err(PlanError::Structure(format!("two {kind}s are called '{}'", port.name)));
        }
        Ok(format!("{kind} '{}'", port.name))
    }

    fn inputs(&mut self) -> Result<Vec<Port>, PlanError> {
        let mut seen = BTreeSet::new();
        let mut ports = Vec::new();
        for port in &self.spec.inputs {
            let place = self.port("input", port, &mut seen)?;
            let tensor = self.define(&place, port.tensor)?;
            if self.tensors[tensor].kind != TensorKind::Real {
                return Err(PlanError::Structure(format!("{place} must be a real tensor")));
            }
            ports.push(Port { name: port.name.clone(), tensor });
        }
        if ports.is_empty() {
            return Err(PlanError::Structure("the plan has no inputs".into()));
        }
        Ok(ports)
    }

    fn outputs(&mut self) -> Result<Vec<Port>, PlanError> {
        let mut seen = BTreeSet::new();
        let mut ports = Vec::new();
        for port in &self.spec.outputs {
            let place = self.port("output", port, &mut seen)?;
            let tensor = self.read(&place, port.tensor)?;
            ports.push(Port { name: port.name.clone(), tensor });
        }
        if ports.is_empty() {
            return Err(PlanError::Structure("the plan has no outputs".into()));
        }
        Ok(ports)
    }

    fn stage(&mut self, stage: &StageSpec) -> Result<Stage, PlanError> {
        let name = match stage {
            StageSpec::Client { name, .. } => name,
            StageSpec::Linear(s) => &s.name,
            StageSpec::Coefficients(s) => &s.name,
        };
        if !self.names.insert(name.clone()) {
            return Err(PlanError::Structure(format!("two stages are called '{name}'")));
        }
        match stage {
            StageSpec::Client { name, ops } => {
                let ops =
                    ops.iter().enumerate().map(|(i, op)| self.op(name, i, op)).collect::<Result<_, _>>()?;
                Ok(Stage::Client(ClientStage { name: name.clone(), ops }))
            }
            StageSpec::Linear(s) => {
                let place = format!("stage '{}'", s.name);
                let input = self.read(&place, s.input)?;
                let output = self.define(&place, s.output)?;
                let mut context = linear::Context {
                    spec: s,
                    input: (input, &self.tensors[input]),
                    output: (output, &self.tensors[output]),
                    ring_degree: self.spec.params.ring_degree,
                    insecure: self.spec.params.insecure,
                    weights: None,
                    limits: &self.options.limits,
                };
                context.check_shape()?;
                context.weights = match (&s.weights, &s.bias) {
                    (Some(w), Some(b)) => {
                        self.used_files.extend([w.clone(), b.clone()]);
                        Some(file::weights((w, b), &s.geometry.weight_shape(), self.files)?)
                    }
                    (None, None) => None,
                    _ => {
                        return Err(PlanError::Structure(format!("{place} has only one of weights and bias")))
                    }
                };
                self.engine(&s.name, Engine::Batch)?;
                Ok(Stage::Linear(Box::new(context.check()?)))
            }
            StageSpec::Coefficients(s) => {
                let place = format!("stage '{}'", s.name);
                let input = self.read(&place, s.input)?;
                let output = self.define(&place, s.output)?;
                let mut context = coefficients::Context {
                    spec: s,
                    input: (input, &self.tensors[input]),
                    output: (output, &self.tensors[output]),
                    ring_degree: self.spec.params.ring_degree,
                    limits: &self.options.limits,
                    steps: &mut self.steps,
                };
                context.check_shape()?;
                let weights = match (&s.weights, &s.bias) {
                    (Some(w), Some(b)) => {
                        self.used_files.extend([w.clone(), b.clone()]);
                        Some(file::weights((w, b), &s.geometry.weight_shape(), self.files)?)
                    }
                    (None, None) => None,
                    _ => {
                        return Err(PlanError::Structure(format!("{place} has only one of weights and bias")))
                    }
                };
                let layer = context.check(weights)?;
                self.engine(&s.name, Engine::Packed)?;
                self.tiles = self.tiles.saturating_add(layer.tiles() as u64);
                Limits::check("the number of tiles", self.tiles, self.options.limits.tiles)?;
                Ok(Stage::Coefficients(Box::new(layer)))
            }
        }
    }

    /// That a linear stage is of the plan's engine.
    fn engine(&self, stage: &str, engine: Engine) -> Result<(), PlanError> {
        if self.spec.engine == engine {
            return Ok(());
        }
        Err(PlanError::Unsupported(format!("stage '{stage}' of another engine than the plan's")))
    }

    fn op(&mut self, stage: &str, index: usize, op: &super::spec::OpSpec) -> Result<Op, PlanError> {
        let place = format!("operation {index} of stage '{stage}'");
        let inputs = op.inputs.iter().map(|&id| self.read(&place, id)).collect::<Result<Vec<_>, _>>()?;
        let output = self.define(&place, op.output)?;
        let operands: Vec<&Tensor> = inputs.iter().map(|&i| &self.tensors[i]).collect();
        ops::check(&op.kind, &operands, &self.tensors[output]).map_err(|detail| PlanError::Op {
            stage: stage.to_owned(),
            index,
            op: op.kind.name(),
            detail,
        })?;
        Ok(Op { kind: op.kind.clone(), inputs, output })
    }

    /// Whether the plan has weights; refuses unused tensors and half-public plans.
    fn finish(self, stages: &[Stage]) -> Result<bool, PlanError> {
        if let Some(i) = self.defined.iter().position(|d| !d) {
            let t = &self.tensors[i];
            return Err(PlanError::Tensor {
                id: t.id,
                name: t.name.clone(),
                detail: "no stage computes it".into(),
            });
        }
        if let Some(name) = self.files.keys().find(|n| !self.used_files.contains(*n)) {
            return Err(PlanError::Weights { tensor: name.clone(), detail: "no stage uses it".into() });
        }
        let linear: Vec<_> = stages.iter().filter(|s| s.encrypted().is_some()).collect();
        let with = linear.iter().filter(|s| s.weights().is_some()).count();
        if with != 0 && with != linear.len() {
            return Err(PlanError::Structure(format!(
                "{with} of {} linear stages have weights",
                linear.len()
            )));
        }
        Ok(with == linear.len())
    }
}
