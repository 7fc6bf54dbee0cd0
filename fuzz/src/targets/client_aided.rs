//! Client-aided sessions: either party with a peer whose frames a script has changed. The first byte says which engine.

use crate::frames::{self, Heard, Recorder, Script};
use crate::{nets, numbered, Target};
use bytes::Bytes;
use hushnet_runtime::channel::pipe;
use hushnet_runtime::plan::Plan;
use hushnet_runtime::{Client, ClientOptions, ClientSession, Compute, Error, Input, InputData, ServerPlan};
use std::ops::ControlFlow;
use std::sync::OnceLock;

/// A server whose client says anything.
pub const CLIENT_AIDED_SERVER: Target =
    Target { seeds: || seeds(|w| &w.to_server), run: server, memory: 16 << 20 };
/// A client whose server says anything.
pub const CLIENT_AIDED_CLIENT: Target =
    Target { seeds: || seeds(|w| &w.to_client), run: client, memory: 32 << 20 };

struct World {
    model: ServerPlan,
    to_server: Vec<Bytes>,
    to_client: Vec<Bytes>,
}

const IMAGES: usize = 2;

fn options(compute: Compute) -> ClientOptions {
    ClientOptions { plan: nets::options(), compute, ..ClientOptions::default() }
}

fn infer(mut client: Client) -> Result<(), Error> {
    let data = [0.5; IMAGES * 16];
    let input = Input { name: "image", shape: vec![IMAGES, 1, 4, 4], data: InputData::F64(&data) };
    let (outputs, _) = client.infer(&[input], &mut |_| ControlFlow::Continue(()))?;
    assert!(outputs.iter().all(|o| o.data.len() == IMAGES * 2));
    client.close()
}

fn made(file: &[u8]) -> World {
    let plan = Plan::from_bytes(file, &nets::options()).expect("a plan of this crate is right");
    // While two threads speak, neither may use the pool that is this thread.
    let compute = Compute::with_threads(1).expect("a thread");
    let server = ServerPlan::new(&plan, compute.clone()).expect("a server");
    let ((near, far), heard) = (pipe(), [Heard::default(), Heard::default()]);
    std::thread::scope(|scope| {
        let mut far = Recorder(far, heard[0].clone());
        let served = scope.spawn(move || server.serve(&mut far, &mut |_| {}));
        let near = Recorder(near, heard[1].clone());
        Client::open(Box::new(near), options(compute)).and_then(infer).expect("the session works");
        served.join().expect("the server lives").expect("the session works");
    });
    let model = ServerPlan::new(&plan, Compute::default()).expect("a server");
    World { model, to_server: heard[0].frames(), to_client: heard[1].frames() }
}

fn world(which: u8) -> &'static World {
    static WORLDS: OnceLock<[World; 2]> = OnceLock::new();
    &WORLDS.get_or_init(|| [made(&nets::client_aided()), made(&nets::few_images())])[usize::from(which) % 2]
}

fn seeds(frames_of: fn(&World) -> &Vec<Bytes>) -> Vec<(String, Vec<u8>)> {
    numbered((0..2).flat_map(|which| {
        let scripts = frames::seeds(frames_of(world(which)).len());
        scripts.into_iter().map(move |s| [&[which], s.as_slice()].concat())
    }))
}

fn server(data: &[u8]) {
    let (which, script) = data.split_first().unwrap_or((&0, &[]));
    let w = world(*which);
    let result = w.model.serve(&mut Script::new(frames::changed(script, &w.to_server)), &mut |_| {});
    judged(result.map(drop), script);
}

fn client(data: &[u8]) {
    let (which, script) = data.split_first().unwrap_or((&0, &[]));
    let channel = Script::new(frames::changed(script, &world(*which).to_client));
    judged(Client::open(Box::new(channel), options(Compute::default())).and_then(infer), script);
}

/// A peer's bytes are never this side's fault, and right ones are accepted.
fn judged(result: Result<(), Error>, script: &[u8]) {
    assert!(!matches!(result, Err(Error::Internal(_))), "{result:?}");
    assert!(result.is_ok() || !script.is_empty(), "a valid session works: {result:?}");
}
