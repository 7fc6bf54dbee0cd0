//! What goes into an inference and what comes out, in every trust model: inputs, outputs, progress, marks of values outside of their
//! ranges.

use crate::error::InputError;
use crate::plan::{Plan, Port, Tensor};
pub(crate) use crate::program::RangeError;
use crate::program::{self, InputData, InputView, Slot, Values};
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

/// Takes in inputs: refuses all that can be refused before anything is sent.
pub(crate) fn admit<'a, 'b>(plan: &Plan, inputs: &'b [Input<'a>]) -> Result<Admitted<'a, 'b>, InputError> {
    check(plan, inputs)
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

/// Inputs clamped to the ranges that the plan states of them. Every value is compared and clamped in the same steps, whatever it is; what was
/// outside is looked at when the run is over.
pub(crate) struct Limited {
    /// By input in the order of the plan; `None` where the plan states no range.
    data: Vec<Option<Vec<f64>>>,
    outside: Vec<Outside>,
}

/// Values of an input that were outside of its range.
struct Outside {
    name: String,
    range: [f64; 2],
    elements: usize,
    /// By image.
    counts: Vec<u32>,
    /// Position and value of the first; the largest number: none.
    first: (usize, f64),
}

impl Limited {
    /// Of inputs in the order of the plan.
    pub(crate) fn of(plan: &Plan, inputs: &[&Input<'_>], images: usize) -> Self {
        let mut outside = Vec::new();
        let data = plan.inputs().iter().zip(inputs).map(|(port, input)| {
            let range = port.range?;
            let mut values = match input.data {
                InputData::F32(v) => v.iter().map(|x| f64::from(*x)).collect(),
                InputData::F64(v) => v.to_vec(),
            };
            outside.push(Outside::clamp(&port.name, range, &mut values, images));
            Some(values)
        });
        let data = data.collect();
        Self { data, outside }
    }

    /// The inputs to run on: of the clamped values, or as they were given.
    pub(crate) fn inputs<'a>(&'a self, given: &[&Input<'a>]) -> Vec<Input<'a>> {
        let one = |(input, data): (&&Input<'a>, &'a Option<Vec<f64>>)| Input {
            data: data.as_ref().map_or(input.data, |v| InputData::F64(v)),
            ..Input::clone(input)
        };
        given.iter().zip(&self.data).map(one).collect()
    }

    /// The first value outside, and all images that have any.
    pub(crate) fn mark(&self) -> Option<RangeError> {
        self.outside.iter().fold(None, |all, o| RangeError::join(all, o.mark()))
    }
}

impl Outside {
    /// Clamps the values of all images.
    fn clamp(name: &str, range: [f64; 2], values: &mut [f64], images: usize) -> Self {
        let [low, high] = range;
        let elements = (values.len() / images.max(1)).max(1);
        let mut counts = vec![0u32; images];
        let mut first = (usize::MAX, 0.0);
        for (image, (row, count)) in values.chunks_mut(elements).zip(&mut counts).enumerate() {
            for (element, x) in row.iter_mut().enumerate() {
                let outside = (*x < low) | (*x > high);
                *count = count.saturating_add(u32::from(outside));
                first =
                    if outside & (first.0 == usize::MAX) { (image * elements + element, *x) } else { first };
                *x = x.max(low).min(high);
            }
        }
        Self { name: name.to_owned(), range, elements, counts, first }
    }

    fn mark(&self) -> Option<RangeError> {
        let (at, value) = self.first;
        let affected = self.counts.iter().enumerate().filter(|(_, c)| **c > 0).map(|(image, _)| image);
        (at != usize::MAX).then(|| RangeError {
            stage: "input".to_owned(),
            tensor: self.name.clone(),
            image: at / self.elements,
            element: at % self.elements,
            value,
            bound: Some(self.range[1]),
            low: Some(self.range[0]),
            answer: false,
            affected: affected.collect(),
            values: self.counts.iter().fold(0, |a, b| a.saturating_add(*b)),
        })
    }
}
