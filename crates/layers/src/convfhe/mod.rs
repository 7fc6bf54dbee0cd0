//! Coefficient-packed linear layers whose output channels are merged into few ciphertexts at the server (Kim, Guyot, "Optimized
//! privacy-preserving CNN inference with fully homomorphic encryption", IEEE TIFS 2023: ConvFHE), on shares modulo 2^l.
//!
//! Places as in [`crate::layout`], channels interleaved: useful coefficients are multiples of s. Keys, encryption and answers as in
//! [`hushnet_rlwe::packed`] (one 50-bit prime, N = 4096, so that a second one for key switching stays within 128 bits); merging:
//! [`hushnet_rlwe::pack_lwe`]. Up to s output polynomials travel down as one ciphertext.
//!
//! *What the parties see.* Server: ring-LWE ciphertexts, and switching keys, which are encryptions of images of the secret under the secret
//! (circular security, as everywhere). Client: c1 of the merged ciphertext plus a fresh encryption of zero:
//! simulated by uniform words exactly as in [`hushnet_rlwe::packed`]; key switching happens before.
//!
//! *Noise*: that of [`hushnet_rlwe::packed`] plus [`merge_variance`], which enters the parameters as if the weights' norm were
//! larger: `|W|^2 + merge_variance / 11.5`. Cost: exactly [`ConvFheDesign::cost`].

mod client;
mod server;

pub use server::{ConvFheLinear, ConvFheSession};

use crate::batch::{Geometry, LayerError};
use crate::cheetah::{self, Coefficients};
use crate::layout::{Layout, LayoutPrices};
use crate::rotation_free::MethodCost;
use hushnet_ring::prime::primes_near;
use hushnet_rlwe::one_poly::{Tally, TallyCounts};
use hushnet_rlwe::pack_lwe::{merge_offset, merge_steps, merge_variance, MergeContext};
use hushnet_rlwe::packed::{PackedContext, PackedParams, PackedPublicKey, PackedSpec, PRIME_BITS};

/// Ring degree: two 50-bit primes need 4096.
pub const RING_DEGREE: usize = 4096;
/// Spacing that stands for a layer's where it is not known.
const TYPICAL_SPACING: usize = 64;
/// Measured on one core; only ratios steer the choice of the layout.
pub const DEFAULT_PRICES: LayoutPrices =
    LayoutPrices { input: 90e-6, output: 0.0, output_poly: 170e-6, product: 2.4e-6, weight: 6e-7 };

/// Tables of one session: both parties make the same.
#[derive(Clone)]
pub struct ConvFheContext {
    packed: PackedContext,
    merge: MergeContext,
}

impl ConvFheContext {
    /// Tables at [`RING_DEGREE`].
    ///
    /// # Errors
    /// [`LayerError::Cipher`] from the ring.
    pub fn new() -> Result<Self, LayerError> {
        let packed = PackedContext::new(RING_DEGREE)?;
        let special = primes_near(PRIME_BITS, RING_DEGREE, 2)?[1];
        let merge = MergeContext::new(RING_DEGREE, &[packed.prime()], special)?;
        Ok(Self { packed, merge })
    }

    /// The tables of encryption, of one prime.
    #[must_use]
    pub fn packed(&self) -> &PackedContext {
        &self.packed
    }

    /// The tables of merging, of two primes.
    #[must_use]
    pub fn merge(&self) -> &MergeContext {
        &self.merge
    }
}

/// Layout and parameters of a layer. Public.
#[derive(Clone)]
pub struct ConvFheDesign {
    layout: Layout,
    params: PackedParams,
    context: ConvFheContext,
}

impl ConvFheDesign {
    /// For a bound of the norm of the weights that meet in one answer.
    ///
    /// # Errors
    /// What [`Layout::choose`] and [`PackedSpec::choose`] refuse.
    pub fn new(
        context: &ConvFheContext,
        geometry: &Geometry,
        ring_bits: u32,
        weight_l2: f64,
    ) -> Result<Self, LayerError> {
        let (layout, params) = Self::sized(geometry, ring_bits, weight_l2)?;
        Ok(Self { layout, params, context: context.clone() })
    }

    /// Bytes of the client's public key ahead of the merging keys: seed and pk0.
    #[must_use]
    pub fn public_key_len() -> usize {
        PackedPublicKey::byte_len(RING_DEGREE)
    }

    /// That a layer has parameters, without making tables.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn check(geometry: &Geometry, ring_bits: u32, weight_l2: f64) -> Result<(), LayerError> {
        Self::sized(geometry, ring_bits, weight_l2).map(drop)
    }

    fn sized(
        geometry: &Geometry,
        ring_bits: u32,
        weight_l2: f64,
    ) -> Result<(Layout, PackedParams), LayerError> {
        let layout = Layout::choose(geometry, RING_DEGREE, &DEFAULT_PRICES)?;
        // The special prime counts for security.
        if !hushnet_rlwe::security::is_128_bit(RING_DEGREE, 2 * PRIME_BITS) {
            let modulus_bits = 2 * PRIME_BITS;
            return Err(hushnet_rlwe::CipherError::Insecure { ring_degree: RING_DEGREE, modulus_bits }.into());
        }
        let params = Self::spec(layout.spacing(), ring_bits, weight_l2)?.choose()?;
        Ok((layout, params))
    }

    /// The norm of the weights with the noise of merging.
    fn spec(spacing: usize, ring_bits: u32, weight_l2: f64) -> Result<PackedSpec, LayerError> {
        let primes = primes_near(PRIME_BITS, RING_DEGREE, 2)?;
        let merge = merge_variance(RING_DEGREE, &primes[..1], primes[1], spacing);
        let weight_l2 = (weight_l2.powi(2) + merge / 11.5).sqrt();
        Ok(PackedSpec { ring_degree: RING_DEGREE, ring_bits, weight_l2 })
    }

    /// What the parameters of a layer rest on whose layout is not known: a spacing of 64 stands for it.
    ///
    /// # Errors
    /// [`LayerError::Cipher`] from the ring.
    pub fn typical(ring_bits: u32, weight_l2: f64) -> Result<PackedSpec, LayerError> {
        Self::spec(TYPICAL_SPACING, ring_bits, weight_l2)
    }

    /// Where the elements of inputs and results lie in ciphertexts.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &PackedParams {
        &self.params
    }

    /// Bytes that weights in evaluation form take.
    #[must_use]
    pub fn prepared_bytes(&self) -> usize {
        self.layout.prepared_bytes()
    }

    /// What encryption needs of the stage.
    fn places_of(&self) -> Coefficients<'_> {
        Coefficients { context: &self.context.packed, params: &self.params, layout: &self.layout }
    }

    /// Number of tiles, which are asked for and answered one by one.
    #[must_use]
    pub fn tiles(&self) -> usize {
        self.layout.tiles()
    }

    /// Merged ciphertexts of a tile.
    fn groups(&self) -> usize {
        self.layout.output_blocks().div_ceil(self.layout.spacing())
    }

    /// Output blocks that group `g` merges.
    fn group(&self, g: usize) -> std::ops::Range<usize> {
        let s = self.layout.spacing();
        g * s..((g + 1) * s).min(self.layout.output_blocks())
    }

    /// Coefficients of group `g` of a tile, and the elements that stand there.
    fn places(&self, tile: usize, g: usize) -> (Vec<usize>, Vec<usize>) {
        let (mut places, mut elements) = (Vec::new(), Vec::new());
        let (range, s) = (self.group(g), self.layout.spacing());
        for j in range.clone() {
            let offset = merge_offset(j - range.start, range.len(), s);
            self.layout.for_each_output(tile, j, |at, e| {
                places.push(at * s + offset);
                elements.push(e);
            });
        }
        (places, elements)
    }

    /// Number of bytes of the request for a tile.
    #[must_use]
    pub fn request_len(&self) -> usize {
        cheetah::request_len(&self.layout, &self.params)
    }

    /// Number of bytes of the answer to a tile: c1 of every merged ciphertext.
    #[must_use]
    pub fn answer_len(&self) -> usize {
        self.groups() * cheetah::part_len(&self.params)
    }

    /// Operations and bytes for one image. Transforms inside automorphisms, encryption and re-randomisation are not counted apart: a
    /// ciphertext product is two products, a combined output two inverse transforms once merged.
    #[must_use]
    pub fn cost(&self) -> MethodCost {
        let c = self.layout.cost();
        let tiles = self.layout.tiles();
        let rotations: usize =
            (0..self.groups()).map(|g| merge_steps(self.group(g).len(), self.layout.spacing())).sum();
        let count = |ntt: usize, intt: usize, products: usize, rotations: usize| TallyCounts {
            ntt: ntt as u64,
            intt: intt as u64,
            products: products as u64,
            rotations: rotations as u64,
        };
        MethodCost {
            client_offline: TallyCounts::default(),
            client_online: count(0, c.input_polys + tiles * self.groups(), 0, 0),
            server_offline: TallyCounts::default(),
            server_online: count(c.input_polys, 2 * tiles * self.groups(), 2 * c.products, tiles * rotations),
            setup: count(c.weight_polys, 0, 0, 0),
            bytes_up: tiles * self.request_len(),
            bytes_down: tiles * self.answer_len(),
            bytes_setup: self.context.merge.keys_len(self.layout.spacing()),
        }
    }
}

/// Client half of a stage: shapes only.
#[derive(Clone)]
pub struct ConvFheClient {
    design: ConvFheDesign,
    tally: std::sync::Arc<Tally>,
}

impl ConvFheClient {
    /// For a design from a plan.
    #[must_use]
    pub fn new(design: &ConvFheDesign) -> Self {
        Self { design: design.clone(), tally: std::sync::Arc::default() }
    }

    /// What both parties agree on.
    #[must_use]
    pub fn design(&self) -> &ConvFheDesign {
        &self.design
    }

    /// Numbers of operations that were counted so far, by kind.
    #[must_use]
    pub fn tally(&self) -> TallyCounts {
        self.tally.counts()
    }
}

#[cfg(test)]
mod tests;
