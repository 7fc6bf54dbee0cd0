//! Two-party sessions: either party with a peer whose byte stream a script has changed. The first byte says which method of linear layers.
//!
//! A replayed peer knows nothing of this side's randomness, so shares are garbage, but every byte has its place: all messages are read.
//!
//! Sessions begin behind the base OTs and extend them by IKNP: those two are what most of a session's time went into. Base OTs and the other
//! extensions have a target of their own (`ot`).

use crate::{edits, nets, numbered, Target};
use hushnet_mpc::{fuzzing, memory_pair, Channel, MpcError, OtKind, Result, Stats};
use hushnet_runtime::two_party::{TwoPartyClient, TwoPartyModel, TwoPartyOptions, TwoPartyPlan};
use hushnet_runtime::{ClientSession, Compute, Error, Input, InputData};
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, OnceLock};

/// A server whose client says anything.
pub const TWO_PARTY_SERVER: Target =
    Target { seeds: || seeds(0..FAST, |w| &w.to_server), run: |d| server(d, 0..FAST), memory: 128 << 20 };
/// A client whose server says anything.
pub const TWO_PARTY_CLIENT: Target =
    Target { seeds: || seeds(0..FAST, |w| &w.to_client), run: |d| client(d, 0..FAST), memory: 128 << 20 };
/// Either party of the methods with slots; the lowest bit of the first byte says which.
pub const TWO_PARTY_SLOTS: Target = Target { seeds: slot_seeds, run: slots, memory: 128 << 20 };

/// Place of the OT extension in the greeting of a client.
const KIND_AT: usize = 5;
const METHODS: [&str; 6] = ["cheetah", "batch", "rotation-free", "convfhe", "gala", "gazelle"];
/// Methods whose sessions take about a millisecond; the others begin with keys of rotations, and take tens of milliseconds.
const FAST: u8 = 4;

struct World {
    model: TwoPartyModel,
    to_server: Vec<Vec<u8>>,
    to_client: Vec<Vec<u8>>,
}

/// A byte stream from a peer that hears nothing.
pub(super) struct Script(pub Vec<u8>, pub usize);

impl Channel for Script {
    fn send(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn recv(&mut self, data: &mut [u8]) -> Result<()> {
        let end =
            self.1.checked_add(data.len()).filter(|end| *end <= self.0.len()).ok_or(MpcError::Closed)?;
        data.copy_from_slice(&self.0[self.1..end]);
        self.1 = end;
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// `kind_at`: where a client's greeting names the OT extension.
fn changed(script: &[u8], messages: &[Vec<u8>], kind_at: usize) -> Box<dyn Channel> {
    let mut messages = messages.to_vec();
    edits::apply(script, &mut messages);
    let mut stream = messages.concat();
    // A client that asks for a silent extension would get milliseconds of set-up for one byte.
    if let Some(kind) = stream.get_mut(kind_at).filter(|k| (2..6).contains(*k)) {
        *kind %= 2;
    }
    Box::new(Script(stream, 0))
}

/// What one end reads, read by read.
pub(super) struct Recorder<C>(pub C, pub Arc<Mutex<Vec<Vec<u8>>>>);

impl<C: Channel> Channel for Recorder<C> {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        self.0.send(data)
    }
    fn recv(&mut self, data: &mut [u8]) -> Result<()> {
        self.0.recv(data)?;
        self.1.lock().expect("nobody panics while recording").push(data.to_vec());
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
    fn stats(&self) -> Stats {
        self.0.stats()
    }
}

fn options(compute: Compute) -> TwoPartyOptions {
    TwoPartyOptions { plan: nets::options(), ot: Some(OtKind::Iknp), compute, ..TwoPartyOptions::default() }
}

fn infer(mut client: TwoPartyClient) -> std::result::Result<(), Error> {
    let input = Input { name: "image", shape: vec![1, 1, 3, 3], data: InputData::F64(&[0.25; 9]) };
    client.infer(&[input], &mut |_| ControlFlow::Continue(()))?;
    client.close()
}

fn made(method: &str) -> World {
    fuzzing::skip_base_ots();
    let file = nets::file_of(&nets::two_party(method, method == "batch"));
    let plan = TwoPartyPlan::from_bytes(&file, &nets::options()).expect("a plan of this crate is right");
    // The server works in the pool that is this thread, here and in every replay. While the two speak, the client has one of its own.
    let server = TwoPartyModel::new(&plan, Compute::default()).expect("a server");
    let ((near, far), heard) = (memory_pair(), [Arc::default(), Arc::default()]);
    std::thread::scope(|scope| {
        let near = Recorder(near, Arc::clone(&heard[1]));
        let asked = scope.spawn(|| {
            let own = Compute::with_threads(1).expect("a thread");
            TwoPartyClient::open(Box::new(near), options(own)).and_then(infer)
        });
        let far = Recorder(far, Arc::clone(&heard[0]));
        server.serve_plain(Box::new(far), &mut |_| {}).expect("the session works");
        asked.join().expect("the client lives").expect("the session works");
    });
    let [to_server, to_client] =
        heard.map(|h| std::mem::take(&mut *h.lock().expect("nobody panics while recording")));
    // The same server: set-ups belong to its preparation, which the greeting names.
    World { model: server, to_server, to_client }
}

/// The world of a method of `methods`, whatever the byte.
fn world(which: u8, methods: Range<u8>) -> &'static World {
    static WORLDS: [OnceLock<World>; METHODS.len()] = [const { OnceLock::new() }; METHODS.len()];
    let method = usize::from(methods.start) + usize::from(which) % methods.len();
    WORLDS[method].get_or_init(|| made(METHODS[method]))
}

/// Few: most changes end a session early. One script changes the last message, where all others were right.
fn seeds(methods: Range<u8>, messages: fn(&World) -> &Vec<Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    numbered((0..methods.len() as u8).flat_map(|which| {
        let last = (messages(world(which, methods.clone())).len() - 1).min(255) as u8;
        let scripts = [vec![], vec![0, 0, 0, 5, 9], vec![1, last, 0, 0, 11], vec![3, last, 0x80, 1]];
        scripts.into_iter().map(move |s| [&[which], s.as_slice()].concat())
    }))
}

const SLOTS: Range<u8> = FAST..METHODS.len() as u8;

fn slot_seeds() -> Vec<(String, Vec<u8>)> {
    let of = |party: u8, messages| {
        seeds(SLOTS, messages).into_iter().map(move |(_, mut s)| {
            s[0] = s[0] << 1 | party;
            s
        })
    };
    numbered(of(0, |w| &w.to_server).chain(of(1, |w| &w.to_client)))
}

fn slots(data: &[u8]) {
    let (which, script) = data.split_first().unwrap_or((&0, &[]));
    let rest = [&[which >> 1], script].concat();
    (if which % 2 == 0 { server } else { client })(&rest, SLOTS);
}

fn judged(result: std::result::Result<(), Error>, script: &[u8]) {
    assert!(!matches!(result, Err(Error::Internal(_))), "{result:?}");
    // Opened garbage may be out of range.
    assert!(
        matches!(result, Ok(()) | Err(Error::Range(_))) || !script.is_empty(),
        "a valid session works: {result:?}"
    );
}

fn server(data: &[u8], methods: Range<u8>) {
    let (which, script) = data.split_first().unwrap_or((&0, &[]));
    let w = world(*which, methods);
    judged(w.model.serve(changed(script, &w.to_server, KIND_AT), &mut |_| {}).map(drop), script);
}

fn client(data: &[u8], methods: Range<u8>) {
    let (which, script) = data.split_first().unwrap_or((&0, &[]));
    let channel = changed(script, &world(*which, methods).to_client, usize::MAX);
    judged(TwoPartyClient::open(channel, options(Compute::default())).and_then(infer), script);
}
