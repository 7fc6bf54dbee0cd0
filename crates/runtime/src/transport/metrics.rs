//! Counters of a server, as numbers and as Prometheus text.

use super::slots::Count;
use crate::error::{Error, TransportError};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

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
}

impl Metrics {
    pub(super) fn count(&self, error: &Error) {
        let counter = match error {
            Error::Protocol(_) | Error::Input(_) | Error::Range(_) | Error::Cancelled => {
                &self.protocol_errors
            }
            Error::Transport(TransportError::Busy { .. }) => &self.refused,
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
        out
    }
}
