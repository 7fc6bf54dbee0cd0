//! AVX2, with AES on 128-bit registers (`aesni`) or on 256-bit ones (`vaes`): the same kernels, written once. Everything here is
//! reached only after the features have been detected.
#![allow(unsafe_code)]
// Iterator adapters such as `zip` stay calls in functions with target features of their own: loops here count.
#![allow(clippy::needless_range_loop)]

use std::arch::x86_64::*;

use super::x86::{add_picks, expand, fetch, from_u128, groups, to_u128, RoundKeys};
use super::{check_code, lanes, spread};
use crate::block::{Block, CLEAR};
use crate::select::equal_mask;

#[inline]
#[target_feature(enable = "avx2")]
fn broadcast(x: Block) -> __m256i {
    _mm256_broadcastsi128_si256(from_u128(x))
}

/// s(hi|lo) = (hi ^ lo | hi) of both blocks.
#[inline]
#[target_feature(enable = "avx2")]
fn sigma(x: __m256i) -> __m256i {
    let high = _mm256_set_epi64x(-1, 0, -1, 0);
    _mm256_xor_si256(_mm256_shuffle_epi32::<0x4e>(x), _mm256_and_si256(x, high))
}

#[inline]
#[target_feature(enable = "avx2,aes")]
fn encrypt_aesni<const N: usize>(k: &RoundKeys, s: [__m256i; N]) -> [__m256i; N] {
    let (mut low, mut high) = ([_mm_setzero_si128(); N], [_mm_setzero_si128(); N]);
    let key = from_u128(k[0]);
    for i in 0..N {
        low[i] = _mm_xor_si128(_mm256_castsi256_si128(s[i]), key);
        high[i] = _mm_xor_si128(_mm256_extracti128_si256::<1>(s[i]), key);
    }
    for &key in &k[1..10] {
        let key = from_u128(key);
        for i in 0..N {
            low[i] = _mm_aesenc_si128(low[i], key);
            high[i] = _mm_aesenc_si128(high[i], key);
        }
    }
    let key = from_u128(k[10]);
    let mut out = s;
    for i in 0..N {
        let (l, h) = (_mm_aesenclast_si128(low[i], key), _mm_aesenclast_si128(high[i], key));
        out[i] = _mm256_set_m128i(h, l);
    }
    out
}

#[inline]
#[target_feature(enable = "avx2,vaes")]
fn encrypt_vaes<const N: usize>(k: &RoundKeys, mut s: [__m256i; N]) -> [__m256i; N] {
    let key = broadcast(k[0]);
    for v in &mut s {
        *v = _mm256_xor_si256(*v, key);
    }
    for &key in &k[1..10] {
        let key = broadcast(key);
        for v in &mut s {
            *v = _mm256_aesenc_epi128(*v, key);
        }
    }
    let key = broadcast(k[10]);
    for v in &mut s {
        *v = _mm256_aesenclast_epi128(*v, key);
    }
    s
}

/// See `FixedKey::seal`.
#[target_feature(enable = "avx2")]
fn seal_inner(nodes: &mut [Block], at: u64, value: Block) {
    let (clear, spread, wanted) = (broadcast(CLEAR), broadcast(value), _mm256_set1_epi64x(at as i64));
    let mut places = _mm256_set_epi64x(1, 1, 0, 0);
    let (pairs, last) = nodes.as_chunks_mut::<2>();
    for i in 0..pairs.len() {
        let p = pairs[i].as_mut_ptr().cast();
        // SAFETY: two blocks.
        let x = unsafe { _mm256_loadu_si256(p) };
        let here = _mm256_and_si256(_mm256_cmpeq_epi64(places, wanted), spread);
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(p, _mm256_xor_si256(_mm256_and_si256(x, clear), here)) };
        places = _mm256_add_epi64(places, _mm256_set1_epi64x(2));
    }
    if let [last] = last {
        *last = *last & CLEAR ^ value & equal_mask(2 * pairs.len() as u64, at);
    }
}

/// Of 16 blocks, the bytes 0 and 8 (`TOP` false) or 7 and 15 (`TOP` true): the lower of them, block by block, then the upper.
#[inline]
#[target_feature(enable = "avx2")]
fn column<const TOP: bool>(x: [__m256i; 8]) -> __m256i {
    let mut words = [_mm256_setzero_si256(); 4];
    for i in 0..4 {
        let [a, b] = [_mm256_castsi256_ps(x[2 * i]), _mm256_castsi256_ps(x[2 * i + 1])];
        words[i] = if TOP {
            _mm256_srli_epi32::<24>(_mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(a, b)))
        } else {
            let low = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(a, b));
            _mm256_and_si256(low, _mm256_set1_epi32(0xff))
        };
    }
    let halves = [_mm256_packus_epi32(words[0], words[1]), _mm256_packus_epi32(words[2], words[3])];
    // Even blocks are in the lower lane, odd ones in the upper, each as (lower byte, upper byte).
    let bytes = _mm256_packus_epi16(halves[0], halves[1]);
    let split = broadcast(u128::from_le_bytes([0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15]));
    let join = broadcast(u128::from_le_bytes([0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]));
    let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_shuffle_epi8(bytes, split));
    _mm256_shuffle_epi8(bytes, join)
}

/// Transposes 64x64 bits in place where the machine has AVX2; says whether it did.
pub(super) fn transpose64(m: &mut [u64; 64]) -> bool {
    if !is_x86_feature_detected!("avx2") {
        return false;
    }
    // SAFETY: the feature was detected.
    unsafe { transpose64_inner(m) };
    true
}

/// Bytes are moved by a transpose of 16-bit words, bits by masks of the bytes' top bits.
#[target_feature(enable = "avx2")]
fn transpose64_inner(m: &mut [u64; 64]) {
    let rows = *m;
    let two = |r: usize| from_u128(Block::from(rows[r]) | Block::from(rows[r + 1]) << 64);
    let pair = broadcast(u128::from_le_bytes([0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]));
    for half in 0..2 {
        // Register i: rows 2i and 2i+1 in the lower lane, 16 further in the upper, byte b of both rows in word b.
        let mut x = [_mm256_setzero_si256(); 8];
        for (i, v) in x.iter_mut().enumerate() {
            let at = 32 * half + 2 * i;
            *v = _mm256_shuffle_epi8(_mm256_set_m128i(two(at + 16), two(at)), pair);
        }
        for (b, v) in transpose_words(x).iter().enumerate() {
            let mut v = *v;
            for bit in (0..8).rev() {
                let bits = u64::from(_mm256_movemask_epi8(v) as u32);
                let word = &mut m[8 * b + bit];
                *word = if half == 0 { bits } else { *word | bits << 32 };
                v = _mm256_add_epi8(v, v);
            }
        }
    }
}

/// Transposes the 8x8 matrices of 16-bit words that the registers' lanes are the rows of.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_words(x: [__m256i; 8]) -> [__m256i; 8] {
    let (mut a, mut b, mut c) = (x, x, x);
    for i in 0..4 {
        a[i] = _mm256_unpacklo_epi16(x[2 * i], x[2 * i + 1]);
        a[4 + i] = _mm256_unpackhi_epi16(x[2 * i], x[2 * i + 1]);
    }
    // a[i]: words 0..4 of rows 2i and 2i+1; a[4+i]: words 4..8.
    for i in 0..4 {
        b[2 * i] = _mm256_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm256_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
    }
    // b[4h + 2r + q]: words 4h + 2q and 4h + 2q + 1 of rows 4r..4r+4.
    for h in 0..2 {
        for q in 0..2 {
            let (top, bottom) = (b[4 * h + q], b[4 * h + 2 + q]);
            c[4 * h + 2 * q] = _mm256_unpacklo_epi64(top, bottom);
            c[4 * h + 2 * q + 1] = _mm256_unpackhi_epi64(top, bottom);
        }
    }
    c
}

/// The kernels with `$encrypt` on `$n` registers at a time.
macro_rules! kernels {
    ($(#[$doc:meta])* $module:ident, $n:literal, $encrypt:ident, $features:tt, $detected:expr) => {
        $(#[$doc])*
        pub(super) mod $module {
            use super::*;

            /// Registers and blocks worked on at a time.
            const N: usize = $n;
            const BLOCKS: usize = 2 * N;

            /// AES-128 round keys; holding one proves that the features are there.
            #[derive(Clone)]
            pub(in crate::simd) struct Key(RoundKeys);

            impl Key {
                /// None where the machine lacks a feature.
                pub(in crate::simd) fn new(key: Block) -> Option<Self> {
                    // SAFETY: the features were detected.
                    $detected.then(|| Self(unsafe { expand(key) }))
                }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn load(x: &[Block; BLOCKS]) -> [__m256i; N] {
                let mut out = [_mm256_setzero_si256(); N];
                for i in 0..N {
                    // SAFETY: two blocks of the array.
                    out[i] = unsafe { _mm256_loadu_si256(x.as_ptr().add(2 * i).cast()) };
                }
                out
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn store(out: &mut [Block; BLOCKS], x: [__m256i; N]) {
                for i in 0..N {
                    // SAFETY: two blocks of the array.
                    unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(2 * i).cast(), x[i]) };
                }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn xor(mut a: [__m256i; N], b: [__m256i; N]) -> [__m256i; N] {
                for i in 0..N {
                    a[i] = _mm256_xor_si256(a[i], b[i]);
                }
                a
            }

            /// H(x ^ offset) of every block.
            #[inline]
            #[target_feature(enable = $features)]
            fn mmo(k: &Key, x: [__m256i; N], offset: __m256i) -> [__m256i; N] {
                let mut s = x;
                for v in &mut s {
                    *v = sigma(_mm256_xor_si256(*v, offset));
                }
                xor($encrypt(&k.0, s), s)
            }

            /// See `FixedKey::hash`.
            pub(in crate::simd) fn hash(k: &Key, input: &[Block], offset: Block, out: &mut [Block]) {
                // SAFETY: a `Key` exists only where the features do.
                unsafe { hash_inner(k, input, offset, out) }
            }

            #[target_feature(enable = $features)]
            fn hash_inner(k: &Key, input: &[Block], offset: Block, out: &mut [Block]) {
                let offset = broadcast(offset);
                let (x, x_tail) = input.as_chunks::<BLOCKS>();
                let (o, o_tail) = out.as_chunks_mut::<BLOCKS>();
                for i in 0..x.len() {
                    store(&mut o[i], mmo(k, load(&x[i]), offset));
                }
                if !x_tail.is_empty() {
                    let mut buffer = [0; BLOCKS];
                    buffer[..x_tail.len()].copy_from_slice(x_tail);
                    let h = mmo(k, load(&buffer), offset);
                    store(&mut buffer, h);
                    o_tail.copy_from_slice(&buffer[..x_tail.len()]);
                }
            }

            /// See `FixedKey::tweaked`.
            pub(in crate::simd) fn tweaked(k: &Key, input: &[Block], offset: Block, first: u64, out: &mut [Block]) {
                // SAFETY: a `Key` exists only where the features do.
                unsafe { tweaked_inner(k, input, offset, first, out) }
            }

            #[target_feature(enable = $features)]
            fn tweaked_inner(k: &Key, input: &[Block], offset: Block, first: u64, out: &mut [Block]) {
                let offset = [broadcast(offset); N];
                let mut tweak = _mm256_set_epi64x(0, first.wrapping_add(2) as i64, 0, first as i64);
                let step = _mm256_set_epi64x(0, 4, 0, 4);
                let mut buffer = [0; BLOCKS];
                for at in (0..input.len()).step_by(BLOCKS) {
                    let n = BLOCKS.min(input.len() - at);
                    buffer[..n].copy_from_slice(&input[at..at + n]);
                    let inner = $encrypt(&k.0, xor(load(&buffer), offset));
                    let mut s = inner;
                    for i in 0..N {
                        s[i] = _mm256_xor_si256(s[i], tweak);
                        tweak = _mm256_add_epi64(tweak, step);
                    }
                    store(&mut buffer, xor($encrypt(&k.0, s), inner));
                    out[at..at + n].copy_from_slice(&buffer[..n]);
                }
            }

            /// See `FixedKey::grow`.
            pub(in crate::simd) fn grow(k: &Key, nodes: &mut [Block], w: usize) -> Block {
                // SAFETY: a `Key` exists only where the features do.
                unsafe { grow_inner::<false>(k, nodes, w, 0, 0) }
            }

            /// See `FixedKey::grow_patched`.
            pub(in crate::simd) fn grow_patched(k: &Key, nodes: &mut [Block], w: usize, at: u64, value: Block) -> Block {
                // SAFETY: a `Key` exists only where the features do.
                unsafe { grow_inner::<true>(k, nodes, w, at, value) }
            }

            /// The part of a patch that falls on group `i` of the nodes, added to them.
            #[inline]
            #[target_feature(enable = $features)]
            fn patch(mut x: [__m256i; N], i: usize, at: u64, spread: &[Block; BLOCKS]) -> [__m256i; N] {
                let here = broadcast(equal_mask(i as u64, at / BLOCKS as u64));
                let spread = load(spread);
                for j in 0..N {
                    x[j] = _mm256_xor_si256(x[j], _mm256_and_si256(here, spread[j]));
                }
                x
            }

            #[target_feature(enable = $features)]
            fn grow_inner<const PATCH: bool>(
                k: &Key,
                nodes: &mut [Block],
                w: usize,
                at: u64,
                value: Block,
            ) -> Block {
                let none = _mm256_setzero_si256();
                let spread = if PATCH { spread(at, value) } else { [0; BLOCKS] };
                let (low, high) = nodes.split_at_mut(w);
                let (low, low_tail) = low.as_chunks_mut::<BLOCKS>();
                let (high, high_tail) = high[..w].as_chunks_mut::<BLOCKS>();
                let mut sums = none;
                for i in 0..low.len() {
                    let mut parents = load(&low[i]);
                    if PATCH {
                        parents = patch(parents, i, at, &spread);
                    }
                    let left = mmo(k, parents, none);
                    for j in 0..N {
                        sums = _mm256_xor_si256(sums, left[j]);
                    }
                    store(&mut low[i], left);
                    store(&mut high[i], xor(left, parents));
                }
                let mut sum = to_u128(_mm_xor_si128(
                    _mm256_castsi256_si128(sums),
                    _mm256_extracti128_si256::<1>(sums),
                ));
                if !low_tail.is_empty() {
                    let mut parents = [0; BLOCKS];
                    parents[..low_tail.len()].copy_from_slice(low_tail);
                    if PATCH {
                        let patched = patch(load(&parents), low.len(), at, &spread);
                        store(&mut parents, patched);
                    }
                    let mut buffer = [0; BLOCKS];
                    let h = mmo(k, load(&parents), none);
                    store(&mut buffer, h);
                    for i in 0..low_tail.len() {
                        high_tail[i] = parents[i] ^ buffer[i];
                        low_tail[i] = buffer[i];
                        sum ^= buffer[i];
                    }
                }
                sum
            }

            /// See `FixedKey::lefts`.
            pub(in crate::simd) fn lefts(k: &Key, nodes: &[Block]) -> Block {
                // SAFETY: a `Key` exists only where the features do.
                unsafe { lefts_inner(k, nodes) }
            }

            #[target_feature(enable = $features)]
            fn lefts_inner(k: &Key, nodes: &[Block]) -> Block {
                let none = _mm256_setzero_si256();
                let (groups, tail) = nodes.as_chunks::<BLOCKS>();
                let mut sums = [none; N];
                for i in 0..groups.len() {
                    sums = xor(sums, mmo(k, load(&groups[i]), none));
                }
                let mut buffer = [0; BLOCKS];
                buffer[..tail.len()].copy_from_slice(tail);
                let h = mmo(k, load(&buffer), none);
                store(&mut buffer, h);
                buffer[tail.len()..].fill(0);
                sums = xor(sums, load(&buffer));
                store(&mut buffer, sums);
                let mut sum = 0;
                for i in 0..BLOCKS {
                    sum ^= buffer[i];
                }
                sum
            }

            /// See `FixedKey::seal`.
            pub(in crate::simd) fn seal(_: &Key, nodes: &mut [Block], at: u64, value: Block) {
                // SAFETY: a `Key` exists only where the features do.
                unsafe { seal_inner(nodes, at, value) }
            }

            /// See `FixedKey::words`.
            pub(in crate::simd) fn words(k: &Key, blocks: &[Block; 64], offset: Block) -> lanes::Lanes {
                // SAFETY: a `Key` exists only where the features do.
                unsafe { words_inner(k, blocks, offset) }
            }

            #[target_feature(enable = $features)]
            fn words_inner(k: &Key, blocks: &[Block; 64], offset: Block) -> lanes::Lanes {
                let offset = broadcast(offset);
                let mut out = [0; 64];
                let blocks = blocks.as_chunks::<BLOCKS>().0;
                for q in 0..blocks.len() {
                    let h = mmo(k, load(&blocks[q]), offset);
                    for i in 0..N / 2 {
                        // Words of blocks 0, 2, 1, 3.
                        let low = _mm256_unpacklo_epi64(h[2 * i], h[2 * i + 1]);
                        let low = _mm256_permute4x64_epi64::<0b11_01_10_00>(low);
                        // SAFETY: four of the 64 words.
                        unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(BLOCKS * q + 4 * i).cast(), low) };
                    }
                }
                out
            }

            /// See `FixedKey::planes`: the top bits of both halves of the blocks, then the bits below.
            pub(in crate::simd) fn planes<const P: usize>(k: &Key, blocks: &[Block; 64], offset: Block) -> [u64; P] {
                // SAFETY: a `Key` exists only where the features do.
                unsafe { planes_inner(k, blocks, offset) }
            }

            #[target_feature(enable = $features)]
            fn planes_inner<const P: usize>(k: &Key, blocks: &[Block; 64], offset: Block) -> [u64; P] {
                let offset = broadcast(offset);
                let mut out = [0; P];
                let blocks = blocks.as_chunks::<BLOCKS>().0;
                for q in 0..4 {
                    let mut h = [offset; 8];
                    for i in 0..8 / N {
                        h.as_chunks_mut::<N>().0[i] = mmo(k, load(&blocks[8 / N * q + i]), offset);
                    }
                    let mut bytes = column::<true>(h);
                    for pair in out.chunks_mut(2) {
                        let mask = _mm256_movemask_epi8(bytes) as u32;
                        bytes = _mm256_add_epi8(bytes, bytes);
                        pair.iter_mut().zip([mask >> 16, mask & 0xffff]).for_each(|(o, m)| *o |= u64::from(m) << (16 * q));
                    }
                }
                out
            }

            /// See `FixedKey::choices`.
            pub(in crate::simd) fn choices(_: &Key, blocks: &[Block; 64]) -> u64 {
                // SAFETY: a `Key` exists only where the features do.
                unsafe { choices_inner(blocks) }
            }

            #[target_feature(enable = $features)]
            fn choices_inner(blocks: &[Block; 64]) -> u64 {
                let mut out = 0;
                let blocks = blocks.as_chunks::<BLOCKS>().0;
                for q in 0..4 {
                    let mut x = [_mm256_setzero_si256(); 8];
                    for i in 0..8 / N {
                        x.as_chunks_mut::<N>().0[i] = load(&blocks[8 / N * q + i]);
                    }
                    let mask = _mm256_movemask_epi8(_mm256_slli_epi16::<7>(column::<false>(x))) as u32;
                    out |= u64::from(mask & 0xffff) << (16 * q);
                }
                out
            }

            /// See `FixedKey::encode`.
            pub(in crate::simd) fn encode(k: &Key, first: u64, table: &[Block], log_group: u32, rows: &mut [Block]) {
                check_code(first, table, log_group);
                // SAFETY: a `Key` exists only where the features do.
                unsafe { encode_inner(k, first, table, log_group, rows) }
            }

            /// Picks that are made at a time, eight a block.
            const PICKS: usize = 8 * BLOCKS;

            #[target_feature(enable = $features)]
            fn encode_inner(k: &Key, first: u64, table: &[Block], log_group: u32, rows: &mut [Block]) {
                let mask = _mm256_set1_epi16(((1u32 << log_group) - 1) as i16);
                let mut offsets = [0u32; PICKS];
                let parts = rows.len().div_ceil(PICKS);
                for (j, group, next) in groups(table, log_group, 1, rows.len()) {
                    for part in 0..parts {
                        fetch(next, part, parts);
                        let start = (first / 8).wrapping_add((part * BLOCKS) as u64);
                        let mut count =
                            _mm256_set_epi64x(j as i64, start.wrapping_add(1) as i64, j as i64, start as i64);
                        let mut x = [count; N];
                        for i in 0..N {
                            x[i] = count;
                            count = _mm256_add_epi64(count, _mm256_set_epi64x(0, 2, 0, 2));
                        }
                        let words = $encrypt(&k.0, x);
                        for i in 0..N {
                            let words = _mm256_and_si256(words[i], mask);
                            let halves =
                                [_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words)];
                            for half in 0..2 {
                                // Byte offsets into the group: 16 times the entry.
                                let bytes = _mm256_slli_epi32::<4>(_mm256_cvtepu16_epi32(halves[half]));
                                // SAFETY: eight of the PICKS words.
                                unsafe {
                                    let to = offsets.as_mut_ptr().add(16 * i + 8 * half);
                                    _mm256_storeu_si256(to.cast(), bytes);
                                }
                            }
                        }
                        let end = rows.len().min((part + 1) * PICKS);
                        let chunk = &mut rows[part * PICKS..end];
                        // SAFETY: the mask leaves whole entries inside the group; a chunk has at most PICKS rows.
                        unsafe { add_picks(group, [&offsets], chunk) };
                    }
                }
            }

            lanes::compiled!($features);
        }
    };
}

kernels!(
    /// AES on 128-bit registers, eight at a time.
    aesni,
    4,
    encrypt_aesni,
    "avx2,aes",
    (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("aes"))
);

kernels!(
    /// AES on 256-bit registers, eight at a time.
    vaes,
    8,
    encrypt_vaes,
    "avx2,aes,vaes",
    (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("aes") && is_x86_feature_detected!("vaes"))
);
