//! The server half of a coefficient-packed stage.

use super::CoefficientStage;
use crate::batch::{expect, LayerError};
use hushnet_ring::pack;
use hushnet_rlwe::coefficients::{bias, combine, lift_request, round_answer, round_masks};
use hushnet_rlwe::packed::{PackedContext, WeightPoly};
use rayon::prelude::*;
use std::ops::Range;

/// Weight polynomials that are used in one sum: of streamed ones, those that are transformed together, to stay in the caches.
const PREPARED_TERMS: usize = 1024;
const STREAM_TERMS: usize = 16;

/// A stage at the server: weights in evaluation form. No `Debug`.
pub struct CoefficientLinear {
    stage: CoefficientStage,
    context: PackedContext,
    weights: Weights,
    /// By output channel, modulo p.
    bias: Vec<u64>,
}

/// Weights as an answer uses them.
enum Weights {
    /// Polynomials of output block j: one for every input block of `layout.inputs_of(j)`.
    Prepared(Vec<Vec<WeightPoly>>),
    /// As given; transformed for every tile.
    Streamed(Vec<i16>),
}

impl CoefficientLinear {
    /// Prepares a stage. `weights` are (O, C/groups, kh, kw) or (M, K) row-major, `bias` one value an output channel. Where evaluation forms are not
    /// to be kept (`keep`; [`Packing::prepared_bytes`](crate::layout::Layout::prepared_bytes)), they are made anew for every tile, one transform a product more.
    ///
    /// # Errors
    /// [`LayerError::Length`] when there are not as many weights or biases as the stage says.
    pub fn new(
        context: &PackedContext,
        stage: CoefficientStage,
        weights: &[i16],
        biases: &[i64],
        keep: bool,
    ) -> Result<Self, LayerError> {
        let layout = &stage.layout;
        expect("weights", layout.weight_len(), weights.len())?;
        expect("biases", layout.channels_out(), biases.len())?;
        expect("ring degree of the context", layout.degree(), context.ring_degree())?;
        let bias = biases.iter().map(|b| bias(context, &stage.params, *b)).collect();
        let mut linear =
            Self { weights: Weights::Streamed(Vec::new()), context: context.clone(), bias, stage };
        let block = |j| linear.stage.layout.inputs_of(j).map(|i| linear.weight_poly(weights, i, j)).collect();
        linear.weights = if keep {
            let blocks = 0..linear.stage.layout.output_blocks();
            Weights::Prepared(blocks.into_par_iter().map(block).collect::<Result<_, LayerError>>()?)
        } else {
            Weights::Streamed(weights.to_vec())
        };
        Ok(linear)
    }

    /// The public part of the stage, which both parties know.
    #[must_use]
    pub fn stage(&self) -> &CoefficientStage {
        &self.stage
    }

    /// Bytes that the weights take.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        match &self.weights {
            Weights::Prepared(_) => self.stage.layout.prepared_bytes(),
            Weights::Streamed(w) => 2 * w.len(),
        }
    }

    /// Writes the sums of masks of stage `number` under a session's seed: for the client to keep.
    ///
    /// # Errors
    /// [`LayerError::Length`] unless `out` has their bytes.
    pub fn masks(&self, seed: &[u8; 32], number: u32, out: &mut [u8]) -> Result<(), LayerError> {
        let (n, bits) = (self.context.ring_degree(), self.stage.params.bits().mask);
        expect("sums of masks", self.stage.masks_len(), out.len())?;
        let of = |block: usize| {
            let mut mask = vec![0; n];
            self.context.mask_hat(seed, number, block as u32, &mut mask)?;
            Ok(mask)
        };
        let masks: Vec<Vec<u64>> = (0..self.stage.layout.input_blocks())
            .into_par_iter()
            .map(of)
            .collect::<Result<_, LayerError>>()?;
        out.par_chunks_exact_mut(pack::packed_len(n, bits)).enumerate().try_for_each(|(j, bytes)| {
            let mut sum = self.combine(&masks, j)?;
            round_masks(&self.context, &self.stage.params, &mut sum)?;
            Ok(pack::pack(&sum, bits, bytes)?)
        })
    }

    /// Answers a request for one tile into `out`.
    ///
    /// # Errors
    /// [`LayerError::Length`] for a request or room of the wrong length; [`LayerError::Cipher`] for words above the modulus.
    pub fn answer(&self, tile: usize, request: &[u8], out: &mut [u8]) -> Result<(), LayerError> {
        let (layout, params, n) = (&self.stage.layout, &self.stage.params, self.context.ring_degree());
        let bits = params.bits();
        expect("request", self.stage.request_len(), request.len())?;
        expect("answer", self.stage.answer_len(tile), out.len())?;
        let read = |bytes: &[u8]| {
            let mut words = vec![0; n];
            pack::unpack(bytes, bits.upload, &mut words)?;
            lift_request(&self.context, params, &mut words)?;
            Ok(words)
        };
        let inputs: Vec<Vec<u64>> = request
            .par_chunks_exact(pack::packed_len(n, bits.upload))
            .map(read)
            .collect::<Result<_, LayerError>>()?;
        let pixels = layout.output_len() / layout.channels_out();
        let mut body = vec![0; self.stage.values(tile).next_multiple_of(8)];
        let mut rest = body.as_mut_slice();
        let mut parts = Vec::with_capacity(layout.output_blocks());
        for j in 0..layout.output_blocks() {
            let (part, after) = rest.split_at_mut(layout.output_count(tile, j));
            parts.push(part);
            rest = after;
        }
        parts.into_par_iter().enumerate().try_for_each(|(j, part)| {
            let mut sum = self.combine(&inputs, j)?;
            let (places, elements) = layout.output_places(tile, j, 1);
            let biases = elements.iter().map(|e| self.bias[e / pixels]);
            Ok::<_, LayerError>(round_answer(&self.context, params, &mut sum, &places, biases, part)?)
        })?;
        Ok(pack::pack(&body, bits.body, out)?)
    }

    fn weight_poly(&self, weights: &[i16], i: usize, j: usize) -> Result<WeightPoly, LayerError> {
        Ok(WeightPoly::new(&self.context, &self.stage.layout.weight_poly(weights, i, j))?)
    }

    /// `sum_i w_ij x_i` in evaluation form.
    fn combine(&self, inputs: &[Vec<u64>], j: usize) -> Result<Vec<u64>, LayerError> {
        let (n, p) = (self.context.ring_degree(), self.context.prime());
        let range = self.stage.layout.inputs_of(j);
        let dot = |terms: Range<usize>, weights: &[WeightPoly], out: &mut [u64]| {
            let x: Vec<&[u64]> = inputs[terms].iter().map(Vec::as_slice).collect();
            Ok::<_, LayerError>(combine(&self.context, &x, &weights.iter().collect::<Vec<_>>(), out)?)
        };
        let step = if matches!(self.weights, Weights::Prepared(_)) { PREPARED_TERMS } else { STREAM_TERMS };
        let (mut sum, mut part) = (vec![0; n], vec![0; n]);
        for first in range.clone().step_by(step) {
            let terms = first..(first + step).min(range.end);
            match &self.weights {
                Weights::Prepared(polys) => {
                    let own = terms.start - range.start..terms.end - range.start;
                    dot(terms, &polys[j][own], &mut part)?;
                }
                Weights::Streamed(weights) => {
                    let made = terms.clone().map(|i| self.weight_poly(weights, i, j));
                    dot(terms, &made.collect::<Result<Vec<_>, _>>()?, &mut part)?;
                }
            }
            if first == range.start {
                std::mem::swap(&mut sum, &mut part);
                continue;
            }
            sum.iter_mut().zip(&part).for_each(|(s, t)| {
                let total = *s + t;
                *s = total.min(total.wrapping_sub(p));
            });
        }
        Ok(sum)
    }
}
