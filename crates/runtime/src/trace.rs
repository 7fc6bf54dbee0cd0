//! What a run measured, beside what the plan predicts.

use crate::plan::{LinearStage, Plan, Stage};
use hushnet_ring::clock::Instant;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::ops::{Deref, DerefMut};

/// Measurements of one run of one party, in any trust model. `Own` is what only its trust model measures of the whole, `Measures` what it
/// measures of a stage; in JSON both stand beside the common fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Trace<Measures = BatchMeasures, Own = Nothing> {
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
    /// Blocks (two-party: groups) of images that ran through the stages together.
    pub blocks: usize,
    /// Wall-clock seconds of all blocks, without the set-up.
    pub seconds: f64,
    /// Wall-clock seconds of the set-up: keys, shared masks (0 when it was done before).
    pub setup_seconds: f64,
    /// Bytes sent to the server for all blocks, frame headers included where there are frames.
    pub bytes_up: u64,
    /// Bytes received from the server for all blocks.
    pub bytes_down: u64,
    /// Bytes sent to the server in the set-up.
    pub setup_bytes_up: u64,
    /// Bytes received from the server in the set-up.
    pub setup_bytes_down: u64,
    /// Messages that waited for the one before, of all blocks.
    pub rounds: u64,
    /// Largest resident set of this process so far, where the system tells.
    pub peak_memory_bytes: Option<u64>,
    /// Per stage, in order.
    pub stages: Vec<StageTrace<Measures>>,
    /// What the plan predicts.
    pub predicted: Map<String, Value>,
    /// What only this trust model measures.
    #[serde(flatten)]
    pub own: Own,
}

/// Measurements of one stage, all blocks together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StageTrace<Measures = BatchMeasures> {
    /// Stage name.
    pub name: String,
    /// Kind as in the plan; `step` for a part of a packed stage.
    pub kind: String,
    /// What this trust model measures of a stage.
    #[serde(flatten)]
    pub measures: Measures,
}

/// A trust model that measures nothing of the whole run besides what all do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Nothing {}

/// What the batch engine measures of a stage in a client-aided run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BatchMeasures {
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

impl<M, O> Deref for Trace<M, O> {
    type Target = O;
    fn deref(&self) -> &O {
        &self.own
    }
}

impl<M, O> DerefMut for Trace<M, O> {
    fn deref_mut(&mut self) -> &mut O {
        &mut self.own
    }
}

impl<M> Deref for StageTrace<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.measures
    }
}

impl<M> DerefMut for StageTrace<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.measures
    }
}

/// What a server's part of a run adds to what the client measured, where both ran in one process.
pub trait Merge {
    /// Adds the server's seconds for a stage of this kind.
    fn add_stage(&mut self, _kind: &str, _seconds: f64) {}

    /// Adds what the server measured of the whole session.
    fn add_session(&mut self, _server: &ServerTrace) {}
}

impl Merge for Nothing {}

impl Merge for BatchMeasures {
    fn add_stage(&mut self, kind: &str, seconds: f64) {
        if kind == "linear" {
            self.seconds.linear = Some(seconds);
        }
    }
}

/// A trace of any trust model.
pub trait Report: Send {
    /// The whole trace as one JSON object.
    fn to_json(&self) -> String;

    /// Adds what the server measured, where it ran in this process: seconds of its stages, the names that its plan has for them, and the
    /// steps of packed stages.
    fn add_server(&mut self, server: &ServerTrace);
}

impl<M, O> Report for Trace<M, O>
where
    M: Merge + Serialize + Default + Send,
    O: Merge + Serialize + Send,
{
    fn to_json(&self) -> String {
        Self::to_json(self)
    }

    fn add_server(&mut self, server: &ServerTrace) {
        let known = self.stages.len().min(server.stages.len());
        let step =
            |s: &ServerStage| StageTrace { name: s.name.clone(), kind: "step".into(), ..Default::default() };
        self.stages.extend(server.stages[known..].iter().map(step));
        for (stage, served) in self.stages.iter_mut().zip(&server.stages) {
            stage.name.clone_from(&served.name);
            let kind = &stage.kind;
            stage.measures.add_stage(kind, served.seconds);
        }
        self.own.add_session(server);
    }
}

impl<M: Default, O: Default> Trace<M, O> {
    /// A trace of nothing yet; a stage is its name, its kind and what is known of it before the run.
    pub(crate) fn of(
        plan: &str,
        threads: usize,
        ring_degree: usize,
        predicted: &Map<String, Value>,
        stages: impl Iterator<Item = (String, String, M)>,
    ) -> Self {
        Self {
            plan: plan.to_owned(),
            simd: hushnet_ring::simd::isa().name().to_owned(),
            threads,
            ring_degree,
            stages: stages.map(|(name, kind, measures)| StageTrace { name, kind, measures }).collect(),
            predicted: predicted.clone(),
            ..Self::default()
        }
    }
}

impl<M: Serialize, O: Serialize> Trace<M, O> {
    /// The whole trace as one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Wall-clock seconds of a stage's activities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
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

/// Observed range of a tensor: of integers for fixed ones, of reals for decrypted ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RangeTrace<T = u64> {
    /// Tensor name.
    pub tensor: String,
    /// Largest absolute value seen.
    pub largest: T,
    /// Largest absolute value planned.
    pub bound: T,
}

impl Trace {
    /// Of a client-aided plan.
    pub(crate) fn new(plan: &Plan) -> Self {
        let stages = plan.stages().iter().map(|stage| {
            let measures = BatchMeasures {
                tiles: stage.requests(1),
                predicted: stage.predicted().cloned().unwrap_or_default(),
                ..BatchMeasures::default()
            };
            let kind = if stage.encrypted().is_some() { "linear" } else { "client" };
            (stage.name().to_owned(), kind.to_owned(), measures)
        });
        let predicted = &plan.spec().predicted;
        let own = Self::of(plan.name(), rayon::current_num_threads(), plan.ring_degree(), predicted, stages);
        Self { insecure: plan.insecure(), ..own }
    }
}

/// Measurements of one session of a server, in any trust model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerTrace {
    /// Blocks (two-party: groups of images) served.
    pub blocks: u64,
    /// Images served.
    pub images: u64,
    /// Per stage of the server's plan, in order; behind them the steps of a packed stage.
    pub stages: Vec<ServerStage>,
    /// Wall-clock seconds of the session's work on ciphertexts, reading and writing them included, where they are measured as a whole.
    pub seconds: f64,
    /// Seconds of computation for the set-up.
    pub setup_seconds: f64,
    /// What was counted (non-interactive).
    pub counted: Option<Counted>,
    /// Bytes received.
    pub bytes_up: u64,
    /// Bytes sent.
    pub bytes_down: u64,
    /// The party's own trace as JSON, where its trust model has one (two-party).
    pub own: Option<String>,
}

/// What a server measured of a stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerStage {
    /// Name in the server's plan.
    pub name: String,
    /// Seconds of computation (0 for stages of the client); non-interactive: summed over threads, wall clock for steps.
    pub seconds: f64,
}

impl ServerTrace {
    /// A session with these stages that has measured nothing yet.
    pub(crate) fn of(names: impl IntoIterator<Item = String>) -> Self {
        let stages = names.into_iter().map(|name| ServerStage { name, seconds: 0.0 }).collect();
        Self { stages, ..Self::default() }
    }
}

/// Operations that a server counted, all blocks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counted {
    /// Products of a weight with a ciphertext word.
    pub word_products: u64,
    /// Products of ciphertexts.
    pub products: u64,
    /// Ciphertexts multiplied by an integer and summed.
    pub combined: u64,
    /// Relinearisations.
    pub relinearisations: u64,
    /// Divisions by a prime.
    pub rescalings: u64,
    /// Rotations (packed engine).
    pub rotations: u64,
    /// Ciphertexts cut into digits for several rotations (packed engine).
    pub hoists: u64,
    /// Products of a ciphertext with a vector of weights (packed engine).
    pub plain_products: u64,
    /// Vectors of weights that are encoded for every image, because memory has no room for all of them (packed engine).
    pub encodings: u64,
    /// Products of a ciphertext with a constant (packed engine).
    pub constant_products: u64,
    /// Bootstraps, whose own operations the others leave out (packed engine).
    pub bootstraps: u64,
}

impl Counted {
    /// So many times as much.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self {
            word_products: self.word_products * count,
            products: self.products * count,
            combined: self.combined * count,
            relinearisations: self.relinearisations * count,
            rescalings: self.rescalings * count,
            rotations: self.rotations * count,
            hoists: self.hoists * count,
            plain_products: self.plain_products * count,
            encodings: self.encodings * count,
            constant_products: self.constant_products * count,
            bootstraps: self.bootstraps * count,
        }
    }
}

impl std::ops::AddAssign for Counted {
    fn add_assign(&mut self, other: Self) {
        self.word_products += other.word_products;
        self.products += other.products;
        self.combined += other.combined;
        self.relinearisations += other.relinearisations;
        self.rescalings += other.rescalings;
        self.rotations += other.rotations;
        self.hoists += other.hoists;
        self.plain_products += other.plain_products;
        self.encodings += other.encodings;
        self.constant_products += other.constant_products;
        self.bootstraps += other.bootstraps;
    }
}

impl From<hushnet_layers::packed::Counts> for Counted {
    fn from(c: hushnet_layers::packed::Counts) -> Self {
        Self {
            products: c.ciphertext_products as u64,
            relinearisations: c.relinearisations as u64,
            rescalings: c.rescalings as u64,
            rotations: c.rotations() as u64,
            hoists: c.hoists as u64,
            plain_products: c.plain_products as u64,
            encodings: c.encodings as u64,
            constant_products: c.constant_products as u64,
            bootstraps: c.bootstraps as u64,
            ..Self::default()
        }
    }
}

impl From<hushnet_layers::ckks_batch::Cost> for Counted {
    fn from(c: hushnet_layers::ckks_batch::Cost) -> Self {
        Self {
            word_products: c.word_products,
            products: c.products,
            combined: c.combined,
            relinearisations: c.relinearisations,
            rescalings: c.rescalings,
            ..Self::default()
        }
    }
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
