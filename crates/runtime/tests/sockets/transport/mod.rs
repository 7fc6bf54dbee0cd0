//! Server and client over sockets: sessions, TLS, metrics, time and the end; faults of either side stand beside it.

mod clients;
mod servers;

use crate::common::{compare, inputs, small_net, Batch, Builder, Linear, Rng};
use clients::{connect_from, Raw, ELSEWHERE};
use hushnet_runtime::error::code;
use hushnet_runtime::transport::{connect, ConnectOptions, Server, ServerLimits, ServerOptions, TlsFiles};
use hushnet_runtime::wire::{FrameBuilder, Hello, Kind};
use hushnet_runtime::ClientSession;
use hushnet_runtime::{Client, ClientOptions, Compute, Error, ProtocolError, ServerPlan, TransportError};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

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
        // The client is told first.
        eventually("the refusal is counted", || server.stats().refused == refused as u64 + 1);
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
