//! Client-aided inferences with shared, fresh and sent masks.

use super::batches::{inputs, small_net, Batch, Linear};
use super::{assert_found, assert_once, recorded, wire};
use hushnet_ring::ledger::{Recording, ENTROPY, GENERATOR};
use hushnet_rlwe::uses;
use hushnet_runtime::plan::Plan;
use hushnet_runtime::{Client, ClientOptions, ClientSession, Compute, ServerPlan};
use std::ops::ControlFlow;

/// Images of three blocks.
const IMAGES: usize = 2 * 2048 + 8;

pub(crate) fn plan(mask: &'static str) -> Plan {
    small_net(2048, 7, &Linear { mask, band: 2, ..Linear::default() }).plan()
}

/// Equal images of equal pixels.
fn equal(plan: &Plan, images: usize) -> Vec<Batch> {
    let of = |p: &hushnet_runtime::plan::Port| {
        let shape = [&[images], plan.tensors()[p.tensor].shape.as_slice()].concat();
        Batch { name: p.name.clone(), data: vec![0.4; shape.iter().product()], shape }
    };
    plan.inputs().iter().map(of).collect()
}

/// One session with these numbers of images one after the other; the frames that server and client have sent.
pub(crate) fn session(plan: &Plan, calls: &[usize]) -> [Vec<wire::Sent>; 2] {
    let server = ServerPlan::new(plan, Compute::default()).unwrap();
    let (near, mut far, frames) = wire::tapped();
    std::thread::scope(|scope| {
        let served = scope.spawn(move || server.serve(&mut far, &mut |_| {}));
        let mut client = Client::open(Box::new(near), ClientOptions::default()).unwrap();
        for &images in calls {
            let batches = equal(plan, images);
            client.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(())).unwrap();
        }
        client.close().unwrap();
        served.join().unwrap().unwrap();
    });
    frames.map(wire::taken)
}

#[test]
fn every_mask_meets_a_secret_once() {
    for mask in ["shared", "fresh", "sent"] {
        let plan = plan(mask);
        let (_, report) = recorded(|| session(&plan, &[IMAGES, 9]));
        // Four blocks, each with a key, 70 features of the first layer and those of the second.
        let needs = [(uses::BATCH_MASK, 4 * 71), (uses::SECRET, 4), (uses::SEED, 1)];
        assert_once(mask, &report, &needs);
    }
}

/// Shared masks are sound under fresh secrets only: one key for two blocks must be found, and so must one generator of errors for two
/// ciphertexts.
#[test]
fn planted_reuse_is_found() {
    let plan = plan("shared");
    let recording = Recording::start().plant(ENTROPY, 1..usize::MAX);
    session(&plan, &[IMAGES]);
    let kinds = [ENTROPY, GENERATOR, uses::SECRET, uses::BATCH_MASK];
    assert_found("entropy that stands still", &recording.finish(), &kinds);
}

/// Few images: all tiles of a session share the public polynomials, so each must have a secret of its own.
#[test]
fn every_mask_meets_the_secret_of_a_tile_once() {
    let plan = small_net(2048, 7, &Linear::default()).few_images();
    let layers: Vec<_> = plan.stages().iter().filter_map(|s| s.coefficients()).collect();
    let requests: usize = layers.iter().map(|l| l.stage.layout().cost().input_polys).sum();
    let tiles = layers.iter().map(|l| l.tiles()).max().unwrap();
    let images = plan.block_images() + 2;
    let (_, report) = recorded(|| session(&plan, &[images, 3]));
    let needs = [
        (uses::COEFFICIENT_MASK, (requests * (images + 3)) as u64),
        (uses::SECRET, (tiles * (images + 3)) as u64),
        (uses::SEED, 1),
    ];
    assert_once("few images", &report, &needs);
    // One generator for all secrets and errors must be found.
    let recording = Recording::start().plant(ENTROPY, 1..usize::MAX);
    session(&plan, &[2]);
    let kinds = [ENTROPY, GENERATOR, uses::SECRET, uses::COEFFICIENT_MASK];
    assert_found("one generator", &recording.finish(), &kinds);
}
