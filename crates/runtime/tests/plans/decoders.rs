//! What a peer or a file may hold: arbitrary, cut and changed bytes are typed errors, never a panic. `fuzz/` searches on.

use crate::common::{small_net, Linear};
use hushnet_mpc::MpcError;
use hushnet_runtime::channel::{pipe, Channel};
use hushnet_runtime::plan::{Plan, PlanOptions};
use hushnet_runtime::two_party::{TwoPartyModel, TwoPartyPlan};
use hushnet_runtime::wire::{Begin, Block, End, Failure, Frame, FrameBuilder, Hello, Kind};
use hushnet_runtime::{Compute, ServerPlan};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Changes to bytes: overwritten places (by share of the length), and where the end is cut.
fn changes() -> impl Strategy<Value = (Vec<(f64, u8)>, f64)> {
    let places = prop::collection::vec((0.0..1.0, any::<u8>()), 0..4);
    (places, prop_oneof![2 => Just(1.0), 1 => 0.0..1.0])
}

fn changed(bytes: &[u8], (places, keep): &(Vec<(f64, u8)>, f64)) -> Vec<u8> {
    let mut bytes = bytes[..(bytes.len() as f64 * keep) as usize].to_vec();
    let length = bytes.len();
    for (at, value) in places.iter().filter(|_| length > 0) {
        bytes[(length as f64 * at) as usize] = *value;
    }
    bytes
}

fn plan() -> &'static Plan {
    static PLAN: OnceLock<Plan> = OnceLock::new();
    PLAN.get_or_init(|| small_net(2048, 3, &Linear { band: 2, ..Linear::default() }).plan())
}

/// A two-party plan as `hushnet compile` writes it.
const TWO_PARTY: &[u8] = include_bytes!("../fixtures/two_party.hush");

fn two_party() -> &'static TwoPartyModel {
    static MODEL: OnceLock<TwoPartyModel> = OnceLock::new();
    MODEL.get_or_init(|| {
        let plan = TwoPartyPlan::from_bytes(TWO_PARTY, &PlanOptions::default()).unwrap();
        TwoPartyModel::new(&plan, Compute::default()).unwrap()
    })
}

/// Everything that is read from a frame.
fn read(bytes: Vec<u8>) {
    let Ok(frame) = Frame::parse(bytes.into()) else { return };
    let _ = frame.message::<Hello>(Kind::Hello);
    let _ = frame.message::<Begin>(Kind::Begin);
    let _ = frame.message::<Block>(Kind::Block);
    let _ = frame.message::<End>(Kind::End);
    let _ = frame.message::<Failure>(Kind::Error);
    let _ = frame.expect_payload(Kind::Request, frame.stage(), frame.tile(), 3);
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![
        Kind::Hello,
        Kind::Plan,
        Kind::Begin,
        Kind::SetupMask,
        Kind::Block,
        Kind::Request,
        Kind::Response,
        Kind::End,
        Kind::Error,
        Kind::Setup,
        Kind::Bytes,
    ])
}

/// A byte channel that says what it is told to, and nothing more.
struct Script(Vec<u8>);

impl hushnet_mpc::Channel for Script {
    fn send(&mut self, _: &[u8]) -> hushnet_mpc::Result<()> {
        Ok(())
    }
    fn recv(&mut self, data: &mut [u8]) -> hushnet_mpc::Result<()> {
        if data.len() > self.0.len() {
            return Err(MpcError::Io(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let rest = self.0.split_off(data.len());
        data.copy_from_slice(&self.0);
        self.0 = rest;
        Ok(())
    }
    fn flush(&mut self) -> hushnet_mpc::Result<()> {
        Ok(())
    }
    fn stats(&self) -> hushnet_mpc::Stats {
        hushnet_mpc::Stats::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn frames(kind in kind(), payload in prop::collection::vec(any::<u8>(), 0..60), how in changes(), raw in any::<Vec<u8>>()) {
        read(raw);
        read(changed(FrameBuilder::with_payload(kind, &payload).unwrap().bytes(), &how));
    }

    #[test]
    fn plan_files(how in changes(), raw in any::<Vec<u8>>()) {
        static BYTES: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
        let files = BYTES.get_or_init(|| [plan().to_bytes().unwrap(), plan().public_part().unwrap()]);
        for bytes in files {
            let changed = changed(bytes, &how);
            // The digest covers everything.
            prop_assert!(changed == *bytes || Plan::from_bytes(&changed, &PlanOptions::default()).is_err());
        }
        let changed = changed(TWO_PARTY, &how);
        prop_assert!(changed == TWO_PARTY || TwoPartyPlan::from_bytes(&changed, &PlanOptions::default()).is_err());
        let _ = Plan::from_bytes(&raw, &PlanOptions::default());
        let _ = TwoPartyPlan::from_bytes(&raw, &PlanOptions::default());
    }

    /// Behind the digest: the JSON itself.
    #[test]
    fn plan_json(how in changes(), digits in prop::collection::vec((0.0..1.0, "[0-9]{1,20}|-1|1e300|null|true|\"x\""), 0..3)) {
        for (json, two) in [(plan().json(), false), (two_party().plan().json(), true)] {
            let mut text = json.to_owned();
            for (at, value) in &digits {
                // A number becomes something else.
                let from = text.len() - (text.len() as f64 * at) as usize;
                let Some(start) = text[..from].rfind(|c: char| c.is_ascii_digit()) else { continue };
                let begin = text[..start].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |i| i + 1);
                text.replace_range(begin..=start, value);
            }
            let bytes = changed(text.as_bytes(), &how);
            let text = String::from_utf8_lossy(&bytes);
            if two {
                let _ = TwoPartyPlan::from_parts(&text, &BTreeMap::new(), &PlanOptions::default());
            } else {
                let _ = Plan::from_parts(&text, &BTreeMap::new(), &PlanOptions::default());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A server's session with a client that greets and then says anything.
    #[test]
    fn client_aided_sessions(frames in prop::collection::vec((kind(), 0_u32..4, 0_u32..2, prop::collection::vec(any::<u8>(), 0..40)), 0..4)) {
        static SERVER: OnceLock<ServerPlan> = OnceLock::new();
        let server = SERVER.get_or_init(|| ServerPlan::new(plan(), Compute::default()).unwrap());
        let (mut near, mut far) = pipe();
        let client = std::thread::spawn(move || {
            let hello = Hello { protocol: 2, ..Hello::default() };
            let begin = Begin { seed: vec![1; 32], images: 0 };
            let block = Block { index: 0, images: 1 };
            let mut say = vec![
                FrameBuilder::message(Kind::Hello, &hello).unwrap(),
                FrameBuilder::message(Kind::Begin, &begin).unwrap(),
                FrameBuilder::message(Kind::Block, &block).unwrap(),
            ];
            for (kind, stage, tile, payload) in frames {
                let mut frame = FrameBuilder::reuse(vec![], kind, stage, tile, payload.len()).unwrap();
                frame.payload_mut().copy_from_slice(&payload);
                say.push(frame.finish());
            }
            for frame in say {
                if near.send(frame).is_err() {
                    break;
                }
            }
        });
        let result = server.serve(&mut far, &mut |_| {});
        prop_assert!(result.is_err());
        drop(far);
        client.join().unwrap();
    }

    /// A two-party server with a client that says anything: on its own, and behind a right greeting.
    #[test]
    fn two_party_sessions(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let result = two_party().serve(Box::new(Script(bytes)), &mut |_| {});
        prop_assert!(result.is_err());
    }
}
