//! What a session needs to know of an engine, and the batch engine.
//!
//! A session is: keys up, ciphertexts up, ciphertexts down. How values lie in slots, which keys are needed and what
//! the server computes is the engine's.

use super::packed::PackedEngine;
use super::plan::{Link, NonInteractivePlan};
use super::trace::Counted;
use crate::error::Error;
use hushnet_layers::ckks_batch::{Circuit, CircuitError};
use hushnet_layers::packed::PackedError;
use hushnet_ring::Prg;
use hushnet_rlwe::ckks::client::SecretKey;
use hushnet_rlwe::ckks::{Ciphertext, CkksError, EncodeAt, Encoder, Galois, GaloisKeys, Level, RelinKey};
use rayon::prelude::*;
use std::ops::{ControlFlow, Range};

impl From<CkksError> for Error {
    fn from(e: CkksError) -> Self {
        Self::Internal(e.to_string())
    }
}

impl From<CircuitError> for Error {
    fn from(e: CircuitError) -> Self {
        match e {
            CircuitError::Stopped => Self::Cancelled,
            other => Self::Internal(other.to_string()),
        }
    }
}

impl From<PackedError> for Error {
    fn from(e: PackedError) -> Self {
        match e {
            PackedError::Stopped => Self::Cancelled,
            other => Self::Internal(other.to_string()),
        }
    }
}

/// Evaluation keys that a server needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeysNeeded {
    /// Relinearisation.
    pub relin: bool,
    /// Public encryption, to re-randomise results.
    pub public: bool,
    /// Automorphisms, each with the highest level at which it is used.
    pub galois: Vec<(Galois, Level)>,
}

impl KeysNeeded {
    /// Of a plan.
    #[must_use]
    pub fn of(plan: &NonInteractivePlan) -> Self {
        let public = plan.flood_bits().is_some();
        match plan.packed() {
            None => Self {
                relin: plan.circuit().is_some_and(Circuit::needs_relin_key),
                public,
                galois: Vec::new(),
            },
            Some(parts) => {
                let rotations = parts.interface().rotations().iter();
                Self {
                    relin: true,
                    public,
                    galois: rotations.map(|(s, l)| (Galois::Rotate(*s), *l)).collect(),
                }
            }
        }
    }
}

/// Evaluation keys that a server holds for a session.
#[derive(Clone, Default)]
pub struct EvaluationKeys {
    /// Relinearisation.
    pub relin: Option<RelinKey>,
    /// Rotations and conjugation.
    pub galois: Option<GaloisKeys>,
}

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

/// A method of evaluation.
pub trait Engine: Send + Sync {
    /// Encrypts some ciphertexts of a tensor; `values` are `[feature][image]`, `images` of them.
    ///
    /// # Errors
    /// [`Error`] when a value is outside the planned range or encryption is refused.
    fn encrypt(
        &self,
        secret: &SecretKey,
        link: &Link,
        which: Range<usize>,
        values: (&[f64], usize),
        seed: [u8; 16],
    ) -> Result<Vec<Ciphertext>, Error>;
    /// Decrypts consecutive ciphertexts of a tensor, from the `first` on, to their places in the tensor's values `[feature][image]`.
    ///
    /// # Errors
    /// [`Error`] when decryption is refused.
    fn decrypt(
        &self,
        secret: &SecretKey,
        first: usize,
        ciphertexts: &[Ciphertext],
        values: (&mut [f64], usize),
    ) -> Result<(), Error>;
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

/// The engine of a plan for a client, which computes nothing of the server's.
#[must_use]
pub fn client(plan: &NonInteractivePlan) -> Box<dyn Engine> {
    match plan.packed() {
        None => Box::new(BatchEngine::new(plan)),
        Some(parts) => Box::new(PackedEngine::client(parts)),
    }
}

/// The engine of a plan with weights for a server: weights are encoded.
///
/// # Errors
/// [`Error`] when they cannot be.
pub fn server(plan: &NonInteractivePlan) -> Result<Box<dyn Engine>, Error> {
    Ok(match plan.packed() {
        None => Box::new(BatchEngine::new(plan)),
        Some(parts) => Box::new(PackedEngine::server(parts)?),
    })
}

/// A feature of many images in every ciphertext.
pub struct BatchEngine {
    plan: NonInteractivePlan,
    encoder: Encoder,
}

impl BatchEngine {
    /// For a plan of the batch engine.
    #[must_use]
    pub fn new(plan: &NonInteractivePlan) -> Self {
        Self { plan: plan.clone(), encoder: Encoder::new(plan.params()) }
    }

    fn circuit(&self) -> Result<&Circuit, Error> {
        self.plan.circuit().ok_or_else(|| Error::Internal("not a plan of the batch engine".into()))
    }

    fn level(&self, link: &Link) -> Result<Level, Error> {
        Ok(self.plan.params().level(link.level)?)
    }
}

/// Coefficients below this take the fast way of encryption.
const SMALL: f64 = (1u64 << 49) as f64;

impl Engine for BatchEngine {
    fn encrypt(
        &self,
        secret: &SecretKey,
        link: &Link,
        which: Range<usize>,
        (values, images): (&[f64], usize),
        seed: [u8; 16],
    ) -> Result<Vec<Ciphertext>, Error> {
        let mut prg = Prg::from_seed(seed);
        let at = EncodeAt { level: self.level(link)?, scale: link.scale, bound: link.bound };
        let row = |e: usize| &values[e * images..(e + 1) * images];
        let features: Vec<usize> = which.collect();
        let small = 2.0 * link.bound * link.scale < SMALL;
        let mut out = Vec::with_capacity(features.len());
        let complex = self.circuit()?.is_complex();
        for pair in features.chunks(2) {
            if complex {
                for &e in pair {
                    out.push(if small {
                        secret.encrypt_small(self.encoder.encode_packed_small(row(e), at)?, &mut prg)?
                    } else {
                        secret.encrypt(&self.encoder.encode_packed(row(e), at)?, &mut prg)?
                    });
                }
            } else if small {
                let second = pair.get(1).map_or(&[][..], |e| row(*e));
                let plains = self.encoder.encode_pair(row(pair[0]), second, at)?;
                for p in plains.into_iter().take(pair.len()) {
                    out.push(secret.encrypt_small(p, &mut prg)?);
                }
            } else {
                for &e in pair {
                    out.push(secret.encrypt(&self.encoder.encode(row(e), at)?, &mut prg)?);
                }
            }
        }
        Ok(out)
    }

    fn decrypt(
        &self,
        secret: &SecretKey,
        first: usize,
        ciphertexts: &[Ciphertext],
        (values, images): (&mut [f64], usize),
    ) -> Result<(), Error> {
        let complex = self.circuit()?.is_complex();
        let rows = &mut values[first * images..(first + ciphertexts.len()) * images];
        rows.par_chunks_mut(images).zip(ciphertexts).try_for_each(|(out, c)| {
            let plain = secret.decrypt(c)?;
            let slots =
                if complex { self.encoder.decode_packed(&plain)? } else { self.encoder.decode(&plain)? };
            out.copy_from_slice(&slots[..out.len()]);
            Ok(())
        })
    }

    fn run(
        &self,
        keys: &EvaluationKeys,
        inputs: Vec<Vec<Ciphertext>>,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Answer, Error> {
        let run = self.circuit()?.run(keys.relin.as_ref(), inputs, progress)?;
        Ok(Answer {
            outputs: run.outputs,
            seconds: run.times.iter().map(|t| t.seconds).collect(),
            steps: Vec::new(),
            counted: run.counted.into(),
        })
    }
}
