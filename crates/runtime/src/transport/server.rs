//! The server: bare frames, `/ws`, `/healthz` and `/metrics` on one port.

use super::bridge::{self, Bridge, Phase, Queue, Sink, Source};
use super::metrics::{Metrics, Stats};
use super::raw_server::{self, Door};
use super::record::{Record, Recording};
use super::{tls, websocket_server};
use crate::channel::Channel;
use crate::error::{code, Error, TransportError};
use crate::plan::Limits;
use crate::session::server::{Served, SessionEvent};
use crate::trace::ServerTrace;
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

/// What a server grants: sessions, memory, time.
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
}

/// What may wait for a session of this plan, as the bridge counts it.
fn queue(served: &dyn Served) -> Queue {
    let waiting = served.waiting();
    Queue { frames: waiting.frames.unwrap_or(Semaphore::MAX_PERMITS), bytes: waiting.bytes }
}

pub(super) struct Shared {
    plan: Arc<dyn Served>,
    metrics: Metrics,
    slots: Arc<Semaphore>,
    phase: watch::Sender<Phase>,
    limits: ServerLimits,
    on_session: Option<OnSession>,
    record: Option<Record>,
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
    pub fn start(plan: impl Served + 'static, options: &ServerOptions) -> Result<Self, Error> {
        Self::start_shared(Arc::new(plan), options)
    }

    /// As [`Self::start`], of a prepared plan that others use, too.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_shared(plan: Arc<dyn Served>, options: &ServerOptions) -> Result<Self, Error> {
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
            record,
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
        tracing::info!("{}", shared.plan.who_learns_what());
        if shared.plan.insecure() {
            tracing::warn!("the plan's parameters are below 128-bit security");
        }
        tracing::info!(%address, tls = options.tls.is_some(), sessions = slots, "serving");
        Ok(Self { shared, address, handle, thread: Mutex::new(Some(thread)) })
    }

    /// The address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counters of the server at this moment.
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
        let (shared, phase, queue) = (self.clone(), self.phase.subscribe(), queue(self.plan.as_ref()));
        let times = (self.limits.handshake_timeout, self.limits.idle_timeout);
        bridge::run(carrier, phase, times, queue, move |bridge| session(&shared, bridge, slot)).await;
    }
}

fn open_record(path: &std::path::Path) -> Result<Record, TransportError> {
    let open = File::options().create(true).append(true).open(path);
    open.map(|file| Arc::new(Mutex::new(Some(file))))
        .map_err(|e| TransportError::Record { path: path.display().to_string(), detail: e.to_string() })
}

/// One session on its blocking thread.
fn session(shared: &Arc<Shared>, bridge: Bridge, slot: OwnedSemaphorePermit) {
    let metrics = &shared.metrics;
    let number = metrics.sessions.fetch_add(1, Ordering::Relaxed);
    metrics.active.fetch_add(1, Ordering::Relaxed);
    tracing::info!(session = number, "session begins");
    let channel: Box<dyn Channel> = match &shared.record {
        Some(record) => Box::new(Recording::new(bridge, record.clone())),
        None => Box::new(bridge),
    };
    let mut on_event = |event| match event {
        SessionEvent::Block { images } => {
            metrics.blocks.fetch_add(1, Ordering::Relaxed);
            metrics.images.fetch_add(images, Ordering::Relaxed);
        }
    };
    let (result, traffic) = shared.plan.session(channel, &mut on_event);
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
