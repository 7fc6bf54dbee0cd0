//! The checked non-interactive plan.

use super::packed::PackedParts;
use super::trace::Counted;
use crate::plan::spec::{PlanSpec, Trust};
use crate::plan::{Checked, Files, Model, Plan, PlanError, PlanOptions};
use hushnet_layers::ckks_batch::Circuit;
use hushnet_rlwe::ckks::CkksParams;

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
pub type NonInteractivePlan = Checked<NonInteractive>;

/// What the server computes, by engine.
pub(crate) enum Work {
    /// A feature of many images in every ciphertext.
    Batch(Box<Circuit>),
    /// Many features of one image.
    Packed(Box<PackedParts>),
}

/// The part of a plan that the non-interactive executors run.
pub struct NonInteractive {
    pub(crate) params: CkksParams,
    pub(crate) work: Work,
    /// Index of each stage of the circuit in the plan's stages.
    pub(crate) circuit_stages: Vec<usize>,
    pub(crate) uploads: Vec<Link>,
    pub(crate) downloads: Vec<Link>,
    pub(crate) client: Plan,
    /// The client's stages before encryption, as indices in `client`.
    pub(crate) before: usize,
}

impl Model for NonInteractive {
    const TRUST: Trust = Trust::NonInteractive;

    fn check(
        spec: PlanSpec,
        json: &str,
        files: &Files<'_>,
        options: &PlanOptions,
    ) -> Result<NonInteractivePlan, PlanError> {
        super::check::check(spec, json, files, options)
    }

    fn public_files(&self) -> Files<'_> {
        match &self.work {
            Work::Batch(_) => Files::new(),
            Work::Packed(p) => p.public_files(),
        }
    }
}

impl NonInteractivePlan {
    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &CkksParams {
        &self.model().params
    }
    /// What the server of a batch plan computes.
    #[must_use]
    pub fn circuit(&self) -> Option<&Circuit> {
        match &self.model().work {
            Work::Batch(circuit) => Some(circuit),
            Work::Packed(_) => None,
        }
    }
    /// What there is to a packed plan.
    #[must_use]
    pub fn packed(&self) -> Option<&PackedParts> {
        match &self.model().work {
            Work::Batch(_) => None,
            Work::Packed(parts) => Some(parts),
        }
    }
    /// Operations that a server counts for a block; of a packed plan without weights none are known.
    #[must_use]
    pub fn counted(&self) -> Counted {
        match &self.model().work {
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
        match &self.model().work {
            Work::Batch(circuit) => circuit.peak_bytes(),
            Work::Packed(parts) => parts.peak_bytes(),
        }
    }
    /// Images in a full block.
    #[must_use]
    pub fn block_images(&self) -> usize {
        match &self.model().work {
            Work::Batch(circuit) => circuit.images(),
            Work::Packed(parts) => parts.images,
        }
    }
    /// The tensors that the client encrypts, in order.
    #[must_use]
    pub fn uploads(&self) -> &[Link] {
        &self.model().uploads
    }
    /// The tensors that the client decrypts, in order.
    #[must_use]
    pub fn downloads(&self) -> &[Link] {
        &self.model().downloads
    }
    /// Bits of the flood, where results are hidden.
    #[must_use]
    pub fn flood_bits(&self) -> Option<u32> {
        self.spec().params.non_interactive.as_ref()?.hide_weights.map(|h| h.flood_bits)
    }
    pub(super) fn client(&self) -> &Plan {
        &self.model().client
    }
}
