//! Operations that only move rows: transpose, concat, slice, pad, broadcast, gather (and reshape, the identity).

use super::kernels;
use super::operands::{operand, OperandError};
use super::values::{Data, RowMut, Storage, Values};
use crate::plan::{Op, OpKind, Tensor};
use rayon::prelude::*;

/// Distance in elements between neighbours along each axis of a row-major shape.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        out[axis - 1] = out[axis] * shape[axis];
    }
    out
}

/// Coordinates of an element of a row-major shape.
pub(super) fn coordinates(mut index: usize, shape: &[usize], out: &mut [usize]) {
    for (c, &size) in out.iter_mut().zip(shape).rev() {
        *c = index % size;
        index /= size;
    }
}

/// Where an element of the result comes from: `(operand, element)`, or a constant.
#[derive(Clone, Debug)]
enum Map {
    Strided { base: usize, steps: Vec<isize> },
    Pad { begin: Vec<usize>, shape: Vec<usize>, strides: Vec<usize> },
    Concat { axis: usize, ends: Vec<usize>, strides: Vec<Vec<usize>> },
    Gather { axis: usize, indices: Vec<usize>, strides: Vec<usize> },
}

impl Map {
    fn new(kind: &OpKind, inputs: &[&Tensor], output: &Tensor) -> Result<Self, OperandError> {
        let shape = &inputs[0].shape;
        let own = strides(shape);
        let signed = |v: usize| v.cast_signed();
        Ok(match kind {
            OpKind::Transpose { perm } => {
                Self::Strided { base: 0, steps: perm.iter().map(|&p| signed(own[p])).collect() }
            }
            OpKind::Broadcast {} => {
                let skip = output.shape.len() - shape.len();
                let step = |axis: usize| match axis.checked_sub(skip) {
                    Some(a) if shape[a] == output.shape[axis] => signed(own[a]),
                    _ => 0,
                };
                Self::Strided { base: 0, steps: (0..output.shape.len()).map(step).collect() }
            }
            OpKind::Slice { starts, steps, axes, .. } => {
                let (mut base, mut by) = (0, own.iter().map(|&s| signed(s)).collect::<Vec<_>>());
                for ((&axis, &start), &step) in axes.iter().zip(starts).zip(steps) {
                    let refused = || OperandError::Slice {
                        output: output.name.clone(),
                        axis,
                        size: shape[axis],
                        start,
                        step,
                    };
                    // An empty slice reads nothing, wherever it starts.
                    let within = |s: &usize| *s < shape[axis] || output.elements == 0;
                    let first = usize::try_from(start).ok().filter(within);
                    base += first.ok_or_else(refused)? * own[axis];
                    let step = isize::try_from(step).ok().filter(|&s| s != 0).ok_or_else(refused)?;
                    // A step beyond the axis is never taken: the slice has one element of it.
                    by[axis] = by[axis].wrapping_mul(step);
                }
                Self::Strided { base, steps: by }
            }
            OpKind::Pad { pads, .. } => {
                Self::Pad { begin: pads[..shape.len()].to_vec(), shape: shape.clone(), strides: own }
            }
            OpKind::Concat { axis } => {
                let ends = inputs.iter().scan(0, |end, t| {
                    *end += t.shape[*axis];
                    Some(*end)
                });
                let strides = inputs.iter().map(|t| strides(&t.shape)).collect();
                Self::Concat { axis: *axis, ends: ends.collect(), strides }
            }
            OpKind::Gather { axis, indices } => {
                Self::Gather { axis: *axis, indices: indices.clone(), strides: own }
            }
            OpKind::Reshape {} => {
                Self::Strided { base: 0, steps: strides(&output.shape).into_iter().map(signed).collect() }
            }
            _ => return Err(OperandError::NoMove { output: output.name.clone() }),
        })
    }

    fn source(&self, at: &[usize]) -> Option<(usize, usize)> {
        match self {
            Self::Strided { base, steps } => {
                let offset: isize =
                    at.iter().zip(steps).map(|(&c, s)| c.cast_signed().wrapping_mul(*s)).sum();
                Some((0, base.wrapping_add_signed(offset)))
            }
            Self::Pad { begin, shape, strides } => {
                let mut element = 0;
                for axis in 0..shape.len() {
                    let c = at[axis].checked_sub(begin[axis]).filter(|&c| c < shape[axis])?;
                    element += c * strides[axis];
                }
                Some((0, element))
            }
            Self::Gather { axis, indices, strides } => {
                let place = |(a, c): (usize, &usize)| if a == *axis { indices[*c] } else { *c };
                Some((0, at.iter().enumerate().map(place).zip(strides).map(|(c, s)| c * s).sum()))
            }
            Self::Concat { axis, ends, strides } => {
                let operand = ends.partition_point(|&end| end <= at[*axis]);
                let before = if operand == 0 { 0 } else { ends[operand - 1] };
                let element: usize = at.iter().zip(&strides[operand]).map(|(c, s)| c * s).sum();
                Some((operand, element - before * strides[operand][*axis]))
            }
        }
    }
}

impl RowMut<'_> {
    /// Copies a row of another tensor, widening integers where it is stored narrower.
    pub(super) fn copy_from(&mut self, data: &Data, at: usize, scratch: &mut Vec<i64>) {
        match (&mut *self, data) {
            (RowMut::Real(o), Data::Real(v)) => o.copy_from_slice(&v[at..at + o.len()]),
            (RowMut::I16(o), Data::I16(v)) => o.copy_from_slice(&v[at..at + o.len()]),
            (RowMut::I32(o), Data::I32(v)) => o.copy_from_slice(&v[at..at + o.len()]),
            (RowMut::I64(o), Data::I64(v)) => o.copy_from_slice(&v[at..at + o.len()]),
            _ => {
                scratch.resize(self.len(), 0);
                data.read_fixed(at, scratch);
                self.write_fixed(0, scratch);
            }
        }
    }

    /// Running maximum with a row of another tensor.
    pub(super) fn maximum_with(&mut self, data: &Data, at: usize, scratch: &mut Vec<i64>) {
        match (&mut *self, data) {
            (RowMut::Real(o), Data::Real(v)) => kernels::maximum_f64(&v[at..at + o.len()], o),
            (RowMut::I16(o), Data::I16(v)) => kernels::maximum_i16(&v[at..at + o.len()], o),
            (RowMut::I32(o), Data::I32(v)) => kernels::maximum_i32(&v[at..at + o.len()], o),
            (RowMut::I64(o), Data::I64(v)) => kernels::maximum_i64(&v[at..at + o.len()], o),
            _ => {
                scratch.resize(self.len(), 0);
                data.read_fixed(at, scratch);
                match self {
                    RowMut::I32(o) => o.iter_mut().zip(scratch).for_each(|(o, x)| *o = (*o).max(*x as i32)),
                    RowMut::I64(o) => o.iter_mut().zip(scratch).for_each(|(o, x)| *o = (*o).max(*x)),
                    // Nothing is stored narrower than 16 bits.
                    RowMut::Real(_) | RowMut::I16(_) => {}
                }
            }
        }
    }

    pub(super) fn fill(&mut self, value: f64) {
        match self {
            RowMut::Real(o) => o.fill(value),
            // Fixed tensors are padded with zero only.
            RowMut::I16(o) => o.fill(0),
            RowMut::I32(o) => o.fill(0),
            RowMut::I64(o) => o.fill(0),
        }
    }

    fn len(&self) -> usize {
        match self {
            RowMut::Real(o) => o.len(),
            RowMut::I16(o) => o.len(),
            RowMut::I32(o) => o.len(),
            RowMut::I64(o) => o.len(),
        }
    }
}

/// A moving operation as numbers: where every element of its result comes from is computed as it is read, not kept.
#[derive(Clone, Debug)]
pub struct Moves {
    map: Map,
    shape: Vec<usize>,
    elements: usize,
}

impl Moves {
    /// Of an operation that [`crate::plan::check_op`] has accepted.
    ///
    /// # Errors
    /// [`OperandError`] when the operation moves nothing, or slices outside of its operand.
    pub(crate) fn new(kind: &OpKind, inputs: &[&Tensor], output: &Tensor) -> Result<Self, OperandError> {
        let map = Map::new(kind, inputs, output)?;
        Ok(Self { map, shape: output.shape.clone(), elements: output.elements })
    }

    /// The number of elements of the result.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Calls `f` for every element of the result in order, with the `(operand, element)` that it is a copy of; `None`: padding.
    pub fn for_each(&self, mut f: impl FnMut(Option<(usize, usize)>)) {
        let mut at = vec![0; self.shape.len()];
        for _ in 0..self.elements {
            f(self.map.source(&at));
            for (c, &size) in at.iter_mut().zip(&self.shape).rev() {
                *c += 1;
                if *c < size {
                    break;
                }
                *c = 0;
            }
        }
    }
}

/// Computes every row of the output tensor in parallel.
pub(super) fn each_row(
    output: &Tensor,
    images: usize,
    compute: impl Fn(usize, &mut [usize], &mut RowMut<'_>, &mut Vec<i64>) + Sync,
) -> Data {
    let mut data = Data::new(Storage::of(output), output.elements * images);
    let mut rows: Vec<RowMut<'_>> = data.rows_mut(images).collect();
    rows.par_iter_mut().enumerate().for_each_init(
        || (vec![0; output.shape.len()], Vec::new()),
        |(at, scratch), (feature, row)| {
            coordinates(feature, &output.shape, at);
            compute(feature, at, row, scratch);
        },
    );
    drop(rows);
    data
}

/// A strided copy, line by line: neighbouring axes that are one in the source as in the result are joined.
struct Lines {
    /// The result's axes, the last one of which is a line.
    shape: Vec<usize>,
    steps: Vec<isize>,
}

impl Lines {
    fn new(shape: &[usize], steps: &[isize]) -> Self {
        let mut joined = Self { shape: Vec::new(), steps: Vec::new() };
        for (&size, &step) in shape.iter().zip(steps).filter(|(&size, _)| size != 1) {
            match (joined.shape.last_mut(), joined.steps.last_mut()) {
                (Some(n), Some(s)) if *s == step.wrapping_mul(size.cast_signed()) => {
                    (*n, *s) = (*n * size, step);
                }
                _ => {
                    joined.shape.push(size);
                    joined.steps.push(step);
                }
            }
        }
        if joined.shape.is_empty() {
            (joined.shape, joined.steps) = (vec![1], vec![1]);
        }
        joined
    }

    fn copy(&self, source: &Data, base: usize, images: usize) -> Option<Data> {
        if self.shape.contains(&0) || images == 0 {
            return None;
        }
        Some(match source {
            Data::Real(v) => Data::Real(self.copied(v, base, images, 0.0)),
            Data::I16(v) => Data::I16(self.copied(v, base, images, 0)),
            Data::I32(v) => Data::I32(self.copied(v, base, images, 0)),
            Data::I64(v) => Data::I64(self.copied(v, base, images, 0)),
        })
    }

    fn copied<T: Copy + Send + Sync>(&self, source: &[T], base: usize, images: usize, zero: T) -> Vec<T> {
        let (outer, line) = self.shape.split_at(self.shape.len() - 1);
        let (line, step) = (line[0], self.steps[outer.len()]);
        let mut out = vec![zero; self.shape.iter().product::<usize>() * images];
        out.par_chunks_mut(line * images).enumerate().for_each_init(
            || vec![0; outer.len()],
            |at, (number, out)| {
                coordinates(number, outer, at);
                let offset: isize =
                    at.iter().zip(&self.steps).map(|(&c, s)| c.cast_signed().wrapping_mul(*s)).sum();
                let first = base.wrapping_add_signed(offset);
                match (step, images) {
                    (1, _) => out.copy_from_slice(&source[first * images..][..line * images]),
                    (0, 1) => out.fill(source[first]),
                    (_, 1) => {
                        for (i, out) in out.iter_mut().enumerate() {
                            *out = source[first.wrapping_add_signed(i.cast_signed() * step)];
                        }
                    }
                    _ => {
                        for (i, out) in out.chunks_exact_mut(images).enumerate() {
                            let from = first.wrapping_add_signed(i.cast_signed() * step) * images;
                            out.copy_from_slice(&source[from..from + images]);
                        }
                    }
                }
            },
        );
        out
    }
}

/// Runs one of the moving operations.
///
/// # Errors
/// [`OperandError`] when an operand holds no values, or the operation does not fit its operands.
pub(super) fn run(op: &Op, tensors: &[Tensor], values: &Values<'_>) -> Result<Data, OperandError> {
    let operands: Vec<&Tensor> = op.inputs.iter().map(|&t| &tensors[t]).collect();
    let map = Map::new(&op.kind, &operands, &tensors[op.output])?;
    let constant = match op.kind {
        OpKind::Pad { value, .. } => value,
        _ => 0.0,
    };
    if let (Map::Strided { base, steps }, 1) = (&map, op.inputs.len()) {
        let source = operand(op, 0, tensors, values)?;
        let output = &tensors[op.output];
        // Integers that are stored wider than before are copied row by row.
        let alike = source.storage() == Storage::of(output);
        let lines = alike.then(|| Lines::new(&output.shape, steps));
        if let Some(moved) = lines.and_then(|l| l.copy(source, *base, values.images)) {
            return Ok(moved);
        }
    }
    let held =
        (0..op.inputs.len()).map(|i| operand(op, i, tensors, values)).collect::<Result<Vec<_>, _>>()?;
    Ok(each_row(&tensors[op.output], values.images, |_, at, row, scratch| match map.source(at) {
        Some((operand, element)) => row.copy_from(held[operand], element * values.images, scratch),
        None => row.fill(constant),
    }))
}
