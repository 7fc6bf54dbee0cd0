//! Non-interactive sessions: either party with a peer whose frames a script has changed. The first byte says which engine.

use crate::frames::{self, Heard, Recorder, Script};
use crate::{nets, numbered, Target};
use bytes::Bytes;
use hushnet_runtime::channel::pipe;
use hushnet_runtime::non_interactive::{NonInteractiveClient, NonInteractiveModel, NonInteractiveOptions};
use hushnet_runtime::{ClientSession, Compute, Error, Input, InputData};
use std::ops::ControlFlow;
use std::sync::OnceLock;

/// A server whose client says anything.
pub const NON_INTERACTIVE_SERVER: Target =
    Target { seeds: || seeds(|w| &w.to_server), run: server, memory: 64 << 20 };
/// A client whose server says anything.
pub const NON_INTERACTIVE_CLIENT: Target =
    Target { seeds: || seeds(|w| &w.to_client), run: client, memory: 64 << 20 };

struct World {
    model: NonInteractiveModel,
    side: usize,
    to_server: Vec<Bytes>,
    to_client: Vec<Bytes>,
}

fn options(compute: Compute) -> NonInteractiveOptions {
    NonInteractiveOptions { plan: nets::options(), compute, keys: None }
}

fn infer(mut client: NonInteractiveClient, side: usize) -> Result<(), Error> {
    let data = vec![0.25; side * side];
    let input = Input { name: "image", shape: vec![1, 1, side, side], data: InputData::F64(&data) };
    client.infer(&[input], &mut |_| ControlFlow::Continue(()))?;
    client.close()
}

fn made(file: &[u8], side: usize) -> World {
    let plan = nets::read_non_interactive(file);
    // While two threads speak, neither may use the pool that is this thread.
    let compute = Compute::with_threads(1).expect("a thread");
    let server = NonInteractiveModel::new(&plan, compute.clone()).expect("a server");
    let ((near, far), heard) = (pipe(), [Heard::default(), Heard::default()]);
    std::thread::scope(|scope| {
        let mut far = Recorder(far, heard[0].clone());
        let served = scope.spawn(move || server.serve(&mut far, &mut |_| {}));
        let near = Recorder(near, heard[1].clone());
        let client = NonInteractiveClient::open(Box::new(near), options(compute));
        client.and_then(|c| infer(c, side)).expect("the session works");
        served.join().expect("the server lives").expect("the session works");
    });
    let model = NonInteractiveModel::new(&plan, Compute::default()).expect("a server");
    World { model, side, to_server: heard[0].frames(), to_client: heard[1].frames() }
}

fn world(which: u8) -> &'static World {
    static WORLDS: OnceLock<[World; 3]> = OnceLock::new();
    let worlds = WORLDS.get_or_init(|| {
        [
            made(&nets::non_interactive(false), 4),
            made(&nets::non_interactive(true), 4),
            made(&nets::packed(), 3),
        ]
    });
    &worlds[usize::from(which) % 3]
}

fn seeds(frames_of: fn(&World) -> &Vec<Bytes>) -> Vec<(String, Vec<u8>)> {
    numbered((0..3).flat_map(|which| {
        let scripts = frames::seeds(frames_of(world(which)).len());
        scripts.into_iter().map(move |s| [&[which], s.as_slice()].concat())
    }))
}

fn server(data: &[u8]) {
    let (which, script) = data.split_first().unwrap_or((&0, &[]));
    let w = world(*which);
    let result = w.model.serve(&mut Script::new(frames::changed(script, &w.to_server)), &mut |_| {});
    assert!(!matches!(result, Err(Error::Internal(_))), "{:?}", result.err());
    assert!(result.is_ok() || !script.is_empty(), "a valid session works: {:?}", result.err());
}

fn client(data: &[u8]) {
    let (which, script) = data.split_first().unwrap_or((&0, &[]));
    let w = world(*which);
    let channel = Script::new(frames::changed(script, &w.to_client));
    let client = NonInteractiveClient::open(Box::new(channel), options(Compute::default()));
    // What another key has encrypted opens to numbers out of range.
    let result = client.and_then(|c| infer(c, w.side));
    assert!(!matches!(result, Err(Error::Internal(_))), "{result:?}");
    assert!(
        matches!(result, Ok(()) | Err(Error::Range(_))) || !script.is_empty(),
        "a valid session works: {result:?}"
    );
}
