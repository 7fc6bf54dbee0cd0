//! Serving.

use crate::client::seconds;
use crate::errors::raise;
use crate::guard::POLL;
use crate::plan::Plan;
use hushnet_runtime::non_interactive::{KeyPolicy, KeyStore};
use hushnet_runtime::pending::Work;
use hushnet_runtime::session::Kept;
use hushnet_runtime::transport::{
    is_name, About, Hosted, OnEnd, OnSession, PeerLimits, Server, ServerLimits, ServerOptions, TlsFiles,
    WebFile, DEFAULT_NAME,
};
use hushnet_runtime::two_party::{PreparationStore, UnitPolicy, UnitStore};
use hushnet_runtime::{AnyModel, ServerTrace};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Traces that wait to be taken; older ones go first.
const KEPT_TRACES: usize = 64;

/// Reports of sessions that wait to be taken; older ones go first.
const KEPT_REPORTS: usize = 4096;

/// JSON of sessions that ended.
type Traces = Arc<Mutex<VecDeque<String>>>;

/// A running server. Stops when it is dropped, or left as a context.
#[pyclass(frozen, module = "hushnet._native")]
pub struct ServerHandle {
    server: Option<Server>,
    traces: Traces,
    ended: Traces,
    preparing: Preparing,
}

/// Models that are served at once, and the work that is left, by name.
type Announced = (Vec<Hosted>, Vec<(String, Work)>);

/// How models are prepared: threads, and bytes for weights in evaluation form; and where they keep clients' keys.
#[derive(Clone)]
struct Preparing {
    threads: Option<usize>,
    weight_memory: Option<usize>,
    kept: Kept,
    store: Option<PreparationStore>,
}

impl Preparing {
    /// Plans as a server takes them. Takes long for those that were not prepared before: not to be called with the interpreter lock.
    fn hosted(&self, plans: &BTreeMap<String, Py<Plan>>) -> Result<Vec<Hosted>, hushnet_runtime::Error> {
        let one = |(name, plan): (&String, &Py<Plan>)| {
            let (model, _) = plan.get().model(self.threads, self.weight_memory, self.store.as_ref())?;
            Ok(self.named(name, plan.get(), &model))
        };
        plans.iter().map(one).collect()
    }

    /// Plans as a server takes them at once, and what is left to do for each.
    fn announced(&self, plans: &BTreeMap<String, Py<Plan>>) -> Result<Announced, hushnet_runtime::Error> {
        let (mut hosted, mut works) = (Vec::new(), Vec::new());
        for (name, plan) in plans {
            let (model, _, work) =
                plan.get().announced(self.threads, self.weight_memory, self.store.as_ref())?;
            hosted.push(self.named(name, plan.get(), &model));
            works.extend(work.map(|work| (name.clone(), work)));
        }
        Ok((hosted, works))
    }

    fn named(&self, name: &str, plan: &Plan, model: &AnyModel) -> Hosted {
        let served = model.served_keeping(self.kept.clone());
        Hosted { name: name.to_owned(), served, about: About::from(plan.plan()) }
    }
}

/// One plan, or plans by name.
#[derive(FromPyObject)]
pub(crate) enum Plans {
    One(Py<Plan>),
    Named(BTreeMap<String, Py<Plan>>),
}

impl Plans {
    fn named(self) -> BTreeMap<String, Py<Plan>> {
        match self {
            Self::One(plan) => BTreeMap::from([(DEFAULT_NAME.to_owned(), plan)]),
            Self::Named(plans) => plans,
        }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        // The server's threads may be logging, which takes the interpreter lock.
        let server = self.server.take();
        Python::attach(|py| py.detach(|| drop(server)));
    }
}

/// A file of a page: its path, its media type, a tag, and its bytes as gzip has them.
type File = (String, String, String, Vec<u8>);

/// Starts a server on threads of its own and returns at once.
#[pyfunction]
#[pyo3(signature = (plan, host="127.0.0.1", port=0, tls_cert=None, tls_key=None, max_sessions=64, memory_limit=17_179_869_184,
                    idle_timeout=120.0, handshake_timeout=10.0, grace=10.0, threads=None, record=None, weight_memory=None,
                    max_connections=1024, line=10.0, patience=1.0, session_time=3600.0, origins=None, tokens=None, client_ca=None,
                    admin=None, list_models=false, connections_per_peer=None, sessions_per_peer=None, hourly_bytes_per_peer=None,
                    hourly_bytes=None, keys=None, keys_quota=None, keys_age=None, proxies=None, prepare_first=true, store=None, store_age=None, reports=false, web=None, units=None, units_quota=None, units_client_quota=None, units_age=None))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn serve(
    py: Python<'_>,
    plan: Plans,
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
    tokens: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    admin: Option<(String, u16)>,
    list_models: bool,
    connections_per_peer: Option<usize>,
    sessions_per_peer: Option<usize>,
    hourly_bytes_per_peer: Option<u64>,
    hourly_bytes: Option<u64>,
    keys: Option<PathBuf>,
    keys_quota: Option<u64>,
    keys_age: Option<f64>,
    proxies: Option<Vec<String>>,
    prepare_first: bool,
    store: Option<PathBuf>,
    store_age: Option<f64>,
    reports: bool,
    web: Option<Vec<File>>,
    units: Option<PathBuf>,
    units_quota: Option<u64>,
    units_client_quota: Option<u64>,
    units_age: Option<f64>,
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
        peers: PeerLimits {
            connections: connections_per_peer,
            sessions: sessions_per_peer,
            hourly_bytes: hourly_bytes_per_peer,
            hourly_bytes_of_all: hourly_bytes,
        },
        ..ServerLimits::default()
    };
    let mut policy = KeyPolicy::default();
    policy.quota = keys_quota.unwrap_or(policy.quota);
    if let Some(age) = keys_age {
        policy.age = seconds(age)?;
    }
    let age = store_age.map(seconds).transpose()?.unwrap_or(policy.age);
    let store = store.map(|path| PreparationStore { path, age });
    let mut unit_policy = UnitPolicy::default();
    unit_policy.quota = units_quota.unwrap_or(unit_policy.quota);
    unit_policy.client_quota = units_client_quota.unwrap_or(unit_policy.client_quota);
    if let Some(age) = units_age {
        unit_policy.age = seconds(age)?;
    }
    let traces = Traces::default();
    let kept = traces.clone();
    let on_session: OnSession = Arc::new(move |t: &ServerTrace| {
        let Some(own) = &t.own else { return };
        keep(&kept, KEPT_TRACES, own.clone());
    });
    let ended = Traces::default();
    let kept = ended.clone();
    let on_end = reports.then(|| -> OnEnd {
        Arc::new(move |report| keep(&kept, KEPT_REPORTS, serde_json::to_string(&report).unwrap_or_default()))
    });
    let (on_session, origins) = (Some(on_session), origins.unwrap_or_default());
    let host = host.to_owned();
    let options = ServerOptions {
        host,
        port,
        tls,
        limits,
        on_session,
        on_end,
        record,
        origins,
        tokens,
        client_ca,
        admin,
        list_models,
        proxies: proxies.unwrap_or_default().iter().map(|text| proxy(text)).collect::<PyResult<_>>()?,
        web: web
            .unwrap_or_default()
            .into_iter()
            .map(|(path, media, tag, gzip)| WebFile { path, media, tag, gzip })
            .collect(),
    };
    let plans = plan.named();
    let started = py.detach(|| {
        let keys = keys.map(|path| KeyStore::open(&path, policy)).transpose()?.map(Arc::new);
        let units = units.map(|path| UnitStore::open(&path, unit_policy)).transpose()?.map(Arc::new);
        let preparing = Preparing { threads, weight_memory, kept: Kept { keys, units }, store };
        if prepare_first {
            return Ok((Server::start_models(preparing.hosted(&plans)?, &options)?, preparing));
        }
        let (hosted, works) = preparing.announced(&plans)?;
        let server = Server::start_models(hosted, &options)?;
        server.prepare(works)?;
        Ok((server, preparing))
    });
    let (server, preparing) = started.map_err(raise)?;
    Ok(ServerHandle { server: Some(server), traces, ended, preparing })
}

/// Adds to what waits to be taken.
fn keep(kept: &Traces, most: usize, text: String) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() == most {
        kept.pop_front();
    }
    kept.push_back(text);
}

/// The address of a proxy.
fn proxy(text: &str) -> PyResult<IpAddr> {
    text.parse().map_err(|e| PyValueError::new_err(format!("proxies: '{text}': {e}")))
}

/// Whether a server's model may be called so.
#[pyfunction]
pub(crate) fn is_model_name(name: &str) -> bool {
    is_name(name)
}

impl ServerHandle {
    fn server(&self) -> PyResult<&Server> {
        self.server.as_ref().ok_or_else(|| PyValueError::new_err("the server is gone"))
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

    /// Reads the certificate and its key again, for connections from now on.
    fn reload_certificate(&self, py: Python<'_>) -> PyResult<()> {
        let server = self.server()?;
        py.detach(|| server.reload_certificate()).map_err(|e| raise(e.into()))
    }

    /// Reads the file of tokens again, for clients from now on.
    fn reload_tokens(&self, py: Python<'_>) -> PyResult<()> {
        let server = self.server()?;
        py.detach(|| server.reload_tokens()).map_err(|e| raise(e.into()))
    }

    /// Serves these plans, by name, from now on; sessions keep the one that they began with.
    fn set_models(&self, py: Python<'_>, plans: BTreeMap<String, Py<Plan>>) -> PyResult<()> {
        let (server, preparing) = (self.server()?, self.preparing.clone());
        py.detach(|| server.set_models(preparing.hosted(&plans)?)).map_err(raise)
    }

    /// Bytes that a session of each model may hold, by name.
    #[getter]
    fn models(&self) -> PyResult<BTreeMap<String, u64>> {
        Ok(self.server()?.models().into_iter().collect())
    }

    /// The most bytes that one session of any model may hold: `session` from its slot to its end, `set_up` from its first work on, `block` while
    /// the largest block is in work.
    #[getter]
    fn session_memory(&self) -> PyResult<BTreeMap<&'static str, u64>> {
        let memory = self.server()?.session_memory();
        let parts = [("session", memory.session), ("set_up", memory.set_up), ("block", memory.block)];
        Ok(parts.into_iter().collect())
    }

    /// `host:port` of the listener for health and metrics; None where there is none.
    #[getter]
    fn admin_address(&self) -> PyResult<Option<String>> {
        Ok(self.server()?.admin_address().map(|a| a.to_string()))
    }

    /// Whether the weights of all models are prepared.
    #[getter]
    fn prepared(&self) -> PyResult<bool> {
        Ok(self.server()?.prepared())
    }

    /// Whether the server still runs.
    #[getter]
    fn running(&self) -> PyResult<bool> {
        Ok(!self.server()?.finished())
    }

    /// Refuses new sessions and ends within the grace period; returns at once.
    fn stop(&self, py: Python<'_>) {
        if let Some(server) = &self.server {
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
        self.traces.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// What is told of sessions that ended since the last call, as JSON; at most the last 4096, and none without `reports`.
    fn reports(&self) -> Vec<String> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
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
