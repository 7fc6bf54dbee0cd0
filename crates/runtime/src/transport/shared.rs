//! What all connections of a server share, and the life of one session.

use super::bridge::{self, Bridge, Phase, Reading, Sink, Source};
use super::greeting::{Caller, Greeted, Reception};
use super::memory::{Division, Memory};
use super::metrics::Metrics;
use super::models::{Hosted, Models};
use super::options::{OnEnd, OnSession, ServerLimits, ServerOptions};
use super::peers::Peers;
use super::raw_server;
use super::record::{Kept, Record, Recording};
use super::report::{self, SessionReport};
use super::site;
use super::slots::{Place, Rules, Slots};
use super::socket::Line;
use super::token::Tokens;
use crate::channel::{send_failure, Channel, Traffic};
use crate::error::{Error, TransportError};
use crate::session::server::SessionEvent;
use crate::wire::{Failure, FrameBuilder, Kind};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use std::time::{Instant, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{watch, Semaphore};

/// Of so many parts of all connections the last is for addresses that have few.
const SCARCE: usize = 8;

/// What every connection reads: models, limits, counters, slots, memory.
pub(super) struct Shared {
    pub(super) reception: Reception,
    pub(super) metrics: Metrics,
    pub(super) slots: Arc<Slots>,
    pub(super) connections: Arc<Semaphore>,
    pub(super) origins: Vec<String>,
    pub(super) proxies: Vec<IpAddr>,
    pub(super) web: axum::Router<Arc<Shared>>,
    pub(super) memory: Memory,
    pub(super) division: Division,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) limits: ServerLimits,
    on_session: Option<OnSession>,
    on_end: Option<OnEnd>,
    record: Option<Record>,
}

impl Shared {
    pub(super) fn new(models: Vec<Hosted>, options: &ServerOptions) -> Result<Arc<Self>, Error> {
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
            web: site::routes(&options.web)?,
            memory,
            division,
            phase: watch::Sender::new(Phase::Running),
            limits,
            on_session: options.on_session.clone(),
            on_end: options.on_end.clone(),
            record: options.record.as_deref().map(Kept::open).transpose()?,
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
    pub(super) fn arrange(&self) {
        let models = &self.reception.models;
        // What guests may send before they hold a slot stays within their part of the memory.
        let guests = self.division.guests(&self.limits, models.largest_frame());
        self.slots.set(guests, self.memory.grains(models.least_session()));
    }

    /// Tells the log who learns what of each model.
    pub(super) fn announce(&self) {
        for model in self.reception.models.all().values() {
            tracing::info!(model = model.name, "{}", model.served.who_learns_what());
            if model.served.insecure() {
                tracing::warn!(model = model.name, "the plan's parameters are below 128-bit security");
            }
        }
    }
}

/// Serves one connection of bare frames to its end.
pub(super) async fn serve_raw<R, W>(
    shared: &Arc<Shared>,
    carrier: (R, W),
    line: Option<Line>,
    peer: SocketAddr,
) where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (source, mut sink) = raw_server::halves(carrier, line);
    let caller = Caller::new(peer);
    if let Some(place) = shared.place(&caller) {
        return shared.pump((source, sink), place, caller).await;
    }
    let (code, message) = Error::from(TransportError::Shutdown).for_peer();
    if let Ok(frame) = FrameBuilder::message(Kind::Error, &Failure { code, message, seconds: 0 }) {
        bridge::refuse(source, &mut sink, frame.into_bytes()).await;
    }
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
