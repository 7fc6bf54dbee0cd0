//! Coefficient-packed linear layers whose output channels are merged into few ciphertexts at the server (Kim, Guyot, "Optimized
//! privacy-preserving CNN inference with fully homomorphic encryption", IEEE TIFS 2023: ConvFHE), on shares modulo 2^l.
//!
//! Places as in [`crate::rotation_free::Layout`]: useful coefficients are multiples of s. Keys, encryption and answers as in
//! [`hushnet_rlwe::packed`] (one 50-bit prime, N = 4096, so that a second one for key switching stays within 128 bits); merging:
//! [`hushnet_rlwe::pack_lwe`]. Up to s output polynomials travel down as one ciphertext.
//!
//! *What the parties see.* Server: ring-LWE ciphertexts, and switching keys, which are encryptions of images of the secret under the secret
//! (circular security, as everywhere). Client: the merged ciphertext plus a fresh encryption of zero, its useful coefficients masked by R uniform modulo 2^r:
//! simulated by uniform words exactly as in [`hushnet_rlwe::packed`]; key switching happens before.
//!
//! *Noise*: that of [`hushnet_rlwe::packed`] plus [`merge_variance`], which enters the parameters as if the weights' norm were
//! larger: `|W|^2 + merge_variance / 11.5`. Cost: exactly [`ConvFheDesign::cost`].

use crate::batch::{expect, Geometry, LayerError};
use crate::rotation_free::{Layout, LayoutPrices, MethodCost};
use hushnet_ring::prime::primes_near;
use hushnet_ring::{pack, Prg};
use hushnet_rlwe::one_poly::{Tally, TallyCounts};
use hushnet_rlwe::pack_lwe::{merge_offset, merge_steps, merge_variance, MergeContext, MergeKeys, Pair};
use hushnet_rlwe::packed::{
    PackedClient, PackedContext, PackedParams, PackedServer, PackedSpec, WeightPoly, PRIME_BITS,
};
use rayon::prelude::*;

/// Ring degree: two 50-bit primes need 4096.
pub const RING_DEGREE: usize = 4096;
/// Bytes of the public key that a client sends besides the switching keys: the seed of one polynomial, and the other one.
#[must_use]
pub fn public_key_len() -> usize {
    32 + pack::packed_len(RING_DEGREE, PRIME_BITS)
}

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

    /// Tables of encryption.
    #[must_use]
    pub fn packed(&self) -> &PackedContext {
        &self.packed
    }

    /// Tables of merging.
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
        let primes = primes_near(PRIME_BITS, RING_DEGREE, 2)?;
        let merge = merge_variance(RING_DEGREE, &primes[..1], primes[1], layout.spacing());
        let weight_l2 = (weight_l2.powi(2) + merge / 11.5).sqrt();
        // The special prime counts for security.
        if !hushnet_rlwe::security::is_128_bit(RING_DEGREE, 2 * PRIME_BITS) {
            let modulus_bits = 2 * PRIME_BITS;
            return Err(hushnet_rlwe::CipherError::Insecure { ring_degree: RING_DEGREE, modulus_bits }.into());
        }
        let params = PackedSpec { ring_degree: RING_DEGREE, ring_bits, weight_l2 }.choose()?;
        Ok((layout, params))
    }

    /// Places.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Parameters.
    #[must_use]
    pub fn params(&self) -> &PackedParams {
        &self.params
    }

    /// Bytes that weights in evaluation form take.
    #[must_use]
    pub fn prepared_bytes(&self) -> usize {
        8 * RING_DEGREE * self.layout.cost().weight_polys
    }

    /// Tiles of the stage.
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

    fn part_len(&self, tile: usize, g: usize) -> usize {
        let r = self.params.response_bits();
        let count: usize = self.group(g).map(|j| self.layout.output_count(tile, j)).sum();
        pack::packed_len(RING_DEGREE, r) + pack::packed_len(count, r)
    }

    /// Bytes of a request.
    #[must_use]
    pub fn request_len(&self) -> usize {
        self.layout.input_blocks() * pack::packed_len(RING_DEGREE, PRIME_BITS)
    }

    /// Bytes of the answer to a tile.
    #[must_use]
    pub fn answer_len(&self, tile: usize) -> usize {
        (0..self.groups()).map(|g| self.part_len(tile, g)).sum()
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
            bytes_down: (0..tiles).map(|t| self.answer_len(t)).sum(),
            bytes_setup: self.context.merge.keys_len(self.layout.spacing()),
        }
    }
}

/// Server half of a stage. No `Debug`.
pub struct ConvFheLinear {
    design: ConvFheDesign,
    weights: Weights,
    bias: Vec<i64>,
    tally: Tally,
}

/// Weights as an answer uses them.
enum Weights {
    /// One a weight polynomial, times 1/s.
    Prepared(Vec<WeightPoly>),
    /// As given; transformed for every tile.
    Streamed(Vec<i16>),
}

/// What a server holds of a session: the client's public key and merging keys.
pub struct ConvFheSession {
    server: PackedServer,
    keys: MergeKeys,
}

impl ConvFheSession {
    /// With both keys, checked.
    #[must_use]
    pub fn new(server: PackedServer, keys: MergeKeys) -> Self {
        Self { server, keys }
    }
}

impl ConvFheLinear {
    /// Prepares a stage. `weights` are (O, C/groups, kh, kw) or (M, K) row-major, `bias` one value an output channel.
    ///
    /// # Errors
    /// [`LayerError::Length`] for the wrong number of weights or biases; what [`ConvFheDesign::new`] refuses.
    pub fn new(
        context: &ConvFheContext,
        geometry: &Geometry,
        weights: &[i16],
        bias: &[i64],
        ring_bits: u32,
    ) -> Result<Self, LayerError> {
        let mut linear = Self::streamed(context, geometry, weights, bias, ring_bits)?;
        let layout = &linear.design.layout;
        let polys: Vec<(usize, usize)> =
            (0..layout.output_blocks()).flat_map(|j| layout.inputs_of(j).map(move |i| (i, j))).collect();
        let prepared = polys
            .into_par_iter()
            .map(|(i, j)| linear.weight_poly(weights, i, j))
            .collect::<Result<_, LayerError>>()?;
        linear.weights = Weights::Prepared(prepared);
        Ok(linear)
    }

    /// As [`Self::new`], with weights transformed anew for every tile: one transform more a product, in the memory of the weights
    /// themselves.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn streamed(
        context: &ConvFheContext,
        geometry: &Geometry,
        weights: &[i16],
        bias: &[i64],
        ring_bits: u32,
    ) -> Result<Self, LayerError> {
        let layout = Layout::choose(geometry, RING_DEGREE, &DEFAULT_PRICES)?;
        expect("weights", layout.weight_len(), weights.len())?;
        expect("biases", layout.channels_out(), bias.len())?;
        let l2 = (layout.weight_norm2(weights) as f64).sqrt();
        let design = ConvFheDesign::new(context, geometry, ring_bits, l2)?;
        let weights = Weights::Streamed(weights.to_vec());
        Ok(Self { design, weights, bias: bias.to_vec(), tally: Tally::default() })
    }

    /// The weights between input block i and output block j, times 1/s.
    fn weight_poly(&self, weights: &[i16], i: usize, j: usize) -> Result<WeightPoly, LayerError> {
        let (layout, packed) = (&self.design.layout, &self.design.context.packed);
        let p = packed.prime();
        let inverse = i128::from(hushnet_ring::prime::inv_mod(layout.spacing() as u64, p));
        let mut poly = layout.weight_poly(weights, i, j);
        for w in poly.iter_mut().filter(|w| **w != 0) {
            *w = (i128::from(*w) * inverse).rem_euclid(i128::from(p)) as i64;
        }
        self.tally.add(TallyCounts { ntt: 1, ..TallyCounts::default() });
        Ok(WeightPoly::new(packed, &poly)?)
    }

    /// What both parties agree on.
    #[must_use]
    pub fn design(&self) -> &ConvFheDesign {
        &self.design
    }

    /// Operations so far, preparation included.
    #[must_use]
    pub fn tally(&self) -> TallyCounts {
        self.tally.counts()
    }

    /// Bytes that the weights take.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        match &self.weights {
            Weights::Prepared(w) => 8 * RING_DEGREE * w.len(),
            Weights::Streamed(w) => 2 * w.len(),
        }
    }

    /// The client's half.
    #[must_use]
    pub fn client(&self) -> ConvFheClient {
        ConvFheClient { design: self.design.clone(), tally: std::sync::Arc::default() }
    }

    /// Answers one tile; as [`crate::cheetah::CheetahLinear::answer`].
    ///
    /// # Errors
    /// [`LayerError::Length`] for a request of the wrong length or shares of the wrong size; [`LayerError::Cipher`] for damaged words or
    /// keys of too small a spacing.
    #[allow(
        clippy::too_many_arguments,
        reason = "what a stage, a tile and a session are named by, and two shares"
    )]
    pub fn answer(
        &self,
        session: &ConvFheSession,
        seed: &[u8; 32],
        stage: u32,
        tile: usize,
        request: &[u8],
        share: &[u64],
        own: &mut [u64],
    ) -> Result<Vec<u8>, LayerError> {
        let d = &self.design;
        let (layout, context, n) = (&d.layout, &d.context, RING_DEGREE);
        expect("request", d.request_len(), request.len())?;
        expect("input share", layout.input_len(), share.len())?;
        expect("output share", layout.output_len(), own.len())?;
        let blocks = layout.input_blocks();
        let inputs: Vec<(Vec<u64>, Vec<u64>)> = request
            .par_chunks_exact(pack::packed_len(n, PRIME_BITS))
            .enumerate()
            .map(|(i, bytes)| {
                let (mut c0, mut c1, mut poly) = (vec![0; n], vec![0; n], vec![0; n]);
                pack::unpack(bytes, PRIME_BITS, &mut c0)?;
                layout.for_each_input(tile, i, |at, e| poly[at] = share[e]);
                session.server.absorb(&d.params, &poly, &mut c0)?;
                context.packed.mask_hat(seed, stage, (tile * blocks + i) as u32, &mut c1)?;
                self.tally.add(TallyCounts { ntt: 1, ..TallyCounts::default() });
                Ok((c0, c1))
            })
            .collect::<Result<_, LayerError>>()?;
        let mask = hushnet_ring::low_mask(d.params.ring_bits());
        let pixels = layout.output_len() / layout.channels_out();
        let mut message = Vec::with_capacity(d.answer_len(tile));
        let mut first = 0;
        for g in 0..d.groups() {
            let starts: Vec<(usize, usize)> = d
                .group(g)
                .map(|j| {
                    first += layout.inputs_of(j).len();
                    (j, first - layout.inputs_of(j).len())
                })
                .collect();
            let list = starts
                .into_par_iter()
                .map(|(j, first)| self.combine(session, &inputs, j, first))
                .collect::<Result<Vec<_>, LayerError>>()?;
            let [mut s0, mut s1] = session.keys.merge(list, layout.spacing(), &self.tally)?;
            let (places, elements) = d.places(tile, g);
            let (mut values, mut shares) = (vec![0; places.len()], vec![0; places.len()]);
            let mut prg = Prg::from_os()?;
            let (w0, w1) = (s0.words_mut(), s1.words_mut());
            session.server.answer(&d.params, &mut prg, w0, w1, &places, &mut values, &mut shares)?;
            self.tally.add(TallyCounts { intt: 2, ..TallyCounts::default() });
            let start = message.len();
            message.resize(start + d.part_len(tile, g), 0);
            let r = d.params.response_bits();
            let (c1, c0) = message[start..].split_at_mut(pack::packed_len(n, r));
            pack::pack(w1, r, c1)?;
            pack::pack(&values, r, c0)?;
            for (e, value) in elements.into_iter().zip(shares) {
                own[e] = value.wrapping_add(self.bias[e / pixels] as u64) & mask;
            }
        }
        Ok(message)
    }

    /// `sum_i w_ij (c0_i, c1_i) / s`.
    fn combine(
        &self,
        session: &ConvFheSession,
        inputs: &[(Vec<u64>, Vec<u64>)],
        j: usize,
        first: usize,
    ) -> Result<Pair, LayerError> {
        let range = self.design.layout.inputs_of(j);
        let made: Vec<WeightPoly>;
        let weights: Vec<&WeightPoly> = match &self.weights {
            Weights::Prepared(w) => w[first..first + range.len()].iter().collect(),
            Weights::Streamed(w) => {
                made = range.clone().map(|i| self.weight_poly(w, i, j)).collect::<Result<_, LayerError>>()?;
                made.iter().collect()
            }
        };
        let c0: Vec<&[u64]> = inputs[range.clone()].iter().map(|(c0, _)| c0.as_slice()).collect();
        let c1: Vec<&[u64]> = inputs[range].iter().map(|(_, c1)| c1.as_slice()).collect();
        let merge = &self.design.context.merge;
        let (mut s0, mut s1) = (merge.zero()?, merge.zero()?);
        session.server.combine(&c0, &c1, &weights, s0.words_mut(), s1.words_mut())?;
        self.tally.add(TallyCounts { products: 2 * weights.len() as u64, ..TallyCounts::default() });
        Ok([s0, s1])
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

    /// Operations so far.
    #[must_use]
    pub fn tally(&self) -> TallyCounts {
        self.tally.counts()
    }

    /// Encrypts one tile of the client's share; as [`crate::cheetah::CheetahClient::request`].
    ///
    /// # Errors
    /// [`LayerError::Length`] unless `share` is the whole tensor.
    pub fn request(
        &self,
        key: &PackedClient,
        seed: &[u8; 32],
        stage: u32,
        tile: usize,
        share: &[u64],
    ) -> Result<Vec<u8>, LayerError> {
        let d = &self.design;
        let (n, blocks) = (RING_DEGREE, d.layout.input_blocks());
        expect("input share", d.layout.input_len(), share.len())?;
        let mut message = vec![0; d.request_len()];
        message.par_chunks_exact_mut(pack::packed_len(n, PRIME_BITS)).enumerate().try_for_each(
            |(i, bytes)| {
                let (mut mask, mut poly, mut c0) = (vec![0; n], vec![0; n], vec![0; n]);
                d.layout.for_each_input(tile, i, |at, e| poly[at] = share[e]);
                d.context.packed.mask_hat(seed, stage, (tile * blocks + i) as u32, &mut mask)?;
                key.encrypt_into(&d.params, &mask, &poly, &mut Prg::from_os()?, &mut c0)?;
                pack::pack(&c0, PRIME_BITS, bytes)?;
                self.tally.add(TallyCounts { intt: 1, ..TallyCounts::default() });
                Ok::<(), LayerError>(())
            },
        )?;
        Ok(message)
    }

    /// Reads the client's share of a tile's outputs.
    ///
    /// # Errors
    /// [`LayerError::Length`] for an answer of the wrong length or a share of the wrong size.
    pub fn open(
        &self,
        key: &PackedClient,
        tile: usize,
        answer: &[u8],
        share: &mut [u64],
    ) -> Result<(), LayerError> {
        let d = &self.design;
        let r = d.params.response_bits();
        expect("answer", d.answer_len(tile), answer.len())?;
        expect("output share", d.layout.output_len(), share.len())?;
        let mut rest = answer;
        for g in 0..d.groups() {
            let (part, after) = rest.split_at(d.part_len(tile, g));
            rest = after;
            let (places, elements) = d.places(tile, g);
            let (c1_bytes, c0_bytes) = part.split_at(pack::packed_len(RING_DEGREE, r));
            let (mut c1, mut c0) = (vec![0; RING_DEGREE], vec![0; places.len()]);
            pack::unpack(c1_bytes, r, &mut c1)?;
            pack::unpack(c0_bytes, r, &mut c0)?;
            let mut out = vec![0; places.len()];
            key.open(&d.params, &c1, &c0, &places, &mut out)?;
            self.tally.add(TallyCounts { intt: 1, ..TallyCounts::default() });
            for (e, value) in elements.into_iter().zip(out) {
                share[e] = value;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
