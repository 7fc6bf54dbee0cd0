//! The slot methods: one image packed in the slots of BFV ciphertexts, shares modulo a prime p.
//!
//! A stage is three steps, each exact: shares modulo 2^l become shares modulo p (`to_odd`), the layer runs on them
//! ([`hushnet_layers::slots`]; every answer re-randomised, masked in all slots, flooded), shares modulo p become shares modulo 2^l. Planned bounds keep
//! away from the moduli, so both conversions need no comparison but where an input fills its ring. All stages of a plan share p, the smallest
//! prime with slots that holds four times their largest result; parameters follow from geometry, method and p. Stages of equal
//! parameters share the client's keys: a public key and the Galois keys of all permutations that any of them needs.
//!
//! A method of this family is a row of the registry whose name [`slots::Method`] knows: nothing here differs between them.
//!
//! *What is seen.* Conversions are one correlated OT with a corrected payload, uniform to its receiver ([`hushnet_mpc`]). Requests are fresh
//! encryptions. An answer is simulated from the client's share alone: shares modulo p are uniform, and `Evaluator::answer` hides c1 and the noise.

mod client;
mod server;

use super::tiles::{self, Tiled};
use super::{
    internal, weight_count, ClientHalf, Keeping, LinearMethod, Opening, Parameters, Placed, Places,
    Preparing, ServerHalf, Shape, Stages, Wanted,
};
use crate::error::Error;
use crate::plan::PlanError;
use crate::two_party::plan::TwoPartyPlan;
use crate::two_party::{layer_error, peer_words, reach};
use hushnet_layers::batch::Geometry;
use hushnet_layers::slots::{self, SlotClient, SlotError};
use hushnet_mpc::garble::OddModulus;
use hushnet_mpc::{self as mpc, CostModel, Ring, Session};
use hushnet_rlwe::bfv::{plain_modulus, BfvError, BfvParams, Turn};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Widths of p: from the least that has slots at every planned ring degree and looks uniform in packed words, to the widest of BFV.
const LEAST_BITS: u32 = 20;
const MOST_BITS: u32 = hushnet_rlwe::bfv::MAX_PLAIN_BITS;

/// The methods.
pub(super) struct Slots;

/// Their stages in a plan.
struct Layout {
    groups: Vec<Group>,
    stages: Stages<SlotStage>,
}

/// Stages of equal parameters.
struct Group {
    params: BfvParams,
    turns: BTreeSet<Turn>,
}

/// A stage.
struct SlotStage {
    /// Index of its parameters and keys.
    group: usize,
    layer: SlotClient,
    method: slots::Method,
    params: BfvParams,
    ring: Ring,
    odd: OddModulus,
    /// Whether the input keeps within a quarter of its ring, so that its carry needs no comparison.
    small: bool,
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

/// The kernels of a row of the registry.
fn method_of(name: &str) -> Result<slots::Method, String> {
    slots::Method::from_name(name)
        .ok_or_else(|| format!("no slot-packed layer is computed by method '{name}'"))
}

fn slot_error(e: SlotError) -> Error {
    match e {
        SlotError::Layer(e) => layer_error(e),
        SlotError::Bfv(e @ BfvError::Damaged(_)) => peer_words(&e),
        other => internal(&other.to_string()),
    }
}

fn key_error(e: BfvError) -> Error {
    slot_error(e.into())
}

impl LinearMethod for Slots {
    fn family(&self) -> &'static str {
        "slots"
    }

    /// With an exact bound: that the stage's prime holds the results. Stages with larger results may need wider ones for all: [`Self::places`]
    /// refuses what then has none.
    fn check(&self, w: &Wanted<'_>) -> Result<(), String> {
        let (how, reach) = (method_of(w.name)?, w.reach);
        let p = prime_for(reach).ok_or_else(|| {
            format!("results below 2^{reach} need a prime of more than {MOST_BITS} bits; use fewer weight_bits or activation_bits, or another method")
        })?;
        let (most, top) = (mpc::small_odd(p), w.bound.map(reach::with_errors));
        if let Some(top) = top.filter(|&top| top > most) {
            return Err(format!(
                "results reach {top}, units of errors included, but the prime of reach_bits {reach} converts values up to {most}; state one bit more"
            ));
        }
        slots::choose(w.geometry, how, p.value()).map(drop).map_err(|e| e.to_string())
    }

    /// Requests and answers depend on the layer; results are exact.
    fn parameters(&self, _: usize, ring_bits: u32, _: f64) -> Result<Parameters, String> {
        if ring_bits > MOST_BITS - 2 {
            return Err(format!(
                "shares of {ring_bits} bits are wider than the {} that slot-packed layers take; use fewer weight or activation bits",
                MOST_BITS - 2
            ));
        }
        Ok(Parameters::default())
    }

    /// 1: parameters hold for all weights, so that nothing of them is told.
    fn norm(&self, geometry: &Geometry, _: usize, weights: &[i16]) -> Result<f64, String> {
        weight_count(geometry, weights).map(|()| 1.0)
    }

    fn exact(&self) -> bool {
        true
    }

    fn steps(&self, geometry: &Geometry) -> u64 {
        geometry.slot_steps()
    }

    fn places(&self, plan: &TwoPartyPlan, stages: &[Placed<'_>]) -> Result<Option<Arc<dyn Places>>, Error> {
        let reach_of = |t: Option<usize>| t.and_then(|t| plan.reach(t)).unwrap_or(u32::MAX);
        let Some(largest) = stages.iter().map(|s| reach_of(s.stage.output)).max() else { return Ok(None) };
        let refused = |name: &str, detail: String| PlanError::Linear { stage: name.into(), detail };
        let odd = prime_for(largest).ok_or_else(|| refused("all", "no prime holds their results".into()))?;
        let (ring, mut groups) = (plan.ring(), Vec::<Group>::new());
        let stages = Stages::new(stages, |s| {
            let (geometry, name) = (s.linear.geometry.checked()?, &s.stage.name);
            let method = method_of(s.linear.method.name).map_err(|e| refused(name, e))?;
            let fail = |e: SlotError| refused(name, e.to_string());
            let params = slots::choose(&geometry, method, odd.value()).map_err(fail)?;
            let group = groups.iter().position(|g| g.params == params).unwrap_or_else(|| {
                groups.push(Group { params: params.clone(), turns: BTreeSet::new() });
                groups.len() - 1
            });
            let layer = SlotClient::new(&params, &geometry, method).map_err(fail)?;
            groups[group].turns.extend(layer.turns());
            let small = reach_of(s.stage.inputs.first().copied()) <= ring.bits() - 2;
            Ok(SlotStage { group, layer, method, params, ring, odd, small })
        })?;
        // Where one stage permutes and another of the same group does not, parameters are equal only if both can.
        Ok(Some(Arc::new(Layout { groups, stages })))
    }
}

impl Group {
    fn keys_len(&self) -> usize {
        self.params.request_len() + self.params.galois_keys_len(self.turns.len())
    }
}

impl Places for Layout {
    fn shape(&self, stage: usize) -> Option<&dyn Shape> {
        self.stages.shape(stage)
    }

    fn key_len(&self) -> usize {
        self.groups.iter().map(Group::keys_len).sum()
    }

    /// The ciphertexts of a stage in work, and all keys.
    fn working_bytes(&self) -> usize {
        let ciphers = |s: &SlotStage| {
            let layout = s.layer.layout();
            let held =
                layout.inputs() + layout.outputs() + layout.counts().hst_perm as usize / layout.tiles();
            s.params.cipher_bytes() * held
        };
        2 * self.key_len() + self.stages.values().map(ciphers).max().unwrap_or(0)
    }

    fn open(self: Arc<Self>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
        client::open(self, opening)
    }

    fn prepare(self: Arc<Self>, preparing: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error> {
        server::prepare(self, preparing)
    }
}

impl SlotStage {
    fn to_odd(&self, session: &mut Session, x: &[u64]) -> Result<Vec<u64>, Error> {
        let to_odd = if self.small { mpc::to_odd_small } else { mpc::to_odd };
        Ok(to_odd(session, x, self.ring, self.odd)?)
    }

    fn to_ring(&self, session: &mut Session, x: &[u64]) -> Result<Vec<u64>, Error> {
        Ok(mpc::to_ring_small(session, x, self.odd, self.ring)?)
    }
}

impl Tiled for SlotStage {
    fn elements(&self) -> (usize, usize) {
        (self.layer.layout().input_len(), self.layer.layout().output_len())
    }

    fn answer_len(&self, _: usize) -> usize {
        self.layer.layout().outputs() * self.params.answer_len()
    }
}

impl Shape for SlotStage {
    fn tiles(&self) -> usize {
        self.layer.tiles()
    }

    fn request_len(&self) -> usize {
        self.layer.layout().inputs() * self.params.request_len()
    }

    /// Conversion, all requests at once, answers tile by tile, conversion.
    fn cost(&self, m: &mut CostModel, images: usize) {
        let layout = self.layer.layout();
        if self.small {
            mpc::to_odd_small_cost(m, images * layout.input_len(), self.odd);
        } else {
            mpc::to_odd_cost(m, images * layout.input_len(), self.ring, self.odd);
        }
        tiles::cost(self, m, images);
        mpc::to_ring_small_cost(m, images * layout.output_len(), self.ring);
    }

    fn held_by_client(&self, _: u64) -> u64 {
        tiles::held_by_client(self)
    }

    fn keeping(&self) -> Option<Keeping> {
        Some(Keeping { uses: 0, bytes: self.layer.layout().terms().len() * self.params.weight_bytes() })
    }
}
