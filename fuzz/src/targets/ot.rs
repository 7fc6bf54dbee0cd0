//! Base OTs and OT extensions: either party with a peer whose messages a script has changed. The first byte says what is run.
//!
//! Two base OTs stand for 128. Extensions begin behind them. The silent one has sets of a few rows and a base that is known; its own first base
//! is the small-field extension's, which is run as it is.

use super::two_party::{Recorder, Script};
use crate::{edits, numbered, Target};
use hushnet_mpc::{fuzzing, memory_pair, Channel, MemoryChannel, MpcError, OtKind, Party, Result, Session};
use std::sync::{Arc, OnceLock};

/// Base OTs and OT extensions.
pub const OT: Target = Target { seeds, run, memory: 8 << 20 };

/// What is run by the first byte.
const RUNS: usize = 6;
/// OTs made in either direction at a time, twice.
const OTS: u64 = 70;

/// A session's set-up and two extensions in either direction.
fn session(channel: Box<dyn Channel>, party: Party, kind: OtKind) -> Result<()> {
    let mut session = Session::new(channel, party, kind)?;
    session.ensure([OTS, 1])?;
    session.ensure([2 * OTS, OTS])
}

/// What `ours` reads while it speaks with `theirs`.
fn recorded(
    ours: impl FnOnce(Box<dyn Channel>) -> Result<()>,
    theirs: impl FnOnce(MemoryChannel) -> Result<()> + Send,
) -> Vec<Vec<u8>> {
    let ((near, far), heard) = (memory_pair(), Arc::default());
    std::thread::scope(|scope| {
        let peer = scope.spawn(move || theirs(far));
        ours(Box::new(Recorder(near, Arc::clone(&heard)))).expect("the parties understand each other");
        peer.join().expect("the peer lives").expect("the parties understand each other");
    });
    let messages = heard.lock().expect("nobody panics while recording").clone();
    messages
}

fn kind_of(which: usize) -> (Party, OtKind) {
    let kind = if which < 3 { OtKind::Iknp } else { OtKind::SoftSpoken };
    (if which % 2 == 1 { Party::Zero } else { Party::One }, kind)
}

fn made(which: usize) -> Vec<Vec<u8>> {
    fuzzing::skip_base_ots();
    match which {
        0 => {
            let (receiver, sender) = fuzzing::base_messages().expect("two base OTs");
            vec![receiver, sender]
        }
        1..5 => {
            let (party, kind) = kind_of(which);
            recorded(|ch| session(ch, party, kind), move |ch| session(Box::new(ch), party.other(), kind))
        }
        // The sender of silent OTs reads nothing.
        _ => recorded(
            |mut ch| fuzzing::receive_silent(&mut *ch).map(drop),
            |mut ch| fuzzing::send_silent(&mut ch).map(drop),
        ),
    }
}

fn messages(which: usize) -> &'static [Vec<u8>] {
    static RECORDED: OnceLock<Vec<Vec<Vec<u8>>>> = OnceLock::new();
    &RECORDED.get_or_init(|| (0..RUNS).map(made).collect())[which]
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    numbered((0..RUNS as u8).flat_map(|which| {
        let count = messages(usize::from(which)).len().min(2);
        edits::seeds(count).into_iter().map(move |s| [&[which], s.as_slice()].concat())
    }))
}

fn answered(which: usize, mut heard: Vec<Vec<u8>>) -> Result<()> {
    if which == 0 {
        let sender = heard.pop().unwrap_or_default();
        let sender: [u8; 32] = sender.try_into().map_err(|_| MpcError::Closed)?;
        return fuzzing::answer_base_ots(&heard.concat(), &sender).map(|keys| assert_eq!(keys, (2, 2)));
    }
    let mut channel = Script(heard.concat(), 0);
    match which {
        1..5 => {
            let (party, kind) = kind_of(which);
            session(Box::new(channel), party, kind)
        }
        _ => fuzzing::receive_silent(&mut channel).map(|ots| assert!(!ots.is_empty())),
    }
}

fn run(data: &[u8]) {
    let (which, script) = data.split_first().unwrap_or((&0, &[]));
    let which = usize::from(*which) % RUNS;
    let mut heard = messages(which).to_vec();
    edits::apply(script, &mut heard);
    let result = answered(which, heard);
    assert!(result.is_ok() || !script.is_empty(), "valid messages are accepted: {result:?}");
    // What a session calls the peer's fault or the channel's; all other errors are its own.
    let named = matches!(
        result,
        Ok(())
            | Err(MpcError::Closed
                | MpcError::BadPoint { .. }
                | MpcError::Handshake { .. }
                | MpcError::Length { .. })
    );
    assert!(named, "{result:?}");
}
