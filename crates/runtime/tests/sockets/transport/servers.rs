//! Servers that misbehave, and addresses where there is none.

use super::{builder, open, CARRIERS};
use crate::common::{inputs, Batch, Rng};
use hushnet_runtime::channel::Channel;
use hushnet_runtime::transport::{connect, ConnectOptions};
use hushnet_runtime::wire::{FrameBuilder, Kind};
use hushnet_runtime::{Client, ClientOptions, ClientSession, Error, ProtocolError, TransportError};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::time::Duration;
use tungstenite::Message;

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
