//! Tensors of one block of images, laid out [feature][image].

use super::kernels;
use crate::plan::{Tensor, TensorKind};

/// Integers or reals, `features * images` of them.
#[derive(Debug)]
pub(crate) enum Data {
    Real(Vec<f64>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
}

/// Storage of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Real,
    I16,
    I32,
    I64,
}

impl Storage {
    pub(crate) fn of(tensor: &Tensor) -> Self {
        match tensor.kind {
            TensorKind::Real => Self::Real,
            TensorKind::Fixed { bound, .. } if i16::try_from(bound).is_ok() => Self::I16,
            TensorKind::Fixed { bound, .. } if i32::try_from(bound).is_ok() => Self::I32,
            TensorKind::Fixed { .. } => Self::I64,
        }
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::I16 => 2,
            Self::I32 => 4,
            Self::Real | Self::I64 => 8,
        }
    }
}

impl Data {
    pub(crate) fn new(storage: Storage, len: usize) -> Self {
        match storage {
            Storage::Real => Self::Real(vec![0.0; len]),
            Storage::I16 => Self::I16(vec![0; len]),
            Storage::I32 => Self::I32(vec![0; len]),
            Storage::I64 => Self::I64(vec![0; len]),
        }
    }

    /// How it is stored.
    pub(crate) fn storage(&self) -> Storage {
        match self {
            Self::Real(_) => Storage::Real,
            Self::I16(_) => Storage::I16,
            Self::I32(_) => Storage::I32,
            Self::I64(_) => Storage::I64,
        }
    }

    /// Slices of so many values, in order: one a feature for as many as there are images. The last one may be shorter.
    pub(crate) fn rows_mut(&mut self, values: usize) -> Box<dyn Iterator<Item = RowMut<'_>> + '_> {
        match self {
            Self::Real(v) => Box::new(v.chunks_mut(values).map(RowMut::Real)),
            Self::I16(v) => Box::new(v.chunks_mut(values).map(RowMut::I16)),
            Self::I32(v) => Box::new(v.chunks_mut(values).map(RowMut::I32)),
            Self::I64(v) => Box::new(v.chunks_mut(values).map(RowMut::I64)),
        }
    }

    /// Part of the integers widened to `i64`.
    pub(crate) fn read_fixed(&self, start: usize, out: &mut [i64]) {
        let range = start..start + out.len();
        match self {
            Self::I16(v) => kernels::widen_i16(&v[range], out),
            Self::I32(v) => kernels::widen_i32(&v[range], out),
            Self::I64(v) => out.copy_from_slice(&v[range]),
            Self::Real(_) => out.fill(0),
        }
    }

    /// Part of the integers as `i32`; tensors that are encrypted fit.
    /// The integer at `i`; 0 of reals.
    pub(crate) fn fixed(&self, i: usize) -> i64 {
        match self {
            Self::I16(v) => i64::from(v[i]),
            Self::I32(v) => i64::from(v[i]),
            Self::I64(v) => v[i],
            Self::Real(_) => 0,
        }
    }

    pub(crate) fn read_i32(&self, start: usize, out: &mut [i32]) {
        let range = start..start + out.len();
        match self {
            Self::I16(v) => out.iter_mut().zip(&v[range]).for_each(|(o, &x)| *o = i32::from(x)),
            Self::I32(v) => out.copy_from_slice(&v[range]),
            Self::I64(_) | Self::Real(_) => out.fill(0),
        }
    }
}

/// One feature's values in an output tensor.
#[derive(Debug)]
pub(crate) enum RowMut<'a> {
    Real(&'a mut [f64]),
    I16(&'a mut [i16]),
    I32(&'a mut [i32]),
    I64(&'a mut [i64]),
}

impl RowMut<'_> {
    /// Writes part of a row of integers that fit.
    pub(crate) fn write_fixed(&mut self, start: usize, x: &[i64]) {
        let range = start..start + x.len();
        match self {
            Self::I16(v) => kernels::narrow_i16(x, &mut v[range]),
            Self::I32(v) => kernels::narrow_i32(x, &mut v[range]),
            Self::I64(v) => v[range].copy_from_slice(x),
            Self::Real(_) => {}
        }
    }

    /// Writes part of a row of reals.
    pub(crate) fn write_real(&mut self, start: usize, x: &[f64]) {
        if let Self::Real(v) = self {
            v[start..start + x.len()].copy_from_slice(x);
        }
    }
}

/// Numbers of a user's input, image by image.
#[derive(Clone, Copy, Debug)]
pub enum InputData<'a> {
    /// binary32.
    F32(&'a [f32]),
    /// binary64.
    F64(&'a [f64]),
}

impl InputData<'_> {
    /// The number of elements, of whichever type.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Whether the number of elements is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn get(&self, i: usize) -> f64 {
        match self {
            Self::F32(v) => f64::from(v[i]),
            Self::F64(v) => v[i],
        }
    }
}

/// A user's input from the first image of the block on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputView<'a> {
    pub data: InputData<'a>,
    /// First image of the block.
    pub first: usize,
    /// Features of an image.
    pub features: usize,
}

impl InputView<'_> {
    /// Features `feature..feature + out.len() / stride` of images `start..start + count` of the block,
    /// written to `out[feature][image]` with the given distance between features.
    pub(crate) fn transpose(
        &self,
        feature: usize,
        (start, count): (usize, usize),
        out: &mut [f64],
        stride: usize,
    ) {
        let at = (self.first + start) * self.features + feature;
        match self.data {
            InputData::F32(v) => kernels::transpose_f32(&v[at..], self.features, count, out, stride),
            InputData::F64(v) => kernels::transpose_f64(&v[at..], self.features, count, out, stride),
        }
    }
}

/// Where a tensor of the block is.
#[derive(Debug)]
pub(crate) enum Slot<'a> {
    Empty,
    Input(InputView<'a>),
    Data(Data),
}

/// The tensors of one block that are alive.
#[derive(Debug)]
pub(crate) struct Values<'a> {
    /// Images of the block.
    pub images: usize,
    /// By tensor index.
    pub slots: Vec<Slot<'a>>,
}

impl Values<'_> {
    pub(crate) fn new(tensors: usize, images: usize) -> Self {
        Self { images, slots: std::iter::repeat_with(|| Slot::Empty).take(tensors).collect() }
    }

    /// Makes a user's input real data, for operations that need it whole.
    pub(crate) fn materialise(&mut self, tensor: usize) {
        const GROUP: usize = 8;
        let Slot::Input(view) = &self.slots[tensor] else { return };
        let (view, images) = (*view, self.images);
        let mut data = vec![0.0; view.features * images];
        use rayon::prelude::*;
        data.par_chunks_mut(GROUP * images)
            .enumerate()
            .for_each(|(i, out)| view.transpose(i * GROUP, (0, images), out, images));
        self.slots[tensor] = Slot::Data(Data::Real(data));
    }

    pub(crate) fn data(&self, tensor: usize) -> Option<&Data> {
        match &self.slots[tensor] {
            Slot::Data(d) => Some(d),
            _ => None,
        }
    }

    pub(crate) fn put(&mut self, tensor: usize, data: Data) {
        self.slots[tensor] = Slot::Data(data);
    }

    pub(crate) fn free(&mut self, tensor: usize) {
        self.slots[tensor] = Slot::Empty;
    }
}
