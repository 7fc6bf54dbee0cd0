//! What a run measured, beside what the plan predicts.

use crate::plan::{LinearStage, Plan, Stage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Instant;

/// Measurements of one run of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Name of the network.
    pub plan: String,
    /// Instruction set.
    pub simd: String,
    /// Threads of the pool that ran it.
    pub threads: usize,
    /// Ring degree N.
    pub ring_degree: usize,
    /// Whether the parameters are below the security table.
    pub insecure: bool,
    /// Images.
    pub images: usize,
    /// Blocks of up to N images.
    pub blocks: usize,
    /// Wall-clock seconds of all blocks, without the set-up.
    pub seconds: f64,
    /// Wall-clock seconds of the set-up of shared masks (0 when it was done before).
    pub setup_seconds: f64,
    /// Bytes sent for all blocks.
    pub bytes_up: u64,
    /// Bytes received for all blocks.
    pub bytes_down: u64,
    /// Bytes received in the set-up.
    pub setup_bytes_down: u64,
    /// Linear stages that waited for the server, in all blocks.
    pub rounds: u64,
    /// Largest resident set of this process so far, where the system tells.
    pub peak_memory_bytes: Option<u64>,
    /// Per stage, in order.
    pub stages: Vec<StageTrace>,
    /// What the plan predicts for a full block.
    pub predicted: Map<String, Value>,
}

/// Measurements of one stage, all blocks together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTrace {
    /// Stage name.
    pub name: String,
    /// `client` or `linear`.
    pub kind: String,
    /// Seconds of each activity.
    pub seconds: Seconds,
    /// Bytes of Requests.
    pub bytes_up: u64,
    /// Bytes of Responses.
    pub bytes_down: u64,
    /// Bytes of SetupMasks.
    pub setup_bytes_down: u64,
    /// Tiles in a block.
    pub tiles: usize,
    /// log2 of the largest noise seen (linear stages).
    pub noise_bits: Option<f64>,
    /// Bits between that and the limit 2^(d-1).
    pub noise_margin_bits: Option<f64>,
    /// Ranges of fixed tensors that the stage computed.
    pub ranges: Vec<RangeTrace>,
    /// What the plan predicts for a full block.
    pub predicted: Map<String, Value>,
}

/// Wall-clock seconds of a stage's activities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// Encryption and packing.
    pub encrypt: f64,
    /// Sending.
    pub send: f64,
    /// Waiting for responses, the server's computation included.
    pub wait: f64,
    /// The server's computation, where both parties run in this process.
    pub linear: Option<f64>,
    /// Unpacking and decryption.
    pub decrypt: f64,
    /// Client operations.
    pub program: f64,
}

/// Observed range of a fixed tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RangeTrace {
    /// Tensor name.
    pub tensor: String,
    /// Largest absolute integer seen.
    pub largest: u64,
    /// Largest absolute integer planned.
    pub bound: u64,
}

impl Trace {
    pub(crate) fn new(plan: &Plan) -> Self {
        let stages = plan.stages().iter().map(|stage| StageTrace {
            name: stage.name().to_owned(),
            kind: if stage.linear().is_some() { "linear" } else { "client" }.to_owned(),
            tiles: stage.linear().map_or(0, |l| l.tiles.len()),
            predicted: stage.linear().map(|l| l.predicted.clone()).unwrap_or_default(),
            ..StageTrace::default()
        });
        Self {
            plan: plan.name().to_owned(),
            simd: hushnet_ring::simd::isa().name().to_owned(),
            threads: rayon::current_num_threads(),
            ring_degree: plan.ring_degree(),
            insecure: plan.insecure(),
            stages: stages.collect(),
            predicted: plan.spec().predicted.clone(),
            ..Self::default()
        }
    }

    /// Adds what the server measured, where it ran in this process.
    pub fn add_server(&mut self, server: &ServerTrace) {
        for (stage, seconds) in self.stages.iter_mut().zip(&server.linear_seconds) {
            if stage.kind == "linear" {
                stage.seconds.linear = Some(*seconds);
            }
        }
    }

    /// The trace as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Measurements of one session of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerTrace {
    /// Blocks served.
    pub blocks: u64,
    /// Images served.
    pub images: u64,
    /// Seconds of computation per stage (0 for client stages).
    pub linear_seconds: Vec<f64>,
    /// Seconds of computation for the set-up.
    pub setup_seconds: f64,
    /// Bytes received.
    pub bytes_up: u64,
    /// Bytes sent.
    pub bytes_down: u64,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Block in work.
    pub block: usize,
    /// Blocks in all.
    pub blocks: usize,
    /// Stage in work.
    pub stage: usize,
    /// Stages in all.
    pub stages: usize,
    /// Name of the stage; `setup` while shared masks are received.
    pub name: &'a str,
    /// Tiles of the stage that are done.
    pub tile: usize,
    /// Tiles of the stage.
    pub tiles: usize,
}

/// Seconds since `start`.
pub(crate) fn since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64()
}

/// The linear stages that keep their mask sums for the session, with their index in the plan.
pub(crate) fn shared_stages(plan: &Plan) -> impl Iterator<Item = (usize, &LinearStage)> {
    plan.stages()
        .iter()
        .enumerate()
        .filter_map(|(i, s)| Stage::linear(s).map(|l| (i, l)))
        .filter(|(_, l)| l.mask == crate::plan::MaskMode::Shared)
}

/// Largest resident set of this process so far, in bytes (Linux).
#[must_use]
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
