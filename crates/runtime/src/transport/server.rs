//! The server: bare frames, `/ws`, `/healthz` and `/metrics` on one port.

use super::bridge::{self, Bridge, Phase, Queue, Sink, Source};
use super::metrics::{Metrics, Stats};
use super::raw_server::{self, Door};
use super::record::{self, Recording};
use super::{tls, websocket_server};
use crate::channel::{Channel, Traffic};
use crate::client_aided::{ServerPlan, SessionEvent, KEPT_BYTES};
use crate::error::{code, Error, TransportError};
use crate::non_interactive::{NonInteractiveModel, NonInteractiveServerTrace, NonInteractiveSession};
use crate::plan::{Limits, Plan};
use crate::trace::ServerTrace;
use crate::two_party::{frames, TwoPartyModel, TwoPartySession, TwoPartyTrace};
use crate::wire::{Failure, FrameBuilder, Kind};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::State;
use axum::http::{header, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::Router;
use axum_server::Handle;
use hyper_util::rt::TokioTimer;
use std::fs::File;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{watch, OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

/// PEM files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, the server's own first.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// What a server grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Sessions at once.
    pub sessions: usize,
    /// Bytes that all sessions together may hold; lowers the number of sessions.
    pub memory_bytes: u64,
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
            idle_timeout: Duration::from_secs(120),
            handshake_timeout: Duration::from_secs(10),
            grace: Duration::from_secs(10),
        }
    }
}

/// Called with the measurements of every session that ended well.
pub type OnSession = Arc<dyn Fn(&ServerTrace) + Send + Sync>;

/// Called with the measurements of every two-party session that ended well.
pub type OnTwoParty = Arc<dyn Fn(&TwoPartyTrace) + Send + Sync>;

/// How a server runs.
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
    /// Called when a two-party session ended well.
    pub on_two_party: Option<OnTwoParty>,
    /// A file to which everything that clients encrypt is appended as it came: all that this server sees of their inputs.
    pub record: Option<PathBuf>,
}

/// What a server serves.
pub enum Served {
    /// The client computes the non-linear layers.
    ClientAided(Box<ServerPlan>),
    /// Both parties compute on shares.
    TwoParty(Box<TwoPartyModel>),
    /// The server computes everything, under encryption.
    NonInteractive(Box<NonInteractiveModel>),
}

impl From<ServerPlan> for Served {
    fn from(plan: ServerPlan) -> Self {
        Self::ClientAided(Box::new(plan))
    }
}

impl From<TwoPartyModel> for Served {
    fn from(model: TwoPartyModel) -> Self {
        Self::TwoParty(Box::new(model))
    }
}

impl From<NonInteractiveModel> for Served {
    fn from(model: NonInteractiveModel) -> Self {
        Self::NonInteractive(Box::new(model))
    }
}

impl Served {
    fn session_bytes(&self) -> u64 {
        match self {
            Self::ClientAided(plan) => session_bytes(plan.plan()),
            Self::TwoParty(model) => model.session_bytes(),
            Self::NonInteractive(model) => model.session_bytes(),
        }
    }

    fn largest_frame(&self) -> usize {
        match self {
            Self::ClientAided(plan) => plan.plan().largest_frame(),
            Self::TwoParty(_) => frames::LARGEST_FRAME,
            Self::NonInteractive(model) => model.largest_frame(),
        }
    }

    /// What may wait for a session.
    fn queue(&self) -> Queue {
        match self {
            Self::ClientAided(_) | Self::NonInteractive(_) => {
                Queue { frames: bridge::DEPTH, bytes: u64::MAX }
            }
            Self::TwoParty(model) => Queue { frames: Semaphore::MAX_PERMITS, bytes: model.queue_bytes() },
        }
    }

    fn announce(&self) {
        match self {
            Self::ClientAided(plan) => {
                tracing::info!(
                    "client-aided: the server learns shapes only; the client learns every pre-activation, from which weights can be solved for"
                );
                if plan.plan().insecure() {
                    tracing::warn!("the plan's parameters are below 128-bit security");
                }
            }
            Self::TwoParty(_) => {
                tracing::info!(
                    "two-party: the server learns shapes only; the client learns what the plan reveals"
                );
            }
            Self::NonInteractive(model) => {
                let hidden = model.plan().flood_bits().is_some();
                tracing::info!(
                    "non-interactive: the server learns shapes only; the client learns its results{}",
                    if hidden {
                        ""
                    } else {
                        ", and weights may be solved for from ciphertexts (compile with hide_weights)"
                    }
                );
                if model.plan().insecure() {
                    tracing::warn!("the plan's parameters are below 128-bit security");
                }
            }
        }
    }
}

pub(super) struct Shared {
    plan: Served,
    metrics: Metrics,
    slots: Arc<Semaphore>,
    phase: watch::Sender<Phase>,
    limits: ServerLimits,
    on_session: Option<OnSession>,
    on_two_party: Option<OnTwoParty>,
    record: Mutex<Option<File>>,
    recording: bool,
}

/// A running server. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    handle: Handle<SocketAddr>,
    thread: Mutex<Option<JoinHandle<Result<(), TransportError>>>>,
}

impl Server {
    /// Opens the port and serves on a thread of its own.
    ///
    /// # Errors
    /// [`TransportError::Listen`] and [`TransportError::Tls`]; [`crate::PlanError::TooLarge`] when one session needs more
    /// memory than the limit.
    pub fn start(plan: impl Into<Served>, options: &ServerOptions) -> Result<Self, Error> {
        let plan = plan.into();
        let limits = options.limits;
        let need = plan.session_bytes();
        Limits::check("the memory that one session needs", need, limits.memory_bytes)?;
        let slots =
            limits.sessions.min(usize::try_from(limits.memory_bytes / need.max(1)).unwrap_or(usize::MAX));
        let slots = slots.min(Semaphore::MAX_PERMITS);
        let record = options.record.as_deref().map(open_record).transpose()?;
        let config = options.tls.as_ref().map(|t| tls::server(&t.certificate, &t.key)).transpose()?;
        let host = if options.host.is_empty() { "127.0.0.1" } else { options.host.as_str() };
        let listener = listen(host, options.port)?;
        let fail =
            |e: std::io::Error| TransportError::Listen { address: host.to_owned(), detail: e.to_string() };
        let address = listener.local_addr().map_err(fail)?;
        let shared = Arc::new(Shared {
            plan,
            metrics: Metrics::default(),
            slots: Arc::new(Semaphore::new(slots)),
            phase: watch::Sender::new(Phase::Running),
            limits,
            on_session: options.on_session.clone(),
            on_two_party: options.on_two_party.clone(),
            recording: record.is_some(),
            record: Mutex::new(record),
        });
        let handle = Handle::new();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(slots.clamp(1, 1 << 14) + 8)
            .thread_name("hushnet-net")
            .enable_all()
            .build()
            .map_err(fail)?;
        let (state, stop) = (shared.clone(), handle.clone());
        let thread = std::thread::Builder::new()
            .name("hushnet-serve".into())
            .spawn(move || {
                let served = runtime.block_on(serve(listener, config, state, stop));
                runtime.shutdown_timeout(Duration::from_secs(1));
                served
            })
            .map_err(fail)?;
        shared.plan.announce();
        tracing::info!(%address, tls = options.tls.is_some(), sessions = slots, "serving");
        Ok(Self { shared, address, handle, thread: Mutex::new(Some(thread)) })
    }

    /// The address in use.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.metrics.stats()
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

/// Bytes that a session may hold: the largest window of ciphertext rows, those kept for the next block, and the frames
/// in flight.
fn session_bytes(plan: &Plan) -> u64 {
    let (mut largest, mut all, mut frames) = (0, 0_u64, 0);
    for s in plan.stages().iter().filter_map(crate::plan::Stage::linear) {
        let parts = if s.mask == crate::plan::MaskMode::Shared { 1 } else { 2 };
        let row = s.geometry.input_rows().1 as u64 * 8 * (s.params.ring_degree() as u64 + 136);
        let window = s.tiling().map_or(0, |t| t.window_rows() as u64).saturating_mul(row * parts);
        largest = window.max(largest);
        all = all.saturating_add(window);
        for t in 0..s.tiles.len() {
            let down = s.response_bytes(t).max(s.setup_bytes(t)) as u64;
            frames = frames.max(4 * s.request_bytes(t) as u64 + 3 * down);
        }
    }
    let kept = all.min(KEPT_BYTES as u64);
    largest.saturating_add(kept).saturating_add(frames).saturating_add(1 << 20)
}

async fn serve(
    listener: TcpListener,
    config: Option<Arc<rustls::ServerConfig>>,
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
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/metrics", get(metrics))
        .with_state(shared.clone());
    let io = |e: std::io::Error| TransportError::Io(e.to_string());
    let door = Door { shared, tls: config.map(TlsAcceptor::from), handshake: limits.handshake_timeout };
    let mut server = axum_server::from_tcp(listener).map_err(io)?.handle(handle).acceptor(door);
    server.http_builder().http1().timer(TokioTimer::new()).header_read_timeout(limits.handshake_timeout);
    server.serve(app.into_make_service()).await.map_err(io)
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], shared.metrics.text())
}

async fn upgrade(State(shared): State<Arc<Shared>>, socket: WebSocketUpgrade) -> Response {
    let Some(slot) = shared.slot() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "full\n").into_response();
    };
    let limit = shared.plan.largest_frame();
    socket.max_message_size(limit).max_frame_size(limit).on_upgrade(move |socket| async move {
        shared.pump(websocket_server::halves(socket), slot).await;
    })
}

/// Serves one connection of bare frames to its end.
pub(super) async fn serve_raw<R, W>(shared: &Arc<Shared>, read: R, write: W)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (source, mut sink) = raw_server::halves(read, write, shared.plan.largest_frame());
    match shared.slot() {
        Some(slot) => shared.pump((source, sink), slot).await,
        None => {
            let message = "the server is full or stopping; try again later".to_owned();
            let failure = Failure { code: code::BUSY, message };
            if let Ok(frame) = FrameBuilder::message(Kind::Error, &failure) {
                bridge::refuse(source, &mut sink, frame.into_bytes()).await;
            }
        }
    }
}

impl Shared {
    /// Room for a session, if there is any.
    fn slot(&self) -> Option<OwnedSemaphorePermit> {
        let slot = self.slots.clone().try_acquire_owned().ok();
        if slot.is_none() {
            self.metrics.refused.fetch_add(1, Ordering::Relaxed);
        }
        slot
    }

    /// One session over a carrier.
    async fn pump(self: &Arc<Self>, carrier: (impl Source, impl Sink), slot: OwnedSemaphorePermit) {
        let (shared, phase, queue) = (self.clone(), self.phase.subscribe(), self.plan.queue());
        let times = (self.limits.handshake_timeout, self.limits.idle_timeout);
        bridge::run(carrier, phase, times, queue, move |bridge| session(&shared, bridge, slot)).await;
    }
}

fn open_record(path: &std::path::Path) -> Result<File, TransportError> {
    let open = File::options().create(true).append(true).open(path);
    open.map_err(|e| TransportError::Record { path: path.display().to_string(), detail: e.to_string() })
}

/// One session on its blocking thread.
fn session(shared: &Arc<Shared>, bridge: Bridge, slot: OwnedSemaphorePermit) {
    let metrics = &shared.metrics;
    let number = metrics.sessions.fetch_add(1, Ordering::Relaxed);
    metrics.active.fetch_add(1, Ordering::Relaxed);
    tracing::info!(session = number, "session begins");
    let (result, traffic) = match &shared.plan {
        Served::ClientAided(plan) => client_aided(shared, plan, bridge),
        Served::TwoParty(model) => two_party(shared, model, bridge),
        Served::NonInteractive(model) => non_interactive(shared, model, bridge),
    };
    metrics.received.fetch_add(traffic.received, Ordering::Relaxed);
    metrics.sent.fetch_add(traffic.sent, Ordering::Relaxed);
    // Whoever sees that nothing is active finds room.
    drop(slot);
    metrics.active.fetch_sub(1, Ordering::Release);
    match result {
        Ok(trace) => {
            tracing::info!(session = number, blocks = trace.blocks, images = trace.images, "session ends");
            if let Some(f) = &shared.on_session {
                f(&trace);
            }
        }
        Err(e) => {
            metrics.count(&e);
            tracing::warn!(session = number, error = %e, "session ends in an error");
        }
    }
}

fn client_aided(
    shared: &Shared,
    plan: &ServerPlan,
    mut bridge: Bridge,
) -> (Result<ServerTrace, Error>, Traffic) {
    let metrics = &shared.metrics;
    let mut on_event = |event| match event {
        SessionEvent::Block { images } => {
            metrics.blocks.fetch_add(1, Ordering::Relaxed);
            metrics.images.fetch_add(images, Ordering::Relaxed);
        }
    };
    let result = if shared.recording {
        plan.serve(&mut Recording::new(&mut bridge, &shared.record), &mut on_event)
    } else {
        plan.serve(&mut bridge, &mut on_event)
    };
    (result, bridge.traffic())
}

fn non_interactive(
    shared: &Shared,
    model: &NonInteractiveModel,
    mut bridge: Bridge,
) -> (Result<ServerTrace, Error>, Traffic) {
    let metrics = &shared.metrics;
    let mut on_event = |event| match event {
        NonInteractiveSession::Block { images } => {
            metrics.blocks.fetch_add(1, Ordering::Relaxed);
            metrics.images.fetch_add(images, Ordering::Relaxed);
        }
    };
    let result = if shared.recording {
        model.serve(&mut Recording::new(&mut bridge, &shared.record), &mut on_event)
    } else {
        model.serve(&mut bridge, &mut on_event)
    };
    (result.map(non_interactive_summary), bridge.traffic())
}

/// A non-interactive session in the terms of all sessions; its work on ciphertexts stands where set-ups stand.
fn non_interactive_summary(trace: NonInteractiveServerTrace) -> ServerTrace {
    ServerTrace {
        blocks: trace.blocks,
        images: trace.images,
        linear_seconds: trace.stage_seconds,
        setup_seconds: trace.seconds,
        bytes_up: trace.bytes_up,
        bytes_down: trace.bytes_down,
    }
}

fn two_party(
    shared: &Arc<Shared>,
    model: &TwoPartyModel,
    bridge: Bridge,
) -> (Result<ServerTrace, Error>, Traffic) {
    let metrics = &shared.metrics;
    let mut on_event = |event| match event {
        TwoPartySession::Group { images } => {
            metrics.blocks.fetch_add(1, Ordering::Relaxed);
            metrics.images.fetch_add(images, Ordering::Relaxed);
        }
    };
    let tap = shared.recording.then(|| {
        let shared = shared.clone();
        let tap: frames::Tap = Box::new(move |bytes: &[u8]| record::append(&shared.record, bytes));
        tap
    });
    let (result, traffic) = frames::serve(model, Box::new(bridge), tap, &mut on_event);
    if let (Ok(trace), Some(f)) = (&result, &shared.on_two_party) {
        f(trace);
    }
    (result.map(|trace| summary(&trace)), traffic)
}

/// A two-party session in the terms of all sessions.
fn summary(trace: &TwoPartyTrace) -> ServerTrace {
    ServerTrace {
        blocks: trace.groups as u64,
        images: trace.images as u64,
        linear_seconds: trace.stages.iter().map(|s| s.phase.seconds - s.phase.waiting).collect(),
        setup_seconds: trace.setup.seconds,
        bytes_up: trace.setup.bytes_up + trace.total.bytes_up,
        bytes_down: trace.setup.bytes_down + trace.total.bytes_down,
    }
}
