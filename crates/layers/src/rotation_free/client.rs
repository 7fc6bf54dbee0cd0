//! The client's half of a stage.

use super::{Design, Profile, Setup};
use crate::batch::{expect, LayerError};
use hushnet_ring::{pack, Prg};
use hushnet_rlwe::one_poly::{Blind, Folded, OnePolyClient, Tally, TallyCounts};
use rayon::prelude::*;
use zeroize::Zeroize;

/// Client half of a stage: no key, only the set-up.
pub struct RotationFreeClient {
    design: Design,
    client: OnePolyClient,
    setup: Vec<Vec<Folded>>,
    tally: Tally,
}

/// One query of one tile, before its answer. No `Debug`; wiped on drop.
pub struct Prepared {
    tile: usize,
    blinds: Vec<Blind>,
    /// The client's own part, for every output block; compact: made before the query.
    own: Vec<Vec<u64>>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.own.zeroize();
    }
}

impl RotationFreeClient {
    /// With a complete set-up.
    ///
    /// # Errors
    /// [`LayerError::Length`] when the set-up is incomplete; [`LayerError::Cipher`] for words that are not below their primes.
    pub fn new(design: &Design, setup: &Setup) -> Result<Self, LayerError> {
        expect("weight polynomials of the set-up", design.layout.cost().weight_polys, setup.received())?;
        setup.check(design)?;
        let context = design.context()?;
        let polys = setup
            .polys()
            .map(|bytes| {
                bytes
                    .chunks_exact(context.packed_len())
                    .map(|part| Ok(context.unpack(part)?))
                    .collect::<Result<_, LayerError>>()
            })
            .collect::<Result<_, LayerError>>()?;
        let client = OnePolyClient::new(&context, &design.params, setup.seed(), design.stage)?;
        Ok(Self { design: design.clone(), client, setup: polys, tally: Tally::default() })
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

    /// The client's part of every output block.
    fn own(&self, tile: usize, blinds: &[Blind]) -> Result<Vec<Vec<u64>>, LayerError> {
        let (layout, context) = (&self.design.layout, self.client.context());
        let first: Vec<usize> = (0..layout.output_blocks())
            .scan(0, |sum, j| {
                *sum += layout.inputs_of(j).len();
                Some(*sum - layout.inputs_of(j).len())
            })
            .collect();
        (0..layout.output_blocks())
            .into_par_iter()
            .map(|j| {
                let inputs = layout.inputs_of(j);
                let setup = &self.setup[first[j]..first[j] + inputs.len()];
                let blinds = &blinds[inputs];
                let mut pairs: Vec<_> =
                    blinds.iter().map(Blind::secret).zip(setup.iter().map(|s| &s[0])).collect();
                if self.design.profile() == Profile::Flooded {
                    let second = blinds.iter().zip(setup);
                    pairs.extend(second.filter_map(|(b, s)| Some((b.share()?, s.get(1)?))));
                }
                let (places, _) = layout.output_places(tile, j, context.fold());
                Ok(context.torus(&context.dot(&pairs, &self.tally)?, &places)?)
            })
            .collect()
    }

    /// What a request needs: the blinds of a query. [`Self::complete`] must follow, before or after the request.
    ///
    /// # Errors
    /// [`LayerError::Cipher`] from the ring.
    pub fn prepare_blinds(&self, tile: usize) -> Result<Prepared, LayerError> {
        let blinds = (0..self.design.layout.input_blocks())
            .into_par_iter()
            .map(|_| Ok(self.client.blind(&mut Prg::from_os()?, &self.tally)?))
            .collect::<Result<Vec<_>, LayerError>>()?;
        Ok(Prepared { tile, blinds, own: Vec::new() })
    }

    /// The client's own products, once: compact at any time, flooded after the request. What [`Self::prepare`] and
    /// [`Self::request`] do by themselves.
    ///
    /// # Errors
    /// [`LayerError::Cipher`] from the ring.
    pub fn complete(&self, prepared: &mut Prepared) -> Result<(), LayerError> {
        if prepared.own.is_empty() {
            prepared.own = self.own(prepared.tile, &prepared.blinds)?;
        }
        Ok(())
    }

    /// All of a query that does not depend on the input.
    ///
    /// # Errors
    /// [`LayerError::Cipher`] from the ring.
    pub fn prepare(&self, tile: usize) -> Result<Prepared, LayerError> {
        let mut prepared = self.prepare_blinds(tile)?;
        if self.design.profile() == Profile::Compact {
            self.complete(&mut prepared)?;
        }
        Ok(prepared)
    }

    /// Encrypts the prepared tile of the client's share of the input tensor. A [`Prepared`] serves one request.
    ///
    /// # Errors
    /// [`LayerError::Length`] unless `share` is the whole tensor.
    pub fn request(&self, prepared: &mut Prepared, share: &[u64]) -> Result<Vec<u8>, LayerError> {
        let layout = &self.design.layout;
        expect("input share", layout.input_len(), share.len())?;
        let mut message = vec![0; self.design.request_len()];
        message
            .par_chunks_exact_mut(self.client.context().packed_len())
            .zip(prepared.blinds.par_iter_mut())
            .enumerate()
            .try_for_each(|(i, (bytes, blind))| {
                let mut poly = vec![0; layout.degree()];
                layout.for_each_input(prepared.tile, i, |at, e| poly[at] = share[e]);
                self.client.request(blind, &poly, bytes, &self.tally)?;
                poly.zeroize();
                Ok::<(), LayerError>(())
            })?;
        if self.design.profile() == Profile::Flooded {
            self.complete(prepared)?;
        }
        Ok(message)
    }

    /// Reads the client's share of a tile's outputs into its share of the whole output tensor.
    ///
    /// # Errors
    /// [`LayerError::Length`] for an answer of the wrong length or a share of the wrong size.
    pub fn open(&self, prepared: &Prepared, answer: &[u8], share: &mut [u64]) -> Result<(), LayerError> {
        let (layout, r) = (&self.design.layout, self.design.params.response_bits());
        expect("answer", self.design.answer_len(prepared.tile), answer.len())?;
        expect("output share", layout.output_len(), share.len())?;
        expect("client parts", layout.output_blocks(), prepared.own.len())?;
        let mut rest = answer;
        for (j, own) in prepared.own.iter().enumerate() {
            let (part, after) = rest.split_at(pack::packed_len(own.len(), r));
            rest = after;
            let (mut words, mut out) = (vec![0; own.len()], vec![0; own.len()]);
            pack::unpack(part, r, &mut words)?;
            self.client.open(&words, own, &mut out)?;
            let (_, elements) = layout.output_places(prepared.tile, j, 1);
            for (e, value) in elements.into_iter().zip(out) {
                share[e] = value;
            }
        }
        Ok(())
    }
}
