//! Two parties, a channel, and a stock of correlated OTs in both directions.

use sha2::{Digest, Sha256};
use std::sync::Arc;

use crate::block::{Block, Prg};
use crate::channel::{Channel, Stats};
use crate::cost::CostModel;
use crate::error::{MpcError, Result};
use crate::garble::Tweaks;
use crate::kept::Supply;
use crate::line::{Line, Stock};
use crate::ot::pads::Pads;
use crate::ot::{base, ferret, iknp, softspoken, CotReceiver, CotSender, OtKind};
use crate::protocols::Comparison;
use crate::simd::FixedKey;
use crate::uses;
use hushnet_ring::ledger;

/// Which of the two parties.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Party {
    /// By convention the server.
    Zero,
    /// By convention the client.
    One,
}

impl Party {
    /// The index of the party: 0 or 1.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The other party of the session.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Zero => Self::One,
            Self::One => Self::Zero,
        }
    }
}

const MAGIC: u64 = 0x0005_4350_4d4e_4853; // "SHNMPC", version 5: carries through digits
const GREETING: usize = 8 + 8 + 8 + 16;

/// One party's half of a two-party computation. Dropping it wipes its secrets.
pub struct Session {
    pub(crate) channel: Box<dyn Channel>,
    pub(crate) party: Party,
    pub(crate) hash: FixedKey,
    stock: Arc<Stock>,
    /// Pads of the direction in which this party sends, and of the other.
    pub(crate) send_pads: Pads,
    pub(crate) recv_pads: Pads,
    /// Keys under which seeds of rows become pads, one of each direction.
    pub(crate) send_rows: Pads,
    pub(crate) recv_rows: Pads,
    /// Tweaks of garbled gates.
    pub(crate) gates: Tweaks,
    /// This party's own randomness.
    pub(crate) rng: Prg,
    kind: OtKind,
    chunk: usize,
    comparison: Comparison,
    started: bool,
    /// Pads that were made before, where protocols draw from them.
    pub(crate) supply: Option<Supply>,
}

fn label(session: &[u8; 32], what: &[u8]) -> Block {
    let mut h = Sha256::new();
    h.update(b"hushnet-mpc fixed key ");
    h.update(what);
    h.update(session);
    let mut out = [0; 16];
    out.copy_from_slice(&h.finalize()[..16]);
    Block::from_le_bytes(out)
}

/// Labels of the direction in which `party` sends and of the other.
fn per_direction(session: &[u8; 32], party: Party, what: &[u8]) -> [Block; 2] {
    [party, party.other()].map(|p| label(session, &[what, &[p.index() as u8]].concat()))
}

/// Greets the peer and derives the session's public 32 bytes from both parties' nonces.
fn greet(ch: &mut dyn Channel, party: Party, kind: OtKind, rng: &mut Prg) -> Result<[u8; 32]> {
    let mut hello = [0u8; GREETING];
    hello[..8].copy_from_slice(&MAGIC.to_le_bytes());
    hello[8..16].copy_from_slice(&kind.code().to_le_bytes());
    hello[16..24].copy_from_slice(&(party.index() as u64).to_le_bytes());
    hello[24..].copy_from_slice(&rng.block().to_le_bytes());
    ch.send(&hello)?;
    let mut theirs = [0u8; GREETING];
    ch.recv(&mut theirs)?;
    let word = |i: usize| {
        let mut a = [0; 8];
        a.copy_from_slice(&theirs[8 * i..8 * i + 8]);
        u64::from_le_bytes(a)
    };
    let fields = [("protocol", MAGIC), ("OT kind", kind.code()), ("party", party.other().index() as u64)];
    for (i, (what, expected)) in fields.into_iter().enumerate() {
        if word(i) != expected {
            return Err(MpcError::Handshake { what, expected, got: word(i) });
        }
    }
    let (first, second) = if party == Party::Zero { (&hello, &theirs) } else { (&theirs, &hello) };
    let mut h = Sha256::new();
    h.update(b"hushnet-mpc session");
    h.update(first);
    h.update(second);
    Ok(h.finalize().into())
}

/// The base OTs of both directions: the keys that `choices` name, and both keys of those that the peer chooses from.
fn base_ots(
    ch: &mut dyn Channel,
    session: [u8; 32],
    choices: Block,
    rng: &mut Prg,
) -> Result<(Vec<Block>, Vec<[Block; 2]>)> {
    #[cfg(fuzzing)]
    if let Some(known) = crate::fuzzing::base_ots(choices) {
        return Ok(known);
    }
    let receiver = base::Receiver::new(session, choices, rng);
    let sender = base::Sender::new(session, rng);
    ch.send(receiver.message())?;
    ch.send(sender.message())?;
    let mut from_receiver = vec![0; base::RECEIVER_BYTES];
    let mut from_sender = [0; base::SENDER_BYTES];
    ch.recv(&mut from_receiver)?;
    ch.recv(&mut from_sender)?;
    Ok((receiver.finish(&from_sender)?, sender.finish(&from_receiver)?))
}

impl Session {
    /// Greets the peer and runs the base OTs of both directions: [`setup_cost`].
    ///
    /// # Errors
    /// `Handshake` when the peer runs something else, `BadPoint` when its base OT message is damaged, channel errors.
    pub fn new(channel: Box<dyn Channel>, party: Party, kind: OtKind) -> Result<Self> {
        Self::with_rng(channel, party, kind, Prg::from_os()?)
    }

    /// As `new` with the party's randomness from a given seed: for reproducible tests only.
    #[doc(hidden)]
    pub fn new_deterministic(
        channel: Box<dyn Channel>,
        party: Party,
        kind: OtKind,
        seed: Block,
    ) -> Result<Self> {
        Self::with_rng(channel, party, kind, Prg::new(seed))
    }

    fn with_rng(mut channel: Box<dyn Channel>, party: Party, kind: OtKind, mut rng: Prg) -> Result<Self> {
        let ch = &mut *channel;
        let session = greet(ch, party, kind, &mut rng)?;
        let delta = rng.block() | 1;
        let choices = if kind == OtKind::Iknp { delta } else { !delta };
        let (chosen, pairs) = base_ots(ch, session, choices, &mut rng)?;
        let (send, recv): (Box<dyn CotSender>, Box<dyn CotReceiver>) = match kind {
            OtKind::Iknp => (
                Box::new(iknp::Sender::new(delta, chosen)),
                Box::new(iknp::Receiver::new(pairs, Prg::new(rng.block()))),
            ),
            OtKind::SoftSpoken => {
                let tree = FixedKey::new(label(&session, b"small tree"));
                let recv = softspoken::Receiver::new(pairs, tree.clone(), Prg::new(rng.block()));
                (Box::new(softspoken::Sender::new(delta, chosen, tree)), Box::new(recv))
            }
            OtKind::Silent(size) => {
                let tree = FixedKey::new(label(&session, b"small tree"));
                let code = FixedKey::new(label(&session, b"code"));
                let [mine, theirs] = per_direction(&session, party, b"tree");
                let public = |trees| ferret::Public { trees, code: code.clone() };
                let send = softspoken::Sender::new(delta, chosen, tree.clone());
                let recv = softspoken::Receiver::new(pairs, tree, Prg::new(rng.block()));
                (
                    Box::new(ferret::Sender::new(send, size, public(mine), Prg::new(rng.block()))),
                    Box::new(ferret::Receiver::new(recv, size, public(theirs))),
                )
            }
        };
        let hash = FixedKey::new(label(&session, b"hash"));
        let [send_pads, recv_pads] = per_direction(&session, party, b"pads").map(Pads::new);
        let [send_rows, recv_rows] = per_direction(&session, party, b"rows").map(Pads::new);
        let gates = Tweaks::new(label(&session, b"gates"));
        let (rng, chunk) = (Prg::new(rng.block()), kind.default_chunk());
        let stock = Stock::new(send, recv);
        Ok(Self {
            channel: Box::new(Line::new(channel, stock.clone())),
            party,
            hash,
            stock,
            send_pads,
            recv_pads,
            send_rows,
            recv_rows,
            gates,
            rng,
            kind,
            chunk,
            comparison: Comparison::default(),
            started: false,
            supply: None,
        })
    }

    /// Which of the two parties this session belongs to.
    #[must_use]
    pub fn party(&self) -> Party {
        self.party
    }

    /// True for party 0, who holds public constants.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.party == Party::Zero
    }

    /// The counters of the channel: bytes and turns.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.channel.stats()
    }

    /// The channel, for messages of the caller's own between protocols.
    pub fn channel(&mut self) -> &mut dyn Channel {
        &mut *self.channel
    }

    /// Values per pass of a protocol (both parties must set the same): more costs memory (about 150 bytes a
    /// value), less costs rounds. Rounded up to a multiple of 64.
    pub fn set_chunk(&mut self, values: usize) {
        self.chunk = values.max(64).next_multiple_of(64);
    }

    /// How the signs of ReLU, clip, maxima and argmax are computed from now on (both parties must set the same).
    pub fn set_comparison(&mut self, comparison: Comparison) {
        self.comparison = comparison;
    }

    /// How this session computes the signs of ReLU, clip, maxima and argmax; in a tree unless it was told otherwise.
    #[must_use]
    pub fn comparison(&self) -> Comparison {
        self.comparison
    }

    /// Expands correlated OTs on rayon's pool when `threads` > 1 (the default is one thread). The parties need not agree.
    pub fn set_threads(&mut self, threads: usize) {
        self.stock.send().set_threads(threads);
        self.stock.recv().set_threads(threads);
    }

    /// The number of values that a pass works on.
    #[must_use]
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Makes `n[d]` correlated OTs available in direction d (party d is their sender). Protocols do this by
    /// themselves; calling it ahead moves the messages to a time of the caller's choice. Both parties call it.
    ///
    /// # Errors
    /// When the channel fails.
    pub fn ensure(&mut self, n: [u64; 2]) -> Result<()> {
        self.start(n)?;
        let ch = &mut *self.channel;
        let me = self.party.index();
        if self.kind.sender_speaks() {
            self.stock.send().ensure(ch, n[me])?;
            self.stock.recv().ensure(ch, n[1 - me])
        } else {
            self.stock.recv().ensure(ch, n[1 - me])?;
            self.stock.send().ensure(ch, n[me])
        }
    }

    /// The half of [`Self::ensure`] whose messages `speaker` sends. Both parties call it, with either speaker in turn where each half suits other messages
    /// best: the speaker goes on at once, the other one when the messages have come.
    ///
    /// # Errors
    /// When the channel fails.
    pub fn ensure_from(&mut self, n: [u64; 2], speaker: Party) -> Result<()> {
        self.start(n)?;
        let ch = &mut *self.channel;
        let sender = self.kind.sender_of(speaker);
        if sender == self.party {
            self.stock.send().ensure(ch, n[sender.index()])
        } else {
            self.stock.recv().ensure(ch, n[sender.index()])
        }
    }

    /// The messages in front of the first OTs.
    fn start(&mut self, n: [u64; 2]) -> Result<()> {
        if self.started || n == [0, 0] {
            return Ok(());
        }
        let ch = &mut *self.channel;
        self.stock.recv().start(ch)?;
        self.stock.send().start(ch)?;
        self.stock.send().start(ch)?;
        self.stock.recv().start(ch)?;
        self.started = true;
        Ok(())
    }
}

impl Session {
    /// The correlation of the OTs that this party sends.
    pub(crate) fn delta(&self) -> Block {
        self.stock.send().delta()
    }

    /// Draws correlated OTs as their sender; `send_pads.key` then hashes them.
    pub(crate) fn draw_sent(&mut self, out: &mut [Block]) -> Result<()> {
        self.send_pads.advance(out.len());
        self.stock.send().fill(out)?;
        ledger::blocks(uses::SENT_PAD, out);
        Ok(())
    }

    /// Draws correlated OTs as their receiver; `recv_pads.key` then hashes them.
    pub(crate) fn draw_received(&mut self, out: &mut [Block]) -> Result<()> {
        self.recv_pads.advance(out.len());
        self.stock.recv().fill(out)?;
        ledger::blocks(uses::RECEIVED_PAD, out);
        Ok(())
    }
}

/// The set-up of a session: greeting and base OTs (8264 bytes each way).
pub fn setup_cost(m: &mut CostModel) {
    m.exchange(GREETING as u64, GREETING as u64);
    let bytes = (base::RECEIVER_BYTES + base::SENDER_BYTES) as u64;
    m.exchange(bytes, bytes);
}
