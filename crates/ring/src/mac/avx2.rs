//! AVX2: products in double precision. Adding 2^103 rounds a product `a b < 2^100` to a multiple of 2^51 whose number h stands in the mantissa; a
//! second fused multiply-add leaves the rest l = a b - 2^51 h, |l| <= 2^50, exact, in the mantissa of a number near 1.5 2^52. So the *bits* of both
//! results can be summed as integers, less those of the constants once for every term; sums of 4096 terms stay within 61 bits and 62 bits.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// Columns in work at once: four vectors.
pub(super) const COLUMNS: usize = 16;
const VECTORS: usize = COLUMNS / 4;
/// Bits of the lower half.
const SPLIT: u32 = 51;
const LOW: i64 = (1 << SPLIT) - 1;
/// 2^52: an integer below it, put into its mantissa.
const MAGIC: f64 = 4_503_599_627_370_496.0;
/// 2^103: its units in the last place are 2^51.
const HIGH: f64 = MAGIC * (1u64 << SPLIT) as f64;
/// 1.5 2^52: its units in the last place are 1, half a binade to either side.
const MIDDLE: f64 = 1.5 * MAGIC;

/// A modulus `p < 2^50` in double precision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Modulus {
    p: f64,
    inverse: f64,
    /// `2^102 mod p` and `2^51 mod p`, centred, each with its quotient by p.
    powers: [[f64; 2]; 2],
}

impl Modulus {
    pub(super) fn new(p: u64) -> Self {
        let power = |bits: u32| {
            let c = ((1u128 << bits) % u128::from(p)) as u64;
            let centred = if c > p / 2 { c as i64 - p as i64 } else { c as i64 } as f64;
            [centred, centred / p as f64]
        };
        Self { p: p as f64, inverse: 1.0 / p as f64, powers: [power(2 * SPLIT), power(SPLIT)] }
    }
}

#[derive(Clone, Copy)]
struct Sums {
    high: [__m256i; VECTORS],
    low: [__m256i; VECTORS],
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn zero() -> Sums {
    let z = _mm256_setzero_si256();
    Sums { high: [z; VECTORS], low: [z; VECTORS] }
}

/// Integers below 2^52 to doubles.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn to_reals(x: __m256i) -> __m256d {
    let magic = _mm256_set1_pd(MAGIC);
    _mm256_sub_pd(_mm256_or_pd(_mm256_castsi256_pd(x), magic), magic)
}

/// Adds the products of 16 columns, with the bits of the two constants.
///
/// # Safety
/// AVX2 and FMA; both pointers lead to 16 words.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn add_products(sums: &mut Sums, a: *const u64, b: *const u64) {
    let (high, both) = (_mm256_set1_pd(HIGH), _mm256_set1_pd(HIGH + MIDDLE));
    for v in 0..VECTORS {
        // SAFETY: 4 v + 4 <= 16.
        let (a, b) =
            unsafe { (_mm256_loadu_si256(a.add(4 * v).cast()), _mm256_loadu_si256(b.add(4 * v).cast())) };
        let (a, b) = (to_reals(a), to_reals(b));
        let h = _mm256_fmadd_pd(a, b, high);
        let l = _mm256_fmadd_pd(a, b, _mm256_sub_pd(both, h));
        sums.high[v] = _mm256_add_epi64(sums.high[v], _mm256_castpd_si256(h));
        sums.low[v] = _mm256_add_epi64(sums.low[v], _mm256_castpd_si256(l));
    }
}

/// Words below 2^50 become doubles of the same value.
///
/// # Safety
/// AVX2 and FMA; a multiple of four words.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn to_real_words(words: &mut [u64]) {
    for four in words.chunks_exact_mut(4) {
        let at: *mut __m256i = four.as_mut_ptr().cast();
        // SAFETY: four words.
        unsafe { _mm256_storeu_pd(at.cast(), to_reals(_mm256_loadu_si256(at))) };
    }
}

/// Both parts of a sum, over left factors made by [`to_real_words`]: half a block at a time, a cache line of every right factor.
///
/// # Safety
/// AVX2 and FMA; `x` laid out as [`super::LeftPairs`] says, right factors and sums of its length; words below 2^50.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn dot_pairs(m: &Modulus, x: &[u64], w: &[&[u64]], out: [&mut [u64]; 2]) {
    const HALF: usize = super::PAIR_COLUMNS / 2;
    /// Words that right factors are asked for ahead: they come from memory, one line of each in turn, which processors do not foresee.
    const AHEAD: usize = 4 * HALF;
    let (high, both) = (_mm256_set1_pd(HIGH), _mm256_set1_pd(HIGH + MIDDLE));
    let len = out[0].len();
    let ends = out.map(<[u64]>::as_mut_ptr);
    for j in (0..len).step_by(HALF) {
        let start = (j / super::PAIR_COLUMNS) * w.len() * 2 * super::PAIR_COLUMNS + j % super::PAIR_COLUMNS;
        let mut sums = zero();
        for (t, w) in w.iter().enumerate() {
            // SAFETY: the block has 32 words a term, 16 a part, and a right factor j + 8 words.
            let (x, w) = unsafe { (x.as_ptr().add(start + 2 * super::PAIR_COLUMNS * t), w.as_ptr().add(j)) };
            _mm_prefetch::<_MM_HINT_T0>(w.wrapping_add(AHEAD).cast());
            for v in 0..2 {
                // SAFETY: as above.
                let b = to_reals(unsafe { _mm256_loadu_si256(w.add(4 * v).cast()) });
                for part in 0..2 {
                    // SAFETY: as above.
                    let a = unsafe { _mm256_loadu_pd(x.add(super::PAIR_COLUMNS * part + 4 * v).cast()) };
                    let h = _mm256_fmadd_pd(a, b, high);
                    let l = _mm256_fmadd_pd(a, b, _mm256_sub_pd(both, h));
                    let at = 2 * part + v;
                    sums.high[at] = _mm256_add_epi64(sums.high[at], _mm256_castpd_si256(h));
                    sums.low[at] = _mm256_add_epi64(sums.low[at], _mm256_castpd_si256(l));
                }
            }
        }
        // SAFETY: j + 8 words of both sums.
        unsafe {
            let [first, second] = ends.map(|o| o.add(j));
            store(m, &sums, w.len(), [first, first.add(4), second, second.add(4)]);
        }
    }
}

/// Both parts of a sum over a block of pairs whose right factors are one word for all of its columns, over left factors made by
/// [`to_real_words`]: 16 words of the first part, then those of the second.
///
/// # Safety
/// AVX2 and FMA; `x` leads to 32 words for each right factor; words below 2^50.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn sum_of_runs(m: &Modulus, x: *const u64, w: &[u64]) -> [u64; 32] {
    let (high, both) = (_mm256_set1_pd(HIGH), _mm256_set1_pd(HIGH + MIDDLE));
    let mut found = [0; 32];
    for first in (0..found.len()).step_by(COLUMNS) {
        let mut sums = zero();
        for (t, w) in w.iter().enumerate() {
            let b = to_reals(_mm256_set1_epi64x(*w as i64));
            for v in 0..VECTORS {
                // SAFETY: first + 4 v + 4 is at most 32, the words of a term.
                let a = unsafe { _mm256_loadu_pd(x.add(32 * t + first + 4 * v).cast()) };
                let h = _mm256_fmadd_pd(a, b, high);
                let l = _mm256_fmadd_pd(a, b, _mm256_sub_pd(both, h));
                sums.high[v] = _mm256_add_epi64(sums.high[v], _mm256_castpd_si256(h));
                sums.low[v] = _mm256_add_epi64(sums.low[v], _mm256_castpd_si256(l));
            }
        }
        // SAFETY: 16 words.
        unsafe { store(m, &sums, w.len(), in_a_row(found.as_mut_ptr().add(first))) };
    }
    found
}

/// Where 16 words stand.
///
/// # Safety
/// The pointer leads to 16 words.
#[inline]
unsafe fn in_a_row(out: *mut u64) -> [*mut u64; VECTORS] {
    // SAFETY: 12 < 16.
    unsafe { [out, out.add(4), out.add(8), out.add(12)] }
}

/// `x c` modulo p, at most p in magnitude, for x below 2^51.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn times(x: __m256d, [c, quotient]: [f64; 2], p: __m256d) -> __m256d {
    let c = _mm256_set1_pd(c);
    let q = round(_mm256_mul_pd(x, _mm256_set1_pd(quotient)));
    let high = _mm256_mul_pd(x, c);
    let low = _mm256_fmsub_pd(x, c, high);
    _mm256_add_pd(_mm256_fnmadd_pd(q, p, high), low)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn round(x: __m256d) -> __m256d {
    _mm256_round_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x)
}

/// The sums of `terms` products modulo p, four to each place.
///
/// # Safety
/// AVX2 and FMA; every pointer leads to four words.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn store(m: &Modulus, sums: &Sums, terms: usize, out: [*mut u64; VECTORS]) {
    let constant = |x: f64| _mm256_set1_epi64x(x.to_bits().wrapping_mul(terms as u64) as i64);
    let (p, inverse, mask) = (_mm256_set1_pd(m.p), _mm256_set1_pd(m.inverse), _mm256_set1_epi64x(LOW));
    for (v, out) in out.into_iter().enumerate() {
        // the lower sum is signed: its carry is floor(l / 2^51), made from l + 2^63, which is not negative
        let low = _mm256_sub_epi64(sums.low[v], constant(MIDDLE));
        let raised = _mm256_xor_si256(low, _mm256_set1_epi64x(i64::MIN));
        let carry = _mm256_sub_epi64(
            _mm256_srli_epi64::<{ SPLIT as i32 }>(raised),
            _mm256_set1_epi64x(1 << (63 - SPLIT)),
        );
        let high = _mm256_add_epi64(_mm256_sub_epi64(sums.high[v], constant(HIGH)), carry);
        let top = to_reals(_mm256_srli_epi64::<{ SPLIT as i32 }>(high));
        let middle = to_reals(_mm256_and_si256(high, mask));
        let low = to_reals(_mm256_and_si256(low, mask));
        let total = _mm256_add_pd(
            _mm256_add_pd(times(top, m.powers[0], p), times(middle, m.powers[1], p)),
            _mm256_fnmadd_pd(round(_mm256_mul_pd(low, inverse)), p, low),
        );
        // at most 2.6 p: to half of p, then to words in [0, p)
        let r = _mm256_fnmadd_pd(round(_mm256_mul_pd(total, inverse)), p, total);
        let negative = _mm256_cmp_pd::<_CMP_LT_OQ>(r, _mm256_setzero_pd());
        let r = _mm256_add_pd(r, _mm256_and_pd(negative, p));
        let magic = _mm256_set1_pd(MAGIC);
        let words = _mm256_castpd_si256(_mm256_xor_pd(_mm256_add_pd(r, magic), magic));
        // SAFETY: four words.
        unsafe { _mm256_storeu_si256(out.cast(), words) };
    }
}

/// # Safety
/// AVX2 and FMA; all slices at least as long as `out`, whose length is a multiple of 16; words below 2^50.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn dot(m: &Modulus, x: &[&[u64]], w: &[&[u64]], out: &mut [u64]) {
    for j in (0..out.len()).step_by(COLUMNS) {
        let mut sums = zero();
        for (a, b) in x.iter().zip(w) {
            // SAFETY: j + 16 <= out.len() <= the lengths of a and b.
            unsafe { add_products(&mut sums, a.as_ptr().add(j), b.as_ptr().add(j)) };
        }
        // SAFETY: j + 16 <= out.len().
        unsafe { store(m, &sums, w.len(), in_a_row(out.as_mut_ptr().add(j))) };
    }
}

/// # Safety
/// AVX2 and FMA; factors have `run` times the length of `out`, a multiple of 32; words below 2^50.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn dot_folded(m: &Modulus, pairs: &[(&[u64], &[u64])], run: usize, out: &mut [u64]) {
    const ROW: usize = super::FOLD_COLUMNS;
    for (block, out) in out.chunks_exact_mut(ROW).enumerate() {
        for half in (0..ROW).step_by(COLUMNS) {
            let mut sums = zero();
            for (a, b) in pairs {
                for r in block * run..(block + 1) * run {
                    // SAFETY: r < run out.len() / 32, so 32 r + half + 16 is at most the lengths of a and b.
                    unsafe {
                        add_products(
                            &mut sums,
                            a.as_ptr().add(ROW * r + half),
                            b.as_ptr().add(ROW * r + half),
                        );
                    }
                }
            }
            // SAFETY: half + 16 <= 32.
            unsafe { store(m, &sums, pairs.len() * run, in_a_row(out.as_mut_ptr().add(half))) };
        }
    }
}
