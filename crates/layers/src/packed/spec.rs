//! Networks: an unchecked specification, a checked network, exact evaluation of it.

use super::composite::Chain;
use super::PackedError;
use crate::batch::Geometry;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Highest degree of a polynomial.
pub const MAX_DEGREE: usize = 31;

/// A tensor of one image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    /// Number by which steps name it.
    pub id: usize,
    /// For people.
    pub name: String,
    /// Sizes, row-major, channels first.
    pub shape: Vec<usize>,
    /// Bound of |value|: of the input checked, of others trusted (from calibration or interval arithmetic).
    pub bound: f64,
    /// Largest root mean square of an element over usual inputs, for the expected error; the bound where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual: Option<f64>,
}

/// A step, inputs before outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum StepSpec {
    /// `out = W in + b`.
    Linear {
        /// For people.
        name: String,
        /// Input tensor.
        #[serde(rename = "in")]
        input: usize,
        /// Output tensor.
        #[serde(rename = "out")]
        output: usize,
        /// Dense or convolution (`docs/plan-format.md`).
        geometry: Geometry,
        /// Name of the weights.
        weights: String,
        /// Name of the biases, one a row or output channel, or one an output element.
        #[serde(default)]
        bias: Option<String>,
    },
    /// `out = sum_k coefficients[k] in^k`, elementwise.
    Polynomial {
        /// For people.
        name: String,
        /// Input tensor.
        #[serde(rename = "in")]
        input: usize,
        /// Output tensor.
        #[serde(rename = "out")]
        output: usize,
        /// Lowest power first.
        coefficients: Vec<f64>,
        /// |in| for which the polynomial was made.
        #[serde(default)]
        range: Option<f64>,
    },
    /// `out = in[0] + in[1]`.
    Add {
        /// For people.
        name: String,
        /// Input tensors.
        #[serde(rename = "in")]
        inputs: [usize; 2],
        /// Output tensor.
        #[serde(rename = "out")]
        output: usize,
    },
    /// `out = a b + constant` of both operands, elementwise, where b is made of a by polynomials one after the other.
    Multiply {
        /// Name of the step, for people.
        name: String,
        /// The chain's operand, and what the chain makes of it.
        #[serde(rename = "in")]
        inputs: [usize; 2],
        /// Tensor that holds product and constant.
        #[serde(rename = "out")]
        output: usize,
        /// What is added to every product.
        #[serde(default)]
        constant: f64,
    },
}

/// A network as it comes from a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphSpec {
    /// Tensor that the client sends.
    pub input: usize,
    /// Tensor that the client gets.
    pub output: usize,
    /// All tensors.
    pub tensors: Vec<TensorSpec>,
    /// Steps in order.
    pub steps: Vec<StepSpec>,
}

/// A linear step whose shapes were checked.
#[derive(Clone)]
pub struct Linear {
    /// Shape.
    pub geometry: Geometry,
    /// Row-major weights.
    pub weights: Arc<Vec<f64>>,
    /// One an output channel or row, or one an output element; empty without.
    pub bias: Arc<Vec<f64>>,
    /// Whether weights of zero count as terms, so that what a client sees does not tell which they are.
    pub every: bool,
}

/// A checked step; tensors by position in [`Network::tensors`].
#[derive(Clone)]
pub enum Step {
    /// See [`StepSpec::Linear`].
    Linear {
        /// Input tensor.
        input: usize,
        /// Output tensor.
        output: usize,
        /// The map.
        map: Linear,
    },
    /// See [`StepSpec::Polynomial`]; the last coefficient is not zero.
    Polynomial {
        /// Input tensor.
        input: usize,
        /// Output tensor.
        output: usize,
        /// Lowest power first.
        coefficients: Vec<f64>,
        /// Range that it was made for.
        range: f64,
    },
    /// See [`StepSpec::Add`].
    Add {
        /// Input tensors.
        inputs: [usize; 2],
        /// Output tensor.
        output: usize,
    },
    /// A product with what a chain of polynomials makes, see [`StepSpec::Multiply`].
    Multiply {
        /// The chain's operand, and what the chain makes of it.
        inputs: [usize; 2],
        /// Tensor that holds product and constant.
        output: usize,
        /// What is added to every product.
        constant: f64,
    },
}

impl Step {
    /// The ids of its input tensors.
    #[must_use]
    pub fn inputs(&self) -> Vec<usize> {
        match self {
            Step::Linear { input, .. } | Step::Polynomial { input, .. } => vec![*input],
            Step::Add { inputs, .. } | Step::Multiply { inputs, .. } => inputs.to_vec(),
        }
    }

    /// The id of its output tensor.
    #[must_use]
    pub fn output(&self) -> usize {
        match self {
            Step::Linear { output, .. }
            | Step::Polynomial { output, .. }
            | Step::Add { output, .. }
            | Step::Multiply { output, .. } => *output,
        }
    }
}

/// A tensor of a checked network.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// For people.
    pub name: String,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Bound of |value|.
    pub bound: f64,
    /// Largest root mean square of an element.
    pub usual: f64,
}

impl Tensor {
    /// The number of elements of the tensor.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
    /// Whether there are none (never in a checked network).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Channels, height, width: a vector counts as channels.
    #[must_use]
    pub fn chw(&self) -> [usize; 3] {
        match *self.shape.as_slice() {
            [c, h, w] => [c, h, w],
            _ => [self.len(), 1, 1],
        }
    }
}

/// A network that was checked; it does not change.
#[derive(Clone)]
pub struct Network {
    /// Tensors.
    pub tensors: Vec<Tensor>,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Names of the steps.
    pub names: Vec<String>,
    /// Input tensor.
    pub input: usize,
    /// Output tensor.
    pub output: usize,
}

fn step_error(step: &str, why: impl Into<String>) -> PackedError {
    PackedError::Step { step: step.to_owned(), why: why.into() }
}

fn outputs_of(geometry: &Geometry) -> usize {
    match geometry {
        Geometry::Dense(d) => d.outputs,
        Geometry::Conv2d(c) => c.output.iter().product(),
    }
}

impl Linear {
    /// Number of inputs and outputs.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        let inputs = match &self.geometry {
            Geometry::Dense(d) => d.inputs,
            Geometry::Conv2d(c) => c.input.iter().product(),
        };
        (inputs, outputs_of(&self.geometry))
    }

    /// Calls `each(tap, input, weight)` for the terms of output `f`; `tap` is the term's position among all terms of a
    /// row, those in the padding included.
    pub fn row(&self, f: usize, mut each: impl FnMut(usize, usize, f64)) {
        match &self.geometry {
            Geometry::Dense(d) => {
                for (g, w) in self.weights[f * d.inputs..(f + 1) * d.inputs].iter().enumerate() {
                    each(g, g, *w);
                }
            }
            Geometry::Conv2d(c) => {
                let [_, h, w] = c.input;
                let [_, oh, ow] = c.output;
                let (o, y, x) = (f / (oh * ow), f / ow % oh, f % ow);
                let [kh, kw] = c.kernel;
                let per_group = c.group_inputs();
                let first = o / c.group_outputs() * per_group;
                for i in 0..kh {
                    let Some(row) = c.source(0, y, i) else { continue };
                    for j in 0..kw {
                        let Some(column) = c.source(1, x, j) else { continue };
                        for z in 0..per_group {
                            let tap = (z * kh + i) * kw + j;
                            let weight = self.weights[o * per_group * kh * kw + tap];
                            each(tap, ((first + z) * h + row) * w + column, weight);
                        }
                    }
                }
            }
        }
    }

    /// Terms of a row, padding included.
    #[must_use]
    pub fn taps(&self) -> usize {
        self.geometry.terms()
    }

    /// The bias of output `f`, zero where there is none.
    #[must_use]
    pub fn bias_of(&self, f: usize) -> f64 {
        let outputs = self.sizes().1;
        if self.bias.is_empty() {
            0.0
        } else {
            self.bias[f / (outputs / self.bias.len())]
        }
    }

    /// Largest `sum |w|` and largest `sqrt(sum w^2)` of a row.
    #[must_use]
    pub fn row_norms(&self) -> (f64, f64) {
        let taps = self.taps();
        self.weights.chunks(taps.max(1)).fold((0.0f64, 0.0f64), |(one, two), row| {
            let l1: f64 = row.iter().map(|w| w.abs()).sum();
            let l2: f64 = row.iter().map(|w| w * w).sum();
            (one.max(l1), two.max(l2.sqrt()))
        })
    }

    /// The exact result of the step in doubles.
    #[must_use]
    pub fn apply(&self, x: &[f64]) -> Vec<f64> {
        (0..self.sizes().1)
            .map(|f| {
                let mut sum = self.bias_of(f);
                self.row(f, |_, g, w| sum += w * x[g]);
                sum
            })
            .collect()
    }
}

/// The polynomial `sum_k c_k x^k` by Horner's rule.
#[must_use]
pub fn horner(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

struct Checker<'a> {
    positions: BTreeMap<usize, usize>,
    tensors: Vec<Tensor>,
    arrays: &'a BTreeMap<String, Vec<f64>>,
    known: Vec<bool>,
}

impl Checker<'_> {
    fn read(&self, step: &str, id: usize) -> Result<usize, PackedError> {
        let at = *self
            .positions
            .get(&id)
            .ok_or_else(|| step_error(step, format!("tensor {id} does not exist")))?;
        if !self.known[at] {
            return Err(step_error(
                step,
                format!("tensor '{}' is read before it is computed", self.tensors[at].name),
            ));
        }
        Ok(at)
    }

    fn write(&mut self, step: &str, id: usize) -> Result<usize, PackedError> {
        let at = *self
            .positions
            .get(&id)
            .ok_or_else(|| step_error(step, format!("tensor {id} does not exist")))?;
        if self.known[at] {
            return Err(step_error(step, format!("tensor '{}' is computed twice", self.tensors[at].name)));
        }
        self.known[at] = true;
        Ok(at)
    }

    fn array(&self, step: &str, name: &str, expected: usize) -> Result<Arc<Vec<f64>>, PackedError> {
        let values =
            self.arrays.get(name).ok_or_else(|| step_error(step, format!("there is no array '{name}'")))?;
        if values.len() != expected {
            return Err(step_error(
                step,
                format!("array '{name}' has {} values, its geometry needs {expected}", values.len()),
            ));
        }
        if let Some(i) = values.iter().position(|v| !v.is_finite()) {
            return Err(step_error(step, format!("value {i} of array '{name}' is not finite")));
        }
        Ok(Arc::new(values.clone()))
    }

    fn step(&mut self, spec: &StepSpec) -> Result<(String, Step), PackedError> {
        match spec {
            StepSpec::Linear { name, input, output, geometry, weights, bias } => {
                let input = self.read(name, *input)?;
                let weights = self.array(name, weights, geometry.weights())?;
                let bias = match bias {
                    // One an output channel or row, or one an output element.
                    Some(b) => match self.arrays.get(b) {
                        Some(v) if v.len() == outputs_of(geometry) => self.array(name, b, v.len())?,
                        _ => self.array(name, b, geometry.biases())?,
                    },
                    None => Arc::new(Vec::new()),
                };
                let map = Linear { geometry: *geometry, weights, bias, every: false };
                let output = self.write(name, *output)?;
                let sizes = (self.tensors[input].len(), self.tensors[output].len());
                if sizes != map.sizes() {
                    return Err(step_error(
                        name,
                        format!("its tensors have {sizes:?} elements, its geometry {:?}", map.sizes()),
                    ));
                }
                Ok((name.clone(), Step::Linear { input, output, map }))
            }
            StepSpec::Polynomial { name, input, output, coefficients, range } => {
                let input = self.read(name, *input)?;
                let output = self.write(name, *output)?;
                if self.tensors[input].len() != self.tensors[output].len() {
                    return Err(step_error(name, "its tensors differ in size"));
                }
                let mut coefficients = coefficients.clone();
                while coefficients.last() == Some(&0.0) {
                    coefficients.pop();
                }
                if !(2..=MAX_DEGREE + 1).contains(&coefficients.len())
                    || coefficients.iter().any(|c| !c.is_finite())
                {
                    return Err(step_error(name, format!("a polynomial needs degree 1 to {MAX_DEGREE}")));
                }
                let range = range.unwrap_or(self.tensors[input].bound);
                if !range.is_finite() || range <= 0.0 {
                    return Err(step_error(name, "its range is not a positive number"));
                }
                Ok((name.clone(), Step::Polynomial { input, output, coefficients, range }))
            }
            StepSpec::Add { name, inputs, output } => {
                let inputs = [self.read(name, inputs[0])?, self.read(name, inputs[1])?];
                let output = self.write(name, *output)?;
                if inputs.iter().any(|i| self.tensors[*i].len() != self.tensors[output].len()) {
                    return Err(step_error(name, "its tensors differ in size"));
                }
                Ok((name.clone(), Step::Add { inputs, output }))
            }
            StepSpec::Multiply { name, inputs, output, constant } => {
                let inputs = [self.read(name, inputs[0])?, self.read(name, inputs[1])?];
                let output = self.write(name, *output)?;
                if inputs.iter().any(|i| self.tensors[*i].len() != self.tensors[output].len()) {
                    return Err(step_error(name, "its tensors differ in size"));
                }
                if !constant.is_finite() {
                    return Err(step_error(name, "its constant is not a finite number"));
                }
                Ok((name.clone(), Step::Multiply { inputs, output, constant: *constant }))
            }
        }
    }
}

impl GraphSpec {
    /// Reads the JSON of a plan; nothing is checked but its form.
    ///
    /// # Errors
    /// [`PackedError::Spec`].
    pub fn from_json(json: &str) -> Result<Self, PackedError> {
        serde_json::from_str(json).map_err(|e| PackedError::Spec(e.to_string()))
    }

    /// The checked network with its arrays.
    ///
    /// # Errors
    /// [`PackedError`] naming the step or tensor and what is wrong with it.
    pub fn check(&self, arrays: &BTreeMap<String, Vec<f64>>) -> Result<Network, PackedError> {
        let fail = |why: String| Err(PackedError::Spec(why));
        let mut positions = BTreeMap::new();
        let mut tensors = Vec::new();
        for t in &self.tensors {
            let usual = t.usual.unwrap_or(t.bound).min(t.bound);
            let tensor = Tensor { name: t.name.clone(), shape: t.shape.clone(), bound: t.bound, usual };
            let size = t.shape.iter().try_fold(1usize, |p, s| p.checked_mul(*s)).unwrap_or(usize::MAX);
            if size == 0 || size > 1 << 28 {
                return fail(format!("tensor '{}' has {size} elements; 1 to 2^28 are possible", t.name));
            }
            if !t.bound.is_finite() || t.bound <= 0.0 {
                return fail(format!("tensor '{}' needs a positive bound", t.name));
            }
            if t.usual.is_some_and(|u| !u.is_finite() || u < 0.0) {
                return fail(format!("tensor '{}' has a usual magnitude that is no number", t.name));
            }
            if positions.insert(t.id, tensors.len()).is_some() {
                return fail(format!("tensor number {} comes twice", t.id));
            }
            tensors.push(tensor);
        }
        let known = vec![false; tensors.len()];
        let mut c = Checker { positions, tensors, arrays, known };
        let input = c.write("input", self.input)?;
        let (mut names, mut steps) = (Vec::new(), Vec::new());
        for s in &self.steps {
            let (name, step) = c.step(s)?;
            names.push(name);
            steps.push(step);
        }
        let output = c.read("output", self.output)?;
        if output == input {
            return fail("the output is the input".into());
        }
        let network = Network { tensors: c.tensors, steps, names, input, output };
        for (step, name) in network.steps.iter().zip(&network.names) {
            if matches!(step, Step::Multiply { .. }) && Chain::of(&network, step).is_none() {
                let why = "its second factor must be what polynomials, one read by the next alone, make of its first";
                return Err(step_error(name, why));
            }
        }
        Ok(network)
    }
}

impl Network {
    /// All tensors of one image, exactly (binary64); those that no step computes are empty.
    ///
    /// # Errors
    /// [`PackedError::InputLength`].
    pub fn evaluate(&self, image: &[f64]) -> Result<Vec<Vec<f64>>, PackedError> {
        let expected = self.tensors[self.input].len();
        if image.len() != expected {
            return Err(PackedError::InputLength { expected, got: image.len() });
        }
        let mut values: Vec<Vec<f64>> = vec![Vec::new(); self.tensors.len()];
        values[self.input] = image.to_vec();
        for step in &self.steps {
            let out = match step {
                Step::Linear { input, map, .. } => map.apply(&values[*input]),
                Step::Polynomial { input, coefficients, .. } => {
                    values[*input].iter().map(|x| horner(coefficients, *x)).collect()
                }
                Step::Add { inputs: [a, b], .. } => {
                    values[*a].iter().zip(&values[*b]).map(|(a, b)| a + b).collect()
                }
                Step::Multiply { inputs: [a, b], constant, .. } => {
                    values[*a].iter().zip(&values[*b]).map(|(a, b)| a * b + constant).collect()
                }
            };
            values[step.output()] = out;
        }
        Ok(values)
    }

    /// The network with every weight taken for a term, zero or not.
    #[must_use]
    pub fn with_every_weight(&self) -> Self {
        let mut out = self.clone();
        for step in &mut out.steps {
            if let Step::Linear { map, .. } = step {
                map.every = true;
            }
        }
        out
    }

    /// The result of the product with a chain of polynomials that alone reads a tensor, or the tensor itself.
    #[must_use]
    pub fn behind_products(&self, mut tensor: usize) -> usize {
        loop {
            let product = self.consumers(tensor).into_iter().find_map(|s| match &self.steps[s] {
                Step::Multiply { inputs: [a, _], output, .. } if *a == tensor => Some(*output),
                _ => None,
            });
            match product {
                Some(output) if self.consumers(tensor).len() == 2 => tensor = output,
                _ => return tensor,
            }
        }
    }

    /// Steps that read a tensor.
    #[must_use]
    pub fn consumers(&self, tensor: usize) -> Vec<usize> {
        (0..self.steps.len()).filter(|s| self.steps[*s].inputs().contains(&tensor)).collect()
    }
}
