//! Stages as clients are told them.

use super::names::Names;
use super::operations;
use crate::plan::spec::{
    BasisFields, BatchSpec, BitsSpec, FormSpec, FunctionSpec, LinearSpec, NetworkSpec, StageKind, StageSpec,
    UploadSpec, WindowSpec,
};
use serde_json::Map;

/// A stage without what stays with the server; `open`: free fields leave.
pub(super) fn told(stage: &StageSpec, open: bool, names: &mut Names) -> StageSpec {
    let StageSpec { name, inputs, output, kind } = stage;
    let name = match kind {
        StageKind::Client { .. } => names.client(name),
        StageKind::Linear(layer) => names.layer(name, &layer.geometry),
        StageKind::Decrypt {} | StageKind::Reveal { .. } => {
            let name = names.next(name, kind.name());
            names.answered();
            name
        }
        other => names.next(name, other.name()),
    };
    StageSpec { name, inputs: inputs.clone(), output: *output, kind: computed(kind, open) }
}

/// Of a clip's ends no more leaves than that the lower one is zero.
fn computed(kind: &StageKind, open: bool) -> StageKind {
    match kind.clone() {
        StageKind::Client { ops } => StageKind::Client { ops: operations(&ops) },
        StageKind::Share {} => StageKind::Share {},
        StageKind::Encrypt {} => StageKind::Encrypt {},
        StageKind::Decrypt {} => StageKind::Decrypt {},
        StageKind::Linear(l) => StageKind::Linear(Box::new(layer(*l, open))),
        StageKind::Packed(n) => StageKind::Packed(Box::new(network(*n))),
        StageKind::Multiply {} => StageKind::Multiply {},
        StageKind::Relinearise {} => StageKind::Relinearise {},
        StageKind::Rescale {} => StageKind::Rescale {},
        StageKind::Combine { factors: _, constant: _ } => {
            StageKind::Combine { factors: None, constant: None }
        }
        StageKind::Relu { bits, reach_bits, protocol } => StageKind::Relu { bits, reach_bits, protocol },
        StageKind::LeakyRelu { numerator, log_denominator } => {
            StageKind::LeakyRelu { numerator, log_denominator }
        }
        StageKind::Clip { bits, low, high: _, reach_bits, protocol } => {
            StageKind::Clip { bits, low: low.filter(|low| *low == 0), high: None, reach_bits, protocol }
        }
        StageKind::Truncate { bits, sign, exact } => StageKind::Truncate { bits, sign, exact },
        StageKind::MaxPool(w) => StageKind::MaxPool(window(w)),
        StageKind::SumPool(w) => StageKind::SumPool(window(w)),
        StageKind::Scale { factor } => StageKind::Scale { factor },
        StageKind::Add {} => StageKind::Add {},
        StageKind::Shift { by: _, negated } => StageKind::Shift { by: None, negated },
        StageKind::HardSwish { quarter, bits } => StageKind::HardSwish { quarter, bits },
        StageKind::Function(f) => StageKind::Function(Box::new(function(*f))),
        StageKind::Product { bits, within } => StageKind::Product { bits, within },
        StageKind::MatrixProduct { bits } => StageKind::MatrixProduct { bits },
        StageKind::Reshape {} => StageKind::Reshape {},
        StageKind::Transpose { perm } => StageKind::Transpose { perm },
        StageKind::Concat { axis } => StageKind::Concat { axis },
        StageKind::Slice { starts, ends, steps, axes } => StageKind::Slice { starts, ends, steps, axes },
        StageKind::Pad { pads } => StageKind::Pad { pads },
        StageKind::Reveal { what, protocol } => StageKind::Reveal { what, protocol },
    }
}

fn layer(layer: LinearSpec, open: bool) -> LinearSpec {
    let LinearSpec { method, geometry, weights: _, bias: _, weight_l2, batch, coefficients, predicted } =
        layer;
    LinearSpec {
        method,
        geometry,
        weights: None,
        bias: None,
        weight_l2,
        batch: batch.map(streamed),
        coefficients: coefficients.map(bits),
        predicted: if open { predicted } else { Map::new() },
    }
}

fn streamed(batch: BatchSpec) -> BatchSpec {
    let BatchSpec { modulus_bits, delta_bits, drop_bits, mask_drop_bits, mask, tiles } = batch;
    BatchSpec { modulus_bits, delta_bits, drop_bits, mask_drop_bits, mask, tiles }
}

fn bits(bits: BitsSpec) -> BitsSpec {
    let BitsSpec { upload_bits, body_bits, mask_bits } = bits;
    BitsSpec { upload_bits, body_bits, mask_bits }
}

/// The form leaves: both parties compute in its rings. What is computed in it stays, its name included.
fn function(stage: FunctionSpec) -> FunctionSpec {
    let FunctionSpec { function: _, form, below, above, orders: _, coefficients: _, predicted: _ } = stage;
    let FormSpec {
        low,
        high,
        multiplier,
        argument_bits,
        segments,
        dropped,
        inner_bits,
        guard,
        offset,
        shed,
        lift,
        rate,
        basis,
    } = form;
    let one = |BasisFields { bits, precision, shift, low }| BasisFields { bits, precision, shift, low };
    let form = FormSpec {
        low,
        high,
        multiplier,
        argument_bits,
        segments,
        dropped,
        inner_bits,
        guard,
        offset,
        shed,
        lift,
        rate,
        basis: basis.into_iter().map(one).collect(),
    };
    FunctionSpec {
        function: None,
        form,
        below,
        above,
        orders: None,
        coefficients: None,
        predicted: Map::new(),
    }
}

fn window(window: WindowSpec) -> WindowSpec {
    let WindowSpec { kernel, stride, pads, dilation, bits, reach_bits, protocol } = window;
    WindowSpec { kernel, stride, pads, dilation, bits, reach_bits, protocol }
}

/// Where elements stand in slots leaves: the client puts them there. What is computed with them stays.
fn network(stage: NetworkSpec) -> NetworkSpec {
    let NetworkSpec {
        images,
        scale,
        uploads,
        rotations,
        bootstrap,
        answer,
        answer_level,
        answer_scale,
        places,
        network: _,
        options: _,
        choices: _,
    } = stage;
    let sent = |UploadSpec { level, slots }| UploadSpec { level, slots };
    NetworkSpec {
        images,
        scale,
        uploads: uploads.into_iter().map(sent).collect(),
        rotations,
        bootstrap,
        answer,
        answer_level,
        answer_scale,
        places,
        network: None,
        options: None,
        choices: None,
    }
}
