//! The client's side of one linear stage on the wire: requests ahead, responses in order.

use super::tiles::{Sink, TileContext};
use crate::channel::{Channel, IN_FLIGHT};
use crate::compute::Compute;
use crate::error::Error;
use crate::program::Data;
use crate::trace::{since, StageTrace};
use crate::wire::{FrameBuilder, Kind, HEADER};
use hushnet_ring::clock::Instant;
use hushnet_ring::WordsHat;

/// Everything that the tiles of a stage need.
pub(super) struct Exchange<'a> {
    pub upload: TileContext<'a>,
    pub input: &'a Data,
    /// Transformed input masks by feature, where they are kept.
    pub masks: Option<&'a [WordsHat]>,
    pub sink: Sink<'a>,
    pub compute: &'a Compute,
}

impl Exchange<'_> {
    /// Sends and receives all tiles; `check` is called with the tiles done after each. Returns the seconds of the
    /// client program that ran with it.
    pub(super) fn run(
        mut self,
        channel: &mut dyn Channel,
        report: &mut StageTrace,
        check: &mut dyn FnMut(usize) -> Result<(), Error>,
    ) -> Result<f64, Error> {
        let (stage, index) = (self.upload.stage, self.upload.stage_index as u32);
        let (mut sent, mut arrived, mut decrypting, mut buffer) = (0, 0, 0.0, Vec::new());
        for tile in 0..stage.tiles.len() {
            while sent < stage.tiles.len() && sent < tile + IN_FLIGHT {
                let start = Instant::now();
                let length = stage.request_bytes(sent);
                let used = std::mem::take(&mut buffer);
                let mut frame = FrameBuilder::reuse(used, Kind::Request, index, sent as u32, length)?;
                self.compute
                    .run(|| self.upload.encrypt(sent, self.input, self.masks, frame.payload_mut()))?;
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
            let length = stage.response_bytes(tile);
            let payload = frame.expect_payload(Kind::Response, index, tile as u32, length)?;
            report.bytes_down += frame.bytes().len() as u64;
            let sink = &mut self.sink;
            self.compute.run(|| sink.receive(tile, arrived, payload))?;
            arrived += stage.tile_outputs(tile);
            decrypting += since(start);
            buffer = frame.into_buffer();
            check(tile + 1)?;
        }
        let program = decrypting * self.sink.program_share();
        report.seconds.decrypt += decrypting - program;
        let bits = self.sink.noise_bits();
        let bits = report.noise_bits.map_or(bits, |b| b.max(bits));
        report.noise_bits = Some(bits);
        report.noise_margin_bits = Some(f64::from(stage.params.delta_bits()) - 1.0 - bits);
        Ok(program)
    }
}
