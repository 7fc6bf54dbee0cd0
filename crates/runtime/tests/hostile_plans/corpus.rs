//! The plans that are changed: fixtures that `hushnet compile` wrote, and plans of the builders with every kind of stage; each in full and as its
//! public part.

use crate::builder::Net;
use crate::common::{conv, op, op_with, small_net, Builder, Linear};
use hushnet_runtime::non_interactive::NonInteractivePlan;
use hushnet_runtime::plan::{Plan, PlanOptions, TensorBytes};
use hushnet_runtime::two_party::{fit, TwoPartyPlan, LINEAR_METHODS};
use safetensors::tensor::Dtype;
use safetensors::SafeTensors;
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// Tensors of a plan file: type, shape, bytes.
pub(crate) type Files = BTreeMap<String, (&'static str, Vec<usize>, Vec<u8>)>;

/// A plan to change.
pub(crate) struct Case {
    pub name: String,
    pub trust: &'static str,
    pub json: String,
    pub files: Files,
}

/// A plan file's JSON and tensors.
fn parts(file: &[u8]) -> (String, Files) {
    let (_, header) = SafeTensors::read_metadata(file).unwrap();
    let json = header.metadata().as_ref().unwrap()["plan"].clone();
    let tensors = SafeTensors::deserialize(file).unwrap();
    let dtype = |d| match d {
        Dtype::I8 => "I8",
        Dtype::I16 => "I16",
        Dtype::F64 => "F64",
        _ => "I64",
    };
    let files = tensors.tensors().into_iter();
    let files = files.map(|(n, v)| (n, (dtype(v.dtype()), v.shape().to_vec(), v.data().to_vec()))).collect();
    (json, files)
}

fn case(name: &str, trust: &'static str, file: &[u8]) -> Case {
    let (json, files) = parts(file);
    Case { name: name.into(), trust, json, files }
}

/// A plan in full and its public part.
fn both(name: &str, trust: &'static str, full: &[u8], public: &[u8]) -> Vec<Case> {
    vec![case(&format!("{name}, full"), trust, full), case(&format!("{name}, public"), trust, public)]
}

fn file_of(net: &Net) -> Vec<u8> {
    let views =
        net.files.iter().map(|(n, (dtype, shape, data))| (n.clone(), TensorBytes { dtype, shape, data }));
    TwoPartyPlan::file(&net.json(), &views.collect()).unwrap()
}

fn two_party_case(name: &str, file: &[u8]) -> Vec<Case> {
    let public = TwoPartyPlan::from_bytes(file, &PlanOptions::default()).unwrap().public_part().unwrap();
    both(name, "two-party", file, &public)
}

/// Every stage that is not linear, garbled ones too.
fn stages() -> Net {
    let mut net = Net::new(30, 1);
    let x = net.input("image", &[2, 6, 5], 5, 31);
    let c = net.conv(x, 2, 3, 1, 1, 1, 4);
    let r = net.relu(c);
    let t = net.truncate(r, 5, "non-negative", false);
    let p = net.pool("max_pool", t, [3, 2], [1, 1], [1, 0, 1, 1]);
    let g = net.pool("max_pool", p, [2, 2], [2, 2], [0; 4]);
    net.stages.last_mut().unwrap()["protocol"] = "garbled".into();
    let s = net.pool("sum_pool", g, [2, 1], [1, 1], [0; 4]);
    let k = net.scale(s, 3);
    let shape = net.shape(k);
    let tr =
        net.moves(json!({"kind": "transpose", "perm": [2, 0, 1]}), &[k], &[shape[2], shape[0], shape[1]]);
    let sl = net.moves(
        json!({"kind": "slice", "starts": [0], "ends": [shape[2]], "steps": [1], "axes": [0]}),
        &[tr],
        &[shape[2], shape[0], shape[1]],
    );
    let pd = net.moves(
        json!({"kind": "pad", "pads": [0, 0, 1, 0, 0, 0]}),
        &[sl],
        &[shape[2], shape[0], shape[1] + 1],
    );
    let cc =
        net.moves(json!({"kind": "concat", "axis": 0}), &[pd, pd], &[2 * shape[2], shape[0], shape[1] + 1]);
    let n = 2 * shape[2] * shape[0] * (shape[1] + 1);
    let rs = net.moves(json!({"kind": "reshape"}), &[cc], &[n]);
    let a = net.add(rs, rs);
    let l = net.leaky_relu(a, 1, 3);
    let c = net.clip(l, -100, 100);
    let t = net.truncate(c, 3, "any", true);
    net.open("out", t);
    net
}

/// Functions with each kind of end, one of them mirrored, products of equal and of broadcast shapes, a square.
fn elementwise() -> Net {
    let mut net = Net::new(34, 3);
    let x = net.input("image", &[2, 3, 5], 4, 63);
    let c = net.conv(x, 2, 3, 1, 1, 1, 6);
    let t = net.truncate_to(c, 1, "any", false, 30 << 8);
    let silu = |x: &[f64]| x.iter().map(|x| x / (1.0 + (-x).exp())).collect();
    let mut made = Vec::new();
    for (limit, below, above) in [(8 << 8, "constant", "rising"), (1 << 13, "inside", "inside")] {
        let fitted = fit(&silu, (-limit, limit, 8), 34, (12, 4e-3)).unwrap();
        let stage = json!({"function": "silu", "form": fitted.form, "below": below, "above": above,
            "orders": fitted.orders, "predicted": {"error": fitted.error}});
        made.push(net.function(t, stage, &fitted.coefficients, (12, 36 << 12)));
    }
    let folded = |x: &[f64]| x.iter().map(|x| x / (1.0 + (-x).exp()) - x).collect();
    let fitted = fit(&folded, (0, 8 << 8, 8), 34, (12, 4e-3)).unwrap();
    let stage = json!({"function": "silu", "form": fitted.form, "below": "mirrored", "above": "constant",
        "orders": fitted.orders, "predicted": {"error": fitted.error}});
    let mirrored = net.function(t, stage, &fitted.coefficients, (12, 36 << 12));
    let mirrored = net.truncate(mirrored, 2, "any", true);
    net.open("mirrored", mirrored);
    let means = net.pool("sum_pool", made[0], [3, 5], [1, 1], [0; 4]);
    let excited = net.product(made[1], means, &[2, 3, 5], 16);
    let squared = net.product(excited, excited, &[2, 3, 5], 12);
    let hard = net.hard_swish(t, 384, 9);
    let hard = net.truncate(hard, 2, "any", true);
    net.open("hard", hard);
    let shifted = net.shift(squared, -77, true);
    let o = net.truncate(shifted, 2, "any", true);
    net.open("out", o);
    net
}

/// A product of heads with their own transposes behind a layer, in a ring beyond the shares'; a product in a narrower one.
fn matrices() -> Net {
    let mut net = Net::new(24, 4);
    let x = net.input("image", &[2, 3, 4], 4, 31);
    let c = net.conv(x, 4, 1, 1, 0, 1, 4);
    let t = net.truncate_to(c, 3, "any", false, 300);
    let heads = net.moves(json!({"kind": "reshape"}), &[t], &[2, 6, 4]);
    let keys = net.moves(json!({"kind": "transpose", "perm": [0, 2, 1]}), &[heads], &[2, 4, 6]);
    let scores = net.matrix_product(heads, keys, 10);
    let mixed = net.matrix_product(scores, heads, 8);
    let o = net.truncate(mixed, 2, "any", true);
    net.open("out", o);
    net
}

/// A convolution and a dense layer of one method; two dense layers where the method is for dense layers only.
fn layers(method: &str) -> Net {
    let net = layers_behind(method, |net, x| net.conv(x, 4, 3, 2, 1, 2, 5));
    match TwoPartyPlan::from_bytes(&file_of(&net), &PlanOptions::default()) {
        Err(e) if e.to_string().contains("dense layers only") => {
            layers_behind(method, |net, x| net.dense(x, 11, 5))
        }
        _ => net,
    }
}

/// A dense layer behind another one of the same method.
fn layers_behind(method: &str, first: impl Fn(&mut Net, usize) -> usize) -> Net {
    let mut net = Net::new(26, 2);
    let x = net.input("image", &[2, 9, 7], 5, 31);
    let c = first(&mut net, x);
    let t = net.truncate(c, 5, "any", false);
    let d = net.dense(t, 6, 4);
    let t = net.truncate(d, 3, "any", false);
    net.open("logits", t);
    for stage in net.stages.iter_mut().filter(|s| s["kind"] == "linear") {
        stage["method"] = method.into();
    }
    net
}

pub(crate) fn two_party() -> Vec<Case> {
    let mut cases = two_party_case("fixture", include_bytes!("../fixtures/two_party.hush"));
    cases.extend(two_party_case("every stage", &file_of(&stages())));
    cases.extend(two_party_case("functions and products", &file_of(&elementwise())));
    cases.extend(two_party_case("matrix products", &file_of(&matrices())));
    // The fixture has layers of `cheetah`.
    for method in LINEAR_METHODS.iter().map(|m| m.name).filter(|name| *name != "cheetah") {
        // Full and public parts of the same layers differ in weights alone: the public one is what clients read.
        cases.extend(two_party_case(method, &file_of(&layers(method))).into_iter().skip(1));
    }
    cases
}

/// Every operation that has attributes of its own.
fn operations() -> Builder {
    let mut b = Builder::new(2048, 3);
    let x = b.input("x", &[2, 6, 5]);
    let q = b.fixed(&[2, 6, 5], 0.01, 127);
    b.client(vec![op("quantize", &[x], q)]);
    let acc = b.linear(
        q,
        conv([2, 6, 5], 2, [3, 3], [1, 1], [1; 4], [1, 1], 1),
        &Linear { band: 3, ..Linear::default() },
    );
    let real = |b: &mut Builder, shape: &[usize]| b.real(shape);
    let steps: Vec<(&str, Vec<usize>, Value)> = vec![
        (
            "max_pool",
            vec![2, 6, 5],
            json!({"kernel": [3, 3], "stride": [1, 1], "pads": [1, 1, 1, 1], "dilation": [1, 1]}),
        ),
        (
            "average_pool",
            vec![2, 3, 2],
            json!({"kernel": [2, 2], "stride": [2, 2], "pads": [0, 0, 0, 0], "count_include_pad": true}),
        ),
        ("transpose", vec![3, 2, 2], json!({"perm": [1, 0, 2]})),
        ("pad", vec![4, 2, 3], json!({"pads": [0, 0, 1, 1, 0, 0], "value": 0.5})),
        ("slice", vec![2, 2, 3], json!({"starts": [0], "ends": [4], "steps": [2], "axes": [0]})),
        ("prelu", vec![2, 2, 3], json!({"slope": [0.1, 0.2]})),
        ("softmax", vec![2, 2, 3], json!({"axis": 2})),
        ("clip", vec![2, 2, 3], json!({"min": 0.0, "max": 6.0})),
        ("affine", vec![2, 2, 3], json!({"mul": 2.0, "add": 1.0})),
        ("reduce_mean", vec![2, 3], json!({"axes": [1]})),
        ("broadcast", vec![4, 2, 3], json!({})),
        ("reshape", vec![24], json!({})),
    ];
    let first = real(&mut b, &[2, 6, 5]);
    let (mut at, mut ops) = (first, vec![op("dequantize", &[acc], first)]);
    for (name, shape, attributes) in steps {
        let out = real(&mut b, &shape);
        ops.push(op_with(name, &[at], out, attributes));
        at = out;
    }
    let (joined, shape) = (real(&mut b, &[48]), json!({"axis": 0}));
    ops.push(op_with("concat", &[at, at], joined, shape));
    b.client(ops);
    b.output("y", joined);
    b
}

pub(crate) fn client_aided() -> Vec<Case> {
    let of = |name: &str, plan: Plan| {
        let full = plan.to_bytes().unwrap();
        both(
            name,
            "client-aided",
            &full,
            &Plan::from_bytes(&full, &PlanOptions::default()).unwrap().public_part().unwrap(),
        )
    };
    let fresh = Linear { mask: "fresh", band: 2, ..Linear::default() };
    let mut cases = of("layers", small_net(2048, 3, &fresh).plan());
    cases.extend(of("operations", operations().plan()));
    cases.extend(of("few images", small_net(2048, 3, &Linear::default()).few_images()));
    cases
}

pub(crate) fn non_interactive() -> Vec<Case> {
    let of = |name: &str, full: &[u8]| {
        let plan = NonInteractivePlan::from_bytes(full, &PlanOptions::default()).unwrap();
        both(name, "non-interactive", full, &plan.public_part().unwrap())
    };
    let mut cases = of("batch", include_bytes!("../fixtures/non_interactive_batch.hush"));
    cases.extend(of("packed", include_bytes!("../fixtures/non_interactive_packed.hush")));
    cases
}

/// A public two-party plan of one real input and its opening, with stages of a list of `(stage, shape of its result)` between.
fn chain(name: &str, input: &[usize], stages: Vec<(Value, Vec<usize>)>) -> Case {
    let mut net = Net::new(30, 9);
    let mut at = net.input("x", input, 0, 1);
    for (stage, shape) in stages {
        let linear = stage["kind"] == "linear";
        // Moves take a list of operands.
        let list = ["transpose", "pad", "slice", "concat", "reshape"].iter().any(|k| stage["kind"] == *k);
        at = if list {
            net.moves(stage, &[at], &shape)
        } else {
            net.unary(stage, at, &shape, 0, if linear { 1 << 12 } else { 1 })
        };
        if linear {
            let bound = 1 << 4;
            at = net.truncate_to(at, 1, "any", false, bound);
            net.tensors[at]["frac_bits"] = 0.into();
        }
    }
    let t = net.truncate_to(at, 1, "any", true, 1);
    net.tensors[t]["frac_bits"] = 0.into();
    net.open("y", t);
    let (json, files) = (net.json(), Files::new());
    Case { name: name.into(), trust: "two-party", json, files }
}

fn convolution(
    method: &str,
    input: [usize; 3],
    output: [usize; 3],
    kernel: usize,
    stride: usize,
    pad: usize,
    groups: usize,
) -> Value {
    json!({"kind": "linear", "method": method, "weight_l2": 1.0, "geometry": {"type": "conv2d", "input": input, "output": output,
        "kernel": [kernel, kernel], "stride": [stride, stride], "pads": [pad, pad, pad, pad], "dilation": [1, 1], "groups": groups}})
}

fn pool(kind: &str, kernel: [usize; 2], pads: [usize; 4]) -> Value {
    json!({"kind": kind, "kernel": kernel, "stride": [1, 1], "pads": pads, "dilation": [1, 1]})
}

/// Plans whose numbers agree with each other, and what their refusal says.
pub(crate) fn greedy() -> Vec<(Case, &'static str)> {
    let mut cases = Vec::new();
    // Two elements, windows and paddings of 10^8, 2^36 and 2^40.
    for k in [100_000_000, 1 << 36, 1 << 40_usize] {
        let stage = |kind| pool(kind, [k, 1], [k - 1, 0, k - 1, 0]);
        let said = if k > 1 << 28 { "above the limit" } else { "at most" };
        cases.push((chain("windows", &[1, 2, 1], vec![(stage("max_pool"), vec![1, 1 + k, 1])]), said));
        for kind in ["max_pool", "sum_pool"] {
            let case = chain("windows of a small result", &[1, 2, 1], vec![(stage(kind), vec![1, 4, 1])]);
            cases.push((case, "at most"));
        }
    }
    // Windows of a whole image at every place of it: memory of the comparison alone.
    let stage = pool("max_pool", [512, 512], [511; 4]);
    cases.push((chain("whole windows", &[1, 512, 512], vec![(stage, vec![1, 1023, 1023])]), "--max-memory"));
    // Many large moves.
    let moves = || (json!({"kind": "transpose", "perm": [1, 0]}), vec![1 << 11, 1 << 11]);
    let many = (0..1000).map(|_| moves()).collect();
    cases.push((chain("moves", &[1 << 11, 1 << 11], many), "--max-memory"));
    // Products of matrices with many elements, and with as many heads as take long to lay out.
    for (heads, n, said) in [(1, 1 << 14, "elements of a matrix product"), (1 << 16, 32, "steps to lay out")]
    {
        let shape = [heads, n, n];
        let mut case = chain("products", &shape, vec![(json!({"kind": "relu"}), shape.to_vec()); 12]);
        let mut json: Value = serde_json::from_str(&case.json).unwrap();
        for stage in json["stages"].as_array_mut().unwrap().iter_mut().filter(|s| s["kind"] == "relu") {
            let x = stage["in"].clone();
            *stage = json!({"kind": "matrix_product", "name": stage["name"], "in": [x, x], "out": stage["out"], "bits": 1});
        }
        case.json = json.to_string();
        cases.push((case, said));
    }
    // A set-up that is larger than the client may hold.
    let dense = json!({"kind": "linear", "method": "rotation-free", "weight_l2": 1024.0,
        "geometry": {"type": "dense", "inputs": 1 << 14, "outputs": 1 << 14}});
    cases.push((chain("set-up", &[1 << 14], vec![(dense, vec![1 << 14])]), "the set-up of stage"));
    // Layouts that take long to find or much to remember: as many kernel positions as an image, in as many phases; depthwise layers of many
    // channels and sizes; slots of many channels.
    let wide = convolution("cheetah", [1, 4096, 4096], [1, 1, 1], 4096, 4096, 0, 1);
    cases
        .push((chain("kernel positions", &[1, 4096, 4096], vec![(wide, vec![1, 1, 1])]), "kernel positions"));
    let depth = |method| convolution(method, [1 << 14, 12, 12], [1 << 14, 12, 12], 3, 1, 1, 1 << 14);
    let layers = (0..200).map(|_| (depth("cheetah"), vec![1 << 14, 12, 12])).collect();
    cases.push((chain("depthwise layers", &[1 << 14, 12, 12], layers), "steps to lay out"));
    let slots = convolution("gala", [1 << 13, 4, 4], [1 << 13, 4, 4], 3, 1, 1, 1);
    cases.push((chain("slots", &[1 << 13, 4, 4], vec![(slots, vec![1 << 13, 4, 4])]), "steps to lay out"));
    cases
}
