//! Linear stages of the methods `gala` and `gazelle`: results without units of error, traffic as predicted, views, refusals.

use super::networks::verify;
use super::views::{self, deviation};
use super::*;
use hushnet_mpc::OtKind;
use serde_json::json;

/// Strides, pads, groups, a depthwise and a pointwise convolution, a dense layer.
fn network(seed: u64) -> Net {
    let mut net = Net::new(26, seed);
    let x = net.input("image", &[3, 11, 9], 4, 15);
    let a = net.conv(x, 8, 3, 2, 1, 1, 5);
    let r = net.relu(a);
    let t = net.truncate_to(r, 4, "non-negative", false, 200);
    let d = net.conv(t, 8, 3, 1, 1, 8, 4);
    let u = net.truncate(d, 3, "any", false);
    let g = net.conv(u, 4, 1, 1, 0, 2, 4);
    let r = net.relu(g);
    let s = net.truncate_to(r, 6, "non-negative", false, 300);
    let y = net.dense(s, 5, 4);
    let o = net.truncate(y, 2, "any", true);
    net.open("out", o);
    net
}

fn with_methods(net: &mut Net, methods: &[&str]) {
    for (i, stage) in net.stages.iter_mut().filter(|s| s["kind"] == "linear").enumerate() {
        stage["method"] = methods[i % methods.len()].into();
    }
}

#[test]
fn linear_stages_are_exact_alone_and_beside_others_with_exact_traffic() {
    for (methods, images) in [(&["gala"][..], 2), (&["gazelle"], 1), (&["cheetah", "gala", "gazelle"], 2)] {
        let mut net = network(images as u64);
        with_methods(&mut net, methods);
        let plan = plan_of(&net).unwrap();
        let inputs = random_inputs(&mut net, &plan, images);
        let result = run(&plan, &inputs, images, TwoPartyOptions::default()).unwrap();
        // Traffic, and every stage on the shares that entered it: no unit is allowed to these methods.
        verify(&net, &plan, &inputs, images, &result);
    }
}

/// What travels in a slot-packed stage is uniform, and the client's view of it is fresh whatever the weights are.
#[test]
fn views_are_uniform_and_follow_no_weights() {
    let images = 12;
    let inputs = vec![vec![0.5; images * 4 * 16 * 16]];
    let options = || TwoPartyOptions { ot: Some(OtKind::Iknp), ..TwoPartyOptions::default() };
    let mut views = Vec::new();
    let mut public = None;
    for file in views::PLANNED_SLOTS {
        let plan = views::planned(file);
        let told = plan.public_json().unwrap();
        assert!(*public.get_or_insert_with(|| told.clone()) == told, "the public plans differ");
        let result = run(&plan, &inputs, images, options()).unwrap();
        let heard = views::received(&result, &plan, true)[2].to_vec();
        let requests = views::received(&result, &plan, false)[2];
        assert!(heard.len() > 100_000 && requests.len() > 100_000);
        assert!(deviation(requests).abs() < 6.0, "{}", deviation(requests));
        // Words modulo p among them: p is some per cent below its power of two, in a sixtieth of the bytes.
        assert!(deviation(&heard).abs() < 6.0, "{}", deviation(&heard));
        views.push(heard);
    }
    for other in &views[1..] {
        let n = views[0].len() as f64;
        let same = views[0].iter().zip(other).filter(|(a, b)| a == b).count() as f64;
        assert!((same / n - 1.0 / 256.0).abs() < 0.01, "{same} of {n}");
    }
}

#[test]
fn results_that_no_prime_holds_are_refused_by_both_parties() {
    let mut net = network(4);
    with_methods(&mut net, &["gala"]);
    net.ring_bits = 34;
    let out = net.stages[2]["out"].as_u64().unwrap() as usize;
    for t in [out, out + 1] {
        net.tensors[t]["bound"] = json!(1u64 << 32);
    }
    let error = plan_of(&net).err().unwrap().to_string();
    assert!(error.contains("a prime of more than 30 bits"), "{error}");
}

/// A damaged public key or Galois key ends the session with an error that names it; the words of both are checked against their primes.
#[test]
fn damaged_keys_are_refused() {
    let mut net = network(5);
    with_methods(&mut net, &["gazelle"]);
    let plan = plan_of(&net).unwrap();
    let layers = Layers::new(&plan).unwrap();
    let (mut a, mut b) = memory_pair();
    // The key of `cheetah` comes first.
    let [_, slots] = layers.families() else { panic!("two families have keys") };
    let total = slots.key_len();
    assert!(total > 100_000);
    b.send(&vec![0xff; total]).unwrap();
    b.flush().unwrap();
    let keep = vec![false; plan.stages().len()];
    let preparing = super::super::methods::Preparing {
        plan: &plan,
        keep: &keep,
        plan_digest: &[0; 32],
        randomness: &|_| Ok(hushnet_ring::Prg::from_os()?),
    };
    let weights = slots.clone().prepare(&preparing).unwrap();
    let error = weights.accept(&mut a, &Compute::default()).err().unwrap();
    assert!(matches!(error, Error::Protocol(_)), "{error}");
    assert!(error.to_string().contains("a public key"), "{error}");
}

/// Wider, taller, one output, sizes that are no powers of two: the input is permuted once for every diagonal but the first, so a session has as many keys.
#[test]
fn a_network_in_diagonal_order_is_exact_with_a_key_for_every_diagonal_but_the_first() {
    use hushnet_layers::batch::{Dense, Geometry};
    use hushnet_layers::slots;
    let mut net = Net::new(26, 6);
    let x = net.input("vector", &[21], 4, 15);
    let a = net.dense(x, 37, 4);
    let r = net.relu(a);
    let t = net.truncate_to(r, 4, "non-negative", false, 200);
    let b = net.dense(t, 11, 4);
    let u = net.truncate(b, 4, "any", false);
    let y = net.dense(u, 1, 3);
    let o = net.truncate(y, 2, "any", true);
    net.open("out", o);
    with_methods(&mut net, &["diagonal"]);
    let plan = plan_of(&net).unwrap();
    let inputs = random_inputs(&mut net, &plan, 2);
    let result = run(&plan, &inputs, 2, TwoPartyOptions::default()).unwrap();
    let (units, results) = verify(&net, &plan, &inputs, 2, &result);
    assert_eq!((units, results), (0, 2 * (37 + 11 + 1)));

    // One prime for all, that of the largest results.
    let reach = plan.linear().filter_map(|s| plan.reach(s.stage.output?)).max().unwrap();
    let (bits, _) = super::super::slot_plain(reach).unwrap();
    let plain = hushnet_rlwe::bfv::plain_modulus(bits).unwrap();
    let params = [(21, 37), (37, 11), (11, 1)].map(|(inputs, outputs)| {
        let geometry = Geometry::dense(Dense { inputs, outputs }).unwrap();
        slots::choose(&geometry, slots::Method::Diagonal, plain).unwrap()
    });
    assert!(params.iter().all(|p| *p == params[0]), "the layers have several sets of keys");
    let layers = Layers::new(&plan).unwrap();
    let [_, family] = layers.families() else { panic!("two families have keys") };
    // 37 inputs or outputs are padded to 64.
    assert_eq!(family.key_len(), params[0].request_len() + params[0].galois_keys_len(63));

    // Keys that are too few are waited for; a client that leaves instead is an error of the channel, not a panic.
    let (mut a, mut b) = memory_pair();
    b.send(&vec![0; family.key_len() - 1]).unwrap();
    b.flush().unwrap();
    drop(b);
    let keep = vec![true; plan.stages().len()];
    let preparing = super::super::methods::Preparing {
        plan: &plan,
        keep: &keep,
        plan_digest: &[0; 32],
        randomness: &|_| Ok(hushnet_ring::Prg::from_os()?),
    };
    let weights = family.clone().prepare(&preparing).unwrap();
    assert!(weights.accept(&mut a, &Compute::default()).is_err());
}

#[test]
fn a_convolution_in_diagonal_order_is_refused_with_what_to_do() {
    let mut net = network(7);
    with_methods(&mut net, &["diagonal"]);
    let error = plan_of(&net).unwrap_err().to_string();
    assert!(error.contains("method 'diagonal' computes dense layers only; choose another method"), "{error}");
}
