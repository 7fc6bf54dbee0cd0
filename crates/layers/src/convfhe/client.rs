//! The client's half of a stage: requests, opening.

use super::{ConvFheClient, RING_DEGREE};
use crate::batch::{expect, LayerError};
use crate::cheetah::client::{encrypt_tile, AskTiles};
use crate::cheetah::part_len;
use hushnet_ring::pack;
use hushnet_rlwe::one_poly::TallyCounts;
use hushnet_rlwe::packed::PackedClient;

impl AskTiles for ConvFheClient {
    fn request(
        &self,
        key: &PackedClient,
        seed: &[u8; 32],
        stage: u32,
        tile: usize,
        share: &[u64],
    ) -> Result<Vec<u8>, LayerError> {
        let message = encrypt_tile(&self.design.places_of(), key, (seed, stage, tile), share)?;
        let intt = self.design.layout.input_blocks() as u64;
        self.tally.add(TallyCounts { intt, ..TallyCounts::default() });
        Ok(message)
    }

    fn open(
        &self,
        key: &PackedClient,
        tile: usize,
        answer: &[u8],
        share: &mut [u64],
    ) -> Result<(), LayerError> {
        let d = &self.design;
        expect("answer", d.answer_len(), answer.len())?;
        expect("output share", d.layout.output_len(), share.len())?;
        let mut rest = answer;
        for g in 0..d.groups() {
            let (part, after) = rest.split_at(part_len(&d.params));
            rest = after;
            let (places, elements) = d.places(tile, g);
            let (mut c1, mut out) = (vec![0; RING_DEGREE], vec![0; places.len()]);
            pack::unpack(part, d.params.response_bits(), &mut c1)?;
            key.open(&d.params, &c1, &places, &mut out)?;
            self.tally.add(TallyCounts { intt: 1, ..TallyCounts::default() });
            for (e, value) in elements.into_iter().zip(out) {
                share[e] = value;
            }
        }
        Ok(())
    }
}
