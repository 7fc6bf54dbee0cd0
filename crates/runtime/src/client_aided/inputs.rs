//! What users hand in and get back.

use crate::error::InputError;
use crate::plan::Plan;
use crate::program::InputData;

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

/// Inputs in the order of the plan, and the number of images.
pub(crate) fn check<'a, 'b>(
    plan: &Plan,
    inputs: &'b [Input<'a>],
) -> Result<(Vec<&'b Input<'a>>, usize), InputError> {
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
