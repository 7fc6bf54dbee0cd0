//! Entries of the fuzz targets (`fuzz/`). They exist only in builds with `--cfg fuzzing`, which `fuzz/run.sh` passes; no build of the product
//! has them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::block::{Block, Prg};
use crate::channel::Channel;
use crate::error::Result;
use crate::ot::{base, ferret};

static SKIPPED: AtomicBool = AtomicBool::new(false);

/// From now on sessions of this process begin behind their base OTs. Neither party sends or reads those messages, and the keys are the same in
/// every session. Base OTs are hundreds of group operations; everything behind them is microseconds.
pub fn skip_base_ots() {
    SKIPPED.store(true, Relaxed);
}

/// The keys of base OTs that nobody ran: those that `choices` name and both of every transfer.
pub(crate) fn base_ots(choices: Block) -> Option<(Vec<Block>, Vec<[Block; 2]>)> {
    let known = || (0..base::COUNT).map(|i| [0, 1].map(|j| Block::from(2 * i as u64 + j) + 1 << 64));
    let chosen = |(i, pair): (usize, [Block; 2])| pair[(choices >> i) as usize & 1];
    SKIPPED.load(Relaxed).then(|| (known().enumerate().map(chosen).collect(), known().collect()))
}

/// What either party of two base OTs says: the receiver, then the sender.
///
/// # Errors
/// As [`answer_base_ots`].
pub fn base_messages() -> Result<(Vec<u8>, Vec<u8>)> {
    let rng = &mut Prg::new(1);
    let receiver = base::Receiver::some(2, [7; 32], 1, rng);
    Ok((receiver.message().to_vec(), base::Sender::new([7; 32], rng).message().to_vec()))
}

/// Both parties of two base OTs, each with a peer who says anything. Returns how many keys the sender and the receiver have.
///
/// # Errors
/// What a session answers to such a peer.
pub fn answer_base_ots(from_receiver: &[u8], from_sender: &[u8; 32]) -> Result<(usize, usize)> {
    let rng = &mut Prg::new(1);
    let receiver = base::Receiver::some(2, [7; 32], 1, rng);
    let sender = base::Sender::new([7; 32], rng);
    let pairs = sender.keys(2, from_receiver)?;
    Ok((pairs.len(), receiver.finish(from_sender)?.len()))
}

/// A receiver of silent OTs through bootstrap, trees, the turn of an iteration and trees again, with sets of a few rows and a base that is known.
/// Returns the OTs of both iterations, the base of the next one left out.
///
/// # Errors
/// When the channel fails.
pub fn receive_silent(ch: &mut dyn Channel) -> Result<Vec<Block>> {
    ferret::Receiver::few().turn(ch)
}

/// As [`receive_silent`], the sender.
///
/// # Errors
/// When the channel fails.
pub fn send_silent(ch: &mut dyn Channel) -> Result<Vec<Block>> {
    ferret::Sender::few().turn(ch)
}
