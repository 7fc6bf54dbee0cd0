//! What a non-interactive run measured, beside what the plan predicts.

use super::plan::NonInteractivePlan;
use crate::plan::spec::StageSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Measurements of one run of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NonInteractiveTrace {
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
    /// Blocks.
    pub blocks: usize,
    /// Wall-clock seconds of all blocks, without keys.
    pub seconds: f64,
    /// Wall-clock seconds of making and sending keys.
    pub setup_seconds: f64,
    /// Bytes of keys, frame headers included.
    pub setup_bytes_up: u64,
    /// Bytes sent for all blocks, frame headers included.
    pub bytes_up: u64,
    /// Bytes received for all blocks.
    pub bytes_down: u64,
    /// Messages that depend on each other: one a block.
    pub rounds: u64,
    /// Seconds of the client's head, encryption and packing.
    pub encrypt_seconds: f64,
    /// Seconds of waiting for the server.
    pub wait_seconds: f64,
    /// Seconds of decryption and the client's tail.
    pub decrypt_seconds: f64,
    /// Seconds of the server's work on ciphertexts, where it ran in this process.
    pub server_seconds: Option<f64>,
    /// Largest resident set of this process so far, where the system tells.
    pub peak_memory_bytes: Option<u64>,
    /// Decrypted tensors.
    pub ranges: Vec<RangeTrace>,
    /// Per stage of the plan.
    pub stages: Vec<StageTrace>,
    /// What was counted on the server, where it ran in this process.
    pub counted: Option<Counted>,
    /// What the plan predicts for a block.
    pub predicted: Map<String, Value>,
}

/// A decrypted tensor's observed range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RangeTrace {
    /// Tensor name.
    pub tensor: String,
    /// Largest absolute value seen.
    pub largest: f64,
    /// Largest absolute value planned.
    pub bound: f64,
}

/// Measurements of one stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTrace {
    /// Stage name.
    pub name: String,
    /// Kind as in the plan.
    pub kind: String,
    /// Seconds on the server, summed over threads; absent where they are not known.
    pub seconds: Option<f64>,
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
    /// Products of a ciphertext with a constant (packed engine).
    pub constant_products: u64,
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
            constant_products: self.constant_products * count,
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
        self.constant_products += other.constant_products;
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
            constant_products: c.constant_products as u64,
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

/// Measurements of one session of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NonInteractiveServerTrace {
    /// Blocks served.
    pub blocks: u64,
    /// Images served.
    pub images: u64,
    /// Seconds per stage of the plan, summed over threads (0 for the client's), then per step of a packed stage (wall clock).
    pub stage_seconds: Vec<f64>,
    /// Wall-clock seconds of work on ciphertexts, reading and writing them included.
    pub seconds: f64,
    /// What was counted.
    pub counted: Counted,
    /// Bytes of the session, received and sent.
    pub bytes_up: u64,
    /// Bytes sent.
    pub bytes_down: u64,
}

impl NonInteractiveTrace {
    pub(super) fn new(plan: &NonInteractivePlan, threads: usize) -> Self {
        let stage = |s: &StageSpec| StageTrace {
            name: s.name.clone(),
            kind: s.kind.name().to_owned(),
            seconds: None,
        };
        Self {
            plan: plan.name().to_owned(),
            simd: hushnet_ring::simd::isa().name().to_owned(),
            threads,
            ring_degree: plan.params().ring_degree(),
            insecure: plan.insecure(),
            stages: plan.spec().stages.iter().map(stage).collect(),
            predicted: plan.spec().predicted.clone(),
            ..Self::default()
        }
    }

    /// Adds what the server measured, where it ran in this process; `steps` are the plan's ([`NonInteractivePlan::steps`]).
    pub fn add_server(&mut self, server: &NonInteractiveServerTrace, steps: &[String]) {
        let step = |name: &String| StageTrace { name: name.clone(), kind: "step".into(), seconds: None };
        self.stages.extend(steps.iter().map(step));
        for (stage, seconds) in self.stages.iter_mut().zip(&server.stage_seconds) {
            if *seconds > 0.0 {
                stage.seconds = Some(*seconds);
            }
        }
        self.server_seconds = Some(server.seconds);
        self.counted = Some(server.counted);
    }

    /// The trace as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
