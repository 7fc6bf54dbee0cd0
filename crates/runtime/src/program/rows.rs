//! Execution of row programs: elementwise operations on one feature's images at a time.

use super::compile::{Register, RowProgram, Step};
use super::kernels;
use super::values::{Data, RowMut, Slot, Storage, Values};
use super::{Marks, Monitor};
use crate::plan::{OpKind, Tensor};
use rayon::prelude::*;

/// Images that a row program works on at a time: its registers stay in the first-level cache.
const CHUNK: usize = 512;
/// Features whose network inputs are transposed together.
const GROUP: usize = 16;
/// Values of one piece of tensors of few images.
const PIECE: usize = CHUNK * GROUP;
/// Distance of their rows: not a multiple of 4 KiB, which would put all on the same lines of the first-level cache.
const STRIDE: usize = CHUNK + 8;

/// Registers of one thread.
pub(crate) struct RowScratch<'a> {
    real: Vec<Vec<f64>>,
    fixed: Vec<Vec<i64>>,
    inputs: Vec<Vec<f64>>,
    marks: Marks<'a>,
}

/// A row program bound to the tensors of a block.
pub(crate) struct RowRunner<'a> {
    pub program: &'a RowProgram,
    pub values: &'a Values<'a>,
    pub monitor: &'a Monitor,
    /// Tensor whose rows are handed to [`RowRunner::run`] instead of being loaded.
    pub given: Option<usize>,
}

impl<'a> RowRunner<'a> {
    pub(crate) fn scratch(&self) -> RowScratch<'a> {
        let inputs = self
            .program
            .loads
            .iter()
            .filter(|(t, _)| matches!(self.values.slots[*t], Slot::Input(_)))
            .count();
        RowScratch {
            real: vec![vec![0.0; CHUNK]; self.program.real_registers],
            fixed: vec![vec![0; CHUNK]; self.program.fixed_registers],
            inputs: vec![vec![0.0; STRIDE * GROUP]; inputs],
            marks: self.monitor.marks(),
        }
    }

    /// Runs the program on `outputs.len() / stores` features from `feature` on; `outputs` are the rows of the stores
    /// of one feature after the other.
    pub(crate) fn run(
        &self,
        scratch: &mut RowScratch<'_>,
        feature: usize,
        given: &[i64],
        outputs: &mut [RowMut<'_>],
    ) {
        let per_feature = self.program.stores.len().max(1);
        let features = outputs.len() / per_feature;
        for start in (0..self.values.images).step_by(CHUNK) {
            let count = CHUNK.min(self.values.images - start);
            self.transpose_inputs(scratch, feature, features, (start, count));
            for (i, rows) in outputs.chunks_mut(per_feature).enumerate() {
                self.load(scratch, feature + i, i, given, (start, count));
                for step in &self.program.steps {
                    self.step(scratch, step, feature + i, (start, count));
                }
                for ((_, register), row) in self.program.stores.iter().zip(rows) {
                    match *register {
                        Register::Real(r) => row.write_real(start, &scratch.real[r][..count]),
                        Register::Fixed(r) => row.write_fixed(start, &scratch.fixed[r][..count]),
                    }
                }
            }
        }
    }

    /// Runs the program on values `start..end` of all tensors, which lie feature by feature in one piece; `outputs` are these parts of the
    /// stores. For programs that [`Self::in_one_piece`] is true of.
    fn run_piece(
        &self,
        scratch: &mut RowScratch<'_>,
        (start, end): (usize, usize),
        outputs: &mut [RowMut<'_>],
    ) {
        for at in (start..end).step_by(CHUNK) {
            let count = CHUNK.min(end - at);
            self.load(scratch, 0, 0, &[], (at, count));
            for step in &self.program.steps {
                self.step(scratch, step, 0, (at, count));
            }
            for ((_, register), row) in self.program.stores.iter().zip(&mut *outputs) {
                match *register {
                    Register::Real(r) => row.write_real(at - start, &scratch.real[r][..count]),
                    Register::Fixed(r) => row.write_fixed(at - start, &scratch.fixed[r][..count]),
                }
            }
        }
    }

    /// Whether no step asks for the feature that it works on, and all operands lie feature by feature.
    fn in_one_piece(&self) -> bool {
        let of_channels = |s: &Step| matches!(s.kind, OpKind::Prelu { .. } | OpKind::ChannelScale { .. });
        let laid = |t: usize| matches!(self.values.slots[t], Slot::Data(_));
        !self.program.steps.iter().any(of_channels) && self.program.loads.iter().all(|(t, _)| laid(*t))
    }

    fn transpose_inputs(
        &self,
        scratch: &mut RowScratch<'_>,
        feature: usize,
        features: usize,
        range: (usize, usize),
    ) {
        let views = self.program.loads.iter().filter_map(|(t, _)| match &self.values.slots[*t] {
            Slot::Input(view) => Some(view),
            _ => None,
        });
        for (view, buffer) in views.zip(&mut scratch.inputs) {
            view.transpose(feature, range, &mut buffer[..features * STRIDE], STRIDE);
        }
    }

    fn load(
        &self,
        scratch: &mut RowScratch<'_>,
        feature: usize,
        in_group: usize,
        given: &[i64],
        (start, count): (usize, usize),
    ) {
        let at = feature * self.values.images + start;
        let mut inputs = scratch.inputs.iter();
        for &(tensor, register) in &self.program.loads {
            match (&self.values.slots[tensor], register) {
                (_, Register::Fixed(r)) if self.given == Some(tensor) => {
                    scratch.fixed[r][..count].copy_from_slice(&given[start..start + count]);
                }
                (Slot::Data(Data::Real(v)), Register::Real(r)) => {
                    scratch.real[r][..count].copy_from_slice(&v[at..at + count]);
                }
                (Slot::Data(data), Register::Fixed(r)) => data.read_fixed(at, &mut scratch.fixed[r][..count]),
                (Slot::Input(_), Register::Real(r)) => {
                    if let Some(buffer) = inputs.next() {
                        let row = &buffer[in_group * STRIDE..];
                        scratch.real[r][..count].copy_from_slice(&row[..count]);
                        let at = (feature, start);
                        scratch.marks.saturate((tensor, f64::MAX), at, &mut scratch.real[r][..count]);
                    }
                }
                // The plan was checked: loaded tensors exist and have their kind.
                _ => {}
            }
        }
    }

    fn step(
        &self,
        scratch: &mut RowScratch<'_>,
        step: &Step,
        feature: usize,
        (start, count): (usize, usize),
    ) {
        let RowScratch { real, fixed, marks, .. } = scratch;
        match (&step.kind, step.inputs.as_slice(), step.output) {
            (OpKind::Dequantize {}, &[Register::Fixed(i)], Register::Real(o)) => {
                let (scale, bound) = step.fixed.unwrap_or((1.0, u64::MAX));
                let kernel = if bound < 1 << 50 { kernels::dequantize } else { kernels::dequantize_wide };
                kernel(&fixed[i][..count], scale, &mut real[o][..count]);
            }
            (OpKind::Quantize {}, &[Register::Real(i)], Register::Fixed(o)) => {
                let (scale, bound) = step.fixed.unwrap_or((1.0, 0));
                let (x, out) = (&real[i][..count], &mut fixed[o][..count]);
                marks.quantize((step.tensor, scale, bound), (feature, start), x, out);
            }
            (kind, inputs, Register::Real(o)) => {
                // Registers are assigned once, in order: operands lie before the result.
                let (before, after) = real.split_at_mut(o);
                let out = &mut after[0][..count];
                let operand = |i: usize| match inputs.get(i) {
                    Some(&Register::Real(r)) => &before[r][..count],
                    _ => &[],
                };
                elementwise(kind, operand(0), operand(1), feature / step.channel.max(1), out);
                if !keeps_finite(kind) {
                    marks.saturate((step.tensor, f64::MAX), (feature, start), out);
                }
            }
            _ => {}
        }
    }
}

/// Whether finite operands always give finite results.
fn keeps_finite(kind: &OpKind) -> bool {
    matches!(
        kind,
        OpKind::Relu {}
            | OpKind::Clip { .. }
            | OpKind::Abs {}
            | OpKind::Neg {}
            | OpKind::Minimum {}
            | OpKind::Maximum {}
            | OpKind::Sigmoid {}
            | OpKind::Tanh {}
            | OpKind::Erf {}
            | OpKind::Sin {}
            | OpKind::Cos {}
            | OpKind::Atan {}
            | OpKind::Floor {}
            | OpKind::Round {}
            | OpKind::Less {}
            | OpKind::Equal {}
    )
}

/// The value of a channel, out of one or one for every channel (the plan was checked).
fn of_channel(values: &[f64], channel: usize) -> f64 {
    values.get(channel).or(values.first()).copied().unwrap_or(1.0)
}

fn elementwise(kind: &OpKind, x: &[f64], y: &[f64], channel: usize, out: &mut [f64]) {
    match kind {
        OpKind::Affine { mul, add } => kernels::affine(x, *mul, *add, out),
        OpKind::Add {} => kernels::add(x, y, out),
        OpKind::Sub {} => kernels::sub(x, y, out),
        OpKind::Mul {} => kernels::mul(x, y, out),
        OpKind::Div {} => kernels::div(x, y, out),
        OpKind::Minimum {} => kernels::minimum(x, y, out),
        OpKind::Maximum {} => kernels::maximum(x, y, out),
        OpKind::Relu {} => kernels::relu(x, out),
        OpKind::LeakyRelu { alpha } => kernels::leaky_relu(x, *alpha, out),
        OpKind::Prelu { slope } => kernels::prelu(x, of_channel(slope, channel), out),
        OpKind::ChannelScale { factor } => kernels::times(x, of_channel(factor, channel), out),
        OpKind::Clip { min, max } => {
            kernels::clip(x, min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY), out);
        }
        OpKind::Abs {} => kernels::abs(x, out),
        OpKind::Neg {} => kernels::neg(x, out),
        OpKind::Sqrt {} => kernels::sqrt(x, out),
        OpKind::Square {} => kernels::square(x, out),
        OpKind::Sigmoid {} => kernels::sigmoid(x, out),
        OpKind::Tanh {} => kernels::tanh(x, out),
        OpKind::Exp {} => kernels::exp(x, out),
        OpKind::Erf {} => kernels::erf(x, out),
        OpKind::Log {} => kernels::log(x, out),
        OpKind::Sin {} => kernels::sin(x, out),
        OpKind::Cos {} => kernels::cos(x, out),
        OpKind::Atan {} => kernels::atan(x, out),
        OpKind::Floor {} => kernels::floor(x, out),
        OpKind::Round {} => kernels::round(x, out),
        OpKind::Less {} => kernels::less(x, y, out),
        OpKind::Equal {} => kernels::equal(x, y, out),
        OpKind::HardSigmoid { alpha, beta } => kernels::hard_sigmoid(x, *alpha, *beta, out),
        OpKind::HardSwish {} => kernels::hard_swish(x, out),
        OpKind::Silu {} => kernels::silu(x, out),
        OpKind::Gelu {} => kernels::gelu(x, out),
        OpKind::GeluTanh {} => kernels::gelu_tanh(x, out),
        OpKind::Elu { alpha } => kernels::elu(x, *alpha, out),
        // Only elementwise operations are compiled into row programs.
        _ => {}
    }
}

/// Runs a row program on all features of a block and stores its results.
pub(crate) fn run_rows(program: &RowProgram, tensors: &[Tensor], values: &mut Values<'_>, monitor: &Monitor) {
    let images = values.images;
    let mut stored: Vec<Data> = allocate(program, tensors, images);
    {
        let runner = RowRunner { program, values, monitor, given: None };
        let per_feature = program.stores.len().max(1);
        if images < CHUNK && runner.in_one_piece() {
            // rows of few images are short: whole blocks of features are worked on as one row
            let total = program.features * images;
            let mut rows = interleave(&mut stored, PIECE, total.div_ceil(PIECE));
            rows.par_chunks_mut(per_feature).enumerate().for_each_init(
                || runner.scratch(),
                |scratch, (i, rows)| {
                    runner.run_piece(scratch, (i * PIECE, total.min((i + 1) * PIECE)), rows);
                },
            );
        } else {
            let mut rows = interleave(&mut stored, images, program.features);
            rows.par_chunks_mut(per_feature * GROUP).enumerate().for_each_init(
                || runner.scratch(),
                |scratch, (group, rows)| runner.run(scratch, group * GROUP, &[], rows),
            );
        }
    }
    for ((tensor, _), data) in program.stores.iter().zip(stored) {
        values.put(*tensor, data);
    }
}

/// Room for the tensors that a row program stores.
pub(crate) fn allocate(program: &RowProgram, tensors: &[Tensor], images: usize) -> Vec<Data> {
    let room =
        |&(t, _): &(usize, Register)| Data::new(Storage::of(&tensors[t]), tensors[t].elements * images);
    program.stores.iter().map(room).collect()
}

/// The rows of several tensors, feature by feature: all rows of feature 0, all of feature 1, ...
pub(crate) fn interleave(stored: &mut [Data], images: usize, features: usize) -> Vec<RowMut<'_>> {
    let mut iterators: Vec<_> = stored.iter_mut().map(|d| d.rows_mut(images)).collect();
    let mut rows = Vec::with_capacity(iterators.len() * features);
    for _ in 0..features {
        rows.extend(iterators.iter_mut().filter_map(Iterator::next));
    }
    rows
}
