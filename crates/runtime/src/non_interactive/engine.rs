//! What a session needs to know of an engine, and the batch engine.
//!
//! A session is: keys up, ciphertexts up, ciphertexts down. How values lie in slots, which keys are needed and what
//! the server computes is the engine's.

use super::plan::{Link, NonInteractivePlan};
use crate::error::Error;
use hushnet_layers::ckks_batch::{CircuitError, Cost};
use hushnet_ring::Prg;
use hushnet_rlwe::ckks::client::SecretKey;
use hushnet_rlwe::ckks::{Ciphertext, CkksError, EncodeAt, Encoder, Galois, GaloisKeys, Level, RelinKey};
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

/// Evaluation keys that a server needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeysNeeded {
    /// Relinearisation.
    pub relin: bool,
    /// Public encryption, to re-randomise results.
    pub public: bool,
    /// Rotations and conjugation.
    pub galois: Vec<Galois>,
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
    /// Seconds of every stage of the circuit, summed over threads.
    pub seconds: Vec<f64>,
    /// What was counted.
    pub counted: Cost,
}

/// A method of evaluation.
pub trait Engine: Send + Sync {
    /// Images in a full block.
    fn block_images(&self) -> usize;
    /// Keys that the server needs.
    fn keys(&self) -> KeysNeeded;
    /// Ciphertexts of an uploaded or downloaded tensor.
    fn ciphertexts(&self, link: &Link) -> usize;
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
    /// Decrypts a ciphertext of a tensor to the values `[feature][image]` that it holds, in its place of `out`.
    ///
    /// # Errors
    /// [`Error`] when decryption is refused.
    fn decrypt(
        &self,
        secret: &SecretKey,
        which: usize,
        ciphertext: &Ciphertext,
        out: &mut [f64],
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

    fn level(&self, link: &Link) -> Result<Level, Error> {
        Ok(self.plan.params().level(link.level)?)
    }
}

/// Coefficients below this take the fast way of encryption.
const SMALL: f64 = (1u64 << 49) as f64;

impl Engine for BatchEngine {
    fn block_images(&self) -> usize {
        self.plan.block_images()
    }

    fn keys(&self) -> KeysNeeded {
        KeysNeeded {
            relin: self.plan.circuit().needs_relin_key(),
            public: self.plan.flood_bits().is_some(),
            galois: Vec::new(),
        }
    }

    fn ciphertexts(&self, link: &Link) -> usize {
        link.elements
    }

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
        for pair in features.chunks(2) {
            if self.plan.circuit().is_complex() {
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
        _which: usize,
        ciphertext: &Ciphertext,
        out: &mut [f64],
    ) -> Result<(), Error> {
        let plain = secret.decrypt(ciphertext)?;
        let values = if self.plan.circuit().is_complex() {
            self.encoder.decode_packed(&plain)?
        } else {
            self.encoder.decode(&plain)?
        };
        out.copy_from_slice(&values[..out.len()]);
        Ok(())
    }

    fn run(
        &self,
        keys: &EvaluationKeys,
        inputs: Vec<Vec<Ciphertext>>,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Answer, Error> {
        let run = self.plan.circuit().run(keys.relin.as_ref(), inputs, progress)?;
        Ok(Answer {
            outputs: run.outputs,
            seconds: run.times.iter().map(|t| t.seconds).collect(),
            counted: run.counted,
        })
    }
}
