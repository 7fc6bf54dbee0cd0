//! Plans with bootstraps: whole sessions, keys that are not the plan's, plans that are wrong. A small ring without security.

use super::messages::{self, KeyKind};
use super::packed_tests::{client, numbers, options, planned, read, sealed, File, Net};
use super::tests::{answers, run_pipe};
use super::*;
use crate::channel::{Channel, Traffic};
use crate::error::TransportError;
use crate::wire::{Frame, FrameBuilder, Kind};
use crate::{Compute, Error, Input, InputData};
use hushnet_layers::packed::{Bootstrapping, GraphSpec, PackedOptions};
use hushnet_ring::Prg;
use hushnet_rlwe::ckks::client::KeyGenerator;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::OnceLock;

const WIDTH: usize = 12;

/// Eight dense layers with squares between them: fifteen levels.
fn network() -> (GraphSpec, BTreeMap<String, Vec<f64>>) {
    let (mut tensors, mut steps, mut arrays) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut tensor = |bound: f64| {
        tensors.push(json!({"id": tensors.len(), "name": format!("t{}", tensors.len()), "shape": [WIDTH], "bound": bound}));
        tensors.len() - 1
    };
    let mut x = tensor(1.0);
    for k in 0..8 {
        let out = tensor(1.5);
        steps.push(json!({"kind": "linear", "name": format!("dense{k}"), "in": x, "out": out, "weights": format!("w{k}"),
            "geometry": {"type": "dense", "inputs": WIDTH, "outputs": WIDTH}}));
        let size = 1.3 / (WIDTH as f64).sqrt();
        arrays.insert(format!("w{k}"), numbers(WIDTH * WIDTH, k).iter().map(|v| v * size).collect());
        x = out;
        if k < 7 {
            let out = tensor(1.5);
            steps.push(json!({"kind": "polynomial", "name": format!("act{k}"), "in": x, "out": out, "coefficients": [0.1, 0.5, 0.25]}));
            x = out;
        }
    }
    let spec = json!({"input": 0, "output": x, "tensors": tensors, "steps": steps});
    (serde_json::from_value(spec).unwrap(), arrays)
}

fn deep() -> &'static Net {
    static NET: OnceLock<Net> = OnceLock::new();
    NET.get_or_init(|| {
        let (spec, arrays) = network();
        let options = PackedOptions {
            security: 0,
            ring_degree: 256,
            precision_bits: 8,
            bootstrap: Bootstrapping::Always,
            ..PackedOptions::default()
        };
        planned(&spec, &arrays, &options)
    })
}

fn input(data: &[f64]) -> Input<'_> {
    Input { name: "image", shape: vec![data.len() / WIDTH, WIDTH], data: InputData::F64(data) }
}

#[test]
fn bootstrapped_sessions_answer_within_their_error_with_exact_bytes_and_counts() {
    let n = deep();
    let plan = n.read();
    let circuit = plan.packed().unwrap().circuit().unwrap().clone();
    assert!(plan.counted().bootstraps >= 1);
    let data = numbers(2 * WIDTH, 3);
    let model = NonInteractiveModel::new(&plan, Compute::default()).unwrap();
    let (outputs, trace) =
        run_pipe(&model, &[input(&data)], client(), &mut |_| ControlFlow::Continue(())).unwrap();
    let (bound, typical) = circuit.predicted_error();
    let exact = data.chunks(WIDTH).flat_map(|x| n.network.evaluate(x).unwrap().pop().unwrap());
    let error = exact.zip(&outputs[0].data).map(|(e, g)| (2.0 * e + 1.0 - g).abs()).fold(0.0, f64::max);
    assert!(error > 0.0 && error <= 2.0 * typical.min(bound), "{error}");
    assert_eq!(trace.setup_bytes_up, predict(&plan).keys);
    assert_eq!(trace.counted, Some(plan.counted().times(2)));
    let named = |s: &str| trace.stages.iter().any(|t| t.name.contains(s) && t.seconds.is_some());
    assert!(named("bootstrap of"));
    // What clients are told is the slots, and which keys: not the places.
    let public = NonInteractivePlan::from_bytes(&plan.public_part().unwrap(), &options()).unwrap();
    assert_eq!(predict(&public), predict(&plan));
    assert!(!public.json().contains("values") && public.json().contains("bootstrap"));
}

/// A client whose kept keys and secret have been mixed up: the answer is noise, and is told as what no honest server answers.
#[test]
fn an_answer_under_keys_of_another_secret_is_an_error() {
    let plan = deep().read();
    let model = NonInteractiveModel::new(&plan, Compute::default()).unwrap();
    let data = numbers(WIDTH, 5);
    let mixed_up = |channel| {
        let mut client = NonInteractiveClient::open(channel, client())?;
        client.secret = KeyGenerator::new(plan.params()).secret_key(&mut Prg::from_os()?)?;
        Ok(client)
    };
    let run = crate::local::run_pipe(&model, mixed_up, &[input(&data)], &mut |_| ControlFlow::Continue(()));
    let Err(Error::Range(e)) = run.map(|_| ()) else { panic!("noise was taken for an answer") };
    assert!(e.answer && e.affected == [0], "{e:?}");
    // Also where no value happens to be beyond its bound.
    assert!(client::undecryptable(&plan, vec![1, 2]).is_some_and(|e| e.answer && e.affected == [1, 2]));
    assert!(client::undecryptable(&plan, Vec::new()).is_none());
}

#[test]
fn plans_with_wrong_bootstraps_are_refused() {
    let n = deep();
    let refused = |change: &dyn Fn(&mut Value, &mut BTreeMap<String, File>), what: &str| {
        let (mut plan, mut files) = (n.plan.clone(), n.files.clone());
        change(&mut plan, &mut files);
        let error = read(&plan, &files).map(|_| ()).expect_err(what).to_string();
        assert!(error.contains(what), "'{error}' does not say '{what}'");
    };
    refused(&|p, _| p["stages"][1]["bootstrap"] = 64.into(), "need Rotate");
    refused(&|p, _| p["stages"][1]["bootstrap"] = 100.into(), "100 slots");
    refused(&|p, _| p["stages"][1]["bootstrap"] = (1u64 << 40).into(), "slots");
    refused(
        &|p, _| drop(p["stages"][1].as_object_mut().unwrap().remove("bootstrap")),
        "not those of its network",
    );
    refused(&|p, _| p["stages"][1]["choices"]["bootstraps"]["values"] = json!([]), "does not compute");
    refused(&|p, _| p["stages"][1]["choices"]["bootstraps"]["values"] = json!([0]), "does not compute");
    refused(&|p, _| p["stages"][1]["choices"]["bootstraps"]["values"] = json!([15]), "levels");
    refused(&|p, _| p["stages"][1]["choices"]["bootstraps"]["slots"] = 9.into(), "slots");
    refused(&|p, _| p["params"]["non_interactive"]["digits"] = 4.into(), "bootstrap");
    // A client looks at the same.
    let public = n.read().public_part().unwrap();
    let public = NonInteractivePlan::from_bytes(&public, &options()).unwrap();
    let mut told: Value = serde_json::from_str(public.json()).unwrap();
    told["params"]["non_interactive"]["digits"] = 4.into();
    let files =
        n.files.iter().filter(|(k, _)| !k.starts_with('w')).map(|(k, v)| (k.clone(), v.clone())).collect();
    let error = read(&told, &files).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("bootstrap"), "{error}");
}

/// The bytes of all keys of a fresh secret.
fn made(plan: &NonInteractivePlan, due: &[messages::KeyFrame], seed: u8) -> Vec<Vec<u8>> {
    let mut prg = Prg::from_seed([seed; 16]);
    let generator = KeyGenerator::new(plan.params());
    let secret = generator.secret_key(&mut prg).unwrap();
    let bootstrap = plan.packed().unwrap().interface().bootstrap().unwrap();
    due.iter()
        .map(|key| match key.kind {
            KeyKind::Relin => generator.relin_key(&secret, &mut prg).unwrap().to_bytes(),
            KeyKind::Public => generator.public_key(&secret, &mut prg).unwrap().to_bytes(),
            KeyKind::Galois(g, level) => {
                generator.galois_keys_at(&secret, &[(g, level)], &mut prg).unwrap().to_bytes()
            }
            KeyKind::Encapsulation => {
                generator.encapsulation(&secret, bootstrap, &mut prg).unwrap().to_bytes()
            }
        })
        .collect::<Result<_, _>>()
        .unwrap()
}

#[test]
fn a_server_refuses_a_damaged_pair_and_keys_of_other_rotations() {
    let plan = deep().read();
    let due = messages::keys(plan.params(), &KeysNeeded::of(&plan));
    let made = made(&plan, &due, 1);
    assert!(due.iter().zip(&made).all(|(k, b)| k.bytes == b.len()));
    assert!(matches!(due.last().unwrap().kind, KeyKind::Encapsulation));
    let refused = |change: &dyn Fn(&mut Vec<Vec<u8>>), what: &str| {
        let mut sent = made.clone();
        change(&mut sent);
        let frame = |tile: u32, bytes: &[u8]| {
            let mut f = FrameBuilder::reuse(Vec::new(), Kind::Setup, 0, tile, bytes.len()).unwrap();
            f.payload_mut().copy_from_slice(bytes);
            f.finish()
        };
        let frames: Vec<Frame> = due.iter().zip(&sent).map(|(k, b)| frame(k.tile, b)).collect();
        let error = answers(&plan, frames);
        let Error::Protocol(e) = &error else { panic!("{what}: {error}") };
        assert!(e.to_string().contains(what), "'{e}' does not say '{what}'");
    };
    let last = due.len() - 1;
    for at in [48, 80, 5000, made[last].len() - 1] {
        refused(&|k| k[last][at] ^= 4, "checksum");
    }
    refused(&|k| k[last][8] ^= 1, "other parameters");
    refused(&|k| k[last].truncate(1000), "the plan says");
    // The conjugation's key in the place of a rotation's, and back.
    refused(
        &|k| {
            k[last - 1][68] ^= 4;
            sealed(&mut k[last - 1]);
        },
        "was due",
    );
}

/// Sends another payload in the place of one key.
struct OneKey<'a> {
    inner: Box<dyn Channel>,
    key: &'a messages::KeyFrame,
    /// The key instead, or none: the client's own with one bit changed.
    other: Option<&'a [u8]>,
}

impl Channel for OneKey<'_> {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        let (tile, bytes) = (self.key.tile, self.key.bytes);
        let Ok(own) = frame.expect_payload(Kind::Setup, 0, tile, bytes) else {
            return self.inner.send(frame);
        };
        let mut changed = FrameBuilder::reuse(Vec::new(), Kind::Setup, 0, tile, bytes).unwrap();
        changed.payload_mut().copy_from_slice(self.other.unwrap_or(own));
        if self.other.is_none() {
            changed.payload_mut()[bytes / 2] ^= 1;
        }
        self.inner.send(changed.finish())
    }
    fn recv(&mut self) -> Result<Frame, Error> {
        self.inner.recv()
    }
    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
    fn set_limit(&mut self, bytes: usize) {
        self.inner.set_limit(bytes);
    }
}

/// Whichever key is of another secret, or has one wrong bit: no answer, but an error. The client could not tell by the answer: what a wrong key makes
/// of a value is noise, but a bootstrap takes all noise for a message.
#[test]
fn one_wrong_or_damaged_key_is_an_error_whichever_it_is() {
    static DUE: OnceLock<Vec<messages::KeyFrame>> = OnceLock::new();
    static OTHERS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let plan = deep().read();
    let due = DUE.get_or_init(|| messages::keys(plan.params(), &KeysNeeded::of(&plan)));
    let others = OTHERS.get_or_init(|| made(&plan, due, 7));
    let model = NonInteractiveModel::new(&plan, Compute::default()).unwrap();
    let data = numbers(WIDTH, 5);
    let run = |key: &'static messages::KeyFrame, other: Option<&'static [u8]>| {
        let open = |inner| NonInteractiveClient::open(Box::new(OneKey { inner, key, other }), client());
        crate::local::run_pipe(&model, open, &[input(&data)], &mut |_| ControlFlow::Continue(()))
    };
    for (key, other) in due.iter().zip(others) {
        for other in [Some(&other[..]), None] {
            let what = if other.is_some() { "another secret" } else { "checksum" };
            match run(key, other).map(|_| ()) {
                Err(Error::Protocol(e)) => assert!(e.to_string().contains(what), "{key:?}: {e}"),
                Err(e) => panic!("{key:?}: {e}"),
                Ok(()) => panic!("{key:?} is wrong, and the answer was taken"),
            }
        }
    }
}
