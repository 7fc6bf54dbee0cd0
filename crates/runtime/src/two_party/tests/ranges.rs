//! What leaves its range stays the client's secret: runs with and without such values look the same on the wire.

use super::*;
use crate::channel::{Channel as Frames, Traffic};
use crate::error::TransportError;
use crate::wire::{Frame, FrameBuilder, Kind};
use crate::RangeError;
use hushnet_mpc::OtKind;
use serde_json::json;
use std::sync::mpsc::{channel, Receiver, Sender};

/// Direction, kind and bytes of every frame, in the server's order.
type Wire = Vec<(char, Kind, usize)>;

/// One end of a connection that takes any number of frames.
struct End(Sender<Frame>, Receiver<Frame>);

/// The server's end: it writes down what passes, and spoils the payload of one frame that it sends.
struct Recorder(End, Arc<Mutex<Wire>>, Option<usize>);

impl Frames for End {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.0.send(frame).map_err(|_| TransportError::Closed)
    }
    fn recv(&mut self) -> Result<Frame, Error> {
        Ok(self.1.recv().map_err(|_| TransportError::Closed)?)
    }
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
    fn set_limit(&mut self, _: usize) {}
}

impl Frames for Recorder {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        let number = self.1.lock().unwrap().len();
        let frame = if self.2 == Some(number) {
            let spoilt: Vec<u8> = frame.payload().iter().map(|b| b ^ 0x55).collect();
            FrameBuilder::with_payload(frame.kind(), &spoilt).unwrap()
        } else {
            frame
        };
        self.1.lock().unwrap().push(('>', frame.kind(), frame.bytes().len()));
        self.0.send(frame)
    }
    fn recv(&mut self) -> Result<Frame, Error> {
        let frame = self.0.recv()?;
        self.1.lock().unwrap().push(('<', frame.kind(), frame.bytes().len()));
        Ok(frame)
    }
    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }
    fn set_limit(&mut self, bytes: usize) {
        self.0.set_limit(bytes);
    }
}

const IMAGES: usize = 5;
/// In the first and the second group of three.
const MARKED: [usize; 2] = [1, 4];

/// dense, ReLU, dense. `early` enters before sharing, `late` behind the opening. Calibrated: the truncation before the opening states
/// less than its operand could give, and so does the opened tensor.
fn net(opened: u64) -> Net {
    let mut net = Net::new(28, 3);
    let real = |net: &mut Net, n: usize| net.tensor(json!({"shape": [n], "kind": "real"}));
    let [x, early, sum] = [6, 6, 6].map(|n| real(&mut net, n));
    let late = real(&mut net, 4);
    for (name, t) in [("image", x), ("early", early), ("late", late)] {
        net.inputs.push(json!({"name": name, "tensor": t}));
    }
    let fixed = net.tensor(json!({"shape": [6], "kind": "fixed", "scale": 0.03125, "bound": 31}));
    net.stage(json!({"kind": "client", "ops": [
        {"op": "add", "in": [x, early], "out": sum}, {"op": "quantize", "in": [sum], "out": fixed}]}));
    let shared = net.shared(&[6], 5, 31);
    net.stage(json!({"kind": "share", "in": fixed, "out": shared}));
    let a = net.dense(shared, 5, 5);
    let r = net.relu(a);
    let t = net.truncate(r, 4, "non-negative", false);
    let b = net.dense(t, 4, 5);
    let t = net.truncate_to(b, 3, "any", true, opened);
    let scale = (-net.f(t) as f64).exp2();
    let fixed = net.tensor(json!({"shape": [4], "kind": "fixed", "scale": scale, "bound": opened}));
    net.stage(json!({"kind": "reveal", "in": t, "out": fixed, "what": "output"}));
    let [out, root, y] = [4, 4, 4].map(|n| real(&mut net, n));
    net.stage(json!({"kind": "client", "ops": [{"op": "dequantize", "in": [fixed], "out": out},
        {"op": "sqrt", "in": [late], "out": root}, {"op": "add", "in": [out, root], "out": y}]}));
    net.outputs.push(json!({"name": "y", "tensor": y}));
    net
}

struct Seen {
    wire: Wire,
    outputs: Vec<Output>,
    mark: Option<RangeError>,
}

/// Two inferences, with the error raised and with marks beside outputs, and the end of the session.
fn session(plan: &TwoPartyPlan, data: &[Vec<f64>], spoil: Option<usize>) -> Seen {
    let model = TwoPartyModel::new(plan, Compute::default()).unwrap();
    let (a, b) = (channel(), channel());
    let (near, far) = (End(a.0, b.1), End(b.0, a.1));
    let wire = Arc::new(Mutex::new(Wire::new()));
    let recorder = Recorder(far, wire.clone(), spoil);
    let given: Vec<Input<'_>> = plan
        .inputs()
        .iter()
        .zip(data)
        .map(|(p, v)| Input { name: &p.name, shape: vec![IMAGES, v.len() / IMAGES], data: InputData::F64(v) })
        .collect();
    let (outputs, mark) = std::thread::scope(|scope| {
        let model = &model;
        scope.spawn(move || model.session(Box::new(recorder), &mut |_| {}).0.unwrap());
        let options =
            TwoPartyOptions { ot: Some(OtKind::Iknp), group: Some(3), ..TwoPartyOptions::default() };
        let mut client = super::super::connect(Box::new(near), options).unwrap();
        let (outputs, _, mark) = client.infer_marked(&given, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(client.is_open());
        match client.infer(&given, &mut |_| ControlFlow::Continue(())) {
            Ok(_) => assert!(mark.is_none() || spoil.is_some()),
            Err(Error::Range(e)) => assert_eq!(e.affected, mark.as_ref().unwrap().affected),
            Err(e) => panic!("{e}"),
        }
        assert!(client.is_open());
        client.close().unwrap();
        (outputs, mark)
    });
    let wire = std::mem::take(&mut *wire.lock().unwrap());
    Seen { wire, outputs, mark }
}

/// Inputs of small size, so that opened values keep to a bound that larger ones leave.
fn data(amplitude: f64) -> Vec<Vec<f64>> {
    let mut rng = builder::Rng(9);
    let image = (0..IMAGES * 6).map(|_| rng.real(amplitude)).collect();
    vec![image, vec![0.0; IMAGES * 6], vec![0.0; IMAGES * 4]]
}

/// A bound that results of `data(0.1)` keep to, and an image whose results leave it.
fn bound_and_image() -> (u64, Vec<f64>) {
    let plan = plan_of(&net(1 << 20)).unwrap();
    // The tensor behind the last truncation.
    let unit = (-net(1).f(10) as f64).exp2();
    let largest = |outputs: &[f64]| outputs.iter().fold(0.0f64, |m, v| m.max(v.abs())) / unit;
    let small = largest(&session(&plan, &data(0.1), None).outputs[0].data);
    let wide = session(&plan, &data(0.9), None).outputs;
    let best = (0..IMAGES)
        .max_by(|&i, &j| {
            let of = |k: usize| largest(&wide[0].data[k * 4..(k + 1) * 4]);
            of(i).total_cmp(&of(j))
        })
        .unwrap();
    let large = largest(&wide[0].data[best * 4..(best + 1) * 4]);
    // What is opened may reach 2^k - 1: the largest bound below that, with room for units of errors.
    let reach = (small + small / 256.0 + 3.0).log2().ceil().exp2();
    assert!(large > reach, "{large} {small}");
    (((reach - 4.0) * 256.0 / 257.0) as u64, data(0.9)[0][best * 6..(best + 1) * 6].to_vec())
}

#[test]
fn a_value_outside_changes_no_message_and_no_other_image() {
    let (bound, image) = bound_and_image();
    let plan = plan_of(&net(bound)).unwrap();
    let usual = session(&plan, &data(0.1), None);
    assert!(usual.mark.is_none());
    assert!(usual.wire.len() > 20 && usual.wire.iter().all(|f| f.1 != Kind::Error));
    type Change<'a> = &'a dyn Fn(&mut [Vec<f64>], usize);
    let cases: [(&str, Option<f64>, Change<'_>); 3] = [
        ("encode", Some(0.96875), &|d, i| d[1][i * 6 + 1] = 40.0),
        ("reveal 1", Some(bound as f64), &|d, i| d[0][i * 6..(i + 1) * 6].copy_from_slice(&image)),
        ("decode", None, &|d, i| d[2][i * 4 + 2] = -1.0),
    ];
    for (stage, limit, change) in cases {
        let mut data = data(0.1);
        MARKED.iter().for_each(|&i| change(&mut data, i));
        let seen = session(&plan, &data, None);
        assert_eq!(seen.wire, usual.wire, "{stage}");
        let mark = seen.mark.unwrap();
        assert_eq!((mark.stage.as_str(), mark.image), (stage, MARKED[0]), "{mark}");
        assert_eq!(mark.affected, MARKED, "{mark}");
        assert_eq!(mark.bound.is_some(), limit.is_some());
        for i in (0..IMAGES).filter(|i| !MARKED.contains(i)) {
            let row = |s: &[Output]| s[0].data[i * 4..(i + 1) * 4].to_vec();
            // Masking may move a result by some units.
            let near = row(&seen.outputs).iter().zip(row(&usual.outputs)).all(|(a, b)| (a - b).abs() < 0.1);
            assert!(near, "{stage}: image {i}: {:?} {:?}", row(&seen.outputs), row(&usual.outputs));
        }
    }
}

#[test]
fn a_server_that_spoils_its_messages_reads_nothing_from_the_wire() {
    let (bound, _) = bound_and_image();
    let plan = plan_of(&net(bound)).unwrap();
    let usual = session(&plan, &data(0.1), None);
    assert!(usual.mark.is_none());
    // What the server sends last in the first inference: its share of the second group's results.
    let begins: Vec<usize> = (0..usual.wire.len()).filter(|&i| usual.wire[i].0 == '>').collect();
    let sent = begins.len();
    // Both inferences are alike, and the set-up comes before them; the share is the last frame of its group.
    let share = begins[sent - 1];
    let first = (0..share).rev().filter(|i| usual.wire[*i] == usual.wire[share]).collect::<Vec<_>>();
    let mut marked = 0;
    for frame in first {
        let seen = session(&plan, &data(0.1), Some(frame));
        assert_eq!(seen.wire, usual.wire, "frame {frame}");
        marked += usize::from(seen.mark.is_some());
    }
    assert!(marked > 0);
}

#[test]
fn inputs_outside_saturate_and_the_wire_stays_the_same() {
    let plan = plan_of(&net(1 << 20)).unwrap();
    let usual = session(&plan, &data(0.1), None);
    let mut bad = data(0.1);
    MARKED.iter().for_each(|&i| bad[1][i * 6 + 5] = -1.1e9);
    let seen = session(&plan, &bad, None);
    assert_eq!(seen.wire, usual.wire);
    let mark = seen.mark.unwrap();
    assert_eq!((mark.image, mark.element), (MARKED[0], 5));
    assert!((mark.value + 1.1e9).abs() < 1.0, "{mark}");
    assert_eq!(mark.affected, MARKED);
}
