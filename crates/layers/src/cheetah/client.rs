//! The client's half of a stage: requests, opening.

use super::{part_len, request_len, CheetahClient, Coefficients, Shares, TileId};
use crate::batch::{expect, LayerError};
use hushnet_ring::{pack, Prg};
use hushnet_rlwe::packed::PackedClient;
use rayon::prelude::*;

/// The request for a tile: every input polynomial of the client's share of the input tensor, encrypted.
///
/// # Errors
/// [`LayerError::Length`] unless `share` is the whole tensor.
pub(crate) fn encrypt_tile(
    at: &Coefficients<'_>,
    key: &PackedClient,
    (seed, stage, tile): TileId<'_>,
    share: &[u64],
) -> Result<Vec<u8>, LayerError> {
    let (n, blocks) = (at.layout.degree(), at.layout.input_blocks());
    expect("input share", at.layout.input_len(), share.len())?;
    let mut message = vec![0; request_len(at.layout, at.params)];
    let each = message.len() / blocks;
    message.par_chunks_exact_mut(each).enumerate().try_for_each(|(i, bytes)| {
        let (mut mask, mut poly, mut c0) = (vec![0; n], vec![0; n], vec![0; n]);
        at.layout.for_each_input(tile, i, |at, e| poly[at] = share[e]);
        at.context.mask_hat(seed, stage, (tile * blocks + i) as u32, &mut mask)?;
        key.encrypt_into(at.params, &mask, &poly, &mut Prg::from_os()?, &mut c0)?;
        pack::pack(&c0, at.params.request_bits(), bytes)?;
        Ok::<(), LayerError>(())
    })?;
    Ok(message)
}

/// A stage on shares that a client asks for, tile by tile.
pub trait AskTiles {
    /// Encrypts one tile of the client's share of the input tensor. The pair of `seed` (the image's) and `stage` (its index in the plan) must
    /// not be used for another encryption.
    ///
    /// # Errors
    /// [`LayerError::Length`] unless `share` is the whole tensor.
    fn request(
        &self,
        key: &PackedClient,
        seed: &[u8; 32],
        stage: u32,
        tile: usize,
        share: &[u64],
    ) -> Result<Vec<u8>, LayerError>;

    /// Reads the client's share of a tile's outputs into its share of the whole output tensor.
    ///
    /// # Errors
    /// [`LayerError::Length`] for an answer of the wrong length or a share of the wrong size.
    fn open(
        &self,
        key: &PackedClient,
        tile: usize,
        answer: &[u8],
        share: &mut [u64],
    ) -> Result<(), LayerError>;
}

impl AskTiles for CheetahClient {
    fn request(
        &self,
        key: &PackedClient,
        seed: &[u8; 32],
        stage: u32,
        tile: usize,
        share: &[u64],
    ) -> Result<Vec<u8>, LayerError> {
        encrypt_tile(&self.places(), key, (seed, stage, tile), share)
    }

    fn open(
        &self,
        key: &PackedClient,
        tile: usize,
        answer: &[u8],
        share: &mut [u64],
    ) -> Result<(), LayerError> {
        expect("answer", self.answer_len(), answer.len())?;
        expect("output share", self.layout.output_len(), share.len())?;
        let opened: Vec<Shares> = answer
            .par_chunks_exact(part_len(&self.params))
            .enumerate()
            .map(|(j, part)| {
                let (places, elements) = self.layout.output_places(tile, j, 1);
                let (mut c1, mut out) = (vec![0; self.layout.degree()], vec![0; places.len()]);
                pack::unpack(part, self.params.response_bits(), &mut c1)?;
                key.open(&self.params, &c1, &places, &mut out)?;
                Ok(elements.into_iter().zip(out).collect())
            })
            .collect::<Result<_, LayerError>>()?;
        for (e, value) in opened.into_iter().flatten() {
            share[e] = value;
        }
        Ok(())
    }
}
