//! Operand types and shapes of every client operation.

use super::spec::OpKind;
use super::{Tensor, TensorKind};

type Check = Result<(), String>;

/// Largest window, stride, padding or dilation of a pool: sums and products of two of them stay far from 64 bits.
const MAX_AXIS: usize = 1 << 24;
/// Most positions of a pooling window.
const MAX_POSITIONS: usize = 1 << 20;

/// Checks one operation's operands, attributes and output against each other.
pub(crate) fn check(op: &OpKind, inputs: &[&Tensor], output: &Tensor) -> Check {
    let arity = match op {
        OpKind::Add {}
        | OpKind::Sub {}
        | OpKind::Mul {}
        | OpKind::Div {}
        | OpKind::Minimum {}
        | OpKind::Maximum {}
        | OpKind::Less {}
        | OpKind::Equal {}
        | OpKind::Matmul {} => 2,
        OpKind::Concat { .. } => inputs.len().max(1),
        _ => 1,
    };
    if inputs.len() != arity {
        return Err(format!("takes {arity} inputs, {} given", inputs.len()));
    }
    check_kinds(op, inputs, output)?;
    check_attributes(op, inputs[0])?;
    let shape = &inputs[0].shape;
    match op {
        OpKind::MaxPool { kernel, stride, pads, dilation } => {
            pool(shape, &output.shape, kernel, stride, pads, dilation)
        }
        OpKind::AveragePool { kernel, stride, pads, .. } => {
            pool(shape, &output.shape, kernel, stride, pads, &vec![1; kernel.len()])
        }
        OpKind::ReduceMean { axes }
        | OpKind::ReduceSum { axes }
        | OpKind::ReduceMax { axes }
        | OpKind::ReduceProd { axes } => reduce(shape, &output.shape, axes),
        OpKind::Matmul {} => matmul(shape, &inputs[1].shape, &output.shape),
        OpKind::Interpolate { axis, indices, weights } => {
            interpolate(shape, &output.shape, *axis, indices, weights)
        }
        OpKind::TopK { axis, .. } => top_k(shape, &output.shape, *axis),
        OpKind::Gather { axis, indices } => gather(shape, &output.shape, *axis, indices),
        OpKind::Reshape {} => same_elements(inputs[0], output),
        OpKind::Transpose { perm } => transpose(shape, &output.shape, perm),
        OpKind::Concat { axis } => concat(inputs, &output.shape, *axis),
        OpKind::Slice { starts, ends, steps, axes } => slice(shape, &output.shape, starts, ends, steps, axes),
        OpKind::Pad { pads, .. } => pad(shape, &output.shape, pads),
        OpKind::Broadcast {} => broadcast(shape, &output.shape),
        _ => {
            if let Some(t) = inputs.iter().find(|t| t.shape != output.shape) {
                return Err(format!("shapes differ: {:?} and {:?}", t.shape, output.shape));
            }
            Ok(())
        }
    }
}

/// Whether integers may pass through unchanged.
fn moves_data(op: &OpKind) -> bool {
    matches!(
        op,
        OpKind::MaxPool { .. }
            | OpKind::Reshape {}
            | OpKind::Transpose { .. }
            | OpKind::Concat { .. }
            | OpKind::Slice { .. }
            | OpKind::Pad { .. }
            | OpKind::Broadcast {}
            | OpKind::Gather { .. }
    )
}

fn check_kinds(op: &OpKind, inputs: &[&Tensor], output: &Tensor) -> Check {
    let describe = |t: &Tensor| if matches!(t.kind, TensorKind::Real) { "real" } else { "fixed" };
    let expect = |t: &Tensor, fixed: bool| {
        if matches!(t.kind, TensorKind::Fixed { .. }) == fixed {
            Ok(())
        } else {
            let wanted = if fixed { "fixed" } else { "real" };
            Err(format!("tensor '{}' must be {wanted}, it is {}", t.name, describe(t)))
        }
    };
    match op {
        OpKind::Quantize {} => {
            expect(inputs[0], false)?;
            return expect(output, true);
        }
        OpKind::Dequantize {} => {
            expect(inputs[0], true)?;
            return expect(output, false);
        }
        _ => {}
    }
    let TensorKind::Fixed { scale, bound } = output.kind else {
        return inputs.iter().try_for_each(|t| expect(t, false));
    };
    if !moves_data(op) {
        return expect(output, false);
    }
    for t in inputs {
        match t.kind {
            TensorKind::Real => return expect(t, true),
            TensorKind::Fixed { scale: s, bound: b } if s == scale && b <= bound => {}
            TensorKind::Fixed { .. } => {
                return Err(format!(
                    "tensors '{}' and '{}' must have one scale and no smaller bound after",
                    t.name, output.name
                ))
            }
        }
    }
    match op {
        OpKind::Pad { value, .. } if *value != 0.0 => Err("a fixed tensor can only be padded with 0".into()),
        _ => Ok(()),
    }
}

fn check_attributes(op: &OpKind, input: &Tensor) -> Check {
    let finite = |values: &[f64]| {
        values
            .iter()
            .all(|v| v.is_finite())
            .then_some(())
            .ok_or_else(|| "attributes must be finite numbers".to_owned())
    };
    match op {
        OpKind::Affine { mul, add } => finite(&[*mul, *add]),
        OpKind::LeakyRelu { alpha } | OpKind::Elu { alpha } => finite(&[*alpha]),
        OpKind::HardSigmoid { alpha, beta } => finite(&[*alpha, *beta]),
        OpKind::Clip { min, max } => {
            finite(&[min.unwrap_or(0.0), max.unwrap_or(0.0)])?;
            match (min, max) {
                (Some(lo), Some(hi)) if lo > hi => Err(format!("min {lo} is above max {hi}")),
                _ => Ok(()),
            }
        }
        OpKind::Prelu { slope: values } | OpKind::ChannelScale { factor: values } => {
            finite(values)?;
            let channels = input.shape.first().copied().unwrap_or(1);
            if values.len() != 1 && values.len() != channels {
                return Err(format!("{} values for {channels} channels", values.len()));
            }
            Ok(())
        }
        OpKind::Pad { value, .. } => finite(&[*value]),
        OpKind::Interpolate { weights, .. } => weights.iter().try_for_each(|w| finite(w)),
        OpKind::Softmax { axis } if *axis >= input.shape.len() => {
            Err(format!("axis {axis} of a shape {:?}", input.shape))
        }
        _ => Ok(()),
    }
}

fn mismatch(expected: &[usize], output: &[usize]) -> Check {
    if expected == output {
        Ok(())
    } else {
        Err(format!("output must have shape {expected:?}, it has {output:?}"))
    }
}

fn same_elements(input: &Tensor, output: &Tensor) -> Check {
    if input.elements == output.elements {
        Ok(())
    } else {
        Err(format!(
            "{:?} has {} elements, {:?} has {}",
            input.shape, input.elements, output.shape, output.elements
        ))
    }
}

fn pool(
    input: &[usize],
    output: &[usize],
    kernel: &[usize],
    stride: &[usize],
    pads: &[usize],
    dilation: &[usize],
) -> Check {
    let axes = kernel.len();
    if axes == 0 || input.len() != axes + 1 || output.len() != axes + 1 {
        return Err(format!(
            "a kernel {kernel:?} needs shapes [channels, {axes} axes], got {input:?} -> {output:?}"
        ));
    }
    if stride.len() != axes || dilation.len() != axes || pads.len() != 2 * axes {
        return Err(format!("kernel, stride, dilation and pads disagree about the number of axes ({axes})"));
    }
    if input[0] != output[0] {
        return Err(format!("{} channels in, {} out", input[0], output[0]));
    }
    if let Some(v) = [kernel, stride, pads, dilation].into_iter().flatten().find(|v| **v > MAX_AXIS) {
        return Err(format!("kernel, stride, pads and dilation are at most {MAX_AXIS}; {v} is not"));
    }
    if super::product(kernel) > MAX_POSITIONS as u64 {
        return Err(format!("a window {kernel:?} has more than {MAX_POSITIONS} positions"));
    }
    for axis in 0..axes {
        let (size, out) = (input[axis + 1], output[axis + 1]);
        pool_axis(size, out, [kernel[axis], stride[axis], dilation[axis]], [pads[axis], pads[axes + axis]])
            .map_err(|e| format!("axis {}: {e}", axis + 1))?;
    }
    Ok(())
}

/// Output size must be the floor or the ceiling of the usual formula, and every window must meet the input.
fn pool_axis(
    size: usize,
    out: usize,
    [kernel, stride, dilation]: [usize; 3],
    [begin, end]: [usize; 2],
) -> Check {
    if kernel == 0 || stride == 0 || dilation == 0 {
        return Err("kernel, stride and dilation must be positive".into());
    }
    let overflow = || "sizes overflow".to_owned();
    let extent = (kernel - 1).checked_mul(dilation).and_then(|e| e.checked_add(1)).ok_or_else(overflow)?;
    let padded = size.checked_add(begin).and_then(|s| s.checked_add(end)).ok_or_else(overflow)?;
    let free =
        padded.checked_sub(extent).ok_or_else(|| format!("a window of {extent} does not fit {padded}"))?;
    if out != free / stride + 1 && out != free.div_ceil(stride) + 1 {
        return Err(format!(
            "output size must be {} (or {} with ceil mode), it is {out}",
            free / stride + 1,
            free.div_ceil(stride) + 1
        ));
    }
    // First position of a window that is at or after the input's begin.
    let empty = |o: usize| {
        let start = o.saturating_mul(stride);
        let skip = begin.saturating_sub(start).div_ceil(dilation);
        let position = start.saturating_add(skip.saturating_mul(dilation));
        skip >= kernel || position < begin || position - begin >= size
    };
    // Windows that begin in the padding: later ones skip fewer positions, so unless a dilation leaps over the whole input the first tells
    // for all. Windows behind it begin later and later: the last tells for all.
    let padded_ones = begin.div_ceil(stride).min(out);
    let looked_at = if dilation <= size { padded_ones.min(1) } else { padded_ones };
    match (0..looked_at).chain([out - 1]).find(|o| empty(*o)) {
        Some(o) => Err(format!("window {o} sees only padding")),
        None => Ok(()),
    }
}

fn reduce(input: &[usize], output: &[usize], axes: &[usize]) -> Check {
    let mut reduced = vec![false; input.len()];
    for &axis in axes {
        match reduced.get_mut(axis) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(format!("axes {axes:?} of a shape {input:?}")),
        }
    }
    let kept: Vec<usize> = input.iter().zip(&reduced).filter(|(_, r)| !**r).map(|(d, _)| *d).collect();
    let ones: Vec<usize> = input.iter().zip(&reduced).map(|(d, r)| if *r { 1 } else { *d }).collect();
    if output == ones {
        return Ok(());
    }
    mismatch(&kept, output)
}

fn transpose(input: &[usize], output: &[usize], perm: &[usize]) -> Check {
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    if sorted != (0..input.len()).collect::<Vec<_>>() {
        return Err(format!("{perm:?} is no permutation of the axes of {input:?}"));
    }
    mismatch(&perm.iter().map(|&p| input[p]).collect::<Vec<_>>(), output)
}

fn concat(inputs: &[&Tensor], output: &[usize], axis: usize) -> Check {
    let mut expected = inputs[0].shape.clone();
    if axis >= expected.len() {
        return Err(format!("axis {axis} of a shape {expected:?}"));
    }
    expected[axis] = 0;
    for t in inputs {
        let fits = t.shape.len() == expected.len()
            && t.shape.iter().zip(&expected).enumerate().all(|(i, (a, b))| i == axis || a == b);
        if !fits {
            return Err(format!(
                "shapes {:?} and {:?} do not join along axis {axis}",
                inputs[0].shape, t.shape
            ));
        }
        expected[axis] = expected[axis].checked_add(t.shape[axis]).ok_or("sizes overflow")?;
    }
    mismatch(&expected, output)
}

fn slice(
    input: &[usize],
    output: &[usize],
    starts: &[i64],
    ends: &[i64],
    steps: &[i64],
    axes: &[usize],
) -> Check {
    if starts.len() != axes.len() || ends.len() != axes.len() || steps.len() != axes.len() {
        return Err("starts, ends, steps and axes differ in length".into());
    }
    let mut expected = input.to_vec();
    let mut seen = vec![false; input.len()];
    for (i, &axis) in axes.iter().enumerate() {
        if axis >= input.len() || seen[axis] {
            return Err(format!("axes {axes:?} of a shape {input:?}"));
        }
        seen[axis] = true;
        let size = i64::try_from(input[axis]).map_err(|_| "sizes overflow")?;
        expected[axis] = slice_length(size, starts[i], ends[i], steps[i])
            .ok_or_else(|| format!("{}:{}:{} of an axis of {size}", starts[i], ends[i], steps[i]))?;
    }
    mismatch(&expected, output)
}

/// Elements of `start:end:step` (end -1 with a negative step: down to element 0), `None` when out of range.
fn slice_length(size: i64, start: i64, end: i64, step: i64) -> Option<usize> {
    let span = match step {
        1.. if 0 <= start && start <= end && end <= size => end - start,
        i64::MIN..=-1 if -1 <= end && end <= start && start < size => start - end,
        _ => return None,
    };
    usize::try_from(span).ok().map(|s| s.div_ceil(usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX)))
}

fn pad(input: &[usize], output: &[usize], pads: &[usize]) -> Check {
    if pads.len() != 2 * input.len() {
        return Err(format!("{} pads for a shape {input:?}", pads.len()));
    }
    let expected: Option<Vec<usize>> =
        (0..input.len()).map(|i| input[i].checked_add(pads[i])?.checked_add(pads[input.len() + i])).collect();
    mismatch(&expected.ok_or("sizes overflow")?, output)
}

fn broadcast(input: &[usize], output: &[usize]) -> Check {
    let fits = input.len() <= output.len()
        && input.iter().rev().zip(output.iter().rev()).all(|(&i, &o)| i == o || i == 1);
    if fits {
        Ok(())
    } else {
        Err(format!("{input:?} does not broadcast to {output:?}"))
    }
}

/// `(..., M, K)` and `(..., K, N)` with the same axes in front.
fn matmul(left: &[usize], right: &[usize], output: &[usize]) -> Check {
    let ([lead @ .., m, k], [other @ .., depth, n]) = (left, right) else {
        return Err(format!("matrices need two axes, got {left:?} and {right:?}"));
    };
    if lead != other || k != depth {
        return Err(format!("matrices of shapes {left:?} and {right:?} do not multiply"));
    }
    mismatch(&[lead, &[*m, *n]].concat(), output)
}

/// The shape of `input` with `size` elements on one axis.
fn resized(input: &[usize], axis: usize, size: usize) -> Result<Vec<usize>, String> {
    let mut shape = input.to_vec();
    *shape.get_mut(axis).ok_or_else(|| format!("axis {axis} of a shape {input:?}"))? = size;
    Ok(shape)
}

fn gather(input: &[usize], output: &[usize], axis: usize, indices: &[usize]) -> Check {
    let expected = resized(input, axis, indices.len())?;
    if let Some(i) = indices.iter().find(|i| **i >= input[axis]) {
        return Err(format!("index {i} of axis {axis}, which has {} elements", input[axis]));
    }
    mismatch(&expected, output)
}

fn interpolate(
    input: &[usize],
    output: &[usize],
    axis: usize,
    indices: &[Vec<usize>],
    weights: &[Vec<f64>],
) -> Check {
    if indices.is_empty() || indices.len() != weights.len() {
        return Err(format!("{} lists of indices and {} of weights", indices.len(), weights.len()));
    }
    for (taken, factors) in indices.iter().zip(weights) {
        if taken.len() != factors.len() {
            return Err(format!("{} indices and {} weights", taken.len(), factors.len()));
        }
        gather(input, output, axis, taken)?;
    }
    Ok(())
}

fn top_k(input: &[usize], output: &[usize], axis: usize) -> Check {
    let taken = output.get(axis).copied().unwrap_or(0);
    let expected = resized(input, axis, taken)?;
    if taken == 0 || taken > input[axis] {
        return Err(format!("{taken} of the {} elements of axis {axis}", input[axis]));
    }
    mismatch(&expected, output)
}
