//! Sums of slotwise products, `out_j = sum_i x_i[j] w_i[j] mod p`: what a linear layer in evaluation form
//! spends its time on. Products are accumulated lazily in two halves (52 bits with IFMA, 51 with AVX2) and reduced once at the end.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
mod pairs;
mod runs;

pub use pairs::{LeftPairs, PAIR_COLUMNS};
pub use runs::Runs;

use crate::error::expect_len;
use crate::prime::wide;
use crate::{Isa, Ntt, RingError};

/// Terms that fit before the 64-bit accumulators of 52-bit halves overflow.
const MAX_TERMS: usize = 4096;

/// Constants of a modulus `p < 2^50` for [`dot`].
#[derive(Clone, Copy, Debug)]
pub struct DotModulus {
    p: u64,
    /// `2^52 mod p`, `2^104 mod p` and 1, each with `floor(c 2^52 / p)`.
    constants: [(u64, u64); 3],
    #[cfg(target_arch = "x86_64")]
    real: avx2::Modulus,
}

impl DotModulus {
    /// For the prime of a transform.
    ///
    /// # Errors
    /// [`RingError::Modulus`] when the prime is not below 2^50.
    pub fn new(ntt: &Ntt) -> Result<Self, RingError> {
        let p = ntt.modulus();
        if p >= 1 << 50 {
            return Err(RingError::Modulus { modulus: p, twice_degree: 2 * ntt.degree() });
        }
        let c1 = ((1u128 << 52) % u128::from(p)) as u64;
        let c2 = ((1u128 << 104) % u128::from(p)) as u64;
        let with_quotient = |c: u64| (c, ((u128::from(c) << 52) / u128::from(p)) as u64);
        Ok(Self {
            p,
            constants: [with_quotient(c1), with_quotient(c2), with_quotient(1)],
            #[cfg(target_arch = "x86_64")]
            real: avx2::Modulus::new(p),
        })
    }
}

/// One or more parts (c0, c1) of the left factors that share the right factors: `out[k][j] = sum_i x[k][i][j] w[i][j] mod p`.
///
/// All slices have the same length, values are below p, and there are as many left factors in every part as right factors.
/// Bit-equal on all instruction sets; constant time.
///
/// # Errors
/// [`RingError::Length`] when lengths differ or there are more than 4096 terms.
pub fn dot(
    isa: Isa,
    m: &DotModulus,
    x: &[&[&[u64]]],
    w: &[&[u64]],
    out: &mut [&mut [u64]],
) -> Result<(), RingError> {
    expect_len("parts of a dot product", x.len(), out.len())?;
    if w.len() > MAX_TERMS {
        return Err(RingError::Length {
            what: "terms of a dot product (at most)",
            expected: MAX_TERMS,
            got: w.len(),
        });
    }
    for (part, out) in x.iter().zip(out.iter_mut()) {
        expect_len("left factors of a dot product", part.len(), w.len())?;
        for (a, b) in part.iter().zip(w) {
            expect_len("left factor of a dot product", a.len(), out.len())?;
            expect_len("right factor of a dot product", b.len(), out.len())?;
        }
        let done = simd(isa.usable(), m, part, w, out);
        portable(m, part, w, out, done);
    }
    Ok(())
}

/// Columns of a block in the layout of [`dot_folded`].
pub const FOLD_COLUMNS: usize = 32;

/// Sums over runs within polynomials, too: `out[j] = sum_pairs sum_r x[j, r] w[j, r] mod p`, where element (j, r) of a factor stands at
/// `(j / 32 * run + r) * 32 + j % 32`: memory is read in order. What a transform that keeps one coefficient of `run` starts with.
///
/// Bit-equal on all instruction sets; constant time.
///
/// # Errors
/// [`RingError::Length`] unless factors have `run` times the length of `out`, a multiple of 32, and `run` times the number of pairs is at most 4096.
pub fn dot_folded(
    isa: Isa,
    m: &DotModulus,
    pairs: &[(&[u64], &[u64])],
    run: usize,
    out: &mut [u64],
) -> Result<(), RingError> {
    expect_len("columns of a folded product (whole blocks)", out.len() % FOLD_COLUMNS, 0)?;
    if pairs.len() * run > MAX_TERMS {
        let got = pairs.len() * run;
        return Err(RingError::Length { what: "terms of a dot product (at most)", expected: MAX_TERMS, got });
    }
    for (x, w) in pairs {
        expect_len("left factor of a folded product", x.len(), out.len() * run)?;
        expect_len("right factor of a folded product", w.len(), out.len() * run)?;
    }
    #[cfg(target_arch = "x86_64")]
    if isa.usable() >= Isa::Ifma {
        // SAFETY: IFMA is there, and all lengths were checked.
        unsafe { ifma::dot_folded(m, pairs, run, out) };
        return Ok(());
    } else if isa.usable() >= Isa::Avx2 {
        // SAFETY: AVX2 and FMA are there, and all lengths were checked.
        unsafe { avx2::dot_folded(&m.real, pairs, run, out) };
        return Ok(());
    }
    let _ = isa;
    let mut sums = [0u128; FOLD_COLUMNS];
    for (block, out) in out.chunks_exact_mut(FOLD_COLUMNS).enumerate() {
        sums.fill(0);
        let range = block * run * FOLD_COLUMNS..(block + 1) * run * FOLD_COLUMNS;
        for (x, w) in pairs {
            let rows = x[range.clone()].chunks_exact(FOLD_COLUMNS);
            for (a, b) in rows.zip(w[range.clone()].chunks_exact(FOLD_COLUMNS)) {
                for ((s, a), b) in sums.iter_mut().zip(a).zip(b) {
                    *s += wide(*a, *b);
                }
            }
        }
        for (o, s) in out.iter_mut().zip(&sums) {
            *o = reduce_sum(m, *s);
        }
    }
    Ok(())
}

#[cfg(not(target_arch = "x86_64"))]
fn simd(_: Isa, _: &DotModulus, _: &[&[u64]], _: &[&[u64]], _: &mut [u64]) -> usize {
    0
}

/// What whole vectors can do of a dot product; returns how many columns that was.
#[cfg(target_arch = "x86_64")]
fn simd(isa: Isa, m: &DotModulus, x: &[&[u64]], w: &[&[u64]], out: &mut [u64]) -> usize {
    if isa >= Isa::Ifma {
        let done = out.len() / 32 * 32;
        // SAFETY: IFMA is there; the caller checked that all slices have out's length.
        unsafe { ifma::dot(m, x, w, &mut out[..done]) };
        return done;
    }
    if isa >= Isa::Avx2 {
        let done = out.len() / avx2::COLUMNS * avx2::COLUMNS;
        // SAFETY: AVX2 and FMA are there; the caller checked that all slices have out's length.
        unsafe { avx2::dot(&m.real, x, w, &mut out[..done]) };
        return done;
    }
    0
}

fn portable(m: &DotModulus, x: &[&[u64]], w: &[&[u64]], out: &mut [u64], from: usize) {
    for (j, o) in out.iter_mut().enumerate().skip(from) {
        let sum = x.iter().zip(w).fold(0u128, |s, (a, b)| s + u128::from(a[j]) * u128::from(b[j]));
        *o = reduce_sum(m, sum);
    }
}

/// `sum mod p` for a sum below 2^112: three 52-bit digits, each times its power modulo p.
fn reduce_sum(m: &DotModulus, sum: u128) -> u64 {
    let digits = [(sum >> 52) as u64 & MASK, (sum >> 104) as u64, sum as u64 & MASK];
    let total: u64 = digits.iter().zip(&m.constants).map(|(y, (c, q))| reduce_product(*y, *c, *q, m.p)).sum();
    subtract_if_above(subtract_if_above(subtract_if_above(total, 4 * m.p), 2 * m.p), m.p)
}

const MASK: u64 = (1 << 52) - 1;

/// `y c mod p` in `[0, 2p)` for `y < 2^52`.
fn reduce_product(y: u64, c: u64, quotient: u64, p: u64) -> u64 {
    let q = (wide(y, quotient) >> 52) as u64;
    y.wrapping_mul(c).wrapping_sub(q.wrapping_mul(p)) & MASK
}

fn subtract_if_above(x: u64, p: u64) -> u64 {
    x.min(x.wrapping_sub(p))
}

#[cfg(target_arch = "x86_64")]
mod ifma {
    use super::DotModulus;
    use std::arch::x86_64::*;

    /// # Safety
    /// AVX-512 IFMA; all slices at least as long as `out`, whose length is a multiple of 32.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn dot(m: &DotModulus, x: &[&[u64]], w: &[&[u64]], out: &mut [u64]) {
        for j in (0..out.len()).step_by(32) {
            let zero = _mm512_setzero_si512();
            let (mut lo, mut hi) = ([zero; 4], [zero; 4]);
            for (a, b) in x.iter().zip(w) {
                for v in 0..4 {
                    // SAFETY: j + 32 <= out.len() <= the lengths of a and b.
                    let (a, b) = unsafe {
                        (
                            _mm512_loadu_si512(a.as_ptr().add(j + 8 * v).cast()),
                            _mm512_loadu_si512(b.as_ptr().add(j + 8 * v).cast()),
                        )
                    };
                    lo[v] = _mm512_madd52lo_epu64(lo[v], a, b);
                    hi[v] = _mm512_madd52hi_epu64(hi[v], a, b);
                }
            }
            for v in 0..4 {
                let r = reduce(m, lo[v], hi[v]);
                // SAFETY: j + 32 <= out.len().
                unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(j + 8 * v).cast(), r) };
            }
        }
    }

    /// # Safety
    /// AVX-512 IFMA; factors have `run` times the length of `out`, which is a multiple of 32.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn dot_folded(m: &DotModulus, pairs: &[(&[u64], &[u64])], run: usize, out: &mut [u64]) {
        let zero = _mm512_setzero_si512();
        for (block, out) in out.chunks_exact_mut(32).enumerate() {
            let (mut lo, mut hi) = ([zero; 4], [zero; 4]);
            for (a, b) in pairs {
                let start = block * run * 32;
                for j in (start..start + run * 32).step_by(32) {
                    for v in 0..4 {
                        // SAFETY: j + 32 <= (block + 1) run 32 <= run out.len() = the lengths of a and b.
                        let (a, b) = unsafe {
                            (
                                _mm512_loadu_si512(a.as_ptr().add(j + 8 * v).cast()),
                                _mm512_loadu_si512(b.as_ptr().add(j + 8 * v).cast()),
                            )
                        };
                        lo[v] = _mm512_madd52lo_epu64(lo[v], a, b);
                        hi[v] = _mm512_madd52hi_epu64(hi[v], a, b);
                    }
                }
            }
            for v in 0..4 {
                let r = reduce(m, lo[v], hi[v]);
                // SAFETY: out has 32 words.
                unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(8 * v).cast(), r) };
            }
        }
    }

    /// # Safety
    /// AVX-512 IFMA; `x` laid out as [`super::LeftPairs`] says, right factors and sums of its length.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn dot_pairs(m: &DotModulus, x: &[u64], w: &[&[u64]], out: [&mut [u64]; 2]) {
        let (zero, terms) = (_mm512_setzero_si512(), w.len());
        for j in (0..out[0].len()).step_by(super::PAIR_COLUMNS) {
            // part 0, then part 1, each two vectors
            let (mut lo, mut hi) = ([zero; 4], [zero; 4]);
            for (t, w) in w.iter().enumerate() {
                // SAFETY: block j / 16 has 32 words a term, and a right factor at least j + 16.
                let (x, w) = unsafe { (x.as_ptr().add(2 * (j * terms + 16 * t)), w.as_ptr().add(j)) };
                for v in 0..4 {
                    // SAFETY: as above.
                    let (a, b) = unsafe {
                        (
                            _mm512_loadu_si512(x.add(8 * v).cast()),
                            _mm512_loadu_si512(w.add(8 * (v % 2)).cast()),
                        )
                    };
                    lo[v] = _mm512_madd52lo_epu64(lo[v], a, b);
                    hi[v] = _mm512_madd52hi_epu64(hi[v], a, b);
                }
            }
            for v in 0..4 {
                let r = reduce(m, lo[v], hi[v]);
                // SAFETY: j + 16 <= out.len().
                unsafe { _mm512_storeu_si512(out[v / 2].as_mut_ptr().add(j + 8 * (v % 2)).cast(), r) };
            }
        }
    }

    /// Adds G sums over a block of pairs, whose right factors are one word for all of its columns: 8 G registers of sums.
    ///
    /// # Safety
    /// AVX-512 IFMA; `x` leads to 32 words for each of `terms` pairs, every right factor to `terms` words, every result to 16 words a part.
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    pub(super) unsafe fn add_runs<const G: usize>(
        m: &DotModulus,
        (x, terms): (*const u64, usize),
        w: [*const u64; G],
        out: [[*mut u64; 2]; G],
    ) {
        let zero = _mm512_setzero_si512();
        let (mut lo, mut hi) = ([[zero; 4]; G], [[zero; 4]; G]);
        for t in 0..terms {
            let mut a = [zero; 4];
            for (v, a) in a.iter_mut().enumerate() {
                // SAFETY: 32 words a term.
                *a = unsafe { _mm512_loadu_si512(x.add(32 * t + 8 * v).cast()) };
            }
            for g in 0..G {
                // SAFETY: t is below the number of terms.
                let b = _mm512_set1_epi64(unsafe { *w[g].add(t) } as i64);
                for v in 0..4 {
                    lo[g][v] = _mm512_madd52lo_epu64(lo[g][v], a[v], b);
                    hi[g][v] = _mm512_madd52hi_epu64(hi[g][v], a[v], b);
                }
            }
        }
        let p = _mm512_set1_epi64(m.p as i64);
        for g in 0..G {
            for v in 0..4 {
                // SAFETY: 8 (v % 2) + 8 is at most 16.
                let at: *mut __m512i = unsafe { out[g][v / 2].add(8 * (v % 2)) }.cast();
                // SAFETY: as above.
                let sum = _mm512_add_epi64(unsafe { _mm512_loadu_si512(at) }, reduce(m, lo[g][v], hi[g][v]));
                // SAFETY: as above.
                unsafe { _mm512_storeu_si512(at, _mm512_min_epu64(sum, _mm512_sub_epi64(sum, p))) };
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma,avx512dq")]
    fn reduce(m: &DotModulus, lo: __m512i, hi: __m512i) -> __m512i {
        let mask = _mm512_set1_epi64(super::MASK as i64);
        let p = |k: u64| _mm512_set1_epi64((k * m.p) as i64);
        let zero = _mm512_setzero_si512();
        let high = _mm512_add_epi64(hi, _mm512_srli_epi64(lo, 52));
        let digits = [_mm512_and_si512(high, mask), _mm512_srli_epi64(high, 52), _mm512_and_si512(lo, mask)];
        let mut total = zero;
        for (y, (c, q)) in digits.into_iter().zip(m.constants) {
            let q = _mm512_madd52hi_epu64(zero, y, _mm512_set1_epi64(q as i64));
            let product = _mm512_madd52lo_epu64(zero, y, _mm512_set1_epi64(c as i64));
            let r = _mm512_sub_epi64(product, _mm512_madd52lo_epu64(zero, q, p(1)));
            total = _mm512_add_epi64(total, _mm512_and_si512(r, mask));
        }
        for k in [4, 2, 1] {
            total = _mm512_min_epu64(total, _mm512_sub_epi64(total, p(k)));
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prime::primes_near;
    use crate::simd;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_paths_are_the_exact_sum(terms in 0usize..40, seed in any::<u64>(), bits in 20u32..=50, log_n in 3u32..8, extreme in any::<bool>()) {
            let n = 1 << log_n;
            let p = primes_near(bits, n, 1).unwrap()[0];
            let m = DotModulus::new(&Ntt::new(n, p).unwrap()).unwrap();
            let mut state = seed;
            let mut next = || { state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); if extreme { p - 1 } else { (state >> 3) % p } };
            let mut poly = || (0..n).map(|_| next()).collect::<Vec<u64>>();
            let (x, w): (Vec<_>, Vec<_>) = (0..terms).map(|_| (poly(), poly())).unzip();
            let xs: Vec<&[u64]> = x.iter().map(Vec::as_slice).collect();
            let ws: Vec<&[u64]> = w.iter().map(Vec::as_slice).collect();
            let want: Vec<u64> = (0..n).map(|j| (x.iter().zip(&w).map(|(a, b)| u128::from(a[j]) * u128::from(b[j])).sum::<u128>() % u128::from(p)) as u64).collect();
            for isa in simd::available() {
                let mut out = vec![0; n];
                dot(isa, &m, &[&xs], &ws, &mut [&mut out]).unwrap();
                prop_assert_eq!(&out, &want);
            }
        }
    }

    proptest! {
        #[test]
        fn folded_sums_are_exact_on_all_paths(pairs in 0usize..5, run in 1usize..9, blocks in 1usize..4, seed in any::<u64>(), extreme in any::<bool>()) {
            let n = 32 * blocks;
            let p = primes_near(50, 2048, 1).unwrap()[0];
            let m = DotModulus::new(&Ntt::new(2048, p).unwrap()).unwrap();
            let mut state = seed;
            let mut next = || { state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); if extreme { p - 1 } else { (state >> 3) % p } };
            let mut poly = || (0..n * run).map(|_| next()).collect::<Vec<u64>>();
            let factors: Vec<_> = (0..pairs).map(|_| (poly(), poly())).collect();
            let refs: Vec<(&[u64], &[u64])> = factors.iter().map(|(a, b)| (a.as_slice(), b.as_slice())).collect();
            let mut want = vec![0u64; n];
            for (a, b) in &factors {
                for (j, w) in want.iter_mut().enumerate() {
                    for r in 0..run {
                        let at = (j / 32 * run + r) * 32 + j % 32;
                        *w = ((u128::from(*w) + u128::from(a[at]) * u128::from(b[at])) % u128::from(p)) as u64;
                    }
                }
            }
            for isa in simd::available() {
                let mut out = vec![1; n];
                dot_folded(isa, &m, &refs, run, &mut out).unwrap();
                prop_assert_eq!(&out, &want);
            }
            prop_assert!(dot_folded(Isa::Portable, &m, &refs, run, &mut vec![0; n + 1]).is_err());
            prop_assert!(pairs == 0 || dot_folded(Isa::Portable, &m, &refs, run + 1, &mut vec![0; n]).is_err());
        }
    }

    #[test]
    fn the_largest_number_of_terms_does_not_overflow() {
        let p = primes_near(50, 32, 1).unwrap()[0];
        let m = DotModulus::new(&Ntt::new(32, p).unwrap()).unwrap();
        let x = vec![p - 1; 32];
        let xs: Vec<&[u64]> = vec![&x; MAX_TERMS];
        for isa in simd::available() {
            let mut out = vec![0; 32];
            dot(isa, &m, &[&xs], &xs, &mut [&mut out]).unwrap();
            let want = (u128::from(p - 1) * u128::from(p - 1) % u128::from(p) * MAX_TERMS as u128
                % u128::from(p)) as u64;
            assert_eq!(out, vec![want; 32]);
        }
        let too_many: Vec<&[u64]> = vec![&x; MAX_TERMS + 1];
        assert!(dot(Isa::Portable, &m, &[&too_many], &too_many, &mut [&mut vec![0; 32]]).is_err());
    }
}
