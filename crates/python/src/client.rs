//! Running both parties, and being a client.

use crate::arrays;
use crate::errors::raise;
use crate::guard::{compute, Guard};
use crate::held::{Answer, Held};
use crate::non_interactive::NonInteractiveClient;
use crate::plan::{options, Plan};
use crate::two_party::TwoPartyClient;
use hushnet_runtime as rt;
use hushnet_runtime::local::{run_loopback, run_pipe};
use hushnet_runtime::session::AnyClient;
use hushnet_runtime::transport::ConnectOptions;
use hushnet_runtime::two_party::{SetupPolicy, TwoPartyOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::time::Duration;

/// Both parties in this process, over the real protocol: `(outputs, trace JSON)`.
#[pyfunction]
#[pyo3(signature = (plan, inputs, threads=None, progress=None, transport="pipe"))]
pub fn run_local<'py>(
    py: Python<'py>,
    plan: &Plan,
    inputs: &Bound<'py, PyDict>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
    transport: &str,
) -> PyResult<Answer<'py>> {
    let loopback = match transport {
        "pipe" => false,
        "loopback" => true,
        other => {
            return Err(PyValueError::new_err(format!(
                "transport '{other}' is neither 'pipe' nor 'loopback'"
            )))
        }
    };
    let arrays = arrays::read(inputs)?;
    let inputs: Vec<rt::Input<'_>> = arrays.iter().map(arrays::Array::input).collect();
    let guard = Guard::default();
    let (outputs, trace) = guard.run(py, || {
        let plan_options = options(plan.0.insecure(), None);
        let client = rt::ClientOptions {
            plan: plan_options,
            compute: compute(threads)?,
            ..rt::ClientOptions::default()
        };
        let mut tell = |p: &rt::Progress<'_>| guard.progress(progress.as_ref(), p);
        if loopback {
            run_loopback(&plan.0, &inputs, client, &mut tell, guard.cancel.clone())
        } else {
            run_pipe(&plan.0, &inputs, client, &mut tell)
        }
    })?;
    Ok((arrays::write(py, outputs)?, trace.to_json()))
}

/// An open session with a server.
#[pyclass(frozen, module = "hushnet._native")]
pub struct Client {
    plan: rt::Plan,
    session: Held<rt::Client>,
}

/// Connects to `ws://host:port` or `wss://host:port`.
#[pyfunction]
#[pyo3(signature = (url, ca=None, insecure_tls=false, allow_insecure=false, threads=None, connect_timeout=20.0, idle_timeout=600.0, memory_limit=None, expected_images=None, setups=None, setups_quota=None, setups_age=None, plan_digest=None))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn connect(
    py: Python<'_>,
    url: &str,
    ca: Option<PathBuf>,
    insecure_tls: bool,
    allow_insecure: bool,
    threads: Option<usize>,
    connect_timeout: f64,
    idle_timeout: f64,
    memory_limit: Option<u64>,
    expected_images: Option<usize>,
    setups: Option<PathBuf>,
    setups_quota: Option<u64>,
    setups_age: Option<f64>,
    plan_digest: Option<&str>,
) -> PyResult<Py<PyAny>> {
    let guard = Guard::default();
    let cancel = guard.cancel.clone();
    let (plan, compute) = (options(allow_insecure, memory_limit), compute(threads).map_err(raise)?);
    let mut setups_policy = SetupPolicy::default();
    if let Some(bytes) = setups_quota {
        setups_policy.quota = bytes;
    }
    if let Some(age) = setups_age {
        setups_policy.age = seconds(age)?;
    }
    let two_party = TwoPartyOptions {
        plan,
        expected_images,
        compute: compute.clone(),
        setups,
        setups_policy,
        server: Some(url.to_owned()),
        plan_digest: plan_digest.map(digest).transpose()?,
        ..TwoPartyOptions::default()
    };
    let batch = rt::ClientOptions { plan, compute, ..rt::ClientOptions::default() };
    let connection = ConnectOptions {
        ca,
        insecure_tls,
        connect_timeout: seconds(connect_timeout)?,
        idle_timeout: seconds(idle_timeout)?,
        cancel: cancel.clone(),
    };
    let opened = guard.run(py, || {
        rt::session::open(Box::new(rt::transport::connect(url, &connection)?), batch, two_party)
    })?;
    match opened {
        AnyClient::ClientAided(client) => {
            let client = Client { plan: client.plan().clone(), session: Held::new(*client, cancel) };
            Ok(Py::new(py, client)?.into_any())
        }
        AnyClient::TwoParty(client) => Ok(Py::new(py, TwoPartyClient::new(*client, cancel))?.into_any()),
        AnyClient::NonInteractive(client) => {
            Ok(Py::new(py, NonInteractiveClient::new(*client, cancel))?.into_any())
        }
    }
}

/// 32 bytes of 64 hexadecimal digits.
fn digest(text: &str) -> PyResult<[u8; 32]> {
    let wrong =
        || PyValueError::new_err(format!("a plan's digest has 64 hexadecimal digits; '{text}' has not"));
    let mut out = [0; 32];
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| wrong())?;
    }
    Ok(out)
}

/// A duration of at least a millisecond.
pub fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|d| *d >= Duration::from_millis(1))
        .ok_or_else(|| PyValueError::new_err(format!("a time of {value} s is not possible")))
}

#[pymethods]
impl Client {
    /// JSON of the server's plan, public part.
    fn plan_json(&self) -> &str {
        self.plan.json()
    }

    /// The server's plan, public part.
    #[getter]
    fn plan(&self) -> Plan {
        Plan(self.plan.clone())
    }

    /// Runs the network on a batch of any size: `(outputs, trace JSON)`.
    #[pyo3(signature = (inputs, progress=None))]
    fn infer<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Answer<'py>> {
        self.session.infer(py, inputs, progress.as_ref())
    }

    /// Ends the session; again: nothing.
    fn close(&self, py: Python<'_>) {
        self.session.close(py);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }
}
