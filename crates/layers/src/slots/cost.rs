//! What a method costs for a layer: a row for a planner.

use super::{Layout, Method, SlotError};
use crate::batch::Geometry;
use hushnet_rlwe::bfv::{self, BfvParams, Counts};

/// Operations, traffic, memory and noise of a layer for one image.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearCost {
    /// The method.
    pub method: Method,
    /// Ring degree N.
    pub ring_degree: usize,
    /// Homomorphic operations of the server.
    pub counts: Counts,
    /// Ciphertexts up and down.
    pub ciphers: (usize, usize),
    /// Bytes of all requests.
    pub bytes_up: usize,
    /// Bytes of all answers.
    pub bytes_down: usize,
    /// Messages one after the other: a request and its answer.
    pub rounds: usize,
    /// Galois keys, and their bytes: sent once a session, for all layers that use them.
    pub keys: (usize, usize),
    /// Bytes of the weights in evaluation form (streamed: none).
    pub weight_bytes: usize,
    /// Bytes of the ciphertexts that live at once, roughly.
    pub working_bytes: usize,
    /// log2 of the norm of the predicted noise, and of the largest that the flooding hides.
    pub noise_bits: (f64, f64),
    /// Whether answers are exact and hidden with 40 bits.
    pub feasible: bool,
}

/// The row of a method under parameters. The counts are exact, as are all bytes.
///
/// # Errors
/// What [`Layout::new`] refuses.
pub fn cost(geometry: &Geometry, method: Method, params: &BfvParams) -> Result<LinearCost, SlotError> {
    let layout = Layout::new(geometry, method, params.ring_degree())?;
    let n = params.ring_degree();
    let noise = layout.noise(params.spec()).plus(bfv::noise::rerandomising(n));
    let (up, down) = (layout.tiles() * layout.inputs(), layout.tiles() * layout.outputs());
    let keys = layout.turns().len();
    let counts = layout.counts();
    let switching = params.spec().switches() || keys == 0;
    Ok(LinearCost {
        method,
        ring_degree: n,
        counts,
        ciphers: (up, down),
        bytes_up: up * params.request_len(),
        bytes_down: down * params.answer_len(),
        rounds: 2,
        keys: (keys, params.galois_keys_len(keys)),
        weight_bytes: layout.terms().len() * params.weight_bytes(),
        working_bytes: params.cipher_bytes()
            * (layout.inputs() + layout.outputs() + counts.hst_perm as usize / layout.tiles()),
        noise_bits: (noise.norm_bound(n).log2(), params.hidden_norm().log2()),
        feasible: switching && params.holds(&noise),
    })
}

/// The 128-bit parameters that hold a method's noise with the least work, shares being modulo `plain_modulus`.
///
/// # Errors
/// [`bfv::BfvError::NoParameters`] when none do, what [`Layout::new`] refuses.
pub fn choose(geometry: &Geometry, method: Method, plain_modulus: u64) -> Result<BfvParams, SlotError> {
    let layouts: Vec<(usize, Layout)> = [4096, 8192, 16384]
        .into_iter()
        .filter_map(|n| Some((n, Layout::new(geometry, method, n).ok()?)))
        .collect();
    if layouts.is_empty() {
        Layout::new(geometry, method, 16384)?;
    }
    // Whether anything is permuted can depend on the number of slots.
    let find = |n: usize| layouts.iter().find(|(m, _)| *m == n).map(|(_, l)| l);
    let mut turns = std::collections::BTreeMap::new();
    for (n, layout) in &layouts {
        turns.insert(*n, !layout.turns().is_empty());
    }
    let mut last = None;
    let mut best: Option<(u64, BfvParams)> = None;
    for rotations in [false, true] {
        let load = |n| match find(n) {
            Some(l) if turns.get(&n) == Some(&rotations) => Some(load_of(l)),
            _ => None,
        };
        let chosen = bfv::choose(plain_modulus, rotations, load, |spec| match find(spec.ring_degree) {
            Some(layout) => layout.noise(spec),
            None => bfv::Noise::flat(spec.ring_degree, f64::INFINITY),
        });
        match chosen {
            Ok(params) => {
                let work = load(params.ring_degree()).map_or(u64::MAX, |l| bfv::work(params.spec(), &l));
                if best.as_ref().is_none_or(|(least, _)| work < *least) {
                    best = Some((work, params));
                }
            }
            Err(e) => last = Some(e),
        }
    }
    match (best, last) {
        (Some((_, params)), _) => Ok(params),
        (None, Some(e)) => Err(e.into()),
        (None, None) => Err(SlotError::Kind { method, what: "other" }),
    }
}

/// What a layer does with one image.
fn load_of(layout: &Layout) -> bfv::Load {
    let tiles = layout.tiles();
    bfv::Load { counts: layout.counts(), ciphers: (tiles * layout.inputs(), tiles * layout.outputs()) }
}
