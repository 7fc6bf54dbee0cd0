//! Every row of the registry of linear methods, whichever there are.

use super::super::methods::{find, METHODS};
use super::coefficients::{classifier, most_units, with_methods};
use super::networks::verify;
use super::*;

/// One dense layer.
fn matrix(seed: u64) -> Net {
    let mut net = Net::new(26, seed);
    let x = net.input("vector", &[24], 5, 31);
    let d = net.dense(x, 10, 4);
    let t = net.truncate(d, 3, "any", true);
    net.open("out", t);
    net
}

/// Results against plain integers, a unit off no more often than parameters say, exact ones never; traffic as predicted; the same with weights that are made as
/// they are used.
#[test]
fn every_method_of_the_registry_computes_what_the_plan_says_with_exact_traffic() {
    for method in METHODS {
        let mut computed = 0;
        for make in [matrix, classifier] {
            let mut net = make(17);
            with_methods(&mut net, &[method.name]);
            let plan = match plan_of(&net) {
                Ok(plan) => plan,
                // Some methods are for one kind of layers.
                Err(e) if e.to_string().contains("layers only") => continue,
                Err(e) => panic!("{method:?}: {e}"),
            };
            let inputs = random_inputs(&mut net, &plan, 2);
            for memory in [usize::MAX, 0] {
                let model = TwoPartyModel::with_memory(&plan, Compute::default(), memory).unwrap();
                let result = run_on(&model, &inputs, 2, TwoPartyOptions::default()).unwrap();
                let (units, results) = verify(&net, &plan, &inputs, 2, &result);
                let most = most_units(&net, &plan, results) + 2;
                assert!(units <= most, "{method:?}: {units} of {results} are a unit off");
                let integers: usize = net.weights.values().map(|(w, _)| 2 * w.len()).sum();
                assert!(model.weight_bytes() >= integers, "{method:?}");
                assert!(memory > 0 || model.weight_bytes() == integers, "{method:?}");
                assert!(
                    result.client.stages.iter().all(|s| (s.kind == "linear") == (s.tiles > 0)),
                    "{method:?}"
                );
            }
            computed += 1;
        }
        assert!(computed > 0, "{method:?} computes neither dense layers nor convolutions");
    }
}

#[test]
fn rows_of_the_registry_have_names_of_their_own() {
    for (row, method) in METHODS.iter().enumerate() {
        assert_eq!(METHODS.iter().position(|m| m.name == method.name), Some(row), "{method:?} has two rows");
        assert_eq!(find(method.name).unwrap().name, method.name);
    }
    assert!(find("novel").is_none());
    let mut net = matrix(18);
    with_methods(&mut net, &["novel"]);
    let error = plan_of(&net).unwrap_err().to_string();
    assert!(error.contains("method 'novel'"), "{error}");
}

/// Parameters and norms that planners ask for are those that plans are checked with.
#[test]
fn what_planners_are_told_is_what_plans_are_checked_with() {
    use hushnet_layers::batch::{Dense, Geometry};
    let geometry = Geometry::dense(Dense { inputs: 24, outputs: 10 }).unwrap();
    let weights: Vec<i16> = (0..240).map(|i| (i * 37 % 101) as i16 - 50).collect();
    for method in METHODS {
        let l2 = method.norm(&geometry, 2048, &weights).unwrap().log2().ceil().exp2();
        let told = method.parameters(2048, 26, l2).unwrap();
        assert_eq!(method.exact(), told.unit_fraction == 0.0, "{method:?}");
        assert!(
            method.norm(&geometry, 2048, &weights[1..]).unwrap_err().contains("239 weights"),
            "{method:?}"
        );
        let wanted = |ring_bits, weight_l2| super::super::methods::Wanted {
            name: method.name,
            geometry: &geometry,
            ring_degree: 2048,
            ring_bits,
            weight_l2,
            reach: ring_bits - 1,
            bound: None,
        };
        assert!(method.check(&wanted(26, l2)).is_ok(), "{method:?}");
        assert!(method.check(&wanted(60, l2 * 2f64.powi(40))).is_err(), "{method:?}");
        assert!(method.parameters(2048, 60, l2 * 2f64.powi(40)).is_err(), "{method:?}");
    }
}

/// What the page on adding a method promises: nothing beside the registry has to know of it.
#[test]
fn the_run_loops_the_cost_the_memory_and_the_check_know_no_method_by_name() {
    let sources = [
        include_str!("../client.rs"),
        include_str!("../server.rs"),
        include_str!("../cost.rs"),
        include_str!("../memory.rs"),
        include_str!("../check.rs"),
        include_str!("../plan.rs"),
        include_str!("../handshake.rs"),
    ];
    for source in sources {
        let code: String = source.lines().filter(|l| !l.trim_start().starts_with("//")).collect();
        for method in METHODS {
            let (name, family) = (method.name, method.family().replace('-', "_"));
            assert!(!code.contains(&format!("\"{name}\"")), "{name}");
            assert!(!code.contains(&format!("methods::{family}")), "{name}");
        }
    }
}
