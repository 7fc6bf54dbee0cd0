//! A party whose peer does not keep to the protocol: an error that says so, never a share that is none.

use hushnet_mpc::garble::{self, Modulus, OddModulus};
use hushnet_mpc::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

const P: u64 = 786_433;
const VALUES: usize = 40;

/// Sends ones in place of every message of so many bytes, once it is told to.
struct Spoiler {
    inner: MemoryChannel,
    bytes: usize,
    on: Arc<AtomicBool>,
}

impl Channel for Spoiler {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        let spoil = self.on.load(Ordering::SeqCst) && data.len() == self.bytes;
        self.inner.send(&if spoil { vec![0xff; data.len()] } else { data.to_vec() })
    }
    fn recv(&mut self, buf: &mut [u8]) -> Result<()> {
        self.inner.recv(buf)
    }
    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

/// What party one gets of `f` while party zero's messages of so many bytes are ones.
fn honest(bytes: usize, f: impl Fn(&mut Session) -> Result<Vec<u64>> + Sync) -> Result<Vec<u64>> {
    let (a, b) = memory_pair();
    let on = Arc::new(AtomicBool::new(false));
    let spoiler = Spoiler { inner: a, bytes, on: Arc::clone(&on) };
    std::thread::scope(|scope| {
        let f = &f;
        scope.spawn(move || {
            let mut s = Session::new(Box::new(spoiler), Party::Zero, OtKind::SoftSpoken).unwrap();
            on.store(true, Ordering::SeqCst);
            // The one that spoils may fail itself.
            drop(f(&mut s));
        });
        let mut s = Session::new(Box::new(b), Party::One, OtKind::SoftSpoken).unwrap();
        f(&mut s)
    })
}

#[test]
fn a_correction_that_is_no_residue_is_the_peers_fault() {
    let p = OddModulus::new(P).unwrap();
    let x: Vec<u64> = (0..VALUES as u64).collect();
    let bits = Bits::from_values(&x.iter().map(|v| v & 1).collect::<Vec<_>>());
    // 20 bits a correction.
    let result = honest(VALUES * 20 / 8, |s| mux_odd(s, &bits, &x, p));
    assert!(matches!(result, Err(MpcError::Peer { .. })), "{result:?}");
}

#[test]
fn results_of_a_garbler_that_opens_wrong_values_are_residues() {
    let p = OddModulus::new(P).unwrap();
    let x: Vec<u64> = (0..VALUES as u64).map(|v| v * 19_000).collect();
    // The bits that labels of results stand for.
    let shares = honest(VALUES * 20 / 8, |s| garble::relu(s, &x, Modulus::Odd(p), Party::Zero)).unwrap();
    assert!(shares.len() == VALUES && shares.iter().all(|&v| v < P), "{shares:?}");
}

/// A peer whose messages are noise of the right length.
struct Noise(MemoryChannel, Prg, Arc<AtomicBool>);

impl Channel for Noise {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        let mut words = vec![0; data.len().div_ceil(8)];
        self.1.words(&mut words);
        let noise: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).take(data.len()).collect();
        self.0.send(if self.2.load(Ordering::SeqCst) { &noise } else { data })
    }
    fn recv(&mut self, buf: &mut [u8]) -> Result<()> {
        self.0.recv(buf)
    }
    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
    fn stats(&self) -> Stats {
        self.0.stats()
    }
}

/// Wrong results are all that such a peer gets: shares of the ring, and no panic at either end.
#[test]
fn functions_and_products_with_a_peer_that_sends_noise() {
    let ring = Ring::new(20).unwrap();
    let at = Interval::between(-4.0, 4.0, 10).unwrap();
    let fit = Spline::fit(&|x| Function::Tanh.at(x), (at, ring), 12, 0.002).unwrap();
    let rows = Softmax::fit(4, (ring, Ring::new(16).unwrap(), 8), 10, 0.002).unwrap();
    let factor = Factor::new(ring, Range::Any).unwrap();
    let narrow = Factor::new(Ring::new(16).unwrap(), Range::Any).unwrap();
    let all = |s: &mut Session| -> Result<Vec<u64>> {
        let x: Vec<u64> = (0..100).map(|v| (v * 10_007) & 0xf_ffff).collect();
        let mut out = multiply(s, (&x, factor), (&x, factor), ring)?;
        out.extend(multiply_rows(s, (&x, factor), (&[5, 0xffff, 1 << 15, 77], narrow), ring)?);
        for holder in [Party::Zero, Party::One] {
            out.extend(spline(s, (&x, ring), &fit.shape, Some(&fit.pieces), holder, ring)?);
        }
        out.extend(softmax(s, &x, &rows, ring)?);
        Ok(out)
    };
    for noisy in [Party::Zero, Party::One] {
        let (a, b) = memory_pair();
        let run = |ch: MemoryChannel, party: Party| {
            let on = Arc::new(AtomicBool::new(false));
            let noise = Noise(ch, Prg::new(5), Arc::clone(&on));
            let mut s = Session::new(Box::new(noise), party, OtKind::SoftSpoken).unwrap();
            // What set-up messages may be is the base OTs' matter.
            s.ensure([1 << 16, 1 << 16]).unwrap();
            on.store(party == noisy, Ordering::SeqCst);
            all(&mut s).unwrap()
        };
        let both = std::thread::scope(|scope| {
            let one = scope.spawn(|| run(b, Party::One));
            [run(a, Party::Zero), one.join().unwrap()]
        });
        assert!(both.iter().flatten().all(|&v| v <= ring.mask()), "{noisy:?}");
    }
}
