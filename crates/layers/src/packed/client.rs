//! The client's half: keys, encryption of an image, decryption of the result.

use super::compile::Circuit;
use super::PackedError;
use hushnet_ring::Prg;
use hushnet_rlwe::ckks::bootstrap::Encapsulation;
use hushnet_rlwe::ckks::client::{KeyGenerator, SecretKey};
use hushnet_rlwe::ckks::{Ciphertext, Encoder, GaloisKeys, PublicKey, RelinKey};
use std::sync::Arc;

/// What the server needs to evaluate: nothing that decrypts.
#[derive(Clone)]
pub struct EvaluationKeys {
    /// For products of ciphertexts.
    pub relinearise: RelinKey,
    /// For exactly the circuit's rotations, each up to the level at which it is used.
    pub rotations: GaloisKeys,
    /// To the ephemeral secret of bootstraps and back; only where the circuit has some.
    pub encapsulation: Option<Encapsulation>,
    /// To re-randomise results; only where the circuit hides weights.
    pub public: Option<PublicKey>,
}

impl EvaluationKeys {
    /// Bytes on the wire, without serialising.
    ///
    /// # Errors
    /// [`PackedError::Ckks`] only when the ring refuses, which checked parameters exclude.
    pub fn byte_len(&self) -> Result<u64, PackedError> {
        let public = match &self.public {
            Some(p) => p.to_bytes()?.len(),
            None => 0,
        };
        let pair = match &self.encapsulation {
            Some(e) => e.to_bytes()?.len(),
            None => 0,
        };
        Ok((self.relinearise.to_bytes()?.len() + self.rotations.byte_len() + pair + public) as u64)
    }
}

/// Owns the secret key. No `Debug`; the key is wiped when it goes.
pub struct Client {
    circuit: Arc<Circuit>,
    encoder: Encoder,
    secret: SecretKey,
}

impl Client {
    /// With a fresh secret key.
    ///
    /// # Errors
    /// [`PackedError::Ckks`] only when the ring refuses, which checked parameters exclude.
    pub fn new(circuit: &Arc<Circuit>, prg: &mut Prg) -> Result<Self, PackedError> {
        let params = circuit.params();
        let secret = KeyGenerator::new(params).secret_key(prg)?;
        Ok(Self { circuit: circuit.clone(), encoder: Encoder::new(params), secret })
    }

    /// Keys for the server.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn keys(&self, prg: &mut Prg) -> Result<EvaluationKeys, PackedError> {
        let generator = KeyGenerator::new(self.circuit.params());
        let wanted = self.circuit.interface().galois();
        let bootstrap = self.circuit.interface().bootstrap();
        let public = if self.circuit.options.hide_weights {
            Some(generator.public_key(&self.secret, prg)?)
        } else {
            None
        };
        Ok(EvaluationKeys {
            relinearise: generator.relin_key(&self.secret, prg)?,
            rotations: generator.galois_keys_at(&self.secret, &wanted, prg)?,
            encapsulation: bootstrap
                .map(|params| generator.encapsulation(&self.secret, params, prg))
                .transpose()?,
            public,
        })
    }

    /// Encrypts an image in the layouts that the circuit's first steps take; one polynomial travels for each ciphertext.
    ///
    /// # Errors
    /// [`PackedError::InputLength`], [`PackedError::InputRange`].
    pub fn encrypt(&self, image: &[f64], prg: &mut Prg) -> Result<Vec<Ciphertext>, PackedError> {
        let interface = self.circuit.interface();
        let mut out = Vec::new();
        for (i, upload) in interface.spec().uploads.iter().enumerate() {
            let all = 0..upload.slots.len();
            out.extend(interface.encrypt((&self.encoder, &self.secret), i, all, image, prg)?);
        }
        Ok(out)
    }

    /// The network's output from the server's answer.
    ///
    /// # Errors
    /// [`PackedError::Message`] for a wrong number of ciphertexts, [`PackedError::Ckks`] for foreign ones.
    pub fn decrypt(&self, answer: &[Ciphertext]) -> Result<Vec<f64>, PackedError> {
        let slots: Vec<Vec<f64>> = answer
            .iter()
            .map(|c| Ok(self.encoder.decode(&self.secret.decrypt(c)?)?))
            .collect::<Result<_, PackedError>>()?;
        self.circuit.interface().read(&slots)
    }
}
