//! Plans and sessions of any trust model: a file says which one it is of, and what follows is the same for all. The client's half stands in
//! [`client`], the server's in [`server`].

pub mod client;
pub mod server;

use crate::error::Error;
use crate::non_interactive::{self, NonInteractivePlan};
use crate::plan::{self, spec::PlanSpec, Cost, Limits, Plan, PlanError, PlanOptions, Port, Tensor, Trust};
use crate::two_party::{self, TwoPartyPlan};
use sha2::{Digest, Sha256};
use std::path::Path;

pub use client::{open, open_keeping, AnyClient, ClientSession};
pub use server::{AnyModel, Kept, Served, SessionEvent, SessionMemory, Waiting};

/// A checked plan of any trust model, complete or public part. Copies share what they hold.
#[derive(Clone, Debug)]
pub enum AnyPlan {
    /// The client computes the non-linear layers.
    ClientAided(Plan),
    /// Both parties compute on shares.
    TwoParty(TwoPartyPlan),
    /// The server computes everything, under encryption.
    NonInteractive(NonInteractivePlan),
}

impl AnyPlan {
    /// Reads a plan file: compares its digest once, finds its trust model, and checks it once.
    ///
    /// # Errors
    /// [`PlanError`] for every way in which the bytes can be wrong.
    pub fn from_bytes(bytes: &[u8], options: &PlanOptions) -> Result<Self, PlanError> {
        plan::open(bytes, &options.limits, |json, files| {
            let spec = plan::read(json, options)?;
            Ok(match spec.trust {
                Trust::ClientAided => Self::ClientAided(Plan::from_spec(spec, json, files, options)?),
                Trust::TwoParty => Self::TwoParty(TwoPartyPlan::from_spec(spec, json, files, options)?),
                Trust::NonInteractive => {
                    Self::NonInteractive(NonInteractivePlan::from_spec(spec, json, files, options)?)
                }
            })
        })
    }

    /// Reads a plan file from disk, as [`Self::from_bytes`].
    ///
    /// # Errors
    /// [`PlanError`] for every way in which the file can be wrong, and when it cannot be read.
    pub fn load(path: &Path, options: &PlanOptions) -> Result<Self, PlanError> {
        let size = std::fs::metadata(path)?.len();
        Limits::check("the plan file", size, options.limits.file_bytes)?;
        Self::from_bytes(&std::fs::read(path)?, options)
    }

    /// The trust model of the plan.
    #[must_use]
    pub fn trust(&self) -> Trust {
        match self {
            Self::ClientAided(_) => Trust::ClientAided,
            Self::TwoParty(_) => Trust::TwoParty,
            Self::NonInteractive(_) => Trust::NonInteractive,
        }
    }

    fn spec(&self) -> &PlanSpec {
        match self {
            Self::ClientAided(p) => p.spec(),
            Self::TwoParty(p) => p.spec(),
            Self::NonInteractive(p) => p.spec(),
        }
    }

    /// SHA-256 of what every server of this plan tells its clients: the JSON of the public part, without the name that a server gives to a preparation.
    /// Equal for a plan with weights and for its public part.
    ///
    /// # Errors
    /// [`PlanError`] when the JSON cannot be written.
    pub fn identity(&self) -> Result<[u8; 32], PlanError> {
        let mut spec = crate::public::told(self.spec());
        if let Some(part) = &mut spec.params.two_party {
            part.preparation = None;
        }
        Ok(Sha256::digest(plan::write(&spec)?).into())
    }

    /// The plan's JSON, byte for byte as in the file.
    #[must_use]
    pub fn json(&self) -> &str {
        match self {
            Self::ClientAided(p) => p.json(),
            Self::TwoParty(p) => p.json(),
            Self::NonInteractive(p) => p.json(),
        }
    }

    /// Name of the network, for messages and reports.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::ClientAided(p) => p.name(),
            Self::TwoParty(p) => p.name(),
            Self::NonInteractive(p) => p.name(),
        }
    }

    /// Ring degree N of the ciphertexts.
    #[must_use]
    pub fn ring_degree(&self) -> usize {
        match self {
            Self::ClientAided(p) => p.ring_degree(),
            Self::TwoParty(p) => p.ring_degree(),
            Self::NonInteractive(p) => p.params().ring_degree(),
        }
    }

    /// Whether weights are present (the server's plan) or not (the public part).
    #[must_use]
    pub fn has_weights(&self) -> bool {
        match self {
            Self::ClientAided(p) => p.has_weights(),
            Self::TwoParty(p) => p.has_weights(),
            Self::NonInteractive(p) => p.has_weights(),
        }
    }

    /// The number of stages of the plan.
    #[must_use]
    pub fn stages(&self) -> usize {
        match self {
            Self::ClientAided(p) => p.stages().len(),
            Self::TwoParty(p) => p.stages().len(),
            Self::NonInteractive(p) => p.spec().stages.len(),
        }
    }

    /// Whether the parameters are below the security table (two-party plans cannot be).
    #[must_use]
    pub fn insecure(&self) -> bool {
        match self {
            Self::ClientAided(p) => p.insecure(),
            Self::TwoParty(_) => false,
            Self::NonInteractive(p) => p.insecure(),
        }
    }

    /// Refuses a plan below 128 bits, unless the caller allows it.
    ///
    /// # Errors
    /// [`PlanError::Insecure`].
    pub fn allowed(&self, insecure: bool) -> Result<(), PlanError> {
        let bits = match self {
            Self::ClientAided(p) => p.spec().params.security_bits,
            Self::NonInteractive(p) => p.spec().params.security_bits,
            Self::TwoParty(_) => return Ok(()),
        };
        if self.insecure() && !insecure {
            return Err(PlanError::Insecure(format!("{bits} bits claimed")));
        }
        Ok(())
    }

    /// Inputs of the network, with their tensors.
    pub fn inputs(&self) -> impl Iterator<Item = (&Port, &Tensor)> {
        let (ports, tensors) = match self {
            Self::ClientAided(p) => (p.inputs(), p.tensors()),
            Self::TwoParty(p) => (p.inputs(), p.tensors()),
            Self::NonInteractive(p) => (p.inputs(), p.tensors()),
        };
        ports.iter().map(|p| (p, &tensors[p.tensor]))
    }

    /// Outputs of the network, with their tensors.
    pub fn outputs(&self) -> impl Iterator<Item = (&Port, &Tensor)> {
        let (ports, tensors) = match self {
            Self::ClientAided(p) => (p.outputs(), p.tensors()),
            Self::TwoParty(p) => (p.outputs(), p.tensors()),
            Self::NonInteractive(p) => (p.outputs(), p.tensors()),
        };
        ports.iter().map(|p| (p, &tensors[p.tensor]))
    }

    /// Exact bytes and rounds of a session that runs so many images: of two-party plans in one group, with the OT extension that sends least.
    ///
    /// # Errors
    /// None for a checked plan but [`Error::Internal`].
    pub fn cost(&self, images: usize) -> Result<Cost, Error> {
        match self {
            Self::ClientAided(p) => Ok(plan::cost::client_aided(p, images)),
            Self::TwoParty(p) => two_party::cost::session(p, images),
            Self::NonInteractive(p) => Ok(non_interactive::cost(p, images)),
        }
    }

    /// The file that clients receive: what [`crate::public`] lists, and nothing else. The public part of a public part is itself.
    ///
    /// # Errors
    /// [`PlanError`] when the container cannot be written.
    pub fn public_part(&self) -> Result<Vec<u8>, PlanError> {
        match self {
            Self::ClientAided(p) => p.public_part(),
            Self::TwoParty(p) => p.public_part(),
            Self::NonInteractive(p) => p.public_part(),
        }
    }
}
