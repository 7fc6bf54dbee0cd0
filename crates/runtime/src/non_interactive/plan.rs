//! The checked non-interactive plan.

use super::packed::PackedParts;
use super::spec::PlanSpec;
use super::trace::Counted;
use crate::plan::{self, Limits, Plan, PlanError, PlanOptions, Port, Tensor, TensorBytes};
use hushnet_layers::ckks_batch::Circuit;
use hushnet_rlwe::ckks::CkksParams;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A tensor that the client encrypts or decrypts.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Position among the uploads, or the downloads.
    pub number: usize,
    /// Name of the stage.
    pub stage: String,
    /// The client's tensor.
    pub real: usize,
    /// The tensor of ciphertexts.
    pub cipher: usize,
    /// Features of an image.
    pub elements: usize,
    /// Ciphertexts of a block.
    pub ciphertexts: usize,
    /// Data primes of a ciphertext.
    pub level: usize,
    /// Polynomials of a ciphertext.
    pub parts: usize,
    /// Exact scale.
    pub scale: f64,
    /// Planned largest absolute value.
    pub bound: f64,
    /// The bound that ciphertexts carry, no less than `bound`: of results what the public part tells; of inputs in complex slots that of two
    /// values together.
    pub told: f64,
    /// Decrypted tensors: log2 of the largest deviation of the error before any flood, in ring units.
    pub noise_bits: u32,
}

/// A checked non-interactive plan; cheap to clone.
#[derive(Clone)]
pub struct NonInteractivePlan(pub(super) Arc<Parts>);

/// What the server computes, by engine.
pub(super) enum Work {
    /// A feature of many images in every ciphertext.
    Batch(Box<Circuit>),
    /// Many features of one image.
    Packed(Box<PackedParts>),
}

pub(super) struct Parts {
    pub spec: PlanSpec,
    pub json: String,
    pub params: CkksParams,
    pub work: Work,
    /// Index of each stage of the circuit in the plan's stages.
    pub circuit_stages: Vec<usize>,
    pub uploads: Vec<Link>,
    pub downloads: Vec<Link>,
    pub client: Plan,
    /// The client's stages before encryption, as indices in `client`.
    pub before: usize,
    pub weights: bool,
}

impl std::fmt::Debug for NonInteractivePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stages = self.0.spec.stages.len();
        write!(f, "NonInteractivePlan({:?}, {stages} stages, weights: {})", self.name(), self.has_weights())
    }
}

impl NonInteractivePlan {
    /// Reads and checks a plan file.
    ///
    /// # Errors
    /// [`PlanError`] for every way in which the file can be wrong.
    pub fn load(path: &Path, options: &PlanOptions) -> Result<Self, PlanError> {
        let size = std::fs::metadata(path)?.len();
        Limits::check("the plan file", size, options.limits.file_bytes)?;
        Self::from_bytes(&std::fs::read(path)?, options)
    }

    /// Reads and checks a plan, complete or public part.
    ///
    /// # Errors
    /// [`PlanError`] for every way in which the bytes can be wrong.
    pub fn from_bytes(bytes: &[u8], options: &PlanOptions) -> Result<Self, PlanError> {
        plan::open(bytes, &options.limits, |json, tensors| Self::from_parts(json, tensors, options))
    }

    /// Checks a plan given as JSON and tensors.
    ///
    /// # Errors
    /// [`PlanError`] for every way in which they can be wrong.
    pub fn from_parts(
        json: &str,
        tensors: &BTreeMap<String, TensorBytes<'_>>,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        Limits::check("the plan's JSON", json.len() as u64, options.limits.json())?;
        crate::tally::checked();
        let spec: PlanSpec = serde_json::from_str(json).map_err(|e| PlanError::Json(e.to_string()))?;
        super::check::check(spec, json, tensors, options)
    }

    /// A plan file of unchecked parts, as a compiler writes it.
    ///
    /// # Errors
    /// [`PlanError`] when the container cannot be written.
    pub fn file(json: &str, tensors: &BTreeMap<String, TensorBytes<'_>>) -> Result<Vec<u8>, PlanError> {
        plan::encode(json, tensors)
    }

    /// The part that clients receive: what [`crate::public`] lists, and nothing else.
    ///
    /// # Errors
    /// [`PlanError`] when the container cannot be written.
    pub fn public_part(&self) -> Result<Vec<u8>, PlanError> {
        let told = crate::public::non_interactive(&self.0.spec);
        let json = serde_json::to_string(&told).map_err(|e| PlanError::Json(e.to_string()))?;
        let files = match &self.0.work {
            Work::Batch(_) => BTreeMap::new(),
            Work::Packed(p) => p.public_files(),
        };
        plan::encode(&json, &files)
    }

    /// The plan's JSON, byte for byte as in the file.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.0.json
    }
    /// The plan as written.
    #[must_use]
    pub fn spec(&self) -> &PlanSpec {
        &self.0.spec
    }
    /// Name of the network.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.spec.name
    }
    /// CKKS parameters.
    #[must_use]
    pub fn params(&self) -> &CkksParams {
        &self.0.params
    }
    /// What the server of a batch plan computes.
    #[must_use]
    pub fn circuit(&self) -> Option<&Circuit> {
        match &self.0.work {
            Work::Batch(circuit) => Some(circuit),
            Work::Packed(_) => None,
        }
    }
    /// What there is to a packed plan.
    #[must_use]
    pub fn packed(&self) -> Option<&PackedParts> {
        match &self.0.work {
            Work::Batch(_) => None,
            Work::Packed(parts) => Some(parts),
        }
    }
    /// Operations that a server counts for a block; of a packed plan without weights none are known.
    #[must_use]
    pub fn counted(&self) -> Counted {
        match &self.0.work {
            Work::Batch(circuit) => circuit.cost().into(),
            Work::Packed(parts) => parts.circuit().map_or_else(Counted::default, |c| c.counts().into()),
        }
    }
    /// Names of the steps within a packed stage, of which traces tell the time; none in batches.
    #[must_use]
    pub fn steps(&self) -> Vec<String> {
        self.packed().map_or_else(Vec::new, PackedParts::steps)
    }
    /// Bytes of ciphertexts that the server holds at once for a block.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        match &self.0.work {
            Work::Batch(circuit) => circuit.peak_bytes(),
            Work::Packed(parts) => parts.peak_bytes(),
        }
    }
    /// Images in a full block.
    #[must_use]
    pub fn block_images(&self) -> usize {
        self.circuit().map_or(1, Circuit::images)
    }
    /// What the client encrypts.
    #[must_use]
    pub fn uploads(&self) -> &[Link] {
        &self.0.uploads
    }
    /// What the client decrypts.
    #[must_use]
    pub fn downloads(&self) -> &[Link] {
        &self.0.downloads
    }
    /// Tensors; those of ciphertexts appear as real ones.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        self.0.client.tensors()
    }
    /// Inputs of the network.
    #[must_use]
    pub fn inputs(&self) -> &[Port] {
        self.0.client.inputs()
    }
    /// Outputs of the network (the client plan keeps more).
    #[must_use]
    pub fn outputs(&self) -> &[Port] {
        &self.0.client.outputs()[..self.0.spec.outputs.len()]
    }
    /// Bits of the flood, where results are hidden.
    #[must_use]
    pub fn flood_bits(&self) -> Option<u32> {
        self.0.spec.hide_weights.map(|h| h.flood_bits)
    }
    /// Whether the parameters are below the security table.
    #[must_use]
    pub fn insecure(&self) -> bool {
        self.0.spec.params.insecure
    }
    /// Whether weights are present (the server's plan) or not (the public part).
    #[must_use]
    pub fn has_weights(&self) -> bool {
        self.0.weights
    }
    pub(super) fn client(&self) -> &Plan {
        &self.0.client
    }
}
