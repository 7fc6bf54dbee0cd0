//! Two-party sessions: either party with a peer whose byte stream a script has changed. The first byte says which method of linear layers.
//!
//! A replayed peer knows nothing of this side's randomness, so shares are garbage, but every byte has its place: all messages are read.

use crate::{edits, nets, numbered, Target};
use hushnet_mpc::{memory_pair, Channel, MpcError, OtKind, Result, Stats};
use hushnet_runtime::two_party::{TwoPartyClient, TwoPartyModel, TwoPartyOptions, TwoPartyPlan};
use hushnet_runtime::{ClientSession, Compute, Error, Input, InputData};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, OnceLock};

/// A server whose client says anything.
pub const TWO_PARTY_SERVER: Target =
    Target { seeds: || seeds(|w| &w.to_server), run: server, memory: 128 << 20 };
/// A client whose server says anything.
pub const TWO_PARTY_CLIENT: Target =
    Target { seeds: || seeds(|w| &w.to_client), run: client, memory: 128 << 20 };

const METHODS: [&str; 6] = ["cheetah", "batch", "rotation-free", "convfhe", "gala", "gazelle"];

struct World {
    model: TwoPartyModel,
    to_server: Vec<Vec<u8>>,
    to_client: Vec<Vec<u8>>,
}

/// A byte stream from a peer that hears nothing.
struct Script(Vec<u8>, usize);

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

fn changed(script: &[u8], messages: &[Vec<u8>]) -> Box<dyn Channel> {
    let mut messages = messages.to_vec();
    edits::apply(script, &mut messages);
    Box::new(Script(messages.concat(), 0))
}

/// What one end reads, read by read.
struct Recorder<C>(C, Arc<Mutex<Vec<Vec<u8>>>>);

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
    TwoPartyOptions {
        plan: nets::options(),
        ot: Some(OtKind::SoftSpoken),
        compute,
        ..TwoPartyOptions::default()
    }
}

fn infer(mut client: TwoPartyClient) -> std::result::Result<(), Error> {
    let input = Input { name: "image", shape: vec![1, 1, 3, 3], data: InputData::F64(&[0.25; 9]) };
    client.infer(&[input], &mut |_| ControlFlow::Continue(()))?;
    client.close()
}

fn made(method: &str) -> World {
    let file = nets::file_of(&nets::two_party(method, method == "batch"));
    let plan = TwoPartyPlan::from_bytes(&file, &nets::options()).expect("a plan of this crate is right");
    // While two threads speak, neither may use the pool that is this thread.
    let compute = Compute::with_threads(1).expect("a thread");
    let server = TwoPartyModel::new(&plan, compute.clone()).expect("a server");
    let ((near, far), heard) = (memory_pair(), [Arc::default(), Arc::default()]);
    std::thread::scope(|scope| {
        let far = Recorder(far, Arc::clone(&heard[0]));
        let server = &server;
        let served = scope.spawn(move || server.serve_plain(Box::new(far), &mut |_| {}));
        let near = Recorder(near, Arc::clone(&heard[1]));
        TwoPartyClient::open(Box::new(near), options(compute)).and_then(infer).expect("the session works");
        served.join().expect("the server lives").expect("the session works");
    });
    let [to_server, to_client] =
        heard.map(|h| std::mem::take(&mut *h.lock().expect("nobody panics while recording")));
    // The same server: set-ups belong to its preparation, which the greeting names.
    World { model: server, to_server, to_client }
}

fn world(which: u8) -> &'static World {
    static WORLDS: OnceLock<[World; 6]> = OnceLock::new();
    &WORLDS.get_or_init(|| METHODS.map(made))[usize::from(which) % METHODS.len()]
}

/// Few: a session takes long. One script changes the last message, where all others were right.
fn seeds(messages: fn(&World) -> &Vec<Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    numbered((0..METHODS.len() as u8).flat_map(|which| {
        let last = (messages(world(which)).len() - 1).min(255) as u8;
        let scripts = [vec![], vec![0, 0, 0, 5, 9], vec![1, last, 0, 0, 11], vec![3, last, 0x80, 1]];
        scripts.into_iter().map(move |s| [&[which], s.as_slice()].concat())
    }))
}

fn judged(result: std::result::Result<(), Error>, script: &[u8]) {
    assert!(!matches!(result, Err(Error::Internal(_))), "{result:?}");
    // Opened garbage may be out of range.
    assert!(
        matches!(result, Ok(()) | Err(Error::Range(_))) || !script.is_empty(),
        "a valid session works: {result:?}"
    );
}

fn server(data: &[u8]) {
    let (which, script) = data.split_first().unwrap_or((&0, &[]));
    let w = world(*which);
    judged(w.model.serve(changed(script, &w.to_server), &mut |_| {}).map(drop), script);
}

fn client(data: &[u8]) {
    let (which, script) = data.split_first().unwrap_or((&0, &[]));
    let channel = changed(script, &world(*which).to_client);
    judged(TwoPartyClient::open(channel, options(Compute::default())).and_then(infer), script);
}
