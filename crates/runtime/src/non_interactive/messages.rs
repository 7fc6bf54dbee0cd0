//! Frames of a non-interactive session (`docs/non-interactive.md`, "The session") and their exact lengths.

use super::engine::{Engine, KeysNeeded};
use super::plan::{Link, NonInteractivePlan};
use crate::wire::HEADER;
use hushnet_ring::pack::packed_len;
use hushnet_rlwe::ckks::{Ciphertext, CkksParams, HEADER_BYTES};
use std::ops::Range;

/// Bytes of a frame of ciphertexts, about.
const FRAME_BYTES: usize = 2 << 20;
/// Level, parts, seeded flag, scale, bound, deviation.
const FIELD_BYTES: usize = 28;

/// Which key a Setup frame carries: its tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Relin = 0,
    Public = 1,
    Galois = 2,
}

fn poly_bytes(params: &CkksParams, range: Range<usize>) -> usize {
    let moduli = params.basis().moduli();
    range.map(|i| packed_len(params.ring_degree(), 64 - moduli[i].value().leading_zeros())).sum()
}

/// Bytes of a switching key: a seed, and a polynomial over all primes a digit.
fn switching_bytes(params: &CkksParams) -> usize {
    let digits = params.max_level().get().div_ceil(params.max_level().get().div_ceil(params.spec().digits));
    32 + digits * poly_bytes(params, params.extended_range(params.max_level()))
}

/// Keys in the order in which they travel, with their exact bytes.
pub(super) fn keys(params: &CkksParams, needed: &KeysNeeded) -> Vec<(KeyKind, usize)> {
    let mut out = Vec::new();
    if needed.relin {
        out.push((KeyKind::Relin, HEADER_BYTES + switching_bytes(params)));
    }
    if needed.public {
        let one = poly_bytes(params, params.data_range(params.max_level()));
        out.push((KeyKind::Public, HEADER_BYTES + 32 + one));
    }
    if !needed.galois.is_empty() {
        let count = needed
            .galois
            .iter()
            .map(|g| g.exponent(params))
            .filter(|e| *e != 1)
            .collect::<std::collections::BTreeSet<_>>()
            .len();
        out.push((KeyKind::Galois, HEADER_BYTES + 4 + count * (4 + switching_bytes(params))));
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
    pub(super) fn new(params: &CkksParams, engine: &dyn Engine, link: &Link, fresh: bool) -> Self {
        let start = params.data_range(params.max_level()).start;
        let one = poly_bytes(params, start..start + link.level);
        let bytes = HEADER_BYTES + FIELD_BYTES + if fresh { 32 + one } else { link.parts * one };
        // An even number, since the batch engine encodes two at a time.
        let per_frame = (FRAME_BYTES / bytes).max(2) & !1;
        Self { count: engine.ciphertexts(link), per_frame, bytes }
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
pub(super) fn largest_frame(plan: &NonInteractivePlan, engine: &dyn Engine) -> usize {
    let params = plan.params();
    let up = plan.uploads().iter().map(|l| Parcel::new(params, engine, l, true));
    let down = plan.downloads().iter().map(|l| Parcel::new(params, engine, l, false));
    let parcels = up.chain(down).map(|p| p.payload(0)).max().unwrap_or(0);
    let keys = keys(params, &engine.keys()).iter().map(|k| k.1).max().unwrap_or(0);
    HEADER + parcels.max(keys).max(1 << 12)
}

/// Exact bytes of a session that serves blocks of so many images, frame headers included: keys once, then up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    /// Evaluation keys.
    pub keys: u64,
    /// Ciphertexts up, for a block.
    pub up: u64,
    /// Ciphertexts down, for a block.
    pub down: u64,
}

/// Exact bytes, from the plan alone.
#[must_use]
pub fn predict(plan: &NonInteractivePlan) -> Traffic {
    let engine = super::engine::BatchEngine::new(plan);
    let params = plan.params();
    let sum = |links: &[Link], fresh: bool| -> u64 {
        links.iter().map(|l| Parcel::new(params, &engine, l, fresh).total()).sum()
    };
    Traffic {
        keys: keys(params, &engine.keys()).iter().map(|k| (k.1 + HEADER) as u64).sum(),
        up: sum(plan.uploads(), true),
        down: sum(plan.downloads(), false),
    }
}

/// A ciphertext as it must be: of a link, seeded or not.
pub(super) fn fits(c: &Ciphertext, link: &Link, fresh: bool) -> bool {
    c.level().get() == link.level
        && c.parts().len() == if fresh { 2 } else { link.parts }
        && c.is_seeded() == fresh
        && c.scale().to_bits() == link.scale.to_bits()
}
