//! The CNNs of the SEAL/OpenFHE comparison on one encrypted image, with random weights: time per stage, operations,
//! key bytes, peak memory, error.
//!
//! `cargo run --release -p hushnet-layers --example packed_cnn -- mnist-square|mnist-deg2|mnist-deg4|cifar10-square|cifar10-deg2|cifar10-deg4
//! [channel-wise] [threads=T] [runs=R] [precision=BITS] [degree=N] [keys=MB] [hide]`
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use hushnet_layers::packed::{Circuit, Client, GraphSpec, Network, PackedOptions, Packing, Server, Step};
use hushnet_ring::Prg;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Uniform numbers in [-1, 1).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
    fn list(&mut self, count: usize, size: f64) -> Vec<f64> {
        (0..count).map(|_| self.next() * size).collect()
    }
}

struct Builder {
    tensors: Vec<String>,
    steps: Vec<String>,
    arrays: BTreeMap<String, Vec<f64>>,
    numbers: Numbers,
}

impl Builder {
    fn tensor(&mut self, shape: &[usize], bound: f64) -> usize {
        let id = self.tensors.len();
        self.tensors.push(format!(r#"{{"id":{id},"name":"t{id}","shape":{shape:?},"bound":{bound:?}}}"#));
        id
    }

    fn conv(
        &mut self,
        from: usize,
        input: [usize; 3],
        output: [usize; 3],
        kernel: usize,
        stride: usize,
        pad: usize,
    ) -> usize {
        let fan = input[0] * kernel * kernel;
        let weights = self.numbers.list(output[0] * fan, 1.2 / (fan as f64).sqrt());
        self.conv_of(from, input, output, kernel, stride, pad, weights)
    }

    #[allow(clippy::too_many_arguments)]
    fn conv_of(
        &mut self,
        from: usize,
        input: [usize; 3],
        output: [usize; 3],
        kernel: usize,
        stride: usize,
        pad: usize,
        weights: Vec<f64>,
    ) -> usize {
        let (name, out) = (format!("conv{}", self.steps.len()), self.tensor(&output, 7.0));
        let bias = self.numbers.list(output[0], 0.1);
        self.arrays.insert(format!("{name}.w"), weights);
        self.arrays.insert(format!("{name}.b"), bias);
        self.steps.push(format!(
            r#"{{"kind":"linear","name":"{name}","in":{from},"out":{out},"weights":"{name}.w","bias":"{name}.b","geometry":{{"type":"conv2d","input":{input:?},"output":{output:?},"kernel":[{kernel},{kernel}],"stride":[{stride},{stride}],"pads":[{pad},{pad},{pad},{pad}],"dilation":[1,1],"groups":1}}}}"#
        ));
        out
    }

    fn dense(&mut self, from: usize, inputs: usize, outputs: usize) -> usize {
        let (name, out) = (format!("fc{}", self.steps.len()), self.tensor(&[outputs], 32.0));
        let weights = self.numbers.list(outputs * inputs, 2.0 / (inputs as f64).sqrt());
        let bias = self.numbers.list(outputs, 0.1);
        self.arrays.insert(format!("{name}.w"), weights);
        self.arrays.insert(format!("{name}.b"), bias);
        self.steps.push(format!(
            r#"{{"kind":"linear","name":"{name}","in":{from},"out":{out},"weights":"{name}.w","bias":"{name}.b","geometry":{{"type":"dense","inputs":{inputs},"outputs":{outputs}}}}}"#
        ));
        out
    }

    fn activation(&mut self, from: usize, shape: &[usize], c: &[f64]) -> usize {
        let (name, out) = (format!("act{}", self.steps.len()), self.tensor(shape, 49.0));
        self.steps.push(format!(
            r#"{{"kind":"polynomial","name":"{name}","in":{from},"out":{out},"coefficients":{c:?},"range":7.0}}"#
        ));
        out
    }

    /// A convolution after a 2x2 mean, merged: 6x6, stride 2, pad 2.
    fn pooled(&mut self, from: usize, input: [usize; 3], output: [usize; 3]) -> usize {
        let fan = input[0] * 9;
        let small = self.numbers.list(output[0] * fan, 1.2 / (fan as f64).sqrt());
        let weights =
            small.chunks(9).flat_map(|k| (0..36).map(move |i| k[i / 6 / 2 * 3 + i % 6 / 2] / 4.0)).collect();
        self.conv_of(from, input, output, 6, 2, 2, weights)
    }

    fn finish(self, output: usize) -> Network {
        let json = format!(
            r#"{{"input":0,"output":{output},"tensors":[{}],"steps":[{}]}}"#,
            self.tensors.join(","),
            self.steps.join(",")
        );
        GraphSpec::from_json(&json).unwrap().check(&self.arrays).unwrap()
    }
}

fn network(name: &str) -> Network {
    let (model, activation) = name.split_once('-').unwrap();
    let c: &[f64] = match activation {
        "square" => &[0.0, 0.0, 1.0],
        "deg2" => &[0.24, 0.5, 0.1],
        "deg4" => &[0.1773, 0.5, 0.128, 0.0, -0.001_328],
        other => panic!("no activation {other}"),
    };
    let mut b =
        Builder { tensors: Vec::new(), steps: Vec::new(), arrays: BTreeMap::new(), numbers: Numbers(1) };
    if model == "mnist" {
        let x = b.tensor(&[1, 28, 28], 1.0);
        let x = b.conv(x, [1, 28, 28], [5, 12, 12], 5, 2, 0);
        let x = b.activation(x, &[5, 12, 12], c);
        let x = b.conv(x, [5, 12, 12], [50, 4, 4], 5, 2, 0);
        let x = b.activation(x, &[50, 4, 4], c);
        let x = b.dense(x, 800, 10);
        return b.finish(x);
    }
    let x = b.tensor(&[3, 32, 32], 1.0);
    let x = b.conv(x, [3, 32, 32], [32, 32, 32], 3, 1, 1);
    let x = b.activation(x, &[32, 32, 32], c);
    let x = b.pooled(x, [32, 32, 32], [64, 16, 16]);
    let x = b.activation(x, &[64, 16, 16], c);
    let x = b.pooled(x, [64, 16, 16], [128, 8, 8]);
    let x = b.activation(x, &[128, 8, 8], c);
    let x = b.dense(x, 128 * 64, 10);
    b.finish(x)
}

/// Peak resident memory of this process in MiB, where the system tells.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// Seconds that this thread has run, where the system tells, else wall-clock seconds since `start`.
fn cpu(start: Instant) -> f64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = line.and_then(|l| l.split(' ').next()?.parse::<f64>().ok());
    ns.map_or_else(|| start.elapsed().as_secs_f64(), |ns| ns * 1e-9)
}

#[allow(clippy::too_many_lines)] // What options say, then what was measured.
fn main() {
    let mut options = PackedOptions::default();
    let (mut name, mut threads, mut runs) = (String::from("mnist-square"), 1usize, 3usize);
    for arg in std::env::args().skip(1) {
        match arg.split_once('=') {
            Some(("threads", v)) => threads = v.parse().unwrap(),
            Some(("runs", v)) => runs = v.parse().unwrap(),
            Some(("precision", v)) => options.precision_bits = v.parse().unwrap(),
            Some(("keys", v)) => options.key_bytes = Some(v.parse::<u64>().unwrap() * 1_000_000),
            Some(("degree", v)) => options.ring_degree = v.parse().unwrap(),
            _ if arg == "channel-wise" => options.method = Packing::ChannelWise,
            _ if arg == "hide" => options.hide_weights = true,
            _ => name = arg,
        }
    }
    let net = network(&name);
    let begin = Instant::now();
    let circuit = Arc::new(Circuit::compile(&net, &options).unwrap());
    let p = circuit.params();
    let primes: Vec<f64> =
        (0..p.max_level().get()).map(|i| (p.data_prime(i) as f64).log2().round()).collect();
    let special: Vec<f64> = p.special_primes().iter().map(|q| (*q as f64).log2().round()).collect();
    println!(
        "{name}: N={} data {primes:?} special {special:?} keys to level {}",
        p.ring_degree(),
        p.key_level().get()
    );
    println!("compile {:.2} s; {:?}", begin.elapsed().as_secs_f64(), circuit.counts());
    for line in circuit.describe() {
        println!("  {line}");
    }
    let mut prg = Prg::from_os().unwrap();
    let begin = Instant::now();
    let server = Server::new(&circuit).unwrap();
    println!(
        "encode weights {:.2} s, {:.1} MiB",
        begin.elapsed().as_secs_f64(),
        server.plaintext_bytes() as f64 / 1048576.0
    );
    let begin = Instant::now();
    let client = Client::new(&circuit, &mut prg).unwrap();
    let keys = client.keys(&mut prg).unwrap();
    println!(
        "keys {:.2} s, {} rotations, {:.1} MB predicted, {:.1} MB counted; upload {:.2} MB",
        begin.elapsed().as_secs_f64(),
        circuit.rotations().len(),
        circuit.key_bytes() as f64 * 1e-6,
        keys.byte_len().unwrap() as f64 * 1e-6,
        circuit.upload_bytes() as f64 * 1e-6,
    );
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    for _ in 0..runs {
        let image = Numbers(7).list(net.tensors[net.input].len(), 1.0);
        let start = Instant::now();
        let (times, logits, trace) = pool.install(|| {
            let t0 = cpu(start);
            let uploads = client.encrypt(&image, &mut prg).unwrap();
            let t1 = cpu(start);
            let (answer, trace) = server.evaluate(uploads, &keys, &mut prg).unwrap();
            let t2 = cpu(start);
            let logits = client.decrypt(&answer).unwrap();
            ([t1 - t0, t2 - t1, cpu(start) - t2], logits, trace)
        });
        let exact = net.evaluate(&image).unwrap();
        let error = logits.iter().zip(&exact[net.output]).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let (worst, typical) = circuit.predicted_error();
        println!(
            "wall {:.4} s; cpu: encrypt {:.4}, evaluate {:.4}, decrypt {:.4} s; error {error:.2e} (typical {typical:.2e}, bound {worst:.2e})",
            start.elapsed().as_secs_f64(), times[0], times[1], times[2]
        );
        for s in &trace.steps {
            println!(
                "    {:24} {:.4} s  level {} scale 2^{:.2} error {:.1e}",
                s.name, s.seconds, s.level, s.scale_bits, s.error_bound
            );
        }
        assert_eq!(trace.counts, circuit.counts());
        for (step, name) in net.steps.iter().zip(&net.names) {
            if let Step::Polynomial { input, range, .. } = step {
                let largest = exact[*input].iter().fold(0.0f64, |m, v| m.max(v.abs()));
                println!("    {name}: largest input {largest:.2}, range {range}");
            }
        }
    }
    println!(
        "peak memory {:.0} MiB (predicted for the server {:.0})",
        peak_mib(),
        circuit.memory_bytes() as f64 / 1048576.0
    );
}
