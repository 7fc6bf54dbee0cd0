//! Errors of running a plan. None carries a secret; what a peer is told is only the code of a [`ProtocolError`].

use crate::plan::PlanError;
use crate::program::RangeError;

/// Why a run failed; no variant carries a secret.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan is refused.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Values left their planned ranges; raised when the run is over, and never told to the peer.
    #[error(transparent)]
    Range(Box<RangeError>),
    /// The caller's input does not fit the plan.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The peer does not keep to the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The connection failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A folder of what is kept between sessions cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Inferences that were to be prepared, or were, cannot be used.
    #[error(transparent)]
    Units(#[from] UnitError),
    /// `HUSHNET_SIMD` cannot be obeyed.
    #[error("{0}")]
    Environment(String),
    /// A computation was refused: an error of this program.
    #[error("internal error: {0}; please report it")]
    Internal(String),
    /// The caller's progress callback asked to stop.
    #[error("stopped by the caller")]
    Cancelled,
}

impl From<RangeError> for Error {
    fn from(e: RangeError) -> Self {
        Self::Range(Box::new(e))
    }
}

impl From<hushnet_rlwe::CipherError> for Error {
    fn from(e: hushnet_rlwe::CipherError) -> Self {
        Self::Internal(e.to_string())
    }
}

impl From<hushnet_layers::batch::LayerError> for Error {
    fn from(e: hushnet_layers::batch::LayerError) -> Self {
        Self::Internal(e.to_string())
    }
}

impl From<hushnet_ring::RingError> for Error {
    fn from(e: hushnet_ring::RingError) -> Self {
        Self::Internal(e.to_string())
    }
}

/// Refuses to run with a `HUSHNET_SIMD` that cannot be obeyed.
pub(crate) fn check_environment() -> Result<(), Error> {
    hushnet_ring::simd::init().map(drop).map_err(|e| Error::Environment(e.to_string()))
}

/// What the file system refused of what a party keeps between sessions.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refuses.
    #[error("set-ups cannot be kept in {}: {source}; make room, choose another folder, or connect without one", path.display())]
    Refused {
        /// Folder or file.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The plan's set-ups do not fit beside the others.
    #[error("the set-ups of this plan take {needed} bytes, and {others} of the quota of {quota} bytes in {} are in use; \
             raise the quota (--setups-quota, setups_quota), remove files there, or connect without the folder", path.display())]
    Quota {
        /// The folder.
        path: std::path::PathBuf,
        /// Bytes of this plan's set-ups.
        needed: u64,
        /// Bytes of all others in the folder.
        others: u64,
        /// Bytes that all may take together.
        quota: u64,
    },
    /// The file system refuses the server's folder of evaluation keys.
    #[error("evaluation keys cannot be kept in {}: {source}; choose another folder (--keys, keys), or serve without one", path.display())]
    Keys {
        /// The folder that was to be used.
        path: std::path::PathBuf,
        /// What the system said of it.
        source: std::io::Error,
    },
    /// The file system refuses the server's folder of preparations.
    #[error("preparations of models cannot be kept in {}: {source}; choose another folder (--store, store), or serve without one", path.display())]
    Preparations {
        /// The folder that was to be used.
        path: std::path::PathBuf,
        /// What the system said of it.
        source: std::io::Error,
    },
    /// The file system refuses the client's folder of keys.
    #[error("the client's keys cannot be kept in {}: {source}; choose another folder (--keys, keys), or connect without one", path.display())]
    ClientKeys {
        /// The folder that was to be used.
        path: std::path::PathBuf,
        /// What the system said of it.
        source: std::io::Error,
    },
    /// The plan does not say which preparation of the model its set-ups belong to.
    #[error("the server's plan names no preparation of its set-ups, so that none can be kept; connect without a folder for them")]
    Unnamed,
}

/// Why an input is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InputError {
    /// An input of the plan was not given.
    #[error("input '{name}' is missing; the network takes {expected}")]
    Missing {
        /// Input name.
        name: String,
        /// All input names.
        expected: String,
    },
    /// A name that the plan does not have.
    #[error("there is no input '{name}'; the network takes {expected}")]
    Unknown {
        /// Given name.
        name: String,
        /// All input names.
        expected: String,
    },
    /// Wrong shape.
    #[error("input '{name}' has shape {got:?}, wanted [images, {}]", join(.expected))]
    Shape {
        /// Input name.
        name: String,
        /// Shape given.
        got: Vec<usize>,
        /// Shape per image.
        expected: Vec<usize>,
    },
    /// Inputs disagree about the number of images.
    #[error("input '{name}' holds {got} images, another input holds {expected}")]
    Images {
        /// Input name.
        name: String,
        /// Images given.
        got: usize,
        /// Images of the first input.
        expected: usize,
    },
    /// No images at all.
    #[error("input '{name}' holds no images")]
    Empty {
        /// Input name.
        name: String,
    },
    /// NaN or infinity.
    #[error(
        "input '{name}' holds {value} at image {image}, element {element}; inputs must be finite numbers"
    )]
    NotFinite {
        /// Input name.
        name: String,
        /// Image.
        image: usize,
        /// Position in the image, row-major.
        element: usize,
        /// The value.
        value: f64,
    },
}

fn join(shape: &[usize]) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Why inferences are not prepared, or prepared ones not used. Nothing was run in their place.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    /// The client's folder has too few.
    #[error("{} holds {found} prepared inferences of this model at this server, and {needed} are needed; prepare more (hushnet prepare, Connection.prepare), or infer without them", path.display())]
    Lacking {
        /// The client's folder of prepared inferences.
        path: std::path::PathBuf,
        /// Images that were to be inferred.
        needed: usize,
        /// Prepared inferences that are there.
        found: usize,
    },
    /// No folder was named to keep them in.
    #[error("prepared inferences are kept in a folder; name one (--folder, --prepared, prepared=)")]
    NoFolder,
    /// The plan has no layer that can be prepared, or is of another trust model.
    #[error("no layer of this plan can be prepared: prepared inferences are for two-party plans with linear layers of the methods cheetah, convfhe, batch or rotation-free; infer without them")]
    NoLayers,
    /// The server keeps none of any client.
    #[error("this server keeps no prepared inferences; its operator can give it a folder for them (--prepared, prepared), or infer without them")]
    NotKept,
    /// The server has no such unit.
    #[error("a prepared inference is spent, out of date, or of another model of this server; prepare more (hushnet prepare, Connection.prepare), or infer without them")]
    Unknown,
    /// No room at the server.
    #[error("{needed} bytes of prepared inferences do not fit beside {used} bytes that the server keeps for {whose}, of {quota}; spend some, wait until old ones are removed, or ask the operator for more room (--prepared-quota, --prepared-client-quota)")]
    Full {
        /// Bytes that were to be added.
        needed: u64,
        /// Bytes that are there already.
        used: u64,
        /// Bytes that may be there together.
        quota: u64,
        /// Whose units these bytes belong to.
        whose: &'static str,
    },
    /// The file system refuses a party's folder.
    #[error("prepared inferences cannot be kept in {}: {source}; make room, or choose another folder", path.display())]
    Folder {
        /// The folder of the party.
        path: std::path::PathBuf,
        /// What the system said of it.
        source: std::io::Error,
    },
}

/// How a peer broke the protocol, or that it says that we did.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Not a frame.
    #[error("the peer sent something that is not a Hushnet frame ({0}); is this address a Hushnet server of this version?")]
    NotAFrame(&'static str),
    /// Another protocol version.
    #[error("the peer speaks protocol version {got}, this program speaks {ours}; use the same release on both sides")]
    Version {
        /// Version of the peer.
        got: u32,
        /// Our own.
        ours: u32,
    },
    /// A frame above the limit.
    #[error("a frame of {got} bytes is above the limit of {limit}")]
    Oversize {
        /// Bytes announced or sent.
        got: u64,
        /// Largest accepted.
        limit: u64,
    },
    /// The payload is shorter or longer than the plan says.
    #[error(
        "a {kind} frame for stage {stage}, tile {tile} has {got} bytes of payload, the plan says {expected}"
    )]
    Length {
        /// Frame kind.
        kind: &'static str,
        /// Stage.
        stage: u32,
        /// Tile.
        tile: u32,
        /// Bytes sent.
        got: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// A frame out of turn.
    #[error("expected {expected}, the peer sent {got}")]
    Unexpected {
        /// What was due.
        expected: String,
        /// What came.
        got: String,
    },
    /// A control message that cannot be decoded or holds impossible values.
    #[error("a {kind} message is invalid: {detail}")]
    Message {
        /// Frame kind.
        kind: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// The peer reports an error.
    #[error("the peer stopped: {message} (code {code})")]
    Peer {
        /// Code that the Error frame has.
        code: u32,
        /// What its Error frame says in words.
        message: String,
        /// Seconds after which it says that trying again is worth it; 0 where it says nothing.
        seconds: u32,
    },
    /// The client asks for a model that the server does not have, or for none of several.
    #[error("{}", no_model(.names))]
    NoModel {
        /// Names of the server's models, where it may tell them; empty: it may not.
        names: Vec<String>,
    },
    /// The client has not shown that it may ask.
    #[error("this server serves clients with a token that it knows, and none such came; give one (--token-file FILE or HUSHNET_TOKEN, token=)")]
    Unauthorized,
}

fn no_model(names: &[String]) -> String {
    if names.is_empty() {
        return "no such model; ask the server's operator for its name".into();
    }
    format!("no such model; this server has {}", names.join(", "))
}

/// Codes of Error frames.
pub mod code {
    /// The peer broke the protocol.
    pub const PROTOCOL: u32 = 1;
    /// The server has as many sessions as it grants.
    pub const BUSY: u32 = 2;
    /// Something failed inside of the peer.
    pub const INTERNAL: u32 = 3;
    /// The client gave up (range error, cancelled, ...).
    pub const ABORTED: u32 = 4;
    /// Nothing was heard for too long.
    pub const TIMEOUT: u32 = 5;
    /// The plan that was sent was refused.
    pub const PLAN: u32 = 6;
    /// The server is being shut down.
    pub const SHUTDOWN: u32 = 7;
    /// The server has no model of that name.
    pub const MODEL: u32 = 8;
    /// The client has shown no token that the server knows.
    pub const TOKEN: u32 = 9;
    /// Prepared inferences are not kept, or not known, or there is no room for more.
    pub const UNITS: u32 = 10;
}

impl Error {
    /// What the peer is told: a code and a sentence that depends on nothing secret.
    #[must_use]
    pub fn for_peer(&self) -> (u32, String) {
        match self {
            Self::Protocol(e @ ProtocolError::NoModel { .. }) => (code::MODEL, e.to_string()),
            Self::Protocol(e @ ProtocolError::Unauthorized) => (code::TOKEN, e.to_string()),
            Self::Protocol(e) => (code::PROTOCOL, e.to_string()),
            // How much others have at the server is not told.
            Self::Units(UnitError::Full { .. }) => (
                code::UNITS,
                "there is no room for so many prepared inferences; spend some, or prepare fewer".into(),
            ),
            Self::Units(e @ (UnitError::NotKept | UnitError::Unknown)) => (code::UNITS, e.to_string()),
            Self::Transport(TransportError::Timeout { .. }) => {
                (code::TIMEOUT, "nothing was heard for too long".into())
            }
            Self::Transport(TransportError::Shutdown) => {
                (code::SHUTDOWN, "the server is shutting down".into())
            }
            Self::Transport(e @ (TransportError::Busy { .. } | TransportError::Limited { .. })) => {
                (code::BUSY, e.to_string())
            }
            Self::Transport(_) | Self::Internal(_) | Self::Environment(_) => {
                (code::INTERNAL, "internal error".into())
            }
            Self::Plan(_) => (code::PLAN, "the plan was refused".into()),
            Self::Range(_) | Self::Input(_) | Self::Store(_) | Self::Units(_) | Self::Cancelled => {
                (code::ABORTED, "the client gave up".into())
            }
        }
    }
}

impl Error {
    /// Seconds after which the peer may try again, as its Error frame says; 0: nothing is known of it.
    pub(crate) fn seconds_for_peer(&self) -> u32 {
        match self {
            Self::Transport(TransportError::Busy { seconds } | TransportError::Limited { seconds, .. }) => {
                u32::try_from(*seconds).unwrap_or(u32::MAX)
            }
            _ => 0,
        }
    }
}

/// How a connection failed, on either side.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The peer closed the connection, or vanished.
    #[error("the peer closed the connection")]
    Closed,
    /// Nothing came in time.
    #[error("nothing came from the peer for {seconds} s")]
    Timeout {
        /// The limit.
        seconds: u64,
    },
    /// This side is shutting down.
    #[error("this side is shutting down")]
    Shutdown,
    /// There is no room for the session.
    #[error("the server is full; try again in {seconds} seconds")]
    Busy {
        /// When it is worth trying again.
        seconds: u64,
    },
    /// The peer has as much as one peer, or all together, may have.
    #[error("{what}; try again in {seconds} seconds")]
    Limited {
        /// What it has, as half a sentence.
        what: &'static str,
        /// When it is worth trying again.
        seconds: u64,
    },
    /// Models that cannot be served together, or under their names.
    #[error("{0}")]
    Models(String),
    /// A file of tokens, or a token, that cannot be used.
    #[error("{0}")]
    Tokens(String),
    /// An address that cannot be used.
    #[error("address '{url}': {detail}; use hush://host:port, hushs://host:port, ws://host:port or wss://host:port, and hush://host:port/NAME for one model of several")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong.
        detail: String,
    },
    /// No connection.
    #[error("cannot connect to {address}: {detail}")]
    Connect {
        /// Host and port.
        address: String,
        /// What happened.
        detail: String,
    },
    /// The port cannot be opened.
    #[error("cannot listen on {address}: {detail}")]
    Listen {
        /// Host and port.
        address: String,
        /// What happened.
        detail: String,
    },
    /// The file that recordings go to.
    #[error("cannot record to {path}: {detail}")]
    Record {
        /// The file.
        path: String,
        /// What happened.
        detail: String,
    },
    /// Certificates, keys or the TLS handshake.
    #[error("TLS: {0}")]
    Tls(String),
    /// Anything else on the wire.
    #[error("connection: {0}")]
    Io(String),
}
