//! ReLU between two processes over loopback TCP, one thread each; prints one JSON object.
//!
//! `relu_two_party [--n 1048576] [--bits 64] [--drop 0] [--ot silent|silent-large|silent-small|silent-tiny|softspoken|iknp] [--repeat 3]
//! [--chunk VALUES] [--op relu|max|truncate] [--digits 0]`; comparisons in a tree, or by a carry through digits of so many bits
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hushnet_mpc::{
    maximum, maximum_cost, relu, relu_cost, relu_dropping, relu_dropping_cost, truncate, truncate_cost,
    Comparison, Cost, CostModel, OtKind, Party, Prg, Range, Ring, Rounding, Session, SilentSize, TcpChannel,
};

#[derive(Clone)]
struct Options {
    n: usize,
    bits: u32,
    drop: u32,
    ot: String,
    op: String,
    digits: u32,
    repeat: usize,
    chunk: Option<usize>,
    connect: Option<String>,
}

fn options() -> Options {
    let mut o = Options {
        n: 1 << 20,
        bits: 64,
        drop: 0,
        ot: "silent".into(),
        op: "relu".into(),
        digits: 0,
        repeat: 3,
        chunk: None,
        connect: None,
    };
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        let v = args.next().unwrap_or_else(|| panic!("{a} needs a value"));
        match a.as_str() {
            "--n" => o.n = v.parse().unwrap(),
            "--bits" => o.bits = v.parse().unwrap(),
            "--drop" => o.drop = v.parse().unwrap(),
            "--repeat" => o.repeat = v.parse().unwrap(),
            "--chunk" => o.chunk = Some(v.parse().unwrap()),
            "--ot" => o.ot = v,
            "--op" => o.op = v,
            "--digits" => o.digits = v.parse().unwrap(),
            "--connect" => o.connect = Some(v),
            _ => panic!("unknown option {a}"),
        }
    }
    o
}

fn kind(name: &str) -> OtKind {
    match name {
        "iknp" => OtKind::Iknp,
        "softspoken" => OtKind::SoftSpoken,
        "silent-tiny" => OtKind::Silent(SilentSize::Tiny),
        "silent-small" => OtKind::Silent(SilentSize::Small),
        "silent-large" => OtKind::Silent(SilentSize::Large),
        "silent" => OtKind::SILENT,
        _ => panic!("unknown OT {name}"),
    }
}

fn comparison(o: &Options) -> Comparison {
    match o.digits {
        0 => Comparison::Tree,
        longest => Comparison::Ripple(longest),
    }
}

/// Both processes draw the same inputs from public seeds; each keeps its own shares.
fn inputs(n: usize, ring: Ring) -> (Vec<u64>, [Vec<u64>; 2]) {
    let (mut x, mut r) = (vec![0; n], vec![0; n]);
    Prg::new(1).words(&mut x);
    Prg::new(2).words(&mut r);
    x.iter_mut().for_each(|v| *v = ring.encode(ring.signed(ring.reduce(*v)) >> 2));
    r.iter_mut().for_each(|v| *v = ring.reduce(*v));
    let other = x.iter().zip(&r).map(|(&x, &r)| ring.sub(x, r)).collect();
    (x, [r, other])
}

fn peak_memory_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// Time this thread has spent on a core, in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Runs the operation `repeat` times; returns set-up seconds, wall and processor seconds of each, and the last result.
fn party(o: &Options, channel: TcpChannel, party: Party) -> (f64, Vec<[f64; 2]>, Vec<u64>, Session) {
    let ring = Ring::new(o.bits).unwrap();
    let (_, shares) = inputs(o.n, ring);
    let mine = &shares[party.index()];
    let start = Instant::now();
    let mut s = Session::new(Box::new(channel), party, kind(&o.ot)).unwrap();
    if let Some(chunk) = o.chunk {
        s.set_chunk(chunk);
    }
    s.set_comparison(comparison(o));
    s.ensure([64, 64]).unwrap();
    let setup = start.elapsed().as_secs_f64();
    let mut seconds = Vec::new();
    let mut out = Vec::new();
    for _ in 0..o.repeat {
        hushnet_mpc::open(&mut s, &[0], ring).unwrap();
        let (start, cpu) = (Instant::now(), cpu_seconds());
        out = match o.op.as_str() {
            "relu" if o.drop == 0 => relu(&mut s, mine, ring).unwrap(),
            "relu" => relu_dropping(&mut s, mine, ring, o.drop).unwrap(),
            "max" => {
                let (a, b) = mine.split_at(o.n / 2);
                maximum(&mut s, a, &b[..o.n / 2], ring, ring).unwrap()
            }
            "truncate" => truncate(&mut s, mine, 12, ring, Range::Small, Rounding::Floor).unwrap(),
            _ => panic!("unknown operation"),
        };
        seconds.push([start.elapsed().as_secs_f64(), cpu_seconds() - cpu]);
    }
    (setup, seconds, out, s)
}

fn predicted(o: &Options) -> (Cost, Cost) {
    let ring = Ring::new(o.bits).unwrap();
    let mut m = CostModel::new(kind(&o.ot));
    if let Some(chunk) = o.chunk {
        m = m.with_chunk(chunk);
    }
    m.set_comparison(comparison(o));
    hushnet_mpc::setup_cost(&mut m);
    m.ensure([64, 64]);
    let setup = m.cost();
    m.reset();
    match o.op.as_str() {
        "relu" if o.drop == 0 => relu_cost(&mut m, o.n, ring),
        "relu" => relu_dropping_cost(&mut m, o.n, ring, o.drop),
        "max" => maximum_cost(&mut m, o.n / 2, ring, ring),
        _ => truncate_cost(&mut m, o.n, 12, ring, Range::Small, Rounding::Floor),
    }
    (setup, m.cost())
}

fn check(o: &Options, mine: &[u64], theirs: &[u64]) -> bool {
    let ring = Ring::new(o.bits).unwrap();
    let (x, _) = inputs(o.n, ring);
    let got = mine.iter().zip(theirs).map(|(&a, &b)| ring.signed(ring.add(a, b)));
    match o.op.as_str() {
        "relu" => got.zip(&x).all(|(g, &x)| {
            let v = ring.signed(x);
            g == v.max(0) || g == 0 && (0..1 << o.drop).contains(&v)
        }),
        "max" => {
            let (a, b) = x.split_at(o.n / 2);
            got.zip(a.iter().zip(b)).all(|(g, (&a, &b))| g == ring.signed(a).max(ring.signed(b)))
        }
        _ => got.zip(&x).all(|(g, &x)| g == ring.signed(x) >> 12),
    }
}

fn main() {
    let o = options();
    if let Some(addr) = &o.connect {
        let channel = TcpChannel::connect(addr.as_str(), Duration::from_secs(10)).unwrap();
        let (_, _, out, mut s) = party(&o, channel, Party::One);
        let bytes: Vec<u8> = out.iter().flat_map(|v| v.to_le_bytes()).collect();
        s.channel().send(&bytes).unwrap();
        s.channel().flush().unwrap();
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(std::env::args().skip(1))
        .args(["--connect", &addr])
        .stdout(Stdio::inherit())
        .spawn()
        .unwrap();
    let (setup, seconds, out, mut s) = party(&o, TcpChannel::accept(&listener).unwrap(), Party::Zero);
    let stats = s.stats();
    let mut bytes = vec![0u8; 8 * out.len()];
    s.channel().recv(&mut bytes).unwrap();
    let theirs: Vec<u64> = bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
    let right = check(&o, &out, &theirs);
    child.wait().unwrap();
    let (setup_cost, cost) = predicted(&o);
    let median = |k: usize| {
        let mut v: Vec<f64> = seconds.iter().map(|s| s[k]).collect();
        v.sort_by(f64::total_cmp);
        v[v.len() / 2]
    };
    let units = if o.op == "max" { o.n / 2 } else { o.n };
    let json = serde_json::json!({
        "operation": o.op, "values": units, "ring_bits": o.bits, "dropped_bits": o.drop, "ot": o.ot,
        "processes": 2, "threads_per_party": 1, "network": "loopback TCP",
        "seconds": median(0), "cpu_seconds_of_0": median(1), "seconds_all": seconds, "setup_seconds": setup,
        "bytes_per_value": cost.bytes() as f64 / units as f64,
        "bytes_sent_by_0": cost.bytes_sent_by_0, "bytes_sent_by_1": cost.bytes_sent_by_1,
        "rounds": cost.rounds, "turns": cost.turns,
        "setup_bytes": setup_cost.bytes(), "setup_rounds": setup_cost.rounds,
        "session_bytes_sent_by_0": stats.bytes_sent, "session_bytes_received_by_0": stats.bytes_received,
        "peak_memory_mib": peak_memory_mib(), "correct": right,
    });
    println!("{json}");
    assert!(right, "wrong result");
}
