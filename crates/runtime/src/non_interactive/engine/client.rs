//! The client's half of engines: encryption and decryption.

use crate::error::Error;
use crate::non_interactive::packed::PackedParts;
use crate::non_interactive::plan::{Link, NonInteractivePlan};
use hushnet_layers::ckks_batch::Circuit;
use hushnet_layers::packed::Interface;
use hushnet_ring::Prg;
use hushnet_rlwe::ckks::client::SecretKey;
use hushnet_rlwe::ckks::{Ciphertext, EncodeAt, Encoder, Level};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use zeroize::Zeroizing;

/// What a client does by an engine.
pub trait ClientEngine: Send + Sync {
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
        prg: &mut Prg,
    ) -> Result<Vec<Ciphertext>, Error>;
    /// Decrypts consecutive ciphertexts of a tensor, from the `first` on, to their places in the tensor's values `[feature][image]`. Says
    /// whether all of them hold messages ([`Encoder::is_message`]).
    ///
    /// # Errors
    /// [`Error`] when decryption is refused.
    fn decrypt(
        &self,
        secret: &SecretKey,
        first: usize,
        ciphertexts: &[Ciphertext],
        values: (&mut [f64], usize),
    ) -> Result<bool, Error>;
}

/// The engine of a plan for a client.
#[must_use]
pub(crate) fn of(plan: &NonInteractivePlan) -> Box<dyn ClientEngine> {
    match plan.packed() {
        None => Box::new(BatchEngine { plan: plan.clone(), encoder: Encoder::new(plan.params()) }),
        Some(parts) => Box::new(PackedEngine::new(parts)),
    }
}

/// A feature of many images in every ciphertext.
struct BatchEngine {
    plan: NonInteractivePlan,
    encoder: Encoder,
}

impl BatchEngine {
    fn circuit(&self) -> Result<&Circuit, Error> {
        self.plan.circuit().ok_or_else(|| Error::Internal("not a plan of the batch engine".into()))
    }

    fn level(&self, link: &Link) -> Result<Level, Error> {
        Ok(self.plan.params().level(link.level)?)
    }
}

/// Coefficients below this take the fast way of encryption.
const SMALL: f64 = (1u64 << 49) as f64;

impl ClientEngine for BatchEngine {
    fn encrypt(
        &self,
        secret: &SecretKey,
        link: &Link,
        which: Range<usize>,
        (values, images): (&[f64], usize),
        prg: &mut Prg,
    ) -> Result<Vec<Ciphertext>, Error> {
        let at = EncodeAt { level: self.level(link)?, scale: link.scale, bound: link.bound };
        // Places that no image has repeat the last one: zeros need not be inputs that the network's bounds hold for, and what wraps in one
        // place wraps in all.
        let places = self.plan.block_images();
        let row = |e: usize| {
            let mut row = Zeroizing::new(Vec::with_capacity(places));
            row.extend_from_slice(&values[e * images..(e + 1) * images]);
            let last = row.last().copied().unwrap_or(0.0);
            row.resize(places.max(images), last);
            row
        };
        let features: Vec<usize> = which.collect();
        let small = 2.0 * link.bound * link.scale < SMALL;
        let mut out = Vec::with_capacity(features.len());
        let complex = self.circuit()?.is_complex();
        for pair in features.chunks(2) {
            if complex {
                for &e in pair {
                    out.push(if small {
                        secret.encrypt_small(self.encoder.encode_packed_small(&row(e), at)?, prg)?
                    } else {
                        secret.encrypt(&self.encoder.encode_packed(&row(e), at)?, prg)?
                    });
                }
            } else if small {
                let second = pair.get(1).map(|e| row(*e)).unwrap_or_default();
                let plains = self.encoder.encode_pair(&row(pair[0]), &second, at)?;
                for p in plains.into_iter().take(pair.len()) {
                    out.push(secret.encrypt_small(p, prg)?);
                }
            } else {
                for &e in pair {
                    out.push(secret.encrypt(&self.encoder.encode(&row(e), at)?, prg)?);
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
    ) -> Result<bool, Error> {
        let complex = self.circuit()?.is_complex();
        let rows = &mut values[first * images..(first + ciphertexts.len()) * images];
        let decrypted = rows.par_chunks_mut(images).zip(ciphertexts).map(|(out, c)| {
            let plain = secret.decrypt(c)?;
            let slots =
                if complex { self.encoder.decode_packed(&plain)? } else { self.encoder.decode(&plain)? };
            out.copy_from_slice(&slots[..out.len()]);
            Ok(self.encoder.is_message(&plain, &slots))
        });
        decrypted.try_reduce(|| true, |a, b| Ok(a & b))
    }
}

/// An image, or some side by side.
struct PackedEngine {
    images: usize,
    interface: Arc<Interface>,
    encoder: Encoder,
}

impl PackedEngine {
    fn new(parts: &PackedParts) -> Self {
        let interface = parts.interface.clone();
        Self { images: parts.images, encoder: Encoder::new(interface.params()), interface }
    }
}

impl ClientEngine for PackedEngine {
    fn encrypt(
        &self,
        secret: &SecretKey,
        link: &Link,
        which: Range<usize>,
        (values, images): (&[f64], usize),
        prg: &mut Prg,
    ) -> Result<Vec<Ciphertext>, Error> {
        let keys = (&self.encoder, secret);
        if images == self.images {
            return Ok(self.interface.encrypt(keys, link.number, which, values, prg)?);
        }
        let last = images.min(self.images).saturating_sub(1);
        let places = (0..link.elements).flat_map(|e| (0..self.images).map(move |b| e * images + b.min(last)));
        let block: Zeroizing<Vec<f64>> = Zeroizing::new(places.map(|at| values[at]).collect());
        Ok(self.interface.encrypt(keys, link.number, which, &block, prg)?)
    }

    fn decrypt(
        &self,
        secret: &SecretKey,
        first: usize,
        ciphertexts: &[Ciphertext],
        (values, images): (&mut [f64], usize),
    ) -> Result<bool, Error> {
        let decrypted = ciphertexts.par_iter().map(|c| {
            let plain = secret.decrypt(c)?;
            let slots = self.encoder.decode(&plain)?;
            Ok((self.encoder.is_message(&plain, &slots), slots))
        });
        let (messages, slots): (Vec<bool>, Vec<Vec<f64>>) =
            decrypted.collect::<Result<Vec<_>, Error>>()?.into_iter().unzip();
        let places = self.interface.spec().places.chunks(self.images);
        for (row, places) in values.chunks_mut(images).zip(places) {
            for (value, &(ct, slot)) in row.iter_mut().zip(places) {
                if let Some(found) = (ct as usize).checked_sub(first).and_then(|i| slots.get(i)) {
                    *value = found[slot as usize];
                }
            }
        }
        Ok(!messages.contains(&false))
    }
}
