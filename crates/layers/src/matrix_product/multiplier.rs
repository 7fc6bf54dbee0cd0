//! The other party of a cross term: its own share times the holder's encrypted one, merged, re-randomised, in part kept.

use super::{MatrixProduct, OutputPoly, Term, SEED_BYTES, STAGE};
use crate::batch::{expect, LayerError};
use hushnet_ring::{pack, wipe, Prg, RingError};
use hushnet_rlwe::one_poly::{Tally, TallyCounts};
use hushnet_rlwe::pack_lwe::{MergeKeys, Pair};
use hushnet_rlwe::wide::{
    WideCipher, WideContext, WideMultiplier, WidePlain, WidePublicKey, WideRuns, RING_DEGREE,
};
use hushnet_rlwe::CipherError;
use rayon::prelude::*;

/// What a party holds of the other one in a session: its public key and merging keys. Counts its operations. No `Debug`.
pub struct MatrixMultiplier {
    context: WideContext,
    wide: WideMultiplier,
    keys: MergeKeys,
    tally: Tally,
}

/// A merged ciphertext: its bytes, the elements that it holds, this party's shares of them.
type Part = (Vec<u8>, Vec<usize>, Vec<u64>);

/// This party's share of a cross term's plain factor, as weights.
struct Plain<'a> {
    term: &'a Term,
    weights: &'a [u64],
    ring_bits: u32,
    /// Where weights stand in runs: their transforms.
    runs: Option<WideRuns>,
}

impl Plain<'_> {
    /// The plain polynomials that meet in an output block, one an input block, in place of those of `made`.
    fn polys(
        &self,
        context: &WideContext,
        block: usize,
        made: &mut Vec<WidePlain>,
    ) -> Result<(), LayerError> {
        let layout = &self.term.layout;
        let shift = 64 - self.ring_bits;
        let place = |at| self.runs.as_ref().map_or(Some((at, false)), |runs| runs.place(at));
        // One after the other in one place, which is wiped behind each.
        let mut coefficients = vec![0i64; self.runs.as_ref().map_or(RING_DEGREE, WideRuns::coefficients)];
        let inputs = layout.inputs_of(block);
        made.truncate(inputs.len());
        for (number, i) in inputs.enumerate() {
            let mut lost = false;
            layout.for_each_weight(i, block, |at, w, negative| {
                let v = ((self.weights[w] << shift) as i64) >> shift;
                match place(at) {
                    Some((at, other)) => coefficients[at] = if negative == other { v } else { -v },
                    None => lost = true,
                }
            });
            if lost {
                // Not with the layouts of products: a fault of this crate.
                return Err(CipherError::Ring(RingError::RingDegree(layout.spacing())).into());
            }
            let poly = match (&self.runs, made.get_mut(number)) {
                (Some(runs), Some(used)) => runs.plain_into(&coefficients, used).map(|()| None),
                (Some(runs), None) => runs.plain(&coefficients).map(Some),
                (None, _) => WidePlain::new(context, &coefficients, layout.spacing()).map(Some),
            };
            wipe(&mut coefficients);
            // With `used` the place has it.
            if let Some(poly) = poly? {
                made.truncate(number);
                made.push(poly);
            }
        }
        Ok(())
    }
}

impl MatrixMultiplier {
    /// Reads and checks the other party's message of keys for products up to a spacing.
    ///
    /// # Errors
    /// [`LayerError::Length`] unless it has [`MatrixProduct::key_len`] bytes; [`LayerError::Cipher`] for words that are not below their primes.
    pub fn read(context: &WideContext, spacing: usize, message: &[u8]) -> Result<Self, LayerError> {
        expect("keys of matrix products", MatrixProduct::key_len(context, spacing), message.len())?;
        let (public, merging) = message.split_at(WidePublicKey::byte_len());
        let wide = WideMultiplier::new(context, &WidePublicKey::from_bytes(context, public)?)?;
        let keys = MergeKeys::from_bytes(context.merge(), spacing, merging)?;
        Ok(Self { context: context.clone(), wide, keys, tally: Tally::default() })
    }

    /// Operations so far: `ntt` are transformed plain polynomials and requests, `products` those with a ciphertext, `rotations` merges, `intt` answers.
    #[must_use]
    pub fn tally(&self) -> TallyCounts {
        self.tally.counts()
    }

    /// Answers a request with this party's shares a (h, n, k) and b (h, k, m); adds what it keeps of the cross term to `own`, its share of the result (h, n, m).
    ///
    /// # Errors
    /// [`LayerError::Length`] for a request or a result of the wrong length, or unless shares are whole operands; [`LayerError::Cipher`] from the ring.
    pub fn answer(
        &self,
        product: &MatrixProduct,
        request: &[u8],
        (a, b): (&[u64], &[u64]),
        own: &mut [u64],
    ) -> Result<Vec<u8>, LayerError> {
        expect("request", product.request_len(), request.len())?;
        expect("result", product.shape.elements()[2], own.len())?;
        product.whole(a, b)?;
        let (term, (seed, polys)) = (&product.term, request.split_at(SEED_BYTES));
        let seed: [u8; SEED_BYTES] = std::array::from_fn(|i| seed[i]);
        let runs = WideRuns::new(&self.context, term.layout.spacing(), term.step())?;
        let read = |(i, bytes): (usize, &[u8])| {
            let mut cipher = self.wide.read(&term.params, (&seed, STAGE, i as u32), bytes)?;
            if let Some(runs) = &runs {
                runs.turn(&mut cipher)?;
            }
            Ok::<_, CipherError>(cipher)
        };
        let ciphers = polys.par_chunks_exact(term.params.request_len()).enumerate().map(read);
        let ciphers = ciphers.collect::<Result<Vec<_>, _>>()?;
        self.tally.add(TallyCounts { ntt: ciphers.len() as u64, ..TallyCounts::default() });
        let mut room = None;
        let weights = product.weights(a, b, &mut room);
        let plain = Plain { term, weights, ring_bits: product.ring_bits, runs };
        let mut message = Vec::with_capacity(product.answer_len());
        for (bytes, elements, shares) in self.cross(&plain, &ciphers)? {
            message.extend_from_slice(&bytes);
            product.add(elements, shares, own);
        }
        Ok(message)
    }

    /// Every merged ciphertext of a cross term: bytes, elements, own shares. Plain polynomials are made for one
    /// group at a time, and serve all tiles of their block there.
    fn cross(&self, plain: &Plain<'_>, ciphers: &[WideCipher]) -> Result<Vec<Part>, LayerError> {
        let groups: Vec<Vec<OutputPoly>> = plain.term.groups().collect();
        // Plain polynomials of one group have their places from the last one: not wiped and not asked for again.
        let one = |made: &mut Vec<_>, group: Vec<_>| self.group(plain, ciphers, &group, made);
        groups.into_par_iter().map_init(Vec::new, one).collect()
    }

    fn group(
        &self,
        plain: &Plain<'_>,
        ciphers: &[WideCipher],
        group: &[OutputPoly],
        made: &mut Vec<Vec<WidePlain>>,
    ) -> Result<Part, LayerError> {
        let (term, layout) = (plain.term, &plain.term.layout);
        let blocks = Term::blocks(group);
        made.resize_with(blocks.len(), Vec::new);
        for (block, made) in blocks.clone().zip(made.iter_mut()) {
            plain.polys(&self.context, block, made)?;
        }
        let count: usize = made.iter().map(Vec::len).sum();
        self.tally.add(TallyCounts { ntt: count as u64, ..TallyCounts::default() });
        let combine = |(tile, block): &OutputPoly| -> Result<Pair, LayerError> {
            let first = tile * layout.input_blocks();
            let range = layout.inputs_of(*block);
            let inputs: Vec<&WideCipher> = ciphers[first + range.start..first + range.end].iter().collect();
            self.tally.add(TallyCounts { products: inputs.len() as u64, ..TallyCounts::default() });
            Ok(self.wide.combine(&inputs, &made[block - blocks.start])?)
        };
        let list = group.iter().map(combine).collect::<Result<Vec<_>, _>>()?;
        let merged = self.keys.merge(list, layout.spacing(), &self.tally)?;
        let (places, elements) = term.places(group);
        let [c1, shares] = self.wide.answer(&term.params, &mut Prg::from_os()?, merged, &places)?;
        self.tally.add(TallyCounts { intt: 1, ..TallyCounts::default() });
        let mut bytes = vec![0; term.part_len()];
        pack::pack(&c1, term.params.response_bits(), &mut bytes)?;
        Ok((bytes, elements, shares))
    }
}
