//! Non-linear stages on shares: each by oblivious transfer or by a garbled circuit ([`Protocol`]), and what it costs.
//!
//! Both are exact and leave shares modulo 2^l, so stages of either kind follow each other freely. The server garbles: it sends the
//! tables, the client chooses labels for its shares by correlated OTs.

use super::plan::{Kind, Stage};
use super::shares::of_images;
use crate::plan::spec::{Protocol, Reveal};
use hushnet_mpc::garble::{self, Modulus};
use hushnet_mpc::{self as mpc, CostModel, Party, Result, Ring, Rounding, Session};

/// Who garbles.
const GARBLER: Party = Party::Zero;

/// Whether a garbled circuit computes a stage.
pub(super) fn garbles(kind: &Kind) -> bool {
    matches!(kind, Kind::Relu | Kind::Clip { .. } | Kind::MaxPool(_) | Kind::Reveal(Reveal::Argmax))
}

/// The stage on this party's share; `None` for stages that are linear, local or of one party.
pub(super) fn run(
    s: &mut Session,
    stage: &Stage,
    x: &[u64],
    ring: Ring,
    images: usize,
) -> Result<Option<Vec<u64>>> {
    let m = Modulus::PowerOfTwo(ring);
    let share = match (&stage.kind, stage.protocol) {
        (Kind::Relu, Protocol::Garbled) => garble::relu(s, x, m, GARBLER)?,
        (Kind::Relu, Protocol::Ot) => mpc::relu_within(s, x, ring, stage.compared)?,
        (Kind::Clip { from_zero, ends, .. }, Protocol::Garbled) => {
            garble::clip(s, x, m, *from_zero, *ends, GARBLER)?
        }
        (Kind::Clip { ends, .. }, Protocol::Ot) => mpc::clip(s, x, ring, stage.compared, *ends)?,
        (Kind::MaxPool(shape), Protocol::Garbled) => {
            garble::max_pool(s, x, m, of_images(shape, images), GARBLER)?
        }
        (Kind::MaxPool(shape), Protocol::Ot) => {
            mpc::max_pool(s, x, ring, stage.compared, of_images(shape, images))?
        }
        (Kind::LeakyRelu { slope, range }, _) => {
            mpc::leaky_relu(s, x, ring, *slope, *range, Rounding::Faithful)?
        }
        (Kind::Truncate { bits, range, rounding }, _) => mpc::truncate(s, x, *bits, ring, *range, *rounding)?,
        _ => return Ok(None),
    };
    Ok(Some(share))
}

/// Shares of the index of every image's largest value, modulo the ring of [`mpc::index_ring`].
pub(super) fn argmax(
    s: &mut Session,
    stage: &Stage,
    x: &[u64],
    classes: usize,
    ring: Ring,
) -> Result<Vec<u64>> {
    match stage.protocol {
        Protocol::Garbled => garble::argmax(s, x, classes, Modulus::PowerOfTwo(ring), GARBLER),
        Protocol::Ot => mpc::argmax(s, x, classes, ring, stage.compared),
    }
}

/// Cost of [`run`], or of opening, on so many elements of an image; nothing for other stages.
pub(super) fn cost(m: &mut CostModel, stage: &Stage, elements: usize, ring: Ring, images: usize) {
    let (n, modulus) = (elements * images, Modulus::PowerOfTwo(ring));
    match (&stage.kind, stage.protocol) {
        (Kind::Relu, Protocol::Garbled) => garble::relu_cost(m, n, modulus, GARBLER),
        (Kind::Relu, Protocol::Ot) => mpc::relu_within_cost(m, n, ring, stage.compared),
        (Kind::Clip { from_zero, .. }, Protocol::Garbled) => {
            garble::clip_cost(m, n, modulus, *from_zero, GARBLER);
        }
        (Kind::Clip { .. }, Protocol::Ot) => mpc::clip_cost(m, n, ring, stage.compared),
        (Kind::MaxPool(shape), Protocol::Garbled) => {
            // a checked plan's windows exist
            let _ = garble::max_pool_cost(m, modulus, of_images(shape, images), GARBLER);
        }
        (Kind::MaxPool(shape), Protocol::Ot) => {
            mpc::max_pool_cost(m, ring, stage.compared, of_images(shape, images))
        }
        (Kind::LeakyRelu { slope, range }, _) => {
            mpc::leaky_relu_cost(m, n, ring, *slope, *range, Rounding::Faithful);
        }
        (Kind::Truncate { bits, range, rounding }, _) => {
            mpc::truncate_cost(m, n, *bits, ring, *range, *rounding);
        }
        (Kind::Reveal(Reveal::Output), _) => mpc::reveal_cost(m, n, ring, Party::One),
        (Kind::Reveal(Reveal::Argmax), protocol) => {
            match protocol {
                // a checked plan has classes
                Protocol::Garbled => drop(garble::argmax_cost(m, images, elements, modulus, GARBLER)),
                Protocol::Ot => mpc::argmax_cost(m, images, elements, ring, stage.compared),
            }
            if let Ok(small) = mpc::index_ring(elements) {
                mpc::reveal_cost(m, images, small, Party::One);
            }
        }
        _ => {}
    }
}
