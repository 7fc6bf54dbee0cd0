//! Operations that need whole tensors: pooling, reductions, softmax; products and selections; and the moves.

use super::moves::{self, coordinates, each_row, strides};
use super::operands::{operand, OperandError};
use super::values::{Data, RowMut, Slot, Values};
use super::{kernels, products, Monitor};
use crate::plan::{Op, OpKind, Tensor};
use rayon::prelude::*;

/// Runs one operation and stores its result. The values of a user's input are checked on their way in.
///
/// # Errors
/// [`OperandError`] when an operand holds no values, or integers where the operation takes real numbers.
pub(super) fn run(
    op: &Op,
    tensors: &[Tensor],
    values: &mut Values<'_>,
    monitor: &Monitor,
) -> Result<(), OperandError> {
    for (i, &t) in op.inputs.iter().enumerate() {
        if matches!(values.slots[t], Slot::Input(_)) {
            values.materialise(t);
            let images = values.images;
            if let Slot::Data(Data::Real(v)) = &mut values.slots[t] {
                saturate(v, t, images, monitor);
            } else {
                real(op, i, tensors, operand(op, i, tensors, values)?)?;
            }
        }
    }
    let (input, output) = (&tensors[op.inputs[0]], &tensors[op.output]);
    let data = operand(op, 0, tensors, values)?;
    let reals = || real(op, 0, tensors, data);
    let mut result = match &op.kind {
        OpKind::MaxPool { kernel, stride, pads, dilation } => {
            let windows = Windows::new(input, kernel, stride, pads, dilation);
            max_pool(&windows, data, output, values.images)
        }
        OpKind::AveragePool { kernel, stride, pads, count_include_pad } => {
            let dilation = vec![1; kernel.len()];
            let windows = Windows::new(input, kernel, stride, pads, &dilation);
            average_pool(&windows, reals()?, output, values.images, *count_include_pad)
        }
        OpKind::ReduceMean { axes }
        | OpKind::ReduceSum { axes }
        | OpKind::ReduceMax { axes }
        | OpKind::ReduceProd { axes } => reduce(&op.kind, axes, reals()?, (input, output), values.images),
        OpKind::Matmul {} => {
            let right = real(op, 1, tensors, operand(op, 1, tensors, values)?)?;
            products::matmul((reals()?, &input.shape), right, output, values.images)
        }
        OpKind::Interpolate { axis, indices, weights } => {
            products::interpolate(reals()?, (input, output), *axis, (indices, weights), values.images)
        }
        OpKind::TopK { axis, largest, what } => {
            products::top_k(reals()?, (input, output), *axis, (*largest, *what), values.images)
        }
        OpKind::Softmax { axis } => softmax(reals()?, &input.shape, *axis, values.images),
        _ => {
            // What moves is finite already.
            let moved = moves::run(op, tensors, values)?;
            values.put(op.output, moved);
            return Ok(());
        }
    };
    if let Data::Real(v) = &mut result {
        saturate(v, op.output, values.images, monitor);
    }
    values.put(op.output, result);
    Ok(())
}

/// The real numbers of an operand.
fn real<'d>(op: &Op, i: usize, tensors: &[Tensor], data: &'d Data) -> Result<&'d [f64], OperandError> {
    let integers = || OperandError::Integers {
        output: tensors[op.output].name.clone(),
        operand: tensors[op.inputs[i]].name.clone(),
    };
    if let Data::Real(v) = data {
        Ok(v)
    } else {
        Err(integers())
    }
}

/// Makes all values finite and marks those that were not.
fn saturate(v: &mut [f64], tensor: usize, images: usize, monitor: &Monitor) {
    v.par_chunks_mut(images).enumerate().for_each_init(
        || monitor.marks(),
        |marks, (feature, row)| marks.saturate((tensor, f64::MAX), (feature, 0), row),
    );
}

/// Pooling windows over the spatial axes of [channels, axes...].
struct Windows<'a> {
    shape: &'a [usize],
    strides: Vec<usize>,
    kernel: &'a [usize],
    stride: &'a [usize],
    pads: &'a [usize],
    dilation: &'a [usize],
}

impl<'a> Windows<'a> {
    fn new(
        input: &'a Tensor,
        kernel: &'a [usize],
        stride: &'a [usize],
        pads: &'a [usize],
        dilation: &'a [usize],
    ) -> Self {
        Self { shape: &input.shape, strides: strides(&input.shape), kernel, stride, pads, dilation }
    }

    /// Calls `visit` with every element of the window at output coordinates `at`, row-major. Returns how many positions
    /// lie in the padded input (not beyond its end, where ceil mode lets windows reach).
    fn visit(&self, at: &[usize], mut visit: impl FnMut(usize)) -> usize {
        let axes = self.kernel.len();
        let mut inside = 0;
        for index in 0..self.kernel.iter().product() {
            let (mut rest, mut element) = (index, Some(at[0] * self.strides[0]));
            let mut in_padding = true;
            for axis in (0..axes).rev() {
                let step = rest % self.kernel[axis];
                rest /= self.kernel[axis];
                let position = at[axis + 1] * self.stride[axis] + step * self.dilation[axis];
                in_padding &= position < self.pads[axis] + self.shape[axis + 1] + self.pads[axes + axis];
                let c = position.checked_sub(self.pads[axis]).filter(|&c| c < self.shape[axis + 1]);
                element = element.zip(c).map(|(e, c)| e + c * self.strides[axis + 1]);
            }
            inside += usize::from(in_padding);
            if let Some(element) = element {
                visit(element);
            }
        }
        inside
    }
}

fn max_pool(windows: &Windows<'_>, data: &Data, output: &Tensor, images: usize) -> Data {
    each_row(output, images, |_, at, row, scratch| {
        let mut first = true;
        windows.visit(at, |element| {
            if std::mem::take(&mut first) {
                row.copy_from(data, element * images, scratch);
            } else {
                row.maximum_with(data, element * images, scratch);
            }
        });
    })
}

fn average_pool(windows: &Windows<'_>, x: &[f64], output: &Tensor, images: usize, include_pad: bool) -> Data {
    each_row(output, images, |_, at, row, _| {
        let RowMut::Real(out) = row else { return };
        let mut valid = 0;
        let inside = windows.visit(at, |element| {
            valid += 1;
            kernels::accumulate(&x[element * images..(element + 1) * images], out);
        });
        let count = if include_pad { inside } else { valid } as f64;
        kernels::divide_in_place(count, out);
    })
}

fn reduce(
    kind: &OpKind,
    axes: &[usize],
    x: &[f64],
    (input, output): (&Tensor, &Tensor),
    images: usize,
) -> Data {
    let own = strides(&input.shape);
    let split = |reduced: bool| -> (Vec<usize>, Vec<usize>) {
        (0..input.shape.len())
            .filter(|a| axes.contains(a) == reduced)
            .map(|a| (input.shape[a], own[a]))
            .unzip()
    };
    let ((kept, kept_strides), (inner, inner_strides)) = (split(false), split(true));
    let count: usize = inner.iter().product();
    let element = |index: usize, shape: &[usize], strides: &[usize]| {
        // Shapes have at most 16 axes.
        let mut at = [0; 16];
        let at = &mut at[..shape.len()];
        coordinates(index, shape, at);
        at.iter().zip(strides).map(|(c, s)| c * s).sum::<usize>()
    };
    each_row(output, images, |feature, _, row, _| {
        let RowMut::Real(out) = row else { return };
        let base = element(feature, &kept, &kept_strides);
        for i in 0..count {
            let at = (base + element(i, &inner, &inner_strides)) * images;
            let x = &x[at..at + images];
            match kind {
                OpKind::ReduceMax { .. } if i == 0 => out.copy_from_slice(x),
                OpKind::ReduceMax { .. } => kernels::maximum_f64(x, out),
                OpKind::ReduceProd { .. } if i == 0 => out.copy_from_slice(x),
                OpKind::ReduceProd { .. } => kernels::multiply(x, out),
                _ => kernels::accumulate(x, out),
            }
        }
        if matches!(kind, OpKind::ReduceMean { .. }) {
            kernels::divide_in_place(count as f64, out);
        }
    })
}

fn softmax(x: &[f64], shape: &[usize], axis: usize, images: usize) -> Data {
    let length = shape[axis];
    let inner: usize = shape[axis + 1..].iter().product();
    let mut out = vec![0.0; x.len()];
    out.par_chunks_mut(length * inner * images).zip(x.par_chunks(length * inner * images)).for_each_init(
        || (vec![0.0; images], vec![0.0; images]),
        |(largest, sum), (out, x)| {
            let row = |i: usize, j: usize| (i * inner + j) * images..(i * inner + j + 1) * images;
            for j in 0..inner {
                largest.copy_from_slice(&x[row(0, j)]);
                (1..length).for_each(|i| kernels::maximum_f64(&x[row(i, j)], largest));
                sum.fill(0.0);
                for i in 0..length {
                    let e = &mut out[row(i, j)];
                    kernels::exp_difference(&x[row(i, j)], largest, e);
                    if i == 0 {
                        sum.copy_from_slice(e);
                    } else {
                        kernels::accumulate(e, sum);
                    }
                }
                (0..length).for_each(|i| kernels::divide(sum, &mut out[row(i, j)]));
            }
        },
    );
    Data::Real(out)
}
