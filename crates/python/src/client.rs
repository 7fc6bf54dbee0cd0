//! Being a client, in any trust model.

use crate::arrays;
use crate::errors::{raise, told, Kind};
use crate::guard::{compute, Guard};
use crate::plan::{options, Plan};
use hushnet_runtime as rt;
use hushnet_runtime::non_interactive::KeyFolder;
use hushnet_runtime::transport::{AccessToken, ConnectOptions, TlsFiles};
use hushnet_runtime::two_party::{SetupPolicy, TwoPartyOptions};
use hushnet_runtime::{AnyClient, AnyPlan, Error, OnProgress};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a call gives: outputs by name, and the client's trace as JSON.
type Answer<'py> = (Bound<'py, PyDict>, String);

/// An open session with a server, of any trust model: used by one call at a time, closed at any time.
#[pyclass(frozen, module = "hushnet._native")]
pub struct Client {
    plan: AnyPlan,
    /// There while the session is open and no call uses it.
    session: Mutex<Option<AnyClient>>,
    /// Shared with the connection.
    cancel: Arc<AtomicBool>,
}

/// Connects to `hush://host:port`, `hushs://`, `ws://` or `wss://`.
#[pyfunction]
#[pyo3(signature = (url, ca=None, insecure_tls=false, allow_insecure=false, threads=None, connect_timeout=20.0, idle_timeout=600.0, memory_limit=None, expected_images=None, setups=None, setups_quota=None, setups_age=None, plan_digest=None, model=None, token=None, cert=None, keys=None, expected=None, units=None))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn connect(
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
    model: Option<String>,
    token: Option<&str>,
    cert: Option<(PathBuf, PathBuf)>,
    keys: Option<PathBuf>,
    expected: Option<&str>,
    units: Option<PathBuf>,
) -> PyResult<Client> {
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
        units,
        plan_digest: plan_digest.map(digest).transpose()?,
        ..TwoPartyOptions::default()
    };
    let expected = expected.map(digest).transpose()?;
    let batch = rt::ClientOptions { plan, compute, expected, ..rt::ClientOptions::default() };
    let connection = ConnectOptions {
        model,
        token: token.map(AccessToken::new).transpose().map_err(|e| raise(e.into()))?,
        certificate: cert.map(|(certificate, key)| TlsFiles { certificate, key }),
        ca,
        insecure_tls,
        connect_timeout: seconds(connect_timeout)?,
        idle_timeout: seconds(idle_timeout)?,
        cancel: cancel.clone(),
    };
    let opened = guard.run(py, || {
        let channel = Box::new(rt::transport::connect(url, &connection)?);
        let keys = keys.map(|path| KeyFolder { path, server: url.to_owned() });
        rt::session::open_keeping(channel, batch, two_party, keys)
    })?;
    Ok(Client { plan: opened.plan(), session: Mutex::new(Some(opened)), cancel })
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
pub(crate) fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|d| *d >= Duration::from_millis(1))
        .ok_or_else(|| PyValueError::new_err(format!("a time of {value} s is not possible")))
}

impl Client {
    fn take(&self) -> Option<AnyClient> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Lends the session to one piece of work, without Python's lock, and takes it back if it is still open.
    ///
    /// # Errors
    ///
    /// What the work gives; a `TransportError` where the session is closed or lent already.
    fn using<T: Send>(
        &self,
        py: Python<'_>,
        progress: Option<&Py<PyAny>>,
        work: impl FnOnce(&mut AnyClient, &mut OnProgress<'_>) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        self.cancel.store(false, Ordering::Relaxed);
        let guard = Guard::with(self.cancel.clone());
        let mut client = py
            .detach(|| self.take())
            .ok_or_else(|| Kind::Transport.error("the session is closed, or in use by another thread"))?;
        let result = guard.run(py, || work(&mut client, &mut |p| guard.progress(progress, p)));
        if client.is_open() {
            *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
        }
        result
    }
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
        Plan::new(self.plan.clone())
    }

    /// SHA-256 of a two-party server's public plan, in hexadecimal digits: equal for all clients of an honest server. None for other plans.
    fn plan_digest(&self) -> PyResult<Option<String>> {
        let AnyPlan::TwoParty(plan) = &self.plan else { return Ok(None) };
        let digest = plan.digest().map_err(|e| Kind::Plan.error(e))?;
        Ok(Some(digest.iter().map(|b| format!("{b:02x}")).collect()))
    }

    /// Runs the network on any number of images: `(outputs, the client's trace as JSON)`.
    /// Values outside of their ranges: see [`told`].
    #[pyo3(signature = (inputs, progress=None, marks=None))]
    fn infer<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        progress: Option<Py<PyAny>>,
        marks: Option<&Bound<'py, PyList>>,
    ) -> PyResult<Answer<'py>> {
        let arrays = arrays::read(inputs)?;
        let inputs: Vec<rt::Input<'_>> = arrays.iter().map(arrays::Array::input).collect();
        let (outputs, trace, mark) =
            self.using(py, progress.as_ref(), |client, tell| client.infer_marked(&inputs, tell))?;
        told(mark, marks)?;
        Ok((arrays::write(py, outputs)?, trace.to_json()))
    }

    /// Prepares so many inferences of a two-party plan with the server and keeps them in the folder of `connect`; the client's trace as JSON.
    #[pyo3(signature = (count, progress=None))]
    fn prepare(&self, py: Python<'_>, count: usize, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let trace = self.using(py, progress.as_ref(), |client, tell| client.prepare(count, tell))?;
        Ok(trace.to_json())
    }

    /// Prepared inferences of this server and plan in the folder of `connect`; None without a folder.
    fn units(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        let counted = py.detach(|| {
            let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            session.as_ref().map_or(Ok(None), AnyClient::units)
        });
        counted.map_err(raise)
    }

    /// Ends the session; again: nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.take()));
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }
}
