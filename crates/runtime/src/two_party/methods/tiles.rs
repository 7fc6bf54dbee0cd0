//! Stages that take one image at a time: the client requests every tile of every image, then reads the answers; the server answers tile by tile
//! as requests come.

use super::{Job, Shape};
use crate::error::Error;
use hushnet_mpc::{Channel, CostModel, Party};

/// A stage whose requests are all equally long.
pub(super) trait Tiled: Shape {
    /// Elements of the input tensor and of the output tensor.
    fn elements(&self) -> (usize, usize);

    /// Bytes of the answer to a tile.
    fn answer_len(&self, tile: usize) -> usize;
}

/// Bytes of a request and of the longest answer, twice: as sent and as made.
pub(super) fn held_by_client(stage: &impl Tiled) -> u64 {
    let answers = (0..stage.tiles()).map(|t| stage.answer_len(t)).max().unwrap_or(0);
    2 * (stage.request_len() as u64).saturating_add(answers as u64)
}

/// Traffic of a group of images.
pub(super) fn cost(stage: &impl Tiled, m: &mut CostModel, images: usize) {
    let tiles = || (0..images).flat_map(|_| 0..stage.tiles());
    for _ in tiles() {
        m.depart_late(Party::One, stage.request_len() as u64);
    }
    for tile in tiles() {
        m.arrive_late(Party::Zero);
        m.depart_late(Party::Zero, stage.answer_len(tile) as u64);
    }
    for _ in tiles() {
        m.arrive_late(Party::One);
    }
}

/// The client's side; returns its share of the output tensors. `request` makes the request for (image, tile) from the image's share; `open` reads
/// the answer to it into the image's results.
///
/// # Errors
/// What the channel, `request` and `open` refuse.
pub(super) fn ask(
    stage: &impl Tiled,
    channel: &mut dyn Channel,
    job: &Job<'_>,
    mut request: impl FnMut((usize, usize), &[u64]) -> Result<Vec<u8>, Error>,
    mut open: impl FnMut((usize, usize), Coming<'_>, &mut [u64]) -> Result<(), Error>,
) -> Result<Vec<u64>, Error> {
    let (inputs, outputs) = stage.elements();
    for (image, share) in job.share.chunks_exact(inputs).enumerate() {
        for tile in 0..stage.tiles() {
            channel.send(&request((image, tile), share)?)?;
            channel.flush()?;
        }
    }
    let mut own = vec![0; outputs * job.seeds.len()];
    let mut bytes = Vec::new();
    for (image, own) in own.chunks_exact_mut(outputs).enumerate() {
        for tile in 0..stage.tiles() {
            bytes.resize(stage.answer_len(tile), 0);
            open((image, tile), Coming { channel, bytes: &mut bytes }, own)?;
        }
    }
    Ok(own)
}

/// The server's side; returns its share of the output tensors. `answer` reads the request for (image, tile), takes the image's share, and writes
/// the server's results of the tile.
///
/// # Errors
/// What the channel and `answer` refuse.
pub(super) fn answer(
    stage: &impl Tiled,
    channel: &mut dyn Channel,
    job: &Job<'_>,
    mut answer: impl FnMut((usize, usize), Coming<'_>, &[u64], &mut [u64]) -> Result<Vec<u8>, Error>,
) -> Result<Vec<u64>, Error> {
    let (inputs, outputs) = stage.elements();
    let mut own = vec![0; outputs * job.seeds.len()];
    let mut bytes = vec![0; stage.request_len()];
    let images = job.share.chunks_exact(inputs).zip(own.chunks_exact_mut(outputs));
    for (image, (share, own)) in images.enumerate() {
        for tile in 0..stage.tiles() {
            let message = answer((image, tile), Coming { channel, bytes: &mut bytes }, share, own)?;
            channel.send(&message)?;
            channel.flush()?;
        }
    }
    Ok(own)
}

/// A message of known length that may still be on its way: a method computes what does not need it, then reads it.
pub(super) struct Coming<'a> {
    channel: &'a mut dyn Channel,
    bytes: &'a mut Vec<u8>,
}

impl<'a> Coming<'a> {
    /// Waits for the message.
    pub(super) fn read(self) -> Result<&'a [u8], Error> {
        self.channel.recv(self.bytes)?;
        Ok(self.bytes)
    }
}
