//! The stages on plain integers, one image, by definition.

use super::super::methods::find;
use super::builder::Net;
use hushnet_mpc::Function;
use serde_json::Value;

pub(super) fn ids(v: &Value) -> Vec<usize> {
    match v {
        Value::Array(a) => a.iter().map(|v| v.as_u64().unwrap() as usize).collect(),
        v => vec![v.as_u64().unwrap() as usize],
    }
}

fn list(v: &Value) -> Vec<i64> {
    serde_json::from_value(v.clone()).unwrap()
}

/// Result of a shared stage from its operands, and how many units it may lie above and below.
pub(super) fn evaluate(
    net: &Net,
    stage: &Value,
    x: &[&[i64]],
    exact: bool,
) -> (Vec<i64>, std::ops::RangeInclusive<i64>) {
    let inputs = ids(&stage["in"]);
    let (from, to) = (net.shape(inputs[0]), net.shape(ids(&stage["out"])[0]));
    let number = |k: &str| stage[k].as_i64().unwrap();
    let comparing = ["relu", "clip", "max_pool"].contains(&stage["kind"].as_str().unwrap());
    let dropped = stage["bits"].as_i64().filter(|_| comparing).unwrap_or(0);
    let shifted: Vec<i64> = x[0].iter().map(|v| v >> dropped).collect();
    let a = if dropped > 0 { &shifted[..] } else { x[0] };
    let up = i64::from(dropped > 0);
    let each = |f: &dyn Fn(i64) -> i64| a.iter().map(|v| f(*v)).collect::<Vec<_>>();
    match stage["kind"].as_str().unwrap() {
        "linear" => {
            let (w, b) = &net.weights[stage["weights"].as_str().unwrap()];
            // Slot-packed stages are exact, the others round each party's share by itself.
            let exact = find(stage["method"].as_str().unwrap()).unwrap().exact();
            let unit = i64::from(!exact);
            (linear(&stage["geometry"], w, b, a), -unit..=unit)
        }
        "relu" => (each(&|v| v.max(0)), 0..=up),
        "leaky_relu" => {
            let (n, d) = (number("numerator"), number("log_denominator"));
            (each(&|v| if v < 0 { (v * n) >> d } else { v }), 0..=1)
        }
        "clip" => (each(&|v| v.clamp(number("low"), number("high"))), 0..=up),
        "truncate" => (each(&|v| v >> number("bits")), 0..=i64::from(!exact)),
        "scale" => (each(&|v| v * number("factor")), 0..=0),
        "shift" => {
            let sign = if stage["negated"] == true { -1 } else { 1 };
            (each(&|v| sign * v + number("by")), 0..=0)
        }
        "add" => (a.iter().zip(x[1]).map(|(a, b)| a + b).collect(), 0..=0),
        "hard_swish" => {
            let (end, bits) = (2 * number("quarter"), number("bits"));
            (each(&|v| (v * (v + end).clamp(0, 2 * end)) >> bits), 0..=1)
        }
        "product" => {
            let bits = number("bits");
            let shapes = [net.shape(inputs[0]), net.shape(inputs[1])];
            let place = |which: usize, e: usize| broadcast(&shapes[which], &at(&to, e));
            let product = |e: usize| a[place(0, e)] * x[1][place(1, e)];
            ((0..to.iter().product()).map(|e| product(e) >> bits).collect(), 0..=i64::from(bits > 0))
        }
        "matrix_product" => {
            let bits = number("bits");
            let sums = matrices(&from, &net.shape(inputs[1]), a, x[1]);
            // One unit of each cross term before the division, one of the division.
            let units = (2 + (1 << bits) - 1) >> bits;
            (sums.into_iter().map(|v| v >> bits).collect(), -units..=units + i64::from(bits > 0))
        }
        "function" => {
            let f = named(stage["function"].as_str().unwrap());
            let unit = |id: usize| (-net.f(id) as f64).exp2();
            let (from, to) = (unit(inputs[0]), unit(ids(&stage["out"])[0]));
            let error = (stage["predicted"]["error"].as_f64().unwrap() / to + 0.5).ceil() as i64;
            (each(&|v| (f.at(v as f64 * from) / to).round() as i64), -error..=error)
        }
        "max_pool" => (pool(stage, &from, &to, a, i64::MIN, i64::max), 0..=up),
        "sum_pool" => (pool(stage, &from, &to, a, 0, |a, b| a + b), 0..=0),
        "reshape" => (a.to_vec(), 0..=0),
        _ => (moved(net, stage, &inputs, &to, x), 0..=0),
    }
}

/// Products of matrices `[..., n, k]` and `[..., k, m]` by definition.
fn matrices(of_a: &[usize], of_b: &[usize], a: &[i64], b: &[i64]) -> Vec<i64> {
    let (n, k, m) = (of_a[of_a.len() - 2], of_a[of_a.len() - 1], of_b[of_b.len() - 1]);
    let heads = a.len() / (n * k);
    let element = |e: usize| {
        let (h, i, j) = (e / (n * m), e / m % n, e % m);
        (0..k).map(|t| a[(h * n + i) * k + t] * b[(h * k + t) * m + j]).sum()
    };
    (0..heads * n * m).map(element).collect()
}

fn pool(
    stage: &Value,
    from: &[usize],
    to: &[usize],
    a: &[i64],
    zero: i64,
    join: fn(i64, i64) -> i64,
) -> Vec<i64> {
    let (k, s, p) = (list(&stage["kernel"]), list(&stage["stride"]), list(&stage["pads"]));
    let mut out = Vec::new();
    for c in 0..to[0] {
        for y in 0..to[1] as i64 {
            for z in 0..to[2] as i64 {
                let mut v = zero;
                for i in 0..k[0] {
                    for j in 0..k[1] {
                        let (r, q) = (y * s[0] + i - p[0], z * s[1] + j - p[1]);
                        if (0..from[1] as i64).contains(&r) && (0..from[2] as i64).contains(&q) {
                            v = join(v, a[(c * from[1] + r as usize) * from[2] + q as usize]);
                        }
                    }
                }
                out.push(v);
            }
        }
    }
    out
}

fn linear(g: &Value, w: &[i64], b: &[i64], x: &[i64]) -> Vec<i64> {
    if g["type"] == "dense" {
        let k = x.len();
        return b
            .iter()
            .enumerate()
            .map(|(o, b)| b + w[o * k..(o + 1) * k].iter().zip(x).map(|(a, b)| a * b).sum::<i64>())
            .collect();
    }
    let (i, o, k) = (list(&g["input"]), list(&g["output"]), list(&g["kernel"]));
    let (s, p, d, groups) =
        (list(&g["stride"]), list(&g["pads"]), list(&g["dilation"]), g["groups"].as_i64().unwrap());
    let (ipg, opg) = (i[0] / groups, o[0] / groups);
    let mut out = Vec::new();
    for oc in 0..o[0] {
        for y in 0..o[1] {
            for z in 0..o[2] {
                let mut sum = b[oc as usize];
                for c in 0..ipg {
                    for a in 0..k[0] {
                        for e in 0..k[1] {
                            let (r, q) = (y * s[0] + a * d[0] - p[0], z * s[1] + e * d[1] - p[1]);
                            if (0..i[1]).contains(&r) && (0..i[2]).contains(&q) {
                                let channel = oc / opg * ipg + c;
                                sum += w[(((oc * ipg + c) * k[0] + a) * k[1] + e) as usize]
                                    * x[((channel * i[1] + r) * i[2] + q) as usize];
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

fn at(shape: &[usize], mut index: usize) -> Vec<i64> {
    let mut c = vec![0; shape.len()];
    for (c, s) in c.iter_mut().zip(shape).rev() {
        *c = (index % s) as i64;
        index /= s;
    }
    c
}

fn get(shape: &[usize], x: &[i64], c: &[i64]) -> Option<i64> {
    let mut index = 0;
    for (c, s) in c.iter().zip(shape) {
        if !(0..*s as i64).contains(c) {
            return None;
        }
        index = index * s + *c as usize;
    }
    Some(x[index])
}

fn moved(net: &Net, stage: &Value, inputs: &[usize], to: &[usize], x: &[&[i64]]) -> Vec<i64> {
    let elements: usize = to.iter().product();
    let shape = net.shape(inputs[0]);
    (0..elements)
        .map(|e| {
            let mut c = at(to, e);
            match stage["kind"].as_str().unwrap() {
                "transpose" => {
                    let mut source = vec![0; c.len()];
                    for (axis, p) in list(&stage["perm"]).iter().enumerate() {
                        source[*p as usize] = c[axis];
                    }
                    get(&shape, x[0], &source).unwrap()
                }
                "concat" => {
                    let axis = stage["axis"].as_u64().unwrap() as usize;
                    for (t, x) in inputs.iter().zip(x) {
                        let shape = net.shape(*t);
                        if let Some(v) = get(&shape, x, &c) {
                            return v;
                        }
                        c[axis] -= shape[axis] as i64;
                    }
                    unreachable!("beyond the operands")
                }
                "slice" => {
                    for (i, axis) in list(&stage["axes"]).iter().enumerate() {
                        let v = &mut c[*axis as usize];
                        *v = list(&stage["starts"])[i] + *v * list(&stage["steps"])[i];
                    }
                    get(&shape, x[0], &c).unwrap()
                }
                "pad" => {
                    for (c, p) in c.iter_mut().zip(list(&stage["pads"])) {
                        *c -= p;
                    }
                    get(&shape, x[0], &c).unwrap_or(0)
                }
                other => unreachable!("{other}"),
            }
        })
        .collect()
}

/// A function by the name that a plan gives it.
fn named(name: &str) -> Function {
    let names = ["sigmoid", "tanh", "silu", "exp"];
    let functions = [Function::Sigmoid, Function::Tanh, Function::Silu, Function::Exp];
    functions[names.iter().position(|n| *n == name).unwrap()]
}

/// The element of a tensor of this shape that stands at a place of a larger one.
fn broadcast(shape: &[usize], place: &[i64]) -> usize {
    let skip = place.len() - shape.len();
    let own = |(size, c): (&usize, &i64)| if *size == 1 { 0 } else { *c as usize };
    shape.iter().zip(&place[skip..]).fold(0, |index, (size, c)| index * size + own((size, c)))
}

/// How far an output may lie from the planned value when every operand lies up to `x` away: one unit a linear or truncating stage.
pub(super) fn spread(net: &Net, stage: &Value, x: &[i64], exact: bool) -> i64 {
    match stage["kind"].as_str().unwrap() {
        "linear" => {
            let (w, b) = &net.weights[stage["weights"].as_str().unwrap()];
            let row = w.len() / b.len();
            w.chunks(row).map(|r| r.iter().map(|v| v.abs()).sum::<i64>()).max().unwrap() * x[0] + 1
        }
        "relu" | "clip" | "max_pool" if stage["bits"].as_i64().is_some_and(|bits| bits > 0) => {
            let bits = stage["bits"].as_i64().unwrap();
            ((x[0] + (1 << bits) - 1) >> bits) + 1
        }
        "leaky_relu" => x[0] + 1,
        "truncate" => {
            let bits = stage["bits"].as_i64().unwrap();
            ((x[0] + (1 << bits) - 1) >> bits) + i64::from(!exact)
        }
        "scale" => x[0] * stage["factor"].as_i64().unwrap(),
        "add" => x[0] + x[1],
        "hard_swish" => {
            ((x[0] * 6 * stage["quarter"].as_i64().unwrap()) >> stage["bits"].as_i64().unwrap()) + 2
        }
        "product" => {
            let t = ids(&stage["in"]);
            let most = net.bound(t[0]) as i64 * x[1] + net.bound(t[1]) as i64 * x[0] + x[0] * x[1];
            (most >> stage["bits"].as_i64().unwrap()) + 2
        }
        "matrix_product" => {
            let (t, shape) = (ids(&stage["in"]), net.shape(ids(&stage["in"])[0]));
            let most = net.bound(t[0]) as i64 * x[1] + net.bound(t[1]) as i64 * x[0] + x[0] * x[1];
            let inner = shape[shape.len() - 1] as i64;
            ((inner * most) >> stage["bits"].as_i64().unwrap()) + 3
        }
        "function" => {
            let predicted = |k: &str| stage["predicted"][k].as_f64().unwrap();
            let unit = |id: usize| (-net.f(id) as f64).exp2();
            let (from, to) = (unit(ids(&stage["in"])[0]), unit(ids(&stage["out"])[0]));
            ((predicted("error") + predicted("slope") * from * x[0] as f64) / to).ceil() as i64 + 2
        }
        "sum_pool" => x[0] * list(&stage["kernel"]).iter().product::<i64>(),
        "concat" => *x.iter().max().unwrap(),
        _ => x[0],
    }
}
