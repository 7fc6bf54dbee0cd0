//! The server's half of a stage: weights, answers.

use super::{
    choose_layout, part_len, prepared_bytes, request_len, CheetahClient, Coefficients, Shares, TileId,
};
use crate::batch::{expect, Geometry, LayerError};
use crate::layout::Layout;
use hushnet_ring::{pack, Prg};
use hushnet_rlwe::packed::{
    FoldedPoly, PackedContext, PackedParams, PackedServer, PackedSpec, SpacedTransform, WeightPoly,
};
use rayon::prelude::*;
use std::ops::Range;

/// A stage with its weights, which answers tile by tile under a client's keys `K`.
pub trait AnswerTiles<K>: Send + Sync {
    /// Answers one tile. `share` is the server's share of the whole input tensor, `own` its share of the whole output tensor, of
    /// which this tile's elements are written (bias included). `seed` is the image's, `stage` the stage's index in the plan.
    ///
    /// # Errors
    /// [`LayerError::Length`] for a request of the wrong length or shares of the wrong size; [`LayerError::Cipher`] for damaged words or
    /// keys that do not fit.
    #[allow(
        clippy::too_many_arguments,
        reason = "what a stage, a tile and a session are named by, and two shares"
    )]
    fn answer(
        &self,
        keys: &K,
        seed: &[u8; 32],
        stage: u32,
        tile: usize,
        request: &[u8],
        share: &[u64],
        own: &mut [u64],
    ) -> Result<Vec<u8>, LayerError>;

    /// Bytes that the weights take, as they are and in evaluation form.
    fn weight_bytes(&self) -> usize;
}

/// c0 and c1 of a ciphertext in evaluation form.
pub(crate) type Pair = (Vec<u64>, Vec<u64>);

/// The ciphertexts of a request for a tile, the server's share of the input tensor added.
///
/// # Errors
/// [`LayerError::Length`] for a request of the wrong length, or unless `share` is the whole tensor; [`LayerError::Cipher`] for words that are
/// not below the modulus.
pub(crate) fn absorb_tile(
    at: &Coefficients<'_>,
    server: &PackedServer,
    (seed, stage, tile): TileId<'_>,
    request: &[u8],
    share: &[u64],
) -> Result<Vec<Pair>, LayerError> {
    let (n, blocks) = (at.layout.degree(), at.layout.input_blocks());
    expect("request", request_len(at.layout, at.params), request.len())?;
    expect("input share", at.layout.input_len(), share.len())?;
    request
        .par_chunks_exact(request.len() / blocks)
        .enumerate()
        .map(|(i, bytes)| {
            let (mut c0, mut c1, mut poly) = (vec![0; n], vec![0; n], vec![0; n]);
            pack::unpack(bytes, at.params.request_bits(), &mut c0)?;
            at.layout.for_each_input(tile, i, |at, e| poly[at] = share[e]);
            server.absorb(at.params, &poly, &mut c0)?;
            at.context.mask_hat(seed, stage, (tile * blocks + i) as u32, &mut c1)?;
            Ok((c0, c1))
        })
        .collect()
}

/// Server half of a stage: weights in evaluation form. No `Debug`.
pub struct CheetahLinear {
    layout: Layout,
    params: PackedParams,
    context: PackedContext,
    weights: Weights,
    bias: Vec<i64>,
}

/// Weights as an answer uses them.
enum Weights {
    /// Polynomials of output block j: one for every input block of `layout.inputs_of(j)`.
    Prepared(Vec<Vec<WeightPoly>>),
    /// The same in X^S for small S, without what is in them more than once.
    Folded(Vec<Vec<FoldedPoly>>),
    /// The values of such polynomials in X^S ([`SpacedTransform`]), the first one of all input blocks, then the second one of all.
    Spaced(Vec<Vec<u64>>),
    /// As given; transformed for every tile.
    Streamed(Vec<i16>),
}

/// Streamed and folded weight polynomials that are made whole and used together, to stay in the caches.
const STREAM_TERMS: usize = 16;
/// Prepared polynomials of one sum at a time.
const PREPARED_TERMS: usize = 1024;
/// Output blocks with spaced weights whose sums are made together: inputs are laid out once for all of them.
const SPACED_BLOCKS: usize = 48;

impl CheetahLinear {
    /// Prepares a stage. `weights` are (O, C/groups, kh, kw) or (M, K) row-major, `bias` one value an output channel, added modulo 2^l.
    ///
    /// # Errors
    /// [`LayerError::Length`] when there are not as many weights or biases as the geometry says, and what [`choose_layout`] and
    /// [`PackedSpec::choose`] refuse.
    pub fn new(
        context: &PackedContext,
        geometry: &Geometry,
        weights: &[i16],
        bias: &[i64],
        ring_bits: u32,
    ) -> Result<Self, LayerError> {
        let mut linear = Self::streamed(context, geometry, weights, bias, ring_bits)?;
        let blocks = (0..linear.layout.output_blocks()).into_par_iter();
        let spacing = linear.layout.weight_spacing();
        linear.weights = match SpacedTransform::new(context, spacing)? {
            Some(spaced) => {
                let of = |j| {
                    let terms = linear.layout.inputs_of(j);
                    let mut values = vec![0; terms.len() * (context.ring_degree() / spacing)];
                    for (t, i) in terms.clone().enumerate() {
                        let own =
                            spaced.forward(&linear.layout.spaced_weight_poly(weights, i, j, spacing))?;
                        values.iter_mut().skip(t).step_by(terms.len()).zip(own).for_each(|(v, own)| *v = own);
                    }
                    Ok(values)
                };
                Weights::Spaced(blocks.map(of).collect::<Result<_, LayerError>>()?)
            }
            None => {
                let poly = |i, j| linear.weight_poly(weights, i, j);
                if FoldedPoly::values(context.ring_degree(), spacing) < context.ring_degree() {
                    let folded = |i, j| Ok(FoldedPoly::new(&poly(i, j)?, spacing));
                    let of = |j| linear.layout.inputs_of(j).map(|i| folded(i, j)).collect();
                    Weights::Folded(blocks.map(of).collect::<Result<_, LayerError>>()?)
                } else {
                    let of = |j| linear.layout.inputs_of(j).map(|i| poly(i, j)).collect();
                    Weights::Prepared(blocks.map(of).collect::<Result<_, LayerError>>()?)
                }
            }
        };
        Ok(linear)
    }

    /// As [`Self::new`] without evaluation forms: they are made anew for every tile, one transform a product more. For
    /// layers whose prepared weights ([`Layout::prepared_bytes`]) do not fit the memory.
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
        let layout = choose_layout(geometry, n)?;
        expect("weights", layout.weight_len(), weights.len())?;
        expect("biases", layout.channels_out(), bias.len())?;
        let largest = layout.weight_norm2(weights);
        let params = PackedSpec { ring_degree: n, ring_bits, weight_l2: (largest as f64).sqrt() }.choose()?;
        let weights = Weights::Streamed(weights.to_vec());
        Ok(Self { layout, params, context: context.clone(), weights, bias: bias.to_vec() })
    }

    /// The stage with the parameters of a plan that states such a norm, which bits of requests and answers follow from: not below the weights' own.
    ///
    /// # Errors
    /// What [`PackedSpec::choose`] refuses.
    pub fn stated(mut self, weight_l2: f64) -> Result<Self, LayerError> {
        self.params = PackedSpec { weight_l2, ..*self.params.spec() }.choose()?;
        Ok(self)
    }

    fn weight_poly(&self, weights: &[i16], i: usize, j: usize) -> Result<WeightPoly, LayerError> {
        let coefficients = self.layout.weight_poly(weights, i, j);
        Ok(WeightPoly::new(&self.context, &coefficients)?)
    }

    /// Output blocks whose sums are made together: of spaced weights those that read the same input blocks, some at a time.
    fn groups(&self) -> Vec<Range<usize>> {
        let most = if matches!(self.weights, Weights::Spaced(_)) { SPACED_BLOCKS } else { 1 };
        let mut groups: Vec<Range<usize>> = Vec::new();
        for j in 0..self.layout.output_blocks() {
            match groups.last_mut() {
                Some(g) if g.len() < most && self.layout.inputs_of(g.start) == self.layout.inputs_of(j) => {
                    g.end = j + 1;
                }
                _ => groups.push(j..j + 1),
            }
        }
        groups
    }

    /// `sum_i w_ij (c0_i, c1_i)` in evaluation form for every j of a group.
    fn combine(
        &self,
        server: &PackedServer,
        inputs: &[Pair],
        group: Range<usize>,
    ) -> Result<Vec<[Vec<u64>; 2]>, LayerError> {
        let (n, p) = (self.layout.degree(), self.context.prime());
        let range = self.layout.inputs_of(group.start);
        let mut sums = vec![[vec![0; n], vec![0; n]]; group.len()];
        if let Weights::Spaced(values) = &self.weights {
            let inputs: Vec<[&[u64]; 2]> = inputs[range].iter().map(|(c0, c1)| [&c0[..], &c1[..]]).collect();
            let weights: Vec<&[u64]> = values[group].iter().map(Vec::as_slice).collect();
            let mut out: Vec<[&mut [u64]; 2]> =
                sums.iter_mut().map(|sum| sum.each_mut().map(Vec::as_mut_slice)).collect();
            server.combine_spaced(&inputs, self.layout.weight_spacing(), &weights, &mut out)?;
            return Ok(sums);
        }
        let add = |sum: &mut [Vec<u64>; 2], terms: Range<usize>, weights: &[WeightPoly]| {
            let c0: Vec<&[u64]> = inputs[terms.clone()].iter().map(|(c0, _)| c0.as_slice()).collect();
            let c1: Vec<&[u64]> = inputs[terms].iter().map(|(_, c1)| c1.as_slice()).collect();
            let (mut s0, mut s1) = (vec![0; n], vec![0; n]);
            server.combine(&c0, &c1, &weights.iter().collect::<Vec<_>>(), &mut s0, &mut s1)?;
            for (sum, part) in sum.iter_mut().zip([s0, s1]) {
                sum.iter_mut().zip(part).for_each(|(s, t)| {
                    let total = *s + t;
                    *s = total.min(total.wrapping_sub(p));
                });
            }
            Ok::<_, LayerError>(())
        };
        let step = if matches!(self.weights, Weights::Prepared(_)) { PREPARED_TERMS } else { STREAM_TERMS };
        let mut whole = Vec::new();
        if matches!(self.weights, Weights::Folded(_)) {
            whole.resize(step.min(range.len()), WeightPoly::zero(&self.context));
        }
        for first in range.clone().step_by(step) {
            let terms = first..(first + step).min(range.end);
            let own = terms.start - range.start..terms.end - range.start;
            for (sum, j) in sums.iter_mut().zip(group.clone()) {
                match &self.weights {
                    Weights::Prepared(polys) => add(sum, terms.clone(), &polys[j][own.clone()])?,
                    Weights::Folded(polys) => {
                        whole.iter_mut().zip(&polys[j][own.clone()]).for_each(|(to, poly)| poly.unfold(to));
                        add(sum, terms.clone(), &whole[..own.len()])?;
                    }
                    Weights::Streamed(weights) => {
                        let polys = terms.clone().map(|i| self.weight_poly(weights, i, j));
                        add(sum, terms.clone(), &polys.collect::<Result<Vec<_>, _>>()?)?;
                    }
                    Weights::Spaced(_) => {}
                }
            }
        }
        Ok(sums)
    }

    /// What the client needs: no weights.
    #[must_use]
    pub fn client(&self) -> CheetahClient {
        CheetahClient { layout: self.layout.clone(), params: self.params, context: self.context.clone() }
    }

    /// Where the elements of inputs and results lie in ciphertexts.
    #[must_use]
    pub fn packing(&self) -> &Layout {
        &self.layout
    }

    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &PackedParams {
        &self.params
    }
}

impl AnswerTiles<PackedServer> for CheetahLinear {
    fn answer(
        &self,
        server: &PackedServer,
        seed: &[u8; 32],
        stage: u32,
        tile: usize,
        request: &[u8],
        share: &[u64],
        own: &mut [u64],
    ) -> Result<Vec<u8>, LayerError> {
        expect("output share", self.layout.output_len(), own.len())?;
        let at = Coefficients { context: &self.context, params: &self.params, layout: &self.layout };
        let inputs = absorb_tile(&at, server, (seed, stage, tile), request, share)?;
        let block = |j: usize, [mut s0, mut s1]: [Vec<u64>; 2]| {
            let (places, elements) = self.layout.output_places(tile, j, 1);
            let mut shares = vec![0; places.len()];
            let mut prg = Prg::from_os()?;
            server.answer(&self.params, &mut prg, &mut s0, &mut s1, &places, &mut shares)?;
            let mut bytes = vec![0; part_len(&self.params)];
            pack::pack(&s1, self.params.response_bits(), &mut bytes)?;
            Ok::<(Vec<u8>, Shares), LayerError>((bytes, elements.into_iter().zip(shares).collect()))
        };
        let answers: Vec<Vec<(Vec<u8>, Shares)>> = self
            .groups()
            .into_par_iter()
            .map(|group| {
                let sums = self.combine(server, &inputs, group.clone())?;
                group.zip(sums).map(|(j, sums)| block(j, sums)).collect()
            })
            .collect::<Result<_, LayerError>>()?;
        let mask = hushnet_ring::low_mask(self.params.ring_bits());
        let pixels = self.layout.output_len() / self.layout.channels_out();
        let mut message = Vec::with_capacity(self.layout.output_blocks() * part_len(&self.params));
        for (bytes, shares) in answers.into_iter().flatten() {
            message.extend_from_slice(&bytes);
            for (e, value) in shares {
                own[e] = value.wrapping_add(self.bias[e / pixels] as u64) & mask;
            }
        }
        Ok(message)
    }

    fn weight_bytes(&self) -> usize {
        match &self.weights {
            Weights::Prepared(_) | Weights::Folded(_) | Weights::Spaced(_) => prepared_bytes(&self.layout),
            Weights::Streamed(w) => 2 * w.len(),
        }
    }
}
