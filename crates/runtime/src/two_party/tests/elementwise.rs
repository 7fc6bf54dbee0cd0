//! Functions of one variable and products of shares in plans: right within the stated error, with every counted byte, and refused where they do not fit.

use super::super::plan::Kind;
use super::networks::verify;
use super::views::{byte, correlation, deviation, options, received};
use super::*;
use crate::plan::spec::End;
use crate::two_party::{fit, predict, work};
use hushnet_mpc::{Function, OtKind};
use serde_json::{json, Value};

/// A function as a stage: fitted to the interval `low` to `high` (units of x), with these ends, `f` fractional bits and an error.
struct Wanted {
    name: &'static str,
    function: Function,
    interval: (i64, i64),
    ends: [End; 2],
    f: i64,
    bound: u64,
    error: f64,
}

fn apply(net: &mut Net, x: usize, wanted: &Wanted) -> usize {
    let Wanted { name, function, interval: (low, high), ends, f, bound, error } = *wanted;
    let scale = net.f(x) as u32;
    // Beside max(x, 0), the pieces of a mirrored function go on below zero as above.
    let beside = if ends[0] == End::Mirrored { 1.0 } else { 0.0 };
    let values = |x: &[f64]| x.iter().map(|x| function.at(*x) - beside * x).collect();
    let fitted = fit(&values, (low, high, scale), net.ring_bits, (f as u32, error)).unwrap();
    // Beyond the ends a function of these tests is off by less than this.
    let beyond = 2e-3;
    let stage = json!({"function": name, "form": fitted.form, "below": ends[0], "above": ends[1], "orders": fitted.orders,
        "predicted": {"error": fitted.error + beyond, "slope": 1.2}});
    net.function(x, stage, &fitted.coefficients, (f, bound))
}

const SIGMOID: Wanted = Wanted {
    name: "sigmoid",
    function: Function::Sigmoid,
    interval: (-8 << 8, 8 << 8),
    ends: [End::Constant; 2],
    f: 12,
    bound: (1 << 12) + 32,
    error: 1.5e-3,
};
const TANH: Wanted = Wanted {
    name: "tanh",
    function: Function::Tanh,
    interval: (-4 << 8, 4 << 8),
    ends: [End::Constant; 2],
    ..SIGMOID
};
const SILU: Wanted = Wanted {
    name: "silu",
    function: Function::Silu,
    interval: (-10 << 8, 10 << 8),
    ends: [End::Constant, End::Rising],
    bound: 36 << 12,
    ..SIGMOID
};

const MIRRORED: Wanted =
    Wanted { name: "silu", interval: (0, 10 << 8), ends: [End::Mirrored, End::Constant], ..SILU };

/// A layer whose results lie up to thirty on both sides, with eight fractional bits.
fn wide(seed: u64) -> (Net, usize) {
    let mut net = Net::new(34, seed);
    let x = net.input("image", &[3, 4, 5], 4, 63);
    let c = net.conv(x, 4, 3, 1, 1, 1, 6);
    let t = net.truncate_to(c, 1, "any", false, 30 << 8);
    (net, t)
}

/// Gates as in a squeeze-and-excite block and in a recurrent cell: a function of each kind, products of equal and of broadcast shapes, a square.
fn gated(seed: u64) -> Net {
    let (mut net, t) = wide(seed);
    let s = apply(&mut net, t, &SIGMOID);
    let h = apply(&mut net, t, &TANH);
    let u = apply(&mut net, t, &SILU);
    let gate = net.product(s, h, &[4, 4, 5], 14);
    let means = net.pool("sum_pool", gate, [4, 5], [1, 1], [0; 4]);
    let excited = net.product(u, means, &[4, 4, 5], 16);
    let squared = net.product(excited, excited, &[4, 4, 5], 12);
    let positive = net.relu(means);
    let both = net.product(squared, positive, &[4, 4, 5], 12);
    let shifted = net.shift(means, -300, false);
    let gate = net.clip(shifted, 0, 2000);
    let both_gated = net.product(both, gate, &[4, 4, 5], 12);
    let less = net.shift(both_gated, 50, true);
    let both = net.relu(less);
    let o = net.truncate(both, 2, "non-negative", true);
    net.open("out", o);
    net
}

#[test]
fn functions_and_products_are_right_and_cost_what_is_predicted() {
    for (seed, kind) in [(1, OtKind::SoftSpoken), (2, OtKind::SILENT)] {
        let mut net = gated(seed);
        let plan = plan_of(&net).unwrap();
        let inputs = random_inputs(&mut net, &plan, 2);
        let options = TwoPartyOptions { ot: Some(kind), ..TwoPartyOptions::default() };
        let run = run(&plan, &inputs, 2, options).unwrap();
        verify(&net, &plan, &inputs, 2, &run);
    }
}

/// Hard-swish below, between and above its ends, to the unit of the division, and with no product of two values.
#[test]
fn hard_swish_is_one_square() {
    let (mut net, t) = wide(7);
    let h = net.hard_swish(t, 384, 9);
    let o = net.truncate(h, 2, "any", true);
    net.open("out", o);
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, 3);
    let run = run(&plan, &inputs, 3, TwoPartyOptions::default()).unwrap();
    verify(&net, &plan, &inputs, 3, &run);
    let bytes = |net: &Net, kind: &str| {
        let plan = plan_of(net).unwrap();
        let layers = Layers::new(&plan).unwrap();
        let stages = predict(&plan, &layers, OtKind::SoftSpoken, 1).stages;
        let of = plan.stages().iter().zip(&stages).filter(|(s, _)| s.label == kind);
        of.map(|(_, t)| t.bytes()).sum::<u64>()
    };
    let (mut other, t) = wide(7);
    let shifted = other.shift(t, 768, false);
    let cut = other.clip(shifted, 0, 1536);
    let p = other.product(t, cut, &[4, 4, 5], 9);
    let o = other.truncate(p, 2, "any", true);
    other.open("out", o);
    let (one, two) = (bytes(&net, "hard_swish"), bytes(&other, "clip") + bytes(&other, "product"));
    assert!(one * 5 < two * 4, "{one} of {two}");
    for (quarter, bits, words) in [
        (0u64, 0u64, "a quarter is from 1"),
        (1 << 40, 3, "a quarter is from 1"),
        (384, 10, "no multiple of 2^10"),
        (384, 0, "the shares have 34 bits"),
    ] {
        let mut net = Net::new(22, 7);
        let x = net.input("image", &[3, 4, 5], 4, 63);
        let c = net.conv(x, 4, 3, 1, 1, 1, 6);
        let t = net.truncate_to(c, 1, "any", false, 30 << 8);
        net.hard_swish(t, 384, 9);
        let stage = net.stages.last_mut().unwrap();
        (stage["quarter"], stage["bits"]) = (quarter.into(), bits.into());
        let h = net.tensors.len() - 1;
        net.tensors[h]["frac_bits"] = (16 - bits as i64).into();
        net.tensors[h]["bound"] = 1000.into();
        let o = net.truncate(h, 2, "any", true);
        net.open("out", o);
        let said = plan_of(&net).err().unwrap().to_string();
        assert!(said.contains(&words.replace("34", "22")), "{said}");
    }
}

/// Arguments beyond both ends occur, and the exact function is within the error there: constant ends, a rising end.
#[test]
fn arguments_beyond_the_ends_are_clipped_or_go_on() {
    let (mut net, t) = wide(5);
    let u = apply(&mut net, t, &SILU);
    let s = apply(&mut net, t, &SIGMOID);
    let m = apply(&mut net, t, &MIRRORED);
    for (name, tensor) in [("u", u), ("s", s), ("m", m)] {
        let o = net.truncate(tensor, 3, "any", true);
        net.open(name, o);
    }
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, 3);
    let run = run(&plan, &inputs, 3, TwoPartyOptions::default()).unwrap();
    verify(&net, &plan, &inputs, 3, &run);
    let ring = plan.ring();
    let shares = |p: usize| &run.shares[p].iter().find(|(id, _)| *id == t).unwrap().1;
    let x: Vec<i64> = shares(0).iter().zip(shares(1)).map(|(a, b)| ring.signed(ring.add(*a, *b))).collect();
    assert!(x.iter().any(|v| *v < -10 << 8) && x.iter().any(|v| *v > 10 << 8), "no argument lies beyond");
}

/// An interval that covers what the operand reaches needs no comparison: that is what `inside` saves.
#[test]
fn ends_inside_need_no_comparison() {
    let bytes = |ends: [End; 2]| {
        let (mut net, t) = wide(6);
        let reach = 1 << 13;
        let s = apply(&mut net, t, &Wanted { interval: (-reach, reach), ends, ..SIGMOID });
        let o = net.truncate(s, 3, "any", true);
        net.open("out", o);
        let plan = plan_of(&net).unwrap();
        let layers = Layers::new(&plan).unwrap();
        let at = plan.stages().iter().position(|s| matches!(s.kind, Kind::Function(_))).unwrap();
        predict(&plan, &layers, OtKind::SoftSpoken, 1).stages[at].bytes()
    };
    let inside = bytes([End::Inside; 2]);
    let [one, both] = [[End::Inside, End::Constant], [End::Constant; 2]].map(bytes);
    assert!(inside < one && one < both, "{inside} {one} {both}");
}

/// A mirrored function takes half of a table; what reaches beyond its end is cut, and nothing is where the interval holds all.
#[test]
fn a_mirrored_function_is_exact_and_takes_fewer_bytes() {
    let bytes = |wanted: &Wanted| {
        let (mut net, t) = wide(6);
        let s = apply(&mut net, t, wanted);
        let o = net.truncate(s, 3, "any", true);
        net.open("out", o);
        let plan = plan_of(&net).unwrap();
        let inputs = random_inputs(&mut net, &plan, 3);
        let run = run(&plan, &inputs, 3, TwoPartyOptions::default()).unwrap();
        verify(&net, &plan, &inputs, 3, &run);
        let at = plan.stages().iter().position(|s| matches!(s.kind, Kind::Function(_))).unwrap();
        predict(&plan, &Layers::new(&plan).unwrap(), OtKind::SoftSpoken, 1).stages[at].bytes()
    };
    let inside = Wanted { interval: (0, 1 << 13), ends: [End::Mirrored, End::Inside], ..MIRRORED };
    let [plain, mirrored, inside] = [&SILU, &MIRRORED, &inside].map(bytes);
    assert!(20 * mirrored < 17 * plain, "{mirrored} of {plain}");
    assert!(inside != mirrored);
    for ends in [["constant", "mirrored"], ["mirrored", "rising"], ["mirrored", "mirrored"]] {
        let (mut net, t) = wide(6);
        let s = apply(&mut net, t, &MIRRORED);
        let stage = net.stages.last_mut().unwrap();
        (stage["below"], stage["above"]) = (ends[0].into(), ends[1].into());
        let o = net.truncate(s, 3, "any", true);
        net.open("out", o);
        let said = plan_of(&net).err().unwrap().to_string();
        assert!(said.contains("it is mirrored with an interval from 0 on"), "{said}");
    }
    let (mut net, t) = wide(6);
    let s = apply(&mut net, t, &Wanted { interval: (8, 10 << 8), ..MIRRORED });
    let o = net.truncate(s, 3, "any", true);
    net.open("out", o);
    assert!(plan_of(&net).err().unwrap().to_string().contains("it is mirrored with an interval from 8 on"));
}

/// A product that its result's reach bounds is computed in a ring for that: fewer bytes, the same values.
#[test]
fn a_product_within_its_result_takes_the_ring_of_the_result() {
    let made = |within: bool| {
        let (mut net, t) = wide(6);
        let s = apply(&mut net, t, &SIGMOID);
        let p = net.product(s, t, &net.shape(t), 12);
        // What is known of the factor is far more than it has; a sigmoid takes the other one no further.
        let of = |net: &Net, tensor: usize, field: &str| net.tensors[tensor][field].as_u64().unwrap();
        net.tensors[s]["bound"] = (of(&net, s, "bound") << 4).into();
        let most = (of(&net, t, "bound") << of(&net, s, "frac_bits")) >> 12;
        net.tensors[p]["bound"] = (most + most / 64 + 2).into();
        if within {
            net.stages.last_mut().unwrap()["within"] = true.into();
        }
        let o = net.truncate(p, 3, "any", true);
        net.open("out", o);
        net
    };
    let bytes = |net: &Net| {
        let plan = plan_of(net).unwrap();
        let at = plan.stages().iter().position(|s| matches!(s.kind, Kind::Product(_))).unwrap();
        predict(&plan, &Layers::new(&plan).unwrap(), OtKind::SoftSpoken, 1).stages[at].bytes()
    };
    let (wide, mut net) = (made(false), made(true));
    assert!(20 * bytes(&net) < 19 * bytes(&wide), "{} {}", bytes(&net), bytes(&wide));
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, 3);
    let run = run(&plan, &inputs, 3, TwoPartyOptions::default()).unwrap();
    verify(&net, &plan, &inputs, 3, &run);
}

/// The product of two inputs of any two shapes that meet, opened.
fn broadcast(shapes: [&[usize]; 3], seed: u64) -> Net {
    let mut net = Net::new(30, seed);
    let x = net.input("x", shapes[0], 4, 63);
    let y = net.input("y", shapes[1], 3, 31);
    let product = net.product(x, y, shapes[2], 3);
    let o = net.truncate(product, 2, "any", true);
    net.open("out", o);
    net
}

/// Rows at the end, at the beginning, in the middle and apart; of either factor or both; for several images.
#[test]
fn factors_of_rows_are_right_wherever_the_rows_lie() {
    let shapes: [[&[usize]; 3]; 7] = [
        [&[3, 20], &[3, 1], &[3, 20]],
        [&[1, 3], &[20, 3], &[20, 3]],
        [&[2, 18, 3], &[2, 1, 3], &[2, 18, 3]],
        [&[2, 3, 4, 5], &[1, 3, 1, 1], &[2, 3, 4, 5]],
        [&[19, 1], &[1, 21], &[19, 21]],
        [&[1], &[1100], &[1100]],
        [&[4, 5], &[4, 1], &[4, 5]],
    ];
    for (seed, shapes) in shapes.into_iter().enumerate() {
        let mut net = broadcast(shapes, seed as u64);
        let plan = plan_of(&net).unwrap();
        let inputs = random_inputs(&mut net, &plan, 3);
        let options = TwoPartyOptions { group: Some(2), ..TwoPartyOptions::default() };
        let run = run(&plan, &inputs, 3, options).unwrap();
        verify(&net, &plan, &inputs, 3, &run);
    }
}

/// From 16 elements on: the wrap-around of a row's factor is a term of its ladder, so two rounds are spared, and a message is a payload and little else.
#[test]
fn factors_of_rows_choose_once_a_row() {
    let cost = |len: usize| {
        let plan = plan_of(&broadcast([&[64, len], &[64, 1], &[64, len]], 1)).unwrap();
        let at = plan.stages().iter().position(|s| matches!(s.kind, Kind::Product(_))).unwrap();
        let layers = Layers::new(&plan).unwrap();
        let stage = predict(&plan, &layers, OtKind::SoftSpoken, 1).stages[at];
        (stage.rounds, stage.bytes() as f64 / (64 * len) as f64, work(&plan)[at].multiplied)
    };
    let ((rounds, bytes, terms), (more_rounds, more_bytes, more_terms)) = (cost(16), cost(15));
    assert_eq!(rounds + 2, more_rounds);
    assert!(1.5 * bytes < more_bytes && 3 * terms < more_terms, "{bytes} {more_bytes}, {terms} {more_terms}");
}

/// What either party receives in these stages is uniform, and no share follows its value, whether inputs are all equal or random.
#[test]
fn views_of_functions_and_products_are_uniform_and_follow_no_value() {
    let mut net = Net::new(34, 8);
    let x = net.input("image", &[3, 16, 16], 4, 63);
    let c = net.conv(x, 4, 3, 1, 1, 1, 6);
    let t = net.truncate_to(c, 1, "any", false, 30 << 8);
    let s = apply(&mut net, t, &SIGMOID);
    let u = apply(&mut net, t, &SILU);
    let mirrored = apply(&mut net, t, &MIRRORED);
    let gate = net.product(s, u, &[4, 16, 16], 16);
    let hard = net.hard_swish(t, 384, 9);
    let squared = net.product(gate, gate, &[4, 16, 16], 10);
    for (name, tensor) in [("hard", hard), ("squared", squared), ("mirrored", mirrored)] {
        let o = net.truncate(tensor, 2, "any", true);
        net.open(name, o);
    }
    let plan = plan_of(&net).unwrap();
    let equal = vec![vec![0.9; 4 * 3 * 16 * 16]];
    for inputs in [equal, random_inputs(&mut net, &plan, 4)] {
        let result = run(&plan, &inputs, 4, options()).unwrap();
        let mut seen = 0;
        for client in [false, true] {
            for (stage, bytes) in plan.stages().iter().zip(received(&result, &plan, client)) {
                if ["function", "product", "hard_swish"].contains(&stage.label) {
                    let d = deviation(bytes);
                    assert!(
                        bytes.len() >= 4096 && d.abs() < 6.0,
                        "{} received by the client: {client}: {d}",
                        stage.name
                    );
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, 2 * 6);
        for tensor in [s, u, mirrored, gate, hard, squared] {
            let [ours, theirs] =
                [0, 1].map(|p: usize| &result.shares[p].iter().find(|(id, _)| *id == tensor).unwrap().1);
            let ring = plan.ring();
            let values: Vec<u64> = ours
                .iter()
                .zip(theirs)
                .map(|(a, b)| ring.add(ring.add(*a, *b), 1 << (ring.bits() - 1)))
                .collect();
            for share in [ours, theirs] {
                let bytes: Vec<u8> = share.iter().map(|v| byte(*v, &plan)).collect();
                assert!(deviation(&bytes).abs() < 6.0, "tensor {tensor}: {}", deviation(&bytes));
                let c = correlation(share, &values);
                assert!(c.abs() < 6.0 / (share.len() as f64).sqrt(), "tensor {tensor}: {c}");
            }
        }
    }
}

/// What leaves a server of a function: its form and its ends.
#[test]
fn a_public_part_has_the_form_and_no_piece() {
    let plan = plan_of(&gated(3)).unwrap();
    let public = TwoPartyPlan::from_bytes(&plan.public_part().unwrap(), &PlanOptions::default()).unwrap();
    assert!(!public.has_weights() && plan.has_weights());
    assert_eq!(public.public_part().unwrap(), plan.public_part().unwrap());
    let document: Value = serde_json::from_str(&plan.public_json().unwrap()).unwrap();
    let mut functions = 0;
    for stage in document["stages"].as_array().unwrap().iter().filter(|s| s["kind"] == "function") {
        let keys: Vec<&str> = stage.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["above", "below", "form", "in", "kind", "name", "out"]);
        functions += 1;
    }
    assert_eq!(functions, 3);
    assert!(document["stages"]
        .as_array()
        .unwrap()
        .iter()
        .all(|s| s["kind"] != "shift" || s.get("by").is_none()));
    for (ours, theirs) in plan.stages().iter().zip(public.stages()) {
        assert_eq!(ours.compared.bits(), theirs.compared.bits(), "{}", ours.name);
    }
}

/// The message of a plan whose stage of a kind was changed.
fn refused(kind: &str, change: impl Fn(&mut Value, &mut Vec<Value>)) -> String {
    let mut net = gated(3);
    let at = net.stages.iter().position(|s| s["kind"] == kind).unwrap();
    change(&mut net.stages[at], &mut net.tensors);
    plan_of(&net).err().unwrap().to_string()
}

#[test]
fn plans_that_do_not_fit_are_refused_by_stage_and_limit() {
    let function = |change: &dyn Fn(&mut Value)| refused("function", |s, _| change(s));
    let changed =
        |field: &'static str, value: Value| function(&move |s: &mut Value| s["form"][field] = value.clone());
    let inside = function(&|s| s["above"] = "inside".into());
    assert!(inside.contains("s4") && inside.contains("2^13 may lie above it; clip them there"), "{inside}");
    assert!(changed("segments", json!(9)).contains("segments"));
    assert!(changed("argument_bits", json!(48)).contains("precision of a place"));
    assert!(changed("lift", json!(40)).contains("shares have 34"));
    assert!(changed("high", json!(i64::MAX)).contains("length of a function's interval"));
    assert!(function(&|s| s["form"]["basis"] = json!([])).contains("orders of pieces"));
    assert!(function(&|s| s["orders"] = json!([1])).contains("expected I64"));
    assert!(function(&|s| s["orders"] = json!([usize::MAX, 1])).contains("expected I64"));
    let half = function(&|s| drop(s.as_object_mut().unwrap().remove("orders")));
    assert!(half.contains("only one of 'orders' and 'coefficients'"), "{half}");
    let unnamed = function(&|s| drop(s.as_object_mut().unwrap().remove("function")));
    assert!(unnamed.contains("only one of coefficients and function"), "{unnamed}");
    let product = |bits: u64| refused("product", |s, _| s["bits"] = bits.into());
    assert!(product(60).contains("60 bits cannot be dropped"));
    assert!(product(9).contains("fraction bits cannot become"));
    let shapes = refused("product", |s, tensors| {
        let id = s["out"].as_u64().unwrap() as usize;
        tensors[id]["shape"] = json!([2, 2, 20]);
    });
    assert!(shapes.contains("[4, 4, 5] and [4, 4, 5] do not meet in [2, 2, 20]"), "{shapes}");
    let wide = refused("product", |s, tensors| {
        let id = s["in"][0].as_u64().unwrap() as usize;
        tensors[id]["reach_bits"] = 33.into();
        let id = s["in"][1].as_u64().unwrap() as usize;
        tensors[id]["reach_bits"] = 33.into();
    });
    assert!(wide.contains("68 bits, rings have 64"), "{wide}");
}
