//! What the parties tell each other before the first image: which plan, which OT extension.
//!
//! `hello` (client, 40 bytes): magic `HN2P`, version, OT kind, two zeros, SHA-256 of the public plan's JSON. Then the set-up of
//! the OT session, then the keys and set-ups of all linear methods in the order of [`super::methods::METHODS`]. Then for every group `begin`
//! (client): a number of 24 bits and a kind. Kind 0, images: a fresh 32-byte seed for each; 0 images end the session. Kind 1, units to prepare, and kind
//! 2, images with prepared units: the token that the units belong to (16 bytes), and for each its name (16 bytes) and a seed.

use super::plan::TwoPartyPlan;
use super::units::{Claim, Named};
use crate::error::{Error, ProtocolError, UnitError};
use hushnet_mpc::{Channel, OtKind, SilentSize};
use sha2::{Digest, Sha256};

const MAGIC: [u8; 4] = *b"HN2P";
/// Raised when the same plan would be computed with other bytes: 4 since layouts of polynomials are chosen by their cost,
/// 5 since OTs are ensured in front of ciphertexts and wrap-arounds are products of the client's elements, 8 since `begin` has a kind, 9 since
/// selections begin beside comparisons and each party's OTs travel with its own message of a layer, 10 since both parties multiply in products of
/// matrices, 12 since channels may stand further apart than their pixels and units have pads, 13 since carries go through digits.
const VERSION: u8 = 13;
pub(super) const HELLO: usize = 40;
/// Position: the number in `hello`.
pub(super) const KINDS: [OtKind; 6] = [
    OtKind::Iknp,
    OtKind::SoftSpoken,
    OtKind::Silent(SilentSize::Tiny),
    OtKind::Silent(SilentSize::Small),
    OtKind::Silent(SilentSize::Medium),
    OtKind::Silent(SilentSize::Large),
];

/// Name of an OT kind in traces.
pub(super) fn kind_name(kind: OtKind) -> &'static str {
    match kind {
        OtKind::Iknp => "iknp",
        OtKind::SoftSpoken => "softspoken",
        OtKind::Silent(SilentSize::Tiny) => "silent-tiny",
        OtKind::Silent(SilentSize::Small) => "silent-small",
        OtKind::Silent(SilentSize::Medium) => "silent-medium",
        OtKind::Silent(SilentSize::Large) => "silent-large",
    }
}

pub(super) fn digest(public_json: &str) -> [u8; 32] {
    Sha256::digest(public_json.as_bytes()).into()
}

pub(super) fn send_hello(channel: &mut dyn Channel, kind: OtKind, digest: &[u8; 32]) -> Result<(), Error> {
    let mut hello = [0; HELLO];
    hello[..4].copy_from_slice(&MAGIC);
    hello[4] = VERSION;
    hello[5] = KINDS.iter().position(|k| *k == kind).unwrap_or(0) as u8;
    hello[8..].copy_from_slice(digest);
    channel.send(&hello)?;
    Ok(channel.flush()?)
}

pub(super) fn recv_hello(channel: &mut dyn Channel, digest: &[u8; 32]) -> Result<OtKind, Error> {
    let mut hello = [0; HELLO];
    channel.recv(&mut hello)?;
    if hello[..4] != MAGIC {
        return Err(ProtocolError::NotAFrame("no two-party greeting").into());
    }
    if hello[4] != VERSION {
        return Err(ProtocolError::Version { got: u32::from(hello[4]), ours: u32::from(VERSION) }.into());
    }
    if hello[8..] != *digest {
        let detail = "the client runs another plan than this server".into();
        return Err(ProtocolError::Message { kind: "two-party greeting", detail }.into());
    }
    let detail = format!("no OT extension {}", hello[5]);
    KINDS
        .get(usize::from(hello[5]))
        .copied()
        .ok_or_else(|| ProtocolError::Message { kind: "two-party greeting", detail }.into())
}

/// What a group of a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Inferences as they are.
    Infer,
    /// Prepares units.
    Prepare,
    /// Inferences that spend units.
    Prepared,
}

/// What a client announces.
pub(super) enum Begin {
    /// Inferences: a seed for each.
    Infer(Vec<[u8; 32]>),
    /// Units to prepare.
    Prepare(Claim),
    /// Inferences with these units.
    Prepared(Claim),
    /// The session is over.
    End,
}

impl Begin {
    /// What will be done.
    pub(super) fn task(&self) -> Task {
        match self {
            Self::Prepare(_) => Task::Prepare,
            Self::Prepared(_) => Task::Prepared,
            Self::Infer(_) | Self::End => Task::Infer,
        }
    }

    /// Seeds of the images, or of the units.
    pub(super) fn seeds(&self) -> Vec<[u8; 32]> {
        match self {
            Self::Infer(seeds) => seeds.clone(),
            Self::Prepare(claim) | Self::Prepared(claim) => claim.units.iter().map(|u| u.seed).collect(),
            Self::End => Vec::new(),
        }
    }
}

pub(super) fn begin_len(task: Task, images: usize) -> usize {
    match task {
        Task::Infer => 4 + 32 * images,
        Task::Prepare | Task::Prepared => 4 + 16 + 48 * images,
    }
}

pub(super) fn send_begin(channel: &mut dyn Channel, begin: &Begin) -> Result<(), Error> {
    let (kind, count) = match begin {
        Begin::End => (0, 0),
        Begin::Infer(seeds) => (0, seeds.len()),
        Begin::Prepare(claim) => (1, claim.units.len()),
        Begin::Prepared(claim) => (2, claim.units.len()),
    };
    channel.send(&((count as u32) | kind << 24).to_le_bytes())?;
    match begin {
        Begin::End => {}
        Begin::Infer(seeds) => seeds.iter().try_for_each(|s| channel.send(s))?,
        Begin::Prepare(claim) | Begin::Prepared(claim) => {
            channel.send(&claim.token)?;
            for unit in &claim.units {
                channel.send(&unit.id)?;
                channel.send(&unit.seed)?;
            }
        }
    }
    Ok(channel.flush()?)
}

/// What the client announces next; up to `most` images, and up to `units` units: `None` where this server keeps none.
pub(super) fn recv_begin(
    channel: &mut dyn Channel,
    most: usize,
    units: Option<usize>,
) -> Result<Begin, Error> {
    let mut head = [0; 4];
    channel.recv(&mut head)?;
    let (kind, count) = (head[3], (u32::from_le_bytes(head) & 0xff_ffff) as usize);
    let limit = match kind {
        0 => most,
        1 | 2 => units.ok_or(UnitError::NotKept)?,
        _ => {
            let detail = format!("no kind {kind} of group");
            return Err(ProtocolError::Message { kind: "group of images", detail }.into());
        }
    };
    if count > limit || kind > 0 && count == 0 {
        let detail = format!("{count} images at once; this server takes up to {limit} of this network");
        return Err(ProtocolError::Message { kind: "group of images", detail }.into());
    }
    if kind == 0 {
        let mut seeds = vec![[0; 32]; count];
        seeds.iter_mut().try_for_each(|s| channel.recv(s))?;
        return Ok(if count == 0 { Begin::End } else { Begin::Infer(seeds) });
    }
    let mut claim = Claim { token: [0; 16], units: vec![Named { id: [0; 16], seed: [0; 32] }; count] };
    channel.recv(&mut claim.token)?;
    for unit in &mut claim.units {
        channel.recv(&mut unit.id)?;
        channel.recv(&mut unit.seed)?;
    }
    Ok(if kind == 1 { Begin::Prepare(claim) } else { Begin::Prepared(claim) })
}

/// Sends the public plan ahead of a session, where nothing else carries it: length as u64, then the file.
pub(super) fn send_plan(channel: &mut dyn Channel, file: &[u8]) -> Result<(), Error> {
    channel.send(&(file.len() as u64).to_le_bytes())?;
    channel.send(file)?;
    Ok(channel.flush()?)
}

pub(super) fn recv_plan(channel: &mut dyn Channel, limit: u64) -> Result<Vec<u8>, Error> {
    let mut length = [0; 8];
    channel.recv(&mut length)?;
    let got = u64::from_le_bytes(length);
    if got > limit {
        return Err(ProtocolError::Oversize { got, limit }.into());
    }
    let mut file = vec![0; got as usize];
    channel.recv(&mut file)?;
    Ok(file)
}

/// Both parties hold the same public plan.
pub(super) fn plan_digest(plan: &TwoPartyPlan) -> Result<[u8; 32], Error> {
    Ok(digest(&plan.public_json()?))
}
