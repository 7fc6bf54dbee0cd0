//! The server's half of a stage.

use super::{Design, Profile};
use crate::batch::{expect, LayerError};
use hushnet_ring::{pack, Prg};
use hushnet_rlwe::one_poly::{Folded, OnePolyServer, Tally, TallyCounts, WeightKey};
use rayon::prelude::*;
use zeroize::Zeroize;

/// Weights as an answer uses them.
enum Keys {
    /// One a weight polynomial.
    Prepared(Vec<WeightKey>),
    /// Made anew for every tile, for layers whose keys do not fit the memory.
    Streamed,
}

/// Server half of a stage. No `Debug`.
pub struct RotationFreeLinear {
    design: Design,
    server: OnePolyServer,
    seed: [u8; 32],
    weights: Vec<i16>,
    bias: Vec<i64>,
    keys: Keys,
    /// First weight polynomial of every output block.
    first: Vec<usize>,
    tally: Tally,
}

/// What the server makes of its share of a tile before the query arrives.
pub struct ServerShare {
    /// Compact: the share's transforms.
    polys: Vec<Folded>,
    /// Flooded: the useful coefficients of its product with the weights, for every output block.
    sums: Vec<Vec<u64>>,
}

impl Drop for ServerShare {
    fn drop(&mut self) {
        self.polys.iter_mut().for_each(Zeroize::zeroize);
        self.sums.zeroize();
    }
}

impl RotationFreeLinear {
    /// Prepares a stage: draws its set-up. `weights` are (O, C/groups, kh, kw) or (M, K) row-major, `bias` one value an output channel, added
    /// modulo 2^l. With `streamed`, keys are made anew for every tile.
    ///
    /// # Errors
    /// [`LayerError::Length`] for the wrong number of weights or biases; [`LayerError::Size`] for weights beyond the design's bounds.
    pub fn new(
        design: &Design,
        weights: &[i16],
        bias: &[i64],
        streamed: bool,
        prg: &mut Prg,
    ) -> Result<Self, LayerError> {
        let mut seed = [0; 32];
        prg.fill_bytes(&mut seed);
        Self::with_seed(design, weights, bias, streamed, (seed, prg))
    }

    /// As [`Self::new`], with the public seed of b given: what both parties derive from a public plan. The errors come from `prg` all the
    /// same, new ones for every preparation.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_seed(
        design: &Design,
        weights: &[i16],
        bias: &[i64],
        streamed: bool,
        (seed, prg): ([u8; 32], &mut Prg),
    ) -> Result<Self, LayerError> {
        let layout = &design.layout;
        expect("weights", layout.weight_len(), weights.len())?;
        expect("biases", layout.channels_out(), bias.len())?;
        let norm = (layout.weight_norm2(weights) as f64).sqrt();
        let most = design.params.spec().weight_l2;
        if norm > most {
            return Err(LayerError::Size {
                what: "norm of the weights in one answer",
                got: norm.ceil() as usize,
                least: 0,
                most: most as usize,
            });
        }
        let largest = weights.iter().map(|w| usize::from(w.unsigned_abs())).max().unwrap_or(0);
        let bound = 1usize << (design.params.spec().weight_bits.clamp(1, 16) - 1);
        if largest > bound {
            return Err(LayerError::Size { what: "largest weight", got: largest, least: 0, most: bound });
        }
        let context = design.context()?;
        let server = OnePolyServer::new(&context, &design.params, &seed, design.stage, prg)?;
        let first = (0..layout.output_blocks())
            .scan(0, |sum, j| {
                let first = *sum;
                *sum += layout.inputs_of(j).len();
                Some(first)
            })
            .collect();
        let mut linear = Self {
            design: design.clone(),
            server,
            seed,
            weights: weights.to_vec(),
            bias: bias.to_vec(),
            keys: Keys::Streamed,
            first,
            tally: Tally::default(),
        };
        if !streamed {
            let polys: Vec<(usize, usize)> = linear.polys().collect();
            let keys = polys
                .into_par_iter()
                .enumerate()
                .map(|(k, (i, j))| Ok(linear.key(k, i, j, false)?.0))
                .collect::<Result<_, LayerError>>()?;
            linear.keys = Keys::Prepared(keys);
        }
        Ok(linear)
    }

    /// (input block, output block) of every weight polynomial.
    fn polys(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let layout = &self.design.layout;
        (0..layout.output_blocks()).flat_map(|j| layout.inputs_of(j).map(move |i| (i, j)))
    }

    fn key(
        &self,
        k: usize,
        i: usize,
        j: usize,
        public: bool,
    ) -> Result<(WeightKey, Vec<Folded>), LayerError> {
        let mut poly = self.design.layout.weight_poly(&self.weights, i, j);
        let result = self.server.weight_key(&poly, k as u32, public, &self.tally);
        poly.zeroize();
        Ok(result?)
    }

    /// What both parties agree on.
    #[must_use]
    pub fn design(&self) -> &Design {
        &self.design
    }

    /// Numbers of operations that were counted so far, by kind.
    #[must_use]
    pub fn tally(&self) -> TallyCounts {
        self.tally.counts()
    }

    /// Bytes that the weights take.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        2 * self.weights.len()
            + match &self.keys {
                Keys::Prepared(_) => self.design.prepared_bytes(),
                Keys::Streamed => 0,
            }
    }

    /// The bytes that open a [`Setup`](super::Setup): sizes and the seed.
    #[must_use]
    pub fn setup_header(&self) -> Vec<u8> {
        self.design.setup_header(&self.seed)
    }

    /// The set-up of weight polynomial `k`; always the same bytes.
    ///
    /// # Errors
    /// [`LayerError::Length`] when there is no such polynomial.
    pub fn setup_poly(&self, k: usize) -> Result<Vec<u8>, LayerError> {
        let j = self.first.partition_point(|f| *f <= k).saturating_sub(1);
        let inputs = self.design.layout.inputs_of(j);
        if k - self.first[j] >= inputs.len() {
            let expected = self.design.layout.cost().weight_polys;
            return Err(LayerError::Length { what: "weight polynomial (below)", expected, got: k });
        }
        let (_, sent) = self.key(k, inputs.start + k - self.first[j], j, true)?;
        let context = self.server.context();
        let mut bytes = vec![0; self.design.setup_poly_len()];
        for (poly, part) in sent.iter().zip(bytes.chunks_exact_mut(context.packed_len())) {
            context.pack(poly, part)?;
        }
        Ok(bytes)
    }

    /// Keys of the terms of output block `j`, made where they are not kept.
    fn keys_of(&self, j: usize) -> Result<std::borrow::Cow<'_, [WeightKey]>, LayerError> {
        let (first, inputs) = (self.first[j], self.design.layout.inputs_of(j));
        Ok(match &self.keys {
            Keys::Prepared(keys) => keys[first..first + inputs.len()].into(),
            Keys::Streamed => inputs
                .enumerate()
                .map(|(k, i)| Ok(self.key(first + k, i, j, false)?.0))
                .collect::<Result<Vec<_>, LayerError>>()?
                .into(),
        })
    }

    fn torus(
        &self,
        tile: usize,
        j: usize,
        pairs: &[(&Folded, &Folded)],
    ) -> Result<(Vec<u64>, Vec<usize>), LayerError> {
        let context = self.server.context();
        let (places, elements) = self.design.layout.output_places(tile, j, context.fold());
        Ok((context.torus(&context.dot(pairs, &self.tally)?, &places)?, elements))
    }

    /// Prepares the server's share (of the whole input tensor) for a tile.
    ///
    /// # Errors
    /// [`LayerError::Length`] unless `share` is the whole tensor.
    pub fn share(&self, tile: usize, share: &[u64]) -> Result<ServerShare, LayerError> {
        let layout = &self.design.layout;
        expect("input share", layout.input_len(), share.len())?;
        let polys: Vec<Folded> = (0..layout.input_blocks())
            .into_par_iter()
            .map(|i| {
                let mut poly = vec![0; layout.degree()];
                layout.for_each_input(tile, i, |at, e| poly[at] = share[e]);
                Ok(self.server.share(&poly, &self.tally)?)
            })
            .collect::<Result<_, LayerError>>()?;
        if self.design.profile() == Profile::Compact {
            return Ok(ServerShare { polys, sums: Vec::new() });
        }
        let sums = (0..layout.output_blocks())
            .into_par_iter()
            .map(|j| {
                let keys = self.keys_of(j)?;
                let pairs: Vec<_> = polys[layout.inputs_of(j)]
                    .iter()
                    .zip(keys.iter())
                    .filter_map(|(s, k)| k.weights().map(|w| (s, w)))
                    .collect();
                Ok(self.torus(tile, j, &pairs)?.0)
            })
            .collect::<Result<_, LayerError>>()?;
        Ok(ServerShare { polys, sums })
    }

    /// Answers one tile; writes the server's share of its outputs (bias included) into `own`, the whole output tensor.
    ///
    /// # Errors
    /// [`LayerError::Length`] for a request of the wrong length or shares of the wrong size; [`LayerError::Cipher`] for words that are not
    /// below their primes.
    pub fn answer(
        &self,
        tile: usize,
        share: &ServerShare,
        request: &[u8],
        own: &mut [u64],
    ) -> Result<Vec<u8>, LayerError> {
        let (layout, context) = (&self.design.layout, self.server.context());
        expect("request", self.design.request_len(), request.len())?;
        expect("output share", layout.output_len(), own.len())?;
        let inputs: Vec<Folded> = request
            .par_chunks_exact(context.packed_len())
            .zip(&share.polys)
            .map(|(bytes, share)| {
                let mut c0 = context.unpack(bytes)?;
                if self.design.profile() == Profile::Compact {
                    context.sub_assign(&mut c0, share)?;
                }
                Ok(c0)
            })
            .collect::<Result<_, LayerError>>()?;
        let r = self.design.params.response_bits();
        type Part = (Vec<u8>, Vec<usize>, Vec<u64>);
        let parts: Vec<Part> = (0..layout.output_blocks())
            .into_par_iter()
            .map(|j| {
                let keys = self.keys_of(j)?;
                let pairs: Vec<_> =
                    inputs[layout.inputs_of(j)].iter().zip(keys.iter().map(WeightKey::rho)).collect();
                let (mut sums, elements) = self.torus(tile, j, &pairs)?;
                if let Some(extra) = share.sums.get(j) {
                    sums.iter_mut().zip(extra).for_each(|(s, x)| *s = s.wrapping_add(*x));
                }
                let (answer, shares) = self.server.mask(&mut Prg::from_os()?, &sums);
                sums.zeroize();
                let mut bytes = vec![0; pack::packed_len(answer.len(), r)];
                pack::pack(&answer, r, &mut bytes)?;
                Ok((bytes, elements, shares))
            })
            .collect::<Result<_, LayerError>>()?;
        let mask = hushnet_ring::low_mask(self.design.params.ring_bits());
        let pixels = layout.output_len() / layout.channels_out();
        let mut message = Vec::with_capacity(self.design.answer_len(tile));
        for (bytes, elements, shares) in parts {
            message.extend_from_slice(&bytes);
            for (e, value) in elements.into_iter().zip(shares) {
                own[e] = value.wrapping_add(self.bias[e / pixels] as u64) & mask;
            }
        }
        Ok(message)
    }
}
