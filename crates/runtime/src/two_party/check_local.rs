//! Checks of stages that each party computes by itself: windows and moves.

use super::check::{fault, holds, Fault, Shared};
use super::plan::{Kind, Window};
use crate::plan::spec::{OpKind, StageKind, WindowSpec};
use crate::plan::{check_op, PlanError, Tensor};
use crate::program::Moves;
use hushnet_mpc::MAX_AXIS;
use std::sync::Arc;

pub(super) fn window(stage: &str, w: &WindowSpec, x: &Shared<'_>, to: &Shared<'_>) -> Result<Window, Fault> {
    if w.dilation != [1, 1] {
        return Err(PlanError::Unsupported(format!("dilated pooling (stage '{stage}')")).into());
    }
    if let Some(v) = w.kernel.iter().chain(&w.stride).chain(&w.pads).find(|v| **v > MAX_AXIS) {
        return fault(format!("kernel, stride and pads of a pool are at most {MAX_AXIS}; {v} is not"));
    }
    match (x.tensor.shape.as_slice(), to.tensor.shape.as_slice()) {
        (&[c, h, width], &[d, oh, ow]) if c == d && w.kernel.iter().chain(&w.stride).all(|&v| v > 0) => {
            Ok(Window {
                input: [c, h, width],
                output: [oh, ow],
                kernel: w.kernel,
                stride: w.stride,
                pads: [w.pads[0], w.pads[1]],
            })
        }
        (from, to) => fault(format!("shapes {from:?} and {to:?} are not pooled channels of images")),
    }
}

pub(super) fn sum_pool(stage: &str, w: &WindowSpec, x: &Shared<'_>, to: &Shared<'_>) -> Result<Kind, Fault> {
    let window = window(stage, w, x, to)?;
    if w.bits > 0 || w.reach_bits.is_some() {
        return fault("sums drop no bits: leave 'bits' and 'reach_bits' out".into());
    }
    for axis in 0..2 {
        let padded =
            window.input[axis + 1].checked_add(w.pads[axis]).and_then(|v| v.checked_add(w.pads[axis + 2]));
        let expected = padded.and_then(|p| p.checked_sub(w.kernel[axis])).map(|p| p / w.stride[axis] + 1);
        if expected != Some(window.output[axis]) {
            return fault(format!(
                "the windows give {expected:?} along axis {axis}, not {}",
                window.output[axis]
            ));
        }
    }
    if to.f < x.f {
        return fault(format!("{} fraction bits cannot become {} by sums", x.f, to.f));
    }
    let count = |axis: usize| w.kernel[axis].min(window.input[axis + 1]) as u128;
    holds(to, x.exact().map(|b| b.saturating_mul(count(0) * count(1))))?;
    Ok(Kind::SumPool(window))
}

/// Stages that only move elements.
pub(super) fn moves(spec: &StageKind, from: &[Shared<'_>], to: &Shared<'_>) -> Result<Option<Kind>, Fault> {
    let kind = match spec {
        StageKind::Reshape {} => OpKind::Reshape {},
        StageKind::Transpose { perm } => OpKind::Transpose { perm: perm.clone() },
        StageKind::Concat { axis } => OpKind::Concat { axis: *axis },
        StageKind::Slice { starts, ends, steps, axes } => OpKind::Slice {
            starts: starts.clone(),
            ends: ends.clone(),
            steps: steps.clone(),
            axes: axes.clone(),
        },
        StageKind::Pad { pads } => OpKind::Pad { pads: pads.clone(), value: 0.0 },
        _ => return Ok(None),
    };
    let operands: Vec<&Tensor> = from.iter().map(|s| s.tensor).collect();
    check_op(&kind, &operands, to.tensor).or_else(fault)?;
    if kind == (OpKind::Reshape {}) {
        return Ok(Some(Kind::Move(None)));
    }
    let moves = Moves::new(&kind, &operands, to.tensor).or_else(|e| fault(e.to_string()))?;
    Ok(Some(Kind::Move(Some(Arc::new(moves)))))
}
