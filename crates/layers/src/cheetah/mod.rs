//! Coefficient-packed linear layers on shares of one image: no rotation, one product a pair of polynomials
//! (Huang, Lu, Hong, Ding, "Cheetah", USENIX Security 2022), with several output channels in one answer.
//!
//! A stage runs tile by tile. Client: [`CheetahClient::request`] -> server: [`CheetahLinear::answer`] -> client:
//! [`CheetahClient::open`]. Both sides then hold shares of the convolution modulo 2^l that sum to it, one unit off in the
//! small fraction that [`hushnet_rlwe::packed`] states. Cost: exactly [`Layout::cost`].

pub(crate) mod client;
pub(crate) mod server;

pub use client::AskTiles;
pub use server::{AnswerTiles, CheetahLinear};

use crate::batch::{Geometry, LayerError};
use crate::layout::{Layout, LayoutPrices};
use hushnet_ring::pack;
use hushnet_rlwe::packed::{FoldedPoly, PackedContext, PackedParams, PackedSpec, SpacedTransform};

/// Measured on one core at N = 2048, and 8 ns for each byte that travels (a link of 1 Gbit/s): 42 bits a word of a request, 35 of c1 in an
/// answer. Only their ratios steer the choice of the layout.
pub const DEFAULT_PRICES: LayoutPrices =
    LayoutPrices { input: 111e-6, output: 0.0, output_poly: 117e-6, product: 1.2e-6, weight: 3e-7 };
/// What places of a channel may be rounded up to: the spacings at which weights take less room and time.
const APART: [usize; 9] = [1, 2, 4, 8, 64, 128, 256, 512, 1024];
/// Seconds of a product by the spacing of its weights: reading them is most of it where they are many words.
const PRODUCTS: [(usize, f64); 3] = [(8, 0.5e-6), (4, 0.6e-6), (2, 0.8e-6)];

/// The cheapest layout of a layer at ring degree `n`, by [`DEFAULT_PRICES`]. Weights that have few values ([`SpacedTransform`],
/// [`FoldedPoly`]) take as much less than others as they have fewer, and their products less time.
///
/// # Errors
/// What [`Layout::choose_blocks`] refuses.
pub fn choose_layout(geometry: &Geometry, n: usize) -> Result<Layout, LayerError> {
    Layout::choose_apart_by(geometry, n, &APART, |layout| {
        let weight = DEFAULT_PRICES.weight * values(layout) as f64 / n as f64;
        let apart = layout.weight_spacing();
        let product = PRODUCTS.into_iter().find(|(least, _)| apart >= *least);
        let product = product.map_or(DEFAULT_PRICES.product, |(_, seconds)| seconds);
        layout.seconds(&LayoutPrices { product, weight, ..DEFAULT_PRICES })
    })
}

/// Words of a weight polynomial in evaluation form.
fn values(layout: &Layout) -> usize {
    let (n, apart) = (layout.degree(), layout.weight_spacing());
    SpacedTransform::values(n, apart).unwrap_or_else(|| FoldedPoly::values(n, apart))
}

/// Elements of a tensor with their shares.
type Shares = Vec<(usize, u64)>;

/// What numbers the masks of a tile: the image's seed, the stage, the tile. No two encryptions may have the same.
pub(crate) type TileId<'a> = (&'a [u8; 32], u32, usize);

/// What both parties know of a stage with this encryption.
pub(crate) struct Coefficients<'a> {
    pub(crate) context: &'a PackedContext,
    pub(crate) params: &'a PackedParams,
    pub(crate) layout: &'a Layout,
}

/// Client half of a stage: shapes only.
#[derive(Clone)]
pub struct CheetahClient {
    layout: Layout,
    params: PackedParams,
    context: PackedContext,
}

impl CheetahClient {
    fn places(&self) -> Coefficients<'_> {
        Coefficients { context: &self.context, params: &self.params, layout: &self.layout }
    }

    /// From what a plan says: the geometry and the norm of the weights that the parameters rest on.
    ///
    /// # Errors
    /// What [`choose_layout`] and [`PackedSpec::choose`] refuse.
    pub fn new(
        context: &PackedContext,
        geometry: &Geometry,
        ring_bits: u32,
        weight_l2: f64,
    ) -> Result<Self, LayerError> {
        let layout = choose_layout(geometry, context.ring_degree())?;
        let params = PackedSpec { ring_degree: context.ring_degree(), ring_bits, weight_l2 }.choose()?;
        Ok(Self { layout, params, context: context.clone() })
    }

    /// Number of tiles, which are asked for and answered one by one.
    #[must_use]
    pub fn tiles(&self) -> usize {
        self.layout.tiles()
    }

    /// Where the elements of inputs and results lie in ciphertexts.
    #[must_use]
    pub fn packing(&self) -> &Layout {
        &self.layout
    }

    /// Number of bytes of the request for a tile, the same for all.
    #[must_use]
    pub fn request_len(&self) -> usize {
        request_len(&self.layout, &self.params)
    }

    /// Number of bytes of the answer to a tile, the same for all.
    #[must_use]
    pub fn answer_len(&self) -> usize {
        self.layout.output_blocks() * part_len(&self.params)
    }
}

/// Bytes of a layer's weights in evaluation form at the server: a word a value, of which polynomials in X^S have few.
#[must_use]
pub fn prepared_bytes(layout: &Layout) -> usize {
    layout.cost().weight_polys * values(layout) * 8
}

/// What a byte of them saves: the tiles whose transforms are left out, times the words for which one is kept.
#[must_use]
pub fn keeping_uses(layout: &Layout) -> usize {
    layout.tiles() * (layout.degree() / values(layout))
}

/// Whether a layer's products are products of matrices ([`SpacedTransform`]).
#[must_use]
pub fn is_spaced(layout: &Layout) -> bool {
    SpacedTransform::values(layout.degree(), layout.weight_spacing()).is_some()
}

/// Bytes of a request for a tile.
pub(crate) fn request_len(layout: &Layout, params: &PackedParams) -> usize {
    layout.input_blocks() * pack::packed_len(layout.degree(), params.request_bits())
}

/// Bytes of an answer's ciphertext: c1.
pub(crate) fn part_len(params: &PackedParams) -> usize {
    pack::packed_len(params.ring_degree(), params.response_bits())
}

#[cfg(test)]
mod tests;
