//! The linear methods of two-party plans behind one trait, and the registry that says which there are.
//!
//! A method is a folder: `mod.rs` has what both parties derive from the public part of a plan ([`LinearMethod`], [`Places`], [`Shape`]),
//! `client.rs` the client's half ([`ClientHalf`]), `server.rs` the server's half ([`ServerHalf`], [`ServerSession`]). The run loops, the cost
//! and the account of memory ask these traits and know no method by name. `docs/add-a-linear-method.md` adds one step by step. The folder
//! `coefficients` is no method: it has what `cheetah` and `convfhe` share. Nor is `matrix_product`, which has stages of a kind of their own:
//! products of two shared operands, with keys, requests and answers as linear layers have them.
//!
//! A session opens the methods of a plan in the order of [`METHODS`], then products of matrices; this order is the order of their keys on the wire.
//! Dispatch is dynamic once a stage, never inside of a kernel.

mod batch;
mod cheetah;
mod coefficients;
mod convfhe;
mod matrix_product;
mod rotation_free;
mod slots;
mod tiles;

pub(super) use batch::group;
pub use batch::largest_batch;
pub use slots::slot_plain;

use super::plan::{Kind, Linear, Stage, TwoPartyPlan};
use super::stored::Folder;
use crate::compute::Compute;
use crate::error::Error;
use crate::plan::{LinearWeights, PlanError};
use hushnet_layers::batch::Geometry;
use hushnet_mpc::{Channel, CostModel, Party, Session};
use hushnet_ring::Prg;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All methods. A row has the name that plans use and the folder that computes it; rows of one family share the keys of a session.
pub static METHODS: &[Method] = &[
    Method { name: "cheetah", family: &cheetah::Cheetah },
    Method { name: "batch", family: &batch::Batch },
    Method { name: "gala", family: &slots::Slots },
    Method { name: "gazelle", family: &slots::Slots },
    Method { name: "diagonal", family: &slots::Slots },
    Method { name: "convfhe", family: &convfhe::ConvFhe },
    Method { name: "rotation-free", family: &rotation_free::RotationFree },
];

/// A row of [`METHODS`]: how a linear layer is computed.
pub struct Method {
    /// Name in plans.
    pub name: &'static str,
    family: &'static dyn LinearMethod,
}

impl std::fmt::Debug for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl std::ops::Deref for Method {
    type Target = dyn LinearMethod;

    fn deref(&self) -> &Self::Target {
        self.family
    }
}

/// The method of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|m| m.name == name)
}

/// What a plan states of a stage, for [`LinearMethod::check`].
pub struct Wanted<'a> {
    /// Name of the method.
    pub name: &'a str,
    /// What is computed.
    pub geometry: &'a Geometry,
    /// N of the plan.
    pub ring_degree: usize,
    /// l: shares are modulo 2^l.
    pub ring_bits: u32,
    /// Bound of the norm of the weights that meet in one answer.
    pub weight_l2: f64,
    /// k: results are below 2^k in absolute value, units of errors included.
    pub reach: u32,
    /// Exact bound of results; a public part has none.
    pub bound: Option<u64>,
}

/// What the noise of a stage leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parameters {
    /// Of requests; 0 where it depends on the layer.
    pub modulus_bits: u32,
    /// Of answers; 0 where it depends on the layer.
    pub response_bits: u32,
    /// log2 of the noise before answers are rounded, exceeded with probability below 2^-41.
    pub noise_bits: f64,
    /// Fraction of results that are a unit off.
    pub unit_fraction: f64,
}

/// A stage of a method, with its index in the plan.
#[derive(Clone, Copy)]
pub struct Placed<'a> {
    /// Index in the plan.
    pub index: usize,
    /// The stage.
    pub stage: &'a Stage,
    /// Its linear layer.
    pub linear: &'a Linear,
}

/// A way to compute linear layers on shares: one folder. Rows of [`METHODS`] name it.
pub trait LinearMethod: Sync {
    /// Name of the folder, one for all rows that share the keys of a session.
    fn family(&self) -> &'static str;

    /// That a stage has parameters. Both parties ask before any table is made.
    ///
    /// # Errors
    /// A sentence that says which limit the stage exceeds, and what to do.
    fn check(&self, wanted: &Wanted<'_>) -> Result<(), String>;

    /// Parameters of a stage for planners, of a typical layout where they depend on the layout.
    ///
    /// # Errors
    /// A sentence that says which limit is exceeded.
    fn parameters(&self, ring_degree: usize, ring_bits: u32, weight_l2: f64) -> Result<Parameters, String>;

    /// The norm of weights (O, C/groups, kh, kw) or (M, K), row-major, that a plan states as `weight_l2`, before it is rounded up.
    ///
    /// # Errors
    /// A sentence when there are not as many weights as the geometry says, or no layout.
    fn norm(&self, geometry: &Geometry, ring_degree: usize, weights: &[i16]) -> Result<f64, String>;

    /// Whether results are exact because shares go through a prime.
    fn exact(&self) -> bool {
        false
    }

    /// Steps that choosing the layout of a layer may take, beside those of [`Geometry::layout_steps`].
    fn steps(&self, _: &Geometry) -> u64 {
        0
    }

    /// Whether many images share a ciphertext, so that groups of images are as large as memory allows.
    fn batches(&self) -> bool {
        false
    }

    /// Whether clients keep set-ups, which belong to one preparation of the model.
    fn sets_up(&self) -> bool {
        false
    }

    /// The layouts of this family's stages in a plan; `None` when the session needs nothing of it.
    ///
    /// # Errors
    /// [`Error::Plan`] where stages have no parameters together, [`Error::Internal`].
    fn places(&self, plan: &TwoPartyPlan, stages: &[Placed<'_>]) -> Result<Option<Arc<dyn Places>>, Error>;
}

/// The public part of a family's stages in one plan: what both parties derive.
pub trait Places: Send + Sync {
    /// The shape of a stage, `None` for stages of other families.
    fn shape(&self, stage: usize) -> Option<&dyn Shape>;

    /// Bytes of the keys that the client sends, once a session.
    fn key_len(&self) -> usize;

    /// Bytes of the keys that the server sends in return, while the client's are on their way.
    fn answered_key_len(&self) -> usize {
        0
    }

    /// Bytes that a server holds for a session beside shares and messages that wait: ciphertexts in work, keys.
    fn working_bytes(&self) -> usize {
        0
    }

    /// The client's part of the set-up: makes keys and sends the public ones.
    ///
    /// # Errors
    /// [`Error`]: transport, protocol, storage.
    fn open(self: Arc<Self>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error>;

    /// The server's weights, shared by all sessions.
    ///
    /// # Errors
    /// [`Error::Plan`] for a stage without weights, or whose weights exceed the norm that the plan states.
    fn prepare(self: Arc<Self>, preparing: &Preparing<'_>) -> Result<Arc<dyn ServerHalf>, Error>;
}

/// The public part of one stage. All bytes are exact.
pub trait Shape {
    /// Tiles that are requested and answered one by one.
    fn tiles(&self) -> usize;

    /// Bytes of the longest request of a tile, for one image.
    fn request_len(&self) -> usize;

    /// Traffic of the stage on a group of images.
    fn cost(&self, model: &mut CostModel, images: usize);

    /// Bytes that a client holds between its requests and the answers, at most.
    fn held_by_client(&self, images: u64) -> u64;

    /// Weights in evaluation form, where the server may keep them or make them as they are used.
    fn keeping(&self) -> Option<Keeping> {
        None
    }

    /// What the client receives before the first image, where the method has that.
    fn set_up(&self) -> Option<SetUpBytes> {
        None
    }
}

/// Weights of a stage in evaluation form.
#[derive(Clone, Copy)]
pub struct Keeping {
    /// How often an image uses them, times as many as a word of them stands for: layers with more come first where memory is short; 0: after all others.
    pub uses: usize,
    /// What they take.
    pub bytes: usize,
}

/// Bytes of a stage's set-up.
#[derive(Clone, Copy)]
pub struct SetUpBytes {
    /// Message in which the client says how much it holds.
    pub told: usize,
    /// In evaluation form, as the client works with it.
    pub prepared: u64,
    /// On the wire.
    pub sent: u64,
    /// In a file.
    pub stored: u64,
}

/// What [`Places::open`] works with: channel, randomness, folder of set-ups.
pub struct Opening<'a> {
    /// To the server.
    pub channel: &'a mut dyn Channel,
    /// Where heavy work runs.
    pub compute: &'a Compute,
    /// Randomness of keys.
    pub prg: &'a mut Prg,
    /// Digest of the public plan.
    pub plan_digest: &'a [u8; 32],
    /// The client's folder of set-ups.
    pub folder: Option<&'a Folder>,
}

/// What [`Places::prepare`] works with: plan, weights to keep, digest.
pub struct Preparing<'a> {
    /// The plan with weights.
    pub plan: &'a TwoPartyPlan,
    /// Which stages keep their weights in evaluation form ([`Shape::keeping`]).
    pub keep: &'a [bool],
    /// Digest of the public plan that clients receive.
    pub plan_digest: &'a [u8; 32],
    /// The randomness that a stage's set-up is drawn from, by the stage's index: the same at every call where preparations are kept.
    pub randomness: &'a (dyn Fn(usize) -> Result<Prg, Error> + Sync),
}

/// One stage of a group of images at one party.
pub struct Job<'a> {
    /// Index of the stage.
    pub stage: usize,
    /// The party's share of the input tensors, image by image; of a product of matrices both operands of an image, one after the other.
    pub share: &'a [u64],
    /// A fresh seed for every image, the same at both parties; the client chooses it, so that it names what the client alone encrypts.
    pub seeds: &'a [[u8; 32]],
    /// Where heavy work runs.
    pub compute: &'a Compute,
}

/// A client's half of a family in a session: its secret keys.
pub trait ClientHalf: Send {
    /// Bytes of set-ups that the client held already, so that the server did not send them.
    fn held(&self) -> usize {
        0
    }

    /// Runs a stage with the server; returns the client's share of the output tensors.
    ///
    /// # Errors
    /// [`Error`]: transport, protocol.
    fn ask(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error>;
}

/// The server's half of a family in a model: prepared weights.
pub trait ServerHalf: Send + Sync {
    /// Bytes that the weights take, as they are and in evaluation form.
    fn weight_bytes(&self) -> usize;

    /// The server's part of the set-up: reads and checks a client's public keys.
    ///
    /// # Errors
    /// [`Error`]: transport, protocol.
    fn accept(
        self: Arc<Self>,
        channel: &mut dyn Channel,
        compute: &Compute,
    ) -> Result<Box<dyn ServerSession>, Error>;
}

/// The server's half of a family in a session: a client's public keys, and the weights.
pub trait ServerSession {
    /// Bytes of set-ups that the client held already.
    fn held(&self) -> usize {
        0
    }

    /// Answers a stage; returns the server's share of the output tensors.
    ///
    /// # Errors
    /// [`Error`]: transport, protocol.
    fn answer(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error>;
}

/// What a family keeps for each of its stages, by index in the plan.
struct Stages<T>(BTreeMap<usize, T>);

impl<T> Stages<T> {
    /// Makes one for every stage.
    fn new(
        stages: &[Placed<'_>],
        mut make: impl FnMut(&Placed<'_>) -> Result<T, Error>,
    ) -> Result<Self, Error> {
        stages.iter().map(|s| Ok((s.index, make(s)?))).collect::<Result<_, Error>>().map(Self)
    }

    fn get(&self, stage: usize) -> Result<&T, Error> {
        self.0.get(&stage).ok_or_else(|| internal("a linear stage was not prepared"))
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.0.iter().map(|(index, stage)| (*index, stage))
    }

    fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }
}

impl<T: Shape> Stages<T> {
    fn shape(&self, stage: usize) -> Option<&dyn Shape> {
        self.0.get(&stage).map(|s| s as &dyn Shape)
    }
}

impl Preparing<'_> {
    /// Prepares all stages of a family in parallel: `make` gets a stage's index and layer, its shape and its weights.
    fn each<S, T>(
        &self,
        stages: &Stages<S>,
        make: impl Fn(usize, &Linear, (&S, &LinearWeights)) -> Result<T, Error> + Sync,
    ) -> Result<Stages<T>, Error>
    where
        S: Sync,
        T: Send,
    {
        let prepared = stages.0.par_iter().map(|(&index, shape)| {
            let (linear, weights) = self.weights(index)?;
            Ok((index, make(index, linear, (shape, weights))?))
        });
        prepared.collect::<Result<_, Error>>().map(Stages)
    }

    /// A stage's layer with its weights.
    fn weights(&self, index: usize) -> Result<(&Linear, &LinearWeights), Error> {
        let missing = || PlanError::Structure("a linear stage has no weights".into());
        match &self.plan.stages()[index].kind {
            Kind::Linear(l) => Ok((l, l.weights.as_ref().ok_or_else(missing)?)),
            _ => Err(internal("a stage is not linear")),
        }
    }

    /// That the norm of a stage's weights keeps to what the plan states.
    fn keeps_norm(&self, index: usize, norm: f64, what: &str) -> Result<(), Error> {
        let (linear, _) = self.weights(index)?;
        if norm > linear.weight_l2 {
            let detail = format!(
                "weight_l2 {} is below the norm of {what}; the plan is wrong, compile the model again",
                linear.weight_l2
            );
            return Err(PlanError::Linear { stage: self.plan.stages()[index].name.clone(), detail }.into());
        }
        Ok(())
    }
}

/// That a layer has as many weights as it needs.
fn weight_count(geometry: &Geometry, weights: &[i16]) -> Result<(), String> {
    if weights.len() != geometry.weights() {
        return Err(format!("{} weights for a layer of {}", weights.len(), geometry.weights()));
    }
    Ok(())
}

fn internal(detail: &str) -> Error {
    Error::Internal(detail.into())
}

/// The linear stages of a plan and its products of matrices, as both parties derive them from its public part.
pub struct Layers {
    families: Vec<Arc<dyn Places>>,
    /// The family of every linear stage and product of matrices.
    of: BTreeMap<usize, usize>,
}

impl Layers {
    /// Chooses the layouts of all linear stages.
    ///
    /// # Errors
    /// None for a checked plan but [`Error::Internal`], and [`Error::Plan`] where stages have no parameters together.
    pub fn new(plan: &TwoPartyPlan) -> Result<Self, Error> {
        let (mut families, mut of, mut seen) = (Vec::new(), BTreeMap::new(), Vec::new());
        for method in METHODS {
            let family = method.family();
            if seen.contains(&family) {
                continue;
            }
            seen.push(family);
            let stages: Vec<Placed<'_>> =
                plan.linear().filter(|s| s.linear.method.family() == family).collect();
            if let Some(places) = method.places(plan, &stages)? {
                of.extend(stages.iter().map(|s| (s.index, families.len())));
                families.push(places);
            }
        }
        if let Some(places) = matrix_product::places(plan)? {
            of.extend(matrix_product::stages(plan).map(|(index, _)| (index, families.len())));
            families.push(places);
        }
        Ok(Self { families, of })
    }

    /// The families of a session, in the order of their keys on the wire.
    pub(super) fn families(&self) -> &[Arc<dyn Places>] {
        &self.families
    }

    /// The half, of one for each family, that a stage belongs to.
    pub(super) fn half<'h, T: ?Sized>(&self, halves: &'h [Box<T>], stage: usize) -> Result<&'h T, Error> {
        let half = self.of.get(&stage).and_then(|&f| halves.get(f));
        half.map(|h| &**h).ok_or_else(|| internal("a linear stage has no layout"))
    }

    /// The shape of a linear stage or a product of matrices; `None` for others.
    pub(super) fn shape(&self, stage: usize) -> Option<&dyn Shape> {
        self.families[*self.of.get(&stage)?].shape(stage)
    }

    /// The shapes of all linear stages and products of matrices with their indices.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (usize, &dyn Shape)> {
        self.of.keys().filter_map(|&index| Some((index, self.shape(index)?)))
    }

    /// Tiles of a stage; 0 where it is neither linear nor a product of matrices.
    pub(super) fn tiles(&self, stage: usize) -> usize {
        self.shape(stage).map_or(0, Shape::tiles)
    }

    /// Set-ups with the stage that each belongs to.
    pub(super) fn set_ups(&self) -> impl Iterator<Item = (usize, SetUpBytes)> + '_ {
        self.shapes().filter_map(|(index, shape)| Some((index, shape.set_up()?)))
    }

    /// Traffic of the methods' part of a session's set-up, with the bytes that the client of each family holds already.
    pub(super) fn open_cost(&self, model: &mut CostModel, held: &[usize]) {
        for (number, places) in self.families.iter().enumerate() {
            model.exchange(places.answered_key_len() as u64, places.key_len() as u64);
            let set_ups = self.of.iter().filter(|(_, &f)| f == number);
            let set_ups = set_ups.filter_map(|(&index, _)| places.shape(index)?.set_up());
            let (told, sent) = set_ups.fold((0, 0), |(told, sent), s| (told + s.told, sent + s.sent));
            model.message(Party::One, told as u64);
            model.message(Party::Zero, sent - held.get(number).copied().unwrap_or(0) as u64);
        }
    }

    /// Bytes of the keys that a client makes and receives, in memory: what travels, in whole words, both polynomials, and a copy on its way.
    pub(super) fn client_key_bytes(&self) -> u64 {
        let bytes = |f: &Arc<dyn Places>| f.key_len() as u64 + f.answered_key_len() as u64;
        4 * self.families.iter().map(bytes).sum::<u64>()
    }

    /// Bytes that a server holds for a session beside shares and messages that wait.
    pub(super) fn working_bytes(&self) -> u64 {
        self.families.iter().map(|f| f.working_bytes() as u64).sum()
    }

    /// Which stages keep their weights in evaluation form: those that gain most a byte come first, while they fit `room` bytes together.
    pub(super) fn kept(&self, stages: usize, mut room: usize) -> Vec<bool> {
        let mut order: Vec<(usize, Keeping)> =
            self.shapes().filter_map(|(index, shape)| Some((index, shape.keeping()?))).collect();
        order.sort_by_key(|(index, keeping)| (std::cmp::Reverse(keeping.uses), *index));
        let mut keep = vec![false; stages];
        for (index, keeping) in order {
            if keeping.bytes <= room {
                room -= keeping.bytes;
                keep[index] = true;
            }
        }
        keep
    }
}
