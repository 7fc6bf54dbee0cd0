//! Small networks of every trust model: few elements, small rings, every kind of stage somewhere.

use hushnet_layers::coefficients;
use hushnet_layers::packed::{Circuit, GraphSpec, PackedOptions};
use hushnet_rlwe::BatchStageSpec;
use hushnet_runtime::non_interactive::NonInteractivePlan;
use hushnet_runtime::plan::{GeometrySpec, Limits, PlanOptions, TensorBytes};
use hushnet_runtime::two_party::{fit, TwoPartyPlan};
use serde_json::{json, Value};
use std::collections::BTreeMap;

// The builder of the run time's own tests.
#[path = "../../crates/runtime/src/two_party/tests/builder.rs"]
mod builder;
pub use builder::{File, Net};

/// Rings of insecure plans.
const DEGREE: usize = 64;

/// How targets read plans: insecure rings are allowed, and limits are so tight that a plan within them costs little.
#[must_use]
pub fn options() -> PlanOptions {
    let limits = Limits {
        file_bytes: 1 << 20,
        json_bytes: 1 << 17,
        tensors: 64,
        stages: 64,
        ops: 64,
        tiles: 64,
        rank: 8,
        elements: 1 << 12,
        memory_bytes: 1 << 28,
        ..Limits::default()
    };
    PlanOptions { allow_insecure: true, limits }
}

/// A plan file of parts. All trust models share the container.
///
/// # Panics
/// When the container cannot be written.
#[must_use]
pub fn file(json: &Value, files: &BTreeMap<String, File>) -> Vec<u8> {
    let views = files.iter().map(|(n, (dtype, shape, data))| (n.clone(), TensorBytes { dtype, shape, data }));
    TwoPartyPlan::file(&json.to_string(), &views.collect()).expect("the parts fill a container")
}

fn small(count: usize, seed: usize) -> Vec<i8> {
    (0..count).map(|i| ((i * 7 + seed * 5 + 3) % 9) as i8 - 4).collect()
}

fn bytes(w: &[i8]) -> Vec<u8> {
    w.iter().map(|v| v.cast_unsigned()).collect()
}

fn words(v: impl IntoIterator<Item = i64>) -> Vec<u8> {
    v.into_iter().flat_map(i64::to_le_bytes).collect()
}

fn reals(v: &[f64]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Convolution (shared masks, two tiles), dense with fresh, then with sent masks; bounds are so wide that every answer is within them.
#[must_use]
pub fn client_aided() -> Vec<u8> {
    let (json, files) = client_aided_parts();
    file(&json, &files)
}

/// The same network for few images.
///
/// # Panics
/// When a layer has no parameters.
#[must_use]
pub fn few_images() -> Vec<u8> {
    const DEGREE: usize = 2048;
    let (mut json, files) = client_aided_parts();
    json["engine"] = "packed".into();
    json["params"]["ring_degree"] = DEGREE.into();
    let tensors = json["tensors"].clone();
    for stage in json["stages"].as_array_mut().into_iter().flatten().filter(|s| s["kind"] == "linear") {
        let geometry: GeometrySpec = serde_json::from_value(stage["geometry"].clone()).expect("a geometry");
        let geometry = geometry.checked().expect("a geometry");
        let (_, _, data) = &files[stage["weights"].as_str().expect("a name")];
        let weights: Vec<i16> = data.iter().map(|w| i16::from(w.cast_signed())).collect();
        let place = |port: &str| stage[port].as_u64().expect("a place") as usize;
        let bound = tensors[place("out")]["bound"].as_u64().expect("a bound");
        let (chosen, _) = coefficients::choose(&geometry, DEGREE, &weights, bound).expect("parameters");
        let bits = chosen.params().bits();
        *stage = json!({"kind": "linear", "name": stage["name"], "method": "coefficients", "in": stage["in"], "out": stage["out"], "geometry": stage["geometry"],
            "weights": stage["weights"], "bias": stage["bias"], "upload_bits": bits.upload, "body_bits": bits.body, "mask_bits": bits.mask});
    }
    file(&json, &files)
}

fn client_aided_parts() -> (Value, BTreeMap<String, File>) {
    const BOUND: u64 = (1 << 20) - 1;
    let real =
        |id: usize, shape: Value| json!({"id": id, "name": format!("t{id}"), "shape": shape, "kind": "real"});
    let fixed = |id: usize, shape: Value, scale: f64, bound: u64| json!({"id": id, "name": format!("t{id}"), "shape": shape, "kind": "fixed", "scale": scale, "bound": bound});
    let mut files = BTreeMap::new();
    let mut linear = |name: &str,
                      (input, output): (usize, usize),
                      geometry: Value,
                      shape: Vec<usize>,
                      mask: &str,
                      tiles: Value| {
        let count = shape.iter().product();
        files.insert(
            format!("{name}.b"),
            ("I64", vec![shape[0]], words((0..shape[0] as i64).map(|i| 5 - 3 * i))),
        );
        files.insert(format!("{name}.w"), ("I8", shape, bytes(&small(count, output))));
        let spec = BatchStageSpec {
            ring_degree: DEGREE,
            weight_l2: 16.0,
            output_bound: BOUND,
            shared_mask: mask == "shared",
        };
        let delta = spec.encryption_noise().log2().ceil() as u32 + 2;
        json!({"kind": "linear", "name": name, "method": "batch", "in": input, "out": output, "geometry": geometry,
            "weights": format!("{name}.w"), "bias": format!("{name}.b"), "modulus_bits": delta + spec.output_bits(),
            "delta_bits": delta, "drop_bits": 0, "mask_drop_bits": (mask != "shared").then_some(0), "mask": mask, "tiles": tiles, "predicted": {"noise_bits": 14.5}})
    };
    let conv = json!({"type": "conv2d", "input": [1, 4, 4], "output": [2, 2, 2], "kernel": [2, 2], "stride": [2, 2], "pads": [0, 0, 0, 0],
        "dilation": [1, 1], "groups": 1});
    let stages = json!([
        {"kind": "client", "name": "c0", "ops": [{"op": "quantize", "in": [0], "out": 1}]},
        linear("l1", (1, 2), conv, vec![2, 1, 2, 2], "shared",
            json!([{"inputs": [0, 2], "outputs": [0, 1]}, {"inputs": [2, 4], "outputs": [1, 2]}])),
        {"kind": "client", "name": "c2", "ops": [{"op": "dequantize", "in": [2], "out": 3}, {"op": "relu", "in": [3], "out": 4},
            {"op": "max_pool", "in": [4], "out": 5, "kernel": [2, 1], "stride": [1, 1], "pads": [0, 0, 0, 0], "dilation": [1, 1]},
            {"op": "reshape", "in": [5], "out": 6}, {"op": "quantize", "in": [6], "out": 7}]},
        linear("l3", (7, 8), json!({"type": "dense", "inputs": 4, "outputs": 3}), vec![3, 4], "fresh",
            json!([{"inputs": [0, 4], "outputs": [0, 3]}])),
        {"kind": "client", "name": "c4", "ops": [{"op": "dequantize", "in": [8], "out": 9}, {"op": "clip", "in": [9], "out": 10, "min": -1.0e6, "max": 1.0e6},
            {"op": "affine", "in": [10], "out": 11, "mul": 0.0001, "add": 0.0}, {"op": "quantize", "in": [11], "out": 12}]},
        linear("l5", (12, 13), json!({"type": "dense", "inputs": 3, "outputs": 2}), vec![2, 3], "sent",
            json!([{"inputs": [0, 3], "outputs": [0, 2]}])),
        {"kind": "client", "name": "c6", "ops": [{"op": "dequantize", "in": [13], "out": 14}, {"op": "softmax", "in": [14], "out": 15, "axis": 0}]},
    ]);
    let wide = |id, shape| fixed(id, shape, 1.0, BOUND);
    let json = json!({
        "version": 2, "name": "small", "producer": "fuzz", "trust": "client-aided", "engine": "batch",
        "params": {"ring_degree": DEGREE, "security_bits": 0, "insecure": true},
        "inputs": [{"name": "image", "tensor": 0}], "outputs": [{"name": "y", "tensor": 15}],
        "tensors": [real(0, json!([1, 4, 4])), fixed(1, json!([1, 4, 4]), 0.01, 127), wide(2, json!([2, 2, 2])), real(3, json!([2, 2, 2])),
            real(4, json!([2, 2, 2])), real(5, json!([2, 1, 2])), real(6, json!([4])), fixed(7, json!([4]), 9000.0, 127), wide(8, json!([3])),
            real(9, json!([3])), real(10, json!([3])), real(11, json!([3])), fixed(12, json!([3]), 1.0, 127), wide(13, json!([2])),
            real(14, json!([2])), real(15, json!([2]))],
        "stages": stages, "predicted": {"batch": DEGREE}, "notes": ["a note"],
    });
    (json, files)
}

fn prime_near(bits: u32, rank: usize) -> u64 {
    let step = 2 * DEGREE as u64;
    let first = (1u64 << bits) / step * step + 1;
    (0..).map(|i| first + i * step).filter(|p| hushnet_ring::prime::is_prime(*p)).nth(rank).unwrap_or(0)
}

/// Batch engine: convolution, square, relinearisation, dense, combination.
#[must_use]
pub fn non_interactive(hide: bool) -> Vec<u8> {
    let primes: Vec<u64> =
        (0..if hide { 4 } else { 2 }).map(|i| prime_near(if hide { 48 } else { 40 }, i)).collect();
    let scale = if hide { 40f64.exp2() } else { 30f64.exp2() };
    let (top, q) = (primes.len(), primes[primes.len() - 1] as f64);
    let square = (scale * 8.0) * (scale * 8.0);
    let (low, down) = (top - 1, square / q);
    let cipher = |id: u32, name: &str, shape: Value, level: usize, parts: usize, scale: f64, bound: f64| json!({"id": id, "name": name, "shape": shape, "kind": "cipher", "level": level, "parts": parts, "scale": scale, "bound": bound});
    let mut out = cipher(6, "sum.c", json!([2]), low, 2, down * 8.0, 40.0);
    out["noise_bits"] = 200.into();
    let mut json = json!({
        "version": 2, "name": "small", "producer": "fuzz", "trust": "non-interactive", "engine": "batch",
        "params": {"ring_degree": DEGREE, "security_bits": 0, "insecure": true, "non_interactive": {"data_primes": primes, "special_primes": [prime_near(49, 3)],
            "digits": top, "packing": "real"}},
        "inputs": [{"name": "image", "tensor": 0}], "outputs": [{"name": "y", "tensor": 8}],
        "tensors": [
            {"id": 0, "name": "image", "shape": [1, 4, 4], "kind": "real"},
            cipher(1, "image.c", json!([1, 4, 4]), top, 2, scale, 1.0), cipher(2, "conv.c", json!([2, 2, 2]), top, 2, scale * 8.0, 4.0),
            cipher(3, "square.c", json!([2, 2, 2]), top, 3, square, 16.0), cipher(4, "down.c", json!([2, 2, 2]), low, 2, down, 16.0),
            cipher(5, "dense.c", json!([2]), low, 2, down * 8.0, 60.0), out,
            {"id": 7, "name": "opened", "shape": [2], "kind": "real"}, {"id": 8, "name": "y", "shape": [2], "kind": "real"}],
        "stages": [
            {"kind": "encrypt", "name": "encrypt", "in": 0, "out": 1},
            {"kind": "linear", "method": "ckks", "name": "conv", "in": 1, "out": 2, "weights": "conv.w", "bias": "conv.b", "geometry":
                {"type": "conv2d", "input": [1, 4, 4], "output": [2, 2, 2], "kernel": [2, 2], "stride": [2, 2], "pads": [0, 0, 0, 0],
                 "dilation": [1, 1], "groups": 1}},
            {"kind": "multiply", "name": "square", "in": [2, 2], "out": 3},
            {"kind": "relinearise", "name": "down", "in": 3, "out": 4},
            {"kind": "linear", "method": "ckks", "name": "dense", "in": 4, "out": 5, "weights": "dense.w", "bias": "dense.b",
             "geometry": {"type": "dense", "inputs": 8, "outputs": 2}},
            {"kind": "combine", "name": "sum", "in": [5, 5], "out": 6, "factors": "sum.k", "constant": "sum.c"},
            {"kind": "decrypt", "name": "decrypt", "in": 6, "out": 7},
            {"kind": "client", "name": "decode", "ops": [{"op": "affine", "in": [7], "out": 8, "mul": 2.0, "add": 1.0}]}],
        "predicted": {}, "notes": [],
    });
    if hide {
        json["params"]["non_interactive"]["hide_weights"] = json!({"flood_bits": 73});
    }
    // The weights of the run time's own test, whose bounds these are.
    let conv = [3, -2, 1, 4, -5, 2, 2, 1];
    let dense = [1, -3, 2, 5, -4, 2, 1, 3, 2, 2, -1, -2, 4, 1, 3, -1];
    let files = BTreeMap::from([
        ("conv.w".to_owned(), ("I8", vec![2, 1, 2, 2], bytes(&conv))),
        ("conv.b".to_owned(), ("F64", vec![2], reals(&[0.125, -0.5]))),
        ("dense.w".to_owned(), ("I8", vec![2, 8], bytes(&dense))),
        ("dense.b".to_owned(), ("F64", vec![2], reals(&[1.0, -0.25]))),
        ("sum.k".to_owned(), ("I64", vec![2], words([2, -1]))),
        ("sum.c".to_owned(), ("F64", vec![1], reals(&[0.75]))),
    ]);
    file(&json, &files)
}

/// Packed engine: convolution, degree 2, dense.
///
/// # Panics
/// When the network does not compile.
#[must_use]
pub fn packed() -> Vec<u8> {
    let tensor = |id: usize, shape: Value, bound: f64| json!({"id": id, "name": format!("t{id}"), "shape": shape, "bound": bound});
    let spec = json!({"input": 0, "output": 3, "tensors": [
        tensor(0, json!([1, 3, 3]), 1.0), tensor(1, json!([2, 2, 2]), 4.0), tensor(2, json!([2, 2, 2]), 12.0), tensor(3, json!([2]), 60.0)],
        "steps": [
        {"kind": "linear", "name": "conv", "in": 0, "out": 1, "weights": "a", "bias": "b", "geometry":
            {"type": "conv2d", "input": [1, 3, 3], "output": [2, 2, 2], "kernel": [2, 2], "stride": [1, 1], "pads": [0, 0, 0, 0], "dilation": [1, 1],
             "groups": 1}},
        {"kind": "polynomial", "name": "act", "in": 1, "out": 2, "coefficients": [0.24, 0.5, 0.3], "range": 4.0},
        {"kind": "linear", "name": "dense", "in": 2, "out": 3, "weights": "c", "bias": "d", "geometry": {"type": "dense", "inputs": 8, "outputs": 2}}]});
    let numbers = |count: usize, seed: usize| -> Vec<f64> {
        (0..count).map(|i| ((i * 7919 + seed * 104_729 + 13) % 1999) as f64 / 3998.0 - 0.25).collect()
    };
    let arrays: BTreeMap<String, Vec<f64>> = [("a", 8), ("b", 2), ("c", 16), ("d", 2)]
        .iter()
        .enumerate()
        .map(|(i, (name, count))| ((*name).to_owned(), numbers(*count, i)))
        .collect();
    let parsed: GraphSpec = serde_json::from_value(spec.clone()).expect("a network");
    let options = PackedOptions { security: 0, ring_degree: 64, precision_bits: 8, ..PackedOptions::default() };
    let circuit = Circuit::compile(&parsed.check(&arrays).expect("a network"), &options).expect("a circuit");
    let (p, i) = (circuit.params(), circuit.interface().spec());
    let mut files: BTreeMap<String, File> =
        arrays.iter().map(|(k, v)| (k.clone(), ("F64", vec![v.len()], reals(v)))).collect();
    let mut uploads = Vec::new();
    for (number, u) in i.uploads.iter().enumerate() {
        let slots = u.slots.iter().flatten().flat_map(|e| (e.cast_signed() as i16).to_le_bytes()).collect();
        files.insert(format!("input{number}"), ("I16", vec![u.slots.len(), p.slots()], slots));
        uploads.push(json!({"level": u.level, "slots": format!("input{number}")}));
    }
    files.insert(
        "places".into(),
        (
            "I64",
            vec![i.places.len(), 2],
            words(i.places.iter().flat_map(|p| [i64::from(p.0), i64::from(p.1)])),
        ),
    );
    let data: Vec<u64> = (0..p.max_level().get()).map(|i| p.data_prime(i)).collect();
    let noise = circuit.outcomes().last().map_or(0, |o| o.sd.log2().ceil() as u32);
    let json = json!({
        "version": 2, "name": "small", "producer": "fuzz", "trust": "non-interactive", "engine": "packed",
        "params": {"ring_degree": 64, "security_bits": 0, "insecure": true, "non_interactive": {"data_primes": data, "special_primes": p.special_primes(),
            "digits": p.spec().digits, "key_level": p.key_level().get(), "packing": "real"}},
        "inputs": [{"name": "image", "tensor": 0}], "outputs": [{"name": "y", "tensor": 4}],
        "tensors": [
            {"id": 0, "name": "image", "shape": [1, 3, 3], "kind": "real"}, {"id": 1, "name": "image.c", "shape": [1, 3, 3], "kind": "cipher", "bound": 1.0},
            {"id": 2, "name": "y.c", "shape": [2], "kind": "cipher", "bound": 60.0, "noise_bits": noise},
            {"id": 3, "name": "opened", "shape": [2], "kind": "real"}, {"id": 4, "name": "y", "shape": [2], "kind": "real"}],
        "stages": [
            {"kind": "encrypt", "name": "encrypt", "in": 0, "out": 1},
            {"kind": "packed", "name": "network", "in": 1, "out": 2, "uploads": uploads, "places": "places", "scale": i.scale,
             "rotations": i.rotations, "answer": i.answer, "answer_level": i.output_level, "answer_scale": i.output_scale,
             "network": spec, "options": options, "choices": circuit.choices()},
            {"kind": "decrypt", "name": "decrypt", "in": 2, "out": 3},
            {"kind": "client", "name": "decode", "ops": [{"op": "affine", "in": [3], "out": 4, "mul": 2.0, "add": 1.0}]}],
        "predicted": {}, "notes": [],
    });
    file(&json, &files)
}

/// The file of a two-party network.
///
/// # Panics
/// When the builder's JSON is none.
#[must_use]
pub fn file_of(net: &Net) -> Vec<u8> {
    file(&serde_json::from_str(&net.json()).expect("the builder writes JSON"), &net.files)
}

/// One convolution by a method, ReLU, truncation; what sessions run.
#[must_use]
pub fn two_party(method: &str, argmax: bool) -> Net {
    let mut net = Net::new(20, 5);
    if argmax {
        net.reveal = "argmax";
    }
    let x = net.input("image", &[1, 3, 3], 4, 15);
    let c = net.conv(x, 2, 2, 1, 0, 1, 3);
    let r = net.relu(c);
    let t = net.truncate(r, 2, "non-negative", false);
    net.open("y", t);
    for stage in net.stages.iter_mut().filter(|s| s["kind"] == "linear") {
        stage["method"] = method.into();
        stage["weight_l2"] = 16.0.into();
    }
    net
}

/// A function that is clipped at both ends, one within its interval, a product with broadcasting, a square and a constant.
fn gated() -> Net {
    let mut net = Net::new(34, 5);
    let x = net.input("image", &[2, 2, 3], 4, 63);
    let c = net.conv(x, 2, 1, 1, 0, 1, 6);
    let t = net.truncate_to(c, 1, "any", false, 30 << 8);
    let silu = |x: &[f64]| x.iter().map(|x| x / (1.0 + (-x).exp())).collect();
    let mut made = Vec::new();
    for (limit, below, above) in [(8 << 8, "constant", "rising"), (1 << 13, "inside", "inside")] {
        // Fitting these two takes milliseconds and cannot fail: the interval and the error are constants.
        let Ok(fitted) = fit(&silu, (-limit, limit, 8), 34, (12, 4e-3)) else { continue };
        let stage = json!({"function": "silu", "form": fitted.form, "below": below, "above": above,
            "orders": fitted.orders, "predicted": {"error": fitted.error}});
        made.push(net.function(t, stage, &fitted.coefficients, (12, 36 << 12)));
    }
    let means = net.pool("sum_pool", made[0], [2, 3], [1, 1], [0; 4]);
    let excited = net.product(made[1], means, &[2, 2, 3], 16);
    let squared = net.product(excited, excited, &[2, 2, 3], 12);
    let shifted = net.shift(squared, -77, true);
    let t = net.truncate(shifted, 2, "any", true);
    net.open("y", t);
    net
}

/// A tensor times its own transpose, and the result times it: products of matrices in two rings.
fn matrices() -> Net {
    let mut net = Net::new(20, 6);
    let x = net.input("image", &[2, 3, 2], 4, 31);
    let c = net.conv(x, 2, 1, 1, 0, 1, 4);
    let t = net.truncate_to(c, 2, "any", false, 120);
    let turned = net.moves(json!({"kind": "transpose", "perm": [0, 2, 1]}), &[t], &[2, 2, 3]);
    let scores = net.matrix_product(t, turned, 8);
    let mixed = net.matrix_product(scores, t, 4);
    let o = net.truncate(mixed, 2, "any", true);
    net.open("y", o);
    net
}

/// Every kind of stage that the builder knows, in four networks.
#[must_use]
pub fn two_party_stages() -> Vec<Net> {
    let mut net = Net::new(32, 3);
    let x = net.input("image", &[2, 4, 4], 5, 31);
    let c = net.conv(x, 2, 3, 1, 1, 2, 4);
    let c = net.clip(c, -40, 300);
    let p = net.pool("max_pool", c, [2, 2], [2, 2], [0, 0, 1, 0]);
    let s = net.pool("sum_pool", p, [2, 1], [1, 1], [0, 0, 0, 0]);
    let l = net.leaky_relu(s, 3, 3);
    let d = net.dense(l, 3, 4);
    let t = net.truncate(d, 4, "any", true);
    net.open("y", t);
    let mut moves = Net::new(30, 4);
    let x = moves.input("image", &[2, 2, 3], 4, 15);
    let y = moves.moves(json!({"kind": "transpose", "perm": [0, 2, 1]}), &[x], &[2, 3, 2]);
    let z = moves.moves(
        json!({"kind": "slice", "starts": [0], "ends": [2], "steps": [1], "axes": [1]}),
        &[y],
        &[2, 2, 2],
    );
    let z = moves.moves(json!({"kind": "pad", "pads": [0, 1, 0, 0, 0, 0]}), &[z], &[2, 3, 2]);
    let s = moves.add(y, z);
    let k = moves.scale(s, 3);
    let c = moves.moves(json!({"kind": "concat", "axis": 0}), &[k, k], &[4, 3, 2]);
    let f = moves.moves(json!({"kind": "reshape"}), &[c], &[24]);
    moves.reveal = "argmax";
    moves.open("label", f);
    vec![net, moves, gated(), matrices()]
}

/// Reads a non-interactive plan of this module.
///
/// # Panics
/// When it is refused.
#[must_use]
pub fn read_non_interactive(file: &[u8]) -> NonInteractivePlan {
    NonInteractivePlan::from_bytes(file, &options()).expect("a plan of this module is right")
}
