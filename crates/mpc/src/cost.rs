//! Predicted traffic: a dry run of the protocols that moves lengths, not data.
//!
//! Every protocol has a twin in `cost` style that drives a [`CostModel`] through the same messages; tests
//! demand that the prediction equals the channel's counters exactly.

use crate::kept::{Item, PadDemand};
use crate::ot::ledger::{Ledger, OtKind, Step};
use crate::protocols::Comparison;
use crate::Party;

const PARTIES: [Party; 2] = [Party::Zero, Party::One];

/// Bytes and rounds of a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Bytes that party 0 sends.
    pub bytes_sent_by_0: u64,
    /// Bytes that party 1 sends.
    pub bytes_sent_by_1: u64,
    /// Messages on the longest chain of dependent messages: latency is rounds x one-way delay. Messages that
    /// cross on the wire count once, and a stream of messages one way counts once.
    pub rounds: u64,
    /// Times that each party turns from sending (or idling) to receiving: what any channel counts.
    pub turns: [u64; 2],
}

impl Cost {
    /// The number of bytes in both directions together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes_sent_by_0 + self.bytes_sent_by_1
    }
}

/// The state of both parties that decides what the next protocol costs: what has been sent, who spoke last,
/// and how many correlated OTs are in stock in each direction.
#[derive(Clone, Debug)]
pub struct CostModel {
    bytes: [u64; 2],
    turns: [u64; 2],
    receiving: [bool; 2],
    clock: [u64; 2],
    /// Stamps of messages on the way to each party.
    flying: [std::collections::VecDeque<u64>; 2],
    /// Stock of direction d: party d is the sender of the correlated OTs. None: not counted.
    pub(crate) stock: Option<[Ledger; 2]>,
    pub(crate) chunk: usize,
    pub(crate) comparison: Comparison,
    drawn: [u64; 2],
    extended: Extended,
    gates: u64,
    pads: PadDemand,
    supplied: bool,
}

/// Work of OT extensions, both directions together: what their processor time follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extended {
    /// Directions whose extension was started.
    pub starts: u64,
    /// Steps of the running extensions.
    pub steps: u64,
    /// Correlated OTs that those steps made, those for the extension's own next iteration included.
    pub ots: u64,
}

impl CostModel {
    /// A model of a session from before its set-up.
    #[must_use]
    pub fn new(kind: OtKind) -> Self {
        Self {
            bytes: [0; 2],
            turns: [0; 2],
            receiving: [false; 2],
            clock: [0; 2],
            flying: Default::default(),
            stock: Some([Ledger::new(kind), Ledger::new(kind)]),
            chunk: kind.default_chunk(),
            comparison: Comparison::default(),
            drawn: [0; 2],
            extended: Extended::default(),
            gates: 0,
            pads: PadDemand::default(),
            supplied: false,
        }
    }

    /// A model that counts the protocols' own messages only, as if correlated OTs cost nothing.
    #[must_use]
    pub fn online(chunk: usize) -> Self {
        Self { stock: None, chunk, ..Self::new(OtKind::Iknp) }
    }

    /// With another chunk length (values per pass), as `Session::set_chunk`.
    #[must_use]
    pub fn with_chunk(mut self, chunk: usize) -> Self {
        self.chunk = chunk.max(64).next_multiple_of(64);
        self
    }

    /// How signs are computed from now on, as `Session::set_comparison`.
    pub fn set_comparison(&mut self, comparison: Comparison) {
        self.comparison = comparison;
    }

    /// What has been counted so far.
    #[must_use]
    pub fn cost(&self) -> Cost {
        Cost {
            bytes_sent_by_0: self.bytes[0],
            bytes_sent_by_1: self.bytes[1],
            rounds: self.clock[0].max(self.clock[1]),
            turns: self.turns,
        }
    }

    /// Correlated OTs drawn in each direction.
    #[must_use]
    pub fn drawn(&self) -> [u64; 2] {
        self.drawn
    }

    /// Work of the OT extensions so far.
    #[must_use]
    pub fn extended(&self) -> Extended {
        self.extended
    }

    /// AND gates garbled so far.
    #[must_use]
    pub fn gates(&self) -> u64 {
        self.gates
    }

    /// Pads that protocols have needed so far, from whatever they were made.
    #[must_use]
    pub fn pads(&self) -> &PadDemand {
        &self.pads
    }

    /// Whether protocols draw from kept pads from now on, as between `Session::supply` and `Session::withdraw`.
    pub fn supply(&mut self, kept: bool) {
        self.supplied = kept;
    }

    /// A protocol's pads of n values.
    pub(crate) fn pad(&mut self, item: Item, n: usize) {
        self.pads.add(item, n);
    }

    pub(crate) fn garble(&mut self, gates: u64) {
        self.gates += gates;
    }

    /// Bytes and rounds back to zero; stock and turn of speech stay.
    pub fn reset(&mut self) {
        self.bytes = [0; 2];
        self.turns = [0; 2];
        self.clock = [0; 2];
    }

    fn depart(&mut self, from: Party, bytes: u64) -> u64 {
        let f = from.index();
        self.bytes[f] += bytes;
        self.receiving[f] = false;
        self.clock[f] + 1
    }

    fn arrive(&mut self, to: Party, stamp: u64) {
        let t = to.index();
        if !self.receiving[t] {
            self.turns[t] += 1;
            self.receiving[t] = true;
        }
        self.clock[t] = self.clock[t].max(stamp);
    }

    /// `from` sends `bytes`, which the other party takes with [`CostModel::arrive_late`] in order.
    pub fn depart_late(&mut self, from: Party, bytes: u64) {
        if bytes > 0 {
            let stamp = self.depart(from, bytes);
            self.flying[from.other().index()].push_back(stamp);
        }
    }

    /// `to` receives the oldest message on its way.
    pub fn arrive_late(&mut self, to: Party) {
        if let Some(stamp) = self.flying[to.index()].pop_front() {
            self.arrive(to, stamp);
        }
    }

    /// One message of `bytes` bytes from `from` (nothing happens for zero bytes).
    pub fn message(&mut self, from: Party, bytes: u64) {
        if bytes > 0 {
            let stamp = self.depart(from, bytes);
            self.arrive(from.other(), stamp);
        }
    }

    /// Both send first, then both receive.
    pub fn exchange(&mut self, by_0: u64, by_1: u64) {
        let s0 = (by_0 > 0).then(|| self.depart(Party::Zero, by_0));
        let s1 = (by_1 > 0).then(|| self.depart(Party::One, by_1));
        if let Some(s) = s0 {
            self.arrive(Party::One, s);
        }
        if let Some(s) = s1 {
            self.arrive(Party::Zero, s);
        }
    }

    /// Makes `n[d]` correlated OTs of direction d available, as `Session::ensure` does.
    pub fn ensure(&mut self, n: [u64; 2]) {
        self.start(n);
        let by = PARTIES.map(|speaker| self.extend(n, speaker));
        self.exchange(by[0], by[1]);
    }

    /// The half of [`Self::ensure`] in which `speaker` sends, as `Session::ensure_from`.
    pub fn ensure_from(&mut self, n: [u64; 2], speaker: Party) {
        self.start(n);
        let bytes = self.extend(n, speaker);
        self.message(speaker, bytes);
    }

    /// Messages in front of the first OTs.
    fn start(&mut self, n: [u64; 2]) {
        let Some(mut stock) = self.stock.take() else { return };
        for _ in 0..if n == [0, 0] { 0 } else { 2 } {
            let mut by = [0; 2];
            for (sender, ledger) in PARTIES.into_iter().zip(&mut stock) {
                if let Some(step) = ledger.next_start() {
                    self.extended.starts += u64::from(matches!(step, Step::Small { .. }));
                    let (by_sender, bytes) = ledger.step_message(step);
                    by[if by_sender { sender } else { sender.other() }.index()] += bytes;
                }
            }
            self.exchange(by[0], by[1]);
        }
        self.stock = Some(stock);
    }

    /// Steps of the direction in which `speaker` speaks: bytes that it sends.
    fn extend(&mut self, n: [u64; 2], speaker: Party) -> u64 {
        let mut bytes = 0;
        let Some(stock) = &mut self.stock else { return bytes };
        let sender = stock[0].kind().sender_of(speaker).index();
        let ledger = &mut stock[sender];
        while let Some(step) = ledger.next_step(n[sender]) {
            self.extended.steps += 1;
            self.extended.ots += ledger.step_ots(step);
            bytes += ledger.step_message(step).1;
        }
        bytes
    }

    /// Ensures and takes correlated OTs.
    pub(crate) fn take(&mut self, n: [u64; 2]) {
        self.ensure(n);
        self.drawn.iter_mut().zip(n).for_each(|(d, n)| *d += n);
        for (ledger, n) in self.stock.iter_mut().flatten().zip(n) {
            ledger.draw(n);
        }
    }

    /// Ensures and takes the correlated OTs of pads, which kept pads need not.
    pub(crate) fn provide(&mut self, n: [u64; 2]) {
        if !self.supplied {
            self.take(n);
        }
    }

    /// Ensures them.
    pub(crate) fn provide_ahead(&mut self, n: [u64; 2]) {
        if !self.supplied {
            self.ensure(n);
        }
    }
}
