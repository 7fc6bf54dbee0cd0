//! Linear stages of the methods `gala` and `gazelle`: one image packed in the slots of BFV ciphertexts, shares modulo a prime p.
//!
//! A stage is three steps, each exact: shares modulo 2^l become shares modulo p (`to_odd`), the layer runs on them
//! ([`hushnet_layers::slots`]; every answer re-randomised, masked in all slots, flooded), shares modulo p become shares modulo 2^l. Planned bounds keep
//! away from the moduli, so both conversions need no comparison but where an input fills its ring. All stages of a plan share p, the smallest
//! prime with slots that holds four times their largest result; parameters follow from geometry, method and p. Stages of equal
//! parameters share the client's keys: a public key and the Galois keys of all permutations that any of them needs.
//!
//! *What is seen.* Conversions are one correlated OT with a corrected payload, uniform to its receiver ([`hushnet_mpc`]). Requests are fresh
//! encryptions. An answer is simulated from the client's share alone: shares modulo p are uniform, and `Evaluator::answer` hides c1 and the noise.

pub(super) mod client;
pub(super) mod server;

use super::plan::{Kind, Method, TwoPartyPlan};
use super::reach;
use super::{layer_error, peer_words_of};
use crate::compute::Compute;
use crate::error::Error;
use crate::plan::{GeometrySpec, PlanError};
use hushnet_layers::slots::{self, SlotClient, SlotError};
use hushnet_mpc::garble::OddModulus;
use hushnet_mpc::{self as mpc, CostModel, Party, Ring, Session};
use hushnet_rlwe::bfv::{plain_modulus, BfvError, BfvParams, Turn};
use std::collections::BTreeSet;

/// Widths of p: from the least that has slots at every planned ring degree and looks uniform in packed words, to the widest of BFV.
const LEAST_BITS: u32 = 20;
const MOST_BITS: u32 = hushnet_rlwe::bfv::MAX_PLAIN_BITS;

/// The slot-packed stages of a plan, as both parties derive them from its public part.
pub(super) struct Layers {
    /// `None` when the plan has none.
    odd: Option<OddModulus>,
    ring: Ring,
    groups: Vec<Group>,
    stages: Vec<Option<Places>>,
}

/// Stages of equal parameters.
struct Group {
    params: BfvParams,
    turns: BTreeSet<Turn>,
}

struct Places {
    group: usize,
    client: SlotClient,
    /// Whether the input keeps within a quarter of its ring, so that its carry needs no comparison.
    small: bool,
}

/// One stage of a group of images at one party.
pub(super) struct Job<'a> {
    pub index: usize,
    /// The party's share of the input tensors, image by image.
    pub share: &'a [u64],
    pub images: usize,
    pub compute: &'a Compute,
}

/// The prime for results below 2^`reach`: two bits more, for the sign and so that a conversion needs no comparison.
fn prime_for(reach: u32) -> Option<OddModulus> {
    (LEAST_BITS.max(reach.saturating_add(2))..=MOST_BITS)
        .find_map(|bits| OddModulus::new(plain_modulus(bits).ok()?).ok())
}

/// Bits of the prime that holds slot-packed results below 2^`reach`, and the largest absolute value that it converts: a little less than
/// 2^`reach`. `None` when there is none.
#[must_use]
pub fn slot_plain(reach: u32) -> Option<(u32, u64)> {
    prime_for(reach).map(|p| (p.bits(), mpc::small_odd(p)))
}

fn method_of(method: Method) -> Option<slots::Method> {
    match method {
        Method::Gala => Some(slots::Method::Gala),
        Method::Gazelle => Some(slots::Method::Gazelle),
        Method::Cheetah | Method::Batch | Method::RotationFree | Method::ConvFhe => None,
    }
}

/// That a stage has parameters, and with an exact bound that its prime holds the results. Stages with larger results may need wider ones
/// for all: [`Layers::new`] refuses what then has none.
pub(super) fn check(
    method: Method,
    geometry: &GeometrySpec,
    (reach, bound): (u32, Option<u64>),
) -> Result<(), String> {
    let Some(how) = method_of(method) else { return Ok(()) };
    let p = prime_for(reach).ok_or_else(|| {
        format!("results below 2^{reach} need a prime of more than {MOST_BITS} bits; use fewer weight_bits or activation_bits, or another method")
    })?;
    let (most, top) = (mpc::small_odd(p), bound.map(reach::with_errors));
    if let Some(top) = top.filter(|&top| top > most) {
        return Err(format!(
            "results reach {top}, units of errors included, but the prime of reach_bits {reach} converts values up to {most}; state one bit more"
        ));
    }
    let geometry = geometry.checked().map_err(|e| e.to_string())?;
    slots::choose(&geometry, how, p.value()).map(drop).map_err(|e| e.to_string())
}

fn internal(detail: &str) -> Error {
    Error::Internal(detail.into())
}

fn slot_error(e: SlotError) -> Error {
    match e {
        SlotError::Layer(e) => layer_error(e),
        SlotError::Bfv(e @ BfvError::Damaged(_)) => peer_words_of(&e),
        other => internal(&other.to_string()),
    }
}

fn key_error(e: BfvError) -> Error {
    slot_error(e.into())
}

impl Layers {
    pub(super) fn new(plan: &TwoPartyPlan) -> Result<Self, Error> {
        let reach_of = |t: Option<usize>| t.and_then(|t| plan.reach(t)).unwrap_or(u32::MAX);
        let slotted = || {
            plan.stages().iter().filter_map(|s| match &s.kind {
                Kind::Linear(l) => method_of(l.method).map(|how| (s, l, how)),
                _ => None,
            })
        };
        let ring = plan.ring();
        let none = plan.stages().iter().map(|_| None).collect();
        let Some(largest) = slotted().map(|(s, ..)| reach_of(s.output)).max() else {
            return Ok(Self { odd: None, ring, groups: Vec::new(), stages: none });
        };
        let refused = |name: &str, detail: String| PlanError::Linear { stage: name.into(), detail };
        let odd = prime_for(largest).ok_or_else(|| refused("all", "no prime holds their results".into()))?;
        let (mut groups, mut stages): (Vec<Group>, Vec<Option<Places>>) = (Vec::new(), Vec::new());
        for stage in plan.stages() {
            let Kind::Linear(l) = &stage.kind else {
                stages.push(None);
                continue;
            };
            let Some(how) = method_of(l.method) else {
                stages.push(None);
                continue;
            };
            let geometry = l.geometry.checked()?;
            let fail = |e: SlotError| refused(&stage.name, e.to_string());
            let chosen = slots::choose(&geometry, how, odd.value()).map_err(fail)?;
            let group = groups.iter().position(|g| g.params == chosen).unwrap_or_else(|| {
                groups.push(Group { params: chosen, turns: BTreeSet::new() });
                groups.len() - 1
            });
            let client = SlotClient::new(&groups[group].params, &geometry, how).map_err(fail)?;
            groups[group].turns.extend(client.turns());
            let small = reach_of(stage.inputs.first().copied()) <= ring.bits() - 2;
            stages.push(Some(Places { group, client, small }));
        }
        // Where one stage permutes and another of the same group does not, parameters are equal only if both can.
        Ok(Self { odd: Some(odd), ring, groups, stages })
    }

    fn stage(&self, index: usize) -> Result<(&Places, OddModulus), Error> {
        self.stages[index].as_ref().zip(self.odd).ok_or_else(|| internal("a slot-packed stage has no places"))
    }

    /// Tiles of a stage; 0 for stages of other methods.
    pub(super) fn tiles(&self, index: usize) -> usize {
        self.stages[index].as_ref().map_or(0, |s| s.client.tiles())
    }

    /// Tiles of every stage, with the bytes of a request.
    pub(super) fn requests(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.stages.iter().flatten().map(|s| (s.client.tiles(), self.request_len(s)))
    }

    fn request_len(&self, s: &Places) -> usize {
        s.client.layout().inputs() * self.groups[s.group].params.request_len()
    }

    fn answer_len(&self, s: &Places) -> usize {
        s.client.layout().outputs() * self.groups[s.group].params.answer_len()
    }

    /// Bytes of ciphertexts that a server works on at once, and of the keys that it keeps for a session.
    pub(super) fn working_bytes(&self) -> usize {
        let keys = |g: &Group| 2 * (g.params.request_len() + g.params.galois_keys_len(g.turns.len()));
        let ciphers = |s: &Places| {
            let layout = s.client.layout();
            let held =
                layout.inputs() + layout.outputs() + layout.counts().hst_perm as usize / layout.tiles();
            self.groups[s.group].params.cipher_bytes() * held
        };
        self.groups.iter().map(keys).sum::<usize>()
            + self.stages.iter().flatten().map(ciphers).max().unwrap_or(0)
    }

    /// Bytes of a request, an answer and their plaintexts.
    pub(super) fn held_by_client(&self, index: usize) -> u64 {
        let held = |s: &Places| 2 * (self.request_len(s) + self.answer_len(s)) as u64;
        self.stages[index].as_ref().map_or(0, held)
    }

    /// Bytes of the keys that the client sends.
    pub(super) fn keys_len(&self) -> usize {
        self.groups.iter().map(|g| g.params.request_len() + g.params.galois_keys_len(g.turns.len())).sum()
    }

    /// Traffic of a stage: conversion, all requests at once, answers tile by tile, conversion.
    pub(super) fn cost(&self, m: &mut CostModel, index: usize, images: usize) {
        let Some((stage, p)) = self.stages[index].as_ref().zip(self.odd) else { return };
        let layout = stage.client.layout();
        if stage.small {
            mpc::to_odd_small_cost(m, images * layout.input_len(), p);
        } else {
            mpc::to_odd_cost(m, images * layout.input_len(), self.ring, p);
        }
        let tiles = || 0..images * layout.tiles();
        for _ in tiles() {
            m.depart_late(Party::One, self.request_len(stage) as u64);
        }
        for _ in tiles() {
            m.arrive_late(Party::Zero);
            m.depart_late(Party::Zero, self.answer_len(stage) as u64);
        }
        for _ in tiles() {
            m.arrive_late(Party::One);
        }
        mpc::to_ring_small_cost(m, images * layout.output_len(), self.ring);
    }

    fn to_odd(
        &self,
        session: &mut Session,
        stage: &Places,
        p: OddModulus,
        x: &[u64],
    ) -> Result<Vec<u64>, Error> {
        Ok(if stage.small {
            mpc::to_odd_small(session, x, self.ring, p)?
        } else {
            mpc::to_odd(session, x, self.ring, p)?
        })
    }
}
