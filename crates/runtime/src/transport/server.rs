//! The server: bare frames, `/ws` and pages on one port, and where it is asked for pages on a port of their own.

use super::bridge::Phase;
use super::metrics::Stats;
use super::models::{About, Hosted, DEFAULT_NAME};
use super::options::ServerOptions;
use super::raw_server::Door;
use super::shared::Shared;
use super::tls::{self, TlsFiles};
use super::{admin, pages_server};
use crate::error::{Error, TransportError};
use crate::pending::Work;
use crate::session::server::{Served, SessionMemory};
use axum_server::Handle;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio_rustls::TlsAcceptor;

/// How often buffers that no session has needed meanwhile are given back.
const RELEASE: Duration = Duration::from_secs(5);

/// A running server. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    admin: Option<SocketAddr>,
    tls: Option<(Files, Acceptor)>,
    tokens: Option<PathBuf>,
    ending: Ending,
    thread: Mutex<Option<JoinHandle<Result<(), TransportError>>>>,
}

/// Ends a server, from whichever thread.
#[derive(Clone)]
struct Ending {
    shared: Arc<Shared>,
    handle: Handle<SocketAddr>,
    /// Why it ends, where that is no wish of its owner.
    why: Arc<Mutex<Option<Error>>>,
}

impl Ending {
    fn stop(&self) {
        self.shared.slots.close();
        self.shared.phase.send_if_modified(|p| std::mem::replace(p, Phase::Draining) == Phase::Running);
        self.handle.graceful_shutdown(Some(self.shared.limits.grace + Duration::from_secs(2)));
    }

    fn why(&self) -> MutexGuard<'_, Option<Error>> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Opens the port and serves on a thread of its own.
    ///
    /// # Errors
    /// [`TransportError::Listen`] and [`TransportError::Tls`]; [`crate::PlanError::TooLarge`] when one session needs more
    /// memory than the limit.
    pub fn start(plan: impl Served + 'static, options: &ServerOptions) -> Result<Self, Error> {
        Self::start_shared(Arc::new(plan), options)
    }

    /// As [`Self::start`], of a prepared plan that others use, too.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_shared(plan: Arc<dyn Served>, options: &ServerOptions) -> Result<Self, Error> {
        let model = Hosted { name: DEFAULT_NAME.into(), served: plan, about: About::default() };
        Self::start_models(vec![model], options)
    }

    /// As [`Self::start`], of several models. A client names one of them; where there is only one it need not.
    ///
    /// # Errors
    /// As [`Self::start`]; [`TransportError::Models`] for names that cannot be used, [`TransportError::Tokens`] for a file of tokens.
    pub fn start_models(models: Vec<Hosted>, options: &ServerOptions) -> Result<Self, Error> {
        let shared = Shared::new(models, options)?;
        let tls = acceptor(options)?;
        let host = if options.host.is_empty() { "127.0.0.1" } else { options.host.as_str() };
        let fail =
            |e: std::io::Error| TransportError::Listen { address: host.to_owned(), detail: e.to_string() };
        let listener = listen(host, options.port)?;
        let address = listener.local_addr().map_err(fail)?;
        let operators = options.admin.as_ref().map(|(host, port)| listen(host, *port)).transpose()?;
        let admin = operators.as_ref().map(TcpListener::local_addr).transpose().map_err(fail)?;
        let limits = options.limits;
        let handle = Handle::new();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(limits.sessions.clamp(1, 1 << 14) + limits.guests.min(1 << 14) + 8)
            .thread_name("hushnet-net")
            .enable_all()
            .build()
            .map_err(fail)?;
        let (state, stop) = (shared.clone(), handle.clone());
        let acceptor = tls.as_ref().map(|(_, acceptor)| acceptor.clone());
        let thread = std::thread::Builder::new()
            .name("hushnet-serve".into())
            .spawn(move || {
                let served = runtime.block_on(serve((listener, operators), acceptor, state, stop));
                runtime.shutdown_timeout(Duration::from_secs(1));
                served
            })
            .map_err(fail)?;
        shared.announce();
        let (tokens, thread) = (options.tokens.clone(), Mutex::new(Some(thread)));
        let ending = Ending { shared: shared.clone(), handle, why: Arc::default() };
        let this = Self { shared, address, admin, tls, tokens, ending, thread };
        tracing::info!(%address, tls = options.tls.is_some(), sessions = this.sessions(), "serving");
        Ok(this)
    }

    /// Prepares the weights of models that were announced, one after the other on a thread of its own, and returns at once. A model that cannot
    /// be prepared ends the server, and [`Self::join`] says why.
    ///
    /// # Errors
    /// [`Error::Internal`] when there is no thread for it.
    pub fn prepare(&self, works: Vec<(String, Work)>) -> Result<(), Error> {
        let ending = self.ending.clone();
        let prepare = move || {
            for (name, work) in works {
                if ending.shared.slots.closed() {
                    return;
                }
                let start = Instant::now();
                if let Err(error) = work() {
                    tracing::error!(model = name, %error, "a model cannot be prepared, and the server ends");
                    *ending.why() = Some(error);
                    return ending.stop();
                }
                tracing::info!(
                    model = name,
                    seconds = start.elapsed().as_secs_f64(),
                    "the weights are prepared"
                );
            }
        };
        let thread = std::thread::Builder::new().name("hushnet-prepare".into()).spawn(prepare);
        thread.map(drop).map_err(|e| Error::Internal(e.to_string()))
    }

    /// Whether the weights of all models are prepared.
    #[must_use]
    pub fn prepared(&self) -> bool {
        self.shared.reception.models.all().values().all(|model| model.served.preparation().done())
    }

    /// Serves these models from now on. Sessions keep the one that they began with; a model that is not among them is no longer found.
    ///
    /// # Errors
    /// As [`Self::start_models`]: then the models that there are stay.
    pub fn set_models(&self, models: Vec<Hosted>) -> Result<(), Error> {
        models.iter().try_for_each(|model| self.shared.division.check(&model.served.memory()))?;
        self.shared.reception.models.replace(models, self.shared.limits.memory_bytes)?;
        self.shared.arrange();
        self.shared.announce();
        Ok(())
    }

    /// Names of the models that are served now, each with the bytes that a session of it may hold, in the order of names.
    #[must_use]
    pub fn models(&self) -> Vec<(String, u64)> {
        let all = self.shared.reception.models.all();
        all.values().map(|m| (m.name.clone(), m.served.memory().total())).collect()
    }

    /// The most that one session of any model may hold, in bytes.
    #[must_use]
    pub fn session_memory(&self) -> SessionMemory {
        self.shared.reception.models.most()
    }

    /// Reads the file of tokens again; sessions go on, whatever their token.
    ///
    /// # Errors
    /// [`TransportError::Tokens`] when it cannot be used: then the tokens that there are stay.
    pub fn reload_tokens(&self) -> Result<(), TransportError> {
        if let Some(path) = &self.tokens {
            self.shared.reception.renew(path)?;
            tracing::info!("the tokens were read again");
        }
        Ok(())
    }

    /// The address of the listener for health and metrics, where there is one.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sessions that may be in work at once: those that were granted, or fewer where the memory for sessions does not hold so many of the
    /// model that takes most.
    #[must_use]
    pub fn sessions(&self) -> usize {
        let each = self.shared.memory.of_session(&self.session_memory()).session.max(1);
        let (all, limits) = (self.shared.division.sessions, self.shared.limits);
        limits.sessions.min(usize::try_from(all / each).unwrap_or(usize::MAX))
    }

    /// The counters of the server at this moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.metrics.stats(&self.shared.slots.count())
    }

    /// Reads the certificate and its key again; connections from now on get the new one, and those that are open go on.
    ///
    /// # Errors
    /// [`TransportError::Tls`] when the files cannot be used: then the old certificate stays.
    pub fn reload_certificate(&self) -> Result<(), TransportError> {
        if let Some((files, acceptor)) = &self.tls {
            let read = files.read()?;
            *acceptor.write().unwrap_or_else(PoisonError::into_inner) = read;
            tracing::info!("the certificate was read again");
        }
        Ok(())
    }

    /// Refuses new sessions, lets blocks in work finish within the grace period, and ends. Returns at once.
    pub fn stop(&self) {
        self.ending.stop();
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// [`Error::Transport`] when serving failed; that of a model that could not be prepared.
    pub fn join(&self) -> Result<(), Error> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread.map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => self.ending.why().take().map_or(Ok(result?), Err),
            Some(Err(_)) => Err(Error::Internal("the server thread failed".into())),
        }
    }

    /// Whether the server has ended.
    #[must_use]
    pub fn finished(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        if let Err(e) = self.join() {
            tracing::warn!(error = %e, "the server ended in an error");
        }
    }
}

/// The certificate that connections get; another one when it was read again.
pub(super) type Acceptor = Arc<RwLock<TlsAcceptor>>;

/// PEM files of a server: its own, and the authorities of clients.
#[derive(Clone)]
struct Files {
    own: TlsFiles,
    clients: Option<PathBuf>,
}

impl Files {
    fn read(&self) -> Result<TlsAcceptor, TransportError> {
        tls::server(&self.own, self.clients.as_deref()).map(TlsAcceptor::from)
    }
}

/// The files of a server's certificate, where it has one, and what connections get of them.
fn acceptor(options: &ServerOptions) -> Result<Option<(Files, Acceptor)>, TransportError> {
    let Some(own) = options.tls.clone() else {
        if options.client_ca.is_none() {
            return Ok(None);
        }
        let text = "certificates of clients need TLS; give the server's own certificate and key, too";
        return Err(TransportError::Tls(text.into()));
    };
    let files = Files { own, clients: options.client_ca.clone() };
    let acceptor = Acceptor::new(RwLock::new(files.read()?));
    Ok(Some((files, acceptor)))
}

fn listen(host: &str, port: u16) -> Result<TcpListener, TransportError> {
    let fail = |e: std::io::Error| TransportError::Listen {
        address: format!("{host}:{port}"),
        detail: e.to_string(),
    };
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(fail)?.collect();
    let listener = TcpListener::bind(addresses.as_slice()).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    Ok(listener)
}

async fn serve(
    (listener, admin): (TcpListener, Option<TcpListener>),
    tls: Option<Acceptor>,
    shared: Arc<Shared>,
    handle: Handle<SocketAddr>,
) -> Result<(), TransportError> {
    let limits = shared.limits;
    let mut phase = shared.phase.subscribe();
    let sender = shared.phase.clone();
    tokio::spawn(async move {
        // An error means that the server is gone, and the sessions with it.
        if phase.wait_for(|p| *p == Phase::Draining).await.is_ok() {
            tokio::time::sleep(limits.grace).await;
            sender.send_replace(Phase::Stopping);
        }
    });
    tokio::spawn(async {
        loop {
            tokio::time::sleep(RELEASE).await;
            // It may free a gigabyte, which takes a while.
            match tokio::task::spawn_blocking(hushnet_ring::rns::release_buffers).await {
                Ok(0) => {}
                Ok(bytes) => tracing::debug!(bytes, "buffers of sessions that ended are given back"),
                Err(_) => break,
            }
        }
    });
    let io = |e: std::io::Error| TransportError::Io(e.to_string());
    let app = pages_server::of_clients(shared.clone(), admin.is_none())
        .merge(shared.web.clone().with_state(shared.clone()));
    if let Some(listener) = admin {
        let pages = pages_server::of_operators(shared.clone());
        let door = admin::Door::new(limits.handshake_timeout);
        let mut server = axum_server::from_tcp(listener).map_err(io)?.handle(handle.clone()).acceptor(door);
        limit_http(server.http_builder(), limits.handshake_timeout);
        tokio::spawn(async move {
            let pages = pages.into_make_service_with_connect_info::<SocketAddr>();
            if let Err(e) = server.serve(pages).await {
                tracing::error!(error = %e, "the listener for health and metrics failed");
            }
        });
    }
    let door = Door { shared, tls, handshake: limits.handshake_timeout };
    let mut server = axum_server::from_tcp(listener).map_err(io)?.handle(handle).acceptor(door);
    limit_http(server.http_builder(), limits.handshake_timeout);
    server.serve(app.into_make_service_with_connect_info::<SocketAddr>()).await.map_err(io)
}

/// A WebSocket begins in HTTP/1.1, probes are single requests, and nobody holds a connection without one.
fn limit_http(http: &mut Builder<TokioExecutor>, handshake: Duration) {
    *http = std::mem::replace(http, Builder::new(TokioExecutor::new())).http1_only();
    http.http1().timer(TokioTimer::new()).header_read_timeout(handshake);
}
