//! The checked two-party plan.

use super::methods::{Method, Placed};
use super::spec::{PlanSpec, Protocol, Reveal};
use crate::plan::{
    self, GeometrySpec, Limits, LinearWeights, Plan, PlanError, PlanOptions, Port, Tensor, TensorBytes,
};
use crate::program::Moves;
use hushnet_mpc::{PoolShape, Range, Ring, Rounding, Slope};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// What a stage computes.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Operations of the client in the clear: index of the stage in [`TwoPartyPlan::client`].
    Client(usize),
    /// The client's integers become shares.
    Share,
    /// A linear layer.
    Linear(Box<Linear>),
    /// `max(x, 0)`.
    Relu,
    /// `x < 0 ? floor(slope x) : x`, perhaps one unit more.
    LeakyRelu {
        /// Slope.
        slope: Slope,
        /// What is known of the scaled value.
        range: Range,
    },
    /// `min(max(x, low), high)`.
    Clip {
        /// Whether low is zero.
        from_zero: bool,
        /// low and high, absent in a public part.
        ends: Option<(i64, i64)>,
        /// k: what is compared, a value less an end, is below 2^k in absolute value.
        reach: u32,
    },
    /// Arithmetic shift right.
    Truncate {
        /// Bits dropped.
        bits: u32,
        /// What is known of the value.
        range: Range,
        /// `Floor` where the result is opened.
        rounding: Rounding,
    },
    /// Maxima of windows; the shape is that of one image.
    MaxPool(PoolShape),
    /// Sums of windows.
    SumPool(Window),
    /// Product with a public integer.
    Scale(u64),
    /// Sum of two tensors.
    Add,
    /// Elements elsewhere; `None`: all stay where they are.
    Move(Option<Arc<Moves>>),
    /// Opened to the client.
    Reveal(Reveal),
}

/// A linear layer.
#[derive(Clone, Debug)]
pub struct Linear {
    /// How it is computed.
    pub method: &'static Method,
    /// What is computed.
    pub geometry: GeometrySpec,
    /// Bound of the norm of the weights that meet in one answer.
    pub weight_l2: f64,
    /// Weights, absent in a public part.
    pub weights: Option<Arc<LinearWeights>>,
}

/// Windows of sum pooling over `[channels, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Channels, height, width of the input.
    pub input: [usize; 3],
    /// Height and width of the output.
    pub output: [usize; 2],
    /// Height and width.
    pub kernel: [usize; 2],
    /// Steps down and right.
    pub stride: [usize; 2],
    /// Top, left.
    pub pads: [usize; 2],
}

/// A checked stage.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Name for messages.
    pub name: String,
    /// The kind as it stands in the plan.
    pub label: &'static str,
    /// What is computed.
    pub kind: Kind,
    /// How, where it is a non-linear layer.
    pub protocol: Protocol,
    /// The narrowest ring that holds what is compared, units of errors included; the shares' own where nothing is.
    pub compared: Ring,
    /// Tensor indices read (none for client stages, which know their own).
    pub inputs: Vec<usize>,
    /// Tensor index written (none for client stages).
    pub output: Option<usize>,
    /// Shared tensors that nobody reads after this stage.
    pub free: Vec<usize>,
}

/// A checked two-party plan.
#[derive(Clone)]
pub struct TwoPartyPlan(pub(super) Arc<Parts>);

pub(super) struct Parts {
    pub spec: PlanSpec,
    pub json: String,
    pub ring: Ring,
    /// Shared tensors appear as fixed ones of scale `2^-f`.
    pub tensors: Vec<Tensor>,
    /// f of shared tensors.
    pub frac_bits: Vec<Option<i32>>,
    pub stages: Vec<Stage>,
    pub client: Plan,
    pub weights: bool,
    pub peak_elements: usize,
}

impl std::fmt::Debug for TwoPartyPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "TwoPartyPlan({:?}, {} stages, weights: {})",
            self.name(),
            self.stages().len(),
            self.has_weights()
        )
    }
}

impl TwoPartyPlan {
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
        plan::encode(&self.public_json()?, &BTreeMap::new())
    }

    /// The JSON of the public part that a server gives to every client: it names the preparation, where set-ups belong to one.
    pub(super) fn served_json(&self) -> Result<String, PlanError> {
        let json = self.public_json()?;
        if !self.linear().any(|s| s.linear.method.sets_up()) {
            return Ok(json);
        }
        let mut spec: PlanSpec = serde_json::from_str(&json).map_err(|e| PlanError::Json(e.to_string()))?;
        let mut name = [0_u8; 32];
        getrandom::fill(&mut name).map_err(|e| PlanError::Structure(format!("no randomness: {e}")))?;
        spec.preparation = Some(name.iter().map(|b| format!("{b:02x}")).collect());
        serde_json::to_string(&spec).map_err(|e| PlanError::Json(e.to_string()))
    }

    /// SHA-256 of the public part's JSON: what both parties must agree on, and what names a client's stored set-ups. Equal for all clients of
    /// an honest server.
    ///
    /// # Errors
    /// [`PlanError`] when the JSON cannot be written.
    pub fn digest(&self) -> Result<[u8; 32], PlanError> {
        Ok(super::handshake::digest(&self.public_json()?))
    }

    /// The JSON of the public part.
    pub(super) fn public_json(&self) -> Result<String, PlanError> {
        let told = crate::public::two_party(self.spec());
        serde_json::to_string(&told).map_err(|e| PlanError::Json(e.to_string()))
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
    /// Ring degree N of the packed ciphertexts.
    #[must_use]
    pub fn ring_degree(&self) -> usize {
        self.0.spec.params.ring_degree
    }
    /// Z_2^l, the ring of the shares.
    #[must_use]
    pub fn ring(&self) -> Ring {
        self.0.ring
    }
    /// Tensors; shared ones appear as fixed ones of scale `2^-f`.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.0.tensors
    }
    /// f of a shared tensor, `None` for others.
    #[must_use]
    pub fn frac_bits(&self, tensor: usize) -> Option<i32> {
        self.0.frac_bits[tensor]
    }
    /// Stages in order.
    #[must_use]
    pub fn stages(&self) -> &[Stage] {
        &self.0.stages
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
    /// Whether weights, exact bounds and ends of clips are present (the server's plan) or not (the public part).
    #[must_use]
    pub fn has_weights(&self) -> bool {
        self.0.weights
    }
    /// Whether a linear stage works on many images in one ciphertext.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        self.linear().any(|s| s.linear.method.batches())
    }

    /// The linear stages.
    pub(super) fn linear(&self) -> impl Iterator<Item = Placed<'_>> {
        self.stages().iter().enumerate().filter_map(|(index, stage)| match &stage.kind {
            Kind::Linear(linear) => Some(Placed { index, stage, linear }),
            _ => None,
        })
    }

    /// k of a shared tensor, all of whose values are below 2^k in absolute value; `None` for others.
    pub(super) fn reach(&self, tensor: usize) -> Option<u32> {
        self.0.spec.tensors.get(tensor)?.reach_bits
    }

    /// Largest number of shared elements that are alive at once, for one image.
    #[must_use]
    pub fn peak_elements(&self) -> usize {
        self.0.peak_elements
    }
    /// The client's own stages as a plan of the interpreter.
    pub(super) fn client(&self) -> &Plan {
        &self.0.client
    }
}
