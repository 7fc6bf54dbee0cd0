//! What a non-interactive run measures besides what all runs do.

use super::plan::NonInteractivePlan;
pub use crate::trace::Counted;
use crate::trace::{Merge, RangeTrace, ServerTrace, Trace};
use serde::Serialize;

/// Measurements of one run of a client.
pub type NonInteractiveTrace = Trace<CircuitMeasures, CircuitOwn>;

/// What is measured of the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CircuitOwn {
    /// Seconds of the client's head, encryption and packing.
    pub encrypt_seconds: f64,
    /// Seconds of waiting for the server.
    pub wait_seconds: f64,
    /// Seconds of decryption and the client's tail.
    pub decrypt_seconds: f64,
    /// Seconds of the server's work on ciphertexts, where it ran in this process.
    pub server_seconds: Option<f64>,
    /// Decrypted tensors.
    pub ranges: Vec<RangeTrace<f64>>,
    /// What was counted on the server, where it ran in this process.
    pub counted: Option<Counted>,
}

/// What is measured of a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CircuitMeasures {
    /// Seconds on the server, summed over threads; absent where they are not known.
    pub seconds: Option<f64>,
}

impl Merge for CircuitMeasures {
    fn add_stage(&mut self, _kind: &str, seconds: f64) {
        if seconds > 0.0 {
            self.seconds = Some(seconds);
        }
    }
}

impl Merge for CircuitOwn {
    fn add_session(&mut self, server: &ServerTrace) {
        self.server_seconds = Some(server.seconds);
        self.counted = server.counted;
    }
}

impl NonInteractiveTrace {
    pub(super) fn new(plan: &NonInteractivePlan, threads: usize) -> Self {
        let stages = plan.spec().stages.iter();
        let stages = stages.map(|s| (s.name.clone(), s.kind.name().to_owned(), CircuitMeasures::default()));
        let degree = plan.params().ring_degree();
        let own = Self::of(plan.name(), threads, degree, &plan.spec().predicted, stages);
        Self { insecure: plan.insecure(), ..own }
    }
}
