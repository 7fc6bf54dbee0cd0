//! Serving.

use crate::client::seconds;
use crate::errors::raise;
use crate::guard::{compute, POLL};
use crate::plan::Plan;
use hushnet_runtime as rt;
use hushnet_runtime::transport::{Server, ServerLimits, ServerOptions, TlsFiles};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A running server. Stops when it is dropped, or left as a context.
#[pyclass(frozen, module = "hushnet._native")]
pub struct ServerHandle(Option<Server>);

impl Drop for ServerHandle {
    fn drop(&mut self) {
        // The server's threads may be logging, which takes the interpreter lock.
        let server = self.0.take();
        Python::attach(|py| py.detach(|| drop(server)));
    }
}

/// Starts a server on threads of its own and returns at once.
#[pyfunction]
#[pyo3(signature = (plan, host="127.0.0.1", port=0, tls_cert=None, tls_key=None, max_sessions=64, memory_limit=17_179_869_184,
                    idle_timeout=120.0, handshake_timeout=10.0, grace=10.0, threads=None, record=None))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn serve(
    py: Python<'_>,
    plan: &Plan,
    host: &str,
    port: u16,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    max_sessions: usize,
    memory_limit: u64,
    idle_timeout: f64,
    handshake_timeout: f64,
    grace: f64,
    threads: Option<usize>,
    record: Option<PathBuf>,
) -> PyResult<ServerHandle> {
    let tls = match (tls_cert, tls_key) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        (None, None) => None,
        _ => return Err(PyValueError::new_err("TLS needs both a certificate and a key")),
    };
    let limits = ServerLimits {
        sessions: max_sessions,
        memory_bytes: memory_limit,
        idle_timeout: seconds(idle_timeout)?,
        handshake_timeout: seconds(handshake_timeout)?,
        grace: Duration::try_from_secs_f64(grace)
            .map_err(|e| PyValueError::new_err(format!("grace: {e}")))?,
    };
    let options = ServerOptions { host: host.to_owned(), port, tls, limits, on_session: None, record };
    let server = py
        .detach(|| Server::start(rt::ServerPlan::new(&plan.0, compute(threads)?)?, &options))
        .map_err(raise)?;
    Ok(ServerHandle(Some(server)))
}

impl ServerHandle {
    fn server(&self) -> PyResult<&Server> {
        self.0.as_ref().ok_or_else(|| PyValueError::new_err("the server is gone"))
    }
}

#[pymethods]
impl ServerHandle {
    #[getter]
    fn port(&self) -> PyResult<u16> {
        Ok(self.server()?.address().port())
    }

    /// `host:port` that the server listens on.
    #[getter]
    fn address(&self) -> PyResult<String> {
        Ok(self.server()?.address().to_string())
    }

    /// Whether the server still runs.
    #[getter]
    fn running(&self) -> PyResult<bool> {
        Ok(!self.server()?.finished())
    }

    /// Refuses new sessions and ends within the grace period; returns at once.
    fn stop(&self, py: Python<'_>) {
        if let Some(server) = &self.0 {
            py.detach(|| server.stop());
        }
    }

    /// Waits for the end; False when it has not come in `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn join(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let server = self.server()?;
        let limit = timeout.map(seconds).transpose()?;
        let start = Instant::now();
        while !server.finished() {
            if limit.is_some_and(|l| start.elapsed() >= l) {
                return Ok(false);
            }
            py.detach(|| std::thread::sleep(POLL.min(limit.unwrap_or(POLL))));
            py.check_signals()?;
        }
        py.detach(|| server.join()).map_err(raise)?;
        Ok(true)
    }

    /// Counters as a dict.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let stats = self.server()?.stats();
        if let Ok(serde_json::Value::Object(map)) = serde_json::to_value(stats) {
            for (key, value) in map {
                dict.set_item(key, value.as_u64())?;
            }
        }
        Ok(dict)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.stop(py);
        self.join(py, None).map(drop)
    }
}
