//! What leaves its range stays the client's secret: batches and single images with and without such values look the same on the wire.

use super::tests::{client, images, net, plain};
use super::{packed_tests as packed, NonInteractiveClient, NonInteractiveModel, NonInteractivePlan};
use crate::channel::{pipe, Channel, Pipe, Traffic};
use crate::wire::{Frame, Kind};
use crate::{ClientSession, Compute, Error, Input, InputData, Output, RangeError, TransportError};
use serde_json::{json, Value};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

/// Direction, kind, stage, tile and bytes of every frame, in the server's order.
type Wire = Vec<(char, Kind, u32, u32, usize)>;

/// A server's end that writes down what passes.
struct Recorder(Pipe, Arc<Mutex<Wire>>);

impl Recorder {
    fn note(&self, way: char, f: &Frame) {
        self.1.lock().unwrap().push((way, f.kind(), f.stage(), f.tile(), f.bytes().len()));
    }
}

impl Channel for Recorder {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.note('>', &frame);
        self.0.send(frame)
    }
    fn recv(&mut self) -> Result<Frame, Error> {
        let frame = self.0.recv()?;
        self.note('<', &frame);
        Ok(frame)
    }
    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }
    fn set_limit(&mut self, bytes: usize) {
        self.0.set_limit(bytes);
    }
}

struct Seen {
    wire: Wire,
    outputs: Vec<Output>,
    mark: Option<RangeError>,
}

/// Numbers by input: `[images][elements]`.
#[derive(Clone)]
struct Data {
    image: Vec<f64>,
    early: Vec<f64>,
    late: Vec<f64>,
    images: usize,
}

impl Data {
    /// Images alone; the other inputs change nothing.
    fn of(image: Vec<f64>, images: usize, outputs: usize) -> Self {
        Self { early: vec![0.0; image.len()], late: vec![0.0; images * outputs], image, images }
    }
}

/// A session of one inference with the error raised, another with the marks beside the outputs, and the end.
fn session(plan: &NonInteractivePlan, data: &Data) -> Seen {
    let model = NonInteractiveModel::new(plan, Compute::default()).unwrap();
    let (near, far) = pipe();
    let wire = Arc::new(Mutex::new(Wire::new()));
    let mut recorder = Recorder(far, wire.clone());
    let shape = |port: usize| {
        let shape = &plan.tensors()[plan.inputs()[port].tensor].shape;
        [&[data.images], shape.as_slice()].concat()
    };
    let input = |name, port, data| Input { name, shape: shape(port), data: InputData::F64(data) };
    let given =
        [input("image", 0, &data.image), input("early", 1, &data.early), input("late", 2, &data.late)];
    let (outputs, mark) = std::thread::scope(|scope| {
        scope.spawn(move || model.serve(&mut recorder, &mut |_| {}).unwrap());
        let mut client = NonInteractiveClient::open(Box::new(near), client()).unwrap();
        let raised = match client.infer(&given, &mut |_| ControlFlow::Continue(())) {
            Ok(_) => None,
            Err(Error::Range(e)) => Some(*e),
            Err(e) => panic!("{e}"),
        };
        assert!(client.is_open());
        let (outputs, _, mark) = client.infer_marked(&given, &mut |_| ControlFlow::Continue(())).unwrap();
        client.close().unwrap();
        let place = |e: &RangeError| (e.stage.clone(), e.image, e.element, e.affected.clone());
        assert_eq!(raised.as_ref().map(place), mark.as_ref().map(place));
        (outputs, mark)
    });
    let wire = std::mem::take(&mut *wire.lock().unwrap());
    Seen { wire, outputs, mark }
}

/// Puts `early` before the encryption and the root of `late` behind the last operation of a plan with input 0 and output `y`.
fn with_own_inputs(plan: &mut Value, y: usize) {
    let tensors = plan["tensors"].as_array_mut().unwrap();
    let n = tensors.len();
    let (image, out) = (tensors[0]["shape"].clone(), tensors[y]["shape"].clone());
    for (i, shape) in [&image, &image, &out, &out, &out].into_iter().enumerate() {
        tensors.push(json!({"id": n + i, "name": format!("own{i}"), "shape": shape, "kind": "real"}));
    }
    plan["inputs"] = json!([{"name": "image", "tensor": 0}, {"name": "early", "tensor": n}, {"name": "late", "tensor": n + 2}]);
    plan["outputs"][0]["tensor"] = (n + 4).into();
    let stages = plan["stages"].as_array_mut().unwrap();
    let head = json!({"kind": "client", "name": "head", "ops": [{"op": "add", "in": [0, n], "out": n + 1}]});
    for s in stages.iter_mut().filter(|s| s["kind"] == "encrypt") {
        s["in"] = (n + 1).into();
    }
    stages.insert(0, head);
    let ops = stages.last_mut().unwrap()["ops"].as_array_mut().unwrap();
    ops.push(json!({"op": "sqrt", "in": [n + 2], "out": n + 3}));
    ops.push(json!({"op": "add", "in": [y, n + 3], "out": n + 4}));
}

/// Wire and other images are those of the usual run; the marks are at the given places.
fn compare(usual: &Seen, seen: &Seen, marked: &[usize], stage: &str, exact: &[Vec<f64>]) {
    assert_eq!(seen.wire, usual.wire, "{stage}");
    let mark = seen.mark.as_ref().unwrap();
    assert_eq!((mark.stage.as_str(), mark.image), (stage, marked[0]), "{mark}");
    assert_eq!(mark.affected, marked);
    let width = exact[0].len();
    for (image, exact) in exact.iter().enumerate() {
        let got = &seen.outputs[0].data[image * width..(image + 1) * width];
        assert!(got.iter().all(|v| v.is_finite()));
        let error = got.iter().zip(exact).map(|(g, e)| (g - e).abs()).fold(0.0, f64::max);
        assert!(error < 0.05 || marked.contains(&image), "{stage}: image {image} is off by {error}");
    }
}

/// Images in either block of a batch.
const MARKED: [usize; 2] = [2, 35];
const IMAGES: usize = 40;

/// The batch network, images whose results its bound holds, and one whose result it does not.
fn batch() -> (super::tests::Net, Vec<f64>, Vec<f64>) {
    let all = images(120);
    let size = |x: &[f64]| plain(x).iter().map(|v| ((v - 1.0) / 2.0).abs()).fold(0.0, f64::max);
    let mut sorted: Vec<&[f64]> = all.chunks(16).collect();
    sorted.sort_by(|a, b| size(a).total_cmp(&size(b)));
    let (usual, large) = (size(sorted[IMAGES - 1]), sorted[119].to_vec());
    assert!(size(&large) > 1.2 * usual, "{} {usual}", size(&large));
    let small = sorted[..IMAGES].concat();
    let mut net = net(None);
    net.plan["tensors"][6]["bound"] = usual.midpoint(size(&large)).into();
    net.plan["tensors"][6]["noise_bits"] = 20.into();
    with_own_inputs(&mut net.plan, 8);
    (net, small, large)
}

#[test]
fn batches_with_a_value_outside_send_what_others_send() {
    let (net, small, large) = batch();
    let plan = net.read().unwrap();
    let data = Data::of(small, IMAGES, 2);
    let exact: Vec<Vec<f64>> = data.image.chunks(16).map(|x| plain(x).to_vec()).collect();
    let usual = session(&plan, &data);
    assert!(usual.mark.is_none());
    assert_eq!(usual.wire.iter().filter(|f| f.1 == Kind::Block).count(), 4);
    assert_eq!(usual.wire.last().unwrap().1, Kind::End);
    let with = |change: &dyn Fn(&mut Data, usize)| {
        let mut data = data.clone();
        MARKED.iter().for_each(|&image| change(&mut data, image));
        session(&plan, &data)
    };
    for value in [3.0, -1e300] {
        let seen = with(&|d, image| d.early[image * 16 + 5] = value);
        compare(&usual, &seen, &MARKED, "encrypt 1", &exact);
        let mark = seen.mark.unwrap();
        assert_eq!((mark.element, mark.bound, mark.values), (5, Some(1.0), 2));
    }
    let seen = with(&|d, image| d.image[image * 16..(image + 1) * 16].copy_from_slice(&large));
    compare(&usual, &seen, &MARKED, "decrypt 1", &exact);
    let seen = with(&|d, image| d.late[image * 2 + 1] = -1.0);
    compare(&usual, &seen, &MARKED, "decode", &exact);
    assert_eq!(seen.mark.unwrap().bound, None);
}

#[test]
fn a_server_with_other_weights_reads_nothing_from_the_wire() {
    let (net, small, _) = batch();
    let (mut evil, _, _) = batch();
    evil.files.get_mut("sum.k").unwrap().2 = [40i64, -20].iter().flat_map(|k| k.to_le_bytes()).collect();
    let (plan, other) = (net.read().unwrap(), evil.read().unwrap());
    let public = |p: &NonInteractivePlan| serde_json::to_string(&crate::public::told(p.spec())).unwrap();
    assert_eq!(public(&plan), public(&other));
    let data = Data::of(small, IMAGES, 2);
    let (usual, seen) = (session(&plan, &data), session(&other, &data));
    assert_eq!(seen.wire, usual.wire);
    assert!(usual.mark.is_none());
    assert_eq!(seen.mark.unwrap().stage, "decrypt 1");
}

#[test]
fn single_images_with_a_value_outside_send_what_others_send() {
    let count = 3;
    let reference = packed::bounded(false, 900.0);
    let result = |x: &[f64]| reference.network.evaluate(x).unwrap().pop().unwrap();
    let size = |x: &[f64]| result(x).iter().map(|v| v.abs()).fold(0.0, f64::max);
    let small: Vec<f64> = packed::numbers(count * packed::INPUTS, 1).iter().map(|v| v * 0.3).collect();
    let many = packed::numbers(200 * packed::INPUTS, 3);
    let large = many.chunks(packed::INPUTS).max_by(|a, b| size(a).total_cmp(&size(b))).unwrap();
    let usual_size = small.chunks(packed::INPUTS).map(size).fold(0.0, f64::max);
    assert!(size(large) > 1.2 * usual_size, "{} {usual_size}", size(large));
    let mut net = packed::bounded(false, usual_size.midpoint(size(large)));
    with_own_inputs(&mut net.plan, 4);
    let plan = net.read();
    let data = Data::of(small, count, 3);
    let exact: Vec<Vec<f64>> = data
        .image
        .chunks(packed::INPUTS)
        .map(|x| result(x).iter().map(|v| 2.0 * v + 1.0).collect())
        .collect();
    let usual = session(&plan, &data);
    assert!(usual.mark.is_none());
    let with = |change: &dyn Fn(&mut Data)| {
        let mut data = data.clone();
        change(&mut data);
        session(&plan, &data)
    };
    let seen = with(&|d| d.early[packed::INPUTS + 7] = 9.0);
    compare(&usual, &seen, &[1], "encrypt 1", &exact);
    let seen = with(&|d| d.image[packed::INPUTS..2 * packed::INPUTS].copy_from_slice(large));
    compare(&usual, &seen, &[1], "decrypt 1", &exact);
    let seen = with(&|d| d.late[4] = -1.0);
    compare(&usual, &seen, &[1], "decode", &exact);
}

#[test]
fn inputs_outside_saturate_in_whatever_block_and_the_wire_stays_the_same() {
    for range in [None, Some([-0.5, 1.0])] {
        let mut net = net(None);
        if let Some(range) = range {
            net.plan["inputs"][0]["range"] = json!(range);
        }
        let plan = net.read().unwrap();
        let model = NonInteractiveModel::new(&plan, Compute::default()).unwrap();
        let (near, far) = pipe();
        let wire = Arc::new(Mutex::new(Wire::new()));
        let mut recorder = Recorder(far, wire.clone());
        std::thread::scope(|scope| {
            scope.spawn(move || model.serve(&mut recorder, &mut |_| {}).unwrap());
            let mut client = NonInteractiveClient::open(Box::new(near), client()).unwrap();
            let good: Vec<f64> = images(IMAGES).iter().map(|x| x.max(-0.5)).collect();
            let mut bad = good.clone();
            MARKED.iter().for_each(|image| bad[image * 16 + 3] = -1.5);
            let input =
                |data| [Input { name: "image", shape: vec![IMAGES, 1, 4, 4], data: InputData::F64(data) }];
            let low = range.map(|r| r[0]);
            for (data, marked) in [(&good, false), (&bad, true)] {
                let (outputs, _, mark) =
                    client.infer_marked(&input(data), &mut |_| ControlFlow::Continue(())).unwrap();
                assert!(outputs[0].data.iter().all(|v| v.is_finite()));
                assert_eq!(mark.is_some(), marked);
                if let Some(e) = mark {
                    assert_eq!((e.image, e.element, e.value, e.bound), (MARKED[0], 3, -1.5, Some(1.0)));
                    assert_eq!((e.low, e.affected.as_slice()), (low, &MARKED[..]));
                    // Other images stand.
                    for (image, x) in good.chunks(16).enumerate().filter(|(i, _)| !MARKED.contains(i)) {
                        let near = outputs[0].data[image * 2..]
                            .iter()
                            .zip(plain(x))
                            .all(|(a, b)| (a - b).abs() < 0.05);
                        assert!(near, "image {image}");
                    }
                }
            }
            client.close().unwrap();
        });
        let wire = wire.lock().unwrap();
        let frames: Vec<_> = wire.iter().filter(|f| f.0 == '<' && f.1 == Kind::Request).collect();
        let (first, second) = frames.split_at(frames.len() / 2);
        let sizes =
            |f: &[&(char, Kind, u32, u32, usize)]| f.iter().map(|f| (f.1, f.2, f.4)).collect::<Vec<_>>();
        assert_eq!(sizes(first), sizes(second));
    }
}
