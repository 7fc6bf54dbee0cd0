//! When extensions talk, and how much: the one account that the extensions execute and the cost model replays.

use crate::cost::CostModel;
use crate::Party;

use super::lpn::{self, LpnParams, LPN_10, LPN_11, LPN_12, LPN_13};
use super::softspoken;

/// Which extension supplies the correlated OTs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OtKind {
    /// IKNP: 15.9 bytes per OT, cheapest set-up.
    Iknp,
    /// SoftSpoken: 2 bytes per OT; the cheapest for a session of up to a few thousand ReLUs.
    SoftSpoken,
    /// Silent OT by LPN (Ferret): a fraction of a bit per OT, set-up of 0.2 to 0.5 MB a direction.
    Silent(SilentSize),
}

/// Size of the silent extension's code: a larger one sends less per OT and needs a larger table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SilentSize {
    /// Table of 9 groups of 256 KiB, 1.39 bits per OT, its share of the next base counted.
    Tiny,
    /// 9 groups of 512 KiB, 0.75 bits per OT.
    Small,
    /// 14 groups of 512 KiB, 0.40 bits per OT.
    Medium,
    /// 14 groups of 1 MiB, 0.21 bits per OT.
    Large,
}

impl OtKind {
    /// Silent, medium table: few bytes. A larger table saves 4 % of the bytes of a ReLU, the small one costs 7 % more and reads fewer entries a row.
    pub const SILENT: Self = Self::Silent(SilentSize::Medium);

    /// The kind that sends least for `demand[d]` OTs in direction d ([`CostModel::drawn`] counts them).
    #[must_use]
    pub fn for_demand(demand: [u64; 2]) -> Self {
        let bytes = |kind| {
            let mut m = CostModel::new(kind);
            m.ensure(demand);
            m.cost().bytes()
        };
        if bytes(Self::SoftSpoken) <= bytes(Self::SILENT) {
            Self::SoftSpoken
        } else {
            Self::SILENT
        }
    }

    /// The most bytes that a party holds for the OTs of a session, both directions together: what is in stock, the tables that more are
    /// made from, and one message on its way to be read or sent.
    #[must_use]
    pub const fn held_bytes(self) -> u64 {
        // A pass of values draws few dozen OTs each.
        const PASS: u64 = 2 << 20;
        // Rows of a silent extension that are made at a time.
        const ROWS: u64 = 16 << 20;
        match self {
            Self::Iknp | Self::SoftSpoken => PASS,
            // The base of this iteration and of the next one, in blocks of 16 bytes, in each direction.
            Self::Silent(size) => PASS + 2 * (ROWS + 2 * 16 * size.params().base()),
        }
    }

    /// A number for the handshake.
    pub(crate) fn code(self) -> u64 {
        match self {
            Self::Iknp => 1,
            Self::SoftSpoken => 2,
            Self::Silent(s) => 0x10 + u64::from(s.params().depth),
        }
    }

    /// Values that go through the protocols in one pass.
    #[must_use]
    pub fn default_chunk(self) -> usize {
        match self {
            Self::Iknp | Self::SoftSpoken => 1 << 14,
            Self::Silent(_) => 1 << 20,
        }
    }

    /// Whether the sender of the correlated OTs is the one who speaks in `ensure`.
    pub(crate) fn sender_speaks(self) -> bool {
        matches!(self, Self::Silent(_))
    }

    /// The sender of the direction in which `speaker` speaks in `ensure`.
    pub(crate) fn sender_of(self, speaker: Party) -> Party {
        if self.sender_speaks() {
            speaker
        } else {
            speaker.other()
        }
    }
}

impl SilentSize {
    /// The LPN parameters of the main iterations.
    #[must_use]
    pub const fn params(self) -> LpnParams {
        match self {
            Self::Tiny => LPN_10,
            Self::Small => LPN_11,
            Self::Medium => LPN_12,
            Self::Large => LPN_13,
        }
    }

    /// The LPN parameters of the small iteration that makes the base of the first main one.
    #[must_use]
    pub const fn bootstrap(self) -> LpnParams {
        lpn::bootstrap(self.params().base())
    }
}

/// One message of an extension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Columns for so many OTs, receiver to sender.
    Extend {
        /// A multiple of 64.
        rows: u64,
    },
    /// Trees of a small-field extension and its first OTs, receiver to sender.
    Small {
        /// A multiple of 64, or zero.
        rows: u64,
    },
    /// Corrections of so many trees of the bootstrap iteration, sender to receiver.
    Boot {
        /// Trees.
        trees: u64,
    },
    /// Corrections of so many trees of the running iteration, sender to receiver.
    Trees {
        /// Trees.
        trees: u64,
    },
    /// Corrections of the reserved trees, whose outputs begin the next iteration, sender to receiver.
    Roll {
        /// Trees.
        trees: u64,
    },
}

/// Stock of correlated OTs in one direction.
#[derive(Clone, Debug)]
pub struct Ledger {
    kind: OtKind,
    started: u8,
    used: u64,
    free: u64,
}

impl Ledger {
    /// Nothing in stock.
    #[must_use]
    pub fn new(kind: OtKind) -> Self {
        Self { kind, started: 0, used: 0, free: 0 }
    }

    /// So many in stock.
    #[cfg(fuzzing)]
    pub(crate) fn stocked(kind: OtKind, free: u64) -> Self {
        Self { free, ..Self::new(kind) }
    }

    /// The extension that makes them.
    pub(crate) fn kind(&self) -> OtKind {
        self.kind
    }

    /// OTs in stock.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.free
    }

    /// Takes `n` out of the stock.
    pub(crate) fn draw(&mut self, n: u64) {
        self.free -= n;
    }

    /// The next set-up message, until there is none: one from the receiver, one from the sender.
    pub(crate) fn next_start(&mut self) -> Option<Step> {
        let size = match self.kind {
            OtKind::Iknp => return None,
            OtKind::SoftSpoken => {
                self.started = self.started.saturating_add(1);
                return (self.started == 1).then_some(Step::Small { rows: 0 });
            }
            OtKind::Silent(size) => size,
        };
        self.started += 1;
        match self.started {
            1 => Some(Step::Small { rows: size.bootstrap().base().next_multiple_of(64) }),
            2 => Some(Step::Boot { trees: size.bootstrap().trees }),
            _ => {
                self.started = 2;
                None
            }
        }
    }

    /// The next message towards `n` OTs in stock, or none if they are there.
    pub(crate) fn next_step(&mut self, n: u64) -> Option<Step> {
        let missing = n.checked_sub(self.free).filter(|&m| m > 0)?;
        match self.kind {
            OtKind::Iknp | OtKind::SoftSpoken => {
                let rows = missing.next_multiple_of(64);
                self.free += rows;
                Some(Step::Extend { rows })
            }
            OtKind::Silent(size) => {
                let p = size.params();
                let usable = p.trees - p.reserve();
                if self.used == usable {
                    self.used = 0;
                    return Some(Step::Roll { trees: p.reserve() });
                }
                let trees = missing.div_ceil(p.leaves()).min(usable - self.used);
                self.used += trees;
                self.free += trees * p.leaves();
                Some(Step::Trees { trees })
            }
        }
    }

    /// Correlated OTs that a step of the running extension makes; none for those of its start.
    pub(crate) fn step_ots(&self, step: Step) -> u64 {
        match (step, self.kind) {
            (Step::Extend { rows }, _) => rows,
            (Step::Trees { trees } | Step::Roll { trees }, OtKind::Silent(size)) => {
                trees * size.params().leaves()
            }
            _ => 0,
        }
    }

    /// Whether the sender speaks, and bytes.
    pub(crate) fn step_message(&self, step: Step) -> (bool, u64) {
        let [depth, boot] = match self.kind {
            OtKind::Iknp | OtKind::SoftSpoken => [0; 2],
            OtKind::Silent(size) => [size.params(), size.bootstrap()].map(|p| u64::from(p.depth)),
        };
        match step {
            Step::Extend { rows } if self.kind == OtKind::Iknp => (false, rows / 8 * 127),
            Step::Extend { rows } => (false, softspoken::bytes(rows) - softspoken::bytes(0)),
            Step::Small { rows } => (false, softspoken::bytes(rows)),
            Step::Boot { trees } => (true, trees * 16 * boot),
            Step::Trees { trees } | Step::Roll { trees } => (true, trees * 16 * depth),
        }
    }
}
