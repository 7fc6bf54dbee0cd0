//! Packed plans: whole sessions, plans that are wrong, peers that misbehave.

use super::messages;
use super::tests::{answers, run_loopback, run_pipe, unnamed};
use super::*;
use crate::plan::TensorBytes;
use crate::wire::{Frame, FrameBuilder, Kind};
use crate::{Compute, Error, Input, InputData, PlanError, PlanOptions};
use hushnet_layers::packed::{Circuit, GraphSpec, Network, PackedOptions};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::OnceLock;

pub(super) const INPUTS: usize = 2 * 5 * 4;

pub(super) type File = (&'static str, Vec<usize>, Vec<u8>);

pub(super) struct Net {
    pub plan: Value,
    pub files: BTreeMap<String, File>,
    pub network: Network,
}

fn words(v: &[f64]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

pub(super) fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729 + 13) % 1999) as f64 / 999.5 - 1.0).collect()
}

/// A strided convolution of 5x4 to 3x2, degree 2, a residual sum with a 1x1 convolution, degree 3, dense to three values.
fn network(bound: f64) -> (GraphSpec, BTreeMap<String, Vec<f64>>) {
    let conv = |input: [usize; 3], output: [usize; 3], kernel: usize, stride: usize, pad: usize| json!({"type": "conv2d", "input": input, "output": output, "kernel": [kernel, kernel], "stride": [stride, stride], "pads": [pad, pad, pad, pad], "dilation": [1, 1], "groups": 1});
    let tensor = |id: usize, shape: Value, bound: f64| json!({"id": id, "name": format!("t{id}"), "shape": shape, "bound": bound});
    let spec = json!({"input": 0, "output": 6, "tensors": [
        tensor(0, json!([2, 5, 4]), 1.0), tensor(1, json!([3, 3, 2]), 4.0), tensor(2, json!([3, 3, 2]), 12.0), tensor(3, json!([3, 3, 2]), 12.0),
        tensor(4, json!([3, 3, 2]), 24.0), tensor(5, json!([3, 3, 2]), 400.0), tensor(6, json!([3]), bound)],
        "steps": [
        {"kind": "linear", "name": "conv", "in": 0, "out": 1, "weights": "a", "bias": "b", "geometry": conv([2, 5, 4], [3, 3, 2], 3, 2, 1)},
        {"kind": "polynomial", "name": "act1", "in": 1, "out": 2, "coefficients": [0.24, 0.5, 0.3], "range": 4.0},
        {"kind": "linear", "name": "mix", "in": 2, "out": 3, "weights": "c", "bias": "d", "geometry": conv([3, 3, 2], [3, 3, 2], 1, 1, 0)},
        {"kind": "add", "name": "sum", "in": [3, 2], "out": 4},
        {"kind": "polynomial", "name": "act2", "in": 4, "out": 5, "coefficients": [0.1, 0.4, 0.1, -0.02], "range": 24.0},
        {"kind": "linear", "name": "dense", "in": 5, "out": 6, "weights": "e", "bias": "f", "geometry": {"type": "dense", "inputs": 18, "outputs": 3}},
    ]});
    let scaled = |count: usize, seed: usize, by: f64| numbers(count, seed).iter().map(|v| v * by).collect();
    let arrays = BTreeMap::from([
        ("a".to_owned(), scaled(54, 1, 0.3)),
        ("b".to_owned(), scaled(3, 2, 0.2)),
        ("c".to_owned(), scaled(9, 3, 0.5)),
        ("d".to_owned(), scaled(3, 4, 0.2)),
        ("e".to_owned(), scaled(54, 5, 0.3)),
        // One bias an output element is allowed as well.
        ("f".to_owned(), scaled(3, 6, 0.2)),
    ]);
    (serde_json::from_value(spec).unwrap(), arrays)
}

fn net(hide: bool) -> Net {
    bounded(hide, 900.0)
}

/// With another bound of the results.
pub(super) fn bounded(hide: bool, bound: f64) -> Net {
    let (spec, arrays) = network(bound);
    let options = PackedOptions {
        security: 0,
        ring_degree: 256,
        hide_weights: hide,
        precision_bits: 8,
        ..PackedOptions::default()
    };
    planned(&spec, &arrays, &options)
}

/// The plan of a network.
pub(super) fn planned(spec: &GraphSpec, arrays: &BTreeMap<String, Vec<f64>>, options: &PackedOptions) -> Net {
    let network = spec.check(arrays).unwrap();
    let circuit = Circuit::compile(&network, options).unwrap();
    let ends = [&network.tensors[network.input], &network.tensors[network.output]];
    let (sent, answered, bound) = (&ends[0].shape, &ends[1].shape, ends[1].bound);
    let (p, i) = (circuit.params(), circuit.interface().spec());
    let data: Vec<u64> = (0..p.max_level().get()).map(|i| p.data_prime(i)).collect();
    let mut files: BTreeMap<String, File> =
        arrays.iter().map(|(k, v)| (k.clone(), ("F64", vec![v.len()], words(v)))).collect();
    let mut uploads = Vec::new();
    for (number, u) in i.uploads.iter().enumerate() {
        let slots: Vec<u8> =
            u.slots.iter().flatten().flat_map(|e| (e.cast_signed() as i16).to_le_bytes()).collect();
        let name = format!("input{number}");
        files.insert(name.clone(), ("I16", vec![u.slots.len(), p.slots()], slots));
        uploads.push(json!({"level": u.level, "slots": name}));
    }
    let places = i.places.iter().flat_map(|p| [i64::from(p.0), i64::from(p.1)]);
    let places: Vec<u8> = places.flat_map(i64::to_le_bytes).collect();
    files.insert("places".into(), ("I64", vec![ends[1].len(), 2], places));
    let noise = circuit.outcomes().last().unwrap().sd.log2().ceil() as u32;
    let mut plan = json!({
        "version": 2, "name": "small", "producer": "test", "trust": "non-interactive", "engine": "packed",
        "params": {"ring_degree": p.ring_degree(), "security_bits": 0, "insecure": true, "non_interactive": {"data_primes": data, "special_primes": p.special_primes(),
                   "digits": p.spec().digits, "key_level": p.key_level().get(), "packing": "real"}},
        "inputs": [{"name": "image", "tensor": 0}], "outputs": [{"name": "y", "tensor": 4}],
        "tensors": [
            {"id": 0, "name": "image", "shape": sent, "kind": "real"},
            {"id": 1, "name": "image.c", "shape": sent, "kind": "cipher", "bound": 1.0},
            {"id": 2, "name": "y.c", "shape": answered, "kind": "cipher", "bound": bound, "noise_bits": noise},
            {"id": 3, "name": "opened", "shape": answered, "kind": "real"},
            {"id": 4, "name": "y", "shape": answered, "kind": "real"},
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
    if let Some(slots) = i.bootstrap {
        plan["stages"][1]["bootstrap"] = slots.into();
    }
    if let Some(bits) = circuit.flood_bits() {
        plan["params"]["non_interactive"]["hide_weights"] = json!({"flood_bits": bits});
    }
    Net { plan, files, network }
}

fn open() -> &'static Net {
    static NET: OnceLock<Net> = OnceLock::new();
    NET.get_or_init(|| net(false))
}

pub(super) fn options() -> PlanOptions {
    PlanOptions { allow_insecure: true, ..PlanOptions::default() }
}

pub(super) fn read(plan: &Value, files: &BTreeMap<String, File>) -> Result<NonInteractivePlan, PlanError> {
    let views = files.iter().map(|(n, (dtype, shape, data))| (n.clone(), TensorBytes { dtype, shape, data }));
    let file = NonInteractivePlan::file(&plan.to_string(), &views.collect())?;
    NonInteractivePlan::from_bytes(&file, &options())
}

impl Net {
    pub(super) fn read(&self) -> NonInteractivePlan {
        read(&self.plan, &self.files).unwrap()
    }

    fn worst(&self, outputs: &[crate::Output], data: &[f64]) -> f64 {
        let exact = data.chunks(INPUTS).flat_map(|x| self.network.evaluate(x).unwrap().pop().unwrap());
        let pairs = exact.zip(&outputs[0].data);
        pairs.map(|(e, g)| (2.0 * e + 1.0 - g).abs()).fold(0.0, f64::max)
    }
}

fn input(data: &[f64]) -> Input<'_> {
    Input { name: "image", shape: vec![data.len() / INPUTS, 2, 5, 4], data: InputData::F64(data) }
}

pub(super) fn client() -> NonInteractiveOptions {
    NonInteractiveOptions { plan: options(), compute: Compute::default(), keys: None }
}

#[test]
fn any_number_of_images_one_after_the_other_with_exact_bytes_and_counts() {
    let n = open();
    let plan = n.read();
    let (traffic, circuit) = (predict(&plan), plan.packed().unwrap().circuit().unwrap().clone());
    // Every rotation key travels in a frame of its own.
    // Header, owner, checksum and count of each key's bytes, and the frame's.
    let header = (hushnet_rlwe::ckks::HEADER_BYTES + 16 + 32 + 4 + crate::wire::HEADER) as u64;
    let frames = circuit.rotations().len() as u64;
    assert!(
        traffic.keys >= circuit.key_bytes() && traffic.keys <= circuit.key_bytes() + (frames + 2) * header
    );
    for count in [1, 3] {
        let data = numbers(count * INPUTS, count);
        let model = NonInteractiveModel::new(&plan, Compute::default()).unwrap();
        let (outputs, trace) =
            run_pipe(&model, &[input(&data)], client(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(outputs[0].shape, [count, 3]);
        let (bound, typical) = circuit.predicted_error();
        let error = n.worst(&outputs, &data);
        assert!(error > 0.0 && error <= 2.0 * typical.min(bound), "{error}");
        assert_eq!(trace.setup_bytes_up, traffic.keys);
        assert_eq!(trace.bytes_down, count as u64 * traffic.down);
        let blocks = trace.bytes_up - count as u64 * traffic.up;
        assert!(blocks <= count as u64 * 24, "{blocks}");
        assert_eq!(trace.counted, Some(plan.counted().times(count as u64)));
        assert!(plan.counted().rotations > 0 && plan.counted().plain_products > 0);
        assert_eq!((trace.blocks, trace.rounds), (count, count as u64));
        // The stages have the names of the server's plan.
        let step = |name: &str| trace.stages.iter().any(|s| s.name == name && s.seconds.is_some());
        assert!(["conv", "act1", "act2", "dense", "network"].iter().all(|s| step(s)));
        let (again, trace) =
            run_loopback(model, &[input(&data)], client(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(n.worst(&again, &data) <= 2.0 * typical.min(bound));
        assert_eq!(trace.counted, Some(plan.counted().times(count as u64)));
    }
    let mut data = numbers(INPUTS, 1);
    data[7] = 1.5;
    let model = NonInteractiveModel::new(&plan, Compute::default()).unwrap();
    let refused = run_pipe(&model, &[input(&data)], client(), &mut |_| ControlFlow::Continue(()));
    let Err(Error::Range(e)) = refused else { panic!("an input of 1.5 was accepted") };
    assert_eq!((e.image, e.element), (0, 7));
}

#[test]
fn hidden_results_carry_the_flood() {
    let n = net(true);
    let plan = n.read();
    let bits = plan.flood_bits().unwrap();
    let model = NonInteractiveModel::new(&plan, Compute::default()).unwrap();
    let data = numbers(INPUTS * 8, 5);
    let mut squares = Vec::new();
    for _ in 0..4 {
        let (outputs, _) =
            run_pipe(&model, &[input(&data)], client(), &mut |_| ControlFlow::Continue(())).unwrap();
        let exact = data.chunks(INPUTS).flat_map(|x| n.network.evaluate(x).unwrap().pop().unwrap());
        let scale = plan.downloads()[0].scale;
        squares
            .extend(exact.zip(&outputs[0].data).map(|(e, g)| ((g - 1.0) / 2.0 - e) * scale).map(|e| e * e));
    }
    let rms = (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
    let expected = f64::from(bits).exp2() * (256f64 / 24.0).sqrt();
    assert!((rms / expected - 1.0).abs() < 0.3, "{rms:e} instead of {expected:e}");
    // A shorter flood is refused, and so is a plan that floods with a circuit that was not made for it.
    let mut short = n.plan.clone();
    short["params"]["non_interactive"]["hide_weights"]["flood_bits"] = (bits - 1).into();
    let text = read(&short, &n.files).unwrap_err().to_string();
    assert!(text.contains("does not hide"), "{text}");
    let mut other = n.plan.clone();
    other["params"]["non_interactive"].as_object_mut().unwrap().remove("hide_weights");
    assert!(read(&other, &n.files).unwrap_err().to_string().contains("differ"));
}

#[test]
fn what_clients_receive_does_not_tell_weights_nor_which_are_zero() {
    let n = net(true);
    let plan = n.read();
    let public = NonInteractivePlan::from_bytes(&plan.public_part().unwrap(), &options()).unwrap();
    assert!(plan.has_weights() && !public.has_weights());
    assert_eq!((predict(&plan), unnamed(plan.uploads())), (predict(&public), unnamed(public.uploads())));
    let text = public.json();
    assert!(["\"network\":{", "choices", "options", "coefficients", "conv"]
        .iter()
        .all(|w| !text.contains(w)));
    assert!(matches!(NonInteractiveModel::new(&public, Compute::default()), Err(Error::Plan(_))));
    // Zero weights change nothing that the client is told, but scales where they change norms.
    let (spec, mut arrays) = network(900.0);
    let options = PackedOptions {
        security: 0,
        ring_degree: 256,
        hide_weights: true,
        precision_bits: 8,
        ..PackedOptions::default()
    };
    let before = Circuit::compile(&spec.check(&arrays).unwrap(), &options).unwrap();
    for values in ["a", "c", "e"].map(|k| arrays[k].clone()).iter_mut().zip(["a", "c", "e"]) {
        values.0.iter_mut().skip(1).step_by(3).for_each(|w| *w = 0.0);
        arrays.insert(values.1.into(), values.0.clone());
    }
    let after = Circuit::compile(&spec.check(&arrays).unwrap(), &options).unwrap();
    let (a, b) = (before.interface().spec(), after.interface().spec());
    assert_eq!((&a.uploads, &a.rotations, &a.places), (&b.uploads, &b.rotations, &b.places));
    assert_eq!(before.counts(), after.counts());
}

#[test]
fn packed_plans_that_are_wrong_are_refused_by_name() {
    let n = open();
    let refused = |change: &dyn Fn(&mut Value, &mut BTreeMap<String, File>), what: &str| {
        let (mut plan, mut files) = (n.plan.clone(), n.files.clone());
        change(&mut plan, &mut files);
        let error = read(&plan, &files).map(|_| ()).expect_err(what).to_string();
        assert!(error.contains(what), "'{error}' does not say '{what}'");
    };
    let stage = |p: &mut Value, key: &str, value: Value| p["stages"][1][key] = value;
    refused(&|p, _| p["engine"] = "batch".into(), "engine");
    refused(&|p, _| p["params"]["non_interactive"]["key_level"] = 99.into(), "level");
    refused(&|p, _| p["params"]["non_interactive"]["data_primes"][0] = 65539.into(), "65539");
    refused(&|p, _| p["tensors"][1]["level"] = 3.into(), "a cipher tensor in engine Packed has no 'level'");
    refused(&|p, _| p["tensors"][2]["noise_bits"] = 1.into(), "noise_bits is 1");
    refused(&|p, _| p["tensors"][1]["bound"] = 0.5.into(), "not those of its network");
    refused(&|p, _| stage(p, "scale", 1024.0.into()), "not those of its network");
    refused(&|p, _| stage(p, "answer_level", 9999.into()), "level");
    refused(&|p, _| stage(p, "answer", 0.into()), "answer of 0");
    refused(&|p, _| stage(p, "rotations", json!([[1, 1], [1, 1]])), "increasing");
    refused(&|p, _| stage(p, "rotations", json!([[128, 1]])), "rotations are");
    refused(&|p, _| stage(p, "rotations", json!([])), "not those of its network");
    refused(&|p, _| stage(p, "uploads", json!([])), "0 ciphertexts");
    refused(&|p, _| stage(p, "choices", Value::Null), "only some");
    refused(&|p, _| p["stages"][1]["choices"]["width"] = 9.into(), "choices");
    refused(&|p, _| p["stages"][1]["choices"]["scale"] = 0.5.into(), "choices");
    refused(
        &|p, _| p["stages"][1]["network"]["steps"][1]["coefficients"] = json!([0, 0, 0, 1, 1, 1, 1]),
        "primes",
    );
    refused(&|_, f| drop(f.remove("a")), "not in the file");
    refused(&|_, f| drop(f.remove("places")), "not in the file");
    refused(&|_, f| drop(f.insert("more".into(), ("I8", vec![1], vec![0]))), "no stage uses it");
    refused(&|_, f| drop(f.insert("places".into(), ("I64", vec![1, 2], vec![0; 16]))), "places for 1");
    refused(&|_, f| f.get_mut("places").unwrap().2[8] = 0xff, "outside of the answer");
    refused(&|_, f| f.get_mut("input0").unwrap().2[1] = 0x7f, "does not exist");
    refused(&|_, f| f.get_mut("input0").unwrap().1 = vec![10, 64], "rows of 64");
}

/// What a peer makes of an honest client's keys and request.
type Change<'a> = dyn Fn(&mut Vec<Vec<u8>>, &mut Vec<u8>) + 'a;

/// Gives changed bytes of a key their checksum.
pub(super) fn sealed(key: &mut [u8]) {
    let end = key.len() - 32;
    let sum = <sha2::Sha256 as sha2::Digest>::digest(&key[..end]);
    key[end..].copy_from_slice(&sum);
}

#[test]
fn a_server_refuses_keys_and_requests_that_do_not_follow_from_its_plan() {
    let plan = open().read();
    let keys = messages::keys(plan.params(), &KeysNeeded::of(&plan));
    let mut prg = hushnet_ring::Prg::from_seed([1; 16]);
    let generator = hushnet_rlwe::ckks::client::KeyGenerator::new(plan.params());
    let secret = generator.secret_key(&mut prg).unwrap();
    let mut made = Vec::new();
    for key in &keys {
        made.push(match key.kind {
            messages::KeyKind::Relin => generator.relin_key(&secret, &mut prg).unwrap().to_bytes().unwrap(),
            messages::KeyKind::Public => generator.public_key(&secret, &mut prg).unwrap().to_bytes().unwrap(),
            messages::KeyKind::Galois(g, level) => {
                generator.galois_keys_at(&secret, &[(g, level)], &mut prg).unwrap().to_bytes().unwrap()
            }
            messages::KeyKind::Encapsulation => unreachable!(),
        });
    }
    assert!(keys.iter().zip(&made).all(|(k, b)| k.bytes == b.len()) && keys.len() > 2);
    let frame = |kind, tile: u32, bytes: &[u8]| {
        let mut f = FrameBuilder::reuse(Vec::new(), kind, 0, tile, bytes.len()).unwrap();
        f.payload_mut().copy_from_slice(bytes);
        f.finish()
    };
    let session = |change: &Change<'_>| {
        let (mut sent, link) = (made.clone(), &plan.uploads()[0]);
        let values = vec![0.5; INPUTS];
        let engine = super::engine::client::of(&plan);
        let mut request = Vec::new();
        for c in engine
            .encrypt(
                &secret,
                link,
                0..link.ciphertexts,
                (&values, 1),
                &mut hushnet_ring::Prg::from_seed([2; 16]),
            )
            .unwrap()
        {
            request.extend(c.to_bytes().unwrap());
        }
        change(&mut sent, &mut request);
        let mut frames: Vec<Frame> =
            keys.iter().zip(&sent).map(|(k, b)| frame(Kind::Setup, k.tile, b)).collect();
        let block = crate::wire::Block { index: 0, images: 1 };
        frames.push(FrameBuilder::message(Kind::Block, &block).unwrap());
        frames.push(frame(Kind::Request, 0, &request));
        frames
    };
    let refused = |frames, what: &str| {
        let error = answers(&plan, frames);
        let Error::Protocol(e) = &error else { panic!("{what}: {error}") };
        assert!(e.to_string().contains(what), "'{e}' does not say '{what}'");
    };
    let last = keys.len() - 1;
    refused(session(&|k, _| k[last].pop().map(|_| ()).unwrap()), "the plan says");
    refused(session(&|k, _| k[0].truncate(100)), "the plan says");
    refused(session(&|k, _| k[last][0] ^= 1), "magic");
    refused(session(&|k, _| k[last][8] ^= 1), "other parameters");
    refused(session(&|k, _| k[last][52] ^= 1), "checksum");
    refused(session(&|k, _| k[0][1000] ^= 1), "checksum");
    // The exponent (after the header, the owner and the count): a key of another rotation.
    let exponent = |key: &mut Vec<u8>, bit| {
        key[68] ^= bit;
        sealed(key);
    };
    refused(session(&|k, _| exponent(&mut k[last], 2)), "was due");
    refused(session(&|k, _| exponent(&mut k[last], 1)), "exponents");
    let owner = |key: &mut Vec<u8>| {
        key[hushnet_rlwe::ckks::HEADER_BYTES] ^= 1;
        sealed(key);
    };
    refused(session(&|k, _| owner(&mut k[last])), "another secret");
    refused(session(&|_, r| r.truncate(r.len() - 1)), "the plan says");
    refused(session(&|_, r| r[48] = 1), "length");
    refused(session(&|_, r| r[48 + 4 + 6] ^= 1), "scale");
    // A block of two images is none of this engine's.
    let mut two = session(&|_, _| {});
    let at = two.len() - 2;
    two[at] = FrameBuilder::message(Kind::Block, &crate::wire::Block { index: 0, images: 2 }).unwrap();
    refused(two, "2 images");
    // A true request is answered; then the peer is gone.
    assert!(matches!(answers(&plan, session(&|_, _| {})), Error::Transport(_)));
}
