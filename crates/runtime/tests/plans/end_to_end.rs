//! Both parties over the in-process pipe: outputs equal a plain integer evaluation exactly.

use crate::common::{conv, op, op_with, run_and_compare, small_net, Builder, Linear};
use serde_json::json;

#[test]
fn a_small_network_is_exact() {
    let b = small_net(2048, 1, &Linear::default());
    let trace = run_and_compare(&b, 5, 1.0, 2);
    assert_eq!((trace.blocks, trace.rounds, trace.images), (1, 2, 5));
    for stage in trace.stages.iter().filter(|s| s.kind == "linear") {
        assert!(stage.noise_margin_bits.unwrap() > 0.0, "{stage:?}");
        assert!(stage.ranges[0].largest <= stage.ranges[0].bound && stage.ranges[0].largest > 0);
    }
}

#[test]
fn fresh_masks_several_blocks_tiles_of_one_row_and_wide_weights() {
    for (i, mask) in ["shared", "fresh", "sent"].into_iter().enumerate() {
        for (band, weight_bits, dtype) in [(1, 4, "I8"), (2, 7, "I16"), (usize::MAX, 8, "I8")] {
            let o = Linear { mask, weight_bits, band, dtype };
            let b = small_net(2048, 7 + i as u64, &o);
            let trace = run_and_compare(&b, 2 * 2048 + 3, 1.2, 3);
            assert_eq!((trace.blocks, trace.rounds), (3, 6));
            let setup = trace.setup_bytes_down;
            assert_eq!(setup == 0, mask != "shared");
        }
    }
}

#[test]
fn a_tensor_that_feeds_two_layers_and_a_residual_sum() {
    let mut b = Builder::new(2048, 5);
    let image = b.input("image", &[4, 6, 6]);
    let q = b.fixed(&[4, 6, 6], 0.01, 127);
    b.client(vec![op("quantize", &[image], q)]);
    let o = Linear { band: 3, ..Linear::default() };
    let left = b.linear(q, conv([4, 6, 6], 4, [3, 3], [1, 1], [1, 1, 1, 1], [1, 1], 2), &o);
    let right = b.linear(q, conv([4, 6, 6], 4, [1, 1], [1, 1], [0; 4], [1, 1], 4), &o);
    let r: Vec<usize> = (0..5).map(|_| b.real(&[4, 6, 6])).collect();
    let pooled = b.real(&[4, 3, 3]);
    let q2 = b.fixed(&[4, 3, 3], 0.2, 127);
    b.client(vec![
        op("dequantize", &[left], r[0]),
        op("dequantize", &[right], r[1]),
        op("dequantize", &[q], r[2]),
        op("add", &[r[0], r[1]], r[3]),
        op("add", &[r[3], r[2]], r[4]),
        op_with(
            "max_pool",
            &[r[4]],
            pooled,
            json!({"kernel": [2, 2], "stride": [2, 2], "pads": [0, 0, 0, 0], "dilation": [1, 1]}),
        ),
        op("quantize", &[pooled], q2),
    ]);
    let last = b.linear(q2, json!({"type": "dense", "inputs": 36, "outputs": 3}), &Linear { band: 2, ..o });
    b.output("logits", last);
    b.output("sum", r[4]);
    b.output("left", left);
    run_and_compare(&b, 9, 0.5, 6);
}

/// Runs tests of this program again on every weaker instruction set: all equal the same oracle, bit for bit.
#[test]
fn every_instruction_set_gives_the_same_bits() {
    for isa in hushnet_ring::simd::available() {
        let done = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "end_to_end::a_small_network_is_exact",
                "end_to_end::smooth_functions_between_layers_are_exact",
            ])
            .env("HUSHNET_SIMD", isa.name())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && text.contains("2 passed"), "{}: {text}", isa.name());
    }
}

#[test]
fn smooth_functions_between_layers_are_exact() {
    let mut b = Builder::new(2048, 9);
    let x = b.input("x", &[19]);
    let q = b.fixed(&[19], 0.01, 127);
    b.client(vec![op("quantize", &[x], q)]);
    let o = Linear { weight_bits: 5, ..Linear::default() };
    let acc = b.linear(q, json!({"type": "dense", "inputs": 19, "outputs": 13}), &o);
    let t: Vec<usize> = (0..9).map(|_| b.real(&[13])).collect();
    let scale = 8.0 / b.tensors[acc]["bound"].as_f64().unwrap();
    b.tensors[acc]["scale"] = scale.into();
    b.client(vec![
        op("dequantize", &[acc], t[0]),
        op("gelu", &[t[0]], t[1]),
        op("silu", &[t[0]], t[2]),
        op("tanh", &[t[0]], t[3]),
        op_with("elu", &[t[0]], t[4], json!({"alpha": 0.7})),
        op("gelu_tanh", &[t[0]], t[5]),
        op("add", &[t[1], t[2]], t[6]),
        op("mul", &[t[6], t[3]], t[7]),
        op_with("softmax", &[t[7]], t[8], json!({"axis": 0})),
    ]);
    for (name, id) in [("softmax", t[8]), ("elu", t[4]), ("tanh gelu", t[5])] {
        b.output(name, id);
    }
    run_and_compare(&b, 2048 + 77, 1.27, 4);
}
