//! Inferences that are prepared before their input is known (`docs/two-party.md`, "Prepared inferences").
//!
//! A *unit* prepares one image: its linear layers, and the pads of its comparisons, selections and truncations ([`KeptPads`]). For every tensor that a
//! layer reads the client draws r, uniform modulo 2^l, and the layer's ordinary protocol runs on it: the client keeps its share u of W r + bias, the
//! server its share s. With the image the client sends d = x - r of its share x, and the server computes W (x + d) + s of its own share x: an integer
//! product, no ciphertext travels. r is used for one image and never again, so d is uniform and independent of all else that the server sees. Pads are
//! made of OTs when all shares are there, and drawn once, by the protocols of that image.
//!
//! Where that must not fail is here: a unit is spent, and durably so, before anything of it leaves a party ([`client`], [`server`]).

mod answer;
pub mod client;
pub mod server;

pub(super) use answer::{working_bytes, WordModel};

use super::cost;
use super::methods::Layers;
use super::plan::{Kind, Stage, TwoPartyPlan};
use crate::error::Error;
use hushnet_mpc::{KeptPads, PadDemand, Party, Ring};
use hushnet_ring::pack;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;
use zeroize::Zeroizing;

/// End of the names of whole files, and of those that are being written.
const SUFFIX: &str = ".unit";
const PART: &str = ".part";
/// Hexadecimal digits of the parts of a file's name.
const NAME: usize = 32;
/// Units that one exchange prepares, or one group of images spends, at most.
pub const MOST: usize = 64;

/// Bytes of the larger halves of such a group at most, where it has more than one unit.
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

    /// Bytes of one party's shares of a unit.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes a party's share of a stage, image by image, into the shares of the units.
    pub(super) fn store<'u>(
        &self,
        part: &Part,
        share: &[u64],
        units: impl Iterator<Item = &'u mut Half>,
    ) -> Result<(), Error> {
        let (bits, length) = (self.ring.bits(), pack::packed_len(part.elements, self.ring.bits()));
        for (words, unit) in share.chunks_exact(part.elements).zip(units) {
            pack::pack(words, bits, &mut unit.shares[part.at..part.at + length])?;
        }
        Ok(())
    }

    /// A party's share of a stage, image by image.
    pub(super) fn load<'u>(
        &self,
        part: &Part,
        units: impl ExactSizeIterator<Item = &'u Half>,
    ) -> Result<Vec<u64>, Error> {
        let (bits, length) = (self.ring.bits(), pack::packed_len(part.elements, self.ring.bits()));
        let mut out = vec![0; part.elements * units.len()];
        for (words, unit) in out.chunks_exact_mut(part.elements).zip(units) {
            pack::unpack(&unit.shares[part.at..part.at + length], bits, words)?;
        }
        Ok(out)
    }
}

/// What a unit of a plan has; follows from its public part.
pub(super) struct Contents {
    /// The linear stages.
    pub(super) parts: Parts,
    /// Of all other stages.
    pub(super) pads: PadDemand,
}

impl Contents {
    pub(super) fn new(plan: &TwoPartyPlan, layers: &Layers) -> Self {
        Self { parts: Parts::new(plan), pads: cost::pads(plan, layers) }
    }

    /// Bytes of a party's shares, and of its pads.
    fn lengths(&self, party: Party) -> [usize; 2] {
        [self.parts.bytes(), usize::try_from(self.pads.bytes(party)).unwrap_or(usize::MAX)]
    }

    /// Bytes of a party's half of a unit; none where there is nothing to prepare.
    pub(super) fn bytes(&self, party: Party) -> u64 {
        self.lengths(party).iter().fold(0, |sum, n| sum.saturating_add(*n as u64))
    }

    /// Units that are prepared, or spent, together at most: each party holds its halves of all of them.
    pub(super) fn most(&self) -> usize {
        let larger = self.bytes(Party::Zero).max(self.bytes(Party::One)).max(1);
        ((GROUP_BYTES as u64 / larger) as usize).clamp(1, MOST)
    }
}

/// One party's half of a unit: its shares, packed, and its pads. No `Debug`; wiped when dropped.
pub(super) struct Half {
    shares: Zeroizing<Vec<u8>>,
    /// Made when all shares are there; given to the session that spends the unit.
    pub(super) pads: KeptPads,
}

impl Half {
    /// Room for the shares.
    pub(super) fn new(parts: &Parts) -> Self {
        Self { shares: Zeroizing::new(vec![0; parts.bytes]), pads: KeptPads::default() }
    }

    fn read([shares, mut pads]: [Zeroizing<Vec<u8>>; 2]) -> Self {
        Self { shares, pads: KeptPads::from_bytes(std::mem::take(&mut *pads)) }
    }

    /// As a file has it.
    fn content(&self) -> [&[u8]; 2] {
        [&self.shares, self.pads.bytes()]
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

/// Bytes that are read and hashed at a time.
const PIECE: usize = 1 << 18;

/// The content of a file of [`sealed`] bytes, which has parts of these lengths; `None` when it has others, or is damaged.
fn unsealed<const N: usize>(
    magic: [u8; 8],
    path: &Path,
    lengths: [usize; N],
) -> std::io::Result<Option<[Zeroizing<Vec<u8>>; N]>> {
    let mut file = std::fs::File::open(path)?;
    // Compared before anything is allocated.
    let length = lengths.iter().fold(8 + 32, |sum: u64, n| sum.saturating_add(*n as u64));
    if file.metadata()?.len() != length {
        return Ok(None);
    }
    let mut content = lengths.map(|n| Zeroizing::new(vec![0; n]));
    let (mut head, mut sum) = ([0; 8], [0; 32]);
    let mut hash = Sha256::new();
    let mut read = || {
        file.read_exact(&mut head)?;
        hash.update(head);
        for piece in content.iter_mut().flat_map(|part| part.chunks_mut(PIECE)) {
            file.read_exact(piece)?;
            hash.update(piece);
        }
        file.read_exact(&mut sum)
    };
    match read() {
        // Cut meanwhile.
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        done => done?,
    }
    Ok((head == magic && sum == *hash.finalize().as_slice()).then_some(content))
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
