//! Coefficient-packed linear layers on shares of one image: no rotation, one product a pair of polynomials
//! (Huang, Lu, Hong, Ding, "Cheetah", USENIX Security 2022), with several output channels in one answer.
//!
//! A stage runs tile by tile. Client: [`CheetahClient::request`] -> server: [`CheetahLinear::answer`] -> client:
//! [`CheetahClient::open`]. Both sides then hold shares of the convolution modulo 2^l that sum to it, one unit off in the
//! small fraction that [`hushnet_rlwe::packed`] states. Cost: exactly [`Packing::cost`].

pub(crate) mod packing;

pub use packing::{Packing, PackingCost, UnitCosts};

use crate::batch::{expect, Geometry, LayerError};
use hushnet_ring::{pack, Prg};
use hushnet_rlwe::packed::{
    PackedClient, PackedContext, PackedParams, PackedServer, PackedSpec, WeightPoly, PRIME_BITS,
};
use rayon::prelude::*;
use std::ops::Range;

/// Measured on one core; only their ratios steer the choice of the packing.
pub const DEFAULT_COSTS: UnitCosts = UnitCosts { input: 25e-6, output: 45e-6, product: 1.2e-6, weight: 3e-7 };

/// Elements of a tensor with their shares.
type Shares = Vec<(usize, u64)>;

/// Server half of a stage: weights in evaluation form. No `Debug`.
pub struct CheetahLinear {
    packing: Packing,
    params: PackedParams,
    context: PackedContext,
    weights: Weights,
    bias: Vec<i64>,
}

/// Weights as an answer uses them.
enum Weights {
    /// Polynomials of output block j: one for every input block of `packing.inputs_of(j)`.
    Prepared(Vec<Vec<WeightPoly>>),
    /// As given; transformed for every tile.
    Streamed(Vec<i16>),
}

/// Streamed weight polynomials that are transformed and used together, to stay in the caches.
const STREAM_TERMS: usize = 16;

/// Client half of a stage: shapes only.
#[derive(Clone)]
pub struct CheetahClient {
    packing: Packing,
    params: PackedParams,
    context: PackedContext,
}

impl CheetahLinear {
    /// Prepares a stage. `weights` are (O, C/groups, kh, kw) or (M, K) row-major, `bias` one value an output channel, added modulo 2^l.
    ///
    /// # Errors
    /// [`LayerError::Length`] when there are not as many weights or biases as the geometry says, and what [`Packing::choose`] and
    /// [`PackedSpec::choose`] refuse.
    pub fn new(
        context: &PackedContext,
        geometry: &Geometry,
        weights: &[i16],
        bias: &[i64],
        ring_bits: u32,
    ) -> Result<Self, LayerError> {
        let mut linear = Self::streamed(context, geometry, weights, bias, ring_bits)?;
        let polys = (0..linear.packing.output_blocks())
            .into_par_iter()
            .map(|j| linear.packing.inputs_of(j).map(|i| linear.weight_poly(weights, i, j)).collect())
            .collect::<Result<_, LayerError>>()?;
        linear.weights = Weights::Prepared(polys);
        Ok(linear)
    }

    /// As [`Self::new`] without evaluation forms: they are made anew for every tile, one transform a product more. For
    /// layers whose prepared weights ([`Packing::prepared_bytes`]) do not fit the memory.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn streamed(
        context: &PackedContext,
        geometry: &Geometry,
        weights: &[i16],
        bias: &[i64],
        ring_bits: u32,
    ) -> Result<Self, LayerError> {
        let n = context.ring_degree();
        let packing = Packing::choose(geometry, n, &DEFAULT_COSTS)?;
        expect("weights", packing.weight_len(), weights.len())?;
        expect("biases", packing.channels_out(), bias.len())?;
        let norm = |j: usize| {
            let mut sum = 0u64;
            for i in packing.inputs_of(j) {
                packing.for_each_weight(i, j, |_, w| sum += u64::from(weights[w].unsigned_abs()).pow(2));
            }
            sum
        };
        let largest = (0..packing.output_blocks()).into_par_iter().map(norm).max().unwrap_or(0);
        let params = PackedSpec { ring_degree: n, ring_bits, weight_l2: (largest as f64).sqrt() }.choose()?;
        let weights = Weights::Streamed(weights.to_vec());
        Ok(Self { packing, params, context: context.clone(), weights, bias: bias.to_vec() })
    }

    fn weight_poly(&self, weights: &[i16], i: usize, j: usize) -> Result<WeightPoly, LayerError> {
        let mut coefficients = vec![0i64; self.packing.degree()];
        self.packing.for_each_weight(i, j, |at, w| coefficients[at] = i64::from(weights[w]));
        Ok(WeightPoly::new(&self.context, &coefficients)?)
    }

    /// `sum_i w_ij (c0_i, c1_i)` in evaluation form.
    fn combine(
        &self,
        server: &PackedServer,
        inputs: &[(Vec<u64>, Vec<u64>)],
        j: usize,
    ) -> Result<[Vec<u64>; 2], LayerError> {
        let (n, p) = (self.packing.degree(), self.context.prime());
        let range = self.packing.inputs_of(j);
        let dot = |terms: Range<usize>, weights: &[WeightPoly]| -> Result<[Vec<u64>; 2], LayerError> {
            let c0: Vec<&[u64]> = inputs[terms.clone()].iter().map(|(c0, _)| c0.as_slice()).collect();
            let c1: Vec<&[u64]> = inputs[terms].iter().map(|(_, c1)| c1.as_slice()).collect();
            let (mut s0, mut s1) = (vec![0; n], vec![0; n]);
            server.combine(&c0, &c1, &weights.iter().collect::<Vec<_>>(), &mut s0, &mut s1)?;
            Ok([s0, s1])
        };
        let weights = match &self.weights {
            Weights::Prepared(polys) => return dot(range, &polys[j]),
            Weights::Streamed(weights) => weights,
        };
        let mut sums = [vec![0; n], vec![0; n]];
        for first in range.clone().step_by(STREAM_TERMS) {
            let terms = first..(first + STREAM_TERMS).min(range.end);
            let polys =
                terms.clone().map(|i| self.weight_poly(weights, i, j)).collect::<Result<Vec<_>, _>>()?;
            for (sum, part) in sums.iter_mut().zip(dot(terms, &polys)?) {
                sum.iter_mut().zip(part).for_each(|(s, t)| {
                    let total = *s + t;
                    *s = total.min(total.wrapping_sub(p));
                });
            }
        }
        Ok(sums)
    }

    /// What the client needs: no weights.
    #[must_use]
    pub fn client(&self) -> CheetahClient {
        CheetahClient { packing: self.packing.clone(), params: self.params, context: self.context.clone() }
    }

    /// Bytes that the weights take.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        match &self.weights {
            Weights::Prepared(_) => self.packing.prepared_bytes(),
            Weights::Streamed(w) => 2 * w.len(),
        }
    }

    /// The chosen places.
    #[must_use]
    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// The chosen parameters.
    #[must_use]
    pub fn params(&self) -> &PackedParams {
        &self.params
    }

    /// Answers one tile. `share` is the server's share of the whole input tensor, `own` its share of the whole output tensor, of
    /// which this tile's elements are written (bias included).
    ///
    /// # Errors
    /// [`LayerError::Length`] for a request of the wrong length or shares of the wrong size; [`LayerError::Cipher`] for words that are not below the modulus.
    #[allow(
        clippy::too_many_arguments,
        reason = "what a stage, a tile and a session are named by, and two shares"
    )]
    pub fn answer(
        &self,
        server: &PackedServer,
        seed: &[u8; 32],
        stage: u32,
        tile: usize,
        request: &[u8],
        share: &[u64],
        own: &mut [u64],
    ) -> Result<Vec<u8>, LayerError> {
        let (n, blocks) = (self.packing.degree(), self.packing.input_blocks());
        expect("request", request_len(&self.packing), request.len())?;
        expect("input share", self.packing.input_len(), share.len())?;
        expect("output share", self.packing.output_len(), own.len())?;
        let inputs: Vec<(Vec<u64>, Vec<u64>)> = request
            .par_chunks_exact(pack::packed_len(n, PRIME_BITS))
            .enumerate()
            .map(|(i, bytes)| {
                let (mut c0, mut c1, mut poly) = (vec![0; n], vec![0; n], vec![0; n]);
                pack::unpack(bytes, PRIME_BITS, &mut c0)?;
                self.packing.for_each_input(tile, i, |at, e| poly[at] = share[e]);
                server.absorb(&self.params, &poly, &mut c0)?;
                self.context.mask_hat(seed, stage, (tile * blocks + i) as u32, &mut c1)?;
                Ok((c0, c1))
            })
            .collect::<Result<_, LayerError>>()?;
        let answers: Vec<(Vec<u8>, Shares)> = (0..self.packing.output_blocks())
            .into_par_iter()
            .map(|j| {
                let [mut s0, mut s1] = self.combine(server, &inputs, j)?;
                let (places, elements) = self.packing.output_places(tile, j);
                let (mut values, mut shares) = (vec![0; places.len()], vec![0; places.len()]);
                let mut prg = Prg::from_os()?;
                server.answer(&self.params, &mut prg, &mut s0, &mut s1, &places, &mut values, &mut shares)?;
                Ok((
                    encode_answer(&s1, &mut values, self.params.response_bits())?,
                    elements.into_iter().zip(shares).collect(),
                ))
            })
            .collect::<Result<_, LayerError>>()?;
        let mask = hushnet_ring::low_mask(self.params.ring_bits());
        let pixels = self.packing.output_len() / self.packing.channels_out();
        let mut message = Vec::with_capacity(answer_len(&self.packing, &self.params, tile));
        for (bytes, shares) in answers {
            message.extend_from_slice(&bytes);
            for (e, value) in shares {
                own[e] = value.wrapping_add(self.bias[e / pixels] as u64) & mask;
            }
        }
        Ok(message)
    }
}

impl CheetahClient {
    /// From what a plan says: the geometry and the norm of the weights that the parameters rest on.
    ///
    /// # Errors
    /// What [`Packing::choose`] and [`PackedSpec::choose`] refuse.
    pub fn new(
        context: &PackedContext,
        geometry: &Geometry,
        ring_bits: u32,
        weight_l2: f64,
    ) -> Result<Self, LayerError> {
        let packing = Packing::choose(geometry, context.ring_degree(), &DEFAULT_COSTS)?;
        let params = PackedSpec { ring_degree: context.ring_degree(), ring_bits, weight_l2 }.choose()?;
        Ok(Self { packing, params, context: context.clone() })
    }

    /// Tiles of the stage.
    #[must_use]
    pub fn tiles(&self) -> usize {
        self.packing.tiles()
    }

    /// The chosen places.
    #[must_use]
    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// Bytes of every request.
    #[must_use]
    pub fn request_len(&self) -> usize {
        request_len(&self.packing)
    }

    /// Bytes of the answer to a tile.
    #[must_use]
    pub fn answer_len(&self, tile: usize) -> usize {
        answer_len(&self.packing, &self.params, tile)
    }

    /// Encrypts one tile of the client's share of the input tensor. The pair of `seed` and `stage` must not be used for another encryption.
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
        let (n, blocks) = (self.packing.degree(), self.packing.input_blocks());
        expect("input share", self.packing.input_len(), share.len())?;
        let mut message = vec![0; self.request_len()];
        message.par_chunks_exact_mut(pack::packed_len(n, PRIME_BITS)).enumerate().try_for_each(
            |(i, bytes)| {
                let (mut mask, mut poly, mut c0) = (vec![0; n], vec![0; n], vec![0; n]);
                self.packing.for_each_input(tile, i, |at, e| poly[at] = share[e]);
                self.context.mask_hat(seed, stage, (tile * blocks + i) as u32, &mut mask)?;
                key.encrypt_into(&self.params, &mask, &poly, &mut Prg::from_os()?, &mut c0)?;
                pack::pack(&c0, PRIME_BITS, bytes)?;
                Ok::<(), LayerError>(())
            },
        )?;
        Ok(message)
    }

    /// Reads the client's share of a tile's outputs into its share of the whole output tensor.
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
        let (n, r) = (self.packing.degree(), self.params.response_bits());
        expect("answer", self.answer_len(tile), answer.len())?;
        expect("output share", self.packing.output_len(), share.len())?;
        let mut parts = Vec::with_capacity(self.packing.output_blocks());
        let mut rest = answer;
        for j in 0..self.packing.output_blocks() {
            let (part, after) = rest.split_at(part_len(&self.packing, r, tile, j));
            parts.push(part);
            rest = after;
        }
        let opened: Vec<Shares> = parts
            .into_par_iter()
            .enumerate()
            .map(|(j, part)| {
                let (places, elements) = self.packing.output_places(tile, j);
                let (c1_bytes, c0_bytes) = part.split_at(pack::packed_len(n, r));
                let (mut c1, mut c0) = (vec![0; n], vec![0; places.len().next_multiple_of(8)]);
                pack::unpack(c1_bytes, r, &mut c1)?;
                pack::unpack(c0_bytes, r, &mut c0)?;
                c0.truncate(places.len());
                let mut out = vec![0; places.len()];
                key.open(&self.params, &c1, &c0, &places, &mut out)?;
                Ok(elements.into_iter().zip(out).collect())
            })
            .collect::<Result<_, LayerError>>()?;
        for (e, value) in opened.into_iter().flatten() {
            share[e] = value;
        }
        Ok(())
    }
}

fn request_len(packing: &Packing) -> usize {
    packing.input_blocks() * pack::packed_len(packing.degree(), PRIME_BITS)
}

fn part_len(packing: &Packing, response_bits: u32, tile: usize, block: usize) -> usize {
    pack::packed_len(packing.degree(), response_bits)
        + pack::packed_len(packing.output_count(tile, block).next_multiple_of(8), response_bits)
}

fn answer_len(packing: &Packing, params: &PackedParams, tile: usize) -> usize {
    (0..packing.output_blocks()).map(|j| part_len(packing, params.response_bits(), tile, j)).sum()
}

/// c1, then the masked coefficients of c0, padded with zeros to a whole number of bytes.
fn encode_answer(c1: &[u64], c0: &mut Vec<u64>, bits: u32) -> Result<Vec<u8>, LayerError> {
    c0.resize(c0.len().next_multiple_of(8), 0);
    let mut bytes = vec![0; pack::packed_len(c1.len(), bits) + pack::packed_len(c0.len(), bits)];
    let (first, second) = bytes.split_at_mut(pack::packed_len(c1.len(), bits));
    pack::pack(c1, bits, first)?;
    pack::pack(c0, bits, second)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
