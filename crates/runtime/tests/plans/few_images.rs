//! Client-aided inference on few images: exact, with the bytes that the plan says, over pipes and sockets, whatever a peer sends.

use crate::common::{compare, conv, inputs, load, load_with, op, small_net, Batch, Builder, Linear, Rng};
use hushnet_runtime::channel::{pipe, Channel};
use hushnet_runtime::plan::{Limits, Plan, PlanOptions};
use hushnet_runtime::transport::{connect, ConnectOptions, Server, ServerOptions};
use hushnet_runtime::wire::{Begin, Block, FrameBuilder, Hello, Kind, HEADER, PROTOCOL};
use hushnet_runtime::{Client, ClientOptions, ClientSession, Compute, Error, PlanError, ServerPlan};
use serde_json::json;
use std::ops::ControlFlow;

const N: usize = 2048;

/// Strides, groups, a residual sum, a pool, two layers from one tensor, several tiles.
fn residual_net() -> Builder {
    let o = Linear { weight_bits: 8, ..Linear::default() };
    let mut b = Builder::new(N, 11);
    let image = b.input("image", &[3, 40, 40]);
    let q = b.fixed(&[3, 40, 40], 0.01, 127);
    b.client(vec![op("quantize", &[image], q)]);
    let acc = b.linear(q, conv([3, 40, 40], 8, [3, 3], [1, 1], [1, 1, 1, 1], [1, 1], 1), &o);
    let requantise = |b: &mut Builder, acc: usize| {
        let shape = b.shape(acc);
        let (real, relu) = (b.real(&shape), b.real(&shape));
        let reach =
            b.tensors[acc]["scale"].as_f64().unwrap() * b.tensors[acc]["bound"].as_u64().unwrap() as f64;
        let q = b.fixed(&shape, reach / 120.0, 127);
        b.client(vec![op("dequantize", &[acc], real), op("relu", &[real], relu), op("quantize", &[relu], q)]);
        q
    };
    let q = requantise(&mut b, acc);
    let left = b.linear(q, conv([8, 40, 40], 8, [3, 3], [2, 2], [1, 1, 1, 1], [1, 1], 4), &o);
    let right = b.linear(q, conv([8, 40, 40], 8, [1, 1], [2, 2], [0, 0, 0, 0], [1, 1], 1), &o);
    let [l, r, sum] = std::array::from_fn(|_| b.real(&[8, 20, 20]));
    let q = b.fixed(&[8, 20, 20], 0.5, 30000);
    b.client(vec![
        op("dequantize", &[left], l),
        op("dequantize", &[right], r),
        op("add", &[l, r], sum),
        op("quantize", &[sum], q),
    ]);
    let acc = b.linear(q, conv([8, 20, 20], 5, [5, 3], [3, 2], [0, 1, 0, 1], [2, 1], 1), &o);
    let shape = b.shape(acc);
    let out = b.real(&shape);
    b.client(vec![op("dequantize", &[acc], out)]);
    b.output("out", out);
    b
}

#[test]
fn results_are_those_of_the_oracle_whatever_the_number_of_images() {
    for (builder, amplitude) in [(residual_net(), 1.2), (small_net(N, 3, &Linear::default()), 0.9)] {
        let plan = builder.few_images();
        // In a second run of the session, and in a second block.
        for images in [1, 3, 9] {
            let server = ServerPlan::new(&plan, Compute::default()).unwrap();
            let (near, mut far) = pipe();
            std::thread::scope(|scope| {
                scope.spawn(move || server.serve(&mut far, &mut |_| {}).unwrap());
                let mut client = Client::open(Box::new(near), ClientOptions::default()).unwrap();
                for run in 0..2 {
                    let batches = Batch::random(&plan, images, &mut Rng(run + 5), amplitude);
                    let (outputs, trace) =
                        client.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(())).unwrap();
                    compare(&builder, &batches, images, &outputs);
                    check_trace(&plan, &trace, images, run == 0);
                }
                client.close().unwrap();
            });
        }
    }
}

/// Exactly the bytes that follow from the plan, and noise below what the parameters allow.
fn check_trace(plan: &Plan, trace: &hushnet_runtime::Trace, images: usize, first: bool) {
    let blocks = images.div_ceil(plan.block_images());
    assert_eq!((trace.images, trace.blocks), (images, blocks));
    let (mut up, mut down, mut setup) = (0, 0, 0);
    for (stage, report) in plan.stages().iter().zip(&trace.stages) {
        let Some(layer) = stage.coefficients() else { continue };
        let requests = layer.tiles() * (HEADER + layer.request_bytes()) * images;
        let responses: usize =
            (0..layer.tiles()).map(|t| HEADER + layer.response_bytes(t)).sum::<usize>() * images;
        assert_eq!((report.bytes_up, report.bytes_down), (requests as u64, responses as u64));
        let sums = if first { HEADER + layer.setup_bytes() } else { 0 };
        assert_eq!(report.setup_bytes_down, sums as u64);
        assert!(report.noise_margin_bits.unwrap() > 0.5, "{}", layer.name);
        (up, down, setup) = (up + report.bytes_up, down + report.bytes_down, setup + report.setup_bytes_down);
    }
    assert!(trace.bytes_up > up && trace.bytes_up < up + 32 * blocks as u64);
    assert_eq!((trace.bytes_down, trace.setup_bytes_down), (down, setup));
}

#[test]
fn weights_that_are_not_kept_give_the_same() {
    let builder = residual_net();
    let plan = builder.few_images();
    let batches = Batch::random(&plan, 2, &mut Rng(1), 1.0);
    let all: usize = plan
        .stages()
        .iter()
        .filter_map(|s| s.coefficients())
        .map(|l| l.stage.layout().prepared_bytes())
        .sum();
    for room in [0, all / 2, all] {
        let server = ServerPlan::with_memory(&plan, Compute::default(), room).unwrap();
        let (near, mut far) = pipe();
        std::thread::scope(|scope| {
            scope.spawn(move || server.serve(&mut far, &mut |_| {}).unwrap());
            let mut client = Client::open(Box::new(near), ClientOptions::default()).unwrap();
            let (outputs, _) = client.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(())).unwrap();
            compare(&builder, &batches, 2, &outputs);
        });
    }
}

#[test]
fn sockets_of_both_kinds() {
    let builder = small_net(N, 3, &Linear::default());
    let plan = builder.few_images();
    let server =
        Server::start(ServerPlan::new(&plan, Compute::default()).unwrap(), &ServerOptions::default())
            .unwrap();
    for carrier in ["hush", "ws"] {
        let connection =
            connect(&format!("{carrier}://{}", server.address()), &ConnectOptions::default()).unwrap();
        let mut client = Client::open(Box::new(connection), ClientOptions::default()).unwrap();
        let batches = Batch::random(&plan, 2, &mut Rng(8), 0.9);
        let (outputs, _) = client.infer(&inputs(&batches), &mut |_| ControlFlow::Continue(())).unwrap();
        compare(&builder, &batches, 2, &outputs);
        client.close().unwrap();
    }
    server.stop();
    server.join().unwrap();
}

/// What a client says after the greeting, and what the server's error has in it.
#[test]
fn clients_that_misbehave_get_a_protocol_error() {
    let wide = Linear { weight_bits: 15, dtype: "I16", ..Linear::default() };
    let plan = small_net(N, 3, &wide).few_images();
    let layer = plan.stages()[1].coefficients().unwrap();
    let request = |tile: u32, length: usize, word: u8| {
        let mut frame = FrameBuilder::reuse(Vec::new(), Kind::Request, 1, tile, length).unwrap();
        frame.payload_mut().fill(word);
        frame.finish()
    };
    let block = |images: usize| {
        FrameBuilder::message(Kind::Block, &Block { index: 0, images: images as u32 }).unwrap()
    };
    let setup = |stage: u32| FrameBuilder::reuse(Vec::new(), Kind::Setup, stage, 0, 0).unwrap().finish();
    let right = layer.request_bytes();
    let cases = [
        (vec![block(plan.block_images() + 1)], "out of order or too large"),
        (vec![block(1), request(0, right - 1, 0)], "the plan says"),
        (vec![block(1), request(1, right, 0)], "expected"),
        (vec![block(1), request(0, right, 0xff)], "not below the modulus"),
        (vec![setup(0)], "expected"),
        (vec![setup(1), setup(1)], "one Setup a session"),
    ];
    // Bits that leave no word above what p leaves would make the fourth case idle.
    assert!(layer.stage.params().bits().upload > 33);
    for (frames, told) in cases {
        let server = ServerPlan::new(&plan, Compute::default()).unwrap();
        let (mut near, mut far) = pipe();
        let result = std::thread::scope(|scope| {
            let served = scope.spawn(move || server.serve(&mut far, &mut |_| {}));
            let hello = Hello { protocol: PROTOCOL, ..Hello::default() };
            near.send(FrameBuilder::message(Kind::Hello, &hello).unwrap()).unwrap();
            near.recv().unwrap();
            let begin = Begin { seed: vec![1; 32], images: 0 };
            near.send(FrameBuilder::message(Kind::Begin, &begin).unwrap()).unwrap();
            for frame in frames {
                let sums = frame.kind() == Kind::Setup;
                near.send(frame).unwrap();
                if sums && near.recv().unwrap().kind() == Kind::SetupMask {
                    near.recv().unwrap();
                }
            }
            served.join().unwrap()
        });
        match result {
            Err(Error::Protocol(e)) => assert!(e.to_string().contains(told), "{told}: {e}"),
            other => panic!("{told}: {other:?}"),
        }
    }
}

#[test]
fn wrong_plans_are_refused() {
    let builder = small_net(N, 3, &Linear::default());
    let refused = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json = builder.few_images_json();
        change(&mut json);
        load(&json.to_string(), &builder.files).map(|_| ()).unwrap_err()
    };
    // One bit less than the proof needs, of each kind; more than there are.
    for (field, name) in [("upload_bits", "upload"), ("body_bits", "body"), ("mask_bits", "mask")] {
        for bits in [0u32, 12, 60, u32::MAX] {
            let e = refused(&|j| j["stages"][1][field] = bits.into());
            assert!(matches!(e, PlanError::Params { .. }), "{name} {bits}: {e}");
        }
    }
    let e = refused(&|j| j["engine"] = "batch".into());
    assert!(matches!(e, PlanError::Unsupported(_)), "{e}");
    let e = refused(&|j| j["params"]["ring_degree"] = 1024.into());
    assert!(matches!(e, PlanError::Params { .. }), "{e}");
    let e = refused(&|j| j["tensors"][2]["bound"] = 5.into());
    assert!(matches!(e, PlanError::Bound { .. }), "{e}");
    let e = refused(&|j| j["stages"][1]["geometry"]["output"] = json!([3, 3, 6]));
    assert!(matches!(e, PlanError::Linear { .. }), "{e}");
    // A batch plan's stage in a plan for few images.
    let e = refused(&|j| j["stages"][1] = builder.json()["stages"][1].clone());
    assert!(matches!(e, PlanError::Unsupported(_)), "{e}");
    // A public part is checked as far as it goes.
    let public = builder.few_images().public_part().unwrap();
    assert!(!Plan::from_bytes(&public, &PlanOptions::default()).unwrap().has_weights());
}

#[test]
fn what_a_client_would_hold_is_limited_before_it_is_allocated() {
    let builder = residual_net();
    let json = builder.few_images_json().to_string();
    for limits in [
        Limits { memory_bytes: 1 << 20, ..Limits::default() },
        Limits { tiles: 2, ..Limits::default() },
        Limits { layout_steps: 100, ..Limits::default() },
        Limits { frame_bytes: 1000, ..Limits::default() },
    ] {
        let options = PlanOptions { limits, ..PlanOptions::default() };
        let e = load_with(&json, &builder.files, &options).map(|_| ()).unwrap_err();
        assert!(matches!(e, PlanError::TooLarge { .. } | PlanError::Memory { .. }), "{e}");
    }
}
