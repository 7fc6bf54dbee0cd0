//! A builder of small plans, seeded numbers, and the run helper.
#![allow(dead_code, reason = "every test program uses a part")]
#![allow(clippy::unwrap_used)]

pub(crate) mod oracle;
pub(crate) mod products;

use hushnet_layers::coefficients;
use hushnet_rlwe::BatchStageSpec;
use hushnet_runtime::plan::{GeometrySpec, Plan, PlanOptions, TensorBytes};
use hushnet_runtime::{Client, ClientOptions, Compute, Input, InputData, Output, ServerPlan, Trace};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// splitmix64.
pub(crate) struct Rng(pub u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    pub(crate) fn range(&mut self, lo: i64, hi: i64) -> i64 {
        lo + (self.next() % (hi - lo + 1) as u64) as i64
    }
    pub(crate) fn real(&mut self, amplitude: f64) -> f64 {
        ((self.next() >> 11) as f64 / (1_u64 << 53) as f64 * 2.0 - 1.0) * amplitude
    }
    pub(crate) fn reals(&mut self, n: usize, amplitude: f64) -> Vec<f64> {
        (0..n).map(|_| self.real(amplitude)).collect()
    }
}

pub(crate) struct FileTensor {
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    pub values: Vec<i64>,
}

impl FileTensor {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let width = match self.dtype {
            "I8" => 1,
            "I16" => 2,
            _ => 8,
        };
        self.values.iter().flat_map(|v| v.to_le_bytes()[..width].to_vec()).collect()
    }
}

/// A plan in the making.
pub(crate) struct Builder {
    pub n: usize,
    pub rng: Rng,
    pub inputs: Vec<Value>,
    pub outputs: Vec<Value>,
    pub tensors: Vec<Value>,
    pub stages: Vec<Value>,
    pub files: BTreeMap<String, FileTensor>,
    pub insecure: bool,
}

/// Options of a linear stage.
#[derive(Clone)]
pub(crate) struct Linear {
    pub mask: &'static str,
    pub weight_bits: u32,
    pub band: usize,
    pub dtype: &'static str,
}

impl Default for Linear {
    fn default() -> Self {
        Self { mask: "shared", weight_bits: 4, band: usize::MAX, dtype: "I8" }
    }
}

impl Builder {
    pub(crate) fn new(n: usize, seed: u64) -> Self {
        let (inputs, outputs, tensors, stages) = (vec![], vec![], vec![], vec![]);
        Self { n, rng: Rng(seed), inputs, outputs, tensors, stages, files: BTreeMap::new(), insecure: false }
    }

    fn tensor(&mut self, mut t: Value) -> usize {
        let id = self.tensors.len();
        t["id"] = id.into();
        t["name"] = format!("t{id}").into();
        self.tensors.push(t);
        id
    }
    pub(crate) fn real(&mut self, shape: &[usize]) -> usize {
        self.tensor(json!({"shape": shape, "kind": "real"}))
    }
    pub(crate) fn fixed(&mut self, shape: &[usize], scale: f64, bound: u64) -> usize {
        self.tensor(json!({"shape": shape, "kind": "fixed", "scale": scale, "bound": bound}))
    }
    pub(crate) fn shape(&self, id: usize) -> Vec<usize> {
        serde_json::from_value(self.tensors[id]["shape"].clone()).unwrap()
    }
    pub(crate) fn input(&mut self, name: &str, shape: &[usize]) -> usize {
        let id = self.real(shape);
        self.inputs.push(json!({"name": name, "tensor": id}));
        id
    }
    pub(crate) fn output(&mut self, name: &str, tensor: usize) {
        self.outputs.push(json!({"name": name, "tensor": tensor}));
    }
    pub(crate) fn client(&mut self, ops: Vec<Value>) {
        let name = format!("client{}", self.stages.len());
        self.stages.push(json!({"kind": "client", "name": name, "ops": ops}));
    }

    /// Adds a linear stage with seeded weights; returns its output.
    pub(crate) fn linear(&mut self, input: usize, geometry: Value, o: &Linear) -> usize {
        let get = |k: &str| -> Vec<usize> { serde_json::from_value(geometry[k].clone()).unwrap_or_default() };
        let dense = geometry["type"] == "dense";
        let (rows, terms, wshape, oshape) = if dense {
            let (k, m) = (
                geometry["inputs"].as_u64().unwrap() as usize,
                geometry["outputs"].as_u64().unwrap() as usize,
            );
            (m, k, vec![m, k], vec![m])
        } else {
            let (i, out, kernel) = (get("input"), get("output"), get("kernel"));
            let groups = geometry["groups"].as_u64().unwrap() as usize;
            let shape = vec![out[0], i[0] / groups, kernel[0], kernel[1]];
            (out[0], shape[1..].iter().product(), shape, out)
        };
        let top = (1_i64 << (o.weight_bits - 1)) - 1;
        let weights: Vec<i64> = (0..rows * terms).map(|_| self.rng.range(-top, top)).collect();
        let bias: Vec<i64> = (0..rows).map(|_| self.rng.range(-1000, 1000)).collect();
        let bound_in = self.tensors[input]["bound"].as_u64().unwrap();
        let row = |r: usize| &weights[r * terms..(r + 1) * terms];
        let bound = (0..rows)
            .map(|r| row(r).iter().map(|w| w.unsigned_abs() * bound_in).sum::<u64>() + bias[r].unsigned_abs())
            .max()
            .unwrap();
        let norm =
            (0..rows).map(|r| row(r).iter().map(|w| (w * w) as f64).sum::<f64>()).fold(0.0, f64::max).sqrt();
        let spec = BatchStageSpec {
            ring_degree: self.n,
            weight_l2: norm,
            output_bound: bound,
            shared_mask: o.mask == "shared",
        };
        let p = spec.choose().unwrap();
        let travels = o.mask != "shared";
        let scale = self.tensors[input]["scale"].as_f64().unwrap() * 0.03125;
        let output = self.fixed(&oshape, scale, bound);
        let name = format!("linear{}", self.stages.len());
        let tiles = if dense { dense_tiles(terms, rows, o.band) } else { conv_tiles(&geometry, o.band) };
        self.files.insert(format!("{name}.w"), FileTensor { dtype: o.dtype, shape: wshape, values: weights });
        self.files.insert(format!("{name}.b"), FileTensor { dtype: "I64", shape: vec![rows], values: bias });
        self.stages.push(json!({
            "kind": "linear", "name": name, "method": "batch", "in": input, "out": output, "geometry": geometry,
            "weights": format!("{name}.w"), "bias": format!("{name}.b"), "modulus_bits": p.modulus_bits(),
            "delta_bits": p.delta_bits(), "drop_bits": p.drop_bits(), "mask_drop_bits": travels.then_some(p.mask_drop_bits()), "mask": o.mask, "tiles": tiles,
            "predicted": {"noise_bits": 14.5},
        }));
        output
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "version": 2, "name": "test", "producer": "test", "trust": "client-aided", "engine": "batch",
            "params": {"ring_degree": self.n, "security_bits": 128, "insecure": self.insecure},
            "inputs": self.inputs, "outputs": self.outputs, "tensors": self.tensors, "stages": self.stages,
            "predicted": {"batch": self.n}, "notes": ["a note"],
        })
    }

    pub(crate) fn plan(&self) -> Plan {
        load(&self.json().to_string(), &self.files).unwrap()
    }

    /// The same network for few images: every linear stage coefficient-packed.
    pub(crate) fn few_images_json(&self) -> Value {
        let mut json = self.json();
        json["engine"] = "packed".into();
        for stage in json["stages"].as_array_mut().unwrap().iter_mut().filter(|s| s["kind"] == "linear") {
            let geometry: GeometrySpec = serde_json::from_value(stage["geometry"].clone()).unwrap();
            let weights = &self.files[stage["weights"].as_str().unwrap()].values;
            let weights: Vec<i16> = weights.iter().map(|w| *w as i16).collect();
            let bound = self.tensors[stage["out"].as_u64().unwrap() as usize]["bound"].as_u64().unwrap();
            let geometry = geometry.checked().unwrap();
            let (chosen, _) = coefficients::choose(&geometry, self.n, &weights, bound).unwrap();
            let bits = chosen.params().bits();
            let fields = stage.as_object_mut().unwrap();
            for name in ["modulus_bits", "delta_bits", "drop_bits", "mask_drop_bits", "mask", "tiles"] {
                fields.remove(name);
            }
            fields.insert("method".into(), "coefficients".into());
            fields.insert("upload_bits".into(), bits.upload.into());
            fields.insert("body_bits".into(), bits.body.into());
            fields.insert("mask_bits".into(), bits.mask.into());
        }
        json
    }

    pub(crate) fn few_images(&self) -> Plan {
        load(&self.few_images_json().to_string(), &self.files).unwrap()
    }
}

/// Checks a plan from its parts.
pub(crate) fn load(
    json: &str,
    files: &BTreeMap<String, FileTensor>,
) -> Result<Plan, hushnet_runtime::PlanError> {
    load_with(json, files, &PlanOptions::default())
}

pub(crate) fn load_with(
    json: &str,
    files: &BTreeMap<String, FileTensor>,
    options: &PlanOptions,
) -> Result<Plan, hushnet_runtime::PlanError> {
    let bytes: BTreeMap<&String, Vec<u8>> = files.iter().map(|(n, f)| (n, f.bytes())).collect();
    let views = files
        .iter()
        .map(|(n, f)| (n.clone(), TensorBytes { dtype: f.dtype, shape: &f.shape, data: &bytes[n] }))
        .collect();
    Plan::from_parts(json, &views, options)
}

fn dense_tiles(k: usize, m: usize, band: usize) -> Vec<Value> {
    let mut tiles = Vec::new();
    if band < k {
        // Inputs arrive in two parts, outputs leave in bands.
        tiles.push(json!({"inputs": [0, k / 2], "outputs": [0, 0]}));
    }
    let mut arrived = if band < k { k / 2 } else { 0 };
    for o in (0..m).step_by(band.min(m)) {
        tiles.push(json!({"inputs": [arrived, k], "outputs": [o, (o + band.min(m)).min(m)]}));
        arrived = k;
    }
    tiles
}

fn conv_tiles(g: &Value, band: usize) -> Vec<Value> {
    let get = |k: &str, i: usize| g[k][i].as_u64().unwrap() as usize;
    let (h, oh) = (get("input", 1), get("output", 1));
    let mut tiles = Vec::new();
    let mut arrived = 0;
    let band = band.min(oh);
    for o in (0..oh).step_by(band) {
        let end = (o + band).min(oh);
        let last = ((end - 1) * get("stride", 0) + (get("kernel", 0) - 1) * get("dilation", 0) + 1)
            .saturating_sub(get("pads", 0));
        let r1 = if end == oh { h } else { last.min(h).max(arrived) };
        tiles.push(json!({"inputs": [arrived, r1], "outputs": [o, end]}));
        arrived = r1;
    }
    tiles
}

pub(crate) fn conv(
    input: [usize; 3],
    o: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    pads: [usize; 4],
    dilation: [usize; 2],
    groups: usize,
) -> Value {
    let size = |i: usize| {
        (input[i + 1] + pads[i] + pads[i + 2] - ((kernel[i] - 1) * dilation[i] + 1)) / stride[i] + 1
    };
    json!({"type": "conv2d", "input": input, "output": [o, size(0), size(1)], "kernel": kernel, "stride": stride,
           "pads": pads, "dilation": dilation, "groups": groups})
}

pub(crate) fn op(name: &str, inputs: &[usize], out: usize) -> Value {
    json!({"op": name, "in": inputs, "out": out})
}

pub(crate) fn op_with(name: &str, inputs: &[usize], out: usize, attributes: Value) -> Value {
    let mut v = op(name, inputs, out);
    for (k, a) in attributes.as_object().unwrap() {
        v[k] = a.clone();
    }
    v
}

/// A named batch of reals.
#[derive(Clone)]
pub(crate) struct Batch {
    pub name: String,
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

impl Batch {
    pub(crate) fn random(plan: &Plan, images: usize, rng: &mut Rng, amplitude: f64) -> Vec<Self> {
        let batch = |p: &hushnet_runtime::plan::Port| {
            let shape = [&[images], plan.tensors()[p.tensor].shape.as_slice()].concat();
            let data = rng.reals(shape.iter().product(), amplitude);
            Self { name: p.name.clone(), shape, data }
        };
        plan.inputs().iter().map(batch).collect()
    }
}

pub(crate) fn inputs(batches: &[Batch]) -> Vec<Input<'_>> {
    batches
        .iter()
        .map(|b| Input { name: &b.name, shape: b.shape.clone(), data: InputData::F64(&b.data) })
        .collect()
}

/// Runs both parties over a pipe.
pub(crate) fn run(plan: &Plan, batches: &[Batch]) -> Result<(Vec<Output>, Trace), hushnet_runtime::Error> {
    let server = ServerPlan::new(plan, Compute::default())?;
    let open = |channel| Client::open(channel, ClientOptions::default());
    let ran =
        hushnet_runtime::local::run_pipe(&server, open, &inputs(batches), &mut |_| ControlFlow::Continue(()));
    ran.map(|(outputs, trace, _)| (outputs, trace))
}

/// Runs both parties and demands exactly what the oracle computes.
pub(crate) fn run_and_compare(builder: &Builder, images: usize, amplitude: f64, seed: u64) -> Trace {
    let plan = builder.plan();
    let batches = Batch::random(&plan, images, &mut Rng(seed), amplitude);
    let (outputs, trace) = run(&plan, &batches).unwrap();
    compare(builder, &batches, images, &outputs);
    trace
}

pub(crate) fn compare(builder: &Builder, batches: &[Batch], images: usize, outputs: &[Output]) {
    let wanted = oracle::evaluate(builder, batches, images);
    assert_eq!(outputs.len(), wanted.len());
    for (got, (name, want)) in outputs.iter().zip(wanted) {
        assert_eq!(got.name, name);
        assert_eq!(got.data.len(), want.len(), "{name}");
        for (i, (a, b)) in got.data.iter().zip(&want).enumerate() {
            assert!(a == b, "output {name}, element {i}: {a} but {b}");
        }
    }
}

/// conv - relu - dense - relu - dense, odd sizes.
pub(crate) fn small_net(n: usize, seed: u64, o: &Linear) -> Builder {
    let mut b = Builder::new(n, seed);
    let image = b.input("image", &[2, 7, 5]);
    let q = b.fixed(&[2, 7, 5], 0.01, 127);
    b.client(vec![op("quantize", &[image], q)]);
    let acc = b.linear(q, conv([2, 7, 5], 3, [3, 2], [2, 1], [1, 0, 0, 1], [1, 2], 1), o);
    let shape = b.shape(acc);
    let (real, relu) = (b.real(&shape), b.real(&shape));
    let scale = b.tensors[acc]["scale"].as_f64().unwrap();
    let bound = b.tensors[acc]["bound"].as_u64().unwrap();
    let q2 = b.fixed(&shape, scale * bound as f64 / 120.0, 127);
    b.client(vec![op("dequantize", &[acc], real), op("relu", &[real], relu), op("quantize", &[relu], q2)]);
    let k: usize = shape.iter().product();
    let acc2 = b.linear(q2, json!({"type": "dense", "inputs": k, "outputs": 11}), o);
    let out = b.real(&[11]);
    b.client(vec![op("dequantize", &[acc2], out)]);
    b.output("logits", out);
    b
}
