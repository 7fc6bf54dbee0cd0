//! How much of each kind of work the non-linear stages of a plan are, of which processor time follows: bits compared, values selected, values
//! truncated, terms of products, entries of tables.

use super::plan::{Kind, Stage, TwoPartyPlan};
use crate::plan::spec::{Protocol, Reveal};
use hushnet_mpc::{Comparison, PoolShape, Range, Rounding};
use serde::Serialize;

/// Work of a stage by oblivious transfer, for one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Bits compared: values times the bits of the narrowest ring that holds them. Through digits as many as a tree would compare with what is sent.
    pub compared: u64,
    /// Values selected by a shared bit.
    pub selected: u64,
    /// Values truncated.
    pub truncated: u64,
    /// Terms of products: of a bit and a number, both directions together.
    pub multiplied: u64,
    /// Entries of the tables of functions.
    pub looked_up: u64,
}

/// The work of every stage; garbled, linear and local stages have none of these kinds.
#[must_use]
pub fn work(plan: &TwoPartyPlan) -> Vec<Work> {
    plan.stages().iter().map(|s| of(plan, s)).collect()
}

/// Maxima taken of one image: along rows first, then along columns of what is left.
fn maxima(shape: &PoolShape) -> u64 {
    let Ok((rows, columns)) = shape.output() else { return 0 };
    let across = shape.height * columns.min(shape.width) * (shape.kernel.1 - 1);
    let down = rows * columns * (shape.kernel.0 - 1);
    (shape.channels * (across + down)) as u64
}

fn of(plan: &TwoPartyPlan, stage: &Stage) -> Work {
    let values = stage.inputs.first().map_or(0, |&t| plan.tensors()[t].elements as u64);
    let (bits, ring) = (u64::from(stage.compared.bits()), u64::from(plan.ring().bits()));
    if stage.protocol == Protocol::Garbled {
        return Work::default();
    }
    let [sent, tree] = [super::nonlinear::comparison(stage), Comparison::Tree]
        .map(|c| c.bits_sent(bits.saturating_sub(1) as usize));
    let compared = |count: u64, times: u64| Work {
        compared: count * times * bits * sent / tree.max(1),
        selected: count * times,
        ..Work::default()
    };
    let results = stage.output.map_or(0, |t| plan.tensors()[t].elements as u64);
    let widened = if stage.bits > 0 { results } else { 0 };
    match &stage.kind {
        Kind::Relu => Work { truncated: widened, ..compared(values, 1) },
        Kind::LeakyRelu { .. } => Work { truncated: values, ..compared(values, 1) },
        Kind::Clip { .. } => Work { truncated: widened, ..compared(values, 2) },
        Kind::MaxPool(shape) => Work { truncated: widened, ..compared(maxima(shape), 1) },
        Kind::Reveal(Reveal::Argmax) => Work { selected: 2 * values, ..compared(values, 1) },
        Kind::Truncate { bits, range, rounding } => {
            let sign = if *range == Range::Any { ring } else { 0 };
            let carry = if *rounding == Rounding::Floor { u64::from(*bits) } else { 0 };
            Work { compared: values * (sign + carry), truncated: values, ..Work::default() }
        }
        Kind::Function(f) => {
            let ends = f.clips().into_iter().filter(|clips| *clips).count() as u64;
            let (entries, terms) = (1 << f.shape.spec().segments, f.shape.products() as u64);
            Work { multiplied: values * terms, looked_up: values * entries, ..compared(values, ends) }
        }
        Kind::HardSwish(h) => {
            Work { truncated: values, multiplied: values * h.terms(), ..compared(values, 2) }
        }
        Kind::Product(p) => {
            let values = p.elements();
            Work { truncated: values, multiplied: values * p.terms(), ..Work::default() }
        }
        Kind::MatrixProduct(m) => Work { truncated: m.converted(), ..Work::default() },
        _ => Work::default(),
    }
}
