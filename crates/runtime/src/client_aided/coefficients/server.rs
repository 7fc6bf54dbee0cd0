//! The server's half: weights in evaluation form, sums of masks, answers. No key type is known here.

use super::stages;
use crate::channel::Channel;
use crate::compute::Compute;
use crate::error::{Error, ProtocolError};
use crate::plan::{CoefficientLayer, Plan};
use crate::trace::ServerTrace;
use crate::wire::{FrameBuilder, Kind};
use hushnet_layers::batch::LayerError;
use hushnet_layers::coefficients::CoefficientLinear;
use hushnet_ring::clock::Instant;
use hushnet_rlwe::packed::PackedContext;
use hushnet_rlwe::CipherError;
use std::collections::{BTreeMap, BTreeSet};

/// Prepared layers by stage.
pub(in super::super) struct TileServer(BTreeMap<usize, CoefficientLinear>);

impl TileServer {
    /// Prepares a plan's stages of this engine; `None` where it has none. `room` are the bytes for weights in evaluation form: layers of many tiles first, the others are transformed for
    /// every tile.
    pub(in super::super) fn new(plan: &Plan, room: usize) -> Result<Option<Self>, Error> {
        if stages(plan).next().is_none() {
            return Ok(None);
        }
        let context = PackedContext::new(plan.ring_degree())?;
        let kept = kept(plan, room);
        let layer = |(index, stage): (usize, &CoefficientLayer)| {
            let weights =
                stage.weights.as_ref().ok_or_else(|| Error::Internal("a stage has no weights".into()))?;
            let wide = weights.weights.to_i16();
            let keep = kept.contains(&index);
            let linear = CoefficientLinear::new(&context, stage.stage.clone(), &wide, &weights.bias, keep)?;
            tracing::debug!(stage = stage.name, bytes = linear.weight_bytes(), keep, "prepared");
            Ok((index, linear))
        };
        Ok(Some(Self(stages(plan).map(layer).collect::<Result<_, Error>>()?)))
    }

    /// Sends the sums of masks of all stages.
    pub(in super::super) fn set_up(
        &self,
        channel: &mut dyn Channel,
        seed: &[u8; 32],
        compute: &Compute,
    ) -> Result<(), Error> {
        for (index, layer) in &self.0 {
            let length = layer.stage().masks_len();
            let mut frame = FrameBuilder::reuse(Vec::new(), Kind::SetupMask, *index as u32, 0, length)?;
            compute.run(|| layer.masks(seed, *index as u32, frame.payload_mut()))?;
            channel.send(frame.finish())?;
        }
        Ok(())
    }

    /// Answers all requests of a block of so many images.
    pub(in super::super) fn block(
        &self,
        plan: &Plan,
        images: usize,
        (channel, compute): (&mut dyn Channel, &Compute),
        buffer: &mut Vec<u8>,
        trace: &mut ServerTrace,
    ) -> Result<(), Error> {
        for (index, stage) in stages(plan) {
            let seconds = self.run((index, stage), images, (&mut *channel, compute), buffer)?;
            trace.stages[index].seconds += seconds;
        }
        Ok(())
    }

    /// Answers the requests of a stage; returns the seconds of computation.
    fn run(
        &self,
        (index, stage): (usize, &CoefficientLayer),
        images: usize,
        (channel, compute): (&mut dyn Channel, &Compute),
        buffer: &mut Vec<u8>,
    ) -> Result<f64, Error> {
        let layer = self.0.get(&index).ok_or_else(|| Error::Internal("a stage has no layer".into()))?;
        let (tiles, stage_number) = (stage.tiles(), index as u32);
        let mut seconds = 0.0;
        for number in 0..tiles * images {
            let request = channel.recv()?;
            let start = Instant::now();
            let payload =
                request.expect_payload(Kind::Request, stage_number, number as u32, stage.request_bytes())?;
            let (tile, used) = (number % tiles, std::mem::take(buffer));
            let length = stage.response_bytes(tile);
            let mut frame = FrameBuilder::reuse(used, Kind::Response, stage_number, number as u32, length)?;
            compute.run(|| layer.answer(tile, payload, frame.payload_mut())).map_err(refused)?;
            seconds += start.elapsed().as_secs_f64();
            *buffer = request.into_buffer();
            channel.send(frame.finish())?;
        }
        Ok(seconds)
    }
}

/// Words above the modulus are the peer's fault.
fn refused(e: LayerError) -> Error {
    match e {
        LayerError::Cipher(CipherError::NotReduced) => {
            ProtocolError::Message { kind: "Request", detail: CipherError::NotReduced.to_string() }.into()
        }
        other => other.into(),
    }
}

/// The stages whose evaluation forms fit the room together, those first whose forms are used most.
fn kept(plan: &Plan, room: usize) -> BTreeSet<usize> {
    let mut order: Vec<_> = stages(plan).collect();
    order.sort_by_key(|(index, stage)| (std::cmp::Reverse(stage.tiles()), *index));
    let mut left = room;
    let mut kept = BTreeSet::new();
    for (index, stage) in order {
        if let Some(rest) = left.checked_sub(stage.stage.layout().prepared_bytes()) {
            left = rest;
            kept.insert(index);
        }
    }
    kept
}
