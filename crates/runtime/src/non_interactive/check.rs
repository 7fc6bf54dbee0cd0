//! From the non-interactive plan as written to the checked plan.

use super::engine::KeysNeeded;
use super::messages;
use super::packed::{self, PackedParts};
use super::plan::{Link, NonInteractive, NonInteractivePlan, Work};
use crate::plan::spec::{KindSpec, LinearSpec, NetworkSpec, Packing, PlanSpec, StageKind, StageSpec};
use crate::plan::{
    self, Checked, ClientStage, Files, Need, Parts, Place, Plan, PlanError, PlanOptions, Port, Scope,
};
use crate::public::told_bound;
use hushnet_layers::ckks_batch::{
    Circuit, CircuitError, CircuitLinear, CircuitSpec, StageKind as CircuitKind, StageSpec as CircuitStage,
    TensorSpec as CircuitTensor,
};
use hushnet_rlwe::batch::TAIL;
use hushnet_rlwe::ckks::CkksParams;

mod files;
mod header;

use header::{engine, parameters, part};

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
    plan::header(&spec, options)?;
    engine(&spec)?;
    let mut read = Need::default();
    // 16-bit numbers become 64-bit and 32-bit ones, once for every upload that names the array.
    let uploads =
        spec.stages.iter().filter_map(|s| if let StageKind::Packed(p) = &s.kind { Some(p) } else { None });
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
    let tensors = plan::tensors(&spec, &options.limits)?;
    let scope = Scope::new(&spec, &tensors, files, options);
    let mut checker = Checker::new(scope, &params)?;
    let inputs = checker.scope.inputs()?;
    for (index, stage) in spec.stages.iter().enumerate() {
        checker.stage(index, stage)?;
    }
    let outputs = checker.scope.outputs()?;
    let checked = checker.finish()?;
    check_results(&spec, &params, &checked)?;
    let mut kept = outputs.clone();
    kept.extend(checked.uploads.iter().map(|l| Port {
        name: tensors[l.real].name.clone(),
        tensor: l.real,
        range: None,
    }));
    let stages = checked.client.into_iter().map(plan::Stage::Client).collect();
    let client = Plan::client_only(spec.header(), tensors.clone(), stages, inputs.clone(), kept);
    let model = NonInteractive {
        params,
        work: checked.work,
        circuit_stages: checked.circuit_stages,
        uploads: checked.uploads,
        downloads: checked.downloads,
        client,
        before: checked.before,
    };
    let (json, weights) = (json.to_owned(), checked.weights);
    let plan = Checked::new(Parts { spec, json, tensors, inputs, outputs, weights, model });
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

/// What decrypted tensors promise: error bounds, and floods that hide them.
fn check_results(spec: &PlanSpec, params: &CkksParams, checked: &Found) -> Result<(), PlanError> {
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
        let Some(hide) = part(spec)?.hide_weights else { continue };
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
struct Found {
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
    scope: Scope<'a>,
    params: &'a CkksParams,
    hide: bool,
    /// Place in the circuit of a tensor of ciphertexts.
    places: Vec<usize>,
    circuit: CircuitSpec,
    circuit_stages: Vec<usize>,
    uploads: Vec<Link>,
    downloads: Vec<Link>,
    client: Vec<ClientStage>,
    before: usize,
    /// The one stage of a packed plan.
    whole: Option<PackedParts>,
}

impl<'a> Checker<'a> {
    fn new(scope: Scope<'a>, params: &'a CkksParams) -> Result<Self, PlanError> {
        let part = part(scope.spec)?;
        let mut places = vec![0; scope.tensors.len()];
        let mut circuit = CircuitSpec {
            tensors: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            stages: Vec::new(),
            complex: part.packing == Packing::Complex,
        };
        for (place, (t, tensor)) in places.iter_mut().zip(scope.spec.tensors.iter().zip(scope.tensors)) {
            if let (Some(level), Some(parts), Some(scale)) = (t.level, t.parts, t.scale) {
                *place = circuit.tensors.len();
                // A public part does not tell what lies between: anything that fits.
                let room = params.level(level).map_or(1.0, |l| (params.modulus_bits(l) - 3.0).exp2() / scale);
                let bound = t.real_bound().unwrap_or(room);
                circuit.tensors.push(CircuitTensor { elements: tensor.elements, level, parts, scale, bound });
            }
        }
        Ok(Self {
            scope,
            params,
            hide: part.hide_weights.is_some(),
            places,
            circuit,
            circuit_stages: Vec::new(),
            uploads: Vec::new(),
            downloads: Vec::new(),
            client: Vec::new(),
            before: 0,
            whole: None,
        })
    }

    fn stage(&mut self, index: usize, stage: &'a StageSpec) -> Result<(), PlanError> {
        let Place { inputs, output, ops } = self.scope.stage(stage)?;
        let name = stage.name.as_str();
        let kind = match &stage.kind {
            StageKind::Client { .. } => {
                self.client.push(ClientStage { name: name.to_owned(), ops });
                if self.uploads.is_empty() {
                    self.before = self.client.len();
                }
                return Ok(());
            }
            StageKind::Encrypt {} => return self.encrypt(name, inputs[0], output),
            StageKind::Decrypt {} => return self.decrypt(name, inputs[0], output),
            StageKind::Packed(s) => return self.packed((index, name), s, [inputs[0], output]),
            StageKind::Linear(s) => self.linear(name, s)?,
            StageKind::Combine { factors, constant } => {
                self.combine(name, inputs.len(), [("factors", factors), ("constant", constant)])?
            }
            StageKind::Multiply {} => CircuitKind::Multiply,
            StageKind::Relinearise {} => CircuitKind::Relinearise,
            StageKind::Rescale {} => CircuitKind::Rescale,
            other => {
                // The grammar has refused it.
                return Err(PlanError::Unsupported(format!("kind '{}' of stage '{name}'", other.name())));
            }
        };
        let inputs = inputs.iter().map(|i| self.places[*i]).collect();
        let (name, output) = (name.to_owned(), self.places[output]);
        self.circuit.stages.push(CircuitStage { name, inputs, output, kind });
        self.circuit_stages.push(index);
        Ok(())
    }

    fn link(&self, stage: &str, real: usize, cipher: usize) -> Result<Link, PlanError> {
        let fail = |detail: &str| PlanError::Linear { stage: stage.to_owned(), detail: detail.into() };
        let (spec, elements) = (&self.scope.spec.tensors[cipher], self.scope.tensors[cipher].elements);
        if self.scope.tensors[real].elements != elements {
            return Err(fail("the tensors have different numbers of elements"));
        }
        let Some(bound) = spec.real_bound() else { return Err(fail("the ciphertexts have no bound")) };
        Ok(Link {
            number: 0,
            stage: stage.to_owned(),
            real,
            cipher,
            elements,
            ciphertexts: elements,
            // Of a packed plan these follow from its one stage.
            level: spec.level.unwrap_or(1),
            parts: spec.parts.unwrap_or(2),
            scale: spec.scale.unwrap_or(1.0),
            bound,
            told: bound,
            noise_bits: spec.noise_bits.unwrap_or(0),
        })
    }

    fn encrypt(&mut self, stage: &str, real: usize, cipher: usize) -> Result<(), PlanError> {
        if !self.downloads.is_empty() {
            return Err(PlanError::Structure(format!(
                "stage '{stage}' encrypts after a decryption: that is interaction"
            )));
        }
        let number = self.uploads.len();
        let link = self.link(stage, real, cipher)?;
        let told = if self.circuit.complex { link.bound * std::f64::consts::SQRT_2 } else { link.bound };
        let link = Link { number, told, ..link };
        self.uploads.push(link);
        self.circuit.inputs.push(self.places[cipher]);
        Ok(())
    }

    fn decrypt(&mut self, stage: &str, cipher: usize, real: usize) -> Result<(), PlanError> {
        let number = self.downloads.len();
        let link = self.link(stage, real, cipher)?;
        let spec = &self.scope.spec.tensors[cipher];
        let told = told_bound(self.scope.spec, spec, link.bound);
        let link = Link { number, told, ..link };
        if spec.noise_bits.is_none() {
            let detail = "what is decrypted states noise_bits".into();
            return Err(PlanError::Linear { stage: stage.to_owned(), detail });
        }
        self.downloads.push(link);
        self.circuit.outputs.push(self.places[cipher]);
        Ok(())
    }

    fn packed(
        &mut self,
        (index, name): (usize, &str),
        s: &'a NetworkSpec,
        ends: [usize; 2],
    ) -> Result<(), PlanError> {
        let bounds = ends.map(|i| self.scope.spec.tensors[i].real_bound().unwrap_or(0.0));
        let elements = ends.map(|i| self.scope.tensors[i].elements);
        let arrays: Vec<String> = s.network.iter().flat_map(packed::arrays).collect();
        let names = s.uploads.iter().map(|u| &u.slots).chain([&s.places]).chain(&arrays);
        self.scope.reads(names.cloned());
        let parts =
            PackedParts::check((name, s), self.params, self.scope.files, (elements, bounds, self.hide))?;
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

    fn linear(&mut self, stage: &str, s: &LinearSpec) -> Result<CircuitKind, PlanError> {
        let geometry = s
            .geometry
            .checked()
            .map_err(|e| PlanError::Linear { stage: stage.to_owned(), detail: e.to_string() })?;
        let weights = match self.scope.arrays(stage, [("weights", &s.weights), ("bias", &s.bias)])? {
            None => None,
            Some([w, b]) => Some((self.weights(w, &s.geometry.weight_shape())?, self.reals(b)?)),
        };
        Ok(CircuitKind::Linear(Box::new(CircuitLinear { geometry, weights })))
    }

    fn combine(
        &mut self,
        stage: &str,
        count: usize,
        arrays: [(&str, &Option<String>); 2],
    ) -> Result<CircuitKind, PlanError> {
        let Some([f, c]) = self.scope.arrays(stage, arrays)? else {
            return Ok(CircuitKind::Combine { factors: None });
        };
        let (factors, constant) = (self.integers(f)?, self.reals(c)?);
        if factors.len() != count || constant.len() != 1 {
            let detail = format!("{} factors and {} constants", factors.len(), constant.len());
            return Err(PlanError::Linear { stage: stage.to_owned(), detail });
        }
        Ok(CircuitKind::Combine { factors: Some((factors, constant[0])) })
    }

    fn finish(mut self) -> Result<Found, PlanError> {
        let (with, all) = self.scope.finish()?;
        if self.uploads.is_empty() || self.downloads.is_empty() {
            return Err(PlanError::Structure("the plan encrypts nothing, or decrypts nothing".into()));
        }
        if let Some(parts) = self.whole.take() {
            self.packed_links(&parts)?;
            return Ok(Found {
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
        let ciphers = self.scope.spec.tensors.iter().filter(|t| t.kind == KindSpec::Cipher);
        let names: Vec<String> = ciphers.map(|t| t.name.clone()).collect();
        let circuit = Circuit::new(self.params, self.circuit).map_err(|e| match e {
            CircuitError::Stage { stage, detail } => PlanError::Linear { stage, detail },
            CircuitError::Tensor { tensor, detail } => {
                PlanError::Structure(format!("tensor '{}': {detail}", names.get(tensor).map_or("?", |n| n)))
            }
            other => PlanError::Structure(other.to_string()),
        })?;
        Ok(Found {
            work: Work::Batch(Box::new(circuit)),
            circuit_stages: self.circuit_stages,
            places: self.places,
            uploads: self.uploads,
            downloads: self.downloads,
            client: self.client,
            before: self.before,
            weights: with == all,
        })
    }
}
