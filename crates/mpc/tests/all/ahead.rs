//! Correlated OTs that are made while a party waits: the same bytes and results, and what is made is what was ensured.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hushnet_mpc::*;

/// A channel that says whether messages have come as it is told, and notes what it is asked and hears.
struct Told {
    inner: MemoryChannel,
    come: bool,
    asked: Arc<AtomicU64>,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Channel for Told {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        self.inner.send(data)
    }
    fn recv(&mut self, buf: &mut [u8]) -> Result<()> {
        self.inner.recv(buf)?;
        self.heard.lock().unwrap().extend_from_slice(buf);
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
    fn ready(&mut self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.come
    }
}

/// What a party has in the end: its share, what it sent and received, what it heard, and how often it asked for a message.
type Seen = (Vec<u64>, Stats, Vec<u8>, u64);

fn relus(kind: OtKind, come: [bool; 2], threads: usize) -> [Seen; 2] {
    let ring = Ring::new(32).unwrap();
    let (a, b) = memory_pair();
    let party = |inner, party: Party| {
        let come = come[party.index()];
        let (asked, heard) = <(Arc<AtomicU64>, Arc<Mutex<Vec<u8>>>)>::default();
        let channel = Told { inner, come, asked: asked.clone(), heard: heard.clone() };
        let seed = 7 + party.index() as u128;
        let mut s = Session::new_deterministic(Box::new(channel), party, kind, seed).unwrap();
        s.set_threads(threads);
        let mut share = vec![0; 6000];
        Prg::new(seed).words(&mut share);
        let mut out = Vec::new();
        for _ in 0..2 {
            share.iter_mut().for_each(|v| *v = ring.reduce(*v));
            out = relu(&mut s, &share, ring).unwrap();
            share.clone_from(&out);
        }
        let heard = std::mem::take(&mut *heard.lock().unwrap());
        (out, s.stats(), heard, asked.load(Ordering::Relaxed))
    };
    std::thread::scope(|t| {
        let one = t.spawn(|| party(b, Party::One));
        [party(a, Party::Zero), one.join().unwrap()]
    })
}

#[test]
fn what_is_made_while_waiting_changes_nothing_but_the_time() {
    for kind in [OtKind::Silent(SilentSize::Tiny), OtKind::Silent(SilentSize::Small), OtKind::SoftSpoken] {
        let at_hand = relus(kind, [true; 2], 1);
        for (come, threads) in [([false; 2], 1), ([false; 2], 2), ([true, false], 1), ([false, true], 1)] {
            let late = relus(kind, come, threads);
            for (p, (one, other)) in at_hand.iter().zip(&late).enumerate() {
                assert_eq!((&one.0, one.1), (&other.0, other.1), "{kind:?} {come:?}");
                assert!(one.2 == other.2, "{kind:?}: other bytes");
                // Each time that it is told that nothing has come it makes a part, until there is nothing to make.
                let silent = matches!(kind, OtKind::Silent(_));
                assert_eq!(other.3 > one.3, silent && !come[p], "{kind:?} {come:?}: {} {}", one.3, other.3);
            }
        }
    }
}
