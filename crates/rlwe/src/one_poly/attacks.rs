//! The averaging attack, on the set-up as it is (it must find nothing) and on set-ups with one planted fault each (it must find the weights).

use super::averaging::correlation;
use super::server::Fault;
use super::*;
use hushnet_ring::Prg;

const N: usize = 1024;
const SEED: [u8; 32] = [1; 32];

/// Parameters, context and 8-bit weights; beta |F| fits the first prime.
fn parts(profile: Profile) -> (OnePolyParams, OnePolyContext, Vec<i64>) {
    let mut prg = Prg::from_seed([12; 16]);
    let mut words = vec![0; N];
    prg.fill_words(&mut words);
    let weights: Vec<i64> = words.iter().map(|w| (w & 255) as i64 - 128).collect();
    let spec = OnePolySpec {
        ring_degree: N,
        ring_bits: 8,
        weight_l2: 6000.0,
        weight_bits: 9,
        weights: N,
        terms: 1,
        profile,
    };
    let params = spec.choose_unchecked().unwrap();
    let context = OnePolyContext::new(N, params.prime_bits(), 1).unwrap();
    assert!(context.primes()[0] > 2 << (params.beta_bits() + 7));
    (params, context, weights)
}

/// Correlations of the attack's parts with the weights, and the number of weights that a part finds exactly, at best.
fn attack(profile: Profile, fault: Option<Fault>, setups: usize) -> (Vec<(&'static str, f64)>, usize) {
    let (params, context, weights) = parts(profile);
    let (mut prg, tally) = (Prg::from_seed([11; 16]), Tally::default());
    let mut attacker = Averaging::new(&context, &params, &SEED, 0).unwrap();
    for _ in 0..setups {
        let mut server = OnePolyServer::new(&context, &params, &SEED, 0, &mut prg).unwrap();
        server.fault = fault;
        attacker.observe(&server.weight_key(&weights, 0, true, &tally).unwrap().1).unwrap();
    }
    let exact = |found: &[f64]| found.iter().zip(&weights).filter(|(f, w)| f.round() == **w as f64).count();
    let most = attacker.weights().unwrap().iter().map(|(_, found)| exact(found)).max().unwrap();
    (attacker.correlations(&weights).unwrap(), most)
}

fn part(correlations: &[(&str, f64)], name: &str) -> f64 {
    correlations.iter().find(|(part, _)| *part == name).unwrap().1
}

#[test]
fn repeated_set_ups_say_nothing_about_the_weights() {
    for (profile, parts) in [(Profile::Compact, 2), (Profile::Flooded, 4)] {
        let (correlations, exact) = attack(profile, None, 1024);
        assert_eq!(correlations.len(), parts);
        for (part, c) in correlations {
            assert!(c.abs() < 5.0 / (N as f64).sqrt(), "{profile:?}, {part}: correlation {c}");
        }
        // Guessing finds one weight in 256 where results are of the weights' size.
        assert!(exact < 32, "{profile:?}: {exact} weights found");
    }
}

/// Every fault that the set-up's argument excludes is one that the attack finds: the test above can fail.
#[test]
fn the_attack_finds_the_weights_of_every_faulty_set_up() {
    use Profile::{Compact, Flooded};
    for (profile, fault, setups, name) in [
        (Compact, Fault::NoE2, 1024, "errors"),
        (Compact, Fault::SameE2, 1024, "errors"),
        (Compact, Fault::NoE1, 1, "quotients"),
        (Flooded, Fault::NoE2, 1024, "errors"),
        (Flooded, Fault::SameE2, 1024, "errors"),
        (Flooded, Fault::SameRho, 1024, "differences"),
        (Flooded, Fault::NoE1, 1, "quotients"),
    ] {
        let (correlations, exact) = attack(profile, Some(fault), setups);
        let c = part(&correlations, name);
        assert!(
            c > 0.999 && exact == N,
            "{profile:?}, {fault:?}, {name}: correlation {c}, {exact} weights exact"
        );
    }
    // The published fault: rho as wide as the weights. Its average falls as 1 / sqrt(set-ups).
    let (correlations, _) = attack(Flooded, Some(Fault::NarrowRho), 256);
    let c = part(&correlations, "floods");
    assert!(c > 0.99, "narrow rho: correlation {c}");
}

/// The server's own view: e1 and e2 have the full variance, and neither repeats between set-ups or between polynomials of one.
/// The attack above needs many repetitions to see a fault; this sees partial ones too.
fn errors_are_fresh(profile: Profile, fault: Option<Fault>) -> Result<(), String> {
    let (params, context, weights) = parts(profile);
    let (mut prg, tally) = (Prg::from_seed([13; 16]), Tally::default());
    let b = context.uniform(&SEED, 0).unwrap();
    let f: Vec<i128> = weights.iter().map(|w| i128::from(*w) << params.beta_bits()).collect();
    let f = context.forward(&mut context.residues_of_wide(&f, &vec![0; N]), &tally).unwrap();
    let mut one = vec![0i8; N];
    one[0] = 1;
    let one = context.forward_small(&one, &tally).unwrap();
    let p = context.primes()[0];
    let small = |a: &Folded| -> Vec<f64> {
        let residues = context.dot(&[(a, &one)], &tally).unwrap();
        residues[..N].iter().map(|x| if *x > p / 2 { *x as f64 - p as f64 } else { *x as f64 }).collect()
    };
    let mut seen: Vec<Vec<f64>> = Vec::new();
    for _ in 0..4 {
        let mut server = OnePolyServer::new(&context, &params, &SEED, 0, &mut prg).unwrap();
        server.fault = fault;
        for index in 0..2 {
            let (key, sent) = server.weight_key(&weights, index, true, &tally).unwrap();
            let (_, again) = server.weight_key(&weights, index, true, &tally).unwrap();
            if sent.iter().zip(&again).any(|(a, b)| a.0[..] != b.0[..]) {
                return Err("the same polynomial of the same set-up is sent with other errors".into());
            }
            let mut e1 = sent[0].clone();
            context.sub_assign(&mut e1, &context.product(key.rho(), &b, &tally).unwrap()).unwrap();
            // compact: e2 = -rho - f; flooded: p2 - f - rho
            let mut e2 =
                sent.get(1).cloned().unwrap_or_else(|| context.forward_small(&vec![0; N], &tally).unwrap());
            context.sub_assign(&mut e2, key.rho()).unwrap();
            context.sub_assign(&mut e2, &f).unwrap();
            seen.extend([small(&e1), small(&e2)]);
        }
    }
    for (k, e) in seen.iter().enumerate() {
        let variance = e.iter().map(|x| x * x).sum::<f64>() / N as f64;
        // The sample variance of N values deviates by sqrt(2/N) = 4.4 %.
        if !(0.78..1.22).contains(&(variance / crate::batch::ERROR_VARIANCE)) {
            return Err(format!("error {k} has variance {variance}"));
        }
        for (j, other) in seen[..k].iter().enumerate() {
            let c = correlation(e, other);
            if c.abs() > 5.0 / (N as f64).sqrt() {
                return Err(format!("errors {j} and {k} correlate by {c}"));
            }
        }
    }
    Ok(())
}

#[test]
fn errors_of_set_ups_are_fresh_and_full() {
    for profile in [Profile::Compact, Profile::Flooded] {
        errors_are_fresh(profile, None).unwrap();
        for fault in [Fault::NoE1, Fault::NoE2, Fault::SameE2] {
            assert!(errors_are_fresh(profile, Some(fault)).is_err(), "{profile:?}, {fault:?}");
        }
    }
}
