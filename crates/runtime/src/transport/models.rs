//! Models of a server, by name: what clients may ask for, and what is told of each.

use super::bridge::Queue;
use super::metrics::ModelMetrics;
use crate::error::{Error, ProtocolError, TransportError};
use crate::plan::{Limits, Port, Tensor, Trust};
use crate::session::server::{Served, SessionMemory};
use crate::session::AnyPlan;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::Semaphore;

/// Bytes of the longest name that a model may have.
pub const NAME_BYTES: usize = 64;
/// The name of a model that was given none.
pub const DEFAULT_NAME: &str = "model";

/// Whether a model may be called so: 1 to [`NAME_BYTES`] letters, digits, `.`, `_` and `-`, a letter or digit first, and no `..`. Names are
/// looked up in a table and never become a path.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let known = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    name.len() <= NAME_BYTES
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && name.bytes().all(known)
        && !name.contains("..")
}

/// What is told of a tensor that goes in or comes out: its public part, in the words of the Open Inference Protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorAbout {
    /// Name in the plan, which clients see.
    pub name: String,
    /// Type of the numbers that a client gives or gets.
    pub datatype: &'static str,
    /// Shape with the images first, as -1.
    pub shape: Vec<i64>,
}

/// What is told of a model to those who name it: fields of the public part of its plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct About {
    /// The trust model, as `hushnet-two-party`.
    pub platform: String,
    /// Inputs in the order of the plan.
    pub inputs: Vec<TensorAbout>,
    /// Outputs in the order of the plan.
    pub outputs: Vec<TensorAbout>,
}

impl From<&AnyPlan> for About {
    fn from(plan: &AnyPlan) -> Self {
        let tensor = |(port, tensor): (&Port, &Tensor)| TensorAbout {
            name: port.name.clone(),
            datatype: "FP64",
            shape: std::iter::once(-1).chain(tensor.shape.iter().map(|d| *d as i64)).collect(),
        };
        let trust = match plan.trust() {
            Trust::ClientAided => "client-aided",
            Trust::TwoParty => "two-party",
            Trust::NonInteractive => "non-interactive",
        };
        Self {
            platform: format!("hushnet-{trust}"),
            inputs: plan.inputs().map(tensor).collect(),
            outputs: plan.outputs().map(tensor).collect(),
        }
    }
}

/// A prepared plan under the name that clients ask for.
#[derive(Clone)]
pub struct Hosted {
    /// The name of the model, as [`is_name`] allows it.
    pub name: String,
    /// The plan, prepared for serving.
    pub served: Arc<dyn Served>,
    /// What is told to those who name the model.
    pub about: About,
}

/// A model as sessions have it: they keep the one that they began with.
pub(super) struct Model {
    pub name: String,
    pub served: Arc<dyn Served>,
    pub about: About,
    pub metrics: Arc<ModelMetrics>,
}

impl Model {
    /// What may wait for a session of this plan, as the bridge counts it.
    pub(super) fn queue(&self) -> Queue {
        let waiting = self.served.waiting();
        Queue { frames: waiting.frames.unwrap_or(Semaphore::MAX_PERMITS), bytes: waiting.bytes }
    }
}

/// The models of a server at this moment.
pub(super) struct Models {
    now: RwLock<Arc<BTreeMap<String, Arc<Model>>>>,
    listed: bool,
}

impl Models {
    /// Models for a server whose sessions may hold so many bytes; `listed`: clients may learn all names.
    pub(super) fn new(hosted: Vec<Hosted>, memory: u64, listed: bool) -> Result<Self, Error> {
        Ok(Self { now: RwLock::new(Arc::new(table(hosted, memory, &BTreeMap::new())?)), listed })
    }

    /// Other models from now on. Counters go on under the same name.
    pub(super) fn replace(&self, hosted: Vec<Hosted>, memory: u64) -> Result<(), Error> {
        let table = table(hosted, memory, &self.all())?;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
        Ok(())
    }

    pub(super) fn all(&self) -> Arc<BTreeMap<String, Arc<Model>>> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The model of a name; of no name the only one that there is.
    pub(super) fn find(&self, name: &str) -> Result<Arc<Model>, ProtocolError> {
        let all = self.all();
        let found = match name {
            "" if all.len() == 1 => all.values().next(),
            name => all.get(name),
        };
        let names = || if self.listed { all.keys().cloned().collect() } else { Vec::new() };
        found.cloned().ok_or_else(|| ProtocolError::NoModel { names: names() })
    }

    /// Bytes of the largest frame of any model.
    pub(super) fn largest_frame(&self) -> usize {
        self.all().values().map(|m| m.served.largest_frame()).max().unwrap_or(0)
    }

    /// The most bytes that a session of any model may hold, part by part.
    pub(super) fn most(&self) -> SessionMemory {
        self.all().values().map(|m| m.served.memory()).fold(SessionMemory::default(), |a, b| a.max(&b))
    }

    /// Bytes of a session of the model that needs least between blocks.
    pub(super) fn least_session(&self) -> u64 {
        self.all().values().map(|m| m.served.memory().session).min().unwrap_or(0)
    }
}

fn table(
    hosted: Vec<Hosted>,
    memory: u64,
    before: &BTreeMap<String, Arc<Model>>,
) -> Result<BTreeMap<String, Arc<Model>>, Error> {
    let mut out = BTreeMap::new();
    for Hosted { name, served, about } in hosted {
        if !is_name(&name) {
            return Err(TransportError::Models(format!(
                "a model cannot be called '{}'; a name has 1 to {NAME_BYTES} letters, digits, '.', '_' and '-', begins with a letter or a \
                 digit, and has no '..'; rename its file",
                name.escape_default().take(2 * NAME_BYTES).collect::<String>()
            ))
            .into());
        }
        Limits::check("the memory that one session needs", served.memory().total(), memory)?;
        let metrics = before.get(&name).map_or_else(Arc::default, |model| model.metrics.clone());
        let model = Arc::new(Model { name: name.clone(), served, about, metrics });
        if out.insert(name.clone(), model).is_some() {
            let text = format!("two models are called '{name}'; give each file a name of its own");
            return Err(TransportError::Models(text).into());
        }
    }
    if out.is_empty() {
        return Err(
            TransportError::Models("there is no model to serve; name at least one plan".into()).into()
        );
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_paths() {
        let long = "a".repeat(NAME_BYTES + 1);
        for good in ["a", "digits", "ResNet-50_v1.5", "0", &long[1..]] {
            assert!(is_name(good), "{good}");
        }
        for bad in [
            "", ".", "..", "a..b", "../a", "/a", "a/b", "a\\b", "-a", "_a", ".a", "a b", "a\0", "ä", "a%2f",
            &long,
        ] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }
}
