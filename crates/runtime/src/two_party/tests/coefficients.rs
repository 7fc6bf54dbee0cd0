//! Plans whose linear layers are `rotation-free` or `convfhe`, alone and beside `cheetah`.

use super::super::methods::find;
use super::networks::verify;
use super::views::{deviation, received};
use super::*;
use hushnet_mpc::OtKind;

/// Gives the linear stages these methods in turn; the norm of all weights bounds every layout.
pub(super) fn with_methods(net: &mut Net, methods: &[&str]) {
    let stages = net.stages.iter_mut().filter(|s| s["kind"] == "linear");
    for (stage, method) in stages.zip(methods.iter().cycle()) {
        let (weights, _) = &net.weights[stage["weights"].as_str().unwrap()];
        let norm = weights.iter().map(|w| (w * w) as f64).sum::<f64>().sqrt().max(1.0);
        stage["method"] = (*method).into();
        stage["weight_l2"] = norm.log2().ceil().exp2().into();
    }
}

pub(super) fn classifier(seed: u64) -> Net {
    let mut net = Net::new(26, seed);
    let x = net.input("image", &[2, 9, 7], 5, 31);
    let c = net.conv(x, 4, 3, 2, 1, 2, 5);
    let r = net.relu(c);
    let t = net.truncate(r, 5, "non-negative", false);
    let d = net.dense(t, 6, 4);
    let t = net.truncate(d, 3, "any", false);
    net.open("logits", t);
    net
}

/// Most results of a run that may be a unit off: a twentieth and two more, or four deviations more than the methods state, where that is more.
pub(super) fn most_units(net: &Net, plan: &TwoPartyPlan, results: usize) -> usize {
    let stated = |stage: &serde_json::Value| {
        let method = find(stage["method"].as_str().unwrap()).unwrap();
        let norm = stage["weight_l2"].as_f64().unwrap();
        method.parameters(plan.ring_degree(), plan.ring().bits(), norm).map_or(0.0, |p| p.unit_fraction)
    };
    let linear = net.stages.iter().filter(|s| s["kind"] == "linear");
    let mean = linear.map(stated).fold(0.0, f64::max) * results as f64;
    (mean + 4.0 * mean.sqrt()).max(results as f64 / 20.0 + 2.0) as usize
}

#[test]
fn every_method_alone_and_beside_others_with_exact_traffic() {
    for (methods, images) in [
        (&["rotation-free"][..], 2),
        (&["convfhe"], 2),
        (&["rotation-free", "convfhe"], 1),
        (&["cheetah", "rotation-free"], 3),
    ] {
        let mut net = classifier(images as u64);
        with_methods(&mut net, methods);
        let plan = plan_of(&net).unwrap();
        let inputs = random_inputs(&mut net, &plan, images);
        let result = run(&plan, &inputs, images, TwoPartyOptions::default()).unwrap();
        let (units, results) = verify(&net, &plan, &inputs, images, &result);
        let most = most_units(&net, &plan, results);
        assert!(units <= most, "{methods:?}: {units} of {results} are a unit off");
    }
}

#[test]
fn answers_of_rotation_free_stages_are_uniform_and_fresh() {
    let mut net = classifier(3);
    with_methods(&mut net, &["rotation-free"]);
    let plan = plan_of(&net).unwrap();
    let images = 100;
    let inputs = vec![vec![0.5; images * 2 * 9 * 7]];
    let options = || TwoPartyOptions { ot: Some(OtKind::Iknp), ..TwoPartyOptions::default() };
    let mut views = Vec::new();
    for _ in 0..2 {
        let result = run(&plan, &inputs, images, options()).unwrap();
        let answers = received(&result, &plan, true)[2].to_vec();
        let requests = received(&result, &plan, false)[2];
        assert!(requests.len() > 100_000 && deviation(requests).abs() < 6.0, "{}", deviation(requests));
        assert!(deviation(&answers).abs() < 6.0, "{}", deviation(&answers));
        views.push(answers);
    }
    let n = views[0].len() as f64;
    let same = views[0].iter().zip(&views[1]).filter(|(a, b)| a == b).count() as f64;
    assert!((same / n - 1.0 / 256.0).abs() < 0.01, "{same} of {n}");
}

#[test]
fn norms_below_the_weights_and_rings_without_parameters_are_refused() {
    for method in ["rotation-free", "convfhe"] {
        let mut net = classifier(4);
        with_methods(&mut net, &[method]);
        for stage in net.stages.iter_mut().filter(|s| s["kind"] == "linear") {
            stage["weight_l2"] = 1.0.into();
        }
        let error = plan_of(&net).err().unwrap();
        assert!(error.to_string().contains("weight_l2 1"), "{method}: {error}");
        net.stages[2]["weight_l2"] = 2f64.powi(400).into();
        assert!(plan_of(&net).is_err(), "{method}");
    }
}

#[test]
fn weights_beyond_the_memory_are_transformed_as_they_are_used() {
    for methods in [&["rotation-free", "convfhe"][..], &["convfhe", "cheetah"], &["cheetah", "rotation-free"]]
    {
        let mut net = classifier(5);
        with_methods(&mut net, methods);
        let plan = plan_of(&net).unwrap();
        let compute = Compute::default;
        let all = TwoPartyModel::with_memory(&plan, compute(), usize::MAX).unwrap().weight_bytes();
        let none = TwoPartyModel::with_memory(&plan, compute(), 0).unwrap();
        let integers: usize = net.weights.values().map(|(w, _)| 2 * w.len()).sum();
        assert_eq!(none.weight_bytes(), integers, "{methods:?}");
        // One layer fits, both do not: the layers share what there is, whatever their methods.
        let least = (0..=all)
            .step_by(1024)
            .map(|m| (m, TwoPartyModel::with_memory(&plan, compute(), m).unwrap().weight_bytes()));
        let mut steps: Vec<usize> = Vec::new();
        for (most, bytes) in least {
            assert!(bytes <= most + integers, "{methods:?}: {bytes} of {most}");
            if steps.last() != Some(&bytes) {
                steps.push(bytes);
            }
        }
        assert!(steps.len() >= 2 && steps[0] == integers && *steps.last().unwrap() <= all, "{steps:?}");
        for memory in [0, all / 2] {
            let inputs = random_inputs(&mut net, &plan, 1);
            let model = TwoPartyModel::with_memory(&plan, compute(), memory).unwrap();
            let result = run_on(&model, &inputs, 1, TwoPartyOptions::default()).unwrap();
            verify(&net, &plan, &inputs, 1, &result);
        }
    }
}
