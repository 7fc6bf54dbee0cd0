//! How the memory of a server is divided: guests, slots, set-ups, blocks.
//!
//! A guest may send one large frame. Every slot has room for what a session holds from its slot to its end. What a set-up and a block take
//! follows from what the client announces, so a session asks for it then, and waits in line until that much is free. Set-ups and blocks have
//! shares of their own: who has a set-up waits for a block and never the other way round, and who has a block waits for nothing.

use super::server::ServerLimits;
use crate::plan::{Limits, PlanError};
use crate::session::server::SessionMemory;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Small frames that a guest may have sent beside a large one.
pub(super) const SMALL: u64 = 4 << 10;
/// Unit in which memory is counted.
pub(super) const GRAIN: u64 = 4 << 10;
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

/// Permits of a share for so many bytes.
pub(super) fn grains(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(GRAIN)).unwrap_or(u32::MAX)
}

/// A server's memory and places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Sessions in work at once.
    pub slots: usize,
    /// Clients at once that have sent nothing to work on.
    pub guests: usize,
    /// Bytes of all set-ups, and of all blocks in work.
    pub shares: [u64; Share::ALL],
}

impl Division {
    /// Divides the memory for sessions of which each may take `one`. There is always room for one session and its largest block.
    ///
    /// # Errors
    /// [`PlanError::TooLarge`] when there is not.
    pub(super) fn of(limits: &ServerLimits, one: &SessionMemory, frame: usize) -> Result<Self, PlanError> {
        let guest = frame as u64 + SMALL;
        let least = one.total().saturating_add(guest);
        Limits::check("the memory that one session needs", least, limits.memory_bytes)?;
        let count = |bytes: u64, each: u64| usize::try_from(bytes / each.max(1)).unwrap_or(usize::MAX);
        let part = (limits.memory_bytes / GUESTS).min(limits.memory_bytes - one.total());
        let guests = count(part, guest).clamp(1, limits.guests.max(1));
        let rest = limits.memory_bytes - guests as u64 * guest;
        let largest = one.set_up + one.block;
        let slots = count(rest - largest, one.session).min(limits.sessions).min(Semaphore::MAX_PERMITS);
        let rest = rest - slots as u64 * one.session;
        let set_ups = match one.set_up {
            0 => 0,
            least if one.block == 0 => rest.max(least),
            least => (rest / 2).max(least).min(rest - one.block),
        };
        Ok(Self { slots, guests, shares: [set_ups, rest - set_ups] })
    }

    /// Permits of every share.
    pub(super) fn free(&self) -> [Arc<Semaphore>; Share::ALL] {
        self.shares.map(|bytes| Arc::new(Semaphore::new(grains(bytes) as usize)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const ONE: SessionMemory = SessionMemory { session: 2 * MIB, set_up: 64 * MIB, block: 400 * MIB };

    fn of(memory_bytes: u64, sessions: usize) -> Result<Division, PlanError> {
        let limits = ServerLimits { memory_bytes, sessions, ..ServerLimits::default() };
        Division::of(&limits, &ONE, 1 << 18)
    }

    /// What all may hold together, and never less than one session needs.
    fn holds(d: &Division, memory: u64) {
        let guests = d.guests as u64 * ((1 << 18) + SMALL);
        assert!(guests + d.slots as u64 * ONE.session + d.shares[0] + d.shares[1] <= memory);
        assert!(d.slots >= 1 && d.guests >= 1 && d.shares[0] >= ONE.set_up && d.shares[1] >= ONE.block);
    }

    #[test]
    fn a_small_session_gets_a_slot_though_its_largest_block_is_large() {
        let d = of(16 << 30, 64).unwrap();
        holds(&d, 16 << 30);
        assert_eq!((d.slots, d.guests), (64, 256));
        assert!(d.shares[1] / ONE.block >= 15);
    }

    #[test]
    fn there_is_room_for_one_or_the_server_does_not_start() {
        let least = ONE.total() + (1 << 18) + SMALL;
        let d = of(least, 64).unwrap();
        holds(&d, least);
        assert_eq!((d.slots, d.guests), (1, 1));
        assert!(matches!(of(least - 1, 64), Err(PlanError::TooLarge { .. })));
        for extra in [1, MIB, 100 * MIB, 1000 * MIB] {
            holds(&of(least + extra, 64).unwrap(), least + extra);
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
