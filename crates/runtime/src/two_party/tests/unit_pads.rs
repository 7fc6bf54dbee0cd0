//! Pads of prepared inferences: right results of every stage that draws them, exact traffic, and files that are refused.

use super::networks::{dropping, verify};
use super::units::{infer, prepare, Folders};
use super::*;
use crate::error::UnitError;
use crate::two_party::cost::Extensions;
use serde_json::json;
use std::path::PathBuf;

/// Comparisons of an odd number of values, a label.
fn labelled() -> Net {
    let mut net = Net::new(26, 41);
    net.reveal = "argmax";
    let x = net.input("image", &[1, 7, 5], 4, 15);
    let c = net.conv(x, 3, 3, 1, 1, 1, 4);
    let p = net.pool("max_pool", c, [3, 3], [2, 2], [1, 1, 1, 1]);
    let r = net.relu(p);
    let t = net.truncate(r, 3, "non-negative", false);
    let d = net.dense(t, 11, 4);
    net.open("label", d);
    net
}

/// Truncations of every kind, and products, whose ladders draw OTs of the session.
fn multiplied() -> Net {
    let mut net = Net::new(30, 42);
    let x = net.input("image", &[2, 5, 3], 4, 15);
    let c = net.conv(x, 2, 3, 1, 1, 1, 3);
    let l = net.leaky_relu(c, 3, 5);
    let f = net.truncate(l, 4, "any", true);
    let n: usize = net.shape(f).iter().product();
    let p = net.product(f, f, &net.shape(f), 3);
    let flat = net.moves(json!({"kind": "reshape"}), &[p], &[n]);
    let d = net.dense(flat, 3, 3);
    let o = net.truncate(d, 2, "any", true);
    net.open("out", o);
    net
}

#[test]
fn protocols_draw_kept_pads_and_results_are_right() {
    let nets = [dropping("ot", 31), dropping("garbled", 32), labelled(), multiplied()];
    for (number, mut net) in nets.into_iter().enumerate() {
        let plan = plan_of(&net).unwrap();
        let model = TwoPartyModel::new(&plan, Compute::default()).unwrap();
        let folders = Folders::new(&format!("pads-{number}"));
        let (client, server) = prepare(&model, &folders, 3);
        for measured in [client.total, server.offline.unwrap()] {
            let p = measured.predicted;
            assert_eq!((measured.bytes_up, measured.bytes_down), (p.bytes_up, p.bytes_down), "{number}");
        }
        assert_eq!(client.total.turns, client.total.predicted.client_turns);
        // Two images in one group, whose units' pads follow one another, and one.
        let inputs = random_inputs(&mut net, &plan, 3);
        let run = infer(&model, &folders, &inputs, 3).unwrap();
        verify(&net, &plan, &inputs, 3, &run);
        assert_eq!(folders.counts(), [0, 0]);
        // Of stages without ladders and circuits nothing is left to OTs.
        let drawn = online(&plan, 1).drawn;
        assert_eq!(drawn > 0, [1, 3].contains(&number), "{number}: {drawn}");
    }
}

/// Work of OTs with one image, where it is prepared.
fn online(plan: &TwoPartyPlan, images: usize) -> Extensions {
    let layers = Layers::new(plan).unwrap();
    super::super::predict(plan, &layers, hushnet_mpc::OtKind::Iknp, images).prepared.unwrap().extensions
}

fn unit(folder: &super::stored::Temporary) -> PathBuf {
    folder.files().into_iter().find(|f| f.extension().is_some_and(|e| e == "unit")).unwrap()
}

#[test]
fn damaged_and_short_pads_are_refused_and_spent() {
    let mut net = labelled();
    let plan = plan_of(&net).unwrap();
    let model = TwoPartyModel::new(&plan, Compute::default()).unwrap();
    let folders = Folders::new("damaged-pads");
    let inputs = random_inputs(&mut net, &plan, 1);
    let damages: [fn(Vec<u8>) -> Vec<u8>; 3] = [
        // The last of the pads.
        |mut bytes| {
            let at = bytes.len() - 33;
            bytes[at] ^= 1;
            bytes
        },
        |mut bytes| {
            bytes.pop();
            bytes
        },
        |mut bytes| {
            bytes.push(0);
            bytes
        },
    ];
    for damage in damages {
        prepare(&model, &folders, 1);
        let path = unit(&folders.server);
        std::fs::write(&path, damage(std::fs::read(&path).unwrap())).unwrap();
        assert!(matches!(infer(&model, &folders, &inputs, 1), Err(Error::Units(UnitError::Unknown))));
        assert_eq!(folders.counts(), [0, 0]);
        prepare(&model, &folders, 1);
        let path = unit(&folders.client);
        std::fs::write(&path, damage(std::fs::read(&path).unwrap())).unwrap();
        // The client sees it before anything leaves, and goes with what is whole.
        assert!(infer(&model, &folders, &inputs, 1).is_err());
        assert_eq!(folders.counts()[0], 0);
        prepare(&model, &folders, 1);
        infer(&model, &folders, &inputs, 1).unwrap();
        // What the damaged one's other half was goes with time.
        std::fs::remove_file(unit(&folders.server)).unwrap();
    }
}
