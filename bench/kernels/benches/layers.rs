//! Word multiply-adds a second of whole layers (a band of some output rows), from packed request to packed response.
//! `RAYON_NUM_THREADS` sets the threads, `HUSHNET_SIMD` the instruction set.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use hushnet_layers::batch::{BatchLinear, Conv2d, Dense, Geometry, LayerError, Tile};
use hushnet_ring::{kernels, pack, simd};
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const WORDS: usize = 2048;
const BITS: u32 = 40;
const DROP: u32 = 14;

fn conv(channels: [usize; 2], size: [usize; 2], kernel: usize, stride: usize, groups: usize) -> Geometry {
    let pad = kernel / 2;
    let out = |n: usize| (n + 2 * pad - kernel) / stride + 1;
    Geometry::conv2d(Conv2d {
        input: [channels[0], size[0], size[1]],
        output: [channels[1], out(size[0]), out(size[1])],
        kernel: [kernel; 2],
        stride: [stride; 2],
        pads: [pad; 4],
        dilation: [1; 2],
        groups,
    })
    .unwrap()
}

fn layers() -> Vec<(&'static str, Geometry)> {
    let dense = |inputs, outputs| Geometry::dense(Dense { inputs, outputs }).unwrap();
    vec![
        ("dense 845 -> 100", dense(845, 100)),
        ("dense 100 -> 10", dense(100, 10)),
        ("dense 512 -> 512", dense(512, 512)),
        ("5x5 stride 2, 1 -> 5, 28x28", conv([1, 5], [28, 28], 5, 2, 1)),
        ("5x5, 1 -> 32, 5x28", conv([1, 32], [5, 28], 5, 1, 1)),
        ("3x3 stride 2, 3 -> 32, 5x48", conv([3, 32], [5, 48], 3, 2, 1)),
        ("3x3, 64 -> 64, 3x14", conv([64, 64], [3, 14], 3, 1, 1)),
        ("1x1, 96 -> 16, 4x24", conv([96, 16], [4, 24], 1, 1, 1)),
        ("1x1, 16 -> 96, 4x24", conv([16, 96], [4, 24], 1, 1, 1)),
        ("depthwise 3x3, 24, 5x24", conv([24, 24], [5, 24], 3, 1, 24)),
        ("depthwise 3x3 stride 2, 24, 5x24", conv([24, 24], [5, 24], 3, 2, 24)),
    ]
}

/// Seconds of all threads of this process on a processor, where Linux tells: steadier than the clock on a
/// machine that others use too.
fn processor_seconds() -> Option<f64> {
    let mut nanoseconds = 0.0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        nanoseconds += text.split(' ').next()?.parse::<f64>().ok()?;
    }
    Some(nanoseconds / 1e9)
}

/// Seconds of the best of many runs by the clock, and seconds of processor time of the mean run.
fn measure(mut f: impl FnMut()) -> (f64, f64) {
    f();
    let before = processor_seconds();
    let mut best = f64::INFINITY;
    let end = Instant::now() + Duration::from_millis(700);
    let mut runs = 0.0;
    while runs < 6.0 || Instant::now() < end {
        let start = Instant::now();
        f();
        best = best.min(start.elapsed().as_secs_f64());
        runs += 1.0;
    }
    let used = before.zip(processor_seconds()).map_or(f64::NAN, |(a, b)| (b - a) / runs);
    (best, used)
}

fn batch(c: &mut Criterion) {
    for (name, geometry) in layers() {
        let weights: Vec<i16> = (0..geometry.weights()).map(|i| (i * 89 % 255) as i16 - 127).collect();
        let layer = BatchLinear::new(geometry, &weights, &vec![1; geometry.biases()]).unwrap();
        let p = layer.prepare(simd::isa(), BITS).unwrap();
        let mut store = p.new_store(WORDS).unwrap();
        let rows = geometry.input_rows();
        let bytes = pack::packed_len(WORDS, BITS);
        let features = rows * geometry.input_row_features();
        let request: Vec<u8> = (0..features * bytes).map(|i| ((i * 97) >> 3) as u8).collect();
        let outputs = geometry.output_rows();
        let returned = outputs * geometry.output_row_features();
        let out_bytes = pack::packed_len(WORDS, BITS - DROP);
        let mut response = vec![0u8; returned * out_bytes];
        let tile = Tile { inputs: [0, rows], outputs: [0, outputs] };
        let mut run = |multiply: bool| {
            store.clear();
            let out: Vec<_> = response.chunks_mut(out_bytes).map(Mutex::new).collect();
            let fill = |position: usize, range: Range<usize>, words: &mut [u64]| {
                let at = position * bytes + range.start * BITS as usize / 8;
                let length = pack::packed_len(range.len(), BITS);
                pack::unpack(&request[at..at + length], BITS, words).unwrap();
                Ok::<(), LayerError>(())
            };
            let emit = |position: usize, range: Range<usize>, words: &mut [u64]| {
                kernels::drop_bits(simd::isa(), words, DROP, BITS).unwrap();
                let (k, at) = (BITS - DROP, range.start * (BITS - DROP) as usize / 8);
                let length = pack::packed_len(range.len(), k);
                pack::pack(words, k, &mut out[position].lock().unwrap()[at..at + length]).unwrap();
                Ok(())
            };
            let part = Tile { outputs: [0, if multiply { outputs } else { 0 }], ..tile };
            p.tile(&part, rows, &mut store, Some(20), fill, emit).unwrap();
        };
        let (storing, storing_cpu) = measure(|| run(false));
        let (seconds, cpu) = measure(|| run(true));
        let products = layer.word_products(0..outputs, WORDS);
        println!(
            "{name:32} {:5} {:5}: {:8.3} ms (storing {:7.3}) = {:6.2} G word-MAC/s; processor {:8.3} ms (storing {:7.3}) = {:6.2} G, {:6.2} G without",
            p.kernel().name(),
            if p.keeps_limbs() { "limbs" } else { "words" },
            seconds * 1e3,
            storing * 1e3,
            products as f64 / seconds / 1e9,
            cpu * 1e3,
            storing_cpu * 1e3,
            products as f64 / cpu / 1e9,
            products as f64 / (cpu - storing_cpu) / 1e9,
        );
        let mut group = c.benchmark_group("batch layer");
        group.throughput(Throughput::Elements(products)).sample_size(10);
        group.measurement_time(Duration::from_millis(500)).warm_up_time(Duration::from_millis(100));
        group.bench_function(name, |b| b.iter(|| run(true)));
    }
}

criterion_group!(benches, batch);
criterion_main!(benches);
