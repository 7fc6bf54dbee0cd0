//! The client's work on one tile: encrypting its inputs, decrypting its outputs.

use crate::compute::Shelf;
use crate::error::Error;
use crate::plan::{GeometrySpec, LinearStage, MaskMode, Tensor, TensorKind};
use crate::program::{Data, Monitor, RowMut, RowRunner};
use hushnet_ring::clock::Instant;
use hushnet_ring::{pack, AlignedWords, Prg, WordsHat};
use hushnet_rlwe::{BatchContext, CipherScratch, ClientKey, MaskId, MaskSum, Masks};
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use zeroize::Zeroize;

/// Room of one thread of a client. Wiped on drop.
pub(super) struct Worker {
    cipher: CipherScratch,
    noise: Prg,
    words: AlignedWords,
    words1: AlignedWords,
    plain: Vec<i64>,
    messages: Vec<i32>,
    hat: Option<WordsHat>,
}

impl Worker {
    pub(super) fn new(context: &BatchContext) -> Result<Self, Error> {
        let n = context.ring_degree();
        Ok(Self {
            cipher: context.scratch(),
            noise: Prg::from_os()?,
            words: AlignedWords::new(n),
            words1: AlignedWords::new(n),
            plain: vec![0; n],
            messages: vec![0; n],
            hat: None,
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.plain.zeroize();
        self.messages.zeroize();
    }
}

/// What a tile of a stage needs.
pub(super) struct TileContext<'a> {
    pub context: &'a BatchContext,
    pub key: &'a ClientKey,
    pub shelf: &'a Shelf<Worker>,
    /// Masks by the session's seed.
    pub masks: &'a Masks,
    pub stage: &'a LinearStage,
    pub stage_index: usize,
    /// Index of the block, for fresh masks.
    pub block: u32,
    pub images: usize,
}

impl TileContext<'_> {
    /// Identity of an input feature's mask. The stage stands where the format says tensor: a tensor that feeds two stages
    /// is encrypted twice under one key, and must not be so under one mask.
    fn mask_id(&self, feature: usize) -> MaskId {
        mask_id(self.stage, self.stage_index, feature, self.block)
    }

    /// Encrypts the new inputs of a tile; `known` are the transformed masks by feature, where they are kept.
    pub(super) fn encrypt(
        &self,
        tile: usize,
        input: &Data,
        known: Option<&[WordsHat]>,
        payload: &mut [u8],
    ) -> Result<(), Error> {
        let (params, images) = (&self.stage.params, self.images);
        let k = params.modulus_bits();
        let bytes = pack::packed_len(params.ring_degree(), k);
        let [channels, rows, columns] = self.stage.geometry.input_layout();
        let first = self.stage.tiles[tile].inputs[0];
        // Behind the bodies come the masks, if they are sent.
        let (bodies, sent) = payload.split_at_mut(self.stage.tile_inputs(tile) * bytes);
        let mut sent: Vec<Option<&mut [u8]>> = sent.chunks_mut(bytes).map(Some).collect();
        sent.resize_with(self.stage.tile_inputs(tile), || None);
        bodies.par_chunks_mut(bytes).zip(sent).enumerate().try_for_each_init(
            || self.shelf.take(|| Worker::new(self.context)),
            |worker, (position, (out, sent))| -> Result<(), Error> {
                let Worker { cipher, noise, words, words1, messages, hat, .. } =
                    &mut **worker.as_mut().map_err(|e| same(e))?;
                let feature = GeometrySpec::feature_of(channels, rows, columns, first, position);
                let messages = &mut messages[..images];
                input.read_i32(feature * images, messages);
                let mask = match known {
                    Some(known) => &known[feature],
                    None => {
                        let hat = match hat {
                            Some(hat) if hat.modulus_bits() == k => hat,
                            other => other.insert(self.context.zero_words_hat(k)?),
                        };
                        self.masks.words(self.mask_id(feature), 0, k, words1)?;
                        self.context.multiplier().words_hat_into(words1, hat)?;
                        if let Some(sent) = sent {
                            pack::pack(words1, k, sent)?;
                        }
                        hat
                    }
                };
                self.key.encrypt_into(params, mask, messages, noise, cipher, words)?;
                Ok(pack::pack(words, k, out)?)
            },
        )
    }
}

/// Identity of an input feature's mask in a stage.
pub(super) fn mask_id(stage: &LinearStage, stage_index: usize, feature: usize, block: u32) -> MaskId {
    let block = match stage.mask {
        MaskMode::Shared => None,
        MaskMode::Fresh | MaskMode::Sent => Some(block),
    };
    // The plan's limits keep both below 2^32.
    MaskId { tensor: stage_index as u32, feature: feature as u32, block }
}

fn same(e: &Error) -> Error {
    Error::Internal(e.to_string())
}

/// Where the outputs of a stage go: into the first segment of the next stage, into a tensor, or both.
pub(super) struct Sink<'a> {
    pub tile: TileContext<'a>,
    /// Rows of the segment's stores, and the output itself behind them when it is kept, feature by feature.
    pub rows: Vec<RowMut<'a>>,
    pub per_feature: usize,
    pub keep: bool,
    pub runner: Option<RowRunner<'a>>,
    /// Transformed mask sums of the whole stage in order of arrival (shared masks).
    pub sums: &'a [WordsHat],
    pub output: (usize, &'a Tensor),
    pub monitor: &'a Monitor,
    noise: AtomicU64,
    nanos: [AtomicU64; 2],
}

impl<'a> Sink<'a> {
    pub(super) fn new(
        tile: TileContext<'a>,
        rows: (Vec<RowMut<'a>>, usize, bool),
        runner: Option<RowRunner<'a>>,
        sums: &'a [WordsHat],
        output: (usize, &'a Tensor),
        monitor: &'a Monitor,
    ) -> Self {
        let (rows, per_feature, keep) = rows;
        let (noise, nanos) = (AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]);
        Self { tile, rows, per_feature, keep, runner, sums, output, monitor, noise, nanos }
    }

    /// log2 of the largest noise seen.
    pub(super) fn noise_bits(&self) -> f64 {
        (self.noise.load(Ordering::Relaxed).max(1) as f64).log2()
    }

    /// Share of the program in what the threads did, 0 to 1.
    pub(super) fn program_share(&self) -> f64 {
        let [decrypt, program] = self.nanos.each_ref().map(|n| n.load(Ordering::Relaxed) as f64);
        if program > 0.0 {
            program / (decrypt + program)
        } else {
            0.0
        }
    }

    /// Decrypts the outputs of a tile and hands them on. `arrived`: features of the tiles before.
    pub(super) fn receive(&mut self, tile: usize, arrived: usize, payload: &[u8]) -> Result<(), Error> {
        let Self { tile: context, rows, per_feature, keep, runner, sums, output, monitor, noise, nanos } =
            self;
        let stage = context.stage;
        let (params, images) = (&stage.params, context.images);
        let bits = [stage.response_bits(), stage.mask_response_bits()];
        let bytes = bits.map(|b| pack::packed_len(params.ring_degree(), b));
        let (c0, c1) = payload.split_at(stage.response_body_bytes(tile));
        let (work, decrypt_only) = (select(rows, *per_feature, stage, tile), runner.is_none());
        work.into_par_iter().try_for_each_init(
            || {
                let worker = context.shelf.take(|| Worker::new(context.context));
                (worker, monitor.marks(), runner.as_ref().map(RowRunner::scratch))
            },
            |(worker, marks, scratch), (position, feature, rows)| -> Result<(), Error> {
                let worker = &mut **worker.as_mut().map_err(|e| same(e))?;
                let start = Instant::now();
                let range = |part: usize| position * bytes[part]..(position + 1) * bytes[part];
                pack::unpack(&c0[range(0)], bits[0], &mut worker.words)?;
                let sum = match stage.mask {
                    MaskMode::Shared => MaskSum::Exact(&sums[arrived + position]),
                    MaskMode::Fresh | MaskMode::Sent => {
                        pack::unpack(&c1[range(1)], bits[1], &mut worker.words1)?;
                        MaskSum::Dropped(&worker.words1)
                    }
                };
                let seen = context.key.decrypt_into(
                    params,
                    &worker.words,
                    sum,
                    &mut worker.cipher,
                    &mut worker.plain,
                )?;
                noise.fetch_max(seen.largest, Ordering::Relaxed);
                // No honest answer is outside; one that is saturates, so that a dishonest server learns nothing from the next message.
                let plain = &mut worker.plain[..images];
                if let TensorKind::Fixed { scale, bound } = output.1.kind {
                    marks.clamp((output.0, scale, bound), (feature, 0), plain);
                }
                let (stores, own) = rows.split_at_mut(rows.len() - usize::from(*keep));
                if let Some(row) = own.first_mut() {
                    row.write_fixed(0, plain);
                }
                if decrypt_only {
                    return Ok(());
                }
                let between = Instant::now();
                if let (Some(runner), Some(scratch)) = (runner.as_ref(), scratch.as_mut()) {
                    runner.run(scratch, feature, plain, stores);
                }
                nanos[0].fetch_add((between - start).as_nanos() as u64, Ordering::Relaxed);
                nanos[1].fetch_add(between.elapsed().as_nanos() as u64, Ordering::Relaxed);
                Ok(())
            },
        )
    }
}

/// The rows that a tile's outputs go to: `(position in the tile, feature, rows)`.
fn select<'r, 'd>(
    rows: &'r mut [RowMut<'d>],
    per_feature: usize,
    stage: &LinearStage,
    tile: usize,
) -> Vec<(usize, usize, &'r mut [RowMut<'d>])> {
    let [channels, height, columns] = stage.geometry.output_layout();
    let [first, end] = stage.tiles[tile].outputs;
    let mut work = Vec::with_capacity((end - first) * channels * columns);
    if per_feature == 0 {
        return work;
    }
    for (channel, rows) in rows.chunks_mut(height * columns * per_feature).enumerate() {
        let band = rows[first * columns * per_feature..end * columns * per_feature].chunks_mut(per_feature);
        for (i, rows) in band.enumerate() {
            let (row, column) = (i / columns, i % columns);
            let position = (row * channels + channel) * columns + column;
            work.push((position, (channel * height + first + row) * columns + column, rows));
        }
    }
    work
}
