//! Linear layers over the batch axis on shares modulo 2^l ([`hushnet_rlwe::batch_shares`] says what travels and why nothing leaks).
//!
//! A stage runs tile by tile for every block of up to N images. Client: [`BatchShareClient::request`] -> server:
//! [`BatchShareLinear::answer`] -> client: [`BatchShareClient::open`]. Both sides then hold shares of the layer's integers modulo 2^l that sum to
//! them, one unit off in the small fraction that the parameters state. Shares lie `[image][element]`, elements row-major as in a plan.
//!
//! A request has, feature by feature in wire order (row, channel, column), the c0 words of the block's images, k bits each; an answer, feature by
//! feature, N words of c1 and the c0 words of the images, r bits each. Words of images are padded to a multiple of eight.

use crate::batch::{expect, BatchLinear, Geometry, LayerError, PreparedLinear, RowStore, Tile, Tiling};
use hushnet_ring::{low_mask, pack, simd, Prg};
use hushnet_rlwe::batch_shares::{BatchShareParams, BatchShareSpec, ShareKey, ShareServer, ShareServerStage};
use hushnet_rlwe::{mask_words, BatchContext, CipherScratch, MaskId};
use rayon::prelude::*;
use std::ops::Range;

/// Bytes of ciphertexts that a tile may have in work, from which its rows follow.
const TILE_BYTES: usize = 256 << 20;
/// Most tiles of a stage.
const TILES: usize = 1 << 16;
/// Bytes of output words that are combined before they are re-randomised and packed.
const BAND_BYTES: usize = 4 << 20;

/// Which stage and block of images, with the seed that masks come from.
#[derive(Clone, Copy)]
pub struct BlockId<'a> {
    /// Fresh for every group of images.
    pub seed: &'a [u8; 32],
    /// Index of the stage.
    pub stage: u32,
    /// Index of the block in the group.
    pub block: u32,
}

impl BlockId<'_> {
    fn mask(&self, feature: usize) -> MaskId {
        // Limits on plans keep features below 2^32.
        MaskId { tensor: self.stage, feature: feature as u32, block: Some(self.block) }
    }
}

/// Client half of a stage: shapes only.
#[derive(Clone)]
pub struct BatchShareClient {
    tiling: Tiling,
    params: BatchShareParams,
    context: BatchContext,
}

/// Server half of a stage.
pub struct BatchShareLinear {
    client: BatchShareClient,
    prepared: PreparedLinear,
}

/// A block in work at the server: the input rows that later tiles still read, of both parts.
pub struct BlockWindow {
    body: RowStore,
    mask: RowStore,
    key: ShareServerStage,
    images: usize,
}

/// Room of one thread.
struct Worker {
    cipher: CipherScratch,
    prg: Prg,
}

impl Worker {
    fn new(context: &BatchContext) -> Result<Self, LayerError> {
        Ok(Self { cipher: context.scratch(), prg: Prg::from_os()? })
    }
}

fn lent(worker: &mut Result<Worker, LayerError>) -> Result<&mut Worker, LayerError> {
    worker.as_mut().map_err(|e| e.clone())
}

/// Bands of output rows whose inputs and outputs keep to [`TILE_BYTES`]; dense layers are one tile.
fn tiles(geometry: &Geometry, degree: usize) -> Result<Vec<Tile>, LayerError> {
    let rows = geometry.output_rows();
    let part = 16 * degree;
    let bytes = |count: usize| {
        let inputs = geometry.needed_rows(0..count.min(rows)).len() * geometry.input_row_features();
        part.saturating_mul(inputs + count * geometry.output_row_features())
    };
    let band = match geometry {
        Geometry::Dense(_) => rows,
        Geometry::Conv2d(_) => (1..=rows).take_while(|c| bytes(*c) <= TILE_BYTES).last().unwrap_or(1),
    };
    let got = rows.div_ceil(band);
    if got > TILES {
        return Err(LayerError::Size { what: "number of tiles", got, least: 1, most: TILES });
    }
    let mut received = 0;
    let tiles = (0..rows)
        .step_by(band)
        .map(|first| {
            let end = (first + band).min(rows);
            let last = if end == rows { geometry.input_rows() } else { geometry.needed_rows(first..end).end };
            let inputs = [received, last.max(received)];
            received = inputs[1];
            Tile { inputs, outputs: [first, end] }
        })
        .collect();
    Ok(tiles)
}

/// Element of a tensor `[channels, rows, columns]` at a place in wire order, `first` being the first row.
fn element(per_row: usize, channels: usize, rows: usize, first: usize, position: usize) -> usize {
    let columns = per_row / channels;
    let (row, rest) = (position / per_row, position % per_row);
    (rest / columns * rows + first + row) * columns + rest % columns
}

impl BatchShareClient {
    /// From what a plan says: the geometry and the norm of a row of weights that the parameters rest on.
    ///
    /// # Errors
    /// What [`BatchShareSpec::choose`] refuses.
    pub fn new(
        context: &BatchContext,
        geometry: &Geometry,
        ring_bits: u32,
        weight_l2: f64,
    ) -> Result<Self, LayerError> {
        let degree = context.ring_degree();
        let params = BatchShareSpec { ring_degree: degree, ring_bits, weight_l2 }.choose()?;
        let tiling = Tiling::new(*geometry, &tiles(geometry, degree)?)?;
        Ok(Self { tiling, params, context: context.clone() })
    }

    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &BatchShareParams {
        &self.params
    }

    /// The shapes of the layer that it computes.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        self.tiling.geometry()
    }

    /// Most images of a block.
    #[must_use]
    pub fn room(&self) -> usize {
        self.params.ring_degree()
    }

    /// The number of tiles of a block of images.
    #[must_use]
    pub fn tiles(&self) -> usize {
        self.tiling.tiles().len()
    }

    /// Input features of the stage.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.geometry().input_rows() * self.geometry().input_row_features()
    }

    /// Output features of the stage.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.geometry().output_rows() * self.geometry().output_row_features()
    }

    /// Bytes of the request for a tile of a block of so many images.
    #[must_use]
    pub fn request_len(&self, tile: usize, images: usize) -> usize {
        self.tiling.input_count(tile) * self.request_part(images)
    }

    /// Bytes of the answer to it.
    #[must_use]
    pub fn answer_len(&self, tile: usize, images: usize) -> usize {
        self.tiling.output_count(tile) * self.answer_part(images)
    }

    fn request_part(&self, images: usize) -> usize {
        pack::packed_len(images.next_multiple_of(8), self.params.modulus_bits())
    }

    fn answer_part(&self, images: usize) -> usize {
        let bits = self.params.response_bits();
        pack::packed_len(self.room(), bits) + pack::packed_len(images.next_multiple_of(8), bits)
    }

    /// Bytes that a server holds for a block in work, at most.
    #[must_use]
    pub fn window_bytes(&self) -> usize {
        let features = |t: usize| self.tiling.output_count(t);
        let inputs = self.tiling.window_rows() * self.geometry().input_row_features();
        let outputs = (0..self.tiles()).map(features).max().unwrap_or(0);
        16 * self.room() * (inputs + outputs)
    }

    fn tile(&self, tile: usize) -> Result<Tile, LayerError> {
        let tiles = self.tiling.tiles();
        tiles.get(tile).copied().ok_or(LayerError::Size {
            what: "tile",
            got: tile,
            least: 0,
            most: tiles.len().saturating_sub(1),
        })
    }

    fn images(&self, what: &'static str, share: usize, elements: usize) -> Result<usize, LayerError> {
        let images = share / elements;
        expect(what, images * elements, share)?;
        if images == 0 || images > self.room() {
            return Err(LayerError::Size {
                what: "images of a block",
                got: images,
                least: 1,
                most: self.room(),
            });
        }
        Ok(images)
    }

    fn input_element(&self, tile: &Tile, position: usize) -> usize {
        let g = self.geometry();
        let channels = if let Geometry::Conv2d(c) = g { c.input[0] } else { 1 };
        element(g.input_row_features(), channels, g.input_rows(), tile.inputs[0], position)
    }

    fn output_element(&self, tile: &Tile, position: usize) -> usize {
        let g = self.geometry();
        let channels = if let Geometry::Conv2d(c) = g { c.output[0] } else { 1 };
        element(g.output_row_features(), channels, g.output_rows(), tile.outputs[0], position)
    }

    /// Encrypts the new inputs of one tile from the client's share of a block. The triple of [`BlockId`] must not be used for
    /// another encryption.
    ///
    /// # Errors
    /// [`LayerError::Length`] or [`LayerError::Size`] unless `share` is that of 1 to N images.
    pub fn request(
        &self,
        key: &ShareKey,
        id: BlockId<'_>,
        tile: usize,
        share: &[u64],
    ) -> Result<Vec<u8>, LayerError> {
        let (elements, rows) = (self.inputs(), self.tile(tile)?);
        let images = self.images("input share", share.len(), elements)?;
        let (n, k) = (self.room(), self.params.modulus_bits());
        let mut message = vec![0; self.request_len(tile, images)];
        let part = self.request_part(images);
        message.par_chunks_exact_mut(part.max(1)).enumerate().try_for_each_init(
            || (Worker::new(&self.context), self.context.zero_words_hat(k), vec![0; n]),
            |(worker, hat, words), (position, bytes)| -> Result<(), LayerError> {
                let worker = lent(worker)?;
                let hat = hat.as_mut().map_err(|e| LayerError::from(e.clone()))?;
                let feature = self.input_element(&rows, position);
                key.mask_hat_into(id.seed, id.mask(feature), hat, &mut worker.cipher)?;
                let values = (0..images).map(|b| share[b * elements + feature]);
                key.encrypt_into(&self.params, hat, values, &mut worker.prg, &mut worker.cipher, words)?;
                // What stands behind the images encrypts zeros; it fills up the last bytes only.
                Ok(pack::pack(&words[..images.next_multiple_of(8)], k, bytes)?)
            },
        )?;
        Ok(message)
    }

    /// Reads the client's share of a tile's outputs into its share of the block's output tensors.
    ///
    /// # Errors
    /// [`LayerError::Length`] for an answer of the wrong length or a share of the wrong size.
    pub fn open(
        &self,
        key: &ShareKey,
        tile: usize,
        answer: &[u8],
        share: &mut [u64],
    ) -> Result<(), LayerError> {
        let rows = self.tile(tile)?;
        let images = self.images("output share", share.len(), self.outputs())?;
        expect("answer", self.answer_len(tile, images), answer.len())?;
        let (n, r) = (self.room(), self.params.response_bits());
        let first = pack::packed_len(n, r);
        let columns: Vec<Vec<u64>> = answer
            .par_chunks_exact(self.answer_part(images))
            .map_init(
                || (Worker::new(&self.context), vec![0; n], vec![0; images.next_multiple_of(8)]),
                |(worker, c1, c0), bytes| -> Result<Vec<u64>, LayerError> {
                    pack::unpack(&bytes[..first], r, c1)?;
                    pack::unpack(&bytes[first..], r, c0)?;
                    let mut out = vec![0; images];
                    key.open_into(&self.params, c1, &c0[..images], &mut lent(worker)?.cipher, &mut out)?;
                    Ok(out)
                },
            )
            .collect::<Result<_, _>>()?;
        let places: Vec<usize> = (0..columns.len()).map(|p| self.output_element(&rows, p)).collect();
        scatter(&columns, &places, self.outputs(), share, |_, v| v);
        Ok(())
    }
}

/// Writes `columns[p][b]`, changed by `f` of its place, to element `places[p]` of image b.
fn scatter(
    columns: &[Vec<u64>],
    places: &[usize],
    elements: usize,
    share: &mut [u64],
    f: impl Fn(usize, u64) -> u64 + Sync,
) {
    share.par_chunks_exact_mut(elements).enumerate().for_each(|(b, image)| {
        for (column, place) in columns.iter().zip(places) {
            image[*place] = f(*place, column[b]);
        }
    });
}

impl BatchShareLinear {
    /// Prepares a stage. `weights` are (O, C/groups, kh, kw) or (M, K) row-major, `bias` one value an output channel, added modulo 2^l.
    /// `weight_l2` is what the parameters shall rest on, at least the largest norm of a row; `None` for that norm itself.
    ///
    /// # Errors
    /// [`LayerError::Length`] when there are not as many weights or biases as the geometry says, and what [`BatchShareSpec::choose`] refuses.
    pub fn new(
        context: &BatchContext,
        geometry: &Geometry,
        weights: &[i16],
        bias: &[i64],
        ring_bits: u32,
        weight_l2: Option<f64>,
    ) -> Result<Self, LayerError> {
        let layer = BatchLinear::new(*geometry, weights, bias)?;
        let norm = weight_l2.unwrap_or(0.0).max(layer.max_row_l2());
        let client = BatchShareClient::new(context, geometry, ring_bits, norm)?;
        let prepared = layer.prepare(simd::isa(), client.params.modulus_bits())?;
        Ok(Self { client, prepared })
    }

    /// What the client needs: no weights.
    #[must_use]
    pub fn client(&self) -> &BatchShareClient {
        &self.client
    }

    /// Bytes that the weights take, as 16-bit integers.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        2 * self.client.geometry().weights()
    }

    /// A block of `images` images, before its first tile.
    ///
    /// # Errors
    /// [`LayerError::Size`] unless there are 1 to N images; [`LayerError::Cipher`] when the key is of another degree.
    pub fn window(&self, server: &ShareServer, images: usize) -> Result<BlockWindow, LayerError> {
        let outputs = self.client.outputs();
        let images = self.client.images("images of a block", images * outputs, outputs)?;
        Ok(BlockWindow {
            body: self.prepared.new_store(images.next_multiple_of(8))?,
            mask: self.prepared.new_store(self.client.room())?,
            key: server.stage(&self.client.params)?,
            images,
        })
    }

    /// Answers one tile; tiles come in order. `share` is the server's share of the block's input tensors, `own` its share of the output
    /// tensors, of which this tile's elements are written (bias included).
    ///
    /// # Errors
    /// [`LayerError::Length`] for a request of the wrong length or shares of the wrong size, and for tiles out of order.
    pub fn answer(
        &self,
        window: &mut BlockWindow,
        id: BlockId<'_>,
        tile: usize,
        request: &[u8],
        share: &[u64],
        own: &mut [u64],
    ) -> Result<Vec<u8>, LayerError> {
        let (client, images) = (&self.client, window.images);
        let (elements, rows) = (client.inputs(), client.tile(tile)?);
        expect("request", client.request_len(tile, images), request.len())?;
        expect("input share", images * elements, share.len())?;
        expect("output share", images * client.outputs(), own.len())?;
        let k = client.params.modulus_bits();
        let shift = k - client.params.ring_bits();
        let part = client.request_part(images);
        window.body.add_rows(rows.input_rows(), |position, words| -> Result<(), LayerError> {
            pack::unpack(&request[position * part..(position + 1) * part], k, words)?;
            let feature = client.input_element(&rows, position);
            for (b, w) in words[..images].iter_mut().enumerate() {
                *w = w.wrapping_add(share[b * elements + feature] << shift) & low_mask(k);
            }
            Ok(())
        })?;
        window.mask.add_rows(rows.input_rows(), |position, words| -> Result<(), LayerError> {
            Ok(mask_words(id.seed, id.mask(client.input_element(&rows, position)), k, words)?)
        })?;
        let mut message = vec![0; client.answer_len(tile, images)];
        let per_row = client.geometry().output_row_features();
        let band = (BAND_BYTES / (16 * client.room() * per_row).max(1)).max(1);
        let mut left = message.as_mut_slice();
        for first in rows.output_rows().step_by(band) {
            let outputs = first..(first + band).min(rows.outputs[1]);
            let (bytes, rest) = left.split_at_mut(outputs.len() * per_row * client.answer_part(images));
            left = rest;
            self.band(window, outputs, bytes, own)?;
        }
        let keep = client.tiling.keep_from(tile);
        window.body.drop_before(keep);
        window.mask.drop_before(keep);
        Ok(message)
    }

    /// Combines some output rows and writes what leaves the server, and the server's shares.
    fn band(
        &self,
        window: &BlockWindow,
        outputs: Range<usize>,
        bytes: &mut [u8],
        own: &mut [u64],
    ) -> Result<(), LayerError> {
        let (client, images) = (&self.client, window.images);
        let (n, r) = (client.room(), client.params.response_bits());
        let width = images.next_multiple_of(8);
        let features = outputs.len() * client.geometry().output_row_features();
        let (mut body, mut mask) = (vec![0; features * width], vec![0; features * n]);
        self.prepared.apply(outputs.clone(), &window.body, None, &mut body)?;
        self.prepared.apply(outputs.clone(), &window.mask, None, &mut mask)?;
        let first = pack::packed_len(n, r);
        let columns: Vec<Vec<u64>> = body
            .par_chunks_exact_mut(width)
            .zip(mask.par_chunks_exact_mut(n))
            .zip(bytes.par_chunks_exact_mut(client.answer_part(images)))
            .map_init(
                || Worker::new(&client.context),
                |worker, ((c0, c1), bytes)| -> Result<Vec<u64>, LayerError> {
                    let Worker { cipher, prg } = lent(worker)?;
                    let mut share = vec![0; images];
                    window.key.answer(prg, cipher, &mut c0[..images], c1, &mut share)?;
                    // Not of any image: nothing of it leaves.
                    c0[images..].fill(0);
                    pack::pack(c1, r, &mut bytes[..first])?;
                    pack::pack(c0, r, &mut bytes[first..])?;
                    Ok(share)
                },
            )
            .collect::<Result<_, _>>()?;
        let tile = Tile { inputs: [0, 0], outputs: [outputs.start, outputs.end] };
        let places: Vec<usize> = (0..features).map(|p| client.output_element(&tile, p)).collect();
        let bias = self.prepared.layer().bias();
        let (per_bias, ring) = (client.outputs() / bias.len(), low_mask(client.params.ring_bits()));
        scatter(&columns, &places, client.outputs(), own, |place, v| {
            v.wrapping_add(bias[place / per_bias] as u64) & ring
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
