//! AVX-512 + VAES + GFNI. Everything here is reached only after the features have been detected.
#![allow(unsafe_code)]
// As in `avx2`: loops over registers count.
#![allow(clippy::needless_range_loop)]

use std::arch::x86_64::*;

use super::x86::{add_picks, expand, fetch, from_u128, groups, RoundKeys};
use super::{check_code, lanes, spread};
use crate::block::{Block, CLEAR};
use crate::select::equal_mask;

/// AES-128 round keys; holding one proves that the features below are there.
#[derive(Clone)]
pub(super) struct Key(RoundKeys);

fn detected() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("aes")
        && is_x86_feature_detected!("gfni")
        && is_x86_feature_detected!("bmi2")
}

impl Key {
    /// None where the machine lacks a feature.
    pub(super) fn new(key: Block) -> Option<Self> {
        // SAFETY: the features were detected.
        detected().then(|| Self(unsafe { expand(key) }))
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(x: u128) -> __m512i {
    _mm512_broadcast_i32x4(from_u128(x))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes")]
fn encrypt<const N: usize>(k: &Key, mut s: [__m512i; N]) -> [__m512i; N] {
    let k0 = broadcast(k.0[0]);
    for v in &mut s {
        *v = _mm512_xor_si512(*v, k0);
    }
    for r in 1..10 {
        let kr = broadcast(k.0[r]);
        for v in &mut s {
            *v = _mm512_aesenc_epi128(*v, kr);
        }
    }
    let kl = broadcast(k.0[10]);
    for v in &mut s {
        *v = _mm512_aesenclast_epi128(*v, kl);
    }
    s
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes")]
fn sigma(x: __m512i) -> __m512i {
    let swapped = _mm512_shuffle_epi32::<0x4e>(x);
    // Even lanes (low halves) take hi; odd lanes take hi ^ lo.
    _mm512_mask_xor_epi64(swapped, 0b1010_1010, swapped, x)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes")]
fn mmo<const N: usize>(k: &Key, x: [__m512i; N]) -> [__m512i; N] {
    let mut s = x;
    for v in &mut s {
        *v = sigma(*v);
    }
    let mut e = encrypt(k, s);
    for (v, s) in e.iter_mut().zip(s) {
        *v = _mm512_xor_si512(*v, s);
    }
    e
}

pub(super) fn tweaked(k: &Key, input: &[Block], offset: Block, first: u64, out: &mut [Block]) {
    assert_eq!(input.len(), out.len());
    // SAFETY: a `Key` exists only where the features do.
    unsafe { tweaked_inner(k, input, offset, first, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes")]
unsafe fn tweaked_inner(k: &Key, input: &[Block], offset: Block, first: u64, out: &mut [Block]) {
    const N: usize = 4;
    let off = broadcast(offset);
    let at = |i: usize| first.wrapping_add(2 * i as u64) as i64;
    let step = _mm512_set_epi64(0, 6, 0, 4, 0, 2, 0, 0);
    for (i, (x, o)) in input.chunks(4 * N).zip(out.chunks_mut(4 * N)).enumerate() {
        let (src, dst) = (x.as_ptr().cast::<i64>(), o.as_mut_ptr().cast::<i64>());
        let (mut v, mut tweak) = ([_mm512_setzero_si512(); N], [_mm512_setzero_si512(); N]);
        for j in 0..N {
            let mask = head(x.len().saturating_sub(4 * j));
            // SAFETY: the mask covers only blocks of the slice; where it is empty nothing is read.
            v[j] = _mm512_xor_si512(unsafe { _mm512_maskz_loadu_epi64(mask, src.wrapping_add(8 * j)) }, off);
            let base = _mm512_maskz_set1_epi64(0b0101_0101, at(4 * (N * i + j)));
            tweak[j] = _mm512_add_epi64(base, step);
        }
        let inner = encrypt(k, v);
        for j in 0..N {
            v[j] = _mm512_xor_si512(inner[j], tweak[j]);
        }
        let outer = encrypt(k, v);
        for j in 0..N {
            let mask = head(x.len().saturating_sub(4 * j));
            // SAFETY: as above, and the chunks are equally long.
            unsafe {
                _mm512_mask_storeu_epi64(dst.wrapping_add(8 * j), mask, _mm512_xor_si512(outer[j], inner[j]));
            }
        }
    }
}

/// Lane mask of the first n of 4 blocks.
fn head(n: usize) -> u8 {
    ((1u16 << (2 * n.min(4))) - 1) as u8
}

pub(super) fn hash(k: &Key, input: &[Block], offset: Block, out: &mut [Block]) {
    assert_eq!(input.len(), out.len());
    // SAFETY: a `Key` exists only where the features do.
    unsafe { hash_inner(k, input, offset, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes")]
unsafe fn hash_inner(k: &Key, input: &[Block], offset: Block, out: &mut [Block]) {
    const N: usize = 8;
    let off = broadcast(offset);
    let n = input.len();
    let (src, dst) = (input.as_ptr().cast::<i64>(), out.as_mut_ptr().cast::<i64>());
    let mut i = 0;
    while i + 4 * N <= n {
        let mut x = [_mm512_setzero_si512(); N];
        for (j, v) in x.iter_mut().enumerate() {
            // SAFETY: blocks i+4j..i+4j+4 lie inside the slice.
            *v = _mm512_xor_si512(unsafe { _mm512_loadu_si512(src.add(2 * (i + 4 * j)).cast()) }, off);
        }
        for (j, v) in mmo(k, x).into_iter().enumerate() {
            // SAFETY: as above, and the slices are equally long.
            unsafe { _mm512_storeu_si512(dst.add(2 * (i + 4 * j)).cast(), v) };
        }
        i += 4 * N;
    }
    while i < n {
        let m = head(n - i);
        // SAFETY: the mask keeps to the blocks before n.
        let x = unsafe { _mm512_maskz_loadu_epi64(m, src.add(2 * i)) };
        let [v] = mmo(k, [_mm512_xor_si512(x, off)]);
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_epi64(dst.add(2 * i), m, v) };
        i += 4;
    }
}

pub(super) fn grow(k: &Key, nodes: &mut [Block], w: usize) -> Block {
    assert!(nodes.len() >= 2 * w);
    // SAFETY: a `Key` exists only where the features do.
    unsafe { grow_inner::<false>(k, nodes, w, 0, 0) }
}

/// See `FixedKey::grow_patched`.
pub(super) fn grow_patched(k: &Key, nodes: &mut [Block], w: usize, at: u64, value: Block) -> Block {
    assert!(nodes.len() >= 2 * w);
    // SAFETY: a `Key` exists only where the features do.
    unsafe { grow_inner::<true>(k, nodes, w, at, value) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes")]
unsafe fn grow_inner<const PATCH: bool>(
    k: &Key,
    nodes: &mut [Block],
    w: usize,
    at: u64,
    value: Block,
) -> Block {
    const N: usize = 8;
    let spread: [Block; 4 * N] = if PATCH { spread(at, value) } else { [0; 4 * N] };
    let p = nodes.as_mut_ptr().cast::<i64>();
    let mut sum = _mm512_setzero_si512();
    let mut i = 0;
    while i + 4 * N <= w {
        let mut x = [_mm512_setzero_si512(); N];
        for (j, v) in x.iter_mut().enumerate() {
            // SAFETY: blocks below w.
            *v = unsafe { _mm512_loadu_si512(p.add(2 * (i + 4 * j)).cast()) };
        }
        if PATCH {
            let here = broadcast(equal_mask((i / (4 * N)) as u64, at / (4 * N) as u64));
            for (j, v) in x.iter_mut().enumerate() {
                // SAFETY: four of the spread's blocks.
                let value = unsafe { _mm512_loadu_si512(spread.as_ptr().add(4 * j).cast()) };
                *v = _mm512_xor_si512(*v, _mm512_and_si512(here, value));
            }
        }
        for (j, (l, x)) in mmo(k, x).into_iter().zip(x).enumerate() {
            sum = _mm512_xor_si512(sum, l);
            // SAFETY: blocks below w, and w further, below 2w <= nodes.len().
            unsafe {
                _mm512_storeu_si512(p.add(2 * (i + 4 * j)).cast(), l);
                _mm512_storeu_si512(p.add(2 * (w + i + 4 * j)).cast(), _mm512_xor_si512(l, x));
            }
        }
        i += 4 * N;
    }
    while i < w {
        let m = head(w - i);
        // SAFETY: the mask keeps to the blocks before w.
        let mut x = unsafe { _mm512_maskz_loadu_epi64(m, p.add(2 * i)) };
        if PATCH {
            let here = broadcast(equal_mask((i / (4 * N)) as u64, at / (4 * N) as u64));
            // SAFETY: i is a multiple of 4, so that four of the spread's blocks remain.
            let value = unsafe { _mm512_loadu_si512(spread.as_ptr().add(i % (4 * N)).cast()) };
            x = _mm512_xor_si512(x, _mm512_and_si512(here, value));
        }
        let [l] = mmo(k, [x]);
        sum = _mm512_mask_xor_epi64(sum, m, sum, l);
        // SAFETY: as above; the right children lie w further.
        unsafe {
            _mm512_mask_storeu_epi64(p.add(2 * i), m, l);
            _mm512_mask_storeu_epi64(p.add(2 * (w + i)), m, _mm512_xor_si512(l, x));
        }
        i += 4;
    }
    fold(sum)
}

/// See `FixedKey::lefts`.
pub(super) fn lefts(k: &Key, nodes: &[Block]) -> Block {
    // SAFETY: a `Key` exists only where the features do.
    unsafe { lefts_inner(k, nodes) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes")]
unsafe fn lefts_inner(k: &Key, nodes: &[Block]) -> Block {
    const N: usize = 8;
    let (groups, rest) = nodes.as_chunks::<{ 4 * N }>();
    let mut sum = _mm512_setzero_si512();
    for group in groups {
        let mut x = [_mm512_setzero_si512(); N];
        for j in 0..N {
            // SAFETY: four of the group's blocks.
            x[j] = unsafe { _mm512_loadu_si512(group.as_ptr().add(4 * j).cast()) };
        }
        for left in mmo(k, x) {
            sum = _mm512_xor_si512(sum, left);
        }
    }
    for four in rest.chunks(4) {
        let m = head(four.len());
        // SAFETY: the mask keeps to the blocks that are there.
        let [left] = mmo(k, [unsafe { _mm512_maskz_loadu_epi64(m, four.as_ptr().cast()) }]);
        sum = _mm512_mask_xor_epi64(sum, m, sum, left);
    }
    fold(sum)
}

/// The XOR of four blocks.
#[inline]
#[target_feature(enable = "avx512f")]
fn fold(x: __m512i) -> Block {
    let mut parts = [0u128; 4];
    // SAFETY: 64 bytes of room.
    unsafe { _mm512_storeu_si512(parts.as_mut_ptr().cast(), x) };
    parts[0] ^ parts[1] ^ parts[2] ^ parts[3]
}

/// See `FixedKey::seal`.
pub(super) fn seal(_: &Key, nodes: &mut [Block], at: u64, value: Block) {
    // SAFETY: a `Key` exists only where the features do.
    unsafe { seal_inner(nodes, at, value) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes")]
unsafe fn seal_inner(nodes: &mut [Block], at: u64, value: Block) {
    /// (a AND b) XOR c.
    const AND_XOR: i32 = 0b0110_1010;
    let (clear, value, at) = (broadcast(CLEAR), broadcast(value), _mm512_set1_epi64(at as i64));
    let mut places = _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0);
    let (fours, rest) = nodes.as_chunks_mut::<4>();
    for i in 0..fours.len() {
        let p = fours[i].as_mut_ptr().cast();
        let here = _mm512_maskz_mov_epi64(_mm512_cmpeq_epi64_mask(places, at), value);
        // SAFETY: four blocks.
        unsafe {
            let x = _mm512_loadu_si512(p);
            _mm512_storeu_si512(p, _mm512_ternarylogic_epi64::<AND_XOR>(x, clear, here));
        }
        places = _mm512_add_epi64(places, _mm512_set1_epi64(4));
    }
    let (m, p) = (head(rest.len()), rest.as_mut_ptr().cast::<i64>());
    let here = _mm512_maskz_mov_epi64(_mm512_cmpeq_epi64_mask(places, at), value);
    // SAFETY: the mask keeps to the blocks that are there.
    unsafe {
        let x = _mm512_maskz_loadu_epi64(m, p);
        _mm512_mask_storeu_epi64(p, m, _mm512_ternarylogic_epi64::<AND_XOR>(x, clear, here));
    }
}

/// See `FixedKey::words`.
pub(super) fn words(k: &Key, blocks: &[Block; 64], offset: Block) -> lanes::Lanes {
    // SAFETY: a `Key` exists only where the features do.
    unsafe { words_inner(k, blocks, offset) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes")]
unsafe fn words_inner(k: &Key, blocks: &[Block; 64], offset: Block) -> lanes::Lanes {
    const N: usize = 8;
    let (off, low) = (broadcast(offset), _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0));
    let mut out = [0; 64];
    for half in 0..2 {
        let mut x = [_mm512_setzero_si512(); N];
        for j in 0..N {
            // SAFETY: four of the 64 blocks.
            let four = unsafe { _mm512_loadu_si512(blocks.as_ptr().add(32 * half + 4 * j).cast()) };
            x[j] = _mm512_xor_si512(four, off);
        }
        let h = mmo(k, x);
        for j in 0..N / 2 {
            let eight = _mm512_permutex2var_epi64(h[2 * j], low, h[2 * j + 1]);
            // SAFETY: eight of the 64 words.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(32 * half + 8 * j).cast(), eight) };
        }
    }
    out
}

#[target_feature(enable = "avx512f,avx512dq,bmi2")]
unsafe fn extract_inner(blocks: &[Block; 64], position: u32) -> u64 {
    let shift = _mm_cvtsi32_si128(63 - (position % 64) as i32);
    let lanes = if position >= 64 { 0xaaaa_aaaa_aaaa_aaaa } else { 0x5555_5555_5555_5555 };
    let mut out = 0;
    for (q, quarter) in blocks.chunks_exact(32).enumerate() {
        let mut mask = 0u64;
        for (j, four) in quarter.chunks_exact(4).enumerate() {
            // SAFETY: four blocks.
            let x = unsafe { _mm512_loadu_si512(four.as_ptr().cast()) };
            mask |= u64::from(_mm512_movepi64_mask(_mm512_sll_epi64(x, shift))) << (8 * j);
        }
        out |= _pext_u64(mask, lanes) << (32 * q);
    }
    out
}

pub(super) fn transpose64(m: &mut [u64; 64]) -> bool {
    if !detected() {
        return false;
    }
    // SAFETY: the features were detected.
    unsafe { transpose64_inner(m) };
    true
}

/// 8x8 bytes are moved by byte permutations, 8x8 bits by the affine instruction.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi,gfni")]
unsafe fn transpose64_inner(m: &mut [u64; 64]) {
    let mut bytes8 = [0u8; 64];
    for (i, b) in bytes8.iter_mut().enumerate() {
        *b = ((i % 8) * 8 + i / 8) as u8;
    }
    // SAFETY: 64 bytes.
    let perm = unsafe { _mm512_loadu_si512(bytes8.as_ptr().cast()) };
    // With the matrix as second operand, the affine map of the unit vectors e_7..e_0 reads its columns.
    let unit = _mm512_set1_epi64(0x8040_2010_0804_0201u64 as i64);
    let mut z = [_mm512_setzero_si512(); 8];
    for (j, v) in z.iter_mut().enumerate() {
        // SAFETY: rows 8j..8j+8.
        let x = unsafe { _mm512_loadu_si512(m.as_ptr().add(8 * j).cast()) };
        // Lane b: byte b of rows 8j..8j+8, row r in byte 7-r so that the affine's row order comes out right.
        let x = _mm512_permutexvar_epi8(perm, x);
        *v = _mm512_gf2p8affine_epi64_epi8::<0>(unit, reverse_bytes(x));
    }
    // z[j]: lane b, byte i = bits of rows 8j.. in column 8b+i. Word 8b+i wants byte j from z[j], so 8 rows of 16 bytes are transposed in each quarter.
    let (mut words, mut quads) = ([[_mm512_setzero_si512(); 4]; 2], [[[_mm512_setzero_si512(); 2]; 2]; 2]);
    for i in 0..4 {
        words[0][i] = _mm512_unpacklo_epi8(z[2 * i], z[2 * i + 1]);
        words[1][i] = _mm512_unpackhi_epi8(z[2 * i], z[2 * i + 1]);
    }
    for half in 0..2 {
        for i in 0..2 {
            let (top, bottom) = (words[half][2 * i], words[half][2 * i + 1]);
            quads[half][0][i] = _mm512_unpacklo_epi16(top, bottom);
            quads[half][1][i] = _mm512_unpackhi_epi16(top, bottom);
        }
        for part in 0..2 {
            let [top, bottom] = quads[half][part];
            z[4 * half + 2 * part] = _mm512_unpacklo_epi32(top, bottom);
            z[4 * half + 2 * part + 1] = _mm512_unpackhi_epi32(top, bottom);
        }
    }
    // Quarter q of z[k]: columns 16q + 2k and 16q + 2k + 1.
    for (k, v) in z.iter().enumerate() {
        let quarters = [
            _mm512_castsi512_si128(*v),
            _mm512_extracti32x4_epi32::<1>(*v),
            _mm512_extracti32x4_epi32::<2>(*v),
            _mm512_extracti32x4_epi32::<3>(*v),
        ];
        for (q, two) in quarters.into_iter().enumerate() {
            // SAFETY: words 16q + 2k and 16q + 2k + 1, of 64.
            unsafe { _mm_storeu_si128(m.as_mut_ptr().add(16 * q + 2 * k).cast(), two) };
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn reverse_bytes(x: __m512i) -> __m512i {
    let r = _mm512_set4_epi32(0x0809_0a0b, 0x0c0d_0e0f, 0x0001_0203, 0x0405_0607);
    _mm512_shuffle_epi8(x, r)
}

/// See `FixedKey::encode`.
pub(super) fn encode(k: &Key, first: u64, table: &[Block], log_group: u32, rows: &mut [Block]) {
    check_code(first, table, log_group);
    // SAFETY: a `Key` exists only where the features do.
    unsafe { encode_inner(k, first, table, log_group, rows) }
}

/// Picks of a group that are made at a time.
const PICKS: usize = 128;

/// The most groups that are worked on together.
const TOGETHER: usize = 3;

/// Groups that are worked on together: a row is then read and written less often, while these groups fit a second-level cache of 1 MiB.
fn together(log_group: u32) -> usize {
    ((1 << 16) >> log_group).clamp(1, TOGETHER)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes")]
unsafe fn encode_inner(k: &Key, first: u64, table: &[Block], log_group: u32, rows: &mut [Block]) {
    let mut offsets = [[0u32; PICKS]; TOGETHER];
    let parts = rows.len().div_ceil(PICKS);
    for (j, groups, next) in groups(table, log_group, together(log_group), rows.len()) {
        let these = groups.len() >> log_group;
        for (c, chunk) in rows.chunks_mut(PICKS).enumerate() {
            fetch(next, c, parts);
            let start = (first / 8).wrapping_add((c * PICKS / 8) as u64);
            for (i, offsets) in offsets.iter_mut().enumerate().take(these) {
                picks(k, [start, j + i as u64], log_group, (16 * i as u32) << log_group, offsets);
            }
            let [one, two, three] = &offsets;
            // SAFETY: the offsets name whole entries of the groups that are there; a chunk has at most PICKS rows.
            unsafe {
                match these {
                    1 => add_picks(groups, [one], chunk),
                    2 => add_picks(groups, [one, two], chunk),
                    _ => add_picks(groups, [one, two, three], chunk),
                }
            }
        }
    }
}

/// Byte offsets of the entries that AES(start..) under the code's key names in group j, behind `base` bytes of other groups.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes")]
fn picks(k: &Key, [start, j]: [u64; 2], log_group: u32, base: u32, offsets: &mut [u32; PICKS]) {
    /// Registers of eight picks a block.
    const N: usize = PICKS / 32;
    let mask = _mm512_set1_epi16(((1u32 << log_group) - 1) as i16);
    let base = _mm512_set1_epi32(base as i32);
    let group_words = _mm512_maskz_set1_epi64(0xaa, j as i64);
    let start = _mm512_mask_set1_epi64(group_words, 0x55, start as i64);
    let mut count = _mm512_add_epi64(start, _mm512_set_epi64(0, 3, 0, 2, 0, 1, 0, 0));
    let mut x = [_mm512_setzero_si512(); N];
    for v in &mut x {
        *v = count;
        count = _mm512_add_epi64(count, _mm512_maskz_set1_epi64(0x55, 4));
    }
    for (v, o) in encrypt(k, x).into_iter().zip(offsets.as_chunks_mut::<32>().0) {
        let words = _mm512_and_si512(v, mask);
        let halves = [_mm512_castsi512_si256(words), _mm512_extracti64x4_epi64::<1>(words)];
        for (half, o) in halves.into_iter().zip(o.as_chunks_mut::<16>().0) {
            // 16 times the entry.
            let bytes = _mm512_add_epi32(base, _mm512_slli_epi32::<4>(_mm512_cvtepu16_epi32(half)));
            // SAFETY: 16 words of room.
            unsafe { _mm512_storeu_si512(o.as_mut_ptr().cast(), bytes) };
        }
    }
}

/// See `FixedKey::planes`: masks of the 64-bit lanes' top bits, then of the bits below.
pub(super) fn planes<const P: usize>(k: &Key, blocks: &[Block; 64], offset: Block) -> [u64; P] {
    // SAFETY: a `Key` exists only where the features do.
    unsafe { planes_inner(k, blocks, offset) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes,bmi2")]
unsafe fn planes_inner<const P: usize>(k: &Key, blocks: &[Block; 64], offset: Block) -> [u64; P] {
    const N: usize = 8;
    let off = broadcast(offset);
    let mut out = [0; P];
    for (half, blocks) in blocks.chunks_exact(32).enumerate() {
        let mut x = [_mm512_setzero_si512(); N];
        for (v, four) in x.iter_mut().zip(blocks.chunks_exact(4)) {
            // SAFETY: four blocks.
            *v = _mm512_xor_si512(unsafe { _mm512_loadu_si512(four.as_ptr().cast()) }, off);
        }
        let mut hashes = mmo(k, x);
        for pair in out.chunks_mut(2) {
            let mut mask = 0;
            for j in 0..N {
                mask |= u64::from(_mm512_movepi64_mask(hashes[j])) << (8 * j);
                hashes[j] = _mm512_slli_epi64::<1>(hashes[j]);
            }
            let of_half = [0xaaaa_aaaa_aaaa_aaaa, 0x5555_5555_5555_5555].map(|lanes| _pext_u64(mask, lanes));
            pair.iter_mut().zip(of_half).for_each(|(o, m)| *o |= m << (32 * half));
        }
    }
    out
}

/// See `FixedKey::choices`.
pub(super) fn choices(_: &Key, blocks: &[Block; 64]) -> u64 {
    // SAFETY: a `Key` exists only where the features do.
    unsafe { extract_inner(blocks, 0) }
}

lanes::compiled!("avx512f,avx512bw,avx512dq,avx512vbmi,bmi2");
