//! Interpreter of the client operations (`docs/plan-format.md`, `docs/functions.md`).
//!
//! Tensors lie [feature][image]. Elementwise operations run feature by feature, so that of a chain only what is
//! read later exists as a whole. Arithmetic is IEEE binary64 in a fixed order: results do not depend on the
//! instruction set or the number of threads.

mod compile;
mod functions;
mod kernels;
mod moves;
mod rows;
mod values;
mod whole;

#[cfg(test)]
mod tests;

pub use values::InputData;

pub(crate) use compile::{compile, peak_bytes, Segment, SegmentKind, StageProgram};
pub use moves::Moves;
pub(crate) use rows::{allocate, interleave, RowRunner};
pub(crate) use values::{Data, InputView, RowMut, Slot, Storage, Values};

use crate::plan::{ClientStage, Plan, Tensor, TensorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A value outside the planned range, or no number: the client stops instead of computing a wrong answer.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeError {
    /// Stage that computed the value.
    pub stage: String,
    /// Tensor that it belongs to.
    pub tensor: String,
    /// Image, counted from the first of the whole input.
    pub image: usize,
    /// Position in the tensor, row-major.
    pub element: usize,
    /// The value, before rounding.
    pub value: f64,
    /// Largest absolute value planned; `None` for NaN and infinity in a real tensor.
    pub bound: Option<f64>,
}

impl std::error::Error for RangeError {}

impl std::fmt::Display for RangeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { stage, tensor, image, element, value, bound } = self;
        write!(f, "layer '{stage}', tensor '{tensor}': image {image}, element {element} is {value}, ")?;
        match bound {
            Some(bound) => write!(
                f,
                "outside the planned range of -{bound} to {bound}; compile with calibration data that covers such inputs, \
                 with a larger calibration margin, or with interval ranges"
            ),
            None => write!(f, "not a finite number; check the input and the layers before (division by zero, root of a negative number, overflow)"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    Range,
    NotFinite,
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    kind: FaultKind,
    tensor: usize,
    feature: usize,
    image: usize,
    value: f64,
}

/// What rows report while they run in parallel: observed ranges and the first fault.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    largest: Vec<AtomicU64>,
    fault: Mutex<Option<Fault>>,
}

impl Monitor {
    pub(crate) fn new(tensors: usize) -> Self {
        Self {
            largest: std::iter::repeat_with(AtomicU64::default).take(tensors).collect(),
            fault: Mutex::default(),
        }
    }

    /// Notes the largest absolute integer of part of a tensor.
    pub(crate) fn see(&self, tensor: usize, largest: u64) {
        self.largest[tensor].fetch_max(largest, Ordering::Relaxed);
    }

    /// Largest absolute value of some integers.
    pub(crate) fn largest_of(x: &[i64]) -> u64 {
        kernels::largest(x)
    }

    /// Largest absolute integer seen of a tensor.
    pub(crate) fn largest(&self, tensor: usize) -> u64 {
        self.largest[tensor].load(Ordering::Relaxed)
    }

    /// Keeps the fault of the first feature and image, whatever the order of threads.
    fn fault(&self, fault: Fault) {
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none_or(|f| (fault.feature, fault.image) < (f.feature, f.image)) {
            *first = Some(fault);
        }
    }

    /// The first fault as an error.
    pub(crate) fn check(&self, stage: &str, tensors: &[Tensor]) -> Result<(), RangeError> {
        match *self.fault.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(fault) => {
                let tensor = &tensors[fault.tensor];
                let bound = match (tensor.kind, fault.kind) {
                    (TensorKind::Fixed { scale, bound }, FaultKind::Range) => Some(bound as f64 * scale),
                    _ => None,
                };
                Err(RangeError {
                    stage: stage.to_owned(),
                    tensor: tensor.name.clone(),
                    image: fault.image,
                    element: fault.feature,
                    value: fault.value,
                    bound,
                })
            }
        }
    }
}

/// Runs the segments of a client stage from `first` on, freeing what is not read again.
pub(crate) fn run_client(
    plan: &Plan,
    stage: (usize, &ClientStage),
    first: usize,
    values: &mut Values<'_>,
    monitor: &Monitor,
) -> Result<(), RangeError> {
    let StageProgram::Client(segments) = plan.program(stage.0) else { return Ok(()) };
    for segment in segments.iter().skip(first) {
        match &segment.kind {
            SegmentKind::Rows(program) => rows::run_rows(program, plan.tensors(), values, monitor),
            SegmentKind::Whole(op) => whole::run(&stage.1.ops[*op], plan.tensors(), values, monitor),
        }
        monitor.check(&stage.1.name, plan.tensors())?;
        segment.free.iter().for_each(|&t| values.free(t));
    }
    Ok(())
}

/// Values of an output tensor as reals, image by image, written to `out[image][element]`.
pub(crate) fn read_output(tensors: &[Tensor], tensor: usize, values: &Values<'_>, out: &mut [f64]) {
    let (elements, images) = (tensors[tensor].elements, values.images);
    let scale = match tensors[tensor].kind {
        TensorKind::Fixed { scale, .. } => scale,
        TensorKind::Real => 1.0,
    };
    for feature in 0..elements {
        for image in 0..images {
            let i = feature * images + image;
            out[image * elements + feature] = match &values.slots[tensor] {
                Slot::Data(Data::Real(v)) => v[i],
                Slot::Data(Data::I16(v)) => f64::from(v[i]) * scale,
                Slot::Data(Data::I32(v)) => f64::from(v[i]) * scale,
                Slot::Data(Data::I64(v)) => v[i] as f64 * scale,
                Slot::Input(view) => view.data.get((view.first + image) * elements + feature),
                Slot::Empty => f64::NAN,
            };
        }
    }
}
