//! The crate's one error type.

/// What can go wrong between two parties. No message carries a secret.
#[derive(Debug, thiserror::Error)]
pub enum MpcError {
    /// The transport failed or the peer went away.
    #[error("channel: {0}; check that the peer is still running and start the session again")]
    Io(#[from] std::io::Error),
    /// The in-memory peer was dropped.
    #[error("channel: the other party closed its end; start the session again")]
    Closed,
    /// The peer's greeting differs from ours.
    #[error(
        "handshake: {what}: expected {expected}, got {got}; run the same version and settings on both sides"
    )]
    Handshake {
        /// Which field differs.
        what: &'static str,
        /// Our value.
        expected: u64,
        /// The peer's value.
        got: u64,
    },
    /// A group element of the base transfer did not decode.
    #[error("base OT: element {index} is not a Ristretto point; the peer speaks another protocol or the channel is damaged")]
    BadPoint {
        /// Position in the message.
        index: usize,
    },
    /// The peer sent what no honest peer sends.
    #[error("the peer sent {what}; it speaks another protocol or the channel is damaged")]
    Peer {
        /// What came.
        what: &'static str,
    },
    /// A ring width outside 1..=64.
    #[error("ring width {bits} is outside {min}..=64 bits")]
    RingWidth {
        /// The width asked for.
        bits: u32,
        /// The least width this operation works at.
        min: u32,
    },
    /// A parameter is out of its range.
    #[error("{what} is {got}, the limit is {limit}")]
    Parameter {
        /// The parameter.
        what: &'static str,
        /// What came.
        got: u64,
        /// The largest (or only) value accepted.
        limit: u64,
    },
    /// Two arguments that must have equal lengths do not.
    #[error("{what} has {got} elements, expected {expected}")]
    Length {
        /// Which argument.
        what: &'static str,
        /// The length needed.
        expected: usize,
        /// The length given.
        got: usize,
    },
    /// More correlated OTs were drawn than had been prepared.
    #[error("{missing} correlated OTs are missing: call `ensure` with the whole demand first")]
    Exhausted {
        /// How many are lacking.
        missing: u64,
    },
    /// The operating system gave no randomness.
    #[error("no randomness from the operating system: {0}")]
    Random(String),
}

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, MpcError>;

pub(crate) fn check_len(what: &'static str, expected: usize, got: usize) -> Result<()> {
    if expected == got {
        Ok(())
    } else {
        Err(MpcError::Length { what, expected, got })
    }
}
