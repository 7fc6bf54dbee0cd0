//! Circuits against numbers.

use super::*;
use crate::batch::{Conv2d, Dense, Geometry};
use hushnet_ring::{Prg, Ring};
use hushnet_rlwe::ckks::client::{KeyGenerator, SecretKey};
use hushnet_rlwe::ckks::*;
use proptest::prelude::*;
use std::ops::ControlFlow;

/// A circuit that is being written: levels, scales and bounds follow from the stages.
struct Writer {
    params: CkksParams,
    spec: CircuitSpec,
    prg: Prg,
}

impl Writer {
    fn new(params: &CkksParams, elements: usize, level: usize, scale: f64, seed: u8) -> Self {
        let tensors = vec![TensorSpec { elements, level, parts: 2, scale, bound: 1.0 }];
        let spec = CircuitSpec { tensors, inputs: vec![0], outputs: vec![], stages: vec![], complex: false };
        Self { params: params.clone(), spec, prg: Prg::from_seed([seed; 16]) }
    }

    fn uniform(&mut self, count: usize) -> Vec<f64> {
        let mut words = vec![0; count];
        self.prg.fill_words(&mut words);
        words.iter().map(|w| (*w >> 11) as f64 / 2f64.powi(52) - 1.0).collect()
    }

    fn push(&mut self, name: &str, inputs: Vec<usize>, out: TensorSpec, kind: StageKind) -> usize {
        let output = self.spec.tensors.len();
        self.spec.tensors.push(out);
        self.spec.stages.push(StageSpec { name: format!("{name}{output}"), inputs, output, kind });
        output
    }

    fn linear(&mut self, t: usize, geometry: Geometry, bits: u32) -> usize {
        let input = self.spec.tensors[t].clone();
        let largest = f64::from(bits).exp2() - 1.0;
        let weights: Vec<i16> =
            self.uniform(geometry.weights()).iter().map(|u| (u * largest).round() as i16).collect();
        let bias = self.uniform(geometry.biases());
        // Sums of magnitude around one.
        let unit = largest * geometry.terms() as f64;
        let l1 = weights
            .chunks(geometry.terms())
            .map(|r| r.iter().map(|w| f64::from(w.unsigned_abs())).sum::<f64>());
        let l1 = l1.fold(0.0, f64::max);
        let out = TensorSpec {
            elements: geometry.output_rows() * geometry.output_row_features(),
            scale: input.scale * unit,
            bound: (input.bound * l1 / unit).max(1e-3) + 1.0,
            ..input
        };
        let spec = CircuitLinear { geometry, weights: Some((weights, bias)) };
        self.push("linear", vec![t], out, StageKind::Linear(Box::new(spec)))
    }

    fn multiply(&mut self, a: usize, b: usize) -> usize {
        let (x, y) = (self.spec.tensors[a].clone(), self.spec.tensors[b].clone());
        let level = x.level.min(y.level);
        let out = TensorSpec { level, parts: 3, scale: x.scale * y.scale, bound: x.bound * y.bound, ..x };
        self.push("product", vec![a, b], out, StageKind::Multiply)
    }

    fn down(&mut self, t: usize, relinearise: bool, levels: usize) -> usize {
        let x = self.spec.tensors[t].clone();
        let q: f64 = (x.level - levels..x.level).map(|i| self.params.data_prime(i) as f64).product();
        let parts = if relinearise { 2 } else { x.parts };
        let out = TensorSpec { level: x.level - levels, parts, scale: x.scale / q, ..x };
        let kind = if relinearise { StageKind::Relinearise } else { StageKind::Rescale };
        self.push("down", vec![t], out, kind)
    }

    fn combine(&mut self, inputs: &[usize], factors: &[i64], level: usize, constant: f64) -> usize {
        let tensors: Vec<_> = inputs.iter().map(|t| self.spec.tensors[*t].clone()).collect();
        let weight = |t: &TensorSpec, k: i64| k.unsigned_abs() as f64 * t.scale / tensors[0].scale;
        let bound: f64 = tensors.iter().zip(factors).map(|(t, k)| t.bound * weight(t, *k)).sum();
        let parts = tensors.iter().map(|t| t.parts).max().unwrap();
        let out = TensorSpec { level, parts, bound: bound + constant.abs(), ..tensors[0].clone() };
        let kind = StageKind::Combine { factors: Some((factors.to_vec(), constant)) };
        self.push("combine", inputs.to_vec(), out, kind)
    }
}

fn conv(g: &Conv2d, w: &[f64], b: &[f64], x: &[f64]) -> Vec<f64> {
    let [_, h, wd] = g.input;
    let [o, oh, ow] = g.output;
    let (ci, co) = (g.input[0] / g.groups, o / g.groups);
    let mut out = Vec::new();
    for c_out in 0..o {
        for y in 0..oh {
            for x0 in 0..ow {
                let mut sum = b[c_out];
                for c in 0..ci {
                    for i in 0..g.kernel[0] {
                        for j in 0..g.kernel[1] {
                            let sy = (y * g.stride[0] + i * g.dilation[0]).wrapping_sub(g.pads[0]);
                            let sx = (x0 * g.stride[1] + j * g.dilation[1]).wrapping_sub(g.pads[1]);
                            if sy < h && sx < wd {
                                let weight = w[((c_out * ci + c) * g.kernel[0] + i) * g.kernel[1] + j];
                                sum += weight * x[((c_out / co * ci + c) * h + sy) * wd + sx];
                            }
                        }
                    }
                }
                out.push(sum);
            }
        }
    }
    out
}

/// The circuit on numbers, one image.
fn plain(spec: &CircuitSpec, inputs: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); spec.tensors.len()];
    for (t, v) in spec.inputs.iter().zip(inputs) {
        values[*t].clone_from(v);
    }
    for s in &spec.stages {
        let a = values[s.inputs[0]].clone();
        let out_scale = spec.tensors[s.output].scale;
        values[s.output] = match &s.kind {
            StageKind::Linear(l) => {
                let (w, b) = l.weights.as_ref().unwrap();
                let unit = spec.tensors[s.inputs[0]].scale / out_scale;
                let w: Vec<f64> = w.iter().map(|v| f64::from(*v) * unit).collect();
                match &l.geometry {
                    Geometry::Dense(d) => w
                        .chunks(d.inputs)
                        .zip(b)
                        .map(|(row, b)| row.iter().zip(&a).map(|(w, x)| w * x).sum::<f64>() + b)
                        .collect(),
                    Geometry::Conv2d(c) => conv(c, &w, b, &a),
                }
            }
            StageKind::Multiply => a.iter().zip(&values[s.inputs[1]]).map(|(x, y)| x * y).collect(),
            StageKind::Relinearise | StageKind::Rescale => a,
            StageKind::Combine { factors } => {
                let (k, c) = factors.as_ref().unwrap();
                let term = |i: usize, e: usize| {
                    k[i] as f64 * spec.tensors[s.inputs[i]].scale / out_scale * values[s.inputs[i]][e]
                };
                (0..a.len()).map(|e| (0..k.len()).map(|i| term(i, e)).sum::<f64>() + c).collect()
            }
        };
    }
    spec.outputs.iter().map(|t| values[*t].clone()).collect()
}

struct Keys {
    params: CkksParams,
    secret: SecretKey,
    relin: RelinKey,
    prg: Prg,
}

const RINGS: [Ring; 2] = [Ring::Cyclotomic, Ring::ConjugateInvariant];

fn keys(ring: Ring, ring_degree: usize, bits: &[u32], special: u32) -> Keys {
    let spec = CkksSpec {
        ring_degree,
        ring,
        data_primes: bits.iter().map(|b| PrimeSpec::Near(*b)).collect(),
        special_primes: vec![PrimeSpec::Near(special)],
        scale_bits: 25,
        digits: bits.len(),
    };
    let params = spec.check_insecure(Insecure).unwrap();
    let mut prg = Prg::from_seed([3; 16]);
    let generator = KeyGenerator::new(&params);
    let secret = generator.secret_key(&mut prg).unwrap();
    let relin = generator.relin_key(&secret, &mut prg).unwrap();
    Keys { params, secret, relin, prg }
}

/// Runs a circuit under encryption and on numbers; the largest error over the predicted one, and the run.
fn compare(keys: &mut Keys, spec: CircuitSpec, threads: usize) -> (f64, Circuit, Run) {
    let circuit = Circuit::new(&keys.params, spec.clone()).unwrap();
    let (encoder, slots) = (Encoder::new(&keys.params), keys.params.slots());
    let mut encrypted = Vec::new();
    let mut images = vec![Vec::new(); slots];
    for &t in circuit.inputs() {
        let tensor = &circuit.tensors()[t];
        let at = EncodeAt {
            level: keys.params.level(tensor.level).unwrap(),
            scale: tensor.scale,
            bound: tensor.bound,
        };
        let mut words = vec![0; slots * tensor.elements];
        keys.prg.fill_words(&mut words);
        let values: Vec<f64> =
            words.iter().map(|w| ((*w >> 11) as f64 / 2f64.powi(52) - 1.0) * tensor.bound).collect();
        for (image, out) in images.iter_mut().enumerate() {
            out.push((0..tensor.elements).map(|e| values[e * slots + image]).collect::<Vec<_>>());
        }
        let rows: Vec<&[f64]> = values.chunks(slots).collect();
        let mut ciphertexts = Vec::new();
        for pair in rows.chunks(2) {
            let second = pair.get(1).copied().unwrap_or(&[]);
            let plains = encoder.encode_pair(pair[0], second, at).unwrap();
            for p in plains.into_iter().take(pair.len()) {
                ciphertexts.push(keys.secret.encrypt_small(p, &mut keys.prg).unwrap());
            }
        }
        encrypted.push(ciphertexts);
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let run = pool
        .install(|| circuit.run(Some(&keys.relin), encrypted, &mut |_, _| ControlFlow::Continue(())))
        .unwrap();
    let mut worst: f64 = 0.0;
    let decoded: Vec<Vec<Vec<f64>>> = run
        .outputs
        .iter()
        .map(|o| o.iter().map(|c| encoder.decode(&keys.secret.decrypt(c).unwrap()).unwrap()).collect())
        .collect();
    for (image, inputs) in images.iter().enumerate() {
        for ((expected, got), ciphertexts) in plain(&spec, inputs).iter().zip(&decoded).zip(&run.outputs) {
            for ((e, g), c) in expected.iter().zip(got).zip(ciphertexts) {
                worst = worst.max((e - g[image]).abs() / c.error_bound());
            }
        }
    }
    (worst, circuit, run)
}

fn cryptonets(params: &CkksParams) -> CircuitSpec {
    let mut w = Writer::new(params, 64, 3, 2f64.powi(20), 5);
    let geometry = Geometry::conv2d(Conv2d {
        input: [1, 8, 8],
        output: [3, 4, 4],
        kernel: [3, 3],
        stride: [2, 2],
        pads: [0, 0, 1, 1],
        dilation: [1, 1],
        groups: 1,
    })
    .unwrap();
    let t = w.linear(0, geometry, 7);
    let t = w.multiply(t, t);
    let t = w.linear(t, Geometry::dense(Dense { inputs: 48, outputs: 10 }).unwrap(), 7);
    let t = w.down(t, true, 1);
    let t = w.multiply(t, t);
    let t = w.linear(t, Geometry::dense(Dense { inputs: 10, outputs: 4 }).unwrap(), 7);
    w.spec.outputs = vec![t];
    w.spec
}

#[test]
fn a_network_with_squares_equals_numbers_within_the_predicted_error_on_any_number_of_threads() {
    for ring in RINGS {
        squares(keys(ring, 256, &[45, 45, 45], 48));
    }
}

fn squares(mut keys: Keys) {
    let spec = cryptonets(&keys.params);
    let mut outputs = Vec::new();
    for threads in [1, 2, 3] {
        keys.prg = Prg::from_seed([9; 16]);
        let (worst, circuit, run) = compare(&mut keys, spec.clone(), threads);
        assert!(worst < 1.0, "{worst} of the predicted error");
        assert!(worst > 1e-4, "the prediction is {worst} of the error: far too careful");
        assert_eq!(run.counted, circuit.cost());
        assert_eq!(run.counted.relinearisations, 10);
        assert_eq!(run.counted.rescalings, 10);
        assert_eq!(run.counted.products, 48 + 10);
        outputs.push(run.outputs[0].iter().map(|c| c.to_bytes().unwrap()).collect::<Vec<_>>());
    }
    assert!(outputs.windows(2).all(|o| o[0] == o[1]));
}

/// Cubes, sums of paths of different depth, and a grouped, dilated convolution, from small choices.
fn random_network(params: &CkksParams, choice: [usize; 6]) -> CircuitSpec {
    let [height, width, stride, groups, dilation, seed] = choice;
    let mut w = Writer::new(params, 2 * height * width, 4, 2f64.powi(46), seed as u8);
    let (pads, kernel) = ([1, dilation, 0, 1], [2, 2]);
    let size = |n: usize, pads: usize| (n + pads - dilation - 1) / stride + 1;
    let output = [2 * groups, size(height, pads[0] + pads[2]), size(width, pads[1] + pads[3])];
    let (strides, dilations) = ([stride, stride], [dilation, dilation]);
    let c = Conv2d {
        input: [2, height, width],
        output,
        kernel,
        stride: strides,
        pads,
        dilation: dilations,
        groups,
    };
    let x = w.linear(0, Geometry::conv2d(c).unwrap(), 4);
    let x = w.down(x, false, 1);
    let square = w.multiply(x, x);
    let square2 = w.down(square, true, 1);
    let cube = w.multiply(square2, x);
    // The cube and twice the input, brought to the cube's scale by an integer.
    let k = (w.spec.tensors[cube].scale / w.spec.tensors[x].scale).round() as i64;
    let level = w.spec.tensors[cube].level;
    let sum = w.combine(&[cube, x], &[1, 2 * k], level, 0.25);
    let features = w.spec.tensors[sum].elements;
    let out = w.linear(sum, Geometry::dense(Dense { inputs: features, outputs: 3 }).unwrap(), 3);
    let both = w.down(square, false, 1);
    w.spec.outputs = vec![out, both];
    w.spec
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn random_networks_equal_numbers_within_the_predicted_error(
        choice in [2usize..5, 2usize..5, 1usize..3, 1usize..3, 1usize..2, 0usize..200]
    ) {
        let mut keys = keys(RINGS[choice[5] % 3 % 2], 64, &[48, 40, 22, 28], 48);
        let spec = random_network(&keys.params, choice);
        let (worst, circuit, run) = compare(&mut keys, spec, 1 + choice[5] % 2);
        prop_assert!(worst < 1.0, "{} of the predicted error", worst);
        prop_assert_eq!(run.counted, circuit.cost());
    }
}

#[test]
fn two_values_a_slot_with_biases_and_constants_for_both() {
    let mut keys = keys(Ring::Cyclotomic, 64, &[45, 45], 48);
    let mut w = Writer::new(&keys.params, 18, 2, 2f64.powi(30), 11);
    let c = Conv2d {
        input: [2, 3, 3],
        output: [4, 2, 3],
        kernel: [2, 2],
        stride: [1, 1],
        pads: [0, 1, 0, 0],
        dilation: [1, 1],
        groups: 2,
    };
    let t = w.linear(0, Geometry::conv2d(c).unwrap(), 5);
    let t = w.combine(&[t, t], &[2, -1], 2, 0.75);
    let t = w.linear(t, Geometry::dense(Dense { inputs: 24, outputs: 3 }).unwrap(), 5);
    w.spec.outputs = vec![t];
    w.spec.complex = true;
    let circuit = Circuit::new(&keys.params, w.spec.clone()).unwrap();
    assert_eq!(circuit.images(), 64);
    let encoder = Encoder::new(&keys.params);
    let at = EncodeAt { level: keys.params.level(2).unwrap(), scale: 2f64.powi(30), bound: 1.0 };
    let values: Vec<Vec<f64>> =
        (0..18).map(|e| (0..64).map(|i| f64::from((e * 31 + i * 17) % 41) / 20.5 - 1.0).collect()).collect();
    let inputs = values
        .iter()
        .map(|v| {
            keys.secret.encrypt_small(encoder.encode_packed_small(v, at).unwrap(), &mut keys.prg).unwrap()
        })
        .collect();
    let run = circuit.run(None, vec![inputs], &mut |_, _| ControlFlow::Continue(())).unwrap();
    for image in 0..64 {
        let x: Vec<f64> = values.iter().map(|v| v[image]).collect();
        for (expected, c) in plain(&w.spec, &[x])[0].iter().zip(&run.outputs[0]) {
            let got = encoder.decode_packed(&keys.secret.decrypt(c).unwrap()).unwrap()[image];
            assert!((got - expected).abs() < c.error_bound(), "image {image}: {got} is not {expected}");
        }
    }
}

#[test]
fn circuits_that_do_not_fit_are_refused_by_name() {
    let keys = keys(Ring::Cyclotomic, 64, &[45, 45, 45], 48);
    let good = cryptonets(&keys.params);
    let refused = |change: &dyn Fn(&mut CircuitSpec), what: &str| {
        let mut spec = good.clone();
        change(&mut spec);
        let error = Circuit::new(&keys.params, spec).expect_err(what).to_string();
        assert!(error.contains(what), "'{error}' does not say '{what}'");
    };
    refused(&|s| s.tensors[1].level = 4, "level");
    refused(&|s| s.tensors[2].scale *= 1.0 + 1e-11, "scale");
    refused(&|s| s.tensors[2].parts = 2, "three");
    refused(&|s| s.tensors[1].elements = 47, "features");
    refused(&|s| s.tensors[4].scale *= 2.0, "scale");
    refused(&|s| s.tensors[6].bound = 1e12, "do not fit");
    refused(&|s| s.stages[1].inputs = vec![3, 3], "before any stage");
    refused(&|s| s.stages[1].inputs = vec![1], "operands");
    refused(&|s| s.stages[2].output = 1, "second time");
    refused(&|s| s.stages[2].output = 99, "no tensor 99");
    refused(&|s| s.outputs = vec![9], "no stage computes");
    refused(&|s| s.tensors[0].parts = 3, "two parts");
    refused(&|s| s.complex = true, "one value a slot");
    let invariant = self::keys(Ring::ConjugateInvariant, 64, &[45, 45, 45], 48);
    let complex = CircuitSpec { complex: true, ..cryptonets(&invariant.params) };
    assert!(Circuit::new(&invariant.params, complex).unwrap_err().to_string().contains("real"));
    refused(&|s| s.tensors[3].bound = f64::NAN, "finite");
    refused(&|s| s.stages.swap(0, 1), "before any stage");
    let circuit = Circuit::new(&keys.params, good.clone()).unwrap();
    let run = |inputs| circuit.run(None, inputs, &mut |_, _| ControlFlow::Continue(())).err();
    assert!(matches!(run(vec![]), Some(CircuitError::Input { .. })));
    assert!(matches!(run(vec![vec![]]), Some(CircuitError::Input { .. })));
    let mut bare = good;
    for s in &mut bare.stages {
        if let StageKind::Linear(l) = &mut s.kind {
            l.weights = None;
        }
    }
    let bare = Circuit::new(&keys.params, bare).unwrap();
    assert!(bare.tracks().is_none());
    let e = bare.run(None, vec![], &mut |_, _| ControlFlow::Continue(())).err();
    assert!(matches!(e, Some(CircuitError::NoWeights(n)) if n == "linear1"));
}
