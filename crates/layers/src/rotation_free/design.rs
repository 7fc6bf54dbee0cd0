//! What both parties derive from public numbers: layout, parameters, costs.

use super::setup;
use crate::batch::{expect, Geometry, LayerError};
use crate::layout::{Layout, LayoutPrices};
use hushnet_ring::pack;
use hushnet_rlwe::one_poly::{OnePolyContext, OnePolyParams, OnePolySpec, Profile, TallyCounts};
use hushnet_rlwe::CipherError;

/// Measured on one core for both parties together, with the set-up spread over a hundred queries; only ratios matter.
pub const DEFAULT_PRICES: LayoutPrices =
    LayoutPrices { input: 260e-6, output: 10e-9, output_poly: 2e-6, product: 12e-6, weight: 8e-6 };
/// The ring degrees that a search of parameters tries.
pub const DEGREES: [usize; 3] = [4096, 8192, 16384];

/// Layout and parameters of a layer: all that both parties need to agree on. Public.
#[derive(Clone, Debug)]
pub struct Design {
    pub(super) geometry: Geometry,
    pub(super) layout: Layout,
    pub(super) params: OnePolyParams,
    pub(super) stage: u32,
}

/// Operations and bytes for one image, exactly as run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodCost {
    /// Client, before the input is known.
    pub client_offline: TallyCounts,
    /// Client, afterwards.
    pub client_online: TallyCounts,
    /// Server, before the query.
    pub server_offline: TallyCounts,
    /// Server, afterwards.
    pub server_online: TallyCounts,
    /// Server, once for a model: keys and what is sent.
    pub setup: TallyCounts,
    /// Bytes of all requests.
    pub bytes_up: usize,
    /// Bytes of all answers.
    pub bytes_down: usize,
    /// Bytes of the set-up on the wire.
    pub bytes_setup: usize,
}

/// What a plan says about the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightBounds {
    /// Bound of the Euclidean norm of the weights that meet in one answer polynomial.
    pub l2: f64,
    /// w: weights are below 2^(w-1) in magnitude.
    pub bits: u32,
}

impl Design {
    /// For a ring degree and bounds of the weights, as a plan states them.
    ///
    /// # Errors
    /// What [`Layout::choose`] and [`OnePolySpec::choose`] refuse.
    pub fn new(
        geometry: &Geometry,
        ring_degree: usize,
        ring_bits: u32,
        bounds: WeightBounds,
        profile: Profile,
        stage: u32,
    ) -> Result<Self, LayerError> {
        let layout = Layout::choose(geometry, ring_degree, &DEFAULT_PRICES)?;
        Self::with_layout(geometry, layout, ring_bits, bounds, profile, stage)
    }

    /// With a layout of one's own choice.
    ///
    /// # Errors
    /// What [`OnePolySpec::choose`] refuses.
    pub fn with_layout(
        geometry: &Geometry,
        layout: Layout,
        ring_bits: u32,
        bounds: WeightBounds,
        profile: Profile,
        stage: u32,
    ) -> Result<Self, LayerError> {
        let spec = OnePolySpec {
            ring_degree: layout.degree(),
            ring_bits,
            weight_l2: bounds.l2,
            weight_bits: bounds.bits,
            weights: layout.weight_len(),
            terms: layout.terms(),
            profile,
        };
        Ok(Self { geometry: *geometry, params: spec.choose()?, layout, stage })
    }

    /// At the smallest ring degree that is secure for bounds that hold in every layout.
    ///
    /// # Errors
    /// What [`Self::new`] refuses at the last degree.
    pub fn smallest(
        geometry: &Geometry,
        ring_bits: u32,
        bounds: WeightBounds,
        profile: Profile,
        stage: u32,
    ) -> Result<Self, LayerError> {
        let mut result = Self::new(geometry, DEGREES[0], ring_bits, bounds, profile, stage);
        for n in &DEGREES[1..] {
            if result.is_err() {
                result = Self::new(geometry, *n, ring_bits, bounds, profile, stage);
            }
        }
        result
    }

    /// At the smallest ring degree that is secure for these weights; the norm is rounded up to a power of two, the width to whole bits.
    ///
    /// # Errors
    /// [`LayerError::Length`] for the wrong number of weights; what [`Self::new`] refuses.
    pub fn for_weights(
        geometry: &Geometry,
        weights: &[i16],
        ring_bits: u32,
        profile: Profile,
        stage: u32,
    ) -> Result<Self, LayerError> {
        let largest = weights.iter().map(|w| w.unsigned_abs()).max().unwrap_or(0);
        let bits = 17 - largest.leading_zeros();
        let mut refused = None;
        for n in DEGREES {
            let layout = match Layout::choose(geometry, n, &DEFAULT_PRICES) {
                Ok(layout) => layout,
                Err(e) => {
                    refused = Some(e);
                    continue;
                }
            };
            expect("weights", layout.weight_len(), weights.len())?;
            let l2 = (layout.weight_norm2(weights).max(1) as f64).sqrt().log2().ceil().exp2();
            match Self::with_layout(geometry, layout, ring_bits, WeightBounds { l2, bits }, profile, stage) {
                Ok(design) => return Ok(design),
                Err(e) => refused = Some(e),
            }
        }
        let insecure = CipherError::Insecure { ring_degree: DEGREES[2], modulus_bits: 0 };
        Err(refused.unwrap_or_else(|| insecure.into()))
    }

    /// Where the elements of inputs and results lie in ciphertexts.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &OnePolyParams {
        &self.params
    }

    /// The shapes of the layer that it computes.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(super) fn profile(&self) -> Profile {
        self.params.spec().profile
    }

    /// Polynomials that the set-up sends for every weight polynomial.
    fn setup_parts(&self) -> usize {
        match self.profile() {
            Profile::Compact => 1,
            Profile::Flooded => 2,
        }
    }

    pub(super) fn context(&self) -> Result<OnePolyContext, LayerError> {
        Ok(OnePolyContext::new(self.layout.degree(), self.params.prime_bits(), self.layout.spacing())?)
    }

    /// Bytes that prepared keys take.
    #[must_use]
    pub fn prepared_bytes(&self) -> usize {
        let words = self.layout.degree() * self.params.prime_bits().len();
        8 * words * self.setup_parts() * self.layout.cost().weight_polys
    }

    /// What a [`super::Setup`] under the seed of b begins with.
    #[must_use]
    pub fn setup_header(&self, seed: &[u8; 32]) -> Vec<u8> {
        setup::header(self, seed)
    }

    /// Bytes of the stored form of so many weight polynomials of the set-up.
    #[must_use]
    pub fn stored_len(&self, polys: usize) -> usize {
        setup::HEADER + polys * (self.setup_poly_len() + setup::TAG)
    }

    /// Bytes that a client holds of the query of one tile until its answer has come: v and -(v b + e0), the share's transform, its own part.
    #[must_use]
    pub fn query_bytes(&self) -> usize {
        let poly = 8 * self.layout.degree() * self.params.prime_bits().len();
        3 * poly * self.layout.input_blocks() + 8 * self.layout.degree() * self.layout.output_blocks()
    }

    fn poly_len(&self) -> usize {
        self.params.prime_bits().iter().map(|b| pack::packed_len(self.layout.degree(), *b)).sum()
    }

    /// Bytes of a request (of any tile).
    #[must_use]
    pub fn request_len(&self) -> usize {
        self.layout.input_blocks() * self.poly_len()
    }

    /// Bytes of the answer to a tile.
    #[must_use]
    pub fn answer_len(&self, tile: usize) -> usize {
        let r = self.params.response_bits();
        (0..self.layout.output_blocks()).map(|j| pack::packed_len(self.layout.output_count(tile, j), r)).sum()
    }

    /// Bytes of one weight polynomial's set-up.
    #[must_use]
    pub fn setup_poly_len(&self) -> usize {
        self.setup_parts() * self.poly_len()
    }

    /// Operations and bytes for one image.
    #[must_use]
    pub fn cost(&self) -> MethodCost {
        let c = self.layout.cost();
        let (inputs, outputs) = (c.input_polys as u64, c.output_polys as u64);
        let (products, weights) = (c.products as u64, c.weight_polys as u64);
        let count = |ntt, intt, products| TallyCounts { ntt, intt, products, rotations: 0 };
        let compact = self.profile() == Profile::Compact;
        MethodCost {
            client_offline: if compact {
                count(2 * inputs, outputs, inputs + products)
            } else {
                count(2 * inputs, 0, inputs)
            },
            client_online: if compact { count(inputs, 0, 0) } else { count(inputs, outputs, 2 * products) },
            server_offline: if compact { count(inputs, 0, 0) } else { count(inputs, outputs, products) },
            server_online: count(0, outputs, products),
            setup: if compact { count(2 * weights, 0, weights) } else { count(4 * weights, 0, weights) },
            bytes_up: self.layout.tiles() * self.request_len(),
            bytes_down: (0..self.layout.tiles()).map(|t| self.answer_len(t)).sum(),
            bytes_setup: c.weight_polys * self.setup_poly_len(),
        }
    }
}
