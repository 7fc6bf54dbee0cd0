//! Inferences without interaction: batches and packed, open and with hidden weights.

use super::{assert_found, assert_once, nets, recorded, wire};
use hushnet_ring::ledger::{Recording, ENTROPY, GENERATOR};
use hushnet_rlwe::uses;
use hushnet_runtime::non_interactive::{
    NonInteractiveClient, NonInteractiveModel, NonInteractiveOptions, NonInteractivePlan,
};
use hushnet_runtime::{ClientSession, Compute, Input, InputData};
use std::ops::ControlFlow;

/// One session with these numbers of images one after the other; the frames that server and client have sent.
pub(crate) fn session(plan: &NonInteractivePlan, calls: &[usize]) -> [Vec<wire::Sent>; 2] {
    let server = NonInteractiveModel::new(plan, Compute::default()).unwrap();
    let (near, mut far, frames) = wire::tapped();
    std::thread::scope(|scope| {
        let served = scope.spawn(move || server.serve(&mut far, &mut |_| {}));
        let options =
            NonInteractiveOptions { plan: nets::insecure(), compute: Compute::default(), keys: None };
        let mut client = NonInteractiveClient::open(Box::new(near), options).unwrap();
        for &images in calls {
            let shape = [&[images], plan.tensors()[plan.inputs()[0].tensor].shape.as_slice()].concat();
            let data = vec![0.4; shape.iter().product()];
            let input = Input { name: "image", shape, data: InputData::F64(&data) };
            client.infer(&[input], &mut |_| ControlFlow::Continue(())).unwrap();
        }
        client.close().unwrap();
        served.join().unwrap().unwrap();
    });
    frames.map(wire::taken)
}

/// Blocks of 32 images in batches, of one image where circuits are packed.
#[test]
fn every_mask_is_used_once_open_and_hidden() {
    for (what, plan, hidden) in nets::non_interactive() {
        let (_, report) = recorded(|| session(&plan, &[if what.contains("batch") { 70 } else { 2 }, 1]));
        let open = [(uses::CKKS_MASK, 20), (uses::SECRET, 1), (uses::SEED, 6)];
        assert_once(what, &report, &open);
        let used = |kind| report.uses.get(&kind).copied().unwrap_or(0);
        for kind in [uses::CKKS_RERANDOMISER, uses::CKKS_FLOOD] {
            assert_eq!(used(kind) > 2, hidden, "{what}: {} records of '{}'", used(kind), kind.0);
        }
    }
}

#[test]
fn planted_reuse_is_found() {
    for (what, plan, hidden) in nets::non_interactive() {
        // From the first key on one seed: of the generators of ciphertexts and of their polynomials, too.
        let recording = Recording::start().plant(uses::SEED, 1..usize::MAX);
        session(&plan, &[2]);
        assert_found(what, &recording.finish(), &[uses::SEED, GENERATOR, uses::CKKS_MASK]);
        if hidden {
            for (kind, numbers) in [(uses::CKKS_FLOOD, 1..2), (ENTROPY, 1..usize::MAX)] {
                let recording = Recording::start().plant(kind, numbers);
                session(&plan, &[2]);
                assert_found(what, &recording.finish(), &[kind]);
            }
        }
    }
}
