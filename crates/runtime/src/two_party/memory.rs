//! The account of a two-party plan: what it makes a client hold, and how long finding its layouts may take.
//!
//! Two accounts from the plan alone. [`of_plan`] is made when a plan is read, before layouts are chosen: shares, protocols, the client's own tensors
//! and what layouts remember of kernels. [`of_session`] has besides what layouts tell: set-ups, keys and ciphertexts on their way; a client
//! compares it with its limit before it makes a key or receives a set-up.

use super::methods::{Layers, Method};
use super::plan::{Kind, Stage};
use super::TwoPartyPlan;
use crate::plan::spec::{Protocol, Reveal};
use crate::plan::{product, GeometrySpec, Limits, Need, Plan, PlanError, Tensor};
use hushnet_layers::batch::Geometry;
use hushnet_layers::matrix_product::MatrixShape;
use hushnet_mpc::{PoolShape, Ring};

/// Bytes that the protocols need for each element of a tensor in work.
pub(super) const BYTES_PER_ELEMENT: u64 = 64;
/// Most values in one pass of a protocol.
const PASS: u64 = 1 << 18;
/// Bytes that a layout remembers of a kernel position.
const BYTES_PER_POSITION: u64 = 48;
/// Bytes of a stage's records and tables beside them.
const BYTES_PER_STAGE: u64 = 4 << 10;
/// Bytes of an OT session: correlated OTs in stock and their tables.
const SESSION: u64 = 64 << 20;
/// Vectors as large as the windows' elements that comparing them holds.
const POOL_COPIES: u64 = 4;

/// Counts the steps that the layouts of a plan's layers may take, and refuses too many.
pub(super) struct Steps(u64);

impl Steps {
    pub(super) fn new() -> Self {
        Self(0)
    }

    /// Adds a layer, before its layout is chosen.
    ///
    /// # Errors
    /// [`PlanError::TooLarge`] naming the stage that takes the sum over the limit.
    pub(super) fn add(
        &mut self,
        name: &str,
        geometry: &Geometry,
        method: &Method,
        limits: &Limits,
    ) -> Result<(), PlanError> {
        self.0 = self.0.saturating_add(method.steps(geometry)).saturating_add(geometry.layout_steps());
        let what = format!("the number of steps to lay out the linear layers up to stage '{name}'");
        Limits::check(&what, self.0, limits.layout_steps)
    }
}

impl Steps {
    /// Adds a product of matrices, before its places are chosen.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(super) fn add_product(
        &mut self,
        name: &str,
        shape: &MatrixShape,
        limits: &Limits,
    ) -> Result<(), PlanError> {
        self.0 = self.0.saturating_add(shape.layout_steps());
        let what = format!(
            "the number of steps to lay out the linear layers and matrix products up to stage '{name}'"
        );
        Limits::check(&what, self.0, limits.layout_steps)
    }
}

fn elements(tensors: &[Tensor], tensor: Option<usize>) -> u64 {
    tensor.map_or(0, |t| tensors[t].elements as u64)
}

/// Bytes of the windows that a max-pool compares.
fn pool(shape: &PoolShape, protocol: Protocol, ring: Ring) -> u64 {
    let (Ok((rows, columns)), Ok((tall, wide))) = (shape.output(), shape.reach()) else { return 0 };
    let across = product(&[shape.channels, shape.height, columns, wide]);
    let down = product(&[shape.channels, rows, columns, tall]);
    let whole = product(&[shape.channels, rows, columns, tall, wide]);
    match protocol {
        Protocol::Ot | Protocol::Ripple2 | Protocol::Ripple3 | Protocol::Ripple4 => {
            across.max(down).saturating_mul(8 * POOL_COPIES)
        }
        // Every place of every window is listed and copied; tables and labels are those of one pass.
        Protocol::Garbled => {
            let pass = whole.min(PASS.saturating_mul((tall * wide) as u64));
            whole.saturating_mul(16).saturating_add(pass.saturating_mul(64 * u64::from(ring.bits())))
        }
    }
}

/// Bytes that a stage's protocol holds for one image beside the shares.
fn protocol(stage: &Stage, tensors: &[Tensor], ring: Ring) -> u64 {
    let values = elements(tensors, stage.inputs.first().copied()).max(elements(tensors, stage.output));
    let plain = values.saturating_mul(BYTES_PER_ELEMENT);
    match &stage.kind {
        Kind::MaxPool(shape) => plain.max(pool(shape, stage.protocol, ring)),
        Kind::Relu | Kind::Clip { .. } | Kind::Reveal(Reveal::Argmax)
            if stage.protocol == Protocol::Garbled =>
        {
            plain.saturating_add(values.min(PASS).saturating_mul(64 * u64::from(ring.bits())))
        }
        Kind::HardSwish(h) => plain.saturating_add(h.held(values)),
        Kind::Function(f) => plain.saturating_add(f.held(values)),
        Kind::Product(p) => plain.saturating_add(p.held(values)),
        Kind::MatrixProduct(m) => plain.saturating_add(m.held()),
        Kind::Client(_) => 0,
        _ => plain,
    }
}

/// Bytes of the largest protocol of a plan for one image.
pub(super) fn protocols<'a>(
    stages: &'a [Stage],
    tensors: &'a [Tensor],
    ring: Ring,
) -> impl Iterator<Item = (&'a str, u64)> {
    stages.iter().map(move |s| (s.name.as_str(), protocol(s, tensors, ring)))
}

/// What follows from the plan without its layouts, for a group of `images` images.
pub(super) fn of_plan(
    (stages, tensors, ring): (&[Stage], &[Tensor], Ring),
    client: &Plan,
    peak_elements: usize,
    images: u64,
) -> Need {
    let mut need = Need::default();
    need.add(
        "the shares of all tensors that are alive at once",
        product(&[8, peak_elements]).saturating_mul(images),
    );
    need.add_largest(
        "the protocol",
        protocols(stages, tensors, ring).map(|(name, bytes)| (name, bytes.saturating_mul(images))),
    );
    need.add("the client's own tensors", client.client_tensor_bytes().saturating_mul(images));
    let positions = |s: &Stage| match &s.kind {
        Kind::Linear(l) => match &l.geometry {
            GeometrySpec::Conv2d { kernel, .. } => product(kernel).saturating_mul(BYTES_PER_POSITION),
            GeometrySpec::Dense { .. } => 0,
        },
        _ => 0,
    };
    let layouts = stages.iter().map(|s| positions(s).saturating_add(BYTES_PER_STAGE));
    need.add("the layouts of all layers", layouts.fold(0, u64::saturating_add));
    need
}

/// What a client's session holds with a group of `images` images; `stored`: set-ups are kept in a folder.
pub(super) fn of_session(plan: &TwoPartyPlan, layers: &Layers, images: usize, stored: bool) -> Need {
    let images = images as u64;
    let what = (plan.stages(), plan.tensors(), plan.ring());
    let mut need = of_plan(what, plan.client(), plan.peak_elements(), images);
    need.add("the session's oblivious transfers", SESSION);
    let names = |index: usize| plan.stages()[index].name.as_str();
    for (index, setup) in layers.set_ups() {
        need.add(&format!("the set-up of stage '{}'", names(index)), setup.prepared);
        if stored {
            need.add(&format!("the stored set-up of stage '{}'", names(index)), setup.sent);
        }
    }
    if !stored {
        let sent = layers.set_ups().map(|(index, setup)| (names(index), setup.sent));
        need.add_largest("the set-up on its way", sent);
    }
    need.add("the keys", layers.client_key_bytes());
    let held = layers.shapes().map(|(i, shape)| (names(i), shape.held_by_client(images)));
    need.add_largest("the requests", held);
    need
}
