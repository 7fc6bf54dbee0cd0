//! AVX-512 IFMA transforms for p < 2^50, N >= 64: eight butterflies at a time on 52-bit products, values
//! below 4p < 2^52 between levels, up to three levels in registers, and the last three levels on transposed 8 x 8 tiles.
#![allow(unsafe_code)]

use super::{level_split, Centre, Finish, Rounding};
use crate::AlignedWords;
use std::arch::x86_64::*;
use std::ops::Range;

/// Broadcast factors of the long levels, and per tile seven vectors of factors of the last three.
struct Direction {
    /// `[w, floor(w 2^52 / p)]` by block index, as in a plain decimation.
    long: Vec<[u64; 2]>,
    /// Per tile: w and quotient vectors, alternating, of the first block in eight, four and two elements (half lengths 4, 2, 1). Factors of neighbouring
    /// blocks are those times [`Self::turns`]: tables of all of them would be read from memory for every transform, and that takes longer than a product.
    tiles: AlignedWords,
    /// psi^(N/2), psi^(N/4) and psi^(3N/4): the factors of the second, third and fourth block over that of the first.
    turns: [[u64; 2]; 3],
}

pub(super) struct Tables {
    n: usize,
    p: u64,
    forward: Direction,
    inverse: Direction,
    /// 1/N.
    scale: [u64; 2],
}

/// Most levels of a pass.
const MOST_LEVELS: u32 = 3;
/// Words that go through all their short levels before the next ones do: they stay in the first-level cache.
const LOCAL: usize = 4096;
/// Words of tile factors in one tile.
const TILE_FACTORS: usize = 6 * 8;

fn quotient(w: u64, p: u64) -> u64 {
    ((u128::from(w) << 52) / u128::from(p)) as u64
}

impl Direction {
    fn new(powers: &[u64], p: u64) -> Self {
        let n = powers.len();
        let long = powers[..n / 8].iter().map(|&w| [w, quotient(w, p)]).collect();
        let mut tiles = AlignedWords::new(n / 64 * TILE_FACTORS);
        for (g, tile) in tiles.chunks_exact_mut(TILE_FACTORS).enumerate() {
            for (vectors, (divisor, per_block)) in tile.chunks_exact_mut(16).zip([(8, 1), (4, 2), (2, 4)]) {
                for b in 0..8 {
                    let w = powers[n / divisor + per_block * (8 * g + b)];
                    vectors[b] = w;
                    vectors[8 + b] = quotient(w, p);
                }
            }
        }
        let first = crate::prime::inv_mod(powers[n / 2], p);
        let turns = [1, 2, 3].map(|h| {
            let w = crate::prime::mul_mod(powers[n / 2 + h], first, p);
            [w, quotient(w, p)]
        });
        Self { long, tiles, turns }
    }
}

/// The modulus in vectors.
#[derive(Clone, Copy)]
struct Mod {
    p: __m512i,
    two_p: __m512i,
    /// 2^52 - p.
    minus_p: __m512i,
    low52: __m512i,
}

#[derive(Clone, Copy)]
struct Factor {
    w: __m512i,
    q: __m512i,
}

#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn modulus(p: u64) -> Mod {
    Mod {
        p: _mm512_set1_epi64(p as i64),
        two_p: _mm512_set1_epi64(2 * p as i64),
        minus_p: _mm512_set1_epi64((1 << 52) - p as i64),
        low52: _mm512_set1_epi64((1 << 52) - 1),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn broadcast(f: [u64; 2]) -> Factor {
    Factor { w: _mm512_set1_epi64(f[0] as i64), q: _mm512_set1_epi64(f[1] as i64) }
}

/// `x w mod p` below 2p, for x below 2^52.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn times(x: __m512i, f: Factor, m: Mod) -> __m512i {
    let zero = _mm512_setzero_si512();
    let q = _mm512_madd52hi_epu64(zero, x, f.q);
    let low = _mm512_madd52lo_epu64(zero, x, f.w);
    _mm512_and_si512(_mm512_madd52lo_epu64(low, q, m.minus_p), m.low52)
}

/// x below 2m to below m.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn fold(x: __m512i, m: __m512i) -> __m512i {
    _mm512_min_epu64(x, _mm512_sub_epi64(x, m))
}

/// Values below 2p to `[-p/2, p/2]`.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn centre(x: __m512i, half: __m512i, m: Mod) -> __m512i {
    let x = fold(x, m.p);
    _mm512_mask_sub_epi64(x, _mm512_cmpgt_epu64_mask(x, half), x, m.p)
}

/// Values below 4p to values below 4p.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn forward_butterfly(x: &mut __m512i, y: &mut __m512i, f: Factor, m: Mod) {
    let u = fold(*x, m.two_p);
    let v = times(*y, f, m);
    *x = _mm512_add_epi64(u, v);
    *y = _mm512_sub_epi64(_mm512_add_epi64(u, m.two_p), v);
}

/// Values below 2p to values below 2p.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn inverse_butterfly(x: &mut __m512i, y: &mut __m512i, f: Factor, m: Mod) {
    let difference = _mm512_sub_epi64(_mm512_add_epi64(*x, m.two_p), *y);
    *x = fold(_mm512_add_epi64(*x, *y), m.two_p);
    *y = times(difference, f, m);
}

/// [`forward_butterfly`] with the factor `f turn`.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn forward_turned(x: &mut __m512i, y: &mut __m512i, f: Factor, turn: Factor, m: Mod) {
    *y = times(*y, turn, m);
    forward_butterfly(x, y, f, m);
}

/// [`inverse_butterfly`] with the factor `f turn`.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn inverse_turned(x: &mut __m512i, y: &mut __m512i, f: Factor, turn: Factor, m: Mod) {
    inverse_butterfly(x, y, f, m);
    *y = times(*y, turn, m);
}

/// The 8 x 8 transpose.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn transpose(v: [__m512i; 8]) -> [__m512i; 8] {
    // Pairs of elements, then 128-bit lanes by two and by four.
    let mut a = v;
    for i in 0..4 {
        a[2 * i] = _mm512_unpacklo_epi64(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi64(v[2 * i], v[2 * i + 1]);
    }
    let mut b = a;
    for h in 0..2 {
        for i in 0..2 {
            let (x, y) = (a[4 * h + i], a[4 * h + 2 + i]);
            b[4 * h + i] = _mm512_shuffle_i64x2::<0b10_00_10_00>(x, y);
            b[4 * h + 2 + i] = _mm512_shuffle_i64x2::<0b11_01_11_01>(x, y);
        }
    }
    let mut c = b;
    for i in 0..4 {
        c[i] = _mm512_shuffle_i64x2::<0b10_00_10_00>(b[i], b[4 + i]);
        c[4 + i] = _mm512_shuffle_i64x2::<0b11_01_11_01>(b[i], b[4 + i]);
    }
    c
}

/// # Safety
/// `i + 8` elements behind `a` must be readable.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
unsafe fn load(a: *const u64, i: usize) -> __m512i {
    // SAFETY: by contract; the load needs no alignment.
    unsafe { _mm512_loadu_si512(a.add(i).cast()) }
}

/// # Safety
/// `i + 8` elements behind `a` must be writable.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
unsafe fn store(a: *mut u64, i: usize, v: __m512i) {
    // SAFETY: by contract; the store needs no alignment.
    unsafe { _mm512_storeu_si512(a.add(i).cast(), v) }
}

/// # Safety
/// `tile` must point to the [`TILE_FACTORS`] of a tile; `i` below 3.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
unsafe fn tile_factor(tile: *const u64, i: usize) -> Factor {
    // SAFETY: by contract.
    unsafe { Factor { w: load(tile, 16 * i), q: load(tile, 16 * i + 8) } }
}

/// `LEVELS` levels of some of the `blocks` of length `n / blocks`; R = 2^LEVELS. `read` gives values below 4p by index,
/// values below 4p go to `a`.
///
/// # Safety
/// `a` points to `n` elements, `some` are below `blocks`, `long` has the factors up to `blocks << LEVELS`, and `n / blocks / R >= 8`.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
unsafe fn forward_pass<const LEVELS: usize, const R: usize>(
    a: *mut u64,
    n: usize,
    (blocks, some): (usize, Range<usize>),
    long: &[[u64; 2]],
    m: Mod,
    read: impl Fn(usize) -> __m512i,
) {
    let length = n / blocks;
    let stride = length / R;
    for block in some {
        for j in (0..stride).step_by(8) {
            let at = |i: usize| block * length + i * stride + j;
            // SAFETY: `at(i) + 8 <= n`, and factor indices stay below `blocks << LEVELS`.
            unsafe {
                let mut v = [_mm512_setzero_si512(); R];
                for (i, x) in v.iter_mut().enumerate() {
                    *x = read(at(i));
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

/// Undoes [`forward_pass`] up to the factor R; values below 2p. `finish` gets every result with its index.
///
/// # Safety
/// As [`forward_pass`].
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
unsafe fn inverse_pass<const LEVELS: usize, const R: usize>(
    a: *const u64,
    n: usize,
    (blocks, some): (usize, Range<usize>),
    long: &[[u64; 2]],
    m: Mod,
    mut finish: impl FnMut(usize, __m512i),
) {
    let length = n / blocks;
    let stride = length / R;
    for block in some {
        for j in (0..stride).step_by(8) {
            let at = |i: usize| block * length + i * stride + j;
            // SAFETY: `at(i) + 8 <= n`, and factor indices stay below `blocks << LEVELS`.
            unsafe {
                let mut v = [_mm512_setzero_si512(); R];
                for (i, x) in v.iter_mut().enumerate() {
                    *x = load(a, at(i));
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

/// The last three levels of one tile; values below p, or 4p where not `CANONICAL`.
///
/// # Safety
/// `a` points to 64 elements, `factors` to the tile's factors.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
unsafe fn forward_tile<const CANONICAL: bool>(a: *mut u64, factors: *const u64, turns: [Factor; 3], m: Mod) {
    // SAFETY: by contract.
    unsafe {
        let mut v = [_mm512_setzero_si512(); 8];
        for (i, x) in v.iter_mut().enumerate() {
            *x = load(a, 8 * i);
        }
        v = transpose(v);
        let [mut v0, mut v1, mut v2, mut v3, mut v4, mut v5, mut v6, mut v7] = v;
        let f = tile_factor(factors, 0);
        forward_butterfly(&mut v0, &mut v4, f, m);
        forward_butterfly(&mut v1, &mut v5, f, m);
        forward_butterfly(&mut v2, &mut v6, f, m);
        forward_butterfly(&mut v3, &mut v7, f, m);
        let f = tile_factor(factors, 1);
        forward_butterfly(&mut v0, &mut v2, f, m);
        forward_butterfly(&mut v1, &mut v3, f, m);
        forward_turned(&mut v4, &mut v6, f, turns[0], m);
        forward_turned(&mut v5, &mut v7, f, turns[0], m);
        let f = tile_factor(factors, 2);
        forward_butterfly(&mut v0, &mut v1, f, m);
        forward_turned(&mut v2, &mut v3, f, turns[0], m);
        forward_turned(&mut v4, &mut v5, f, turns[1], m);
        forward_turned(&mut v6, &mut v7, f, turns[2], m);
        for (i, x) in [v0, v1, v2, v3, v4, v5, v6, v7].into_iter().enumerate() {
            store(a, 8 * i, if CANONICAL { fold(fold(x, m.two_p), m.p) } else { x });
        }
    }
}

/// Calls a pass with its number of levels, 1 to 3, as a constant.
macro_rules! with_levels {
    ($levels:expr, $pass:ident($($arg:expr),*)) => {
        match $levels {
            3 => $pass::<3, 8>($($arg),*),
            1 => $pass::<1, 2>($($arg),*),
            _ => $pass::<2, 4>($($arg),*),
        }
    };
}

impl Tables {
    pub(super) fn new(p: u64, forward: &[u64], inverse: &[u64]) -> Self {
        let n = forward.len();
        assert!(n >= 64 && n.is_power_of_two() && inverse.len() == n && p < 1 << 50, "checked by the caller");
        let scale = crate::prime::inv_mod(n as u64, p);
        Self {
            n,
            p,
            forward: Direction::new(forward, p),
            inverse: Direction::new(inverse, p),
            scale: [scale, quotient(scale, p)],
        }
    }

    /// The levels from so many blocks on, n / 8 at most.
    ///
    /// # Safety
    /// Needs AVX-512 F and IFMA.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) unsafe fn forward(&self, first: usize, a: &mut [u64]) {
        assert!(a.len() == self.n && first.is_power_of_two() && first <= self.n / 8);
        let (a, m) = (a.as_mut_ptr(), modulus(self.p));
        // SAFETY: `a` has n elements.
        unsafe { self.forward_levels::<true>(first, a, m, |i| load(a, i)) };
    }

    /// All levels, of values below 4p to values below 4p.
    ///
    /// # Safety
    /// Needs AVX-512 F and IFMA.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) unsafe fn forward_loose(&self, a: &mut [u64]) {
        assert_eq!(a.len(), self.n);
        let (a, m) = (a.as_mut_ptr(), modulus(self.p));
        // SAFETY: `a` has n elements.
        unsafe { self.forward_levels::<false>(1, a, m, |i| load(a, i)) };
    }

    /// Centres words and transforms them, to values below 4p.
    ///
    /// # Safety
    /// Needs AVX-512 F and IFMA.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) unsafe fn forward_words(&self, words: &[u64], centre: Centre, out: &mut [u64]) {
        assert!(words.len() == self.n && out.len() == self.n);
        let m = modulus(self.p);
        let add = _mm512_set1_epi64(centre.add as i64);
        let down = _mm512_set1_epi64(i64::from(centre.down));
        let shift = _mm512_set1_epi64(i64::from(centre.shift));
        // SAFETY: both have n elements.
        unsafe {
            self.forward_levels::<false>(1, out.as_mut_ptr(), m, |i| {
                let x = _mm512_srlv_epi64(_mm512_add_epi64(load(words.as_ptr(), i), add), down);
                // Within +-p, so adding p makes it a value below 2p.
                _mm512_add_epi64(_mm512_srav_epi64(_mm512_sllv_epi64(x, shift), shift), m.p)
            });
        }
    }

    /// The levels of a forward transform from `first` blocks on, from `read` to `a`; values below p, or 4p where not `CANONICAL`. From n / 8 blocks on
    /// it reads `a`.
    ///
    /// # Safety
    /// `a` points to n elements, and `first` is a power of two up to n / 8.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn forward_levels<const CANONICAL: bool>(
        &self,
        first: usize,
        a: *mut u64,
        m: Mod,
        read: impl Fn(usize) -> __m512i,
    ) {
        let (n, long) = (self.n, &self.forward.long);
        let mut blocks = first;
        let mut passes = level_split((n / first).trailing_zeros() - 3, MOST_LEVELS);
        let turns = self.forward.turns.map(|w| broadcast(w));
        // SAFETY: passes go down to blocks of eight, which `long` and `tiles` cover; groups are whole blocks and whole tiles.
        unsafe {
            while n / blocks > LOCAL {
                let Some(levels) = passes.next() else { break };
                if blocks == first {
                    with_levels!(levels, forward_pass(a, n, (blocks, 0..blocks), long, m, &read));
                } else {
                    with_levels!(levels, forward_pass(a, n, (blocks, 0..blocks), long, m, |i| load(a, i)));
                }
                blocks <<= levels;
            }
            let groups = (n / LOCAL).max(1);
            for group in 0..groups {
                let of = |all: usize| all / groups * group..all / groups * (group + 1);
                let mut blocks = blocks;
                for levels in passes.clone() {
                    let at = (blocks, of(blocks));
                    if blocks == first {
                        with_levels!(levels, forward_pass(a, n, at, long, m, &read));
                    } else {
                        with_levels!(levels, forward_pass(a, n, at, long, m, |i| load(a, i)));
                    }
                    blocks <<= levels;
                }
                for g in of(n / 64) {
                    let factors = self.forward.tiles.as_ptr().add(TILE_FACTORS * g);
                    forward_tile::<CANONICAL>(a.add(64 * g), factors, turns, m);
                }
            }
        }
    }

    /// The first three inverse levels of one tile, in registers; values below 2p.
    ///
    /// # Safety
    /// `factors` points to the tile's factors, `a` to 64 writable elements.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn inverse_tile(&self, v: [__m512i; 8], a: *mut u64, factors: *const u64, m: Mod) {
        let turns = self.inverse.turns.map(|w| broadcast(w));
        // SAFETY: by contract.
        unsafe {
            let [mut v0, mut v1, mut v2, mut v3, mut v4, mut v5, mut v6, mut v7] = v;
            let f = tile_factor(factors, 2);
            inverse_butterfly(&mut v0, &mut v1, f, m);
            inverse_turned(&mut v2, &mut v3, f, turns[0], m);
            inverse_turned(&mut v4, &mut v5, f, turns[1], m);
            inverse_turned(&mut v6, &mut v7, f, turns[2], m);
            let f = tile_factor(factors, 1);
            inverse_butterfly(&mut v0, &mut v2, f, m);
            inverse_butterfly(&mut v1, &mut v3, f, m);
            inverse_turned(&mut v4, &mut v6, f, turns[0], m);
            inverse_turned(&mut v5, &mut v7, f, turns[0], m);
            let f = tile_factor(factors, 0);
            inverse_butterfly(&mut v0, &mut v4, f, m);
            inverse_butterfly(&mut v1, &mut v5, f, m);
            inverse_butterfly(&mut v2, &mut v6, f, m);
            inverse_butterfly(&mut v3, &mut v7, f, m);
            for (i, x) in transpose([v0, v1, v2, v3, v4, v5, v6, v7]).into_iter().enumerate() {
                store(a, 8 * i, x);
            }
        }
    }

    /// All but the last pass of an inverse transform, from the tiles that `tile` gives by number; returns the levels left.
    ///
    /// # Safety
    /// `a` points to n elements.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn inverse_levels(&self, a: *mut u64, m: Mod, tile: impl Fn(usize) -> [__m512i; 8]) -> u32 {
        let (n, long) = (self.n, &self.inverse.long);
        let passes = level_split(n.trailing_zeros() - 3, MOST_LEVELS).rev();
        let groups = (n / LOCAL).max(1);
        // SAFETY: `a` has n elements, of which each tile has 64; `finish` writes where the pass has read; groups are whole blocks and whole tiles.
        unsafe {
            for group in 0..groups {
                let of = |all: usize| all / groups * group..all / groups * (group + 1);
                for g in of(n / 64) {
                    let factors = self.inverse.tiles.as_ptr().add(TILE_FACTORS * g);
                    self.inverse_tile(tile(g), a.add(64 * g), factors, m);
                }
                let mut blocks = n / 8;
                for levels in passes.clone() {
                    blocks >>= levels;
                    if blocks < groups || blocks == 1 {
                        break;
                    }
                    let at = (blocks, of(blocks));
                    with_levels!(levels, inverse_pass(a, n, at, long, m, |i, x| store(a, i, x)));
                }
            }
            let (mut blocks, mut last) = (n / 8, 0);
            for levels in passes {
                blocks >>= levels;
                last = levels;
                if 1 < blocks && blocks < groups {
                    let at = (blocks, 0..blocks);
                    with_levels!(levels, inverse_pass(a, n, at, long, m, |i, x| store(a, i, x)));
                }
            }
            last
        }
    }

    /// # Safety
    /// Needs AVX-512 F and IFMA.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) unsafe fn inverse(&self, a: &mut [u64]) {
        assert_eq!(a.len(), self.n);
        let a = a.as_mut_ptr();
        // SAFETY: `a` has n elements, and a tile is read before it is written.
        unsafe { self.inverse_scaled(a, self.scale, a) };
    }

    /// As [`super::Ntt::inverse_times`].
    ///
    /// # Safety
    /// Needs AVX-512 F and IFMA.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) unsafe fn inverse_times(&self, from: &[u64], w: u64, to: &mut [u64]) {
        assert!(from.len() == self.n && to.len() == self.n);
        let w = crate::prime::mul_mod(self.scale[0], w, self.p);
        // SAFETY: both have n elements.
        unsafe { self.inverse_scaled(from.as_ptr(), [w, quotient(w, self.p)], to.as_mut_ptr()) };
    }

    /// `N scale` times the coefficients of the slot values `from`, which may be `to`.
    ///
    /// # Safety
    /// Both point to n elements.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn inverse_scaled(&self, from: *const u64, scale: [u64; 2], to: *mut u64) {
        let (n, m) = (self.n, modulus(self.p));
        let scale = broadcast(scale);
        // SAFETY: as promised; each tile has 64 of the elements.
        unsafe {
            let last = self.inverse_levels(to, m, |g| {
                let mut v = [_mm512_setzero_si512(); 8];
                for (i, x) in v.iter_mut().enumerate() {
                    *x = load(from, 64 * g + 8 * i);
                }
                v
            });
            with_levels!(
                last,
                inverse_pass(to, n, (1, 0..1), &self.inverse.long, m, |i, x| {
                    store(to, i, fold(times(x, scale, m), m.p));
                })
            );
        }
    }

    /// All but the last pass of the inverse transform of the slotwise product of `a` with prepared factors, in
    /// `work`; returns the levels left.
    ///
    /// # Safety
    /// Needs AVX-512 F and IFMA.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn multiply_slots(&self, a: &[u64], factors: (&[u64], &[u64]), work: &mut [u64], m: Mod) -> u32 {
        for len in [a.len(), factors.0.len(), factors.1.len(), work.len()] {
            assert_eq!(len, self.n);
        }
        let (w, q, work) = (factors.0.as_ptr(), factors.1.as_ptr(), work.as_mut_ptr());
        // SAFETY: all four have n elements.
        unsafe {
            self.inverse_levels(work, m, |g| {
                let mut v = [_mm512_setzero_si512(); 8];
                for (i, x) in v.iter_mut().enumerate() {
                    let at = 64 * g + 8 * i;
                    *x = times(load(a.as_ptr(), at), Factor { w: load(w, at), q: load(q, at) }, m);
                }
                v
            })
        }
    }

    /// As [`super::Ntt::multiply_factors`].
    ///
    /// # Safety
    /// Needs AVX-512 F and IFMA.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) unsafe fn multiply(
        &self,
        a: &[u64],
        factors: (&[u64], &[u64]),
        work: &mut [u64],
        finish: Finish,
        out: &mut [u64],
    ) {
        let (n, m) = (self.n, modulus(self.p));
        assert_eq!(out.len(), n);
        // SAFETY: `multiply_slots` checks the other lengths.
        unsafe {
            let last = self.multiply_slots(a, factors, work, m);
            let (work, out, long) = (work.as_ptr(), out.as_mut_ptr(), &self.inverse.long);
            let half = _mm512_set1_epi64((self.p / 2) as i64);
            let shift = _mm512_set1_epi64(i64::from(finish.shift));
            let mask = _mm512_set1_epi64(finish.mask as i64);
            let scaled = |x| _mm512_sllv_epi64(centre(x, half, m), shift);
            if finish.subtract {
                with_levels!(
                    last,
                    inverse_pass(work, n, (1, 0..1), long, m, |i, x| {
                        store(out, i, _mm512_and_si512(_mm512_sub_epi64(load(out, i), scaled(x)), mask));
                    })
                );
            } else {
                with_levels!(
                    last,
                    inverse_pass(work, n, (1, 0..1), long, m, |i, x| {
                        store(out, i, _mm512_and_si512(_mm512_add_epi64(load(out, i), scaled(x)), mask));
                    })
                );
            }
        }
    }

    /// As [`super::Ntt::multiply_round`].
    ///
    /// # Safety
    /// Needs AVX-512 F and IFMA.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) unsafe fn multiply_round(
        &self,
        a: &[u64],
        factors: (&[u64], &[u64]),
        work: &mut [u64],
        (base, rounding): (&[u64], Rounding),
        out: &mut [i64],
    ) -> u64 {
        let (n, m) = (self.n, modulus(self.p));
        assert!(base.len() == n && out.len() == n);
        let vector = |v: u32| _mm512_set1_epi64(i64::from(v));
        let (raise, unused, d) = (vector(rounding.raise), vector(64 - rounding.k), vector(rounding.d));
        let half_unit = _mm512_set1_epi64((1i64 << rounding.d) >> 1);
        let mut largest = _mm512_setzero_si512();
        // SAFETY: `multiply_slots` checks the other lengths.
        unsafe {
            let last = self.multiply_slots(a, factors, work, m);
            let (work, base, out) = (work.as_ptr(), base.as_ptr(), out.as_mut_ptr().cast());
            let half = _mm512_set1_epi64((self.p / 2) as i64);
            with_levels!(
                last,
                inverse_pass(work, n, (1, 0..1), &self.inverse.long, m, |i, x| {
                    let sum = _mm512_add_epi64(_mm512_sllv_epi64(load(base, i), raise), centre(x, half, m));
                    let phase = _mm512_srav_epi64(_mm512_sllv_epi64(sum, unused), unused);
                    let rounded = _mm512_srav_epi64(_mm512_add_epi64(phase, half_unit), d);
                    store(out, i, rounded);
                    let noise = _mm512_sub_epi64(phase, _mm512_sllv_epi64(rounded, d));
                    largest = _mm512_max_epu64(largest, _mm512_abs_epi64(noise));
                })
            );
        }
        _mm512_reduce_max_epu64(largest)
    }
}
