//! Every client operation against straightforward code, on odd shapes, in streamed and whole form.

use crate::common::{compare, op, op_with, run, Batch, Builder, Rng};
use hushnet_runtime::Error;
use proptest::prelude::*;
use serde_json::{json, Value};

/// Runs one client stage on random images and compares with the oracle.
fn check(b: &Builder, images: usize, amplitude: f64, seed: u64) {
    let plan = b.plan();
    let batches = Batch::random(&plan, images, &mut Rng(seed), amplitude);
    let (outputs, _) = run(&plan, &batches).unwrap();
    compare(b, &batches, images, &outputs);
}

fn elementwise() -> Vec<(&'static str, Value)> {
    vec![
        ("affine", json!({"mul": -1.7, "add": 0.3})),
        ("relu", json!({})),
        ("leaky_relu", json!({"alpha": 0.1})),
        ("prelu", json!({"slope": [0.25]})),
        ("prelu", json!({"slope": [0.25, -0.5, 1.5]})),
        ("clip", json!({"min": -0.5, "max": 0.75})),
        ("clip", json!({"min": null, "max": 0.75})),
        ("clip", json!({"min": 0.0})),
        ("abs", json!({})),
        ("neg", json!({})),
        ("square", json!({})),
        ("sigmoid", json!({})),
        ("tanh", json!({})),
        ("exp", json!({})),
        ("erf", json!({})),
        ("hard_sigmoid", json!({"alpha": 0.2, "beta": 0.5})),
        ("hard_swish", json!({})),
        ("silu", json!({})),
        ("gelu", json!({})),
        ("gelu_tanh", json!({})),
        ("elu", json!({"alpha": 0.8})),
        ("sin", json!({})),
        ("cos", json!({})),
        ("atan", json!({})),
        ("floor", json!({})),
        ("round", json!({})),
    ]
}

#[test]
fn elementwise_operations_are_bit_exact() {
    for (images, amplitude) in [(1, 1.0), (5, 8.0), (515, 3.0)] {
        for (name, attributes) in elementwise() {
            let mut b = Builder::new(1024, 1);
            let (x, y) = (b.input("x", &[3, 2, 5]), b.real(&[3, 2, 5]));
            b.client(vec![op_with(name, &[x], y, attributes)]);
            b.output("y", y);
            check(&b, images, amplitude, 3);
        }
    }
}

#[test]
fn chains_keep_what_is_read_later() {
    let mut b = Builder::new(1024, 1);
    let (x, z) = (b.input("x", &[7, 11]), b.input("z", &[7, 11]));
    let t: Vec<usize> = (0..8).map(|_| b.real(&[7, 11])).collect();
    let q = b.fixed(&[7, 11], 0.001, 70_000);
    let big = b.fixed(&[7, 11], 1e-12, 1 << 55);
    let flat = b.real(&[77]);
    b.client(vec![
        op("abs", &[x], t[0]),
        op("sqrt", &[t[0]], t[1]),
        op("add", &[t[1], z], t[2]),
        op("sub", &[t[2], x], t[3]),
        op("mul", &[t[3], z], t[4]),
        op("reshape", &[t[4]], flat),
        op("quantize", &[t[4]], q),
        op("quantize", &[t[4]], big),
    ]);
    b.client(vec![
        op("dequantize", &[q], t[5]),
        op("minimum", &[t[5], x], t[6]),
        op("maximum", &[t[6], z], t[7]),
    ]);
    let (positive, log) = (b.real(&[7, 11]), b.real(&[7, 11]));
    b.client(vec![
        op_with("affine", &[t[0]], positive, json!({"mul": 1.0, "add": 1e-9})),
        op("log", &[positive], log),
    ]);
    let compared: Vec<usize> = (0..2).map(|_| b.real(&[7, 11])).collect();
    b.client(vec![op("less", &[x, z], compared[0]), op("equal", &[t[7], z], compared[1])]);
    let (d, e) = (b.real(&[7, 11]), b.real(&[7, 11]));
    b.client(vec![op("dequantize", &[big], d), op_with("affine", &[d], e, json!({"mul": 1.0, "add": 20.0}))]);
    let ratio = b.real(&[7, 11]);
    b.client(vec![op("div", &[t[7], e], ratio)]);
    for (name, id) in [
        ("flat", flat),
        ("q", q),
        ("big", big),
        ("last", ratio),
        ("kept", t[1]),
        ("x", x),
        ("log", log),
        ("less", compared[0]),
        ("equal", compared[1]),
    ] {
        b.output(name, id);
    }
    check(&b, 1024 + 600, 3.0, 8);
}

#[test]
fn a_tensor_through_whole_operations_of_every_storage() {
    for bound in [120, 40_000, 1 << 40] {
        let mut b = Builder::new(1024, 1);
        let x = b.input("x", &[2, 5, 4]);
        let scale = 3.0 / bound as f64;
        let wide = bound * if bound == 120 { 1000 } else { 1 };
        let q = b.fixed(&[2, 5, 4], scale, bound);
        let pooled = b.fixed(&[2, 3, 2], scale, wide);
        let turned = b.fixed(&[2, 2, 3], scale, wide);
        let padded = b.fixed(&[3, 4, 3], scale, wide);
        let joined = b.fixed(&[5, 4, 3], scale, wide);
        let cut = b.fixed(&[2, 4, 3], scale, wide);
        let wide_x = b.fixed(&[2, 2, 4, 3], scale, wide);
        b.client(vec![op("quantize", &[x], q)]);
        b.client(vec![
            op_with(
                "max_pool",
                &[q],
                pooled,
                json!({"kernel": [3, 2], "stride": [2, 2], "pads": [1, 0, 1, 0], "dilation": [1, 1]}),
            ),
            op_with("transpose", &[pooled], turned, json!({"perm": [0, 2, 1]})),
            op_with("pad", &[turned], padded, json!({"pads": [0, 1, 0, 1, 1, 0], "value": 0.0})),
            op_with("slice", &[padded], cut, json!({"axes": [0], "starts": [2], "ends": [0], "steps": [-1]})),
            op_with("concat", &[padded, cut], joined, json!({"axis": 0})),
            op("broadcast", &[cut], wide_x),
        ]);
        for (name, id) in [("pooled", pooled), ("joined", joined), ("wide", wide_x)] {
            b.output(name, id);
        }
        check(&b, 6, 2.9, 4);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn pooling(
        c in 1_usize..3, h in 1_usize..8, w in 1_usize..7, k in prop::array::uniform2(1_usize..4),
        s in prop::array::uniform2(1_usize..4), p in prop::array::uniform4(0_usize..2), d in prop::array::uniform2(1_usize..3),
        average: bool, include: bool, ceil: bool, seed: u64,
    ) {
        let d = if average { [1, 1] } else { d };
        let size = |i: usize, n: usize| -> Option<usize> {
            let free = (n + p[i] + p[i + 2]).checked_sub((k[i] - 1) * d[i] + 1)?;
            Some(if ceil { free.div_ceil(s[i]) } else { free / s[i] } + 1)
        };
        // Windows that see only padding are refused; such cases are left out here.
        let meets = |i: usize, n: usize, o: usize| (0..o).all(|o| (0..k[i]).any(|t| {
            let at = o * s[i] + t * d[i];
            at >= p[i] && at - p[i] < n
        }));
        let (Some(oh), Some(ow)) = (size(0, h), size(1, w)) else { return Ok(()) };
        if !meets(0, h, oh) || !meets(1, w, ow) {
            return Ok(());
        }
        let mut b = Builder::new(1024, 1);
        let (x, y) = (b.input("x", &[c, h, w]), b.real(&[c, oh, ow]));
        let mut attributes = json!({"kernel": k, "stride": s, "pads": p});
        if average {
            attributes["count_include_pad"] = include.into();
        } else {
            attributes["dilation"] = json!(d);
        }
        b.client(vec![op_with(if average { "average_pool" } else { "max_pool" }, &[x], y, attributes)]);
        b.output("y", y);
        check(&b, 3, 2.0, seed);
    }

    #[test]
    fn reductions_and_softmax(shape in prop::collection::vec(1_usize..5, 1..4), mask in 1_usize..8, kind in 0_usize..5, keep: bool, seed: u64) {
        let mut b = Builder::new(1024, 1);
        let x = b.input("x", &shape);
        let axes: Vec<usize> = (0..shape.len()).filter(|a| mask >> a & 1 == 1).collect();
        let y = if kind == 4 {
            let y = b.real(&shape);
            b.client(vec![op_with("softmax", &[x], y, json!({"axis": mask % shape.len()}))]);
            y
        } else {
            let out: Vec<usize> = (0..shape.len())
                .filter(|a| keep || !axes.contains(a))
                .map(|a| if axes.contains(&a) { 1 } else { shape[a] })
                .collect();
            let y = b.real(&out);
            b.client(vec![op_with(["reduce_mean", "reduce_sum", "reduce_max", "reduce_prod"][kind], &[x], y, json!({"axes": axes}))]);
            y
        };
        b.output("y", y);
        check(&b, 4, 20.0, seed);
    }

    #[test]
    fn products_and_selections(shape in prop::collection::vec(1_usize..5, 2..5), pick in 0_usize..4, seed: u64) {
        let mut rng = Rng(seed);
        let mut b = Builder::new(1024, 1);
        let (rank, axis) = (shape.len(), rng.below(shape.len()));
        let x = b.input("x", &shape);
        let along = |n: usize| [&shape[..axis], &[n], &shape[axis + 1..]].concat();
        let y = if pick == 0 {
            let (m, k, n) = (shape[rank - 2], shape[rank - 1], 1 + rng.below(4));
            let other = b.input("other", &[&shape[..rank - 2], &[k, n]].concat());
            let y = b.real(&[&shape[..rank - 2], &[m, n]].concat());
            b.client(vec![op("matmul", &[x, other], y)]);
            y
        } else if pick == 1 {
            let indices: Vec<usize> = (0..=rng.below(6)).map(|_| rng.below(shape[axis])).collect();
            let y = b.real(&along(indices.len()));
            b.client(vec![op_with("gather", &[x], y, json!({"axis": axis, "indices": indices}))]);
            y
        } else if pick == 2 {
            let (taps, n) = (1 + rng.below(3), 1 + rng.below(5));
            let indices: Vec<Vec<usize>> = (0..taps).map(|_| (0..n).map(|_| rng.below(shape[axis])).collect()).collect();
            let weights: Vec<Vec<f64>> = (0..taps).map(|_| (0..n).map(|_| rng.range(-9, 9) as f64 / 7.0).collect()).collect();
            let y = b.real(&along(n));
            b.client(vec![op_with("interpolate", &[x], y, json!({"axis": axis, "indices": indices, "weights": weights}))]);
            y
        } else {
            // Rounded, so that elements are equal.
            let (coarse, y) = (b.real(&shape), b.real(&along(1 + rng.below(shape[axis]))));
            let what = ["values", "indices"][rng.below(2)];
            b.client(vec![op("round", &[x], coarse)]);
            b.client(vec![op_with("top_k", &[coarse], y, json!({"axis": axis, "largest": rng.below(2) == 0, "what": what}))]);
            y
        };
        b.output("y", y);
        check(&b, 5, 2.0, seed);
    }

    #[test]
    fn moves(shape in prop::collection::vec(1_usize..5, 1..5), pick: usize, seed: u64) {
        let mut rng = Rng(seed);
        let mut b = Builder::new(1024, 1);
        let x = b.input("x", &shape);
        let rank = shape.len();
        let y = match pick % 5 {
            0 => {
                let mut perm: Vec<usize> = (0..rank).collect();
                (1..rank).for_each(|i| perm.swap(i, rng.below(i + 1)));
                let y = b.real(&perm.iter().map(|&p| shape[p]).collect::<Vec<_>>());
                b.client(vec![op_with("transpose", &[x], y, json!({"perm": perm}))]);
                y
            }
            1 => {
                let pads: Vec<usize> = (0..2 * rank).map(|_| rng.below(3)).collect();
                let y = b.real(&(0..rank).map(|a| shape[a] + pads[a] + pads[a + rank]).collect::<Vec<_>>());
                b.client(vec![op_with("pad", &[x], y, json!({"pads": pads, "value": 0.5}))]);
                y
            }
            2 => {
                let mut out: Vec<usize> = shape.iter().map(|&d| if d == 1 { 1 + rng.below(3) } else { d }).collect();
                out.insert(0, 2);
                let y = b.real(&out);
                b.client(vec![op("broadcast", &[x], y)]);
                y
            }
            3 => {
                let axis = rng.below(rank);
                let other = b.real(&shape);
                let mut out = shape.clone();
                out[axis] *= 3;
                let y = b.real(&out);
                b.client(vec![op("neg", &[x], other), op_with("concat", &[x, other, x], y, json!({"axis": axis}))]);
                y
            }
            _ => {
                let axis = rng.below(rank);
                let n = shape[axis] as i64;
                let step = [1, 2, 3, -1, -2][rng.below(5)];
                let (start, end) = if step > 0 {
                    let s = rng.range(0, n - 1);
                    (s, rng.range(s + 1, n))
                } else {
                    let s = rng.range(0, n - 1);
                    (s, rng.range(-1, s - 1))
                };
                let mut out = shape.clone();
                out[axis] = (end - start).unsigned_abs().div_ceil(i64::unsigned_abs(step)) as usize;
                let y = b.real(&out);
                b.client(vec![op_with("slice", &[x], y, json!({"starts": [start], "ends": [end], "steps": [step], "axes": [axis]}))]);
                y
            }
        };
        b.output("y", y);
        check(&b, 3, 1.0, seed);
    }

    #[test]
    fn quantisation_is_half_to_even_and_refuses_what_is_outside(value in -200.0_f64..200.0, half: bool) {
        let mut b = Builder::new(1024, 1);
        let x = b.input("x", &[2]);
        let q = b.fixed(&[2], 0.5, 127);
        b.client(vec![op("quantize", &[x], q)]);
        b.output("q", q);
        let plan = b.plan();
        let value = if half { (value.round() + 0.5) * 0.5 } else { value };
        let batches = vec![Batch { name: "x".into(), shape: vec![2, 2], data: vec![0.0, 1.0, 0.0, value] }];
        let wanted = (value * 2.0).round_ties_even();
        match run(&plan, &batches) {
            Ok((outputs, _)) => {
                prop_assert!(wanted.abs() <= 127.0);
                prop_assert_eq!(outputs[0].data[3], wanted * 0.5);
            }
            Err(Error::Range(e)) => {
                prop_assert!(wanted.abs() > 127.0);
                prop_assert_eq!((e.image, e.element, e.value, e.bound), (1, 1, value, Some(63.5)));
                let text = e.to_string();
                prop_assert!(text.contains("layer 'client0', tensor 't1'") && text.contains("calibration"), "{}", text);
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}

#[test]
fn numbers_that_are_none_are_errors() {
    let build = |ops: &dyn Fn(usize, usize) -> Value| {
        let mut b = Builder::new(1024, 1);
        let (x, y) = (b.input("x", &[3]), b.real(&[3]));
        b.client(vec![ops(x, y)]);
        b.output("y", y);
        b.plan()
    };
    let batch = |data: Vec<f64>| vec![Batch { name: "x".into(), shape: vec![1, 3], data }];
    let cases = [
        (build(&|x, y| op("sqrt", &[x], y)), vec![1.0, -1.0, 4.0], 1),
        (build(&|x, y| op("div", &[x, x], y)), vec![1.0, 1.0, 0.0], 2),
        (build(&|x, y| op("square", &[x], y)), vec![1e200, 1.0, 1.0], 0),
        (build(&|x, y| op("log", &[x], y)), vec![1.0, 2.0, 0.0], 2),
        (build(&|x, y| op_with("reduce_sum", &[x], y, json!({"axes": []}))), vec![1.0; 3], 9),
        (build(&|x, y| op_with("pad", &[x], y, json!({"pads": [0, 0], "value": 1.0}))), vec![1.0; 3], 9),
    ];
    for (plan, data, element) in cases {
        match run(&plan, &batch(data)) {
            Ok(_) => assert_eq!(element, 9),
            Err(Error::Range(e)) => {
                assert_eq!((e.element, e.bound), (element, None));
                assert!(e.to_string().contains("not a finite number"));
            }
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn inputs_are_checked_and_named() {
    let mut b = Builder::new(1024, 1);
    let (x, y) = (b.input("left", &[2, 3]), b.input("right", &[2, 3]));
    let z = b.real(&[2, 3]);
    b.client(vec![op("add", &[x, y], z)]);
    b.output("z", z);
    let plan = b.plan();
    let batch = |name: &str, shape: &[usize], data: Vec<f64>| Batch {
        name: name.into(),
        shape: shape.to_vec(),
        data,
    };
    let fail = |batches: Vec<Batch>| match run(&plan, &batches) {
        Err(Error::Input(e)) => e.to_string(),
        other => panic!("{other:?}"),
    };
    let good = || batch("left", &[2, 2, 3], vec![0.0; 12]);
    assert!(fail(vec![good()]).contains("input 'right' is missing"));
    assert!(fail(vec![good(), batch("wrong", &[2, 2, 3], vec![0.0; 12])]).contains("no input 'wrong'"));
    let text = fail(vec![good(), batch("right", &[2, 6], vec![0.0; 12])]);
    assert!(text.contains("input 'right' has shape [2, 6], wanted [images, 2, 3]"), "{text}");
    assert!(fail(vec![good(), batch("right", &[3, 2, 3], vec![0.0; 18])]).contains("3 images"));
    assert!(fail(vec![good(), batch("right", &[2, 2, 3], vec![0.0; 11])]).contains("shape"));
    assert!(fail(vec![batch("left", &[0, 2, 3], vec![]), good()]).contains("no images"));
    let mut data = vec![0.0; 12];
    data[7] = f64::NAN;
    assert!(fail(vec![good(), batch("right", &[2, 2, 3], data)]).contains("NaN at image 1, element 1"));
}
