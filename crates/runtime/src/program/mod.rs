//! Interpreter of the client operations (`docs/plan-format.md`, `docs/functions.md`).
//!
//! Tensors lie `[feature][image]`. Elementwise operations run feature by feature, so that of a chain only what is
//! read later exists as a whole. Arithmetic is IEEE binary64 in a fixed order: results do not depend on the
//! instruction set or the number of threads.

mod circular;
mod compile;
mod functions;
mod kernels;
mod marks;
mod moves;
mod operands;
mod products;
mod rows;
mod values;
mod whole;

#[cfg(test)]
mod tests;

pub use marks::RangeError;
pub use values::InputData;

pub(crate) use compile::{compile, peak_bytes, RowProgram, Segment, SegmentKind, StageProgram};
pub(crate) use marks::{places, Marks, Monitor, Overruns, Place};
pub use moves::Moves;
pub(crate) use rows::{allocate, interleave, RowRunner};
pub(crate) use values::{Data, InputView, RowMut, Slot, Storage, Values};

use crate::error::Error;
use crate::plan::{ClientStage, Plan, Tensor, TensorKind};

/// Runs the segments of a client stage from `first` on, freeing what is not read again. Values outside of their ranges saturate
/// and are marked.
///
/// # Errors
/// An internal error when an operation lacks an operand.
pub(crate) fn run_client(
    plan: &Plan,
    stage: (usize, &ClientStage),
    first: usize,
    values: &mut Values<'_>,
    monitor: &Monitor,
) -> Result<(), Error> {
    let StageProgram::Client(segments) = plan.program(stage.0) else { return Ok(()) };
    for segment in segments.iter().skip(first) {
        match &segment.kind {
            SegmentKind::Rows(program) => rows::run_rows(program, plan.tensors(), values, monitor),
            SegmentKind::Whole(op) => whole::run(&stage.1.ops[*op], plan.tensors(), values, monitor)?,
        }
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
