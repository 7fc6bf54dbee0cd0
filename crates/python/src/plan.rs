//! Plans.

use crate::errors::Kind;
use hushnet_runtime as rt;
use hushnet_runtime::plan::Port;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

/// What clients receive of a plan file of any trust model, complete or public already; PlanError for every way in which the file can be wrong.
#[pyfunction]
#[pyo3(signature = (plan, allow_insecure=false))]
pub fn public_part<'py>(py: Python<'py>, plan: &[u8], allow_insecure: bool) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = py.detach(|| rt::AnyPlan::from_bytes(plan, &options(allow_insecure, None))?.public_part());
    Ok(PyBytes::new(py, &bytes.map_err(raise)?))
}

/// A checked, immutable plan.
#[pyclass(frozen, module = "hushnet._native")]
pub struct Plan(pub rt::Plan);

#[derive(FromPyObject)]
pub enum Source {
    Bytes(Vec<u8>),
    Path(PathBuf),
}

/// How strictly plans are read.
pub fn options(allow_insecure: bool, memory_limit: Option<u64>) -> rt::PlanOptions {
    let mut options = rt::PlanOptions { allow_insecure, ..rt::PlanOptions::default() };
    if let Some(bytes) = memory_limit {
        options.limits.memory_bytes = bytes;
    }
    options
}

fn raise(e: rt::PlanError) -> PyErr {
    Kind::Plan.error(e)
}

#[pymethods]
impl Plan {
    /// Reads and checks a plan file, or its bytes.
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
            Source::Bytes(bytes) => rt::Plan::from_bytes(&bytes, &options).map_err(raise),
            Source::Path(path) => rt::Plan::load(&path, &options)
                .map_err(|e| Kind::Plan.error(format!("{}: {e}", path.display()))),
        })
        .map(Self)
    }

    /// The plan's JSON, as in the file.
    fn json(&self) -> &str {
        self.0.json()
    }

    /// What clients receive: a plan file without weights.
    fn public_part<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.public_part().map_err(raise)?))
    }

    #[getter]
    fn has_weights(&self) -> bool {
        self.0.has_weights()
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn insecure(&self) -> bool {
        self.0.insecure()
    }

    #[getter]
    fn ring_degree(&self) -> usize {
        self.0.ring_degree()
    }

    /// Shapes per image by name.
    #[getter]
    fn inputs(&self) -> Vec<(String, Vec<usize>)> {
        self.ports(self.0.inputs())
    }

    /// Shapes per image by name.
    #[getter]
    fn outputs(&self) -> Vec<(String, Vec<usize>)> {
        self.ports(self.0.outputs())
    }

    /// Bytes of tensors that a client holds at once for a full block.
    #[getter]
    fn client_tensor_bytes(&self) -> u64 {
        self.0.client_tensor_bytes()
    }

    fn __repr__(&self) -> String {
        format!("<Plan {:?}, {} stages>", self.0.name(), self.0.stages().len())
    }
}

impl Plan {
    fn ports(&self, ports: &[Port]) -> Vec<(String, Vec<usize>)> {
        ports.iter().map(|p| (p.name.clone(), self.0.tensors()[p.tensor].shape.clone())).collect()
    }
}
