//! What travels: two runs on one input share nothing beyond framing, and one run repeats nothing within itself.
//!
//! Transcripts of both directions are cut into windows of 16 bytes, aligned to where a message's random part begins. What is left out, and
//! why it may be equal:
//! - client-aided and non-interactive sessions: frame headers (kind, stage, tile, length) and the frames Hello, Plan, Setup of client-aided
//!   sessions, Block and End, which hold numbers that the plan and the count of images determine;
//! - of CKKS objects the header (magic, version, hash of the parameters, length) and the bookkeeping (level, scale, bounds of the plan);
//! - two-party sessions: the plan and its length; the first 64 bytes of the client and 24 of the server: magic, version, digest of the
//!   plan, names of the OT extension and of the party (the nonces behind them are compared);
//! - of a rotation-free set-up's header all but its seed: magic, version, counts, digest of the design;
//! - windows with eight zero bytes in a row: packed words behind the last of a message. In random bytes that has probability 2^-60.
//!
//! Kept set-ups: one server sends a client the same set-up in every session, so that a transfer can go on. That, and nothing else, is
//! equal between two sessions of one server (`sessions_of_one_server_share_the_set_up_alone`).

use super::{client_aided, nets, non_interactive, two_party};
use hushnet_mpc::{OtKind, SilentSize};
use hushnet_ring::ledger::{Recording, Unrecorded, ENTROPY};
use hushnet_rlwe::ckks::HEADER_BYTES;
use hushnet_rlwe::uses::SEED;
use hushnet_runtime::channel::{pipe, Channel, Pipe, Traffic};
use hushnet_runtime::two_party::LINEAR_METHODS;
use hushnet_runtime::wire::{Frame, Kind};
use hushnet_runtime::{Error, TransportError};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// A frame as it was sent.
pub(crate) type Sent = (Kind, Vec<u8>);
type Log = Arc<Mutex<Vec<Sent>>>;

/// One end of a pipe whose frames are kept.
pub(crate) struct Tap(Pipe, Log);

impl Channel for Tap {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.1.lock().unwrap().push((frame.kind(), frame.payload().to_vec()));
        self.0.send(frame)
    }
    fn recv(&mut self) -> Result<Frame, Error> {
        self.0.recv()
    }
    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }
    fn set_limit(&mut self, bytes: usize) {
        self.0.set_limit(bytes);
    }
}

/// Client's end, server's end, and what server and client send.
pub(crate) fn tapped() -> (Tap, Tap, [Log; 2]) {
    let (near, far) = pipe();
    let logs = [Log::default(), Log::default()];
    (Tap(near, logs[1].clone()), Tap(far, logs[0].clone()), logs)
}

pub(crate) fn taken(log: Log) -> Vec<Sent> {
    std::mem::take(&mut *log.lock().unwrap())
}

const WINDOW: usize = 16;

/// The compared windows of a transcript.
#[derive(Default)]
struct Windows {
    all: Vec<[u8; WINDOW]>,
    padding: usize,
}

impl Windows {
    fn add(&mut self, bytes: &[u8]) {
        for w in bytes.as_chunks::<WINDOW>().0 {
            if w.windows(8).any(|run| run == [0; 8]) {
                self.padding += 1;
            } else {
                self.all.push(*w);
            }
        }
    }

    /// The parts between all places where `mark` begins an object: `keep` of an object's `head` bytes are compared, and what is behind.
    fn add_between(&mut self, bytes: &[u8], mark: &[u8], keep: std::ops::Range<usize>, head: usize) {
        let mut start = 0;
        while let Some(at) = bytes[start..].windows(mark.len()).position(|w| w == mark).map(|at| start + at) {
            self.add(&bytes[start..at]);
            let end = (at + head).min(bytes.len());
            self.add(&bytes[at..end][keep.clone()]);
            start = end;
        }
        self.add(&bytes[start..]);
    }

    /// Windows that come more than once here.
    fn repeated(&self) -> usize {
        self.all.len() - self.set().len()
    }

    /// Windows that come here and in `other`.
    fn shared(&self, other: &Self) -> usize {
        self.set().intersection(&other.set()).count()
    }

    fn set(&self) -> HashSet<[u8; WINDOW]> {
        self.all.iter().copied().collect()
    }
}

/// Both directions of a two-party session, without what the module names.
fn two_party_windows(model: &hushnet_runtime::two_party::TwoPartyModel, sent: &[Vec<u8>; 2]) -> Windows {
    let mut out = Windows::default();
    let down = &sent[0][8 + model.public_part().len() + 24..];
    // Seed at 16 of a header of 80 bytes.
    out.add_between(down, b"HRF1", 16..48, 80);
    out.add(&sent[1][64..]);
    out
}

/// Both directions of a framed session, without what the module names.
fn framed_windows(sent: &[Vec<Sent>; 2]) -> Windows {
    let mut out = Windows::default();
    for (kind, payload) in sent.iter().flatten() {
        match kind {
            // A protobuf field of 32 bytes; one of 0 is not sent.
            Kind::Begin => out.add(&payload[2..34.min(payload.len())]),
            // Objects of CKKS: header, then up to 28 bytes of bookkeeping. Client-aided frames have none.
            Kind::Setup | Kind::SetupMask | Kind::Request | Kind::Response => {
                out.add_between(payload, b"HNCK", 0..0, HEADER_BYTES + 28);
            }
            Kind::Hello | Kind::Plan | Kind::Block | Kind::End => {}
            other => panic!("a frame of kind {} in a session", other.name()),
        }
    }
    out
}

fn assert_fresh(what: &str, runs: &[Windows; 2], least: usize) {
    let sets = runs.each_ref().map(Windows::set);
    for (run, set) in runs.iter().zip(&sets) {
        assert_eq!(run.all.len(), set.len(), "{what}: windows repeated within a run");
        assert!(run.all.len() > least, "{what}: only {} windows", run.all.len());
        assert!(run.padding * 100 <= run.all.len(), "{what}: {} windows of padding", run.padding);
    }
    assert!(sets[0].is_disjoint(&sets[1]), "{what}: windows shared by two runs");
    assert_eq!(runs[0].padding, runs[1].padding, "{what}: padding depends on shapes only");
    eprintln!("{what}: {} windows a run, {} of padding", runs[0].all.len(), runs[0].padding);
}

#[test]
fn two_party_runs_on_one_input_share_nothing() {
    let every = LINEAR_METHODS.iter().map(|m| (m.name, "ot", OtKind::SoftSpoken));
    let others = [
        ("cheetah", "ot", OtKind::Iknp),
        ("cheetah", "ot", OtKind::Silent(SilentSize::Tiny)),
        ("cheetah", "garbled", OtKind::SoftSpoken),
    ];
    for (method, protocol, kind) in others.into_iter().chain(every) {
        let _turn = Unrecorded::start();
        let net = nets::of_method(method, protocol);
        let runs = [(); 2].map(|()| {
            // A server started anew: its set-ups differ, too.
            let model = two_party::model(&net);
            let (sent, _) = two_party::session(&model, &[8, 8], two_party::options(kind, 8));
            two_party_windows(&model, &sent)
        });
        assert_fresh(&format!("{method}, {protocol}, {kind:?}"), &runs, 5_000);
    }
}

/// Equal tiles of equal inputs.
#[test]
fn tiles_of_equal_pixels_share_nothing() {
    for method in ["cheetah", "convfhe", "rotation-free", "gala"] {
        let _turn = Unrecorded::start();
        let net = nets::tiled(method);
        let runs = [(); 2].map(|()| {
            let model = two_party::model(&net);
            let (sent, _) = two_party::session(&model, &[2], two_party::options(OtKind::SoftSpoken, 2));
            two_party_windows(&model, &sent)
        });
        assert_fresh(&format!("tiles of {method}"), &runs, 5_000);
    }
}

#[test]
fn sessions_of_one_server_share_the_set_up_alone() {
    let _turn = Unrecorded::start();
    let folder = std::env::temp_dir().join(format!("hushnet-masks-wire-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let model = two_party::model(&nets::classifier(&["rotation-free"], "ot"));
    let options = || two_party::options(OtKind::SoftSpoken, 2);
    let kept = || hushnet_runtime::two_party::TwoPartyOptions { setups: Some(folder.clone()), ..options() };
    let whole = two_party::session(&model, &[2], kept()).0;
    let continued = two_party::session(&model, &[2], kept()).0;
    let _ = std::fs::remove_dir_all(&folder);
    let again = two_party::session(&model, &[2], options()).0;
    // A client that has the set-up is sent nothing of it; the others are sent the same, at the same place.
    let polynomials = whole[0].len() - continued[0].len();
    assert!(polynomials > 10_000);
    let same = |at: &usize| whole[0][*at..at + polynomials] == again[0][*at..at + polynomials];
    let start = (0..continued[0].len()).find(same).expect("two sessions are sent one set-up");
    let set_up = start..start + polynomials;
    let without = |[down, up]: [Vec<u8>; 2], set_up: std::ops::Range<usize>| {
        two_party_windows(&model, &[[&down[..set_up.start], &down[set_up.end..]].concat(), up])
    };
    let runs = [without(whole, set_up.clone()), without(again, set_up)];
    assert_fresh("one server", &runs, 2_000);
    let continued = without(continued, start..start);
    assert_eq!(
        (continued.repeated(), continued.shared(&runs[0])),
        (0, 0),
        "the session that continues a set-up"
    );
}

#[test]
fn client_aided_runs_on_one_input_share_nothing() {
    for mask in ["shared", "fresh", "sent"] {
        let _turn = Unrecorded::start();
        let plan = client_aided::plan(mask);
        // Two blocks a run.
        let runs = [(); 2].map(|()| framed_windows(&client_aided::session(&plan, &[2048 + 8])));
        assert_fresh(mask, &runs, 10_000);
    }
}

#[test]
fn non_interactive_runs_on_one_input_share_nothing() {
    for (what, plan, _) in nets::non_interactive() {
        let _turn = Unrecorded::start();
        let runs = [(); 2].map(|()| framed_windows(&non_interactive::session(&plan, &[2, 1])));
        assert_fresh(what, &runs, 500);
    }
}

/// The comparison finds what it looks for: where entropy stands still and two images get one seed, requests for equal images are equal.
#[test]
fn planted_reuse_is_seen_on_the_wire() {
    let net = nets::classifier(&["cheetah"], "ot");
    let run = |recording: Recording| {
        let model = two_party::model(&net);
        let (sent, _) = two_party::session(&model, &[2], two_party::options(OtKind::SoftSpoken, 2));
        drop(recording);
        two_party_windows(&model, &sent)
    };
    // The two OT sessions and the client's keys have taken theirs.
    let still = run(Recording::start().plant(ENTROPY, 3..usize::MAX).plant(SEED, 2..3));
    let within = still.repeated();
    assert!(within > 500, "{within} windows are repeated");
    let good = run(Recording::start());
    assert_eq!((good.repeated(), good.shared(&still)), (0, 0));
    assert_eq!(good.shared(&good), good.all.len());
}
