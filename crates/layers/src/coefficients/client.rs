//! The client half of a coefficient-packed stage.

use super::CoefficientStage;
use crate::batch::{expect, LayerError};
use hushnet_ring::{pack, Prg};
use hushnet_rlwe::coefficients::{lift_masks, CoefficientKey, CoefficientScratch};
use hushnet_rlwe::packed::PackedContext;
use rayon::prelude::*;

/// A stage at the client: shapes, and the sums of masks of a session. It holds no secret; keys come with every call.
pub struct CoefficientClient {
    stage: CoefficientStage,
    context: PackedContext,
    /// By output block, in evaluation form; empty before the set-up.
    sums: Vec<Vec<u64>>,
}

impl CoefficientClient {
    /// Without sums of masks yet.
    #[must_use]
    pub fn new(context: &PackedContext, stage: CoefficientStage) -> Self {
        Self { stage, context: context.clone(), sums: Vec::new() }
    }

    /// The public part of the stage, which both parties know.
    #[must_use]
    pub fn stage(&self) -> &CoefficientStage {
        &self.stage
    }

    /// Keeps the sums of masks that the server sent.
    ///
    /// # Errors
    /// [`LayerError::Length`] for a message of the wrong length.
    pub fn take_masks(&mut self, bytes: &[u8]) -> Result<(), LayerError> {
        let (n, bits) = (self.context.ring_degree(), self.stage.params.bits().mask);
        expect("sums of masks", self.stage.masks_len(), bytes.len())?;
        let of = |packed: &[u8]| {
            let mut words = vec![0; n];
            pack::unpack(packed, bits, &mut words)?;
            lift_masks(&self.context, &self.stage.params, &mut words)?;
            Ok::<_, LayerError>(words)
        };
        self.sums = bytes.par_chunks_exact(pack::packed_len(n, bits)).map(of).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Encrypts a tile of the input tensor into `out`. `value` gives an element's integer, below 2^32 in absolute value. `key` is the tile's own, and must not
    /// meet this stage under this `seed` again.
    ///
    /// # Errors
    /// [`LayerError::Length`] unless `out` has the bytes of a request; [`LayerError::Cipher`] when the key is of another degree.
    pub fn request(
        &self,
        key: &CoefficientKey,
        (seed, number): (&[u8; 32], u32),
        tile: usize,
        value: impl Fn(usize) -> i64 + Sync,
        out: &mut [u8],
    ) -> Result<(), LayerError> {
        let (n, params) = (self.context.ring_degree(), &self.stage.params);
        expect("request", self.stage.request_len(), out.len())?;
        out.par_chunks_exact_mut(pack::packed_len(n, params.bits().upload)).enumerate().try_for_each_init(
            || (CoefficientScratch::new(&self.context), Prg::from_os(), vec![0; n], vec![0; n]),
            |(scratch, prg, mask, words), (block, bytes)| {
                let prg = prg.as_mut().map_err(|e| e.clone())?;
                let mut messages = zeroize::Zeroizing::new(vec![0i64; n]);
                self.stage.layout.for_each_input(tile, block, |at, element| messages[at] = value(element));
                self.context.mask_hat(seed, number, block as u32, mask)?;
                key.encrypt_into(params, mask, &messages, prg, scratch, words)?;
                Ok(pack::pack(words, params.bits().upload, bytes)?)
            },
        )
    }

    /// Decrypts the answer to a tile into the output tensor, of which this tile's elements are written. Returns the largest noise seen.
    ///
    /// # Errors
    /// [`LayerError::Length`] for an answer or a tensor of the wrong size, or before [`Self::take_masks`]; [`LayerError::Cipher`] when the key is of
    /// another degree.
    pub fn open(
        &self,
        key: &CoefficientKey,
        tile: usize,
        answer: &[u8],
        out: &mut [i64],
    ) -> Result<u64, LayerError> {
        let (layout, params) = (&self.stage.layout, &self.stage.params);
        expect("answer", self.stage.answer_len(tile), answer.len())?;
        expect("output", layout.output_len(), out.len())?;
        expect("sums of masks", layout.output_blocks(), self.sums.len())?;
        let mut body = vec![0; self.stage.values(tile).next_multiple_of(8)];
        pack::unpack(answer, params.bits().body, &mut body)?;
        let mut rest = body.as_slice();
        let mut parts = Vec::with_capacity(self.sums.len());
        for j in 0..self.sums.len() {
            let (part, after) = rest.split_at(layout.output_count(tile, j));
            parts.push(part);
            rest = after;
        }
        let opened = parts
            .into_par_iter()
            .enumerate()
            .map_init(
                || CoefficientScratch::new(&self.context),
                |scratch, (j, part)| {
                    let (places, elements) = layout.output_places(tile, j, 1);
                    let mut values = zeroize::Zeroizing::new(vec![0; places.len()]);
                    let noise = key.open(params, &self.sums[j], part, &places, scratch, &mut values)?;
                    Ok((elements, values, noise))
                },
            )
            .collect::<Result<Vec<_>, LayerError>>()?;
        let mut largest = 0;
        for (elements, values, noise) in opened {
            elements.into_iter().zip(values.iter()).for_each(|(e, v)| out[e] = *v);
            largest = noise.max(largest);
        }
        Ok(largest)
    }
}
