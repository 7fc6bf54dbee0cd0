//! The server's side of one linear stage: ciphertext words in, linear combinations out.

use crate::error::Error;
use crate::plan::{LinearStage, WeightData};
use hushnet_layers::batch::{BatchLinear, PreparedLinear, RowStore, Tiling};
use hushnet_ring::{pack, simd};
use hushnet_rlwe::batch_server;
use rayon::prelude::*;

/// Bytes of output words that are computed before they are packed, to stay in the caches.
const BAND_BYTES: usize = 1 << 20;

/// A prepared linear stage.
pub(super) struct Layer {
    prepared: PreparedLinear,
    tiling: Tiling,
    ring_degree: usize,
    delta_bits: u32,
}

impl Layer {
    pub(super) fn new(stage: &LinearStage) -> Result<Self, Error> {
        let weights =
            stage.weights.as_ref().ok_or_else(|| Error::Internal("a stage has no weights".into()))?;
        let tiling = stage.tiling()?;
        let layer = match &weights.weights {
            WeightData::I8(w) => BatchLinear::from_bytes(*tiling.geometry(), w, &weights.bias),
            WeightData::I16(w) => BatchLinear::new(*tiling.geometry(), w, &weights.bias),
        }?;
        let prepared = layer.prepare(simd::isa(), stage.params.modulus_bits())?;
        tracing::debug!(
            stage = stage.name,
            kernel = prepared.kernel().name(),
            limbs = prepared.keeps_limbs(),
            "prepared"
        );
        let (ring_degree, delta_bits) = (stage.params.ring_degree(), stage.params.delta_bits());
        Ok(Self { prepared, tiling, ring_degree, delta_bits })
    }

    pub(super) fn window(&self) -> Result<RowStore, Error> {
        Ok(self.prepared.new_store(self.ring_degree)?)
    }

    /// Takes in a tile's new inputs (`fill(position, words)` writes one) and writes its outputs without the `drop` low
    /// bits, packed. With `bias`, it is added. `words` is room to work in.
    pub(super) fn apply(
        &self,
        tile: usize,
        window: &mut RowStore,
        fill: impl Fn(usize, &mut [u64]) -> Result<(), Error> + Sync,
        (bias, drop): (bool, u32),
        words: &mut Vec<u64>,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let Some(rows) = self.tiling.tiles().get(tile) else {
            return Err(Error::Internal("no such tile".into()));
        };
        window.add_rows(rows.input_rows(), fill)?;
        let (n, k) = (self.ring_degree, self.prepared.modulus_bits());
        let row_features = self.tiling.geometry().output_row_features();
        let bytes = pack::packed_len(n, k - drop);
        let band = (BAND_BYTES / (8 * n * row_features).max(1)).max(1);
        let mut left = out;
        for start in rows.output_rows().step_by(band) {
            let end = (start + band).min(rows.outputs[1]);
            let features = (end - start) * row_features;
            words.resize(words.len().max(features * n), 0);
            let words = &mut words[..features * n];
            self.prepared.apply(start..end, window, bias.then_some(self.delta_bits), words)?;
            let (packed, rest) = left.split_at_mut(features * bytes);
            left = rest;
            words.par_chunks_mut(n).zip(packed.par_chunks_mut(bytes)).try_for_each(
                |(words, packed)| -> Result<(), Error> {
                    if drop > 0 {
                        batch_server::drop_bits(words, drop, k)?;
                    }
                    Ok(pack::pack(words, k - drop, packed)?)
                },
            )?;
        }
        window.drop_before(self.tiling.keep_from(tile));
        Ok(())
    }
}
