//! What each party receives looks uniform and does not follow the other's secrets.

use super::super::cost::predict;
use super::*;
use hushnet_mpc::OtKind;

/// Chi-square of bytes against the uniform distribution, in standard deviations.
pub(super) fn deviation(bytes: &[u8]) -> f64 {
    let mut counts = [0u64; 256];
    bytes.iter().for_each(|b| counts[usize::from(*b)] += 1);
    let expected = bytes.len() as f64 / 256.0;
    let chi: f64 = counts.iter().map(|c| (*c as f64 - expected).powi(2) / expected).sum();
    (chi - 255.0) / (2.0f64 * 255.0).sqrt()
}

/// Plans of one network from the planner, by `crates/runtime/tests/fixtures/make.py`: weights of random signs, all positive, all negative.
const PLANNED: [&[u8]; 3] = [
    include_bytes!("../../../tests/fixtures/views_0.hush"),
    include_bytes!("../../../tests/fixtures/views_1.hush"),
    include_bytes!("../../../tests/fixtures/views_2.hush"),
];

/// The same with slot-packed layers.
pub(super) const PLANNED_SLOTS: [&[u8]; 3] = [
    include_bytes!("../../../tests/fixtures/views_gala_0.hush"),
    include_bytes!("../../../tests/fixtures/views_gala_1.hush"),
    include_bytes!("../../../tests/fixtures/views_gala_2.hush"),
];

pub(super) fn planned(file: &[u8]) -> TwoPartyPlan {
    TwoPartyPlan::from_bytes(file, &PlanOptions::default()).unwrap()
}

/// The tensor that the first linear stage makes.
fn first_result(plan: &TwoPartyPlan) -> usize {
    plan.stages()[2].output.unwrap()
}

/// A byte of a share, below its uppermost bits.
pub(super) fn byte(share: u64, plan: &TwoPartyPlan) -> u8 {
    (share >> (plan.ring().bits() - 12)) as u8
}

#[test]
fn the_planners_public_parts_are_equal_and_its_plans_are_not() {
    for files in [PLANNED, PLANNED_SLOTS] {
        let plans = files.map(planned);
        let exact = |p: &TwoPartyPlan| {
            p.spec().tensors.iter().map(crate::plan::spec::TensorSpec::integer_bound).collect::<Vec<_>>()
        };
        for other in &plans[1..] {
            assert!(exact(other) != exact(&plans[0]), "weights of one norm would show nothing");
            assert_eq!(other.public_part().unwrap(), plans[0].public_part().unwrap());
        }
        let public = planned(&plans[0].public_part().unwrap());
        assert!(!public.has_weights() && plans[0].has_weights());
        assert_eq!(public.public_part().unwrap(), plans[0].public_part().unwrap());
        // what both parties compare is the same
        for (ours, theirs) in plans[0].stages().iter().zip(public.stages()) {
            assert_eq!(ours.compared.bits(), theirs.compared.bits(), "{}", ours.name);
        }
    }
}

/// The part of what a party heard that the first linear stage sent.
fn first_linear<'a>(run: &'a Run, plan: &TwoPartyPlan, client: bool) -> &'a [u8] {
    received(run, plan, client)[2]
}

pub(super) fn options() -> TwoPartyOptions {
    TwoPartyOptions { ot: Some(OtKind::Iknp), group: Some(4), ..TwoPartyOptions::default() }
}

#[test]
fn answers_are_uniform_whatever_the_weights() {
    let inputs = vec![vec![0.9; 4 * 4 * 16 * 16]];
    let mut views = Vec::new();
    for plan in PLANNED.map(planned) {
        let result = run(&plan, &inputs, 4, options()).unwrap();
        let answers = first_linear(&result, &plan, true).to_vec();
        assert!(answers.len() > 20_000);
        assert!(deviation(&answers).abs() < 6.0, "{}", deviation(&answers));
        // The client's own shares of the result are uniform too, and its view is fresh in every run.
        let find =
            |party: usize| &result.shares[party].iter().find(|(t, _)| *t == first_result(&plan)).unwrap().1;
        let (share, other) = (find(1), find(0));
        let bytes: Vec<u8> = share.iter().map(|v| byte(*v, &plan)).collect();
        assert!(deviation(&bytes).abs() < 6.0, "{}", deviation(&bytes));
        let (ring, top) = (plan.ring(), 1u64 << (plan.ring().bits() - 1));
        let result: Vec<u64> = share.iter().zip(other).map(|(a, b)| ring.reduce(a + b + top)).collect();
        let c = correlation(share, &result);
        assert!(c.abs() < 6.0 / (share.len() as f64).sqrt(), "{c}");
        views.push(answers);
    }
    for pair in [(0, 1), (0, 2), (1, 2)] {
        let (a, b) = (&views[pair.0], &views[pair.1]);
        let (n, same) = (a.len() as f64, a.iter().zip(b).filter(|(a, b)| a == b).count() as f64);
        assert!((same - n / 256.0).abs() < 6.0 * (n / 256.0).sqrt(), "{same} of {n} bytes agree");
    }
}

#[test]
fn requests_and_masked_shares_are_uniform_whatever_the_input() {
    let plan = planned(PLANNED[0]);
    let mut shares = Vec::new();
    for value in [0.0, 0.96] {
        let inputs = vec![vec![value; 4 * 4 * 16 * 16]];
        let result = run(&plan, &inputs, 4, options()).unwrap();
        let requests = first_linear(&result, &plan, false);
        // Words are below a prime next to 2^50: uniform to within 2^-30.
        assert!(deviation(requests).abs() < 6.0, "{}", deviation(requests));
        // What the server holds of every tensor after a protocol with the client.
        let mut seen = 0;
        for (tensor, share) in
            result.shares[0].iter().filter(|(t, s)| *t >= first_result(&plan) && s.len() > 1500)
        {
            let bytes: Vec<u8> = share.iter().map(|v| byte(*v, &plan)).collect();
            assert!(deviation(&bytes).abs() < 6.0, "tensor {tensor}: {}", deviation(&bytes));
            seen += 1;
        }
        assert!(seen >= 3);
        shares.push(result.shares[0].iter().find(|(t, _)| *t == first_result(&plan)).unwrap().1.clone());
    }
    let c = correlation(&shares[0], &shares[1]);
    assert!(c.abs() < 6.0 / (shares[0].len() as f64).sqrt(), "{c}");
}

/// What a party received in every stage.
pub(super) fn received<'a>(run: &'a Run, plan: &TwoPartyPlan, client: bool) -> Vec<&'a [u8]> {
    let p = predict(plan, &Layers::new(plan).unwrap(), OtKind::Iknp, run.client.images);
    let mut at = if client {
        8 + plan.public_part().unwrap().len() + p.setup.bytes_down as usize
    } else {
        p.setup.bytes_up as usize + 4 + 32 * run.client.images
    };
    let mut parts = Vec::new();
    for stage in &p.stages {
        let bytes = if client { stage.bytes_down } else { stage.bytes_up } as usize;
        parts.push(&run.heard[usize::from(client)].0[at..at + bytes]);
        at += bytes;
    }
    parts
}

/// Everything that either party receives in any stage passes the chi-square test of bytes, whatever inputs and weights are; no share
/// follows the value that it is a share of, and views of runs with different secrets agree as often as chance has it.
#[test]
fn whole_views_are_uniform_and_follow_no_secret() {
    let mut views: Vec<[Vec<u8>; 2]> = Vec::new();
    let mut public = None;
    // (weights, input): all else is the same
    for (weights, value) in [(0, 0.9), (1, 0.9), (2, 0.9), (0, 0.0), (0, -0.9)] {
        let plan = planned(PLANNED[weights]);
        let told = plan.public_json().unwrap();
        assert!(*public.get_or_insert_with(|| told.clone()) == told, "the public plans differ");
        let result = run(&plan, &[vec![value; 4 * 4 * 16 * 16]], 4, options()).unwrap();
        let mut both = [Vec::new(), Vec::new()];
        for client in [false, true] {
            for (stage, bytes) in plan.stages().iter().zip(received(&result, &plan, client)) {
                both[usize::from(client)].extend_from_slice(bytes);
                if bytes.len() >= 4096 {
                    let d = deviation(bytes);
                    assert!(d.abs() < 6.0, "{} received by the client: {client}: {d}", stage.name);
                }
            }
        }
        let ring = plan.ring();
        for (stage, tensor) in plan.stages().iter().filter_map(|s| s.output.map(|t| (s, t))) {
            let find = |party: usize| result.shares[party].iter().find(|(t, _)| *t == tensor).map(|(_, v)| v);
            let (Some(ours), Some(theirs)) = (find(0), find(1)) else { continue };
            if stage.label == "share" || ours.len() < 2000 {
                continue;
            }
            let values: Vec<u64> = ours
                .iter()
                .zip(theirs)
                .map(|(a, b)| ring.reduce(a.wrapping_add(*b).wrapping_add(1 << (ring.bits() - 1))))
                .collect();
            for share in [ours, theirs] {
                let bytes: Vec<u8> = share.iter().map(|v| byte(*v, &plan)).collect();
                assert!(deviation(&bytes).abs() < 6.0, "{}: {}", stage.name, deviation(&bytes));
                if values.iter().any(|v| *v != values[0]) {
                    let c = correlation(share, &values);
                    assert!(c.abs() < 6.0 / (share.len() as f64).sqrt(), "{}: {c}", stage.name);
                }
            }
        }
        views.push(both);
    }
    for a in 0..views.len() {
        for b in a + 1..views.len() {
            for (party, (x, y)) in views[a].iter().zip(&views[b]).enumerate() {
                let n = x.len() as f64;
                let same = x.iter().zip(y).filter(|(x, y)| x == y).count() as f64;
                assert!((same - n / 256.0).abs() < 6.0 * (n / 256.0).sqrt(), "party {party}: {same} of {n}");
            }
        }
    }
}

#[test]
fn the_measures_notice_what_they_are_for() {
    let mut rng = super::builder::Rng(5);
    let uniform: Vec<u8> = (0..8192).map(|_| rng.next() as u8).collect();
    assert!(deviation(&uniform).abs() < 6.0);
    // one bit in eight set a little too often
    let skewed: Vec<u8> = uniform.iter().map(|b| b | u8::from(rng.next().is_multiple_of(4))).collect();
    assert!(deviation(&skewed) > 6.0);
    let words: Vec<u64> = (0..8192).map(|_| rng.next() >> 32).collect();
    let follows: Vec<u64> = words.iter().map(|w| (w >> 3) + (rng.next() >> 32)).collect();
    assert!(correlation(&words, &follows).abs() > 6.0 / 8192f64.sqrt());
}

pub(super) fn correlation(a: &[u64], b: &[u64]) -> f64 {
    let mean = |v: &[u64]| v.iter().map(|x| *x as f64).sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (*x as f64 - ma, *y as f64 - mb);
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    ab / (aa * bb).sqrt()
}
