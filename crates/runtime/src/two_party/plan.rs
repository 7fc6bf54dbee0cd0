//! The checked two-party plan.

use super::elementwise::Function;
use super::hard_swish::HardSwish;
use super::matrix_product::Matrices;
use super::methods::{Method, Placed};
use super::product::Product;
use crate::plan::spec::{PlanSpec, Protocol, Reveal, Trust};
use crate::plan::{self, Checked, Files, GeometrySpec, LinearWeights, Model, Plan, PlanError, PlanOptions};
use crate::program::Moves;
use hushnet_mpc::{PoolShape, Range, Ring, Rounding, Slope};
use std::sync::Arc;

/// What a stage of a two-party plan computes.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Operations of the client in the clear: index of the stage in `TwoPartyPlan::client`.
    Client(usize),
    /// The client's integers become shares.
    Share,
    /// A linear layer.
    Linear(Box<Linear>),
    /// `max(x, 0)`.
    Relu,
    /// `x < 0 ? floor(slope x) : x`, perhaps one unit more.
    LeakyRelu {
        /// Slope.
        slope: Slope,
        /// What is known of the scaled value.
        range: Range,
    },
    /// `min(max(x, low), high)`.
    Clip {
        /// Whether low is zero.
        from_zero: bool,
        /// low and high, absent in a public part.
        ends: Option<(i64, i64)>,
        /// k: what is compared, a value less an end, is below 2^k in absolute value.
        reach: u32,
    },
    /// Arithmetic shift right.
    Truncate {
        /// Bits dropped.
        bits: u32,
        /// What is known of the value.
        range: Range,
        /// `Floor` where the result is opened.
        rounding: Rounding,
    },
    /// Maxima of windows; the shape is that of one image.
    MaxPool(PoolShape),
    /// Sums of windows.
    SumPool(Window),
    /// Product with a public integer.
    Scale(u64),
    /// Sum of two tensors.
    Add,
    /// `by + x` or `by - x`: the server adds the constant to its share.
    Shift {
        /// The constant, absent in a public part.
        by: Option<i64>,
        /// Whether x changes its sign.
        negated: bool,
    },
    /// x min(max(x + T, 0), 2 T).
    HardSwish(HardSwish),
    /// A function of one variable, of every element.
    Function(Box<Function>),
    /// Product of two tensors, or a square.
    Product(Box<Product>),
    /// Products of two tensors of matrices, both shared.
    MatrixProduct(Box<Matrices>),
    /// Elements elsewhere; `None`: all stay where they are.
    Move(Option<Arc<Moves>>),
    /// Opened to the client.
    Reveal(Reveal),
}

/// A linear layer of a two-party plan, with its method.
#[derive(Clone, Debug)]
pub struct Linear {
    /// How it is computed.
    pub method: &'static Method,
    /// What is computed.
    pub geometry: GeometrySpec,
    /// Bound of the norm of the weights that meet in one answer.
    pub weight_l2: f64,
    /// Weights, absent in a public part.
    pub weights: Option<Arc<LinearWeights>>,
}

/// Windows of sum pooling over `[channels, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Channels, height, width of the input.
    pub input: [usize; 3],
    /// Height and width of the output.
    pub output: [usize; 2],
    /// Height and width.
    pub kernel: [usize; 2],
    /// Steps down and right.
    pub stride: [usize; 2],
    /// Top, left.
    pub pads: [usize; 2],
}

/// A stage of a two-party plan, checked.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Name for messages.
    pub name: String,
    /// The kind as it stands in the plan.
    pub label: &'static str,
    /// What is computed.
    pub kind: Kind,
    /// How, where it is a non-linear layer.
    pub protocol: Protocol,
    /// Bits that are dropped in front of what is compared: the stage works on its operand divided by 2^bits, in the ring `compared`.
    pub bits: u32,
    /// The narrowest ring that holds what is compared, units of errors included; the shares' own where nothing is.
    pub compared: Ring,
    /// Tensor indices read (none for client stages, which know their own).
    pub inputs: Vec<usize>,
    /// Tensor index written (none for client stages).
    pub output: Option<usize>,
    /// Shared tensors that nobody reads after this stage.
    pub free: Vec<usize>,
}

/// A checked two-party plan; cheap to clone.
pub type TwoPartyPlan = Checked<TwoParty>;

/// The part of a plan that the two-party executors run.
pub struct TwoParty {
    pub(super) ring: Ring,
    pub(super) stages: Vec<Stage>,
    pub(super) client: Plan,
    pub(super) peak_elements: usize,
}

impl Model for TwoParty {
    const TRUST: Trust = Trust::TwoParty;

    fn check(
        spec: PlanSpec,
        json: &str,
        files: &Files<'_>,
        options: &PlanOptions,
    ) -> Result<TwoPartyPlan, PlanError> {
        super::check::check(spec, json, files, options)
    }
}

impl TwoPartyPlan {
    /// The JSON of the public part that a server gives to every client: it names the preparation, where set-ups belong to one.
    pub(super) fn served_json(&self, preparation: Option<&str>) -> Result<String, PlanError> {
        let Some(name) = preparation else { return self.public_json() };
        let mut spec = crate::public::told(self.spec());
        if let Some(part) = &mut spec.params.two_party {
            part.preparation = Some(name.to_owned());
        }
        plan::write(&spec)
    }

    /// Whether clients keep set-ups, which belong to one preparation of the model.
    pub(super) fn sets_up(&self) -> bool {
        self.linear().any(|s| s.linear.method.sets_up())
    }

    /// SHA-256 of the public part's JSON: what both parties must agree on, and what names a client's stored set-ups. Equal for all clients of
    /// an honest server.
    ///
    /// # Errors
    /// [`PlanError`] when the JSON cannot be written.
    pub fn digest(&self) -> Result<[u8; 32], PlanError> {
        Ok(super::handshake::digest(&self.public_json()?))
    }

    /// Z_2^l, the ring of the shares.
    #[must_use]
    pub fn ring(&self) -> Ring {
        self.model().ring
    }
    /// f of a shared tensor, `None` for others.
    #[must_use]
    pub fn frac_bits(&self, tensor: usize) -> Option<i32> {
        self.spec().tensors.get(tensor)?.frac_bits
    }
    /// All stages, in the order in which they run.
    #[must_use]
    pub fn stages(&self) -> &[Stage] {
        &self.model().stages
    }
    /// Which preparation of the model set-ups belong to; only in public parts that a server has given.
    #[must_use]
    pub fn preparation(&self) -> Option<&str> {
        self.spec().params.two_party.as_ref()?.preparation.as_deref()
    }
    /// Whether a linear stage works on many images in one ciphertext.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        self.linear().any(|s| s.linear.method.batches())
    }

    /// The linear stages.
    pub(super) fn linear(&self) -> impl Iterator<Item = Placed<'_>> {
        self.stages().iter().enumerate().filter_map(|(index, stage)| match &stage.kind {
            Kind::Linear(linear) => Some(Placed { index, stage, linear }),
            _ => None,
        })
    }

    /// k of a shared tensor, all of whose values are below 2^k in absolute value; `None` for others.
    pub(super) fn reach(&self, tensor: usize) -> Option<u32> {
        self.spec().tensors.get(tensor)?.reach_bits
    }

    /// Largest number of shared elements that are alive at once, for one image.
    #[must_use]
    pub fn peak_elements(&self) -> usize {
        self.model().peak_elements
    }
    /// The client's own stages as a plan of the interpreter.
    pub(super) fn client(&self) -> &Plan {
        &self.model().client
    }
}
