//! Exact bytes of a session, from the plan alone: one account for every trust model.

use super::{MaskMode, Plan, Stage};
use crate::wire::{Block, HEADER};
use prost::Message;
use serde::{Deserialize, Serialize};

/// Bytes both ways, frame headers included, and messages on the longest chain of messages that depend on each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// From the client.
    pub bytes_up: u64,
    /// From the server.
    pub bytes_down: u64,
    /// Messages that depend on each other.
    pub rounds: u64,
}

impl std::ops::AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.bytes_up += other.bytes_up;
        self.bytes_down += other.bytes_down;
        self.rounds += other.rounds;
    }
}

impl Sent {
    /// So many times as much.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self {
            bytes_up: self.bytes_up * count,
            bytes_down: self.bytes_down * count,
            rounds: self.rounds * count,
        }
    }
}

/// What a session of a plan sends for a number of images: the plan itself and greetings not counted, all else exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Images.
    pub images: usize,
    /// Blocks or groups that they run in.
    pub blocks: usize,
    /// Once a session: keys, mask sums, set-ups, base OTs.
    pub setup: Sent,
    /// The part of `setup` that belongs to a stage, stage by stage.
    pub stage_setups: Vec<Sent>,
    /// All blocks, stage by stage.
    pub stages: Vec<Sent>,
    /// All blocks in all, announcements included.
    pub total: Sent,
}

/// The cost of a client-aided session.
pub(crate) fn client_aided(plan: &Plan, images: usize) -> Cost {
    let full = plan.block_images().max(1);
    let blocks = images.div_ceil(full);
    let mut cost = Cost { images, blocks, ..Cost::default() };
    for stage in plan.stages() {
        let (mut setup, mut once) = (Sent::default(), Sent::default());
        if let Stage::Linear(s) = stage {
            let tiles = || 0..s.tiles.len();
            let frames = (HEADER * s.tiles.len()) as u64;
            let sum = |bytes: &dyn Fn(usize) -> usize| frames + tiles().map(|t| bytes(t) as u64).sum::<u64>();
            if s.mask == MaskMode::Shared {
                setup.bytes_down = sum(&|t| s.setup_bytes(t));
            }
            once = Sent {
                bytes_up: sum(&|t| s.request_bytes(t)),
                bytes_down: sum(&|t| s.response_bytes(t)),
                rounds: 1,
            };
        }
        let mut all = once.times(blocks as u64);
        if let Stage::Coefficients(s) = stage {
            let responses: usize = (0..s.tiles()).map(|t| HEADER + s.response_bytes(t)).sum();
            setup.bytes_down = (HEADER + s.setup_bytes()) as u64;
            all = Sent {
                bytes_up: (images * s.tiles() * (HEADER + s.request_bytes())) as u64,
                bytes_down: (images * responses) as u64,
                rounds: blocks as u64,
            };
        }
        cost.setup += setup;
        cost.stage_setups.push(setup);
        cost.stages.push(all);
    }
    cost.stages.iter().for_each(|s| cost.total += *s);
    for index in 0..blocks {
        let of_block = full.min(images - index * full);
        let block = Block { index: index as u32, images: of_block as u32 };
        cost.total.bytes_up += (HEADER + block.encoded_len()) as u64;
    }
    cost
}
