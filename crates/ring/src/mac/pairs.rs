//! Sums of slotwise products for ciphertexts of two parts, many sums over the same left factors: these are laid out once in the order in
//! which every sum reads them, and both parts are made in one pass over the right factors, which memory then gives once.

use super::{DotModulus, MAX_TERMS};
use crate::aligned::AlignedWords;
use crate::error::expect_len;
use crate::{Isa, RingError};

/// Number of columns of a block of pairs.
pub const PAIR_COLUMNS: usize = 16;

/// Left factors of [`LeftPairs::dot`]: pair t, part h, column j of a block of 16 stand at word `((block * terms + t) * 2 + h) * 16 + j`.
pub struct LeftPairs {
    pub(super) isa: Isa,
    pub(super) words: AlignedWords,
    pub(super) terms: usize,
    pub(super) len: usize,
}

impl LeftPairs {
    /// Makes an empty buffer for the kernels of `isa`.
    #[must_use]
    pub fn new(isa: Isa) -> Self {
        Self { isa: isa.usable(), words: AlignedWords::new(0), terms: 0, len: 0 }
    }

    /// Lays out pairs of equal length, a multiple of 16, with words below 2^50. Of no pair at all the length is 0.
    ///
    /// # Errors
    /// [`RingError::Length`] for other lengths or more than 4096 pairs.
    pub fn set(&mut self, pairs: &[[&[u64]; 2]]) -> Result<(), RingError> {
        let len = pairs.first().map_or(0, |p| p[0].len());
        expect_len("columns of a pair (whole blocks)", len % PAIR_COLUMNS, 0)?;
        if pairs.len() > MAX_TERMS {
            let what = "terms of a dot product (at most)";
            return Err(RingError::Length { what, expected: MAX_TERMS, got: pairs.len() });
        }
        for part in pairs.iter().flatten() {
            expect_len("part of a pair", part.len(), len)?;
        }
        (self.terms, self.len) = (pairs.len(), len);
        if self.words.len() < 2 * len * self.terms {
            self.words = AlignedWords::new(2 * len * self.terms);
        }
        if self.terms == 0 {
            return Ok(());
        }
        for (block, out) in
            self.words.chunks_exact_mut(2 * PAIR_COLUMNS * self.terms).take(len / PAIR_COLUMNS).enumerate()
        {
            let columns = block * PAIR_COLUMNS..(block + 1) * PAIR_COLUMNS;
            for (out, part) in out.chunks_exact_mut(PAIR_COLUMNS).zip(pairs.iter().flatten()) {
                out.copy_from_slice(&part[columns.clone()]);
            }
        }
        #[cfg(target_arch = "x86_64")]
        if self.isa == Isa::Avx2 {
            // SAFETY: AVX2 and FMA are there.
            unsafe { super::avx2::to_real_words(&mut self.words[..2 * len * self.terms]) };
        }
        Ok(())
    }

    /// `out[h][j] = sum_t x[t][h][j] w[t][j] mod p` for words below p. Bit-equal on all instruction sets; constant time.
    ///
    /// # Errors
    /// [`RingError::Length`] when numbers of factors or their lengths differ.
    pub fn dot(&self, m: &DotModulus, w: &[&[u64]], out: [&mut [u64]; 2]) -> Result<(), RingError> {
        expect_len("right factors of pairs", w.len(), self.terms)?;
        for w in w {
            expect_len("right factor of a pair", w.len(), self.len)?;
        }
        let [first, second] = out;
        expect_len("first sum of pairs", first.len(), self.len)?;
        expect_len("second sum of pairs", second.len(), self.len)?;
        let words = &self.words[..2 * self.len * self.terms];
        match self.isa {
            // SAFETY: the instruction set is there, and all lengths were checked.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { super::avx2::dot_pairs(&m.real, words, w, [first, second]) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            isa if isa >= Isa::Ifma => unsafe { super::ifma::dot_pairs(m, words, w, [first, second]) },
            _ => portable(m, words, w, [first, second]),
        }
        Ok(())
    }
}

fn portable(m: &DotModulus, x: &[u64], w: &[&[u64]], out: [&mut [u64]; 2]) {
    for (h, out) in out.into_iter().enumerate() {
        for (block, out) in out.chunks_exact_mut(PAIR_COLUMNS).enumerate() {
            let mut sums = [0u128; PAIR_COLUMNS];
            for (t, right) in w.iter().enumerate() {
                let left = &x[((block * w.len() + t) * 2 + h) * PAIR_COLUMNS..];
                for ((s, a), b) in sums.iter_mut().zip(left).zip(&right[block * PAIR_COLUMNS..]) {
                    *s += u128::from(*a) * u128::from(*b);
                }
            }
            for (o, s) in out.iter_mut().zip(&sums) {
                *o = super::reduce_sum(m, *s);
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
        fn pairs_are_exact_on_all_paths(terms in 1usize..50, blocks in 0usize..5, bits in 20u32..=50, seed in any::<u64>(), extreme in any::<bool>()) {
            let n = PAIR_COLUMNS * blocks;
            let p = primes_near(bits, 32, 1).unwrap()[0];
            let m = DotModulus::new(&Ntt::new(32, p).unwrap()).unwrap();
            let mut state = seed;
            let mut next = || { state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); if extreme { p - 1 } else { (state >> 3) % p } };
            let mut poly = || (0..n).map(|_| next()).collect::<Vec<u64>>();
            let x: Vec<[Vec<u64>; 2]> = (0..terms).map(|_| [poly(), poly()]).collect();
            let w: Vec<Vec<u64>> = (0..terms).map(|_| poly()).collect();
            let more: Vec<[&[u64]; 2]> = x.iter().chain(&x).map(|[a, b]| [b.as_slice(), a.as_slice()]).collect();
            let pairs: Vec<[&[u64]; 2]> = x.iter().map(|[a, b]| [a.as_slice(), b.as_slice()]).collect();
            let right: Vec<&[u64]> = w.iter().map(Vec::as_slice).collect();
            let want = [0, 1].map(|h| (0..n).map(|j| (x.iter().zip(&w).map(|(a, b)| u128::from(a[h][j]) * u128::from(b[j])).sum::<u128>() % u128::from(p)) as u64).collect::<Vec<_>>());
            for isa in simd::available() {
                let (mut a, mut b) = (vec![1; n], vec![2; n]);
                let mut left = LeftPairs::new(isa);
                // room is used again for fewer
                left.set(&more).unwrap();
                left.set(&pairs).unwrap();
                left.dot(&m, &right, [&mut a, &mut b]).unwrap();
                prop_assert_eq!(&[a, b], &want);
            }
        }
    }

    #[test]
    fn most_terms_of_largest_words_and_wrong_lengths() {
        let p = primes_near(50, 32, 1).unwrap()[0];
        let m = DotModulus::new(&Ntt::new(32, p).unwrap()).unwrap();
        let x = [p - 1; 16];
        let want = (u128::from(p - 1) * u128::from(p - 1) % u128::from(p) * MAX_TERMS as u128 % u128::from(p))
            as u64;
        for isa in simd::available() {
            let (mut a, mut b) = ([0; 16], [0; 16]);
            let mut left = LeftPairs::new(isa);
            left.set(&vec![[&x[..], &x]; MAX_TERMS]).unwrap();
            left.dot(&m, &vec![&x[..]; MAX_TERMS], [&mut a, &mut b]).unwrap();
            assert_eq!([a, b], [[want; 16]; 2]);
            assert!(left.dot(&m, &vec![&x[..]; MAX_TERMS - 1], [&mut a, &mut b]).is_err());
            assert!(left.dot(&m, &vec![&x[..8]; MAX_TERMS], [&mut a, &mut b]).is_err());
            assert!(left.dot(&m, &vec![&x[..]; MAX_TERMS], [&mut a[..8], &mut b]).is_err());
            assert!(left.dot(&m, &vec![&x[..]; MAX_TERMS], [&mut a[..8], &mut b[..8]]).is_err());
            assert!(left.set(&vec![[&x[..], &x]; MAX_TERMS + 1]).is_err());
            assert!(left.set(&[[&x[..8], &x[..8]]]).is_err());
            assert!(left.set(&[[&x[..], &x[..8]]]).is_err());
        }
    }
}
