//! Which parameters a computation needs: those of a short list whose bound holds and with which it is least work.

use super::noise::Noise;
use super::params::{BfvParams, BfvSpec};
use super::{BfvError, Counts};
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

/// What a computation does: its operations, and the ciphertexts that come in and go out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Operations.
    pub counts: Counts,
    /// Ciphertexts in and out.
    pub ciphers: (usize, usize),
}

/// Word operations beside each other, in tenths of a product with a key's word: a transform's word and level, a digit's word to be cut and
/// reduced, a weight's word times both parts of a ciphertext.
const KEY_WORD: u64 = 10;
const LEVEL_WORD: u64 = 5;
const DIGIT_WORD: u64 = 40;
const WEIGHT_WORD: u64 = 20;

/// Work of a computation under a specification, for comparing specifications: the same number on every machine. Transforms are those of
/// `docs/bfv.md`; a ciphertext in or out takes 2 L.
#[must_use]
pub fn work(spec: &BfvSpec, load: &Load) -> u64 {
    let (n, l, c) = (spec.ring_degree as u64, spec.primes as u64, load.counts);
    let special = u64::from(spec.special_bits > 0);
    let (digits, limbs) = (l * spec.digits_per_prime() as u64, l + special);
    let transform = LEVEL_WORD * u64::from(n.ilog2());
    let decomposition = transform * l + digits * l * (transform + if special == 0 { DIGIT_WORD } else { 0 });
    let switch = special * 2 * limbs * transform + 2 * digits * limbs * KEY_WORD;
    let product = l * WEIGHT_WORD;
    let ciphers = (load.ciphers.0 + load.ciphers.1) as u64;
    n * (c.decompositions() * decomposition
        + c.switches() * switch
        + c.sc_mult * product
        + ciphers * 2 * l * transform)
}

/// 128-bit specifications. `rotations`: whether ciphertexts are permuted.
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

/// The one of [`candidates`] with the least [`work`] that holds the noise that `noise` predicts for it: answers exact, and hidden with 40 bits.
/// `load` gives what there is to do with so many slots; `None` leaves the ring degree out.
///
/// # Errors
/// [`BfvError::NoParameters`] when none does.
pub fn choose(
    plain_modulus: u64,
    rotations: bool,
    load: impl Fn(usize) -> Option<Load>,
    noise: impl Fn(&BfvSpec) -> Noise,
) -> Result<BfvParams, BfvError> {
    let plain_bits = 64 - plain_modulus.leading_zeros();
    let fits = |s: &BfvSpec| plain_modulus % (2 * s.ring_degree as u64) == 1 && s.prime_bits > plain_bits;
    let listed = candidates(plain_modulus, rotations).into_iter().filter(fits);
    let mut listed: Vec<_> =
        listed.filter_map(|spec| Some((work(&spec, &load(spec.ring_degree)?), spec))).collect();
    listed.sort_by_key(|(work, _)| *work);
    for (_, spec) in listed {
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
    Err(BfvError::NoParameters { largest: LARGEST, plain_bits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specification_follows_the_operations() {
        let t = plain_modulus(DEFAULT_PLAIN_BITS).unwrap();
        let noise = |s: &BfvSpec| Noise::fresh(s.ring_degree).permuted(s).times(s.ring_degree, 1e14);
        let chosen = |counts: Counts| {
            let load = |n| (n == 8192).then_some(Load { counts, ciphers: (4, 4) });
            *choose(t, true, load, noise).unwrap().spec()
        };
        let products = Counts { sc_mult: 10_000, perm: 10, ..Counts::default() };
        let permutations = Counts { sc_mult: 10, perm: 10_000, ..Counts::default() };
        // few words a product, few digits a permutation
        assert!(chosen(products).primes <= chosen(permutations).primes);
        for (counts, other) in [(products, permutations), (permutations, products)] {
            let load = Load { counts, ciphers: (4, 4) };
            assert!(work(&chosen(counts), &load) <= work(&chosen(other), &load));
        }
    }
}
