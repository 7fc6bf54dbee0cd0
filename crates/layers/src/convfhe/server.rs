//! The server's half of a stage: weights, answers.

use super::{ConvFheClient, ConvFheContext, ConvFheDesign, DEFAULT_PRICES, RING_DEGREE};
use crate::batch::{expect, Geometry, LayerError};
use crate::cheetah::part_len;
use crate::cheetah::server::{absorb_tile, AnswerTiles, Pair as Words};
use crate::layout::Layout;
use hushnet_ring::{pack, Prg};
use hushnet_rlwe::one_poly::{Tally, TallyCounts};
use hushnet_rlwe::pack_lwe::{MergeKeys, Pair};
use hushnet_rlwe::packed::{PackedServer, WeightPoly};
use rayon::prelude::*;

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
    /// Both public keys of a client, checked, for answers of this session.
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

    /// The stage with the parameters of a plan that states such a norm, which bits of requests and answers follow from: not below the weights' own.
    ///
    /// # Errors
    /// [`LayerError::Cipher`] without parameters.
    pub fn stated(mut self, weight_l2: f64) -> Result<Self, LayerError> {
        let (spacing, bits) = (self.design.layout.spacing(), self.design.params.ring_bits());
        self.design.params = ConvFheDesign::spec(spacing, bits, weight_l2)?.choose()?;
        Ok(self)
    }

    /// The weights between input block i and output block j, times 1/s.
    fn weight_poly(&self, weights: &[i16], i: usize, j: usize) -> Result<WeightPoly, LayerError> {
        let (layout, packed) = (&self.design.layout, &self.design.context.packed);
        let inverse = hushnet_ring::prime::inv_mod(layout.spacing() as u64, packed.prime());
        self.tally.add(TallyCounts { ntt: 1, ..TallyCounts::default() });
        Ok(WeightPoly::new(packed, &layout.weight_poly(weights, i, j))?.times(packed, inverse))
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

    /// The public half of the layer, from which clients work.
    #[must_use]
    pub fn client(&self) -> ConvFheClient {
        ConvFheClient { design: self.design.clone(), tally: std::sync::Arc::default() }
    }

    /// `sum_i w_ij (c0_i, c1_i) / s`.
    fn combine(
        &self,
        session: &ConvFheSession,
        inputs: &[Words],
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

impl AnswerTiles<ConvFheSession> for ConvFheLinear {
    fn answer(
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
        let layout = &d.layout;
        expect("output share", layout.output_len(), own.len())?;
        let inputs = absorb_tile(&d.places_of(), &session.server, (seed, stage, tile), request, share)?;
        self.tally.add(TallyCounts { ntt: inputs.len() as u64, ..TallyCounts::default() });
        let mask = hushnet_ring::low_mask(d.params.ring_bits());
        let pixels = layout.output_len() / layout.channels_out();
        let mut message = Vec::with_capacity(d.answer_len());
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
            let mut shares = vec![0; places.len()];
            let mut prg = Prg::from_os()?;
            let (w0, w1) = (s0.words_mut(), s1.words_mut());
            session.server.answer(&d.params, &mut prg, w0, w1, &places, &mut shares)?;
            self.tally.add(TallyCounts { intt: 2, ..TallyCounts::default() });
            let start = message.len();
            message.resize(start + part_len(&d.params), 0);
            pack::pack(w1, d.params.response_bits(), &mut message[start..])?;
            for (e, value) in elements.into_iter().zip(shares) {
                own[e] = value.wrapping_add(self.bias[e / pixels] as u64) & mask;
            }
        }
        Ok(message)
    }

    fn weight_bytes(&self) -> usize {
        match &self.weights {
            Weights::Prepared(w) => 8 * RING_DEGREE * w.len(),
            Weights::Streamed(w) => 2 * w.len(),
        }
    }
}
