//! From the two-party plan as written to the checked plan.
//!
//! What local and linear stages compute must fit the bounds of their results. Relu, max_pool, leaky_relu and truncate may
//! state a smaller bound than their operand's: that is where a planner's knowledge of activations enters.

use super::check_header::{check_header, client_spec, tensor};
use super::check_local::{moves, sum_pool, window};
use super::flow::{exact_before_opening, liveness};
use super::memory::{self, Steps};
use super::methods::{self, Wanted};
use super::nonlinear;
use super::plan::{Kind, Linear, Parts, Stage, TwoPartyPlan};
use super::reach;
use super::spec::{KindSpec, LinearSpec, PlanSpec, Protocol, Reveal, Sign, StageSpec, WindowSpec};
use crate::plan::spec::{OpSpec, PortSpec};
use crate::plan::{
    self, check_op, ClientStage, GeometrySpec, Limits, Op, Plan, PlanError, PlanOptions, Port, Tensor,
    TensorBytes, TensorKind,
};
use hushnet_mpc::{PoolShape, Range, Ring, Rounding, Slope};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub(super) fn check(
    spec: PlanSpec,
    json: &str,
    files: &BTreeMap<String, TensorBytes<'_>>,
    options: &PlanOptions,
) -> Result<TwoPartyPlan, PlanError> {
    let ring = check_header(&spec, &options.limits)?;
    let tensors =
        spec.tensors.iter().map(|t| tensor(t, ring, &options.limits)).collect::<Result<Vec<_>, _>>()?;
    let mut checker = Checker::new(&spec, &tensors, files, (ring, &options.limits))?;
    let inputs = checker.inputs()?;
    let mut stages = Vec::with_capacity(spec.stages.len());
    for stage in &spec.stages {
        stages.push(checker.stage(stage)?);
    }
    let outputs = checker.outputs()?;
    let (client_stages, weights) = checker.finish(&stages)?;
    exact_before_opening(&mut stages)?;
    let peak_elements = liveness(&mut stages, &tensors, &spec)?;
    let mut kept = outputs;
    kept.extend(
        stages
            .iter()
            .filter(|s| matches!(s.kind, Kind::Share))
            .flat_map(|s| s.inputs.iter().map(|&tensor| Port { name: tensors[tensor].name.clone(), tensor })),
    );
    let client = Plan::client_only(client_spec(&spec), tensors.clone(), client_stages, inputs, kept);
    memory::of_plan((&stages, &tensors, ring), &client, peak_elements, 1).check(&options.limits)?;
    let frac_bits = spec.tensors.iter().map(|t| t.frac_bits).collect();
    Ok(TwoPartyPlan(Arc::new(Parts {
        spec,
        json: json.to_owned(),
        ring,
        tensors,
        frac_bits,
        stages,
        client,
        weights,
        peak_elements,
    })))
}

/// A shared tensor as the checks see it.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub tensor: &'a Tensor,
    pub non_negative: bool,
    /// Largest absolute value; a public part has none.
    pub bound: Option<u64>,
    /// k: all values are below 2^k in absolute value, units of errors included.
    pub reach: u32,
    pub f: i32,
}

impl Shared<'_> {
    pub(super) fn exact(&self) -> Option<u128> {
        self.bound.map(u128::from)
    }
}

struct Checker<'a> {
    spec: &'a PlanSpec,
    tensors: &'a [Tensor],
    files: &'a BTreeMap<String, TensorBytes<'a>>,
    ring: Ring,
    limits: &'a Limits,
    steps: Steps,
    index: HashMap<u32, usize>,
    defined: Vec<bool>,
    /// Shared tensors that follow from relu or clip so that no value is negative.
    non_negative: Vec<bool>,
    used_files: BTreeSet<String>,
    names: BTreeSet<String>,
    client: Vec<ClientStage>,
}

impl<'a> Checker<'a> {
    fn new(
        spec: &'a PlanSpec,
        tensors: &'a [Tensor],
        files: &'a BTreeMap<String, TensorBytes<'a>>,
        (ring, limits): (Ring, &'a Limits),
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
        let (defined, non_negative) = (vec![false; tensors.len()], vec![false; tensors.len()]);
        let (used_files, names, client) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        let steps = Steps::new();
        Ok(Self {
            spec,
            tensors,
            files,
            ring,
            limits,
            steps,
            index,
            defined,
            non_negative,
            used_files,
            names,
            client,
        })
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

    fn is_shared(&self, i: usize) -> bool {
        self.spec.tensors[i].kind == KindSpec::Shared
    }

    fn ports(&mut self, kind: &str, ports: &[PortSpec], input: bool) -> Result<Vec<Port>, PlanError> {
        let mut seen = BTreeSet::new();
        let mut out = Vec::new();
        for port in ports {
            let place = format!("{kind} '{}'", port.name);
            if !seen.insert(&port.name) {
                return Err(PlanError::Structure(format!("two {kind}s are called '{}'", port.name)));
            }
            let tensor =
                if input { self.define(&place, port.tensor)? } else { self.read(&place, port.tensor)? };
            if self.is_shared(tensor) || input && self.tensors[tensor].kind != TensorKind::Real {
                return Err(PlanError::Structure(format!(
                    "{place} must be a tensor of the client's, inputs real"
                )));
            }
            out.push(Port { name: port.name.clone(), tensor });
        }
        if out.is_empty() {
            return Err(PlanError::Structure(format!("the plan has no {kind}s")));
        }
        Ok(out)
    }

    fn inputs(&mut self) -> Result<Vec<Port>, PlanError> {
        self.ports("input", &self.spec.inputs, true)
    }

    fn outputs(&mut self) -> Result<Vec<Port>, PlanError> {
        self.ports("output", &self.spec.outputs, false)
    }

    fn stage(&mut self, spec: &StageSpec) -> Result<Stage, PlanError> {
        let name = spec.name().to_owned();
        if !self.names.insert(name.clone()) {
            return Err(PlanError::Structure(format!("two stages are called '{name}'")));
        }
        let place = format!("stage '{name}'");
        let (ids, out): (Vec<u32>, u32) = match spec {
            StageSpec::Client { ops, .. } => {
                let ops =
                    ops.iter().enumerate().map(|(i, op)| self.op(&name, i, op)).collect::<Result<_, _>>()?;
                self.client.push(ClientStage { name: name.clone(), ops });
                let kind = Kind::Client(self.client.len() - 1);
                return Ok(Stage {
                    name,
                    label: spec.kind(),
                    kind,
                    protocol: Protocol::Ot,
                    compared: self.ring,
                    inputs: Vec::new(),
                    output: None,
                    free: Vec::new(),
                });
            }
            StageSpec::Share { input, output, .. }
            | StageSpec::Relu { input, output, .. }
            | StageSpec::LeakyRelu { input, output, .. }
            | StageSpec::Clip { input, output, .. }
            | StageSpec::Truncate { input, output, .. }
            | StageSpec::Scale { input, output, .. }
            | StageSpec::Reveal { input, output, .. } => (vec![*input], *output),
            StageSpec::Linear(s) => (vec![s.input], s.output),
            StageSpec::MaxPool(s) | StageSpec::SumPool(s) => (vec![s.input], s.output),
            StageSpec::Add { inputs, output, .. } => (inputs.to_vec(), *output),
            StageSpec::Reshape { inputs, output, .. }
            | StageSpec::Transpose { inputs, output, .. }
            | StageSpec::Concat { inputs, output, .. }
            | StageSpec::Slice { inputs, output, .. }
            | StageSpec::Pad { inputs, output, .. } => (inputs.clone(), *output),
        };
        let inputs = ids.iter().map(|&id| self.read(&place, id)).collect::<Result<Vec<_>, _>>()?;
        let output = self.define(&place, out)?;
        let kind = self.kind(spec, &inputs, output).map_err(|e| match e {
            Fault::Detail(detail) => PlanError::Linear { stage: name.clone(), detail },
            Fault::Plan(e) => e,
        })?;
        self.non_negative[output] = match &kind {
            Kind::Relu => true,
            Kind::Clip { from_zero, .. } => *from_zero,
            Kind::Truncate { .. }
            | Kind::MaxPool(_)
            | Kind::SumPool(_)
            | Kind::Scale(_)
            | Kind::Add
            | Kind::Move(_) => inputs.iter().all(|&i| self.non_negative[i]),
            _ => false,
        };
        let (label, protocol) = (spec.kind(), spec.protocol());
        if protocol == Protocol::Garbled && !nonlinear::garbles(&kind) {
            let detail = "no garbled circuit computes this stage: leave 'protocol' out".into();
            return Err(PlanError::Linear { stage: name, detail });
        }
        let compared = self
            .compared(&kind, &inputs)
            .map_err(|detail| PlanError::Linear { stage: name.clone(), detail })?;
        Ok(Stage { name, label, kind, protocol, compared, inputs, output: Some(output), free: Vec::new() })
    }

    fn op(&mut self, stage: &str, index: usize, op: &OpSpec) -> Result<Op, PlanError> {
        let place = format!("operation {index} of stage '{stage}'");
        let inputs = op.inputs.iter().map(|&id| self.read(&place, id)).collect::<Result<Vec<_>, _>>()?;
        let output = self.define(&place, op.output)?;
        let fail = |detail| PlanError::Op { stage: stage.to_owned(), index, op: op.kind.name(), detail };
        if let Some(&t) = inputs.iter().chain([&output]).find(|&&t| self.is_shared(t)) {
            return Err(fail(format!(
                "tensor '{}' is shared; the client has only half of it",
                self.tensors[t].name
            )));
        }
        let operands: Vec<&Tensor> = inputs.iter().map(|&i| &self.tensors[i]).collect();
        check_op(&op.kind, &operands, &self.tensors[output]).map_err(fail)?;
        Ok(Op { kind: op.kind.clone(), inputs, output })
    }

    fn shared(&self, index: usize) -> Result<Shared<'a>, Fault> {
        let (tensor, spec) = (&self.tensors[index], &self.spec.tensors[index]);
        match (spec.frac_bits, spec.reach_bits) {
            (Some(f), Some(reach)) => {
                Ok(Shared { tensor, non_negative: self.non_negative[index], bound: spec.bound, reach, f })
            }
            _ => fault(format!("tensor '{}' must be shared", tensor.name)),
        }
    }

    fn fixed(&self, index: usize) -> Result<(&'a Tensor, f64, u64), Fault> {
        let tensor = &self.tensors[index];
        match tensor.kind {
            TensorKind::Fixed { scale, bound } if !self.is_shared(index) => Ok((tensor, scale, bound)),
            _ => fault(format!("tensor '{}' must be fixed", tensor.name)),
        }
    }

    fn kind(&mut self, spec: &StageSpec, inputs: &[usize], output: usize) -> Result<Kind, Fault> {
        match spec {
            StageSpec::Share { .. } => {
                let ((from, scale, bound), to) = (self.fixed(inputs[0])?, self.shared(output)?);
                same_shape(from, to.tensor)?;
                opened(scale, to.f)?;
                holds(&to, Some(u128::from(bound)))?;
                reach::holds(bound, to.reach).or_else(fault)?;
                return Ok(Kind::Share);
            }
            StageSpec::Reveal { what, .. } => {
                return self.reveal(*what, self.shared(inputs[0])?, self.fixed(output)?)
            }
            _ => {}
        }
        let from = inputs.iter().map(|&i| self.shared(i)).collect::<Result<Vec<_>, _>>()?;
        let to = self.shared(output)?;
        if let StageSpec::Linear(s) = spec {
            return Ok(Kind::Linear(Box::new(self.linear(s, &from[0], &to)?)));
        }
        if let Some(kind) = moves(spec, &from, &to)? {
            return Ok(kind);
        }
        let (x, bound) = (from[0], from[0].exact());
        match spec {
            StageSpec::MaxPool(w) => {
                same_f(&x, &to)?;
                return self.max_pool(w, &x, &to);
            }
            StageSpec::SumPool(w) => return sum_pool(w, &x, &to),
            _ => same_shape(x.tensor, to.tensor)?,
        }
        match spec {
            StageSpec::Relu { .. } => {
                same_f(&x, &to)?;
                Ok(Kind::Relu)
            }
            StageSpec::LeakyRelu { numerator, log_denominator, .. } => {
                same_f(&x, &to)?;
                let slope = Slope::new(*numerator, *log_denominator).or_else(|e| fault(e.to_string()))?;
                let range = self.range(x.reach.saturating_add(*log_denominator))?;
                self.shift(*log_denominator, range)?;
                Ok(Kind::LeakyRelu { slope, range })
            }
            StageSpec::Clip { low, high, reach_bits, .. } => {
                same_f(&x, &to)?;
                let ends = reach::ends(*low, *high, *reach_bits, x.bound).or_else(fault)?;
                holds(&to, ends.map(|(low, high)| low.unsigned_abs().max(high.unsigned_abs()).into()))?;
                Ok(Kind::Clip { from_zero: *low == Some(0), ends, reach: *reach_bits })
            }
            StageSpec::Truncate { bits, sign, exact, .. } => {
                if to.f > x.f || i64::from(to.f) < i64::from(x.f) - i64::from(*bits) {
                    return fault(format!("{} fraction bits cannot become {} by dropping {bits}", x.f, to.f));
                }
                let range = match sign {
                    Sign::NonNegative if x.non_negative => Range::NonNegative,
                    Sign::NonNegative => {
                        return fault(format!("nothing says that tensor '{}' is not negative", x.tensor.name))
                    }
                    Sign::Any => self.range(x.reach)?,
                };
                self.shift(*bits, range)?;
                let rounding = if *exact { Rounding::Floor } else { Rounding::Faithful };
                Ok(Kind::Truncate { bits: *bits, range, rounding })
            }
            StageSpec::Scale { factor, .. } => {
                if *factor == 0 || to.f < x.f {
                    return fault(format!("factor {factor} takes {} fraction bits to {}", x.f, to.f));
                }
                holds(&to, bound.map(|b| b * u128::from(*factor)))?;
                Ok(Kind::Scale(*factor))
            }
            StageSpec::Add { .. } => {
                let y = from[1];
                same_shape(y.tensor, to.tensor)?;
                same_f(&x, &to)?;
                same_f(&y, &to)?;
                holds(&to, bound.zip(y.exact()).map(|(a, b)| a + b))?;
                Ok(Kind::Add)
            }
            _ => fault("no such stage".into()),
        }
    }

    /// The narrowest ring that holds what a stage compares.
    fn compared(&self, kind: &Kind, inputs: &[usize]) -> Result<Ring, String> {
        let known = inputs.first().and_then(|&i| self.spec.tensors[i].reach_bits);
        known.map_or(Ok(self.ring), |k| reach::compared(kind, k, self.ring))
    }

    /// The range that truncation may assume of values below 2^`reach`.
    fn range(&self, reach: u32) -> Result<Range, Fault> {
        reach::range(reach, self.ring).or_else(fault)
    }

    fn shift(&self, bits: u32, range: Range) -> Result<(), Fault> {
        let limit = self.ring.bits() - if range == Range::Any { 1 } else { 2 };
        if bits == 0 || bits > limit {
            return fault(format!(
                "{bits} bits cannot be dropped from shares of {} bits (1 to {limit})",
                self.ring.bits()
            ));
        }
        Ok(())
    }

    fn reveal(
        &self,
        what: Reveal,
        x: Shared<'_>,
        (to, scale, bound): (&Tensor, f64, u64),
    ) -> Result<Kind, Fault> {
        if what != self.spec.reveal {
            return fault(format!("reveals {what:?}, but the plan says {:?}", self.spec.reveal));
        }
        match what {
            Reveal::Output => {
                same_shape(x.tensor, to)?;
                opened(scale, x.f)?;
                if bound < reach::largest(x.reach) {
                    return fault(format!("values below 2^{} open into a tensor of bound {bound}", x.reach));
                }
            }
            Reveal::Argmax => {
                if to.elements != 1 || scale != 1.0 || (bound as u128) + 1 < x.tensor.elements as u128 {
                    return fault(format!(
                        "an index of {} classes needs one element of scale 1 that holds it",
                        x.tensor.elements
                    ));
                }
            }
        }
        Ok(Kind::Reveal(what))
    }

    fn linear(&mut self, spec: &LinearSpec, x: &Shared<'_>, to: &Shared<'_>) -> Result<Linear, Fault> {
        let method = methods::find(&spec.method).ok_or_else(|| {
            PlanError::Unsupported(format!("method '{}' of stage '{}'", spec.method, spec.name))
        })?;
        if to.f < x.f {
            return fault(format!("{} fraction bits cannot become {} by integer weights", x.f, to.f));
        }
        let fits = match &spec.geometry {
            GeometrySpec::Dense { inputs, outputs } => {
                *inputs == x.tensor.elements && *outputs == to.tensor.elements
            }
            GeometrySpec::Conv2d { input, output, .. } => {
                x.tensor.shape == *input && to.tensor.shape == *output
            }
        };
        if !fits {
            return fault(format!(
                "the geometry does not fit tensors {:?} -> {:?}",
                x.tensor.shape, to.tensor.shape
            ));
        }
        let geometry = spec.geometry.checked();
        let geometry = geometry.map_err(|source| PlanError::Tiles { stage: spec.name.clone(), source })?;
        self.steps.add(&spec.name, &geometry, method, self.limits)?;
        let l2 = spec.weight_l2;
        if !(l2.is_finite() && l2 > 0.0 && l2.log2().fract() == 0.0) {
            return fault(format!("weight_l2 {l2} is not a power of two"));
        }
        let p = &self.spec.params;
        let wanted = Wanted {
            name: method.name,
            geometry: &geometry,
            ring_degree: p.ring_degree,
            ring_bits: p.ring_bits,
            weight_l2: l2,
            reach: to.reach,
            bound: to.bound,
        };
        method.check(&wanted).or_else(fault)?;
        let weights = match (&spec.weights, &spec.bias) {
            (Some(w), Some(b)) => {
                self.used_files.extend([w.clone(), b.clone()]);
                Some(plan::weights((w, b), &spec.geometry.weight_shape(), self.files)?)
            }
            (None, None) => None,
            _ => return fault("only one of weights and bias is given".into()),
        };
        if let (Some(w), Some(bound), Some(planned)) = (&weights, x.bound, to.bound) {
            let derived = w.output_bound(bound);
            if derived > u128::from(planned) {
                let (stage, tensor) = (spec.name.clone(), to.tensor.name.clone());
                return Err(PlanError::Bound { stage, tensor, derived, planned }.into());
            }
        }
        Ok(Linear { method, geometry: spec.geometry.clone(), weight_l2: l2, weights })
    }

    fn max_pool(&self, w: &WindowSpec, x: &Shared<'_>, to: &Shared<'_>) -> Result<Kind, Fault> {
        let window = window(w, x, to)?;
        let shape = PoolShape {
            channels: window.input[0],
            height: window.input[1],
            width: window.input[2],
            kernel: (w.kernel[0], w.kernel[1]),
            stride: (w.stride[0], w.stride[1]),
            padding: [(w.pads[0], w.pads[2]), (w.pads[1], w.pads[3])],
        };
        match shape.output() {
            Ok(out) if out == (window.output[0], window.output[1]) => Ok(Kind::MaxPool(shape)),
            Ok(out) => fault(format!("the windows give {out:?}, not {:?}", window.output)),
            Err(e) => fault(e.to_string()),
        }
    }

    /// The client's stages and whether the plan has weights; refuses unused tensors and half-public plans.
    fn finish(self, stages: &[Stage]) -> Result<(Vec<plan::Stage>, bool), PlanError> {
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
        let linear =
            || stages.iter().filter_map(|s| if let Kind::Linear(l) = &s.kind { Some(l) } else { None });
        let (all, with) = (linear().count(), linear().filter(|l| l.weights.is_some()).count());
        if with != 0 && with != all {
            return Err(PlanError::Structure(format!("{with} of {all} linear stages have weights")));
        }
        let exact = reach::complete(self.spec, stages)?;
        if with != 0 && !exact {
            return Err(PlanError::Structure(
                "a plan with weights states the bound of every shared tensor and both ends of every clip; compile the model again"
                    .into(),
            ));
        }
        Ok((self.client.into_iter().map(plan::Stage::Client).collect(), with == all && exact))
    }
}

/// Why a stage is refused.
pub(super) enum Fault {
    Detail(String),
    Plan(PlanError),
}

impl From<PlanError> for Fault {
    fn from(e: PlanError) -> Self {
        Self::Plan(e)
    }
}

pub(super) fn fault<T>(detail: String) -> Result<T, Fault> {
    Err(Fault::Detail(detail))
}

fn same_shape(a: &Tensor, b: &Tensor) -> Result<(), Fault> {
    if a.shape != b.shape {
        return fault(format!("shapes differ: {:?} and {:?}", a.shape, b.shape));
    }
    Ok(())
}

fn same_f(a: &Shared<'_>, b: &Shared<'_>) -> Result<(), Fault> {
    if a.f != b.f {
        return fault(format!(
            "tensors '{}' and '{}' have {} and {} fraction bits",
            a.tensor.name, b.tensor.name, a.f, b.f
        ));
    }
    Ok(())
}

fn opened(scale: f64, f: i32) -> Result<(), Fault> {
    if scale != f64::from(-f).exp2() {
        return fault(format!("scale {scale} is not 2^-{f}"));
    }
    Ok(())
}

/// That a result fits its bound. Exact bounds are the server's: where a plan has none, there is nothing to compare.
pub(super) fn holds(to: &Shared<'_>, derived: Option<u128>) -> Result<(), Fault> {
    match (derived, to.bound) {
        (Some(derived), Some(bound)) if derived > u128::from(bound) => fault(format!(
            "values can reach {derived}, but tensor '{}' is planned for {bound}",
            to.tensor.name
        )),
        _ => Ok(()),
    }
}
