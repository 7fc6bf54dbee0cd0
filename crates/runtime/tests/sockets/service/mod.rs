//! A server as operators run it: several models, tokens, certificates of clients, limits by peer, pages and metrics.

mod operators;

use crate::common::{compare, inputs, small_net, Batch, Builder, Linear, Rng};
use hushnet_runtime::channel::Channel;
use hushnet_runtime::error::code;
use hushnet_runtime::session::AnyPlan;
use hushnet_runtime::transport::{
    connect, About, AccessToken, ConnectOptions, Hosted, PeerLimits, Server, ServerLimits, ServerOptions,
    TlsFiles,
};
use hushnet_runtime::wire::{FrameBuilder, Hello, Kind, PROTOCOL};
use hushnet_runtime::{
    Client, ClientOptions, ClientSession, Compute, Error, ProtocolError, ServerPlan, TransportError,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const IMAGES: usize = 3;
const TOKEN: &str = "anns-token-of-24-letters";

/// Two networks of one shape with other weights.
fn builders() -> &'static [Builder; 2] {
    static NETS: OnceLock<[Builder; 2]> = OnceLock::new();
    NETS.get_or_init(|| [11, 12].map(|seed| small_net(2048, seed, &Linear { band: 2, ..Linear::default() })))
}

fn hosted(name: &str, which: usize) -> Hosted {
    let plan = builders()[which].plan();
    let about = About::from(&AnyPlan::ClientAided(plan.clone()));
    let served = Arc::new(ServerPlan::new(&plan, Compute::default()).unwrap());
    Hosted { name: name.into(), served, about }
}

fn start(options: &ServerOptions) -> Server {
    Server::start_models(vec![hosted("first", 0), hosted("second", 1)], options).unwrap()
}

fn open(url: &str, options: &ConnectOptions) -> Result<Client, Error> {
    Client::open(Box::new(connect(url, options)?), ClientOptions::default())
}

/// Whether the answers are those of one of the two networks.
fn answers_as(client: &mut Client, which: usize, seed: u64) {
    let batches = Batch::random(client.plan(), IMAGES, &mut Rng(seed), 1.0);
    let (outputs, _) = client.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(())).unwrap();
    compare(&builders()[which], &batches, IMAGES, &outputs);
}

fn work(url: &str, options: &ConnectOptions, which: usize) {
    let mut client = open(url, options).unwrap();
    answers_as(&mut client, which, 5);
    client.close().unwrap();
}

fn refusal(result: Result<Client, Error>) -> (u32, String, u32) {
    match result.err().expect("refused") {
        Error::Protocol(ProtocolError::Peer { code, message, seconds }) => (code, message, seconds),
        Error::Protocol(e @ ProtocolError::NoModel { .. }) => (code::MODEL, e.to_string(), 0),
        Error::Protocol(e @ ProtocolError::Unauthorized) => (code::TOKEN, e.to_string(), 0),
        other => panic!("{other:?}"),
    }
}

fn with(model: Option<&str>, token: Option<&str>) -> ConnectOptions {
    let token = token.map(|t| AccessToken::new(t).unwrap());
    ConnectOptions { model: model.map(str::to_owned), token, ..ConnectOptions::default() }
}

fn http(address: SocketAddr, path: &str, header: &str) -> String {
    let mut tcp = TcpStream::connect(address).unwrap();
    let host = if header.starts_with("Host:") { "" } else { "Host: localhost\r\n" };
    write!(tcp, "GET {path} HTTP/1.1\r\n{host}{header}Connection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    tcp.read_to_string(&mut text).unwrap();
    text
}

fn body(answer: &str) -> serde_json::Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A folder of its own, gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hushnet-service-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        #[cfg(unix)]
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn models_go_by_name_over_every_carrier() {
    let server = start(&ServerOptions::default());
    let address = server.address();
    let plain = ConnectOptions::default();
    for (which, name) in ["first", "second"].into_iter().enumerate() {
        work(&format!("hush://{address}/{name}"), &plain, which);
        work(&format!("hush://{address}"), &with(Some(name), None), which);
        work(&format!("ws://{address}/ws/{name}"), &plain, which);
        work(&format!("ws://{address}"), &with(Some(name), None), which);
        work(&format!("ws://{address}/ws/{name}"), &with(Some(name), None), which);
    }
    for carrier in ["hush", "ws"] {
        for name in [None, Some("third"), Some("First"), Some("first.hush")] {
            let (code, message, _) = refusal(open(&format!("{carrier}://{address}"), &with(name, None)));
            assert_eq!((code, message.contains("first")), (code::MODEL, false), "{name:?}: {message}");
        }
    }
    let (code, ..) = refusal(open(&format!("ws://{address}/ws/third"), &plain));
    assert_eq!(code, code::MODEL);
    let (code, ..) = refusal(open(&format!("ws://{address}/ws/first"), &with(Some("second"), None)));
    assert_eq!(code, code::PROTOCOL);
    for bad in ["a/b", "..", "a%2f..", "a?b"] {
        let error = connect(&format!("hush://{address}/{bad}"), &plain).err().unwrap();
        assert!(matches!(error, Error::Transport(TransportError::Address { .. })), "{bad}: {error}");
    }
    let error = connect(&format!("hush://{address}/first"), &with(Some("second"), None)).err().unwrap();
    assert!(error.to_string().contains("another model"), "{error}");
    let listed = start(&ServerOptions { list_models: true, ..ServerOptions::default() });
    let (code, message, _) = refusal(open(&format!("hush://{}", listed.address()), &plain));
    assert!(code == code::MODEL && message.ends_with("this server has first, second"), "{message}");
    let alone = Server::start_models(vec![hosted("first", 0)], &ServerOptions::default()).unwrap();
    work(&format!("hush://{}", alone.address()), &plain, 0);
    work(&format!("hush://{}/first", alone.address()), &plain, 0);
    assert_eq!(refusal(open(&format!("hush://{}/second", alone.address()), &plain)).0, code::MODEL);
}

/// A greeting as bytes, and the code of the Error frame that answers it.
fn greeted_with(address: SocketAddr, bytes: &[u8]) -> Option<u32> {
    let mut tcp = TcpStream::connect(address).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let _ = tcp.write_all(bytes);
    let mut frame = vec![0; 18];
    tcp.read_exact(&mut frame).ok()?;
    (frame[3] == Kind::Error as u8).then(|| u32::from(frame[17]))
}

#[test]
fn hostile_names_find_nothing_and_cost_nothing() {
    let server = start(&ServerOptions::default());
    let address = server.address();
    let hello = |model: &str| {
        let hello = Hello { protocol: PROTOCOL, model: model.into(), ..Hello::default() };
        FrameBuilder::message(Kind::Hello, &hello).unwrap().bytes().to_vec()
    };
    for name in [
        "..",
        "../first",
        "./first",
        "/etc/passwd",
        "first/",
        "first\0",
        "FIRST",
        "first\n",
        "${x}",
        &"a".repeat(1900),
    ] {
        assert_eq!(greeted_with(address, &hello(name)), Some(code::MODEL), "{name:?}");
    }
    assert_eq!(greeted_with(address, &hello(&"a".repeat(4000))), Some(code::PROTOCOL));
    // A gigabyte that is announced, and one whose name says so: refused before room is made for it.
    let mut announced = hello("")[..16].to_vec();
    announced[12..].copy_from_slice(&(1_u32 << 30).to_le_bytes());
    assert_eq!(greeted_with(address, &announced), Some(code::PROTOCOL));
    let before = hushnet_runtime::trace::peak_memory();
    let mut long = hello("")[..16].to_vec();
    long[12] = 8;
    long.extend_from_slice(&[0x1a, 0x80, 0x80, 0x80, 0x80, 0x04, b'a', b'a']);
    assert_eq!(greeted_with(address, &long), Some(code::PROTOCOL));
    for path in ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", &"a".repeat(9000)] {
        let status = |page: String| http(address, &page, "").split(' ').nth(1).unwrap_or_default().to_owned();
        for page in [format!("/v2/models/{path}"), format!("/v2/models/{path}/ready")] {
            assert!(["404", "400"].contains(&status(page).as_str()), "{path}");
        }
    }
    if let (Some(before), Some(after)) = (before, hushnet_runtime::trace::peak_memory()) {
        assert!(after < before + (64 << 20), "{before} {after}");
    }
    // What comes behind a greeting is not read before the greeting has found a model.
    let flood = [hello("none"), vec![0xab; 1 << 20]].concat();
    assert_eq!(greeted_with(address, &flood), Some(code::MODEL));
    work(&format!("hush://{address}/first"), &ConnectOptions::default(), 0);
    assert_eq!(server.stats().internal_errors, 0);
}

#[test]
fn models_change_under_sessions_that_keep_theirs() {
    let server = start(&ServerOptions::default());
    let url = |name: &str| format!("hush://{}/{name}", server.address());
    let plain = ConnectOptions::default();
    let (mut first, mut second) =
        (open(&url("first"), &plain).unwrap(), open(&url("second"), &plain).unwrap());
    answers_as(&mut first, 0, 1);
    // `first` has other weights from now on, `second` is gone, `third` is new.
    server.set_models(vec![hosted("first", 1), hosted("third", 0)]).unwrap();
    answers_as(&mut first, 0, 2);
    answers_as(&mut second, 1, 3);
    work(&url("first"), &plain, 1);
    work(&url("third"), &plain, 0);
    assert_eq!(refusal(open(&url("second"), &plain)).0, code::MODEL);
    for broken in [vec![], vec![hosted("../first", 0)], vec![hosted("a", 0), hosted("a", 1)]] {
        let error = server.set_models(broken).unwrap_err();
        assert!(matches!(error, Error::Transport(TransportError::Models(_))), "{error}");
    }
    assert_eq!(server.models().into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["first", "third"]);
    work(&url("first"), &plain, 1);
    first.close().unwrap();
    second.close().unwrap();
    eventually("all sessions end", || server.stats().active == 0);
    assert_eq!(server.stats().sessions, 5);
}

#[test]
fn tokens_come_before_anything_else() {
    let folder = Folder::new("tokens");
    let tokens = folder.write("tokens", &format!("ann {TOKEN}\n"));
    let server = start(&ServerOptions { tokens: Some(tokens.clone()), ..ServerOptions::default() });
    let (hush, ws) =
        (format!("hush://{}/first", server.address()), format!("ws://{}/ws/first", server.address()));
    let wrong = "bobs-token-of-24-letters";
    for url in [&hush, &ws] {
        work(url, &with(None, Some(TOKEN)), 0);
        for token in [None, Some(wrong)] {
            let (code, message, _) = refusal(open(url, &with(None, token)));
            assert!(code == code::TOKEN && !message.contains(wrong), "{message}");
        }
    }
    // A page of a browser has no header for it: its greeting has the token.
    let hello = Hello { protocol: PROTOCOL, token: TOKEN.into(), ..Hello::default() };
    let tcp = TcpStream::connect(server.address()).unwrap();
    let mut socket = tungstenite::client(&ws, tcp).unwrap().0;
    let frame = FrameBuilder::message(Kind::Hello, &hello).unwrap();
    socket.send(tungstenite::Message::Binary(frame.into_bytes())).unwrap();
    assert_eq!(socket.read().unwrap().into_data()[3], Kind::Plan as u8);
    let page = |header: &str| http(server.address(), "/v2/models/first", header);
    assert!(page("").starts_with("HTTP/1.1 401") && page("").contains("www-authenticate: Bearer"));
    assert!(page(&format!("Authorization: Bearer {TOKEN}\r\n")).starts_with("HTTP/1.1 200"));
    // Without a token nobody learns which models there are.
    for url in [format!("hush://{}/none", server.address()), format!("ws://{}/ws/none", server.address())] {
        assert_eq!(refusal(open(&url, &with(None, None))).0, code::TOKEN, "{url}");
    }
    assert_eq!(server.stats().unauthorized, 8);
    // A token that is withdrawn; a file that cannot be used changes nothing.
    folder.write("tokens", &format!("bob {wrong}\n"));
    server.reload_tokens().unwrap();
    work(&hush, &with(None, Some(wrong)), 0);
    assert_eq!(refusal(open(&hush, &with(None, Some(TOKEN)))).0, code::TOKEN);
    folder.write("tokens", "nothing");
    assert!(server.reload_tokens().unwrap_err().to_string().contains("line 1"));
    work(&hush, &with(None, Some(wrong)), 0);
    // An address with too many wrong ones waits, right or wrong.
    for _ in 0..3 {
        let _ = open(&hush, &with(None, Some(TOKEN)));
    }
    for url in [&hush, &ws] {
        let (code, message, seconds) = refusal(open(url, &with(None, Some(wrong))));
        assert!(
            code == code::BUSY && (1..=60).contains(&seconds) && message.contains("too many wrong"),
            "{message}"
        );
    }
    let missing = ServerOptions { tokens: Some(folder.0.join("none")), ..ServerOptions::default() };
    let error = Server::start_models(vec![hosted("first", 0)], &missing).err().unwrap();
    assert!(matches!(error, Error::Transport(TransportError::Tokens(_))), "{error}");
}

#[test]
fn tokens_do_not_leave_in_the_clear() {
    let secret = with(None, Some(TOKEN));
    let unchecked = ConnectOptions { insecure_tls: true, ..secret.clone() };
    for (url, options) in [
        ("hush://192.0.2.1", &secret),
        ("ws://192.0.2.1", &secret),
        ("hush://localhost.example", &secret),
        ("hushs://192.0.2.1", &unchecked),
    ] {
        let start = Instant::now();
        let error = connect(url, options).err().unwrap();
        assert!(matches!(&error, Error::Transport(TransportError::Tokens(_))), "{url}: {error}");
        assert!(!error.to_string().contains(TOKEN) && start.elapsed() < Duration::from_secs(1), "{url}");
    }
}

/// A certificate that signs itself as an authority, and one that it has signed: PEM of certificate and key of each.
fn authority() -> [(String, String); 2] {
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let own = params.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(params, &key);
    let client_key = rcgen::KeyPair::generate().unwrap();
    let client = rcgen::CertificateParams::new(vec!["ann".to_owned()]).unwrap();
    let client = client.signed_by(&client_key, &issuer).unwrap();
    [(own.pem(), key.serialize_pem()), (client.pem(), client_key.serialize_pem())]
}

#[test]
fn clients_show_certificates_where_they_have_to() {
    let folder = Folder::new("mtls");
    let files = |name: &str, (certificate, key): &(String, String)| TlsFiles {
        certificate: folder.write(&format!("{name}.pem"), certificate),
        key: folder.write(&format!("{name}.key"), key),
    };
    let ([ours, ann], [theirs, bob]) = (authority(), authority());
    let (ours, ann, theirs, bob) =
        (files("ours", &ours), files("ann", &ann), files("theirs", &theirs), files("bob", &bob));
    let options = ServerOptions {
        host: "localhost".into(),
        tls: Some(ours.clone()),
        client_ca: Some(ours.certificate.clone()),
        ..ServerOptions::default()
    };
    let server = start(&options);
    let shown = |certificate: Option<TlsFiles>| ConnectOptions {
        certificate,
        ca: Some(ours.certificate.clone()),
        ..ConnectOptions::default()
    };
    for scheme in ["hushs", "wss"] {
        let path = if scheme == "wss" { "ws/first" } else { "first" };
        let url = format!("{scheme}://localhost:{}/{path}", server.address().port());
        work(&url, &shown(Some(ann.clone())), 0);
        for other in [None, Some(bob.clone()), Some(theirs.clone())] {
            let error = open(&url, &shown(other.clone())).err().unwrap();
            // Where the server's alert comes after its end of the connection, that is all that is seen.
            assert!(matches!(error, Error::Transport(_)), "{url} {other:?}: {error:?}");
        }
    }
    assert_eq!(server.stats().protocol_errors, 0, "nobody gets as far as a greeting");
    let plain = ServerOptions { tls: None, ..options };
    let error = Server::start_models(vec![hosted("first", 0)], &plain).err().unwrap().to_string();
    assert!(error.contains("need TLS"), "{error}");
}

#[test]
fn one_peer_takes_no_more_than_it_may() {
    let limited = |peers: PeerLimits| {
        let limits = ServerLimits { peers, line: Duration::from_secs(3), ..ServerLimits::default() };
        start(&ServerOptions { limits, ..ServerOptions::default() })
    };
    let plain = ConnectOptions::default();
    let server = limited(PeerLimits { connections: Some(2), ..PeerLimits::default() });
    let url = format!("hush://{}/first", server.address());
    let held: Vec<_> = (0..2).map(|_| open(&url, &plain).unwrap()).collect();
    let error = open(&url, &plain).err().unwrap();
    assert!(matches!(error, Error::Transport(TransportError::Closed)), "{error}");
    drop(held);
    eventually("the connections are counted out", || open(&url, &plain).is_ok());

    let server = limited(PeerLimits { sessions: Some(1), ..PeerLimits::default() });
    let url = format!("hush://{}/first", server.address());
    let mut one = open(&url, &plain).unwrap();
    answers_as(&mut one, 0, 1);
    let mut other = open(&url, &plain).unwrap();
    let batches = Batch::random(other.plan(), 1, &mut Rng(1), 1.0);
    let error = other.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(())).unwrap_err();
    let Error::Protocol(ProtocolError::Peer { code, message, seconds }) = &error else { panic!("{error:?}") };
    assert_eq!((*code, *seconds), (code::BUSY, 3));
    assert!(message.contains("as many sessions in work as it may; try again in 3 seconds"), "{message}");
    one.close().unwrap();
    eventually("the session is counted out", || server.stats().active == 0);
    work(&url, &plain, 0);

    let server = limited(PeerLimits { hourly_bytes: Some(20_000), ..PeerLimits::default() });
    let url = format!("hush://{}/first", server.address());
    let mut client = open(&url, &plain).unwrap();
    let batches = Batch::random(client.plan(), 1, &mut Rng(1), 1.0);
    let error = client.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(())).unwrap_err();
    let Error::Protocol(ProtocolError::Peer { code: code::BUSY, message, seconds }) = &error else {
        panic!("{error:?}")
    };
    assert!(message.contains("in an hour") && (3000..=3600).contains(seconds), "{message}");
    eventually("the refusal is counted", || server.stats().refused >= 1);
}

#[test]
fn a_channel_introduces_its_client() {
    let server = start(&ServerOptions::default());
    let connection =
        connect(&format!("hush://{}/first", server.address()), &with(None, Some(TOKEN))).unwrap();
    let said = connection.introduction();
    assert_eq!((said.model.as_str(), said.token.as_str()), ("first", TOKEN));
    // Over a WebSocket the header has said the token.
    let connection =
        connect(&format!("ws://{}", server.address()), &with(Some("first"), Some(TOKEN))).unwrap();
    let said = connection.introduction();
    assert_eq!((said.model.as_str(), said.token.as_str()), ("first", ""));
}

#[test]
fn proxies_say_who_the_client_is_and_nobody_else_does() {
    let limits = ServerLimits {
        peers: PeerLimits { connections: Some(1), ..PeerLimits::default() },
        handshake_timeout: Duration::from_millis(500),
        ..ServerLimits::default()
    };
    let proxies = vec!["127.0.0.1".parse().unwrap()];
    let server = start(&ServerOptions { limits, proxies, ..ServerOptions::default() });
    let hello = Hello { protocol: PROTOCOL, model: "first".into(), ..Hello::default() };
    let hello = FrameBuilder::message(Kind::Hello, &hello).unwrap().bytes().to_vec();
    let header = |client: u8| {
        [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &[10, 0, 0, client, 127, 0, 0, 1, 1, 2, 3, 4]].concat()
    };
    let say = |to: &Server, bytes: &[u8]| {
        let mut tcp = TcpStream::connect(to.address()).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = tcp.write_all(bytes);
        let mut answer = [0; 16];
        tcp.read_exact(&mut answer).ok().map(|()| (answer, tcp))
    };
    let greet = |client| say(&server, &[header(client), hello.clone()].concat());
    let held = greet(1).unwrap();
    assert_eq!(held.0[3], Kind::Plan as u8);
    assert!(greet(1).is_none(), "this client has the connection that it may have");
    assert_eq!(greet(2).unwrap().0[3], Kind::Plan as u8);
    eventually("the second one has gone", || server.stats().guests == 1);
    let request = b"GET /v2/models/first HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert!(say(&server, &[&header(3)[..], request].concat()).unwrap().0.starts_with(b"HTTP/1.1 200"));
    // A proxy that says nothing of its client, and one that speaks for itself.
    assert!(say(&server, request).is_none() && say(&server, &hello).is_none());
    let own = [&b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"[..], request].concat();
    assert!(say(&server, &own).unwrap().0.starts_with(b"HTTP/1.1 200"));
    // Who is no proxy cannot say that it is somebody else.
    let open = start(&ServerOptions { limits, ..ServerOptions::default() });
    assert!(say(&open, &[header(1), hello.clone()].concat()).is_none_or(|(a, _)| a[3] != Kind::Plan as u8));
    drop(held);
}
