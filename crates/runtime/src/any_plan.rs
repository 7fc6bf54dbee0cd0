//! A checked plan of whichever trust model its file names: one way to read, to check and to cost plans of all of them.

use crate::error::Error;
use crate::non_interactive::{self, NonInteractivePlan};
use crate::plan::spec::Trust;
use crate::plan::{self, Cost, Files, Plan, PlanError, PlanOptions};
use crate::two_party::{self, TwoPartyPlan};

/// A checked plan.
#[derive(Clone, Debug)]
pub enum AnyPlan {
    /// The client computes the non-linear layers.
    ClientAided(Plan),
    /// Both parties do, on shares.
    TwoParty(TwoPartyPlan),
    /// Nobody does.
    NonInteractive(NonInteractivePlan),
}

impl AnyPlan {
    /// Reads and checks a plan, complete or public part.
    ///
    /// # Errors
    /// [`PlanError`] for every way in which the bytes can be wrong.
    pub fn from_bytes(bytes: &[u8], options: &PlanOptions) -> Result<Self, PlanError> {
        plan::open(bytes, &options.limits, |json, files| Self::from_parts(json, files, options))
    }

    /// Checks a plan given as JSON and arrays.
    ///
    /// # Errors
    /// [`PlanError`] for every way in which they can be wrong.
    pub fn from_parts(json: &str, files: &Files<'_>, options: &PlanOptions) -> Result<Self, PlanError> {
        let spec = plan::read(json, options)?;
        Ok(match spec.trust {
            Trust::ClientAided => Self::ClientAided(Plan::from_spec(spec, json, files, options)?),
            Trust::TwoParty => Self::TwoParty(TwoPartyPlan::from_spec(spec, json, files, options)?),
            Trust::NonInteractive => {
                Self::NonInteractive(NonInteractivePlan::from_spec(spec, json, files, options)?)
            }
        })
    }

    /// The part that clients receive: what [`crate::public`] lists, and nothing else.
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

    /// Whether what only the server knows is present.
    #[must_use]
    pub fn has_weights(&self) -> bool {
        match self {
            Self::ClientAided(p) => p.has_weights(),
            Self::TwoParty(p) => p.has_weights(),
            Self::NonInteractive(p) => p.has_weights(),
        }
    }
}
