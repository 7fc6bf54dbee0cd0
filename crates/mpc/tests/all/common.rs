//! Two parties in two threads over memory, with what passed between them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hushnet_mpc::{
    memory_pair, setup_cost, Channel, Cost, CostModel, MemoryChannel, OtKind, Party, Prg, Result, Ring,
    Session, Stats,
};

pub(crate) struct Probe {
    inner: MemoryChannel,
    clock: Arc<AtomicU64>,
    stats: Arc<Mutex<Stats>>,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Channel for Probe {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        self.inner.send(data)?;
        *self.stats.lock().unwrap() = self.inner.stats();
        Ok(())
    }
    fn recv(&mut self, buf: &mut [u8]) -> Result<()> {
        self.inner.recv(buf)?;
        self.clock.store(self.inner.clock(), Ordering::SeqCst);
        *self.stats.lock().unwrap() = self.inner.stats();
        self.heard.lock().unwrap().extend_from_slice(buf);
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

/// Results of both parties, what passed in all, and what each party received.
pub(crate) struct Run<R> {
    pub out: [R; 2],
    pub cost: Cost,
    pub heard: [Vec<u8>; 2],
}

/// Runs `f` in both parties after set-up.
pub(crate) fn run<R: Send>(kind: OtKind, chunk: usize, f: impl Fn(&mut Session) -> R + Sync) -> Run<R> {
    let (a, b) = memory_pair();
    let probe = |inner| {
        let (clock, stats, heard) = <(Arc<AtomicU64>, Arc<Mutex<Stats>>, Arc<Mutex<Vec<u8>>>)>::default();
        (
            Probe { inner, clock: clock.clone(), stats: stats.clone(), heard: heard.clone() },
            clock,
            stats,
            heard,
        )
    };
    let (a, ca, sa, ha) = probe(a);
    let (b, cb, sb, hb) = probe(b);
    let party = |ch: Probe, p: Party| {
        let mut s = Session::new(Box::new(ch), p, kind).unwrap();
        s.set_chunk(chunk);
        f(&mut s)
    };
    let out = std::thread::scope(|t| {
        let one = t.spawn(|| party(b, Party::One));
        let zero = party(a, Party::Zero);
        [zero, one.join().unwrap()]
    });
    let (sa, sb) = (*sa.lock().unwrap(), *sb.lock().unwrap());
    let cost = Cost {
        bytes_sent_by_0: sa.bytes_sent,
        bytes_sent_by_1: sb.bytes_sent,
        rounds: ca.load(Ordering::SeqCst).max(cb.load(Ordering::SeqCst)),
        turns: [sa.turns, sb.turns],
    };
    assert_eq!((sa.bytes_sent, sb.bytes_sent), (sb.bytes_received, sa.bytes_received));
    let heard = [std::mem::take(&mut *ha.lock().unwrap()), std::mem::take(&mut *hb.lock().unwrap())];
    Run { out, cost, heard }
}

/// As [`run`], for many cases in one session, whose base OTs take longer than small cases do: both parties' shares, case by case.
pub(crate) fn run_each<C: Sync>(
    kind: OtKind,
    chunk: usize,
    cases: &[C],
    f: impl Fn(&mut Session, &C) -> Vec<u64> + Sync,
) -> (Vec<[Vec<u64>; 2]>, Cost) {
    let run = run(kind, chunk, |s| cases.iter().map(|c| f(s, c)).collect::<Vec<_>>());
    let [zero, one] = run.out;
    (zero.into_iter().zip(one).map(|(a, b)| [a, b]).collect(), run.cost)
}

/// The predicted cost of set-up and `f`.
pub(crate) fn predict(kind: OtKind, chunk: usize, f: impl Fn(&mut CostModel)) -> Cost {
    let mut m = CostModel::new(kind).with_chunk(chunk);
    setup_cost(&mut m);
    f(&mut m);
    m.cost()
}

/// Values that matter, then random ones.
pub(crate) fn values(n: usize, ring: Ring, seed: u128) -> Vec<u64> {
    let half = 1u64 << (ring.bits() - 1);
    let edge = [
        0,
        1,
        ring.mask(),
        half,
        half - 1,
        half + 1,
        2,
        ring.mask() - 1,
        half / 2,
        half / 2 - 1,
        3 * (half / 2),
    ];
    let mut v = vec![0; n];
    Prg::new(seed).words(&mut v);
    for (i, v) in v.iter_mut().enumerate() {
        *v = ring.reduce(if i < edge.len() { edge[i] } else { *v });
    }
    v
}

/// A party's own of two shares.
pub(crate) fn mine<'a>(s: &Session, shares: &'a [Vec<u64>; 2]) -> &'a [u64] {
    &shares[s.party().index()]
}

/// Every value of a small ring with every share that party 0 may have of it, value after value, and both parties' shares.
pub(crate) fn every_share(ring: Ring) -> (Vec<u64>, [Vec<u64>; 2]) {
    let all = 0..=ring.mask();
    let (values, first): (Vec<u64>, Vec<u64>) =
        all.clone().flat_map(|x| all.clone().map(move |r| (x, r))).unzip();
    let second = values.iter().zip(&first).map(|(x, r)| ring.sub(*x, *r)).collect();
    (values, [first, second])
}

/// Shares of the values: mostly random, with edge cases of the share itself mixed in.
pub(crate) fn share(x: &[u64], ring: Ring, seed: u128) -> [Vec<u64>; 2] {
    let mut r = vec![0; x.len()];
    Prg::new(seed).words(&mut r);
    for (i, r) in r.iter_mut().enumerate() {
        *r = ring.reduce(match i % 13 {
            3 => 0,
            5 => u64::MAX,
            7 => x[i],
            9 => 1 << (ring.bits() - 1),
            11 => (1 << (ring.bits() - 1)) - 1,
            _ => *r,
        });
    }
    let other = x.iter().zip(&r).map(|(&x, &r)| ring.sub(x, r)).collect();
    [r, other]
}

pub(crate) fn add(ring: Ring, out: &[Vec<u64>; 2]) -> Vec<u64> {
    out[0].iter().zip(&out[1]).map(|(&a, &b)| ring.add(a, b)).collect()
}
