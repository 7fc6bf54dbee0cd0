//! Who is served, and who waits: places of connected clients.
//!
//! A client that greets takes no slot. It is a *guest* until it sends something to work on; then it waits in line for a slot, in which peers take
//! turns ([`super::turns`]). Guests and those in line are many and cheap. When there are too many, the peer that has most of them gives one. A
//! session that keeps the server waiting while others stand in line gives its slot, as [`Rules`] say.

use super::histogram::{Histogram, LENGTHS, SECONDS};
use super::memory::{Memory, Share};
use super::socket::Line;
use super::turns::{Held, Name, Turns};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{watch, Notify};

/// How often somebody in line looks for a session that has to give its slot.
const LOOK: Duration = Duration::from_millis(20);
/// How much longer than its own work a session may keep a full server waiting.
const PER_WORK: u32 = 10;
/// The part of a session's patience that a long line leaves: one in so many.
const LEAST: u32 = 8;

/// Times and numbers of [`Slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// Sessions in work at once.
    pub slots: usize,
    /// The unit in which memory is counted.
    pub unit: Memory,
    /// Memory that slots hold at most from their beginning to their end, in grains.
    pub memory: u32,
    /// Memory of all set-ups, and of all blocks, in grains.
    pub shares: [u32; Share::ALL],
    /// Longest wait in line.
    pub line: Duration,
    /// A session keeps its slot so long without a frame when others wait, divided by one more than stand in line of its own peer and other peers
    /// that do, by eight at most. It keeps it longer by ten times what the server worked for it, divided by the slots of its peer where a peer in
    /// line has fewer.
    pub patience: Duration,
    /// Age at which a session gives its slot between two blocks, and twice that within one, when others wait.
    pub session: Duration,
}

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The line did not move in time, or the place went to another client.
    Busy,
    /// The server is being stopped.
    Stopping,
    /// The client has closed its connection.
    Left,
}

/// Numbers of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    /// That have got a slot since the start.
    pub begun: u64,
    /// That hold one now.
    pub active: usize,
    /// That are connected and have sent nothing to work on.
    pub guests: usize,
    /// That wait for a slot, or for memory.
    pub in_line: usize,
    /// Bytes that sessions have reserved, now and at most since the start.
    pub reserved: [u64; 2],
}

/// A client that holds no slot.
struct Outside {
    peer: Name,
    gives: Arc<Notify>,
}

/// A session that holds a slot.
struct Holder {
    peer: Name,
    since: Instant,
    worked: Duration,
    /// Since when the server waits for its client; whether between two blocks.
    waits: Option<(Instant, bool)>,
    gives: Arc<Notify>,
    /// Whether it has memory of each share.
    has: [bool; Share::ALL],
}

#[derive(Default)]
struct State {
    next: u64,
    guests: BTreeMap<u64, Outside>,
    /// Those that stand in line for a slot.
    queued: BTreeMap<u64, Outside>,
    holders: BTreeMap<u64, Holder>,
    /// Clients in line by peer, for a slot or for memory.
    lines: HashMap<Name, usize>,
    in_line: usize,
    active: usize,
    begun: u64,
    most_reserved: u64,
}

impl State {
    /// Tells a client that holds no slot to give its place: of the peer that has most of them its oldest guest, else its last in line.
    fn give_place(&mut self) {
        let mut peers: HashMap<&Name, (usize, Option<u64>, u64)> = HashMap::new();
        for (number, outside) in &self.queued {
            let (count, _, last) = peers.entry(&outside.peer).or_default();
            (*count, *last) = (*count + 1, *number);
        }
        for (number, outside) in &self.guests {
            let (count, oldest, _) = peers.entry(&outside.peer).or_default();
            (*count, *oldest) = (*count + 1, oldest.or(Some(*number)));
        }
        // Of peers that have as many, the one whose guest came first; those with none come last.
        let most = peers.values().max_by_key(|(count, oldest, _)| (*count, oldest.map(Reverse)));
        let outside = match most {
            Some((_, Some(oldest), _)) => self.guests.remove(&oldest.clone()),
            Some((_, None, last)) => self.queued.remove(&last.clone()),
            None => None,
        };
        if let Some(outside) = outside {
            outside.gives.notify_one();
        }
    }

    /// Sessions that each peer has in work.
    fn held(&self) -> HashMap<&Name, u32> {
        let mut held = HashMap::new();
        self.holders.values().for_each(|h| *held.entry(&h.peer).or_default() += 1);
        held
    }
}

/// All places of a server.
pub(super) struct Slots {
    rules: Rules,
    /// Slots, and the memory that comes with them.
    free: Arc<Turns>,
    /// Memory for set-ups and for blocks.
    shares: [Arc<Turns>; Share::ALL],
    /// Clients at once that hold no slot; follows from the models.
    guests: AtomicUsize,
    /// Grains that a session takes at least; follows from the models.
    least: AtomicU32,
    /// Seconds that clients stood in line.
    pub(super) waits: Histogram,
    /// How many stood in line when one more came, itself not counted.
    pub(super) lengths: Histogram,
    state: Mutex<State>,
}

impl Slots {
    pub(super) fn new(rules: Rules) -> Arc<Self> {
        Arc::new(Self {
            rules,
            free: Turns::new(rules.slots, rules.memory),
            shares: rules.shares.map(|grains| Turns::new(usize::MAX, grains)),
            guests: AtomicUsize::new(1),
            least: AtomicU32::new(0),
            waits: Histogram::new(SECONDS),
            lengths: Histogram::new(LENGTHS),
            state: Mutex::default(),
        })
    }

    /// How many guests there may be, and the grains that a session takes at least.
    pub(super) fn set(&self, guests: usize, least: u32) {
        self.guests.store(guests, Ordering::Relaxed);
        self.least.store(least, Ordering::Relaxed);
    }

    /// Bytes that sessions have reserved.
    fn reserved(&self) -> u64 {
        let shares = self.rules.shares.iter().zip(&self.shares).chain([(&self.rules.memory, &self.free)]);
        let grains = shares.map(|(all, turns)| u64::from(all.saturating_sub(turns.free().1)));
        self.rules.unit.bytes(grains.sum())
    }

    /// Notes what is reserved now, when something was.
    fn note(&self) {
        let reserved = self.reserved();
        let mut state = self.state();
        state.most_reserved = state.most_reserved.max(reserved);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a client of a peer that has connected; `None` when the server is being stopped.
    pub(super) fn enter(self: &Arc<Self>, peer: &str) -> Option<Place> {
        if self.free.is_closed() {
            return None;
        }
        let mut state = self.state();
        if state.guests.len() + state.queued.len() >= self.guests.load(Ordering::Relaxed) {
            state.give_place();
        }
        let (number, gives, peer) = (state.next, Arc::new(Notify::new()), Name::from(peer));
        state.next += 1;
        state.guests.insert(number, Outside { peer: peer.clone(), gives: gives.clone() });
        drop(state);
        let (slots, turned, need) = (self.clone(), Mutex::new(Instant::now()), AtomicU32::new(0));
        let (slot, begun, memory) = (OnceLock::new(), watch::Sender::new(false), Mutex::default());
        Some(Place {
            slots,
            number,
            peer: Mutex::new(peer),
            gives,
            need,
            slot,
            memory,
            begun,
            turned,
            line: None,
            waited: AtomicU64::new(0),
        })
    }

    /// No more places.
    pub(super) fn close(&self) {
        self.free.close();
        self.shares.iter().for_each(|share| share.close());
    }

    /// Whether a client that comes now would stand in line.
    pub(super) fn full(&self) -> bool {
        let (slots, grains) = self.free.free();
        slots == 0 || grains < self.least.load(Ordering::Relaxed) || self.state().in_line > 0
    }

    /// Whether the server takes nobody any more.
    pub(super) fn closed(&self) -> bool {
        self.free.is_closed()
    }

    /// What is told of the places.
    pub(super) fn count(&self) -> Count {
        let state = self.state();
        let (guests, reserved) = (state.guests.len(), [self.reserved(), state.most_reserved]);
        Count { begun: state.begun, active: state.active, guests, in_line: state.in_line, reserved }
    }

    /// Tells a session that has kept the server waiting beyond what it may to give its slot: of the peer that has more than its share where
    /// there is one, and of its sessions the one that is furthest beyond. Only those that have memory of `share`, where that is missing.
    fn make_room(&self, share: Option<Share>) {
        let now = Instant::now();
        let mut state = self.state();
        let (held, peers) = (state.held(), state.lines.len());
        let of = |peer: &Name| held.get(peer).copied().unwrap_or(0);
        let least = state.lines.keys().map(of).min().unwrap_or(0);
        let beyond = |h: &Holder| {
            let (since, resting) = h.waits?;
            let own = state.lines.get(&h.peer).copied().unwrap_or(0);
            let press = own + peers - usize::from(own > 0);
            let patience =
                self.rules.patience / u32::try_from(press).unwrap_or(LEAST).saturating_add(1).min(LEAST);
            let crowd = if of(&h.peer) > least { of(&h.peer) } else { 1 };
            let idle = now.saturating_duration_since(since);
            let stalled = idle.checked_sub(patience + PER_WORK * h.worked / crowd);
            let age = now.saturating_duration_since(h.since);
            let old = age.checked_sub(if resting { self.rules.session } else { 2 * self.rules.session });
            stalled.max(old).map(|beyond| (crowd, beyond))
        };
        let of_use = |h: &Holder| share.is_none_or(|share| h.has[share as usize]);
        let most =
            state.holders.iter().filter(|(_, h)| of_use(h)).filter_map(|(n, h)| Some((beyond(h)?, *n))).max();
        if let Some(holder) = most.and_then(|(_, number)| state.holders.remove(&number)) {
            holder.gives.notify_one();
        }
    }
}

/// A client's place: a guest's, then a slot. Dropping it gives it back.
pub(super) struct Place {
    slots: Arc<Slots>,
    number: u64,
    /// Whom it counts to: until its greeting its address, or the certificate that it has shown.
    peer: Mutex<Name>,
    gives: Arc<Notify>,
    /// Grains that the session takes.
    need: AtomicU32,
    slot: OnceLock<Held>,
    memory: Mutex<[Option<Held>; Share::ALL]>,
    /// Whether there is a slot, for those that wait for it.
    begun: watch::Sender<bool>,
    /// When the server last began or ended waiting for the client.
    turned: Mutex<Instant>,
    /// The connection, where it is one of the server's own port.
    line: Option<Line>,
    /// Microseconds in line.
    waited: AtomicU64,
}

impl Place {
    /// The place of a client that has connected over this line.
    pub(super) fn on(mut self, line: Option<Line>) -> Self {
        self.line = line;
        self
    }

    /// What tells of the connection, where it is one of the server's own port.
    pub(super) fn tells(&self) -> Option<Line> {
        self.line.clone()
    }

    /// Whether the client holds a slot.
    pub(super) fn works(&self) -> bool {
        self.slot.get().is_some()
    }

    /// Tells whether the client has got its slot, and when the place is gone.
    pub(super) fn begun(&self) -> watch::Receiver<bool> {
        self.begun.subscribe()
    }

    /// The session will take so many grains of memory.
    pub(super) fn needs(&self, grains: u32) {
        self.need.store(grains, Ordering::Relaxed);
    }

    /// The greeting has told whose client it is.
    pub(super) fn belongs(&self, peer: &str) {
        let name = Name::from(peer);
        if let Some(guest) = self.slots.state().guests.get_mut(&self.number) {
            guest.peer = name.clone();
        }
        *self.peer.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    fn peer(&self) -> Name {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The server's number of this client.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Seconds after which a client that was refused may try again.
    pub(super) fn later(&self) -> u64 {
        self.slots.rules.line.as_secs().max(1)
    }

    /// How long ago the server last began or ended waiting for the client; from now on it counts anew.
    fn turn(&self) -> Duration {
        let mut turned = self.turned.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        now.saturating_duration_since(std::mem::replace(&mut *turned, now))
    }

    /// How long the client has stood in line, all its waits together.
    pub(super) fn waited(&self) -> Duration {
        Duration::from_micros(self.waited.load(Ordering::Relaxed))
    }

    /// Whether the client has closed its connection, or has said that it will send no more: also where nobody reads what it has sent before.
    pub(super) fn left(&self) -> bool {
        self.line.as_ref().is_some_and(Line::closed)
    }

    /// Whether the place is this client's still, and no other has been given it.
    pub(super) fn keeps(&self) -> bool {
        let state = self.slots.state();
        let outside = state.guests.contains_key(&self.number) || state.queued.contains_key(&self.number);
        outside || state.holders.contains_key(&self.number)
    }

    /// Done when the place goes to another client.
    pub(super) async fn given(&self) {
        self.gives.notified().await;
    }

    /// Stands in line for a slot.
    ///
    /// # Errors
    /// [`Refused`] when none came free in time, or none will.
    pub(super) async fn work(&self) -> Result<(), Refused> {
        if self.works() {
            return Ok(());
        }
        {
            // It was another's turn before this one came to stand in line.
            let mut state = self.slots.state();
            let outside = state.guests.remove(&self.number).ok_or(Refused::Busy)?;
            state.queued.insert(self.number, outside);
        }
        let slot = self.line(&self.slots.free, self.need.load(Ordering::Relaxed), None).await;
        let mut state = self.slots.state();
        state.queued.remove(&self.number);
        let slot = slot?;
        let (peer, gives, has) = (self.peer(), self.gives.clone(), [false; Share::ALL]);
        let holder = Holder { peer, since: Instant::now(), worked: Duration::ZERO, waits: None, gives, has };
        state.holders.insert(self.number, holder);
        state.begun += 1;
        state.active += 1;
        drop(state);
        self.slots.note();
        self.turn();
        // Empty until now: one session asks for one slot after the other.
        let _ = self.slot.set(slot);
        self.begun.send_replace(true);
        Ok(())
    }

    /// Stands in line for a place and grains; who keeps the server waiting meanwhile gives what it has.
    async fn line(&self, turns: &Arc<Turns>, grains: u32, share: Option<Share>) -> Result<Held, Refused> {
        let (slots, start, peer) = (&self.slots, Instant::now(), self.peer());
        {
            let mut state = slots.state();
            slots.lengths.observe(state.in_line as f64);
            state.in_line += 1;
            *state.lines.entry(peer.clone()).or_default() += 1;
        }
        let mut acquire = std::pin::pin!(turns.acquire(&peer, grains));
        let found = loop {
            tokio::select! {
                biased;
                found = &mut acquire => break found.map_err(|_| Refused::Stopping),
                // Too many stand in line, or a peer with fewer places has come.
                () = self.given() => break Err(Refused::Busy),
                () = tokio::time::sleep(LOOK) => {
                    if self.left() {
                        break Err(Refused::Left);
                    }
                    if start.elapsed() > slots.rules.line {
                        break Err(Refused::Busy);
                    }
                    slots.make_room(share);
                }
            }
        };
        let took = start.elapsed();
        slots.waits.observe(took.as_secs_f64());
        self.waited.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let mut state = slots.state();
        state.in_line -= 1;
        if let Some(count) = state.lines.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                state.lines.remove(&peer);
            }
        }
        drop(state);
        found
    }

    fn memory(&self) -> MutexGuard<'_, [Option<Held>; Share::ALL]> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stands in line for memory, and for a slot where there is none yet. What is there of the share already is enough, or goes back first.
    ///
    /// # Errors
    /// [`Refused`] when it did not come free in time, or will not.
    pub(super) async fn reserve(&self, share: Share, bytes: u64) -> Result<(), Refused> {
        let wanted = self.slots.rules.unit.grains(bytes);
        if wanted == 0 {
            return Ok(());
        }
        self.work().await?;
        let has = self.memory()[share as usize].as_ref().map_or(0, Held::units);
        if has >= wanted {
            return Ok(());
        }
        self.release(share);
        let held = self.line(&self.slots.shares[share as usize], wanted, Some(share)).await?;
        self.memory()[share as usize] = Some(held);
        self.slots.note();
        // The wait was no work for the client.
        self.turn();
        self.has(share, true);
        Ok(())
    }

    /// Gives memory of a share back.
    pub(super) fn release(&self, share: Share) {
        self.memory()[share as usize] = None;
        self.has(share, false);
    }

    fn has(&self, share: Share, whether: bool) {
        if let Some(holder) = self.slots.state().holders.get_mut(&self.number) {
            holder.has[share as usize] = whether;
        }
    }

    /// The server waits for the client from now on; `resting` between two blocks.
    pub(super) fn waits(&self, resting: bool) {
        let worked = self.turn();
        if let Some(holder) = self.slots.state().holders.get_mut(&self.number) {
            holder.worked += worked;
            holder.waits = Some((Instant::now(), resting));
        }
    }

    /// The server has heard from the client, and works for it from now on.
    pub(super) fn heard(&self) {
        self.turn();
        if let Some(holder) = self.slots.state().holders.get_mut(&self.number) {
            holder.waits = None;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Whoever sees no active session finds room.
        let held = self.slot.take().map(drop).is_some();
        let mut state = self.slots.state();
        state.active -= usize::from(held);
        state.guests.remove(&self.number);
        state.queued.remove(&self.number);
        state.holders.remove(&self.number);
    }
}

#[cfg(test)]
mod tests;
