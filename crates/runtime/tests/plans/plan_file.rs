//! Reading plans: every way in which a file can be wrong is a typed error.

use crate::common::{conv, load, load_with, op, small_net, Builder, FileTensor, Linear};
use hushnet_runtime::plan::spec::{KindSpec, Operands, StageKind, StageRule, GRAMMARS, STAGES};
use hushnet_runtime::plan::{Engine, Limits, Plan, PlanError, PlanOptions, Trust};
use hushnet_runtime::two_party::LINEAR_METHODS;
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet};

fn net() -> Builder {
    small_net(2048, 3, &Linear { band: 2, ..Linear::default() })
}

#[test]
fn files_round_trip_and_the_public_part_has_no_weights() {
    let plan = net().plan();
    let bytes = plan.to_bytes().unwrap();
    let again = Plan::from_bytes(&bytes, &PlanOptions::default()).unwrap();
    assert_eq!(again.json(), plan.json());
    assert_eq!(again.spec(), plan.spec());
    assert!(again.has_weights());
    for (a, b) in again.stages().iter().zip(plan.stages()) {
        assert_eq!(a.linear().map(|l| &l.weights), b.linear().map(|l| &l.weights));
    }
    let public = plan.public_part().unwrap();
    let client = Plan::from_bytes(&public, &PlanOptions::default()).unwrap();
    assert!(!client.has_weights());
    assert!(!client.json().contains("linear1.w") && !client.json().contains("\"weights\""));
    assert!(public.len() < bytes.len());
    assert_eq!(client.public_part().unwrap().len(), public.len());
    let path = std::env::temp_dir().join(format!("hushnet-plan-{}.hush", std::process::id()));
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(Plan::load(&path, &PlanOptions::default()).unwrap().json(), plan.json());
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Plan::load(&path, &PlanOptions::default()), Err(PlanError::Io(_))));
}

#[test]
fn the_digest_is_pinned() {
    use hushnet_runtime::plan::{digest, TensorBytes};
    let tensors = BTreeMap::from([
        ("w".to_owned(), TensorBytes { dtype: "I8", shape: &[1, 2], data: &[1, 255] }),
        ("b".to_owned(), TensorBytes { dtype: "I64", shape: &[1], data: &[2, 0, 0, 0, 0, 0, 0, 0] }),
    ]);
    // hashlib.sha256(b'{}' + b'b\0I64\x001\0' + bytes([2] + 7 * [0]) + b'w\0I8\x001,2\0\x01\xff')
    assert_eq!(digest("{}", &tensors), "e3c7d38f7d654eb986246a6d89f89b221b600de7a025f106e499703f378a8e7b");
}

#[test]
fn numbers_are_read_bit_exactly() {
    let mut b = net();
    for scale in
        [0.1, 1.0 / 3.0, 5e-324_f64.sqrt(), 1.234_567_890_123_456_7e-5, f64::from_bits(0x3FEF_FFFF_FFFF_FFFF)]
    {
        b.tensors[1]["scale"] = scale.into();
        let plan = b.plan();
        let public = Plan::from_bytes(&plan.public_part().unwrap(), &PlanOptions::default()).unwrap();
        for p in [&plan, &public] {
            assert_eq!(p.spec().tensors[1].scale.map(f64::to_bits), Some(scale.to_bits()));
        }
    }
}

#[test]
fn truncated_and_flipped_files_are_refused() {
    let bytes = net().plan().to_bytes().unwrap();
    let read = |b: &[u8]| Plan::from_bytes(b, &PlanOptions::default());
    for length in (0..bytes.len()).step_by(7).chain([0, 1, 7, 8, 9, bytes.len() - 1]) {
        let error = read(&bytes[..length]).unwrap_err();
        assert!(
            matches!(error, PlanError::Truncated(_) | PlanError::NotSafetensors(_)),
            "{length}: {error:?}"
        );
    }
    assert!(matches!(read(&bytes[..bytes.len() - 1]), Err(PlanError::Truncated(_))));
    for at in (0..bytes.len()).step_by(3) {
        for bit in [0, 5] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1 << bit;
            assert!(read(&wrong).is_err(), "byte {at}, bit {bit}");
        }
    }
    let mut data = bytes.clone();
    *data.last_mut().unwrap() ^= 1;
    assert!(matches!(read(&data), Err(PlanError::Digest)));
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(read(&longer).is_err());
    assert!(matches!(
        read(b"PK\x03\x04 not a plan at all"),
        Err(PlanError::Truncated(_) | PlanError::NotSafetensors(_))
    ));
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let version = text.find("\"version\":\"2\"").unwrap();
    let mut other = bytes.clone();
    other[version + 11] = b'1';
    assert!(matches!(read(&other), Err(PlanError::Version { found }) if found == "1"));
    let format = text.find("hushnet-plan").unwrap();
    let mut other = bytes;
    other[format] = b'X';
    assert!(matches!(read(&other), Err(PlanError::Format { key: "format", .. })));
}

type Mutation = Box<dyn Fn(&mut Value, &mut BTreeMap<String, FileTensor>)>;

fn set(pointer: &'static str, value: Value) -> Mutation {
    Box::new(move |j, _| {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = j.pointer_mut(parent).unwrap();
        match parent {
            Value::Object(map) => {
                map.insert(key.to_owned(), value.clone());
            }
            Value::Array(list) => list[key.parse::<usize>().unwrap()] = value.clone(),
            _ => panic!("{pointer}"),
        }
    })
}

fn remove(pointer: &'static str) -> Mutation {
    Box::new(move |j, _| {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match j.pointer_mut(parent).unwrap() {
            Value::Object(map) => assert!(map.remove(key).is_some()),
            Value::Array(list) => drop(list.remove(key.parse::<usize>().unwrap())),
            _ => panic!("{pointer}"),
        }
    })
}

fn file(name: &'static str, change: fn(&mut FileTensor)) -> Mutation {
    Box::new(move |_, f| change(f.get_mut(name).unwrap()))
}

fn variant(e: &PlanError) -> String {
    format!("{e:?}").split([' ', '(', '{']).next().unwrap().to_owned()
}

/// Stages of the net: 0 quantize, 1 conv (t1 -> t2), 2 relu, 3 dense (t5 -> t6), 4 dequantize (t7).
#[allow(clippy::too_many_lines)] // One row a mutation.
fn mutations() -> Vec<(&'static str, Mutation)> {
    vec![
        ("Version", set("/version", json!(1))),
        ("Json", set("/trust", json!("blind"))),
        ("Unsupported", set("/trust", json!("two-party"))),
        ("Unsupported", set("/engine", json!("packed"))),
        ("Json", set("/surprise", json!(1))),
        ("Json", set("/notes", json!(7))),
        ("Json", set("/stages/1/method", json!(7))),
        ("Unsupported", set("/stages/1/method", json!("gazelle"))),
        ("Json", set("/stages/1/kind", json!("magic"))),
        // A stage, a tensor, parameters and a field of a layer that other trust models have.
        ("Unsupported", set("/stages/2", json!({"kind": "relu", "name": "r", "in": 2, "out": 3}))),
        ("Tensor", set("/tensors/1/kind", json!("shared"))),
        ("Structure", set("/params/two_party", json!({"ring_bits": 32, "reveal": "output"}))),
        ("Linear", set("/stages/1/weight_l2", json!(8.0))),
        ("Linear", set("/stages/1/mask_drop_bits", json!(0))),
        ("Json", set("/stages/1/in", json!([1]))),
        ("Json", set("/stages/0/in", json!(1))),
        ("Tensor", set("/tensors/1/id", json!(7))),
        ("Tensor", set("/tensors/1/bound", json!(1.5))),
        ("Json", set("/stages/0/ops/0/op", json!("frobnicate"))),
        ("Json", set("/stages/0/ops/0/extra", json!(1))),
        ("Json", remove("/stages/0/ops/0/out")),
        ("Json", set("/stages/1/mask", json!("none"))),
        ("Json", set("/stages/1/modulus_bits", json!(-1))),
        ("Structure", set("/params/ring_degree", json!(3000))),
        ("Params", set("/params/ring_degree", json!(512))),
        ("Structure", set("/params/security_bits", json!(80))),
        ("Insecure", set("/params/insecure", json!(true))),
        ("Structure", set("/inputs", json!([]))),
        ("Structure", set("/outputs", json!([]))),
        ("Structure", set("/inputs/0/tensor", json!(2))),
        ("DanglingTensor", set("/inputs/0/tensor", json!(99))),
        ("DanglingTensor", set("/outputs/0/tensor", json!(99))),
        ("DanglingTensor", set("/stages/0/ops/0/in", json!([99]))),
        ("DanglingTensor", set("/stages/1/out", json!(99))),
        ("UsedBeforeDefined", set("/stages/0/ops/0/in", json!([4]))),
        ("UsedBeforeDefined", set("/stages/1/in", json!(5))),
        ("DefinedTwice", set("/stages/0/ops/0/out", json!(0))),
        ("DefinedTwice", set("/stages/3/out", json!(2))),
        ("Tensor", set("/tensors/1/id", json!(0))),
        ("Tensor", set("/tensors/1/scale", json!(0.0))),
        ("Tensor", set("/tensors/1/scale", json!(-0.5))),
        ("Tensor", set("/tensors/1/scale", json!(1e-320))),
        ("Tensor", remove("/tensors/1/bound")),
        ("Tensor", set("/tensors/1/bound", json!(u64::MAX))),
        ("Tensor", set("/tensors/0/scale", json!(1.0))),
        ("Tensor", set("/tensors/3/shape", json!([0, 5]))),
        ("Tensor", set("/tensors/3/shape", json!([u64::MAX, u64::MAX]))),
        ("TooLarge", set("/tensors/3/shape", json!([1 << 20, 1 << 20]))),
        ("TooLarge", set("/tensors/3/shape", json!([1, 1, 1, 1, 1, 1, 1, 1, 1]))),
        ("Op", set("/tensors/1/shape", json!([2, 7, 6]))),
        ("Op", set("/stages/0/ops/0/in", json!([0, 0]))),
        ("Op", set("/stages/0/ops/0/op", json!("relu"))),
        ("Op", set("/stages/2/ops/1", json!({"op": "clip", "in": [3], "out": 4, "min": 2.0, "max": 1.0}))),
        ("Op", set("/stages/2/ops/1", json!({"op": "prelu", "in": [3], "out": 4, "slope": [1.0, 2.0]}))),
        ("Op", set("/stages/2/ops/1", json!({"op": "softmax", "in": [3], "out": 4, "axis": 3}))),
        ("Op", set("/stages/2/ops/1", json!({"op": "transpose", "in": [3], "out": 4, "perm": [0, 0, 1]}))),
        ("Op", set("/stages/2/ops/1", json!({"op": "transpose", "in": [3], "out": 4, "perm": [2, 0, 1]}))),
        ("Op", set("/stages/2/ops/1", json!({"op": "concat", "in": [3, 3], "out": 4, "axis": 0}))),
        (
            "Op",
            set(
                "/stages/2/ops/1",
                json!({"op": "pad", "in": [3], "out": 4, "pads": [0, 0, 1], "value": 0.0}),
            ),
        ),
        ("Op", set("/stages/2/ops/1", json!({"op": "reduce_sum", "in": [3], "out": 4, "axes": [0, 0]}))),
        (
            "Op",
            set(
                "/stages/2/ops/1",
                json!({"op": "slice", "in": [3], "out": 4, "starts": [0], "ends": [9], "steps": [1], "axes": [0]}),
            ),
        ),
        (
            "Op",
            set(
                "/stages/2/ops/1",
                json!({"op": "max_pool", "in": [3], "out": 4, "kernel": [1, 1], "stride": [0, 1], "pads": [0, 0, 0, 0], "dilation": [1, 1]}),
            ),
        ),
        (
            "Op",
            set(
                "/stages/2/ops/1",
                json!({"op": "max_pool", "in": [3], "out": 4, "kernel": [2, 2], "stride": [1, 1], "pads": [0, 0, 0, 0], "dilation": [1, 1]}),
            ),
        ),
        ("Op", set("/stages/2/ops/1", json!({"op": "broadcast", "in": [0], "out": 4}))),
        ("Structure", set("/stages/1/name", json!("client0"))),
        ("Linear", set("/stages/1/geometry/kernel", json!([3, 3]))),
        ("Linear", set("/stages/1/geometry/stride", json!([0, 1]))),
        ("Linear", set("/stages/1/geometry/groups", json!(0))),
        ("Linear", set("/stages/1/geometry/groups", json!(2))),
        ("Linear", set("/stages/1/geometry/dilation", json!([u64::MAX, 1]))),
        ("Linear", set("/stages/3/geometry/inputs", json!(61))),
        ("Linear", set("/stages/1/in", json!(0))),
        ("Tiles", set("/stages/1/tiles/0/inputs", json!([1, 4]))),
        ("Tiles", set("/stages/1/tiles/0/inputs", json!([0, 1]))),
        ("Tiles", set("/stages/1/tiles/0/outputs", json!([0, 4]))),
        ("Tiles", remove("/stages/1/tiles/1")),
        ("Tiles", set("/stages/1/tiles", json!([]))),
        ("Tiles", set("/stages/1/tiles/0", json!({"inputs": [0, 0], "outputs": [0, 0]}))),
        ("Params", set("/stages/1/modulus_bits", json!(54))),
        ("Params", set("/stages/1/modulus_bits", json!(20))),
        ("Params", set("/stages/1/delta_bits", json!(2))),
        ("Params", set("/stages/1/drop_bits", json!(30))),
        ("Bound", set("/tensors/2/bound", json!(5))),
        ("Weights", set("/stages/1/weights", json!("absent"))),
        ("Structure", remove("/stages/1/bias")),
        ("Weights", file("linear1.w", |f| f.shape.swap(0, 1))),
        ("Weights", file("linear1.w", |f| f.dtype = "I64")),
        ("Weights", file("linear1.b", |f| f.dtype = "I16")),
        ("Weights", file("linear1.b", |f| f.shape = vec![1, 3])),
        (
            "Weights",
            Box::new(|_, f| {
                f.insert("extra".into(), FileTensor { dtype: "I8", shape: vec![1], values: vec![1] });
            }),
        ),
        ("Bound", file("linear1.w", |f| f.values.iter_mut().for_each(|v| *v = 127))),
        ("Structure", set("/inputs/0/classes", json!({"of": "index", "names": ["a"]}))),
        ("Structure", set("/outputs/0/classes", json!({"of": "index", "names": []}))),
        (
            "Structure",
            set("/outputs/0/classes", json!({"of": "columns", "names": ["a", "b", 3, 4, 5, 6, 7]})),
        ),
        ("Structure", set("/outputs/0/classes", json!({"of": "sign", "names": ["a", "b"]}))),
        ("Structure", set("/outputs/0/classes", json!({"of": "values", "names": ["a"]}))),
        ("Json", set("/outputs/0/classes", json!({"of": "rows", "names": ["a"]}))),
        ("Json", set("/outputs/0/classes", json!({"of": "index", "names": [0.5]}))),
        ("Structure", set("/outputs/0/missing", json!([0.0]))),
        ("Structure", set("/inputs/0/missing", json!([]))),
        ("Structure", set("/inputs/0/missing", json!([0.0, 1.0]))),
        ("Structure", set("/inputs/0/columns", json!(["a"]))),
        ("Structure", set("/outputs/0/columns", json!(["a"]))),
    ]
}

#[test]
fn every_wrong_field_is_a_typed_error() {
    for (i, (wanted, mutate)) in mutations().into_iter().enumerate() {
        let b = net();
        let (mut json, mut files) = (b.json(), b.files);
        mutate(&mut json, &mut files);
        match load(&json.to_string(), &files) {
            Ok(_) => panic!("mutation {i} ({wanted}) was accepted"),
            Err(e) => {
                assert_eq!(variant(&e), wanted, "mutation {i}: {e:?}");
                assert!(e.to_string().len() > 20, "{e}");
            }
        }
    }
}

/// What a trust model allows is a table: the one that the check reads is the one in the documents.
#[test]
fn the_documents_have_the_grammar_that_the_check_reads() {
    let text = include_str!("../../../../docs/plan-format.md");
    let row = |cells: &[&str]| {
        cells.iter().fold(String::from("|"), |line, c| {
            line + &if c.is_empty() { " |".to_owned() } else { format!(" {c} |") }
        })
    };
    let yes = |rule: &StageRule, trust| if rule.trust.contains(&trust) { "yes" } else { "" };
    for rule in &STAGES {
        let held = |kind: Option<KindSpec>| match kind {
            Some(kind) => kind.name(),
            None if rule.operands == Operands::None => "",
            None => "layers",
        };
        let [a, b, c] = [Trust::ClientAided, Trust::TwoParty, Trust::NonInteractive].map(|t| yes(rule, t));
        let line = row(&[rule.kind, rule.operands.written(), a, b, c, held(rule.from), held(rule.to)]);
        assert!(text.lines().any(|l| l == line), "docs/plan-format.md lacks the row {line}");
    }
    for g in &GRAMMARS {
        let engine = |e: &Engine| if *e == Engine::Batch { "batch" } else { "packed" };
        let engines = g.engines.iter().map(engine).collect::<Vec<_>>().join(", ");
        let tensors = g.tensors.iter().map(|k| k.name()).collect::<Vec<_>>().join(", ");
        let registry: Vec<&str> = LINEAR_METHODS.iter().map(|m| m.name).collect();
        let (methods, params) = (g.method_names(&registry), g.params.unwrap_or(""));
        let fields = g.layer_fields();
        let line = row(&[g.trust.name(), &engines, &tensors, g.layers.name(), &methods, params, &fields]);
        assert!(text.lines().any(|l| l == line), "docs/plan-format.md lacks the row {line}");
    }
    let rows = text.lines().filter(|l| l.contains("| yes |")).count();
    assert_eq!(rows, STAGES.len(), "docs/plan-format.md has stages that there are not");
}

#[test]
fn every_kind_of_stage_has_its_row_in_the_grammar() {
    // The error of an unknown kind lists all that there are.
    let error = serde_json::from_value::<StageKind>(json!({"kind": "?"})).unwrap_err().to_string();
    let kinds: BTreeSet<&str> = error.split('`').skip(3).step_by(2).collect();
    let rows: BTreeSet<&str> = STAGES.iter().map(|r| r.kind).collect();
    assert_eq!(kinds, rows, "{error}");
    assert_eq!(rows.len(), STAGES.len());
}

#[test]
fn the_public_part_is_checked_just_as_strictly() {
    let public = |json: &Value| {
        let mut json = json.clone();
        for stage in json["stages"].as_array_mut().unwrap() {
            stage.as_object_mut().unwrap().retain(|k, _| k != "weights" && k != "bias");
        }
        load(&json.to_string(), &BTreeMap::new())
    };
    let good = net().json();
    assert!(!public(&good).unwrap().has_weights());
    for (i, (wanted, mutate)) in mutations().into_iter().enumerate() {
        let (mut json, mut files) = (net().json(), net().files);
        mutate(&mut json, &mut files);
        // What touches weights only does not show in the public part.
        let linear = &json["stages"][1];
        let names_weights = linear["weights"] == "linear1.w" && linear["bias"] == "linear1.b";
        if json != good && names_weights {
            let error = public(&json);
            // Without weights the bound is checked through the modulus only where it grows.
            if wanted != "Bound" {
                assert_eq!(variant(&error.unwrap_err()), wanted, "mutation {i}");
            }
        }
    }
    let mut wide = good;
    wide["tensors"][2]["bound"] = json!(1_u64 << 50);
    assert_eq!(variant(&public(&wide).unwrap_err()), "Params");
    let mut half = net().json();
    half["stages"][1].as_object_mut().unwrap().retain(|k, _| k != "weights" && k != "bias");
    let mut files = net().files;
    files.retain(|n, _| n.starts_with("linear3"));
    assert_eq!(variant(&load(&half.to_string(), &files).unwrap_err()), "Structure");
}

#[test]
fn sizes_are_limited_before_anything_is_allocated() {
    let b = net();
    let text = b.json().to_string();
    let with = |change: fn(&mut Limits)| {
        let mut options = PlanOptions::default();
        change(&mut options.limits);
        match load_with(&text, &b.files, &options) {
            Err(PlanError::TooLarge { what, value, limit }) => {
                assert!(value > limit);
                what
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(with(|l| l.json_bytes = 100).contains("JSON"));
    assert!(with(|l| l.tensors = 3).contains("tensors"));
    assert!(with(|l| l.stages = 2).contains("stages"));
    assert!(with(|l| l.ops = 1).contains("operations"));
    assert!(with(|l| l.tiles = 1).contains("tiles"));
    assert!(with(|l| l.rank = 2).contains("rank"));
    assert!(with(|l| l.elements = 10).contains("tensor"));
    assert!(with(|l| l.frame_bytes = 1000).contains("frame"));
    let mut options = PlanOptions::default();
    options.limits.memory_bytes = 100_000;
    let refused = load_with(&text, &b.files, &options).unwrap_err();
    assert!(
        matches!(refused, PlanError::Memory { need, limit: 100_000, .. } if need > 100_000),
        "{refused:?}"
    );
    assert!(
        refused.to_string().contains("--max-memory") && refused.to_string().contains("stage '"),
        "{refused}"
    );
    let bytes = b.plan().to_bytes().unwrap();
    let mut options = PlanOptions::default();
    options.limits.file_bytes = 100;
    assert!(matches!(Plan::from_bytes(&bytes, &options), Err(PlanError::TooLarge { .. })));
}

#[test]
fn insecure_plans_run_only_when_the_caller_says_so() {
    let mut b = net();
    b.insecure = true;
    let mut json = b.json();
    json["params"]["security_bits"] = json!(60);
    json["stages"][1]["modulus_bits"] = json!(60);
    let options = PlanOptions { allow_insecure: true, ..PlanOptions::default() };
    let plan = load_with(&json.to_string(), &b.files, &options).unwrap();
    assert!(plan.insecure());
    let error = load(&json.to_string(), &b.files).unwrap_err();
    assert!(matches!(error, PlanError::Insecure(_)), "{error:?}");
    // Being allowed does not make an unmarked plan insecure.
    json["params"] = json!({"ring_degree": 2048, "security_bits": 128, "insecure": false});
    assert_eq!(variant(&load_with(&json.to_string(), &b.files, &options).unwrap_err()), "Params");
    // Correctness is demanded all the same.
    json["params"] = json!({"ring_degree": 2048, "security_bits": 60, "insecure": true});
    json["stages"][1]["delta_bits"] = json!(3);
    assert_eq!(variant(&load_with(&json.to_string(), &b.files, &options).unwrap_err()), "Params");
}

#[test]
fn the_clients_memory_is_what_lives_at_once() {
    let mut b = Builder::new(1024, 1);
    let x = b.input("x", &[4, 8, 8]);
    let q = b.fixed(&[4, 8, 8], 0.01, 127);
    b.client(vec![op("quantize", &[x], q)]);
    let o = Linear { weight_bits: 3, ..Linear::default() };
    let b2048 = |b: &mut Builder| b.n = 2048;
    b2048(&mut b);
    let y = b.linear(q, conv([4, 8, 8], 2, [1, 1], [1, 1], [0; 4], [1, 1], 1), &o);
    let (r, p) = (b.real(&[2, 8, 8]), b.fixed(&[2, 8, 8], 0.5, 127));
    b.client(vec![op("dequantize", &[y], r), op("quantize", &[r], p)]);
    b.output("p", p);
    // The convolution's outputs and the reals never exist as a whole: 16-bit inputs and outputs only.
    assert_eq!(b.plan().client_tensor_bytes(), (256 + 128) * 2 * 2048);
    b.output("r", r);
    assert_eq!(b.plan().client_tensor_bytes(), (256 * 2 + 128 * 2 + 128 * 8) * 2048);
    b.output("y", y);
    assert_eq!(b.plan().client_tensor_bytes(), (256 * 2 + 128 * 2 + 128 * 8 + 128 * 2) * 2048);
}
