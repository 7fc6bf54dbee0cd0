//! Both parties of a two-party plan as two processes over loopback TCP; prints one JSON object.
//!
//! `two_party_local --plan FILE --input FILE [--images 1] [--threads 1] [--group n] [--ot iknp|softspoken|silent-small|silent|silent-large]
//! [--network loopback|lan|wan] [--repeat 1]`: the input file holds the first input as little-endian binary32, image by image.
//! `--synthetic plain20|resnet50|tiny` makes a network of that shape with random weights and inputs instead.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[path = "../src/two_party/tests/builder.rs"]
mod builder;
#[path = "two_party_local/synthetic.rs"]
mod synthetic;

use hushnet_mpc::{Channel, OtKind, SilentSize, TcpChannel};
use hushnet_runtime::plan::PlanOptions;
use hushnet_runtime::two_party::network::{Network, ThrottledLink};
use hushnet_runtime::two_party::{
    predict, Layers, TwoPartyClient, TwoPartyModel, TwoPartyOptions, TwoPartyPlan,
};
use hushnet_runtime::{ClientSession, Compute, Input, InputData};
use std::io::BufRead;
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(Clone, Default)]
struct Options {
    plan: String,
    input: Option<String>,
    images: usize,
    threads: usize,
    group: Option<usize>,
    ot: Option<String>,
    network: Option<String>,
    repeat: usize,
    synthetic: Option<String>,
    serve: bool,
}

fn options() -> Options {
    let mut o = Options { images: 1, threads: 1, repeat: 1, ..Options::default() };
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        if a == "--serve" {
            o.serve = true;
            continue;
        }
        let v = args.next().unwrap_or_else(|| panic!("{a} needs a value"));
        match a.as_str() {
            "--plan" => o.plan = v,
            "--input" => o.input = Some(v),
            "--images" => o.images = v.parse().unwrap(),
            "--threads" => o.threads = v.parse().unwrap(),
            "--group" => o.group = Some(v.parse().unwrap()),
            "--repeat" => o.repeat = v.parse().unwrap(),
            "--ot" => o.ot = Some(v),
            "--network" => o.network = Some(v),
            "--synthetic" => o.synthetic = Some(v),
            _ => panic!("unknown option {a}"),
        }
    }
    o
}

fn kind(name: &str) -> OtKind {
    match name {
        "iknp" => OtKind::Iknp,
        "softspoken" => OtKind::SoftSpoken,
        "silent-small" => OtKind::Silent(SilentSize::Small),
        "silent-large" => OtKind::Silent(SilentSize::Large),
        "silent" => OtKind::SILENT,
        _ => panic!("unknown OT {name}"),
    }
}

fn channel(stream: TcpStream, o: &Options) -> Box<dyn Channel> {
    match o.network.as_deref().and_then(Network::named) {
        Some(network) => Box::new(ThrottledLink::over_tcp(stream, network).unwrap()),
        None => Box::new(TcpChannel::from_stream(stream).unwrap()),
    }
}

/// The server process: says its port, serves one session, prints its trace.
fn serve(o: &Options) {
    let start = Instant::now();
    let plan = TwoPartyPlan::load(Path::new(&o.plan), &PlanOptions::default()).unwrap();
    let model = TwoPartyModel::new(&plan, Compute::with_threads(o.threads).unwrap()).unwrap();
    let prepared = start.elapsed().as_secs_f64();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    let trace = model.serve_plain(channel(listener.accept().unwrap().0, o), &mut |_| {}).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&trace.to_json()).unwrap();
    println!(
        "{}",
        serde_json::json!({"trace": trace, "prepare_seconds": prepared, "weight_bytes": model.weight_bytes()})
    );
}

fn input(o: &Options, elements: usize, amplitude: f64) -> Vec<f32> {
    match &o.input {
        Some(path) => {
            let bytes = std::fs::read(path).unwrap();
            bytes.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
        }
        None => {
            let mut rng = builder::Rng(7);
            (0..o.images * elements).map(|_| rng.real(amplitude) as f32).collect()
        }
    }
}

fn main() {
    let mut o = options();
    if o.serve {
        return serve(&o);
    }
    if let Some(name) = &o.synthetic {
        let file = std::env::temp_dir().join(format!("hushnet-{name}-{}.hush", std::process::id()));
        std::fs::write(&file, synthetic::plan(name)).unwrap();
        o.plan = String::from(file.to_str().unwrap());
    }
    let mut args: Vec<String> =
        vec!["--serve".into(), "--plan".into(), o.plan.clone(), "--threads".into(), o.threads.to_string()];
    if let Some(n) = &o.network {
        args.extend(["--network".into(), n.clone()]);
    }
    let mut child =
        Command::new(std::env::current_exe().unwrap()).args(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.next().unwrap().unwrap();
    let stream = TcpStream::connect(&address).unwrap();
    let options = TwoPartyOptions {
        ot: o.ot.as_deref().map(kind),
        group: o.group,
        expected_images: Some(o.images),
        compute: Compute::with_threads(o.threads).unwrap(),
        ..TwoPartyOptions::default()
    };
    let start = Instant::now();
    let mut client = TwoPartyClient::open(channel(stream, &o), options).unwrap();
    let open = start.elapsed().as_secs_f64();
    let plan = client.plan().clone();
    let (layers, ot) = (Layers::new(&plan).unwrap(), client.ot());
    let tensor = &plan.tensors()[plan.inputs()[0].tensor];
    let data = input(&o, tensor.elements, 0.9);
    let given = Input {
        name: &plan.inputs()[0].name,
        shape: [&[o.images], tensor.shape.as_slice()].concat(),
        data: InputData::F32(&data),
    };
    let mut traces = Vec::new();
    let mut outputs = Vec::new();
    for _ in 0..o.repeat {
        let (out, trace) =
            client.infer(std::slice::from_ref(&given), &mut |_| ControlFlow::Continue(())).unwrap();
        outputs = out;
        traces.push(trace);
    }
    client.close().unwrap();
    let server: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    child.wait().unwrap();
    if o.synthetic.is_some() {
        let _ = std::fs::remove_file(&o.plan);
    }
    let trace = traces.last().unwrap();
    let p = predict(&plan, &layers, ot, trace.images.div_ceil(trace.groups));
    let network = o.network.as_deref().and_then(Network::named);
    let seconds: Vec<f64> = traces.iter().map(|t| t.total.seconds).collect();
    let json = serde_json::json!({
        "plan": plan.name(), "images": o.images, "threads_per_party": o.threads, "processes": 2,
        "network": o.network.as_deref().unwrap_or("loopback"), "seconds": seconds.last(), "seconds_all": seconds, "open_seconds": open,
        "bytes": trace.total.bytes_up + trace.total.bytes_down, "setup_bytes": trace.setup.bytes_up + trace.setup.bytes_down,
        "he_bytes": p.he_bytes, "ot_bytes": p.ot_bytes, "rounds": trace.total.predicted.rounds,
        "network_seconds": network.map(|n| n.predict_seconds(&p, 0.0)),
        "client": serde_json::to_value(trace).unwrap(), "server": server,
        "first_outputs": outputs[0].data.iter().take(10).collect::<Vec<_>>(),
    });
    println!("{json}");
}
