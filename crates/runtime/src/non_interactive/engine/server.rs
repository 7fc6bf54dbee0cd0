//! The server's half of engines: the network on ciphertexts.

use super::EvaluationKeys;
use crate::error::Error;
use crate::non_interactive::packed::PackedParts;
use crate::non_interactive::plan::NonInteractivePlan;
use crate::non_interactive::trace::Counted;
use hushnet_layers::packed::{Interface, KeyRefs, Server};
use hushnet_rlwe::ckks::{Ciphertext, GaloisKeys};
use std::ops::ControlFlow;
use std::sync::Arc;

/// What a server did for a block.
pub struct Answer {
    /// By decrypted tensor.
    pub outputs: Vec<Vec<Ciphertext>>,
    /// Seconds of every stage of the plan that the server computes, summed over threads.
    pub seconds: Vec<f64>,
    /// Seconds of every step of a packed stage.
    pub steps: Vec<f64>,
    /// What was counted.
    pub counted: Counted,
}

/// What a server does by an engine.
pub trait ServerEngine: Send + Sync {
    /// Computes the downloaded tensors from the uploaded ones.
    ///
    /// # Errors
    /// [`Error`] when evaluation is refused or stopped.
    fn run(
        &self,
        keys: &EvaluationKeys,
        inputs: Vec<Vec<Ciphertext>>,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Answer, Error>;
}

/// The engine of a plan with weights: weights are encoded.
///
/// # Errors
/// [`Error`] when they cannot be.
pub(crate) fn of(plan: &NonInteractivePlan) -> Result<Box<dyn ServerEngine>, Error> {
    Ok(match plan.packed() {
        None => Box::new(BatchEngine { plan: plan.clone() }),
        Some(parts) => Box::new(PackedEngine::new(parts)?),
    })
}

/// A feature of many images in every ciphertext.
struct BatchEngine {
    plan: NonInteractivePlan,
}

impl ServerEngine for BatchEngine {
    fn run(
        &self,
        keys: &EvaluationKeys,
        inputs: Vec<Vec<Ciphertext>>,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Answer, Error> {
        let circuit = self.plan.circuit();
        let circuit = circuit.ok_or_else(|| Error::Internal("not a plan of the batch engine".into()))?;
        let run = circuit.run(keys.relin.as_ref(), inputs, progress)?;
        Ok(Answer {
            outputs: run.outputs,
            seconds: run.times.iter().map(|t| t.seconds).collect(),
            steps: Vec::new(),
            counted: run.counted.into(),
        })
    }
}

/// One image at a time.
struct PackedEngine {
    interface: Arc<Interface>,
    server: Server,
}

impl PackedEngine {
    fn new(parts: &PackedParts) -> Result<Self, Error> {
        let circuit =
            parts.circuit.as_ref().ok_or_else(|| Error::Internal("a plan without weights".into()))?;
        Ok(Self { interface: parts.interface.clone(), server: Server::new(circuit)? })
    }
}

impl ServerEngine for PackedEngine {
    fn run(
        &self,
        keys: &EvaluationKeys,
        inputs: Vec<Vec<Ciphertext>>,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Answer, Error> {
        let missing = |what: &str| Error::Internal(format!("no {what}"));
        let relinearise = keys.relin.as_ref().ok_or_else(|| missing("relinearisation key"))?;
        let none;
        let rotations = match &keys.galois {
            Some(keys) => keys,
            None => {
                none = GaloisKeys::none(self.interface.params());
                &none
            }
        };
        let all = self.server.circuit().program().ops.len();
        let mut tell = |done: usize| progress(done, all);
        let keys = KeyRefs { relinearise, rotations, encapsulation: keys.encapsulation.as_ref() };
        let (answer, trace) = self.server.evaluate_only(inputs.concat(), keys, &mut tell)?;
        let steps: Vec<f64> = trace.steps.iter().map(|s| s.seconds).collect();
        Ok(Answer {
            outputs: vec![answer],
            seconds: vec![steps.iter().sum()],
            steps,
            counted: trace.counts.into(),
        })
    }
}
