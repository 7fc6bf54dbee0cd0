//! Every way in which a plan file can be wrong.

use hushnet_layers::batch::LayerError;
use hushnet_rlwe::batch::ParamsError;

/// Why a plan is refused.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file cannot be read or written.
    #[error("plan file: {0}")]
    Io(#[from] std::io::Error),
    /// A server has another plan than the one that was named.
    #[error("the server serves another plan than the one that was named; is this the right address, or was the model compiled again?")]
    Another,
    /// Not a safetensors file at all.
    #[error("this is not a Hushnet plan: not a safetensors file ({0}); make one with `hushnet compile`")]
    NotSafetensors(String),
    /// The file ends before its tensors do.
    #[error("the plan is truncated: {0}; copy or compile it again")]
    Truncated(String),
    /// A safetensors file, but of something else.
    #[error("this is not a Hushnet plan: metadata `{key}` is {found}; make one with `hushnet compile`")]
    Format {
        /// Metadata key.
        key: &'static str,
        /// What stands there.
        found: String,
    },
    /// Another version of the format.
    #[error(
        "the plan was compiled by {} version of this program (plan format {found}, this one reads {}); compile the model again",
        age(found),
        super::VERSION
    )]
    Version {
        /// Version in the file.
        found: String,
    },
    /// The contents do not match their digest.
    #[error("the plan is corrupted: its contents do not match its SHA-256 digest; copy or compile it again")]
    Digest,
    /// The JSON does not follow the format (unknown operations, fields and values too).
    #[error("the plan does not follow the format: {0}")]
    Json(String),
    /// A size above a limit of this process.
    #[error("{what} is {value}, above the limit of {limit}; raise the limit only if the plan comes from someone you trust")]
    TooLarge {
        /// What is too large.
        what: String,
        /// Its size.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// More memory than this process may take for the plan.
    #[error("the plan needs {need} bytes of memory here, above the limit of {limit}; the largest part is {part} with {bytes} bytes; \
             raise the limit (--max-memory, max_memory) only if the plan comes from someone you trust")]
    Memory {
        /// Bytes in all.
        need: u64,
        /// The largest part, with its layer.
        part: String,
        /// Bytes of that part.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Valid, but not executable by this program.
    #[error("{0} is not supported by this program")]
    Unsupported(String),
    /// A tensor description is wrong.
    #[error("tensor {id} ('{name}'): {detail}")]
    Tensor {
        /// Tensor id.
        id: u32,
        /// Tensor name.
        name: String,
        /// What is wrong.
        detail: String,
    },
    /// An id that no tensor has.
    #[error("{place} refers to tensor {id}, which does not exist")]
    DanglingTensor {
        /// Stage, operation or port.
        place: String,
        /// The id.
        id: u32,
    },
    /// A tensor is read before a stage writes it.
    #[error("{place} reads tensor '{tensor}' before any stage has computed it")]
    UsedBeforeDefined {
        /// Stage, operation or port.
        place: String,
        /// Tensor name.
        tensor: String,
    },
    /// A tensor is written twice.
    #[error("{place} computes tensor '{tensor}' a second time")]
    DefinedTwice {
        /// Stage, operation or port.
        place: String,
        /// Tensor name.
        tensor: String,
    },
    /// An operation's operands or attributes are wrong.
    #[error("stage '{stage}', operation {index} ({op}): {detail}")]
    Op {
        /// Stage name.
        stage: String,
        /// Position in the stage.
        index: usize,
        /// Name of the operation.
        op: String,
        /// What is wrong.
        detail: String,
    },
    /// A linear stage's geometry or tensors are wrong.
    #[error("stage '{stage}': {detail}")]
    Linear {
        /// Stage name.
        stage: String,
        /// What is wrong.
        detail: String,
    },
    /// The tiles do not compute the stage.
    #[error("stage '{stage}': {source}")]
    Tiles {
        /// Stage name.
        stage: String,
        /// What is wrong.
        source: LayerError,
    },
    /// Weights or biases are absent, of another type or shape.
    #[error("weights '{tensor}': {detail}")]
    Weights {
        /// Name in the file.
        tensor: String,
        /// What is wrong.
        detail: String,
    },
    /// The stated bound is below what the weights can reach.
    #[error("stage '{stage}': outputs can reach {derived}, but tensor '{tensor}' is planned for {planned}; the plan is wrong, compile the model again")]
    Bound {
        /// Stage name.
        stage: String,
        /// Output tensor.
        tensor: String,
        /// Bound derived from the weights.
        derived: u128,
        /// Bound in the plan.
        planned: u64,
    },
    /// The parameters are wrong: noise, width or security.
    #[error("stage '{stage}': {source}")]
    Params {
        /// Stage name.
        stage: String,
        /// What is wrong.
        source: ParamsError,
    },
    /// Below 128 bits and not allowed by the caller.
    #[error("the plan's parameters are below 128-bit security ({0}); it runs only when insecure parameters are allowed explicitly (--insecure-parameters)")]
    Insecure(String),
    /// The stages are inconsistent as a whole.
    #[error("{0}")]
    Structure(String),
}

/// What a version other than this one is called.
fn age(found: &str) -> &'static str {
    match found.parse::<u64>() {
        Ok(version) if version < u64::from(super::VERSION) => "an older",
        Ok(_) => "a newer",
        Err(_) => "another",
    }
}
