//! Both parties in this process, in any trust model.

use crate::arrays;
use crate::errors::told;
use crate::guard::{compute, Guard};
use crate::plan::{options, Plan};
use crate::two_party::link;
use hushnet_runtime as rt;
use hushnet_runtime::local::Link;
use hushnet_runtime::two_party::TwoPartyOptions;
use hushnet_runtime::AnyModel;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Both parties of a plan in this process, over the real protocol: outputs by name, the client's trace as JSON, and the server's where its
/// trust model has one. Values outside of their ranges: see [`told`].
#[pyfunction]
#[pyo3(signature = (plan, inputs, threads=None, progress=None, transport="pipe", network=None, group=None, weight_memory=None, marks=None))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn run<'py>(
    py: Python<'py>,
    plan: &Plan,
    inputs: &Bound<'py, PyDict>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
    transport: &str,
    network: Option<(f64, f64)>,
    group: Option<usize>,
    weight_memory: Option<usize>,
    marks: Option<&Bound<'py, PyList>>,
) -> PyResult<(Bound<'py, PyDict>, String, Option<String>)> {
    let guard = Guard::default();
    let connection = match (transport, network.map(link).transpose()?) {
        ("pipe", None) => Link::Memory,
        ("pipe", Some(network)) => Link::Throttled(network),
        ("loopback", None) => Link::Loopback(guard.cancel.clone()),
        ("loopback", Some(_)) => {
            return Err(PyValueError::new_err("a network slows down transport 'pipe', not 'loopback'"));
        }
        (other, _) => {
            let text = format!("transport '{other}' is neither 'pipe' nor 'loopback'");
            return Err(PyValueError::new_err(text));
        }
    };
    let arrays = arrays::read(inputs)?;
    let inputs: Vec<rt::Input<'_>> = arrays.iter().map(arrays::Array::input).collect();
    let ((outputs, trace, server), mark) = guard.run(py, || {
        let (model, pool) = plan.model(threads, weight_memory, None)?;
        let read = options(plan.plan().insecure(), None);
        // The parties of a two-party plan work at the same time, each in a pool of its own.
        let own = if matches!(model, AnyModel::TwoParty(_)) { compute(threads)? } else { pool.clone() };
        let two_party = TwoPartyOptions {
            plan: read,
            group,
            expected_images: inputs.first().and_then(|i| i.shape.first().copied()),
            compute: own,
            ..TwoPartyOptions::default()
        };
        let batch = rt::ClientOptions { plan: read, compute: pool, ..rt::ClientOptions::default() };
        let mut tell = |p: &rt::Progress<'_>| guard.progress(progress.as_ref(), p);
        rt::local::run(&model, &inputs, (batch, two_party), connection, &mut tell)
    })?;
    told(mark, marks)?;
    Ok((arrays::write(py, outputs)?, trace.to_json(), server.own))
}
