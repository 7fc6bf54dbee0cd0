//! Encrypted against exact evaluation, predicted against counted.

use super::*;
use crate::batch::{Conv2d, Dense, Geometry};
use hushnet_ring::Prg;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Deterministic numbers in [-1, 1).
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

pub(super) struct Builder {
    spec: GraphSpec,
    arrays: BTreeMap<String, Vec<f64>>,
    numbers: Numbers,
    /// Image that bounds are measured with.
    pub(super) image: Vec<f64>,
}

impl Builder {
    pub(super) fn new(shape: &[usize], seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let image = numbers.list(shape.iter().product(), 1.0);
        let tensor =
            TensorSpec { id: 0, name: "image".into(), shape: shape.to_vec(), bound: 1.0, usual: None };
        let spec = GraphSpec { input: 0, output: 0, tensors: vec![tensor], steps: Vec::new() };
        Self { spec, arrays: BTreeMap::new(), numbers, image }
    }

    fn tensor(&mut self, shape: Vec<usize>) -> usize {
        let id = self.spec.tensors.len();
        self.spec.tensors.push(TensorSpec { id, name: format!("t{id}"), shape, bound: 1.0, usual: None });
        self.spec.output = id;
        id
    }

    fn linear(&mut self, input: usize, geometry: Geometry) -> usize {
        let shape = match &geometry {
            Geometry::Dense(d) => vec![d.outputs],
            Geometry::Conv2d(c) => c.output.to_vec(),
        };
        let name = format!("linear{}", self.spec.steps.len());
        let (weights, bias) = (format!("{name}.w"), format!("{name}.b"));
        let size = 1.5 / (geometry.terms() as f64).sqrt();
        let values = self.numbers.list(geometry.weights(), size);
        self.arrays.insert(weights.clone(), values);
        let values = self.numbers.list(geometry.biases(), 0.3);
        self.arrays.insert(bias.clone(), values);
        let output = self.tensor(shape);
        self.spec.steps.push(StepSpec::Linear { name, input, output, geometry, weights, bias: Some(bias) });
        output
    }

    pub(super) fn conv(&mut self, input: usize, c: Conv2d) -> usize {
        self.linear(input, Geometry::conv2d(c).unwrap())
    }

    pub(super) fn dense(&mut self, input: usize, outputs: usize) -> usize {
        let inputs = self.spec.tensors[input].shape.iter().product();
        self.linear(input, Geometry::dense(Dense { inputs, outputs }).unwrap())
    }

    pub(super) fn polynomial(&mut self, input: usize, coefficients: &[f64]) -> usize {
        let output = self.tensor(self.spec.tensors[input].shape.clone());
        let name = format!("poly{}", self.spec.steps.len());
        let coefficients = coefficients.to_vec();
        self.spec.steps.push(StepSpec::Polynomial { name, input, output, coefficients, range: None });
        output
    }

    /// A polynomial that was fitted to [-range, range].
    pub(super) fn fitted(&mut self, input: usize, coefficients: &[f64], fit: f64) -> usize {
        let output = self.polynomial(input, coefficients);
        if let Some(StepSpec::Polynomial { range, .. }) = self.spec.steps.last_mut() {
            *range = Some(fit);
        }
        output
    }

    pub(super) fn add(&mut self, a: usize, b: usize) -> usize {
        let output = self.tensor(self.spec.tensors[a].shape.clone());
        let name = format!("add{}", self.spec.steps.len());
        self.spec.steps.push(StepSpec::Add { name, inputs: [a, b], output });
        output
    }

    /// `x q(x)` with q the polynomials one after the other.
    pub(super) fn composite(&mut self, input: usize, stages: &[&[f64]]) -> usize {
        let mut factor = input;
        for c in stages {
            factor = self.polynomial(factor, c);
            if let Some(StepSpec::Polynomial { input: x, range, .. }) = self.spec.steps.last_mut() {
                *range = (*x == input).then_some(1.0);
            }
        }
        let output = self.tensor(self.spec.tensors[input].shape.clone());
        let name = format!("product{}", self.spec.steps.len());
        self.spec.steps.push(StepSpec::Multiply { name, inputs: [input, factor], output, constant: 0.01 });
        output
    }

    /// A channel of the last layer's results that is `factor` times as large.
    pub(super) fn raise(&mut self, channel: usize, channels: usize, factor: f64) {
        self.weights_of_last(|values| {
            let row = values.len() / channels;
            values[channel * row..(channel + 1) * row].iter_mut().for_each(|w| *w *= factor);
        });
    }

    /// What the last layer, of 1x1 windows, reads of a channel counts `factor` times.
    pub(super) fn read_less(&mut self, channel: usize, channels: usize, factor: f64) {
        self.weights_of_last(|values| {
            values.iter_mut().skip(channel).step_by(channels).for_each(|w| *w *= factor);
        });
    }

    fn weights_of_last(&mut self, change: impl FnOnce(&mut Vec<f64>)) {
        let Some(StepSpec::Linear { weights, .. }) = self.spec.steps.last() else { return };
        let name = weights.clone();
        change(self.arrays.get_mut(&name).unwrap());
    }

    /// The network with a product of two tensors at its end, if it is one.
    pub(super) fn product_of(&mut self, a: usize, b: usize) -> Result<Network, PackedError> {
        let output = self.tensor(self.spec.tensors[a].shape.clone());
        self.spec.steps.push(StepSpec::Multiply {
            name: "product".into(),
            inputs: [a, b],
            output,
            constant: 0.0,
        });
        self.spec.check(&self.arrays)
    }

    /// Makes the weights of the last layer, which makes the tensor, smaller.
    pub(super) fn scaled(&mut self, tensor: usize, factor: f64) -> usize {
        let Some(StepSpec::Linear { weights, .. }) = self.spec.steps.last() else { return tensor };
        let name = weights.clone();
        self.arrays.get_mut(&name).into_iter().flatten().for_each(|w| *w *= factor);
        tensor
    }

    /// With bounds of twice what the image shows.
    /// The last dense layer: `factor` times as large weights, and biases that take the image's results to `results` from there.
    pub(super) fn centre(&mut self, factor: f64, results: f64) {
        let Some(StepSpec::Linear { weights, bias: Some(bias), .. }) = self.spec.steps.last() else { return };
        let (weights, bias) = (weights.clone(), bias.clone());
        self.arrays.get_mut(&weights).unwrap().iter_mut().for_each(|w| *w *= factor);
        let network = self.spec.check(&self.arrays).unwrap();
        let values = network.evaluate(&self.image).unwrap();
        let biases = self.arrays.get_mut(&bias).unwrap();
        for (b, v) in biases.iter_mut().zip(&values[network.output]) {
            *b += results - v;
        }
    }

    pub(super) fn network(&self) -> Network {
        let network = self.spec.check(&self.arrays).unwrap();
        let values = network.evaluate(&self.image).unwrap();
        let mut spec = self.spec.clone();
        for (t, v) in spec.tensors.iter_mut().zip(&values).skip(1) {
            t.bound = 2.0 * v.iter().fold(0.1f64, |m, x| m.max(x.abs()));
        }
        spec.check(&self.arrays).unwrap()
    }
}

pub(super) fn square_conv(
    channels: usize,
    side: usize,
    outputs: usize,
    kernel: usize,
    stride: usize,
    pad: usize,
) -> Conv2d {
    let out = (side + 2 * pad - kernel) / stride + 1;
    Conv2d {
        input: [channels, side, side],
        output: [outputs, out, out],
        kernel: [kernel; 2],
        stride: [stride; 2],
        pads: [pad; 4],
        dilation: [1; 2],
        groups: 1,
    }
}

#[test]
fn expected_errors_hold_and_are_not_far_too_wide() {
    let mut b = Builder::new(&[2, 8, 8], 21);
    let x = b.conv(0, square_conv(2, 8, 4, 3, 1, 1));
    let x = b.polynomial(x, &[0.1, 0.5, 0.2]);
    let y = b.conv(x, square_conv(4, 8, 4, 3, 1, 1));
    let x = b.add(y, x);
    let x = b.polynomial(x, &[0.1, 0.5, 0.128, 0.0, -0.01]);
    let x = b.conv(x, square_conv(4, 8, 6, 3, 2, 1));
    let x = b.polynomial(x, &[0.1, 0.4, 0.1, -0.03]);
    b.dense(x, 10);
    let mut numbers = Numbers(5);
    let images: Vec<Vec<f64>> = (0..24).map(|_| numbers.list(128, 1.0)).collect();
    let network = b.network();
    // Usual magnitudes: the largest root mean square of an element, over some images.
    let mut squares: Vec<Vec<f64>> = network.tensors.iter().map(|t| vec![0.0; t.len()]).collect();
    for image in &images {
        for (sums, values) in squares.iter_mut().zip(network.evaluate(image).unwrap()) {
            sums.iter_mut().zip(values).for_each(|(s, v)| *s += v * v / images.len() as f64);
        }
    }
    let mut spec = b.spec.clone();
    for ((t, known), sums) in spec.tensors.iter_mut().zip(&network.tensors).zip(&squares) {
        t.bound = known.bound.max(1.0) * 2.0;
        t.usual = Some(sums.iter().fold(0.0f64, |m, s| m.max(*s)).sqrt());
    }
    let network = spec.check(&b.arrays).unwrap();
    let circuit = Arc::new(Circuit::compile(&network, &options(512, Packing::Auto)).unwrap());
    let mut prg = Prg::from_seed([3; 16]);
    let client = Client::new(&circuit, &mut prg).unwrap();
    let keys = client.keys(&mut prg).unwrap();
    let server = Server::new(&circuit).unwrap();
    let mut worst = 0.0f64;
    for image in &images {
        let uploads = client.encrypt(image, &mut prg).unwrap();
        let answer = server.evaluate(uploads, &keys, &mut prg).unwrap().0;
        let exact = network.evaluate(image).unwrap();
        let got = client.decrypt(&answer).unwrap();
        for (got, want) in got.iter().zip(&exact[network.output]) {
            worst = worst.max((got - want).abs());
        }
    }
    let (expected, (bound, typical)) = (circuit.expected_error(), circuit.predicted_error());
    assert!(worst <= expected && expected <= 20.0 * worst, "{worst} of {expected}");
    assert!(expected <= typical && typical <= bound, "{expected} {typical} {bound}");
}

pub(super) fn options(ring_degree: usize, method: Packing) -> PackedOptions {
    PackedOptions { ring_degree, security: 0, method, ..PackedOptions::default() }
}

/// Runs both parties; checks counts and errors against the predictions.
pub(super) fn check(network: &Network, image: &[f64], options: &PackedOptions) -> (Arc<Circuit>, Vec<f64>) {
    let circuit = Arc::new(Circuit::compile(network, options).unwrap());
    let mut prg = Prg::from_seed([9; 16]);
    let client = Client::new(&circuit, &mut prg).unwrap();
    let keys = client.keys(&mut prg).unwrap();
    assert_eq!(keys.byte_len().unwrap(), circuit.key_bytes());
    assert_eq!(keys.rotations.to_bytes().unwrap().len(), keys.rotations.byte_len());
    let server = Server::new(&circuit).unwrap();
    assert_eq!(server.plaintext_bytes(), circuit.kept_bytes());
    assert_eq!(circuit.keeps_plaintexts(), circuit.kept_bytes() == circuit.plaintext_bytes());
    let uploads = client.encrypt(image, &mut prg).unwrap();
    assert_eq!(uploads.iter().map(|c| c.byte_len() as u64).sum::<u64>(), circuit.upload_bytes());
    let (answer, trace) = server.evaluate(uploads, &keys, &mut prg).unwrap();
    assert_eq!(trace.counts, circuit.counts());
    let output = client.decrypt(&answer).unwrap();
    let exact = network.evaluate(image).unwrap();
    let (bound, typical) = circuit.predicted_error();
    let wanted = network.tensors[network.output].bound * (-f64::from(options.precision_bits)).exp2();
    // With bootstraps it is the expected error that slots are chosen by.
    let chosen = if circuit.design().is_some() { circuit.expected_error() } else { typical };
    assert!(chosen <= wanted, "{chosen} > {wanted}");
    for (got, want) in output.iter().zip(&exact[network.output]) {
        assert!((got - want).abs() <= typical.min(bound), "{got} {want}: {typical} {bound}");
    }
    (circuit, output)
}

fn run(b: &Builder, ring_degree: usize) {
    let network = b.network();
    for method in [Packing::Auto, Packing::ChannelWise] {
        check(&network, &b.image, &options(ring_degree, method));
    }
}

#[test]
fn convolutions_of_every_shape_equal_exact_ones() {
    let shapes = [
        Conv2d { pads: [1, 0, 2, 1], output: [4, 10, 8], ..square_conv(3, 8, 4, 2, 1, 0) },
        square_conv(2, 9, 6, 3, 2, 1),
        Conv2d { groups: 2, ..square_conv(4, 6, 6, 3, 1, 1) },
        Conv2d { dilation: [2, 1], output: [3, 4, 4], ..square_conv(2, 8, 3, 3, 2, 1) },
        Conv2d { kernel: [1, 3], output: [40, 6, 4], ..square_conv(1, 6, 40, 1, 1, 0) },
    ];
    for (i, shape) in shapes.into_iter().enumerate() {
        let shape = match i {
            3 => Conv2d { output: [3, (8 + 2 - 5) / 2 + 1, (8 + 2 - 3) / 2 + 1], ..shape },
            _ => shape,
        };
        let mut b = Builder::new(&shape.input, i as u64 + 1);
        let x = b.conv(0, shape);
        let x = b.polynomial(x, &[0.1, 0.4, 0.3]);
        b.dense(x, 5);
        run(&b, 1024);
    }
}

#[test]
fn strides_leave_gaps_that_later_layers_use() {
    let mut b = Builder::new(&[2, 12, 12], 3);
    let x = b.conv(0, square_conv(2, 12, 4, 3, 2, 1));
    let x = b.polynomial(x, &[0.0, 0.0, 1.0]);
    let x = b.conv(x, square_conv(4, 6, 12, 3, 2, 1));
    let x = b.polynomial(x, &[0.0, 1.0, 0.5]);
    let x = b.conv(x, square_conv(12, 3, 3, 2, 1, 0));
    b.dense(x, 3);
    run(&b, 1024);
}

#[test]
fn polynomials_of_every_degree() {
    for degree in 1..=9usize {
        let mut b = Builder::new(&[20], degree as u64);
        let x = b.dense(0, 30);
        let c: Vec<f64> = (0..=degree).map(|k| [0.2, -0.5, 0.3, 0.25, -0.2][k % 5]).collect();
        let x = b.polynomial(x, &c);
        let x = b.dense(x, 7);
        b.polynomial(x, &[0.5, -2.0]);
        let network = b.network();
        let (circuit, _) = check(&network, &b.image, &options(256, Packing::Auto));
        let levels = [0, 1, 2, 2, 3, 3, 3, 4, 4][degree - 1];
        assert_eq!(circuit.params().max_level().get(), 1 + 2 + levels, "degree {degree}");
    }
}

#[test]
fn residual_additions_meet_in_one_layout_and_scale() {
    let mut b = Builder::new(&[2, 6, 6], 5);
    let x = b.conv(0, square_conv(2, 6, 4, 3, 1, 1));
    let x = b.polynomial(x, &[0.1, 0.5, 0.2]);
    let y = b.conv(x, square_conv(4, 6, 4, 3, 1, 1));
    let x = b.add(y, x);
    let x = b.polynomial(x, &[0.1, 0.5, 0.2]);
    let y = b.conv(x, square_conv(4, 6, 8, 3, 2, 1));
    let z = b.conv(x, square_conv(4, 6, 8, 1, 2, 0));
    let x = b.add(z, y);
    b.dense(x, 4);
    run(&b, 1024);
    // The input itself, and two layouts that differ.
    let mut b = Builder::new(&[2, 4, 4], 6);
    let x = b.add(0, 0);
    let y = b.conv(0, square_conv(2, 4, 2, 3, 1, 1));
    let x = b.add(x, y);
    b.polynomial(x, &[0.0, 0.3, 0.0, 0.2]);
    run(&b, 256);
}

#[test]
fn a_mean_pool_merged_into_the_second_convolution_is_summed_for_nothing() {
    let mut b = Builder::new(&[1, 8, 8], 8);
    let x = b.conv(0, square_conv(1, 8, 4, 3, 1, 1));
    let x = b.polynomial(x, &[0.0, 0.3, 0.5]);
    let x = b.conv(x, square_conv(4, 8, 6, 6, 2, 2));
    b.dense(x, 3);
    let StepSpec::Linear { weights, .. } = &b.spec.steps[2] else { unreachable!() };
    let merged: Vec<f64> = b.arrays[weights]
        .chunks(36)
        .flat_map(|k| (0..36).map(move |i| k[i / 12 * 12 + i % 6 / 2 * 2] / 4.0))
        .collect();
    let weights = weights.clone();
    b.arrays.insert(weights, merged);
    let network = b.network();
    let (circuit, _) = check(&network, &b.image, &options(1024, Packing::Auto));
    let members = circuit.program().ops.iter().find_map(|op| match op {
        Op::Polynomial { members, .. } => Some(*members),
        _ => None,
    });
    assert_eq!(members, Some(4));
    assert_eq!(circuit.counts().relinearisations, 1);
    check(&network, &b.image, &options(1024, Packing::ChannelWise));
}

#[test]
fn plaintexts_made_for_every_image_give_the_same_result() {
    let mut b = Builder::new(&[1, 8, 8], 4);
    let x = b.conv(0, square_conv(1, 8, 3, 3, 1, 1));
    let x = b.polynomial(x, &[0.0, 0.0, 1.0]);
    b.dense(x, 70);
    let network = b.network();
    let kept = options(256, Packing::Auto);
    let made = PackedOptions { memory_bytes: 0, ..kept.clone() };
    let (a, b_) = (check(&network, &b.image, &kept), check(&network, &b.image, &made));
    assert!(a.0.keeps_plaintexts() && !b_.0.keeps_plaintexts());
    let products = a.0.counts().plain_products;
    assert_eq!(Counts { encodings: products, ..a.0.counts() }, b_.0.counts());
    assert_eq!((a.0.encodings(), b_.0.encodings(), b_.0.kept_bytes()), (0, products, 0));
}

/// Limits from nothing to all: what is planned keeps to them, each image encodes what is planned, and more memory never takes more time.
#[test]
fn as_many_plaintexts_are_kept_as_memory_has_room_for() {
    let mut b = Builder::new(&[2, 8, 8], 4);
    let x = b.conv(0, square_conv(2, 8, 3, 3, 1, 1));
    let x = b.polynomial(x, &[0.0, 0.0, 1.0]);
    let x = b.conv(x, square_conv(3, 8, 4, 3, 1, 1));
    b.dense(x, 70);
    let network = b.network();
    let with = |memory_bytes| PackedOptions { memory_bytes, ..options(256, Packing::Auto) };
    let all = Circuit::compile(&network, &with(u64::MAX)).unwrap();
    let total = |c: &Circuit| c.client_bytes() + c.memory_bytes();
    assert!(all.keeps_plaintexts() && all.encodings() == 0);
    assert_eq!(all.kept_bytes(), all.plaintext_bytes());
    let least = total(&Circuit::compile(&network, &with(0)).unwrap());
    let (mut seconds, mut partly) = (f64::INFINITY, 0);
    for k in 0..=8 {
        let limit = least + (total(&all) - least) * k / 8;
        let (circuit, _) = check(&network, &b.image, &with(limit));
        assert!(total(&circuit) <= limit, "{} > {limit}", total(&circuit));
        assert!(circuit.predicted_seconds() <= seconds, "more memory, more time");
        seconds = circuit.predicted_seconds();
        partly += u32::from(circuit.encodings() > 0 && circuit.kept_bytes() > 0);
    }
    assert!(partly >= 4 && seconds == all.predicted_seconds());
}

/// The MNIST network of the SEAL/OpenFHE comparison.
fn mnist(activation: &[f64]) -> Builder {
    let mut b = Builder::new(&[1, 28, 28], 2);
    let x = b.conv(0, square_conv(1, 28, 5, 5, 2, 0));
    let x = b.polynomial(x, activation);
    let x = b.conv(x, square_conv(5, 12, 50, 5, 2, 0));
    let x = b.polynomial(x, activation);
    b.dense(x, 10);
    b
}

#[test]
fn the_published_mnist_networks_at_128_bits() {
    let square = mnist(&[0.0, 0.0, 1.0]);
    let network = square.network();
    let (circuit, _) = check(&network, &square.image, &PackedOptions::default());
    assert!(circuit.params().is_secure() && circuit.params().ring_degree() == 8192);
    assert!(circuit.key_bytes() <= 150_000_000 && circuit.memory_bytes() <= 1 << 30);
    // Zhu et al.: 25 + 6250 products and 24 + 5 * 24 rotations in the convolutions.
    let published =
        PackedOptions { method: Packing::ChannelWise, key_bytes: Some(u64::MAX), ..PackedOptions::default() };
    let published = Circuit::compile(&network, &published).unwrap().counts();
    assert!(published.plain_products >= 5 * 25 + 6250 && published.hoisted_rotations >= 144);
    assert!(circuit.counts().plain_products * 10 < published.plain_products);
    let fourth = mnist(&[0.1773, 0.5, 0.128, 0.0, -0.001_328]);
    check(&fourth.network(), &fourth.image, &PackedOptions::default());
}

#[test]
fn hidden_weights_take_wide_scales_and_a_flood() {
    let mut b = Builder::new(&[2, 6, 6], 12);
    let x = b.conv(0, square_conv(2, 6, 4, 3, 1, 1));
    let x = b.polynomial(x, &[0.1, 0.5, 0.2]);
    let x = b.conv(x, square_conv(4, 6, 4, 3, 2, 1));
    let x = b.polynomial(x, &[0.1, 0.5, 0.2, 0.0, 0.1]);
    b.dense(x, 5);
    let network = b.network();
    for method in [Packing::Auto, Packing::ChannelWise] {
        let options = PackedOptions { hide_weights: true, precision_bits: 6, ..options(512, method) };
        let (circuit, _) = check(&network, &b.image, &options);
        assert!(circuit.program().width >= 2);
        // The flood is 2^40 sqrt(2 N) above the error bound that ciphertexts carry without it.
        let bits = circuit.flood_bits().unwrap();
        assert!((60..=hushnet_rlwe::ckks::MAX_FLOOD_BITS).contains(&bits), "{bits}");
    }
    // Constants of other degrees are added at scales that integers of 128 bits hold, and sums of different scales meet.
    let mut c = Builder::new(&[2, 4, 4], 13);
    let x = c.conv(0, square_conv(2, 4, 2, 3, 1, 1));
    let y = c.polynomial(x, &[0.1, 0.5, 0.2]);
    let z = c.conv(y, square_conv(2, 4, 2, 1, 1, 0));
    let x = c.add(z, y);
    c.polynomial(x, &[0.3, 0.4, 0.1, -0.2, 0.0, 0.1, 0.05]);
    let wide = PackedOptions { hide_weights: true, precision_bits: 6, ..options(256, Packing::Auto) };
    check(&c.network(), &c.image, &wide);
    // What a flood does to the result is there: without one the error is far smaller.
    let plain = check(&network, &b.image, &options(512, Packing::Auto)).0;
    assert!(plain.flood_bits().is_none() && plain.program().width == 1);
}

#[test]
fn too_deep_networks_are_refused_with_layers_and_levels() {
    let mut b = Builder::new(&[4], 1);
    let mut x = 0;
    for _ in 0..40 {
        x = b.dense(x, 4);
        x = b.polynomial(x, &[0.0, 0.0, 1.0]);
    }
    let network = b.network();
    let never = PackedOptions { bootstrap: Bootstrapping::Never, ..PackedOptions::default() };
    let Err(error) = Circuit::compile(&network, &never) else { panic!("accepted") };
    let PackedError::Depth { depth: 80, layers, .. } = &error else { panic!("{error}") };
    assert!(layers.contains("'linear0' 1") && layers.contains("'poly79' 1"), "{layers}");
    let small = PackedOptions { ring_degree: 4096, ..PackedOptions::default() };
    let shallow = mnist(&[0.0, 0.0, 1.0]).network();
    assert!(matches!(Circuit::compile(&shallow, &small), Err(PackedError::Depth { depth: 5, .. })));
}

/// Primes near 2^b are so sparse at N = 32768 that the scale of a chain of squares leaves them unless they are chosen for it.
#[test]
fn long_chains_of_squares_keep_their_scale() {
    let chain = |squares: usize| {
        let mut b = Builder::new(&[4], 3);
        let mut x = 0;
        for _ in 0..squares {
            x = b.polynomial(x, &[0.0, 0.0, 1.0]);
        }
        b
    };
    // With 29 levels the table leaves scales for 8 bits.
    for (squares, precision_bits) in [(21, 10), (25, 10), (29, 8)] {
        let secure = PackedOptions { security: 128, precision_bits, ..options(32768, Packing::Auto) };
        let circuit = Circuit::compile(&chain(squares).network(), &secure).unwrap();
        assert!(circuit.params.is_secure());
        let scale = circuit.choices().scale;
        for outcome in circuit.outcomes() {
            assert!((outcome.scale / scale).log2().abs() < 0.25, "2^{}", outcome.scale_bits);
        }
    }
    // Constants between keep values from vanishing: y = 0.9 - y^2 again and again, computed.
    let mut b = Builder::new(&[4], 4);
    let mut x = 0;
    for _ in 0..12 {
        x = b.polynomial(x, &[0.9, 0.0, -1.0]);
    }
    check(&b.network(), &b.image, &options(4096, Packing::Auto));
}

#[test]
fn inputs_and_specifications_are_checked() {
    let mut b = Builder::new(&[20], 1);
    b.dense(0, 3);
    let network = b.network();
    let circuit = Arc::new(Circuit::compile(&network, &options(256, Packing::Auto)).unwrap());
    let mut prg = Prg::from_seed([1; 16]);
    let client = Client::new(&circuit, &mut prg).unwrap();
    assert!(matches!(
        client.encrypt(&[0.0; 19], &mut prg),
        Err(PackedError::InputLength { expected: 20, got: 19 })
    ));
    let mut image = vec![0.0; 20];
    for bad in [1.5, f64::NAN, f64::INFINITY] {
        image[7] = bad;
        assert!(matches!(client.encrypt(&image, &mut prg), Err(PackedError::InputRange { index: 7, .. })));
    }
    assert!(matches!(client.decrypt(&[]), Err(PackedError::Message { .. })));
    let keys = client.keys(&mut prg).unwrap();
    let server = Server::new(&circuit).unwrap();
    assert!(matches!(server.evaluate(vec![], &keys, &mut prg), Err(PackedError::Message { .. })));

    let broken = |change: &dyn Fn(&mut GraphSpec)| {
        let mut spec = b.spec.clone();
        change(&mut spec);
        spec.check(&b.arrays).is_err()
    };
    assert!(!broken(&|_| ()));
    assert!(broken(&|s| s.output = 9));
    assert!(broken(&|s| s.output = 0));
    assert!(broken(&|s| s.tensors[0].bound = f64::NAN));
    assert!(broken(&|s| s.tensors[0].shape = vec![usize::MAX, 2]));
    assert!(broken(&|s| s.tensors[1].id = 0));
    assert!(broken(&|s| s.steps.push(s.steps[0].clone())));
    assert!(broken(&|s| s.steps.clear()));
    let json = serde_json::to_string(&b.spec).unwrap();
    assert_eq!(GraphSpec::from_json(&json).unwrap(), b.spec);
    assert!(GraphSpec::from_json(&json.replace("\"kind\":\"linear\"", "\"kind\":\"other\"")).is_err());
}

#[test]
fn outputs_that_read_nothing_but_padding_or_zeros_are_the_bias() {
    // 1x1 kernels, stride 2 and padding 1 on a 1x1 map: all four windows lie in the padding
    let mut b = Builder::new(&[1, 3, 3], 0);
    let x = b.conv(0, square_conv(1, 3, 1, 3, 1, 0));
    let x = b.conv(x, square_conv(1, 1, 1, 1, 2, 1));
    let x = b.polynomial(x, &[0.25, 0.5, 0.125]);
    b.dense(x, 1);
    run(&b, 512);
    b.arrays.values_mut().for_each(|v| v.fill(0.0));
    run(&b, 512);
}

#[test]
fn zero_weights_and_unused_outputs_cost_nothing() {
    let mut b = Builder::new(&[16], 1);
    let x = b.dense(0, 16);
    b.polynomial(x, &[0.0, 0.0, 1.0]);
    b.dense(x, 4);
    for v in b.arrays.values_mut() {
        for (i, w) in v.iter_mut().enumerate() {
            if i % 17 != 0 {
                *w = 0.0;
            }
        }
    }
    let network = b.network();
    let (circuit, _) = check(&network, &b.image, &options(128, Packing::Auto));
    assert_eq!(circuit.counts().ciphertext_products, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn random_networks_equal_exact_evaluation(
        seed in any::<u64>(),
        channels in 1usize..4,
        side in 3usize..9,
        layers in proptest::collection::vec((1usize..6, 1usize..4, 1usize..3, 0usize..2, 1usize..5), 1..3),
        outputs in 1usize..20,
    ) {
        let mut b = Builder::new(&[channels, side, side], seed);
        let (mut x, mut shape) = (0, [channels, side, side]);
        for (maps, kernel, stride, pad, degree) in layers {
            if shape[1] + 2 * pad < kernel {
                continue;
            }
            let conv = square_conv(shape[0], shape[1], maps, kernel, stride, pad);
            shape = conv.output;
            x = b.conv(x, conv);
            let c = b.numbers.list(degree + 1, 0.5);
            x = b.polynomial(x, &c);
        }
        b.dense(x, outputs);
        run(&b, 512);
    }
}
