//! How the memory of a server is divided: guests, slots, set-ups, blocks.
//!
//! A guest may send one large frame. Every slot has room for what a session holds from its slot to its end. What a set-up and a block take
//! follows from what the client announces, so a session asks for it then, and waits in line until that much is free. Set-ups and blocks have
//! shares of their own: who has a set-up waits for a block and never the other way round, and who has a block waits for nothing.

use super::options::ServerLimits;
use crate::plan::{Limits, PlanError};
use crate::session::server::SessionMemory;
use tokio::sync::Semaphore;

/// Small frames that a guest may have sent beside a large one.
pub(super) const SMALL: u64 = 4 << 10;
/// Guests have one part in so many of all memory.
const GUESTS: u64 = 8;

/// What sessions ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// From its first work to its end.
    SetUp,
    /// While a block is in work.
    Block,
}

impl Share {
    /// Number of shares.
    pub(super) const ALL: usize = 2;
}

/// Bytes of memory as grains: as fine as a semaphore can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    grain: u64,
    total: u64,
}

impl Memory {
    /// Of a limit in bytes.
    pub(super) fn new(total: u64) -> Self {
        Self { grain: (total >> 28).max(1), total }
    }

    /// Grains of so many bytes, `all` of them.
    #[cfg(test)]
    pub(super) const fn of(grain: u64, all: u64) -> Self {
        Self { grain, total: grain * all }
    }

    /// Bytes of so many grains.
    pub(super) fn bytes(self, grains: u64) -> u64 {
        grains.saturating_mul(self.grain)
    }

    /// All of it.
    pub(super) fn all(self) -> u32 {
        // 2^28 grains and a few.
        u32::try_from(self.total / self.grain).unwrap_or(u32::MAX)
    }

    /// Whole grains of so many bytes.
    pub(super) fn floor(self, bytes: u64) -> u32 {
        u32::try_from(bytes / self.grain).unwrap_or(u32::MAX)
    }

    /// Bytes of the whole grains that so many bytes take.
    fn ceil(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.grain).saturating_mul(self.grain)
    }

    /// What a session takes of it, part by part.
    pub(super) fn of_session(self, one: &SessionMemory) -> SessionMemory {
        let [session, set_up, block] = [one.session, one.set_up, one.block].map(|bytes| self.ceil(bytes));
        SessionMemory { session, set_up, block }
    }

    /// What so many bytes take, and never more than there is.
    pub(super) fn grains(self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(self.grain)).unwrap_or(u32::MAX).min(self.all())
    }
}

/// A server's memory and places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Bytes that all slots have together.
    pub sessions: u64,
    /// Bytes that all guests have together.
    pub guests: u64,
    /// Bytes of all set-ups, and of all blocks in work.
    pub shares: [u64; Share::ALL],
}

impl Division {
    /// Divides the memory for sessions of which each may take `one`, in whole grains. There is always room for one session and its largest block.
    ///
    /// # Errors
    /// [`PlanError::TooLarge`] when there is not.
    pub(super) fn of(limits: &ServerLimits, one: &SessionMemory, frame: usize) -> Result<Self, PlanError> {
        let (guest, one) = (frame as u64 + SMALL, Memory::new(limits.memory_bytes).of_session(one));
        let least = one.total().saturating_add(guest);
        Limits::check("the memory that one session needs", least, limits.memory_bytes)?;
        let count = |bytes: u64, each: u64| usize::try_from(bytes / each.max(1)).unwrap_or(usize::MAX);
        let part = (limits.memory_bytes / GUESTS).min(limits.memory_bytes - one.total());
        let guests = count(part, guest).clamp(1, limits.guests.max(1));
        let bytes = guests as u64 * guest;
        let rest = limits.memory_bytes - bytes;
        let largest = one.set_up + one.block;
        let slots = count(rest - largest, one.session).min(limits.sessions).min(Semaphore::MAX_PERMITS);
        let sessions = slots as u64 * one.session;
        let rest = rest - sessions;
        let set_ups = match one.set_up {
            0 => 0,
            least if one.block == 0 => rest.max(least),
            least => (rest / 2).max(least).min(rest - one.block),
        };
        Ok(Self { sessions, guests: bytes, shares: [set_ups, rest - set_ups] })
    }

    /// Clients at once that have sent nothing to work on, where frames have so many bytes at most.
    pub(super) fn guests(&self, limits: &ServerLimits, frame: usize) -> usize {
        let guests = usize::try_from(self.guests / (frame as u64 + SMALL)).unwrap_or(usize::MAX);
        guests.clamp(1, limits.guests.max(1))
    }

    /// That a session of another plan fits where this was divided for others.
    ///
    /// # Errors
    /// [`PlanError::TooLarge`] naming the part that does not.
    pub(super) fn check(&self, one: &SessionMemory) -> Result<(), PlanError> {
        Limits::check("the memory that one session needs between blocks", one.session, self.sessions)?;
        Limits::check("the memory that one session's set-up needs", one.set_up, self.shares[0])?;
        Limits::check("the memory that one block needs", one.block, self.shares[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const ONE: SessionMemory = SessionMemory { session: 2 * MIB, set_up: 64 * MIB, block: 400 * MIB };

    fn of(memory_bytes: u64, sessions: usize) -> Result<Division, PlanError> {
        let limits = ServerLimits { sessions, memory_bytes, ..ServerLimits::default() };
        Division::of(&limits, &ONE, 1 << 18)
    }

    /// What all may hold together, and never less than one session needs.
    fn holds(d: &Division, memory: u64) {
        assert!(d.guests + d.sessions + d.shares[0] + d.shares[1] <= memory);
        assert!(
            d.sessions >= ONE.session
                && d.guests >= SMALL
                && d.shares[0] >= ONE.set_up
                && d.shares[1] >= ONE.block
        );
    }

    #[test]
    fn a_small_session_gets_a_slot_though_its_largest_block_is_large() {
        let d = of(16 << 30, 64).unwrap();
        holds(&d, 16 << 30);
        assert_eq!((d.sessions, d.guests(&ServerLimits::default(), 1 << 18)), (64 * ONE.session, 256));
        assert!(d.shares[1] / ONE.block >= 15);
    }

    #[test]
    fn there_is_room_for_one_or_the_server_does_not_start() {
        let least = ONE.total() + (1 << 18) + SMALL;
        let d = of(least, 64).unwrap();
        holds(&d, least);
        assert_eq!((d.sessions, d.guests(&ServerLimits::default(), 1 << 18)), (ONE.session, 1));
        assert!(matches!(of(least - 1, 64), Err(PlanError::TooLarge { .. })));
        for extra in [1, MIB, 100 * MIB, 1000 * MIB] {
            holds(&of(least + extra, 64).unwrap(), least + extra);
        }
    }

    #[test]
    fn memory_is_counted_in_grains() {
        let memory = Memory::new(16 << 30);
        assert_eq!((memory.all(), memory.grains(64), memory.grains(65)), (1 << 28, 1, 2));
        assert_eq!(memory.grains(u64::MAX), memory.all());
        let memory = Memory::new(1000);
        assert_eq!((memory.all(), memory.grains(999)), (1000, 999));
        assert!(Memory::new(u64::MAX).all() >= 1 << 28);
    }

    #[test]
    fn as_many_sessions_fit_as_were_asked_for() {
        // With grains of 256 bytes a session takes more than its bytes, and 32 of them more than 32 times its bytes.
        let (memory, one) =
            (64 << 30, SessionMemory { session: 11_176_472, set_up: 1_000_001, block: 3_670_017 });
        let limits = ServerLimits { sessions: 32, memory_bytes: memory, ..ServerLimits::default() };
        let (d, unit) = (Division::of(&limits, &one, 1 << 18).unwrap(), Memory::new(memory));
        assert!(unit.floor(d.sessions) >= 32 * unit.grains(one.session));
        assert_eq!(d.sessions / unit.of_session(&one).session, 32);
        assert!(
            unit.floor(d.shares[0]) >= unit.grains(one.set_up)
                && unit.floor(d.shares[1]) >= unit.grains(one.block)
        );
    }

    #[test]
    fn another_plan_fits_or_is_refused() {
        let d = of(1 << 30, 4).unwrap();
        let with = |session, set_up, block| d.check(&SessionMemory { session, set_up, block });
        with(d.sessions, d.shares[0], d.shares[1]).unwrap();
        for beyond in [with(d.sessions + 1, 0, 0), with(0, d.shares[0] + 1, 0), with(0, 0, d.shares[1] + 1)] {
            assert!(matches!(beyond, Err(PlanError::TooLarge { .. })));
        }
    }

    #[test]
    fn a_share_that_nobody_needs_is_the_others() {
        let limits = ServerLimits::default();
        let none = SessionMemory { session: MIB, set_up: 0, block: MIB };
        assert_eq!(Division::of(&limits, &none, 1 << 18).unwrap().shares[0], 0);
        let all = SessionMemory { session: MIB, set_up: MIB, block: 0 };
        assert_eq!(Division::of(&limits, &all, 1 << 18).unwrap().shares[1], 0);
    }
}
