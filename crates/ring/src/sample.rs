//! Secret and error distributions. Constant time: no branch and no address depends on a sample.

use crate::{kernels, Prg};
use zeroize::Zeroize;

/// Samples made from one group of [`GROUP_WORDS`] generator words.
const GROUP: usize = 32;
/// Generator words of a group.
const GROUP_WORDS: usize = 24;

/// Uniform on {-1, 0, 1}: `floor(3 w / 2^64) - 1` of one uniform 64-bit word `w` a sample.
///
/// The three values have probabilities within 2^-64 of 1/3, so a polynomial of N coefficients is
/// within statistical distance N 2^-64 of uniform.
pub fn ternary(prg: &mut Prg, out: &mut [i8]) {
    let mut words = [0u64; 64];
    for chunk in out.chunks_mut(words.len()) {
        prg.fill_words(&mut words[..chunk.len()]);
        for (o, w) in chunk.iter_mut().zip(&words) {
            *o = (crate::prime::wide(3, *w) >> 64) as i8 - 1;
        }
    }
    words.zeroize();
}

/// Centred binomial of 2 x 21 coins (variance 10.5, within -21..=21): the number of ones among 42
/// uniform bits, less 21, which has the distribution of `popcount(21 bits) - popcount(21 bits)`.
pub fn centred_binomial(prg: &mut Prg, out: &mut [i8]) {
    // Several groups at a time, so that the generator works in bulk.
    let mut words = [0; 8 * GROUP];
    for chunk in out.chunks_mut(words.len()) {
        words.fill(0);
        centred_binomial_add(prg, &mut words[..chunk.len()]);
        for (o, w) in chunk.iter_mut().zip(&words) {
            *o = *w as i8;
        }
    }
    words.zeroize();
}

/// Adds a [`centred_binomial`] sample to every word, modulo 2^64.
///
/// Of every 24 generator words, the low 42 bits of each give samples 0..24, and the 22 high bits of
/// word `j` with bits 42..62 of word `8 + j` give sample `24 + j`, `j < 8`. An unfinished group of
/// samples still takes 24 words.
pub fn centred_binomial_add(prg: &mut Prg, words: &mut [u64]) {
    if prg.add_errors(words, words.len().div_ceil(GROUP) * GROUP_WORDS / 2) {
        return;
    }
    // Several groups at a time, so that the generator works in bulk.
    let mut random = [[0; GROUP_WORDS]; 8];
    for groups in words.chunks_mut(random.len() * GROUP) {
        let used = &mut random[..groups.len().div_ceil(GROUP)];
        prg.fill_words(used.as_flattened_mut());
        for (random, group) in used.iter().zip(groups.chunks_mut(GROUP)) {
            kernels::add_coins(prg.isa(), random, group);
        }
    }
    random.zeroize();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{simd, Isa};

    /// Chi-square of counts against probabilities, and its degrees of freedom.
    fn chi_square(counts: &[usize], probabilities: &[f64]) -> f64 {
        let total: usize = counts.iter().sum();
        counts
            .iter()
            .zip(probabilities)
            .map(|(&c, &p)| (c as f64 - total as f64 * p).powi(2) / (total as f64 * p))
            .sum()
    }

    #[test]
    fn ternary_is_uniform() {
        let mut prg = Prg::from_seed([1; 16]);
        let mut out = vec![9; 300_001];
        ternary(&mut prg, &mut out);
        let counts: Vec<_> = (-1..=1).map(|v| out.iter().filter(|&&o| o == v).count()).collect();
        assert_eq!(counts.iter().sum::<usize>(), out.len());
        assert!(chi_square(&counts, &[1.0 / 3.0; 3]) < 20.0, "{counts:?}");
    }

    #[test]
    fn centred_binomial_has_its_distribution() {
        let mut prg = Prg::from_seed([2; 16]);
        let mut out = vec![0; 400_013];
        centred_binomial(&mut prg, &mut out);
        let mut probability = (-42f64).exp2();
        let mut probabilities = vec![probability];
        for i in 0..42 {
            probability *= f64::from(42 - i) / f64::from(i + 1);
            probabilities.push(probability);
        }
        // Classes with at least 5 expected samples; the tails are counted together.
        let (low, high) = (8, 34);
        let class = |v: i8| (i32::from(v) + 21).clamp(low, high) - low;
        let mut counts = vec![0; (high - low + 1) as usize];
        for &v in &out {
            assert!((-21..=21).contains(&v));
            counts[class(v) as usize] += 1;
        }
        let mut expected = vec![0.0; counts.len()];
        for (i, p) in probabilities.iter().enumerate() {
            expected[class(i as i8 - 21) as usize] += p;
        }
        // 26 degrees of freedom: 70 has probability below 1e-5 (and the seed is fixed).
        assert!(chi_square(&counts, &expected) < 70.0);
        let variance = out.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / out.len() as f64;
        assert!((variance - 10.5).abs() < 0.15, "{variance}");
        // Neighbouring samples, and those that share a generator word, are uncorrelated.
        for lag in [1, 8, 16, 24] {
            let c = out.windows(lag + 1).map(|w| f64::from(w[0]) * f64::from(w[lag])).sum::<f64>()
                / out.len() as f64;
            assert!(c.abs() < 0.1, "lag {lag}: {c}");
        }
    }

    #[test]
    fn adding_is_the_same_stream_as_sampling() {
        for len in [0, 1, 31, 32, 33, 100, 2048] {
            let mut next = None;
            for isa in simd::available() {
                let mut a = vec![0; len];
                centred_binomial(&mut Prg::from_seed_with([5; 16], Isa::Portable), &mut a);
                let mut b = vec![u64::MAX; len];
                let mut prg = Prg::from_seed_with([5; 16], isa);
                centred_binomial_add(&mut prg, &mut b);
                for (x, y) in a.iter().zip(&b) {
                    assert_eq!(u64::MAX.wrapping_add(i64::from(*x) as u64), *y, "{isa:?}");
                }
                // The stream goes on at the same place.
                let mut word = [0];
                prg.fill_words(&mut word);
                assert_eq!(*next.get_or_insert(word), word, "{isa:?}");
            }
        }
    }
}
