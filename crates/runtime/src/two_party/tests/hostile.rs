//! Peers that close, lie about lengths, send other frames or noise, at every point of a session: typed errors, and a
//! server that serves the next client.

use super::networks::classifier;
use super::*;
use crate::channel::{Channel as Frames, Traffic};
use crate::error::{ProtocolError, TransportError};
use crate::transport::{connect, ConnectOptions, Server, ServerLimits, ServerOptions};
use crate::two_party::frames;
use crate::wire::{Frame, FrameBuilder, Kind};
use hushnet_mpc::OtKind;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Close,
    OtherKind,
    Oversize,
    Noise,
}

const ALL: [How; 4] = [How::Close, How::OtherKind, How::Oversize, How::Noise];
/// Frames of a session before which it is disturbed: greeting, plan, set-up, first layer, protocols.
const AT: [usize; 7] = [0, 1, 2, 3, 5, 8, 14];

/// A connection whose frame number `at` is not what it should be.
struct Disturbed {
    inner: Option<Box<dyn Frames>>,
    at: usize,
    how: How,
    sent: usize,
}

impl Disturbed {
    fn new(inner: Box<dyn Frames>, at: usize, how: How) -> Self {
        Self { inner: Some(inner), at, how, sent: 0 }
    }

    fn replaced(&mut self, frame: &Frame) -> Option<Frame> {
        let payload = frame.payload();
        let make = |kind, payload: &[u8]| FrameBuilder::with_payload(kind, payload).unwrap();
        match self.how {
            How::Close => None,
            How::OtherKind => Some(make(Kind::Response, payload)),
            How::Oversize => Some(make(frame.kind(), &vec![7; frames::LARGEST_FRAME + 1])),
            How::Noise => {
                let mut noise = vec![0; payload.len()];
                getrandom::fill(&mut noise).unwrap();
                Some(make(frame.kind(), &noise))
            }
        }
    }
}

impl Frames for Disturbed {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        let number = self.sent;
        self.sent += 1;
        let frame = if number == self.at { self.replaced(&frame) } else { Some(frame) };
        match (frame, &mut self.inner) {
            (Some(frame), Some(inner)) => inner.send(frame),
            _ => {
                self.inner = None;
                Err(TransportError::Closed)
            }
        }
    }

    fn recv(&mut self) -> Result<Frame, Error> {
        self.inner.as_mut().ok_or(TransportError::Closed)?.recv()
    }

    fn traffic(&self) -> Traffic {
        self.inner.as_ref().map_or_else(Traffic::default, |i| i.traffic())
    }

    fn set_limit(&mut self, bytes: usize) {
        if let Some(inner) = &mut self.inner {
            inner.set_limit(bytes);
        }
    }
}

/// One end of a connection that takes any number of frames, as a server's queue does.
struct End(Sender<Frame>, Receiver<Frame>);

fn pipe() -> (End, End) {
    let (a, b) = (channel(), channel());
    (End(a.0, b.1), End(b.0, a.1))
}

impl Frames for End {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.0.send(frame).map_err(|_| TransportError::Closed)
    }

    fn recv(&mut self) -> Result<Frame, Error> {
        Ok(self.1.recv().map_err(|_| TransportError::Closed)?)
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    fn set_limit(&mut self, _: usize) {}
}

fn options() -> TwoPartyOptions {
    TwoPartyOptions { ot: Some(OtKind::SoftSpoken), ..TwoPartyOptions::default() }
}

fn infer(frames: Box<dyn Frames>, input: &Input<'_>) -> Result<Vec<Output>, Error> {
    let mut client = super::super::connect(frames, options())?;
    let (outputs, _) = client.infer(std::slice::from_ref(input), &mut |_| ControlFlow::Continue(()))?;
    client.close()?;
    Ok(outputs)
}

#[test]
fn a_server_outlives_clients_that_break_off_or_lie() {
    let mut net = classifier(28, 31);
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, 1);
    let input = Input { name: "image", shape: vec![1, 3, 9, 7], data: InputData::F64(&inputs[0]) };
    let model = TwoPartyModel::new(&plan, Compute::default()).unwrap();
    let limits = ServerLimits { idle_timeout: Duration::from_millis(300), ..ServerLimits::default() };
    let server = Server::start(model, &ServerOptions { limits, ..ServerOptions::default() }).unwrap();
    let url = format!("ws://{}", server.address());
    let dial = || {
        let options = ConnectOptions { idle_timeout: Duration::from_secs(2), ..ConnectOptions::default() };
        Box::new(connect(&url, &options).unwrap())
    };
    for at in AT {
        for how in ALL {
            match (infer(Box::new(Disturbed::new(dial(), at, how)), &input), how) {
                // Noise in shares is only a wrong answer.
                (Ok(_), How::Noise)
                | (Err(Error::Transport(_) | Error::Protocol(_) | Error::Range(_)), _) => {}
                (other, _) => panic!("frame {at}, {how:?}: {:?}", other.err()),
            }
            assert_eq!(infer(dial(), &input).unwrap()[0].data.len(), 6, "after frame {at}, {how:?}");
        }
    }
    server.stop();
    server.join().unwrap();
    let stats = server.stats();
    // Clients that break off before they have sent something to work on are no sessions.
    let good = (AT.len() * ALL.len()) as u64;
    assert!((good + 1..=2 * good).contains(&stats.sessions), "{stats:?}");
    assert_eq!(stats.internal_errors, 0);
    assert!(stats.protocol_errors >= AT.len() as u64 && stats.transport_errors >= AT.len() as u64);
}

#[test]
fn a_client_meets_bad_servers_with_typed_errors() {
    let mut net = classifier(28, 32);
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, 1);
    let input = Input { name: "image", shape: vec![1, 3, 9, 7], data: InputData::F64(&inputs[0]) };
    let model = TwoPartyModel::new(&plan, Compute::default()).unwrap();
    for at in AT {
        for how in ALL {
            let (near, far) = pipe();
            let result = std::thread::scope(|scope| {
                let model = &model;
                scope.spawn(move || {
                    model.session(Box::new(Disturbed::new(Box::new(far), at, how)), &mut |_| {})
                });
                infer(Box::new(near), &input)
            });
            match (result, how) {
                (Ok(_), How::Noise) => {}
                (Err(Error::Transport(_) | Error::Range(_) | Error::Plan(_)), _) => {}
                (Err(Error::Protocol(e)), How::OtherKind) => {
                    assert!(
                        matches!(e, ProtocolError::Unexpected { .. } | ProtocolError::Peer { .. }),
                        "{e}"
                    );
                }
                (Err(Error::Protocol(_)), How::Noise | How::Oversize) => {}
                (other, _) => panic!("frame {at}, {how:?}: {:?}", other.err()),
            }
        }
    }
}

#[test]
fn what_one_session_may_hold_is_counted() {
    let net = classifier(28, 33);
    let plan = plan_of(&net).unwrap();
    let model = TwoPartyModel::new(&plan, Compute::default()).unwrap();
    let layers = Layers::new(&plan).unwrap();
    let requests = layers.shapes().map(|(_, s)| s.tiles() * s.request_len()).max().unwrap();
    let (memory, largest) = (model.session_memory(), model.largest_group());
    assert!(model.queue_bytes(largest) >= (requests * largest) as u64);
    assert!(memory.block > model.queue_bytes(largest) && memory.total() < 4 << 30);
}
