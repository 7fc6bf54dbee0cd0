//! Whole sessions on a small network, plans that are wrong, peers that misbehave.

use super::*;
use crate::channel::{pipe, Channel};
use crate::plan::TensorBytes;
use crate::wire::{Frame, FrameBuilder, Hello, Kind, PROTOCOL};
use crate::{ClientSession, Compute, Error, Input, InputData, OnProgress, Output};
use crate::{PlanError, PlanOptions, ProtocolError};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// What the loopback runs of this trust model give: outputs and the client's trace.
type Answer = Result<(Vec<Output>, NonInteractiveTrace), Error>;

pub(super) fn run_pipe(
    model: &NonInteractiveModel,
    inputs: &[Input<'_>],
    options: NonInteractiveOptions,
    progress: &mut OnProgress<'_>,
) -> Answer {
    let open = |channel| NonInteractiveClient::open(channel, options);
    crate::local::run_pipe(model, open, inputs, progress).map(|(outputs, trace, _)| (outputs, trace))
}

pub(super) fn run_loopback(
    model: NonInteractiveModel,
    inputs: &[Input<'_>],
    options: NonInteractiveOptions,
    progress: &mut OnProgress<'_>,
) -> Answer {
    let open = |channel| NonInteractiveClient::open(channel, options);
    let served = std::sync::Arc::new(model);
    crate::local::run_loopback(served, open, inputs, progress, std::sync::Arc::default())
        .map(|(outputs, trace, _)| (outputs, trace))
}

const N: usize = 64;
const SCALE: f64 = (1u64 << 30) as f64;

fn prime_near(bits: u32, rank: usize) -> u64 {
    let step = 2 * N as u64;
    let first = (1u64 << bits) / step * step + 1;
    (0..).map(|i| first + i * step).filter(|p| hushnet_ring::prime::is_prime(*p)).nth(rank).unwrap()
}

pub(super) struct Net {
    pub plan: Value,
    pub files: BTreeMap<String, (&'static str, Vec<usize>, Vec<u8>)>,
}

fn reals(v: &[f64]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

const CONV: [i8; 8] = [3, -2, 1, 4, -5, 2, 2, 1];
const DENSE: [i8; 16] = [1, -3, 2, 5, -4, 2, 1, 3, 2, 2, -1, -2, 4, 1, 3, -1];
const CONV_BIAS: [f64; 2] = [0.125, -0.5];
const DENSE_BIAS: [f64; 2] = [1.0, -0.25];

/// 4x4 image, 2x2 convolution of stride 2 to two maps, square, dense to two values, plus twice the first two squares.
pub(super) fn net(hide: Option<u32>) -> Net {
    let wide = if hide.is_some() { 48 } else { 40 };
    let primes: Vec<u64> = (0..if hide.is_some() { 4 } else { 2 }).map(|i| prime_near(wide, i)).collect();
    let special = prime_near(49, 3);
    let scale = if hide.is_some() { 2f64.powi(40) } else { SCALE };
    let (top, q) = (primes.len(), primes[primes.len() - 1] as f64);
    let square = (scale * 8.0) * (scale * 8.0);
    let down = square / q;
    let low = top - 1;
    let (parts, noise) = (2, 200);
    let cipher = |id: u32, name: &str, shape: Value, level: usize, parts: usize, scale: f64, bound: f64| json!({"id": id, "name": name, "shape": shape, "kind": "cipher", "level": level, "parts": parts, "scale": scale, "bound": bound});
    let mut out = cipher(6, "sum.c", json!([2]), low, parts, down * 8.0, 40.0);
    out["noise_bits"] = noise.into();
    let plan = json!({
        "version": 2, "name": "small", "producer": "test", "trust": "non-interactive", "engine": "batch",
        "params": {"ring_degree": N, "security_bits": 0, "insecure": true, "non_interactive": {"data_primes": primes, "special_primes": [special],
                   "digits": top, "packing": "real"}},
        "inputs": [{"name": "image", "tensor": 0}], "outputs": [{"name": "y", "tensor": 8}],
        "tensors": [
            {"id": 0, "name": "image", "shape": [1, 4, 4], "kind": "real"},
            cipher(1, "image.c", json!([1, 4, 4]), top, 2, scale, 1.0),
            cipher(2, "conv.c", json!([2, 2, 2]), top, 2, scale * 8.0, 3.0),
            cipher(3, "square.c", json!([2, 2, 2]), top, 3, square, 9.0),
            cipher(4, "down.c", json!([2, 2, 2]), low, 2, down, 9.0),
            cipher(5, "dense.c", json!([2]), low, 2, down * 8.0, 30.0),
            out,
            {"id": 7, "name": "opened", "shape": [2], "kind": "real"},
            {"id": 8, "name": "y", "shape": [2], "kind": "real"},
        ],
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
            {"kind": "client", "name": "decode", "ops": [{"op": "affine", "in": [7], "out": 8, "mul": 2.0, "add": 1.0}]},
        ],
        "predicted": {}, "notes": [],
    });
    let mut plan = plan;
    if let Some(bits) = hide {
        plan["params"]["non_interactive"]["hide_weights"] = json!({"flood_bits": bits});
    }
    let bytes = |w: &[i8]| w.iter().map(|v| v.cast_unsigned()).collect::<Vec<u8>>();
    let files = BTreeMap::from([
        ("conv.w".to_owned(), ("I8", vec![2, 1, 2, 2], bytes(&CONV))),
        ("conv.b".to_owned(), ("F64", vec![2], reals(&CONV_BIAS))),
        ("dense.w".to_owned(), ("I8", vec![2, 8], bytes(&DENSE))),
        ("dense.b".to_owned(), ("F64", vec![2], reals(&DENSE_BIAS))),
        ("sum.k".to_owned(), ("I64", vec![2], [2i64, -1].iter().flat_map(|k| k.to_le_bytes()).collect())),
        ("sum.c".to_owned(), ("F64", vec![1], reals(&[0.75]))),
    ]);
    Net { plan, files }
}

fn options() -> PlanOptions {
    PlanOptions { allow_insecure: true, ..PlanOptions::default() }
}

impl Net {
    pub(super) fn read(&self) -> Result<NonInteractivePlan, PlanError> {
        let views = self
            .files
            .iter()
            .map(|(n, (dtype, shape, data))| (n.clone(), TensorBytes { dtype, shape, data }))
            .collect();
        let file = NonInteractivePlan::file(&self.plan.to_string(), &views)?;
        NonInteractivePlan::from_bytes(&file, &options())
    }
}

pub(super) fn plain(image: &[f64]) -> [f64; 2] {
    let mut squares = [0.0; 8];
    for o in 0..2 {
        for p in 0..4 {
            let (y, x) = (p / 2 * 2, p % 2 * 2);
            let taps =
                [image[y * 4 + x], image[y * 4 + x + 1], image[(y + 1) * 4 + x], image[(y + 1) * 4 + x + 1]];
            let w = &CONV[o * 4..o * 4 + 4];
            let sum: f64 =
                taps.iter().zip(w).map(|(t, w)| t * f64::from(*w) / 8.0).sum::<f64>() + CONV_BIAS[o];
            squares[o * 4 + p] = sum * sum;
        }
    }
    std::array::from_fn(|o| {
        let dense: f64 =
            DENSE[o * 8..o * 8 + 8].iter().zip(&squares).map(|(w, x)| f64::from(*w) / 8.0 * x).sum();
        2.0 * (dense + DENSE_BIAS[o] + 0.75) + 1.0
    })
}

pub(super) fn images(count: usize) -> Vec<f64> {
    (0..count * 16).map(|i| ((i * 7919 + 13) % 1000) as f64 / 500.0 - 1.0).collect()
}

fn input(data: &[f64]) -> Input<'_> {
    Input { name: "image", shape: vec![data.len() / 16, 1, 4, 4], data: InputData::F64(data) }
}

fn worst(outputs: &[crate::Output], data: &[f64]) -> f64 {
    let pairs = data.chunks(16).map(plain).zip(outputs[0].data.chunks(2));
    pairs.flat_map(|(e, g)| [(e[0] - g[0]).abs(), (e[1] - g[1]).abs()]).fold(0.0, f64::max)
}

pub(super) fn client() -> NonInteractiveOptions {
    NonInteractiveOptions { plan: options(), compute: Compute::default(), keys: None }
}

#[test]
fn whole_and_partial_batches_equal_numbers_over_pipe_and_socket_and_all_counts_are_exact() {
    let plan = net(None).read().unwrap();
    let traffic = predict(&plan);
    for count in [1, 31, 32, 70] {
        let data = images(count);
        let blocks = count.div_ceil(32) as u64;
        let model = NonInteractiveModel::new(&plan, Compute::default()).unwrap();
        let (outputs, trace) =
            run_pipe(&model, &[input(&data)], client(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(outputs[0].shape, [count, 2]);
        let error = worst(&outputs, &data);
        let predicted =
            2.0 * 7.631 * plan.circuit().unwrap().tracks().unwrap()[5].sd / plan.downloads()[0].scale;
        assert!(error < predicted && error > predicted * 1e-4, "{count}: {error} of {predicted}");
        // A Block frame each, and the ciphertexts.
        assert_eq!(trace.bytes_down, blocks * traffic.down);
        assert!(trace.bytes_up - blocks * traffic.up <= blocks * 24);
        assert_eq!(trace.setup_bytes_up, traffic.keys);
        assert_eq!(trace.counted, Some(plan.counted().times(blocks)));
        assert!(plan.counted().word_products > 0);
        assert_eq!((trace.blocks as u64, trace.rounds), (blocks, blocks));
        assert!(trace.ranges[0].largest <= trace.ranges[0].bound);
        let (again, _) =
            run_loopback(model, &[input(&data)], client(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(worst(&again, &data) < predicted);
    }
}

#[test]
fn clients_name_inputs_and_results_outside_of_what_was_planned() {
    let run = |net: &Net, data: &[f64]| {
        let model = NonInteractiveModel::new(&net.read().unwrap(), Compute::default()).unwrap();
        run_pipe(&model, &[input(data)], client(), &mut |_| ControlFlow::Continue(()))
    };
    let mut data = images(3);
    data[16 + 5] = 1.5;
    let Err(Error::Range(e)) = run(&net(None), &data) else { panic!("an input of 1.5 was accepted") };
    assert_eq!((e.image, e.element, e.value, e.bound), (1, 5, 1.5, Some(1.0)));
    // A server that planned for smaller results: the client sees one beyond.
    let mut tight = net(None);
    tight.plan["tensors"][6]["bound"] = 0.01.into();
    tight.plan["tensors"][6]["noise_bits"] = 20.into();
    assert!(matches!(run(&tight, &images(4)), Err(Error::Range(_))));
    let mut nan = images(1);
    nan[3] = f64::NAN;
    assert!(matches!(run(&net(None), &nan), Err(Error::Input(_))));
}

#[test]
fn hidden_results_carry_the_flood_and_nothing_of_one_run_returns_in_the_next() {
    let open = net(Some(30)).read();
    let Err(PlanError::Linear { detail, .. }) = open else { panic!("a short flood was accepted") };
    let needed: f64 = detail.rsplit(' ').next().unwrap().parse().unwrap();
    let bits = needed.ceil() as u32;
    let plan = net(Some(bits)).read().unwrap();
    assert_eq!(plan.flood_bits(), Some(bits));
    let model = NonInteractiveModel::new(&plan, Compute::default()).unwrap();
    let data = images(32);
    let errors: Vec<Vec<f64>> = (0..40)
        .map(|_| {
            let (outputs, _) =
                run_pipe(&model, &[input(&data)], client(), &mut |_| ControlFlow::Continue(())).unwrap();
            let expected = data.chunks(16).flat_map(plain);
            outputs[0]
                .data
                .iter()
                .zip(expected)
                .map(|(g, e)| (g - e) / 2.0 * plan.downloads()[0].scale)
                .collect()
        })
        .collect();
    // Real parts of slots: variance 2^(2b)/12 a coefficient, N/2 of them.
    let expected = f64::from(bits).exp2() * (N as f64 / 24.0).sqrt();
    let all = errors.concat();
    let rms = (all.iter().map(|e| e * e).sum::<f64>() / all.len() as f64).sqrt();
    assert!((rms / expected - 1.0).abs() < 0.06, "{rms:e} instead of {expected:e}");
    // Fresh every time: errors of one slot in two runs are not related.
    let correlation: f64 = errors
        .windows(2)
        .map(|w| w[0].iter().zip(&w[1]).map(|(a, b)| a * b).sum::<f64>() / w[0].len() as f64)
        .sum::<f64>()
        / 39.0
        / (expected * expected);
    assert!(correlation.abs() < 0.1, "{correlation}");
}

/// Without the names of stages, which a public part has neutral.
pub(super) fn unnamed(links: &[super::plan::Link]) -> Vec<super::plan::Link> {
    links.iter().map(|l| super::plan::Link { stage: String::new(), ..l.clone() }).collect()
}

#[test]
fn the_public_part_has_no_weights_and_no_bounds_of_what_lies_between() {
    let plan = net(None).read().unwrap();
    let public = plan.public_part().unwrap();
    let read = NonInteractivePlan::from_bytes(&public, &options()).unwrap();
    assert!(plan.has_weights() && !read.has_weights());
    let json: Value = serde_json::from_str(read.json()).unwrap();
    let ends: Vec<&Value> = json["stages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|s| match s["kind"].as_str() {
            Some("encrypt") => Some(&s["out"]),
            Some("decrypt") => Some(&s["in"]),
            _ => None,
        })
        .collect();
    for t in json["tensors"].as_array().unwrap() {
        assert_eq!(t.get("bound").is_some(), ends.contains(&&t["id"]), "{t}");
    }
    let text = read.json();
    assert!(["conv.w", "dense.b", "sum.k", "factors", "sum.c"].iter().all(|w| !text.contains(w)));
    assert_eq!((predict(&plan), unnamed(plan.uploads())), (predict(&read), unnamed(read.uploads())));
    let model = NonInteractiveModel::new(&read, Compute::default());
    assert!(matches!(model, Err(Error::Plan(PlanError::Structure(_)))));
}

#[test]
fn plans_that_are_wrong_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Net), what: &str| {
        let mut n = net(None);
        change(&mut n);
        let error = n.read().map(|_| ()).expect_err(what).to_string();
        assert!(error.contains(what), "'{error}' does not say '{what}'");
    };
    refused(&|n| n.plan["trust"] = "two-party".into(), "a two-party plan in a non-interactive run");
    refused(&|n| n.plan["engine"] = "packed".into(), "engine");
    refused(&|n| n.plan["version"] = 1.into(), "an older version");
    refused(&|n| n.plan["version"] = 3.into(), "a newer version");
    refused(&|n| n.plan["extra"] = 1.into(), "extra");
    refused(&|n| n.plan["params"]["insecure"] = false.into(), "128-bit");
    refused(&|n| n.plan["params"]["non_interactive"]["data_primes"][0] = 65539.into(), "65539");
    refused(&|n| n.plan["params"]["non_interactive"]["digits"] = 9.into(), "digits");
    refused(&|n| n.plan["params"]["non_interactive"]["packing"] = "complex".into(), "one value a slot");
    // Its primes are 1 mod 2N only.
    refused(
        &|n| n.plan["params"]["non_interactive"]["packing"] = "conjugate-invariant".into(),
        "not an unused prime",
    );
    refused(&|n| n.plan["tensors"][2]["scale"] = 1.0.into(), "scale");
    refused(&|n| n.plan["tensors"][3]["scale"] = 1e10.into(), "scale");
    refused(&|n| n.plan["tensors"][4]["level"] = 2.into(), "scale");
    refused(&|n| n.plan["tensors"][4]["level"] = 7.into(), "level");
    refused(&|n| n.plan["tensors"][3]["parts"] = 2.into(), "parts");
    refused(&|n| n.plan["tensors"][5]["bound"] = 1e9.into(), "do not fit");
    refused(&|n| n.plan["tensors"][1]["bound"] = Value::Null, "no bound");
    refused(&|n| n.plan["tensors"][0]["level"] = 1.into(), "a real tensor in engine Batch has no 'level'");
    refused(&|n| n.plan["tensors"][6]["noise_bits"] = 1.into(), "noise_bits is 1");
    refused(&|n| n.plan["tensors"][6]["noise_bits"] = Value::Null, "noise_bits");
    refused(&|n| n.plan["tensors"][7]["shape"] = json!([3]), "elements");
    refused(&|n| n.plan["stages"][2]["in"] = json!([2, 4]), "before any stage");
    refused(&|n| n.plan["stages"][4]["in"] = 99.into(), "99");
    refused(&|n| n.plan["stages"][4]["in"] = 0.into(), "must be cipher");
    refused(&|n| n.plan["stages"][1]["geometry"]["stride"] = json!([1, 1]), "output");
    refused(&|n| n.plan["stages"][1]["bias"] = Value::Null, "only one");
    refused(&|n| n.plan["stages"][1]["name"] = "dense".into(), "two stages");
    refused(&|n| n.plan["stages"][7]["ops"][0]["in"] = json!([6]), "the client cannot see");
    refused(&|n| drop(n.files.remove("sum.k")), "not in the file");
    refused(&|n| drop(n.files.insert("more".into(), ("I8", vec![1], vec![0]))), "no stage uses it");
    refused(&|n| drop(n.files.insert("conv.b".into(), ("F64", vec![3], reals(&[0.0; 3])))), "biases");
    refused(&|n| drop(n.files.insert("conv.b".into(), ("F64", vec![2], reals(&[f64::NAN; 2])))), "finite");
    refused(
        &|n| drop(n.files.insert("conv.w".into(), ("F64", vec![2, 1, 2, 2], reals(&[0.0; 8])))),
        "I8 or I16",
    );
    let strict = PlanOptions::default();
    let n = net(None);
    let views = n
        .files
        .iter()
        .map(|(k, (d, s, b))| (k.clone(), TensorBytes { dtype: d, shape: s, data: b }))
        .collect();
    let file = NonInteractivePlan::file(&n.plan.to_string(), &views).unwrap();
    assert!(matches!(NonInteractivePlan::from_bytes(&file, &strict), Err(PlanError::Insecure(_))));
    for at in (0..file.len()).step_by(97) {
        let mut broken = file.clone();
        broken[at] ^= 0x20;
        assert!(NonInteractivePlan::from_bytes(&broken, &options()).is_err(), "byte {at}");
        assert!(NonInteractivePlan::from_bytes(&file[..at], &options()).is_err());
    }
}

/// What a server of a plan says to a peer that sends `frames` after the greeting.
pub(super) fn answers(plan: &NonInteractivePlan, frames: Vec<Frame>) -> Error {
    let model = NonInteractiveModel::new(plan, Compute::default()).unwrap();
    let (mut near, mut far) = pipe();
    std::thread::scope(|scope| {
        let served = scope.spawn(move || model.serve(&mut far, &mut |_| {}).map(|_| ()));
        let hello = Hello { protocol: PROTOCOL, ..Hello::default() };
        near.send(FrameBuilder::message(Kind::Hello, &hello).unwrap()).unwrap();
        near.recv().unwrap().expect(Kind::Plan, 0, 0).unwrap();
        for frame in frames {
            // The server may have hung up already.
            let _ = near.send(frame);
        }
        drop(near);
        served.join().unwrap().unwrap_err()
    })
}

#[test]
fn a_server_refuses_what_does_not_follow_from_its_plan() {
    let plan = net(None).read().unwrap();
    let key = messages::keys(plan.params(), &KeysNeeded::of(&plan))[0].bytes;
    let frame = |kind, stage, tile, bytes: usize| {
        let mut f = FrameBuilder::reuse(Vec::new(), kind, stage, tile, bytes).unwrap();
        f.payload_mut().fill(7);
        f.finish()
    };
    let refused = |frames, what: &str| {
        let error = answers(&plan, frames);
        let Error::Protocol(e) = &error else { panic!("{what}: {error}") };
        assert!(e.to_string().contains(what), "'{e}' does not say '{what}'");
    };
    refused(vec![frame(Kind::Setup, 0, 0, key - 1)], "the plan says");
    refused(vec![frame(Kind::Setup, 0, 0, key)], "magic");
    refused(vec![frame(Kind::Setup, 0, 1, key)], "expected Setup");
    refused(vec![frame(Kind::Request, 0, 0, 10)], "expected Setup");
    // With true keys of the client's own, but blocks and requests that are wrong.
    let session = |images: u32, change: &dyn Fn(&mut Vec<u8>)| {
        let mut prg = hushnet_ring::Prg::from_seed([1; 16]);
        let generator = hushnet_rlwe::ckks::client::KeyGenerator::new(plan.params());
        let secret = generator.secret_key(&mut prg).unwrap();
        let bytes = generator.relin_key(&secret, &mut prg).unwrap().to_bytes().unwrap();
        let mut setup = FrameBuilder::reuse(Vec::new(), Kind::Setup, 0, 0, bytes.len()).unwrap();
        setup.payload_mut().copy_from_slice(&bytes);
        let engine = super::engine::client::of(&plan);
        let link = &plan.uploads()[0];
        let values = vec![0.5; 16];
        let mut request = Vec::new();
        for c in engine
            .encrypt(&secret, link, 0..16, (&values, 1), &mut hushnet_ring::Prg::from_seed([2; 16]))
            .unwrap()
        {
            request.extend(c.to_bytes().unwrap());
        }
        change(&mut request);
        let mut frame = FrameBuilder::reuse(Vec::new(), Kind::Request, 0, 0, request.len()).unwrap();
        frame.payload_mut().copy_from_slice(&request);
        let block = crate::wire::Block { index: 0, images };
        vec![setup.finish(), FrameBuilder::message(Kind::Block, &block).unwrap(), frame.finish()]
    };
    refused(session(0, &|_| {}), "0 images");
    refused(session(33, &|_| {}), "33 images");
    refused(session(1, &|r| r.truncate(r.len() - 1)), "the plan says");
    refused(session(1, &|r| r[8] ^= 1), "other parameters");
    // Scale (at 48 + 4) and level of the first ciphertext.
    refused(session(1, &|r| r[48 + 4 + 6] ^= 1), "scale");
    refused(session(1, &|r| r[48] = 1), "length");
    // No scale at all, and bounds (at 48 + 12) that the input's level still holds but the circuit does not.
    refused(session(1, &|r| r[48 + 4..48 + 12].fill(0)), "finite number");
    refused(session(1, &|r| r[48 + 12..48 + 20].copy_from_slice(&256f64.to_le_bytes())), "bound");
    refused(session(1, &|r| r[48 + 28 + 32..48 + 28 + 32 + 40].fill(0xff)), "residue");
    // A true request is answered; then the peer is gone.
    assert!(matches!(answers(&plan, session(1, &|_| {})), Error::Transport(_)));
}

#[test]
fn a_client_refuses_answers_that_do_not_follow_from_the_plan() {
    let plan = net(None).read().unwrap();
    let run = |answer: &(dyn Fn(usize) -> Frame + Sync)| {
        let (near, mut far) = pipe();
        std::thread::scope(|scope| {
            let plan = &plan;
            scope.spawn(move || {
                far.recv().unwrap();
                far.send(FrameBuilder::with_payload(Kind::Plan, &plan.public_part().unwrap()).unwrap())
                    .unwrap();
                for _ in 0..3 {
                    far.recv().unwrap();
                }
                let _ = far.send(answer(
                    messages::Parcel::new(plan.params(), &plan.downloads()[0], false).payload(0),
                ));
                // The client's complaint.
                let _ = far.recv();
            });
            let mut client = NonInteractiveClient::open(Box::new(near), client()).unwrap();
            let data = images(2);
            let e = client.infer(&[input(&data)], &mut |_| ControlFlow::Continue(())).unwrap_err();
            assert!(!client.is_open());
            e
        })
    };
    let junk = |kind, bytes: usize| FrameBuilder::reuse(Vec::new(), kind, 0, 0, bytes).unwrap().finish();
    assert!(matches!(run(&|n| junk(Kind::Response, n - 1)), Error::Protocol(ProtocolError::Length { .. })));
    assert!(matches!(run(&|n| junk(Kind::Response, n)), Error::Protocol(ProtocolError::Message { .. })));
    assert!(matches!(run(&|n| junk(Kind::Request, n)), Error::Protocol(ProtocolError::Unexpected { .. })));
}
