//! What is told of a session that has ended: times and counts, for operators.

use crate::error::{Error, ProtocolError, TransportError, UnitError};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// A session that has ended, well or not. Nothing in it says who the client was, and nothing depends on an input.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionReport {
    /// The server's number of the session, as in its log.
    pub session: u64,
    /// Name of the model that the client asked for.
    pub model: String,
    /// The trust model, as `hushnet-two-party`.
    pub platform: String,
    /// When the client's greeting was taken: nanoseconds since 1970.
    pub start: u64,
    /// Wall-clock seconds from then to the end.
    pub seconds: f64,
    /// Seconds of them in line, for a slot and for memory.
    pub waited: f64,
    /// Seconds of computation for the set-up.
    pub setup_seconds: f64,
    /// Seconds of computation by stage of the server's plan, without those of the client; empty where the session ended in an error.
    pub stages: Vec<(String, f64)>,
    /// Blocks of images that were answered.
    pub blocks: u64,
    /// Images in the blocks that were answered.
    pub images: u64,
    /// Bytes of the frames that were received, headers included.
    pub received: u64,
    /// Bytes of the frames that were sent, headers included.
    pub sent: u64,
    /// How it ended: `ok`, or the kind of its error.
    pub outcome: &'static str,
}

/// Nanoseconds since 1970; 0 for a clock that stands before.
pub(super) fn since_1970(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The kind of an error, without anything that a peer may have said.
pub(super) fn kind(error: &Error) -> &'static str {
    match error {
        Error::Protocol(ProtocolError::Peer { .. }) | Error::Cancelled => "given up",
        Error::Units(UnitError::Folder { .. }) => "internal",
        Error::Protocol(_) | Error::Input(_) | Error::Range(_) | Error::Units(_) => "protocol",
        Error::Transport(TransportError::Busy { .. } | TransportError::Limited { .. }) => "refused",
        Error::Transport(TransportError::Timeout { .. }) => "timeout",
        Error::Transport(TransportError::Shutdown) => "stopping",
        Error::Transport(_) => "connection",
        Error::Plan(_) | Error::Internal(_) | Error::Environment(_) | Error::Store(_) => "internal",
    }
}
