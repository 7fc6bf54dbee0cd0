//! Inferences that are prepared before their input is known (`docs/two-party.md`, "Prepared inferences").
//!
//! A *unit* prepares the linear layers of one image. For every tensor that such a layer reads the client draws r, uniform modulo 2^l, and the layer's
//! ordinary protocol runs on it: the client keeps its share u of W r + bias, the server its share s. With the image the client sends d = x - r of its
//! share x, and the server computes W (x + d) + s of its own share x: an integer product, no ciphertext travels. r is used for one image and never again,
//! so d is uniform and independent of all else that the server sees.
//!
//! Where that must not fail is here: a unit is spent, and durably so, before anything of it leaves a party ([`client`], [`server`]).

mod answer;
pub mod client;
pub mod server;

pub(super) use answer::{working_bytes, WordModel};

use super::plan::{Kind, Stage, TwoPartyPlan};
use crate::error::Error;
use hushnet_mpc::Ring;
use hushnet_ring::pack;
use sha2::{Digest, Sha256};
use std::path::Path;
use zeroize::Zeroizing;

/// End of the names of whole files, and of those that are being written.
const SUFFIX: &str = ".unit";
const PART: &str = ".part";
/// Hexadecimal digits of the parts of a file's name.
const NAME: usize = 32;
/// Units that one exchange prepares, or one group of images spends, at most.
pub const MOST: usize = 64;

/// Bytes of the shares of such a group at most, where it has more than one unit.
const GROUP_BYTES: usize = 512 << 20;

/// 128 bits that nobody guesses: what units of a client belong to, and the name of one of them.
pub(super) type Id = [u8; 16];

/// A unit as both parties name it on the wire. No `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// Drawn by the client when it prepares.
    pub(super) id: Id,
    /// The public seed of the stages that run under encryption: fresh whenever one runs.
    pub(super) seed: [u8; 32],
}

/// What a group of units belongs to, and the units. No `Debug`: who knows it can spend them.
pub(super) struct Claim {
    pub(super) token: Id,
    pub(super) units: Vec<Named>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        use zeroize::Zeroize;
        self.token.zeroize();
        self.units.iter_mut().for_each(|u| u.id.zeroize());
    }
}

/// A linear stage that units prepare.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// Index of the stage.
    pub(super) stage: usize,
    /// Elements of its result, and where their words begin in a unit's shares.
    pub(super) elements: usize,
    pub(super) at: usize,
    /// Its input, and whether this is the first of the stages here that read it: d of it is then sent.
    pub(super) input: usize,
    pub(super) first: bool,
}

/// What units of a plan prepare; follows from its public part.
pub(super) struct Parts {
    parts: Vec<Part>,
    ring: Ring,
    /// Bytes of one party's shares of a unit, l bits a word, every stage from a whole byte on.
    bytes: usize,
}

/// Whether units prepare a linear stage: its method works on any shares modulo 2^l. The others convert to shares modulo a prime, which needs a bounded
/// value.
pub(super) fn prepares(stage: &Stage) -> bool {
    matches!(&stage.kind, Kind::Linear(linear) if !linear.method.exact())
}

impl Parts {
    pub(super) fn new(plan: &TwoPartyPlan) -> Self {
        let (ring, mut bytes, mut read) = (plan.ring(), 0, Vec::new());
        let mut parts = Vec::new();
        for placed in plan.linear().filter(|s| prepares(s.stage)) {
            let (Some(&input), Some(output)) = (placed.stage.inputs.first(), placed.stage.output) else {
                continue;
            };
            let elements = plan.tensors()[output].elements;
            let first = !read.contains(&input);
            read.push(input);
            parts.push(Part { stage: placed.index, elements, at: bytes, input, first });
            bytes += pack::packed_len(elements, ring.bits());
        }
        Self { parts, ring, bytes }
    }

    /// What is prepared of a stage.
    pub(super) fn of(&self, stage: usize) -> Option<&Part> {
        self.parts.iter().find(|p| p.stage == stage)
    }

    /// All stages that are prepared.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
    }

    /// Units that are prepared, or spent, together at most: both parties hold the shares of all of them.
    pub(super) fn most(&self) -> usize {
        (GROUP_BYTES / self.bytes.max(1)).clamp(1, MOST)
    }

    /// Bytes of one party's shares of a unit.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes a party's share of a stage, image by image, into the shares of the units.
    pub(super) fn store<'u>(
        &self,
        part: &Part,
        share: &[u64],
        units: impl Iterator<Item = &'u mut Shares>,
    ) -> Result<(), Error> {
        let (bits, length) = (self.ring.bits(), pack::packed_len(part.elements, self.ring.bits()));
        for (words, unit) in share.chunks_exact(part.elements).zip(units) {
            pack::pack(words, bits, &mut unit.0[part.at..part.at + length])?;
        }
        Ok(())
    }

    /// A party's share of a stage, image by image.
    pub(super) fn load<'u>(
        &self,
        part: &Part,
        units: impl ExactSizeIterator<Item = &'u Shares>,
    ) -> Result<Vec<u64>, Error> {
        let (bits, length) = (self.ring.bits(), pack::packed_len(part.elements, self.ring.bits()));
        let mut out = vec![0; part.elements * units.len()];
        for (words, unit) in out.chunks_exact_mut(part.elements).zip(units) {
            pack::unpack(&unit.0[part.at..part.at + length], bits, words)?;
        }
        Ok(out)
    }
}

/// One party's shares of a unit, packed. No `Debug`; wiped when dropped.
pub(super) struct Shares(Zeroizing<Vec<u8>>);

impl Shares {
    pub(super) fn new(parts: &Parts) -> Self {
        Self(Zeroizing::new(vec![0; parts.bytes]))
    }
}

/// The first 16 bytes of a hash under a name of its own.
fn short(what: &str, parts: &[&[u8]]) -> Id {
    let mut hash = Sha256::new();
    for part in [what.as_bytes()].iter().chain(parts) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut out = [0; 16];
    out.copy_from_slice(&hash.finalize()[..16]);
    out
}

/// A file's bytes: what it is, its content, and a hash of both, so that what is damaged is noticed.
fn sealed(magic: [u8; 8], content: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let length = content.iter().map(|c| c.len()).sum::<usize>();
    let mut out = Zeroizing::new(Vec::with_capacity(8 + length + 32));
    out.extend_from_slice(&magic);
    content.iter().for_each(|c| out.extend_from_slice(c));
    let sum = Sha256::digest(out.as_slice());
    out.extend_from_slice(&sum);
    out
}

/// The content of a file of [`sealed`] bytes, which has so many; `None` when it has others, or is damaged.
fn unsealed(magic: [u8; 8], path: &Path, length: usize) -> std::io::Result<Option<Zeroizing<Vec<u8>>>> {
    use std::io::Read;
    let file = std::fs::File::open(path)?;
    // Compared before anything is allocated.
    if file.metadata()?.len() != (8 + length + 32) as u64 {
        return Ok(None);
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(8 + length + 32));
    (&file).take((8 + length + 32) as u64).read_to_end(&mut bytes)?;
    let whole = bytes.len() == 8 + length + 32
        && bytes[..8] == magic
        && bytes[8 + length..] == *Sha256::digest(&bytes[..8 + length]).as_slice();
    Ok(whole.then(|| Zeroizing::new(bytes[8..8 + length].to_vec())))
}

/// Removes a file so that it stays removed, also when the machine fails: whether it was there. Of several that try one alone removes it.
fn remove_durably(path: &Path) -> std::io::Result<bool> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        removed => removed?,
    }
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        std::fs::File::open(folder)?.sync_all()?;
    }
    Ok(true)
}
