//! Coefficient-packed linear layers of one image for a client that may see every result: the places of [`crate::cheetah`] under the encryption of
//! [`hushnet_rlwe::coefficients`], without shares and masks of answers (`docs/client-aided-image.md`).
//!
//! Once a session the server sends the sums of masks of a stage ([`CoefficientLinear::masks`]) and the client keeps them
//! ([`CoefficientClient::take_masks`]). Then a stage runs tile by tile, client: [`CoefficientClient::request`] -> server:
//! [`CoefficientLinear::answer`] -> client: [`CoefficientClient::open`], which gives the exact integers of the layer. All lengths are those of [`CoefficientStage`].

mod client;
mod server;

pub use client::CoefficientClient;
pub use server::CoefficientLinear;

use crate::batch::{expect, Geometry, LayerError};
use crate::layout::Layout;
use hushnet_ring::pack;
use hushnet_rlwe::batch::ParamsError;
use hushnet_rlwe::coefficients::{CoefficientBits, CoefficientParams, CoefficientSpec, Travel};
use rayon::prelude::*;

/// Prices by which [`layout`] chooses, in seconds a coefficient, measured on one core; a byte counts as on a network of 500 Mbit/s. Words that travel
/// are taken to have 40 bits in requests and 34 in sums of masks: what networks of 8-bit weights need.
const BYTE: f64 = 16e-9;
/// An input polynomial: encryption, transforms of both parties, transfer.
const INPUT: f64 = 15e-9 + 5.0 * BYTE;
/// A sum of masks: both transforms, transfer. Once a session, and a session may have one image.
const MASK: f64 = 10e-9 + 4.25 * BYTE;
/// An answer polynomial: transforms of both parties.
const ANSWER: f64 = 15e-9;
/// A product.
const PRODUCT: f64 = 0.4e-9;
/// A weight polynomial: its transform, and its product with a mask.
const WEIGHT: f64 = 3.5e-9;

/// The places of a layer's elements: what both parties derive from its geometry.
///
/// # Errors
/// [`LayerError::TooLarge`] when not even one pixel's receptive field fits in `n` coefficients.
pub fn layout(geometry: &Geometry, n: usize) -> Result<Layout, LayerError> {
    Layout::choose_blocks_by(geometry, n, |layout| {
        let cost = layout.cost();
        let coefficients = |polys: usize| (polys * n) as f64;
        INPUT * coefficients(cost.input_polys)
            + MASK * coefficients(layout.output_blocks())
            + ANSWER * coefficients(cost.output_polys)
            + PRODUCT * coefficients(cost.products)
            + WEIGHT * coefficients(cost.weight_polys)
    })
}

/// Largest Euclidean norm, and largest sum of absolute values, of the weights that meet in one output polynomial. `weights` are (O, C/groups, kh, kw) or
/// (M, K) row-major.
///
/// # Errors
/// [`LayerError::Length`] when there are not as many weights as the places say.
pub fn norms(layout: &Layout, weights: &[i16]) -> Result<(f64, f64), LayerError> {
    expect("weights", layout.weight_len(), weights.len())?;
    let of = |j: usize| {
        let (mut squares, mut sizes) = (0u64, 0u64);
        for i in layout.inputs_of(j) {
            layout.for_each_weight(i, j, |_, w, _| {
                let size = u64::from(weights[w].unsigned_abs());
                squares += size * size;
                sizes += size;
            });
        }
        (squares, sizes)
    };
    let all = (0..layout.output_blocks()).into_par_iter().map(of);
    let (squares, sizes) = all.reduce(|| (0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
    Ok(((squares as f64).sqrt(), sizes as f64))
}

/// Words that travel for one image, and for one session.
#[must_use]
pub fn travel(layout: &Layout) -> Travel {
    let (cost, n) = (layout.cost(), layout.degree() as u64);
    Travel {
        upload: cost.input_polys as u64 * n,
        body: layout.output_len() as u64,
        mask: layout.output_blocks() as u64 * n,
    }
}

/// What both parties know of a stage: the places and the bits.
#[derive(Clone, Debug)]
pub struct CoefficientStage {
    layout: Layout,
    params: CoefficientParams,
}

impl CoefficientStage {
    /// From places and checked parameters of the same ring degree.
    ///
    /// # Errors
    /// [`LayerError::Length`] when the ring degrees differ.
    pub fn new(layout: Layout, params: CoefficientParams) -> Result<Self, LayerError> {
        expect("ring degree of the parameters", layout.degree(), params.ring_degree())?;
        Ok(Self { layout, params })
    }

    /// Where the elements of inputs and results lie in ciphertexts.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &CoefficientParams {
        &self.params
    }

    /// Tiles of an image: as many secrets does it take.
    #[must_use]
    pub fn tiles(&self) -> usize {
        self.layout.tiles()
    }

    /// Number of bytes of the request for a tile, the same for all.
    #[must_use]
    pub fn request_len(&self) -> usize {
        self.layout.input_blocks().saturating_mul(self.poly_len(self.params.bits().upload))
    }

    /// Bytes of the answer to a tile.
    #[must_use]
    pub fn answer_len(&self, tile: usize) -> usize {
        pack::packed_len(self.values(tile).next_multiple_of(8), self.params.bits().body)
    }

    /// Bytes of the sums of masks.
    #[must_use]
    pub fn masks_len(&self) -> usize {
        self.layout.output_blocks().saturating_mul(self.poly_len(self.params.bits().mask))
    }

    /// Bytes that a client keeps of the sums of masks, in evaluation form.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        (self.layout.output_blocks() as u64).saturating_mul(8 * self.layout.degree() as u64)
    }

    /// The number of results that a tile has.
    #[must_use]
    pub fn values(&self, tile: usize) -> usize {
        (0..self.layout.output_blocks()).map(|j| self.layout.output_count(tile, j)).sum()
    }

    fn poly_len(&self, bits: u32) -> usize {
        pack::packed_len(self.layout.degree(), bits)
    }
}

/// The parameters of a layer with the fewest bytes, from its weights. Returns the places too.
///
/// # Errors
/// What [`layout`] and [`norms`] refuse; inside, what [`CoefficientSpec::choose`] refuses.
pub fn choose(
    geometry: &Geometry,
    n: usize,
    weights: &[i16],
    output_bound: u64,
) -> Result<(CoefficientStage, CoefficientSpec), ChooseError> {
    let layout = layout(geometry, n)?;
    let (weight_l2, weight_l1) = norms(&layout, weights)?;
    let spec = CoefficientSpec { ring_degree: n, output_bound, weight_l2, weight_l1 };
    let params = spec.choose(&travel(&layout))?;
    Ok((CoefficientStage { layout, params }, spec))
}

/// Checks bits against a layer: with its weights, that decryption is exact; without, that the bits have sizes that can be.
///
/// # Errors
/// As [`choose`], with [`CoefficientSpec::check`].
pub fn check(
    geometry: &Geometry,
    n: usize,
    weights: Option<&[i16]>,
    output_bound: u64,
    bits: CoefficientBits,
) -> Result<CoefficientStage, ChooseError> {
    let layout = layout(geometry, n)?;
    let (weight_l2, weight_l1) = weights.map_or(Ok((1.0, 1.0)), |w| norms(&layout, w))?;
    let params = CoefficientSpec { ring_degree: n, output_bound, weight_l2, weight_l1 }.check(bits)?;
    Ok(CoefficientStage { layout, params })
}

/// Why a layer has no parameters.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    /// No places, or weights of another shape.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// No secure and correct bits.
    #[error(transparent)]
    Params(#[from] ParamsError),
}

#[cfg(test)]
mod tests;
