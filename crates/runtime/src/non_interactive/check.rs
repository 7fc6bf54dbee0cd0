//! From the non-interactive plan as written to the checked plan.

use super::engine::KeysNeeded;
use super::messages;
use super::packed::{self, PackedParts};
use super::plan::{Link, NonInteractivePlan, Parts, Work};
use super::spec::{KindSpec, LinearSpec, OneSpec, PackedStage, Packing, PlanSpec, StageSpec, TensorSpec};
use crate::plan::spec::{self as batch, OpSpec, PortSpec};
use crate::plan::{
    self, check_op, check_tensor, ClientStage, Engine, Limits, Need, Op, Plan, PlanError, PlanOptions, Port,
    Tensor, TensorBytes,
};
use crate::public::told_bound;
use hushnet_layers::ckks_batch::{
    Circuit, CircuitError, CircuitSpec, LinearSpec as CircuitLinear, StageKind, StageSpec as CircuitStage,
    TensorSpec as CircuitTensor,
};
use hushnet_rlwe::batch::TAIL;
use hushnet_rlwe::ckks::CkksParams;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

mod files;
mod header;

use header::{check_header, client_spec, parameters};

type Files<'a> = BTreeMap<String, TensorBytes<'a>>;

/// Bits by which a flood exceeds what it hides: the statistical distance of every ciphertext is at most 2^-this.
pub const STATISTICAL_BITS: f64 = 40.0;

/// Bits that a flood needs over errors of deviation `sd`: the coefficients of an error whose slots' parts are at most T sd have a sum of
/// magnitudes of at most sqrt(2 N) T sd (Parseval, Cauchy-Schwarz), and that over 2^b is the statistical distance.
#[must_use]
pub fn flood_bits(ring_degree: usize, sd: f64) -> f64 {
    STATISTICAL_BITS + (TAIL * sd * (2.0 * ring_degree as f64).sqrt()).log2()
}

pub(super) fn check(
    spec: PlanSpec,
    json: &str,
    files: &Files<'_>,
    options: &PlanOptions,
) -> Result<NonInteractivePlan, PlanError> {
    check_header(&spec, &options.limits)?;
    let mut read = Need::default();
    // 16-bit numbers become 64-bit and 32-bit ones, once for every upload that names the array.
    let uploads =
        spec.stages.iter().filter_map(|s| if let StageSpec::Packed(p) = s { Some(p) } else { None });
    for upload in uploads.flat_map(|p| &p.uploads) {
        let bytes = files.get(&upload.slots).map_or(0, |f| f.data.len() as u64);
        read.add(&format!("the layout '{}' of an upload", upload.slots), bytes.saturating_mul(8));
    }
    read.add(
        "the plan's tensors",
        files.values().fold(0, |sum: u64, f| sum.saturating_add(4 * f.data.len() as u64)),
    );
    read.check(&options.limits)?;
    let params = parameters(&spec, options)?;
    let tensors: Vec<Tensor> = spec
        .tensors
        .iter()
        .map(|t| real_tensor(t, spec.engine, &options.limits))
        .collect::<Result<_, _>>()?;
    let mut checker = Checker::new(&spec, &tensors, files, &params)?;
    let inputs = checker.ports("input", &spec.inputs, true)?;
    for (index, stage) in spec.stages.iter().enumerate() {
        checker.stage(index, stage)?;
    }
    let outputs = checker.ports("output", &spec.outputs, false)?;
    let checked = checker.finish()?;
    check_results(&spec, &params, &checked)?;
    let mut kept = outputs;
    kept.extend(checked.uploads.iter().map(|l| Port { name: tensors[l.real].name.clone(), tensor: l.real }));
    let stages = checked.client.into_iter().map(plan::Stage::Client).collect();
    let client = Plan::client_only(client_spec(&spec), tensors.clone(), stages, inputs, kept);
    let plan = NonInteractivePlan(Arc::new(Parts {
        params,
        work: checked.work,
        circuit_stages: checked.circuit_stages,
        uploads: checked.uploads,
        downloads: checked.downloads,
        client,
        before: checked.before,
        weights: checked.weights,
        spec,
        json: json.to_owned(),
    }));
    need(&plan).check(&options.limits)?;
    Ok(plan)
}

/// What the plan makes a party hold: with weights the server's ciphertexts in work, and what the client of a session holds for a block.
fn need(plan: &NonInteractivePlan) -> Need {
    let mut need = Need::default();
    if plan.has_weights() {
        need.add("the ciphertexts of one block at the server", plan.peak_bytes());
    }
    let (images, client) = (plan.block_images() as u64, plan.client());
    need.add("the client's own tensors", client.client_tensor_bytes().saturating_mul(images));
    let reals = |l: &Link| (l.stage.clone(), (l.elements as u64).saturating_mul(images).saturating_mul(8));
    for (stage, bytes) in plan.uploads().iter().map(reals) {
        need.add(&format!("the values that stage '{stage}' encrypts"), bytes.saturating_mul(2));
    }
    for (stage, bytes) in plan.downloads().iter().map(reals) {
        need.add(&format!("the values that stage '{stage}' decrypts"), bytes);
    }
    let keys = messages::keys(plan.params(), &KeysNeeded::of(plan));
    need.add("a key on its way", 4 * keys.iter().map(|k| k.bytes as u64).max().unwrap_or(0));
    need.add("the messages on their way", (messages::largest_frame(plan) as u64).saturating_mul(4));
    need.add("the tables of the parameters", header::table_bytes(plan.spec()));
    need
}

/// A tensor as the client's interpreter sees it.
fn real_tensor(t: &TensorSpec, engine: Engine, limits: &Limits) -> Result<Tensor, PlanError> {
    let fail = |detail: &str| PlanError::Tensor { id: t.id, name: t.name.clone(), detail: detail.into() };
    let cipher = t.kind == KindSpec::Cipher;
    let stated = cipher && engine == Engine::Batch;
    if stated != t.level.is_some() || stated != t.parts.is_some() || stated != t.scale.is_some() {
        return Err(fail(
            "ciphertexts of batches have level, parts and scale, real tensors have none of them",
        ));
    }
    if !cipher && (t.bound.is_some() || t.noise_bits.is_some()) {
        return Err(fail("real tensors have no bound"));
    }
    if t.noise_bits.is_some_and(|b| b > 1000) {
        return Err(fail("noise_bits is above 1000"));
    }
    let spec = batch::TensorSpec {
        id: t.id,
        name: t.name.clone(),
        shape: t.shape.clone(),
        kind: batch::KindSpec::Real,
        scale: None,
        bound: None,
    };
    check_tensor(&spec, limits)
}

/// What decrypted tensors promise: error bounds, and floods that hide them.
fn check_results(spec: &PlanSpec, params: &CkksParams, checked: &Checked) -> Result<(), PlanError> {
    let noise = params.noise();
    for link in &checked.downloads {
        let fail = |detail: String| PlanError::Linear { stage: link.stage.clone(), detail };
        let (sd, hidden) = match &checked.work {
            Work::Batch(circuit) => {
                let track = circuit.tracks().map(|t| t[checked.places[link.cipher]]);
                (track.map_or(0.0, |t| t.sd), track.map_or(0.0, |t| t.hidden))
            }
            Work::Packed(parts) => parts.deviations(),
        };
        if sd > f64::from(link.noise_bits).exp2() {
            return Err(fail(format!(
                "noise_bits is {}, the error can be 2^{:.1}",
                link.noise_bits,
                sd.log2()
            )));
        }
        let Some(hide) = spec.hide_weights else { continue };
        let needed = flood_bits(params.ring_degree(), hidden.hypot(noise.public()));
        if f64::from(hide.flood_bits) < needed {
            return Err(fail(format!(
                "a flood of {} bits does not hide errors that need {needed:.1}",
                hide.flood_bits
            )));
        }
        if hide.flood_bits > hushnet_rlwe::ckks::MAX_FLOOD_BITS || link.parts != 2 {
            return Err(fail("what is hidden has two parts, and a flood at most 120 bits".into()));
        }
        let level = params.level(link.level).map_err(|e| fail(e.to_string()))?;
        let reach = link.bound * link.scale + f64::from(hide.flood_bits).exp2();
        if reach.log2() >= params.modulus_bits(level) - 1.0 {
            return Err(fail("the flood does not fit in the modulus".into()));
        }
    }
    Ok(())
}

/// What the checker found.
struct Checked {
    work: Work,
    circuit_stages: Vec<usize>,
    /// Index in the circuit of every tensor of the plan (0 where there is none).
    places: Vec<usize>,
    uploads: Vec<Link>,
    downloads: Vec<Link>,
    client: Vec<ClientStage>,
    before: usize,
    weights: bool,
}

struct Checker<'a> {
    spec: &'a PlanSpec,
    tensors: &'a [Tensor],
    files: &'a Files<'a>,
    params: &'a CkksParams,
    index: HashMap<u32, usize>,
    defined: Vec<bool>,
    used_files: BTreeSet<String>,
    names: BTreeSet<String>,
    /// Place in the circuit of a tensor of ciphertexts.
    places: Vec<Option<usize>>,
    circuit: CircuitSpec,
    circuit_stages: Vec<usize>,
    uploads: Vec<Link>,
    downloads: Vec<Link>,
    client: Vec<ClientStage>,
    before: usize,
    /// Stages with weights, and those that should have them.
    weighted: (usize, usize),
    /// The one stage of a packed plan.
    whole: Option<PackedParts>,
}

impl<'a> Checker<'a> {
    fn new(
        spec: &'a PlanSpec,
        tensors: &'a [Tensor],
        files: &'a Files<'a>,
        params: &'a CkksParams,
    ) -> Result<Self, PlanError> {
        let mut index = HashMap::new();
        for (i, t) in tensors.iter().enumerate() {
            if index.insert(t.id, i).is_some() {
                let detail = "the id is taken".into();
                return Err(PlanError::Tensor { id: t.id, name: t.name.clone(), detail });
            }
        }
        let mut places = vec![None; tensors.len()];
        let mut circuit = CircuitSpec {
            tensors: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            stages: Vec::new(),
            complex: spec.params.packing == Packing::Complex,
        };
        for (i, (t, tensor)) in spec.tensors.iter().zip(tensors).enumerate() {
            if spec.engine == Engine::Packed && t.kind == KindSpec::Cipher {
                places[i] = Some(i);
            }
            if let (Some(level), Some(parts), Some(scale)) = (t.level, t.parts, t.scale) {
                places[i] = Some(circuit.tensors.len());
                // A public part does not tell what lies between: anything that fits.
                let room = params.level(level).map_or(1.0, |l| (params.modulus_bits(l) - 3.0).exp2() / scale);
                let bound = t.bound.unwrap_or(room);
                circuit.tensors.push(CircuitTensor { elements: tensor.elements, level, parts, scale, bound });
            }
        }
        Ok(Self {
            spec,
            tensors,
            files,
            params,
            index,
            defined: vec![false; tensors.len()],
            used_files: BTreeSet::new(),
            names: BTreeSet::new(),
            places,
            circuit,
            circuit_stages: Vec::new(),
            uploads: Vec::new(),
            downloads: Vec::new(),
            client: Vec::new(),
            before: 0,
            weighted: (0, 0),
            whole: None,
        })
    }

    fn find(&self, place: &str, id: u32) -> Result<usize, PlanError> {
        self.index.get(&id).copied().ok_or_else(|| PlanError::DanglingTensor { place: place.to_owned(), id })
    }

    fn read(&self, place: &str, id: u32, cipher: bool) -> Result<usize, PlanError> {
        let i = self.find(place, id)?;
        let tensor = self.tensors[i].name.clone();
        if !self.defined[i] {
            return Err(PlanError::UsedBeforeDefined { place: place.to_owned(), tensor });
        }
        self.side(place, i, cipher)
    }

    fn define(&mut self, place: &str, id: u32, cipher: bool) -> Result<usize, PlanError> {
        let i = self.find(place, id)?;
        if std::mem::replace(&mut self.defined[i], true) {
            let tensor = self.tensors[i].name.clone();
            return Err(PlanError::DefinedTwice { place: place.to_owned(), tensor });
        }
        self.side(place, i, cipher)
    }

    fn side(&self, place: &str, i: usize, cipher: bool) -> Result<usize, PlanError> {
        if self.places[i].is_some() == cipher {
            return Ok(i);
        }
        let expected = if cipher { "ciphertexts" } else { "a real tensor" };
        Err(PlanError::Structure(format!("{place}: tensor '{}' is not {expected}", self.tensors[i].name)))
    }

    fn ports(&mut self, kind: &str, ports: &[PortSpec], input: bool) -> Result<Vec<Port>, PlanError> {
        let mut seen = BTreeSet::new();
        let mut out = Vec::new();
        for port in ports {
            let place = format!("{kind} '{}'", port.name);
            if !seen.insert(&port.name) {
                return Err(PlanError::Structure(format!("two {kind}s are called '{}'", port.name)));
            }
            let tensor = if input {
                self.define(&place, port.tensor, false)?
            } else {
                self.read(&place, port.tensor, false)?
            };
            out.push(Port { name: port.name.clone(), tensor });
        }
        if out.is_empty() {
            return Err(PlanError::Structure(format!("the plan has no {kind}s")));
        }
        Ok(out)
    }

    fn stage(&mut self, index: usize, stage: &'a StageSpec) -> Result<(), PlanError> {
        let name = stage.name().to_owned();
        if !self.names.insert(name.clone()) {
            return Err(PlanError::Structure(format!("two stages are called '{name}'")));
        }
        let (inputs, output, kind) = match stage {
            StageSpec::Client { ops, .. } => {
                let ops =
                    ops.iter().enumerate().map(|(i, op)| self.op(&name, i, op)).collect::<Result<_, _>>()?;
                self.client.push(ClientStage { name, ops });
                if self.uploads.is_empty() {
                    self.before = self.client.len();
                }
                return Ok(());
            }
            StageSpec::Encrypt(s) => return self.encrypt(s),
            StageSpec::Decrypt(s) => return self.decrypt(s),
            StageSpec::Packed(s) => return self.packed(index, s),
            StageSpec::Linear(s) => (vec![s.input], s.output, self.linear(s)?),
            StageSpec::Multiply { inputs, output, .. } => (inputs.to_vec(), *output, StageKind::Multiply),
            StageSpec::Relinearise(s) => (vec![s.input], s.output, StageKind::Relinearise),
            StageSpec::Rescale(s) => (vec![s.input], s.output, StageKind::Rescale),
            StageSpec::Combine { inputs, output, factors, constant, .. } => (
                inputs.clone(),
                *output,
                self.combine(&name, inputs.len(), factors.as_ref(), constant.as_ref())?,
            ),
        };
        let place = format!("stage '{name}'");
        if inputs.is_empty() {
            return Err(PlanError::Linear { stage: name, detail: "no operands".into() });
        }
        let inputs = inputs
            .iter()
            .map(|id| self.read(&place, *id, true).map(|i| self.places[i].unwrap_or(0)))
            .collect::<Result<_, _>>()?;
        let output = self.define(&place, output, true)?;
        let output = self.places[output].unwrap_or(0);
        self.circuit.stages.push(CircuitStage { name, inputs, output, kind });
        self.circuit_stages.push(index);
        Ok(())
    }

    fn op(&mut self, stage: &str, index: usize, spec: &OpSpec) -> Result<Op, PlanError> {
        let place = format!("stage '{stage}', operation {index}");
        let inputs =
            spec.inputs.iter().map(|t| self.read(&place, *t, false)).collect::<Result<Vec<_>, _>>()?;
        let output = self.define(&place, spec.output, false)?;
        let operands: Vec<&Tensor> = inputs.iter().map(|t| &self.tensors[*t]).collect();
        check_op(&spec.kind, &operands, &self.tensors[output]).map_err(|detail| PlanError::Op {
            stage: stage.to_owned(),
            index,
            op: spec.kind.name(),
            detail,
        })?;
        Ok(Op { kind: spec.kind.clone(), inputs, output })
    }

    fn link(&self, s: &OneSpec, real: usize, cipher: usize) -> Result<Link, PlanError> {
        let fail = |detail: &str| PlanError::Linear { stage: s.name.clone(), detail: detail.into() };
        let (spec, elements) = (&self.spec.tensors[cipher], self.tensors[cipher].elements);
        if self.tensors[real].elements != elements {
            return Err(fail("the tensors have different numbers of elements"));
        }
        let Some(bound) = spec.bound else { return Err(fail("the ciphertexts have no bound")) };
        // Of a packed plan these follow from its one stage.
        let (level, parts, scale) = match (spec.level, spec.parts, spec.scale) {
            (Some(level), Some(parts), Some(scale)) => (level, parts, scale),
            _ if self.spec.engine == Engine::Packed => (1, 2, 1.0),
            _ => return Err(fail("the ciphertexts have no level, parts or scale")),
        };
        Ok(Link {
            number: 0,
            stage: s.name.clone(),
            real,
            cipher,
            elements,
            ciphertexts: elements,
            level,
            parts,
            scale,
            bound,
            told: bound,
            noise_bits: spec.noise_bits.unwrap_or(0),
        })
    }

    fn encrypt(&mut self, s: &OneSpec) -> Result<(), PlanError> {
        let place = format!("stage '{}'", s.name);
        let real = self.read(&place, s.input, false)?;
        let cipher = self.define(&place, s.output, true)?;
        if !self.downloads.is_empty() {
            return Err(PlanError::Structure(format!(
                "{place} encrypts after a decryption: that is interaction"
            )));
        }
        let number = self.uploads.len();
        let link = self.link(s, real, cipher)?;
        let told = if self.circuit.complex { link.bound * std::f64::consts::SQRT_2 } else { link.bound };
        let link = Link { number, told, ..link };
        self.uploads.push(link);
        self.circuit.inputs.push(self.places[cipher].unwrap_or(0));
        Ok(())
    }

    fn decrypt(&mut self, s: &OneSpec) -> Result<(), PlanError> {
        let place = format!("stage '{}'", s.name);
        let cipher = self.read(&place, s.input, true)?;
        let real = self.define(&place, s.output, false)?;
        let number = self.downloads.len();
        let link = self.link(s, real, cipher)?;
        let told = told_bound(self.spec, &self.spec.tensors[cipher], link.bound);
        let link = Link { number, told, ..link };
        if self.spec.tensors[cipher].noise_bits.is_none() {
            let detail = "what is decrypted states noise_bits".into();
            return Err(PlanError::Linear { stage: s.name.clone(), detail });
        }
        self.downloads.push(link);
        self.circuit.outputs.push(self.places[cipher].unwrap_or(0));
        Ok(())
    }

    fn packed(&mut self, index: usize, s: &'a PackedStage) -> Result<(), PlanError> {
        let place = format!("stage '{}'", s.name);
        let input = self.read(&place, s.input, true)?;
        let output = self.define(&place, s.output, true)?;
        let bounds = [input, output].map(|i| self.spec.tensors[i].bound.unwrap_or(0.0));
        let elements = [input, output].map(|i| self.tensors[i].elements);
        let names: Vec<&String> = s.uploads.iter().map(|u| &u.slots).chain([&s.places]).collect();
        let arrays: Vec<String> = s.network.iter().flat_map(packed::arrays).collect();
        self.used_files.extend(names.into_iter().chain(&arrays).cloned());
        let hide = self.spec.hide_weights.is_some();
        let parts = PackedParts::check(s, self.params, self.files, (elements, bounds, hide))?;
        self.circuit_stages.push(index);
        self.whole = Some(parts);
        Ok(())
    }

    /// The links of a packed plan, as its stage makes them.
    fn packed_links(&mut self, parts: &PackedParts) -> Result<(), PlanError> {
        let ([up], [down]) = (self.uploads.as_slice(), self.downloads.as_slice()) else {
            return Err(PlanError::Structure("a packed plan encrypts one tensor and decrypts one".into()));
        };
        let spec = parts.interface().spec();
        let link = |(number, u): (usize, &hushnet_layers::packed::UploadSpec)| Link {
            number,
            ciphertexts: u.slots.len(),
            level: u.level,
            scale: spec.scale,
            ..up.clone()
        };
        let uploads = spec.uploads.iter().enumerate().map(link).collect();
        let (level, scale) = (spec.output_level, spec.output_scale);
        self.downloads = vec![Link { ciphertexts: spec.answer, level, scale, ..down.clone() }];
        self.uploads = uploads;
        Ok(())
    }

    fn linear(&mut self, s: &LinearSpec) -> Result<StageKind, PlanError> {
        let geometry = s
            .geometry
            .checked()
            .map_err(|e| PlanError::Linear { stage: s.name.clone(), detail: e.to_string() })?;
        self.weighted.1 += 1;
        let weights = match (&s.weights, &s.bias) {
            (None, None) => None,
            (Some(w), Some(b)) => {
                self.weighted.0 += 1;
                Some((self.weights(w, &s.geometry.weight_shape())?, self.reals(b)?))
            }
            _ => {
                let detail = "only one of weights and bias is given".into();
                return Err(PlanError::Linear { stage: s.name.clone(), detail });
            }
        };
        Ok(StageKind::Linear(Box::new(CircuitLinear { geometry, weights })))
    }

    fn combine(
        &mut self,
        stage: &str,
        count: usize,
        factors: Option<&String>,
        constant: Option<&String>,
    ) -> Result<StageKind, PlanError> {
        self.weighted.1 += 1;
        let factors = match (factors, constant) {
            (None, None) => None,
            (Some(f), Some(c)) => {
                self.weighted.0 += 1;
                let (factors, constant) = (self.integers(f)?, self.reals(c)?);
                if factors.len() != count || constant.len() != 1 {
                    let detail = format!("{} factors and {} constants", factors.len(), constant.len());
                    return Err(PlanError::Linear { stage: stage.to_owned(), detail });
                }
                Some((factors, constant[0]))
            }
            _ => {
                let detail = "only one of factors and constant is given".into();
                return Err(PlanError::Linear { stage: stage.to_owned(), detail });
            }
        };
        Ok(StageKind::Combine { factors })
    }

    fn finish(mut self) -> Result<Checked, PlanError> {
        if let Some(i) = self.defined.iter().position(|d| !d) {
            let t = &self.tensors[i];
            let detail = "no stage computes it".into();
            return Err(PlanError::Tensor { id: t.id, name: t.name.clone(), detail });
        }
        if let Some(name) = self.files.keys().find(|n| !self.used_files.contains(*n)) {
            return Err(PlanError::Weights { tensor: name.clone(), detail: "no stage uses it".into() });
        }
        if self.weighted.0 != 0 && self.weighted.0 != self.weighted.1 {
            let (with, all) = self.weighted;
            return Err(PlanError::Structure(format!("{with} of {all} stages have weights")));
        }
        if self.uploads.is_empty() || self.downloads.is_empty() {
            return Err(PlanError::Structure("the plan encrypts nothing, or decrypts nothing".into()));
        }
        if let Some(parts) = self.whole.take() {
            self.packed_links(&parts)?;
            return Ok(Checked {
                weights: parts.circuit().is_some(),
                work: Work::Packed(Box::new(parts)),
                circuit_stages: self.circuit_stages,
                places: Vec::new(),
                uploads: self.uploads,
                downloads: self.downloads,
                client: self.client,
                before: self.before,
            });
        }
        let names: Vec<String> = self
            .places
            .iter()
            .zip(self.tensors)
            .filter(|(p, _)| p.is_some())
            .map(|(_, t)| t.name.clone())
            .collect();
        let circuit = Circuit::new(self.params, self.circuit).map_err(|e| match e {
            CircuitError::Stage { stage, detail } => PlanError::Linear { stage, detail },
            CircuitError::Tensor { tensor, detail } => {
                PlanError::Structure(format!("tensor '{}': {detail}", names.get(tensor).map_or("?", |n| n)))
            }
            other => PlanError::Structure(other.to_string()),
        })?;
        Ok(Checked {
            work: Work::Batch(Box::new(circuit)),
            circuit_stages: self.circuit_stages,
            places: self.places.iter().map(|p| p.unwrap_or(0)).collect(),
            uploads: self.uploads,
            downloads: self.downloads,
            client: self.client,
            before: self.before,
            weights: self.weighted.0 == self.weighted.1,
        })
    }
}
