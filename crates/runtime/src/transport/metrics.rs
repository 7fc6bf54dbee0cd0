//! Counters of a server, as numbers and as Prometheus text.

use super::histogram::{family, label, Histogram, BYTES, SECONDS};
use super::models::Model;
use super::slots::{Count, Slots};
use crate::error::{Error, ProtocolError, TransportError, UnitError};
use crate::trace::ServerTrace;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Counters; atomic, shared by all sessions.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub refused: AtomicU64,
    pub blocks: AtomicU64,
    pub images: AtomicU64,
    pub received: AtomicU64,
    pub sent: AtomicU64,
    pub protocol_errors: AtomicU64,
    pub transport_errors: AtomicU64,
    pub internal_errors: AtomicU64,
    pub unauthorized: AtomicU64,
}

/// Counters of one model.
#[derive(Debug)]
pub(super) struct ModelMetrics {
    blocks: AtomicU64,
    images: AtomicU64,
    /// Sessions that ended well, and in an error.
    ended: [AtomicU64; 2],
    /// Seconds of sessions, from the greeting to the end.
    session: Histogram,
    /// Bytes of a session's frames: received and sent.
    bytes: [Histogram; 2],
    /// Seconds of computation by stage, of sessions that ended well.
    stages: Mutex<BTreeMap<String, Arc<Histogram>>>,
}

impl Default for ModelMetrics {
    fn default() -> Self {
        Self {
            blocks: AtomicU64::default(),
            images: AtomicU64::default(),
            ended: Default::default(),
            session: Histogram::new(SECONDS),
            bytes: [Histogram::new(BYTES), Histogram::new(BYTES)],
            stages: Mutex::default(),
        }
    }
}

/// The stages of a model that are told apart at most; further ones count together under the name `other`.
const STAGES: usize = 2048;

impl ModelMetrics {
    pub(super) fn block(&self, images: u64) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        self.images.fetch_add(images, Ordering::Relaxed);
    }

    /// A session has ended, with a trace where it ended well.
    pub(super) fn ended(&self, trace: Option<&ServerTrace>, seconds: f64, (received, sent): (u64, u64)) {
        self.ended[usize::from(trace.is_none())].fetch_add(1, Ordering::Relaxed);
        self.session.observe(seconds);
        self.bytes[0].observe(received as f64);
        self.bytes[1].observe(sent as f64);
        let mut stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        for stage in trace.map_or(&[][..], |t| &t.stages).iter().filter(|s| s.seconds > 0.0) {
            let known = stages.len() < STAGES || stages.contains_key(&stage.name);
            let name = if known { stage.name.as_str() } else { "other" };
            if !stages.contains_key(name) {
                stages.insert(name.to_owned(), Arc::new(Histogram::new(SECONDS)));
            }
            if let Some(histogram) = stages.get(name) {
                histogram.observe(stage.seconds);
            }
        }
    }
}

/// The counters of a server at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stats {
    /// Sessions begun.
    pub sessions: u64,
    /// Sessions in work now: they hold a slot.
    pub active: u64,
    /// Clients that are connected and have sent nothing to work on.
    pub guests: u64,
    /// Clients that wait for a slot.
    pub waiting: u64,
    /// Bytes that sessions have reserved now.
    pub memory_reserved: u64,
    /// The most bytes that sessions have reserved at once since the start.
    pub memory_reserved_peak: u64,
    /// Clients refused because the server was full or stopping.
    pub refused: u64,
    /// Blocks answered.
    pub blocks: u64,
    /// Images in them.
    pub images: u64,
    /// Bytes received, headers of frames included.
    pub bytes_received: u64,
    /// Bytes sent, headers of frames included.
    pub bytes_sent: u64,
    /// Sessions that ended because the client broke the protocol or gave up.
    pub protocol_errors: u64,
    /// Sessions that ended because the connection failed or timed out.
    pub transport_errors: u64,
    /// Sessions that ended by a failure of this program.
    pub internal_errors: u64,
    /// Clients refused because they showed no token that the server knows.
    pub unauthorized: u64,
}

impl Metrics {
    pub(super) fn count(&self, error: &Error) {
        let counter = match error {
            Error::Protocol(ProtocolError::Unauthorized) => &self.unauthorized,
            Error::Units(UnitError::Folder { .. }) => &self.internal_errors,
            Error::Protocol(_) | Error::Input(_) | Error::Range(_) | Error::Units(_) | Error::Cancelled => {
                &self.protocol_errors
            }
            Error::Transport(TransportError::Busy { .. } | TransportError::Limited { .. }) => &self.refused,
            Error::Transport(_) => &self.transport_errors,
            Error::Plan(_) | Error::Internal(_) | Error::Environment(_) | Error::Store(_) => {
                &self.internal_errors
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn stats(&self, places: &Count) -> Stats {
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        Stats {
            sessions: places.begun,
            active: places.active as u64,
            guests: places.guests as u64,
            waiting: places.in_line as u64,
            memory_reserved: places.reserved[0],
            memory_reserved_peak: places.reserved[1],
            refused: get(&self.refused),
            blocks: get(&self.blocks),
            images: get(&self.images),
            bytes_received: get(&self.received),
            bytes_sent: get(&self.sent),
            protocol_errors: get(&self.protocol_errors),
            transport_errors: get(&self.transport_errors),
            internal_errors: get(&self.internal_errors),
            unauthorized: get(&self.unauthorized),
        }
    }

    /// Prometheus text, exposition format 0.0.4.
    pub(super) fn text(&self, places: &Count) -> String {
        let s = self.stats(places);
        let mut out = String::new();
        let mut family = |name: &str, kind: &str, help: &str, values: &[(&str, u64)]| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# HELP hushnet_{name} {help}\n# TYPE hushnet_{name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(out, "hushnet_{name}{labels} {value}");
            }
        };
        family("sessions_total", "counter", "Sessions begun.", &[("", s.sessions)]);
        family("sessions_active", "gauge", "Sessions in work now.", &[("", s.active)]);
        family("clients_guests", "gauge", "Clients that have sent nothing to work on.", &[("", s.guests)]);
        family("clients_waiting", "gauge", "Clients that wait for a slot or for memory.", &[("", s.waiting)]);
        let reserved = "Bytes that sessions have reserved of the server's memory.";
        family("memory_reserved_bytes", "gauge", reserved, &[("", s.memory_reserved)]);
        let most = "The most bytes that sessions have reserved at once.";
        family("memory_reserved_peak_bytes", "gauge", most, &[("", s.memory_reserved_peak)]);
        family("sessions_refused_total", "counter", "Clients refused.", &[("", s.refused)]);
        family("blocks_total", "counter", "Blocks of images answered.", &[("", s.blocks)]);
        family("images_total", "counter", "Images answered.", &[("", s.images)]);
        let bytes = [("{direction=\"received\"}", s.bytes_received), ("{direction=\"sent\"}", s.bytes_sent)];
        family("bytes_total", "counter", "Bytes of frames.", &bytes);
        let errors = [
            ("{kind=\"protocol\"}", s.protocol_errors),
            ("{kind=\"transport\"}", s.transport_errors),
            ("{kind=\"internal\"}", s.internal_errors),
        ];
        family("errors_total", "counter", "Sessions that ended in an error.", &errors);
        family("unauthorized_total", "counter", "Clients without a known token.", &[("", s.unauthorized)]);
        out
    }
}

/// The families for operators alone: by model and stage, and of the line.
pub(super) fn details(models: &BTreeMap<String, Arc<Model>>, slots: &Slots) -> String {
    let mut out = String::new();
    let of = |m: &Model| label("model", &m.name);
    let mut counter = |name: &str, help: &str, values: &dyn Fn(&ModelMetrics) -> Vec<(String, u64)>| {
        let name = format!("hushnet_model_{name}_total");
        family(&mut out, &name, "counter", help);
        for model in models.values() {
            for (labels, value) in values(&model.metrics) {
                // Writing to a string cannot fail.
                let _ = writeln!(out, "{name}{{{}{labels}}} {value}", of(model));
            }
        }
    };
    let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
    counter("blocks", "Blocks of images answered.", &|m| vec![(String::new(), get(&m.blocks))]);
    counter("images", "Images answered.", &|m| vec![(String::new(), get(&m.images))]);
    counter("sessions", "Sessions that have ended.", &|m| {
        let [well, failed] = &m.ended;
        vec![(",outcome=\"ok\"".to_owned(), get(well)), (",outcome=\"error\"".to_owned(), get(failed))]
    });
    let name = "hushnet_session_duration_seconds";
    family(&mut out, name, "histogram", "Seconds of sessions from the greeting to the end.");
    for model in models.values() {
        model.metrics.session.write(&mut out, name, &of(model));
    }
    let name = "hushnet_session_size_bytes";
    family(&mut out, name, "histogram", "Bytes of the frames of a session.");
    for model in models.values() {
        for (direction, histogram) in ["received", "sent"].into_iter().zip(&model.metrics.bytes) {
            histogram.write(&mut out, name, &format!("{},{}", of(model), label("direction", direction)));
        }
    }
    let name = "hushnet_stage_duration_seconds";
    family(&mut out, name, "histogram", "Seconds that a session computed at a stage.");
    for model in models.values() {
        let stages = model.metrics.stages.lock().unwrap_or_else(PoisonError::into_inner);
        for (stage, histogram) in stages.iter() {
            histogram.write(&mut out, name, &format!("{},{}", of(model), label("stage", stage)));
        }
    }
    let name = "hushnet_line_wait_seconds";
    family(
        &mut out,
        name,
        "histogram",
        "Seconds that clients stood in line, for a slot and for the memory of each block.",
    );
    slots.waits.write(&mut out, name, "");
    let name = "hushnet_line_length";
    family(&mut out, name, "histogram", "Clients in line when one more came.");
    slots.lengths.write(&mut out, name, "");
    out
}
