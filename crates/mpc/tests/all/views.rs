//! What each party receives: uniform, uncorrelated with the other's secrets, and pinned in deterministic mode.

use crate::common::{add, run, share, values};
use hushnet_mpc::*;
use sha2::{Digest, Sha256};

/// Greeting and base OTs, which are structured (a magic number, group elements).
const SETUP: usize = 8264;
const N: usize = 1 << 13;

/// Largest deviation, in standard deviations, of byte frequencies (chi-square) and of single bits.
fn deviation(bytes: &[u8]) -> f64 {
    let mut counts = [0f64; 256];
    bytes.iter().for_each(|&b| counts[b as usize] += 1.0);
    let mean = bytes.len() as f64 / 256.0;
    let chi: f64 = counts.iter().map(|c| (c - mean).powi(2) / mean).sum();
    let mut worst = ((chi - 255.0) / 510f64.sqrt()).abs();
    for bit in 0..8 {
        let ones = bytes.iter().filter(|&&b| b >> bit & 1 == 1).count() as f64;
        let n = bytes.len() as f64;
        worst = worst.max(((ones - n / 2.0) / (n / 4.0).sqrt()).abs());
    }
    worst
}

/// Largest correlation, in standard deviations, of any n-bit stretch with the given bits.
fn correlation(bytes: &[u8], secret: &[bool]) -> f64 {
    let n = secret.len();
    let agree = |chunk: &[u8]| {
        secret.iter().enumerate().filter(|(i, &s)| (chunk[i / 8] >> (i % 8) & 1 == 1) == s).count()
    };
    let worst =
        bytes.chunks_exact(n / 8).map(|c| (agree(c) as f64 - n as f64 / 2.0).abs()).fold(0.0, f64::max);
    worst / (n as f64 / 4.0).sqrt()
}

#[test]
fn the_measures_can_fail() {
    let secret: Vec<bool> = values(N, Ring::new(8).unwrap(), 3).iter().map(|v| v >> 7 == 1).collect();
    let mut leak = vec![0u8; N / 8];
    secret.iter().enumerate().for_each(|(i, &s)| leak[i / 8] |= u8::from(s) << (i % 8));
    assert!(correlation(&leak, &secret) > 40.0);
    assert!(deviation(&vec![0x55; 100_000]) > 40.0);
    let skewed: Vec<u8> =
        values(100_000, Ring::new(8).unwrap(), 4).iter().map(|&v| (v | (v >> 3 & 1)) as u8).collect();
    assert!(deviation(&skewed) > 40.0);
}

pub(crate) fn inspect(
    kind: OtKind,
    ring: Ring,
    x: &[u64],
    f: impl Fn(&mut Session, &[u64]) -> Vec<u64> + Sync,
) -> [Vec<u64>; 2] {
    let mut r = vec![0; x.len()];
    Prg::new(21).words(&mut r);
    r.iter_mut().for_each(|r| *r = ring.reduce(*r));
    let shares = [r.clone(), x.iter().zip(&r).map(|(&x, &r)| ring.sub(x, r)).collect()];
    let out = run(kind, 1 << 20, |s| f(s, &shares[s.party().index()]));
    for heard in &out.heard {
        let heard = &heard[SETUP..];
        assert!(heard.len() > 1000);
        assert!(deviation(heard) < 7.0, "{kind:?}: {}", deviation(heard));
        for bit in [0, ring.bits() - 2, ring.bits() - 1] {
            let secret: Vec<bool> = x.iter().map(|v| v >> bit & 1 == 1).collect();
            assert!(correlation(heard, &secret) < 7.0, "{kind:?} bit {bit}");
        }
    }
    out.out
}

#[test]
fn received_bytes_are_uniform_whatever_the_input() {
    let ring = Ring::new(40).unwrap();
    for kind in [OtKind::Iknp, OtKind::SILENT] {
        for x in [values(N, ring, 5), vec![0; N], vec![ring.mask(); N], (0..N as u64).collect()] {
            inspect(kind, ring, &x, |s, x| relu(s, x, ring).unwrap());
            inspect(kind, ring, &x, |s, x| truncate(s, x, 8, ring, Range::Any, Rounding::Floor).unwrap());
        }
    }
}

#[test]
fn received_bytes_of_products_are_uniform_whatever_the_input() {
    let (ring, wide) = (Ring::new(12).unwrap(), Ring::new(15).unwrap());
    let factor = Factor::new(ring, Range::Small).unwrap();
    for x in [values(N, ring, 5), vec![0; N]] {
        inspect(OtKind::SILENT, ring, &x, |s, x| multiply(s, (x, factor), (x, factor), wide).unwrap());
        inspect(OtKind::SILENT, ring, &x, |s, x| square(s, x, factor, wide).unwrap());
        inspect(OtKind::SILENT, ring, &x, |s, x| {
            multiply_rows(s, (x, factor), (&x[..x.len() / 32], factor), wide).unwrap()
        });
    }
}

#[test]
fn received_bytes_of_functions_are_uniform_whatever_the_input() {
    let ring = Ring::new(16).unwrap();
    let at = Interval::between(-8.0, 8.0, 10).unwrap();
    let fit = Spline::fit(&|x| Function::Sigmoid.at(x), (at, ring), 12, 1.0 / 512.0).unwrap();
    let random = values(N, Ring::new(13).unwrap(), 5);
    for x in [random, vec![0; N], (0..N as u64).collect()] {
        let out = inspect(OtKind::SILENT, ring, &x, |s, x| {
            spline(s, (x, ring), &fit.shape, Some(&fit.pieces), Party::Zero, ring).unwrap()
        });
        for share in out {
            let bytes: Vec<u8> = share.iter().map(|&v| v as u8).collect();
            assert!(deviation(&bytes) < 7.0);
        }
    }
}

#[test]
fn output_shares_are_uniform() {
    let ring = Ring::new(8).unwrap();
    let x: Vec<u64> = vec![5; 1 << 16];
    let out = inspect(OtKind::SILENT, ring, &x, |s, x| relu(s, x, ring).unwrap());
    for share in &out {
        let bytes: Vec<u8> = share.iter().map(|&v| v as u8).collect();
        assert!(deviation(&bytes) < 7.0);
    }
    assert!(add(ring, &out).iter().all(|&v| v == 5));
}

/// Any change of wire format shows here; if it is meant, raise the version in the greeting and pin anew.
#[test]
fn transcript_is_pinned() {
    let pins = [(OtKind::Iknp, "927a01b6751f5eb20ba33b9865ce17feb70530f8acb406d3d9c7cd377100f2a38caa670d80a08eb3970431a86974bbaa9685b913bf99f8eb6e8787edb535991d"), (OtKind::SILENT, "8be5b572b74a7887740ee04c97d0369179783450ac49ebaa85ba35c60e8b1db833d2f6eee1b7a59e15c7aafe2d698ea9bc077c4534505cfcf73df4c39dccd8a1")];
    for (kind, pin) in pins {
        let ring = Ring::new(37).unwrap();
        let shares = share(&values(500, ring, 1), ring, 2);
        let (a, b) = memory_pair();
        let party = |ch: MemoryChannel, p: Party, seed| {
            let mut h = Recorder { inner: ch, hash: std::sync::Arc::default() };
            let hash = h.hash.clone();
            h.flush().unwrap();
            let mut s = Session::new_deterministic(Box::new(h), p, kind, seed).unwrap();
            for comparison in [Comparison::Tree, Comparison::Ripple(2), Comparison::Ripple(4)] {
                s.set_comparison(comparison);
                relu(&mut s, &shares[p.index()], ring).unwrap();
            }
            let digest = hash.lock().unwrap().clone().finalize();
            digest.iter().map(|b| format!("{b:02x}")).collect::<String>()
        };
        let both = std::thread::scope(|t| {
            let one = t.spawn(|| party(b, Party::One, 11));
            party(a, Party::Zero, 10) + &one.join().unwrap()
        });
        assert_eq!(both, pin, "{kind:?}");
    }
}

struct Recorder {
    inner: MemoryChannel,
    hash: std::sync::Arc<std::sync::Mutex<Sha256>>,
}

impl Channel for Recorder {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        self.inner.send(data)
    }
    fn recv(&mut self, buf: &mut [u8]) -> Result<()> {
        self.inner.recv(buf)?;
        self.hash.lock().unwrap().update(buf);
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

#[test]
fn tcp_carries_large_crossing_messages() {
    let ring = Ring::new(64).unwrap();
    let x = values(1 << 16, ring, 6);
    let shares = share(&x, ring, 7);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let party = |ch: TcpChannel, p: Party| {
        let mut s = Session::new(Box::new(ch), p, OtKind::SILENT).unwrap();
        let out = relu(&mut s, &shares[p.index()], ring).unwrap();
        // Both send 16 MB before either receives.
        s.channel().send(&vec![7; 1 << 24]).unwrap();
        let mut back = vec![0; 1 << 24];
        s.channel().recv(&mut back).unwrap();
        assert!(back.iter().all(|&b| b == 7));
        out
    };
    let out = std::thread::scope(|t| {
        let one = t.spawn(|| {
            party(TcpChannel::connect(addr, std::time::Duration::from_secs(5)).unwrap(), Party::One)
        });
        [party(TcpChannel::accept(&listener).unwrap(), Party::Zero), one.join().unwrap()]
    });
    for (x, got) in x.iter().zip(add(ring, &out)) {
        assert_eq!(got, if ring.signed(*x) > 0 { *x } else { 0 });
    }
}

#[test]
fn a_vanished_peer_is_an_error() {
    let ring = Ring::new(37).unwrap();
    let (a, b) = memory_pair();
    std::thread::scope(|t| {
        t.spawn(|| drop(Session::new(Box::new(b), Party::One, OtKind::SILENT).unwrap()));
        let mut s = Session::new(Box::new(a), Party::Zero, OtKind::SILENT).unwrap();
        assert!(matches!(relu(&mut s, &[1, 2, 3], ring), Err(MpcError::Closed)));
    });
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let mut ch = TcpChannel::connect(addr, std::time::Duration::from_secs(5)).unwrap();
    ch.set_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
    assert!(matches!(ch.recv(&mut [0; 4]), Err(MpcError::Io(_))));
    drop(listener.accept().unwrap());
    assert!(matches!(ch.recv(&mut [0; 4]), Err(MpcError::Io(_))));
}
