//! Frames of a non-interactive session (`docs/non-interactive.md`, "The session") and their exact lengths.

use super::engine::KeysNeeded;
use super::plan::{Link, NonInteractivePlan};
use crate::plan::spec::StageSpec;
use crate::plan::{Cost, Sent};
use crate::wire::HEADER;
use hushnet_ring::pack::packed_len;
use hushnet_rlwe::ckks::{Ciphertext, CkksParams, Galois, Level, HEADER_BYTES};
use std::ops::Range;

/// Bytes of a frame of ciphertexts, about.
const FRAME_BYTES: usize = 2 << 20;
/// Level, parts, seeded flag, scale, bound, deviation.
const FIELD_BYTES: usize = 28;

/// Which key a Setup frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Relin,
    Public,
    /// One automorphism, up to a level.
    Galois(Galois, Level),
    /// The pair of the ephemeral secret of bootstraps.
    Encapsulation,
}

/// A Setup frame: its tile is 0 for relinearisation, 1 for the public key, 2, 3, .. for rotations and, behind them, the pair of bootstraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyFrame {
    pub(super) kind: KeyKind,
    pub(super) tile: u32,
    /// Payload.
    pub(super) bytes: usize,
}

fn poly_bytes(params: &CkksParams, range: Range<usize>) -> usize {
    let moduli = params.basis().moduli();
    range.map(|i| packed_len(params.ring_degree(), 64 - moduli[i].value().leading_zeros())).sum()
}

/// Keys in the order in which they travel, with their exact bytes: one frame each, so that none is larger than one key.
pub(super) fn keys(params: &CkksParams, needed: &KeysNeeded) -> Vec<KeyFrame> {
    let mut out = Vec::new();
    if needed.relin {
        out.push(KeyFrame { kind: KeyKind::Relin, tile: 0, bytes: params.relin_key_bytes() });
    }
    if needed.public {
        out.push(KeyFrame { kind: KeyKind::Public, tile: 1, bytes: params.public_key_bytes() });
    }
    for (i, (galois, level)) in needed.galois.iter().enumerate() {
        let bytes = params.galois_keys_bytes(&[*level]);
        out.push(KeyFrame { kind: KeyKind::Galois(*galois, *level), tile: 2 + i as u32, bytes });
    }
    if let Some(bytes) = needed.encapsulation {
        let tile = 2 + needed.galois.len() as u32;
        out.push(KeyFrame { kind: KeyKind::Encapsulation, tile, bytes });
    }
    out
}

/// How the ciphertexts of a tensor travel: some to a frame.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    /// Ciphertexts in all.
    pub(super) count: usize,
    /// Ciphertexts of a frame (the last may have fewer).
    pub(super) per_frame: usize,
    /// Bytes of a ciphertext.
    pub(super) bytes: usize,
}

impl Parcel {
    pub(super) fn new(params: &CkksParams, link: &Link, fresh: bool) -> Self {
        let start = params.data_range(params.max_level()).start;
        let one = poly_bytes(params, start..start + link.level);
        let bytes = HEADER_BYTES + FIELD_BYTES + if fresh { 32 + one } else { link.parts * one };
        // An even number, since engines encode two at a time.
        let per_frame = (FRAME_BYTES / bytes).max(2) & !1;
        Self { count: link.ciphertexts, per_frame, bytes }
    }

    pub(super) fn frames(&self) -> usize {
        self.count.div_ceil(self.per_frame)
    }

    pub(super) fn range(&self, frame: usize) -> Range<usize> {
        frame * self.per_frame..((frame + 1) * self.per_frame).min(self.count)
    }

    /// Payload of a frame.
    pub(super) fn payload(&self, frame: usize) -> usize {
        self.range(frame).len() * self.bytes
    }

    /// Bytes of all frames with their headers.
    pub(super) fn total(&self) -> u64 {
        (self.count * self.bytes + self.frames() * HEADER) as u64
    }
}

/// Bytes of the largest frame of a session after the Plan, header included.
pub(super) fn largest_frame(plan: &NonInteractivePlan) -> usize {
    let params = plan.params();
    let up = plan.uploads().iter().map(|l| Parcel::new(params, l, true));
    let down = plan.downloads().iter().map(|l| Parcel::new(params, l, false));
    let parcels = up.chain(down).map(|p| p.payload(0)).max().unwrap_or(0);
    let keys = keys(params, &KeysNeeded::of(plan)).iter().map(|k| k.bytes).max().unwrap_or(0);
    HEADER + parcels.max(keys).max(1 << 12)
}

/// Exact bytes of a session that serves blocks of so many images, frame headers included: keys once, then up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SessionBytes {
    /// Evaluation keys.
    pub keys: u64,
    /// Ciphertexts up, for a block.
    pub up: u64,
    /// Ciphertexts down, for a block.
    pub down: u64,
}

/// Exact bytes, from the plan alone.
#[must_use]
pub fn predict(plan: &NonInteractivePlan) -> SessionBytes {
    let params = plan.params();
    let sum = |links: &[Link], fresh: bool| -> u64 {
        links.iter().map(|l| Parcel::new(params, l, fresh).total()).sum()
    };
    SessionBytes {
        keys: keys(params, &KeysNeeded::of(plan)).iter().map(|k| (k.bytes + HEADER) as u64).sum(),
        up: sum(plan.uploads(), true),
        down: sum(plan.downloads(), false),
    }
}

/// Exact bytes of a session that runs so many images, stage by stage.
#[must_use]
pub fn cost(plan: &NonInteractivePlan, images: usize) -> Cost {
    let (params, blocks) = (plan.params(), images.div_ceil(plan.block_images().max(1)));
    let SessionBytes { keys, up, down } = predict(plan);
    let of = |stage: &StageSpec| -> Sent {
        let sum = |links: &[Link], fresh: bool| -> u64 {
            let own = links.iter().filter(|l| l.stage == stage.name);
            own.map(|l| Parcel::new(params, l, fresh).total()).sum()
        };
        Sent { bytes_up: sum(plan.uploads(), true), bytes_down: sum(plan.downloads(), false), rounds: 0 }
    };
    let stages = plan.spec().stages.iter().map(|s| of(s).times(blocks as u64)).collect::<Vec<_>>();
    Cost {
        images,
        blocks,
        setup: Sent { bytes_up: keys, ..Sent::default() },
        stage_setups: vec![Sent::default(); stages.len()],
        stages,
        total: Sent { bytes_up: up, bytes_down: down, rounds: 1 }.times(blocks as u64),
    }
}

/// A ciphertext as it must be: of a link, seeded or not, with the bookkeeping of the plan. A peer's own bound would enter the checks of every
/// operation that follows.
pub(super) fn fits(c: &Ciphertext, link: &Link, fresh: bool) -> bool {
    c.level().get() == link.level
        && c.parts().len() == if fresh { 2 } else { link.parts }
        && c.is_seeded() == fresh
        && c.scale().to_bits() == link.scale.to_bits()
        && c.bound().to_bits() == link.told.to_bits()
}
