//! The intermediate form between a network and its evaluation.

use super::diagonals::{period, Form, Rotations, Split};
use super::layout::Layout;
use super::spec::Linear;

/// A ciphertext that the client sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Value that it is part of.
    pub value: usize,
    /// Input element of every slot, or `layout::EMPTY`.
    pub slots: Vec<u32>,
}

/// A value: the ciphertexts of a tensor (or of copies that the client sends for one layer).
#[derive(Clone, Debug)]
pub struct Value {
    /// Tensor's name.
    pub name: String,
    /// Declared bound.
    pub bound: f64,
    /// Usual magnitude.
    pub usual: f64,
    /// Level; set by the planner (`plan`).
    pub level: usize,
    /// Operations that read it.
    pub uses: usize,
    /// Number of ciphertexts.
    pub cts: usize,
    /// Slots after which its content repeats.
    pub period: usize,
    /// What stands in slots of no element.
    pub idle: f64,
}

/// How the slots of a linear operation meet its weights.
#[derive(Clone, Debug)]
pub enum Method {
    /// Rotations of the input.
    Rotate {
        /// Layout of the input.
        input: Layout,
        /// Layout of the output and folding.
        form: Form,
        /// Baby and giant steps.
        split: Split,
    },
    /// The client sent the input once for every term, each already where it is needed: no rotation but `folds`.
    Replicated {
        /// Per output ciphertext, the output element of every slot (of its first copy, see `copies`).
        outputs: Vec<Vec<u32>>,
        /// Terms side by side in one ciphertext: a power of two.
        copies: usize,
        /// Layout of one member of the result.
        layout: Layout,
    },
}

/// A linear operation of a circuit: method, rotations, terms.
#[derive(Clone)]
pub struct LinearOp {
    /// Position of the step's name.
    pub name: String,
    /// Value read.
    pub input: usize,
    /// Value written.
    pub output: usize,
    /// The map.
    pub map: Linear,
    /// How.
    pub method: Method,
    /// Rotations and products.
    pub rotations: Rotations,
    /// Rotations of partial results.
    pub folds: Vec<i64>,
    /// Level of the input when it is used; set with the levels.
    pub level: usize,
    /// Scale of the result.
    pub scale: f64,
    /// Declared bound of the result.
    pub bound: f64,
    /// Usual magnitude of the result.
    pub usual: f64,
    /// Largest `sum |w|` and `sqrt(sum w^2)` of a row.
    pub norms: (f64, f64),
    /// Largest weight.
    pub largest: f64,
}

impl LinearOp {
    /// Of a map, with everything else to be filled in.
    #[must_use]
    pub(super) fn new(map: Linear) -> Self {
        let norms = map.row_norms();
        let largest = map.weights.iter().fold(0.0f64, |m, w| m.max(w.abs()));
        Self {
            name: String::new(),
            input: 0,
            output: 0,
            map,
            method: Method::Replicated { outputs: Vec::new(), copies: 1, layout: Layout::flat(1, 1) },
            rotations: Rotations { inputs: Vec::new(), outputs: Vec::new() },
            folds: Vec::new(),
            level: 0,
            scale: 0.0,
            bound: 0.0,
            usual: 0.0,
            norms,
            largest,
        }
    }

    /// Slots after which its plaintexts repeat.
    #[must_use]
    pub(super) fn period(&self) -> usize {
        match &self.method {
            Method::Rotate { input, form, .. } => period(input, form),
            Method::Replicated { layout, .. } => layout.slots(),
        }
    }

    /// Output element of every slot of every output ciphertext.
    #[must_use]
    pub fn output_slots(&self) -> &[Vec<u32>] {
        match &self.method {
            Method::Rotate { form, .. } => &form.layout().cts,
            Method::Replicated { outputs, .. } => outputs,
        }
    }
}

/// By what an error of a value counts in a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// At most, over the planned range.
    pub bound: f64,
    /// Root of the mean square for operands of usual magnitude.
    pub usual: f64,
}

/// An operation of a circuit on encrypted values.
#[derive(Clone)]
pub enum Op {
    /// `W x + b`.
    Linear(Box<LinearOp>),
    /// A polynomial, summed over members: member k's ciphertexts follow those of member k - 1.
    Polynomial {
        /// Step's name.
        name: String,
        /// Value read.
        input: usize,
        /// Value written.
        output: usize,
        /// Ciphertexts to sum after evaluation (a pooling window), 1 for none.
        members: usize,
        /// Lowest power first.
        coefficients: Vec<f64>,
        /// By what an error of the input counts in the result, where the polynomial is one of several in a row (`packed::composite`).
        slope: Option<Slope>,
    },
    /// The same value with levels again.
    Bootstrap {
        /// Name of the value that is bootstrapped, with what happens to it.
        name: String,
        /// Number of the value read, at level 2 at least.
        input: usize,
        /// Number of the value written, at most at a fresh level.
        output: usize,
    },
    /// Sum.
    Add {
        /// Step's name.
        name: String,
        /// Values read.
        inputs: [usize; 2],
        /// Value written.
        output: usize,
    },
    /// Product of a value with what a chain of polynomials makes of it, and a constant.
    Multiply {
        /// Name of the step that it is.
        name: String,
        /// Values read: the chain's operand, its result.
        inputs: [usize; 2],
        /// Number of the value that is written.
        output: usize,
        /// By what an error of the second factor counts in the result; that of the first is in the slopes of the chain.
        slope: Slope,
        /// What is added to every product.
        constant: f64,
    },
}

impl Op {
    /// The ids of the values that it reads, to be changed.
    pub(super) fn inputs_mut(&mut self) -> Vec<&mut usize> {
        match self {
            Op::Linear(l) => vec![&mut l.input],
            Op::Polynomial { input, .. } | Op::Bootstrap { input, .. } => vec![input],
            Op::Add { inputs, .. } | Op::Multiply { inputs, .. } => inputs.iter_mut().collect(),
        }
    }

    /// The id of the value that it writes.
    #[must_use]
    pub fn output(&self) -> usize {
        match self {
            Op::Linear(l) => l.output,
            Op::Polynomial { output, .. }
            | Op::Add { output, .. }
            | Op::Multiply { output, .. }
            | Op::Bootstrap { output, .. } => *output,
        }
    }

    /// The ids of the values that it reads.
    #[must_use]
    pub fn inputs(&self) -> Vec<usize> {
        match self {
            Op::Linear(l) => vec![l.input],
            Op::Polynomial { input, .. } | Op::Bootstrap { input, .. } => vec![*input],
            Op::Add { inputs, .. } | Op::Multiply { inputs, .. } => inputs.to_vec(),
        }
    }

    /// The name of the step that it belongs to.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Op::Linear(l) => &l.name,
            Op::Polynomial { name, .. }
            | Op::Add { name, .. }
            | Op::Multiply { name, .. }
            | Op::Bootstrap { name, .. } => name,
        }
    }
}

/// The operations of a circuit, before parameters are chosen.
#[derive(Clone)]
pub struct Program {
    /// Values.
    pub values: Vec<Value>,
    /// Operations in order.
    pub ops: Vec<Op>,
    /// What the client sends, in order.
    pub uploads: Vec<Upload>,
    /// Value of the result.
    pub output: usize,
    /// Layout of the result.
    pub output_layout: Layout,
    /// The scale of linear results.
    pub scale: f64,
    /// Slots of a ciphertext.
    pub slots: usize,
    /// Data primes of a level: 1, or more where a scale is wider than a prime.
    pub width: usize,
}
