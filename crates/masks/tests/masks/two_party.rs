//! Two-party inferences by every linear method, every OT extension, garbled circuits and kept set-ups.

use super::builder::Net;
use super::{assert_found, assert_once, nets, recorded, Needs};
use hushnet_mpc::{memory_pair, uses as ot, Channel, MemoryChannel, OtKind, SilentSize, Stats};
use hushnet_ring::ledger::{Kind, Recording, Report, ENTROPY, GENERATOR};
use hushnet_rlwe::uses;
use hushnet_runtime::two_party::{
    TwoPartyClient, TwoPartyModel, TwoPartyOptions, UnitPolicy, UnitStore, LINEAR_METHODS,
};
use hushnet_runtime::{ClientSession, Compute, Input, InputData};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

/// What one end has sent.
#[derive(Clone, Default)]
pub(crate) struct Sent(Arc<Mutex<Vec<u8>>>);

struct Probe(MemoryChannel, Sent);

impl Channel for Probe {
    fn send(&mut self, data: &[u8]) -> hushnet_mpc::Result<()> {
        self.1 .0.lock().unwrap().extend_from_slice(data);
        self.0.send(data)
    }
    fn recv(&mut self, buf: &mut [u8]) -> hushnet_mpc::Result<()> {
        self.0.recv(buf)
    }
    fn flush(&mut self) -> hushnet_mpc::Result<()> {
        self.0.flush()
    }
    fn stats(&self) -> Stats {
        self.0.stats()
    }
}

/// One session in which these numbers of images are inferred one after the other; what the server and the client have sent, and
/// the opened values of the last.
pub(crate) fn session(
    model: &TwoPartyModel,
    calls: &[usize],
    options: TwoPartyOptions,
) -> ([Vec<u8>; 2], Vec<f64>) {
    let (a, b) = memory_pair();
    let sent = [Sent::default(), Sent::default()];
    let (far, near) = (Probe(a, sent[0].clone()), Probe(b, sent[1].clone()));
    let plan = model.plan();
    let mut opened = Vec::new();
    std::thread::scope(|scope| {
        let served = scope.spawn(move || model.serve_plain(Box::new(far), &mut |_| {}));
        let mut client = TwoPartyClient::open(Box::new(near), options).unwrap();
        for &images in calls {
            let shape = [&[images], plan.tensors()[plan.inputs()[0].tensor].shape.as_slice()].concat();
            // Equal images of equal pixels: whatever is equal in a transcript is not so because of randomness of the input.
            let data = vec![0.4; shape.iter().product()];
            let input = Input { name: "image", shape, data: InputData::F64(&data) };
            let (outputs, _) = client.infer(&[input], &mut |_| ControlFlow::Continue(())).unwrap();
            opened.clone_from(&outputs[0].data);
        }
        client.close().unwrap();
        served.join().unwrap().unwrap();
    });
    (sent.map(|s| std::mem::take(&mut *s.0.lock().unwrap())), opened)
}

pub(crate) fn model(net: &Net) -> TwoPartyModel {
    TwoPartyModel::new(&nets::two_party_plan(net), Compute::default()).unwrap()
}

pub(crate) fn options(kind: OtKind, group: usize) -> TwoPartyOptions {
    TwoPartyOptions { ot: Some(kind), group: Some(group), ..TwoPartyOptions::default() }
}

/// What every two-party session needs.
const OTS: Needs<'static> = &[
    (ot::SENT_PAD, 1000),
    (ot::RECEIVED_PAD, 1000),
    (uses::SECRET, 1),
    (uses::SEED, 4),
    (uses::PACKED_MASK, 1),
];
const IKNP: Needs<'static> = &[(ot::IKNP_SENDER, 254), (ot::IKNP_RECEIVER, 508)];
const CHEETAH: Needs<'static> = &[(uses::PACKED_MASK, 9), (uses::PACKED_RERANDOMISER, 8)];
const CONVFHE: Needs<'static> =
    &[(uses::PACKED_MASK, 10), (uses::PACKED_RERANDOMISER, 8), (uses::MERGE_MASK, 2)];
const BATCH: Needs<'static> =
    &[(uses::SHARE_MASK, 200), (uses::SHARE_RERANDOMISER, 100), (uses::SHARE_R, 400)];
const ROTATION_FREE: Needs<'static> =
    &[(uses::ONE_POLY_SECRET, 8), (uses::ONE_POLY_SETUP, 2), (uses::ONE_POLY_R, 100)];
const SLOTS: Needs<'static> =
    &[(uses::SLOT_MASK, 20), (uses::SLOT_RERANDOMISER, 8), (uses::SLOT_R, 100), (uses::SLOT_FLOOD, 1000)];
const GARBLED: Needs<'static> = &[
    (ot::GARBLED_TWEAK, 4),
    (ot::EVALUATED_TWEAK, 4),
    (ot::GARBLER_LABELS, 100),
    (ot::EVALUATOR_LABELS, 100),
    (ot::GARBLED_R, 100),
];

fn all(needs: &[Needs<'_>]) -> Vec<(Kind, u64)> {
    needs.concat()
}

/// Two inferences, of three images in two groups and of two more, in one session.
fn check(what: &str, net: &Net, kind: OtKind, needs: &[Needs<'_>]) {
    let (_, report) = recorded(|| session(&model(net), &[3, 2], options(kind, 2)));
    assert_once(what, &report, &all(&[&[OTS], needs].concat()));
}

/// What the methods of a family must use on two layers. A new family has a row here.
const FAMILIES: &[(&str, Needs<'static>)] = &[
    ("cheetah", CHEETAH),
    ("batch", BATCH),
    ("slots", SLOTS),
    ("convfhe", CONVFHE),
    ("rotation-free", ROTATION_FREE),
];

#[test]
fn every_method_of_the_registry_uses_every_mask_once() {
    for method in LINEAR_METHODS {
        let family = FAMILIES.iter().find(|(name, _)| *name == method.family());
        let (_, needs) = family.unwrap_or_else(|| {
            panic!(
                "FAMILIES has no row for '{}': which masks does method '{}' use?",
                method.family(),
                method.name
            )
        });
        let net = nets::of_method(method.name, "ot");
        check(method.name, &net, OtKind::Iknp, &[IKNP, needs]);
    }
}

#[test]
fn methods_that_share_a_session_use_every_mask_once() {
    // Of two methods each runs one layer: half of what it runs alone.
    for methods in [["cheetah", "gala"], ["batch", "rotation-free"], ["convfhe", "cheetah"]] {
        check(&format!("{methods:?}"), &nets::classifier(&methods, "ot"), OtKind::Iknp, &[IKNP]);
    }
}

#[test]
fn every_ot_extension_uses_every_pad_once() {
    let net = nets::classifier(&["cheetah"], "ot");
    let trees = [(ot::FERRET_ROOT, 100), (ot::FERRET_SENT_TREE, 100), (ot::FERRET_RECEIVED_TREE, 100)];
    let leaves = [(ot::SOFT_SENDER, 16 * 255), (ot::SOFT_RECEIVER, 16 * 256)];
    check("softspoken", &net, OtKind::SoftSpoken, &[CHEETAH, &leaves]);
    check("silent", &net, OtKind::Silent(SilentSize::Tiny), &[CHEETAH, &leaves, &trees]);
}

#[test]
fn garbled_layers_use_every_tweak_and_label_once() {
    for methods in [&["cheetah"][..], &["gala"]] {
        let net = nets::classifier(methods, "garbled");
        check("garbled", &net, OtKind::SoftSpoken, &[GARBLED]);
    }
}

/// Ladders of products and tables of functions: every pad and every key of a label once, and a key that is used twice is found.
#[test]
fn functions_and_products_use_every_pad_once() {
    let net = nets::gated();
    let keys = [(ot::SENT_TABLE_KEY, 500), (ot::RECEIVED_TABLE_KEY, 100), (ot::SENT_PAD, 4000)];
    check("functions and products", &net, OtKind::SoftSpoken, &[&keys]);
    let run = || {
        let recording = Recording::start().plant(ot::SENT_TABLE_KEY, 1..2);
        session(&model(&net), &[1], options(OtKind::SoftSpoken, 1));
        recording.finish()
    };
    assert_found("functions and products", &run(), &[ot::SENT_TABLE_KEY]);
}

/// Products of matrices in a plan: masks of requests, of answers and of keys, in two products of every image of two groups.
#[test]
fn matrix_products_of_plans_use_every_mask_once() {
    let needs = [(uses::WIDE_MASK, 20), (uses::WIDE_RERANDOMISER, 20), (uses::MERGE_MASK, 1)];
    check("matrix products", &nets::attention(), OtKind::SoftSpoken, &[&needs]);
    let kind = uses::WIDE_RERANDOMISER;
    let recording = Recording::start().plant(kind, 2..4);
    session(&model(&nets::attention()), &[1], options(OtKind::SoftSpoken, 1));
    assert_found(kind.0, &recording.finish(), &[kind]);
}

/// Two images, one after the other, through layers of several tiles, ciphertexts and weight polynomials.
#[test]
fn tiles_and_polynomials_have_masks_of_their_own() {
    for (method, needs) in [
        ("cheetah", &[(uses::PACKED_MASK, 9), (uses::PACKED_RERANDOMISER, 8)][..]),
        ("convfhe", &[(uses::PACKED_MASK, 5), (uses::PACKED_RERANDOMISER, 4)]),
        ("rotation-free", &[(uses::ONE_POLY_SECRET, 4), (uses::ONE_POLY_SETUP, 8)]),
        ("gala", &[(uses::SLOT_MASK, 30)]),
    ] {
        let (_, report) =
            recorded(|| session(&model(&nets::tiled(method)), &[1, 1], options(OtKind::SoftSpoken, 1)));
        assert_once(&format!("tiles of {method}"), &report, &all(&[&OTS[..3], needs]));
    }
}

/// Batches of two ciphertext blocks in one group.
#[test]
fn blocks_of_a_batch_have_masks_of_their_own() {
    let net = nets::dense_batch();
    let (_, report) = recorded(|| session(&model(&net), &[2050], options(OtKind::Iknp, 2050)));
    assert_once("blocks of a batch", &report, &all(&[OTS, &[(uses::SHARE_MASK, 13), (uses::SHARE_R, 4000)]]));
}

/// 1-of-2^k OT of chosen messages, which no layer of a plan uses: tables of functions have pads of their own.
#[test]
fn keys_of_one_of_n_transfers_are_used_once() {
    let run = |repeat: bool| -> Report {
        let mut recording = Recording::start();
        if repeat {
            recording = recording.plant(ot::SENT_TABLE_KEY, 1..2);
        }
        nets::one_of_n();
        recording.finish()
    };
    let needs: Needs<'_> =
        &[(ot::SENT_TABLE_KEY, 16 * 40), (ot::RECEIVED_TABLE_KEY, 4 * 40), (ot::SENT_PAD, 160)];
    assert_once("1-of-16", &run(false), needs);
    assert_found("1-of-16", &run(true), &[ot::SENT_TABLE_KEY]);
}

/// The client keeps set-ups: the second session continues the first, a third is interrupted after half of a file, a fourth client has nothing.
#[test]
fn continued_set_ups_repeat_the_same_messages_and_nothing_else() {
    let folder = std::env::temp_dir().join(format!("hushnet-masks-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let net = nets::tiled("rotation-free");
    let kept = || TwoPartyOptions { setups: Some(folder.clone()), ..options(OtKind::SoftSpoken, 2) };
    let (lengths, report) = recorded(|| {
        let model = model(&net);
        let mut lengths =
            vec![session(&model, &[2], kept()).0[0].len(), session(&model, &[2], kept()).0[0].len()];
        for file in std::fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        }
        lengths.push(session(&model, &[2], kept()).0[0].len());
        lengths.push(session(&model, &[2], options(OtKind::SoftSpoken, 2)).0[0].len());
        lengths
    });
    let _ = std::fs::remove_dir_all(&folder);
    assert!(lengths[1] < lengths[2] && lengths[2] <= lengths[0] && lengths[0] == lengths[3], "{lengths:?}");
    // Twice the number of polynomials, and half of it: one client after the other had them made anew.
    assert_once("kept set-ups", &report, &all(&[OTS, ROTATION_FREE, &[(uses::ONE_POLY_SETUP, 20)]]));
}

/// Prepares five inferences and spends them, in sessions of their own.
fn prepared(net: &Net, method: &str) {
    let folder = std::env::temp_dir().join(format!("hushnet-masks-units-{method}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let model = model(net);
    let plan = model.plan();
    let store = UnitStore::open(&folder.join("server"), UnitPolicy::default()).unwrap();
    let options = TwoPartyOptions { units: Some(folder.join("client")), ..options(OtKind::SoftSpoken, 2) };
    for preparing in [true, false] {
        let (far, near) = memory_pair();
        std::thread::scope(|scope| {
            let served = scope.spawn(|| model.serve_units(Box::new(far), &store, &mut |_| {}));
            let mut client = TwoPartyClient::open(Box::new(near), options.clone()).unwrap();
            if preparing {
                client.prepare(5, &mut |_| ControlFlow::Continue(())).unwrap();
            } else {
                let shape = [&[5], plan.tensors()[plan.inputs()[0].tensor].shape.as_slice()].concat();
                let data = vec![0.4; shape.iter().product()];
                let input = Input { name: "image", shape, data: InputData::F64(&data) };
                // A planted r makes values that leave their range.
                client.infer_marked(&[input], &mut |_| ControlFlow::Continue(())).unwrap();
            }
            client.close().unwrap();
            served.join().unwrap().unwrap();
        });
    }
    let _ = std::fs::remove_dir_all(&folder);
}

/// Over preparation and inference: r meets one image, s one product, a pad one draw, and what the methods use for r is used once.
#[test]
fn prepared_inferences_use_every_mask_once() {
    let units: Needs<'_> = &[
        (uses::UNIT_MASK, 3 * (160 / 32 + 80 / 32)),
        (uses::UNIT_SHARE, 6),
        (ot::KEPT_PADS[0], 1000),
        (ot::KEPT_PADS[1], 1000),
    ];
    for (method, needs) in [("cheetah", CHEETAH), ("batch", BATCH), ("rotation-free", ROTATION_FREE)] {
        let net = nets::classifier(&[method], "ot");
        let ((), report) = recorded(|| prepared(&net, method));
        assert_once(&format!("prepared, {method}"), &report, &all(&[&OTS[..2], needs, units]));
    }
    let net = nets::classifier(&["cheetah"], "ot");
    let recording = Recording::start().plant(uses::UNIT_MASK, 2..3);
    prepared(&net, "planted");
    assert_found("r of two images", &recording.finish(), &[uses::UNIT_MASK]);
    for kind in ot::KEPT_PADS {
        let recording = Recording::start().plant(kind, 2..3);
        prepared(&net, "planted");
        assert_found(kind.0, &recording.finish(), &[kind]);
    }
}

/// Runs cheetah on two images with a planted failure; the opened values are what they are without it.
fn planted(recording: Recording, kind: OtKind) -> Report {
    let net = nets::classifier(&["cheetah"], "ot");
    let (_, opened) = session(&model(&net), &[2], options(kind, 2));
    let report = recording.finish();
    let ((_, right), _) = recorded(|| session(&model(&net), &[2], options(kind, 2)));
    // Truncations differ by a unit from run to run; a wrong mask would make the logits anything up to 2^20.
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 2.0;
    assert!(
        opened.iter().zip(&right).all(near),
        "the planted run shows in the result: {opened:?}, {right:?}"
    );
    report
}

/// No test of results sees any of these.
#[test]
fn planted_reuse_is_found_where_results_stay_right() {
    let report = planted(Recording::start(), OtKind::Iknp);
    assert!(report.findings.is_empty(), "nothing was planted: {:?}", report.findings);

    // A draw of correlated OTs that hands out the last ones again, at both parties.
    let again = Recording::start().plant(ot::SENT_PAD, 3..4).plant(ot::RECEIVED_PAD, 3..4);
    let report = planted(again, OtKind::Iknp);
    assert_found("a pad index", &report, &[ot::SENT_PAD, ot::RECEIVED_PAD]);

    let report = planted(Recording::start().plant(uses::PACKED_RERANDOMISER, 2..3), OtKind::Iknp);
    assert_found("u in two answers", &report, &[uses::PACKED_RERANDOMISER]);

    // Seeds: of the key, of the first image, of the second image.
    let report = planted(Recording::start().plant(uses::SEED, 2..3), OtKind::Iknp);
    assert_found("the seed of an encryption", &report, &[uses::SEED, uses::PACKED_MASK]);

    // The operating system gives one seed twice: a generator begins again.
    let report = planted(Recording::start().plant(ENTROPY, 6..8), OtKind::Iknp);
    assert_found("a reset generator", &report, &[ENTROPY, GENERATOR]);
}

/// The same in the other methods, each at its own mask.
#[test]
fn planted_reuse_is_found_in_every_method() {
    for (methods, protocol, kind) in [
        ("batch", "ot", uses::SHARE_R),
        ("batch", "ot", uses::SHARE_RERANDOMISER),
        ("rotation-free", "ot", uses::ONE_POLY_R),
        ("rotation-free", "ot", uses::ONE_POLY_SECRET),
        ("gala", "ot", uses::SLOT_R),
        ("gala", "ot", uses::SLOT_FLOOD),
        ("gala", "ot", uses::SEED),
        ("convfhe", "ot", uses::PACKED_RERANDOMISER),
        ("cheetah", "garbled", ot::GARBLED_R),
    ] {
        let net = nets::classifier(&[methods], protocol);
        let recording = Recording::start().plant(kind, 1..2);
        session(&model(&net), &[2], options(OtKind::SoftSpoken, 2));
        assert_found(methods, &recording.finish(), &[kind]);
    }
}
