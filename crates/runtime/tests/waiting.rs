//! Clients that wait: for weights that are being prepared, and in line.
#![allow(clippy::unwrap_used)]

mod common;

use common::{compare, inputs, small_net, Batch, Builder, Linear, Rng};
use hushnet_runtime::pending::Work;
use hushnet_runtime::session::{AnyModel, AnyPlan};
use hushnet_runtime::transport::{
    connect, About, ConnectOptions, Hosted, Server, ServerLimits, ServerOptions, TlsFiles,
};
use hushnet_runtime::wire::{Begin, FrameBuilder, Hello, Kind, PROTOCOL};
use hushnet_runtime::{Client, ClientOptions, ClientSession, Compute, Error, PlanError};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tungstenite::Message;

const IMAGES: usize = 3;

fn builder() -> &'static Builder {
    static NET: OnceLock<Builder> = OnceLock::new();
    NET.get_or_init(|| small_net(2048, 11, &Linear { band: 2, ..Linear::default() }))
}

/// A server of a model that was announced, and the work that prepares it.
fn announced(limits: ServerLimits) -> (Server, Work) {
    let plan = AnyPlan::ClientAided(builder().plan());
    let (model, work) = AnyModel::announce(&plan, Compute::default(), None, None).unwrap();
    let hosted = Hosted { name: "net".into(), served: model.served(), about: About::from(&plan) };
    (Server::start_models(vec![hosted], &ServerOptions { limits, ..ServerOptions::default() }).unwrap(), work)
}

/// A client's whole session; its answers are exact, or it fails.
fn session(url: &str) -> Result<(), Error> {
    let channel = connect(url, &ConnectOptions::default())?;
    let mut client = Client::open(Box::new(channel), ClientOptions::default())?;
    let batches = Batch::random(client.plan(), IMAGES, &mut Rng(1), 1.0);
    let (outputs, _) = client.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(()))?;
    compare(builder(), &batches, IMAGES, &outputs);
    client.close()
}

fn status(server: &Server, path: &str) -> (u32, String) {
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    write!(tcp, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    tcp.read_to_string(&mut text).unwrap();
    (text[9..12].parse().unwrap(), text.rsplit("\r\n\r\n").next().unwrap().trim().to_owned())
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn frame(kind: Kind, message: &impl prost::Message) -> Vec<u8> {
    FrameBuilder::message(kind, message).unwrap().bytes().to_vec()
}

/// Greeting, beginning, and so many set-ups.
fn beginning(set_ups: usize) -> Vec<Vec<u8>> {
    let hello = Hello { protocol: PROTOCOL, producer: "test".into(), ..Hello::default() };
    let begin = Begin { seed: vec![1; 32], images: 0 };
    let set_up = FrameBuilder::reuse(vec![], Kind::Setup, 1, 0, 0).unwrap().finish().bytes().to_vec();
    let mut frames = vec![frame(Kind::Hello, &hello), frame(Kind::Begin, &begin)];
    frames.extend(vec![set_up; set_ups]);
    frames
}

fn certificate() -> &'static rcgen::CertifiedKey<rcgen::KeyPair> {
    static MADE: OnceLock<rcgen::CertifiedKey<rcgen::KeyPair>> = OnceLock::new();
    MADE.get_or_init(|| rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap())
}

/// A client that has said something, and may leave; what it holds keeps its connection.
fn said(carrier: &str, server: &Server, frames: &[Vec<u8>]) -> Box<dyn std::any::Any> {
    let tcp = TcpStream::connect(server.address()).unwrap();
    match carrier {
        "ws" => {
            let url = format!("ws://{}/ws", server.address());
            let mut socket = tungstenite::client(url, tcp).unwrap().0;
            for frame in frames {
                socket.send(Message::Binary(frame.clone().into())).unwrap();
            }
            Box::new(socket)
        }
        "hush" => {
            (&tcp).write_all(&frames.concat()).unwrap();
            Box::new(tcp)
        }
        _ => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(certificate().cert.der().clone()).unwrap();
            let mut config =
                rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
            config.alpn_protocols = vec![b"hushnet/1".to_vec()];
            let name = "localhost".try_into().unwrap();
            let connection = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, tcp);
            stream.write_all(&frames.concat()).unwrap();
            Box::new(stream)
        }
    }
}

#[test]
fn a_server_listens_before_its_weights_are_prepared_and_clients_wait() {
    let (server, work) = announced(ServerLimits::default());
    assert!(!server.prepared());
    assert_eq!(status(&server, "/readyz"), (503, "preparing".into()));
    assert_eq!(status(&server, "/v2/health/ready"), (503, r#"{"ready":false}"#.into()));
    assert_eq!(status(&server, "/v2/models/net/ready").0, 503);
    assert_eq!(status(&server, "/healthz"), (200, "ok".into()));
    assert_eq!(status(&server, "/livez"), (200, "ok".into()));
    let (go, gone) = sync_channel::<()>(1);
    let held: Work = Box::new(move || {
        gone.recv().unwrap();
        work()
    });
    server.prepare(vec![("net".into(), held)]).unwrap();
    std::thread::scope(|scope| {
        let url = format!("hush://{}", server.address());
        let waits = scope.spawn(move || session(&url));
        eventually("it has greeted and works", || server.stats().active == 1);
        // Who leaves meanwhile is not waited for.
        for carrier in ["hush", "ws"] {
            let leaves = said(carrier, &server, &beginning(1));
            eventually("another one waits, too", || server.stats().active == 2);
            drop(leaves);
            eventually("it is gone", || server.stats().active == 1);
        }
        assert!(!waits.is_finished());
        go.send(()).unwrap();
        waits.join().unwrap().unwrap();
    });
    assert!(server.prepared());
    assert_eq!(status(&server, "/readyz"), (200, "ok".into()));
    assert_eq!(status(&server, "/v2/models/net/ready"), (200, r#"{"ready":true}"#.into()));
    server.stop();
    server.join().unwrap();
}

#[test]
fn a_model_that_cannot_be_prepared_ends_the_server_with_the_reason() {
    let (server, work) = announced(ServerLimits::default());
    let (go, gone) = sync_channel::<()>(1);
    let fails: Work = Box::new(move || {
        gone.recv().unwrap();
        drop(work);
        Err(PlanError::Structure("a weight is missing".into()).into())
    });
    server.prepare(vec![("net".into(), fails)]).unwrap();
    std::thread::scope(|scope| {
        let url = format!("hush://{}", server.address());
        let waits = scope.spawn(move || session(&url));
        eventually("a client waits", || server.stats().active == 1);
        go.send(()).unwrap();
        let error = waits.join().unwrap().unwrap_err().to_string();
        // Which of both it hears first is chance.
        assert!(error.contains("shutting down") || error.contains("internal error"), "{error}");
    });
    let error = server.join().unwrap_err().to_string();
    assert!(error.contains("a weight is missing"), "{error}");
}

#[test]
fn a_server_that_is_stopped_while_weights_are_prepared_ends_at_once() {
    let (server, work) = announced(ServerLimits::default());
    let (_go, gone) = sync_channel::<()>(1);
    let never: Work = Box::new(move || {
        // An error: nobody sends.
        let _ = gone.recv();
        drop(work);
        Ok(())
    });
    server.prepare(vec![("net".into(), never)]).unwrap();
    let _waits = said("hush", &server, &beginning(1));
    eventually("a client waits", || server.stats().active == 1);
    let start = Instant::now();
    server.stop();
    server.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

/// A server that is stopped before a model's turn has come drops the work; who waits for that model must not wait for ever.
#[test]
fn work_that_is_dropped_is_a_failure_for_who_waits() {
    let plan = AnyPlan::ClientAided(builder().plan());
    let (model, work) = AnyModel::announce(&plan, Compute::default(), None, None).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| model.ready().is_err());
        drop(work);
        assert!(waits.join().unwrap());
    });
}

/// Who waits has sent more than is read of it, so that nobody reads the end of its stream.
#[test]
fn who_leaves_the_line_is_seen_and_gives_its_place() {
    let folder = std::env::temp_dir().join(format!("hushnet-waiting-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let made = certificate();
    let tls = TlsFiles { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
    std::fs::write(&tls.certificate, made.cert.pem()).unwrap();
    std::fs::write(&tls.key, made.signing_key.serialize_pem()).unwrap();
    for carrier in ["hush", "ws", "hushs"] {
        let limits = ServerLimits {
            sessions: 1,
            line: Duration::from_secs(60),
            patience: Duration::from_secs(60),
            ..ServerLimits::default()
        };
        let tls = (carrier == "hushs").then(|| tls.clone());
        let plan = hushnet_runtime::ServerPlan::new(&builder().plan(), Compute::default()).unwrap();
        let server = Server::start(plan, &ServerOptions { limits, tls, ..ServerOptions::default() }).unwrap();
        let works = said(carrier, &server, &beginning(1));
        eventually("one works", || server.stats().active == 1);
        let mut waits: Vec<_> = (0..8).map(|_| said(carrier, &server, &beginning(20))).collect();
        eventually("the others wait", || server.stats().waiting == 8);
        let start = Instant::now();
        waits.truncate(3);
        eventually("five have left", || server.stats().waiting == 3);
        let seen = start.elapsed();
        // 50 ms on cores of its own.
        assert!(seen < Duration::from_secs(2), "{carrier}: {seen:?}");
        assert_eq!((server.stats().active, server.stats().guests), (1, 0));
        drop(works);
        eventually("those that stayed have their turn", || server.stats().waiting == 0);
        drop(waits);
        eventually("all are gone", || server.stats().active == 0);
        assert_eq!(server.stats().sessions, 4, "{carrier}: who has left does not begin");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
