//! Who is served, and who waits: places of connected clients.
//!
//! A client that greets takes no slot. It is a *guest* until it sends something to work on; then it waits in line for a slot, first come, first
//! served. Guests are many and cheap. When there are too many, the one that came first gives its place. A session that keeps the server
//! waiting while others stand in line gives its slot, as [`Rules`] say.

use super::memory::{grains, Share, GRAIN};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{watch, Notify, OwnedSemaphorePermit, Semaphore};

/// How often somebody in line looks for a session that has to give its slot.
const LOOK: Duration = Duration::from_millis(50);
/// How much longer than its own work a session may keep a full server waiting.
const PER_WORK: u32 = 10;
/// The part of a session's patience that a long line leaves: one in so many.
const LEAST: u32 = 8;

/// Times and numbers of [`Slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// Sessions in work at once.
    pub slots: usize,
    /// Clients at once that have sent nothing to work on.
    pub guests: usize,
    /// Longest wait in line.
    pub line: Duration,
    /// A session keeps its slot so long without a frame, divided by one more than there are in line, by eight at most, when others wait; and longer
    /// by ten times what the server worked for it.
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

/// A session that holds a slot.
struct Holder {
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
    guests: BTreeMap<u64, Arc<Notify>>,
    holders: BTreeMap<u64, Holder>,
    in_line: usize,
    begun: u64,
    most_reserved: u64,
}

fn free_bytes(memory: &[Arc<Semaphore>; Share::ALL]) -> u64 {
    memory.iter().fold(0, |sum, share| sum + share.available_permits() as u64 * GRAIN)
}

/// All places of a server.
pub(super) struct Slots {
    rules: Rules,
    free: Arc<Semaphore>,
    /// Memory for set-ups and for blocks.
    memory: [Arc<Semaphore>; Share::ALL],
    /// Bytes of all set-ups and blocks, and of what every slot has.
    whole: u64,
    session: u64,
    state: Mutex<State>,
}

impl Slots {
    /// Places with so much memory for set-ups and blocks, and `session` bytes for every slot.
    pub(super) fn new(rules: Rules, memory: [Arc<Semaphore>; Share::ALL], session: u64) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(rules.slots));
        let whole = free_bytes(&memory);
        Arc::new(Self { rules, free, memory, whole, session, state: Mutex::default() })
    }

    /// Sessions that hold a slot, and bytes that they have reserved.
    fn reserved(&self) -> (usize, u64) {
        let active = self.rules.slots - self.free.available_permits().min(self.rules.slots);
        (active, self.whole.saturating_sub(free_bytes(&self.memory)) + active as u64 * self.session)
    }

    /// Notes what is reserved now, when something was.
    fn note(&self) {
        let (_, reserved) = self.reserved();
        let mut state = self.state();
        state.most_reserved = state.most_reserved.max(reserved);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a client that has connected; `None` when the server is being stopped.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Place> {
        if self.free.is_closed() {
            return None;
        }
        let mut state = self.state();
        if state.guests.len() >= self.rules.guests {
            if let Some((_, gives)) = state.guests.pop_first() {
                gives.notify_one();
            }
        }
        let (number, gives) = (state.next, Arc::new(Notify::new()));
        state.next += 1;
        state.guests.insert(number, gives.clone());
        drop(state);
        let (slots, turned) = (self.clone(), Mutex::new(Instant::now()));
        let (slot, begun, memory) = (OnceLock::new(), watch::Sender::new(false), Mutex::default());
        Some(Place { slots, number, gives, slot, begun, turned, memory })
    }

    /// No more places.
    pub(super) fn close(&self) {
        self.free.close();
        self.memory.iter().for_each(|share| share.close());
    }

    /// Whether a client that comes now would stand in line.
    pub(super) fn full(&self) -> bool {
        self.free.available_permits() == 0 || self.state().in_line > 0
    }

    /// Whether the server takes nobody any more.
    pub(super) fn closed(&self) -> bool {
        self.free.is_closed()
    }

    /// What is told of the places.
    pub(super) fn count(&self) -> Count {
        let state = self.state();
        let (active, now) = self.reserved();
        let reserved = [now, state.most_reserved];
        Count { begun: state.begun, active, guests: state.guests.len(), in_line: state.in_line, reserved }
    }

    /// Tells the session that has kept the server waiting for longest beyond what it may to give its slot; of those that have memory of
    /// `share` where that is missing.
    fn make_room(&self, share: Option<Share>) {
        let now = Instant::now();
        let mut state = self.state();
        let patience =
            self.rules.patience / u32::try_from(state.in_line).unwrap_or(LEAST).saturating_add(1).min(LEAST);
        let beyond = |h: &Holder| {
            let (since, resting) = h.waits?;
            let idle = now.saturating_duration_since(since);
            let stalled = idle.checked_sub(patience + PER_WORK * h.worked);
            let age = now.saturating_duration_since(h.since);
            let old = age.checked_sub(if resting { self.rules.session } else { 2 * self.rules.session });
            stalled.max(old)
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
    gives: Arc<Notify>,
    slot: OnceLock<OwnedSemaphorePermit>,
    memory: Mutex<[Option<OwnedSemaphorePermit>; Share::ALL]>,
    /// Whether there is a slot, for those that wait for it.
    begun: watch::Sender<bool>,
    /// When the server last began or ended waiting for the client.
    turned: Mutex<Instant>,
}

impl Place {
    /// Whether the client holds a slot.
    pub(super) fn works(&self) -> bool {
        self.slot.get().is_some()
    }

    /// Tells whether the client has got its slot, and when the place is gone.
    pub(super) fn begun(&self) -> watch::Receiver<bool> {
        self.begun.subscribe()
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
        // It was another's turn before this one came to stand in line.
        self.slots.state().guests.remove(&self.number).ok_or(Refused::Busy)?;
        let slot = self.line(&self.slots.free, 1, None).await?;
        let (gives, has) = (self.gives.clone(), [false; Share::ALL]);
        let holder = Holder { since: Instant::now(), worked: Duration::ZERO, waits: None, gives, has };
        let mut state = self.slots.state();
        state.holders.insert(self.number, holder);
        state.begun += 1;
        drop(state);
        self.slots.note();
        self.turn();
        // Empty until now: one session asks for one slot after the other.
        let _ = self.slot.set(slot);
        self.begun.send_replace(true);
        Ok(())
    }

    /// Stands in line for so many permits; who keeps the server waiting meanwhile gives what it has.
    async fn line(
        &self,
        free: &Arc<Semaphore>,
        permits: u32,
        share: Option<Share>,
    ) -> Result<OwnedSemaphorePermit, Refused> {
        let (slots, start) = (&self.slots, Instant::now());
        slots.state().in_line += 1;
        let mut acquire = std::pin::pin!(free.clone().acquire_many_owned(permits));
        let found = loop {
            tokio::select! {
                biased;
                found = &mut acquire => break found.map_err(|_| Refused::Stopping),
                () = tokio::time::sleep(LOOK) => {
                    if start.elapsed() > slots.rules.line {
                        break Err(Refused::Busy);
                    }
                    slots.make_room(share);
                }
            }
        };
        slots.state().in_line -= 1;
        found
    }

    fn memory(&self) -> MutexGuard<'_, [Option<OwnedSemaphorePermit>; Share::ALL]> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stands in line for memory, and for a slot where there is none yet. What is there of the share already is enough, or goes back first.
    ///
    /// # Errors
    /// [`Refused`] when it did not come free in time, or will not.
    pub(super) async fn reserve(&self, share: Share, bytes: u64) -> Result<(), Refused> {
        let wanted = grains(bytes);
        if wanted == 0 {
            return Ok(());
        }
        self.work().await?;
        let has = self.memory()[share as usize].as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if has >= wanted as usize {
            return Ok(());
        }
        self.release(share);
        let permit = self.line(&self.slots.memory[share as usize], wanted, Some(share)).await?;
        self.memory()[share as usize] = Some(permit);
        // The wait was no work for the client.
        self.turn();
        self.slots.note();
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
        let mut state = self.slots.state();
        state.guests.remove(&self.number);
        state.holders.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        slots: 1,
        guests: 2,
        line: Duration::from_secs(5),
        patience: Duration::from_millis(200),
        session: Duration::from_secs(3600),
    };

    /// Places with 100 grains of memory for set-ups, and as many for blocks.
    fn slots_of(rules: Rules) -> Arc<Slots> {
        Slots::new(rules, [100, 100].map(|n| Arc::new(Semaphore::new(n))), 1000)
    }

    async fn taken(slots: &Arc<Slots>) -> Place {
        let place = slots.enter().unwrap();
        place.work().await.unwrap();
        place
    }

    #[tokio::test]
    async fn guests_take_no_slot_and_the_oldest_gives_its_place() {
        let slots = slots_of(RULES);
        let [first, second, third] = [(); 3].map(|()| slots.enter().unwrap());
        first.given().await;
        assert!(!slots.full() && slots.count().guests == 2);
        third.work().await.unwrap();
        let now = Count { begun: 1, active: 1, guests: 1, in_line: 0, reserved: [1000, 1000] };
        assert!(slots.full() && slots.count() == now);
        drop(third);
        second.work().await.unwrap();
    }

    #[tokio::test]
    async fn a_place_that_was_given_away_gets_no_slot() {
        let slots = slots_of(RULES);
        let first = slots.enter().unwrap();
        let _others = [slots.enter(), slots.enter()];
        assert_eq!(first.work().await, Err(Refused::Busy));
    }

    #[tokio::test]
    async fn who_keeps_a_full_server_waiting_gives_its_slot() {
        let slots = slots_of(RULES);
        let silent = taken(&slots).await;
        silent.waits(false);
        let (start, next) = (Instant::now(), slots.enter().unwrap());
        let (got, ()) = tokio::join!(next.work(), async {
            silent.given().await;
            assert!(start.elapsed() >= RULES.patience / 2);
            drop(silent);
        });
        got.unwrap();
        assert!(start.elapsed() < Duration::from_secs(2));
    }

    #[tokio::test]
    async fn a_session_in_work_and_an_empty_line_keep_their_slots() {
        let rules = Rules { line: Duration::from_millis(500), ..RULES };
        let slots = slots_of(rules);
        let working = taken(&slots).await;
        let next = slots.enter().unwrap();
        assert_eq!(next.work().await, Err(Refused::Busy));
        // Nobody waits any more: silence costs nothing.
        working.waits(true);
        assert!(tokio::time::timeout(Duration::from_millis(500), working.given()).await.is_err());
    }

    #[tokio::test]
    async fn old_sessions_give_their_slot_between_blocks() {
        let rules = Rules { patience: Duration::from_secs(60), session: Duration::from_millis(300), ..RULES };
        let slots = slots_of(rules);
        let old = taken(&slots).await;
        old.waits(true);
        let (start, next) = (Instant::now(), slots.enter().unwrap());
        let (got, ()) = tokio::join!(next.work(), async {
            old.given().await;
            drop(old);
        });
        got.unwrap();
        assert!((300..2000).contains(&start.elapsed().as_millis()));
    }

    #[tokio::test]
    async fn nobody_enters_a_stopping_server() {
        let slots = slots_of(RULES);
        let (working, next) = (taken(&slots).await, slots.enter().unwrap());
        slots.close();
        assert_eq!(next.work().await, Err(Refused::Stopping));
        assert!(slots.enter().is_none() && slots.closed());
        drop(working);
    }

    const WHOLE: u64 = 100 * 4096;

    #[tokio::test]
    async fn memory_is_waited_for_in_order_and_comes_back() {
        let slots = slots_of(Rules { slots: 3, guests: 3, ..RULES });
        let (first, large, small) = (taken(&slots).await, taken(&slots).await, taken(&slots).await);
        first.reserve(Share::Block, WHOLE / 2).await.unwrap();
        // A small one that comes after a large one waits behind it.
        let order = Mutex::new(Vec::new());
        tokio::join!(
            async {
                large.reserve(Share::Block, WHOLE).await.unwrap();
                order.lock().unwrap().push("large");
                large.release(Share::Block);
            },
            async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                small.reserve(Share::Block, WHOLE / 2).await.unwrap();
                order.lock().unwrap().push("small");
            },
            async {
                tokio::time::sleep(Duration::from_millis(60)).await;
                assert!(order.lock().unwrap().is_empty() && slots.full() && slots.count().in_line == 2);
                // Set-ups are another share.
                first.reserve(Share::SetUp, WHOLE).await.unwrap();
                first.release(Share::Block);
            }
        );
        assert_eq!(*order.lock().unwrap(), ["large", "small"]);
        // `first` has its set-up and `small` half of the blocks; at most that set-up and the large block were reserved together.
        assert_eq!(slots.count().reserved, [3000 + WHOLE + WHOLE / 2, 3000 + 2 * WHOLE]);
        drop((first, large, small));
        assert_eq!(slots.memory.each_ref().map(|s| s.available_permits()), [100, 100]);
    }

    #[tokio::test]
    async fn who_announces_much_and_sends_nothing_gives_its_memory() {
        let slots = slots_of(Rules { slots: 3, guests: 3, ..RULES });
        let (hoarder, idle, good) = (taken(&slots).await, taken(&slots).await, taken(&slots).await);
        hoarder.reserve(Share::Block, WHOLE).await.unwrap();
        hoarder.waits(false);
        // One that keeps the server waiting without memory of this kind would be of no use.
        idle.reserve(Share::SetUp, WHOLE).await.unwrap();
        idle.waits(true);
        let start = Instant::now();
        let (got, ()) = tokio::join!(good.reserve(Share::Block, 4096), async {
            hoarder.given().await;
            drop(hoarder);
        });
        got.unwrap();
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        assert!(tokio::time::timeout(Duration::from_millis(300), idle.given()).await.is_err());
    }

    #[tokio::test]
    async fn memory_that_does_not_come_free_is_refused() {
        let rules = Rules { slots: 2, line: Duration::from_millis(200), ..RULES };
        let slots = slots_of(rules);
        let (working, next) = (taken(&slots).await, taken(&slots).await);
        working.reserve(Share::Block, WHOLE).await.unwrap();
        assert_eq!(next.reserve(Share::Block, 1).await, Err(Refused::Busy));
        // More of the same share: what is there goes back first, so that nobody waits for itself.
        working.reserve(Share::Block, WHOLE / 2).await.unwrap();
        slots.close();
        assert_eq!(next.reserve(Share::SetUp, 1).await, Err(Refused::Stopping));
    }

    #[tokio::test]
    async fn time_in_line_is_no_work_that_buys_patience() {
        let slots = slots_of(Rules { slots: 3, guests: 3, ..RULES });
        let (first, second, third) = (taken(&slots).await, taken(&slots).await, taken(&slots).await);
        first.reserve(Share::Block, WHOLE).await.unwrap();
        let (got, ()) = tokio::join!(second.reserve(Share::Block, WHOLE), async {
            tokio::time::sleep(Duration::from_millis(400)).await;
            first.release(Share::Block);
        });
        got.unwrap();
        second.waits(false);
        let start = Instant::now();
        let (got, ()) = tokio::join!(third.reserve(Share::Block, WHOLE), async {
            second.given().await;
            drop(second);
        });
        got.unwrap();
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
}
