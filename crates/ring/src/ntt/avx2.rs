//! AVX2 transforms for p < 2^50, N >= 64, in double precision: with fused multiply-add a product `x w` splits
//! exactly into `h + l`, and `h - round(x w/p) p + l` is exact too, as long as it stays below 2^53.
//!
//! Values are signed and live as doubles between passes. In units of p: a reduced value is at most 0.51; a product
//! of `|x| <= b` by a factor `|w| <= 1/2` at most `0.5 + b/8`. A pass has at most three levels and starts from reduced
//! values, so nothing passes 4.1 forward (0.51 + 3 steps of at most 0.5 + b/8) or 6 backward (0.75 doubled three
//! times, the product with prepared factors being at most 0.75), all below 8 p < 2^53.
#![allow(unsafe_code)]

use super::{level_split, prepare, Finish};
use crate::AlignedWords;
use std::arch::x86_64::*;

/// Most levels of a pass.
const MOST_LEVELS: u32 = 3;
/// Doubles of tile factors in one tile: of four half-blocks, three factors of four lanes, twice.
const TILE_FACTORS: usize = 96;

struct Direction {
    /// `[w centred, w / p]` of the levels down to half length 4, by block index.
    long: Vec<[f64; 2]>,
    /// Per tile and half-block: vectors w, w / p of half length 2 (one), 1 (two), as bits.
    tiles: AlignedWords,
}

pub(super) struct Tables {
    n: usize,
    p: u64,
    forward: Direction,
    inverse: Direction,
    scale: [f64; 2],
}

impl Direction {
    fn new(powers: &[u64], p: u64) -> Self {
        let n = powers.len();
        let long = powers[..n / 4].iter().map(|&w| prepare(w, p)).collect();
        let mut tiles = AlignedWords::new(n / 64 * TILE_FACTORS);
        for (i, part) in tiles.chunks_exact_mut(TILE_FACTORS / 4).enumerate() {
            let (tile, quad, h) = (i / 4, i / 2 % 2, i % 2);
            let levels = [(4, 2, h), (2, 4, 2 * h), (2, 4, 2 * h + 1)];
            for (vectors, (divisor, per_block, offset)) in part.chunks_exact_mut(8).zip(levels) {
                for lane in 0..4 {
                    let block = 8 * tile + 4 * quad + lane;
                    let [w, q] = prepare(powers[n / divisor + per_block * block + offset], p);
                    vectors[lane] = w.to_bits();
                    vectors[4 + lane] = q.to_bits();
                }
            }
        }
        Self { long, tiles }
    }
}

#[derive(Clone, Copy)]
struct Mod {
    p: __m256d,
    inverse: __m256d,
}

#[derive(Clone, Copy)]
struct Factor {
    w: __m256d,
    q: __m256d,
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn modulus(p: u64) -> Mod {
    Mod { p: _mm256_set1_pd(p as f64), inverse: _mm256_set1_pd(1.0 / p as f64) }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn broadcast(f: [f64; 2]) -> Factor {
    Factor { w: _mm256_set1_pd(f[0]), q: _mm256_set1_pd(f[1]) }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn round(x: __m256d) -> __m256d {
    _mm256_round_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x)
}

/// `x w` modulo p, signed.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn times(x: __m256d, f: Factor, m: Mod) -> __m256d {
    let quotient = round(_mm256_mul_pd(x, f.q));
    let high = _mm256_mul_pd(x, f.w);
    let low = _mm256_fmsub_pd(x, f.w, high);
    _mm256_add_pd(_mm256_fnmadd_pd(quotient, m.p, high), low)
}

/// To at most 0.51 p.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn reduce(x: __m256d, m: Mod) -> __m256d {
    _mm256_fnmadd_pd(round(_mm256_mul_pd(x, m.inverse)), m.p, x)
}

/// Integers below 2^52 to doubles.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn from_integers(x: __m256i) -> __m256d {
    let magic = _mm256_set1_pd(4_503_599_627_370_496.0);
    _mm256_sub_pd(_mm256_or_pd(_mm256_castsi256_pd(x), magic), magic)
}

/// Doubles of at most 4 p to canonical integers below p.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn to_canonical(x: __m256d, m: Mod) -> __m256i {
    let x = reduce(x, m);
    let negative = _mm256_cmp_pd::<_CMP_LT_OQ>(x, _mm256_setzero_pd());
    let x = _mm256_add_pd(x, _mm256_and_pd(negative, m.p));
    let magic = _mm256_set1_pd(4_503_599_627_370_496.0);
    _mm256_castpd_si256(_mm256_xor_pd(_mm256_add_pd(x, magic), magic))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn forward_butterfly(x: &mut __m256d, y: &mut __m256d, f: Factor, m: Mod) {
    let v = times(*y, f, m);
    *y = _mm256_sub_pd(*x, v);
    *x = _mm256_add_pd(*x, v);
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn inverse_butterfly(x: &mut __m256d, y: &mut __m256d, f: Factor, m: Mod) {
    let difference = _mm256_sub_pd(*x, *y);
    *x = _mm256_add_pd(*x, *y);
    *y = times(difference, f, m);
}

/// `x + w y mod p` as integers below p, halved or not.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn mirrored<const HALVE: bool>(x: __m256d, y: __m256d, f: Factor, m: Mod) -> __m256i {
    let v = to_canonical(_mm256_add_pd(x, times(y, f, m)), m);
    if !HALVE {
        return v;
    }
    let magic = _mm256_set1_pd(4_503_599_627_370_496.0);
    let p = _mm256_castpd_si256(_mm256_xor_pd(_mm256_add_pd(m.p, magic), magic));
    let odd = _mm256_sub_epi64(_mm256_setzero_si256(), _mm256_and_si256(v, _mm256_set1_epi64x(1)));
    _mm256_srli_epi64::<1>(_mm256_add_epi64(v, _mm256_and_si256(odd, p)))
}

/// `a_t <- a_t + w a_(N-t) mod p` from t = 1 on, halved or not, in both mirrored halves; returns the first t that is left: at most N/2.
///
/// # Safety
/// AVX2 and FMA; p below 2^50, words below p.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn mirror<const HALVE: bool>(a: &mut [u64], w: u64, p: u64) -> usize {
    let (n, m, f) = (a.len(), modulus(p), broadcast(prepare(w, p)));
    let a = a.as_mut_ptr();
    let mut t = 1;
    while t + 4 <= n / 2 {
        // SAFETY: t + 4 <= n/2 words lie behind t, and as many before n - t + 1.
        unsafe {
            let low = from_integers(load_integers(a, t));
            let high = _mm256_permute4x64_pd::<0x1B>(from_integers(load_integers(a, n - t - 3)));
            let x = mirrored::<HALVE>(low, high, f, m);
            let y = mirrored::<HALVE>(high, low, f, m);
            store_integers(a, t, x);
            store_integers(a, n - t - 3, _mm256_permute4x64_epi64::<0x1B>(y));
        }
        t += 4;
    }
    t
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn transpose(v: [__m256d; 4]) -> [__m256d; 4] {
    let a = _mm256_unpacklo_pd(v[0], v[1]);
    let b = _mm256_unpackhi_pd(v[0], v[1]);
    let c = _mm256_unpacklo_pd(v[2], v[3]);
    let d = _mm256_unpackhi_pd(v[2], v[3]);
    [
        _mm256_permute2f128_pd::<0x20>(a, c),
        _mm256_permute2f128_pd::<0x20>(b, d),
        _mm256_permute2f128_pd::<0x31>(a, c),
        _mm256_permute2f128_pd::<0x31>(b, d),
    ]
}

/// # Safety
/// `i + 4` elements behind `a` must be readable.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn load(a: *const u64, i: usize) -> __m256d {
    // SAFETY: by contract; the load needs no alignment.
    unsafe { _mm256_loadu_pd(a.add(i).cast()) }
}

/// # Safety
/// `i + 4` elements behind `a` must be readable.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn load_integers(a: *const u64, i: usize) -> __m256i {
    // SAFETY: by contract; the load needs no alignment.
    unsafe { _mm256_loadu_si256(a.add(i).cast()) }
}

/// # Safety
/// `i + 4` elements behind `a` must be writable.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn store(a: *mut u64, i: usize, v: __m256d) {
    // SAFETY: by contract; the store needs no alignment.
    unsafe { _mm256_storeu_pd(a.add(i).cast(), v) }
}

/// # Safety
/// `i + 4` elements behind `a` must be writable.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn store_integers(a: *mut u64, i: usize, v: __m256i) {
    // SAFETY: by contract; the store needs no alignment.
    unsafe { _mm256_storeu_si256(a.add(i).cast(), v) }
}

/// # Safety
/// `part` points to the factors of a half-block; `i` below 3.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn part_factor(part: *const u64, i: usize) -> Factor {
    // SAFETY: by contract.
    unsafe { Factor { w: load(part, 8 * i), q: load(part, 8 * i + 4) } }
}

/// `LEVELS` levels of all blocks of length `n / blocks`; R = 2^LEVELS. The first pass (`blocks == 1`) reads
/// integers.
///
/// # Safety
/// `a` points to `n` elements, integers or doubles, `long` has the factors up to `blocks << LEVELS`, and `n / blocks / R >= 4`.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn forward_pass<const LEVELS: usize, const R: usize>(
    a: *mut u64,
    n: usize,
    blocks: usize,
    integers: bool,
    long: &[[f64; 2]],
    m: Mod,
) {
    let length = n / blocks;
    let stride = length / R;
    for block in 0..blocks {
        for j in (0..stride).step_by(4) {
            let at = |i: usize| block * length + i * stride + j;
            // SAFETY: `at(i) + 4 <= n`, and factor indices stay below `blocks << LEVELS`.
            unsafe {
                let mut v = [_mm256_setzero_pd(); R];
                for (i, x) in v.iter_mut().enumerate() {
                    let read = if integers { from_integers(load_integers(a, at(i))) } else { load(a, at(i)) };
                    *x = reduce(read, m);
                }
                for level in 0..LEVELS {
                    let half = R >> (level + 1);
                    for sub in 0..1 << level {
                        let f = broadcast(*long.get_unchecked(((blocks + block) << level) + sub));
                        for h in 0..half {
                            let (mut x, mut y) = (v[2 * half * sub + h], v[2 * half * sub + half + h]);
                            forward_butterfly(&mut x, &mut y, f, m);
                            v[2 * half * sub + h] = x;
                            v[2 * half * sub + half + h] = y;
                        }
                    }
                }
                for (i, x) in v.into_iter().enumerate() {
                    store(a, at(i), x);
                }
            }
        }
    }
}

/// Undoes [`forward_pass`] up to the factor R, doubles to doubles; `finish` gets every result with its index.
///
/// # Safety
/// As [`forward_pass`].
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn inverse_pass<const LEVELS: usize, const R: usize>(
    a: *const u64,
    n: usize,
    blocks: usize,
    long: &[[f64; 2]],
    m: Mod,
    mut finish: impl FnMut(usize, __m256d),
) {
    let length = n / blocks;
    let stride = length / R;
    for block in 0..blocks {
        for j in (0..stride).step_by(4) {
            let at = |i: usize| block * length + i * stride + j;
            // SAFETY: `at(i) + 4 <= n`, and factor indices stay below `blocks << LEVELS`.
            unsafe {
                let mut v = [_mm256_setzero_pd(); R];
                for (i, x) in v.iter_mut().enumerate() {
                    *x = reduce(load(a, at(i)), m);
                }
                for level in (0..LEVELS).rev() {
                    let half = R >> (level + 1);
                    for sub in 0..1 << level {
                        let f = broadcast(*long.get_unchecked(((blocks + block) << level) + sub));
                        for h in 0..half {
                            let (mut x, mut y) = (v[2 * half * sub + h], v[2 * half * sub + half + h]);
                            inverse_butterfly(&mut x, &mut y, f, m);
                            v[2 * half * sub + h] = x;
                            v[2 * half * sub + half + h] = y;
                        }
                    }
                }
                for (i, x) in v.into_iter().enumerate() {
                    finish(at(i), x);
                }
            }
        }
    }
}

/// Calls a pass with its number of levels, 1 to 3, as a constant.
macro_rules! with_levels {
    ($levels:expr, $pass:ident($($arg:expr),*)) => {
        match $levels {
            3 => $pass::<3, 8>($($arg),*),
            2 => $pass::<2, 4>($($arg),*),
            _ => $pass::<1, 2>($($arg),*),
        }
    };
}

impl Tables {
    pub(super) fn new(p: u64, forward: &[u64], inverse: &[u64]) -> Self {
        let n = forward.len();
        assert!(n >= 64 && n.is_power_of_two() && inverse.len() == n && p < 1 << 50, "checked by the caller");
        let scale = prepare(crate::prime::inv_mod(n as u64, p), p);
        Self { n, p, forward: Direction::new(forward, p), inverse: Direction::new(inverse, p), scale }
    }

    /// The levels from so many blocks on, n / 8 at most.
    ///
    /// # Safety
    /// Needs AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn forward(&self, first: usize, a: &mut [u64]) {
        assert!(a.len() == self.n && first.is_power_of_two() && first <= self.n / 8);
        let (n, m) = (self.n, modulus(self.p));
        let mut blocks = first;
        let a = a.as_mut_ptr();
        // SAFETY: `a` has n elements; passes go down to blocks of eight, which `long` and `tiles` cover.
        unsafe {
            // Shortest first: the first pass reads the most distant words, which share few places of the first-level cache.
            for levels in level_split((n / first).trailing_zeros() - 3, MOST_LEVELS).rev() {
                with_levels!(levels, forward_pass(a, n, blocks, blocks == first, &self.forward.long, m));
                blocks <<= levels;
            }
            if blocks == first {
                for i in (0..n).step_by(4) {
                    store(a, i, from_integers(load_integers(a, i)));
                }
            }
            for g in 0..n / 64 {
                self.forward_tile(a, g, m);
            }
        }
    }

    /// The last three levels of tile `g`, doubles to canonical integers.
    ///
    /// # Safety
    /// `a` points to n elements, `g < n / 64`.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn forward_tile(&self, a: *mut u64, g: usize, m: Mod) {
        // SAFETY: tile g has the elements 64 g .. 64 g + 64, and four parts of factors.
        unsafe {
            let a = a.add(64 * g);
            let mut v = [_mm256_setzero_pd(); 16];
            for b in 0..8 {
                let (mut x, mut y) = (reduce(load(a, 8 * b), m), reduce(load(a, 8 * b + 4), m));
                let f = broadcast(self.forward.long[self.n / 8 + 8 * g + b]);
                forward_butterfly(&mut x, &mut y, f, m);
                v[2 * b] = x;
                v[2 * b + 1] = y;
            }
            for part in 0..4 {
                let (quad, h) = (part / 2, part % 2);
                let factors = self.forward.tiles.as_ptr().add(TILE_FACTORS * g + TILE_FACTORS / 4 * part);
                let row = |i: usize| v[2 * (4 * quad + i) + h];
                let [mut t0, mut t1, mut t2, mut t3] = transpose([row(0), row(1), row(2), row(3)]);
                let f = part_factor(factors, 0);
                forward_butterfly(&mut t0, &mut t2, f, m);
                forward_butterfly(&mut t1, &mut t3, f, m);
                forward_butterfly(&mut t0, &mut t1, part_factor(factors, 1), m);
                forward_butterfly(&mut t2, &mut t3, part_factor(factors, 2), m);
                for (s, t) in [t0, t1, t2, t3].into_iter().enumerate() {
                    store_integers(a, 8 * (4 * h + s) + 4 * quad, to_canonical(t, m));
                }
            }
        }
    }

    /// The first three inverse levels of tile `g` of `a`, whose vectors `read(index in tile)` gives, to doubles.
    ///
    /// # Safety
    /// `a` points to n elements, `g < n / 64`.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn inverse_tile(&self, a: *mut u64, g: usize, m: Mod, read: impl Fn(usize) -> __m256d) {
        // SAFETY: tile g has the elements 64 g .. 64 g + 64, and four parts of factors.
        unsafe {
            let a = a.add(64 * g);
            let mut v = [_mm256_setzero_pd(); 16];
            for part in 0..4 {
                let (quad, h) = (part / 2, part % 2);
                let factors = self.inverse.tiles.as_ptr().add(TILE_FACTORS * g + TILE_FACTORS / 4 * part);
                let slot = |s: usize| read(8 * (4 * h + s) + 4 * quad);
                let [mut t0, mut t1, mut t2, mut t3] = [slot(0), slot(1), slot(2), slot(3)];
                inverse_butterfly(&mut t0, &mut t1, part_factor(factors, 1), m);
                inverse_butterfly(&mut t2, &mut t3, part_factor(factors, 2), m);
                let f = part_factor(factors, 0);
                inverse_butterfly(&mut t0, &mut t2, f, m);
                inverse_butterfly(&mut t1, &mut t3, f, m);
                for (i, row) in transpose([t0, t1, t2, t3]).into_iter().enumerate() {
                    v[2 * (4 * quad + i) + h] = row;
                }
            }
            for b in 0..8 {
                let (mut x, mut y) = (v[2 * b], v[2 * b + 1]);
                let f = broadcast(self.inverse.long[self.n / 8 + 8 * g + b]);
                inverse_butterfly(&mut x, &mut y, f, m);
                store(a, 8 * b, x);
                store(a, 8 * b + 4, y);
            }
        }
    }

    /// Everything between the tiles and the last pass of an inverse transform; returns the levels left.
    ///
    /// # Safety
    /// `a` points to n elements.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn inverse_middle(&self, a: *mut u64, m: Mod) -> u32 {
        let n = self.n;
        let mut blocks = n / 8;
        let mut last = 0;
        for levels in level_split(n.trailing_zeros() - 3, MOST_LEVELS) {
            blocks >>= levels;
            last = levels;
            if blocks > 1 {
                // SAFETY: `a` has n elements, `finish` writes where the pass has read.
                unsafe {
                    with_levels!(
                        levels,
                        inverse_pass(a, n, blocks, &self.inverse.long, m, |i, x| store(a, i, x))
                    );
                }
            }
        }
        last
    }

    /// # Safety
    /// Needs AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn inverse(&self, a: &mut [u64]) {
        assert_eq!(a.len(), self.n);
        let (n, m) = (self.n, modulus(self.p));
        let a = a.as_mut_ptr();
        let scale = broadcast(self.scale);
        // SAFETY: `a` has n elements, of which each tile has 64; a tile is read before it is written.
        unsafe {
            for g in 0..n / 64 {
                let tile = a.add(64 * g);
                self.inverse_tile(a, g, m, |i| reduce(from_integers(load_integers(tile, i)), m));
            }
            let last = self.inverse_middle(a, m);
            with_levels!(
                last,
                inverse_pass(a, n, 1, &self.inverse.long, m, |i, x| {
                    store_integers(a, i, to_canonical(times(x, scale, m), m));
                })
            );
        }
    }

    /// As [`super::Ntt::multiply_factors`].
    ///
    /// # Safety
    /// Needs AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn multiply(
        &self,
        a: &[u64],
        factors: (&[u64], &[u64]),
        work: &mut [u64],
        finish: Finish,
        out: &mut [u64],
    ) {
        let (n, m) = (self.n, modulus(self.p));
        for len in [a.len(), factors.0.len(), factors.1.len(), work.len(), out.len()] {
            assert_eq!(len, n);
        }
        let (w, q, work, out) = (factors.0.as_ptr(), factors.1.as_ptr(), work.as_mut_ptr(), out.as_mut_ptr());
        // SAFETY: all five have n elements.
        unsafe {
            for g in 0..n / 64 {
                self.inverse_tile(work, g, m, |i| {
                    let at = 64 * g + i;
                    let x = from_integers(load_integers(a.as_ptr(), at));
                    times(x, Factor { w: load(w, at), q: load(q, at) }, m)
                });
            }
            let last = self.inverse_middle(work, m);
            let half = _mm256_set1_epi64x((self.p / 2) as i64);
            let p = _mm256_set1_epi64x(self.p as i64);
            let shift = _mm_cvtsi64_si128(i64::from(finish.shift));
            let mask = _mm256_set1_epi64x(finish.mask as i64);
            let sign = _mm256_set1_epi64x(-i64::from(finish.subtract));
            with_levels!(
                last,
                inverse_pass(work, n, 1, &self.inverse.long, m, |i, x| {
                    let x = to_canonical(x, m);
                    let x = _mm256_sub_epi64(x, _mm256_and_si256(_mm256_cmpgt_epi64(x, half), p));
                    let x = _mm256_sll_epi64(x, shift);
                    // Two's complement negation where subtracting.
                    let x = _mm256_sub_epi64(_mm256_xor_si256(x, sign), sign);
                    let sum = _mm256_add_epi64(load_integers(out, i), x);
                    store_integers(out, i, _mm256_and_si256(sum, mask));
                })
            );
        }
    }
}
