//! Sums of products whose right factors stand still over runs of columns: a product of matrices modulo p for every run. Transforms of
//! polynomials in X^S are such factors (`hushnet_rlwe::packed::SpacedTransform`), so weights are read once for all columns of a run.

use super::{DotModulus, LeftPairs, PAIR_COLUMNS};
use crate::error::expect_len;
#[cfg(target_arch = "x86_64")]
use crate::Isa;
use crate::RingError;

/// Sums that are made together with AVX-512: as many as registers hold.
#[cfg(target_arch = "x86_64")]
const TOGETHER: usize = 3;

/// Where the right factors of [`LeftPairs::add_runs`] stand: factor t of columns `j` at `j / length * stride + t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Columns of a run, a multiple of 16.
    pub length: usize,
    /// Words from the factors of a run to those of the next one.
    pub stride: usize,
}

impl LeftPairs {
    /// `out[o][h][j] += sum_t x[t][h][j] w[o][j / length * stride + t] mod p` for every sum o, both parts h and all columns j; words are
    /// below p. Bit-equal on all instruction sets; constant time.
    ///
    /// # Errors
    /// [`RingError::Length`] unless there are as many sums as factors, parts have the length of the left factors, whole runs of whole
    /// blocks, and every run has its factors.
    pub fn add_runs(
        &self,
        m: &DotModulus,
        runs: Runs,
        w: &[&[u64]],
        out: &mut [[&mut [u64]; 2]],
    ) -> Result<(), RingError> {
        let Runs { length, stride } = runs;
        expect_len("sums over runs", w.len(), out.len())?;
        if self.terms == 0 {
            return Ok(());
        }
        expect_len("columns of a run (whole blocks)", length % PAIR_COLUMNS, 0)?;
        expect_len("columns of a pair (whole runs)", self.len % length.max(1), 0)?;
        let needed =
            (self.len / length.max(1)).saturating_sub(1).saturating_mul(stride).saturating_add(self.terms);
        for (w, out) in w.iter().zip(&*out) {
            if w.len() < needed || stride < self.terms {
                let what = "right factors of all runs (at least)";
                return Err(RingError::Length { what, expected: needed, got: w.len() });
            }
            expect_len("first sum over runs", out[0].len(), self.len)?;
            expect_len("second sum over runs", out[1].len(), self.len)?;
        }
        let words = 2 * PAIR_COLUMNS * self.terms;
        for (block, x) in self.words.chunks_exact(words).take(self.len / PAIR_COLUMNS).enumerate() {
            let column = block * PAIR_COLUMNS;
            let first = column / length * stride;
            self.block(m, x, (first..first + self.terms, w), column, out);
        }
        Ok(())
    }

    /// All sums of one block of columns, whose factors stand in a range.
    fn block(
        &self,
        m: &DotModulus,
        x: &[u64],
        (range, w): (std::ops::Range<usize>, &[&[u64]]),
        column: usize,
        out: &mut [[&mut [u64]; 2]],
    ) {
        let columns = column..column + PAIR_COLUMNS;
        #[cfg(target_arch = "x86_64")]
        if self.isa >= Isa::Ifma {
            ifma(m, x, (range, w), columns, out);
            return;
        }
        for (w, out) in w.iter().zip(out) {
            let sums = self.sum(m, x, &w[range.clone()]);
            for (out, sum) in out.iter_mut().zip(sums.chunks_exact(PAIR_COLUMNS)) {
                for (o, s) in out[columns.clone()].iter_mut().zip(sum) {
                    let total = *o + s;
                    *o = total.min(total.wrapping_sub(m.p));
                }
            }
        }
    }

    /// Both parts of one sum over a block, without AVX-512.
    fn sum(&self, m: &DotModulus, x: &[u64], w: &[u64]) -> [u64; 2 * PAIR_COLUMNS] {
        #[cfg(target_arch = "x86_64")]
        if self.isa == Isa::Avx2 {
            // SAFETY: AVX2 and FMA are there, and a block has 32 words a term.
            return unsafe { super::avx2::sum_of_runs(&m.real, x.as_ptr(), w) };
        }
        let mut sums = [0u128; 2 * PAIR_COLUMNS];
        for (left, right) in x.chunks_exact(2 * PAIR_COLUMNS).zip(w) {
            for (s, a) in sums.iter_mut().zip(left) {
                *s += u128::from(*a) * u128::from(*right);
            }
        }
        sums.map(|s| super::reduce_sum(m, s))
    }
}

/// [`LeftPairs::block`] with AVX-512, some sums together.
#[cfg(target_arch = "x86_64")]
fn ifma(
    m: &DotModulus,
    x: &[u64],
    (range, w): (std::ops::Range<usize>, &[&[u64]]),
    columns: std::ops::Range<usize>,
    out: &mut [[&mut [u64]; 2]],
) {
    let left = (x.as_ptr(), range.len());
    for (w, out) in w.chunks(TOGETHER).zip(out.chunks_mut(TOGETHER)) {
        let mut ends = out.iter_mut().map(|o| o.each_mut().map(|part| part[columns.clone()].as_mut_ptr()));
        let mut factors = w.iter().map(|w| w[range.clone()].as_ptr());
        let mut next = || Some((factors.next()?, ends.next()?));
        // SAFETY: IFMA is there; a block has 32 words a term, the slices have a word a term and a word a column.
        unsafe {
            match (next(), next(), next()) {
                (Some(a), Some(b), Some(c)) => {
                    super::ifma::add_runs(m, left, [a.0, b.0, c.0], [a.1, b.1, c.1]);
                }
                (Some(a), Some(b), None) => super::ifma::add_runs(m, left, [a.0, b.0], [a.1, b.1]),
                (Some(a), ..) => super::ifma::add_runs(m, left, [a.0], [a.1]),
                (None, ..) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prime::primes_near;
    use crate::{simd, Ntt};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_over_runs_are_exact_on_all_paths(
            terms in 1usize..40, sums in 0usize..8, blocks in 1usize..3, count in 1usize..4, more in 0usize..3,
            bits in 20u32..=50, seed in any::<u64>(), extreme in any::<bool>(),
        ) {
            let (length, stride) = (PAIR_COLUMNS * blocks, terms + more);
            let n = length * count;
            let p = primes_near(bits, 32, 1).unwrap()[0];
            let m = DotModulus::new(&Ntt::new(32, p).unwrap()).unwrap();
            let mut state = seed;
            let mut next = || { state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); if extreme { p - 1 } else { (state >> 3) % p } };
            let mut words = |n: usize| (0..n).map(|_| next()).collect::<Vec<u64>>();
            let x: Vec<[Vec<u64>; 2]> = (0..terms).map(|_| [words(n), words(n)]).collect();
            let w: Vec<Vec<u64>> = (0..sums).map(|_| words(stride * count)).collect();
            let start: Vec<[Vec<u64>; 2]> = (0..sums).map(|_| [words(n), words(n)]).collect();
            let mut want = start.clone();
            for (o, sum) in want.iter_mut().enumerate() {
                for (h, part) in sum.iter_mut().enumerate() {
                    for (j, value) in part.iter_mut().enumerate() {
                        let products = x.iter().zip(&w[o][j / length * stride..]).map(|(x, w)| u128::from(x[h][j]) * u128::from(*w));
                        *value = ((u128::from(*value) + products.sum::<u128>()) % u128::from(p)) as u64;
                    }
                }
            }
            let pairs: Vec<[&[u64]; 2]> = x.iter().map(|[a, b]| [a.as_slice(), b.as_slice()]).collect();
            let right: Vec<&[u64]> = w.iter().map(Vec::as_slice).collect();
            for isa in simd::available() {
                let (mut left, mut got) = (LeftPairs::new(isa), start.clone());
                left.set(&pairs).unwrap();
                let mut out: Vec<[&mut [u64]; 2]> = got.iter_mut().map(|sum| sum.each_mut().map(Vec::as_mut_slice)).collect();
                left.add_runs(&m, Runs { length, stride }, &right, &mut out).unwrap();
                prop_assert_eq!(&got, &want);
            }
        }
    }

    #[test]
    fn runs_of_other_lengths_are_refused() {
        let m = DotModulus::new(&Ntt::new(32, primes_near(50, 32, 1).unwrap()[0]).unwrap()).unwrap();
        let (x, w) = ([1; 32], [1; 4]);
        for isa in simd::available() {
            let mut left = LeftPairs::new(isa);
            left.set(&[[&x, &x], [&x, &x]]).unwrap();
            let tried = |length, stride, w: &[u64], columns: [usize; 2]| {
                let [mut a, mut b] = columns.map(|n| vec![0; n]);
                left.add_runs(&m, Runs { length, stride }, &[w], &mut [[&mut a, &mut b]])
            };
            assert!(tried(16, 2, &w, [32, 32]).is_ok());
            assert!(tried(32, 2, &w[..2], [32, 32]).is_ok());
            assert!(tried(0, 2, &w, [32, 32]).is_err());
            assert!(tried(8, 2, &w, [32, 32]).is_err());
            assert!(tried(48, 2, &w, [32, 32]).is_err());
            assert!(tried(16, 1, &w, [32, 32]).is_err());
            assert!(tried(16, usize::MAX, &w, [32, 32]).is_err());
            assert!(tried(16, 2, &w[..3], [32, 32]).is_err());
            assert!(tried(16, 2, &w, [16, 32]).is_err());
            assert!(tried(16, 2, &w, [32, 48]).is_err());
            assert!(left.add_runs(&m, Runs { length: 16, stride: 2 }, &[&w], &mut []).is_err());
        }
    }
}
