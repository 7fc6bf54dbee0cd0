//! The client's half of a product: one request with its shares of both operands, one answer.

use super::{transposed, MatrixProduct};
use crate::batch::{expect, LayerError};
use hushnet_ring::{low_mask, pack, Prg};
use hushnet_rlwe::wide::{WideClient, WideContext, RING_DEGREE};
use rayon::prelude::*;
use zeroize::Zeroizing;

/// A client's key of products of shares. No `Debug`.
pub struct MatrixClient {
    key: WideClient,
}

impl MatrixClient {
    /// A fresh key for products up to a spacing, and the message with its public parts: [`MatrixProduct::key_len`] bytes.
    ///
    /// # Errors
    /// [`LayerError::Cipher`] from the ring.
    pub fn generate(
        context: &WideContext,
        spacing: usize,
        prg: &mut Prg,
    ) -> Result<(Self, Vec<u8>), LayerError> {
        let key = WideClient::generate(context, prg)?;
        let mut seeds = [[0; 32]; 2];
        seeds.iter_mut().for_each(|seed| prg.fill_bytes(seed));
        let mut message = key.public_key(&seeds[0], prg)?.to_bytes()?;
        message.extend(key.merging_keys(spacing, &seeds[1], prg)?.to_bytes()?);
        Ok((Self { key }, message))
    }

    /// The request: the client's shares a (h, n, k) and b (h, k, m), encrypted. The pair of `seed` and `stage` must not be used for another encryption.
    ///
    /// # Errors
    /// [`LayerError::Length`] unless shares are whole operands.
    pub fn request(
        &self,
        product: &MatrixProduct,
        (seed, stage): (&[u8; 32], u32),
        a: &[u64],
        b: &[u64],
    ) -> Result<Vec<u8>, LayerError> {
        let [len_a, len_b, _] = product.shape.elements();
        expect("first operand's share", len_a, a.len())?;
        expect("second operand's share", len_b, b.len())?;
        let columns = Zeroizing::new(transposed(a, product.shape.rows, product.shape.inner));
        let mut message = vec![0; product.request_len()];
        let mut rest = message.as_mut_slice();
        let mut first = 0;
        for (term, image) in product.terms.iter().zip([columns.as_slice(), b]) {
            let each = term.params.request_len();
            let (part, after) = rest.split_at_mut(term.input_polys() * each);
            rest = after;
            part.par_chunks_exact_mut(each).enumerate().try_for_each(|(i, bytes)| {
                let blocks = term.layout.input_blocks();
                let mut poly = Zeroizing::new(vec![0; RING_DEGREE]);
                term.layout.for_each_input(i / blocks, i % blocks, |at, e| poly[at] = image[e]);
                let number = (seed, stage, (first + i) as u32);
                let c0 = self.key.encrypt(&term.params, number, &poly, &mut Prg::from_os()?)?;
                bytes.copy_from_slice(&c0);
                Ok::<(), LayerError>(())
            })?;
            first += term.input_polys();
        }
        Ok(message)
    }

    /// The client's share of the result (h, n, m), from the answer and its own shares of the operands.
    ///
    /// # Errors
    /// [`LayerError::Length`] for an answer of the wrong length, or unless shares are whole operands.
    pub fn open(
        &self,
        product: &MatrixProduct,
        answer: &[u8],
        a: &[u64],
        b: &[u64],
    ) -> Result<Vec<u64>, LayerError> {
        let [len_a, len_b, _] = product.shape.elements();
        expect("answer", product.answer_len(), answer.len())?;
        expect("first operand's share", len_a, a.len())?;
        expect("second operand's share", len_b, b.len())?;
        let mut out = product.local(a, b);
        let mask = low_mask(product.ring_bits);
        let mut rest = answer;
        for (number, term) in product.terms.iter().enumerate() {
            let groups: Vec<_> = term.groups().collect();
            let (these, after) = rest.split_at(groups.len() * term.part_len());
            rest = after;
            let parts = groups.into_par_iter().zip(these.par_chunks_exact(term.part_len()));
            let open = |(group, part): (Vec<_>, &[u8])| {
                let (places, elements) = term.places(&group);
                let mut c1 = vec![0; RING_DEGREE];
                pack::unpack(part, term.params.response_bits(), &mut c1)?;
                Ok((elements, self.key.open(&term.params, &c1, &places)?))
            };
            let opened = parts.map(open).collect::<Result<Vec<_>, LayerError>>()?;
            for (elements, shares) in opened {
                for (e, share) in elements.into_iter().zip(shares) {
                    let at = product.result_element(number, e);
                    out[at] = out[at].wrapping_add(share) & mask;
                }
            }
        }
        Ok(out)
    }
}
