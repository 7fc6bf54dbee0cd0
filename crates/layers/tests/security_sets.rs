//! Every parameter set that a construction may use stands in `docs/security/sets.csv`, for which `docs/security/estimate.py` records what known attacks cost.
//! `HUSHNET_RECORD=1 cargo test -p hushnet-layers --test security_sets` writes the file anew; the estimates must follow.
#![allow(clippy::unwrap_used)]

use hushnet_layers::convfhe;
use hushnet_rlwe::batch::ERROR_VARIANCE;
use hushnet_rlwe::batch_shares::public_key_bits;
use hushnet_rlwe::bfv::{candidates, plain_modulus, DEFAULT_PLAIN_BITS};
use hushnet_rlwe::ckks::bootstrap::LEAST_WEIGHT;
use hushnet_rlwe::one_poly::{OnePolySpec, Profile};
use hushnet_rlwe::packed::{PackedSpec, PRIME_BITS};
use hushnet_rlwe::security::{SPARSE_128, TABLE_128};
use hushnet_rlwe::wide;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Secrets are uniform ternary; a rotation-free set-up is a sample whose secret is an error polynomial.
const TERNARY: &str = "ternary";
const ERROR: &str = "error";

/// The widest modulus that rotation-free parameters reach at a ring degree, over share rings, norms and sums.
fn widest(ring_degree: usize, profile: Profile) -> Option<u32> {
    let mut bits = Vec::new();
    for ring_bits in 1..=48 {
        for norm in 0..=24 {
            for terms in [1, 16, 256] {
                let spec = OnePolySpec {
                    ring_degree,
                    ring_bits,
                    weight_l2: f64::from(norm).exp2(),
                    weight_bits: 8,
                    weights: 1 << norm,
                    terms,
                    profile,
                };
                bits.extend(spec.choose().map(|p| p.modulus_bits()));
            }
        }
    }
    bits.into_iter().max()
}

fn sets() -> String {
    let mut rows = BTreeSet::new();
    let sparse = format!("sparse {LEAST_WEIGHT}");
    let mut add = |name: &str, n: usize, bits: u32, secret: &str| {
        rows.insert((name.to_owned(), n, bits, secret.to_owned()));
    };
    for (n, bits) in TABLE_128 {
        // Client-aided batches and CKKS, in both rings, take any modulus up to the table's.
        add("limit of the table", n, bits, TERNARY);
        add("batch shares: widest public key", n, public_key_bits(n).unwrap(), TERNARY);
        if (2048..=8192).contains(&n)
            && (PackedSpec { ring_degree: n, ring_bits: 16, weight_l2: 1.0 }).choose().is_ok()
        {
            add("cheetah", n, PRIME_BITS, TERNARY);
        }
        // Degrees that [`OnePolySpec::smallest`] tries.
        if !(2048..=16384).contains(&n) {
            continue;
        }
        for (name, profile) in [("compact", Profile::Compact), ("flooded", Profile::Flooded)] {
            if let Some(bits) = widest(n, profile) {
                add(&format!("rotation-free {name}: widest query"), n, bits, TERNARY);
                add(&format!("rotation-free {name}: widest set-up"), n, bits, ERROR);
            }
        }
    }
    // Under the ephemeral secret of a bootstrap; under the other one, `limit of the table` holds.
    for (n, bits) in SPARSE_128 {
        add("ckks bootstrap: ephemeral secret", n, bits, &sparse);
    }
    add("convfhe, merging keys", convfhe::RING_DEGREE, 2 * PRIME_BITS, TERNARY);
    let widest = (wide::DATA_PRIMES as u32 + 1) * wide::PRIME_BITS;
    add("products of shared matrices, merging keys", wide::RING_DEGREE, widest, TERNARY);
    let t = plain_modulus(DEFAULT_PLAIN_BITS).unwrap();
    for spec in [true, false].into_iter().flat_map(|rotations| candidates(t, rotations)) {
        let bits = spec.check().unwrap().modulus_bits();
        let name = format!("bfv {} x {}, P {}", spec.primes, spec.prime_bits, spec.special_bits);
        add(&name, spec.ring_degree, bits, TERNARY);
    }
    let mut out = String::from("construction,ring_degree,log2_q,secret,error_variance\n");
    for (name, n, bits, secret) in rows {
        let _ = writeln!(out, "\"{name}\",{n},{bits},{secret},{ERROR_VARIANCE}");
    }
    out
}

#[test]
fn the_documents_cover_every_parameter_set() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security/sets.csv");
    let now = sets();
    if std::env::var_os("HUSHNET_RECORD").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let recorded = std::fs::read_to_string(path).unwrap_or_default();
    let missing: Vec<&str> = now.lines().filter(|line| !recorded.lines().any(|r| r == *line)).collect();
    assert!(
        now == recorded,
        "docs/security/sets.csv is not what the code uses; it lacks {missing:#?}. \
         Run this test with HUSHNET_RECORD=1, then docs/security/estimate.py --write"
    );
}
