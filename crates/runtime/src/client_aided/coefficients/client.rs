//! The client's half: keys of a block, requests ahead, exact results.

use super::stages;
use crate::channel::{Channel, IN_FLIGHT};
use crate::compute::Compute;
use crate::error::Error;
use crate::plan::{CoefficientLayer, Plan, Tensor, TensorKind};
use crate::program::{Data, Monitor, RowMut, RowRunner};
use crate::trace::{since, StageTrace};
use crate::wire::{FrameBuilder, Kind, HEADER};
use hushnet_layers::coefficients::CoefficientClient;
use hushnet_ring::clock::Instant;
use hushnet_ring::Prg;
use hushnet_rlwe::coefficients::CoefficientKey;
use hushnet_rlwe::packed::PackedContext;
use rayon::prelude::*;
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// What a session keeps: the seed of its masks, and the sums of masks of every stage.
pub(in super::super) struct TileClient {
    context: PackedContext,
    seed: [u8; 32],
    layers: BTreeMap<usize, CoefficientClient>,
}

/// The secrets of a block: one for every tile of every image.
pub(in super::super) struct TileKeys {
    tiles: usize,
    keys: Vec<CoefficientKey>,
}

impl TileKeys {
    fn of(&self, image: usize, tile: usize) -> Result<&CoefficientKey, Error> {
        let key = self.keys.get(image * self.tiles + tile).filter(|_| tile < self.tiles);
        key.ok_or_else(|| Error::Internal("no such tile".into()))
    }
}

impl TileClient {
    /// For a plan's stages of this engine; `None` where it has none.
    pub(in super::super) fn new(plan: &Plan, seed: [u8; 32]) -> Result<Option<Self>, Error> {
        if stages(plan).next().is_none() {
            return Ok(None);
        }
        let context = PackedContext::new(plan.ring_degree())?;
        let layer =
            |(i, s): (usize, &CoefficientLayer)| (i, CoefficientClient::new(&context, s.stage.clone()));
        let layers = stages(plan).map(layer).collect();
        Ok(Some(Self { context, seed, layers }))
    }

    /// Fresh secrets for a block of so many images.
    pub(in super::super) fn keys(&self, images: usize, compute: &Compute) -> Result<TileKeys, Error> {
        let tiles = self.layers.values().map(|l| l.stage().tiles()).max().unwrap_or(0);
        let make = |_| Ok::<_, Error>(CoefficientKey::generate(&self.context, &mut Prg::from_os()?)?);
        let keys = compute.run(|| (0..images * tiles).into_par_iter().map(make).collect::<Result<_, _>>())?;
        Ok(TileKeys { tiles, keys })
    }

    /// Receives the sums of masks of all stages; `told` is called with every stage that is done.
    pub(in super::super) fn set_up(
        &mut self,
        plan: &Plan,
        channel: &mut dyn Channel,
        compute: &Compute,
        told: &mut dyn FnMut(usize, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(first) = self.layers.keys().next() else { return Ok(()) };
        channel.send(FrameBuilder::reuse(Vec::new(), Kind::Setup, *first as u32, 0, 0)?.finish())?;
        for (index, stage) in stages(plan) {
            let frame = channel.recv()?;
            let payload = frame.expect_payload(Kind::SetupMask, index as u32, 0, stage.setup_bytes())?;
            let layer = self.layers.get_mut(&index).ok_or_else(missing)?;
            compute.run(|| layer.take_masks(payload))?;
            told(index, frame.bytes().len() as u64)?;
        }
        Ok(())
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "a stage, its secrets and input, where it runs, and what it reports"
    )]
    /// Runs a stage on all images of a block; `value` gives an image's element of the input. Returns the integers of the output, image by image.
    pub(in super::super) fn run(
        &self,
        (index, stage): (usize, &CoefficientLayer),
        (keys, images): (&TileKeys, usize),
        input: &Data,
        channel: &mut dyn Channel,
        compute: &Compute,
        report: &mut StageTrace,
        told: &mut dyn FnMut(usize) -> Result<(), Error>,
    ) -> Result<Zeroizing<Vec<i64>>, Error> {
        let layer = self.layers.get(&index).ok_or_else(missing)?;
        let (tiles, elements) = (stage.tiles(), stage.stage.layout().output_len());
        let mut results = Zeroizing::new(vec![0; elements * images]);
        let (mut sent, mut noise, mut buffer) = (0, 0, Vec::new());
        for number in 0..tiles * images {
            while sent < tiles * images && sent < number + IN_FLIGHT {
                let (image, tile) = (sent / tiles, sent % tiles);
                let start = Instant::now();
                let (length, used) = (stage.request_bytes(), std::mem::take(&mut buffer));
                let mut frame = FrameBuilder::reuse(used, Kind::Request, index as u32, sent as u32, length)?;
                let key = keys.of(image, tile)?;
                let value = |element: usize| input.fixed(element * images + image);
                let out = frame.payload_mut();
                compute.run(|| layer.request(key, (&self.seed, index as u32), tile, value, out))?;
                report.seconds.encrypt += since(start);
                let start = Instant::now();
                channel.send(frame.finish())?;
                report.bytes_up += (HEADER + length) as u64;
                report.seconds.send += since(start);
                sent += 1;
            }
            let start = Instant::now();
            let frame = channel.recv()?;
            report.seconds.wait += since(start);
            let start = Instant::now();
            let (image, tile) = (number / tiles, number % tiles);
            let length = stage.response_bytes(tile);
            let payload = frame.expect_payload(Kind::Response, index as u32, number as u32, length)?;
            report.bytes_down += frame.bytes().len() as u64;
            let key = keys.of(image, tile)?;
            let own = &mut results[image * elements..(image + 1) * elements];
            noise = noise.max(compute.run(|| layer.open(key, tile, payload, own))?);
            report.seconds.decrypt += since(start);
            buffer = frame.into_buffer();
            told(number + 1)?;
        }
        let bits = (noise.max(1) as f64).log2();
        let bits = report.noise_bits.map_or(bits, |b| b.max(bits));
        report.noise_bits = Some(bits);
        report.noise_margin_bits = Some((stage.stage.params().scale() as f64 / 2.0).log2() - bits);
        Ok(results)
    }
}

fn missing() -> Error {
    Error::Internal("a stage has no layer".into())
}

/// Where the results of a stage go: into the first segment of the next stage, into a tensor, or both.
pub(in super::super) struct Landing<'a> {
    /// Rows of the segment's stores, and the output itself behind them when it is kept, feature by feature.
    pub rows: Vec<RowMut<'a>>,
    pub per_feature: usize,
    pub keep: bool,
    pub runner: Option<RowRunner<'a>>,
    /// The output tensor with its index.
    pub output: (usize, &'a Tensor),
    pub monitor: &'a Monitor,
}

impl Landing<'_> {
    /// Hands on the results, image by image, clamped to the output's bound: no honest answer is outside, and a dishonest server learns nothing from
    /// the next message.
    pub(in super::super) fn take(self, results: &[i64], images: usize) {
        let Self { mut rows, per_feature, keep, runner, output, monitor } = self;
        let elements = results.len() / images.max(1);
        if per_feature == 0 {
            return;
        }
        rows.par_chunks_mut(per_feature).enumerate().with_min_len(64).for_each_init(
            || (monitor.marks(), runner.as_ref().map(RowRunner::scratch), Zeroizing::new(vec![0i64; images])),
            |(marks, scratch, plain), (feature, rows)| {
                for (image, v) in plain.iter_mut().enumerate() {
                    *v = results[image * elements + feature];
                }
                if let TensorKind::Fixed { scale, bound } = output.1.kind {
                    marks.clamp((output.0, scale, bound), (feature, 0), plain);
                }
                let (stores, own) = rows.split_at_mut(rows.len() - usize::from(keep));
                if let Some(row) = own.first_mut() {
                    row.write_fixed(0, plain);
                }
                if let (Some(runner), Some(scratch)) = (runner.as_ref(), scratch.as_mut()) {
                    runner.run(scratch, feature, plain, stores);
                }
            },
        );
    }
}
