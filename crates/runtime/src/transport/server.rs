//! The server: bare frames, `/ws` and pages on one port, and where it is asked for pages on a port of their own.

use super::bridge::{self, Bridge, Phase, Reading, Sink, Source};
use super::greeting::{Caller, Greeted, Reception};
use super::memory::{Division, Memory};
use super::metrics::{Metrics, Stats};
use super::models::{About, Hosted, Models, DEFAULT_NAME};
use super::peers::{PeerLimits, Peers};
use super::raw_server::{self, Door};
use super::record::{Record, Recording};
use super::report::{self, SessionReport};
use super::slots::{Place, Rules, Slots};
use super::tls::{self, TlsFiles};
use super::token::Tokens;
use super::{admin, pages_server};
use crate::channel::{send_failure, Channel, Traffic};
use crate::error::{Error, TransportError};
use crate::pending::Work;
use crate::session::server::{Served, SessionEvent, SessionMemory};
use crate::trace::ServerTrace;
use crate::wire::{Failure, FrameBuilder, Kind};
use axum_server::Handle;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{watch, Semaphore};
use tokio_rustls::TlsAcceptor;

/// How often buffers that no session has needed meanwhile are given back.
const RELEASE: Duration = Duration::from_secs(5);
/// Of so many parts of all connections the last is for addresses that have few.
const SCARCE: usize = 8;

/// What a server grants: sessions, memory, time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Sessions in work at once.
    pub sessions: usize,
    /// Bytes that all sessions and guests together may hold. A session asks for what its block takes when the block begins, and waits until it is free;
    /// what a session holds between blocks lowers the number of sessions.
    pub memory_bytes: u64,
    /// Connections at once, of clients and of those that ask for `/healthz` or `/metrics`. Others are closed as they come. The last eighth is for
    /// addresses that have less than an eighth.
    pub connections: usize,
    /// Clients at once that have connected and hold no slot. When one more comes, one of the peer that has most of them is refused.
    pub guests: usize,
    /// Longest wait for a slot when all are taken.
    pub line: Duration,
    /// A session that keeps a full server waiting for longer gives its slot to the next in line; ten times what the server has worked for it
    /// comes on top.
    pub patience: Duration,
    /// Age at which a session of a full server gives its slot to the next in line, between two blocks.
    pub session_time: Duration,
    /// Longest wait for a frame that is due, and for a client to take one.
    pub idle_timeout: Duration,
    /// Longest wait for TLS, HTTP and the greeting.
    pub handshake_timeout: Duration,
    /// Time that blocks in work have when the server stops.
    pub grace: Duration,
    /// What one peer may take, and bytes of all peers.
    pub peers: PeerLimits,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            sessions: 64,
            memory_bytes: 16 << 30,
            connections: 1024,
            guests: 256,
            line: Duration::from_secs(10),
            patience: Duration::from_secs(1),
            session_time: Duration::from_secs(3600),
            idle_timeout: Duration::from_secs(120),
            handshake_timeout: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            peers: PeerLimits::default(),
        }
    }
}

/// Called with the measurements of every session that ended well.
pub type OnSession = Arc<dyn Fn(&ServerTrace) + Send + Sync>;

/// Called with what is told of every session that has ended, well or not.
pub type OnEnd = Arc<dyn Fn(SessionReport) + Send + Sync>;

/// How a server runs: address, certificate, limits, what it reports and records.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// Name or address to listen on; empty: 127.0.0.1.
    pub host: String,
    /// Port; 0: any free one.
    pub port: u16,
    /// TLS, or plain TCP.
    pub tls: Option<TlsFiles>,
    /// What is granted.
    pub limits: ServerLimits,
    /// Called when a session ended well.
    pub on_session: Option<OnSession>,
    /// Called when a session ended, whichever way.
    pub on_end: Option<OnEnd>,
    /// A file to which everything that clients encrypt is appended as it came: all that this server sees of their inputs.
    pub record: Option<PathBuf>,
    /// Origins (`https://host`) whose pages may open `/ws` beside those of this server itself. Programs that are no browser send none.
    pub origins: Vec<String>,
    /// A file of the tokens that clients need, lines `name token` or `name sha256:HEX`; without it anybody is served.
    pub tokens: Option<PathBuf>,
    /// A PEM file of authorities: clients need a certificate that one of them has signed. Only with [`Self::tls`].
    pub client_ca: Option<PathBuf>,
    /// Address and port for health, metrics and what is told of models, without TLS; the port of clients then has `/ws` and `/livez` alone.
    pub admin: Option<(String, u16)>,
    /// Whether clients that ask for a model that there is not learn the names of those that there are.
    pub list_models: bool,
    /// Addresses of proxies, each of whose connections begins with a PROXY header (version 2) that says who the client is.
    pub proxies: Vec<IpAddr>,
}

pub(super) struct Shared {
    pub(super) reception: Reception,
    pub(super) metrics: Metrics,
    pub(super) slots: Arc<Slots>,
    pub(super) connections: Arc<Semaphore>,
    pub(super) origins: Vec<String>,
    pub(super) proxies: Vec<IpAddr>,
    memory: Memory,
    division: Division,
    phase: watch::Sender<Phase>,
    limits: ServerLimits,
    on_session: Option<OnSession>,
    on_end: Option<OnEnd>,
    record: Option<Record>,
}

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
        let each = self.session_memory().session.max(1);
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
    let app = pages_server::of_clients(shared.clone(), admin.is_none());
    if let Some(listener) = admin {
        let pages = pages_server::of_operators(shared.clone());
        let door = admin::Door::new();
        let mut server = axum_server::from_tcp(listener).map_err(io)?.handle(handle.clone()).acceptor(door);
        limit_http(server.http_builder(), limits.handshake_timeout);
        tokio::spawn(async move {
            if let Err(e) = server.serve(pages.into_make_service()).await {
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

/// Serves one connection of bare frames to its end.
pub(super) async fn serve_raw<R, W>(shared: &Arc<Shared>, read: R, write: W, peer: SocketAddr)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (source, mut sink) = raw_server::halves(read, write);
    let caller = Caller::new(peer);
    if let Some(place) = shared.place(&caller) {
        return shared.pump((source, sink), place, caller).await;
    }
    let (code, message) = Error::from(TransportError::Shutdown).for_peer();
    if let Ok(frame) = FrameBuilder::message(Kind::Error, &Failure { code, message, seconds: 0 }) {
        bridge::refuse(source, &mut sink, frame.into_bytes()).await;
    }
}

impl Shared {
    fn new(models: Vec<Hosted>, options: &ServerOptions) -> Result<Arc<Self>, Error> {
        let limits = options.limits;
        let models = Models::new(models, limits.memory_bytes, options.list_models)?;
        let tokens = options.tokens.as_deref().map(Tokens::read).transpose()?.map(RwLock::new);
        let memory = Memory::new(limits.memory_bytes);
        let most = models.most();
        let division = Division::of(&limits, &most, models.largest_frame())?;
        // One largest request always fits, also where it was rounded up.
        let share = |bytes: u64, largest: u64| memory.floor(bytes).max(memory.grains(largest));
        let rules = Rules {
            slots: limits.sessions.min(Semaphore::MAX_PERMITS),
            unit: memory,
            memory: share(division.sessions, most.session),
            shares: [share(division.shares[0], most.set_up), share(division.shares[1], most.block)],
            line: limits.line,
            patience: limits.patience,
            session: limits.session_time,
        };
        let shared = Arc::new(Self {
            reception: Reception { models, peers: Peers::new(limits.peers), tokens },
            metrics: Metrics::default(),
            slots: Slots::new(rules),
            connections: Arc::new(Semaphore::new(limits.connections.clamp(1, Semaphore::MAX_PERMITS))),
            origins: options.origins.clone(),
            proxies: options.proxies.iter().map(IpAddr::to_canonical).collect(),
            memory,
            division,
            phase: watch::Sender::new(Phase::Running),
            limits,
            on_session: options.on_session.clone(),
            on_end: options.on_end.clone(),
            record: options.record.as_deref().map(open_record).transpose()?,
        });
        shared.arrange();
        Ok(shared)
    }

    /// A place for one more client, unless the server is being stopped.
    pub(super) fn place(&self, caller: &Caller) -> Option<Arc<Place>> {
        let peers = &self.reception.peers;
        let peer = peers.name(caller.peer, caller.owner.as_deref());
        let place = self.slots.enter(&peer).map(|place| Arc::new(place.on(peers.line(caller.peer))));
        if place.is_none() {
            self.metrics.refused.fetch_add(1, Ordering::Relaxed);
        }
        place
    }

    /// Connections that one address may have where the last eighth of all is in use; `None` where it is not.
    pub(super) fn scarce(&self) -> Option<usize> {
        let eighth = self.limits.connections / SCARCE;
        (self.connections.available_permits() < eighth).then_some(eighth)
    }

    /// One session over a carrier.
    pub(super) async fn pump(
        self: &Arc<Self>,
        carrier: (impl Source, impl Sink),
        place: Arc<Place>,
        caller: Caller,
    ) {
        let (shared, phase) = (self.clone(), self.phase.subscribe());
        let times = (self.limits.handshake_timeout, self.limits.idle_timeout);
        let held = place.clone();
        bridge::run(carrier, phase, times, place, move |bridge| session(&shared, bridge, &held, &caller))
            .await;
    }

    /// What follows from the models for guests and for who asks whether there is room.
    fn arrange(&self) {
        let models = &self.reception.models;
        // What guests may send before they hold a slot stays within their part of the memory.
        let guests = self.division.guests(&self.limits, models.largest_frame());
        self.slots.set(guests, self.memory.grains(models.least_session()));
    }

    /// Tells the log who learns what of each model.
    fn announce(&self) {
        for model in self.reception.models.all().values() {
            tracing::info!(model = model.name, "{}", model.served.who_learns_what());
            if model.served.insecure() {
                tracing::warn!(model = model.name, "the plan's parameters are below 128-bit security");
            }
        }
    }
}

fn open_record(path: &std::path::Path) -> Result<Record, TransportError> {
    let open = File::options().create(true).append(true).open(path);
    open.map(|file| Arc::new(Mutex::new(Some(file))))
        .map_err(|e| TransportError::Record { path: path.display().to_string(), detail: e.to_string() })
}

/// One session on its blocking thread. The place is held until all is counted: whoever sees no active session finds room.
fn session(shared: &Arc<Shared>, mut bridge: Bridge, place: &Place, caller: &Caller) {
    let (number, peer, start, began) = (place.number(), caller.peer, Instant::now(), SystemTime::now());
    let metrics = &shared.metrics;
    let count = |traffic: Traffic| {
        metrics.received.fetch_add(traffic.received, Ordering::Relaxed);
        metrics.sent.fetch_add(traffic.sent, Ordering::Relaxed);
    };
    let (first, model, who) = match shared.reception.greet(&mut bridge, caller) {
        Ok(greeted) => greeted,
        Err(e) => {
            metrics.count(&e);
            send_failure(&mut bridge, &e);
            count(bridge.traffic());
            tracing::warn!(session = number, %peer, error = %e, "a client is not let in");
            return;
        }
    };
    tracing::info!(session = number, %peer, who, model = model.name, "a client greets");
    place.belongs(&who);
    place.needs(shared.memory.grains(model.served.memory().session));
    let reading = Reading { largest: model.served.largest_frame(), queue: model.queue() };
    bridge.admit(reading, shared.reception.peers.account(who.clone()), model.served.preparation());
    let channel = Greeted::new(first, bridge);
    let channel: Box<dyn Channel> = match &shared.record {
        Some(record) => Box::new(Recording::new(channel, record.clone())),
        None => Box::new(channel),
    };
    let mut answered = (0, 0);
    let mut on_event = |event| match event {
        SessionEvent::Begin => {}
        SessionEvent::Block { images } => {
            answered = (answered.0 + 1, answered.1 + images);
            metrics.blocks.fetch_add(1, Ordering::Relaxed);
            metrics.images.fetch_add(images, Ordering::Relaxed);
            model.metrics.block(images);
        }
    };
    let (result, traffic) = model.served.session(channel, &mut on_event);
    count(traffic);
    let seconds = start.elapsed().as_secs_f64();
    model.metrics.ended(result.as_ref().ok(), seconds, (traffic.received, traffic.sent));
    if let Some(told) = &shared.on_end {
        let trace = result.as_ref().ok();
        let stages = trace.map_or(&[][..], |t| &t.stages).iter().filter(|s| s.seconds > 0.0);
        told(SessionReport {
            session: number,
            model: model.name.clone(),
            platform: model.about.platform.clone(),
            start: report::since_1970(began),
            seconds,
            waited: place.waited().as_secs_f64(),
            setup_seconds: trace.map_or(0.0, |t| t.setup_seconds),
            stages: stages.map(|s| (s.name.clone(), s.seconds)).collect(),
            blocks: answered.0,
            images: answered.1,
            received: traffic.received,
            sent: traffic.sent,
            outcome: result.as_ref().err().map_or("ok", report::kind),
        });
    }
    match result {
        Ok(trace) => {
            let (blocks, images) = (trace.blocks, trace.images);
            tracing::info!(session = number, %peer, who, model = model.name, blocks, images, seconds, "a session ends");
            if let Some(f) = &shared.on_session {
                f(&trace);
            }
        }
        Err(e) => {
            metrics.count(&e);
            tracing::warn!(session = number, %peer, who, model = model.name, seconds, error = %e, "a session ends in an error");
        }
    }
}
