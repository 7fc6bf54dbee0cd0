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

fn linear_net(seed: u64, large: bool) -> Net {
    let mut net = Net::new(32, seed);
    let x = net.input("image", &[4, 16, 16], 5, 31);
    let c = net.conv(x, 8, 3, 1, 1, 1, 6);
    let r = net.relu(c);
    let t = net.truncate(r, 6, "non-negative", false);
    let d = net.dense(t, 4, 5);
    let o = net.truncate(d, 5, "any", true);
    net.open("out", o);
    if large {
        // Other weights of the same public norm: all of them negative and extreme in the first layer.
        let (_, _, data) = net.files.get_mut("w2").unwrap();
        data.iter_mut().for_each(|b| *b = (-20i8).cast_unsigned());
        net.weights.get_mut("w2").unwrap().0.iter_mut().for_each(|w| *w = -20);
        let bound = 36 * 20 * 31 + 200;
        for t in [3, 4] {
            net.tensors[t]["bound"] = bound.into();
        }
        net.tensors[5]["bound"] = ((bound >> 6) + 1).into();
        net.stages[2]["weight_l2"] = 512.0.into();
    } else {
        net.stages[2]["weight_l2"] = 512.0.into();
        for t in [3, 4] {
            net.tensors[t]["bound"] = (36 * 20 * 31 + 50000).into();
        }
    }
    let top = (1u64 << 31) - 1;
    net.tensors[8]["bound"] = top.into();
    for t in [6, 7] {
        net.tensors[t]["bound"] = if t == 6 { top / 4 } else { top / 64 }.into();
    }
    net
}

/// The part of what a party heard that the first linear stage sent.
fn first_linear<'a>(run: &'a Run, plan: &TwoPartyPlan, client: bool) -> &'a [u8] {
    let p = predict(plan, &Layers::new(plan).unwrap(), OtKind::Iknp, run.client.images);
    let plan_bytes = 8 + plan.public_part().unwrap().len();
    let (before, stage) = if client {
        (plan_bytes + p.setup.bytes_down as usize, p.stages[2].bytes_down as usize)
    } else {
        (p.setup.bytes_up as usize + 4 + 32 * run.client.images, p.stages[2].bytes_up as usize)
    };
    &run.heard[usize::from(client)].0[before..before + stage]
}

fn options() -> TwoPartyOptions {
    TwoPartyOptions { ot: Some(OtKind::Iknp), group: Some(4), ..TwoPartyOptions::default() }
}

#[test]
fn answers_are_uniform_whatever_the_weights() {
    let inputs = vec![vec![0.9; 4 * 4 * 16 * 16]];
    let mut views = Vec::new();
    for (seed, large) in [(21, false), (21, true)] {
        let net = linear_net(seed, large);
        let plan = plan_of(&net).unwrap();
        let result = run(&plan, &inputs, 4, options()).unwrap();
        let answers = first_linear(&result, &plan, true).to_vec();
        assert!(answers.len() > 20_000);
        assert!(deviation(&answers).abs() < 6.0, "{}", deviation(&answers));
        // The client's own shares of the result are uniform too, and its view is fresh in every run.
        let share = &result.shares[1].iter().find(|(t, _)| *t == 3).unwrap().1;
        let bytes: Vec<u8> = share.iter().map(|v| (v >> 20) as u8).collect();
        assert!(deviation(&bytes).abs() < 6.0, "{}", deviation(&bytes));
        let other = &result.shares[0].iter().find(|(t, _)| *t == 3).unwrap().1;
        let top = 1u64 << 31;
        let result: Vec<u64> = share.iter().zip(other).map(|(a, b)| (a + b + top) & 0xffff_ffff).collect();
        let c = correlation(share, &result);
        assert!(c.abs() < 6.0 / (share.len() as f64).sqrt(), "{c}");
        views.push(answers);
    }
    let same = views[0].iter().zip(&views[1]).filter(|(a, b)| a == b).count() as f64;
    let n = views[0].len() as f64;
    assert!((same - n / 256.0).abs() < 6.0 * (n / 256.0).sqrt(), "{same} of {n} bytes agree");
}

#[test]
fn requests_and_masked_shares_are_uniform_whatever_the_input() {
    let net = linear_net(22, false);
    let plan = plan_of(&net).unwrap();
    let mut shares = Vec::new();
    for value in [0.0, 0.96] {
        let inputs = vec![vec![value; 4 * 4 * 16 * 16]];
        let result = run(&plan, &inputs, 4, options()).unwrap();
        let requests = first_linear(&result, &plan, false);
        // Words are below a prime next to 2^50: uniform to within 2^-30.
        assert!(deviation(requests).abs() < 6.0, "{}", deviation(requests));
        // What the server holds of every tensor after a protocol with the client.
        for tensor in [3, 4, 6] {
            let share = &result.shares[0].iter().find(|(t, _)| *t == tensor).unwrap().1;
            if share.len() > 4000 {
                let bytes: Vec<u8> = share.iter().map(|v| (v >> 20) as u8).collect();
                assert!(deviation(&bytes).abs() < 6.0, "tensor {tensor}: {}", deviation(&bytes));
            }
        }
        shares.push(result.shares[0].iter().find(|(t, _)| *t == 4).unwrap().1.clone());
    }
    let c = correlation(&shares[0], &shares[1]);
    assert!(c.abs() < 6.0 / (shares[0].len() as f64).sqrt(), "{c}");
}

fn correlation(a: &[u64], b: &[u64]) -> f64 {
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
