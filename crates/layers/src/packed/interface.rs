//! The public half of a circuit: all that a client must know, and nothing from which it is computed.
//!
//! Where input elements stand in the slots of what is sent, which rotation keys are wanted up to which level, where outputs stand in the
//! answer. Both parties build it, the server from the network, the client from a plan without weights. It follows from shapes, from the chosen
//! parameters and from which weights are zero (the latter not with [`super::PackedOptions::hide_weights`], which takes every weight for
//! a term).

use super::layout::EMPTY;
use super::PackedError;
use hushnet_ring::Prg;
use hushnet_rlwe::ckks::bootstrap::{BootstrapParams, BootstrapSpec};
use hushnet_rlwe::ckks::client::SecretKey;
use hushnet_rlwe::ckks::{Ciphertext, CkksParams, EncodeAt, Encoder, Galois, Level};
use std::ops::Range;

/// Coefficients below this take the fast way of encryption.
const SMALL: f64 = (1u64 << 49) as f64;
/// Most ciphertexts of an image, either way.
pub const MAX_CIPHERTEXTS: usize = 1 << 16;

/// Ciphertexts of the input at one level, as a file states them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadSpec {
    /// Data primes.
    pub level: usize,
    /// Per ciphertext, the input element of every slot, `u32::MAX` for none.
    pub slots: Vec<Vec<u32>>,
}

/// What a file states of a circuit: unchecked.
#[derive(Clone, Debug, PartialEq)]
pub struct InterfaceSpec {
    /// Input elements.
    pub inputs: usize,
    /// Bound of |input|.
    pub input_bound: f64,
    /// Scale of what is sent.
    pub scale: f64,
    /// What is sent, in order.
    pub uploads: Vec<UploadSpec>,
    /// Rotation keys: steps, and highest level in data primes.
    pub rotations: Vec<(i64, usize)>,
    /// Slots of messages that are bootstrapped; `None` without bootstraps.
    pub bootstrap: Option<usize>,
    /// Data primes of the answer.
    pub output_level: usize,
    /// Scale of the answer.
    pub output_scale: f64,
    /// Bound of |output|.
    pub output_bound: f64,
    /// Ciphertexts of the answer.
    pub answer: usize,
    /// Per output element, its ciphertext and slot.
    pub places: Vec<(u32, u32)>,
}

/// The public half of a circuit, checked: what a client needs.
#[derive(Clone)]
pub struct Interface {
    spec: InterfaceSpec,
    params: CkksParams,
    rotations: Vec<(i64, Level)>,
    bootstrap: Option<BootstrapParams>,
}

impl InterfaceSpec {
    /// Checks it against parameters.
    ///
    /// # Errors
    /// [`PackedError::Spec`] saying what does not fit: levels, slots, elements, numbers of ciphertexts, rotations that come twice.
    pub fn check(self, params: &CkksParams) -> Result<Interface, PackedError> {
        let fail = |why: String| Err(PackedError::Spec(why));
        let slots = params.slots();
        let finite = |v: f64| v.is_finite() && v > 0.0;
        if ![self.input_bound, self.scale, self.output_scale, self.output_bound].into_iter().all(finite) {
            return fail("bounds and scales are positive numbers".into());
        }
        let sent: usize = self.uploads.iter().map(|u| u.slots.len()).sum();
        if self.uploads.iter().any(|u| u.slots.is_empty()) || !(1..=MAX_CIPHERTEXTS).contains(&sent) {
            return fail(format!("{sent} ciphertexts of the input; 1 to {MAX_CIPHERTEXTS} are possible"));
        }
        for u in &self.uploads {
            params.level(u.level)?;
            let wrong = |s: &Vec<u32>| {
                s.len() != slots || s.iter().any(|e| *e != EMPTY && *e as usize >= self.inputs)
            };
            if u.slots.iter().any(wrong) {
                return fail(format!("an upload has not {slots} slots of {} elements", self.inputs));
            }
        }
        params.level(self.output_level)?;
        if !(1..=MAX_CIPHERTEXTS).contains(&self.answer) || self.places.is_empty() {
            return fail(format!("an answer of {} ciphertexts", self.answer));
        }
        let outside = |p: &(u32, u32)| p.0 as usize >= self.answer || p.1 as usize >= slots;
        if self.places.iter().any(outside) {
            return fail("an output stands outside of the answer".into());
        }
        let mut rotations: Vec<(i64, Level)> = Vec::with_capacity(self.rotations.len());
        for &(steps, level) in &self.rotations {
            let level = params.level(level)?;
            let follows = rotations.last().is_none_or(|last| last.0 < steps);
            if !follows || !(1..slots as i64).contains(&steps) || level > params.key_level() {
                return fail(format!(
                    "rotations are 1 to {} steps, increasing, with levels that have keys; {steps} at {} is not",
                    slots - 1,
                    level.get()
                ));
            }
            rotations.push((steps, level));
        }
        let bootstrap = match self.bootstrap {
            None => None,
            Some(count) => Some(BootstrapSpec::at(params.ring_degree(), count)?.on(params)?),
        };
        let has = |(element, level): &(Galois, Level)| match element {
            Galois::Rotate(steps) => rotations.iter().any(|(s, l)| s == steps && l >= level),
            Galois::Conjugate => true,
        };
        if let Some(lacking) = bootstrap.iter().flat_map(BootstrapParams::rotations).find(|r| !has(r)) {
            return fail(format!("bootstraps need {:?} at level {}", lacking.0, lacking.1.get()));
        }
        Ok(Interface { spec: self, params: params.clone(), rotations, bootstrap })
    }
}

impl Interface {
    /// As a file states it.
    #[must_use]
    pub fn spec(&self) -> &InterfaceSpec {
        &self.spec
    }

    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &CkksParams {
        &self.params
    }

    /// Rotations that need keys, by steps, each with the highest level at which it is used.
    #[must_use]
    pub fn rotations(&self) -> &[(i64, Level)] {
        &self.rotations
    }

    /// The bootstraps that the server makes, where it makes some.
    #[must_use]
    pub fn bootstrap(&self) -> Option<&BootstrapParams> {
        self.bootstrap.as_ref()
    }

    /// All automorphisms that need keys: [`Self::rotations`], then, for bootstraps, the conjugation.
    #[must_use]
    pub fn galois(&self) -> Vec<(Galois, Level)> {
        let conjugation = self.bootstrap.as_ref().and_then(|b| b.rotations().pop());
        let own = self.rotations.iter().map(|(s, l)| (Galois::Rotate(*s), *l));
        own.chain(conjugation).collect()
    }

    /// Encrypts some ciphertexts of an upload.
    ///
    /// # Errors
    /// [`PackedError::InputLength`], [`PackedError::InputRange`]; [`PackedError::Message`] for ciphertexts that there are not.
    pub fn encrypt(
        &self,
        (encoder, secret): (&Encoder, &SecretKey),
        upload: usize,
        which: Range<usize>,
        image: &[f64],
        prg: &mut Prg,
    ) -> Result<Vec<Ciphertext>, PackedError> {
        let s = &self.spec;
        if image.len() != s.inputs {
            return Err(PackedError::InputLength { expected: s.inputs, got: image.len() });
        }
        if let Some(index) = image.iter().position(|v| v.is_nan() || v.abs() > s.input_bound) {
            return Err(PackedError::InputRange { index, bound: s.input_bound });
        }
        let got = which.end;
        let wanted = s.uploads.get(upload).and_then(|u| Some((u, u.slots.get(which)?)));
        let Some((u, lists)) = wanted else {
            let expected = s.uploads.get(upload).map_or(0, |u| u.slots.len());
            return Err(PackedError::Message { what: "ciphertexts of the input", expected, got });
        };
        let fill = |slots: &Vec<u32>| -> Vec<f64> {
            slots.iter().map(|&e| if e == EMPTY { 0.0 } else { image[e as usize] }).collect()
        };
        let at = EncodeAt { level: self.params.level(u.level)?, scale: s.scale, bound: s.input_bound };
        let mut out = Vec::with_capacity(lists.len());
        if 2.0 * at.bound * at.scale >= SMALL {
            for slots in lists {
                out.push(secret.encrypt(&encoder.encode(&fill(slots), at)?, prg)?);
            }
            return Ok(out);
        }
        // Two of them share a complex transform.
        for pair in lists.chunks(2) {
            let second = pair.get(1).map_or_else(Vec::new, fill);
            let plain = encoder.encode_pair(&fill(&pair[0]), &second, at)?;
            for p in plain.into_iter().take(pair.len()) {
                out.push(secret.encrypt_small(p, prg)?);
            }
        }
        Ok(out)
    }

    /// Outputs from the slots of every ciphertext of the answer.
    ///
    /// # Errors
    /// [`PackedError::Message`] for another number of ciphertexts.
    pub fn read(&self, slots: &[Vec<f64>]) -> Result<Vec<f64>, PackedError> {
        let (expected, got) = (self.spec.answer, slots.len());
        if got != expected {
            return Err(PackedError::Message { what: "the answer", expected, got });
        }
        Ok(self.spec.places.iter().map(|&(c, s)| slots[c as usize][s as usize]).collect())
    }
}
