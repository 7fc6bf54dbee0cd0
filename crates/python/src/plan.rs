//! Plans.

use crate::checking::facts;
use crate::errors::{raise as raise_error, Kind};
use crate::guard::compute;
use hushnet_runtime as rt;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use rt::pending::Work;
use rt::two_party::PreparationStore;
use rt::{AnyModel, AnyPlan, Compute};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A checked, immutable plan of any trust model. It was read and checked once; its weights are prepared when they are first needed, and kept.
#[pyclass(frozen, module = "hushnet._native")]
pub struct Plan {
    plan: AnyPlan,
    prepared: Mutex<Option<Prepared>>,
}

/// Weights in the form of the kernels, and what they were prepared for.
struct Prepared {
    threads: Option<usize>,
    weight_memory: Option<usize>,
    /// Where the preparation is kept, if anywhere.
    store: Option<PreparationStore>,
    compute: Compute,
    model: AnyModel,
}

#[derive(FromPyObject)]
pub(crate) enum Source {
    Bytes(PyBackedBytes),
    Path(PathBuf),
}

/// How strictly plans are read.
pub(crate) fn options(allow_insecure: bool, memory_limit: Option<u64>) -> rt::PlanOptions {
    let mut options = rt::PlanOptions { allow_insecure, ..rt::PlanOptions::default() };
    if let Some(bytes) = memory_limit {
        options.limits.memory_bytes = bytes;
    }
    options
}

fn raise(e: rt::PlanError) -> PyErr {
    Kind::Plan.error(e)
}

impl Plan {
    pub fn new(plan: AnyPlan) -> Self {
        Self { plan, prepared: Mutex::default() }
    }

    pub fn plan(&self) -> &AnyPlan {
        &self.plan
    }

    /// The weights in the form of the kernels, with the pool that they work in. Calls for as many threads and as much memory for weights as the
    /// last one share them. Takes long the first time: not to be called with the interpreter lock.
    pub fn model(
        &self,
        threads: Option<usize>,
        weight_memory: Option<usize>,
        store: Option<&PreparationStore>,
    ) -> Result<(AnyModel, Compute), rt::Error> {
        let (model, compute, work) = self.announced(threads, weight_memory, store)?;
        match work {
            Some(work) => {
                let done = work();
                if done.is_err() {
                    // Nobody meets a model that has no weights and never will.
                    *self.prepared.lock().unwrap_or_else(PoisonError::into_inner) = None;
                }
                done?;
            }
            // Another thread may be at it.
            None => model.ready()?,
        }
        Ok((model, compute))
    }

    /// As [`Self::model`], and returns at once: with the work that prepares the weights, unless that was done or begun before.
    pub fn announced(
        &self,
        threads: Option<usize>,
        weight_memory: Option<usize>,
        store: Option<&PreparationStore>,
    ) -> Result<(AnyModel, Compute, Option<Work>), rt::Error> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |p: &&Prepared| {
            (p.threads, p.weight_memory) == (threads, weight_memory)
                && (store.is_none() || p.store.as_ref() == store)
        };
        if let Some(p) = prepared.as_ref().filter(same) {
            // The default pool may be another one by now.
            if threads.is_some() || p.compute.same(&compute(None)?) {
                return Ok((p.model.clone(), p.compute.clone(), None));
            }
        }
        // The old weights go first, so that both are never held.
        *prepared = None;
        let compute = compute(threads)?;
        let (model, work) = AnyModel::announce(&self.plan, compute.clone(), weight_memory, store)?;
        let (store, kept) = (store.cloned(), (model.clone(), compute.clone()));
        *prepared = Some(Prepared { threads, weight_memory, store, compute: kept.1, model: kept.0 });
        Ok((model, compute, Some(work)))
    }
}

#[pymethods]
impl Plan {
    /// Reads and checks a plan file of any trust model, or its bytes.
    #[staticmethod]
    #[pyo3(signature = (source, allow_insecure=false, memory_limit=None))]
    fn load(
        py: Python<'_>,
        source: Source,
        allow_insecure: bool,
        memory_limit: Option<u64>,
    ) -> PyResult<Self> {
        let options = options(allow_insecure, memory_limit);
        py.detach(|| match source {
            Source::Bytes(bytes) => AnyPlan::from_bytes(&bytes, &options).map_err(raise),
            Source::Path(path) => AnyPlan::load(&path, &options)
                .map_err(|e| Kind::Plan.error(format!("{}: {e}", path.display()))),
        })
        .map(Self::new)
    }

    /// PlanError where the plan is below 128 bits and that is not allowed.
    #[pyo3(signature = (insecure=false))]
    fn allowed(&self, insecure: bool) -> PyResult<()> {
        self.plan.allowed(insecure).map_err(raise)
    }

    /// The plan's JSON, as in the file.
    fn json(&self) -> &str {
        self.plan.json()
    }

    /// What clients receive: a plan file without weights.
    fn public_part<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.plan.public_part());
        Ok(PyBytes::new(py, &bytes.map_err(raise)?))
    }

    /// What follows exactly from the plan, as JSON: `cost` of a session that runs so many images, and under the trust model's name what is its own.
    #[pyo3(signature = (images=1))]
    fn facts(&self, py: Python<'_>, images: usize) -> PyResult<String> {
        py.detach(|| facts(&self.plan, images)).map_err(raise_error)
    }

    /// SHA-256 of what every server of this plan tells its clients, in hexadecimal digits: of a plan and of its public part the same.
    fn identity(&self) -> PyResult<String> {
        let identity = self.plan.identity().map_err(raise)?;
        Ok(identity.iter().map(|b| format!("{b:02x}")).collect())
    }

    /// "client-aided", "two-party" or "non-interactive".
    #[getter]
    fn trust(&self) -> &'static str {
        match self.plan {
            AnyPlan::ClientAided(_) => "client-aided",
            AnyPlan::TwoParty(_) => "two-party",
            AnyPlan::NonInteractive(_) => "non-interactive",
        }
    }

    #[getter]
    fn has_weights(&self) -> bool {
        self.plan.has_weights()
    }

    #[getter]
    fn name(&self) -> &str {
        self.plan.name()
    }

    #[getter]
    fn insecure(&self) -> bool {
        self.plan.insecure()
    }

    #[getter]
    fn ring_degree(&self) -> usize {
        self.plan.ring_degree()
    }

    /// Shapes per image by name.
    #[getter]
    fn inputs(&self) -> Vec<(String, Vec<usize>)> {
        self.plan.inputs().map(|(p, t)| (p.name.clone(), t.shape.clone())).collect()
    }

    /// Shapes per image by name.
    #[getter]
    fn outputs(&self) -> Vec<(String, Vec<usize>)> {
        self.plan.outputs().map(|(p, t)| (p.name.clone(), t.shape.clone())).collect()
    }

    /// Bytes of tensors that a client holds at once for a full block of a client-aided plan; None for other plans.
    #[getter]
    fn client_tensor_bytes(&self) -> Option<u64> {
        match &self.plan {
            AnyPlan::ClientAided(plan) => Some(plan.client_tensor_bytes()),
            _ => None,
        }
    }

    fn __repr__(&self) -> String {
        format!("<Plan {:?}, {} stages>", self.plan.name(), self.plan.stages())
    }
}
