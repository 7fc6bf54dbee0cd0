//! Both halves of a slot-packed layer.

use super::machine::Store;
use super::{Layout, Method, SlotError, Term};
use crate::batch::{expect, Geometry};
use hushnet_ring::Prg;
use hushnet_rlwe::bfv::client::SecretKey;
use hushnet_rlwe::bfv::{BfvParams, Cipher, Evaluator, Turn, Weight};
use rayon::prelude::*;
use std::collections::HashMap;

/// Server half: shapes and weights. No `Debug`.
pub struct SlotLinear {
    layout: Layout,
    params: BfvParams,
    weights: Vec<i16>,
    bias: Vec<i64>,
    prepared: Option<HashMap<Term, Weight>>,
}

/// The client's half of a layer: public shapes, no secret.
#[derive(Clone)]
pub struct SlotClient {
    layout: Layout,
    params: BfvParams,
}

/// Seconds of a server's work on a tile, by the evaluator's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Phases {
    /// Reading requests, expanding seeds, adding the server's share.
    pub receive: f64,
    /// Products, sums, permutations; weights streamed into evaluation form included.
    pub linear: f64,
    /// The part of `linear` that made evaluation forms of streamed weights (summed over threads).
    pub encode: f64,
    /// The part of `linear` that summed products (summed over threads).
    pub products: f64,
    /// The part of `linear` that permuted (summed over threads).
    pub switching: f64,
    /// Re-randomising, masking, flooding, switching, packing.
    pub answer: f64,
    /// Rotate-and-sum or reading of the server's own share.
    pub share: f64,
}

impl SlotLinear {
    /// Weights are (O, C/groups, kh, kw) or (M, K) row-major, `bias` one value an output channel, added modulo t.
    ///
    /// # Errors
    /// [`SlotError::Layer`] for wrong lengths, what [`Layout::new`] refuses.
    pub fn new(
        params: &BfvParams,
        geometry: &Geometry,
        method: Method,
        weights: &[i16],
        bias: &[i64],
    ) -> Result<Self, SlotError> {
        let layout = Layout::new(geometry, method, params.ring_degree())?;
        expect("weights", geometry.weights(), weights.len())?;
        expect("biases", geometry.biases(), bias.len())?;
        let (weights, bias) = (weights.to_vec(), bias.to_vec());
        Ok(Self { layout, params: params.clone(), weights, bias, prepared: None })
    }

    /// Makes all weight vectors' evaluation forms now ([`Self::prepared_bytes`]) instead of for every tile.
    ///
    /// # Errors
    /// What [`Weight::new`] refuses.
    pub fn prepare(&mut self) -> Result<(), SlotError> {
        let t = self.params.plain_modulus();
        let make =
            |term: Term| Ok((term, Weight::new(&self.params, &self.layout.weight(term, &self.weights, t))?));
        self.prepared =
            Some(self.layout.terms().into_par_iter().map(make).collect::<Result<_, SlotError>>()?);
        Ok(())
    }

    /// Number of bytes that the weights take after [`Self::prepare`].
    #[must_use]
    pub fn prepared_bytes(&self) -> usize {
        self.layout.terms().len() * self.params.weight_bytes()
    }

    /// Bytes that the weights take here: as they are, and in evaluation form where they were prepared.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        2 * self.weights.len() + if self.prepared.is_some() { self.prepared_bytes() } else { 0 }
    }

    /// What the client needs: no weights.
    #[must_use]
    pub fn client(&self) -> SlotClient {
        SlotClient { layout: self.layout.clone(), params: self.params.clone() }
    }

    /// Where the elements of inputs and results lie in ciphertexts.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The linear part of a tile alone: encrypted results before anything is shared.
    ///
    /// # Errors
    /// What the evaluator refuses.
    pub fn evaluate(&self, evaluator: &Evaluator, inputs: &[Cipher]) -> Result<Vec<Cipher>, SlotError> {
        let t = self.params.plain_modulus();
        let make = |term: Term| self.layout.weight(term, &self.weights, t);
        let store = match &self.prepared {
            Some(all) => Store::Prepared(all),
            None => Store::Streamed(&make),
        };
        self.layout.run(evaluator, inputs, &store)
    }

    /// Answers one tile: requests as the client sent them, one after the other. `share` is the server's share of the whole input
    /// tensor, `own` its share of the whole output tensor, of which this tile's elements are written (bias included).
    ///
    /// # Errors
    /// [`SlotError::Layer`] for a request or shares of the wrong length, [`SlotError::Bfv`] for damaged words and for noise that
    /// cannot be hidden.
    pub fn answer(
        &self,
        evaluator: &Evaluator,
        tile: usize,
        request: &[u8],
        share: &[u64],
        own: &mut [u64],
    ) -> Result<(Vec<u8>, Phases), SlotError> {
        let one = self.params.request_len();
        expect("request", self.layout.inputs() * one, request.len())?;
        expect("input share", self.layout.input_len(), share.len())?;
        expect("output share", self.layout.output_len(), own.len())?;
        let t = self.params.plain_modulus();
        let since = |start: u64| (evaluator.now() - start) as f64 * 1e-9;
        let mut phases = Phases::default();
        let start = evaluator.now();
        let inputs: Vec<Cipher> = request
            .par_chunks_exact(one)
            .enumerate()
            .map(|(i, bytes)| {
                let mut c = evaluator.receive(bytes)?;
                evaluator.add_share(&mut c, &self.layout.pack(tile, i, share))?;
                Ok(c)
            })
            .collect::<Result<_, SlotError>>()?;
        phases.receive = since(start);

        let spent = || {
            [
                evaluator.encoding_nanoseconds(),
                evaluator.product_nanoseconds(),
                evaluator.switching_nanoseconds(),
            ]
        };
        let (start, before) = (evaluator.now(), spent());
        let results = self.evaluate(evaluator, &inputs)?;
        phases.linear = since(start);
        let mut parts = [0.0; 3];
        for (part, (after, before)) in parts.iter_mut().zip(spent().into_iter().zip(before)) {
            *part = (after - before) as f64 * 1e-9;
        }
        [phases.encode, phases.products, phases.switching] = parts;

        let start = evaluator.now();
        let answers: Vec<(Vec<u8>, Vec<u64>)> = results
            .par_iter()
            .map(
                |c| Ok(evaluator.answer(c, &mut Prg::from_os().map_err(hushnet_rlwe::bfv::BfvError::from)?)?),
            )
            .collect::<Result<_, SlotError>>()?;
        phases.answer = since(start);

        let start = evaluator.now();
        let mut message = Vec::with_capacity(answers.len() * self.params.answer_len());
        // Values are below t: what keeps the mark is not of this tile.
        let mut part = vec![u64::MAX; own.len()];
        for (block, (bytes, slots)) in answers.iter().enumerate() {
            message.extend_from_slice(bytes);
            self.layout.unpack(tile, block, slots, t, &mut part);
        }
        let each = self.layout.outputs_per_bias();
        let modulus = self.params.slot_modulus();
        for (e, v) in part.into_iter().enumerate().filter(|(_, v)| *v != u64::MAX) {
            own[e] = modulus.add(v, modulus.residue(i128::from(self.bias[e / each])));
        }
        phases.share = since(start);
        Ok((message, phases))
    }
}

impl SlotClient {
    /// From what a plan says.
    ///
    /// # Errors
    /// What [`Layout::new`] refuses.
    pub fn new(params: &BfvParams, geometry: &Geometry, method: Method) -> Result<Self, SlotError> {
        Ok(Self { layout: Layout::new(geometry, method, params.ring_degree())?, params: params.clone() })
    }

    /// Where the elements of inputs and results lie in ciphertexts.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Number of tiles, which are asked for and answered one by one.
    #[must_use]
    pub fn tiles(&self) -> usize {
        self.layout.tiles()
    }

    /// Permutations that the server needs keys for.
    #[must_use]
    pub fn turns(&self) -> Vec<Turn> {
        self.layout.turns()
    }

    /// Encrypts one tile of the client's share of the input tensor.
    ///
    /// # Errors
    /// [`SlotError::Layer`] unless `share` is the whole tensor, [`SlotError::Bfv`] for values not below t.
    pub fn request(&self, key: &SecretKey, tile: usize, share: &[u64]) -> Result<Vec<u8>, SlotError> {
        expect("input share", self.layout.input_len(), share.len())?;
        let parts: Vec<Vec<u8>> = (0..self.layout.inputs())
            .into_par_iter()
            .map(|i| {
                let mut prg = Prg::from_os().map_err(hushnet_rlwe::bfv::BfvError::from)?;
                Ok(key.encrypt(&self.layout.pack(tile, i, share), &mut prg)?)
            })
            .collect::<Result<_, SlotError>>()?;
        Ok(parts.concat())
    }

    /// Reads the client's share of a tile's outputs into its share of the whole output tensor.
    ///
    /// # Errors
    /// [`SlotError::Layer`] for an answer or share of the wrong length.
    pub fn open(
        &self,
        key: &SecretKey,
        tile: usize,
        answer: &[u8],
        share: &mut [u64],
    ) -> Result<(), SlotError> {
        let one = self.params.answer_len();
        expect("answer", self.layout.outputs() * one, answer.len())?;
        expect("output share", self.layout.output_len(), share.len())?;
        let slots: Vec<Vec<u64>> = answer
            .par_chunks_exact(one)
            .map(|bytes| Ok(key.open(bytes)?))
            .collect::<Result<_, SlotError>>()?;
        for (block, slots) in slots.iter().enumerate() {
            self.layout.unpack(tile, block, slots, self.params.plain_modulus(), share);
        }
        Ok(())
    }
}
