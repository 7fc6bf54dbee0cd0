//! Random networks: every stage's result against its operands, every output against the planned run.

use super::super::network::Network;
use super::super::plan::Kind;
use super::builder::{Net, Rng};
use super::*;
use hushnet_mpc::{OtKind, Rounding, SilentSize};
use serde_json::json;
use std::collections::HashMap;

/// Integers of all shared tensors: [tensor][image * elements].
fn joined(plan: &TwoPartyPlan, run: &Run, groups: usize) -> HashMap<usize, Vec<i64>> {
    let ring = plan.ring();
    let mut values: HashMap<usize, Vec<i64>> = HashMap::new();
    assert_eq!(run.shares[0].len(), run.shares[1].len());
    assert_eq!(run.shares[0].len() % groups, 0);
    for ((t, a), (u, b)) in run.shares[0].iter().zip(&run.shares[1]) {
        assert_eq!((t, a.len()), (u, b.len()));
        values.entry(*t).or_default().extend(a.iter().zip(b).map(|(a, b)| ring.signed(ring.add(*a, *b))));
    }
    values
}

/// Checks a run; returns (units, results) of all linear stages.
pub(super) fn verify(
    net: &Net,
    plan: &TwoPartyPlan,
    inputs: &[Vec<f64>],
    images: usize,
    run: &Run,
) -> (usize, usize) {
    let values = joined(plan, run, run.client.groups);
    let (mut planned, mut spread): (HashMap<usize, Vec<i64>>, HashMap<usize, i64>) = Default::default();
    let (mut units, mut results, mut shared_inputs) = (0, 0, 0);
    for (stage, checked) in net.stages.iter().zip(plan.stages()) {
        let Some(output) = checked.output else { continue };
        let elements = plan.tensors()[output].elements;
        let exact = matches!(checked.kind, Kind::Truncate { rounding: Rounding::Floor, .. });
        match checked.kind {
            Kind::Share => {
                let scale = net.tensors[checked.inputs[0]]["scale"].as_f64().unwrap();
                let v: Vec<i64> =
                    inputs[shared_inputs].iter().map(|x| (x / scale).round_ties_even() as i64).collect();
                shared_inputs += 1;
                assert_eq!(values[&output], v);
                planned.insert(output, v);
                spread.insert(output, 0);
                continue;
            }
            Kind::Reveal(_) => {
                check_opened(net, plan, (checked.inputs[0], output), &values, run, images);
                continue;
            }
            _ => {}
        }
        let mut ideal = Vec::new();
        for image in 0..images {
            let part = |from: &HashMap<usize, Vec<i64>>, t: usize| {
                let n = plan.tensors()[t].elements;
                from[&t][image * n..(image + 1) * n].to_vec()
            };
            let operands: Vec<Vec<i64>> = checked.inputs.iter().map(|t| part(&values, *t)).collect();
            let refs: Vec<&[i64]> = operands.iter().map(Vec::as_slice).collect();
            let (expected, allowed) = oracle::evaluate(net, stage, &refs, exact);
            assert_eq!(expected.len(), elements);
            for (i, (got, want)) in part(&values, output).iter().zip(&expected).enumerate() {
                assert!(
                    allowed.contains(&(got - want)),
                    "{stage}: element {i} of image {image} is {got}, not {want}"
                );
                if stage["kind"] == "linear" {
                    units += usize::from(got != want);
                    results += 1;
                }
            }
            let operands: Vec<Vec<i64>> = checked.inputs.iter().map(|t| part(&planned, *t)).collect();
            let refs: Vec<&[i64]> = operands.iter().map(Vec::as_slice).collect();
            ideal.extend(oracle::evaluate(net, stage, &refs, exact).0);
        }
        let x: Vec<i64> = checked.inputs.iter().map(|t| spread[t]).collect();
        let most = oracle::spread(net, stage, &x, exact);
        for (got, want) in values[&output].iter().zip(&ideal) {
            assert!(
                (got - want).abs() <= most,
                "{stage}: {got} lies more than {most} from the planned {want}"
            );
        }
        planned.insert(output, ideal);
        spread.insert(output, most);
    }
    check_costs(plan, run);
    (units, results)
}

fn check_opened(
    net: &Net,
    plan: &TwoPartyPlan,
    (x, opened): (usize, usize),
    values: &HashMap<usize, Vec<i64>>,
    run: &Run,
    images: usize,
) {
    let name = plan.outputs().iter().position(|p| p.tensor == opened + 1).unwrap();
    let got = &run.outputs[name].data;
    if net.reveal == "argmax" {
        let n = plan.tensors()[x].elements;
        for image in 0..images {
            let row = &values[&x][image * n..(image + 1) * n];
            let best = (0..n).max_by_key(|i| (row[*i], std::cmp::Reverse(*i))).unwrap();
            assert_eq!(got[image], best as f64);
        }
        return;
    }
    let scale = net.tensors[opened]["scale"].as_f64().unwrap();
    let want: Vec<f64> = values[&x].iter().map(|v| *v as f64 * scale).collect();
    assert_eq!(got, &want);
}

/// Measured bytes, turns and rounds are the predicted ones, stage by stage, on both sides.
pub(super) fn check_costs(plan: &TwoPartyPlan, run: &Run) {
    for trace in [&run.client, &run.server] {
        let turns = |p: &super::super::Phase| {
            if trace.party == "client" {
                p.predicted.client_turns
            } else {
                p.predicted.server_turns
            }
        };
        let phases = trace.stages.iter().map(|s| (s.name.as_str(), &s.phase));
        for (name, p) in phases.chain([("set-up", &trace.setup), ("total", &trace.total)]) {
            assert_eq!(
                (p.bytes_up, p.bytes_down),
                (p.predicted.bytes_up, p.predicted.bytes_down),
                "{name} of the {}",
                trace.party
            );
            assert_eq!(p.turns, turns(p), "{name} of the {}", trace.party);
        }
    }
    // As served: a name of the preparation besides, always of one length.
    let name = plan.sets_up().then(|| "0".repeat(64));
    let served =
        crate::plan::encode(&plan.served_json(name.as_deref()).unwrap(), &std::collections::BTreeMap::new())
            .unwrap();
    let plan_bytes = 8 + served.len() as u64;
    let end = 4;
    assert_eq!(
        run.heard[1].0.len() as u64,
        plan_bytes + run.client.setup.bytes_down + run.client.total.bytes_down
    );
    assert_eq!(run.heard[0].0.len() as u64, run.client.setup.bytes_up + run.client.total.bytes_up + end);
    // The plan's message comes before the account begins; the client then greets.
    let rounds = run.client.setup.predicted.rounds + run.client.total.predicted.rounds;
    let measured = run.heard[0].1.max(run.heard[1].1);
    assert!((rounds..=rounds + 2).contains(&measured), "{measured} rounds, {rounds} predicted");
}

pub(super) fn classifier(ring_bits: u32, seed: u64) -> Net {
    let mut net = Net::new(ring_bits, seed);
    let x = net.input("image", &[3, 9, 7], 5, 31);
    let c = net.conv(x, 5, 3, 1, 1, 1, 5);
    let r = net.relu(c);
    let t = net.truncate(r, 5, "non-negative", false);
    let p = net.pool("max_pool", t, [2, 3], [2, 2], [0, 1, 1, 1]);
    let d = net.dense(p, 6, 4);
    let t = net.truncate(d, 3, "any", false);
    net.open("logits", t);
    net
}

#[test]
fn a_classifier_with_every_ot_extension() {
    for kind in [OtKind::Iknp, OtKind::Silent(SilentSize::Small), OtKind::SILENT] {
        let mut net = classifier(28, 1);
        let plan = plan_of(&net).unwrap();
        let inputs = random_inputs(&mut net, &plan, 1);
        let run =
            run(&plan, &inputs, 1, TwoPartyOptions { ot: Some(kind), ..TwoPartyOptions::default() }).unwrap();
        verify(&net, &plan, &inputs, 1, &run);
    }
}

#[test]
fn several_images_share_rounds_and_sessions() {
    let mut net = classifier(30, 2);
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, 7);
    let ot = Some(OtKind::Iknp);
    let alone =
        run(&plan, &inputs, 7, TwoPartyOptions { group: Some(1), ot, ..TwoPartyOptions::default() }).unwrap();
    let together =
        run(&plan, &inputs, 7, TwoPartyOptions { group: Some(3), ot, ..TwoPartyOptions::default() }).unwrap();
    assert_eq!((alone.client.groups, together.client.groups), (7, 3));
    verify(&net, &plan, &inputs, 7, &together);
    check_costs(&plan, &alone);
    assert!(together.client.total.predicted.rounds * 2 < alone.client.total.predicted.rounds);
    assert_eq!(together.server.images, 7);
}

#[test]
fn argmax_opens_the_label_only() {
    let mut net = Net::new(26, 3);
    net.reveal = "argmax";
    let x = net.input("image", &[1, 8, 8], 4, 15);
    let d = net.dense(x, 10, 5);
    net.open("label", d);
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, 5);
    let run = run(&plan, &inputs, 5, TwoPartyOptions::default()).unwrap();
    verify(&net, &plan, &inputs, 5, &run);
    assert_eq!(run.outputs[0].shape, [5, 1]);
}

#[test]
fn residuals_concats_pools_and_moves() {
    let mut net = Net::new(34, 4);
    let x = net.input("image", &[4, 6, 5], 4, 15);
    let y = net.input("other", &[4, 6, 5], 4, 7);
    let a = net.conv(x, 4, 3, 1, 1, 2, 3);
    let b = net.conv(y, 4, 1, 1, 0, 4, 3);
    let s = net.add(a, b);
    let twice = net.add(s, s);
    let l = net.leaky_relu(twice, 3, 5);
    let c = net.clip(l, -40, 300);
    let p = net.pool("sum_pool", c, [3, 2], [2, 1], [1, 0, 1, 1]);
    let sc = net.scale(p, 5);
    let t = net.truncate(sc, 4, "any", false);
    let [ch, h, w] = net.shape(t)[..] else { unreachable!() };
    let tr = net.moves(json!({"kind": "transpose", "perm": [2, 0, 1]}), &[t], &[w, ch, h]);
    let sl = net.moves(
        json!({"kind": "slice", "starts": [w - 1, 0], "ends": [0, h], "steps": [-2, 2], "axes": [0, 2]}),
        &[tr],
        &[(w - 1).div_ceil(2), ch, h.div_ceil(2)],
    );
    let shape = net.shape(sl);
    let pd = net.moves(
        json!({"kind": "pad", "pads": [0, 1, 0, 1, 0, 2]}),
        &[sl],
        &[shape[0] + 1, shape[1] + 1, shape[2] + 2],
    );
    let cc = net.moves(
        json!({"kind": "concat", "axis": 1}),
        &[pd, pd],
        &[shape[0] + 1, 2 * shape[1] + 2, shape[2] + 2],
    );
    let n: usize = net.shape(cc).iter().product();
    let rs = net.moves(json!({"kind": "reshape"}), &[cc], &[n]);
    let d = net.dense(rs, 3, 3);
    let o = net.truncate(d, 2, "any", true);
    net.open("out", o);
    net.open("pooled", t);
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, 2);
    let run = run(&plan, &inputs, 2, TwoPartyOptions::default()).unwrap();
    verify(&net, &plan, &inputs, 2, &run);
}

/// A random chain of convolutions, activations and pools.
fn random_net(seed: u64) -> Net {
    let mut rng = Rng(seed);
    let mut net = Net::new(rng.range(30, 36) as u32, seed ^ 0x4d);
    let mut x = net.input(
        "image",
        &[rng.range(1, 3) as usize, rng.range(5, 11) as usize, rng.range(5, 11) as usize],
        5,
        31,
    );
    for _ in 0..rng.range(1, 3) {
        let shape = net.shape(x);
        let kernel = rng.range(1, 3.min(shape[1].min(shape[2]) as i64)) as usize;
        let pad = rng.range(0, kernel as i64 / 2) as usize;
        let stride = rng.range(1, 2) as usize;
        let groups = if rng.range(0, 2) == 0 { shape[0] } else { 1 };
        let outputs = groups * rng.range(1, 4) as usize;
        x = net.conv(x, outputs, kernel, stride, pad, groups, rng.range(3, 6) as u32);
        let drop = (net.bound(x).ilog2() + 1).saturating_sub(7).max(1);
        x = match rng.range(0, 2) {
            0 => net.truncate(x, drop, "any", rng.range(0, 1) == 1),
            _ => {
                let r = net.relu(x);
                net.truncate(r, drop, "non-negative", rng.range(0, 1) == 1)
            }
        };
        let shape = net.shape(x);
        if shape[1] >= 3 && shape[2] >= 3 && rng.range(0, 1) == 1 {
            let kind = if rng.range(0, 1) == 0 { "max_pool" } else { "sum_pool" };
            let k = rng.range(2, 3) as usize;
            x = net.pool(kind, x, [k, 2], [rng.range(1, 2) as usize, 2], [rng.range(0, 1) as usize, 0, 0, 1]);
        }
    }
    let d = net.dense(x, rng.range(1, 12) as usize, 4);
    let t = net.truncate(d, 2, "any", false);
    net.open("out", t);
    net
}

#[test]
fn random_networks() {
    for seed in 0..12 {
        let mut net = random_net(seed);
        let plan = plan_of(&net).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let images = 1 + seed as usize % 3;
        let inputs = random_inputs(&mut net, &plan, images);
        let run = run(&plan, &inputs, images, TwoPartyOptions::default()).unwrap();
        verify(&net, &plan, &inputs, images, &run);
    }
}

/// ReLU of values that fill the ring, clips from zero and from below it, a max-pool over signed values: all drop bits of what they compare.
pub(super) fn dropping(protocol: &str, seed: u64) -> Net {
    let mut net = Net::new(26, seed);
    let x = net.input("image", &[2, 9, 8], 6, 63);
    let c = net.conv(x, 3, 3, 1, 1, 1, 6);
    let filling = (15_u64 << 21) / net.bound(c);
    let wide = net.scale(c, filling);
    net.relu(wide);
    let r = net.dropping(17);
    let c = net.conv(r, 4, 3, 1, 1, 1, 4);
    net.pool("max_pool", c, [3, 2], [2, 2], [1, 0, 1, 0]);
    let p = net.dropping(4);
    let top = net.bound(p) as i64;
    net.clip(p, 0, top / 5);
    let low = net.dropping(2);
    net.clip(p, -top / 3, top / 7);
    let both = net.dropping(3);
    let low = net.truncate(low, 1, "non-negative", false);
    let s = net.add(low, both);
    let d = net.dense(s, 4, 3);
    let t = net.truncate(d, 3, "any", false);
    net.open("out", t);
    for stage in
        net.stages.iter_mut().filter(|s| protocol != "ot" && s["bits"].is_u64() && s["kind"] != "truncate")
    {
        stage["protocol"] = protocol.into();
    }
    net
}

#[test]
fn comparisons_that_drop_bits() {
    for (protocol, seed) in
        [("ot", 21), ("ot", 22), ("garbled", 23), ("ripple-2", 24), ("ripple-3", 25), ("ripple-4", 26)]
    {
        let mut net = dropping(protocol, seed);
        let plan = plan_of(&net).unwrap();
        let inputs = random_inputs(&mut net, &plan, 2);
        let run = run(&plan, &inputs, 2, TwoPartyOptions::default()).unwrap();
        verify(&net, &plan, &inputs, 2, &run);
        let filling = plan.stages().iter().find(|s| s.label == "relu").unwrap();
        assert_eq!((filling.bits + filling.compared.bits(), filling.bits), (26, 17));
    }
}

#[test]
fn units_come_as_often_as_predicted() {
    let mut net = Net::new(31, 9);
    let x = net.input("image", &[16, 24, 24], 6, 63);
    let c = net.conv(x, 16, 3, 1, 1, 1, 8);
    let t = net.truncate(c, 9, "any", false);
    net.open("out", t);
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, 2);
    let run = run(&plan, &inputs, 2, TwoPartyOptions::default()).unwrap();
    let (units, results) = verify(&net, &plan, &inputs, 2, &run);
    let weight_l2 = net.stages[2]["weight_l2"].as_f64().unwrap();
    let stated = hushnet_rlwe::packed::PackedSpec { ring_degree: 2048, ring_bits: 31, weight_l2 }
        .choose()
        .unwrap()
        .off_by_one_fraction();
    let seen = units as f64 / results as f64;
    assert!(seen <= 1.1 * stated && seen >= 0.2 * stated, "{seen} seen, {stated} stated");
}

#[test]
fn the_session_survives_wrong_inputs_and_serves_again() {
    let mut net = classifier(28, 5);
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, 1);
    let model = TwoPartyModel::new(&plan, Compute::with_threads(2).unwrap()).unwrap();
    let (far, near) = memory_pair();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| model.serve_plain(Box::new(far), &mut |_| {}));
        let mut client = TwoPartyClient::open(Box::new(near), TwoPartyOptions::default()).unwrap();
        let good = Input { name: "image", shape: vec![1, 3, 9, 7], data: InputData::F64(&inputs[0]) };
        let bad = Input { shape: vec![1, 3, 7, 9], ..good.clone() };
        assert!(matches!(client.infer(&[bad], &mut |_| ControlFlow::Continue(())), Err(Error::Input(_))));
        for _ in 0..2 {
            let mut seen = 0;
            let (_, trace) = client
                .infer(std::slice::from_ref(&good), &mut |p| {
                    assert_eq!((p.stage, p.stages), (seen, plan.stages().len()));
                    seen += 1;
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert_eq!(seen, plan.stages().len());
            assert_eq!(trace.total.bytes_up, trace.total.predicted.bytes_up);
            assert!(trace.to_json().contains("\"bytes_up\""));
        }
        client.close().unwrap();
        assert_eq!(served.join().unwrap().unwrap().images, 2);
    });
}

#[test]
fn throttled_networks_take_the_predicted_time() {
    let mut net = classifier(28, 6);
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, 1);
    let model = TwoPartyModel::new(&plan, Compute::default()).unwrap();
    let input = Input { name: "image", shape: vec![1, 3, 9, 7], data: InputData::F64(&inputs[0]) };
    let run = |network| {
        let (_, client, _) = crate::local::run_shares(
            &model,
            std::slice::from_ref(&input),
            TwoPartyOptions { ot: Some(OtKind::SoftSpoken), ..TwoPartyOptions::default() },
            network,
            &mut |_| ControlFlow::Continue(()),
        )
        .unwrap();
        client.total
    };
    let prediction = super::super::predict(&plan, &Layers::new(&plan).unwrap(), OtKind::SoftSpoken, 1);
    let slow = Network { bits_per_second: 2e6, round_trip_seconds: 20e-3 };
    for network in [Network::WAN, slow] {
        // A busy machine disturbs single runs.
        let mut tries = (0..4).map(|_| {
            let expected = network.predict_seconds(&prediction, run(None).seconds);
            (run(Some(network)).seconds, expected)
        });
        let fits =
            |(measured, expected): (f64, f64)| measured > 0.7 * expected && measured < 1.3 * expected + 0.2;
        assert!(tries.any(fits), "{network:?}");
    }
}

#[test]
fn sessions_travel_over_websockets() {
    use crate::transport::{connect, ConnectOptions, Server, ServerOptions};
    let mut net = classifier(28, 8);
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, 3);
    let model = TwoPartyModel::new(&plan, Compute::default()).unwrap();
    let server = Server::start(model, &ServerOptions::default()).unwrap();
    let url = format!("ws://{}", server.address());
    let input = Input { name: "image", shape: vec![3, 3, 9, 7], data: InputData::F64(&inputs[0]) };
    for ot in [OtKind::SoftSpoken, OtKind::SILENT] {
        let options = TwoPartyOptions { ot: Some(ot), group: Some(2), ..TwoPartyOptions::default() };
        let connection = connect(&url, &ConnectOptions::default()).unwrap();
        let mut client = super::super::connect(Box::new(connection), options).unwrap();
        let (outputs, trace) =
            client.infer(std::slice::from_ref(&input), &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(outputs[0].data.len(), 18);
        assert_eq!(trace.total.bytes_up, trace.total.predicted.bytes_up);
        client.close().unwrap();
    }
    // A client of the other trust model is told what this plan is.
    let connection = connect(&url, &ConnectOptions::default()).unwrap();
    let e = crate::Client::open(Box::new(connection), crate::ClientOptions::default()).err().unwrap();
    assert!(matches!(e, Error::Plan(_)), "{e}");
    server.stop();
    server.join().unwrap();
    assert_eq!(server.stats().images, 6);
}
