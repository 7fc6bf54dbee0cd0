//! Slot-packed linear layers on shares modulo a prime t (`docs/slots.md`): the base of all [`methods`], which say what they differ in as data.
//!
//! A layer runs tile by tile. Client: [`SlotClient::request`] -> server: [`SlotLinear::answer`] -> client: [`SlotClient::open`]; both then
//! hold shares of the result that sum to it modulo t, exactly. A [`Layout`] says where tensors and weights stand and what is permuted;
//! its kernels run on any [`Machine`]: encrypted ([`hushnet_rlwe::bfv::Evaluator`]), in the clear ([`Clear`]), or only counting ([`Counting`]).

mod conv;
mod cost;
mod dense;
mod kernels;
mod linear;
mod machine;
pub mod methods;
mod order;

pub use conv::ConvLayout;
pub use cost::{choose, cost, LinearCost};
pub use dense::DenseLayout;
pub use linear::{Phases, SlotClient, SlotLinear};
pub use machine::{Clear, Counting, Machine, Store};
pub use methods::Method;

use crate::batch::{Geometry, LayerError};
use hushnet_rlwe::bfv::{BfvError, BfvSpec, Counts, Noise, Turn};

#[cfg(test)]
mod tests;

/// Why a slot-packed layer is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SlotError {
    /// Shapes, lengths, shares.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// Encryption.
    #[error(transparent)]
    Bfv(#[from] BfvError),
    /// A method that is not for layers of this kind.
    #[error("method '{}' computes {what} layers only; choose another method for this layer", method.name())]
    Kind {
        /// The method.
        method: Method,
        /// Dense or convolutional.
        what: &'static str,
    },
}

/// Names a weight vector of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term {
    /// Output ciphertext.
    pub output: u32,
    /// Input ciphertext.
    pub input: u32,
    /// Index of the permutation that lines inputs up with outputs.
    pub step: u32,
    /// Index of the kernel offset.
    pub tap: u32,
}

/// Places of all elements for one layer, method and number of slots.
#[derive(Clone, Debug)]
pub enum Layout {
    /// A matrix-vector product.
    Dense(DenseLayout),
    /// A convolution.
    Conv(Box<ConvLayout>),
}

impl Layout {
    /// For rings of `slots` slots, two rows of half as many.
    ///
    /// # Errors
    /// [`SlotError::Kind`] for a method of the other kind of layers; [`LayerError::TooLarge`] when not even one output pixel's
    /// receptive field fits a row.
    pub fn new(geometry: &Geometry, method: Method, slots: usize) -> Result<Self, SlotError> {
        match geometry {
            Geometry::Dense(d) => {
                let order = method.row().dense.ok_or(SlotError::Kind { method, what: "convolution" })?;
                Ok(Self::Dense(DenseLayout::new(d.inputs, d.outputs, order, slots)))
            }
            Geometry::Conv2d(c) => {
                let order = method.row().conv.ok_or(SlotError::Kind { method, what: "dense" })?;
                Ok(Self::Conv(Box::new(ConvLayout::new(c, order, slots)?)))
            }
        }
    }

    /// Spatial tiles, computed one after the other with the same weights.
    #[must_use]
    pub fn tiles(&self) -> usize {
        match self {
            Self::Dense(_) => 1,
            Self::Conv(c) => c.tiles(),
        }
    }

    /// Ciphertexts that the client sends for a tile.
    #[must_use]
    pub fn inputs(&self) -> usize {
        match self {
            Self::Dense(d) => d.input_blocks(),
            Self::Conv(c) => c.input_blocks(),
        }
    }

    /// Ciphertexts that the server returns for a tile.
    #[must_use]
    pub fn outputs(&self) -> usize {
        match self {
            Self::Dense(d) => d.answers(),
            Self::Conv(c) => c.output_blocks(),
        }
    }

    /// Elements of the input tensor.
    #[must_use]
    pub fn input_len(&self) -> usize {
        match self {
            Self::Dense(d) => d.inputs,
            Self::Conv(c) => c.input_len(),
        }
    }

    /// Elements of the output tensor.
    #[must_use]
    pub fn output_len(&self) -> usize {
        match self {
            Self::Dense(d) => d.outputs,
            Self::Conv(c) => c.output_len(),
        }
    }

    /// Outputs that share a bias.
    #[must_use]
    pub fn outputs_per_bias(&self) -> usize {
        match self {
            Self::Dense(_) => 1,
            Self::Conv(c) => c.output_len() / c.channels_out(),
        }
    }

    /// Slots of input ciphertext `block` of a tile.
    #[must_use]
    pub fn pack(&self, tile: usize, block: usize, tensor: &[u64]) -> Vec<u64> {
        match self {
            Self::Dense(d) => d.pack(block, tensor),
            Self::Conv(c) => c.pack(tile, block, tensor),
        }
    }

    /// Reads one party's share of an answer's slots into its share of the output tensor.
    pub fn unpack(&self, tile: usize, block: usize, slots: &[u64], t: u64, out: &mut [u64]) {
        match self {
            Self::Dense(d) => d.unpack(block, slots, t, out),
            Self::Conv(c) => c.unpack(tile, block, slots, out),
        }
    }

    /// Slots of a weight vector; `weights` as the geometry orders them, t the plaintext modulus.
    #[must_use]
    pub fn weight(&self, term: Term, weights: &[i16], t: u64) -> Vec<u64> {
        match self {
            Self::Dense(d) => d.weight(term, weights, t),
            Self::Conv(c) => c.weight(term, weights, t),
        }
    }

    /// All weight vectors that a tile uses, in the order of use.
    #[must_use]
    pub fn terms(&self) -> Vec<Term> {
        match self {
            Self::Dense(d) => d.terms(),
            Self::Conv(c) => c.terms(),
        }
    }

    /// Permutations that need a key.
    #[must_use]
    pub fn turns(&self) -> Vec<Turn> {
        let mut turns = match self {
            Self::Dense(d) => d.turns(),
            Self::Conv(c) => c.turns(),
        };
        turns.retain(|t| !t.is_identity());
        turns.sort_unstable();
        turns.dedup();
        turns
    }

    /// Operations for all tiles, by formula.
    #[must_use]
    pub fn counts(&self) -> Counts {
        match self {
            Self::Dense(d) => d.counts(),
            Self::Conv(c) => {
                let one = c.counts();
                (0..c.tiles()).map(|_| one).sum()
            }
        }
    }

    /// Predicted noise of an answer under parameters, for weight vectors whose polynomials have coefficients spread over all residues.
    #[must_use]
    pub fn noise(&self, spec: &BfvSpec) -> Noise {
        match self {
            Self::Dense(d) => d.noise(spec),
            Self::Conv(c) => c.noise(spec),
        }
    }

    /// Computes a tile.
    ///
    /// # Errors
    /// What the machine refuses.
    pub fn run<M: Machine>(
        &self,
        machine: &M,
        inputs: &[M::Cipher],
        weights: &Store<'_, M>,
    ) -> Result<Vec<M::Cipher>, SlotError> {
        match self {
            Self::Dense(d) => kernels::dense(d, machine, inputs, weights),
            Self::Conv(c) => kernels::conv(c, machine, inputs, weights),
        }
    }
}

/// The residue of a weight.
pub(crate) fn residue(w: i16, t: u64) -> u64 {
    i64::from(w).rem_euclid(t as i64) as u64
}
