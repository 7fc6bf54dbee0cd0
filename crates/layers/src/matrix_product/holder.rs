//! A holder of a key in a product: one request with its share of a factor, one answer.

use super::{MatrixProduct, SEED_BYTES, STAGE};
use crate::batch::{expect, LayerError};
use hushnet_ring::{pack, Prg};
use hushnet_rlwe::wide::{WideContext, WideHolder, RING_DEGREE};
use rayon::prelude::*;
use zeroize::Zeroizing;

/// A party's key of products of shares. No `Debug`.
pub struct MatrixHolder {
    key: WideHolder,
}

impl MatrixHolder {
    /// A fresh key for products up to a spacing, and the message with its public parts: [`MatrixProduct::key_len`] bytes.
    ///
    /// # Errors
    /// [`LayerError::Cipher`] from the ring.
    pub fn generate(
        context: &WideContext,
        spacing: usize,
        prg: &mut Prg,
    ) -> Result<(Self, Vec<u8>), LayerError> {
        let key = WideHolder::generate(context, prg)?;
        let mut seeds = [[0; SEED_BYTES]; 2];
        seeds.iter_mut().for_each(|seed| prg.fill_bytes(seed));
        let mut message = key.public_key(&seeds[0], prg)?.to_bytes()?;
        message.extend(key.merging_keys(spacing, &seeds[1], prg)?.to_bytes()?);
        Ok((Self { key }, message))
    }

    /// The request: this party's share of the encrypted one of a (h, n, k) and b (h, k, m), under a seed of its own, which the peer has no say in.
    ///
    /// # Errors
    /// [`LayerError::Length`] unless shares are whole operands.
    pub fn request(&self, product: &MatrixProduct, a: &[u64], b: &[u64]) -> Result<Vec<u8>, LayerError> {
        product.whole(a, b)?;
        let (term, mut room) = (&product.term, None);
        let image = product.image(a, b, &mut room);
        let mut message = vec![0; product.request_len()];
        let (seed, polys) = message.split_at_mut(SEED_BYTES);
        Prg::from_os()?.fill_bytes(seed);
        let seed: [u8; SEED_BYTES] = std::array::from_fn(|i| seed[i]);
        let blocks = term.layout.input_blocks();
        polys.par_chunks_exact_mut(term.params.request_len()).enumerate().try_for_each(|(i, bytes)| {
            let mut poly = Zeroizing::new(vec![0; RING_DEGREE]);
            term.layout.for_each_input(i / blocks, i % blocks, |at, e| poly[at] = image[e]);
            let number = (&seed, STAGE, i as u32);
            bytes.copy_from_slice(&self.key.encrypt(&term.params, number, &poly, &mut Prg::from_os()?)?);
            Ok::<(), LayerError>(())
        })?;
        Ok(message)
    }

    /// Adds this party's shares of its cross term, from the answer, to `own`, its share of the result (h, n, m).
    ///
    /// # Errors
    /// [`LayerError::Length`] for an answer or a result of the wrong length.
    pub fn open(&self, product: &MatrixProduct, answer: &[u8], own: &mut [u64]) -> Result<(), LayerError> {
        expect("answer", product.answer_len(), answer.len())?;
        expect("result", product.shape.elements()[2], own.len())?;
        let term = &product.term;
        let groups: Vec<_> = term.groups().collect();
        let parts = groups.into_par_iter().zip(answer.par_chunks_exact(term.part_len()));
        let open = |(group, part): (Vec<_>, &[u8])| {
            let (places, elements) = term.places(&group);
            let mut c1 = vec![0; RING_DEGREE];
            pack::unpack(part, term.params.response_bits(), &mut c1)?;
            Ok((elements, self.key.open(&term.params, &c1, &places)?))
        };
        let opened = parts.map(open).collect::<Result<Vec<_>, LayerError>>()?;
        opened.into_iter().for_each(|(elements, shares)| product.add(elements, shares, own));
        Ok(())
    }
}
