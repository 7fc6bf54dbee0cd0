//! What plans have cost this process before the first image: how often one was read, written, checked, prepared. A test demands that
//! a command does each once.

use std::sync::atomic::{AtomicU64, Ordering};

static READ: AtomicU64 = AtomicU64::new(0);
static WRITTEN: AtomicU64 = AtomicU64::new(0);
static CHECKED: AtomicU64 = AtomicU64::new(0);
static PREPARED: AtomicU64 = AtomicU64::new(0);

/// Counts since the process began, of all plans together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// Files whose digest was computed to compare it with the one that they state.
    pub read: u64,
    /// Files whose digest was computed to be written into them (public parts are).
    pub written: u64,
    /// Plans that were checked, complete ones and public parts.
    pub checked: u64,
    /// Times that the weights of a plan were brought into the form of the kernels.
    pub prepared: u64,
}

/// The counts at this moment.
#[must_use]
pub fn so_far() -> Tally {
    let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
    Tally { read: get(&READ), written: get(&WRITTEN), checked: get(&CHECKED), prepared: get(&PREPARED) }
}

pub(crate) fn read() {
    READ.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn written() {
    WRITTEN.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn checked() {
    CHECKED.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn prepared() {
    PREPARED.fetch_add(1, Ordering::Relaxed);
}
