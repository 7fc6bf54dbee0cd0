//! Non-linear stages on shares: each by oblivious transfer or by a garbled circuit ([`Protocol`]), and what it costs.
//!
//! Both are exact and leave shares modulo 2^l, so stages of either kind follow each other freely. The server garbles: it sends the
//! tables, the client chooses labels for its shares by correlated OTs.

use super::plan::{Kind, Stage};
use super::shares::of_images;
use crate::plan::spec::{Protocol, Reveal};
use hushnet_mpc::garble::{self, Modulus};
use hushnet_mpc::{
    self as mpc, Comparison, CostModel, Party, PoolShape, Range, Result, Ring, Rounding, Session, Slope,
};

/// Who garbles.
const GARBLER: Party = Party::Zero;

/// A protocol of a non-linear stage: what both parties run, and exactly what it costs.
pub(super) trait OnShares {
    /// This party's share of the result, from its shares of the operands.
    fn run(&self, session: &mut Session, x: &[&[u64]], at: &At) -> Result<Vec<u64>>;

    /// Traffic and rounds of [`Self::run`] on so many elements of an image.
    fn cost(&self, model: &mut CostModel, elements: usize, at: &At);

    /// [`Self::run`] on the operand divided by a power of two, in the ring that is left, and back. `least`: a number that no result is below; none is above it
    /// by half of that ring or more.
    fn run_dividing(
        &self,
        s: &mut Session,
        x: &[u64],
        (narrowing, least): (mpc::Narrowing, i64),
        at: &At,
    ) -> Result<Vec<u64>> {
        let y = mpc::narrowed(s, x, narrowing)?;
        let z = self.run(s, &[&y], &at.within(narrowing.narrow))?;
        mpc::widened(s, &z, narrowing, least)
    }

    /// Traffic and rounds of [`Self::run_dividing`] on so many elements of an image, with so many results.
    fn cost_dividing(
        &self,
        m: &mut CostModel,
        (elements, results): (usize, usize),
        narrowing: mpc::Narrowing,
        at: &At,
    ) {
        self.cost(m, elements, &at.within(narrowing.narrow));
        mpc::widened_cost(m, results * at.images, narrowing);
    }
}

/// Where a protocol runs.
pub(super) struct At {
    /// Of the shares.
    pub ring: Ring,
    /// The narrowest ring that holds what is compared.
    pub compared: Ring,
    /// That lie side by side in each operand.
    pub images: usize,
}

impl At {
    fn new(stage: &Stage, ring: Ring, images: usize) -> Self {
        Self { ring, compared: stage.compared, images }
    }

    /// The same in the ring of what is compared.
    fn within(&self, compared: Ring) -> Self {
        Self { ring: compared, ..*self }
    }

    fn modulus(&self) -> Modulus {
        Modulus::PowerOfTwo(self.ring)
    }
}

/// The protocol of a stage, one row each; `None` for stages that are linear, local or of one party, and where there is none of that name.
fn protocol(kind: &Kind, protocol: Protocol) -> Option<Box<dyn OnShares>> {
    use Protocol::{Garbled, Ot};
    // through digits or in a tree, the session knows
    let protocol = if protocol != Garbled && compares(kind) { Ot } else { protocol };
    Some(match (kind, protocol) {
        (Kind::Relu, Ot) => Box::new(Relu),
        (Kind::Relu, Garbled) => Box::new(GarbledRelu),
        (Kind::Clip { ends, .. }, Ot) => Box::new(Clip { ends: *ends }),
        (Kind::Clip { from_zero, ends, .. }, Garbled) => {
            Box::new(GarbledClip { from_zero: *from_zero, ends: *ends })
        }
        (Kind::MaxPool(shape), Ot) => Box::new(MaxPool(*shape)),
        (Kind::MaxPool(shape), Garbled) => Box::new(GarbledMaxPool(*shape)),
        (Kind::LeakyRelu { slope, range }, Ot) => Box::new(LeakyRelu { slope: *slope, range: *range }),
        (Kind::Truncate { bits, range, rounding }, Ot) => {
            Box::new(Truncate { bits: *bits, range: *range, rounding: *rounding })
        }
        (Kind::HardSwish(function), Ot) => Box::new(function.clone()),
        (Kind::Function(function), Ot) => function.clone(),
        (Kind::Product(product), Ot) => product.clone(),
        (Kind::Reveal(Reveal::Argmax), Ot) => Box::new(Argmax),
        (Kind::Reveal(Reveal::Argmax), Garbled) => Box::new(GarbledArgmax),
        _ => return None,
    })
}

/// Whether a stage compares: there is a choice of protocols for it.
pub(super) fn compares(kind: &Kind) -> bool {
    protocol(kind, Protocol::Garbled).is_some()
}

/// How the comparisons of a stage are computed, where they are by oblivious transfer.
pub(super) fn comparison(stage: &Stage) -> Comparison {
    match stage.protocol {
        Protocol::Ripple2 => Comparison::Ripple(2),
        Protocol::Ripple3 => Comparison::Ripple(3),
        Protocol::Ripple4 => Comparison::Ripple(4),
        Protocol::Ot | Protocol::Garbled => Comparison::Tree,
    }
}

/// The stage on this party's share; `None` for stages that are linear, local or of one party. Of an argmax: shares of the index of every image's
/// largest value, modulo the ring of [`mpc::index_ring`].
pub(super) fn run(
    s: &mut Session,
    stage: &Stage,
    x: &[&[u64]],
    ring: Ring,
    images: usize,
) -> Result<Option<Vec<u64>>> {
    let Some(p) = protocol(&stage.kind, stage.protocol) else { return Ok(None) };
    let at = At::new(stage, ring, images);
    s.set_comparison(comparison(stage));
    if stage.bits == 0 {
        return p.run(s, x, &at).map(Some);
    }
    p.run_dividing(s, x[0], (narrowing(stage, ring), least(stage)), &at).map(Some)
}

/// Cost of [`run`] and of opening on so many elements of an image of the first operand, and of the result; nothing for other stages.
pub(super) fn cost(
    m: &mut CostModel,
    stage: &Stage,
    (elements, results): (usize, usize),
    ring: Ring,
    images: usize,
) {
    if let Some(p) = protocol(&stage.kind, stage.protocol) {
        let at = At::new(stage, ring, images);
        m.set_comparison(comparison(stage));
        if stage.bits == 0 {
            p.cost(m, elements, &at);
        } else {
            p.cost_dividing(m, (elements, results), narrowing(stage, ring), &at);
        }
    }
    match &stage.kind {
        Kind::Reveal(Reveal::Output) => mpc::reveal_cost(m, elements * images, ring, Party::One),
        Kind::Reveal(Reveal::Argmax) => {
            if let Ok(small) = mpc::index_ring(elements) {
                mpc::reveal_cost(m, images, small, Party::One);
            }
        }
        _ => {}
    }
}

/// How a stage works on its operand divided by 2^bits.
fn narrowing(stage: &Stage, ring: Ring) -> mpc::Narrowing {
    mpc::Narrowing { ring, bits: stage.bits, narrow: stage.compared }
}

/// A number that no result of a stage is below; none is above it by half of the ring `compared` or more. Of a clip: its lower end, from which a
/// result is as far as the operand at most. The second party has no end, and needs none.
fn least(stage: &Stage) -> i64 {
    match &stage.kind {
        Kind::Clip { ends, .. } => ends.map_or(0, |(low, _)| low),
        // differences of two values fit the ring, so values fill a quarter of it on either side of zero
        Kind::MaxPool(_) => -(1_i64 << (stage.compared.bits() - 2)),
        _ => 0,
    }
}

struct Relu;

impl OnShares for Relu {
    fn run(&self, s: &mut Session, x: &[&[u64]], at: &At) -> Result<Vec<u64>> {
        mpc::relu_within(s, x[0], at.ring, at.compared)
    }

    fn cost(&self, m: &mut CostModel, elements: usize, at: &At) {
        mpc::relu_within_cost(m, elements * at.images, at.ring, at.compared);
    }

    fn run_dividing(
        &self,
        s: &mut Session,
        x: &[u64],
        (narrowing, _): (mpc::Narrowing, i64),
        _: &At,
    ) -> Result<Vec<u64>> {
        mpc::relu_dividing(s, x, narrowing)
    }

    fn cost_dividing(
        &self,
        m: &mut CostModel,
        (elements, _): (usize, usize),
        narrowing: mpc::Narrowing,
        at: &At,
    ) {
        mpc::relu_dividing_cost(m, elements * at.images, narrowing);
    }
}

struct GarbledRelu;

impl OnShares for GarbledRelu {
    fn run(&self, s: &mut Session, x: &[&[u64]], at: &At) -> Result<Vec<u64>> {
        garble::relu(s, x[0], at.modulus(), GARBLER)
    }

    fn cost(&self, m: &mut CostModel, elements: usize, at: &At) {
        garble::relu_cost(m, elements * at.images, at.modulus(), GARBLER);
    }
}

struct Clip {
    ends: Option<(i64, i64)>,
}

impl OnShares for Clip {
    fn run(&self, s: &mut Session, x: &[&[u64]], at: &At) -> Result<Vec<u64>> {
        mpc::clip(s, x[0], at.ring, at.compared, self.ends)
    }

    fn cost(&self, m: &mut CostModel, elements: usize, at: &At) {
        mpc::clip_cost(m, elements * at.images, at.ring, at.compared);
    }
}

struct GarbledClip {
    from_zero: bool,
    ends: Option<(i64, i64)>,
}

impl OnShares for GarbledClip {
    fn run(&self, s: &mut Session, x: &[&[u64]], at: &At) -> Result<Vec<u64>> {
        garble::clip(s, x[0], at.modulus(), self.from_zero, self.ends, GARBLER)
    }

    fn cost(&self, m: &mut CostModel, elements: usize, at: &At) {
        garble::clip_cost(m, elements * at.images, at.modulus(), self.from_zero, GARBLER);
    }
}

struct MaxPool(PoolShape);

impl OnShares for MaxPool {
    fn run(&self, s: &mut Session, x: &[&[u64]], at: &At) -> Result<Vec<u64>> {
        mpc::max_pool(s, x[0], at.ring, at.compared, of_images(&self.0, at.images))
    }

    fn cost(&self, m: &mut CostModel, _: usize, at: &At) {
        mpc::max_pool_cost(m, at.ring, at.compared, of_images(&self.0, at.images));
    }

    fn run_dividing(
        &self,
        s: &mut Session,
        x: &[u64],
        (narrowing, least): (mpc::Narrowing, i64),
        at: &At,
    ) -> Result<Vec<u64>> {
        mpc::max_pool_dividing(s, x, narrowing, least, of_images(&self.0, at.images))
    }

    fn cost_dividing(&self, m: &mut CostModel, _: (usize, usize), narrowing: mpc::Narrowing, at: &At) {
        mpc::max_pool_dividing_cost(m, narrowing, of_images(&self.0, at.images));
    }
}

struct GarbledMaxPool(PoolShape);

impl OnShares for GarbledMaxPool {
    fn run(&self, s: &mut Session, x: &[&[u64]], at: &At) -> Result<Vec<u64>> {
        garble::max_pool(s, x[0], at.modulus(), of_images(&self.0, at.images), GARBLER)
    }

    fn cost(&self, m: &mut CostModel, _: usize, at: &At) {
        // A checked plan's windows exist.
        let _ = garble::max_pool_cost(m, at.modulus(), of_images(&self.0, at.images), GARBLER);
    }
}

struct LeakyRelu {
    slope: Slope,
    range: Range,
}

impl OnShares for LeakyRelu {
    fn run(&self, s: &mut Session, x: &[&[u64]], at: &At) -> Result<Vec<u64>> {
        mpc::leaky_relu(s, x[0], at.ring, self.slope, self.range, Rounding::Faithful)
    }

    fn cost(&self, m: &mut CostModel, elements: usize, at: &At) {
        let n = elements * at.images;
        mpc::leaky_relu_cost(m, n, at.ring, self.slope, self.range, Rounding::Faithful);
    }
}

struct Truncate {
    bits: u32,
    range: Range,
    rounding: Rounding,
}

impl OnShares for Truncate {
    fn run(&self, s: &mut Session, x: &[&[u64]], at: &At) -> Result<Vec<u64>> {
        mpc::truncate(s, x[0], self.bits, at.ring, self.range, self.rounding)
    }

    fn cost(&self, m: &mut CostModel, elements: usize, at: &At) {
        mpc::truncate_cost(m, elements * at.images, self.bits, at.ring, self.range, self.rounding);
    }
}

struct Argmax;

impl OnShares for Argmax {
    fn run(&self, s: &mut Session, x: &[&[u64]], at: &At) -> Result<Vec<u64>> {
        mpc::argmax(s, x[0], x[0].len() / at.images, at.ring, at.compared)
    }

    fn cost(&self, m: &mut CostModel, elements: usize, at: &At) {
        mpc::argmax_cost(m, at.images, elements, at.ring, at.compared);
    }
}

struct GarbledArgmax;

impl OnShares for GarbledArgmax {
    fn run(&self, s: &mut Session, x: &[&[u64]], at: &At) -> Result<Vec<u64>> {
        garble::argmax(s, x[0], x[0].len() / at.images, at.modulus(), GARBLER)
    }

    fn cost(&self, m: &mut CostModel, elements: usize, at: &At) {
        // A checked plan has classes.
        drop(garble::argmax_cost(m, at.images, elements, at.modulus(), GARBLER));
    }
}
