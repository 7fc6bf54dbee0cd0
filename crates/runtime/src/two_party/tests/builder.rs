//! Small two-party plans with seeded weights; used by the tests and by the example's synthetic networks.
#![allow(dead_code, unreachable_pub, reason = "every user takes a part, and that of `fuzz` hands it on")]

use serde_json::{json, Value};
use std::collections::BTreeMap;

/// splitmix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn range(&mut self, lo: i64, hi: i64) -> i64 {
        lo + (self.next() % (hi - lo + 1) as u64) as i64
    }
    pub fn real(&mut self, amplitude: f64) -> f64 {
        ((self.next() >> 11) as f64 / (1_u64 << 53) as f64 * 2.0 - 1.0) * amplitude
    }
}

/// A tensor of the file: type, shape, bytes.
pub type File = (&'static str, Vec<usize>, Vec<u8>);

/// A plan in the making. Tensors are named by their ids.
pub struct Net {
    pub rng: Rng,
    pub ring_bits: u32,
    pub reveal: &'static str,
    /// Where ranges and bounds of sums come from; null for what a plan leaves out.
    pub ranges: Value,
    pub sums: Value,
    pub inputs: Vec<Value>,
    pub outputs: Vec<Value>,
    pub tensors: Vec<Value>,
    pub stages: Vec<Value>,
    pub files: BTreeMap<String, File>,
    /// Weights by name, as numbers.
    pub weights: BTreeMap<String, (Vec<i64>, Vec<i64>)>,
}

impl Net {
    pub fn new(ring_bits: u32, seed: u64) -> Self {
        Self {
            rng: Rng(seed),
            ring_bits,
            reveal: "output",
            ranges: Value::Null,
            sums: Value::Null,
            inputs: vec![],
            outputs: vec![],
            tensors: vec![],
            stages: vec![],
            files: BTreeMap::new(),
            weights: BTreeMap::new(),
        }
    }

    pub fn tensor(&mut self, mut t: Value) -> usize {
        let id = self.tensors.len();
        t["id"] = id.into();
        t["name"] = format!("t{id}").into();
        self.tensors.push(t);
        id
    }
    pub fn shared(&mut self, shape: &[usize], f: i64, bound: u64) -> usize {
        self.tensor(json!({"shape": shape, "kind": "shared", "frac_bits": f, "bound": bound}))
    }
    pub fn shape(&self, id: usize) -> Vec<usize> {
        self.tensors[id]["shape"]
            .as_array()
            .map(|s| s.iter().map(|v| v.as_u64().unwrap_or(0) as usize).collect())
            .unwrap_or_default()
    }
    pub fn f(&self, id: usize) -> i64 {
        self.tensors[id]["frac_bits"].as_i64().unwrap_or(0)
    }
    pub fn bound(&self, id: usize) -> u64 {
        self.tensors[id]["bound"].as_u64().unwrap_or(0)
    }
    pub fn stage(&mut self, mut stage: Value) {
        stage["name"] = format!("s{}", self.stages.len()).into();
        self.stages.push(stage);
    }
    /// A stage of one shared tensor to another of another shape, fraction and bound.
    pub fn unary(&mut self, mut stage: Value, x: usize, shape: &[usize], f: i64, bound: u64) -> usize {
        let out = self.shared(shape, f, bound);
        stage["in"] = x.into();
        stage["out"] = out.into();
        self.stage(stage);
        out
    }

    /// A real input, quantised and shared.
    pub fn input(&mut self, name: &str, shape: &[usize], f: i64, bound: u64) -> usize {
        let scale = (-f as f64).exp2();
        let real = self.tensor(json!({"shape": shape, "kind": "real"}));
        let fixed = self.tensor(json!({"shape": shape, "kind": "fixed", "scale": scale, "bound": bound}));
        self.inputs.push(json!({"name": name, "tensor": real}));
        self.stage(json!({"kind": "client", "ops": [{"op": "quantize", "in": [real], "out": fixed}]}));
        let out = self.shared(shape, f, bound);
        self.stage(json!({"kind": "share", "in": fixed, "out": out}));
        out
    }

    /// A linear layer with random weights of so many bits, sign included.
    pub fn linear(&mut self, x: usize, geometry: Value, bits: u32) -> usize {
        let get = |k: &str| -> Vec<usize> { serde_json::from_value(geometry[k].clone()).unwrap_or_default() };
        let size = |k: &str| geometry[k].as_u64().unwrap_or(0) as usize;
        let (wshape, oshape) = if geometry["type"] == "dense" {
            (vec![size("outputs"), size("inputs")], vec![size("outputs")])
        } else {
            let (i, out, kernel) = (get("input"), get("output"), get("kernel"));
            (vec![out[0], i[0] / size("groups"), kernel[0], kernel[1]], out)
        };
        let (rows, terms) = (wshape[0], wshape[1..].iter().product::<usize>());
        let top = (1_i64 << (bits - 1)) - 1;
        let weights: Vec<i64> = (0..rows * terms).map(|_| self.rng.range(-top, top)).collect();
        let bias: Vec<i64> = (0..rows).map(|_| self.rng.range(-200, 200)).collect();
        let l1 = |r: usize| weights[r * terms..(r + 1) * terms].iter().map(|w| w.unsigned_abs()).sum::<u64>();
        let bound = (0..rows).map(|r| l1(r) * self.bound(x) + bias[r].unsigned_abs()).max().unwrap_or(0);
        let norm = weights.iter().map(|w| (w * w) as f64).sum::<f64>().sqrt().max(1.0);
        let name = format!("w{}", self.stages.len());
        let bytes =
            |v: &[i64], width: usize| v.iter().flat_map(|x| x.to_le_bytes()[..width].to_vec()).collect();
        let (dtype, width) = if bits > 8 { ("I16", 2) } else { ("I8", 1) };
        self.files.insert(name.clone(), (dtype, wshape, bytes(&weights, width)));
        self.files.insert(format!("{name}.b"), ("I64", vec![rows], bytes(&bias, 8)));
        let stage = json!({"kind": "linear", "method": "cheetah", "geometry": geometry, "weights": name,
            "bias": format!("{name}.b"), "weight_l2": norm.log2().ceil().exp2()});
        self.weights.insert(name, (weights, bias));
        let f = self.f(x) + i64::from(bits) - 1;
        self.unary(stage, x, &oshape, f, bound)
    }
    #[allow(clippy::too_many_arguments, reason = "a test builder with the sizes of a convolution")]
    pub fn conv(
        &mut self,
        x: usize,
        outputs: usize,
        kernel: usize,
        stride: usize,
        pad: usize,
        groups: usize,
        bits: u32,
    ) -> usize {
        let i = self.shape(x);
        let side = |v: usize| (v + 2 * pad - kernel) / stride + 1;
        let geometry = json!({"type": "conv2d", "input": i, "output": [outputs, side(i[1]), side(i[2])], "kernel": [kernel, kernel],
            "stride": [stride, stride], "pads": [pad, pad, pad, pad], "dilation": [1, 1], "groups": groups});
        self.linear(x, geometry, bits)
    }
    pub fn dense(&mut self, x: usize, outputs: usize, bits: u32) -> usize {
        let inputs: usize = self.shape(x).iter().product();
        self.linear(x, json!({"type": "dense", "inputs": inputs, "outputs": outputs}), bits)
    }
    pub fn relu(&mut self, x: usize) -> usize {
        self.unary(json!({"kind": "relu"}), x, &self.shape(x), self.f(x), self.bound(x))
    }
    /// Makes the last stage, a comparison, drop bits of its operand; the ends of a clip stay as they were given.
    ///
    /// # Panics
    /// There is no stage.
    pub fn dropping(&mut self, bits: u32) -> usize {
        let stage = self.stages.last_mut().unwrap();
        stage["bits"] = bits.into();
        let (out, clips) = (stage["out"].as_u64().unwrap() as usize, stage["kind"] == "clip");
        let (f, bound) = (self.f(out), self.bound(out));
        self.tensors[out]["frac_bits"] = (f - i64::from(bits)).into();
        if !clips {
            self.tensors[out]["bound"] = ((bound >> bits) + 1).into();
        }
        out
    }
    pub fn leaky_relu(&mut self, x: usize, numerator: u64, log_denominator: u32) -> usize {
        let stage = json!({"kind": "leaky_relu", "numerator": numerator, "log_denominator": log_denominator});
        self.unary(stage, x, &self.shape(x), self.f(x), self.bound(x) + 1)
    }
    pub fn clip(&mut self, x: usize, low: i64, high: i64) -> usize {
        let bound = low.unsigned_abs().max(high.unsigned_abs());
        self.unary(json!({"kind": "clip", "low": low, "high": high}), x, &self.shape(x), self.f(x), bound)
    }
    pub fn truncate(&mut self, x: usize, bits: u32, sign: &str, exact: bool) -> usize {
        let bound = (self.bound(x) >> bits) + 1;
        self.truncate_to(x, bits, sign, exact, bound)
    }
    pub fn truncate_to(&mut self, x: usize, bits: u32, sign: &str, exact: bool, bound: u64) -> usize {
        let mut stage = json!({"kind": "truncate", "bits": bits, "sign": sign});
        if exact {
            stage["exact"] = true.into();
        }
        self.unary(stage, x, &self.shape(x), self.f(x) - i64::from(bits), bound)
    }
    pub fn pool(
        &mut self,
        kind: &str,
        x: usize,
        kernel: [usize; 2],
        stride: [usize; 2],
        pads: [usize; 4],
    ) -> usize {
        let i = self.shape(x);
        let side = |a: usize| (i[a + 1] + pads[a] + pads[a + 2] - kernel[a]) / stride[a] + 1;
        let grow = if kind == "sum_pool" { (kernel[0] * kernel[1]) as u64 } else { 1 };
        let stage =
            json!({"kind": kind, "kernel": kernel, "stride": stride, "pads": pads, "dilation": [1, 1]});
        self.unary(stage, x, &[i[0], side(0), side(1)], self.f(x), self.bound(x) * grow)
    }
    pub fn scale(&mut self, x: usize, factor: u64) -> usize {
        self.unary(
            json!({"kind": "scale", "factor": factor}),
            x,
            &self.shape(x),
            self.f(x) + 1,
            self.bound(x) * factor,
        )
    }
    pub fn add(&mut self, x: usize, y: usize) -> usize {
        let out = self.shared(&self.shape(x), self.f(x), self.bound(x) + self.bound(y));
        self.stage(json!({"kind": "add", "in": [x, y], "out": out}));
        out
    }
    pub fn shift(&mut self, x: usize, by: i64, negated: bool) -> usize {
        let bound = self.bound(x) + by.unsigned_abs();
        self.unary(
            json!({"kind": "shift", "by": by, "negated": negated}),
            x,
            &self.shape(x),
            self.f(x),
            bound,
        )
    }
    /// x min(max(x + 2 quarter, 0), 4 quarter), less `bits` bits.
    pub fn hard_swish(&mut self, x: usize, quarter: u64, bits: u32) -> usize {
        let bound = ((9 * quarter * quarter + 4 * quarter * self.bound(x)) >> bits) + 1;
        let stage = json!({"kind": "hard_swish", "quarter": quarter, "bits": bits});
        self.unary(stage, x, &self.shape(x), 2 * self.f(x) - i64::from(bits), bound)
    }
    /// The product of two tensors, broadcast to a shape, less `bits` bits.
    pub fn product(&mut self, x: usize, y: usize, shape: &[usize], bits: u32) -> usize {
        let bound = ((self.bound(x) * self.bound(y)) >> bits) + 1;
        let out = self.shared(shape, self.f(x) + self.f(y) - i64::from(bits), bound);
        self.stage(json!({"kind": "product", "in": [x, y], "out": out, "bits": bits}));
        out
    }
    /// The product of two tensors of matrices, less `bits` bits.
    pub fn matrix_product(&mut self, x: usize, y: usize, bits: u32) -> usize {
        let (mut shape, of_y) = (self.shape(x), self.shape(y));
        let (last, inner) = (shape.len() - 1, of_y[of_y.len() - 2] as u64);
        shape[last] = of_y[of_y.len() - 1];
        let units = if bits == 0 { 2 } else { 1 };
        let bound = ((inner * self.bound(x) * self.bound(y)) >> bits) + units;
        let out = self.shared(&shape, self.f(x) + self.f(y) - i64::from(bits), bound);
        self.stage(json!({"kind": "matrix_product", "in": [x, y], "out": out, "bits": bits}));
        out
    }
    /// A function of every element: a stage with `form`, `below`, `above`, `function`, `orders` and `predicted`, and its coefficients.
    pub fn function(
        &mut self,
        x: usize,
        mut stage: Value,
        coefficients: &[i64],
        (f, bound): (i64, u64),
    ) -> usize {
        let name = format!("pieces{}", self.stages.len());
        let segments = 1_usize << stage["form"]["segments"].as_u64().unwrap_or(0);
        let bytes = coefficients.iter().flat_map(|c| c.to_le_bytes()).collect();
        self.files.insert(name.clone(), ("I64", vec![segments, coefficients.len() / segments], bytes));
        stage["kind"] = "function".into();
        stage["coefficients"] = name.into();
        self.unary(stage, x, &self.shape(x), f, bound)
    }
    /// reshape, transpose, concat, slice or pad to a given shape.
    pub fn moves(&mut self, mut stage: Value, x: &[usize], shape: &[usize]) -> usize {
        let bound = x.iter().map(|t| self.bound(*t)).max().unwrap_or(0);
        let out = self.shared(shape, self.f(x[0]), bound);
        stage["in"] = x.into();
        stage["out"] = out.into();
        self.stage(stage);
        out
    }
    /// Opens a tensor to the client as an output.
    pub fn open(&mut self, name: &str, x: usize) {
        let argmax = self.reveal == "argmax";
        let shape = if argmax { vec![1] } else { self.shape(x) };
        let scale = if argmax { 1.0 } else { (-self.f(x) as f64).exp2() };
        let fixed = self.tensor(
            json!({"shape": shape, "kind": "fixed", "scale": scale, "bound": self.bound(x).max(1 << 20)}),
        );
        self.stage(json!({"kind": "reveal", "in": x, "out": fixed, "what": self.reveal}));
        let real = self.tensor(json!({"shape": shape, "kind": "real"}));
        self.stage(json!({"kind": "client", "ops": [{"op": "dequantize", "in": [fixed], "out": real}]}));
        self.outputs.push(json!({"name": name, "tensor": real}));
    }
    /// Tensors and stages with the reaches that follow from exact bounds, where none is stated; what is opened holds its operand's.
    fn with_reaches(&self) -> (Vec<Value>, Vec<Value>) {
        let (mut tensors, mut stages) = (self.tensors.clone(), self.stages.clone());
        let bits = |bound: u64| 64 - (bound + (bound >> 8) + 2).leading_zeros();
        for t in tensors.iter_mut().filter(|t| t["kind"] == "shared" && t["reach_bits"].is_null()) {
            t["reach_bits"] = bits(t["bound"].as_u64().unwrap_or(0)).into();
        }
        for s in &mut stages {
            let read = s["in"].as_u64().unwrap_or(u64::MAX) as usize;
            let dropped = s["bits"].as_u64().unwrap_or(0);
            let left = |bound: u64| if dropped > 0 { (bound >> dropped) + 1 } else { bound };
            let compares = s["kind"] == "relu" || s["kind"] == "max_pool";
            if s["kind"] == "clip" && s["reach_bits"].is_null() {
                let end = |k: &str| s[k].as_i64().unwrap_or(0).unsigned_abs();
                s["reach_bits"] = bits(left(self.bound(read)) + end("low").max(end("high"))).into();
            } else if compares && dropped > 0 && s["reach_bits"].is_null() {
                s["reach_bits"] = bits(left(self.bound(read))).into();
            } else if s["kind"] == "reveal" && s["what"] == "output" && read < tensors.len() {
                let most = (1u64 << tensors[read]["reach_bits"].as_u64().unwrap_or(0)) - 1;
                let out = s["out"].as_u64().unwrap_or(0) as usize;
                tensors[out]["bound"] = most.max(self.bound(out)).into();
            }
        }
        (tensors, stages)
    }

    pub fn json(&self) -> String {
        let (tensors, stages) = self.with_reaches();
        json!({"version": 2, "name": "net", "producer": "tests", "trust": "two-party", "engine": "packed",
            "params": {"ring_degree": 2048, "security_bits": 128, "insecure": false,
                "two_party": {"ring_bits": self.ring_bits, "reveal": self.reveal, "ranges": self.ranges,
                    "sums": self.sums}},
            "inputs": self.inputs, "outputs": self.outputs, "tensors": tensors, "stages": stages})
        .to_string()
    }
}
