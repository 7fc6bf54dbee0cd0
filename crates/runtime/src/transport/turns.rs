//! One line for all who want the same thing, in which peers take turns.
//!
//! Requests wait in a queue for each peer. What is free goes to the peer that holds least; of those that hold as much, to the one whose turn
//! was longest ago; within a peer, first come, first served. A peer with two hundred requests so waits among its own. Who is next is
//! waited for: nobody passes by asking for less. This is fair queueing (Nagle, RFC 970) with sessions in the place of packets.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// A peer's name.
pub(super) type Name = Arc<str>;

/// Nobody gets anything any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed;

/// A request in line.
struct Asked {
    number: u64,
    units: u32,
    answer: oneshot::Sender<Held>,
}

#[derive(Default)]
struct Peer {
    waiting: VecDeque<Asked>,
    /// Requests that were granted and not given back.
    holds: usize,
    /// When it last had its turn, or came to stand in line.
    turn: u64,
}

struct State {
    /// Requests that may be granted at once.
    places: usize,
    units: u32,
    closed: bool,
    clock: u64,
    /// Peers that hold something or wait.
    peers: HashMap<Name, Peer>,
}

impl State {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Forgets a peer that neither holds nor waits.
    fn forget(&mut self, name: &Name) {
        if self.peers.get(name).is_some_and(|p| p.holds == 0 && p.waiting.is_empty()) {
            self.peers.remove(name);
        }
    }
}

/// Places and units that are handed out in turns.
pub(super) struct Turns {
    state: Mutex<State>,
}

impl Turns {
    /// So many requests at once, of so many units together.
    pub(super) fn new(places: usize, units: u32) -> Arc<Self> {
        let state = State { places, units, closed: false, clock: 0, peers: HashMap::new() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place and so many units, when it is the peer's turn. Who stops waiting leaves the line.
    ///
    /// # Errors
    /// [`Closed`] when nothing is handed out any more.
    pub(super) async fn acquire(self: &Arc<Self>, peer: &Name, units: u32) -> Result<Held, Closed> {
        let (answer, granted) = oneshot::channel();
        let number = {
            let mut state = self.state();
            if state.closed {
                return Err(Closed);
            }
            let number = state.tick();
            let own = state.peers.entry(peer.clone()).or_default();
            if own.waiting.is_empty() {
                own.turn = number;
            }
            own.waiting.push_back(Asked { number, units, answer });
            number
        };
        let _in_line = InLine { turns: self, peer, number };
        self.hand_out();
        granted.await.map_err(|_| Closed)
    }

    /// Grants what can be granted now.
    fn hand_out(self: &Arc<Self>) {
        while let Some((answer, held)) = self.next() {
            // Who has gone meanwhile gives it back.
            drop(answer.send(held));
        }
    }

    /// The next request, where there is room for it.
    fn next(self: &Arc<Self>) -> Option<(oneshot::Sender<Held>, Held)> {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.places == 0 {
            return None;
        }
        let turn = state.clock + 1;
        let in_line = state.peers.iter_mut().filter(|(_, p)| !p.waiting.is_empty());
        let (name, peer) = in_line.min_by_key(|(_, p)| (p.holds, p.turn))?;
        if peer.waiting.front().is_none_or(|first| first.units > state.units) {
            return None;
        }
        let first = peer.waiting.pop_front()?;
        peer.holds += 1;
        peer.turn = turn;
        state.clock = turn;
        state.places -= 1;
        state.units -= first.units;
        let held = Held { turns: self.clone(), peer: name.clone(), units: first.units };
        Some((first.answer, held))
    }

    /// Hands nothing out from now on; all who wait are told.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.peers.values_mut().for_each(|peer| peer.waiting.clear());
    }

    /// Whether nothing is handed out any more.
    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Places and units that are free.
    pub(super) fn free(&self) -> (usize, u32) {
        let state = self.state();
        (state.places, state.units)
    }
}

/// A request's time in line.
struct InLine<'a> {
    turns: &'a Arc<Turns>,
    peer: &'a Name,
    number: u64,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        if let Some(peer) = state.peers.get_mut(self.peer) {
            peer.waiting.retain(|asked| asked.number != self.number);
            state.forget(self.peer);
        }
        drop(state);
        // Others may have waited for this one's turn.
        self.turns.hand_out();
    }
}

/// What a request was granted, until it is dropped.
pub(super) struct Held {
    turns: Arc<Turns>,
    peer: Name,
    units: u32,
}

impl Held {
    /// Units of it.
    pub(super) fn units(&self) -> u32 {
        self.units
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.places += 1;
        state.units += self.units;
        if let Some(peer) = state.peers.get_mut(&self.peer) {
            peer.holds -= 1;
            state.forget(&self.peer);
        }
        drop(state);
        self.turns.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Held, Closed>> + 'a>>;

    fn name(text: &str) -> Name {
        text.into()
    }

    /// What a request has got so far.
    fn poll(waiting: &mut Waiting<'_>) -> Option<Result<Held, Closed>> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(got) => Some(got),
            Poll::Pending => None,
        }
    }

    /// Peers in the order in which they are served, one at a time, where all stand in line at the beginning.
    fn order(turns: &Arc<Turns>, asked: &[(&Name, u32)]) -> Vec<Name> {
        let mut waiting: Vec<(&Name, Waiting<'_>)> =
            asked.iter().map(|(n, units)| (*n, Box::pin(turns.acquire(n, *units)) as Waiting<'_>)).collect();
        let (mut held, mut order) = (Vec::new(), Vec::new());
        loop {
            let mut got = Vec::new();
            waiting.retain_mut(|(n, w)| match poll(w) {
                None => true,
                Some(one) => {
                    got.push(((*n).clone(), one.unwrap()));
                    false
                }
            });
            for (n, one) in got {
                order.push(n);
                held.push(one);
            }
            if waiting.is_empty() {
                return order;
            }
            assert!(!held.is_empty(), "somebody waits for nothing");
            held.remove(0);
        }
    }

    #[test]
    fn a_peer_with_many_requests_waits_among_its_own() {
        let (turns, hog, good) = (Turns::new(2, 100), name("hog"), name("good"));
        let mut asked = vec![(&hog, 1); 6];
        asked.extend([(&good, 1); 2]);
        let order = order(&turns, &asked);
        assert_eq!(
            order.iter().map(|n| &**n).collect::<Vec<_>>().join(" "),
            "hog hog good hog good hog hog hog"
        );
        assert_eq!((turns.free(), turns.state().peers.len()), ((2, 100), 0));
    }

    #[test]
    fn newcomers_starve_nobody() {
        // One place: nobody holds anything when it comes free, so that turns decide.
        let (turns, hog) = (Turns::new(1, 1), name("hog"));
        let others: Vec<Name> = (0..5).map(|i| name(&format!("peer {i}"))).collect();
        let mut asked = vec![(&hog, 1); 3];
        asked.extend(others.iter().map(|n| (n, 1)));
        let order = order(&turns, &asked);
        let at: Vec<usize> = (0..8).filter(|i| order[*i] == hog).collect();
        assert_eq!(at, [0, 1, 7], "{order:?}");
    }

    #[test]
    fn a_large_request_is_not_passed_by_small_ones() {
        let (turns, a, b) = (Turns::new(9, 10), name("a"), name("b"));
        let mut first: Waiting<'_> = Box::pin(turns.acquire(&a, 6));
        let first = poll(&mut first).unwrap().unwrap();
        let mut large: Waiting<'_> = Box::pin(turns.acquire(&b, 8));
        let mut small: Waiting<'_> = Box::pin(turns.acquire(&b, 1));
        assert!(poll(&mut large).is_none() && poll(&mut small).is_none());
        drop(first);
        let large = poll(&mut large).unwrap().unwrap();
        let small = poll(&mut small).unwrap().unwrap();
        assert_eq!((large.units(), small.units(), turns.free()), (8, 1, (7, 1)));
    }

    #[test]
    fn who_goes_leaves_the_line_and_what_it_was_granted() {
        let (turns, a, b) = (Turns::new(1, 10), name("a"), name("b"));
        let mut first: Waiting<'_> = Box::pin(turns.acquire(&a, 1));
        let first = poll(&mut first).unwrap().unwrap();
        let mut gone: Waiting<'_> = Box::pin(turns.acquire(&a, 1));
        let mut next: Waiting<'_> = Box::pin(turns.acquire(&b, 10));
        let mut granted: Waiting<'_> = Box::pin(turns.acquire(&a, 1));
        assert!(poll(&mut gone).is_none() && poll(&mut next).is_none() && poll(&mut granted).is_none());
        drop(gone);
        drop(first);
        // `granted` has its place, and nobody has looked.
        assert!(poll(&mut next).is_none());
        drop(granted);
        drop(poll(&mut next).unwrap().unwrap());
        assert_eq!((turns.free(), turns.state().peers.len()), ((1, 10), 0));
        turns.close();
        let mut late: Waiting<'_> = Box::pin(turns.acquire(&a, 1));
        assert!(matches!(poll(&mut late), Some(Err(Closed))));
    }

    #[test]
    fn those_in_line_are_told_that_it_is_over() {
        let (turns, a) = (Turns::new(1, 1), name("a"));
        let mut first: Waiting<'_> = Box::pin(turns.acquire(&a, 1));
        let first = poll(&mut first).unwrap().unwrap();
        let mut next: Waiting<'_> = Box::pin(turns.acquire(&a, 1));
        assert!(poll(&mut next).is_none() && !turns.is_closed());
        turns.close();
        assert!(matches!(poll(&mut next), Some(Err(Closed))) && turns.is_closed());
        drop(first);
    }
}
