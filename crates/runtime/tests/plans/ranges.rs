//! What leaves its range stays the client's secret: client-aided runs with and without such values look the same on the wire.

use crate::common::{inputs, load, op, Batch, Builder, Linear, Rng};
use hushnet_ring::pack;
use hushnet_runtime::channel::{pipe, Channel, Pipe, Traffic};
use hushnet_runtime::plan::{Plan, PlanError};
use hushnet_runtime::wire::{Frame, FrameBuilder, Kind};
use hushnet_runtime::ClientSession;
use hushnet_runtime::{
    Client, ClientOptions, Compute, Error, Output, RangeError, ServerPlan, TransportError,
};
use serde_json::{json, Value};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

const N: usize = 1024;
/// More than a block.
const IMAGES: usize = N + 6;
/// Images that leave a range, in either block.
const MARKED: [usize; 2] = [3, N + 3];

/// Direction, kind, stage, tile and bytes of every frame, in the server's order.
type Wire = Vec<(char, Kind, u32, u32, usize)>;

/// Changes what a server sends.
type Tamper<'a> = dyn Fn(Frame) -> Frame + Send + Sync + 'a;

/// A server's end that writes down what passes.
struct Recorder<'a>(Pipe, Arc<Mutex<Wire>>, &'a Tamper<'a>);

impl Recorder<'_> {
    fn note(&self, way: char, f: &Frame) {
        self.1.lock().unwrap().push((way, f.kind(), f.stage(), f.tile(), f.bytes().len()));
    }
}

impl Channel for Recorder<'_> {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        let frame = (self.2)(frame);
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

/// dense - relu - dense. `early`, `middle` and `late` are the client's own and enter before the first layer, between the layers, and
/// behind the last; `image` alone is never quantised as it is.
fn net(mask: &'static str) -> Plan {
    let o = Linear { mask, band: 2, ..Linear::default() };
    let mut b = Builder::new(N, 7);
    let (x, early) = (b.input("image", &[6]), b.input("early", &[6]));
    let (middle, late) = (b.input("middle", &[5]), b.input("late", &[4]));
    let (sum, q) = (b.real(&[6]), b.fixed(&[6], 0.01, 127));
    b.client(vec![op("add", &[x, early], sum), op("quantize", &[sum], q)]);
    let acc = b.linear(q, json!({"type": "dense", "inputs": 6, "outputs": 5}), &o);
    let [r, square, m, relu] = std::array::from_fn(|_| b.real(&[5]));
    let reach = b.tensors[acc]["scale"].as_f64().unwrap() * b.tensors[acc]["bound"].as_u64().unwrap() as f64;
    let q2 = b.fixed(&[5], reach / 120.0, 127);
    b.client(vec![
        op("dequantize", &[acc], r),
        op("mul", &[middle, middle], square),
        op("add", &[r, square], m),
        op("relu", &[m], relu),
        op("quantize", &[relu], q2),
    ]);
    let acc2 = b.linear(q2, json!({"type": "dense", "inputs": 5, "outputs": 4}), &o);
    let [out, root, y] = std::array::from_fn(|_| b.real(&[4]));
    b.client(vec![op("dequantize", &[acc2], out), op("sqrt", &[late], root), op("add", &[out, root], y)]);
    b.output("y", y);
    b.plan()
}

/// Images of the right size; `value` in element 1 of an input of the marked images.
fn batches(plan: &Plan, which: &str, value: f64) -> Vec<Batch> {
    let mut rng = Rng(5);
    let mut all = Batch::random(plan, IMAGES, &mut rng, 0.5);
    for b in &mut all {
        let elements = b.data.len() / IMAGES;
        if b.name != "image" {
            b.data.fill(0.0);
        }
        for image in MARKED.iter().filter(|_| b.name == which) {
            b.data[image * elements + 1] = value;
        }
    }
    all
}

struct Seen {
    wire: Wire,
    outputs: Vec<Output>,
    mark: Option<RangeError>,
    raised: Option<RangeError>,
}

/// A session: the images with the error raised, the same with the marks beside the outputs, and the end.
fn session(plan: &Plan, batches: &[Batch], tamper: &Tamper<'_>) -> Seen {
    let server = ServerPlan::new(plan, Compute::default()).unwrap();
    let (near, far) = pipe();
    let wire = Arc::new(Mutex::new(Wire::new()));
    let mut recorder = Recorder(far, wire.clone(), tamper);
    let (outputs, mark, raised) = std::thread::scope(|scope| {
        scope.spawn(move || server.serve(&mut recorder, &mut |_| {}).unwrap());
        let mut client = Client::open(Box::new(near), ClientOptions::default()).unwrap();
        let raised = match client.infer(&inputs(batches), &mut |_| ControlFlow::Continue(())) {
            Ok(_) => None,
            Err(Error::Range(e)) => Some(*e),
            Err(e) => panic!("{e}"),
        };
        assert!(client.is_open());
        let (outputs, _, mark) =
            client.infer_marked(&inputs(batches), &mut |_| ControlFlow::Continue(())).unwrap();
        client.close().unwrap();
        (outputs, mark, raised)
    });
    let wire = std::mem::take(&mut *wire.lock().unwrap());
    Seen { wire, outputs, mark, raised }
}

fn honest(frame: Frame) -> Frame {
    frame
}

fn row(outputs: &[Output], image: usize) -> &[f64] {
    &outputs[0].data[image * 4..(image + 1) * 4]
}

#[test]
fn a_value_outside_changes_no_message_and_no_other_image() {
    for mask in ["shared", "fresh"] {
        let plan = net(mask);
        let usual = session(&plan, &batches(&plan, "", 0.0), &honest);
        assert!(usual.mark.is_none() && usual.raised.is_none());
        let blocks = usual.wire.iter().filter(|f| f.1 == Kind::Block).count();
        assert_eq!((blocks, usual.wire.last().unwrap().1), (4, Kind::End));
        for (input, value, stage, bounded) in [
            // Saturates in the first upload; too large; no number; in the last operations.
            ("early", 50.0, "client0", true),
            ("early", -f64::MAX, "client0", true),
            ("middle", 1e3, "client2", true),
            ("middle", 1e200, "client2", false),
            ("late", -1.0, "client4", false),
        ] {
            let seen = session(&plan, &batches(&plan, input, value), &honest);
            assert_eq!(seen.wire, usual.wire, "{mask}, {input} = {value}");
            // As text: NaN equals nothing.
            assert_eq!(format!("{:?}", seen.mark), format!("{:?}", seen.raised));
            let mark = seen.mark.unwrap();
            assert_eq!((mark.stage.as_str(), mark.image, mark.element), (stage, MARKED[0], 1), "{input}");
            assert_eq!((mark.bound.is_some(), mark.answer), (bounded, false), "{mark}");
            assert_eq!(mark.affected, MARKED);
            assert!(mark.values >= 2);
            assert!(mark.to_string().contains("2 images are affected"), "{mark}");
            for image in 0..IMAGES {
                let same = row(&seen.outputs, image) == row(&usual.outputs, image);
                assert!(same || MARKED.contains(&image), "{input}: image {image}");
                assert!(row(&seen.outputs, image).iter().all(|v| v.is_finite()));
            }
        }
    }
}

/// All words of a response times eight: the ciphertexts of eight times what an honest server answers.
fn scaled(plan: &Plan, frame: Frame) -> Frame {
    if frame.kind() != Kind::Response {
        return frame;
    }
    let p = plan.stages()[frame.stage() as usize].linear().unwrap().params;
    let bits = [p.modulus_bits() - p.drop_bits(), p.modulus_bits() - p.mask_drop_bits()];
    let bytes = bits.map(|b| pack::packed_len(N, b));
    let outputs = frame.payload().len() / (bytes[0] + bytes[1]);
    let mut builder =
        FrameBuilder::reuse(Vec::new(), Kind::Response, frame.stage(), frame.tile(), frame.payload().len())
            .unwrap();
    let (mut from, mut to, mut words) = (frame.payload(), builder.payload_mut(), vec![0u64; N]);
    for part in [0, 1] {
        for _ in 0..outputs {
            pack::unpack(&from[..bytes[part]], bits[part], &mut words).unwrap();
            words.iter_mut().for_each(|w| *w = (*w << 3) & ((1 << bits[part]) - 1));
            pack::pack(&words, bits[part], &mut to[..bytes[part]]).unwrap();
            from = &from[bytes[part]..];
            to = &mut to[bytes[part]..];
        }
    }
    builder.finish()
}

#[test]
fn a_server_that_scales_ciphertexts_reads_nothing_from_the_wire() {
    let plan = net("fresh");
    let usual = session(&plan, &batches(&plan, "", 0.0), &honest);
    for stage in [1, 3] {
        let tamper = |f: Frame| if f.stage() == stage { scaled(&plan, f) } else { f };
        let seen = session(&plan, &batches(&plan, "", 0.0), &tamper);
        assert_eq!(seen.wire, usual.wire, "stage {stage}");
        let mark = seen.raised.unwrap();
        assert_eq!(
            (mark.stage.as_str(), mark.answer),
            (plan.stages()[stage as usize].name(), true),
            "{mark}"
        );
        assert!(mark.to_string().contains("server, the connection or the keys are faulty"), "{mark}");
        // A threshold: values within it are, behind the last layer, eight times the honest ones, as decrypted.
        assert!(!mark.affected.is_empty() && mark.affected.len() < IMAGES, "{}", mark.affected.len());
        if stage == 3 {
            let pairs = seen.outputs[0].data.iter().zip(&usual.outputs[0].data);
            // Others have left the range, or show eight times the noise.
            assert!(pairs.filter(|(got, honest)| **honest != 0.0 && **got == 8.0 * **honest).count() > 0);
        }
    }
}

/// A network that quantises its input as it is.
fn plain_input(change: impl FnOnce(&mut Value)) -> Result<Plan, PlanError> {
    let mut b = Builder::new(N, 8);
    let x = b.input("image", &[2, 3]);
    let (flat, q) = (b.real(&[6]), b.fixed(&[6], 0.01, 127));
    b.client(vec![op("reshape", &[x], flat), op("quantize", &[flat], q)]);
    let acc = b.linear(q, json!({"type": "dense", "inputs": 6, "outputs": 4}), &Linear::default());
    let y = b.real(&[4]);
    b.client(vec![op("dequantize", &[acc], y)]);
    b.output("y", y);
    let mut json = b.json();
    change(&mut json);
    load(&json.to_string(), &b.files)
}

#[test]
fn inputs_outside_saturate_in_whatever_block_and_the_wire_stays_the_same() {
    let ranged = |json: &mut Value| json["inputs"][0]["range"] = json!([-0.25, 1.0]);
    for (plan, value, clamped, place) in [
        (plain_input(|_| {}), 1.3, 1.27, ("client0", Some(1.27), None)),
        (plain_input(ranged), 1.3, 1.0, ("input", Some(1.0), Some(-0.25))),
        (plain_input(ranged), -0.5, -0.25, ("input", Some(1.0), Some(-0.25))),
    ] {
        let plan = plan.unwrap();
        let mut good = Batch::random(&plan, IMAGES, &mut Rng(5), 0.5);
        good[0].data.iter_mut().for_each(|x| *x = x.max(-0.25));
        let usual = session(&plan, &good, &honest);
        assert!(usual.mark.is_none() && usual.raised.is_none());
        let (mut bad, mut held) = (good.clone(), good.clone());
        for image in MARKED {
            bad[0].data[image * 6 + 2] = value;
            held[0].data[image * 6 + 2] = clamped;
        }
        let (seen, held) = (session(&plan, &bad, &honest), session(&plan, &held, &honest));
        assert_eq!(seen.wire, usual.wire, "{value}");
        // As if the value at the end of the range had been given.
        assert_eq!(seen.outputs, held.outputs, "{value}");
        assert!(held.mark.is_none());
        let (mark, raised) = (seen.mark.unwrap(), seen.raised.unwrap());
        assert_eq!(mark, raised);
        assert_eq!((mark.stage.as_str(), mark.bound, mark.low), place, "{mark}");
        assert_eq!((mark.image, mark.element, mark.value), (MARKED[0], 2, value));
        assert_eq!((mark.affected.as_slice(), mark.values, mark.answer), (&MARKED[..], 2, false));
    }
}

#[test]
fn ranges_of_ports_are_checked() {
    for (port, range) in [
        ("inputs", json!([1.0, -1.0])),
        ("outputs", json!([0.0, 1.0])),
        ("inputs", json!([0.0])),
        ("inputs", json!([0.0, null])),
    ] {
        let plan = plain_input(|json| json[port][0]["range"] = range.clone());
        assert!(plan.is_err(), "{port} {range}");
    }
}
