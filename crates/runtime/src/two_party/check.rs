//! From the two-party plan as written to the checked plan.
//!
//! What local stages compute must fit the bounds of their results, and so must linear stages' sums where ranges are
//! proven. Relu, max_pool, leaky_relu and truncate may state a smaller bound than their operand's, and linear stages of
//! plans with calibrated sums less than their weights allow: that is where a planner's knowledge of activations enters.

use super::check_local::{moves, sum_pool, window};
use super::elementwise::Function;
use super::flow::{exact_before_opening, liveness};
use super::hard_swish::HardSwish;
use super::matrix_product::Matrices;
use super::memory::{self, Steps};
use super::methods::{self, Wanted};
use super::nonlinear;
use super::plan::{Kind, Linear, Stage, TwoParty, TwoPartyPlan};
use super::product::Product;
use super::reach;
use crate::plan::spec::{
    KindSpec, LinearSpec, PlanSpec, Protocol, Ranges, Reveal, Sign, StageKind, StageSpec, TwoPartySpec,
    WindowSpec,
};
use crate::plan::{
    self, Checked, ClientStage, Files, Parts, Place, Plan, PlanError, PlanOptions, Port, Scope, Tensor,
    TensorKind,
};
use hushnet_mpc::{PoolShape, Range, Ring, Rounding, Slope};
use hushnet_rlwe::packed::PackedSpec;

/// Narrowest ring that the protocols work at.
const MIN_RING_BITS: u32 = 4;

pub(super) fn check(
    spec: PlanSpec,
    json: &str,
    files: &Files<'_>,
    options: &PlanOptions,
) -> Result<TwoPartyPlan, PlanError> {
    plan::header(&spec, options)?;
    let (ring, reveal) = parameters(&spec)?;
    let tensors = plan::tensors(&spec, &options.limits)?;
    for t in &spec.tensors {
        let fail = |detail| PlanError::Tensor { id: t.id, name: t.name.clone(), detail };
        t.reach_bits.map_or(Ok(()), |k| reach::check(k, t.integer_bound(), ring)).map_err(fail)?;
    }
    let mut checker = Checker::new(Scope::new(&spec, &tensors, files, options), ring, reveal);
    let inputs = checker.scope.inputs()?;
    let mut stages = spec.stages.iter().map(|s| checker.stage(s)).collect::<Result<Vec<_>, _>>()?;
    let outputs = checker.scope.outputs()?;
    let (client_stages, weights) = checker.finish(&stages)?;
    exact_before_opening(&mut stages)?;
    let peak_elements = liveness(&mut stages, &tensors, &spec)?;
    let mut kept = outputs.clone();
    kept.extend(stages.iter().filter(|s| matches!(s.kind, Kind::Share)).flat_map(|s| {
        s.inputs.iter().map(|&tensor| Port { name: tensors[tensor].name.clone(), tensor, range: None })
    }));
    let client = Plan::client_only(spec.header(), tensors.clone(), client_stages, inputs.clone(), kept);
    memory::of_plan((&stages, &tensors, ring), &client, peak_elements, 1).check(&options.limits)?;
    let model = TwoParty { ring, stages, client, peak_elements };
    Ok(Checked::new(Parts { spec, json: json.to_owned(), tensors, inputs, outputs, weights, model }))
}

/// The ring of the shares, and what is opened.
fn parameters(spec: &PlanSpec) -> Result<(Ring, Reveal), PlanError> {
    let missing = || PlanError::Structure("the plan's params have no part 'two_party'".into());
    let part = spec.params.two_party.as_ref().ok_or_else(missing)?;
    let TwoPartySpec { ring_bits, reveal, ranges, sums, preparation } = part;
    if *sums == Some(Ranges::Calibrated) && *ranges != Some(Ranges::Calibrated) {
        return Err(PlanError::Structure(
            "bounds of sums are calibrated in a plan whose ranges are not; compile the model again".into(),
        ));
    }
    let ring = Ring::new(*ring_bits).ok().filter(|r| r.bits() >= MIN_RING_BITS);
    let ring = ring.ok_or_else(|| {
        PlanError::Structure(format!("ring_bits {ring_bits} is not from {MIN_RING_BITS} to 64"))
    })?;
    let (ring_degree, ring_bits) = (spec.params.ring_degree, *ring_bits);
    let packed = PackedSpec { ring_degree, ring_bits, weight_l2: 1.0 };
    packed.choose().map_err(|e| PlanError::Structure(e.to_string()))?;
    if preparation.as_ref().is_some_and(|p| p.len() != 64 || !p.bytes().all(|b| b.is_ascii_hexdigit())) {
        return Err(PlanError::Structure("the plan's preparation is not 64 hexadecimal digits".into()));
    }
    Ok((ring, *reveal))
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
    scope: Scope<'a>,
    ring: Ring,
    reveal: Reveal,
    steps: Steps,
    /// Shared tensors that follow from relu or clip so that no value is negative.
    non_negative: Vec<bool>,
    client: Vec<ClientStage>,
}

impl<'a> Checker<'a> {
    fn new(scope: Scope<'a>, ring: Ring, reveal: Reveal) -> Self {
        let non_negative = vec![false; scope.tensors.len()];
        Self { scope, ring, reveal, steps: Steps::new(), non_negative, client: Vec::new() }
    }

    fn stage(&mut self, spec: &'a StageSpec) -> Result<Stage, PlanError> {
        let Place { inputs, output, ops } = self.scope.stage(spec)?;
        let (name, label) = (spec.name.clone(), spec.kind.name());
        if let StageKind::Client { .. } = &spec.kind {
            self.client.push(ClientStage { name: name.clone(), ops });
            return Ok(Stage {
                name,
                label,
                kind: Kind::Client(self.client.len() - 1),
                protocol: Protocol::Ot,
                bits: 0,
                compared: self.ring,
                inputs,
                output: None,
                free: Vec::new(),
            });
        }
        let kind = self.kind(spec, &inputs, output).map_err(|e| match e {
            Fault::Detail(detail) => PlanError::Linear { stage: name.clone(), detail },
            Fault::Plan(e) => e,
        })?;
        self.non_negative[output] = match &kind {
            Kind::Relu => true,
            Kind::Clip { from_zero, .. } => *from_zero,
            Kind::Product(product) => product.non_negative(),
            Kind::Truncate { .. }
            | Kind::MaxPool(_)
            | Kind::SumPool(_)
            | Kind::Scale(_)
            | Kind::Add
            | Kind::Move(_) => inputs.iter().all(|&i| self.non_negative[i]),
            _ => false,
        };
        let protocol = spec.kind.protocol();
        if protocol != Protocol::Ot && !nonlinear::compares(&kind) {
            let detail = "neither circuits nor comparisons compute this stage: leave 'protocol' out".into();
            return Err(PlanError::Linear { stage: name, detail });
        }
        let bits = spec.kind.dropped().0;
        let compared = self
            .compared(&kind, spec, &inputs)
            .map_err(|detail| PlanError::Linear { stage: name.clone(), detail })?;
        Ok(Stage {
            name,
            label,
            kind,
            protocol,
            bits,
            compared,
            inputs,
            output: Some(output),
            free: Vec::new(),
        })
    }

    /// Whether bounds of sums come from calibration data, as those of activations may.
    fn calibrated(&self) -> bool {
        let part = self.scope.spec.params.two_party.as_ref();
        part.is_some_and(|p| p.sums == Some(Ranges::Calibrated))
    }

    fn shared(&self, index: usize) -> Result<Shared<'a>, Fault> {
        let (tensor, spec) = (&self.scope.tensors[index], &self.scope.spec.tensors[index]);
        let (bound, non_negative) = (spec.integer_bound(), self.non_negative[index]);
        match (spec.frac_bits, spec.reach_bits) {
            (Some(f), Some(reach)) => Ok(Shared { tensor, non_negative, bound, reach, f }),
            _ => fault(format!("tensor '{}' must be shared", tensor.name)),
        }
    }

    fn fixed(&self, index: usize) -> Result<(&'a Tensor, f64, u64), Fault> {
        let tensor = &self.scope.tensors[index];
        match tensor.kind {
            TensorKind::Fixed { scale, bound } if self.scope.kind(index) == KindSpec::Fixed => {
                Ok((tensor, scale, bound))
            }
            _ => fault(format!("tensor '{}' must be fixed", tensor.name)),
        }
    }

    fn kind(&mut self, spec: &StageSpec, inputs: &[usize], output: usize) -> Result<Kind, Fault> {
        match &spec.kind {
            StageKind::Share {} => {
                let ((from, scale, bound), to) = (self.fixed(inputs[0])?, self.shared(output)?);
                same_shape(from, to.tensor)?;
                opened(scale, to.f)?;
                holds(&to, Some(u128::from(bound)))?;
                reach::holds(bound, to.reach).or_else(fault)?;
                return Ok(Kind::Share);
            }
            StageKind::Reveal { what, .. } => {
                return self.reveal(*what, self.shared(inputs[0])?, self.fixed(output)?)
            }
            _ => {}
        }
        let from = inputs.iter().map(|&i| self.shared(i)).collect::<Result<Vec<_>, _>>()?;
        let to = self.shared(output)?;
        if let StageKind::Linear(s) = &spec.kind {
            return Ok(Kind::Linear(Box::new(self.linear(&spec.name, s, (&from[0], &to))?)));
        }
        if let Some(kind) = moves(&spec.kind, &from, &to)? {
            return Ok(kind);
        }
        if let Some(kind) = self.products(spec, inputs, (&from, &to))? {
            return Ok(kind);
        }
        let (x, bound) = (from[0], from[0].exact());
        match &spec.kind {
            StageKind::MaxPool(w) => {
                dropped(spec, &x, &to)?;
                return max_pool(&spec.name, w, &x, &to);
            }
            StageKind::SumPool(w) => return sum_pool(&spec.name, w, &x, &to),
            _ => same_shape(x.tensor, to.tensor)?,
        }
        match &spec.kind {
            StageKind::Relu { .. } => {
                dropped(spec, &x, &to)?;
                Ok(Kind::Relu)
            }
            StageKind::HardSwish { quarter, bits } => {
                Ok(Kind::HardSwish(HardSwish::check((*quarter, *bits), &x, &to, self.ring)?))
            }
            StageKind::Function(f) => {
                let function = Function::check(&mut self.scope, &spec.name, f, (&x, &to), self.ring)?;
                Ok(Kind::Function(Box::new(function)))
            }
            StageKind::LeakyRelu { numerator, log_denominator } => {
                same_f(&x, &to)?;
                let slope = Slope::new(*numerator, *log_denominator).or_else(|e| fault(e.to_string()))?;
                let range = self.range(x.reach.saturating_add(*log_denominator))?;
                self.shift(*log_denominator, range)?;
                Ok(Kind::LeakyRelu { slope, range })
            }
            StageKind::Clip { bits, low, high, reach_bits, .. } => {
                fractions((x.f, *bits), to.f)?;
                let bound = x.bound.map(|b| reach::divided(b, *bits));
                let ends = reach::ends(*low, *high, *reach_bits, bound).or_else(fault)?;
                holds(&to, ends.map(|(low, high)| low.unsigned_abs().max(high.unsigned_abs()).into()))?;
                Ok(Kind::Clip { from_zero: *low == Some(0), ends, reach: *reach_bits })
            }
            StageKind::Truncate { bits, sign, exact } => self.truncate((*bits, *sign, *exact), &x, &to),
            StageKind::Scale { factor } => {
                if *factor == 0 || to.f < x.f {
                    return fault(format!("factor {factor} takes {} fraction bits to {}", x.f, to.f));
                }
                holds(&to, bound.map(|b| b * u128::from(*factor)))?;
                Ok(Kind::Scale(*factor))
            }
            StageKind::Shift { by, negated } => {
                same_f(&x, &to)?;
                holds(&to, bound.zip(*by).map(|(b, by)| b + u128::from(by.unsigned_abs())))?;
                Ok(Kind::Shift { by: *by, negated: *negated })
            }
            StageKind::Add {} => {
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

    /// Products of two tensors, element by element or of their matrices.
    fn products(
        &mut self,
        spec: &StageSpec,
        inputs: &[usize],
        (from, to): (&[Shared<'_>], &Shared<'_>),
    ) -> Result<Option<Kind>, Fault> {
        Ok(match (&spec.kind, from) {
            (StageKind::Product { bits, within }, [x, y]) => {
                let same = inputs[0] == inputs[1];
                let product = Product::check((*bits, *within), (x, y), to, (same, self.ring))?;
                Some(Kind::Product(Box::new(product)))
            }
            (StageKind::MatrixProduct { bits }, [x, y]) => {
                let shape = Matrices::shape(x, y, to)?;
                self.steps.add_product(&spec.name, &shape, self.scope.limits())?;
                let product = Matrices::check((shape, *bits), (x, y), to, self.ring)?;
                Some(Kind::MatrixProduct(Box::new(product)))
            }
            _ => None,
        })
    }

    fn truncate(
        &self,
        (bits, sign, exact): (u32, Sign, bool),
        x: &Shared<'_>,
        to: &Shared<'_>,
    ) -> Result<Kind, Fault> {
        fractions((x.f, bits), to.f)?;
        let range = match sign {
            Sign::NonNegative if x.non_negative => Range::NonNegative,
            Sign::NonNegative => {
                return fault(format!("nothing says that tensor '{}' is not negative", x.tensor.name))
            }
            Sign::Any => self.range(x.reach)?,
        };
        self.shift(bits, range)?;
        let rounding = if exact { Rounding::Floor } else { Rounding::Faithful };
        Ok(Kind::Truncate { bits, range, rounding })
    }

    /// The narrowest ring that holds what a stage compares, of the bits that it does not drop.
    fn compared(&self, kind: &Kind, spec: &StageSpec, inputs: &[usize]) -> Result<Ring, String> {
        let (bits, stated) = spec.kind.dropped();
        let known = inputs.first().and_then(|&i| self.scope.spec.tensors[i].reach_bits);
        let known = if bits > 0 { stated } else { known };
        let ring = reach::left(self.ring, bits)?;
        known.map_or(Ok(ring), |k| reach::compared(kind, k, ring))
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
        if what != self.reveal {
            return fault(format!("reveals {what:?}, but the plan says {:?}", self.reveal));
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
                if to.elements != 1 || scale != 1.0 || u128::from(bound) + 1 < x.tensor.elements as u128 {
                    return fault(format!(
                        "an index of {} classes needs one element of scale 1 that holds it",
                        x.tensor.elements
                    ));
                }
            }
        }
        Ok(Kind::Reveal(what))
    }

    fn linear(
        &mut self,
        stage: &str,
        spec: &LinearSpec,
        (x, to): (&Shared<'_>, &Shared<'_>),
    ) -> Result<Linear, Fault> {
        let method = methods::find(&spec.method)
            .ok_or_else(|| PlanError::Unsupported(format!("method '{}' of stage '{stage}'", spec.method)))?;
        if to.f < x.f {
            return fault(format!("{} fraction bits cannot become {} by integer weights", x.f, to.f));
        }
        let geometry = spec.geometry.checked();
        let geometry = geometry.map_err(|source| PlanError::Tiles { stage: stage.to_owned(), source })?;
        self.steps.add(stage, &geometry, method, self.scope.limits())?;
        let l2 = spec.weight_l2.unwrap_or(f64::NAN);
        if !(l2.is_finite() && l2 > 0.0 && l2.log2().fract() == 0.0) {
            return fault(format!("weight_l2 {l2} is not a power of two"));
        }
        let wanted = Wanted {
            name: method.name,
            geometry: &geometry,
            ring_degree: self.scope.spec.params.ring_degree,
            ring_bits: self.ring.bits(),
            weight_l2: l2,
            reach: to.reach,
            bound: to.bound,
        };
        method.check(&wanted).or_else(fault)?;
        let weights = match self.scope.arrays(stage, [("weights", &spec.weights), ("bias", &spec.bias)])? {
            Some([w, b]) => Some(plan::weights((w, b), &spec.geometry.weight_shape(), self.scope.files)?),
            None => None,
        };
        if let (Some(w), Some(bound), Some(planned)) = (&weights, x.bound, to.bound) {
            let derived = w.output_bound_from(if x.non_negative { 0 } else { bound }, bound);
            if !self.calibrated() && derived > u128::from(planned) {
                let (stage, tensor) = (stage.to_owned(), to.tensor.name.clone());
                return Err(PlanError::Bound { stage, tensor, derived, planned }.into());
            }
        }
        // What meets in one answer is at least what meets in one output; parameters of slots hold for all weights.
        let least = weights.as_ref().filter(|_| !method.exact()).map_or(0.0, |w| w.largest_norm());
        if least > l2 {
            return fault(format!(
                "weight_l2 {l2} is below the norm {least:.1} of the weights of one output"
            ));
        }
        Ok(Linear { method, geometry: spec.geometry.clone(), weight_l2: l2, weights })
    }

    /// The client's stages and whether the plan has weights; refuses unused tensors and half-public plans.
    fn finish(self, stages: &[Stage]) -> Result<(Vec<plan::Stage>, bool), PlanError> {
        let (with, all) = self.scope.finish()?;
        let exact = reach::complete(self.scope.spec, stages)?;
        if with != 0 && !exact {
            return Err(PlanError::Structure(
                "a plan with weights states the bound of every shared tensor, both ends of every clip and what every shift adds; compile the model again"
                    .into(),
            ));
        }
        Ok((self.client.into_iter().map(plan::Stage::Client).collect(), with == all && exact))
    }
}

fn max_pool(stage: &str, w: &WindowSpec, x: &Shared<'_>, to: &Shared<'_>) -> Result<Kind, Fault> {
    let window = window(stage, w, x, to)?;
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

/// That f fraction bits become so many as so many bits are dropped.
fn fractions((f, bits): (i32, u32), to: i32) -> Result<(), Fault> {
    if to > f || i64::from(to) < i64::from(f) - i64::from(bits) {
        return fault(format!("{f} fraction bits cannot become {to} by dropping {bits}"));
    }
    Ok(())
}

/// The same of a product of values with so many bits each.
pub(super) fn fractions_of_product((x, y, bits): (i32, i32, u32), to: i32) -> Result<(), Fault> {
    let both = i64::from(x) + i64::from(y);
    if i64::from(to) > both || i64::from(to) < both - i64::from(bits) {
        return fault(format!("{x} and {y} fraction bits cannot become {to} by dropping {bits}"));
    }
    Ok(())
}

/// That what a comparison drops in front is stated with the reach of what is left, and that it holds for the operand's bound.
fn dropped(spec: &StageSpec, x: &Shared<'_>, to: &Shared<'_>) -> Result<(), Fault> {
    let (bits, reach) = spec.kind.dropped();
    fractions((x.f, bits), to.f)?;
    match (bits, reach, x.bound) {
        (0, None, _) => Ok(()),
        (0, Some(_), _) | (_, None, _) => fault(format!(
            "it drops {bits} bits; 'reach_bits' stands beside bits that are dropped, and only there"
        )),
        (_, Some(_), None) => Ok(()),
        (_, Some(reach), Some(bound)) => reach::holds(reach::divided(bound, bits), reach).or_else(fault),
    }
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
