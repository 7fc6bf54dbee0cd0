//! Plans that must be refused, and peers that go away.

use super::networks::check_costs;
use super::*;
use serde_json::{json, Value};

fn net() -> Net {
    seeded_net(11)
}

fn seeded_net(seed: u64) -> Net {
    let mut net = Net::new(28, seed);
    let x = net.input("image", &[2, 6, 6], 4, 15);
    let c = net.conv(x, 3, 3, 1, 1, 1, 4);
    let r = net.relu(c);
    let t = net.truncate(r, 4, "non-negative", false);
    let p = net.pool("max_pool", t, [2, 2], [2, 2], [0; 4]);
    let d = net.dense(p, 4, 4);
    let o = net.truncate(d, 3, "any", false);
    net.open("out", o);
    net
}

fn refused(what: &str, change: impl FnOnce(&mut Net), message: &str) {
    let mut net = net();
    change(&mut net);
    match plan_of(&net) {
        Ok(_) => panic!("{what} was accepted"),
        Err(e) => assert!(e.to_string().contains(message), "{what}: {e}"),
    }
}

fn stage<'a>(net: &'a mut Net, kind: &str) -> &'a mut Value {
    net.stages.iter_mut().find(|s| s["kind"] == kind).unwrap()
}

/// Bounds of sums below what the weights allow are for plans that say so, and no client is told.
#[test]
fn sums_by_calibration_are_said() {
    let small = |ranges: &str, sums: &str| {
        let mut net = net();
        net.tensors[3]["bound"] = 1000.into();
        (net.ranges, net.sums) = (ranges.into(), sums.into());
        net
    };
    let plan = plan_of(&small("calibrated", "calibrated")).unwrap();
    let public: Value = serde_json::from_str(&plan.public_json().unwrap()).unwrap();
    let told = &public["params"]["two_party"];
    assert!(told["ranges"] == "calibrated" && told["sums"].is_null());
    for (ranges, sums, message) in [
        ("calibrated", "proven", "outputs can reach"),
        ("proven", "proven", "outputs can reach"),
        ("proven", "calibrated", "in a plan whose ranges are not"),
    ] {
        refused("a small bound", |n| *n = small(ranges, sums), message);
    }
}

#[test]
fn wrong_plans_are_typed_errors() {
    assert!(plan_of(&net()).is_ok());
    refused("a narrow ring", |n| n.ring_bits = 8, "does not fit the ring");
    refused("a wide ring", |n| n.ring_bits = 48, "do not fit a 50-bit modulus");
    refused("a small bound", |n| n.tensors[3]["bound"] = 10.into(), "outputs can reach");
    refused("a small reach", |n| n.tensors[3]["reach_bits"] = 8.into(), "need reach_bits");
    refused("a reach beyond the ring", |n| n.tensors[3]["reach_bits"] = 28.into(), "does not fit the ring");
    // units of errors are counted: B + B/256 + 2 must be below 2^(w-1), and differences below twice that
    refused(
        "a bound next to the ring",
        |n| n.tensors[3]["bound"] = ((1 << 27) - 1).into(),
        "does not fit the ring",
    );
    refused(
        "maxima whose differences wrap",
        |n| n.tensors[5]["reach_bits"] = 27.into(),
        "comparing values below 2^27 takes a ring of 29 bits",
    );
    refused(
        "bounds of some tensors",
        |n| drop(n.tensors[4].as_object_mut().unwrap().remove("bound")),
        "a plan gives all",
    );
    refused(
        "no exact bounds beside weights",
        |n| {
            for t in n.tensors.iter_mut().filter(|t| t["kind"] == "shared") {
                t["reach_bits"] = 20.into();
                t.as_object_mut().unwrap().remove("bound");
            }
        },
        "a plan with weights states the bound",
    );
    refused(
        "a reach of the client's tensors",
        |n| n.tensors[1]["reach_bits"] = 5.into(),
        "a fixed tensor in engine Packed has no 'reach_bits'",
    );
    refused("other fractions", |n| n.tensors[4]["frac_bits"] = 3.into(), "fraction bits");
    refused(
        "a norm that is no power of two",
        |n| stage(n, "linear")["weight_l2"] = 100.0.into(),
        "power of two",
    );
    refused(
        "an enormous norm",
        |n| stage(n, "linear")["weight_l2"] = 1e30_f64.log2().ceil().exp2().into(),
        "do not fit",
    );
    refused("another geometry", |n| stage(n, "linear")["geometry"]["stride"] = json!([2, 1]), "output");
    refused("another method", |n| stage(n, "linear")["method"] = "other".into(), "method 'other'");
    refused("an unknown field", |n| stage(n, "relu")["slope"] = 1.into(), "unknown field");
    refused("an unknown stage", |n| stage(n, "relu")["kind"] = "sign".into(), "unknown variant");
    refused("a large shift", |n| stage(n, "truncate")["bits"] = 40.into(), "40 bits cannot be dropped");
    refused("a sign from nowhere", |n| n.stages[7]["sign"] = "non-negative".into(), "nothing says");
    refused("a dilated pool", |n| stage(n, "max_pool")["dilation"] = json!([2, 2]), "dilated");
    refused("a wrong pool", |n| stage(n, "max_pool")["stride"] = json!([1, 2]), "windows give");
    refused("another reveal", |n| stage(n, "reveal")["what"] = "argmax".into(), "the plan says");
    refused("a dangling tensor", |n| stage(n, "relu")["in"] = 99.into(), "does not exist");
    refused("a tensor before its time", |n| n.stages.swap(3, 4), "before any stage");
    refused("a missing weight", |n| drop(n.files.remove("w2")), "not in the file");
    refused(
        "an unused weight",
        |n| drop(n.files.insert("extra".into(), ("I8", vec![1], vec![0]))),
        "no stage uses it",
    );
    refused("a client op on shares", |n| n.stages[0]["ops"][0]["out"] = 2.into(), "shared");
    refused("insecure parameters", |n| n.tensors[2]["kind"] = "fixed".into(), "frac_bits");
    let text = net().json().replace("\"insecure\":false", "\"insecure\":true");
    assert!(TwoPartyPlan::from_parts(&text, &BTreeMap::new(), &PlanOptions::default()).is_err());
    let text = net().json().replace("\"ring_degree\":2048", "\"ring_degree\":1024");
    let e = TwoPartyPlan::from_parts(&text, &BTreeMap::new(), &PlanOptions::default()).unwrap_err();
    assert!(e.to_string().contains("below 128 bits"), "{e}");
}

#[test]
fn dropped_bits_are_stated_with_what_they_leave() {
    let plan = |change: &dyn Fn(&mut Value)| {
        let mut n = Net::new(28, 5);
        let x = n.input("image", &[1, 6, 6], 4, 15);
        let c = n.conv(x, 3, 3, 1, 1, 1, 4);
        n.relu(c);
        let r = n.dropping(4);
        let d = n.dense(r, 4, 4);
        let o = n.truncate(d, 3, "any", false);
        n.open("out", o);
        let bound = n.bound(c) >> 4;
        let relu = stage(&mut n, "relu");
        relu["reach_bits"] = (64 - (bound + 1 + ((bound + 1) >> 8) + 2).leading_zeros()).into();
        change(relu);
        plan_of(&n)
    };
    let whole = plan(&|_| {}).unwrap();
    // a public part keeps both numbers, so both parties compare in one ring
    let public = TwoPartyPlan::from_bytes(&whole.public_part().unwrap(), &PlanOptions::default()).unwrap();
    for (ours, theirs) in whole.stages().iter().zip(public.stages()) {
        assert_eq!((ours.bits, ours.compared.bits()), (theirs.bits, theirs.compared.bits()), "{}", ours.name);
    }
    let refused = |change: &dyn Fn(&mut Value), message: &str| {
        let e = plan(change).err().unwrap().to_string();
        assert!(e.contains(message), "{e}");
    };
    refused(&|s| s["bits"] = 0.into(), "fraction bits cannot become");
    refused(&|s| s["bits"] = 27.into(), "27 bits cannot be dropped");
    refused(&|s| s["reach_bits"] = 3.into(), "need reach_bits");
    refused(&|s| s["reach_bits"] = 24.into(), "takes a ring of 25 bits, the shares have 24");
    refused(&|s| s["bits"] = 3.into(), "fraction bits cannot become");
    let mut n = net();
    let p = stage(&mut n, "max_pool");
    (p["kind"], p["bits"], p["reach_bits"]) = ("sum_pool".into(), 2.into(), 5.into());
    assert!(plan_of(&n).unwrap_err().to_string().contains("sums drop no bits"));
}

#[test]
fn raw_linear_results_are_not_opened() {
    let mut n = Net::new(28, 12);
    let x = n.input("image", &[8], 4, 15);
    let d = n.dense(x, 3, 4);
    let r = n.relu(d);
    n.open("out", r);
    assert!(plan_of(&n).unwrap_err().to_string().contains("without an exact truncation"));
}

#[test]
fn a_norm_below_the_weights_is_refused_by_the_server() {
    refused(
        "a norm below that of one output",
        |n| stage(n, "linear")["weight_l2"] = 2.0.into(),
        "of one output",
    );
    // Half of what the planner states, where one output's weights keep to it; those that meet in one polynomial do not.
    let halved = |seed| {
        let mut n = seeded_net(seed);
        let planned = stage(&mut n, "linear")["weight_l2"].as_f64().unwrap();
        stage(&mut n, "linear")["weight_l2"] = (planned / 2.0).into();
        plan_of(&n).ok()
    };
    let plan = (0..100).find_map(halved).unwrap();
    let e = TwoPartyModel::new(&plan, Compute::default()).err().unwrap();
    assert!(e.to_string().contains("below the norm"), "{e}");
    let public = TwoPartyPlan::from_bytes(&plan.public_part().unwrap(), &PlanOptions::default()).unwrap();
    let e = TwoPartyModel::new(&public, Compute::default()).err().unwrap();
    assert!(e.to_string().contains("public part"), "{e}");
    assert!(!public.json().contains("\"w2\"") && !public.has_weights());
}

/// Passes so many bytes, then breaks.
struct Breaks(MemoryChannel, usize);

impl Channel for Breaks {
    fn send(&mut self, data: &[u8]) -> ChannelResult<()> {
        self.1 = self.1.checked_sub(data.len()).ok_or(hushnet_mpc::MpcError::Closed)?;
        self.0.send(data)
    }
    fn recv(&mut self, buf: &mut [u8]) -> ChannelResult<()> {
        self.0.recv(buf)
    }
    fn flush(&mut self) -> ChannelResult<()> {
        self.0.flush()
    }
    fn stats(&self) -> Stats {
        self.0.stats()
    }
}

#[test]
fn a_peer_that_vanishes_is_an_error_on_the_other_side() {
    let mut n = net();
    let plan = plan_of(&n).unwrap();
    let inputs = random_inputs(&mut n, &plan, 1);
    let whole = run(&plan, &inputs, 1, TwoPartyOptions::default()).unwrap();
    check_costs(&plan, &whole);
    let model = TwoPartyModel::new(&plan, Compute::default()).unwrap();
    for (client_breaks, bytes) in [(true, whole.heard[0].0.len()), (false, whole.heard[1].0.len())] {
        for part in [0.02, 0.3, 0.6, 0.9] {
            let limit = (bytes as f64 * part) as usize;
            let (a, b) = memory_pair();
            let (far, near) = if client_breaks {
                (Breaks(a, usize::MAX), Breaks(b, limit))
            } else {
                (Breaks(a, limit), Breaks(b, usize::MAX))
            };
            std::thread::scope(|scope| {
                let served = scope.spawn(|| model.serve_plain(Box::new(far), &mut |_| {}));
                let input =
                    Input { name: "image", shape: vec![1, 2, 6, 6], data: InputData::F64(&inputs[0]) };
                let result = TwoPartyClient::open(Box::new(near), TwoPartyOptions::default())
                    .and_then(|mut c| c.infer(&[input], &mut |_| ControlFlow::Continue(())));
                assert!(matches!(result, Err(Error::Transport(_))), "{:?}", result.err());
                assert!(matches!(served.join().unwrap(), Err(Error::Transport(_))));
            });
        }
    }
}

#[test]
fn clients_of_another_plan_and_greedy_clients_are_refused() {
    let plan = plan_of(&net()).unwrap();
    let other = plan_of(&{
        let mut n = net();
        n.stages[2]["weight_l2"] = 4096.0.into();
        n
    })
    .unwrap();
    let model = TwoPartyModel::new(&plan, Compute::default()).unwrap();
    let (far, near) = memory_pair();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| model.serve(Box::new(far), &mut |_| {}));
        let opened = TwoPartyClient::with_plan(Box::new(near), other, TwoPartyOptions::default());
        assert!(opened.is_err());
        let e = served.join().unwrap().unwrap_err();
        assert!(e.to_string().contains("another plan"), "{e}");
    });
    let layers = Layers::new(&plan).unwrap();
    let p = super::super::predict(&plan, &layers, hushnet_mpc::OtKind::Iknp, 1);
    assert_eq!(p.total.bytes(), p.he_bytes + p.ot_bytes);
}

#[test]
fn the_server_cannot_name_a_secret_key() {
    let sources = [include_str!("../server.rs"), include_str!("../shares.rs"), include_str!("../cost.rs")];
    assert!(sources.iter().all(|s| !s.contains("PackedClient")));
}
