//! What a two-party run measured, beside what was predicted.

use super::cost::Traffic;
use super::handshake::kind_name;
use super::meter::Waited;
use super::plan::TwoPartyPlan;
use crate::trace::peak_memory;
use hushnet_mpc::{OtKind, Party, Stats};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A phase: set-up, a stage, or a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Of them, seconds that this party waited for the peer.
    pub waiting: f64,
    /// Bytes from the client to the server.
    pub bytes_up: u64,
    /// Bytes from the server to the client.
    pub bytes_down: u64,
    /// Times that this party turned from sending to receiving.
    pub turns: u64,
    /// What was predicted.
    pub predicted: Traffic,
}

/// Measurements of one stage, all groups of images together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TwoPartyStage {
    /// Stage name.
    pub name: String,
    /// Kind as in the plan.
    pub kind: String,
    /// Tiles of a linear stage, for one image.
    pub tiles: usize,
    /// Measurements.
    #[serde(flatten)]
    pub phase: Phase,
}

/// Measurements of one run of one party.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TwoPartyTrace {
    /// Name of the network.
    pub plan: String,
    /// `client` or `server`.
    pub party: String,
    /// Instruction set.
    pub simd: String,
    /// Threads of the pool that the linear layers ran in.
    pub threads: usize,
    /// Ring degree N.
    pub ring_degree: usize,
    /// l, shares are modulo 2^l.
    pub ring_bits: u32,
    /// OT extension.
    pub ot: String,
    /// Images.
    pub images: usize,
    /// Groups of images that ran through the stages together.
    pub groups: usize,
    /// Greeting, base OTs, public key: once a session.
    pub setup: Phase,
    /// Everything after the set-up.
    pub total: Phase,
    /// Largest resident set of this process so far, where the system tells.
    pub peak_memory_bytes: Option<u64>,
    /// Per stage, in order.
    pub stages: Vec<TwoPartyStage>,
    /// What the plan predicts for one image.
    pub predicted: Map<String, Value>,
}

impl TwoPartyTrace {
    pub(super) fn new(
        plan: &TwoPartyPlan,
        party: Party,
        kind: OtKind,
        threads: usize,
        tiles: impl Fn(usize) -> usize,
    ) -> Self {
        let stage = |(i, s): (usize, &super::plan::Stage)| TwoPartyStage {
            name: s.name.clone(),
            kind: s.label.to_owned(),
            tiles: tiles(i),
            phase: Phase::default(),
        };
        Self {
            plan: plan.name().to_owned(),
            party: if party == Party::Zero { "server" } else { "client" }.to_owned(),
            simd: hushnet_ring::simd::isa().name().to_owned(),
            threads,
            ring_degree: plan.ring_degree(),
            ring_bits: plan.ring().bits(),
            ot: kind_name(kind).to_owned(),
            stages: plan.stages().iter().enumerate().map(stage).collect(),
            predicted: plan.spec().predicted.clone(),
            ..Self::default()
        }
    }

    /// Sets the totals that follow from a finished run.
    pub(super) fn finish(&mut self) {
        self.peak_memory_bytes = peak_memory();
    }

    /// The trace as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Takes the measure of phases of one party.
pub(super) struct Gauge {
    party: Party,
    waited: Waited,
    start: Instant,
    before: (Stats, u64),
}

impl Gauge {
    pub(super) fn start(party: Party, waited: &Waited, stats: Stats) -> Self {
        let before = (stats, waited.load(Ordering::Relaxed));
        Self { party, waited: waited.clone(), start: Instant::now(), before }
    }

    /// Adds what has passed to `phase`.
    pub(super) fn stop(&self, stats: Stats, predicted: Traffic, phase: &mut Phase) {
        let (sent, received) = (
            stats.bytes_sent - self.before.0.bytes_sent,
            stats.bytes_received - self.before.0.bytes_received,
        );
        let (up, down) = if self.party == Party::One { (sent, received) } else { (received, sent) };
        phase.seconds += self.start.elapsed().as_secs_f64();
        phase.waiting += (self.waited.load(Ordering::Relaxed) - self.before.1) as f64 * 1e-9;
        phase.bytes_up += up;
        phase.bytes_down += down;
        phase.turns += stats.turns - self.before.0.turns;
        phase.predicted += predicted;
    }
}
