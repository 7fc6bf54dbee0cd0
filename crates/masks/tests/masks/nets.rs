//! Small networks for every trust model.

use super::builder::Net;
use hushnet_layers::packed::{Circuit, GraphSpec, PackedOptions};
use hushnet_mpc::{memory_pair, ot::one_of_n, OtKind, Party, Session};
use hushnet_runtime::non_interactive::NonInteractivePlan;
use hushnet_runtime::plan::{PlanError, PlanOptions, TensorBytes};
use hushnet_runtime::two_party::{fit, TwoPartyPlan};
use serde_json::{json, Value};
use std::collections::BTreeMap;

pub(crate) fn two_party_plan(net: &Net) -> TwoPartyPlan {
    checked(net).unwrap()
}

fn checked(net: &Net) -> Result<TwoPartyPlan, PlanError> {
    let files: BTreeMap<String, TensorBytes<'_>> = net
        .files
        .iter()
        .map(|(n, (dtype, shape, data))| (n.clone(), TensorBytes { dtype, shape, data }))
        .collect();
    let bytes = TwoPartyPlan::file(&net.json(), &files).unwrap();
    TwoPartyPlan::from_bytes(&bytes, &PlanOptions::default())
}

/// Gives the linear stages these methods in turn, and non-linear ones this protocol; the norm of all weights bounds every layout.
fn with_methods(net: &mut Net, methods: &[&str], protocol: &str) {
    let mut methods = methods.iter().cycle();
    for stage in &mut net.stages {
        if stage["kind"] == "linear" {
            let (weights, _) = &net.weights[stage["weights"].as_str().unwrap()];
            let norm = weights.iter().map(|w| (w * w) as f64).sum::<f64>().sqrt().max(1.0);
            stage["method"] = (*methods.next().unwrap()).into();
            stage["weight_l2"] = norm.log2().ceil().exp2().into();
        }
        if protocol == "garbled" && (stage["kind"] == "relu" || stage["kind"] == "max_pool") {
            stage["protocol"] = protocol.into();
        }
    }
}

/// Convolution, ReLU, truncation, max-pool, dense layer, truncation.
pub(crate) fn classifier(methods: &[&str], protocol: &str) -> Net {
    let mut net = Net::new(26, 5);
    let x = net.input("image", &[2, 10, 8], 5, 31);
    let c = net.conv(x, 4, 3, 1, 1, 2, 5);
    net.relu(c);
    let r = net.dropping(1);
    let t = net.truncate_to(r, 4, "non-negative", false, 160);
    let p = net.pool("max_pool", t, [2, 2], [2, 2], [0; 4]);
    let d = net.dense(p, 6, 4);
    let t = net.truncate(d, 3, "any", false);
    net.open("logits", t);
    with_methods(&mut net, methods, protocol);
    net
}

/// The classifier by one method, or two dense layers where the method is for dense layers only.
pub(crate) fn of_method(method: &str, protocol: &str) -> Net {
    let net = classifier(&[method], protocol);
    match checked(&net) {
        Err(e) if e.to_string().contains("dense layers only") => perceptron(method, protocol),
        _ => net,
    }
}

/// Dense layer, ReLU, truncation, dense layer, truncation.
fn perceptron(method: &str, protocol: &str) -> Net {
    let mut net = Net::new(26, 8);
    let x = net.input("image", &[24], 5, 31);
    let d = net.dense(x, 37, 4);
    let r = net.relu(d);
    let t = net.truncate_to(r, 5, "non-negative", false, 160);
    let d = net.dense(t, 6, 4);
    let t = net.truncate(d, 3, "any", false);
    net.open("logits", t);
    with_methods(&mut net, &[method], protocol);
    net
}

/// Layers that take several tiles and several weight polynomials: a convolution of more values than a ring has coefficients, a dense layer.
pub(crate) fn tiled(method: &str) -> Net {
    let mut net = Net::new(26, 7);
    let x = net.input("image", &[4, 26, 26], 4, 15);
    let c = net.conv(x, 4, 3, 2, 1, 1, 4);
    let t = net.truncate_to(c, 6, "any", false, 60);
    let d = net.dense(t, 20, 3);
    let t = net.truncate(d, 2, "any", false);
    net.open("logits", t);
    with_methods(&mut net, &[method], "ot");
    net
}

/// One dense layer on batches.
pub(crate) fn dense_batch() -> Net {
    let mut net = Net::new(24, 6);
    let x = net.input("image", &[6], 4, 15);
    let d = net.dense(x, 3, 4);
    let t = net.truncate(d, 2, "any", false);
    net.open("logits", t);
    with_methods(&mut net, &["batch"], "ot");
    net
}

/// A function with both ends clipped, a function within its interval, a product and a square.
pub(crate) fn gated() -> Net {
    let mut net = Net::new(34, 9);
    let x = net.input("image", &[2, 6, 5], 4, 63);
    let c = net.conv(x, 2, 3, 1, 1, 1, 6);
    let t = net.truncate_to(c, 1, "any", false, 30 << 8);
    let silu = |x: &[f64]| x.iter().map(|x| x / (1.0 + (-x).exp())).collect();
    let made =
        [(8 << 8, "constant", "rising"), (1 << 13, "inside", "inside")].map(|(limit, below, above)| {
            let fitted = fit(&silu, (-limit, limit, 8), 34, (12, 4e-3)).unwrap();
            let stage = json!({"function": "silu", "form": fitted.form, "below": below, "above": above,
            "orders": fitted.orders, "predicted": {"error": fitted.error}});
            net.function(t, stage, &fitted.coefficients, (12, 36 << 12))
        });
    let excited = net.product(made[0], made[1], &[2, 6, 5], 16);
    let squared = net.product(excited, excited, &[2, 6, 5], 12);
    let t = net.truncate(squared, 2, "non-negative", true);
    net.open("gated", t);
    with_methods(&mut net, &["cheetah"], "ot");
    net
}

/// Products of a layer's result with its own transpose, and of these with it: one whose shares are extended, one whose shares are cut.
pub(crate) fn attention() -> Net {
    let mut net = Net::new(24, 9);
    let x = net.input("image", &[3, 4, 4], 4, 31);
    let c = net.conv(x, 4, 3, 1, 1, 1, 4);
    let t = net.truncate_to(c, 3, "any", false, 60);
    let heads = net.moves(json!({"kind": "reshape"}), &[t], &[2, 2, 16]);
    let keys = net.moves(json!({"kind": "transpose", "perm": [0, 2, 1]}), &[heads], &[2, 16, 2]);
    let scores = net.matrix_product(keys, heads, 2);
    let mixed = net.matrix_product(scores, keys, 8);
    let t = net.truncate(mixed, 2, "any", true);
    net.open("mixed", t);
    with_methods(&mut net, &["cheetah"], "ot");
    net
}

/// Forty 1-of-16 transfers.
pub(crate) fn one_of_n() {
    let (a, b) = memory_pair();
    let messages: Vec<u64> = (0..40 * 16).collect();
    let choices: Vec<u8> = (0..40).map(|i| (i * 7 % 16) as u8).collect();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut s = Session::new(Box::new(a), Party::Zero, OtKind::SoftSpoken).unwrap();
            one_of_n::send(&mut s, &messages, 4, 16).unwrap();
        });
        let mut s = Session::new(Box::new(b), Party::One, OtKind::SoftSpoken).unwrap();
        let got = one_of_n::recv(&mut s, &choices, 4, 16).unwrap();
        sender.join().unwrap();
        assert_eq!(got.len(), 40);
    });
}

pub(crate) fn insecure() -> PlanOptions {
    PlanOptions { allow_insecure: true, ..PlanOptions::default() }
}

type File = (&'static str, Vec<usize>, Vec<u8>);

fn read(plan: &Value, files: &BTreeMap<String, File>) -> Result<NonInteractivePlan, String> {
    let views = files.iter().map(|(n, (dtype, shape, data))| (n.clone(), TensorBytes { dtype, shape, data }));
    let file = NonInteractivePlan::file(&plan.to_string(), &views.collect()).unwrap();
    NonInteractivePlan::from_bytes(&file, &insecure()).map_err(|e| e.to_string())
}

fn reals(v: &[f64]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Name, plan, whether weights are hidden.
pub(crate) fn non_interactive() -> Vec<(&'static str, NonInteractivePlan, bool)> {
    vec![
        ("batch", read_batch(None), false),
        ("batch, weights hidden", read_batch(Some(hidden_bits())), true),
        ("packed", packed(false), false),
        ("packed, weights hidden", packed(true), true),
    ]
}

/// The flood that the plan's noise needs, from what a plan with too short a one is told.
fn hidden_bits() -> u32 {
    let refused = batch(Some(30)).unwrap_err();
    refused.rsplit(' ').next().unwrap().parse::<f64>().unwrap().ceil() as u32
}

fn read_batch(hide: Option<u32>) -> NonInteractivePlan {
    batch(hide).unwrap()
}

fn prime_near(bits: u32, rank: usize, degree: usize) -> u64 {
    let step = 2 * degree as u64;
    let first = (1u64 << bits) / step * step + 1;
    (0..).map(|i| first + i * step).filter(|p| hushnet_ring::prime::is_prime(*p)).nth(rank).unwrap()
}

/// A dense layer of four values to three, its square, a dense layer to two. N = 64: what is shown here does not depend on N.
fn batch(hide: Option<u32>) -> Result<NonInteractivePlan, String> {
    let (n, wide) = (64, if hide.is_some() { 48 } else { 40 });
    let primes: Vec<u64> = (0..if hide.is_some() { 4 } else { 2 }).map(|i| prime_near(wide, i, n)).collect();
    let scale = if hide.is_some() { 2f64.powi(40) } else { 2f64.powi(30) };
    let (top, q) = (primes.len(), primes[primes.len() - 1] as f64);
    let (first, square) = (scale * 8.0, (scale * 8.0) * (scale * 8.0));
    let cipher = |id: u32, size: usize, level: usize, parts: usize, scale: f64, bound: f64| json!({"id": id, "name": format!("c{id}"), "shape": [size], "kind": "cipher", "level": level, "parts": parts, "scale": scale, "bound": bound});
    let mut out = cipher(5, 2, top - 1, 2, square / q * 8.0, 40.0);
    out["noise_bits"] = 200.into();
    let dense = |name: &str, from: u32, to: u32, inputs: usize, outputs: usize| json!({"kind": "linear", "method": "ckks", "name": name, "in": from, "out": to, "weights": format!("{name}.w"), "bias": format!("{name}.b"), "geometry": {"type": "dense", "inputs": inputs, "outputs": outputs}});
    let mut plan = json!({
        "version": 2, "name": "small", "producer": "test", "trust": "non-interactive", "engine": "batch",
        "params": {"ring_degree": n, "security_bits": 0, "insecure": true, "non_interactive": {"data_primes": primes,
                   "special_primes": [prime_near(49, 3, n)], "digits": top, "packing": "real"}},
        "inputs": [{"name": "image", "tensor": 0}], "outputs": [{"name": "y", "tensor": 7}],
        "tensors": [
            {"id": 0, "name": "image", "shape": [4], "kind": "real"},
            cipher(1, 4, top, 2, scale, 1.0), cipher(2, 3, top, 2, first, 3.0), cipher(3, 3, top, 3, square, 9.0),
            cipher(4, 3, top - 1, 2, square / q, 9.0), out,
            {"id": 6, "name": "opened", "shape": [2], "kind": "real"}, {"id": 7, "name": "y", "shape": [2], "kind": "real"},
        ],
        "stages": [
            {"kind": "encrypt", "name": "encrypt", "in": 0, "out": 1},
            dense("first", 1, 2, 4, 3),
            {"kind": "multiply", "name": "square", "in": [2, 2], "out": 3},
            {"kind": "relinearise", "name": "down", "in": 3, "out": 4},
            dense("second", 4, 5, 3, 2),
            {"kind": "decrypt", "name": "decrypt", "in": 5, "out": 6},
            {"kind": "client", "name": "decode", "ops": [{"op": "affine", "in": [6], "out": 7, "mul": 2.0, "add": 1.0}]},
        ],
        "predicted": {}, "notes": [],
    });
    if let Some(bits) = hide {
        plan["params"]["non_interactive"]["hide_weights"] = json!({"flood_bits": bits});
    }
    let bytes = |w: &[i8]| w.iter().map(|v| v.cast_unsigned()).collect::<Vec<u8>>();
    let files = BTreeMap::from([
        ("first.w".to_owned(), ("I8", vec![3, 4], bytes(&[3, -2, 1, 4, -5, 2, 2, 1, 1, 6, -3, 2]))),
        ("first.b".to_owned(), ("F64", vec![3], reals(&[0.125, -0.5, 0.25]))),
        ("second.w".to_owned(), ("I8", vec![2, 3], bytes(&[1, -3, 2, 5, -4, 2]))),
        ("second.b".to_owned(), ("F64", vec![2], reals(&[1.0, -0.25]))),
    ]);
    read(&plan, &files)
}

/// A convolution of 4x4, a polynomial of degree 2, a dense layer to three values, as a packed circuit at N = 256.
fn packed(hide: bool) -> NonInteractivePlan {
    let numbers = |count: usize, seed: usize| -> Vec<f64> {
        (0..count).map(|i| ((i * 7919 + seed * 104_729 + 13) % 1999) as f64 / 3331.0 - 0.3).collect()
    };
    let tensor = |id: usize, shape: Value, bound: f64| json!({"id": id, "name": format!("t{id}"), "shape": shape, "bound": bound});
    let spec = json!({"input": 0, "output": 3, "tensors": [
        tensor(0, json!([2, 4, 4]), 1.0), tensor(1, json!([2, 4, 4]), 6.0), tensor(2, json!([2, 4, 4]), 20.0), tensor(3, json!([3]), 300.0)],
        "steps": [
        {"kind": "linear", "name": "conv", "in": 0, "out": 1, "weights": "a", "bias": "b", "geometry": {"type": "conv2d",
            "input": [2, 4, 4], "output": [2, 4, 4], "kernel": [3, 3], "stride": [1, 1], "pads": [1, 1, 1, 1], "dilation": [1, 1], "groups": 1}},
        {"kind": "polynomial", "name": "act", "in": 1, "out": 2, "coefficients": [0.24, 0.5, 0.3], "range": 6.0},
        {"kind": "linear", "name": "dense", "in": 2, "out": 3, "weights": "c", "bias": "d", "geometry": {"type": "dense", "inputs": 32, "outputs": 3}},
    ]});
    let spec: GraphSpec = serde_json::from_value(spec).unwrap();
    let arrays = BTreeMap::from([
        ("a".to_owned(), numbers(36, 1)),
        ("b".to_owned(), numbers(2, 2)),
        ("c".to_owned(), numbers(96, 3)),
        ("d".to_owned(), numbers(3, 4)),
    ]);
    let network = spec.check(&arrays).unwrap();
    let options = PackedOptions {
        security: 0,
        ring_degree: 256,
        hide_weights: hide,
        precision_bits: 8,
        ..PackedOptions::default()
    };
    let circuit = Circuit::compile(&network, &options).unwrap();
    let (p, i) = (circuit.params(), circuit.interface().spec());
    let data: Vec<u64> = (0..p.max_level().get()).map(|i| p.data_prime(i)).collect();
    let mut files: BTreeMap<String, File> =
        arrays.iter().map(|(k, v)| (k.clone(), ("F64", vec![v.len()], reals(v)))).collect();
    let mut uploads = Vec::new();
    for (number, u) in i.uploads.iter().enumerate() {
        let slots: Vec<u8> =
            u.slots.iter().flatten().flat_map(|e| (e.cast_signed() as i16).to_le_bytes()).collect();
        let name = format!("input{number}");
        files.insert(name.clone(), ("I16", vec![u.slots.len(), p.slots()], slots));
        uploads.push(json!({"level": u.level, "slots": name}));
    }
    let places: Vec<u8> =
        i.places.iter().flat_map(|p| [i64::from(p.0), i64::from(p.1)]).flat_map(i64::to_le_bytes).collect();
    files.insert("places".into(), ("I64", vec![3, 2], places));
    let noise = circuit.outcomes().last().unwrap().sd.log2().ceil() as u32;
    let mut plan = json!({
        "version": 2, "name": "small", "producer": "test", "trust": "non-interactive", "engine": "packed",
        "params": {"ring_degree": 256, "security_bits": 0, "insecure": true, "non_interactive": {"data_primes": data, "special_primes": p.special_primes(),
                   "digits": p.spec().digits, "key_level": p.key_level().get(), "packing": "real"}},
        "inputs": [{"name": "image", "tensor": 0}], "outputs": [{"name": "y", "tensor": 4}],
        "tensors": [
            {"id": 0, "name": "image", "shape": [2, 4, 4], "kind": "real"},
            {"id": 1, "name": "image.c", "shape": [2, 4, 4], "kind": "cipher", "bound": 1.0},
            {"id": 2, "name": "y.c", "shape": [3], "kind": "cipher", "bound": 300.0, "noise_bits": noise},
            {"id": 3, "name": "opened", "shape": [3], "kind": "real"},
            {"id": 4, "name": "y", "shape": [3], "kind": "real"},
        ],
        "stages": [
            {"kind": "encrypt", "name": "encrypt", "in": 0, "out": 1},
            {"kind": "packed", "name": "network", "in": 1, "out": 2, "uploads": uploads, "places": "places", "scale": i.scale,
             "rotations": i.rotations, "answer": i.answer, "answer_level": i.output_level, "answer_scale": i.output_scale,
             "network": spec, "options": options, "choices": circuit.choices()},
            {"kind": "decrypt", "name": "decrypt", "in": 2, "out": 3},
            {"kind": "client", "name": "decode", "ops": [{"op": "affine", "in": [3], "out": 4, "mul": 2.0, "add": 1.0}]},
        ],
        "predicted": {}, "notes": [],
    });
    if let Some(bits) = circuit.flood_bits() {
        plan["params"]["non_interactive"]["hide_weights"] = json!({"flood_bits": bits});
    }
    read(&plan, &files).unwrap()
}
