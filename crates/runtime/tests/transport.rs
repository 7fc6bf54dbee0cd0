//! Server and client over sockets: sessions, TLS, metrics, and every kind of fault.
#![allow(clippy::unwrap_used)]

mod common;

use common::{compare, inputs, small_net, Batch, Builder, Linear, Rng};
use hushnet_runtime::channel::Channel;
use hushnet_runtime::error::code;
use hushnet_runtime::transport::{connect, ConnectOptions, Server, ServerLimits, ServerOptions, TlsFiles};
use hushnet_runtime::wire::{Begin, Block, FrameBuilder, Hello, Kind, PROTOCOL};
use hushnet_runtime::ClientSession;
use hushnet_runtime::{Client, ClientOptions, Compute, Error, ProtocolError, ServerPlan, TransportError};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tungstenite::Message;

const IMAGES: usize = 7;

fn builder() -> &'static Builder {
    static NET: OnceLock<Builder> = OnceLock::new();
    NET.get_or_init(|| small_net(2048, 11, &Linear { band: 2, ..Linear::default() }))
}

fn start(options: ServerOptions) -> Server {
    Server::start(ServerPlan::new(&builder().plan(), Compute::default()).unwrap(), &options).unwrap()
}

/// What every fault is tried over.
const CARRIERS: [&str; 2] = ["ws", "hush"];

fn url_over(carrier: &str, server: &Server) -> String {
    format!("{carrier}://{}", server.address())
}

fn open(url: &str, options: &ConnectOptions) -> Result<Client, Error> {
    Client::open(Box::new(connect(url, options)?), ClientOptions::default())
}

fn infer_exactly(client: &mut Client, images: usize, seed: u64) {
    let batches = Batch::random(client.plan(), images, &mut Rng(seed), 1.0);
    let (outputs, trace) = client.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(())).unwrap();
    compare(builder(), &batches, images, &outputs);
    assert!(trace.bytes_up > 0 && trace.bytes_down > 0);
}

fn works(server: &Server, seed: u64) {
    let carrier = CARRIERS[seed as usize % 2];
    let mut client = open(&url_over(carrier, server), &ConnectOptions::default()).unwrap();
    infer_exactly(&mut client, IMAGES, seed);
    client.close().unwrap();
}

fn infer_fails(server: &Server, carrier: &str) -> Error {
    let mut client = open(&url_over(carrier, server), &ConnectOptions::default()).unwrap();
    let batches = Batch::random(client.plan(), 2, &mut Rng(1), 1.0);
    client.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(())).unwrap_err()
}

fn http(server: &Server, path: &str) -> String {
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    write!(tcp, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    tcp.read_to_string(&mut text).unwrap();
    text
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn sessions_metrics_and_several_batches() {
    for carrier in CARRIERS {
        sessions_over(carrier);
    }
}

fn sessions_over(carrier: &str) {
    let server = start(ServerOptions::default());
    assert!(http(&server, "/healthz").ends_with("ok\n"));
    let mut client = open(&url_over(carrier, &server), &ConnectOptions::default()).unwrap();
    infer_exactly(&mut client, 3, 1);
    infer_exactly(&mut client, 2048 + 1, 2);
    infer_exactly(&mut client, 1, 3);
    client.close().unwrap();
    std::thread::scope(|s| {
        for i in 0..6 {
            let server = &server;
            s.spawn(move || works(server, 100 + i));
        }
    });
    eventually("all sessions end", || server.stats().active == 0);
    let stats = server.stats();
    assert_eq!((stats.sessions, stats.blocks, stats.images), (7, 10, 3 + 2049 + 1 + 6 * IMAGES as u64));
    assert_eq!(stats.protocol_errors + stats.transport_errors + stats.internal_errors, 0);
    let text = http(&server, "/metrics");
    assert!(
        text.contains("hushnet_sessions_total 7\n") && text.contains("hushnet_blocks_total 10\n"),
        "{text}"
    );
    assert!(text.contains(&format!("hushnet_bytes_total{{direction=\"sent\"}} {}\n", stats.bytes_sent)));
    assert!(http(&server, "/nothing").starts_with("HTTP/1.1 404"));
}

#[test]
fn tls_with_a_certificate_of_ones_own() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let folder = std::env::temp_dir().join(format!("hushnet-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = Some(TlsFiles { certificate: certificate.clone(), key: key.clone() });
    let server = start(ServerOptions { host: "localhost".into(), tls, ..ServerOptions::default() });
    let other = start(ServerOptions::default());
    let unchecked = ConnectOptions { insecure_tls: true, ..ConnectOptions::default() };
    for carrier in CARRIERS {
        let url = format!("{carrier}s://localhost:{}", server.address().port());
        let own = ConnectOptions { ca: Some(certificate.clone()), ..ConnectOptions::default() };
        for options in [own, unchecked.clone()] {
            let mut client = open(&url, &options).unwrap();
            infer_exactly(&mut client, IMAGES, 5);
            infer_exactly(&mut client, 2048 + IMAGES, 6);
        }
        let error = open(&url, &ConnectOptions::default()).err().unwrap();
        assert!(matches!(error, Error::Transport(TransportError::Tls(_))), "{error:?}");
        // A plain client of a TLS port, and the other way round.
        let plain = open(&url.replacen("s:", ":", 1), &ConnectOptions::default()).err().unwrap();
        assert!(
            matches!(plain, Error::Transport(_) | Error::Protocol(ProtocolError::NotAFrame(_))),
            "{plain:?}"
        );
        let secure = url_over(&format!("{carrier}s"), &other);
        let error = open(&secure, &unchecked).err().unwrap();
        assert!(matches!(error, Error::Transport(TransportError::Tls(_))), "{error:?}");
        let mut client = open(&url, &unchecked).unwrap();
        infer_exactly(&mut client, 1, 6);
    }
    // What `openssl req -x509` makes says of itself that it is an authority. In the client's own file it is trusted as it stands.
    let names = vec!["localhost".to_owned()];
    let key_pair = rcgen::KeyPair::generate().unwrap();
    let mut request = rcgen::CertificateParams::new(names).unwrap();
    request.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    std::fs::write(&certificate, request.self_signed(&key_pair).unwrap().pem()).unwrap();
    std::fs::write(&key, key_pair.serialize_pem()).unwrap();
    let url = format!("hushs://localhost:{}", server.address().port());
    let own = ConnectOptions { ca: Some(certificate.clone()), ..ConnectOptions::default() };
    let error = open(&url, &own).err().unwrap().to_string();
    assert!(error.contains("not signed by an authority"), "{error}");
    server.reload_certificate().unwrap();
    infer_exactly(&mut open(&url, &own).unwrap(), 1, 8);
    let elsewhere = format!("hushs://127.0.0.1:{}", server.address().port());
    let error = open(&elsewhere, &own).err().unwrap().to_string();
    assert!(error.contains("another name"), "{error}");
    std::fs::write(&certificate, "nothing").unwrap();
    assert!(server.reload_certificate().is_err());
    infer_exactly(&mut open(&url, &unchecked).unwrap(), 1, 9);
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    let wrong = Some(TlsFiles { certificate: key, key: certificate });
    let plan = ServerPlan::new(&builder().plan(), Compute::default()).unwrap();
    let error = Server::start(plan, &ServerOptions { tls: wrong, ..ServerOptions::default() }).err().unwrap();
    assert!(matches!(error, Error::Transport(TransportError::Tls(_))), "{error:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// A client that may say anything, over either carrier.
enum Raw {
    WebSocket(Box<tungstenite::WebSocket<TcpStream>>),
    Bare(TcpStream),
}

impl Raw {
    fn connect(carrier: &str, server: &Server) -> Self {
        let tcp = TcpStream::connect(server.address()).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        match carrier {
            "hush" => Self::Bare(tcp),
            _ => Self::WebSocket(Box::new(
                tungstenite::client(format!("ws://{}/ws", server.address()), tcp).unwrap().0,
            )),
        }
    }

    fn tcp(&mut self) -> &mut TcpStream {
        match self {
            Self::WebSocket(socket) => socket.get_mut(),
            Self::Bare(tcp) => tcp,
        }
    }

    /// A message; the server may have closed already: what it answered is looked at afterwards.
    fn send(&mut self, bytes: &[u8]) {
        let _ = match self {
            Self::WebSocket(socket) => socket.send(Message::Binary(bytes.to_vec().into())).is_ok(),
            Self::Bare(tcp) => tcp.write_all(bytes).is_ok(),
        };
    }

    /// A frame from the server, or nothing any more.
    fn read(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::WebSocket(socket) => loop {
                match socket.read() {
                    Ok(Message::Binary(bytes)) => return Some(bytes.to_vec()),
                    Ok(Message::Close(_)) | Err(_) => return None,
                    Ok(_) => {}
                }
            },
            Self::Bare(tcp) => {
                let mut frame = vec![0; 16];
                tcp.read_exact(&mut frame).ok()?;
                let length = u32::from_le_bytes(frame[12..].try_into().unwrap());
                frame.resize(16 + length as usize, 0);
                tcp.read_exact(&mut frame[16..]).ok()?;
                Some(frame)
            }
        }
    }

    fn control(&mut self, kind: Kind, message: &impl prost::Message) {
        self.send(FrameBuilder::message(kind, message).unwrap().bytes());
    }

    fn hello(&mut self) {
        self.control(Kind::Hello, &Hello { protocol: PROTOCOL, producer: "test".into(), ..Hello::default() });
    }

    fn greet(&mut self) {
        self.hello();
        self.control(Kind::Begin, &Begin { seed: vec![1; 32], images: 0 });
    }

    /// Something to work on: asks for the set-up.
    fn set_up(&mut self) {
        self.send(FrameBuilder::reuse(vec![], Kind::Setup, 1, 0, 0).unwrap().finish().bytes());
    }

    /// The code of the Error frame that the server sends before it closes, if it does.
    fn answer(&mut self) -> Option<u32> {
        loop {
            let frame = self.read()?;
            if frame[3] == Kind::Error as u8 {
                return Some(u32::from(frame[17]));
            }
        }
    }
}

#[test]
fn a_misbehaving_client_gets_an_error_and_the_server_lives_on() {
    for carrier in CARRIERS {
        misbehave_over(carrier);
    }
}

#[allow(clippy::too_many_lines)] // One list of misbehaviours.
fn misbehave_over(carrier: &str) {
    let server = start(ServerOptions::default());
    let bare = carrier == "hush";
    let mut errors = 0;
    let mut check = |name: &str, wanted: Option<u32>, act: &mut dyn FnMut(&mut Raw)| {
        let mut socket = Raw::connect(carrier, &server);
        act(&mut socket);
        let got = socket.answer();
        assert!(
            got == wanted || (got.is_none() && wanted.is_some() && name.starts_with("oversize")),
            "{carrier}, {name}: {got:?}"
        );
        errors += 1;
        eventually(name, || server.stats().protocol_errors + server.stats().transport_errors == errors);
        works(&server, errors);
    };
    let protocol = Some(code::PROTOCOL);
    if bare {
        // What does not begin like a frame goes to HTTP; behind the first magic everything is ours.
        check("garbage behind the magic", protocol, &mut |s| s.send(&[&b"HN"[..], &[0xab; 998]].concat()));
        check("garbage behind a frame", protocol, &mut |s| {
            s.hello();
            s.send(&[0xab; 1000]);
        });
        check("cut off in a header", None, &mut |s| {
            s.send(b"HN\x01\x01");
            s.tcp().shutdown(std::net::Shutdown::Write).unwrap();
        });
        check("announces more than it may", protocol, &mut |s| {
            let mut header =
                FrameBuilder::message(Kind::Hello, &Hello::default()).unwrap().bytes()[..16].to_vec();
            header[12..].copy_from_slice(&u32::MAX.to_le_bytes());
            s.send(&header);
        });
    } else {
        check("garbage", protocol, &mut |s| s.send(&[0xab; 1000]));
        check("empty", protocol, &mut |s| s.send(&[]));
        check("text", protocol, &mut |s| {
            if let Raw::WebSocket(socket) = s {
                let _ = socket.send(Message::Text("hello".into()));
            }
        });
        check("not WebSocket data", protocol, &mut |s| s.tcp().write_all(&[0xff; 200]).unwrap());
    }
    check("version in the header", protocol, &mut |s| {
        let mut bytes = FrameBuilder::message(Kind::Hello, &Hello { protocol: PROTOCOL, ..Hello::default() })
            .unwrap()
            .bytes()
            .to_vec();
        bytes[2] = 7;
        s.send(&bytes);
    });
    check("version in the greeting", protocol, &mut |s| {
        s.control(Kind::Hello, &Hello { protocol: 1, ..Hello::default() });
    });
    check("greeting that is no message", protocol, &mut |s| {
        s.send(FrameBuilder::with_payload(Kind::Hello, &[0xff; 9]).unwrap().bytes());
    });
    check("no greeting", protocol, &mut |s| s.control(Kind::Begin, &Begin { seed: vec![1; 32], images: 0 }));
    check("short seed", protocol, &mut |s| {
        s.control(Kind::Hello, &Hello { protocol: PROTOCOL, ..Hello::default() });
        s.control(Kind::Begin, &Begin { seed: vec![1; 31], images: 0 });
    });
    for (index, images) in [(0, 0), (0, 2049), (1, 5), (u32::MAX, 5)] {
        check("impossible block", protocol, &mut |s| {
            s.greet();
            s.control(Kind::Block, &Block { index, images });
        });
    }
    check("two set-ups", protocol, &mut |s| {
        s.greet();
        s.set_up();
        s.set_up();
    });
    let plan = builder().plan();
    let right = plan.stages()[1].linear().unwrap().request_bytes(0);
    for (stage, tile, length) in
        [(1, 0, right - 1), (1, 0, right + 1), (1, 1, right), (3, 0, right), (1, 0, 0)]
    {
        check("wrong request", protocol, &mut |s| {
            s.greet();
            s.control(Kind::Block, &Block { index: 0, images: 5 });
            s.send(FrameBuilder::reuse(vec![], Kind::Request, stage, tile, length).unwrap().finish().bytes());
        });
    }
    check("oversize frame", protocol, &mut |s| {
        let long = vec![0; plan.largest_frame() + 1];
        s.send(FrameBuilder::with_payload(Kind::Hello, &long).unwrap().bytes());
    });
    check("vanishes mid-layer", None, &mut |s| {
        s.greet();
        s.control(Kind::Block, &Block { index: 0, images: 5 });
        s.send(FrameBuilder::reuse(vec![], Kind::Request, 1, 0, right).unwrap().finish().bytes());
        s.tcp().shutdown(std::net::Shutdown::Both).unwrap();
    });
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    tcp.write_all(&[0; 4096]).unwrap();
    let mut text = Vec::new();
    let _ = tcp.read_to_end(&mut text);
    works(&server, 99);
    eventually("all sessions end", || server.stats().active == 0);
    assert_eq!(server.stats().internal_errors, 0);
}

#[test]
fn silent_clients_time_out_and_full_servers_refuse() {
    let limits = ServerLimits {
        sessions: 1,
        idle_timeout: Duration::from_millis(700),
        handshake_timeout: Duration::from_millis(300),
        line: Duration::from_millis(100),
        ..ServerLimits::default()
    };
    let server = start(ServerOptions { limits, ..ServerOptions::default() });
    for (refused, carrier) in CARRIERS.into_iter().enumerate() {
        let mut silent = Raw::connect(carrier, &server);
        if carrier == "hush" {
            // A frame begins and never ends.
            silent.send(&FrameBuilder::message(Kind::Hello, &Hello::default()).unwrap().bytes()[..15]);
        }
        assert_eq!(silent.answer(), Some(code::TIMEOUT));
        eventually("the slot is free", || server.stats().active == 0);
        let mut held = Raw::connect(carrier, &server);
        held.greet();
        eventually("a guest takes no slot", || (server.stats().active, server.stats().guests) == (0, 1));
        assert!(http(&server, "/healthz").starts_with("HTTP/1.1 200"));
        held.set_up();
        eventually("the slot is taken", || server.stats().active == 1);
        let health = http(&server, "/healthz");
        assert!(health.starts_with("HTTP/1.1 503") && health.ends_with("full\n"), "{health}");
        assert!(http(&server, "/livez").ends_with("ok\n"));
        let error = infer_fails(&server, carrier);
        assert!(matches!(&error, Error::Protocol(ProtocolError::Peer { code: code::BUSY, .. })), "{error:?}");
        assert_eq!(server.stats().refused, refused as u64 + 1);
        assert_eq!(held.answer(), Some(code::TIMEOUT));
        eventually("the slot is free again", || server.stats().active == 0);
        works(&server, refused as u64);
        eventually("the session has ended", || server.stats().active == 0);
    }
    // One byte of the magic, and nothing more: no session, and cut off.
    let mut slow = TcpStream::connect(server.address()).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    slow.write_all(b"H").unwrap();
    let mut nothing = Vec::new();
    let _ = slow.read_to_end(&mut nothing);
    assert!(nothing.is_empty());
    // A connection that never finishes its request is cut off.
    let mut slow = TcpStream::connect(server.address()).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    slow.write_all(b"GET /ws HTTP/1.1\r\nHost:").unwrap();
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    let small = ServerLimits { memory_bytes: 1000, ..ServerLimits::default() };
    let plan = ServerPlan::new(&builder().plan(), Compute::default()).unwrap();
    let error =
        Server::start(plan, &ServerOptions { limits: small, ..ServerOptions::default() }).err().unwrap();
    assert!(matches!(error, Error::Plan(hushnet_runtime::PlanError::TooLarge { .. })), "{error:?}");
    let taken = ServerOptions { port: server.address().port(), ..ServerOptions::default() };
    let plan = ServerPlan::new(&builder().plan(), Compute::default()).unwrap();
    let error = Server::start(plan, &taken).err().unwrap();
    assert!(matches!(error, Error::Transport(TransportError::Listen { .. })), "{error:?}");
}

/// A client's seconds beside peers that keep what they can take: places, slots, connections. Other programs may hold up a
/// run, so one of three has to be in time, and waiting processes for each core lengthen all times.
#[test]
fn a_good_client_is_served_beside_two_hundred_bad_ones() {
    let load: f64 = std::fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(1.0);
    let cores =
        std::thread::available_parallelism().map_or(1.0, |n| f64::from(u32::try_from(n.get()).unwrap()));
    let allowed = Duration::from_secs_f64(2.0 * (load / cores).max(1.0));
    let mut runs = Vec::new();
    for _ in 0..3 {
        let (alone, beside) = beside_two_hundred();
        if beside < alone + allowed {
            return;
        }
        runs.push((alone, beside));
    }
    panic!("seconds alone and beside: {runs:?}; {allowed:?} more are allowed");
}

/// Another address of this machine, where it has one.
const ELSEWHERE: [u8; 4] = if cfg!(target_os = "linux") { [127, 0, 0, 2] } else { [127, 0, 0, 1] };

/// A connection that comes from an address of this machine.
fn connect_from(address: [u8; 4], server: &Server) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((address, 0).into()).unwrap();
        socket.connect(server.address()).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream
}

/// No session gives its slot here, so that the line alone decides: counts, not times.
#[cfg(target_os = "linux")] // It needs two addresses.
#[test]
fn a_peer_with_forty_sessions_in_line_keeps_nobody_waiting() {
    let limits = ServerLimits {
        sessions: 2,
        patience: Duration::from_secs(300),
        line: Duration::from_secs(60),
        ..ServerLimits::default()
    };
    let server = start(ServerOptions { limits, ..ServerOptions::default() });
    let mut hog: Vec<Raw> = (0..42).map(|_| Raw::Bare(connect_from(ELSEWHERE, &server))).collect();
    for peer in &mut hog {
        peer.greet();
        peer.set_up();
    }
    eventually("two work and forty wait", || (server.stats().active, server.stats().waiting) == (2, 40));
    std::thread::scope(|s| {
        let good = s.spawn(|| works(&server, 3));
        eventually("the good one waits, too", || server.stats().waiting == 41);
        // One of the two in work leaves, whichever it is.
        while !good.is_finished() && hog.len() > 10 {
            drop(hog.remove(0));
            std::thread::sleep(Duration::from_millis(100));
        }
        good.join().unwrap();
    });
    // Those that were in line and have left it are not served.
    let (stats, left) = (server.stats(), 42 - hog.len() as u64);
    assert!(stats.blocks == 1 && stats.waiting >= 40 - left, "{left} have left: {stats:?}");
    assert!(stats.sessions <= 3 + left, "two that came first, the good one, and those behind it: {stats:?}");
}

/// Seconds of a good client, alone and beside two hundred bad ones.
fn beside_two_hundred() -> (Duration, Duration) {
    let limits = ServerLimits { sessions: 4, ..ServerLimits::default() };
    let server = start(ServerOptions { limits, ..ServerOptions::default() });
    works(&server, 0);
    let start = Instant::now();
    works(&server, 1);
    let alone = start.elapsed();
    // Silent ones, HTTP/2 without a request, requests that never end, greetings, greetings with a byte of more, and set-ups
    // that nobody reads on.
    let mut bad: Vec<Raw> = (0..200).map(|_| Raw::Bare(connect_from(ELSEWHERE, &server))).collect();
    for (i, peer) in bad.iter_mut().enumerate() {
        match i % 6 {
            0 => {}
            1 => peer.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
            2 => peer.send(b"GET /ws HTTP/1.1\r\nHost:"),
            3 => peer.greet(),
            4 => {
                peer.greet();
                peer.send(b"H");
            }
            _ => {
                peer.greet();
                peer.set_up();
            }
        }
    }
    eventually("all slots are taken", || server.stats().active == 4);
    assert!(http(&server, "/livez").ends_with("ok\n"));
    let start = Instant::now();
    works(&server, 2);
    (alone, start.elapsed())
}

#[test]
fn descriptors_do_not_run_out() {
    let limits = ServerLimits { connections: 20, ..ServerLimits::default() };
    let server = start(ServerOptions { limits, ..ServerOptions::default() });
    let mut idle: Vec<_> = (0..40).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let mut closed = 0;
    for tcp in &mut idle {
        tcp.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        closed += usize::from(matches!(tcp.read(&mut [0]), Ok(0)));
    }
    assert_eq!(closed, 22, "the last eighth is for addresses that have few");
    if cfg!(target_os = "linux") {
        let _other = connect_from(ELSEWHERE, &server);
        let mut more = connect_from(ELSEWHERE, &server);
        more.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        more.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("ok\n"), "{text}");
    }
    drop(idle);
    eventually("connections are free again", || {
        TcpStream::connect(server.address())
            .and_then(|mut tcp| {
                tcp.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")?;
                let mut text = String::new();
                tcp.read_to_string(&mut text)
            })
            .is_ok_and(|read| read > 0)
    });
    works(&server, 1);
}

#[test]
fn pages_of_other_origins_are_refused() {
    let server =
        start(ServerOptions { origins: vec!["https://known.example".into()], ..ServerOptions::default() });
    let own = format!("http://{}", server.address());
    for (origin, taken) in [
        (own.as_str(), true),
        ("https://known.example", true),
        ("https://other.example", false),
        ("null", false),
    ] {
        let mut request = tungstenite::client::IntoClientRequest::into_client_request(format!(
            "ws://{}/ws",
            server.address()
        ))
        .unwrap();
        request.headers_mut().insert("Origin", origin.parse().unwrap());
        let tcp = TcpStream::connect(server.address()).unwrap();
        assert_eq!(tungstenite::client(request, tcp).is_ok(), taken, "{origin}");
    }
}

#[test]
fn a_stopping_server_tells_its_clients() {
    for carrier in CARRIERS {
        stop_over(carrier);
    }
}

fn stop_over(carrier: &str) {
    let server = start(ServerOptions::default());
    let mut client = open(&url_over(carrier, &server), &ConnectOptions::default()).unwrap();
    infer_exactly(&mut client, IMAGES, 5);
    let begin = Instant::now();
    server.stop();
    server.join().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(8), "an idle session does not use up the grace period");
    let batches = Batch::random(client.plan(), 2, &mut Rng(1), 1.0);
    let error = client.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(())).unwrap_err();
    let told = matches!(
        &error,
        Error::Protocol(ProtocolError::Peer { code: code::SHUTDOWN, .. })
            | Error::Transport(TransportError::Closed)
    );
    assert!(told, "{error:?}");
    assert!(matches!(
        connect(&url_over(carrier, &server), &ConnectOptions::default()),
        Err(Error::Transport(TransportError::Connect { .. }))
    ));
}

/// A server's end that says what it is told to, over either carrier.
enum FakeServer {
    WebSocket(Box<tungstenite::WebSocket<TcpStream>>),
    Bare(TcpStream),
}

impl FakeServer {
    fn accept(carrier: &str, listener: &TcpListener) -> Self {
        let tcp = listener.accept().unwrap().0;
        match carrier {
            "hush" => Self::Bare(tcp),
            _ => Self::WebSocket(Box::new(tungstenite::accept(tcp).unwrap())),
        }
    }

    fn heard(&mut self) -> bool {
        match self {
            Self::WebSocket(socket) => socket.read().is_ok(),
            Self::Bare(tcp) => {
                let mut header = [0; 16];
                tcp.read_exact(&mut header).is_ok() && {
                    let length = u32::from_le_bytes(header[12..].try_into().unwrap());
                    tcp.read_exact(&mut vec![0; length as usize]).is_ok()
                }
            }
        }
    }

    fn say(&mut self, bytes: Vec<u8>) -> bool {
        match self {
            Self::WebSocket(socket) => socket.send(Message::Binary(bytes.into())).is_ok(),
            Self::Bare(tcp) => tcp.write_all(&bytes).is_ok(),
        }
    }
}

/// A server that says what it is told to, frame by frame, each after something came from the client.
fn fake(carrier: &str, frames: Vec<Vec<u8>>) -> String {
    let carrier = carrier.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("{carrier}://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut socket = FakeServer::accept(&carrier, &listener);
        for bytes in frames {
            if !socket.heard() || !socket.say(bytes) {
                return;
            }
        }
    });
    url
}

#[test]
fn a_misbehaving_server_gets_a_typed_error() {
    for carrier in CARRIERS {
        misbehaving_server_over(carrier);
    }
}

fn misbehaving_server_over(carrier: &str) {
    let fake = |frames| fake(carrier, frames);
    let plan = builder().plan();
    let public =
        FrameBuilder::with_payload(Kind::Plan, &plan.public_part().unwrap()).unwrap().bytes().to_vec();
    let opening = |frames: Vec<Vec<u8>>| open(&fake(frames), &ConnectOptions::default()).err().unwrap();
    assert!(matches!(opening(vec![vec![1; 100]]), Error::Protocol(ProtocolError::NotAFrame(_))));
    assert!(matches!(opening(vec![]), Error::Transport(TransportError::Closed)));
    let cut = FrameBuilder::with_payload(Kind::Plan, &plan.public_part().unwrap()[..500]).unwrap();
    assert!(matches!(opening(vec![cut.bytes().to_vec()]), Error::Plan(_)));
    let mut version = public.clone();
    version[2] = 9;
    assert!(matches!(opening(vec![version]), Error::Protocol(ProtocolError::Version { got: 9, .. })));
    let mut small = ClientOptions::default();
    small.plan.limits.json_bytes = 1 << 20;
    let oversize = FrameBuilder::with_payload(Kind::Plan, &vec![0; 4 << 20]).unwrap().bytes().to_vec();
    let connection = connect(&fake(vec![oversize]), &ConnectOptions::default()).unwrap();
    let error = Client::open(Box::new(connection), small).err().unwrap();
    assert!(matches!(error, Error::Protocol(ProtocolError::Oversize { .. })), "{error:?}");
    // After the plan: vanish, a frame out of turn, wrong lengths, random ciphertexts.
    let frame = |kind, stage, tile, length: usize| {
        let mut f = FrameBuilder::reuse(vec![], kind, stage, tile, length).unwrap();
        let mut rng = Rng(3);
        f.payload_mut().iter_mut().for_each(|b| *b = rng.next() as u8);
        f.finish().bytes().to_vec()
    };
    let running = |frames: Vec<Vec<u8>>| {
        let mut client =
            open(&fake([vec![public.clone()], frames].concat()), &ConnectOptions::default()).unwrap();
        let batches = Batch::random(client.plan(), 3, &mut Rng(1), 1.0);
        let error = client.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(())).unwrap_err();
        let again = client.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(again, Error::Transport(TransportError::Closed)));
        error
    };
    assert!(matches!(running(vec![]), Error::Transport(TransportError::Closed)));
    assert!(matches!(
        running(vec![frame(Kind::Response, 1, 0, 8)]),
        Error::Protocol(ProtocolError::Unexpected { .. })
    ));
    assert!(matches!(
        running(vec![frame(Kind::SetupMask, 1, 0, 8)]),
        Error::Protocol(ProtocolError::Length { got: 8, .. })
    ));
    let mut setup = Vec::new();
    let stages: Vec<_> =
        plan.stages().iter().enumerate().filter_map(|(i, s)| Some((i as u32, s.linear()?))).collect();
    for (i, s) in &stages {
        setup.extend((0..s.tiles.len()).map(|t| frame(Kind::SetupMask, *i, t as u32, s.setup_bytes(t))));
    }
    let tiles = stages.iter().flat_map(|(i, s)| (0..s.tiles.len()).map(move |t| (*i, *s, t)));
    let responses: Vec<_> =
        tiles.map(|(i, s, t)| frame(Kind::Response, i, t as u32, s.response_bytes(t))).collect();
    // The fake answers once a message; the client sends Begin and Setup, then Block and Requests.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("{carrier}://{}", listener.local_addr().unwrap());
    let (plan_frame, over) = (public.clone(), carrier.to_owned());
    std::thread::spawn(move || {
        let mut socket = FakeServer::accept(&over, &listener);
        for bytes in [vec![plan_frame], setup, responses].concat() {
            assert!(socket.say(bytes));
        }
        while socket.heard() {}
    });
    let mut client = open(&url, &ConnectOptions::default()).unwrap();
    let batches = Batch::random(client.plan(), 3, &mut Rng(1), 1.0);
    let error = client.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(&error, Error::Range(e) if e.answer && e.stage == stages[0].1.name), "{error:?}");
    assert!(client.is_open());
}

#[test]
fn addresses_that_cannot_be_used() {
    for bad in [
        "http://localhost:1",
        "localhost:80",
        "ws://",
        "::",
        "wss://bad host:1",
        "hush://x:1/a/path",
        "hush://",
    ] {
        let error = connect(bad, &ConnectOptions::default()).err().unwrap();
        assert!(matches!(error, Error::Transport(TransportError::Address { .. })), "{bad}: {error:?}");
    }
    for closed in CARRIERS.map(|c| format!("{c}://127.0.0.1:9")) {
        let error = connect(&closed, &ConnectOptions::default()).err().unwrap();
        assert!(matches!(error, Error::Transport(TransportError::Connect { .. })), "{error:?}");
    }
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", other.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut tcp = other.accept().unwrap().0;
        let _ = tcp.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    });
    let error = connect(&url, &ConnectOptions::default()).err().unwrap();
    assert!(
        matches!(&error, Error::Transport(TransportError::Connect { detail, .. }) if detail.contains("404")),
        "{error:?}"
    );
    // A cancelled wait ends soon.
    for carrier in CARRIERS {
        let quiet = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{carrier}://{}", quiet.local_addr().unwrap());
        std::thread::spawn(move || {
            let socket = FakeServer::accept(carrier, &quiet);
            std::thread::sleep(Duration::from_secs(10));
            drop(socket);
        });
        let options = ConnectOptions::default();
        let mut connection = connect(&url, &options).unwrap();
        options.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(connection.recv(), Err(Error::Cancelled)));
    }
}
