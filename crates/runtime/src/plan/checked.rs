//! The checked plan of any trust model: what all have, and the part of one.

use super::file::{encode, open, TensorBytes};
use super::spec::{PlanSpec, Trust};
use super::{Limits, PlanError, PlanOptions, Port, Tensor};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Arrays of a plan file by name.
pub type Files<'a> = BTreeMap<String, TensorBytes<'a>>;

/// The part of a checked plan that belongs to a trust model, and the check that makes it.
pub trait Model: Sized {
    /// The trust model.
    const TRUST: Trust;

    /// Checks a plan of this trust model.
    ///
    /// # Errors
    /// [`PlanError`] for every way in which it can be wrong.
    fn check(
        spec: PlanSpec,
        json: &str,
        files: &Files<'_>,
        options: &PlanOptions,
    ) -> Result<Checked<Self>, PlanError>;

    /// Arrays of the file that clients receive as well; most plans have none.
    fn public_files(&self) -> BTreeMap<String, TensorBytes<'_>> {
        BTreeMap::new()
    }
}

/// A checked plan with the part of the trust model `M`: immutable, cheap to clone, and only made by checking.
pub struct Checked<M>(Arc<Parts<M>>);

/// What a check hands over.
pub(crate) struct Parts<M> {
    pub spec: PlanSpec,
    pub json: String,
    pub tensors: Vec<Tensor>,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    pub weights: bool,
    pub model: M,
}

impl<M> Clone for Checked<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> std::fmt::Debug for Checked<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PlanSpec { name, trust, stages, .. } = &self.0.spec;
        let (trust, count) = (trust.name(), stages.len());
        write!(f, "Plan({name:?}, {trust}, {count} stages, weights: {})", self.0.weights)
    }
}

impl<M: Model> Checked<M> {
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
        open(bytes, &options.limits, |json, files| Self::from_parts(json, files, options))
    }

    /// Checks a plan given as JSON and arrays.
    ///
    /// # Errors
    /// [`PlanError`] for every way in which they can be wrong.
    pub fn from_parts(json: &str, files: &Files<'_>, options: &PlanOptions) -> Result<Self, PlanError> {
        Self::from_spec(read(json, options)?, json, files, options)
    }

    /// Checks a plan whose JSON has been read.
    ///
    /// # Errors
    /// [`PlanError`] for every way in which it can be wrong, another trust model among them.
    pub(crate) fn from_spec(
        spec: PlanSpec,
        json: &str,
        files: &Files<'_>,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        if spec.trust != M::TRUST {
            let (found, wanted) = (spec.trust.name(), M::TRUST.name());
            return Err(PlanError::Unsupported(format!("a {found} plan in a {wanted} run")));
        }
        crate::tally::checked();
        M::check(spec, json, files, options)
    }

    /// A plan file of unchecked parts, as a compiler writes it.
    ///
    /// # Errors
    /// [`PlanError`] when the container cannot be written.
    pub fn file(json: &str, files: &Files<'_>) -> Result<Vec<u8>, PlanError> {
        encode(json, files)
    }

    /// The part that clients receive: what [`crate::public`] lists, and nothing else.
    ///
    /// # Errors
    /// [`PlanError`] when the container cannot be written.
    pub fn public_part(&self) -> Result<Vec<u8>, PlanError> {
        encode(&self.public_json()?, &self.0.model.public_files())
    }

    /// The JSON of the public part.
    pub(crate) fn public_json(&self) -> Result<String, PlanError> {
        write(&crate::public::told(self.spec()))
    }
}

impl<M> Checked<M> {
    pub(crate) fn new(parts: Parts<M>) -> Self {
        Self(Arc::new(parts))
    }

    /// The part of the trust model.
    pub(crate) fn model(&self) -> &M {
        &self.0.model
    }

    /// The plan's JSON, byte for byte as in the file.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.0.json
    }
    /// The plan as it is written in its file.
    #[must_use]
    pub fn spec(&self) -> &PlanSpec {
        &self.0.spec
    }
    /// Name of the network, for messages and reports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.spec.name
    }
    /// Ring degree N: of batches the images in a full block, of other plans that of the packed ciphertexts.
    #[must_use]
    pub fn ring_degree(&self) -> usize {
        self.0.spec.params.ring_degree
    }
    /// Whether the parameters are below the security table.
    #[must_use]
    pub fn insecure(&self) -> bool {
        self.0.spec.params.insecure
    }
    /// Tensors as the client's interpreter sees them: shared ones as fixed ones of scale `2^-f`, ciphertexts as real ones.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.0.tensors
    }
    /// The inputs of the network, in the order of the plan.
    #[must_use]
    pub fn inputs(&self) -> &[Port] {
        &self.0.inputs
    }
    /// The outputs of the network, in the order of the plan.
    #[must_use]
    pub fn outputs(&self) -> &[Port] {
        &self.0.outputs
    }
    /// Whether what only the server knows is present (weights, and exact bounds and ends of clips) or not (the public part).
    #[must_use]
    pub fn has_weights(&self) -> bool {
        self.0.weights
    }
}

/// Reads the JSON of a plan of any trust model, unchecked but for its length and its version.
pub(crate) fn read(json: &str, options: &PlanOptions) -> Result<PlanSpec, PlanError> {
    /// What every version has.
    #[derive(serde::Deserialize)]
    struct Head {
        version: u32,
    }
    Limits::check("the plan's JSON", json.len() as u64, options.limits.json())?;
    let text = |e: serde_json::Error| PlanError::Json(e.to_string());
    let Head { version } = serde_json::from_str(json).map_err(text)?;
    if version != super::VERSION {
        return Err(PlanError::Version { found: version.to_string() });
    }
    serde_json::from_str(json).map_err(text)
}

/// A plan's JSON.
pub(crate) fn write(spec: &PlanSpec) -> Result<String, PlanError> {
    serde_json::to_string(spec).map_err(|e| PlanError::Json(e.to_string()))
}
