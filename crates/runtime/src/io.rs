//! What goes into an inference and what comes out, in every trust model: inputs, outputs, progress, marks of values outside of their
//! ranges.

use crate::compute::Compute;
use crate::error::{Error, InputError};
use crate::plan::{OpKind, Plan, Port, Stage, Tensor, TensorKind};
use crate::program::{self, InputData, InputView, RangeError, Slot, Values};
use rayon::prelude::*;
use std::ops::ControlFlow;

/// A named input, shape `[images, ...]`, row-major.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// Name in the plan.
    pub name: &'a str,
    /// Shape with the batch axis first.
    pub shape: Vec<usize>,
    /// The numbers.
    pub data: InputData<'a>,
}

/// A named output, shape `[images, ...]`, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Name in the plan.
    pub name: String,
    /// Shape with the batch axis first.
    pub shape: Vec<usize>,
    /// The numbers.
    pub data: Vec<f64>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Block in work.
    pub block: usize,
    /// Blocks in all.
    pub blocks: usize,
    /// Stage in work.
    pub stage: usize,
    /// Stages in all.
    pub stages: usize,
    /// Name of the stage; `setup` while shared masks are received.
    pub name: &'a str,
    /// Tiles of the stage that are done.
    pub tile: usize,
    /// Tiles of the stage.
    pub tiles: usize,
}

/// Called as a run proceeds; `Break` stops it.
pub type OnProgress<'a> = dyn FnMut(&Progress<'_>) -> ControlFlow<()> + 'a;

/// What an inference gives (outputs, trace), and what left its range on the way.
pub type Marked<T> = (Vec<Output>, T, Option<RangeError>);

/// Inputs in the order of a plan, and the number of images.
pub(crate) type Admitted<'a, 'b> = (Vec<&'b Input<'a>>, usize);

/// Takes in inputs: refuses all that can be refused before anything is sent. `encrypted` are ranges that a plan states beside those of
/// quantised inputs.
pub(crate) fn admit<'a, 'b>(
    plan: &Plan,
    inputs: &'b [Input<'a>],
    encrypted: Vec<Declared<'_>>,
    compute: &Compute,
) -> Result<Admitted<'a, 'b>, Error> {
    let (inputs, images) = check(plan, inputs)?;
    let ranges: Vec<_> = declared(plan).into_iter().chain(encrypted).collect();
    compute.run(|| check_ranges(&inputs, images, &ranges))?;
    Ok((inputs, images))
}

/// Room for the outputs of so many images.
pub(crate) fn room(tensors: &[Tensor], ports: &[Port], images: usize) -> Vec<Output> {
    let shape = |port: &Port| [&[images], tensors[port.tensor].shape.as_slice()].concat();
    let data = |port: &Port| vec![0.0; images * tensors[port.tensor].elements];
    ports.iter().map(|p| Output { name: p.name.clone(), shape: shape(p), data: data(p) }).collect()
}

/// The values of a block of `count` images, the first of which is image `first` of the inputs.
pub(crate) fn load<'a>(
    tensors: &[Tensor],
    ports: &[Port],
    inputs: &[&Input<'a>],
    (first, count): (usize, usize),
) -> Values<'a> {
    let mut values = Values::new(tensors.len(), count);
    for (port, input) in ports.iter().zip(inputs) {
        let features = tensors[port.tensor].elements;
        values.slots[port.tensor] = Slot::Input(InputView { data: input.data, first, features });
    }
    values
}

/// Writes a block's results to their place in the outputs.
pub(crate) fn store(
    tensors: &[Tensor],
    ports: &[Port],
    values: &Values<'_>,
    outputs: &mut [Output],
    (first, count): (usize, usize),
) {
    for (port, output) in ports.iter().zip(outputs) {
        let size = tensors[port.tensor].elements;
        let part = &mut output.data[first * size..(first + count) * size];
        program::read_output(tensors, port.tensor, values, part);
    }
}

/// Inputs in the order of the plan, and the number of images.
fn check<'a, 'b>(plan: &Plan, inputs: &'b [Input<'a>]) -> Result<(Vec<&'b Input<'a>>, usize), InputError> {
    let expected = || plan.inputs().iter().map(|p| format!("'{}'", p.name)).collect::<Vec<_>>().join(", ");
    if let Some(i) = inputs.iter().find(|i| plan.inputs().iter().all(|p| p.name != i.name)) {
        return Err(InputError::Unknown { name: i.name.to_owned(), expected: expected() });
    }
    let mut found = Vec::with_capacity(inputs.len());
    let mut images = None;
    for port in plan.inputs() {
        let input = inputs
            .iter()
            .find(|i| i.name == port.name)
            .ok_or_else(|| InputError::Missing { name: port.name.clone(), expected: expected() })?;
        let shape = &plan.tensors()[port.tensor].shape;
        let elements = crate::plan::elements(&input.shape);
        if input.shape.get(1..) != Some(shape.as_slice()) || elements != Some(input.data.len()) {
            let (name, got) = (port.name.clone(), input.shape.clone());
            return Err(InputError::Shape { name, got, expected: shape.clone() });
        }
        let count = input.shape[0];
        if count == 0 {
            return Err(InputError::Empty { name: port.name.clone() });
        }
        let first = *images.get_or_insert(count);
        if first != count {
            return Err(InputError::Images { name: port.name.clone(), got: count, expected: first });
        }
        check_finite(input, plan.tensors()[port.tensor].elements)?;
        found.push(input);
    }
    Ok((found, images.unwrap_or(0)))
}

fn check_finite(input: &Input<'_>, elements: usize) -> Result<(), InputError> {
    let at = match input.data {
        InputData::F32(v) => v.iter().position(|x| !x.is_finite()),
        InputData::F64(v) => v.iter().position(|x| !x.is_finite()),
    };
    match at {
        None => Ok(()),
        Some(i) => Err(InputError::NotFinite {
            name: input.name.to_owned(),
            image: i / elements,
            element: i % elements,
            value: input.data.get(i),
        }),
    }
}

/// A range that the plan states of an input itself: `|x|`, or `|round_half_even(x / scale)|`, is at most `bound`.
pub(crate) struct Declared<'a> {
    /// Stage that quantises or encrypts the input.
    pub stage: &'a str,
    /// Tensor that is named.
    pub tensor: &'a str,
    /// Index of the input in the plan.
    pub input: usize,
    /// Of the fixed tensor, if it is one.
    pub scale: Option<f64>,
    /// Largest absolute value, in units of `scale`.
    pub bound: f64,
}

/// Which input a tensor is, element by element: inputs themselves and reshaped ones.
pub(crate) fn aliases(plan: &Plan) -> Vec<Option<usize>> {
    let mut alias = vec![None; plan.tensors().len()];
    plan.inputs().iter().enumerate().for_each(|(i, p)| alias[p.tensor] = Some(i));
    for op in plan.stages().iter().flat_map(Stage::ops) {
        if matches!(op.kind, OpKind::Reshape {}) {
            alias[op.output] = alias[op.inputs[0]];
        }
    }
    alias
}

/// Ranges of inputs that are quantised as they are.
fn declared(plan: &Plan) -> Vec<Declared<'_>> {
    let alias = aliases(plan);
    let mut out = Vec::new();
    for stage in plan.stages() {
        for op in stage.ops() {
            let tensor = &plan.tensors()[op.output];
            if let (OpKind::Quantize {}, Some(input), TensorKind::Fixed { scale, bound }) =
                (&op.kind, alias[op.inputs[0]], tensor.kind)
            {
                let (stage, scale) = (stage.name(), Some(scale));
                out.push(Declared { stage, tensor: &tensor.name, input, scale, bound: bound as f64 });
            }
        }
    }
    out
}

/// Refuses inputs outside of a range that the plan states of them, all blocks before the first message of an inference: who waits for
/// the client learns that it has not begun, and nothing else. Only inputs as they are count here. What client operations make of
/// them saturates later: operations are the server's choice, and its plan could ask for any function of the inputs.
///
/// # Errors
/// [`RangeError`] for the first range that inputs leave, with all images that leave any.
fn check_ranges(inputs: &[&Input<'_>], images: usize, ranges: &[Declared<'_>]) -> Result<(), RangeError> {
    let mut first: Option<RangeError> = None;
    let (mut affected, mut values) = (vec![false; images], 0);
    for range in ranges {
        let data = inputs[range.input].data;
        let elements = data.len() / images;
        let inverse = range.scale.map(|s| 1.0 / s);
        let outside = |i: usize| {
            let x = data.get(i);
            let v = inverse.map_or(x, |inverse| (x * inverse).round_ties_even());
            v.is_nan() || v.abs() > range.bound
        };
        let counts: Vec<u64> = (0..images)
            .into_par_iter()
            .map(|image| (image * elements..(image + 1) * elements).map(|i| u64::from(outside(i))).sum())
            .collect();
        affected.iter_mut().zip(&counts).for_each(|(a, c)| *a |= *c > 0);
        values += counts.iter().sum::<u64>();
        let Some(image) = counts.iter().position(|c| *c > 0).filter(|_| first.is_none()) else { continue };
        let element = (0..elements).find(|e| outside(image * elements + e)).unwrap_or(0);
        first = Some(RangeError {
            stage: range.stage.to_owned(),
            tensor: range.tensor.to_owned(),
            image,
            element,
            value: data.get(image * elements + element),
            bound: Some(range.bound * range.scale.unwrap_or(1.0)),
            answer: false,
            affected: Vec::new(),
            values: 0,
        });
    }
    let affected = affected.iter().enumerate().filter(|(_, a)| **a).map(|(image, _)| image).collect();
    let values = u32::try_from(values).unwrap_or(u32::MAX);
    first.map_or(Ok(()), |e| Err(RangeError { affected, values, ..e }))
}
