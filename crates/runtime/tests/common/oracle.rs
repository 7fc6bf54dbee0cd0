//! Straightforward evaluation of a plan's JSON, one image at a time, row-major, without any of the crate's code.

#![allow(clippy::approx_constant, reason = "the constants are part of the definition, digit for digit")]

use super::{Batch, Builder};
use serde_json::Value;
use std::collections::HashMap;

#[derive(Clone, Debug)]
pub(crate) enum Values {
    Real(Vec<f64>),
    Fixed(Vec<i64>),
}

impl Values {
    pub(crate) fn real(&self) -> &[f64] {
        match self {
            Values::Real(v) => v,
            Values::Fixed(_) => panic!("real expected"),
        }
    }
    fn fixed(&self) -> &[i64] {
        match self {
            Values::Fixed(v) => v,
            Values::Real(_) => panic!("fixed expected"),
        }
    }
}

/// Outputs by name, image after image.
pub(crate) fn evaluate(builder: &Builder, batches: &[Batch], images: usize) -> Vec<(String, Vec<f64>)> {
    let ports = |v: &[Value]| -> Vec<(String, usize)> {
        v.iter()
            .map(|p| (p["name"].as_str().unwrap().to_owned(), p["tensor"].as_u64().unwrap() as usize))
            .collect()
    };
    let mut out: Vec<(String, Vec<f64>)> =
        ports(&builder.outputs).into_iter().map(|(n, _)| (n, vec![])).collect();
    for image in 0..images {
        let mut t: HashMap<usize, Values> = HashMap::new();
        for (name, id) in ports(&builder.inputs) {
            let b = batches.iter().find(|b| b.name == name).unwrap();
            let size = b.data.len() / images;
            t.insert(id, Values::Real(b.data[image * size..(image + 1) * size].to_vec()));
        }
        for stage in &builder.stages {
            if stage["kind"] == "linear" {
                let output = linear(builder, stage, &t);
                t.insert(stage["out"].as_u64().unwrap() as usize, Values::Fixed(output));
            } else {
                for op in stage["ops"].as_array().unwrap() {
                    let output = operation(builder, op, &t);
                    t.insert(op["out"].as_u64().unwrap() as usize, output);
                }
            }
        }
        for ((_, id), (_, data)) in ports(&builder.outputs).into_iter().zip(&mut out) {
            match &t[&id] {
                Values::Real(v) => data.extend(v),
                Values::Fixed(v) => {
                    let scale = builder.tensors[id]["scale"].as_f64().unwrap();
                    data.extend(v.iter().map(|&v| v as f64 * scale));
                }
            }
        }
    }
    out
}

pub(crate) fn list(v: &Value) -> Vec<usize> {
    v.as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as usize).collect()
}

fn linear(builder: &Builder, stage: &Value, t: &HashMap<usize, Values>) -> Vec<i64> {
    let x = t[&(stage["in"].as_u64().unwrap() as usize)].fixed();
    let w = &builder.files[stage["weights"].as_str().unwrap()].values;
    let b = &builder.files[stage["bias"].as_str().unwrap()].values;
    let g = &stage["geometry"];
    if g["type"] == "dense" {
        return b
            .iter()
            .enumerate()
            .map(|(o, b)| b + x.iter().zip(&w[o * x.len()..]).map(|(x, w)| x * w).sum::<i64>())
            .collect();
    }
    let (i, o, k, s, p, d) = (
        list(&g["input"]),
        list(&g["output"]),
        list(&g["kernel"]),
        list(&g["stride"]),
        list(&g["pads"]),
        list(&g["dilation"]),
    );
    let groups = g["groups"].as_u64().unwrap() as usize;
    let (cg, og) = (i[0] / groups, o[0] / groups);
    let mut out = vec![];
    for oc in 0..o[0] {
        for y in 0..o[1] {
            for xx in 0..o[2] {
                let mut sum = b[oc];
                for c in 0..cg {
                    for ky in 0..k[0] {
                        for kx in 0..k[1] {
                            let iy = (y * s[0] + ky * d[0]) as i64 - p[0] as i64;
                            let ix = (xx * s[1] + kx * d[1]) as i64 - p[1] as i64;
                            if iy >= 0 && ix >= 0 && iy < i[1] as i64 && ix < i[2] as i64 {
                                let ic = oc / og * cg + c;
                                sum += w[((oc * cg + c) * k[0] + ky) * k[1] + kx]
                                    * x[(ic * i[1] + iy as usize) * i[2] + ix as usize];
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

/// All coordinates of a shape, row-major.
pub(crate) fn grid(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut out = vec![vec![]];
    for &n in shape {
        out = out
            .into_iter()
            .flat_map(|c: Vec<usize>| (0..n).map(move |i| [c.clone(), vec![i]].concat()))
            .collect();
    }
    out
}

pub(crate) fn flat(shape: &[usize], at: &[usize]) -> usize {
    shape.iter().zip(at).fold(0, |f, (n, i)| f * n + i)
}

fn gather(v: &Values, indices: impl Iterator<Item = Option<usize>>, fill: f64) -> Values {
    match v {
        Values::Real(v) => Values::Real(indices.map(|i| i.map_or(fill, |i| v[i])).collect()),
        Values::Fixed(v) => Values::Fixed(indices.map(|i| i.map_or(0, |i| v[i])).collect()),
    }
}

fn windows(op: &Value, ishape: &[usize], at: &[usize]) -> (Vec<usize>, usize) {
    let (k, s, p) = (list(&op["kernel"]), list(&op["stride"]), list(&op["pads"]));
    let d = if op["dilation"].is_null() { vec![1; k.len()] } else { list(&op["dilation"]) };
    let (mut elements, mut inside) = (vec![], 0);
    for tap in grid(&k) {
        let pos: Vec<i64> =
            (0..k.len()).map(|a| (at[a + 1] * s[a] + tap[a] * d[a]) as i64 - p[a] as i64).collect();
        if (0..k.len()).all(|a| pos[a] < (ishape[a + 1] + p[k.len() + a]) as i64) {
            inside += 1;
        }
        if (0..k.len()).all(|a| pos[a] >= 0 && pos[a] < ishape[a + 1] as i64) {
            let c: Vec<usize> = std::iter::once(at[0]).chain(pos.iter().map(|&x| x as usize)).collect();
            elements.push(flat(ishape, &c));
        }
    }
    (elements, inside)
}

#[allow(clippy::too_many_lines)] // One arm an operation.
fn operation(builder: &Builder, op: &Value, t: &HashMap<usize, Values>) -> Values {
    let ids = list(&op["in"]);
    let out = op["out"].as_u64().unwrap() as usize;
    let (ishape, oshape) = (builder.shape(ids[0]), builder.shape(out));
    let x = &t[&ids[0]];
    let name = op["op"].as_str().unwrap();
    let number = |k: &str| op[k].as_f64().unwrap();
    let scale = |id: usize| builder.tensors[id]["scale"].as_f64().unwrap();
    match name {
        "quantize" => {
            let inverse = 1.0 / scale(out);
            Values::Fixed(x.real().iter().map(|x| (x * inverse).round_ties_even() as i64).collect())
        }
        "dequantize" => Values::Real(x.fixed().iter().map(|&v| v as f64 * scale(ids[0])).collect()),
        "reshape" => x.clone(),
        "transpose" => {
            let perm = list(&op["perm"]);
            let from = |at: Vec<usize>| {
                let mut c = vec![0; at.len()];
                (0..at.len()).for_each(|a| c[perm[a]] = at[a]);
                Some(flat(&ishape, &c))
            };
            gather(x, grid(&oshape).into_iter().map(from), 0.0)
        }
        "broadcast" => {
            let skip = oshape.len() - ishape.len();
            let from = |at: Vec<usize>| {
                let c: Vec<usize> =
                    (0..ishape.len()).map(|a| if ishape[a] == 1 { 0 } else { at[a + skip] }).collect();
                Some(flat(&ishape, &c))
            };
            gather(x, grid(&oshape).into_iter().map(from), 0.0)
        }
        "pad" => {
            let pads = list(&op["pads"]);
            let from = |at: Vec<usize>| {
                let c: Vec<i64> = (0..at.len()).map(|a| at[a] as i64 - pads[a] as i64).collect();
                let inside = (0..at.len()).all(|a| c[a] >= 0 && c[a] < ishape[a] as i64);
                inside.then(|| flat(&ishape, &c.iter().map(|&c| c as usize).collect::<Vec<_>>()))
            };
            gather(x, grid(&oshape).into_iter().map(from), number("value"))
        }
        "slice" => {
            let axes = list(&op["axes"]);
            let from = |at: Vec<usize>| {
                let mut c = at.clone();
                for (i, &a) in axes.iter().enumerate() {
                    c[a] = (op["starts"][i].as_i64().unwrap()
                        + op["steps"][i].as_i64().unwrap() * at[a] as i64)
                        as usize;
                }
                Some(flat(&ishape, &c))
            };
            gather(x, grid(&oshape).into_iter().map(from), 0.0)
        }
        "concat" => {
            let axis = op["axis"].as_u64().unwrap() as usize;
            let pick = |at: &[usize]| {
                let mut c = at.to_vec();
                for &id in &ids {
                    let shape = builder.shape(id);
                    if c[axis] < shape[axis] {
                        return (id, flat(&shape, &c));
                    }
                    c[axis] -= shape[axis];
                }
                unreachable!()
            };
            match x {
                Values::Real(_) => Values::Real(
                    grid(&oshape).iter().map(|at| pick(at)).map(|(i, f)| t[&i].real()[f]).collect(),
                ),
                Values::Fixed(_) => Values::Fixed(
                    grid(&oshape).iter().map(|at| pick(at)).map(|(i, f)| t[&i].fixed()[f]).collect(),
                ),
            }
        }
        "max_pool" => {
            let w: Vec<Vec<usize>> = grid(&oshape).iter().map(|at| windows(op, &ishape, at).0).collect();
            match x {
                Values::Real(v) => Values::Real(
                    w.iter().map(|w| w.iter().map(|&i| v[i]).fold(f64::NEG_INFINITY, f64::max)).collect(),
                ),
                Values::Fixed(v) => {
                    Values::Fixed(w.iter().map(|w| w.iter().map(|&i| v[i]).max().unwrap()).collect())
                }
            }
        }
        "average_pool" => {
            let pad = op["count_include_pad"].as_bool().unwrap();
            let value = |at: &Vec<usize>| {
                let (w, inside) = windows(op, &ishape, at);
                w.iter().fold(0.0, |s, &i| s + x.real()[i]) / if pad { inside } else { w.len() } as f64
            };
            Values::Real(grid(&oshape).iter().map(value).collect())
        }
        "reduce_mean" | "reduce_sum" | "reduce_max" | "reduce_prod" => {
            let axes = list(&op["axes"]);
            let keep: Vec<usize> = (0..ishape.len()).filter(|a| !axes.contains(a)).collect();
            let kept: Vec<usize> = keep.iter().map(|&a| ishape[a]).collect();
            let value = |at: Vec<usize>| {
                let all: Vec<f64> = grid(&ishape)
                    .into_iter()
                    .filter(|c| keep.iter().zip(&at).all(|(&a, i)| c[a] == *i))
                    .map(|c| x.real()[flat(&ishape, &c)])
                    .collect();
                match name {
                    "reduce_max" => all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    "reduce_sum" => all.iter().fold(0.0, |s, v| s + v),
                    "reduce_prod" => all.iter().product(),
                    _ => all.iter().fold(0.0, |s, v| s + v) / all.len() as f64,
                }
            };
            Values::Real(grid(&kept).into_iter().map(value).collect())
        }
        "softmax" => {
            let axis = op["axis"].as_u64().unwrap() as usize;
            let value = |at: &Vec<usize>| {
                let along: Vec<f64> = (0..ishape[axis])
                    .map(|i| {
                        let mut c = at.clone();
                        c[axis] = i;
                        x.real()[flat(&ishape, &c)]
                    })
                    .collect();
                let m = along.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let e: Vec<f64> = along.iter().map(|x| exp(x - m)).collect();
                e[at[axis]] / e.iter().fold(0.0, |s, e| s + e)
            };
            Values::Real(grid(&oshape).iter().map(value).collect())
        }
        "prelu" => {
            let slope: Vec<f64> = serde_json::from_value(op["slope"].clone()).unwrap();
            let per = x.real().len() / ishape.first().copied().unwrap_or(1);
            let f = |(i, &x): (usize, &f64)| {
                if x < 0.0 {
                    x * slope[if slope.len() == 1 { 0 } else { i / per }]
                } else {
                    x
                }
            };
            Values::Real(x.real().iter().enumerate().map(f).collect())
        }
        "matmul" | "interpolate" | "gather" | "top_k" => {
            Values::Real(super::products::operation(builder, op, t))
        }
        "add" | "sub" | "mul" | "div" | "minimum" | "maximum" | "less" | "equal" => {
            let f = |(&a, &b): (&f64, &f64)| match name {
                "add" => a + b,
                "less" => f64::from(u8::from(a < b)),
                "equal" => f64::from(u8::from(a == b)),
                "sub" => a - b,
                "mul" => a * b,
                "div" => a / b,
                "minimum" => a.min(b),
                _ => a.max(b),
            };
            Values::Real(x.real().iter().zip(t[&ids[1]].real()).map(f).collect())
        }
        _ => Values::Real(x.real().iter().map(|&x| unary(name, op, x)).collect()),
    }
}

fn unary(name: &str, op: &Value, x: f64) -> f64 {
    let number = |k: &str| op[k].as_f64();
    match name {
        "affine" => x * number("mul").unwrap() + number("add").unwrap(),
        "relu" => x.max(0.0),
        "leaky_relu" => {
            if x < 0.0 {
                number("alpha").unwrap() * x
            } else {
                x
            }
        }
        "clip" => {
            x.max(number("min").unwrap_or(f64::NEG_INFINITY)).min(number("max").unwrap_or(f64::INFINITY))
        }
        "abs" => x.abs(),
        "neg" => -x,
        "sqrt" => x.sqrt(),
        "square" => x * x,
        "sigmoid" => sigmoid(x),
        "tanh" => 2.0 * sigmoid(2.0 * x) - 1.0,
        "exp" => exp(x),
        "erf" => erf(x),
        "log" | "sin" | "cos" | "atan" => super::products::function(name, x),
        "floor" => x.floor(),
        "round" => x.round_ties_even(),
        "hard_sigmoid" => (number("alpha").unwrap() * x + number("beta").unwrap()).clamp(0.0, 1.0),
        "hard_swish" => x * (x * 0.166_666_666_666_666_66 + 0.5).clamp(0.0, 1.0),
        "silu" => x * sigmoid(x),
        "gelu" => (0.5 * x) * (1.0 + erf(x * 0.707_106_781_186_547_6)),
        "gelu_tanh" => {
            let u = 0.797_884_560_802_865_4 * (x + (0.044_715 * x) * (x * x));
            (0.5 * x) * (1.0 + (2.0 * sigmoid(2.0 * u) - 1.0))
        }
        "elu" => {
            if x < 0.0 {
                number("alpha").unwrap() * (exp(x) - 1.0)
            } else {
                x
            }
        }
        other => panic!("{other}"),
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + exp(-x))
}

fn exp(x: f64) -> f64 {
    let x = x.clamp(-708.0, 708.0);
    let n = (x * std::f64::consts::LOG2_E).round_ties_even();
    let r = (x - n * f64::from_bits(0x3FE6_2E42_FEE0_0000)) - n * f64::from_bits(0x3DEA_39EF_3579_3C76);
    let c: Vec<f64> = (0..14).map(|i| 1.0 / (1..=i).map(f64::from).product::<f64>()).collect();
    c.iter().rev().skip(1).fold(c[13], |p, c| p * r + c) * n.exp2()
}

fn erf(x: f64) -> f64 {
    let z = x.abs();
    let value = if z < 2.0 {
        let (mut t, mut s) = (z, z);
        for n in 1..=40 {
            t *= ((2.0 * z) * z) / f64::from(2 * n + 1);
            s += t;
        }
        (s * 1.128_379_167_095_512_6) * exp(-(z * z))
    } else if z < 6.0 {
        let f = (1..=60).rev().fold(0.0, |f, n| (f64::from(n) / 2.0) / (z + f));
        1.0 - (exp(-(z * z)) * 0.564_189_583_547_756_3) / (z + f)
    } else {
        1.0
    };
    value.copysign(x)
}
