//! Products of shared matrices in plans: right to the stated units for every shape, with every counted byte, and refused where they do not fit.

use super::super::matrix_product::matrix_figures;
use super::super::methods::{Opening, Preparing};
use super::networks::verify;
use super::views::{byte, correlation, deviation, options, received};
use super::*;
use crate::plan::Limits;
use crate::two_party::predict;
use hushnet_layers::matrix_product::MatrixShape;
use hushnet_mpc::OtKind;
use hushnet_ring::Prg;
use proptest::prelude::*;
use serde_json::{json, Value};

/// The product of two inputs, opened; x of 6 bits, y of 5, both with a sign.
fn pair(ring_bits: u32, shapes: [&[usize]; 2], bits: u32, seed: u64) -> Net {
    let mut net = Net::new(ring_bits, seed);
    let x = net.input("x", shapes[0], 4, 63);
    let y = net.input("y", shapes[1], 3, 31);
    let product = net.matrix_product(x, y, bits);
    let o = net.truncate(product, 2, "any", true);
    net.open("out", o);
    net
}

fn check(mut net: Net, images: usize, ot: OtKind) {
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, images);
    let options = TwoPartyOptions { ot: Some(ot), group: Some(2), ..TwoPartyOptions::default() };
    let run = run(&plan, &inputs, images, options).unwrap();
    verify(&net, &plan, &inputs, images, &run);
}

/// Rings narrower and wider than the shares', both reached with and without dropped bits, in groups of images.
#[test]
fn products_of_two_shared_matrices_are_right_and_cost_what_is_predicted() {
    for (ring_bits, bits, ot) in
        [(30, 0, OtKind::SoftSpoken), (30, 7, OtKind::SILENT), (15, 6, OtKind::SILENT)]
    {
        check(pair(ring_bits, [&[3, 5], &[5, 7]], bits, 1), 3, ot);
    }
    check(pair(24, [&[12, 6, 3], &[12, 3, 5]], 4, 2), 1, OtKind::SoftSpoken);
    check(pair(24, [&[2, 3, 2, 4], &[2, 3, 4, 1]], 1, 3), 1, OtKind::SoftSpoken);
    check(pair(20, [&[1, 1], &[1, 1]], 2, 4), 2, OtKind::SoftSpoken);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    /// Any shape, one to twelve heads.
    #[test]
    fn products_of_any_shape_are_right(
        heads in 1usize..13, n in 1usize..12, k in 1usize..12, m in 1usize..12, bits in 0u32..8, seed: u64,
    ) {
        check(pair(26, [&[heads, n, k], &[heads, k, m]], bits, seed), 1, OtKind::SoftSpoken);
    }
}

/// Attention without its softmax behind two layers: Q K^T of one tensor with itself, and the square of a tensor.
fn attention(seed: u64) -> Net {
    let mut net = Net::new(30, seed);
    let x = net.input("image", &[3, 4, 4], 4, 31);
    let c = net.conv(x, 8, 3, 1, 1, 1, 5);
    let t = net.truncate_to(c, 4, "any", false, 500);
    let heads = net.moves(json!({"kind": "reshape"}), &[t], &[2, 4, 16]);
    let q = net.moves(json!({"kind": "transpose", "perm": [0, 2, 1]}), &[heads], &[2, 16, 4]);
    let scores = net.matrix_product(q, heads, 8);
    let mixed = net.matrix_product(scores, q, 10);
    let square = net.matrix_product(scores, scores, 12);
    for (name, tensor) in [("mixed", mixed), ("square", square)] {
        let o = net.truncate(tensor, 2, "any", true);
        net.open(name, o);
    }
    net
}

#[test]
fn one_tensor_may_be_both_factors() {
    check(attention(5), 2, OtKind::SILENT);
}

/// What either party receives is uniform, and no share follows its value, whether inputs are all equal or random.
#[test]
fn views_of_matrix_products_are_uniform_and_follow_no_value() {
    let mut net = attention(6);
    let plan = plan_of(&net).unwrap();
    let equal = vec![vec![0.9; 4 * 3 * 4 * 4]];
    for inputs in [equal, random_inputs(&mut net, &plan, 4)] {
        let result = run(&plan, &inputs, 4, options()).unwrap();
        let mut seen = 0;
        for client in [false, true] {
            for (stage, bytes) in plan.stages().iter().zip(received(&result, &plan, client)) {
                if stage.label == "matrix_product" {
                    let d = deviation(bytes);
                    assert!(bytes.len() >= 4096, "{} received {}", stage.name, bytes.len());
                    // The words of a request are residues below primes a little under 2^50.
                    let most = if client { 6.0 } else { 40.0 };
                    assert!(d.abs() < most, "{} received by the client: {client}: {d}", stage.name);
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, 2 * 3);
        for stage in plan.stages().iter().filter(|s| s.label == "matrix_product") {
            let tensor = stage.output.unwrap();
            let [ours, theirs] =
                [0, 1].map(|p: usize| &result.shares[p].iter().find(|(id, _)| *id == tensor).unwrap().1);
            let ring = plan.ring();
            let top = 1 << (ring.bits() - 1);
            let values: Vec<u64> =
                ours.iter().zip(theirs).map(|(a, b)| ring.add(ring.add(*a, *b), top)).collect();
            for share in [ours, theirs] {
                let bytes: Vec<u8> = share.iter().map(|v| byte(*v, &plan)).collect();
                assert!(deviation(&bytes).abs() < 6.0, "tensor {tensor}: {}", deviation(&bytes));
                let c = correlation(share, &values);
                assert!(c.abs() < 6.0 / (share.len() as f64).sqrt(), "tensor {tensor}: {c}");
            }
        }
    }
}

/// What a planner is told of a product is what a plan with it costs: the request, the answer, and conversions beside them.
#[test]
fn figures_for_planners_are_those_of_plans() {
    let net = pair(30, [&[12, 6, 3], &[12, 3, 5]], 4, 1);
    let plan = plan_of(&net).unwrap();
    let at = plan.stages().iter().position(|s| s.label == "matrix_product").unwrap();
    let layers = Layers::new(&plan).unwrap();
    let predicted = predict(&plan, &layers, OtKind::SoftSpoken, 1);
    let traffic = predicted.stages[at];
    let figures = matrix_figures(MatrixShape { heads: 12, rows: 6, inner: 3, columns: 5 }, [7, 6]).unwrap();
    assert_eq!(figures.ring_bits, 17);
    let (up, down) = (figures.bytes as u64, figures.bytes as u64);
    // A wrap-around for each of 360 results, with its correlated OT.
    assert!(traffic.bytes_up >= up && traffic.bytes_up < up + 360 * 32, "{} {up}", traffic.bytes_up);
    assert!(
        traffic.bytes_down >= down && traffic.bytes_down < down + 360 * 32,
        "{} {down}",
        traffic.bytes_down
    );
    // The server's OTs for what follows travel with its answer, and are no part of the product.
    assert_eq!(predicted.he_bytes, traffic.bytes() - predicted.ahead[at].bytes());
}

#[test]
fn a_public_part_has_the_sizes_and_the_bits() {
    let plan = plan_of(&attention(3)).unwrap();
    let public = TwoPartyPlan::from_bytes(&plan.public_part().unwrap(), &PlanOptions::default()).unwrap();
    assert!(!public.has_weights() && plan.has_weights());
    let document: Value = serde_json::from_str(&plan.public_json().unwrap()).unwrap();
    let mut products = 0;
    for stage in document["stages"].as_array().unwrap().iter().filter(|s| s["kind"] == "matrix_product") {
        let keys: Vec<&str> = stage.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["bits", "in", "kind", "name", "out"]);
        products += 1;
    }
    assert_eq!(products, 3);
}

fn refused(ring_bits: u32, change: impl Fn(&mut Value, &mut Vec<Value>)) -> String {
    refused_with(ring_bits, 5, change)
}

fn refused_with(ring_bits: u32, inner: usize, change: impl Fn(&mut Value, &mut Vec<Value>)) -> String {
    let mut net = pair(ring_bits, [&[2, 3, inner], &[2, inner, 7]], 7, 1);
    let at = net.stages.iter().position(|s| s["kind"] == "matrix_product").unwrap();
    change(&mut net.stages[at], &mut net.tensors);
    plan_of(&net).err().unwrap().to_string()
}

#[test]
fn plans_that_do_not_fit_are_refused_by_stage_and_limit() {
    let reach = |k: u32| {
        refused_with(30, 20, move |_, t| (t[2]["reach_bits"], t[5]["reach_bits"]) = (k.into(), k.into()))
    };
    assert!(reach(29).contains("take 65 bits, rings have 64"), "{}", reach(29));
    assert!(reach(22).contains("modulo 2^51") && reach(22).contains("fewer bits"), "{}", reach(22));
    let bits = |bits: u64| refused(30, move |s, _| s["bits"] = bits.into());
    assert!(bits(60).contains("60 bits cannot be dropped from sums of 18 (at most 16)"), "{}", bits(60));
    assert!(bits(6).contains("fraction bits cannot become"), "{}", bits(6));
    let shape = |shape: Value| refused(30, move |_, t| t[6]["shape"] = shape.clone());
    for wrong in [json!([2, 3, 5]), json!([3, 7]), json!([1, 3, 7]), json!([42])] {
        assert!(shape(wrong.clone()).contains("do not multiply to"), "{wrong}");
    }
    let narrow = refused(10, |_, t| (t[2]["reach_bits"], t[6]["bound"]) = (9.into(), 100.into()));
    assert!(narrow.contains("cannot be extended from shares of 10 bits"), "{narrow}");
    let mut net = pair(30, [&[2, 3, 5], &[2, 5, 7]], 0, 1);
    net.tensors[6]["bound"] = 9766.into();
    assert!(plan_of(&net).err().unwrap().to_string().contains("values can reach 9767"));
}

/// Sizes beyond what is laid out are refused before anything is: by elements, and by steps.
#[test]
fn enormous_products_are_refused_before_they_are_laid_out() {
    let of = |n: usize, k: usize, m: usize| {
        refused(30, move |_, t| {
            for (id, shape) in [(0, [1, n, k]), (3, [1, k, m]), (6, [1, n, m])] {
                let last = if id == 6 { 7 } else { id + 2 };
                (id..=last).for_each(|i| t[i]["shape"] = json!(shape));
            }
        })
    };
    let said = of(1 << 14, 1, 1 << 14);
    assert!(said.contains("elements of a matrix product's operand or result"), "{said}");
    let plan = plan_of(&pair(30, [&[2, 3, 5], &[2, 5, 7]], 7, 1)).unwrap();
    let limits = Limits { layout_steps: 1000, ..Limits::default() };
    let options = PlanOptions { limits, ..PlanOptions::default() };
    let said = TwoPartyPlan::from_bytes(&plan.public_part().unwrap(), &options).err().unwrap().to_string();
    assert!(said.contains("number of steps to lay out") && said.contains("1000"), "{said}");
}

/// A result of a product is not opened as it is: its units of noise depend on what the server holds.
#[test]
fn products_are_opened_behind_an_exact_truncation() {
    let mut net = Net::new(30, 1);
    let x = net.input("x", &[3, 5], 4, 63);
    let y = net.input("y", &[5, 2], 3, 31);
    let product = net.matrix_product(x, y, 4);
    net.open("out", product);
    let said = plan_of(&net).err().unwrap().to_string();
    assert!(said.contains("opened without an exact truncation"), "{said}");
}

/// Each party reads keys of the other one, and says whose words are no residues; a peer that leaves is an error of the channel.
#[test]
fn keys_of_either_party_are_checked_by_the_other() {
    let plan = plan_of(&attention(7)).unwrap();
    let layers = Layers::new(&plan).unwrap();
    let family = layers.families().last().unwrap();
    let len = family.key_len();
    assert_eq!(family.answered_key_len(), len);
    let compute = Compute::default();
    let keep = vec![true; plan.stages().len()];
    let randomness = |_| Ok(Prg::from_os()?);
    let preparing = Preparing { plan: &plan, keep: &keep, plan_digest: &[0; 32], randomness: &randomness };
    for (sent, wanted) in [(len, "ciphertext"), (len - 1, "closed")] {
        let said = [false, true].map(|server| {
            let (mut own, mut peer) = memory_pair();
            peer.send(&vec![0xff; sent]).unwrap();
            peer.flush().unwrap();
            if sent < len {
                drop(peer);
            }
            let error = if server {
                let weights = family.clone().prepare(&preparing).unwrap();
                weights.accept(&mut own, &compute).err()
            } else {
                let mut opening = Opening {
                    channel: &mut own,
                    compute: &compute,
                    prg: &mut Prg::from_os().unwrap(),
                    plan_digest: &[0; 32],
                    folder: None,
                };
                family.clone().open(&mut opening).err()
            };
            error.unwrap().to_string()
        });
        for said in said {
            assert!(said.contains(wanted), "{sent} bytes of keys: {said}");
        }
    }
}
