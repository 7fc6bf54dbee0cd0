//! Serving.

use crate::client::seconds;
use crate::errors::raise;
use crate::guard::POLL;
use crate::plan::Plan;
use hushnet_runtime::non_interactive::{KeyPolicy, KeyStore};
use hushnet_runtime::transport::{OnSession, Server, ServerLimits, ServerOptions, TlsFiles};
use hushnet_runtime::ServerTrace;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Traces that wait to be taken; older ones go first.
const KEPT_TRACES: usize = 64;

/// JSON of sessions that ended well.
type Traces = Arc<Mutex<VecDeque<String>>>;

/// A running server. Stops when it is dropped, or left as a context.
#[pyclass(frozen, module = "hushnet._native")]
pub struct ServerHandle(Option<Server>, Traces);

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
                    idle_timeout=120.0, handshake_timeout=10.0, grace=10.0, threads=None, record=None, weight_memory=None,
                    max_connections=1024, line=10.0, patience=1.0, session_time=3600.0, origins=None,
                    keys=None, keys_quota=None, keys_age=None))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn serve(
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
    weight_memory: Option<usize>,
    max_connections: usize,
    line: f64,
    patience: f64,
    session_time: f64,
    origins: Option<Vec<String>>,
    keys: Option<PathBuf>,
    keys_quota: Option<u64>,
    keys_age: Option<f64>,
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
        connections: max_connections,
        line: seconds(line)?,
        patience: seconds(patience)?,
        session_time: seconds(session_time)?,
        ..ServerLimits::default()
    };
    let mut policy = KeyPolicy::default();
    policy.quota = keys_quota.unwrap_or(policy.quota);
    if let Some(age) = keys_age {
        policy.age = seconds(age)?;
    }
    let traces = Traces::default();
    let kept = traces.clone();
    let on_session: OnSession = Arc::new(move |t: &ServerTrace| {
        let Some(own) = &t.own else { return };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT_TRACES {
            kept.pop_front();
        }
        kept.push_back(own.clone());
    });
    let (on_session, origins) = (Some(on_session), origins.unwrap_or_default());
    let options = ServerOptions { host: host.to_owned(), port, tls, limits, on_session, record, origins };
    let started = py.detach(|| {
        let (model, _) = plan.model(threads, weight_memory)?;
        let store = keys.map(|path| KeyStore::open(&path, policy)).transpose()?.map(Arc::new);
        Server::start_shared(model.served_keeping(store), &options)
    });
    Ok(ServerHandle(Some(started.map_err(raise)?), traces))
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

    /// Sessions that may be in work at once: `max_sessions`, or fewer where `memory_limit` does not hold so many.
    #[getter]
    fn sessions(&self) -> PyResult<usize> {
        Ok(self.server()?.sessions())
    }

    /// The most bytes that one session may hold: `session` from its slot to its end, `set_up` from its first work on, `block` while the largest
    /// block is in work.
    #[getter]
    fn session_memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let memory = self.server()?.session_memory();
        let dict = PyDict::new(py);
        for (key, bytes) in [("session", memory.session), ("set_up", memory.set_up), ("block", memory.block)]
        {
            dict.set_item(key, bytes)?;
        }
        Ok(dict)
    }

    /// Reads the certificate and its key again, for connections from now on.
    fn reload_certificate(&self, py: Python<'_>) -> PyResult<()> {
        let server = self.server()?;
        py.detach(|| server.reload_certificate()).map_err(|e| raise(e.into()))
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

    /// Traces of two-party sessions that ended since the last call, as JSON; at most the last 64.
    fn traces(&self) -> Vec<String> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
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
