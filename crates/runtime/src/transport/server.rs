//! The server: bare frames, `/ws`, `/healthz` and `/metrics` on one port.

use super::bridge::{self, Bridge, Phase, Queue, Sink, Source};
use super::memory::Division;
use super::metrics::{Metrics, Stats};
use super::raw_server::{self, Door};
use super::record::{Record, Recording};
use super::slots::{Place, Rules, Slots};
use super::{tls, websocket_server};
use crate::channel::Channel;
use crate::error::{Error, TransportError};
use crate::session::server::{Served, SessionEvent, SessionMemory};
use crate::trace::ServerTrace;
use crate::wire::{Failure, FrameBuilder, Kind};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, State};
use axum::http::{header, HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::Router;
use axum_server::Handle;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::fs::File;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{watch, Semaphore};
use tokio_rustls::TlsAcceptor;

/// PEM files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, the server's own first.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// What a server grants: sessions, memory, time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Sessions in work at once.
    pub sessions: usize,
    /// Bytes that all sessions and guests together may hold. A session asks for what its block takes when the block begins, and waits until it is free;
    /// what a session holds between blocks lowers the number of sessions.
    pub memory_bytes: u64,
    /// Connections at once, of clients and of those that ask for `/healthz` or `/metrics`. Others are closed as they come.
    pub connections: usize,
    /// Clients at once that have greeted, or are about to, and sent nothing to work on. When one more comes, the oldest is refused.
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
        }
    }
}

/// Called with the measurements of every session that ended well.
pub type OnSession = Arc<dyn Fn(&ServerTrace) + Send + Sync>;

/// How a server runs: address, certificate, limits, what it reports and records.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// Name or address to listen on.
    pub host: String,
    /// Port; 0: any free one.
    pub port: u16,
    /// TLS, or plain TCP.
    pub tls: Option<TlsFiles>,
    /// What is granted.
    pub limits: ServerLimits,
    /// Called when a session ended well.
    pub on_session: Option<OnSession>,
    /// A file to which everything that clients encrypt is appended as it came: all that this server sees of their inputs.
    pub record: Option<PathBuf>,
    /// Origins (`https://host`) whose pages may open `/ws` beside those of this server itself. Programs that are no browser send none.
    pub origins: Vec<String>,
}

/// What may wait for a session of this plan, as the bridge counts it.
fn queue(served: &dyn Served) -> Queue {
    let waiting = served.waiting();
    Queue { frames: waiting.frames.unwrap_or(Semaphore::MAX_PERMITS), bytes: waiting.bytes }
}

pub(super) struct Shared {
    plan: Arc<dyn Served>,
    metrics: Metrics,
    slots: Arc<Slots>,
    pub(super) connections: Arc<Semaphore>,
    origins: Vec<String>,
    phase: watch::Sender<Phase>,
    limits: ServerLimits,
    on_session: Option<OnSession>,
    record: Option<Record>,
}

/// A running server. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    sessions: usize,
    tls: Option<(TlsFiles, Acceptor)>,
    handle: Handle<SocketAddr>,
    thread: Mutex<Option<JoinHandle<Result<(), TransportError>>>>,
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
        let limits = options.limits;
        let one = plan.memory();
        let memory = Division::of(&limits, &one, plan.largest_frame())?;
        let (slots, guests) = (memory.slots, memory.guests);
        let rules = Rules {
            slots,
            guests,
            line: limits.line,
            patience: limits.patience,
            session: limits.session_time,
        };
        let record = options.record.as_deref().map(open_record).transpose()?;
        let tls = match options.tls.clone() {
            Some(files) => Some((files.clone(), Acceptor::new(RwLock::new(read_tls(&files)?)))),
            None => None,
        };
        let host = if options.host.is_empty() { "127.0.0.1" } else { options.host.as_str() };
        let listener = listen(host, options.port)?;
        let fail =
            |e: std::io::Error| TransportError::Listen { address: host.to_owned(), detail: e.to_string() };
        let address = listener.local_addr().map_err(fail)?;
        let shared = Arc::new(Shared {
            plan,
            metrics: Metrics::default(),
            slots: Slots::new(rules, memory.free(), one.session),
            connections: Arc::new(Semaphore::new(limits.connections.clamp(1, Semaphore::MAX_PERMITS))),
            origins: options.origins.clone(),
            phase: watch::Sender::new(Phase::Running),
            limits,
            on_session: options.on_session.clone(),
            record,
        });
        let handle = Handle::new();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(slots.clamp(1, 1 << 14) + guests + 8)
            .thread_name("hushnet-net")
            .enable_all()
            .build()
            .map_err(fail)?;
        let (state, stop) = (shared.clone(), handle.clone());
        let acceptor = tls.as_ref().map(|(_, acceptor)| acceptor.clone());
        let thread = std::thread::Builder::new()
            .name("hushnet-serve".into())
            .spawn(move || {
                let served = runtime.block_on(serve(listener, acceptor, state, stop));
                runtime.shutdown_timeout(Duration::from_secs(1));
                served
            })
            .map_err(fail)?;
        tracing::info!("{}", shared.plan.who_learns_what());
        if shared.plan.insecure() {
            tracing::warn!("the plan's parameters are below 128-bit security");
        }
        tracing::info!(%address, tls = options.tls.is_some(), sessions = slots, "serving");
        Ok(Self { shared, address, sessions: slots, tls, handle, thread: Mutex::new(Some(thread)) })
    }

    /// The address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sessions that may be in work at once: those that were granted, or fewer where the memory for sessions does not hold so many.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions
    }

    /// What one session of the plan may hold at most, in bytes.
    #[must_use]
    pub fn session_memory(&self) -> SessionMemory {
        self.shared.plan.memory()
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
            let read = read_tls(files)?;
            *acceptor.write().unwrap_or_else(PoisonError::into_inner) = read;
            tracing::info!("the certificate was read again");
        }
        Ok(())
    }

    /// Refuses new sessions, lets blocks in work finish within the grace period, and ends. Returns at once.
    pub fn stop(&self) {
        self.shared.slots.close();
        self.shared.phase.send_if_modified(|p| std::mem::replace(p, Phase::Draining) == Phase::Running);
        self.handle.graceful_shutdown(Some(self.shared.limits.grace + Duration::from_secs(2)));
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// [`Error::Transport`] when serving failed.
    pub fn join(&self) -> Result<(), Error> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread.map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => Ok(result?),
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

fn read_tls(files: &TlsFiles) -> Result<TlsAcceptor, TransportError> {
    tls::server(&files.certificate, &files.key).map(TlsAcceptor::from)
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
    listener: TcpListener,
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
    let app = Router::new()
        .route("/ws", get(upgrade))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .layer(axum::middleware::map_response(single))
        .with_state(shared.clone());
    let io = |e: std::io::Error| TransportError::Io(e.to_string());
    let door = Door { shared, tls, handshake: limits.handshake_timeout };
    let mut server = axum_server::from_tcp(listener).map_err(io)?.handle(handle).acceptor(door);
    let http = server.http_builder();
    // A WebSocket begins in HTTP/1.1, probes are single requests, and nobody holds a connection without one.
    *http = std::mem::replace(http, Builder::new(TokioExecutor::new())).http1_only();
    http.http1().timer(TokioTimer::new()).header_read_timeout(limits.handshake_timeout);
    server.serve(app.into_make_service_with_connect_info::<SocketAddr>()).await.map_err(io)
}

/// Closes a connection behind its answer, unless it becomes a WebSocket.
async fn single(mut answer: Response) -> Response {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let text = shared.metrics.text(&shared.slots.count());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

/// Whether a client that comes now is served at once. `/livez` only tells that the process answers.
async fn health(State(shared): State<Arc<Shared>>) -> Response {
    let said = match () {
        () if shared.slots.closed() => "stopping\n",
        () if shared.slots.full() => "full\n",
        () => return "ok\n".into_response(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, said).into_response()
}

async fn upgrade(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    socket: WebSocketUpgrade,
) -> Response {
    if !may_open(&headers, &shared.origins) {
        let why = "this server does not take pages of other origins; its operator can name yours\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let Some(place) = shared.place() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    };
    let limit = shared.plan.largest_frame();
    socket.max_message_size(limit).max_frame_size(limit).on_upgrade(move |socket| async move {
        shared.pump(websocket_server::halves(socket), place, peer).await;
    })
}

/// Whether a page of the origin that a browser states may talk to this server: its own, or a named one.
fn may_open(headers: &HeaderMap, origins: &[String]) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if !headers.contains_key(header::ORIGIN) {
        return true;
    }
    let Some(origin) = text(header::ORIGIN) else { return false };
    let own = origin.split_once("://").map(|(_, host)| host);
    origins.iter().any(|o| o.eq_ignore_ascii_case(origin))
        || own.zip(text(header::HOST)).is_some_and(|(own, host)| own.eq_ignore_ascii_case(host))
}

/// Serves one connection of bare frames to its end.
pub(super) async fn serve_raw<R, W>(shared: &Arc<Shared>, read: R, write: W, peer: SocketAddr)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (source, mut sink) = raw_server::halves(read, write, shared.plan.largest_frame());
    if let Some(place) = shared.place() {
        return shared.pump((source, sink), place, peer).await;
    }
    let (code, message) = Error::from(TransportError::Shutdown).for_peer();
    if let Ok(frame) = FrameBuilder::message(Kind::Error, &Failure { code, message }) {
        bridge::refuse(source, &mut sink, frame.into_bytes()).await;
    }
}

impl Shared {
    /// A place for one more client, unless the server is being stopped.
    fn place(&self) -> Option<Arc<Place>> {
        let place = self.slots.enter().map(Arc::new);
        if place.is_none() {
            self.metrics.refused.fetch_add(1, Ordering::Relaxed);
        }
        place
    }

    /// One session over a carrier.
    async fn pump(self: &Arc<Self>, carrier: (impl Source, impl Sink), place: Arc<Place>, peer: SocketAddr) {
        let (shared, phase, queue) = (self.clone(), self.phase.subscribe(), queue(self.plan.as_ref()));
        let times = (self.limits.handshake_timeout, self.limits.idle_timeout);
        let held = place.clone();
        bridge::run(carrier, phase, times, queue, place, move |bridge| session(&shared, bridge, &held, peer))
            .await;
    }
}

fn open_record(path: &std::path::Path) -> Result<Record, TransportError> {
    let open = File::options().create(true).append(true).open(path);
    open.map(|file| Arc::new(Mutex::new(Some(file))))
        .map_err(|e| TransportError::Record { path: path.display().to_string(), detail: e.to_string() })
}

/// One session on its blocking thread. The place is held until all is counted: whoever sees no active session finds room.
fn session(shared: &Arc<Shared>, bridge: Bridge, place: &Place, peer: SocketAddr) {
    let (metrics, number, start) = (&shared.metrics, place.number(), Instant::now());
    tracing::info!(session = number, %peer, "a client greets");
    let channel: Box<dyn Channel> = match &shared.record {
        Some(record) => Box::new(Recording::new(bridge, record.clone())),
        None => Box::new(bridge),
    };
    let mut on_event = |event| match event {
        SessionEvent::Begin => {}
        SessionEvent::Block { images } => {
            metrics.blocks.fetch_add(1, Ordering::Relaxed);
            metrics.images.fetch_add(images, Ordering::Relaxed);
        }
    };
    let (result, traffic) = shared.plan.session(channel, &mut on_event);
    metrics.received.fetch_add(traffic.received, Ordering::Relaxed);
    metrics.sent.fetch_add(traffic.sent, Ordering::Relaxed);
    let seconds = start.elapsed().as_secs_f64();
    match result {
        Ok(trace) => {
            let (blocks, images) = (trace.blocks, trace.images);
            tracing::info!(session = number, %peer, blocks, images, seconds, "a session ends");
            if let Some(f) = &shared.on_session {
                f(&trace);
            }
        }
        Err(e) => {
            metrics.count(&e);
            tracing::warn!(session = number, %peer, seconds, error = %e, "a session ends in an error");
        }
    }
}
