//! Plans whose linear layers work on many images in one ciphertext.

use super::coefficients::most_units;
use super::networks::verify;
use super::views::{deviation, received};
use super::*;
use hushnet_mpc::OtKind;

/// Makes the linear stages numbered `which` batch stages, with the norms of their rows.
fn batched(net: &mut Net, which: &[usize]) {
    let stages = net.stages.iter_mut().filter(|s| s["kind"] == "linear").enumerate();
    for (_, stage) in stages.filter(|(i, _)| which.contains(i)) {
        let (weights, bias) = &net.weights[stage["weights"].as_str().unwrap()];
        let norm = |row: &[i64]| row.iter().map(|w| (w * w) as f64).sum::<f64>().sqrt();
        let rows = weights.chunks_exact(weights.len() / bias.len());
        let largest = rows.map(norm).fold(1.0, f64::max);
        stage["method"] = "batch".into();
        stage["weight_l2"] = largest.log2().ceil().exp2().into();
    }
}

fn classifier(seed: u64) -> Net {
    let mut net = Net::new(28, seed);
    let x = net.input("image", &[2, 9, 7], 5, 31);
    let c = net.conv(x, 4, 3, 2, 1, 2, 5);
    let r = net.relu(c);
    let t = net.truncate(r, 5, "non-negative", false);
    let d = net.dense(t, 6, 4);
    let t = net.truncate(d, 3, "any", false);
    net.open("logits", t);
    net
}

#[test]
fn any_number_of_images_in_blocks_and_beside_packed_layers() {
    for (which, images, group) in [
        (&[0, 1][..], 1, None),
        (&[0, 1], 5, Some(3)),
        (&[0], 9, None),
        (&[1], 4, Some(4)),
        // Two blocks of one group.
        (&[0, 1], 2050, Some(2050)),
    ] {
        let mut net = classifier(images as u64);
        batched(&mut net, which);
        let plan = plan_of(&net).unwrap();
        assert!(plan.has_batch());
        let inputs = random_inputs(&mut net, &plan, images);
        let result =
            run(&plan, &inputs, images, TwoPartyOptions { group, ..TwoPartyOptions::default() }).unwrap();
        let (units, results) = verify(&net, &plan, &inputs, images, &result);
        assert!(units <= most_units(&net, &plan, results), "{units} of {results} are a unit off");
        assert_eq!(result.client.groups, images.div_ceil(group.unwrap_or(2048)));
    }
}

#[test]
fn answers_are_uniform_and_fresh() {
    let mut net = classifier(3);
    batched(&mut net, &[0, 1]);
    let plan = plan_of(&net).unwrap();
    let inputs = vec![vec![0.5; 300 * 2 * 9 * 7]];
    let options = || TwoPartyOptions { ot: Some(OtKind::Iknp), ..TwoPartyOptions::default() };
    let mut views = Vec::new();
    for _ in 0..2 {
        let result = run(&plan, &inputs, 300, options()).unwrap();
        let answers = received(&result, &plan, true)[2].to_vec();
        // 38-bit words pack without gaps, so bytes are uniform when words are; 300 images leave 4 zero words an output.
        assert!(answers.len() > 100_000);
        let requests = received(&result, &plan, false)[2];
        assert!(deviation(requests).abs() < 6.0, "{}", deviation(requests));
        let share = &result.shares[1].iter().find(|(t, _)| *t == 3).unwrap().1;
        let bytes: Vec<u8> = share.iter().map(|v| (v >> 15) as u8).collect();
        assert!(deviation(&bytes).abs() < 6.0, "{}", deviation(&bytes));
        views.push(answers);
    }
    let n = views[0].len() as f64;
    let same = views[0].iter().zip(&views[1]).filter(|(a, b)| a == b).count() as f64;
    // Zero words beside chance.
    let expected = n / 256.0 + 80.0 * 19.0;
    assert!((same - expected).abs() < 0.1 * expected, "{same} of {n} bytes agree, {expected} expected");
}

#[test]
fn a_norm_below_the_weights_is_refused() {
    let mut net = classifier(4);
    batched(&mut net, &[0, 1]);
    for stage in net.stages.iter_mut().filter(|s| s["kind"] == "linear") {
        stage["weight_l2"] = 1.0.into();
    }
    let error = plan_of(&net).err().unwrap();
    assert!(error.to_string().contains("weight_l2 1"), "{error}");
}

#[test]
fn rings_beyond_the_modulus_are_refused() {
    let mut net = classifier(5);
    batched(&mut net, &[0, 1]);
    net.stages[2]["weight_l2"] = 2f64.powi(30).into();
    let error = plan_of(&net).unwrap_err();
    assert!(error.to_string().contains("53-bit modulus"), "{error}");
}
