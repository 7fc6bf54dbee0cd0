//! The server's side of one linear stage: ciphertext words in, linear combinations out.

use crate::error::Error;
use crate::plan::{LinearStage, WeightData};
use hushnet_layers::batch::{BatchLinear, PreparedLinear, RowStore, Tiling};
use hushnet_ring::{pack, simd};
use hushnet_rlwe::batch_server;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

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

    /// Takes in a tile's new inputs (`fill(position, range, words)` writes a range of the words of one) and writes its
    /// outputs without the `drop` low bits, packed. With `bias`, it is added. Call it in the pool that is to work.
    pub(super) fn apply(
        &self,
        tile: usize,
        window: &mut RowStore,
        fill: impl Fn(usize, Range<usize>, &mut [u64]) -> Result<(), Error> + Sync,
        (bias, drop): (bool, u32),
        out: &mut [u8],
    ) -> Result<(), Error> {
        let Some(rows) = self.tiling.tiles().get(tile) else {
            return Err(Error::Internal("no such tile".into()));
        };
        let (k, bits) = (self.prepared.modulus_bits(), self.prepared.modulus_bits() - drop);
        let room = Cut::new(out, self.ring_degree, bits, window.range_words());
        let emit = |position: usize, range: Range<usize>, words: &mut [u64]| -> Result<(), Error> {
            if drop > 0 {
                batch_server::drop_bits(words, drop, k)?;
            }
            room.with(position, &range, |packed| Ok(pack::pack(words, bits, packed)?))
        };
        let bias = bias.then_some(self.delta_bits);
        self.prepared.tile(rows, self.tiling.keep_from(tile), window, bias, fill, emit)
    }
}

/// The bytes of packed polynomials, cut by ranges of words.
struct Cut<'a> {
    range_words: usize,
    pieces: Vec<Pieces<'a>>,
}

/// One range of every polynomial. One thread works on it, so that nobody waits for the lock; aligned so that locks of different
/// threads do not share a cache line.
#[repr(align(128))]
struct Pieces<'a>(Mutex<Vec<&'a mut [u8]>>);

impl<'a> Cut<'a> {
    /// Ranges are multiples of eight words: whole bytes.
    fn new(out: &'a mut [u8], ring_degree: usize, bits: u32, range_words: usize) -> Self {
        let bytes = pack::packed_len(ring_degree, bits);
        let features = out.len() / bytes.max(1);
        let mut pieces: Vec<Vec<&mut [u8]>> = Vec::new();
        pieces.resize_with(ring_degree.div_ceil(range_words), || Vec::with_capacity(features));
        let step = pack::packed_len(range_words, bits);
        for feature in out.chunks_exact_mut(bytes) {
            for (list, piece) in pieces.iter_mut().zip(feature.chunks_mut(step)) {
                list.push(piece);
            }
        }
        Self { range_words, pieces: pieces.into_iter().map(|p| Pieces(Mutex::new(p))).collect() }
    }

    fn with<T>(
        &self,
        position: usize,
        range: &Range<usize>,
        f: impl FnOnce(&mut [u8]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let list = self.pieces.get(range.start / self.range_words);
        let mut list = list.map(|l| l.0.lock().unwrap_or_else(PoisonError::into_inner));
        match list.as_mut().and_then(|l| l.get_mut(position)) {
            Some(piece) => f(piece),
            None => Err(Error::Internal("an output outside of its tile".into())),
        }
    }
}
