//! Which parameters a computation needs: the cheapest of a short list whose bound holds.

use super::noise::Noise;
use super::params::{BfvParams, BfvSpec};
use super::BfvError;
use hushnet_ring::prime::primes_near;

/// Bits of shares in the papers of this family.
pub const DEFAULT_PLAIN_BITS: u32 = 20;
/// Ring degrees that are planned with.
const LARGEST: usize = 16384;

/// The largest prime of so many bits that has slots at every planned ring degree, so that all layers of a network share t.
///
/// # Errors
/// [`BfvError::Ring`] when there is none (below 17 bits).
pub fn plain_modulus(bits: u32) -> Result<u64, BfvError> {
    Ok(primes_near(bits, LARGEST, 1)?[0])
}

/// 128-bit specifications, cheapest first. `rotations`: whether ciphertexts are permuted.
#[must_use]
pub fn candidates(plain_modulus: u64, rotations: bool) -> Vec<BfvSpec> {
    // (N, primes, bits, special, digit)
    let listed: &[(usize, usize, u32, u32, u32)] = if rotations {
        &[
            (4096, 2, 50, 0, 25),
            (4096, 2, 50, 0, 17),
            (4096, 3, 35, 0, 18),
            (4096, 3, 35, 0, 12),
            (8192, 2, 50, 50, 0),
            (8192, 3, 37, 50, 0),
            (8192, 3, 41, 50, 0),
            (8192, 3, 45, 50, 0),
            (8192, 3, 50, 50, 0),
            (8192, 4, 43, 42, 0),
            (16384, 4, 50, 50, 0),
            (16384, 5, 50, 50, 0),
            (16384, 6, 50, 50, 0),
        ]
    } else {
        &[
            (4096, 2, 50, 0, 0),
            (4096, 3, 35, 0, 0),
            (8192, 3, 45, 0, 0),
            (8192, 4, 50, 0, 0),
            (16384, 5, 50, 0, 0),
            (16384, 6, 50, 0, 0),
        ]
    };
    listed
        .iter()
        .map(|&(ring_degree, primes, prime_bits, special_bits, digit_bits)| BfvSpec {
            ring_degree,
            plain_modulus,
            primes,
            prime_bits,
            special_bits,
            digit_bits,
        })
        .collect()
}

/// The first of [`candidates`] that holds the noise that `noise` predicts for it: answers exact, and hidden with 40 bits.
///
/// # Errors
/// [`BfvError::NoParameters`] when none does.
pub fn choose(
    plain_modulus: u64,
    rotations: bool,
    noise: impl Fn(&BfvSpec) -> Noise,
) -> Result<BfvParams, BfvError> {
    for spec in candidates(plain_modulus, rotations) {
        if plain_modulus % (2 * spec.ring_degree as u64) != 1 {
            continue;
        }
        let predicted = noise(&spec).plus(super::noise::rerandomising(spec.ring_degree));
        // Building tables is dear: the width decides first.
        let log_q = f64::from(spec.prime_bits) * spec.primes as f64 - 0.01;
        let r = super::noise::response_bits(spec.ring_degree, plain_modulus);
        let wide = super::noise::flood_width(spec.ring_degree, plain_modulus, log_q, r)
            .is_some_and(|w| predicted.norm_bound(spec.ring_degree) <= super::noise::hidden_norm(w) * 1.02);
        if wide {
            let params = spec.check()?;
            if params.holds(&predicted) {
                return Ok(params);
            }
        }
    }
    Err(BfvError::NoParameters { largest: LARGEST, plain_bits: 64 - plain_modulus.leading_zeros() })
}
