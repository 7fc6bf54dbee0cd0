//! CryptoNets with squares, encrypted, 4096 images a batch, one thread: 5x5 convolution of stride 2 to 5 maps, x^2,
//! 845 -> 100, x^2, 100 -> 10. Weights are random integers, images random; the encrypted logits are
//! compared with exact ones and the time of every stage is printed.
//!
//! Scalars commute with every linear representation, so a layer is an exact integer product of the weights
//! with ciphertext words modulo 2^52 and one reduction a prime. Squares stay in three parts through the layer
//! that follows (lazy relinearisation): 100 relinearisations, fused with the only rescaling, instead of 945.
//!
//! Errors of different ciphertexts are treated as related in any way, which is rigorous and far too careful;
//! `--independent` predicts as if they were independent.
//!
//! `cargo run --release -p hushnet-rlwe --example cryptonets_square -- --independent`
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use hushnet_matmul::{Kernel, Prepared, Scratch, Weights};
use hushnet_ring::rns::{Eval, RnsPoly};
use hushnet_ring::{simd, Prg, Ring};
use hushnet_rlwe::ckks::client::KeyGenerator;
use hushnet_rlwe::ckks::*;
use std::time::Instant;

const SIDE: usize = 28;
const OUT_SIDE: usize = 13;
const MAPS: usize = 5;
const HIDDEN: usize = 100;
const CLASSES: usize = 10;
/// Powers of two that the weights are multiplied by, layer by layer.
const WEIGHT_BITS: [i32; 3] = [8, 10, 7];
/// Integer weights are at most this, layer by layer.
const LARGEST: [i64; 3] = [64, 32, 32];
/// Words of a limb that the first layers work on at a time.
const PIECE: usize = 64;
/// Calibrated bounds of the first and second layer's sums: the rigorous ones are far from what occurs.
const MAP_BOUND: f64 = 2.0;
const HIDDEN_BOUND: f64 = 2.0;
/// Sums are exact modulo 2^this.
const SUM_BITS: u32 = 52;

/// A dense integer layer on lists of ciphertexts.
struct Layer {
    prepared: Prepared,
    values: Vec<i16>,
    inputs: usize,
    scale: f64,
}

impl Layer {
    fn random(outputs: usize, inputs: usize, layer: usize, prg: &mut Prg) -> Self {
        let mut words = vec![0; outputs * inputs];
        prg.fill_words(&mut words);
        let width = 2 * LARGEST[layer] + 1;
        let values: Vec<i16> =
            words.iter().map(|w| ((w >> 32) as i64 % width - LARGEST[layer]) as i16).collect();
        let weights = Weights::new(outputs, inputs, &values).unwrap();
        let kernel = Kernel::whole_words(simd::isa(), SUM_BITS);
        let prepared = Prepared::new(&weights, kernel, SUM_BITS, inputs).unwrap();
        Self { prepared, values, inputs, scale: f64::from(WEIGHT_BITS[layer]).exp2() }
    }

    /// Largest p-norm of a row.
    fn norm(&self, p: i32) -> f64 {
        let sum = |row: &[i16]| {
            row.iter().map(|w| f64::from(*w).abs().powi(p)).sum::<f64>().powf(1.0 / f64::from(p))
        };
        self.values.chunks(self.inputs).map(sum).fold(0.0, f64::max)
    }

    /// Rows of weights times words modulo prime `i`; `None` is a zero (padding).
    fn apply(
        &self,
        params: &CkksParams,
        i: usize,
        inputs: &[Option<&[u64]>],
        out: &mut [&mut [u64]],
        scratch: &mut Scratch,
    ) {
        self.prepared.multiply(inputs, &[], out, scratch).unwrap();
        for o in out {
            params.basis().residues_of_wrapped(o, SUM_BITS, i).unwrap();
        }
    }

    /// Scale, bound and noise of what [`Self::apply`] makes of ciphertexts.
    fn track(&self, params: &CkksParams, t: Track, independent: bool) -> Track {
        let widest = (0..params.max_level().get()).map(|i| params.data_prime(i)).max().unwrap();
        assert!(self.norm(1) * (widest as f64) < f64::from(SUM_BITS - 1).exp2(), "sums would wrap");
        let growth = if independent { self.norm(2) } else { self.norm(1) };
        Track { scale: t.scale * self.scale, bound: t.bound * self.norm(1) / self.scale, sd: t.sd * growth }
    }

    /// The same on numbers.
    fn apply_plain(&self, x: &[f64]) -> Vec<f64> {
        let dot = |row: &[i16]| row.iter().zip(x).map(|(w, v)| f64::from(*w) * v).sum::<f64>() / self.scale;
        self.values.chunks(self.inputs).map(dot).collect()
    }
}

/// Pixel index of tap `t` at output position `p`, or `None` in the padding (one column right, one row below).
fn tap(p: usize, t: usize) -> Option<usize> {
    let (y, x) = (p / OUT_SIDE * 2 + t / 5, p % OUT_SIDE * 2 + t % 5);
    (y < SIDE && x < SIDE).then_some(y * SIDE + x)
}

/// Seconds that this thread has run, where the system tells (Linux); a loaded machine does not change them much.
fn cpu_seconds() -> Option<f64> {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(line.split(' ').next()?.parse::<f64>().ok()? * 1e-9)
}

/// Seconds by stage, in order of first use: of the processor where known, else of the wall clock.
struct Clock {
    stages: Vec<(&'static str, f64)>,
    start: Instant,
}

impl Clock {
    fn new() -> Self {
        Self { stages: Vec::new(), start: Instant::now() }
    }

    fn now(&self) -> f64 {
        cpu_seconds().unwrap_or_else(|| self.start.elapsed().as_secs_f64())
    }

    fn run<R>(&mut self, stage: &'static str, f: impl FnOnce() -> R) -> R {
        let start = self.now();
        let r = f();
        let seconds = self.now() - start;
        match self.stages.iter_mut().find(|s| s.0 == stage) {
            Some(s) => s.1 += seconds,
            None => self.stages.push((stage, seconds)),
        }
        r
    }
}

/// A ciphertext's bookkeeping.
#[derive(Clone, Copy)]
struct Track {
    scale: f64,
    bound: f64,
    sd: f64,
}

impl Track {
    fn of(c: &Ciphertext) -> Self {
        Self { scale: c.scale(), bound: c.bound(), sd: c.noise() }
    }

    fn square(self, params: &CkksParams) -> Self {
        let ring = (self.bound * self.scale, self.sd);
        Self {
            scale: self.scale * self.scale,
            bound: self.bound * self.bound,
            sd: params.noise().product(ring, ring),
        }
    }

    fn ciphertext(self, params: &CkksParams, parts: Vec<RnsPoly<Eval>>) -> Ciphertext {
        Ciphertext::from_parts(params, parts, self.scale, self.bound, self.sd).unwrap()
    }
}

struct Server {
    params: CkksParams,
    relin: RelinKey,
    layers: [Layer; 3],
    /// Whether to predict noise as if errors of different ciphertexts were independent.
    independent: bool,
}

impl Server {
    fn zeros(&self, count: usize, level: Level) -> Vec<Vec<RnsPoly<Eval>>> {
        let poly = || self.params.basis().zero(self.params.data_range(level)).unwrap();
        (0..count).map(|_| (0..3).map(|_| poly()).collect()).collect()
    }

    /// Convolution, squares and the second layer, pointwise in evaluation form: piece by piece of every limb, so
    /// that what lies between pixels and sums never leaves the cache.
    fn first_layers(&self, pixels: &[Ciphertext], clock: &mut Clock) -> Vec<Ciphertext> {
        let [conv, hidden, _] = &self.layers;
        let (level, n, maps) = (pixels[0].level(), self.params.ring_degree(), MAPS * OUT_SIDE * OUT_SIDE);
        let mut scratch = Scratch::new();
        let mut sums = self.zeros(HIDDEN, level);
        let mut features = vec![0u64; 2 * maps * PIECE];
        let mut squares = vec![0u64; 3 * maps * PIECE];
        for i in self.params.data_range(level) {
            for at in (0..n).step_by(PIECE) {
                clock.run("convolution", || {
                    for part in 0..2 {
                        for (p, out) in features[part * maps * PIECE..][..maps * PIECE]
                            .chunks_mut(MAPS * PIECE)
                            .enumerate()
                        {
                            let rows: Vec<Option<&[u64]>> = (0..25)
                                .map(|t| tap(p, t).map(|x| &pixels[x].parts()[part].limb(i)[at..at + PIECE]))
                                .collect();
                            let mut out: Vec<&mut [u64]> = out.chunks_mut(PIECE).collect();
                            conv.apply(&self.params, i, &rows, &mut out, &mut scratch);
                        }
                    }
                });
                clock.run("first squares", || {
                    let (c0, c1) = features.split_at(maps * PIECE);
                    let (s0, rest) = squares.split_at_mut(maps * PIECE);
                    let (s1, s2) = rest.split_at_mut(maps * PIECE);
                    self.params.basis().square_words(i, [s0, s1, s2], [c0, c1]).unwrap();
                });
                clock.run("845 -> 100", || {
                    for (part, words) in squares.chunks(maps * PIECE).enumerate() {
                        let rows: Vec<Option<&[u64]>> = words.chunks(PIECE).map(Some).collect();
                        let mut out: Vec<&mut [u64]> =
                            sums.iter_mut().map(|s| &mut s[part].limb_mut(i)[at..at + PIECE]).collect();
                        hidden.apply(&self.params, i, &rows, &mut out, &mut scratch);
                    }
                });
            }
        }
        // Fresh encryptions have independent errors.
        let track = conv.track(&self.params, Track::of(&pixels[0]), true);
        let track = Track { bound: track.bound.min(MAP_BOUND), ..track }.square(&self.params);
        let track = hidden.track(&self.params, track, self.independent);
        sums.into_iter().map(|parts| track.ciphertext(&self.params, parts)).collect()
    }

    fn infer(&self, pixels: &[Ciphertext], clock: &mut Clock) -> Vec<Ciphertext> {
        let e = Evaluator::new(&self.params);
        let sums = self.first_layers(pixels, clock);
        let squares: Vec<Ciphertext> = sums
            .iter()
            .map(|c| {
                let c = clock.run("relinearise, rescale", || e.relinearise_rescale(c, &self.relin).unwrap());
                let c = c.with_bound(HIDDEN_BOUND).unwrap();
                clock.run("second squares", || e.square(&c).unwrap())
            })
            .collect();
        let last = &self.layers[2];
        let level = squares[0].level();
        let mut logits = self.zeros(CLASSES, level);
        clock.run("100 -> 10", || {
            let mut scratch = Scratch::new();
            for part in 0..3 {
                for i in self.params.data_range(level) {
                    let rows: Vec<Option<&[u64]>> =
                        squares.iter().map(|c| Some(c.parts()[part].limb(i))).collect();
                    let mut out: Vec<&mut [u64]> = logits.iter_mut().map(|s| s[part].limb_mut(i)).collect();
                    last.apply(&self.params, i, &rows, &mut out, &mut scratch);
                }
            }
        });
        let track = last.track(&self.params, Track::of(&squares[0]), self.independent);
        logits.into_iter().map(|parts| track.ciphertext(&self.params, parts)).collect()
    }

    fn infer_plain(&self, image: &[f64]) -> Vec<f64> {
        let [conv, hidden, last] = &self.layers;
        let mut maps = vec![0.0; MAPS * OUT_SIDE * OUT_SIDE];
        for p in 0..OUT_SIDE * OUT_SIDE {
            let taps: Vec<f64> = (0..25).map(|t| tap(p, t).map_or(0.0, |i| image[i])).collect();
            for (map, y) in conv.apply_plain(&taps).into_iter().enumerate() {
                assert!(y.abs() <= MAP_BOUND, "calibrated bound too small");
                maps[p * MAPS + map] = y * y;
            }
        }
        let hidden = hidden.apply_plain(&maps);
        assert!(hidden.iter().all(|y| y.abs() <= HIDDEN_BOUND), "calibrated bound too small");
        let hidden: Vec<f64> = hidden.iter().map(|y| y * y).collect();
        last.apply_plain(&hidden)
    }
}

fn argmax(v: &[f64]) -> usize {
    (0..v.len()).fold(0, |best, i| if v[i] > v[best] { i } else { best })
}

fn main() {
    let spec = CkksSpec {
        ring_degree: 8192,
        ring: Ring::Cyclotomic,
        data_primes: vec![PrimeSpec::Near(36); 3],
        special_primes: vec![PrimeSpec::Near(38)],
        scale_bits: 18,
        digits: 3,
    };
    let params = spec.check().unwrap();
    let mut prg = Prg::from_seed([7; 16]);
    let keys = KeyGenerator::new(&params);
    let secret = keys.secret_key(&mut prg).unwrap();
    let relin = keys.relin_key(&secret, &mut prg).unwrap();
    let layers = [
        Layer::random(MAPS, 25, 0, &mut prg),
        Layer::random(HIDDEN, MAPS * OUT_SIDE * OUT_SIDE, 1, &mut prg),
        Layer::random(CLASSES, HIDDEN, 2, &mut prg),
    ];
    let kernels: Vec<&str> = layers.iter().map(|l| l.prepared.kernel().name()).collect();
    let independent = std::env::args().any(|a| a == "--independent");
    let server = Server { params: params.clone(), relin, layers, independent };
    let images = params.slots();
    let mut words = vec![0; images * SIDE * SIDE];
    prg.fill_words(&mut words);
    let pixel = |image: usize, i: usize| (words[i * images + image] >> 56) as f64 / 255.0;
    println!(
        "N = 8192, {:.1} bits of data primes, {images} images a batch, kernels {kernels:?}",
        params.modulus_bits(params.max_level())
    );
    for round in 0..5 {
        let mut clock = Clock::new();
        let encoder = Encoder::new(&params);
        let at = EncodeAt { level: params.max_level(), scale: params.scale(), bound: 1.0 };
        let pixels: Vec<Ciphertext> = (0..SIDE * SIDE)
            .map(|i| {
                let values: Vec<f64> = (0..images).map(|image| pixel(image, i)).collect();
                let plain = clock.run("client: encode", || encoder.encode(&values, at).unwrap());
                clock.run("client: encrypt", || secret.encrypt(&plain, &mut prg).unwrap())
            })
            .collect();
        let logits = server.infer(&pixels, &mut clock);
        let predicted = logits[0].error_bound();
        let logits: Vec<Vec<f64>> = clock.run("client: decrypt", || {
            logits.iter().map(|c| encoder.decode(&secret.decrypt(c).unwrap()).unwrap()).collect()
        });
        let total = |client: bool| -> f64 {
            clock.stages.iter().filter(|s| s.0.starts_with("client") == client).map(|s| s.1).sum()
        };
        let (client, work) = (total(true), total(false));
        for (stage, seconds) in &clock.stages {
            println!("  {stage:24} {:8.1} ms", seconds * 1e3);
        }
        let images = images as f64;
        println!(
            "  server {work:.3} s = {:.0} images/s; with the client {:.0}; wall clock of both {:.3} s",
            images / work,
            images / (work + client),
            clock.start.elapsed().as_secs_f64()
        );
        if round == 0 {
            check(&server, &logits, predicted, params.slots(), &pixel);
        }
    }
}

fn check(
    server: &Server,
    logits: &[Vec<f64>],
    predicted: f64,
    images: usize,
    pixel: &dyn Fn(usize, usize) -> f64,
) {
    let (mut worst, mut equal, mut largest) = (0.0f64, 0, 0.0f64);
    let checked: Vec<usize> = (0..images).step_by(16).collect();
    for &image in &checked {
        let x: Vec<f64> = (0..SIDE * SIDE).map(|i| pixel(image, i)).collect();
        let expected = server.infer_plain(&x);
        let got: Vec<f64> = logits.iter().map(|l| l[image]).collect();
        equal += usize::from(argmax(&expected) == argmax(&got));
        for (g, e) in got.iter().zip(&expected) {
            worst = worst.max((g - e).abs());
            largest = largest.max(e.abs());
        }
    }
    println!(
        "  {equal} of {} predictions equal, largest logit {largest:.2}, largest error {worst:.2e}, predicted below {predicted:.2e}",
        checked.len()
    );
    assert!(worst <= predicted);
}
