//! What a two-party run measured, beside what was predicted.

use super::cost::PhaseCost;
use super::handshake::kind_name;
use super::meter::Waited;
use super::plan::TwoPartyPlan;
use super::units::client::UnitCost;
use crate::trace::{peak_memory, Merge, ServerStage, ServerTrace, StageTrace, Trace};
use hushnet_mpc::{OtKind, Party, Stats};
use hushnet_ring::clock::Instant;
use serde::Serialize;
use std::sync::atomic::Ordering;

/// A phase: set-up, a stage, or a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
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
    pub predicted: PhaseCost,
}

/// What is measured of a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShareMeasures {
    /// Tiles of a linear stage, for one image.
    pub tiles: usize,
    /// Measurements.
    #[serde(flatten)]
    pub phase: Phase,
}

/// What is measured of the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SharesOwn {
    /// `client` or `server`.
    pub party: String,
    /// l, shares are modulo 2^l.
    pub ring_bits: u32,
    /// OT extension.
    pub ot: String,
    /// Groups of images that ran through the stages together.
    pub groups: usize,
    /// Greeting, base OTs, public key: once a session.
    pub setup: Phase,
    /// Everything after the set-up.
    pub total: Phase,
    /// Inferences that were prepared. A client's trace has either these or images.
    #[serde(skip_serializing_if = "none")]
    pub units: usize,
    /// What preparing the units that the images have spent cost before, apart from the set-up of that session: never a part of `total`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepared: Option<UnitCost>,
    /// At the server: what it prepared in this session, apart from `total`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offline: Option<Phase>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde asks for it")]
fn none(count: &usize) -> bool {
    *count == 0
}

impl Phase {
    /// Adds another phase's measures.
    pub(super) fn add(&mut self, from: &Self) {
        self.seconds += from.seconds;
        self.waiting += from.waiting;
        self.bytes_up += from.bytes_up;
        self.bytes_down += from.bytes_down;
        self.turns += from.turns;
        self.predicted += from.predicted;
    }
}

/// Measurements of one run of one party.
pub type TwoPartyTrace = Trace<ShareMeasures, SharesOwn>;

impl Merge for ShareMeasures {}
impl Merge for SharesOwn {}

impl TwoPartyTrace {
    pub(super) fn new(
        plan: &TwoPartyPlan,
        party: Party,
        kind: OtKind,
        threads: usize,
        tiles: impl Fn(usize) -> usize,
    ) -> Self {
        let stage = |(i, s): (usize, &super::plan::Stage)| {
            let measures = ShareMeasures { tiles: tiles(i), phase: Phase::default() };
            (s.name.clone(), s.label.to_owned(), measures)
        };
        let stages = plan.stages().iter().enumerate().map(stage);
        let mut trace = Self::of(plan.name(), threads, plan.ring_degree(), &plan.spec().predicted, stages);
        trace.party = String::from(if party == Party::Zero { "server" } else { "client" });
        trace.ring_bits = plan.ring().bits();
        trace.ot = String::from(kind_name(kind));
        trace
    }

    /// Sets what follows from a finished run: totals under the names that all traces have, memory.
    pub(super) fn finish(&mut self) {
        let (setup, total) = (self.setup, self.total);
        self.blocks = self.groups;
        (self.seconds, self.setup_seconds) = (total.seconds, setup.seconds);
        (self.bytes_up, self.bytes_down) = (total.bytes_up, total.bytes_down);
        (self.setup_bytes_up, self.setup_bytes_down) = (setup.bytes_up, setup.bytes_down);
        self.rounds = total.predicted.rounds;
        self.peak_memory_bytes = peak_memory();
    }

    /// A server's trace in the terms of all sessions.
    pub(crate) fn summary(&self) -> ServerTrace {
        let stage = |s: &StageTrace<ShareMeasures>| ServerStage {
            name: s.name.clone(),
            seconds: s.phase.seconds - s.phase.waiting,
        };
        ServerTrace {
            blocks: self.groups as u64,
            images: self.images as u64,
            stages: self.stages.iter().map(stage).collect(),
            seconds: self.total.seconds - self.total.waiting,
            setup_seconds: self.setup.seconds,
            counted: None,
            bytes_up: self.setup.bytes_up + self.total.bytes_up,
            bytes_down: self.setup.bytes_down + self.total.bytes_down,
            own: Some(self.to_json()),
        }
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
    pub(super) fn stop(&self, stats: Stats, predicted: PhaseCost, phase: &mut Phase) {
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
