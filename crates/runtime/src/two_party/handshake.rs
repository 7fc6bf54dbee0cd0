//! What the parties tell each other before the first image: which plan, which OT extension.
//!
//! `hello` (client, 40 bytes): magic `HN2P`, version, OT kind, two zeros, SHA-256 of the public plan's JSON. Then the set-up of
//! the OT session, then the keys and set-ups of all linear methods in the order of [`super::methods::METHODS`]. Then for every group of images `begin`
//! (client): their number as u32, and a fresh 32-byte seed for each; 0 images end the session.

use super::plan::TwoPartyPlan;
use crate::error::{Error, ProtocolError};
use hushnet_mpc::{Channel, OtKind, SilentSize};
use sha2::{Digest, Sha256};

const MAGIC: [u8; 4] = *b"HN2P";
/// Raised when the same plan would be computed with other bytes: 4 since layouts of polynomials are chosen by their cost,
/// 5 since OTs are ensured in front of ciphertexts and wrap-arounds are products of the client's elements.
const VERSION: u8 = 7;
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

pub(super) fn begin_len(images: usize) -> usize {
    4 + 32 * images
}

pub(super) fn send_begin(channel: &mut dyn Channel, seeds: &[[u8; 32]]) -> Result<(), Error> {
    channel.send(&(seeds.len() as u32).to_le_bytes())?;
    seeds.iter().try_for_each(|s| channel.send(s))?;
    Ok(channel.flush()?)
}

/// Seeds of the images of the next group; empty at the end of the session.
pub(super) fn recv_begin(channel: &mut dyn Channel, most: usize) -> Result<Vec<[u8; 32]>, Error> {
    let mut count = [0; 4];
    channel.recv(&mut count)?;
    let count = u32::from_le_bytes(count) as usize;
    if count > most {
        let detail = format!("{count} images at once; this server takes up to {most} of this network");
        return Err(ProtocolError::Message { kind: "group of images", detail }.into());
    }
    let mut seeds = vec![[0; 32]; count];
    seeds.iter_mut().try_for_each(|s| channel.recv(s))?;
    Ok(seeds)
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
